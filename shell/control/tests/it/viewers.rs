//! What viewers felt: from reports of appliances, and from players that tell of themselves.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use wire::v1::viewers::{ViewerBatch, ViewerRow};

use crate::control::Running;
use crate::players::with_appliances;
use crate::promtool;

fn batch(number: u64, stalls: u64) -> Option<ViewerBatch> {
    let row = |by: &str, name: &str| ViewerRow {
        by: by.to_owned(),
        name: name.to_owned(),
        source: "requests".to_owned(),
        sums: BTreeMap::from([
            ("playbacks_total".to_owned(), 1),
            ("stalls_total".to_owned(), stalls),
            ("playbacks_stalled_total".to_owned(), stalls.min(3)),
            ("stalled_seconds_total".to_owned(), stalls * 2_000_000_000),
            ("watched_seconds_total".to_owned(), 100_000_000_000),
            ("something_new_total".to_owned(), 5),
        ]),
    };
    let rows = vec![
        row("site", "here"),
        row("asset", "film-1"),
        row("network", "10.0.0.0/8"),
        row("player", "avplayer"),
        row("player", "x\"} 1\n\u{1b}[2J"),
        row("network", "192.0.2.0/24"),
        row("mood", "unknown"),
        row("network", &"long".repeat(50)),
    ];
    Some(ViewerBatch { number, rows })
}

fn told(control: &Running, by: &str, name: &str, source: &str) -> Value {
    let out = control.get("/v1/viewers").json();
    let rows = out["rows"].as_array().unwrap();
    let is = |row: &&Value| row["by"] == by && row["name"] == name && row["source"] == source;
    rows.iter().find(is).map_or(Value::Null, |row| row["total"].clone())
}

#[test]
fn what_appliances_tell_is_summed_once_and_stalls_are_warned_of() {
    let (control, mut appliances, _) = with_appliances("");
    let a1 = &mut appliances[0];
    a1.report.viewers = batch(1, 7);
    a1.report.networks = Some(0);
    let reply = a1.report(&control);
    assert_eq!(reply.viewers, 1);
    let networks = reply.networks.expect("it knows none");
    assert!(networks.prefixes.contains(&"10.0.0.0/8".to_owned()), "{networks:?}");
    a1.report.networks = Some(networks.state);
    let again = a1.report(&control);
    assert_eq!((again.viewers, again.networks), (1, None), "the same batch counts once");
    for (by, name) in
        [("site", "a"), ("asset", "film"), ("network", "10.0.0.0/8"), ("player", "avplayer")]
    {
        let total = told(&control, by, name, "requests");
        assert_eq!(total["stalls"], 7, "{by} {name}");
        assert_eq!((&total["stalled_ms"], &total["playbacks"]), (&json!(14_000), &json!(1)));
    }
    a1.report.viewers = batch(2, 1);
    assert_eq!(a1.report(&control).viewers, 2);
    a1.report.start_id += 1;
    a1.report.viewers = batch(1, 1);
    assert_eq!(a1.report(&control).viewers, 1, "another start counts anew");
    assert_eq!(told(&control, "site", "a", "requests")["stalls"], 9);
    let out = control.get("/v1/viewers").json();
    assert_eq!(out["rows"].as_array().unwrap().len(), 6, "what is not known is of others");
    assert_eq!(told(&control, "network", "others", "requests")["stalls"], 9);
    assert_eq!(told(&control, "player", "others", "requests")["stalls"], 9);
    assert_eq!(out["warnings"][0]["site"], "a", "{out}");
    let page = control.get("/metrics").text();
    promtool::check(&page).unwrap();
    let stalls = "nearcast_control_viewer_stalls_total{site=\"a\",source=\"requests\"} 9";
    assert!(page.contains(stalls) && page.contains("viewer_warning{site=\"a\"} 1"), "{page}");
    assert!(!page.contains("10.0.0.0/8"), "networks are too many for metrics");
    assert!(!page.contains('\u{1b}'), "no appliance makes names");
    // What its viewers cannot have felt is cut off, and no other figure suffers from it.
    let lies =
        [(2, 0, "buffer_seconds_total"), (3, 0, "stalled_seconds_total"), (4, 3, "cut_total")];
    for (number, row, figure) in lies {
        let mut much = batch(number, 1);
        much.as_mut().unwrap().rows[row].sums.insert(figure.to_owned(), u64::MAX);
        a1.report.viewers = much;
        assert_eq!(a1.report(&control).viewers, number);
        assert_eq!(told(&control, "site", "a", "requests")["stalls"], 8 + number, "{figure}");
    }
    let page = control.get("/metrics").text();
    let cut = "nearcast_control_viewer_batches_cut_total 3\n";
    assert!(page.contains(cut), "{page}");
    let stalled = told(&control, "site", "a", "requests")["stalled_ms"].as_u64().unwrap();
    assert!(stalled <= 3_100_000 * 50_000, "{stalled}: of so many in fifty minutes");
    a1.report.viewers = batch(5, 1);
    assert_eq!(a1.report(&control).viewers, 5);
    assert_eq!(told(&control, "site", "a", "requests")["stalls"], 13);
    assert!(page.contains("nearcast_control_viewer_sums_of_others_total 0\n"), "{page}");
    let fleet = control.json("/v1/fleet").to_string();
    assert!(fleet.contains("uptime_s") && !fleet.contains("stalls_total"), "{fleet}");
}

