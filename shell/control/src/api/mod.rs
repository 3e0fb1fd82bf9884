//! The HTTP API: one table of routes, from which the router and the check of the document are made.

mod access;
mod appliances;
mod asking;
mod asking_for;
mod assets;
mod caller;
mod document;
mod drain;
mod expected;
mod explain;
mod fill;
mod fleet;
mod grants;
mod guard;
mod heard;
mod identity;
mod keys;
mod ledger;
mod pages;
mod plan;
mod play;
mod policy;
mod popularity;
mod problem;
mod put_said;
mod registry;
mod replica;
mod sheds;
mod sources;
pub(crate) mod standby;
mod steer;
mod summary;
mod trouble;
mod viewers;
mod wishes;
mod withdrawals;

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use model::units::Bytes;
use tokio::time::timeout;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{DefaultPredicate, Predicate, SizeAbove};
use tower_http::timeout::TimeoutLayer;
use utoipa::openapi::path::Paths;
use utoipa::openapi::{RefOr, Schema};

use crate::state::writer::{Control, INGEST_LEN_MAX, REPORT_LEN_MAX};
pub use document::document;
use guard::cookie;
use problem::Problem;
use wire::v1::demand::PART_LEN_MAX as DEMAND_LEN_MAX;
use wire::v1::routes::PART_LEN_MAX;

/// What handlers share.
pub(crate) type Shared = State<Arc<Control>>;

/// An answer that is for its caller alone: nobody on the way keeps it.
const NO_STORE: [(HeaderName, &str); 1] = [(header::CACHE_CONTROL, "no-store")];

/// A method at a path, and what it needs.
struct Route {
    method: &'static str,
    path: &'static str,
    needs: Needs,
    handler: MethodRouter<Arc<Control>>,
    /// What the handler says of itself, for the document.
    documented: Paths,
    schemas: Vec<(String, RefOr<Schema>)>,
}

/// What a route wants of its caller: a role, where one token exists or others can connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    /// For players, whose handlers ask for a grant or a ticket, probes and whoever is to log in.
    Nothing,
    /// The token comes in the body.
    Login,
    /// The handler looks at the certificate: on the fleet's address only.
    Member,
    /// Any role.
    Service,
    /// Viewer, operator or admin.
    Viewer,
    /// The same, for a page: without it, the way to the login.
    Page,
    /// Service, operator or admin, who may end playbacks: no other change of a service's lasts.
    Ending,
    /// Operator or admin.
    Operator,
    Admin,
}

macro_rules! route {
    ($needs:ident $method:ident $path:literal $handler:path $(, $body_max:expr)?) => {{
        let (schemas, documented, handler) = utoipa_axum::routes!($handler);
        $(let handler = handler.layer(DefaultBodyLimit::max(Bytes::as_usize($body_max)));)?
        let (method, needs) = (stringify!($method), Needs::$needs);
        Route { method, path: $path, needs, handler, schemas, documented }
    }};
}

fn routes() -> Vec<Route> {
    [desired_routes(), wish_routes(), player_routes()].into_iter().flatten().collect()
}

