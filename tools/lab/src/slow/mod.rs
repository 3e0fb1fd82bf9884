//! Sockets that take little beforehand: what they spare where many clients are slow (`slow`), and
//! that a fast one far away has as much as before (`far`).
//!
//! ```text
//! appliance, bound ────── N connections ── client: reads each at one rate, by the clock
//! appliance, no bound ─── N connections ── the same, in turns; both new each time
//! ```
//!
//! Both ends of all sockets are on this machine. What the kernel has for either is told apart by
//! its own table of connections: bytes that wait to be sent, and bytes that wait to be read.

mod delay;
mod far;

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use model::units::{BitsPerSecond, Bytes};
use rig::client::Load;
use rig::cpu::{self, Account};
use rig::site::{Site, kernel_memory, resident, tcp_pressure};
use rig::statistics::median_of;
use rig::window::gigabytes;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use serde::Serialize;
use tracing::{info, warn};

use crate::processor::Processor;

pub(crate) use far::Args as FarArgs;
pub(crate) use far::run as run_far;

/// `nearcast-lab slow`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Connections; fewer where the limit of open files is lower. At 1 Mb/s each, 1,000 are 1 Gb/s.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    connections: u32,
    /// How fast each reads.
    #[arg(long, default_value = "1 Mb/s")]
    rate: BitsPerSecond,
    /// The bound that is compared with none.
    #[arg(long, default_value = "256 KiB")]
    unsent_max: Bytes,
    /// How often either has its turn.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=20))]
    pairs: u32,
    /// Length of a window, in seconds.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=300))]
    seconds: u32,
    /// Leave `connections_max`, `transfers_max` and all time-outs as installed, and go on when the
    /// appliance ends connections: they are counted. Without it, it has room and time for all.
    #[arg(long)]
    as_installed: bool,
    /// Print one JSON object as the last line of output.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Turn {
    /// What came of what the connections can read.
    goodput: f64,
    gbps: f64,
    /// What the connections add to the kernel's memory, both ends.
    kernel_bytes_per_connection: f64,
    /// Of these, bytes in the appliance's sockets that were not acknowledged.
    sending_bytes_per_connection: f64,
    /// And in the clients' that were not read.
    receiving_bytes_per_connection: f64,
    /// What they add to the appliance's resident memory.
    user_bytes_per_connection: f64,
    cpu_s_per_gb: f64,
    client_cpu_share: f64,
    /// How late the client is with its reading in the end.
    client_late_ms: f64,
    /// TCP's memory on this machine, divided by that at which the kernel begins to spare it.
    tcp_memory_share: f64,
    /// Connections that the appliance let go since they were slow and others waited.
    let_go_slow: f64,
    timed_out: f64,
    /// All whose end the client saw: closed or reset.
    ended: f64,
}

#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    processor: Processor,
    connections: usize,
    files_max: u64,
    rate: String,
    unsent_max: String,
    as_installed: bool,
    /// Why the memory is not that of slow connections; empty if nothing speaks against it.
    doubts: Vec<String>,
    /// Kernel memory per connection with the bound, divided by that without: the median over pairs.
    kernel_ratio: f64,
    bounded: Turn,
    unbounded: Turn,
    pairs: Vec<[Turn; 2]>,
}

/// A turn with less goodput served less than was asked for: sockets are full since the machine is.
const GOODPUT_MIN: f64 = 0.95;
/// A client that is later than this, in milliseconds, read in bursts: queues grew meanwhile.
const LATE_MAX: f64 = 500.0;
/// Near the kernel's own bound for all, sockets have what is left and not what they would have.
const TCP_MEMORY_MAX: f64 = 0.9;
/// What each asks for, again and again.
const RANGE: Bytes = Bytes::mib(2);
/// What a client asks the kernel for: two segments of loopback. The kernel doubles it, since its
/// own bookkeeping counts as well (socket(7)).
const RECEIVE_BUFFER: usize = 128 << 10;
/// A response takes less than three minutes.
const RATE_MIN: BitsPerSecond = BitsPerSecond(100_000);
/// It takes less than `idle_timeout`, 60 s as installed: clients wait for so long before they ask.
const RATE_MIN_INSTALLED: BitsPerSecond = BitsPerSecond(300_000);
const LENS: [u64; 8] = [8 << 20; 8];
/// Beyond the time of one response, until sockets are as full as they will be.
const SETTLES: Duration = Duration::from_secs(8);
/// Files of a process that are not connections.
const FILES_BESIDE: u64 = 1200;
const WORKERS: u64 = 2;
/// Places beyond those that connections take, in square roots of their number. The kernel deals n
/// connections to two workers by chance: one gets n/2 with a deviation of sqrt(n)/2 (binomial). It
/// has half of all places, so that its own spare ones, 4 sqrt(n), are eight deviations.
const SPARE_ROOTS: u64 = 8;

