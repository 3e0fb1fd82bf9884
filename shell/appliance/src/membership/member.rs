//! This appliance as a member of its fleet: its identity, used by several threads, renewed by one.
//!
//! ```text
//! enrol ──> identity.json ──> Own ──> clients of control, fronts and siblings; the peer listener
//!                              ^ │
//!          renewal, new keys ──┘ └──> the next connection has what is new
//! ```
//!
//! An identity that has expired stops reports, manifests and fill from siblings, and nothing else:
//! what is held is served on.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use identity::code::Code;
use identity::credentials::{Credentials, CredentialsError};
use identity::dial::Dial;
use identity::enrol::{self, About, Address, EnrolError};
use identity::member::Member;
use model::id::ApplianceId;
use model::manifest::TokenKey;
use model::units::{Nanos, UnixSeconds};
use ureq::tls::TlsConfig;

use crate::clock;
use crate::lock::lock;
use crate::storage::ledger::Ledger;
use crate::storage::source;

/// How often to look whether it is time to renew, and whether somebody has enrolled again.
const LOOK_EVERY: Nanos = Nanos::seconds(10);
/// Waits between tries to renew: from the first, doubled, to the longest.
const RETRY_FIRST: Nanos = Nanos::seconds(1);
const RETRY_MAX: Nanos = Nanos::seconds(60);

/// Why an appliance has no identity to run with.
#[derive(Debug, thiserror::Error)]
pub enum MemberError {
    /// There is none, or it is damaged.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    #[error(
        "the identity in {state} is of {found}, and this is {wanted}: correct `name`, or enrol \
         with a one-time code for {wanted}"
    )]
    Other { state: PathBuf, found: Member, wanted: Member },
    #[error("cannot make the state directory {path}: {error}")]
    State { path: PathBuf, error: std::io::Error },
    /// Control did not give one.
    #[error(transparent)]
    Enrol(#[from] EnrolError),
}

/// The identity that is kept in a state directory, if it is this appliance's.
pub fn load(state: &Path, name: &ApplianceId) -> Result<Credentials, MemberError> {
    let credentials = Credentials::load(state)?;
    let (found, wanted) = (credentials.seen().member.clone(), Member::appliance(name));
    if found != wanted {
        return Err(MemberError::Other { state: state.to_owned(), found, wanted });
    }
    Ok(credentials)
}

/// Trades a one-time code for an identity and keeps it. A process that serves takes it up by
/// itself.
pub fn enrol(
    state: &Path,
    name: &ApplianceId,
    control: &Address,
    code: &Code,
) -> Result<Credentials, MemberError> {
    // First of all: a code is good for one try, and should not be lost to a full drive.
    std::fs::create_dir_all(state)
        .map_err(|error| MemberError::State { path: state.to_owned(), error })?;
    let about = About { software: env!("CARGO_PKG_VERSION"), machine: &enrol::machine() };
    let credentials = enrol::enrol(control, &Member::appliance(name), code, about)?;
    credentials.save(state)?;
    // Whoever serves may be another user than the one who enrols.
    if let Err(error) = give_to_owner_of(state) {
        tracing::warn!(%error, "the identity is whoever ran this's: see that `serve` can read it");
    }
    Ok(credentials)
}

/// The identity's file belongs to whom the directory belongs to, as far as we may say so.
fn give_to_owner_of(state: &Path) -> std::io::Result<()> {
    let folder = std::fs::metadata(state)?;
    let file = state.join(identity::credentials::FILE.name);
    if std::fs::metadata(&file)?.uid() == folder.uid() {
        return Ok(());
    }
    std::os::unix::fs::chown(file, Some(folder.uid()), Some(folder.gid()))
}

/// The identity of a running appliance.
pub(crate) struct Own {
    state: PathBuf,
    held: Mutex<Arc<Held>>,
}

/// An identity, ready for use.
pub(crate) struct Held {
    pub(crate) credentials: Credentials,
    pub(crate) client: TlsConfig,
    /// Another one for every identity that was put in force.
    pub(crate) epoch: u64,
}

