//! How fast a response is sent, and when its next burst may go.
//!
//! ```text
//! what the player says (CMCD) ┐
//! the asset version's pace    ├─> plan: so many bytes at once, the rest at a rate
//! what the connection got     ┘
//!                                  Pacer: burst, wait, burst, ...
//! TCP's figures, after bursts ────────> Path: how long a burst, how much on its way
//! ```
//!
//! A player that has a buffer gains nothing from more speed, and shallow queues on its way lose
//! what comes in long bursts. One that has none yet gets all there is. Sources of the numbers:
//! docs/decisions/2026-11-22-pacing.md.

use model::cmcd::Hints;
use model::limits::CHUNK_LEN;
use model::units::{BitsPerSecond, Bytes, Instant, Nanos};

use crate::wheel::GRANULARITY;

/// The keeper of a response's rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaceMode {
    /// Nobody: everything goes as fast as it can.
    Off,
    /// The worker, in bursts; the kernel only where `guard` says so.
    Own,
    /// The kernel alone (SO_MAX_PACING_RATE): two to eight segments at a time, which costs CPU.
    Kernel,
}

/// How responses are paced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaceConfig {
    pub mode: PaceMode,
    /// What goes at once; whole records, from 16 KiB (8 KiB for measurements) to 128 KiB, long ones
    /// less what makes whole packets of them. The last of a chunk is up to an eighth longer rather
    /// than leave a sliver, and all are for rates that carry more in a tick of the wheel.
    pub burst: Bytes,
    /// The same on a path that loses packets of longer ones: what a short queue has room for.
    pub burst_min: Bytes,
    /// The kernel is told to send no faster than this many times the pace; 0 for not at all.
    pub guard: u32,
    /// For asset versions without a pace of their own, where players say nothing; none for none.
    pub ceiling: Option<BitsPerSecond>,
    /// Nobody is sent slower, whatever was said.
    pub floor: BitsPerSecond,
    /// Most buffers that paced transfers keep between bursts. One that finds none left reads no
    /// more than a burst at a time. The worker has these many beside those for reads.
    pub buffers: u16,
}

impl PaceConfig {
    /// No pacing.
    pub const OFF: Self = Self {
        mode: PaceMode::Off,
        burst: RECORD,
        burst_min: RECORD,
        guard: 0,
        ceiling: None,
        floor: BitsPerSecond(0),
        buffers: 0,
    };

    /// True if each connection finds out what its path takes.
    pub(crate) fn adapts(&self) -> bool {
        self.mode == PaceMode::Own && self.burst_min < self.burst
    }
}

/// A record's plaintext (RFC 8446 section 5.1): bursts are whole records.
pub(crate) const RECORD: Bytes = Bytes::kib(16);
/// Plaintext that fits in one of the kernel's packets, as large as it makes them before a network
/// card or loopback: 45 segments of 1,428 bytes (IPv6, timestamps), less 22 bytes for each of four
/// records.
const PACKET: Bytes = Bytes(45 * 1428 - 4 * 22);
/// Bytes that a player is sent at once if it has said nothing. Facts: 10 MB are 8 s at 10 Mb/s.
const START_LEN: Bytes = Bytes(10_000_000);
/// Playing time that a player is sent at once if it says its bitrate; with so much it has a buffer.
const START_SPAN: Nanos = Nanos::seconds(8);
/// Rate over bitrate in thousandths: with no buffer, and with a full one.
const EMPTY_FACTOR: u64 = 3000;
const FULL_FACTOR: u64 = 1600;
/// A buffer that counts as full.
const FULL_SPAN: Nanos = Nanos::seconds(20);
/// Lateness that is made up for, at most; half a burst's time if that is less. So much more than
/// its rate carries may a connection get within a window, beside one burst. More on a narrow path.
pub(crate) const CATCH_UP: Nanos = Nanos::millis(8);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// First bytes that go at once.
    pub(crate) free: Bytes,
    /// The rate of the rest; none for no limit.
    pub(crate) rate: Option<BitsPerSecond>,
}

