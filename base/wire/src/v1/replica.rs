//! The writer's snapshot for fronts, so that they can answer players while the writer is away.
//!
//! ```text
//! GET /v1/replica/snapshot?known=G   200 with a `Snapshot` newer than G, in an envelope; or 204
//!   &differences=true                the same, or all `Difference`s since G, each in an envelope
//!                                    of two lines and a line feed, where they are still there
//!   &whole=true                      200 with the newest `Snapshot`, in an envelope, though it may
//!                                    be G's: what is known is damaged, or too long in pieces
//! GET /v1/replica/keys               `Keys`
//! ```
//!
//! Both on the writer's fleet address, for members of kind front alone.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::appliance::{ApplianceAbout, Profiles};
use super::ingest::Entry;
use super::manifest::{AssetVersion, TokenKey};
use super::site::SiteAbout;

/// Desired state as far as players' questions need it. Signed (`signed::Kind::Snapshot`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Snapshot {
    /// Format, 1.
    pub format: u32,
    /// Older never replaces newer. Of snapshots alone: not one of manifests.
    pub generation: u64,
    /// When it was signed, seconds since 1970.
    pub issued_unix_s: u64,
    /// Newest generation of manifests.
    pub manifests: u64,
    pub sites: Vec<Site>,
    /// All appliances; each stands in one of the sites.
    pub appliances: Vec<Appliance>,
    /// Copies of each version in a cluster, where room is left by what viewers need.
    pub copies: u32,
    /// Versions of an asset that are held.
    pub versions_kept: u32,
    /// What machines of each profile are able to do; none from a writer that knows none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profiles: Option<Profiles>,
    /// When sites fill that say nothing else; empty for any hour.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub fill_windows: String,
    /// Keys that playback tokens may be signed with.
    pub token_keys: Vec<TokenKey>,
    /// Keys that the next snapshots may be signed with, this one's among them.
    pub signing_keys: Vec<TokenKey>,
    /// Serial numbers of certificates that are refused though they have not expired.
    pub revoked: Vec<String>,
    /// The versions that are held.
    pub versions: Vec<Version>,
    /// Assets that anybody may play, without a grant.
    #[serde(default)]
    pub public: Vec<String>,
    /// Sessions that begin and go on no more.
    #[serde(default)]
    pub revoked_sessions: Vec<RevokedSession>,
    /// Versions that were withdrawn and are still listed, each with its asset.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub withdrawn: BTreeMap<String, String>,
}

/// What leads from one snapshot to the next. Signed (`signed::Kind::Difference`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Difference {
    /// Format, 1.
    pub format: u32,
    /// The generation that it leads from.
    pub from: u64,
    /// The next one: policy and keys whole, of all else what is new or other.
    pub changed: Snapshot,
    #[serde(default)]
    pub gone: Gone,
    /// Of all that is there then.
    pub check: Check,
}

/// What is not there any more, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct Gone {
    pub sites: Vec<String>,
    pub appliances: Vec<String>,
    pub versions: Vec<String>,
    pub public: Vec<String>,
    pub revoked_sessions: Vec<String>,
    /// Versions that are not listed as withdrawn any more.
    pub withdrawn: Vec<String>,
    /// Serial numbers of certificates.
    pub revoked: Vec<String>,
}

/// How many there are, and a sum over them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Check {
    pub count: u64,
    /// Of the first eight bytes of BLAKE3 of each, little endian, modulo 2^64.
    pub sum: u64,
}

/// A playback that a service has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RevokedSession {
    /// Its name.
    pub session: String,
    /// When all that was given to it has ended by itself, seconds since 1970.
    pub until_unix_s: u64,
}

/// A site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Site {
    /// Name.
    pub id: String,
    /// Clients that it is for: `10.0.0.0/8`.
    pub prefixes: Vec<String>,
    /// Whose network it stands in, where it is, and whom else it serves.
    #[serde(flatten)]
    pub about: SiteAbout,
}

/// An appliance as registered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Appliance {
    /// Name.
    pub id: String,
    /// The site that it stands in.
    pub site: String,
    /// Its part among the appliances of its site.
    pub weight: u32,
    /// Two machines report under its identity: no player is sent there.
    #[serde(default)]
    pub cloned: bool,
    /// When it is to be drained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<super::fleet::DrainOut>,
    /// The kind of machine, what it is able to do, and its tags.
    #[serde(flatten)]
    pub about: ApplianceAbout,
}

/// A version of an asset with its entry manifests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Version {
    pub files: AssetVersion,
    /// The playlists and MPDs that players load first.
    pub entries: Vec<Entry>,
    /// Grows with every version that becomes current.
    pub sequence: u64,
    /// The rendition of each of its files, in the order of paths, as it was ingested; none if they
    /// cannot be told apart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub renditions: Vec<u8>,
    /// The first number of its files, as in manifests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_file: Option<u32>,
    /// No playback begins before, seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_unix_s: Option<u64>,
    /// No playback begins from then on, seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_unix_s: Option<u64>,
}

/// The secrets that playbacks begin with: a holder of them can begin and steer any.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Keys {
    /// Key of steering URLs, 64 hex digits.
    pub steering: String,
    /// Keys of playback tokens; the first signs.
    pub token: Vec<SecretKey>,
    /// API tokens, without their secrets.
    #[serde(default)]
    pub api: Vec<ApiToken>,
}

/// An API token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ApiToken {
    /// The part of it that is no secret.
    pub id: String,
    /// The name that an operator gave it.
    pub name: String,
    /// The role that it gives: `service`, `viewer`, `operator` or `admin`.
    pub role: String,
    /// SHA-256 of its secret, 64 hex digits.
    pub hash: String,
}

/// A key of playback tokens.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SecretKey {
    /// Key id.
    pub kid: String,
    /// Ed25519 seed (RFC 8032), 64 hex digits.
    pub seed: String,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("token", &self.token).finish_non_exhaustive()
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretKey").field("kid", &self.kid).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_for_logs() {
        let key = SecretKey { kid: "k1".to_owned(), seed: "5eed".to_owned() };
        let keys = Keys { steering: "57ee".to_owned(), token: vec![key], api: vec![] };
        let text = format!("{keys:?}");
        assert!(text.contains("k1") && !text.contains("5eed") && !text.contains("57ee"), "{text}");
    }
}
