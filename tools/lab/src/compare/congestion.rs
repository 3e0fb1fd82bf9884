//! How TCP decides how fast to send: the system's default, for programs that take no other.
//!
//! It is part of a server's configuration like its buffers: bbr paces by timers, which costs a
//! server in a virtual machine a third more CPU on loopback than cubic. A peer is tried under each.

use std::fs;

use anyhow::{Context, Result, ensure};

const DEFAULT: &str = "/proc/sys/net/ipv4/tcp_congestion_control";
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

/// Those that a video server would choose from, of what this kernel has; the default first.
pub(crate) fn candidates() -> Result<Vec<String>> {
    let available = read(AVAILABLE)?;
    let current = read(DEFAULT)?;
    let others = ["cubic", "bbr"].into_iter().filter(|name| {
        *name != current && available.split_whitespace().any(|known| known == *name)
    });
    Ok([current.clone()].into_iter().chain(others.map(str::to_owned)).collect())
}

/// The system's default, changed while this lives. Connections accepted meanwhile keep it, but for
/// those of listeners that were given one of their own (Linux: `tcp_ca_openreq_child`).
#[derive(Debug)]
pub(crate) struct Chosen {
    before: String,
}

impl Chosen {
    /// Makes `name` the default.
    pub(crate) fn new(name: &str) -> Result<Self> {
        let before = read(DEFAULT)?;
        if before != name {
            fs::write(DEFAULT, name).with_context(|| {
                format!("cannot make {name} the congestion control: run as root, or set it before")
            })?;
        }
        ensure!(read(DEFAULT)? == name, "{name} did not become the congestion control");
        Ok(Self { before })
    }
}

impl Drop for Chosen {
    fn drop(&mut self) {
        if read(DEFAULT).is_ok_and(|now| now != self.before)
            && let Err(error) = fs::write(DEFAULT, &self.before)
        {
            tracing::warn!(%error, "the congestion control was not put back");
        }
    }
}

fn read(path: &str) -> Result<String> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    Ok(text.trim().to_owned())
}
