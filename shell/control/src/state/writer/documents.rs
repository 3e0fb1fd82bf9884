//! Block hashes in documents: written before the row that names them, proved before anybody is
//! given them, moved there from older databases, and removed when nobody needs them.

use std::sync::Arc;
use std::time::Duration;

use model::id::{AssetVersionId, ObjectId};
use model::object::{Blocks, block_count};
use model::units::{Bytes, UnixSeconds};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::Control;
use crate::state::documents::{Condition, Document, DocumentError, Documents};
use crate::state::store::BlockHashes;

impl Control {
    /// The block hashes of an object, 32 bytes each; none if there is no such object. Of a document
    /// only what proves to be the object's.
    pub(crate) async fn block_hashes(
        &self,
        id: ObjectId,
    ) -> Result<Option<Vec<u8>>, DocumentError> {
        let (name, first, len) = match self.store.block_hashes(&id).await? {
            None => return Ok(None),
            Some(BlockHashes::Row(hashes)) => return Ok(Some(hashes)),
            Some(BlockHashes::Document { name, first, len }) => (name, first, len),
        };
        let documents = self.documents.as_ref().ok_or(DocumentError::Elsewhere)?;
        let range = first * HASH_LEN..(first + block_count(len)) * HASH_LEN;
        let read = async {
            let hashes = documents.part(&self.store, &name, range).await?;
            let proof = spawn_blocking(move || {
                wire::v1::blocks::decode(id, len, &hashes).is_ok().then_some(hashes)
            });
            proof.await.expect("nothing in it panics").ok_or_else(|| documents.damaged(&name))
        };
        read.await.map(Some).inspect_err(|error| self.document_failed(error))
    }

    /// Writes the block hashes of a version that is new, or whose documents are not whole: the
    /// document, which no row names yet. None if there is nothing to write, as for a known version
    /// while the place is away: it was whole when it was taken. No change waits for it.
    pub(super) async fn keep_hashes(
        &self,
        version: &AssetVersionId,
        blocks: &Arc<[Blocks]>,
    ) -> Result<Option<blake3::Hash>, DocumentError> {
        let Some(documents) = &self.documents else { return Ok(None) };
        let kept = async {
            let is_known = self.snapshot().catalog.version(version).is_some();
            if is_known && self.has_whole(documents, version).await? {
                return Ok(None);
            }
            let document = document(blocks.clone()).await;
            let name = documents.put(&self.store, document).await?;
            self.metrics.documents_written.count();
            if is_known {
                tracing::info!(%version, "its document is written anew: {}", documents.said(&name));
            }
            Ok(Some(name))
        };
        kept.await.inspect_err(|error| self.document_failed(error))
    }

