//! A drive's index on the drive: a snapshot, and a log of what changed since.
//!
//! Both are runs of records of 128 bytes, so that no record straddles a sector of 512 or 4096:
//! a torn write loses whole records. All numbers little-endian:
//!
//! ```text
//! offset  size  field
//! 0       4     magic "NCIX"
//! 4       1     kind: 1 published, 2 removed, 3 head of a snapshot
//! 5       3     zeros
//! 8       8     sequence: one more in each record of the log; in a snapshot, its last change's
//! 16      16    drive id, so that a file copied from another drive is noticed
//! 32      32    object id; in a head: BLAKE3 of all bytes after the head
//! 64      8     offset of the object in its file; in a head: 0
//! 72      8     length of the object; in a head: how many records follow
//! 80      32    zeros
//! 112     16    BLAKE3 of the 112 bytes before, cut to 16
//!
//! snapshot   [head][published][published]...      written aside, flushed, renamed into place
//! log        [change][change]...                  appended and flushed, one batch at a time
//! ```
//!
//! A file is found from its object's id (`layout::object_file`), so records carry no names. What a
//! power cut leaves is a log whose last records are missing or torn: they were not confirmed to
//! anybody, and are cut. Anything else that is wrong (a bad record before a good one, a gap, a
//! snapshot that does not add up) is damage: then the drive's folders are walked and the index is
//! made anew from the footers.

use std::collections::BTreeMap;

use model::id::{DriveId, ObjectId};
use model::limits::{DIRECT_ALIGN, OBJECT_LEN_MAX};
use model::units::Bytes;

use crate::layout::array;

/// Size of every record.
pub const RECORD_LEN: usize = 128;

/// A log below this is not worth a new snapshot. 1024 records are 128 KiB: read in a millisecond.
const COMPACT_RECORDS_MIN: u64 = 1024;
/// A log of so many records per live object is replaced by a snapshot. Two is arbitrary: it bounds
/// the log to twice the snapshot, and the writing of snapshots to half a record per change.
const COMPACT_RECORDS_PER_OBJECT: u64 = 2;

const MAGIC: &[u8; 4] = b"NCIX";
const PUBLISHED: u8 = 1;
const REMOVED: u8 = 2;
const HEAD: u8 = 3;
const SUM_AT: usize = 112;

/// The number of a change to a drive's index. The first is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sequence(pub u64);

/// An object on a drive. Its file follows from its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where in the file it begins.
    pub offset: Bytes,
    /// How long it is.
    pub len: Bytes,
}

/// One change to a drive's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The object is complete on the drive.
    Published(ObjectId, Entry),
    /// The object is about to be unlinked.
    Removed(ObjectId),
}

impl Change {
    /// Of which object.
    pub fn object(&self) -> ObjectId {
        match self {
            Self::Published(object, _) | Self::Removed(object) => *object,
        }
    }
}

/// What snapshot and log say together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    /// The drive's objects.
    pub entries: BTreeMap<ObjectId, Entry>,
    /// The last change among them; the next is one more. After damage: the highest number seen
    /// anywhere, so that a new snapshot with this number overrules all that is left of the log.
    pub sequence: Sequence,
    /// How much of the log is good. Cut it here before anything is appended.
    pub log_len: Bytes,
    /// What is cut: a write that a power cut interrupted.
    pub torn: Bytes,
    /// Why the drive must be walked: `entries` are then only those from before the damage.
    pub damage: Option<Damage>,
}

/// What is wrong with a drive's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// `format` writes one, and it is only ever replaced whole.
    #[error("the index has no snapshot")]
    NoSnapshot,
    /// It is not what was written.
    #[error("the index snapshot is damaged: its checksum or its length is wrong")]
    Snapshot,
    /// A record is bad, and good ones follow it.
    #[error("record {0} of the index log is damaged, and good ones follow it")]
    Record(u64),
    /// A record is missing, or the log belongs to another snapshot.
    #[error("record {record} of the index log has number {found} where {wanted} is due")]
    Gap {
        /// Which record, from 0.
        record: u64,
        /// The number due.
        wanted: u64,
        /// The number found.
        found: u64,
    },
}

