//! Identities: clones, moved hardware, backups, the keys that sign.

use std::sync::Arc;

use model::id::{ApplianceId, Generation};
use model::units::Instant;
use model::view::Health;

use crate::machines::{Hardware, once_in_a_while};
use crate::observed::{Cause, Known, Observed, Report, Wholes};
use crate::plan::Replan;
use crate::{Action, Director, Role, Rotation, SAY_AGAIN_AFTER};

impl Director {
    pub(crate) fn is_cloned(&self, id: &ApplianceId) -> bool {
        self.desired.appliances.get(id).is_some_and(|registered| registered.cloned)
    }

    /// Two machines report as one appliance: no player is sent there any more. A replica waits for
    /// its writer to say so, which also hears when it is over.
    pub(crate) fn clone_found(&mut self, id: &ApplianceId) {
        if matches!(self.role, Role::Replica(_)) {
            return;
        }
        let Some(registered) = self.desired.registered_mut(id) else { return };
        if !registered.cloned {
            registered.cloned = true;
            self.outdate(id);
            self.view_is_old = true;
            self.counters.clones += 1;
            self.actions.push_back(Action::StoreCloned(id.clone()));
        }
    }

    /// Of two machines nothing is taken but that they live.
    pub(crate) fn report_of_two(&mut self, now: Instant, id: &ApplianceId, report: &Report) {
        let most = self.serves_at_most(id);
        let member = self.members.get_mut(id).expect("no report removes a member");
        let known = Known {
            files: &self.files,
            kept: &self.kept_numbers,
            others_max: self.config.objects_held_max,
        };
        let looks = &mut self.looks;
        let observed = member.observed.get_or_insert_with(|| {
            looks.add(now + self.config.probe_after, member.number);
            let observed = Observed::new(now, report, most, known);
            self.map.holds(member.number, &Wholes::default(), &observed.wholes());
            observed
        });
        observed.alive(now, report);
        // One manifest is for both: it has keys if one of them needs keys.
        if report.trust.is_none() {
            self.reads_trust(id, false);
        }
        self.judge(now, id);
    }

    /// An appliance has an identity; `supersedes` if its last one was still good.
    pub(crate) fn enrolled(&mut self, id: &ApplianceId, supersedes: bool) {
        self.believe_again(id);
        if supersedes {
            let health = self.members.get(id).map(|member| member.health);
            self.note(id, health.unwrap_or(Health::NeverSeen), Cause::Superseded);
        }
        self.outdate(id);
    }

    /// An operator says that the second machine is gone.
    pub(crate) fn clone_gone(&mut self, now: Instant, id: &ApplianceId) {
        self.believe_again(id);
        self.judge(now, id);
        self.outdate(id);
    }

    /// An appliance cannot report any more, and a thief of its key may go on serving.
    pub(crate) fn identity_revoked(&mut self, now: Instant, id: &ApplianceId) {
        let Some(member) = self.members.get_mut(id) else { return };
        if let Some(observed) = member.observed.take() {
            self.map.holds(member.number, &observed.wholes(), &Wholes::default());
        }
        let site = member.site;
        self.map.outdate(site);
        member.health = Health::NeverSeen;
        member.cause = Cause::Revoked;
        member.since = now;
        self.counters.health_changes += 1;
        self.count_load(id);
        self.heard_left(id, site);
        self.note(id, Health::NeverSeen, Cause::Revoked);
    }

    pub(crate) fn believe_again(&mut self, id: &ApplianceId) {
        let observed = self.members.get_mut(id).and_then(|member| member.observed.as_mut());
        if let Some(observed) = observed {
            observed.starts.forgive();
            observed.forget_inventory();
        }
    }

