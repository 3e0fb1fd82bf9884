//! Checks the values of a file: gives the settings, or the first mistake and its remedy.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::SocketAddr;

use model::id::ApplianceId;
use model::limits::DRIVES_MAX;
use model::units::{BitsPerSecond, Bytes, Nanos};

use super::{Drives, Serve, Settings};
use crate::filling::peer::PeerConfig;
use crate::membership::client::Front;
use crate::process::storage::FILLERS_MAX;
use crate::storage::gate::Mode;
use settings::{ConfigError, wrong};

/// The least and the most that `unsent_max` may be, unless it is 0. A record, 16 KiB, is the least
/// that is sealed at once. The most is arbitrary: no send buffer is as large.
const UNSENT: [Bytes; 2] = [Bytes::kib(16), Bytes::mib(1024)];
/// Most siblings that may fetch at once: each costs a thread.
const PEER_CONNECTIONS_MAX: usize = 1024;
/// Most fronts: each costs a thread and a report a second.
const FRONTS_MAX: usize = 8;

/// Hot blocks of one worker: with the read buffers below 2^16, and 14 GiB.
pub(crate) const HOT_BLOCKS_MAX: u64 = 57_000;
/// What one buffer takes, for a read or a hot block.
pub(crate) const BUFFER: u64 = worker::Config::BUFFER_LEN.0;

impl Settings {
    /// Whether all can be used; the first mistake and its remedy if not. Fills in the defaults that
    /// follow from other settings.
    pub(super) fn check(&mut self) -> Result<(), ConfigError> {
        let serve = &mut self.serve;
        let Some(first) = serve.listen.first() else {
            let message = "give at least one address, for example [\"0.0.0.0:443\"]".to_owned();
            return Err(wrong("serve", "listen", message));
        };
        if serve.base_url.is_empty() {
            serve.base_url = format!("https://{first}");
        }
        check_serve(serve)?;
        serve.congestion = check_congestion(std::mem::take(&mut serve.congestion), serve)?;
        let is_asked = self.origins.is_given("drives.move_daily_max");
        if is_asked && self.drives.move_daily_max.0 != Bytes::ZERO && self.serve.verify_every == 0 {
            let message = "needs [serve] verify_every: what is watched most is known from the \
                           blocks that are verified";
            return Err(wrong("drives", "move_daily_max", message.to_owned()));
        }
        check_tiering(&self.drives)?;
        check_drives(&self.drives)?;
        let unit = self.fill.unit.0;
        if unit != Bytes::ZERO && !(Bytes::kib(256)..=Bytes::mib(1024)).contains(&unit) {
            return Err(wrong("fill", "unit", "is 0 B for none, or 256 KiB to 1 GiB".to_owned()));
        }
        self.fill.concurrency = self.fill.concurrency.clamp(1, FILLERS_MAX);
        check_hot(self.hot.memory.0, self.serve.workers)?;
        self.pacing.check()?;
        self.ablation.check()?;
        check_fronts(&self.control.fronts)?;
        check_peer(&self.peer)?;
        check_listeners(self)?;
        if self.agent.addresses.is_some() && self.peer.listen.is_empty() {
            let message = "siblings ask for clients where they fetch: set [peer] listen".to_owned();
            return Err(wrong("agent", "addresses", message));
        }
        Ok(())
    }
}

/// Whether so much can be used by so many workers.
fn check_hot(memory: Bytes, workers: usize) -> Result<(), ConfigError> {
    let most = Bytes(HOT_BLOCKS_MAX * BUFFER * Bytes::of(workers).0);
    if memory <= most {
        return Ok(());
    }
    let message = format!("{memory} is more than {workers} workers can use: give {most} or less");
    Err(wrong("hot", "memory", message))
}

fn check_serve(serve: &Serve) -> Result<(), ConfigError> {
    check_base_url(&serve.base_url)?;
    check_plain(&serve.plain_listen)?;
    check_workers(serve)?;
    if let Some(at) = serve.tls12.iter().find(|at| !serve.listen.contains(at)) {
        let message = format!("{at} is not in [serve] listen: name listeners that are there");
        return Err(wrong("serve", "tls12", message));
    }
    if serve.second_certificate.is_some() != serve.second_key.is_some() {
        let message = "goes with second_key: give both, or neither";
        return Err(wrong("serve", "second_certificate", message));
    }
    check_shares(serve)?;
    let ([least, greatest], most) = (UNSENT, serve.unsent_max.0);
    if most != Bytes::ZERO && !(least..=greatest).contains(&most) {
        let message = format!(
            "{most} is out of range: give {least} to {greatest}, or 0 B for the kernel's own bound \
             (net.ipv4.tcp_notsent_lowat)"
        );
        return Err(wrong("serve", "unsent_max", message));
    }
    Ok(())
}

