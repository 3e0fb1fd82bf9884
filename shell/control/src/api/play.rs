//! What players begin with: an entry manifest written for this playback.

#![expect(unused_qualifications, reason = "utoipa's macro qualifies what it is given")]

use axum::Json;
use axum::extract::{ConnectInfo, Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use director::front::{Choice, Player, Ticket, Unplayable};
use director::{Format, Snapshot};
use model::id::AssetId;
use model::topology::Prefix;
use model::units::UnixSeconds;
use playback::token::{Grant, Scope, Session};
use playback::{Pathway, dash, hls};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::problem::Problem;
use super::{Shared, host, named};
use crate::listener::Peer;
use crate::writer::Control;

/// How to play.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct How {
    /// `1` for URLs without TLS, from appliances that have such a listener (demonstrations).
    plain: Option<String>,
    /// Address to steer for, instead of the one that asks. From loopback only.
    client: Option<String>,
    /// Playback to join, from `POST /v1/playbacks`; else a new one.
    session: Option<String>,
    /// Entry manifest to use, if the asset has several of the format.
    entry: Option<String>,
}

/// A wish to play.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlaybackBody {
    /// What to play.
    #[schema(example = "film")]
    asset: String,
    /// Address to steer for, instead of the one that asks. From loopback only.
    #[serde(default)]
    #[schema(example = "127.0.0.1")]
    client: Option<String>,
}

/// A playback, for programs that are no players.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PlaybackOut {
    /// Its random name.
    session: String,
    /// The version that it plays.
    asset_version: String,
    /// Until when its URLs are good, seconds since 1970.
    expires_unix_s: u64,
    /// Entry manifest for HLS players, if the version has one.
    hls_url: Option<String>,
    /// Entry manifest for DASH players, if the version has one.
    dash_url: Option<String>,
    /// Where a player asks which pathway is best now.
    steering_url: String,
    /// Appliances, best first.
    pathways: Vec<PathwayOut>,
}

/// One appliance of a playback.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PathwayOut {
    /// The appliance, which is also the pathway's id.
    appliance: String,
    /// Its site.
    site: String,
    /// The version's files are below this URL.
    base_url: String,
    /// The same without TLS, where there is such a listener.
    plain_base_url: Option<String>,
}

/// A playback that begins.
struct Begun {
    choice: Choice,
    session: Session,
    expires: UnixSeconds,
    steering_url: String,
    pathways: Vec<PathwayOut>,
}

/// The entry manifest of an asset, written for this playback: `{asset}.m3u8` or `{asset}.mpd`.
#[utoipa::path(get, path = "/v1/play/{file}", tag = "players",
    params(("file" = String, Path, description = "`{asset}.m3u8` or `{asset}.mpd`"), How),
    responses((status = 200, content_type = "application/vnd.apple.mpegurl", body = String,
            description = "HLS multivariant playlist, or DASH MPD (application/dash+xml), with \
            content steering and two to four pathways, best first"),
        (status = "default", response = Problem)))]
pub(crate) async fn play(
    State(control): Shared,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Path(file): Path<String>,
    Query(how): Query<How>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let written = write(&control, peer, &file, &how, &headers);
    let counter = match &written {
        Ok(_) => &control.metrics.playbacks,
        Err(_) => &control.metrics.playbacks_refused,
    };
    counter.count();
    let (kind, text) = written?;
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    Ok((headers, text).into_response())
}

/// Begins a playback and says where its files are, for programs that are no players.
#[utoipa::path(post, path = "/v1/playbacks", tag = "players", request_body = PlaybackBody,
    responses((status = 200, body = PlaybackOut), (status = "default", response = Problem)))]
pub(crate) async fn playbacks(
    State(control): Shared,
    ConnectInfo(peer): ConnectInfo<Peer>,
    headers: HeaderMap,
    Json(body): Json<PlaybackBody>,
) -> Result<Json<PlaybackOut>, Problem> {
    let how = How { client: body.client, ..How::default() };
    let begun = begin(&control, peer, &body.asset, &how, &headers);
    let counter = match &begun {
        Ok(_) => &control.metrics.playbacks,
        Err(_) => &control.metrics.playbacks_refused,
    };
    counter.count();
    let Begun { choice, session, expires, steering_url, pathways } = begun?;
    let url = |format, extension: &str| {
        let client = how.client.as_ref().map(|client| format!("&client={client}"));
        let query = format!("session={session}{}", client.unwrap_or_default());
        let has = choice.version.entry(format, None).is_some();
        has.then(|| format!("/v1/play/{}.{extension}?{query}", body.asset))
    };
    Ok(Json(PlaybackOut {
        session: session.to_string(),
        asset_version: choice.version.id().to_string(),
        expires_unix_s: expires.0,
        hls_url: url(Format::Hls, "m3u8"),
        dash_url: url(Format::Dash, "mpd"),
        steering_url,
        pathways,
    }))
}

