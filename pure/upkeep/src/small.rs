//! Gives workers the bytes of small objects, which they serve from memory.

use holdings::Doubt;
use model::extent::Extent;
use model::id::ObjectId;
use model::limits::{DIRECT_ALIGN, SMALL_OBJECT_MAX};
use model::units::Bytes;

use crate::cause::DriveError;
use crate::drive::Files;
use crate::host::{Host, Ledger, PagesOf};
use crate::read::blocks_without_table;

/// Reads a small object into `buffer`, verifies it and hands it out, if there is room for it. The
/// caller may have claimed it: one that is wrong is looked at later, by whoever looks at doubts.
pub async fn give<H: Host>(
    host: &H,
    drive: &H::Drive,
    object: ObjectId,
    extent: &Extent,
    buffer: &mut PagesOf<H>,
) {
    if !host.ask(|holdings| holdings.has_small_room(extent.len)) {
        return;
    }
    match read::<H>(drive, extent, buffer).await {
        Ok(bytes) if is_right(object, bytes) => {
            host.change(|holdings| holdings.publish_small(object, extent, bytes));
        }
        Ok(_) => host.suspect(object, Doubt::Suspect),
        Err(error) if error.is_one_place() => {
            host.suspect(object, Doubt::Unreadable(extent.clone(), error.to_string()));
        }
        Err(error) if error.is_missing() => host.suspect(object, Doubt::Suspect),
        Err(error) => host.failed(drive, &error).await,
    }
}

async fn read<'a, H: Host>(
    drive: &H::Drive,
    extent: &Extent,
    buffer: &'a mut PagesOf<H>,
) -> Result<&'a [u8], DriveError> {
    let file = drive.open(&extent.file).await?;
    assert!(extent.len <= SMALL_OBJECT_MAX, "there is room in memory for small objects alone");
    let padded = extent.len.align_up(DIRECT_ALIGN).as_usize();
    drive.read(&file, &mut buffer[..padded], extent.offset).await?;
    Ok(&buffer[..extent.len.as_usize()])
}

/// A small object has one block, or none.
fn is_right(object: ObjectId, bytes: &[u8]) -> bool {
    blocks_without_table(object, Bytes::of(bytes.len()))
        .is_ok_and(|blocks| bytes.is_empty() || blocks.verify(0, bytes))
}
