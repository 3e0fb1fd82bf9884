//! Connecting to an address while checking a name.
//!
//! URLs inside the fleet have the host name of a certificate (`member::Member::host`), which no
//! name server knows. Here it is said where such a host is at the moment.
//!
//! An address may have a name of DNS in it. The C library resolves it, and cannot be told to stop:
//! it does so on a thread of its own, which is left alone at the deadline and ends when it can.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use ureq::Timeout;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

use crate::member::Member;

/// Most addresses of a host that are tried.
const ADDRESSES_MAX: usize = 8;
/// Most members whose address is kept; the table is emptied when it is full, and fills anew.
const MEMBERS_MAX: usize = 4096;
/// For a name, where the client has no deadline for connecting.
const LOOKUP_MAX: Duration = Duration::from_secs(5);
/// Most names that this process resolves at a time: twice as many as threads that ask at once. More
/// is an error at once, since resolvers that answer do so in milliseconds.
const LOOKUPS_MAX: usize = 64;

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
        let host_and_port = || DefaultResolver::host_and_port(uri.scheme()?, uri.authority()?);
        let address = uri.host().and_then(|host| self.get(host)).or_else(host_and_port);
        let address = address.ok_or(ureq::Error::HostNotFound)?;
        let within = config.timeouts().connect.unwrap_or(LOOKUP_MAX).min(*timeout.after);
        let ask = |address: &str| Ok(address.to_socket_addrs()?.collect());
        let mut resolved = self.empty();
        for found in LOOKUPS.look_up(&address, within, ask)?.into_iter().take(ADDRESSES_MAX) {
            resolved.push(found);
        }
        if resolved.is_empty() { Err(ureq::Error::HostNotFound) } else { Ok(resolved) }
    }
}

static LOOKUPS: Lookups = Lookups(Mutex::new(Running { count: 0, late: BTreeSet::new() }));

/// Names that are being resolved.
#[derive(Debug)]
struct Lookups(Mutex<Running>);

#[derive(Debug)]
struct Running {
    /// Invariant: at most `LOOKUPS_MAX`.
    count: usize,
    /// Names that are still being resolved behind the deadline: nobody asks for them again, so that
    /// one that hangs leaves room for the others.
    late: BTreeSet<String>,
}

impl Lookups {
    /// The addresses of `address`, `host:port`, as `ask` finds them in time.
    fn look_up(
        &'static self,
        address: &str,
        within: Duration,
        ask: impl FnOnce(&str) -> io::Result<Vec<SocketAddr>> + Send + 'static,
    ) -> Result<Vec<SocketAddr>, ureq::Error> {
        if let Ok(address) = address.parse() {
            return Ok(vec![address]);
        }
        self.begin(address)?;
        let (tell, told) = mpsc::channel();
        let name = address.to_owned();
        let look = move || {
            // Told before it is let go of: whoever finds it running is told yet.
            let _ = tell.send(ask(&name));
            self.end(&name);
        };
        if let Err(error) = std::thread::Builder::new().name("resolver".to_owned()).spawn(look) {
            self.end(address);
            return Err(error.into());
        }
        if let Ok(found) = told.recv_timeout(within) {
            return Ok(found?);
        }
        let mut running = self.running();
        if let Ok(found) = told.try_recv() {
            return Ok(found?);
        }
        running.late.insert(address.to_owned());
        Err(ureq::Error::Timeout(Timeout::Resolve))
    }

    fn begin(&self, address: &str) -> io::Result<()> {
        let mut running = self.running();
        if running.late.contains(address) {
            return Err(io::Error::other("the resolver has not answered yet for this name"));
        }
        if LOOKUPS_MAX <= running.count {
            let text = format!("the resolver has not answered yet for {LOOKUPS_MAX} names");
            return Err(io::Error::other(text));
        }
        running.count += 1;
        Ok(())
    }

    fn end(&self, address: &str) {
        let mut running = self.running();
        running.count -= 1;
        running.late.remove(address);
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const SOON: Duration = Duration::from_millis(20);
    const LATE: Duration = Duration::from_secs(30);

    fn lookups() -> &'static Lookups {
        Box::leak(Box::new(Lookups(Mutex::new(Running { count: 0, late: BTreeSet::new() }))))
    }

    fn one(_: &str) -> io::Result<Vec<SocketAddr>> {
        Ok(vec![SocketAddr::from(([192, 0, 2, 1], 443))])
    }

    /// A resolver that answers when something is sent, or the sender is gone.
    fn hangs() -> (mpsc::Sender<()>, impl FnOnce(&str) -> io::Result<Vec<SocketAddr>>) {
        let (answer, answered) = mpsc::channel();
        let ask = move |name: &str| {
            let _ = answered.recv();
            one(name)
        };
        (answer, ask)
    }

    /// Asks until there is an answer.
    fn ask(lookups: &'static Lookups, address: &str) {
        let start = Instant::now();
        while lookups.look_up(address, LATE, one).is_err() {
            assert!(start.elapsed() < LATE, "it answers again");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_name_that_hangs_is_given_up_and_not_asked_for_again_until_it_is_answered() {
        let lookups = lookups();
        let (start, (answer, hang)) = (Instant::now(), hangs());
        let late = lookups.look_up("a.example:443", SOON, hang).unwrap_err();
        assert!(matches!(late, ureq::Error::Timeout(Timeout::Resolve)), "{late}");
        assert!(start.elapsed() < LATE, "it does not wait for the resolver");
        let again = lookups.look_up("a.example:443", LATE, one).unwrap_err().to_string();
        assert!(again.contains("not answered yet for this name"), "{again}");
        assert_eq!(lookups.look_up("b.example:443", LATE, one).unwrap().len(), 1);
        drop(answer);
        ask(lookups, "a.example:443");
    }

    #[test]
    fn a_resolver_that_never_answers_holds_so_many_threads_and_no_more() {
        let lookups = lookups();
        let mut answers = Vec::new();
        for at in 0..LOOKUPS_MAX {
            let (answer, hang) = hangs();
            let late = lookups.look_up(&format!("a{at}.example:443"), Duration::ZERO, hang);
            assert!(matches!(late, Err(ureq::Error::Timeout(_))), "{late:?}");
            answers.push(answer);
        }
        let full = lookups.look_up("b.example:443", LATE, one).unwrap_err().to_string();
        assert!(full.contains("for 64 names"), "{full}");
        // An address needs no resolver.
        assert_eq!(lookups.look_up("[2001:db8::1]:443", LATE, one).unwrap().len(), 1);
        drop(answers);
        ask(lookups, "b.example:443");
    }

    #[test]
    fn a_host_is_where_it_was_said_to_be_or_where_dns_has_it() {
        let dial = Dial::default();
        dial.set_host("a1.example", "localhost:8443");
        let resolve = |url: &str| {
            let found =
                dial.resolve(&url.parse().unwrap(), &Config::default(), NextTimeout::default());
            found.map(|found| found.iter().map(SocketAddr::port).collect::<Vec<_>>())
        };
        assert!(resolve("https://a1.example/x").unwrap().iter().all(|port| *port == 8443));
        assert_eq!(resolve("https://192.0.2.1/x").unwrap(), [443]);
        assert_eq!(resolve("http://[::1]:81/x").unwrap(), [81]);
        assert!(matches!(resolve("/x"), Err(ureq::Error::HostNotFound)));
    }
}
