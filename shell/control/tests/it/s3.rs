//! Objects in a bucket, of a real S3 server: who gets which URL, and what such a URL opens.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use object_store::aws::AmazonS3Builder;
use object_store::signer::{Method, Signer};
use serde_json::{Value, json};
use wire::v1::ingest::NewVersion;

use crate::appliance::Appliance;
use crate::control::Running;
use crate::film::{film, media};
use crate::link::Link;
use crate::s3_server::{ID, REGION, SECRET, Server};

#[test]
fn a_signed_url_opens_one_object_of_a_real_server_and_nothing_else() {
    let fleet = Fleet::start("1 h");
    let object = fleet.object("v/r1.mp4");
    let (status, sources) = fleet.sources(&object);
    assert_eq!(status, 200);
    let [signed, plain] = &sources[..] else { panic!("two origins: {sources:?}") };
    assert_eq!(plain["url"], "https://origin.example/film/v/r1.mp4");
    assert_eq!(plain.get("expires_unix_s"), None);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let left = signed["expires_unix_s"].as_u64().unwrap() - now.as_secs();
    assert!((3590..=3600).contains(&left), "{left}");
    let url = signed["url"].as_str().unwrap();
    assert!(!url.contains(SECRET));

    let media = media(0, 1);
    let (status, body) = get(url, Some("bytes=1000-2999"));
    assert_eq!((status, &body[..]), (206, &media[1000..3000]));
    assert_eq!(get(url, None), (200, media));

    let forged = |from: &str, to: &str| {
        let forged = url.replacen(from, to, 1);
        assert_ne!(forged, url);
        get(&forged, None).0
    };
    assert_eq!(forged("r1.mp4", "r2.mp4"), 403, "another object");
    assert_eq!(forged("X-Amz-Expires=3600", "X-Amz-Expires=7200"), 403, "longer");
    let signature = url.split_once("X-Amz-Signature=").unwrap().1;
    let other = if signature.starts_with('0') { "1" } else { "0" };
    let other = format!("X-Amz-Signature={other}{}", &signature[1..]);
    assert_eq!(forged(&format!("X-Amz-Signature={signature}"), &other), 403, "another signature");
    assert_eq!(get(url.split_once('?').unwrap().0, None).0, 403, "no signature");
    let agent = agent();
    assert_eq!(agent.delete(url).call().unwrap().status(), 403, "to read, not to delete");
}

#[test]
fn a_url_ends_with_its_time_and_with_the_secret_that_signed_it() {
    let fleet = Fleet::start("1 h");
    let object = fleet.object("v/r0.mp4");
    let url = |fleet: &Fleet| fleet.sources(&object).1[0]["url"].as_str().unwrap().to_owned();
    let first = url(&fleet);
    assert_eq!(get(&first, None).0, 200);
    let brief = signed_for_a_second(&fleet.server);
    let start = Instant::now();
    while get(&brief, None).0 == 200 {
        assert!(start.elapsed() < Duration::from_secs(20), "it is good for ever");
        std::thread::sleep(Duration::from_millis(100));
    }
    let (status, said) = get(&brief, None);
    let said = String::from_utf8(said).unwrap();
    assert!(status == 403 && said.contains("Request has expired"), "{status} {said}");
    assert_eq!(get(&first, None).0, 200, "an hour is not over");

    fleet.server.bucket().set_secret(ID, "another-secret");
    assert_eq!(get(&first, None).0, 403, "the server has forgotten that secret");
    assert_eq!(get(&url(&fleet), None).0, 403, "control has not");
    write_secret(&fleet.secret, "another-secret");
    assert_eq!(get(&url(&fleet), None).0, 200, "now it has, and nothing was restarted");
}

