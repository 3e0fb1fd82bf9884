//! The catalogue: versions with their files, and the numbers of these.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use blake3::Hash;
use director::{Catalog, Entry, Format, Version};
use model::id::{AssetVersionId, ObjectId};
use model::manifest::{AssetVersion, ContentTypes, File};
use model::number::OWN_FILES;
use model::object::Blocks;
use model::units::{Bytes, UnixSeconds};
use sqlx::{Any, AssertSqlSafe, Transaction};
use tokio::task::spawn_blocking;

use super::{
    ROWS_AT_ONCE, Result, Store, StoreError, damaged, documents, fixed, from_json, json, listing,
    parse, places, signed, unsigned, withdrawals,
};

impl Store {
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

    /// All versions, page by page; each is made of its rows beside the reading of the next.
    pub(super) async fn catalog(&self) -> Result<Catalog> {
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
    pub(super) async fn version_rows(
        &self,
        after: &str,
        listings_len: i64,
    ) -> Result<Vec<VersionRow>> {
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
    pub(super) async fn list_files(&self) -> Result<()> {
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

/// Adds a version, or changes it: the first number of its files.
pub(super) async fn put_version_rows(
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
pub(super) async fn files_of(
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

fn format_name(format: Format) -> &'static str {
    match format {
        Format::Hls => "hls",
        Format::Dash => "dash",
    }
}

/// Versions in a page of the catalogue at most.
const VERSIONS_AT_ONCE: i64 = 250;

/// Bytes of the listings in a page but for the last: about 44 for each file. In tests so few that
/// they read several pages.
const LISTINGS_LEN: i64 = if cfg!(test) { 1 } else { 4 << 20 };

/// So many pages are made into versions while the next is read.
const PAGES_MAX: usize = 4;

/// Versions whose files are listed in one transaction.
const LISTED_AT_ONCE: i64 = if cfg!(test) { 1 } else { 100 };
