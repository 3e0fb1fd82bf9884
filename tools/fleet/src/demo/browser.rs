//! A browser for the demo: Chromium with a profile of its own that believes the demo's one key.

use std::path::PathBuf;

use super::child::{self, Child};
use super::film::find_program;
use super::place::Place;

/// Chromium under the names that distributions give it.
pub(super) fn find() -> Option<PathBuf> {
    find_program(&["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"])
}

/// True if there is a display to show a window on.
pub(super) fn has_display() -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    set("DISPLAY") || set("WAYLAND_DISPLAY")
}

/// Opens `urls` in a new Chromium, by way of files: an address with a token stands in no command
/// line. The profile is below `place` and goes with it.
pub(super) fn open(
    program: &std::path::Path,
    place: &Place,
    spki: &str,
    urls: &[String],
) -> anyhow::Result<Child> {
    let profile = place.make_dir("profile")?;
    let mut command = child::command(program)?;
    command
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("--ignore-certificate-errors-spki-list={spki}"))
        .args(["--no-first-run", "--no-default-browser-check", "--disable-background-networking"])
        .args(["--disable-component-update", "--autoplay-policy=no-user-gesture-required"])
        .args(["--window-size=1280,900", "--new-window"]);
    if rustix::process::geteuid().is_root() {
        // Chromium refuses to run its sandbox as root.
        command.arg("--no-sandbox");
    }
    for (index, url) in urls.iter().enumerate() {
        // Of letters, digits and the signs of a URL: nothing that could end the string.
        let page = format!("<!doctype html><script>location.replace({url:?})</script>");
        let file = place.write_secret(&format!("open-{index}.html"), &page)?;
        command.arg(format!("file://{}", file.display()));
    }
    let log = place.make_dir("logs")?.join("browser.log");
    Child::start("the browser", command, &log)
}
