//! The ledger of a process: what it decided is in it, can be made again, and cannot be changed.

use std::path::PathBuf;
use std::time::Instant;

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use ledger::{Fault, Opened, WhatIf};
use model::id::parse_hex;
use serde_json::json;

use crate::control::Running;
use crate::documents::bucket_settings;
use crate::failover::until;
use crate::players::with_appliances;
use crate::s3_server::Server;

#[test]
fn what_was_decided_is_in_the_ledger_and_can_be_made_again() {
    let (mut control, mut appliances, _) = with_appliances("[ledger]\nfile_size = \"64 KiB\"");
    let mut decided = 0;
    for round in 0..30_u64 {
        let begun = control.post("/v1/playbacks", &json!({"asset": "film", "client": "10.9.8.7"}));
        let begun = begun.json();
        assert_eq!(control.get(begun["hls_url"].as_str().unwrap()).status, 200);
        appliances[0].report.load.connections = round * 30;
        appliances[0].report.load.serving = round % 7 != 0;
        appliances.iter_mut().for_each(|appliance| drop(appliance.report(&control)));
        assert_eq!(control.get(begun["steering_url"].as_str().unwrap()).status, 200);
        decided += 3;
    }
    let explained = control.json("/v1/explain?asset=film&client=10.3.2.1");
    assert_eq!(explained["asset_version"], "film-1");
    let shown = control.json("/v1/ledger");
    assert_eq!(shown["one_in"], 1);
    let key = shown["public_key"].as_str().unwrap().to_owned();
    control.end();

    let files = files(&control);
    assert_eq!(files.len(), 1, "it is not full");
    let bytes = std::fs::read(&files[0]).unwrap();
    let opened = open(&bytes, &key).unwrap();
    let outcome = ledger::replay(&opened, &WhatIf::default()).unwrap();
    assert_eq!((outcome.decisions, outcome.differing), (decided, 0), "{:?}", outcome.differences);
    assert_eq!((outcome.begun, outcome.sessions.len()), (60, 30), "a question is no decision");
    let without = WhatIf { without_sites: ["b".parse().unwrap()].into(), ..WhatIf::default() };
    let outcome = ledger::replay(&opened, &without).unwrap();
    let way = (Some("b".parse().unwrap()), Some("a".parse().unwrap()));
    assert!(!outcome.moved[&way].sessions.is_empty(), "their site is gone");
    assert!(outcome.moved.keys().all(|(from, _)| *from == way.0), "{:?}", outcome.moved.keys());

    let has = |part: &[u8]| bytes.windows(part.len()).any(|of| of == part);
    assert!(has(b"film-1") && has(b"b1") && !has(&[10, 9, 8, 7]) && !has(b"10.9.8"));
    for at in [0, 5, 70, bytes.len() / 2, bytes.len() - 1] {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        assert!(open(&changed, &key).is_err(), "byte {at}");
    }
    assert_eq!(open(&bytes[..bytes.len() - 1], &key).unwrap_err(), Fault::Cut(last(&opened)));

    control.go();
    assert_eq!(control.json("/v1/ledger")["public_key"], key.as_str(), "it stays");
    let listed = &control.json("/v1/ledger")["files"];
    let name = files[0].file_name().unwrap().to_str().unwrap();
    assert_eq!(listed, &json!([{ "name": name, "bytes": bytes.len(), "open": false }]));
    assert_eq!(control.get(&format!("/v1/ledger/{name}")).bytes, bytes);
    for odd in ["0000000009.ledger", "1.ledger", "..%2Fledger.key", "ledger.key"] {
        let said = control.get(&format!("/v1/ledger/{odd}")).problem(404);
        assert!(said.contains("no such file"), "{said}");
    }
}

#[test]
fn ended_files_are_in_a_bucket_and_nobody_waits_where_it_is_away() {
    let (server, dir) = (Server::start(), tempfile::tempdir().unwrap());
    let archive = bucket_settings(&server, &dir);
    let (mut control, mut appliances, _) =
        with_appliances(&format!("[ledger]\narchive = \"s3://films/ledgers/\"\n{archive}"));
    control.playback("film");
    let archived = || server.bucket().below("ledgers/");
    control.restart();
    until(Instant::now(), || archived().len() == 1);
    let key = control.json("/v1/ledger")["public_key"].as_str().unwrap().to_owned();
    let (name, bytes) = archived().remove(0);
    assert!(name.starts_with(&format!("{key}/0000000000-")) && name.ends_with(".ledger"), "{name}");
    let here = files(&control);
    assert_eq!(bytes[..], std::fs::read(&here[0]).unwrap(), "and it is here, too");
    assert_eq!(ledger::replay(&open(&bytes, &key).unwrap(), &WhatIf::default()).unwrap().begun, 1);

    let mut play = |control: &Running| {
        until(Instant::now(), || {
            appliances.iter_mut().for_each(|appliance| drop(appliance.report(control)));
            control.post("/v1/playbacks", &json!({ "asset": "film" })).status == 200
        });
    };
    server.bucket().set_away(true);
    play(&control);
    control.restart();
    let metric = |name: &str| {
        let metrics = control.get("/metrics").text();
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_owned();
        line.trim().parse::<u64>().unwrap()
    };
    until(Instant::now(), || 0 < metric("nearcast_control_ledger_archive_failed_total "));
    play(&control);
    assert!(2 <= files(&control).len(), "nothing goes");
    server.bucket().set_away(false);
    until(Instant::now(), || archived().len() == 2);
    assert_eq!(metric("nearcast_control_ledger_files_unarchived_total "), 0);
}

#[test]
fn with_none_to_be_kept_there_is_no_ledger() {
    let (mut control, _, _) = with_appliances("[ledger]\none_in = 0");
    control.playback("film");
    assert_eq!(control.json("/v1/ledger")["files"], json!([]));
    control.end();
    assert!(!control.state().join("ledger").exists());
}

fn files(control: &Running) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(control.state().join("ledger")).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|of| of == "ledger"));
    files.sort();
    files
}

fn last(opened: &Opened<'_>) -> u32 {
    u32::try_from(opened.blocks.len()).unwrap() - 1
}

fn open<'a>(bytes: &'a [u8], key: &str) -> Result<Opened<'a>, Fault> {
    let mut public = [0; 32];
    assert!(parse_hex(key, &mut public));
    ledger::open(bytes, false, |hash, seal| {
        UnparsedPublicKey::new(&ED25519, &public).verify(&ledger::message(hash), seal).is_ok()
    })
}
