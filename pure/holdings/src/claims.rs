//! Claims: at most one works on an object or a unit, and one that could not be had waits.

use std::collections::BTreeSet;

use fill::plan::Fetch;
use model::drives::DriveIndex;
use model::extent::FileName;
use model::id::ObjectId;
use model::units::{Instant, Nanos};
use store::parcel::{Parcel, PartId};
use store::unit::UnitId;

use crate::Holdings;
use crate::parts::Part;

/// Objects to fetch into one file, claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Objects and their sources, in this order. Invariant: not empty, no object twice.
    pub fetch: Vec<Fetch>,
    /// A part of that file that is there already.
    pub part: Option<Part>,
}

impl Claim {
    /// The file that it is to be.
    pub fn parcel(&self) -> Parcel {
        let objects: Vec<_> = self.fetch.iter().map(|fetch| (fetch.object, fetch.len)).collect();
        Parcel::new(&objects).expect("a claim is not empty, and a plan is no larger than a unit")
    }
}

/// The next step of an audit that found an object in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileStanding {
    /// The index has it here.
    Indexed,
    /// Somebody is working on it.
    Busy,
    /// The index has the object on another drive, or in another file. Claimed for the caller, who
    /// looks whether it is good there before this one goes.
    Spare,
    /// The same, and that drive does not answer: this copy may be the one that is left.
    Unsure,
    /// The index does not have the object, the manifest wants it. Claimed for the caller.
    Missing,
    /// Neither has it. Claimed for the caller.
    Unwanted,
    /// Not in the index, and no manifest is known yet.
    Unknown,
}

/// First wait before an object that was given up is tried again; doubles with each time.
pub(crate) const POSTPONE_FIRST: Nanos = Nanos::seconds(2);
/// Longest such wait.
const POSTPONE_MAX: Nanos = Nanos::seconds(120);

/// An object that was given up, or waits for a master.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Postponed {
    pub(crate) until: Instant,
    /// How often it could not be had.
    pub(crate) times: u32,
    /// No plan was made since.
    pub(crate) waits: bool,
    /// It could be had, but a master is to fetch it first.
    pub(crate) for_master: bool,
}

impl Holdings {
    /// Objects that somebody works on.
    pub fn busy(&self) -> &BTreeSet<ObjectId> {
        &self.busy
    }

    /// Lets the next plan have objects that waited until now for another try; false if there are
    /// more of them than `most`. If too many ask for a master in this second, the rest of these is
    /// for later plans.
    pub(crate) fn try_again(&mut self, now: Instant, most: usize) -> bool {
        for _ in 0..most {
            let is_due = |of: &&(Instant, ObjectId)| of.0 <= now;
            let failed = self.due.first().filter(is_due).copied();
            let waiting = || self.waits.due.first().filter(is_due).copied();
            let Some((until, object)) = failed.or_else(waiting) else { return true };
            if failed.is_none() && !self.waits.may_ask(now, until) {
                return true;
            }
            self.due.remove(&(until, object));
            self.waits.due.remove(&(until, object));
            let postponed = self.postponed.get_mut(&object).expect("whoever is due was postponed");
            assert!(postponed.until == until, "an object is due once");
            postponed.waits = false;
            self.refresh(object, None);
        }
        false
    }

    /// The next objects to fetch into one file, claimed. None while fill may not fetch; what is
    /// urgent stands first in the queue.
    pub fn next_fetch(&mut self) -> Option<Claim> {
        while self.queue.front().is_some_and(|fetch| self.may_come(fetch)) {
            let Some(mut fetch) = self.queue.pop_front() else { break };
            assert!(!fetch.is_empty(), "a file has an object");
            if self.queue.is_empty() && 0 < self.plan_report.objects_later {
                self.replan();
            }
            fetch.retain(|fetch| {
                let held = self.index.locate(&fetch.object).is_some();
                !held && !self.busy.contains(&fetch.object)
            });
            if fetch.is_empty() {
                continue;
            }
            let mut claim = Claim { fetch, part: None };
            let part = claim.parcel().part();
            if let PartId::Unit(unit) = part
                && !self.busy_units.insert(unit)
            {
                continue; // A part of it is being removed: the plan after that has it again.
            }
            claim.fetch.iter().for_each(|fetch| self.take(fetch.object));
            claim.part = self.parts.get(&part).copied();
            return Some(claim);
        }
        None
    }

    /// The holder of this claim fetches only the first so many of it; the others go into another
    /// file, with the next plan. None, and all is let go, if a part of just these is being removed.
    pub fn shorten(&mut self, mut claim: Claim, count: usize) -> Option<Claim> {
        if let PartId::Unit(unit) = claim.parcel().part() {
            self.release_unit(unit);
        }
        assert!((1..=claim.fetch.len()).contains(&count), "a claim is shortened, not emptied");
        claim.fetch.drain(count..).for_each(|fetch| self.release(fetch.object));
        self.replan();
        let part = claim.parcel().part();
        if !matches!(part, PartId::Object(_)) && !self.claim_part(part) {
            claim.fetch.iter().for_each(|fetch| self.release(fetch.object));
            return None;
        }
        claim.part = self.parts.get(&part).copied();
        Some(claim)
    }

