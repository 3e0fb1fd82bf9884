//! What can be played.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use director::{Format, Snapshot, Version};
use model::id::AssetId;
use model::units::UnixSeconds;
use serde::Serialize;
use utoipa::ToSchema;
use wire::v1::fleet::EntryOut;
use wire::v1::ingest::NewVersion;

use super::problem::{Problem, Said};
use super::{Shared, named};
use crate::state::convert::window_out;
use crate::state::writer::ChangeError;

/// An asset with its versions.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AssetOut {
    /// Name.
    #[schema(example = "film")]
    id: String,
    /// The version that new playbacks get, as soon as an appliance holds it.
    current_version: String,
    /// Anybody may play it, without a grant.
    public: bool,
    /// Newest first.
    versions: Vec<VersionOut>,
}

/// A version of an asset.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct VersionOut {
    /// Name, as in media URLs.
    id: String,
    /// When it was ingested, seconds since 1970.
    modified_unix_s: u64,
    /// No playback begins before (RFC 3339); none for no such time.
    from: Option<String>,
    /// From then on it is withdrawn (RFC 3339); none for never.
    until: Option<String>,
    /// False while its time has not come, or is over.
    shown: bool,
    /// How many files it has.
    files: usize,
    /// Sum of their lengths.
    bytes: u64,
    /// Where appliances fill from.
    sources: Vec<String>,
    /// What players can begin with.
    entries: Vec<EntryOut>,
}

/// What came of an ingest.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Ingested {
    asset: String,
    /// Its current version from now on.
    version: String,
    /// Newest generation of manifests.
    generation: u64,
}

/// All assets.
#[utoipa::path(get, path = "/v1/assets", tag = "assets",
    responses((status = 200, body = [AssetOut])))]
pub(crate) async fn assets(State(control): Shared) -> Json<Vec<AssetOut>> {
    let snapshot = control.snapshot();
    let assets = snapshot.catalog.assets();
    let now = control.clock.unix();
    Json(assets.filter_map(|(id, versions)| asset_out(&snapshot, id, versions, now)).collect())
}

/// One asset.
#[utoipa::path(get, path = "/v1/assets/{asset}", tag = "assets",
    responses((status = 200, body = AssetOut)))]
pub(crate) async fn asset(
    State(control): Shared,
    Path(asset): Path<String>,
) -> Result<Json<AssetOut>, Problem> {
    let id: AssetId = named(&asset)?;
    let snapshot = control.snapshot();
    let versions = snapshot.catalog.versions(&id);
    let found = asset_out(&snapshot, &id, versions, control.clock.unix());
    found.map(Json).ok_or_else(|| ChangeError::Unknown { asset: id, version: None }.into())
}

/// Takes a version, or makes a known one current again. Idempotent.
#[utoipa::path(put, path = "/v1/assets/{asset}/versions/{version}", tag = "assets",
    request_body = NewVersion,
    responses((status = 201, body = Ingested, description = "It is new"),
        (status = 200, body = Ingested, description = "It was known")))]
pub(crate) async fn ingest(
    State(control): Shared,
    Path((asset, version)): Path<(String, String)>,
    Json(new): Json<NewVersion>,
) -> Result<(StatusCode, Extension<Said>, Json<Ingested>), Problem> {
    let again = if new.again { ", though it may have been withdrawn" } else { "" };
    let said = format!("{} files{again}", new.files.len());
    let is_new = control.ingest(named(&asset)?, named(&version)?, new).await?;
    let generation = control.snapshot().view.generation.0;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Extension(Said(said)), Json(Ingested { asset, version, generation })))
}

fn asset_out(
    snapshot: &Snapshot,
    id: &AssetId,
    versions: &[std::sync::Arc<Version>],
    now: UnixSeconds,
) -> Option<AssetOut> {
    let current = versions.first()?;
    Some(AssetOut {
        id: id.to_string(),
        current_version: current.id().to_string(),
        public: snapshot.playbacks.public().contains(id),
        versions: versions.iter().map(|version| version_out(snapshot, version, now)).collect(),
    })
}

fn version_out(snapshot: &Snapshot, version: &Version, now: UnixSeconds) -> VersionOut {
    let wire::v1::ingest::Window { from, until } = window_out(version.window);
    VersionOut {
        from,
        until,
        shown: !snapshot.is_withdrawn(version.id(), now),
        id: version.id().to_string(),
        modified_unix_s: version.files.modified.0,
        files: version.files.files.len(),
        bytes: version.file_bytes().0,
        sources: version.files.sources.clone(),
        entries: entries_out(version),
    }
}

pub(super) fn entries_out(version: &Version) -> Vec<EntryOut> {
    let entry = |entry: &director::Entry| EntryOut {
        path: entry.path.clone(),
        format: match entry.format {
            Format::Hls => "hls".to_owned(),
            Format::Dash => "dash".to_owned(),
        },
    };
    version.entries.iter().map(entry).collect()
}
