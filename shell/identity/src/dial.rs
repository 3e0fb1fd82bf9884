//! Connecting to an address while checking a name.
//!
//! URLs inside the fleet have the host name of a certificate (`member::Member::host`), which no
//! name server knows. Here it is said where such a host is at the moment.

use std::collections::BTreeMap;
use std::net::ToSocketAddrs;
use std::sync::{Arc, Mutex, PoisonError};

use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

use crate::member::Member;

/// Most addresses of a host that are tried.
const ADDRESSES_MAX: usize = 8;
/// Most members whose address is kept; the table is emptied when it is full, and fills anew.
const MEMBERS_MAX: usize = 4096;

/// Where members are. Cheap to clone; all clones share one table.
#[derive(Clone, Debug, Default)]
pub struct Dial {
    addresses: Arc<Mutex<BTreeMap<String, String>>>,
}

impl Dial {
    /// Says that `member` is at `address`, `host:port`. Replaces what was said before.
    pub fn set(&self, member: &Member, address: &str) {
        self.set_host(&member.host(), address);
    }

    /// The same by its host name.
    pub fn set_host(&self, host: &str, address: &str) {
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        if MEMBERS_MAX <= addresses.len() && !addresses.contains_key(host) {
            addresses.clear();
        }
        addresses.insert(host.to_owned(), address.to_owned());
    }

    fn get(&self, host: &str) -> Option<String> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner).get(host).cloned()
    }
}

impl Resolver for Dial {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let Some(address) = uri.host().and_then(|host| self.get(host)) else {
            return DefaultResolver::default().resolve(uri, config, timeout);
        };
        let mut resolved = self.empty();
        for found in address.to_socket_addrs()?.take(ADDRESSES_MAX) {
            resolved.push(found);
        }
        if resolved.is_empty() { Err(ureq::Error::HostNotFound) } else { Ok(resolved) }
    }
}
