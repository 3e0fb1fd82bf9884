//! Appliances that an operator has drained.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::control::Running;
use crate::failover::{begin, list, playing, until};

/// Reports come every 400 ms and tell of 5 Mb/s.
const SOON: &str =
    "[steering]\nttl = \"1 s\"\n[drain]\nquiet = \"500 ms\"\nquiet_egress = \"10 Mb/s\"\n";

fn appliance(control: &Running) -> Value {
    control.json("/v1/fleet")["sites"][0]["appliances"][0].clone()
}

#[test]
fn a_drained_appliance_is_on_no_answer_until_its_drain_ends() {
    let mut control = Running::start(SOON);
    let appliances = playing(&control);
    let url = begin(&control);
    assert_eq!(list(&control, &url).len(), 2);
    let generation = control.json("/v1/fleet")["generation"].clone();
    let path = "/v1/appliances/a1/drain";
    let drain = control.put(path, &json!({})).json();
    assert_eq!(drain["until_unix_s"], Value::Null);
    assert_eq!(list(&control, &url), ["a2"], "at once");
    let begun = control.playback("film");
    assert_eq!(begun["pathways"][0]["appliance"], "a2", "the other stands last, if at all");
    let explained = control.json("/v1/explain?asset=film").to_string();
    assert!(explained.contains("takes no new sessions"), "{explained}");
    assert_eq!(appliance(&control)["state"], "draining");
    let one = control.json("/v1/appliances/a1");
    assert_eq!((&one["state"], &one["drain"]), (&json!("draining"), &drain));
    assert_eq!(one["egress_bits_per_second"], 5_000_000);
    assert!(one["reason"].as_str().unwrap().contains("an operator has it drained"), "{one}");
    until(Instant::now(), || appliance(&control)["state"] == "drained");
    assert!(control.get("/metrics").text().contains("nearcast_control_appliances_drained 1"));
    assert_eq!(control.json("/v1/fleet")["generation"], generation, "no file moves");

    control.restart();
    assert_eq!(control.json("/v1/appliances/a1")["drain"], drain, "it is durable");
    until(Instant::now(), || appliance(&control)["state"] == "drained");
    until(Instant::now(), || list(&control, &url) == ["a2"]);
    assert_eq!(control.delete(path).status, 204);
    until(Instant::now(), || list(&control, &url).len() == 2);
    assert_eq!(appliance(&control)["drain"], Value::Null);
    drop(appliances);
}

#[test]
fn a_drain_has_its_time() {
    let control = Running::start(SOON);
    let appliances = playing(&control);
    let url = begin(&control);
    let path = "/v1/appliances/a1/drain";
    let later = control.put(path, &json!({ "at": "2100-01-31T02:00:00Z", "for_s": 60 })).json();
    assert_eq!(later["until_unix_s"], later["from_unix_s"].as_u64().unwrap() + 60);
    assert_eq!(list(&control, &url).len(), 2, "it is to come");
    assert!(control.get("/metrics").text().contains("nearcast_control_drains_scheduled 1"));
    control.put(path, &json!({ "for_s": 2 }));
    let began = Instant::now();
    assert_eq!(list(&control, &url), ["a2"]);
    let took = until(began, || list(&control, &url).len() == 2);
    assert!(took < Duration::from_secs(4), "{took:?}: by itself");
    drop(appliances);
}

#[test]
fn a_drain_that_makes_no_sense_is_refused_with_what_would() {
    let control = Running::start("");
    control.register(&["a1"]);
    let refused = |body: Value| control.put("/v1/appliances/a1/drain", &body).problem(400);
    assert!(refused(json!({ "at": "soon" })).contains("write a time in UTC"));
    assert!(refused(json!({ "for_s": 0 })).contains("use 1 to 31536000"));
    assert!(refused(json!({ "at": "9999-01-01T00:00:00Z" })).contains("a year before 9999"));
    let over = json!({ "at": "2020-01-01T00:00:00Z", "for_s": 60 });
    assert!(refused(over).contains("would be over by now"));
    let unknown = control.put("/v1/appliances/a9/drain", &json!({})).problem(404);
    assert!(unknown.contains("there is no appliance a9"), "{unknown}");
    assert_eq!(control.delete("/v1/appliances/a9/drain").status, 404);
}
