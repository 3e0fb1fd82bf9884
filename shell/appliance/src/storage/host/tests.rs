use std::cell::Cell;
use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};

use holdings::Doubt;
use iosched::drive::Class;
use model::extent::Extent;
use model::id::ObjectId;
use model::limits::SMALL_OBJECT_MAX;
use model::object::{BLOCK_LEN, Blocks};
use model::units::{BitsPerSecond, UnixSeconds};
use store::health::Verdict;
use store::log::Change;
use store::marker::Reserve;
use store::parcel::Parcel;
use store::unit::{self, Directory, UnitId};
use upkeep::copying::{self, Ended, Source};
use upkeep::units::{Old, Unread};
use upkeep::{Drive as _, DriveError, Ledger as _, at_once, audit as audits, keeper, small, units};

use super::*;
use crate::storage::gate::{Gate, Mode, Writes};
use crate::storage::mounts::Medium;
use crate::storage::pages::Pages;
use crate::storage::shared::tests::{aligned, drives, manifest, put, shared_on};

/// An appliance with two drives, on the first a unit that the log does not know.
struct Scene {
    dir: tempfile::TempDir,
    shared: Shared,
    directory: Directory,
}

fn take_up(shared: &Shared, drive: &Drive, unit: UnitId) -> bool {
    at_once(units::take_up(shared, drive, unit))
}

fn audit(shared: &Shared, drive: &Drive, unit: UnitId) {
    at_once(units::audit(shared, drive, unit));
}

fn settle(shared: &Shared, unit: UnitId, old: &mut VecDeque<Old<Shared>>) -> bool {
    at_once(units::settle(shared, DriveIndex(0), unit, old))
}

