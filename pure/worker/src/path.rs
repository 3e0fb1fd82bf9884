//! What the path to one client takes: how long a burst, and how much on its way.
//!
//! ```text
//! before a burst, while the path is new or narrow: TCP's figures ──> room for it, or a wait
//! after 256 KiB, on every other:                   TCP's figures ──> narrow from now on?
//!                                                  packets lost ───> bursts half as long
//! ```

use model::limits::CHUNK_LEN;
use model::tcp::TcpSample;
use model::units::{BitsPerSecond, Bytes, Instant, Nanos};

use crate::pace::{CATCH_UP, PaceConfig, RECORD, interval, or_tick};
use crate::wheel::GRANULARITY;

/// How long bursts may be on the way to one client, and how many bytes.
///
/// A queue of 32 KB on the way loses the end of every burst of 64 KiB; most queues lose nothing,
/// and long bursts cost half the CPU of short ones. So each connection finds out: bursts are halved
/// as packets are lost, at once down to the shortest if many are, and doubled again after long
/// without.
///
/// A path is narrow once packets were lost on it or waited long. Then no more is on its way than
/// what it carries in its shortest round trip and `QUEUE_SPAN` more: so a path that carries less
/// than the pace loses nothing either, nor one on which bursts were late, and others find its queue
/// short. What it carries is the most that was seen to arrive in a while; where more would come
/// through, round trips are shorter than this reckons with, more arrives, and more may be on its
/// way. TCP's own figure is not taken: of short bursts that a link lets through at once it tells
/// hundreds of Mb/s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Path {
    halvings: u32,
    /// Sent in all.
    sent: Bytes,
    /// Sent since TCP was asked.
    unlooked: Bytes,
    /// Sent without a loss since `halvings` changed.
    clean: Bytes,
    /// How often longer bursts were tried in vain.
    vain: u32,
    resent: u64,
    narrow: bool,
    carries: BitsPerSecond,
    /// When a measurement of that began, and what had arrived by then.
    began: Option<(Instant, Bytes)>,
    /// What may go now, where it is watched; none until TCP is asked.
    room: Option<Bytes>,
}

/// Lateness that is made up for on a narrow path, where more than there is room for never goes.
pub(crate) const CATCH_UP_NARROW: Nanos = Nanos::millis(100);
/// What goes without a loss before longer bursts are tried: 13 s at 20 Mb/s. Twice that after each
/// trial that was in vain, up to 2^5 times.
const TRIAL_AFTER: Bytes = Bytes::mib(32);
const VAIN_MAX: u32 = 5;
/// 128 KiB to 8 KiB.
const HALVINGS_MAX: u32 = 4;
/// One of so many packets, and more of them: what a queue loses that is far too short. Of the 180
/// between two looks 12, and any behind a burst of 16 KiB.
const MANY_LOST: u64 = 16;
/// Of a packet, beside its heads.
const PACKET_LEN: u64 = 1448;
/// So long is a path new: its socket is given what TCP's window takes, so that nothing is behind
/// the window when the path turns out to be narrow.
const NEW_LEN: Bytes = Bytes::mib(4);
/// A path is narrow from the first look at which packets waited so much longer than they need.
const QUEUED_LONG: Nanos = Nanos::millis(20);
/// Waiting before a narrow path for what we send, where it loses none of it; half of that for each
/// halving of bursts. A call or a game does not notice so much.
const QUEUE_SPAN: Nanos = Nanos::millis(20);
/// A narrow path shall not run dry while a timer fires: a tick of the wheel, and lateness. At 30
/// Mb/s 19 KB, which with a burst is less than 32 KB.
const AHEAD: Nanos = Nanos::millis(5);
/// Longest wait for room: what was measured may be wrong.
const WAIT_MAX: Nanos = Nanos::millis(100);
/// What arrives is measured over so long, so that what a link lets through at once, and what it
/// acknowledges together, counts little.
const MEASURED_OVER: Nanos = Nanos::millis(40);
/// What a path carries is forgotten by one part in so many each time: half of it in 7 s.
const FORGOTTEN: u64 = 256;
/// Bursts behind which a narrow path has less room than a record are whole pages.
const PAGE: Bytes = Bytes::kib(4);

