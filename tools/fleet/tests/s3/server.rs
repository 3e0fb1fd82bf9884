//! A real S3 server: versitygw, over a directory of its own. `./x check` installs it.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use object_store::ObjectStoreExt as _;
use object_store::aws::{AmazonS3, AmazonS3Builder};

/// A running server with one bucket, `films`, which is a directory.
pub(crate) struct Server {
    dir: tempfile::TempDir,
    port: u16,
    child: Option<Child>,
}

/// Writes to the bucket.
pub(crate) struct Putter {
    store: AmazonS3,
    runtime: Mutex<tokio::runtime::Runtime>,
}

impl Putter {
    /// Puts an object; one that is there is replaced.
    pub(crate) fn put(&self, key: &str, bytes: Vec<u8>) {
        let runtime = self.runtime.lock().unwrap();
        runtime.block_on(self.store.put(&key.into(), bytes.into())).unwrap();
    }
}

pub(crate) const ID: &str = "AKFORTESTS";
pub(crate) const SECRET: &str = "a-secret-for-tests-only";
pub(crate) const REGION: &str = "eu-test-1";

impl Server {
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("files/films")).unwrap();
        // Free now, and asked for at once: the server cannot be told to choose one and say which.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut server = Self { dir, port, child: None };
        server.run();
        server
    }

    /// Makes a user who has no rights to anything.
    pub(crate) fn add_user(&self, id: &str, secret: &str) {
        let done = Command::new(program())
            .args(["admin", "--endpoint-url", &self.endpoint()])
            .args(["--access", ID, "--secret", SECRET, "--region", REGION])
            .args(["create-user", "--access", id, "--secret", secret, "--role", "user"])
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Where the objects of the bucket are as files.
    pub(crate) fn bucket(&self) -> PathBuf {
        self.dir.path().join("files/films")
    }

    /// Puts objects, as their owner would.
    pub(crate) fn putter(&self) -> Putter {
        let store = AmazonS3Builder::new()
            .with_bucket_name("films")
            .with_endpoint(self.endpoint())
            .with_allow_http(true)
            .with_region(REGION)
            .with_access_key_id(ID)
            .with_secret_access_key(SECRET)
            .build()
            .unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Putter { store, runtime: Mutex::new(runtime) }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    fn run(&mut self) {
        let files = self.dir.path().join("files");
        let users = self.dir.path().join("users");
        std::fs::create_dir(&users).unwrap();
        let log = std::fs::File::create(self.dir.path().join("log")).unwrap();
        let child = Command::new(program())
            .args(["--access", ID, "--secret", SECRET, "--region", REGION])
            .arg("--iam-dir")
            .arg(users)
            .args(["--port", &format!("127.0.0.1:{}", self.port), "posix"])
            .arg(files)
            .stdout(log.try_clone().unwrap())
            .stderr(Stdio::from(log))
            .spawn()
            .unwrap();
        self.child = Some(child);
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let log = || std::fs::read_to_string(self.dir.path().join("log")).unwrap();
            assert!(start.elapsed() < Duration::from_secs(20), "it does not answer: {}", log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Beside what cargo builds, where `./x` puts it; or wherever else it was installed.
fn program() -> PathBuf {
    let tools = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../tools/versitygw");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join("go/bin/versitygw"));
    let on_path = std::env::split_paths(&path).map(|dir| dir.join("versitygw"));
    let found = [tools].into_iter().chain(on_path).chain(home).find(|program| program.is_file());
    found.expect("versitygw, a small S3 server, is not installed: run `./x check` once")
}
