//! Desired state: the manifest in force, and a newer one until it is.
//!
//! ```text
//! Desired::new ──> prepare ──> prepare_some, until all that is held was looked at ──> in force
//!   no lock           │                      with the lock, some objects at a time
//!                     └── changes meanwhile are noted in both
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use fill::gap::{Gap, Known, Wanted};
use model::id::{Generation, ObjectId};
use model::manifest::Manifest;
use model::units::{Bytes, Instant};
use model::update::Update;
use store::parcel::PartId;

use crate::files::Files;
use crate::{Holdings, Postponed, SLICE, parcels};

/// A manifest, with the gap and the units that follow from it alone: with many objects that takes a
/// while, and is done before a lock is taken.
#[derive(Debug)]
pub struct Desired {
    pub(crate) manifest: Option<Arc<Manifest>>,
    /// The part of it that is held.
    pub(crate) gap: Gap,
    /// The same by number, as control is told it.
    pub(crate) files: Files,
    /// Which objects share a unit, by the unit's number.
    pub(crate) unit_of: BTreeMap<ObjectId, usize>,
}

impl Default for Desired {
    fn default() -> Self {
        let (gap, unit_of) = (Gap::default(), BTreeMap::new());
        Self { manifest: None, gap, files: Files::none(), unit_of }
    }
}

impl Desired {
    /// For units of this length: `Config::unit_len`.
    pub fn new(unit_len: Option<Bytes>, manifest: Arc<Manifest>) -> Self {
        let unit_of = parcels::units_of(unit_len, &manifest);
        let (gap, files) = (Gap::new(Wanted::new(&manifest)), Files::new(&manifest));
        Self { gap, files, unit_of, manifest: Some(manifest) }
    }

    /// True if files have the same numbers in both. No number is given twice, so that who has the
    /// same versions with the same first numbers has the same files.
    fn has_numbers_of(&self, other: &Self) -> bool {
        let (Some(before), Some(after)) = (&self.manifest, &other.manifest) else { return false };
        let count = self.files.count();
        count.is_some() && count == other.files.count() && before.numbers == after.numbers
    }

    pub(crate) fn generation(&self) -> Generation {
        self.manifest.as_ref().map_or(Generation(0), |manifest| manifest.generation)
    }
}

/// The state that a new manifest replaced. Drop it where nobody waits: that takes as long as to
/// make it.
#[derive(Debug, Default)]
pub struct Replaced {
    _desired: Desired,
    _postponed: BTreeMap<ObjectId, Postponed>,
    _due: BTreeSet<(Instant, ObjectId)>,
    _waiting: BTreeSet<(Instant, ObjectId)>,
}

/// A manifest that is to come into force, and how far its gap has gone through the objects held.
#[derive(Debug)]
pub(crate) struct Next {
    pub(crate) desired: Desired,
    held: Option<ObjectId>,
    /// After all that is held.
    parts: Option<Option<PartId>>,
}

impl Holdings {
    /// Puts a newer manifest in force; false if it is not newer.
    pub fn set_manifest(&mut self, manifest: Arc<Manifest>) -> bool {
        self.want(Desired::new(self.config.unit_len, manifest))
    }

    /// The same, with the gap and the units made before.
    pub fn want(&mut self, desired: Desired) -> bool {
        let is_newer = self.prepare(desired);
        while is_newer && self.prepare_some(SLICE).is_none() {}
        is_newer
    }

    /// Puts the manifest in force with other trust. False if it is another by now, or is about to
    /// be. Nothing that is held is looked at: O(1).
    pub fn set_trust(&mut self, manifest: Arc<Manifest>) -> bool {
        let is_same = self.desired.manifest.is_some() && self.generation() == manifest.generation;
        if !is_same || self.next.is_some() {
            return false;
        }
        self.updates.push_back(Update::Manifest(Arc::clone(&manifest)));
        self.desired.manifest = Some(manifest);
        true
    }

    /// Begins to look how much of a newer manifest is held; false if it is not newer. It comes into
    /// force with the last `prepare_some`.
    pub fn prepare(&mut self, desired: Desired) -> bool {
        let before = self.next.as_ref().map_or(&self.desired, |next| &next.desired);
        if before.manifest.is_some() && desired.generation() <= before.generation() {
            return false;
        }
        let mut next = Next { desired, held: None, parts: None };
        self.busy.iter().for_each(|object| self.note(&mut next, *object));
        self.next = Some(next);
        true
    }

    /// Goes on with that; returns the state before when the new manifest is in force.
    pub fn prepare_some(&mut self, most: usize) -> Option<Replaced> {
        let Some(mut next) = self.next.take() else { return Some(Replaced::default()) };
        let mut left = most;
        if next.parts.is_none() {
            let held = self.index.iter_above(next.held).take(left).map(|(object, _)| *object);
            for object in held {
                self.note(&mut next, object);
                next.held = Some(object);
                left -= 1;
            }
        }
        if 0 < left {
            let after = next.parts.flatten().map_or(Bound::Unbounded, Bound::Excluded);
            next.parts = Some(next.parts.flatten());
            for (id, _) in self.parts.range((after, Bound::Unbounded)).take(left) {
                if let PartId::Object(object) = id {
                    self.note(&mut next, *object);
                }
                next.parts = Some(Some(*id));
                left -= 1;
            }
        }
        if left == 0 {
            self.next = Some(next);
            return None;
        }
        let newest = self.desired.manifest.is_none()
            || self.desired.generation() < next.desired.generation();
        assert!(newest, "no older manifest comes into force over a newer one");
        self.planner = None;
        self.forget_urgent();
        self.updates.extend(next.desired.manifest.clone().map(Update::Manifest));
        if !self.desired.has_numbers_of(&next.desired) {
            self.inventory.renumber();
        }
        self.replan();
        let waiting = self.waits.begin_anew();
        Some(Replaced {
            _waiting: waiting,
            _desired: std::mem::replace(&mut self.desired, next.desired),
            _postponed: std::mem::take(&mut self.postponed),
            _due: std::mem::take(&mut self.due),
        })
    }

    /// With a new manifest everything is tried anew.
    fn note(&self, next: &mut Next, object: ObjectId) {
        let known = Known { waits: false, ..self.how(object) };
        next.desired.gap.note(object, None, known);
        next.desired.files.note(object, self.tells(known.held));
    }
}
