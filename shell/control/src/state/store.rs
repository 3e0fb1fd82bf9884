//! Desired state on disk: SQLite or PostgreSQL, flushed at every commit. The writer's alone.
//!
//! Every query is a function here. Numbers are checked on their way in and out: a database's are
//! signed.

mod access;
mod database;
mod identities;
pub(crate) mod lease;
mod playbacks;
mod replica;
mod secrets;
mod withdrawals;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use director::drain::Drain;
use director::{
    Catalog, Desired, Digest, Entry, Format, Hardware, Ledger, LedgerEntry, Policy, Registered,
    Version, Window,
};
use model::id::{ApplianceId, AssetVersionId, Generation, ObjectId, SiteId};
use model::manifest::{AssetVersion, File};
use model::number::OWN_FILES;
use model::object::{BlockHash, Blocks};
use model::topology::{Appliance, Prefix, Site, Weight};
use model::units::{Bytes, UnixSeconds};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::any::AnyArguments;
use sqlx::query::Query;
use sqlx::{Any, AnyPool, Transaction};
use wire::convert::site_with;
use wire::v1::site::SiteAbout;

use crate::place::Place;
pub(crate) use access::AuditEntry;
use database::Dialect;
pub(crate) use withdrawals::reason_name;

/// The database.
#[derive(Clone, Debug)]
pub struct Store {
    pool: AnyPool,
    dialect: Dialect,
    /// That of the lease with which this process writes; none where there is no other.
    epoch: Option<u64>,
}

/// Why something could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the database: {0}")]
    Database(#[from] sqlx::Error),
    #[error("state: this is no address of a database: write postgres://USER@HOST/DATABASE")]
    Url,
    #[error("the database {0} cannot be named: use a path in UTF-8")]
    Path(PathBuf),
    #[error(
        "the database has schema {found} and this program knows {known}: run the newer program"
    )]
    Newer { found: i64, known: usize },
    #[error(
        "another writer leads: its epoch is {newest}, and this one's was {ours}. Ask the other; \
         nothing was changed"
    )]
    Deposed { ours: u64, newest: u64 },
    #[error("the database is damaged: {0}; restore it from a backup")]
    Damaged(String),
    #[error(
        "no numbers are left for files: 2,147,483,648 were given, and none is given twice. Begin a \
         new state directory, and ingest what is shown"
    )]
    NoNumbers,
}

type Result<T> = std::result::Result<T, StoreError>;

impl Store {
    /// Opens the database, making and migrating it as needed.
    pub async fn open(place: &Place) -> Result<Self> {
        let store = Self::connect(place).await?;
        store.migrate().await?;
        Ok(store)
    }

    /// Connects to a database that another may be writing to, and whose schema is not newer than
    /// what this program knows.
    pub(crate) async fn connect(place: &Place) -> Result<Self> {
        let (pool, dialect) = database::connect(place, CONNECTIONS_MAX).await?;
        dialect.prepare(&pool).await?;
        let store = Self { pool, dialect, epoch: None };
        store.migrations_done().await?;
        Ok(store)
    }

    /// Opens the database for the writer that leads with this epoch: every change is refused once
    /// another does.
    pub(crate) async fn open_leading(place: &Place, epoch: Option<u64>) -> Result<Self> {
        let store = Self { epoch, ..Self::connect(place).await? };
        store.migrate().await?;
        Ok(store)
    }

    /// Waits until all is written and closes.
    pub async fn close(&self) {
        self.pool.close().await;
    }

    /// How many migrations were done.
    async fn migrations_done(&self) -> Result<usize> {
        let found = self.dialect.schema(&self.pool).await?;
        let done = usize::try_from(found).unwrap_or(usize::MAX);
        let known = MIGRATIONS.len();
        if known < done { Err(StoreError::Newer { found, known }) } else { Ok(done) }
    }

    async fn migrate(&self) -> Result<()> {
        let done = self.migrations_done().await?;
        for (sql, version) in MIGRATIONS.iter().zip(1_i64..).skip(done) {
            self.dialect.migrate(self.begin().await?, sql, version).await?;
        }
        Ok(())
    }

