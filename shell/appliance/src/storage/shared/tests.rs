use super::*;
use crate::lock::lock;
use crate::storage::drives::Drive;
use crate::storage::ledger::{News, Sink};
use crate::storage::pages::Pages;
use crate::storage::slots::Slot;
use holdings::{Chores, Holdings, Part, SLICE};
use model::drives::DriveIndex;
use model::extent::Extent;
use model::id::{Generation, ObjectId};
use model::manifest::{AssetVersion, File, Manifest, Trust};
use model::units::UnixSeconds;
use model::update::Update;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use store::layout;
use store::parcel::PartId;
use upkeep::{Drive as _, Ledger as _, at_once, keeper};

/// What the threads of an appliance share that has these drives; nobody is told anything.
pub(crate) fn shared_on(drives: Vec<Drive>) -> Shared {
    shared_with(drives, Box::new(|_| {}))
}

fn shared_with(drives: Vec<Drive>, sink: Sink) -> Shared {
    let counters = StorageCounters::new(Arc::default(), drives.len());
    let paths = drives.iter().map(|drive| drive.path().to_owned()).collect();
    let slots = drives.into_iter().map(|drive| Slot::Open(Arc::new(drive))).collect();
    let slots = Slots::new(paths, Vec::new(), slots);
    let ledger = Ledger::new(Bytes::kib(100), Some(Bytes::mib(1)), sink);
    Shared {
        ledger,
        slots,
        counters,
        linger: Nanos::seconds(1),
        told: Shares::default(),
        told_titles: Shares::default(),
    }
}

impl Shared {
    /// What waits to be done about a drive, as if it was taken and done at once.
    pub(crate) fn peek_errand(&self, drive: DriveIndex) -> Option<Chores> {
        let chores = self.ledger.change(|holdings| holdings.next_errand(drive))?;
        self.ledger.change(|holdings| holdings.errand_done(drive, 0, 0));
        Some(chores)
    }

    pub(crate) fn published_count(&self) -> usize {
        self.ledger.ask(|holdings| holdings.index().len())
    }
}

#[test]
fn what_has_its_file_or_fits_nowhere_is_not_left_room_for() {
    let shared = shared_on(Vec::new());
    let to_place = || shared.ledger.ask(Holdings::bytes_to_place);
    let object = |n| ObjectId([n; 32]);
    let wanted = [10, 20, 40].map(|n: u8| (object(n), Bytes(u64::from(n))));
    assert!(at_once(shared.set_manifest(manifest(1, &wanted))));
    assert_eq!(to_place(), Bytes(70));
    let drive = DriveIndex(0);
    let file = layout::object_file(&object(10));
    let extent = Extent { drive, file, offset: Bytes::ZERO, len: Bytes(10) };
    at_once(shared.load([(object(10), extent)].into_iter()));
    shared.set_part(PartId::Object(object(20)), Some(Part { drive, verified: Bytes::ZERO }));
    assert_eq!(to_place(), Bytes(40));
    at_once(keeper::plan(&shared));
    assert_eq!(to_place(), Bytes::ZERO, "there is no drive to put it on");
}

/// A manifest of one rendition of these.
pub(crate) fn manifest(generation: u64, objects: &[(ObjectId, Bytes)]) -> Arc<Manifest> {
    let file = |(object, len): &(ObjectId, Bytes)| {
        let content_type = "video/mp4".into();
        (format!("{object}.m4s"), File { object: *object, len: *len, content_type })
    };
    let version = AssetVersion {
        id: format!("film-{generation}").parse().unwrap(),
        asset: "film".parse().unwrap(),
        sources: vec!["https://origin.example/film/".to_owned()],
        modified: UnixSeconds(0),
        pace: None,
        files: objects.iter().map(file).collect(),
    };
    Arc::new(Manifest {
        appliance: "a1".parse().unwrap(),
        generation: Generation(generation),
        token_keys: Vec::new(),
        trust: Trust::default(),
        numbers: BTreeMap::new(),
        siblings: BTreeMap::new(),
        site: Vec::new(),
        versions: vec![Arc::new(version)],
    })
}

