//! Clients that were led past their nearest site: `GET /v1/sheds`.

use serde::{Deserialize, Serialize};

/// The name of the row of all versions that have none of their own.
pub const OTHERS: &str = "others";

/// Decisions about clients of one site, or about one version, since the process began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ShedRow {
    /// `site`, the client's nearest, or `version`.
    pub by: String,
    /// Its name; `others` for versions with fewer bytes than those that are named.
    pub name: String,
    /// `none` if the site served, `content`, `health` or `before`.
    pub class: String,
    /// Lists of playbacks that began.
    pub begun: u64,
    /// Steering answers.
    pub answers: u64,
    /// What players load until they ask again, at the highest bitrate of the version.
    pub reckoned_bytes: u64,
}
