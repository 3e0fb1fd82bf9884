//! Titles that are taken down, over HTTP.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::appliance::Appliance;
use crate::control::Running;
use crate::film::film;

#[test]
fn a_title_is_withdrawn_with_receipts_and_who_is_away_is_named() {
    let (mut control, mut appliances) = playing();
    let begun = control.post("/v1/playbacks", &json!({"asset": "film"})).json();
    let steering = begun["steering_url"].as_str().unwrap().to_owned();
    assert_eq!(control.get(&steering).status, 200);
    let urls = ["hls_url", "dash_url"].map(|url| begun[url].as_str().unwrap());
    assert_eq!(urls.map(|url| control.get(url).status), [200, 200]);
    assert_eq!(control.put("/v1/assets/film/public", &()).status, 204);

    let answer = control.delete("/v1/assets/film");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let withdrawal = answer.json();
    assert_eq!(withdrawal["versions"], json!([{"asset": "film", "version": "film-1"}]));
    assert_eq!(who(&withdrawal, "awaited"), ["a1", "a2", "b1"]);
    for path in [urls[0], urls[1], "/v1/assets/film"] {
        assert_eq!(control.get(path).status, 404, "{path}");
    }
    assert_eq!(control.get("/v1/play/film.m3u8").status, 401, "it is not public any more");
    let refused = control.post("/v1/playbacks", &json!({"asset": "film"}));
    assert_eq!(refused.status, 404, "{}", refused.text());
    assert_eq!(control.get(&steering).status, 410, "players stop asking");

    let path = format!("/v1/withdrawals/{}", withdrawal["id"]);
    // One says by which manifest its workers answer, one is of older software, one is away.
    for (index, served) in [(0, true), (1, false)] {
        let manifest = appliances[index].fetch(&control).expect("a newer one");
        assert!(manifest.versions.is_empty());
        appliances[index].report.served_generation = served.then_some(manifest.generation);
        appliances[index].report(&control);
    }
    let now = control.json(&path);
    assert_eq!(
        (who(&now, "receipts"), who(&now, "awaited")),
        (strings(["a1"]), strings(["a2", "b1"]))
    );
    assert_eq!(now["receipts"][0]["generation"], appliances[0].generation);

    stored(&control, 1);
    control.restart();
    assert_eq!(who(&control.json(&path), "receipts"), ["a1"], "durable");
    assert_eq!(control.get(urls[0]).status, 404);
    for appliance in &mut appliances[1..] {
        appliance.report(&control);
        appliance.fetch(&control);
        appliance.report.served_generation = Some(appliance.generation);
        appliance.report(&control);
    }
    let now = control.json(&path);
    assert_eq!((&now["complete"], now["receipts"].as_array().unwrap().len()), (&json!(true), 3));
    assert_eq!(control.json("/v1/withdrawals"), json!([now]));
    stored(&control, 2);

    let again = control.delete("/v1/assets/film/versions/film-1");
    assert!(again.status == 404 && again.text().contains("was withdrawn at"), "{}", again.text());
    assert_eq!(control.delete("/v1/assets/other").status, 404);
    let lines = control.json("/v1/audit")["lines"].clone();
    let line = lines.as_array().unwrap().iter().find(|line| line["method"] == "DELETE").unwrap();
    assert!(line["route"].as_str().unwrap().starts_with("/v1/assets/{asset}"), "{line}");
}

