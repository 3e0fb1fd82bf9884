//! The namespaces of one run, and those that a killed one left.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::{Plan, ip};

/// Where `ip netns` keeps them.
const FOLDER: &str = "/var/run/netns";

/// Beside it: all that lies within is a namespace.
const LOCKS: &str = "/var/run";

/// A namespace for each speaker, and one for the segment. They go when it is dropped.
#[derive(Debug)]
pub(crate) struct Spaces {
    /// Their names begin so.
    beginning: String,
    /// Held while the run lives.
    _lock: Lock,
}

impl Spaces {
    pub(crate) fn make(plan: &Plan, number: u32) -> Result<Self> {
        let beginning = format!("{}{number}", plan.family);
        let lock = Lock::take(Path::new(LOCKS), &beginning)?;
        let lock =
            lock.with_context(|| format!("another run has the namespaces {beginning}-.."))?;
        let spaces = Self { beginning, _lock: lock };
        // Of a run of this number that was killed.
        spaces.remove();
        remove_orphans(plan.family);
        spaces.build(plan).context("network namespaces cannot be made here")?;
        Ok(spaces)
    }

    /// No namespace at all, for tests.
    #[cfg(test)]
    pub(crate) fn none(folder: &Path) -> Result<Self> {
        let lock = Lock::take(folder, "none")?.context("one test has it")?;
        Ok(Self { beginning: "nctest0".to_owned(), _lock: lock })
    }

    pub(crate) fn of(&self, name: &str) -> String {
        format!("{}-{name}", self.beginning)
    }

    fn build(&self, plan: &Plan) -> Result<()> {
        const BRIDGE: &str = "ncbr";
        let hub = self.of("hub");
        let refused = "this process may not make one: a container needs the capability SYS_ADMIN";
        ip(&["netns", "add", &hub]).context(refused)?;
        ip(&["-n", &hub, "link", "add", BRIDGE, "type", "bridge"])?;
        ip(&["-n", &hub, "link", "set", BRIDGE, "up"])?;
        for (at, (name, _)) in (1..).zip(plan.speakers) {
            let (space, link) = (self.of(name), format!("nr{name}"));
            ip(&["netns", "add", &space])?;
            let far = ["type", "veth", "peer", "name", "eth0", "netns", &space];
            ip(&[&["-n", &hub, "link", "add", &link], &far[..]].concat())?;
            ip(&["-n", &hub, "link", "set", &link, "master", BRIDGE, "up"])?;
            ip(&["-n", &space, "link", "set", "lo", "up"])?;
            ip(&["-n", &space, "address", "add", &format!("10.98.0.{at}/24"), "dev", "eth0"])?;
            let v6 = format!("fd98::{at}/64");
            ip(&["-n", &space, "address", "add", &v6, "dev", "eth0", "nodad"])?;
            ip(&["-n", &space, "link", "set", "eth0", "up"])?;
        }
        Ok(())
    }

    fn remove(&self) {
        remove(&self.beginning);
    }
}

impl Drop for Spaces {
    fn drop(&mut self) {
        self.remove();
    }
}

/// A file that is locked, beside the namespaces: who sees those sees it, from whatever namespace.
/// The kernel lets it go even if the process is killed; the file is removed with the next one's.
#[derive(Debug)]
struct Lock {
    path: PathBuf,
    _file: File,
}

impl Lock {
    /// None if another process has it.
    fn take(folder: &Path, beginning: &str) -> Result<Option<Self>> {
        let path = folder.join(format!("nearcast-{beginning}.lock"));
        let cannot = || format!("cannot lock {}", path.display());
        loop {
            let file = File::options().create(true).append(true).open(&path);
            let file = file.with_context(cannot)?;
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => return Ok(None),
                locked => locked.with_context(cannot)?,
            }
            // Who had it before may have removed it meanwhile.
            let own = file.metadata().with_context(cannot)?.ino();
            if fs::metadata(&path).is_ok_and(|there| there.ino() == own) {
                return Ok(Some(Self { path, _file: file }));
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Removes those of runs that have ended without it.
fn remove_orphans(family: &str) {
    for name in names() {
        if let Some(beginning) = beginning_of(&name, family)
            && let Ok(Some(_lock)) = Lock::take(Path::new(LOCKS), beginning)
        {
            remove(beginning);
        }
    }
}

/// The beginning of a name, if it is one of this family's: `ncro7-s1` begins with `ncro7`.
fn beginning_of<'a>(name: &'a str, family: &str) -> Option<&'a str> {
    let (beginning, _) = name.split_once('-')?;
    let number = beginning.strip_prefix(family)?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some(beginning)
}

fn remove(beginning: &str) {
    for name in names() {
        if name.strip_prefix(beginning).is_some_and(|rest| rest.starts_with('-')) {
            let _ = ip(&["netns", "delete", &name]);
        }
    }
}

fn names() -> Vec<String> {
    let entries = fs::read_dir(Path::new(FOLDER)).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_the_family_are_of_the_family() {
        assert_eq!(beginning_of("ncro7-s1", "ncro"), Some("ncro7"));
        for other in ["ncro-s1", "ncro7", "ncrox7-s1", "xncro7-s1", "ncdemo7-s1"] {
            assert_eq!(beginning_of(other, "ncro"), None, "{other}");
        }
    }

    #[test]
    fn a_run_of_the_same_number_is_refused_until_the_first_has_ended() {
        let folder = std::env::temp_dir().join(format!("nearcast-spaces-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let take = || Lock::take(&folder, "test1").unwrap();
        let first = take().unwrap();
        assert!(take().is_none());
        assert!(Lock::take(&folder, "test2").unwrap().is_some(), "another number is apart");
        drop(first);
        drop(take().unwrap());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "the file goes, too");
        fs::remove_dir(&folder).unwrap();
    }
}
