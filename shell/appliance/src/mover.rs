//! Moves what is watched most to fast drives, and what is not away from them.
//!
//! ```text
//! fill::tier::plan ──> claim ──> copied and shown there (`copying`) ──> a moment ──> the old file
//!   goes
//! ```
//!
//! What moves is a file: an object that is alone in its, or a unit. Of a unit only what is wanted
//! is copied, and all that it has is claimed. Workers are told of the new place in one step; who
//! reads from the old file reads on. If the power fails while there are two copies, the first drive
//! that has one wins at the start, and the audit removes the other.

use std::sync::atomic::Ordering;

use fill::tier::{Class, Move};
use model::extent::{DriveIndex, FileName};
use model::id::ObjectId;
use model::object::BLOCK_LEN;
use model::units::{Bytes, Nanos};
use store::layout;
use store::parcel::{Parcel, PartId};
use store::unit::{self, Directory, Place};

use crate::copying::{self, Ended, Source};
use crate::drives::{Drive, DriveError};
use crate::pages::Pages;
use crate::shared::Shared;
use crate::tiering::Tier;
use crate::{keeper, units};

/// What is known of heat is kept so often: a kill forgets no more.
const KEEP_EVERY: Nanos = Nanos::seconds(600);

/// Runs until all must stop.
pub(crate) fn run(shared: &Shared) {
    let Some(tier) = &shared.tier else { return };
    let mut mover = Mover { shared, tier, buffer: Pages::zeroed(BLOCK_LEN) };
    let mut kept_at = shared.now();
    while shared.sleep_until(shared.now() + tier.config.every) {
        while mover.round() {}
        if KEEP_EVERY <= shared.now().since(kept_at) {
            keep_heat(shared, tier);
            kept_at = shared.now();
        }
    }
    keep_heat(shared, tier);
}

fn keep_heat(shared: &Shared, tier: &Tier) {
    if let Err(error) = tier.keep_heat() {
        tracing::warn!(%error, "what is watched is not kept");
        shared.note("tiering", format!("cannot keep what is watched: {error}"));
    }
}

struct Mover<'a> {
    shared: &'a Shared,
    tier: &'a Tier,
    buffer: Pages,
}

