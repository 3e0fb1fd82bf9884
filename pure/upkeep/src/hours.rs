//! Opens and closes fill by the hours that control told: by the wall clock, which may step.

use model::units::{Nanos, UnixSeconds};

use crate::host::Host;
use crate::told::Told;

/// A clock that is set is noticed within this.
const LOOK_EVERY: Nanos = Nanos::seconds(1);
/// The same while a change is less than two seconds away: clocks here have whole seconds.
const LOOK_NEAR: Nanos = Nanos::millis(20);

/// Looks at the clock until all must stop. `wall` is asked each time.
pub async fn run<H: Host>(host: &H, wall: impl Fn() -> UnixSeconds) {
    loop {
        let now = wall();
        let (is_open, was_open, other, next) = host.ask(|holdings| {
            let hours = &holdings.rules().hours;
            let is_open = hours.is_open(now);
            (is_open, holdings.is_open(), holdings.hours_are_other(now), hours.next_change(now))
        });
        if other {
            let at = host.now();
            host.change(|holdings| holdings.look_at_hours(at, now));
        }
        if is_open != was_open {
            host.tell(Told::Hours { is_open, until: next });
        }
        let is_near = next.is_some_and(|next| next.0 - now.0 <= 1);
        let wait = if is_near { LOOK_NEAR } else { LOOK_EVERY };
        if !host.sleep_until(host.now() + wait).await {
            return;
        }
    }
}