struct Record {
    kind: u8,
    sequence: Sequence,
    drive: DriveId,
    object: [u8; 32],
    offset: u64,
    len: u64,
}

/// The record of a change, to be appended to the log.
pub fn encode(drive: DriveId, sequence: Sequence, change: &Change) -> [u8; RECORD_LEN] {
    let (kind, object, entry) = match change {
        Change::Published(object, entry) => (PUBLISHED, object, *entry),
        Change::Removed(object) => (REMOVED, object, Entry { offset: Bytes(0), len: Bytes(0) }),
    };
    assert!(entry.offset.0.is_multiple_of(DIRECT_ALIGN.0), "an object begins at a page");
    assert!(entry.len <= OBJECT_LEN_MAX, "an object of {} is over the limit", entry.len);
    let (offset, len) = (entry.offset.0, entry.len.0);
    Record { kind, sequence, drive, object: object.0, offset, len }.encode()
}

/// A whole snapshot, to be written aside and renamed into place.
pub fn snapshot(
    drive: DriveId,
    sequence: Sequence,
    entries: &BTreeMap<ObjectId, Entry>,
) -> Vec<u8> {
    let mut bytes = vec![0; RECORD_LEN];
    for (object, entry) in entries {
        bytes.extend(encode(drive, sequence, &Change::Published(*object, *entry)));
    }
    let object = *blake3::hash(&bytes[RECORD_LEN..]).as_bytes();
    let len = Bytes::of(entries.len()).0;
    let head = Record { kind: HEAD, sequence, drive, object, offset: 0, len };
    bytes[..RECORD_LEN].copy_from_slice(&head.encode());
    bytes
}

/// True if the log has grown so long that a snapshot should replace it.
pub fn compaction_is_due(log_records: u64, objects: usize) -> bool {
    let live = Bytes::of(objects).0;
    COMPACT_RECORDS_MIN.max(COMPACT_RECORDS_PER_OBJECT.saturating_mul(live)) < log_records
}

/// What a drive held when it was last written to, as far as snapshot and log can tell.
pub fn replay(drive: DriveId, snapshot: Option<&[u8]>, log: &[u8]) -> Replay {
    let mut replay = Replay::default();
    let read = snapshot.map_or(Err(Damage::NoSnapshot), |bytes| read_snapshot(drive, bytes));
    match read {
        Ok((sequence, entries)) => {
            replay.sequence = sequence;
            replay.entries = entries;
        }
        Err(damage) => {
            replay.damage = Some(damage);
            replay.torn = Bytes::of(log.len());
            replay.sequence = last_seen(drive, snapshot.unwrap_or(&[]), log);
            return replay;
        }
    }
    let (records, rest) = log.as_chunks::<RECORD_LEN>();
    let decoded = records.iter().map(|bytes| Record::decode(drive, bytes));
    let mut previous = None;
    for (i, record) in (0u64..).zip(decoded) {
        let Some(change) = record.as_ref().and_then(Record::change) else {
            let follows = records.iter().skip(index(i) + 1);
            let damaged = follows.clone().any(|bytes| Record::decode(drive, bytes).is_some());
            replay.damage = damaged.then_some(Damage::Record(i));
            break;
        };
        let found = record.map_or(Sequence(0), |record| record.sequence);
        if let Some(damage) = gap(i, previous, replay.sequence, found) {
            replay.damage = Some(damage);
            break;
        }
        previous = Some(found);
        replay.log_len += Bytes::of(RECORD_LEN);
        if replay.sequence < found {
            replay.sequence = found;
            apply(&mut replay.entries, change);
        }
    }
    if replay.damage.is_some() {
        replay.sequence = replay.sequence.max(last_seen(drive, &[], log));
    }
    replay.torn = Bytes::of(log.len()) - replay.log_len;
    assert!(replay.torn.0 != 0 || rest.is_empty(), "what is not a whole record is never accepted");
    replay
}

