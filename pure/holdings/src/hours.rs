//! When fillers may fetch, by the rules that control told last.

use std::sync::Arc;

use model::hours::FillRules;
use model::units::UnixSeconds;

use crate::Holdings;

impl Holdings {
    /// Fill goes by these from now on. Those that are in force are no news.
    pub fn set_rules(&mut self, now: UnixSeconds, rules: FillRules) {
        if *self.rules != rules {
            self.rules = Arc::new(rules);
            self.look_at_hours(now);
        }
    }

    /// What control told of fetching.
    pub fn rules(&self) -> &Arc<FillRules> {
        &self.rules
    }

    /// Opens or closes fill, if it is time.
    pub fn look_at_hours(&mut self, now: UnixSeconds) {
        let is_open = self.rules.hours.is_open(now);
        if is_open && self.is_closed {
            self.news = true; // Those who wait for something to fetch look again.
        }
        self.is_closed = !is_open;
    }

    /// True while fillers may fetch.
    pub fn is_open(&self) -> bool {
        !self.is_closed
    }
}
