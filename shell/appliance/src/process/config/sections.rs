//! The sections of the configuration file, with the default of each key.

use std::net::SocketAddr;
use std::path::PathBuf;

use iosched::governor::Config as Governor;
use model::units::{BitsPerSecond, Bytes, Nanos};
use serde::{Deserialize, Serialize};

use crate::process::certificate::Files;
use crate::process::confine::Sandbox;
use crate::storage::gate::{Mode, Writes};
use crate::storage::tiering::{ClassName, Tiering};
use settings::Text;

/// `[serve]`: bounds are of all workers together.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Serve {
    #[serde(default)]
    pub(crate) listen: Vec<SocketAddr>,
    /// Listeners without TLS, on loopback.
    #[serde(default)]
    pub(crate) plain_listen: Vec<SocketAddr>,
    /// Those of `listen` that take TLS 1.2 too, with ECDHE and AES-GCM or ChaCha20-Poly1305: for
    /// players that know nothing newer. docs/operate/old-players.md.
    #[serde(default)]
    pub(crate) tls12: Vec<SocketAddr>,
    /// Begins with `https://`; the first of `listen` unless it is set.
    #[serde(default)]
    pub(crate) base_url: String,
    /// Certificate chain, PEM.
    pub certificate: PathBuf,
    /// Its key, PEM.
    pub key: PathBuf,
    /// A certificate with a key of another kind, RSA beside ECDSA: each player is shown the one
    /// that it knows. docs/operate/certificates.md.
    pub(crate) second_certificate: Option<PathBuf>,
    pub(crate) second_key: Option<PathBuf>,
    /// A CPU each, by default.
    #[serde(default = "cpus")]
    pub(crate) workers: usize,
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
    pub(crate) head_max: Text<Bytes>,
    /// For handshake and request head.
    #[serde(default = "millis::<10_000>")]
    pub(crate) request_timeout: Text<Nanos>,
    /// Between requests.
    #[serde(default = "millis::<60_000>")]
    pub(crate) idle_timeout: Text<Nanos>,
    /// For a client to take the bytes that were sent.
    #[serde(default = "millis::<30_000>")]
    pub(crate) progress_timeout: Text<Nanos>,
    /// How long a response that has begun waits for a drive that hangs, before it is reset.
    #[serde(default = "millis::<2000>")]
    pub(crate) reset_after: Text<Nanos>,
    #[serde(default = "millis::<10_000>")]
    pub(crate) stop_within: Text<Nanos>,
    /// A token is good for so long after its expiry: the most by which this clock and the control
    /// plane's may differ. Whole seconds, at most an hour.
    #[serde(default = "millis::<60_000>")]
    pub(crate) token_leeway: Text<Nanos>,
    /// For so many blocks' worth of bytes read for viewers, one block is verified; 0 for none. By
    /// default one hash of 256 KiB for 64 MiB sent: under a hundredth of the cost of sealing them.
    #[serde(default = "number::<256>")]
    pub(crate) verify_every: u32,
    /// How TCP finds its rate, by the kernel's names: one for all of `listen` or one for each;
    /// empty for the kernel's default.
    #[serde(default)]
    pub(crate) congestion: Vec<String>,
    /// Bytes in a connection's socket that were never sent, beyond which it takes no more; 0 for
    /// as many as the kernel likes. The default is a chunk: a client at 100 Mb/s takes it in
    /// 21 ms, and 64 to 512 KiB cost the same CPU
    /// (docs/decisions/2026-11-23-shallow-sockets.md).
    #[serde(default = "kib::<256>")]
    pub(crate) unsent_max: Text<Bytes>,
}

/// `[tls]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tls {
    /// `auto`, or the library that seals AES-GCM.
    pub(crate) aead: Text<tls::Wanted>,
}

impl Default for Tls {
    fn default() -> Self {
        Self { aead: Text(tls::Wanted::default()) }
    }
}

