//! Who asks, as far as addresses say it: made once per request, before everything else.
//!
//! ```text
//! connection ──> PROXY header of a trusted proxy ──> its client
//!                    └─ trusted itself? Forwarded, X-Forwarded-For, from the right:
//!                       trusted ──> the next one left; the first that is not ──> the client
//! ```
//!
//! What anybody else sends in these headers is not looked at, but for one thing: a request that
//! somebody passed on is not one of this machine. Cost: O(length of these headers) per request.

use std::net::{IpAddr, SocketAddr};

use axum::extract::{ConnectInfo, FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, StatusCode, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use model::topology::Prefix;

use super::problem::Problem;
use super::{Shared, host, is_loopback};
use crate::connections::listener::Peer;

/// Where a request is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asking {
    /// The client's address: of the connection, or what a trusted proxy says.
    pub(crate) address: IpAddr,
    /// From a program on this machine, to a name of this machine, and passed on by nobody.
    pub(super) is_local: bool,
}

/// The middleware: every request has an [`Asking`] from here on.
pub(super) async fn find_out(State(control): Shared, mut request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<ConnectInfo<Peer>>();
    let ConnectInfo(peer) = *peer.expect("every listener says who is connected");
    let trusted = &control.config.serve.trusted_proxies;
    let is_http_1_1 = request.version() != Version::HTTP_10;
    match asking(peer, trusted, request.headers(), is_http_1_1) {
        Ok(asking) => {
            request.extensions_mut().insert(asking);
            next.run(request).await
        }
        Err(detail) => {
            control.metrics.forwarded_refused.count();
            Problem::new(StatusCode::BAD_REQUEST, "forwarded", detail).into_response()
        }
    }
}

/// Where a request is from; or the fault in the headers of a trusted proxy.
fn asking(
    peer: Peer,
    trusted: &[Prefix],
    headers: &HeaderMap,
    is_http_1_1: bool,
) -> Result<Asking, String> {
    let is_trusted = |address: IpAddr| trusted.iter().any(|prefix| prefix.contains(&address));
    // nginx passes requests on as HTTP/1.0 and without a word, if nobody tells it otherwise.
    let is_passed_on = peer.is_proxied
        || is_trusted(peer.address)
        || PASSED_ON.iter().any(|name| headers.contains_key(name))
        || !is_http_1_1;
    let address = if is_trusted(peer.address) {
        client(peer.address, headers, is_trusted)?
    } else {
        peer.address
    };
    let is_local =
        peer.address.is_loopback() && !is_passed_on && host(headers).is_none_or(is_loopback);
    Ok(Asking { address, is_local })
}

/// The client of a trusted proxy: the proxy itself, if it names none.
fn client(
    proxy: IpAddr,
    headers: &HeaderMap,
    is_trusted: impl Fn(IpAddr) -> bool,
) -> Result<IpAddr, String> {
    type Read = fn(&str) -> Result<Option<IpAddr>, ()>;
    let by = |name: HeaderName, read: Read| -> Result<Option<IpAddr>, String> {
        let mut client = proxy;
        for line in headers.get_all(&name).iter().rev() {
            let line = line.to_str().map_err(|_| malformed(&name))?;
            for element in line.rsplit(',') {
                match read(element.trim()).map_err(|()| malformed(&name))? {
                    Some(address) if is_trusted(address) => client = address,
                    Some(address) => return Ok(Some(address)),
                    // Who says so does not want to say more.
                    None => return Ok(Some(client)),
                }
            }
        }
        Ok(headers.contains_key(&name).then_some(client))
    };
    match (by(FORWARDED, forwarded_for)?, by(X_FORWARDED_FOR, node)?) {
        // A proxy that knows of one header only lets the other pass as its client wrote it.
        (Some(one), Some(other)) if one != other => {
            Err("Forwarded and X-Forwarded-For name different clients: let your proxy set one and \
                 remove the other"
                .to_owned())
        }
        (Some(client), _) | (None, Some(client)) => Ok(client),
        (None, None) => Ok(proxy),
    }
}

