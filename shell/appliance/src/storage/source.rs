//! Where the bytes of objects come from: HTTP with ranges, as any file server gives it.
//!
//! What a source answers is checked before a byte is used: the status, the range that it says it
//! sends, the length that it says the file has. The bytes are checked by `fill::transfer`.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fill::transfer::SourceFault;
use identity::dial::Dial;
use model::object::BLOCK_LEN;
use model::units::{Bytes, Nanos};
use upkeep::filler;
use ureq::http::HeaderMap;
use ureq::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, RANGE};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig};
use ureq::unversioned::transport::DefaultConnector;

/// How long to wait for a connection.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How long to wait for the first bytes of an answer.
const ANSWER_MAX: Duration = Duration::from_secs(15);
/// How long the line may be silent within an answer.
pub const SILENCE_MAX: Nanos = Nanos::seconds(10);
/// How long a block may take: below 70 kb/s another source is better. Who sends a byte now and then
/// is never silent.
const BLOCK_MAX: Duration = Duration::from_secs(30);
/// Most bytes of a whole-file answer that are read only to be skipped.
const SKIP_MAX: Bytes = Bytes::mib(64);
/// Where Debian, Red Hat and Alpine keep the certificates that a system trusts.
const SYSTEM_TRUST: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// Why there is no HTTP client.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    #[error("cannot read the certificates to trust from {path}: {error}")]
    Read { path: PathBuf, error: std::io::Error },
    #[error("{0} holds no PEM certificate: name the authority that signed the sources'")]
    Empty(PathBuf),
}

/// An answer that is being read.
pub(crate) struct Answer {
    body: ureq::BodyReader<'static>,
    /// Where in the object the next byte belongs.
    at: Bytes,
    end: Bytes,
}

/// The certificates of the system and those of `extra`, for sources behind a private authority.
pub fn trusted(extra: Option<&Path>) -> Result<TlsConfig, TrustError> {
    let system = SYSTEM_TRUST.iter().find_map(|path| std::fs::read(path).ok());
    let mut certificates = system.as_deref().map(certificates).unwrap_or_default();
    if let Some(path) = extra {
        let pem = std::fs::read(path)
            .map_err(|error| TrustError::Read { path: path.to_owned(), error })?;
        let ours = self::certificates(&pem);
        if ours.is_empty() {
            return Err(TrustError::Empty(path.to_owned()));
        }
        certificates.extend(ours);
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    Ok(TlsConfig::builder()
        .root_certs(RootCerts::from(certificates))
        .unversioned_rustls_crypto_provider(provider)
        .build())
}

/// A client for origins that keeps its connections. Each thread has its own.
pub(crate) fn agent(tls: &TlsConfig, silence_max: Nanos) -> ureq::Agent {
    config(tls, silence_max, 3).new_agent()
}

/// The same for members of the fleet, which are where `dial` says and never send us elsewhere.
pub(crate) fn member_agent(tls: &TlsConfig, dial: Dial, silence_max: Nanos) -> ureq::Agent {
    ureq::Agent::with_parts(config(tls, silence_max, 0), DefaultConnector::new(), dial)
}

fn config(tls: &TlsConfig, silence_max: Nanos, redirects: u32) -> ureq::config::Config {
    let silence_max = Some(Duration::from(silence_max));
    ureq::Agent::config_builder()
        .tls_config(tls.clone())
        .http_status_as_error(false)
        .proxy(None)
        .max_redirects(redirects)
        .accept_encoding("identity")
        .user_agent(concat!("nearcast-appliance/", env!("CARGO_PKG_VERSION")))
        .timeout_connect(Some(CONNECT_MAX))
        .timeout_recv_response(Some(ANSWER_MAX))
        .timeout_per_read(silence_max)
        .timeout_per_write(silence_max)
        .build()
}

/// Asks `url` for bytes `start..end` of an object of `len`.
pub(crate) fn open(
    agent: &ureq::Agent,
    url: &str,
    start: Bytes,
    end: Bytes,
    len: Bytes,
) -> Result<Answer, SourceFault> {
    assert!(start < end && end <= len, "a range within the object");
    let request = agent.get(url).header(RANGE, format!("bytes={}-{}", start.0, end.0 - 1));
    let response = request.call().map_err(|error| SourceFault::Unreachable(error.to_string()))?;
    let (parts, body) = response.into_parts();
    let encoding = text(&parts.headers, CONTENT_ENCODING);
    if encoding.is_some_and(|encoding| encoding != "identity") {
        return Err(SourceFault::OtherRange("an encoded file; it must send it as it is".into()));
    }
    let (at, end) = match parts.status.as_u16() {
        206 => (checked_range(&parts.headers, start, end, len)?, end),
        200 => (checked_whole(&parts.headers, start, len)?, len),
        other => return Err(SourceFault::Status(other)),
    };
    let mut answer = Answer { body: body.into_reader(), at, end };
    answer.skip_to(start)?;
    Ok(answer)
}

impl filler::Answer for Answer {
    fn next(&self) -> u64 {
        self.at.0 / BLOCK_LEN.0
    }

    fn is_over(&self) -> bool {
        self.end <= self.at
    }

    async fn read(&mut self, bytes: &mut [u8]) -> Result<(), SourceFault> {
        self.fill(bytes)
    }

    /// Reads the end of the answer, without which the connection cannot be used again.
    fn finish(mut self) {
        let _ = self.body.read(&mut [0]);
    }
}

impl Answer {
    /// Fills `bytes`, a block at most, with what comes next.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), SourceFault> {
        let mut done = 0;
        let began = Instant::now();
        while done < bytes.len() {
            if BLOCK_MAX < began.elapsed() {
                return Err(SourceFault::Slow(self.at + Bytes::of(done)));
            }
            match self.body.read(&mut bytes[done..]) {
                Ok(0) | Err(_) => return Err(SourceFault::BrokeOff(self.at + Bytes::of(done))),
                Ok(n) => done += n,
            }
        }
        self.at += Bytes::of(done);
        Ok(())
    }

    fn skip_to(&mut self, start: Bytes) -> Result<(), SourceFault> {
        // Of a block's length, since it is blocks that must come in time.
        let mut scrap = vec![0; BLOCK_LEN.as_usize()];
        while self.at < start {
            let len = scrap.len().min((start - self.at).as_usize());
            self.fill(&mut scrap[..len])?;
        }
        Ok(())
    }
}

