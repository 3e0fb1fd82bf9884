//! Plans: when one is due, the fetches that it puts into the queue, and chores, which are handed to
//! the drives.

use std::collections::BTreeMap;

use fill::plan::{self, Around, Planner};
use model::drives::DriveIndex;
use model::extent::Extent;
use model::id::ObjectId;
use model::units::{Bytes, Instant, Nanos};
use store::layout;
use store::parcel::PartId;

use crate::{Holdings, SLICE, parcels, waits};

/// Why an object is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// Somebody could not read it, or read something else: all of it is verified.
    Suspect,
    /// Its drive says itself that it cannot be read there, in these words. Of a copy elsewhere, be
    /// it on the same drive, nothing is said.
    Unreadable(Extent, String),
}

/// The work that a plan brings, besides fetching.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chores {
    /// Published, no longer wanted.
    pub evict: Vec<(ObjectId, DriveIndex)>,
    /// Begun, and no longer wanted, or not in this company.
    pub drop_parts: Vec<(PartId, DriveIndex)>,
    pub suspects: BTreeMap<ObjectId, Doubt>,
}

/// A plan is made again at least so often while something is wanted: room may have come free.
pub(crate) const PLAN_EVERY: Nanos = Nanos::seconds(5);

impl Holdings {
    /// The bytes for which fill has to find room: without those that have a file already, and those
    /// that fit nowhere by the last plan.
    pub fn bytes_to_place(&self) -> Bytes {
        let progress = self.progress();
        let allocated = self.parts.keys().filter_map(|part| match part {
            PartId::Object(object) => self.wanted().len_of(object).map(|len| len.0),
            // How much of a unit's file will be held nobody knows yet.
            PartId::Unit(_) => None,
        });
        let placed = progress.bytes_held + Bytes(allocated.sum());
        let without_room = self.plan_report.bytes_without_room;
        progress.bytes_wanted.saturating_sub(placed).saturating_sub(without_room)
    }

    /// The figures of the last plan.
    pub fn plan_report(&self) -> &plan::Report {
        &self.plan_report
    }

    /// How long a planner, which began to wait at `began`, has to wait; not at all if a plan is
    /// due. News may make it due sooner. Only the clock says when it is time again: there is much
    /// news that is no reason for a plan. Objects that wait for a master are asked about by the
    /// next plan, once a second at most.
    pub fn plan_in(&self, now: Instant, began: Instant) -> Nanos {
        let progress = self.progress();
        let behind = progress.objects_held < progress.objects_wanted
            || 0 < self.plan_report.evictions_later
            || !self.spare_parts.is_empty()
            // With all held, a part is of an object that came another way meanwhile.
            || !self.parts.is_empty();
        let asks = self.waits.due.first().map(|(due, _)| (*due).max(began + waits::ASK_EVERY));
        let at = asks.map_or(began + PLAN_EVERY, |at| at.min(began + PLAN_EVERY));
        let left = at.since(now);
        match (self.replan, left) {
            (true, _) => Nanos(0),
            (false, Nanos(0)) if !behind => PLAN_EVERY,
            (false, left) => left,
        }
    }

    /// Plans for drives with so much room: puts the fetches into the queue, and returns the chores.
    pub fn plan(&mut self, now: Instant, free: &[Bytes]) -> Chores {
        loop {
            if let Some(chores) = self.plan_some(now, free, SLICE) {
                return chores;
            }
        }
    }

