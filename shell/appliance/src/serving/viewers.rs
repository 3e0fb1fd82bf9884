//! Follows playbacks: views of all workers, in the order of their ends, and sums for control.
//!
//! ```text
//! workers ── View ──> thread "viewers": qoe::Viewers ── rows ──> Book ── a batch each ──> links
//!                                  └──> Demand: what was sent of each file
//! ```
//!
//! Who watches is forgotten here. A playback's key is a hash of its session under a secret that is
//! drawn at the start and is in no file; no word of the player's is in it, so that a token is one
//! playback. Of its client's address the network stays, which is one of control's prefixes.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::thread::JoinHandle;
use std::time::Duration;

use model::units::{Instant, Nanos};
use qoe::{Viewer, Viewers};
use wire::v1::viewers::PLAYBACKS_MAX;
use worker::View;

use crate::book::{Book, ROWS_MAX, Status};
use crate::clock::Clock;
use crate::demand::Demand;
use crate::serving::hand_over::{self, Due, HandOver, Lists};

/// A worker's end.
pub type Views = HandOver<View>;

/// Views of one worker that wait, of up to 352 bytes each. More come in a quarter of a second only
/// if objects are tiny; they are lost, and counted.
pub const VIEWS_MAX: usize = 1024;
/// A view is handed over in a quarter of a second.
const DUE: Due = Due { len: VIEWS_MAX / 4, every: Nanos::millis(250) };
/// How often views are looked at that have come.
const ROUND: Duration = Duration::from_millis(250);
/// A view waits so long for those of other workers that ended before it.
const SETTLES: Nanos = Nanos::millis(750);
/// 30 MB. A playback that is silent for two minutes is over: players ask each few seconds.
const CONFIG: qoe::Config = qoe::Config {
    playbacks_max: PLAYBACKS_MAX,
    silent_max: Nanos::seconds(120),
    rows_max: ROWS_MAX,
};

/// Starts the thread. One end for each of `workers`, in order; the thread calls `begin` first and
/// ends when they are gone.
pub fn start(
    workers: usize,
    (book, demand): (Arc<Book>, Arc<Demand>),
    begin: fn(),
) -> io::Result<(Vec<Views>, JoinHandle<()>)> {
    let mut secret = [0; 32];
    aws_lc_rs::rand::fill(&mut secret).expect("the kernel gives random bytes after its start");
    let (ends, lists) = hand_over::ends(workers, DUE, VIEWS_MAX);
    let follow = move || {
        begin();
        let clock = Clock::start();
        let mut follower = Follower {
            secret,
            viewers: Viewers::new(CONFIG, "here"),
            held: Vec::new(),
            book,
            demand,
        };
        while follower.round(&lists, || clock.now().instant) {}
    };
    let thread = std::thread::Builder::new().name("viewers".to_owned()).spawn(follow)?;
    Ok((ends, thread))
}

struct Follower {
    secret: [u8; 32],
    viewers: Viewers,
    /// What has come and is not followed yet. Bound: what workers tell in `SETTLES`.
    held: Vec<View>,
    book: Arc<Book>,
    demand: Arc<Demand>,
}

impl Follower {
    /// Takes in what comes within a round. False once nobody is left who could tell something.
    fn round(&mut self, lists: &Lists<View>, now: impl Fn() -> Instant) -> bool {
        let until = now() + Nanos::from(ROUND);
        let mut last = false;
        loop {
            match lists.lists.recv_timeout(until.since(now()).into()) {
                Ok((worker, mut list)) => {
                    self.held.append(&mut list);
                    lists.give_back(worker, list);
                }
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => {
                    last = true;
                    break;
                }
            }
        }
        let settled =
            if last { Instant(u64::MAX) } else { Instant(now().0.saturating_sub(SETTLES.0)) };
        self.follow(settled);
        !last
    }

    /// Follows what ended before this.
    fn follow(&mut self, settled: Instant) {
        self.held.sort_by_key(|view| view.response.ended);
        let count = self.held.partition_point(|view| view.response.ended <= settled);
        let networks = self.book.networks();
        let mut counting = self.demand.counting();
        for view in self.held.drain(..count) {
            let key = key(&self.secret, &view);
            counting.note(view.version(), view.object, short(key), view.response.sent);
            let network = if self.viewers.knows(view.response.ended, key) {
                ""
            } else {
                networks.of(view.client)
            };
            let player = view.player.name(view.response.hints.format);
            let viewer = Viewer { key, asset: view.version(), network, player };
            self.viewers.take(&viewer, &view.response);
        }
        drop(counting);
        let status =
            Status { playbacks: self.viewers.followed(), unfollowed: self.viewers.unfollowed() };
        self.book.add(&self.viewers.take_rows(), status);
    }
}

/// A playback in 64 bits: enough to tell five of them apart.
fn short(key: u128) -> u64 {
    u64::try_from(key >> 64).expect("64 bits are left")
}

/// Names a playback as long as this process lives, and leads back to nobody.
fn key(secret: &[u8; 32], view: &View) -> u128 {
    let hash = blake3::keyed_hash(secret, view.session().as_str().as_bytes());
    u128::from_le_bytes(*hash.as_bytes().first_chunk().expect("BLAKE3 has 32 bytes"))
}
