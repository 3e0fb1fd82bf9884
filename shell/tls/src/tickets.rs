//! Session tickets with keys from outside, so that a player who comes back to another appliance of
//! the same site resumes there.
//!
//! ```text
//! control ── keys of the site ──> install ──> [ now | next | before ]
//!                                   seal: the newest that has begun        open: any not ended
//! no control, or none came yet:     a key of this process's own, by the same rules
//! ```
//!
//! A ticket is `name (16) | nonce (12) | AES-256-GCM of rustls's state | tag (16)`, the name being
//! authenticated, too. rustls resumes with a fresh key exchange only (psk_dhe_ke, RFC 8446 section
//! 4.2.9) and no early data, so a thief of a key cannot read what was recorded before.

use std::sync::{Arc, PoisonError, RwLock};

use aws_lc_rs::aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey};
use model::units::{Nanos, UnixSeconds};
use rustls::server::ProducesTickets;

/// How long a key seals; as long again it opens. A ticket is good for at least this.
pub const ROTATION: Nanos = Nanos::seconds(6 * 3600);

const NAME_LEN: usize = 16;
const NONCE_LEN: usize = 12;
/// rustls's state has less than 300 bytes. Longer ones are not ours.
const TICKET_LEN_MAX: usize = 2048;
/// Keys at once; control gives three: the one before, the one now, the next.
const KEYS_MAX: usize = 8;

/// A key as control gives it. Secret.
#[derive(Clone, PartialEq, Eq)]
pub struct TicketKey {
    /// Which it is; stands in each ticket.
    pub name: [u8; NAME_LEN],
    /// The secret that tickets are sealed with.
    pub secret: [u8; 32],
    /// From when on it seals. It opens at any time before its end.
    pub begins: UnixSeconds,
    /// From when on it opens nothing.
    pub ends: UnixSeconds,
}

impl std::fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TicketKey").field("begins", &self.begins).finish_non_exhaustive()
    }
}

/// The keys in force. Shared by all workers.
pub struct Tickets {
    clock: Box<dyn Fn() -> UnixSeconds + Send + Sync>,
    keys: RwLock<Keys>,
}

#[derive(Default)]
struct Keys {
    shared: Vec<Ready>,
    /// Of this process, where there is none of the site.
    own: Vec<Ready>,
}

struct Ready {
    key: TicketKey,
    aead: RandomizedNonceKey,
}

impl Ready {
    fn new(key: TicketKey) -> Self {
        let aead = RandomizedNonceKey::new(&AES_256_GCM, &key.secret);
        Self { key, aead: aead.expect("a key of the cipher's own length is accepted") }
    }

    fn random(now: UnixSeconds) -> Option<Self> {
        let (mut name, mut secret) = ([0; NAME_LEN], [0; 32]);
        aws_lc_rs::rand::fill(&mut name).ok()?;
        aws_lc_rs::rand::fill(&mut secret).ok()?;
        let ends = UnixSeconds(now.0 + 2 * ROTATION.as_seconds());
        Some(Self::new(TicketKey { name, secret, begins: now, ends }))
    }

    fn seals(&self, now: UnixSeconds) -> bool {
        let until = UnixSeconds(self.key.begins.0 + ROTATION.as_seconds());
        self.key.begins <= now && now < until
    }
}

impl Tickets {
    /// Without a key of the site; `clock` is the wall clock.
    pub fn new(clock: impl Fn() -> UnixSeconds + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { clock: Box::new(clock), keys: RwLock::default() })
    }

    /// Takes the site's keys in place of those that it has; at most the first eight. Those that
    /// were given before and have not ended go on opening.
    pub fn install(&self, keys: &[TicketKey]) {
        let now = (self.clock)();
        let mut held = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        for key in keys.iter().take(KEYS_MAX) {
            if !held.shared.iter().any(|ready| ready.key == *key) {
                held.shared.push(Ready::new(key.clone()));
            }
        }
        held.shared.retain(|ready| now < ready.key.ends);
        held.shared.sort_by_key(|ready| ready.key.begins);
        let over = held.shared.len().saturating_sub(KEYS_MAX);
        held.shared.drain(..over);
    }

    /// Keys of the site that have not ended.
    pub fn shared_count(&self) -> usize {
        let now = (self.clock)();
        let held = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        held.shared.iter().filter(|ready| now < ready.key.ends).count()
    }

    /// Seals with the newest key: of the site, else of this process; none if none has begun.
    fn seal(&self, now: UnixSeconds, plain: &[u8]) -> Option<Vec<u8>> {
        let held = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        let ready = held.own.iter().chain(&held.shared).rfind(|ready| ready.seals(now))?;
        let mut sealed = plain.to_vec();
        let name = ready.key.name;
        let nonce = ready.aead.seal_in_place_append_tag(Aad::from(name), &mut sealed).ok()?;
        Some([&name[..], &nonce.as_ref()[..], &sealed].concat())
    }

    fn begin_own(&self, now: UnixSeconds) -> Option<()> {
        let mut held = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        // Another worker may have been here first.
        if !held.own.iter().any(|ready| ready.seals(now)) {
            held.own.retain(|ready| now < ready.key.ends);
            held.own.push(Ready::random(now)?);
        }
        Some(())
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        u32::try_from(ROTATION.as_seconds()).expect("hours are below 2^32 seconds")
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let now = (self.clock)();
        self.seal(now, plain).or_else(|| {
            self.begin_own(now)?;
            self.seal(now, plain)
        })
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        if TICKET_LEN_MAX < ticket.len() {
            return None;
        }
        let (name, rest) = ticket.split_at_checked(NAME_LEN)?;
        let (nonce, sealed) = rest.split_at_checked(NONCE_LEN)?;
        let now = (self.clock)();
        let held = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        let mut named = held.shared.iter().chain(&held.own);
        // Names are no secret: they stand in the open in every ticket.
        let ready = named.find(|ready| ready.key.name == name && now < ready.key.ends)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut plain = sealed.to_vec();
        let len = ready.aead.open_in_place(nonce, Aad::from(name), &mut plain).ok()?.len();
        plain.truncate(len);
        Some(plain)
    }
}

