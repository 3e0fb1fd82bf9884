//! Verifies blocks that viewers were sent, one of many: what the serve path read is compared with
//! what ingest once saw. Nobody waits for it; a wrong block makes its object a suspect.

use std::sync::atomic::Ordering;

use holdings::Doubt;
use model::extent::Extent;
use model::limits::DIRECT_ALIGN;
use model::object::{BLOCK_LEN, BlockHash, block_count, block_hash, block_len};
use model::units::Bytes;
use upkeep::{Ledger as _, at_once, keeper};

use crate::drives::{Drive, DriveError};
use crate::pages::Pages;
use crate::shared::{Sample, Shared};

/// Runs until all must stop.
pub(crate) fn run(shared: &Shared) {
    let mut buffer = Pages::zeroed(BLOCK_LEN);
    while let Some(sample) = shared.next_sample() {
        let object = sample.object;
        let here = shared.locate(&object).filter(|extent| extent.drive == sample.drive);
        let Some(extent) = here else { continue };
        let Some(drive) = shared.answering(extent.drive) else { continue };
        match is_right(&drive, &extent, &sample, &mut buffer) {
            Ok(right) => {
                shared.integrity.samples.fetch_add(1, Ordering::Relaxed);
                if !right {
                    shared.integrity.samples_wrong.fetch_add(1, Ordering::Relaxed);
                    let (drive, block) = (drive.marker().id, sample.block);
                    tracing::warn!(%drive, %object, block, "wrong block served");
                    shared.suspect(object, Doubt::Suspect);
                }
            }
            Err(error) => at_once(keeper::unreadable(shared, &*drive, object, &error)),
        }
    }
}

fn is_right(
    drive: &Drive,
    extent: &Extent,
    sample: &Sample,
    buffer: &mut Pages,
) -> Result<bool, DriveError> {
    let wanted = drive.read_block_hash(sample.object, extent, sample.block)?;
    let found = match sample.hash {
        Some(hash) => hash,
        None => hash_again(drive, extent, sample, buffer)?,
    };
    Ok(found == wanted)
}

fn hash_again(
    drive: &Drive,
    extent: &Extent,
    sample: &Sample,
    buffer: &mut Pages,
) -> Result<BlockHash, DriveError> {
    let file = drive.open_read(&extent.file)?;
    let len = block_len(sample.object_len, sample.block);
    let pages = &mut buffer.bytes_mut()[..len.align_up(DIRECT_ALIGN).as_usize()];
    drive.read(&file, pages, extent.offset + Bytes(sample.block * BLOCK_LEN.0))?;
    Ok(hash(sample.block, &pages[..len.as_usize()], sample.object_len))
}

/// The hash of a block of an object of this length.
pub(crate) fn hash(block: u64, bytes: &[u8], object_len: Bytes) -> BlockHash {
    block_hash(block, bytes, block_count(object_len) == 1)
}
