//! `PUT /v1/assets/{asset}/versions/{version}`: the facts that ingest learned about a directory.
//!
//! Idempotent: the version's name is derived from its content, so the same directory gives the
//! same request, and a different one under the same name is refused (409).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A new asset version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NewVersion {
    /// Base URLs ending in `/` from which appliances fill.
    pub sources: Vec<String>,
    /// When it is ingested, seconds since 1970: for a week it counts as new, so that it is held
    /// before anybody has watched it. Of a known version the first time stays.
    pub modified_unix_s: u64,
    /// Path to file.
    pub files: BTreeMap<String, NewFile>,
    /// The entry manifests among the files, with their text: a front rewrites these per playback.
    pub entries: Vec<Entry>,
    /// When it may be shown. Without it, a known version keeps its times, and a new one ends when
    /// the asset's current version does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
    /// Takes the version though it was withdrawn.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub again: bool,
}

/// Times from which and until which a version may be shown, in UTC (RFC 3339:
/// `2027-01-31T22:00:00Z`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// No playback begins before; none for no such time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// From then on it is withdrawn; none for never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
}

/// One file with the hashes of its blocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NewFile {
    /// Object id, 64 hex digits.
    pub object: String,
    /// Length in bytes.
    pub len: u64,
    /// `Content-Type`.
    pub content_type: String,
    /// Concatenated 32-byte block hashes, base64 (standard alphabet, padded).
    pub blocks: String,
    /// The rendition that it belongs to, a number from 1 to 64 of the sender's choice: a media
    /// playlist and all that it names have the same one, and so have the files of a DASH
    /// representation. 0, or left out, for a file of none, and where the sender does not know.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rendition: u8,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &u8) -> bool {
    *number == 0
}

/// An entry manifest: an HLS multivariant playlist or a static DASH MPD.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Entry {
    /// Its path among the files.
    pub path: String,
    pub format: EntryFormat,
    /// Its text, at most 1 MiB.
    pub text: String,
}

/// Format of an entry manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum EntryFormat {
    /// HLS multivariant playlist (RFC 8216).
    Hls,
    /// DASH MPD (ISO/IEC 23009-1), `type="static"`.
    Dash,
}