impl Mover<'_> {
    /// Plans, and carries it out; false if nothing was moved.
    fn round(&mut self) -> bool {
        let (mut up, mut down, mut bytes, mut kept) = (0, 0, Bytes::ZERO, true);
        for one in self.tier.plan(self.shared) {
            if self.shared.is_stopping() {
                break;
            }
            let room = match self.carry_out(&one) {
                Ok(Some(room)) => room,
                Ok(None) => continue,
                Err(error) => {
                    let what_to_do = "is the state directory full or read-only?";
                    let text = format!("nothing is moved: {error}: {what_to_do}");
                    self.shared.note("tiering", text);
                    kept = false;
                    break;
                }
            };
            bytes += room;
            match self.tier.class(one.to) {
                Class::Fast => up += 1,
                Class::Bulk => down += 1,
            }
        }
        if bytes == Bytes::ZERO {
            return false;
        }
        let (bytes, left) = (bytes.0, self.tier.left().0);
        tracing::info!(up, down, bytes, left, "objects moved between drives");
        kept && !self.shared.is_stopping()
    }

    /// Moves a file; what that took, or none if it stays where it is. An error if it cannot be kept
    /// that it was paid for.
    fn carry_out(&mut self, one: &Move<PartId>) -> Result<Option<Bytes>, DriveError> {
        let shared = self.shared;
        let drives = (shared.answering(one.from), shared.answering(one.to));
        let (Some(from), Some(to)) = drives else { return Ok(None) };
        let Some(moving) = Moving::find(shared, &from, one.file) else { return Ok(None) };
        if !shared.claim_all(&moving.objects) {
            return Ok(None);
        }
        let ended = self.claimed(&moving, (&from, &to));
        moving.objects.iter().for_each(|object| shared.release(*object));
        match ended? {
            None => return Ok(None),
            Some((Ended::Copied, room)) => {
                self.tier.moved(one.to, room);
                return Ok(Some(room));
            }
            Some((Ended::Abandoned, _)) => {}
            Some((Ended::Doubted(object, doubt), _)) => shared.suspect(object, doubt),
        }
        // Of what is left of it a plan has to know.
        shared.replan();
        self.tier.counters.abandoned.fetch_add(1, Ordering::Relaxed);
        Ok(None)
    }

    /// How the move ended, and what it took; none if it was not begun.
    fn claimed(
        &mut self,
        moving: &Moving,
        (from, to): (&Drive, &Drive),
    ) -> Result<Option<(Ended, Bytes)>, DriveError> {
        let shared = self.shared;
        let places: Vec<Place> = moving.wanted_in(shared, from.index()).collect();
        let objects: Vec<_> = places.iter().map(|place| (place.object, place.len)).collect();
        let Some(parcel) = Parcel::new(&objects) else { return Ok(None) };
        // A spare copy, left to the audit: a file of that name may go if this comes to nothing.
        let is_there = objects.iter().any(|(object, _)| to.entry(object).is_some());
        let room = parcel.file_len();
        if is_there || !self.has_room(to.index(), room) || !self.tier.spend(room)? {
            return Ok(None);
        }
        let source = Source { drive: from, file: &moving.name, places: &places };
        let is_of_use = |object: &ObjectId| shared.is_wanted(object);
        let ended = copying::copy(shared, source, to, &is_of_use, &mut self.buffer);
        if ended == Ended::Copied {
            self.remove_old(moving, from, &places);
        }
        Ok(Some((ended, room)))
    }

    fn has_room(&self, on: DriveIndex, room: Bytes) -> bool {
        let space = self.shared.spaces().into_iter().find(|space| space.drive == on);
        space.is_some_and(|space| room <= space.free)
    }

    /// Removes a copy that nobody is told of any more, once workers have read that; at once if all
    /// must stop.
    fn remove_old(&self, moving: &Moving, drive: &Drive, copied: &[Place]) {
        let shared = self.shared;
        shared.sleep_until(shared.now() + self.tier.config.linger);
        // What is nowhere was on a drive that failed: fill finds it here. While that drive hangs it
        // may still fail: then too. If this one hangs, the audit finds the copy later.
        let is_elsewhere = |place: &Place| {
            let at = shared.locate(&place.object).map(|extent| extent.drive);
            at.is_some_and(|at| at != drive.index() && shared.answering(at).is_some())
        };
        if !copied.iter().all(is_elsewhere) || !drive.answers(shared.now()) {
            return;
        }
        match &moving.directory {
            None => keeper::drop_copy(shared, drive, moving.objects[0]),
            Some(directory) => {
                keeper::remove(shared, drive, &moving.name, drive.held_in(directory), true)
            }
        };
    }
}

/// A file that is to be moved.
struct Moving {
    name: FileName,
    /// None of an object that is alone in it.
    directory: Option<Directory>,
    places: Vec<Place>,
    /// What is to be claimed: all that is in it, held or not.
    objects: Vec<ObjectId>,
}

impl Moving {
    /// What is in a file; none if nothing is.
    fn find(shared: &Shared, drive: &Drive, file: PartId) -> Option<Self> {
        let (name, directory, places) = match file {
            PartId::Object(object) => {
                let len = shared.locate(&object)?.len;
                let place = Place { object, offset: Bytes::ZERO, len };
                (layout::object_file(&object), None, vec![place])
            }
            PartId::Unit(unit) => {
                let directory = units::directory(shared, drive, unit).ok()?;
                let places = directory.places().to_vec();
                (unit::unit_file(&unit), Some(directory), places)
            }
        };
        let objects = places.iter().map(|place| place.object).collect();
        Some(Self { name, directory, places, objects })
    }

    /// What of it is wanted, and held on this drive in this file.
    fn wanted_in(&self, shared: &Shared, drive: DriveIndex) -> impl Iterator<Item = Place> {
        let is_here = move |place: &&Place| {
            let extent = shared.locate(&place.object);
            extent.is_some_and(|at| {
                (at.drive, &at.file, at.offset) == (drive, &self.name, place.offset)
            }) && shared.is_wanted(&place.object)
        };
        self.places.iter().filter(is_here).copied()
    }
}
