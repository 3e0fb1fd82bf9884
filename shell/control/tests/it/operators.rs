//! What operators, ingest and appliances see.

use std::sync::Arc;

use identity::signing;
use model::id::DocumentId;
use serde_json::{Value, json};
use wire::convert::{manifest_in, short_manifest_in, version_in};
use wire::v1::manifest::Lacking;
use wire::v1::report::ReportedError;
use wire::v1::signed::Kind;

use crate::appliance::Appliance;
use crate::control::{PATIENT, Running};
use crate::film::{file, film};

#[test]
fn the_registry_is_written_and_read_and_mistakes_are_explained() {
    let control = Running::start("");
    assert!(
        control.put("/v1/appliances/a1", &json!({"site": "a"})).problem(409).contains("site a")
    );
    let site = json!({"prefixes": ["10.1.2.3/8", "127.0.0.1", "2001:db8::/32"]});
    let written = control.put("/v1/sites/a", &site).json();
    let prefixes = json!(["10.0.0.0/8", "127.0.0.1/32", "2001:db8::/32"]);
    let about = json!({"kind": "exchange", "open": false, "place": "", "time_zone": "UTC"});
    let mut wanted = json!({"id": "a", "prefixes": prefixes});
    wanted.as_object_mut().unwrap().extend(about.as_object().unwrap().clone());
    assert_eq!(written, wanted);
    control.put("/v1/appliances/a1", &json!({"site": "a", "weight": 3}));
    let appliance = json!({
        "id": "a1", "site": "a", "weight": 3, "addresses": [], "usable_bytes": null, "drain": null,
    });
    assert_eq!(control.json("/v1/appliances"), json!([appliance]));
    let now = control.json("/v1/appliances/a1");
    assert_eq!((&now["weight"], &now["state"]), (&json!(3), &json!("never_seen")));
    assert_eq!(control.json("/v1/sites"), json!([written]));
    assert_eq!(control.json("/v1/sites/a"), written);
    let place = "52.52,13.405 de-be Berlin";
    control.put("/v1/sites/a", &json!({"prefixes": [], "kind": "embedded", "place": place}));
    // What a PUT does not name stays as it is.
    control.put("/v1/sites/a", &json!({"prefixes": ["10.0.0.0/8"], "open": true}));
    let written = json!({
        "id": "a", "prefixes": ["10.0.0.0/8"], "kind": "embedded", "open": true,
        "place": "52.52,13.405 DE DE-BE Berlin", "time_zone": "UTC",
    });
    assert_eq!(control.json("/v1/sites/a"), written);
    let odd = json!({"prefixes": [], "place": "91,0"});
    assert!(control.put("/v1/sites/a", &odd).problem(400).contains("degrees north"));
    let plain = json!({"prefixes": [], "kind": "exchange", "open": false, "place": ""});
    control.put("/v1/sites/a", &plain);

    let refused = |path: &str, body: Value| control.put(path, &body);
    assert!(refused("/v1/sites/A", json!({"prefixes": []})).problem(400).contains("not a name"));
    let odd = refused("/v1/sites/b", json!({"prefixes": ["10.0.0.0/99"]}));
    assert!(odd.problem(400).contains("10.0.0.0/99"));
    assert!(refused("/v1/sites/b", json!({"prefix": []})).problem(422).contains("unknown field"));
    let heavy = refused("/v1/appliances/a1", json!({"site": "a", "weight": 0}));
    assert!(heavy.problem(400).contains("1 to 1000"));
    assert!(control.delete("/v1/sites/a").problem(409).contains("a1"));
    assert_eq!(control.delete("/v1/appliances/a1").status, 204);
    assert_eq!(control.delete("/v1/sites/a").status, 204);
    for path in ["/v1/sites/a", "/v1/appliances/a1"] {
        assert!(!control.get(path).problem(404).is_empty());
        assert!(!control.delete(path).problem(404).is_empty());
    }

    let usual = control.json("/v1/policy");
    assert_eq!((&usual["copies"], &usual["versions_kept"]), (&json!(2), &json!(2)));
    let policy = json!({"copies": 3, "versions_kept": 1});
    let mut wanted = usual;
    wanted.as_object_mut().unwrap().extend(policy.as_object().unwrap().clone());
    assert_eq!(control.put("/v1/policy", &policy).json(), wanted);
    assert_eq!(control.json("/v1/policy"), wanted);
    assert!(control.put("/v1/policy", &json!({"copies": 0})).problem(400).contains("1 to 64"));
}

