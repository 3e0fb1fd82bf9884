//! What operators say of versions: pins, bans and launches.

use director::wishes::{Launch, LaunchLike, Rule, RuleKind, Where, Wishes};
use model::id::{AssetVersionId, SiteId};
use model::units::{Bytes, UnixSeconds};
use sqlx::{Any, AssertSqlSafe, Transaction};

use super::{
    ROWS_AT_ONCE, Result, Store, StoreError, parse, places, signed, unsigned, withdrawals,
};

/// Version, begin, bytes of a day; or another version, and which days of it.
type LaunchRow = (String, i64, Option<i64>, Option<String>, Option<String>);

impl Store {
    pub(super) async fn wishes(&self) -> Result<Wishes> {
        let query = sqlx::query_as("SELECT version, place, kind, until FROM placement_rules");
        let rows: Vec<(String, String, String, Option<i64>)> = query.fetch_all(&self.pool).await?;
        let mut wishes = Wishes::default();
        for (version, place, kind, until) in rows {
            let until = until.map(unsigned).transpose()?.map(UnixSeconds);
            let rule = Rule { kind: kind_of(&kind)?, until };
            wishes.rules.insert((parse(&version)?, place_of(&place)?), rule);
        }
        let query = "SELECT version, begins, day_bytes, other, other_days FROM launches";
        let rows: Vec<LaunchRow> = sqlx::query_as(query).fetch_all(&self.pool).await?;
        for row in rows {
            let (version, launch) = launch_of(row)?;
            wishes.launches.insert(version, launch);
        }
        Ok(wishes)
    }

    /// Operators say this from now on, and nothing else. O(all of it).
    pub(crate) async fn put_wishes(&self, wishes: &Wishes) -> Result<()> {
        let mut transaction = self.begin().await?;
        sqlx::query("DELETE FROM placement_rules").execute(&mut *transaction).await?;
        sqlx::query("DELETE FROM launches").execute(&mut *transaction).await?;
        put_rules(&mut transaction, wishes).await?;
        put_launches(&mut transaction, wishes).await?;
        Ok(transaction.commit().await?)
    }
}

/// Nothing is said any more of a site that is gone.
pub(super) async fn forget_site(
    transaction: &mut Transaction<'_, Any>,
    site: &SiteId,
) -> Result<()> {
    let place = place_name(&Where::Site(site.clone()));
    let query = sqlx::query("DELETE FROM placement_rules WHERE place = $1").bind(place);
    query.execute(&mut **transaction).await?;
    Ok(())
}

async fn put_rules(transaction: &mut Transaction<'_, Any>, wishes: &Wishes) -> Result<()> {
    let rows: Vec<_> = wishes.rules.iter().collect();
    for rows in rows.chunks(ROWS_AT_ONCE) {
        let places = places(rows.len(), 4);
        let sql =
            format!("INSERT INTO placement_rules (version, place, kind, until) VALUES {places}");
        let mut query = sqlx::query(AssertSqlSafe(sql)).persistent(false);
        for ((version, at), rule) in rows {
            query = query.bind(version.as_str()).bind(place_name(at)).bind(kind_name(rule.kind));
            query = query.bind(withdrawals::time(rule.until)?);
        }
        query.execute(&mut **transaction).await?;
    }
    Ok(())
}

async fn put_launches(transaction: &mut Transaction<'_, Any>, wishes: &Wishes) -> Result<()> {
    let rows: Vec<_> = wishes.launches.iter().collect();
    for rows in rows.chunks(ROWS_AT_ONCE) {
        let sql = format!(
            "INSERT INTO launches (version, begins, day_bytes, other, other_days) VALUES {}",
            places(rows.len(), 5)
        );
        let mut query = sqlx::query(AssertSqlSafe(sql)).persistent(false);
        for (version, Launch { begin, like }) in rows {
            let (bytes, other, days) = match like {
                LaunchLike::Bytes(bytes) => (Some(signed(bytes.0)?), None, None),
                LaunchLike::FirstDays(other) => (None, Some(other.as_str()), Some(FIRST)),
                LaunchLike::Present(other) => (None, Some(other.as_str()), Some(PRESENT)),
            };
            query = query.bind(version.as_str()).bind(signed(begin.0)?).bind(bytes);
            query = query.bind(other).bind(days);
        }
        query.execute(&mut **transaction).await?;
    }
    Ok(())
}