fn malformed(name: &HeaderName) -> String {
    format!("{name} of a trusted proxy names no address: let the proxy write it anew, or remove it")
}

/// The `for` of one element of `Forwarded`; none if it says that nobody is to know.
fn forwarded_for(element: &str) -> Result<Option<IpAddr>, ()> {
    let mut found = None;
    for pair in element.split(';').map(str::trim).filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').ok_or(())?;
        if name.eq_ignore_ascii_case("for") {
            let unquoted = value.strip_prefix('"').map(|rest| rest.strip_suffix('"').ok_or(()));
            let value = unquoted.unwrap_or(Ok(value))?;
            // Twice is not allowed, and could be read in two ways.
            if found.replace(node(value)?).is_some() {
                return Err(());
            }
        }
    }
    Ok(found.flatten())
}

/// An address, with a port or without; none for `unknown` and for names that hide one.
fn node(text: &str) -> Result<Option<IpAddr>, ()> {
    if text.eq_ignore_ascii_case("unknown") || text.starts_with('_') {
        return Ok(None);
    }
    let address = text.parse::<IpAddr>().ok();
    let address = address.or_else(|| Some(text.parse::<SocketAddr>().ok()?.ip()));
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse::<IpAddr>().ok();
    // A port may be hidden as well: "192.0.2.1:_x".
    let hidden = || text.rsplit_once(":_").and_then(|(node, _)| node.parse::<IpAddr>().ok());
    let address = address.or_else(bracketed).or_else(hidden).ok_or(())?;
    Ok(Some(address.to_canonical()))
}

impl Asking {
    /// The same of parts of a request, which the middleware has seen.
    pub(super) fn of(extensions: &axum::http::Extensions) -> Self {
        *extensions.get().expect("the middleware stands before every handler")
    }
}

impl<S: Sync> FromRequestParts<S> for Asking {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(Self::of(&parts.extensions))
    }
}

