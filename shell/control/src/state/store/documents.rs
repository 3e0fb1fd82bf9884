//! Which object's block hashes are in which document, and which documents nobody needs.

use std::collections::{BTreeMap, BTreeSet};

use blake3::Hash;
use model::id::{AssetVersionId, ObjectId};
use model::object::{Blocks, block_count};
use model::units::{Bytes, UnixSeconds};
use sqlx::{Any, AssertSqlSafe, Transaction};

use super::{ROWS_AT_ONCE, Result, Store, fixed, places, put_meta_value, signed, unsigned};

/// Where an object's block hashes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BlockHashes {
    /// Here, 32 bytes each.
    Row(Vec<u8>),
    Document {
        name: Hash,
        /// So many hashes stand before its own.
        first: u64,
        /// Of the object.
        len: Bytes,
    },
}

/// What is known of the documents whose names begin with one byte.
#[derive(Debug, Default)]
pub(crate) struct Shard {
    /// Objects are in these.
    pub(crate) needed: BTreeSet<[u8; 32]>,
    /// No object is in these.
    pub(crate) unnamed: BTreeSet<[u8; 32]>,
    /// The first of those that have been without one for long enough.
    pub(crate) over: Vec<Hash>,
}

impl Store {
    /// Where the block hashes of an object are; none if there is no such object.
    pub(crate) async fn block_hashes(&self, id: &ObjectId) -> Result<Option<BlockHashes>> {
        type Row = (i64, Vec<u8>, Option<Vec<u8>>, Option<i64>);
        let query = sqlx::query_as(
            "SELECT o.len, o.blocks, d.digest, o.first_hash
             FROM objects o LEFT JOIN documents d ON d.id = o.document WHERE o.id = $1",
        );
        let row: Option<Row> = query.bind(id.0.as_slice()).fetch_optional(&self.pool).await?;
        let Some((len, blocks, digest, first)) = row else { return Ok(None) };
        Ok(Some(match digest.zip(first) {
            None => BlockHashes::Row(blocks),
            Some((digest, first)) => BlockHashes::Document {
                name: name(&digest)?,
                first: unsigned(first)?,
                len: Bytes(unsigned(len)?),
            },
        }))
    }

    /// The documents that have block hashes of a version.
    pub(crate) async fn documents_of(&self, version: &AssetVersionId) -> Result<Vec<Hash>> {
        let query = sqlx::query_scalar(
            "SELECT DISTINCT d.digest FROM files f JOIN objects o ON o.id = f.object
             JOIN documents d ON d.id = o.document WHERE f.version = $1",
        );
        let rows: Vec<Vec<u8>> = query.bind(version.as_str()).fetch_all(&self.pool).await?;
        rows.iter().map(|digest| name(digest)).collect()
    }

    /// Whether the hashes of an object are still in its row.
    pub(crate) async fn has_unmoved(&self) -> Result<bool> {
        let query = "SELECT len FROM objects WHERE document IS NULL AND 0 < len LIMIT 1";
        let row: Option<i64> = sqlx::query_scalar(query).fetch_optional(&self.pool).await?;
        Ok(row.is_some())
    }

    /// Objects of a version whose hashes are still in their rows, with their lengths.
    pub(crate) async fn unmoved(&self, of: &AssetVersionId) -> Result<Vec<(ObjectId, Bytes)>> {
        let query = sqlx::query_as(
            "SELECT DISTINCT o.id, o.len FROM files f JOIN objects o ON o.id = f.object
             WHERE f.version = $1 AND o.document IS NULL AND 0 < o.len",
        );
        let rows: Vec<(Vec<u8>, i64)> = query.bind(of.as_str()).fetch_all(&self.pool).await?;
        let object = |(id, len): (Vec<u8>, i64)| Ok((ObjectId(fixed(&id)?), Bytes(unsigned(len)?)));
        rows.into_iter().map(object).collect()
    }

    /// Notes that objects are in a document, which is there: each with how many hashes stand before
    /// its own. One that is in another by now stays there.
    pub(crate) async fn move_objects(
        &self,
        document: &Hash,
        objects: &[(ObjectId, u64)],
    ) -> Result<()> {
        let mut transaction = self.begin().await?;
        let row = put_document(&mut transaction, document).await?;
        for (id, first) in objects {
            let query = sqlx::query(
                "UPDATE objects SET document = $2, first_hash = $3, blocks = $4
                 WHERE id = $1 AND document IS NULL",
            );
            let query = query.bind(id.0.as_slice()).bind(row).bind(signed(*first)?);
            query.bind(NONE).execute(&mut *transaction).await?;
        }
        Ok(transaction.commit().await?)
    }

    /// Notes which documents of a shard no object is in, from `now` on.
    pub(crate) async fn shard(
        &self,
        shard: u8,
        now: UnixSeconds,
        unnamed_until: UnixSeconds,
    ) -> Result<Shard> {
        let (from, to) = bounds(shard);
        let query = sqlx::query(
            "UPDATE documents SET unnamed = $3 WHERE $1 <= digest AND digest <= $2
             AND unnamed IS NULL AND NOT EXISTS
                 (SELECT 1 FROM objects WHERE objects.document = documents.id)",
        );
        self.write(query.bind(from.clone()).bind(to.clone()).bind(signed(now.0)?)).await?;
        let query = sqlx::query_as(
            "SELECT digest, unnamed FROM documents WHERE $1 <= digest AND digest <= $2",
        );
        let rows: Vec<(Vec<u8>, Option<i64>)> =
            query.bind(from).bind(to).fetch_all(&self.pool).await?;
        let mut known = Shard::default();
        for (digest, unnamed) in rows {
            let digest = fixed(&digest)?;
            let Some(since) = unnamed.map(unsigned).transpose()? else {
                known.needed.insert(digest);
                continue;
            };
            known.unnamed.insert(digest);
            if since <= unnamed_until.0 && known.over.len() < OVER_MAX {
                known.over.push(digest.into());
            }
        }
        Ok(known)
    }

