//! A film that lies in a bucket of a S3 server: read once, named as it would be from a folder.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "s3/fleet.rs"]
mod fleet;
#[path = "s3/server.rs"]
#[expect(dead_code, reason = "some of it is for the tests of control")]
mod server;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};

use fleet::Fleet;
use server::{ID, REGION, SECRET, Server};
use wire::v1::ingest::NewVersion;

#[test]
fn a_film_in_a_bucket_is_the_same_version_as_the_same_film_in_a_folder() {
    let bench = Bench::start();
    bench.film(9_000_000);
    // Some tools make such objects for folders. And a key beside the prefix is none of ours.
    bench.put("a film/empty/", b"");
    bench.put("a film and more/x.mp4", b"other");
    let (done, published) = bench.ingest(&["--source", "https://cdn.example/film/"]);
    let summary = summary(&done);
    assert_eq!((summary["files"].as_u64(), summary["created"].as_bool()), (Some(4), Some(true)));
    let (path, version) = published.recv().unwrap();
    assert_eq!(version.sources, ["https://cdn.example/film/", "s3://films/a film/"]);
    assert_eq!(version.files["v/r0.mp4"].len, 9_000_000);

    let folder = bench.dir.path().join("a film");
    for (path, bytes) in bench.server.bucket().below("a film/") {
        if !path.ends_with('/') {
            let path = folder.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
    }
    let (control, of_folder) = stand_in();
    let done = nearcast(&bench)
        .args(["ingest", "--asset", "film", "--source", "https://o.example/", "--json"])
        .args(["--control", &control])
        .arg(folder)
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", text(&done.stderr));
    let (same_path, same) = of_folder.recv().unwrap();
    assert_eq!((path, version.files, version.entries), (same_path, same.files, same.entries));
}

#[test]
fn what_was_read_is_not_read_again_unless_it_changed() {
    let bench = Bench::start();
    bench.film(9_000_000);
    let read = |bench: &Bench| {
        let done = bench.ingest(&[]).0;
        summary(&done)["bytes_read"].as_u64().unwrap()
    };
    let manifests = u64::try_from(MASTER.len() + MEDIA.len()).unwrap();
    assert_eq!(read(&bench), manifests + 9_000_000 + 10);
    assert_eq!(read(&bench), manifests);
    bench.put("a film/v/r1.mp4", b"0123456780");
    assert_eq!(read(&bench), manifests + 10, "of the same length, and changed");
    assert_eq!(read(&bench), manifests);
}

#[test]
fn an_object_that_changes_while_it_is_read_is_refused_by_name() {
    let bench = Bench::start();
    bench.film(60_000_000);
    let owner = bench.server.bucket().clone();
    let proxy = Proxy::start(bench.server.port(), move |asked| {
        if asked == 10 {
            owner.put("a film/v/r0.mp4", vec![7; 60_000_000]);
        }
        false
    });
    let (done, published) = bench.ingest_at(&proxy.endpoint(), &[]);
    let said = text(&done.stderr);
    assert!(!done.status.success(), "{said}");
    assert!(said.contains("\"v/r0.mp4\" changed while it was ingested"), "{said}");
    assert!(published.try_recv().is_err(), "control hears nothing of it");
}

#[test]
fn a_connection_that_breaks_is_made_again_and_nothing_is_read_twice() {
    let bench = Bench::start();
    bench.film(60_000_000);
    let check = || {
        let proxy = Proxy::start(bench.server.port(), |asked| asked == 3 || asked == 9);
        let (done, published) = bench.ingest_at(&proxy.endpoint(), &["--reread"]);
        let read = summary(&done)["bytes_read"].as_u64().unwrap();
        assert_eq!(read, 60_000_010 + u64::try_from(MASTER.len() + MEDIA.len()).unwrap());
        assert!(17 <= proxy.asked(), "15 pieces, and two of them again");
        published.recv().unwrap().1.files
    };
    let (_, whole) = bench.ingest(&[]);
    let files = whole.recv().unwrap().1.files;
    assert_eq!(check(), files);
    bench.server.bucket().forget_tag("a film/v/r0.mp4");
    assert_eq!(check(), files, "without an ETag");
}

#[test]
fn more_keys_than_a_page_has_are_all_found() {
    let bench = Bench::start();
    bench.film(100);
    for n in 0..1_150 {
        bench.put(&format!("a film/s/{n:05}.m4s"), &[1; 3]);
    }
    let (done, published) = bench.ingest(&[]);
    assert_eq!(summary(&done)["files"], 1_154);
    let (_, version) = published.recv().unwrap();
    assert!(version.files.contains_key("s/00000.m4s") && version.files.contains_key("s/01149.m4s"));
}

#[test]
fn what_cannot_be_read_is_said_with_what_to_do_and_without_secrets() {
    let bench = Bench::start();
    bench.film(100);
    let at = |place: &str, endpoint: &str, region: &str, change: &dyn Fn(&mut Command)| {
        let mut command = nearcast(&bench);
        command.args(["ingest", "--asset", "film", "--control", "http://127.0.0.1:1", place]);
        command.args(["--endpoint", endpoint, "--region", region]);
        change(&mut command);
        let done = command.output().unwrap();
        assert!(!done.status.success());
        let said = text(&done.stderr) + &text(&done.stdout);
        assert!(!said.contains(SECRET) && !said.contains("wrong-secret"), "{said}");
        said
    };
    let endpoint = bench.server.endpoint();
    let refused = |place, change: &dyn Fn(&mut Command)| at(place, &endpoint, REGION, change);
    let film = "s3://films/a film/";
    let none = refused("s3://nofilms/", &|_| ());
    assert!(none.contains("has no bucket \"nofilms\": is --endpoint right?"), "{none}");
    let empty = refused("s3://films/b film", &|_| ());
    assert!(empty.contains("s3://films/b film/ holds no objects"), "{empty}");
    let wrong = refused(film, &|c| {
        c.env("AWS_SECRET_ACCESS_KEY", "wrong-secret");
    });
    assert!(wrong.contains("does not accept the credentials from the environment"), "{wrong}");
    let stranger = refused(film, &|c| {
        c.env("AWS_ACCESS_KEY_ID", "AKSTRANGER");
    });
    assert!(stranger.contains("does not accept the credentials"), "{stranger}");
    let nobody = refused(film, &|c| {
        c.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
    });
    assert!(nobody.contains("set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"), "{nobody}");
    let region = at(film, &endpoint, "mars-1", &|_| ());
    assert!(region.contains("is in another region"), "{region}");
    let open = at(film, "http://s3.example", REGION, &|_| ());
    assert!(open.contains("must be an https URL"), "{open}");
    let name = refused("s3://Films/x", &|_| ());
    assert!(name.contains("is not a bucket"), "{name}");
}

#[test]
fn a_user_who_may_not_read_the_bucket_is_told_what_is_missing() {
    let bench = Bench::start();
    bench.film(100);
    bench.server.bucket().set_secret("AKGUEST", "guest-secret");
    let (control, _published) = stand_in();
    let done = nearcast(&bench)
        .env("AWS_ACCESS_KEY_ID", "AKGUEST")
        .env("AWS_SECRET_ACCESS_KEY", "guest-secret")
        .args(["ingest", "--asset", "film", "--control", &control, "s3://films/a film"])
        .args(["--endpoint", &bench.server.endpoint(), "--region", REGION])
        .output()
        .unwrap();
    let said = text(&done.stderr);
    assert!(said.contains("they need s3:ListBucket and s3:GetObject"), "{said}");
}

#[test]
fn an_appliance_fills_from_a_bucket_and_keeps_nothing_that_opens_it() {
    let bench = Bench::start();
    bench.film(5_000_000);
    let mut fleet = Fleet::start(&bench.server);
    bench.publish(&fleet);
    fleet.start_appliance();
    fleet.until_shown("it holds the film", |shown| shown["assets"][0]["copies_complete"] == 1);
    fleet.stop_appliance();
    let kept = fleet.kept_by_appliance();
    let media = kept.iter().find(|(_, bytes)| 5_000_000 < bytes.len()).expect("the film is there");
    // Each page of the film begins with its number, wherever in the file the film begins.
    let pages: Vec<&[u8]> = media.1.chunks(4096).collect();
    let is_film =
        |from: &[&[u8]]| (0_u32..1_220).zip(from).all(|(n, page)| page[..4] == n.to_le_bytes());
    assert!(pages.windows(1_220).any(is_film), "in the clear on its drive");
    for (path, bytes) in &kept {
        for secret in [SECRET, ID, "X-Amz-Signature", "s3://"] {
            let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!found, "{secret} is in {}", path.display());
        }
    }
}

