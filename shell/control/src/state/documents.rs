//! Large immutable documents beside the database: files of a folder, or objects of a bucket.
//!
//! ```text
//! put(body):   head with a salt + body ──> PLACE/ab/abcd… flushed ──> a row may name it
//! part(range): PLACE/ab/abcd… ──> bytes, for who can prove them; whole ones prove their name
//! ```
//!
//! A document is named by its BLAKE3 hash and never changes. The salt makes two documents of one
//! body: one that no row has named for a while is named by none later, so it can be removed without
//! asking who writes meanwhile. `PLACE/nearcast-documents` says whose they are: a folder that is
//! not mounted is no empty one, and two databases do not remove each other's.

use std::collections::BTreeSet;
use std::error::Error as _;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use blake3::Hash;
use model::units::Bytes;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt as _, PutMode};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::buckets::{BucketError, Buckets, Settings, TRIES_WITHIN};
use crate::members::authority::random;
use crate::place::DocumentsPlace;
use crate::state::store::{Store, StoreError};

/// Where documents are.
#[derive(Debug)]
pub(crate) struct Documents {
    at: At,
    /// Before all names; empty in a folder.
    prefix: Path,
    /// With a slash at its end.
    place: String,
    /// A folder that hangs holds one thread for each that is under way.
    under_way: Arc<Semaphore>,
    /// What is not done by then goes on, but its caller does not wait for it.
    within: Duration,
}

#[derive(Debug)]
enum At {
    Folder(PathBuf),
    Bucket { buckets: Box<Buckets>, name: String },
}

/// A document as it is written, and its name.
#[derive(Debug)]
pub(crate) struct Document {
    name: Hash,
    bytes: Vec<u8>,
}

/// How a document is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// As it was written.
    Whole,
    Missing,
    Damaged,
}

