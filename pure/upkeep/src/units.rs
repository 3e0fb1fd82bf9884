//! What becomes of a unit when less of it is wanted: it goes as a whole, or the wanted rest of it
//! is copied to another file first, or it stays and its unwanted objects are hidden.
//!
//! Whoever changes what is held in a unit claims all its objects, also those that are not held any
//! more: so there is one at a time, and nobody fills the same unit meanwhile.

use std::collections::VecDeque;

use holdings::FileStanding;
use model::extent::{DriveIndex, Extent};
use model::id::ObjectId;
use model::object::BLOCK_LEN;
use model::status::Units;
use model::units::{Bytes, Instant};
use store::health::Verdict;
use store::unit::{self, Directory, Fate, UnitError, UnitId};

use crate::adopt::{self, Adopted, Other};
use crate::cause::{Cause, DriveError, ObjectFileError};
use crate::copying::{self, Ended, Source};
use crate::drive::{Drive, Files};
use crate::host::{Host, Ledger};
use crate::told::Told;
use crate::{publish, read};

/// The drive and unit in which an object is held, if it is in one.
pub fn place<H: Host>(host: &H, object: &ObjectId) -> Option<(DriveIndex, UnitId)> {
    let extent = host.locate(object)?;
    unit::of_file(&extent.file).map(|unit| (extent.drive, unit))
}

/// Lets go the unwanted objects of a unit; false if that has to be tried again. A unit from which
/// something was copied goes to `old`.
pub async fn settle<H: Host>(
    host: &H,
    drive: DriveIndex,
    unit: UnitId,
    old: &mut VecDeque<Old<H>>,
) -> bool {
    let Some(drive) = host.answering(drive) else { return false };
    let directory = match directory(host, &*drive, unit).await {
        Ok(directory) => directory,
        Err(Unread::Lost) => return true,
        Err(Unread::Later) => return keep_wanted(host, &*drive, unit).await,
        Err(Unread::NotNow) => return false,
    };
    let objects = directory.objects();
    if !host.claim_all(&objects) {
        return false;
    }
    let kept = keep_only(host, &*drive, &directory, |object| host.is_wanted(object)).await;
    if kept == Kept::Copied {
        let until = host.now() + host.linger();
        old.push_back(Old { until, drive, directory });
        return true;
    }
    host.release_all(&objects);
    kept == Kept::Settled
}

/// A unit from which the wanted objects were copied. All its objects are claimed.
pub struct Old<H: Host> {
    /// Whoever hears of the new place late still opens this one.
    until: Instant,
    drive: H::Keep,
    directory: Directory,
}

impl<H: Host> Old<H> {
    /// Removes it when it is time, at once if all must stop.
    pub async fn remove(self, host: &H) {
        remove_later(host, &*self.drive, &self.directory, self.until).await;
        host.release_all(&self.directory.objects());
    }
}

/// If the drive does not answer by then, the audit finds that nothing is held in it.
async fn remove_later<H: Host>(host: &H, drive: &H::Drive, directory: &Directory, until: Instant) {
    host.sleep_until(until).await;
    if host.answers(drive) {
        let file = unit::unit_file(&directory.id());
        publish::remove(host, drive, &file, &drive.held_in(directory), true).await;
    }
}

/// Brings a unit and the index together: wanted objects that are held nowhere are verified and
/// adopted from it, then those that are not held go; those that are held stay, wanted or not. Says
/// what is in it, if it stays, and if something was wrong.
pub async fn audit<H: Host>(host: &H, drive: &H::Drive, unit: UnitId) -> (Units, bool) {
    let nothing = (Units::default(), false);
    let Ok(directory) = directory(host, drive, unit).await else { return nothing };
    let file = unit::unit_file(&unit);
    let standing =
        |object: &ObjectId| host.ask(|holdings| holdings.standing(*object, drive.index(), &file));
    let objects = directory.objects();
    if objects.iter().any(|object| standing(object) == FileStanding::Unknown) {
        return nothing;
    }
    let mut is_wrong = false;
    if host.claim_all(&objects) {
        let is_missing = |object: &ObjectId| standing(object) == FileStanding::Missing;
        let adopted = adopt::adopt_from(host, drive, &directory, is_missing).await;
        is_wrong = adopted == Adopted::Some || drive.held_in(&directory).is_empty();
        if adopted != Adopted::Interrupted {
            keep_all(host, drive, &directory).await;
        }
        host.release_all(&objects);
    }
    let places = directory.places().iter();
    let held = places.filter(|place| standing(&place.object) == FileStanding::Indexed);
    let live = Bytes(held.map(|place| unit::room(place.len).0).sum());
    if live == Bytes::ZERO {
        return (Units::default(), is_wrong);
    }
    assert!(live <= directory.offset(), "no more of a unit is held than it has");
    (Units { count: 1, dead: directory.offset() - live }, is_wrong)
}

