//! Makes a directory a drive.
//!
//! The marker comes last: a format that was cut short leaves no drive, and can be run again.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use model::id::DriveId;
use model::limits::DIRECT_ALIGN;
use model::units::{Bytes, UnixSeconds};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use serde::Serialize;
use store::layout;
use store::log::{self, Sequence};
use store::marker::{Marker, Reserve};
use store::unit;

use crate::storage::drives::{
    self, DriveError, OpenError, list, open_root, read_marker, replace, to,
};
use crate::storage::pages::Pages;

/// What `format` made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Formatted {
    /// The directory.
    pub path: PathBuf,
    /// The drive's UUID.
    pub id: String,
    /// Share that is never filled.
    pub reserve: String,
    /// Smallest unit that direct I/O takes here.
    pub direct_align_bytes: u64,
    /// What may be filled.
    pub capacity_bytes: u64,
    pub free_bytes: u64,
    /// True if the directory lies on the root filesystem: right for a trial; otherwise most likely
    /// a drive that is not mounted.
    pub on_root_filesystem: bool,
}

/// Why a directory was not formatted.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    #[error("{path} is drive {id} already: nothing was changed. To begin anew, empty it first")]
    Formatted { path: PathBuf, id: DriveId },
    #[error(
        "{path} holds \"{name}\": a drive is a directory of its own, on a filesystem of its own. \
         Nothing was changed"
    )]
    NotEmpty { path: PathBuf, name: String },
    /// It cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(
        "{path} takes no direct I/O in units of {DIRECT_ALIGN} ({error}): use ext4 or XFS on a \
         local drive"
    )]
    NoDirectIo { path: PathBuf, error: DriveError },
    #[error("{path}: {error}. It is not a drive yet: run format again")]
    Drive { path: PathBuf, error: DriveError },
}

const PROBE: &str = "fill/probe";
const MARKER_ASIDE: &str = "nearcast-drive.toml.new";

/// Makes `path`, an empty directory, a drive.
pub fn format(path: &Path, reserve: Reserve, now: UnixSeconds) -> Result<Formatted, FormatError> {
    let root = open_root(path)?;
    refuse_what_is_in_use(path, &root)?;
    let failed = |error| FormatError::Drive { path: path.to_owned(), error };
    make_folders(&root).map_err(failed)?;
    let direct_align =
        probe(&root).map_err(|error| FormatError::NoDirectIo { path: path.to_owned(), error })?;
    let marker = Marker { id: draw_id(), reserve, direct_align, created: now };
    let snapshot = log::snapshot(marker.id, Sequence(0), &std::collections::BTreeMap::new());
    replace(&root, layout::LOG, &[]).map_err(failed)?;
    replace(&root, layout::SNAPSHOT, &snapshot).map_err(failed)?;
    drives::sync_at(&root, ".").map_err(failed)?;
    replace(&root, layout::MARKER, marker.to_string().as_bytes()).map_err(failed)?;

    let stat = rustix::fs::fstatvfs(&root)
        .map_err(|errno| failed(to("measure", "the filesystem")(errno)))?;
    let space = drives::space(&stat, &marker);
    Ok(Formatted {
        path: path.to_owned(),
        id: marker.id.to_string(),
        reserve: reserve.to_string(),
        direct_align_bytes: direct_align.0,
        capacity_bytes: space.capacity.0,
        free_bytes: space.free.0,
        on_root_filesystem: on_root_filesystem(&root),
    })
}

impl Formatted {
    /// The text for an operator.
    pub fn text(&self) -> String {
        let warning = if self.on_root_filesystem {
            "\nnote: this directory is on the root filesystem. Right for a trial; if a drive \
             should be mounted here, mount it, and format that."
        } else {
            ""
        };
        format!(
            "{} is now drive {}: {} may be filled ({} kept free), {} of it free, direct I/O in \
             {}{warning}",
            self.path.display(),
            self.id,
            gigabytes(self.capacity_bytes),
            self.reserve,
            gigabytes(self.free_bytes),
            Bytes(self.direct_align_bytes),
        )
    }
}

/// Bytes as drives are sold, with one decimal.
pub(crate) fn gigabytes(bytes: u64) -> String {
    format!("{}.{} GB", bytes / 1_000_000_000, bytes / 100_000_000 % 10)
}

/// A drive is refused, and so is everything that is not what a cut-short format leaves.
fn refuse_what_is_in_use(path: &Path, root: &OwnedFd) -> Result<(), FormatError> {
    match read_marker(path, root) {
        Ok((marker, _)) => {
            return Err(FormatError::Formatted { path: path.to_owned(), id: marker.id });
        }
        Err(OpenError::NoMarker(_)) => {}
        Err(error) => return Err(error.into()),
    }
    let failed = |error| FormatError::Drive { path: path.to_owned(), error };
    let refused =
        |name: &str| FormatError::NotEmpty { path: path.to_owned(), name: name.to_owned() };
    let folders = [layout::OBJECTS, unit::UNITS, layout::FILL, layout::INDEX];
    let ours = [&folders[..], &[MARKER_ASIDE, "lost+found"]].concat();
    let names = list(root, &model::extent::FileName(".".into())).map_err(failed)?;
    if let Some(name) = names.iter().find(|name| !ours.contains(&name.as_str())) {
        return Err(refused(name));
    }
    for folder in layout::folders().filter(|folder| &*folder.0 != layout::OBJECTS) {
        let left = match list(root, &folder) {
            Ok(names) => names,
            Err(error) if error.is_missing() => continue,
            Err(error) => return Err(failed(error)),
        };
        let index = ["log", "log.new", "snapshot", "snapshot.new", "probe"];
        if let Some(name) = left.iter().find(|name| !index.contains(&name.as_str())) {
            return Err(refused(&format!("{}/{name}", folder.0)));
        }
    }
    Ok(())
}

