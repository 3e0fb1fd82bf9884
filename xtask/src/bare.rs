//! `./x demo` and `./x check` on a machine that has git, a Rust toolchain and nothing else.
//!
//! ```text
//! bare Debian + git, ca-certificates <─ read only ── this machine's Rust toolchain
//!      └─ git clone ─> ./x demo ─> ready ─> Chromium of this machine ─> first frame; once more
//!                  └─> ./x check ─> its end
//! ```
//!
//! Nothing is cached: packages, libraries and those of npm are fetched each time, so the times hold
//! the network's. They begin after the clone.

use std::fs;
use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::ValueEnum;
use serde_json::Value;

use crate::tree::Tree;
use crate::{deb, say};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Release {
    #[value(name = "12")]
    Twelve,
    #[value(name = "13")]
    Thirteen,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum What {
    /// To the first frame, twice.
    Demo,
    /// To its end.
    Check,
}

const PACKAGES: [&str; 2] = ["git", "ca-certificates"];
/// Where the toolchain is in the tree.
const RUST: &str = "/opt/rust";
/// Beside Debian's own: certificates that this machine was given.
const CERTIFICATES: &str = "usr/local/share/ca-certificates";
const PREPARE: &str = "update-ca-certificates >/dev/null 2>&1; apt-get -qq update";
/// A first start compiles; a machine that is busy with other things takes longer.
const READY_WITHIN: Duration = Duration::from_secs(3600);
const FRAME_WITHIN: Duration = Duration::from_secs(120);

/// Tries these; true if all worked. Prints a line with seconds for each.
pub(crate) fn run(root: &Path, releases: &[Release], whats: &[What]) -> Result<bool> {
    let mut all = true;
    for release in releases {
        for what in whats {
            let tried = Machine::make(root, *release).and_then(|machine| match what {
                What::Demo => machine.demo(),
                What::Check => machine.check(),
            });
            let run = format!("bare: {}, {}", release.suite(), what.command());
            match &tried {
                Ok(times) => say(&format!("{run}: {times}")),
                Err(error) => say(&format!("{run} FAILED: {error:#}")),
            }
            all &= tried.is_ok();
        }
    }
    Ok(all)
}

impl Release {
    fn suite(self) -> &'static str {
        match self {
            Self::Twelve => "bookworm",
            Self::Thirteen => "trixie",
        }
    }
}

impl What {
    fn command(self) -> &'static str {
        match self {
            Self::Demo => "./x demo",
            Self::Check => "./x check",
        }
    }
}

struct Machine {
    tree: Tree,
    /// Of the toolchain that the repository is pinned to.
    rust: PathBuf,
}

impl Machine {
    fn make(root: &Path, release: Release) -> Result<Self> {
        let mut rustc = Command::new("rustc");
        let rust = deb::said(rustc.args(["--print", "sysroot"]).current_dir(root))?;
        let tree = Tree::make(release.suite(), "apt", &PACKAGES)?;
        let certificates = Path::new("/").join(CERTIFICATES);
        for entry in fs::read_dir(certificates).into_iter().flatten().flatten() {
            fs::copy(entry.path(), tree.path(CERTIFICATES).join(entry.file_name()))?;
        }
        // Here, because what `.git` of a worktree names is not there.
        let mut clone = Command::new("git");
        clone.args(["-c", "safe.directory=*", "clone", "--quiet", "--no-hardlinks"]);
        deb::said(clone.arg(root).arg(tree.path("opt/nearcast")))?;
        let machine = Self { tree, rust: rust.into() };
        let done = machine.shell(PREPARE).status().context("unshare does not start")?;
        ensure!(done.success(), "the bare Debian has no network");
        Ok(machine)
    }

    fn shell(&self, line: &str) -> Command {
        let line = format!("export PATH={RUST}/bin:$PATH; cd /opt/nearcast && {line}");
        let folders = [(&*self.rust, RUST)];
        let mut command = self.tree.inside(true, &folders, &["/bin/sh", "-c", &line]);
        command.stdin(Stdio::null());
        command
    }