/// Compares, prints the result on stdout.
pub(crate) fn run(args: &Args) -> Result<()> {
    rig::raise_file_limit()?;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let files_max = limit.maximum.unwrap_or(1 << 20);
    let room = fitting(files_max.saturating_sub(FILES_BESIDE));
    let connections = room.min(args.connections.into());
    ensure!(0 < connections, "{files_max} open files are too few: raise the limit (ulimit -Hn)");
    let least = if args.as_installed { RATE_MIN_INSTALLED } else { RATE_MIN };
    ensure!(least <= args.rate, "--rate {} is too low: give {least} or more", args.rate);
    let connections = usize::try_from(connections)?;
    info!(connections, files_max, "as many as files allow");
    let mut pairs = Vec::new();
    for pair in 0..args.pairs {
        let turn = |most| turn(args, connections, most, pair);
        let turns = rig::in_turns(pair, || turn(args.unsent_max), || turn(Bytes::ZERO))?;
        info!(?turns, "pair");
        pairs.push(turns);
    }
    let report = Report::new(args, (connections, files_max), pairs)?;
    for doubt in &report.doubts {
        warn!("{doubt}");
    }
    rig::say(args.json, &report, || report.table())
}

/// Places of an appliance that lets no connection go for want of one.
fn places(connections: u64) -> u64 {
    connections + SPARE_ROOTS * (connections.isqrt() + 1)
}

/// The most connections for which so many places are enough.
fn fitting(places_max: u64) -> u64 {
    (0..=places_max).rev().find(|connections| places(*connections) <= places_max).unwrap_or(0)
}

fn turn(args: &Args, connections: usize, most: Bytes, seed: u32) -> Result<Turn> {
    let dir = tempfile::Builder::new().prefix("nearcast-slow-").tempdir()?;
    let room = places(u64::try_from(connections)?);
    let patient = format!(
        "connections_max = {room}\ntransfers_max = {room}\nidle_timeout = \"30 min\"\n\
         progress_timeout = \"10 min\"\n"
    );
    let limits = if args.as_installed { "" } else { patient.as_str() };
    let serve = format!("workers = {WORKERS}\n{limits}unsent_max = \"{most}\"\n");
    let site = Site::start(dir.path(), &LENS, &serve)?;
    let plan = site.plan(connections, RANGE, u64::from(seed) + 1);
    std::thread::sleep(Duration::from_secs(1));
    let (kernel, user) = (kernel_memory()?, resident(site.appliance.pid())?.0);
    let mut load = Load::connect_with(&plan, site.truth()?, || dial(plan.address))?;
    if args.as_installed {
        load.may_lose();
    }
    // One response after the other, and at any moment some in each part of theirs.
    let response = gigabytes(RANGE.0) / gigabytes(args.rate.0 / 8);
    let response = Duration::from_secs_f64(response);
    load.ask_by_the_clock(response)?;
    load.drive_slowly(args.rate, Instant::now() + response + SETTLES)?;
    let window = Duration::from_secs(args.seconds.into());
    let account = Account::Processes(site.appliance.pid());
    let (server, client) = (account.used()?, cpu::of_this_thread()?);
    let (before, start) = (load.totals(), Instant::now());
    let late = load.drive_slowly(args.rate, start + window)?;
    let (after, seconds) = (load.totals(), start.elapsed().as_secs_f64());
    let client = (cpu::of_this_thread()? - client).as_secs_f64();
    let server = account.used()?.saturating_sub(server).as_secs_f64();
    let (kernel_now, user_now) = (kernel_memory()?, resident(site.appliance.pid())?.0);
    let queued = queued(site.appliance.secure.port())?;
    let gb = gigabytes(after.body - before.body);
    let each = |bytes: u64| per(bytes, connections);
    let wanted = gigabytes(args.rate.0 / 8) * count(connections) * seconds;
    let added = (kernel_now.0 + kernel_now.1).saturating_sub(kernel.0 + kernel.1);
    let ended = count(load.gone());
    let metric = |name| site.appliance.metric(name).with_context(|| format!("no metric {name}"));
    let (let_go_slow, timed_out) =
        (metric("connections_let_go_slow_total")?, metric("connections_timed_out_total")?);
    drop::<Load>(load);
    Ok(Turn {
        goodput: gb / wanted,
        gbps: gb * 8.0 / seconds,
        kernel_bytes_per_connection: each(added),
        sending_bytes_per_connection: each(queued.sending),
        receiving_bytes_per_connection: each(queued.receiving),
        user_bytes_per_connection: each(user_now.saturating_sub(user)),
        cpu_s_per_gb: server / gb,
        client_cpu_share: client / seconds,
        client_late_ms: late.as_secs_f64() * 1e3,
        tcp_memory_share: gigabytes(kernel_now.1) / gigabytes(tcp_pressure()?),
        let_go_slow,
        timed_out,
        ended,
    })
}

