//! When a connection has to end: all must stop, or its [`Place`] has no more time.

use std::pin::{Pin, pin};
use std::task::Context;

use tokio::sync::watch;
use tokio::task::coop::unconstrained;
use tokio::time::{Instant, Sleep, sleep_until};

use super::place::Place;

/// What the task of one connection looks at in each turn. Wakers are listed once: this is one task,
/// so the first stays good, and each listing takes a lock, that of `stopped` of all connections.
pub(super) struct Ending {
    stopped: watch::Receiver<bool>,
    stop: Pin<Box<dyn Future<Output = ()> + Send>>,
    is_stop_listed: bool,
    is_stopping: bool,
    alarm: Pin<Box<Sleep>>,
    is_alarm_listed: bool,
}

impl Ending {
    pub(super) fn new(place: &Place, stopped: watch::Receiver<bool>) -> Self {
        let mut told = stopped.clone();
        // Without tokio's budget of a turn: once that is used up a poll lists no waker, and there
        // is no second one.
        let stop = unconstrained(async move {
            let _ = told.wait_for(|stopped| *stopped).await;
        });
        Self {
            stopped,
            stop: Box::pin(stop),
            is_stop_listed: false,
            is_stopping: false,
            alarm: Box::pin(sleep_until(place.deadline())),
            is_alarm_listed: false,
        }
    }

    /// True once all must stop.
    pub(super) fn must_stop(&mut self, context: &mut Context<'_>) -> bool {
        let is_told = !self.is_stop_listed || self.stopped.has_changed().unwrap_or(true);
        self.is_stop_listed = true;
        if !self.is_stopping && is_told {
            self.is_stopping = self.stop.as_mut().poll(context).is_ready();
        }
        self.is_stopping
    }

    /// True if the place's time is over. A deadline mostly moves to later, which the alarm finds
    /// out when it rings.
    pub(super) fn is_late(
        &mut self,
        context: &mut Context<'_>,
        place: &Place,
        now: Instant,
    ) -> bool {
        let deadline = place.deadline();
        if deadline < self.alarm.deadline() {
            self.set(deadline);
        }
        while !self.is_alarm_listed || self.alarm.deadline() <= now {
            // Without a budget, as above.
            if pin!(unconstrained(self.alarm.as_mut())).poll(context).is_pending() {
                self.is_alarm_listed = true;
                return false;
            }
            if self.alarm.deadline() == deadline {
                place.is_late();
                return true;
            }
            self.set(deadline);
        }
        false
    }

    fn set(&mut self, deadline: Instant) {
        self.alarm.as_mut().reset(deadline);
        self.is_alarm_listed = false;
    }
}
