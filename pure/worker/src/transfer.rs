//! A response body's way from a drive to its client.
//!
//! ```text
//! send_object -> Admission -> Opening -> Queued -> Reading -> Sending ─┬─> end_transfer
//!                   admit      opened     queue      read      sent    │
//!                                           └──────<── more to read ──<┘
//! ```

use http1::{Head, Status};
use iosched::Class;
use model::handle::{BufferId, ConnectionId, FileSlot};
use model::id::ObjectId;
use model::limits::{CHUNK_LEN, DIRECT_ALIGN};
use model::object::{BLOCK_LEN, block_len};
use model::units::Bytes;

use crate::action::{Action, Body, Ending};
use crate::answer;
use crate::connection::{Stage, State, Transfer};
use crate::event::{Fault, Now};
use crate::files::Acquired;
use crate::worker::{Config, Reading, Worker, live};

impl Worker {
    pub(crate) fn send_object(
        &mut self,
        now: Now,
        id: ConnectionId,
        object: ObjectId,
        status: Status,
        (start, end): (Bytes, Bytes),
    ) {
        let until = now.instant + self.config.progress_timeout;
        let Some(connection) = live(&mut self.connections, id) else { return };
        connection.deadline = until;
        if let Some(bytes) = self.catalogue.small.get(&object) {
            let (start, end) = (start.as_usize(), end.as_usize());
            self.counters.count(status);
            self.counters.body_bytes += Bytes::of(end - start).0;
            connection.state = State::Sending;
            let body = Body::Memory { bytes: bytes.clone(), start, end };
            self.actions.push_back(Action::Send { connection: id, head: true, body });
            return;
        }
        let extent = self.catalogue.index.locate(&object).expect("an answer names what is held");
        assert!(end <= extent.len, "an answer names what is held at its length");
        connection.state = State::Transfer(Transfer {
            object,
            drive: extent.drive,
            base: extent.offset,
            next: start,
            end,
            head_pending: Some(status),
            stage: Stage::Admission,
        });
        self.admission.push_back(id);
        self.admit();
    }

    /// Lets waiting transfers begin while there is room. One that ends as it begins makes room in
    /// turn: this loop sees it, nothing nests.
    pub(crate) fn admit(&mut self) {
        if std::mem::replace(&mut self.admitting, true) {
            return;
        }
        while self.transfers < self.config.transfers_max {
            let Some(id) = self.admission.pop_front() else { break };
            let Some(connection) = live(&mut self.connections, id) else { continue };
            let State::Transfer(transfer) = &mut connection.state else { continue };
            if transfer.stage != Stage::Admission {
                continue;
            }
            let object = transfer.object;
            // It may have gone, or gone to another drive, while it waited for its turn.
            let Some(extent) = self.catalogue.index.locate(&object) else {
                self.fail_transfer(id);
                continue;
            };
            (transfer.drive, transfer.base) = (extent.drive, extent.offset);
            let acquired = self.files.acquire(object, id);
            self.transfers += usize::from(acquired != Acquired::Full);
            match acquired {
                Acquired::Open(slot) => {
                    transfer.stage = Stage::Queued(slot);
                    self.queue(id);
                }
                Acquired::Opening(slot) => transfer.stage = Stage::Opening(slot),
                Acquired::Start(slot) => {
                    transfer.stage = Stage::Opening(slot);
                    let (drive, file) = (extent.drive, extent.file.clone());
                    self.actions.push_back(Action::Open { slot, drive, file });
                }
                Acquired::Full => self.fail_transfer(id),
            }
        }
        self.admitting = false;
    }

    /// Puts the connection's next read into its drive's queue.
    pub(crate) fn queue(&mut self, id: ConnectionId) {
        let Some(connection) = live(&mut self.connections, id) else { return };
        let State::Transfer(transfer) = &connection.state else { return };
        let drive = &mut self.drives[transfer.drive.as_usize()];
        if drive.submit(Class::Serve, id).is_err() {
            // The queue holds every transfer that may run, so it is full only of clients that
            // left while the drive hung. Those who come now are sent elsewhere.
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
            while let Some(id) = self.drives[index].poll() {
                if let Some(action) = self.start_read(id) {
                    self.first_drive = (index + 1) % count;
                    return Some(action);
                }
                self.drives[index].complete();
            }
        }
        None
    }

    fn start_read(&mut self, id: ConnectionId) -> Option<Action> {
        let connection = live(&mut self.connections, id)?;
        let State::Transfer(transfer) = &mut connection.state else { return None };
        let Stage::Queued(slot) = transfer.stage else { return None };
        let buffer = self.buffers.take().expect("asked for only while one is free");
        let aligned = transfer.next.align_down(DIRECT_ALIGN);
        let lead = transfer.next - aligned;
        // A first read that begins inside a page ends at a chunk's end, so that all others are
        // aligned and none reads a page twice. The last takes a little more than a chunk rather
        // than leave a sliver.
        let left = transfer.end - transfer.next;
        let wanted = if lead + left <= Config::BUFFER_LEN { left } else { CHUNK_LEN - lead };
        let len = (lead + wanted).align_up(DIRECT_ALIGN);
        transfer.stage = Stage::Reading(slot);
        self.reading[buffer.as_usize()] = Some(Reading {
            connection: id,
            drive: transfer.drive,
            object: transfer.object,
            slot,
            start: lead.as_usize(),
            end: (lead + wanted).as_usize(),
        });
        self.counters.reads += 1;
        self.counters.read_bytes += len.0;
        Some(Action::Read { buffer, slot, offset: transfer.base + aligned, len })
    }

