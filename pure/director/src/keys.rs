//! Keys and revoked certificates, as appliances are told of them: in the trust document, and in the
//! manifests of those who read none.

use std::sync::Arc;

use model::id::{ApplianceId, Generation};
use model::manifest::TrustDocument;
use model::units::Instant;

use crate::plan::Wanted;
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
    pub(crate) fn trust_changed(&mut self, now: Instant) -> Option<Wanted> {
        self.stage_trust(now);
        let Role::Writer(publisher) = &self.role else { return None };
        let are_in = !self.planning.is_done() || publisher.are_keys_in_manifests();
        are_in.then_some(Wanted::Manifests)
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

    /// An appliance says which trust document it follows; none if it reads none: then its manifest
    /// needs keys, and another is made if it has not. O(log appliances).
    pub(crate) fn follows_trust(
        &mut self,
        now: Instant,
        id: &ApplianceId,
        followed: Option<Generation>,
    ) {
        let Role::Writer(publisher) = &mut self.role else { return };
        let lacks_keys = publisher.says_of_trust(id, followed.is_some());
        let is_ahead = followed.is_some_and(|of| publisher.trust.overtake(now, of, self.now_unix));
        if lacks_keys && self.planning.is_done() {
            self.want_plan(Wanted::Manifests);
        }
        if is_ahead {
            self.stage_trust(now);
        }
    }

    /// True of an appliance that says that it follows this, if it is the newest and waits for no
    /// other.
    pub(crate) fn is_newest_trust(&self, followed: Generation) -> bool {
        let Role::Writer(publisher) = &self.role else { return false };
        let newest = publisher.trust.settled();
        newest.is_some_and(|newest| newest.trust.generation <= followed)
    }
}
