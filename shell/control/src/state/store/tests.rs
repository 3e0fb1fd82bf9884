use super::catalog::files_of;
use super::*;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use blake3::Hash;
use director::{Digest, Entry, FillPolicy, Format, Ledger, LedgerEntry, Policy, TrustEntry};
use model::id::{AssetVersionId, Generation, ObjectId};
use model::manifest::{AssetVersion, File};
use model::object::BlockHash;
use model::profile::{Abilities, Profile, Profiles};
use model::topology::{Place, SiteKind};
use model::units::{BitsPerSecond, Nanos, UnixSeconds};
use model::zone::TimeZone;
use sqlx::AssertSqlSafe;

impl Store {
    /// The database of a test.
    pub(crate) async fn of_test(folder: &Path) -> Result<Self> {
        Self::open(&crate::database::state(folder).parse().unwrap()).await
    }

    /// A database as the program before documents left it.
    pub(crate) async fn of_before_documents(folder: &Path) -> Self {
        std::fs::create_dir_all(folder).unwrap();
        let store = Self::connect(&crate::database::state(folder).parse().unwrap()).await.unwrap();
        for (sql, version) in MIGRATIONS.iter().zip(1..).take(13) {
            store.dialect.migrate(store.begin().await.unwrap(), sql, version).await.unwrap();
        }
        let written = include_str!("fixtures/before_documents.sql");
        let written = match store.dialect {
            Dialect::Sqlite => written.to_owned(),
            Dialect::Postgres => written.replace("X'", "'\\x"),
        };
        sqlx::raw_sql(AssertSqlSafe(written)).execute(&store.pool).await.unwrap();
        store
    }

    /// A database as the program before listings left it.
    async fn of_before_listings(folder: &Path) -> Self {
        let store = Self::of_before_documents(folder).await;
        store.dialect.migrate(store.begin().await.unwrap(), MIGRATIONS[13], 14).await.unwrap();
        store
    }

    pub(crate) async fn all_objects(&self) -> Vec<ObjectId> {
        let rows: Vec<Vec<u8>> =
            sqlx::query_scalar("SELECT id FROM objects").fetch_all(&self.pool).await.unwrap();
        rows.iter().map(|id| ObjectId(fixed(id).unwrap())).collect()
    }

    /// SQLite, whatever other tests have.
    async fn sqlite(folder: &Path) -> Result<Self> {
        Self::open(&crate::place::Place::Folder(folder.to_owned())).await
    }

