//! The row that says which writer leads, and the fence that every change looks at.

use ::lease::{Answer, Config};
use sqlx::{Any, AnyPool, Transaction};

use super::database::{self, Dialect};
use super::{Result, Store, StoreError, unsigned};
use crate::members::authority::random;
use crate::place::Place;

/// A writer's way to the row.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pool: AnyPool,
    /// This process: another one each time it is started.
    holder: String,
    address: String,
    good_for_ms: i64,
}

impl Row {
    /// None for a database that has one writer.
    pub(crate) async fn open(place: &Place, address: &str) -> Result<Option<Self>> {
        if let Place::Folder(_) = place {
            return Ok(None);
        }
        let (pool, dialect) = database::connect(place, CONNECTIONS).await?;
        dialect.prepare(&pool).await?;
        let holder = model::id::hex(&random::<16>());
        let good_for_ms = i64::try_from(Config::WRITERS.good_for.as_millis()).unwrap_or(i64::MAX);
        Ok(Some(Self { pool, holder, address: address.to_owned(), good_for_ms }))
    }

    /// Takes the lease if it is over; and where the leader is, if that is another. Of one that is
    /// good not even its own holder takes a new epoch: the server may come late to a question that
    /// was given up.
    pub(crate) async fn take(&self) -> Result<(Answer, String)> {
        let query = sqlx::query_scalar(
            "UPDATE lease SET epoch = epoch + 1, holder = $1, address = $2,
                    until = clock_timestamp() + $3 * INTERVAL '1 millisecond'
             WHERE until <= clock_timestamp() RETURNING epoch",
        );
        let query = query.bind(&self.holder).bind(&self.address).bind(self.good_for_ms);
        self.answer(query.fetch_optional(&self.pool).await?).await
    }

    /// Renews the lease of this epoch, unless another has taken it.
    pub(crate) async fn renew(&self, epoch: u64) -> Result<(Answer, String)> {
        let query = sqlx::query_scalar(
            "UPDATE lease SET until = clock_timestamp() + $3 * INTERVAL '1 millisecond'
             WHERE epoch = $1 AND holder = $2 RETURNING epoch",
        );
        let query = query.bind(super::signed(epoch)?).bind(&self.holder).bind(self.good_for_ms);
        self.answer(query.fetch_optional(&self.pool).await?).await
    }

    async fn answer(&self, epoch: Option<i64>) -> Result<(Answer, String)> {
        match epoch {
            Some(epoch) => Ok((Answer::Ours(unsigned(epoch)?), String::new())),
            None => {
                // Who took it and was not told of it does not lead.
                let query = "SELECT CASE WHEN holder = $1 THEN '' ELSE address END FROM lease";
                let query = sqlx::query_scalar(query).bind(&self.holder);
                Ok((Answer::Others, query.fetch_one(&self.pool).await?))
            }
        }
    }

    /// The lease is over as from now.
    pub(crate) async fn give_back(&self, epoch: u64) -> Result<()> {
        let query = "UPDATE lease SET until = clock_timestamp() WHERE epoch = $1 AND holder = $2";
        let query = sqlx::query(query).bind(super::signed(epoch)?).bind(&self.holder);
        query.execute(&self.pool).await?;
        Ok(())
    }

    pub(crate) async fn close(&self) {
        self.pool.close().await;
    }
}

impl Store {
    /// That of the writer that led last; 0 where there is one writer.
    pub(super) async fn newest_epoch(&self) -> Result<u64> {
        match self.dialect {
            Dialect::Sqlite => Ok(0),
            Dialect::Postgres => {
                let query = sqlx::query_scalar("SELECT epoch FROM lease");
                unsigned(query.fetch_one(&self.pool).await?)
            }
        }
    }
}

/// The fence: an error if another writer leads by now; else none can before the transaction ends.
pub(super) async fn check(
    transaction: &mut Transaction<'static, Any>,
    dialect: Dialect,
    ours: u64,
) -> Result<()> {
    assert!(dialect == Dialect::Postgres, "a database with one writer has no lease");
    // The epoch is the key: who changes it waits for those who share it, and a renewal does not.
    let query = sqlx::query_scalar("SELECT epoch FROM lease FOR KEY SHARE");
    let newest = unsigned(query.fetch_one(&mut **transaction).await?)?;
    if newest == ours { Ok(()) } else { Err(StoreError::Deposed { ours, newest }) }
}

