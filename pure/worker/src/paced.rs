//! A paced transfer's way from one burst to the next.

use model::handle::{ConnectionId, FileSlot};
use model::tcp::TcpSample;
use model::units::{BitsPerSecond, Bytes, Nanos};

use crate::action::{Action, Body, Then};
use crate::black_box::{Happened, Waiting};
use crate::connection::{Held, Stage, State, Transfer};
use crate::pace::{PaceConfig, PaceMode, packed};
use crate::path::Path;
use crate::worker::{Worker, live, seen};

/// So fast that it makes nobody wait.
const AT_ONCE: BitsPerSecond = BitsPerSecond(1_000_000_000_000);

impl Transfer {
    /// What its bursts are kept to by the worker, now. What goes at once goes in bursts too while
    /// its path is watched, at no rate of its own.
    pub(crate) fn burst_rate(&self, config: &PaceConfig, path: &Path) -> Option<BitsPerSecond> {
        let rate = self.plan.rate.filter(|_| config.mode == PaceMode::Own)?;
        if self.plan.free == Bytes::ZERO {
            return Some(rate);
        }
        (config.adapts() && path.is_watched()).then_some(AT_ONCE)
    }

    /// The rate that the kernel is to keep it to, now.
    fn kernel_rate(&self, config: &PaceConfig) -> Option<BitsPerSecond> {
        let times = match config.mode {
            PaceMode::Off => return None,
            PaceMode::Own if config.guard == 0 => return None,
            PaceMode::Own => u64::from(config.guard),
            PaceMode::Kernel => 1,
        };
        let rate = self.plan.rate.filter(|_| self.plan.free == Bytes::ZERO)?;
        Some(BitsPerSecond(rate.0.saturating_mul(times)))
    }
}

impl Worker {
    /// True if the transfer is to wait for its moment before it asks for more: it may not keep what
    /// is read until then, since as many as may keep a buffer do.
    pub(crate) fn waits_to_read(&mut self, id: ConnectionId, slot: Option<FileSlot>) -> bool {
        let connection = seen(&mut self.connections, id);
        let transfer = connection.state.transfer();
        if transfer.burst_rate(&self.config.pacing, &connection.path).is_none() {
            return false;
        }
        if !transfer.keeps && self.keeping < self.config.pacing.buffers {
            transfer.keeps = true;
            self.keeping += 1;
            assert!(self.keeping <= self.config.pacing.buffers, "the rest is for short reads");
        }
        if transfer.keeps {
            return false;
        }
        if self.now.instant < connection.pacer.due() {
            self.wait_for_burst(id, slot, Waiting::Pace);
            return true;
        }
        let looks = self.config.pacing.adapts() && !connection.path.has_room();
        if looks {
            transfer.stage = Stage::Paced(slot);
            self.actions.push_back(Action::LookAtPath { connection: id });
        }
        looks
    }

    /// The transfer waits for its moment: that of its pace, or when its client may have taken some.
    fn wait_for_burst(&mut self, id: ConnectionId, slot: Option<FileSlot>, of: Waiting) {
        let connection = seen(&mut self.connections, id);
        let transfer = connection.state.transfer();
        transfer.stage = Stage::Paced(slot);
        self.wheel.arm(self.now.instant, id.as_usize(), connection.pacer.wakes());
        if let Some(recorder) = &mut connection.recorder {
            recorder.wait_for(self.now.instant, of);
        }
    }

