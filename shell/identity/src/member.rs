//! The name and kind of a certificate's holder.

use std::fmt;

use aws_lc_rs::digest;
use model::id::hex;
use wire::v1::identity::MemberKind;
use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;

use crate::UnixSeconds;

/// Everything below this is a name in a certificate and never looked up (RFC 9476 reserves `.alt`;
/// ICANN reserved `.internal` for private use in 2024).
const DOMAIN: &str = "nearcast.internal";

/// One of the fleet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    pub kind: MemberKind,
    /// Its name; `control` for control.
    pub name: String,
}

/// The facts read from a certificate. Its reader has verified the chain before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub member: Member,
    /// Serial number, lower-case hex without leading zeros.
    pub serial: String,
    /// SHA-256 of the public key (SubjectPublicKeyInfo, DER), hex: the same after a renewal with
    /// the same key.
    pub key: String,
    pub not_before: UnixSeconds,
    pub not_after: UnixSeconds,
}

/// Why a certificate does not name a member.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemberError {
    #[error("it is no certificate")]
    Form,
    #[error("it does not name exactly one member of a fleet (nearcast:KIND/NAME)")]
    Name,
}

impl Member {
    /// The control plane's writer.
    pub fn control() -> Self {
        Self { kind: MemberKind::Control, name: "control".to_owned() }
    }

    /// An appliance.
    pub fn appliance(name: impl fmt::Display) -> Self {
        Self { kind: MemberKind::Appliance, name: name.to_string() }
    }

    /// A front.
    pub fn front(name: impl fmt::Display) -> Self {
        Self { kind: MemberKind::Front, name: name.to_string() }
    }

    /// The URI in its certificate: `nearcast:appliance/a1`. For people and for access decisions.
    pub fn uri(&self) -> String {
        format!("nearcast:{}/{}", self.kind.word(), self.name)
    }

    /// The host name in its certificate, which TLS clients check. A digest, since names of
    /// appliances may have letters that a host name may not.
    pub fn host(&self) -> String {
        let digest = digest::digest(&digest::SHA256, self.uri().as_bytes());
        format!("{}.{}.{DOMAIN}", &hex(digest.as_ref())[..32], self.kind.word())
    }

    fn of_uri(uri: &str) -> Option<Self> {
        let (kind, name) = uri.strip_prefix("nearcast:")?.split_once('/')?;
        Some(Self { kind: MemberKind::of_word(kind)?, name: name.to_owned() })
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.word(), self.name)
    }
}

/// Reads a certificate (DER). Nothing is verified here: rustls did that.
pub fn read(certificate: &[u8]) -> Result<Seen, MemberError> {
    let (rest, parsed) = parse_x509_certificate(certificate).map_err(|_| MemberError::Form)?;
    if !rest.is_empty() {
        return Err(MemberError::Form);
    }
    let names = parsed.subject_alternative_name().map_err(|_| MemberError::Form)?;
    let names = names.map(|names| names.value.general_names.as_slice()).unwrap_or_default();
    let mut members = names.iter().filter_map(|name| {
        let GeneralName::URI(uri) = name else { return None };
        Member::of_uri(uri)
    });
    let (Some(member), None) = (members.next(), members.next()) else {
        return Err(MemberError::Name);
    };
    let seconds = |time: x509_parser::time::ASN1Time| {
        UnixSeconds(u64::try_from(time.timestamp()).unwrap_or(0))
    };
    Ok(Seen {
        member,
        serial: hex(parsed.raw_serial()).trim_start_matches('0').to_owned(),
        key: fingerprint(parsed.public_key().raw),
        not_before: seconds(parsed.validity().not_before),
        not_after: seconds(parsed.validity().not_after),
    })
}

/// SHA-256 in lower-case hex.
pub(crate) fn fingerprint(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_has_one_uri_and_one_host() {
        let member = Member::appliance("rack-1.a_b-");
        assert_eq!(member.uri(), "nearcast:appliance/rack-1.a_b-");
        assert_eq!(Member::of_uri(&member.uri()), Some(member.clone()));
        assert!(member.host().ends_with(".appliance.nearcast.internal"), "{}", member.host());
        assert_ne!(member.host(), Member::front("rack-1.a_b-").host());
        assert_eq!(Member::of_uri("nearcast:king/a1"), None);
        assert_eq!(Member::of_uri("https://a1"), None);
    }

    #[test]
    fn bytes_that_are_no_certificate_name_nobody() {
        assert_eq!(read(b"no"), Err(MemberError::Form));
        let stranger = rcgen::generate_simple_self_signed(vec!["a.example".to_owned()]).unwrap();
        assert_eq!(read(stranger.cert.der()), Err(MemberError::Name));
    }
}
