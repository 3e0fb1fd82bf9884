use super::claim::line;
use super::*;

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use tempfile::TempDir;

#[tokio::test]
async fn a_document_is_read_as_it_was_written_and_nothing_of_another_proves_its_name() {
    let (folder, documents, _state, store) = claimed().await;
    let name = documents.put(&store, Document::of(["0123", "", "456789"])).await.unwrap();
    assert_eq!(documents.part(&store, &name, 3..6).await.unwrap(), b"345");
    assert_eq!(documents.condition(&store, &name).await.unwrap(), Condition::Whole);

    let path = file(&folder, &name);
    let mut bytes = std::fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(documents.condition(&store, &name).await.unwrap(), Condition::Damaged);
    bytes.pop();
    std::fs::write(&path, &bytes).unwrap();
    let damaged = documents.part(&store, &name, 3..10).await.unwrap_err();
    assert!(matches!(&damaged, DocumentError::Damaged(_)), "{damaged}");
    assert!(damaged.to_string().contains(path.to_str().unwrap()), "{damaged}");

    documents.remove(&name).await.unwrap();
    documents.remove(&name).await.unwrap();
    let missing = documents.part(&store, &name, 3..6).await.unwrap_err();
    assert!(matches!(&missing, DocumentError::Missing(_)), "{missing}");
    assert!(missing.to_string().contains(path.to_str().unwrap()), "{missing}");
    assert_eq!(documents.condition(&store, &name).await.unwrap(), Condition::Missing);
}

#[tokio::test]
async fn no_name_comes_twice_and_each_is_listed_with_others_that_begin_alike() {
    let (_folder, documents, _state, store) = claimed().await;
    let mut names = BTreeSet::new();
    for _ in 0..3 {
        let name = documents.put(&store, Document::of([b"the same"])).await.unwrap();
        names.insert(*name.as_bytes());
    }
    assert_eq!(names.len(), 3);
    for shard in 0..=u8::MAX {
        let of_it: BTreeSet<_> = names.iter().filter(|name| name[0] == shard).copied().collect();
        assert_eq!(documents.list(shard).await.unwrap(), of_it);
    }
}

#[tokio::test]
async fn a_place_is_one_databases_and_an_empty_one_is_not_taken_for_it() {
    let state = tempfile::tempdir().unwrap();
    let store = Store::of_test(state.path()).await.unwrap();
    let (folder, documents) = folder();
    assert!(Documents::fits(Some(&documents), &store).await.unwrap(), "it is nobody's");
    documents.claim(&store).await.unwrap();
    let again = at(folder.path());
    again.claim(&store).await.unwrap();
    assert!(Documents::fits(Some(&again), &store).await.unwrap());

    let (_elsewhere, not_mounted) = self::folder();
    let refused = not_mounted.claim(&store).await.unwrap_err();
    let DocumentError::Unmarked { place, line } = &refused else { panic!("{refused}") };
    let refused = Documents::fits(Some(&not_mounted), &store).await.unwrap_err();
    assert!(refused.to_string().contains("is it mounted"), "{refused}");
    std::fs::write(format!("{place}{MARKER}"), line).unwrap();
    not_mounted.claim(&store).await.unwrap();

    let other = tempfile::tempdir().unwrap();
    let other = Store::of_test(other.path()).await.unwrap();
    for refused in [
        at(folder.path()).claim(&other).await.unwrap_err(),
        Documents::fits(Some(&documents), &other).await.unwrap_err(),
    ] {
        assert!(matches!(refused, DocumentError::Foreign(_)), "{refused}");
    }
}

