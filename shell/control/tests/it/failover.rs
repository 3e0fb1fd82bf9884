//! Appliances that are lost, and a control plane that starts again.

use std::time::{Duration, Instant};

use serde_json::json;
use wire::v1::manifest::Manifest;

use crate::appliance::{Appliance, Reporting};
use crate::control::Running;
use crate::film::film;

const INTERVAL: Duration = Duration::from_millis(400);

#[test]
fn a_hung_appliance_is_off_the_list_within_two_seconds_and_back_with_its_first_report() {
    let control = Running::start("");
    let mut appliances = playing(&control);
    let url = begin(&control);
    assert_eq!(list(&control, &url).len(), 2);
    let last = appliances[0].hang();
    let took = until(last, || list(&control, &url) == ["a2"]);
    assert!(took < Duration::from_secs(2), "{took:?} from its last report");
    assert!(Duration::from_millis(1400) < took, "{took:?}: an accepting address is no failure");
    let fleet = control.json("/v1/fleet");
    let a1 = &fleet["sites"][0]["appliances"][0];
    assert_eq!(a1["state"], "stale");
    assert!(a1["reason"].as_str().unwrap().contains("no report for"), "{a1}");
    let explained = control.json("/v1/explain?asset=film").to_string();
    assert!(explained.contains("\"text\":\"not reporting\""), "{explained}");

    let mut a1 = Appliance::new("a1", "https://127.0.0.2:8443");
    a1.report.start_id = 78;
    a1.link = Some(appliances[0].link.clone());
    a1.settle(&control);
    assert_eq!(list(&control, &url).len(), 2);
}

#[test]
fn a_dead_appliance_is_off_the_list_sooner_because_its_address_refuses() {
    let control = Running::start("");
    let mut appliances = playing(&control);
    let url = begin(&control);
    let last = appliances[1].die();
    let took = until(last, || list(&control, &url) == ["a1"]);
    assert!(took < Duration::from_millis(1400), "{took:?} from its last report");
    let text = control.json("/v1/fleet")["errors"].to_string();
    assert!(text.contains("nothing answers at its address"), "{text}");
}

#[test]
fn with_all_appliances_lost_the_first_list_stands() {
    let control = Running::start("");
    let mut appliances = playing(&control);
    let url = begin(&control);
    let first = list(&control, &url);
    let last = appliances.iter_mut().map(Reporting::hang).max().unwrap();
    let stale = || control.json("/v1/fleet")["sites"].to_string().matches("\"stale\"").count();
    until(last, || stale() == 2);
    assert_eq!(list(&control, &url), first);
    let begun = control.playback("film");
    let entry = control.get(begun["hls_url"].as_str().unwrap());
    assert_eq!(entry.status, 200, "new players get the same chance");
}

#[test]
fn a_restart_keeps_desired_state_generations_keys_and_running_playbacks() {
    let mut control = Running::start("");
    let appliances = playing(&control);
    let url = begin(&control);
    let known = |control: &Running| {
        let mut known = Vec::new();
        for path in ["/v1/sites", "/v1/appliances", "/v1/assets", "/v1/policy", "/v1/placement"] {
            known.push(control.json(path));
        }
        known
    };
    let link = appliances[0].link.clone();
    let manifest = || {
        let signed = link.get("/v1/appliances/a1/manifest");
        Manifest { issued_unix_s: 0, ..link.open(&signed.bytes).unwrap() }
    };
    let (before, manifest_before) = (known(&control), manifest());
    control.restart();
    assert_eq!(known(&control), before);
    assert_eq!(manifest(), manifest_before);
    let generation = manifest_before.generation;
    let path = format!("/v1/appliances/a1/manifest?known={generation}");
    assert_eq!(link.get(&path).status, 204, "appliances fetch nothing again");

    // At once, while nobody has reported yet, the running playback keeps its list; then reports
    // bring back the healthy and, asked for in full, what each holds.
    assert_eq!(list(&control, &url).len(), 2);
    let complete = || control.json("/v1/fleet")["assets"][0]["copies_complete"] == json!(2);
    until(Instant::now(), complete);
    assert_eq!(list(&control, &url).len(), 2);
    drop(appliances);
}

#[test]
fn copies_move_only_when_desired_state_changes() {
    let control = Running::start("");
    let mut appliances = playing(&control);
    let generation = || control.json("/v1/fleet")["generation"].clone();
    let before = generation();
    let last = appliances[0].hang();
    until(last, || control.json("/v1/fleet").to_string().contains("\"stale\""));
    assert_eq!(generation(), before, "silence moves nothing");
    assert_eq!(control.delete("/v1/appliances/a1").status, 204);
    control.put("/v1/policy", &json!({"copies": 1}));
    assert_eq!(control.json("/v1/placement")["holdings"], json!({"a2": ["film-1"]}));
}

/// Two appliances of one site that hold a film and go on reporting.
pub(crate) fn playing(control: &Running) -> Vec<Reporting> {
    let names = ["a1", "a2"];
    control.register(&names);
    let mut appliances: Vec<Appliance> =
        names.iter().map(|name| Appliance::new(name, "https://127.0.0.2:8443")).collect();
    for appliance in &mut appliances {
        appliance.report(control);
    }
    while control.json("/v1/appliances").to_string().contains("_bytes\":null") {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(control.put("/v1/assets/film/versions/film-1", &film(0)).status, 201);
    for appliance in &mut appliances {
        let manifest = appliance.fetch(control).expect("a manifest");
        appliance.hold(control, &manifest);
    }
    let go_on = |appliance: Appliance| appliance.go_on(control, INTERVAL);
    let reporting = appliances.into_iter().map(go_on).collect();
    // The next reports name the addresses that accept.
    let moved = || !control.json("/v1/fleet")["sites"].to_string().contains("127.0.0.2");
    until(Instant::now(), moved);
    reporting
}

pub(crate) fn begin(control: &Running) -> String {
    control.playback("film")["steering_url"].as_str().unwrap().to_owned()
}

pub(crate) fn list(control: &Running, url: &str) -> Vec<String> {
    let document = control.json(url);
    let names = document["PATHWAY-PRIORITY"].as_array().unwrap();
    names.iter().map(|name| name.as_str().unwrap().to_owned()).collect()
}

/// How long after `start` the condition came true; at most 10 s.
pub(crate) fn until(start: Instant, mut condition: impl FnMut() -> bool) -> Duration {
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(10), "it never came true");
        std::thread::sleep(Duration::from_millis(20));
    }
    start.elapsed()
}
