//! The capacity of appliances' drives, as placement counts with it.
//!
//! ```text
//! reported ──> close to the capacity that counts: nothing
//!    │    ──> for the first time: counts at once
//!    └──> other ──> the same for `usable_settles` ──> counts, with all others that are due
//!                └> less than half of what counts: waits for an operator's word
//! ```
//!
//! The capacity that counts is desired state, and durable: control's restart moves no file. A
//! reported one is observed, and waits anew after a restart.
//!
//! Whatever appliances report, the fleet is placed anew at most once in `usable_replans`, and for
//! one appliance once in `usable_settles`. A report costs one look-up; a tick, a look at those that
//! wait.

use std::collections::BTreeMap;

use model::id::ApplianceId;
use model::units::{Bytes, Instant};

use crate::plan::Replan;
use crate::{Action, Config, Director, Role};

/// Capacities that were reported and do not count, or that count and are not durable yet.
#[derive(Debug, Default)]
pub(crate) struct Usable {
    waiting: BTreeMap<ApplianceId, Waiting>,
    /// When something began to count last.
    counted: Option<Instant>,
    /// Capacities that count and are not durable, and when the shell was told last.
    unstored: BTreeMap<ApplianceId, (Bytes, Instant)>,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    usable: Bytes,
    /// It has been reported, or about that much.
    since: Instant,
}

impl Director {
    /// Placement counts with what drives can hold. Small changes and an appliance that has lost
    /// sight of all its drives change nothing: its files are not gone because a mount failed.
    pub(crate) fn learn_usable(&mut self, now: Instant, id: &ApplianceId, usable: Bytes) {
        if matches!(self.role, Role::Replica(_)) || usable == Bytes::ZERO {
            return;
        }
        let Some(registered) = self.desired.appliances.get(id) else { return };
        let Some(counts) = registered.usable else {
            self.count_usable(now, id, usable);
            return self.want_plan(Replan::Places);
        };
        if is_close(counts, usable) {
            self.usable.waiting.remove(id);
            return;
        }
        let waiting = self.usable.waiting.entry(id.clone());
        let waiting = waiting.or_insert(Waiting { usable, since: now });
        if !is_close(waiting.usable, usable) {
            *waiting = Waiting { usable, since: now };
        }
    }

    /// Capacities that were reported for long enough count from now on. Those that are not durable
    /// are said again.
    pub(crate) fn settle_usable(&mut self, now: Instant) {
        self.say_unstored(now);
        let counted = self.usable.counted;
        if counted.is_some_and(|at| now.since(at) < self.config.usable_replans) {
            return;
        }
        let due = self.usable.waiting.iter().filter(|(id, waiting)| {
            let registered = self.desired.appliances.get(*id);
            let counts = registered.and_then(|registered| registered.usable);
            waiting.has_settled(now, &self.config)
                && counts.is_some_and(|counts| !is_slump(counts, waiting.usable))
        });
        let due: Vec<_> = due.map(|(id, waiting)| (id.clone(), waiting.usable)).collect();
        if due.is_empty() {
            return;
        }
        for (id, usable) in due {
            self.usable.waiting.remove(&id);
            self.count_usable(now, &id, usable);
        }
        self.usable.counted = Some(now);
        self.want_plan(Replan::Places);
    }

    /// Appliances whose capacity has changed, and does not count yet.
    pub(crate) fn waiting_usable(&self) -> Vec<ApplianceId> {
        self.usable.waiting.keys().cloned().collect()
    }

    /// The capacity that placement counts with, and the reported one, if that is so little that it
    /// waits for an operator's word ([`Change::Usable`](crate::Change::Usable)).
    pub fn slump(&self, now: Instant, id: &ApplianceId) -> Option<(Bytes, Bytes)> {
        let waiting = self.usable.waiting.get(id)?;
        let counts = self.desired.appliances.get(id)?.usable?;
        let waits = waiting.has_settled(now, &self.config) && is_slump(counts, waiting.usable);
        waits.then_some((counts, waiting.usable))
    }

    /// The capacity of an appliance's drives is durable.
    pub(crate) fn usable_stored(&mut self, id: &ApplianceId, usable: Bytes) {
        if self.usable.unstored.get(id).is_some_and(|(unstored, _)| *unstored == usable) {
            self.usable.unstored.remove(id);
        }
    }

    /// An operator has said how much counts, or that the appliance is gone.
    pub(crate) fn forget_usable(&mut self, id: &ApplianceId) {
        self.usable.waiting.remove(id);
        self.usable.unstored.remove(id);
    }