#[tokio::test]
async fn a_standby_asks_until_the_one_that_leads_has_said_where_its_documents_are() {
    let state = tempfile::tempdir().unwrap();
    let store = Store::of_test(state.path()).await.unwrap();
    let ((_folder, documents), (_elsewhere, other)) = (folder(), folder());
    let behind = async |of| Documents::fits_behind(of, &store).await;
    assert!(!behind(None).await.unwrap() && !behind(Some(&documents)).await.unwrap());

    store.put_leader_has_place(false).await.unwrap();
    assert!(behind(None).await.unwrap());
    let refused = behind(Some(&documents)).await.unwrap_err();
    assert!(matches!(refused, DocumentError::InDatabase(_)), "{refused}");

    store.put_leader_has_place(true).await.unwrap();
    for number in [0, -77] {
        store.put_documents_number(number).await.unwrap();
        let refused = behind(None).await.unwrap_err();
        assert!(matches!(refused, DocumentError::InPlace), "{number}: {refused}");
        assert!(refused.to_string().contains("stop both"), "{refused}");
        assert!(!behind(Some(&documents)).await.unwrap(), "{number}");
    }
    // The one that leads is about to say so.
    documents.mark(77).await.unwrap();
    assert!(!behind(Some(&documents)).await.unwrap());
    documents.claim(&store).await.unwrap();
    assert!(behind(Some(&documents)).await.unwrap());
    let refused = behind(Some(&other)).await.unwrap_err();
    assert!(matches!(refused, DocumentError::Unmarked { .. }), "{refused}");
    let refused = behind(None).await.unwrap_err();
    assert!(refused.to_string().contains("say where they are"), "{refused}");
}

#[tokio::test]
async fn a_crash_between_the_number_and_the_marker_is_made_good() {
    let state = tempfile::tempdir().unwrap();
    let store = Store::of_test(state.path()).await.unwrap();
    for marker in [None, Some(line(77))] {
        store.put_documents_number(-77).await.unwrap();
        let (folder, documents) = folder();
        if let Some(marker) = marker {
            std::fs::write(folder.path().join(MARKER), marker).unwrap();
        }
        assert!(Documents::fits(Some(&documents), &store).await.unwrap());
        documents.claim(&store).await.unwrap();
        assert_eq!(store.documents_number().await.unwrap(), 77);
        assert_eq!(std::fs::read_to_string(folder.path().join(MARKER)).unwrap(), line(77));
    }
}

#[tokio::test]
async fn a_place_that_could_not_be_claimed_keeps_no_writer_from_its_database() {
    let state = tempfile::tempdir().unwrap();
    let store = Store::of_test(state.path()).await.unwrap();
    let away = at("/proc/documents".as_ref()).claim(&store).await.unwrap_err();
    assert!(matches!(away, DocumentError::Away { .. }), "{away}");
    assert!(Documents::fits(None, &store).await.unwrap(), "no document was written");
    let (_folder, documents) = folder();
    documents.claim(&store).await.unwrap();
    let refused = Documents::fits(None, &store).await.unwrap_err();
    assert!(matches!(refused, DocumentError::Elsewhere), "{refused}");
}

#[tokio::test]
async fn claims_at_the_same_time_make_one_number() {
    let state = tempfile::tempdir().unwrap();
    let store = Store::of_test(state.path()).await.unwrap();
    let (folder, documents) = folder();
    let documents = Arc::new(documents);
    let claims = (0..8).map(|_| {
        let (documents, store) = (documents.clone(), store.clone());
        tokio::spawn(async move { documents.claim(&store).await })
    });
    for claim in claims.collect::<Vec<_>>() {
        claim.await.unwrap().unwrap();
    }
    let number = store.documents_number().await.unwrap();
    assert!(0 < number);
    assert_eq!(std::fs::read_to_string(folder.path().join(MARKER)).unwrap(), line(number));
}

