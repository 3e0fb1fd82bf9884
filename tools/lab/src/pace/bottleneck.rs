//! A home's connection: a namespace behind a slow link whose queue is as short as a modem's.
//!
//! ```text
//! appliance ── veth ── [ tbf: 30 Mb/s, queue of 32 KB ] ── veth ── namespace with the player
//! ```
//!
//! The token bucket lets single packets through (5 KB at once); what the queue has no room for is
//! dropped and counted by the kernel. There is no delay but that of the queue: this kernel has no
//! netem.

use std::fs::File;
use std::net::Ipv4Addr;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use rustix::fd::AsFd;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;

/// The appliance's side.
pub(super) const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 98, 7, 1);
/// What the link carries, packets' heads included.
pub(super) const RATE: &str = "30mbit";
pub(super) const QUEUE_BYTES: u64 = 32_768;
/// What a player can get of that in bodies, less half a percent: 1448 of 1514 bytes of a packet
/// are TCP's, 16384 of 16406 of a record are the body's.
pub(super) const PAYLOAD_KBPS: u64 = 28_500;

/// The link; gone when dropped.
pub(super) struct Bottleneck {
    name: String,
    link: String,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) packets: u64,
    pub(super) drops: u64,
}

impl Bottleneck {
    /// Needs root, `ip` and `tc`.
    pub(super) fn new() -> Result<Self> {
        let number = std::process::id() % 10_000;
        let made = Self { name: format!("ncpace{number}"), link: format!("ncp{number}") };
        let Self { name, link } = &made;
        let inner = format!("{link}i");
        run("ip", &["netns", "add", name])
            .context("a namespace is needed for the short queue: run as root, with iproute2")?;
        run("ip", &["link", "add", link, "type", "veth", "peer", "name", &inner, "netns", name])?;
        run("ip", &["address", "add", &format!("{ADDRESS}/24"), "dev", link])?;
        run("ip", &["link", "set", link, "up"])?;
        run("ip", &["-n", name, "address", "add", "10.98.7.2/24", "dev", &inner])?;
        run("ip", &["-n", name, "link", "set", &inner, "up"])?;
        let queue = QUEUE_BYTES.to_string();
        let tbf = ["tbf", "rate", RATE, "burst", "5k", "limit", &queue];
        run("tc", &[&["qdisc", "add", "dev", link, "root"], &tbf[..]].concat())?;
        Ok(made)
    }

    /// The calling thread's sockets are behind the link from now on.
    pub(super) fn enter(&self) -> Result<()> {
        let path = format!("/var/run/netns/{}", self.name);
        let file = File::open(&path).with_context(|| format!("no namespace {path}"))?;
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
            .context("cannot enter the namespace")
    }

    /// What the queue has seen so far; from whatever namespace.
    pub(super) fn seen(&self) -> Result<Seen> {
        let outside = format!("--net=/proc/{}/ns/net", std::process::id());
        let tc = ["tc", "-s", "-j", "qdisc", "show", "dev", &self.link];
        let text = run("nsenter", &[&[outside.as_str()], &tc[..]].concat())?;
        let all: Value = serde_json::from_str(&text)?;
        let count = |name: &str| all[0][name].as_u64().with_context(|| format!("no {name}"));
        Ok(Seen { packets: count("packets")?, drops: count("drops")? })
    }
}

impl Drop for Bottleneck {
    fn drop(&mut self) {
        // One end of the pair takes the other with it.
        let _ = run("ip", &["link", "del", &self.link]);
        let _ = run("ip", &["netns", "del", &self.name]);
    }
}

fn run(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.with_context(|| format!("cannot run {program}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        bail!("{program} {}: {}", arguments.join(" "), said.trim());
    }
    ensure!(output.stdout.is_ascii(), "{program} says what nobody can read");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