/// Applies one change to a drive's objects.
pub fn apply(entries: &mut BTreeMap<ObjectId, Entry>, change: Change) {
    match change {
        Change::Published(object, entry) => entries.insert(object, entry),
        Change::Removed(object) => entries.remove(&object),
    };
}

/// The log may begin with changes that the snapshot has already (a crash came between the two),
/// and may lack some of these: a log whose end was torn off goes on where the snapshot ended. What
/// the snapshot does not have must be there without a gap.
fn gap(
    record: u64,
    previous: Option<Sequence>,
    snapshot: Sequence,
    found: Sequence,
) -> Option<Damage> {
    let previous = previous.unwrap_or_default();
    let in_snapshot = previous < found && found <= snapshot;
    let wanted = previous.max(snapshot).0.saturating_add(1);
    let fits = in_snapshot || found.0 == wanted;
    (!fits).then_some(Damage::Gap { record, wanted, found: found.0 })
}

fn read_snapshot(
    drive: DriveId,
    bytes: &[u8],
) -> Result<(Sequence, BTreeMap<ObjectId, Entry>), Damage> {
    let (records, rest) = bytes.as_chunks::<RECORD_LEN>();
    let (first, records) = records.split_first().ok_or(Damage::Snapshot)?;
    let head = Record::decode(drive, first).ok_or(Damage::Snapshot)?;
    let sum = blake3::hash(&bytes[RECORD_LEN..]);
    let whole = rest.is_empty() && head.kind == HEAD && Bytes::of(records.len()).0 == head.len;
    if !whole || head.object != *sum.as_bytes() {
        return Err(Damage::Snapshot);
    }
    let mut entries = BTreeMap::new();
    for bytes in records {
        let record = Record::decode(drive, bytes).ok_or(Damage::Snapshot)?;
        apply(&mut entries, record.change().ok_or(Damage::Snapshot)?);
    }
    Ok((head.sequence, entries))
}

/// The highest number in any record that is whole.
fn last_seen(drive: DriveId, snapshot: &[u8], log: &[u8]) -> Sequence {
    let records = [snapshot, log].into_iter().flat_map(|bytes| bytes.as_chunks::<RECORD_LEN>().0);
    let whole = records.filter_map(|bytes| Record::decode(drive, bytes));
    whole.map(|record| record.sequence).max().unwrap_or_default()
}

fn index(i: u64) -> usize {
    Bytes(i).as_usize()
}

impl Record {
    fn encode(&self) -> [u8; RECORD_LEN] {
        let mut bytes = [0; RECORD_LEN];
        bytes[..4].copy_from_slice(MAGIC);
        bytes[4] = self.kind;
        bytes[8..16].copy_from_slice(&self.sequence.0.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.drive.0);
        bytes[32..64].copy_from_slice(&self.object);
        bytes[64..72].copy_from_slice(&self.offset.to_le_bytes());
        bytes[72..80].copy_from_slice(&self.len.to_le_bytes());
        let sum = sum(&bytes);
        bytes[SUM_AT..].copy_from_slice(&sum);
        bytes
    }

    /// None unless every bit is as it was written, and for this drive.
    fn decode(drive: DriveId, bytes: &[u8; RECORD_LEN]) -> Option<Self> {
        let written_here = bytes[..4] == *MAGIC && bytes[16..32] == drive.0;
        if !written_here || bytes[SUM_AT..] != sum(bytes) {
            return None;
        }
        Some(Self {
            kind: bytes[4],
            sequence: Sequence(u64::from_le_bytes(array(&bytes[8..16]))),
            drive,
            object: array(&bytes[32..64]),
            offset: u64::from_le_bytes(array(&bytes[64..72])),
            len: u64::from_le_bytes(array(&bytes[72..80])),
        })
    }

    /// None if the record is not a change, or one that cannot be.
    fn change(&self) -> Option<Change> {
        let object = ObjectId(self.object);
        let entry = Entry { offset: Bytes(self.offset), len: Bytes(self.len) };
        let fits = self.offset.is_multiple_of(DIRECT_ALIGN.0) && entry.len <= OBJECT_LEN_MAX;
        match self.kind {
            PUBLISHED if fits => Some(Change::Published(object, entry)),
            REMOVED => Some(Change::Removed(object)),
            _ => None,
        }
    }
}

