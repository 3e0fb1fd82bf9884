//! What fronts were given last.

use model::id::Generation;

use super::{Result, Store, put_meta, unsigned};

impl Store {
    /// Generation and digest of the newest snapshot for fronts; zeros before the first.
    pub(crate) async fn replica(&self) -> Result<(Generation, u64)> {
        let generation = unsigned(self.meta("replica_generation").await?)?;
        Ok((Generation(generation), unsigned(self.meta("replica_digest").await?)?))
    }

    /// Notes them, before any front sees the snapshot.
    pub(crate) async fn put_replica(&self, generation: Generation, digest: u64) -> Result<()> {
        let mut transaction = self.pool.begin().await?;
        put_meta(&mut transaction, "replica_generation", generation.0).await?;
        put_meta(&mut transaction, "replica_digest", digest).await?;
        Ok(transaction.commit().await?)
    }
}
