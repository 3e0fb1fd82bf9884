//! One appliance with a film of known bytes, and viewers who ask by the clock: what `flood`, `idle`
//! and `scale` are made of.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use model::units::Bytes;
use rustls::CipherSuite;

use crate::certificate::Key;
use crate::client::{Load, Plan, Ranges, Receive, Target, Truth};
use crate::cpu::{self, Account};
use crate::stage::{Appliance, Film, Setup, Stage};

/// A filled appliance and its world.
pub struct Site {
    /// Ended first.
    pub appliance: Appliance,
    /// Where its film's files are, as in a request.
    pub base: String,
    film: Film,
    stage: Stage,
    dir: PathBuf,
}

/// Filling a few hundred megabytes.
const FILL_MAX: Duration = Duration::from_secs(60);

/// What viewers ask for.
#[derive(Clone, Copy, Debug)]
pub struct Demand {
    /// Keep-alive connections.
    pub connections: usize,
    /// Of this length each.
    pub range: Bytes,
    /// Bytes per second of all together.
    pub bytes_per_s: f64,
    /// Another seed, other ranges.
    pub seed: u64,
}

/// What came within a window.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Seen {
    pub seconds: f64,
    /// Body, decimal GB.
    pub gb: f64,
    /// Median response time.
    pub response_ms_p50: f64,
    /// 99th percentile of response time.
    pub response_ms_p99: f64,
    /// CPU seconds of the appliance, user and system.
    pub server_cpu_s: f64,
    /// CPU seconds of the viewers' threads.
    pub client_cpu_s: f64,
    /// Body bytes that were compared with the source, from the beginning.
    pub bytes_verified: u64,
}

impl Site {
    /// Starts an appliance that holds a film of files of these lengths. `serve` is the rest of its
    /// `[serve]`.
    pub fn start(dir: &Path, lens: &[u64], serve: &str) -> Result<Self> {
        Self::start_with(dir, lens, serve, &[])
    }

    /// The same with settings in its environment, which win over its configuration.
    pub fn start_with(
        dir: &Path,
        lens: &[u64],
        serve: &str,
        settings: &[(&str, String)],
    ) -> Result<Self> {
        let setup = Setup { serve, settings, ..Setup::new("lab", &[], dir) };
        Self::start_as(dir, lens, Key::default(), setup)
    }

    /// The same by its guard, with a certificate of such a key.
    pub fn start_guarded(dir: &Path, lens: &[u64], serve: &str, key: Key) -> Result<Self> {
        let setup = Setup { serve, guarded: true, ..Setup::new("lab", &[], dir) };
        Self::start_as(dir, lens, key, setup)
    }

    fn start_as(dir: &Path, lens: &[u64], key: Key, setup: Setup<'_>) -> Result<Self> {
        let mut stage = Stage::with_key(dir, key)?;
        let film = Film::new("film", lens.iter().copied(), 1);
        stage.publish(&[&film])?;
        for object in &film.objects {
            fs::write(dir.join(&object.path), &**object.bytes)?;
        }
        let drive = dir.join("drive");
        Appliance::format(&drive)?;
        let drives = [drive];
        let state = dir.join("state");
        let more = "[fill]\nconcurrency = 4\n";
        let setup = Setup { drives: &drives, state: &state, more, ..setup };
        let mut appliance = stage.start(&setup)?;
        stage.wait_until_held(&mut appliance, &[&film], FILL_MAX)?;
        let base = stage.base(&film)?;
        Ok(Self { appliance, base, film, stage, dir: dir.to_owned() })
    }

    /// What viewers trust, PEM.
    pub fn trust(&self) -> &Path {
        self.stage.trust()
    }

    /// Connects viewers, who ask by the clock from then on.
    pub fn viewers(&self, demand: Demand) -> Result<Load> {
        let plan = self.plan(demand.connections, demand.range, demand.seed);
        let mut load = self.connect(&Plan { receive: Receive::Discard, ..plan })?;
        let range = u32::try_from(demand.range.0).context("a range below 4 GiB")?;
        let connections = f64::from(u32::try_from(demand.connections)?);
        let interval = connections * f64::from(range) / demand.bytes_per_s;
        load.ask_by_the_clock(Duration::from_secs_f64(interval))?;
        Ok(load)
    }

