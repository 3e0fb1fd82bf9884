//! What players see.

use std::time::{Duration, Instant};

use model::manifest::TokenKey;
use model::units::UnixSeconds;
use playback::token;
use serde_json::json;
use wire::v1::manifest::Lacking;

use crate::appliance::Appliance;
use crate::control::{PATIENT, Running};
use crate::film::film;
use crate::promtool;

/// Any: the tokens are for all of a version.
const PATH: &str = "v/media_0.m3u8";

#[test]
fn an_hls_player_gets_pathways_a_good_token_and_a_steering_server() {
    let (control, keys) = playing();
    let answer = control.get(&entry(&control, "hls_url"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.kind, "application/vnd.apple.mpegurl");
    assert_eq!(answer.header("cache-control"), "no-store");
    assert_eq!(answer.header("access-control-allow-origin"), "*");
    let text = answer.text();
    let pathways: Vec<&str> = quoted(&text, "PATHWAY-ID=\"");
    assert_eq!(pathways[0], pathways[1], "the steering tag names the first pathway");
    let variants = text.lines().filter(|line| line.starts_with("https://")).count();
    assert_eq!(variants, 9, "three variants on three appliances");
    assert!(["a1", "a2"].contains(&pathways[0]), "127.0.0.1 is of site a");
    assert_eq!(pathways.last(), Some(&"b1"));

    let url = text.lines().find(|line| line.starts_with("https://")).unwrap();
    assert!(url.ends_with("/v/media_0.m3u8"), "the entry's directory counts: {url}");
    let parts: Vec<&str> = url.split('/').collect();
    assert_eq!((parts[3], parts[5]), ("t", "film-1"));
    let now = UnixSeconds(now());
    let grant = token::verify(&keys, parts[4], "film-1", PATH, now).expect("the token is good");
    assert!((now.0 + 4 * 3600 - 5..=now.0 + 4 * 3600 + 5).contains(&grant.expires.0));

    let steering = quoted(&text, "SERVER-URI=\"")[0];
    assert!(steering.starts_with(&format!("{}/steer/v1/{}.", control.url, grant.session)));
    let answer = control.get(&format!("{steering}?_HLS_pathway={}&_HLS_throughput=5", pathways[0]));
    assert_eq!((answer.status, answer.kind.as_str()), (200, "application/json"));
    assert_eq!(answer.header("access-control-allow-origin"), "*");
    let document = answer.json();
    assert_eq!(document["VERSION"], 1);
    let ttl = document["TTL"].as_u64().unwrap();
    assert!((10..=12).contains(&ttl), "[steering] ttl, or up to a fifth more: {ttl}");
    assert_eq!(document["RELOAD-URI"], steering);
    let priority = document["PATHWAY-PRIORITY"].as_array().unwrap();
    assert_eq!(priority.len(), 3);
    assert_eq!(priority[0], pathways[0], "steering agrees with the playlist");
}

#[test]
fn a_dash_player_gets_the_same() {
    let (control, keys) = playing();
    let answer = control.get(&format!("{}&client=10.1.2.3", entry(&control, "dash_url")));
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.kind, "application/dash+xml");
    let text = answer.text();
    let locations = quoted(&text, "serviceLocation=\"");
    assert_eq!(locations.len(), 3);
    assert_eq!(locations[0], "b1", "10.1.2.3 is of site b");
    assert!(
        text.contains("<ContentSteering defaultServiceLocation=\"b1\" queryBeforeStart=\"false\">")
    );
    let base = text.split("serviceLocation=\"b1\">").nth(1).unwrap().split('<').next().unwrap();
    assert!(base.ends_with("/film-1/v/"), "{base}");
    let token = base.split('/').nth(4).unwrap();
    assert!(token::verify(&keys, token, "film-1", PATH, UnixSeconds(now())).is_ok());
}

