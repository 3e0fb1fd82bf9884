//! Connecting to an address while checking a name.
//!
//! URLs inside the fleet have the host name of a certificate (`member::Member::host`), which no
//! name server knows. Here it is said where such a host is at the moment.

use std::collections::BTreeMap;
use std::net::ToSocketAddrs;
use std::sync::atomic::{AtomicUsize, Ordering};
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
    /// Connections that were begun: of several addresses each has its turn.
    turn: Arc<AtomicUsize>,
}

impl Dial {
    /// Says that `member` is at `address`, `host:port`, or at one of several with commas between
    /// them: a connection is tried with each, from another one each time, so that who answers
    /// wrongly or not at all costs one attempt. Replaces what was said before.
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
        let mut error = None;
        for place in in_turn(&address, self.turn.fetch_add(1, Ordering::Relaxed)) {
            match place.to_socket_addrs() {
                Ok(found) => {
                    found.take(ADDRESSES_MAX - resolved.len()).for_each(|at| resolved.push(at));
                }
                Err(why) => error = Some(why),
            }
        }
        match (resolved.is_empty(), error) {
            (false, _) => Ok(resolved),
            (true, Some(error)) => Err(error.into()),
            (true, None) => Err(ureq::Error::HostNotFound),
        }
    }
}

/// The parts of a list, from another one for each turn.
fn in_turn(list: &str, turn: usize) -> impl Iterator<Item = &str> {
    let count = list.split(',').count();
    list.split(',').cycle().skip(turn % count).take(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_several_addresses_is_the_first_in_turn() {
        let turn = |turn| in_turn("a:1,b:2,c:3", turn).collect::<Vec<_>>();
        assert_eq!(turn(0), ["a:1", "b:2", "c:3"]);
        assert_eq!(turn(4), ["b:2", "c:3", "a:1"]);
        assert_eq!(in_turn("a:1", 7).collect::<Vec<_>>(), ["a:1"]);
    }
}