/// Why a document cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    #[error(
        "document {0} is not there, though the database names it: restore it from a backup, or \
         ingest its version again"
    )]
    Missing(String),
    #[error(
        "document {0} is damaged, and nobody is given of it: restore it from a backup, or ingest \
         its version again"
    )]
    Damaged(String),
    #[error("the documents in {place} cannot be reached: {reason}. Nothing was changed: ask again")]
    Away { place: String, reason: String },
    #[error(
        "[documents] at: {place} has no {MARKER}: is it mounted, is it where the documents were, \
         and that of the other writer? If they are lost, make that file, with the line \"{line}\", \
         and ingest all versions again"
    )]
    Unmarked { place: String, line: String },
    #[error(
        "[documents] at: the documents in {0} are another database's, or this one is a copy of \
         before it had any: give each a folder or a prefix of its own"
    )]
    Foreign(String),
    #[error(
        "[documents] at: this database has its documents elsewhere: say where they are, as it was \
         said before"
    )]
    Elsewhere,
    #[error("[documents] at: {0}")]
    Place(String),
    #[error(transparent)]
    Bucket(#[from] BucketError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

type Result<T> = std::result::Result<T, DocumentError>;

/// What came of work at the place.
enum Fault {
    NotThere,
    Other(DocumentError),
}

impl Document {
    /// The document with a body of these parts. Hashing takes its time.
    pub(crate) fn of(parts: impl IntoIterator<Item: AsRef<[u8]>>) -> Self {
        let mut bytes = [&MAGIC[..], &random::<SALT_LEN>()].concat();
        for part in parts {
            bytes.extend_from_slice(part.as_ref());
        }
        Self { name: blake3::hash(&bytes), bytes }
    }
}

impl Documents {
    /// A place of the settings; none for the database. Asks nobody anything yet, and no folder: one
    /// that hangs, or is not what it was, must not keep a writer from its start.
    pub(crate) fn open(place: DocumentsPlace, s3: &[Settings]) -> Result<Option<Self>> {
        let mut said = place.to_string();
        let (at, prefix) = match &place {
            DocumentsPlace::Database => return Ok(None),
            DocumentsPlace::Folder(path) => {
                said.push('/');
                (At::Folder(path.clone()), Path::default())
            }
            DocumentsPlace::Bucket { name, prefix } => {
                let of_it = s3.iter().filter(|settings| settings.bucket == *name);
                let buckets = Buckets::open(&of_it.cloned().collect::<Vec<_>>())?;
                buckets.client(name)?;
                let prefix = Path::parse(prefix)
                    .map_err(|error| DocumentError::Place(format!("{place}: {error}")))?;
                (At::Bucket { buckets: Box::new(buckets), name: name.clone() }, prefix)
            }
        };
        let under_way = Arc::new(Semaphore::new(UNDER_WAY_MAX));
        Ok(Some(Self { at, prefix, place: said, under_way, within: WITHIN }))
    }

    /// Whether the place is known to be this database's; an error if it is not. Where it cannot be
    /// reached, that is not known.
    pub(crate) async fn fits(this: Option<&Self>, store: &Store) -> Result<bool> {
        let number = store.documents_number().await?;
        let Some(this) = this else {
            return if number == 0 { Ok(true) } else { Err(DocumentError::Elsewhere) };
        };
        match this.marked().await {
            Err(DocumentError::Away { .. }) => Ok(false),
            Err(error) => Err(error),
            Ok(Some(found)) if found == number.abs() => Ok(true),
            Ok(Some(_)) => Err(DocumentError::Foreign(this.place.clone())),
            Ok(None) if number <= 0 => Ok(true),
            Ok(None) => Err(this.unmarked(number)),
        }
    }

    /// The same, for a writer that stands by: while the one that leads has not claimed a place,
    /// nobody knows.
    pub(crate) async fn fits_behind(this: Option<&Self>, store: &Store) -> Result<bool> {
        if this.is_some() && store.documents_number().await? <= 0 {
            return Ok(false);
        }
        Self::fits(this, store).await
    }

    /// The same, for a writer that is to lead: it does not wait for a place that is slow.
    pub(crate) async fn look(this: Option<&Self>, store: &Store) -> Result<()> {
        let fits = timeout(LOOK_WITHIN, Self::fits(this, store)).await.unwrap_or(Ok(false))?;
        if let (false, Some(this)) = (fits, this) {
            tracing::error!(
                "the documents in {} cannot be reached: nothing is ingested, and appliances begin \
                 no new file, until they can",
                this.place
            );
        }
        Ok(())
    }

    /// Makes the place this database's, or sees that it is: before each document that is written,
    /// since a folder may be unmounted at any time. The writer that leads does it.
    pub(crate) async fn claim(&self, store: &Store) -> Result<()> {
        let mut number = store.documents_number().await?;
        match self.marked().await? {
            Some(found) if found == number.abs() => {}
            Some(_) => return Err(DocumentError::Foreign(self.place.clone())),
            None if 0 < number => return Err(self.unmarked(number)),
            None => {
                if number == 0 {
                    number = -(i64::from_le_bytes(random()) >> 1).abs().max(1);
                    store.put_documents_number(number).await?;
                }
                self.mark(number.abs()).await?;
            }
        }
        if number < 0 {
            store.put_documents_number(-number).await?;
        }
        Ok(())
    }

    /// Writes a document: after this returns it is there, whatever happens.
    pub(crate) async fn put(&self, document: Document) -> Result<Hash> {
        self.write(self.path(&document.name), document.bytes).await?;
        Ok(document.name)
    }

    /// A part of a document's body, which whoever asks has to prove.
    pub(crate) async fn part(&self, name: &Hash, range: Range<u64>) -> Result<Vec<u8>> {
        let head = u64::try_from(MAGIC.len() + SALT_LEN).expect("it is short");
        let range = head + range.start..head + range.end;
        let (path, end) = (self.path(name), range.end);
        let wanted = Bytes(range.end - range.start);
        let read = self.run(move |store| async move {
            let read = store.get_range(&path, range).await;
            match read {
                Ok(bytes) => Ok(Some(bytes).filter(|bytes| Bytes::of(bytes.len()) == wanted)),
                Err(error @ Error::NotFound { .. }) => Err(error),
                // A server may refuse what a damaged one has not.
                Err(error) => {
                    let is_short = store.head(&path).await.is_ok_and(|meta| meta.size < end);
                    if is_short { Ok(None) } else { Err(error) }
                }
            }
        });
        match read.await {
            Ok(Some(bytes)) => Ok(bytes.into()),
            Ok(None) => Err(self.damaged(name)),
            Err(Fault::NotThere) => Err(self.missing(name)),
            Err(Fault::Other(error)) => Err(error),
        }
    }

    /// Reads a whole document and proves its name.
    pub(crate) async fn condition(&self, name: &Hash) -> Result<Condition> {
        let path = self.path(name);
        let read = self.run(move |store| async move { store.get(&path).await?.bytes().await });
        match read.await {
            Ok(bytes) => {
                let found = spawn_blocking(move || blake3::hash(&bytes));
                let is_whole = found.await.expect("nothing in it panics") == *name;
                Ok(if is_whole { Condition::Whole } else { Condition::Damaged })
            }
            Err(Fault::NotThere) => Ok(Condition::Missing),
            Err(Fault::Other(error)) => Err(error),
        }
    }

    /// The documents that are there whose names begin with this byte. In a folder, what a crash
    /// left of one that was being written goes.
    pub(crate) async fn list(&self, shard: u8) -> Result<BTreeSet<[u8; 32]>> {
        let part = format!("{shard:02x}");
        let folder = self.prefix.clone().join(part.as_str());
        let with_remains = match &self.at {
            At::Folder(path) => Some(path.join(part)),
            At::Bucket { .. } => None,
        };
        let listed = self.run(move |store| async move {
            if let Some(path) = with_remains {
                spawn_blocking(move || remove_remains(&path)).await?;
            }
            store.list_with_delimiter(Some(&folder)).await
        });
        let listed = match listed.await {
            Ok(listed) => listed.objects,
            Err(Fault::NotThere) => Vec::new(),
            Err(Fault::Other(error)) => return Err(error),
        };
        let name = |path: &Path| Some(*Hash::from_hex(path.filename()?).ok()?.as_bytes());
        Ok(listed.iter().filter_map(|meta| name(&meta.location)).collect())
    }

    /// Removes a document, if it is there.
    pub(crate) async fn remove(&self, name: &Hash) -> Result<()> {
        let path = self.path(name);
        match self.run(move |store| async move { store.delete(&path).await }).await {
            Ok(()) | Err(Fault::NotThere) => Ok(()),
            Err(Fault::Other(error)) => Err(error),
        }
    }

    pub(crate) fn missing(&self, name: &Hash) -> DocumentError {
        DocumentError::Missing(self.said(name))
    }

    pub(crate) fn damaged(&self, name: &Hash) -> DocumentError {
        DocumentError::Damaged(self.said(name))
    }

    /// Where a document is.
    pub(crate) fn said(&self, name: &Hash) -> String {
        let name = name.to_hex();
        format!("{}{}/{name}", self.place, &name[..2])
    }

    fn unmarked(&self, number: i64) -> DocumentError {
        let line = line(number).trim_end().to_owned();
        DocumentError::Unmarked { place: self.place.clone(), line }
    }

    /// The number of the database whose the place is; none if it is nobody's.
    async fn marked(&self) -> Result<Option<i64>> {
        let path = self.prefix.clone().join(MARKER);
        match self.run(move |store| async move { store.get(&path).await?.bytes().await }).await {
            Ok(bytes) => {
                let text = std::str::from_utf8(&bytes).unwrap_or_default().trim_end();
                let number = text.strip_prefix(MARK).and_then(|number| number.parse().ok());
                number.map(Some).ok_or_else(|| DocumentError::Foreign(self.place.clone()))
            }
            Err(Fault::NotThere) => Ok(None),
            Err(Fault::Other(error)) => Err(error),
        }
    }

    /// Writes the marker where there is none, and reads whose it is: another new database may do
    /// the same, and a server may replace what it should not.
    async fn mark(&self, number: i64) -> Result<()> {
        self.make_folder().await?;
        let path = self.prefix.clone().join(MARKER);
        let bytes = line(number).into_bytes();
        let made = self.run(move |store| async move {
            match store.put_opts(&path, bytes.into(), PutMode::Create.into()).await {
                Ok(_) | Err(Error::AlreadyExists { .. }) => Ok(()),
                Err(error) => Err(error),
            }
        });
        made.await.map_err(|fault| self.not_written(fault))?;
        match self.marked().await? {
            Some(found) if found == number => Ok(()),
            Some(_) => Err(DocumentError::Foreign(self.place.clone())),
            None => Err(self.away(format_args!("{MARKER} was written and is not there"))),
        }
    }

    async fn write(&self, path: Path, bytes: Vec<u8>) -> Result<()> {
        let put = self.run(move |store| async move { store.put(&path, bytes.into()).await });
        put.await.map(drop).map_err(|fault| self.not_written(fault))
    }

    /// Makes the folder, if it is one.
    async fn make_folder(&self) -> Result<()> {
        let At::Folder(path) = &self.at else { return Ok(()) };
        let path = path.clone();
        let made = async { spawn_blocking(move || make_folder(&path).map_err(generic)).await? };
        self.within(made).await.map_err(|fault| self.not_written(fault))
    }

    fn not_written(&self, fault: Fault) -> DocumentError {
        match (fault, &self.at) {
            (Fault::NotThere, At::Folder(_)) => self.away("there is no such folder"),
            (Fault::NotThere, At::Bucket { .. }) => self.away("there is no such bucket"),
            (Fault::Other(error), _) => error,
        }
    }

    /// Does something at the place, within a time. A folder is looked for each time: it may have
    /// been mounted meanwhile.
    async fn run<T, F>(
        &self,
        work: impl FnOnce(Arc<dyn ObjectStore>) -> F + Send + 'static,
    ) -> std::result::Result<T, Fault>
    where
        T: Send + 'static,
        F: Future<Output = object_store::Result<T>> + Send + 'static,
    {
        match &self.at {
            At::Folder(path) => {
                let path = path.clone();
                let done = async move {
                    let files = spawn_blocking(move || files(&path)).await??;
                    work(Arc::new(files)).await
                };
                self.within(done).await
            }
            // A secret that was replaced is read anew.
            At::Bucket { buckets, name } => {
                let client = buckets.client(name);
                let client = client.map_err(|error| Fault::Other(self.away(error)))?;
                self.within(work(client)).await
            }
        }
    }

    /// Waits for work at the place, but not for long. It goes on when that is over, in its turn.
    async fn within<T: Send + 'static>(
        &self,
        work: impl Future<Output = object_store::Result<T>> + Send + 'static,
    ) -> std::result::Result<T, Fault> {
        let under_way = self.under_way.clone();
        let done = async {
            let turn = under_way.acquire_owned().await.expect("it is never closed");
            tokio::spawn(async move {
                let done = work.await;
                drop(turn);
                done
            })
            .await
        };
        match timeout(self.within, done).await {
            Ok(Ok(Ok(done))) => Ok(done),
            Ok(Ok(Err(Error::NotFound { .. }))) => Err(Fault::NotThere),
            Ok(Ok(Err(error))) => Err(Fault::Other(self.away(causes(&error)))),
            Ok(Err(_)) => Err(Fault::Other(self.away("this process ends"))),
            Err(_) => {
                let reason = format!("no answer within {} s", self.within.as_secs_f32());
                Err(Fault::Other(self.away(reason)))
            }
        }
    }

    fn away(&self, reason: impl ToString) -> DocumentError {
        DocumentError::Away { place: self.place.clone(), reason: reason.to_string() }
    }

    fn path(&self, name: &Hash) -> Path {
        let name = name.to_hex();
        self.prefix.clone().join(&name[..2]).join(name.as_str())
    }
}