#[test]
fn lower_renditions_come_from_a_site_that_holds_no_others_and_these_from_elsewhere() {
    let (control, mut appliances, _) = with_appliances("");
    let site = json!({"prefixes": ["127.0.0.0/8"], "bitrate_max_bps": 900_000});
    assert_eq!(control.put("/v1/sites/a", &site).json()["bitrate_max_bps"], 900_000);
    control.put("/v1/sites/a", &json!({"prefixes": ["127.0.0.0/8"]}));
    assert_eq!(control.json("/v1/sites/a")["bitrate_max_bps"], 900_000, "it stays");
    for appliance in &mut appliances[..2] {
        let wire = appliance.fetch(&control).expect("a manifest without the upper ones");
        let files: Vec<&str> = wire.versions[0].files.keys().map(String::as_str).collect();
        assert!(files.contains(&"v/r0.mp4") && files.contains(&"v/r3.mp4"), "{files:?}");
        assert!(!files.contains(&"v/r1.mp4") && !files.contains(&"v/r2.mp4"), "{files:?}");
        appliance.hold(&control, &wire);
    }
    assert!(appliances[2].fetch(&control).is_none(), "no file of the other site moves");
    let hosts = |text: &str, path: &str| {
        let urls = text.split(['"', '>', '\n']).filter(|url| url.starts_with("https://127"));
        let of_path = urls.filter(|url| url.split('<').next().unwrap().ends_with(path));
        of_path.map(|url| url.split(['/', ':']).nth(3).unwrap().to_owned()).collect::<Vec<_>>()
    };
    for (key, paths) in [
        ("hls_url", ["/media_0.m3u8", "/media_1.m3u8", "/media_2.m3u8", "/media_3.m3u8"]),
        ("dash_url", ["/r0.mp4", "/r1.mp4", "/r2.mp4", "/r3.mp4"]),
    ] {
        let text = control.get(&entry(&control, key)).text();
        let [low, middle, high, sound] = paths.map(|path| hosts(&text, path));
        let near = ["127.0.0.2", "127.0.0.3"];
        assert!(low.len() == 3 && near.iter().all(|host| low[..2].contains(&(*host).to_owned())));
        assert_eq!((low[2].as_str(), &sound), ("127.0.0.4", &low), "{text}");
        assert_eq!(
            (middle, high),
            (vec!["127.0.0.4".to_owned(); 3], vec!["127.0.0.4".to_owned(); 3])
        );
    }
    let begun = control.playback("film");
    let whole: Vec<_> =
        begun["pathways"].as_array().unwrap().iter().map(|of| &of["whole"]).collect();
    assert_eq!(whole, [&json!(false), &json!(false), &json!(true)]);
    let answer = control.get(begun["steering_url"].as_str().unwrap()).json();
    assert_eq!(answer["PATHWAY-PRIORITY"].as_array().unwrap().len(), 3, "{answer}");
    let explained = control.json("/v1/explain?asset=film&client=127.0.0.1");
    let why = explained["candidates"][0]["why"].as_str().unwrap();
    assert!(why.contains("holds some renditions of the version"), "{why}");
    let pathways = explained["pathways"].as_array().unwrap();
    assert_eq!(pathways.len(), 3, "{explained}");
    let near = pathways[0]["appliance"].as_str().unwrap();
    assert!(near.starts_with('a'), "{explained}");
    let from = pathways[0]["renditions"].as_array().unwrap().iter().map(|of| {
        let bitrate = of["bitrate_bps"].as_u64().is_some();
        (of["file"].as_str().unwrap(), bitrate, of["appliance"].as_str().unwrap())
    });
    let from: Vec<_> = from.collect();
    let expected = [
        ("v/media_0.m3u8", true, near),
        ("v/media_1.m3u8", true, "b1"),
        ("v/media_2.m3u8", true, "b1"),
        ("v/media_3.m3u8", true, near),
    ];
    assert_eq!(from, expected, "{explained}");
    assert_eq!(pathways[2], json!({"appliance": "b1", "renditions": []}), "all of it");
    let none = json!({"prefixes": ["127.0.0.0/8"], "bitrate_max_bps": 0});
    control.put("/v1/sites/a", &none);
    let wire = appliances[0].fetch(&control).expect("a manifest with all of it");
    assert_eq!(wire.versions[0].files.len(), 10);
}

