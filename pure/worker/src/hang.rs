//! The way out for transfers that wait for a drive that does not answer.
//!
//! ```text
//! all of it is hot ──> it is sent
//! nothing sent yet ──> 307 to a sibling, marked ──> the sibling: bytes, or 404
//!                      no sibling, or marked ─────> 404: the player turns to its next pathway
//! a body begun ──────> reset after `reset_after`: the player asks again, and gets the above
//! ```
//!
//! Never a 503, which players repeat for twenty seconds at the same place.

use model::drives::{DriveIndex, DriveSet};
use model::handle::ConnectionId;
use model::units::{Instant, Nanos};

use crate::action::Ending;
use crate::connection::{Connection, Stage, State, Transfer};
use crate::event::Now;
use crate::worker::{NEVER, Worker, live};

/// Nobody's name: of a connection for which a read was asked that it no longer waits for.
pub(crate) const NOBODY: ConnectionId = ConnectionId { slot: u32::MAX, generation: u32::MAX };

impl Worker {
    /// Looks at the drives, and after the transfers that wait for one that hangs.
    pub(crate) fn watch(&mut self, now: Now) {
        self.watch_at = NEVER;
        let (mut hung, mut waited_for, mut owing) = (DriveSet::NONE, false, false);
        for (index, drive) in DriveIndex::all(self.drives.len()).zip(&mut self.drives) {
            drive.look(now.instant, self.config.hang_after);
            owing |= 0 < drive.owes();
            hung.set(index, drive.is_hung());
            waited_for |= drive.is_hung() && std::mem::take(&mut drive.is_waited_for);
        }
        self.hung = hung;
        if owing {
            self.watch_soon();
        }
        if waited_for {
            self.turn_away(now);
        }
        // A drive that answers again may have room for those who wait.
        (0..self.drives.len()).for_each(|index| self.open_next(index));
        self.admit();
    }

    /// A drive was asked for something: it is looked at before long.
    pub(crate) fn watch_soon(&mut self) {
        if self.watch_at == NEVER {
            self.watch_at = self.now.instant + Nanos(self.config.hang_after.0 / LOOKS);
        }
    }

    /// All who wait for a drive that hangs: those without a byte of an answer go elsewhere, others
    /// have a little time.
    fn turn_away(&mut self, now: Now) {
        for slot in 0..self.connections.len() {
            let Some(connection) = self.connections[slot].as_deref() else { continue };
            let id = connection.id;
            let Some(transfer) = waiting(connection) else { continue };
            let drive = transfer.drive.as_usize();
            if !self.drives[drive].is_hung() {
                continue;
            }
            let begun = transfer.head_pending.is_none();
            if begun && now.instant.since(transfer.since) < self.config.reset_after {
                self.drives[drive].is_waited_for = true;
            } else {
                self.give_up(id);
            }
        }
    }

    /// Ends transfers that wait too long for one answer of a drive which gives others.
    pub(crate) fn reset_who_is_stuck(&mut self) {
        let stuck = std::mem::take(&mut self.stuck);
        stuck.into_iter().for_each(|id| self.give_up(id));
    }

    /// Ends a transfer that waits for its drive. What the drive was asked for stays its own until
    /// it answers: buffer, file and place in its depth.
    pub(crate) fn give_up(&mut self, id: ConnectionId) {
        let Some(connection) = live(&mut self.connections, id) else { return };
        // One of those that were stuck a moment ago may be done, since others were let go.
        let State::Transfer(transfer) = &connection.state else { return };
        if transfer.head_pending.is_none() {
            self.counters.aborted += 1;
            self.close(id, Ending::Abort);
            return;
        }
        let (stage, drive) = (transfer.stage, transfer.drive);
        match stage {
            Stage::Admission => self.leave_admission(drive),
            Stage::Reading(_) => {
                let mut reading = self.reading.iter_mut().flatten();
                let own = reading.find(|reading| reading.connection == id);
                own.expect("a transfer that reads has a buffer").connection = NOBODY;
            }
            Stage::Turn
            | Stage::Opening(_)
            | Stage::Paced(_)
            | Stage::Queued(_)
            | Stage::Sending(_) => {}
        }
        self.fail_transfer(id);
    }
}

/// The connection's transfer, if it waits for its drive.
fn waiting(connection: &Connection) -> Option<&Transfer> {
    let State::Transfer(transfer) = &connection.state else { return None };
    match transfer.stage {
        Stage::Admission
        | Stage::Turn
        | Stage::Opening(_)
        | Stage::Queued(_)
        | Stage::Reading(_) => Some(transfer),
        Stage::Paced(_) | Stage::Sending(_) => None,
    }
}

/// True of one that has waited for so long for what its drive was asked for.
pub(crate) fn is_stuck(connection: &Connection, now: Instant, reset_after: Nanos) -> bool {
    waiting(connection).is_some_and(|transfer| {
        let asked = matches!(transfer.stage, Stage::Opening(_) | Stage::Reading(_));
        asked && reset_after <= now.since(transfer.since)
    })
}

/// Looks at drives within `hang_after`. It is found at the second look after it: at most a half of
/// it late.
const LOOKS: u64 = 4;