fn flip(path: &Path, at: usize) {
    let mut content = fs::read(path).unwrap();
    content[at] ^= 1;
    // In place: a file that is open stays the same file.
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &content, 0).unwrap();
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
        let [drive, other] = [0, 1].map(|index| {
            let path = dir.path().join(index.to_string());
            fs::create_dir(&path).unwrap();
            crate::storage::format::format(&path, Reserve::percent(1).unwrap(), UnixSeconds(1))
                .unwrap();
            Drive::open(&path, DriveIndex(index)).unwrap().0
        });
        let contents: Vec<_> = (1..).zip(lens).map(|(n, len)| bytes(n, *len)).collect();
        let objects = contents.iter().map(|(object, _, bytes)| (*object, Bytes::of(bytes.len())));
        let parcel = Parcel::new(&objects.collect::<Vec<_>>()).unwrap();
        let (fd, _) = at_once(drive.allocate(&parcel.part().file(), parcel.file_len())).unwrap();
        for ((_, entry), (_, blocks, bytes)) in parcel.entries().iter().zip(&contents) {
            at_once(drive.write(&fd, &aligned(bytes), entry.offset)).unwrap();
            let table = store::layout::sections(entry.len);
            if table.table_len != Bytes::ZERO {
                let hashes = blocks.hashes().iter().flat_map(|hash| hash.0);
                let pages = aligned(&hashes.collect::<Vec<u8>>());
                at_once(drive.write(&fd, &pages, entry.offset + table.table_offset)).unwrap();
            }
        }
        let (offset, pages) = parcel.end();
        at_once(drive.write(&fd, &aligned(&pages), offset)).unwrap();
        at_once(drive.rename(&parcel.part().file(), &parcel.file())).unwrap();
        let Parcel::Unit(directory) = parcel else { panic!("two objects at least") };
        let scene = Self { dir, shared: shared_on(vec![drive, other]), directory };
        scene.want(1, &scene.objects());
        scene
    }

    fn drive(&self) -> Arc<Drive> {
        self.shared.slots.drive(DriveIndex(0)).unwrap()
    }

    /// A file or folder of a drive.
    fn path(&self, drive: u8, file: &str) -> PathBuf {
        self.dir.path().join(drive.to_string()).join(file)
    }

    /// Where the unit is.
    fn file(&self) -> PathBuf {
        self.path(0, &unit::unit_file(&self.directory.id()).0)
    }

    /// Part files of a drive.
    fn parts(&self, drive: u8) -> Vec<PathBuf> {
        let files = fs::read_dir(self.path(drive, "fill")).unwrap();
        files.map(|file| file.unwrap().path()).collect()
    }

    /// Where it is held.
    fn place(&self, n: usize) -> (u8, String) {
        let extent = self.shared.locate(&self.objects()[n]).unwrap();
        (extent.drive.0, extent.file.0.to_string())
    }

    /// Doubts, which only a plan takes.
    fn suspects(&self) -> Vec<(ObjectId, Doubt)> {
        at_once(keeper::plan(&self.shared));
        let errands = [0, 1].map(|drive| self.shared.peek_errand(DriveIndex(drive)));
        errands.into_iter().flatten().flat_map(|chores| chores.suspects).collect()
    }

    fn flip(&self, at: usize) {
        flip(&self.file(), at);
    }

    /// Copies all of the unit to this drive; `then` is done before the block of this number, the
    /// hashes of each object counted as one.
    fn copy(&self, to: u8, before: usize, then: impl Fn()) -> Ended {
        let (drive, other) = (self.drive(), self.shared.slots.drive(DriveIndex(to)).unwrap());
        let (file, places) = (unit::unit_file(&self.directory.id()), self.directory.places());
        let count = Cell::new(0);
        let is_of_use = |_: &ObjectId| {
            count.set(count.get() + 1);
            if count.get() == before {
                then();
            }
            true
        };
        let from = Source { drive: &*drive, file: &file, places };
        let mut buffer = Pages::zeroed(BLOCK_LEN);
        let copy = copying::copy(&self.shared, from, &*other, &is_of_use, &mut buffer);
        assert!(self.shared.claim_all(&self.objects()));
        let ended = at_once(copy);
        self.shared.release_all(&self.objects());
        assert!(before <= count.get(), "asked before {} blocks", count.get());
        ended
    }

    fn objects(&self) -> Vec<ObjectId> {
        self.directory.places().iter().map(|place| place.object).collect()
    }

    /// As if the unit had been published.
    fn hold(&self) {
        let drive = self.drive();
        for (object, entry) in self.directory.entries() {
            at_once(drive.log(&[Change::Published(object, entry)])).unwrap();
            at_once(self.shared.load([(object, entry.extent(&object, drive.index()))].into_iter()));
        }
    }

    fn held(&self) -> usize {
        self.shared.published_count()
    }

    fn want(&self, generation: u64, objects: &[ObjectId]) {
        let wanted = self.directory.places().iter().filter(|p| objects.contains(&p.object));
        let wanted: Vec<_> = wanted.map(|place| (place.object, place.len)).collect();
        assert!(at_once(self.shared.set_manifest(manifest(generation, &wanted))));
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

/// What a drive says of a bad sector.
fn bad_place() -> DriveError {
    crate::storage::drives::to("read", "it")(rustix::io::Errno::IO)
}

#[test]
fn a_unit_that_is_whole_is_taken_up_and_one_with_nothing_right_in_it_goes() {
    let scene = Scene::new(&[5000, 600_000]);
    assert!(scene.take_up());
    assert_eq!((scene.held(), scene.file().exists()), (2, true));
    let scene = Scene::new(&[5000, 6000]);
    [0, 8192].into_iter().for_each(|at| scene.flip(at));
    assert!(!scene.take_up());
    assert_eq!((scene.held(), scene.file().exists()), (0, false));
}

#[test]
fn a_unit_that_cannot_be_read_counts_once_against_its_drive_however_often_it_is_looked_at() {
    let scene = Scene::new(&[5000, 600_000]);
    scene.hold();
    let (drive, unit) = (scene.drive(), scene.directory.id());
    // Where the directory is: what it says it cannot be read for is said below.
    scene.flip(Bytes(fs::metadata(scene.file()).unwrap().len()).as_usize() - 4096);
    let look = || at_once(units::unreadable(&scene.shared, &*drive, unit, &bad_place()));
    assert!(scene.shared.claim_all(&scene.objects()));
    for _ in 0..10 {
        assert_eq!(look(), Unread::NotNow, "somebody works in it");
    }
    scene.objects().iter().for_each(|object| scene.shared.release(*object));
    assert_eq!((look(), scene.held(), scene.file().exists()), (Unread::Lost, 0, false));
    assert!(!drive.is_aside());
    let more = [(); 3].map(|()| drive.object_failed(scene.shared.ledger.now()));
    assert_eq!(more.map(|it| it == Verdict::SetDriveAside), [false, false, true], "counted once");
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
        let logged = fs::metadata(scene.path(0, "index/log")).unwrap().len();
        at_once(scene.shared.set_aside(&drive, Cause::Miswritten));
        audit(&scene.shared, &drive, scene.directory.id());
        assert!(!take_up(&scene.shared, &drive, scene.directory.id()), "nothing is visible");
        assert!(scene.file().exists(), "held: {is_held}");
        let left = fs::metadata(scene.path(0, "index/log")).unwrap().len();
        assert_eq!(left, logged, "nothing is written to it");
    }
}

