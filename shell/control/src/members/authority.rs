//! Control's own secrets of the fleet: the authority, and the keys that sign manifests.
//!
//! ```text
//! authority.toml   key and certificate of the authority: made once, never changed
//! signing.toml     s1, or s1 and s2 while a rotation is under way: the first signs
//! ```
//!
//! Both belong in the backup of the state directory. Who has `authority.toml` can be anybody in the
//! fleet; who has `signing.toml` can tell appliances what to serve.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use identity::authority::{Authority, AuthorityError};
use identity::credentials::{Credentials, CredentialsError};
use identity::member::Member;
use identity::secret_file::{SecretError, SecretFile};
use identity::signing::SigningKey;
use model::id::ObjectId;
use model::manifest::TokenKey;
use model::units::UnixSeconds;
use rcgen::{CertificateParams, KeyPair};
use serde::{Deserialize, Serialize};
use wire::v1::identity::Enrolled;
use wire::v1::signed::Kind;

/// The keys that sign.
pub(crate) struct Signing {
    state: PathBuf,
    keys: Mutex<Keys>,
}

/// Keys that are in the file and do not sign yet.
pub(crate) struct Next(Keys);

/// Invariant: one key or two.
struct Keys {
    /// Seeds, as stored.
    stored: Stored,
    first: SigningKey,
    next: Option<SigningKey>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    key: Vec<StoredKey>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredKey {
    /// `s1`, `s2` and so on.
    kid: String,
    /// Hex.
    seed: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredAuthority {
    /// PEM.
    certificate: String,
    /// PKCS #8 PEM.
    key: String,
}

/// Why control has no identity of its own.
#[derive(Debug, thiserror::Error)]
pub enum OwnError {
    #[error("cannot make a key: {0}")]
    Key(rcgen::Error),
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
}

/// Reads the authority in `state`, or makes it on the first start.
pub(crate) fn open(state: &Path, now: UnixSeconds) -> Result<Authority, SecretError> {
    let damaged = |error: AuthorityError| AUTHORITY.damaged(state, error);
    if let Some(text) = AUTHORITY.read(state)? {
        let stored: StoredAuthority =
            toml::from_str(&text).map_err(|error| AUTHORITY.damaged(state, error.message()))?;
        return Authority::from_pem(&stored.key, &stored.certificate).map_err(damaged);
    }
    let authority = Authority::create(now).map_err(damaged)?;
    let (certificate, key) = (authority.certificate_pem().to_owned(), authority.key_pem());
    let text = toml::to_string(&StoredAuthority { certificate, key });
    AUTHORITY.write(state, &text.expect("two strings always become TOML"))?;
    let path = state.join(AUTHORITY.name);
    tracing::info!(path = %path.display(), "a new fleet: its authority was made. Back it up");
    Ok(authority)
}

/// Control's own identity: a key of this process alone, and a certificate for it.
pub(crate) fn own_identity(
    authority: &Authority,
    now: UnixSeconds,
    lifetime_s: u64,
) -> Result<Credentials, OwnError> {
    let key = KeyPair::generate().map_err(OwnError::Key)?;
    let request = CertificateParams::default().serialize_request(&key);
    let request = request.and_then(|request| request.pem()).map_err(OwnError::Key)?;
    let issued = authority.issue(&Member::control(), &request, random(), now, lifetime_s)?;
    let given = Enrolled {
        certificate: issued.certificate,
        authority: authority.certificate_pem().to_owned(),
        signing_keys: Vec::new(),
    };
    Ok(Credentials::new(&key.serialize_pem(), &given)?)
}

/// Bytes that nobody can guess.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes).expect("the kernel gives random bytes after its start");
    bytes
}

impl Signing {
    /// Reads the keys in `state`, or makes the first on the first start.
    pub(crate) fn open(state: &Path) -> Result<Self, SecretError> {
        let stored = match SIGNING.read(state)? {
            Some(text) => toml::from_str(&text).map_err(|error| error.message().to_owned()),
            None => {
                let stored = Stored { key: vec![new_key("s1")] };
                save(state, &stored)?;
                Ok(stored)
            }
        };
        let keys = stored.and_then(Keys::read).map_err(|reason| SIGNING.damaged(state, reason))?;
        Ok(Self { state: state.to_owned(), keys: Mutex::new(keys) })
    }

    /// `payload` in its envelope, signed with the first key.
    pub(crate) fn sign(&self, kind: Kind, payload: &[u8]) -> Vec<u8> {
        self.keys().first.sign(kind, payload)
    }

    /// The name of the key that signs now.
    pub(crate) fn kid(&self) -> String {
        self.keys().stored.key[0].kid.clone()
    }

    /// What whoever checks needs; the first signs.
    pub(crate) fn public(&self) -> Vec<TokenKey> {
        self.keys().public()
    }

    /// Begins a rotation: the next key is in the file, unless one was before. It counts once
    /// adopted.
    pub(crate) fn announce(&self) -> Result<Option<Next>, SecretError> {
        let keys = self.keys();
        if keys.next.is_some() {
            return Ok(None);
        }
        let kid = next_kid(&keys.stored.key[0].kid);
        let mut stored = keys.stored.clone();
        stored.key.push(new_key(&kid));
        self.save(stored).map(Some)
    }

    /// Ends a rotation: the next key is the first in the file. None if none is under way.
    pub(crate) fn switch(&self) -> Result<Option<Next>, SecretError> {
        let keys = self.keys();
        if keys.next.is_none() {
            return Ok(None);
        }
        let mut stored = keys.stored.clone();
        stored.key.remove(0);
        self.save(stored).map(Some)
    }

    /// What is in the file is in force.
    pub(crate) fn adopt(&self, Next(keys): Next) {
        *self.keys() = keys;
    }

