//! Changes of desired state, and all that follows from each.
//!
//! ```text
//! Event::Changed  ──> Desired::apply ──> here: members, versions that are held, receipts, a plan
//! Event::Replaced ──> the whole of it ──> here: the same, but for receipts' writer and plans
//! ```

use std::sync::Arc;

use model::id::{ApplianceId, Generation, SiteId};
use model::topology::{Appliance, Site};
use model::units::Instant;

use crate::desired::{Change, Desired, Policy};
use crate::front::Snapshot;
use crate::plan::Replan;
use crate::playbacks::PlaybacksChange;
use crate::wishes::Wishes;
use crate::{Director, Role};

impl Director {
    /// Takes over the desired state of a replica's writer. Appliances that stay keep their observed
    /// state.
    pub(crate) fn replace_desired(
        &mut self,
        now: Instant,
        desired: Desired,
        generation: Generation,
    ) {
        let Role::Replica(known) = &mut self.role else {
            panic!("a writer's desired state is changed in parts, by Event::Changed");
        };
        *known = generation;
        let before = std::mem::replace(&mut self.desired, desired);
        for id in before.appliances.keys() {
            if !self.desired.appliances.contains_key(id) {
                self.lose_member(id);
            }
        }
        self.find_places(now, before.sites.keys().cloned());
        self.choose_kept(now, self.all_versions());
        self.look_at_withdrawals();
        self.follow_drains(now, &before);
        self.view_is_old = true;
    }

    /// Does a change, which is durable. The one place that says what follows from each.
    pub(crate) fn change(&mut self, now: Instant, change: Change) {
        let Some(change) = self.change_apart(now, change) else { return };
        self.desired.apply(change.clone());
        let wanted = match change {
            // No file moves for it.
            Change::Drain(id, _) => return self.judge(now, &id),
            Change::Urgent(_) => return self.learn_urgent(),
            Change::ApplianceGone(id) => {
                self.appliance_gone(&id);
                Some(Replan::Places)
            }
            Change::Usable(id, _) => {
                self.forget_usable(&id);
                Some(Replan::Places)
            }
            Change::Enrolled { appliance, supersedes, .. } => {
                self.enrolled(&appliance, supersedes);
                None
            }
            Change::CloneGone(id) => {
                self.clone_gone(now, &id);
                None
            }
            Change::IdentityRevoked(id) => {
                self.identity_revoked(now, &id);
                None
            }
            Change::SigningKeys(_) => {
                self.begin_rotation(now);
                self.stage_trust(now);
                Some(Replan::Manifests) // who signs them may be another
            }
            Change::TokenKeys(..) | Change::Revoked(_) => self.trust_changed(now),
            Change::Version(version) => {
                self.choose_kept(now, [version.id().clone()].into());
                // One that was withdrawn is wanted again, and nobody has to sign for it.
                if self.takedown.withdrawn.contains(version.id()) {
                    self.look_at_withdrawals();
                }
                Some(Replan::Places)
            }
            Change::Withdrawn(withdrawal) => {
                self.choose_kept(now, withdrawal.versions.keys().cloned().collect());
                self.withdrawn(withdrawal.id);
                Some(Replan::Places)
            }
            Change::Superseded(versions) => {
                self.choose_kept(now, versions.into_iter().collect());
                Some(Replan::Places)
            }
            Change::Site(_)
            | Change::SiteGone(_)
            | Change::Appliance(_)
            | Change::Policy(_)
            | Change::Wishes(_)
            | Change::Playbacks(_) => None, // done above
        };
        self.changed(wanted);
    }

    /// Does a change of which only some part, or nothing, moves a file; any other comes back.
    fn change_apart(&mut self, now: Instant, change: Change) -> Option<Change> {
        if let Change::Playbacks(change) = change {
            self.change_playbacks(change);
            return None;
        }
        if let Change::Site(Site { id, .. }) | Change::SiteGone(id) = &change {
            let id = id.clone();
            self.change_site(id, change);
            return None;
        }
        if let Change::Appliance(appliance) = change {
            self.change_appliance(now, appliance);
            return None;
        }
        if let Change::Policy(policy) = change {
            self.change_policy(now, policy);
            return None;
        }
        if let Change::Wishes(wishes) = change {
            self.change_wishes(wishes);
            return None;
        }
        Some(change)
    }

