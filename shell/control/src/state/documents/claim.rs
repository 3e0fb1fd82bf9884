//! Whose a place is: a number that the database has too stands in a file there.
//!
//! ```text
//! number 0 ──> -n, durable ──> the file with n ──> n, durable ──> documents
//!                 a crash, or a place that does not take it: the same again
//! ```

use std::fs::File;
use std::io;
use std::time::Duration;

use blake3::Hash;
use object_store::{Error, ObjectStoreExt as _, PutMode};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::{At, DocumentError, Documents, Fault, Result, generic};
use crate::members::authority::random;
use crate::state::store::Store;

impl Documents {
    /// Whether the place is known to be this database's; an error if it is not. Where it cannot be
    /// reached, that is not known.
    pub(crate) async fn fits(this: Option<&Self>, store: &Store) -> Result<bool> {
        let number = store.documents_number().await?;
        let Some(this) = this else {
            // Of a place that could not be claimed no row names a document.
            return if number <= 0 { Ok(true) } else { Err(DocumentError::Elsewhere) };
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

    /// The same, for a writer that stands by: until the one that leads has said where its documents
    /// are, and has claimed that place, nobody knows.
    pub(crate) async fn fits_behind(this: Option<&Self>, store: &Store) -> Result<bool> {
        match (store.leader_has_place().await?, this) {
            (None, _) => Ok(false),
            (Some(false), Some(this)) => Err(DocumentError::InDatabase(this.place.clone())),
            // Of a place that is not claimed yet nobody can say where it is.
            (Some(true), None) if store.documents_number().await? <= 0 => {
                Err(DocumentError::InPlace)
            }
            (Some(true), None) => Err(DocumentError::Elsewhere),
            (Some(true), Some(_)) if store.documents_number().await? <= 0 => Ok(false),
            (Some(_), this) => Self::fits(this, store).await,
        }
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

    /// Makes the place this database's, or sees that it is. The writer that leads does it.
    pub(crate) async fn claim(&self, store: &Store) -> Result<()> {
        let mut number = store.documents_number().await?;
        let mut one_at_a_time = None;
        if number <= 0 {
            let claiming = timeout(self.turn_within, self.claiming.lock()).await;
            let is_slow = |_| self.away("it is slow to take a file that says whose it is");
            one_at_a_time = Some(claiming.map_err(is_slow)?);
            number = store.documents_number().await?;
        }
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
        drop(one_at_a_time);
        Ok(())
    }

    /// Why a document was not found: it is missing, unless the place is not ours, as a folder that
    /// is not mounted is not. That says nothing of what is in the right one.
    pub(super) async fn not_found(&self, store: &Store, name: &Hash) -> DocumentError {
        let number = match store.documents_number().await {
            Ok(number) => number,
            Err(error) => return error.into(),
        };
        match self.marked().await {
            Ok(Some(found)) if found == number.abs() => self.missing(name),
            Ok(None) => {
                self.away(format_args!("it has no {MARKER}, as a folder that is not mounted"))
            }
            Ok(Some(_)) | Err(DocumentError::Foreign(_)) => {
                self.away(format_args!("its {MARKER} is another database's"))
            }
            Err(error) => error,
        }
    }

    fn unmarked(&self, number: i64) -> DocumentError {
        let line = line(number).trim_end().to_owned();
        DocumentError::Unmarked { place: self.place.clone(), line }
    }

    /// The number of the database whose the place is; none if it is nobody's.
    async fn marked(&self) -> Result<Option<i64>> {
        let path = self.prefix.clone().join(MARKER);
        match self.run(move |place| async move { place.get(&path).await?.bytes().await }).await {
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
    pub(super) async fn mark(&self, number: i64) -> Result<()> {
        self.make_folder().await?;
        let path = self.prefix.clone().join(MARKER);
        let bytes = line(number).into_bytes();
        let made = self.run(move |place| async move {
            match place.put_opts(&path, bytes.into(), PutMode::Create.into()).await {
                Ok(_) | Err(Error::AlreadyExists { .. }) => Ok(()),
                Err(error) => Err(error),
            }
        });
        made.await.map_err(|fault| self.not_marked(fault))?;
        match self.marked().await? {
            Some(found) if found == number => Ok(()),
            Some(_) => Err(DocumentError::Foreign(self.place.clone())),
            None => Err(self.away(format_args!("{MARKER} was written and is not there"))),
        }
    }

    /// A place may be all that it should, but for this.
    fn not_marked(&self, fault: Fault) -> DocumentError {
        let needed = match self.at {
            At::Folder(_) => "a file system with hard links",
            At::Bucket { .. } => "a server that knows If-None-Match: *",
        };
        let mut error = self.not_written(fault);
        if let DocumentError::Away { reason, .. } = &mut error {
            *reason = format!("{reason}. Its {MARKER} takes {needed}");
        }
        error
    }

    /// Makes the folder, if it is one.
    async fn make_folder(&self) -> Result<()> {
        let At::Folder(path) = &self.at else { return Ok(()) };
        let path = path.clone();
        let made = async { spawn_blocking(move || make_folder(&path).map_err(generic)).await? };
        self.within(made).await.map_err(|fault| self.not_written(fault))
    }
}

/// What the marker holds.
pub(super) fn line(number: i64) -> String {
    format!("{MARK}{number}\n")
}

/// Makes a folder and those that it lies in, and flushes the names of all that are new.
fn make_folder(path: &std::path::Path) -> io::Result<()> {
    let path = std::path::absolute(path)?;
    let missing: Vec<_> = path.ancestors().take_while(|path| !path.exists()).collect();
    std::fs::create_dir_all(&path)?;
    let mut parents = missing.iter().filter_map(|path| path.parent());
    parents.try_for_each(|parent| File::open(parent)?.sync_all())
}

pub(super) const MARKER: &str = "nearcast-documents";
/// With the format's number.
const MARK: &str = "nearcast documents 1 ";

/// Another writer takes over within 5 s.
const LOOK_WITHIN: Duration = Duration::from_secs(1);
