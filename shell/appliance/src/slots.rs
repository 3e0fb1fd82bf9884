//! The configured drives, each in use or set aside.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock, Weak};

use model::drives::DriveIndex;
use model::id::DriveId;
use model::status::{DriveStatus, ScrubStatus};
use model::units::Instant;
use upkeep::Cause;

use crate::drives::Drive;
use crate::gate::Rules;

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
    /// In use.
    Open(Arc<Drive>),
    /// Set aside, or refused when it was to be opened.
    Aside(Aside),
}

/// A drive that is not in use.
#[derive(Clone, Debug)]
pub(crate) struct Aside {
    /// Why.
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
}

impl Slot {
    /// What is told of it; how far it is scrubbed is known elsewhere.
    pub(crate) fn status(
        &self,
        index: DriveIndex,
        path: PathBuf,
        scrub: ScrubStatus,
        now: Instant,
    ) -> DriveStatus {
        let unknown = DriveStatus { scrub, ..DriveStatus::unknown(index, path) };
        match self {
            Self::Aside(Aside { id, cause, .. }) => {
                DriveStatus { id: *id, set_aside: Some(cause.to_string()), ..unknown }
            }
            Self::Open(drive) => DriveStatus {
                id: Some(drive.marker().id),
                hangs: drive.hangs(now),
                capacity: drive.space().capacity,
                free: drive.space().free,
                objects: drive.held().0,
                units: drive.units(),
                load: drive.gate().load(),
                ..unknown
            },
        }
    }
}