/// What the marker holds.
fn line(number: i64) -> String {
    format!("{MARK}{number}\n")
}

/// An error with what lies behind it.
fn causes(error: &Error) -> String {
    let (mut said, mut cause) = (error.to_string(), error.source());
    while let Some(error) = cause {
        let text = error.to_string();
        if !said.contains(&text) {
            said = format!("{said}: {text}");
        }
        cause = error.source();
    }
    said
}

/// The files of a folder, if it is there.
fn files(path: &std::path::Path) -> object_store::Result<LocalFileSystem> {
    match std::fs::canonicalize(path) {
        Ok(path) => Ok(LocalFileSystem::new_with_prefix(path)?.with_fsync(true)),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(Error::NotFound { path: path.display().to_string(), source: error.into() })
        }
        Err(error) => Err(generic(error)),
    }
}

/// Makes a folder and those that it lies in, and flushes the names of all that are new.
fn make_folder(path: &std::path::Path) -> io::Result<()> {
    let path = std::path::absolute(path)?;
    let missing: Vec<_> = path.ancestors().take_while(|path| !path.exists()).collect();
    std::fs::create_dir_all(&path)?;
    let mut parents = missing.iter().filter_map(|path| path.parent());
    parents.try_for_each(|parent| File::open(parent)?.sync_all())
}

