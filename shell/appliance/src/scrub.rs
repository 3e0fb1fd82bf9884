//! Reads a drive from end to end, slowly, all the time: every block against its hash.
//!
//! ```text
//! cursor ──> next object of the drive, by id ──> every block, paced ──> cursor
//!   ^ index/scrub, once a minute                     wrong, unreadable: the object is set aside
//! ```
//!
//! One thread a drive, so that one which is slow delays no other. The cursor is kept on the drive:
//! a restart goes on where the last run was, so that objects at the end are not read less often
//! than those at the beginning.

use std::sync::atomic::{AtomicU64, Ordering};

use fill::rate::Limiter;
use model::extent::{DriveIndex, Extent};
use model::id::ObjectId;
use model::limits::DIRECT_ALIGN;
use model::object::{BLOCK_LEN, block_len};
use model::status::ScrubStatus;
use model::units::{BitsPerSecond, Bytes, Instant, Nanos};

use crate::counters::now;
use crate::drives::{Drive, DriveError, ObjectFileError};
use crate::keeper;
use crate::pages::Pages;
use crate::shared::Shared;

/// How far one drive is.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// First eight bytes of the id of the object that was verified last. Ids are hashes, so this
    /// goes evenly from 0 to 2^64 in one pass.
    pub(crate) at: AtomicU64,
    /// Whole passes since the start.
    pub(crate) passes: AtomicU64,
}

impl Progress {
    pub(crate) fn status(&self) -> ScrubStatus {
        ScrubStatus { at: now(&self.at), passes: now(&self.passes) }
    }
}

/// What a look at an object's file found.
enum Found {
    Right,
    Wrong(String),
    Failed(DriveError),
    Stopped,
}

/// The cursor is kept so often. A restart repeats at most this.
const KEEP_EVERY: Nanos = Nanos::seconds(60);
/// Between two looks whether a drive that was set aside is there again.
const LOOK_EVERY: Nanos = Nanos::seconds(1);
/// A drive with little on it is not read again at once.
const PASS_MIN: Nanos = Nanos::seconds(24 * 3600);

/// Runs until all must stop.
pub(crate) fn run(shared: &Shared, index: DriveIndex) {
    let Some(rate) = shared.config.scrub_rate else { return };
    loop {
        if let Some(drive) = shared.drive(index) {
            scrub(shared, &drive, rate);
        }
        if !shared.sleep_until(shared.now() + LOOK_EVERY) {
            return;
        }
    }
}

/// Runs until all must stop, or the drive is set aside.
fn scrub(shared: &Shared, drive: &Drive, rate: BitsPerSecond) {
    let mut limiter = Limiter::new(rate, BLOCK_LEN);
    let mut buffer = Pages::zeroed(BLOCK_LEN);
    let mut after = drive.scrubbed_to();
    let (mut began, mut kept_at) = (shared.now(), shared.now());
    let mut behind_the_last = after.is_some();
    while drive.set_aside_reason().is_none() && !shared.is_stopping() {
        let Some((object, extent)) = shared.next_on(drive.index(), after) else {
            let last = after.take();
            if std::mem::take(&mut behind_the_last) {
                continue; // The last run ended where the drive does: this is no pass.
            }
            last.inspect(|object| keep(shared, drive, *object, &mut Instant(0)));
            shared.scrub(drive.index()).passes.fetch_add(1, Ordering::Relaxed);
            tracing::info!(drive = %drive.marker().id, "drive scrubbed");
            if !rest(shared, drive, began + PASS_MIN) {
                return;
            }
            began = shared.now();
            continue;
        };
        match look(shared, drive, object, &extent, &mut limiter, &mut buffer) {
            Found::Right => {}
            Found::Wrong(what) => keeper::damaged(shared, drive, object, &what),
            Found::Failed(error) => keeper::unreadable(shared, drive, object, &error),
            Found::Stopped => break,
        }
        after = Some(object);
        behind_the_last = false;
        note(shared, drive, object);
        keep(shared, drive, object, &mut kept_at);
    }
    after.inspect(|object| keep(shared, drive, *object, &mut Instant(0)));
}

/// Waits until then; false if all must stop, or the drive is set aside: then nobody should have it
/// open.
fn rest(shared: &Shared, drive: &Drive, until: Instant) -> bool {
    while shared.now() < until {
        let next = until.min(shared.now() + LOOK_EVERY);
        if drive.set_aside_reason().is_some() || !shared.sleep_until(next) {
            return false;
        }
    }
    true
}

/// Looks at every block of an object.
fn look(
    shared: &Shared,
    drive: &Drive,
    object: ObjectId,
    extent: &Extent,
    limiter: &mut Limiter,
    buffer: &mut Pages,
) -> Found {
    let blocks = match drive.read_blocks(object, extent) {
        Ok(blocks) if blocks.id() == object && blocks.len() == extent.len => blocks,
        Ok(_) => return Found::Wrong("has another object in its file".to_owned()),
        Err(ObjectFileError::Drive(error)) => return Found::Failed(error),
        Err(error) => return Found::Wrong(format!("is damaged: {error}")),
    };
    let file = match drive.open_read(&extent.file) {
        Ok(file) => file,
        Err(error) => return Found::Failed(error),
    };
    for index in 0..Bytes::of(blocks.hashes().len()).0 {
        let len = block_len(blocks.len(), index);
        if !shared.sleep_until(limiter.take(shared.now(), len)) {
            return Found::Stopped;
        }
        let pages = &mut buffer.bytes_mut()[..len.align_up(DIRECT_ALIGN).as_usize()];
        if let Err(error) = drive.read(&file, pages, extent.offset + Bytes(index * BLOCK_LEN.0)) {
            return Found::Failed(error);
        }
        if !blocks.verify(index, &pages[..len.as_usize()]) {
            return Found::Wrong(format!("has a wrong block: number {index}"));
        }
        shared.integrity.scrubbed_bytes.fetch_add(len.0, Ordering::Relaxed);
    }
    Found::Right
}

fn note(shared: &Shared, drive: &Drive, object: ObjectId) {
    let first = object.0.first_chunk::<8>().map_or(0, |bytes| u64::from_be_bytes(*bytes));
    shared.scrub(drive.index()).at.store(first, Ordering::Relaxed);
    shared.integrity.scrubbed_objects.fetch_add(1, Ordering::Relaxed);
}

/// Keeps the cursor if it is time; at once if it was never kept.
fn keep(shared: &Shared, drive: &Drive, object: ObjectId, kept_at: &mut Instant) {
    let now = shared.now();
    if now.since(*kept_at) < KEEP_EVERY && kept_at.0 != 0 {
        return;
    }
    *kept_at = now;
    if drive.set_aside_reason().is_none()
        && let Err(error) = drive.keep_scrubbed_to(object)
    {
        shared.drive_failed(drive, &error);
    }
}