impl Plan {
    pub(crate) const UNPACED: Self = Self { free: Bytes::ZERO, rate: None };

    /// For a response on a connection that was sent `sent` since its player started: that is set
    /// back where the player says that it starts anew.
    pub(crate) fn new(
        config: &PaceConfig,
        hints: &Hints,
        version: Option<BitsPerSecond>,
        sent: &mut Bytes,
    ) -> Self {
        let starts = hints.startup || hints.starved;
        if starts {
            *sent = Bytes::ZERO;
        }
        let ceiling = version.or(config.ceiling);
        let rate = match bitrate(hints) {
            Some(bitrate) => {
                let needed = times(bitrate, factor(hints.buffer.filter(|_| !starts)));
                Some(needed.max(hints.requested.unwrap_or_default()))
            }
            // What is asked for alone may be less than what is played: never a limit by itself.
            None => ceiling.map(|ceiling| ceiling.max(hints.requested.unwrap_or_default())),
        };
        let rate = rate.map(|rate| rate.max(config.floor));
        let Some(rate) = rate.filter(|rate| or_tick(config.burst, *rate) < CHUNK_LEN) else {
            return Self::UNPACED;
        };
        let worth = match bitrate(hints) {
            Some(bitrate) if !starts => bitrate.over(START_SPAN),
            Some(bitrate) => bitrate.over(START_SPAN).max(START_LEN),
            None => START_LEN,
        };
        let has_buffer = !starts && hints.buffer.is_some_and(|buffer| START_SPAN <= buffer);
        let free = if has_buffer { Bytes::ZERO } else { worth.saturating_sub(*sent) };
        Self { free, rate: Some(rate) }
    }
}

/// The bitrate that counts: a player on a low rendition shall be able to see that there is more.
fn bitrate(hints: &Hints) -> Option<BitsPerSecond> {
    let top = hints.top.map_or(0, |top| top.0 / 2);
    hints.bitrate.map(|bitrate| BitsPerSecond(bitrate.0.max(top)))
}

/// Thousandths of the bitrate, for what the player has to play: falls in a straight line.
fn factor(buffer: Option<Nanos>) -> u64 {
    let buffer = buffer.unwrap_or(Nanos(0)).clamp(START_SPAN, FULL_SPAN);
    let (beyond, span) = (buffer.0 - START_SPAN.0, FULL_SPAN.0 - START_SPAN.0);
    EMPTY_FACTOR - (EMPTY_FACTOR - FULL_FACTOR) * (beyond / 1000) / (span / 1000)
}

fn times(rate: BitsPerSecond, thousandths: u64) -> BitsPerSecond {
    BitsPerSecond(rate.0.saturating_mul(thousandths) / 1000)
}

/// What is sent of a burst of so many bytes: a long one less what TLS and the kernel add, so that
/// it is whole packets of the kernel's without a crumb behind them, which costs as much as they do.
pub(crate) fn packed(burst: Bytes) -> Bytes {
    match burst.0 >> 10 {
        64 => PACKET,
        128 => PACKET + PACKET,
        _ => burst,
    }
}

/// So much, or what a tick of the wheel carries at this rate.
pub(crate) fn or_tick(burst: Bytes, rate: BitsPerSecond) -> Bytes {
    let tick = rate.over(GRANULARITY);
    if tick <= burst { burst } else { tick.align_up(RECORD) }
}

/// The clock of one connection's bursts; goes on from one response to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pacer {
    due: Instant,
    /// `due`, or somewhat later, together with others.
    wakes: Instant,
}

impl Pacer {
    /// When the next burst may go.
    pub(crate) fn due(&self) -> Instant {
        self.due
    }

    /// When to look whether it is due.
    pub(crate) fn wakes(&self) -> Instant {
        self.wakes
    }

    /// No burst goes before `until`.
    pub(crate) fn hold(&mut self, until: Instant) {
        self.due = self.due.max(until);
        self.wakes = self.wakes.max(self.due);
    }

