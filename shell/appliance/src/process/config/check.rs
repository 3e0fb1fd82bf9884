//! Checks the values of a file: gives the settings, or the first mistake and its remedy.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};

use identity::enrol::Address;
use model::id::ApplianceId;
use model::limits::DRIVES_MAX;
use model::units::{BitsPerSecond, Bytes, Nanos};

use super::Settings;
use super::file::{AgentFile, Drives, File, FillFile, FrontFile, PeerFile, Serve};
use crate::filling::peer::PeerConfig;
use crate::membership::control_link::Front;
use crate::process::storage::{ControlConfig, FILLERS_MAX, FillConfig};
use crate::setting::{ConfigError, wrong};
use crate::storage::gate::{Mode, Writes};
use crate::storage::source;
use crate::storage::tiering::{self, Tiering};

/// The least and the most that `unsent_max` may be, unless it is 0. A record, 16 KiB, is the least
/// that is sealed at once. The most is arbitrary: no send buffer is as large.
const UNSENT: [Bytes; 2] = [Bytes::kib(16), Bytes::mib(1024)];
/// Siblings that fetch at once, unless it is said; and at most: each costs a thread.
const PEER_CONNECTIONS: usize = 32;
const PEER_CONNECTIONS_MAX: usize = 1024;
/// Most fronts: each costs a thread and a report a second.
const FRONTS_MAX: usize = 8;

/// Memory for hot blocks, unless it is said: a thousand blocks, of a film's two busiest minutes in
/// all renditions, on machines that have at least 4 GiB.
pub(crate) const HOT_MEMORY: Bytes = Bytes::mib(256);
/// Hot blocks of one worker: with the read buffers below 2^16, and 14 GiB.
pub(crate) const HOT_BLOCKS_MAX: u64 = 57_000;
/// What one buffer takes, for a read or a hot block.
pub(crate) const BUFFER: u64 = worker::Config::BUFFER_LEN.0;

pub(super) fn check(
    file: File,
    origins: BTreeMap<String, String>,
) -> Result<Settings, ConfigError> {
    let name: ApplianceId =
        file.name.parse().map_err(|error| wrong("", "name", format!("{error}")))?;
    let mut serve = file.serve;
    let (first, workers) = (first_listener(&serve)?, worker_count(&serve)?);
    check_plain(&serve.plain_listen)?;
    check_shares(&serve, workers)?;
    let base_url = check_base_url(serve.base_url.take().unwrap_or_else(|| url("https", first)))?;
    let tiering = check_tiering(&file.drives, serve.verify_every)?;
    let (writes, fill_unit) = (check_drives(&file.drives)?, check_unit(&file.fill)?);
    let hot_memory = check_hot(file.hot.memory.map(|memory| memory.0), workers)?;
    let congestion = check_congestion(std::mem::take(&mut serve.congestion), serve.listen.len())?;
    let unsent_max = check_unsent(serve.unsent_max.0)?;
    let (pacing, aead) = (file.pacing.check()?, check_aead(file.tls.aead.as_deref())?);
    let (fronts, peer) = (check_fronts(&file.control.fronts)?, check_peer(file.peer)?);
    check_addresses(&file.agent, peer.is_some())?;
    Ok(Settings {
        name,
        state: file.state,
        plain_url: serve.plain_listen.first().map(|at| url("http", *at)),
        serve,
        base_url,
        workers,
        congestion,
        unsent_max,
        aead,
        pacing,
        drives: file.drives,
        writes,
        tiering,
        hot_memory,
        control: ControlConfig {
            writer: address("url", &file.control.url)?,
            fronts,
            report_interval: file.control.report_interval.0,
        },
        peer,
        fill: FillConfig {
            rate_max: file.fill.rate_max.map(|rate| rate.0),
            trust: file.fill.trust,
            concurrency: file.fill.concurrency.unwrap_or(4).clamp(1, FILLERS_MAX),
            silence_max: source::SILENCE_MAX,
            unit_len: fill_unit,
        },
        metrics_listen: file.metrics.listen,
        user: file.process.user,
        sandbox: file.process.sandbox,
        agent_socket: file.agent.socket,
        agent_addresses: file.agent.addresses,
        request_log_max: file.requests.log_max.map_or(Bytes::mib(256), |most| most.0),
        ablation: file.ablation,
        origins,
    })
}

