//! Many TLS connections that ask for nothing: what each costs in memory, ours and the kernel's.
//!
//! ```text
//! appliance 1 <── connections ── client 1      as many pairs as it takes: a process has as many
//! appliance 2 <── connections ── client 2      files as its hard limit says, one per connection
//! ```
//!
//! Each connection shakes hands, asks for one small object, takes it, and is quiet from then on.
//! The client forgets its keys and keeps the socket, so that what it costs is not ours; sockets of
//! both ends are on this machine, and so the kernel's figure is for two.

mod client;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use model::units::Bytes;
use rig::cpu::Account;
use rig::site::{Site, kernel_memory, resident};
use rig::window::gigabytes;
use serde::Serialize;
use tracing::info;

pub(crate) use client::ClientArgs;
pub(crate) use client::run as run_client;

/// `nearcast-lab idle`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Connections of all appliances together.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..))]
    connections: u32,
    /// How long they are left alone while the CPU time is taken, in seconds.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Print one JSON object as the last line of output.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    connections: u64,
    /// Each has as many as the limit of open files allows.
    appliances: usize,
    files_max: u64,
    /// Resident memory of all appliances, connections and all else.
    rss_gb: f64,
    rss_gb_before: f64,
    user_bytes_per_connection: f64,
    /// Slabs and socket queues that were added, for both ends of each connection.
    kernel_gb: f64,
    /// Both ends: half of it is the appliance's, more or less.
    kernel_bytes_per_connection: f64,
    client_rss_gb: f64,
    /// CPU seconds per second of all appliances, while nothing is asked.
    idle_cpu_share: f64,
    connect_s: f64,
}

/// Files of a process that are not connections.
const FILES_BESIDE: u64 = 1200;
const CONNECT_MAX: Duration = Duration::from_secs(280);
/// It is answered from memory.
const SMALL: [u64; 1] = [1000];

struct Pair {
    /// Ended first, so that the appliance sees nobody leave.
    client: Client,
    site: Site,
    count: u64,
    _dir: tempfile::TempDir,
}

/// A client process. Killed when dropped.
struct Client(Child);

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Connects, counts, prints the result on stdout.
pub(crate) fn run(args: &Args) -> Result<()> {
    rig::raise_file_limit()?;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let files_max = limit.maximum.unwrap_or(1 << 20);
    let each = files_max.saturating_sub(FILES_BESIDE).min(u64::from(args.connections));
    ensure!(0 < each, "{files_max} open files are too few: raise the hard limit (ulimit -Hn)");
    let mut left = u64::from(args.connections);
    let mut sites = Vec::new();
    while 0 < left {
        let count = left.min(each);
        left -= count;
        let dir = tempfile::Builder::new().prefix("nearcast-idle-").tempdir()?;
        let serve = format!("workers = 1\nconnections_max = {count}\nidle_timeout = \"30 min\"\n");
        sites.push((Site::start(dir.path(), &SMALL, &serve)?, count, dir));
    }
    std::thread::sleep(Duration::from_secs(2));
    let before = sum(sites.iter().map(|(site, ..)| site))?;
    let kernel_before = kernel_memory()?;
    let began = Instant::now();
    let mut pairs = Vec::new();
    for (number, (site, count, dir)) in sites.into_iter().enumerate() {
        let client = start_client(&site, count, number)?;
        pairs.push(Pair { client, site, count, _dir: dir });
    }
    wait_for_all(&mut pairs, began)?;
    let connect_s = began.elapsed().as_secs_f64();
    // Buffers that were in use a moment ago are given back.
    std::thread::sleep(Duration::from_secs(3));
    let report = report(args, &pairs, (before, kernel_before), files_max, connect_s)?;
    rig::say(args.json, &report, || report.table())
}

fn start_client(site: &Site, count: u64, number: usize) -> Result<Client> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--log-level", "warn", "idle-client", "--count", &count.to_string()]);
    command.args(["--server", &site.appliance.secure.to_string()]);
    command.arg("--trust").arg(site.trust());
    command.args(["--path", &format!("{}0.mp4", site.base), "--number", &number.to_string()]);
    // Its end is the end of ours, however that comes about.
    let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
    Ok(Client(child.context("cannot start a client")?))
}

