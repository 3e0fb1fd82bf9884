//! Installs and builds by node: every folder with a package-lock.json.
//!
//! Nothing is done, and the network not touched, when nothing has changed since the last time.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::workspace;

/// Where packages for node may be.
const FOLDERS: [&str; 2] = ["shell/control/web", "tools/browser"];
/// Not input: made by us.
const MADE: [&str; 3] = ["node_modules", "dist", "made"];

/// Installs and builds folders that are out of date. node's output goes to standard error.
pub(crate) fn build(root: &Path) -> Result<()> {
    for folder in folders(root) {
        let modules = folder.join("node_modules");
        let locked = digest(&[folder.join("package-lock.json")])?;
        // No warnings: packages for browsers say which Node they were made with.
        let install = ["ci", "--no-audit", "--no-fund", "--loglevel=error"];
        fresh(&modules.join(".installed"), &locked, || npm(&folder, &install))?;
        if has_script(&folder, "build")? {
            // The stamp is kept beside dist and not in it: all of dist is served.
            let stamp = modules.join(".built");
            if !folder.join("dist").is_dir() {
                let _ = fs::remove_file(&stamp);
            }
            let inputs = digest(&inputs(&folder)?)?;
            fresh(&stamp, &inputs, || npm(&folder, &["run", "build"]))?;
        }
    }
    Ok(())
}

/// Runs a script of this name in every package that has one.
pub(crate) fn run(root: &Path, script: &str) -> Result<()> {
    for folder in folders(root) {
        if has_script(&folder, script)? {
            npm(&folder, &["run", script])?;
        }
    }
    Ok(())
}

fn folders(root: &Path) -> Vec<PathBuf> {
    let folders = FOLDERS.iter().map(|folder| root.join(folder));
    folders.filter(|folder| folder.join("package-lock.json").is_file()).collect()
}

/// Runs `make` unless `file` has this stamp already.
fn fresh(file: &Path, stamp: &str, make: impl FnOnce() -> Result<()>) -> Result<()> {
    if fs::read_to_string(file).is_ok_and(|found| found == stamp) {
        return Ok(());
    }
    make()?;
    let folder = file.parent().context("a stamp is in a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("{}", folder.display()))?;
    fs::write(file, stamp).with_context(|| format!("{}", file.display()))
}

fn npm(folder: &Path, arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("npm");
    command.args(arguments).current_dir(folder).stdout(Stdio::from(std::io::stderr()));
    let status = command.status().context("npm does not start: install nodejs and npm")?;
    if !status.success() {
        bail!("npm {} failed in {}", arguments.join(" "), folder.display());
    }
    Ok(())
}

fn has_script(folder: &Path, name: &str) -> Result<bool> {
    let path = folder.join("package.json");
    let text = fs::read_to_string(&path).with_context(|| format!("{}", path.display()))?;
    let package: serde_json::Value =
        serde_json::from_str(&text).with_context(|| format!("{} is not JSON", path.display()))?;
    Ok(package.pointer(&format!("/scripts/{name}")).is_some())
}

/// Every file a build may read, in order.
fn inputs(folder: &Path) -> Result<Vec<PathBuf>> {
    workspace::files_below(folder, &MADE)
}

/// A fingerprint of these files' names and contents. Says "changed", proves nothing.
fn digest(files: &[PathBuf]) -> Result<String> {
    let mut hasher = DefaultHasher::new();
    for file in files {
        file.hash(&mut hasher);
        fs::read(file).with_context(|| format!("{}", file.display()))?.hash(&mut hasher);
    }
    Ok(format!("{:016x}\n", hasher.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_is_not_input_and_a_changed_input_shows() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("src")).unwrap();
        fs::create_dir_all(at("dist")).unwrap();
        fs::write(at("src/a.ts"), "1").unwrap();
        fs::write(at("dist/a.js"), "1").unwrap();
        let before = inputs(folder.path()).unwrap();
        assert_eq!(before, [at("src/a.ts")]);
        let digest_before = digest(&before).unwrap();
        assert_eq!(digest(&before).unwrap(), digest_before);
        fs::write(at("src/a.ts"), "2").unwrap();
        assert_ne!(digest(&before).unwrap(), digest_before);
    }

    #[test]
    fn nothing_is_made_twice() {
        let folder = tempfile::tempdir().unwrap();
        let mut made = 0;
        for stamp in ["a", "a", "b", "b"] {
            let make = || {
                made += 1;
                Ok(())
            };
            fresh(&folder.path().join("node_modules/.installed"), stamp, make).unwrap();
        }
        assert_eq!(made, 2);
    }
}