    /// Notes documents that were found and that no row names.
    pub(crate) async fn note_unnamed(&self, found: &[[u8; 32]], now: UnixSeconds) -> Result<()> {
        let mut transaction = self.begin().await?;
        for digest in found {
            let query = sqlx::query(
                "INSERT INTO documents (digest, unnamed) VALUES ($1, $2) ON CONFLICT DO NOTHING",
            );
            let query = query.bind(digest.as_slice()).bind(signed(now.0)?);
            query.execute(&mut *transaction).await?;
        }
        Ok(transaction.commit().await?)
    }

    /// Forgets a document that is gone.
    pub(crate) async fn forget_document(&self, document: &Hash) -> Result<()> {
        let query = sqlx::query("DELETE FROM documents WHERE digest = $1 AND unnamed IS NOT NULL");
        self.write(query.bind(document.as_bytes().as_slice())).await
    }

    /// The number that the place of documents has too: 0 for none yet, less than 0 for one that the
    /// place may not have yet.
    pub(crate) async fn documents_number(&self) -> Result<i64> {
        self.meta("documents").await
    }

    pub(crate) async fn put_documents_number(&self, number: i64) -> Result<()> {
        let mut transaction = self.begin().await?;
        put_meta_value(&mut transaction, "documents", number).await?;
        Ok(transaction.commit().await?)
    }

    /// Whether the writer that leads has documents beside the database; none before it has said so.
    pub(crate) async fn leader_has_place(&self) -> Result<Option<bool>> {
        let said: i64 = self.meta("leader_documents").await?;
        let is_of_now = said >> 1 == signed(self.newest_epoch().await?)?;
        Ok(is_of_now.then_some(said & 1 == 1))
    }

    /// This writer leads, and has documents there or not.
    pub(crate) async fn put_leader_has_place(&self, has_place: bool) -> Result<()> {
        let mut transaction = self.begin().await?;
        let said = signed(self.epoch.unwrap_or_default())? << 1 | i64::from(has_place);
        put_meta_value(&mut transaction, "leader_documents", said).await?;
        Ok(transaction.commit().await?)
    }
}

/// Adds objects, or says anew where their block hashes are: in the document, in this order, or in
/// their rows. Hashes that are in a row and stay there are not written again.
pub(super) async fn put_objects(
    transaction: &mut Transaction<'_, Any>,
    objects: &[Blocks],
    document: Option<&Hash>,
) -> Result<()> {
    let row = match document {
        Some(document) => Some(put_document(transaction, document).await?),
        None => None,
    };
    let mut first = 0;
    // Each once: a statement may not change a row twice.
    let mut rows = BTreeMap::new();
    for blocks in objects {
        rows.entry(blocks.id()).or_insert((blocks, first));
        first += block_count(blocks.len());
    }
    let rows: Vec<_> = rows.into_iter().collect();
    for rows in rows.chunks(ROWS_AT_ONCE) {
        let sql = format!(
            "INSERT INTO objects (id, len, blocks, document, first_hash) VALUES {}
             ON CONFLICT (id) DO UPDATE SET blocks = excluded.blocks,
                 document = excluded.document, first_hash = excluded.first_hash
             WHERE excluded.document IS NOT NULL OR objects.document IS NOT NULL",
            places(rows.len(), 5)
        );
        let mut query = sqlx::query(AssertSqlSafe(sql)).persistent(false);
        for (id, (blocks, first)) in rows {
            let hashes =
                if row.is_some() { NONE.to_vec() } else { wire::v1::blocks::encode(blocks) };
            // An object without a block needs no document.
            let row = row.filter(|_| !blocks.is_empty());
            query = query.bind(id.0.as_slice()).bind(signed(blocks.len().0)?).bind(hashes);
            query = query.bind(row).bind(row.map(|_| signed(*first)).transpose()?);
        }
        query.execute(&mut **transaction).await?;
    }
    Ok(())
}

/// Names a document, which is there: its row.
async fn put_document(transaction: &mut Transaction<'_, Any>, document: &Hash) -> Result<i64> {
    // It may have been found before its row was there.
    let query = sqlx::query_scalar(
        "INSERT INTO documents (digest) VALUES ($1)
         ON CONFLICT (digest) DO UPDATE SET unnamed = NULL RETURNING id",
    );
    let query = query.bind(document.as_bytes().as_slice());
    Ok(query.fetch_one(&mut **transaction).await?)
}

/// The first and the last name that begin with this byte.
fn bounds(shard: u8) -> (Vec<u8>, Vec<u8>) {
    let name = |fill| {
        let mut name = vec![fill; 32];
        name[0] = shard;
        name
    };
    (name(0), name(u8::MAX))
}

fn name(digest: &[u8]) -> Result<Hash> {
    fixed(digest).map(Hash::from)
}

/// The row of an object in a document has no hashes.
const NONE: &[u8] = &[];

/// Of a shard, so many documents are removed at a time.
const OVER_MAX: usize = 100;
