//! Tokens, the page's login, and who did what.

#![expect(unused_qualifications, reason = "utoipa's macro qualifies what it is given")]

use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::asking::Asking;
use super::guard::{self, Refusal};
use super::problem::{Problem, Said};
use super::{NO_STORE, Shared, cookie};
use crate::members::access::{Actor, Known, Role, SESSION_LIFETIME};
use crate::state::issue::TokenError;
use crate::state::store::AuditEntry;
use crate::state::writer::Control;

/// A token to be made.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenBody {
    /// For people: whose it is, or what uses it.
    #[schema(example = "grafana", min_length = 1, max_length = 64)]
    name: String,
    /// What it allows. The first token must be an admin's.
    role: Role,
}

/// A token without its secret.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TokenOut {
    /// The part of it that is no secret.
    #[schema(example = "0123456789ab")]
    id: String,
    /// For people.
    name: String,
    /// What it allows.
    role: Role,
    /// When it was made, seconds since 1970.
    created_unix_s: u64,
    /// When it was last used, down to the hour; null if never.
    last_used_unix_s: Option<u64>,
}

/// A new token.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TokenMade {
    /// The part of it that is no secret.
    #[schema(example = "0123456789ab")]
    id: String,
    /// For people.
    name: String,
    /// What it allows.
    role: Role,
    /// The token itself. It is shown this one time.
    token: String,
}

/// A login.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionBody {
    /// The token to log in with.
    token: String,
}

/// The token of a request, or that it needs none.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionOut {
    /// Name of the token.
    name: String,
    /// What it allows.
    role: Role,
    /// Its id; null where everything is open.
    token: Option<String>,
    /// There is no token yet, and everybody on this machine is admin.
    open: bool,
}

/// Which part of the audit log.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct AuditQuery {
    /// Only lines before this number: `next` of the page before.
    #[param(minimum = 1)]
    before: Option<i64>,
    /// Most lines to give, 1 to 1000. Default 100.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// A part of the audit log.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditOut {
    /// Newest first.
    lines: Vec<AuditLine>,
    /// What to ask `before` for what is older; null if there may be no more.
    next: Option<i64>,
}

/// A request that changed something, or was refused.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditLine {
    /// Its number; grows.
    id: i64,
    /// When, seconds since 1970.
    at_unix_s: u64,
    /// Id of the token; null for nobody, and where everything is open.
    token: Option<String>,
    /// Name of the token.
    name: Option<String>,
    /// Its role; null for nobody.
    role: Option<Role>,
    /// Address that asked; null for the command line.
    peer: Option<String>,
    method: String,
    /// Path as the document has it.
    route: String,
    /// Path as asked for.
    target: String,
    /// HTTP status; null while it is under way, or if the process ended in the middle.
    outcome: Option<u16>,
    /// What was changed, or why not.
    summary: String,
}

/// All tokens, without their secrets.
#[utoipa::path(get, path = "/v1/tokens", tag = "access",
    responses((status = 200, body = [TokenOut])))]
pub(crate) async fn tokens(State(control): Shared) -> Json<Vec<TokenOut>> {
    Json(control.access.tokens().values().map(token_out).collect())
}

/// Makes a token. Its text is in the answer and nowhere else.
#[utoipa::path(post, path = "/v1/tokens", tag = "access", request_body = TokenBody,
    responses((status = 201, body = TokenMade)))]
pub(crate) async fn make_token(
    State(control): Shared,
    Json(body): Json<TokenBody>,
) -> Result<Response, Problem> {
    let (token, known) = control.make_token(&body.name, body.role).await?;
    let Known { id, name, role, .. } = known;
    let said = Said(format!("token {id} \"{name}\", {role}"));
    let made = TokenMade { id, name, role, token: token.text() };
    Ok((StatusCode::CREATED, Extension(said), NO_STORE, Json(made)).into_response())
}

/// Removes a token, and ends its logins.
#[utoipa::path(delete, path = "/v1/tokens/{id}", tag = "access",
    responses((status = 204, description = "Gone")))]
pub(crate) async fn delete_token(
    State(control): Shared,
    Path(id): Path<String>,
) -> Result<(Extension<Said>, StatusCode), Problem> {
    let gone = control.delete_token(&id).await?;
    let gone = gone.ok_or_else(|| {
        Problem::not_found(format!("there is no token {id}: GET /v1/tokens lists them"))
    })?;
    let said = Said(format!("token \"{}\", {}", gone.name, gone.role));
    Ok((Extension(said), StatusCode::NO_CONTENT))
}

