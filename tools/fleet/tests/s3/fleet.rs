//! A control plane and an appliance, the real programs, whose only origin is a bucket.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::server::{ID, REGION, SECRET, Server};

/// The processes. They end with it.
pub(crate) struct Fleet {
    dir: tempfile::TempDir,
    pub(crate) url: String,
    running: Vec<Child>,
    agent: ureq::Agent,
}

impl Fleet {
    /// Control with the bucket in its settings, and an appliance `a1` that is known and not
    /// started yet.
    pub(crate) fn start(server: &Server) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let [api, members, tls] = ports();
        let config = ureq::Agent::config_builder().http_status_as_error(false).build();
        let url = format!("http://127.0.0.1:{api}");
        let mut fleet = Self { dir, url, running: Vec::new(), agent: config.into() };
        let secret = fleet.write("films.secret", SECRET);
        std::fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o600))
            .unwrap();
        let control = format!(
            "state = {:?}\n[serve]\nlisten = \"127.0.0.1:{api}\"\n\
             [fleet]\nlisten = \"127.0.0.1:{members}\"\n\
             [[s3]]\nbucket = \"films\"\nendpoint = {:?}\nregion = {REGION:?}\n\
             access_key_id = {ID:?}\nsecret_access_key_file = {secret:?}\n",
            fleet.path("control"),
            server.endpoint(),
        );
        let control = fleet.write("control.toml", &control);
        fleet.serve("nearcast-control", &control);
        fleet.until("control answers", |fleet| fleet.agent.get(&fleet.url).call().is_ok());
        fleet.put("/v1/sites/s1", &json!({ "prefixes": ["127.0.0.1/32"] }));
        fleet.put("/v1/appliances/a1", &json!({ "site": "s1", "weight": 1 }));
        fleet.make_appliance(tls, members);
        fleet
    }

    /// Starts the appliance.
    pub(crate) fn start_appliance(&mut self) {
        let config = self.path("a1.toml");
        self.serve("nearcast-appliance", &config);
    }

    /// Ends the appliance, as an operator would.
    pub(crate) fn stop_appliance(&mut self) {
        let mut child = self.running.pop().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        child.wait().unwrap();
    }

    /// Waits until something is true of the fleet as control shows it.
    pub(crate) fn until_shown(&self, what: &str, done: impl Fn(&Value) -> bool) {
        self.until(what, |fleet| done(&fleet.shown()));
    }

    fn shown(&self) -> Value {
        let mut answer = self.agent.get(format!("{}/v1/fleet", self.url)).call().unwrap();
        answer.body_mut().read_json().unwrap()
    }

    /// Every file that the appliance has written, its log among them.
    pub(crate) fn kept_by_appliance(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut kept = vec![];
        let mut folders = vec![self.path("a1")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let bytes = std::fs::read(&path).unwrap();
                    kept.push((path, bytes));
                }
            }
        }
        let log = self.path("nearcast-appliance.log");
        kept.push((log.clone(), std::fs::read(log).unwrap()));
        kept
    }

    fn make_appliance(&self, tls: u16, members: u16) {
        for folder in ["a1/state", "a1/drive"] {
            std::fs::create_dir_all(self.path(folder)).unwrap();
        }
        let key = rcgen::KeyPair::generate().unwrap();
        let names = vec!["127.0.0.1".to_owned()];
        let certificate = rcgen::CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
        let certificate = self.write("a1.pem", &certificate.pem());
        let key = self.write("a1.key", &key.serialize_pem());
        let config = format!(
            "name = \"a1\"\nstate = {:?}\n[serve]\nlisten = [\"127.0.0.1:{tls}\"]\nworkers = 1\n\
             certificate = {certificate:?}\nkey = {key:?}\n[drives]\npaths = [{:?}]\n\
             [control]\nurl = \"https://127.0.0.1:{members}\"\n",
            self.path("a1/state"),
            self.path("a1/drive"),
        );
        let config = self.write("a1.toml", &config);
        let drive = self.path("a1/drive");
        self.run(Command::new(program("nearcast-appliance")).arg("format").arg(drive));
        let code = self.agent.post(format!("{}/v1/appliances/a1/enrolment", self.url));
        let code: Value = code.send_empty().unwrap().body_mut().read_json().unwrap();
        let code = self.write("code", code["code"].as_str().unwrap());
        let mut enrol = Command::new(program("nearcast-appliance"));
        enrol.args(["enrol", "--config"]).arg(config).arg("--code-file").arg(code);
        self.run(&mut enrol);
    }

    fn run(&self, command: &mut Command) {
        let done = command.output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success(), "{command:?}: {said}");
    }

    fn serve(&mut self, name: &str, config: &Path) {
        let log = std::fs::File::create(self.path(&format!("{name}.log"))).unwrap();
        let mut command = Command::new(program(name));
        command.args(["serve", "--log-level", "debug", "--config"]).arg(config);
        // What this process knows must not be what the appliance knows.
        command.env_clear().stdout(log.try_clone().unwrap()).stderr(Stdio::from(log));
        self.running.push(command.spawn().unwrap());
    }

    fn until(&self, what: &str, done: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !done(self) {
            let names = ["nearcast-control.log", "nearcast-appliance.log"];
            let log = |name: &str| std::fs::read_to_string(self.path(name)).unwrap_or_default();
            let logs = || names.map(log).concat();
            assert!(start.elapsed() < WITHIN, "waited in vain until {what}:\n{}", logs());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn put(&self, path: &str, body: &Value) {
        let answer = self.agent.put(format!("{}{path}", self.url)).send_json(body).unwrap();
        assert!(answer.status().is_success(), "{path}: {}", answer.status());
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        std::fs::write(self.path(name), text).unwrap();
        self.path(name)
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for child in &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Built beside `nearcast` by a test of the whole workspace.
fn program(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_nearcast")).with_file_name(name);
    assert!(path.is_file(), "{name} is not built: cargo build --workspace --bins");
    path
}

/// Three that are free now; the processes ask for them at once.
fn ports() -> [u16; 3] {
    let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

/// Far longer than it takes on a busy machine.
const WITHIN: Duration = Duration::from_secs(60);
