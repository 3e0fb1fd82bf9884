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
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};

use crate::tree::Tree;
use crate::{deb, read, say};

/// The page that is followed, block by block.
const PAGE: &str = "docs/operate/install.md";
/// In place of a systemctl that needs systemd to run.
const SYSTEMCTL: &str = include_str!("install/systemctl");
/// systemd's own checks of the units: no error, and an exposure of 2.5 out of 10 at most.
const UNITS: &str = "systemd-analyze verify --man=no /lib/systemd/system/nearcast-*.service
for unit in /lib/systemd/system/nearcast-*.service; do
    systemd-analyze security --offline=true --threshold=25 --no-pager $unit | tail -n 1
done
";
/// Bash completes a verb, and man finds no fault in any page.
const MANUALS: &str = r#"apt-get install --yes --no-install-recommends man-db > /dev/null
for program in nearcast nearcast-control nearcast-appliance nearcast-agent; do
    source /usr/share/bash-completion/completions/$program
done
COMP_WORDS=(nearcast applia) COMP_CWORD=1
_nearcast nearcast applia nearcast
test "${COMPREPLY[*]}" = appliance
for page in /usr/share/man/man[18]/nearcast*; do
    man --warnings --local-file -Tutf8 -Z "$page" 2>> /tmp/man.errors > /dev/null
done
cat /tmp/man.errors
test ! -s /tmp/man.errors
"#;
/// True if everything on the page worked, with programs of `programs` in its packages.
pub(crate) fn test(root: &Path, programs: &Path) -> Result<bool> {
    let page = read(root, PAGE)?;
    let blocks = blocks(&page);
    ensure!(!blocks.is_empty(), "{PAGE} has no block marked sh");
    let packages = deb::build(root, programs)?;
    let tree = Tree::make("bookworm", "minbase", &[])?;
    for package in packages {
        let name = package.file_name().context("a package has a name")?;
        fs::copy(&package, tree.path("root").join(name))?;
    }
    tree.put("usr/local/bin/systemctl", SYSTEMCTL, 0o755)?;
    let (apt, others): (Vec<_>, Vec<_>) = blocks.iter().partition(|b| b.text.contains("apt-get"));
    say(&format!("install: {} blocks with apt-get, {} others", apt.len(), others.len()));
    let units = Block { line: 0, text: UNITS.to_owned() };
    let manuals = Block { line: 0, text: MANUALS.to_owned() };
    let all = [(&apt[..], true), (&[&manuals], true), (&[&units], false), (&others, false)];
    let mut worked = true;
    for (blocks, has_network) in all {
        worked = worked && run(&tree, blocks, has_network)?;
    }
    if !worked {
        show_logs(&tree)?;
        say(&format!("install: following {PAGE} failed: the block and the logs are above"));
        return Ok(false);
    }
    say("install: the page was followed to its end");
    Ok(true)
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Block {
    /// Of the page, where it begins.
    line: usize,
    text: String,
}

/// The blocks marked `sh`, in order. Blocks that only show something are marked otherwise.
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

/// One shell for all: variables of a block are there in the next. The first that fails ends it.
fn script(blocks: &[&Block]) -> String {
    let mut text = "set -euo pipefail\ncd /root\nexport HOME=/root LC_ALL=C.UTF-8 \
        DEBIAN_FRONTEND=noninteractive\n"
        .to_owned();
    for Block { line, text: block } in blocks {
        text.push_str(&format!("echo; echo \"== {PAGE}, line {line}\"\n{block}"));
    }
    text
}

/// Runs blocks in the tree; true if they succeeded. What they start ends with them.
fn run(tree: &Tree, blocks: &[&Block], has_network: bool) -> Result<bool> {
    tree.put("opt/page.sh", &script(blocks), 0o600)?;
    let mut command = tree.inside(has_network, &[], &["/bin/bash", "/opt/page.sh"]);
    Ok(command.stdin(Stdio::null()).status().context("unshare does not start")?.success())
}

/// The last lines of each unit's log, to find the fault by.
fn show_logs(tree: &Tree) -> Result<()> {
    for entry in fs::read_dir(tree.path("var/log"))? {
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
