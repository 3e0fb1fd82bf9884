//! Block hashes in a bucket of a real S3 server, and in a folder: what members get of them, and
//! what goes on while the server is away.

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use wire::v1::ingest::NewVersion;

use crate::control::Running;
use crate::failover::{begin, list, playing, until};
use crate::film::film;
use crate::link::Link;
use crate::s3_server::{ID, REGION, SECRET, Server};

#[test]
fn block_hashes_are_in_a_bucket_and_members_get_them_before_and_after_a_restart() {
    let (server, mut control, _secret) = start();
    let appliances = playing(&control);
    let link = &appliances[0].link;
    read(link, &film(0));
    let names = || -> Vec<String> {
        server.bucket().below("one fleet/").into_iter().map(|(name, _)| name).collect()
    };
    let [document, marker] = &names()[..] else { panic!("{:?}", names()) };
    assert_eq!(marker, "nearcast-documents");
    let (shard, name) = document.split_once('/').unwrap();
    assert!(name.len() == 64 && name.starts_with(shard), "{document}");
    assert_eq!(server.bucket().below("").len(), 2, "nothing beside");
    assert_eq!(link.get(&format!("/v1/objects/{}/blocks", "00".repeat(32))).status, 404);

    control.restart();
    read(link, &film(0));
    assert_eq!(control.put("/v1/assets/film/versions/film-1", &film(0)).status, 200);
    assert_eq!(names().len(), 2, "it was known");
    drop(appliances);
}

#[test]
fn with_the_bucket_away_nothing_is_ingested_by_half_and_everything_else_goes_on() {
    let (server, mut control, _secret) = start();
    let appliances = playing(&control);
    let link = &appliances[0].link;
    let url = begin(&control);
    assert_eq!(list(&control, &url).len(), 2);
    let before = (control.json("/v1/assets"), server.bucket().below("").len());

    server.bucket().set_away(true);
    let answer = control.put("/v1/assets/film/versions/film-2", &film(2));
    assert_eq!(answer.header("retry-after"), "1");
    let said = answer.problem(503);
    assert!(said.contains("documents in s3://films/one fleet/ cannot be reached"), "{said}");
    let object = &film(0).files["v/r0.mp4"].object;
    let said = link.get(&format!("/v1/objects/{object}/blocks")).problem(503);
    assert!(said.contains("cannot be reached"), "{said}");
    let metrics = control.get("/metrics").text();
    let failed = metrics.lines().find(|line| line.contains("control_documents_failed_total "));
    assert!(failed.is_some_and(|line| !line.ends_with(" 0")), "{failed:?}");

    control.restart();
    assert_eq!((control.json("/v1/assets"), server.bucket().below("").len()), before);
    until(Instant::now(), || list(&control, &url).len() == 2);
    server.bucket().set_away(false);
    assert_eq!(control.put("/v1/assets/film/versions/film-2", &film(2)).status, 201);
    read(link, &film(2));
    read(link, &film(0));
    drop(appliances);
}

#[test]
fn no_change_waits_for_a_bucket_that_is_slow() {
    let (server, control, _secret) = start();
    control.register(&["a1"]);
    let begun = server.bucket().puts_begun();
    let held = server.bucket().hold_puts();
    std::thread::scope(|scope| {
        let ingest = scope.spawn(|| control.put("/v1/assets/film/versions/film-1", &film(0)));
        until(Instant::now(), || begun < server.bucket().puts_begun());
        let asked = Instant::now();
        assert_eq!(control.put("/v1/sites/c", &json!({ "prefixes": [] })).status, 200);
        assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
        assert_eq!(control.json("/v1/assets"), json!([]), "nobody sees it before it is there");
        drop(held);
        assert_eq!(ingest.join().unwrap().status, 201);
    });
    read(&Link::enrolled(&control, "a1"), &film(0));
}

#[test]
fn of_two_new_fleets_with_one_place_one_gets_it() {
    let (server, dir) = (Server::start(), tempfile::tempdir().unwrap());
    let held = server.bucket().hold_puts();
    let fleets = [1, 2].map(|_| Running::start(&settings(&server, &dir)));
    until(Instant::now(), || server.bucket().puts_begun() == 2);
    drop(held);
    let ingest = |of: &Running| of.put("/v1/assets/film/versions/film-1", &film(0));
    let answers = fleets.each_ref().map(ingest);
    let refused = answers.iter().find(|answer| answer.status != 201).unwrap();
    assert!(refused.problem(500).contains("are another database's"));
    assert_eq!(answers.iter().filter(|answer| answer.status == 201).count(), 1);
    assert_eq!(server.bucket().below("one fleet/").len(), 2, "its marker and its document");
}

#[test]
fn hashes_of_before_there_was_a_place_are_moved_while_the_writer_runs() {
    let mut control = Running::start("[documents]\nat = \"database\"\n");
    control.register(&["a1"]);
    assert_eq!(control.put("/v1/assets/film/versions/film-1", &film(0)).status, 201);
    let link = Link::enrolled(&control, "a1");
    read(&link, &film(0));
    control.end();
    let folder = control.state().join("later");
    let settings = std::fs::read_to_string(control.file()).unwrap();
    let settings = settings.replace("\"database\"", &format!("{folder:?}"));
    std::fs::write(control.file(), settings).unwrap();
    control.go();
    let moved = || control.get("/metrics").text().contains("control_documents_written_total 1\n");
    until(Instant::now(), moved);
    read(&link, &film(0));
    let shards = std::fs::read_dir(&folder)
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_type().unwrap().is_dir());
    assert_eq!(shards.count(), 1, "one document");
}

/// A member gets the hashes of every file.
fn read(link: &Link, film: &NewVersion) {
    for (path, file) in &film.files {
        let answer = link.get(&format!("/v1/objects/{}/blocks", file.object));
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        assert_eq!(answer.bytes, STANDARD.decode(&file.blocks).unwrap(), "{path}");
    }
}

/// A writer whose documents are in a bucket.
fn start() -> (Server, Running, tempfile::TempDir) {
    let (server, dir) = (Server::start(), tempfile::tempdir().unwrap());
    let control = Running::start(&settings(&server, &dir));
    (server, control, dir)
}

fn settings(server: &Server, dir: &tempfile::TempDir) -> String {
    format!("[documents]\nat = \"s3://films/one fleet/\"\n{}", bucket_settings(server, dir))
}

/// The bucket, as a process may write to it.
pub(crate) fn bucket_settings(server: &Server, dir: &tempfile::TempDir) -> String {
    let secret = dir.path().join("secret");
    std::fs::write(&secret, SECRET).unwrap();
    std::fs::set_permissions(&secret, PermissionsExt::from_mode(0o600)).unwrap();
    format!(
        "[[s3]]\nbucket = \"films\"\nendpoint = {:?}\nregion = {REGION:?}\n\
         access_key_id = {ID:?}\nsecret_access_key_file = {secret:?}\n",
        server.endpoint()
    )
}
