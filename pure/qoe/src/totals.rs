//! What control knows of all sites: sums since its start, the last minutes, and warnings.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use model::units::{Instant, Nanos};

use crate::sums::{Dimension, Key, OTHERS, Source, Sums};
use crate::watch::{Warning, Watch};

/// Bounds.
#[derive(Clone, Copy, Debug)]
pub struct TotalsConfig {
    /// Most rows of a dimension; beyond, what comes is added to those of others.
    pub rows_max: usize,
    /// Most sites. Each has a row for each source, and is watched by itself.
    pub sites_max: usize,
}

/// Minutes of which a row has its sums by themselves, this one among them.
pub const MINUTES: usize = 10;
const MINUTE: Nanos = Nanos::seconds(60);

/// The sums of one row.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// Since control's start, or since one of them was too large to be counted on: all begin anew
    /// then, which whoever reads counters knows from restarts.
    pub total: Sums,
    /// The newest minute first.
    minutes: [Sums; MINUTES],
    minute: u64,
}

/// All rows.
#[derive(Debug)]
pub struct Totals {
    config: TotalsConfig,
    rows: BTreeMap<Key, Row>,
    counts: BTreeMap<Dimension, usize>,
    /// Invariant: at most config.sites_max.
    watches: BTreeMap<Arc<str>, Watch>,
    crowded: u64,
}

impl Totals {
    /// Nothing.
    pub fn new(config: TotalsConfig) -> Self {
        assert!(0 < config.rows_max && 0 < config.sites_max, "there is room for one");
        let (rows, counts, watches) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { config, rows, counts, watches, crowded: 0 }
    }

    /// Adds what an appliance, or a collector of events, has told now. O(log rows).
    pub fn add(&mut self, now: Instant, key: &Key, sums: &Sums) {
        self.watch(now, key, sums);
        if let Some(row) = self.rows.get_mut(key) {
            return row.add(now, sums);
        }
        let max = match key.dimension {
            Dimension::Site => self.config.sites_max * Source::ALL.len(),
            Dimension::Asset | Dimension::Network | Dimension::Player => self.config.rows_max,
        };
        let count = self.counts.entry(key.dimension).or_default();
        let is_crowded = max <= *count;
        self.crowded += u64::from(is_crowded);
        let key = match is_crowded {
            false => key.clone(),
            true => Key { name: OTHERS.into(), ..key.clone() },
        };
        *count += usize::from(!self.rows.contains_key(&key));
        assert!(!is_crowded || *key.name == *OTHERS, "who finds no room is one of the others");
        assert!(*count <= max + Source::ALL.len(), "beyond the most there are others'");
        self.rows.entry(key).or_default().add(now, sums);
    }

    /// No guess makes a warning.
    fn watch(&mut self, now: Instant, key: &Key, sums: &Sums) {
        if key.dimension != Dimension::Site || key.source == Source::Estimate {
            return;
        }
        if let Some(watch) = self.watches.get_mut(&key.name) {
            watch.add(now, key.source, sums);
        } else if self.watches.len() < self.config.sites_max {
            self.watches.entry(key.name.clone()).or_default().add(now, key.source, sums);
        }
    }

    /// How often there was no room for a row, so that sums are in those of others.
    pub fn crowded(&self) -> u64 {
        self.crowded
    }

    /// Each row behind that of this key, or each, in the order of their keys.
    pub fn rows_after(&self, key: Option<&Key>) -> impl Iterator<Item = (&Key, &Row)> {
        let from = key.map_or(Bound::Unbounded, Bound::Excluded);
        self.rows.range((from, Bound::Unbounded))
    }

    /// Sites whose viewers stall more than usual. O(sites).
    pub fn warnings(&mut self, now: Instant) -> Vec<(Arc<str>, Warning)> {
        let look = |(site, watch): (&Arc<str>, &mut Watch)| Some((site.clone(), watch.look(now)?));
        self.watches.iter_mut().filter_map(look).collect()
    }

    /// Forgets rows that were not added to in the last minutes, but for players and sites that are
    /// there still: they are few, and their sums are counters.
    pub fn forget(&mut self, now: Instant, is_site: impl Fn(&str) -> bool) {
        let is_site = |name: &str| name == OTHERS || is_site(name);
        self.watches.retain(|name, _| is_site(name));
        let counts = &mut self.counts;
        self.rows.retain(|key, row| {
            let stays = match key.dimension {
                Dimension::Site => is_site(&key.name),
                Dimension::Player => true,
                Dimension::Asset | Dimension::Network => !row.recent(now).is_empty(),
            };
            if !stays && let Some(count) = counts.get_mut(&key.dimension) {
                *count -= 1;
            }
            stays
        });
    }
}

impl Row {
    fn add(&mut self, now: Instant, sums: &Sums) {
        let minute = now.0 / MINUTE.0;
        let passed = minute.saturating_sub(self.minute);
        self.minute = self.minute.max(minute);
        for _ in 0..passed.min(u64::try_from(MINUTES).expect("few")) {
            self.minutes.rotate_right(1);
            self.minutes[0] = Sums::default();
        }
        assert!(minute <= self.minute, "it is added to no minute to come");
        self.minutes[0].add(sums);
        if !self.total.has_room(sums) {
            self.total = Sums::default();
        }
        self.total.add(sums);
    }

    /// The sums of each of the last minutes, this one first.
    pub fn minutes(&self, now: Instant) -> [Sums; MINUTES] {
        let mut row = self.clone();
        row.add(now, &Sums::default());
        row.minutes
    }

    /// The sums of the last minutes together.
    pub fn recent(&self, now: Instant) -> Sums {
        let mut sum = Sums::default();
        self.minutes(now).iter().for_each(|minute| sum.add(minute));
        sum
    }
}
