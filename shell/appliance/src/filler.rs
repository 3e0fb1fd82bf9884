//! Fill threads: where each gets bytes from for `upkeep::filler`, which does the rest.

use std::sync::atomic::{AtomicU64, Ordering};

use fill::plan::Fetch;
use fill::transfer::{self, SourceFault};
use model::id::ObjectId;
use model::object::{BLOCK_LEN, Blocks};
use model::units::{Bytes, Nanos};
use upkeep::at_once;
use upkeep::filler::{self, Sources};

use crate::counters::FillCounters;
use crate::ledger::Pace;
use crate::places::{Clients, Kind, Places};
use crate::shared::Shared;
use crate::source::{self, Answer};

/// Most bytes of one request. Each costs a round trip: at 20 ms and 1 Gb/s 16 MiB lose 15 %, which
/// the other transfers use.
const RANGE_LEN_MAX: Bytes = Bytes::mib(16);
/// Least bytes of one request, and requests per object. What a cut connection had in its buffers is
/// fetched again (4 MB each were seen on loopback): so a cut costs at most 1 MiB per transfer, or
/// 0.4 % of a large object, and ten of them cost less than 5 % of 256 MiB.
const RANGE_LEN_MIN: Bytes = Bytes::mib(1);
const RANGES_PER_OBJECT: u64 = 256;

/// Bounds of the transfer of an object of this length.
fn bounds(len: Bytes) -> transfer::Config {
    let share = Bytes(len.0 / RANGES_PER_OBJECT);
    transfer::Config {
        range_len_max: share.clamp(RANGE_LEN_MIN, RANGE_LEN_MAX),
        block_tries_max: 4,
        rounds_max: 4,
        backoff_first: Nanos::millis(250),
        backoff_max: Nanos::seconds(5),
    }
}

/// Runs until all must stop.
pub(crate) fn run(shared: &Shared, clients: &Clients, pace: &Pace) {
    at_once(filler::run(shared, &Network { shared, clients, pace }));
}

/// Sources that a filler reaches by its clients.
struct Network<'a> {
    shared: &'a Shared,
    clients: &'a Clients,
    pace: &'a Pace,
}

impl Sources for Network<'_> {
    type Places<'a>
        = Reached<'a>
    where
        Self: 'a;

    fn bounds(&self, len: Bytes) -> transfer::Config {
        bounds(len)
    }

    async fn blocks(&self, object: ObjectId, len: Bytes) -> Result<Blocks, String> {
        let none = "its block hashes are not here, and no control is configured";
        let blocks = self.clients.control.as_ref().ok_or(none)?.blocks(object, len);
        blocks.map_err(|error| format!("control gives no block hashes: {error}"))
    }

    async fn places<'a>(&'a self, fetch: &'a Fetch) -> Reached<'a> {
        let list = Places::find(&self.shared.ledger, self.clients, fetch);
        Reached { fetched: &self.shared.counters.fill, clients: self.clients, fetch, list }
    }

    async fn pace(&self, len: Bytes) -> bool {
        self.pace.wait(&self.shared.ledger, len)
    }
}

/// The places of one object.
struct Reached<'a> {
    fetched: &'a FillCounters<AtomicU64>,
    clients: &'a Clients,
    fetch: &'a Fetch,
    list: Places<'a>,
}

impl filler::Places for Reached<'_> {
    type Answer = Answer;

    fn count(&self) -> usize {
        self.list.len()
    }

    fn is_stale(&self, place: usize) -> bool {
        self.list.is_stale(place)
    }

    async fn renew(&mut self) {
        self.list.renew();
    }

    async fn ask(&mut self, place: usize, first: u64, count: u64) -> Result<Answer, SourceFault> {
        if self.list.is_over(place) {
            return Err(SourceFault::Expired);
        }
        let len = self.fetch.len;
        let start = Bytes(first * BLOCK_LEN.0);
        let end = Bytes((first + count) * BLOCK_LEN.0).min(len);
        let place = self.list.get(place);
        let siblings;
        let agent = match place.kind {
            Kind::Sibling => {
                siblings = self.clients.siblings.agent();
                &siblings
            }
            Kind::Origin => &self.clients.origins,
        };
        source::open(agent, &place.url, start, end, len)
    }

    fn failed(&mut self, place: usize, fault: &SourceFault) {
        self.list.failed(place, fault);
    }

    fn received(&self, place: usize, len: Bytes) {
        let FillCounters { from_siblings, from_origins } = self.fetched;
        let from = match self.list.get(place).kind {
            Kind::Sibling => from_siblings,
            Kind::Origin => from_origins,
        };
        from.fetch_add(len.0, Ordering::Relaxed);
    }
}

impl filler::Answer for Answer {
    fn next(&self) -> u64 {
        self.at().0 / BLOCK_LEN.0
    }

    fn is_over(&self) -> bool {
        Self::is_over(self)
    }

    async fn read(&mut self, bytes: &mut [u8]) -> Result<(), SourceFault> {
        Self::read(self, bytes)
    }

    fn finish(self) {
        Self::finish(self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drives::Drive;
    use crate::shared::tests::{manifest, shared_on};
    use model::extent::DriveIndex;
    use model::units::UnixSeconds;
    use upkeep::Ledger as _;
    use upkeep::filler::with_room;

    #[test]
    fn as_much_of_a_unit_is_fetched_as_one_drive_has_room_for() {
        let dir = tempfile::tempdir().unwrap();
        let reserve = store::marker::Reserve::percent(1).unwrap();
        crate::format::format(dir.path(), reserve, UnixSeconds(1)).unwrap();
        let (drive, _) = Drive::open(dir.path(), DriveIndex(0)).unwrap();
        let shared = shared_on(vec![drive]);
        let objects = [1, 2, 3].map(|n| (ObjectId([n; 32]), Bytes(5000)));
        assert!(shared.set_manifest(manifest(1, &objects)));
        shared.plan();
        let claim = shared.ledger.next_fetch().unwrap();
        let room = claim.parcel().file_len();
        let claim = at_once(with_room(&shared, claim, room)).unwrap();
        assert_eq!(claim.fetch.len(), 3);
        // What is there already needs no room.
        let file = dir.path().join(&*claim.parcel().file().0);
        std::fs::write(&file, b"").unwrap();
        let claim = at_once(with_room(&shared, claim, room - Bytes(1))).unwrap();
        assert_eq!(claim.fetch.len(), 3);
        std::fs::remove_file(file).unwrap();
        let claim = at_once(with_room(&shared, claim, room - Bytes(1))).unwrap();
        assert_eq!(claim.fetch.len(), 2);
        assert!(shared.claim(objects[2].0), "the third is for another file");
        let claim = at_once(with_room(&shared, claim, Bytes(4096))).unwrap();
        assert_eq!(claim.fetch.len(), 2, "who finds no room for the first says so");
        shared.done(&claim, &[]);
    }
}
