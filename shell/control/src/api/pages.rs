//! The status page and the player page, embedded when the binary was built.

use axum::extract::Path;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::problem::Problem;

/// Path below `web/dist` and content, sorted by path.
static PAGES: &[(&str, &[u8])] = &include!(concat!(env!("OUT_DIR"), "/pages.rs"));

/// The status page.
#[utoipa::path(get, path = "/", tag = "pages",
    responses((status = 200, content_type = "text/html", body = String),
        (status = 303, description = "To the login page")))]
pub(crate) async fn status() -> Response {
    page("index.html")
}

/// The login page.
#[utoipa::path(get, path = "/login", tag = "pages",
    responses((status = 200, content_type = "text/html", body = String)))]
pub(crate) async fn login() -> Response {
    page("login.html")
}

/// The player page.
#[utoipa::path(get, path = "/play", tag = "pages",
    params(("asset" = Option<String>, Query, description = "What to play"),
        ("player" = Option<String>, Query, description = "`hls` or `dash`"),
        ("plain" = Option<String>, Query, description = "`1` to play without TLS"),
        ("buffer" = Option<String>, Query, description = "Most seconds to buffer")),
    responses((status = 200, content_type = "text/html", body = String),
        (status = 303, description = "To the login page")))]
pub(crate) async fn player() -> Response {
    page("play.html")
}

/// What the pages are made of. Names change with content.
#[utoipa::path(get, path = "/assets/{path}", tag = "pages",
    params(("path" = String, Path, description = "Name of the file")),
    responses((status = 200, content_type = "application/octet-stream", body = Vec<u8>)))]
pub(crate) async fn part(Path(path): Path<String>) -> Response {
    let name = format!("assets/{path}");
    let mut response = page(&name);
    if response.status() == StatusCode::OK {
        let forever = HeaderValue::from_static("public, max-age=31536000, immutable");
        response.headers_mut().insert(header::CACHE_CONTROL, forever);
    }
    response
}

/// Everything else.
pub(crate) async fn other() -> StatusCode {
    StatusCode::NOT_FOUND
}

fn page(name: &str) -> Response {
    let Some(content) = find(name) else {
        if PAGES.is_empty() {
            let detail = "the page was not built: run ./x web";
            return Problem::new(StatusCode::SERVICE_UNAVAILABLE, "no-page", detail)
                .into_response();
        }
        return Problem::not_found(format!("there is no {name} among the pages")).into_response();
    };
    let headers = [
        (header::CONTENT_TYPE, content_type(name)),
        (header::CACHE_CONTROL, "no-cache"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        // The rest of the policy is in the pages; this part is obeyed in a header only.
        (header::CONTENT_SECURITY_POLICY, "frame-ancestors 'none'"),
    ];
    (headers, content).into_response()
}

fn find(name: &str) -> Option<&'static [u8]> {
    PAGES.binary_search_by_key(&name, |(path, _)| path).ok().map(|i| PAGES[i].1)
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit('.').next().unwrap_or("") {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "json" | "map" => "application/json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_sorted_so_that_they_are_found() {
        assert!(PAGES.is_sorted_by_key(|(path, _)| path));
        assert!(PAGES.iter().all(|(path, content)| find(path) == Some(*content)));
    }

    #[test]
    fn browsers_learn_what_they_get() {
        assert_eq!(content_type("assets/index-ABC.js"), "text/javascript; charset=utf-8");
        assert_eq!(content_type("play.html"), "text/html; charset=utf-8");
        assert_eq!(content_type("x"), "application/octet-stream");
    }
}
