//! The clients of this appliance, for siblings that may take its addresses over.
//!
//! ```text
//! workers ── open, gone ──> queue ──> table, newest changes ──> a sibling asks: a difference,
//!                                                               and of a long list the next part
//! ```
//!
//! A worker puts a change into the queue and never waits. Whoever reads takes it out: a sibling
//! asks four times a second, and so does the thread that speaks for this appliance. If the queue is
//! full a change is lost: that client is not reset when a sibling takes over, or is tickled in
//! vain. Addresses stay in memory and are logged nowhere.

use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::ops::Bound;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use takeover::Known;
use wire::v1::clients::{CLIENTS_MAX as PART_MAX, Clients as Told};

use crate::lock::lock;

/// A client's connection: the address that it reached, and its own.
pub type Client = (SocketAddr, SocketAddr);

/// Changes on their way to the table: what 8,000 new connections a second make in four seconds.
const QUEUE_MAX: usize = 65_536;
/// Changes that a difference can reach back over; a sibling that knows less is told all.
const CHANGES_MAX: usize = 65_536;
/// As many as a sibling keeps.
const CLIENTS_MAX: usize = takeover::CLIENTS_MAX;

/// The clients of all workers.
#[derive(Debug)]
pub struct Clients {
    start: u64,
    queue: SyncSender<Change>,
    table: Mutex<Table>,
}

#[derive(Clone, Copy, Debug)]
struct Change {
    client: Client,
    opens: bool,
}

#[derive(Debug)]
struct Table {
    queue: Receiver<Change>,
    open: BTreeSet<Client>,
    /// The newest changes.
    changes: VecDeque<Change>,
    /// How many there have been, and one.
    state: u64,
    /// What siblings are told besides.
    waits: bool,
    busy: Vec<IpAddr>,
}

/// A client that is in the table for as long as this lives.
#[derive(Debug)]
pub struct Noted {
    client: Client,
    queue: SyncSender<Change>,
}

impl Noted {
    /// The address by which it came.
    pub fn reached(&self) -> IpAddr {
        self.client.0.ip()
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        let _ = self.queue.try_send(Change { client: self.client, opens: false });
    }
}

impl Clients {
    /// Nobody, in a start of its own.
    pub fn new() -> Self {
        let mut start = [0; 8];
        aws_lc_rs::rand::fill(&mut start).expect("the kernel gives random bytes after its start");
        let (sender, queue) = sync_channel(QUEUE_MAX);
        let table = Table {
            queue,
            open: BTreeSet::new(),
            changes: VecDeque::new(),
            state: 1,
            waits: false,
            busy: Vec::new(),
        };
        Self { start: u64::from_le_bytes(start), queue: sender, table: Mutex::new(table) }
    }

    /// Notes a connection; none if it is gone already.
    pub fn note(&self, socket: impl AsFd) -> Option<Noted> {
        let at = SocketAddr::try_from(rustix::net::getsockname(&socket).ok()?).ok()?;
        let from = SocketAddr::try_from(rustix::net::getpeername(&socket).ok()??).ok()?;
        Some(self.note_client((plain(at), plain(from))))
    }

    fn note_client(&self, client: Client) -> Noted {
        let _ = self.queue.try_send(Change { client, opens: true });
        Noted { client, queue: self.queue.clone() }
    }

    /// What siblings are told from now on.
    pub(crate) fn tell(&self, waits: bool, busy: Vec<IpAddr>) {
        let mut table = lock(&self.table);
        (table.waits, table.busy) = (waits, busy);
        table.take_in();
    }

