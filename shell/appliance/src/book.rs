//! What is to be told of viewers, and to whom: sums of playbacks, in batches for each process of
//! the control plane, and the networks that it tells them apart by.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use model::topology::Prefix;
use model::units::{Instant, Nanos};
use qoe::Rows;
use wire::v1::viewers::{ELSEWHERE, NETWORKS_MAX};

use crate::lock::lock;

/// Rows of a dimension in one batch. Beyond, they are of others.
pub(crate) const ROWS_MAX: usize = 128;
/// Between two batches for one link: rows of a busy appliance are some 170 KB of JSON, which each
/// report had with one each second. Control looks at sites in steps of ten seconds.
const BATCH_EVERY: Nanos = Nanos::seconds(10);

/// What is to be told of viewers, to each process of the control plane by itself.
#[derive(Debug, Default)]
pub struct Book {
    links: Mutex<Vec<Link>>,
    networks: Mutex<Arc<Networks>>,
    status: Mutex<Status>,
}

/// The figures of who follows playbacks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Status {
    /// Playbacks that are followed.
    pub playbacks: usize,
    /// Responses to those that were too many to be followed.
    pub unfollowed: u64,
}

/// What one link has told and has to tell.
#[derive(Debug, Default)]
struct Link {
    /// Number of the batch that was begun last.
    number: u64,
    /// That batch, until it is known to have come.
    batch: Option<Rows>,
    /// The last report did not come.
    is_lost: bool,
    begun: Instant,
    next: Rows,
}

/// A link's place in the book.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkIndex(usize);

/// Networks, by their prefixes.
#[derive(Debug, Default)]
pub(crate) struct Networks {
    state: u64,
    /// The longest first.
    prefixes: Vec<(Prefix, String)>,
}

impl Book {
    /// A new link, to which all is told from now on.
    pub(crate) fn join(&self) -> LinkIndex {
        let mut links = lock(&self.links);
        links.push(Link::default());
        LinkIndex(links.len() - 1)
    }

    pub(crate) fn add(&self, rows: &Rows, status: Status) {
        for link in lock(&self.links).iter_mut() {
            rows.iter().for_each(|(key, sums)| link.next.add(key, sums, ROWS_MAX));
        }
        *lock(&self.status) = status;
    }

    /// The batch that is to be told now, with its number: the last one again until it has come.
    /// None after a report that did not come: a shorter one finds room sooner where control has
    /// little, and it says that the appliance lives.
    pub(crate) fn batch(&self, link: LinkIndex, now: Instant) -> Option<(u64, Rows)> {
        let link = &mut lock(&self.links)[link.0];
        if link.is_lost {
            return None;
        }
        if link.batch.is_none() && !link.next.is_empty() && BATCH_EVERY <= now.since(link.begun) {
            (link.batch, link.begun) = (Some(std::mem::take(&mut link.next)), now);
            link.number += 1;
        }
        Some((link.number, link.batch.clone()?))
    }

    /// A report did not come.
    pub(crate) fn lost(&self, link: LinkIndex) {
        lock(&self.links)[link.0].is_lost = true;
    }

    /// A report has come, and the batch of this number.
    pub(crate) fn came(&self, link: LinkIndex, number: u64) {
        let link = &mut lock(&self.links)[link.0];
        link.is_lost = false;
        if number == link.number {
            link.batch = None;
        }
    }

    pub(crate) fn networks_state(&self) -> u64 {
        lock(&self.networks).state
    }

    /// Networks are told apart by these from now on; what is no prefix is left out.
    pub(crate) fn set_networks(&self, state: u64, prefixes: &[String]) {
        let read = |text: &String| Some((text.parse::<Prefix>().ok()?, text.clone()));
        let mut prefixes: Vec<_> = prefixes.iter().filter_map(read).take(NETWORKS_MAX).collect();
        prefixes.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.prefix_len()));
        *lock(&self.networks) = Arc::new(Networks { state, prefixes });
    }

    pub(crate) fn networks(&self) -> Arc<Networks> {
        Arc::clone(&lock(&self.networks))
    }

    /// As of the last time that rows were added.
    pub fn status(&self) -> Status {
        *lock(&self.status)
    }
}

