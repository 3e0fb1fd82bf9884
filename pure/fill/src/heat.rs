//! How much viewers were sent of each object of late.
//!
//! ```text
//! samples (one chunk of many that were sent) ── note ──> object: bytes ── fade ──> half in a day
//! what control expects of a day ────────── expect ────────^ │    full: the coldest go
//!                                                           └──> of: what `tier` orders by
//! ```
//!
//! What is expected of an object counts once, as if it had been sent, and fades as all heat does:
//! so it goes up before anybody watches it, and comes down if nobody does.
//!
//! A table with a bound: of an object that is not in it less was seen than of those that are.

use std::collections::BTreeMap;

use model::id::ObjectId;
use model::units::{Bytes, Instant, Nanos};

/// Bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Objects that are counted, at least `ROOM_SHARE`.
    pub objects_max: usize,
    /// After so long half of the bytes seen count no more.
    pub half_life: Nanos,
}

/// A full table lets go of one in so many, the coldest: all at once, so that it is cheap for each.
pub const ROOM_SHARE: usize = 8;

/// Heat fades to the half in so many steps.
const STEPS: u64 = 8;
/// 2^(-1/8) in parts of 2^16.
const STEP_FACTOR: u128 = 60_097;

const MAGIC: &str = "nearcast-heat 1";

/// Bytes by object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heat {
    config: Config,
    /// Invariant: at most `config.objects_max`, none of them zero.
    objects: BTreeMap<ObjectId, Bytes>,
    faded_at: Instant,
}

impl Heat {
    /// Nothing was seen yet.
    pub fn new(config: Config, now: Instant) -> Self {
        assert!(ROOM_SHARE <= config.objects_max, "room for some objects");
        assert!(STEPS <= config.half_life.0, "time in which to fade");
        Self { config, objects: BTreeMap::new(), faded_at: now }
    }

    /// Viewers were sent so much of an object.
    pub fn note(&mut self, now: Instant, object: ObjectId, sent: Bytes) {
        self.fade(now);
        if sent == Bytes::ZERO {
            return;
        }
        if !self.objects.contains_key(&object) && self.config.objects_max <= self.objects.len() {
            self.make_room();
        }
        let heat = self.objects.entry(object).or_default();
        *heat = Bytes(heat.0.saturating_add(sent.0));
        assert!(self.objects.len() <= self.config.objects_max, "the table is bounded");
    }

    /// Viewers are expected to be sent `day` of an object in a day, and were by `before` until now:
    /// what is more counts as if it had been sent, as long as heat is below `day`.
    pub fn expect(&mut self, now: Instant, object: ObjectId, (before, day): (Bytes, Bytes)) {
        self.fade(now);
        let heat = self.of(&object);
        let more = day.saturating_sub(before).0.min(day.saturating_sub(heat).0);
        self.note(now, object, Bytes(more));
    }

    /// The heat of an object now; zero for one that is not known.
    pub fn of(&self, object: &ObjectId) -> Bytes {
        self.objects.get(object).copied().unwrap_or_default()
    }

    /// How many objects are known.
    pub fn count(&self) -> usize {
        self.objects.len()
    }

    /// Lets time pass.
    pub fn fade(&mut self, now: Instant) {
        let step = Nanos(self.config.half_life.0 / STEPS);
        while step <= now.since(self.faded_at) {
            if self.objects.is_empty() {
                self.faded_at = now;
                return;
            }
            self.faded_at = self.faded_at + step;
            self.objects.retain(|_, heat| {
                let less = (u128::from(heat.0) * STEP_FACTOR) >> 16;
                *heat = Bytes(u64::try_from(less).expect("less than before"));
                *heat != Bytes::ZERO
            });
        }
    }

    /// All of it as text, to be kept through a restart.
    pub fn encode(&self) -> String {
        let lines = self.objects.iter().map(|(object, heat)| format!("{object} {}\n", heat.0));
        std::iter::once(format!("{MAGIC}\n")).chain(lines).collect()
    }

    /// Reads the text of `encode`, faded by nothing; damaged lines are left out, and those beyond
    /// the table. None for any other text.
    pub fn decode(config: Config, now: Instant, text: &str) -> Option<Self> {
        let mut heat = Self::new(config, now);
        let lines = text.strip_prefix(MAGIC)?.lines();
        let parse = |line: &str| {
            let (object, heat) = line.split_once(' ')?;
            Some((object.parse().ok()?, Bytes(heat.parse().ok()?)))
        };
        for (object, bytes) in lines.filter_map(parse).take(config.objects_max) {
            heat.note(now, object, bytes);
        }
        Some(heat)
    }

