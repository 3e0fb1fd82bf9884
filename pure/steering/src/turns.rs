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

/// The turns of the players that one process answers: of `PLAYERS_MAX` at most it is known when
/// they come next.
#[derive(Debug)]
pub struct Turns {
    /// The first turn that is free.
    next: Instant,
    /// Spreads players evenly: multiples of the golden ratio, in 2^-32.
    draw: u32,
    /// By a part of the player's number.
    given: Box<[Given]>,
}

/// A turn that was given.
#[derive(Clone, Copy, Debug, Default)]
struct Given {
    player: u64,
    at: Instant,
}

/// 1 MiB of memory. A player whose place another took has a turn like a new one.
const PLAYERS_MAX: usize = 65_536;

impl Default for Turns {
    fn default() -> Self {
        let given = vec![Given::default(); PLAYERS_MAX].into();
        Self { next: Instant::default(), draw: 0, given }
    }
}

impl Turns {
    /// The time until the next turn of a player that asks now, by a number that is drawn for its
    /// session. Who comes before its turn keeps it, and takes none from others. O(1).
    pub fn take(&mut self, now: Instant, player: u64, pace: &Pace) -> Nanos {
        assert!(0 < pace.rate_max, "somebody is answered");
        let ttl = pace.ttl.min(TTL_MAX);
        let place = usize::try_from(player % Bytes::of(PLAYERS_MAX).0).expect("it is a place");
        let given = self.given[place];
        // Some players come a little early: theirs was the turn.
        if given.player == player && now + Nanos(ttl.0 / SPREAD) < given.at {
            return given.at.since(now).min(TTL_MAX);
        }
        let wait = self.give(now, ttl, pace);
        self.given[place] = Given { player, at: now + wait };
        wait
    }

    fn give(&mut self, now: Instant, ttl: Nanos, pace: &Pace) -> Nanos {
        self.draw = self.draw.wrapping_add(0x9e37_79b9);
        let draw = self.draw >> 16;
        let part = |of: Nanos| Nanos(((of.0 / SPREAD) * u64::from(draw)) >> 16);
        let turn = (now + ttl + part(ttl)).max(self.next);
        let each = Nanos(1_000_000_000 / u64::from(pace.rate_max));
        self.next = (self.next.max(now + ttl) + each).min(now + TTL_MAX);
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
        let (mut turns, mut asked) = (Turns::default(), BTreeMap::new());
        let players = (0..players).map(|n| Reverse((Instant(0), number(n))));
        let mut due: BinaryHeap<_> = players.collect();
        while let Some(Reverse((now, player))) =
            due.pop().filter(|Reverse((at, _))| *at < Instant(0) + Nanos::seconds(600))
        {
            *asked.entry(now.0 / 1_000_000_000).or_default() += 1;
            due.push(Reverse((now + turns.take(now, player, &PACE), player)));
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
