//! Players that go on whatever happens: each asks for one file after the other, and compares every
//! byte that comes, also of answers that break off.

use std::io::Read;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Result, ensure};
use model::units::Bytes;
use rig::client::Dice;
use rig::stage::Object;
use serde::Serialize;

/// What players may ask for.
#[derive(Clone, Debug)]
pub(super) struct Shelf {
    /// URLs and what must come.
    pub(super) files: Arc<Mutex<Vec<(String, Object)>>>,
}

/// What came to all of them together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Seen {
    /// Files that came in whole, every byte right.
    pub(super) files_right: u64,
    /// Bytes of these and of answers that broke off.
    pub(super) bytes_right: u64,
    pub(super) bytes_wrong: u64,
    /// Answers without a film in them: the player turns to its next pathway.
    pub(super) refused: u64,
    /// Answers that broke off.
    pub(super) broken: u64,
}

#[derive(Debug, Default)]
struct Counts(Mutex<Seen>);

/// Players that run until they are dropped.
pub(super) struct Players {
    counts: Arc<Counts>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

const ANSWER_MAX: Duration = Duration::from_secs(20);
/// Between two files: the emulated machine needs its time for other things too.
const PAUSE: Duration = Duration::from_millis(100);

impl Shelf {
    fn pick(&self, dice: &mut Dice) -> Option<(String, Object)> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let index = Bytes(dice.throw() % Bytes::of(files.len()).0.max(1)).as_usize();
        files.get(index).cloned()
    }
}

impl Counts {
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Players {
    pub(super) fn start(count: u64, agent: &ureq::Agent, shelf: &Shelf) -> Self {
        let (counts, stop) = (Arc::<Counts>::default(), Arc::<AtomicBool>::default());
        let play = |number: u64| {
            let (agent, shelf) = (agent.clone(), shelf.clone());
            let (counts, stop) = (Arc::clone(&counts), Arc::clone(&stop));
            std::thread::spawn(move || {
                let mut dice = Dice::new(number + 1);
                while !stop.load(Ordering::Relaxed) {
                    if let Some((url, object)) = shelf.pick(&mut dice) {
                        watch(&agent, &url, &object, &counts);
                    }
                    std::thread::sleep(PAUSE);
                }
            })
        };
        let threads = (0..count).map(play).collect();
        Self { counts, stop, threads }
    }

    /// Asks once, beside them, and fails unless all of it comes and is right. What is wrong counts
    /// with theirs.
    pub(super) fn check(&self, agent: &ureq::Agent, url: &str, object: &Object) -> Result<()> {
        let counts = Counts::default();
        let right = watch(agent, url, object, &counts);
        self.counts.lock().bytes_wrong += counts.lock().bytes_wrong;
        ensure!(right, "{} does not come as it is: {counts:?}", object.path);
        Ok(())
    }

    /// What came so far.
    pub(super) fn seen(&self) -> Seen {
        *self.counts.lock()
    }
}

impl Drop for Players {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Asks once. True if all of it came and every byte was right.
fn watch(agent: &ureq::Agent, url: &str, object: &Object, counts: &Counts) -> bool {
    let Ok(mut answer) = agent.get(url).call() else {
        counts.lock().broken += 1;
        return false;
    };
    let status = answer.status().as_u16();
    if status != 200 {
        tracing::info!(url, status, "refused");
        counts.lock().refused += 1;
        return false;
    }
    compare(answer.body_mut().with_config().limit(u64::MAX).reader(), &object.bytes, counts)
}

/// Reads to the end. True if it came whole and every byte was right.
fn compare(mut got: impl Read, wanted: &[u8], counts: &Counts) -> bool {
    let (mut at, mut all_wrong, mut piece) = (0, 0, vec![0; 64 * 1024]);
    loop {
        match got.read(&mut piece) {
            Ok(0) => break,
            Ok(len) => {
                let wrong = wrong_bytes(&piece[..len], wanted.get(at..).unwrap_or_default());
                let mut seen = counts.lock();
                seen.bytes_wrong += wrong;
                seen.bytes_right += Bytes::of(len).0 - wrong;
                all_wrong += wrong;
                at += len;
            }
            Err(_) => {
                counts.lock().broken += 1;
                return false;
            }
        }
    }
    let right = at == wanted.len() && all_wrong == 0;
    if right {
        counts.lock().files_right += 1;
    } else if at < wanted.len() {
        counts.lock().broken += 1;
    }
    right
}

/// How many of these bytes are not those that should begin here; too many are wrong.
fn wrong_bytes(got: &[u8], wanted: &[u8]) -> u64 {
    let differ = got.iter().zip(wanted).filter(|(a, b)| a != b).count();
    Bytes::of(differ + got.len().saturating_sub(wanted.len())).0
}

/// A client that trusts these certificates.
pub(super) fn agent(trust: &std::path::Path) -> Result<ureq::Agent> {
    // There is no sibling to be sent to.
    Ok(rig::url::trusting(trust)?.max_redirects(0).timeout_global(Some(ANSWER_MAX)).build().into())
}

/// Where the guest serves.
pub(super) fn url(at: SocketAddr, base: &str, path: &str) -> String {
    format!("https://{at}{base}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_counts_and_so_do_those_beyond_the_end() {
        assert_eq!(wrong_bytes(b"film", b"film and more"), 0);
        assert_eq!(wrong_bytes(b"fill", b"film"), 1);
        assert_eq!(wrong_bytes(b"films", b"film"), 1);
        assert_eq!(wrong_bytes(b"ab", b""), 2);
    }

    #[test]
    fn a_file_of_the_right_length_with_a_wrong_byte_is_not_right() {
        fn film() -> Vec<u8> {
            (0..=255).cycle().take(200_000).collect()
        }
        fn check(got: &[u8], [right, wrong, broken]: [u64; 3]) {
            let counts = Counts::default();
            assert_eq!(compare(got, &film(), &counts), right == 1);
            let seen = counts.lock();
            assert_eq!([seen.files_right, seen.bytes_wrong, seen.broken], [right, wrong, broken]);
        }
        let film = film();
        check(&film, [1, 0, 0]);
        check(&film[..150_000], [0, 0, 1]);
        let mut flipped = film.clone();
        flipped[100_000] ^= 1;
        check(&flipped, [0, 1, 0]);
        check(&flipped[..150_000], [0, 1, 1]);
        check(&[&film[..], b"more"].concat(), [0, 4, 0]);
    }
}