/// Takes the objects that a filler is about to fetch from a unit that is there already, and removes
/// that if there is nothing good in it. True if something is visible now. The caller has claimed
/// all of it.
pub async fn take_up<H: Host>(host: &H, drive: &H::Drive, unit: UnitId) -> bool {
    let Ok(directory) = directory(host, drive, unit).await else { return false };
    let adopted = adopt::adopt_from(host, drive, &directory, |_| true).await;
    if adopted != Adopted::Interrupted {
        keep_all(host, drive, &directory).await;
    }
    adopted == Adopted::Some
}

/// Why a unit does not say which objects it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// It was not there, or said nothing right: nothing is held in it any more.
    Lost,
    /// A later version wrote it.
    Later,
    /// The drive failed, or somebody works on objects in it.
    NotNow,
}

/// The objects that a unit says it has. One that says nothing right would be of no use to a drive
/// that loses its index: its objects are set aside, and it goes.
pub async fn directory<H: Host>(
    host: &H,
    drive: &H::Drive,
    unit: UnitId,
) -> Result<Directory, Unread> {
    let why = match read::directory(drive, unit).await {
        Ok(directory) => return Ok(directory),
        Err(ObjectFileError::Unit(error @ UnitError::Version(_))) => {
            host.tell(Told::UnitUnknown(drive, &error));
            return Err(Unread::Later);
        }
        Err(ObjectFileError::Drive(error)) if error.is_missing() => {
            if !drive.has_marker().await {
                host.set_aside(drive, Cause::Unmounted(unit::unit_file(&unit))).await;
                return Err(Unread::NotNow);
            }
            "is missing".to_owned()
        }
        Err(ObjectFileError::Drive(error)) if error.is_one_place() => {
            return Err(unreadable(host, drive, unit, &error).await);
        }
        Err(ObjectFileError::Drive(error)) => {
            host.failed(drive, &error).await;
            return Err(Unread::NotNow);
        }
        Err(error) => format!("is damaged: {error}"),
    };
    if lose(host, drive, unit, &why).await { Err(Unread::Lost) } else { Err(Unread::NotNow) }
}

/// The directory of a unit is on a bad place. That counts against the drive once, when the unit
/// goes, however often it was looked at before.
pub async fn unreadable<H: Host>(
    host: &H,
    drive: &H::Drive,
    unit: UnitId,
    error: &DriveError,
) -> Unread {
    if !lose(host, drive, unit, &format!("is unreadable: {error}")).await {
        return Unread::NotNow;
    }
    if drive.object_failed(host.now()) == Verdict::SetDriveAside {
        host.failed(drive, error).await;
    }
    Unread::Lost
}

/// All that is held in a unit is set aside, in one step, and the unit goes. False if that has to be
/// tried again.
async fn lose<H: Host>(host: &H, drive: &H::Drive, unit: UnitId, why: &str) -> bool {
    let Some(claimed) = Claimed::all_in(host, drive, unit) else { return false };
    // Somebody may have filled it anew meanwhile.
    let is_lost = read::directory(drive, unit).await.is_err()
        && publish::remove(host, drive, &unit::unit_file(&unit), &claimed.held, true).await;
    claimed.release(host);
    if is_lost && !claimed.held.is_empty() {
        host.tell(Told::UnitLost(drive, claimed.held.len(), why));
        host.replan();
    }
    is_lost
}

/// The same as `keep_only` by what the log says alone, and without a copy.
async fn keep_wanted<H: Host>(host: &H, drive: &H::Drive, unit: UnitId) -> bool {
    let Some(claimed) = Claimed::all_in(host, drive, unit) else { return false };
    let (wanted, useless): (Vec<_>, Vec<_>) =
        claimed.held.iter().partition(|object| host.is_wanted(object));
    let file = unit::unit_file(&unit);
    let is_settled = publish::remove(host, drive, &file, &useless, wanted.is_empty()).await;
    claimed.release(host);
    is_settled
}

