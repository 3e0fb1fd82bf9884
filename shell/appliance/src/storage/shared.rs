//! What the storage threads share: a ledger, the drives, and counters; and what concerns two of
//! these, a drive that goes or comes.

use model::status::{DriveStatus, FillStatus};
use model::units::{Bytes, Nanos};

use crate::counters::{StorageCounters, now};
use crate::storage::ledger::Ledger;
use crate::storage::slots::Slots;
use crate::told::Shares;

#[cfg(test)]
pub(crate) mod tests;

/// What the storage threads share.
pub(crate) struct Shared {
    pub(crate) ledger: Ledger,
    pub(crate) slots: Slots,
    pub(crate) counters: StorageCounters,
    /// How long a file stays when workers were told of its copy.
    pub(crate) linger: Nanos,
    pub(crate) told: Shares,
    /// The same of its titles' sessions.
    pub(crate) told_titles: Shares,
}

impl Shared {
    pub(crate) fn stop(&self) {
        self.ledger.stop();
        self.slots.open().iter().for_each(|drive| drive.gate().open());
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
                trust: holdings.manifest().map(|of| of.trust.generation).unwrap_or_default(),
                objects_wanted: progress.objects_wanted,
                objects_held: progress.objects_held,
                bytes_wanted: progress.bytes_wanted,
                bytes_held: progress.bytes_held + progress.bytes_partial,
                objects_without_room: holdings.plan_report().objects_without_room,
                objects_waiting: holdings.objects_waiting(),
                is_open: holdings.is_open(),
                fetched: Bytes(fetched.from_siblings + fetched.from_origins),
                from_siblings: Bytes(fetched.from_siblings),
            }
        })
    }
}
