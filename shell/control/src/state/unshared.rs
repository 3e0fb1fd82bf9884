//! Prefixes that lead to one site alone, counted beside all else: their clients have no route to
//! another site if it fails.
//!
//! To count looks at every prefix. So it is done on a thread of its own, which rests 59 times as
//! long after each count, from a second to a minute: a small table's count follows it within a
//! second or so, a large one's within a minute or so. What is asked meanwhile is answered with the
//! last count.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use model::id::SiteId;
use model::topology::Prefix;

/// Prefixes of a site that are named.
const SHOWN: usize = 100;

/// Most of the time is not for this.
const REST: u32 = 59;
const REST_MIN: Duration = Duration::from_secs(1);
const REST_MAX: Duration = Duration::from_secs(60);

/// The last count.
#[derive(Default)]
pub(crate) struct Unshared {
    seen: ArcSwap<Seen>,
    /// The total that the log has.
    said: AtomicU64,
}

/// The prefixes of one count.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Of each site that has any: how many, and the first of them.
    pub(crate) by_site: BTreeMap<SiteId, (u64, Vec<Prefix>)>,
    /// All of them.
    pub(crate) total: u64,
}

impl Unshared {
    pub(crate) fn seen(&self) -> Arc<Seen> {
        self.seen.load_full()
    }

    /// Counts, and says what is otherwise than it was said last: how long to rest after it.
    /// O(prefixes).
    pub(crate) fn count(&self, routes: &routes::Table) -> Duration {
        let began = Instant::now();
        let by_site = routes.unshared(SHOWN).by_site;
        let total = by_site.values().map(|(count, _)| count).sum();
        let seen = Arc::new(Seen { by_site, total });
        self.seen.store(seen.clone());
        if is_notable(self.said.load(Ordering::Relaxed), total) {
            self.said.store(total, Ordering::Relaxed);
            tell(&seen);
        }
        (began.elapsed() * REST).clamp(REST_MIN, REST_MAX)
    }
}

fn tell(seen: &Seen) {
    let worst = seen.by_site.iter().max_by_key(|(_, (count, _))| count);
    match worst {
        None => tracing::info!("no announced prefix leads to one site alone any more"),
        Some((site, _)) => tracing::info!(
            prefixes = seen.total,
            sites = seen.by_site.len(),
            site = %site,
            "prefixes lead to one site alone, most of them to this: nearcast route show --site \
             NAME tells which"
        ),
    }
}

/// A tenth more or less, and whether there are any at all.
fn is_notable(said: u64, now: u64) -> bool {
    (said == 0) != (now == 0) || said.max(10) <= said.abs_diff(now).saturating_mul(10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::topology::Site;
    use routes::filter::Longest;
    use routes::{Attributes, Difference, Peering, Routes};

    #[test]
    fn prefixes_of_one_site_alone_are_counted_by_site_and_in_all() {
        let sites = ["isp", "berlin"].map(|id| Site::new(id.parse().unwrap(), vec![]));
        let mut routes = Routes::new(Longest::USUAL);
        routes.change_sites(&[], &[(0, &sites[0]), (1, &sites[1])]);
        let heard = Arc::new(Attributes::new(Peering::Private, vec![9], None, vec![]));
        let mut hear = |site: &Site, prefixes: &[&str]| {
            let announced = |text: &&str| (text.parse().unwrap(), heard.clone());
            let announced = prefixes.iter().map(announced).collect();
            routes.apply(&site.id, &Difference { announced, withdrawn: vec![] }, true);
        };
        hear(&sites[0], &["8.8.8.0/24", "8.8.9.0/24", "2a00::/32"]);
        hear(&sites[1], &["8.8.9.0/24"]);
        let unshared = Unshared::default();
        assert_eq!(unshared.seen().total, 0, "before the first count");
        unshared.count(routes.table());
        let seen = unshared.seen();
        let first = seen.by_site[&sites[0].id].1[0].to_string();
        assert_eq!((seen.total, seen.by_site.len(), first.as_str()), (2, 1, "8.8.8.0/24"));
    }

    #[test]
    fn a_tenth_more_or_less_is_notable_and_so_are_the_first_and_the_last() {
        for (said, now) in [(0, 1), (1, 0), (5, 6), (100, 110), (100, 90), (0, u64::MAX)] {
            assert!(is_notable(said, now), "{said} {now}");
        }
        for (said, now) in [(0, 0), (5, 5), (100, 109), (100, 91), (u64::MAX, u64::MAX - 1)] {
            assert!(!is_notable(said, now), "{said} {now}");
        }
    }
}