impl Own {
    pub(crate) fn new(state: &Path, credentials: Credentials) -> Result<Self, CredentialsError> {
        let client = credentials.client_tls()?;
        let held = Mutex::new(Arc::new(Held { credentials, client, epoch: 0 }));
        Ok(Self { state: state.to_owned(), held })
    }

    pub(crate) fn held(&self) -> Arc<Held> {
        Arc::clone(&lock(&self.held))
    }

    /// How long it is good for.
    pub(crate) fn seconds_left(&self) -> u64 {
        self.held().credentials.seen().not_after.0.saturating_sub(clock::wall().0)
    }

    /// Keys that manifests may be signed with.
    pub(crate) fn signing_keys(&self) -> Vec<TokenKey> {
        self.held().credentials.signing_keys()
    }

    /// Believes these keys and no others from now on, after a restart too.
    pub(crate) fn believe(&self, keys: &[TokenKey]) -> Result<(), CredentialsError> {
        let mut held = lock(&self.held);
        if held.credentials.signing_keys() == keys {
            return Ok(());
        }
        let credentials = held.credentials.with_signing_keys(keys);
        credentials.save(&self.state)?;
        // For TLS it is the same: no connection has to be made anew.
        let (client, epoch) = (held.client.clone(), held.epoch);
        *held = Arc::new(Held { credentials, client, epoch });
        Ok(())
    }

    /// Puts the next identity in force and keeps it.
    fn replace(&self, credentials: Credentials) -> Result<(), CredentialsError> {
        let client = credentials.client_tls()?;
        let mut held = lock(&self.held);
        let saved = credentials.save(&self.state);
        // In force even if it cannot be kept: the one before it ends soon.
        *held = Arc::new(Held { credentials, client, epoch: held.epoch + 1 });
        saved
    }

    /// Takes up what `enrol` has left in the state directory, if it is another identity.
    fn reload(&self) -> Result<bool, CredentialsError> {
        let mut held = lock(&self.held);
        let found = Credentials::load(&self.state)?;
        let (new, old) = (found.seen(), held.credentials.seen());
        if new.serial == old.serial || new.member != old.member || new.not_after < old.not_after {
            return Ok(false);
        }
        let client = found.client_tls()?;
        *held = Arc::new(Held { credentials: found, client, epoch: held.epoch + 1 });
        Ok(true)
    }
}

/// A client for members of the fleet that has the identity in force. Each thread has its own.
pub(crate) struct MemberClient {
    own: Arc<Own>,
    pub(crate) dial: Dial,
    made: Mutex<(u64, ureq::Agent)>,
    silence_max: Nanos,
}

impl MemberClient {
    pub(crate) fn new(own: Arc<Own>, silence_max: Nanos) -> Self {
        let (dial, held) = (Dial::default(), own.held());
        let agent = source::member_agent(&held.client, dial.clone(), silence_max);
        Self { own, dial, made: Mutex::new((held.epoch, agent)), silence_max }
    }

    /// The agent; connections of an identity that was replaced are let go.
    pub(crate) fn agent(&self) -> ureq::Agent {
        let held = self.own.held();
        let mut made = lock(&self.made);
        if made.0 != held.epoch {
            let agent = source::member_agent(&held.client, self.dial.clone(), self.silence_max);
            *made = (held.epoch, agent);
        }
        made.1.clone()
    }
}

/// Renews the identity when it is time, until all must stop.
pub(crate) fn renew(ledger: &Ledger, own: &Own, control: &Address) {
    let mut failures = 0;
    let mut said = None;
    loop {
        match own.reload() {
            Ok(true) => {
                tracing::info!(seconds = own.seconds_left(), "new identity taken up");
                (failures, said) = (0, None);
            }
            Ok(false) => {}
            Err(error) => tracing::debug!(%error, "identity on the drive cannot be used"),
        }
        let wait = if clock::wall() < own.held().credentials.renew_at() {
            LOOK_EVERY
        } else {
            match renew_now(own, control) {
                Ok(()) => {
                    tracing::info!(seconds = own.seconds_left(), "identity renewed");
                    (failures, said) = (0, None);
                    LOOK_EVERY
                }
                Err(text) => {
                    if said.as_ref() != Some(&text) {
                        tracing::warn!(reason = text, "identity not renewed");
                        ledger.note("control", text.clone());
                        said = Some(text);
                    }
                    failures += 1;
                    Nanos(RETRY_FIRST.0 << (failures - 1).min(8)).min(RETRY_MAX)
                }
            }
        };
        if !ledger.sleep_until(ledger.now() + wait) {
            return;
        }
    }
}

