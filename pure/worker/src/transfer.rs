//! A response body's way from a drive to its client.
//!
//! ```text
//! send_object -> Admission -> Opening -> Queued -> Reading -> Sending ─┬─> end_transfer
//!                   admit      opened     queue      read      sent    │
//!                     └─>─┬──────<──────<──────<──── advance ────<─────┘
//!                         └── the next bytes are hot ───────> Sending
//! ```
//!
//! Chunks end where blocks of the object end, so that what one viewer was sent is what another
//! wants. What is hot is sent without asking a drive, and without its file being open.
//!
//! A paced transfer is `Paced` before each burst whose moment has not come: it keeps its chunk and
//! sends bursts out of it, or, where too many keep one already, waits first and reads a burst.

use http1::Status;
use iosched::reads::Ticket;
use model::extent::DriveIndex;
use model::handle::{BufferId, ConnectionId, FileSlot};
use model::id::ObjectId;
use model::limits::{CHUNK_LEN, DIRECT_ALIGN};
use model::object::{BLOCK_LEN, block_len};
use model::units::Bytes;

use crate::action::{Action, Body, Ending};
use crate::answer;
use crate::black_box::{Happened, Waiting};
use crate::config::Config;
use crate::connection::{Connection, Held, Stage, State, Transfer};
use crate::event::{Fault, Now};
use crate::files::Acquired;
use crate::hot::BlockName;
use crate::pace::Plan;
use crate::worker::{Kept, Reading, Worker, live, seen};

impl Worker {
    pub(crate) fn send_object(
        &mut self,
        now: Now,
        id: ConnectionId,
        object: ObjectId,
        status: Status,
        (start, end): (Bytes, Bytes),
        plan: Plan,
    ) {
        let until = now.instant + self.config.progress_timeout;
        let connection = seen(&mut self.connections, id);
        connection.deadline = until;
        if let Some(bytes) = self.catalogue.small.get(&object) {
            let (start, end) = (start.as_usize(), end.as_usize());
            self.counters.count(status);
            self.counters.body_bytes += Bytes::of(end - start).0;
            connection.state = State::Sending;
            let body = Body::Memory { bytes: bytes.clone(), start, end };
            return self.send_whole(id, body);
        }
        let extent = self.catalogue.index.locate(&object).expect("an answer names what is held");
        assert!(end <= extent.len, "an answer names what is held at its length");
        let index = extent.drive;
        connection.state = State::Transfer(Transfer {
            object,
            drive: index,
            base: extent.offset,
            len: extent.len,
            next: start,
            end,
            head_pending: Some(status),
            plan,
            held: None,
            keeps: false,
            stage: Stage::Admission,
            since: now.instant,
        });
        self.counters.paced += u64::from(plan.rate.is_some());
        connection.recorder = self.black_box.begin(now.instant, object);
        let drive = &mut self.drives[index.as_usize()];
        if !drive.is_hung() {
            drive.joins_admission(id);
            self.admit();
        } else if self.transfers < self.config.transfers_max && self.is_hot(object, start, end) {
            self.begin(id);
        } else {
            self.fail_transfer(id);
        }
    }

    /// True if the drive is not needed for these bytes.
    fn is_hot(&self, object: ObjectId, start: Bytes, end: Bytes) -> bool {
        let mut blocks = start.0 / BLOCK_LEN.0..end.0.div_ceil(BLOCK_LEN.0);
        blocks.all(|block| self.hot.find(&BlockName { object, block }).is_some())
    }

    /// A transfer that has passed admission.
    fn begin(&mut self, id: ConnectionId) {
        let transfer = seen(&mut self.connections, id).state.transfer();
        assert_eq!(transfer.stage, Stage::Admission, "a transfer begins once");
        transfer.stage = Stage::Sending(None);
        self.transfers += 1;
        assert!(self.transfers <= self.config.transfers_max, "admission knows the bound");
        self.advance(id, None);
    }