/// One asks; one more, in case an answer does not come.
const CONNECTIONS: u32 = 2;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use model::topology::Site;
    use model::units::UnixSeconds;

    use super::*;
    use crate::state::store::AuditEntry;

    /// Two writers' rows; none on SQLite, which has one writer. `./x check postgres` has them.
    async fn two(folder: &std::path::Path) -> Option<(Place, Row, Row)> {
        let place: Place = crate::database::state(folder).parse().unwrap();
        let first = Row::open(&place, "first").await.unwrap()?;
        let second = Row::open(&place, "second").await.unwrap()?;
        Some((place, first, second))
    }

    async fn took(row: &Row) -> u64 {
        match row.take().await.unwrap() {
            (Answer::Ours(epoch), _) => epoch,
            (Answer::Others, leader) => panic!("{leader} has it"),
        }
    }

    fn site(name: &str) -> Site {
        Site::new(name.parse().unwrap(), Vec::new())
    }

    #[tokio::test]
    async fn a_writer_that_was_deposed_changes_nothing_whatever_it_writes() {
        let folder = tempfile::tempdir().unwrap();
        let Some((place, first, second)) = two(folder.path()).await else { return };
        let epoch = took(&first).await;
        assert_eq!(second.take().await.unwrap(), (Answer::Others, "first".to_owned()));
        assert_eq!(first.renew(epoch).await.unwrap().0, Answer::Ours(epoch));
        let ours = Store::open_leading(&place, Some(epoch)).await.unwrap();
        ours.put_site(&site("s1")).await.unwrap();
        first.give_back(epoch).await.unwrap();
        assert_eq!(took(&second).await, epoch + 1, "no epoch is given twice");
        assert_eq!(first.renew(epoch).await.unwrap().0, Answer::Others);
        let refused = |error: StoreError| {
            assert!(matches!(error, StoreError::Deposed { .. }), "{error}");
        };
        refused(ours.put_site(&site("s2")).await.unwrap_err());
        refused(ours.put_ledger(&ours.ledger().await.unwrap()).await.unwrap_err());
        let line = AuditEntry { at: UnixSeconds(1), ..AuditEntry::default() };
        refused(ours.begin_audit(&line).await.unwrap_err());
        assert_eq!(ours.desired().await.unwrap().sites.len(), 1);
    }

    #[tokio::test]
    async fn a_question_of_before_that_comes_late_deposes_nobody_and_is_no_leader() {
        let folder = tempfile::tempdir().unwrap();
        let Some((_place, first, _second)) = two(folder.path()).await else { return };
        let epoch = took(&first).await;
        let late = first.take().await.unwrap();
        assert_eq!(late, (Answer::Others, String::new()), "whoever asks does not lead");
        assert_eq!(first.renew(epoch).await.unwrap(), (Answer::Ours(epoch), String::new()));
    }

    #[tokio::test]
    async fn what_a_leader_said_of_its_documents_is_said_anew_by_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let Some((place, first, second)) = two(folder.path()).await else { return };
        let epoch = took(&first).await;
        let ours = Store::open_leading(&place, Some(epoch)).await.unwrap();
        let behind = Store::connect(&place).await.unwrap();
        assert_eq!(behind.leader_has_place().await.unwrap(), None);
        for has_place in [true, false] {
            ours.put_leader_has_place(has_place).await.unwrap();
            assert_eq!(behind.leader_has_place().await.unwrap(), Some(has_place));
        }
        first.give_back(epoch).await.unwrap();
        took(&second).await;
        assert_eq!(behind.leader_has_place().await.unwrap(), None, "the next has not said so");
    }

    #[tokio::test]
    async fn a_take_over_waits_for_a_change_under_way_but_not_for_a_process_that_is_stopped() {
        let folder = tempfile::tempdir().unwrap();
        let Some((place, first, second)) = two(folder.path()).await else { return };
        for is_stopped in [false, true] {
            let epoch = took(&first).await;
            let ours = Store::open_leading(&place, Some(epoch)).await.unwrap();
            let mut change = ours.begin().await.unwrap();
            let sql = "INSERT INTO sites (id, prefixes) VALUES ($1, '[]')";
            let insert = sqlx::query(sql).bind(is_stopped.to_string());
            insert.execute(&mut *change).await.unwrap();
            first.give_back(epoch).await.unwrap();
            let next = second.clone();
            let taking = tokio::spawn(async move { took(&next).await });
            tokio::time::sleep(Duration::from_millis(300)).await;
            assert!(!taking.is_finished(), "a change is under way");
            let newer = if is_stopped {
                let newer = taking.await.unwrap();
                change.commit().await.unwrap_err();
                newer
            } else {
                change.commit().await.unwrap();
                taking.await.unwrap()
            };
            assert_eq!(newer, epoch + 1);
            let sites = ours.desired().await.unwrap().sites.len();
            assert_eq!(sites, 1, "the first was committed, and the second never was");
            second.give_back(newer).await.unwrap();
        }
    }
}