    /// What so many viewers ask of the film.
    pub fn plan(&self, connections: usize, range_len: Bytes, seed: u64) -> Plan {
        let target = |object: &crate::stage::Object| Target {
            path: format!("{}{}", self.base, object.path),
            len: object.blocks.len(),
        };
        Plan {
            address: self.appliance.secure,
            name: self.appliance.secure.ip().to_string(),
            trust: self.trust().to_owned(),
            suites: vec![CipherSuite::TLS13_AES_128_GCM_SHA256],
            targets: self.film.objects.iter().map(target).collect(),
            connections,
            range_len,
            ranges: Ranges::Unaligned,
            receive: Receive::Copy,
            verify_every: 16,
            seed,
            every: Duration::ZERO,
        }
    }

    /// Connects viewers, who ask for nothing yet and compare what they will get.
    pub fn connect(&self, plan: &Plan) -> Result<Load> {
        Load::connect(plan, self.truth()?)
    }

    /// What viewers compare with.
    pub fn truth(&self) -> Result<Truth> {
        let open = |object: &crate::stage::Object| File::open(self.dir.join(&object.path));
        let files = self.film.objects.iter().map(open).collect::<Result<_, _>>()?;
        Ok(Truth::Files(files))
    }

    /// Drives `load` for a window after a warm-up.
    pub fn watch(&self, load: &mut Load, warm_up: Duration, window: Duration) -> Result<Seen> {
        load.drive(Instant::now() + warm_up)?;
        load.reset_latency();
        let account = Account::Processes(self.appliance.pid());
        let (server, client) = (account.used()?, cpu::of_this_thread()?);
        let (before, start) = (load.totals(), Instant::now());
        load.drive(start + window)?;
        let (after, seconds) = (load.totals(), start.elapsed().as_secs_f64());
        Ok(Seen {
            seconds,
            gb: crate::window::gigabytes(after.body - before.body),
            response_ms_p50: load.latency_ms(0.5),
            response_ms_p99: load.latency_ms(0.99),
            server_cpu_s: account.used()?.saturating_sub(server).as_secs_f64(),
            client_cpu_s: (cpu::of_this_thread()? - client).as_secs_f64(),
            bytes_verified: after.verified,
        })
    }
}

/// Resident memory of a process now, and the most it had, in bytes.
pub fn resident(pid: u32) -> Result<(u64, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let field = |name: &str| -> Result<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let value = line.and_then(|line| line.trim().strip_suffix(" kB"));
        Ok(value.with_context(|| format!("no {name} in its status"))?.trim().parse::<u64>()? * 1024)
    };
    Ok((field("VmRSS:")?, field("VmHWM:")?))
}

/// Bytes of kernel memory: slabs, and pages that TCP has in its queues.
pub fn kernel_memory() -> Result<(u64, u64)> {
    let meminfo = fs::read_to_string("/proc/meminfo")?;
    let slab = meminfo.lines().find_map(|line| line.strip_prefix("Slab:"));
    let slab = slab.and_then(|line| line.trim().strip_suffix(" kB")).context("no Slab")?;
    let sockets = fs::read_to_string("/proc/net/sockstat")?;
    let line =
        sockets.lines().find(|line| line.starts_with("TCP:")).context("no TCP in sockstat")?;
    let pages = line.rsplit(' ').next().context("an empty line")?;
    let page = u64::try_from(rustix::param::page_size())?;
    ensure!(line.contains(" mem "), "sockstat has changed its form");
    Ok((slab.trim().parse::<u64>()? * 1024, pages.parse::<u64>()? * page))
}

/// Bytes in TCP's queues from which on the kernel spares memory for all (the second number of
/// `net.ipv4.tcp_mem`).
pub fn tcp_pressure() -> Result<u64> {
    let text = fs::read_to_string("/proc/sys/net/ipv4/tcp_mem").context("no bounds of TCP")?;
    let pages = text.split_whitespace().nth(1).context("tcp_mem has changed its form")?;
    Ok(pages.parse::<u64>()? * u64::try_from(rustix::param::page_size())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_counted_in_bytes() {
        let (now, most) = resident(std::process::id()).unwrap();
        assert!((1 << 20..1 << 40).contains(&now) && now <= most);
        let (slab, _) = kernel_memory().unwrap();
        assert!((1 << 20..1 << 44).contains(&slab));
        assert!((1 << 20..1 << 44).contains(&tcp_pressure().unwrap()));
    }
}
