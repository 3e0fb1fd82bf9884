//! Says what is on a drive, in one file of objects, or what seals here. Reads only; needs no lock.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use model::drives::DriveIndex;
use model::extent::FileName;
use model::id::ObjectId;
use model::limits::DIRECT_ALIGN;
use model::object::{BLOCK_LEN, Blocks, block_len};
use model::status::DriveStatus;
use model::units::Bytes;
use rustix::fs::{Mode, OFlags};
use serde::Serialize;
use store::layout;
use store::log;
use store::unit::{self, Directory, Place, UnitError};
use upkeep::{at_once, read};

use crate::serving::aead::{self, InspectedAead};
use crate::serving::incidents;
use crate::storage::drives::{self, DriveError, ObjectFileError, OpenError, Ungated, to};
use crate::storage::format::gigabytes;
use crate::storage::pages::Pages;

/// What `inspect` found.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Inspected {
    Drive(InspectedDrive),
    /// An object's file.
    Object(InspectedObject),
    Unit(InspectedUnit),
    /// A response that went badly.
    Incident(incidents::Seen),
    /// What seals on this machine.
    Aead(InspectedAead),
}

/// A drive, from its marker and its index.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct InspectedDrive {
    /// As a report would tell of it.
    #[serde(flatten)]
    pub drive: wire::v1::report::Drive,
    /// Share that is never filled.
    pub reserve: String,
    /// Smallest unit that direct I/O took when formatted.
    pub direct_align_bytes: u64,
    /// When it was formatted.
    pub created_unix_s: u64,
    /// Bytes of the objects in its index.
    pub object_bytes: u64,
    /// Of these, in units.
    pub objects_in_units: u64,
    /// Units that its index has objects in.
    pub units: u64,
    /// Files on their way.
    pub parts: u64,
    /// Records in the log since the snapshot.
    pub log_records: u64,
    /// Bytes of a torn write at the end of the log: cut at the next start.
    pub log_torn_bytes: u64,
    /// What is wrong with the index; it is then made anew from the files at the next start.
    pub damage: Option<String>,
}

/// One object's file, verified.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InspectedObject {
    pub path: PathBuf,
    /// The object's id, from the footer.
    pub object: String,
    pub len: u64,
    pub blocks: u64,
    /// The blocks whose bytes do not have their hash.
    pub wrong_blocks: Vec<u64>,
}

/// A unit, every object in it verified, whether it is still held or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InspectedUnit {
    pub path: PathBuf,
    /// The unit's id, from its directory.
    pub unit: String,
    /// Size of the file.
    pub file_bytes: u64,
    /// What is in it, in the order of its directory.
    pub objects: Vec<InUnit>,
}

/// An object in a unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InUnit {
    /// Its id, from the directory.
    pub object: String,
    /// Where in the file it begins.
    pub offset: u64,
    pub len: u64,
    /// What is wrong with it, if something is.
    pub wrong: Option<String>,
}

/// Why it cannot be inspected.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Neither an object's file nor a unit, or not all of one.
    #[error("{path}: {error}")]
    Object { path: PathBuf, error: ObjectFileError },
    #[error(transparent)]
    Aead(#[from] tls::NoKernel),
    #[error("{path}: {error}")]
    Drive { path: PathBuf, error: DriveError },
}

/// Inspects a drive's directory, an object's file or a unit.
pub fn inspect(path: &Path) -> Result<Inspected, InspectError> {
    if path.is_dir() {
        drive(path).map(Inspected::Drive)
    } else if let Some(seen) = incidents::read(path) {
        Ok(Inspected::Incident(seen))
    } else {
        file(path)
    }
}

/// Measures what could seal on this machine.
pub fn inspect_aead() -> Result<Inspected, InspectError> {
    Ok(Inspected::Aead(aead::inspect()?))
}

impl Inspected {
    /// True if all that was found is as it should be.
    pub fn is_sound(&self) -> bool {
        match self {
            Self::Drive(drive) => drive.damage.is_none(),
            Self::Object(object) => object.wrong_blocks.is_empty(),
            Self::Unit(unit) => unit.objects.iter().all(|object| object.wrong.is_none()),
            Self::Incident(_) => true,
            Self::Aead(aead) => aead.is_sound(),
        }
    }

    /// The text for an operator.
    pub fn text(&self) -> String {
        match self {
            Self::Drive(drive) => format!(
                "{}: drive {}\n  {} may be filled ({} kept free), {} of it free\n  {} objects, {}, \
                 {} of them in {} units; {} on their way\n  index: {} records since \
                 the snapshot, {} B torn; {}",
                drive.drive.path,
                drive.drive.id,
                gigabytes(drive.drive.capacity_bytes),
                drive.reserve,
                gigabytes(drive.drive.free_bytes),
                drive.drive.objects,
                gigabytes(drive.object_bytes),
                drive.objects_in_units,
                drive.units,
                drive.parts,
                drive.log_records,
                drive.log_torn_bytes,
                drive.damage.as_deref().unwrap_or("sound"),
            ),
            Self::Aead(aead) => aead.text(),
            Self::Incident(seen) => {
                format!(
                    "what was slow: {} ({})\n\n{}",
                    seen.slow,
                    seen.reason,
                    seen.text.trim_end()
                )
            }
            Self::Unit(unit) => {
                let line = |object: &InUnit| {
                    let state = object.wrong.as_deref().unwrap_or("every block has its hash");
                    let (at, len) = (Bytes(object.offset), Bytes(object.len));
                    format!("\n  {} at {at}, {len}; {state}", object.object)
                };
                let objects: String = unit.objects.iter().map(line).collect();
                let (path, count) = (unit.path.display(), unit.objects.len());
                let size = Bytes(unit.file_bytes);
                format!("{path}: unit {}\n  {count} objects in {size}{objects}", unit.unit)
            }
            Self::Object(object) => format!(
                "{}: object {}\n  {} in {} blocks; {}",
                object.path.display(),
                object.object,
                Bytes(object.len),
                object.blocks,
                if self.is_sound() {
                    "every block has its hash".to_owned()
                } else {
                    format!("wrong blocks: {:?}", object.wrong_blocks)
                },
            ),
        }
    }
}

