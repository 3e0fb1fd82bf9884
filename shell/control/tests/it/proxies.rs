//! Behind a real nginx: players are steered by where they are, and nobody can say otherwise.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

use crate::appliance::Appliance;
use crate::control::{PATIENT, Running};
use crate::film::film;

/// An nginx with three ways to control; it ends when it is dropped.
struct Nginx {
    child: Child,
    /// Adds to X-Forwarded-For, as its manual says.
    adds: SocketAddr,
    /// Writes Forwarded.
    writes: SocketAddr,
    /// Not trusted, and says nothing, as nginx does if nobody tells it otherwise.
    silent: SocketAddr,
    _dir: tempfile::TempDir,
}

/// Where nginx connects from, and is trusted.
const PROXY: &str = "127.0.0.9";
/// Players of site a, and of site b.
const HERE: [u8; 4] = [127, 0, 1, 5];
const THERE: [u8; 4] = [127, 0, 2, 5];

#[test]
fn players_behind_nginx_are_steered_by_where_they_are_and_cannot_forge_it() {
    let control = playing();
    let nginx = Nginx::start(&control);
    for proxy in [nginx.adds, nginx.writes] {
        for (from, first) in [(HERE, "a1"), (THERE, "b1")] {
            assert_eq!(first_pathway(proxy, from, ""), first, "{proxy} {from:?}");
            let other = if first == "a1" { "127.0.2.7" } else { "127.0.1.7" };
            for forged in [
                format!("X-Forwarded-For: {other}\r\n"),
                format!("X-Forwarded-For: {other}, {PROXY}\r\n"),
                format!("X-Forwarded-For: {other}\r\nX-Forwarded-For: {other}\r\n"),
                format!("Forwarded: for={other}\r\n"),
                format!("X-Real-IP: {other}\r\nVia: 1.1 {other}\r\n"),
                "X-Forwarded-For: <garbage>\r\n".to_owned(),
            ] {
                assert_eq!(first_pathway(proxy, from, &forged), first, "{proxy}: {forged}");
            }
        }
    }
    // Straight to control, the headers are anybody's.
    let direct: SocketAddr = control.url.strip_prefix("http://").unwrap().parse().unwrap();
    let forged = "X-Forwarded-For: 127.0.2.7\r\nForwarded: for=127.0.2.7\r\n";
    assert_eq!(first_pathway(direct, HERE, forged), "a1");
}

#[test]
fn what_comes_through_nginx_is_no_local_administrator() {
    let control = playing();
    let nginx = Nginx::start(&control);
    assert_eq!(control.get("/v1/audit").status, 200, "this machine");
    for proxy in [nginx.adds, nginx.writes, nginx.silent] {
        let (status, _) = ask(proxy, [127, 0, 0, 1], "/v1/audit", "");
        assert_eq!(status, 401, "{proxy}");
        let (status, _) = ask(proxy, HERE, "/v1/play/film.m3u8?client=127.0.2.7", "");
        assert_eq!(status, 403, "{proxy}");
    }
}

/// The appliance that a playback from there should use first, by control's own explanation.
fn first_pathway(to: SocketAddr, from: [u8; 4], headers: &str) -> String {
    let (status, text) = ask(to, from, "/v1/play/film.m3u8", headers);
    assert_eq!(status, 200, "{text}");
    let rest = text.split("PATHWAY-ID=\"").nth(1).unwrap();
    rest.split('"').next().unwrap().to_owned()
}