/// All objects that the drive's index has in a unit, claimed.
struct Claimed {
    objects: Vec<ObjectId>,
    /// Those of them that are still there.
    held: Vec<ObjectId>,
}

impl Claimed {
    /// None if somebody works on one of them.
    fn all_in<H: Host>(host: &H, drive: &H::Drive, unit: UnitId) -> Option<Self> {
        let objects = drive.in_unit(unit);
        if !host.claim_all(&objects) {
            return None;
        }
        let mut held = objects.clone();
        // Before it was claimed it may have gone elsewhere.
        held.retain(|object| drive.entry(object).is_some_and(|entry| entry.unit == Some(unit)));
        Some(Self { objects, held })
    }

    fn release<H: Host>(&self, host: &H) {
        host.release_all(&self.objects);
    }
}

/// What came of a look at the wanted objects of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// The unwanted ones are gone.
    Settled,
    /// The wanted ones were copied: the unit is to go after a while, its objects claimed so long.
    Copied,
    /// The drive failed, or is set aside.
    Failed,
}

/// Objects that are not held in a unit go; if that takes a copy, later. The caller has claimed all
/// of it.
async fn keep_all<H: Host>(host: &H, drive: &H::Drive, directory: &Directory) {
    if keep_only(host, drive, directory, |_| true).await == Kept::Copied {
        remove_later(host, drive, directory, host.now() + host.linger()).await;
    }
}

/// Of the objects that are held in a unit only those that `choose` names stay. The caller has
/// claimed all of it. A drive that is set aside keeps all: nothing on it is held, and it may come
/// back. So does a unit of which an object has its other copy where that cannot be read.
pub(crate) async fn keep_only<H: Host>(
    host: &H,
    drive: &H::Drive,
    directory: &Directory,
    choose: impl Fn(&ObjectId) -> bool,
) -> Kept {
    let places = directory.places();
    let are_claimed =
        host.ask(|holdings| places.iter().all(|of| holdings.busy().contains(&of.object)));
    assert!(are_claimed, "nobody fills a unit that may go");
    let unit = directory.id();
    let file = unit::unit_file(&unit);
    let is_here = |object: &ObjectId| {
        let here = |extent: Extent| extent.drive == drive.index() && extent.file == file;
        choose(object) && host.locate(object).is_some_and(here)
    };
    for object in drive.held_in(directory) {
        if choose(&object) && !is_here(&object) && !is_spare(host, object).await {
            return Kept::Failed;
        }
    }
    let fate = directory.fate(is_here);
    // After the index was asked: whoever sets a drive aside says so before its objects go.
    if drive.is_aside() {
        return Kept::Failed;
    }
    let copied = match &fate {
        Fate::Compact(live) => {
            let from = Source { drive, file: &file, places: live };
            let mut buffer = <H::Drive as Files>::pages(BLOCK_LEN);
            copying::copy(host, from, drive, &choose, &mut buffer).await
        }
        Fate::Remove | Fate::Keep => Ended::Abandoned,
    };
    if copied == Ended::Copied {
        return Kept::Copied;
    }
    let mut useless = drive.held_in(directory);
    // A file that goes takes all with it, also what is wanted since a moment ago.
    if fate != Fate::Remove {
        useless.retain(|object| !is_here(object));
    }
    let is_settled = publish::remove(host, drive, &file, &useless, fate == Fate::Remove).await;
    if let Ended::Doubted(object, doubt) = copied {
        host.suspect(object, doubt);
    }
    if is_settled { Kept::Settled } else { Kept::Failed }
}

/// True of an object that need not be here, since the index has it nowhere, or a good copy of it
/// elsewhere.
async fn is_spare<H: Host>(host: &H, object: ObjectId) -> bool {
    if host.locate(&object).is_none() {
        return true;
    }
    match adopt::other_copy(host, object).await {
        Other::Good => true,
        Other::NotNow => false,
        Other::Doubted(doubt) => {
            host.suspect(object, doubt);
            false
        }
    }
}
