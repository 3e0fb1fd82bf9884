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
    /// most `SESSIONS_MAX`, and of one token `OF_TOKEN_MAX`.
    by_hash: BTreeMap<[u8; HASH_LEN], Session>,
}

#[derive(Debug)]
struct Session {
    token: String,
    began: Instant,
}

impl Sessions {
    /// A new session of this token. With too many of them the token's oldest ends, or the oldest.
    pub(crate) fn begin(&mut self, now: Instant, token: &str) -> SessionKey {
        self.by_hash.retain(|_, session| session.lives(now));
        self.make_room(OF_TOKEN_MAX, |session| session.token == token);
        self.make_room(SESSIONS_MAX, |_| true);
        let key = SessionKey(random_hex::<KEY_LEN>());
        self.by_hash.insert(key.hash(), Session { token: token.to_owned(), began: now });
        key
    }

    /// Ends the oldest of those that count if there are so many.
    fn make_room(&mut self, most: usize, counts: impl Fn(&Session) -> bool) {
        let counted = || self.by_hash.iter().filter(|(_, session)| counts(session));
        if most <= counted().count()
            && let Some(oldest) = counted().min_by_key(|(_, session)| session.began)
        {
            let hash = *oldest.0;
            self.by_hash.remove(&hash);
        }
    }

    /// The token of a session that lives.
    pub(crate) fn token(&self, now: Instant, key: &SessionKey) -> Option<String> {
        let session = self.by_hash.get(&key.hash()).filter(|session| session.lives(now));
        session.map(|session| session.token.clone())
    }

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

/// Browsers that share a token. Whoever has one ends no more than 20 logins of other tokens.
const OF_TOKEN_MAX: usize = 20;

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
            sessions.begin(Instant(i), &(i / 20).to_string());
        }
        let now = Instant(2000);
        assert_eq!(sessions.token(now, &first), None);
        assert_eq!(sessions.token(now, &second).as_deref(), Some("b"));
        assert_eq!(sessions.by_hash.len(), SESSIONS_MAX);
        let next_day = now + SESSION_LIFETIME;
        sessions.begin(next_day, "d");
        assert_eq!(sessions.by_hash.len(), 1, "what has ended takes no place");
    }

    #[test]
    fn one_token_ends_no_more_than_its_share_of_a_table_that_is_full() {
        let mut sessions = Sessions::default();
        let others: Vec<_> =
            (0..1000).map(|i| sessions.begin(Instant(i), &(i / 20).to_string())).collect();
        assert_eq!(sessions.by_hash.len(), SESSIONS_MAX, "full");
        for i in 0..500 {
            sessions.begin(Instant(1000 + i), "z");
            assert_eq!(sessions.by_hash.len(), SESSIONS_MAX);
        }
        let now = Instant(2000);
        let gone = others.iter().filter(|key| sessions.token(now, key).is_none()).count();
        assert_eq!(gone, OF_TOKEN_MAX, "its own take the places of each other from then on");
        assert!(others[..gone].iter().all(|key| sessions.token(now, key).is_none()), "the oldest");
    }

    #[test]
    fn who_logs_in_without_end_ends_the_logins_of_that_token_alone() {
        let mut sessions = Sessions::default();
        let other = sessions.begin(Instant(0), "a");
        let own: Vec<_> = (1..=2000).map(|i| sessions.begin(Instant(i), "b")).collect();
        let now = Instant(3000);
        assert_eq!(sessions.token(now, &other).as_deref(), Some("a"));
        let alive = own.iter().filter(|key| sessions.token(now, key).is_some()).count();
        assert_eq!(alive, 20);
        assert!(sessions.token(now, &own[1980]).is_some(), "the newest stay");
    }
}