    /// Says again what is not durable, unless some of it waits. O(what is not durable), and
    /// O(actions that wait) where some is due.
    fn say_unstored(&mut self, now: Instant) {
        let every = self.config.usable_replans;
        let all = self.usable.unstored.iter();
        let due = all.filter(|(_, (_, said))| every <= now.since(*said));
        let stores = due.map(|(appliance, (usable, _))| {
            let (appliance, usable) = (appliance.clone(), *usable);
            Action::StoreUsable { appliance, usable }
        });
        let stores: Vec<Action> = stores.collect();
        if stores.first().is_none_or(|first| self.is_said(first)) {
            return;
        }
        for store in stores {
            self.actions.push_back(store);
        }
        for (_, said) in self.usable.unstored.values_mut() {
            if every <= now.since(*said) {
                *said = now;
            }
        }
    }

    fn count_usable(&mut self, now: Instant, id: &ApplianceId, usable: Bytes) {
        let Some(registered) = self.desired.registered_mut(id) else { return };
        assert!(usable != Bytes::ZERO, "lost sight of drives is no room");
        registered.usable = Some(usable);
        assert!(!self.usable.waiting.contains_key(id), "what counts waits no more");
        // One that is not durable is said again, when it does not wait any more.
        if self.usable.unstored.insert(id.clone(), (usable, now)).is_none() {
            self.actions.push_back(Action::StoreUsable { appliance: id.clone(), usable });
        }
    }
}

impl Waiting {
    fn has_settled(&self, now: Instant, config: &Config) -> bool {
        config.usable_settles <= now.since(self.since)
    }
}

/// A change by less than one part in so many is no reason to move files.
const CHANGE_MIN: u64 = 50;

fn is_close(counts: Bytes, usable: Bytes) -> bool {
    counts.0.abs_diff(usable.0) <= counts.0 / CHANGE_MIN
}

