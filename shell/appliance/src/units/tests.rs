use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::id::Generation;
use model::manifest::{AssetVersion, File, Manifest, Trust};
use model::units::UnixSeconds;
use store::log::Change;
use store::marker::Reserve;

use super::*;
use crate::shared::tests::shared_on;

/// An appliance with one drive, on it a unit of objects of some blocks that the log does not know.
struct Scene {
    dir: tempfile::TempDir,
    shared: Shared,
    directory: Directory,
}

/// An object's bytes, all of them this one.
fn bytes(n: u8, len: usize) -> (ObjectId, Blocks, Vec<u8>) {
    let bytes = vec![n; len];
    let pieces: Vec<&[u8]> = bytes.chunks(BLOCK_LEN.as_usize()).collect();
    let single = pieces.len() == 1;
    let hash = |(index, piece): (u64, &&[u8])| model::object::block_hash(index, piece, single);
    let hashes = (0..).zip(&pieces).map(hash).collect();
    let blocks = Blocks::of_hashes(Bytes::of(len), hashes).unwrap();
    (blocks.id(), blocks, bytes)
}

impl Scene {
    /// Objects of these lengths; the manifest wants all of them.
    fn new(lens: &[usize]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        crate::format::format(dir.path(), Reserve::percent(1).unwrap(), UnixSeconds(1)).unwrap();
        let (drive, _) = Drive::open(dir.path(), DriveIndex(0)).unwrap();
        let contents: Vec<_> = (1..).zip(lens).map(|(n, len)| bytes(n, *len)).collect();
        let objects = contents.iter().map(|(object, _, bytes)| (*object, Bytes::of(bytes.len())));
        let parcel = Parcel::new(&objects.collect::<Vec<_>>()).unwrap();
        let (fd, _) = drive.allocate(&parcel.part().file(), parcel.file_len()).unwrap();
        for ((_, entry), (_, blocks, bytes)) in parcel.entries().iter().zip(&contents) {
            let mut pages = Pages::zeroed(entry.len);
            pages.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
            drive.write(&fd, pages.bytes(), entry.offset).unwrap();
            let table = store::layout::sections(entry.len).table_offset;
            drive.write_table(&fd, blocks, entry.offset + table).unwrap();
        }
        let (offset, pages) = parcel.end();
        drive.write_end(&fd, &pages, offset).unwrap();
        drive.rename(&parcel.part().file(), &parcel.file()).unwrap();
        let Parcel::Unit(directory) = parcel else { panic!("two objects at least") };
        let scene = Self { dir, shared: shared_on(vec![drive]), directory };
        scene.want(1, &scene.objects());
        scene
    }

    fn drive(&self) -> Arc<Drive> {
        self.shared.drive(DriveIndex(0)).unwrap()
    }

    fn path(&self, file: &FileName) -> PathBuf {
        Path::new(self.dir.path()).join(&*file.0)
    }

    /// Where the unit is.
    fn file(&self) -> PathBuf {
        self.path(&unit::unit_file(&self.directory.id()))
    }

    fn objects(&self) -> Vec<ObjectId> {
        self.directory.places().iter().map(|place| place.object).collect()
    }

    /// As if the unit had been published.
    fn hold(&self) {
        let drive = self.drive();
        for (object, entry) in self.directory.entries() {
            drive.log(&[Change::Published(object, entry)]).unwrap();
            self.shared.load(object, entry.extent(&object, drive.index()));
        }
    }

    fn held(&self) -> usize {
        self.shared.published(|_| true).len()
    }

    fn want(&self, generation: u64, objects: &[ObjectId]) {
        let content_type = "video/mp4".to_owned();
        let file = |place: &Place| File {
            object: place.object,
            len: place.len,
            content_type: content_type.clone(),
        };
        let wanted = self.directory.places().iter().filter(|p| objects.contains(&p.object));
        let version = AssetVersion {
            id: format!("film-{generation}").parse().unwrap(),
            asset: "film".parse().unwrap(),
            sources: vec![],
            modified: UnixSeconds(0),
            pace: None,
            files: wanted.map(|place| (format!("{}.m4s", place.object), file(place))).collect(),
        };
        assert!(self.shared.set_manifest(Manifest {
            appliance: "a1".parse().unwrap(),
            generation: Generation(generation),
            token_keys: vec![],
            trust: Trust::default(),
            siblings: Default::default(),
            versions: vec![Arc::new(version)],
        }));
    }

    /// What a filler does that is about to fetch all of the unit.
    fn take_up(&self) -> bool {
        let (drive, objects) = (self.drive(), self.objects());
        assert!(self.shared.claim_all(&objects));
        let is_there = take_up(&self.shared, &drive, self.directory.id());
        objects.iter().for_each(|object| self.shared.release(*object));
        is_there
    }
}

#[test]
fn a_unit_that_is_whole_is_taken_up_and_one_with_nothing_right_in_it_goes() {
    let scene = Scene::new(&[5000, 600_000]);
    assert!(scene.take_up());
    assert_eq!((scene.held(), scene.file().exists()), (2, true));
    let scene = Scene::new(&[5000, 6000]);
    let mut content = fs::read(scene.file()).unwrap();
    (content[0], content[8192]) = (9, 9);
    fs::write(scene.file(), content).unwrap();
    assert!(!scene.take_up());
    assert_eq!((scene.held(), scene.file().exists()), (0, false));
}

#[test]
fn a_stop_while_a_unit_is_verified_leaves_it_as_it_is() {
    let scene = Scene::new(&[5000, 600_000]);
    scene.shared.stop();
    assert!(!scene.take_up());
    assert!(scene.file().exists());
    audit(&scene.shared, &scene.drive(), scene.directory.id());
    assert!(scene.file().exists() && scene.drive().in_unit(scene.directory.id()).is_empty());
}

#[test]
fn a_drive_that_is_set_aside_while_a_unit_is_verified_keeps_it() {
    for is_held in [false, true] {
        let scene = Scene::new(&[5000, 600_000]);
        if is_held {
            scene.hold();
        }
        let drive = scene.drive();
        let logged = fs::metadata(scene.dir.path().join("index/log")).unwrap().len();
        scene.shared.set_drive_aside(&drive, "a test says so");
        audit(&scene.shared, &drive, scene.directory.id());
        assert!(!take_up(&scene.shared, &drive, scene.directory.id()), "nothing is visible");
        assert!(scene.file().exists(), "held: {is_held}");
        let left = fs::metadata(scene.dir.path().join("index/log")).unwrap().len();
        assert_eq!(left, logged, "nothing is written to it");
    }
}
