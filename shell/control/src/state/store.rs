//! Desired state on disk: SQLite or PostgreSQL, flushed at every commit. Fronts have none. Where
//! two writers share it, each change looks first whether its own still leads.
//!
//! Every query is a function here. Numbers are checked on their way in and out: a database's are
//! signed.

mod access;
mod database;
mod demand;
mod documents;
mod expected;
mod identities;
pub(crate) mod lease;
mod ledger;
mod listing;
mod playbacks;
mod policy;
mod replica;
mod secrets;
mod withdrawals;

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use blake3::Hash;
use director::drain::Drain;
use director::{Catalog, Desired, Entry, Format, Hardware, Registered, Version, Window};
use model::id::{ApplianceId, AssetVersionId, ObjectId, SiteId};
use model::manifest::{AssetVersion, ContentTypes, File};
use model::names::Names;
use model::number::OWN_FILES;
use model::object::Blocks;
use model::topology::{Appliance, Prefix, Site, Weight};
use model::units::{Bytes, UnixSeconds};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::any::AnyArguments;
use sqlx::query::Query;
use sqlx::{Any, AnyPool, AssertSqlSafe, Transaction};
use tokio::task::spawn_blocking;
use wire::convert::{appliance_with, site_with};
use wire::v1::appliance::ApplianceAbout;
use wire::v1::site::SiteAbout;

