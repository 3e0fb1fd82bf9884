//! Clients that were led past their nearest site: `GET /v1/sheds`, and what a front tells its
//! writer of them.

use serde::{Deserialize, Serialize};

/// The name of the row of all versions that have none of their own.
pub const OTHERS: &str = "others";

/// Most rows of a front's report: sites, versions, versions at sites, and the others of each site.
pub const ROWS_MAX: usize = 150_000;

/// Decisions about clients of one site, or about one version, since the process began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ShedRow {
    /// `site`, the client's nearest; `version`; or `site_version`, of the clients of one site.
    pub by: String,
    /// Its name; `others` for versions with fewer bytes than those that are named.
    pub name: String,
    /// Of `site_version` the version, or `others`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// `none` if the site served, `content`, `health` or `before`.
    pub class: String,
    /// Lists of playbacks that began.
    pub begun: u64,
    /// Steering answers.
    pub answers: u64,
    /// What players load until they ask again, at the highest bitrate of the version.
    pub reckoned_bytes: u64,
}

/// What a front has counted since it began: `POST /v1/replica/sheds` on the writer's fleet address.
/// It takes the place of what the front told before, so that one that comes twice counts once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ShedReport {
    /// Of the front's process, drawn when it began.
    pub start_id: u64,
    /// Of those of one start the highest is the newest.
    pub number: u64,
    /// At most 150,000.
    pub rows: Vec<ShedRow>,
}
