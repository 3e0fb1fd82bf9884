//! A drive's index on the drive: a snapshot, and a log of the changes since.
//!
//! Both are runs of records of 128 bytes, so that no record straddles a sector of 512 or 4096:
//! a torn write loses whole records. All numbers little-endian:
//!
//! ```text
//! offset  size  field
//! 0       4     magic "NCIX"
//! 4       1     kind: 1 published, 2 removed, 3 head of a snapshot, 4 published in a unit
//! 5       3     of its batch, 12 bits each: how many records are before it, how many follow
//! 8       8     sequence: one more in each record of the log; in a snapshot, its last change's
//! 16      16    drive id, so that a file copied from another drive is noticed
//! 32      32    object id; in a head: BLAKE3 of all bytes after the head
//! 64      8     offset of the object in its file; in a head: 0
//! 72      8     length of the object; in a head: how many records follow
//! 80      32    kind 4: the unit's id; otherwise zeros
//! 112     16    BLAKE3 of the 112 bytes before, cut to 16
//!
//! snapshot   [head][published][published]...      written aside, flushed, renamed into place
//! log        [change][change]...                  appended and flushed, one batch at a time
//! ```
//!
//! A file is found from the id of its object or its unit (`Entry::file`), so records carry no
//! names. A batch counts when all of it is there: what is published or removed together is, or is
//! not. What a power cut leaves is a log whose last batch is missing or torn, wherever in it: it
//! was not confirmed to anybody, and is cut. Anything else that is wrong (a bad record before a
//! good batch, a gap, a snapshot that does not add up) is damage: then the drive's folders are
//! walked and the index is made anew from the footers.
//!
//! A program that knows no units sees kind 4 as damage, makes its index anew without them, and
//! fills again what was in them.

use std::collections::BTreeMap;

use model::extent::{DriveIndex, Extent, FileName};
use model::id::{DriveId, ObjectId};
use model::limits::{DIRECT_ALIGN, OBJECT_LEN_MAX};
use model::units::Bytes;

use crate::layout::{self, array};
use crate::unit::{self, Directory, Place, UnitId};

/// Size of every record.
pub const RECORD_LEN: usize = 128;
/// Changes of one batch: as many as a unit has objects.
pub const BATCH_MAX: usize = unit::OBJECTS_MAX;

/// A log below this is not worth a new snapshot. 1024 records are 128 KiB: read in a millisecond.
const COMPACT_RECORDS_MIN: u64 = 1024;
/// A log of so many records per live object is replaced by a snapshot. Two is arbitrary: it bounds
/// the log to twice the snapshot, and the writing of snapshots to half a record per change.
const COMPACT_RECORDS_PER_OBJECT: u64 = 2;

const MAGIC: &[u8; 4] = b"NCIX";
const PUBLISHED: u8 = 1;
const REMOVED: u8 = 2;
const HEAD: u8 = 3;
const PUBLISHED_IN_UNIT: u8 = 4;
const SUM_AT: usize = 112;

/// The number of a change to a drive's index. The first is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sequence(pub u64);

/// An object on a drive. Its file follows from its id, or from its unit's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Which unit it is in; none for a file of its own.
    pub unit: Option<UnitId>,
    /// Where in the file it begins.
    pub offset: Bytes,
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

impl Entry {
    /// An object of this length in a file of its own.
    pub fn alone(len: Bytes) -> Self {
        Self { unit: None, offset: Bytes::ZERO, len }
    }

    /// The file of `object`, if this is where it is.
    pub fn file(&self, object: &ObjectId) -> FileName {
        self.unit.map_or_else(|| layout::object_file(object), |unit| unit::unit_file(&unit))
    }

    /// Where `object` lies on this drive, if this is where it is.
    pub fn extent(&self, object: &ObjectId, drive: DriveIndex) -> Extent {
        Extent { drive, file: self.file(object), offset: self.offset, len: self.len }
    }
}