    /// The holder of this claim is done. Those that could not be had are tried again, later
    /// each time.
    pub fn done(&mut self, now: Instant, claim: &Claim, postponed: &[ObjectId]) {
        assert!(postponed.len() <= claim.fetch.len(), "only what was claimed is put off");
        if let PartId::Unit(unit) = claim.parcel().part() {
            self.release_unit(unit);
        }
        for fetch in &claim.fetch {
            if postponed.contains(&fetch.object) {
                self.postpone(now, fetch.object);
            } else {
                self.release(fetch.object);
            }
        }
    }

    /// Claims an object for something else than fetching; false if somebody has it.
    pub fn claim(&mut self, object: ObjectId) -> bool {
        self.claim_all(&[object])
    }

    /// The same for several at once: all, or none of them.
    pub fn claim_all(&mut self, objects: &[ObjectId]) -> bool {
        let free = !objects.iter().any(|object| self.busy.contains(object));
        if free {
            objects.iter().for_each(|object| self.take(*object));
        }
        free
    }

    /// Claims an object that an audit found in a file, and may have to change.
    pub fn claim_file(
        &mut self,
        object: ObjectId,
        drive: DriveIndex,
        file: &FileName,
    ) -> FileStanding {
        if self.busy.contains(&object) {
            return FileStanding::Busy;
        }
        let standing = self.standing(object, drive, file);
        match standing {
            FileStanding::Busy
            | FileStanding::Indexed
            | FileStanding::Unsure
            | FileStanding::Unknown => {}
            FileStanding::Spare | FileStanding::Missing | FileStanding::Unwanted => {
                self.take(object);
            }
        }
        standing
    }

    /// The standing of an object that was found in a file, claimed or not. Claims nothing.
    pub fn standing(&self, object: ObjectId, drive: DriveIndex, file: &FileName) -> FileStanding {
        match self.index.locate(&object) {
            Some(extent) if extent.drive == drive && extent.file == *file => FileStanding::Indexed,
            Some(extent) if self.hangs(extent.drive) => FileStanding::Unsure,
            Some(_) => FileStanding::Spare,
            None if self.manifest().is_none() => FileStanding::Unknown,
            None if self.is_wanted(&object) => FileStanding::Missing,
            None => FileStanding::Unwanted,
        }
    }

    /// Claims a part file, to remove it; false if somebody fills it.
    pub fn claim_part(&mut self, part: PartId) -> bool {
        match part {
            PartId::Object(object) => self.claim(object),
            PartId::Unit(unit) => self.busy_units.insert(unit),
        }
    }

    /// Lets go of it.
    pub fn release_part(&mut self, part: PartId) {
        match part {
            PartId::Object(object) => self.release(object),
            PartId::Unit(unit) => self.release_unit(unit),
        }
    }

    pub(crate) fn release_unit(&mut self, unit: UnitId) {
        assert!(self.busy_units.remove(&unit), "only a claimed unit is released");
    }

    /// Lets go of an object.
    pub fn release(&mut self, object: ObjectId) {
        assert!(self.busy.remove(&object), "only a claimed object is released");
        self.refresh(object, None);
    }

    /// Lets go of an object that could not be had; it is tried again, later each time.
    pub fn postpone(&mut self, now: Instant, object: ObjectId) {
        let times = self.postponed.get(&object).map_or(0, |postponed| postponed.times);
        let until = now + Nanos(POSTPONE_FIRST.0 << times.min(16)).min(POSTPONE_MAX);
        self.no_longer_postponed(object);
        let postponed = Postponed { until, times: times + 1, waits: true, for_master: false };
        self.postponed.insert(object, postponed);
        self.due.insert((until, object));
        assert!(self.due.len() <= self.postponed.len(), "an object is tried again once");
        self.release(object);
    }

    pub(crate) fn is_busy(&self, part: &PartId) -> bool {
        match part {
            PartId::Object(object) => self.busy.contains(object),
            PartId::Unit(unit) => self.busy_units.contains(unit),
        }
    }

    fn take(&mut self, object: ObjectId) {
        assert!(self.busy.insert(object), "an object is claimed by one at a time");
        self.refresh(object, None);
    }

    pub(crate) fn no_longer_postponed(&mut self, object: ObjectId) {
        if let Some(postponed) = self.postponed.remove(&object) {
            self.due.remove(&(postponed.until, object));
            self.waits.due.remove(&(postponed.until, object));
            self.waits.count -= u64::from(postponed.for_master);
        }
    }
}
