//! The few parts of an https URL that a load client needs, and whom it trusts.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use ureq::config::ConfigBuilder;
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::typestate::AgentScope;

/// `https://host[:port]/path`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// A name or an address, without brackets.
    pub host: String,
    /// 443 if there was none.
    pub port: u16,
    /// From the first slash on, query included.
    pub path: String,
}

impl Url {
    pub fn parse(text: &str) -> Result<Self> {
        let bad = || format!("{text}: write https://host[:port]/path");
        let rest = text.strip_prefix("https://").with_context(bad)?;
        let slash = rest.find('/').with_context(bad)?;
        let (authority, path) = rest.split_at(slash);
        let clean = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
        ensure!(path.bytes().all(clean), bad());
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().with_context(bad)?),
            _ => (authority, 443),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        ensure!(!host.is_empty(), bad());
        Ok(Self { host: host.to_owned(), port, path: path.to_owned() })
    }

    /// Host and port, for logs: the path may hold a token.
    pub fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    pub fn resolve(&self) -> Result<SocketAddr> {
        let mut found = (self.host.as_str(), self.port)
            .to_socket_addrs()
            .with_context(|| format!("cannot resolve {}", self.host))?;
        found.next().with_context(|| format!("{} has no address", self.host))
    }
}

/// A client that trusts the certificates in this file and no others, and takes any status as an
/// answer.
pub fn trusting(pem_file: &Path) -> Result<ConfigBuilder<AgentScope>> {
    let pem =
        std::fs::read(pem_file).with_context(|| format!("cannot read {}", pem_file.display()))?;
    let mut roots = Vec::new();
    for item in parse_pem(&pem) {
        if let PemItem::Certificate(certificate) = item? {
            roots.push(certificate);
        }
    }
    let tls = TlsConfig::builder().root_certs(RootCerts::Specific(Arc::new(roots))).build();
    Ok(ureq::Agent::config_builder().tls_config(tls).http_status_as_error(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_port_and_path_are_told_apart() {
        fn check(text: &str, host: &str, port: u16, path: &str) {
            let wanted = Url { host: host.to_owned(), port, path: path.to_owned() };
            assert_eq!(Url::parse(text).unwrap(), wanted);
        }
        check("https://a.example/t/x?y=1", "a.example", 443, "/t/x?y=1");
        check("https://127.0.0.2:8443/", "127.0.0.2", 8443, "/");
        check("https://[::1]:8443/f", "::1", 8443, "/f");
        check("https://[::1]/f", "::1", 443, "/f");
    }

    #[test]
    fn what_is_no_such_url_is_refused() {
        for text in [
            "http://a/",
            "https://a",
            "https:///f",
            "https://a:b/",
            "https://a:70000/",
            "https://a/b c",
            "https://a/b\r\nX: y",
            "https://a/b#c",
        ] {
            assert!(Url::parse(text).is_err(), "{text}");
        }
    }
}
