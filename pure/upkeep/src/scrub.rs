//! Reads a drive from end to end, slowly, all the time: every block against its hash.
//!
//! ```text
//! cursor ──> next object of the drive, by id ──> every block, paced ──> cursor
//!   ^ index/scrub, once a minute                     wrong, unreadable: the object is set aside
//! ```
//!
//! Each drive is read by itself, so that one which is slow delays no other. The cursor is kept on
//! the drive: a restart goes on where the last run was, so that objects at the end are not read
//! less often than those at the beginning.

use fill::rate::Limiter;
use model::extent::{DriveIndex, Extent};
use model::id::ObjectId;
use model::object::{BLOCK_LEN, block_len};
use model::units::{BitsPerSecond, Bytes, Instant, Nanos};

use crate::cause::{DriveError, ObjectFileError};
use crate::drive::{Drive, Files};
use crate::host::{Host, Ledger, PagesOf};
use crate::told::{Checked, Told};
use crate::{keeper, read};

/// The cursor is kept so often. A restart repeats at most this.
const KEEP_EVERY: Nanos = Nanos::seconds(60);
/// Between two looks whether a drive that was set aside is there again.
const LOOK_EVERY: Nanos = Nanos::seconds(1);

/// What a look at an object's file found.
enum Found {
    Right,
    Wrong(String),
    Failed(DriveError),
    Stopped,
}

/// Runs until all must stop. A pass over the drive takes at least `pass_min`: one with little on it
/// is not read again at once.
pub async fn run<H: Host>(host: &H, index: DriveIndex, rate: BitsPerSecond, pass_min: Nanos) {
    loop {
        if let Some(drive) = host.drive(index) {
            scrub(host, &*drive, rate, pass_min).await;
        }
        if !host.sleep_until(host.now() + LOOK_EVERY).await {
            return;
        }
    }
}

/// Runs until all must stop, or the drive is set aside.
async fn scrub<H: Host>(host: &H, drive: &H::Drive, rate: BitsPerSecond, pass_min: Nanos) {
    let mut limiter = Limiter::new(rate, BLOCK_LEN);
    let mut buffer = <H::Drive as Files>::pages(BLOCK_LEN);
    let mut after = drive.scrubbed_to().await;
    let (mut began, mut kept_at) = (host.now(), Some(host.now()));
    let mut behind_the_last = after.is_some();
    while !drive.is_aside() && !host.is_stopping() {
        let Some((object, extent)) = host.next_on(drive.index(), after) else {
            let last = after.take();
            if std::mem::take(&mut behind_the_last) {
                continue; // The last run ended where the drive does: this is no pass.
            }
            if let Some(object) = last {
                keep(host, drive, object, &mut None).await;
            }
            host.tell(Told::Checked(drive, Checked::Pass));
            if !rest(host, drive, began + pass_min).await {
                return;
            }
            began = host.now();
            continue;
        };
        match look(host, drive, object, &extent, &mut limiter, &mut buffer).await {
            Found::Right => {}
            Found::Wrong(why) => keeper::wrong(host, drive, object, &why).await,
            Found::Failed(error) => {
                keeper::unreadable(host, drive, object, &extent, &error).await;
            }
            Found::Stopped => break,
        }
        after = Some(object);
        behind_the_last = false;
        host.tell(Told::Checked(drive, Checked::Object(object)));
        keep(host, drive, object, &mut kept_at).await;
    }
    if let Some(object) = after {
        keep(host, drive, object, &mut None).await;
    }
}

/// Waits until then; false if all must stop, or the drive is set aside: then nobody should have it
/// open.
async fn rest<H: Host>(host: &H, drive: &H::Drive, until: Instant) -> bool {
    while host.now() < until {
        let next = until.min(host.now() + LOOK_EVERY);
        if drive.is_aside() || !host.sleep_until(next).await {
            return false;
        }
    }
    true
}

/// Looks at every block of an object.
async fn look<H: Host>(
    host: &H,
    drive: &H::Drive,
    object: ObjectId,
    extent: &Extent,
    limiter: &mut Limiter,
    buffer: &mut PagesOf<H>,
) -> Found {
    let blocks = match read::blocks(drive, object, extent).await {
        Ok(blocks) if blocks.id() == object && blocks.len() == extent.len => blocks,
        Ok(_) => return Found::Wrong("has another object in its file".to_owned()),
        Err(ObjectFileError::Drive(error)) => return Found::Failed(error),
        Err(error) => return Found::Wrong(format!("is damaged: {error}")),
    };
    let file = match drive.open(&extent.file).await {
        Ok(file) => file,
        Err(error) => return Found::Failed(error),
    };
    let place = (extent.offset, extent.len);
    for index in 0..Bytes::of(blocks.hashes().len()).0 {
        let len = block_len(blocks.len(), index);
        if !host.sleep_until(limiter.take(host.now(), len)).await {
            return Found::Stopped;
        }
        let bytes = match read::block(drive, &file, place, index, buffer).await {
            Ok(bytes) => bytes,
            Err(error) => return Found::Failed(error),
        };
        if !blocks.verify(index, bytes) {
            return Found::Wrong(format!("has a wrong block: number {index}"));
        }
        host.tell(Told::Checked(drive, Checked::Bytes(len)));
    }
    Found::Right
}

/// Keeps the cursor if it is time; at once if it was not kept yet.
async fn keep<H: Host>(
    host: &H,
    drive: &H::Drive,
    object: ObjectId,
    kept_at: &mut Option<Instant>,
) {
    let now = host.now();
    if kept_at.is_some_and(|at| now.since(at) < KEEP_EVERY) {
        return;
    }
    *kept_at = Some(now);
    if !drive.is_aside()
        && let Err(error) = drive.keep_scrubbed_to(object).await
    {
        host.failed(drive, &error).await;
    }
}
