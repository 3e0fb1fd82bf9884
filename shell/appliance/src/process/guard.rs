//! `nearcast-appliance guard`: runs `serve` as a process of its own, ends it when a worker hangs
//! (`watchdog`), and starts the next.
//!
//! ```text
//! guard ── starts, signals, kills ──> serve
//!   ^                                   │ its standard input is a socket: ten times a second,
//!   └── a count of each worker <────────┘ by `life`
//! ```
//!
//! When it is killed, the kernel closes the connections of a process that hung, and their players
//! go on elsewhere or here at once, instead of waiting for their own timeouts of ten seconds and
//! more. The guard reads no configuration, opens no port and has one thread. If it ends, the kernel
//! ends `serve`.

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use model::machine::Machine as _;
use model::units::{Instant, Nanos};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use watchdog::{Action, Config, Event, Watchdog};

use crate::clock::Clock;
use crate::process::life::COUNTS_MAX;

/// How long a process that was asked to stop may take. Its own bound, [serve] stop_within, is
/// shorter, unless it hangs.
const STOP_MAX: Duration = Duration::from_secs(90);

/// How late a signal may be seen.
const ROUND_MAX: Duration = Duration::from_secs(1);
/// Messages taken at once: a process that somebody took over may send without end.
const SHOWN_MAX: usize = 16;

/// Runs `serve`, again and again, until it is asked to stop. `command` gets the number of the start
/// and the reason why the last process ended.
pub fn run(command: impl Fn(u64, Option<&str>) -> Command) -> anyhow::Result<ExitCode> {
    let signals = Signals::catch()?;
    let clock = Clock::start();
    let now = || clock.now().instant;
    let mut dog = Watchdog::new(Config::APPLIANCE, now());
    let mut serving: Option<Serving> = None;
    // Why the process was killed that has not ended yet, and why none has served since it did.
    let (mut killed, mut cause): (Option<String>, Option<String>) = (None, None);
    loop {
        if let Some(signal) = signals.stop() {
            return Ok(serving.map_or(ExitCode::SUCCESS, |serving| serving.stop(signal)));
        }
        if let Some(serving) = &mut serving {
            // A process that has not begun has no answer to them: they would end it.
            if dog.is_watched() {
                signals.pass_on(serving);
            }
            serving.counts(|counts| dog.handle(now(), Event::Shown(counts)));
            if dog.is_watched() {
                cause = None;
            }
        }
        if let Some(status) = serving.as_mut().map(Serving::ended).transpose()?.flatten() {
            // It has said why: a mistake of the configuration is not mended by another start.
            let is_mistake = dog.starts() == 1 && !dog.is_watched() && status.code().is_some();
            if status.success() || is_mistake {
                return Ok(code(status));
            }
            let why = killed.take().unwrap_or_else(|| format!("it ended by itself ({status})"));
            tracing::error!(reason = why, "the process that serves has ended; the next is started");
            cause.get_or_insert(why);
            serving = None;
            dog.handle(now(), Event::Ended);
        }
        if dog.deadline().is_some_and(|due| due <= now()) {
            dog.handle(now(), Event::Tick);
        }
        while let Some(action) = dog.poll() {
            match (action, &mut serving) {
                (Action::Start, _) => {
                    signals.forget();
                    match Serving::start(command(dog.starts(), cause.as_deref())) {
                        Ok(started) => serving = Some(started),
                        Err(error) if dog.starts() == 1 => return Err(error),
                        Err(error) => {
                            tracing::error!("{error:#}");
                            dog.handle(now(), Event::Ended);
                        }
                    }
                }
                (Action::Kill(why), Some(serving)) => {
                    tracing::error!(%why, "the process that serves hangs and is ended");
                    killed = Some(why.to_string());
                    serving.signal(Signal::KILL);
                }
                (Action::Stuck, Some(_)) => tracing::error!(
                    "the process that serves does not end though it was killed: it waits in the \
                     kernel, most likely for a drive. Take the drive out, or restart the machine"
                ),
                (Action::Kill(_) | Action::Stuck, None) => {}
            }
        }
        wait(serving.as_ref(), dog.deadline(), now())?;
    }
}