#[test]
fn siblings_come_before_origins_and_only_what_should_be_held_may_be_asked_for() {
    let fleet = Fleet::start("1 h");
    fleet.control.put("/v1/policy", &json!({"copies": 2, "fill_masters": 0}));
    let object = fleet.object("v/r0.mp4");
    let mut siblings = ["a2", "b1"].map(|name| Appliance::new(name, "https://127.0.0.3:8443"));
    for sibling in &mut siblings {
        sibling.report.peer_address = Some(format!("{}.example:8444", sibling.name));
        sibling.report.inventory.to = 1;
        sibling.report.inventory.held = vec![object.clone()];
        sibling.report(&fleet.control);
    }
    let (_, sources) = fleet.sources(&object);
    let addresses: Vec<_> = sources.iter().map(|source| source["address"].as_str()).collect();
    assert_eq!(addresses, [Some("a2.example:8444"), Some("b1.example:8444"), None, None]);
    let host = identity::member::Member::appliance("a2").host();
    assert_eq!(sources[0]["url"], format!("https://{host}/v1/objects/{object}"));

    who_is_no_master_waits(&fleet, &object);

    let link = fleet.a1.link.as_ref().unwrap();
    let ask = |link: &Link, name: &str, object: &str| {
        link.get(&format!("/v1/appliances/{name}/sources/{object}"))
    };
    let unknown = ask(link, "a1", &"00".repeat(32)).problem(404);
    assert!(unknown.contains("no asset version in this appliance's manifest"), "{unknown}");
    assert!(!ask(link, "a1", "xyz").problem(400).is_empty());
    let other = ask(link, "a2", &object).problem(403);
    assert!(other.contains("you are appliance a1"), "{other}");
    let (stranger, base) = crate::link::stranger(&fleet.control);
    let url = format!("{base}/v1/appliances/a1/sources/{object}");
    assert!(crate::control::answer(stranger.get(url).call()).problem(403).contains("enrol first"));
    let public = fleet.control.get(&format!("/v1/appliances/a1/sources/{object}"));
    assert_eq!(public.status, 404, "only on the fleet's address");
    fleet.control.register(&["c1"]);
    let c1 = Link::enrolled(&fleet.control, "c1");
    let empty = ask(&c1, "c1", &object).problem(404);
    assert!(empty.contains("no asset version in this"), "it is to hold nothing yet: {empty}");
}

#[test]
fn manifests_name_no_bucket_and_an_unknown_bucket_is_refused_at_ingest() {
    let mut fleet = Fleet::start("1 h");
    let manifest = fleet.a1.fetch(&fleet.control).expect("a manifest with the film");
    assert_eq!(manifest.versions[0].sources, ["https://origin.example/film/"]);
    let text = serde_json::to_string(&manifest).unwrap();
    assert!(!text.contains("s3://") && !text.contains(ID) && !text.contains(SECRET));
    let shown = fleet.control.json("/v1/assets/film");
    assert_eq!(shown["versions"][0]["sources"][0], "s3://films/some film/");
    let elsewhere = NewVersion { sources: vec!["s3://other/".to_owned()], ..film(3) };
    let refused = fleet.control.put("/v1/assets/film/versions/film-3", &elsewhere).problem(422);
    assert!(refused.contains("add [[s3]] with bucket = \"other\""), "{refused}");
}

/// A control plane with a film in a bucket, and appliances that should hold it.
struct Fleet {
    control: Running,
    server: Server,
    a1: Appliance,
    secret: PathBuf,
    film: NewVersion,
    _dir: tempfile::TempDir,
}

impl Fleet {
    fn start(lifetime: &str) -> Self {
        let server = Server::start();
        for rendition in 0..4 {
            let key = format!("some film/v/r{rendition}.mp4");
            server.bucket().put(&key, media(0, rendition));
        }
        let dir = tempfile::tempdir().unwrap();
        let secret = dir.path().join("secret");
        write_secret(&secret, SECRET);
        let control = Running::start(&format!(
            "[[s3]]\nbucket = \"films\"\nendpoint = {:?}\nregion = {REGION:?}\n\
             access_key_id = {ID:?}\nsecret_access_key_file = {secret:?}\n\
             url_lifetime = {lifetime:?}\n",
            server.endpoint()
        ));
        control.register(&["a1", "a2", "b1"]);
        let mut film = film(0);
        film.sources.insert(0, "s3://films/some film/".to_owned());
        assert_eq!(control.put("/v1/assets/film/versions/film-1", &film).status, 201);
        let mut a1 = Appliance::new("a1", "https://127.0.0.2:8443");
        let empty = a1.fetch(&control).expect("the first manifest");
        assert!(empty.versions.is_empty());
        while a1.report(&control).generation == a1.generation {
            // What drives can hold is stored by the next tick.
            std::thread::sleep(Duration::from_millis(20));
        }
        Self { control, server, a1, secret, film, _dir: dir }
    }