#[test]
fn a_sites_zone_uplink_and_clusters_are_checked_shown_and_kept() {
    let mut control = Running::start("");
    let said = json!({
        "prefixes": [], "time_zone": "europe/berlin", "uplink_bps": 10_000_000_000_u64,
        "manifest_cluster": "north", "fill_cluster": "de",
    });
    let written = json!({
        "id": "a", "prefixes": [], "kind": "exchange", "open": false, "place": "",
        "time_zone": "Europe/Berlin", "uplink_bps": 10_000_000_000_u64,
        "manifest_cluster": "north", "fill_cluster": "de",
    });
    assert_eq!(control.put("/v1/sites/a", &said).json(), written);
    control.put("/v1/sites/a", &json!({"prefixes": [], "open": false}));
    for (field, value, wanted) in [
        ("time_zone", json!("Berlin"), "but \"Europe/Berlin\" is one"),
        ("uplink_bps", json!(10), "0 to say nothing"),
        ("uplink_bps", json!(u64::MAX), "0 to say nothing"),
        ("manifest_cluster", json!("North"), "manifest_cluster: \"North\" is not a name"),
        ("fill_cluster", json!(" "), "fill_cluster: \" \" is not a name"),
    ] {
        let refused = control.put("/v1/sites/a", &json!({"prefixes": [], field: value}));
        let why = refused.problem(400);
        assert!(why.contains(field) && why.contains(wanted), "{why}");
    }
    control.restart();
    assert_eq!(control.json("/v1/sites/a"), written, "as before what was left out or refused");
    let fleet = control.json("/v1/fleet?site=a");
    assert_eq!(fleet["sites"][0]["time_zone"], "Europe/Berlin");
    assert_eq!(fleet["sites"][0]["fill_cluster"], "de");
    let none = json!({
        "prefixes": [], "time_zone": "", "uplink_bps": 0, "manifest_cluster": "",
        "fill_cluster": "",
    });
    let plain = json!({
        "id": "a", "prefixes": [], "kind": "exchange", "open": false, "place": "",
        "time_zone": "UTC",
    });
    assert_eq!(control.put("/v1/sites/a", &none).json(), plain);
}

#[test]
fn an_appliance_is_able_to_do_what_is_said_of_it_or_of_its_profile() {
    let mut control = Running::start("");
    control.put("/v1/sites/a", &json!({"prefixes": []}));
    let said = json!({"site": "a", "profile": "flash", "profile_name": "edge-100",
        "fill_bps": 500_000_000, "tags": ["rack-7", "loan"]});
    let written = control.put("/v1/appliances/a1", &said).json();
    let able = json!({"throughput_bps": 90_000_000_000_u64,
        "capacity_bytes": 16_000_000_000_000_u64, "fill_bps": 500_000_000});
    assert_eq!((&written["profile"], &written["abilities"]), (&json!("flash"), &able));
    assert_eq!(written["tags"], json!(["loan", "rack-7"]));
    control.put("/v1/appliances/a1", &json!({"site": "a"}));
    let many: Vec<String> = (0..17).map(|number| format!("t{number}")).collect();
    for (field, value, wanted) in [
        ("throughput_bps", json!(90), "throughput_bps: use 1000000 (1 Mb/s)"),
        ("capacity_bytes", json!(16_000), "capacity_bytes: use 100000000 (100 MB)"),
        ("fill_bps", json!(u64::MAX), "fill_bps: use 1000000"),
        ("profile_name", json!("flash"), "profile_name: flash is a usual profile"),
        ("profile_name", json!("Edge 1"), "profile_name: \"Edge 1\" is not a name"),
        ("tags", json!(["Rack 7"]), "tags: \"Rack 7\" is not a name"),
        ("tags", json!(many), "at most 16"),
        ("tags", json!(["x", "x"]), "each once"),
    ] {
        let refused = control.put("/v1/appliances/a1", &json!({"site": "a", field: value}));
        let why = refused.problem(400);
        assert!(why.contains(wanted), "{why}");
    }
    let again = control.put("/v1/appliances/a2", &said).json();
    assert_eq!(again["profile_name"], "edge-100");
    let usual = json!({"site": "a", "profile": "global"});
    let usual = control.put("/v1/appliances/a2", &usual).json();
    assert_eq!(usual["profile_name"], json!(null), "it is of the usual kind: {usual}");
    let odd = control.put("/v1/appliances/a1", &json!({"site": "a", "profile": "tape"}));
    assert!(odd.problem(422).contains("storage"));
    control.restart();
    assert_eq!(control.json("/v1/appliances")[0], written, "as before what was refused");

    // The policy's figures count where the appliance has none of its own.
    let policy = json!({"flash_throughput_bps": 40_000_000_000_u64, "flash_capacity_bytes": 0,
        "flash_fill_bps": 1_000_000});
    control.put("/v1/policy", &policy);
    let little = control.put("/v1/policy", &json!({"global_fill_bps": 3})).problem(400);
    assert!(little.contains("global_fill_bps: use 1000000"), "{little}");
    control.restart();
    assert_eq!(control.json("/v1/policy")["flash_throughput_bps"], 40_000_000_000_u64);
    let able = json!({"throughput_bps": 40_000_000_000_u64, "capacity_bytes": 0,
        "fill_bps": 500_000_000});
    let fleet = control.json("/v1/fleet");
    let shown = &fleet["sites"][0]["appliances"][0];
    assert_eq!((&shown["abilities"], &shown["profile"]), (&able, &json!("flash")));
    let none = json!({"site": "a", "profile": "none", "fill_bps": 0, "tags": []});
    let written = control.put("/v1/appliances/a1", &none).json();
    assert_eq!((&written["abilities"], &written["profile"]), (&json!(null), &json!(null)));
}