/// Whether so much can be used by so many workers; what is wrong if not.
fn check_hot(memory: Option<Bytes>, workers: usize) -> Result<Option<Bytes>, ConfigError> {
    let most = Bytes(HOT_BLOCKS_MAX * BUFFER * Bytes::of(workers).0);
    match memory {
        Some(memory) if most < memory => {
            let message =
                format!("{memory} is more than {workers} workers can use: give {most} or less");
            Err(wrong("hot", "memory", message))
        }
        Some(_) | None => Ok(memory),
    }
}

fn check_unsent(most: Bytes) -> Result<Option<Bytes>, ConfigError> {
    let [least, greatest] = UNSENT;
    if most == Bytes::ZERO {
        return Ok(None);
    }
    if !(least..=greatest).contains(&most) {
        let message = format!(
            "{most} is out of range: give {least} to {greatest}, or 0 B for the kernel's own bound \
             (net.ipv4.tcp_notsent_lowat)"
        );
        return Err(wrong("serve", "unsent_max", message));
    }
    Ok(Some(most))
}

fn check_addresses(agent: &AgentFile, has_peers: bool) -> Result<(), ConfigError> {
    if agent.addresses.is_some() && !has_peers {
        let message = "siblings ask for clients where they fetch: set [peer] listen".to_owned();
        return Err(wrong("agent", "addresses", message));
    }
    Ok(())
}

fn check_aead(aead: Option<&str>) -> Result<tls::Wanted, ConfigError> {
    let wanted = aead.map_or_else(|| Ok(tls::Wanted::default()), str::parse);
    wanted.map_err(|error: tls::WantedError| wrong("tls", "aead", error.to_string()))
}