impl Networks {
    /// O(prefixes): once for each playback.
    pub(crate) fn of(&self, client: Option<IpAddr>) -> &str {
        let client = client.map(|client| client.to_canonical());
        let has = |(prefix, _): &&(Prefix, String)| client.is_some_and(|of| prefix.contains(&of));
        self.prefixes.iter().find(has).map_or(ELSEWHERE, |(_, name)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use qoe::{Dimension, Key, Source, Sums};

    fn rows(stalls: u64) -> Rows {
        let mut rows = Rows::default();
        let (dimension, source) = (Dimension::Site, Source::Requests);
        let key = Key { dimension, name: "here".into(), source };
        rows.add(&key, &Sums { stalls, ..Sums::default() }, ROWS_MAX);
        rows
    }

    fn stalls(batch: Option<(u64, Rows)>) -> Option<(u64, u64)> {
        let (number, rows) = batch?;
        Some((number, rows.iter().map(|(_, sums)| sums.stalls).sum()))
    }

    #[test]
    fn each_link_tells_all_once_whatever_is_lost_on_the_way() {
        let book = Book::default();
        let (a, b) = (book.join(), book.join());
        let at = |seconds| Instant(0) + Nanos::seconds(seconds);
        assert_eq!(stalls(book.batch(a, at(10))), None);
        book.add(&rows(3), Status::default());
        assert_eq!(stalls(book.batch(a, at(11))), Some((1, 3)));
        book.add(&rows(4), Status::default());
        assert_eq!(stalls(book.batch(a, at(15))), Some((1, 3)), "it may not have come");
        book.came(a, 0);
        assert_eq!(stalls(book.batch(a, at(15))), Some((1, 3)), "the answer to another");
        book.came(a, 1);
        assert_eq!(stalls(book.batch(a, at(20))), None, "not in each report");
        assert_eq!(stalls(book.batch(a, at(21))), Some((2, 4)));
        book.came(a, 2);
        assert_eq!(stalls(book.batch(a, at(40))), None);
        assert_eq!(stalls(book.batch(b, at(40))), Some((1, 7)), "the other link has its own");
    }

    #[test]
    fn a_report_that_did_not_come_comes_without_its_batch_first() {
        let book = Book::default();
        let (link, at) = (book.join(), |seconds| Instant(0) + Nanos::seconds(seconds));
        book.add(&rows(3), Status::default());
        assert_eq!(stalls(book.batch(link, at(11))), Some((1, 3)));
        for tried in 12..15 {
            book.lost(link);
            assert_eq!(stalls(book.batch(link, at(tried))), None);
        }
        book.came(link, 0);
        assert_eq!(stalls(book.batch(link, at(15))), Some((1, 3)), "nothing is lost");
    }

    #[test]
    fn a_network_is_the_longest_prefix_that_control_knows() {
        let book = Book::default();
        let texts = ["10.0.0.0/8", "no prefix", "10.7.0.0/16", "2001:db8::/32"].map(str::to_owned);
        book.set_networks(5, &texts);
        let networks = lock(&book.networks).clone();
        let of = |client: &str| networks.of(Some(client.parse().unwrap())).to_owned();
        assert_eq!(of("10.7.1.2"), "10.7.0.0/16");
        assert_eq!(
            (of("10.8.1.2"), of("::ffff:10.8.1.2")),
            ("10.0.0.0/8".into(), "10.0.0.0/8".into())
        );
        assert_eq!((of("192.0.2.1"), networks.of(None)), (ELSEWHERE.into(), ELSEWHERE));
        assert_eq!(book.networks_state(), 5);
    }
}