#[test]
fn a_program_begins_a_playback_and_a_player_joins_it() {
    let (control, keys) = playing();
    let answer = control.post("/v1/playbacks", &json!({"asset": "film", "client": "10.0.0.7"}));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let playback = answer.json();
    assert_eq!(playback["asset_version"], "film-1");
    let session = playback["session"].as_str().unwrap();
    let first = &playback["pathways"][0];
    assert_eq!((&first["appliance"], &first["site"]), (&json!("b1"), &json!("b")));
    assert_eq!(first["plain_base_url"], "http://127.0.0.4:8480".to_owned() + &path_of(first));
    let token = first["base_url"].as_str().unwrap().split('/').nth(4).unwrap();
    let grant = token::verify(&keys, token, "film-1", PATH, UnixSeconds(now())).unwrap();
    assert_eq!(grant.session.as_str(), session);
    assert_eq!(playback["expires_unix_s"], grant.expires.0);
    let given = playback["grant_expires_unix_s"].as_u64().unwrap();
    assert!((now() + 890..=now() + 900).contains(&given), "15 min: {given}");
    assert_eq!(answer.header("cache-control"), "no-store");
    for key in ["hls_url", "dash_url"] {
        let text = control.get(playback[key].as_str().unwrap()).text();
        assert!(text.contains(session), "{key} joins the playback");
        assert!(text.contains("127.0.0.4"), "{key} is for the same client");
    }
}

#[test]
fn a_player_without_tls_gets_plain_listeners_only() {
    let (control, _) = playing();
    let text = control.get(&format!("{}&plain=1", entry(&control, "hls_url"))).text();
    assert!(!text.contains("https://"), "{text}");
    let hosts = text.lines().filter(|line| line.starts_with("http://127.0.0.4:8480/")).count();
    assert_eq!(hosts, 3, "one appliance has a plain listener");
}

#[test]
fn what_cannot_be_played_is_a_problem_that_a_page_may_read() {
    let control = Running::start("");
    let refused = control.post("/v1/playbacks", &json!({"asset": "film"}));
    assert!(refused.problem(404).contains("/v1/assets"));
    assert!(control.get("/v1/play/film").problem(404).contains("m3u8"));
    control.register(&["a1"]);
    control.put("/v1/assets/film/versions/film-1", &film(0));
    assert_eq!(control.put("/v1/assets/film/public", &()).status, 204);
    let refused = control.get("/v1/play/film.m3u8");
    assert_eq!(refused.header("access-control-allow-origin"), "*");
    assert_eq!(refused.header("retry-after"), "1");
    assert!(refused.problem(503).contains("no appliance has reported"));
    let mut a1 = Appliance::new("a1", "https://127.0.0.2:8443");
    a1.report(&control);
    assert_eq!(control.get("/v1/play/film.m3u8").status, 200, "better a doubtful list than none");
    let none = control.get("/v1/play/film.m3u8?entry=other.m3u8");
    assert!(none.problem(404).contains("entries"));
    assert!(control.get("/v1/play/film.m3u8?client=x").problem(400).contains("IP address"));
}

#[test]
fn nobody_begins_without_a_grant_for_this_asset_that_is_good_now() {
    let (control, _) = playing_with("[playback]\ngrant_lifetime = \"10 s\"\n");
    let begun = control.playback("film");
    let good = begun["hls_url"].as_str().unwrap().to_owned();
    let end = begun["grant_expires_unix_s"].as_u64().unwrap();
    assert!((now() + 8..=now() + 10).contains(&end), "{end}");
    assert_eq!(control.get(&good).status, 200);
    let (path, grant) = good.split_once("?grant=").unwrap();
    let steering = control.playback("film")["steering_url"].as_str().unwrap().to_owned();
    let ticket = steering.rsplit('/').next().unwrap();
    let later = grant.replacen('.', ".9", 1);
    let shorter = &grant[..grant.len() - 1];
    let asked = [
        (path.to_owned(), 401, "no-grant"),
        (format!("{path}?grant="), 401, "unknown-grant"),
        (format!("{path}?grant=x"), 401, "unknown-grant"),
        (format!("{path}?session={}", &grant[..16]), 401, "no-grant"),
        (format!("{path}?grant={shorter}"), 401, "unknown-grant"),
        (format!("{path}?grant={later}"), 401, "unknown-grant"),
        (format!("{path}?grant={ticket}"), 401, "unknown-grant"),
        (format!("/v1/play/other.mpd?grant={grant}"), 403, "grant-of-another-asset"),
    ];
    for (url, status, kind) in &asked {
        let answer = control.get(url);
        assert!(!answer.problem(*status).is_empty(), "{url}");
        assert_eq!(answer.json()["type"], format!("urn:nearcast:problem:{kind}"), "{url}");
        assert_eq!(answer.header("access-control-allow-origin"), "*", "{url}");
        assert!(!answer.text().contains("/t/"), "no media URL: {}", answer.text());
    }
    let challenge = control.get(path);
    assert_eq!(challenge.header("www-authenticate"), "Grant realm=\"nearcast\"");
}

