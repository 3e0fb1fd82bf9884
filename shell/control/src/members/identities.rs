//! Who has an identity, which certificates are refused, and which one-time codes are open.
//!
//! A table in memory with `now` as an argument; the store has the same on disk. An identity is a
//! key: renewals add certificates for it, a new one-time code makes the next identity and ends the
//! one before it.

use std::collections::{BTreeMap, BTreeSet};

use identity::UnixSeconds;
use identity::member::{Member, Seen};
use wire::v1::identity::MemberKind;

/// A certificate that was issued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Certificate {
    pub(crate) member: Member,
    /// Serial number, lower-case hex.
    pub(crate) serial: String,
    /// SHA-256 of its public key, hex.
    pub(crate) key: String,
    /// What the machine said of itself when it enrolled.
    pub(crate) machine: String,
    pub(crate) software: String,
    pub(crate) issued: UnixSeconds,
    pub(crate) expires: UnixSeconds,
    pub(crate) revoked: Option<UnixSeconds>,
}

/// A one-time code, as it is kept: without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptCode {
    /// SHA-256 of the secret, hex.
    pub(crate) hash: String,
    pub(crate) member: Member,
    pub(crate) expires: UnixSeconds,
    pub(crate) used: Option<UnixSeconds>,
}

#[derive(Debug, Default)]
pub(crate) struct Identities {
    /// Oldest first. Invariant: at most `CERTIFICATES_MAX` that are good for each member.
    certificates: BTreeMap<Member, Vec<Certificate>>,
    /// By hash. Invariant: at most `CODES_MAX`, and one that is open for each member.
    codes: BTreeMap<String, KeptCode>,
}

/// Why a member is refused though its certificate is one of the authority's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Denied {
    #[error("the certificate has expired: renew it, or enrol again")]
    Expired,
    #[error("this identity was revoked: get a one-time code from an operator and enrol again")]
    Revoked,
    #[error(
        "{0} has enrolled again since, with another key: if that was not you, tell an operator"
    )]
    Superseded(Member),
    #[error(
        "this control plane knows no identity of {0} (was it restored from an old backup?): get a \
             one-time code from an operator and enrol again"
    )]
    Unknown(Member),
}

/// Why a one-time code is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CodeRefused {
    #[error("this one-time code is not one of ours, or was replaced by a newer one: get another")]
    Unknown,
    #[error(
        "this one-time code was used before (at {} s since 1970): if that was not you, tell an \
             operator, who can revoke the identity", .0.0
    )]
    Used(UnixSeconds),
    #[error("this one-time code has expired: get another")]
    Expired,
    #[error("this one-time code is for another member: its name must be the one that enrols")]
    OtherMember,
}

/// No place for one more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there are {most} {what} already, the most that this control plane keeps")]
pub(crate) struct Full {
    what: &'static str,
    most: usize,
}

impl Identities {
    /// From what was stored.
    pub(crate) fn new(certificates: Vec<Certificate>, codes: Vec<KeptCode>) -> Self {
        let mut identities = Self::default();
        for certificate in certificates {
            identities
                .certificates
                .entry(certificate.member.clone())
                .or_default()
                .push(certificate);
        }
        for list in identities.certificates.values_mut() {
            list.sort_by_key(|certificate| certificate.issued);
        }
        identities.codes = codes.into_iter().map(|code| (code.hash.clone(), code)).collect();
        identities
    }

    /// Whether the holder of this certificate is who it says, now. Its chain was verified when the
    /// connection began.
    pub(crate) fn admit(&self, seen: &Seen, now: UnixSeconds) -> Result<(), Denied> {
        if seen.not_after <= now {
            return Err(Denied::Expired);
        }
        let certificates = self.certificates.get(&seen.member).map_or(&[][..], Vec::as_slice);
        let is_revoked = |c: &Certificate| c.serial == seen.serial && c.revoked.is_some();
        if certificates.iter().any(is_revoked) {
            return Err(Denied::Revoked);
        }
        match self.current(&seen.member, now) {
            Some(current) if current.key == seen.key => Ok(()),
            Some(_) => Err(Denied::Superseded(seen.member.clone())),
            None => Err(Denied::Unknown(seen.member.clone())),
        }
    }

    /// The newest good certificate of a member.
    pub(crate) fn current(&self, member: &Member, now: UnixSeconds) -> Option<&Certificate> {
        let certificates = self.certificates.get(member)?;
        certificates.iter().rev().find(|certificate| certificate.is_good(now))
    }

    /// The newest good certificate of each member that has one.
    pub(crate) fn all(&self, now: UnixSeconds) -> impl Iterator<Item = &Certificate> {
        self.certificates.keys().filter_map(move |member| self.current(member, now))
    }