/// GET over a connection of its own from this address; status and body.
fn ask(to: SocketAddr, from: [u8; 4], path: &str, headers: &str) -> (u16, String) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let text = runtime.block_on(async {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from((from, 0))).unwrap();
        let mut stream = socket.connect(to).await.unwrap();
        let head =
            format!("GET {path} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n{headers}\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    });
    let status = text.split(' ').nth(1).unwrap().parse().unwrap();
    (status, text.split_once("\r\n\r\n").unwrap().1.to_owned())
}

/// A control plane with a film on one appliance at each of two sites.
fn playing() -> Running {
    let control = Running::start(&format!("[serve]\ntrusted_proxies = [\"{PROXY}\"]\n{PATIENT}"));
    let names = ["a1", "b1"];
    control.register(&names);
    for (site, prefix) in [("a", "127.0.1.0/24"), ("b", "127.0.2.0/24")] {
        let body = json!({ "prefixes": [prefix] });
        assert_eq!(control.put(&format!("/v1/sites/{site}"), &body).status, 200);
    }
    let mut appliances = names.map(|name| Appliance::new(name, "https://127.0.0.1:8443"));
    for appliance in &mut appliances {
        appliance.report(&control);
    }
    while control.json("/v1/appliances").to_string().contains("_bytes\":null") {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(control.put("/v1/assets/film/versions/film-1", &film(0)).status, 201);
    assert_eq!(control.put("/v1/assets/film/public", &()).status, 204);
    for appliance in &mut appliances {
        let wire = appliance.fetch(&control).expect("a manifest");
        appliance.hold(&control, &wire);
    }
    let known: Value = control.json("/v1/explain?asset=film&client=127.0.2.5");
    assert_eq!(known["candidates"][0]["appliance"], "b1");
    control
}

impl Nginx {
    fn start(control: &Running) -> Self {
        let dir = tempfile::tempdir().unwrap();
        // Free now, and asked for at once: nginx cannot choose one and say which.
        let ports = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [adds, writes, silent] = ports.map(|port| port.local_addr().unwrap());
        let config = dir.path().join("nginx.conf");
        std::fs::write(&config, text(dir.path(), [adds, writes, silent], &control.url)).unwrap();
        let program = ["/usr/sbin/nginx", "/usr/bin/nginx", "/usr/local/bin/nginx"];
        let program = program.into_iter().find(|program| Path::new(program).is_file());
        let program = program.expect("nginx is not installed: run `./x check` once");
        let log = std::fs::File::create(dir.path().join("log")).unwrap();
        let child = Command::new(program)
            .arg("-p")
            .arg(dir.path())
            .arg("-c")
            .arg(&config)
            .stdout(log.try_clone().unwrap())
            .stderr(Stdio::from(log))
            .spawn()
            .unwrap();
        let start = Instant::now();
        while std::net::TcpStream::connect(silent).is_err() {
            let log = || std::fs::read_to_string(dir.path().join("log")).unwrap();
            assert!(start.elapsed() < Duration::from_secs(20), "it does not answer: {}", log());
            std::thread::sleep(Duration::from_millis(10));
        }
        Self { child, adds, writes, silent, _dir: dir }
    }
}

/// As docs/operate/proxies.md has it, for a user without privileges.
fn text(dir: &Path, [adds, writes, silent]: [SocketAddr; 3], control: &str) -> String {
    let dir = dir.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {dir}/{name};\n"))
        .concat();
    let trusted = format!(
        "proxy_bind {PROXY};\nproxy_set_header Host $http_host;\nproxy_http_version 1.1;\n\
         proxy_set_header Connection \"\";\n"
    );
    format!(
        "daemon off;\nmaster_process off;\npid {dir}/pid;\nerror_log stderr;\nevents {{}}\n\
         http {{\naccess_log off;\n{temporary}\
         server {{\nlisten {adds};\nlocation / {{\nproxy_pass {control};\n{trusted}\
         proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n\
         proxy_set_header Forwarded \"\";\n}}\n}}\n\
         server {{\nlisten {writes};\nlocation / {{\nproxy_pass {control};\n{trusted}\
         proxy_set_header Forwarded \"for=$remote_addr;proto=$scheme\";\n\
         proxy_set_header X-Forwarded-For \"\";\n}}\n}}\n\
         server {{\nlisten {silent};\nlocation / {{\nproxy_pass {control};\n}}\n}}\n}}\n"
    )
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