    /// Every change is in a transaction that begins here.
    async fn begin(&self) -> Result<Transaction<'static, Any>> {
        let mut transaction = self.pool.begin().await?;
        if let Some(epoch) = self.epoch {
            lease::check(&mut transaction, self.dialect, epoch).await?;
        }
        Ok(transaction)
    }

    /// A change of one statement.
    async fn write(&self, query: Query<'_, Any, AnyArguments>) -> Result<()> {
        let mut transaction = self.begin().await?;
        query.execute(&mut *transaction).await?;
        Ok(transaction.commit().await?)
    }

    /// Desired state, without keys and identities.
    pub async fn desired(&self) -> Result<Desired> {
        Ok(Desired {
            sites: Arc::new(self.sites().await?),
            appliances: Arc::new(self.appliances().await?),
            catalog: Arc::new(self.catalog().await?),
            playbacks: self.playbacks().await?,
            policy: Policy {
                copies: self.meta("copies").await?,
                versions_kept: self.meta("versions_kept").await?,
            },
            token_keys: Vec::new(),
            token_rotation: director::TokenRotation::default(),
            signing_keys: Vec::new(),
            withdrawals: self.withdrawals().await?,
            revoked: BTreeSet::new(),
        })
    }

    /// Which manifest has which generation.
    pub async fn ledger(&self) -> Result<Ledger> {
        type Row = (String, i64, Vec<u8>);
        let rows: Vec<Row> = sqlx::query_as(
            "SELECT id, generation, digest FROM appliances WHERE generation IS NOT NULL",
        )
        .fetch_all(&self.pool)
        .await?;
        let entry = |(id, generation, digest): Row| {
            let entry = LedgerEntry {
                generation: Generation(unsigned(generation)?),
                digest: Digest(fixed(&digest)?),
            };
            Ok((parse(&id)?, entry))
        };
        Ok(Ledger {
            generation: Generation(self.meta("generation").await?),
            entries: rows.into_iter().map(entry).collect::<Result<_>>()?,
        })
    }

    /// Makes a site new or different.
    pub async fn put_site(&self, site: &Site) -> Result<()> {
        let prefixes: Vec<String> = site.prefixes.iter().map(ToString::to_string).collect();
        let query = sqlx::query(
            "INSERT INTO sites (id, prefixes, about) VALUES ($1, $2, $3)
             ON CONFLICT (id) DO UPDATE SET prefixes = $2, about = $3",
        )
        .bind(site.id.as_str())
        .bind(json(&prefixes))
        .bind(json(&SiteAbout::from(site)));
        self.write(query).await
    }

    /// Removes a site. The caller knows that no appliance stands in it.
    pub async fn delete_site(&self, id: &SiteId) -> Result<()> {
        let query = sqlx::query("DELETE FROM sites WHERE id = $1").bind(id.as_str());
        self.write(query).await
    }

    /// Registers an appliance, or changes its site and weight.
    pub async fn put_appliance(&self, appliance: &Appliance) -> Result<()> {
        let query = sqlx::query(
            "INSERT INTO appliances (id, site, weight, addresses) VALUES ($1, $2, $3, $4)
             ON CONFLICT (id) DO UPDATE SET site = $2, weight = $3, addresses = $4",
        )
        .bind(appliance.id.as_str())
        .bind(appliance.site.as_str())
        .bind(i64::from(appliance.weight.value()))
        .bind(serde_json::to_string(&appliance.addresses).expect("addresses make JSON"));
        self.write(query).await
    }

    /// Removes an appliance.
    pub async fn delete_appliance(&self, id: &ApplianceId) -> Result<()> {
        let mut transaction = self.begin().await?;
        let query = sqlx::query("DELETE FROM appliances WHERE id = $1").bind(id.as_str());
        query.execute(&mut *transaction).await?;
        withdrawals::await_no_more(&mut transaction, id).await?;
        Ok(transaction.commit().await?)
    }

    /// Notes what an appliance's drives can hold.
    pub async fn put_usable(&self, id: &ApplianceId, usable: Bytes) -> Result<()> {
        let query = sqlx::query("UPDATE appliances SET usable = $2 WHERE id = $1")
            .bind(id.as_str())
            .bind(signed(usable.0)?);
        self.write(query).await
    }

    /// Notes what an appliance runs on.
    pub async fn put_hardware(&self, id: &ApplianceId, hardware: &Hardware) -> Result<()> {
        let drives: Vec<String> = hardware.drives.iter().cloned().collect();
        let query = sqlx::query("UPDATE appliances SET machine = $2, drives = $3 WHERE id = $1")
            .bind(id.as_str())
            .bind(&hardware.machine)
            .bind(json(&drives));
        self.write(query).await
    }

    /// Notes that two machines report as one appliance, or do no more.
    pub async fn put_cloned(&self, id: &ApplianceId, cloned: bool) -> Result<()> {
        let query = sqlx::query("UPDATE appliances SET cloned = $2 WHERE id = $1");
        self.write(query.bind(id.as_str()).bind(i64::from(cloned))).await
    }

    /// Notes that an appliance is to be drained, or not any more.
    pub async fn put_drain(&self, id: &ApplianceId, drain: Option<Drain>) -> Result<()> {
        let query =
            sqlx::query("UPDATE appliances SET drain_from = $2, drain_until = $3 WHERE id = $1")
                .bind(id.as_str())
                .bind(withdrawals::time(drain.map(|drain| drain.from))?)
                .bind(withdrawals::time(drain.and_then(|drain| drain.until))?);
        self.write(query).await
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
        Ok(transaction.commit().await?)
    }

    pub async fn put_policy(&self, policy: Policy) -> Result<()> {
        let mut transaction = self.begin().await?;
        put_meta(&mut transaction, "copies", u64::from(policy.copies)).await?;
        put_meta(&mut transaction, "versions_kept", u64::from(policy.versions_kept)).await?;
        Ok(transaction.commit().await?)
    }

    /// Adds a version with the blocks of its objects, or changes its sequence, sources and times.
    /// The first number of its files, which it had or is given now.
    pub async fn put_version(&self, version: &Version, blocks: &[Blocks]) -> Result<u32> {
        let mut transaction = self.begin().await?;
        let files = &version.files;
        let first_file = match version.first_file {
            Some(first) => first,
            None => take_numbers(&mut transaction, version.objects().len()).await?,
        };
        sqlx::query(
            "INSERT INTO versions (id, asset, sequence, modified, sources, shown_from, shown_until,
                                   renditions, first_file)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
             ON CONFLICT (id) DO UPDATE
             SET sequence = $3, sources = $5, shown_from = $6, shown_until = $7, renditions = $8",
        )
        .bind(files.id.as_str())
        .bind(files.asset.as_str())
        .bind(signed(version.sequence)?)
        .bind(signed(files.modified.0)?)
        .bind(json(&files.sources))
        .bind(withdrawals::time(version.window.from)?)
        .bind(withdrawals::time(version.window.until)?)
        .bind(version.renditions().of_files())
        .bind(i64::from(first_file))
        .execute(&mut *transaction)
        .await?;
        withdrawals::take_again(&mut transaction, &files.id).await?;
        for blocks in blocks {
            put_object(&mut transaction, blocks).await?;
        }
        for (path, file) in &files.files {
            sqlx::query(
                "INSERT INTO files (version, path, object, content_type)
                         VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
            )
            .bind(files.id.as_str())
            .bind(path)
            .bind(file.object.0.as_slice())
            .bind(&file.content_type)
            .execute(&mut *transaction)
            .await?;
        }
        for entry in &version.entries {
            sqlx::query(
                "INSERT INTO entries (version, path, format, text)
                         VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
            )
            .bind(files.id.as_str())
            .bind(&entry.path)
            .bind(format_name(entry.format))
            .bind(&*entry.text)
            .execute(&mut *transaction)
            .await?;
        }
        transaction.commit().await?;
        Ok(first_file)
    }

    /// The block hashes of an object, 32 bytes each; none if there is no such object.
    pub async fn blocks(&self, id: &ObjectId) -> Result<Option<Vec<u8>>> {
        let query = sqlx::query_scalar("SELECT blocks FROM objects WHERE id = $1");
        Ok(query.bind(id.0.as_slice()).fetch_optional(&self.pool).await?)
    }

    /// The blocks of an object, proved; none if there is no such object.
    pub async fn proved_blocks(&self, id: ObjectId, len: Bytes) -> Result<Option<Blocks>> {
        let Some(bytes) = self.blocks(&id).await? else { return Ok(None) };
        let (hashes, _) = bytes.as_chunks::<32>();
        let hashes = hashes.iter().map(|hash| BlockHash(*hash)).collect();
        Blocks::prove(id, len, hashes).map(Some).map_err(|error| damaged(&error))
    }

    async fn meta<T: TryFrom<i64>>(&self, key: &str) -> Result<T> {
        let query = sqlx::query_scalar("SELECT value FROM meta WHERE key = $1");
        let value: i64 = query.bind(key).fetch_one(&self.pool).await?;
        value.try_into().map_err(|_| StoreError::Damaged(format!("{key} is {value}")))
    }

    async fn sites(&self) -> Result<BTreeMap<SiteId, Site>> {
        let query = sqlx::query_as("SELECT id, prefixes, about FROM sites");
        let rows: Vec<(String, String, String)> = query.fetch_all(&self.pool).await?;
        let site = |(id, prefixes, about): (String, String, String)| {
            let id: SiteId = parse(&id)?;
            let prefixes: Vec<String> = from_json(&prefixes)?;
            let prefixes = prefixes
                .iter()
                .map(|prefix| prefix.parse::<Prefix>().map_err(|error| damaged(&error)));
            let site = Site::new(id.clone(), prefixes.collect::<Result<_>>()?);
            let about: SiteAbout = from_json(&about)?;
            Ok((id, site_with(site, &about).map_err(|error| damaged(&error))?))
        };
        rows.into_iter().map(site).collect()
    }

    async fn appliances(&self) -> Result<BTreeMap<ApplianceId, Registered>> {
        type Row = (
            String,
            String,
            i64,
            Option<i64>,
            i64,
            Option<String>,
            Option<String>,
            String,
            Option<i64>,
            Option<i64>,
        );
        let rows: Vec<Row> = sqlx::query_as(
            "SELECT id, site, weight, usable, cloned, machine, drives, addresses, drain_from,
                    drain_until
             FROM appliances",
        )
        .fetch_all(&self.pool)
        .await?;
        let registered = |row: Row| {
            let (id, site, weight, usable, cloned, machine, drives, addresses, from, until) = row;
            let id: ApplianceId = parse(&id)?;
            let weight = u32::try_from(weight)
                .ok()
                .and_then(Weight::new)
                .ok_or_else(|| StoreError::Damaged(format!("{id} has a weight of {weight}")))?;
            let appliance = Appliance {
                id: id.clone(),
                site: parse(&site)?,
                weight,
                addresses: from_json(&addresses)?,
            };
            let usable = usable.map(unsigned).transpose()?.map(Bytes);
            let drives =
                drives.as_deref().map(from_json::<Vec<String>>).transpose()?.unwrap_or_default();
            let drives = drives.into_iter().collect();
            let hardware = machine.map(|machine| Arc::new(Hardware { machine, drives }));
            let Window { from, until } = withdrawals::window(from, until)?;
            let drain = from.map(|from| Drain { from, until });
            let cloned = cloned != 0;
            Ok((id, Registered { appliance, usable, hardware, cloned, drain }))
        };
        rows.into_iter().map(registered).collect()
    }

    async fn catalog(&self) -> Result<Catalog> {
        type Row = (String, String, i64, i64, String, Option<i64>, Option<i64>, Vec<u8>, i64);
        let query = sqlx::query_as(
            "SELECT id, asset, sequence, modified, sources, shown_from, shown_until, renditions,
                    first_file
             FROM versions",
        );
        let rows: Vec<Row> = query.fetch_all(&self.pool).await?;
        let mut files = self.files().await?;
        let mut entries = self.entries().await?;
        let mut catalog = Catalog::default();
        for row in rows {
            let (id, asset, sequence, modified, sources, from, until, renditions, first_file) = row;
            let id: AssetVersionId = parse(&id)?;
            let version = AssetVersion {
                asset: parse(&asset)?,
                sources: from_json(&sources)?,
                modified: UnixSeconds(unsigned(modified)?),
                pace: None,
                files: files.remove(&id).unwrap_or_default(),
                id: id.clone(),
            };
            let entries = entries.remove(&id).unwrap_or_default();
            let version = Version::new(Arc::new(version), entries, unsigned(sequence)?);
            let first_file = u32::try_from(first_file).map_err(|error| damaged(&error))?;
            let version = version.divided(renditions).numbered(Some(first_file));
            catalog.put(Arc::new(version.shown(withdrawals::window(from, until)?)));
        }
        Ok(catalog)
    }

    async fn files(&self) -> Result<BTreeMap<AssetVersionId, BTreeMap<String, File>>> {
        type Row = (String, String, Vec<u8>, i64, String);
        let rows: Vec<Row> = sqlx::query_as(
            "SELECT version, path, object, len, content_type
             FROM files JOIN objects ON objects.id = files.object",
        )
        .fetch_all(&self.pool)
        .await?;
        let mut versions: BTreeMap<_, BTreeMap<String, File>> = BTreeMap::new();
        for (version, path, object, len, content_type) in rows {
            let object = ObjectId(fixed(&object)?);
            let file = File { object, len: Bytes(unsigned(len)?), content_type };
            versions.entry(parse(&version)?).or_default().insert(path, file);
        }
        Ok(versions)
    }

    async fn entries(&self) -> Result<BTreeMap<AssetVersionId, Vec<Entry>>> {
        let query = sqlx::query_as("SELECT version, path, format, text FROM entries");
        let rows: Vec<(String, String, String, String)> = query.fetch_all(&self.pool).await?;
        let mut versions: BTreeMap<_, Vec<Entry>> = BTreeMap::new();
        for (version, path, format, text) in rows {
            let format = match format.as_str() {
                "hls" => Format::Hls,
                "dash" => Format::Dash,
                other => return Err(StoreError::Damaged(format!("{path} has format {other}"))),
            };
            let entry = Entry { path, format, text: text.into() };
            versions.entry(parse(&version)?).or_default().push(entry);
        }
        // Each database has an order of its own for letters.
        versions.values_mut().for_each(|entries| entries.sort_by(|a, b| a.path.cmp(&b.path)));
        Ok(versions)
    }
}

