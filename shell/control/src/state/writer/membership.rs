//! Who becomes a member of the fleet, and who is one no longer.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};

use director::{Change, Event};
use identity::authority::AuthorityError;
use identity::code::{self, Code};
use identity::member::{Member, Seen};
use identity::secret_file::SecretError;
use model::id::ApplianceId;
use model::units::UnixSeconds;
use wire::v1::identity::{Enrol, Enrolled, MemberKind};

use super::Control;
use crate::members::authority::{self, OwnError};
use crate::members::identities::{Certificate, CodeRefused, Denied, Full, Identities, KeptCode};
use crate::state::directing::Desk;
use crate::state::store::StoreError;

/// Why nobody becomes a member, or stays one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MembershipError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(
        "appliance {0} is not registered: an operator registers it with PUT /v1/appliances/{0}"
    )]
    NotRegistered(String),
    #[error(transparent)]
    Code(#[from] CodeRefused),
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    #[error(transparent)]
    Denied(#[from] Denied),
    #[error("a renewal keeps its key: for another key, get a one-time code and enrol again")]
    OtherKey,
    #[error(transparent)]
    Full(#[from] Full),
}

impl Control {
    /// Who has an identity.
    pub(crate) fn identities(&self) -> MutexGuard<'_, Identities> {
        self.identities.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the holder of this certificate is a member, now: asked at every request.
    pub(crate) fn admit(&self, seen: &Seen) -> Result<(), Denied> {
        self.look_at(seen).inspect_err(|denied| {
            self.metrics.members_refused.count();
            tracing::warn!(member = %seen.member, serial = seen.serial, %denied, "refused");
        })
    }

    /// The same, when a connection begins: nothing was asked, so nobody is refused.
    pub(crate) fn knows(&self, seen: &Seen) -> bool {
        self.look_at(seen).is_ok()
    }

    fn look_at(&self, seen: &Seen) -> Result<(), Denied> {
        match self.front {
            None => self.identities().admit(seen, self.clock.unix()),
            Some(_) => self.front_admits(seen),
        }
    }

    /// A one-time code with which `member` can enrol, and until when.
    pub(crate) async fn new_code(
        self: &Arc<Self>,
        member: Member,
    ) -> Result<(Code, UnixSeconds), MembershipError> {
        let _writing = self.writing.lock().await;
        self.registered(&member)?;
        let now = self.clock.unix();
        self.identities().expire(now);
        self.identities().room_for_code()?;
        let code = Code::new(authority::random(), self.authority.certificate_der());
        let expires =
            UnixSeconds(now.0.saturating_add(self.config.fleet.code_lifetime.0.as_seconds()));
        let hash = code::hash(&code.secret());
        tracing::info!(%member, "a one-time code was made");
        let kept = KeptCode { hash, member, expires, used: None };
        self.store.put_code(&kept, now).await?;
        self.identities().put_code(kept);
        Ok((code, expires))
    }

    /// Trades a one-time code for an identity. What the member had before is revoked.
    pub(crate) async fn enrol(self: &Arc<Self>, ask: &Enrol) -> Result<Enrolled, MembershipError> {
        let member = Member { kind: ask.kind, name: ask.name.clone() };
        let hash = code::hash(&ask.secret);
        let _writing = self.writing.lock().await;
        let now = self.clock.unix();
        self.identities().code(&hash, &member, now)?;
        self.registered(&member)?;
        let (pem, certificate) = self.issue(&member, &ask.request, now)?;
        let (mut machine, mut software) = (ask.machine.clone(), ask.software.clone());
        crate::state::convert::shorten(&mut machine);
        crate::state::convert::shorten(&mut software);
        let certificate = Certificate { machine: machine.clone(), software, ..certificate };
        let former = self.identities().current(&member, now).is_some();
        if !former {
            self.identities().room_for(&member, now)?;
        }
        self.store.put_enrolment(&hash, &certificate).await?;
        self.identities().enrolled(&hash, certificate);
        self.metrics.enrolments.count();
        if former {
            tracing::warn!(%member, "enrolled again: the identity that it had is revoked");
            self.tell_revoked(now).await;
        } else {
            tracing::info!(%member, "enrolled");
        }
        if let Some(appliance) = appliance_of(&member) {
            self.changed(Change::Enrolled { appliance, machine, supersedes: former }).await;
        }
        Ok(self.given(pem))
    }

    /// The next certificate of an identity that was admitted.
    pub(crate) async fn renew(
        self: &Arc<Self>,
        seen: &Seen,
        request: &str,
    ) -> Result<Enrolled, MembershipError> {
        let _writing = self.writing.lock().await;
        let now = self.clock.unix();
        self.registered(&seen.member)?;
        self.identities().expire(now);
        self.identities().room_for(&seen.member, now)?;
        let (pem, certificate) = self.issue(&seen.member, request, now)?;
        if certificate.key != seen.key {
            return Err(MembershipError::OtherKey);
        }
        // Again, under the writer's lock: it may have been revoked while this waited.
        let known = {
            let identities = self.identities();
            identities.admit(seen, now)?;
            identities.current(&seen.member, now).cloned()
        };
        let known = known.ok_or_else(|| Denied::Unknown(seen.member.clone()))?;
        let (machine, software) = (known.machine, known.software);
        let certificate = Certificate { machine, software, ..certificate };
        self.store.put_certificate(&certificate).await?;
        self.identities().renewed(certificate);
        self.metrics.renewals.count();
        tracing::debug!(member = %seen.member, "renewed");
        Ok(self.given(pem))
    }

    /// Refuses all that the member has from its next request on; false if it had nothing.
    pub(crate) async fn revoke(self: &Arc<Self>, member: &Member) -> Result<bool, StoreError> {
        let _writing = self.writing.lock().await;
        self.revoke_now(member).await
    }

    /// The same, for a caller that holds the writer's lock already.
    pub(super) async fn revoke_now(self: &Arc<Self>, member: &Member) -> Result<bool, StoreError> {
        let now = self.clock.unix();
        self.store.revoke(member, now).await?;
        self.identities().forget_codes(member);
        let known = self.identities().revoke(member, now);
        if known {
            self.metrics.revocations.count();
            tracing::warn!(%member, "its identity is revoked");
            self.tell_revoked(now).await;
            let known = |id: &ApplianceId| self.is_registered(id);
            if let Some(appliance) = appliance_of(member).filter(known) {
                self.changed(Change::IdentityRevoked(appliance)).await;
            }
        }
        Ok(known)
    }

    /// An operator says that the second machine of an appliance is gone; false if there is none.
    pub(crate) async fn clone_gone(self: &Arc<Self>, id: &ApplianceId) -> Result<bool, StoreError> {
        let _writing = self.writing.lock().await;
        let of = id.clone();
        let look = move |desk: &mut Desk, _| {
            desk.director.desired().appliances.get(&of).is_some_and(|known| known.cloned)
        };
        let is_cloned = self.directing.ask_in_turn(look).await;
        if is_cloned {
            self.store.put_cloned(id, false).await?;
            self.changed(Change::CloneGone(id.clone())).await;
        }
        Ok(is_cloned)
    }

    /// Begins a rotation of the key that signs: the next one is announced in the trust document.
    pub(crate) async fn rotate_signing_key(self: &Arc<Self>) -> Result<(), SecretError> {
        let _writing = self.writing.lock().await;
        if let Some(next) = self.signing.announce()? {
            self.keep_secrets().await?;
            self.signing.adopt(next);
        }
        let keys = self.signing.public();
        tracing::info!(
            next = keys.last().map(|key| key.kid.as_str()),
            "a signing key is announced"
        );
        self.changed(Change::SigningKeys(keys)).await;
        Ok(())
    }

    /// Ends it. The caller holds the writer's lock.
    pub(crate) async fn use_next_signing_key(self: &Arc<Self>) {
        let switched = match self.signing.switch() {
            Ok(Some(next)) => self.keep_secrets().await.map(|()| {
                self.signing.adopt(next);
                true
            }),
            Ok(None) => Ok(false),
            Err(error) => Err(error),
        };
        match switched {
            Ok(true) => {
                let keys = self.signing.public();
                tracing::info!(kid = keys[0].kid, "the next signing key signs from now on");
                self.handle(Event::Changed(Change::SigningKeys(keys))).await;
                self.replica_is_old.store(true, Ordering::SeqCst);
            }
            Ok(false) => {}
            Err(error) => tracing::error!(%error, "the next signing key cannot be used"),
        }
    }

    /// Control's own certificate is renewed in time; connections from now on are shown the new one.
    pub(crate) fn renew_own(&self) {
        let now = self.clock.unix();
        let mut renew_at = self.own_renew_at.lock().unwrap_or_else(PoisonError::into_inner);
        if now < *renew_at {
            return;
        }
        let lifetime_s = self.config.fleet.certificate_lifetime.0.as_seconds();
        match own_tls(&self.authority, now, lifetime_s) {
            Ok((config, next)) => {
                self.fleet_tls.replace(config);
                *renew_at = next;
                tracing::info!("control's own certificate is renewed");
            }
            Err(error) => {
                *renew_at = UnixSeconds(now.0 + OWN_AGAIN_S);
                tracing::error!(%error, "control's own certificate cannot be renewed");
            }
        }
    }

    fn issue(
        &self,
        member: &Member,
        request: &str,
        now: UnixSeconds,
    ) -> Result<(String, Certificate), AuthorityError> {
        let lifetime_s = self.config.fleet.certificate_lifetime.0.as_seconds();
        let issued = self.authority.issue(member, request, authority::random(), now, lifetime_s)?;
        let certificate = Certificate {
            member: issued.seen.member,
            serial: issued.seen.serial,
            key: issued.seen.key,
            machine: String::new(),
            software: String::new(),
            issued: now,
            expires: issued.seen.not_after,
            revoked: None,
        };
        Ok((issued.certificate, certificate))
    }

    fn given(&self, certificate: String) -> Enrolled {
        Enrolled {
            certificate,
            authority: self.authority.certificate_pem().to_owned(),
            signing_keys: self.signing.public().iter().map(wire::convert::token_key_out).collect(),
        }
    }

    fn registered(&self, member: &Member) -> Result<(), MembershipError> {
        let not_registered = || MembershipError::NotRegistered(member.name.clone());
        match member.kind {
            MemberKind::Front => Ok(()),
            MemberKind::Control => Err(CodeRefused::OtherMember.into()),
            MemberKind::Appliance => {
                let id: ApplianceId = member.name.parse().map_err(|_| not_registered())?;
                if self.is_registered(&id) { Ok(()) } else { Err(not_registered()) }
            }
        }
    }

    pub(crate) fn is_registered(&self, id: &ApplianceId) -> bool {
        self.snapshot().view.appliances.contains_key(id)
    }

    /// All appliances learn from the trust document whom to refuse.
    async fn tell_revoked(self: &Arc<Self>, now: UnixSeconds) {
        let revoked = self.identities().revoked(now);
        self.changed(Change::Revoked(revoked)).await;
    }
}

fn appliance_of(member: &Member) -> Option<ApplianceId> {
    let is_appliance = member.kind == MemberKind::Appliance;
    is_appliance.then(|| member.name.parse().ok()).flatten()
}

/// How control itself speaks TLS in the fleet, and when that should be renewed.
pub(super) fn own_tls(
    authority: &identity::authority::Authority,
    now: UnixSeconds,
    lifetime_s: u64,
) -> Result<(rustls::ServerConfig, UnixSeconds), OwnError> {
    let own = authority::own_identity(authority, now, lifetime_s)?;
    Ok((own.server_tls(true)?, own.renew_at()))
}

/// After a failure, try again in a minute.
const OWN_AGAIN_S: u64 = 60;

#[cfg(test)]
mod tests {
    use super::*;
    use model::topology::{Appliance, Site, Weight};
    use rcgen::{CertificateParams, KeyPair};

    const HOUR: u64 = 3600;

    #[tokio::test]
    async fn a_code_has_an_end() {
        let (_directory, control) = fleet().await;
        let asked = control.clock.unix().0;
        let (code, expires) = control.new_code(Member::appliance("a1")).await.unwrap();
        let answered = control.clock.unix().0;
        assert!((asked + HOUR..=answered + HOUR).contains(&expires.0));
        control.clock.advance(HOUR);
        let refused = control.enrol(&ask(&code, &KeyPair::generate().unwrap())).await;
        assert!(matches!(refused, Err(MembershipError::Code(CodeRefused::Expired))));
    }

    #[tokio::test]
    async fn a_certificate_ends_on_connections_that_are_open_too_and_renewal_goes_on() {
        let (_directory, control) = fleet().await;
        let key = KeyPair::generate().unwrap();
        let (code, _) = control.new_code(Member::appliance("a1")).await.unwrap();
        let seen = seen(&control.enrol(&ask(&code, &key)).await.unwrap());
        control.clock.advance(16 * HOUR);
        let renewed = control.renew(&seen, &request(&key)).await.unwrap();
        control.clock.advance(8 * HOUR);
        assert_eq!(control.admit(&seen), Err(Denied::Expired));
        assert!(control.renew(&seen, &request(&key)).await.is_err());
        assert_eq!(control.admit(&self::seen(&renewed)), Ok(()));
        control.clock.advance(16 * HOUR);
        assert_eq!(control.admit(&self::seen(&renewed)), Err(Denied::Expired));
    }

    #[tokio::test]
    async fn what_was_revoked_leaves_manifests_when_it_has_expired_and_something_changes() {
        let (_directory, control) = fleet().await;
        for hours in [0, 12, 12] {
            control.clock.advance(hours * HOUR);
            let (code, _) = control.new_code(Member::appliance("a1")).await.unwrap();
            control.enrol(&ask(&code, &KeyPair::generate().unwrap())).await.unwrap();
        }
        // The first has expired by now, and the second was superseded.
        let revoked = control.snapshot().revoked.clone();
        assert_eq!(revoked.len(), 1, "{revoked:?}");
    }

    #[tokio::test]
    async fn controls_own_certificate_is_renewed_in_time() {
        let (_directory, control) = fleet().await;
        let due = || *control.own_renew_at.lock().unwrap();
        let first = due();
        control.clock.advance(15 * HOUR);
        control.renew_own();
        assert_eq!(due(), first, "not before two thirds");
        control.clock.advance(2 * HOUR);
        control.renew_own();
        assert!(15 * HOUR < due().0 - control.clock.unix().0, "and for as long again");
    }

    async fn fleet() -> (tempfile::TempDir, Arc<Control>) {
        let (directory, control) = crate::state::writer::tests::open("").await;
        let (id, site) = ("a1".parse().unwrap(), "s1".parse().unwrap());
        control.set_site(Site::new(site, vec![])).await.unwrap();
        let appliance = Appliance::new(id, "s1".parse().unwrap(), Weight::ONE);
        control.set_appliance(appliance).await.unwrap();
        (directory, control)
    }

    fn ask(code: &Code, key: &KeyPair) -> Enrol {
        Enrol {
            kind: MemberKind::Appliance,
            name: "a1".to_owned(),
            secret: code.secret(),
            request: request(key),
            software: String::new(),
            machine: String::new(),
        }
    }

    fn request(key: &KeyPair) -> String {
        CertificateParams::default().serialize_request(key).unwrap().pem().unwrap()
    }

    fn seen(given: &Enrolled) -> Seen {
        use rustls::pki_types::CertificateDer;
        use rustls::pki_types::pem::PemObject;
        let der = CertificateDer::from_pem_slice(given.certificate.as_bytes()).unwrap();
        identity::member::read(&der).unwrap()
    }
}
