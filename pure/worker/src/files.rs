//! The worker's open files: a bounded table, the least recently used unused one makes room.

use std::collections::BTreeMap;

use model::extent::Extent;
use model::handle::{ConnectionId, FileSlot};
use model::id::ObjectId;

/// The next step of a transfer that needs a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acquired {
    /// It is open: read.
    Open(FileSlot),
    /// It is being opened; the connection will be named by `opened`.
    Opening(FileSlot),
    /// Open it into this slot; the connection will be named by `opened`.
    Start(FileSlot),
    /// Every place is used or held by a drive that does not answer: the client goes elsewhere.
    Full,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Opening,
    Open,
}

#[derive(Debug)]
struct Entry {
    state: State,
    object: ObjectId,
    /// Transfers that read from it. Counted up by `acquire`, down by `release`; at zero the entry
    /// may be used for another file.
    users: u32,
    /// The object is gone: close the file when the last user is done.
    gone: bool,
    last_used: u64,
    waiting: Vec<ConnectionId>,
    /// None before the first file.
    extent: Option<Extent>,
}

impl Entry {
    /// True if the file is open and nobody is to read from it any more: its place is free then.
    fn free_if_over(&mut self) -> bool {
        let is_over = self.users == 0 && self.gone && self.state == State::Open;
        if is_over {
            self.state = State::Free;
        }
        is_over
    }
}

/// Open files by object.
#[derive(Debug)]
pub(crate) struct Files {
    entries: Vec<Entry>,
    by_object: BTreeMap<ObjectId, FileSlot>,
    uses: u64,
}

impl Files {
    /// An empty table of `slots` places. There must be more slots than transfers at once, so that a
    /// transfer always finds one.
    pub(crate) fn new(slots: u16) -> Self {
        let vacant = || Entry {
            state: State::Free,
            object: ObjectId([0; 32]),
            users: 0,
            gone: false,
            last_used: 0,
            waiting: Vec::new(),
            extent: None,
        };
        let entries = (0..slots).map(|_| vacant()).collect();
        Self { entries, by_object: BTreeMap::new(), uses: 0 }
    }

    /// True if the object's file is open or being opened.
    pub(crate) fn has(&self, object: &ObjectId) -> bool {
        self.by_object.contains_key(object)
    }

    /// Where the object lies, or lay, whose file is in the slot, or was last.
    pub(crate) fn extent(&self, slot: FileSlot) -> &Extent {
        self.entries[slot.as_usize()].extent.as_ref().expect("a slot is named once it has a file")
    }

    /// True if the object whose file is in the slot is gone from here, perhaps with its drive.
    pub(crate) fn is_gone(&self, slot: FileSlot) -> bool {
        self.entries[slot.as_usize()].gone
    }

    /// Finds or makes a place for the object's file, for one more user.
    pub(crate) fn acquire(
        &mut self,
        object: ObjectId,
        extent: &Extent,
        connection: ConnectionId,
    ) -> Acquired {
        self.uses += 1;
        let (slot, acquired) = match self.by_object.get(&object) {
            Some(&slot) => match self.entries[slot.as_usize()].state {
                State::Open => (slot, Acquired::Open(slot)),
                State::Opening => (slot, Acquired::Opening(slot)),
                State::Free => unreachable!("free entries are not found by object"),
            },
            None => {
                let Some(slot) = self.make_room() else { return Acquired::Full };
                self.by_object.insert(object, slot);
                (slot, Acquired::Start(slot))
            }
        };
        let entry = &mut self.entries[slot.as_usize()];
        assert!(entry.users == 0 || entry.object == object, "a file in use makes no room");
        entry.users += 1;
        entry.last_used = self.uses;
        if let Acquired::Start(_) = acquired {
            entry.state = State::Opening;
            entry.object = object;
            entry.extent = Some(extent.clone());
            entry.gone = false;
        }
        if !matches!(acquired, Acquired::Open(_)) {
            entry.waiting.push(connection);
        }
        acquired
    }

    /// One user fewer. Returns the slot if the file in it should now be closed.
    pub(crate) fn release(&mut self, slot: FileSlot) -> Option<FileSlot> {
        let entry = &mut self.entries[slot.as_usize()];
        assert!(0 < entry.users, "only a transfer that holds a file releases it");
        entry.users -= 1;
        entry.free_if_over().then_some(slot)
    }

    /// The file is open, or is not. Moves the transfers that wait for it into `waiting`.
    pub(crate) fn opened(
        &mut self,
        slot: FileSlot,
        ok: bool,
        waiting: &mut Vec<ConnectionId>,
    ) -> Option<FileSlot> {
        let entry = &mut self.entries[slot.as_usize()];
        assert_eq!(entry.state, State::Opening, "a file is opened once");
        waiting.append(&mut entry.waiting);
        if ok {
            entry.state = State::Open;
        } else {
            entry.state = State::Free;
            // Of an object that is gone, the name may belong to its successor by now.
            if !entry.gone {
                self.by_object.remove(&entry.object);
            }
        }
        entry.free_if_over().then_some(slot)
    }