#[test]
fn a_steering_url_that_is_not_ours_or_is_over_is_refused_without_a_look_at_the_fleet() {
    let (control, _) = playing();
    let begun = control.playback("film");
    let good = begun["steering_url"].as_str().unwrap().to_owned();
    assert_eq!(control.json(&good)["RELOAD-URI"], good);
    let (_, grant) = begun["hls_url"].as_str().unwrap().split_once("?grant=").unwrap();
    let strange = [
        good.replace("film-1", "film-2"),
        good.replacen(
            &format!("/{}.", begun["session"].as_str().unwrap()),
            "/AAAAAAAAAAAAAAAA.",
            1,
        ),
        format!("/steer/v1/{grant}"),
        format!("/steer/v1/{}", "x".repeat(2000)),
        "/steer/v1/x".to_owned(),
        "/steer/v1/%ff".to_owned(),
        "/steer/v1/a%22b?_HLS_pathway=zz".to_owned(),
    ];
    let first = control.get(&strange[0]).bytes;
    for url in &strange {
        let answer = control.get(url);
        assert!(answer.problem(401).contains("not given out here"), "{url}");
        assert_eq!(answer.header("access-control-allow-origin"), "*", "{url}");
        assert_eq!(answer.bytes, first, "{url}: the answer is always the same");
    }
    let metrics = control.get("/metrics").text();
    assert!(metrics.contains("nearcast_control_tickets_unknown_total 8"), "{metrics}");
    assert!(metrics.contains("nearcast_control_steering_answers_total 1"), "{metrics}");
}

#[test]
fn a_public_asset_needs_no_grant_until_it_is_public_no_more() {
    let (mut control, keys) = playing();
    let refused = control.put("/v1/assets/other/public", &());
    assert!(refused.problem(404).contains("/v1/assets"));
    assert_eq!(control.json("/v1/assets/film")["public"], false);
    assert_eq!(control.put("/v1/assets/film/public", &()).status, 204);
    assert_eq!(control.put("/v1/assets/film/public", &()).status, 204, "said again");
    assert_eq!(control.json("/v1/fleet")["assets"][0]["public"], true);
    let answers = ["", "?grant=x"].map(|query| control.get(&format!("/v1/play/film.mpd{query}")));
    let sessions = answers.map(|answer| {
        assert_eq!(answer.status, 200, "{}", answer.text());
        let text = answer.text();
        let token = text.split("/t/").nth(1).unwrap().split('/').next().unwrap().to_owned();
        let now = UnixSeconds(now());
        let grant = token::verify(&keys, &token, "film-1", PATH, now).unwrap();
        let steering = text.split("/steer/v1/").nth(1).unwrap().split('<').next().unwrap();
        assert_eq!(control.get(&format!("/steer/v1/{steering}")).status, 200);
        grant.session
    });
    assert_ne!(sessions[0], sessions[1], "each playback has a session of its own");
    assert_eq!(control.get("/steer/v1/x").status, 401, "steering needs a ticket all the same");
    control.restart();
    assert_eq!(control.json("/v1/assets")[0]["public"], true, "it is durable");
    assert_eq!(control.get("/v1/play/film.mpd").status, 503, "no grant is asked for");
    assert_eq!(control.delete("/v1/assets/film/public").status, 204);
    assert_eq!(control.get("/v1/play/film.mpd").status, 401);
    let audit = control.json("/v1/audit?limit=4");
    let line = |i: usize| {
        let line = &audit["lines"][i];
        let text = |field: &str| line[field].as_str().unwrap().to_owned();
        format!("{} {} {}: {}", text("method"), text("target"), line["outcome"], text("summary"))
    };
    assert_eq!(line(0), "DELETE /v1/assets/film/public 204: playing it needs a grant");
    assert_eq!(line(1), "PUT /v1/assets/film/public 204: anybody may play it");
}

