//! Control's knowledge of an appliance's objects, and the changes that it lacks.
//!
//! Every change gets a number, from 1 on; 0 stands for nothing known. Control answers each report
//! with the number it has seen; the next report says what changed since, or everything if that is
//! too long ago.

use std::collections::{BTreeMap, VecDeque};

use model::id::ObjectId;
use model::inventory::Delta;
use model::units::Bytes;

/// The latest changes, and their numbers.
#[derive(Clone, Debug)]
pub struct Inventory {
    /// Invariant: at least 1, and the number of the last of `changes`.
    state: u64,
    /// Object, and whether it came; none where files got other numbers. Invariant: at most
    /// `changes_max`.
    changes: VecDeque<Option<(ObjectId, bool)>>,
    changes_max: usize,
}

impl Inventory {
    /// An inventory that remembers so many changes; older ones cost a full report.
    pub fn new(changes_max: usize) -> Self {
        Self { state: 1, changes: VecDeque::new(), changes_max }
    }

    /// The object is now held.
    pub fn publish(&mut self, object: ObjectId) {
        self.change(Some((object, true)));
    }

    /// The object is no longer held.
    pub fn remove(&mut self, object: ObjectId) {
        self.change(Some((object, false)));
    }

    /// A manifest is in force that gives files other numbers: who is told numbers is told all of
    /// them.
    pub fn renumber(&mut self) {
        self.change(None);
    }

    /// The number of the last change.
    pub fn state(&self) -> u64 {
        self.state
    }

    /// The news for control, which has seen `known`; `held` is all that is held now.
    pub fn since(&self, known: u64, held: impl Iterator<Item = ObjectId>) -> Delta {
        let to = self.state;
        let Some(missed) = self.missed(known) else {
            return Delta { to, held: held.collect(), ..Delta::default() };
        };
        let last_of_each: BTreeMap<ObjectId, bool> = missed.flatten().collect();
        let (came, went): (Vec<_>, Vec<_>) = last_of_each.into_iter().partition(|(_, came)| *came);
        let ids = |changes: Vec<(ObjectId, bool)>| changes.into_iter().map(|(id, _)| id).collect();
        Delta { from: known, to, held: ids(came), gone: ids(went), check: None }
    }

    /// The same for who is told numbers: the last change of each object; none if all has to be
    /// told.
    pub fn changes_since(&self, known: u64) -> Option<BTreeMap<ObjectId, bool>> {
        self.missed(known)?.collect()
    }

    fn missed(&self, known: u64) -> Option<impl Iterator<Item = Option<(ObjectId, bool)>>> {
        let missed = self.state.checked_sub(known).and_then(|n| usize::try_from(n).ok());
        let missed = missed.filter(|n| known != 0 && *n <= self.changes.len())?;
        Some(self.changes.range(self.changes.len() - missed..).copied())
    }

    fn change(&mut self, change: Option<(ObjectId, bool)>) {
        self.state += 1;
        self.changes.push_back(change);
        if self.changes_max < self.changes.len() {
            self.changes.pop_front();
        }
        assert!(self.changes.len() <= self.changes_max, "older ones cost a full report");
        assert!(Bytes::of(self.changes.len()).0 < self.state, "each change has a number");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn object(n: u8) -> ObjectId {
        ObjectId([n; 32])
    }

    #[test]
    fn control_is_told_everything_once_and_then_only_changes() {
        let mut inventory = Inventory::new(10);
        inventory.publish(object(1));
        let all = inventory.since(0, [object(1)].into_iter());
        assert_eq!((all.from, all.held.len()), (0, 1));
        inventory.publish(object(2));
        inventory.publish(object(3));
        inventory.remove(object(2));
        let delta = inventory.since(all.to, [object(1), object(3)].into_iter());
        assert_eq!(
            (delta.from, delta.held, delta.gone),
            (all.to, vec![object(3)], vec![object(2)])
        );
        let nothing = inventory.since(delta.to, [].into_iter());
        assert_eq!((nothing.from, nothing.to), (delta.to, delta.to));
    }

    #[test]
    fn a_state_of_another_life_or_too_long_ago_gets_everything() {
        let mut inventory = Inventory::new(2);
        for n in 0..5 {
            inventory.publish(object(n));
        }
        for (known, from) in [(3, 0), (4, 4), (6, 6), (7, 0), (u64::MAX, 0)] {
            let delta = inventory.since(known, (0..5).map(object));
            assert_eq!(delta.from, from, "known {known}");
        }
    }

    #[test]
    fn other_numbers_are_news_for_those_alone_who_are_told_numbers() {
        let mut inventory = Inventory::new(10);
        inventory.publish(object(1));
        inventory.renumber();
        let before = inventory.state();
        inventory.publish(object(2));
        assert_eq!(inventory.changes_since(before), Some([(object(2), true)].into()));
        assert_eq!(inventory.changes_since(before - 1), None, "its numbers are other ones");
        assert_eq!(inventory.since(before - 1, [].into_iter()).held, [object(2)]);
    }

    proptest! {
        #[test]
        fn control_that_applies_the_deltas_knows_what_is_held(
            steps in prop::collection::vec((any::<bool>(), 0u8..5, any::<bool>()), 0..60),
            changes_max in 0usize..8,
        ) {
            let mut inventory = Inventory::new(changes_max);
            let (mut held, mut known) = (BTreeSet::new(), BTreeSet::new());
            let mut seen = 0;
            for (came, n, report) in steps.into_iter().chain([(true, 0, true)]) {
                if came {
                    held.insert(object(n));
                    inventory.publish(object(n));
                } else {
                    held.remove(&object(n));
                    inventory.remove(object(n));
                }
                if report {
                    let delta = inventory.since(seen, held.iter().copied());
                    if delta.from == 0 {
                        known.clear();
                    }
                    known.extend(delta.held);
                    delta.gone.iter().for_each(|gone| { known.remove(gone); });
                    seen = delta.to;
                    prop_assert_eq!(&known, &held);
                }
            }
        }
    }
}