impl std::fmt::Debug for Tickets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tickets").field("shared", &self.shared_count()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    const HOUR: u64 = 3600;

    fn key(n: u8, begins: u64) -> TicketKey {
        let (begins, ends) = (UnixSeconds(begins), UnixSeconds(begins + 12 * HOUR));
        TicketKey { name: [n; 16], secret: [n; 32], begins, ends }
    }

    fn appliance(clock: &Arc<AtomicU64>, keys: &[TicketKey]) -> Arc<Tickets> {
        let clock = Arc::clone(clock);
        let tickets = Tickets::new(move || UnixSeconds(clock.load(Ordering::Relaxed)));
        tickets.install(keys);
        tickets
    }

    #[test]
    fn a_ticket_is_good_at_siblings_until_its_key_ends_and_nowhere_else() {
        let clock = Arc::new(AtomicU64::new(HOUR));
        let keys = [key(1, 0), key(2, 6 * HOUR)];
        let [here, sibling] = [appliance(&clock, &keys), appliance(&clock, &keys)];
        let elsewhere = appliance(&clock, &[key(3, 0)]);
        let ticket = here.encrypt(b"state").unwrap();
        assert_eq!(&ticket[..16], [1; 16], "the next key does not seal yet");
        assert_eq!(sibling.decrypt(&ticket).as_deref(), Some(&b"state"[..]));
        assert_eq!(elsewhere.decrypt(&ticket), None);
        clock.store(7 * HOUR, Ordering::Relaxed);
        assert_eq!(&here.encrypt(b"state").unwrap()[..16], [2; 16]);
        sibling.install(&[key(2, 6 * HOUR), key(4, 12 * HOUR)]);
        assert!(sibling.decrypt(&ticket).is_some(), "it was told another set, and knows the old");
        clock.store(12 * HOUR, Ordering::Relaxed);
        assert_eq!(sibling.decrypt(&ticket), None);
        assert_eq!(here.decrypt(&ticket), None);
    }

    #[test]
    fn a_changed_ticket_opens_nothing() {
        let clock = Arc::new(AtomicU64::new(HOUR));
        let tickets = appliance(&clock, &[key(1, 0)]);
        let ticket = tickets.encrypt(b"state").unwrap();
        for at in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[at] ^= 1;
            assert_eq!(tickets.decrypt(&changed), None, "byte {at}");
            assert_eq!(tickets.decrypt(&ticket[..at]), None, "cut at {at}");
        }
        assert_eq!(tickets.decrypt(&vec![1; 5000]), None);
        assert_ne!(tickets.encrypt(b"state").unwrap(), ticket, "no nonce twice");
    }

    #[test]
    fn without_control_keys_are_its_own_and_rotate_by_themselves() {
        let clock = Arc::new(AtomicU64::new(HOUR));
        let [here, other] = [appliance(&clock, &[]), appliance(&clock, &[])];
        let ticket = here.encrypt(b"state").unwrap();
        assert!(here.decrypt(&ticket).is_some() && other.decrypt(&ticket).is_none());
        clock.store(8 * HOUR, Ordering::Relaxed);
        let later = here.encrypt(b"state").unwrap();
        assert_ne!(ticket[..16], later[..16]);
        assert!(here.decrypt(&ticket).is_some());
        here.install(&[key(1, 8 * HOUR)]);
        assert_eq!(&here.encrypt(b"state").unwrap()[..16], [1; 16], "the site's comes first");
        clock.store(14 * HOUR, Ordering::Relaxed);
        assert!(here.decrypt(&ticket).is_none() && here.decrypt(&later).is_some());
    }
}
