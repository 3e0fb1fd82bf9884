//! What viewers were sent of each item, by region, hour and day.

use std::collections::BTreeMap;

use model::id::ApplianceId;
use model::units::{Hour, UnixSeconds};
use popularity::{Bounds, HEAD_LEN, Span, Sums};
use sqlx::{Any, Transaction};
use tokio::task::spawn_blocking;

use super::{Result, Store, signed, unsigned};

/// Hours of an appliance ascend, unless its clock was wrong: then some come again, or after later
/// ones. Of those one is counted in this time. All of them come at last, since no more are made in
/// an hour, and the appliance keeps them for two weeks.
const LATE_EVERY_S: u64 = 3600;

/// A part of an appliance's demand, by item.
#[derive(Clone, Debug)]
pub(crate) struct CountedPart {
    pub(crate) appliance: ApplianceId,
    /// That of its identity.
    pub(crate) key: String,
    pub(crate) number: u64,
    pub(crate) region: String,
    /// The hour, and the day that it is in.
    pub(crate) spans: [Span; 2],
    pub(crate) sums: Sums,
}

/// Whether a part is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// It is in the sums, or all before this number is, and it was not counted again.
    Counted { last: u64, is_new: bool },
    /// Its hour, or a later one, is counted, and another such part was a short time ago.
    Late,
    /// The appliance is not registered.
    Unknown,
}

impl Store {
    /// Counts parts, each once: an appliance's in the order of their numbers, and one of an hour
    /// that is not after the last only if there was none for an hour. All in one transaction, so
    /// that a sum and the mark that it is counted are never apart. O(parts + items of the hours and
    /// days that they are of).
    pub(crate) async fn count_demand(
        &self,
        parts: Vec<CountedPart>,
        bounds: Bounds,
        now: UnixSeconds,
    ) -> Result<Vec<Mark>> {
        let mut transaction = self.begin().await?;
        let mut marks = Vec::with_capacity(parts.len());
        let mut sums: BTreeMap<(String, Span), Vec<Sums>> = BTreeMap::new();
        for part in parts {
            let mark = mark(&mut transaction, &part, now).await?;
            if matches!(mark, Mark::Counted { is_new: true, .. }) {
                for span in part.spans {
                    let of = sums.entry((part.region.clone(), span)).or_default();
                    of.push(part.sums.clone());
                }
            }
            marks.push(mark);
        }
        for ((region, span), more) in sums {
            let (is_day, hour) = columns(span);
            let query = "SELECT sums FROM demand WHERE region = $1 AND is_day = $2 AND hour = $3";
            let query = sqlx::query_scalar(query).bind(&region).bind(is_day).bind(hour);
            let kept: Option<Vec<u8>> = query.fetch_optional(&mut *transaction).await?;
            let merge = move || merged(span, kept, &more, bounds);
            let bytes = spawn_blocking(merge).await.expect("nothing in it panics");
            sqlx::query(
                "INSERT INTO demand (region, is_day, hour, sums) VALUES ($1, $2, $3, $4)
                 ON CONFLICT (region, is_day, hour) DO UPDATE SET sums = $4",
            )
            .bind(&region)
            .bind(is_day)
            .bind(hour)
            .bind(bytes)
            .execute(&mut *transaction)
            .await?;
        }
        transaction.commit().await?;
        Ok(marks)
    }

    /// Forgets hours before one and days that begin before another, and says how many. Nothing if
    /// nothing came in the day before `now`: a clock that is ahead would forget all there is.
    pub(crate) async fn forget_demand(&self, now: Hour, hours: Hour, days: Hour) -> Result<u64> {
        let query = sqlx::query(
            "DELETE FROM demand
             WHERE ((is_day = 0 AND hour < $1) OR (is_day = 1 AND hour < $2))
                AND $3 <= (SELECT MAX(hour) FROM demand)",
        );
        let [hours, days, newest] = [hours, days, now.before(24)].map(|hour| i64::from(hour.0));
        let query = query.bind(hours).bind(days).bind(newest);
        let mut transaction = self.begin().await?;
        let done = query.execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(done.rows_affected())
    }