#[test]
fn what_little_is_wanted_of_a_unit_is_copied_and_the_rest_goes() {
    let scene = Scene::new(&[5000, 600_000]);
    scene.hold();
    scene.want(2, &scene.objects()[..1]);
    let mut old = VecDeque::new();
    assert!(settle(&scene.shared, scene.directory.id(), &mut old));
    assert!(scene.place(0).1.starts_with("objects/"), "{:?}", scene.place(0));
    assert!(scene.file().exists(), "whoever has not read of the new place opens the old one");
    assert!(!scene.shared.claim_all(&scene.objects()), "nobody changes it meanwhile");
    old.into_iter().for_each(|unit| at_once(unit.remove(&scene.shared)));
    assert_eq!((scene.held(), scene.file().exists(), scene.suspects()), (1, false, vec![]));
    assert!(scene.shared.claim_all(&scene.objects()));
}

#[test]
fn whoever_could_not_read_the_old_file_says_nothing_of_a_copy_on_the_same_drive() {
    let scene = Scene::new(&[5000, 600_000]);
    scene.hold();
    let (host, drive, object) = (&scene.shared, scene.drive(), scene.objects()[0]);
    let old = host.locate(&object).unwrap();
    scene.want(2, &[object]);
    let mut gone = VecDeque::new();
    assert!(settle(&scene.shared, scene.directory.id(), &mut gone));
    gone.into_iter().for_each(|unit| at_once(unit.remove(host)));
    let new = host.locate(&object).unwrap();
    assert!(old.drive == new.drive && old.file != new.file);
    let bad_place = bad_place();
    at_once(keeper::read_failed(host, object, &old, bad_place.errno()));
    assert_eq!(scene.suspects(), []);
    at_once(keeper::unreadable(host, &*drive, object, &old, &bad_place));
    at_once(keeper::missing(host, &*drive, object, &old));
    assert_eq!(scene.held(), 1);
    at_once(keeper::read_failed(host, object, &new, bad_place.errno()));
    let why = bad_place.errno().unwrap().to_string();
    assert_eq!(scene.suspects(), [(object, Doubt::Unreadable(new.clone(), why))]);
    at_once(keeper::missing(host, &*drive, object, &new));
    assert_eq!(scene.held(), 1, "it has a file");
    fs::remove_file(scene.path(0, &new.file.0)).unwrap();
    at_once(keeper::missing(host, &*drive, object, &new));
    assert_eq!(scene.held(), 0);
}

#[test]
fn an_unreadable_object_counts_once_against_its_drive_when_it_goes() {
    let scene = Scene::new(&[5000, 600_000]);
    scene.hold();
    let (host, drive, object) = (&scene.shared, scene.drive(), scene.objects()[0]);
    let extent = host.locate(&object).unwrap();
    let bad_place = bad_place();
    let meet = || at_once(keeper::unreadable(host, &*drive, object, &extent, &bad_place));
    assert!(host.claim(object));
    (0..10).for_each(|_| meet());
    assert!(!drive.is_aside() && scene.held() == 2, "somebody works on it");
    host.release(object);
    (0..10).for_each(|_| meet());
    assert_eq!((drive.is_aside(), scene.held()), (false, 1));
    let more = [(); 3].map(|()| drive.object_failed(host.ledger.now()));
    assert_eq!(more.map(|it| it == Verdict::SetDriveAside), [false, false, true], "counted once");
}

