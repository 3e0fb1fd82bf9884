//! Tokens and the audit log on disk.

use model::units::UnixSeconds;

use super::{Result, Store, StoreError, signed, unsigned};
use crate::members::access::{Known, Role};

/// A line of the audit log, as it begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AuditEntry {
    pub(crate) at: UnixSeconds,
    /// Id of the token; none for nobody, and where all is open.
    pub(crate) token: Option<String>,
    pub(crate) name: Option<String>,
    /// Its role; none for nobody.
    pub(crate) role: Option<Role>,
    /// Address that asked; none for the command line.
    pub(crate) peer: Option<String>,
    /// HTTP method, or the program's name.
    pub(crate) method: String,
    /// Path with the names of its parts, as the document has it.
    pub(crate) route: String,
    pub(crate) target: String,
    /// HTTP status; none while it is under way, and for ever after a crash.
    pub(crate) outcome: Option<u16>,
    /// The change, or the reason of its refusal.
    pub(crate) summary: String,
}

impl Store {
    pub(crate) async fn tokens(&self) -> Result<Vec<Known>> {
        type Row = (String, String, String, Vec<u8>, i64, Option<i64>);
        let query = sqlx::query_as("SELECT id, name, role, hash, created, last_used FROM tokens");
        let rows: Vec<Row> = query.fetch_all(&self.pool).await?;
        let token = |(id, name, role, hash, created, last_used): Row| {
            Ok(Known {
                role: self::role(&role)?,
                hash: super::fixed(&hash)?,
                created: UnixSeconds(unsigned(created)?),
                last_used: last_used.map(unsigned).transpose()?.map(UnixSeconds),
                id,
                name,
            })
        };
        rows.into_iter().map(token).collect()
    }

    /// Adds a token.
    pub(crate) async fn put_token(&self, token: &Known) -> Result<()> {
        let query = sqlx::query(
            "INSERT INTO tokens (id, name, role, hash, created) VALUES ($1, $2, $3, $4, $5)",
        )
        .bind(&token.id)
        .bind(&token.name)
        .bind(token.role.to_string())
        .bind(token.hash.as_slice())
        .bind(signed(token.created.0)?);
        self.write(query).await
    }

    /// Removes a token.
    pub(crate) async fn delete_token(&self, id: &str) -> Result<()> {
        let query = sqlx::query("DELETE FROM tokens WHERE id = $1").bind(id);
        self.write(query).await
    }

    /// Notes when a token was used.
    pub(crate) async fn put_used(&self, id: &str, at: UnixSeconds) -> Result<()> {
        let query = sqlx::query("UPDATE tokens SET last_used = $2 WHERE id = $1");
        self.write(query.bind(id).bind(signed(at.0)?)).await
    }

