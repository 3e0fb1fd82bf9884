//! Writes decisions, and before each what it needs and the file does not have yet.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use model::id::AssetVersionId;
use model::members::Members;
use model::near::Near;
use model::units::{Bytes, UnixSeconds};
use model::view::{FleetView, Holders};
use steering::Config;

use crate::block::{self, HASH_LEN, Place, SIGNATURE_LEN};
use crate::changes;
use crate::near;
use crate::record::{Answered, Kind, Record};
use crate::{RECORD_LEN_MAX, entry};

/// A decision, with all that it was made of.
#[derive(Clone, Copy, Debug)]
pub struct Decision<'a> {
    pub kind: Kind,
    /// When it was asked.
    pub at: UnixSeconds,
    /// The bytes by which the session was drawn for.
    pub draw: [u8; 8],
    pub plain: bool,
    pub version: &'a AssetVersionId,
    pub view: &'a Arc<FleetView>,
    pub near: &'a [Near],
    /// The list, which was made of `view`.
    pub answered: &'a Answered,
}

/// The ledger as its one writer has it.
///
/// It keeps the last picture, and of the file that it writes the versions and the clients' sites
/// that the file has. A decision costs O(log sites that the file has) and what changed in the
/// picture.
#[derive(Debug)]
pub struct Ledger {
    config: Config,
    /// Entries that are not sealed yet.
    entries: Vec<u8>,
    /// Decisions among them.
    unsealed: u32,
    place: Place,
    /// Bytes of the file that are sealed.
    sealed: Bytes,
    last: Arc<FleetView>,
    holders: BTreeMap<u32, Members>,
    /// Those of each rendition of a version, where some hold a part of it.
    partial: BTreeMap<u32, Vec<Members>>,
    /// By their bytes in the file.
    near: BTreeMap<Vec<u8>, u32>,
    scratch: Vec<u8>,
}

/// Clients' sites of one file: beyond it another one begins.
const NEAR_MAX: usize = 65_536;

impl Ledger {
    /// One that begins with this file, and follows no other.
    pub fn new(config: Config, file: u64) -> Self {
        let place = Place { number: 0, file, before: [0; HASH_LEN], is_last: false };
        let mut ledger = Self {
            config,
            entries: Vec::new(),
            unsealed: 0,
            place,
            sealed: Bytes(0),
            last: Arc::default(),
            holders: BTreeMap::new(),
            partial: BTreeMap::new(),
            near: BTreeMap::new(),
            scratch: Vec::new(),
        };
        entry::put_head(&mut ledger.entries, &ledger.config);
        ledger
    }

    /// How many pathways players get.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The number of the file that is written now.
    pub fn file(&self) -> u64 {
        self.place.file
    }

    /// Bytes that wait for their seal.
    pub fn waiting(&self) -> Bytes {
        Bytes::of(self.entries.len())
    }

    /// Bytes of the file, with those that wait.
    pub fn len(&self) -> Bytes {
        Bytes(self.sealed.0 + self.waiting().0)
    }

    /// True if no decision was put since a block was sealed.
    pub fn is_idle(&self) -> bool {
        self.unsealed == 0
    }

    /// True if the file has no decision yet.
    pub fn is_empty(&self) -> bool {
        self.sealed.0 == 0 && self.is_idle()
    }

    /// True of a file that should have no more: what it keeps in memory is bounded.
    pub fn is_full(&self) -> bool {
        NEAR_MAX <= self.near.len()
    }

    /// Adds a decision.
    pub fn put(&mut self, decision: &Decision<'_>) {
        let view = decision.view;
        if !Arc::ptr_eq(view, &self.last) {
            changes::put_changes(&mut self.entries, &self.last, view);
            self.last = Arc::clone(view);
        }
        let version = self.put_version(view, decision.version);
        let near = self.put_near(decision.near);
        let record = Record {
            kind: decision.kind,
            plain: decision.plain,
            at: decision.at,
            draw: decision.draw,
            version,
            near,
            generation: view.generation.0,
            answered: decision.answered.clone(),
        };
        let before = self.entries.len();
        entry::put_decision(&mut self.entries, &record);
        assert!(self.entries.len() - before <= RECORD_LEN_MAX, "as promised");
        self.unsealed += 1;
    }

    fn put_version(&mut self, view: &FleetView, id: &AssetVersionId) -> Option<u32> {
        let version = *view.versions.get(id)?;
        let nobody = Holders::default();
        let Holders { whole, renditions } = view.holders.get(version).unwrap_or(&nobody);
        let before = self.holders.get(&version);
        if before.is_none_or(|before| !before.is_same(whole)) {
            if before != Some(whole) {
                entry::put_holders(&mut self.entries, version, id, whole);
            }
            // The copy of the picture, so that next time two pointers are compared.
            self.holders.insert(version, whole.clone());
        }
        self.put_partial(view, version, renditions);
        Some(version)
    }

    /// Nothing where nobody holds a part, which is usual.
    fn put_partial(&mut self, view: &FleetView, version: u32, numbers: &Range<u32>) {
        let nobody = Members::default();
        let sets = numbers.clone().map(|at| view.partial_holders.get(at).unwrap_or(&nobody));
        let is_known = match self.partial.get(&version) {
            Some(before) => before.iter().eq(sets.clone()),
            None => sets.clone().all(|set| set.is_empty()),
        };
        if !is_known {
            let sets: Vec<Members> = sets.cloned().collect();
            entry::put_partial(&mut self.entries, version, &sets);
            self.partial.insert(version, sets);
        }
    }

    fn put_near(&mut self, near: &[Near]) -> u32 {
        self.scratch.clear();
        near::encode(&mut self.scratch, near);
        if let Some(number) = self.near.get(self.scratch.as_slice()) {
            return *number;
        }
        entry::put_near(&mut self.entries, &self.scratch);
        let number = u32::try_from(self.near.len()).expect("a file that is full is ended");
        self.near.insert(self.scratch.clone(), number);
        number
    }

    /// A block of what waits, to be added to the file. After a last block another file begins,
    /// which follows this one.
    pub fn seal(
        &mut self,
        now: UnixSeconds,
        is_last: bool,
        sign: impl FnOnce(&[u8; HASH_LEN]) -> [u8; SIGNATURE_LEN],
    ) -> Vec<u8> {
        let place = Place { is_last, ..self.place };
        let (bytes, hash) = block::seal(&place, now, &self.entries, sign);
        self.entries.clear();
        self.unsealed = 0;
        self.place = Place { number: self.place.number + 1, before: hash, ..self.place };
        self.sealed.0 += Bytes::of(bytes.len()).0;
        if is_last {
            *self = Self {
                place: Place { number: 0, file: self.place.file + 1, ..self.place },
                ..Self::new(self.config, 0)
            };
        }
        bytes
    }
}

/// True of a session of which decisions are kept: of one in so many, by its draw, so that all
/// processes keep the same ones. Of none if it is 0.
pub fn keeps(draw: [u8; 8], one_in: u32) -> bool {
    0 < one_in && u64::from_le_bytes(draw).is_multiple_of(u64::from(one_in))
}
