//! `GET /v1/appliances/{id}/manifest?known=G`: 200 with a manifest newer than `G`, or 204.
//!
//! With `&short=true` it is of format 2: versions are named by the hash of a *document*, which says
//! what never changes of one, and is asked for once, with `POST /v1/appliances/{id}/documents`.
//! The answer has a line for each that is there: an [`AssetVersion`] without sources, in JSON. A
//! program that does not know `short` answers with format 1.
//!
//! With `&trust=true` beside it, keys and revoked certificates are left out where control has them
//! in a *trust document*, which all appliances share: `GET /v1/appliances/{id}/trust?known=G`, 200
//! with a newer one than `G`, or 204. The reply to a report says the newest generation of it. A
//! program that does not know `trust` answers with a manifest that has them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The content that one appliance should hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Manifest {
    /// 1, or 2 if versions are named by their documents.
    pub format: u32,
    /// The appliance that it is for.
    pub appliance: String,
    /// Older never replaces newer.
    pub generation: u64,
    /// Keys for playback tokens.
    pub token_keys: Vec<TokenKey>,
    /// Keys and revoked certificates are not here, but in the trust document of this generation or
    /// of a newer one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust: Option<u64>,
    /// When it was signed, seconds since 1970.
    #[serde(default)]
    pub issued_unix_s: u64,
    /// Keys that the next manifests may be signed with, this one's among them.
    #[serde(default)]
    pub signing_keys: Vec<TokenKey>,
    /// Serial numbers of certificates that are refused though they have not expired.
    #[serde(default)]
    pub revoked: Vec<String>,
    /// Most wanted first; none in format 2.
    pub versions: Vec<AssetVersion>,
    /// The versions of format 2, most wanted first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub listed: Vec<Listed>,
    /// The first file number of each version, by the version's name. A version's files have one
    /// range of numbers, in the order of their objects' ids, each object once.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub numbers: BTreeMap<String, u32>,
    /// The same of versions of which the appliance should hold a part. They are not in `numbers`,
    /// where a program that does not know this would take the part for the whole.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parts: BTreeMap<String, Part>,
    /// Other appliances of the same site that should hold a version, by the version's name. A
    /// request is sent on to one of them where a drive here does not answer.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub siblings: BTreeMap<String, Vec<String>>,
    /// The appliances of the site that have service addresses, this one among them: a sibling takes
    /// over the addresses of one that cannot serve.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub site: Vec<SiteMember>,
}

/// Which of a version's numbered files an appliance should hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Part {
    /// The number of the first file of the whole version.
    pub first: u32,
    /// Those of the part, counted from 0: a Roaring bitmap in its portable format, in base64
    /// (standard alphabet, padded).
    pub files: String,
}

/// What all appliances share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Trust {
    /// Format of the document: 1.
    pub format: u32,
    /// Older never replaces newer. Not one of manifests.
    pub generation: u64,
    /// When it was signed, seconds since 1970.
    pub issued_unix_s: u64,
    /// Keys for playback tokens.
    pub token_keys: Vec<TokenKey>,
    /// Keys that manifests and the next trust documents may be signed with.
    pub signing_keys: Vec<TokenKey>,
    /// Serial numbers of certificates that are refused though they have not expired.
    pub revoked: Vec<String>,
}

/// A version that is told apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Listed {
    /// Name in media URLs.
    pub id: String,
    /// BLAKE3 of its document, 64 hex digits.
    pub document: String,
    /// Base URLs ending in `/`, best first.
    pub sources: Vec<String>,
}

/// Asks for documents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Lacking {
    /// 1 to 256 hashes of documents. As many are answered as fit, the first of those that are there
    /// in any case.
    pub documents: Vec<String>,
}

/// Most documents that are asked for at a time.
pub const LACKING_MAX: usize = 256;

/// An appliance with service addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SiteMember {
    pub id: String,
    /// IPv4 or IPv6, 1 to 4.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub addresses: Vec<std::net::IpAddr>,
}

/// A public key, for playback tokens or for manifests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TokenKey {
    /// Key id.
    pub kid: String,
    /// Ed25519 public key, 64 hex digits.
    pub public_key: String,
}

/// One immutable packaging of an asset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AssetVersion {
    /// Name in media URLs.
    pub id: String,
    pub asset: String,
    /// Base URLs ending in `/`, best first.
    pub sources: Vec<String>,
    /// `Last-Modified` of all files, seconds since 1970.
    pub modified_unix_s: u64,
    /// Most bits per second for a viewer whose player does not name a bitrate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace_bps: Option<u64>,
    /// Path to file.
    pub files: BTreeMap<String, File>,
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct File {
    /// Object id, 64 hex digits.
    pub object: String,
    /// Length in bytes.
    pub len: u64,
    /// `Content-Type`.
    pub content_type: String,
}