/// What the fleet is and should be.
fn desired_routes() -> Vec<Route> {
    vec![
        route!(Nothing  GET    "/healthz" fleet::healthz),
        route!(Viewer   GET    "/metrics" fleet::metrics),
        route!(Service  GET    "/openapi.json" document::openapi),
        route!(Viewer   GET    "/v1/fleet" fleet::fleet),
        route!(Viewer   GET    "/v1/viewers" viewers::viewers),
        route!(Viewer   GET    "/v1/sheds" sheds::sheds),
        route!(Viewer   GET    "/v1/popularity" popularity::popularity),
        route!(Viewer   GET    "/v1/placement" fleet::placement),
        route!(Viewer   GET    "/v1/plan" plan::plan),
        route!(Operator POST   "/v1/plan" plan::plan_now),
        route!(Viewer   GET    "/v1/plan/why" plan::why),
        route!(Viewer   GET    "/v1/explain" explain::explain),
        route!(Operator GET    "/v1/ledger" ledger::ledger),
        route!(Operator GET    "/v1/ledger/{file}" ledger::ledger_file),
        route!(Viewer   GET    "/v1/sites" registry::sites),
        route!(Viewer   GET    "/v1/sites/{site}" registry::site),
        route!(Operator PUT    "/v1/sites/{site}" registry::put_site),
        route!(Operator DELETE "/v1/sites/{site}" registry::delete_site),
        route!(Viewer   GET    "/v1/fill" fill::fill),
        route!(Operator PUT    "/v1/fill/urgent/{version}" fill::put_urgent),
        route!(Operator DELETE "/v1/fill/urgent/{version}" fill::delete_urgent),
        route!(Operator PUT    "/v1/sites/{site}/fill-pause" fill::put_pause),
        route!(Operator DELETE "/v1/sites/{site}/fill-pause" fill::delete_pause),
        route!(Viewer   GET    "/v1/appliances" registry::appliances),
        route!(Viewer   GET    "/v1/appliances/{id}" registry::appliance),
        route!(Operator PUT    "/v1/appliances/{id}" registry::put_appliance),
        route!(Operator DELETE "/v1/appliances/{id}" registry::delete_appliance),
        route!(Operator POST   "/v1/appliances/{id}/usable" registry::accept_usable),
        route!(Operator PUT    "/v1/appliances/{id}/drain" drain::put_drain),
        route!(Operator DELETE "/v1/appliances/{id}/drain" drain::delete_drain),
        route!(Viewer   GET    "/v1/policy" policy::policy),
        route!(Operator PUT    "/v1/policy" policy::put_policy),
        route!(Viewer   GET    "/v1/identities" identity::identities),
        route!(Operator POST   "/v1/appliances/{id}/enrolment" identity::appliance_enrolment),
        route!(Operator DELETE "/v1/appliances/{id}/identity" identity::revoke_appliance),
        route!(Operator DELETE "/v1/appliances/{id}/clone" identity::clone_gone),
        route!(Admin    POST   "/v1/fronts/{name}/enrolment" identity::front_enrolment),
        route!(Admin    DELETE "/v1/fronts/{name}/identity" identity::revoke_front),
        route!(Viewer   GET    "/v1/signing-keys" identity::signing_keys),
        route!(Admin    POST   "/v1/signing-keys" identity::rotate_signing_key),
        route!(Service  GET    "/v1/assets" assets::assets),
        route!(Service  GET    "/v1/assets/{asset}" assets::asset),
        route!(Operator PUT    "/v1/assets/{asset}/versions/{version}" assets::ingest,
            INGEST_LEN_MAX),
        route!(Operator PUT    "/v1/assets/{asset}/public" grants::put_public),
        route!(Operator DELETE "/v1/assets/{asset}/public" grants::delete_public),
        route!(Operator DELETE "/v1/assets/{asset}" withdrawals::withdraw_asset),
        route!(Operator DELETE "/v1/assets/{asset}/versions/{version}"
            withdrawals::withdraw_version),
        route!(Operator PUT    "/v1/assets/{asset}/window" withdrawals::put_asset_window),
        route!(Operator PUT    "/v1/assets/{asset}/versions/{version}/window"
            withdrawals::put_version_window),
        route!(Viewer   GET    "/v1/routes" heard::routes),
        route!(Viewer   GET    "/v1/routes/{address}" heard::find),
        route!(Viewer   GET    "/v1/withdrawals" withdrawals::withdrawals),
        route!(Viewer   GET    "/v1/withdrawals/{number}" withdrawals::withdrawal),
    ]
}

/// What operators say of versions that demand cannot know.
fn wish_routes() -> Vec<Route> {
    vec![
        route!(Viewer   GET    "/v1/pins" wishes::pins),
        route!(Operator PUT    "/v1/pins/{version}" wishes::put_pin),
        route!(Operator DELETE "/v1/pins/{version}" wishes::delete_pin),
        route!(Viewer   GET    "/v1/bans" wishes::bans),
        route!(Operator PUT    "/v1/bans/{version}" wishes::put_ban),
        route!(Operator DELETE "/v1/bans/{version}" wishes::delete_ban),
        route!(Viewer   GET    "/v1/launches" wishes::launches),
        route!(Operator PUT    "/v1/launches/{version}" wishes::put_launch),
        route!(Operator DELETE "/v1/launches/{version}" wishes::delete_launch),
    ]
}

