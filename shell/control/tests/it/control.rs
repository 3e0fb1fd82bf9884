//! A control plane in this process, on a port of its own, that can be stopped and started again.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc;
use std::thread::JoinHandle;

use control::config::Config;
use control::serve::Listeners;
use control::state::writer::Control;
use identity::code::Code;
use serde::Serialize;
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::oneshot;

/// For appliances that report when a test tells them: silence is no fault in it.
pub(crate) const PATIENT: &str = "[health]\nstale_after = \"60 s\"\nprobe_after = \"60 s\"\n";

/// A running control plane.
pub(crate) struct Running {
    pub(crate) url: String,
    /// Where members connect to.
    pub(crate) fleet: SocketAddr,
    state: TempDir,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    agent: ureq::Agent,
}

/// An answer.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) kind: String,
    pub(crate) headers: ureq::http::HeaderMap,
    pub(crate) bytes: Vec<u8>,
}

impl Running {
    /// Starts with an empty state directory and these lines of settings.
    pub(crate) fn start(settings: &str) -> Self {
        let mut running = Self::prepare(settings);
        running.go();
        running
    }

    /// Makes the directory and the file of settings, and starts nothing.
    pub(crate) fn prepare(settings: &str) -> Self {
        let state = tempfile::tempdir().unwrap();
        let file = state.path().join("control.toml");
        let path = state.path().join("state");
        std::fs::create_dir(&path).unwrap();
        let database = if settings.contains("role = \"front\"") {
            format!("state = {:?}\n", path.display().to_string())
        } else {
            crate::database::settings(&path)
        };
        std::fs::write(&file, database + settings).unwrap();
        let config = ureq::Agent::config_builder().http_status_as_error(false).build();
        Self {
            url: String::new(),
            fleet: SocketAddr::from(([127, 0, 0, 1], 0)),
            state,
            stop: None,
            thread: None,
            agent: ureq::Agent::new_with_config(config),
        }
    }

    /// Stops, and starts again with what is durable; at the same address.
    pub(crate) fn restart(&mut self) {
        self.end();
        self.go();
    }

    pub(crate) fn state(&self) -> std::path::PathBuf {
        self.state.path().join("state")
    }

    /// Its settings.
    pub(crate) fn file(&self) -> std::path::PathBuf {
        self.state.path().join("control.toml")
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        answer(self.agent.get(self.full(path)).call())
    }

    /// GET whose answer must be 200 and JSON.
    pub(crate) fn json(&self, path: &str) -> Value {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.json()
    }

    pub(crate) fn put(&self, path: &str, body: &impl Serialize) -> Answer {
        answer(self.agent.put(self.full(path)).send_json(body))
    }

    pub(crate) fn post(&self, path: &str, body: &impl Serialize) -> Answer {
        answer(self.agent.post(self.full(path)).send_json(body))
    }

    pub(crate) fn delete(&self, path: &str) -> Answer {
        answer(self.agent.delete(self.full(path)).call())
    }

    /// Leave to play an asset.
    pub(crate) fn playback(&self, asset: &str) -> Value {
        let answer = self.post("/v1/playbacks", &serde_json::json!({ "asset": asset }));
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }

    /// A report of a player's events.
    pub(crate) fn post_events(&self, path: &str, lines: &str) -> Answer {
        let request = self.agent.post(self.full(path)).content_type("application/cmcd");
        answer(request.send(lines))
    }

    /// The same of what is refused before its body is read: the connection ends then, and may take
    /// the answer with it. So it is said again.
    pub(crate) fn post_refused_events(&self, path: &str, lines: &str) -> Answer {
        for _ in 0..50 {
            let request = self.agent.post(self.full(path)).content_type("application/cmcd");
            if let Ok(answered) = request.send(lines) {
                return answer(Ok(answered));
            }
        }
        panic!("50 answers of {path} are lost");
    }

    /// Any request.
    pub(crate) fn send(&self, request: ureq::http::Request<String>) -> Answer {
        answer(self.agent.run(request))
    }

    /// A one-time code for an appliance.
    pub(crate) fn code(&self, name: &str) -> Code {
        let answer = self.post(&format!("/v1/appliances/{name}/enrolment"), &());
        assert_eq!(answer.status, 201, "{}", answer.text());
        answer.json()["code"].as_str().unwrap().parse().unwrap()
    }

    pub(crate) fn full(&self, path: &str) -> String {
        if path.starts_with("http") { path.to_owned() } else { format!("{}{path}", self.url) }
    }

    /// Registers sites and appliances; a name's first letter is its site's.
    pub(crate) fn register(&self, names: &[&str]) {
        for name in names {
            let (site, prefix) = match name.as_bytes()[0] {
                b'a' => ("a", "127.0.0.1/32"),
                _ => ("b", "10.0.0.0/8"),
            };
            let body = serde_json::json!({ "prefixes": [prefix] });
            assert_eq!(self.put(&format!("/v1/sites/{site}"), &body).status, 200);
            let body = serde_json::json!({ "site": site, "weight": 1 });
            assert_eq!(self.put(&format!("/v1/appliances/{name}"), &body).status, 200);
        }
    }

    /// Starts, at the same address if it ran before.
    pub(crate) fn go(&mut self) {
        let address = self.url.strip_prefix("http://").unwrap_or("127.0.0.1:0");
        let addresses = (address.parse().unwrap(), self.fleet);
        let file = self.state.path().join("control.toml");
        let (ready, is_ready) = mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        self.thread = Some(std::thread::spawn(move || run(&file, addresses, &ready, stopped)));
        let (operators, fleet) = is_ready.recv().expect("it starts");
        self.url = format!("http://{operators}");
        self.fleet = fleet;
        self.stop = Some(stop);
    }

    /// Stops.
    pub(crate) fn end(&mut self) {
        drop(self.stop.take());
        self.thread.take().map(JoinHandle::join).transpose().expect("it ends well");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).expect("the answer is JSON")
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.bytes.clone()).expect("the answer is text")
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The detail of a problem with this status.
    pub(crate) fn problem(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{}", self.text());
        assert_eq!(self.kind, "application/problem+json");
        let problem = self.json();
        assert_eq!(problem["status"], status);
        for field in ["type", "title", "detail"] {
            assert!(problem[field].as_str().is_some_and(|text| !text.is_empty()), "{problem}");
        }
        problem["detail"].as_str().unwrap().to_owned()
    }
}

pub(crate) fn answer(result: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Answer {
    let mut response = result.expect("the control plane answers");
    let headers = response.headers().clone();
    let kind = headers.get("content-type").map_or("", |kind| kind.to_str().unwrap()).to_owned();
    let bytes = response.body_mut().with_config().limit(1 << 28).read_to_vec().unwrap();
    Answer { status: response.status().as_u16(), kind, headers, bytes }
}

fn run(
    file: &Path,
    addresses: (SocketAddr, SocketAddr),
    ready: &mpsc::Sender<(SocketAddr, SocketAddr)>,
    stopped: oneshot::Receiver<()>,
) {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let config = Config::load(file, std::iter::empty()).unwrap();
        let control = Control::open(config).await.unwrap();
        let operators = tokio::net::TcpListener::bind(addresses.0).await.unwrap();
        let fleet = tokio::net::TcpListener::bind(addresses.1).await.unwrap();
        ready.send((operators.local_addr().unwrap(), fleet.local_addr().unwrap())).unwrap();
        let stop = async move { drop(stopped.await) };
        let listeners = Listeners { operators, fleet };
        control::serve::serve(control, listeners, stop).await.unwrap();
    });
}
