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

mod claim;

use std::collections::BTreeSet;
use std::error::Error as _;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use blake3::Hash;
use model::units::Bytes;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt as _};
use tokio::sync::{Mutex, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::buckets::{BucketError, Buckets, Settings, TRIES_WITHIN};
use crate::members::authority::random;
use crate::place::DocumentsPlace;
use crate::state::store::{Store, StoreError};
use claim::MARKER;

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
    /// So long one waits for its turn among these.
    turn_within: Duration,
    /// What is not done so long after its turn came goes on, but its caller does not wait for it.
    within: Duration,
    /// Of those that make the place this database's: two at a time would make two numbers.
    claiming: Mutex<()>,
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
        "[documents] at: the documents of this database are not in it: say where they are. The \
         settings of before say it, and so do those of the other writer"
    )]
    Elsewhere,
    #[error(
        "[documents] at: the writer that leads keeps documents in a place, and this one would keep \
         them in the database: stop both, and give both the same"
    )]
    InPlace,
    #[error(
        "[documents] at: the writer that leads has its documents in the database, and this one \
         would have them in {0}: give both the same"
    )]
    InDatabase(String),
    #[error("{0}")]
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
                let prefix = Path::parse(prefix).map_err(|error| {
                    DocumentError::Place(format!("{place} is no place in a bucket: {error}"))
                })?;
                (At::Bucket { buckets: Box::new(buckets), name: name.clone() }, prefix)
            }
        };
        Ok(Some(Self {
            at,
            prefix,
            place: said,
            under_way: Arc::new(Semaphore::new(UNDER_WAY_MAX)),
            turn_within: TURN_WITHIN,
            within: WITHIN,
            claiming: Mutex::default(),
        }))
    }

    /// The same with so many pieces of work at a time. One that hangs keeps its turn and its bytes.
    pub(crate) fn with_turns(self, turns: usize) -> Self {
        Self { under_way: Arc::new(Semaphore::new(turns)), ..self }
    }

    /// Writes a document: after this returns it is there, whatever happens. Whose the place is was
    /// looked at right before: a folder may be unmounted at any time.
    pub(crate) async fn put(&self, store: &Store, document: Document) -> Result<Hash> {
        self.claim(store).await?;
        self.write(self.path(&document.name), document.bytes).await?;
        Ok(document.name)
    }

    /// A part of a document's body, which whoever asks has to prove.
    pub(crate) async fn part(
        &self,
        store: &Store,
        name: &Hash,
        range: Range<u64>,
    ) -> Result<Vec<u8>> {
        let head = u64::try_from(MAGIC.len() + SALT_LEN).expect("it is short");
        let range = head + range.start..head + range.end;
        let (path, end) = (self.path(name), range.end);
        let wanted = Bytes(range.end - range.start);
        let read = self.run(move |place| async move {
            let began = Instant::now();
            match place.get_range(&path, range).await {
                Ok(bytes) => Ok(Some(bytes).filter(|bytes| Bytes::of(bytes.len()) == wanted)),
                Err(error @ Error::NotFound { .. }) => Err(error),
                // A server may refuse what a damaged one has not, and does it soon. After long
                // tries there is no time left for others.
                Err(error) if WITHIN - TRIES_WITHIN < began.elapsed() => Err(error),
                Err(error) => {
                    let is_short = place.head(&path).await.is_ok_and(|meta| meta.size < end);
                    if is_short { Ok(None) } else { Err(error) }
                }
            }
        });
        match read.await {
            Ok(Some(bytes)) => Ok(bytes.into()),
            Ok(None) => Err(self.damaged(name)),
            Err(Fault::NotThere) => Err(self.not_found(store, name).await),
            Err(Fault::Other(error)) => Err(error),
        }
    }

    /// Reads a whole document and proves its name.
    pub(crate) async fn condition(&self, store: &Store, name: &Hash) -> Result<Condition> {
        let path = self.path(name);
        let read = self.run(move |place| async move { place.get(&path).await?.bytes().await });
        match read.await {
            Ok(bytes) => {
                let found = spawn_blocking(move || blake3::hash(&bytes));
                let is_whole = found.await.expect("nothing in it panics") == *name;
                Ok(if is_whole { Condition::Whole } else { Condition::Damaged })
            }
            Err(Fault::NotThere) => {
                let error = self.not_found(store, name).await;
                let is_missing = matches!(error, DocumentError::Missing(_));
                if is_missing { Ok(Condition::Missing) } else { Err(error) }
            }
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
        let listed = self.run(move |place| async move {
            if let Some(path) = with_remains {
                spawn_blocking(move || remove_remains(&path)).await?;
            }
            place.list_with_delimiter(Some(&folder)).await
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
        match self.run(move |place| async move { place.delete(&path).await }).await {
            Ok(()) | Err(Fault::NotThere) => Ok(()),
            Err(Fault::Other(error)) => Err(error),
        }
    }

    /// Writes a file below a place that no database has; the reason if it cannot. After this
    /// returns it is there, whatever happens. A folder that is missing is not made: it may be one
    /// that is not mounted.
    pub(crate) async fn put_file(
        &self,
        names: [&str; 2],
        bytes: Vec<u8>,
    ) -> std::result::Result<(), String> {
        let path = names.iter().fold(self.prefix.clone(), |path, name| path.join(*name));
        self.write(path, bytes).await.map_err(|error| {
            if let DocumentError::Away { place, reason } = error {
                format!("{place}: {reason}")
            } else {
                error.to_string()
            }
        })
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

    async fn write(&self, path: Path, bytes: Vec<u8>) -> Result<()> {
        let put = self.run(move |place| async move { place.put(&path, bytes.into()).await });
        put.await.map(drop).map_err(|fault| self.not_written(fault))
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

    /// Waits for a turn and then for work at the place, but not for long. Work that has begun goes
    /// on when that is over, and keeps its turn.
    async fn within<T: Send + 'static>(
        &self,
        work: impl Future<Output = object_store::Result<T>> + Send + 'static,
    ) -> std::result::Result<T, Fault> {
        let turn = timeout(self.turn_within, self.under_way.clone().acquire_owned()).await;
        let Ok(turn) = turn.map(|turn| turn.expect("it is never closed")) else {
            let within = self.turn_within.as_secs_f32();
            let reason = format!("none of what is under way ended within {within} s");
            return Err(Fault::Other(self.away(reason)));
        };
        let done = tokio::spawn(async move {
            let done = work.await;
            drop(turn);
            done
        });
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

/// Longer than all tries of a request at a bucket, and with a turn's time half a minute.
const WITHIN: Duration = Duration::from_secs(25);
const _: () = assert!(TRIES_WITHIN.as_millis() < WITHIN.as_millis());

const TURN_WITHIN: Duration = Duration::from_secs(5);

/// Arbitrary: a fleet that fills asks for a hundred a second, of a few milliseconds each.
const UNDER_WAY_MAX: usize = 64;

const REMAINS_AFTER: Duration = Duration::from_secs(86_400);

#[cfg(test)]
mod tests;