fn renew_now(own: &Own, control: &Address) -> Result<(), String> {
    let credentials = own.held().credentials.clone();
    let until = credentials.seen().not_after;
    if until <= clock::wall() {
        return Err(format!(
            "this appliance's certificate ended on {}, so that control and siblings refuse it. It \
             serves on what it holds. Get a one-time code from an operator and run the `enrol` \
             verb; no restart is needed",
            date(until)
        ));
    }
    let next = enrol::renew(control, &credentials).map_err(|error| {
        format!("the certificate, which ends on {}, is not renewed: {error}", date(until))
    })?;
    own.replace(next).map_err(|error| format!("the renewed identity is not kept: {error}"))
}

/// A time, for people.
pub fn date(at: UnixSeconds) -> String {
    let mut text = Vec::new();
    http1::date::write(at, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use identity::authority::Authority;
    use rcgen::{CertificateParams, KeyPair};

    /// An identity of `a1`, in a fleet of its own, good for so many seconds.
    pub(crate) fn credentials(seconds: u64) -> Credentials {
        let authority = Authority::create(clock::wall()).unwrap();
        let key = KeyPair::generate().unwrap();
        let request = CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap();
        let a1 = Member::appliance("a1");
        let mut serial = [0; 16];
        aws_lc_rs::rand::fill(&mut serial).unwrap();
        let issued = authority.issue(&a1, &request, serial, clock::wall(), seconds).unwrap();
        let given = wire::v1::identity::Enrolled {
            certificate: issued.certificate,
            authority: authority.certificate_pem().to_owned(),
            signing_keys: Vec::new(),
        };
        Credentials::new(&key.serialize_pem(), &given).unwrap()
    }

    fn key(kid: &str) -> TokenKey {
        TokenKey { kid: kid.to_owned(), public_key: [7; 32] }
    }

    #[test]
    fn an_identity_is_only_used_by_the_appliance_that_it_names() {
        let dir = tempfile::tempdir().unwrap();
        let missing = load(dir.path(), &"a1".parse().unwrap()).unwrap_err().to_string();
        assert!(missing.contains("has not enrolled") && missing.contains("`enrol`"), "{missing}");
        credentials(60).save(dir.path()).unwrap();
        assert!(load(dir.path(), &"a1".parse().unwrap()).is_ok());
        let other = load(dir.path(), &"a2".parse().unwrap()).unwrap_err().to_string();
        assert!(other.contains("of appliance a1, and this is appliance a2"), "{other}");
    }

    #[test]
    fn what_somebody_enrolled_meanwhile_is_taken_up_unless_it_ends_sooner() {
        let dir = tempfile::tempdir().unwrap();
        let own = Own::new(dir.path(), credentials(60)).unwrap();
        assert!(own.reload().is_err(), "there is no file");
        credentials(30).save(dir.path()).unwrap();
        assert!(!own.reload().unwrap());
        credentials(90).save(dir.path()).unwrap();
        assert!(own.reload().unwrap() && !own.reload().unwrap());
        assert_eq!(own.held().epoch, 1, "clients make their connections anew");
    }

    #[test]
    fn new_signing_keys_outlive_a_restart_and_a_renewal_brings_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let own = Own::new(dir.path(), credentials(60)).unwrap();
        own.believe(&[key("s2")]).unwrap();
        let loaded = load(dir.path(), &"a1".parse().unwrap()).unwrap();
        assert_eq!((loaded.signing_keys(), own.held().epoch), (vec![key("s2")], 0));
        own.replace(credentials(90)).unwrap();
        assert_eq!(own.signing_keys(), Vec::new());
    }
}