    /// The object is gone: nobody new reads from its file. Returns the slot if it can be closed.
    pub(crate) fn forget(&mut self, object: &ObjectId) -> Option<FileSlot> {
        let slot = self.by_object.remove(object)?;
        let entry = &mut self.entries[slot.as_usize()];
        assert_eq!(entry.object, *object, "a name leads to its file");
        entry.gone = true;
        entry.free_if_over().then_some(slot)
    }

    /// A free place, or that of the unused file that was used longest ago. Only a miss looks
    /// through the table: a few microseconds beside an open that costs more.
    fn make_room(&mut self) -> Option<FileSlot> {
        let unused =
            |entry: &&(usize, &Entry)| entry.1.users == 0 && entry.1.state != State::Opening;
        let candidates = self.entries.iter().enumerate();
        let oldest = candidates
            .filter(|pair| unused(&pair))
            .min_by_key(|(_, entry)| (entry.state == State::Open, entry.last_used));
        let (index, entry) = oldest?;
        assert!(entry.waiting.is_empty(), "nobody waits for a file that nobody uses");
        let slot = FileSlot(u16::try_from(index).expect("the table has at most 2^16 entries"));
        if entry.state == State::Open {
            assert!(!entry.gone, "the file of an object that is gone closes with its last user");
            let named = self.by_object.remove(&entry.object);
            assert_eq!(named, Some(slot), "an open file has one place");
        }
        Some(slot)
    }
}

#[cfg(test)]
mod tests {
    use model::extent::{DriveIndex, FileName};
    use model::units::Bytes;

    use super::*;

    fn extent() -> Extent {
        let file = FileName("objects/aa/aa".into());
        Extent { drive: DriveIndex(0), file, offset: Bytes(0), len: Bytes(1) }
    }

    fn object(n: u8) -> ObjectId {
        ObjectId([n; 32])
    }

    fn connection(slot: u32) -> ConnectionId {
        ConnectionId { slot, generation: 0 }
    }

    fn open(files: &mut Files, n: u8) -> FileSlot {
        match files.acquire(object(n), &extent(), connection(0)) {
            Acquired::Start(slot) => {
                assert_eq!(files.opened(slot, true, &mut Vec::new()), None);
                slot
            }
            Acquired::Open(slot) => slot,
            other @ (Acquired::Opening(_) | Acquired::Full) => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_file_is_opened_once_however_many_want_it() {
        let mut files = Files::new(2);
        assert_eq!(
            files.acquire(object(1), &extent(), connection(1)),
            Acquired::Start(FileSlot(0))
        );
        assert_eq!(
            files.acquire(object(1), &extent(), connection(2)),
            Acquired::Opening(FileSlot(0))
        );
        let mut waiting = Vec::new();
        files.opened(FileSlot(0), true, &mut waiting);
        assert_eq!(waiting, [connection(1), connection(2)]);
        assert_eq!(files.acquire(object(1), &extent(), connection(3)), Acquired::Open(FileSlot(0)));
    }

    #[test]
    fn the_file_unused_longest_makes_room() {
        let mut files = Files::new(2);
        let (one, two) = (open(&mut files, 1), open(&mut files, 2));
        files.release(one);
        files.release(two);
        assert_eq!(open(&mut files, 1), one);
        files.release(one);
        assert_eq!(open(&mut files, 3), two, "2 was used before 1");
        assert_eq!(open(&mut files, 2), one);
    }

    #[test]
    fn a_removed_object_s_file_closes_behind_its_last_reader() {
        let mut files = Files::new(2);
        let slot = open(&mut files, 1);
        assert_eq!(files.forget(&object(1)), None);
        assert_eq!(
            files.acquire(object(1), &extent(), connection(0)),
            Acquired::Start(FileSlot(1))
        );
        assert_eq!(files.release(slot), Some(slot));
        let again = open(&mut files, 2);
        assert_eq!(again, slot, "its place is free again");
    }

    #[test]
    fn what_cannot_be_opened_leaves_its_place() {
        let mut files = Files::new(1);
        let Acquired::Start(slot) = files.acquire(object(1), &extent(), connection(1)) else {
            panic!()
        };
        let mut waiting = Vec::new();
        files.opened(slot, false, &mut waiting);
        files.release(slot);
        assert_eq!(waiting.len(), 1);
        assert_eq!(files.acquire(object(2), &extent(), connection(1)), Acquired::Start(slot));
    }

    #[test]
    fn a_failed_open_of_a_removed_object_leaves_its_successor_alone() {
        let mut files = Files::new(3);
        let Acquired::Start(one) = files.acquire(object(1), &extent(), connection(1)) else {
            panic!()
        };
        assert_eq!(files.forget(&object(1)), None);
        let Acquired::Start(two) = files.acquire(object(1), &extent(), connection(2)) else {
            panic!()
        };
        files.opened(two, true, &mut Vec::new());
        files.opened(one, false, &mut Vec::new());
        assert_eq!(files.acquire(object(1), &extent(), connection(3)), Acquired::Open(two));
    }
}
