//! Compares the index with the files, slowly, in the background; first hands out small objects.
//!
//! The index is the truth for serving; a walk only finds mistakes: an object whose file is gone or
//! cut (it is hidden, reported and filled again), a file that the index does not know (it is
//! verified and adopted if the manifest wants it, removed if not), a second copy (it is removed if
//! every block of the first is right, and stays while the drive of that does not answer), a unit of
//! which little is wanted (`units`).
//!
//! The ledger is asked for a file at a time, and for at most a slice of objects. A walk costs O(log
//! objects) for each file of its drive, and for each object of it.

use std::collections::BTreeSet;

use holdings::{FileStanding, Holdings, Slice};
use model::extent::{DriveIndex, Extent, FileName};
use model::id::ObjectId;
use model::limits::SMALL_OBJECT_MAX;
use model::units::Nanos;
use store::layout;
use store::unit;

use crate::adopt::{self, Other};
use crate::cause::DriveError;
use crate::drive::{Drive, Files};
use crate::host::{Host, Ledger};
use crate::told::{Checked, Told, Walked};
use crate::units;
use crate::{keeper, publish, small};

/// Between two files: 500 a second, so that a drive of 100,000 takes some minutes.
const PER_FILE: Nanos = Nanos::millis(2);
/// Between two looks whether a drive has come back.
const LOOK_EVERY: Nanos = Nanos::seconds(1);

/// Walks over these drives again and again, so long after the last walk, or at once after a drive
/// has come back: it may have what others have by now. Runs until all must stop.
pub async fn run<H: Host>(host: &H, drives: u8, every: Nanos) {
    loop {
        let returns = host.returns();
        give_small_objects(host).await;
        for index in (0..drives).map(DriveIndex) {
            let Some(drive) = host.drive(index) else { continue };
            if !walk(host, &*drive).await {
                return;
            }
        }
        let until = host.now() + every;
        while host.now() < until && host.returns() == returns {
            if !host.sleep_until(until.min(host.now() + LOOK_EVERY)).await {
                return;
            }
        }
    }
}

/// Reads the small objects that were there at the start, or came back with a drive, verifies them
/// and hands them out.
async fn give_small_objects<H: Host>(host: &H) {
    let mut buffer = <H::Drive as Files>::pages(SMALL_OBJECT_MAX);
    let lack = |holdings: &Holdings, after| holdings.without_bytes(after, H::SLICE);
    for (object, extent) in all(host, lack).await {
        if host.is_stopping() {
            return;
        }
        if let Some(drive) = host.answering(extent.drive) {
            small::give(host, &*drive, object, &extent, &mut buffer).await;
        }
    }
}

/// All slices of objects that are asked for.
async fn all<H: Host>(
    host: &H,
    ask: impl Fn(&Holdings, Option<ObjectId>) -> Slice,
) -> Vec<(ObjectId, Extent)> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let slice = host.ask(|holdings| ask(holdings, after));
        all.extend(slice.found);
        assert!(slice.next.is_none() || after < slice.next, "each slice ends behind the last");
        after = slice.next;
        if after.is_none() {
            return all;
        }
        host.pause().await;
    }
}

/// One walk over a drive; false if all must stop.
async fn walk<H: Host>(host: &H, drive: &H::Drive) -> bool {
    let began = host.now();
    let mut walked = Walked::default();
    let units = FileName(unit::UNITS.into());
    for folder in layout::object_folders().chain([units]) {
        if !host.answers(drive) {
            return true;
        }
        let published = |holdings: &Holdings, after| {
            holdings.published_in(drive.index(), &folder, after, H::SLICE)
        };
        let expected = all(host, published).await;
        let names = match drive.list(&folder).await {
            Ok(names) => names,
            Err(error) => {
                host.failed(drive, &error).await;
                continue;
            }
        };
        let mut seen = BTreeSet::new();
        for name in names {
            if !host.sleep_until(host.now() + PER_FILE).await {
                return false;
            }
            let file = FileName(format!("{}/{name}", folder.0).into());
            let is_wrong = if let Some(unit) = unit::of_file(&file) {
                let (of_unit, is_wrong) = units::audit(host, drive, unit).await;
                walked.units.count += of_unit.count;
                walked.units.dead += of_unit.dead;
                is_wrong
            } else if let Ok(object) = name.parse() {
                examine(host, drive, object).await
            } else {
                false
            };
            walked.files += 1;
            walked.found += u64::from(is_wrong);
            seen.insert(file);
        }
        for (object, extent) in expected {
            if !seen.contains(&extent.file) && host.locate(&object).as_ref() == Some(&extent) {
                keeper::missing(host, drive, object, &extent).await;
                walked.found += 1;
            }
        }
    }
    assert!(walked.units.count <= walked.files, "a unit is a file");
    walked.took = host.now().since(began);
    host.tell(Told::Checked(drive, Checked::Files(&walked)));
    true
}

/// Looks at one file; true if something was wrong with it.
pub async fn examine<H: Host>(host: &H, drive: &H::Drive, object: ObjectId) -> bool {
    let file = layout::object_file(&object);
    let standing = host.change(|holdings| holdings.claim_file(object, drive.index(), &file));
    let mut doubt = None;
    match standing {
        FileStanding::Busy | FileStanding::Unsure | FileStanding::Unknown => return false,
        FileStanding::Indexed => return check_len(host, drive, object).await,
        FileStanding::Spare => match adopt::other_copy(host, object).await {
            Other::Good => {
                publish::drop_copy(host, drive, object).await;
            }
            Other::NotNow => {}
            Other::Doubted(why) => doubt = Some(why),
        },
        FileStanding::Unwanted => {
            publish::drop_copy(host, drive, object).await;
        }
        FileStanding::Missing => {
            adopt::adopt(host, drive, object).await;
        }
    }
    host.release(object);
    doubt.into_iter().for_each(|doubt| host.suspect(object, doubt));
    true
}

async fn has_its_len<H: Host>(drive: &H::Drive, extent: &Extent) -> Result<bool, DriveError> {
    let file = drive.open(&extent.file).await?;
    Ok(drive.len(&file).await? == layout::sections(extent.len).file_len)
}

async fn check_len<H: Host>(host: &H, drive: &H::Drive, object: ObjectId) -> bool {
    let Some(extent) = host.locate(&object) else { return false };
    match has_its_len::<H>(drive, &extent).await {
        Ok(true) => false,
        Ok(false) => {
            let is_wrong = async { has_its_len::<H>(drive, &extent).await == Ok(false) };
            let why = "has a file of the wrong size";
            keeper::damaged(host, drive, object, &extent, why, is_wrong).await;
            true
        }
        // It may just have been evicted; if it was not, the listing says so next time.
        Err(error) if error.is_missing() => false,
        Err(error) => {
            keeper::unreadable(host, drive, object, &extent, &error).await;
            true
        }
    }
}
