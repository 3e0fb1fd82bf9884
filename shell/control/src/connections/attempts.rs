//! Failed attempts by address: so many at once, and one more every few seconds.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use model::units::{Instant, Nanos};

/// Addresses from which attempts failed lately.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    /// When each address has all its attempts again. Invariant: at most `PEERS_MAX`.
    good_again: BTreeMap<IpAddr, Instant>,
}

impl Attempts {
    /// Counts one; false if there were too many from there. An address that finds the table full
    /// of others is answered as if it had used up its own.
    pub(crate) fn failed(&mut self, peer: IpAddr, now: Instant) -> bool {
        let peer = network(peer);
        if !self.good_again.contains_key(&peer) && PEERS_MAX <= self.good_again.len() {
            self.good_again.retain(|_, good_again| now < *good_again);
            if PEERS_MAX <= self.good_again.len() {
                return false;
            }
        }
        let good_again = self.good_again.entry(peer).or_insert(now);
        let after = (*good_again).max(now) + EVERY;
        if BURST < after.since(now) {
            return false;
        }
        *good_again = after;
        true
    }

    /// No attempt is left to this address. Of one that finds the table full of others that cannot
    /// be said: it may try, so that strangers with many addresses keep no member out.
    pub(crate) fn are_spent(&self, peer: IpAddr, now: Instant) -> bool {
        let good_again = self.good_again.get(&network(peer));
        good_again.is_some_and(|good_again| BURST < ((*good_again).max(now) + EVERY).since(now))
    }
}

/// Who has one address of version 6 has 2^64 of them.
pub(crate) fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        address @ IpAddr::V4(_) => address,
    }
}

/// One attempt comes back after so long.
const EVERY: Nanos = Nanos::seconds(6);

/// 20 attempts at once: a script that was given an old token.
const BURST: Nanos = Nanos::seconds(120);

/// About 100 bytes each.
const PEERS_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_come_back_one_by_one() {
        let mut attempts = Attempts::default();
        let peer = address(1);
        let mut now = Instant(0);
        let burst = |attempts: &mut Attempts, now| {
            (0..100).take_while(|_| attempts.failed(peer, now)).count()
        };
        assert!(!attempts.are_spent(peer, now));
        assert_eq!(burst(&mut attempts, now), 20);
        now = now + Nanos::seconds(5);
        assert_eq!(burst(&mut attempts, now), 0);
        assert!(attempts.are_spent(peer, now) && !attempts.are_spent(address(2), now));
        now = now + Nanos::seconds(1);
        assert!(!attempts.are_spent(peer, now));
        assert_eq!(burst(&mut attempts, now), 1);
        now = now + Nanos::seconds(3600);
        assert_eq!(burst(&mut attempts, now), 20);
    }

    #[test]
    fn the_table_is_bounded_and_a_network_counts_as_one() {
        let mut attempts = Attempts::default();
        for i in 0..4096 {
            assert!(attempts.failed(address(i), Instant(0)));
        }
        assert!(!attempts.failed(address(5000), Instant(0)), "full");
        assert!(!attempts.are_spent(address(5000), Instant(0)), "nobody is kept out for others");
        assert!(attempts.failed(address(7), Instant(0)), "known");
        assert_eq!(attempts.good_again.len(), PEERS_MAX);
        assert!(attempts.failed(address(5000), Instant(0) + Nanos::seconds(30)));
        assert_eq!(
            network("2001:db8::1".parse().unwrap()),
            network("2001:db8::2".parse().unwrap())
        );
        assert_eq!(network("::ffff:192.0.2.1".parse().unwrap()), address(0xc000_0201));
    }

    fn address(number: u32) -> IpAddr {
        IpAddr::V4(number.into())
    }
}