#[test]
fn a_player_tells_of_itself_with_the_ticket_of_its_playback() {
    let (control, ..) = with_appliances("");
    let wish = json!({"asset": "film", "client": "10.1.2.3"});
    let playback = control.post("/v1/playbacks", &wish).json();
    let url = playback["events_url"].as_str().unwrap();
    let path = url.strip_prefix(&control.url).unwrap();
    let lines = "e=ps,sid=\"x\",sta=s,ts=1700000000000,v=2\n\
                 e=ps,sid=\"x\",sta=p,ts=1700000000600,v=2,sf=h\n\
                 e=ps,sid=\"x\",sta=r,ts=1700000009000,v=2\n\
                 e=ps,sid=\"x\",sta=p,ts=1700000011500,v=2\n";
    let answer = control.post_events(path, lines);
    assert_eq!(answer.status, 204, "{}", answer.text());
    assert_eq!(answer.header("access-control-allow-origin"), "*");
    let total = told(&control, "asset", "film", "events");
    assert_eq!((&total["stalls"], &total["stalled_ms"]), (&json!(1), &json!(2_500)));
    assert_eq!((&total["start_ms"], &total["playbacks"]), (&json!(600), &json!(1)));
    assert_eq!(told(&control, "network", "10.0.0.0/8", "events")["stalls"], 1);
    assert_eq!(told(&control, "site", "b", "events")["stalls"], 1, "10.1.2.3 is of site b");
    // Strangers have no ticket.
    for bad in ["/events/v1/x", &path.replace("/v1/", "/v1/x"), &format!("{path}x")] {
        let refused = control.post_refused_events(bad, lines);
        assert_eq!(refused.status, 401, "{bad}");
    }
    let steering = playback["steering_url"].as_str().unwrap().strip_prefix(&control.url).unwrap();
    assert_eq!(control.post_refused_events(steering, lines).status, 405);
    // What comes again counts once.
    assert_eq!(control.post_events(path, lines).status, 204);
    assert_eq!(told(&control, "asset", "film", "events")["stalls"], 1);
    // Who has one may not say without end.
    let much = lines.repeat(10);
    let statuses: Vec<u16> = (0..3).map(|_| control.post_events(path, &much).status).collect();
    assert_eq!(statuses, [204, 429, 429]);
    assert_eq!(control.post_refused_events(path, &"x".repeat(80_000)).status, 413);
    let page = control.get("/metrics").text();
    for line in ["event_reports_total 3\n", "event_reports_refused_total 3\n"] {
        assert!(page.contains(&format!("nearcast_control_{line}")), "{line} in {page}");
    }
}