/// Tells a client whether its token is good, and what it allows.
#[utoipa::path(get, path = "/v1/session", tag = "access",
    responses((status = 200, body = SessionOut)))]
pub(crate) async fn session(Extension(actor): Extension<Actor>) -> Json<SessionOut> {
    Json(session_out(actor))
}

/// Logs a browser in: the answer sets a cookie that is good for 12 hours, or until a restart.
#[utoipa::path(post, path = "/v1/session", tag = "access", request_body = SessionBody,
    responses((status = 200, body = SessionOut)))]
pub(crate) async fn log_in(
    State(control): Shared,
    asking: Asking,
    Json(body): Json<SessionBody>,
) -> Response {
    let access = &control.access;
    let (at, now) = (control.clock.now(), control.clock.unix());
    let actor = access.bearer(body.token.trim(), now);
    let Some((actor, token)) = actor.and_then(|actor| Some((actor.clone(), actor.token?))) else {
        control.metrics.requests_refused.count();
        let is_bearable = access.failed(asking.address, at);
        let refusal = if is_bearable { Refusal::BadToken } else { Refusal::TooMany };
        return guard::problem(&refusal);
    };
    let key = access.log_in(&token, at).text();
    let cookie = set_cookie(&control, &key, SESSION_LIFETIME.as_seconds());
    let cookie = [(header::SET_COOKIE, cookie)];
    (cookie, NO_STORE, Extension(actor.clone()), Json(session_out(actor))).into_response()
}

/// Logs a browser out.
#[utoipa::path(delete, path = "/v1/session", tag = "access",
    responses((status = 204, description = "Logged out")))]
pub(crate) async fn log_out(State(control): Shared, headers: HeaderMap) -> Response {
    if let Some(key) = cookie(&headers, guard::cookie_name(&control)) {
        control.access.log_out(key);
    }
    let cookie = set_cookie(&control, "", 0);
    (StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]).into_response()
}

/// Requests that changed something or tried to, newest first: 100,000 of them, for 400 days.
#[utoipa::path(get, path = "/v1/audit", tag = "access", params(AuditQuery),
    responses((status = 200, body = AuditOut)))]
pub(crate) async fn audit(
    State(control): Shared,
    Query(AuditQuery { before, limit }): Query<AuditQuery>,
) -> Result<Json<AuditOut>, Problem> {
    let limit = limit.unwrap_or(100);
    if !(1..=1000).contains(&limit) {
        return Err(Problem::bad_request("limit: use 1 to 1000"));
    }
    let before = before.unwrap_or(i64::MAX);
    if before < 1 {
        return Err(Problem::bad_request("before: use 1 or more"));
    }
    let lines = control.store.audit(before, limit).await?;
    let is_full = usize::try_from(limit).is_ok_and(|limit| lines.len() == limit);
    let next = lines.last().map(|(id, _)| *id).filter(|_| is_full);
    Ok(Json(AuditOut { lines: lines.into_iter().map(line_out).collect(), next }))
}

fn set_cookie(control: &Control, value: &str, age_s: u64) -> HeaderValue {
    let name = guard::cookie_name(control);
    let secure = if control.config.is_secure() { "; Secure" } else { "" };
    let text =
        format!("{name}={value}; Max-Age={age_s}; Path=/; HttpOnly; SameSite=Strict{secure}");
    HeaderValue::from_str(&text).expect("names and hex digits stand in headers")
}

fn token_out(token: &Known) -> TokenOut {
    TokenOut {
        id: token.id.clone(),
        name: token.name.clone(),
        role: token.role,
        created_unix_s: token.created.0,
        last_used_unix_s: token.last_used.map(|at| at.0),
    }
}

fn session_out(actor: Actor) -> SessionOut {
    let Actor { token, name, role } = actor;
    SessionOut { name, role, open: token.is_none(), token }
}

fn line_out((id, entry): (i64, AuditEntry)) -> AuditLine {
    let AuditEntry { at, token, name, role, peer, method, route, target, outcome, summary } = entry;
    let at_unix_s = at.0;
    AuditLine { id, at_unix_s, token, name, role, peer, method, route, target, outcome, summary }
}

impl From<TokenError> for Problem {
    fn from(error: TokenError) -> Self {
        match error {
            TokenError::Store(error) => error.into(),
            TokenError::Name(_) => Self::bad_request(error),
            TokenError::AdminFirst | TokenError::LastAdmin => {
                Self::new(StatusCode::CONFLICT, "conflict", error)
            }
            TokenError::TooMany => {
                Self::new(StatusCode::INSUFFICIENT_STORAGE, "limit-reached", error)
            }
        }
    }
}