    /// Lets waiting transfers begin while there is room, one of each drive in turn. One that ends
    /// as it begins makes room in turn: this loop sees it, nothing nests.
    pub(crate) fn admit(&mut self) {
        if std::mem::replace(&mut self.admitting, true) {
            return;
        }
        while let Some((index, id)) = self.next_admitted() {
            if self.config.transfers_max <= self.transfers && !self.let_go_of_a_slow_one() {
                break;
            }
            self.first_admitted = (index + 1) % self.drives.len();
            self.drives[index].admission.pop_front();
            self.drives[index].leaves_admission();
            self.begin(id);
        }
        self.admitting = false;
    }

    /// The first transfer that may pass admission to its drive, drives in turn. Names of those who
    /// have left are dropped on the way.
    fn next_admitted(&mut self) -> Option<(usize, ConnectionId)> {
        for turn in 0..self.drives.len() {
            let index = (self.first_admitted + turn) % self.drives.len();
            while let Some(&id) = self.drives[index].admission.front() {
                if !waits_for(&self.connections, index, id) {
                    self.drives[index].admission.pop_front();
                } else if self.drives[index].has_room() {
                    return Some((index, id));
                } else {
                    break;
                }
            }
        }
        None
    }

    /// One chunk more: from memory if it is hot, from its drive otherwise.
    pub(crate) fn advance(&mut self, id: ConnectionId, slot: Option<FileSlot>) {
        if self.waits_to_read(id, slot) {
            return;
        }
        let connection = seen(&mut self.connections, id);
        let transfer = connection.state.transfer();
        let name = transfer.block();
        if let Some(recorder) = &mut connection.recorder {
            recorder.wait_for(self.now.instant, Waiting::Drive);
        }
        // Once for each block, in however many bursts it goes.
        if transfer.head_pending.is_some() || transfer.next.0.is_multiple_of(BLOCK_LEN.0) {
            self.hot.want(&name);
        }
        if let Some(buffer) = self.hot.find(&name) {
            self.send_hot(id, buffer, slot);
        } else if !self.drives[transfer.drive.as_usize()].has_room() {
            self.wait_for_room(id, slot);
        } else if let Some(slot) = slot {
            transfer.stage = Stage::Queued(slot);
            self.queue(id);
        } else {
            self.open(id);
        }
    }

    /// As many wait for the drive as may, or it hangs: a transfer that was under way gives its turn
    /// to those of other drives, and waits for admission again.
    fn wait_for_room(&mut self, id: ConnectionId, slot: Option<FileSlot>) {
        let transfer = seen(&mut self.connections, id).state.transfer();
        let keeps = std::mem::take(&mut transfer.keeps);
        (transfer.stage, transfer.since) = (Stage::Admission, self.now.instant);
        let drive = &mut self.drives[transfer.drive.as_usize()];
        drive.joins_admission(id);
        drive.is_waited_for |= drive.is_hung();
        self.keeps_no_more(keeps);
        self.end_transfer(Stage::Sending(slot));
    }

    /// Finds or opens the file of a transfer that needs its drive for the first time.
    fn open(&mut self, id: ConnectionId) {
        let transfer = seen(&mut self.connections, id).state.transfer();
        // It may have gone, or gone to another drive, while it waited for its turn.
        let Some(extent) = self.catalogue.index.locate(&transfer.object) else {
            self.fail_transfer(id);
            return;
        };
        (transfer.drive, transfer.base) = (extent.drive, extent.offset);
        let drive = &mut self.drives[extent.drive.as_usize()];
        transfer.since = self.now.instant;
        if drive.is_hung() && transfer.head_pending.is_some() {
            self.fail_transfer(id);
            return;
        }
        if drive.is_hung() || !(drive.may_open() || self.files.has(&transfer.object)) {
            transfer.stage = Stage::Turn;
            drive.turns.push_back(id);
            drive.is_waited_for |= drive.is_hung();
            return;
        }
        match self.files.acquire(transfer.object, extent, id) {
            Acquired::Open(slot) => {
                transfer.stage = Stage::Queued(slot);
                self.queue(id);
            }
            Acquired::Opening(slot) => {
                drive.waits_for_open();
                transfer.stage = Stage::Opening(slot);
            }
            Acquired::Start(slot) => {
                drive.waits_for_open();
                drive.open(self.now.instant);
                transfer.stage = Stage::Opening(slot);
                let (drive, file) = (extent.drive, extent.file.clone());
                self.actions.push_back(Action::Open { slot, drive, file });
                self.watch_soon();
            }
            Acquired::Full => self.fail_transfer(id),
        }
    }