fn sum(bytes: &[u8; RECORD_LEN]) -> [u8; RECORD_LEN - SUM_AT] {
    array(&blake3::hash(&bytes[..SUM_AT]).as_bytes()[..RECORD_LEN - SUM_AT])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DRIVE: DriveId = DriveId([7; 16]);

    /// Published or removed, which of a few objects, and a length to tell them apart.
    type Op = (bool, u8, u64);

    /// A history, and from which change on there is a log: the snapshot holds those before, and
    /// the log repeats the last few of them.
    #[derive(Debug)]
    struct Case {
        history: Vec<Op>,
        in_snapshot: usize,
        log_from: usize,
    }

    impl Case {
        fn bytes(&self) -> (Vec<u8>, Vec<u8>) {
            let sequence = Sequence(Bytes::of(self.in_snapshot).0);
            let snapshot = snapshot(DRIVE, sequence, &self.state_after(self.in_snapshot));
            let numbered = (1u64..).zip(&self.history).skip(self.log_from);
            let log = numbered.flat_map(|(n, op)| encode(DRIVE, Sequence(n), &change(op)));
            (snapshot, log.collect())
        }

        fn state_after(&self, count: usize) -> BTreeMap<ObjectId, Entry> {
            let mut entries = BTreeMap::new();
            self.history[..count].iter().for_each(|op| apply(&mut entries, change(op)));
            entries
        }

        /// What a log cut after `log_records` records must replay to.
        fn state_of_prefix(&self, log_records: usize) -> BTreeMap<ObjectId, Entry> {
            self.state_after((self.log_from + log_records).max(self.in_snapshot))
        }
    }

    fn change(op: &Op) -> Change {
        let object = ObjectId([op.1; 32]);
        let entry = Entry { offset: Bytes::ZERO, len: Bytes(op.2) };
        if op.0 { Change::Published(object, entry) } else { Change::Removed(object) }
    }

    fn cases() -> impl Strategy<Value = Case> {
        let ops = prop::collection::vec((any::<bool>(), 0u8..6, 0u64..1 << 42), 0..24);
        (ops, any::<prop::sample::Index>(), 0usize..4).prop_map(|(history, at, back)| {
            let in_snapshot = at.index(history.len() + 1);
            Case { history, in_snapshot, log_from: in_snapshot.saturating_sub(back) }
        })
    }

    #[test]
    fn a_log_that_lacks_what_the_snapshot_has_stays_good_under_the_next_snapshot() {
        let history: Vec<Op> = (1..8).map(|n| (true, n, 1)).collect();
        let record = |n: u64| encode(DRIVE, Sequence(n), &change(&history[index(n - 1)]));
        // 4 and 5 were torn off and are in the snapshot of 5; 6 and 7 came later.
        let log = [1, 2, 3, 6, 7].map(record).concat();
        let case = Case { history: history.clone(), in_snapshot: 5, log_from: 0 };
        let first = replay(DRIVE, Some(&case.bytes().0), &log);
        assert_eq!((first.damage, first.sequence), (None, Sequence(7)));
        let next = snapshot(DRIVE, first.sequence, &first.entries);
        let again = replay(DRIVE, Some(&next), &log);
        assert_eq!((again.damage, again.entries), (None, first.entries));
        let back = [1, 3, 2].map(record).concat();
        let gap = Damage::Gap { record: 2, wanted: 8, found: 2 };
        assert_eq!(replay(DRIVE, Some(&next), &back).damage, Some(gap));
    }

    proptest! {
        #[test]
        fn any_prefix_of_the_log_replays_to_a_prefix_of_the_history(
            case in cases(),
            cut in any::<prop::sample::Index>(),
        ) {
            let (snapshot, log) = case.bytes();
            let cut = cut.index(log.len() + 1);
            let replay = replay(DRIVE, Some(&snapshot), &log[..cut]);
            prop_assert_eq!(replay.damage, None);
            prop_assert_eq!(replay.torn, Bytes::of(cut % RECORD_LEN));
            prop_assert_eq!(replay.entries, case.state_of_prefix(cut / RECORD_LEN));
        }

        #[test]
        fn no_flipped_bit_is_silently_accepted(
            case in cases(),
            at in any::<prop::sample::Index>(),
            bit in 0u32..8,
        ) {
            let (mut snapshot, mut log) = case.bytes();
            let at = at.index(snapshot.len() + log.len());
            let in_log = at.checked_sub(snapshot.len());
            match in_log {
                Some(at) => log[at] ^= 1 << bit,
                None => snapshot[at] ^= 1 << bit,
            }
            let replay = replay(DRIVE, Some(&snapshot), &log);
            match in_log {
                None => prop_assert_eq!(replay.damage, Some(Damage::Snapshot)),
                Some(at) => {
                    let bad = at / RECORD_LEN;
                    let last = (bad + 1) * RECORD_LEN == log.len();
                    let damage = (!last).then_some(Damage::Record(Bytes::of(bad).0));
                    prop_assert_eq!(replay.damage, damage);
                    prop_assert_eq!(replay.torn, Bytes::of(log.len() - bad * RECORD_LEN));
                    prop_assert_eq!(replay.entries, case.state_of_prefix(bad));
                    let last_change = Sequence(Bytes::of(case.history.len()).0);
                    prop_assert!(last || replay.sequence == last_change);
                }
            }
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes: Vec<u8>, case in cases()) {
            let (snapshot, mut log) = case.bytes();
            let _ = replay(DRIVE, Some(&bytes), &log);
            log.extend(&bytes);
            let replay = replay(DRIVE, Some(&snapshot), &log);
            prop_assert_eq!(replay.torn, Bytes::of(bytes.len()));
        }
    }

    #[test]
    fn a_record_lost_doubled_or_from_another_drive_is_damage() {
        let history = vec![(true, 1, 10), (true, 2, 20), (false, 1, 0), (true, 3, 30)];
        let case = Case { history, in_snapshot: 1, log_from: 1 };
        let (snapshot, log) = case.bytes();
        let records: Vec<&[u8]> = log.chunks(RECORD_LEN).collect();
        let check = |picked: &[usize], damage| {
            let log: Vec<u8> = picked.iter().flat_map(|i| records[*i]).copied().collect();
            assert_eq!(replay(DRIVE, Some(&snapshot), &log).damage, damage, "{picked:?}");
        };
        check(&[0, 1, 2], None);
        check(&[0, 2], Some(Damage::Gap { record: 1, wanted: 3, found: 4 }));
        check(&[1, 2], Some(Damage::Gap { record: 0, wanted: 2, found: 3 }));
        check(&[0, 0], Some(Damage::Gap { record: 1, wanted: 3, found: 2 }));
        let old = encode(DRIVE, Sequence(1), &Change::Removed(ObjectId([9; 32])));
        let resumed = [&old[..], records[0]].concat();
        assert_eq!(replay(DRIVE, Some(&snapshot), &resumed).damage, None);
        let other = replay(DriveId([8; 16]), Some(&snapshot), &log);
        assert_eq!(other.damage, Some(Damage::Snapshot));
        assert_eq!(replay(DRIVE, None, &log).damage, Some(Damage::NoSnapshot));
    }

    #[test]
    fn zeros_after_the_log_are_a_torn_tail() {
        let case = Case { history: vec![(true, 1, 10)], in_snapshot: 0, log_from: 0 };
        let (snapshot, mut log) = case.bytes();
        log.extend([0; 4096]);
        let replay = replay(DRIVE, Some(&snapshot), &log);
        assert_eq!((replay.torn, replay.damage), (Bytes(4096), None));
        assert_eq!(replay.entries, case.state_after(1));
    }

    #[test]
    fn a_log_is_compacted_when_it_is_long_for_what_it_describes() {
        assert!(!compaction_is_due(1024, 0));
        assert!(compaction_is_due(1025, 0));
        assert!(!compaction_is_due(20_000, 10_000));
        assert!(compaction_is_due(20_001, 10_000));
    }
}
