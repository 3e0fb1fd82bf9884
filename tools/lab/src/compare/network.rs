//! A pair of virtual network cards between us and a namespace of its own, for what loopback does
//! not have: segments of the size of packets.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use tracing::{info, warn};

/// Our end has the first address of it, the namespace's end the second.
const NET: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 203, 77, 1), Ipv4Addr::new(10, 203, 77, 2)];

/// How the lab's namespaces begin; its process id follows.
const NAMESPACE: &str = "nearcast-lab-";
/// How its devices begin, those of `slow::delay` included.
const DEVICES: [&str; 3] = ["nclab", "ncfar", "ncfac"];

/// The pair and its namespace; removed when dropped.
#[derive(Debug)]
pub(crate) struct Link {
    name: String,
    near: String,
}

impl Link {
    /// Makes them. This needs root, and the programs ip and ethtool.
    pub(crate) fn new() -> Result<Self> {
        sweep();
        let id = std::process::id();
        let link = Self { name: format!("{NAMESPACE}{id}"), near: format!("nclab{id}") };
        let Self { name, near } = &link;
        for line in [
            format!("ip netns add {name}"),
            format!("ip link add {near} type veth peer name far netns {name}"),
            format!("ip address add {}/30 dev {near}", NET[0]),
            format!("ip link set {near} up"),
            format!("ip -n {name} address add {}/30 dev far", NET[1]),
            format!("ip -n {name} link set far up"),
            format!("ip -n {name} link set lo up"),
        ] {
            command(&line)?;
        }
        Ok(link)
    }

    /// The namespace's name.
    pub(crate) fn namespace(&self) -> &str {
        &self.name
    }

    /// Where its end can be reached.
    pub(crate) fn address(&self) -> IpAddr {
        IpAddr::V4(NET[1])
    }

    /// Whether the kernel hands large segments to either card and takes large ones from it.
    pub(crate) fn offload(&self, on: bool) -> Result<()> {
        let state = if on { "on" } else { "off" };
        let features = format!("tso {state} gso {state} gro {state}");
        command(&format!("ethtool -K {} {features}", self.near))?;
        command(&format!("ip netns exec {} ethtool -K far {features}", self.name))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // The pair goes with the namespace that has one end of it.
        remove("netns", &self.name);
    }
}

/// Removes what runs left that were killed.
fn sweep() {
    for (room, kind, begins) in [
        // A pair goes with the namespace that has one end of it.
        ("/var/run/netns", "netns", &[NAMESPACE][..]),
        ("/sys/class/net", "link", &DEVICES[..]),
    ] {
        // Where there is no such folder, nothing was left.
        for entry in std::fs::read_dir(room).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_left = begins.iter().any(|begin| is_left(&name, begin, is_running));
            if is_left {
                info!(name, "left by a run that was killed: removed");
                remove(kind, &name);
            }
        }
    }
}

fn is_running(id: &str) -> bool {
    Path::new("/proc").join(id).exists()
}

/// Whether it was made by a process of the lab that runs no more.
fn is_left(name: &str, begin: &str, is_running: impl Fn(&str) -> bool) -> bool {
    let id = name.strip_prefix(begin).unwrap_or_default();
    !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit()) && !is_running(id)
}

/// A device (`link`) or a namespace (`netns`).
pub(crate) fn remove(kind: &str, name: &str) {
    if let Err(error) = command(&format!("ip {kind} delete {name}")) {
        warn!(%error, "cannot remove a part of the lab's network");
    }
}

/// Runs a program, words apart by single spaces.
pub(crate) fn command(line: &str) -> Result<()> {
    let mut words = line.split(' ');
    let program = words.next().context("a command has a name")?;
    let output = Command::new(program).args(words).output();
    let output = output.with_context(|| format!("cannot run {program}: is it installed?"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{line}: {} (this needs root)", said.trim());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_run_left_that_is_gone_is_removed() {
        let is_running = |id: &str| id == "7";
        for (name, left) in [
            ("ncfac8", true),
            ("ncfac7", false),
            ("ncfac", false),
            ("ncfac8a", false),
            ("ncfacade", false),
            ("eth8", false),
        ] {
            assert_eq!(is_left(name, "ncfac", is_running), left, "{name}");
        }
        let own = std::process::id();
        for begin in DEVICES.into_iter().chain([NAMESPACE]) {
            assert!(!is_left(&format!("{begin}{own}"), begin, self::is_running), "ours runs");
            // No process has this number: the kernel's greatest is 2^22.
            assert!(is_left(&format!("{begin}99999999"), begin, self::is_running), "{begin}");
        }
    }
}
