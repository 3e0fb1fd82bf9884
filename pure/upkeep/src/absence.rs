//! One task for each drive: measures it while it is in use, and looks after its place while it is
//! set aside, so that it is used again without a restart.
//!
//! ```text
//! in use ── an error ──> set aside: nothing is open on it, so that it can be unmounted
//!   ^                        │ each second: the marker, as the file system's books tell; mounts
//!   │                        v
//!   └── open, prove <── replaced, formatted, mounted anew, and quiet for a second
//! ```
//!
//! This task alone waits for the drive, for as long as the drive likes.

use std::collections::BTreeMap;

use model::extent::{DriveIndex, Extent, FileName};
use model::id::ObjectId;
use model::units::{Instant, Nanos};
use store::absence::{Absence, Seen};
use store::health::{Health, Verdict};
use store::log::Entry;
use store::parcel::PartId;

use crate::cause::{DriveError, ObjectFileError};
use crate::condition::Space;
use crate::drive::Drive;
use crate::host::{Host, Ledger as _};
use crate::read;
use crate::told::Told;

/// How old the size of a drive may be, and how often the place of one that is away is looked at.
/// A change by the appliance itself is measured at once.
pub const LOOK_EVERY: Nanos = Nanos::seconds(1);
/// Objects that are read from a drive before it is used again.
const PROVED: usize = 8;

/// The place of a drive: a mount point, as the configuration names it.
pub trait Place {
    type Host: Host;
    /// A drive that was opened and is not in use yet.
    type New: AsRef<<Self::Host as Host>::Drive>;

    fn index(&self) -> DriveIndex;

    /// Looks at the place. Opens nothing, so that the drive can be unmounted at any time.
    fn look(&mut self) -> impl Future<Output = Seen>;

    /// Asks the drive in use for its room, and looks at its own marker; waits until it answers.
    fn measure(
        &mut self,
        drive: &<Self::Host as Host>::Drive,
    ) -> impl Future<Output = Result<(Space, Seen), DriveError>>;

    /// True while a file is open on the drive that was set aside, or a worker waits for a read of
    /// it: its file system lives on with that, and a fault there must not be taken for one of the
    /// drive that comes.
    fn is_held(&self) -> bool;

    /// Opens the drive that is there now, unless it is in use under another path.
    fn open(&mut self) -> impl Future<Output = Result<Found<Self::New>, String>>;

    /// Makes a drive that was proved ready: workers, who open files by themselves, are told of it
    /// before its objects are shown.
    fn make_ready(&mut self, drive: Self::New) -> <Self::Host as Host>::Keep;

    /// Puts a drive in use of which all objects are shown, with its part files.
    fn put_in_use(&mut self, drive: &<Self::Host as Host>::Keep, parts: Vec<PartId>);

    /// The fault in words that name the place.
    fn words(&self, error: DriveError) -> String;
}

/// A drive that was opened, and its contents by its own books.
pub struct Found<D> {
    pub drive: D,
    pub entries: BTreeMap<ObjectId, Entry>,
    pub parts: Vec<PartId>,
}

/// Runs until all must stop.
pub async fn run<P: Place>(host: &P::Host, place: &mut P) {
    loop {
        let in_use = host.drive(place.index());
        let seen = match &in_use {
            Some(drive) => measure(host, place, drive).await,
            None => Some(place.look().await),
        };
        drop(in_use);
        let Some(seen) = seen else { return };
        if !wait_for_it(host, place, Absence::new(seen)).await {
            return;
        }
    }
}

/// Measures a drive until it is set aside, and gives the facts seen of it last; none if all must
/// stop.
pub(crate) async fn measure<P: Place>(
    host: &P::Host,
    place: &mut P,
    drive: &<P::Host as Host>::Drive,
) -> Option<Seen> {
    let mut seen = None;
    while !drive.is_aside() {
        drive.condition(|of| of.measured_from = Some(host.now()));
        let measured = place.measure(drive).await;
        // What is there once a drive answers that was set aside meanwhile may have come since. Of
        // one that was never measured before, nothing else is known.
        let is_old = drive.is_aside();
        let measured = drive.condition(|of| {
            of.measured_from = None;
            let (space, now_seen) = measured?;
            of.space = space;
            if !is_old || seen.is_none() {
                seen = Some(now_seen);
            }
            // Nobody else was told of it.
            of.not_rewritten.take().map_or(Ok(()), Err)
        });
        if let Err(error) = measured {
            host.failed(drive, &error).await;
        }
        if !host.sleep_until(host.now() + LOOK_EVERY).await {
            return None;
        }
    }
    Some(seen.unwrap_or_default())
}

