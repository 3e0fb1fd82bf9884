//! When sites fill: said, told to appliances, shown and paused.

use serde_json::{Value, json};

use crate::appliance::Appliance;
use crate::control::Running;
use crate::players::with_appliances;

fn site(control: &Running, name: &str) -> Value {
    let all = control.json("/v1/fill");
    let found = all["sites"].as_array().unwrap().iter().find(|site| site["site"] == name);
    found.unwrap_or_else(|| panic!("{name} is not in {all}")).clone()
}

#[test]
fn windows_of_sites_and_of_the_policy_are_checked_kept_and_told_to_appliances_that_read_them() {
    let mut control = Running::start("");
    for name in ["a", "b"] {
        control.put(&format!("/v1/sites/{name}"), &json!({"prefixes": []}));
    }
    control.put("/v1/appliances/a1", &json!({"site": "a"}));
    let mut a1 = Appliance::new("a1", "https://127.0.0.2:8443");
    assert_eq!(a1.report(&control).fill, None, "a release that does not know the field");
    a1.report.fill_rules = Some(0);
    let first = a1.report(&control).fill.expect("it goes by none");
    assert_eq!((&first.windows, first.paused_until_unix_s), (&vec![], None));
    a1.report.fill_rules = Some(first.state);
    assert_eq!(a1.report(&control).fill, None, "it goes by these");

    control.put("/v1/policy", &json!({"copies": 2, "fill_windows": "2:00-14:00"}));
    assert_eq!(a1.report(&control).fill.unwrap().windows, [[120, 840]]);
    let berlin = json!({
        "prefixes": [], "time_zone": "Europe/Berlin", "fill_windows": "22:00-06:00,12:00-13:00",
        "uplink_bps": 80_000_000,
    });
    control.put("/v1/sites/a", &berlin);
    let told = a1.report(&control).fill.unwrap();
    assert_eq!(told.windows, [[720, 780], [1320, 360]]);
    assert!(1 < told.offsets.len() && told.offsets.iter().all(|of| of.ahead_s % 3600 == 0));
    assert_eq!((told.rate_max_bps, told.outside_max_bps), (0, 80_000_000));

    for (path, body, wanted) in [
        ("/v1/sites/a", json!({"prefixes": [], "fill_windows": "2-14"}), "is no window"),
        ("/v1/sites/a", json!({"prefixes": [], "fill_windows": "2:00-2:00"}), "\"always\""),
        ("/v1/policy", json!({"fill_windows": "1:00-3:00,2:00-4:00"}), "write them as one"),
    ] {
        let why = control.put(path, &body).problem(400);
        assert!(why.starts_with("fill_windows: ") && why.contains(wanted), "{why}");
    }
    control.restart();
    a1.link = None;
    assert_eq!(control.json("/v1/policy")["fill_windows"], "02:00-14:00");
    let (a, b) = (site(&control, "a"), site(&control, "b"));
    assert_eq!(
        (&a["windows"], &a["by_policy"]),
        (&json!("12:00-13:00, 22:00-06:00"), &json!(false))
    );
    assert_eq!((&b["windows"], &b["by_policy"]), (&json!("02:00-14:00"), &json!(true)));
    assert_eq!((&a["time_zone"], &b["time_zone"]), (&json!("Europe/Berlin"), &json!("UTC")));
    control.put("/v1/sites/a", &json!({"prefixes": [], "fill_windows": ""}));
    assert_eq!(site(&control, "a")["windows"], "02:00-14:00");
}

#[test]
fn a_pause_is_kept_until_it_is_over_or_ended() {
    let mut control = Running::start("");
    control.put("/v1/sites/a", &json!({"prefixes": []}));
    let pause = "/v1/sites/a/fill-pause";
    let said = control.put(pause, &json!({"until": "2100-01-31T02:00:00Z"})).json();
    assert_eq!(said["fill_paused_until_unix_s"], 4_105_044_000_u64);
    control.restart();
    let shown = site(&control, "a");
    assert_eq!(
        (&shown["is_open"], &shown["next_change_unix_s"]),
        (&json!(false), &json!(4_105_044_000_u64))
    );
    control.put("/v1/sites/a", &json!({"prefixes": [], "open": true}));
    assert_eq!(site(&control, "a")["is_open"], false, "what was not said stays");
    control.put(pause, &json!({}));
    let shown = site(&control, "a");
    assert_eq!(
        (&shown["paused_until_unix_s"], &shown["next_change_unix_s"]),
        (&json!((1_u64 << 53) - 1), &Value::Null)
    );
    assert_eq!(control.delete(pause).status, 204);
    assert_eq!(control.delete(pause).status, 204);
    let shown = site(&control, "a");
    assert_eq!((&shown["is_open"], &shown["paused_until_unix_s"]), (&json!(true), &Value::Null));
    assert!(
        control
            .put(pause, &json!({"until": "2001-01-31T02:00:00Z"}))
            .problem(400)
            .contains("this time is past")
    );
    assert!(
        control.put(pause, &json!({"until": "soon"})).problem(400).contains("write a time in UTC")
    );
    assert!(control.put("/v1/sites/z/fill-pause", &json!({})).problem(404).contains("no site z"));
    assert!(control.delete("/v1/sites/z/fill-pause").problem(404).contains("no site z"));
    assert!(control.get("/v1/fill?site=z").problem(404).contains("no site z"));
}