/// A connection whose own end holds little: by default the kernel would let it have more than a
/// whole response, since it comes so fast over loopback, and what waits would wait there.
fn dial(address: SocketAddr) -> Result<TcpStream> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER)?;
    rustix::net::connect(&socket, &address)?;
    Ok(TcpStream::from(socket))
}

/// Bytes in the sockets of all connections to a port of this machine.
struct Queued {
    /// At the port: not acknowledged.
    sending: u64,
    /// At the other ends: not read.
    receiving: u64,
}

/// By the kernel's table of connections in the namespace of this process.
fn queued(port: u16) -> Result<Queued> {
    let text = std::fs::read_to_string("/proc/net/tcp").context("no table of connections")?;
    sum_of(&text, port)
}

fn sum_of(table: &str, port: u16) -> Result<Queued> {
    let port = format!(":{port:04X}");
    let mut sum = Queued { sending: 0, receiving: 0 };
    for line in table.lines().skip(1) {
        let row: Vec<&str> = line.split_whitespace().collect();
        let [_, local, remote, state, queues, ..] = row[..] else { continue };
        let (sending, receiving) = queues.split_once(':').context("a row without queues")?;
        // Established; of a listener the queues are something else.
        if state != "01" {
            continue;
        }
        if local.ends_with(&port) {
            sum.sending += u64::from_str_radix(sending, 16)?;
        } else if remote.ends_with(&port) {
            sum.receiving += u64::from_str_radix(receiving, 16)?;
        }
    }
    Ok(sum)
}

