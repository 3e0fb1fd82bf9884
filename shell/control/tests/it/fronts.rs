//! Fronts: what they know of the writer, and what they do while it is away.

use std::time::{Duration, Instant};

use identity::credentials::Credentials;
use identity::member::Member;
use model::manifest::TokenKey;
use model::units::UnixSeconds;
use serde_json::json;

use crate::appliance::{Appliance, Reporting};
use crate::control::Running;
use crate::film::film;
use crate::link::{self, Link};

const INTERVAL: Duration = Duration::from_millis(300);

/// A front tells its writer every ten seconds, and a test may come just after.
const UNTIL_MAX: Duration = Duration::from_secs(30);

#[test]
fn a_front_begins_and_steers_playbacks_while_the_writer_is_away_also_after_a_restart() {
    let (mut writer, mut front, mut appliances) = fleet();
    let begun = writer.playback("film");
    let ours = || priority(&writer.json(begun["steering_url"].as_str().unwrap()));
    let before = ours();
    let sealed = begun["steering_url"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    let at_front = format!("/steer/v1/{sealed}");
    assert_eq!(priority(&front.json(&at_front)), before, "the same session at another process");
    let manifest = manifest_keys(&writer, &appliances[0]);

    writer.end();
    let check = |front: &Running| {
        let whole = || front.json("/v1/fleet")["assets"][0]["copies_complete"] == 2;
        until(whole, "reports made anew what it knows");
        until(|| priority(&front.json(&at_front)) == before, "its list is back");
        let metrics = front.get("/metrics").text();
        assert!(metrics.contains("nearcast_control_tickets_unknown_total 0"), "{metrics}");
        let entry = begun["hls_url"].as_str().unwrap();
        assert_eq!(front.get(entry).status, 200, "a grant of the writer");
        let begun = front.playback("film");
        let url = begun["pathways"][0]["base_url"].as_str().unwrap();
        let token = url.split("/t/").nth(1).unwrap().split('/').next().unwrap();
        let verified =
            playback::token::verify(&manifest, token, "film-1", "v/r0.mp4", UnixSeconds(0));
        assert!(verified.is_ok(), "appliances take its tokens: {verified:?}");
        assert_eq!(front.get(begun["hls_url"].as_str().unwrap()).status, 200);
        assert_eq!(front.get("/v1/play/film.m3u8").status, 401);
    };
    check(&front);
    front.restart();
    check(&front);

    appliances[0].die();
    until(|| priority(&front.json(&at_front)) == ["a2"], "it notices by itself");
    let state = |front: &Running| front.json("/v1/fleet")["sites"][0]["appliances"][0].clone();
    assert_eq!(state(&front)["state"], "stale");

    writer.go();
    assert_eq!(writer.put("/v1/policy", &json!({"copies": 1})).status, 200);
    until(|| front.json("/v1/fleet")["assets"][0]["copies_wanted"] == 1, "it follows again");
}

#[test]
fn a_front_leads_nobody_to_an_appliance_that_is_drained_also_after_a_restart() {
    let (mut writer, mut front, _appliances) = fleet();
    let begun = writer.playback("film");
    let sealed = begun["steering_url"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    let polled = |front: &Running| priority(&front.json(&format!("/steer/v1/{sealed}")));
    assert_eq!(writer.put("/v1/appliances/a1/drain", &json!({})).status, 200);
    until(|| polled(&front) == ["a2"], "the drain arrives");
    writer.end();
    front.restart();
    let state = || front.json("/v1/fleet")["sites"][0]["appliances"][0]["state"].clone();
    until(|| state() == "draining", "it is on its own disk");
    // Until a2 has told what it holds, the order in the ticket is given.
    let whole = || front.json("/v1/fleet")["assets"][0]["copies_complete"] == 2;
    until(whole, "it knows who holds the film");
    assert_eq!(polled(&front), ["a2"]);
    writer.go();
    assert_eq!(writer.delete("/v1/appliances/a1/drain").status, 204);
    until(|| polled(&front).len() == 2, "the end of it arrives");
}

#[test]
fn a_front_learns_what_is_public_and_who_is_revoked_and_knows_it_after_a_restart() {
    let (mut writer, mut front, _appliances) = fleet();
    let (ended, other) = (writer.playback("film"), writer.playback("film"));
    let session = ended["session"].as_str().unwrap();
    assert_eq!(writer.put("/v1/assets/film/public", &()).status, 204);
    until(|| front.get("/v1/play/film.m3u8").status == 200, "it is public at the front");
    assert_eq!(front.json("/v1/assets")[0]["public"], true);
    assert_eq!(writer.delete("/v1/assets/film/public").status, 204);
    until(|| front.get("/v1/play/film.m3u8").status == 401, "it is not any more");
    let refused = front.delete(&format!("/v1/playbacks/{session}"));
    assert!(refused.problem(421).contains("ask the writer"));
    assert_eq!(writer.delete(&format!("/v1/playbacks/{session}")).status, 204);
    let path = |begun: &serde_json::Value, key: &str| {
        let url = begun[key].as_str().unwrap();
        url.strip_prefix(&writer.url).unwrap_or(url).to_owned()
    };
    let (url, steering) = (path(&ended, "hls_url"), path(&ended, "steering_url"));
    let (good, well) = (path(&other, "hls_url"), path(&other, "steering_url"));
    until(|| front.get(&url).status == 403, "the front refuses the session");
    writer.end();
    for restarts in [false, true] {
        if restarts {
            front.restart();
        }
        for refused in [&url, &steering] {
            let detail = front.get(refused).problem(403);
            assert!(detail.contains("ended by the service"), "{detail}");
        }
        assert_eq!(front.get(&well).status, 200, "others are steered");
        assert_ne!(front.get(&good).status, 403, "and may begin");
    }
}

#[test]
fn a_front_refuses_what_is_the_writers_and_says_whose_it_is() {
    let (writer, front, _appliances) = fleet();
    let answers = [
        front.put("/v1/sites/x", &json!({"prefixes": []})),
        front.delete("/v1/appliances/a1"),
        front.post("/v1/appliances/a1/enrolment", &()),
        front.get("/v1/policy"),
        front.get("/"),
    ];
    for answer in answers {
        let detail = answer.problem(421);
        assert!(detail.contains(&format!("https://{}", writer.fleet)), "{detail}");
    }
    assert_eq!(writer.json("/v1/sites").as_array().unwrap().len(), 1);
    let mut assets = writer.json("/v1/assets");
    assets[0]["versions"][0]["sources"] = json!([]);
    assert_eq!(front.json("/v1/assets"), assets, "all but where it is filled from");
    assert_eq!(front.json("/healthz"), json!({"status": "ok"}));
}

#[test]
fn only_fronts_get_snapshots_and_secrets_and_a_revoked_one_gets_none() {
    let (writer, front, appliances) = fleet();
    let paths = ["/v1/replica/snapshot", "/v1/replica/keys"];
    let f1 = Link::new(&writer, Credentials::load(&front.state()).unwrap());
    for path in paths {
        assert_eq!(f1.get(path).status, 200, "{path}");
        assert!(appliances[0].link.get(path).problem(403).contains("this is for fronts"));
        let (stranger, url) = link::stranger(&writer);
        assert_eq!(stranger.get(format!("{url}{path}")).call().unwrap().status(), 403);
        assert_eq!(writer.get(path).status, 404, "not on the address of people");
    }
    assert_eq!(writer.delete("/v1/fronts/f1/identity").status, 204);
    for path in paths {
        assert!(f1.get(path).problem(403).contains("revoked"), "{path}");
    }
}

#[test]
fn a_front_takes_reports_of_appliances_that_are_not_revoked() {
    let (writer, front, appliances) = fleet();
    let ask = |name: &str, credentials: &Credentials| {
        let link = Link::to_front(&front, "f1", credentials.clone());
        let report = Appliance::new(name, "https://127.0.0.2:8443").report;
        link.post(&format!("/v1/appliances/{name}/report"), &report)
    };
    let a1 = &appliances[0].link.credentials;
    assert_eq!(ask("a1", a1).status, 200);
    assert!(ask("a2", a1).problem(403).contains("this is for appliance a2"));
    let f1 = Credentials::load(&front.state()).unwrap();
    assert!(ask("a1", &f1).problem(403).contains("this is for appliances"));
    assert_eq!(writer.delete("/v1/appliances/a1/identity").status, 204);
    until(|| ask("a1", a1).status == 403, "the revocation arrives");
    assert!(ask("a1", a1).problem(403).contains("revoked"));
}

#[test]
fn a_snapshot_on_disk_that_was_changed_is_not_used() {
    let (writer, mut front, _appliances) = fleet();
    let path = front.state().join("snapshot.signed");
    let text = std::fs::read_to_string(&path).unwrap();
    let changed = text.replace("127.0.0.1/32", "192.0.2.1/32");
    assert_ne!(changed, text);
    front.end();
    std::fs::write(&path, changed).unwrap();
    front.go();
    assert_eq!(front.json("/v1/fleet")["sites"], {
        let mut sites = front.json("/v1/fleet")["sites"].clone();
        sites[0]["prefixes"] = json!(["127.0.0.1/32"]);
        sites
    });
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "the writer was asked again");
    drop(writer);
}

#[test]
fn a_restart_of_the_writer_gives_fronts_nothing_new_and_an_old_copy_is_noticed() {
    let (mut writer, front, _appliances) = fleet();
    let f1 = Credentials::load(&front.state()).unwrap();
    let generation = |writer: &Running| {
        let bytes = Link::new(writer, f1.clone()).get("/v1/replica/snapshot").bytes;
        let text = String::from_utf8(bytes).unwrap();
        let (_, payload) = text.split_once('\n').unwrap();
        let wire: wire::v1::replica::Snapshot = serde_json::from_str(payload).unwrap();
        wire.generation
    };
    let before = generation(&writer);
    writer.restart();
    assert_eq!(generation(&writer), before);
    let ask = |writer: &Running, known: u64| {
        Link::new(writer, f1.clone()).get(&format!("/v1/replica/snapshot?known={known}"))
    };
    assert_eq!(ask(&writer, before).status, 204);
    assert!(ask(&writer, before + 1).problem(409).contains("restored from an old copy"));
    assert_eq!(writer.put("/v1/policy", &json!({"copies": 1})).status, 200);
    let after = generation(&writer);
    assert!(before < after);
    writer.restart();
    assert_eq!(generation(&writer), after);
}

#[test]
fn the_writer_tells_what_its_fronts_have_decided_too() {
    let (mut writer, mut front, _appliances) = fleet();
    let served = |of: &Running| -> u64 {
        let rows = of.json("/v1/sheds");
        let rows = rows.as_array().unwrap().iter();
        let is_ours = |row: &&serde_json::Value| row["name"] == "a" && row["class"] == "none";
        rows.filter(is_ours).map(|row| row["begun"].as_u64().unwrap()).sum()
    };
    (0..3).for_each(|_| drop(front.playback("film")));
    (0..2).for_each(|_| drop(writer.playback("film")));
    assert_eq!(served(&front), 3, "a front has its own");
    until(|| served(&writer) == 5, "it has told the writer");
    let page = writer.get("/metrics").text();
    assert!(page.contains("nearcast_control_shed_fronts 1"), "{page}");
    let own = "nearcast_control_nearest_decisions_total{site=\"a\",class=\"none\"} 2";
    assert!(page.contains(own), "Prometheus sums the processes: {page}");
    let whole = |front: &Running| front.json("/v1/fleet")["assets"][0]["copies_complete"] == 2;
    front.restart();
    until(|| whole(&front), "reports made anew what it knows");
    front.playback("film");
    until(|| served(&writer) == 3, "it counts from its start on");
    writer.end();
    front.restart();
    until(|| whole(&front), "it goes on without its writer");
    front.playback("film");
    let failed = || !front.get("/metrics").text().contains("shed_reports_failed_total 0\n");
    until(failed, "and counts that it cannot tell it");
}

/// A writer, a front, and two appliances with a film that report to both.
fn fleet() -> (Running, Running, Vec<Reporting>) {
    let writer = Running::start("");
    let names = ["a1", "a2"];
    writer.register(&names);
    let mut appliances: Vec<Appliance> =
        names.iter().map(|name| Appliance::new(name, "https://127.0.0.2:8443")).collect();
    for appliance in &mut appliances {
        appliance.report(&writer);
    }
    until(
        || !writer.json("/v1/appliances").to_string().contains("_bytes\":null"),
        "drives are known",
    );
    assert_eq!(writer.put("/v1/assets/film/versions/film-1", &film(0)).status, 201);
    for appliance in &mut appliances {
        let manifest = appliance.fetch(&writer).expect("a manifest");
        appliance.hold(&writer, &manifest);
    }
    let front = front(&writer, "f1");
    let go_on = |appliance: Appliance| appliance.go_on_with(&writer, &[("f1", &front)], INTERVAL);
    let appliances: Vec<Reporting> = appliances.into_iter().map(go_on).collect();
    for running in [&writer, &front] {
        let whole = || running.json("/v1/fleet")["assets"][0]["copies_complete"] == 2;
        until(whole, "both are known to hold the film");
    }
    (writer, front, appliances)
}

fn front(writer: &Running, name: &str) -> Running {
    let settings = format!("[front]\nname = {name:?}\nwriter = \"https://{}\"", writer.fleet);
    let mut front = Running::prepare(&format!("role = \"front\"\n{settings}"));
    let answer = writer.post(&format!("/v1/fronts/{name}/enrolment"), &());
    let code = answer.json()["code"].as_str().unwrap().parse().unwrap();
    let credentials = link::enrol(writer, &Member::front(name), &code).unwrap();
    credentials.save(&front.state()).unwrap();
    front.go();
    front
}

fn manifest_keys(writer: &Running, appliance: &Reporting) -> Vec<TokenKey> {
    let _ = writer;
    let answer = appliance.link.get("/v1/appliances/a1/manifest");
    let wire = appliance.link.open(&answer.bytes).unwrap();
    wire::convert::manifest_in(&wire).unwrap().token_keys
}

fn priority(document: &serde_json::Value) -> Vec<String> {
    let names = document["PATHWAY-PRIORITY"].as_array().unwrap();
    names.iter().map(|name| name.as_str().unwrap().to_owned()).collect()
}

fn until(mut condition: impl FnMut() -> bool, what: &str) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < UNTIL_MAX, "{what}: it never came true");
        std::thread::sleep(Duration::from_millis(20));
    }
}
