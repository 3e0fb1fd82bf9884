//! The configured drives, each in use or set aside.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock, Weak};

use model::drives::DriveIndex;
use model::id::DriveId;
use model::status::{DriveStatus, ScrubStatus};
use model::units::Instant;
use upkeep::{Cause, Drive as _};

use crate::counters::Serving;
use crate::storage::drives::Drive;
use crate::storage::gate::{Gate, Rules};

/// All configured drives. Their lock is held to clone or replace some pointers; whoever has that of
/// the ledger too took the ledger's first.
pub(crate) struct Slots {
    /// Where each is, in the order of `DriveIndex`.
    pub(crate) paths: Vec<PathBuf>,
    /// How each is treated, in the same order; what is not in it is not held back.
    pub(crate) rules: Vec<Rules>,
    slots: RwLock<Vec<Slot>>,
}

/// One configured drive.
#[derive(Clone, Debug)]
pub(crate) enum Slot {
    Open(Arc<Drive>),
    /// Set aside, or refused when it was to be opened.
    Aside(Aside),
}

/// A drive that is not in use.
#[derive(Clone, Debug)]
pub(crate) struct Aside {
    pub(crate) cause: Cause,
    /// Which it was, if its marker could be read.
    pub(crate) id: Option<DriveId>,
    /// Alive while somebody has a file of it open.
    pub(crate) old: Weak<Drive>,
}

impl Slots {
    pub(crate) fn new(paths: Vec<PathBuf>, rules: Vec<Rules>, slots: Vec<Slot>) -> Self {
        Self { paths, rules, slots: RwLock::new(slots) }
    }

    pub(crate) fn indexes(&self) -> impl Iterator<Item = DriveIndex> + use<> {
        DriveIndex::all(self.paths.len())
    }

    /// All as they are now.
    pub(crate) fn all(&self) -> Vec<Slot> {
        self.slots.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The drives that are in use.
    pub(crate) fn open(&self) -> Vec<Arc<Drive>> {
        let open = |slot| if let Slot::Open(drive) = slot { Some(drive) } else { None };
        self.all().into_iter().filter_map(open).collect()
    }

    /// A drive that is in use.
    pub(crate) fn drive(&self, index: DriveIndex) -> Option<Arc<Drive>> {
        match self.slots.read().unwrap_or_else(PoisonError::into_inner).get(index.as_usize())? {
            Slot::Open(drive) => Some(Arc::clone(drive)),
            Slot::Aside(_) => None,
        }
    }

    /// Puts another in a place, and gives the one that was there.
    pub(crate) fn replace(&self, index: DriveIndex, slot: Slot) -> Slot {
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut slots[index.as_usize()], slot)
    }

    /// What is told of each; `scrub` says how far one is scrubbed.
    pub(crate) fn statuses(
        &self,
        now: Instant,
        scrub: impl Fn(DriveIndex) -> ScrubStatus,
    ) -> Vec<DriveStatus> {
        let status = |(index, (path, slot)): (DriveIndex, (&PathBuf, Slot))| {
            let unknown = DriveStatus::unknown(index, path.clone());
            let unknown = DriveStatus { scrub: scrub(index), ..unknown };
            match slot {
                Slot::Aside(Aside { id, cause, .. }) => {
                    DriveStatus { id, set_aside: Some(cause.to_string()), ..unknown }
                }
                Slot::Open(drive) => {
                    let (id, load) = (Some(drive.marker().id), drive.gate().load());
                    drive.condition(|of| DriveStatus {
                        id,
                        hangs: of.hangs(now),
                        capacity: of.space.capacity,
                        free: of.space.free,
                        objects: of.held.0,
                        units: of.units,
                        load,
                        ..unknown
                    })
                }
            }
        };
        self.indexes().zip(self.paths.iter().zip(self.all())).map(status).collect()
    }

    /// Puts a drive behind its gate, if there are rules for it: whoever is not a worker has its
    /// turns there, beside what `serving` says of workers.
    pub(crate) fn put_behind_gate(drive: &mut Drive, rules: &[Rules], serving: &Serving) {
        let index = drive.index().as_usize();
        if let Some(rules) = rules.get(index) {
            drive.put_behind(Gate::new(rules, serving.slices.clone(), index));
        }
    }
}
