//! Fill threads: where each gets bytes from for `upkeep::filler`, which does the rest.

use fill::plan::Fetch;
use fill::transfer;
use model::id::ObjectId;
use model::object::Blocks;
use model::units::{BitsPerSecond, Bytes, Nanos};
use upkeep::at_once;
use upkeep::filler::{self, Sources};

use crate::filling::places::{Clients, Places};
use crate::storage::ledger::Pace;
use crate::storage::shared::Shared;

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
pub(crate) fn run(shared: &Shared, clients: &Clients, paces: &Paces) {
    at_once(filler::run(shared, &Network { shared, clients, paces }));
}

/// How fast all fillers together may fetch.
pub(crate) struct Paces {
    /// From all sources.
    all: Pace,
    /// From outside of the site.
    outside: Pace,
    /// Outside of the windows: what is urgent.
    urgent: Pace,
}

impl Paces {
    /// By this process's own settings; what control says comes on top.
    pub(crate) fn new(rate_max: Option<BitsPerSecond>, burst: fn(BitsPerSecond) -> Bytes) -> Self {
        let said = || Pace::new(None, burst);
        Self { all: Pace::new(rate_max, burst), outside: said(), urgent: said() }
    }
}

/// Sources that a filler reaches by its clients.
struct Network<'a> {
    shared: &'a Shared,
    clients: &'a Clients,
    paces: &'a Paces,
}

impl Sources for Network<'_> {
    type Places<'a>
        = Places<'a>
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

    async fn places<'a>(&'a self, fetch: &'a Fetch) -> Places<'a> {
        let Shared { ledger, counters, .. } = self.shared;
        Places::find(ledger, self.clients, &counters.fill, fetch)
    }

    async fn pace(&self, len: Bytes, is_outside: bool) -> bool {
        let (ledger, paces) = (&self.shared.ledger, self.paces);
        let rates = ledger.ask(|holdings| holdings.rules().rates(holdings.is_open(), is_outside));
        let [urgent, outside, all] = rates;
        paces.urgent.wait_within(ledger, len, urgent)
            && paces.outside.wait_within(ledger, len, outside)
            && paces.all.wait_within(ledger, len, all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::drives::Drive;
    use crate::storage::shared::tests::{manifest, shared_on};
    use model::extent::DriveIndex;
    use model::units::UnixSeconds;
    use upkeep::Ledger as _;
    use upkeep::filler::with_room;

    #[test]
    fn as_much_of_a_unit_is_fetched_as_one_drive_has_room_for() {
        let dir = tempfile::tempdir().unwrap();
        let reserve = store::marker::Reserve::percent(1).unwrap();
        crate::storage::format::format(dir.path(), reserve, UnixSeconds(1)).unwrap();
        let (drive, _) = Drive::open(dir.path(), DriveIndex(0)).unwrap();
        let shared = shared_on(vec![drive]);
        let objects = [1, 2, 3].map(|n| (ObjectId([n; 32]), Bytes(5000)));
        assert!(at_once(shared.set_manifest(manifest(1, &objects))));
        at_once(upkeep::keeper::plan(&shared));
        let claim =
            shared.ledger.wait_for(upkeep::News::Changed, holdings::Holdings::next_fetch).unwrap();
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