    /// A transfer that waited for admission to this drive waits no more. Its name is left where it
    /// is until such names are the most.
    pub(crate) fn leave_admission(&mut self, drive: DriveIndex) {
        let (index, connections) = (drive.as_usize(), &self.connections);
        let drive = &mut self.drives[index];
        drive.leaves_admission();
        if 2 * drive.admission_count + NAMES_KEPT < drive.admission.len() {
            drive.admission.retain(|id| waits_for(connections, index, *id));
        }
    }

    /// Puts the connection's next read into its drive's queue.
    pub(crate) fn queue(&mut self, id: ConnectionId) {
        let connection = seen(&mut self.connections, id);
        let transfer = connection.state.transfer();
        transfer.since = self.now.instant;
        // A paced transfer wants its bytes for its next burst, every other at once.
        let paced = transfer.burst_rate(&self.config.pacing, &connection.path).is_some();
        let due = if paced { connection.pacer.due() } else { self.now.instant };
        let drive = &mut self.drives[transfer.drive.as_usize()];
        drive.is_waited_for |= drive.is_hung();
        if drive.reads.submit(self.now.instant, id, due.max(self.now.instant)).is_err() {
            // The queue holds every transfer that may run, so it is full only of clients that
            // left while the drive hung. Newcomers are sent elsewhere.
            self.fail_transfer(id);
        }
    }

    /// The next read that a drive may have and a buffer is free for.
    pub(crate) fn next_read(&mut self) -> Option<Action> {
        let count = self.drives.len();
        for turn in 0..count {
            if !self.buffers.any_free() {
                return None;
            }
            let index = (self.first_drive + turn) % count;
            while let Some((ticket, id)) = self.drives[index].next_read(self.now.instant) {
                if let Some(action) = self.start_read(index, ticket, id) {
                    self.watch_soon();
                    self.first_drive = (index + 1) % count;
                    return Some(action);
                }
                self.drives[index].reads.cancel(ticket);
            }
        }
        None
    }

    fn start_read(&mut self, index: usize, ticket: Ticket, id: ConnectionId) -> Option<Action> {
        let connection = live(&mut self.connections, id)?;
        let State::Transfer(transfer) = &mut connection.state else { return None };
        if transfer.drive.as_usize() != index {
            return None; // It was turned away from this drive, and has asked for something else.
        }
        let Stage::Queued(slot) = transfer.stage else { return None };
        let name = transfer.block();
        if let Some(buffer) = self.hot.find(&name) {
            // Somebody else's read of it came first.
            self.send_hot(id, buffer, Some(slot));
            return None;
        }
        let keep = self.hot.is_wanted(&name, &self.buffers);
        let most = match transfer.burst_rate(&self.config.pacing, &connection.path) {
            Some(rate) if !transfer.keeps => connection.path.burst_len(&self.config.pacing, rate),
            Some(_) | None => Config::BUFFER_LEN,
        };
        let Span { from, until, read_until } = span(transfer, keep, most);
        let len = (read_until - from).align_up(DIRECT_ALIGN);
        assert!(len <= Config::BUFFER_LEN, "a read fits its buffer");
        assert!((transfer.base + from).0.is_multiple_of(DIRECT_ALIGN.0), "as direct I/O wants it");
        let buffer = self.buffers.take().expect("asked for only while one is free");
        assert!(self.reading[buffer.as_usize()].is_none(), "a read has its buffer for itself");
        let kept = Kept { block: name.block, len: block_len(transfer.len, name.block) };
        (transfer.stage, transfer.since) = (Stage::Reading(slot), self.now.instant);
        self.reading[buffer.as_usize()] = Some(Reading {
            connection: id,
            drive: transfer.drive,
            ticket,
            object: transfer.object,
            slot,
            start: (transfer.next - from).as_usize(),
            end: (until - from).as_usize(),
            keep: keep.then(|| (kept, self.hot.epoch())),
        });
        self.counters.reads += 1;
        self.counters.read_bytes += len.0;
        let drive = transfer.drive;
        let offset = transfer.base + from;
        self.note(id, Happened::Reading { drive, len }, None);
        Some(Action::Read { buffer, slot, offset, len })
    }