/// `[drives]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
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
    pub(crate) hang_after: Text<Nanos>,
    /// Memory for small objects.
    #[serde(default = "kib::<{ 256 * 1024 }>")]
    pub(crate) small_objects_max: Text<Bytes>,
    /// How fast each drive is scrubbed; 0 for not at all. 20 MB/s: a 16 TB drive that is full in
    /// nine days, at a tenth of what its slowest tracks give.
    #[serde(default = "bits_per_second::<160_000_000>")]
    pub(crate) scrub_rate: Text<BitsPerSecond>,
    #[serde(default)]
    pub(crate) policy: Mode,
    #[serde(default)]
    pub(crate) read_targets: Vec<Text<Nanos>>,
    /// Enough to keep a SATA drive writing; more only stand before reads.
    #[serde(default = "number::<4>")]
    pub(crate) write_depth: u32,
    pub(crate) write_rate: Option<Text<BitsPerSecond>>,
    #[serde(default = "default_floor")]
    pub(crate) write_floor: Text<BitsPerSecond>,
    #[serde(default)]
    pub(crate) classes: Vec<ClassName>,
    /// For a day: 128 GiB that come to fast drives, and as much that leaves them. Nothing to a
    /// drive that may be written once a day, and half of a 4 TB drive in two weeks.
    #[serde(default = "kib::<{ 256 << 20 }>")]
    pub(crate) move_daily_max: Text<Bytes>,
    /// Heat changes in hours.
    #[serde(default = "millis::<600_000>")]
    pub(crate) move_every: Text<Nanos>,
}

impl Serve {
    /// The URL without TLS, where it listens so.
    pub(crate) fn plain_url(&self) -> Option<String> {
        self.plain_listen.first().map(|at| format!("http://{at}"))
    }

    /// One certificate or two, with their keys; of the second both are given or none.
    pub fn certificates(&self) -> Vec<Files> {
        let first = Files { certificate: self.certificate.clone(), key: self.key.clone() };
        let second = self.second_certificate.clone().zip(self.second_key.clone());
        let second = second.map(|(certificate, key)| Files { certificate, key });
        [first].into_iter().chain(second).collect()
    }

    pub(crate) fn versions(&self, listener: &SocketAddr) -> tls::Versions {
        if self.tls12.contains(listener) { tls::Versions::Tls12Too } else { tls::Versions::Tls13 }
    }

    pub(crate) fn unsent_max(&self) -> Option<Bytes> {
        Some(self.unsent_max.0).filter(|most| *most != Bytes::ZERO)
    }
}

impl Drives {
    pub(crate) fn writes(&self) -> Writes {
        Writes {
            mode: self.policy,
            targets: self.read_targets.iter().map(|target| target.0).collect(),
            depth: self.write_depth,
            rate: self.write_rate.map(|rate| rate.0),
            floor: self.write_floor.0,
        }
    }

    pub(crate) fn tiering(&self) -> Tiering {
        let (daily_max, every) = (self.move_daily_max.0, self.move_every.0);
        Tiering { classes: self.classes.clone(), daily_max, every }
    }
}

/// `[hot]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Hot {
    /// For the blocks that viewers want most, of all workers together; 0 for none. Unless it is
    /// set, less is taken where less may be locked. The default is a thousand blocks, of a film's
    /// two busiest minutes in all renditions, on machines that have at least 4 GiB.
    pub(crate) memory: Text<Bytes>,
}

impl Default for Hot {
    fn default() -> Self {
        Self { memory: Text(Bytes::mib(256)) }
    }
}

/// `[metrics]`: the listener for Prometheus.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Metrics {
    pub(crate) listen: Option<SocketAddr>,
}

/// `[process]`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Process {
    /// Who to become when started as root.
    pub(crate) user: Option<String>,
    /// How much of a sandbox there must be.
    pub(crate) sandbox: Sandbox,
}

/// `[agent]`: the sockets of `nearcast-agent`, where it is to be asked.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Agent {
    pub(crate) socket: Option<PathBuf>,
    /// Of `nearcast-agent addresses`, where service addresses move.
    pub(crate) addresses: Option<PathBuf>,
    /// Of `nearcast-agent routes`, where routers announce clients.
    pub(crate) routes: Option<PathBuf>,
}

/// `[requests]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Requests {
    /// Room for the request log, in the state directory; 0 for none.
    pub(crate) log_max: Text<Bytes>,
}

impl Default for Requests {
    fn default() -> Self {
        Self { log_max: Text(Bytes::mib(256)) }
    }
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn count<const N: usize>() -> usize {
    N
}

fn number<const N: u32>() -> u32 {
    N
}

fn kib<const N: u64>() -> Text<Bytes> {
    Text(Bytes::kib(N))
}

fn millis<const N: u64>() -> Text<Nanos> {
    Text(Nanos::millis(N))
}

fn bits_per_second<const N: u64>() -> Text<BitsPerSecond> {
    Text(BitsPerSecond(N))
}

/// 5 MB/s: all wanted objects come in the end, however much is read.
fn default_floor() -> Text<BitsPerSecond> {
    Text(Governor::MEASURED.floor.per(Nanos::seconds(1)))
}
