//! Flame graphs: where a process spent its CPU time, by its stacks.
//!
//! ```text
//! perf record (cpu-clock) ──> perf script ──> stacks ──> a tree with counts ──> SVG
//! ```
//!
//! Each box is a function; its width is the share of samples in it and in what it called, which
//! stands on top of it. The form is Brendan Gregg's (The Flame Graph, CACM 59(6), 2016). Of two
//! programs that have little but the kernel in common, `ledger` draws the difference.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rig::process::{On, Process};

/// Samples a second; not a round number, so that it does not keep step with timers.
const SAMPLES_PER_S: &str = "397";
/// User stack copied with each sample: the deepest seen here take 3 KiB.
const STACK: &str = "dwarf,8192";
/// Marks the kernel's functions.
pub(crate) const KERNEL: &str = " [k]";
const WIDTH: f64 = 1200.0;
const ROW: f64 = 17.0;
/// Narrower boxes are left out.
const WIDTH_MIN: f64 = 0.4;
/// Of a letter, at the size that is used.
const LETTER: f64 = 6.6;

/// A function, how many samples it and what it called had, and what it called.
#[derive(Debug, Default, PartialEq, Eq)]
struct Frame {
    samples: u32,
    calls: BTreeMap<String, Self>,
}

/// Stacks that were seen, each with its functions, outermost first: the thread's name begins it.
#[derive(Debug, Default)]
pub(crate) struct Profile {
    pub(crate) stacks: Vec<Vec<String>>,
}

/// What is drawn: a box, and those that stand on it.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) name: String,
    /// What is said of it when it is pointed at, after its name.
    pub(crate) note: String,
    pub(crate) width: f64,
    pub(crate) colour: String,
    pub(crate) upon: Vec<Self>,
}

/// A recording under way.
pub(crate) struct Recording(Process);

/// An error if there is no perf here.
pub(crate) fn check() -> Result<()> {
    let output = Command::new("perf").arg("--version").output();
    let output = output.context("no perf: ./x lab installs it (Debian: linux-perf)")?;
    ensure!(output.status.success(), "perf --version failed");
    Ok(())
}

/// Samples process `pid` for the second of `time`, after the first of it.
pub(crate) fn record(
    pid: u32,
    [delay, length]: [Duration; 2],
    data: &Path,
    log: &Path,
) -> Result<Recording> {
    let (pid, wait) = (pid.to_string(), delay.as_millis().to_string());
    let (data, sleep) = (data.display().to_string(), (delay + length).as_secs().to_string());
    let words = ["perf", "record", "-q", "-o", &data, "-e", "cpu-clock", "-F", SAMPLES_PER_S];
    let more = ["--call-graph", STACK, "-D", &wait, "-p", &pid, "--", "sleep", &sleep];
    let command: Vec<String> = words.iter().chain(&more).map(|word| (*word).to_owned()).collect();
    Ok(Recording(Process::start("perf", &command, On::default(), log)?))
}

impl Recording {
    /// Until it has ended by itself.
    pub(crate) fn wait(self) -> Result<()> {
        self.0.end_well()
    }
}

pub(crate) fn read(data: &Path) -> Result<Profile> {
    let output = Command::new("perf")
        .args(["script", "--no-inline", "-F", "comm,ip,sym,dso", "-i"])
        .arg(data)
        .output()
        .context("cannot run perf script")?;
    ensure!(output.status.success(), "perf script: {}", String::from_utf8_lossy(&output.stderr));
    let profile = Profile::parse(&String::from_utf8_lossy(&output.stdout));
    ensure!(!profile.stacks.is_empty(), "perf saw nothing of the server");
    Ok(profile)
}

impl Profile {
    /// The text of `perf script`: a line that names the thread, then one per frame, innermost
    /// first, then an empty one.
    pub(crate) fn parse(text: &str) -> Self {
        let stack = |sample: &str| {
            let mut lines = sample.lines().filter(|line| !line.is_empty());
            let thread = lines.next()?.trim().to_owned();
            let mut frames: Vec<String> = lines.map(function).collect();
            frames.push(thread);
            frames.reverse();
            Some(frames)
        };
        Self { stacks: text.split("\n\n").filter_map(stack).collect() }
    }

    pub(crate) fn draw(&self, title: &str, path: &Path) -> Result<()> {
        let root = self.tree();
        let title = format!(
            "{title}, {} samples; orange: kernel, red: cryptography, blue: ours",
            root.samples
        );
        draw(&shape("all", &root, root.samples), &title, path)
    }

    fn tree(&self) -> Frame {
        let mut root = Frame::default();
        for stack in &self.stacks {
            let mut at = &mut root;
            at.samples += 1;
            for name in stack {
                at = at.calls.entry(name.clone()).or_default();
                at.samples += 1;
            }
        }
        root
    }
}

fn shape(name: &str, frame: &Frame, all: u32) -> Shape {
    let width = f64::from(frame.samples);
    Shape {
        name: name.to_owned(),
        note: format!("{:.1} %", 100.0 * width / f64::from(all)),
        width,
        colour: colour(name).to_owned(),
        upon: frame.calls.iter().map(|(name, call)| shape(name, call, all)).collect(),
    }
}

