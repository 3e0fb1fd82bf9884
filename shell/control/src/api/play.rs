//! What players begin with: an entry manifest written for this playback.

#![expect(unused_qualifications, reason = "utoipa's macro qualifies what it is given")]

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use director::front::{Choice, Grant, Player, Ticket, Unplayable};
use director::{Format, Refused, Snapshot};
use ledger::{Answered, Kind};
use model::id::{ApplianceId, AssetId, AssetVersionId};
use model::topology::Prefix;
use model::units::UnixSeconds;
use model::view::{Placed, Renditions};
use playback::token::{self, Scope, Session};
use playback::{Pathway, dash, hls};
use serde::{Deserialize, Serialize};
use steering::RankedList;
use utoipa::{IntoParams, ToSchema};

use super::asking_for::AskingFor;
use super::problem::Problem;
use super::{NO_STORE, Shared, host, named};
use crate::state::decisions::Taken;
use crate::state::writer::Control;

/// The query of a URL to play from.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct How {
    /// `1` for URLs without TLS, from appliances that have such a listener (demonstrations).
    plain: Option<String>,
    /// Address to steer for, instead of the one that asks. With a token only.
    client: Option<String>,
    /// Leave to play, from `POST /v1/playbacks`. Needed, but for an asset that is public.
    grant: Option<String>,
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
    /// Address to steer for, instead of the one that asks. With a token only.
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
    /// Until when its media and steering URLs are good, seconds since 1970.
    expires_unix_s: u64,
    /// Until when a player may begin with `hls_url` or `dash_url`, seconds since 1970.
    grant_expires_unix_s: u64,
    /// Entry manifest for HLS players, if the version has one. Below this address; with a grant.
    hls_url: Option<String>,
    /// Entry manifest for DASH players, if the version has one. Below this address; with a grant.
    dash_url: Option<String>,
    /// Where a player asks which pathway is best now.
    steering_url: String,
    /// Where a player sends its events (CMCD version 2), if it does.
    events_url: String,
    /// Appliances, best first.
    pathways: Vec<PathwayOut>,
}

/// One appliance of a playback.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PathwayOut {
    /// The appliance, which is also the pathway's id.
    appliance: String,
    site: String,
    /// The version's files are below this URL.
    base_url: String,
    /// The appliance holds all of them. If not, this pathway has some renditions elsewhere, which
    /// the entry manifests name.
    whole: bool,
    /// The same without TLS, where there is such a listener.
    plain_base_url: Option<String>,
}

struct Beginner {
    asset: AssetId,
    session: Session,
    client: Prefix,
    plain: bool,
}

struct Begun<'a> {
    choice: Choice<'a>,
    expires: UnixSeconds,
    steering_url: String,
    events_url: String,
    pathways: Vec<PathwayOut>,
    /// Where each pathway has each rendition, where those are apart.
    renditions: Vec<Vec<String>>,
}

/// The entry manifest of an asset, written for this playback: `{asset}.m3u8` or `{asset}.mpd`.
#[utoipa::path(get, path = "/v1/play/{file}", tag = "players",
    params(("file" = String, Path, description = "`{asset}.m3u8` or `{asset}.mpd`"), How),
    responses((status = 200, content_type = "application/vnd.apple.mpegurl", body = String,
            description = "HLS multivariant playlist, or DASH MPD (application/dash+xml), with \
            content steering and two to four pathways, best first")))]
pub(crate) async fn play(
    State(control): Shared,
    asking: AskingFor,
    Path(file): Path<String>,
    Query(how): Query<How>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let written = write(&control, &asking, &file, &how, &headers);
    control.metrics.playback_asked(written.is_ok());
    let (kind, text) = written?;
    Ok(([(header::CONTENT_TYPE, kind)], NO_STORE, text).into_response())
}

/// Gives a service leave to play: what its viewer's player begins with, and where the files are,
/// for programs that are no players.
#[utoipa::path(post, path = "/v1/playbacks", tag = "players", request_body = PlaybackBody,
    responses((status = 200, body = PlaybackOut)))]
pub(crate) async fn playbacks(
    State(control): Shared,
    asking: AskingFor,
    headers: HeaderMap,
    Json(body): Json<PlaybackBody>,
) -> Result<Response, Problem> {
    let given = give(&control, &asking, &body, &headers);
    control.metrics.playback_asked(given.is_ok());
    Ok((NO_STORE, Json(given?)).into_response())
}