    /// The coldest go, one in `ROOM_SHARE`.
    fn make_room(&mut self) {
        let mut by_heat: Vec<(Bytes, ObjectId)> =
            self.objects.iter().map(|(object, heat)| (*heat, *object)).collect();
        let count = by_heat.len().div_ceil(ROOM_SHARE);
        by_heat.select_nth_unstable(count - 1);
        by_heat[..count].iter().for_each(|(_, object)| {
            self.objects.remove(object);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DAY: Nanos = Nanos::seconds(86_400);
    const CONFIG: Config = Config { objects_max: 16, half_life: DAY };

    fn object(n: u8) -> ObjectId {
        ObjectId([n; 32])
    }

    fn at(hours: u64) -> Instant {
        Instant(0) + Nanos::seconds(hours * 3600)
    }

    #[test]
    fn half_of_it_counts_a_day_later_and_nothing_in_the_end() {
        let mut heat = Heat::new(CONFIG, at(0));
        heat.note(at(1), object(1), Bytes::mib(64));
        heat.note(at(2), object(1), Bytes::mib(64));
        assert_eq!(heat.of(&object(1)), Bytes::mib(128));
        assert_eq!(heat.of(&object(2)), Bytes::ZERO);
        heat.fade(at(24));
        let half = heat.of(&object(1)).0;
        assert!(half.abs_diff(Bytes::mib(64).0) < 10_000, "{half}");
        heat.fade(at(24 * 30));
        assert!(heat.count() == 0, "27 halvings of 128 MiB, a little lost at each step");
        heat.fade(Instant(u64::MAX / 2));
    }

    #[test]
    fn a_full_table_lets_go_of_the_coldest() {
        let mut heat = Heat::new(CONFIG, at(0));
        for n in 0..16 {
            heat.note(at(0), object(n), Bytes(u64::from(n) + 1));
        }
        heat.note(at(0), object(3), Bytes(5));
        assert_eq!(heat.count(), 16, "nobody goes for one that is known");
        heat.note(at(0), object(99), Bytes(1));
        let gone = |n: &u8| heat.of(&object(*n)) == Bytes::ZERO;
        assert_eq!((0..16).filter(gone).collect::<Vec<_>>(), [0, 1]);
        assert_eq!((heat.count(), heat.of(&object(99))), (15, Bytes(1)));
    }

    #[test]
    fn what_is_expected_counts_once_and_what_was_seen_before_it() {
        let mut heat = Heat::new(CONFIG, at(0));
        let mib = |before, day| (Bytes::mib(before), Bytes::mib(day));
        heat.expect(at(0), object(1), mib(0, 100));
        assert_eq!(heat.of(&object(1)), Bytes::mib(100));
        heat.expect(at(48), object(1), mib(100, 100));
        let quarter = heat.of(&object(1));
        assert!(quarter.0.abs_diff(Bytes::mib(25).0) < 10_000, "nobody has watched it: {quarter}");
        heat.expect(at(48), object(1), mib(100, 110));
        assert_eq!(heat.of(&object(1)), quarter + Bytes::mib(10), "more than was expected");
        heat.note(at(48), object(2), Bytes::mib(70));
        heat.expect(at(48), object(2), mib(0, 100));
        assert_eq!(heat.of(&object(2)), Bytes::mib(100), "what was seen is a part of it");
        heat.expect(at(48), object(2), mib(0, 90));
        assert_eq!(heat.of(&object(2)), Bytes::mib(100), "nothing is taken away");
        heat.expect(at(48), object(3), mib(9, 9));
        assert_eq!(heat.count(), 2);
    }

    #[test]
    fn what_was_kept_is_bounded_and_damage_is_left_out() {
        let line = |n: u8, heat: &str| format!("{} {heat}\n", object(n));
        let lines: String = (0..99).map(|n| line(n, "18446744073709551615")).collect();
        let text = format!("nearcast-heat 1\nx\n{}{lines}{lines}", line(7, "-1"));
        let heat = Heat::decode(CONFIG, at(0), &text).unwrap();
        assert_eq!((heat.count(), heat.of(&object(0))), (16, Bytes(u64::MAX)));
        assert_eq!(Heat::decode(CONFIG, at(0), "nearcast-heat 2\n"), None);
    }

    proptest! {
        #[test]
        fn a_restart_finds_what_was_seen(
            seen in prop::collection::vec((any::<u8>(), 0..u64::MAX), 0..60)
        ) {
            let mut heat = Heat::new(CONFIG, at(5));
            for (n, sent) in seen {
                heat.note(at(5), object(n), Bytes(sent));
                prop_assert!(heat.count() <= CONFIG.objects_max);
            }
            prop_assert_eq!(Heat::decode(CONFIG, at(5), &heat.encode()), Some(heat));
        }
    }
}
