//! The real process at TRACE: nothing of who wants to play what gets into its log.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the failure")]

#[path = "it/database.rs"]
mod database;
#[path = "it/film.rs"]
mod film;

use std::fs;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use identity::code::Code;
use identity::enrol::{self, About, Address};
use identity::member::Member;
use serde_json::{Value, json};
use ureq::Agent;
use wire::v1::report::{Load, Report};

const CLIENT: &str = "203.0.113.77";
const SESSION: &str = "PRIVATEsession16";

#[test]
fn a_log_at_trace_names_no_client_no_session_and_no_asset_that_is_played() {
    let place = tempfile::tempdir().unwrap();
    let [port, fleet] = free_ports();
    let text = database::settings(&place.path().join("state"))
        + &format!("[serve]\nlisten = \"127.0.0.1:{port}\"\n")
        + &format!("[fleet]\nlisten = \"127.0.0.1:{fleet}\"\n");
    fs::create_dir(place.path().join("state")).unwrap();
    let config = place.path().join("control.toml");
    fs::write(&config, text).unwrap();
    let log = place.path().join("log");
    let child = Command::new(env!("CARGO_BIN_EXE_nearcast-control"))
        .args(["--log-level", "trace", "serve", "--config"])
        .arg(&config)
        .stderr(Stdio::from(fs::File::create(&log).unwrap()))
        .spawn();
    let child = Killed(child.unwrap());
    let url = format!("http://127.0.0.1:{port}");
    let agent = Agent::config_builder().http_status_as_error(false).proxy(None).build();
    let agent = Agent::new_with_config(agent);
    let start = Instant::now();
    // A writer beside another one answers with 503 until it leads.
    let leads = || agent.get(format!("{url}/v1/assets")).call().is_ok_and(|of| of.status() != 503);
    while !leads() {
        assert!(start.elapsed() < Duration::from_secs(30), "{}", fs::read_to_string(&log).unwrap());
        std::thread::yield_now();
    }
    let query = format!("client={CLIENT}&grant={SESSION}.2000000000.privatefilm.SSSSSSSS");
    for path in [
        format!("/v1/play/privatefilm.m3u8?{query}"),
        format!("/v1/play/privatefilm.mpd?{query}"),
        format!("/steer/v1/{SESSION}.2000000000.film.{}?_HLS_pathway=a1", "S".repeat(22)),
    ] {
        let answer = agent.get(format!("{url}{path}")).call().unwrap();
        assert!(answer.status().as_u16() < 500, "{path}: {}", answer.status());
    }
    let begun = begin(&agent, &url, &format!("https://127.0.0.1:{fleet}").parse().unwrap());
    drop(child);

    let log = fs::read_to_string(&log).unwrap();
    assert!(log.contains(" INFO "), "there is a log: {log}");
    // The last is the password of a database, where the tests have one.
    let made_up = [SESSION, "SSSSSSSS", "privatefilm", CLIENT, "203.0.113", "DATABASEpassword"];
    let made_up = made_up.map(str::to_owned);
    for secret in made_up.into_iter().chain(begun) {
        assert!(!log.contains(&secret), "{secret} is in the log:\n{log}");
    }
}

/// A film on an appliance that serves, and a playback of it that begins. What the log must not have
/// of it: the session, what proves the tokens and the ticket for steering, and the client.
fn begin(agent: &Agent, url: &str, fleet: &Address) -> Vec<String> {
    let put = |path: &str, body: Value| {
        json_of(agent.put(format!("{url}{path}")).send_json(body));
    };
    let post =
        |path: &str, body: Value| json_of(agent.post(format!("{url}{path}")).send_json(body));
    put("/v1/sites/a", json!({ "prefixes": ["203.0.113.0/24"] }));
    put("/v1/appliances/a1", json!({ "site": "a", "weight": 1 }));
    put("/v1/assets/film/versions/film-1", serde_json::to_value(film::film(0)).unwrap());
    let code = post("/v1/appliances/a1/enrolment", Value::Null);
    let code: Code = code["code"].as_str().unwrap().parse().unwrap();
    let about = About { software: "0.1", machine: "0123456789abcdef0123456789abcdef" };
    let a1 = enrol::enrol(fleet, &Member::appliance("a1"), &code, about).unwrap();
    let load = Load { serving: true, connections_max: 1000, ..Load::default() };
    let base_url = "https://127.0.0.2:8443".to_owned();
    let report = Report { start_id: 77, sequence: 1, base_url, load, ..Report::default() };
    let link = enrol::agent(fleet, a1.client_tls().unwrap());
    let at = format!("{}/v1/appliances/a1/report", enrol::control_url(fleet));
    json_of(link.post(at).send_json(&report));

    let begun = post("/v1/playbacks", json!({ "asset": "film", "client": CLIENT }));
    let token = begun["pathways"][0]["base_url"].as_str().unwrap().split('/').nth(4).unwrap();
    let signature = token.rsplit('.').next().unwrap();
    let steering = begun["steering_url"].as_str().unwrap();
    let ticket = steering.rsplit('.').next().unwrap();
    let secrets = [begun["session"].as_str().unwrap(), signature, ticket];
    assert!(secrets.iter().all(|secret| 8 <= secret.len()), "{begun}");
    // A player of it asks for its way.
    let steered = agent.get(steering).call().unwrap();
    assert_eq!(steered.status(), 200, "{begun}");
    secrets.map(str::to_owned).into()
}

/// Killed at the end, whatever comes of the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn json_of(answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Value {
    let mut answer = answer.unwrap();
    let text = answer.body_mut().read_to_string().unwrap();
    assert!(answer.status().is_success(), "{}: {text}", answer.status());
    serde_json::from_str(&text).unwrap()
}

/// Ports that nobody has, each given once. They lie below those that the kernel gives to whoever
/// asks for any (from 32,768 on), which another could get before they are used, and in a place that
/// depends on the process.
fn free_ports<const N: usize>() -> [u16; N] {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    let next = || std::process::id() % 250 * 32 + GIVEN.fetch_add(1, Ordering::Relaxed);
    let any = (0..1000).map(|_| 10_000 + u16::try_from(next() % 8_000).unwrap());
    let free = any.filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    free.take(N).collect::<Vec<_>>().try_into().unwrap()
}
