//! Playbacks by their keys, as long as they are heard of.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

use model::units::{Instant, Nanos};

/// A table of bounded length.
#[derive(Debug)]
pub(crate) struct Followed<P> {
    max: usize,
    silent_max: Nanos,
    /// With the time when each was heard of last. Invariant: at most `max`.
    playbacks: BTreeMap<u128, (Instant, P)>,
    /// Each playback once, by when it was last looked at.
    quiet: VecDeque<(Instant, u128)>,
}

impl<P> Followed<P> {
    /// Of so many at most; one that is silent for so long is over.
    pub(crate) fn new(max: usize, silent_max: Nanos) -> Self {
        assert!(0 < max, "there is room for one");
        Self { max, silent_max, playbacks: BTreeMap::new(), quiet: VecDeque::new() }
    }

    /// The playback, which is heard of now; one that `begin` makes if it is new. None if there is
    /// no room for a new one. O(log playbacks).
    pub(crate) fn hear(
        &mut self,
        now: Instant,
        key: u128,
        begin: impl FnOnce() -> P,
    ) -> Option<&mut P> {
        self.forget(now);
        let is_full = self.max <= self.playbacks.len();
        let (heard, playback) = match self.playbacks.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(_) if is_full => return None,
            Entry::Vacant(place) => {
                self.quiet.push_back((now, key));
                place.insert((now, begin()))
            }
        };
        *heard = now.max(*heard);
        assert!(self.quiet.len() <= self.max, "a newcomer found room");
        Some(playback)
    }

    /// True of one for which `hear` would begin nothing now.
    pub(crate) fn knows(&mut self, now: Instant, key: u128) -> bool {
        self.forget(now);
        self.playbacks.contains_key(&key)
    }

    /// Forgets who was not heard of for long. O(1) for each time that one was heard of.
    pub(crate) fn forget(&mut self, now: Instant) {
        while let Some(&(looked, key)) = self.quiet.front() {
            if now.since(looked) < self.silent_max {
                break;
            }
            self.quiet.pop_front();
            let heard = self.playbacks.get(&key).map_or(Instant(0), |(heard, _)| *heard);
            if now.since(heard) < self.silent_max {
                self.quiet.push_back((heard.max(looked), key));
            } else {
                self.playbacks.remove(&key);
            }
        }
        assert_eq!(self.quiet.len(), self.playbacks.len(), "each playback waits once");
    }

    pub(crate) fn len(&self) -> usize {
        self.playbacks.len()
    }
}
