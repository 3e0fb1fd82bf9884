//! What an appliance hears from its routers: a summary in its reports, and the table itself, in
//! parts, when control wants it.
//!
//! ```text
//! POST /v1/appliances/{id}/report   ... "routes": Heard     answer ... "routes": Wanted
//! POST /v1/appliances/{id}/routes   Part                    answer PartTaken
//! ```
//!
//! The agent gives both to the appliance in the same form (`v1::agent`).

use serde::{Deserialize, Serialize};

/// What is heard, in short.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = RoutesHeard))]
pub struct Heard {
    /// Of the table: the number of its prefixes, and a sum. None if it is not known yet: that is
    /// not an empty table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Prefixes in the table, each once.
    pub prefixes: u64,
    /// The table may be so far behind the routers while all is well, milliseconds: a large one is
    /// read less often.
    #[serde(default)]
    pub behind_ms: u64,
    pub sessions: Vec<Session>,
    /// What is not in the table, and why, by cause.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
    /// Why the routing daemon, or the agent that asks it, does not answer, if so: the last answer
    /// stands above, or nothing once it is too old.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// With an error: the last answer came so long ago, seconds. None if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_s: Option<u64>,
}

/// A BGP session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = RoutesSession))]
pub struct Session {
    /// Its name in the routing daemon's configuration.
    pub name: String,
    /// `Established`, or how far it came.
    pub state: String,
    pub peering: Peering,
    /// The router's address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neighbour: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neighbour_as: Option<u32>,
    /// Routes that the routing daemon has of it.
    pub routes: u64,
    /// Of them, those that are believed.
    pub believed: u64,
    /// Routes that the routing daemon's own filter refused, where it keeps them.
    #[serde(default)]
    pub filtered: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// How a session is joined to its neighbour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = RoutesPeering))]
#[serde(rename_all = "snake_case")]
pub enum Peering {
    /// By a link of their own.
    Private,
    /// Over the fabric of an exchange.
    #[default]
    Public,
}

/// Routes that are not believed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = RoutesLeftOut))]
pub struct LeftOut {
    /// One word: `default`, `bogon`, `too_long`, `too_short`, `limit`, `long_path`, `path_set`,
    /// `no_path`.
    pub cause: String,
    /// The same for people.
    pub why: String,
    pub count: u64,
    /// The first of them.
    pub examples: Vec<Example>,
}

/// A prefix that was left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = RoutesExample))]
pub struct Example {
    pub prefix: String,
    pub session: String,
}

/// The table is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = RoutesWanted))]
pub struct Wanted {
    /// As a difference to this one, if the sender still knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known: Option<String>,
}

/// A piece of a difference between two tables.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = RoutesPart))]
pub struct Part {
    /// The table that it begins from; null for a whole table.
    #[serde(default)]
    pub from: Option<String>,
    pub to: String,
    /// From 0 on.
    pub number: u32,
    pub is_last: bool,
    /// New or different.
    pub announced: Vec<Group>,
    pub withdrawn: Vec<String>,
}

/// Prefixes that were announced with the same attributes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = RoutesGroup))]
pub struct Group {
    pub peering: Peering,
    /// The networks on the way, the neighbour first.
    pub as_path: Vec<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub med: Option<u32>,
    /// `64500:100`, or with three parts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub communities: Vec<String>,
    pub prefixes: Vec<String>,
}

/// A part has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = RoutesPartTaken))]
pub struct PartTaken {
    /// The number of the part that should come next: 0 after the last one, and when it was not the
    /// right one.
    pub next: u32,
}

/// Sessions that are told of: those of an exchange with two route servers and many networks.
pub const SESSIONS_MAX: usize = 256;

/// Causes that are told of, and examples of each.
pub const LEFT_OUT_MAX: usize = 8;

/// The digest of a table without prefixes.
pub const EMPTY: &str = "0-00000000000000000000000000000000";

/// Longest part, as JSON.
pub const PART_LEN_MAX: usize = 1 << 20;