    /// The regions of which anything is known.
    pub(crate) async fn demand_regions(&self) -> Result<Vec<String>> {
        let query = sqlx::query_scalar("SELECT DISTINCT region FROM demand ORDER BY region");
        Ok(query.fetch_all(&self.pool).await?)
    }

    /// What each region was sent on the days from one on to before another, together. O(regions x
    /// days): of each the first bytes are read.
    pub(crate) async fn demand_totals(
        &self,
        (from, until): (Hour, Hour),
    ) -> Result<BTreeMap<String, u64>> {
        let query = sqlx::query_as(
            "SELECT region, substr(sums, 1, $3) FROM demand
             WHERE is_day = 1 AND $1 <= hour AND hour < $2",
        );
        let query = query.bind(i64::from(from.0)).bind(i64::from(until.0));
        let query = query.bind(i32::try_from(HEAD_LEN).expect("it is small"));
        let rows: Vec<(String, Vec<u8>)> = query.fetch_all(&self.pool).await?;
        let mut totals = BTreeMap::<String, u64>::new();
        for (region, head) in rows {
            // Of one that is damaged a forecast says so.
            let total = Sums::total_at_head(&head).map_or(0, |total| total.0);
            let sum = totals.entry(region).or_default();
            *sum = sum.saturating_add(total);
        }
        Ok(totals)
    }

    /// All that is known of a region, as it was encoded.
    pub(crate) async fn demand(&self, region: &str) -> Result<Vec<(Span, Vec<u8>)>> {
        let query = sqlx::query_as("SELECT is_day, hour, sums FROM demand WHERE region = $1");
        let rows: Vec<(i64, i64, Vec<u8>)> = query.bind(region).fetch_all(&self.pool).await?;
        let span = |(is_day, hour, sums): (i64, i64, Vec<u8>)| {
            let hour = Hour(u32::try_from(hour).map_err(|error| super::damaged(&error))?);
            Ok((if is_day == 0 { Span::Hour(hour) } else { Span::Day(hour) }, sums))
        };
        rows.into_iter().map(span).collect()
    }
}

/// Marks that a part is counted, if it is to be. A mark that is a time to come keeps no part of
/// another identity away: whoever enrols next is counted, whatever numbers the one before made up,
/// and however late they come.
async fn mark(
    transaction: &mut Transaction<'static, Any>,
    part: &CountedPart,
    now: UnixSeconds,
) -> Result<Mark> {
    let (id, number) = (part.appliance.as_str(), signed(part.number)?);
    let (_, hour) = columns(part.spans[0]);
    let late = signed(now.0.saturating_sub(LATE_EVERY_S))?;
    // `demand_late` in times to come is of a clock that was wrong.
    let query = sqlx::query(
        "UPDATE appliances SET demand_counted = $2, demand_key = $3,
            demand_hour = CASE WHEN demand_hour < $4 THEN $4 ELSE demand_hour END,
            demand_late = CASE WHEN demand_hour < $4 THEN demand_late ELSE $5 END
         WHERE id = $1 AND (demand_counted < $2 OR (demand_key <> $3 AND $5 < demand_counted))
            AND (demand_hour < $4 OR demand_late <= $6 OR $5 < demand_late)",
    );
    let query = query.bind(id).bind(number).bind(&part.key).bind(hour).bind(signed(now.0)?);
    let done = query.bind(late).execute(&mut **transaction).await?;
    if done.rows_affected() == 1 {
        return Ok(Mark::Counted { last: part.number, is_new: true });
    }
    let query = "SELECT demand_counted, demand_key FROM appliances WHERE id = $1";
    let query = sqlx::query_as(query).bind(id);
    let row: Option<(i64, String)> = query.fetch_optional(&mut **transaction).await?;
    let Some((last, key)) = row else { return Ok(Mark::Unknown) };
    let is_counted = number <= last && (key == part.key || last <= signed(now.0)?);
    let counted = Mark::Counted { last: unsigned(last)?, is_new: false };
    Ok(if is_counted { counted } else { Mark::Late })
}

