//! When players ask again: not all at once, and together no more often than a front can answer.
//!
//! ```text
//! now        now + ttl          next
//!  |────────────|═══════════════|─ ─ ─ ─>   = turns that are given, `rate_max` of them a second
//!  └ a player asks, and gets the turn at `next`, or one soon after `ttl` if that is later
//! ```
//!
//! As long as all ask less often than `rate_max`, each asks every `ttl`, plus up to a fifth of it,
//! so that players which began together, as after an outage, do not stay together. Of more players
//! each gets a longer TTL, in proportion to their number.

use model::units::{Bytes, Instant, Nanos};

/// The longest TTL: players that get it may be late to leave an appliance that drains. An appliance
/// that fails they leave by themselves.
pub const TTL_MAX: Nanos = Nanos::seconds(300);
/// The part of the TTL that is added at most to spread players.
const SPREAD: u64 = 5;

/// How soon players shall ask again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The least, up to `TTL_MAX`.
    pub ttl: Nanos,
    /// Answers per second of all players together; at least 1.
    pub rate_max: u32,
}

impl Pace {
    /// True of a turn that is later than the pace alone makes it.
    pub fn is_late(&self, turn: Nanos) -> bool {
        self.ttl.0 + self.ttl.0 / SPREAD < turn.0
    }
}

/// The turns of the players that one process answers, and when the most of them come next.
#[derive(Debug)]
pub struct Turns {
    /// The first turn that is free.
    next: Instant,
    /// Spreads players evenly: multiples of the golden ratio, in 2^-32.
    draw: u32,
    /// By a part of the player's number.
    given: Box<[[Given; SET_LEN]]>,
}

/// A turn that was given.
#[derive(Clone, Copy, Debug, Default)]
struct Given {
    player: u64,
    at: Instant,
}

/// With `SET_LEN`, 8 MiB of memory, and as many turns as 2,000 a second are in 262 s. Of 200,000
/// players one in 500 finds its set full, and of 300,000 one in 60 (by arithmetic).
const SETS: usize = 65_536;
/// Turns of a set that may be yet to come.
const SET_LEN: usize = 8;

impl Default for Turns {
    fn default() -> Self {
        let given = vec![[Given::default(); SET_LEN]; SETS].into();
        Self { next: Instant::default(), draw: 0, given }
    }
}

impl Turns {
    /// The time until the next turn of a player that asks now, by a number that is drawn for its
    /// session. Who comes before its turn keeps it, and takes none from others. Nor does who finds
    /// all of its set yet to come: it comes beside another, so that no set of players, whatever
    /// their numbers are, takes more than `SET_LEN` turns that are yet to come. O(1).
    pub fn take(&mut self, now: Instant, player: u64, pace: &Pace) -> Nanos {
        assert!(0 < pace.rate_max, "somebody is answered");
        let ttl = pace.ttl.min(TTL_MAX);
        let set = usize::try_from(player % Bytes::of(SETS).0).expect("it is a set");
        // Some players come a little early: theirs was the turn.
        let is_to_come = |given: &Given| now + Nanos(ttl.0 / SPREAD) < given.at;
        let own = |given: &&Given| given.player == player && is_to_come(given);
        if let Some(given) = self.given[set].iter().find(own) {
            return given.at.since(now).min(TTL_MAX);
        }
        let free = self.given[set].iter().position(|given| !is_to_come(given));
        let wait = self.give(now, ttl, pace, free.is_some());
        if let Some(place) = free {
            self.given[set][place] = Given { player, at: now + wait };
        }
        wait
    }

