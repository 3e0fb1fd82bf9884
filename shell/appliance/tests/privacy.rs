//! The real process at TRACE: nothing of who asked for what gets into its log, and nothing of who
//! asked into its request log.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the failure")]

mod held;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use appliance::clock;
use appliance::storage::format;
use held::free_ports;
use identity::authority::Authority;
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use rustix::process::{Pid, Signal, kill_process};
use rustls::pki_types::CertificateDer;

/// Whose request it is. Not the address that the appliance listens on.
const CLIENT: Ipv4Addr = Ipv4Addr::new(127, 77, 66, 55);
const SESSION: &str = "PRIVATEsession16";

#[test]
fn a_log_at_trace_names_no_client_no_session_and_no_token() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    let ports @ [tls, plain] = free_ports();
    let (mut child, certificate) = start(place.path(), ports);
    // Until the first audit has found the film, it is not known.
    let good = held::url();
    let viewer = || ask(tls, Some(&certificate), &held::request(&good));
    let start = Instant::now();
    while held::body(viewer()).is_none_or(|body| body != held::content()) {
        assert!(start.elapsed() < Duration::from_secs(20), "it does not serve the film");
    }
    let token = format!("k1.tro8w0.0.{SESSION}.{}", "S".repeat(86));
    let target = format!("/t/{token}/film-1/v.mp4?CMCD=sid%3D%22{SESSION}%22");
    let request = held::request(&target);
    // What is served, a good form, a bad head, and what is no TLS: each has a way of its own
    // through the process.
    let served = held::request(&good);
    let asked = [(plain, &*served), (plain, &*request), (plain, "GET \0"), (tls, &*request)];
    let answers: Vec<Vec<u8>> = asked.iter().map(|(port, text)| ask(*port, None, text)).collect();
    let pid = Pid::from_raw(child.0.id().cast_signed()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    child.0.wait().unwrap();
    assert!(answers[0].ends_with(&held::content()), "it is served without TLS too");
    assert!(answers[1].starts_with(b"HTTP/1.1 403 "), "the token was looked at");

    let log = fs::read_to_string(at("log")).unwrap();
    assert!(log.contains("a1") && log.contains(" INFO "), "there is a log: {log}");
    let client = CLIENT.to_string();
    // Of the good token: when it ends, whose it is, and what proves it.
    let good = good.split('/').nth(2).unwrap();
    let parts: Vec<&str> = good.split('.').collect();
    let [_, ends, _, session, signature] = parts[..] else { panic!("{good}") };
    let private =
        [SESSION, "SSSSSSSS", "CMCD", &client, "127.77.66", "tro8w0", ends, session, signature];
    for secret in private.into_iter().chain(["film-1"]) {
        assert!(!log.contains(secret), "{secret} is in the log:\n{log}");
    }
    let demand = fs::read_to_string(at("state/demand.hour")).unwrap();
    let counted: Vec<&str> = demand.lines().skip(3).collect();
    // One session, each time: a number of viewers is kept, and none of them.
    let told = |times: usize| format!("{} {} 1", held::FILE, times * held::LEN);
    assert!([2, 3].iter().any(|times| counted == [told(*times)]), "{demand}");

    let requests = fs::read_to_string(at("state/requests.log")).unwrap();
    let lines: Vec<&str> = requests.lines().map(|line| &line[20..]).collect();
    let served = format!(" 200 GET film-1/v.mp4 - {} ", held::LEN);
    let expected = [&*served, &*served, " 403 GET film-1/v.mp4 - 0 ", " 400 - - - 0 "];
    // Before these, those who came before the film was found; TLS that is none is no request.
    let (early, lines) = lines.split_at(lines.len().saturating_sub(expected.len()));
    assert!(early.iter().all(|line| line.starts_with(" 404 ")), "{requests}");
    assert!(
        lines.iter().zip(expected).all(|(line, wanted)| line.starts_with(wanted)),
        "{requests}"
    );
    assert_eq!(lines.len(), expected.len(), "{requests}");
    for secret in private {
        assert!(!requests.contains(secret), "{secret} is in the request log:\n{requests}");
    }
}

/// An appliance that holds the film, and listens with TLS and without: its process, and the
/// certificate that it shows.
fn start(place: &Path, [tls, plain]: [u16; 2]) -> (Killed, CertificateDer<'static>) {
    let at = |name: &str| place.join(name);
    for folder in ["drive", "tls", "state"] {
        fs::create_dir(at(folder)).unwrap();
    }
    format::format(&at("drive"), "10%".parse().unwrap(), clock::wall()).unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(at("tls/cert.pem"), made.cert.pem()).unwrap();
    fs::write(at("tls/key.pem"), made.signing_key.serialize_pem()).unwrap();
    let authority = Authority::create(clock::wall()).unwrap();
    held::identity_of("a1", &authority).save(&at("state")).unwrap();
    held::put(&at("drive"), &at("state"));
    let text = format!(
        "name = \"a1\"\nstate = \"{state}\"\n[serve]\nlisten = [\"127.0.0.1:{tls}\"]\n\
         plain_listen = [\"127.0.0.1:{plain}\"]\ncertificate = \"{tls_dir}/cert.pem\"\n\
         key = \"{tls_dir}/key.pem\"\nworkers = 1\n[drives]\npaths = [\"{drive}\"]\n\
         [control]\nurl = \"https://127.0.0.1:9\"\n[process]\nsandbox = \"off\"\n",
        state = at("state").display(),
        tls_dir = at("tls").display(),
        drive = at("drive").display(),
    );
    fs::write(at("a.toml"), text).unwrap();
    let log = fs::File::create(at("log")).unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_nearcast-appliance"))
        .args(["--log-level", "trace", "serve", "--config"])
        .arg(at("a.toml"))
        .stderr(Stdio::from(log))
        .spawn();
    (Killed(child.unwrap()), made.cert.der().clone())
}

/// Killed at the end, whatever comes of the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Asks from the client's address.
fn ask(port: u16, certificate: Option<&CertificateDer<'static>>, request: &str) -> Vec<u8> {
    let server = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let start = Instant::now();
    let stream = loop {
        let made = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&made, &SocketAddr::from((CLIENT, 0))).unwrap();
        match connect(&made, &server) {
            Ok(()) => break TcpStream::from(made),
            Err(_) if start.elapsed() < Duration::from_secs(20) => std::thread::yield_now(),
            Err(error) => panic!("it does not listen: {error}"),
        }
    };
    // Who speaks no TLS is parted with; what it had been told by then is all there is.
    held::exchange(&stream, certificate, request).unwrap_or_default()
}