    fn object(&self, path: &str) -> String {
        self.film.files[path].object.clone()
    }

    /// What a1 is told.
    fn sources(&self, object: &str) -> (u16, Vec<Value>) {
        let link = self.a1.link.as_ref().unwrap();
        let answer = link.get(&format!("/v1/appliances/a1/sources/{object}"));
        assert_eq!(answer.header("cache-control"), "no-store");
        let sources = answer.json()["sources"].as_array().cloned();
        (answer.status, sources.unwrap_or_default())
    }
}

/// a1 lets nobody fetch, so a2 is the master of their site: it holds this object and no other.
fn who_is_no_master_waits(fleet: &Fleet, held: &str) {
    let one = json!({"copies": 2, "fill_masters": 1, "fill_elsewhere_after_s": 100});
    fleet.control.put("/v1/policy", &one);
    let link = fleet.a1.link.as_ref().unwrap();
    let ask = |rest: &str| link.get(&format!("/v1/appliances/a1/sources/{rest}"));
    let start = Instant::now();
    let at_once = |object: &str| ask(&format!("{object}?waited_s=0"));
    while at_once(held).json()["only"].is_null() {
        // A plan has to say that a2 should hold it.
        assert!(start.elapsed() < Duration::from_secs(20), "a2 is no master");
        std::thread::sleep(Duration::from_millis(20));
    }
    let told = at_once(held).json();
    assert_eq!((told["sources"].as_array().unwrap().len(), &told["only"]), (1, &json!(true)));
    assert_eq!(told["sources"][0]["address"], "a2.example:8444", "b1 is in another cluster");
    assert_eq!((&told["wait_s"], &told["escalated"]), (&Value::Null, &Value::Null));
    let other = fleet.object("v/r1.mp4");
    let wait = json!({"sources": [], "only": true, "wait_s": 1});
    assert_eq!(at_once(&other).json(), wait);
    let before = ask(&other).json();
    assert_eq!(before["only"], Value::Null, "the release before waits for nobody: {before}");
    let told = ask(&format!("{held}?waited_s=100")).json();
    assert_eq!((told["sources"].as_array().unwrap().len(), &told["only"]), (2, &json!(true)));
    assert_eq!(told["escalated"], "elsewhere");
    let told = ask(&format!("{other}?waited_s=18446744073709551615")).json();
    assert_eq!((told["sources"].as_array().unwrap().len(), &told["only"]), (2, &Value::Null));
    assert_eq!(told["escalated"], "origin");
    ask(&format!("{other}?waited_s=-1")).problem(400);
    for (body, wanted) in [
        (json!({"fill_masters": 17}), "fill_masters: use 0 to 16"),
        (json!({"fill_origin_after_s": 172_801}), "fill_origin_after_s: use 0 to 172800 seconds"),
    ] {
        assert!(fleet.control.put("/v1/policy", &body).problem(400).contains(wanted));
    }
    let everybody = json!({"copies": 2, "fill_masters": 0});
    assert_eq!(fleet.control.put("/v1/policy", &everybody).status, 200);
}

/// As control signs, but for less than it may.
fn signed_for_a_second(server: &Server) -> String {
    let store = AmazonS3Builder::new()
        .with_bucket_name("films")
        .with_endpoint(server.endpoint())
        .with_allow_http(true)
        .with_region(REGION)
        .with_access_key_id(ID)
        .with_secret_access_key(SECRET)
        .build()
        .unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let key = "some film/v/r0.mp4".into();
    let url = store.signed_url(Method::GET, &key, Duration::from_secs(1));
    runtime.block_on(url).unwrap().into()
}

fn write_secret(file: &std::path::Path, secret: &str) {
    std::fs::write(file, secret).unwrap();
    std::fs::set_permissions(file, PermissionsExt::from_mode(0o600)).unwrap();
}

fn get(url: &str, range: Option<&str>) -> (u16, Vec<u8>) {
    let request = agent().get(url);
    let request = match range {
        Some(range) => request.header("range", range),
        None => request,
    };
    let mut answer = request.call().unwrap();
    (answer.status().as_u16(), answer.body_mut().read_to_vec().unwrap())
}

fn agent() -> ureq::Agent {
    ureq::Agent::config_builder().http_status_as_error(false).build().into()
}