async fn put_object(transaction: &mut Transaction<'_, Any>, blocks: &Blocks) -> Result<()> {
    sqlx::query("INSERT INTO objects (id, len, blocks) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING")
        .bind(blocks.id().0.as_slice())
        .bind(signed(blocks.len().0)?)
        .bind(wire::v1::blocks::encode(blocks))
        .execute(&mut **transaction)
        .await?;
    Ok(())
}

/// Numbers for so many files: the first of them.
async fn take_numbers(transaction: &mut Transaction<'_, Any>, count: usize) -> Result<u32> {
    let query = "UPDATE meta SET value = value + $1 WHERE key = 'next_file' RETURNING value";
    let query = sqlx::query_scalar(query).bind(signed(Bytes::of(count).0)?);
    let end: i64 = query.fetch_one(&mut **transaction).await?;
    let count = u32::try_from(count).map_err(|_| StoreError::NoNumbers)?;
    let end = u32::try_from(end).ok().filter(|end| *end <= OWN_FILES);
    end.and_then(|end| end.checked_sub(count)).ok_or(StoreError::NoNumbers)
}

async fn put_meta(transaction: &mut Transaction<'_, Any>, key: &str, value: u64) -> Result<()> {
    sqlx::query("UPDATE meta SET value = $2 WHERE key = $1")
        .bind(key)
        .bind(signed(value)?)
        .execute(&mut **transaction)
        .await?;
    Ok(())
}

