//! The shape of the configuration file, with the default of each key.

use std::net::SocketAddr;
use std::path::PathBuf;

use iosched::governor::Config as Governor;
use model::units::{BitsPerSecond, Bytes, Nanos};
use serde::Deserialize;

use crate::process::confine::Sandbox;
use crate::serving::ablation::Ablation;
use crate::serving::pacing::PacingFile;
use crate::setting::Quantity;
use crate::storage::gate;
use crate::storage::tiering::ClassName;

/// The file's shape. Doc comments are the manual page.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    /// The appliance's name, as registered with the control plane.
    pub(super) name: String,
    /// Directory for what must survive a restart besides drives: the last manifest.
    pub(super) state: PathBuf,
    pub(super) serve: Serve,
    #[serde(default)]
    pub(super) tls: TlsFile,
    #[serde(default)]
    pub(super) pacing: PacingFile,
    pub(super) drives: Drives,
    pub(super) control: ControlFile,
    #[serde(default)]
    pub(super) hot: HotFile,
    #[serde(default)]
    pub(super) peer: PeerFile,
    #[serde(default)]
    pub(super) fill: FillFile,
    #[serde(default)]
    pub(super) metrics: MetricsFile,
    #[serde(default)]
    pub(super) process: ProcessFile,
    #[serde(default)]
    pub(super) agent: AgentFile,
    #[serde(default)]
    pub(super) requests: RequestsFile,
    #[serde(default)]
    pub(super) ablation: Ablation,
}

/// `[serve]`: bounds are of all workers together.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Serve {
    #[serde(default)]
    pub(crate) listen: Vec<SocketAddr>,
    /// Listeners without TLS, on loopback.
    #[serde(default)]
    pub(crate) plain_listen: Vec<SocketAddr>,
    pub(super) base_url: Option<String>,
    /// Certificate chain, PEM.
    pub certificate: PathBuf,
    /// Its key, PEM.
    pub key: PathBuf,
    pub(super) workers: Option<usize>,
    /// CPU of each worker; empty for wherever the kernel puts them.
    #[serde(default)]
    pub(crate) cpus: Vec<usize>,
    /// With other open files, below the hard limit of 20,000 that systems commonly set.
    #[serde(default = "count::<16_000>")]
    pub(crate) connections_max: usize,
    /// Handshakes under way. The default is the need of clients half a second away at 4,000 new
    /// connections a second; 128 MiB if all of them send as much as they may.
    #[serde(default = "count::<2048>")]
    pub(crate) handshakes_max: usize,
    /// As many viewers as receive at once: a body is under way until its client has nearly all of
    /// it. So many that are slow to take their first chunks hold 2 GiB: `memory` takes fewer where
    /// there is not that much.
    #[serde(default = "count::<8192>")]
    pub(crate) transfers_max: usize,
    #[serde(default = "kib::<8>")]
    pub(crate) head_max: Quantity<Bytes>,
    /// For handshake and request head.
    #[serde(default = "millis::<10_000>")]
    pub(crate) request_timeout: Quantity<Nanos>,
    /// Between requests.
    #[serde(default = "millis::<60_000>")]
    pub(crate) idle_timeout: Quantity<Nanos>,
    /// For a client to take the bytes that were sent.
    #[serde(default = "millis::<30_000>")]
    pub(crate) progress_timeout: Quantity<Nanos>,
    /// How long a response that has begun waits for a drive that hangs, before it is reset.
    #[serde(default = "millis::<2000>")]
    pub(crate) reset_after: Quantity<Nanos>,
    #[serde(default = "millis::<10_000>")]
    pub(crate) stop_within: Quantity<Nanos>,
    /// A token is good for so long after its expiry: the most by which this clock and the control
    /// plane's may differ. Whole seconds, at most an hour.
    #[serde(default = "millis::<60_000>")]
    pub(crate) token_leeway: Quantity<Nanos>,
    /// For so many blocks' worth of bytes read for viewers, one block is verified; 0 for none. By
    /// default one hash of 256 KiB for 64 MiB sent: under a hundredth of the cost of sealing them.
    #[serde(default = "number::<256>")]
    pub(crate) verify_every: u32,
    #[serde(default)]
    pub(super) congestion: Vec<String>,
    /// A chunk: a client at 100 Mb/s takes it in 21 ms, and 64 to 512 KiB cost the same CPU
    /// (docs/decisions/2026-11-23-shallow-sockets.md).
    #[serde(default = "kib::<256>")]
    pub(super) unsent_max: Quantity<Bytes>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TlsFile {
    /// `auto`, or the library that seals AES-GCM.
    pub(super) aead: Option<String>,
}