#[test]
fn an_object_of_a_unit_that_is_cut_short_goes_and_one_that_is_whole_again_stays() {
    let scene = Scene::new(&[5000, 600_000]);
    scene.hold();
    let (host, drive, object) = (&scene.shared, scene.drive(), scene.objects()[1]);
    let extent = host.locate(&object).unwrap();
    let short = DriveError::short("the unit");
    let meet = || at_once(keeper::unreadable(host, &*drive, object, &extent, &short));
    meet();
    assert_eq!(scene.held(), 2);
    fs::OpenOptions::new().write(true).open(scene.file()).unwrap().set_len(100_000).unwrap();
    meet();
    assert_eq!((scene.held(), drive.is_aside()), (1, false));
}

#[test]
fn a_drive_that_takes_no_copy_says_nothing_of_the_object() {
    let scene = Scene::new(&[5000, 600_000]);
    scene.hold();
    scene.want(2, &scene.objects()[..1]);
    fs::remove_dir(scene.path(0, "fill")).unwrap();
    assert!(
        settle(&scene.shared, scene.directory.id(), &mut VecDeque::new()),
        "the other is hidden"
    );
    assert_eq!((scene.held(), scene.file().exists(), scene.suspects()), (1, true, vec![]));
    let noted = scene.shared.ledger.errors();
    assert!(noted[0].text.contains("cannot make fill/"), "{noted:?}");
}

#[test]
fn a_block_that_is_wrong_where_it_is_copied_from_is_doubted_and_nothing_is_left() {
    let scene = Scene::new(&[5000, 600_000]);
    scene.hold();
    scene.flip(8192 + 262_144);
    let ended = scene.copy(1, 0, || {});
    assert_eq!(ended, Ended::Doubted(scene.objects()[1], Doubt::Suspect));
    assert_eq!((scene.parts(1), scene.place(1).0), (vec![], 0));
}

#[test]
fn what_was_found_wrong_is_read_again_before_it_goes() {
    let scene = Scene::new(&[5000, 600_000]);
    scene.hold();
    let (drive, object) = (scene.drive(), scene.objects()[1]);
    let wrong = || at_once(keeper::wrong(&scene.shared, &*drive, object, "was wrong"));
    wrong();
    assert_eq!(scene.held(), 2, "it was filled again since, and is right");
    scene.flip(8192 + 262_144);
    assert!(scene.shared.claim(object));
    wrong();
    assert_eq!(scene.held(), 2, "somebody works on it");
    scene.shared.release(object);
    wrong();
    assert_eq!(scene.held(), 1);
    assert!(scene.shared.claim(object), "nobody is at work on it any more");
}

#[test]
fn a_copy_on_another_drive_is_shown_there_and_read_back_before() {
    let file = |scene: &Scene| unit::unit_file(&scene.directory.id()).0.to_string();
    let scene = Scene::new(&[5000, 600_000]);
    scene.hold();
    assert_eq!(scene.copy(1, 0, || {}), Ended::Copied);
    for n in [0, 1] {
        assert_eq!(scene.place(n), (1, file(&scene)));
    }
    assert!(scene.file().exists(), "who removes the old one waits");
    // Blocks are the second, and the fourth to the sixth; from then on they are read back. Of what
    // was written a block is wrong, or a table, or the directory.
    for wrong in [8192, 8192 + 602_112, 8192 + 602_112 + 4096, 8192 + 602_112 + 8192 + 20] {
        let scene = Scene::new(&[5000, 600_000]);
        scene.hold();
        assert_eq!(scene.copy(1, 7, || flip(&scene.parts(1)[0], wrong)), Ended::Abandoned);
        assert_eq!(
            (scene.parts(1), scene.place(1), scene.suspects()),
            (vec![], (0, file(&scene)), vec![])
        );
    }
}

