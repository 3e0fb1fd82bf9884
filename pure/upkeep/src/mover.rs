//! Moves a file to another drive: one that is watched much to a fast drive, or away from it.
//!
//! ```text
//! fill::tier::plan ──> claim ──> copied and shown there (`copying`) ──> a moment ──> the old file
//!   goes
//! ```
//!
//! The file is that of an object that is alone in it, or a unit. Of a unit only the wanted objects
//! are copied, and all its objects are claimed. Workers are told of the new place in one step; who
//! reads from the old file reads on. If the power fails while there are two copies, the first drive
//! that has one wins at the start, and the audit removes the other.

use std::collections::BTreeMap;

use fill::tier::{Held, Move};
use holdings::Holdings;
use model::extent::{DriveIndex, FileName};
use model::id::ObjectId;
use model::units::Bytes;
use store::layout::{self, DriveSpace};
use store::parcel::{Parcel, PartId};
use store::unit::{self, Directory, Place};

use crate::copying::{self, Ended, Source};
use crate::drive::Drive;
use crate::host::{Host, Ledger, PagesOf};
use crate::told::Told;
use crate::{publish, units};

/// What is found of a file.
#[derive(Debug, Default)]
struct Found {
    /// Its wanted objects and their lengths.
    wanted: Vec<(ObjectId, Bytes)>,
    /// Somebody works on one of its objects.
    is_busy: bool,
}

/// Files in which something is wanted and nobody works on anything, and where each is.
#[derive(Debug, Default)]
pub struct Movable {
    files: BTreeMap<(DriveIndex, PartId), Found>,
    after: Option<ObjectId>,
}

impl Movable {
    /// Looks at so many more objects; true once all were seen.
    fn look(&mut self, holdings: &Holdings, most: usize) -> bool {
        let mut count = 0;
        for (object, extent) in holdings.index().iter_above(self.after).take(most) {
            let file = unit::of_file(&extent.file).map_or(PartId::Object(*object), PartId::Unit);
            let found = self.files.entry((extent.drive, file)).or_default();
            found.is_busy |= holdings.busy().contains(object);
            if holdings.is_wanted(object) {
                found.wanted.push((*object, extent.len));
            }
            (self.after, count) = (Some(*object), count + 1);
        }
        count < most
    }

    /// The files as a plan sees them; `heat` is that of an object.
    pub fn held(self, heat: impl Fn(&ObjectId) -> Bytes) -> BTreeMap<PartId, Held> {
        let files = self.files.into_iter();
        let held = |((drive, file), found): ((DriveIndex, PartId), Found)| {
            let room = Parcel::new(&found.wanted).filter(|_| !found.is_busy)?.file_len();
            let heat = Bytes(found.wanted.iter().map(|(object, _)| heat(object).0).sum());
            Some((file, Held { drive, room, heat }))
        };
        files.filter_map(held).collect()
    }
}

/// All files that may be moved, as far as that does not change while they are looked for.
pub async fn movable<H: Host>(host: &H) -> Movable {
    let mut movable = Movable::default();
    host.in_slices(|holdings| movable.look(holdings, H::SLICE)).await;
    movable
}

/// What came of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// The file lies there now, and takes this room.
    There(Bytes),
    Abandoned,
    /// It was not begun.
    Stays,
}

/// Moves a file. `spend` is asked before so much is written, and refuses by `false`; an error of it
/// ends the move before it begins.
pub async fn carry_out<H: Host, E>(
    host: &H,
    one: &Move<PartId>,
    spend: impl FnOnce(Bytes) -> Result<bool, E>,
    buffer: &mut PagesOf<H>,
) -> Result<Moved, E> {
    assert!(one.from != one.to, "a file that stays is not removed as the old one");
    let drives = (host.answering(one.from), host.answering(one.to));
    let (Some(from), Some(to)) = drives else { return Ok(Moved::Stays) };
    let Some(moving) = Moving::find(host, &*from, one.file).await else {
        return Ok(Moved::Stays);
    };
    if !host.claim_all(&moving.objects) {
        return Ok(Moved::Stays);
    }
    let ended = claimed(host, &moving, (&*from, &*to), spend, buffer).await;
    host.release_all(&moving.objects);
    match ended? {
        None => return Ok(Moved::Stays),
        Some((Ended::Copied, room)) => return Ok(Moved::There(room)),
        Some((Ended::Abandoned, _)) => {}
        Some((Ended::Doubted(object, doubt), _)) => host.suspect(object, doubt),
    }
    // A plan has to know of a part that is left.
    host.replan();
    Ok(Moved::Abandoned)
}

