//! Verifies blocks that viewers were sent, one of many: the bytes that the serve path read are
//! compared with those that ingest once saw. Nobody waits for it; a wrong block makes its object a
//! suspect.

use holdings::Doubt;
use model::extent::Extent;
use model::object::{BLOCK_LEN, BlockHash, block_count, block_hash, block_len};
use model::units::Bytes;

use crate::cause::DriveError;
use crate::drive::Files;
use crate::host::{Host, Ledger, PagesOf};
use crate::told::{Checked, Sample, Told};
use crate::{keeper, read};

/// The hash of a block of an object of this length.
pub fn hash(block: u64, bytes: &[u8], object_len: Bytes) -> BlockHash {
    let is_whole = Bytes::of(bytes.len()) == block_len(object_len, block);
    assert!(is_whole, "a piece of a block has no hash to be compared with");
    block_hash(block, bytes, block_count(object_len) == 1)
}

/// Runs until all must stop.
pub async fn run<H: Host>(host: &H) {
    let mut buffer = <H::Drive as Files>::pages(BLOCK_LEN);
    while let Some(sample) = host.next_sample().await {
        let object = sample.object;
        let here = host.locate(&object).filter(|extent| extent.drive == sample.drive);
        let Some(extent) = here else { continue };
        let Some(drive) = host.answering(extent.drive) else { continue };
        match is_right::<H>(&drive, &extent, &sample, &mut buffer).await {
            Ok(is_right) => {
                host.tell(Told::Checked(&*drive, Checked::Sample(&sample, is_right)));
                if !is_right {
                    host.suspect(object, Doubt::Suspect);
                }
            }
            Err(error) => keeper::unreadable(host, &*drive, object, &extent, &error).await,
        }
    }
}

async fn is_right<H: Host>(
    drive: &H::Drive,
    extent: &Extent,
    sample: &Sample,
    buffer: &mut PagesOf<H>,
) -> Result<bool, DriveError> {
    let file = drive.open(&extent.file).await?;
    let place = (extent.offset, sample.object_len);
    let wanted = read::block_hash(drive, &file, sample.object, place, sample.block).await?;
    let found = match sample.hash {
        Some(hash) => hash,
        None => {
            let bytes = read::block(drive, &file, place, sample.block, buffer).await?;
            hash(sample.block, bytes, sample.object_len)
        }
    };
    Ok(found == wanted)
}