#[test]
fn a_withdrawn_version_comes_back_by_an_operators_word_alone() {
    let (mut control, _appliances) = playing();
    assert_eq!(control.put("/v1/assets/film/public", &()).status, 204);
    assert_eq!(control.get("/v1/play/film.m3u8").status, 200);
    let withdrawn = control.delete("/v1/assets/film/versions/film-1");
    assert_eq!((withdrawn.status, &withdrawn.json()["public_no_more"]), (200, &json!(true)));
    let unknown = control.get("/v1/play/nothing.m3u8");
    let refused = control.get("/v1/play/film.m3u8");
    assert_eq!((refused.status, refused.text()), (401, unknown.text()), "strangers learn nothing");
    let path = "/v1/assets/film/versions/film-1";
    let refused = control.put(path, &film(0));
    assert!(refused.status == 409 && refused.text().contains("--again"), "{}", refused.text());
    let mut again = film(0);
    again.again = true;
    assert_eq!(control.put(path, &again).status, 201);
    for _ in 0..2 {
        assert_eq!(control.get("/v1/play/film.m3u8").status, 401, "public no more");
        control.restart();
    }
    assert_eq!(control.json("/v1/assets/film")["public"], false);
    assert_eq!(control.json("/v1/withdrawals"), json!([]), "nothing of it is withdrawn");
    assert_eq!(control.put(path, &film(0)).status, 200, "as any other");
    control.restart();
    assert_eq!(control.json("/v1/withdrawals"), json!([]), "durable");
    assert_eq!(control.json("/v1/assets/film")["current_version"], "film-1");
}

#[test]
fn what_other_versions_have_too_stays() {
    let (control, mut appliances) = playing();
    let mut other = film(1);
    // A version of which one file is the first one's.
    let shared = film(0).files["v/r0.mp4"].clone();
    other.files.insert("v/r0.mp4".to_owned(), shared.clone());
    assert_eq!(control.put("/v1/assets/film/versions/film-2", &other).status, 201);
    let blocks = |appliances: &mut [Appliance], object: &str| {
        appliances[0].link(&control).get(&format!("/v1/objects/{object}/blocks")).status
    };
    let alone = film(0).files["v/r1.mp4"].object.clone();
    assert_eq!(blocks(&mut appliances, &alone), 200);
    assert_eq!(control.delete("/v1/assets/film/versions/film-1").status, 200);
    assert_eq!(blocks(&mut appliances, &shared.object), 200);
    assert_eq!(blocks(&mut appliances, &alone), 404);
    let manifest = appliances[0].fetch(&control).unwrap();
    let names: Vec<&str> = manifest.versions.iter().map(|version| &*version.id).collect();
    assert_eq!(names, ["film-2"]);
}