/// Players, services, people, and who may do what.
fn player_routes() -> Vec<Route> {
    vec![
        route!(Service  POST   "/v1/playbacks" play::playbacks),
        route!(Ending   DELETE "/v1/playbacks/{session}" grants::revoke),
        route!(Nothing  GET    "/v1/play/{file}" play::play),
        route!(Nothing  GET    "/steer/v1/{session}" steer::steer),
        route!(Nothing  POST   "/events/v1/{session}" viewers::events, EVENTS_BODY_MAX),
        route!(Viewer   GET    "/v1/keys" keys::keys),
        route!(Admin    POST   "/v1/keys/rotate" keys::rotate),
        route!(Admin    GET    "/v1/tokens" access::tokens),
        route!(Admin    POST   "/v1/tokens" access::make_token),
        route!(Admin    DELETE "/v1/tokens/{id}" access::delete_token),
        route!(Service  GET    "/v1/session" access::session),
        route!(Login    POST   "/v1/session" access::log_in),
        route!(Service  DELETE "/v1/session" access::log_out),
        route!(Admin    GET    "/v1/audit" access::audit),
        route!(Nothing  GET    "/login" pages::login),
        route!(Page     GET    "/" pages::status),
        route!(Page     GET    "/play" pages::player),
        route!(Nothing  GET    "/assets/{*path}" pages::part),
    ]
}

/// All routes of the fleet's address. Handlers say who may ask: those that take a `Caller` or an
/// `ApplianceCaller` are for members, the others for strangers too.
fn fleet_routes() -> Vec<Route> {
    vec![
        route!(Member GET "/v1/authority" identity::authority),
        route!(Member POST "/v1/enrol" identity::enrol, STRANGER_BODY_MAX),
        route!(Member POST "/v1/renew" identity::renew, STRANGER_BODY_MAX),
        route!(Member POST "/v1/appliances/{id}/report" appliances::report, REPORT_LEN_MAX),
        route!(Member POST "/v1/appliances/{id}/routes" appliances::routes_part,
            Bytes::of(PART_LEN_MAX)),
        route!(Member POST "/v1/appliances/{id}/demand" popularity::demand_part,
            Bytes::of(DEMAND_LEN_MAX)),
        route!(Member GET "/v1/appliances/{id}/manifest" appliances::manifest),
        route!(Member GET "/v1/appliances/{id}/trust" appliances::trust),
        route!(Member GET "/v1/appliances/{id}/expected" expected::expected),
        route!(Member POST "/v1/appliances/{id}/documents" appliances::documents),
        route!(Member GET "/v1/appliances/{id}/sources/{object}" sources::sources),
        route!(Member GET "/v1/appliances/{id}/ticket-keys" sources::ticket_keys),
        route!(Member GET "/v1/objects/{id}/blocks" appliances::blocks),
        route!(Member GET "/v1/replica/snapshot" replica::replica_snapshot),
        route!(Member GET "/v1/replica/keys" replica::replica_keys),
        route!(Member POST "/v1/replica/sheds" sheds::take, SHEDS_LEN_MAX),
    ]
}

/// What a front has of all routes, those of the fleet's address included. Everything else is the
/// writer's.
const FRONT_ROUTES: [&str; 19] = [
    "/healthz",
    "/metrics",
    "/openapi.json",
    "/v1/fleet",
    "/v1/explain",
    "/v1/ledger",
    "/v1/ledger/{file}",
    "/v1/routes",
    "/v1/routes/{address}",
    "/v1/assets",
    "/v1/assets/{asset}",
    "/v1/appliances/{id}/report",
    "/v1/appliances/{id}/routes",
    "/v1/playbacks",
    "/v1/play/{file}",
    "/steer/v1/{session}",
    "/events/v1/{session}",
    "/v1/viewers",
    "/v1/sheds",
];

fn of_role(control: &Arc<Control>, routes: Vec<Route>) -> Router<Arc<Control>> {
    let is_front = control.is_front();
    let here = |route: &Route| !is_front || FRONT_ROUTES.contains(&route.path);
    let mut router = Router::new();
    for Route { method, path, needs, handler, .. } in routes.into_iter().filter(here) {
        let rule = Arc::new(guard::Rule { control: control.clone(), method, path, needs });
        let handler = match needs {
            Needs::Nothing | Needs::Member => handler,
            Needs::Login => handler.route_layer(from_fn_with_state(rule, guard::guard_login)),
            Needs::Service
            | Needs::Viewer
            | Needs::Page
            | Needs::Ending
            | Needs::Operator
            | Needs::Admin => handler.route_layer(from_fn_with_state(rule, guard::guard)),
        };
        router = router.route(path, handler);
    }
    if is_front { router.fallback(replica::ask_the_writer) } else { router }
}

