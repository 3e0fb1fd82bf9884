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
/// A path is narrow once packets were lost on it or waited long, until much went without a wait
/// for room. Then no more is on its way than what it carries in its shortest round trip and
/// `QUEUE_SPAN` more: so a path that carries less than the pace loses nothing either, nor one on
/// which bursts were late, and others find its queue short. What it carries is the most that was
/// seen to arrive in a while; where more would come through, round trips are shorter than this
/// reckons with, more arrives, and more may be on its way. TCP's own figure is not taken: of short
/// bursts that a link lets through at once it tells hundreds of Mb/s.
///
/// Where less arrives or round trips are longer than that explains, a trial tells whether the path
/// carries less or the way is longer (another route, a slow radio, somebody else's queue), for
/// which nobody shall starve.
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
    /// A burst waits for room.
    full: bool,
    /// One had to, since that measurement began.
    held: bool,
    /// What arrived in the last measurement.
    arrives: BitsPerSecond,
    /// `carries` when so much last arrived, or when nothing was held back.
    proven: BitsPerSecond,
    /// Round trip without what we have waiting: the shortest, or what a trial found.
    base: Nanos,
    /// Measurements, one after the other, that `base` and `carries` do not explain.
    odd: u32,
    /// Packets were lost since the last measurement.
    lost: bool,
    trial: Option<Trial>,
    /// When the last trial began and ended.
    tried: (Instant, Instant),
    looked_at: Instant,
    /// Sent since one last had to wait for room.
    unheld: Bytes,
    /// Since when, and what had arrived by then, bursts have to wait one after the other; the last
    /// look at which one had to.
    holds: (Instant, Bytes),
    held_at: Instant,
    /// Since when less is taken than `SLOW`.
    slow_since: Option<Instant>,
}

