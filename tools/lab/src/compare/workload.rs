//! The three workloads of the promise.

use model::units::Bytes;

/// What is asked of both servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Name {
    /// 64 files of 8 MB, 64 connections, ranges of 2 MiB: all fits in memory.
    Warm,
    /// A catalogue of 6 GB, servers held to 512 MB of memory, 200 connections, 2 MiB.
    Cold,
    /// The warm catalogue, 1,000 connections, ranges of 64 KiB.
    Small,
}

/// A workload's numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workload {
    pub(crate) label: &'static str,
    /// Which catalogue it uses; two workloads may share one.
    pub(crate) catalogue: &'static str,
    pub(crate) files: usize,
    pub(crate) file_len: Bytes,
    /// Connections, each with one request at a time.
    pub(crate) connections: usize,
    pub(crate) range_len: Bytes,
    /// What a server may use, page cache included.
    pub(crate) memory_max: Option<Bytes>,
    /// What of that our appliance may use for hot blocks; a peer has its page cache.
    pub(crate) hot_memory: Bytes,
    /// Whether files are taken out of the page cache before each window, or brought into it.
    pub(crate) forget: bool,
}

impl Name {
    pub(crate) fn workload(self) -> Workload {
        let warm = Workload {
            label: "warm",
            catalogue: "warm",
            files: 64,
            file_len: Bytes(8_000_000),
            connections: 64,
            range_len: Bytes::mib(2),
            memory_max: None,
            hot_memory: Bytes::mib(1024),
            forget: false,
        };
        match self {
            Self::Warm => warm,
            Self::Cold => Workload {
                label: "cold",
                catalogue: "cold",
                files: 24,
                file_len: Bytes(250_000_000),
                connections: 200,
                memory_max: Some(Bytes(512_000_000)),
                hot_memory: Bytes::mib(128),
                forget: true,
                ..warm
            },
            Self::Small => {
                Workload { label: "small", connections: 1000, range_len: Bytes::kib(64), ..warm }
            }
        }
    }
}
