//! What fronts have told a writer, so that its answers are the sum over all processes.
//!
//! A front tells all that it has counted since it began, and what it says takes the place of what
//! it said before: a report that is lost, or comes twice or late, changes no sum.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use model::units::{Instant, Nanos};
use wire::v1::sheds::{ROWS_MAX, ShedReport};

use super::held;
use super::table::{Table, Wanted};
use crate::members::identities::FRONTS_MAX;

/// A front that has said nothing for so long is gone, and its counts with it.
const FORGET_AFTER: Nanos = Nanos::seconds(3600);

#[derive(Default)]
pub(crate) struct Fronts {
    /// With 8,000 sites each is reckoned to take 5 to 8 MB. Invariant: at most [`FRONTS_MAX`]. One
    /// more takes the place of whoever has been silent for longest.
    by_name: Mutex<BTreeMap<String, Told>>,
}

struct Told {
    start_id: u64,
    number: u64,
    at: Instant,
    table: Arc<Table>,
}

impl Told {
    fn counts(&self, now: Instant) -> bool {
        now.since(self.at) < FORGET_AFTER
    }
}

/// A report that is longer than any front's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rows: {0} are more than {ROWS_MAX}, which no front sends")]
pub(crate) struct TooMany(usize);

impl Fronts {
    /// Takes a front's report. O(rows), of which O(fronts) under the lock.
    pub(crate) fn take(
        &self,
        now: Instant,
        name: &str,
        report: &ShedReport,
    ) -> Result<(), TooMany> {
        if ROWS_MAX < report.rows.len() {
            return Err(TooMany(report.rows.len()));
        }
        let (start_id, number) = (report.start_id, report.number);
        let table = Arc::new(Table::read(&report.rows));
        let told = Told { start_id, number, at: now, table };
        let mut fronts = held(&self.by_name);
        let is_old = |known: &Told| known.start_id == start_id && number < known.number;
        if fronts.get(name).is_some_and(is_old) {
            return Ok(());
        }
        let before = fronts.insert(name.to_owned(), told);
        fronts.retain(|_, told| told.counts(now));
        let silent = || fronts.iter().min_by_key(|(_, told)| told.at).map(|(name, _)| name.clone());
        let gone = if FRONTS_MAX < fronts.len() { silent() } else { None };
        let gone = gone.and_then(|name| fronts.remove(&name));
        drop(fronts);
        // Thousands of names are freed while nobody waits.
        drop((before, gone));
        Ok(())
    }

    /// Adds what they told and is wanted. O(entries of all), of which O(fronts) under the lock.
    pub(super) fn add_to(&self, table: &mut Table, now: Instant, wanted: Wanted<'_>) {
        let counting = |told: &&Told| told.counts(now);
        let tables: Vec<_> =
            held(&self.by_name).values().filter(counting).map(|told| told.table.clone()).collect();
        tables.iter().for_each(|told| table.add_all(told, wanted));
    }

    /// How many have told something within the hour.
    pub(crate) fn count(&self, now: Instant) -> usize {
        held(&self.by_name).values().filter(|told| told.counts(now)).count()
    }
}
