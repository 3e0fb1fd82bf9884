//! The program itself: tokens from the command line, and what it refuses to start with.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use crate::control::Running;

#[test]
fn a_token_from_the_command_line_counts_beside_a_running_process() {
    let control = Running::start("");
    assert_eq!(control.get("/v1/audit").status, 200, "no token yet");
    let refused = token(&control.file(), "viewer");
    assert!(!refused.status.success());
    assert!(text(&refused.stderr).contains("must have the role admin"), "{refused:?}");
    let made = token(&control.file(), "admin");
    assert!(made.status.success(), "{made:?}");
    let token = text(&made.stdout).trim().to_owned();
    assert!(token.starts_with("nc_") && token.len() == 80, "{token}");
    assert!(!text(&made.stderr).contains(&token), "it is printed once, and not logged");
    while control.get("/v1/audit").status == 200 {
        std::thread::sleep(Duration::from_millis(20));
    }
    let audit = ureq::http::Request::get(control.full("/v1/audit"));
    let audit = audit.header("authorization", format!("Bearer {token}"));
    let audit = control.send(audit.body(String::new()).unwrap());
    let lines = audit.json()["lines"].clone();
    let last = &lines[0];
    assert_eq!(
        (last["name"].as_str(), last["outcome"].as_u64()),
        (Some("command line"), Some(201))
    );
    assert_eq!(lines[1]["outcome"], 409, "what was refused stands there too");
}

#[test]
fn an_address_that_others_reach_needs_tls_and_an_admin() {
    let state = tempfile::tempdir().unwrap();
    let config = |extra: &str| {
        let file = state.path().join("control.toml");
        let database = crate::database::settings(&state.path().join("state"));
        let text = format!("{database}[serve]\nlisten = \"0.0.0.0:0\"\n{extra}");
        std::fs::write(&file, text).unwrap();
        file
    };
    let refused = serve(&config(""));
    assert!(refused.contains("without TLS only loopback") && refused.contains("certificate"));
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let write = |name: &str, pem: String| {
        let path = state.path().join(name);
        std::fs::write(&path, pem).unwrap();
        path.display().to_string()
    };
    let (chain, key) =
        (write("c.pem", pair.cert.pem()), write("k.pem", pair.signing_key.serialize_pem()));
    let refused = serve(&config(&format!("certificate = {chain:?}\nkey = {key:?}")));
    assert!(refused.contains("nearcast-control token --config FILE --role admin"), "{refused}");
}

#[test]
fn a_new_certificate_is_taken_up_and_open_connections_stay() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let write = |pair: &rcgen::CertifiedKey<rcgen::KeyPair>| {
        std::fs::write(file("c.pem"), pair.cert.pem()).unwrap();
        std::fs::write(file("k.pem"), pair.signing_key.serialize_pem()).unwrap();
    };
    let pair = || rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (first, second) = (pair(), pair());
    write(&first);
    let files = format!("certificate = {:?}\nkey = {:?}", file("c.pem"), file("k.pem"));
    let control = Running::start(&format!("[serve]\n{files}"));
    let url = control.url.replace("http:", "https:");
    let (old, new) = (client(&first), client(&second));
    let ask = |agent: &ureq::Agent| agent.get(format!("{url}/healthz")).call();
    assert_eq!(ask(&old).unwrap().body_mut().read_to_string().unwrap(), "{\"status\":\"ok\"}");
    assert!(ask(&new).is_err());
    write(&second);
    while ask(&new).is_err() {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(ask(&old).is_ok(), "its connection is still open");
    assert!(ask(&client(&first)).is_err(), "and another would not begin");
    let text = new.get(format!("{url}/metrics")).call().unwrap().body_mut().read_to_string();
    let text = text.unwrap();
    let refused = text.lines().find_map(|line| line.strip_prefix(REFUSED)).unwrap();
    assert_ne!(refused.trim(), "0");
}

const REFUSED: &str = "nearcast_control_handshakes_refused_total";

/// A client that believes this certificate only.
fn client(pair: &rcgen::CertifiedKey<rcgen::KeyPair>) -> ureq::Agent {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let root = ureq::tls::Certificate::from_der(pair.cert.der()).to_owned();
    let roots = ureq::tls::RootCerts::new_with_certs(&[root]);
    let tls = ureq::tls::TlsConfig::builder().root_certs(roots).build();
    ureq::Agent::config_builder().tls_config(tls).build().into()
}

/// Runs until it gives up, and what it says then.
fn serve(file: &Path) -> String {
    let output = program().args(["serve", "--config"]).arg(file).output().unwrap();
    assert!(!output.status.success());
    text(&output.stderr)
}

fn token(file: &Path, role: &str) -> Output {
    let mut command = program();
    command.args(["token", "--name", "test", "--role", role, "--config"]).arg(file);
    command.output().unwrap()
}

fn program() -> Command {
    Command::new(PathBuf::from(env!("CARGO_BIN_EXE_nearcast-control")))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
