//! What is known of a site besides its prefixes: the same for operators, and for fronts.

use serde::{Deserialize, Serialize};

use super::is_zero;

/// All of it may be left out: an exchange somewhere, which serves everybody.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SiteAbout {
    /// `embedded` in an ISP's network, for the clients that its routers announce; or `exchange`,
    /// for all.
    #[serde(default)]
    pub kind: SiteKind,
    /// Degrees north and east, country, region and city, or some of them:
    /// `52.52,13.405 DE DE-BE Berlin`. Empty if nobody said.
    #[serde(default)]
    pub place: String,
    /// An embedded site that serves other clients too.
    #[serde(default)]
    pub open: bool,
    /// Its appliances hold only renditions of at most so many bits per second, by the highest
    /// figure that an entry manifest names, and those of which none names one. 0 for all.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bitrate_max_bps: u64,
    /// Its time zone by IANA's name: `Europe/Berlin`.
    #[serde(default = "utc")]
    pub time_zone: String,
    /// What comes in from outside at most, for fill, in bits per second. 0 if nobody said.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub uplink_bps: u64,
    /// Sites of one manifest cluster are planned together. Empty if it is planned by itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub manifest_cluster: String,
    /// Manifest clusters of one fill cluster fill from one another. Empty if its own fills by
    /// itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub fill_cluster: String,
    /// Windows of a day in which it fills, by local time: `22:00-06:00, 12:00-14:00`, or `always`.
    /// Empty for those of the policy.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub fill_windows: String,
    /// An operator wants no fill until then, in seconds since 1970; 2^53 - 1 until somebody says
    /// otherwise. 0 if nobody does.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub fill_paused_until_unix_s: u64,
}

impl Default for SiteAbout {
    fn default() -> Self {
        Self {
            kind: SiteKind::default(),
            place: String::new(),
            open: false,
            bitrate_max_bps: 0,
            time_zone: utc(),
            uplink_bps: 0,
            manifest_cluster: String::new(),
            fill_cluster: String::new(),
            fill_windows: String::new(),
            fill_paused_until_unix_s: 0,
        }
    }
}

fn utc() -> String {
    "UTC".to_owned()
}

/// Whose network a site stands in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum SiteKind {
    Embedded,
    #[default]
    Exchange,
}
