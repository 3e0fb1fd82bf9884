//! The guest's root file system: an archive that the kernel unpacks into memory. Busybox, the
//! modules that the kernel needs, the programs under test with their libraries, and what they read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// An archive in the format "newc" of cpio(5), which is the one that the kernel reads.
#[derive(Debug, Default)]
pub(super) struct Initrd {
    bytes: Vec<u8>,
    count: u32,
    there: BTreeSet<String>,
}

const FOLDER: u32 = 0o040_755;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_777;

impl Initrd {
    /// A file of these bytes, its folders with it. The second of a name is left out.
    pub(super) fn file(&mut self, path: &str, mode: u32, bytes: &[u8]) -> Result<()> {
        self.entry(path, FILE | mode, bytes)
    }

    /// A name for another name.
    pub(super) fn link(&mut self, path: &str, to: &str) -> Result<()> {
        self.entry(path, LINK, to.as_bytes())
    }

    pub(super) fn folder(&mut self, path: &str, from: &Path) -> Result<()> {
        self.entry(path, FOLDER, &[])?;
        for entry in fs::read_dir(from).with_context(|| format!("no {}", from.display()))? {
            let entry = entry?;
            let name = format!("{path}/{}", entry.file_name().to_string_lossy());
            if entry.file_type()?.is_dir() {
                self.folder(&name, &entry.path())?;
            } else {
                self.file(&name, 0o600, &fs::read(entry.path())?)?;
            }
        }
        Ok(())
    }

    /// A program of this machine without its debug information, and the libraries that it loads, at
    /// the places where they are here.
    pub(super) fn program(&mut self, path: &str, from: &Path, dir: &Path) -> Result<()> {
        let stripped = dir.join("stripped");
        let mut strip = Command::new("strip");
        strip.args(["--strip-debug", "-o"]).arg(&stripped).arg(from);
        let status = strip.status().context("cannot run strip (package binutils)")?;
        ensure!(status.success(), "cannot strip {}", from.display());
        self.file(path, 0o755, &fs::read(&stripped)?)?;
        let listed = Command::new("ldd").arg(from).output().context("cannot run ldd")?;
        for library in libraries(&String::from_utf8_lossy(&listed.stdout)) {
            self.file(&library, 0o755, &fs::read(&library)?)?;
        }
        Ok(())
    }

    /// Modules of an unpacked kernel package, with those that they need, and the order in which
    /// they are to be loaded. What is built in is left out.
    pub(super) fn modules(&mut self, folder: &Path, wanted: &[&str]) -> Result<()> {
        let dep = folder.join("modules.dep");
        let text = fs::read_to_string(&dep).with_context(|| format!("no {}", dep.display()))?;
        let order = in_order(&text, wanted);
        let mut list = String::new();
        for path in &order {
            let name = path.rsplit('/').next().unwrap_or(path);
            self.file(&format!("modules/{name}"), 0o644, &fs::read(folder.join(path))?)?;
            list.push_str(name);
            list.push('\n');
        }
        self.file("modules.list", 0o644, list.as_bytes())
    }

    pub(super) fn write(mut self, to: &Path) -> Result<()> {
        self.entry("TRAILER!!!", 0, &[])?;
        fs::write(to, self.bytes).with_context(|| format!("cannot write {}", to.display()))
    }

    fn entry(&mut self, path: &str, mode: u32, bytes: &[u8]) -> Result<()> {
        let path = path.trim_matches('/');
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.entry(parent, FOLDER, &[])?;
        }
        if !self.there.insert(path.to_owned()) {
            return Ok(());
        }
        self.count += 1;
        let (len, name_len) = (u32::try_from(bytes.len())?, u32::try_from(path.len() + 1)?);
        let fields = [self.count, mode, 0, 0, 1, 0, len, 0, 0, 0, 0, name_len, 0];
        let head: String = fields.iter().map(|field| format!("{field:08X}")).collect();
        self.bytes.extend(format!("070701{head}{path}\0").bytes());
        self.pad();
        self.bytes.extend(bytes);
        self.pad();
        Ok(())
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// The paths in what ldd says: `libc.so.6 => /lib/libc.so.6 (0x7f..)`, `/lib64/ld.so (0x7f..)`.
fn libraries(said: &str) -> Vec<String> {
    let path = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.iter().find(|word| word.starts_with('/')).map(|word| (*word).to_owned())
    };
    said.lines().filter_map(path).collect()
}