#[test]
fn a_title_is_shown_between_its_times() {
    let (mut control, _appliances) = playing();
    let far = json!({"from": "2100-01-01T00:00:00Z"});
    let path = "/v1/assets/film/versions/film-1/window";
    assert_eq!(control.put("/v1/assets/film/public", &()).status, 204);
    assert_eq!(control.get("/v1/play/film.m3u8").status, 200);
    assert_eq!(control.put(path, &far).status, 200);
    let refused = control.get("/v1/play/film.m3u8");
    let unknown = control.get("/v1/play/nothing.m3u8");
    assert_eq!((refused.status, refused.text()), (401, unknown.text()), "strangers learn nothing");
    let service = |asset: &str| control.post("/v1/playbacks", &json!({"asset": asset}));
    assert_eq!((service("film").status, service("nothing").status), (404, 404));
    let asset = control.json("/v1/assets/film");
    assert_eq!(asset["versions"][0]["from"], "2100-01-01T00:00:00Z");
    assert_eq!(asset["versions"][0]["shown"], false);

    let until = now() + 6;
    let soon = json!({"until": rfc3339(until)});
    assert_eq!(control.put("/v1/assets/film/window", &soon).status, 200);
    let begun = control.post("/v1/playbacks", &json!({"asset": "film"})).json();
    assert_eq!(begun["expires_unix_s"], until, "no token is longer: {begun}");
    assert_eq!(
        control.get("/v1/play/film.m3u8").status,
        200,
        "it is public, and its time has come"
    );
    control.restart();
    let mut new = film(2);
    assert_eq!(control.put("/v1/assets/film/versions/film-2", &new).status, 201);
    let inherited = control.json("/v1/assets/film")["versions"][0]["until"].clone();
    assert_eq!(inherited, rfc3339(until), "a new version ends no later, if nothing is said");
    let began = Instant::now();
    while control.get("/v1/assets/film").status != 404 {
        assert!(began.elapsed() < Duration::from_secs(20), "nobody withdraws it");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(control.json("/v1/withdrawals")[0]["reason"], "ended");
    let gone = control.get("/v1/play/film.m3u8");
    assert_eq!((gone.status, gone.text()), (401, unknown.text()));
    assert_eq!(control.json("/v1/withdrawals")[0]["versions"].as_array().unwrap().len(), 2);
    let lines = control.json("/v1/audit")["lines"].clone();
    let line = lines.as_array().unwrap().iter().find(|line| line["route"] == "window ended");
    assert_eq!(line.expect("the log says so")["name"], "the clock");

    for (window, status) in [
        (json!({"until": "2100-01-01"}), 422),
        (json!({"from": "2100-01-02T00:00:00Z", "until": "2100-01-01T00:00:00Z"}), 422),
    ] {
        new.window = serde_json::from_value(window).unwrap();
        let refused = control.put("/v1/assets/film/versions/film-3", &new);
        assert_eq!(refused.status, status, "{}", refused.text());
    }
}

#[test]
fn a_version_without_entry_manifests_is_held_and_not_played_by_players() {
    let (control, mut appliances) = playing();
    let mut bare = film(3);
    bare.entries.clear();
    let answer = control.put("/v1/assets/bare/versions/bare-1", &bare);
    assert_eq!(answer.status, 201, "{}", answer.text());
    appliances[0].settle(&control);
    appliances[1].settle(&control);
    let begun = control.post("/v1/playbacks", &json!({"asset": "bare"})).json();
    assert_eq!((&begun["hls_url"], &begun["dash_url"]), (&Value::Null, &Value::Null));
    assert!(!begun["pathways"].as_array().unwrap().is_empty(), "programs may have it");
    assert_eq!(control.put("/v1/assets/bare/public", &()).status, 204);
    let refused = control.get("/v1/play/bare.m3u8");
    assert!(
        refused.status == 404 && refused.text().contains("no such entry"),
        "{}",
        refused.text()
    );
}

/// Three appliances that hold the film.
fn playing() -> (Running, Vec<Appliance>) {
    let control = Running::start("");
    control.register(&["a1", "a2", "b1"]);
    let mut appliances: Vec<Appliance> = ["a1", "a2", "b1"]
        .iter()
        .zip(2..)
        .map(|(name, last)| Appliance::new(name, &format!("https://127.0.0.{last}:8443")))
        .collect();
    for appliance in &mut appliances {
        appliance.report(&control);
    }
    assert_eq!(control.put("/v1/assets/film/versions/film-1", &film(0)).status, 201);
    for appliance in &mut appliances {
        appliance.settle(&control);
    }
    (control, appliances)
}

/// So many receipts are on the disk since the start.
fn stored(control: &Running, count: u64) {
    let row = format!("nearcast_control_withdrawal_receipts_total {count}\n");
    let began = Instant::now();
    while !control.get("/metrics").text().contains(&row) {
        assert!(began.elapsed() < Duration::from_secs(20), "there are not {count} receipts");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn who(withdrawal: &Value, list: &str) -> Vec<String> {
    let list = withdrawal[list].as_array().unwrap().iter();
    list.map(|one| one["appliance"].as_str().unwrap().to_owned()).collect()
}

fn strings<const N: usize>(names: [&str; N]) -> Vec<String> {
    names.map(str::to_owned).to_vec()
}

fn now() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.unwrap().as_secs()
}

fn rfc3339(unix_s: u64) -> String {
    let time = std::time::UNIX_EPOCH + Duration::from_secs(unix_s);
    humantime::format_rfc3339_seconds(time).to_string()
}