    /// The difference to a state, and what follows `after`; or the first of all. O(parts).
    pub(crate) fn since(&self, known: Known) -> Told {
        let mut table = lock(&self.table);
        table.take_in();
        let Known { start, state, after } = known;
        let missing = table.state.checked_sub(state).and_then(|n| usize::try_from(n).ok());
        let missing = missing.filter(|n| start == self.start && *n <= table.changes.len());
        let mut told = Told {
            start: self.start,
            to: table.state,
            waits: table.waits,
            busy: table.busy.clone(),
            ..Told::default()
        };
        let Some(missing) = missing.filter(|_| state != 0) else {
            (told.open, told.next) = table.part(None);
            return told;
        };
        // Clients are told as they are now: later changes tell them once more.
        let begin = table.changes.len() - missing;
        let count = missing.min(PART_MAX);
        (told.from, told.to) = (state, state + u64::try_from(count).expect("some thousand"));
        let changes = table.changes.range(begin..begin + count);
        let touched: BTreeSet<Client> = changes.map(|change| change.client).collect();
        (told.open, told.gone) =
            touched.into_iter().partition(|client| table.open.contains(client));
        if after.is_some() {
            let (part, next) = table.part(after);
            told.open.extend(part);
            told.next = next;
        }
        told
    }
}

impl Default for Clients {
    fn default() -> Self {
        Self::new()
    }
}

impl Table {
    /// Those that follow a client, and the last of them if there are more.
    fn part(&self, after: Option<Client>) -> (Vec<Client>, Option<Client>) {
        let begin = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = self.open.range((begin, Bound::Unbounded)).copied();
        let part: Vec<Client> = rest.by_ref().take(PART_MAX).collect();
        let next = part.last().copied().filter(|_| rest.next().is_some());
        (part, next)
    }

    fn take_in(&mut self) {
        while let Ok(change) = self.queue.try_recv() {
            let changed = match change.opens {
                true => self.open.len() < CLIENTS_MAX && self.open.insert(change.client),
                false => self.open.remove(&change.client),
            };
            if changed {
                self.state += 1;
                self.changes.push_back(change);
            }
            if CHANGES_MAX < self.changes.len() {
                self.changes.pop_front();
            }
        }
    }
}

/// IPv4 as it is, though it came to a socket of IPv6.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// A question to the workers: by which of these addresses are responses under way?
#[derive(Debug)]
pub struct Busy {
    pub addresses: Vec<IpAddr>,
    found: Mutex<Vec<IpAddr>>,
    /// Workers that have not answered.
    left: AtomicUsize,
}

impl Busy {
    pub(crate) fn new(addresses: Vec<IpAddr>, workers: usize) -> Self {
        Self { addresses, found: Mutex::default(), left: AtomicUsize::new(workers) }
    }

    /// A worker's answer.
    pub fn answer(&self, busy: &[IpAddr]) {
        lock(&self.found).extend_from_slice(busy);
        self.left.fetch_sub(1, Ordering::SeqCst);
    }

