//! What viewers are sent of each file, as appliances tell it, and what is forecast from it.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use serde_json::{Value, json};
use wire::v1::demand::{DemandPart, DemandTaken};

use crate::appliance::Appliance;
use crate::control::Running;
use crate::players::with_appliances;
use crate::promtool;

/// The number of the file at this path of the film.
fn file(control: &Running, appliance: &mut Appliance, path: &str) -> u32 {
    appliance.generation = 0;
    let manifest = appliance.fetch(control).unwrap();
    let version = manifest.versions.iter().find(|version| version.id == "film-1").unwrap();
    let objects: BTreeSet<&str> = version.files.values().map(|file| file.object.as_str()).collect();
    let object = version.files[path].object.as_str();
    let at = objects.iter().position(|of| *of == object).unwrap();
    manifest.numbers["film-1"] + u32::try_from(at).unwrap()
}

/// Of the same hour, so many days before the one up to which control counts: twenty minutes ago.
pub(crate) fn part(number: u64, days_ago: u32, files: &[(u32, u64)]) -> DemandPart {
    static HOUR: OnceLock<u32> = OnceLock::new();
    let hour = HOUR.get_or_init(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        u32::try_from((now.as_secs() - 1200) / 3600).unwrap()
    });
    let hour = hour - 24 * days_ago;
    let (files, bytes) = files.iter().copied().unzip();
    DemandPart { number, hour, files, bytes, beyond_bytes: 7 }
}

pub(crate) fn tell(control: &Running, appliance: &mut Appliance, part: &DemandPart) -> u64 {
    let path = format!("/v1/appliances/{}/demand", appliance.name);
    let answer = appliance.link(control).post(&path, part);
    assert_eq!(answer.status, 200, "{}", answer.text());
    serde_json::from_value::<DemandTaken>(answer.json()).unwrap().counted
}

fn way<'a>(out: &'a Value, name: &str) -> &'a Value {
    let ways = out["backtest"]["ways"].as_array().unwrap();
    ways.iter().find(|way| way["name"] == name).unwrap()
}

#[test]
fn what_appliances_tell_is_counted_once_and_forecast() {
    let (mut control, mut appliances, _) = with_appliances("");
    assert_eq!(control.json("/v1/popularity")["items"], 0, "nobody watched anything yet");
    let low = file(&control, &mut appliances[0], "v/r0.mp4");
    let high = file(&control, &mut appliances[0], "v/r3.mp4");
    let mut files = [(low, 1_000_000_000), (high, 3_000_000_000)];
    files.sort_unstable();
    for day in 0..9 {
        let number = 100 + u64::from(day);
        let part = part(number, 9 - day, &files);
        assert_eq!(tell(&control, &mut appliances[0], &part), number);
        assert_eq!(tell(&control, &mut appliances[0], &part), number, "and again");
    }
    let others = [(low, 500_000_000), (u32::MAX - 9, 5)];
    assert_eq!(tell(&control, &mut appliances[1], &part(3, 1, &others)), 3);
    control.restart();
    for appliance in &mut appliances {
        appliance.link = None;
    }
    assert_eq!(tell(&control, &mut appliances[0], &part(108, 1, &files)), 108);
    let out = control.json("/v1/popularity?backtest=true");
    assert_eq!((&out["region"], &out["regions"]), (&json!("-"), &json!(["-"])));
    assert_eq!(out["items"], 2);
    let days = out["days_known"].as_u64().unwrap();
    assert!([10, 11].contains(&days), "{days}: in the first minutes of a day, it is the eleventh");
    assert_eq!(out["day_before_bytes"], 4_500_000_000_u64);
    let top = &out["top"];
    assert_eq!((&top[0]["version"], &top[0]["rendition"]), (&json!("film-1"), &json!(4)));
    assert_eq!(top[0]["expected_bytes"], 3_000_000_000_u64, "{out}");
    assert_eq!(top[1]["rendition"], 1);
    let second = top[1]["expected_bytes"].as_u64().unwrap();
    assert!(1_000_000_000 < second && second < 1_500_000_000, "{out}");
    // Of days with a day before and one a week before there are two; the first was as all others.
    assert_eq!(
        (&out["backtest"]["days"], &out["backtest"]["came_bytes"]),
        (&json!(2), &json!(8_500_000_000_u64),)
    );
    for name in ["forecast", "yesterday", "week_ago"] {
        assert_eq!(way(&out, name)["off_bytes"], 500_000_000, "{name}");
    }
    assert_eq!(way(&out, "known")["off_bytes"], 0);
    let hits = way(&out, "known")["hit_bytes"].as_array().unwrap();
    assert_eq!((&hits[0], &hits[4]), (&json!(0), &json!(6_000_000_000_u64)), "one of four fits");
}