#[test]
fn a_stop_ends_a_copy_and_so_does_a_drive_that_is_set_aside() {
    // The hashes of the first, a block of the second, a block that is read back.
    for before in [1, 4, 8] {
        let scene = Scene::new(&[5000, 600_000]);
        scene.hold();
        assert_eq!(scene.copy(1, before, || scene.shared.stop()), Ended::Abandoned);
        assert_eq!((scene.parts(1).len(), scene.place(1).0), (0, 0));
        let scene = Scene::new(&[5000, 600_000]);
        scene.hold();
        let other = scene.shared.slots.drive(DriveIndex(1)).unwrap();
        let aside = || at_once(scene.shared.set_aside(&other, Cause::Miswritten));
        assert_eq!(scene.copy(1, before, aside), Ended::Abandoned);
        assert_eq!((scene.parts(1).len(), scene.place(1).0), (1, 0), "nothing is done to it");
    }
}

/// What settling it comes to, and what is left then: objects, and the unit itself.
fn settled(scene: &Scene) -> (bool, usize, bool) {
    let settled = settle(&scene.shared, scene.directory.id(), &mut VecDeque::new());
    (settled, scene.held(), scene.file().exists())
}

#[test]
fn all_that_is_held_in_a_unit_whose_directory_is_damaged_goes_in_one_step_or_nothing() {
    let scene = Scene::new(&[5000, 600_000]);
    scene.hold();
    scene.flip(scene.directory.offset().as_usize() + 40);
    assert!(scene.shared.claim(scene.objects()[0]));
    assert_eq!(settled(&scene), (false, 2, true), "somebody works on one of them");
    scene.shared.release(scene.objects()[0]);
    assert_eq!(settled(&scene), (true, 0, false));
    let texts: Vec<String> =
        scene.shared.ledger.errors().into_iter().map(|noted| noted.text).collect();
    assert!(
        matches!(&texts[..], [one] if one.contains("a unit of 2 objects is damaged")),
        "{texts:?}"
    );
    assert_eq!(scene.drive().held(), (0, Bytes::ZERO));
    assert_eq!(scene.shared.counters.integrity.objects_set_aside.load(Ordering::Relaxed), 2);
}

#[test]
fn what_is_held_in_a_unit_that_is_missing_goes_in_one_step() {
    let scene = Scene::new(&[5000, 600_000]);
    scene.hold();
    fs::remove_file(scene.file()).unwrap();
    assert_eq!(settled(&scene), (true, 0, false));
    assert_eq!(scene.drive().held(), (0, Bytes::ZERO));
}

#[test]
fn a_unit_of_a_later_version_goes_with_the_last_that_is_wanted_in_it() {
    let scene = Scene::new(&[5000, 600_000]);
    scene.hold();
    let mut content = fs::read(scene.file()).unwrap();
    let at = content.len() - 4096;
    content[at + 16] = 2;
    let sum = *blake3::hash(&content[at..at + 4064]).as_bytes();
    content[at + 4064..].copy_from_slice(&sum);
    fs::write(scene.file(), content).unwrap();
    scene.want(2, &scene.objects()[..1]);
    assert_eq!(settled(&scene), (true, 1, true));
    scene.want(3, &[]);
    assert_eq!(settled(&scene), (true, 0, false));
}

#[test]
fn a_unit_goes_with_the_last_object_that_is_set_aside_in_it() {
    let scene = Scene::new(&[5000, 600_000]);
    scene.hold();
    for (object, is_left) in scene.objects().into_iter().zip([true, false]) {
        assert!(at_once(keeper::evict(&scene.shared, object)));
        assert_eq!(scene.file().exists(), is_left);
    }
}

#[test]
fn a_small_object_is_read_for_workers_if_there_is_room_and_doubted_if_it_is_wrong() {
    let give = |scene: &Scene, n: usize| {
        let (object, mut buffer) = (scene.objects()[n], Pages::zeroed(SMALL_OBJECT_MAX));
        // As a filler does, which has claimed it.
        assert!(scene.shared.claim(object));
        let extent = scene.shared.locate(&object).unwrap();
        at_once(small::give(&scene.shared, &*scene.drive(), object, &extent, &mut buffer));
        scene.shared.release(object);
    };
    // There is room for 100 KiB.
    let scene = Scene::new(&[60_000, 60_001]);
    scene.hold();
    give(&scene, 0);
    let lack = scene.shared.ask(|holdings| holdings.without_bytes(None, 9).found);
    assert!(!lack.iter().any(|(object, _)| *object == scene.objects()[0]));
    fs::remove_file(scene.file()).unwrap();
    give(&scene, 1);
    assert_eq!(scene.suspects(), [], "it was not looked for");
    let scene = Scene::new(&[60_000, 60_001]);
    scene.hold();
    scene.flip(70_000);
    give(&scene, 1);
    assert_eq!(scene.suspects(), [(scene.objects()[1], Doubt::Suspect)]);
    assert_eq!(scene.held(), 2, "until the keeper has looked");
}

