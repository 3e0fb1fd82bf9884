use super::super::tests::open_in;
use super::*;

use std::collections::BTreeMap;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use model::object::block_hash;
use tempfile::TempDir;
use wire::v1::ingest::{NewFile, NewVersion};

use crate::state::store::Store;

#[tokio::test]
async fn hashes_of_a_database_of_before_are_moved_in_slices_and_stay_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::of_before_documents(&directory.path().join("state")).await;
    let control = open(&directory).await;
    let objects: Vec<ObjectId> = store.all_objects().await;
    let mut before = BTreeMap::new();
    for id in objects {
        let Some(BlockHashes::Row(hashes)) = store.block_hashes(&id).await.unwrap() else {
            panic!("the release before had rows only")
        };
        before.insert(id, hashes);
    }
    assert_eq!(before.len(), 5, "of which one is empty");
    assert!(before.values().map(Vec::len).eq([96, 96, 32, 64, 0]));

    // The process ends after the first slice.
    let documents = control.documents.as_ref().unwrap();
    documents.claim(&control.store).await.unwrap();
    let film: AssetVersionId = "film-94c25a22b2cf".parse().unwrap();
    let unmoved = control.store.unmoved(&film).await.unwrap();
    assert_eq!(control.move_slice(documents, &unmoved[..1]).await.unwrap(), 1);
    assert!(control.store.has_unmoved().await.unwrap());
    control.close().await;
    drop(control);

    let control = open(&directory).await;
    let documents = control.documents.as_ref().unwrap();
    control.move_hashes(documents).await.unwrap();
    assert!(!control.store.has_unmoved().await.unwrap());
    for (id, hashes) in &before {
        let found = control.store.block_hashes(id).await.unwrap().unwrap();
        let is_moved = matches!(found, BlockHashes::Document { .. });
        assert_eq!(is_moved, !hashes.is_empty(), "{found:?}");
        assert_eq!(control.block_hashes(*id).await.unwrap().as_ref(), Some(hashes));
    }
    // The first slice, the other film, the series, and what the first slice left of its film.
    assert!((3..=4).contains(&there(&control).await), "one for each version, and the first");
    assert_eq!(sweep(&control, UnixSeconds(1)).await, 0);
    assert_eq!(control.snapshot().catalog.version_count(), 3);
}

#[tokio::test]
async fn an_object_can_be_read_after_its_ingest_and_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let control = open(&directory).await;
    let film = new_version(&[1, 2, 3]);
    assert!(ingest(&control, "film-1", &film).await.unwrap());
    let read = async |control: &Arc<Control>| {
        for (id, hashes) in hashes_of(&film) {
            assert_eq!(control.block_hashes(id).await.unwrap(), Some(hashes));
        }
    };
    read(&control).await;
    assert!(!ingest(&control, "film-1", &film).await.unwrap(), "nothing to do");
    assert_eq!(there(&control).await, 1, "all in one document");
    assert_eq!(control.block_hashes(ObjectId([9; 32])).await.unwrap(), None);
    control.close().await;
    read(&open(&directory).await).await;
}

#[tokio::test]
async fn what_is_left_of_a_crash_is_removed_once_it_was_there_for_long_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let control = open(&directory).await;
    let (film, series) = (new_version(&[1, 2]), new_version(&[2, 3]));
    ingest(&control, "film-1", &film).await.unwrap();
    // The process dies between the document and its row; then the same comes again.
    let blocks: Arc<[Blocks]> = blocks_of(&series).into();
    let version = "series-1".parse().unwrap();
    control.keep_hashes(&version, &blocks).await.unwrap().unwrap();
    assert!(control.snapshot().catalog.version(&version).is_none());
    ingest(&control, "series-1", &series).await.unwrap();
    assert_eq!(there(&control).await, 3);

    let day = 86_400;
    for (days, left) in [(1, 3), (7, 3), (8, 2), (9, 2)] {
        assert_eq!(sweep(&control, UnixSeconds(days * day)).await, 0);
        assert_eq!(there(&control).await, left, "after {days} days");
    }
    control.store.delete_versions(&["film-1".parse().unwrap()]).await.unwrap();
    for (days, left) in [(10, 2), (16, 2), (17, 1), (30, 1)] {
        assert_eq!(sweep(&control, UnixSeconds(days * day)).await, 0);
        assert_eq!(there(&control).await, left, "after {days} days");
    }
    assert_eq!(control.metrics.documents_removed.value(), 2);
    let shared = hashes_of(&series);
    for (id, hashes) in shared {
        assert_eq!(control.block_hashes(id).await.unwrap(), Some(hashes), "of both versions");
    }
}

#[tokio::test]
async fn a_document_that_was_found_before_its_row_was_written_stays() {
    let directory = tempfile::tempdir().unwrap();
    let control = open(&directory).await;
    let film = new_version(&[1]);
    let blocks: Arc<[Blocks]> = blocks_of(&film).into();
    let version = "film-1".parse().unwrap();
    let document = control.keep_hashes(&version, &blocks).await.unwrap();
    sweep(&control, UnixSeconds(1)).await;
    let objects: Vec<_> = blocks.to_vec();
    let version = super::super::withdrawals::tests::version(1, &objects);
    control.store.put_version_in(&version, &objects, document.as_ref()).await.unwrap();
    sweep(&control, UnixSeconds(u64::from(u32::MAX))).await;
    assert_eq!(there(&control).await, 1);
}

