//! What would make one turn of a worker long, beside viewers: its guard must not take that for a
//! hang, and end a healthy process.
//!
//! ```text
//! pipelined  connections that send as many requests as one receive takes, again and again
//! pieces     connections that send the beginning of a hello, and then the rest all at once
//! ```
//!
//! The certificate's key is the slowest that there is, and the appliance is started by its guard: a
//! process that it ends takes viewers' connections with it, and is counted.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rig::certificate::Key;
use rig::cpu;
use rig::site::{Seen, Site};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use serde::Serialize;
use tracing::info;

use super::attack::{Aim, DATA, HELLO_HELD, Held, hello, open};
use super::threads::{STEP, Shared, Threads, connect};
use super::{Args, LENS, demand, serve};

#[derive(Debug, Serialize)]
struct Report {
    /// The bound is 1.
    process_starts: f64,
    cases: Vec<Case>,
}

#[derive(Debug, Serialize)]
struct Case {
    name: &'static str,
    goodput_ratio: f64,
    without: Seen,
    with: Seen,
    /// Requests a second, or hellos.
    offered_per_s: f64,
}

type Attacker = fn(&Aim, u32, &Shared<1>) -> Result<()>;

const CASES: [(&str, Attacker); 2] = [("pipelined", pipelined), ("pieces", pieces)];

/// What a stranger may ask, too.
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost:a\r\n\r\n";
/// A receive takes two such records, which are sealed at once.
const RECORD_LEN: usize = 16 * 1024;
const RECORDS: usize = 2;
/// Of a hello, what comes before the rest.
const PIECE_LEN: usize = 5;
/// For the server to take in the first pieces.
const GATHERED_IN: Duration = Duration::from_millis(500);

/// Floods, prints the result on stdout; fails if a process was ended.
pub(super) fn run(args: &Args) -> Result<()> {
    rig::raise_file_limit()?;
    let dir = tempfile::Builder::new().prefix("nearcast-flood-").tempdir()?;
    let site = Site::start_guarded(dir.path(), &LENS, &serve(args), Key::Rsa4096)?;
    cpu::pin(args.client_cpu)?;
    let mut cases = Vec::new();
    for (name, attacker) in CASES {
        let case = case(args, &site, name, attacker);
        cases.push(case.with_context(|| format!("{name}: {}", site.appliance.last_words()))?);
    }
    let process_starts = site.appliance.metric("process_starts_total").context("no metric")?;
    let report = Report { process_starts, cases };
    rig::say(args.json, &report, || report.table())?;
    ensure!(process_starts < 2.0, "the guard ended a process: {}", site.appliance.last_words());
    Ok(())
}

fn case(args: &Args, site: &Site, name: &'static str, attacker: Attacker) -> Result<Case> {
    let (warm_up, window) = (Duration::from_secs(1), Duration::from_secs(args.seconds.into()));
    let mut viewers = site.viewers(demand(args, 1)?)?;
    let without = site.watch(&mut viewers, warm_up, window)?;
    drop(viewers);
    let (aim, crowd) = (Aim::new(site)?, args.crowd);
    let mut attack = Threads::new();
    attack.start(name, move |shared| attacker(&aim, crowd, shared))?;
    attack.wait_until_complete()?;
    let mut viewers = site.viewers(demand(args, 1)?)?;
    attack.count_anew();
    let with = site.watch(&mut viewers, warm_up, window)?;
    let [offered_per_s] = attack.per_s();
    drop(viewers);
    attack.stop()?;
    let goodput_ratio = (with.gb / with.seconds) / (without.gb / without.seconds);
    info!(name, ratio = format!("{goodput_ratio:.3}"), offered_per_s, "case");
    ensure!(0.0 < offered_per_s, "nobody attacked");
    ensure!(0.0 < with.gb, "no viewer was served");
    Ok(Case { name, goodput_ratio, without, with, offered_per_s })
}

/// A connection that sends requests without an end.
struct Pipe {
    held: Held,
    /// Sealed requests, sent as far as `at`.
    sealed: Vec<u8>,
    at: usize,
}

fn pipelined(aim: &Aim, crowd: u32, shared: &Shared<1>) -> Result<()> {
    let pipe = || Some(Pipe { held: open(aim, None)?, sealed: Vec::new(), at: 0 });
    let mut pipes: Vec<Pipe> = (0..crowd).filter_map(|_| pipe()).collect();
    shared.complete();
    let requests = REQUEST.repeat(RECORD_LEN / REQUEST.len());
    let mut answers = vec![0; 1 << 16];
    let mut sent = 0;
    while shared.goes_on() {
        for one in &mut pipes {
            match one.go_on(&requests, &mut answers) {
                Ok(len) => sent += len,
                // The server let it go: somebody else comes, if there is room.
                Err(_) => {
                    if let Some(anew) = pipe() {
                        *one = anew;
                    }
                }
            }
        }
        // Sealing adds a hundredth of their length.
        shared.count(0, u64::try_from(sent / REQUEST.len())?);
        sent %= REQUEST.len();
        std::thread::sleep(STEP);
    }
    Ok(())
}

impl Pipe {
    /// Drops answers, and sends the next requests as far as there is room; bytes sent.
    fn go_on(&mut self, requests: &[u8], answers: &mut [u8]) -> Result<usize, Errno> {
        let socket = &self.held.socket;
        while matches!(rustix::net::recv(socket, &mut *answers, RecvFlags::DONTWAIT), Ok((1.., _)))
        {
        }
        if self.at == self.sealed.len() {
            self.sealed.clear();
            self.at = 0;
            for _ in 0..RECORDS {
                self.held.keys.send.seal(DATA, requests, &mut self.sealed);
            }
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match rustix::net::send(&self.held.socket, &self.sealed[self.at..], flags) {
            Ok(len) => {
                self.at += len;
                Ok(len)
            }
            Err(Errno::AGAIN) => Ok(0),
            Err(error) => Err(error),
        }
    }
}

fn pieces(aim: &Aim, crowd: u32, shared: &Shared<1>) -> Result<()> {
    let hello = hello(aim)?;
    let (first, rest) = hello.split_at(PIECE_LEN);
    let send = |socket: &OwnedFd, part| rustix::net::send(socket, part, SendFlags::NOSIGNAL);
    shared.complete();
    while shared.goes_on() {
        let come = (0..crowd).filter_map(|_| connect(None, aim.address).ok());
        let held: Vec<OwnedFd> = come.filter(|socket| send(socket, first).is_ok()).collect();
        pause(shared, GATHERED_IN);
        let said = held.iter().filter(|socket| send(socket, rest).is_ok()).count();
        shared.count(0, u64::try_from(said)?);
        pause(shared, HELLO_HELD);
    }
    Ok(())
}

/// Waits, unless it is over before.
fn pause(shared: &Shared<1>, most: Duration) {
    let began = Instant::now();
    while shared.goes_on() && began.elapsed() < most {
        std::thread::sleep(STEP);
    }
}

impl Report {
    fn table(&self) -> String {
        let line = |case: &Case| {
            let (without, with) = (case.without.response_ms_p99, case.with.response_ms_p99);
            format!(
                "{:<10} goodput with / without {:.3}, p99 ms {without:.1} -> {with:.1}, {:.0} a \
                 second\n",
                case.name, case.goodput_ratio, case.offered_per_s
            )
        };
        let lines: String = self.cases.iter().map(line).collect();
        format!("{lines}processes started {}", self.process_starts)
    }
}
