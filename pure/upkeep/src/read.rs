//! What files of objects say of themselves, and whether their blocks are right.

use std::collections::BTreeMap;

use model::extent::{Extent, FileName};
use model::id::ObjectId;
use model::limits::DIRECT_ALIGN;
use model::object::{BLOCK_LEN, BlockHash, Blocks, BlocksError, block_count, block_len};
use model::units::Bytes;
use store::layout::{self, FOOTER_LEN, Footer, FooterError};
use store::log::Entry;
use store::unit::{self, Directory, Place, UnitError, UnitId};

use crate::cause::{DriveError, Fault, ObjectFileError};
use crate::drive::{Drive, Files};
use crate::host::Host;

/// One hash of an object file's table.
const HASH_LEN: Bytes = Bytes(32);

/// The footer of the file of an object that is alone.
pub async fn footer<F: Files>(files: &F, file: &F::File) -> Result<Footer, ObjectFileError> {
    let (page, _, len) = last_page(files, file).await?.ok_or(FooterError::Magic)?;
    Ok(Footer::decode(&page, len)?)
}

/// The directory of an open unit, whichever unit it is.
pub async fn directory_of<F: Files>(
    files: &F,
    file: &F::File,
) -> Result<Directory, ObjectFileError> {
    let (page, at, len) = last_page(files, file).await?.ok_or(UnitError::Magic)?;
    let footer = unit::Footer::decode(&page, len)?;
    assert!(footer.directory_offset < at, "a footer that counts its file's pages counts these");
    let mut pages = F::pages(at - footer.directory_offset);
    files.read(file, &mut pages, footer.directory_offset).await?;
    Ok(Directory::decode(&footer, &pages)?)
}

/// The directory of this unit.
pub async fn directory<F: Files>(files: &F, unit: UnitId) -> Result<Directory, ObjectFileError> {
    let file = files.open(&unit::unit_file(&unit)).await?;
    let directory = directory_of(files, &file).await?;
    if directory.id() == unit { Ok(directory) } else { Err(UnitError::Directory.into()) }
}

/// The page that ends a file, where it begins, and how long the file is; none of a file that cannot
/// have one.
async fn last_page<F: Files>(
    files: &F,
    file: &F::File,
) -> Result<Option<(F::Pages, Bytes, Bytes)>, DriveError> {
    let len = files.len(file).await?;
    let at = len.saturating_sub(FOOTER_LEN);
    if len < FOOTER_LEN || !at.0.is_multiple_of(DIRECT_ALIGN.0) {
        return Ok(None);
    }
    let mut page = F::pages(FOOTER_LEN);
    files.read(file, &mut page, at).await?;
    Ok(Some((page, at, len)))
}

/// The table of an object that begins at `base` in its file, proved to be that of `object`.
pub async fn table<F: Files>(
    files: &F,
    file: &F::File,
    object: ObjectId,
    (base, len): (Bytes, Bytes),
) -> Result<Blocks, ObjectFileError> {
    let sections = layout::sections(len);
    if sections.table_len == Bytes::ZERO {
        return Ok(blocks_without_table(object, len)?);
    }
    let mut pages = F::pages(sections.table_len);
    files.read(file, &mut pages, base + sections.table_offset).await?;
    let table = &pages[..sections.table_len.as_usize()];
    let hashes = table.as_chunks::<32>().0.iter().map(|hash| BlockHash(*hash)).collect();
    Ok(Blocks::prove(object, len, hashes)?)
}

/// The hash of a block by the table of an object that begins at `base` and is so long. Not proved:
/// one page of the table is read, where a proof takes all of it.
pub async fn block_hash<F: Files>(
    files: &F,
    file: &F::File,
    object: ObjectId,
    (base, len): (Bytes, Bytes),
    block: u64,
) -> Result<BlockHash, DriveError> {
    let sections = layout::sections(len);
    if sections.table_len == Bytes::ZERO {
        return Ok(BlockHash(object.0));
    }
    assert!(block < block_count(len), "a hash behind the table is none");
    let at = base + sections.table_offset + Bytes(block * HASH_LEN.0);
    let page_at = at.align_down(DIRECT_ALIGN);
    let mut page = F::pages(DIRECT_ALIGN);
    files.read(file, &mut page, page_at).await?;
    let hash = &page[(at - page_at).as_usize()..][..HASH_LEN.as_usize()];
    Ok(BlockHash(hash.try_into().expect("cut to its length")))
}

/// The blocks of an object that has less than two: its id is the only hash.
pub fn blocks_without_table(object: ObjectId, len: Bytes) -> Result<Blocks, BlocksError> {
    let hashes = if len == Bytes::ZERO { Vec::new() } else { vec![BlockHash(object.0)] };
    Blocks::prove(object, len, hashes)
}

