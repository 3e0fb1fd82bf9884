//! The secrets of the control plane: keys that sign playback tokens, and the key that seals grants
//! and steering URLs.
//!
//! One file in the state directory, readable by its owner only. Appliances get public keys.

use std::path::Path;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use aws_lc_rs::{constant_time, hmac};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use director::TokenRotation;
use director::front::Sealed;
use identity::secret_file::{SecretError, SecretFile};
use model::id::ObjectId;
use model::manifest::TokenKey;
use model::units::UnixSeconds;
use playback::token::{self, Session, SigningInput, assemble, is_kid};
use serde::{Deserialize, Serialize};
use wire::v1::fleet::KeyOut;
use wire::v1::replica;

use crate::members::access::{Known, NoRole};
use crate::members::authority::random;

/// Secrets by which tokens and steering URLs are signed.
pub struct Keys {
    token: Vec<(String, Ed25519KeyPair)>,
    steering: hmac::Key,
    /// In a front only.
    api: Vec<Known>,
    /// As on disk: fronts get the same.
    stored: Stored,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    /// Hex.
    steering: String,
    token: Vec<StoredToken>,
    /// A front's copy of the writer's API tokens, so that it knows them while the writer is away.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    api: Vec<replica::ApiToken>,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredToken {
    kid: String,
    /// Hex.
    seed: String,
    /// Since when it is announced; none once it signs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    announced_unix_s: Option<u64>,
    /// When it is of no more use; none before it has been replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retires_unix_s: Option<u64>,
}

impl Keys {
    /// Reads the keys in `state`, or makes them on the first start.
    pub fn open(state: &Path) -> Result<Self, SecretError> {
        match Self::load(state)? {
            Some(keys) => Ok(keys),
            None => Self::write(state, &new_keys()),
        }
    }

    /// Reads the keys in `state`; none if there are none.
    pub(crate) fn load(state: &Path) -> Result<Option<Self>, SecretError> {
        let Some(text) = FILE.read(state)? else { return Ok(None) };
        let stored = toml::from_str(&text).map_err(|error| error.message().to_owned());
        let keys = stored.and_then(Self::from_stored);
        keys.map(Some).map_err(|reason| FILE.damaged(state, reason))
    }

    /// What a front gets, kept in its `state`. Not written again if nothing has changed.
    pub(crate) fn given(state: &Path, given: &replica::Keys) -> Result<Self, SecretError> {
        let token = |key: &replica::SecretKey| StoredToken::new(key.kid.clone(), key.seed.clone());
        let stored = Stored {
            steering: given.steering.clone(),
            token: given.token.iter().map(token).collect(),
            api: given.api.clone(),
        };
        match Self::load(state) {
            Ok(Some(known)) if known.stored == stored => Ok(known),
            _ => Self::write(state, &stored),
        }
    }

    /// The writer's API tokens, in a front.
    pub(crate) fn api(&self) -> Vec<Known> {
        self.api.clone()
    }

