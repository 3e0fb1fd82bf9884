//! The appliance under test and its viewers: a crowd on loopback, one player behind a short queue.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use model::units::{BitsPerSecond, Bytes};
use rig::api;
use rig::client::{Plan, Ranges, Receive, Target, Truth};
use rig::cpu::{self, Account};
use rig::stage::{Appliance, Film, Setup, Stage};
use rig::window::{Timing, measure};
use tracing::info;

use crate::link::{Homes, Link, Shape};

/// The crowd's port under the first congestion control, then the second's; those behind the link
/// have the next.
const PORT: u16 = 18_600;
/// As the appliance calls them.
pub(super) const CONGESTION: [&str; 2] = ["cubic", "bbr"];
/// What the appliance runs on, and who asks.
pub(super) const SERVER_CPU: usize = 0;
const CLIENT_CPU: usize = 1;
const RANGE_LEN: Bytes = Bytes::mib(2);
const FILES: u64 = 16;
const FILE_LEN: u64 = 16_000_000;
const FILL_MAX: Duration = Duration::from_secs(120);
/// What each of the crowd asks to be sent at.
pub(super) const CROWD_KBPS: u64 = 20_000;
/// The slow link, which is as short of queue as a modem.
pub(super) const SHAPE: Shape = Shape { rate: BitsPerSecond(30_000_000), queue: Bytes(32_768) };
/// What a player can get of that in bodies, less half a percent: 1448 of 1514 bytes of a packet
/// are TCP's, 16384 of 16406 of a record are the body's.
pub(super) const PAYLOAD_KBPS: u64 = 28_500;
/// Of the slow link.
const LINK_INDEX: u8 = 7;
/// A viewer asks for so much of its rate: the last burst has to come before the next request.
const CROWD_SHARE: f64 = 0.98;

pub(super) struct World {
    stage: Stage,
    film: Film,
    dir: tempfile::TempDir,
    link: Link,
    homes: Homes,
}

/// What a window of the crowd cost.
#[derive(Clone, Debug, serde::Serialize)]
pub(super) struct Crowd {
    pub(super) gbps: f64,
    /// Viewers without one complete response.
    pub(super) stalled: usize,
    /// The appliance's processes.
    pub(super) cpu_s_per_gb: f64,
    /// Everything on the appliance's CPU: what the kernel does for nobody in particular, too.
    pub(super) cpu_busy_s_per_gb: f64,
    /// How the bursts' lateness grew: upper bound in microseconds, and count.
    #[serde(skip)]
    pub(super) late: Vec<(f64, f64)>,
}

/// What a window behind the link brought.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub(super) struct Window {
    pub(super) mbps: f64,
    pub(super) drops: u64,
    pub(super) drops_per_1000: f64,
}

impl World {
    pub(super) fn new() -> Result<Self> {
        let homes = Homes::new("pace")?;
        let link = homes.link(LINK_INDEX, SHAPE)?;
        let dir = tempfile::Builder::new().prefix("nearcast-pace-").tempdir()?;
        let mut stage = Stage::new(dir.path())?;
        let lens = std::iter::repeat_n(FILE_LEN, usize::try_from(FILES)?);
        let film = Film::new("film-1", lens, 7);
        stage.publish(&[&film])?;
        for (number, object) in film.objects.iter().enumerate() {
            std::fs::write(dir.path().join(format!("truth-{number}")), object.bytes.as_slice())?;
        }
        let drive = dir.path().join("drive");
        Appliance::format(&drive)?;
        Ok(Self { stage, film, dir, link, homes })
    }

    /// Where its files are.
    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// An appliance with this `[pacing]`, once it holds the film.
    pub(super) fn start(&self, pacing: &str) -> Result<Appliance> {
        let drives: [PathBuf; 1] = [self.dir.path().join("drive")];
        let state = self.dir.path().join("state");
        let hosts = [Ipv4Addr::LOCALHOST, self.link.near];
        let places = hosts.iter().flat_map(|host| CONGESTION.map(|name| (host, name)));
        let listen: Vec<String> = places
            .clone()
            .zip(PORT..)
            .map(|((host, _), port)| format!("\"{host}:{port}\""))
            .collect();
        let names: Vec<String> = places.map(|(_, name)| format!("\"{name}\"")).collect();
        let settings = [
            ("APPLIANCE_SERVE_LISTEN", format!("[{}]", listen.join(", "))),
            ("APPLIANCE_SERVE_CONGESTION", format!("[{}]", names.join(", "))),
            ("APPLIANCE_SERVE_CPUS", format!("[{SERVER_CPU}]")),
        ];
        let more = &format!("[pacing]\n{pacing}\n");
        let setup = Setup { more, settings: &settings, ..Setup::new("pace", &drives, &state) };
        let mut appliance = self.stage.start(&setup)?;
        let metrics = appliance.metrics;
        let holds_all = || held(metrics) == Some(FILES.to_string());
        appliance.wait_until("the film", FILL_MAX, holds_all)?;
        info!(pacing, "the appliance is filled");
        Ok(appliance)
    }

