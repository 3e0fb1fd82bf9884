//! What viewers are expected to be sent of what an appliance holds. A hint which of its drives and
//! whose memory: nothing is fetched, evicted or served by it.
//!
//! `GET /v1/appliances/{id}/expected?bytes=B&known=S`: 200 with the items that together take `B`
//! bytes, or 204 if the list is that of state `S`. A control of the release before has no such
//! path: its answer is 404.

use serde::{Deserialize, Serialize};

/// Items of which viewers are expected to be sent most for each byte, best first: 1,024 at most,
/// with 16,384 files together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Expected {
    /// By which control knows the list again: 53 bits, never 0.
    pub state: u64,
    pub items: Vec<ExpectedItem>,
}

/// What is expected of an item.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ExpectedItem {
    /// The asset version that it is of.
    pub version: String,
    /// The numbers of its files: a Roaring bitmap in its portable format, in base64 (standard
    /// alphabet, padded).
    pub files: String,
    /// What viewers are expected to be sent in a day, by this appliance, of each MiB of it.
    pub day_bytes_per_mib: u64,
}
