//! Objects that wait for a master of the fill cluster, or in a unit of which one could not be had,
//! and for how long each has been lacked.
//!
//! ```text
//! first question ──> lacked since ──> published, or not wanted: forgotten
//!       │ control: "wait"
//!       v
//!   not before ──> the next plan has it again, of all that wait so many in a second
//! ```
//!
//! To wait for a master is no failure: the next wait is not longer because of this one, unless
//! control says so.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use model::id::ObjectId;
use model::units::{Bytes, Instant, Nanos};
use store::parcel::PartId;
use store::unit::UnitId;

use crate::claims::{POSTPONE_FIRST, Postponed};
use crate::{Claim, Holdings};

/// Objects of which it is known since when they are lacked, about 100 bytes each. Those beyond
/// count from when there is room.
const LACKED_MAX: usize = 65_536;
/// Of these, so many are looked at with each question, and forgotten if nobody lacks them.
const PRUNED: usize = 4;

/// Files that are asked about again in a second: of ten thousand that wait each comes every five
/// minutes, and a thousand appliances that wait are bearable for control.
const ASKED_MAX: u32 = 32;
pub(crate) const ASK_EVERY: Nanos = Nanos::seconds(1);

/// What is known of waiting.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    /// When each object was first asked for, and for how long fill had been closed by then.
    /// Invariant: at most [`LACKED_MAX`].
    lacked: BTreeMap<ObjectId, (Instant, Nanos)>,
    /// Where the next are looked at.
    pruned_to: Option<ObjectId>,
    /// For how long fill has been closed in all the times before, and since when it is now: by the
    /// clock that nobody sets.
    closed: Nanos,
    closed_since: Option<Instant>,
    /// Those of `Holdings::postponed` that wait with all of their file and were not given to a plan
    /// since.
    pub(crate) due: BTreeSet<(Instant, ObjectId)>,
    /// Invariant: those of `Holdings::postponed` that wait for a master.
    pub(crate) count: u64,
    /// Units of which a part is there, until they may be asked about again: no plan has them
    /// meanwhile, and their parts are of use all the same.
    pub(crate) units: BTreeMap<UnitId, Instant>,
    /// The second in which so many were asked about again, the last that was due then.
    asked_from: Instant,
    asked: u32,
    asked_last: Option<Instant>,
}

impl Waits {
    pub(crate) fn opened(&mut self, now: Instant) {
        self.closed = self.closed_until(now);
        self.closed_since = None;
    }

    pub(crate) fn closed(&mut self, now: Instant) {
        self.closed_since.get_or_insert(now);
    }

    fn closed_until(&self, now: Instant) -> Nanos {
        let lasts = self.closed_since.map_or(0, |since| now.since(since).0);
        Nanos(self.closed.0.saturating_add(lasts))
    }

    pub(crate) fn forget(&mut self, object: &ObjectId) {
        self.lacked.remove(object);
    }

    /// Whether what is due at this time may be asked about. What is due at one time is of one
    /// file, and stays together.
    pub(crate) fn may_ask(&mut self, now: Instant, due: Instant) -> bool {
        if ASK_EVERY <= now.since(self.asked_from) {
            (self.asked_from, self.asked) = (now, 0);
        }
        if self.asked_last != Some(due) {
            if ASKED_MAX <= self.asked {
                return false;
            }
            (self.asked_last, self.asked) = (Some(due), self.asked + 1);
            self.units.retain(|_, until| *until != due);
        }
        true
    }

    /// True if some of a unit waits: its part stays. All of it may have come another way.
    pub(crate) fn keeps(&self, unit: &UnitId) -> bool {
        let waits_until = |until: &Instant| {
            let mut then = self.due.range((*until, ObjectId([0; 32]))..);
            then.next().is_some_and(|(due, _)| due == until)
        };
        self.units.get(unit).is_some_and(waits_until)
    }

    /// With a new manifest everything is asked about anew. Those that waited are for whoever has
    /// the time to free them.
    pub(crate) fn begin_anew(&mut self) -> BTreeSet<(Instant, ObjectId)> {
        self.count = 0;
        self.units.clear();
        std::mem::take(&mut self.due)
    }
}

impl Holdings {
    /// For how long an object has been lacked while it might be fetched: while fill was open, or
    /// all the time if it is urgent. Since this was first asked.
    pub fn lacked_for(&mut self, now: Instant, object: ObjectId) -> Nanos {
        self.prune();
        let closed = self.waits.closed_until(now);
        let lacked = &mut self.waits.lacked;
        let since = match lacked.get(&object) {
            Some(since) => *since,
            None if lacked.len() < LACKED_MAX => *lacked.entry(object).or_insert((now, closed)),
            None => return Nanos(0),
        };
        assert!(since.1 <= closed, "closed time only grows");
        let without = if self.is_urgent(&object) { Nanos(0) } else { Nanos(closed.0 - since.1.0) };
        Nanos(now.since(since.0).0.saturating_sub(without.0))
    }

    /// The holder of this claim is done: what of it is not held waits for a master, for so long.
    pub fn wait_for_master(&mut self, now: Instant, claim: &Claim, span: Nanos) {
        self.wait(now + span, claim, None);
    }

    /// The holder of a claim of several is done, in the middle of this object, which could not be
    /// had. All of them wait as for a master, so that the part with some of it stays.
    pub fn wait_within(&mut self, now: Instant, claim: &Claim, object: ObjectId) {
        assert!(!self.was_given_up(&object), "others are not kept back twice for its sake");
        self.wait(now + POSTPONE_FIRST, claim, Some(object));
    }

    fn wait(&mut self, until: Instant, claim: &Claim, failed: Option<ObjectId>) {
        let part = claim.parcel().part();
        if let PartId::Unit(unit) = part {
            self.release_unit(unit);
            if self.parts.contains_key(&part) {
                self.waits.units.insert(unit, until);
            }
        }
        for object in claim.fetch.iter().map(|fetch| fetch.object) {
            if self.index.locate(&object).is_none() {
                let times = self.postponed.get(&object).map_or(0, |postponed| postponed.times);
                let times = times + u32::from(failed == Some(object));
                self.no_longer_postponed(object);
                let postponed =
                    Postponed { until, times, waits: true, for_master: failed.is_none() };
                self.postponed.insert(object, postponed);
                self.waits.due.insert((until, object));
                self.waits.count += u64::from(failed.is_none());
            }
            self.release(object);
        }
        self.news = true; // Whoever plans has to look for how long it may sleep.
    }

    /// It could not be had at least once, since somebody lacks it.
    pub fn was_given_up(&self, object: &ObjectId) -> bool {
        self.postponed.get(object).is_some_and(|postponed| 0 < postponed.times)
    }

    /// Objects that wait for a master.
    pub fn objects_waiting(&self) -> u64 {
        assert!(self.waits.count <= Bytes::of(self.postponed.len()).0, "each waits once");
        self.waits.count
    }

    fn prune(&mut self) {
        let after = self.waits.pruned_to.map_or(Bound::Unbounded, Bound::Excluded);
        let some = self.waits.lacked.range((after, Bound::Unbounded)).take(PRUNED);
        let some: Vec<ObjectId> = some.map(|(object, _)| *object).collect();
        self.waits.pruned_to = some.last().copied();
        for object in some {
            if !self.is_wanted(&object) || self.index.locate(&object).is_some() {
                self.waits.forget(&object);
            }
        }
    }
}