    pub(crate) fn opened(&mut self, now: Now, slot: FileSlot, result: Result<(), Fault>) {
        let mut woken = std::mem::take(&mut self.woken);
        assert!(woken.is_empty(), "those of one file are woken before those of the next");
        let drive = self.files.extent(slot).drive.as_usize();
        let gone = self.files.is_gone(slot);
        let mut reported = gone;
        if let Some(slot) = self.files.opened(slot, result.is_ok(), &mut woken) {
            self.actions.push_back(Action::CloseFile { slot });
        }
        self.drives[drive].opened(now.instant, woken.len());
        for id in woken.drain(..) {
            let Some(connection) = live(&mut self.connections, id) else { continue };
            let State::Transfer(transfer) = &mut connection.state else { continue };
            if transfer.stage != Stage::Opening(slot) {
                continue;
            }
            match result {
                Ok(()) => {
                    transfer.stage = Stage::Queued(slot);
                    self.queue(id);
                }
                // It went to another drive in the meantime: it is there.
                Err(_) if gone && self.catalogue.index.locate(&transfer.object).is_some() => {
                    transfer.stage = Stage::Turn;
                    self.release(slot);
                    self.open(id);
                }
                Err(fault) => {
                    let object = transfer.object;
                    if !reported {
                        reported = true;
                        self.counters.drive_faults += 1;
                        let extent = self.files.extent(slot).clone();
                        self.actions.push_back(Action::Report { object, extent, fault });
                    }
                    self.fail_transfer(id);
                }
            }
        }
        self.woken = woken;
        self.open_next(drive);
        self.admit();
    }

    /// Those whose turn it is to have files opened.
    pub(crate) fn open_next(&mut self, index: usize) {
        while self.drives[index].may_open() && !self.drives[index].is_hung() {
            let Some(id) = self.drives[index].turns.pop_front() else { return };
            let Some(connection) = live(&mut self.connections, id) else { continue };
            let State::Transfer(transfer) = &connection.state else { continue };
            if transfer.stage == Stage::Turn && transfer.drive.as_usize() == index {
                self.open(id);
            }
        }
    }

    pub(crate) fn read(&mut self, now: Now, buffer: BufferId, result: Result<Bytes, Fault>) {
        let reading = self.reading[buffer.as_usize()].take().expect("a read completes once");
        assert!(0 < self.buffers.pins(buffer), "a buffer is held until its read is back");
        let drive = &mut self.drives[reading.drive.as_usize()];
        drive.read(now.instant, reading.ticket);
        if 0 < drive.admission_count {
            self.admit();
        }
        let until = now.instant + self.config.progress_timeout;
        let id = reading.connection;
        let what = match result {
            Ok(len) => Happened::Read { len },
            Err(fault) => Happened::Failed { errno: fault.errno },
        };
        self.note(id, what, None);
        let fault = match result {
            Ok(len) if reading.end <= len.as_usize() => None,
            Ok(_) => Some(Fault { errno: 0 }),
            Err(fault) => Some(fault),
        };
        if let Some(fault) = fault {
            self.counters.drive_faults += 1;
            let Reading { object, slot, .. } = reading;
            // In the place of a drive that went there may be another by now.
            if !self.files.is_gone(slot) {
                let extent = self.files.extent(slot).clone();
                self.actions.push_back(Action::Report { object, extent, fault });
            }
        }
        if let (Ok(len), None) = (result, fault) {
            self.keep(&reading, buffer, len);
        }
        let connection = live(&mut self.connections, id);
        let transfer = connection.and_then(|connection| {
            connection.deadline = until;
            match &mut connection.state {
                State::Transfer(transfer) => Some(transfer),
                State::Handshake | State::Receiving | State::Sending => None,
            }
        });
        let Some(transfer) = transfer else {
            // The client left while the drive was at work: its file was kept for the read.
            self.buffers.unpin(buffer);
            self.release(reading.slot);
            return;
        };
        if fault.is_some() {
            self.buffers.unpin(buffer);
            transfer.stage = Stage::Queued(reading.slot);
            self.fail_transfer(id);
            return;
        }
        let block = transfer.block().block;
        let block_at = Bytes(block * BLOCK_LEN.0);
        // The buffer begins with the block if the read did.
        let begins = transfer.next == block_at + Bytes::of(reading.start);
        let whole = begins && block_len(transfer.len, block) <= Bytes::of(reading.end);
        let whole = whole || reading.keep.is_some();
        let name = BlockName { object: reading.object, block };
        let len = Bytes::of(reading.end - reading.start);
        self.sample(reading.drive, name, len, whole.then_some(buffer));
        self.deliver(id, buffer, Some(reading.slot), (reading.start, reading.end, false));
    }