    /// The same, some objects at a time: begins a plan, or goes on with it, until there are chores.
    /// Room counts as it is when a plan begins.
    pub fn plan_some(&mut self, now: Instant, free: &[Bytes], most: usize) -> Option<Chores> {
        if self.manifest().is_none() {
            self.replan = false;
            let suspects = std::mem::take(&mut self.suspects);
            return Some(Chores { suspects, ..Chores::default() });
        }
        if self.planner.is_none() {
            if !self.try_again(now, most) || !self.learn_urgent(most) {
                return None;
            }
            self.replan = false;
            let room = |len| layout::sections(len).file_len;
            let (room_is_coming, hung) = (!self.spare_parts.is_empty(), self.hung | self.leaving);
            let around = Around { free: free.to_vec(), room, room_is_coming, hung };
            let planner = Planner::new(self.config.plan, &self.desired.gap, around);
            self.planner = Some(planner.with_urgent(self.urgent_numbers()));
        }
        let (Some(planner), Some(manifest)) = (&mut self.planner, &self.desired.manifest) else {
            return None;
        };
        let has_part = |object: &ObjectId| self.parts.contains_key(&PartId::Object(*object));
        let is_done = planner.step(&self.desired.gap, manifest, has_part, most);
        let planner = self.planner.take_if(|_| is_done)?;
        Some(self.chores(planner))
    }

    fn chores(&mut self, planner: Planner) -> Chores {
        let under_way = self.busy.iter().filter(|object| !self.is_wanted(object)).count();
        let plan = planner.finish(&self.desired.gap, under_way);
        let is_cut = 0 < plan.report.objects_later;
        let has_part = |object: &ObjectId| self.parts.contains_key(&PartId::Object(*object));
        self.queue = parcels::parcels(&self.desired.unit_of, has_part, plan.fetch, is_cut);
        self.plan_report = plan.report;
        self.news = true;
        let mut useless: Vec<PartId> = plan.drop_parts.into_iter().map(PartId::Object).collect();
        useless.extend(self.units_without_use().into_iter().map(PartId::Unit));
        let of = |part: PartId| self.parts.get(&part).map(|of| (part, of.drive));
        let drop_parts = useless.into_iter().filter_map(of);
        let drop_parts = drop_parts.chain(self.spare_parts.iter().copied()).collect();
        Chores { evict: plan.evict, drop_parts, suspects: std::mem::take(&mut self.suspects) }
    }

    /// Hands a plan's chores to the drives that they are about.
    pub fn hand_out(&mut self, chores: Chores) {
        let index = &self.index;
        self.errands.give(chores, |object| Some(index.locate(object)?.drive));
    }

    /// The next errand at a drive. The caller does it, and then says that it is done.
    pub fn next_errand(&mut self, drive: DriveIndex) -> Option<Chores> {
        self.errands.take(drive)
    }

    /// True if an object of an errand under way has not gone from its drive since: what lies there
    /// now may be another copy, which nobody doubts.
    pub fn is_doubted(&self, drive: DriveIndex, object: &ObjectId) -> bool {
        self.errands.is_doubted(drive, object)
    }

    /// A drive's errand is over: so many things are done, and so many are left. A plan is due when
    /// all drives that answer are done.
    pub fn errand_done(&mut self, drive: DriveIndex, done: usize, left: usize) {
        self.put_off(left);
        if self.errands.done(drive, done, self.hung | self.leaving) {
            self.replan();
        }
    }

    /// A plan is due.
    pub fn replan(&mut self) {
        (self.replan, self.news) = (true, true);
    }

    /// So many evictions of the plan were not done, since a drive does not answer or failed: the
    /// next plan is due as if they had been left for later.
    pub fn put_off(&mut self, count: usize) {
        self.plan_report.evictions_later += Bytes::of(count).0;
    }

    /// Somebody doubts an object: the keeper will look at it, if it lies where it was not read.
    pub fn suspect(&mut self, object: ObjectId, doubt: Doubt) {
        if let Doubt::Unreadable(extent, _) = &doubt
            && self.index.locate(&object) != Some(extent)
        {
            return;
        }
        if self.suspects.len() < self.config.suspects_max {
            self.suspects.insert(object, doubt);
            assert!(self.suspects.len() <= self.config.suspects_max, "the others wait for a scrub");
            self.replan();
        }
    }

    /// An object is on this drive no more: what was doubted was the copy there.
    pub(crate) fn forget_doubt(&mut self, object: &ObjectId, was: DriveIndex) {
        self.suspects.remove(object);
        self.errands.forget_doubt(object, was);
    }
}