    /// Sends what may go now of what the transfer keeps; if nothing may, it waits.
    pub(crate) fn burst_or_wait(&mut self, id: ConnectionId, slot: Option<FileSlot>) {
        let connection = seen(&mut self.connections, id);
        let transfer = connection.state.transfer();
        let config = &self.config.pacing;
        let Held { buffer, start, end, hot } = transfer.held.expect("the caller has seen it");
        let (mut to, rate) = (end, transfer.burst_rate(config, &connection.path));
        if let Some(rate) = rate {
            if self.now.instant < connection.pacer.due() {
                self.wait_for_burst(id, slot, Waiting::Pace);
                return;
            }
            if config.adapts() && !connection.path.has_room() {
                transfer.stage = Stage::Paced(slot);
                self.actions.push_back(Action::LookAtPath { connection: id });
                return;
            }
            let burst = packed(connection.path.burst_len(config, rate));
            // The last takes a little more rather than leave a sliver.
            if (burst + Bytes(burst.0 / 8)).as_usize() < end - start {
                to = start + burst.as_usize();
            }
            let (len, late) = (Bytes::of(to - start), connection.path.catch_up());
            connection.pacer.burst(self.now.instant, len, rate, late);
            self.counters.bursts += 1;
        }
        let limit = transfer.kernel_rate(config);
        if connection.limit != limit {
            connection.limit = limit;
            self.actions.push_back(Action::Limit { connection: id, rate: limit });
        }
        assert!(start < to && to <= end, "a burst is a part of what is held");
        let len = Bytes::of(to - start);
        // Also of what goes at once, so that bursts begin with what the path is known to take.
        let is_paced = transfer.plan.rate.is_some();
        let look = config.adapts() && is_paced && connection.path.sent(len);
        // The pin goes with the last bytes, or with the first bytes of a client that may keep
        // nothing.
        let keeps = to < end && transfer.keeps;
        if keeps {
            self.buffers.pin(buffer);
        }
        transfer.held = keeps.then_some(Held { buffer, start: to, end, hot });
        transfer.next += len;
        assert!(transfer.next <= transfer.end, "nobody is sent more than was asked for");
        transfer.stage = Stage::Sending(slot);
        if transfer.plan.rate.is_some() && transfer.plan.free != Bytes::ZERO {
            connection.sent += len;
            transfer.plan.free = transfer.plan.free.saturating_sub(len);
        }
        let status = transfer.head_pending.take();
        let head = status.is_some();
        if let Some(status) = status {
            self.counters.count(status);
        }
        self.counters.body_bytes += len.0;
        connection.deadline = self.now.instant + self.config.progress_timeout;
        let body = Body::Buffer { buffer, start, end: to };
        let then = match rate {
            _ if transfer.next == transfer.end => Then::Nothing,
            Some(_) => Then::Later,
            None => Then::Soon,
        };
        self.actions.push_back(Action::Send { connection: id, head, body, then });
        self.note(id, Happened::Sent { len, hot }, Some(Waiting::Client));
        if look {
            self.actions.push_back(Action::LookAtPath { connection: id });
        }
    }

    /// TCP's figures: before a burst, which goes if there is room for it, or after one.
    pub(crate) fn path_seen(&mut self, id: ConnectionId, sample: &TcpSample) {
        let Some(connection) = live(&mut self.connections, id) else { return };
        let now = self.now.instant;
        if sample.rtt != Nanos(0) {
            connection.rtt = Some(sample.rtt);
        }
        let wait = connection.path.looked(&self.config.pacing, now, sample);
        let State::Transfer(Transfer { stage: Stage::Paced(slot), held, .. }) = connection.state
        else {
            return;
        };
        if let Some(wait) = wait {
            connection.pacer.hold(now + wait);
            self.wait_for_burst(id, slot, Waiting::Client);
        } else if held.is_some() {
            self.burst_or_wait(id, slot);
        } else {
            self.advance(id, slot);
        }
    }

    /// The moment of the connection in this place has come.
    pub(crate) fn paced(&mut self, index: usize) {
        let connection = self.connections[index].as_deref_mut();
        let connection = connection.expect("a timer goes with its connection");
        let id = connection.id;
        let transfer = connection.state.transfer();
        let Stage::Paced(slot) = transfer.stage else {
            unreachable!("a timer goes with the wait for a burst");
        };
        let due = connection.pacer.due();
        if due <= self.now.instant {
            self.lateness.add(self.now.instant.since(due));
        }
        if transfer.held.is_some() {
            self.burst_or_wait(id, slot);
        } else {
            self.advance(id, slot);
        }
    }
}
