//! From an envelope, off the wire or off the drive, to a manifest that may come into force.

use std::collections::BTreeSet;

use identity::signing::{self, VerifyError};
use model::id::{ApplianceId, Generation};
use model::manifest::{Manifest, Short, ShortError, TokenKey, TrustDocument};
use wire::convert::{WireError, manifest_in, short_manifest_in, trust_in};
use wire::v1;
use wire::v1::signed::{self, Kind};

use crate::membership::documents::DocumentError;

/// Why a manifest, or a trust document, is refused.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// None of its signatures is by a key that may sign it.
    #[error(transparent)]
    Signature(#[from] VerifyError),
    #[error("cannot read the signed message: {0}")]
    Form(#[from] serde_json::Error),
    /// It has values that cannot be.
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("the message is addressed to {0}, and this member is {1}")]
    OtherAppliance(ApplianceId, ApplianceId),
    /// It names a document that is not there.
    #[error(transparent)]
    Short(#[from] ShortError),
    #[error(transparent)]
    Document(#[from] DocumentError),
    #[error("it has generation {offered}, and {known} is in force here")]
    Older { offered: Generation, known: Generation },
    #[error("it has generation {offered}, and {known} is kept here")]
    OlderTrust { offered: Generation, known: Generation },
    /// Keys are not in it.
    #[error("it needs the trust document {needed}, and {known} is kept here")]
    NoTrust { needed: Generation, known: Generation },
}

/// A manifest out of its envelope.
pub(crate) enum Opened {
    Whole(Manifest),
    /// Its documents are still to be had.
    Short(Short),
}

/// The manifest in an envelope, if one of `keys` signed it and it is this appliance's.
pub(crate) fn open(
    bytes: &[u8],
    keys: &[TokenKey],
    appliance: &ApplianceId,
) -> Result<Opened, Refused> {
    let payload = signing::verify(keys, Kind::Manifest, bytes)?;
    let wire: v1::manifest::Manifest = serde_json::from_slice(payload)?;
    let opened = match wire.format {
        2 => Opened::Short(short_manifest_in(&wire)?),
        _ => Opened::Whole(manifest_in(&wire)?),
    };
    let of = &opened.manifest().appliance;
    if of != appliance {
        return Err(Refused::OtherAppliance(of.clone(), appliance.clone()));
    }
    Ok(opened)
}

impl Opened {
    /// All but its versions may be asked for.
    pub(crate) fn manifest(&self) -> &Manifest {
        match self {
            Self::Whole(manifest) => manifest,
            Self::Short(short) => &short.manifest,
        }
    }
}

/// The trust document in an envelope, if one of `keys` signed it.
pub(crate) fn open_trust(bytes: &[u8], keys: &[TokenKey]) -> Result<TrustDocument, Refused> {
    let payload = signing::verify(keys, Kind::Trust, bytes)?;
    Ok(trust_in(&serde_json::from_slice(payload)?)?)
}

/// Whom to believe with these keys named: them, and those of `keys` that signed what is kept, which
/// could not be used without them after a restart. `keys` are those that it was opened with.
pub(crate) fn keys_after(
    named: &[TokenKey],
    signers: &BTreeSet<String>,
    keys: &[TokenKey],
) -> Vec<TokenKey> {
    if named.is_empty() {
        return keys.to_vec();
    }
    let signers = keys.iter().filter(|key| signers.contains(&key.kid));
    union(named, &signers.cloned().collect::<Vec<_>>())
}

/// The name of the key that signed this.
pub(crate) fn signer(envelope: &[u8]) -> String {
    signed::decode(envelope).map(|signed| signed.kid.to_owned()).unwrap_or_default()
}

/// Both lists, each key once.
pub(crate) fn union(one: &[TokenKey], other: &[TokenKey]) -> Vec<TokenKey> {
    let more = other.iter().filter(|key| !one.contains(key));
    one.iter().chain(more).cloned().collect()
}
