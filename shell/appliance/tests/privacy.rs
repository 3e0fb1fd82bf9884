//! The real process at TRACE: nothing of who asked for what gets into its log, and nothing of who
//! asked into its request log.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the failure")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use appliance::{clock, format};
use identity::authority::Authority;
use identity::credentials::Credentials;
use identity::member::Member;
use rcgen::{CertificateParams, KeyPair};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use rustix::process::{Pid, Signal, kill_process};

/// Whose request it is. Not the address that the appliance listens on.
const CLIENT: Ipv4Addr = Ipv4Addr::new(127, 77, 66, 55);
const SESSION: &str = "PRIVATEsession16";

#[test]
fn a_log_at_trace_names_no_client_no_session_and_no_token() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    for folder in ["drive", "tls", "state"] {
        fs::create_dir(at(folder)).unwrap();
    }
    format::format(&at("drive"), "10%".parse().unwrap(), clock::wall()).unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(at("tls/cert.pem"), made.cert.pem()).unwrap();
    fs::write(at("tls/key.pem"), made.signing_key.serialize_pem()).unwrap();
    enrolled().save(&at("state")).unwrap();
    let [tls, plain] = [(); 2].map(|()| free_port());
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
    let mut child = Command::new(env!("CARGO_BIN_EXE_nearcast-appliance"))
        .args(["--log-level", "trace", "serve", "--config"])
        .arg(at("a.toml"))
        .stderr(Stdio::from(log))
        .spawn()
        .unwrap();
    let token = format!("k1.tro8w0.0.{SESSION}.{}", "S".repeat(86));
    let target = format!("/t/{token}/film-1/v.mp4?CMCD=sid%3D%22{SESSION}%22");
    let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    // A good form, a bad head, and what is no TLS: each has a way of its own through the process.
    let asked = [(plain, request.as_str()), (plain, "GET \0"), (tls, request.as_str())];
    let answers: Vec<Vec<u8>> = asked.iter().map(|(port, text)| ask(*port, text)).collect();
    let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    child.wait().unwrap();
    assert!(answers[0].starts_with(b"HTTP/1.1 403 "), "the token was looked at");

    let log = fs::read_to_string(at("log")).unwrap();
    assert!(log.contains("a1") && log.contains(" INFO "), "there is a log: {log}");
    let client = CLIENT.to_string();
    for secret in [SESSION, "SSSSSSSS", "film-1", "CMCD", &client, "127.77.66", "tro8w0"] {
        assert!(!log.contains(secret), "{secret} is in the log:\n{log}");
    }
    let requests = fs::read_to_string(at("state/requests.log")).unwrap();
    let ends: Vec<&str> = requests.lines().map(|line| &line[20..]).collect();
    let expected = [" 403 GET film-1/v.mp4 - 0 ", " 400 - - - 0 "];
    assert_eq!(ends.len(), expected.len(), "TLS that is none is no request:\n{requests}");
    for (line, expected) in ends.iter().zip(expected) {
        assert!(line.starts_with(expected), "{requests}");
    }
    for secret in [SESSION, "SSSSSSSS", "CMCD", &client, "127.77.66", "tro8w0"] {
        assert!(!requests.contains(secret), "{secret} is in the request log:\n{requests}");
    }
}

/// An identity of an authority that nobody asks here.
fn enrolled() -> Credentials {
    let authority = Authority::create(clock::wall()).unwrap();
    let key = KeyPair::generate().unwrap();
    let request = CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap();
    let member = Member::appliance("a1");
    let issued = authority.issue(&member, &request, [1; 16], clock::wall(), 3600).unwrap();
    let given = wire::v1::identity::Enrolled {
        certificate: issued.certificate,
        authority: authority.certificate_pem().to_owned(),
        signing_keys: Vec::new(),
    };
    Credentials::new(&key.serialize_pem(), &given).unwrap()
}

/// Asks from the client's address.
fn ask(port: u16, request: &str) -> Vec<u8> {
    let server = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let start = Instant::now();
    let mut stream = loop {
        let made = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&made, &SocketAddr::from((CLIENT, 0))).unwrap();
        match connect(&made, &server) {
            Ok(()) => break TcpStream::from(made),
            Err(_) if start.elapsed() < Duration::from_secs(20) => std::thread::yield_now(),
            Err(error) => panic!("it does not listen: {error}"),
        }
    };
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