#[tokio::test]
async fn a_damaged_or_a_lost_document_is_given_to_nobody_until_its_version_comes_again() {
    let directory = tempfile::tempdir().unwrap();
    let control = open(&directory).await;
    let film = new_version(&[1, 2]);
    ingest(&control, "film-1", &film).await.unwrap();
    let (first, second) = { (hashes_of(&film)[0].clone(), hashes_of(&film)[1].clone()) };

    let path = files(&directory).pop().unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let hurt = bytes.len() - 1;
    bytes[hurt] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let (whole, hurt) =
        if control.block_hashes(first.0).await.is_ok() { (first, second) } else { (second, first) };
    let refused = control.block_hashes(hurt.0).await.unwrap_err();
    assert!(matches!(refused, DocumentError::Damaged(_)), "{refused}");
    assert!(refused.to_string().contains(path.to_str().unwrap()), "{refused}");
    assert_eq!(control.block_hashes(whole.0).await.unwrap(), Some(whole.1));
    assert!(!ingest(&control, "film-1", &film).await.unwrap(), "it is not new");
    assert_eq!(control.block_hashes(hurt.0).await.unwrap(), Some(hurt.1.clone()));

    for path in files(&directory) {
        std::fs::remove_file(path).unwrap();
    }
    let refused = control.block_hashes(hurt.0).await.unwrap_err();
    assert!(matches!(refused, DocumentError::Missing(_)), "{refused}");
    assert_eq!(sweep(&control, UnixSeconds(1)).await, 1, "one is needed");
    ingest(&control, "film-1", &film).await.unwrap();
    assert_eq!(control.block_hashes(hurt.0).await.unwrap(), Some(hurt.1));
    assert_eq!(sweep(&control, UnixSeconds(1)).await, 0);
}

#[tokio::test]
async fn a_writer_without_the_place_that_its_database_names_does_not_start() {
    let directory = tempfile::tempdir().unwrap();
    let control = open(&directory).await;
    ingest(&control, "film-1", &new_version(&[1])).await.unwrap();
    control.close().await;
    for (settings, said) in [
        ("at = \"database\"".to_owned(), "say where they are"),
        (format!("at = {:?}", directory.path().join("elsewhere")), "is it mounted"),
    ] {
        let settings = format!("[documents]\n{settings}\n");
        let refused = open_in(&directory, &settings).await.err().unwrap().to_string();
        assert!(refused.contains(said), "{refused}");
    }
}

#[tokio::test]
async fn a_folder_that_is_unmounted_under_a_writer_gets_no_document_and_loses_none() {
    let directory = tempfile::tempdir().unwrap();
    let control = open(&directory).await;
    ingest(&control, "film-1", &new_version(&[1])).await.unwrap();
    let [mounted, elsewhere] = ["documents", "elsewhere"].map(|name| directory.path().join(name));
    std::fs::rename(&mounted, &elsewhere).unwrap();
    std::fs::create_dir(&mounted).unwrap();
    let refused = ingest(&control, "film-2", &new_version(&[2])).await.unwrap_err().to_string();
    assert!(refused.contains("is it mounted"), "{refused}");
    assert_eq!(std::fs::read_dir(&mounted).unwrap().count(), 0);

    std::fs::remove_dir(&mounted).unwrap();
    std::fs::rename(&elsewhere, &mounted).unwrap();
    ingest(&control, "film-2", &new_version(&[2])).await.unwrap();
    assert_eq!((there(&control).await, sweep(&control, UnixSeconds(1)).await), (2, 0));
}

#[tokio::test]
async fn a_known_version_comes_again_while_the_place_is_away_and_a_new_one_does_not() {
    let directory = tempfile::tempdir().unwrap();
    let control = open(&directory).await;
    for (name, byte) in [("film-1", 1), ("film-2", 2)] {
        ingest(&control, name, &new_version(&[byte])).await.unwrap();
    }
    let [place, away] = ["documents", "away"].map(|name| directory.path().join(name));
    std::fs::rename(&place, &away).unwrap();
    std::fs::write(&place, "no folder").unwrap();
    assert!(!ingest(&control, "film-1", &new_version(&[1])).await.unwrap());
    let film = "film".parse().unwrap();
    let current = control.snapshot().catalog.versions(&film).first().unwrap().id().clone();
    assert_eq!(current.as_str(), "film-1");
    assert_eq!(control.metrics.documents_failed.value(), 1);
    let refused = ingest(&control, "film-3", &new_version(&[3])).await.unwrap_err().to_string();
    assert!(refused.contains("cannot be reached"), "{refused}");

    std::fs::remove_file(&place).unwrap();
    std::fs::rename(&away, &place).unwrap();
    for (id, hashes) in hashes_of(&new_version(&[1, 2])) {
        assert_eq!(control.block_hashes(id).await.unwrap(), Some(hashes));
    }
}

