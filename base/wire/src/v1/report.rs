//! `POST /v1/appliances/{id}/report`: an appliance's observed state. Control keeps it in memory.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::is_zero;
use super::viewers::{Networks, ViewerBatch};

/// One report. Also the heartbeat: control holds an appliance stale when reports stop.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Report {
    /// Drawn at process start: a new value tells control that counters and inventory begin anew.
    pub start_id: u64,
    /// Grows by one per report within one `start_id`; an older one is dropped.
    pub sequence: u64,
    /// Seconds since the process started.
    pub uptime_s: u64,
    pub software: String,
    /// Base URL for players, without trailing slash: `https://127.0.0.2:8443`.
    pub base_url: String,
    /// The same without TLS, where configured (loopback only, for demonstrations).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plain_url: Option<String>,
    /// Where siblings fetch from it, `host:port`, if it lets them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_address: Option<String>,
    /// What the machine says of itself (`identity::enrol::machine`), so that a moved disk is seen.
    #[serde(default)]
    pub machine: String,
    /// Generation of the manifest in force; 0 for none.
    pub generation: u64,
    /// Generation of the manifest that every worker answers by, requests that were under way
    /// included; none from an appliance that does not know this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served_generation: Option<u64>,
    /// Generation of the trust document in force, or of a newer one on its drive, because of which
    /// it refuses all that control has; 0 for none, and where a restart brings back another. None
    /// from an appliance that reads keys and revoked certificates in its manifest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust: Option<u64>,
    /// How it can serve.
    pub load: Load,
    /// Every configured drive, also those set aside.
    pub drives: Vec<Drive>,
    /// Progress towards the manifest.
    pub fill: Fill,
    /// Objects held, by their ids. Control wants it, and leaves it out where it shows the report.
    #[cfg_attr(feature = "openapi", schema(required = false))]
    pub inventory: Inventory,
    /// The same by number, which counts where it is there. An appliance tells it to a control that
    /// reads it (`ReportReply::by_number`) and whose manifest has numbers; then `inventory` is
    /// empty, from a state that no control has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<Files>,
    /// What it hears from its routers; none if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routes: Option<super::routes::Heard>,
    /// Latest errors an operator should see, newest first, at most 20.
    #[serde(default)]
    pub errors: Vec<ReportedError>,
    /// What its viewers felt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub viewers: Option<ViewerBatch>,
    /// The share of its sessions that other processes of the control plane told it of late, in
    /// thousandths (`ReportReply::share_permille`), for one that has just started: the middle of
    /// them, of two the greater; none if none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told_share_permille: Option<u32>,
    /// The same of the sessions of its titles (`ReportReply::titles_permille`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told_titles_permille: Option<u32>,
    /// The share that this process, or that which had its place before, told it of late: for one
    /// that has just started while no others run. Read in the first report of the appliance to a
    /// process only; later ones repeat what the process itself said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_share_permille: Option<u32>,
    /// The same of the sessions of its titles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_titles_permille: Option<u32>,
    /// The networks that it knows (`Networks::state`); none from an appliance that tells viewers
    /// not apart by them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub networks: Option<u64>,
    /// The rules for fill that it goes by (`FillRules::state`); 0 if it was told none. None from an
    /// appliance that fills at any hour, since it does not know this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fill_rules: Option<u64>,
}

/// The appliance's output, and its cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Load {
    /// Accepting new sessions: false while draining or stopping.
    pub serving: bool,
    pub connections: u64,
    /// Most connections it takes.
    pub connections_max: u64,
    /// Egress over the last report interval.
    pub egress_bits_per_second: u64,
    /// Most egress: what its network cards carry; 0 if it does not know.
    pub egress_max_bits_per_second: u64,
    /// Body bytes sent since start.
    pub egress_bytes: u64,
    /// Requests answered since start.
    pub requests: u64,
    /// Requests answered with 4xx or 5xx since start, expected ones (304, 416) left out.
    pub request_errors: u64,
    /// Share of its worker cores in use over the last interval, 0 to 100.
    pub cpu_percent: f32,
    /// How near the machine's memory is to its last twentieth, in thousandths; none if unknown, as
    /// from an appliance that does not know this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_permille: Option<u32>,
    /// How near the packets that its network cards dropped over the last interval are to one in a
    /// hundred, in thousandths; none as above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drops_permille: Option<u32>,
}

