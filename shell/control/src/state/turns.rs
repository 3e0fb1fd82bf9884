//! Appliances for which something is under way: each once, and no more than a number of them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::id::ApplianceId;

/// Who has a turn.
#[derive(Debug)]
pub(crate) struct Turns {
    /// Invariant: at most `most`.
    taken: Arc<Mutex<BTreeSet<ApplianceId>>>,
    most: usize,
}

/// It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    taken: Arc<Mutex<BTreeSet<ApplianceId>>>,
    id: ApplianceId,
}

impl Turns {
    pub(crate) fn new(most: usize) -> Self {
        Self { taken: Arc::default(), most }
    }

    /// A turn for this appliance, unless it has one, or too many others have. O(log turns).
    pub(crate) fn begin(&self, id: &ApplianceId) -> Option<Turn> {
        let mut taken = lock(&self.taken);
        let is_free = taken.len() < self.most && taken.insert(id.clone());
        is_free.then(|| Turn { taken: Arc::clone(&self.taken), id: id.clone() })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        lock(&self.taken).remove(&self.id);
    }
}

fn lock(taken: &Mutex<BTreeSet<ApplianceId>>) -> MutexGuard<'_, BTreeSet<ApplianceId>> {
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_appliance_has_one_place_and_leaves_it() {
        let [one, two, three] = ["a1", "a2", "a3"].map(|id| id.parse::<ApplianceId>().unwrap());
        let turns = Turns::new(2);
        let first = turns.begin(&one).unwrap();
        assert!(turns.begin(&one).is_none(), "it has one");
        let second = turns.begin(&two).unwrap();
        assert!(turns.begin(&three).is_none(), "both are taken");
        drop((first, second));
        assert!(turns.begin(&one).is_some());
    }
}