    /// To the first frame twice: from nothing, and with the files of the first start.
    fn demo(&self) -> Result<String> {
        let [first, second] = [self.first_frame()?, self.first_frame()?].map(|t| t.as_secs_f64());
        Ok(format!("first frame after {first:.0} s, {second:.1} s the second time"))
    }

    fn check(&self) -> Result<String> {
        let start = Instant::now();
        let status = self.shell("./x check").status();
        ensure!(status.context("unshare does not start")?.success(), "it says why above");
        Ok(format!("passed after {:.0} s", start.elapsed().as_secs_f64()))
    }

    /// How long it takes until a browser shows the film. The tree has none: this machine's opens
    /// the page as soon as the demo names it.
    fn first_frame(&self) -> Result<Duration> {
        let start = Instant::now();
        let mut demo = self.shell("./x demo --json --no-browser");
        let demo = demo.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut demo = Ending(demo.context("unshare does not start")?);
        let (said, heard) = channel();
        listen(demo.0.stdout.take(), said.clone());
        listen(demo.0.stderr.take(), said);
        let ready = wait_for(&heard, READY_WITHIN, ready)?;
        let profile = self.tree.path("tmp/profile");
        let browser = Command::new("chromium")
            .args(["--headless", "--no-sandbox", "--no-first-run", "--disable-gpu"])
            .arg("--autoplay-policy=no-user-gesture-required")
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg(format!("--ignore-certificate-errors-spki-list={}", ready.spki))
            .arg(ready.page)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let _browser = Ending(browser.context("Chromium does not start")?);
        wait_for(&heard, FRAME_WITHIN, |line| line.contains("first frame ").then_some(()))?;
        Ok(start.elapsed())
    }
}

/// The demo's line when all of it is up.
#[derive(Debug, PartialEq, Eq)]
struct Ready {
    page: String,
    spki: String,
}

fn ready(line: &str) -> Option<Ready> {
    let all: Value = serde_json::from_str(line).ok()?;
    let text = |name: &str| all[name].as_str().map(str::to_owned);
    Some(Ready { page: text("play")?, spki: text("spki")? })
}

/// A process that ends with this.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Hands on each line, on a thread of its own.
fn listen(from: Option<impl Read + Send + 'static>, to: Sender<String>) {
    let Some(from) = from else { return };
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            say(&line);
            // Nobody may wait any more; the lines are still to be taken.
            let _ = to.send(line);
        }
    });
}

/// The finding of `find` in the first line where it finds something.
fn wait_for<T>(
    heard: &Receiver<String>,
    within: Duration,
    find: impl Fn(&str) -> Option<T>,
) -> Result<T> {
    let end = Instant::now() + within;
    loop {
        match heard.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                if let Some(found) = find(&line) {
                    return Ok(found);
                }
            }
            Err(RecvTimeoutError::Timeout) => bail!("not within {} s", within.as_secs()),
            Err(RecvTimeoutError::Disconnected) => bail!("it ended: it says why above"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demo_is_ready_when_it_names_its_page_and_a_demo_that_ends_is_a_failure() {
        let line = r#"{"play":"http://127.0.0.1:8080/play?asset=film","spki":"k=","encoded_ms":1}"#;
        let page = "http://127.0.0.1:8080/play?asset=film".to_owned();
        let wanted = Ready { page, spki: "k=".to_owned() };
        let (say, heard) = channel();
        for line in ["   Compiling libc v0.2", "{}", line] {
            say.send(line.to_owned()).unwrap();
        }
        assert_eq!(wait_for(&heard, Duration::from_secs(1), ready).unwrap(), wanted);
        drop(say);
        let error = wait_for(&heard, Duration::from_secs(1), ready).unwrap_err().to_string();
        assert_eq!(error, "it ended: it says why above");
    }
}