/// The router of the fleet's address, with all that lies around the handlers, outermost last.
pub(crate) fn fleet_router(control: Arc<Control>) -> Router {
    of_role(&control, fleet_routes())
        .layer(DefaultBodyLimit::max(Bytes::kib(256).as_usize()))
        .layer(from_fn(whole))
        .layer(TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, REQUEST_MAX))
        .layer(from_fn_with_state(control.clone(), bound_fleet))
        .layer(from_fn(problem::dress))
        .layer(from_fn(part_with_refused))
        .layer(from_fn_with_state(control.clone(), read_small))
        .with_state(control)
}

/// The router with all that lies around the handlers, outermost last.
pub fn router(control: Arc<Control>) -> Router {
    let router = of_role(&control, routes());
    let router = if control.is_front() { router } else { router.fallback(pages::other) };
    router
        .layer(DefaultBodyLimit::max(Bytes::kib(256).as_usize()))
        .layer(TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, REQUEST_MAX))
        .layer(from_fn_with_state(control.clone(), bound))
        .layer(from_fn_with_state(control.clone(), read_small))
        .layer(from_fn_with_state(control.clone(), same_host))
        .layer(from_fn_with_state(control.clone(), asking::find_out))
        .layer(from_fn(problem::dress))
        .layer(from_fn(cross_origin))
        .layer(
            CompressionLayer::new()
                .compress_when(DefaultPredicate::new().and(SizeAbove::new(COMPRESS_FROM))),
        )
        .with_state(control)
}

/// Reads a name or an id from a path.
fn named<T: FromStr<Err: ToString>>(text: &str) -> Result<T, Problem> {
    text.parse().map_err(|error: T::Err| Problem::bad_request(error.to_string()))
}

