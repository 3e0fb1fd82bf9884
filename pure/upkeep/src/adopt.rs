//! Makes objects visible that a drive has in a file under its final name and the index does not
//! know.
//!
//! The last writes of a log may be lost (a drive that lied about a flush), or a publication was cut
//! between rename and log. The audit finds such files in time; a filler looks before it fetches.

use holdings::Doubt;
use model::id::ObjectId;
use store::health::Verdict;
use store::log::Entry;
use store::parcel::Parcel;
use store::unit::Directory;

use crate::drive::Drive;
use crate::host::{Host, Ledger};
use crate::told::Told;
use crate::{publish, read};

/// What came of looking for right objects in a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adopted {
    /// Some of it is visible now.
    Some,
    /// Nothing of it is right.
    Nothing,
    /// It is not known which objects are right: all must stop, or the drive failed.
    Interrupted,
}

/// Verifies every block of the object's own file on this drive and publishes it. A file that is not
/// the object is removed. True if the object is visible now. The caller has claimed it.
pub async fn adopt<H: Host>(host: &H, drive: &H::Drive, object: ObjectId) -> bool {
    match read::own_file(host, drive, object).await {
        Ok(Some(len)) => {
            let parcel = Parcel::Alone(object, len);
            let entries = parcel.entries();
            return publish(host, drive, &parcel, &entries).await;
        }
        Ok(None) if host.is_stopping() => {}
        Ok(None) => {
            publish::drop_copy(host, drive, object).await;
        }
        Err(error) if error.is_missing() => {}
        Err(error) if error.is_one_place() && drive_stays(host, drive) => {
            publish::drop_copy(host, drive, object).await;
        }
        Err(error) => host.failed(drive, &error).await,
    }
    false
}

/// The same for those of a unit's objects that `choose` wants: each that is right is published, all
/// in one step. The caller has claimed all that the unit has.
pub async fn adopt_from<H: Host>(
    host: &H,
    drive: &H::Drive,
    directory: &Directory,
    choose: impl Fn(&ObjectId) -> bool,
) -> Adopted {
    let mut right = Vec::new();
    for (object, entry) in directory.entries().into_iter().filter(|(object, _)| choose(object)) {
        let extent = entry.extent(&object, drive.index());
        match read::verified(host, drive, object, &extent).await {
            Ok(Some(_)) => right.push((object, entry)),
            Ok(None) if host.is_stopping() => return Adopted::Interrupted,
            Ok(None) => host.tell(Told::LeftInUnit(drive, object, None)),
            Err(error) if error.is_one_place() && drive_stays(host, drive) => {
                host.tell(Told::LeftInUnit(drive, object, Some(&error)));
            }
            Err(error) => {
                host.failed(drive, &error).await;
                return Adopted::Interrupted;
            }
        }
    }
    if right.is_empty() {
        return Adopted::Nothing;
    }
    let is_shown = publish(host, drive, &Parcel::Unit(directory.clone()), &right).await;
    if is_shown { Adopted::Some } else { Adopted::Interrupted }
}

fn drive_stays<H: Host>(host: &H, drive: &H::Drive) -> bool {
    drive.object_failed(host.now()) == Verdict::SetObjectAside
}

/// How the copy of an object is that the index has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Other {
    /// Every block of it is right.
    Good,
    /// Its drive does not answer or failed, or it went.
    NotNow,
    /// It is not right. For `Ledger::suspect`, once whoever asked has let go of the object.
    Doubted(Doubt),
}

/// Reads the copy of an object that the index has, before another is removed as spare.
pub async fn other_copy<H: Host>(host: &H, object: ObjectId) -> Other {
    let is_claimed = host.ask(|holdings| holdings.busy().contains(&object));
    assert!(is_claimed, "nobody removes the copy that is the reason to remove another");
    let Some(extent) = host.locate(&object) else { return Other::NotNow };
    let Some(drive) = host.answering(extent.drive) else { return Other::NotNow };
    match read::verified(host, &*drive, object, &extent).await {
        Ok(Some(_)) if host.answers(&drive) && host.locate(&object).as_ref() == Some(&extent) => {
            Other::Good
        }
        Ok(Some(_)) => Other::NotNow,
        Ok(None) if host.is_stopping() => Other::NotNow,
        Ok(None) => Other::Doubted(Doubt::Suspect),
        Err(error) if error.is_one_place() => {
            Other::Doubted(Doubt::Unreadable(extent, error.to_string()))
        }
        Err(error) if error.is_missing() => Other::Doubted(Doubt::Suspect),
        Err(error) => {
            host.failed(&drive, &error).await;
            Other::NotNow
        }
    }
}

/// True if all of it is visible now; if not, the drive failed or is set aside.
async fn publish<H: Host>(
    host: &H,
    drive: &H::Drive,
    parcel: &Parcel,
    entries: &[(ObjectId, Entry)],
) -> bool {
    let logged = match publish::adopt(drive, parcel, entries).await {
        Ok(logged) => logged,
        Err(error) => {
            host.failed(drive, &error).await;
            return false;
        }
    };
    let is_shown = publish::show(host, drive, logged, None);
    if is_shown {
        host.tell(Told::Adopted(drive, &parcel.file(), entries.len()));
    }
    is_shown
}