#[test]
fn each_manifest_cluster_is_a_region_of_its_own() {
    let (control, mut appliances, _) = with_appliances("");
    let cluster = control.put("/v1/sites/b", &json!({"prefixes": [], "manifest_cluster": "south"}));
    assert_eq!(cluster.status, 200, "{}", cluster.text());
    let low = file(&control, &mut appliances[0], "v/r0.mp4");
    for (index, bytes) in [(0, 10), (2, 20)] {
        let part = part(1, 1, &[(low, bytes)]);
        assert_eq!(tell(&control, &mut appliances[index], &part), 1);
    }
    let expected = |region: &str| {
        let out = control.json(&format!("/v1/popularity?region={region}"));
        assert_eq!(out["regions"], json!(["-", "south"]));
        out["expected_bytes"].clone()
    };
    assert_eq!((expected("-"), expected("south")), (json!(10), json!(20)));
    let other = control.get("/v1/popularity?region=north");
    assert_eq!(
        other.problem(404),
        "there is no region north: use - or a manifest cluster of sites"
    );
    assert_eq!(control.get("/v1/popularity?most=0").problem(400), "most: use 1 to 10000");
    // A version that is taken down is expected by nobody.
    assert_eq!(control.delete("/v1/assets/film").status, 200);
    assert_eq!(expected("south"), json!(0));
}

#[test]
fn parts_that_are_none_are_refused_and_what_belongs_to_no_item_is_lost() {
    let (control, mut appliances, _) = with_appliances("");
    let low = file(&control, &mut appliances[0], "v/r0.mp4");
    let link = appliances[0].link(&control);
    let post = |part: &DemandPart| link.post("/v1/appliances/a1/demand", part);
    let good = part(1, 1, &[(low, 1)]);
    let uneven = DemandPart { bytes: vec![], ..good.clone() };
    let twice = DemandPart { files: vec![low; 2], bytes: vec![1; 2], ..good.clone() };
    let number = DemandPart { number: u64::MAX, ..good.clone() };
    for bad in [&uneven, &twice, &number] {
        assert_eq!(post(bad).status, 400, "{bad:?}");
    }
    assert_eq!(link.post("/v1/appliances/a2/demand", &good).status, 403, "another's");
    // A clock is wrong: it is kept until it is right.
    let new = DemandPart { hour: good.hour + 100, number: 9, ..good.clone() };
    let detail = "the hour is not over by control's clock: keep it, and set clocks right";
    assert_eq!(post(&new).problem(503), detail);
    // Too old, and of a file that no version has.
    let old = part(1, 60, &[(low, 100)]);
    let unknown = part(2, 1, &[(low + 1_000_000, 50)]);
    for (number, part) in (1..).zip([old, unknown]) {
        assert_eq!(tell(&control, &mut appliances[0], &part), number);
    }
    assert_eq!(control.json("/v1/popularity")["expected_bytes"], 0);
    let page = control.get("/metrics").text();
    promtool::check(&page).unwrap();
    // 100 + 50, and 7 of files that were too many in each.
    for line in ["parts_total 2\n", "lost_bytes_total 164\n", "bytes_total 0\n"] {
        assert!(page.contains(&format!("nearcast_control_demand_{line}")), "{line} in {page}");
    }
}

#[test]
fn whoever_enrols_after_a_thief_is_counted_and_a_thief_tells_no_more_than_the_machine_can_send() {
    let (control, mut appliances, _) = with_appliances("");
    let [a1, ..] = &mut *appliances else { panic!("three") };
    let low = file(&control, a1, "v/r0.mp4");
    let post = |a1: &mut Appliance, part| a1.link(&control).post("/v1/appliances/a1/demand", &part);
    let too_much = post(a1, part(1, 2, &[(low, u64::MAX)])).problem(400);
    assert!(too_much.contains("of which control believes 720000000000000."), "{too_much}");
    let last = i64::MAX.unsigned_abs();
    assert_eq!(tell(&control, a1, &part(last - 1, 2, &[(low, 10)])), last - 1);
    // The same hour a second time, and not a third time.
    assert_eq!(tell(&control, a1, &part(last, 2, &[(low, 10)])), last);
    assert_eq!(tell(&control, a1, &part(5, 1, &[(low, 10)])), last, "it is not counted");
    assert_eq!(control.delete("/v1/appliances/a1/identity").status, 204);
    a1.link = None;
    assert_eq!(tell(&control, a1, &part(5, 1, &[(low, 30)])), 5);
    assert_eq!(tell(&control, a1, &part(5, 1, &[(low, 30)])), 5, "once");
    let late = post(a1, part(6, 1, &[(low, 30)]));
    assert!(late.problem(503).contains("one in an hour: keep it"), "{}", late.text());
    let out = control.json("/v1/popularity");
    assert_eq!(out["day_before_bytes"], 30);
    let page = control.get("/metrics").text();
    for line in ["_total 3\n", "_again_total 2\n", "_late_total 1\n", "_refused_total 1\n"] {
        let line = format!("nearcast_control_demand_parts{line}");
        assert!(page.contains(&line), "{line} in {page}");
    }
}