impl Directory {
    /// Its objects as the log has them.
    pub fn entries(&self) -> Vec<(ObjectId, Entry)> {
        let unit = Some(self.id());
        let entry =
            |place: &Place| (place.object, Entry { unit, offset: place.offset, len: place.len });
        self.places().iter().map(entry).collect()
    }
}

impl Change {
    /// The object that changes.
    pub fn object(&self) -> ObjectId {
        match self {
            Self::Published(object, _) | Self::Removed(object) => *object,
        }
    }
}

/// Snapshot and log, read together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    pub entries: BTreeMap<ObjectId, Entry>,
    /// The last change among them; the next is one more. After damage: the highest number seen
    /// anywhere, so that a new snapshot with this number overrules all that is left of the log.
    pub sequence: Sequence,
    /// How much of the log is good. Cut it here before anything is appended.
    pub log_len: Bytes,
    /// The bytes that are cut: of a write that a power cut interrupted.
    pub torn: Bytes,
    /// Why the drive must be walked: `entries` are then only those from before the damage.
    pub damage: Option<Damage>,
}

/// A fault in a drive's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    #[error("the index has no snapshot")]
    NoSnapshot,
    #[error("the index snapshot is damaged: its checksum or its length is wrong")]
    Snapshot,
    #[error("record {0} of the index log is damaged, and good ones follow it")]
    Record(u64),
    /// Records are counted from 0.
    #[error("record {record} of the index log has number {found} where {wanted} is due")]
    Gap { record: u64, wanted: u64, found: u64 },
}

struct Record {
    kind: u8,
    /// Of its batch: how many are before it, how many follow. Less than `BATCH_MAX` each.
    before: u32,
    follow: u32,
    sequence: Sequence,
    drive: DriveId,
    object: [u8; 32],
    offset: u64,
    len: u64,
    unit: [u8; 32],
}

/// The record of a change, a batch of its own, to be appended to the log.
pub fn encode(drive: DriveId, sequence: Sequence, change: &Change) -> [u8; RECORD_LEN] {
    record(drive, sequence, change).encode()
}

/// The records of a batch that is appended to the log after the change `last`, in one piece.
pub fn encode_batch(drive: DriveId, last: Sequence, changes: &[Change]) -> Vec<u8> {
    assert!(changes.len() <= BATCH_MAX, "a batch has {BATCH_MAX} changes at most");
    assert!(!changes.is_empty(), "a batch of nothing would never be seen to end");
    let count = u32::try_from(changes.len()).expect("few");
    let numbered = (0..count).zip(changes);
    let records = numbered.flat_map(|(before, change)| {
        let sequence = Sequence(last.0 + 1 + u64::from(before));
        let follow = count - 1 - before;
        Record { before, follow, ..record(drive, sequence, change) }.encode()
    });
    records.collect()
}

fn record(drive: DriveId, sequence: Sequence, change: &Change) -> Record {
    let (kind, object, entry) = match change {
        Change::Published(object, entry) if entry.unit.is_some() => {
            (PUBLISHED_IN_UNIT, object, *entry)
        }
        Change::Published(object, entry) => (PUBLISHED, object, *entry),
        Change::Removed(object) => (REMOVED, object, Entry::alone(Bytes::ZERO)),
    };
    assert!(entry.offset.0.is_multiple_of(DIRECT_ALIGN.0), "an object begins at a page");
    assert!(entry.len <= OBJECT_LEN_MAX, "an object of {} is over the limit", entry.len);
    let (offset, len) = (entry.offset.0, entry.len.0);
    let unit = entry.unit.map_or([0; 32], |unit| unit.0);
    let (before, follow, object) = (0, 0, object.0);
    Record { kind, before, follow, sequence, drive, object, offset, len, unit }
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
    let (before, follow, offset, unit) = (0, 0, 0, [0; 32]);
    let head = Record { kind: HEAD, before, follow, sequence, drive, object, offset, len, unit };
    assert_eq!(bytes.len(), RECORD_LEN * (entries.len() + 1), "a head, and a record for each");
    bytes[..RECORD_LEN].copy_from_slice(&head.encode());
    bytes
}

