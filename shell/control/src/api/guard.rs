//! Stands before every handler: who asks, may they, and a line in the audit log.
//!
//! ```text
//! request ──> identify ──> 401 ──> role ──> 403 ──> origin ──> 403
//!                                                     │
//!       looks: handler        changes: line in the log ──> handler ──> its outcome in the line
//! ```
//!
//! The line is durable before the change begins, so there is no change without one; a change that
//! a crash cut off leaves a line without an outcome.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::asking::Asking;
use super::problem::{Problem, Said};
use super::{Needs, host};
use crate::connections::listener::Place;
use crate::members::access::{Actor, Role};
use crate::state::directing::Busy;
use crate::state::store::AuditEntry;
use crate::state::writer::Control;

/// The role and the address that one route wants of its caller.
pub(super) struct Rule {
    pub(super) control: Arc<Control>,
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) needs: Needs,
}

/// Why somebody may not.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    NoToken,
    BadToken,
    TooMany,
    Role(Needs, Actor),
    /// Another site's page sent it through the browser.
    Origin(Actor),
}

/// Lets a request through to its handler, or answers why not.
pub(super) async fn guard(
    State(rule): State<Arc<Rule>>,
    mut request: Request,
    next: Next,
) -> Response {
    let asking = Asking::of(request.extensions());
    let mut entry = rule.entry(&request, asking.address);
    match admit(&rule, &request, asking) {
        Ok(actor) => {
            entry.of(&actor);
            if let Some(place) = request.extensions().get::<Arc<Place>>() {
                place.admitted();
            }
            request.extensions_mut().insert(actor);
        }
        Err(refusal) if rule.needs == Needs::Page && refusal == Refusal::NoToken => {
            return to_login(&request);
        }
        Err(refusal) => return refused(&rule, asking.address, entry, refusal).await,
    }
    if !rule.is_audited() {
        return next.run(request).await;
    }
    // Before anything is written.
    match rule.control.directing.busy() {
        Some(Busy::Full) => super::busy(&rule.control),
        Some(Busy::Hangs) => Problem::from(Busy::Hangs).into_response(),
        None => audited(rule, entry, request, next).await,
    }
}

/// A login is audited when it is over: it changes nothing that lasts, and says who it is then.
pub(super) async fn guard_login(
    State(rule): State<Arc<Rule>>,
    request: Request,
    next: Next,
) -> Response {
    let address = Asking::of(request.extensions()).address;
    let mut entry = rule.entry(&request, address);
    if is_foreign(&rule.control, request.headers(), false) {
        return problem(&Refusal::Origin(Actor::anybody()));
    }
    let mut response = next.run(request).await;
    if let Some(actor) = response.extensions().get::<Actor>() {
        entry.of(actor);
    }
    if is_unread(response.status())
        && !rule.control.access.failed(address, rule.control.clock.now())
    {
        rule.control.metrics.requests_refused.count();
        response = problem(&Refusal::TooMany);
    }
    if response.status() != StatusCode::TOO_MANY_REQUESTS {
        entry.outcome = Some(response.status().as_u16());
        note(&rule.control, &entry).await;
    }
    response
}

/// A login that the handler did not get to see, so that it has not counted it as an attempt.
fn is_unread(status: StatusCode) -> bool {
    let is_counted = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::TOO_MANY_REQUESTS);
    status.is_client_error() && !is_counted
}

/// Carries out a change to its end, though its client has left or time is up: half of one, written
/// but not decided upon, would be seen only after a restart.
async fn audited(rule: Arc<Rule>, entry: AuditEntry, request: Request, next: Next) -> Response {
    let control = rule.control.clone();
    let whole = tokio::spawn(async move {
        let line = match control.store.begin_audit(&entry).await {
            Ok(line) => line,
            // No change without a line.
            Err(error) => return Problem::from(error).into_response(),
        };
        let response = next.run(request).await;
        let said = response.extensions().get::<Said>().map_or("", |said| &said.0);
        let outcome = response.status().as_u16();
        if let Err(error) = control.store.end_audit(line, outcome, short(said)).await {
            control.store_failed(&error);
        }
        response
    });
    whole.await.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}