    /// Whether a code can be used by `member`.
    pub(crate) fn code(
        &self,
        hash: &str,
        member: &Member,
        now: UnixSeconds,
    ) -> Result<(), CodeRefused> {
        let code = self.codes.get(hash).ok_or(CodeRefused::Unknown)?;
        if code.member != *member {
            return Err(CodeRefused::OtherMember);
        }
        match code.used {
            Some(used) => Err(CodeRefused::Used(used)),
            None if code.expires <= now => Err(CodeRefused::Expired),
            None => Ok(()),
        }
    }

    /// Codes that could be used now.
    pub(crate) fn codes_open(&self, now: UnixSeconds) -> usize {
        self.codes.values().filter(|code| code.is_open(now)).count()
    }

    /// Whether there is room for one more code.
    pub(crate) fn room_for_code(&self) -> Result<(), Full> {
        room("one-time codes", self.codes.len(), CODES_MAX)
    }

    /// Whether there is room for one more certificate of `member`.
    pub(crate) fn room_for(&self, member: &Member, now: UnixSeconds) -> Result<(), Full> {
        let good = |list: &Vec<Certificate>| list.iter().filter(|c| c.is_good(now)).count();
        let own = self.certificates.get(member).map_or(0, good);
        room("good certificates of one member", own, CERTIFICATES_MAX)?;
        let is_other_front = |c: &&Certificate| c.member.kind == MemberKind::Front;
        let fronts = self.all(now).filter(is_other_front).count();
        let is_new_front = member.kind == MemberKind::Front && own == 0;
        room("fronts", if is_new_front { fronts } else { 0 }, FRONTS_MAX)
    }

    /// A new code; the one that was open for the same member is none any more.
    pub(crate) fn put_code(&mut self, code: KeptCode) {
        self.codes.retain(|_, known| known.member != code.member || known.used.is_some());
        self.codes.insert(code.hash.clone(), code);
    }

    /// The code is used, and this is what it was traded for. What the member had before is revoked.
    pub(crate) fn enrolled(&mut self, hash: &str, certificate: Certificate) {
        let now = certificate.issued;
        if let Some(code) = self.codes.get_mut(hash) {
            code.used = Some(now);
        }
        self.revoke(&certificate.member, now);
        self.renewed(certificate);
    }

    /// One more certificate of an identity.
    pub(crate) fn renewed(&mut self, certificate: Certificate) {
        self.certificates.entry(certificate.member.clone()).or_default().push(certificate);
    }

    /// Refuses all that the member has from now on. False if there was nothing good.
    pub(crate) fn revoke(&mut self, member: &Member, now: UnixSeconds) -> bool {
        let mut any = false;
        for certificate in self.certificates.get_mut(member).into_iter().flatten() {
            if certificate.is_good(now) {
                certificate.revoked = Some(now);
                any = true;
            }
        }
        any
    }

    /// The member is gone: its open code too.
    pub(crate) fn forget_codes(&mut self, member: &Member) {
        self.codes.retain(|_, code| code.member != *member);
    }

    /// Serial numbers that are refused though they have not expired.
    pub(crate) fn revoked(&self, now: UnixSeconds) -> BTreeSet<String> {
        let all = self.certificates.values().flatten();
        let refused = all.filter(|c| c.revoked.is_some() && now < c.expires);
        refused.map(|certificate| certificate.serial.clone()).collect()
    }

    /// Forgets what has expired, codes some days later.
    pub(crate) fn expire(&mut self, now: UnixSeconds) {
        self.certificates.retain(|_, list| {
            list.retain(|certificate| now < certificate.expires);
            !list.is_empty()
        });
        self.codes.retain(|_, code| now.0 < code.expires.0.saturating_add(CODES_KEPT_S));
    }
}

impl Certificate {
    fn is_good(&self, now: UnixSeconds) -> bool {
        self.revoked.is_none() && now < self.expires
    }
}

impl KeptCode {
    fn is_open(&self, now: UnixSeconds) -> bool {
        self.used.is_none() && now < self.expires
    }
}

fn room(what: &'static str, count: usize, most: usize) -> Result<(), Full> {
    if count < most { Ok(()) } else { Err(Full { what, most }) }
}