#[test]
fn what_is_missing_and_when_it_will_be_there_is_told_of_each_appliance() {
    let control = Running::start("");
    control.put("/v1/sites/a", &json!({"prefixes": []}));
    let fast = json!({"site": "a", "fill_bps": 400_000_000});
    control.put("/v1/appliances/a1", &fast);
    control.put("/v1/appliances/a2", &json!({"site": "a"}));
    let mut a1 = Appliance::new("a1", "https://127.0.0.2:8443");
    a1.report.fill_rules = Some(0);
    a1.report.fill.bytes_wanted = 3_000_000_000;
    a1.report.fill.bytes_held = 1_000_000_000;
    a1.report.fill.bits_per_second = 160_000_000;
    let state = a1.report(&control).fill.unwrap().state;
    let shown = site(&control, "a")["appliances"].clone();
    assert_eq!(
        (&shown[0]["appliance"], &shown[0]["bytes_missing"]),
        (&json!("a1"), &json!(2_000_000_000))
    );
    assert_eq!(
        (&shown[0]["has_other_rules"], &shown[0]["rate_max_bps"]),
        (&json!(true), &json!(400_000_000))
    );
    assert_eq!(
        (&shown[1]["bytes_missing"], &shown[1]["ready_unix_s"]),
        (&Value::Null, &Value::Null)
    );
    a1.report.fill_rules = Some(state);
    a1.report(&control);
    let shown = site(&control, "a")["appliances"][0].clone();
    assert_eq!(shown["has_other_rules"], false);
    let left = |shown: &Value| shown["ready_unix_s"].as_u64().unwrap() - now();
    assert!((95..=101).contains(&left(&shown)), "100 s at 160 Mb/s: {}", left(&shown));
    // Paused for a day, it goes on at the most that it may fetch: 40 s.
    let until = now() + 86_400;
    let day = humantime::format_rfc3339_seconds(
        std::time::UNIX_EPOCH + std::time::Duration::from_secs(until),
    );
    control.put("/v1/sites/a/fill-pause", &json!({"until": day.to_string()}));
    a1.report.fill.bits_per_second = 0;
    a1.report(&control);
    let shown = site(&control, "a")["appliances"][0].clone();
    assert_eq!(shown["ready_unix_s"], until + 41);
}

fn now() -> u64 {
    std::time::UNIX_EPOCH.elapsed().unwrap().as_secs()
}

#[test]
fn what_is_urgent_is_kept_told_to_appliances_and_forgotten() {
    let (mut control, mut appliances, _) = with_appliances("");
    let a1 = &mut appliances[0];
    a1.report.fill_rules = Some(0);
    assert!(a1.report(&control).fill.unwrap().urgent.is_empty());
    let path = "/v1/fill/urgent/film-1";
    let until = |text: &str| json!({ "until": text });
    let said = control.put(path, &until("2100-01-31T02:00:00Z")).json();
    assert_eq!(said, json!([{"version": "film-1", "until_unix_s": 4_105_044_000_u64}]));
    let told = a1.report(&control).fill.unwrap();
    assert_eq!((told.urgent, told.urgent_max_bps), (vec!["film-1".to_owned()], 100_000_000));
    let policy = |bps: u64| control.put("/v1/policy", &json!({"fill_urgent_bps": bps}));
    assert!(policy(5).problem(400).starts_with("fill_urgent_bps: "));
    assert_eq!(policy(5_000_000).json()["fill_urgent_bps"], 5_000_000);
    assert_eq!(a1.report(&control).fill.unwrap().urgent_max_bps, 5_000_000);
    let unknown = control.put("/v1/fill/urgent/none-1", &json!({})).problem(404);
    assert!(unknown.contains("no asset version none-1"), "{unknown}");
    assert!(control.put(path, &until("2001-01-31T02:00:00Z")).problem(400).contains("is past"));
    control.restart();
    a1.link = None;
    assert_eq!(control.json("/v1/fill")["urgent"][0]["version"], "film-1");
    assert_eq!(control.json("/v1/policy")["fill_urgent_bps"], 5_000_000);
    assert_eq!(a1.report(&control).fill.unwrap().urgent, ["film-1"]);
    assert_eq!(control.put(path, &json!({})).json()[0]["until_unix_s"], Value::Null);
    assert_eq!((control.delete(path).status, control.delete(path).status), (204, 204));
    assert!(a1.report(&control).fill.unwrap().urgent.is_empty());
    assert_eq!(control.json("/v1/fill")["urgent"], json!([]));
}
