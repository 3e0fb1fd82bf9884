//! What the storage threads share: a ledger, the drives, and counters; and what concerns two of
//! these, a drive that goes or comes.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use holdings::SLICE;
use model::id::ObjectId;
use model::status::{DriveStatus, FillStatus};
use model::units::{Bytes, Nanos};
use store::log::Entry;
use upkeep::{Ledger as _, at_once};

use crate::counters::{StorageCounters, now};
use crate::storage::drives::{Drive, Loaded};
use crate::storage::ledger::Ledger;
use crate::storage::slots::{Slot, Slots};

#[cfg(test)]
pub(crate) mod tests;

/// What the storage threads share.
pub(crate) struct Shared {
    pub(crate) ledger: Ledger,
    pub(crate) slots: Slots,
    pub(crate) counters: StorageCounters,
    /// How long a file stays when workers were told of its copy.
    pub(crate) linger: Nanos,
}

impl Shared {
    pub(crate) fn stop(&self) {
        self.ledger.stop();
        self.slots.open().iter().for_each(|drive| drive.gate().open());
    }

    /// A drive that was set aside is good again, or another is in its place.
    pub(crate) fn take_back(&self, drive: Drive, directory: OwnedFd, loaded: &Loaded) {
        let (index, id, path) = (drive.index(), drive.marker().id, drive.path().to_owned());
        let drive = Arc::new(drive);
        // Before anybody finds it in use.
        self.ledger.tell_directory(index, directory);
        self.ledger.change(|holdings| {
            if self.ledger.is_stopping() {
                drive.gate().open();
            }
            self.slots.replace(index, Slot::Open(Arc::clone(&drive)));
            holdings.take_back(index, std::iter::empty(), loaded.parts.iter().copied());
        });
        let mut objects = loaded.entries.iter();
        let extent = |(object, entry): (&ObjectId, &Entry)| (*object, entry.extent(object, index));
        at_once(self.in_slices(|holdings| {
            // It may have been set aside again.
            let is_in_use = !drive.is_aside();
            let some = objects.by_ref().take(SLICE).map(extent);
            if is_in_use {
                holdings.take_back(index, some, std::iter::empty());
            }
            !is_in_use || objects.len() == 0
        }));
        self.counters.integrity.returns.fetch_add(1, Ordering::Relaxed);
        let path = path.display();
        tracing::info!(drive = %id, %path, objects = loaded.entries.len(), "drive in use again");
        self.ledger.note("drive", format!("{path} is in use again"));
    }

    /// All configured drives.
    pub(crate) fn drive_statuses(&self) -> Vec<DriveStatus> {
        self.slots.statuses(self.ledger.now(), |drive| self.counters.scrub(drive).status())
    }

    /// How far fill is.
    pub(crate) fn fill_status(&self) -> FillStatus {
        let fetched = self.counters.fill.map(now);
        self.ledger.ask(|holdings| {
            let progress = holdings.progress();
            FillStatus {
                generation: holdings.generation(),
                objects_wanted: progress.objects_wanted,
                objects_held: progress.objects_held,
                bytes_wanted: progress.bytes_wanted,
                bytes_held: progress.bytes_held + progress.bytes_partial,
                objects_without_room: holdings.plan_report().objects_without_room,
                fetched: Bytes(fetched.from_siblings + fetched.from_origins),
                from_siblings: Bytes(fetched.from_siblings),
            }
        })
    }
}