    /// All of them, as long as a worker has not answered.
    pub(crate) fn found(&self) -> Vec<IpAddr> {
        if self.left.load(Ordering::SeqCst) != 0 {
            return self.addresses.clone();
        }
        let mut found = lock(&self.found).clone();
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// A word to all workers.
#[derive(Clone, Debug)]
pub enum Word {
    /// Send players that come by these addresses on to this base URL.
    Drain(Arc<str>, Arc<[IpAddr]>),
    /// Say by which addresses responses are under way.
    Busy(Arc<Busy>),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(port: u16) -> Client {
        ("192.0.2.1:443".parse().unwrap(), SocketAddr::new(IpAddr::from([10, 0, 0, 1]), port))
    }

    #[test]
    fn a_sibling_is_told_differences_and_all_where_it_knows_something_else() {
        let clients = Clients::new();
        let (one, two) = (clients.note_client(client(1)), clients.note_client(client(2)));
        let all = clients.since(Known::default());
        assert_eq!(
            (all.from, &all.open[..], &all.gone[..]),
            (0, &[client(1), client(2)][..], &[][..])
        );
        drop(one);
        let three = clients.note_client(client(3));
        let short = clients.note_client(client(4));
        drop(short);
        let since = |start, state| clients.since(Known { start, state, after: None });
        let next = since(all.start, all.to);
        assert_eq!((next.from, &next.open[..]), (all.to, &[client(3)][..]));
        assert_eq!(next.gone, [client(1), client(4)], "also one that came and went in between");
        let same = since(next.start, next.to);
        assert_eq!((same.from, same.to, same.open.len()), (next.to, next.to, 0));
        for (start, known) in [(all.start ^ 1, all.to), (all.start, next.to + 9), (all.start, 0)] {
            assert_eq!(since(start, known).open, [client(2), client(3)], "{known}");
        }
        clients.tell(true, vec![[192, 0, 2, 9].into()]);
        let told = clients.since(Known::default());
        assert_eq!((told.waits, told.busy.len()), (true, 1));
        drop((two, three));
        assert!(clients.since(Known::default()).open.is_empty());
    }

    /// What a sibling makes of an answer.
    fn add_up(told: Told, known: &mut Known, all: &mut BTreeSet<Client>) {
        assert!(told.open.len() + told.gone.len() <= 2 * PART_MAX, "an answer has a bound");
        if told.from == 0 {
            all.clear();
        }
        all.retain(|client| !told.gone.contains(client));
        all.extend(told.open);
        *known = Known { start: told.start, state: told.to, after: told.next };
    }

    #[test]
    fn a_long_list_comes_in_parts_and_adds_up_to_the_table_though_it_changes_meanwhile() {
        let clients = Clients::new();
        let mut open: Vec<Noted> = (100..20_100).map(|n| clients.note_client(client(n))).collect();
        let (mut known, mut all) = (Known::default(), BTreeSet::new());
        let mut parts = 0;
        loop {
            add_up(clients.since(known), &mut known, &mut all);
            parts += 1;
            assert!(all.len() <= parts * PART_MAX + 2 * parts, "{} after {parts}", all.len());
            if known.after.is_none() {
                break;
            }
            // One that was told goes, one that was not, and two come.
            let n = u16::try_from(parts).unwrap();
            drop(open.swap_remove(10));
            drop(open.remove(19_000));
            open.extend([client(n), client(30_000 + n)].map(|one| clients.note_client(one)));
        }
        assert_eq!(parts, 3, "20,000 clients");
        let table = |of: &Clients| lock(&of.table).open.clone();
        add_up(clients.since(known), &mut known, &mut all);
        assert!(all == table(&clients), "{} and {}", all.len(), table(&clients).len());
        // A long difference comes in parts, too.
        drop(open);
        let mut rounds = 0;
        while !all.is_empty() {
            add_up(clients.since(known), &mut known, &mut all);
            rounds += 1;
            assert!(rounds <= 3, "{} are left", all.len());
        }
    }

    #[test]
    fn old_changes_are_let_go_and_the_table_has_a_bound() {
        let clients = Clients::new();
        let first = clients.since(Known::default());
        for n in 0..=CHANGES_MAX {
            drop(clients.note_client(client(u16::try_from(n % 1000).unwrap())));
            clients.tell(false, Vec::new());
        }
        let told = clients.since(Known { start: first.start, state: first.to, after: None });
        assert_eq!((told.from, told.open.len()), (0, 0), "too long ago for a difference");
    }

    #[test]
    fn a_connection_is_noted_by_the_addresses_of_its_packets() {
        let listener = std::net::TcpListener::bind("[::]:0").unwrap();
        let to =
            SocketAddr::new("127.0.0.1".parse().unwrap(), listener.local_addr().unwrap().port());
        let stream = std::net::TcpStream::connect(to).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let clients = Clients::new();
        let noted = clients.note(&accepted).unwrap();
        assert_eq!(noted.reached(), to.ip());
        assert_eq!(clients.since(Known::default()).open, [(to, stream.local_addr().unwrap())]);
    }
}