#[test]
fn a_unit_goes_only_when_the_copies_that_were_made_of_it_are_right() {
    let scene = Scene::new(&[5000, 6000]);
    scene.hold();
    assert_eq!(scene.copy(1, 0, || ()), Ended::Copied);
    let copy = scene.path(1, &scene.place(0).1);
    flip(&copy, 0);
    let unit = scene.directory.id();
    audit(&scene.shared, &scene.drive(), unit);
    assert!(scene.file().exists(), "the other copy is wrong");
    assert_eq!(scene.drive().held_in(&scene.directory).len(), 2);
    flip(&copy, 0);
    audit(&scene.shared, &scene.drive(), unit);
    assert!(!scene.file().exists());
    // And while the other drive does not answer.
    let scene = Scene::new(&[5000, 6000]);
    scene.hold();
    assert_eq!(scene.copy(1, 0, || ()), Ended::Copied);
    let hung = scene.shared.slots.drive(DriveIndex(1)).unwrap();
    at_once(keeper::look(&scene.shared, &*hung, true));
    audit(&scene.shared, &scene.drive(), unit);
    assert!(scene.file().exists());
}

#[test]
fn an_object_is_named_to_the_operator_without_the_query_of_its_url() {
    let url = "https://origin/film/v.mp4?X-Amz-Signature=secret".to_owned();
    let mut fetch = Fetch { object: ObjectId([1; 32]), len: Bytes(5), urls: vec![url] };
    assert_eq!(name(&fetch), "https://origin/film/v.mp4");
    fetch.urls.clear();
    assert_eq!(name(&fetch), "01".repeat(32));
}

fn examine(shared: &Shared, drive: &Drive, object: ObjectId) -> bool {
    at_once(audits::examine(shared, drive, object))
}

#[test]
fn a_second_copy_goes_only_when_every_block_of_the_first_is_right() {
    let dir = tempfile::tempdir().unwrap();
    let (shared, object, [first, second]) = held_twice(dir.path());
    let [one, other] = [0, 1].map(|index| shared.slots.drive(DriveIndex(index)).unwrap());
    let path = |drive: &Drive, extent: &Extent| drive.path().join(&*extent.file.0);
    let is_there = || path(&other, &second).exists();

    let right = fs::read(path(&one, &first)).unwrap();
    let mut wrong = right.clone();
    wrong[4999] ^= 1;
    fs::write(path(&one, &first), wrong).unwrap();
    assert!(examine(&shared, &other, object) && is_there(), "the first is wrong");
    at_once(keeper::plan(&shared));
    let doubted = shared.peek_errand(DriveIndex(0)).unwrap().suspects;
    assert_eq!(doubted.into_iter().collect::<Vec<_>>(), [(object, Doubt::Suspect)]);

    fs::write(path(&one, &first), right).unwrap();
    at_once(keeper::look(&shared, &*one, true));
    assert!(!examine(&shared, &other, object) && is_there(), "it does not answer");
}

#[test]
fn a_second_copy_goes_when_the_first_is_right() {
    let dir = tempfile::tempdir().unwrap();
    let (shared, object, [first, second]) = held_twice(dir.path());
    let other = shared.slots.drive(DriveIndex(1)).unwrap();
    assert!(examine(&shared, &other, object));
    assert!(!other.path().join(&*second.file.0).exists());
    assert_eq!((other.entry(&object), shared.locate(&object)), (None, Some(first)));
}

/// An object on two drives, of which the index has the first copy.
fn held_twice(dir: &Path) -> (Shared, ObjectId, [Extent; 2]) {
    let drives = drives(dir, 2);
    let (object, first) = put(&drives[0], &[7; 5000]);
    let (_, second) = put(&drives[1], &[7; 5000]);
    let shared = shared_on(drives);
    assert!(at_once(shared.set_manifest(manifest(1, &[(object, Bytes(5000))]))));
    at_once(shared.load([(object, first.clone())].into_iter()));
    (shared, object, [first, second])
}

