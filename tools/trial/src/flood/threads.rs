//! Threads that attack, at the lowest priority, and counts of what they do.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

/// Between two looks at what is due.
pub(super) const STEP: Duration = Duration::from_millis(5);
const COMPLETE_MAX: Duration = Duration::from_secs(60);

/// What the threads of an attack share: `N` counters.
#[derive(Debug)]
pub(super) struct Shared<const N: usize> {
    stop: AtomicBool,
    complete: AtomicBool,
    counters: [AtomicU64; N],
}

/// An attack on its way.
pub(super) struct Threads<const N: usize> {
    shared: Arc<Shared<N>>,
    threads: Vec<JoinHandle<Result<()>>>,
    counted_from: std::cell::Cell<Instant>,
}

impl<const N: usize> Shared<N> {
    pub(super) fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    pub(super) fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Relaxed)
    }

    /// As many have come as was asked for, though not all may have been kept.
    pub(super) fn complete(&self) {
        self.complete.store(true, Ordering::Relaxed);
    }

    pub(super) fn count(&self, counter: usize, more: u64) {
        self.counters[counter].fetch_add(more, Ordering::Relaxed);
    }
}

impl<const N: usize> Threads<N> {
    pub(super) fn new() -> Self {
        let counters = [const { AtomicU64::new(0) }; N];
        let shared = Shared { stop: false.into(), complete: false.into(), counters };
        let (shared, threads) = (Arc::new(shared), Vec::new());
        Self { shared, threads, counted_from: Instant::now().into() }
    }

    pub(super) fn start(
        &mut self,
        name: &str,
        work: impl FnOnce(&Shared<N>) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            // Of this thread alone, on Linux.
            rustix::process::nice(19).context("cannot give way")?;
            work(&shared)
        })?;
        self.threads.push(thread);
        Ok(())
    }

    pub(super) fn wait_until_complete(&self) -> Result<()> {
        let complete = || {
            let ended = self.threads.iter().any(JoinHandle::is_finished);
            ensure!(self.shared.is_complete() || !ended, "an attacker has ended");
            Ok(self.shared.is_complete())
        };
        rig::until("the attack to come about", COMPLETE_MAX, STEP, complete).map(drop)
    }

    /// What is offered counts from now.
    pub(super) fn count_anew(&self) {
        for counter in &self.shared.counters {
            counter.store(0, Ordering::Relaxed);
        }
        self.counted_from.set(Instant::now());
    }

    /// Of each counter, so many a second.
    pub(super) fn per_s(&self) -> [f64; N] {
        let seconds = self.counted_from.get().elapsed().as_secs_f64();
        self.shared.counters.each_ref().map(|counter| {
            let count = u32::try_from(counter.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
            f64::from(count) / seconds
        })
    }

    pub(super) fn stop(self) -> Result<()> {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().map_err(|_| anyhow!("an attacker panicked"))??;
        }
        Ok(())
    }
}

/// A socket that is being connected, which on loopback it is by then. It ends with a reset, so that
/// no port stays taken.
pub(super) fn connect(from: Option<[u8; 4]>, to: SocketAddr) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
    if let Some(from) = from {
        rustix::net::bind(&socket, &SocketAddr::from((from, 0)))?;
    }
    match rustix::net::connect(&socket, &to) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error),
    }
}

/// Work to be done at a rate, in steps.
pub(super) struct Rate {
    per_s: u32,
    began: Instant,
    done: u64,
}

impl Rate {
    pub(super) fn new(per_s: u32) -> Self {
        Self { per_s, began: Instant::now(), done: 0 }
    }

    /// How many are due now; what could not be done in time is not made up for.
    pub(super) fn due(&mut self) -> u64 {
        let millis = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let all = millis.saturating_mul(u64::from(self.per_s)) / 1000;
        let due = (all - self.done).min(u64::from(self.per_s) / 20 + 1);
        self.done = all;
        due
    }
}
