//! Generation and digest of the last snapshot for fronts.

use model::id::Generation;

use super::{Result, Store, put_meta, unsigned};

impl Store {
    /// Generation and digest of the newest snapshot for fronts; zeros before the first.
    pub(crate) async fn replica(&self) -> Result<(Generation, u64)> {
        // In one query: a writer whose caller has left may still commit between two.
        let query = sqlx::query_as(
            "SELECT g.value, d.value FROM meta g, meta d
             WHERE g.key = 'replica_generation' AND d.key = 'replica_digest'",
        );
        let (generation, digest): (i64, i64) = query.fetch_one(&self.pool).await?;
        Ok((Generation(unsigned(generation)?), unsigned(digest)?))
    }

    /// Notes them, before any front sees the snapshot.
    pub(crate) async fn put_replica(&self, generation: Generation, digest: u64) -> Result<()> {
        let mut transaction = self.begin().await?;
        put_meta(&mut transaction, "replica_generation", generation.0).await?;
        put_meta(&mut transaction, "replica_digest", digest).await?;
        Ok(transaction.commit().await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_generation_is_read_with_its_own_digest_while_the_next_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::of_test(directory.path()).await.unwrap();
        let writer = store.clone();
        let writing = tokio::spawn(async move {
            for n in 1..=200 {
                writer.put_replica(Generation(n), n).await.unwrap();
            }
        });
        while !writing.is_finished() {
            let (generation, digest) = store.replica().await.unwrap();
            assert_eq!(generation.0, digest);
        }
        writing.await.unwrap();
    }
}