/// Until then something has to happen that takes milliseconds.
fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !done() {
        assert!(began.elapsed().as_secs() < 20, "waited in vain for {what}");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

#[test]
fn a_drive_that_hangs_in_a_delete_holds_up_no_other_and_no_plan() {
    let dir = tempfile::tempdir().unwrap();
    let mut drives = drives(dir.path(), 2);
    let held: Vec<_> = drives.iter().map(|drive| put(drive, &[7 + drive.index().0; 9])).collect();
    let (mode, targets, depth) = (Mode::Governor, vec![Nanos::millis(5)], 4);
    let writes = Writes { mode, targets, depth, rate: None, floor: BitsPerSecond(1) };
    let medium = Medium { target: Nanos::millis(5), deletes_alone: true };
    drives[0].put_behind(Gate::new(&writes.rules(0, &medium), Vec::new(), 0));
    let shared = shared_on(drives);
    at_once(shared.load(held.clone().into_iter()));
    assert!(at_once(shared.set_manifest(manifest(1, &[]))));
    let file = |n: usize| dir.path().join(n.to_string()).join(&*held[n].1.file.0);
    // A delete on the first waits for another that never ends, as it would in the kernel.
    let first = shared.slots.drive(DriveIndex(0)).unwrap();
    let _hangs = first.gate().enter(Class::Delete, Bytes::ZERO);
    std::thread::scope(|scope| {
        // However this ends, the threads have to.
        let _stop = Stop(&shared);
        scope.spawn(|| at_once(keeper::run(&shared)));
        for index in shared.slots.indexes() {
            let shared = &shared;
            scope.spawn(move || at_once(keeper::tend(shared, index)));
        }
        wait("the second drive's file to go", || !file(1).exists());
        assert!(file(0).exists());
        let wanted = ObjectId([1; 32]);
        assert!(at_once(shared.set_manifest(manifest(2, &[(wanted, Bytes(5))]))));
        wait("a plan", || shared.ledger.ask(|holdings| holdings.plan_report().objects_wanted) == 1);
        assert!(file(0).exists(), "it is still being removed");
    });
}

#[test]
fn what_is_wanted_again_while_a_delete_waits_stays() {
    let dir = tempfile::tempdir().unwrap();
    let mut drives = drives(dir.path(), 1);
    let held = [1, 2].map(|n| put(&drives[0], &[n; 9]));
    let (mode, targets, depth) = (Mode::Governor, vec![Nanos::millis(5)], 4);
    let writes = Writes { mode, targets, depth, rate: None, floor: BitsPerSecond(1) };
    let medium = Medium { target: Nanos::millis(5), deletes_alone: true };
    drives[0].put_behind(Gate::new(&writes.rules(0, &medium), Vec::new(), 0));
    let shared = &shared_on(drives);
    at_once(shared.load(held.clone().into_iter()));
    assert!(at_once(shared.set_manifest(manifest(1, &[]))));
    let drive = shared.slots.drive(DriveIndex(0)).unwrap();
    let other = drive.gate().enter(Class::Delete, Bytes::ZERO);
    let is_held = |object: &ObjectId| shared.locate(object).is_some();
    let file = |extent: &Extent| dir.path().join("0").join(&*extent.file.0);
    std::thread::scope(|scope| {
        let _stop = Stop(shared);
        scope.spawn(|| at_once(keeper::run(shared)));
        scope.spawn(|| at_once(keeper::tend(shared, DriveIndex(0))));
        let count = || held.iter().filter(|(object, _)| is_held(object)).count();
        wait("the first to be hidden", || count() == 1);
        let (stays, goes): (Vec<_>, Vec<_>) = held.iter().partition(|(object, _)| is_held(object));
        assert!(at_once(shared.set_manifest(manifest(2, &[(stays[0].0, Bytes(9))]))));
        drop(other);
        wait("its file to go", || !file(&goes[0].1).exists());
        for _ in 0..30 {
            assert!(is_held(&stays[0].0) && file(&stays[0].1).exists(), "it is wanted again");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    });
}

struct Stop<'a>(&'a Shared);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}
