//! Errors as RFC 9457 has them: `application/problem+json`.

use std::fmt::Display;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use identity::secret_file::SecretError;
use serde::Serialize;
use utoipa::{ToResponse, ToSchema};

use crate::state::convert::Refused;
use crate::state::directing::Busy;
use crate::state::documents::DocumentError;
use crate::state::store::StoreError;
use crate::state::vault;
use crate::state::writer::ChangeError;

/// What went wrong, for programs and for people (RFC 9457).
#[derive(Clone, Debug, Serialize, ToSchema, ToResponse)]
#[response(description = "What went wrong (RFC 9457)", content_type = "application/problem+json")]
pub(crate) struct Problem {
    /// Kind of problem: a URN that stays the same.
    #[serde(rename = "type")]
    #[schema(example = "urn:nearcast:problem:not-found")]
    kind: String,
    /// The kind in words.
    #[schema(example = "Not found")]
    title: String,
    #[schema(example = 404)]
    status: u16,
    /// What was wrong this time, and what to do.
    #[schema(example = "there is no such asset: GET /v1/assets lists them")]
    detail: String,
}

/// What a handler says of a change, for the audit log: a response's extension.
#[derive(Clone, Debug)]
pub(super) struct Said(pub(super) String);

impl Problem {
    /// A problem of a kind (a few words with hyphens; the title is the same words).
    pub(crate) fn new(status: StatusCode, kind: &str, detail: impl ToString) -> Self {
        let mut title = kind.replace('-', " ");
        if let Some(first) = title.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        let kind = format!("urn:nearcast:problem:{kind}");
        Self { kind, title, status: status.as_u16(), detail: detail.to_string() }
    }

    /// Of what is worked out for one at a time.
    pub(crate) fn busy() -> Self {
        let detail = "this is worked out for others: come again in a moment";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail)
    }

    pub(crate) fn not_found(detail: impl ToString) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not-found", detail)
    }

    /// This writer stands by, or has led until now.
    pub(crate) fn standby(detail: impl ToString) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "standby", detail)
    }

    /// A change is not durable, and not made.
    fn not_stored(error: impl Display) -> Self {
        tracing::error!(%error, "a change could not be stored");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "storage", error)
    }

    pub(crate) fn bad_request(detail: impl ToString) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad-request", detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let said = Said(self.detail.clone());
        let mut response = (status, Extension(said), Json(self)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if status == StatusCode::UNAUTHORIZED {
            // Where a token is wanted, the guard says so instead.
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(GRANT));
        }
        let retry_after = match status {
            StatusCode::SERVICE_UNAVAILABLE => Some("1"),
            // The time in which an attempt comes back.
            StatusCode::TOO_MANY_REQUESTS => Some("6"),
            _ => None,
        };
        if let Some(seconds) = retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static(seconds));
        }
        response
    }
}

impl From<ChangeError> for Problem {
    fn from(error: ChangeError) -> Self {
        match &error {
            ChangeError::Store(error) => error.into(),
            ChangeError::Document(error) => error.into(),
            ChangeError::Refused(_) | ChangeError::Bucket(_) => {
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "not-in-order", error)
            }
            ChangeError::OtherContent(_)
            | ChangeError::OtherAsset { .. }
            | ChangeError::Withdrawn { new: true, .. }
            | ChangeError::NoSite(_)
            | ChangeError::NoCluster(_)
            | ChangeError::Address(..)
            | ChangeError::Alike { .. }
            | ChangeError::SiteInUse { .. } => Self::new(StatusCode::CONFLICT, "conflict", error),
            ChangeError::Unknown { .. }
            | ChangeError::NoVersion(_)
            | ChangeError::Withdrawn { new: false, .. } => Self::not_found(error),
            ChangeError::TooMany { .. } => {
                Self::new(StatusCode::INSUFFICIENT_STORAGE, "limit-reached", error)
            }
        }
    }
}

impl From<Busy> for Problem {
    fn from(busy: Busy) -> Self {
        let kind = match busy {
            Busy::Full => "busy",
            Busy::Hangs => "director-hangs",
        };
        Self::new(StatusCode::SERVICE_UNAVAILABLE, kind, busy)
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        (&error).into()
    }
}

impl From<&StoreError> for Problem {
    fn from(error: &StoreError) -> Self {
        match error {
            StoreError::Deposed { .. } => Self::standby(error),
            StoreError::Database(_)
            | StoreError::Url
            | StoreError::Path(_)
            | StoreError::Newer { .. }
            | StoreError::Older { .. }
            | StoreError::Damaged(_)
            | StoreError::NoNumbers => Self::not_stored(error),
        }
    }
}

impl From<DocumentError> for Problem {
    fn from(error: DocumentError) -> Self {
        (&error).into()
    }
}

impl From<&DocumentError> for Problem {
    fn from(error: &DocumentError) -> Self {
        match error {
            DocumentError::Store(error) => error.into(),
            // A folder may be mounted again.
            DocumentError::Away { .. } | DocumentError::Unmarked { .. } => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "documents-away", error)
            }
            // They are logged where they are counted.
            DocumentError::Missing(_)
            | DocumentError::Damaged(_)
            | DocumentError::Foreign(_)
            | DocumentError::Elsewhere
            | DocumentError::InPlace
            | DocumentError::InDatabase(_)
            | DocumentError::Place(_)
            | DocumentError::Bucket(_) => {
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "documents", error)
            }
        }
    }
}

impl From<SecretError> for Problem {
    fn from(error: SecretError) -> Self {
        if vault::is_deposed(&error) { Self::standby(error) } else { Self::not_stored(error) }
    }
}

impl From<Refused> for Problem {
    fn from(error: Refused) -> Self {
        Self::bad_request(error)
    }
}

/// Gives error responses that are not problems yet (a body that is no JSON, a wrong method, a
/// timeout) the same form.
pub(crate) async fn dress(request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    let status = response.status();
    let is_json = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().ends_with(b"json"));
    if !(status.is_client_error() || status.is_server_error()) || is_json {
        return response;
    }
    let (parts, body) = response.into_parts();
    let text = to_bytes(Body::new(body), DETAIL_LEN_MAX).await.unwrap_or_default();
    let reason = status.canonical_reason().unwrap_or("error");
    let kind = reason.to_ascii_lowercase().replace(' ', "-");
    let detail = match String::from_utf8_lossy(&text).trim() {
        "" if status == StatusCode::NOT_FOUND => NO_SUCH_PAGE.to_owned(),
        "" if status == StatusCode::METHOD_NOT_ALLOWED => {
            "this address does not know that method: /openapi.json lists what there is".to_owned()
        }
        "" => reason.to_owned(),
        text => text.to_owned(),
    };
    let mut dressed = Problem::new(status, &kind, detail).into_response();
    if let Some(allow) = parts.headers.get(header::ALLOW) {
        dressed.headers_mut().insert(header::ALLOW, allow.clone());
    }
    dressed
}

const GRANT: &str = "Grant realm=\"nearcast\"";
pub(crate) const MEDIA_TYPE: &str = "application/problem+json";
const NO_SUCH_PAGE: &str = "there is nothing at this address: /openapi.json lists what there is";
const DETAIL_LEN_MAX: usize = 16 << 10;
