//! The way of a file: ingested by one process, served by another, each block checked by its hash.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Once};
use std::time::{Duration, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use model::object::{BLOCK_LEN, BlockHash, Blocks, block_len};
use model::units::Bytes;
use wire::v1::ingest::{EntryFormat, NewFile, NewVersion};

#[test]
fn every_block_of_an_ingested_directory_comes_from_the_origin_and_is_verified() {
    let fixture = Fixture::new();
    let control = Control::start(201);
    let done = fixture.ingest(&control, &[]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let summary: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    let (path, version) = control.received();
    let name = summary["version"].as_str().unwrap();
    assert_eq!(path, format!("/v1/assets/film/versions/{name}"));
    assert_eq!(summary["files"], 5);
    let entries: Vec<_> = version.entries.iter().map(|e| (&*e.path, e.format)).collect();
    assert_eq!(entries, [("manifest.mpd", EntryFormat::Dash), ("master.m3u8", EntryFormat::Hls)]);
    assert_eq!(version.files["v/r0.mp4"].content_type, "video/mp4");
    let origin = Origin::start(&fixture);
    for (path, file) in &version.files {
        let blocks = blocks(file);
        for (index, _) in (0..).zip(blocks.hashes()) {
            let start = index * BLOCK_LEN.0;
            let end = start + block_len(blocks.len(), index).0 - 1;
            let mut answer = origin.get(path, &[("range", &format!("bytes={start}-{end}"))]);
            assert_eq!(answer.status(), 206, "{path}");
            let body = answer.body_mut().read_to_vec().unwrap();
            assert!(blocks.verify(index, &body), "block {index} of {path}");
        }
    }
}

#[test]
fn a_back_catalogue_is_new_when_it_is_ingested() {
    let fixture = Fixture::new();
    let long_ago = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for path in ["v/r0.mp4", "v/r1.mp4", "master.m3u8", "v/r0.m3u8", "manifest.mpd"] {
        let file = std::fs::File::open(fixture.asset().join(path)).unwrap();
        file.set_modified(long_ago).unwrap();
    }
    let control = Control::start(201);
    let begun = UNIX_EPOCH.elapsed().unwrap().as_secs();
    let done = fixture.ingest(&control, &[]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(begun <= control.received().1.modified_unix_s);
}

#[test]
fn the_origin_answers_as_http_wants_and_never_from_outside_its_directory() {
    let fixture = Fixture::new();
    std::fs::write(fixture.dir.path().join("secret"), b"secret").unwrap();
    std::os::unix::fs::symlink("../secret", fixture.asset().join("link")).unwrap();
    let origin = Origin::start(&fixture);
    let whole = origin.get("v/r0.mp4", &[]);
    let etag = header(&whole, "etag");
    assert_eq!((whole.status().as_u16(), &*header(&whole, "content-length")), (200, "700000"));
    assert_eq!(header(&whole, "accept-ranges"), "bytes");
    type Headers<'a> = &'a [(&'a str, &'a str)];
    let cases: [(&str, Headers<'_>, u16, &str); 12] = [
        ("v/r0.mp4", &[("range", "bytes=10-19")], 206, "bytes 10-19/700000"),
        ("v/r0.mp4", &[("range", "bytes=-5")], 206, "bytes 699995-699999/700000"),
        ("v/r0.mp4", &[("range", "bytes=700000-")], 416, "bytes */700000"),
        ("v/r0.mp4", &[("range", "bytes=0-1"), ("if-range", &etag)], 206, "bytes 0-1/700000"),
        ("v/r0.mp4", &[("range", "bytes=0-1"), ("if-range", "\"no\"")], 200, ""),
        ("v/r0.mp4", &[("if-none-match", &etag)], 304, ""),
        ("v/r0.mp4", &[("if-match", "\"no\"")], 412, ""),
        ("v%2Fr0.mp4", &[], 200, ""),
        ("link", &[], 404, ""),
        ("v", &[], 404, ""),
        ("%2e%2e/secret", &[], 400, ""),
        ("none", &[], 404, ""),
    ];
    for (path, headers, status, range) in cases {
        let answer = origin.get(path, headers);
        assert_eq!(answer.status().as_u16(), status, "{path} {headers:?}");
        assert_eq!(header(&answer, "content-range"), range, "{path} {headers:?}");
    }
    let head = origin.agent.head(origin.url("v/r0.mp4")).call().unwrap();
    assert_eq!((head.status().as_u16(), &*header(&head, "content-length")), (200, "700000"));
    let post = origin.agent.post(origin.url("v/r0.mp4")).send(&b"x"[..]).unwrap();
    assert_eq!((post.status().as_u16(), &*header(&post, "allow")), (405, "GET, HEAD"));
}

#[test]
fn what_was_hashed_is_not_read_again_when_control_was_away_the_first_time() {
    let fixture = Fixture::new();
    let manifests = fixture.manifests_len();
    let refused = fixture.ingest(&Control::start(503), &[]);
    assert!(!refused.status.success());
    assert!(text(&refused.stderr).contains("control refused (503): out of order"));
    let again = fixture.ingest(&Control::start(201), &[]);
    assert_eq!(read_by(&again), manifests);
    let changed = fixture.asset().join("v/r1.mp4");
    std::fs::write(&changed, b"other bytes").unwrap();
    assert_eq!(read_by(&fixture.ingest(&Control::start(200), &[])), manifests + 11);
    let all = read_by(&fixture.ingest(&Control::start(200), &["--reread"]));
    assert_eq!(all, manifests + 700_000 + 11);
}

#[test]
fn a_broken_package_is_refused_and_control_hears_nothing_of_it() {
    let fixture = Fixture::new();
    let unused = TcpListener::bind("127.0.0.1:0").unwrap();
    unused.set_nonblocking(true).unwrap();
    let url = format!("http://{}", unused.local_addr().unwrap());
    for (path, from, to, said) in [
        ("v/r0.m3u8", "#EXT-X-ENDLIST\n", "", "v/r0.m3u8, line 10: it has no #EXT-X-ENDLIST"),
        ("manifest.mpd", "\"static\"", "\"dynamic\"", "manifest.mpd, line 2: its type is"),
        ("master.m3u8", "v/r0", "v/r5", "master.m3u8, line 4: it names \"v/r5.m3u8\""),
    ] {
        let good = std::fs::read_to_string(fixture.asset().join(path)).unwrap();
        fixture.write(path, good.replace(from, to).as_bytes());
        let done = fixture.ingest_at(&url, &[]);
        assert!(!done.status.success() && done.stdout.is_empty());
        assert!(text(&done.stderr).contains(said), "{}", text(&done.stderr));
        fixture.write(path, good.as_bytes());
    }
    assert!(unused.accept().is_err(), "nobody called");
}

#[test]
fn without_a_control_plane_the_error_says_where_it_was_sought_and_how_to_name_another() {
    let fixture = Fixture::new();
    let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let done = fixture.ingest_at(&format!("http://{unused}"), &[]);
    let said = text(&done.stderr);
    assert!(said.contains(&format!("http://{unused}")) && said.contains("--control"), "{said}");
}

/// A directory of an asset, and keys for an origin.
struct Fixture {
    dir: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let fixture = Self { dir };
        std::fs::create_dir_all(fixture.asset().join("v")).unwrap();
        let bytes: Vec<u8> = (0..700_000u32).map(|i| (i * 7 % 251).to_le_bytes()[0]).collect();
        fixture.write("v/r0.mp4", &bytes);
        fixture.write("v/r1.mp4", &bytes[..300_000]);
        fixture.write("master.m3u8", MASTER.as_bytes());
        fixture.write("v/r0.m3u8", MEDIA.as_bytes());
        fixture.write("manifest.mpd", MPD.as_bytes());
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        std::fs::write(fixture.dir.path().join("cert.pem"), certificate.pem()).unwrap();
        std::fs::write(fixture.dir.path().join("key.pem"), key.serialize_pem()).unwrap();
        fixture
    }

    fn asset(&self) -> PathBuf {
        self.dir.path().join("asset")
    }

    fn write(&self, path: &str, bytes: &[u8]) {
        std::fs::write(self.asset().join(path), bytes).unwrap();
    }

    fn manifests_len(&self) -> u64 {
        Bytes::of(MASTER.len() + MEDIA.len() + MPD.len()).0
    }

    fn ingest(&self, control: &Control, more: &[&str]) -> Output {
        self.ingest_at(&control.url, more)
    }

    fn ingest_at(&self, control: &str, more: &[&str]) -> Output {
        nearcast()
            .args(["ingest", "--asset", "film", "--source", "https://127.0.0.1:1/", "--json"])
            .args(["--control", control])
            .arg(self.asset())
            .args(more)
            .env("XDG_CACHE_HOME", self.dir.path().join("user"))
            .output()
            .unwrap()
    }
}

/// `nearcast origin` of a fixture's asset.
struct Origin {
    child: Child,
    base: String,
    agent: ureq::Agent,
}

impl Origin {
    fn start(fixture: &Fixture) -> Self {
        let file = |name: &str| fixture.dir.path().join(name);
        let mut child = nearcast()
            .args(["origin", "--listen", "127.0.0.1:0", "--json", "--certificate"])
            .arg(file("cert.pem"))
            .arg("--key")
            .arg(file("key.pem"))
            .arg(fixture.asset())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said: serde_json::Value = serde_json::from_str(&line).unwrap();
        let base = format!("https://{}", said["listen"].as_str().unwrap());
        Self { child, base, agent: agent(&file("cert.pem")) }
    }

    fn url(&self, path: &str) -> String {
        format!("{}/{path}", self.base)
    }

    fn get(&self, path: &str, headers: &[(&str, &str)]) -> ureq::http::Response<ureq::Body> {
        let request = self.agent.get(self.url(path));
        let request = headers.iter().fold(request, |r, (name, value)| r.header(*name, *value));
        request.call().unwrap()
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn agent(certificate: &Path) -> ureq::Agent {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| {
        rustls::crypto::aws_lc_rs::default_provider().install_default().unwrap();
    });
    let pem = std::fs::read(certificate).unwrap();
    let root = ureq::tls::Certificate::from_pem(&pem).unwrap();
    let tls = ureq::tls::TlsConfig::builder()
        .root_certs(ureq::tls::RootCerts::Specific(Arc::new(vec![root])))
        .build();
    ureq::Agent::config_builder().http_status_as_error(false).tls_config(tls).build().into()
}

/// Stands in for a control plane: takes one PUT and answers it with a status.
struct Control {
    url: String,
    received: Receiver<(String, NewVersion)>,
}

impl Control {
    fn start(status: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (sender, received) = channel();
        std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let _ = sender.send(answer_put(stream, status));
        });
        Self { url, received }
    }

    fn received(&self) -> (String, NewVersion) {
        self.received.recv().unwrap()
    }
}

fn answer_put(stream: TcpStream, status: u16) -> (String, NewVersion) {
    let mut reader = BufReader::new(stream);
    let (mut head, mut body_len) = (Vec::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let lower = line.to_ascii_lowercase();
        if let Some(len) = lower.strip_prefix("content-length:") {
            body_len = len.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
        head.push(line);
    }
    let mut body = vec![0; body_len];
    reader.read_exact(&mut body).unwrap();
    let text = r#"{"title":"out of order"}"#;
    let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n{text}", text.len());
    reader.get_mut().write_all(answer.as_bytes()).unwrap();
    let path = head[0].split(' ').nth(1).unwrap().to_owned();
    (path, serde_json::from_slice(&body).unwrap())
}

fn nearcast() -> Command {
    Command::new(env!("CARGO_BIN_EXE_nearcast"))
}

fn blocks(file: &NewFile) -> Blocks {
    let bytes = STANDARD.decode(&file.blocks).unwrap();
    let hashes = bytes.chunks_exact(32).map(|hash| BlockHash(hash.try_into().unwrap())).collect();
    Blocks::prove(file.object.parse().unwrap(), Bytes(file.len), hashes).unwrap()
}

fn read_by(output: &Output) -> u64 {
    assert!(output.status.success(), "{}", text(&output.stderr));
    let summary: BTreeMap<String, serde_json::Value> =
        serde_json::from_slice(&output.stdout).unwrap();
    summary["bytes_read"].as_u64().unwrap()
}

fn header(answer: &ureq::http::Response<ureq::Body>, name: &str) -> String {
    answer.headers().get(name).map_or("", |value| value.to_str().unwrap()).to_owned()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const MASTER: &str = "#EXTM3U
#EXT-X-VERSION:7
#EXT-X-STREAM-INF:BANDWIDTH=800000,CODECS=\"avc1.42c01e\"
v/r0.m3u8
";

const MEDIA: &str = "#EXTM3U
#EXT-X-VERSION:7
#EXT-X-TARGETDURATION:4
#EXT-X-MAP:URI=\"r0.mp4\",BYTERANGE=\"800@0\"
#EXTINF:4.0,
#EXT-X-BYTERANGE:300000@800
r0.mp4
#EXTINF:4.0,
#EXT-X-BYTERANGE:399200@300800
r0.mp4
#EXT-X-ENDLIST
";

const MPD: &str = r#"<?xml version="1.0" encoding="utf-8"?>
<MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static" mediaPresentationDuration="PT8.0S"
  profiles="urn:mpeg:dash:profile:isoff-on-demand:2011" minBufferTime="PT4.0S">
  <Period id="0"><AdaptationSet id="0" contentType="video">
    <Representation id="0" mimeType="video/mp4" codecs="avc1.42c01e" bandwidth="800000">
      <BaseURL>v/r0.mp4</BaseURL>
      <SegmentBase indexRange="800-999"><Initialization range="0-799"/></SegmentBase>
    </Representation>
  </AdaptationSet></Period>
</MPD>
"#;