    fn save(&self, stored: Stored) -> Result<Next, SecretError> {
        save(&self.state, &stored)?;
        Ok(Next(Keys::read(stored).expect("it was made by the lines above")))
    }

    fn keys(&self) -> MutexGuard<'_, Keys> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Keys {
    fn read(stored: Stored) -> Result<Self, String> {
        let key = |stored: &StoredKey| {
            if !wire::v1::signed::is_kid(&stored.kid) {
                return Err(format!("\"{}\" is not a key id", stored.kid));
            }
            let seed: ObjectId =
                stored.seed.parse().map_err(|_| "a seed is not 64 hex digits".to_owned())?;
            Ok(SigningKey::from_seed(&stored.kid, &seed.0))
        };
        let mut keys = stored.key.iter().map(key).collect::<Result<Vec<_>, _>>()?.into_iter();
        match (keys.next(), keys.next(), keys.next()) {
            (Some(first), next, None) => Ok(Self { stored, first, next }),
            (None, ..) | (Some(_), _, Some(_)) => Err("it should have one key or two".to_owned()),
        }
    }

    fn public(&self) -> Vec<TokenKey> {
        std::iter::once(&self.first).chain(&self.next).map(SigningKey::public).collect()
    }
}

fn save(state: &Path, stored: &Stored) -> Result<(), SecretError> {
    SIGNING.write(state, &toml::to_string(stored).expect("strings always become TOML"))
}

fn new_key(kid: &str) -> StoredKey {
    let (seed, _) = SigningKey::generate(kid);
    StoredKey { kid: kid.to_owned(), seed: ObjectId(seed).to_string() }
}

/// `s2` after `s1`.
fn next_kid(kid: &str) -> String {
    let number = kid.strip_prefix('s').and_then(|number| number.parse::<u64>().ok());
    format!("s{}", number.unwrap_or(0).saturating_add(1))
}

pub(crate) const AUTHORITY: SecretFile = SecretFile {
    name: "authority.toml",
    exposed: "see what to do in docs/operate/identity.md",
    damaged: "restore it from a backup. Without it every member of the fleet has to enrol again",
};
pub(crate) const SIGNING: SecretFile = SecretFile { name: "signing.toml", ..AUTHORITY };

#[cfg(test)]
mod tests {
    use super::*;
    use identity::signing::verify;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    const NOW: UnixSeconds = UnixSeconds(1_800_000_000);

    #[test]
    fn the_authority_and_its_signing_key_are_the_same_after_a_restart() {
        let state = tempfile::tempdir().unwrap();
        let made = open(state.path(), NOW).unwrap();
        let signing = Signing::open(state.path()).unwrap();
        let again = open(state.path(), UnixSeconds(NOW.0 + 1)).unwrap();
        assert_eq!(again.certificate_pem(), made.certificate_pem());
        assert_eq!(Signing::open(state.path()).unwrap().public(), signing.public());
        assert_eq!(signing.public()[0].kid, "s1");
        for name in [AUTHORITY.name, SIGNING.name] {
            let mode = fs::metadata(state.path().join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
    }

    #[test]
    fn files_that_others_can_read_and_damaged_ones_are_refused_and_not_replaced() {
        let state = tempfile::tempdir().unwrap();
        open(state.path(), NOW).unwrap();
        Signing::open(state.path()).unwrap();
        let refused = |name: &str| match name {
            "authority.toml" => open(state.path(), NOW).err(),
            _ => Signing::open(state.path()).err(),
        };
        for name in [AUTHORITY.name, SIGNING.name] {
            let path = state.path().join(name);
            fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
            let exposed = refused(name);
            assert!(matches!(exposed, Some(SecretError::Exposed { mode: 0o640, .. })));
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            let good = fs::read_to_string(&path).unwrap();
            let half = &good[..good.len() / 2];
            for text in ["", "key = []", "nonsense", half] {
                fs::write(&path, text).unwrap();
                assert!(matches!(refused(name), Some(SecretError::Damaged { .. })), "{text}");
                assert_eq!(fs::read_to_string(&path).unwrap(), text);
            }
        }
    }

    #[test]
    fn a_rotation_announces_the_next_key_before_it_signs() {
        let state = tempfile::tempdir().unwrap();
        let signing = Signing::open(state.path()).unwrap();
        let first = signing.public();
        assert!(signing.switch().unwrap().is_none(), "none is under way");
        signing.adopt(signing.announce().unwrap().unwrap());
        assert!(signing.announce().unwrap().is_none(), "one at a time");
        let both = Signing::open(state.path()).unwrap().public();
        assert_eq!(both, signing.public());
        assert_eq!((both.len(), &both[0], both[1].kid.as_str()), (2, &first[0], "s2"));
        let before = signing.sign(Kind::Manifest, b"x");
        assert!(verify(&first, Kind::Manifest, &before).is_ok());
        signing.adopt(signing.switch().unwrap().unwrap());
        let after = signing.sign(Kind::Manifest, b"x");
        assert!(verify(&first, Kind::Manifest, &after).is_err());
        assert_eq!(verify(&both, Kind::Manifest, &after), Ok(&b"x"[..]));
        assert_eq!(Signing::open(state.path()).unwrap().public(), [both[1].clone()]);
    }

    #[test]
    fn control_makes_its_own_identity() {
        let state = tempfile::tempdir().unwrap();
        let authority = open(state.path(), NOW).unwrap();
        let own = own_identity(&authority, NOW, 3600).unwrap();
        assert_eq!(own.seen().member, Member::control());
        assert_eq!(own.seen().not_after, UnixSeconds(NOW.0 + 3600));
    }
}