    /// Keeps the block that was read, if it is worth it still.
    fn keep(&mut self, reading: &Reading, buffer: BufferId, len: Bytes) {
        let Some((Kept { block, len: block_len }, epoch)) = reading.keep else { return };
        if len < block_len || epoch != self.hot.epoch() {
            return;
        }
        let name = BlockName { object: reading.object, block };
        let kept = self.hot.keep(name, reading.drive, buffer, &mut self.buffers);
        self.counters.hot_kept += u64::from(kept);
        self.counters.hot_blocks = Bytes::of(self.hot.len()).0;
    }

    /// Sends the transfer's next bytes from the buffer that begins with their block.
    fn send_hot(&mut self, id: ConnectionId, buffer: BufferId, slot: Option<FileSlot>) {
        let transfer = seen(&mut self.connections, id).state.transfer();
        let name = transfer.block();
        let block_at = Bytes(name.block * BLOCK_LEN.0);
        let until = transfer.end.min(block_at + BLOCK_LEN) - block_at;
        let range = ((transfer.next - block_at).as_usize(), until.as_usize());
        let drive = transfer.drive;
        self.counters.hot_chunks += 1;
        let len = Bytes::of(range.1 - range.0);
        self.counters.hot_bytes += len.0;
        self.buffers.pin(buffer);
        self.sample(drive, name, len, Some(buffer));
        self.deliver(id, buffer, slot, (range.0, range.1, true));
    }

    /// Sends the transfer's next bytes, which are in the buffer from `start` to `end`, or a burst
    /// of them. The caller's pin goes with them.
    fn deliver(
        &mut self,
        id: ConnectionId,
        buffer: BufferId,
        slot: Option<FileSlot>,
        (start, end, hot): (usize, usize, bool),
    ) {
        assert!(start < end, "what is delivered is something");
        assert!(Bytes::of(end) <= Config::BUFFER_LEN, "the kernel sends from this buffer alone");
        let transfer = seen(&mut self.connections, id).state.transfer();
        assert!(transfer.held.is_none(), "a chunk is sent before the next is read");
        transfer.held = Some(Held { buffer, start, end, hot });
        self.burst_or_wait(id, slot);
    }

    /// Has a block of so many bytes verified, from wherever they were sent: the one that the chunk
    /// begins in, in the buffer if that begins with all of it. By bytes, since a block costs the
    /// same to verify however little of it was sent.
    fn sample(&mut self, drive: DriveIndex, name: BlockName, len: Bytes, buffer: Option<BufferId>) {
        if self.verify_in == Bytes::ZERO {
            return;
        }
        if len < self.verify_in {
            self.verify_in -= len;
            return;
        }
        self.verify_in = self.config.verify_span();
        assert!(self.verify_in != Bytes::ZERO, "a span is longer than nothing");
        let BlockName { object, block } = name;
        // Gone while it was read: there is nothing left to judge.
        let Some(extent) = self.catalogue.index.locate(&object) else { return };
        let object_len = extent.len;
        self.counters.verified += 1;
        self.actions.push_back(Action::Verify { drive, object, object_len, block, buffer });
    }