/// So little is on its way for a while that none of it waits: if round trips stay long, the way is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Trial {
    began: Instant,
    /// Round trip, and what arrived, when it began.
    rtt: Nanos,
    arrives: BitsPerSecond,
    /// What was sent until so little was on its way.
    from: Option<Bytes>,
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
/// Measurements that are odd before a trial: one may be the end of a queue that was there before.
const ODD_MAX: u32 = 2;
/// So much arrives in a trial: 12 acknowledgements or more, of which TCP's average forgets four
/// fifths of the round trip before it.
const TRIAL_LEN: Bytes = Bytes::kib(32);
const TRIAL_MAX: Nanos = Nanos::seconds(2);
/// Trials take a ninth of the time at most.
const TRIAL_PAUSE: u64 = 8;
/// A longer way is asked for again so often: it may have been somebody else's queue.
const BASE_LASTS: Nanos = Nanos::seconds(10);
/// So long without a look, a player had nothing to ask for: longer than bursts are apart, and than
/// any wait for room.
const GAP: Nanos = Nanos::millis(500);
/// A client that takes less for so long, where more would go, is slow: half of the least pace.
const SLOW: BitsPerSecond = BitsPerSecond(250_000);
const SLOW_FOR: Nanos = Nanos::seconds(1);
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
        (self.room, self.full) = (None, false);
        self.unheld += len;
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
        // Before the first round trip the kernel tells the longest for the shortest.
        let sample = &TcpSample { rtt_min: sample.rtt_min.min(sample.rtt), ..*sample };
        self.resent_so_far(config, sample.retransmitted.into());
        self.leave_out_gap(now);
        self.base = self.base.max(sample.rtt_min);
        let queued = sample.rtt.0.saturating_sub(self.base.0);
        if !self.narrow && (0 < self.halvings || QUEUED_LONG.0 <= queued) {
            self.vain = (self.vain + u32::from(self.halvings == 0)).min(VAIN_MAX);
            (self.narrow, self.unheld) = (true, Bytes::ZERO);
        }
        let on_its_way = sample.unsent + segments(sample, sample.unacked);
        let arrived = self.sent.saturating_sub(on_its_way);
        self.go_on_with_trial(config, now, sample, arrived);
        if self.measure(now, arrived, sample.rtt) {
            self.look_for_oddness(config, now, sample);
        }
        let (flight, wait_max) = if self.narrow && self.carries.0 != 0 {
            (self.flight(config, sample), WAIT_MAX)
        } else {
            let wait = Nanos(sample.rtt_min.0 / 8).min(WAIT_MAX);
            (segments(sample, sample.window).max(config.burst_min), wait)
        };
        let taken = on_its_way + config.burst_min;
        if taken <= flight {
            let was_free = Bytes(TRIAL_AFTER.0 << self.vain.saturating_sub(1)) <= self.unheld;
            self.narrow &= 0 < self.halvings || self.trial.is_some() || !was_free;
            let room = flight.saturating_sub(on_its_way);
            assert!(config.burst_min <= room, "there is room for the shortest burst");
            self.room = Some(room);
            return None;
        }
        if self.is_watched() {
            self.hold(now, arrived);
        }
        let drains = interval(taken.saturating_sub(flight), self.carries);
        // Half of it, since it may carry more than was seen.
        Some(Nanos(drains.0 / 2).min(wait_max).max(GRANULARITY))
    }

    /// A time in which nothing was to be sent says nothing of the path: what arrived is not divided
    /// by it, and no trial took it.
    fn leave_out_gap(&mut self, now: Instant) {
        let gap = now.since(std::mem::replace(&mut self.looked_at, now));
        if gap < GAP {
            return;
        }
        self.began = None;
        if let Some(trial) = &mut self.trial {
            trial.began = trial.began + gap;
        }
    }

    /// Since when the client takes little, if more waits for it to take that.
    pub(crate) fn slow_since(&self) -> Option<Instant> {
        self.slow_since.filter(|_| self.full)
    }

    /// A burst has to wait for room.
    fn hold(&mut self, now: Instant, arrived: Bytes) {
        assert!(self.is_watched(), "elsewhere nobody asks for room");
        (self.full, self.held, self.unheld) = (true, true, Bytes::ZERO);
        if Nanos(2 * WAIT_MAX.0) < now.since(self.held_at) {
            (self.holds, self.slow_since) = ((now, arrived), None);
        }
        self.held_at = now;
        let (since, before) = self.holds;
        if SLOW_FOR <= now.since(since) {
            let is_slow = arrived.saturating_sub(before) < SLOW.over(now.since(since));
            self.slow_since = is_slow.then(|| self.slow_since.unwrap_or(since));
            self.holds = (now, arrived);
        }
    }

    /// What may be on its way on a narrow path.
    fn flight(&self, config: &PaceConfig, sample: &TcpSample) -> Bytes {
        match self.trial {
            Some(trial) => trial.arrives.over(sample.rtt_min) + config.burst_min + PAGE,
            None => self.carries.over(self.base) + self.queue(config),
        }
    }

    /// Of that, what may wait.
    fn queue(&self, config: &PaceConfig) -> Bytes {
        let least = config.burst_min + self.carries.over(AHEAD);
        self.carries.over(Nanos(QUEUE_SPAN.0 >> self.halvings)).max(least)
    }

    /// So much has arrived by now; true if that ends a measurement.
    fn measure(&mut self, now: Instant, arrived: Bytes, rtt: Nanos) -> bool {
        let (began, before) = *self.began.get_or_insert((now, arrived));
        let took = now.since(began);
        if took < MEASURED_OVER.max(rtt) {
            return false;
        }
        let bits = u128::from(arrived.saturating_sub(before).0) * 8 * 1_000_000_000;
        let rate = u64::try_from(bits / u128::from(took.0)).unwrap_or(u64::MAX);
        let remembered = self.carries.0 - self.carries.0 / FORGOTTEN;
        (self.arrives, self.began) = (BitsPerSecond(rate), Some((now, arrived)));
        self.carries = BitsPerSecond(rate.max(remembered));
        true
    }

    /// After a measurement: begins a trial if for some time the round trip has been longer, or less
    /// has arrived, than what is known of the path says.
    ///
    /// What arrives is what is on its way divided by the round trip, so less arrives whether the
    /// path carries less or the way is longer. With less on its way, the first changes and the
    /// second does not.
    fn look_for_oddness(&mut self, config: &PaceConfig, now: Instant, sample: &TcpSample) {
        let held = std::mem::take(&mut self.held);
        self.proven = if held { self.proven.max(self.carries) } else { self.carries };
        assert!(self.carries <= self.proven, "what is forgotten was seen to arrive");
        // A way that was longer for a while is found by and by, without heeding each round trip.
        self.base = Nanos(self.base.0 - self.base.0.saturating_sub(sample.rtt.0) / 16);
        let waits = interval(self.queue(config), self.carries).0;
        let beyond = i128::from(sample.rtt.0) - i128::from(self.base.0) - i128::from(waits);
        let is_less = self.carries.0 < self.proven.0 / 8 * 7;
        let is_long = i128::from(QUEUED_LONG.0) <= beyond;
        let (began, ended) = self.tried;
        let longer = self.base.0.saturating_sub(sample.rtt_min.0);
        let is_old = QUEUED_LONG.0 < longer && BASE_LASTS <= now.since(ended);
        let lost = std::mem::take(&mut self.lost);
        let is_odd = is_long || (held && (is_less || is_old));
        let may = self.narrow && self.trial.is_none();
        self.odd = if may && is_odd { self.odd + 1 + u32::from(lost) } else { 0 };
        let pause = Nanos(ended.since(began).0.saturating_mul(TRIAL_PAUSE));
        if ODD_MAX <= self.odd && pause <= now.since(ended) {
            let (rtt, arrives) = (sample.rtt, self.arrives);
            self.trial = Some(Trial { began: now, rtt, arrives, from: None });
            self.odd = 0;
        }
    }

    /// With so little on its way that none waits: is the round trip as long as before?
    fn go_on_with_trial(
        &mut self,
        config: &PaceConfig,
        now: Instant,
        sample: &TcpSample,
        arrived: Bytes,
    ) {
        let flight = self.flight(config, sample);
        let Some(trial) = &mut self.trial else { return };
        if trial.from.is_none() && self.sent <= arrived + flight {
            trial.from = Some(self.sent);
        }
        let is_over = trial.from.is_some_and(|from| from + TRIAL_LEN <= arrived);
        if !is_over && now.since(trial.began) < TRIAL_MAX {
            return;
        }
        let Trial { began, rtt, arrives, .. } = *trial;
        (self.trial, self.tried, self.began) = (None, (began, now), None);
        if !is_over {
            return;
        }
        assert!(self.narrow, "trials are for what a narrow path does not explain");
        // So long would it be now if all that waited had been ours.
        let ours = sample.rtt_min.0.saturating_add(interval(config.burst_min + PAGE, arrives).0);
        let middle = ours / 2 + rtt.0 / 2;
        if ours < rtt.0 / 8 * 7 && sample.rtt.0 < middle {
            // TCP's average has a fifth of the old round trip left.
            let beyond = (rtt.0 - sample.rtt.0) / 4;
            let without = Nanos(sample.rtt.0.saturating_sub(beyond));
            self.base = without.max(sample.rtt_min).min(self.base);
            (self.carries, self.proven) = (arrives, arrives);
        } else {
            // Less arrived since too little was on its way.
            self.carries = self.carries.max(self.proven);
            self.base = sample.rtt;
        }
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
            self.lost = true;
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
#[path = "path_tests.rs"]
mod tests;