    /// A burst of `len` goes at `now`, which is not before `due`.
    ///
    /// Within any window `w` no more is sent than `rate * (w + catch_up)` and one burst: between
    /// two bursts lie the intervals of the first and of all between them, less the lateness that
    /// is made up for.
    pub(crate) fn burst(&mut self, now: Instant, len: Bytes, rate: BitsPerSecond, catch_up: Nanos) {
        assert!(Bytes::ZERO < len, "a burst of nothing would never end");
        let interval = interval(len, rate);
        let made_up =
            if catch_up <= CATCH_UP { Nanos(interval.0 / 2).min(catch_up) } else { catch_up };
        let counts_from = Instant(now.0.saturating_sub(made_up.0));
        self.due = self.due.max(counts_from) + interval;
        self.wakes = Instant(self.due.0.next_multiple_of(slack(interval).0));
    }
}

/// Bursts of one connection that are so far apart go at whole multiples of this: connections are
/// woken together, so that the machine sleeps, and asks drives, a quarter as often. At most a
/// quarter of the way from one burst to the next, and half of what is made up for.
fn slack(interval: Nanos) -> Nanos {
    let ticks = (interval.0 / 4 / GRANULARITY.0).clamp(1, 4);
    Nanos(GRANULARITY.0 << ticks.ilog2())
}

