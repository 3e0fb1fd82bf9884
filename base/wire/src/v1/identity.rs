//! How appliances and fronts get an identity, and where they may fetch objects from.
//!
//! ```text
//! GET  /v1/authority                          the fleet's authority, PEM; anybody may ask
//! POST /v1/enrol                              a one-time code and a request -> a certificate
//! POST /v1/renew                              (with the certificate that ends) -> the next one
//! GET  /v1/appliances/{id}/sources/{object}   siblings that hold it, then origins
//! GET  /v1/appliances/{id}/ticket-keys        keys of the session tickets of its site
//! ```
//!
//! All of it, with reports, manifests and block hashes, on control's fleet address, over TLS 1.3.
//! All but the first two ask for a client certificate of the authority.

use model::id::ObjectId;
use serde::{Deserialize, Serialize};

use super::manifest::TokenKey;

/// The kinds of members of a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum MemberKind {
    /// The control plane's writer. There is one, and it makes its own certificate.
    Control,
    /// A control plane's front.
    Front,
    Appliance,
}

impl MemberKind {
    /// Its name in JSON, in certificates and in the database.
    pub fn word(self) -> &'static str {
        match self {
            Self::Control => "control",
            Self::Front => "front",
            Self::Appliance => "appliance",
        }
    }

    /// The kind of this name.
    pub fn of_word(word: &str) -> Option<Self> {
        [Self::Control, Self::Front, Self::Appliance].into_iter().find(|kind| kind.word() == word)
    }
}

/// `POST /v1/enrol`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Enrol {
    /// The kind of member that asks.
    pub kind: MemberKind,
    /// Its name, as an operator registered it.
    pub name: String,
    /// Secret of the one-time code.
    pub secret: String,
    /// PKCS #10 request, PEM. Its names are not believed, only its key.
    pub request: String,
    pub software: String,
    /// What the machine says of itself: 32 hex digits made from its machine-id. For people.
    #[serde(default)]
    pub machine: String,
}

/// The answer to `Enrol` and to `Renew`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Enrolled {
    /// The member's certificate, PEM.
    pub certificate: String,
    /// The authority's certificate, PEM.
    pub authority: String,
    /// Keys that manifests and snapshots may be signed with.
    pub signing_keys: Vec<TokenKey>,
}

/// `POST /v1/renew`. The certificate of the connection names the member that asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Renew {
    /// PKCS #10 request, PEM.
    pub request: String,
}

/// `GET /v1/appliances/{id}/ticket-keys`. Secret: for memory only, and for members of the site.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TicketKeys {
    /// In the order in which they begin: those that still open tickets, and the next. At most 8.
    pub keys: Vec<TicketKey>,
}

/// A key of session tickets. It seals from its beginning until the next one begins.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TicketKey {
    /// Which it is, 32 hex digits. No secret.
    pub name: String,
    /// The key, 64 hex digits.
    pub secret: String,
    /// From when on it seals, seconds since 1970.
    pub begins_unix_s: u64,
    /// From when on it opens nothing, seconds since 1970.
    pub ends_unix_s: u64,
}

impl std::fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TicketKeys").field("count", &self.keys.len()).finish()
    }
}

impl std::fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TicketKey").field("name", &self.name).finish_non_exhaustive()
    }
}

/// `GET /v1/appliances/{id}/sources/{object}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Sources {
    /// Best first: siblings of the same site, of the same fill cluster, elsewhere, then origins. At
    /// most 8.
    pub sources: Vec<Source>,
    /// Only these: those that the manifest names are for masters of the fill cluster.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only: bool,
    /// There is none now, since a master is to fetch it first: ask again after so many seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_s: Option<u64>,
    /// The asker is no master, and may go so far because it has lacked the object for long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub escalated: Option<Escalation>,
}

/// How far somebody goes who has waited for long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Escalation {
    /// To other fill clusters.
    Elsewhere,
    /// To origins, too.
    Origin,
}

/// A place to fetch one object from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Source {
    /// Where its bytes are, with ranges. A sibling's host is its name in its certificate, its path
    /// is [`sibling_path`].
    pub url: String,
    /// For a sibling: `host:port` to connect to, whatever the URL's host says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// After this (seconds since 1970) the URL is refused: ask again. None for one that lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_unix_s: Option<u64>,
    /// It stands in the asker's site: its bytes do not come in from outside.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub same_site: bool,
}

/// Where a sibling has an object.
pub fn sibling_path(object: &ObjectId) -> String {
    format!("/v1/objects/{object}")
}
