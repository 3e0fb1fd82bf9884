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