fn format_name(format: Format) -> &'static str {
    match format {
        Format::Hls => "hls",
        Format::Dash => "dash",
    }
}

fn json<T: Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).expect("names and numbers always become JSON")
}

fn from_json<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| damaged(&error))
}

fn parse<T: std::str::FromStr<Err = model::id::IdError>>(text: &str) -> Result<T> {
    text.parse().map_err(|error| damaged(&error))
}

fn fixed(bytes: &[u8]) -> Result<[u8; 32]> {
    bytes.try_into().map_err(|_| StoreError::Damaged("an id has not 32 bytes".to_owned()))
}

fn unsigned(number: i64) -> Result<u64> {
    number.try_into().map_err(|_| StoreError::Damaged(format!("{number} is negative")))
}

fn signed(number: u64) -> Result<i64> {
    number.try_into().map_err(|_| StoreError::Damaged(format!("{number} is too large to store")))
}

fn damaged(error: &dyn std::fmt::Display) -> StoreError {
    StoreError::Damaged(error.to_string())
}

/// In order; each runs once. Never changed after a release.
const MIGRATIONS: &[&str] = &[
    include_str!("../../migrations/0001_desired_state.sql"),
    include_str!("../../migrations/0002_identities.sql"),
    include_str!("../../migrations/0003_access.sql"),
    include_str!("../../migrations/0004_replica.sql"),
    include_str!("../../migrations/0005_playbacks.sql"),
    include_str!("../../migrations/0006_withdrawals.sql"),
    include_str!("../../migrations/0007_public_assets.sql"),
    include_str!("../../migrations/0008_addresses.sql"),
    include_str!("../../migrations/0009_sites.sql"),
    include_str!("../../migrations/0010_drains.sql"),
    include_str!("../../migrations/0011_renditions.sql"),
    include_str!("../../migrations/0012_numbers.sql"),
];

