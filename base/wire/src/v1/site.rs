//! What is known of a site besides its prefixes: the same for operators, and for fronts.

use serde::{Deserialize, Serialize};

/// All of it may be left out: an exchange somewhere, which serves everybody.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(bps: &u64) -> bool {
    *bps == 0
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
