//! The index on a drive: what is read back was true at some moment, or it says that it is damaged.

use std::collections::BTreeMap;

use model::id::{DriveId, ObjectId};
use model::units::Bytes;
use store::log::{Change, Entry, Replay, Sequence, apply, encode, replay, snapshot};

const DRIVE: DriveId = DriveId([7; 16]);

/// Changes in one input.
const CHANGES_MAX: usize = 12;

/// The first byte chooses: a history that is written and then damaged, or bytes as they are.
pub fn index_log(bytes: &[u8]) {
    match bytes {
        [0, rest @ ..] => raw(rest),
        [_, snapshot_at, log_from, count, rest @ ..] => {
            let count = usize::from(*count) % (CHANGES_MAX + 1);
            let Some((changes, edits)) = rest.split_at_checked(count * 2) else { return };
            written(changes, usize::from(*snapshot_at), usize::from(*log_from), edits);
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

/// `changes` are pairs of bytes: which of sixteen objects, and published with which length or, at
/// zero, removed.
fn written(changes: &[u8], snapshot_at: usize, log_from: usize, edits: &[u8]) {
    let mut states = vec![BTreeMap::new()];
    let mut records = Vec::new();
    for (number, pair) in (1..).zip(changes.as_chunks::<2>().0) {
        let [object, len] = *pair;
        let object = ObjectId([object % 16; 32]);
        let entry = Entry { offset: Bytes(4096), ..Entry::alone(Bytes(u64::from(len))) };
        let change =
            if len == 0 { Change::Removed(object) } else { Change::Published(object, entry) };
        records.push(encode(DRIVE, Sequence(number), &change));
        let mut state = states.last().cloned().unwrap_or_default();
        apply(&mut state, change);
        states.push(state);
    }
    let snapshot_at = snapshot_at % states.len();
    let log_from = log_from % (snapshot_at + 1);
    let sequence = Sequence(Bytes::of(snapshot_at).0);
    let mut file = snapshot(DRIVE, sequence, &states[snapshot_at]);
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
