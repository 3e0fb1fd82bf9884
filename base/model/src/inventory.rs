//! What an appliance holds (actual), told as deltas between numbered states.

use crate::id::ObjectId;

/// What changed between two states of an appliance's inventory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    /// State before; 0 means that `held` is the full list.
    pub from: u64,
    /// State after.
    pub to: u64,
    /// Published since `from`.
    pub held: Vec<ObjectId>,
    /// Gone since `from`.
    pub gone: Vec<ObjectId>,
}