    /// The first turn that is free; it is taken from others if it `counts`.
    fn give(&mut self, now: Instant, ttl: Nanos, pace: &Pace, counts: bool) -> Nanos {
        self.draw = self.draw.wrapping_add(0x9e37_79b9);
        let draw = self.draw >> 16;
        let part = |of: Nanos| Nanos(((of.0 / SPREAD) * u64::from(draw)) >> 16);
        let turn = (now + ttl + part(ttl)).max(self.next);
        if counts {
            let each = Nanos(1_000_000_000 / u64::from(pace.rate_max));
            self.next = (self.next.max(now + ttl) + each).min(now + TTL_MAX);
        }
        let wait = turn.since(now);
        // More players than turns: those beyond the last are spread over the fifth before it.
        if wait < TTL_MAX { wait } else { Nanos(TTL_MAX.0 - part(TTL_MAX).0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cmp::Reverse;
    use std::collections::{BTreeMap, BinaryHeap};

    const PACE: Pace = Pace { ttl: Nanos::seconds(10), rate_max: 100 };

    /// Spread like one that is drawn.
    fn number(n: usize) -> u64 {
        (Bytes::of(n).0 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// Questions in each second of ten minutes, of so many players that all begin at once.
    fn asked(players: usize) -> BTreeMap<u64, usize> {
        asked_by(players, &PACE)
    }

    fn asked_by(players: usize, pace: &Pace) -> BTreeMap<u64, usize> {
        let (mut turns, mut asked) = (Turns::default(), BTreeMap::new());
        let players = (0..players).map(|n| Reverse((Instant(0), number(n))));
        let mut due: BinaryHeap<_> = players.collect();
        while let Some(Reverse((now, player))) =
            due.pop().filter(|Reverse((at, _))| *at < Instant(0) + Nanos::seconds(600))
        {
            *asked.entry(now.0 / 1_000_000_000).or_default() += 1;
            due.push(Reverse((now + turns.take(now, player, pace), player)));
        }
        asked
    }

    #[test]
    fn few_players_ask_once_a_ttl_and_do_not_stay_together() {
        let asked = asked(100);
        assert_eq!(asked[&0], 100, "all begin at once");
        let later: Vec<usize> = (60..600).map(|at| asked.get(&at).copied().unwrap_or(0)).collect();
        let sum: usize = later.iter().sum();
        assert!((100 * 540 / 12..=100 * 540 / 10).contains(&sum), "{sum}");
        let most = later.iter().max();
        assert!(most.is_some_and(|most| *most <= 30), "{later:?}");
    }

    #[test]
    fn more_players_than_can_be_answered_ask_less_often() {
        let asked = asked(5000);
        assert_eq!(asked[&0], 5000);
        let most = |seconds: std::ops::Range<u64>| seconds.filter_map(|at| asked.get(&at)).max();
        assert!(most(1..12).is_some_and(|most| *most <= 200), "while they are spread");
        assert!(most(12..600).is_some_and(|most| *most <= 101), "{:?}", most(12..600));
        let last: usize = (550..600).map(|at| asked[&at]).sum();
        assert!(4900 <= last, "{last}: in 50 s each asks once");
    }

    #[test]
    fn of_more_players_than_there_are_turns_none_waits_longer_and_they_stay_spread() {
        let asked = asked(60_000);
        let most = (320..600).filter_map(|at| asked.get(&at)).max();
        assert!(most.is_some_and(|most| *most <= 1200), "{most:?}, where 30,000 have no turn");
        let mut turns = Turns::default();
        let waits: Vec<Nanos> =
            (0..100_000).map(|n| turns.take(Instant(0), number(n), &PACE)).collect();
        assert!(waits.iter().all(|wait| *wait <= TTL_MAX));
        let longest = Pace { ttl: TTL_MAX, ..PACE };
        let mut turns = Turns::default();
        let waits: Vec<Nanos> =
            (0..100).map(|n| turns.take(Instant(0), number(n), &longest)).collect();
        assert!(waits.iter().any(|wait| wait.0 < Nanos::seconds(260).0), "spread, too");
        assert!(turns.take(Instant(0) + Nanos::seconds(300), 7, &PACE) <= Nanos::seconds(12));
    }

    #[test]
    fn many_players_of_a_fast_front_ask_no_more_often_than_it_answers() {
        let asked = asked_by(200_000, &Pace { rate_max: 2000, ..PACE });
        let most = (110..600).filter_map(|at| asked.get(&at)).max();
        assert!(most.is_some_and(|most| *most <= 2100), "{most:?}: of 2,000, and a few");
    }

    #[test]
    fn players_that_ask_in_turn_without_end_take_no_turn_from_others_whatever_their_numbers() {
        let apart = Bytes::of(SETS).0;
        let mut turns = Turns::default();
        for n in 0..100_000_u64 {
            let now = Instant(0) + Nanos(n * 10_000);
            // More of one set than it has places.
            turns.take(now, 7 + n % 20 * apart, &PACE);
        }
        let at = Instant(0) + Nanos::seconds(1);
        assert!(turns.take(at, 8, &PACE) <= Nanos::seconds(12), "others come when they should");
        let own = turns.take(at, 7, &PACE);
        let later = at + Nanos::seconds(1);
        let rest = Nanos(own.0 - Nanos::seconds(1).0);
        assert_eq!(turns.take(later, 7, &PACE), rest, "and who came first keeps its own");
    }

    #[test]
    fn one_player_that_asks_without_end_takes_no_turn_from_others() {
        let mut turns = Turns::default();
        let first = turns.take(Instant(0), 7, &PACE);
        for n in 1..100_000_u64 {
            let now = Instant(0) + Nanos(n * 10_000);
            assert_eq!(turns.take(now, 7, &PACE), Nanos(first.0 - n * 10_000), "its own turn");
        }
        let at = Instant(0) + Nanos::seconds(1);
        assert!(turns.take(at, 8, &PACE) <= Nanos::seconds(12), "others come when they should");
        let early = Instant(0) + Nanos(first.0 - Nanos::seconds(1).0);
        assert!(Nanos::seconds(10) <= turns.take(early, 7, &PACE), "a second early is in time");
    }
}
