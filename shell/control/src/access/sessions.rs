//! Logins of the page. In memory: a restart asks for the token again.

use std::collections::BTreeMap;
use std::str::FromStr;

use aws_lc_rs::digest;
use model::units::{Instant, Nanos};

use super::token::{HASH_LEN, NoToken, random_hex};

/// The value of the cookie.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SessionKey(String);

/// Sessions that may still be alive.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    /// By the hash of the key, so that the time of a search says nothing about keys. Invariant: at
    /// most `SESSIONS_MAX`.
    by_hash: BTreeMap<[u8; HASH_LEN], Session>,
}

#[derive(Debug)]
struct Session {
    token: String,
    began: Instant,
}

impl Sessions {
    /// A new session of this token. With too many of them the oldest ends.
    pub(crate) fn begin(&mut self, now: Instant, token: &str) -> SessionKey {
        self.by_hash.retain(|_, session| session.lives(now));
        if SESSIONS_MAX <= self.by_hash.len() {
            let oldest = self.by_hash.iter().min_by_key(|(_, session)| session.began);
            if let Some(hash) = oldest.map(|(hash, _)| *hash) {
                self.by_hash.remove(&hash);
            }
        }
        let key = SessionKey(random_hex::<KEY_LEN>());
        self.by_hash.insert(key.hash(), Session { token: token.to_owned(), began: now });
        key
    }

    /// The token of a session that lives.
    pub(crate) fn token(&self, now: Instant, key: &SessionKey) -> Option<String> {
        let session = self.by_hash.get(&key.hash()).filter(|session| session.lives(now));
        session.map(|session| session.token.clone())
    }

    /// Ends a session.
    pub(crate) fn end(&mut self, key: &SessionKey) {
        self.by_hash.remove(&key.hash());
    }
}

impl Session {
    fn lives(&self, now: Instant) -> bool {
        now.since(self.began) < SESSION_LIFETIME
    }
}

impl SessionKey {
    /// For the cookie.
    pub(crate) fn text(&self) -> String {
        self.0.clone()
    }

    fn hash(&self) -> [u8; HASH_LEN] {
        let digest = digest::digest(&digest::SHA256, self.0.as_bytes());
        *digest.as_ref().first_chunk().expect("SHA-256 gives 32 bytes")
    }
}

impl FromStr for SessionKey {
    type Err = NoToken;
    fn from_str(text: &str) -> Result<Self, NoToken> {
        let is_good = text.len() == 2 * KEY_LEN && text.bytes().all(|c| c.is_ascii_hexdigit());
        if is_good { Ok(Self(text.to_owned())) } else { Err(NoToken) }
    }
}

/// A working day with its breaks.
pub(crate) const SESSION_LIFETIME: Nanos = Nanos::seconds(12 * 3600);

/// Arbitrary: people of one fleet, with a few browsers each.
const SESSIONS_MAX: usize = 1000;

const KEY_LEN: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_too_many_sessions_the_oldest_ends() {
        let mut sessions = Sessions::default();
        let first = sessions.begin(Instant(0), "a");
        let second = sessions.begin(Instant(1), "b");
        for i in 2..=1000 {
            sessions.begin(Instant(i), "c");
        }
        let now = Instant(2000);
        assert_eq!(sessions.token(now, &first), None);
        assert_eq!(sessions.token(now, &second).as_deref(), Some("b"));
        assert_eq!(sessions.by_hash.len(), SESSIONS_MAX);
        let next_day = now + SESSION_LIFETIME;
        sessions.begin(next_day, "d");
        assert_eq!(sessions.by_hash.len(), 1, "what has ended takes no place");
    }
}