#[test]
fn a_version_is_ingested_once_and_never_changed() {
    let control = Running::start("");
    let path = "/v1/assets/film/versions/film-1";
    let first = control.put(path, &film(0));
    assert_eq!(first.status, 201, "{}", first.text());
    assert_eq!(control.put(path, &film(0)).status, 200);

    let mut later = film(0);
    later.modified_unix_s += 1000;
    later.sources = vec!["https://other.example/film/".to_owned()];
    assert_eq!(control.put(path, &later).status, 200, "another source is no other content");
    let asset = control.json("/v1/assets/film");
    assert_eq!(asset["versions"][0]["sources"], json!(["https://other.example/film/"]));
    assert_eq!(
        asset["versions"][0]["modified_unix_s"],
        film(0).modified_unix_s,
        "the first counts"
    );

    assert!(control.put(path, &film(1)).problem(409).contains("immutable"));
    let other = control.put("/v1/assets/other/versions/film-1", &film(0));
    assert!(other.problem(409).contains("belongs to asset film"));

    let mut bad = film(0);
    let good = bad.files["v/r0.mp4"].clone();
    bad.files.insert("v/r0.mp4".to_owned(), file(b"other", "video/mp4"));
    bad.files.get_mut("v/r0.mp4").unwrap().object = good.object;
    let refused = control.put("/v1/assets/film/versions/film-2", &bad).problem(422);
    assert!(refused.contains("v/r0.mp4: the block hashes do not add up"), "{refused}");
    let mut bad = film(0);
    bad.files.remove("v/r3.mp4");
    let refused = control.put("/v1/assets/film/versions/film-2", &bad).problem(422);
    assert!(refused.contains("refers to v/r3.mp4"), "{refused}");

    assert_eq!(control.put("/v1/assets/film/versions/film-2", &film(2)).status, 201);
    assert_eq!(control.json("/v1/assets/film")["current_version"], "film-2");
    assert_eq!(control.put(path, &film(0)).status, 200);
    assert_eq!(control.json("/v1/assets")[0]["current_version"], "film-1", "current again");
    assert!(!control.get("/v1/assets/none").problem(404).is_empty());
}