const PIN: &str = "pin";
const BAN: &str = "ban";
const FIRST: &str = "first";
const PRESENT: &str = "present";

fn kind_name(kind: RuleKind) -> &'static str {
    match kind {
        RuleKind::Pin => PIN,
        RuleKind::Ban => BAN,
    }
}

fn kind_of(name: &str) -> Result<RuleKind> {
    match name {
        PIN => Ok(RuleKind::Pin),
        BAN => Ok(RuleKind::Ban),
        _ => Err(StoreError::Damaged(format!("{name} is no rule of placement"))),
    }
}

fn place_name(at: &Where) -> String {
    match at {
        Where::Everywhere => String::new(),
        Where::Cluster(id) => format!("cluster {id}"),
        Where::Site(id) => format!("site {id}"),
    }
}

fn place_of(name: &str) -> Result<Where> {
    match name.split_once(' ') {
        None if name.is_empty() => Ok(Where::Everywhere),
        Some(("cluster", id)) => Ok(Where::Cluster(parse(id)?)),
        Some(("site", id)) => Ok(Where::Site(parse(id)?)),
        _ => Err(StoreError::Damaged(format!("{name} is no place of a rule"))),
    }
}

fn launch_of(row: LaunchRow) -> Result<(AssetVersionId, Launch)> {
    let (version, begins, bytes, other, days) = row;
    let like = match (bytes, other, days.as_deref()) {
        (Some(bytes), None, None) => LaunchLike::Bytes(Bytes(unsigned(bytes)?)),
        (None, Some(other), Some(FIRST)) => LaunchLike::FirstDays(parse(&other)?),
        (None, Some(other), Some(PRESENT)) => LaunchLike::Present(parse(&other)?),
        _ => return Err(StoreError::Damaged(format!("the launch of {version} is like nothing"))),
    };
    Ok((parse(&version)?, Launch { begin: UnixSeconds(unsigned(begins)?), like }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[tokio::test]
    async fn what_operators_say_is_there_after_a_restart_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::of_test(folder.path()).await.unwrap();
        assert_eq!(*store.desired().await.unwrap().wishes, Wishes::default());
        let [one, two, three]: [AssetVersionId; 3] =
            ["film-1", "film-2", "film-3"].map(|version| version.parse().unwrap());
        let places = [
            Where::Everywhere,
            Where::Cluster("north".parse().unwrap()),
            Where::Site("s1".parse().unwrap()),
        ];
        let rule = |kind, until| Rule { kind, until };
        let mut rules: BTreeMap<_, _> = places
            .into_iter()
            .map(|at| ((one.clone(), at), rule(RuleKind::Pin, Some(UnixSeconds(7)))))
            .collect();
        rules.insert((two.clone(), Where::Everywhere), rule(RuleKind::Ban, None));
        let launch = |like| Launch { begin: UnixSeconds(1_800_000_000), like };
        let launches = [
            (one.clone(), launch(LaunchLike::Bytes(Bytes(1 << 60)))),
            (two.clone(), launch(LaunchLike::FirstDays(one.clone()))),
            (three.clone(), launch(LaunchLike::Present(one.clone()))),
        ];
        let wishes = Wishes { rules, launches: launches.into() };
        store.put_wishes(&wishes).await.unwrap();
        store.close().await;
        let store = Store::of_test(folder.path()).await.unwrap();
        assert_eq!(*store.desired().await.unwrap().wishes, wishes);
        store.delete_site(&"s1".parse().unwrap()).await.unwrap();
        let left = store.wishes().await.unwrap().rules;
        assert_eq!(left.len(), 3, "a site takes along what was said of it: {left:?}");
        assert!(!left.keys().any(|(_, at)| matches!(at, Where::Site(_))));
        store.put_wishes(&Wishes::default()).await.unwrap();
        assert_eq!(store.wishes().await.unwrap(), Wishes::default());
    }
}