    async fn has_whole(
        &self,
        documents: &Documents,
        version: &AssetVersionId,
    ) -> Result<bool, DocumentError> {
        for name in self.store.documents_of(version).await? {
            match documents.condition(&self.store, &name).await {
                Ok(Condition::Whole) => {}
                Ok(Condition::Missing) => {
                    tracing::warn!(%version, "its document is missing: {}", documents.said(&name));
                    return Ok(false);
                }
                Ok(Condition::Damaged) => {
                    tracing::warn!(%version, "its document is damaged: {}", documents.said(&name));
                    return Ok(false);
                }
                Err(DocumentError::Away { place, reason }) => {
                    self.metrics.documents_failed.count();
                    tracing::warn!(
                        %version,
                        "it comes again, and its documents in {place} cannot be looked at: {reason}"
                    );
                    return Ok(true);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn document_failed(&self, error: &DocumentError) {
        if let DocumentError::Store(error) = error {
            return self.store_failed(error);
        }
        self.metrics.documents_failed.count();
        tracing::error!("{error}");
    }

    /// Moves hashes from rows to documents, then looks at all documents in turns, for ever.
    pub(crate) async fn look_after_documents(self: &Arc<Self>) {
        let Some(documents) = &self.documents else { return };
        let (mut shard, mut missing) = (0_u8, 0);
        loop {
            let looked = async {
                documents.claim(&self.store).await?;
                if shard == 0 {
                    self.move_hashes(documents).await?;
                }
                self.sweep(documents, shard, self.clock.unix()).await
            };
            match looked.await {
                Ok(lacking) => {
                    missing += lacking;
                    shard = shard.wrapping_add(1);
                    if shard == 0 {
                        self.metrics.documents_missing.set(std::mem::take(&mut missing));
                    }
                    sleep(SWEEP_EVERY).await;
                }
                Err(error) => {
                    self.document_failed(&error);
                    sleep(AGAIN_AFTER).await;
                }
            }
        }
    }

    /// Moves hashes that are in rows, a document at a time. A crash between a document and its rows
    /// leaves one that nobody needs.
    async fn move_hashes(self: &Arc<Self>, documents: &Documents) -> Result<(), DocumentError> {
        if !self.store.has_unmoved().await? {
            return Ok(());
        }
        let catalog = self.snapshot().catalog.clone();
        let (versions, mut moved) = (catalog.all().map(|version| version.id()), 0);
        for version in versions {
            let unmoved = self.store.unmoved(version).await?;
            let mut rest = &unmoved[..];
            while !rest.is_empty() {
                let (slice, after) = rest.split_at(slice_len(rest));
                moved += self.move_slice(documents, slice).await?;
                rest = after;
                sleep(MOVE_EVERY).await;
            }
        }
        tracing::info!(objects = moved, "block hashes are in documents now");
        Ok(())
    }

    async fn move_slice(
        self: &Arc<Self>,
        documents: &Documents,
        slice: &[(ObjectId, Bytes)],
    ) -> Result<usize, DocumentError> {
        let (mut moved, mut objects, mut first) = (Vec::new(), Vec::new(), 0);
        for (id, len) in slice {
            // Gone meanwhile.
            let Some(BlockHashes::Row(hashes)) = self.store.block_hashes(id).await? else {
                continue;
            };
            match wire::v1::blocks::decode(*id, *len, &hashes) {
                Ok(blocks) => {
                    objects.push((*id, first));
                    first += block_count(*len);
                    moved.push(blocks);
                }
                Err(error) => tracing::error!("it stays in the database: {error}"),
            }
        }
        if objects.is_empty() {
            return Ok(0);
        }
        let document = document(moved).await;
        let name = documents.put(&self.store, document).await?;
        self.metrics.documents_written.count();
        let _writing = self.writing.lock().await;
        self.store.move_objects(&name, &objects).await?;
        Ok(objects.len())
    }

    /// Looks at the documents whose names begin with this byte: one that no object is in is removed
    /// once it has been so for the time of the settings. How many are missing.
    async fn sweep(
        &self,
        documents: &Documents,
        shard: u8,
        now: UnixSeconds,
    ) -> Result<u64, DocumentError> {
        let keep_s = self.config.documents.keep.0.as_seconds();
        let writing = self.writing.lock().await;
        let known = self.store.shard(shard, now, UnixSeconds(now.0.saturating_sub(keep_s))).await?;
        drop(writing);
        // What comes between is there and not yet known, and never the other way round.
        let there = documents.list(shard).await?;
        let stray: Vec<_> = there
            .iter()
            .filter(|name| !known.needed.contains(*name) && !known.unnamed.contains(*name))
            .take(STRAY_MAX)
            .copied()
            .collect();
        if !stray.is_empty() {
            let _writing = self.writing.lock().await;
            self.store.note_unnamed(&stray, now).await?;
        }
        for name in &known.over {
            documents.remove(name).await?;
            self.metrics.documents_removed.count();
            let _writing = self.writing.lock().await;
            self.store.forget_document(name).await?;
        }
        if !known.needed.is_subset(&there) {
            // It may have been unmounted meanwhile.
            documents.claim(&self.store).await?;
        }
        let missing = known.needed.difference(&there);
        let missing = missing.map(|name| documents.missing(&(*name).into()));
        Ok(missing.inspect(|error| tracing::error!("{error}")).fold(0, |count, _| count + 1))
    }
}

async fn document(blocks: impl AsRef<[Blocks]> + Send + 'static) -> Document {
    let encode = move || Document::of(blocks.as_ref().iter().map(wire::v1::blocks::encode));
    spawn_blocking(encode).await.expect("nothing in it panics")
}

/// How many of these objects go into one document: at least one.
fn slice_len(objects: &[(ObjectId, Bytes)]) -> usize {
    let mut hashes = 0;
    let fits = |(_, len): &&(ObjectId, Bytes)| {
        hashes += block_count(*len);
        hashes <= HASHES_MAX
    };
    objects.iter().take_while(fits).count().max(1)
}

const HASH_LEN: u64 = 32;
/// Of a document that is made of rows: 4 MiB, or what a single object has.
const HASHES_MAX: u64 = 131_072;
/// Requests have the disk in between.
const MOVE_EVERY: Duration = Duration::from_millis(20);
/// All documents are looked at in four hours and a quarter.
const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// When the place could not be reached.
const AGAIN_AFTER: Duration = Duration::from_secs(10);
/// Of a shard at a time.
const STRAY_MAX: usize = 1000;

#[cfg(test)]
mod tests;