/// Until each appliance has answered all of its connections, and has them open.
fn wait_for_all(pairs: &mut [Pair], began: Instant) -> Result<()> {
    loop {
        let (mut open, mut complete) = (0.0, true);
        for pair in pairs.iter_mut() {
            rig::stop::check()?;
            let wanted = f64::from(u32::try_from(pair.count)?);
            let metric = |name| pair.site.appliance.metric(name).unwrap_or(0.0);
            let here = metric("connections");
            open += here;
            complete &= here == wanted && wanted <= metric("responses_2xx_total");
            if let Some(status) = pair.client.0.try_wait()? {
                bail!("a client ended ({status})");
            }
            ensure!(pair.site.appliance.is_running(), "an appliance ended");
        }
        if complete {
            return Ok(());
        }
        ensure!(began.elapsed() < CONNECT_MAX, "{open} connections after {CONNECT_MAX:?}");
        info!(open, "connecting");
        std::thread::sleep(Duration::from_secs(2));
    }
}

fn report(
    args: &Args,
    pairs: &[Pair],
    before: (u64, (u64, u64)),
    files_max: u64,
    connect_s: f64,
) -> Result<Report> {
    let (before, (slab_before, queues_before)) = before;
    let after = sum(pairs.iter().map(|pair| &pair.site))?;
    let (slab, queues) = kernel_memory()?;
    let kernel = (slab + queues).saturating_sub(slab_before + queues_before);
    let mut client_rss = 0;
    for pair in pairs {
        client_rss += resident(pair.client.0.id())?.0;
    }
    let used = || -> Result<f64> {
        let each = pairs.iter().map(|pair| Account::Processes(pair.site.appliance.pid()).used());
        Ok(each.collect::<Result<Vec<_>>>()?.iter().sum::<Duration>().as_secs_f64())
    };
    let (cpu, start) = (used()?, Instant::now());
    std::thread::sleep(Duration::from_secs(args.seconds.into()));
    let idle_cpu_share = (used()? - cpu) / start.elapsed().as_secs_f64();
    for pair in pairs {
        let open = pair.site.appliance.metric("connections").unwrap_or(0.0);
        ensure!(open == f64::from(u32::try_from(pair.count)?), "{open} of {} are open", pair.count);
    }
    let connections: u64 = pairs.iter().map(|pair| pair.count).sum();
    // Below 2^53: exact.
    let each =
        |bytes: u64| gigabytes(bytes) * 1e9 / f64::from(u32::try_from(connections).unwrap_or(1));
    Ok(Report {
        connections,
        appliances: pairs.len(),
        files_max,
        rss_gb: gigabytes(after),
        rss_gb_before: gigabytes(before),
        user_bytes_per_connection: each(after.saturating_sub(before)),
        kernel_gb: gigabytes(kernel),
        kernel_bytes_per_connection: each(kernel),
        client_rss_gb: gigabytes(client_rss),
        idle_cpu_share,
        connect_s,
    })
}

fn sum<'a>(sites: impl Iterator<Item = &'a Site>) -> Result<u64> {
    sites.map(|site| Ok(resident(site.appliance.pid())?.0)).sum()
}

impl Report {
    fn table(&self) -> String {
        format!(
            "connections              {} on {} appliances ({} files each at most)\n\
             user memory              {} a connection, {:.3} GB in all\n\
             kernel memory            {} a connection for both ends, {:.3} GB in all\n\
             CPU while quiet          {:.1} %",
            self.connections,
            self.appliances,
            self.files_max,
            bytes(self.user_bytes_per_connection),
            self.rss_gb,
            bytes(self.kernel_bytes_per_connection),
            self.kernel_gb,
            self.idle_cpu_share * 100.0,
        )
    }
}

fn bytes(each: f64) -> Bytes {
    Bytes(Duration::from_secs_f64(each.max(0.0)).as_secs())
}
