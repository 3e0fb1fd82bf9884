//! Files of the ledger that have ended, copied to where they outlive this machine.
//!
//! ```text
//! LEDGER/N.ledger, ended ──> ARCHIVE/KEY/N-HASH.ledger, flushed ──> LEDGER/archived: up to N
//!   └ oldest first, one at a time      └ away: again, later and later
//! ```
//!
//! The queue is the folder, and its bound that of the folder's files: where the archive is away,
//! the oldest makes room for a new one, as without an archive, and is counted. No decision waits
//! for any of it. KEY is the public key of the seals, so each process has names of its own; HASH is
//! of the file, so two that have one key by mistake, as copies of one machine, do not write over
//! each other, and a file that is copied again, after a restart or an answer that was lost, is the
//! same again.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;

use super::{Counters, Standing, file_name, numbers};
use crate::state::documents::Documents;

#[derive(Debug)]
pub(super) struct Archive {
    place: Documents,
    /// Of the files here.
    folder: PathBuf,
    /// Public, in hex.
    key: String,
    counters: Arc<Counters>,
    standing: Arc<Standing>,
}

impl Archive {
    /// Files that were brought there before are known by a file of their own.
    pub(super) fn open(
        place: Documents,
        folder: PathBuf,
        key: String,
        counters: Arc<Counters>,
        standing: Arc<Standing>,
    ) -> Self {
        // Without it all are copied again, to the same names.
        let below = fs::read_to_string(folder.join(MARKER)).unwrap_or_default();
        standing.known().archived = Some(below.trim().parse().unwrap_or(0));
        Self { place, folder, key, counters, standing }
    }

    /// Copies what has ended, until the process ends.
    pub(super) async fn run(self: &Arc<Self>) {
        let (mut pause, mut is_failing) = (LOOK, false);
        loop {
            tokio::time::sleep(pause).await;
            match self.copy_next().await {
                Ok(false) => pause = LOOK,
                Ok(true) => {
                    if is_failing {
                        tracing::info!("the ledger comes into its archive again");
                    }
                    (pause, is_failing) = (Duration::ZERO, false);
                }
                Err(reason) => {
                    if !is_failing {
                        tracing::warn!(
                            %reason,
                            "files of the ledger are not copied to [ledger] archive: mend what the \
                             reason says. They are tried again, and beyond [ledger] files the \
                             oldest goes without a copy"
                        );
                    }
                    (pause, is_failing) = ((2 * pause).clamp(RETRY_FIRST, RETRY_LAST), true);
                }
            }
        }
    }

    /// False if there is none that has ended and is not there.
    pub(super) async fn copy_next(self: &Arc<Self>) -> Result<bool, String> {
        let this = self.clone();
        let next = spawn_blocking(move || {
            let next = this.next()?;
            io::Result::Ok(next.map(|(number, bytes)| (number, name(number, &bytes), bytes)))
        });
        let next = next.await.expect("nothing in it panics").map_err(|error| {
            self.counters.archive_failed.count();
            format!("{}: {error}", self.folder.display())
        })?;
        let Some((number, name, bytes)) = next else { return Ok(false) };
        let put = self.place.put_file([&self.key, &name], bytes).await;
        let (this, is_there) = (self.clone(), put.is_ok());
        let ends = spawn_blocking(move || this.end_copy(number, is_there));
        ends.await.expect("nothing in it panics");
        put.map(|()| true)
    }

    /// The oldest file that has ended and is not there. Until its copy ends, whoever removes it
    /// does not count it.
    pub(super) fn next(&self) -> io::Result<Option<(u64, Vec<u8>)>> {
        loop {
            let mut known = self.standing.known();
            let (from, until) = (known.archived.unwrap_or(0), known.ended);
            if until <= from {
                return Ok(None);
            }
            let mut all = numbers(&self.folder)?.into_iter();
            known.copied = all.find(|of| (from..until).contains(of));
            let Some(number) = known.copied else {
                known.archived = Some(until);
                return Ok(None);
            };
            drop(known);
            match fs::read(self.folder.join(file_name(number))) {
                // Not even its first block could be written.
                Ok(bytes) if bytes.is_empty() => self.pass(number),
                Ok(bytes) => return Ok(Some((number, bytes))),
                Err(error) => {
                    self.give_up(number);
                    if error.kind() != ErrorKind::NotFound {
                        return Err(error);
                    }
                }
            }
        }
    }

    pub(super) fn end_copy(&self, number: u64, is_there: bool) {
        if is_there {
            self.counters.archived.count();
            if let Err(error) = self.remember(number + 1) {
                tracing::warn!(%error, "a restart copies files of the ledger again");
            }
            self.pass(number);
        } else {
            self.counters.archive_failed.count();
            self.give_up(number);
        }
    }

    /// Nothing is left to do for a file.
    fn pass(&self, number: u64) {
        let mut known = self.standing.known();
        known.copied = None;
        known.archived = Some(number + 1);
    }

    /// A file waits again, unless it was removed meanwhile.
    fn give_up(&self, number: u64) {
        let mut known = self.standing.known();
        known.copied = None;
        if !self.folder.join(file_name(number)).exists() {
            self.counters.unarchived.count();
        }
    }

    /// Files below this number are there: after this returns, also after a power cut.
    fn remember(&self, below: u64) -> io::Result<()> {
        let new = self.folder.join("archived.new");
        let mut file = File::create(&new)?;
        file.write_all(format!("{below}\n").as_bytes())?;
        file.sync_all()?;
        fs::rename(new, self.folder.join(MARKER))?;
        File::open(&self.folder)?.sync_all()
    }
}

/// The name of a file in the archive.
fn name(number: u64, bytes: &[u8]) -> String {
    format!("{number:010}-{}.ledger", &blake3::hash(bytes).to_hex()[..HASH_DIGITS])
}

/// The number below which files are in the archive.
const MARKER: &str = "archived";
/// Of the file's BLAKE3: two files of one number are told apart by 64 bits.
const HASH_DIGITS: usize = 16;

/// A look costs a lock while nothing has ended.
const LOOK: Duration = Duration::from_secs(1);
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_LAST: Duration = Duration::from_secs(60);