    /// Adds a line to the audit log and says its number.
    pub(crate) async fn begin_audit(&self, entry: &AuditEntry) -> Result<i64> {
        let mut transaction = self.begin().await?;
        let id = sqlx::query_scalar(
            "INSERT INTO audit
             (at, token, name, role, peer, method, route, target, outcome, summary)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) RETURNING id",
        )
        .bind(signed(entry.at.0)?)
        .bind(&entry.token)
        .bind(&entry.name)
        .bind(entry.role.map(|role| role.to_string()))
        .bind(&entry.peer)
        .bind(&entry.method)
        .bind(&entry.route)
        .bind(&entry.target)
        .bind(entry.outcome.map(i64::from))
        .bind(&entry.summary)
        .fetch_one(&mut *transaction)
        .await?;
        transaction.commit().await?;
        // The line is durable, so the change may be made; the next multiple cuts the log, too.
        if id % PRUNED_EVERY == 0
            && let Err(error) = self.prune_audit(entry.at).await
        {
            tracing::error!(%error, "the audit log grows beyond its bounds: it could not be cut");
        }
        Ok(id)
    }

    /// Says in the audit log what came of a request.
    pub(crate) async fn end_audit(&self, id: i64, outcome: u16, summary: &str) -> Result<()> {
        let query = sqlx::query("UPDATE audit SET outcome = $2, summary = $3 WHERE id = $1")
            .bind(id)
            .bind(i64::from(outcome))
            .bind(summary);
        self.write(query).await
    }

    /// Lines of the audit log before this number, newest first, with their numbers.
    pub(crate) async fn audit(&self, before: i64, count: u32) -> Result<Vec<(i64, AuditEntry)>> {
        type Row = (
            i64,
            i64,
            Option<String>,
            Option<String>,
            Option<String>,
            Option<String>,
            String,
            String,
            String,
            Option<i64>,
            String,
        );
        let rows: Vec<Row> = sqlx::query_as(
            "SELECT id, at, token, name, role, peer, method, route, target, outcome, summary
             FROM audit WHERE id < $1 ORDER BY id DESC LIMIT $2",
        )
        .bind(before)
        .bind(i64::from(count))
        .fetch_all(&self.pool)
        .await?;
        let entry = |row: Row| {
            let (id, at, token, name, role, peer, method, route, target, outcome, summary) = row;
            let role = role.as_deref().map(self::role).transpose()?;
            let at = UnixSeconds(unsigned(at)?);
            let outcome = outcome.map(status).transpose()?;
            let entry =
                AuditEntry { at, token, name, role, peer, method, route, target, outcome, summary };
            Ok((id, entry))
        };
        rows.into_iter().map(entry).collect()
    }

    /// Keeps the log within its bounds. Each part has its own, so that neither strangers nor
    /// services and viewers can push out what operators or the clock did.
    async fn prune_audit(&self, now: UnixSeconds) -> Result<()> {
        let oldest = now.0.saturating_sub(AUDIT_AGE_MAX_S);
        let query = sqlx::query("DELETE FROM audit WHERE at < $1").bind(signed(oldest)?);
        self.write(query).await?;
        for (whose, most) in AUDIT_ROWS_MAX {
            // The text is ours: one of four.
            let sql = sqlx::AssertSqlSafe(format!(
                "DELETE FROM audit WHERE {whose} AND id <= (SELECT id FROM audit WHERE {whose}
                 ORDER BY id DESC LIMIT 1 OFFSET $1)"
            ));
            self.write(sqlx::query(sql).bind(most)).await?;
        }
        Ok(())
    }
}

fn role(text: &str) -> Result<Role> {
    text.parse().map_err(|error| StoreError::Damaged(format!("a token: {error}")))
}

fn status(number: i64) -> Result<u16> {
    number.try_into().map_err(|_| StoreError::Damaged(format!("{number} is no HTTP status")))
}

/// Lines of strangers, of the clock, of services and viewers, and of all others: 100,000 together,
/// about 20 MB.
const AUDIT_ROWS_MAX: [(&str, i64); 4] = [
    ("role IS NULL AND peer IS NOT NULL", 10_000),
    ("role IS NULL AND peer IS NULL", 10_000),
    ("role IN ('service', 'viewer')", 20_000),
    ("role NOT IN ('service', 'viewer')", 60_000),
];

/// A year, and the time in which somebody looks into it.
const AUDIT_AGE_MAX_S: u64 = 400 * 86_400;

/// The log is cut to its bounds at every so many lines, which it may have beyond them.
const PRUNED_EVERY: i64 = 500;

#[cfg(test)]
mod tests {
    use super::super::database::Dialect;
    use super::*;

    #[tokio::test]
    async fn the_log_is_bounded_and_strangers_push_nobody_out() {
        let state = tempfile::tempdir().unwrap();
        let store = Store::of_test(state.path()).await.unwrap();
        let day = 86_400;
        let now = UnixSeconds(1000 * day);
        let old = UnixSeconds(500 * day);
        store.begin_audit(&entry(old, Some(Role::Admin))).await.unwrap();
        let operators = store.begin_audit(&entry(now, Some(Role::Operator))).await.unwrap();
        let clocks = AuditEntry { peer: None, ..entry(now, None) };
        let clocks = store.begin_audit(&clocks).await.unwrap();
        let services = store.begin_audit(&entry(now, Some(Role::Service))).await.unwrap();
        // As many at once as the API would write in a year.
        fill(&store, now, "NULL", "'192.0.2.1'", 120_000).await;
        store.prune_audit(now).await.unwrap();
        let lines = store.audit(i64::MAX, 200_000).await.unwrap();
        assert_eq!(lines.len(), 10_003);
        assert!(lines.iter().all(|(_, line)| line.at == now), "the old one is gone");
        let oldest = |lines: &[(i64, AuditEntry)], count: usize| -> Vec<i64> {
            lines.iter().rev().take(count).map(|(id, _)| *id).collect()
        };
        assert_eq!(oldest(&lines, 3), [operators, clocks, services], "strangers push none out");
        fill(&store, now, "'service'", "'192.0.2.2'", 120_000).await;
        fill(&store, now, "'viewer'", "'192.0.2.3'", 120_000).await;
        store.prune_audit(now).await.unwrap();
        let lines = store.audit(i64::MAX, 300_000).await.unwrap();
        assert_eq!(oldest(&lines, 2), [operators, clocks], "nor do services and viewers");
        assert_eq!(lines.len(), 30_002);
        fill(&store, now, "'admin'", "NULL", 120_000).await;
        fill(&store, now, "NULL", "NULL", 120_000).await;
        store.prune_audit(now).await.unwrap();
        assert_eq!(store.audit(i64::MAX, 300_000).await.unwrap().len(), 100_000);
        let id = loop {
            let id = store.begin_audit(&entry(now, Some(Role::Admin))).await.unwrap();
            if id % PRUNED_EVERY == 0 {
                break id;
            }
        };
        let lines = store.audit(i64::MAX, 200_000).await.unwrap();
        assert_eq!((lines.len(), lines[0].0), (100_000, id), "new lines keep it bounded");
    }