async fn refused(
    rule: &Rule,
    peer: IpAddr,
    mut entry: AuditEntry,
    mut refusal: Refusal,
) -> Response {
    let control = &rule.control;
    match &refusal {
        Refusal::Role(_, actor) | Refusal::Origin(actor) => entry.of(actor),
        Refusal::NoToken | Refusal::BadToken | Refusal::TooMany => {}
    }
    // Who has no session yet asks for pages and looks: that is no attempt at anything.
    let is_attempt = refusal == Refusal::BadToken || rule.is_audited();
    if is_attempt && !control.access.failed(peer, control.clock.now()) {
        refusal = Refusal::TooMany;
    } else if rule.is_audited() {
        let response = problem(&refusal);
        entry.outcome = Some(response.status().as_u16());
        entry.summary = short(&refusal.to_string()).to_owned();
        note(control, &entry).await;
    }
    control.metrics.requests_refused.count();
    problem(&refusal)
}

async fn note(control: &Control, entry: &AuditEntry) {
    if let Err(error) = control.store.begin_audit(entry).await {
        control.store_failed(&error);
    }
}

fn admit(rule: &Rule, request: &Request, asking: Asking) -> Result<Actor, Refusal> {
    let control = &rule.control;
    let (actor, by_cookie) = identify(control, asking, request.headers())?;
    if !rule.needs.are_met_by(actor.role) {
        return Err(Refusal::Role(rule.needs, actor));
    }
    // A browser sends a cookie, and reaches loopback, also for a stranger's page. It cannot be
    // made to send a token of its own accord.
    let by_itself = by_cookie || actor.token.is_none();
    if rule.is_change() && by_itself && is_foreign(control, request.headers(), by_cookie) {
        tracing::warn!(peer = %asking.address, "another site's page tried to change something");
        return Err(Refusal::Origin(actor));
    }
    Ok(actor)
}

/// Who asks, and whether only a cookie says so.
pub(super) fn identify(
    control: &Control,
    asking: Asking,
    headers: &HeaderMap,
) -> Result<(Actor, bool), Refusal> {
    let access = &control.access;
    if access.is_open() && asking.is_local {
        return Ok((Actor::anybody(), false));
    }
    let now = control.clock.unix();
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let actor = bearer(value).and_then(|text| access.bearer(text, now));
        return actor.map(|actor| (actor, false)).ok_or(Refusal::BadToken);
    }
    let key = cookie(headers, cookie_name(control));
    let actor = key.and_then(|key| access.session(key, control.clock.now(), now));
    actor.map(|actor| (actor, true)).ok_or(Refusal::NoToken)
}

/// The token of `Bearer {token}`.
fn bearer(value: &HeaderValue) -> Option<&str> {
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// The value of one cookie.
pub(super) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.trim(), value.trim())).find(|(key, _)| *key == name).map(|p| p.1)
}

/// The session's cookie. With TLS its name makes browsers refuse one that another host set.
pub(super) fn cookie_name(control: &Control) -> &'static str {
    if control.config.is_secure() { "__Host-nearcast" } else { "nearcast" }
}

/// The browser says that another site's page sent the request, or, where that must be said, does
/// not say whose.
fn is_foreign(control: &Control, headers: &HeaderMap, must_say: bool) -> bool {
    let Some(origin) = headers.get(header::ORIGIN) else { return must_say };
    let authority =
        origin.to_str().ok().and_then(|text| text.split_once("://")).map(|(_, rest)| rest);
    let public = control.config.serve.public_url.as_ref().map(|url| url.0.authority());
    authority.is_none() || (authority != host(headers) && authority != public)
}

/// The login page, and back from there.
fn to_login(request: &Request) -> Response {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let safe = |c: char| c.is_ascii_alphanumeric() || "/?-._~=".contains(c);
    let back = if path.chars().all(safe) { path } else { request.uri().path() };
    let target = format!("/login#{back}");
    let target = HeaderValue::from_str(&target).unwrap_or(HeaderValue::from_static("/login"));
    let headers =
        [(header::LOCATION, target), (header::CACHE_CONTROL, HeaderValue::from_static("no-store"))];
    (StatusCode::SEE_OTHER, headers).into_response()
}