#[tokio::test]
async fn half_a_document_goes_after_a_day() {
    let (folder, documents, _state, store) = claimed().await;
    let name = documents.put(&store, Document::of([b"x"])).await.unwrap();
    let shard = name.as_bytes()[0];
    let half = |n| format!("{}#{n}", file(&folder, &name).display());
    for (n, age_s) in [(1, 90_000), (2, 80_000)] {
        let file = File::create(half(n)).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(age_s)).unwrap();
    }
    assert_eq!(documents.list(shard).await.unwrap(), [*name.as_bytes()].into());
    let left = [1, 2].map(|n| std::fs::exists(half(n)).unwrap());
    assert_eq!(left, [false, true]);
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_waited_for_no_longer_than_it_was_said() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let (folder, settings) = settings(server.local_addr().unwrap().port());
    let place: DocumentsPlace = "s3://docs/a b/".parse().unwrap();
    let mut documents =
        Documents::open(place.clone(), std::slice::from_ref(&settings)).unwrap().unwrap();
    documents.within = Duration::from_millis(200);
    let state = tempfile::tempdir().unwrap();
    let store = Store::of_test(state.path()).await.unwrap();
    let began = Instant::now();
    let away = documents.put(&store, Document::of([b"x"])).await.unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(2));
    assert!(matches!(away, DocumentError::Away { .. }), "{away}");
    let said = away.to_string();
    assert!(said.contains("s3://docs/a b/") && said.contains("no answer within 0.2 s"), "{said}");

    let look = Documents::fits(Some(&documents), &store).await;
    assert!(!look.unwrap(), "nobody knows, and a writer may start");

    std::fs::remove_file(folder.path().join("secret")).unwrap();
    let unreadable = Documents::open(place, &[settings]).unwrap_err();
    assert!(unreadable.to_string().contains("No such file"), "{unreadable}");
}

#[test]
fn a_bucket_that_is_not_in_the_settings_is_refused_with_what_to_do() {
    let bucket = Documents::open("s3://docs/".parse().unwrap(), &[]).unwrap_err();
    assert!(bucket.to_string().contains("add [[s3]] with bucket = \"docs\""), "{bucket}");
}

#[tokio::test]
async fn a_folder_is_not_touched_before_it_is_claimed_and_its_faults_end_no_process() {
    let state = tempfile::tempdir().unwrap();
    let store = Store::of_test(state.path()).await.unwrap();
    let cannot_be = at("/dev/null/documents".as_ref());
    assert!(!is_known(&cannot_be, &store).await, "nobody knows, and a writer may start");
    let away = cannot_be.claim(&store).await.unwrap_err();
    assert!(matches!(away, DocumentError::Away { .. }), "{away}");
    assert!(away.to_string().contains("Not a directory"), "{away}");

    let path = state.path().join("first/second");
    let documents = at(&path);
    assert!(Documents::fits(Some(&documents), &store).await.is_ok());
    assert_eq!(documents.list(7).await.unwrap(), BTreeSet::new());
    assert!(!path.parent().unwrap().exists(), "who only looks makes nothing");
    documents.claim(&store).await.unwrap();
    std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
    let lost = documents.claim(&store).await.unwrap_err();
    assert!(matches!(lost, DocumentError::Unmarked { .. }), "{lost}");
    assert!(!path.parent().unwrap().exists(), "the database knows that it was there");
}

#[tokio::test]
async fn of_two_new_databases_one_gets_the_place() {
    let (folder, documents) = folder();
    documents.mark(77).await.unwrap();
    documents.mark(77).await.unwrap();
    let refused = documents.mark(78).await.unwrap_err();
    assert!(matches!(refused, DocumentError::Foreign(_)), "{refused}");
    assert_eq!(std::fs::read_to_string(folder.path().join(MARKER)).unwrap(), line(77));
}

#[tokio::test]
async fn a_document_is_put_only_where_the_place_is_ours_at_that_moment() {
    let (folder, documents, _state, store) = claimed().await;
    let name = documents.put(&store, Document::of([b"x"])).await.unwrap();
    let mounted = documents.list(name.as_bytes()[0]).await.unwrap();
    let before = Document::of([b"y"]);
    let marker = folder.path().join(MARKER);
    std::fs::rename(&marker, folder.path().join("elsewhere")).unwrap();
    let name = before.name;
    let refused = documents.put(&store, before).await.unwrap_err();
    assert!(matches!(refused, DocumentError::Unmarked { .. }), "{refused}");
    assert!(!std::fs::exists(file(&folder, &name)).unwrap() && mounted.len() == 1);
}

