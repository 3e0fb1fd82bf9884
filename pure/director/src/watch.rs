//! Which appliances can serve: by their reports, their silence, and what answers at their address.
//!
//! A report is judged at once. Silence is found by looking at an appliance's clock when it could
//! have been silent for too long at the earliest: once in `probe_after` for one that reports, and
//! no report has to move an alarm. O(log appliances) each.

use std::collections::BTreeSet;

use model::id::{ApplianceId, Generation};
use model::number::NumberSet;
use model::units::{BitsPerSecond, Bytes, Instant, Nanos};
use model::view::Health;

use crate::drain::State;
use crate::observed::{Cause, Probe, Report, Wholes};
use crate::{Action, Director, Member, Notice, Role};

impl Director {
    pub(crate) fn probed(&mut self, now: Instant, id: &ApplianceId, answered: bool) {
        let observed = self.members.get_mut(id).and_then(|member| member.observed.as_mut());
        // A report that came meanwhile counts more than a connection that failed.
        let Some(observed) = observed.filter(|observed| observed.probe == Probe::Asked) else {
            return;
        };
        if !answered {
            observed.probe = Probe::Refused;
            self.judge(now, id);
        }
    }

    /// Looks at the clocks of appliances whose turn it is, and at those whose drives hold less than
    /// they did.
    pub(crate) fn watch(&mut self, now: Instant) {
        for number in self.looks.due(now) {
            let Some(id) = self.members.name(number).cloned() else { continue };
            self.judge(now, &id);
            self.probe_if_late(now, &id);
            if let Some(next) = self.next_look(now, &id) {
                self.looks.add(next, number);
            }
        }
        for id in self.waiting_usable() {
            self.judge(now, &id);
        }
    }

    /// Nobody was listened to for so long, so that nobody was silent. O(appliances); rare.
    pub(crate) fn was_away(&mut self, now: Instant, by: Nanos) {
        for member in self.members.values_mut() {
            member.share.was_away(now, by);
            let Some(observed) = &mut member.observed else { continue };
            assert!(observed.last_report <= now, "nothing was heard in the future");
            observed.last_report = (observed.last_report + by).min(now);
        }
    }

    /// It reports, and there was no room for what it said.
    pub(crate) fn lives(&mut self, now: Instant, id: &ApplianceId) {
        let observed = self.members.get_mut(id).and_then(|member| member.observed.as_mut());
        if let Some(observed) = observed {
            observed.last_report = now;
            observed.probe = Probe::None;
        }
    }

    fn probe_if_late(&mut self, now: Instant, id: &ApplianceId) {
        let observed = self.members.get_mut(id).and_then(|member| member.observed.as_mut());
        let Some(observed) = observed else { return };
        let late = self.config.probe_after < now.since(observed.last_report);
        if !late || observed.probe != Probe::None {
            return;
        }
        let base_url = observed.base_url.clone();
        if self.say_if_room(Action::Probe { appliance: id.clone(), base_url }) {
            self.counters.probes += 1;
            let observed = self.members.get_mut(id).and_then(|member| member.observed.as_mut());
            observed.into_iter().for_each(|observed| observed.probe = Probe::Asked);
        }
    }

    /// When time alone can change something about an appliance.
    fn next_look(&self, now: Instant, id: &ApplianceId) -> Option<Instant> {
        let member = self.members.get(id)?;
        let observed = member.observed.as_ref()?;
        let wait = match observed.probe {
            Probe::None => self.config.probe_after,
            Probe::Asked | Probe::Refused => self.config.stale_after,
        };
        let late = observed.last_report + wait + Nanos(1);
        // What is late stays so until a report comes, or a second has passed.
        let next = if late <= now { now + LOOK_AGAIN_AFTER } else { late };
        Some(self.drain_look(now, id).map_or(next, |turn| turn.min(next)))
    }

    /// What an appliance serves at most by an operator's word on it, or on its profile.
    pub(crate) fn serves_at_most(&self, id: &ApplianceId) -> Option<BitsPerSecond> {
        let appliance = &self.desired.appliances.get(id)?.appliance;
        self.desired.policy.able(appliance).throughput
    }

    /// An appliance reports, with so much of its scarcest resource in use. Whether that shows in
    /// lists can wait for the next tick.
    ///
    /// Of one that has not been heard here for long, others may know that it comes back slowly.
    pub(crate) fn move_share(&mut self, now: Instant, id: &ApplianceId, report: &Report) {
        let Some(member) = self.members.get_mut(id) else { return };
        let settle = self.config.shares.settle;
        let observed = member.observed.as_ref();
        let load = observed.map_or(0, |observed| observed.said.load.permille());
        let told =
            observed.and_then(|of| of.word(now, settle, report.told_share, report.own_share));
        if member.health.is_well() {
            let before = member.share.permille();
            member.share.heard(now, load, &self.config.shares);
            told.iter().for_each(|told| member.share.told(*told));
            let after = member.share.permille();
            self.counters.share_cuts += u64::from(after < before);
            if after != before {
                self.map.outdate(member.site);
            }
        }
    }

