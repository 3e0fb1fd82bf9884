//! What control knows of all sites: sums since its start, the last minutes, and warnings.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::units::{Instant, Nanos};

use crate::sums::{Dimension, Key, OTHERS, Sums};
use crate::watch::{Warning, Watch};

/// Bounds.
#[derive(Clone, Copy, Debug)]
pub struct TotalsConfig {
    /// Most rows of a dimension; beyond, what comes is added to those of others.
    pub rows_max: usize,
}

/// Minutes of which a row has its sums by themselves, this one among them.
pub const MINUTES: usize = 10;
const MINUTE: Nanos = Nanos::seconds(60);

/// The sums of one row.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// Since control's start.
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
    watches: BTreeMap<Arc<str>, Watch>,
}

impl Totals {
    /// Nothing.
    pub fn new(config: TotalsConfig) -> Self {
        assert!(0 < config.rows_max, "there is room for one");
        let (rows, counts, watches) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { config, rows, counts, watches }
    }

    /// Adds what an appliance, or a collector of events, has told now. O(log rows).
    pub fn add(&mut self, now: Instant, key: &Key, sums: &Sums) {
        let is_told = !self.rows.contains_key(key);
        let count = self.counts.entry(key.dimension).or_default();
        let key = match is_told && self.config.rows_max <= *count {
            false => key.clone(),
            true => Key { name: OTHERS.into(), ..key.clone() },
        };
        *count += usize::from(!self.rows.contains_key(&key));
        let others = crate::sums::Source::ALL.len();
        assert!(*count <= self.config.rows_max + others, "beyond the most there are others'");
        // No guess makes a warning.
        if key.dimension == Dimension::Site && key.source != crate::sums::Source::Estimate {
            self.watches.entry(key.name.clone()).or_default().add(now, sums);
        }
        self.rows.entry(key).or_default().add(now, sums);
    }

    /// Each row.
    pub fn rows(&self) -> impl Iterator<Item = (&Key, &Row)> {
        self.rows.iter()
    }

    /// Sites whose viewers stall more than usual. O(sites).
    pub fn warnings(&mut self, now: Instant) -> Vec<(Arc<str>, Warning)> {
        let look = |(site, watch): (&Arc<str>, &mut Watch)| Some((site.clone(), watch.look(now)?));
        self.watches.iter_mut().filter_map(look).collect()
    }

    /// Forgets rows that were not added to in the last minutes, but for sites and players: they are
    /// few, and their sums are counters.
    pub fn forget(&mut self, now: Instant) {
        let counts = &mut self.counts;
        self.rows.retain(|key, row| {
            let stays = matches!(key.dimension, Dimension::Site | Dimension::Player)
                || !row.recent(now).is_empty();
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