/// A change goes on to its end though its client has left or time is up: half of one, written but
/// not decided upon, would be seen only after a restart.
async fn whole(request: Request, next: Next) -> Response {
    let is_change = matches!(*request.method(), Method::PUT | Method::DELETE);
    if !is_change && !CHANGES.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    match tokio::spawn(next.run(request)).await {
        Ok(response) => response,
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// A small body is read before anything is answered: whoever is refused has said all of it then,
/// and hears why. It takes no turn among the requests under way, and not long.
async fn read_small(State(control): Shared, request: Request, next: Next) -> Response {
    let len = request.headers().get(header::CONTENT_LENGTH).and_then(|len| len.to_str().ok());
    let is_small = len.and_then(|len| len.parse().ok()).is_some_and(|len: usize| len <= SMALL_MAX);
    // Whoever sends events shows a ticket first.
    if request.uri().path().starts_with(EVENTS) {
        return next.run(request).await;
    }
    if !is_small && !FROM_STRANGERS.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    match timeout(SMALL_BODY_MAX, to_bytes(body, SMALL_MAX)).await {
        Ok(Ok(bytes)) => next.run(Request::from_parts(parts, Body::from(bytes))).await,
        Ok(Err(_)) => StatusCode::BAD_REQUEST.into_response(),
        Err(_) => {
            // Its connection ends, since the body is not read.
            control.metrics.bodies_timed_out.count();
            StatusCode::REQUEST_TIMEOUT.into_response()
        }
    }
}

/// Who is refused is not kept: its connection ends with the answer, its request read or not.
async fn part_with_refused(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    if response.status() == StatusCode::FORBIDDEN {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// So many requests of members at a time, and of one member a part of them: players' do not take
/// their places, nor does one member those of all others.
async fn bound_fleet(State(control): Shared, request: Request, next: Next) -> Response {
    let key = caller::seen(request.extensions()).map(|seen| &seen.key);
    let taken = control.fleet_of_each.take_of(key);
    let (Ok(_taken), Ok(_permit)) = (taken, control.fleet_requests.try_acquire()) else {
        caller::turned_away(&control, request.uri().path(), request.extensions());
        return busy(&control);
    };
    next.run(request).await
}

/// The longest time in seconds after which somebody who was too many is told to come again.
const RETRY_AFTER_MAX: u64 = 5;

fn busy(control: &Control) -> Response {
    control.metrics.requests_shed.count();
    let detail = "too many requests are under way: try again in some seconds";
    let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail);
    // In turns, so that those who are told do not come again together.
    let after = 1 + control.metrics.requests_shed.value() % RETRY_AFTER_MAX;
    ([(header::RETRY_AFTER, after.to_string())], problem).into_response()
}

/// So many requests at a time. Steering is left out: it must always be answered, and costs little.
/// So are events: players that send theirs slowly keep nobody from playing, nor others from sending
/// theirs. As many bodies are read at a time as there may be connections.
async fn bound(State(control): Shared, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    if path.starts_with(STEERING) || path.starts_with(EVENTS) {
        return next.run(request).await;
    }
    let Ok(_permit) = control.requests.try_acquire() else {
        return busy(&control);
    };
    next.run(request).await
}

/// Where everything is open, refuses what a stranger's web page could ask through an operator's
/// browser under another name (DNS rebinding): only loopback names and the configured one are
/// ours. Players' routes are open; where there are tokens, that name has no session.
async fn same_host(State(control): Shared, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    if is_for_players(path)
        || !control.access.is_open()
        || host(request.headers()).is_none_or(|host| is_ours(&control, host))
    {
        return next.run(request).await;
    }
    let detail =
        "this host name is not ours: use 127.0.0.1 or localhost, or set [serve] public_url";
    Problem::new(StatusCode::MISDIRECTED_REQUEST, "misdirected", detail).into_response()
}

fn host(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::HOST).and_then(|host| host.to_str().ok())
}

fn is_ours(control: &Control, host: &str) -> bool {
    let public = control.config.serve.public_url.as_ref();
    public.is_some_and(|url| url.0.authority() == host) || is_loopback(host)
}

/// A name that means this machine, with a port or without.
fn is_loopback(host: &str) -> bool {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').unwrap_or_default(),
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let is_digits = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(is_digits);
    let is_loopback = name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    is_port && (is_loopback || name == "localhost" || name.ends_with(".localhost"))
}

/// Players run in pages of any origin; what is for them may be read by all, without credentials.
/// Grants are asked for by services, which are no pages.
async fn cross_origin(request: Request, next: Next) -> Response {
    let path = request.uri().path();
    if !is_for_players(path) {
        return next.run(request).await;
    }
    let (mut response, fields) = if request.method() == Method::OPTIONS {
        (StatusCode::NO_CONTENT.into_response(), PREFLIGHT)
    } else {
        (next.run(request).await, CROSS_ORIGIN)
    };
    share(response.headers_mut(), fields);
    response
}

fn share(answered: &mut HeaderMap, fields: &'static [(HeaderName, &str)]) {
    for (name, value) in fields {
        answered.insert(name.clone(), HeaderValue::from_static(value));
    }
}

/// What is answered before the router is asked; none of most requests.
pub(crate) fn straight<B>(
    control: &Control,
    request: &mut axum::http::Request<B>,
) -> Option<Response<String>> {
    steer::straight(control, request)
}

/// The same of what is answered before hyper reads it: the whole answer is added, or nothing.
pub(crate) fn answer_bytes(
    control: &Control,
    request: &http1::Request<'_>,
    answers: &mut Vec<u8>,
) -> bool {
    steer::answer_bytes(control, request, answers)
}

fn is_for_players(path: &str) -> bool {
    [STEERING, PLAY, EVENTS].iter().any(|prefix| path.starts_with(prefix))
}

/// What a page may read of an answer.
const CROSS_ORIGIN: &[(HeaderName, &str)] = &[
    (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
    (header::ACCESS_CONTROL_EXPOSE_HEADERS, "Content-Length, Date, Retry-After"),
];

/// What a page may ask, which it asks first.
const PREFLIGHT: &[(HeaderName, &str)] = &[
    (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
    (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, HEAD, POST, OPTIONS"),
    (header::ACCESS_CONTROL_ALLOW_HEADERS, "*"),
    (header::ACCESS_CONTROL_MAX_AGE, "86400"),
];

/// Changes that are asked for with POST.
const CHANGES: [&str; 2] = ["/v1/enrol", "/v1/renew"];

/// A refusal and a steering document are shorter, and cost less as they are.
const COMPRESS_FROM: u64 = 1024;

/// Most reports are smaller.
const SMALL_MAX: usize = 64 << 10;

/// 64 KiB at 52 kb/s. Tests do not wait so long.
const SMALL_BODY_MAX: Duration = Duration::from_millis(if cfg!(test) { 500 } else { 10_000 });

/// Where bodies are read of whom nobody knows. None of them is large, whatever its head says.
const FROM_STRANGERS: [&str; 2] = ["/v1/enrol", "/v1/session"];

/// A request for a certificate has a kilobyte or two.
const STRANGER_BODY_MAX: Bytes = Bytes::kib(16);

/// A front with as many sites as there can be is reckoned to send 12 to 28 MB, and 33 MB at most.
pub(crate) const SHEDS_LEN_MAX: Bytes = Bytes::mib(32);

/// Players send some hundred bytes for each event, and at most 64 events at once.
const EVENTS_BODY_MAX: Bytes = Bytes::kib(64);

const STEERING: &str = "/steer/";
const EVENTS: &str = "/events/";
const PLAY: &str = "/v1/play/";

/// The longest that a request may take: an ingest of 64 MiB over a slow line.
const REQUEST_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    use director::front::{Grant, Ticket};
    use model::units::UnixSeconds;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::task::JoinHandle;

    #[tokio::test]
    async fn a_full_house_is_said_but_players_are_steered_all_the_same() {
        let (_directory, control, address, serving) = served("[serve]\nrequests_max = 1").await;
        let taken = control.requests.clone().acquire_owned().await.unwrap();
        let busy = ask(address, "/healthz").await;
        assert!(busy.starts_with("HTTP/1.1 503 "), "{busy}");
        assert!(busy.contains("retry-after: 2") && busy.contains("problem+json"), "{busy}");
        let steered = ask(address, "/steer/v1/x").await;
        assert!(steered.starts_with("HTTP/1.1 401 "), "{steered}");
        assert_eq!(control.metrics.requests_shed.value(), 1);
        drop(taken);
        assert!(ask(address, "/healthz").await.starts_with("HTTP/1.1 200 "));
        serving.abort();
    }

    #[tokio::test]
    async fn a_grant_and_a_ticket_end_in_their_second() {
        let (_directory, control, address, serving) = served("").await;
        let session = control.keys().session();
        let expires = UnixSeconds(control.clock.unix().0 + 1000);
        let grant = Grant { session, expires, asset: "film".parse().unwrap(), client: None };
        let ticket = Ticket { session, expires, ..ticket(&control, &["a1"]) };
        let play = format!("/v1/play/film.mpd?grant={}", control.keys().seal(&grant));
        let steer = format!("/steer/v1/{}", control.keys().seal(&ticket));
        // Far enough from the end for a slow machine.
        control.clock.advance(900);
        let no_film = ask(address, &play).await;
        assert!(no_film.contains("there is no such asset"), "{no_film}");
        assert!(ask(address, &steer).await.starts_with("HTTP/1.1 200 "));
        control.clock.advance(100);
        for path in [&play, &steer] {
            let over = ask(address, path).await;
            assert!(over.starts_with("HTTP/1.1 403 "), "{over}");
            assert!(over.contains("problem:playback-expired"), "{over}");
            assert!(over.contains("access-control-allow-origin: *"), "{over}");
        }
        let metrics = &control.metrics;
        assert_eq!((metrics.grants_expired.value(), metrics.tickets_expired.value()), (1, 1));
        serving.abort();
    }

    #[tokio::test]
    async fn a_poll_is_answered_alike_with_the_router_and_without() {
        let (_directory, control, address, serving) = served("").await;
        let ticket =
            Ticket { client: "2001:db8::/48".parse().unwrap(), ..ticket(&control, &["a1", "a2"]) };
        let sealed = control.keys().seal(&ticket);
        let poll = format!("/steer/v1/{sealed}?_HLS_pathway=a2");
        let request =
            |path: &str| axum::http::Request::get(path).header(header::HOST, "a").body(()).unwrap();
        assert!(straight(&control, &mut request(&poll)).is_some());
        let escaped = poll.replace('~', "%7E");
        assert_ne!(escaped, poll);
        let mut routed = request(&escaped);
        assert!(straight(&control, &mut routed).is_none(), "the router's");
        assert!(routed.headers().contains_key(header::HOST), "it is as it came");
        // The first has a turn, which the second finds a little nearer.
        let fields = |answer: String| -> Vec<String> {
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            let lines = head.lines().filter(|line| !line.starts_with("date: "));
            let body = body.split(',').filter(|field| !field.starts_with("\"TTL\""));
            let mut all: Vec<_> = lines.chain(body).map(str::to_owned).collect();
            all.sort();
            all
        };
        let (plain, routed) = (ask(address, &poll).await, ask(address, &escaped).await);
        assert!(plain.starts_with("HTTP/1.1 200 "), "{plain}");
        let vary = |field: &String| !field.starts_with("vary: ");
        let routed: Vec<_> = fields(routed).into_iter().filter(vary).collect();
        assert_eq!(fields(plain), routed);
        assert_eq!(control.metrics.steering_failovers.value(), 3);
        serving.abort();
    }

    #[tokio::test]
    async fn a_poll_is_answered_before_hyper_byte_for_byte_as_by_it() {
        let (_directory, control, address, serving) = served("").await;
        let sealed = control.keys().seal(&ticket(&control, &["a1", "a2"]));
        let mut answers = Vec::new();
        for pause in [0, 1, 0] {
            let path = format!("/steer/v1/{sealed}?_HLS_pathway=a1");
            let fields = "Host: c.example:8\r\nOrigin: null\r\n";
            let asked = format!("GET {path} HTTP/1.1\r\n{fields}\r\n");
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.set_nodelay(true).unwrap();
            // In two pieces it is hyper's.
            let (one, two) = asked.split_at(30 * pause);
            stream.write_all(one.as_bytes()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(100 * Bytes::of(pause).0)).await;
            stream.write_all(two.as_bytes()).await.unwrap();
            let mut answer = Vec::new();
            while !answer.ends_with(b"]}") {
                assert!(0 < stream.read_buf(&mut answer).await.unwrap(), "{answer:?}");
            }
            let answer = String::from_utf8(answer).unwrap();
            // These two move with the clock.
            let (before, after) = answer.split_once("\r\ndate: ").unwrap();
            let (date, after) = after.split_once(" GMT\r\n").unwrap();
            assert_eq!(date.len(), "Sun, 06 Nov 1994 08:49:37".len());
            let (after, rest) = after.split_once("\"TTL\":").unwrap();
            let (_, rest) = rest.split_once(',').unwrap();
            answers.push(format!("{before} {after} {rest}"));
        }
        assert!(answers[0].contains("http://c.example:8/steer/v1/"), "{}", answers[0]);
        assert_eq!((&answers[1], &answers[2]), (&answers[0], &answers[0]));
        serving.abort();
    }

    #[tokio::test]
    async fn only_what_hyper_reads_alike_is_answered_before_it() {
        let (_directory, control) = crate::state::writer::tests::open("").await;
        let sealed = control.keys().seal(&ticket(&control, &["a1"]));
        let asked = |line: &str| {
            let text = format!("{line}\r\nHost: a\r\n\r\n");
            let Ok(http1::Parsed::Request { request, .. }) = http1::parse(text.as_bytes()) else {
                panic!("{text}")
            };
            let mut answers = Vec::new();
            let is_answered = answer_bytes(&control, &request, &mut answers);
            assert_eq!(is_answered, !answers.is_empty());
            is_answered
        };
        let path = format!("/steer/v1/{sealed}");
        assert!(asked(&format!("GET {path} HTTP/1.1")));
        assert!(asked(&format!("GET {path}?_DASH_pathway=%22a1%22&_x=1,2 HTTP/1.1")));
        assert!(asked(&format!("GET http://b{path} HTTP/1.1")));
        for odd in [
            format!("HEAD {path} HTTP/1.1"),
            format!("POST {path} HTTP/1.1"),
            format!("GET {path} HTTP/1.0"),
            format!("GET {path}?a=<b> HTTP/1.1"),
            format!("GET {path}x HTTP/1.1"),
            format!("GET {path}/ HTTP/1.1"),
            format!("GET {} HTTP/1.1", path.replace('~', "%7E")),
            "GET /steer/v1/ HTTP/1.1".to_owned(),
            "GET /metrics HTTP/1.1".to_owned(),
        ] {
            assert!(!asked(&odd), "{odd}");
        }
        control.clock.advance(1000);
        assert!(!asked(&format!("GET {path} HTTP/1.1")), "it has expired");
    }

    #[tokio::test]
    async fn polls_on_one_connection_are_answered_each_by_itself() {
        let (_directory, control, address, serving) = served("").await;
        let sealed = |pathway: &str| {
            let ticket = ticket(&control, &[pathway]);
            control.keys().seal(&ticket)
        };
        let [one, two, three] = ["a1", "a2", "a3"].map(sealed);
        let asked = [
            (format!("/steer/v1/{one}"), "X-Odd: 1\r\nX-Odd: 2\r\nOrigin: null\r\n"),
            (format!("/steer/v1/{two}"), ""),
            (format!("/steer/v1/{}", three.replace('~', "%7E")), "X-Odd: 3\r\n"),
            ("/steer/v1/x".to_owned(), ""),
            (format!("/steer/v1/{one}"), "Connection: close\r\n"),
        ];
        let request = |(path, fields): &(String, &str)| {
            format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{fields}\r\n")
        };
        // All of them before the first answer.
        let requests: String = asked.iter().map(request).collect();
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(requests.as_bytes()).await.unwrap();
        let mut answers = String::new();
        stream.read_to_string(&mut answers).await.unwrap();
        let mut rest = answers.as_str();
        for (told, pathway) in [(200, "a1"), (200, "a2"), (200, "a3"), (401, ""), (200, "a1")] {
            let (head, after) = rest.split_once("\r\n\r\n").unwrap();
            let len = head.split_once("content-length: ").unwrap().1.lines().next().unwrap();
            let (body, after) = after.split_at(len.parse().unwrap());
            rest = after;
            assert!(head.starts_with(&format!("HTTP/1.1 {told} ")), "{head}");
            let names: Vec<&str> = head.lines().filter_map(|line| line.split(':').next()).collect();
            let all: std::collections::BTreeSet<&str> = names.iter().copied().collect();
            assert_eq!(all.len(), names.len(), "each field once: {head}");
            assert!(!head.contains("odd") && !head.contains("host: "), "{head}");
            if told == 200 {
                let priority = format!("[\"{pathway}\"]");
                assert!(body.contains(&priority), "{body}");
            }
        }
        assert_eq!(rest, "");
        serving.abort();
    }

    #[tokio::test]
    async fn more_players_than_can_be_answered_are_told_to_ask_later() {
        let (_directory, control, address, serving) = served("[steering]\nrate_max = 1").await;
        let mut ttls = Vec::new();
        for _ in 0..12 {
            let ticket = ticket(&control, &["a1"]);
            let steer = format!("/steer/v1/{}", control.keys().seal(&ticket));
            let answer = ask(address, &steer).await;
            let (_, rest) = answer.split_once("\"TTL\":").unwrap();
            ttls.push(rest.split(',').next().unwrap().parse::<u64>().unwrap());
        }
        assert!((10..=11).contains(&ttls[0]) && (19..=22).contains(&ttls[11]), "{ttls:?}");
        assert!((5..=11).contains(&control.metrics.steering_delayed.value()), "{ttls:?}");
        serving.abort();
    }

    #[test]
    fn only_our_own_names_may_be_asked() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let settings = "[serve]\npublic_url = \"https://c.example:8443\"";
        let (_directory, control) = runtime.block_on(crate::state::writer::tests::open(settings));
        for name in ["127.0.0.1:8080", "127.9.9.9", "[::1]:8080", "localhost:1", "c.example:8443"] {
            assert!(is_ours(&control, name), "{name}");
        }
        for name in
            ["evil.example", "c.example", "127.0.0.1.evil.example", "10.0.0.1", "", "[", "::1"]
        {
            assert!(!is_ours(&control, name), "{name}");
        }
        for odd in ["[::1]x", "[::1].evil.example", "[::1", "localhost:x", "127.0.0.1:1:2"] {
            assert!(!is_ours(&control, odd), "{odd}");
        }
    }

    /// A control plane that answers, with these settings.
    async fn served(
        settings: &str,
    ) -> (tempfile::TempDir, Arc<Control>, SocketAddr, JoinHandle<anyhow::Result<()>>) {
        let (directory, control) = crate::state::writer::tests::open(settings).await;
        let (address, listeners) = crate::serve::tests::listeners().await;
        let serving = crate::serve::serve(control.clone(), listeners, std::future::pending());
        (directory, control, address, tokio::spawn(serving))
    }

    fn ticket(control: &Control, pathways: &[&str]) -> Ticket {
        Ticket {
            session: control.keys().session(),
            expires: UnixSeconds(control.clock.unix().0 + 1000),
            version: "film-1".parse().unwrap(),
            client: "10.0.0.0/8".parse().unwrap(),
            plain: false,
            pathways: pathways.iter().map(|name| name.parse().unwrap()).collect(),
            parts: std::collections::BTreeMap::new(),
        }
    }

    async fn ask(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }
}
