//! When which connection goes on: a wheel of slots, each a list of timers.
//!
//! ```text
//! arm ──> slot of the tick ──> list (in the order of arming) ──> fire, once its tick is over
//!           └─ bit in `occupied`: the nearest is found in 16 words
//! ```
//!
//! A hashed wheel (Varghese and Lauck 1987, scheme 6) whose timers lie in one table by connection,
//! linked by index. All verbs but `deadline` and `fire` take constant time, these two that of a
//! look at 16 words; none allocates but `reserve`.

use model::units::{Instant, Nanos};

/// A timer fires in the first tick after its time: at most this late, if it is asked often enough.
/// 2^20 ns, so that a tick is a shift.
pub(crate) const GRANULARITY: Nanos = Nanos(1 << 20);
/// Slots: what is further away than these many ticks (1.07 s) fires early, and is armed again.
const SLOTS: usize = 1024;
const WORDS: usize = SLOTS / 64;
const NONE: usize = usize::MAX;

#[derive(Clone, Copy, Debug)]
struct Timer {
    before: usize,
    after: usize,
    /// Where it is; NONE while it is not armed.
    slot: usize,
}

/// First and last timer of a tick.
#[derive(Clone, Copy, Debug)]
struct Slot {
    first: usize,
    last: usize,
}

/// Timers of connections, at most one each.
#[derive(Debug)]
pub(crate) struct Wheel {
    slots: Box<[Slot; SLOTS]>,
    /// One bit for each slot. Invariant: set exactly where the slot has a timer.
    occupied: [u64; WORDS],
    timers: Vec<Timer>,
    armed: usize,
    /// Invariant: each armed timer's tick is one of the `SLOTS` that begin with this.
    from: u64,
}

impl Wheel {
    pub(crate) fn new() -> Self {
        let empty = Slot { first: NONE, last: NONE };
        Self {
            slots: Box::new([empty; SLOTS]),
            occupied: [0; WORDS],
            timers: Vec::new(),
            armed: 0,
            from: 0,
        }
    }

    /// Makes room for a timer of that index. Grows with the table of connections, never after.
    pub(crate) fn reserve(&mut self, index: usize) {
        if self.timers.len() <= index {
            let none = Timer { before: NONE, after: NONE, slot: NONE };
            self.timers.resize(index + 1, none);
        }
    }

    /// Fires the timer of `index` at `due`, or at the end of the wheel if that is earlier.
    pub(crate) fn arm(&mut self, now: Instant, index: usize, due: Instant) {
        assert!(index < self.timers.len(), "room was made when the connection came");
        self.cancel(index);
        if self.armed == 0 {
            self.from = now.0 / GRANULARITY.0;
        }
        let tick = due.0.div_ceil(GRANULARITY.0);
        let slot = slot_of(tick.clamp(self.from, self.from + (1024 - 1)));
        let before = self.slots[slot].last;
        self.timers[index] = Timer { before, after: NONE, slot };
        if before == NONE {
            self.slots[slot].first = index;
            self.occupied[slot / 64] |= 1 << (slot % 64);
        } else {
            self.timers[before].after = index;
        }
        self.slots[slot].last = index;
        self.armed += 1;
    }

    /// The timer of `index` does not fire, if it was armed.
    pub(crate) fn cancel(&mut self, index: usize) {
        let Timer { before, after, slot } = self.timers[index];
        if slot == NONE {
            return;
        }
        if before == NONE {
            self.slots[slot].first = after;
        } else {
            self.timers[before].after = after;
        }
        if after == NONE {
            self.slots[slot].last = before;
        } else {
            self.timers[after].before = before;
        }
        if self.slots[slot].first == NONE {
            self.occupied[slot / 64] &= !(1 << (slot % 64));
        }
        self.timers[index].slot = NONE;
        assert!(0 < self.armed, "an armed timer is counted");
        self.armed -= 1;
    }

    /// The next timer whose tick is over, in the order of ticks; not armed any more.
    pub(crate) fn fire(&mut self, now: Instant) -> Option<usize> {
        let current = now.0 / GRANULARITY.0;
        let nearest = self.nearest().filter(|tick| *tick <= current);
        let Some(tick) = nearest else {
            self.from = self.from.max(current);
            return None;
        };
        self.from = tick;
        let index = self.slots[slot_of(tick)].first;
        assert_ne!(index, NONE, "a slot with a bit has a timer");
        self.cancel(index);
        Some(index)
    }