    /// A change is made, and manifests follow from it or do not.
    fn changed(&mut self, wanted: Option<Replan>) {
        if let Some(wanted) = wanted {
            self.want_plan(wanted);
        }
        self.settle_withdrawals();
        self.view_is_old = true;
    }

    /// Neither files nor lists depend on the rights to play, and services may change them often.
    fn change_playbacks(&mut self, change: PlaybacksChange) {
        self.desired.playbacks.apply(change);
        let playbacks = self.desired.playbacks.clone();
        self.snapshot = Arc::new(Snapshot { playbacks, ..Snapshot::clone(&self.snapshot) });
    }

    /// Files move for pins and bans; launches are for the next forecast.
    fn change_wishes(&mut self, wishes: Arc<Wishes>) {
        let moves = self.desired.wishes.rules != wishes.rules;
        self.desired.apply(Change::Wishes(wishes));
        self.changed(moves.then_some(Replan::Places));
    }

    /// It is gone for good, and nobody waits for its receipts.
    fn appliance_gone(&mut self, id: &ApplianceId) {
        self.lose_member(id);
        self.publisher().forget(id);
        self.forget_usable(id);
        self.sign_no_more(id);
    }

    /// A site is new, different or gone: no file moves for it but where its limit is another, or
    /// the sites that it is planned with. With one that is gone goes what was said of it alone: a
    /// plan tells no more that a pin there is not kept.
    fn change_site(&mut self, id: SiteId, change: Change) {
        let planned = |desired: &Desired| {
            let of = desired.sites.get(&id);
            of.map(|of| (of.bitrate_max, of.manifest_cluster.clone())).unwrap_or_default()
        };
        let before = (planned(&self.desired), self.desired.wishes.has_site(&id));
        self.desired.apply(change);
        if (planned(&self.desired), self.desired.wishes.has_site(&id)) != before {
            self.want_plan(Replan::Places);
        }
        self.learn_zone(&id);
        let is_there = self.desired.sites.contains_key(&id);
        let id = [id];
        let (gone, there): (&[_], &[_]) = if is_there { (&[], &id) } else { (&id, &[]) };
        self.change_sites(gone, there);
        self.view_is_old = true;
    }

    /// An appliance is new or different: files move for its site, its weight and its capacity, and
    /// others of its site are told its addresses.
    fn change_appliance(&mut self, now: Instant, appliance: Appliance) {
        let known = self.desired.appliances.get(&appliance.id);
        let wanted = wanted_for(known.map(|known| &known.appliance), &appliance);
        let id = appliance.id.clone();
        self.desired.apply(Change::Appliance(appliance));
        self.stand(now, &id);
        self.changed(wanted);
    }

    /// No file moves for what machines of a profile are able to do, nor for when sites fill.
    fn change_policy(&mut self, now: Instant, policy: Policy) {
        let Policy { copies, versions_kept, profiles: _, fill: _ } = self.desired.policy;
        self.desired.apply(Change::Policy(policy));
        if policy.versions_kept != versions_kept {
            self.choose_kept(now, self.all_versions());
        }
        let moves = (policy.copies, policy.versions_kept) != (copies, versions_kept);
        self.changed(moves.then_some(Replan::Places));
    }
}

/// What depends on how an appliance differs from what was known of it.
fn wanted_for(known: Option<&Appliance>, appliance: &Appliance) -> Option<Replan> {
    let Some(known) = known else { return Some(Replan::Places) };
    let Appliance { id: _, site, weight, addresses, profile: _, profile_name: _, own, tags: _ } =
        appliance;
    if (site, weight, own.capacity) != (&known.site, &known.weight, known.own.capacity) {
        return Some(Replan::Places);
    }
    (*addresses != known.addresses).then_some(Replan::Manifests)
}
