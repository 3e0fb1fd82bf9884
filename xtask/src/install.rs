//! Follows `docs/operate/install.md` to the letter, in a Debian 12 that has nothing else in it.
//!
//! ```text
//! mmdebstrap ─> bookworm.tar, kept ─> a tree of its own for this run <─ the packages (`deb`)
//! install.md ─> blocks marked sh, in order ─┬─ those with apt-get: chroot, the machine's network
//!                                           └─ all others: one shell in a chroot, no network
//! ```
//!
//! Nothing runs as process 1 in a chroot, so `systemctl` is a stand-in (`install/systemctl`), which
//! says itself what it does not do. Needs root, for chroot and namespaces.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{deb, say};

/// The page.
const PAGE: &str = "docs/operate/install.md";
/// In place of a systemctl that needs systemd to run.
const SYSTEMCTL: &str = include_str!("install/systemctl");
/// What systemd itself says of the units: nothing wrong, and an exposure of 2.5 out of 10 at most.
const UNITS: &str = "systemd-analyze verify --man=no /lib/systemd/system/nearcast-*.service
for unit in /lib/systemd/system/nearcast-*.service; do
    systemd-analyze security --offline=true --threshold=25 --no-pager $unit | tail -n 1
done
";
/// Who uses the tree's files as root, but for processes, network and mounts of its own.
const UNSHARE: [&str; 6] =
    ["--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"];

/// True if everything on the page worked, with programs of `programs` in its packages.
pub(crate) fn test(root: &Path, programs: &Path) -> Result<bool> {
    ensure!(
        deb::said(Command::new("id").arg("-u"))? == "0",
        "chroot needs root: run it as root, in a container or a virtual machine"
    );
    let page =
        fs::read_to_string(root.join(PAGE)).with_context(|| format!("cannot read {PAGE}"))?;
    let blocks = blocks(&page);
    ensure!(!blocks.is_empty(), "{PAGE} has no block marked sh");
    let packages = deb::build(root, programs)?;
    let tree = Tree::unpack(&bare_debian()?)?;
    for package in packages {
        let name = package.file_name().context("a package has a name")?;
        fs::copy(&package, tree.0.join("root").join(name))?;
    }
    tree.put("usr/local/bin/systemctl", SYSTEMCTL, 0o755)?;
    fs::copy("/etc/resolv.conf", tree.0.join("etc/resolv.conf"))?;
    let (apt, others): (Vec<_>, Vec<_>) = blocks.iter().partition(|b| b.text.contains("apt-get"));
    say(&format!("install: {} blocks with apt-get, {} others", apt.len(), others.len()));
    let units = Block { line: 0, text: UNITS.to_owned() };
    if !tree.run(&apt, true)? || !tree.run(&[&units], false)? || !tree.run(&others, false)? {
        tree.show_logs()?;
        return Ok(false);
    }
    say("install: the page was followed to its end");
    Ok(true)
}

/// A block of the page to be run.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Block {
    /// Of the page, where it begins.
    line: usize,
    text: String,
}

/// The blocks marked `sh`, in order. What only shows something is marked otherwise.
fn blocks(page: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let mut is_inside = false;
    let mut is_wanted = false;
    for (index, line) in page.lines().enumerate() {
        if let Some(mark) = line.strip_prefix("```") {
            is_inside = !is_inside;
            is_wanted = is_inside && mark.trim() == "sh";
            if is_wanted {
                found.push(Block { line: index + 1, text: String::new() });
            }
        } else if let Some(block) = found.last_mut().filter(|_| is_wanted) {
            block.text.push_str(line);
            block.text.push('\n');
        }
    }
    found
}

/// One shell for all: what a block sets, the next has. The first that fails ends it.
fn script(blocks: &[&Block]) -> String {
    let mut text = "set -euo pipefail\ncd /root\nexport HOME=/root LC_ALL=C.UTF-8 \
        DEBIAN_FRONTEND=noninteractive\n"
        .to_owned();
    for Block { line, text: block } in blocks {
        text.push_str(&format!("echo; echo \"== {PAGE}, line {line}\"\n{block}"));
    }
    text
}