#[tokio::test]
async fn an_empty_folder_under_a_writer_is_a_place_that_is_away_and_no_loss() {
    let directory = tempfile::tempdir().unwrap();
    let control = open(&directory).await;
    let film = new_version(&[1]);
    ingest(&control, "film-1", &film).await.unwrap();
    let [place, elsewhere] = ["documents", "elsewhere"].map(|name| directory.path().join(name));
    std::fs::rename(&place, &elsewhere).unwrap();
    let (id, hashes) = hashes_of(&film).remove(0);
    for is_empty in [false, true] {
        if is_empty {
            std::fs::create_dir(&place).unwrap();
        }
        let refused = control.block_hashes(id).await.unwrap_err();
        assert!(matches!(refused, DocumentError::Away { .. }), "{refused}");
        assert!(refused.to_string().contains("not mounted"), "{refused}");
        assert!(!ingest(&control, "film-1", &film).await.unwrap(), "a known version is taken");
    }
    std::fs::write(place.join("nearcast-documents"), "nearcast documents 1 7\n").unwrap();
    let refused = control.block_hashes(id).await.unwrap_err();
    assert!(matches!(refused, DocumentError::Away { .. }), "{refused}");
    assert!(!ingest(&control, "film-1", &film).await.unwrap(), "it is another's place");

    std::fs::remove_dir_all(&place).unwrap();
    std::fs::rename(&elsewhere, &place).unwrap();
    assert_eq!(control.block_hashes(id).await.unwrap(), Some(hashes));
    assert_eq!(there(&control).await, 1, "nothing was written meanwhile");
}

#[test]
fn a_slice_is_bounded_and_never_empty() {
    let lens = |lens: &[u64]| {
        let object = |len: &u64| (ObjectId([0; 32]), Bytes(len * model::object::BLOCK_LEN.0));
        slice_len(&lens.iter().map(object).collect::<Vec<_>>())
    };
    assert_eq!(lens(&[HASHES_MAX, 1]), 1);
    assert_eq!(lens(&[HASHES_MAX + 1, 1]), 1);
    assert_eq!(lens(&[HASHES_MAX - 1, 1, 1]), 2);
}

/// With documents in a folder, whatever the database.
async fn open(directory: &TempDir) -> Arc<Control> {
    let folder = directory.path().join("documents");
    open_in(directory, &format!("[documents]\nat = {folder:?}\n")).await.unwrap()
}

/// All files of documents.
fn files(directory: &TempDir) -> Vec<PathBuf> {
    let list = |path: PathBuf| std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let folders = list(directory.path().join("documents")).filter(|path| path.is_dir());
    folders.flat_map(list).collect()
}

/// How many documents are there.
async fn there(control: &Control) -> usize {
    let documents = control.documents.as_ref().unwrap();
    let mut count = 0;
    for shard in 0..=u8::MAX {
        count += documents.list(shard).await.unwrap().len();
    }
    count
}

/// Looks at all documents; how many are missing.
async fn sweep(control: &Control, now: UnixSeconds) -> u64 {
    let documents = control.documents.as_ref().unwrap();
    let mut missing = 0;
    for shard in 0..=u8::MAX {
        missing += control.sweep(documents, shard, now).await.unwrap();
    }
    missing
}

/// A version named `{asset}-{number}`.
async fn ingest(
    control: &Arc<Control>,
    name: &str,
    new: &NewVersion,
) -> Result<bool, super::super::ChangeError> {
    let asset = name.split('-').next().unwrap().parse().unwrap();
    control.ingest(asset, name.parse().unwrap(), new.clone()).await
}

/// A file of two blocks for each of these bytes.
fn new_version(media: &[u8]) -> NewVersion {
    let file = |byte: &u8| {
        let blocks = blocks(*byte);
        let file = NewFile {
            object: blocks.id().to_string(),
            len: blocks.len().0,
            content_type: "video/mp4".to_owned(),
            blocks: STANDARD.encode(wire::v1::blocks::encode(&blocks)),
            rendition: 0,
        };
        (format!("{byte}.mp4"), file)
    };
    NewVersion {
        sources: vec!["https://origin.example/".to_owned()],
        modified_unix_s: 1,
        files: media.iter().map(file).collect(),
        entries: Vec::new(),
        window: None,
        again: false,
    }
}

fn blocks(byte: u8) -> Blocks {
    let bytes = vec![byte; 300_000];
    let parts = bytes.chunks(model::object::BLOCK_LEN.as_usize());
    let hashes = (0..).zip(parts).map(|(index, part)| block_hash(index, part, false)).collect();
    Blocks::of_hashes(Bytes::of(bytes.len()), hashes).unwrap()
}

fn blocks_of(new: &NewVersion) -> Vec<Blocks> {
    new.files.keys().map(|path| blocks(path.split('.').next().unwrap().parse().unwrap())).collect()
}

fn hashes_of(new: &NewVersion) -> Vec<(ObjectId, Vec<u8>)> {
    let hashes = |blocks: &Blocks| (blocks.id(), wire::v1::blocks::encode(blocks));
    blocks_of(new).iter().map(hashes).collect()
}
