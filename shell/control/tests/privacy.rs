//! The real process at TRACE: nothing of who wants to play what gets into its log.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the failure")]

use std::fs;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const CLIENT: &str = "203.0.113.77";
const SESSION: &str = "PRIVATEsession16";

#[test]
fn a_log_at_trace_names_no_client_no_session_and_no_asset_that_is_played() {
    let place = tempfile::tempdir().unwrap();
    let [port, fleet] = [(); 2].map(|()| free_port());
    let text = format!(
        "state = \"{}\"\n[serve]\nlisten = \"127.0.0.1:{port}\"\n\
         [fleet]\nlisten = \"127.0.0.1:{fleet}\"\n",
        place.path().join("state").display()
    );
    fs::create_dir(place.path().join("state")).unwrap();
    let config = place.path().join("control.toml");
    fs::write(&config, text).unwrap();
    let log = place.path().join("log");
    let mut child = Command::new(env!("CARGO_BIN_EXE_nearcast-control"))
        .args(["--log-level", "trace", "serve", "--config"])
        .arg(&config)
        .stderr(Stdio::from(fs::File::create(&log).unwrap()))
        .spawn()
        .unwrap();
    let url = format!("http://127.0.0.1:{port}");
    let agent = ureq::Agent::config_builder().http_status_as_error(false).proxy(None).build();
    let agent = ureq::Agent::new_with_config(agent);
    let start = Instant::now();
    while agent.get(format!("{url}/v1/assets")).call().is_err() {
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
    child.kill().unwrap();
    child.wait().unwrap();

    let log = fs::read_to_string(&log).unwrap();
    assert!(log.contains(" INFO "), "there is a log: {log}");
    for secret in [SESSION, "SSSSSSSS", "privatefilm", CLIENT, "203.0.113"] {
        assert!(!log.contains(secret), "{secret} is in the log:\n{log}");
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