    #[tokio::test]
    async fn a_log_that_cannot_be_cut_refuses_no_change() {
        let state = tempfile::tempdir().unwrap();
        let store = Store::of_test(state.path()).await.unwrap();
        let keep = match store.dialect {
            Dialect::Sqlite => {
                "CREATE TRIGGER keep BEFORE DELETE ON audit
                 BEGIN SELECT RAISE(ABORT, 'not now'); END"
            }
            Dialect::Postgres => {
                "CREATE FUNCTION keep() RETURNS TRIGGER LANGUAGE plpgsql
                 AS $$ BEGIN RAISE EXCEPTION 'not now'; END $$;
                 CREATE TRIGGER keep BEFORE DELETE ON audit EXECUTE FUNCTION keep()"
            }
        };
        sqlx::raw_sql(keep).execute(&store.pool).await.unwrap();
        let now = UnixSeconds(1000 * 86_400);
        fill(&store, UnixSeconds(0), "'admin'", "NULL", u32::try_from(PRUNED_EVERY).unwrap() - 1)
            .await;
        store.prune_audit(now).await.unwrap_err();
        let id = store.begin_audit(&entry(now, Some(Role::Admin))).await.unwrap();
        assert_eq!(id % PRUNED_EVERY, 0, "it was to be cut");
        assert_eq!(store.audit(i64::MAX, 1).await.unwrap()[0].0, id, "the line is there");
    }

    #[tokio::test]
    async fn a_line_is_there_before_it_has_an_outcome() {
        let state = tempfile::tempdir().unwrap();
        let store = Store::of_test(state.path()).await.unwrap();
        let mut begun = entry(UnixSeconds(7), Some(Role::Admin));
        let id = store.begin_audit(&begun).await.unwrap();
        assert_eq!(store.audit(i64::MAX, 9).await.unwrap(), [(id, begun.clone())]);
        store.end_audit(id, 200, "copies 3").await.unwrap();
        begun.outcome = Some(200);
        begun.summary = "copies 3".to_owned();
        assert_eq!(store.audit(id + 1, 9).await.unwrap(), [(id, begun)]);
        assert!(store.audit(id, 9).await.unwrap().is_empty());
    }

    fn entry(at: UnixSeconds, role: Option<Role>) -> AuditEntry {
        AuditEntry {
            at,
            token: role.map(|_| "0123456789ab".to_owned()),
            name: role.map(|_| "ops".to_owned()),
            role,
            peer: Some("192.0.2.1".to_owned()),
            method: "PUT".to_owned(),
            route: "/v1/policy".to_owned(),
            target: "/v1/policy".to_owned(),
            outcome: None,
            summary: String::new(),
        }
    }

    async fn fill(store: &Store, at: UnixSeconds, role: &str, peer: &str, count: u32) {
        let sql = sqlx::AssertSqlSafe(format!(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})
             INSERT INTO audit (at, role, peer, method, route, target, summary)
             SELECT {}, {role}, {peer}, 'PUT', '/', '/', '' FROM n",
            at.0
        ));
        sqlx::raw_sql(sql).execute(&store.pool).await.unwrap();
    }
}