/// One writes, the others read block hashes for appliances that fill.
const CONNECTIONS_MAX: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    use std::path::Path;

    use model::topology::{Place, SiteKind};

    impl Store {
        /// The database of a test.
        pub(crate) async fn of_test(folder: &Path) -> Result<Self> {
            Self::open(&crate::database::state(folder).parse().unwrap()).await
        }

        /// SQLite, whatever other tests have.
        async fn sqlite(folder: &Path) -> Result<Self> {
            Self::open(&crate::place::Place::Folder(folder.to_owned())).await
        }

        /// Changes a database behind everybody's back. By connections of its own: one that was
        /// there before a migration knows no column of it until it has read something.
        async fn change(state: &Path, sql: &str) {
            let store = Self::sqlite(state).await.unwrap();
            sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&store.pool).await.unwrap();
            store.close().await;
        }

        /// Makes every write of generations and policy fail, or work again.
        pub(crate) async fn hide_meta(&self, hide: bool) {
            let sql = match hide {
                true => "ALTER TABLE meta RENAME TO hidden",
                false => "ALTER TABLE hidden RENAME TO meta",
            };
            sqlx::raw_sql(sql).execute(&self.pool).await.unwrap();
        }
    }

    impl Store {
        /// Makes every look at identities fail, or work again.
        pub(crate) async fn hide_identities(&self, hide: bool) {
            let sql = match hide {
                true => "ALTER TABLE identities RENAME TO hidden_identities",
                false => "ALTER TABLE hidden_identities RENAME TO identities",
            };
            sqlx::raw_sql(sql).execute(&self.pool).await.unwrap();
        }

        /// Makes every write to the audit log fail.
        pub(crate) async fn hide_audit(&self) {
            let sql = "ALTER TABLE audit RENAME TO hidden_audit";
            sqlx::raw_sql(sql).execute(&self.pool).await.unwrap();
        }
    }

    #[tokio::test]
    async fn what_is_written_is_there_after_opening_again() {
        let state = tempfile::tempdir().unwrap();
        let store = Store::of_test(state.path()).await.unwrap();
        let site = Site::new(id("s1"), vec!["10.0.0.0/8".parse().unwrap()]);
        let place = Place { country: Some("DE".into()), ..Place::default() };
        let site = Site { kind: SiteKind::Embedded, place: Some(place), open: true, ..site };
        let appliance = Appliance {
            id: id("a1"),
            site: site.id.clone(),
            weight: Weight::ONE,
            addresses: Vec::new(),
        };
        let policy = Policy { copies: 3, versions_kept: 1 };
        let entry = LedgerEntry { generation: Generation(7), digest: Digest([3; 32]) };
        let entries = BTreeMap::from([(appliance.id.clone(), entry)]);
        let ledger = Ledger { generation: Generation(9), entries };
        let blocks = Blocks::of_hashes(Bytes(5), vec![BlockHash([8; 32])]).unwrap();
        let version = version(&blocks);
        store.put_site(&site).await.unwrap();
        store.put_appliance(&appliance).await.unwrap();
        store.put_usable(&appliance.id, Bytes(1 << 50)).await.unwrap();
        let drives = ["d1".to_owned(), "d2".to_owned()].into();
        let hardware = Hardware { machine: "m1".to_owned(), drives };
        store.put_hardware(&appliance.id, &hardware).await.unwrap();
        store.put_cloned(&appliance.id, true).await.unwrap();
        let drain = Drain { from: UnixSeconds(100), until: Some(UnixSeconds(200)) };
        store.put_drain(&appliance.id, Some(drain)).await.unwrap();
        store.put_policy(policy).await.unwrap();
        store.put_version(&version, std::slice::from_ref(&blocks)).await.unwrap();
        store.put_ledger(&ledger).await.unwrap();
        let (lecture, other) = (id("lecture"), id("other"));
        for (asset, is_public) in [(&lecture, true), (&other, true), (&other, false)] {
            store.put_public(asset, is_public).await.unwrap();
        }
        let session = |byte| playback::token::Session::of_random([byte; 12]);
        for (byte, until, now) in [(1, 100, 0), (2, 300, 99), (3, 300, 100)] {
            let (until, now) = (UnixSeconds(until), UnixSeconds(now));
            store.put_revoked_session(&session(byte), until, now).await.unwrap();
        }
        store.close().await;

        let store = Store::of_test(state.path()).await.unwrap();
        let desired = store.desired().await.unwrap();
        assert_eq!(desired.sites[&site.id], site);
        let usable = Some(Bytes(1 << 50));
        let hardware = Some(Arc::new(hardware));
        let registered =
            Registered { appliance, usable, hardware, cloned: true, drain: Some(drain) };
        assert_eq!(desired.appliances[&registered.appliance.id], registered);
        assert_eq!(desired.policy, policy);
        let revoked = [2, 3].map(|byte| (session(byte), UnixSeconds(300)));
        let playbacks = director::Playbacks::new([lecture].into(), revoked.into());
        assert_eq!(desired.playbacks, playbacks, "the first session had ended by itself");
        let version = version.numbered(Some(0));
        assert_eq!(**desired.catalog.version(version.id()).unwrap(), version);
        assert_eq!(store.ledger().await.unwrap(), ledger);
        assert_eq!(store.blocks(&blocks.id()).await.unwrap(), Some(vec![8; 32]));
        assert_eq!(store.blocks(&ObjectId([0; 32])).await.unwrap(), None);
    }

    #[tokio::test]
    async fn every_commit_is_flushed_and_readers_do_not_wait() {
        let state = tempfile::tempdir().unwrap();
        let store = Store::sqlite(state.path()).await.unwrap();
        let mode: String =
            sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&store.pool).await.unwrap();
        let synchronous: i64 =
            sqlx::query_scalar("PRAGMA synchronous").fetch_one(&store.pool).await.unwrap();
        assert_eq!((mode.as_str(), synchronous), ("wal", 2), "2 is FULL");
    }

    #[tokio::test]
    async fn who_was_public_without_a_version_is_so_no_more() {
        let state = tempfile::tempdir().unwrap();
        let store = Store::sqlite(state.path()).await.unwrap();
        let blocks = Blocks::of_hashes(Bytes(5), vec![BlockHash([8; 32])]).unwrap();
        let version = version(&blocks);
        store.put_version(&version, std::slice::from_ref(&blocks)).await.unwrap();
        let film = version.files.asset.clone();
        for asset in [&film, &id("gone")] {
            store.put_public(asset, true).await.unwrap();
        }
        store.close().await;
        // As the program before left it.
        let before = "ALTER TABLE versions DROP COLUMN renditions;
                      ALTER TABLE versions DROP COLUMN first_file;
                      DELETE FROM meta WHERE key = 'next_file';
                      ALTER TABLE appliances DROP COLUMN drain_from;
                      ALTER TABLE appliances DROP COLUMN drain_until;
                      ALTER TABLE sites DROP COLUMN about;
                      ALTER TABLE appliances DROP COLUMN addresses; PRAGMA user_version = 6";
        Store::change(state.path(), before).await;
        let store = Store::sqlite(state.path()).await.unwrap();
        let desired = store.desired().await.unwrap();
        assert_eq!(desired.playbacks.public(), &[film].into());
    }

    #[tokio::test]
    async fn a_site_of_the_program_before_is_an_exchange_nobody_knows_where() {
        let state = tempfile::tempdir().unwrap();
        let store = Store::sqlite(state.path()).await.unwrap();
        store.close().await;
        // As that program wrote it.
        let before = "ALTER TABLE versions DROP COLUMN renditions;
                      ALTER TABLE versions DROP COLUMN first_file;
                      DELETE FROM meta WHERE key = 'next_file';
                      ALTER TABLE appliances DROP COLUMN drain_from;
                      ALTER TABLE appliances DROP COLUMN drain_until;
                      ALTER TABLE sites DROP COLUMN about; PRAGMA user_version = 8;
                      INSERT INTO sites (id, prefixes) VALUES ('s1', '[\"10.0.0.0/8\"]')";
        Store::change(state.path(), before).await;
        let store = Store::sqlite(state.path()).await.unwrap();
        let site = Site::new(id("s1"), vec!["10.0.0.0/8".parse().unwrap()]);
        assert_eq!(*store.desired().await.unwrap().sites, [(site.id.clone(), site)].into());
    }

    #[tokio::test]
    async fn a_database_that_an_older_program_wrote_is_read() {
        let state = tempfile::tempdir().unwrap();
        let place = crate::place::Place::Folder(state.path().to_owned());
        let (pool, _) = database::connect(&place, 1).await.unwrap();
        let written = include_str!("store/of_2026-11-25.sql");
        sqlx::raw_sql(written).execute(&pool).await.unwrap();
        pool.close().await;
        let store = Store::sqlite(state.path()).await.unwrap();
        let desired = store.desired().await.unwrap();
        let (appliance, asset): (ApplianceId, model::id::AssetId) = (id("a1"), id("film"));
        let known = &desired.appliances[&appliance];
        assert_eq!(known.appliance.site.as_str(), "s1");
        assert_eq!(known.usable, Some(Bytes(1_000_000)));
        assert_eq!(known.drain, Some(Drain { from: UnixSeconds(100), until: None }));
        assert_eq!(desired.policy, Policy { copies: 3, versions_kept: 2 });
        let [version] = desired.catalog.versions(&asset) else { panic!("one version") };
        assert_eq!(version.files.files["v.mp4"].len, Bytes(5));
        assert_eq!((version.window.from, version.entries.len()), (Some(UnixSeconds(50)), 1));
        assert!(desired.playbacks.public().contains(&asset));
        let ledger = store.ledger().await.unwrap();
        assert_eq!(ledger.entries[&appliance].generation, Generation(1_790_000_000));
        assert_eq!((store.tokens().await.unwrap().len(), ledger.generation.0), (1, 1_790_000_000));
        assert_eq!(store.audit(i64::MAX, 9).await.unwrap().len(), 1);
    }

    #[tokio::test]
    async fn files_of_a_database_of_before_get_numbers_and_none_is_given_twice() {
        let state = tempfile::tempdir().unwrap();
        let place = crate::place::Place::Folder(state.path().to_owned());
        let (pool, _) = database::connect(&place, 1).await.unwrap();
        sqlx::raw_sql(include_str!("store/before_numbers.sql")).execute(&pool).await.unwrap();
        pool.close().await;
        let store = Store::sqlite(state.path()).await.unwrap();
        let firsts = async |store: &Store| -> BTreeMap<String, u32> {
            let catalog = store.desired().await.unwrap().catalog;
            catalog.all().map(|of| (of.id().to_string(), of.first_file.unwrap())).collect()
        };
        let as_ingested = [("film-1", 0), ("series-1", 3), ("film-2", 5)];
        let named =
            |all: &[(&str, u32)]| all.iter().map(|(id, n)| ((*id).to_owned(), *n)).collect();
        assert_eq!(firsts(&store).await, named(&as_ingested));
        let generation = Generation(1_795_649_181);
        assert_eq!(store.ledger().await.unwrap().generation, generation, "all else is there");

        store.delete_versions(&[id("film-2")]).await.unwrap();
        let blocks = Blocks::of_hashes(Bytes(5), vec![BlockHash([8; 32])]).unwrap();
        let mut new = version(&blocks);
        Arc::make_mut(&mut new.files).id = id("film-3");
        assert_eq!(store.put_version(&new, std::slice::from_ref(&blocks)).await.unwrap(), 6);
        let known = new.numbered(Some(6));
        assert_eq!(store.put_version(&known, &[]).await.unwrap(), 6, "it keeps what it has");
        store.close().await;
        let last = "UPDATE meta SET value = 2147483648 WHERE key = 'next_file'";
        Store::change(state.path(), last).await;
        let store = Store::sqlite(state.path()).await.unwrap();
        assert_eq!(firsts(&store).await, named(&[("film-1", 0), ("series-1", 3), ("film-3", 6)]));
        let refused = store.put_version(&version(&blocks), &[]).await.unwrap_err();
        assert!(matches!(refused, StoreError::NoNumbers), "{refused}");
    }

    #[tokio::test]
    async fn a_database_of_a_newer_program_is_left_alone() {
        let state = tempfile::tempdir().unwrap();
        let store = Store::sqlite(state.path()).await.unwrap();
        sqlx::raw_sql("PRAGMA user_version = 99").execute(&store.pool).await.unwrap();
        store.close().await;
        let refused = Store::sqlite(state.path()).await;
        assert!(matches!(refused, Err(StoreError::Newer { found: 99, .. })));
    }

    fn version(blocks: &Blocks) -> Version {
        let (object, len) = (blocks.id(), blocks.len());
        let file = File { object, len, content_type: "video/mp4".to_owned() };
        let files = AssetVersion {
            id: "film-1".parse().unwrap(),
            asset: "film".parse().unwrap(),
            sources: vec!["https://origin.example/film/".to_owned()],
            modified: UnixSeconds(77),
            pace: None,
            files: ["a b/é.mp4", "b.mp4"].map(|path| (path.to_owned(), file.clone())).into(),
        };
        let entry = Entry { path: "m.mpd".to_owned(), format: Format::Dash, text: "<MPD/>".into() };
        Version::new(Arc::new(files), vec![entry], 4).divided(vec![1, 2])
    }

    fn id<T: std::str::FromStr<Err = model::id::IdError>>(text: &str) -> T {
        text.parse().unwrap()
    }
}