/// A refusal as it is answered.
pub(super) fn problem(refusal: &Refusal) -> Response {
    let (status, kind, challenge) = match refusal {
        Refusal::NoToken => (StatusCode::UNAUTHORIZED, "no-token", CHALLENGE),
        Refusal::BadToken => (StatusCode::UNAUTHORIZED, "bad-token", CHALLENGE_BAD),
        Refusal::TooMany => (StatusCode::TOO_MANY_REQUESTS, "too-many-attempts", CHALLENGE_BAD),
        Refusal::Role(..) => (StatusCode::FORBIDDEN, "role", CHALLENGE_ROLE),
        Refusal::Origin(_) => (StatusCode::FORBIDDEN, "origin", CHALLENGE),
    };
    let mut response = Problem::new(status, kind, refusal).into_response();
    let headers = response.headers_mut();
    headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    response
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoToken => f.write_str(
                "this needs a token: send Authorization: Bearer TOKEN, or log in at /login; \
                 nearcast-control token makes one",
            ),
            Self::BadToken => f.write_str("this token is not known here: was it removed?"),
            Self::TooMany => f.write_str("too many failed attempts from this address: wait"),
            Self::Role(needs, actor) => write!(
                f,
                "the token \"{}\" has the role {}, and this needs {needs}",
                actor.name, actor.role
            ),
            Self::Origin(_) => {
                f.write_str("a page of another site may not change anything here in your name")
            }
        }
    }
}

impl Rule {
    /// Its requests change something that lasts, hence stand in the audit log.
    fn is_audited(&self) -> bool {
        let is_change = matches!(self.needs, Needs::Ending | Needs::Operator | Needs::Admin);
        is_change && self.method != Method::GET.as_str()
    }

    /// Its requests change something. A logout does, and does not last.
    fn is_change(&self) -> bool {
        self.is_audited() || self.method == Method::DELETE.as_str()
    }

    fn entry(&self, request: &Request, peer: IpAddr) -> AuditEntry {
        AuditEntry {
            at: self.control.clock.unix(),
            peer: Some(peer.to_string()),
            method: self.method.to_owned(),
            route: self.path.to_owned(),
            target: short(request.uri().path()).to_owned(),
            ..AuditEntry::default()
        }
    }
}

impl AuditEntry {
    fn of(&mut self, actor: &Actor) {
        self.token.clone_from(&actor.token);
        self.name = Some(actor.name.clone());
        self.role = Some(actor.role);
    }
}

impl Needs {
    /// True if this role is enough.
    pub(super) fn are_met_by(self, role: Role) -> bool {
        match self {
            Self::Nothing | Self::Member | Self::Login | Self::Service => true,
            Self::Viewer | Self::Page => Role::Viewer <= role,
            Self::Ending => role == Role::Service || Role::Operator <= role,
            Self::Operator => Role::Operator <= role,
            Self::Admin => Role::Admin <= role,
        }
    }
}

impl std::fmt::Display for Needs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Nothing | Self::Member | Self::Login => "none",
            Self::Service => "service",
            Self::Viewer | Self::Page => "viewer",
            Self::Ending => "service or operator",
            Self::Operator => "operator",
            Self::Admin => "admin",
        })
    }
}

/// The beginning of a text that somebody else wrote.
fn short(text: &str) -> &str {
    text.char_indices().nth(SAID_LEN_MAX).map_or(text, |(end, _)| &text[..end])
}

/// Of a target or a summary in the log, in characters.
const SAID_LEN_MAX: usize = 300;

const CHALLENGE: &str = "Bearer realm=\"nearcast\"";
const CHALLENGE_BAD: &str = "Bearer realm=\"nearcast\", error=\"invalid_token\"";
const CHALLENGE_ROLE: &str = "Bearer realm=\"nearcast\", error=\"insufficient_scope\"";

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;