/// How the move ended, and the room that it took; none if it was not begun.
async fn claimed<H: Host, E>(
    host: &H,
    moving: &Moving,
    (from, to): (&H::Drive, &H::Drive),
    spend: impl FnOnce(Bytes) -> Result<bool, E>,
    buffer: &mut PagesOf<H>,
) -> Result<Option<(Ended, Bytes)>, E> {
    let places: Vec<Place> = moving.wanted_in(host, from.index()).collect();
    let objects: Vec<_> = places.iter().map(|place| (place.object, place.len)).collect();
    let Some(parcel) = Parcel::new(&objects) else { return Ok(None) };
    // A spare copy, left to the audit: a file of that name may go if this comes to nothing.
    let is_there = objects.iter().any(|(object, _)| to.entry(object).is_some());
    let room = parcel.file_len();
    let has_room = |space: &DriveSpace| space.drive == to.index() && room <= space.free;
    if is_there || !host.spaces().iter().any(has_room) || !spend(room)? {
        return Ok(None);
    }
    let source = Source { drive: from, file: &moving.name, places: &places };
    let is_of_use = |object: &ObjectId| host.is_wanted(object);
    let ended = copying::copy(host, source, to, &is_of_use, buffer).await;
    if ended == Ended::Copied {
        remove_old(host, moving, from, &places).await;
    }
    Ok(Some((ended, room)))
}

/// Removes a copy that nobody is told of any more, once workers have heard of that; at once if all
/// must stop.
async fn remove_old<H: Host>(host: &H, moving: &Moving, drive: &H::Drive, copied: &[Place]) {
    assert!(!copied.is_empty(), "what nobody copied is not old");
    host.sleep_until(host.now() + host.linger()).await;
    // An object that is nowhere was on a drive that failed: fill finds it here. While that drive
    // hangs it may still fail: then too. If this one hangs, the audit finds the copy later.
    let is_elsewhere = |place: &Place| {
        let at = host.locate(&place.object).map(|extent| extent.drive);
        at.is_some_and(|at| at != drive.index() && host.answering(at).is_some())
    };
    if !copied.iter().all(is_elsewhere) || !host.answers(drive) {
        return;
    }
    match &moving.directory {
        None => {
            assert!(moving.objects.len() == 1, "several in one file are a unit");
            publish::drop_copy(host, drive, moving.objects[0]).await
        }
        Some(directory) => {
            let spare = |place: &Place| host.tell(Told::Spare(drive, &moving.name, place.object));
            copied.iter().for_each(spare);
            publish::remove(host, drive, &moving.name, &drive.held_in(directory), true).await
        }
    };
}

/// A file that is to be moved.
struct Moving {
    name: FileName,
    /// None of an object that is alone in it.
    directory: Option<Directory>,
    places: Vec<Place>,
    /// All that is in it, held or not: to be claimed.
    objects: Vec<ObjectId>,
}

impl Moving {
    /// The objects of a file; none if there are none.
    async fn find<H: Host>(host: &H, drive: &H::Drive, file: PartId) -> Option<Self> {
        let (name, directory, places) = match file {
            PartId::Object(object) => {
                let len = host.locate(&object)?.len;
                let place = Place { object, offset: Bytes::ZERO, len };
                (layout::object_file(&object), None, vec![place])
            }
            PartId::Unit(unit) => {
                let directory = units::directory(host, drive, unit).await.ok()?;
                let places = directory.places().to_vec();
                (unit::unit_file(&unit), Some(directory), places)
            }
        };
        let objects = places.iter().map(|place| place.object).collect();
        Some(Self { name, directory, places, objects })
    }

    /// Its objects that are wanted, and held on this drive in this file.
    fn wanted_in<H: Host>(&self, host: &H, drive: DriveIndex) -> impl Iterator<Item = Place> {
        let is_here = move |place: &&Place| {
            let extent = host.locate(&place.object);
            extent.is_some_and(|at| {
                (at.drive, &at.file, at.offset) == (drive, &self.name, place.offset)
            }) && host.is_wanted(&place.object)
        };
        self.places.iter().filter(is_here).copied()
    }
}
