//! Who may do what: API tokens with roles, the page's sessions, and a bound on failed attempts.
//!
//! ```text
//! Authorization: Bearer nc_{id}_{secret} ──> SHA-256 ──> token ──> Actor: id, name, role
//! Cookie of a login ──> session ──> the same token, as long as it lives
//! neither, no token at all, and this machine, by no proxy ──> everybody is admin
//! ```
//!
//! Tokens are in memory, read anew every second, so that one which the command line made beside a
//! running process counts soon. A secret has 256 random bits: it cannot be guessed, so the bound
//! on failed attempts keeps strangers from filling logs, and never keeps out who has a good token
//! and shares an address with them.

mod sessions;
mod token;

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use model::units::{Instant, UnixSeconds};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::connections::attempts::Attempts;

pub(crate) use sessions::{SESSION_LIFETIME, SessionKey, Sessions};
pub use token::Token;
pub(crate) use token::{HASH_LEN, hash_fits};

/// What a token allows. Each of the last three allows what the one before it does.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A program that begins and ends playbacks, and sees which assets there are.
    Service,
    /// Looks, and changes nothing.
    Viewer,
    /// Changes sites, appliances, assets and the policy.
    Operator,
    /// Also tokens, keys and the audit log.
    Admin,
}

/// A token as it is kept: without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// The public part of it.
    pub id: String,
    /// For people.
    pub name: String,
    pub role: Role,
    /// SHA-256 of its secret.
    pub hash: [u8; HASH_LEN],
    pub created: UnixSeconds,
    /// When it was last used, down to the hour.
    pub last_used: Option<UnixSeconds>,
}

/// A caller of the API, by its token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Actor {
    /// Its token; none where everything is open.
    pub(crate) token: Option<String>,
    pub(crate) name: String,
    pub(crate) role: Role,
}

/// The tokens, sessions and attempts of a running process.
#[derive(Debug)]
pub(crate) struct Access {
    tokens: RwLock<Arc<BTreeMap<String, Known>>>,
    sessions: Mutex<Sessions>,
    attempts: Mutex<Attempts>,
    /// Used since they were last stored. Bounded by the tokens there are.
    used: Mutex<BTreeMap<String, UnixSeconds>>,
    /// Only programs on this machine can connect.
    is_local: bool,
}

impl Access {
    /// What is known at the start. `is_local`: the listener's address is of the loopback network.
    pub(crate) fn new(tokens: Vec<Known>, is_local: bool) -> Self {
        let access = Self {
            tokens: RwLock::default(),
            sessions: Mutex::default(),
            attempts: Mutex::default(),
            used: Mutex::default(),
            is_local,
        };
        access.replace(tokens);
        access
    }

    /// These are the tokens from now on.
    pub(crate) fn replace(&self, tokens: Vec<Known>) {
        let tokens = tokens.into_iter().map(|token| (token.id.clone(), token)).collect();
        *self.tokens.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(tokens);
    }

    pub(crate) fn tokens(&self) -> Arc<BTreeMap<String, Known>> {
        self.tokens.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// No token exists and only this machine can connect: everybody is admin.
    pub(crate) fn is_open(&self) -> bool {
        self.is_local && self.tokens().is_empty()
    }

    /// Whose token this is, if it is one.
    pub(crate) fn bearer(&self, text: &str, now: UnixSeconds) -> Option<Actor> {
        let token: Token = text.parse().ok()?;
        let hash = token.hash();
        let tokens = self.tokens();
        let known = tokens.get(token.id())?;
        hash_fits(&known.hash, &hash).then(|| self.actor(known, now))
    }

    /// Whose session this is, if it lives and so does its token.
    pub(crate) fn session(&self, text: &str, at: Instant, now: UnixSeconds) -> Option<Actor> {
        let key: SessionKey = text.parse().ok()?;
        let token = lock(&self.sessions).token(at, &key)?;
        self.tokens().get(&token).map(|known| self.actor(known, now))
    }

    pub(crate) fn log_in(&self, token: &str, at: Instant) -> SessionKey {
        lock(&self.sessions).begin(at, token)
    }

    /// Ends a session.
    pub(crate) fn log_out(&self, text: &str) {
        if let Ok(key) = text.parse() {
            lock(&self.sessions).end(&key);
        }
    }

    /// Counts a failed attempt; false if there were too many from there.
    pub(crate) fn failed(&self, peer: IpAddr, at: Instant) -> bool {
        lock(&self.attempts).failed(peer, at)
    }

    /// Tokens that were used in an hour that is not stored yet.
    pub(crate) fn take_used(&self) -> BTreeMap<String, UnixSeconds> {
        std::mem::take(&mut *lock(&self.used))
    }

    fn actor(&self, known: &Known, now: UnixSeconds) -> Actor {
        let hour = UnixSeconds(now.0 - now.0 % USED_COARSE_S);
        if known.last_used.is_none_or(|last| last < hour) {
            lock(&self.used).insert(known.id.clone(), hour);
        }
        Actor { token: Some(known.id.clone()), name: known.name.clone(), role: known.role }
    }
}

impl Actor {
    /// Whoever asks where everything is open.
    pub(crate) fn anybody() -> Self {
        Self { token: None, name: "anybody on this machine".to_owned(), role: Role::Admin }
    }
}

impl Role {
    const NAMES: [(Self, &'static str); 4] = [
        (Self::Service, "service"),
        (Self::Viewer, "viewer"),
        (Self::Operator, "operator"),
        (Self::Admin, "admin"),
    ];
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMES.iter().find(|(role, _)| role == self).map_or("", |(_, name)| name);
        f.write_str(name)
    }
}

impl FromStr for Role {
    type Err = NoRole;
    fn from_str(text: &str) -> Result<Self, NoRole> {
        let found = Self::NAMES.iter().find(|(_, name)| *name == text);
        found.map(|(role, _)| *role).ok_or_else(|| NoRole(text.to_owned()))
    }
}

/// Not a role.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a role: use viewer, operator, admin or service")]
pub struct NoRole(String);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An hour: enough to see which token is not used any more, and a write per token and hour.
const USED_COARSE_S: u64 = 3600;

#[cfg(test)]
mod tests {
    use super::*;
    use model::units::Nanos;