#[test]
fn a_session_that_its_service_ends_neither_begins_nor_goes_on_also_after_a_restart() {
    let (mut control, _) = playing();
    let (ended, other) = (control.playback("film"), control.playback("film"));
    let urls = |begun: &serde_json::Value| {
        ["hls_url", "dash_url", "steering_url"].map(|key| begun[key].as_str().unwrap().to_owned())
    };
    for url in urls(&ended).iter().chain(&urls(&other)) {
        assert_eq!(control.get(url).status, 200, "{url}");
    }
    let path = format!("/v1/playbacks/{}", ended["session"].as_str().unwrap());
    assert_eq!(control.delete(&path).status, 204);
    assert_eq!(control.delete(&path).status, 204, "said again");
    assert!(control.delete("/v1/playbacks/x").problem(400).contains("POST /v1/playbacks"));
    for restarts in [false, true] {
        if restarts {
            control.restart();
        }
        for url in urls(&ended) {
            let answer = control.get(&url);
            assert!(answer.problem(403).contains("ended by the service"), "{url}");
            assert_eq!(answer.header("access-control-allow-origin"), "*", "{url}");
        }
        for url in urls(&other) {
            let status = control.get(&url).status;
            assert!(status == 200 || (restarts && status == 503), "{url}: {status}");
        }
    }
    let line = &control.json("/v1/audit?limit=9")["lines"][2];
    assert_eq!((&line["method"], &line["target"]), (&json!("DELETE"), &json!(path)));
}

#[test]
fn pages_of_any_origin_may_ask() {
    let (control, _) = playing();
    for path in ["/v1/play/film.m3u8", "/steer/v1/x"] {
        let request = ureq::http::Request::builder().method("OPTIONS").uri(control.full(path));
        let request = request.header("origin", "https://tv.example");
        let request = request.header("access-control-request-headers", "cmcd-session");
        let answer = control.send(request.body(String::new()).unwrap());
        assert_eq!(answer.status, 204, "{path}");
        assert_eq!(answer.header("access-control-allow-headers"), "*");
        assert_eq!(answer.header("access-control-max-age"), "86400");
    }
    let foreign = ureq::http::Request::builder().method("OPTIONS");
    let foreign = foreign.uri(control.full("/v1/playbacks")).header("origin", "https://tv.example");
    let answer = control.send(foreign.body(String::new()).unwrap());
    assert_eq!(answer.header("access-control-allow-origin"), "", "a grant is no page's to ask for");
    assert_eq!(control.get("/v1/fleet").header("access-control-allow-origin"), "");
}

#[test]
fn an_operator_sees_why_a_client_gets_its_list() {
    let (control, _) = playing();
    let explained = control.json("/v1/explain?asset=film&client=10.3.2.1");
    assert_eq!(explained["asset_version"], "film-1");
    assert_eq!(explained["client_range"], "10.3.2.0/24");
    let candidates = explained["candidates"].as_array().unwrap();
    assert_eq!(candidates.len(), 3);
    assert_eq!((&candidates[0]["appliance"], &candidates[0]["rank"]), (&json!("b1"), &json!(1)));
    let why = candidates[0]["why"].as_str().unwrap();
    assert!(why.contains("holds the whole version") && why.contains("own site"), "{why}");
    let reasons = candidates[0]["reasons"].as_array().unwrap();
    let all = |key: &str| reasons.iter().map(|of| of[key].as_str().unwrap()).collect::<Vec<_>>();
    assert_eq!(all("kind"), ["locate", "health", "content", "load", "affinity"]);
    assert_eq!(all("text").join("; "), why, "the line is for readers of before");
    assert!(!control.get("/v1/explain?asset=none").problem(404).is_empty());
}