#[test]
fn an_object_that_changed_since_ingest_is_told_by_the_appliance_and_never_held() {
    let bench = Bench::start();
    bench.film(5_000_000);
    let mut fleet = Fleet::start(&bench.server);
    bench.publish(&fleet);
    bench.put("a film/v/r1.mp4", b"9876543210");
    fleet.start_appliance();
    let object = blake3::hash(b"0123456789").to_hex();
    fleet.until_shown("it says what is wrong", |shown| {
        let errors = shown["errors"].as_array().unwrap();
        let text = |error: &serde_json::Value| error["text"].as_str().unwrap().to_owned();
        let is_it =
            |text: String| text.contains(&*object) && text.contains("has changed since ingest");
        errors.iter().map(text).any(is_it)
    });
    fleet.until_shown("it holds the rest", |shown| {
        shown["sites"][0]["appliances"][0]["objects_held"] == 3
    });
    fleet.until_shown("no copy is complete", |shown| shown["assets"][0]["copies_complete"] == 0);
}

/// A server, and a home for what nearcast remembers.
struct Bench {
    server: Server,
    dir: tempfile::TempDir,
}

impl Bench {
    fn start() -> Self {
        Self { server: Server::start(), dir: tempfile::tempdir().unwrap() }
    }

    fn film(&self, len: usize) {
        let mut media = vec![0_u8; len];
        for (block, bytes) in (0_u32..).zip(media.chunks_mut(4096)) {
            bytes[..4].copy_from_slice(&block.to_le_bytes());
        }
        self.server.bucket().put("a film/v/r0.mp4", media);
        self.put("a film/v/r1.mp4", b"0123456789");
        self.put("a film/master.m3u8", MASTER.as_bytes());
        self.put("a film/v/r0.m3u8", MEDIA.as_bytes());
    }

