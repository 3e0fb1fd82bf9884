//! The shape of the configuration file, and what holds where it says nothing.

use std::net::SocketAddr;
use std::path::PathBuf;

use iosched::governor::Config as Governor;
use model::units::{BitsPerSecond, Bytes, Nanos};
use serde::Deserialize;

use crate::process::confine::Sandbox;
use crate::serving::ablation::AblationFile;
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
    pub(super) serve: ServeFile,
    #[serde(default)]
    pub(super) tls: TlsFile,
    #[serde(default)]
    pub(super) pacing: PacingFile,
    pub(super) drives: DrivesFile,
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
    pub(super) ablation: AblationFile,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServeFile {
    #[serde(default)]
    pub(super) listen: Vec<SocketAddr>,
    #[serde(default)]
    pub(super) plain_listen: Vec<SocketAddr>,
    pub(super) base_url: Option<String>,
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
    pub(super) workers: Option<usize>,
    #[serde(default)]
    pub(super) cpus: Vec<usize>,
    #[serde(default = "sixteen_thousand")]
    pub(super) connections_max: usize,
    #[serde(default = "default_handshakes")]
    pub(super) handshakes_max: usize,
    #[serde(default = "default_transfers")]
    pub(super) transfers_max: usize,
    #[serde(default = "default_head")]
    pub(super) head_max: Quantity<Bytes>,
    #[serde(default = "ten_seconds")]
    pub(super) request_timeout: Quantity<Nanos>,
    #[serde(default = "sixty_seconds")]
    pub(super) idle_timeout: Quantity<Nanos>,
    #[serde(default = "thirty_seconds")]
    pub(super) progress_timeout: Quantity<Nanos>,
    #[serde(default = "two_seconds")]
    pub(super) reset_after: Quantity<Nanos>,
    #[serde(default = "ten_seconds")]
    pub(super) stop_within: Quantity<Nanos>,
    #[serde(default = "sixty_seconds")]
    pub(super) token_leeway: Quantity<Nanos>,
    #[serde(default = "default_verify")]
    pub(super) verify_every: u32,
    #[serde(default)]
    pub(super) congestion: Vec<String>,
    #[serde(default = "default_unsent")]
    pub(super) unsent_max: Quantity<Bytes>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TlsFile {
    /// `auto`, or the library that seals AES-GCM.
    pub(super) aead: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DrivesFile {
    pub(super) paths: Vec<PathBuf>,
    #[serde(default = "default_depth")]
    pub(super) depth: usize,
    #[serde(default = "half_a_second")]
    pub(super) hang_after: Quantity<Nanos>,
    #[serde(default = "default_small")]
    pub(super) small_objects_max: Quantity<Bytes>,
    #[serde(default = "default_scrub")]
    pub(super) scrub_rate: Quantity<BitsPerSecond>,
    #[serde(default)]
    pub(super) policy: gate::Mode,
    #[serde(default)]
    pub(super) read_targets: Vec<Quantity<Nanos>>,
    #[serde(default = "four")]
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
    #[serde(default = "one_second")]
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

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RequestsFile {
    pub(super) log_max: Quantity<Bytes>,
}

impl Default for RequestsFile {
    fn default() -> Self {
        Self { log_max: Quantity(Bytes::mib(256)) }
    }
}

/// With what else is open, below the hard limit of 20,000 files that systems commonly set.
fn sixteen_thousand() -> usize {
    16_000
}

/// What clients half a second away need at 4,000 new connections a second; 128 MiB if all of them
/// send as much as they may.
fn default_handshakes() -> usize {
    2048
}

/// As many viewers as receive at once: a body is under way until its client has nearly all of it.
/// So many that are slow to take their first chunks hold 2 GiB: `memory` takes fewer where there is
/// not that much.
fn default_transfers() -> usize {
    8192
}

/// 20 MB/s: a 16 TB drive that is full in nine days, at a tenth of what its slowest tracks give.
fn default_scrub() -> Quantity<BitsPerSecond> {
    Quantity(BitsPerSecond(160_000_000))
}

/// Enough to keep a SATA drive writing; more only stand before reads.
fn four() -> u32 {
    4
}

/// 5 MB/s: what is wanted comes in the end, however much is read.
fn default_floor() -> Quantity<BitsPerSecond> {
    Quantity(Governor::MEASURED.floor.per(Nanos::seconds(1)))
}

/// One hash of 256 KiB for 64 MiB sent: under a hundredth of what sealing them costs.
fn default_verify() -> u32 {
    256
}

/// A chunk: a client at 100 Mb/s takes it in 21 ms, and 64 to 512 KiB cost the same CPU
/// (docs/decisions/2026-11-23-shallow-sockets.md).
fn default_unsent() -> Quantity<Bytes> {
    Quantity(Bytes::kib(256))
}

fn default_depth() -> usize {
    32
}

fn default_head() -> Quantity<Bytes> {
    Quantity(Bytes::kib(8))
}

fn default_small() -> Quantity<Bytes> {
    Quantity(Bytes::mib(256))
}

/// Ten times what a loaded drive takes for a read, and half of what a player waits for a first byte
/// before it shows.
fn half_a_second() -> Quantity<Nanos> {
    Quantity(Nanos::millis(500))
}

fn two_seconds() -> Quantity<Nanos> {
    Quantity(Nanos::seconds(2))
}

fn one_second() -> Quantity<Nanos> {
    Quantity(Nanos::seconds(1))
}

fn ten_seconds() -> Quantity<Nanos> {
    Quantity(Nanos::seconds(10))
}

fn thirty_seconds() -> Quantity<Nanos> {
    Quantity(Nanos::seconds(30))
}

fn sixty_seconds() -> Quantity<Nanos> {
    Quantity(Nanos::seconds(60))
}
