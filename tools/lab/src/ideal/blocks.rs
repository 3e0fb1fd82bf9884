//! Files in an appliance's kind of memory, or read past the page cache as they are wanted.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use model::handle::{BufferId, FileSlot};
use model::limits::{CHUNK_LEN, DIRECT_ALIGN};
use model::units::{Bytes, Nanos};
use rustix::fs::{Mode, OFlags};
use uring::{Completion, Config, Ring, Token, Wait};

use super::request::Request;

/// A drive that takes longer has failed.
const READ_MAX: Nanos = Nanos::seconds(10);

/// All files, each of one length, cut into blocks.
pub(crate) struct Blocks {
    ring: Ring,
    file_len: Bytes,
    files: usize,
    per_file: usize,
    /// Every block has its buffer; otherwise there is one for all.
    in_memory: bool,
    done: Vec<Completion>,
}

impl Blocks {
    /// Opens the files in `dir`, named as the lab's catalogues are, and reads them if they are to
    /// be served from memory.
    pub(crate) fn open(dir: &Path, in_memory: bool) -> Result<Self> {
        let mut names: Vec<_> = std::fs::read_dir(dir)
            .with_context(|| format!("listing {}", dir.display()))?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<Result<_>>()?;
        names.retain(|name| name.ends_with(".mp4"));
        names.sort();
        let first = names.first().with_context(|| format!("no film in {}", dir.display()))?;
        let file_len = Bytes(std::fs::metadata(dir.join(first))?.len());
        let per_file = usize::try_from(file_len.0.div_ceil(CHUNK_LEN.0))?;
        let buffer_count = if in_memory { names.len() * per_file } else { 1 };
        let ring = Ring::new(Config {
            entries: 8,
            buffer_count: u16::try_from(buffer_count).context("too much for memory")?,
            buffer_len: CHUNK_LEN,
            file_slots: u16::try_from(names.len())?,
            direct_reads: true,
            blocking_max: 1,
        })?;
        let mut blocks =
            Self { ring, file_len, files: names.len(), per_file, in_memory, done: Vec::new() };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder: Arc<OwnedFd> = Arc::new(rustix::fs::open(dir, flags, Mode::empty())?);
        for (slot, name) in names.iter().enumerate() {
            let slot = (FileSlot(u16::try_from(slot)?), false);
            blocks.ring.open(folder.clone(), CString::new(&**name)?, slot, Token(0));
            let done = blocks.wait()?;
            let is_open = matches!(done, Completion::Opened { result: Ok(()), .. });
            ensure!(is_open, "cannot open {name}: {done:?}");
        }
        for file in 0..if in_memory { names.len() } else { 0 } {
            (0..per_file)
                .try_for_each(|block| blocks.read_block(file, block, file * per_file + block))?;
        }
        Ok(blocks)
    }

    pub(crate) fn file_len(&self) -> u64 {
        self.file_len.0
    }

    /// The bytes that are sealed next for this request.
    pub(crate) fn piece(&mut self, request: &mut Request) -> Result<&[u8]> {
        ensure!(request.file < self.files, "there is no film {}", request.file);
        let (from, to) = request.take();
        let len = usize::try_from(to - from)?;
        let (buffer, base) = if self.in_memory {
            let block = usize::try_from(from / CHUNK_LEN.0)?;
            (request.file * self.per_file + block, from / CHUNK_LEN.0 * CHUNK_LEN.0)
        } else {
            // As appliances do: the sectors that are wanted, not the whole block.
            let base = Bytes(from).align_down(DIRECT_ALIGN);
            self.read(request.file, base, Bytes(to - base.0), 0)?;
            (0, base.0)
        };
        let start = usize::try_from(from - base)?;
        Ok(&self.ring.buffer(BufferId(u16::try_from(buffer)?))[start..start + len])
    }

    fn read_block(&mut self, file: usize, block: usize, buffer: usize) -> Result<()> {
        let from = Bytes(u64::try_from(block)? * CHUNK_LEN.0);
        self.read(file, from, Bytes(CHUNK_LEN.0.min(self.file_len.0 - from.0)), buffer)
    }

    /// `from` is where a sector begins.
    fn read(&mut self, file: usize, from: Bytes, wanted: Bytes, buffer: usize) -> Result<()> {
        let slot = FileSlot(u16::try_from(file)?);
        let (len, buffer) = (wanted.align_up(DIRECT_ALIGN), BufferId(u16::try_from(buffer)?));
        self.ring.read(slot, from, len, buffer, Token(0));
        let (wanted, done) = (wanted.as_usize(), self.wait()?);
        let is_read = matches!(done, Completion::Read { result: Ok(len), .. } if wanted <= len);
        ensure!(is_read, "cannot read film {file} at {from}: {done:?}");
        Ok(())
    }

    fn wait(&mut self) -> Result<Completion> {
        self.done.clear();
        self.ring.turn(Wait::For(READ_MAX), 1, &mut self.done)?;
        self.done.pop().context("the drive does not answer")
    }
}