    fn put(&self, key: &str, bytes: &[u8]) {
        self.server.bucket().put(key, bytes);
    }

    /// Ingests the film at a stand-in for control that takes it.
    fn ingest(&self, more: &[&str]) -> (Output, Receiver<(String, NewVersion)>) {
        let (done, published) = self.ingest_at(&self.server.endpoint(), more);
        assert!(done.status.success(), "{}", text(&done.stderr));
        (done, published)
    }

    /// Ingests the film at a real control plane.
    fn publish(&self, fleet: &Fleet) {
        let done = nearcast(self)
            .args(["ingest", "--asset", "film", "--json", "--control", &fleet.url])
            .args(["--endpoint", &self.server.endpoint(), "--region", REGION])
            .arg("s3://films/a film")
            .output()
            .unwrap();
        assert!(summary(&done)["created"].as_bool().unwrap());
    }

    fn ingest_at(&self, endpoint: &str, more: &[&str]) -> (Output, Receiver<(String, NewVersion)>) {
        let (control, published) = stand_in();
        let done = nearcast(self)
            .args(["ingest", "--asset", "film", "--json", "--control", &control])
            .args(["--endpoint", endpoint, "--region", REGION])
            .args(["s3://films/a film", "--log-level", "debug"])
            .args(more)
            .output()
            .unwrap();
        assert!(!text(&done.stderr).contains(SECRET), "{}", text(&done.stderr));
        (done, published)
    }
}

