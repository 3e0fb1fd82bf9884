//! Keys of session tickets: one set per site, so that a player resumes at any appliance there.
//!
//! ```text
//!  before ────── 6 h seals ──────┬────── 6 h opens ──────┐
//!                 now            └────── seals ──────────┬────── opens ─────────
//!                                 next, given out early: └────── seals ...
//! ```
//!
//! They are made here at random and kept in memory only, here and in appliances: none is on a
//! drive, none follows from another, and after a restart there are new ones, which costs players
//! one whole handshake. They go to members of the site over the fleet's TLS and nowhere else.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use model::id::{SiteId, hex};
use model::units::UnixSeconds;
use wire::v1::identity::TicketKey;

/// How long a key seals, and as long again it opens. What appliances do without control, too.
const ROTATION_S: u64 = 6 * 3600;

/// The keys of all sites that asked.
#[derive(Default)]
pub(crate) struct TicketKeys {
    sites: Mutex<BTreeMap<SiteId, Vec<TicketKey>>>,
}

impl TicketKeys {
    /// A site's keys: those that still open, and the next. Makes what is missing; none if there
    /// are no random bytes.
    pub(crate) fn of_site(&self, site: &SiteId, now: UnixSeconds) -> Option<Vec<TicketKey>> {
        let mut sites = self.sites.lock().unwrap_or_else(PoisonError::into_inner);
        let keys = sites.entry(site.clone()).or_default();
        keys.retain(|key| now.0 < key.ends_unix_s);
        // The first begins now, and after a long silence the next does: each begins where the one
        // before it stops to seal, or later.
        while keys.last().is_none_or(|last| last.begins_unix_s <= now.0) {
            let after = keys.last().map_or(0, |last| last.begins_unix_s + ROTATION_S);
            keys.push(random(after.max(now.0))?);
        }
        Some(keys.clone())
    }
}

fn random(begins: u64) -> Option<TicketKey> {
    let (mut name, mut secret) = ([0_u8; 16], [0_u8; 32]);
    aws_lc_rs::rand::fill(&mut name).ok()?;
    aws_lc_rs::rand::fill(&mut secret).ok()?;
    Some(TicketKey {
        name: hex(&name),
        secret: hex(&secret),
        begins_unix_s: begins,
        ends_unix_s: begins + 2 * ROTATION_S,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticket_keys_rotate_are_given_out_early_and_differ_between_sites() {
        let keys = TicketKeys::default();
        let [here, there]: [SiteId; 2] = ["s1", "s2"].map(|name| name.parse().unwrap());
        let at = |site, now| keys.of_site(site, UnixSeconds(now)).unwrap();
        let first = at(&here, 1000);
        let begins = |keys: &[TicketKey]| keys.iter().map(|k| k.begins_unix_s).collect::<Vec<_>>();
        assert_eq!(begins(&first), [1000, 1000 + ROTATION_S]);
        assert_eq!(at(&here, 1000 + ROTATION_S - 1), first, "the same for each who asks");
        let second = at(&here, 1000 + ROTATION_S);
        assert_eq!(begins(&second), [1000, 1000 + ROTATION_S, 1000 + 2 * ROTATION_S]);
        assert_eq!(second[..2], first[..]);
        assert_eq!(at(&here, 1000 + 2 * ROTATION_S)[0], second[1], "the first opens nothing now");
        let much_later = at(&here, 1_000_000);
        assert_eq!(begins(&much_later), [1_000_000, 1_000_000 + ROTATION_S]);
        for theirs in at(&there, 1000) {
            assert!(first.iter().all(|ours| {
                ours.name != theirs.name && ours.secret != theirs.secret && ours.secret.len() == 64
            }));
        }
    }
}
