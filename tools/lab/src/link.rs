//! Connections of homes: a namespace with players, behind slow links with a queue each.
//!
//! ```text
//! appliance ─┬─ veth ── [ tbf: rate, queue ] ── veth ─┬─ namespace with the players
//!            └─ veth ── [ tbf: rate, queue ] ── veth ─┘
//! ```
//!
//! The token bucket lets single packets through (5 KB at once); what the queue has no room for is
//! dropped and counted by the kernel. There is no delay but that of the queue: this kernel has no
//! netem.

use std::fs::File;
use std::net::Ipv4Addr;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use model::units::{BitsPerSecond, Bytes};
use rustix::fd::AsFd;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;

/// A namespace for players; gone when dropped, with what is left of its links.
#[derive(Debug)]
pub(crate) struct Homes {
    pub(crate) name: String,
    number: u32,
}

/// A link into it; gone when dropped.
#[derive(Debug)]
pub(crate) struct Link {
    name: String,
    /// The appliance's side, and the players'.
    pub(crate) near: Ipv4Addr,
    pub(crate) far: Ipv4Addr,
}

/// What a link carries, packets' heads included, and how much may wait before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) rate: BitsPerSecond,
    pub(crate) queue: Bytes,
}

/// What a queue has seen so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) packets: u64,
    pub(crate) drops: u64,
}

impl Homes {
    /// Needs root, `ip` and `tc`.
    pub(crate) fn new(name: &str) -> Result<Self> {
        let number = std::process::id() % 10_000;
        let made = Self { name: format!("nc{name}{number}"), number };
        run("ip", &["netns", "add", &made.name]).context("namespaces need root, and iproute2")?;
        run("ip", &["-n", &made.name, "link", "set", "lo", "up"])?;
        Ok(made)
    }

    /// One more link, of this number.
    pub(crate) fn link(&self, index: u8, shape: Shape) -> Result<Link> {
        let name = format!("ncl{}x{index}", self.number);
        let at = |host| Ipv4Addr::new(10, 98, index, host);
        let link = Link { name, near: at(1), far: at(2) };
        let (outer, inner) = (link.name.as_str(), format!("{}i", link.name));
        let peer = ["type", "veth", "peer", "name", &inner, "netns", &self.name];
        run("ip", &[&["link", "add", outer], &peer[..]].concat())?;
        run("ip", &["address", "add", &format!("{}/24", link.near), "dev", outer])?;
        run("ip", &["link", "set", outer, "up"])?;
        let far = format!("{}/24", link.far);
        run("ip", &["-n", &self.name, "address", "add", &far, "dev", &inner])?;
        run("ip", &["-n", &self.name, "link", "set", &inner, "up"])?;
        let (rate, queue) = (format!("{}bit", shape.rate.0), shape.queue.0.to_string());
        let tbf = ["tbf", "rate", &rate, "burst", "5k", "limit", &queue];
        run("tc", &[&["qdisc", "add", "dev", outer, "root"], &tbf[..]].concat())?;
        Ok(link)
    }

    /// The calling thread's sockets are behind the links from now on.
    pub(crate) fn enter(&self) -> Result<()> {
        let path = format!("/var/run/netns/{}", self.name);
        let file = File::open(&path).with_context(|| format!("no namespace {path}"))?;
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
            .context("cannot enter the namespace")
    }
}

impl Drop for Homes {
    fn drop(&mut self) {
        let _ = run("ip", &["netns", "del", &self.name]);
    }
}

impl Link {
    /// What the queue has seen so far; from whatever namespace.
    pub(crate) fn seen(&self) -> Result<Seen> {
        let outside = format!("--net=/proc/{}/ns/net", std::process::id());
        let tc = ["tc", "-s", "-j", "qdisc", "show", "dev", &self.name];
        let text = run("nsenter", &[&[outside.as_str()], &tc[..]].concat())?;
        let all: Value = serde_json::from_str(&text)?;
        let count = |name: &str| all[0][name].as_u64().with_context(|| format!("no {name}"));
        Ok(Seen { packets: count("packets")?, drops: count("drops")? })
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // One end of the pair takes the other with it.
        let _ = run("ip", &["link", "del", &self.name]);
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
