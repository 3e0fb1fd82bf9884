//! When fillers may fetch, by the rules that control told last.

use std::sync::Arc;

use model::hours::FillRules;
use model::units::{Instant, UnixSeconds};

use crate::Holdings;

impl Holdings {
    /// Fill goes by these from now on. Those that are in force are no news.
    pub fn set_rules(&mut self, at: Instant, now: UnixSeconds, rules: FillRules) {
        if *self.rules == rules {
            return;
        }
        if self.rules.urgent != rules.urgent {
            self.forget_urgent();
            self.planner = None;
            self.replan();
        }
        self.rules = Arc::new(rules);
        self.look_at_hours(at, now);
    }

    /// What control told of fetching.
    pub fn rules(&self) -> &Arc<FillRules> {
        &self.rules
    }

    /// Opens or closes fill, if it is time. `at` is the same moment by the clock that nobody sets.
    pub fn look_at_hours(&mut self, at: Instant, now: UnixSeconds) {
        let (is_open, takes_urgent) = self.standing_at(now);
        if (is_open && self.is_closed) || (takes_urgent && !self.takes_urgent) {
            self.news = true; // Those who wait for something to fetch look again.
        }
        if is_open {
            self.waits.opened(at);
        } else {
            self.waits.closed(at);
        }
        (self.is_closed, self.takes_urgent) = (!is_open, takes_urgent);
    }

    /// True if fill stands otherwise than by its rules at this time.
    pub fn hours_are_other(&self, now: UnixSeconds) -> bool {
        self.standing_at(now) != (!self.is_closed, self.takes_urgent)
    }

    /// Whether fill is open, and whether what is urgent may be fetched.
    fn standing_at(&self, now: UnixSeconds) -> (bool, bool) {
        (self.rules.hours.is_open(now), self.rules.takes_urgent(now))
    }

    /// True while fillers may fetch.
    pub fn is_open(&self) -> bool {
        !self.is_closed
    }
}