    /// A window of the crowd, paced or not: the same requests at the same moments.
    pub(super) fn crowd(
        &self,
        appliance: &Appliance,
        (congestion, connections): (usize, usize),
        paced: bool,
        timing: Timing,
        seed: u64,
    ) -> Result<Crowd> {
        let bits = Bytes(RANGE_LEN.0 * 8).0;
        let span = Duration::from_nanos(bits * 1_000_000 / CROWD_KBPS);
        let said = paced.then(|| says(CROWD_KBPS));
        let port = PORT + u16::try_from(congestion)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut plan = self.plan(address, said.as_deref(), seed)?;
        (plan.connections, plan.every) = (connections, span.div_f64(CROWD_SHARE));
        let account = Account::Processes(appliance.pid());
        let meter = || {
            let late = lateness(&appliance.metrics_text().context("no metrics")?);
            Ok((account.used()?, cpu::busy(SERVER_CPU)?, late))
        };
        let truth = self.truth()?;
        let (window, before, after) = on_client_cpu(|| measure(&plan, truth, timing, meter))?;
        let grown = after.2.iter().zip(&before.2);
        Ok(Crowd {
            gbps: window.gbps,
            stalled: window.stalled,
            cpu_s_per_gb: after.0.saturating_sub(before.0).as_secs_f64() / window.gb,
            cpu_busy_s_per_gb: after.1.saturating_sub(before.1).as_secs_f64() / window.gb,
            late: grown.map(|(after, before)| (after.0, after.1 - before.1)).collect(),
        })
    }

    /// A window of one player behind the link that asks for one range after the other.
    pub(super) fn link(
        &self,
        congestion: usize,
        paced: bool,
        timing: Timing,
        seed: u64,
    ) -> Result<Window> {
        let said = paced.then(|| says(PAYLOAD_KBPS));
        let port = PORT + u16::try_from(CONGESTION.len() + congestion)?;
        let plan = self.plan(SocketAddr::from((self.link.near, port)), said.as_deref(), seed)?;
        let truth = self.truth()?;
        let (window, before, after) = on_client_cpu(|| {
            self.homes.enter()?;
            measure(&plan, truth, timing, || self.link.seen())
        })?;
        let drops = after.drops - before.drops;
        let sent = u32::try_from(after.packets - before.packets)?.max(1);
        Ok(Window {
            mbps: window.gbps * 1e3,
            drops,
            drops_per_1000: f64::from(u32::try_from(drops)?) * 1e3 / f64::from(sent),
        })
    }

    fn plan(&self, address: SocketAddr, said: Option<&str>, seed: u64) -> Result<Plan> {
        let base = self.stage.base(&self.film)?;
        let query = said.map(|said| format!("?CMCD={said}")).unwrap_or_default();
        let target = |object: &rig::stage::Object| Target {
            path: format!("{base}{}{query}", object.path),
            len: Bytes::of(object.bytes.len()),
        };
        Ok(Plan {
            address,
            name: "127.0.0.1".to_owned(),
            trust: self.dir.path().join("ca.pem"),
            suites: Vec::new(),
            targets: self.film.objects.iter().map(target).collect(),
            connections: 1,
            range_len: RANGE_LEN,
            ranges: Ranges::Unaligned,
            receive: Receive::Discard,
            verify_every: 64,
            seed,
            every: Duration::ZERO,
        })
    }

    fn truth(&self) -> Result<Truth> {
        let path = |number: u64| self.dir.path().join(format!("truth-{number}"));
        let files: Result<Vec<File>> = (0..FILES).map(|n| Ok(File::open(path(n))?)).collect();
        Ok(Truth::Files(files?))
    }
}

/// A player with a full buffer that wants to be sent at this rate.
fn says(kbps: u64) -> String {
    format!("bl%3D30000%2Cbr%3D2000%2Crtp%3D{kbps}")
}

/// On a thread of its own, so that what it enters and is bound to ends with it.
fn on_client_cpu<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    thread::scope(|scope| {
        let pinned = scope.spawn(|| {
            cpu::pin(CLIENT_CPU)?;
            work()
        });
        pinned.join().unwrap_or_else(|_| Err(anyhow!("the client's thread panicked")))
    })
}

/// The appliance's count of objects, as its metrics say it.
fn held(metrics: SocketAddr) -> Option<String> {
    let answer = ureq::get(format!("http://{metrics}/metrics")).call();
    let text = answer.ok()?.body_mut().read_to_string().ok()?;
    api::metric(&text, "fill_objects_held")
}

/// Bursts by lateness: upper bound in microseconds, count of those within it.
fn lateness(metrics: &str) -> Vec<(f64, f64)> {
    let bucket = |line: &str| {
        let rest = line.strip_prefix("nearcast_burst_lateness_seconds_bucket{le=\"")?;
        let (bound, count) = rest.split_once("\"} ")?;
        let bound = bound.parse::<f64>().ok()?;
        Some((bound * 1e6, count.trim().parse().ok()?))
    };
    metrics.lines().filter_map(bucket).collect()
}

/// The value below which `share` of a histogram lies: between two bounds, as if spread evenly.
pub(super) fn quantile(cumulated: &[(f64, f64)], share: f64) -> Option<f64> {
    let wanted = cumulated.last()?.1 * share;
    let mut before = (0.0, 0.0);
    for &(bound, count) in cumulated {
        if 0.0 < count && wanted <= count {
            let part =
                if before.1 < count { (wanted - before.1) / (count - before.1) } else { 1.0 };
            let top = if bound.is_finite() { bound } else { before.0 };
            return Some(before.0 + (top - before.0) * part);
        }
        before = (bound, count);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_is_read_from_metrics() {
        let text = "x 1\nnearcast_burst_lateness_seconds_bucket{le=\"0.000064\"} 5\n\
                    nearcast_burst_lateness_seconds_bucket{le=\"0.000128\"} 9\n\
                    nearcast_burst_lateness_seconds_bucket{le=\"+Inf\"} 10\n";
        let late = lateness(text);
        assert_eq!(late.len(), 3);
        assert_eq!(late[1].1.to_string(), "9");
        let at = |share| quantile(&late, share).unwrap().round().to_string();
        assert_eq!((at(0.25), at(0.7), at(0.99)), ("32".into(), "96".into(), "128".into()));
        assert_eq!(quantile(&[], 0.5), None);
    }
}