const FORWARDED: HeaderName = header::FORWARDED;
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// What proxies add, ours or not.
const PASSED_ON: [HeaderName; 6] = [
    FORWARDED,
    X_FORWARDED_FOR,
    HeaderName::from_static("x-forwarded-host"),
    HeaderName::from_static("x-forwarded-proto"),
    HeaderName::from_static("x-real-ip"),
    header::VIA,
];

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    const PROXY: &str = "10.0.0.1";

    #[test]
    fn a_trusted_proxy_says_who_its_client_is() {
        says(&[], PROXY);
        says(&[("x-forwarded-for", "198.51.100.7")], "198.51.100.7");
        says(&[("x-forwarded-for", "2001:db8::7")], "2001:db8::7");
        says(&[("x-forwarded-for", "198.51.100.7:4000")], "198.51.100.7");
        says(&[("x-forwarded-for", "[2001:db8::7]:4000")], "2001:db8::7");
        says(&[("x-forwarded-for", "::ffff:198.51.100.7")], "198.51.100.7");
        says(&[("forwarded", "for=198.51.100.7;proto=https;by=10.0.0.1")], "198.51.100.7");
        says(&[("forwarded", "proto=https; For=\"[2001:db8::7]:4000\"")], "2001:db8::7");
        says(&[("forwarded", "for=\"198.51.100.7:_x\"")], "198.51.100.7");
    }

    #[test]
    fn the_rightmost_address_that_is_no_proxys_is_the_client() {
        says(&[("x-forwarded-for", "1.1.1.1, 198.51.100.7, 10.0.0.2")], "198.51.100.7");
        says(
            &[("x-forwarded-for", "1.1.1.1"), ("x-forwarded-for", "198.51.100.7")],
            "198.51.100.7",
        );
        says(&[("x-forwarded-for", "10.0.0.9, 10.0.0.2")], "10.0.0.9");
        says(&[("forwarded", "for=1.1.1.1, for=198.51.100.7, for=10.0.0.2")], "198.51.100.7");
        // What a client wrote is on the left, and is not even read.
        says(&[("x-forwarded-for", "<garbage>, 198.51.100.7")], "198.51.100.7");
        says(&[("forwarded", "for=, for=\"x, for=198.51.100.7")], "198.51.100.7");
        // Somebody on the way does not want to say more.
        says(&[("forwarded", "for=1.1.1.1, for=unknown, for=10.0.0.2")], "10.0.0.2");
        says(&[("forwarded", "for=_hidden")], PROXY);
        says(&[("forwarded", "proto=https")], PROXY);
    }

    #[test]
    fn what_a_trusted_proxy_says_has_to_be_understood() {
        refused(&[("x-forwarded-for", "somebody")]);
        refused(&[("x-forwarded-for", "198.51.100.7,")]);
        refused(&[("x-forwarded-for", "")]);
        refused(&[("forwarded", "198.51.100.7")]);
        refused(&[("forwarded", "for=198.51.100.7;for=1.1.1.1")]);
        refused(&[("forwarded", "for=\"198.51.100.7")]);
        // The client wrote one of them.
        refused(&[("forwarded", "for=1.1.1.1"), ("x-forwarded-for", "198.51.100.7")]);
        let both = [("forwarded", "for=198.51.100.7"), ("x-forwarded-for", "198.51.100.7")];
        says(&both, "198.51.100.7");
    }

    #[test]
    fn headers_of_anybody_else_say_nothing_but_that_it_is_no_request_of_this_machine() {
        for name in PASSED_ON {
            let found = ask("127.0.0.1", false, &[(name.as_str(), "198.51.100.7")], true).unwrap();
            assert_eq!(found, Asking { address: address("127.0.0.1"), is_local: false }, "{name}");
        }
        let local = |peer, is_proxied, headers: &[_], is_http_1_1| {
            ask(peer, is_proxied, headers, is_http_1_1).unwrap().is_local
        };
        assert!(local("127.0.0.1", false, &[("host", "localhost:8080")], true));
        assert!(local("::1", false, &[], true));
        assert!(!local("127.0.0.1", false, &[], false), "HTTP/1.0, as nginx speaks");
        assert!(!local("127.0.0.1", false, &[("host", "c.example")], true));
        assert!(!local("127.0.0.1", true, &[], true), "of a PROXY header");
        assert!(!local("198.51.100.7", false, &[], true));
        assert!(!local(PROXY, false, &[], true));
    }

    #[test]
    fn a_proxy_on_this_machine_that_is_trusted_makes_nobody_local() {
        let trusted = ["127.0.0.0/8".parse().unwrap()];
        let peer = Peer { address: address("127.0.0.1"), is_proxied: false };
        let found = asking(peer, &trusted, &HeaderMap::new(), true).unwrap();
        assert_eq!(found, Asking { address: address("127.0.0.1"), is_local: false });
    }

    fn says(headers: &[(&str, &str)], client: &str) {
        let found = ask(PROXY, false, headers, true).unwrap();
        assert_eq!(found, Asking { address: address(client), is_local: false }, "{headers:?}");
        let other = ask("192.0.2.99", false, headers, true).unwrap();
        assert_eq!(other.address, address("192.0.2.99"), "anybody may write {headers:?}");
    }

    fn refused(headers: &[(&str, &str)]) {
        assert!(ask(PROXY, false, headers, true).is_err(), "{headers:?}");
        assert!(ask("192.0.2.99", false, headers, true).is_ok(), "{headers:?}");
    }

    fn ask(
        peer: &str,
        is_proxied: bool,
        headers: &[(&str, &str)],
        is_http_1_1: bool,
    ) -> Result<Asking, String> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name: HeaderName = name.parse().unwrap();
            map.append(name, HeaderValue::from_str(value).unwrap());
        }
        let trusted = ["10.0.0.0/8".parse().unwrap()];
        asking(Peer { address: address(peer), is_proxied }, &trusted, &map, is_http_1_1)
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }
}
