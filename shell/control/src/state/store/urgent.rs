//! Versions that appliances fetch before all others.

use std::collections::BTreeMap;

use model::id::AssetVersionId;
use model::units::UnixSeconds;

use super::{Result, Store, parse, unsigned, withdrawals};

impl Store {
    pub(super) async fn urgent(&self) -> Result<BTreeMap<AssetVersionId, Option<UnixSeconds>>> {
        let query = sqlx::query_as("SELECT version, until FROM urgent");
        let rows: Vec<(String, Option<i64>)> = query.fetch_all(&self.pool).await?;
        let urgent = |(version, until): (String, Option<i64>)| {
            let until = until.map(unsigned).transpose()?.map(UnixSeconds);
            Ok((parse(&version)?, until))
        };
        rows.into_iter().map(urgent).collect()
    }

    /// These are urgent from now on, and no others. O(urgent versions).
    pub(crate) async fn put_urgent(
        &self,
        urgent: &BTreeMap<AssetVersionId, Option<UnixSeconds>>,
    ) -> Result<()> {
        let mut transaction = self.begin().await?;
        sqlx::query("DELETE FROM urgent").execute(&mut *transaction).await?;
        for (version, until) in urgent {
            let query = sqlx::query("INSERT INTO urgent (version, until) VALUES ($1, $2)");
            let query = query.bind(version.as_str()).bind(withdrawals::time(*until)?);
            query.execute(&mut *transaction).await?;
        }
        Ok(transaction.commit().await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use director::{FillPolicy, Policy};
    use model::units::BitsPerSecond;

    #[tokio::test]
    async fn what_is_urgent_and_its_rate_are_there_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::of_test(folder.path()).await.unwrap();
        let desired = store.desired().await.unwrap();
        assert_eq!((desired.urgent.len(), desired.policy.fill), (0, FillPolicy::default()));
        let [one, two] = ["film-1", "film-2"].map(|version| version.parse().unwrap());
        let both = [(one, None), (two, Some(UnixSeconds(7)))].into();
        store.put_urgent(&both).await.unwrap();
        let fill = FillPolicy { urgent_max: BitsPerSecond(5_000_000), ..FillPolicy::default() };
        store.put_policy(Policy { fill, ..Policy::default() }).await.unwrap();
        store.close().await;
        let store = Store::of_test(folder.path()).await.unwrap();
        let desired = store.desired().await.unwrap();
        assert_eq!((desired.urgent, desired.policy.fill), (both, fill));
        store.put_urgent(&BTreeMap::new()).await.unwrap();
        assert!(store.desired().await.unwrap().urgent.is_empty());
    }
}
