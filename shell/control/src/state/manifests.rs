//! Short manifests, and the documents of the versions that they name.
//!
//! ```text
//! plan ──> manifest ── asked for ──> each version by its document's hash ──> signed
//! appliance ── hashes that it lacks ──> a line for each: an appliance asks once for each
//! ```
//!
//! A document is hashed when a manifest first names it, O(its files), and made anew for each who
//! asks: 130 bytes and a quarter of a microsecond a file. Nothing of it is kept but 100 bytes a
//! version, for as long as a manifest or the catalogue has that version.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use model::id::DocumentId;
use model::manifest::{AssetVersion, Manifest};
use model::units::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wire::convert::{document_out, short_manifest_out};

/// The documents of versions that manifests name.
pub(crate) struct Manifests {
    known: Mutex<Known>,
    /// In units of [`UNIT`].
    room: Arc<Semaphore>,
}

#[derive(Default)]
struct Known {
    /// By where the version is in memory: no other is there while this one is known.
    ids: HashMap<usize, (Weak<AssetVersion>, DocumentId)>,
    versions: HashMap<DocumentId, Weak<AssetVersion>>,
    /// How many there were when those that are gone were left out last.
    left: usize,
}

/// Documents on their way to an appliance.
pub(crate) struct Lines {
    pub(crate) bytes: Vec<u8>,
    pub(crate) permit: OwnedSemaphorePermit,
}

/// No answer goes on after this. One document may be longer: of 131,072 files 20 MB.
const LINES_LEN: usize = 1 << 20;
/// Of a line, for each file, about: a path of 40 bytes.
const FILE_LEN: usize = 160;
const UNIT: Bytes = Bytes::mib(1);
/// So much is on its way at a time; more appliances are asked to come again.
const UNITS: u32 = 128;
/// Before this many versions nobody looks for those that are gone.
const LOOK_FROM: usize = 1024;

impl Manifests {
    pub(crate) fn new() -> Self {
        Self {
            known: Mutex::default(),
            room: Arc::new(Semaphore::new(
                usize::try_from(UNITS).unwrap_or(Semaphore::MAX_PERMITS),
            )),
        }
    }

    /// A manifest for the wire that names its versions by their documents. O(versions), and
    /// O(files) of each that none has named before. Nothing is held meanwhile.
    pub(crate) fn short(&self, manifest: &Manifest) -> wire::v1::manifest::Manifest {
        short_manifest_out(manifest, |version| self.id_of(version))
    }

    fn id_of(&self, version: &Arc<AssetVersion>) -> DocumentId {
        let place = Arc::as_ptr(version).addr();
        let known = self.known().ids.get(&place).map(|(_, id)| *id);
        let id = known.unwrap_or_else(|| DocumentId::of(&document_out(version)));
        let mut known = self.known();
        known.ids.insert(place, (Arc::downgrade(version), id));
        // Another of the same document may have been asked for last, and be gone first.
        known.versions.insert(id, Arc::downgrade(version));
        known.leave_out_what_is_gone();
        id
    }

    /// The documents that are there, in this order, as many as fit; none if too many are on their
    /// way. O(files of these).
    pub(crate) fn lines(&self, wanted: &[DocumentId]) -> Option<Lines> {
        let mut found: Vec<Arc<AssetVersion>> = Vec::new();
        let mut len = 0;
        {
            let known = self.known();
            let there = wanted.iter().filter_map(|id| known.versions.get(id)?.upgrade());
            for version in there {
                len += version.files.len() * FILE_LEN;
                found.push(version);
                if LINES_LEN <= len {
                    break;
                }
            }
        }
        // Before anything is made.
        let units = (Bytes::of(len).0 / UNIT.0 + 1).min(u64::from(UNITS));
        let units = u32::try_from(units).unwrap_or(UNITS);
        let permit = Arc::clone(&self.room).try_acquire_many_owned(units).ok()?;
        let line = |version: Arc<AssetVersion>| [&document_out(&version)[..], b"\n"].concat();
        Some(Lines { bytes: found.into_iter().flat_map(line).collect(), permit })
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// O(versions) once as many have come as were left, so O(1) for each.
    fn leave_out_what_is_gone(&mut self) {
        if self.ids.len() < (2 * self.left).max(LOOK_FROM) {
            return;
        }
        self.ids.retain(|_, (version, _)| 0 < version.strong_count());
        self.versions.retain(|_, version| 0 < version.strong_count());
        self.left = self.ids.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::writer::withdrawals::tests::version;
    use model::object::{BlockHash, Blocks};

    fn films(count: u64) -> Vec<Arc<AssetVersion>> {
        let object = Blocks::of_hashes(Bytes(5), vec![BlockHash([1; 32])]).unwrap();
        let version = |n| version(n, std::slice::from_ref(&object)).files;
        (1..=count).map(version).collect()
    }

    #[test]
    fn a_document_is_there_as_long_as_its_version_and_has_its_hash() {
        let manifests = Manifests::new();
        let films = films(3);
        let ids: Vec<_> = films.iter().map(|film| manifests.id_of(film)).collect();
        assert_eq!(manifests.id_of(&films[1]), ids[1]);
        let lines = |wanted: &[DocumentId]| manifests.lines(wanted).unwrap().bytes;
        let all = lines(&[ids[2], DocumentId([7; 32]), ids[0]]);
        let all: Vec<_> = all.split_inclusive(|byte| *byte == b'\n').collect();
        let hashes = all.iter().map(|line| DocumentId::of(line.strip_suffix(b"\n").unwrap()));
        assert_eq!(hashes.collect::<Vec<_>>(), [ids[2], ids[0]]);
        drop(films);
        assert_eq!(lines(&ids), b"");
    }

    #[test]
    fn a_document_is_there_as_long_as_one_of_two_versions_that_have_it() {
        let manifests = Manifests::new();
        let [one, two] = [(); 2].map(|()| films(1).remove(0));
        let id = manifests.id_of(&one);
        assert_eq!(manifests.id_of(&two), id);
        assert_eq!(manifests.id_of(&one), id, "an appliance asks for an older manifest");
        drop(two);
        assert!(!manifests.lines(&[id]).unwrap().bytes.is_empty());
    }

    #[test]
    fn versions_that_are_gone_are_left_out_when_as_many_have_come() {
        let manifests = Manifests::new();
        let kept = films(10);
        kept.iter().for_each(|film| _ = manifests.id_of(film));
        let many = films(3000);
        many.iter().for_each(|film| _ = manifests.id_of(film));
        drop(many);
        let more = films(3000);
        let most = more.iter().map(|film| {
            manifests.id_of(film);
            manifests.known().ids.len()
        });
        assert!(most.max().unwrap() <= 2 * 3010 + 10);
        let known = manifests.known();
        assert!(known.ids.len() <= 2 * 3010 && known.versions.len() <= 2 * 3010);
        let ids = &known.ids;
        assert!(kept.iter().all(|film| ids.contains_key(&Arc::as_ptr(film).addr())));
    }

    #[test]
    fn no_more_than_so_much_is_on_its_way() {
        let manifests = Manifests::new();
        let films = films(1);
        let id = manifests.id_of(&films[0]);
        let under_way: Vec<_> = (0..UNITS).map(|_| manifests.lines(&[id]).unwrap()).collect();
        assert!(manifests.lines(&[id]).is_none());
        drop(under_way);
        assert!(manifests.lines(&[id]).is_some());
    }
}
