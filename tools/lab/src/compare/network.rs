//! A pair of virtual network cards between us and a namespace of its own, for what loopback does
//! not have: segments of the size of packets.

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use tracing::warn;

/// Our end has the first address of it, the namespace's end the second.
const NET: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 203, 77, 1), Ipv4Addr::new(10, 203, 77, 2)];

/// The pair and its namespace; removed when dropped.
#[derive(Debug)]
pub(crate) struct Link {
    name: String,
    near: String,
}

impl Link {
    /// Makes them. This needs root, and the programs ip and ethtool.
    pub(crate) fn new() -> Result<Self> {
        let id = std::process::id();
        let link = Self { name: format!("nearcast-lab-{id}"), near: format!("nclab{id}") };
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
        if let Err(error) = command(&format!("ip netns delete {}", self.name)) {
            warn!(%error, "cannot remove the network namespace");
        }
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
