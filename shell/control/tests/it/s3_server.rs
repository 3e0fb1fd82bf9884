//! A real S3 server: versitygw, over a directory of its own. `./x check` installs it.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running server with one bucket, `films`, which is a directory.
pub(crate) struct Server {
    dir: tempfile::TempDir,
    port: u16,
    child: Option<Child>,
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
        server.run(SECRET);
        server
    }

    /// Stops, and starts at the same address with another secret.
    pub(crate) fn restart(&mut self, secret: &str) {
        self.stop();
        self.run(secret);
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Where the objects of the bucket are as files.
    pub(crate) fn bucket(&self) -> PathBuf {
        self.dir.path().join("files/films")
    }

    /// Puts an object; one that is there is replaced.
    pub(crate) fn put(&self, key: &str, bytes: &[u8]) {
        let path = self.bucket().join(key);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let new = self.dir.path().join("files/new");
        std::fs::write(&new, bytes).unwrap();
        std::fs::rename(new, path).unwrap();
    }

    fn run(&mut self, secret: &str) {
        let files = self.dir.path().join("files");
        let log = std::fs::File::create(self.dir.path().join("log")).unwrap();
        let child = Command::new(program())
            .args(["--access", ID, "--secret", secret, "--region", REGION])
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
