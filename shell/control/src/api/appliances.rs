//! What appliances say and ask.

#![expect(unused_qualifications, reason = "utoipa's macro qualifies what it is given")]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, Path, Query, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use http_body::{Frame, SizeHint};
use model::id::{DocumentId, Generation, ObjectId};
use model::units;
use serde::Deserialize;
use tokio::sync::OwnedSemaphorePermit;
use utoipa::IntoParams;
use wire::v1::demand::PART_LEN_MAX as DEMAND_LEN_MAX;
use wire::v1::manifest::{AssetVersion, LACKING_MAX, Lacking, Manifest, Trust};
use wire::v1::report::{Report, ReportReply};
use wire::v1::routes::{PART_LEN_MAX, Part, PartTaken};

use super::caller::{ApplianceCaller, seen, turned_away};
use super::problem::Problem;
use super::{Shared, named};
use crate::state::convert::routes_part_in;
use crate::state::quotas::Taken;
use crate::state::writer::manifests::Reads;
use crate::state::writer::{Control, REPORT_LEN_MAX, REPORT_UNIT};

/// What the appliance has, and reads.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Known {
    /// Generation that the appliance has already; 0 or nothing for none.
    #[serde(default)]
    known: u64,
    /// Versions are to be named by their documents (format 2).
    #[serde(default)]
    short: bool,
    /// With `short`: keys and revoked certificates are to be left to the trust document.
    #[serde(default)]
    trust: bool,
}

/// What the appliance has.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct KnownTrust {
    /// Generation that the appliance has already; 0 or nothing for none.
    #[serde(default)]
    known: u64,
}

/// Takes an appliance's report, which is also its heartbeat.
#[utoipa::path(post, path = "/v1/appliances/{id}/report", tag = "members", request_body = Report,
    responses((status = 200, body = ReportReply)))]
pub(crate) async fn report(
    State(control): Shared,
    caller: ApplianceCaller,
    Path(id): Path<String>,
    room: Room<false>,
    body: Bytes,
) -> Result<Json<ReportReply>, Problem> {
    let appliance = caller.is(&id)?;
    let is_large = READ_HERE_MAX < body.len();
    let reader = control.clone();
    let read = move || {
        let report: Report = serde_json::from_slice(&body).map_err(Problem::bad_request)?;
        let rules = report.fill_rules;
        // A thread reads on though its sender has left.
        Ok::<_, Problem>((reader.read_report(appliance, report)?, rules, room))
    };
    // A full list takes milliseconds, in which players should be answered.
    let ((reported, (viewers, networks)), rules, room) = match is_large {
        true => tokio::task::spawn_blocking(read).await.expect("nothing in it panics")?,
        false => read()?,
    };
    let reply = control.directing.report(reported, room).await?;
    let reply = reply.map_err(|_| not_registered(&id))?;
    let out = |rules| wire::convert::fill_rules_out(&rules);
    Ok(Json(ReportReply {
        generation: reply.generation.0,
        trust: reply.trust.0,
        inventory: reply.inventory,
        by_number: true,
        interval_ms: reply.interval.as_millis(),
        share_permille: Some(reply.share_permille),
        titles_permille: Some(reply.titles_permille).filter(|permille| 0 < *permille),
        siblings: by_name(&reply.siblings.to_map()),
        peers: by_name(&reply.peers.to_map()),
        routes: reply.routes.map(|wanted| wire::v1::routes::Wanted {
            known: wanted.known.map(|known| known.to_string()),
        }),
        viewers,
        networks,
        // One that does not know the field would not read them.
        fill: reply.fill.filter(|told| rules.is_some_and(|known| known != told.state)).map(out),
    }))
}

/// Takes a part of what an appliance hears from its routers.
#[utoipa::path(post, path = "/v1/appliances/{id}/routes", tag = "members", request_body = Part,
    responses((status = 200, body = PartTaken)))]
pub(crate) async fn routes_part(
    State(control): Shared,
    caller: ApplianceCaller,
    Path(id): Path<String>,
    room: Room<true>,
    body: Bytes,
) -> Result<Json<PartTaken>, Problem> {
    let appliance = caller.is(&id)?;
    let read = move || {
        let part: Part = serde_json::from_slice(&body).map_err(Problem::bad_request)?;
        let part = routes_part_in(&part).map_err(Problem::bad_request)?;
        Ok::<_, Problem>((part, room))
    };
    // To read a part takes milliseconds, in which players should be answered.
    let (part, room) = tokio::task::spawn_blocking(read).await.expect("nothing in it panics")?;
    Ok(Json(PartTaken { next: control.directing.routes_part(appliance, part, room).await? }))
}