fn check_base_url(base_url: String) -> Result<String, ConfigError> {
    if base_url.starts_with("https://") && !base_url.ends_with('/') {
        return Ok(base_url);
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

fn check_shares(serve: &Serve, workers: usize) -> Result<(), ConfigError> {
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
fn check_congestion(names: Vec<String>, listeners: usize) -> Result<Vec<String>, ConfigError> {
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

fn worker_count(serve: &Serve) -> Result<usize, ConfigError> {
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = serve.workers.unwrap_or(available);
    if workers == 0 || 256 < workers {
        return Err(wrong("serve", "workers", format!("{workers} is not between 1 and 256")));
    }
    if !serve.cpus.is_empty() && serve.cpus.len() != workers {
        let message = format!("{} CPUs for {workers} workers: give one each", serve.cpus.len());
        return Err(wrong("serve", "cpus", message));
    }
    Ok(workers)
}

/// Control's fleet address. The same host often serves people over http on another port.
fn address(key: &'static str, url: &str) -> Result<Address, ConfigError> {
    let address = url.parse();
    address.map_err(|wanted| wrong("control", key, format!("\"{url}\" cannot be used: {wanted}")))
}

fn check_fronts(fronts: &[FrontFile]) -> Result<Vec<Front>, ConfigError> {
    if FRONTS_MAX < fronts.len() {
        return Err(wrong("control", "fronts", format!("give at most {FRONTS_MAX}")));
    }
    let mut checked: Vec<Front> = Vec::new();
    for FrontFile { name, url } in fronts {
        // What may name an appliance may name a front.
        if let Err(error) = name.parse::<ApplianceId>() {
            return Err(wrong("control", "fronts", error.to_string()));
        }
        if checked.iter().any(|front| front.name == *name) {
            return Err(wrong("control", "fronts", format!("{name} is there twice")));
        }
        checked.push(Front { name: name.clone(), address: address("fronts", url)? });
    }
    Ok(checked)
}

/// None where it does not listen for siblings.
fn check_peer(file: PeerFile) -> Result<Option<PeerConfig>, ConfigError> {
    let connections_max = file.connections_max.unwrap_or(PEER_CONNECTIONS);
    check_between("peer", "connections_max", connections_max, [1, PEER_CONNECTIONS_MAX])?;
    let Some(first) = file.listen.first() else {
        if file.address.is_some() {
            let message = "give [peer] listen too: nothing listens for siblings".to_owned();
            return Err(wrong("peer", "address", message));
        }
        return Ok(None);
    };
    let is_address = |at: &String| {
        let port = at.rsplit_once(':').filter(|(host, _)| !host.is_empty());
        port.is_some_and(|(_, port)| port.parse::<u16>().is_ok()) && !at.contains('/')
    };
    match &file.address {
        None if first.ip().is_unspecified() => {
            let message = format!(
                "{first} is nothing that siblings can connect to: give HOST:PORT, where they reach \
                 this appliance"
            );
            return Err(wrong("peer", "address", message));
        }
        Some(at) if !is_address(at) => {
            return Err(wrong("peer", "address", format!("\"{at}\" is not HOST:PORT")));
        }
        None | Some(_) => {}
    }
    let rate_max = file.rate_max.map(|rate| rate.0);
    Ok(Some(PeerConfig { listen: file.listen, address: file.address, rate_max, connections_max }))
}

fn check_writes(drives: &Drives) -> Result<Writes, ConfigError> {
    let targets: Vec<Nanos> = drives.read_targets.iter().map(|target| target.0).collect();
    let count = drives.paths.len();
    if !targets.is_empty() && targets.len() != 1 && targets.len() != count {
        let message =
            format!("{} targets for {count} drives: give one, or one each", targets.len());
        return Err(wrong("drives", "read_targets", message));
    }
    if targets.iter().any(|target| *target < Nanos(100_000) || Nanos::seconds(1) < *target) {
        let message = "must be between \"100 us\" and \"1 s\"".to_owned();
        return Err(wrong("drives", "read_targets", message));
    }
    check_between("drives", "write_depth", drives.write_depth, [1, 256])?;
    let rate = drives.write_rate.map(|rate| rate.0);
    if rate.is_some() && drives.policy != Mode::Static {
        let message = "is for policy = \"static\": the governor finds its own".to_owned();
        return Err(wrong("drives", "write_rate", message));
    }
    let floor = drives.write_floor.0;
    if [Some(floor), rate].into_iter().flatten().any(|rate| rate < BitsPerSecond(1_000_000)) {
        let message = "must be 1 Mb/s at least: fill would never end".to_owned();
        return Err(wrong("drives", "write_floor", message));
    }
    let (mode, depth) = (drives.policy, drives.write_depth);
    Ok(Writes { mode, targets, depth, rate, floor })
}

fn check_tiering(drives: &Drives, verify_every: u32) -> Result<Tiering, ConfigError> {
    let (given, count) = (drives.classes.len(), drives.paths.len());
    if given != 0 && given != count {
        let message = format!("{given} classes for {count} drives: give one each, or none");
        return Err(wrong("drives", "classes", message));
    }
    let every = drives.move_every.map_or(tiering::EVERY, |every| every.0);
    if !(Nanos::seconds(1)..=Nanos::seconds(86_400)).contains(&every) {
        let message = "must be between \"1 s\" and \"24 h\"".to_owned();
        return Err(wrong("drives", "move_every", message));
    }
    let asked = drives.move_daily_max.map(|most| most.0);
    if asked.is_some_and(|most| most != Bytes::ZERO) && verify_every == 0 {
        let message = "needs [serve] verify_every: what is watched most is known from the blocks \
                       that are verified";
        return Err(wrong("drives", "move_daily_max", message.to_owned()));
    }
    let daily_max = asked.unwrap_or(tiering::DAILY_MAX);
    Ok(Tiering { classes: drives.classes.clone(), daily_max, every })
}

fn first_listener(serve: &Serve) -> Result<SocketAddr, ConfigError> {
    let message = || "give at least one address, for example [\"0.0.0.0:443\"]".to_owned();
    serve.listen.first().copied().ok_or_else(|| wrong("serve", "listen", message()))
}

/// What is between the superblocks of large drives and what a viewer waits for: units are visible
/// as a whole. docs/operate/drives.md has more.
const UNIT: Bytes = Bytes::mib(64);

fn check_unit(fill: &FillFile) -> Result<Option<Bytes>, ConfigError> {
    let unit = Some(fill.unit.map_or(UNIT, |unit| unit.0)).filter(|unit| *unit != Bytes::ZERO);
    let shared = Bytes::kib(256)..=Bytes::mib(1024);
    if unit.is_some_and(|unit| !shared.contains(&unit)) {
        let message = "is 0 B for none, or 256 KiB to 1 GiB".to_owned();
        return Err(wrong("fill", "unit", message));
    }
    Ok(unit)
}

fn check_drives(drives: &Drives) -> Result<Writes, ConfigError> {
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

fn url(scheme: &str, at: SocketAddr) -> String {
    let host = match at.ip() {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    };
    format!("{scheme}://{host}:{}", at.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_buffers_have_numbers_is_refused() {
        check_hot(None, 1).unwrap();
        check_hot(Some(Bytes::mib(14_000)), 1).unwrap();
        let said = check_hot(Some(Bytes::mib(15_000)), 1).unwrap_err().to_string();
        assert!(said.contains("more than 1 workers can use"), "{said}");
        check_hot(Some(Bytes::mib(15_000)), 2).unwrap();
    }
}