#[test]
fn an_appliance_gets_a_manifest_only_when_it_is_newer_and_can_prove_every_block() {
    let control = Running::start("");
    let refused = control.post("/v1/appliances/a1/enrolment", &()).problem(404);
    assert!(refused.contains("PUT /v1/appliances/a1"), "{refused}");

    control.register(&["a1", "b1"]);
    control.put("/v1/assets/film/versions/film-1", &film(0));
    let mut a1 = Appliance::new("a1", "https://127.0.0.2:8443");
    let empty = a1.fetch(&control).expect("the first manifest");
    assert!(empty.versions.is_empty(), "nothing is placed on drives that nobody has seen");
    // Else it would need keys in its manifest, and another one could come between the looks below.
    a1.report.trust = Some(0);
    a1.report(&control);
    let reply = loop {
        // What drives can hold is stored by the next tick.
        let reply = a1.report(&control);
        if a1.generation < reply.generation {
            break reply;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    let wire = a1.fetch(&control).expect("a newer one");
    assert_eq!(wire.generation, reply.generation);
    assert!(a1.fetch(&control).is_none(), "204: nothing newer");
    let manifest = manifest_in(&wire).unwrap();
    assert_eq!(manifest.versions.len(), 1);
    assert_eq!(manifest.versions[0].files.len(), 10);
    let link = a1.link(&control);
    for file in manifest.versions[0].files.values() {
        let body = link.get(&format!("/v1/objects/{}/blocks", file.object));
        assert_eq!(body.kind, "application/octet-stream");
        wire::v1::blocks::decode(file.object, file.len, &body.bytes).unwrap();
    }
    let none = format!("/v1/objects/{}/blocks", "00".repeat(32));
    assert!(!link.get(&none).problem(404).is_empty());
    assert!(!link.get("/v1/objects/xyz/blocks").problem(400).is_empty());

    let signed = link.get("/v1/appliances/a1/manifest?short=true").bytes;
    let payload = signing::verify(&link.credentials.signing_keys(), Kind::Manifest, &signed);
    let short = short_manifest_in(&serde_json::from_slice(payload.unwrap()).unwrap()).unwrap();
    assert!(signed.len() < serde_json::to_vec(&wire).unwrap().len());
    let ask = |documents| link.post("/v1/appliances/a1/documents", &Lacking { documents });
    let unknown = "0".repeat(64);
    let answer = ask(vec![unknown.clone(), short.listed[0].document.to_string()]);
    assert_eq!((answer.status, &*answer.kind), (200, "application/x-ndjson"));
    let line = answer.bytes.strip_suffix(b"\n").unwrap();
    assert_eq!(DocumentId::of(line), short.listed[0].document);
    let version = version_in(&serde_json::from_slice(line).unwrap()).unwrap();
    let mut again = short.whole(|_| Some(Arc::clone(&version))).unwrap();
    // It is signed for itself, and may be so in the next second.
    again.trust.issued = manifest.trust.issued;
    assert_eq!(again, manifest);
    assert!(ask(vec![unknown.clone()]).bytes.is_empty());
    for refused in [vec![], vec![unknown; 257], vec!["xyz".to_owned()]] {
        assert!(!ask(refused).problem(400).is_empty());
    }

    a1.report.base_url = "https://x\"y".to_owned();
    let refused = link.post("/v1/appliances/a1/report", &a1.report).problem(400);
    assert!(refused.contains("base_url"), "{refused}");
}

#[test]
fn an_appliance_that_is_ahead_of_its_control_plane_is_pointed_out() {
    let control = Running::start("");
    control.register(&["a1"]);
    let mut a1 = Appliance::new("a1", "https://127.0.0.2:8443");
    let first = a1.fetch(&control).expect("the first manifest").generation;
    let ahead = first + 1000;
    a1.report.generation = ahead;
    a1.generation = ahead;
    assert!(a1.fetch(&control).is_none(), "an older manifest never replaces a newer one");
    a1.report(&control);
    let errors = control.json("/v1/fleet")["errors"].to_string();
    assert!(errors.contains(&format!("generation {ahead}")), "{errors}");
    let next = loop {
        // A report that comes while a plan is in the making changes nothing: the next one does.
        a1.report(&control);
        if let Some(next) = a1.fetch(&control) {
            break next.generation;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    assert!(ahead < next);
}

#[test]
fn the_fleet_is_shown_as_the_page_wants_it() {
    let control = Running::start("[demo]\ncontrols = \"http://127.0.0.1:18199\"");
    control.register(&["a1", "b1"]);
    control.put("/v1/assets/film/versions/film-1", &film(0));
    let mut a1 = Appliance::new("a1", "https://127.0.0.2:8443");
    a1.report.errors = vec![ReportedError {
        at_unix_s: 5,
        room: "fill".to_owned(),
        text: "the source does not answer".to_owned(),
    }];
    a1.settle(&control);
    std::thread::sleep(std::time::Duration::from_millis(300));
    a1.settle(&control);
    let fleet = control.json("/v1/fleet");
    assert_eq!(fleet["demo_controls"], "http://127.0.0.1:18199");
    let shown = &fleet["sites"][0]["appliances"][0];
    assert_eq!(shown["state"], "healthy");
    assert_eq!(shown["objects_held"], 7, "four equal playlists are one object");
    assert_eq!(shown["report"]["drives"][0]["path"], "/d/0");
    assert!(shown["report"].get("inventory").is_none());
    assert_eq!(shown["base_url"], "https://127.0.0.2:8443");
    assert_eq!(fleet["sites"][1]["appliances"][0]["state"], "never_seen");
    let asset = &fleet["assets"][0];
    assert_eq!((&asset["copies_wanted"], &asset["copies_complete"]), (&json!(2), &json!(1)));
    let formats: Vec<_> =
        asset["entries"].as_array().unwrap().iter().map(|e| &e["format"]).collect();
    assert_eq!(formats, ["dash", "hls"]);
    let errors = fleet["errors"].as_array().unwrap();
    assert!(errors.iter().any(|error| error["text"] == "the source does not answer"), "{errors:?}");
    let last = fleet["history"].as_array().unwrap().last().unwrap().clone();
    for key in ["at_unix_s", "egress_bits_per_second", "cpu_percent", "fill_bits_per_second"] {
        assert!(last[key].is_number(), "{last}");
    }
    let placement = control.json("/v1/placement");
    assert_eq!(placement["holdings"]["a1"], json!(["film-1"]));
    assert!(placement["report"].to_string().contains("has not reported its drives"), "{placement}");
    let of_one = control.json("/v1/placement?appliance=a1");
    assert_eq!(of_one["holdings"], json!({"a1": ["film-1"]}));
    let unknown = control.get("/v1/placement?appliance=a9").problem(404);
    assert!(unknown.contains("no plan knows a9"), "{unknown}");
}

#[test]
fn every_error_is_a_problem() {
    let control = Running::start("");
    assert!(control.get("/nothing").problem(404).contains("/openapi.json"));
    assert!(control.delete("/v1/fleet").problem(405).contains("method"));
    assert!(control.get("/v1/explain").problem(400).contains("asset"));
    let request = |method: &str, path: &str, kind: &str, body: &str| {
        let builder = ureq::http::Request::builder().method(method).uri(control.full(path));
        control.send(builder.header("content-type", kind).body(body.to_owned()).unwrap())
    };
    let site = "/v1/sites/a";
    assert!(!request("PUT", site, "text/plain", "{}").problem(415).is_empty());
    assert!(!request("PUT", site, "application/json", "{").problem(400).is_empty());
    let large = format!("\"{}\"", "x".repeat(300 << 10));
    assert!(!request("PUT", site, "application/json", &large).problem(413).is_empty());
    let rebound = ureq::http::Request::get(control.full("/v1/fleet"));
    let rebound = rebound.header("host", "evil.example").body(String::new()).unwrap();
    assert!(control.send(rebound).problem(421).contains("public_url"));
}

#[test]
fn the_document_is_served_and_so_is_health() {
    let control = Running::start("");
    assert_eq!(control.json("/openapi.json")["openapi"], "3.1.0");
    assert_eq!(control.json("/healthz"), json!({"status": "ok"}));
    let page = control.get("/");
    assert!(page.status == 200 || page.problem(503).contains("./x web"));
}

#[test]
fn secrets_are_readable_by_their_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let control = Running::start("");
    let mode = std::fs::metadata(control.state().join("keys.toml")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn service_addresses_are_kept_and_no_two_appliances_have_the_same() {
    let control = Running::start("");
    control.put("/v1/sites/a", &json!({"prefixes": []}));
    let addresses = json!(["192.0.2.11", "2001:db8::11"]);
    let put = |id: &str, addresses: &Value| {
        let path = format!("/v1/appliances/{id}");
        control.put(&path, &json!({"site": "a", "addresses": addresses}))
    };
    assert_eq!(put("a1", &addresses).status, 200);
    assert_eq!(control.json("/v1/appliances/a1")["addresses"], addresses);
    let other = put("a2", &json!(["192.0.2.11"]));
    assert!(other.status == 409 && other.text().contains("is one of a1's"), "{}", other.text());
    assert_eq!(put("a1", &addresses).status, 200, "its own again");
    let many = put("a2", &json!(["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"]));
    assert!(many.status == 400 && many.text().contains("at most 4"), "{}", many.text());
    let link = put("a2", &json!(["fe80::1"]));
    assert!(link.status == 400 && link.text().contains("cannot be sent"), "{}", link.text());
    let refused = |addresses: &Value, status: u16, what: &str| {
        let answer = put("a2", addresses);
        assert!(answer.status == status && answer.text().contains(what), "{}", answer.text());
    };
    for none in ["192.0.2.0", "2001:db8::100"] {
        refused(&json!([none]), 400, "ends with the byte 0");
    }
    let same = "end with the same byte";
    refused(&json!(["192.0.2.7", "198.51.100.7"]), 400, same);
    refused(&json!(["192.0.2.7", "192.0.2.7"]), 400, same);
    refused(&json!(["198.51.100.11"]), 409, "same byte as 192.0.2.11, which is a1's");
    refused(&json!(["192.0.2.12", "2001:db8::1:11"]), 409, "same byte as 2001:db8::11");
    assert_eq!(put("a2", &json!(["192.0.2.12", "2001:db8::12"])).status, 200, "families apart");
    control.put("/v1/sites/b", &json!({"prefixes": []}));
    let elsewhere = json!({"site": "b", "addresses": ["198.51.100.11"]});
    assert_eq!(control.put("/v1/appliances/b1", &elsewhere).status, 200, "another site");
    let moved = control.put("/v1/appliances/b1", &json!({"site": "a"}));
    assert!(moved.status == 409 && moved.text().contains("same byte"), "{}", moved.text());
}

#[test]
fn the_errors_of_a_site_are_told_though_others_have_many_newer_ones() {
    let control = Running::start(PATIENT);
    let names = ["a1", "b1", "b2", "b3", "b4", "b5", "b6"];
    control.register(&names);
    for (name, count, at) in names.map(|name| match name {
        "a1" => (name, 3, 1_000_u64),
        _ => (name, 20, 2_000),
    }) {
        let mut appliance = Appliance::new(name, "https://127.0.0.2:8443");
        let error =
            |n| ReportedError { at_unix_s: at + n, text: format!("{name} {n}"), ..failed() };
        appliance.report.errors = (0..count).map(error).collect();
        appliance.report(&control);
    }
    let texts = |fleet: &Value| -> Vec<String> {
        let errors = fleet["errors"].as_array().unwrap().iter();
        errors.map(|error| error["text"].as_str().unwrap().to_owned()).collect()
    };
    let site = control.json("/v1/fleet?site=a");
    assert_eq!(texts(&site), ["a1 2", "a1 1", "a1 0"]);
    assert_eq!(site["error_count"], 3);
    let all = control.json("/v1/fleet");
    assert_eq!((texts(&all).len(), &all["error_count"]), (100, &json!(123)));
    assert!(texts(&all).iter().all(|text| text.starts_with('b')), "the newest");
}

fn failed() -> ReportedError {
    ReportedError { room: "fill".to_owned(), ..ReportedError::default() }
}

#[test]
fn prefixes_that_a_brief_answer_leaves_out_are_counted() {
    let control = Running::start("");
    control.register(&["a1"]);
    let prefixes: Vec<String> = (0..7).map(|n| format!("10.{n}.0.0/16")).collect();
    assert_eq!(control.put("/v1/sites/a", &json!({ "prefixes": prefixes })).status, 200);
    let site = |query: &str| control.json(&format!("/v1/fleet?{query}"))["sites"][0].clone();
    let brief = site("appliances_max=0");
    assert_eq!(
        (brief["prefixes"].as_array().unwrap().len(), &brief["prefix_count"]),
        (4, &json!(7))
    );
    assert_eq!(site("site=a")["prefixes"].as_array().unwrap().len(), 7);
}

#[test]
fn one_site_is_told_as_it_is_in_the_whole_fleet() {
    let (control, _appliances, _) = crate::players::with_appliances("");
    let (all, one) = (control.json("/v1/fleet"), control.json("/v1/fleet?site=b"));
    let ids = |site: &Value| -> Vec<Value> {
        site["appliances"].as_array().unwrap().iter().map(|one| one["id"].clone()).collect()
    };
    assert_eq!(one["sites"].as_array().unwrap().len(), 1);
    assert_eq!((&one["sites"][0]["id"], ids(&one["sites"][0])), (&json!("b"), vec![json!("b1")]));
    assert_eq!(one["sites"][0]["summary"]["appliances"], 1);
    assert_eq!(all["assets"][0]["copies_wanted"], 3);
    assert_eq!(one["assets"], all["assets"], "copies are those of all sites");
    assert_eq!(control.get("/v1/fleet?site=c").status, 404);
}