#[tokio::test]
async fn a_wait_for_a_turn_is_bounded_and_takes_nothing_of_the_time_for_the_work() {
    let (_folder, mut documents, _state, store) = claimed().await;
    let name = documents.put(&store, Document::of([b"0123"])).await.unwrap();
    documents.within = Duration::from_secs(1);
    documents.turn_within = Duration::from_secs(30);
    let under_way = documents.under_way.clone();
    let all = under_way.acquire_many(UNDER_WAY_MAX.try_into().unwrap()).await.unwrap();
    let leave = async {
        tokio::time::sleep(Duration::from_millis(1500)).await;
        drop(all);
    };
    let (read, ()) = tokio::join!(documents.part(&store, &name, 0..4), leave);
    assert_eq!(read.unwrap(), b"0123");

    let all = under_way.acquire_many(UNDER_WAY_MAX.try_into().unwrap()).await.unwrap();
    documents.turn_within = Duration::from_millis(50);
    let away = documents.part(&store, &name, 0..4).await.unwrap_err();
    assert!(away.to_string().contains("none of what is under way ended within"), "{away}");
    drop(all);
}

#[tokio::test]
async fn a_server_that_cannot_make_the_marker_is_told_what_that_takes() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let (_files, settings) = settings(server.local_addr().unwrap().port());
    // A request on each connection: nothing is there, and nothing is taken on a condition.
    std::thread::spawn(move || {
        for connection in server.incoming() {
            let mut connection = BufReader::new(connection.unwrap());
            let mut lines = (&mut connection).lines().map(|line| line.unwrap());
            let is_put = lines.next().is_some_and(|line| line.starts_with("PUT"));
            assert!(lines.any(|line| line.is_empty()));
            drop(lines);
            let status = if is_put { "501 Not Implemented" } else { "404 Not Found" };
            let answer =
                format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            connection.get_mut().write_all(answer.as_bytes()).unwrap();
            // What was put, until the client has the answer.
            let _ = io::copy(&mut connection, &mut io::sink());
        }
    });
    let state = tempfile::tempdir().unwrap();
    let store = Store::of_test(state.path()).await.unwrap();
    let place = "s3://docs/a/".parse().unwrap();
    let documents = Documents::open(place, &[settings]).unwrap().unwrap();
    let away = documents.claim(&store).await.unwrap_err();
    assert!(matches!(away, DocumentError::Away { .. }), "{away}");
    let said = away.to_string();
    assert!(said.contains("501") && said.contains("a server that knows If-None-Match"), "{said}");
}

async fn is_known(documents: &Documents, store: &Store) -> bool {
    Documents::fits(Some(documents), store).await.unwrap()
}

fn folder() -> (TempDir, Documents) {
    let folder = tempfile::tempdir().unwrap();
    let documents = at(folder.path());
    (folder, documents)
}

/// A database's own place.
async fn claimed() -> (TempDir, Documents, TempDir, Store) {
    let state = tempfile::tempdir().unwrap();
    let store = Store::of_test(state.path()).await.unwrap();
    let (folder, documents) = folder();
    documents.claim(&store).await.unwrap();
    (folder, documents, state, store)
}

fn at(folder: &std::path::Path) -> Documents {
    Documents::open(DocumentsPlace::Folder(folder.to_owned()), &[]).unwrap().unwrap()
}

fn file(folder: &TempDir, name: &Hash) -> PathBuf {
    let name = name.to_hex();
    folder.path().join(&name[..2]).join(name.as_str())
}

fn settings(port: u16) -> (TempDir, Settings) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    std::fs::write(&file, "a-secret").unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    let text = format!(
        "bucket = \"docs\"\nendpoint = \"http://127.0.0.1:{port}\"\naccess_key_id = \"AK1\"\n\
         secret_access_key_file = {file:?}\n"
    );
    (folder, toml::from_str(&text).unwrap())
}