/// Waits for counts, for the end of the process, for a signal, or until then.
fn wait(serving: Option<&Serving>, until: Option<Instant>, now: Instant) -> anyhow::Result<()> {
    let left = Duration::from(until.map_or(Nanos(0), |until| until.since(now)));
    // A signal that came a moment ago interrupts nothing: it is seen at the next round.
    let left = Timespec::try_from(left.clamp(Duration::from_millis(1), ROUND_MAX))?;
    let polled = match serving {
        Some(serving) => {
            let life = PollFd::new(&serving.life, PollFlags::IN);
            let end = PollFd::new(&serving.pidfd, PollFlags::IN);
            poll(&mut [life, end], Some(&left))
        }
        None => poll(&mut [], Some(&left)),
    };
    match polled {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error).context("cannot wait for the process that serves"),
    }
}

struct Serving {
    child: Child,
    pidfd: OwnedFd,
    life: UnixDatagram,
}

impl Serving {
    fn start(mut command: Command) -> anyhow::Result<Self> {
        let (life, theirs) = UnixDatagram::pair()
            .and_then(|(ours, theirs)| {
                ours.set_nonblocking(true)?;
                theirs.set_nonblocking(true)?;
                Ok((ours, theirs))
            })
            .context("cannot make the socket to the process that serves")?;
        let child = command.stdin(OwnedFd::from(theirs)).spawn();
        let mut child = child.context("cannot start the process that serves")?;
        match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
            Ok(pidfd) => Ok(Self { child, pidfd, life }),
            Err(error) => {
                let _ = child.kill().and_then(|()| child.wait());
                Err(error).context("cannot watch the process that serves")
            }
        }
    }

    /// The counts that it has shown since, in order.
    fn counts(&self, mut take: impl FnMut(&[u64])) {
        let mut bytes = [0; 8 * COUNTS_MAX];
        for _ in 0..SHOWN_MAX {
            let Ok(len) = self.life.recv(&mut bytes) else { return };
            let counts = bytes[..len].as_chunks::<8>().0.iter();
            take(&counts.map(|count| u64::from_le_bytes(*count)).collect::<Vec<_>>());
        }
    }

    fn ended(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        self.child.try_wait().context("cannot wait for the process that serves")
    }

    fn signal(&self, signal: Signal) {
        if let Err(error) = pidfd_send_signal(self.pidfd.as_fd(), signal) {
            tracing::warn!(?signal, %error, "the process that serves takes no signal");
        }
    }

    /// Asks it to stop, and waits for that. It shows no life meanwhile: its workers end.
    fn stop(mut self, signal: Signal) -> ExitCode {
        self.signal(signal);
        let asked = std::time::Instant::now();
        let round = Timespec::try_from(ROUND_MAX).expect("a second");
        // Other signals interrupt a round.
        while poll(&mut [PollFd::new(&self.pidfd, PollFlags::IN)], Some(&round)) != Ok(1) {
            if STOP_MAX < asked.elapsed() {
                tracing::error!("the process that serves does not stop and is killed");
                self.signal(Signal::KILL);
                break;
            }
        }
        self.child.wait().map_or(ExitCode::FAILURE, code)
    }
}

/// The guard ends as the process did.
fn code(status: ExitStatus) -> ExitCode {
    let signal = || status.signal().map_or(1, |signal| 128 + signal);
    ExitCode::from(u8::try_from(status.code().unwrap_or_else(signal)).unwrap_or(1))
}

struct Signals {
    term: Arc<AtomicBool>,
    int: Arc<AtomicBool>,
    /// Those that `serve` has an answer to.
    others: [(Signal, Arc<AtomicBool>); 2],
}

impl Signals {
    fn catch() -> anyhow::Result<Self> {
        let flag = |signal| -> anyhow::Result<Arc<AtomicBool>> {
            let flag = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register(signal, Arc::clone(&flag))
                .context("cannot catch signals")?;
            Ok(flag)
        };
        let others = [(Signal::HUP, flag(SIGHUP)?), (Signal::USR1, flag(SIGUSR1)?)];
        Ok(Self { term: flag(SIGTERM)?, int: flag(SIGINT)?, others })
    }

    /// The signal that asks to stop, if one came.
    fn stop(&self) -> Option<Signal> {
        let came = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        if came(&self.term) { Some(Signal::TERM) } else { came(&self.int).then_some(Signal::INT) }
    }

    /// Drops those that were meant for the process before.
    fn forget(&self) {
        self.others.iter().for_each(|(_, came)| came.store(false, Ordering::Relaxed));
    }

    fn pass_on(&self, serving: &Serving) {
        for (signal, came) in &self.others {
            if came.swap(false, Ordering::Relaxed) {
                serving.signal(*signal);
            }
        }
    }
}
