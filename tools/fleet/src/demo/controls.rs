//! The demo's own small HTTP server: through it the page and the self-test break appliances.
//!
//! ```text
//! GET  /appliances                 [{"id":"a1","site":"s1","condition":"running"}, ..]
//! POST /appliances/{id}/{verb}     kill, hang, stop, near or restore: {"id":"a1", ..}
//! GET  /routes                     [{"site":"s1","isp":"isp1","condition":"announced", ..}, ..]
//! POST /routes/{site}/{verb}       withdraw or announce: {"site":"s1", ..}
//! POST /first-frame   {"ms":412}   from the page, once it plays
//! ```
//!
//! On loopback only, below a path that nobody guesses: other processes reach loopback too. A
//! browser may call it from the demo's own page and from no other.

use std::net::TcpListener;
use std::sync::Arc;

use anyhow::Context as _;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use clap::ValueEnum as _;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use super::isps::RouteOrder;
use super::processes::Fault;

/// An order from the page, the self-test or the keyboard. The main thread answers it.
#[derive(Debug)]
pub(super) enum Order {
    Fault(String, Fault, oneshot::Sender<Result<&'static str, String>>),
    List(oneshot::Sender<Value>),
    Route(String, RouteOrder, oneshot::Sender<Result<&'static str, String>>),
    /// Without ISPs an empty list.
    ListRoutes(oneshot::Sender<Value>),
    /// A page shows its first frame, so many milliseconds after it began to load.
    FirstFrame(u64),
}

/// Where orders go: at most [`ORDERS_MAX`] wait, more wait to be taken.
pub(super) type Orders = mpsc::Sender<Order>;

pub(super) fn orders() -> (Orders, mpsc::Receiver<Order>) {
    mpsc::channel(ORDERS_MAX)
}

#[derive(Debug)]
struct Shared {
    orders: Orders,
    pages: Vec<HeaderValue>,
}

/// The path below which it is served: 128 random bits.
pub(super) fn secret_path() -> anyhow::Result<String> {
    let mut random = [0; 16];
    aws_lc_rs::rand::fill(&mut random).context("the system has no random numbers")?;
    Ok(random.iter().fold("/".to_owned(), |path, byte| format!("{path}{byte:02x}")))
}

/// Serves below `path` until the process ends. `page_ports` say where pages come from.
pub(super) async fn serve(
    listener: TcpListener,
    path: String,
    orders: Orders,
    page_ports: Vec<u16>,
) -> anyhow::Result<()> {
    let page = |(port, host)| HeaderValue::from_str(&format!("http://{host}:{port}"));
    let all = page_ports.into_iter().flat_map(|port| [(port, "127.0.0.1"), (port, "localhost")]);
    let pages = all.map(page).collect::<Result<_, _>>()?;
    let shared = Arc::new(Shared { orders, pages });
    let router = Router::new()
        .route("/appliances", get(list))
        .route("/appliances/{id}/{verb}", post(fault))
        .route("/routes", get(list_routes))
        .route("/routes/{site}/{verb}", post(route))
        .route("/first-frame", post(first_frame));
    let router = Router::new()
        .nest(&path, router)
        .layer(axum::middleware::from_fn_with_state(Arc::clone(&shared), only_our_page))
        .with_state(shared);
    let listener = tokio::net::TcpListener::from_std(listener).context("cannot serve controls")?;
    axum::serve(listener, router).await.context("the demo's controls ended")
}

/// No `Origin` comes from programs; one that is not our page's is refused before anything happens.
async fn only_our_page(
    State(shared): State<Arc<Shared>>,
    request: Request,
    next: Next,
) -> Response {
    let origin = request.headers().get(header::ORIGIN).cloned();
    let Some(origin) = origin else {
        return next.run(request).await;
    };
    if !shared.pages.contains(&origin) {
        return (StatusCode::FORBIDDEN, "only the demo's own page may do this\n").into_response();
    }
    let mut response = match *request.method() {
        Method::OPTIONS => StatusCode::NO_CONTENT.into_response(),
        _ => next.run(request).await,
    };
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::VARY, HeaderValue::from_static("Origin"));
    let methods = HeaderValue::from_static("GET, POST, OPTIONS");
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
    let allowed = HeaderValue::from_static("content-type");
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, allowed);
    response
}

/// The answer of the main thread to an order; an error if the demo is ending.
async fn ask<T>(shared: &Shared, order: impl FnOnce(oneshot::Sender<T>) -> Order) -> Answer<T> {
    let (answer, answered) = oneshot::channel();
    let _ = shared.orders.send(order(answer)).await;
    answered.await.map_err(|_| (StatusCode::SERVICE_UNAVAILABLE, "the demo is ending\n"))
}

type Answer<T> = Result<T, (StatusCode, &'static str)>;

async fn list(State(shared): State<Arc<Shared>>) -> Answer<Json<Value>> {
    ask(&shared, Order::List).await.map(Json)
}

async fn fault(
    State(shared): State<Arc<Shared>>,
    Path((id, verb)): Path<(String, String)>,
) -> Answer<Response> {
    let fault = Fault::from_str(&verb, false)
        .map_err(|_| (StatusCode::NOT_FOUND, "kill, hang, stop, near or restore?\n"))?;
    let done = ask(&shared, |answer| Order::Fault(id.clone(), fault, answer)).await?;
    Ok(told("id", &id, done))
}

/// The condition that an order about `name` led to, or why it was refused.
fn told(kind: &str, name: &str, done: Result<&'static str, String>) -> Response {
    match done {
        Ok(condition) => Json(json!({ kind: name, "condition": condition })).into_response(),
        Err(error) => (StatusCode::CONFLICT, format!("{error}\n")).into_response(),
    }
}

async fn list_routes(State(shared): State<Arc<Shared>>) -> Answer<Json<Value>> {
    ask(&shared, Order::ListRoutes).await.map(Json)
}

async fn route(
    State(shared): State<Arc<Shared>>,
    Path((site, verb)): Path<(String, String)>,
) -> Answer<Response> {
    let order = RouteOrder::from_str(&verb, false)
        .map_err(|_| (StatusCode::NOT_FOUND, "withdraw or announce?\n"))?;
    let done = ask(&shared, |answer| Order::Route(site.clone(), order, answer)).await?;
    Ok(told("site", &site, done))
}

#[derive(Debug, Deserialize)]
struct FirstFrame {
    ms: f64,
}

async fn first_frame(
    State(shared): State<Arc<Shared>>,
    Json(shown): Json<FirstFrame>,
) -> StatusCode {
    let millis = std::time::Duration::try_from_secs_f64(shown.ms / 1_000.0);
    let Some(millis) = millis.ok().and_then(|span| u64::try_from(span.as_millis()).ok()) else {
        return StatusCode::BAD_REQUEST;
    };
    let _ = shared.orders.send(Order::FirstFrame(millis)).await;
    StatusCode::NO_CONTENT
}

const ORDERS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_names_the_order_by_its_kind() {
        let text = async |done| {
            let response = told("site", "s1", done);
            let status = response.status().as_u16();
            let body = axum::body::to_bytes(response.into_body(), 1_000).await.unwrap();
            (status, String::from_utf8(body.to_vec()).unwrap())
        };
        let done = (200, r#"{"condition":"announced","site":"s1"}"#.to_owned());
        assert_eq!(text(Ok("announced")).await, done);
        assert_eq!(text(Err("no BIRD".to_owned())).await, (409, "no BIRD\n".to_owned()));
    }
}
