//! Shows the guard that the workers live: `guard` has the drawing.

use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Signal, set_parent_process_death_signal};

use crate::counters::ServeCounters;

/// The guard looks as often.
const SHOWS_EVERY: Duration = Duration::from_millis(100);
/// A start that takes longer is told, again and again. It is not ended for that: the next process
/// would wait for the same drive.
const SLOW_START: Duration = Duration::from_secs(60);
/// Most workers.
pub(crate) const COUNTS_MAX: usize = 256;

/// Errors of a socket whose other end is closed.
const GONE: [io::ErrorKind; 4] = [
    io::ErrorKind::ConnectionRefused,
    io::ErrorKind::ConnectionReset,
    io::ErrorKind::NotConnected,
    io::ErrorKind::BrokenPipe,
];

/// Asks the kernel to end this process when the guard ends: it might hang, and keep its ports.
/// A process that becomes another user later has to ask again.
pub(crate) fn bind_to_guard() -> io::Result<()> {
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// Begins to show life on standard input, the guard's socket: of the process until `serving` is
/// raised, then of its workers. Raises `stop` if the guard is gone.
pub(crate) fn start(
    workers: Vec<Arc<ServeCounters>>,
    serving: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
) -> io::Result<()> {
    assert!(workers.len() <= COUNTS_MAX, "the configuration says how many there may be");
    let guard = UnixDatagram::from(io::stdin().as_fd().try_clone_to_owned()?);
    let show = move || {
        // Workers end while the process stops, for which it has a bound of its own.
        let mut stopping = 0;
        let (began, mut told) = (Instant::now(), SLOW_START);
        loop {
            let is_starting = !serving.load(Ordering::Relaxed);
            if is_starting && told <= began.elapsed() {
                tracing::warn!(
                    seconds = told.as_secs(),
                    "still starting: the drives or the state directory answer slowly or not at \
                     all. `dmesg` names a drive that does not answer"
                );
                told += SLOW_START;
            }
            stopping += u64::from(stop.load(Ordering::Relaxed));
            let shown = if serving.load(Ordering::Relaxed) { &workers[..] } else { &[] };
            let counts = shown.iter().flat_map(|of| (of.life() + stopping).to_le_bytes());
            match guard.send(&counts.collect::<Vec<u8>>()) {
                Err(error) if GONE.contains(&error.kind()) => {
                    tracing::error!(%error, "the guard has gone: this process stops");
                    stop.store(true, Ordering::Relaxed);
                    return;
                }
                // The guard is paused, or there is no memory: it hears of us the next time.
                Ok(_) | Err(_) => {}
            }
            std::thread::sleep(SHOWS_EVERY);
        }
    };
    std::thread::Builder::new().name("life".to_owned()).spawn(show).map(drop)
}
