//! Generations of manifests and of the trust document, and the items that appliances should hold.

use std::sync::Arc;

use director::{Digest, Ledger, LedgerEntry, TrustEntry};
use model::id::{ApplianceId, Generation};
use model::number::NumberSet;

use super::{Result, Store, StoreError, fixed, parse, put_meta, put_meta_value, signed, unsigned};

impl Store {
    /// Which manifest has which generation.
    pub async fn ledger(&self) -> Result<Ledger> {
        type Row = (String, i64, Vec<u8>, Option<Vec<u8>>);
        let rows: Vec<Row> = sqlx::query_as(
            "SELECT id, generation, digest, items FROM appliances WHERE generation IS NOT NULL",
        )
        .fetch_all(&self.pool)
        .await?;
        let mut ledger = Ledger {
            generation: Generation(self.meta("generation").await?),
            trust: self.trust().await?,
            expected: self.expected().await?.map(|(_, expected)| Arc::new(expected)),
            ..Ledger::default()
        };
        for (id, generation, digest, items) in rows {
            let id: ApplianceId = parse(&id)?;
            let generation = Generation(unsigned(generation)?);
            let entry = LedgerEntry { generation, digest: Digest(fixed(&digest)?) };
            if let Some(items) = items {
                let items = NumberSet::deserialize_from(items.as_slice());
                let damaged = |_| StoreError::Damaged(format!("the items of {id} are no bitmap"));
                let items = items.map_err(damaged)?;
                ledger.holds.insert(id.clone(), Arc::new(items));
            }
            ledger.entries.insert(id, entry);
        }
        Ok(ledger)
    }

    async fn trust(&self) -> Result<TrustEntry> {
        let generation = Generation(unsigned(self.meta("trust_generation").await?)?);
        Ok(TrustEntry::of_number(generation, self.meta("trust_digest").await?))
    }

    /// Notes the newest trust document, before any appliance sees it.
    pub async fn put_trust(&self, entry: TrustEntry) -> Result<()> {
        let mut transaction = self.begin().await?;
        put_meta(&mut transaction, "trust_generation", entry.generation.0).await?;
        put_meta_value(&mut transaction, "trust_digest", entry.number()).await?;
        Ok(transaction.commit().await?)
    }

    /// Notes generations.
    pub async fn put_ledger(&self, ledger: &Ledger) -> Result<()> {
        let mut transaction = self.begin().await?;
        put_meta(&mut transaction, "generation", ledger.generation.0).await?;
        for (id, entry) in &ledger.entries {
            sqlx::query("UPDATE appliances SET generation = $2, digest = $3 WHERE id = $1")
                .bind(id.as_str())
                .bind(signed(entry.generation.0)?)
                .bind(entry.digest.0.as_slice())
                .execute(&mut *transaction)
                .await?;
        }
        for (id, items) in &ledger.holds {
            sqlx::query("UPDATE appliances SET items = $2 WHERE id = $1")
                .bind(id.as_str())
                .bind(bitmap(items))
                .execute(&mut *transaction)
                .await?;
        }
        Ok(transaction.commit().await?)
    }
}

/// In Roaring's portable format.
fn bitmap(items: &NumberSet) -> Vec<u8> {
    let mut items = items.clone();
    items.optimize();
    let mut bytes = Vec::with_capacity(items.serialized_size());
    items.serialize_into(&mut bytes).expect("memory takes what is written");
    bytes
}
