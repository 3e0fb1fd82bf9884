//! Keys and revoked certificates, as appliances are told of them: in the trust document, and in the
//! manifests of those who read none.

use std::sync::Arc;

use model::id::{ApplianceId, Generation};
use model::manifest::TrustDocument;
use model::units::{Instant, Nanos};

use crate::observed::Cause;
use crate::plan::Replan;
use crate::trust::document;
use crate::{Action, Director, Role};

impl Director {
    /// The newest trust document; none before its first was stored, and in a replica.
    pub fn trust(&self) -> Option<&Arc<TrustDocument>> {
        match &self.role {
            Role::Writer(publisher) => publisher.trust.published.as_ref(),
            Role::Replica(_) => None,
        }
    }

    /// Keys or revoked certificates have changed, and so does the document. So do manifests, where
    /// they have them.
    pub(crate) fn trust_changed(&mut self, now: Instant) -> Option<Replan> {
        self.stage_trust(now);
        let Role::Writer(publisher) = &self.role else { return None };
        let are_in = !self.planning.is_done() || publisher.are_keys_in_manifests();
        are_in.then_some(Replan::Manifests)
    }

    pub(crate) fn stage_trust(&mut self, now: Instant) {
        let Role::Writer(publisher) = &mut self.role else { return };
        let document = document(&self.desired);
        if let Some(entry) = publisher.trust.want(now, self.now_unix, document) {
            self.actions.retain(|action| !matches!(action, Action::StoreTrust(_)));
            self.actions.push_back(Action::StoreTrust(entry));
        }
    }

    pub(crate) fn trust_stored(&mut self, generation: Generation) {
        self.publisher().trust.stored(generation);
    }

    pub(crate) fn go_on_with_trust(&mut self, now: Instant) {
        let Role::Writer(publisher) = &mut self.role else { return };
        if let Some(entry) = publisher.trust.again(now) {
            self.say_again(Action::StoreTrust(entry));
        }
    }

    /// An appliance says whether it reads trust documents. If not, its manifest needs keys, and
    /// another is made if it has none. O(log appliances).
    pub(crate) fn reads_trust(&mut self, id: &ApplianceId, reads: bool) {
        let Role::Writer(publisher) = &mut self.role else { return };
        let lacks_keys = publisher.says_of_trust(id, reads);
        if lacks_keys && self.planning.is_done() {
            self.want_plan(Replan::Manifests);
        }
    }

    /// An appliance follows this trust document, if any. If it is newer than the newest here, it
    /// would refuse every other: the next one goes above it. That is work for all, so an appliance
    /// is believed once in a while, and an operator is told its name.
    pub(crate) fn overtake_trust(
        &mut self,
        now: Instant,
        id: &ApplianceId,
        followed: Option<Generation>,
    ) {
        let Some(followed) = followed else { return };
        let Role::Writer(publisher) = &mut self.role else { return };
        let Some(member) = self.members.get_mut(id) else { return };
        let last = member.trust_overtaken;
        if last.is_some_and(|last| now.since(last) < BELIEVED_EVERY)
            || !publisher.trust.overtake(now, followed, self.now_unix)
        {
            return;
        }
        member.trust_overtaken = Some(now);
        let health = member.health;
        self.note(id, health, Cause::AheadOfTrust(followed));
        self.stage_trust(now);
    }

    /// True of an appliance that says that it follows this, if it is the newest and waits for no
    /// other.
    pub(crate) fn is_newest_trust(&self, followed: Generation) -> bool {
        let Role::Writer(publisher) = &self.role else { return false };
        let newest = publisher.trust.settled();
        newest.is_some_and(|newest| newest.trust.generation == followed)
    }
}

/// An appliance that tells the truth is ahead once after a backup was restored, which is a start of
/// this process.
const BELIEVED_EVERY: Nanos = Nanos::seconds(3600);