/// A name and where its figure is.
type Row = (&'static str, fn(&Turn) -> f64);

/// Below 2^53: exact.
fn per(bytes: u64, connections: usize) -> f64 {
    gigabytes(bytes) * 1e9 / count(connections)
}

fn count(connections: usize) -> f64 {
    u32::try_from(connections).map_or(f64::NAN, f64::from)
}

/// The median of each figure over the pairs, of those with the bound (0) or without (1).
fn middle(pairs: &[[Turn; 2]], side: usize) -> Result<Turn> {
    let of = |value: fn(&Turn) -> f64| median_of(pairs, |pair| value(&pair[side]));
    Ok(Turn {
        goodput: of(|turn| turn.goodput)?,
        gbps: of(|turn| turn.gbps)?,
        kernel_bytes_per_connection: of(|turn| turn.kernel_bytes_per_connection)?,
        sending_bytes_per_connection: of(|turn| turn.sending_bytes_per_connection)?,
        receiving_bytes_per_connection: of(|turn| turn.receiving_bytes_per_connection)?,
        user_bytes_per_connection: of(|turn| turn.user_bytes_per_connection)?,
        cpu_s_per_gb: of(|turn| turn.cpu_s_per_gb)?,
        client_cpu_share: of(|turn| turn.client_cpu_share)?,
        client_late_ms: of(|turn| turn.client_late_ms)?,
        tcp_memory_share: of(|turn| turn.tcp_memory_share)?,
        let_go_slow: of(|turn| turn.let_go_slow)?,
        timed_out: of(|turn| turn.timed_out)?,
        ended: of(|turn| turn.ended)?,
    })
}

/// Why the memory that was measured is not what slow connections have, turn by turn.
fn doubts(pairs: &[[Turn; 2]]) -> Vec<String> {
    let mut doubts = Vec::new();
    for (number, pair) in (1..).zip(pairs) {
        for (side, turn) in ["with the bound", "without a bound"].into_iter().zip(pair) {
            let mut doubt = |why: String| {
                doubts.push(format!(
                    "pair {number}, {side}: {why}: this says nothing about memory per connection"
                ));
            };
            if turn.goodput < GOODPUT_MIN {
                doubt(format!("{:.0} % came of what can be read", turn.goodput * 100.0));
            }
            if LATE_MAX < turn.client_late_ms {
                doubt(format!("the client is {:.0} ms late", turn.client_late_ms));
            }
            if TCP_MEMORY_MAX <= turn.tcp_memory_share {
                let percent = turn.tcp_memory_share * 100.0;
                doubt(format!("TCP has {percent:.0} % of net.ipv4.tcp_mem (the second number)"));
            }
        }
    }
    doubts
}

impl Report {
    /// Of so many connections, and files that a process may have.
    fn new(args: &Args, of: (usize, u64), pairs: Vec<[Turn; 2]>) -> Result<Self> {
        let ratio = |[with, without]: &[Turn; 2]| {
            with.kernel_bytes_per_connection / without.kernel_bytes_per_connection
        };
        Ok(Self {
            processor: Processor::read()?,
            connections: of.0,
            files_max: of.1,
            rate: args.rate.to_string(),
            unsent_max: args.unsent_max.to_string(),
            as_installed: args.as_installed,
            doubts: doubts(&pairs),
            kernel_ratio: median_of(&pairs, ratio)?,
            bounded: middle(&pairs, 0)?,
            unbounded: middle(&pairs, 1)?,
            pairs,
        })
    }

    fn table(&self) -> String {
        let mut text = format!(
            "{} connections that read {} each\n{:<36}{:>12}{:>12}\n",
            self.connections, self.rate, "", self.unsent_max, "no bound"
        );
        let rows: [Row; 10] = [
            ("kernel KiB a connection, both ends", |turn| {
                turn.kernel_bytes_per_connection / 1024.0
            }),
            ("of these not acknowledged", |turn| turn.sending_bytes_per_connection / 1024.0),
            ("of these not read", |turn| turn.receiving_bytes_per_connection / 1024.0),
            ("appliance KiB a connection", |turn| turn.user_bytes_per_connection / 1024.0),
            ("came of what can be read", |turn| turn.goodput),
            ("CPU s/GB", |turn| turn.cpu_s_per_gb),
            ("client late, ms", |turn| turn.client_late_ms),
            ("let go since they were slow", |turn| turn.let_go_slow),
            ("timed out", |turn| turn.timed_out),
            ("ended, as the client saw", |turn| turn.ended),
        ];
        for (name, value) in rows {
            let [with, without] = [&self.bounded, &self.unbounded].map(value);
            text.push_str(&format!("{name:<36}{with:>12.3}{without:>12.3}\n"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_end_of_a_connection_has_its_queue() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when\n   \
             0: 0100007F:1F90 00000000:0000 0A 00000000:00000080 00:00000000 00000000\n   \
             1: 0100007F:1F90 0100007F:C001 01 00020000:00000003 01:00000014 00000000\n   \
             2: 0100007F:C001 0100007F:1F90 01 00000005:0000A000 00:00000000 00000000\n   \
             3: 0100007F:C001 0100007F:1F91 01 00000007:00000009 00:00000000 00000000\n";
        let Queued { sending, receiving } = sum_of(table, 8080).unwrap();
        assert_eq!((sending, receiving), (0x20000, 0xa000));
        assert!(sum_of("\n 0: 1 2 01 3 4\n", 1).is_err(), "no queues");
    }

    /// By Hoeffding's inequality (1963), for either of two workers.
    #[test]
    fn no_worker_is_dealt_more_connections_than_it_has_places() {
        for connections in [1, 2, 10, 100, 1_000, 20_000, 1_000_000] {
            let spare = places(connections).div_ceil(WORKERS) - connections / WORKERS;
            let [n, spare] = [connections, spare].map(|count| gigabytes(count) * 1e9);
            let chance = 2.0 * (-2.0 * spare * spare / n).exp();
            assert!(chance < 1e-12, "{connections} connections: {chance}");
        }
    }

    #[test]
    fn as_many_connections_are_made_as_fit_with_their_spare_places() {
        let check = |places_max, connections| assert_eq!(fitting(places_max), connections);
        check(0, 0);
        check(8, 0);
        check(16, 0);
        check(17, 1);
        check(1_256, 1_000);
        check(1_255, 999);
        check(21_136, 20_000);
    }

    /// Nothing is wrong with it.
    const SOUND: Turn = Turn {
        goodput: 0.95,
        gbps: 1.0,
        kernel_bytes_per_connection: 422e3,
        sending_bytes_per_connection: 147e3,
        receiving_bytes_per_connection: 100e3,
        user_bytes_per_connection: 264e3,
        cpu_s_per_gb: 0.5,
        client_cpu_share: 0.1,
        client_late_ms: 500.0,
        tcp_memory_share: 0.89,
        let_go_slow: 0.0,
        timed_out: 0.0,
        ended: 0.0,
    };

    #[test]
    fn a_turn_in_which_something_else_was_full_is_doubted() {
        fn check(turn: Turn, says: &[&str]) {
            let found = doubts(&[[SOUND, SOUND], [turn, SOUND], [SOUND, turn]]);
            assert_eq!(found.len(), 2 * says.len(), "{found:?}");
            for (at, side) in ["with the bound", "without a bound"].iter().enumerate() {
                for (doubt, why) in found[at * says.len()..].iter().zip(says) {
                    let wanted = format!("pair {}, {side}: {why}", at + 2);
                    assert!(doubt.starts_with(&wanted), "{doubt}, not {wanted}");
                    assert!(doubt.ends_with("nothing about memory per connection"), "{doubt}");
                }
            }
        }
        check(SOUND, &[]);
        check(Turn { goodput: 0.94, ..SOUND }, &["94 % came of what can be read"]);
        check(Turn { client_late_ms: 501.0, ..SOUND }, &["the client is 501 ms late"]);
        check(Turn { tcp_memory_share: 0.9, ..SOUND }, &["TCP has 90 % of net.ipv4.tcp_mem"]);
        let all = Turn { goodput: 0.5, client_late_ms: 9e3, tcp_memory_share: 1.2, ..SOUND };
        check(all, &["50 % came", "the client is 9000 ms late", "TCP has 120 %"]);
    }

    #[test]
    fn the_result_has_its_doubts_and_what_was_let_go() {
        let turn = Turn { goodput: 0.9, let_go_slow: 3.0, ended: 4.0, ..SOUND };
        let pairs = vec![[SOUND, turn]; 3];
        let args = Args {
            connections: 1000,
            rate: BitsPerSecond(1_000_000),
            unsent_max: Bytes::kib(256),
            pairs: 3,
            seconds: 10,
            as_installed: true,
            json: true,
        };
        let report = Report::new(&args, (1000, 20_000), pairs).unwrap();
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["doubts"].as_array().unwrap().len(), 3);
        assert_eq!(
            (&json["unbounded"]["let_go_slow"], &json["as_installed"]),
            (&3.0.into(), &true.into())
        );
        let text = report.table();
        let row = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        assert!(row("let go since they were slow").ends_with("3.000"), "{text}");
        assert!(row("ended, as the client saw").ends_with("4.000"), "{text}");
    }
}