fn by_name(addresses: &BTreeMap<model::id::ApplianceId, Arc<str>>) -> BTreeMap<String, String> {
    addresses.iter().map(|(id, at)| (id.to_string(), at.to_string())).collect()
}

/// Memory for a report or a part that is read, until the director has taken it: of all that are on
/// their way at a time, so much and no more, and of one member one report and two parts. With every
/// appliance at once, those for which there is no room are asked to come again. A body that does
/// not say its length has room for the longest that may come: of a table or of demand if `IS_PART`,
/// which has two routes.
pub(crate) struct Room<const IS_PART: bool> {
    _permit: OwnedSemaphorePermit,
    _taken: Option<Taken<String>>,
}

impl<const IS_PART: bool> FromRequestParts<Arc<Control>> for Room<IS_PART> {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        control: &Arc<Control>,
    ) -> Result<Self, Problem> {
        let told = parts.headers.get(header::CONTENT_LENGTH);
        let told = told.and_then(|len| len.to_str().ok()?.parse().ok());
        let part_max = units::Bytes::of(PART_LEN_MAX.max(DEMAND_LEN_MAX));
        let most = if IS_PART { part_max } else { REPORT_LEN_MAX };
        let len = told.map_or(most, units::Bytes).min(most);
        let permits = u32::try_from(len.0.div_ceil(REPORT_UNIT.0)).unwrap_or(u32::MAX).max(1);
        let quotas = if IS_PART { &control.parts_of_each } else { &control.reports_of_each };
        let taken = quotas.take_of(seen(&parts.extensions).map(|seen| &seen.key));
        let permit = control.report_room.clone().try_acquire_many_owned(permits);
        let (Ok(_taken), Ok(_permit)) = (taken, permit) else {
            control.metrics.reports_shed.count();
            turned_away(control, parts.uri.path(), &parts.extensions);
            let detail = "too many reports are being read: come again in a second";
            return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail));
        };
        Ok(Self { _permit, _taken })
    }
}

/// A longer report is read on a thread that may block.
const READ_HERE_MAX: usize = 64 << 10;

/// The appliance's manifest, if it is newer than what the appliance has: a line with its signature,
/// then its JSON.
#[utoipa::path(get, path = "/v1/appliances/{id}/manifest", tag = "members", params(Known),
    responses((status = 200, content_type = "application/vnd.nearcast.signed", body = Manifest),
        (status = 204, description = "Nothing newer")))]
pub(crate) async fn manifest(
    State(control): Shared,
    caller: ApplianceCaller,
    Path(id): Path<String>,
    Query(Known { known, short, trust }): Query<Known>,
) -> Result<Response, Problem> {
    let appliance = caller.is(&id)?;
    let reads = Reads { short, trust };
    let signed = control.signed_manifest(appliance, Generation(known), reads).await?;
    Ok(signed_or_nothing(signed.map_err(|_| not_registered(&id))?))
}

/// What all appliances share (keys, revoked certificates), if it is newer than what the appliance
/// has: a line with its signature, then its JSON.
#[utoipa::path(get, path = "/v1/appliances/{id}/trust", tag = "members", params(KnownTrust),
    responses((status = 200, content_type = "application/vnd.nearcast.signed", body = Trust),
        (status = 204, description = "Nothing newer")))]
pub(crate) async fn trust(
    State(control): Shared,
    caller: ApplianceCaller,
    Path(id): Path<String>,
    Query(KnownTrust { known }): Query<KnownTrust>,
) -> Result<Response, Problem> {
    caller.is(&id)?;
    Ok(signed_or_nothing(control.signed_trust(Generation(known)).await?))
}

fn signed_or_nothing(signed: Option<Bytes>) -> Response {
    match signed {
        Some(bytes) => ([(header::CONTENT_TYPE, SIGNED)], bytes).into_response(),
        None => StatusCode::NO_CONTENT.into_response(),
    }
}

/// The documents of versions that a short manifest names: a line for each that is there, in this
/// order, as many as fit in about 1 MiB. Of one that is not there, the newest manifest says
/// another.
#[utoipa::path(post, path = "/v1/appliances/{id}/documents", tag = "members",
    request_body = Lacking,
    responses((status = 200, content_type = "application/x-ndjson", body = AssetVersion)))]