#[test]
fn who_waits_for_a_worker_holds_up_nobody_who_has_nothing_to_tell() {
    let (began, wait) = (std::sync::mpsc::channel(), std::sync::mpsc::channel::<()>());
    let sink = move |_| {
        began.0.send(()).unwrap();
        let _ = wait.1.recv();
    };
    let shared = shared_with(Vec::new(), Box::new(sink));
    std::thread::scope(|scope| {
        let teller = scope.spawn(|| at_once(shared.set_manifest(manifest(1, &[]))));
        began.1.recv().unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let shared = &shared;
        scope.spawn(move || {
            tell.send((shared.ledger.ask(Holdings::progress), shared.claim(ObjectId([1; 32]))))
        });
        let seen = told.recv_timeout(std::time::Duration::from_secs(20));
        drop(wait.0);
        assert!(seen.is_ok_and(|(_, claimed)| claimed), "the lock is held");
        assert!(teller.join().unwrap());
    });
}

#[test]
fn what_happens_together_is_told_together_and_in_order() {
    let told: Arc<Mutex<Vec<Vec<News>>>> = Arc::default();
    let also = Arc::clone(&told);
    let shared = shared_with(Vec::new(), Box::new(move |news| lock(&also).push(news)));
    let objects: Vec<ObjectId> = (0..3000_u32)
        .map(|n| {
            let mut id = [0; 32];
            id[..4].copy_from_slice(&n.to_be_bytes());
            ObjectId(id)
        })
        .collect();
    let extent = |object: &ObjectId| {
        let (drive, file) = (DriveIndex(0), layout::object_file(object));
        (*object, Extent { drive, file, offset: Bytes::ZERO, len: Bytes(10) })
    };
    at_once(shared.load(objects.iter().map(extent)));
    shared.hide(objects[0]);
    let told = lock(&told);
    assert_eq!(
        told.iter().map(Vec::len).collect::<Vec<_>>(),
        [SLICE, SLICE, SLICE, SLICE, SLICE, 440, 1]
    );
    let published = told.iter().flatten().filter_map(|news| match news {
        News::Update(Update::Published { object, .. }) => Some(*object),
        News::Update(_) | News::Directory(..) | News::Expected(_) => None,
    });
    assert_eq!(published.collect::<Vec<_>>(), objects);
}

/// Puts an object into a file of its own on a drive, as fill does.
pub(crate) fn put(drive: &Drive, content: &[u8]) -> (ObjectId, Extent) {
    let object = ObjectId(*blake3::hash(content).as_bytes());
    let parcel = store::parcel::Parcel::Alone(object, Bytes::of(content.len()));
    let (fd, _) = at_once(drive.allocate(&parcel.part().file(), parcel.file_len())).unwrap();
    let (offset, pages) = parcel.end();
    at_once(drive.write(&fd, &aligned(content), Bytes::ZERO)).unwrap();
    at_once(drive.write(&fd, &aligned(&pages), offset)).unwrap();
    at_once(drive.rename(&parcel.part().file(), &parcel.file())).unwrap();
    let entry = parcel.entries()[0].1;
    at_once(drive.log(&[store::log::Change::Published(object, entry)])).unwrap();
    (object, entry.extent(&object, drive.index()))
}

/// Formats folders and opens them as drives.
pub(crate) fn drives(dir: &std::path::Path, count: u8) -> Vec<Drive> {
    let open = |index: u8| {
        let path = dir.join(index.to_string());
        std::fs::create_dir(&path).unwrap();
        let reserve = store::marker::Reserve::percent(1).unwrap();
        crate::storage::format::format(&path, reserve, UnixSeconds(1)).unwrap();
        Drive::open(&path, DriveIndex(index)).unwrap().0
    };
    (0..count).map(open).collect()
}

/// As direct I/O takes it, zeros behind it.
pub(crate) fn aligned(bytes: &[u8]) -> Pages {
    let mut pages = Pages::zeroed(Bytes::of(bytes.len()));
    pages[..bytes.len()].copy_from_slice(bytes);
    pages
}
