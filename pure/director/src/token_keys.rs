//! When the key that signs playback tokens changes.
//!
//! ```text
//! announced ── every appliance in use has it, or a day ──> signs
//!                                 the one before ── its last token has expired ──> gone
//! ```

use model::units::{Instant, Nanos, UnixSeconds};

use crate::{Action, Director, Role, SAY_AGAIN_AFTER};

/// Where a rotation of the keys of playback tokens stands. Durable with the keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenRotation {
    /// When the next key was announced; none if none is.
    pub announced: Option<UnixSeconds>,
    /// When the first of those that signed before is of no more use; none if there are none.
    pub retires: Option<UnixSeconds>,
}

impl Director {
    /// Asks for the next step with the keys, once a second until it is done.
    pub(crate) fn go_on_with_token_keys(&mut self, now: Instant) {
        let is_said = self.token_keys_said.is_some_and(|said| now.since(said) < SAY_AGAIN_AFTER);
        if is_said || matches!(self.role, Role::Replica(_)) {
            return;
        }
        let TokenRotation { announced, retires } = self.desired.token_rotation;
        let action = if announced.is_some_and(|at| self.next_token_key_may_sign(at)) {
            Action::UseNextTokenKey
        } else if retires.is_some_and(|at| at <= self.now_unix) {
            Action::DropOldTokenKeys
        } else {
            return;
        };
        self.token_keys_said = Some(now);
        self.say_again(action);
    }

    fn next_token_key_may_sign(&self, announced: UnixSeconds) -> bool {
        let age = Nanos::seconds(self.now_unix.0.saturating_sub(announced.0));
        let is_known = self.config.rotation_min <= age && self.all_follow();
        is_known || self.config.rotation_max <= age
    }
}