fn make_folders(root: &OwnedFd) -> Result<(), DriveError> {
    for folder in layout::folders() {
        match rustix::fs::mkdirat(root, &*folder.0, Mode::from_raw_mode(0o750)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(to("make", &folder.0)(errno)),
        }
    }
    // An empty folder is in its parent's entry: the two parents are all there is to flush.
    drives::sync_at(root, layout::OBJECTS)?;
    drives::sync_at(root, ".")
}

/// Writes and reads a page with direct I/O in our unit, then tries whether 512 bytes do as well.
fn probe(root: &OwnedFd) -> Result<Bytes, DriveError> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::DIRECT | OFlags::CLOEXEC;
    let file = rustix::fs::openat(root, PROBE, flags, Mode::from_raw_mode(0o640))
        .map_err(to("open for direct I/O", PROBE))?;
    let mut page = Pages::zeroed(DIRECT_ALIGN);
    page.fill(0x5a);
    rustix::io::pwrite(&file, &page, 0).map_err(to("write with direct I/O to", PROBE))?;
    page.fill(0);
    rustix::io::pread(&file, &mut page[..], 0).map_err(to("read with direct I/O from", PROBE))?;
    if page.iter().any(|byte| *byte != 0x5a) {
        return Err(to("read back what was written to", PROBE)(Errno::IO));
    }
    let small = rustix::io::pwrite(&file, &page[..512], 512);
    rustix::fs::unlinkat(root, PROBE, AtFlags::empty()).map_err(to("remove", PROBE))?;
    Ok(if small == Ok(512) { Bytes(512) } else { DIRECT_ALIGN })
}

/// A random UUID (RFC 9562, version 4).
fn draw_id() -> DriveId {
    let mut id = [0; 16];
    aws_lc_rs::rand::fill(&mut id).expect("the kernel gives random bytes once it has started");
    id[6] = id[6] & 0x0f | 0x40;
    id[8] = id[8] & 0x3f | 0x80;
    DriveId(id)
}

fn on_root_filesystem(root: &OwnedFd) -> bool {
    let device = |stat: rustix::fs::Stat| stat.st_dev;
    let here = rustix::fs::fstat(root).map(device);
    here.is_ok() && here == rustix::fs::stat("/").map(device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::drives::Drive;
    use model::extent::DriveIndex;

    fn ten_percent() -> Reserve {
        Reserve::percent(10).unwrap()
    }

    #[test]
    fn a_formatted_directory_opens_empty_and_is_not_formatted_twice() {
        let dir = tempfile::tempdir().unwrap();
        let formatted = format(dir.path(), ten_percent(), UnixSeconds(7)).unwrap();
        assert!(0 < formatted.free_bytes && formatted.free_bytes <= formatted.capacity_bytes);
        assert!(formatted.text().contains(&formatted.id), "{}", formatted.text());
        let (drive, loaded) = Drive::open(dir.path(), DriveIndex(0)).unwrap();
        assert_eq!(drive.marker().id.to_string(), formatted.id);
        assert_eq!(loaded, drives::Loaded::default());
        let again = format(dir.path(), ten_percent(), UnixSeconds(8)).unwrap_err();
        assert!(matches!(again, FormatError::Formatted { .. }), "{again}");
    }

    #[test]
    fn a_directory_with_anything_else_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("holiday.jpg"), "x").unwrap();
        let refused = format(dir.path(), ten_percent(), UnixSeconds(7)).unwrap_err();
        assert!(refused.to_string().contains("holiday.jpg"), "{refused}");
        assert!(!dir.path().join("objects").exists(), "nothing was changed");
        let missing = dir.path().join("nowhere");
        assert!(format(&missing, ten_percent(), UnixSeconds(7)).is_err());
    }

    #[test]
    fn a_format_that_was_cut_short_is_no_drive_and_can_be_run_again() {
        let dir = tempfile::tempdir().unwrap();
        format(dir.path(), ten_percent(), UnixSeconds(7)).unwrap();
        std::fs::remove_file(dir.path().join(layout::MARKER)).unwrap();
        let refused = Drive::open(dir.path(), DriveIndex(0)).unwrap_err();
        assert!(refused.to_string().contains("nearcast-appliance format"), "{refused}");
        format(dir.path(), ten_percent(), UnixSeconds(8)).unwrap();
        std::fs::remove_file(dir.path().join(layout::MARKER)).unwrap();
        std::fs::write(dir.path().join("objects/ab/film"), "x").unwrap();
        let refused = format(dir.path(), ten_percent(), UnixSeconds(9)).unwrap_err();
        assert!(refused.to_string().contains("objects/ab/film"), "{refused}");
    }
}