/// Workers' sockets share an address, so two listeners could as well, and the kernel would give a
/// connection to either: to the one that speaks no TLS 1.2, for example. Port 0 is another port for
/// each.
fn check_listeners(settings: &Settings) -> Result<(), ConfigError> {
    let Serve { listen, plain_listen, .. } = &settings.serve;
    let peers = settings.peer.listen.iter().map(|at| ("peer", "listen", at));
    let all = listen.iter().map(|at| ("serve", "listen", at));
    let all = all.chain(plain_listen.iter().map(|at| ("serve", "plain_listen", at))).chain(peers);
    let all = all.chain(settings.metrics.listen.iter().map(|at| ("metrics", "listen", at)));
    let mut known = BTreeMap::new();
    for (section, key, at) in all.filter(|(.., at)| at.port() != 0) {
        if let Some((section_before, key_before)) = known.insert(at, (section, key)) {
            let message = format!(
                "{at} is in [{section_before}] {key_before} already: give each listener another"
            );
            return Err(wrong(section, key, message));
        }
    }
    Ok(())
}

fn check_base_url(base_url: &str) -> Result<(), ConfigError> {
    if base_url.starts_with("https://") && !base_url.ends_with('/') {
        return Ok(());
    }
    let message = format!("\"{base_url}\" must begin with https:// and not end in a slash");
    Err(wrong("serve", "base_url", message))
}

fn check_plain(listen: &[SocketAddr]) -> Result<(), ConfigError> {
    let Some(at) = listen.iter().find(|at| !at.ip().is_loopback()) else { return Ok(()) };
    let message = format!("{at} is not a loopback address: without TLS only those are allowed");
    Err(wrong("serve", "plain_listen", message))
}

fn check_leeway(leeway: Nanos) -> Result<(), ConfigError> {
    if Nanos::seconds(3600) < leeway {
        let message = format!("{leeway} is more than an hour: set the clocks right instead");
        return Err(wrong("serve", "token_leeway", message));
    }
    Ok(())
}

fn check_shares(serve: &Serve) -> Result<(), ConfigError> {
    let workers = serve.workers;
    check_leeway(serve.token_leeway.0)?;
    // Each worker's table of files, of at most 65,535, must be larger than its share of transfers.
    let shares = |each_max: usize| [workers, workers * each_max];
    check_between("serve", "transfers_max", serve.transfers_max, shares(30_000))?;
    check_between("serve", "handshakes_max", serve.handshakes_max, shares(65_536))
}

fn check_between<T: PartialOrd + Display>(
    section: &'static str,
    key: &'static str,
    value: T,
    [least, most]: [T; 2],
) -> Result<(), ConfigError> {
    if (&least..=&most).contains(&&value) {
        return Ok(());
    }
    Err(wrong(section, key, format!("must be between {least} and {most}")))
}

/// One name for each listener.
fn check_congestion(names: Vec<String>, serve: &Serve) -> Result<Vec<String>, ConfigError> {
    let listeners = serve.listen.len();
    match names.len() {
        0 => Ok(names),
        1 => Ok(vec![names[0].clone(); listeners]),
        given if given == listeners => Ok(names),
        given => {
            let message = format!(
                "{given} names for {listeners} addresses: give one for all, or one for each of \
                 [serve] listen"
            );
            Err(wrong("serve", "congestion", message))
        }
    }
}

fn check_workers(serve: &Serve) -> Result<(), ConfigError> {
    let workers = serve.workers;
    if workers == 0 || 256 < workers {
        return Err(wrong("serve", "workers", format!("{workers} is not between 1 and 256")));
    }
    if !serve.cpus.is_empty() && serve.cpus.len() != workers {
        let message = format!("{} CPUs for {workers} workers: give one each", serve.cpus.len());
        return Err(wrong("serve", "cpus", message));
    }
    Ok(())
}