    /// Changes a database behind everybody's back. By connections of its own: one that was
    /// there before a migration knows no column of it until it has read something.
    async fn change(state: &Path, sql: &str) {
        let store = Self::sqlite(state).await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&store.pool).await.unwrap();
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

/// The migrations have them a second time, and a policy that leaves some out is completed by them.
#[tokio::test]
async fn a_new_store_has_the_policy_that_is_the_default() {
    let state = tempfile::tempdir().unwrap();
    let store = Store::of_test(state.path()).await.unwrap();
    assert_eq!(store.desired().await.unwrap().policy, Policy::default());
}

/// Nothing that is told of a site is as it is by default.
fn site_with_all() -> Site {
    let place = Some(Place { country: Some("DE".into()), ..Place::default() });
    Site {
        kind: SiteKind::Embedded,
        place,
        open: true,
        time_zone: TimeZone::named("Europe/Berlin").unwrap(),
        uplink: Some(BitsPerSecond(10_000_000_000)),
        manifest_cluster: Some(id("north")),
        fill_cluster: Some(id("de")),
        fill_windows: Some("22:00-06:00".parse().unwrap()),
        fill_paused_until: Some(UnixSeconds(9)),
        ..Site::new(id("s1"), vec!["10.0.0.0/8".parse().unwrap()])
    }
}

#[tokio::test]
async fn what_is_written_is_there_after_opening_again() {
    let state = tempfile::tempdir().unwrap();
    let store = Store::of_test(state.path()).await.unwrap();
    let site = site_with_all();
    let appliance = Appliance {
        profile: Some(Profile::Storage),
        own: Abilities { capacity: Some(Bytes(7_000_000_000)), ..Abilities::default() },
        tags: [id("loan"), id("rack-7")].into(),
        ..Appliance::new(id("a1"), site.id.clone(), Weight::ONE)
    };
    let flash = Abilities { fill: None, ..Profiles::default().flash };
    let profiles = Profiles { flash, ..Profiles::default() };
    let (elsewhere_after, origin_after) = (Nanos::seconds(5), Nanos::seconds(7));
    let windows = "02:00-14:00, 23:00-00:00".parse().unwrap();
    let usual = FillPolicy::default();
    let fill = FillPolicy { windows, masters: 3, elsewhere_after, origin_after, ..usual };
    let policy = Policy { copies: 3, versions_kept: 1, profiles, fill };
    let entry = LedgerEntry { generation: Generation(7), digest: Digest([3; 32]) };
    let entries = [(appliance.id.clone(), entry)].into();
    let holds = [(appliance.id.clone(), Arc::new((7..9_000).collect()))].into();
    let (generation, trust) = (Generation(9), TrustEntry::of_number(Generation(8), -7));
    let ledger = Ledger { generation, entries, holds, expected: None, trust };
    let blocks = Blocks::of_hashes(Bytes(5), vec![BlockHash([8; 32])]).unwrap();
    let version = version(&blocks);
    store.put_site(&site).await.unwrap();
    store.put_appliance(&appliance).await.unwrap();
    store.put_usable(&appliance.id, Bytes(1 << 50)).await.unwrap();
    let drives = ["d1".to_owned(), "d2".to_owned()].into();
    let hardware = Hardware { machine: "m1".to_owned(), drives };
    store.put_hardware(&appliance.id, &hardware).await.unwrap();
    store.put_cloned(&appliance.id, true).await.unwrap();
    store.put_trust(ledger.trust).await.unwrap();
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
    let registered = Registered { appliance, usable, hardware, cloned: true, drain: Some(drain) };
    assert_eq!(desired.appliances[&registered.appliance.id], registered);
    assert_eq!(desired.policy, policy);
    let revoked = [2, 3].map(|byte| (session(byte), UnixSeconds(300)));
    let playbacks = director::Playbacks::new([lecture].into(), revoked.into());
    assert_eq!(desired.playbacks, playbacks, "the first session had ended by itself");
    let version = version.numbered(Some(0));
    assert_eq!(**desired.catalog.version(version.id()).unwrap(), version);
    assert_eq!(store.ledger().await.unwrap(), ledger);
    let known = store.block_hashes(&blocks.id()).await.unwrap();
    assert_eq!(known, Some(BlockHashes::Row(vec![8; 32])));
    assert_eq!(store.block_hashes(&ObjectId([0; 32])).await.unwrap(), None);
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
    let before = "DROP TABLE demand; DROP TABLE expected; DROP TABLE urgent;
                  DROP TABLE placement_rules; DROP TABLE launches;
                  ALTER TABLE appliances DROP COLUMN demand_counted;
                  ALTER TABLE appliances DROP COLUMN demand_key;
                  ALTER TABLE appliances DROP COLUMN demand_hour;
                  ALTER TABLE appliances DROP COLUMN demand_late;
                  DROP INDEX versions_not_listed; ALTER TABLE versions DROP COLUMN listing;
                  ALTER TABLE versions DROP COLUMN renditions;
                  ALTER TABLE versions DROP COLUMN first_file;
                  DELETE FROM meta WHERE key IN ('next_file', 'documents', 'leader_documents')
                      OR key LIKE 'trust_%' OR key = 'expected_unix' OR key LIKE '%_bps' OR key LIKE '%_bytes'
                      OR key LIKE 'fill_%';
                  DROP INDEX objects_by_document; DROP TABLE documents;
                  ALTER TABLE objects DROP COLUMN document;
                  ALTER TABLE objects DROP COLUMN first_hash;
                  ALTER TABLE appliances DROP COLUMN about;
                  ALTER TABLE appliances DROP COLUMN drain_from;
                  ALTER TABLE appliances DROP COLUMN drain_until;
                  ALTER TABLE appliances DROP COLUMN items;
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
    let before = "DROP TABLE demand; DROP TABLE expected; DROP TABLE urgent;
                  DROP TABLE placement_rules; DROP TABLE launches;
                  ALTER TABLE appliances DROP COLUMN demand_counted;
                  ALTER TABLE appliances DROP COLUMN demand_key;
                  ALTER TABLE appliances DROP COLUMN demand_hour;
                  ALTER TABLE appliances DROP COLUMN demand_late;
                  DROP INDEX versions_not_listed; ALTER TABLE versions DROP COLUMN listing;
                  ALTER TABLE versions DROP COLUMN renditions;
                  ALTER TABLE versions DROP COLUMN first_file;
                  DELETE FROM meta WHERE key IN ('next_file', 'documents', 'leader_documents')
                      OR key LIKE 'trust_%' OR key = 'expected_unix' OR key LIKE '%_bps' OR key LIKE '%_bytes'
                      OR key LIKE 'fill_%';
                  DROP INDEX objects_by_document; DROP TABLE documents;
                  ALTER TABLE objects DROP COLUMN document;
                  ALTER TABLE objects DROP COLUMN first_hash;
                  ALTER TABLE appliances DROP COLUMN about;
                  ALTER TABLE appliances DROP COLUMN drain_from;
                  ALTER TABLE appliances DROP COLUMN drain_until;
                  ALTER TABLE appliances DROP COLUMN items;
                  ALTER TABLE sites DROP COLUMN about; PRAGMA user_version = 8;
                  INSERT INTO sites (id, prefixes) VALUES ('s1', '[\"10.0.0.0/8\"]')";
    Store::change(state.path(), before).await;
    let store = Store::sqlite(state.path()).await.unwrap();
    let site = Site::new(id("s1"), vec!["10.0.0.0/8".parse().unwrap()]);
    assert_eq!(*store.desired().await.unwrap().sites, [(site.id.clone(), site)].into());
}

#[tokio::test]
async fn a_database_that_an_older_program_wrote_is_read() {
    let (_state, store) = of_before_numbers().await;
    let desired = store.desired().await.unwrap();
    let (appliance, asset): (ApplianceId, model::id::AssetId) = (id("a1"), id("film"));
    let known = &desired.appliances[&appliance];
    assert_eq!(known.appliance.site.as_str(), "s1");
    assert_eq!(known.usable, Some(Bytes(1_000_000)));
    let appliance_of_before = &known.appliance;
    assert_eq!((appliance_of_before.profile, appliance_of_before.tags.len()), (None, 0));
    assert_eq!(appliance_of_before.own, Abilities::default());
    assert_eq!(known.drain, Some(Drain { from: UnixSeconds(100), until: None }));
    assert_eq!(desired.policy, Policy { copies: 2, versions_kept: 2, ..Policy::default() });
    let [newest, version] = desired.catalog.versions(&asset) else { panic!("two versions") };
    assert_eq!((newest.window.from, newest.entries.len()), (None, 0));
    assert_eq!(version.files.files["0.mp4"].len, Bytes(5009));
    assert_eq!((version.window.from, version.entries.len()), (Some(UnixSeconds(50)), 1));
    assert!(desired.playbacks.public().contains(&asset));
    let ledger = store.ledger().await.unwrap();
    assert_eq!(ledger.entries[&appliance].generation, Generation(1_795_649_180));
    assert_eq!(ledger.holds.len(), 0, "it kept none");
    assert_eq!((store.tokens().await.unwrap().len(), ledger.generation.0), (1, 1_795_649_181));
    assert_eq!(store.audit(i64::MAX, 9).await.unwrap().len(), 1);
}

#[tokio::test]
async fn files_of_a_database_of_before_get_numbers_and_none_is_given_twice() {
    let (state, store) = of_before_numbers().await;
    let firsts = async |store: &Store| -> BTreeMap<String, u32> {
        let catalog = store.desired().await.unwrap().catalog;
        catalog.all().map(|of| (of.id().to_string(), of.first_file.unwrap())).collect()
    };
    let as_ingested = [("film-1", 0), ("series-1", 3), ("film-2", 5)];
    let named = |all: &[(&str, u32)]| all.iter().map(|(id, n)| ((*id).to_owned(), *n)).collect();
    assert_eq!(firsts(&store).await, named(&as_ingested));

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
async fn a_version_whose_first_answer_was_lost_is_there_as_it_was_put_last() {
    let state = tempfile::tempdir().unwrap();
    let store = Store::of_test(state.path()).await.unwrap();
    let [old, new] = [8, 9].map(|byte| Blocks::of_hashes(Bytes(5), vec![BlockHash([byte; 32])]));
    let (old, new) = (old.unwrap(), new.unwrap());
    let first = version(&old);
    assert_eq!(store.put_version(&first, std::slice::from_ref(&old)).await.unwrap(), 0);
    // Nobody was told of the first: other files come by the same name.
    let mut files = (*version(&new).files).clone();
    files.files.remove("b.mp4").unwrap();
    files.modified = UnixSeconds(78);
    let entry = Entry { path: "m.mpd".to_owned(), format: Format::Dash, text: "<MPD />".into() };
    let second = Version::new(Arc::new(files), vec![entry], 5).divided(vec![1]);
    let number = store.put_version(&second, std::slice::from_ref(&new)).await.unwrap();
    assert_eq!(number, 1, "the first may have been seen");
    store.close().await;

    let store = Store::of_test(state.path()).await.unwrap();
    let catalog = store.desired().await.unwrap().catalog;
    let second = second.numbered(Some(number));
    assert_eq!(**catalog.version(second.id()).unwrap(), second);
    assert_eq!(store.block_hashes(&old.id()).await.unwrap(), None, "nobody has it");
}

#[tokio::test]
async fn a_page_of_versions_is_as_long_as_their_listings_allow() {
    let state = tempfile::tempdir().unwrap();
    let store = Store::of_test(state.path()).await.unwrap();
    let blocks = Blocks::of_hashes(Bytes(5), vec![BlockHash([8; 32])]).unwrap();
    for number in 1..=3 {
        let mut files = (*version(&blocks).files).clone();
        files.id = id(&format!("film-{number}"));
        let version = Version::new(Arc::new(files), Vec::new(), number).divided(vec![1, 2]);
        store.put_version(&version, std::slice::from_ref(&blocks)).await.unwrap();
    }
    let rows = async |after: &str, len| store.version_rows(after, len).await.unwrap();
    let len = i64::try_from(rows("", 1).await[0].9.len()).unwrap();
    let cases = [(1, 1), (len, 1), (len + 1, 2), (2 * len, 2), (2 * len + 1, 3), (i64::MAX, 3)];
    for (listings_len, count) in cases {
        assert_eq!(rows("", listings_len).await.len(), count, "{listings_len} of {len} each");
    }
    let ids = async |after| rows(after, 1).await.into_iter().map(|row| row.0).collect::<Vec<_>>();
    assert_eq!((ids("film-1").await, ids("film-3").await), (vec!["film-2".to_owned()], vec![]));
}

#[tokio::test]
async fn an_object_that_versions_share_is_written_once_and_comes_back_from_a_document() {
    let state = tempfile::tempdir().unwrap();
    let store = Store::of_test(state.path()).await.unwrap();
    let blocks = Blocks::of_hashes(Bytes(5), vec![BlockHash([8; 32])]).unwrap();
    let put = async |number: u64, document: Option<&Hash>| {
        let mut files = (*version(&blocks).files).clone();
        files.id = id(&format!("film-{number}"));
        let version = Version::new(Arc::new(files), Vec::new(), number).divided(vec![1, 2]);
        let blocks = std::slice::from_ref(&blocks);
        store.put_version_in(&version, blocks, document).await.unwrap();
        store.block_hashes(&blocks[0].id()).await.unwrap().unwrap()
    };
    put(1, None).await;
    let marked = vec![1; 32];
    let mark = sqlx::query("UPDATE objects SET blocks = $1").bind(&marked);
    mark.execute(&store.pool).await.unwrap();
    assert_eq!(put(2, None).await, BlockHashes::Row(marked), "nothing is written again");

    for (version, byte) in [(3, 3), (4, 4)] {
        let document = Hash::from([byte; 32]);
        let BlockHashes::Document { name, .. } = put(version, Some(&document)).await else {
            panic!("it is in {document}")
        };
        assert_eq!(name, document, "one of before may be damaged");
    }
    assert_eq!(put(5, None).await, BlockHashes::Row(vec![8; 32]));
}

#[tokio::test]
async fn files_that_the_program_before_wrote_are_listed_once_and_read_from_there() {
    let state = tempfile::tempdir().unwrap();
    let store = Store::of_before_listings(state.path()).await;
    let mut transaction = store.begin().await.unwrap();
    let mut wanted = BTreeMap::new();
    let versions: Vec<String> =
        sqlx::query_scalar("SELECT id FROM versions").fetch_all(&store.pool).await.unwrap();
    for version in versions {
        let files = files_of(&mut transaction, &version).await.unwrap();
        wanted.insert(id::<AssetVersionId>(&version), files);
    }
    drop(transaction);
    store.close().await;
    assert_eq!(wanted.values().map(BTreeMap::len).collect::<Vec<_>>(), [3, 3, 2]);

    let files = async |store: &Store| -> BTreeMap<AssetVersionId, BTreeMap<String, File>> {
        let catalog = store.desired().await.unwrap().catalog;
        catalog.all().map(|of| (of.id().clone(), of.files.files.clone())).collect()
    };
    let store = Store::of_test(state.path()).await.unwrap();
    assert_eq!(files(&store).await, wanted);
    // Rows of files are for objects to be found by; nobody reads their paths any more.
    sqlx::raw_sql("UPDATE files SET content_type = 'x'").execute(&store.pool).await.unwrap();
    store.close().await;
    let store = Store::of_test(state.path()).await.unwrap();
    assert_eq!(files(&store).await, wanted);
    sqlx::raw_sql("UPDATE versions SET listing = objects.id FROM objects")
        .execute(&store.pool)
        .await
        .unwrap();
    let damaged = store.desired().await.unwrap_err();
    assert!(matches!(damaged, StoreError::Damaged(_)), "{damaged}");
}

#[tokio::test]
async fn rows_that_several_statements_write_are_those_of_the_version() {
    let state = tempfile::tempdir().unwrap();
    let store = Store::of_test(state.path()).await.unwrap();
    let blocks = |byte| Blocks::of_hashes(Bytes(5), vec![BlockHash([byte; 32])]).unwrap();
    // Most statements are full, and the last object is the first once more.
    let all: Vec<Blocks> = (0..6).map(|at| blocks(at % 5)).collect();
    let mut files = AssetVersion::clone(&version(&all[0]).files);
    let file = |of: &Blocks| File { object: of.id(), len: of.len(), content_type: "x".into() };
    files.files = (0..6).map(|at| (format!("{at}.mp4"), file(&all[at]))).collect();
    let version = Version::new(Arc::new(files), Vec::new(), 1);
    let document = Hash::from([1; 32]);
    store.put_version_in(&version, &all, Some(&document)).await.unwrap();
    let mut transaction = store.begin().await.unwrap();
    let found = files_of(&mut transaction, version.id().as_str()).await.unwrap();
    assert_eq!(found, version.files.files);
    drop(transaction);
    for (blocks, first) in all.iter().zip(0..5) {
        let wanted = BlockHashes::Document { name: document, first, len: Bytes(5) };
        assert_eq!(store.block_hashes(&blocks.id()).await.unwrap(), Some(wanted));
    }
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

/// A database as the program before numbers left it, opened by this one.
async fn of_before_numbers() -> (tempfile::TempDir, Store) {
    let state = tempfile::tempdir().unwrap();
    let place = crate::place::Place::Folder(state.path().to_owned());
    let (pool, _) = database::connect(&place, 1).await.unwrap();
    let written = include_str!("before_numbers.sql");
    sqlx::raw_sql(written).execute(&pool).await.unwrap();
    pool.close().await;
    let store = Store::sqlite(state.path()).await.unwrap();
    (state, store)
}

fn version(blocks: &Blocks) -> Version {
    let (object, len) = (blocks.id(), blocks.len());
    let file = File { object, len, content_type: "video/mp4".into() };
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