/// How long a rate takes for so much, rounded up.
pub(crate) fn interval(len: Bytes, rate: BitsPerSecond) -> Nanos {
    let bits = u128::from(len.0) * 8 * 1_000_000_000;
    let nanos = bits.div_ceil(u128::from(rate.0.max(1)));
    Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MBPS: u64 = 1_000_000;

    fn config() -> PaceConfig {
        PaceConfig {
            mode: PaceMode::Own,
            burst: Bytes::kib(32),
            burst_min: Bytes::kib(16),
            guard: 2,
            ceiling: None,
            floor: BitsPerSecond(2 * MBPS),
            buffers: 8,
        }
    }

    fn rate(mbps: u64) -> Option<BitsPerSecond> {
        Some(BitsPerSecond(mbps * MBPS))
    }

    fn plan(hints: Hints, version: Option<BitsPerSecond>, sent: u64) -> Plan {
        Plan::new(&config(), &hints, version, &mut Bytes(sent))
    }

    fn playing(buffer_s: u64) -> Hints {
        Hints { bitrate: rate(5), buffer: Some(Nanos::seconds(buffer_s)), ..Hints::default() }
    }

    #[test]
    fn the_pace_falls_as_the_buffer_grows() {
        let of = |buffer_s| plan(playing(buffer_s), None, 0).rate.unwrap().0;
        assert_eq!((of(0), of(8), of(20), of(60)), (15 * MBPS, 15 * MBPS, 8 * MBPS, 8 * MBPS));
        assert_eq!(of(14), 11_500_000);
    }

    #[test]
    fn what_a_player_asks_for_raises_the_pace_and_never_lowers_it() {
        let asks = |mbps| plan(Hints { requested: rate(mbps), ..playing(30) }, None, 0).rate;
        assert_eq!(asks(1), rate(8));
        assert_eq!(asks(40), rate(40));
        let alone = Hints { requested: rate(3), ..Hints::default() };
        assert_eq!(plan(alone, None, 0), Plan::UNPACED);
        assert_eq!(plan(alone, rate(9), 0).rate, rate(9));
    }

    #[test]
    fn a_player_on_a_low_rendition_can_see_that_there_is_more() {
        let hints = Hints { top: rate(30), ..playing(30) };
        assert_eq!(plan(hints, None, 0).rate, rate(24));
    }

    #[test]
    fn who_has_no_buffer_yet_gets_one_at_once() {
        assert_eq!(plan(playing(30), None, 0).free, Bytes::ZERO);
        assert_eq!(plan(playing(2), None, 1_000_000).free, Bytes(4_000_000));
        assert_eq!(plan(playing(2), None, 9_000_000).free, Bytes::ZERO);
        assert_eq!(plan(Hints::default(), rate(9), 0).free, START_LEN);
        assert_eq!(plan(Hints::default(), rate(9), 20_000_000).free, Bytes::ZERO);
    }

    #[test]
    fn a_start_a_seek_and_a_stall_begin_anew() {
        for hints in
            [Hints { startup: true, ..playing(30) }, Hints { starved: true, ..playing(30) }]
        {
            let mut sent = Bytes(99_000_000);
            let plan = Plan::new(&config(), &hints, None, &mut sent);
            assert_eq!((plan.free, sent), (START_LEN, Bytes::ZERO));
            assert_eq!(plan.rate, rate(15));
        }
    }

    #[test]
    fn who_says_nothing_is_kept_to_the_version_s_pace_or_to_the_ceiling() {
        assert_eq!(plan(Hints::default(), None, 0), Plan::UNPACED);
        let with = PaceConfig { ceiling: rate(50), ..config() };
        let plan = |version| Plan::new(&with, &Hints::default(), version, &mut Bytes::ZERO.clone());
        assert_eq!(plan(None).rate, rate(50));
        assert_eq!(plan(rate(20)).rate, rate(20));
        assert_eq!(plan(rate(1)).rate, rate(2), "the floor");
        assert_eq!(plan(rate(3000)), Plan::UNPACED, "faster than a chunk in a tick");
    }

    #[test]
    fn long_bursts_are_whole_packets_and_short_ones_as_they_are() {
        let packed = |kib| packed(Bytes::kib(kib)).0;
        assert_eq!((packed(8), packed(32)), (8 << 10, 32 << 10));
        assert_eq!((packed(64), packed(128)), (64_172, 2 * 64_172));
    }

    #[test]
    fn bursts_far_apart_are_sent_together_and_others_on_time() {
        let ticks = |ms| slack(Nanos::millis(ms)).0 / GRANULARITY.0;
        assert_eq!((ticks(0), ticks(8), ticks(9), ticks(17), ticks(200)), (1, 1, 2, 4, 4));
    }

    #[test]
    fn fast_connections_have_longer_bursts() {
        let burst = |mbps| or_tick(config().burst, BitsPerSecond(mbps * MBPS));
        assert_eq!(burst(20), Bytes::kib(32));
        assert_eq!(burst(500), Bytes::kib(64));
    }

    proptest! {
        /// Whoever sends bursts at arbitrary moments, none before it is due, sends no more in any
        /// window than the bound; and a client that is never late loses nothing.
        #[test]
        fn the_pace_is_never_exceeded(
            mbps in 1u64..200,
            bursts in prop::collection::vec((1u64..64, 0u64..40_000_000), 2..60),
        ) {
            let rate = BitsPerSecond(mbps * MBPS);
            let mut pacer = Pacer::default();
            let mut sent: Vec<(u64, u64)> = Vec::new();
            for (kib, late) in bursts {
                let now = Instant(pacer.due().0 + late);
                sent.push((now.0, kib << 10));
                pacer.burst(now, Bytes::kib(kib), rate, CATCH_UP);
            }
            for first in 0..sent.len() {
                for last in first..sent.len() {
                    let window = Nanos(sent[last].0 - sent[first].0);
                    let total: u64 = sent[first..=last].iter().map(|one| one.1).sum();
                    let allowed = rate.over(Nanos(window.0 + CATCH_UP.0)).0 + 1 + sent[last].1;
                    prop_assert!(total <= allowed, "{total} in {window:?}");
                }
            }
        }

        /// Lateness up to the bound costs no throughput: no connection starves behind others.
        #[test]
        fn lateness_is_made_up_for(
            mbps in 1u64..40,
            late in prop::collection::vec(0u64..1000, 50),
        ) {
            let (rate, len) = (BitsPerSecond(mbps * MBPS), Bytes::kib(32));
            let mut pacer = Pacer::default();
            let mut now = Instant(0);
            // Half a burst's time or CATCH_UP, whichever is less: 3.2 ms at 40 Mb/s.
            for micros in late {
                now = Instant(pacer.due().0 + micros * 3000);
                pacer.burst(now, len, rate, CATCH_UP);
            }
            let ideal = interval(len, rate).0 * 49;
            prop_assert!(now.0 <= ideal + 3_000_000, "{} for {ideal}", now.0);
        }
    }
}