fn check_fronts(fronts: &[Front]) -> Result<(), ConfigError> {
    if FRONTS_MAX < fronts.len() {
        return Err(wrong("control", "fronts", format!("give at most {FRONTS_MAX}")));
    }
    for (index, Front { name, .. }) in fronts.iter().enumerate() {
        // What may name an appliance may name a front.
        if let Err(error) = name.parse::<ApplianceId>() {
            return Err(wrong("control", "fronts", error.to_string()));
        }
        if fronts[..index].iter().any(|front| front.name == *name) {
            return Err(wrong("control", "fronts", format!("{name} is there twice")));
        }
    }
    Ok(())
}

fn check_peer(peer: &PeerConfig) -> Result<(), ConfigError> {
    check_between("peer", "connections_max", peer.connections_max, [1, PEER_CONNECTIONS_MAX])?;
    let Some(first) = peer.listen.first() else {
        if peer.address.is_some() {
            let message = "give [peer] listen too: nothing listens for siblings".to_owned();
            return Err(wrong("peer", "address", message));
        }
        return Ok(());
    };
    let is_address = |at: &String| {
        let port = at.rsplit_once(':').filter(|(host, _)| !host.is_empty());
        port.is_some_and(|(_, port)| port.parse::<u16>().is_ok()) && !at.contains('/')
    };
    match &peer.address {
        None if first.ip().is_unspecified() => {
            let message = format!(
                "{first} is nothing that siblings can connect to: give HOST:PORT, where they reach \
                 this appliance"
            );
            Err(wrong("peer", "address", message))
        }
        Some(at) if !is_address(at) => {
            Err(wrong("peer", "address", format!("\"{at}\" is not HOST:PORT")))
        }
        None | Some(_) => Ok(()),
    }
}

fn check_writes(drives: &Drives) -> Result<(), ConfigError> {
    let (targets, count) = (&drives.read_targets, drives.paths.len());
    if !targets.is_empty() && targets.len() != 1 && targets.len() != count {
        let message =
            format!("{} targets for {count} drives: give one, or one each", targets.len());
        return Err(wrong("drives", "read_targets", message));
    }
    if targets.iter().any(|target| !(Nanos(100_000)..=Nanos::seconds(1)).contains(&target.0)) {
        let message = "must be between \"100 us\" and \"1 s\"".to_owned();
        return Err(wrong("drives", "read_targets", message));
    }
    check_between("drives", "write_depth", drives.write_depth, [1, 256])?;
    if drives.write_rate.is_some() && drives.policy != Mode::Static {
        let message = "is for policy = \"static\": the governor finds its own".to_owned();
        return Err(wrong("drives", "write_rate", message));
    }
    let rates = [Some(drives.write_floor), drives.write_rate];
    if rates.into_iter().flatten().any(|rate| rate.0 < BitsPerSecond(1_000_000)) {
        let message = "must be 1 Mb/s at least: fill would never end".to_owned();
        return Err(wrong("drives", "write_floor", message));
    }
    Ok(())
}

fn check_tiering(drives: &Drives) -> Result<(), ConfigError> {
    let (given, count) = (drives.classes.len(), drives.paths.len());
    if given != 0 && given != count {
        let message = format!("{given} classes for {count} drives: give one each, or none");
        return Err(wrong("drives", "classes", message));
    }
    if !(Nanos::seconds(1)..=Nanos::seconds(86_400)).contains(&drives.move_every.0) {
        let message = "must be between \"1 s\" and \"24 h\"".to_owned();
        return Err(wrong("drives", "move_every", message));
    }
    Ok(())
}

fn check_drives(drives: &Drives) -> Result<(), ConfigError> {
    if drives.paths.is_empty() || DRIVES_MAX < drives.paths.len() {
        let message = format!("give 1 to {DRIVES_MAX} directories, each formatted before");
        return Err(wrong("drives", "paths", message));
    }
    check_between("drives", "depth", drives.depth, [1, 256])?;
    if !(Nanos::millis(50)..=Nanos::seconds(10)).contains(&drives.hang_after.0) {
        let message = "must be between \"50 ms\" and \"10 s\": a drive that is only busy takes \
                       tens of milliseconds, and a player turns away after some seconds";
        return Err(wrong("drives", "hang_after", message.to_owned()));
    }
    check_writes(drives)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_buffers_have_numbers_is_refused() {
        check_hot(Bytes::mib(14_000), 1).unwrap();
        let said = check_hot(Bytes::mib(15_000), 1).unwrap_err().to_string();
        assert!(said.contains("more than 1 workers can use"), "{said}");
        check_hot(Bytes::mib(15_000), 2).unwrap();
    }
}