fn write(
    control: &Control,
    peer: Peer,
    file: &str,
    how: &How,
    headers: &HeaderMap,
) -> Result<(&'static str, String), Problem> {
    let (asset, format) = match (file.strip_suffix(".m3u8"), file.strip_suffix(".mpd")) {
        (Some(asset), _) => (asset, Format::Hls),
        (None, Some(asset)) => (asset, Format::Dash),
        (None, None) => {
            return Err(Problem::not_found("ask for {asset}.m3u8 (HLS) or {asset}.mpd (DASH)"));
        }
    };
    let begun = begin(control, peer, asset, how, headers)?;
    let entry = begun.choice.version.entry(format, how.entry.as_deref()).ok_or_else(|| {
        let advice = format!("GET /v1/assets/{asset} lists its entries");
        Problem::not_found(format!("the asset has no such entry manifest: {advice}"))
    })?;
    let plain = how.is_plain();
    let pathways = begun.pathways.iter().map(|pathway| Pathway {
        id: &pathway.appliance,
        base: pathway.plain_base_url.as_deref().filter(|_| plain).unwrap_or(&pathway.base_url),
    });
    let pathways: Vec<Pathway<'_>> = pathways.collect();
    let (kind, text) = match format {
        Format::Hls => (
            "application/vnd.apple.mpegurl",
            hls::rewrite(&entry.path, &entry.text, &pathways, &begun.steering_url),
        ),
        Format::Dash => (
            "application/dash+xml",
            dash::rewrite(&entry.path, &entry.text, &pathways, &begun.steering_url),
        ),
    };
    let text = text.map_err(|error| {
        tracing::error!(entry = entry.path, %error, "an entry manifest cannot be rewritten");
        let detail = format!("entry {}: {error}; ingest the asset again", entry.path);
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "entry", detail)
    })?;
    Ok((kind, text))
}

fn begin(
    control: &Control,
    peer: Peer,
    asset: &str,
    how: &How,
    headers: &HeaderMap,
) -> Result<Begun, Problem> {
    let asset: AssetId = named(asset)?;
    let snapshot = control.snapshot();
    let client = client_range(&snapshot, peer, how.client.as_deref())?;
    let session = match &how.session {
        Some(text) => text.parse().map_err(|_| {
            Problem::bad_request("session: use one from POST /v1/playbacks, or none")
        })?,
        None => control.keys().session(),
    };
    let plain = how.is_plain();
    let player = Player { client, session: &session, plain };
    let choice = snapshot.choose(&asset, &player, &control.steering_config())?;
    let lifetime = control.config.token_lifetime.as_seconds();
    let expires = UnixSeconds(control.clock.unix().0.saturating_add(lifetime));
    let expires = choice.version.window.until.map_or(expires, |until| until.min(expires));
    let version = choice.version.id();
    let scope = Scope::whole(version.as_str()).expect("an asset version's id is its name");
    let token = control.keys().token(Grant { session, expires, scope });
    let base = |url: &str| format!("{url}/t/{token}/{version}/");
    let pathway = |candidate: &steering::Candidate| {
        let appliance = snapshot.view.appliances.get(&candidate.appliance)?;
        Some(PathwayOut {
            appliance: candidate.appliance.to_string(),
            site: candidate.site.to_string(),
            base_url: base(appliance.base_url.as_deref()?),
            plain_base_url: appliance.plain_url.as_deref().map(base),
        })
    };
    let pathways: Vec<PathwayOut> = choice.list.offered().iter().filter_map(pathway).collect();
    let offered = choice.list.offered().iter().map(|candidate| candidate.appliance.clone());
    let version = choice.version.id().clone();
    let ticket = Ticket { session, version, client, plain, pathways: offered.collect() };
    let steering_url = steering_url(control, headers, &control.keys().seal(&ticket));
    Ok(Begun { choice, session, expires, steering_url, pathways })
}

/// The range of the client to steer for: of the address given, if it may be, or of who asks.
pub(super) fn client_range(
    snapshot: &Snapshot,
    peer: Peer,
    client: Option<&str>,
) -> Result<Prefix, Problem> {
    let asking = peer.0.ip();
    let Some(text) = client else { return Ok(snapshot.client_range(asking)) };
    if !asking.to_canonical().is_loopback() {
        let detail = "client: only a request from loopback may speak for another address";
        return Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", detail));
    }
    let client = text
        .parse()
        .map_err(|_| Problem::bad_request(format!("client: \"{text}\" is not an IP address")))?;
    Ok(snapshot.client_range(client))
}

/// An absolute URL: some players resolve relative ones wrongly. The name is the one that the
/// player used, unless the operator knows better.
pub(super) fn steering_url(control: &Control, headers: &HeaderMap, sealed: &str) -> String {
    let configured = control.config.public_url.as_ref().map(|url| url.as_str().to_owned());
    let asked = || host(headers).filter(|host| is_authority(host));
    let base = configured.unwrap_or_else(|| {
        let listen = control.config.listen.to_string();
        let scheme = if control.certificate.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", asked().unwrap_or(&listen))
    });
    format!("{base}/steer/v1/{sealed}")
}

/// True of a host with or without a port; of nothing that could break out of a playlist's quotes.
fn is_authority(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
    !text.is_empty() && text.len() <= 255 && text.chars().all(allowed)
}

impl How {
    fn is_plain(&self) -> bool {
        matches!(self.plain.as_deref(), Some("1" | "true"))
    }
}

impl Control {
    pub(super) fn steering_config(&self) -> steering::Config {
        steering::Config { pathways_min: PATHWAYS_MIN, pathways_max: PATHWAYS_MAX }
    }
}

impl From<Unplayable> for Problem {
    fn from(error: Unplayable) -> Self {
        match error {
            // Who may not play it yet learns nothing of it.
            Unplayable::UnknownAsset | Unplayable::NotShown => {
                Self::not_found(Unplayable::UnknownAsset)
            }
            Unplayable::NoAppliance => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "no-appliance", error)
            }
        }
    }
}

/// Two, so that a player has somewhere to go; four, because each costs a copy of every line.
const PATHWAYS_MIN: usize = 2;
const PATHWAYS_MAX: usize = 4;
