//! The decisions about one playback, each with its whole chain of reasons.

use model::id::AssetVersionId;
use model::units::UnixSeconds;
use steering::RankedList;

use crate::block::{Fault, Opened};
use crate::record::{Kind, Record};
use crate::replay::{Difference, Replay, WhatIf};

/// A decision, with everybody who was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// From 1, in the order of the file.
    pub number: u64,
    pub kind: Kind,
    pub at: UnixSeconds,
    /// Of the picture that it was made of.
    pub generation: u64,
    /// For a player without TLS.
    pub plain: bool,
    /// None if the picture did not know it.
    pub version: Option<AssetVersionId>,
    /// Of a steering answer, the pathways that its playback began with.
    pub pathways: Option<usize>,
    /// As it comes out now: a record has no room for who was left out, and for words.
    pub list: RankedList,
    /// Where that is not what was recorded, and the list is not the one that the player got.
    pub difference: Option<Difference>,
}

impl Told {
    pub(crate) fn of(
        number: u64,
        record: &Record,
        version: Option<AssetVersionId>,
        list: RankedList,
        difference: Option<Difference>,
    ) -> Self {
        let Record { kind, at, generation, plain, .. } = *record;
        let pathways = record.among.as_ref().map(Vec::len);
        Self { number, kind, at, generation, plain, version, pathways, list, difference }
    }
}

/// The decisions of a file about sessions whose draw begins so: 8 bytes are one session's, and the
/// first 4 are its mark in logs. O(entries + decisions that are told x what a list costs).
///
/// # Errors
/// As of [`crate::replay`].
pub fn tell(opened: &Opened<'_>, draw: &[u8]) -> Result<Vec<Told>, Fault> {
    let what_if = WhatIf::default();
    Ok(Replay::new(&what_if).telling(draw).take_all(opened)?.told)
}