impl Path {
    /// Longest burst now.
    fn burst(&self, config: &PaceConfig) -> Bytes {
        let burst = Bytes(config.burst.0 >> self.halvings);
        let whole = |room: Bytes| if room < RECORD { PAGE } else { RECORD };
        let room = self.room.map_or(burst, |room| Bytes(room.0 / whole(room).0 * whole(room).0));
        burst.max(config.burst_min + PAGE).min(room).max(config.burst_min)
    }

    /// What goes at once at this rate.
    pub(crate) fn burst_len(&self, config: &PaceConfig, rate: BitsPerSecond) -> Bytes {
        let burst = self.burst(config);
        if self.is_watched() { burst } else { or_tick(burst, rate) }
    }

    /// Lateness that is made up for at most: where no more goes than there is room for, much.
    pub(crate) fn catch_up(&self) -> Nanos {
        if self.narrow { CATCH_UP_NARROW } else { CATCH_UP }
    }

    /// True while TCP has to be asked before each burst.
    pub(crate) fn is_watched(&self) -> bool {
        self.narrow || self.sent < NEW_LEN
    }

    /// True if a burst may go as far as the path is concerned; if not, TCP has to be asked.
    pub(crate) fn has_room(&self) -> bool {
        !self.is_watched() || self.room.is_some()
    }

    /// So much was sent; true if it is time to look at TCP's figures.
    pub(crate) fn sent(&mut self, len: Bytes) -> bool {
        self.room = None;
        self.sent += len;
        self.unlooked += len;
        CHUNK_LEN <= self.unlooked && !self.is_watched()
    }

    /// TCP's figures: how long to wait for room, if there is none for a burst.
    pub(crate) fn looked(
        &mut self,
        config: &PaceConfig,
        now: Instant,
        sample: &TcpSample,
    ) -> Option<Nanos> {
        self.resent_so_far(config, sample.retransmitted.into());
        let queued = Nanos(sample.rtt.0.saturating_sub(sample.rtt_min.0));
        self.narrow |= 0 < self.halvings || QUEUED_LONG <= queued;
        let on_its_way = sample.unsent + segments(sample, sample.unacked);
        self.measure(now, self.sent.saturating_sub(on_its_way), sample.rtt);
        let (flight, wait_max) = if self.narrow && self.carries.0 != 0 {
            let waiting = self.carries.over(Nanos(QUEUE_SPAN.0 >> self.halvings));
            let least = config.burst_min + self.carries.over(AHEAD);
            (self.carries.over(sample.rtt_min) + waiting.max(least), WAIT_MAX)
        } else {
            let wait = Nanos(sample.rtt_min.0 / 8).min(WAIT_MAX);
            (segments(sample, sample.window).max(config.burst_min), wait)
        };
        let taken = on_its_way + config.burst_min;
        if taken <= flight {
            self.room = Some(flight.saturating_sub(on_its_way));
            return None;
        }
        let drains = interval(taken.saturating_sub(flight), self.carries);
        // Half of it, since it may carry more than was seen.
        Some(Nanos(drains.0 / 2).min(wait_max).max(GRANULARITY))
    }

    /// So much has arrived by now.
    fn measure(&mut self, now: Instant, arrived: Bytes, rtt: Nanos) {
        let (began, before) = *self.began.get_or_insert((now, arrived));
        let took = now.since(began);
        if took < MEASURED_OVER.max(rtt) {
            return;
        }
        let bits = u128::from(arrived.saturating_sub(before).0) * 8 * 1_000_000_000;
        let rate = u64::try_from(bits / u128::from(took.0)).unwrap_or(u64::MAX);
        let remembered = self.carries.0 - self.carries.0 / FORGOTTEN;
        self.carries = BitsPerSecond(rate.max(remembered));
        self.began = Some((now, arrived));
    }

