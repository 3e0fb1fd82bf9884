//! The HTTP API: one table of routes, from which the router and the check of the document are made.

mod appliances;
mod assets;
mod caller;
mod document;
mod fleet;
mod identity;
mod pages;
mod play;
mod problem;
mod registry;
mod replica;
mod sources;
mod steer;

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use model::units::Bytes;
use tower_http::compression::CompressionLayer;
use tower_http::timeout::TimeoutLayer;

pub(crate) use appliances::report_room;

use crate::writer::{Control, INGEST_LEN_MAX, REPORT_LEN_MAX};
use problem::Problem;

/// What handlers share.
pub(crate) type Shared = State<Arc<Control>>;

/// A method at a path.
struct Route {
    #[cfg_attr(not(test), expect(dead_code, reason = "the check of the document reads it"))]
    method: &'static str,
    path: &'static str,
    handler: MethodRouter<Arc<Control>>,
}

macro_rules! route {
    ($method:ident $path:literal $handler:path) => {
        Route {
            method: stringify!($method),
            path: $path,
            handler: on(MethodFilter::$method, $handler),
        }
    };
    ($method:ident $path:literal $handler:path, $body_max:expr) => {
        Route {
            method: stringify!($method),
            path: $path,
            handler: on(MethodFilter::$method, $handler)
                .layer(DefaultBodyLimit::max(Bytes::as_usize($body_max))),
        }
    };
}

/// All routes.
fn routes() -> Vec<Route> {
    vec![
        route!(GET "/healthz" fleet::healthz),
        route!(GET "/metrics" fleet::metrics),
        route!(GET "/openapi.json" document::openapi),
        route!(GET "/v1/fleet" fleet::fleet),
        route!(GET "/v1/placement" fleet::placement),
        route!(GET "/v1/explain" fleet::explain),
        route!(GET "/v1/sites" registry::sites),
        route!(GET "/v1/sites/{site}" registry::site),
        route!(PUT "/v1/sites/{site}" registry::put_site),
        route!(DELETE "/v1/sites/{site}" registry::delete_site),
        route!(GET "/v1/appliances" registry::appliances),
        route!(GET "/v1/appliances/{id}" registry::appliance),
        route!(PUT "/v1/appliances/{id}" registry::put_appliance),
        route!(DELETE "/v1/appliances/{id}" registry::delete_appliance),
        route!(GET "/v1/policy" registry::policy),
        route!(PUT "/v1/policy" registry::put_policy),
        route!(POST "/v1/appliances/{id}/enrolment" identity::appliance_enrolment),
        route!(DELETE "/v1/appliances/{id}/identity" identity::revoke_appliance),
        route!(DELETE "/v1/appliances/{id}/clone" identity::clone_gone),
        route!(POST "/v1/fronts/{name}/enrolment" identity::front_enrolment),
        route!(DELETE "/v1/fronts/{name}/identity" identity::revoke_front),
        route!(GET "/v1/identities" identity::identities),
        route!(GET "/v1/signing-keys" identity::signing_keys),
        route!(POST "/v1/signing-keys" identity::rotate_signing_key),
        route!(GET "/v1/assets" assets::assets),
        route!(GET "/v1/assets/{asset}" assets::asset),
        route!(PUT "/v1/assets/{asset}/versions/{version}" assets::ingest, INGEST_LEN_MAX),
        route!(POST "/v1/playbacks" play::playbacks),
        route!(GET "/v1/play/{file}" play::play),
        route!(GET "/steer/v1/{session}" steer::steer),
        route!(GET "/" pages::status),
        route!(GET "/play" pages::player),
        route!(GET "/assets/{*path}" pages::part),
    ]
}

/// All routes of the fleet's address. Handlers say who may ask: those that take a `Caller` or an
/// `ApplianceCaller` are for members, the others for strangers too.
fn fleet_routes() -> Vec<Route> {
    vec![
        route!(GET "/v1/authority" identity::authority),
        route!(POST "/v1/enrol" identity::enrol, STRANGER_BODY_MAX),
        route!(POST "/v1/renew" identity::renew, STRANGER_BODY_MAX),
        route!(POST "/v1/appliances/{id}/report" appliances::report, REPORT_LEN_MAX),
        route!(GET "/v1/appliances/{id}/manifest" appliances::manifest),
        route!(GET "/v1/appliances/{id}/sources/{object}" sources::sources),
        route!(GET "/v1/objects/{id}/blocks" appliances::blocks),
        route!(GET "/v1/replica/snapshot" replica::replica_snapshot),
        route!(GET "/v1/replica/keys" replica::replica_keys),
    ]
}

/// What a front has of all routes, those of the fleet's address included. Everything else is the
/// writer's.
const FRONT_ROUTES: [&str; 11] = [
    "/healthz",
    "/metrics",
    "/openapi.json",
    "/v1/fleet",
    "/v1/explain",
    "/v1/assets",
    "/v1/assets/{asset}",
    "/v1/appliances/{id}/report",
    "/v1/playbacks",
    "/v1/play/{file}",
    "/steer/v1/{session}",
];