/// `[drives]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drives {
    /// Their folders, each formatted before.
    pub paths: Vec<PathBuf>,
    /// Reads in flight per drive and worker.
    #[serde(default = "count::<32>")]
    pub(crate) depth: usize,
    /// A drive that was asked and has said nothing for so long hangs: players that wait for it are
    /// sent to a sibling. 50 ms to 10 s; the default is ten times what a loaded drive takes for a
    /// read, and half of what a player waits for a first byte before it shows.
    #[serde(default = "millis::<500>")]
    pub(crate) hang_after: Quantity<Nanos>,
    /// Memory for small objects.
    #[serde(default = "kib::<{ 256 * 1024 }>")]
    pub(crate) small_objects_max: Quantity<Bytes>,
    /// How fast each drive is scrubbed; 0 for not at all. 20 MB/s: a 16 TB drive that is full in
    /// nine days, at a tenth of what its slowest tracks give.
    #[serde(default = "bits_per_second::<160_000_000>")]
    pub(crate) scrub_rate: Quantity<BitsPerSecond>,
    #[serde(default)]
    pub(super) policy: gate::Mode,
    #[serde(default)]
    pub(super) read_targets: Vec<Quantity<Nanos>>,
    /// Enough to keep a SATA drive writing; more only stand before reads.
    #[serde(default = "number::<4>")]
    pub(super) write_depth: u32,
    pub(super) write_rate: Option<Quantity<BitsPerSecond>>,
    #[serde(default = "default_floor")]
    pub(super) write_floor: Quantity<BitsPerSecond>,
    #[serde(default)]
    pub(super) classes: Vec<ClassName>,
    pub(super) move_daily_max: Option<Quantity<Bytes>>,
    pub(super) move_every: Option<Quantity<Nanos>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HotFile {
    pub(super) memory: Option<Quantity<Bytes>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ControlFile {
    pub(super) url: String,
    #[serde(default)]
    pub(super) fronts: Vec<FrontFile>,
    #[serde(default = "millis::<1000>")]
    pub(super) report_interval: Quantity<Nanos>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FrontFile {
    pub(super) name: String,
    pub(super) url: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PeerFile {
    #[serde(default)]
    pub(super) listen: Vec<SocketAddr>,
    pub(super) address: Option<String>,
    pub(super) rate_max: Option<Quantity<BitsPerSecond>>,
    pub(super) connections_max: Option<usize>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FillFile {
    pub(super) rate_max: Option<Quantity<BitsPerSecond>>,
    pub(super) trust: Option<PathBuf>,
    pub(super) concurrency: Option<usize>,
    pub(super) unit: Option<Quantity<Bytes>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MetricsFile {
    pub(super) listen: Option<SocketAddr>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProcessFile {
    pub(super) user: Option<String>,
    #[serde(default)]
    pub(super) sandbox: Sandbox,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AgentFile {
    pub(super) socket: Option<PathBuf>,
    /// Of `nearcast-agent addresses`.
    pub(super) addresses: Option<PathBuf>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RequestsFile {
    pub(super) log_max: Option<Quantity<Bytes>>,
}

fn count<const N: usize>() -> usize {
    N
}

fn number<const N: u32>() -> u32 {
    N
}

fn kib<const N: u64>() -> Quantity<Bytes> {
    Quantity(Bytes::kib(N))
}

fn millis<const N: u64>() -> Quantity<Nanos> {
    Quantity(Nanos::millis(N))
}

fn bits_per_second<const N: u64>() -> Quantity<BitsPerSecond> {
    Quantity(BitsPerSecond(N))
}

/// 5 MB/s: all wanted objects come in the end, however much is read.
fn default_floor() -> Quantity<BitsPerSecond> {
    Quantity(Governor::MEASURED.floor.per(Nanos::seconds(1)))
}
