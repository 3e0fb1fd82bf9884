//! The index on a drive: what is read back was true at some moment, or it says that it is damaged.

use std::collections::BTreeMap;

use model::id::{DriveId, ObjectId};
use model::units::Bytes;
use store::log::{Change, Entry, Replay, Sequence, apply, encode_batch, replay, snapshot};
use store::unit::UnitId;

const DRIVE: DriveId = DriveId([7; 16]);

/// Changes in one input.
const CHANGES_MAX: usize = 12;
/// Changes in one batch.
const BATCH_MAX: usize = 5;

/// The first byte chooses: bytes as they are, or a history in batches of at most so many changes,
/// which is written and then damaged.
pub fn index_log(bytes: &[u8]) {
    match bytes {
        [0, rest @ ..] => raw(rest),
        [batch, snapshot_at, log_from, count, rest @ ..] => {
            let count = usize::from(*count) % (CHANGES_MAX + 1);
            let Some((changes, edits)) = rest.split_at_checked(count * 2) else { return };
            let batches: Vec<Vec<Change>> = changes
                .as_chunks::<2>()
                .0
                .chunks((usize::from(*batch) - 1) % BATCH_MAX + 1)
                .map(|pairs| pairs.iter().map(change).collect())
                .collect();
            written(&batches, usize::from(*snapshot_at), usize::from(*log_from), edits);
        }
        _ => {}
    }
}

fn raw(bytes: &[u8]) {
    let (snapshot, log) = bytes.split_at(bytes.len() / 2);
    for snapshot in [Some(snapshot), None, Some(&[][..])] {
        sound(snapshot, log, &replay(DRIVE, snapshot, log));
    }
}

/// Of two bytes: which of sixteen objects, published alone or in one of seven units, and with which
/// length or, at zero, removed.
fn change([object, len]: &[u8; 2]) -> Change {
    let (id, unit) = (ObjectId([object % 16; 32]), object / 16 % 8);
    let unit = (0 < unit).then_some(UnitId([unit; 32]));
    let entry = Entry { unit, offset: Bytes(4096), len: Bytes(u64::from(*len)) };
    if *len == 0 { Change::Removed(id) } else { Change::Published(id, entry) }
}

/// After each batch there is a state, and there is no other.
fn written(batches: &[Vec<Change>], snapshot_at: usize, log_from: usize, edits: &[u8]) {
    let mut states = vec![BTreeMap::new()];
    let mut last = vec![Sequence(0)];
    let mut records = Vec::new();
    for batch in batches {
        let (before, mut state) = (last[last.len() - 1], states[states.len() - 1].clone());
        records.push(encode_batch(DRIVE, before, batch));
        batch.iter().for_each(|change| apply(&mut state, *change));
        last.push(Sequence(before.0 + Bytes::of(batch.len()).0));
        states.push(state);
    }
    let snapshot_at = snapshot_at % states.len();
    let log_from = log_from % (snapshot_at + 1);
    let mut file = snapshot(DRIVE, last[snapshot_at], &states[snapshot_at]);
    let mut log = records[log_from..].concat();
    let untouched = replay(DRIVE, Some(&file), &log);
    assert_eq!(untouched.damage, None, "what was written is not damaged");
    assert_eq!(Some(&untouched.entries), states.last(), "what was written is read");
    for edit in edits.as_chunks::<4>().0 {
        damage(edit, &mut file, &mut log);
    }
    let replayed = replay(DRIVE, Some(&file), &log);
    sound(Some(&file), &log, &replayed);
    assert!(states.contains(&replayed.entries) || file_is_foreign(&replayed), "a state that was");
}

/// Without a snapshot there is no state, and what stands before the damage is all there is.
fn file_is_foreign(replayed: &Replay) -> bool {
    replayed.damage.is_some() && replayed.entries.is_empty()
}

/// A flipped bit, a cut, a repeated or a dropped piece, in either file.
fn damage([what, which, at, len]: &[u8; 4], file: &mut Vec<u8>, log: &mut Vec<u8>) {
    let bytes = if which % 4 == 0 { file } else { log };
    let unit = if which & 0x80 == 0 { 1 } else { 128 };
    let at = (usize::from(*at) * unit * 3).min(bytes.len());
    let end = (at + usize::from(*len) * unit).min(bytes.len());
    match what % 5 {
        0 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= (*len).max(1);
            }
        }
        1 => bytes.truncate(at),
        2 => drop(bytes.drain(at..end)),
        3 if bytes.len() < 1 << 16 => bytes.extend_from_within(at..end),
        3 => {}
        _ => bytes[at..end].fill(0),
    }
}

/// What holds whatever was read.
fn sound(snapshot_bytes: Option<&[u8]>, log: &[u8], read: &Replay) {
    assert_eq!(read.log_len + read.torn, Bytes::of(log.len()), "each byte is kept or cut");
    assert_eq!(read.log_len.0 % 128, 0, "whole records are kept");
    if read.damage.is_some() {
        return;
    }
    let cut = &log[..read.log_len.as_usize()];
    let again = replay(DRIVE, snapshot_bytes, cut);
    assert_eq!((&again.entries, again.sequence), (&read.entries, read.sequence), "cut is the same");
    assert_eq!((again.torn, again.damage), (Bytes(0), None), "nothing more to cut");
    let compact = snapshot(DRIVE, read.sequence, &read.entries);
    let after = replay(DRIVE, Some(&compact), cut);
    assert_eq!(after.entries, read.entries, "a snapshot overrules the log that it was made of");
    assert_eq!(after.damage, None, "a snapshot is followed by an old log if a crash comes between");
}