fn drive(path: &Path) -> Result<InspectedDrive, InspectError> {
    let failed = |error| InspectError::Drive { path: path.to_owned(), error };
    let root = drives::open_root(path)?;
    let (marker, _) = drives::read_marker(path, &root)?;
    let snapshot = drives::read_small(&root, layout::SNAPSHOT).map_err(failed)?;
    let bytes = drives::read_small(&root, layout::LOG).map_err(failed)?.unwrap_or_default();
    let replay = log::replay(marker.id, snapshot.as_deref(), &bytes);
    let parts = drives::list(&root, &FileName(layout::FILL.into())).map_err(failed)?;
    let stat = rustix::fs::fstatvfs(&root)
        .map_err(|errno| failed(to("measure", "the filesystem")(errno)))?;
    let space = drives::space(&stat, &marker);
    let units: BTreeSet<_> = replay.entries.values().filter_map(|entry| entry.unit).collect();
    let status = DriveStatus {
        id: Some(marker.id),
        capacity: space.capacity,
        free: space.free,
        objects: Bytes::of(replay.entries.len()).0,
        ..DriveStatus::unknown(DriveIndex(0), path.to_owned())
    };
    Ok(InspectedDrive {
        drive: (&status).into(),
        reserve: marker.reserve.to_string(),
        direct_align_bytes: marker.direct_align.0,
        created_unix_s: marker.created.0,
        object_bytes: replay.entries.values().map(|entry| entry.len.0).sum(),
        objects_in_units: Bytes::of(replay.entries.values().filter_map(|e| e.unit).count()).0,
        units: Bytes::of(units.len()).0,
        parts: Bytes::of(parts.len()).0,
        log_records: replay.log_len.0 / Bytes::of(log::RECORD_LEN).0,
        log_torn_bytes: replay.torn.0,
        damage: replay.damage.map(|damage| damage.to_string()),
    })
}

/// A file says by its last page what it is; one that says nothing is taken for what its name says.
fn file(path: &Path) -> Result<Inspected, InspectError> {
    let failed = |error| InspectError::Drive { path: path.to_owned(), error };
    let refused = |error| InspectError::Object { path: path.to_owned(), error };
    let name = FileName(path.display().to_string().into());
    let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::empty())
        .map_err(|errno| failed(to("open", &name.0)(errno)))?;
    let is_unit = path.parent().is_some_and(|folder| folder.ends_with(unit::UNITS));
    match at_once(read::directory_of(&Ungated(&fd), &fd)) {
        Ok(directory) => return unit(path, &fd, &directory).map_err(failed),
        Err(ObjectFileError::Unit(UnitError::Magic)) if !is_unit => {}
        Err(error) => return Err(refused(error)),
    }
    let footer = at_once(read::footer(&Ungated(&fd), &fd)).map_err(refused)?;
    let place = (Bytes::ZERO, footer.len);
    let blocks = at_once(read::table(&Ungated(&fd), &fd, footer.object, place)).map_err(refused)?;
    Ok(Inspected::Object(InspectedObject {
        path: path.to_owned(),
        object: blocks.id().to_string(),
        len: blocks.len().0,
        blocks: Bytes::of(blocks.hashes().len()).0,
        wrong_blocks: wrong_blocks(&fd, &blocks, Bytes::ZERO).map_err(failed)?,
    }))
}

fn unit(path: &Path, fd: &OwnedFd, directory: &Directory) -> Result<Inspected, DriveError> {
    let object = |place: &Place| -> Result<InUnit, DriveError> {
        let (object, lies) = (place.object, (place.offset, place.len));
        let wrong = match at_once(read::table(&Ungated(fd), fd, object, lies)) {
            Ok(blocks) => {
                let wrong = wrong_blocks(fd, &blocks, place.offset)?;
                (!wrong.is_empty()).then(|| format!("wrong blocks: {wrong:?}"))
            }
            Err(ObjectFileError::Drive(error)) => return Err(error),
            Err(error) => Some(error.to_string()),
        };
        let (offset, len) = (place.offset.0, place.len.0);
        Ok(InUnit { object: place.object.to_string(), offset, len, wrong })
    };
    Ok(Inspected::Unit(InspectedUnit {
        path: path.to_owned(),
        unit: ObjectId(directory.id().0).to_string(),
        file_bytes: directory.file_len().0,
        objects: directory.places().iter().map(object).collect::<Result<_, _>>()?,
    }))
}

/// Reads a whole object and says which of its blocks are not what their hash says.
fn wrong_blocks(fd: &OwnedFd, blocks: &Blocks, base: Bytes) -> Result<Vec<u64>, DriveError> {
    let mut buffer = Pages::zeroed(BLOCK_LEN);
    let mut wrong = Vec::new();
    for index in 0..Bytes::of(blocks.hashes().len()).0 {
        let len = block_len(blocks.len(), index);
        let pages = &mut buffer[..len.align_up(DIRECT_ALIGN).as_usize()];
        drives::read_at(fd, pages, base + Bytes(index * BLOCK_LEN.0))?;
        if !blocks.verify(index, &pages[..len.as_usize()]) {
            wrong.push(index);
        }
    }
    Ok(wrong)
}
