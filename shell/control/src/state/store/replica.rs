//! Generation and weight of what fronts were given last.

use model::id::Generation;

use super::{Result, Store, put_meta, unsigned};

impl Store {
    /// Generation and weight of the newest state that fronts may have; zeros before the first.
    pub(crate) async fn replica(&self) -> Result<(Generation, u64)> {
        // Earlier releases called the weight a digest. In one query: a writer whose caller has left
        // may still commit between two.
        let query = sqlx::query_as(
            "SELECT g.value, d.value FROM meta g, meta d
             WHERE g.key = 'replica_generation' AND d.key = 'replica_digest'",
        );
        let (generation, weight): (i64, i64) = query.fetch_one(&self.pool).await?;
        Ok((Generation(unsigned(generation)?), unsigned(weight)?))
    }

    /// Notes them, before any front sees that state.
    pub(crate) async fn put_replica(&self, generation: Generation, weight: u64) -> Result<()> {
        let mut transaction = self.begin().await?;
        put_meta(&mut transaction, "replica_generation", generation.0).await?;
        put_meta(&mut transaction, "replica_digest", weight).await?;
        Ok(transaction.commit().await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_generation_is_read_with_its_own_weight_while_the_next_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::of_test(directory.path()).await.unwrap();
        let writer = store.clone();
        let writing = tokio::spawn(async move {
            for n in 1..=200 {
                writer.put_replica(Generation(n), n).await.unwrap();
            }
        });
        while !writing.is_finished() {
            let (generation, weight) = store.replica().await.unwrap();
            assert_eq!(generation.0, weight);
        }
        writing.await.unwrap();
    }
}