    /// Works out an appliance's health and says if it changed.
    pub(crate) fn judge(&mut self, now: Instant, id: &ApplianceId) {
        // A replica hears of new manifests later than appliances do.
        let newest = match &self.role {
            Role::Writer(publisher) => publisher
                .manifest(id)
                .map_or_else(|| publisher.generation(), |manifest| manifest.generation),
            Role::Replica(_) => Generation(u64::MAX),
        };
        let is_cloned = self.is_cloned(id);
        let slump = self.slump(now, id);
        let (drains, config) = (self.drains(id), self.config.drain);
        let Some(member) = self.members.get_mut(id) else { return };
        let Some(observed) = &member.observed else { return };
        let found = observed.health(now, self.config.stale_after, newest);
        let egress = (found.0 != Health::Stale).then_some(observed.said.load.egress);
        let drain = member.course.look(now, drains, egress, &config);
        let (health, cause) = match found {
            stale @ (Health::Stale, _) => stale,
            _ if is_cloned => (Health::Unhealthy, Cause::Cloned),
            (Health::Healthy | Health::Draining, _) if let Some(state) = drain => match state {
                State::Draining => (Health::Draining, Cause::Drains),
                State::Drained(end) => (Health::Drained, Cause::Drained(end)),
            },
            (Health::Healthy, Cause::None | Cause::DrivesSetAside(_))
                if let Some(slump) = slump =>
            {
                let (planned, reported) = slump;
                (Health::Healthy, Cause::Slump { planned, reported })
            }
            found => found,
        };
        let same = member.health == health && member.cause.is_like(&cause);
        member.cause = cause;
        if same {
            return;
        }
        let comes_back = health.is_well() && !member.health.is_well();
        if member.health != health {
            if is_lost(health) {
                member.share.lost(now);
            } else if self.healthy.were_all_lost(member.since, self.config.stale_after)
                || is_blip(now, member, self.config.shares.settle)
            {
                member.share.found();
            }
            self.healthy.is_now(now, member.number, health);
            member.since = now;
            self.counters.health_changes += 1;
        }
        member.health = health;
        self.map.outdate(member.site);
        self.count_load(id);
        self.view_is_old |= !comes_back;
        self.view_may_wait = true;
        self.note(id, health, cause);
        if comes_back {
            self.holds_anew(id, &Wholes::default());
        }
    }

    /// Tells an operator.
    pub(crate) fn note(&mut self, id: &ApplianceId, health: Health, cause: Cause) {
        let colon = if cause == Cause::None { "" } else { ": " };
        let text = format!("{id} is {health}{colon}{cause}");
        self.say(id, health, cause, text);
    }

    /// A line about one that is as it was.
    pub(crate) fn say_of(&mut self, id: &ApplianceId, text: String) {
        let Some(member) = self.members.get(id) else { return };
        let (health, cause) = (member.health, member.cause);
        self.say(id, health, cause, text);
    }

    pub(crate) fn say(&mut self, id: &ApplianceId, health: Health, cause: Cause, text: String) {
        let notice = Notice { at: self.now_unix, appliance: id.clone(), health, cause, text };
        if self.config.notices_max <= self.notices.len() {
            self.notices.pop_front();
        }
        self.notices.push_back(notice.clone());
        assert!(self.notices.len() <= self.config.notices_max, "the oldest made room");
        self.say_if_room(Action::Tell(notice));
    }
}

/// Whether an appliance that is back was only not heard for a moment: most of its players have not
/// asked meanwhile, and are with it still. One that restarted has lost them, and so has one whose
/// drives failed before it fell silent.
fn is_blip(now: Instant, member: &Member, settle: Nanos) -> bool {
    let lost = member.share.lost_once().filter(|_| member.health == Health::Stale);
    let begun = member.observed.as_ref().map(|observed| observed.begun);
    lost.is_some_and(|lost| now.since(lost) < settle && begun.is_some_and(|begun| begun <= lost))
}

fn is_lost(health: Health) -> bool {
    match health {
        Health::Stale | Health::Unhealthy => true,
        Health::Healthy | Health::Draining | Health::Drained | Health::NeverSeen => false,
    }
}

/// Who is healthy, by number. Where all are lost within seconds, it is this process that hears
/// nobody: they come back with the shares that they had, or all players would be sent far away.
#[derive(Debug, Default)]
pub(crate) struct Healthy {
    numbers: NumberSet,
    /// When the last one was lost.
    none_since: Option<Instant>,
}

impl Healthy {
    fn is_now(&mut self, now: Instant, number: u32, health: Health) {
        if health == Health::Healthy {
            self.numbers.insert(number);
        } else if self.numbers.remove(number) && self.numbers.is_empty() && is_lost(health) {
            self.none_since = Some(now);
        }
    }

    /// Whether one that was lost then was lost with all others.
    fn were_all_lost(&self, lost: Instant, within: Nanos) -> bool {
        self.none_since.is_some_and(|none| lost <= none && none.since(lost) <= within)
    }

    /// An appliance is not registered any more.
    pub(crate) fn gone(&mut self, number: u32) {
        self.numbers.remove(number);
    }
}

/// When appliances are looked at next, by number.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    /// Invariant: each appliance that has reported is in it once.
    turns: BTreeSet<(Instant, u32)>,
    numbers: NumberSet,
}

impl Looks {
    /// Adds an appliance, unless it has its turn already.
    pub(crate) fn add(&mut self, at: Instant, number: u32) {
        if self.numbers.insert(number) {
            self.turns.insert((at, number));
        }
    }

    /// Takes those whose turn it is.
    fn due(&mut self, now: Instant) -> Vec<u32> {
        let later = self.turns.split_off(&(now + Nanos(1), 0));
        let due = std::mem::replace(&mut self.turns, later);
        let due: Vec<u32> = due.into_iter().map(|(_, number)| number).collect();
        due.iter().for_each(|number| {
            self.numbers.remove(*number);
        });
        let waiting = Bytes::of(self.turns.len()).0;
        assert_eq!(self.numbers.len(), waiting, "each has one turn");
        due
    }
}

/// How often the clock of an appliance is looked at that is late already.
const LOOK_AGAIN_AFTER: Nanos = Nanos::seconds(1);
