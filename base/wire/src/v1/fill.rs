//! When and how fast appliances may fetch: what control tells each, and what it tells of all.

use serde::{Deserialize, Serialize};

use super::identity::Escalation;
use super::is_zero;

/// The rules that an appliance goes by, also while control is away and after a restart. It needs no
/// table of time zones for them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FillRules {
    /// By which control knows them again: 53 bits.
    pub state: u64,
    /// Windows of a day, by local time: the first minute of the day of each, and that after its
    /// last, which is less if midnight lies between. Empty for any hour. At most 4.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<[u16; 2]>,
    /// How far local time is ahead of UTC, ascending; the first holds before it, too. For two
    /// years; whoever hears nothing for longer keeps the last. Empty for UTC. At most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub offsets: Vec<FillOffset>,
    /// Nothing is fetched until then, in seconds since 1970; none if fill is not paused. The end of
    /// time (2^53 - 1) until somebody says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_until_unix_s: Option<u64>,
    /// Most from all sources together, in bits per second; 0 for no limit.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rate_max_bps: u64,
    /// Most from outside of its site, in bits per second: its part of the site's uplink; 0 for no
    /// limit.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub outside_max_bps: u64,
    /// Asset versions that are fetched before all others, and outside of the windows too, but in no
    /// pause. At most 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub urgent: Vec<String>,
    /// Most from all sources together outside of the windows, in bits per second; 0 for no limit.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub urgent_max_bps: u64,
}

/// What the clocks of a place are set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FillOffset {
    /// Since when, in seconds since 1970.
    pub from_unix_s: u64,
    /// Seconds that local time is ahead of UTC.
    pub ahead_s: i32,
}

/// `GET /v1/fill`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FillOut {
    /// By name.
    pub sites: Vec<FillSite>,
    /// Versions that are fetched before all others, and outside of the windows too, by name.
    #[serde(default)]
    pub urgent: Vec<Urgent>,
}

/// A version that is fetched before all others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Urgent {
    pub version: String,
    /// Until then, in seconds since 1970; none until an operator says otherwise.
    pub until_unix_s: Option<u64>,
}

/// When a site fills, and how far its appliances are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FillSite {
    pub site: String,
    /// The windows in force, by local time, or `always`.
    pub windows: String,
    /// They are the policy's: the site says none.
    pub by_policy: bool,
    pub time_zone: String,
    /// The table of time zones in this control process has none of this name: it goes by UTC.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub zone_unknown: bool,
    /// Appliances may fetch now.
    pub is_open: bool,
    /// An operator wants no fill until then, seconds since 1970; 2^53 - 1 until somebody says
    /// otherwise. None if nobody does.
    pub paused_until_unix_s: Option<u64>,
    /// When it opens or closes next, seconds since 1970; none if it never does.
    pub next_change_unix_s: Option<u64>,
    /// By name.
    pub appliances: Vec<FillAppliance>,
}

/// How far an appliance is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FillAppliance {
    pub appliance: String,
    /// Bytes that it should hold; none until it has reported.
    pub bytes_wanted: Option<u64>,
    /// Of these, not there yet.
    pub bytes_missing: Option<u64>,
    /// Fill rate over its last report interval; none until it has reported.
    pub bits_per_second: Option<u64>,
    /// Most that it may fetch; none for no limit.
    pub rate_max_bps: Option<u64>,
    /// Most of it from outside of the site: its part of the uplink; none for no limit.
    pub outside_max_bps: Option<u64>,
    /// It goes by other rules than these: it was told them just now, or is of a release that fills
    /// at any hour.
    pub has_other_rules: bool,
    /// When it will have all at the rate of late, or at the most that it may fetch if it may not
    /// now, in the hours in which it fills. None if that is not known, or nothing is missing.
    pub ready_unix_s: Option<u64>,
    /// The longest of its waits for a master of its fill cluster; none if it has not asked of late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<FillWait>,
}

/// An appliance waits until a master of its fill cluster has fetched a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FillWait {
    /// A version that the file is of.
    pub version: String,
    /// Who should fetch it; nobody in the first minute after a start of control.
    pub masters: Vec<String>,
    /// Since then it has lacked the file, less the hours in which it might not fetch.
    pub since_unix_s: u64,
    /// Then it asks other fill clusters, or the origin, if no master has brought it; none if never.
    pub further_unix_s: Option<u64>,
    /// `elsewhere` or `origin`.
    pub further: Option<Escalation>,
}