/// True if the log has grown so long that a snapshot should replace it.
pub fn compaction_is_due(log_records: u64, objects: usize) -> bool {
    let live = Bytes::of(objects).0;
    COMPACT_RECORDS_MIN.max(COMPACT_RECORDS_PER_OBJECT.saturating_mul(live)) < log_records
}

/// The objects on a drive when it was last written to, as far as snapshot and log can tell.
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
    let mut batch = Batch::default();
    let mut previous = None;
    for (i, bytes) in (0u64..).zip(records) {
        let record = Record::decode(drive, bytes);
        let Some((record, change)) = record.and_then(|r| r.change().map(|change| (r, change)))
        else {
            // The rest of the same batch was not confirmed either.
            let follow = (1u32..).zip(records.iter().skip(index(i) + 1));
            let is_later = |(distance, bytes): (u32, &[u8; RECORD_LEN])| {
                Record::decode(drive, bytes).is_some_and(|record| record.before < distance)
            };
            replay.damage = follow.into_iter().any(is_later).then_some(Damage::Record(i));
            break;
        };
        let found = record.sequence;
        if let Some(damage) = gap(i, previous, replay.sequence, found) {
            replay.damage = Some(damage);
            break;
        }
        if !batch.goes_on_with(&record) {
            // The end of a batch is missing: it was torn off, if the snapshot has it.
            if record.before != 0 || replay.sequence < previous.unwrap_or_default() {
                replay.damage = Some(Damage::Record(i));
                break;
            }
            batch = Batch::default();
        }
        previous = Some(found);
        if replay.sequence < found {
            batch.changes.push(change);
        }
        batch.follow = record.follow;
        if record.follow == 0 {
            replay.log_len = Bytes::of(RECORD_LEN * (index(i) + 1));
            replay.sequence = replay.sequence.max(found);
            batch.changes.drain(..).for_each(|change| apply(&mut replay.entries, change));
        }
    }
    if replay.damage.is_some() {
        replay.sequence = replay.sequence.max(last_seen(drive, &[], log));
    }
    assert!(replay.log_len <= Bytes::of(log.len()), "no more is good than there is");
    replay.torn = Bytes::of(log.len()) - replay.log_len;
    assert!(replay.torn.0 != 0 || rest.is_empty(), "what is not a whole record is never accepted");
    replay
}

/// The records of a batch that was not all read yet.
#[derive(Default)]
struct Batch {
    /// Those that the snapshot does not have.
    changes: Vec<Change>,
    /// Records that are still to come; none between two batches.
    follow: u32,
}