/// Sums with others added. Those that are damaged are lost, which is said: to refuse what comes
/// would lose that too.
fn merged(span: Span, kept: Option<Vec<u8>>, more: &[Sums], bounds: Bounds) -> Vec<u8> {
    let kept = kept.map(|kept| Sums::decode(&kept)).transpose().unwrap_or_else(|error| {
        tracing::error!(%error, ?span, "kept sums of demand are damaged: they begin anew");
        None
    });
    let max = match span {
        Span::Hour(_) => bounds.items_per_hour,
        Span::Day(_) => bounds.items_per_day,
    };
    let mut sums = kept.unwrap_or_default();
    more.iter().for_each(|more| sums.merge(more, max));
    sums.encode()
}

fn columns(span: Span) -> (i64, i64) {
    match span {
        Span::Hour(hour) => (0, i64::from(hour.0)),
        Span::Day(hour) => (1, i64::from(hour.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::id::Item;
    use model::topology::{Appliance, Site, Weight};
    use model::units::Bytes;

    const HOUR: Hour = Hour(24_010);
    const DAY: Span = Span::Day(Hour(24_000));

    /// Long after the last part that was late.
    const NOW: UnixSeconds = UnixSeconds(24_100 * 3600);

    fn part(appliance: &str, number: u64, items: &[(u32, u64)]) -> CountedPart {
        let mut sums = Sums::default();
        items.iter().for_each(|(item, bytes)| sums.add(Item(*item), Bytes(*bytes), usize::MAX));
        let (appliance, region) = (appliance.parse().unwrap(), "-".to_owned());
        let spans = [Span::Hour(HOUR), DAY];
        CountedPart { appliance, key: "k1".to_owned(), number, region, spans, sums }
    }

    /// A part of the first appliance, so many hours later.
    fn later(number: u64, hours: u32) -> CountedPart {
        let spans = [Span::Hour(HOUR.after(hours)), DAY];
        CountedPart { spans, ..part("a1", number, &[(1, 10)]) }
    }

    fn new(last: u64) -> Mark {
        Mark::Counted { last, is_new: true }
    }

    fn again(last: u64) -> Mark {
        Mark::Counted { last, is_new: false }
    }

    async fn with_appliances(folder: &std::path::Path) -> Store {
        let store = Store::of_test(folder).await.unwrap();
        store.put_site(&Site::new("s1".parse().unwrap(), vec![])).await.unwrap();
        for id in ["a1", "a2"] {
            let site = "s1".parse().unwrap();
            let appliance = Appliance::new(id.parse().unwrap(), site, Weight::ONE);
            store.put_appliance(&appliance).await.unwrap();
        }
        store
    }

    async fn known(store: &Store) -> BTreeMap<Span, Vec<(u32, u64)>> {
        let rows = store.demand("-").await.unwrap();
        let listed = |sums: &[u8]| {
            let sums = Sums::decode(sums).unwrap();
            sums.iter().map(|(item, bytes)| (item.0, bytes.0)).collect()
        };
        rows.iter().map(|(span, sums)| (*span, listed(sums))).collect()
    }

    #[tokio::test]
    async fn each_part_is_counted_once_also_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let store = with_appliances(folder.path()).await;
        let bounds = Bounds::default();
        let count =
            async |store: &Store, parts| store.count_demand(parts, bounds, NOW).await.unwrap();
        let parts = vec![part("a1", 5, &[(1, 10)]), part("a2", 3, &[(1, 1), (2, 2)])];
        assert_eq!(count(&store, parts.clone()).await, [new(5), new(3)]);
        assert_eq!(count(&store, parts.clone()).await, [again(5), again(3)]);
        store.close().await;
        let store = Store::of_test(folder.path()).await.unwrap();
        let more = vec![part("a1", 5, &[(1, 10)]), part("a1", 6, &[(1, 4)]), part("a9", 1, &[])];
        assert_eq!(count(&store, more).await, [again(5), new(6), Mark::Unknown]);
        let sums = vec![(1, 15), (2, 2)];
        assert_eq!(known(&store).await, [(Span::Hour(HOUR), sums.clone()), (DAY, sums)].into());
        assert_eq!(store.demand_regions().await.unwrap(), ["-"]);
        let totals =
            async |from, until| store.demand_totals((Hour(from), Hour(until))).await.unwrap();
        assert_eq!(totals(24_000, 24_001).await, [("-".to_owned(), 17)].into());
        assert_eq!((totals(24_001, 30_000).await.len(), totals(0, 24_000).await.len()), (0, 0));
    }

    #[tokio::test]
    async fn each_hour_after_the_last_is_counted_and_of_others_one_in_an_hour() {
        let folder = tempfile::tempdir().unwrap();
        let store = with_appliances(folder.path()).await;
        let count = async |after: u64, parts| {
            let now = UnixSeconds(NOW.0 + after);
            store.count_demand(parts, Bounds::default(), now).await.unwrap()
        };
        let parts = vec![later(1, 0), later(2, 5), later(3, 6), later(4, 6), later(5, 0)];
        assert_eq!(count(0, parts).await, [new(1), new(2), new(3), new(4), Mark::Late]);
        assert_eq!(count(3599, vec![later(5, 2), later(4, 0)]).await, [Mark::Late, again(4)]);
        assert_eq!(count(3599, vec![later(5, 7)]).await, [new(5)], "it is after the last");
        let parts = vec![later(6, 2), later(7, 3), later(8, 8)];
        assert_eq!(count(3600, parts).await, [new(6), Mark::Late, new(8)]);
        assert_eq!(count(3599, vec![later(9, 0)]).await, [new(9)], "a clock was ahead");
        // Seven were counted of this hour and those after it, and one of those was late.
        assert_eq!(known(&store).await[&DAY], [(1, 80)]);
    }

    #[tokio::test]
    async fn a_mark_of_times_to_come_is_of_its_identity_alone() {
        let folder = tempfile::tempdir().unwrap();
        let store = with_appliances(folder.path()).await;
        let last = i64::MAX.unsigned_abs();
        let of = |key: &str, part| CountedPart { key: key.to_owned(), ..part };
        for (part, mark) in [
            (later(last, 0), new(last)),
            (later(NOW.0 - 9, 1), again(last)),
            (of("k2", later(NOW.0 - 9, 1)), new(NOW.0 - 9)),
            (of("k2", later(NOW.0 - 9, 1)), again(NOW.0 - 9)),
            // What the former one had on its way, and the next one again.
            (later(last, 2), new(last)),
            (of("k2", later(NOW.0 - 8, 3)), new(NOW.0 - 8)),
            // The same machine enrols again, and has not heard the answer.
            (of("k3", later(NOW.0 - 8, 3)), again(NOW.0 - 8)),
            (of("k3", later(NOW.0 - 7, 4)), new(NOW.0 - 7)),
        ] {
            let marks = store.count_demand(vec![part], Bounds::default(), NOW).await.unwrap();
            assert_eq!(marks, [mark]);
        }
    }

    #[tokio::test]
    async fn what_is_too_old_is_forgotten_and_damaged_sums_begin_anew() {
        let folder = tempfile::tempdir().unwrap();
        let store = with_appliances(folder.path()).await;
        let bounds = Bounds { items_per_hour: 1, ..Bounds::default() };
        store.count_demand(vec![part("a1", 1, &[(1, 7), (2, 9)])], bounds, NOW).await.unwrap();
        assert_eq!(known(&store).await[&Span::Hour(HOUR)], [(2, 9)], "as many as are kept");
        sqlx::query("UPDATE demand SET sums = $1 WHERE is_day = 1")
            .bind(&b"\x01x"[..])
            .execute(&store.pool)
            .await
            .unwrap();
        store.count_demand(vec![part("a1", 2, &[(1, 1)])], bounds, NOW).await.unwrap();
        assert_eq!(known(&store).await[&DAY], [(1, 1)]);
        let forget = async |now, hours, days| store.forget_demand(now, hours, days).await.unwrap();
        let later = HOUR.after(1);
        assert_eq!(forget(HOUR.after(25), later, later).await, 0, "a clock is ahead");
        assert_eq!(forget(HOUR.after(24), later, Hour(24_000)).await, 1);
        assert_eq!(known(&store).await.into_keys().collect::<Vec<_>>(), [DAY]);
        assert_eq!(forget(HOUR, HOUR, Hour(24_001)).await, 1);
        assert!(known(&store).await.is_empty());
    }
}