/// Paths of the modules of these names in the order of loading, by `modules.dep`: each line is a
/// module and what it needs, the innermost last.
fn in_order(dep: &str, wanted: &[&str]) -> Vec<String> {
    let name = |path: &str| {
        let file = path.rsplit('/').next().unwrap_or(path);
        file.split('.').next().unwrap_or(file).replace('-', "_")
    };
    let lines = dep.lines().filter_map(|line| line.split_once(':'));
    let by_name: BTreeMap<String, (&str, &str)> =
        lines.map(|(path, needs)| (name(path), (path, needs))).collect();
    let mut order: Vec<String> = Vec::new();
    for wanted in wanted {
        let Some((path, needs)) = by_name.get(&wanted.replace('-', "_")) else { continue };
        for path in needs.split_whitespace().rev().chain([*path]) {
            if !order.iter().any(|there| there == path) {
                order.push(path.to_owned());
            }
        }
    }
    order
}

/// The kernel's image and its modules' folder, in an unpacked package.
pub(super) fn kernel(folder: &Path) -> Result<(PathBuf, PathBuf)> {
    let one = |folder: PathBuf, start: &str| -> Result<PathBuf> {
        let entries = fs::read_dir(&folder).with_context(|| format!("no {}", folder.display()))?;
        let found = entries.flatten().find(|e| e.file_name().to_string_lossy().starts_with(start));
        found
            .map(|entry| entry.path())
            .with_context(|| format!("no kernel in {}", folder.display()))
    };
    Ok((one(folder.join("boot"), "vmlinuz-")?, one(folder.join("lib/modules"), "")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_loaded_after_what_they_need_and_once() {
        let dep = "kernel/a/xfs.ko: kernel/b/crc32c.ko kernel/b/hash-core.ko\n\
            kernel/b/crc32c.ko: kernel/b/hash-core.ko\nkernel/b/hash-core.ko:\nkernel/net.ko:\n";
        let order = in_order(dep, &["crc32c", "xfs", "built-in"]);
        assert_eq!(order, ["kernel/b/hash-core.ko", "kernel/b/crc32c.ko", "kernel/a/xfs.ko"]);
    }

    #[test]
    fn an_archive_has_folders_before_files_and_everything_once() {
        let mut initrd = Initrd::default();
        initrd.file("/etc/a/b", 0o644, b"12345").unwrap();
        initrd.file("etc/a/b", 0o644, b"again").unwrap();
        initrd.link("bin/sh", "busybox").unwrap();
        let text = String::from_utf8_lossy(&initrd.bytes).into_owned();
        let at = |what: &str| text.find(what).unwrap();
        assert!(at("etc\0") < at("etc/a\0") && at("etc/a\0") < at("etc/a/b\0"));
        assert!(text.contains("12345\0\0\0") && !text.contains("again"), "padded, and the first");
        assert!(text.len().is_multiple_of(4) && at("busybox") > at("bin/sh\0"));
    }

    #[test]
    fn libraries_are_what_ldd_says() {
        let said = "\tlinux-vdso.so.1 (0x7f)\n\tlibc.so.6 => /lib/x/libc.so.6 (0x7f)\n\
            \t/lib64/ld-linux-x86-64.so.2 (0x7f)\n";
        assert_eq!(libraries(said), ["/lib/x/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]);
    }
}
