//! Desired state on disk: SQLite or PostgreSQL, flushed at every commit. Fronts have none. Where
//! two writers share it, each change looks first whether its own still leads.
//!
//! Every query is a function here. Numbers are checked on their way in and out: a database's are
//! signed.

mod access;
mod catalog;
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
mod urgent;
mod wishes;
mod withdrawals;

use std::path::PathBuf;
use std::sync::Arc;

use director::drain::Drain;
use director::{Desired, Hardware, Registered, Version, Window};
use model::id::{ApplianceId, SiteId};
use model::names::Names;
use model::object::Blocks;
use model::topology::{Appliance, Prefix, Site, Weight};
use model::units::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::any::AnyArguments;
use sqlx::query::Query;
use sqlx::{Any, AnyPool, Transaction};
use wire::convert::{appliance_with, site_with};
use wire::v1::appliance::ApplianceAbout;
use wire::v1::site::SiteAbout;

use crate::place::Place;
pub(crate) use access::AuditEntry;
use catalog::put_version_rows;
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
            urgent: self.urgent().await?,
            wishes: Arc::new(self.wishes().await?),
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

    /// Removes a site, and what operators say of it alone. The caller knows that no appliance
    /// stands in it.
    pub async fn delete_site(&self, id: &SiteId) -> Result<()> {
        let mut transaction = self.begin().await?;
        let query = sqlx::query("DELETE FROM sites WHERE id = $1").bind(id.as_str());
        query.execute(&mut *transaction).await?;
        wishes::forget_site(&mut transaction, id).await?;
        Ok(transaction.commit().await?)
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
    include_str!("../../migrations/0022_urgent.sql"),
    include_str!("../../migrations/0023_masters.sql"),
    include_str!("../../migrations/0024_wishes.sql"),
    include_str!("../../migrations/0025_demand_bounds.sql"),
];

/// Rows that one statement writes: one for each would take longer to be sent than to be done. In
/// tests so few that there are several statements. SQLite takes 32,766 values, PostgreSQL 65,535.
const ROWS_AT_ONCE: usize = if cfg!(test) { 2 } else { 500 };

/// One writes, the others read block hashes for appliances that fill.
const CONNECTIONS_MAX: u32 = 4;

#[cfg(test)]
mod tests;