fn give(
    control: &Control,
    asking: &AskingFor,
    body: &PlaybackBody,
    headers: &HeaderMap,
) -> Result<PlaybackOut, Problem> {
    let asset: AssetId = named(&body.asset)?;
    let snapshot = control.snapshot();
    let client = asking.client_range(&snapshot, body.client.as_deref())?;
    let session = control.keys().session();
    let lifetime = control.config.playback.grant_lifetime.0.as_seconds();
    let grant = Grant {
        session,
        expires: UnixSeconds(control.clock.unix().0.saturating_add(lifetime)),
        asset: asset.clone(),
        client: body.client.is_some().then_some(client),
    };
    let beginner = Beginner { asset, session, client, plain: false };
    let begun = begin(control, &snapshot, &beginner, headers)?;
    let sealed = control.keys().seal(&grant);
    let url = |format, extension: &str| {
        let has = begun.choice.version.entry(format, None).is_some();
        has.then(|| format!("/v1/play/{}.{extension}?grant={sealed}", grant.asset))
    };
    Ok(PlaybackOut {
        session: session.to_string(),
        asset_version: begun.choice.version.id().to_string(),
        expires_unix_s: begun.expires.0,
        grant_expires_unix_s: grant.expires.0,
        hls_url: url(Format::Hls, "m3u8"),
        dash_url: url(Format::Dash, "mpd"),
        steering_url: begun.steering_url,
        events_url: begun.events_url,
        pathways: begun.pathways,
    })
}

fn write(
    control: &Control,
    asking: &AskingFor,
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
    let asset: AssetId = named(asset)?;
    let snapshot = control.snapshot();
    let grant = how.grant.as_deref().ok_or(Refused::Missing);
    let grant = grant.and_then(|text| control.keys().unseal(text).ok_or(Refused::Unknown));
    let admitted = snapshot.admit(&asset, grant, control.clock.unix());
    let admitted = admitted.inspect_err(|refused| control.metrics.grant_refused(*refused))?;
    let client = match admitted.as_ref().and_then(|grant| grant.client) {
        Some(client) => client,
        None => asking.client_range(&snapshot, how.client.as_deref())?,
    };
    let session = admitted.map_or_else(|| control.keys().session(), |grant| grant.session);
    let plain = how.is_plain();
    let beginner = Beginner { asset, session, client, plain };
    let begun = begin(control, &snapshot, &beginner, headers)?;
    let entry = begun.choice.version.entry(format, how.entry.as_deref()).ok_or_else(|| {
        let advice = format!("GET /v1/assets/{} lists its entries", beginner.asset);
        Problem::not_found(format!("the asset has no such entry manifest: {advice}"))
    })?;
    let bases = begun.renditions.iter().map(|bases| bases.iter().map(String::as_str).collect());
    let bases: Vec<Vec<&str>> = bases.collect();
    let pathways = begun.pathways.iter().zip(&bases).map(|(pathway, renditions)| Pathway {
        id: &pathway.appliance,
        base: pathway.plain_base_url.as_deref().filter(|_| plain).unwrap_or(&pathway.base_url),
        renditions,
    });
    let pathways: Vec<Pathway<'_>> = pathways.collect();
    let renditions = begun.choice.version.references(entry);
    let (kind, text) = match format {
        Format::Hls => (
            "application/vnd.apple.mpegurl",
            hls::rewrite(&entry.path, &entry.text, renditions, &pathways, &begun.steering_url),
        ),
        Format::Dash => (
            "application/dash+xml",
            dash::rewrite(&entry.path, &entry.text, renditions, &pathways, &begun.steering_url),
        ),
    };
    let text = text.map_err(|error| {
        tracing::error!(entry = entry.path, %error, "an entry manifest cannot be rewritten");
        let detail = format!("entry {}: {error}; ingest the asset again", entry.path);
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "entry", detail)
    })?;
    Ok((kind, text))
}

fn begin<'a>(
    control: &Control,
    snapshot: &'a Arc<Snapshot>,
    beginner: &Beginner,
    headers: &HeaderMap,
) -> Result<Begun<'a>, Problem> {
    let Beginner { asset, session, client, plain } = beginner;
    let (session, client, plain) = (*session, *client, *plain);
    let player = Player { client, session: &session, plain };
    let now = control.clock.unix();
    let choice = snapshot.choose(asset, &player, now, &control.steering_config())?;
    let (version, list) = (choice.version.id(), &choice.list);
    let (at, draw, among) = (now, session.draw(), None);
    control.keep(snapshot, Decided { at, draw, client, plain, version, among, list });
    if let Some(nearest) = snapshot.nearest(&player, &choice) {
        control.sheds.count(session.number(), nearest, version, None);
    }
    let lifetime = control.config.playback.token_lifetime.0.as_seconds();
    let expires = UnixSeconds(now.0.saturating_add(lifetime));
    let expires = choice.version.window.until.map_or(expires, |until| until.min(expires));
    let scope = Scope::whole(version.as_str()).expect("an asset version's id is its name");
    let token = control.keys().token(token::Grant { session, expires, scope });
    let base = |url: &str| format!("{url}/t/{token}/{version}/");
    let ways = ways(snapshot, &choice.list, plain, &base);
    let Ways { mut pathways, mut renditions, ids, parts } = ways;
    let version = choice.version.id().clone();
    let mut ticket = Ticket { session, expires, version, client, plain, pathways: ids, parts };
    while 1 < ticket.pathways.len() && !ticket.fits() {
        ticket.parts.remove(&ticket.pathways.pop().expect("there are several"));
        pathways.pop();
        renditions.pop();
    }
    let sealed = control.keys().seal(&ticket);
    let host = host(headers);
    let steering_url = steering_url(control, host, &sealed);
    let events_url = public_url(control, host, "/events/v1/", &sealed);
    Ok(Begun { choice, expires, steering_url, events_url, pathways, renditions })
}

