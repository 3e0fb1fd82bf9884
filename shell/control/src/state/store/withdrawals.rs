//! Withdrawals and their receipts on disk, and the removal of versions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use director::{Reason, Receipt, Window, Withdrawal};
use model::id::{ApplianceId, AssetId, AssetVersionId, Generation};
use model::units::UnixSeconds;
use sqlx::{Any, Transaction};

use super::{Result, Store, StoreError, parse, signed, unsigned};

impl Store {
    /// Takes versions down: they go, and this is noted, with everybody who has to confirm it, in
    /// one step. Returns what is to be listed.
    pub(crate) async fn withdraw(
        &self,
        at: UnixSeconds,
        reason: Reason,
        versions: &BTreeMap<AssetVersionId, AssetId>,
        appliances: &BTreeSet<ApplianceId>,
    ) -> Result<Withdrawal> {
        let mut transaction = self.begin().await?;
        let query = "INSERT INTO withdrawals (at, reason) VALUES ($1, $2) RETURNING id";
        let query = sqlx::query_scalar(query).bind(signed(at.0)?).bind(reason_name(reason));
        let row: i64 = query.fetch_one(&mut *transaction).await?;
        for (version, asset) in versions {
            delete_version(&mut transaction, version).await?;
            let query = sqlx::query(
                "INSERT INTO withdrawn (version, asset, withdrawal, at) VALUES ($1, $2, $3, $4)
                 ON CONFLICT (version) DO UPDATE SET asset = $2, withdrawal = $3, at = $4",
            );
            let query = query.bind(version.as_str()).bind(asset.as_str());
            query.bind(row).bind(signed(at.0)?).execute(&mut *transaction).await?;
        }
        // Should an asset come again of which nothing is left, nobody plays it without a grant.
        let query = "DELETE FROM public_assets WHERE asset NOT IN (SELECT asset FROM versions)";
        sqlx::query(query).execute(&mut *transaction).await?;
        for appliance in appliances {
            let query = sqlx::query("INSERT INTO receipts (withdrawal, appliance) VALUES ($1, $2)");
            query.bind(row).bind(appliance.as_str()).execute(&mut *transaction).await?;
        }
        let prune = sqlx::query(
            "DELETE FROM withdrawn WHERE version IN
             (SELECT version FROM withdrawn ORDER BY at DESC, version LIMIT $2 OFFSET $1)",
        );
        prune.bind(WITHDRAWN_MAX).bind(i64::MAX).execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(Withdrawal {
            id: unsigned(row)?,
            at,
            reason,
            versions: Arc::new(versions.clone()),
            receipts: appliances.iter().map(|id| (id.clone(), None)).collect(),
        })
    }

    /// Removes versions of which nothing is noted.
    pub(crate) async fn delete_versions(&self, versions: &[AssetVersionId]) -> Result<()> {
        let mut transaction = self.begin().await?;
        for version in versions {
            delete_version(&mut transaction, version).await?;
        }
        Ok(transaction.commit().await?)
    }

    /// When the version was taken down; none if it was not.
    pub(crate) async fn withdrawn(&self, version: &AssetVersionId) -> Result<Option<UnixSeconds>> {
        let query = sqlx::query_scalar("SELECT at FROM withdrawn WHERE version = $1");
        let at: Option<i64> = query.bind(version.as_str()).fetch_optional(&self.pool).await?;
        Ok(at.map(unsigned).transpose()?.map(UnixSeconds))
    }

    /// Notes that an appliance refuses what was taken down.
    pub(crate) async fn put_receipt(
        &self,
        withdrawal: u64,
        appliance: &ApplianceId,
        receipt: Receipt,
    ) -> Result<()> {
        let query = sqlx::query(
            "UPDATE receipts SET at = $3, generation = $4 WHERE withdrawal = $1 AND appliance = $2",
        )
        .bind(signed(withdrawal)?)
        .bind(appliance.as_str())
        .bind(signed(receipt.at.0)?)
        .bind(signed(receipt.generation.0)?);
        self.write(query).await
    }

    /// Takes withdrawals from the list. What they took down stays so.
    pub(crate) async fn delete_withdrawals(&self, ids: &[u64]) -> Result<()> {
        let mut transaction = self.begin().await?;
        for id in ids {
            let query = sqlx::query("DELETE FROM withdrawals WHERE id = $1").bind(signed(*id)?);
            query.execute(&mut *transaction).await?;
        }
        Ok(transaction.commit().await?)
    }