/// One drive.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Drive {
    /// UUID from the marker, 32 hex digits; empty if the marker could not be read.
    pub id: String,
    /// Directory as configured.
    pub path: String,
    /// `ok`, or `set_aside`.
    pub state: DriveState,
    /// Why it is not `ok`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Usable size, reserve taken off.
    pub capacity_bytes: u64,
    /// Its free part.
    pub free_bytes: u64,
    /// Objects on it.
    pub objects: u64,
    /// It is in use, and silent: it was asked for something and has not answered for a while. What
    /// is on it is not in the inventory until it answers.
    #[serde(default)]
    pub hung: bool,
    /// Of what it could serve with reads in time, how much is left, in thousandths. What we hold
    /// back ourselves (fill, scrubs, deletes) is no load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headroom_permille: Option<u32>,
    /// What a read takes in the drive, without what it waits before, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_us: Option<u64>,
}

/// Whether a drive is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum DriveState {
    /// In use.
    #[default]
    Ok,
    /// Not in use: nothing is read from it or written to it until it is repaired.
    SetAside,
}

/// How far fill is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Fill {
    /// Objects in the manifest.
    pub objects_wanted: u64,
    /// Of these, published here.
    pub objects_held: u64,
    /// Bytes in the manifest.
    pub bytes_wanted: u64,
    /// Of these, published or verified in a partial object.
    pub bytes_held: u64,
    /// Fill rate over the last report interval.
    pub bits_per_second: u64,
    /// Of this, from siblings.
    #[serde(default)]
    pub sibling_bits_per_second: u64,
}

/// Objects held, as a delta. Ids are 64 hex digits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Inventory {
    /// State before this delta; 0 means that `held` is the full list.
    pub from: u64,
    /// State after it. Grows with every object published or removed.
    pub to: u64,
    /// Published since `from`.
    pub held: Vec<String>,
    /// Gone since `from`.
    #[serde(default)]
    pub gone: Vec<String>,
    /// All that is held at `to`, so that a difference is noticed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<InventoryCheck>,
}

/// Files held, as a delta. The manifest gives them numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Files {
    /// State before this delta; 0 means that `whole` is all that is held.
    pub from: u64,
    /// State after it. Grows with every object published or removed, and with every manifest.
    pub to: u64,
    /// Ranges that came since `from`: the first number of each, and the last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub came: Vec<[u32; 2]>,
    /// Ranges that are gone since `from`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<[u32; 2]>,
    /// All of them, where `from` is 0: a Roaring bitmap in its portable format, in base64
    /// (standard alphabet, padded).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole: Option<String>,
    /// How many are held at `to`.
    pub count: u64,
    /// 53 bits of a hash of each number held at `to`, exclusive or.
    pub sum: u64,
    /// Objects held that are no file of the manifest.
    #[serde(default)]
    pub others: u64,
}

/// A set of objects in two numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct InventoryCheck {
    /// How many objects.
    pub count: u64,
    /// The first 53 bits of their ids, exclusive or.
    pub sum: u64,
}

/// An error that an operator should see.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReportedError {
    /// When, seconds since 1970.
    pub at_unix_s: u64,
    /// Where: `fill`, `drive`, `serve`, `control`.
    pub room: String,
    /// The fault and the remedy. Names no client and no token.
    pub text: String,
}

/// Control's answer to a report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReportReply {
    /// Newest manifest generation for this appliance; fetch it if newer than yours.
    pub generation: u64,
    /// Newest generation of the trust document; fetch it if newer than yours. 0 from a front, and
    /// from a program that has none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub trust: u64,
    /// The inventory state that control has; the next delta starts from it. 0 asks for the full
    /// list.
    pub inventory: u64,
    /// Control reads inventories by number (`Report::files`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_number: bool,
    /// When to report next, milliseconds.
    pub interval_ms: u64,
    /// The share of its sessions that this process gives it, in thousandths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_permille: Option<u32>,
    /// Of the sessions of titles whose draw leads to it, so many follow it by this process, in
    /// thousandths; none where titles are not drawn for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub titles_permille: Option<u32>,
    /// Appliances of the same site that can serve now, by name: their base URLs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub siblings: BTreeMap<String, String>,
    /// Appliances of the same site that let siblings fetch, by name: where, `host:port`. Whoever
    /// may take over their addresses asks them there for their clients.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub peers: BTreeMap<String, String>,
    /// What it hears from its routers is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routes: Option<super::routes::Wanted>,
    /// The last batch of what viewers felt that has come; 0 for none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub viewers: u64,
    /// The networks that viewers are told apart by, if the appliance does not know them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub networks: Option<Networks>,
    /// When and how fast it may fetch, if it goes by other rules (`Report::fill_rules`). From a
    /// writer alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fill: Option<super::fill::FillRules>,
}