/// The routes of this role.
fn of_role(control: &Control, routes: Vec<Route>) -> Router<Arc<Control>> {
    let is_front = control.is_front();
    let here = |route: &Route| !is_front || FRONT_ROUTES.contains(&route.path);
    let mut router = Router::new();
    for Route { path, handler, .. } in routes.into_iter().filter(here) {
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
        .layer(from_fn(read_small))
        .with_state(control)
}

/// The router with all that lies around the handlers, outermost last.
pub fn router(control: Arc<Control>) -> Router {
    let router = of_role(&control, routes());
    let router = if control.is_front() { router } else { router.fallback(pages::other) };
    router
        .layer(DefaultBodyLimit::max(Bytes::kib(256).as_usize()))
        .layer(from_fn(whole))
        .layer(TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, REQUEST_MAX))
        .layer(from_fn_with_state(control.clone(), bound))
        .layer(from_fn_with_state(control.clone(), same_host))
        .layer(from_fn(problem::dress))
        .layer(from_fn(cross_origin))
        .layer(CompressionLayer::new())
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
/// and hears why.
async fn read_small(request: Request, next: Next) -> Response {
    let len = request.headers().get(header::CONTENT_LENGTH).and_then(|len| len.to_str().ok());
    if !len.and_then(|len| len.parse().ok()).is_some_and(|len: usize| len <= SMALL_MAX) {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    match to_bytes(body, SMALL_MAX).await {
        Ok(bytes) => next.run(Request::from_parts(parts, Body::from(bytes))).await,
        Err(_) => StatusCode::BAD_REQUEST.into_response(),
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

/// So many requests of members at a time: players' do not take their places.
async fn bound_fleet(State(control): Shared, request: Request, next: Next) -> Response {
    let Ok(_permit) = control.fleet_requests.try_acquire() else {
        return busy(&control);
    };
    next.run(request).await
}

fn busy(control: &Control) -> Response {
    control.metrics.requests_shed.count();
    let detail = "too many requests are under way: try again in a second";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail).into_response()
}

/// So many requests at a time. Steering is left out: it must always be answered, and costs little.
async fn bound(State(control): Shared, request: Request, next: Next) -> Response {
    if request.uri().path().starts_with(STEERING) {
        return next.run(request).await;
    }
    let Ok(_permit) = control.requests.try_acquire() else {
        return busy(&control);
    };
    next.run(request).await
}

/// Refuses what a stranger's web page could ask through an operator's browser under another name
/// (DNS rebinding): only loopback names and the configured one are ours. Players' routes are open.
async fn same_host(State(control): Shared, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let is_open = path.starts_with(STEERING) || path.starts_with(PLAY);
    if is_open || host(request.headers()).is_none_or(|host| is_ours(&control, host)) {
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
    let public = control.config.public_url.as_ref();
    if public.is_some_and(|url| url.authority() == host) {
        return true;
    }
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next(),
        None => host.split(':').next(),
    };
    let name = name.unwrap_or("");
    let is_loopback = name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    is_loopback || name == "localhost" || name.ends_with(".localhost")
}

/// Players run in pages of any origin; what is for them may be read by all, without credentials.
async fn cross_origin(request: Request, next: Next) -> Response {
    let path = request.uri().path();
    if !(path.starts_with(STEERING) || path.starts_with(PLAY) || path == "/v1/playbacks") {
        return next.run(request).await;
    }
    let mut response = if request.method() == Method::OPTIONS {
        StatusCode::NO_CONTENT.into_response()
    } else {
        next.run(request).await
    };
    for (name, value) in CROSS_ORIGIN {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

const CROSS_ORIGIN: [(header::HeaderName, &str); 5] = [
    (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
    (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, HEAD, POST, OPTIONS"),
    (header::ACCESS_CONTROL_ALLOW_HEADERS, "*"),
    (header::ACCESS_CONTROL_EXPOSE_HEADERS, "Content-Length, Date, Retry-After"),
    (header::ACCESS_CONTROL_MAX_AGE, "86400"),
];

/// Changes that are asked for with POST.
const CHANGES: [&str; 2] = ["/v1/enrol", "/v1/renew"];

/// Most reports are smaller.
const SMALL_MAX: usize = 64 << 10;

/// A request for a certificate has a kilobyte or two.
const STRANGER_BODY_MAX: Bytes = Bytes::kib(16);

const STEERING: &str = "/steer/";
const PLAY: &str = "/v1/play/";

/// The longest that a request may take: an ingest of 64 MiB over a slow line.
const REQUEST_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    #[tokio::test]
    async fn a_full_house_is_said_but_players_are_steered_all_the_same() {
        let (_directory, control) = crate::writer::tests::open("[serve]\nrequests_max = 1").await;
        let (address, listeners) = crate::serve::tests::listeners().await;
        let serving = crate::serve::serve(control.clone(), listeners, std::future::pending());
        let serving = tokio::spawn(serving);
        let taken = control.requests.clone().acquire_owned().await.unwrap();
        let busy = ask(address, "/healthz").await;
        assert!(busy.starts_with("HTTP/1.1 503 "), "{busy}");
        assert!(busy.contains("retry-after: 1") && busy.contains("problem+json"), "{busy}");
        let steered = ask(address, "/steer/v1/x").await;
        assert!(steered.starts_with("HTTP/1.1 200 "), "{steered}");
        let rows = control.metrics.rows();
        assert!(rows.iter().any(|row| row.name.contains("shed") && row.value == 1));
        drop(taken);
        assert!(ask(address, "/healthz").await.starts_with("HTTP/1.1 200 "));
        serving.abort();
    }

    #[test]
    fn only_our_own_names_may_be_asked() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let settings = "[serve]\npublic_url = \"https://c.example:8443\"";
        let (_directory, control) = runtime.block_on(crate::writer::tests::open(settings));
        for name in ["127.0.0.1:8080", "127.9.9.9", "[::1]:8080", "localhost:1", "c.example:8443"] {
            assert!(is_ours(&control, name), "{name}");
        }
        for name in
            ["evil.example", "c.example", "127.0.0.1.evil.example", "10.0.0.1", "", "[", "::1"]
        {
            assert!(!is_ours(&control, name), "{name}");
        }
    }

    async fn ask(address: std::net::SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }
}