pub(crate) async fn documents(
    State(control): Shared,
    caller: ApplianceCaller,
    Path(id): Path<String>,
    Json(Lacking { documents }): Json<Lacking>,
) -> Result<Response, Problem> {
    caller.is(&id)?;
    if !(1..=LACKING_MAX).contains(&documents.len()) {
        return Err(Problem::bad_request(format!("documents: ask for 1 to {LACKING_MAX}")));
    }
    let wanted: Vec<DocumentId> = documents.iter().map(|id| named(id)).collect::<Result<_, _>>()?;
    let of = control.clone();
    let lines = tokio::task::spawn_blocking(move || of.manifests.lines(&wanted)).await;
    let lines = lines.expect("nothing in it panics").ok_or_else(|| {
        control.metrics.manifest_documents_shed.count();
        let detail = "too many documents are on their way: come again in a second";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail)
    })?;
    control.metrics.manifest_documents_bytes.add(units::Bytes::of(lines.bytes.len()).0);
    let lines = OnItsWay { bytes: Some(lines.bytes.into()), _permit: lines.permit };
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], Body::new(lines)).into_response())
}

/// A body that has room of its own until it is sent.
struct OnItsWay {
    bytes: Option<Bytes>,
    _permit: OwnedSemaphorePermit,
}

impl http_body::Body for OnItsWay {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.bytes.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn size_hint(&self) -> SizeHint {
        let len = self.bytes.as_ref().map_or(0, axum::body::Bytes::len);
        SizeHint::with_exact(units::Bytes::of(len).0)
    }
}

/// The hashes of an object's blocks, 32 bytes for each 256 KiB.
#[utoipa::path(get, path = "/v1/objects/{id}/blocks", tag = "members",
    responses((status = 200, content_type = "application/octet-stream", body = Vec<u8>)))]
pub(crate) async fn blocks(
    State(control): Shared,
    _: ApplianceCaller,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let id: ObjectId = named(&id)?;
    let blocks = control.block_hashes(id).await?;
    let blocks = blocks.ok_or_else(|| Problem::not_found(format!("there is no object {id}")))?;
    // Of bytes axum says application/octet-stream.
    Ok(blocks.into_response())
}

/// An envelope of `wire::v1::signed`.
pub(super) const SIGNED: &str = "application/vnd.nearcast.signed";