/// The packed tree of a minimal Debian 12, made when there is none.
fn bare_debian() -> Result<PathBuf> {
    let home = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    let folder = home.context("neither XDG_CACHE_HOME nor HOME is set")?.join("nearcast");
    fs::create_dir_all(&folder)?;
    let packed = folder.join("bookworm-minbase.tar");
    if packed.exists() {
        return Ok(packed);
    }
    say("install: making a bare Debian 12, once");
    let half = packed.with_extension("half.tar");
    let mut command = Command::new("mmdebstrap");
    command.args(["--variant=minbase", "--aptopt=APT::Sandbox::User \"root\"", "bookworm"]);
    command.arg(&half).args(mirror()).stdout(Stdio::null());
    ensure!(command.status().context("mmdebstrap does not start")?.success(), "mmdebstrap failed");
    fs::rename(half, &packed)?;
    Ok(packed)
}

/// Where this machine has its Debian from; none for mmdebstrap's own choice.
fn mirror() -> Option<String> {
    let sources = fs::read_to_string("/etc/apt/sources.list.d/debian.sources").ok()?;
    sources.lines().find_map(|line| line.strip_prefix("URIs: ")).map(str::to_owned)
}

/// An unpacked Debian that goes away with the run.
struct Tree(PathBuf);

impl Tree {
    fn unpack(packed: &Path) -> Result<Self> {
        let tree = Self(packed.with_file_name(format!("install-{}", std::process::id())));
        fs::create_dir(&tree.0)?;
        let mut command = Command::new("tar");
        command.args(["--extract", "--xattrs", "--numeric-owner", "--file"]);
        deb::said(command.arg(packed).arg("--directory").arg(&tree.0))?;
        Ok(tree)
    }

    fn put(&self, path: &str, text: &str, mode: u32) -> Result<()> {
        let path = self.0.join(path);
        fs::write(&path, text)?;
        Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?)
    }

    /// Runs blocks in the tree; true if they succeeded. What they start ends with them.
    fn run(&self, blocks: &[&Block], has_network: bool) -> Result<bool> {
        self.put("opt/page.sh", &script(blocks), 0o600)?;
        let inside = "mount -t proc proc \"$0/proc\" && mount --rbind /dev \"$0/dev\" && \
            mount -t tmpfs tmpfs \"$0/run\" && { ip link set lo up || true; } 2>/dev/null && \
            exec env --ignore-environment \
            PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
            chroot \"$0\" /bin/bash /opt/page.sh";
        let mut command = Command::new("unshare");
        command.args(UNSHARE);
        if !has_network {
            command.arg("--net");
        }
        command.args(["--", "/bin/sh", "-c", inside]).arg(&self.0).stdin(Stdio::null());
        Ok(command.status().context("unshare does not start")?.success())
    }

    /// The end of what each unit said, for whoever looks for the fault.
    fn show_logs(&self) -> Result<()> {
        for entry in fs::read_dir(self.0.join("var/log"))? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with("nearcast") {
                let text = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
                let lines: Vec<_> = text.lines().collect();
                let tail = &lines[lines.len().saturating_sub(40)..];
                say(&format!("install: {name}:\n  {}", tail.join("\n  ")));
            }
        }
        Ok(())
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // Its mounts were those of a namespace that is gone.
        let mut command = Command::new("rm");
        let _ = command.args(["-r", "-f", "--one-file-system", "--"]).arg(&self.0).status();
    }
}

/// As a step of the night: one thing that worked, or the reason why not.
pub(crate) fn step(root: &Path) -> Result<bool> {
    if !test(root, &deb::target(root).join("debug"))? {
        bail!("following {PAGE} failed: the block and the logs are above");
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_blocks_marked_sh_are_run_in_order_with_their_lines() {
        let page =
            "# A\n\n```sh\none\n\ntwo\n```\n\n```text\nnot\n```\n```\nnot\n```\n```sh\nthree\n```";
        let found = blocks(page);
        let expected = [(3, "one\n\ntwo\n"), (15, "three\n")];
        assert_eq!(found.len(), 2);
        for (block, (line, text)) in found.iter().zip(expected) {
            assert_eq!((block.line, &*block.text), (line, text));
        }
        let script = script(&found.iter().collect::<Vec<_>>());
        assert!(script.starts_with("set -euo pipefail\n"), "the first failure ends it");
        assert!(script.ends_with("line 15\"\nthree\n"), "{script}");
    }
}
