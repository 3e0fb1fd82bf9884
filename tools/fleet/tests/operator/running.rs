//! A control plane in the test's own process, as it is after its first start.

use std::process::{Command, Output};

use control::config::Config;
use control::serve::{Listeners, serve};
use control::state::writer::Control;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

pub(crate) struct Running {
    url: String,
    stop: Option<oneshot::Sender<()>>,
    served: Option<tokio::task::JoinHandle<anyhow::Result<()>>>,
    runtime: Runtime,
    pub(crate) folder: tempfile::TempDir,
}

impl Running {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("control.toml");
        let state = folder.path().join("state");
        std::fs::write(&file, format!("state = {state:?}\n")).unwrap();
        let config = Config::load(&file, std::iter::empty()).unwrap();
        let runtime = Runtime::new().unwrap();
        let (stop, stopped) = oneshot::channel();
        let (url, served) = runtime.block_on(async {
            let bind = async || TcpListener::bind("127.0.0.1:0").await.unwrap();
            let listeners = Listeners { operators: bind().await, fleet: bind().await };
            let url = format!("http://{}", listeners.operators.local_addr().unwrap());
            let control = Control::open(config).await.unwrap();
            let stop = async { stopped.await.unwrap_or_default() };
            (url, tokio::spawn(serve(control, listeners, stop)))
        });
        Self { url, stop: Some(stop), served: Some(served), runtime, folder }
    }

    /// Runs `nearcast` with these arguments against it.
    pub(crate) fn nearcast(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_nearcast"))
            .args(arguments)
            .env("NEARCAST_CONTROL", &self.url)
            .env_remove("NEARCAST_TOKEN")
            .output()
            .unwrap()
    }

    /// The same; its output, for it succeeds.
    pub(crate) fn says(&self, arguments: &[&str]) -> String {
        let output = self.nearcast(arguments);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{arguments:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Ingests a title of one rendition under this name; its version.
    pub(crate) fn ingest(&self, asset: &str) -> String {
        let folder = self.folder.path().join(asset);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("r0.mp4"), [7; 2_000]).unwrap();
        std::fs::write(folder.join("r0.m3u8"), MEDIA).unwrap();
        std::fs::write(folder.join("master.m3u8"), MASTER).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_nearcast"))
            .args(["ingest", "--asset", asset, "--source", "https://127.0.0.1:1/", "--json"])
            .arg(&folder)
            .env("NEARCAST_CONTROL", &self.url)
            .env("XDG_CACHE_HOME", self.folder.path().join("user"))
            .env_remove("NEARCAST_TOKEN")
            .output()
            .unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{errors}");
        let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        summary["version"].as_str().unwrap().to_owned()
    }
}

const MASTER: &str = "#EXTM3U
#EXT-X-STREAM-INF:BANDWIDTH=800000,CODECS=\"avc1.42c01e\"
r0.m3u8
";

const MEDIA: &str = "#EXTM3U
#EXT-X-VERSION:7
#EXT-X-TARGETDURATION:4
#EXT-X-MAP:URI=\"r0.mp4\",BYTERANGE=\"800@0\"
#EXTINF:4.0,
#EXT-X-BYTERANGE:1200@800
r0.mp4
#EXT-X-ENDLIST
";

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        let served = self.served.take().unwrap();
        if !std::thread::panicking() {
            self.runtime.block_on(served).unwrap().unwrap();
        }
    }
}