pub(super) fn not_registered(id: &str) -> Problem {
    let advice = format!("an operator registers it with PUT /v1/appliances/{id}");
    Problem::not_found(format!("appliance {id} is not registered: {advice}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::listener::FleetPeer;
    use crate::members::identities::Certificate;
    use crate::state::directing::Desk;
    use axum::extract::ConnectInfo;
    use axum::http::Request;
    use axum::response::IntoResponse;
    use hyper::service::Service as _;
    use hyper_util::service::TowerToHyperService;
    use identity::member::{Member, Seen};
    use model::units::UnixSeconds;

    #[tokio::test]
    async fn reports_beyond_the_room_are_asked_to_come_again() {
        let (_directory, control) = crate::state::writer::tests::open("").await;
        let ask = async |len: Option<u64>| {
            let request = Request::builder();
            let request = match len {
                Some(len) => request.header(header::CONTENT_LENGTH, len),
                None => request,
            };
            let (mut parts, ()) = request.body(()).unwrap().into_parts();
            Room::<false>::from_request_parts(&mut parts, &control).await
        };
        let large = ask(Some(64 << 20)).await.ok().unwrap();
        let Ok(unknown) = ask(None).await else { panic!("as long as a report may be") };
        let refused = ask(Some(1)).await.err().unwrap().into_response();
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(refused.headers()[header::RETRY_AFTER], "1");
        assert_eq!(control.metrics.reports_shed.value(), 1);
        drop(unknown);
        assert!(ask(Some(1)).await.is_ok());
        drop(large);
    }

    #[tokio::test]
    async fn a_report_that_is_refused_at_the_door_is_a_sign_of_life() {
        let (_directory, control) = crate::state::writer::tests::open("").await;
        let good = good();
        control.identities().enrolled("", enrolled(&good));
        let stranger = Seen { key: "k2".to_owned(), ..good.clone() };
        let request = |seen: &Seen, path: &str| {
            let mut request = Request::post(path).body(Body::empty()).unwrap();
            let (address, seen) = (([127, 0, 0, 1], 1).into(), Some(Arc::new(seen.clone())));
            request.extensions_mut().insert(ConnectInfo(FleetPeer { address, seen }));
            request
        };
        let a1: model::id::ApplianceId = "a1".parse().unwrap();
        let (report, other) = ("/v1/appliances/a1/report", "/v1/appliances/a2/report");
        let manifest = "/v1/appliances/a1/manifest";

        // No tick comes between.
        let (_go_on, gate) = std::sync::mpsc::channel::<()>();
        let (stopped, is_stopped) = tokio::sync::oneshot::channel();
        let stopping = control.clone();
        tokio::spawn(async move {
            let stop = move |_: &mut Desk, _| {
                stopped.send(()).unwrap();
                let _ = gate.recv();
            };
            stopping.directing.ask_in_turn(stop).await;
        });
        is_stopped.await.unwrap();

        // All requests that may be under way are.
        let all = u32::try_from(control.fleet_requests.available_permits()).unwrap();
        let under_way = control.fleet_requests.acquire_many(all).await.unwrap();
        for (seen, path, is_alive) in [
            (&stranger, report, false),
            (&good, other, false),
            (&good, manifest, false),
            (&good, report, true),
        ] {
            let asked = door(&control).call(request(seen, path));
            let refused = asked.await.unwrap();
            assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(control.directing.takes_sign_of_life(&a1), is_alive, "{path}");
        }
        drop(under_way);

        // All memory for reports is taken.
        let all = u32::try_from(control.report_room.available_permits()).unwrap();
        let _read = control.report_room.acquire_many(all).await.unwrap();
        let asked = door(&control).call(request(&good, report));
        assert_eq!(asked.await.unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(control.directing.takes_sign_of_life(&a1));
    }

    fn door(control: &Arc<Control>) -> TowerToHyperService<axum::Router> {
        TowerToHyperService::new(crate::api::fleet_router(control.clone()))
    }

    fn enrolled(seen: &Seen) -> Certificate {
        Certificate {
            member: seen.member.clone(),
            serial: seen.serial.clone(),
            key: seen.key.clone(),
            machine: String::new(),
            software: String::new(),
            issued: UnixSeconds(0),
            expires: seen.not_after,
            revoked: None,
        }
    }

    #[tokio::test]
    async fn one_member_has_one_report_read_and_a_quarter_of_all_requests() {
        let (_directory, control) = crate::state::writer::tests::open("").await;
        let room = |key: &str| {
            let (control, mut request) = (control.clone(), Request::new(()));
            let seen = Some(Arc::new(Seen { key: key.to_owned(), ..good() }));
            let address = ([127, 0, 0, 1], 1).into();
            request.extensions_mut().insert(ConnectInfo(FleetPeer { address, seen }));
            let (mut parts, ()) = request.into_parts();
            async move { Room::<false>::from_request_parts(&mut parts, &control).await }
        };
        let first = room("k1").await.ok().unwrap();
        assert!(room("k1").await.is_err(), "its report is read");
        let of_another = room("k2").await;
        drop(first);
        assert!(room("k1").await.is_ok() && of_another.is_ok());

        let asked = |key: &str| {
            let key = key.to_owned();
            let taken: Vec<_> = (0..99).map_while(|_| control.fleet_of_each.take(&key)).collect();
            taken
        };
        let all = asked("k1");
        assert_eq!((all.len(), asked("k2").len()), (64, 64));
        let mut request = Request::get("/v1/appliances/a1/manifest").body(Body::empty()).unwrap();
        let (address, seen) = (([127, 0, 0, 1], 1).into(), Some(Arc::new(good())));
        request.extensions_mut().insert(ConnectInfo(FleetPeer { address, seen }));
        let refused = door(&control).call(request).await.unwrap();
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    }

    fn good() -> Seen {
        Seen {
            member: Member::appliance("a1"),
            serial: "1".to_owned(),
            key: "k1".to_owned(),
            not_before: UnixSeconds(0),
            not_after: UnixSeconds(u64::MAX),
        }
    }

    #[tokio::test]
    async fn a_part_takes_room_for_all_of_it_and_no_more_than_a_part_may() {
        let (_directory, control) = crate::state::writer::tests::open("").await;
        let before = control.report_room.available_permits();
        // A part of demand may be longer than one of a table.
        let longest = DEMAND_LEN_MAX.div_ceil(REPORT_UNIT.as_usize());
        assert!(PART_LEN_MAX.div_ceil(REPORT_UNIT.as_usize()) < longest);
        let told = [None, Some(DEMAND_LEN_MAX), Some(usize::MAX), Some(0)];
        for (told, units) in told.into_iter().zip([longest, longest, longest, 1]) {
            let (mut parts, ()) = Request::builder().body(()).unwrap().into_parts();
            let len = told.map(|len| len.to_string().parse().unwrap());
            parts.headers.extend(len.map(|len| (header::CONTENT_LENGTH, len)));
            let room = Room::<true>::from_request_parts(&mut parts, &control).await;
            assert_eq!(before - control.report_room.available_permits(), units, "{told:?}");
            drop(room);
            assert_eq!(control.report_room.available_permits(), before);
        }
    }
}