    /// When `fire` has something.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.nearest().map(|tick| Instant(tick * GRANULARITY.0))
    }

    /// The first tick, from `from` on, that has a timer.
    fn nearest(&self) -> Option<u64> {
        if self.armed == 0 {
            return None;
        }
        let begin = slot_of(self.from);
        // The word that `from` lies in is looked at twice: its upper part first, the rest last.
        for step in 0..=WORDS {
            let word = (begin / 64 + step) % WORDS;
            let lower = (1_u64 << (begin % 64)) - 1;
            let mask = match step {
                0 => !lower,
                WORDS => lower,
                _ => u64::MAX,
            };
            let bits = self.occupied[word] & mask;
            if bits != 0 {
                let bit = usize::try_from(bits.trailing_zeros()).expect("below 64");
                let ahead = (word * 64 + bit + SLOTS - begin) % SLOTS;
                return Some(self.from + u64::try_from(ahead).expect("below SLOTS"));
            }
        }
        unreachable!("an armed timer has a bit")
    }
}

fn slot_of(tick: u64) -> usize {
    usize::try_from(tick % 1024).expect("below SLOTS")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TICK: u64 = GRANULARITY.0;

    fn wheel(timers: usize) -> Wheel {
        let mut wheel = Wheel::new();
        wheel.reserve(timers - 1);
        wheel
    }

    #[test]
    fn what_is_too_far_away_fires_at_the_end_of_the_wheel() {
        let mut wheel = wheel(1);
        wheel.arm(Instant(5 * TICK), 0, Instant(9000 * TICK));
        assert_eq!(wheel.deadline(), Some(Instant((5 + 1023) * TICK)));
        assert_eq!(wheel.fire(Instant(1000 * TICK)), None);
        assert_eq!(wheel.fire(Instant((5 + 1023) * TICK)), Some(0));
        assert_eq!(wheel.deadline(), None);
    }

    #[test]
    fn after_a_long_sleep_it_goes_on_from_now() {
        let mut wheel = wheel(2);
        let later = 1_000_000 * TICK;
        wheel.arm(Instant(later), 1, Instant(later + 3 * TICK));
        assert_eq!(wheel.deadline(), Some(Instant(later + 3 * TICK)));
        wheel.arm(Instant(later), 0, Instant(later));
        assert_eq!(wheel.fire(Instant(later)), Some(0));
        assert_eq!(wheel.fire(Instant(later)), None);
        assert_eq!(wheel.fire(Instant(later + 10 * TICK)), Some(1));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Arm { index: usize, after: u64 },
        Cancel { index: usize },
        Wait { span: u64 },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let arm =
            (0usize..20, 0u64..600 * TICK).prop_map(|(index, after)| Step::Arm { index, after });
        let cancel = (0usize..20).prop_map(|index| Step::Cancel { index });
        let wait = (0u64..400 * TICK).prop_map(|span| Step::Wait { span });
        prop::collection::vec(prop_oneof![4 => arm, 1 => cancel, 2 => wait], 1..120)
    }

    proptest! {
        /// Against a plain list: each timer fires once, never early, in the first look after its
        /// tick, in the order of ticks and of arming; a cancelled one does not fire.
        #[test]
        fn each_fires_once_and_in_order(steps in steps(), start in 0u64..1 << 40) {
            let mut wheel = wheel(20);
            let mut now = start;
            // (tick, order of arming, index)
            let mut wanted: Vec<(u64, usize, usize)> = Vec::new();
            for (order, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Arm { index, after } => {
                        wheel.arm(Instant(now), index, Instant(now + after));
                        wanted.retain(|one| one.2 != index);
                        wanted.push(((now + after).div_ceil(TICK), order, index));
                    }
                    Step::Cancel { index } => {
                        wheel.cancel(index);
                        wanted.retain(|one| one.2 != index);
                    }
                    Step::Wait { span } => {
                        now += span;
                        wanted.sort_unstable();
                        let due = wanted.iter().filter(|one| one.0 <= now / TICK).count();
                        let fired: Vec<usize> =
                            std::iter::from_fn(|| wheel.fire(Instant(now))).collect();
                        let expected: Vec<usize> = wanted.drain(..due).map(|one| one.2).collect();
                        prop_assert_eq!(fired, expected);
                    }
                }
                let nearest = wanted.iter().map(|one| Instant(one.0 * TICK)).min();
                prop_assert_eq!(wheel.deadline(), nearest);
            }
        }
    }
}
