//! What viewers were expected to watch by the last forecast.

use director::Expected;
use model::id::{ClusterId, Item};
use model::units::{BitsPerSecond, Bytes, UnixSeconds};
use placement::plan::Wanted;
use wire::v1::demand::REST;

use super::{Result, Store, StoreError, put_meta};

/// Of an item.
const ENTRY_LEN: usize = 20;

impl Store {
    /// When the last forecast was due; none if there was none.
    pub(crate) async fn expected_at(&self) -> Result<Option<UnixSeconds>> {
        let at: u64 = self.meta("expected_unix").await?;
        Ok((at != 0).then_some(UnixSeconds(at)))
    }

    /// The last forecast, and when it was due; none if there was none.
    pub(crate) async fn expected(&self) -> Result<Option<(UnixSeconds, Expected)>> {
        let Some(at) = self.expected_at().await? else { return Ok(None) };
        let query = sqlx::query_as("SELECT region, items FROM expected");
        let rows: Vec<(String, Vec<u8>)> = query.fetch_all(&self.pool).await?;
        let mut expected = Expected::default();
        for (region, items) in rows {
            let damaged = || StoreError::Damaged(format!("what region {region} expects is cut"));
            let (entries, rest) = items.as_chunks::<ENTRY_LEN>();
            let cluster = cluster_of(&region).filter(|_| rest.is_empty()).ok_or_else(damaged)?;
            expected.regions.insert(cluster, entries.iter().map(decode).collect());
        }
        Ok(Some((at, expected)))
    }

    /// Keeps a forecast that was due at this time, in place of the last.
    pub(crate) async fn put_expected(&self, at: UnixSeconds, expected: &Expected) -> Result<()> {
        let mut transaction = self.begin().await?;
        sqlx::query("DELETE FROM expected").execute(&mut *transaction).await?;
        for (region, wanted) in &expected.regions {
            let region = region.as_ref().map_or(REST, ClusterId::as_str);
            let items: Vec<u8> = wanted.iter().flat_map(encode).collect();
            let query = sqlx::query("INSERT INTO expected (region, items) VALUES ($1, $2)");
            query.bind(region).bind(items).execute(&mut *transaction).await?;
        }
        put_meta(&mut transaction, "expected_unix", at.0).await?;
        Ok(transaction.commit().await?)
    }
}

/// The manifest cluster that a region is, none for the sites in none; none if it has no such name.
pub(crate) fn cluster_of(region: &str) -> Option<Option<ClusterId>> {
    if region == REST { Some(None) } else { region.parse().ok().map(Some) }
}

fn encode(wanted: &Wanted) -> [u8; ENTRY_LEN] {
    let mut entry = [0; ENTRY_LEN];
    entry[..4].copy_from_slice(&wanted.item.0.to_le_bytes());
    entry[4..12].copy_from_slice(&wanted.day.0.to_le_bytes());
    entry[12..].copy_from_slice(&wanted.peak.0.to_le_bytes());
    entry
}

fn decode(entry: &[u8; ENTRY_LEN]) -> Wanted {
    let [a, b, c, d, rest @ ..] = *entry;
    let (day, peak) = rest.split_at(8);
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight of them"));
    Wanted {
        item: Item(u32::from_le_bytes([a, b, c, d])),
        day: Bytes(number(day)),
        peak: BitsPerSecond(number(peak)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_forecast_is_there_after_opening_again_and_the_next_replaces_it() {
        let state = tempfile::tempdir().unwrap();
        let store = Store::of_test(state.path()).await.unwrap();
        assert_eq!(store.expected().await.unwrap(), None);
        assert_eq!((cluster_of("-"), cluster_of("D E")), (Some(None), None));
        let wanted = |item| Wanted {
            item: Item(item),
            day: Bytes(u64::MAX - 7),
            peak: BitsPerSecond(u64::from(item)),
        };
        let of = |items: &[u32]| items.iter().map(|item| wanted(*item)).collect();
        let regions = [(None, of(&[1, u32::MAX])), (Some("de".parse().unwrap()), of(&[]))];
        let first = Expected { regions: regions.into() };
        store.put_expected(UnixSeconds(100), &first).await.unwrap();
        store.close().await;
        let store = Store::of_test(state.path()).await.unwrap();
        assert_eq!(store.expected().await.unwrap(), Some((UnixSeconds(100), first.clone())));
        assert_eq!(store.ledger().await.unwrap().expected.as_deref(), Some(&first));
        let next = Expected { regions: [(None, of(&[3]))].into() };
        store.put_expected(UnixSeconds(200), &next).await.unwrap();
        assert_eq!(store.expected().await.unwrap(), Some((UnixSeconds(200), next)));
    }
}