/// Unit tests beside the code make a full house, a full disk, time that passes and strangers at
/// the door; the tests of `access` and `identity` make TLS and changes of identities.
const COUNTED_ELSEWHERE: [&str; 56] = [
    "nearcast_control_demand_parts_total",
    "nearcast_control_demand_parts_again_total",
    "nearcast_control_demand_parts_shed_total",
    "nearcast_control_demand_parts_late_total",
    "nearcast_control_demand_parts_refused_total",
    "nearcast_control_demand_bytes_total",
    "nearcast_control_demand_lost_bytes_total",
    "nearcast_control_ledger_files_archived_total",
    "nearcast_control_ledger_archive_failed_total",
    "nearcast_control_ledger_files_unarchived_total",
    "nearcast_control_shed_reports_failed_total",
    "nearcast_control_manifest_documents_shed_total",
    "nearcast_control_replica_snapshots_total",
    "nearcast_control_replica_differences_total",
    "nearcast_control_replica_snapshots_too_long_total",
    "nearcast_control_director_refused_total",
    "nearcast_control_director_lost_seconds_total",
    "nearcast_control_share_cuts_total",
    "nearcast_control_titles_cuts_total",
    "nearcast_control_director_actions_spared_total",
    "nearcast_control_decisions_logged_total",
    "nearcast_control_decisions_dropped_total",
    "nearcast_control_decisions_lost_total",
    "nearcast_control_steering_delayed_total",
    "nearcast_control_requests_shed_total",
    "nearcast_control_reports_shed_total",
    "nearcast_control_store_errors_total",
    "nearcast_control_handshakes_refused_total",
    "nearcast_control_members_refused_total",
    "nearcast_control_enrolments_refused_total",
    "nearcast_control_renewals_total",
    "nearcast_control_revocations_total",
    "nearcast_control_clones_total",
    "nearcast_control_grants_expired_total",
    "nearcast_control_tickets_expired_total",
    // By routers: `nearcast-lab routes`.
    "nearcast_control_routes_changes_total",
    // By unit tests of the director, with parts and tables that it does not take.
    "nearcast_control_routes_gaps_total",
    "nearcast_control_routes_unwanted_total",
    "nearcast_control_routes_waits_total",
    "nearcast_control_routes_refused_total",
    "nearcast_control_moves_total",
    "nearcast_control_connections_let_go_total",
    "nearcast_control_connections_refused_total",
    "nearcast_control_connections_timed_out_total",
    "nearcast_control_bodies_timed_out_total",
    "nearcast_control_proxy_headers_refused_total",
    "nearcast_control_forwarded_refused_total",
    // The tests of `viewers` and of `qoe` have players and appliances that say too much.
    "nearcast_control_event_reports_total",
    "nearcast_control_event_reports_refused_total",
    "nearcast_control_event_reports_dropped_total",
    "nearcast_control_viewer_batches_cut_total",
    "nearcast_control_viewer_sums_of_others_total",
    // The tests of `documents` write some, have a server that is away, and let weeks pass.
    "nearcast_control_documents_written_total",
    "nearcast_control_documents_failed_total",
    "nearcast_control_documents_removed_total",
    // By a clock that is moved by hand.
    "nearcast_control_versions_superseded_total",
];

