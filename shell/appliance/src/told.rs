//! The shares that processes of the control plane told of this appliance, for those that have just
//! started: they know nothing of a recovery that is under way. Others that run know best; where
//! there are none, it is the word of the process that had this one's name: itself, before it
//! restarted, or the writer whose place it took.

use std::collections::BTreeMap;
use std::sync::Mutex;

use model::units::{Instant, Nanos};

use crate::lock::lock;

/// By the name of the process.
#[derive(Default)]
pub(crate) struct Shares {
    all: Mutex<BTreeMap<String, (Instant, u32)>>,
}

/// What a process told longer ago says nothing: it may be away.
const GOOD_FOR: Nanos = Nanos::seconds(10);

impl Shares {
    /// A process tells the share, in thousandths; none if it does not know of shares.
    pub(crate) fn set(&self, now: Instant, whom: &str, permille: Option<u32>) {
        let mut all = lock(&self.all);
        match permille {
            Some(permille) => drop(all.insert(whom.to_owned(), (now, permille))),
            None => drop(all.remove(whom)),
        }
    }

    /// The share that a process, or that which had its name before, told of late.
    pub(crate) fn of_itself(&self, now: Instant, whom: &str) -> Option<u32> {
        let all = lock(&self.all);
        let (at, permille) = all.get(whom)?;
        (now.since(*at) < GOOD_FOR).then_some(*permille)
    }

    /// The middle of the shares that others told of late, of two the greater; none if none did. One
    /// process that is wrong does not matter among three: with the least, one front that lost its
    /// path for a while would give its 5 % to each that starts within 20 minutes, and those to
    /// others. Among two it matters only if it is too great, and the next report of an overloaded
    /// appliance cuts that; a share that is too small has to rise. O(processes · log processes).
    pub(crate) fn of_others(&self, now: Instant, whom: &str) -> Option<u32> {
        let is_good = |(name, (at, _)): &(&String, &(Instant, u32))| {
            name.as_str() != whom && now.since(*at) < GOOD_FOR
        };
        let all = lock(&self.all);
        let mut told: Vec<u32> =
            all.iter().filter(is_good).map(|(_, (_, permille))| *permille).collect();
        drop(all);
        told.sort_unstable();
        told.get(told.len() / 2).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_that_others_told_of_late_is_passed_on() {
        let at = |second| Instant(0) + Nanos::seconds(second);
        let shares = Shares::default();
        assert_eq!(shares.of_others(at(0), "f1"), None);
        shares.set(at(0), "writer", Some(50));
        shares.set(at(0), "f2", Some(700));
        shares.set(at(0), "f1", Some(10));
        assert_eq!(shares.of_others(at(9), "f1"), Some(700), "its own word is none");
        assert_eq!(shares.of_itself(at(9), "f1"), Some(10));
        assert_eq!(shares.of_itself(at(10), "f1"), None, "it is old");
        assert_eq!(shares.of_itself(at(9), "f3"), None);
        shares.set(at(9), "f2", Some(800));
        assert_eq!(shares.of_others(at(10), "f1"), Some(800), "the writer is silent");
        shares.set(at(10), "f2", None);
        assert_eq!(shares.of_others(at(10), "f1"), None);
    }

    #[test]
    fn one_process_that_is_wrong_does_not_matter_among_three() {
        let now = Instant(0);
        let passed_on = |told: &[u32]| {
            let shares = Shares::default();
            for (number, permille) in told.iter().enumerate() {
                shares.set(now, &format!("f{number}"), Some(*permille));
            }
            shares.of_others(now, "new")
        };
        assert_eq!(passed_on(&[1000, 50, 1000]), Some(1000), "a front lost its path to it");
        assert_eq!(passed_on(&[300, 1000, 310]), Some(310), "one has not heard that it was lost");
        assert_eq!(passed_on(&[50, 1000]), Some(1000), "too great a share is cut within seconds");
        assert_eq!(passed_on(&[50, 40, 1000, 60]), Some(60));
        assert_eq!(passed_on(&[50]), Some(50));
    }
}
