//! How a worker hands over what it wrote down, without waiting and without allocating.
//!
//! ```text
//! worker ── list ──> channel ──> thread ──┐
//!    ^                                    |
//!    └──────── the memory back ───────────┘
//! ```
//!
//! While its memory is not back, a worker goes on with what it has.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use model::units::{Instant, Nanos};

/// A worker's end: where lists go, and from where their memory comes back.
pub struct HandOver<T> {
    full: SyncSender<(usize, Vec<T>)>,
    worker: usize,
    spare: Receiver<Vec<T>>,
    at_hand: Option<Vec<T>>,
    handed_over_at: Instant,
    due: Due,
}

/// When a list is handed over.
#[derive(Clone, Copy, Debug)]
pub struct Due {
    /// When it is so long...
    pub len: usize,
    /// ... or after this time, if it is not empty.
    pub every: Nanos,
}

/// The other end of all workers.
pub struct Lists<T> {
    pub lists: Receiver<(usize, Vec<T>)>,
    backs: Vec<SyncSender<Vec<T>>>,
}

/// One end for each worker, in order, and the other one. Of a list of `len_max` the memory is there
/// from the beginning.
pub fn ends<T>(workers: usize, due: Due, len_max: usize) -> (Vec<HandOver<T>>, Lists<T>) {
    assert!(due.len <= len_max, "a list is handed over before it is full");
    let (full, lists) = sync_channel(workers);
    let (mut backs, mut ends) = (Vec::new(), Vec::new());
    for worker in 0..workers {
        let (back, spare) = sync_channel(1);
        backs.push(back);
        let (full, at_hand) = (full.clone(), Some(Vec::with_capacity(len_max)));
        ends.push(HandOver { full, worker, spare, at_hand, handed_over_at: Instant(0), due });
    }
    (ends, Lists { lists, backs })
}

impl<T> HandOver<T> {
    /// True if a list of `len` should be handed over now.
    pub fn is_due(&self, len: usize, now: Instant) -> bool {
        let late = self.due.every <= now.since(self.handed_over_at);
        0 < len && (self.due.len <= len || late)
    }

    /// Memory to give for the list; none while the thread still has all of it.
    pub fn memory(&mut self, now: Instant) -> Option<Vec<T>> {
        self.handed_over_at = now;
        self.at_hand.take().or_else(|| self.spare.try_recv().ok())
    }

    /// Hands a list over. Does not wait: as much memory as the channel has room for is on its way.
    pub fn hand_over(&mut self, list: Vec<T>) {
        let _ = self.full.try_send((self.worker, list));
    }
}

impl<T> Lists<T> {
    /// Gives a list's memory back to its worker.
    pub fn give_back(&self, worker: usize, memory: Vec<T>) {
        let _ = self.backs[worker].try_send(memory);
    }
}