#[test]
fn every_counter_counts_something() {
    // With health as it is by default, in which those who are silent are probed.
    let (control, ..) = holding(Running::start(""));
    let begun = control.playback("film");
    control.get(&format!("{}?_HLS_pathway=zz", begun["steering_url"].as_str().unwrap()));
    control.get("/v1/play/film.m3u8");
    control.get("/v1/play/film.m3u8?grant=x");
    control.get(&begun["hls_url"].as_str().unwrap().replace("film.m3u8", "none.m3u8"));
    control.get("/steer/v1/x");
    control.delete(&format!("/v1/playbacks/{}", begun["session"].as_str().unwrap()));
    control.get(begun["hls_url"].as_str().unwrap());
    control.get(begun["steering_url"].as_str().unwrap());
    let mut a1 = Appliance::new("a1", "http://127.0.0.1:1");
    a1.report.sequence = 0;
    a1.report(&control);
    a1.report.sequence = 100;
    a1.report.inventory.from = 12345;
    a1.report.inventory.to = 12346;
    a1.report(&control);
    a1.report.sequence = 50;
    a1.report(&control);
    a1.report.sequence = 101;
    let check = Some(wire::v1::report::InventoryCheck { count: 1, sum: 1 });
    a1.report.inventory = wire::v1::report::Inventory { to: 12346, check, ..Default::default() };
    a1.report(&control);
    let link = a1.link(&control);
    let short = link.open(&link.get("/v1/appliances/a1/manifest?short=true").bytes).unwrap();
    let documents = vec![short.listed[0].document.clone()];
    link.post("/v1/appliances/a1/documents", &Lacking { documents });
    assert_eq!(link.get("/v1/appliances/a1/trust").status, 200);
    assert_eq!(control.delete("/v1/assets/film").status, 200);
    a1.report.sequence = 200;
    a1.fetch(&control);
    a1.report.served_generation = Some(a1.generation);
    a1.report(&control);
    let foreign = ureq::http::Request::delete(control.full("/v1/sites/a"));
    let foreign = foreign.header("origin", "http://evil.example").body(String::new()).unwrap();
    assert_eq!(control.send(foreign).status, 403);
    let began = Instant::now();
    loop {
        let text = control.get("/metrics").text();
        let lines = text.lines().filter(|line| line.starts_with("nearcast_control_"));
        let counters = lines
            .filter_map(|line| line.split_once(' '))
            .filter(|(name, _)| name.ends_with("_total") && !COUNTED_ELSEWHERE.contains(name));
        let (counting, silent): (Vec<_>, Vec<_>) = counters.partition(|(_, value)| *value != "0");
        // Some count a little later, such as probes of who is silent.
        if silent.is_empty() {
            promtool::check(&text).unwrap();
            assert_eq!(counting.len(), 28);
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{silent:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Three appliances that hold a film, and the keys that they check tokens with.
fn playing() -> (Running, Vec<TokenKey>) {
    playing_with("")
}

fn playing_with(settings: &str) -> (Running, Vec<TokenKey>) {
    let (control, _, keys) = with_appliances(settings);
    (control, keys)
}

/// A control plane whose three appliances hold a film, and may be silent.
pub(crate) fn with_appliances(settings: &str) -> (Running, Vec<Appliance>, Vec<TokenKey>) {
    holding(Running::start(&format!("{settings}\n{PATIENT}")))
}

/// Three appliances come and hold a film.
fn holding(control: Running) -> (Running, Vec<Appliance>, Vec<TokenKey>) {
    let names = ["a1", "a2", "b1"];
    control.register(&names);
    let mut appliances: Vec<Appliance> = (2..)
        .zip(names)
        .map(|(i, name)| Appliance::new(name, &format!("https://127.0.0.{i}:8443")))
        .collect();
    appliances[2].report.plain_url = Some("http://127.0.0.4:8480".to_owned());
    for appliance in &mut appliances {
        appliance.report(&control);
    }
    // What drives can hold is stored by the next tick; then the film is placed at once.
    while control.json("/v1/appliances").to_string().contains("_bytes\":null") {
        std::thread::sleep(Duration::from_millis(20));
    }
    let ingested = control.put("/v1/assets/film/versions/film-1", &film(0));
    assert_eq!(ingested.status, 201, "{}", ingested.text());
    let mut keys = Vec::new();
    for appliance in &mut appliances {
        let wire = appliance.fetch(&control).expect("a manifest");
        appliance.hold(&control, &wire);
        keys = wire::convert::manifest_in(&wire).unwrap().token_keys;
    }
    (control, appliances, keys)
}

/// Where a player begins, with a grant.
fn entry(control: &Running, key: &str) -> String {
    control.playback("film")[key].as_str().unwrap().to_owned()
}

/// What stands in quotes after each `before`.
fn quoted<'a>(text: &'a str, before: &str) -> Vec<&'a str> {
    text.split(before).skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

fn path_of(pathway: &serde_json::Value) -> String {
    let url = pathway["base_url"].as_str().unwrap();
    let rest = url.split_once("://").unwrap().1;
    rest[rest.find('/').unwrap()..].to_owned()
}

fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap().as_secs()
}