fn generic(error: io::Error) -> Error {
    Error::Generic { store: "folder", source: error.into() }
}

/// Removes files that were being written when a process died, a day ago or earlier. The library
/// gives them a `#` in their names, and does not list them.
fn remove_remains(folder: &std::path::Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let is_remains = entry.file_name().as_encoded_bytes().contains(&b'#');
        let modified = || entry.metadata().and_then(|metadata| metadata.modified()).ok();
        let age = || SystemTime::now().duration_since(modified()?).ok();
        if is_remains && age().is_some_and(|age| REMAINS_AFTER < age) {
            let removed = std::fs::remove_file(entry.path());
            tracing::info!(path = %entry.path().display(), ?removed, "half a document");
        }
    }
}

/// A document begins so, with the format's number at the end.
const MAGIC: [u8; 16] = *b"nearcast-doc 1\n\0";
const SALT_LEN: usize = 16;

const MARKER: &str = "nearcast-documents";
/// With the format's number.
const MARK: &str = "nearcast documents 1 ";

/// Longer than all tries of a request at a bucket.
const WITHIN: Duration = Duration::from_secs(25);
const _: () = assert!(TRIES_WITHIN.as_millis() < WITHIN.as_millis());

/// Another writer takes over within 5 s.
const LOOK_WITHIN: Duration = Duration::from_secs(1);

/// Arbitrary: a fleet that fills asks for a hundred a second, of a few milliseconds each.
const UNDER_WAY_MAX: usize = 64;

const REMAINS_AFTER: Duration = Duration::from_secs(86_400);

#[cfg(test)]
mod tests;