/// Less than half: operators rarely mean that, and to move it all takes days.
fn is_slump(counts: Bytes, usable: Bytes) -> bool {
    usable.0 < counts.0 / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{at, generations, id, manifest, put_version, report, running, settle};
    use crate::{Cause, Change, Event, Report};
    use model::machine::Machine;
    use model::units::UnixSeconds;
    use model::view::Health;

    const MIB: u64 = 1 << 20;

    /// Reports so many MiB once a second until then, with ticks between; what counts in the end.
    fn tell(director: &mut Director, seconds: std::ops::Range<u64>, mib: u64) -> u64 {
        for second in seconds {
            let report = Report { usable: Bytes(mib * MIB), ..report(100 + second) };
            director.report(at(second * 1000), &id("a1"), &report).unwrap();
            director.handle(at(second * 1000 + 500), Event::Tick(UnixSeconds(second)));
            settle(director);
        }
        counts(director, "a1")
    }

    fn counts(director: &Director, name: &str) -> u64 {
        director.places().report.loads[&id(name)].room.unwrap().0 / MIB
    }

    #[test]
    fn a_change_counts_when_it_has_lasted_and_one_that_goes_again_does_not() {
        let mut director = running(&["a1"]);
        put_version(&mut director, "film-1", &[1, 2], 1);
        let placements = director.counters().placements;
        assert_eq!(tell(&mut director, 0..400, 99), 100, "a small one, however long");
        assert_eq!(tell(&mut director, 400..690, 80), 100, "a drive was pulled");
        assert_eq!(tell(&mut director, 690..700, 100), 100, "and is back");
        assert_eq!(tell(&mut director, 700..990, 80), 100);
        assert_eq!(director.counters().placements, placements);
        assert_eq!(tell(&mut director, 990..1001, 81), 80, "about the same, for five minutes");
        assert_eq!(tell(&mut director, 1001..1301, 160), 80);
        assert_eq!(tell(&mut director, 1301..1303, 160), 160, "growth too");
        assert_eq!(director.counters().placements, placements + 2);
    }

    #[test]
    fn reports_that_never_stay_the_same_move_nothing() {
        let mut director = running(&["a1"]);
        let placements = director.counters().placements;
        for second in 0..2000 {
            tell(&mut director, second..second + 1, 60 + 30 * (second / 100 % 2));
        }
        assert_eq!((counts(&director, "a1"), director.counters().placements), (100, placements));
    }

    #[test]
    fn all_that_is_due_is_placed_at_once_and_not_again_so_soon() {
        let names: Vec<String> = (10..60).map(|n| format!("a{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut director = running(&names);
        let placements = director.counters().placements;
        for second in 0..330 {
            // One after the other loses a drive.
            for (n, name) in (0..=second).zip(&names) {
                let usable = Bytes((80 + n % 2) * MIB);
                let report = Report { usable, ..report(100 + second) };
                director.report(at(second * 1000), &id(name), &report).unwrap();
            }
            director.handle(at(second * 1000), Event::Tick(UnixSeconds(second)));
            settle(&mut director);
        }
        assert_eq!(counts(&director, "a10"), 80);
        assert_eq!(director.counters().placements, placements + 3, "21 of them, every ten seconds");
    }

    #[test]
    fn a_shrink_below_half_moves_nothing_without_an_operators_word() {
        let mut director = running(&["a1"]);
        put_version(&mut director, "film-1", &[1, 2], 1);
        let before = generations(&director);
        assert_eq!(tell(&mut director, 0..299, 40), 100);
        assert_eq!(director.slump(at(299_000), &id("a1")), None, "it may yet come back");
        assert_eq!(tell(&mut director, 299..4000, 40), 100);
        assert_eq!(generations(&director), before);
        let status = director.appliances(at(4_000_000))[&id("a1")].clone();
        let (planned, reported) = (Bytes(100 * MIB), Bytes(40 * MIB));
        assert_eq!(director.slump(at(4_000_000), &id("a1")), Some((planned, reported)));
        assert_eq!(status.health, Health::Healthy);
        assert_eq!(status.cause, Cause::Slump { planned, reported });
        let notices =
            director.notices().filter(|notice| notice.text.contains("nearcast appliance accept"));
        assert_eq!(notices.count(), 1, "an operator is told once");

        let word = Change::Usable(id("a1"), reported);
        director.handle(at(4_000_000), Event::Changed(word));
        settle(&mut director);
        assert_eq!(counts(&director, "a1"), 40);
        assert_eq!(tell(&mut director, 4000..4002, 40), 40);
        assert_eq!(director.appliances(at(4_002_000))[&id("a1")].cause, Cause::None);
    }

    #[test]
    fn a_shrink_that_is_repaired_needs_no_word() {
        let mut director = running(&["a1"]);
        tell(&mut director, 0..400, 40);
        assert!(director.slump(at(400_000), &id("a1")).is_some());
        assert_eq!(tell(&mut director, 400..402, 100), 100);
        assert_eq!(director.slump(at(402_000), &id("a1")), None);
        assert_eq!(tell(&mut director, 402..710, 60), 60, "half or more counts as any change");
    }

    #[test]
    fn what_counts_is_said_again_until_it_is_durable() {
        let mut director = running(&["a1"]);
        put_version(&mut director, "film-1", &[1, 2], 1);
        let report = Report { usable: Bytes(80 * MIB), ..report(100) };
        director.report(at(0), &id("a1"), &report).unwrap();
        let said = |director: &mut Director, seconds: u64| {
            director.handle(at(seconds * 1000), Event::Tick(UnixSeconds(seconds)));
            let actions: Vec<Action> = std::iter::from_fn(|| director.poll()).collect();
            actions.iter().any(|action| matches!(action, Action::StoreUsable { .. }))
        };
        assert_eq!([300, 301, 311].map(|at| said(&mut director, at)), [true, false, true]);
        director.handle(at(312_000), Event::UsableStored(id("a1"), Bytes(7)));
        assert!(said(&mut director, 322), "that was an older one");
        director.handle(at(323_000), Event::UsableStored(id("a1"), Bytes(80 * MIB)));
        assert!(!said(&mut director, 400));
        assert_eq!(manifest(&director, "a1").versions.len(), 1);
    }

    #[test]
    fn no_more_than_one_capacity_of_an_appliance_waits_to_be_stored() {
        let mut director = running(&["a1", "a2"]);
        let mut sequence = 100;
        let waiting = |director: &Director| {
            let all = director.actions.iter();
            all.filter(|action| matches!(action, Action::StoreUsable { .. })).count()
        };
        // Both change again and again, and nobody carries anything out.
        for second in 0..2000 {
            for name in ["a1", "a2"] {
                sequence += 1;
                let usable = Bytes((60 + 10 * (second / 310 % 2)) * MIB);
                let report = Report { usable, ..report(sequence) };
                director.report(at(second * 1000), &id(name), &report).unwrap();
            }
            director.handle(at(second * 1000), Event::Tick(UnixSeconds(second)));
            assert!(waiting(&director) <= 2, "{second}");
        }
        settle(&mut director);
        let all = [id("a1"), id("a2")].map(|id| director.desired.appliances[&id].usable.unwrap());
        director.handle(at(2_011_000), Event::Tick(UnixSeconds(2011)));
        let stored: Vec<_> = std::iter::from_fn(|| director.poll())
            .filter_map(|action| {
                if let Action::StoreUsable { usable, .. } = action { Some(usable) } else { None }
            })
            .collect();
        assert_eq!(stored, all, "those that waited were older ones");
    }
}