    pub(crate) fn opened(&mut self, slot: FileSlot, result: Result<(), Fault>) {
        let mut woken = std::mem::take(&mut self.woken);
        if let Some(slot) = self.files.opened(slot, result.is_ok(), &mut woken) {
            self.actions.push_back(Action::CloseFile { slot });
        }
        let mut reported = false;
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
                Err(fault) => {
                    let (drive, object) = (transfer.drive, transfer.object);
                    if !reported {
                        reported = true;
                        self.counters.drive_faults += 1;
                        self.actions.push_back(Action::Report { drive, object, fault });
                    }
                    self.fail_transfer(id);
                }
            }
        }
        self.woken = woken;
    }

    pub(crate) fn read(&mut self, now: Now, buffer: BufferId, result: Result<Bytes, Fault>) {
        let reading = self.reading[buffer.as_usize()].take().expect("a read completes once");
        self.drives[reading.drive.as_usize()].complete();
        let until = now.instant + self.config.progress_timeout;
        let id = reading.connection;
        let fault = match result {
            Ok(len) if reading.end <= len.as_usize() => None,
            Ok(_) => Some(Fault { errno: 0 }),
            Err(fault) => Some(fault),
        };
        if let Some(fault) = fault {
            self.counters.drive_faults += 1;
            let Reading { drive, object, .. } = reading;
            self.actions.push_back(Action::Report { drive, object, fault });
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
        let (start, end) = (reading.start, reading.end);
        let chunk = (transfer.next, transfer.next + Bytes::of(end - start));
        transfer.next = chunk.1;
        transfer.stage = Stage::Sending(reading.slot);
        let status = transfer.head_pending.take();
        let head = status.is_some();
        if let Some(status) = status {
            self.counters.count(status);
        }
        self.counters.body_bytes += Bytes::of(end - start).0;
        self.sample(&reading, buffer, chunk);
        let body = Body::Buffer { buffer, start, end };
        self.actions.push_back(Action::Send { connection: id, head, body });
    }

    /// Has a block of so many bytes verified: the first that is whole in the buffer, or, where none
    /// is, the one that the chunk begins in. By bytes, since a block costs the same to verify
    /// however little of it was read.
    fn sample(&mut self, reading: &Reading, buffer: BufferId, (start, end): (Bytes, Bytes)) {
        let read = end - start;
        if self.verify_in == Bytes::ZERO {
            return;
        }
        if read < self.verify_in {
            self.verify_in = self.verify_in - read;
            return;
        }
        self.verify_in = self.config.verify_span();
        let Reading { drive, object, .. } = *reading;
        // Gone while it was read: there is nothing left to judge.
        let Some(extent) = self.catalogue.index.locate(&object) else { return };
        let (object_len, block) = (extent.len, start.0 / BLOCK_LEN.0);
        let begins = start.0.is_multiple_of(BLOCK_LEN.0);
        let whole = begins && start + block_len(object_len, block) <= end;
        let buffer = whole.then_some(buffer);
        self.counters.verified += 1;
        self.actions.push_back(Action::Verify { drive, object, object_len, block, buffer });
    }

    /// The drive let a transfer down: a status if nothing was sent yet, a reset otherwise.
    pub(crate) fn fail_transfer(&mut self, id: ConnectionId) {
        let Some(connection) = live(&mut self.connections, id) else { return };
        let State::Transfer(transfer) = &connection.state else { return };
        if transfer.head_pending.is_none() {
            self.counters.aborted += 1;
            self.close(id, Ending::Abort);
            return;
        }
        let slot = transfer.stage.slot();
        connection.state = State::Sending;
        let head = Head { status: Status::NotFound, keep_alive: connection.keep_alive };
        answer::plain(&mut connection.head, &mut self.counters, head, &self.date);
        self.actions.push_back(Action::Send { connection: id, head: true, body: Body::Empty });
        self.end_transfer(slot);
    }

    /// One transfer fewer: its file is released and the next one admitted.
    pub(crate) fn end_transfer(&mut self, slot: Option<FileSlot>) {
        let Some(slot) = slot else { return };
        self.release(slot);
        assert!(0 < self.transfers, "a transfer ends once");
        self.transfers -= 1;
        self.admit();
    }

    fn release(&mut self, slot: FileSlot) {
        if let Some(slot) = self.files.release(slot) {
            self.actions.push_back(Action::CloseFile { slot });
        }
    }
}