use crate::place::Place;
pub(crate) use access::AuditEntry;
use database::Dialect;
pub(crate) use demand::{CountedPart, Mark};
pub(crate) use documents::BlockHashes;
pub(crate) use expected::cluster_of;
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
        "the database has schema {found} and this program wants {known}: start the writer first, \
         or run nearcast-control migrate while none runs"
    )]
    Older { found: usize, known: usize },
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

    /// Opens the database for a change by hand, while a writer runs or not. Where two writers may
    /// run, who leads brings the schema up to date, and nobody else.
    pub async fn open_by_hand(place: &Place) -> Result<Self> {
        let store = Self::connect(place).await?;
        let (found, known) = (store.migrations_done().await?, MIGRATIONS.len());
        match place {
            Place::Postgres(_) if found < known => Err(StoreError::Older { found, known }),
            Place::Postgres(_) => Ok(store),
            Place::Folder(_) => store.migrate().await.map(|()| store),
        }
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
        self.list_files().await
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
            policy: self.policy().await?,
            token_keys: Vec::new(),
            token_rotation: director::TokenRotation::default(),
            signing_keys: Vec::new(),
            withdrawals: self.withdrawals().await?,
            revoked: Arc::default(),
        })
    }

    /// Makes a site new or different.
    pub async fn put_site(&self, site: &Site) -> Result<()> {
        self.write(site_query(site)).await
    }

    /// Removes a site. The caller knows that no appliance stands in it.
    pub async fn delete_site(&self, id: &SiteId) -> Result<()> {
        let query = sqlx::query("DELETE FROM sites WHERE id = $1").bind(id.as_str());
        self.write(query).await
    }

    /// Registers an appliance, or changes its site and weight.
    pub async fn put_appliance(&self, appliance: &Appliance) -> Result<()> {
        self.write(appliance_query(appliance)).await
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
        self.write(usable_query(id, usable)?).await
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

    /// Adds a version with the blocks of its objects, or changes its sequence, sources and times.
    /// The first number of its files, which it had or is given now.
    pub async fn put_version(&self, version: &Version, blocks: &[Blocks]) -> Result<u32> {
        self.put_version_in(version, blocks, None).await
    }

    /// The same, with the hashes of these blocks in a document, in their order.
    pub(crate) async fn put_version_in(
        &self,
        version: &Version,
        blocks: &[Blocks],
        document: Option<&Hash>,
    ) -> Result<u32> {
        let mut transaction = self.begin().await?;
        let first_file = put_version_rows(&mut transaction, version, blocks, document).await?;
        transaction.commit().await?;
        Ok(first_file)
    }

    /// Sites, appliances with what their drives can hold, and versions with the blocks of their
    /// objects, all in one transaction: a change of each by itself is flushed by itself.
    pub async fn put_many(
        &self,
        sites: impl Iterator<Item = &Site>,
        appliances: impl Iterator<Item = &Registered>,
        versions: impl Iterator<Item = (&Version, Vec<Blocks>)>,
    ) -> Result<()> {
        let mut transaction = self.begin().await?;
        for site in sites {
            site_query(site).execute(&mut *transaction).await?;
        }
        for Registered { appliance, usable, .. } in appliances {
            appliance_query(appliance).execute(&mut *transaction).await?;
            if let Some(usable) = usable {
                usable_query(&appliance.id, *usable)?.execute(&mut *transaction).await?;
            }
        }
        for (version, blocks) in versions {
            put_version_rows(&mut transaction, version, &blocks, None).await?;
        }
        Ok(transaction.commit().await?)
    }

    async fn meta<T: TryFrom<i64>>(&self, key: &str) -> Result<T> {
        let query = sqlx::query_scalar("SELECT value FROM meta WHERE key = $1");
        let value: i64 = query.bind(key).fetch_one(&self.pool).await?;
        value.try_into().map_err(|_| StoreError::Damaged(format!("{key} is {value}")))
    }

    async fn sites(&self) -> Result<Names<SiteId, Site>> {
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

    async fn appliances(&self) -> Result<Names<ApplianceId, Registered>> {
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
            String,
        );
        let rows: Vec<Row> = sqlx::query_as(
            "SELECT id, site, weight, usable, cloned, machine, drives, addresses, drain_from,
                    drain_until, about
             FROM appliances",
        )
        .fetch_all(&self.pool)
        .await?;
        let registered = |row: Row| {
            let (id, site, weight, usable, cloned, machine, drives, addresses, from, until, about) =
                row;
            let id: ApplianceId = parse(&id)?;
            let weight = u32::try_from(weight)
                .ok()
                .and_then(Weight::new)
                .ok_or_else(|| StoreError::Damaged(format!("{id} has a weight of {weight}")))?;
            let appliance = Appliance::new(id.clone(), parse(&site)?, weight);
            let appliance = Appliance { addresses: from_json(&addresses)?, ..appliance };
            let appliance =
                appliance_with(appliance, &from_json(&about)?).map_err(|error| damaged(&error))?;
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

    /// All versions, page by page; each is made of its rows beside the reading of the next.
    async fn catalog(&self) -> Result<Catalog> {
        let mut entries = self.entries().await?;
        let (mut catalog, mut made) = (Catalog::default(), VecDeque::new());
        let mut last = String::new();
        loop {
            let rows = self.version_rows(&last, LISTINGS_LEN).await?;
            let is_end = rows.is_empty();
            last = rows.last().map(|row| row.0.clone()).unwrap_or_default();
            let with = |row: VersionRow| (entries.remove(row.0.as_str()).unwrap_or_default(), row);
            let page: Vec<_> = rows.into_iter().map(with).collect();
            made.push_back(spawn_blocking(move || versions_of(page)));
            while PAGES_MAX < made.len() || is_end {
                let Some(page) = made.pop_front() else { return Ok(catalog) };
                let page: Result<Vec<_>> = page.await.expect("nothing in it panics");
                page?.into_iter().for_each(|version| catalog.put(version));
            }
        }
    }

    /// Rows of the next versions: so many that the listings of all but the last are shorter than
    /// that, and one at least; none after the last of all.
    async fn version_rows(&self, after: &str, listings_len: i64) -> Result<Vec<VersionRow>> {
        let query = sqlx::query_as(
            "SELECT id, asset, sequence, modified, sources, shown_from, shown_until, renditions,
                    first_file, listing
             FROM versions WHERE id > $1 AND id <= (
                 SELECT MAX(id) FROM (
                     SELECT id, SUM(len) OVER (ORDER BY id) - len AS len_before FROM (
                         SELECT id, COALESCE(LENGTH(listing), 0) AS len FROM versions
                         WHERE id > $1 ORDER BY id LIMIT $2
                     ) AS lens
                 ) AS sums WHERE len_before < $3
             ) ORDER BY id LIMIT $2",
        );
        let query = query.bind(after).bind(VERSIONS_AT_ONCE).bind(listings_len);
        Ok(query.fetch_all(&self.pool).await?)
    }

    /// Lists the files of versions that the program before wrote.
    async fn list_files(&self) -> Result<()> {
        let mut count = 0;
        loop {
            let query = "SELECT id FROM versions WHERE listing IS NULL LIMIT $1";
            let query = sqlx::query_scalar(query).bind(LISTED_AT_ONCE);
            let ids: Vec<String> = query.fetch_all(&self.pool).await?;
            if ids.is_empty() {
                break;
            }
            count += ids.len();
            let mut transaction = self.begin().await?;
            for id in ids {
                let files = files_of(&mut transaction, &id).await?;
                let query = sqlx::query(
                    "UPDATE versions SET listing = $2 WHERE id = $1 AND listing IS NULL",
                );
                let query = query.bind(id).bind(listing::encode(&files));
                query.execute(&mut *transaction).await?;
            }
            transaction.commit().await?;
            tracing::info!(versions = count, "files listed for later starts");
        }
        Ok(())
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

fn site_query(site: &Site) -> Query<'_, Any, AnyArguments> {
    let prefixes: Vec<String> = site.prefixes.iter().map(ToString::to_string).collect();
    let query = sqlx::query(
        "INSERT INTO sites (id, prefixes, about) VALUES ($1, $2, $3)
         ON CONFLICT (id) DO UPDATE SET prefixes = $2, about = $3",
    );
    query.bind(site.id.as_str()).bind(json(&prefixes)).bind(json(&SiteAbout::from(site)))
}

fn appliance_query(appliance: &Appliance) -> Query<'_, Any, AnyArguments> {
    let query = sqlx::query(
        "INSERT INTO appliances (id, site, weight, addresses, about)
         VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (id) DO UPDATE SET site = $2, weight = $3, addresses = $4, about = $5",
    );
    query
        .bind(appliance.id.as_str())
        .bind(appliance.site.as_str())
        .bind(i64::from(appliance.weight.value()))
        .bind(json(&appliance.addresses))
        .bind(json(&ApplianceAbout::from(appliance)))
}

fn usable_query(id: &ApplianceId, usable: Bytes) -> Result<Query<'_, Any, AnyArguments>> {
    let query = sqlx::query("UPDATE appliances SET usable = $2 WHERE id = $1");
    Ok(query.bind(id.as_str()).bind(signed(usable.0)?))
}

/// Adds a version, or changes it: the first number of its files.
async fn put_version_rows(
    transaction: &mut Transaction<'static, Any>,
    version: &Version,
    blocks: &[Blocks],
    document: Option<&Hash>,
) -> Result<u32> {
    let files = &version.files;
    let first_file = match version.first_file {
        Some(first) => first,
        None => {
            // Of a commit whose answer was lost, other files may be there.
            withdrawals::delete_version(transaction, &files.id).await?;
            take_numbers(transaction, version.objects().len()).await?
        }
    };
    sqlx::query(
        "INSERT INTO versions (id, asset, sequence, modified, sources, shown_from, shown_until,
                               renditions, first_file, listing)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
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
    .bind(listing::encode(&files.files))
    .execute(&mut **transaction)
    .await?;
    withdrawals::take_again(transaction, &files.id).await?;
    documents::put_objects(transaction, blocks, document).await?;
    let rows: Vec<_> = files.files.iter().collect();
    for rows in rows.chunks(ROWS_AT_ONCE) {
        let sql = format!(
            "INSERT INTO files (version, path, object, content_type) VALUES {}
             ON CONFLICT DO NOTHING",
            places(rows.len(), 4)
        );
        let mut query = sqlx::query(AssertSqlSafe(sql)).persistent(false);
        for (path, file) in rows {
            query = query.bind(files.id.as_str()).bind(path.as_str());
            query = query.bind(file.object.0.as_slice()).bind(&*file.content_type);
        }
        query.execute(&mut **transaction).await?;
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
        .execute(&mut **transaction)
        .await?;
    }
    Ok(first_file)
}

type VersionRow =
    (String, String, i64, i64, String, Option<i64>, Option<i64>, Vec<u8>, i64, Vec<u8>);

/// Versions of a page. O(files log files).
fn versions_of(page: Vec<(Vec<Entry>, VersionRow)>) -> Result<Vec<Arc<Version>>> {
    let mut types = ContentTypes::default();
    let version = |(entries, row)| version_of(entries, row, &mut types);
    page.into_iter().map(version).collect()
}

fn version_of(
    entries: Vec<Entry>,
    row: VersionRow,
    types: &mut ContentTypes,
) -> Result<Arc<Version>> {
    let (id, asset, sequence, modified, sources, from, until, renditions, first_file, listing) =
        row;
    let Some(files) = listing::decode(&listing, types) else {
        return Err(StoreError::Damaged(format!("the list of the files of {id} is no list")));
    };
    let version = AssetVersion {
        asset: parse(&asset)?,
        sources: from_json(&sources)?,
        modified: UnixSeconds(unsigned(modified)?),
        pace: None,
        files,
        id: parse(&id)?,
    };
    let version = Version::new(Arc::new(version), entries, unsigned(sequence)?);
    let first_file = u32::try_from(first_file).map_err(|error| damaged(&error))?;
    let version = version.divided(renditions).numbered(Some(first_file));
    Ok(Arc::new(version.shown(withdrawals::window(from, until)?)))
}

/// The files of a version by their rows.
async fn files_of(
    transaction: &mut Transaction<'static, Any>,
    version: &str,
) -> Result<BTreeMap<String, File>> {
    type Row = (String, Vec<u8>, i64, String);
    let query = sqlx::query_as(
        "SELECT path, object, len, content_type FROM files JOIN objects ON objects.id = files.object
         WHERE version = $1",
    );
    let rows: Vec<Row> = query.bind(version).fetch_all(&mut **transaction).await?;
    let file = |(path, object, len, content_type): Row| {
        let (object, len) = (ObjectId(fixed(&object)?), Bytes(unsigned(len)?));
        Ok((path, File { object, len, content_type: content_type.into() }))
    };
    rows.into_iter().map(file).collect()
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

/// Places for the values of so many rows: `($1, $2), ($3, $4)`.
fn places(rows: usize, columns: usize) -> String {
    let row = |row: usize| {
        let places = (row * columns + 1..=(row + 1) * columns).map(|place| format!("${place}"));
        format!("({})", places.collect::<Vec<_>>().join(", "))
    };
    (0..rows).map(row).collect::<Vec<_>>().join(", ")
}

async fn put_meta(transaction: &mut Transaction<'_, Any>, key: &str, value: u64) -> Result<()> {
    put_meta_value(transaction, key, signed(value)?).await
}

async fn put_meta_value(
    transaction: &mut Transaction<'_, Any>,
    key: &str,
    value: i64,
) -> Result<()> {
    sqlx::query("UPDATE meta SET value = $2 WHERE key = $1")
        .bind(key)
        .bind(value)
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
    include_str!("../../migrations/0013_appliances.sql"),
    include_str!("../../migrations/0014_documents.sql"),
    include_str!("../../migrations/0015_listings.sql"),
    include_str!("../../migrations/0016_trust.sql"),
    include_str!("../../migrations/0017_leader_documents.sql"),
    include_str!("../../migrations/0018_items.sql"),
    include_str!("../../migrations/0019_demand.sql"),
    include_str!("../../migrations/0020_fill.sql"),
    include_str!("../../migrations/0021_expected.sql"),
];

/// Rows that one statement writes: one for each would take longer to be sent than to be done. In
/// tests so few that there are several statements. SQLite takes 32,766 values, PostgreSQL 65,535.
const ROWS_AT_ONCE: usize = if cfg!(test) { 2 } else { 500 };

/// Versions in a page of the catalogue at most.
const VERSIONS_AT_ONCE: i64 = 250;

/// Bytes of the listings in a page but for the last: about 44 for each file. In tests so few that
/// they read several pages.
const LISTINGS_LEN: i64 = if cfg!(test) { 1 } else { 4 << 20 };

/// So many pages are made into versions while the next is read.
const PAGES_MAX: usize = 4;

/// Versions whose files are listed in one transaction.
const LISTED_AT_ONCE: i64 = if cfg!(test) { 1 } else { 100 };

/// One writes, the others read block hashes for appliances that fill.
const CONNECTIONS_MAX: u32 = 4;

#[cfg(test)]
mod tests;