/// Pathways in the forms in which they are told.
#[derive(Default)]
struct Ways {
    pathways: Vec<PathwayOut>,
    /// The bases of each pathway's renditions, where those are apart.
    renditions: Vec<Vec<String>>,
    ids: Vec<ApplianceId>,
    /// As the ticket has them.
    parts: BTreeMap<ApplianceId, Vec<(ApplianceId, Renditions)>>,
}

fn ways(
    snapshot: &Snapshot,
    list: &RankedList,
    plain: bool,
    base: &dyn Fn(&str) -> String,
) -> Ways {
    let offered = list.offered();
    let placed = |at: usize| snapshot.view.placed(offered[at].appliance);
    let rendition = |at: &usize| {
        let appliance = placed(*at)?.appliance;
        let url = appliance.plain_url.as_deref().filter(|_| plain);
        url.or(appliance.base_url.as_deref()).map(base)
    };
    let mut ways = Ways::default();
    for pathway in &list.pathways {
        let bases: Option<Vec<String>> = pathway.renditions.iter().map(rendition).collect();
        let (Some(bases), Some(Placed { site, appliance, .. })) = (bases, placed(pathway.lead))
        else {
            continue;
        };
        let Some(base_url) = appliance.base_url.as_deref() else { continue };
        let id = &appliance.id;
        let mut parts: Vec<(usize, Renditions)> = vec![(pathway.lead, Renditions::NONE)];
        for (position, rendition) in pathway.renditions.iter().zip(0..) {
            match parts.iter_mut().find(|(at, _)| at == position) {
                Some((_, part)) => *part = part.with(rendition),
                None => parts.push((*position, Renditions::NONE.with(rendition))),
            }
        }
        if !pathway.renditions.is_empty() {
            let named = |(at, part): (usize, _)| Some((placed(at)?.appliance.id.clone(), part));
            ways.parts.insert(id.clone(), parts.into_iter().filter_map(named).collect());
        }
        ways.pathways.push(PathwayOut {
            appliance: id.to_string(),
            site: site.id.to_string(),
            base_url: base(base_url),
            whole: bases.is_empty(),
            plain_base_url: appliance.plain_url.as_deref().map(base),
        });
        ways.renditions.push(bases);
        ways.ids.push(id.clone());
    }
    ways
}

/// Where a player asks for its pathways.
pub(super) fn steering_url(control: &Control, host: Option<&str>, sealed: &str) -> String {
    public_url(control, host, "/steer/v1/", sealed)
}

/// An absolute URL: some players resolve relative ones wrongly. The name is the one that the
/// player used, unless the operator knows better.
fn public_url(control: &Control, host: Option<&str>, path: &str, sealed: &str) -> String {
    // Joined, and not formatted: it is a part of what a poll costs.
    if let Some(configured) = &control.config.serve.public_url {
        return [configured.0.as_str(), path, sealed].concat();
    }
    let scheme = if control.certificate.is_some() { "https://" } else { "http://" };
    match host.filter(|host| is_authority(host)) {
        Some(asked) => [scheme, asked, path, sealed].concat(),
        None => format!("{scheme}{}{path}{sealed}", control.config.serve.listen),
    }
}

/// True of a host with or without a port; of nothing that could break out of a playlist's quotes.
fn is_authority(text: &str) -> bool {
    let allowed = |byte: u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b':' | b'[' | b']')
    };
    !text.is_empty() && text.len() <= 255 && text.bytes().all(allowed)
}

impl How {
    fn is_plain(&self) -> bool {
        matches!(self.plain.as_deref(), Some("1" | "true"))
    }
}

/// What was decided, for the ledger.
#[derive(Clone, Copy)]
pub(super) struct Decided<'a> {
    pub(super) at: UnixSeconds,
    /// What the session is drawn by.
    pub(super) draw: [u8; 8],
    pub(super) client: Prefix,
    pub(super) plain: bool,
    pub(super) version: &'a AssetVersionId,
    /// The appliances of a ticket's pathways, by number; none of a playback that begins.
    pub(super) among: Option<&'a [u32]>,
    pub(super) list: &'a RankedList,
}

impl Control {
    pub(super) fn steering_config(&self) -> steering::Config {
        self.config.lists()
    }

    /// Keeps a decision, if it is of a session whose decisions are kept.
    pub(super) fn keep(&self, snapshot: &Arc<Snapshot>, decided: Decided<'_>) {
        let Decided { at, draw, client, plain, version, among, list } = decided;
        if !self.decisions.keeps(draw) {
            return;
        }
        self.decisions.take(Taken {
            kind: if among.is_some() { Kind::Steered } else { Kind::Begun },
            at,
            draw,
            plain,
            client,
            version: version.clone(),
            snapshot: Arc::clone(snapshot),
            answered: Answered::of(&snapshot.view, list, among),
        });
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
