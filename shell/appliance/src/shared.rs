//! What the storage threads share: a ledger, the drives, and counters; and what concerns two of
//! these, a drive that goes or comes.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use holdings::{Desired, SLICE};
use model::drives::DriveIndex;
use model::extent::Extent;
use model::id::ObjectId;
use model::manifest::Manifest;
use model::status::{DriveStatus, FillStatus};
use model::units::{Bytes, Nanos};
use store::layout;
use store::log::Entry;
use store::silence::Turn;
use upkeep::Cause;
use upkeep::mover::Movable;

use crate::counters::{StorageCounters, now};
use crate::drives::{Drive, Loaded, SILENCE};
use crate::ledger::Ledger;
use crate::slots::{Aside, Slot, Slots};

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

    /// What is free on each drive in use.
    pub(crate) fn spaces(&self) -> Vec<layout::DriveSpace> {
        let now = self.ledger.now();
        let space = |drive: &Arc<Drive>| {
            let space = drive.space();
            // A quota, or a device that promised more than it has: the sum is wrong.
            let has_room = !drive.is_full(now) && drive.hangs(now).is_none();
            layout::DriveSpace {
                drive: drive.index(),
                set_aside: false,
                capacity: space.capacity,
                free: if has_room { space.free } else { Bytes::ZERO },
                held: drive.held().1,
            }
        };
        self.slots.open().iter().map(space).collect()
    }

    /// Stops all use of a drive and tells everybody. Its objects are filled elsewhere. One that has
    /// come back since, in the place of this one, is left alone.
    pub(crate) fn set_drive_aside(&self, drive: &Drive, cause: Cause) {
        let (index, path) = (drive.index(), drive.path().display());
        let reason = cause.to_string();
        let was_open = self.ledger.change(|holdings| {
            let old = if drive.set_aside() { self.slots.drive(index) } else { None }?;
            let (id, weak) = (Some(drive.marker().id), Arc::downgrade(&old));
            self.slots.replace(index, Slot::Aside(Aside { cause, id, old: weak }));
            holdings.let_go(index);
            Some(old)
        });
        if was_open.is_none() {
            return;
        }
        self.ledger.in_slices(|holdings| !holdings.forget_some(SLICE));
        tracing::error!(drive = %drive.marker().id, %path, reason, "drive set aside");
        let what_to_do = "It is used again once it is replaced, formatted or mounted anew";
        self.ledger.note("drive", format!("{path} is set aside: {reason}. {what_to_do}"));
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
        self.ledger.in_slices(|holdings| {
            // It may have been set aside again.
            let is_in_use = !drive.is_aside();
            let some = objects.by_ref().take(SLICE).map(extent);
            if is_in_use {
                holdings.take_back(index, some, std::iter::empty());
            }
            !is_in_use || objects.len() == 0
        });
        self.counters.integrity.returns.fetch_add(1, Ordering::Relaxed);
        let path = path.display();
        tracing::info!(drive = %id, %path, objects = loaded.entries.len(), "drive in use again");
        self.ledger.note("drive", format!("{path} is in use again"));
    }

    /// A drive that hangs is not asked by anybody who can help it, and control is not told of what
    /// is on it, so that players are sent elsewhere. Its objects stay wanted there: it may answer
    /// again. If it does not for long, it is set aside.
    pub(crate) fn look_at_drive(&self, drive: &Drive, hangs: bool) {
        let Some(turn) = drive.look(self.ledger.now(), hangs) else { return };
        if drive.is_aside() {
            return;
        }
        let (id, path) = (drive.marker().id, drive.path().display());
        match turn {
            Turn::Hangs => {
                self.ledger.change(|holdings| holdings.withhold(drive.index(), true));
                tracing::error!(drive = %id, %path, "drive does not answer");
                let text = "does not answer: players are sent elsewhere until it does";
                let text = format!("{path} {text}. Look at the drive and its cable");
                self.ledger.note("drive", text);
            }
            Turn::Answers => {
                self.ledger.change(|holdings| holdings.withhold(drive.index(), false));
                tracing::info!(drive = %id, %path, "drive answers again");
                self.ledger.note("drive", format!("{path} answers again"));
            }
            Turn::GivenUp => {
                let silence = drive.hangs(self.ledger.now()).unwrap_or(SILENCE.hangs_for);
                self.set_drive_aside(drive, Cause::Silent(silence));
            }
        }
    }

    /// Objects found at the start; the first drive that has one wins.
    pub(crate) fn load(&self, mut objects: impl Iterator<Item = (ObjectId, Extent)>) {
        self.ledger.in_slices(|holdings| {
            let mut count = 0;
            for (object, extent) in objects.by_ref().take(SLICE) {
                holdings.load(object, extent);
                count += 1;
            }
            count < SLICE
        });
    }

    /// Puts a newer manifest in force; false if it is not newer.
    pub(crate) fn set_manifest(&self, manifest: Manifest) -> bool {
        let desired = Desired::new(self.ledger.ask(|h| h.unit_len()), Arc::new(manifest));
        if !self.ledger.change(|holdings| holdings.prepare(desired)) {
            return false;
        }
        let mut replaced = None;
        self.ledger.in_slices(|holdings| {
            replaced = holdings.prepare_some(SLICE);
            replaced.is_some()
        });
        drop(replaced); // Here, and not under the lock: a million objects take a tenth of a second.
        true
    }

    /// Plans: what to fetch goes to the fillers, what to do otherwise to each drive's own hands.
    pub(crate) fn plan(&self) {
        let free: Vec<Bytes> = self.spaces().iter().map(|space| space.free).collect();
        self.ledger.in_slices(|holdings| {
            let chores = holdings.plan_some(self.ledger.now(), &free, SLICE);
            let is_done = chores.is_some();
            chores.into_iter().for_each(|chores| holdings.hand_out(chores));
            is_done
        });
        self.ledger.wake_hands();
    }

    /// All files that may be moved, as far as that does not change while they are looked for.
    pub(crate) fn movable(&self) -> Movable {
        let mut movable = Movable::default();
        self.ledger.in_slices(|holdings| movable.look(holdings, SLICE));
        movable
    }

    /// All configured drives.
    pub(crate) fn drive_statuses(&self) -> Vec<DriveStatus> {
        let (now, paths) = (self.ledger.now(), self.slots.paths.iter().cloned());
        let slots = self.slots.indexes().zip(paths.zip(self.slots.all()));
        let status = |(index, (path, slot)): (DriveIndex, (_, Slot))| {
            slot.status(index, path, self.counters.scrub(index).status(), now)
        };
        slots.map(status).collect()
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