impl Batch {
    fn goes_on_with(&self, record: &Record) -> bool {
        match self.follow {
            0 => record.before == 0,
            due => record.follow + 1 == due,
        }
    }
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
        bytes[5..8].copy_from_slice(&(self.before | self.follow << 12).to_le_bytes()[..3]);
        bytes[8..16].copy_from_slice(&self.sequence.0.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.drive.0);
        bytes[32..64].copy_from_slice(&self.object);
        bytes[64..72].copy_from_slice(&self.offset.to_le_bytes());
        bytes[72..80].copy_from_slice(&self.len.to_le_bytes());
        bytes[80..112].copy_from_slice(&self.unit);
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
        let place = u32::from_le_bytes([bytes[5], bytes[6], bytes[7], 0]);
        Some(Self {
            kind: bytes[4],
            before: place & 0xfff,
            follow: place >> 12,
            sequence: Sequence(u64::from_le_bytes(array(&bytes[8..16]))),
            drive,
            object: array(&bytes[32..64]),
            offset: u64::from_le_bytes(array(&bytes[64..72])),
            len: u64::from_le_bytes(array(&bytes[72..80])),
            unit: array(&bytes[80..112]),
        })
    }

    /// None if the record is not a change, or one that cannot be.
    fn change(&self) -> Option<Change> {
        let object = ObjectId(self.object);
        let unit = (self.kind == PUBLISHED_IN_UNIT).then_some(UnitId(self.unit));
        let entry = Entry { unit, offset: Bytes(self.offset), len: Bytes(self.len) };
        let fits = self.offset.is_multiple_of(DIRECT_ALIGN.0) && entry.len <= OBJECT_LEN_MAX;
        match self.kind {
            PUBLISHED | PUBLISHED_IN_UNIT if fits => Some(Change::Published(object, entry)),
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
        let entry = Entry::alone(Bytes(op.2));
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

    /// Four objects of a unit, published after one that is alone.
    fn unit_published() -> (Vec<u8>, Vec<u8>, [Change; 4]) {
        let place = |n: u8| Entry {
            unit: Some(UnitId([9; 32])),
            offset: Bytes(u64::from(n) * 4096),
            len: Bytes(7),
        };
        let changes = [1, 2, 3, 4].map(|n| Change::Published(ObjectId([n; 32]), place(n)));
        let first = encode(DRIVE, Sequence(1), &change(&(true, 5, 10)));
        let log = [&first[..], &encode_batch(DRIVE, Sequence(1), &changes)].concat();
        (snapshot(DRIVE, Sequence(0), &BTreeMap::new()), log, changes)
    }

    #[test]
    fn a_batch_is_replayed_whole_or_not_wherever_it_is_torn() {
        let (snapshot, log, changes) = unit_published();
        let whole = replay(DRIVE, Some(&snapshot), &log);
        assert_eq!((whole.entries.len(), whole.sequence), (5, Sequence(5)));
        for change in changes {
            let Change::Published(object, entry) = change else { unreachable!() };
            assert_eq!(whole.entries[&object], entry);
            let name = "units/".to_owned() + &"09".repeat(32);
            assert_eq!(&*entry.file(&object).0, name);
        }
        // Records 1 to 4 are the batch: each subset of them that is not all of it.
        for kept in 0..15u8 {
            let mut torn = log.clone();
            for n in (0..4).filter(|n| kept >> n & 1 == 0) {
                torn[(n + 1) * RECORD_LEN..][..RECORD_LEN].fill(0);
            }
            let replay = replay(DRIVE, Some(&snapshot), &torn);
            let found = (replay.damage, replay.entries.len(), replay.sequence);
            assert_eq!(found, (None, 1, Sequence(1)), "{kept:04b}");
            assert_eq!(replay.torn, Bytes::of(4 * RECORD_LEN));
        }
    }

    #[test]
    fn a_torn_batch_before_another_is_damage_unless_the_snapshot_has_it() {
        let (snapshot_of_none, log, _) = unit_published();
        let next = encode(DRIVE, Sequence(6), &change(&(true, 6, 10)));
        let whole = replay(DRIVE, Some(&snapshot_of_none), &log);
        let of_all = snapshot(DRIVE, whole.sequence, &whole.entries);
        for cut in 1..4 {
            let torn = [&log[..log.len() - cut * RECORD_LEN], &next[..]].concat();
            let lost = replay(DRIVE, Some(&snapshot_of_none), &torn);
            assert!(lost.damage.is_some(), "{cut}");
            let has = replay(DRIVE, Some(&of_all), &torn);
            assert_eq!((has.damage, has.entries.len(), has.torn), (None, 6, Bytes::ZERO), "{cut}");
        }
        let mut bad = [&log[..], &next[..]].concat();
        bad[2 * RECORD_LEN + 40] ^= 1;
        let damage = replay(DRIVE, Some(&snapshot_of_none), &bad).damage;
        assert_eq!(damage, Some(Damage::Record(2)), "what was confirmed follows");
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