/// Draws boxes into the file `path`.
pub(crate) fn draw(root: &Shape, title: &str, path: &Path) -> Result<()> {
    fs::write(path, svg(root, title)).with_context(|| format!("cannot write {}", path.display()))
}

/// `ffffffff81d35f72 read_zero ([kernel.kallsyms])`: the name, marked if it is the kernel's.
fn function(frame: &str) -> String {
    let frame = frame.trim();
    let after = frame.split_once(' ').map_or(frame, |(_, after)| after);
    let (name, object) = after.rsplit_once(" (").unwrap_or((after, ""));
    // Rust's names end in a hash of 16 digits.
    let hash = name.rsplit_once("::h").filter(|(_, hash)| hash.len() == 16);
    let name = hash.map_or(name, |(name, _)| name);
    if object.contains("kernel") { format!("{name}{KERNEL}") } else { name.to_owned() }
}

fn svg(root: &Shape, title: &str) -> String {
    let height = ROW * f64::from(depth(root) + 3);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"monospace\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"8\" y=\"16\" font-size=\"14\">{}</text>\n",
        escape(title)
    );
    boxes(root, (0.0, height - ROW), WIDTH / root.width, &mut out);
    out.push_str("</svg>\n");
    out
}

fn boxes(shape: &Shape, (x, y): (f64, f64), scale: f64, out: &mut String) {
    let width = shape.width * scale;
    if width < WIDTH_MIN {
        return;
    }
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "<g><title>{full} ({})</title><rect x=\"{x:.1}\" y=\"{y:.1}\" \
         width=\"{width:.1}\" height=\"{:.1}\" fill=\"{}\" stroke=\"#fff\" \
         stroke-width=\"0.5\"/><text x=\"{:.1}\" y=\"{:.1}\">{}</text></g>",
        shape.note,
        ROW - 1.0,
        shape.colour,
        x + 3.0,
        y + 12.0,
        escape(&fitting(&shape.name, width)),
        full = escape(&shape.name),
    );
    let mut x = x;
    for upon in &shape.upon {
        boxes(upon, (x, y - ROW), scale, out);
        x += upon.width * scale;
    }
}

/// As much of the name's end as fits: the last part of a path says most.
fn fitting(name: &str, width: f64) -> String {
    let fits =
        |len: usize| u32::try_from(len).is_ok_and(|len| LETTER * f64::from(len) <= width - 6.0);
    let mut name = if fits(name.len()) { name } else { name.rsplit("::").next().unwrap_or(name) };
    while !fits(name.len()) && !name.is_empty() {
        let (last, _) = name.char_indices().next_back().unwrap_or_default();
        name = &name[..last];
    }
    if name.len() < 3 { String::new() } else { name.to_owned() }
}

fn colour(name: &str) -> &'static str {
    let crypto = ["aes", "gcm", "EVP_", "ghash", "AES", "aead", "sha256", "x25519", "p256"];
    if name.ends_with(KERNEL) {
        "#f5a25d"
    } else if crypto.iter().any(|word| name.contains(word)) {
        "#e4655e"
    } else {
        "#8ab6d6"
    }
}

fn depth(shape: &Shape) -> u32 {
    1 + shape.upon.iter().map(depth).max().unwrap_or(0)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "worker-0 \n\
        \tffffffff816bac2b vfs_read ([kernel.kallsyms])\n\
        \tffffffff816bb886 ksys_read ([kernel.kallsyms])\n\
        \t    f82ad appliance::event_loop::run::h0123456789abcdef (/x/nearcast-appliance)\n\
        \n\
        worker-0 \n\
        \tffffffff816bb886 ksys_read ([kernel.kallsyms])\n\
        \t    f82ad appliance::event_loop::run::h0123456789abcdef (/x/nearcast-appliance)\n\
        \n";

    #[test]
    fn stacks_become_a_tree_with_the_outermost_function_at_its_root() {
        let root = Profile::parse(TEXT).tree();
        assert_eq!(root.samples, 2);
        let run = &root.calls["worker-0"].calls["appliance::event_loop::run"];
        let read = &run.calls["ksys_read [k]"];
        assert_eq!((run.samples, read.samples), (2, 2));
        assert_eq!(read.calls["vfs_read [k]"].samples, 1);
        assert_eq!(depth(&shape("all", &root, 2)), 5);
        assert_eq!(Profile::parse("").tree(), Frame::default());
    }

    #[test]
    fn a_box_is_as_wide_as_its_share_and_its_name_is_escaped() {
        let text = TEXT.replace("event_loop::run", "<A as B>::run");
        let drawn = svg(&shape("all", &Profile::parse(&text).tree(), 2), "a & b, 2 samples");
        assert!(drawn.contains("appliance::&lt;A as B&gt;::run (100.0 %)"), "{drawn}");
        assert!(drawn.contains("vfs_read [k] (50.0 %)</title><rect x=\"0.0\""), "{drawn}");
        assert!(drawn.contains("width=\"600.0\"") && drawn.contains("a &amp; b, 2 samples"));
    }
}