    /// So many packets were sent again since the connection began.
    fn resent_so_far(&mut self, config: &PaceConfig, resent: u64) {
        let lost = resent.saturating_sub(self.resent);
        self.resent = resent;
        let many = self.unlooked.0 <= lost.saturating_mul(MANY_LOST * PACKET_LEN);
        self.clean += self.unlooked;
        self.unlooked = Bytes::ZERO;
        if 0 < lost {
            let before = self.halvings;
            let most = if many { HALVINGS_MAX } else { before + 1 };
            let shorter = |halvings| config.burst_min <= Bytes(config.burst.0 >> halvings);
            while self.halvings < most.min(HALVINGS_MAX) && shorter(self.halvings + 1) {
                self.halvings += 1;
            }
            assert!(self.halvings <= HALVINGS_MAX, "a burst is never shorter than its least");
            self.vain = (self.vain + u32::from(before < self.halvings)).min(VAIN_MAX);
            self.clean = Bytes::ZERO;
        } else if 0 < self.halvings
            && Bytes(TRIAL_AFTER.0 << self.vain.saturating_sub(1)) <= self.clean
        {
            self.halvings -= 1;
            self.clean = Bytes::ZERO;
        }
    }
}

fn segments(sample: &TcpSample, count: u32) -> Bytes {
    Bytes(u64::from(count).saturating_mul(sample.segment.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    use crate::pace::{PaceMode, Pacer};

    const MBPS: u64 = 1_000_000;

    fn config(kib: u64) -> PaceConfig {
        let (burst, burst_min) = (Bytes::kib(kib), Bytes::kib(16));
        PaceConfig { mode: PaceMode::Own, burst, burst_min, ..PaceConfig::OFF }
    }

    #[test]
    fn bursts_are_as_long_as_the_path_takes_without_loss() {
        let config = config(64);
        let (mut path, mut resent) = (Path::default(), 0);
        let mut after = |len: Bytes, loses: u64| {
            let mut left = len.0;
            while 0 < left {
                left = left.saturating_sub(CHUNK_LEN.0);
                path.sent(CHUNK_LEN);
                resent += loses;
                path.resent_so_far(&config, resent);
            }
            path.burst(&config).0 >> 10
        };
        assert_eq!(after(Bytes::mib(100), 0), 64);
        assert_eq!((after(CHUNK_LEN, 1), after(CHUNK_LEN, 1)), (32, 16));
        assert_eq!(after(Bytes::mib(9), 1), 16, "and no shorter");
        assert_eq!((after(Bytes::mib(63), 0), after(Bytes::mib(1), 0)), (16, 32));
        assert_eq!(after(CHUNK_LEN, 1), 16);
        assert_eq!((after(Bytes::mib(127), 0), after(Bytes::mib(1), 0)), (16, 32));
        assert_eq!(after(Bytes::mib(128), 0), 64);
        assert_eq!(after(CHUNK_LEN, 16), 16, "much was lost");
    }

    /// A link, and TCP as far as it is looked at: what does not fit into the queue is lost, sent
    /// again, and counted.
    struct Link {
        carries: BitsPerSecond,
        queue: Bytes,
        /// Not gone yet, at `at`.
        waiting: Bytes,
        at: Instant,
        carried: Bytes,
        lost: u32,
    }

    const SEGMENT: Bytes = Bytes(1448);

    impl Link {
        fn new(mbps: u64, queue: Bytes) -> Self {
            let carries = BitsPerSecond(mbps * MBPS);
            Self {
                carries,
                queue,
                waiting: Bytes::ZERO,
                at: Instant(0),
                carried: Bytes::ZERO,
                lost: 0,
            }
        }

        fn pass(&mut self, now: Instant) {
            let gone = self.carries.over(now.since(self.at)).min(self.waiting);
            self.waiting = self.waiting.saturating_sub(gone);
            self.carried += gone;
            self.at = now;
        }

        fn send(&mut self, now: Instant, len: Bytes) {
            self.pass(now);
            let over = (self.waiting + len).saturating_sub(self.queue);
            self.lost += u32::try_from(over.0.div_ceil(SEGMENT.0)).unwrap();
            self.waiting += len;
            // What was lost comes again when there is room: it waits, and is lost no more.
        }

        fn sample(&self) -> TcpSample {
            TcpSample {
                rtt: Nanos(interval(self.waiting, self.carries).0 + 1_000_000),
                rtt_min: Nanos::millis(1),
                window: 10,
                segment: SEGMENT,
                unacked: u32::try_from(self.waiting.0.div_ceil(SEGMENT.0)).unwrap(),
                retransmitted: self.lost,
                ..TcpSample::default()
            }
        }
    }

    /// Sends at `pace` for 8 s, each burst so much later than it may go; what was lost once the
    /// path was known to be narrow.
    fn run(link: &mut Link, pace: u64, late: &mut dyn FnMut() -> Nanos) -> u32 {
        let config = PaceConfig { burst_min: Bytes::kib(8), ..config(128) };
        let (mut path, mut pacer) = (Path::default(), Pacer::default());
        let (mut now, mut first) = (Instant(0), 0);
        while now < Instant(8_000_000_000) {
            let rate = BitsPerSecond(pace * MBPS);
            link.pass(now);
            if !path.has_room()
                && let Some(wait) = path.looked(&config, now, &link.sample())
            {
                now = now + wait + late();
                continue;
            }
            let len = path.burst_len(&config, rate);
            link.send(now, len);
            pacer.burst(now, len, rate, path.catch_up());
            if !path.narrow {
                first = link.lost;
            }
            if path.sent(len) {
                path.looked(&config, now, &link.sample());
            }
            now = now.max(pacer.due()) + late();
        }
        link.pass(now);
        link.lost - first
    }

    #[test]
    fn a_path_that_carries_less_than_the_pace_loses_nothing_once_it_is_known() {
        for (mbps, queue) in [(3, 32), (3, 256), (8, 32), (8, 256), (30, 32), (30, 256)] {
            let mut link = Link::new(mbps, Bytes::kib(queue));
            let lost = run(&mut link, 3 * mbps, &mut || Nanos(500_000));
            assert_eq!(lost, 0, "{mbps} Mb/s, {queue} KiB");
            let share = link.carried.0 * 100 / link.carries.over(Nanos::seconds(8)).0;
            assert!(93 <= share, "{share} % of {mbps} Mb/s, {queue} KiB");
            let waits = interval(link.waiting, link.carries);
            assert!(waits <= Nanos(65_000_000), "{waits:?} at {mbps} Mb/s, {queue} KiB");
        }
    }

    #[test]
    fn a_path_that_carries_more_than_the_pace_is_never_held() {
        let mut link = Link::new(100, Bytes::mib(1));
        assert_eq!(run(&mut link, 20, &mut || Nanos(500_000)), 0);
        let share = link.carried.0 * 100 / BitsPerSecond(20 * MBPS).over(Nanos::seconds(8)).0;
        assert!(99 <= share, "{share} %");
    }

    proptest! {
        /// A server that is late at random, up to 40 ms: it catches up, and not in the queue.
        #[test]
        fn late_bursts_do_not_fill_a_short_queue(
            late in prop::collection::vec(0u64..40_000_000, 50),
        ) {
            let mut link = Link::new(30, Bytes(32_768));
            let mut next = late.iter().cycle();
            let lost = run(&mut link, 28, &mut || Nanos(*next.next().unwrap()));
            prop_assert_eq!(lost, 0);
        }
    }
}
