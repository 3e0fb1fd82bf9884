//! What viewers feel, in sums: of an appliance in its report, of control to people.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Most rows in a batch; what comes beyond is left out.
pub const ROWS_MAX: usize = 4096;

/// Longest name of a row; one that is longer is left out.
pub const NAME_LEN_MAX: usize = 128;

/// Most playbacks that an appliance follows at a time: no batch tells of more.
pub const PLAYBACKS_MAX: usize = 50_000;

/// Most networks that viewers are told apart by. Those in others are [`ELSEWHERE`].
pub const NETWORKS_MAX: usize = 4096;

/// The network of who is in none that is known.
pub const ELSEWHERE: &str = "elsewhere";

/// What was added since the batch before. It is told again, as it is, until it has come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ViewerBatch {
    /// Grows by one per batch within one `start_id`.
    pub number: u64,
    pub rows: Vec<ViewerRow>,
}

/// The sums of those who have something in common.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ViewerRow {
    /// `site`, `asset`, `network` or `player`. Of an appliance's rows, `asset` has versions.
    pub by: String,
    /// Which of them; of an appliance's rows, the site has none.
    pub name: String,
    /// Who told it: `requests` (CMCD with requests), `events` (CMCD version 2) or `estimate` (the
    /// server's guess, where a player says nothing).
    pub source: String,
    /// Sums by name, in bytes, nanoseconds or things; none that is 0.
    pub sums: BTreeMap<String, u64>,
}

/// The networks that viewers are told apart by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Networks {
    /// Changes with them.
    pub state: u64,
    /// The prefixes of all sites.
    pub prefixes: Vec<String>,
}

/// What viewers felt, by all that they are told apart by: `GET /v1/viewers`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ViewersOut {
    /// The server's clock, seconds since 1970.
    pub now_unix_s: u64,
    pub rows: Vec<ViewersRow>,
    /// Sites whose viewers stall more than usual.
    pub warnings: Vec<ViewersWarning>,
    /// Prefixes of sites that are no network here, since there are too many: viewers in them are
    /// told of with the next shorter one, or elsewhere.
    pub networks_left_out: u64,
}

/// The figures of those who have something in common.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ViewersRow {
    /// `site`, `asset`, `network` or `player`.
    pub by: String,
    pub name: String,
    /// `requests`, `events` or `estimate`.
    pub source: String,
    /// Of the last ten minutes.
    pub recent: ViewersFigures,
    /// Since control's start, or since the row was last forgotten.
    pub total: ViewersFigures,
    /// Mean bitrate in bits per second of each of the last ten minutes, oldest first; null without
    /// media.
    pub bitrates: Vec<Option<u64>>,
    /// Time stalled in each of the last ten minutes, in milliseconds, oldest first.
    pub stalled_ms: Vec<u64>,
}

/// Means, and the numbers that they are of.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ViewersFigures {
    /// Playbacks that began there.
    pub playbacks: u64,
    /// Playbacks that had begun at another appliance, and came there.
    pub moved: u64,
    /// Playbacks whose start-up is known.
    pub starts: u64,
    /// Mean start-up in milliseconds; null if none is known.
    pub start_ms: Option<u64>,
    /// Start-ups of over 2 s.
    pub starts_slow: u64,
    pub stalls: u64,
    /// Length of all stalls together, in milliseconds.
    pub stalled_ms: u64,
    /// Stalls whose whole length is not known.
    pub stalls_unmeasured: u64,
    /// Of the time of watching and stalling, the share of stalling; null if nothing was watched.
    pub stalled_share: Option<f64>,
    pub watched_ms: u64,
    /// Mean bitrate of what was loaded or watched, bits per second.
    pub bits_per_second: Option<u64>,
    /// Of that, the share in the best quality that players could ask for.
    pub top_share: Option<f64>,
    /// Mean of what players had buffered, in milliseconds.
    pub buffer_ms: Option<u64>,
    /// Share of the times that it was less than 2 s.
    pub buffer_low_share: Option<f64>,
    /// Mean rate at which responses were sent, from request to last byte.
    pub sent_bits_per_second: Option<u64>,
    /// Mean of the throughput that players measured.
    pub measured_bits_per_second: Option<u64>,
    /// Responses broken off, by whichever side.
    pub cut: u64,
    /// Playbacks that ended with an error, by the player's word.
    pub failed: u64,
}

/// A site whose viewers stall more than usual.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ViewersWarning {
    pub site: String,
    /// For so long.
    pub since_s: u64,
    /// Of the time of the last minute, the share stalled.
    pub stalled_share: f64,
    /// The usual one.
    pub usual_share: f64,
    /// Stalls in the last minute.
    pub stalls: u64,
}
