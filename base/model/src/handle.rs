//! Names for what the kernel or a pool holds, so that deciding and doing can speak of it without
//! references: "the kernel owns it" is then a state that can be asserted.

/// A buffer of a worker's pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BufferId(pub u16);

/// A place in a worker's table of open files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileSlot(pub u16);

/// A connection: its slot, and which user of the slot it is. Slots are used again, pairs are not,
/// so what comes late for an old connection never reaches the new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    /// Place in the worker's table.
    pub slot: u32,
    /// Counts the users of the slot.
    pub generation: u32,
}

impl BufferId {
    /// As an index into the pool.
    pub fn as_usize(self) -> usize {
        usize::from(self.0)
    }
}

impl FileSlot {
    /// As an index into the table.
    pub fn as_usize(self) -> usize {
        usize::from(self.0)
    }
}

impl ConnectionId {
    /// As an index into the table.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.slot).unwrap_or(usize::MAX)
    }
}