    /// Remembers an appliance's hardware, and says if it changed.
    pub(crate) fn learn_hardware(&mut self, now: Instant, id: &ApplianceId, told: &Hardware) {
        if matches!(self.role, Role::Replica(_)) {
            return;
        }
        let (Some(registered), Some(member)) =
            (self.desired.appliances.get(id), self.members.get_mut(id))
        else {
            return;
        };
        if registered.hardware.as_ref().is_some_and(|known| told.adds_nothing(known)) {
            return;
        }
        let known = registered.hardware.as_deref().cloned().unwrap_or_default();
        let next = told.clone().or(&known);
        if next == known || next.differs(&known) && !once_in_a_while(&mut member.moved, now) {
            return;
        }
        let (health, moved) = (member.health, told.moved(&known));
        if let Some(registered) = self.desired.registered_mut(id) {
            registered.hardware = Some(Arc::new(next.clone()));
        }
        self.actions.push_back(Action::StoreHardware { appliance: id.clone(), hardware: next });
        if let Some(moved) = moved {
            self.counters.moves += 1;
            self.note(id, health, Cause::Moved(moved));
        }
    }

    /// An appliance that follows a newer manifest than its newest here would refuse every other:
    /// the next one goes above it. With it go those of all others that say so until a plan begins.
    pub(crate) fn overtake(&mut self, now: Instant, id: &ApplianceId, followed: Generation) {
        let Role::Writer(publisher) = &mut self.role else { return };
        let Some(member) = self.members.get_mut(id) else { return };
        let newest = publisher.newest(id);
        if newest.is_none_or(|newest| followed <= newest)
            || !once_in_a_while(&mut member.overtaken, now)
        {
            return;
        }
        publisher.overtake(id, followed, self.now_unix);
        if publisher.is_to_be_overtaken(id) {
            self.unsettle_withdrawals(id);
        }
    }

    /// Begins the plan that goes above all that is followed and not known here, unless one is in
    /// the making or staged. O(appliances that are ahead).
    pub(crate) fn go_on_with_overtaking(&mut self) {
        let Role::Writer(publisher) = &mut self.role else { return };
        if self.planning.is_done() && !publisher.is_staged() && publisher.has_to_overtake() {
            self.want_plan(Replan::Manifests);
        }
    }

    /// Two keys are desired: the second is announced and will sign.
    pub(crate) fn begin_rotation(&mut self, now: Instant) {
        let is_under_way = 1 < self.desired.signing_keys.len();
        self.rotation = is_under_way.then_some(Rotation { since: now, said_at: None });
    }

    /// The next key signs when every appliance that ever reported follows a trust document, or a
    /// manifest, that names it, and fronts have had time for a snapshot, or after a longer time:
    /// whoever was away then learns of it when it renews its certificate.
    pub(crate) fn go_on_with_rotation(&mut self, now: Instant) {
        let Some(rotation) = self.rotation else { return };
        if rotation.said_at.is_some_and(|said| now.since(said) < SAY_AGAIN_AFTER) {
            return;
        }
        if matches!(self.role, Role::Replica(_)) {
            return;
        }
        let all = self.all_follow() && self.config.rotation_min <= now.since(rotation.since);
        if all || self.config.rotation_max <= now.since(rotation.since) {
            assert!(1 < self.desired.signing_keys.len(), "the next key is announced");
            self.rotation = Some(Rotation { said_at: Some(now), ..rotation });
            self.say_again(Action::UseNextSigningKey);
        }
    }

    /// Every appliance that ever reported follows the newest keys, in the trust document or in its
    /// newest manifest, and none waits to be stored.
    pub(crate) fn all_follow(&self) -> bool {
        let Role::Writer(publisher) = &self.role else { return false };
        let follows = |id: &ApplianceId| {
            let observed = self.members.get(id).and_then(|member| member.observed.as_ref());
            let newest = publisher.manifest(id).map(|manifest| manifest.generation);
            observed.is_some_and(|observed| match observed.said.trust {
                Some(followed) => self.is_newest_trust(followed),
                None => newest <= Some(observed.said.generation),
            })
        };
        let ever_reported = self.desired.appliances.values().filter(|r| r.usable.is_some());
        let is_planned = self.planning.is_done() && !publisher.is_staged();
        is_planned && ever_reported.map(|r| &r.appliance.id).all(follows)
    }
}
