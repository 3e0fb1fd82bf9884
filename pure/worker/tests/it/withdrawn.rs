//! Versions that are not in the manifest any more.

use crate::*;

#[test]
fn a_connection_that_has_played_is_refused_what_is_withdrawn() {
    let mut bench = Bench::with(Config { hot_blocks: 4, ..config() });
    let connection = bench.connect(0);
    let ask = |bench: &mut Bench, path: &str| {
        bench.received.remove(&connection);
        bench.say(connection, &get(path, ""));
        bench.settle();
        status(&split(&bench.received[&connection]).0)
    };
    // From a drive, until its blocks are hot, and from memory.
    for path in ["v.mp4", "v.mp4", "v.mp4", "list.m3u8"] {
        assert_eq!(ask(&mut bench, path), 200);
    }
    assert_eq!(bench.worker.served().0, 1);
    follow(&mut bench, 2, &[]);
    assert_eq!(bench.worker.served().0, 2, "nothing is under way");
    for path in ["v.mp4", "list.m3u8", "empty"] {
        assert_eq!(ask(&mut bench, path), 404, "{path}");
    }
    assert!(bench.closed.is_empty(), "and it is told so on the connection that it has");
    follow(&mut bench, 3, &["film-1"]);
    assert_eq!(ask(&mut bench, "v.mp4"), 200, "it may be shown again");
}

#[test]
fn a_body_under_way_is_broken_off_and_then_the_manifest_is_in_force() {
    let mut bench = Bench::new();
    let [fast, slow, other] = [0, 1, 2].map(|slot| bench.connect(slot));
    for connection in [fast, slow] {
        bench.say(connection, &get("v.mp4", ""));
    }
    // Some bytes are with the client, and more are to come.
    while bench.sends.len() < 2 {
        assert!(bench.step(0));
    }
    follow(&mut bench, 2, &["film-2"]);
    bench.say(other, &get("v.mp4", ""));
    assert_eq!(status(&split(&bench.received[&other]).0), 404, "new requests are refused at once");
    bench.sends.retain(|connection| *connection != slow);
    bench.settle();
    assert_eq!(split(&bench.received[&fast]).1, content(1, 1_000_000), "it has time to end");
    bench.wait_ms(2900);
    assert_eq!((bench.closed.len(), bench.worker.served().0), (0, 1));
    bench.wait_ms(200);
    assert_eq!(bench.closed, [(slow, Ending::Abort)].into());
    let counters = bench.worker.counters();
    assert_eq!((counters.cut, counters.aborted, bench.worker.served().0), (1, 0, 2));
}

#[test]
fn whoever_waits_for_a_drive_is_told_that_there_is_nothing() {
    let mut bench = Bench::new();
    bench.hung.insert(0);
    let connection = bench.connect(0);
    bench.say(connection, &get("v.mp4", ""));
    bench.settle();
    let siblings = [("a2".parse().unwrap(), "https://a2".into())].into();
    bench.event(Event::Update(Update::Siblings(Arc::new(siblings))));
    follow(&mut bench, 2, &[]);
    bench.wait_ms(400);
    assert!(!bench.received.contains_key(&connection));
    bench.wait_ms(2700);
    let (head, body) = split(&bench.received[&connection]);
    assert_eq!((status(&head), body.len()), (404, 0), "not sent to a sibling, which refuses too");
    assert_eq!(bench.worker.served().0, 2);
}

/// A newer manifest with these versions of the same files, in force.
fn follow(bench: &mut Bench, generation: u64, versions: &[&str]) {
    let files: BTreeMap<String, File> =
        FILES.iter().map(|(path, n, len, _)| ((*path).to_owned(), file(*n, *len))).collect();
    let version = |name: &&str| {
        Arc::new(AssetVersion {
            id: name.parse().unwrap(),
            asset: "film".parse().unwrap(),
            sources: vec![],
            modified: UnixSeconds(784_111_777),
            pace: None,
            files: files.clone(),
        })
    };
    let public_key = key().public_key().as_ref().try_into().unwrap();
    bench.event(Event::Update(Update::Manifest(Arc::new(Manifest {
        appliance: "a1".parse().unwrap(),
        generation: Generation(generation),
        token_keys: vec![TokenKey { kid: "k1".to_owned(), public_key }],
        trust: model::manifest::Trust::default(),
        numbers: BTreeMap::new(),
        siblings: BTreeMap::new(),
        site: Vec::new(),
        versions: versions.iter().map(version).collect(),
    }))));
}
