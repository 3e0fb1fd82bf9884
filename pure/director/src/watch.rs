//! Which appliances can serve: by their reports, their silence, and what answers at their address.

use model::id::{ApplianceId, Generation};
use model::units::Instant;
use model::view::Health;

use crate::observed::{Cause, Probe};
use crate::{Action, Director, Notice, Role};

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

    /// Looks at every appliance's clock.
    pub(crate) fn watch(&mut self, now: Instant) {
        let ids: Vec<ApplianceId> = self.members.keys().cloned().collect();
        for id in ids {
            self.judge(now, &id);
            self.end_recovery(now, &id);
            let observed = self.members.get_mut(&id).and_then(|member| member.observed.as_mut());
            let Some(observed) = observed else { continue };
            let late = self.config.probe_after < now.since(observed.last_report);
            if late && observed.probe == Probe::None {
                observed.probe = Probe::Asked;
                self.counters.probes += 1;
                let base_url = observed.base_url.clone();
                self.actions.push_back(Action::Probe { appliance: id, base_url });
            }
        }
    }

    fn end_recovery(&mut self, now: Instant, id: &ApplianceId) {
        let Some(member) = self.members.get_mut(id) else { return };
        let is_over = |since: &mut Instant| self.config.recovery <= now.since(*since);
        self.view_is_old |= member.recovered.take_if(is_over).is_some();
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
        let Some(member) = self.members.get_mut(id) else { return };
        let Some(observed) = &member.observed else { return };
        let (health, cause) = match observed.health(now, self.config.stale_after, newest) {
            stale @ (Health::Stale, _) => stale,
            _ if is_cloned => (Health::Unhealthy, Cause::Cloned),
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
        if member.health != health {
            let was_lost = matches!(member.health, Health::Stale | Health::Unhealthy);
            member.recovered = (was_lost && health == Health::Healthy).then_some(now);
            member.since = now;
            self.counters.health_changes += 1;
        }
        member.health = health;
        self.view_is_old = true;
        self.note(id, health, cause);
    }

    /// Tells an operator.
    pub(crate) fn note(&mut self, id: &ApplianceId, health: Health, cause: Cause) {
        let colon = if cause == Cause::None { "" } else { ": " };
        let text = format!("{id} is {health}{colon}{cause}");
        self.say(id, health, cause, text);
    }

    pub(crate) fn say(&mut self, id: &ApplianceId, health: Health, cause: Cause, text: String) {
        let notice = Notice { at: self.now_unix, appliance: id.clone(), health, cause, text };
        if self.config.notices_max <= self.notices.len() {
            self.notices.pop_front();
        }
        self.notices.push_back(notice.clone());
        assert!(self.notices.len() <= self.config.notices_max, "the oldest made room");
        self.actions.push_back(Action::Tell(notice));
    }
}