    const NOW: UnixSeconds = UnixSeconds(1_000_000);

    #[test]
    fn a_token_is_good_for_its_text_and_for_nothing_near_it() {
        let (token, known) = token(Role::Viewer);
        let access = Access::new(vec![known.clone()], true);
        let text = token.text();
        let actor = access.bearer(&text, NOW).unwrap();
        assert_eq!((actor.token, actor.role), (Some(known.id), Role::Viewer));
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] ^= 1;
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(access.bearer(&changed, NOW), None, "{changed}");
        }
        for bad in ["", "nc_", "nc__", &text[..79], &format!("{text}0"), &text.to_uppercase()] {
            assert_eq!(access.bearer(bad, NOW), None, "{bad}");
        }
    }

    #[test]
    fn a_session_ends_with_its_token_with_the_logout_and_with_its_time() {
        let (_, known) = token(Role::Operator);
        let access = Access::new(vec![known.clone()], true);
        let at = Instant(0);
        let key = access.log_in(&known.id, at).text();
        assert_eq!(access.session(&key, at, NOW).unwrap().role, Role::Operator);
        let late = at + SESSION_LIFETIME;
        assert!(access.session(&key, late, NOW).is_none());
        let key = access.log_in(&known.id, at).text();
        access.log_out(&key);
        assert!(access.session(&key, at, NOW).is_none());
        let key = access.log_in(&known.id, at).text();
        access.replace(vec![]);
        assert!(access.session(&key, at, NOW).is_none());
    }

    #[test]
    fn only_a_local_process_without_tokens_is_open() {
        let (_, known) = token(Role::Admin);
        assert!(Access::new(vec![], true).is_open());
        assert!(!Access::new(vec![], false).is_open());
        assert!(!Access::new(vec![known], true).is_open());
    }

    #[test]
    fn use_is_noted_once_an_hour() {
        let (token, mut known) = token(Role::Admin);
        let access = Access::new(vec![known.clone()], true);
        access.bearer(&token.text(), NOW);
        let hour = UnixSeconds(997_200);
        assert_eq!(access.take_used(), BTreeMap::from([(known.id.clone(), hour)]));
        known.last_used = Some(hour);
        access.replace(vec![known]);
        access.bearer(&token.text(), NOW);
        assert!(access.take_used().is_empty());
        access.bearer(&token.text(), UnixSeconds(NOW.0 + 3600));
        assert_eq!(access.take_used().len(), 1);
    }

    #[test]
    fn attempts_are_counted_by_address() {
        let access = Access::new(vec![], true);
        let (peer, other): (IpAddr, IpAddr) =
            ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let mut now = Instant(0);
        let good = (0..1000).take_while(|_| access.failed(peer, now)).count();
        assert_eq!(good, 20);
        assert!(access.failed(other, now));
        now = now + Nanos::seconds(60);
        assert!(access.failed(peer, now));
    }

    fn token(role: Role) -> (Token, Known) {
        let token = Token::random();
        let known = Known {
            id: token.id().to_owned(),
            name: "t".to_owned(),
            role,
            hash: token.hash(),
            created: NOW,
            last_used: None,
        };
        (token, known)
    }
}