/// `Content-Range: bytes 0-99/1000` must be what was asked for (RFC 9110, section 14.4).
fn checked_range(
    headers: &HeaderMap,
    start: Bytes,
    end: Bytes,
    len: Bytes,
) -> Result<Bytes, SourceFault> {
    let said = text(headers, CONTENT_RANGE).unwrap_or("");
    let fault =
        || SourceFault::OtherRange(format!("\"{}\"", said.chars().take(80).collect::<String>()));
    let range = said.strip_prefix("bytes ").and_then(|rest| rest.split_once('/'));
    let (range, total) = range.ok_or_else(fault)?;
    let wanted = format!("{}-{}", start.0, end.0 - 1);
    if range != wanted || (total != "*" && total.parse() != Ok(len.0)) {
        return Err(fault());
    }
    Ok(start)
}

/// The whole file instead of a range is used if not too much of it has to be skipped.
fn checked_whole(headers: &HeaderMap, start: Bytes, len: Bytes) -> Result<Bytes, SourceFault> {
    let said = text(headers, CONTENT_LENGTH);
    if said.is_some_and(|said| said.parse() != Ok(len.0)) {
        let found = said.unwrap_or("");
        let text = format!("a file of {found} B, and the object has {}", len.0);
        return Err(SourceFault::OtherRange(text));
    }
    if SKIP_MAX < start { Err(SourceFault::RangeIgnored) } else { Ok(Bytes::ZERO) }
}

fn text(headers: &HeaderMap, name: ureq::http::HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

fn certificates(pem: &[u8]) -> Vec<Certificate<'static>> {
    let items = ureq::tls::parse_pem(pem).filter_map(Result::ok);
    items
        .filter_map(|item| match item {
            PemItem::Certificate(certificate) => Some(certificate),
            PemItem::PrivateKey(_) | _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(range: &str) -> HeaderMap {
        HeaderMap::from_iter([(CONTENT_RANGE, range.parse().unwrap())])
    }

    #[test]
    fn only_the_range_that_was_asked_for_is_taken() {
        let check = |said: &str| checked_range(&headers(said), Bytes(5), Bytes(10), Bytes(20));
        assert_eq!(check("bytes 5-9/20"), Ok(Bytes(5)));
        assert_eq!(check("bytes 5-9/*"), Ok(Bytes(5)));
        for bad in ["bytes 5-9/21", "bytes 0-9/20", "bytes 5-10/20", "bytes */20", "5-9/20", ""] {
            assert!(matches!(check(bad), Err(SourceFault::OtherRange(_))), "{bad}");
        }
    }

    #[test]
    fn a_whole_file_is_taken_if_it_has_the_right_length_and_little_is_skipped() {
        let len = Bytes::mib(200);
        let none = HeaderMap::new();
        assert_eq!(checked_whole(&none, Bytes::mib(1), len), Ok(Bytes::ZERO));
        assert_eq!(checked_whole(&none, Bytes::mib(65), len), Err(SourceFault::RangeIgnored));
        let other = HeaderMap::from_iter([(CONTENT_LENGTH, "7".parse().unwrap())]);
        assert!(matches!(checked_whole(&other, Bytes(1), len), Err(SourceFault::OtherRange(_))));
    }

    #[test]
    fn a_file_to_trust_must_hold_certificates() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.pem");
        let key = rcgen::generate_simple_self_signed(vec!["origin".to_owned()]).unwrap();
        std::fs::write(&path, key.cert.pem()).unwrap();
        assert!(trusted(Some(&path)).is_ok());
        std::fs::write(&path, "nothing").unwrap();
        assert!(matches!(trusted(Some(&path)), Err(TrustError::Empty(_))));
        assert!(matches!(trusted(Some(dir.path())), Err(TrustError::Read { .. })));
    }
}