/// Stands between nearcast and the server.
struct Proxy {
    port: u16,
    asked: Arc<AtomicUsize>,
}

/// Asked before the nth request for the film's media is passed on: break the connection in the
/// middle of the answer?
type Breaks = dyn Fn(usize) -> bool + Send + Sync;

impl Proxy {
    fn start(server: u16, breaks: impl Fn(usize) -> bool + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (asked, breaks) = (Arc::new(AtomicUsize::new(0)), Arc::new(breaks));
        let proxy = Self { port, asked: asked.clone() };
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (asked, breaks) = (asked.clone(), breaks.clone());
                let pass = move || pass(client.unwrap(), server, &asked, &*breaks);
                std::thread::spawn(pass);
            }
        });
        proxy
    }

    fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

fn pass(client: TcpStream, server: u16, asked: &AtomicUsize, breaks: &Breaks) {
    let server = TcpStream::connect(("127.0.0.1", server)).unwrap();
    let is_broken = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            copy(&client, &server, |bytes| {
                if text(bytes).contains("/v/r0.mp4 HTTP/1.1") {
                    let nth = asked.fetch_add(1, Ordering::SeqCst) + 1;
                    is_broken.fetch_or(breaks(nth), Ordering::SeqCst);
                }
                true
            });
        });
        // The first 16 KiB of the answer arrive.
        copy(&server, &client, |_| !is_broken.swap(false, Ordering::SeqCst));
    });
}

/// Until the end, or until one more piece was passed after `more` said no.
fn copy(from: &TcpStream, to: &TcpStream, more: impl Fn(&[u8]) -> bool) {
    let (mut from, mut to) = (from, to);
    let mut buffer = vec![0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let go_on = more(&buffer[..count]);
        if to.write_all(&buffer[..count]).is_err() || !go_on {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

fn nearcast(bench: &Bench) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nearcast"));
    command.env("XDG_CACHE_HOME", bench.dir.path().join("user")).env("HOME", bench.dir.path());
    command.env("AWS_ACCESS_KEY_ID", ID).env("AWS_SECRET_ACCESS_KEY", SECRET);
    for name in ["AWS_PROFILE", "AWS_REGION", "AWS_ENDPOINT_URL", "AWS_SESSION_TOKEN"] {
        command.env_remove(name);
    }
    command
}

/// Takes one PUT, as a control plane that has not seen it.
fn stand_in() -> (String, Receiver<(String, NewVersion)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, received) = channel();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let _ = sender.send(take(stream));
    });
    (url, received)
}

fn take(stream: TcpStream) -> (String, NewVersion) {
    let mut reader = BufReader::new(stream);
    let (mut head, mut body_len) = (Vec::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if let Some(len) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            body_len = len.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
        head.push(line);
    }
    let mut body = vec![0; body_len];
    reader.read_exact(&mut body).unwrap();
    reader.get_mut().write_all(b"HTTP/1.1 201 X\r\ncontent-length: 0\r\n\r\n").unwrap();
    let path = head[0].split(' ').nth(1).unwrap().to_owned();
    (path, serde_json::from_slice(&body).unwrap())
}

fn summary(done: &Output) -> BTreeMap<String, serde_json::Value> {
    assert!(done.status.success(), "{}", text(&done.stderr));
    serde_json::from_slice(&done.stdout).unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const MASTER: &str = "#EXTM3U
#EXT-X-STREAM-INF:BANDWIDTH=800000,CODECS=\"avc1.42c01e\"
v/r0.m3u8
";

const MEDIA: &str = "#EXTM3U
#EXT-X-TARGETDURATION:4
#EXTINF:4.0,
r0.mp4
#EXT-X-ENDLIST
";