    /// What fronts need to begin playbacks, to answer for those that others began, and to know who
    /// may ask.
    pub(crate) fn secrets<'a>(&self, all: impl Iterator<Item = &'a Known>) -> replica::Keys {
        let token =
            |key: &StoredToken| replica::SecretKey { kid: key.kid.clone(), seed: key.seed.clone() };
        let api = |known: &Known| replica::ApiToken {
            id: known.id.clone(),
            name: known.name.clone(),
            role: known.role.to_string(),
            hash: ObjectId(known.hash).to_string(),
        };
        let Stored { steering, token: keys, .. } = &self.stored;
        replica::Keys {
            steering: steering.clone(),
            token: keys.iter().map(token).collect(),
            api: all.map(api).collect(),
        }
    }

    /// Makes the next key and announces it. None if one is announced already, or if too many wait
    /// for their last tokens to expire.
    pub(crate) fn announce(
        &self,
        state: &Path,
        now: UnixSeconds,
    ) -> Result<Option<Self>, SecretError> {
        let mut stored = self.stored.clone();
        let is_under_way = stored.token.iter().any(|key| key.announced_unix_s.is_some());
        if is_under_way || KEYS_MAX <= stored.token.len() {
            return Ok(None);
        }
        let number = |key: &StoredToken| key.kid.strip_prefix('k')?.parse::<u32>().ok();
        let newest = stored.token.iter().filter_map(number).max().unwrap_or(0);
        let seed = ObjectId(random()).to_string();
        let mut key = StoredToken::new(format!("k{}", newest.wrapping_add(1)), seed);
        key.announced_unix_s = Some(now.0);
        stored.token.push(key);
        Self::write(state, &stored).map(Some)
    }

    /// The announced key signs from now on; the one before is checked until `retires`. None if none
    /// is announced.
    pub(crate) fn use_next(
        &self,
        state: &Path,
        retires: UnixSeconds,
    ) -> Result<Option<Self>, SecretError> {
        let mut stored = self.stored.clone();
        let next = stored.token.iter().position(|key| key.announced_unix_s.is_some());
        let Some(next) = next else { return Ok(None) };
        stored.token[0].retires_unix_s = Some(retires.0);
        let mut next = stored.token.remove(next);
        next.announced_unix_s = None;
        stored.token.insert(0, next);
        Self::write(state, &stored).map(Some)
    }

    /// Keys that are of no more use go. None if there are none.
    pub(crate) fn drop_old(
        &self,
        state: &Path,
        now: UnixSeconds,
    ) -> Result<Option<Self>, SecretError> {
        let mut stored = self.stored.clone();
        stored.token.retain(|key| key.retires_unix_s.is_none_or(|at| now.0 < at));
        if stored == self.stored {
            return Ok(None);
        }
        Self::write(state, &stored).map(Some)
    }

    /// Where a rotation stands.
    pub(crate) fn rotation(&self) -> TokenRotation {
        let keys = &self.stored.token;
        TokenRotation {
            announced: keys.iter().find_map(|key| key.announced_unix_s).map(UnixSeconds),
            retires: keys.iter().filter_map(|key| key.retires_unix_s).min().map(UnixSeconds),
        }
    }

    /// The keys of playback tokens, for people; the first signs.
    pub(crate) fn shown(&self) -> Vec<KeyOut> {
        let shown = |(index, key): (usize, &StoredToken)| KeyOut {
            kid: key.kid.clone(),
            signs: index == 0,
            announced_unix_s: key.announced_unix_s,
            retires_unix_s: key.retires_unix_s,
        };
        self.stored.token.iter().enumerate().map(shown).collect()
    }

    fn write(state: &Path, stored: &Stored) -> Result<Self, SecretError> {
        let keys = Self::from_stored(stored.clone());
        let keys = keys.map_err(|reason| FILE.damaged(state, reason))?;
        FILE.write(state, &toml::to_string(stored).expect("strings always become TOML"))?;
        Ok(keys)
    }

    /// What appliances need to check tokens.
    pub fn public(&self) -> Vec<TokenKey> {
        let key = |(kid, pair): &(String, Ed25519KeyPair)| TokenKey {
            kid: kid.clone(),
            public_key: pair.public_key().as_ref().try_into().expect("Ed25519 keys have 32 bytes"),
        };
        self.token.iter().map(key).collect()
    }

    /// A session that nobody can guess.
    pub fn session(&self) -> Session {
        Session::of_random(random())
    }

    /// A token that gives `grant`.
    pub fn token(&self, grant: token::Grant<'_>) -> String {
        let (kid, pair) = self.token.first().expect("from_stored refuses none");
        let signature = pair.sign(SigningInput::new(kid, grant).as_bytes());
        assemble(
            kid,
            grant,
            signature.as_ref().try_into().expect("Ed25519 signatures have 64 bytes"),
        )
    }

    /// What travels in a URL: `{session}.{expires}.{fields}.{mac}`.
    pub fn seal<T: Sealed>(&self, sealed: &T) -> String {
        let (session, expires) = sealed.life();
        let text = format!("{session}.{}.{}", expires.0, sealed.fields());
        let mac = URL_SAFE_NO_PAD.encode(self.mac(T::CONTEXT, &text));
        format!("{text}.{mac}")
    }

    /// What was sealed with our key as one of this kind. One MAC, whatever is asked.
    pub fn unseal<T: Sealed>(&self, text: &str) -> Option<T> {
        if SEALED_LEN_MAX < text.len() {
            return None;
        }
        let (text, mac) = text.rsplit_once('.')?;
        // The decoder refuses less room than its own estimate.
        let mut given = [0; 2 * MAC_LEN];
        let len = URL_SAFE_NO_PAD.decode_slice(mac, &mut given).ok()?;
        constant_time::verify_slices_are_equal(&self.mac(T::CONTEXT, text), &given[..len]).ok()?;
        let (session, rest) = text.split_once('.')?;
        let (expires, fields) = rest.split_once('.')?;
        T::parse(session.parse().ok()?, UnixSeconds(expires.parse().ok()?), fields)
    }

    fn mac(&self, context: &str, text: &str) -> [u8; MAC_LEN] {
        let mut mac = hmac::Context::with_key(&self.steering);
        mac.update(context.as_bytes());
        mac.update(b"\n");
        mac.update(text.as_bytes());
        let tag = mac.sign();
        *tag.as_ref().first_chunk().expect("SHA-256 gives 32 bytes")
    }

    fn from_stored(stored: Stored) -> Result<Self, String> {
        let seed = |text: &str| {
            text.parse::<ObjectId>()
                .map(|id| id.0)
                .map_err(|_| "a key is not 64 hex digits".to_owned())
        };
        let mut token = Vec::new();
        for StoredToken { kid, seed: text, .. } in &stored.token {
            if !is_kid(kid) {
                return Err(format!("\"{kid}\" is not a key id: use 1 to 16 of a-z and 0-9"));
            }
            let pair = Ed25519KeyPair::from_seed_unchecked(&seed(text)?);
            token.push((kid.clone(), pair.map_err(|error| error.to_string())?));
        }
        if token.is_empty() {
            return Err("it has no [[token]] key".to_owned());
        }
        if stored.token[0].announced_unix_s.is_some() {
            return Err("its first [[token]] key is announced, and does not sign yet".to_owned());
        }
        let steering = hmac::Key::new(hmac::HMAC_SHA256, &seed(&stored.steering)?);
        let known = |token: &replica::ApiToken| {
            Ok::<_, String>(Known {
                id: token.id.clone(),
                name: token.name.clone(),
                role: token.role.parse().map_err(|error: NoRole| error.to_string())?,
                hash: seed(&token.hash)?,
                created: UnixSeconds(0),
                last_used: None,
            })
        };
        let api = stored.api.iter().map(known).collect::<Result<_, _>>()?;
        Ok(Self { token, steering, api, stored })
    }
}