/// Looks at the place of a drive that is set aside until it is used again; false if all must stop.
async fn wait_for_it<P: Place>(host: &P::Host, place: &mut P, mut absence: Absence) -> bool {
    while host.sleep_until(host.now() + LOOK_EVERY).await {
        if !absence.look(place.look().await) || place.is_held() {
            continue;
        }
        match try_it(host, place).await {
            Ok(()) => return true,
            Err(why) => {
                host.tell(Told::StaysAside(place.index(), &why));
                absence.refused();
            }
        }
    }
    false
}

/// Opens the drive that is there now, proves it, and uses it.
async fn try_it<P: Place>(host: &P::Host, place: &mut P) -> Result<(), String> {
    let found = place.open().await?;
    prove(found.drive.as_ref(), &found.entries).await.map_err(|error| place.words(error))?;
    let Found { drive, entries, parts } = found;
    let (drive, index) = (place.make_ready(drive), place.index());
    let mut objects = entries.iter();
    let extent = |(object, entry): (&ObjectId, &Entry)| (*object, entry.extent(object, index));
    // Before it is in use: an eviction between two slices would take objects off the drive's log
    // that the next slice shows.
    host.in_slices(|holdings| {
        let some = objects.by_ref().take(P::Host::SLICE).map(extent);
        holdings.take_back(index, some, std::iter::empty());
        objects.len() == 0
    })
    .await;
    place.put_in_use(&drive, parts);
    host.tell(Told::Returned(&drive, entries.len()));
    Ok(())
}

/// Proves that a drive can be written and read: its index anew, the tables of some of its objects.
pub async fn prove<D: Drive>(
    drive: &D,
    entries: &BTreeMap<ObjectId, Entry>,
) -> Result<(), DriveError> {
    drive.rewrite_index().await?;
    let step = entries.len().div_ceil(PROVED).max(1);
    let some = entries.iter().step_by(step);
    let some = some.map(|(object, entry)| (entry.extent(object, drive.index()), *object));
    // One of each file: a unit that cannot be read is one bad place.
    let some: BTreeMap<FileName, (Extent, ObjectId)> =
        some.map(|(extent, object)| (extent.file.clone(), (extent, object))).collect();
    let mut health = drive.condition(|of| of.new_health());
    for (extent, object) in some.into_values() {
        judge(&mut health, read::blocks(drive, object, &extent).await.map(drop))?;
    }
    Ok(())
}

/// A drive that comes back may have as many bad places as a drive in use. Objects that are wrong
/// are no fault of the drive: other tasks find and fill them.
fn judge(health: &mut Health, read: Result<(), ObjectFileError>) -> Result<(), DriveError> {
    match read {
        Err(ObjectFileError::Drive(error)) if error.is_one_place() => {
            match health.object_failed(Instant(0)) {
                Verdict::SetObjectAside => Ok(()),
                Verdict::SetDriveAside => Err(error),
            }
        }
        Err(ObjectFileError::Drive(error)) if error.is_missing() || error.is_short() => Ok(()),
        Err(ObjectFileError::Drive(error)) => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Errno;
    use store::health::Config;

    const HEALTH: Config = Config { objects_max: 3, window: Nanos::seconds(3600) };

    /// Is a drive taken back, of which these reads failed so, and others did not?
    fn is_good(failed: &[Errno], short: usize) -> bool {
        let failed = failed.iter().map(|errno| DriveError::new("read", "objects/ab", *errno));
        let short = (0..short).map(|_| DriveError::short("objects/cd"));
        let mut health = Health::new(HEALTH);
        judge(&mut health, Ok(())).is_ok()
            && failed.chain(short).all(|error| judge(&mut health, Err(error.into())).is_ok())
    }

    #[test]
    fn a_drive_that_comes_back_is_borne_as_many_bad_places_as_one_in_use() {
        let (io, nodata) = (Errno(5), Errno(61));
        assert!(is_good(&[], 0));
        assert!(is_good(&[io, nodata, io], 0), "a fill replaces them");
        assert!(!is_good(&[io; 4], 0), "it fails wherever it is read");
    }

    #[test]
    fn faults_of_files_are_no_fault_of_the_drive_that_comes_back() {
        assert!(is_good(&[Errno(2); 8], 8), "ENOENT");
        for errno in [30, 108, 19, 13] {
            assert!(!is_good(&[Errno(errno)], 0), "EROFS, ESHUTDOWN, ENODEV, EACCES: {errno}");
        }
    }
}
