//! The namespaces of one run, and those that a killed one left.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::{Plan, ip};

/// Where `ip netns` keeps them.
const FOLDER: &str = "/var/run/netns";

/// A namespace for each speaker, and one for the segment. They go when it is dropped.
#[derive(Debug)]
pub(crate) struct Spaces {
    /// Their names begin so.
    beginning: String,
    /// Held while the run lives; the kernel lets it go even if the process is killed.
    _lock: UnixListener,
}

impl Spaces {
    pub(crate) fn make(plan: &Plan, number: u32) -> Result<Self> {
        let beginning = format!("{}{number}", plan.family);
        let taken = || format!("another run has the namespaces {beginning}-..");
        let lock = lock(&beginning).with_context(taken)?;
        let spaces = Self { beginning, _lock: lock };
        // Of a run of this number that was killed.
        spaces.remove();
        remove_orphans(plan.family);
        spaces.build(plan).context("network namespaces cannot be made here")?;
        Ok(spaces)
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

/// An abstract socket: its name is gone with the process that has it.
fn lock(beginning: &str) -> Result<UnixListener> {
    let address = SocketAddr::from_abstract_name(format!("nearcast-namespaces-{beginning}"))?;
    Ok(UnixListener::bind_addr(&address)?)
}

/// Removes those of runs that have ended without it.
fn remove_orphans(family: &str) {
    for name in names() {
        if let Some(beginning) = beginning_of(&name, family)
            && lock(beginning).is_ok()
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
    let entries = std::fs::read_dir(Path::new(FOLDER)).into_iter().flatten().flatten();
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
        let beginning = format!("test{}", std::process::id());
        let first = lock(&beginning).unwrap();
        lock(&beginning).unwrap_err();
        drop(first);
        lock(&beginning).unwrap();
    }
}
