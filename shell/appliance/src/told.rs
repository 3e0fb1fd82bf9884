//! The shares that processes of the control plane told of this appliance, for those that have just
//! started: they know nothing of a recovery that is under way.

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

    /// The least that others told of late; none if none did. O(processes).
    pub(crate) fn of_others(&self, now: Instant, whom: &str) -> Option<u32> {
        let all = lock(&self.all);
        let is_good = |(name, (at, _)): &(&String, &(Instant, u32))| {
            name.as_str() != whom && now.since(*at) < GOOD_FOR
        };
        all.iter().filter(is_good).map(|(_, (_, permille))| *permille).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_share_that_others_told_of_late_is_passed_on() {
        let at = |second| Instant(0) + Nanos::seconds(second);
        let shares = Shares::default();
        assert_eq!(shares.of_others(at(0), "f1"), None);
        shares.set(at(0), "writer", Some(50));
        shares.set(at(0), "f2", Some(700));
        shares.set(at(0), "f1", Some(10));
        assert_eq!(shares.of_others(at(9), "f1"), Some(50), "its own word is none");
        shares.set(at(9), "f2", Some(800));
        assert_eq!(shares.of_others(at(10), "f1"), Some(800), "the writer is silent");
        shares.set(at(10), "f2", None);
        assert_eq!(shares.of_others(at(10), "f1"), None);
    }
}