/// Two are usual: the last and the next. More is a program that renews over and over.
const CERTIFICATES_MAX: usize = 8;
/// A code for each of the largest fleet's appliances.
const CODES_MAX: usize = 8192;
/// Fronts with an identity.
pub(crate) const FRONTS_MAX: usize = 64;
/// How long used and expired codes are kept, to tell whoever comes with one.
pub(crate) const CODES_KEPT_S: u64 = 7 * 86_400;

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixSeconds = UnixSeconds(1000);

    #[test]
    fn only_the_current_identity_of_a_member_is_admitted() {
        let mut table = Identities::default();
        let a1 = Member::appliance("a1");
        assert_eq!(table.admit(&seen("1", "k1"), NOW), Err(Denied::Unknown(a1.clone())));
        table.enrolled("", certificate("1", "k1"));
        table.renewed(certificate("2", "k1"));
        assert_eq!(table.admit(&seen("1", "k1"), NOW), Ok(()));
        assert_eq!(table.admit(&seen("2", "k1"), NOW), Ok(()));
        assert_eq!(table.admit(&seen("1", "k1"), UnixSeconds(2000)), Err(Denied::Expired));
        let stranger = Denied::Superseded(a1.clone());
        assert_eq!(table.admit(&seen("9", "k9"), NOW), Err(stranger.clone()));
        let other = Seen { member: Member::front("a1"), ..seen("1", "k1") };
        assert_eq!(table.admit(&other, NOW), Err(Denied::Unknown(Member::front("a1"))));

        table.enrolled("", certificate("3", "k2"));
        assert_eq!(table.admit(&seen("3", "k2"), NOW), Ok(()));
        assert_eq!(table.admit(&seen("2", "k1"), NOW), Err(Denied::Revoked));
        assert_eq!(table.admit(&seen("8", "k1"), NOW), Err(stranger), "issued, then forgotten");
        assert_eq!(table.revoked(NOW), ["1", "2"].map(str::to_owned).into());
    }

    #[test]
    fn what_is_revoked_is_listed_until_it_has_expired() {
        let mut table = Identities::default();
        let a1 = Member::appliance("a1");
        assert!(!table.revoke(&a1, NOW));
        table.enrolled("", certificate("1", "k1"));
        assert!(table.revoke(&a1, NOW));
        assert_eq!(table.admit(&seen("1", "k1"), NOW), Err(Denied::Revoked));
        assert!(!table.revoke(&a1, NOW), "there is nothing left");
        assert_eq!(table.revoked(UnixSeconds(1999)).len(), 1);
        assert_eq!(table.revoked(UnixSeconds(2000)).len(), 0);
        table.expire(UnixSeconds(2000));
        assert!(table.certificates.is_empty());
    }

    #[test]
    fn a_code_is_good_once_for_one_member_and_not_for_long() {
        let mut table = Identities::default();
        let a1 = Member::appliance("a1");
        let expires = UnixSeconds(1100);
        let code = |hash: &str, member: &Member| KeptCode {
            hash: hash.to_owned(),
            member: member.clone(),
            expires,
            used: None,
        };
        table.put_code(code("h1", &a1));
        assert_eq!(table.code("h1", &a1, UnixSeconds(1099)), Ok(()));
        assert_eq!(table.code("h1", &a1, expires), Err(CodeRefused::Expired));
        assert_eq!(table.code("h0", &a1, NOW), Err(CodeRefused::Unknown));
        let other = [Member::appliance("a2"), Member::front("a1")];
        for member in other {
            assert_eq!(table.code("h1", &member, NOW), Err(CodeRefused::OtherMember));
        }
        table.put_code(code("h2", &a1));
        assert_eq!(table.code("h1", &a1, NOW), Err(CodeRefused::Unknown), "h2 is instead of it");
        table.put_code(code("h3", &Member::appliance("a2")));
        assert_eq!(table.codes_open(NOW), 2);
        table.enrolled("h2", certificate("1", "k1"));
        assert_eq!(table.code("h2", &a1, NOW), Err(CodeRefused::Used(NOW)));
        table.put_code(code("h4", &a1));
        assert_eq!(table.code("h2", &a1, NOW), Err(CodeRefused::Used(NOW)), "still told");
        assert_eq!(table.codes_open(NOW), 2);
        table.expire(UnixSeconds(1100 + CODES_KEPT_S));
        assert_eq!(table.code("h2", &a1, NOW), Err(CodeRefused::Unknown));
    }

    #[test]
    fn whoever_renews_over_and_over_is_stopped() {
        let mut table = Identities::default();
        let a1 = Member::appliance("a1");
        for i in 0..CERTIFICATES_MAX {
            assert_eq!(table.room_for(&a1, NOW), Ok(()));
            table.renewed(certificate(&i.to_string(), "k1"));
        }
        assert!(table.room_for(&a1, NOW).is_err());
        assert_eq!(table.room_for(&a1, UnixSeconds(2000)), Ok(()));
    }

    fn certificate(serial: &str, key: &str) -> Certificate {
        Certificate {
            member: Member::appliance("a1"),
            serial: serial.to_owned(),
            key: key.to_owned(),
            machine: String::new(),
            software: String::new(),
            issued: NOW,
            expires: UnixSeconds(2000),
            revoked: None,
        }
    }

    fn seen(serial: &str, key: &str) -> Seen {
        Seen {
            member: Member::appliance("a1"),
            serial: serial.to_owned(),
            key: key.to_owned(),
            not_before: UnixSeconds(0),
            not_after: UnixSeconds(2000),
        }
    }
}