impl StoredToken {
    fn new(kid: String, seed: String) -> Self {
        Self { kid, seed, announced_unix_s: None, retires_unix_s: None }
    }
}

fn new_keys() -> Stored {
    let hex = || ObjectId(random()).to_string();
    let token = vec![StoredToken::new("k1".to_owned(), hex())];
    Stored { steering: hex(), token, api: Vec::new() }
}

pub(crate) const FILE: SecretFile = SecretFile {
    name: "keys.toml",
    exposed: "delete it (running playbacks end) and restart",
    damaged: "restore it from a backup, or delete it (running playbacks end)",
};

/// Rotations are rare: so many at a time only when somebody asks for them in a row.
const KEYS_MAX: usize = 8;

/// 128 bits: nobody guesses one, and what is sealed ends within hours.
const MAC_LEN: usize = 16;

/// The fields of a ticket, a playback, and a seal; more is not looked at.
const SEALED_LEN_MAX: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::members::access::Role;
    use director::front::{Grant, Ticket};
    use playback::token::Scope;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn tokens_are_good_for_whoever_has_the_public_key_also_after_a_restart() {
        let state = tempfile::tempdir().unwrap();
        let keys = Keys::open(state.path()).unwrap();
        let scope = Scope::below("film-1", "v").unwrap();
        let grant = token::Grant { session: keys.session(), expires: UnixSeconds(1000), scope };
        let token = keys.token(grant);
        let public = Keys::open(state.path()).unwrap().public();
        let verified = token::verify(&public, &token, "film-1", "v/a.mp4", UnixSeconds(999));
        assert_eq!(verified, Ok(grant));
    }

    #[test]
    fn a_grant_and_a_ticket_come_back_and_changed_ones_do_not() {
        let state = tempfile::tempdir().unwrap();
        let keys = Keys::open(state.path()).unwrap();
        let grant = Grant {
            session: keys.session(),
            expires: UnixSeconds(1000),
            asset: "film.1".parse().unwrap(),
            client: Some("10.0.0.0/8".parse().unwrap()),
        };
        let ticket = ticket(&keys);
        let again = Keys::open(state.path()).unwrap();
        let (sealed_grant, sealed_ticket) = (keys.seal(&grant), keys.seal(&ticket));
        assert_eq!(again.unseal(&sealed_grant), Some(grant));
        assert_eq!(again.unseal(&sealed_ticket), Some(ticket));
        assert_eq!(again.unseal::<Ticket>(&sealed_grant), None, "a grant is no ticket");
        assert_eq!(again.unseal::<Grant>(&sealed_ticket), None, "nor a ticket a grant");
        let seals = [Grant::CONTEXT, Ticket::CONTEXT].map(|context| keys.mac(context, "text"));
        assert_ne!(seals[0], seals[1], "whatever their fields come to look like");
        for text in [&sealed_grant, &sealed_ticket] {
            for at in 0..text.len() {
                let mut changed = text.clone().into_bytes();
                changed[at] ^= 1;
                let changed = String::from_utf8(changed).unwrap();
                assert_eq!(keys.unseal::<Grant>(&changed), None, "{changed}");
                assert_eq!(keys.unseal::<Ticket>(&changed), None, "{changed}");
            }
        }
        let (long, more) = ("x".repeat(SEALED_LEN_MAX + 1), "A".repeat(SEALED_LEN_MAX / 2));
        let (longer, longest) = (format!("{sealed_ticket}AA"), format!("{sealed_ticket}{more}"));
        let cut = &sealed_ticket[..sealed_ticket.len() - 2];
        for bad in ["", ".", "..", "a.b.c", cut, &long, &longer, &longest] {
            assert_eq!(keys.unseal::<Ticket>(bad), None);
        }
    }

    fn ticket(keys: &Keys) -> Ticket {
        Ticket {
            session: keys.session(),
            expires: UnixSeconds(1000),
            version: "film-1.2".parse().unwrap(),
            client: "2001:db8::/32".parse().unwrap(),
            plain: true,
            pathways: vec!["a1".parse().unwrap(), "b.2".parse().unwrap()],
            parts: std::collections::BTreeMap::new(),
        }
    }

    #[test]
    fn a_front_has_the_same_keys_also_after_a_restart() {
        let (writer, front) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let keys = Keys::open(writer.path()).unwrap();
        assert!(Keys::load(front.path()).unwrap().is_none());
        let known = Known {
            id: "0123456789ab".to_owned(),
            name: "web".to_owned(),
            role: Role::Service,
            hash: [7; 32],
            created: UnixSeconds(0),
            last_used: None,
        };
        let secrets = keys.secrets(std::iter::once(&known));
        let given = Keys::given(front.path(), &secrets).unwrap();
        let again = Keys::load(front.path()).unwrap().unwrap();
        assert_eq!(again.api(), [known]);
        assert_eq!((given.public(), again.public()), (keys.public(), keys.public()));
        let ticket = ticket(&keys);
        assert_eq!(again.unseal(&keys.seal(&ticket)), Some(ticket));

        let written = || fs::metadata(front.path().join(FILE.name)).unwrap().modified().unwrap();
        let before = written();
        Keys::given(front.path(), &secrets).unwrap();
        assert_eq!(written(), before, "nothing new is not written");
        let bad = replica::Keys { token: Vec::new(), ..secrets };
        assert!(matches!(Keys::given(front.path(), &bad), Err(SecretError::Damaged { .. })));
        let kept = Keys::load(front.path()).unwrap().unwrap();
        assert_eq!(kept.public(), keys.public(), "what cannot be used replaces nothing");
    }

    #[test]
    fn a_rotation_survives_restarts_and_every_token_is_good_for_its_time() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path();
        let at = UnixSeconds;
        let scope = Scope::whole("film-1").unwrap();
        let token = |keys: &Keys, expires| {
            keys.token(token::Grant { session: keys.session(), expires: at(expires), scope })
        };
        let is_good = |keys: &Keys, token: &str, now| {
            token::verify(&keys.public(), token, "film-1", "v.mp4", at(now)).is_ok()
        };
        let keys = Keys::open(state).unwrap();
        let first = token(&keys, 200);
        assert!(keys.announce(state, at(10)).unwrap().is_some());
        let keys = Keys::open(state).unwrap();
        assert!(keys.announce(state, at(11)).unwrap().is_none(), "one at a time");
        assert_eq!(keys.rotation(), TokenRotation { announced: Some(at(10)), retires: None });
        let second = token(&keys, 210);
        assert!(second.starts_with("k1."), "announced is not used: {second}");
        keys.use_next(state, at(300)).unwrap().unwrap();
        let keys = Keys::open(state).unwrap();
        assert_eq!(keys.rotation(), TokenRotation { announced: None, retires: Some(at(300)) });
        let third = token(&keys, 400);
        assert!(third.starts_with("k2."), "{third}");
        for token in [&first, &second, &third] {
            assert!(is_good(&keys, token, 199), "{token}");
        }
        assert!(keys.drop_old(state, at(299)).unwrap().is_none());
        keys.drop_old(state, at(300)).unwrap().unwrap();
        let keys = Keys::open(state).unwrap();
        assert_eq!(keys.rotation(), TokenRotation::default());
        assert!(is_good(&keys, &third, 399) && !is_good(&keys, &first, 100));
        assert!(keys.use_next(state, at(500)).unwrap().is_none());
        let keys = keys.announce(state, at(500)).unwrap().unwrap();
        assert_eq!(keys.shown()[1].kid, "k3");
    }

    #[test]
    fn two_sessions_differ() {
        let state = tempfile::tempdir().unwrap();
        let keys = Keys::open(state.path()).unwrap();
        assert_ne!(keys.session(), keys.session());
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let state = tempfile::tempdir().unwrap();
        Keys::open(state.path()).unwrap();
        let path = state.path().join(FILE.name);
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(Keys::open(state.path()), Err(SecretError::Exposed { mode: 0o640, .. })));
    }

    #[test]
    fn a_damaged_file_is_refused_and_not_replaced() {
        let state = tempfile::tempdir().unwrap();
        let path = state.path().join(FILE.name);
        for text in ["", "steering = \"00\"\ntoken = []", "nonsense"] {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            assert!(matches!(Keys::open(state.path()), Err(SecretError::Damaged { .. })), "{text}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }
}