    /// The drive let a transfer down: a reset if something was sent; otherwise a sibling is named,
    /// or it is a 404.
    pub(crate) fn fail_transfer(&mut self, id: ConnectionId) {
        let connection = seen(&mut self.connections, id);
        let transfer = connection.state.transfer();
        if transfer.head_pending.is_none() {
            self.counters.aborted += 1;
            self.close(id, Ending::Abort);
            return;
        }
        let stage = transfer.stage;
        if let Some(held) = transfer.held {
            self.buffers.unpin(held.buffer);
        }
        let keeps = transfer.keeps;
        connection.state = State::Sending;
        let recorder = connection.recorder.take();
        answer::redirect_or_404(&self.catalogue, &mut self.counters, &self.date, connection);
        self.send_whole(id, Body::Empty);
        self.wheel.cancel(id.as_usize());
        self.keeps_no_more(keeps);
        self.end_record(recorder, true);
        if stage != Stage::Admission {
            self.end_transfer(stage);
        }
    }

    /// One transfer fewer: its file is released and the next one admitted.
    pub(crate) fn end_transfer(&mut self, stage: Stage) {
        assert_ne!(stage, Stage::Admission, "what ends had begun");
        // While the kernel still reads from the file, `read` releases it.
        if let Some(slot) = stage.slot().filter(|_| !matches!(stage, Stage::Reading(_))) {
            self.release(slot);
        }
        assert!(0 < self.transfers, "a transfer ends once");
        self.transfers -= 1;
        self.admit();
    }

    /// A transfer is over, or waits for its turn again: what it may keep another may.
    pub(crate) fn keeps_no_more(&mut self, keeps: bool) {
        assert!(u16::from(keeps) <= self.keeping, "whoever keeps a buffer is counted");
        self.keeping -= u16::from(keeps);
    }

    fn release(&mut self, slot: FileSlot) {
        if let Some(slot) = self.files.release(slot) {
            self.actions.push_back(Action::CloseFile { slot });
        }
    }
}

impl Transfer {
    /// The block that the next byte is in.
    fn block(&self) -> BlockName {
        BlockName { object: self.object, block: self.next.0 / BLOCK_LEN.0 }
    }
}

/// The range that one read brings, as offsets in the object.
struct Span {
    /// Where it begins: at the alignment, or with the block.
    from: Bytes,
    /// One past the last byte that is sent.
    until: Bytes,
    /// One past the last byte that is read.
    read_until: Bytes,
}

/// A chunk ends with its block, so that all after it are whole blocks. Rather than leave a sliver,
/// the last takes a little more, and a first one that begins just before a block's end the next
/// block. What is kept is read whole.
/// No more is read than `most`, which is whole alignment units, unless it is kept.
fn span(transfer: &Transfer, keep: bool, most: Bytes) -> Span {
    let Transfer { next, end, len, .. } = *transfer;
    let block_at = Bytes(next.0 / BLOCK_LEN.0 * BLOCK_LEN.0);
    let block_end = block_at + BLOCK_LEN;
    let from = if keep { block_at } else { next.align_down(DIRECT_ALIGN) };
    let until = if end - from <= Config::BUFFER_LEN {
        end
    } else if block_end - from <= DIRECT_ALIGN {
        block_end + CHUNK_LEN
    } else {
        block_end
    };
    let until = if keep { until } else { until.min(from + most) };
    let read_until = if keep { until.max(len.min(block_end)) } else { until };
    assert!(from <= next && next < until, "a read brings the next byte");
    assert!(until <= end && until <= read_until, "and no byte that nobody wants");
    Span { from, until, read_until }
}

/// True if the connection still waits for admission to this drive.
fn waits_for(connections: &[Option<Box<Connection>>], drive: usize, id: ConnectionId) -> bool {
    let Some(Some(connection)) = connections.get(id.as_usize()) else { return false };
    let State::Transfer(transfer) = &connection.state else { return false };
    let waits = connection.id == id && transfer.stage == Stage::Admission;
    waits && transfer.drive.as_usize() == drive
}

/// So many names of clients that left may stand in a drive's admission whatever their share is.
const NAMES_KEPT: usize = 64;