/// The hashes of the blocks of the object that lies there, proved. In a file of its own that is the
/// object which the file names; in a unit, `object`.
pub async fn blocks<F: Files>(
    files: &F,
    object: ObjectId,
    extent: &Extent,
) -> Result<Blocks, ObjectFileError> {
    if unit::of_file(&extent.file).is_none() {
        return own_blocks(files, &extent.file).await;
    }
    let file = files.open(&extent.file).await?;
    table(files, &file, object, (extent.offset, extent.len)).await
}

/// Reads a block of an object that begins at `base` and is so long: its bytes, in `buffer`.
pub async fn block<'a, F: Files>(
    files: &F,
    file: &F::File,
    (base, object_len): (Bytes, Bytes),
    index: u64,
    buffer: &'a mut F::Pages,
) -> Result<&'a [u8], DriveError> {
    assert!(index < block_count(object_len), "what is behind an object is not its own");
    let len = block_len(object_len, index);
    let pages = &mut buffer[..len.align_up(DIRECT_ALIGN).as_usize()];
    files.read(file, pages, base + Bytes(index * BLOCK_LEN.0)).await?;
    Ok(&buffer[..len.as_usize()])
}

/// The blocks of an object that lies there if all are right; none if one is not, or if all must
/// stop.
pub async fn verified<H: Host>(
    host: &H,
    drive: &H::Drive,
    object: ObjectId,
    extent: &Extent,
) -> Result<Option<Blocks>, DriveError> {
    let blocks = match blocks(drive, object, extent).await {
        Ok(blocks) if blocks.id() == object && blocks.len() == extent.len => blocks,
        Err(ObjectFileError::Drive(error)) => return Err(error),
        Ok(_) | Err(_) => return Ok(None),
    };
    let file = drive.open(&extent.file).await?;
    let (place, mut buffer) = ((extent.offset, extent.len), <H::Drive as Files>::pages(BLOCK_LEN));
    for index in 0..Bytes::of(blocks.hashes().len()).0 {
        if host.is_stopping() {
            return Ok(None);
        }
        if !blocks.verify(index, block(drive, &file, place, index, &mut buffer).await?) {
            return Ok(None);
        }
    }
    Ok(Some(blocks))
}

/// The length of the object whose own file this is, if every block of it is right; none also if all
/// must stop.
pub async fn own_file<H: Host>(
    host: &H,
    drive: &H::Drive,
    object: ObjectId,
) -> Result<Option<Bytes>, DriveError> {
    let file: FileName = layout::object_file(&object);
    let opened = drive.open(&file).await?;
    let footer = match footer(drive, &opened).await {
        Ok(footer) if footer.object == object => footer,
        Err(ObjectFileError::Drive(error)) => return Err(error),
        Ok(_) | Err(_) => return Ok(None),
    };
    let (drive_index, offset) = (drive.index(), Bytes::ZERO);
    let extent = Extent { drive: drive_index, file, offset, len: footer.len };
    Ok(verified(host, drive, object, &extent).await?.map(|blocks| blocks.len()))
}

/// The objects of a drive by its files alone: only a file that was complete and flushed gets its
/// name in `objects/` or `units/`, and its footer says what it is. `seen` is called for each name,
/// `left_out` for each that is no file of objects.
pub async fn recover<F: Files>(
    files: &F,
    seen: &dyn Fn(),
    left_out: &dyn Fn(&FileName),
) -> Result<BTreeMap<ObjectId, Entry>, DriveError> {
    let mut directories = Vec::new();
    for name in files.list(&FileName(unit::UNITS.into())).await? {
        seen();
        let Some(unit) = unit::parse_name(&name) else { continue };
        match directory(files, unit).await {
            Ok(directory) => directories.push(directory),
            Err(ObjectFileError::Drive(error)) if is_the_drive(&error) => return Err(error),
            Err(_) => left_out(&unit::unit_file(&unit)),
        }
    }
    let entry = |(object, (unit, place)): (ObjectId, (UnitId, Place))| {
        (object, Entry { unit: Some(unit), offset: place.offset, len: place.len })
    };
    let mut entries: BTreeMap<_, _> = unit::recover(&directories).into_iter().map(entry).collect();
    for folder in layout::object_folders() {
        for name in files.list(&folder).await? {
            seen();
            let Ok(object) = name.parse::<ObjectId>() else { continue };
            let file = layout::object_file(&object);
            match own_blocks(files, &file).await {
                Ok(blocks) if blocks.id() == object => {
                    entries.insert(object, Entry::alone(blocks.len()));
                }
                Err(ObjectFileError::Drive(error)) if is_the_drive(&error) => return Err(error),
                Ok(_) | Err(_) => left_out(&file),
            }
        }
    }
    Ok(entries)
}

/// The hashes of the blocks of the object that is alone in a file.
async fn own_blocks<F: Files>(files: &F, file: &FileName) -> Result<Blocks, ObjectFileError> {
    let file = files.open(file).await?;
    let footer = footer(files, &file).await?;
    table(files, &file, footer.object, (Bytes::ZERO, footer.len)).await
}

/// True if it is not about one file.
fn is_the_drive(error: &DriveError) -> bool {
    error.fault == Fault::SetAside && !error.is_one_place()
}