    /// What is listed.
    pub(crate) async fn withdrawals(&self) -> Result<BTreeMap<u64, Withdrawal>> {
        let query = sqlx::query_as("SELECT id, at, reason FROM withdrawals");
        let rows: Vec<(i64, i64, String)> = query.fetch_all(&self.pool).await?;
        let mut versions = self.withdrawn_versions().await?;
        let mut receipts = self.receipts().await?;
        let mut withdrawals = BTreeMap::new();
        for (id, at, reason) in rows {
            // All that it took down may have been ingested again.
            let Some(versions) = versions.remove(&id) else { continue };
            let withdrawal = Withdrawal {
                id: unsigned(id)?,
                at: UnixSeconds(unsigned(at)?),
                reason: self::reason(&reason)?,
                versions: Arc::new(versions),
                receipts: receipts.remove(&id).unwrap_or_default(),
            };
            withdrawals.insert(withdrawal.id, withdrawal);
        }
        Ok(withdrawals)
    }

    async fn withdrawn_versions(&self) -> Result<BTreeMap<i64, BTreeMap<AssetVersionId, AssetId>>> {
        let query = sqlx::query_as("SELECT withdrawal, version, asset FROM withdrawn");
        let rows: Vec<(i64, String, String)> = query.fetch_all(&self.pool).await?;
        let mut all: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
        for (withdrawal, version, asset) in rows {
            all.entry(withdrawal).or_default().insert(parse(&version)?, parse(&asset)?);
        }
        Ok(all)
    }

    async fn receipts(&self) -> Result<BTreeMap<i64, BTreeMap<ApplianceId, Option<Receipt>>>> {
        type Row = (i64, String, Option<i64>, Option<i64>);
        let query = sqlx::query_as("SELECT withdrawal, appliance, at, generation FROM receipts");
        let rows: Vec<Row> = query.fetch_all(&self.pool).await?;
        let mut all: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
        for (withdrawal, appliance, at, generation) in rows {
            let receipt = match at.zip(generation) {
                Some((at, generation)) => Some(Receipt {
                    at: UnixSeconds(unsigned(at)?),
                    generation: Generation(unsigned(generation)?),
                }),
                None => None,
            };
            all.entry(withdrawal).or_default().insert(parse(&appliance)?, receipt);
        }
        Ok(all)
    }
}

/// Nobody waits any more for an appliance that is gone for good.
pub(super) async fn await_no_more(
    transaction: &mut Transaction<'_, Any>,
    appliance: &ApplianceId,
) -> Result<()> {
    let query = sqlx::query("DELETE FROM receipts WHERE appliance = $1 AND at IS NULL");
    query.bind(appliance.as_str()).execute(&mut **transaction).await?;
    Ok(())
}

/// A version is wanted that may have been taken down.
pub(super) async fn take_again(
    transaction: &mut Transaction<'_, Any>,
    version: &AssetVersionId,
) -> Result<()> {
    let query = sqlx::query("DELETE FROM withdrawn WHERE version = $1").bind(version.as_str());
    let done = query.execute(&mut **transaction).await?;
    if done.rows_affected() != 0 {
        let query = sqlx::query(
            "DELETE FROM withdrawals WHERE id NOT IN (SELECT withdrawal FROM withdrawn)",
        );
        query.execute(&mut **transaction).await?;
    }
    Ok(())
}

/// The version, and the objects that no other has.
pub(super) async fn delete_version(
    transaction: &mut Transaction<'_, Any>,
    version: &AssetVersionId,
) -> Result<()> {
    let query = sqlx::query_scalar("SELECT DISTINCT object FROM files WHERE version = $1");
    let objects: Vec<Vec<u8>> = query.bind(version.as_str()).fetch_all(&mut **transaction).await?;
    let query = sqlx::query("DELETE FROM versions WHERE id = $1").bind(version.as_str());
    query.execute(&mut **transaction).await?;
    for object in objects {
        let query = sqlx::query(
            "DELETE FROM objects WHERE id = $1 AND NOT EXISTS
             (SELECT 1 FROM files WHERE object = $1)",
        );
        query.bind(object).execute(&mut **transaction).await?;
    }
    Ok(())
}

/// The times of a version, as columns have them.
pub(super) fn window(from: Option<i64>, until: Option<i64>) -> Result<Window> {
    let time =
        |time: Option<i64>| Ok::<_, StoreError>(time.map(unsigned).transpose()?.map(UnixSeconds));
    Ok(Window { from: time(from)?, until: time(until)? })
}

/// A column of a time that may be none.
pub(super) fn time(time: Option<UnixSeconds>) -> Result<Option<i64>> {
    time.map(|time| signed(time.0)).transpose()
}

pub(crate) fn reason_name(reason: Reason) -> &'static str {
    match reason {
        Reason::Operator => "operator",
        Reason::Ended => "ended",
    }
}

fn reason(text: &str) -> Result<Reason> {
    match text {
        "operator" => Ok(Reason::Operator),
        "ended" => Ok(Reason::Ended),
        other => Err(StoreError::Damaged(format!("a withdrawal has the reason {other}"))),
    }
}

/// So many versions are remembered as taken down: as many as there may be. Beyond, the oldest can
/// be ingested again without an operator's word.
const WITHDRAWN_MAX: i64 = 100_000;
