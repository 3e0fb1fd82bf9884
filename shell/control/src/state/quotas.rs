//! What is under way at a time: for members, so much of each and so much of all; and what is worked
//! out for one at a time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

/// Who has taken how much.
#[derive(Debug)]
pub(crate) struct Quotas<K: Ord> {
    under_way: Arc<Mutex<UnderWay<K>>>,
    most: usize,
    each: usize,
}

/// Invariant: `all` is the sum of `by`, and none of these is 0.
#[derive(Debug)]
struct UnderWay<K> {
    all: usize,
    by: BTreeMap<K, usize>,
}

/// One of a quota. It is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Taken<K: Ord> {
    under_way: Arc<Mutex<UnderWay<K>>>,
    key: K,
}

impl<K: Ord + Clone> Quotas<K> {
    /// So many at a time in all, and so many of each.
    pub(crate) fn new(most: usize, each: usize) -> Self {
        let under_way = UnderWay { all: 0, by: BTreeMap::new() };
        Self { under_way: Arc::new(Mutex::new(under_way)), most, each }
    }

    /// None if this one has as many as it may, or all together have. O(log of those that have any).
    pub(crate) fn take(&self, key: &K) -> Option<Taken<K>> {
        let mut under_way = lock(&self.under_way);
        let has = under_way.by.get(key).copied().unwrap_or(0);
        if self.most <= under_way.all || self.each <= has {
            return None;
        }
        under_way.all += 1;
        under_way.by.insert(key.clone(), has + 1);
        Some(Taken { under_way: Arc::clone(&self.under_way), key: key.clone() })
    }

    /// The same, where whoever has no name has no quota.
    pub(crate) fn take_of(&self, key: Option<&K>) -> Result<Option<Taken<K>>, Full> {
        key.map(|key| self.take(key).ok_or(Full)).transpose()
    }
}

/// A quota is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl<K: Ord> Drop for Taken<K> {
    fn drop(&mut self) {
        let mut under_way = lock(&self.under_way);
        under_way.all -= 1;
        match under_way.by.get_mut(&self.key) {
            Some(has) if 1 < *has => *has -= 1,
            Some(_) | None => drop(under_way.by.remove(&self.key)),
        }
    }
}

/// Who waits longer is told to come again: it has a place of the requests under way.
const TURN_AWAITED: Duration = Duration::from_secs(5);

/// A turn at what is worked out for one at a time. Whoever works it out keeps it until the end,
/// though whoever asked may have left.
pub(crate) async fn turn(of: &'static Semaphore) -> Option<SemaphorePermit<'static>> {
    let turn = timeout(TURN_AWAITED, of.acquire()).await.ok()?;
    Some(turn.expect("it is never closed"))
}

fn lock<K>(under_way: &Mutex<UnderWay<K>>) -> MutexGuard<'_, UnderWay<K>> {
    under_way.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_its_quota_and_leaves_the_others_theirs() {
        let quotas = Quotas::new(3, 2);
        let first = quotas.take(&"a1").unwrap();
        let second = quotas.take(&"a1").unwrap();
        assert!(quotas.take(&"a1").is_none(), "it has two");
        let other = quotas.take(&"a2").unwrap();
        assert!(quotas.take(&"a3").is_none(), "all are taken");
        drop(first);
        assert!(quotas.take(&"a3").is_some() && quotas.take(&"a1").is_some());
        drop((second, other));
        let left = lock(&quotas.under_way);
        assert_eq!((left.all, left.by.len()), (0, 0));
    }
}
