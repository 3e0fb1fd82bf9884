//! The generator of `lab place`: a catalogue, regions with their demand, and a fleet, on two days,
//! from one seed. Its parameters stand in docs/internals/placement.md.

use model::id::Item;
use model::number::{NumberSet, index, mix};
use model::profile::{Profile, Profiles};
use model::rendezvous::Lot;
use model::topology::Weight;
use model::units::{BitsPerSecond, Bytes, Nanos};
use placement::plan::{Catalogue, Piece, Share, Wanted};

use crate::director::world::Draw;

/// How large a world is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub(super) struct Size {
    pub(super) versions: u32,
    pub(super) regions: u32,
}

impl Size {
    /// What all is designed for: its bounds are those of this size.
    pub(super) const DESIGN: Self = Self { versions: 1_000_000, regions: 200 };
}

pub(super) const RENDITIONS: usize = 10;
/// Items of a version, and its playlists.
const NUMBERS: u32 = 12;
const KBPS: [u64; RENDITIONS] = [200, 400, 700, 1200, 2000, 3200, 5000, 8000, 12_000, 16_000];
const VIEWED: [f64; RENDITIONS] = [0.01, 0.02, 0.04, 0.08, 0.15, 0.25, 0.25, 0.12, 0.05, 0.03];
pub(super) const SITES: u32 = 40;
/// One in so many sites is an exchange.
const EXCHANGE: u32 = 20;
const GLOBALS: [u32; 10] = [1, 1, 1, 1, 1, 2, 2, 2, 3, 4];
const ZIPF: f64 = -0.9;
const PLATEAU: u32 = 10;
const TASTE: f64 = 0.5;
const DRIFT: f64 = 0.15;
const REGION_ERROR: f64 = 0.3;
const SITE_ERROR: f64 = 0.2;
/// A site's demand at peak, of its throughput; and a day's bytes, of a peak all day.
const DEMAND: f64 = 0.6;
const DAY: f64 = 0.5;
const SECONDS: f64 = 86_400.0;
/// One in so many versions leaves, and as many come.
const LEAVES: u32 = 1000;
/// One in so many appliances is gone, and one in so many has less room.
const GONE: u64 = 200;
const NIGHT: Nanos = Nanos::seconds(8 * 3600);

/// The first day, where nothing is held, or the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Day {
    First,
    Second,
}

/// The world, as far as it is not drawn again when it is asked for.
pub(super) struct World {
    pub(super) size: Size,
    seed: u64,
    /// By version, also those that come on the second day.
    weights: Vec<f64>,
    catalogues: [Catalogue; 2],
    taste: Factors,
    drift: Factors,
    region_error: Factors,
    site_error: Factors,
}

/// An appliance of a site on a day.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine {
    pub(super) profile: Profile,
    pub(super) lot: Lot,
    pub(super) weight: Weight,
    pub(super) room: Bytes,
    pub(super) throughput: BitsPerSecond,
    pub(super) fill: Bytes,
    /// It has taken the place of one that is gone.
    pub(super) is_new: bool,
}

/// A region, and what viewers want there.
pub(super) struct Region {
    /// The appliances of each site.
    pub(super) sites: Vec<Vec<Machine>>,
    pub(super) shares: Vec<Share>,
    /// Bytes a day of all.
    pub(super) day: f64,
    pub(super) wanted: Vec<Wanted>,
}

impl World {
    /// Draws what all regions share.
    pub(super) fn new(size: Size, seed: u64) -> Self {
        let comes = size.versions / LEAVES;
        let mut draw = Draw::of(seed, "ranks", 0);
        let mut ranks: Vec<u32> = (0..size.versions).collect();
        for at in (1..size.versions).rev() {
            ranks.swap(index(at), index(draw.below(at + 1)));
        }
        let mut by_logarithm = || {
            let at = real(draw.next() >> 11) / real(1 << 53);
            whole32(f64::from(size.versions).powf(at)) - 1
        };
        ranks.extend((0..comes).map(|_| by_logarithm()));
        let weight = |rank: &u32| f64::from(PLATEAU + rank).powf(ZIPF);
        let weights = ranks.iter().map(weight).collect();
        let catalogue = |day: Day| {
            let versions = (0..size.versions + comes).filter(|v| is_there(seed, size, *v, day));
            Catalogue::new(versions.flat_map(|v| pieces(seed, v)).collect())
        };
        Self {
            size,
            seed,
            weights,
            catalogues: [catalogue(Day::First), catalogue(Day::Second)],
            taste: Factors::new(TASTE),
            drift: Factors::new(DRIFT),
            region_error: Factors::new(REGION_ERROR),
            site_error: Factors::new(SITE_ERROR),
        }
    }

    pub(super) fn catalogue(&self, day: Day) -> &Catalogue {
        match day {
            Day::First => &self.catalogues[0],
            Day::Second => &self.catalogues[1],
        }
    }

    /// Above all numbers of items.
    pub(super) fn items_end(&self) -> u32 {
        (self.size.versions + self.size.versions / LEAVES) * NUMBERS
    }

    /// Draws a region anew: O(versions), and the same each time.
    pub(super) fn region(&self, number: u32, day: Day) -> Region {
        let sites: Vec<Vec<Machine>> =
            (number * SITES..(number + 1) * SITES).map(|site| self.site(site, day)).collect();
        let peak = |site: &Vec<Machine>| -> f64 {
            site.iter().map(|of| real(of.throughput.0)).sum::<f64>() * DEMAND
        };
        let all: f64 = sites.iter().map(peak).sum();
        let share = |site: &Vec<Machine>| Share(whole32((peak(site) / all * 1e6).round()));
        let shares = sites.iter().map(share).collect();
        let bytes = all * DAY * SECONDS / 8.0;
        let wanted = self.wanted(number, day, bytes);
        Region { sites, shares, day: bytes, wanted }
    }

    fn site(&self, site: u32, day: Day) -> Vec<Machine> {
        let exchanges = site.div_ceil(EXCHANGE);
        let kinds: Vec<Profile> = if site.is_multiple_of(EXCHANGE) {
            let count = 15 + u32::from(!(site / EXCHANGE).is_multiple_of(5));
            let kind = |n: u32| if n % 3 == 2 { Profile::Storage } else { Profile::Flash };
            (0..count).map(kind).collect()
        } else {
            let count = GLOBALS[index((site - exchanges) % 10)];
            (0..count).map(|_| Profile::Global).collect()
        };
        (0..).zip(kinds).map(|(n, profile)| self.machine(site, n, profile, day)).collect()
    }

    fn machine(&self, site: u32, n: u32, profile: Profile, day: Day) -> Machine {
        let able = Profiles::default().of(Some(profile));
        let name = u64::from(site) << 32 | u64::from(n);
        let drawn = mix(self.seed ^ mix(name ^ 0x6d61_6368));
        let is_new = day == Day::Second && drawn.is_multiple_of(GONE);
        let has_less = day == Day::Second && drawn % GONE == 1;
        let (room, throughput) = (able.capacity.unwrap_or_default(), able.throughput);
        let throughput = throughput.unwrap_or_default();
        let lot = Lot::of(&[name.to_le_bytes(), u64::from(is_new).to_le_bytes()].concat());
        let weight = u32::try_from(throughput.0 / 10_000_000_000).ok().and_then(Weight::new);
        let night = able.fill.unwrap_or_default().over(NIGHT);
        Machine {
            profile,
            lot,
            weight: weight.unwrap_or(Weight::ONE),
            room: if has_less { Bytes(room.0 / 8 * 7) } else { room },
            throughput,
            fill: if day == Day::First { Bytes(u64::MAX) } else { night },
            is_new,
        }
    }

    /// What is expected, ascending by item.
    fn wanted(&self, region: u32, day: Day, bytes: f64) -> Vec<Wanted> {
        let versions = 0..self.size.versions + self.size.versions / LEAVES;
        let versions = versions.filter(|v| is_there(self.seed, self.size, *v, day));
        let mut by_version: Vec<(u32, f64)> = Vec::with_capacity(index(self.size.versions));
        let (mut all, day_seed) = (0.0, self.seed ^ 0x0064_6179);
        for v in versions {
            let mut weight = self.weights[index(v)] * self.taste.of(self.seed, region, v);
            if day == Day::Second {
                weight *= self.drift.of(day_seed, region, v);
            }
            all += weight;
            by_version.push((v, weight));
        }
        let each: f64 = VIEWED.iter().zip(KBPS).map(|(viewed, kbps)| viewed * real(kbps)).sum();
        let parts: Vec<f64> =
            VIEWED.iter().zip(KBPS).map(|(viewed, kbps)| viewed * real(kbps) / each).collect();
        let mut wanted = Vec::with_capacity(by_version.len() * RENDITIONS);
        for (v, weight) in by_version {
            for (n, part) in (0..).zip(&parts) {
                let day = bytes * weight / all * part;
                let peak = BitsPerSecond(whole(day * 8.0 / SECONDS / DAY));
                wanted.push(Wanted { item: Item(v * NUMBERS + n), day: Bytes(whole(day)), peak });
            }
        }
        wanted
    }

    /// How much more is watched in a region than was expected, of a version.
    pub(super) fn region_error(&self, region: u32, item: u32) -> f64 {
        self.region_error.of(self.seed ^ 0x0072_6567, region, item / NUMBERS)
    }

    /// And in a site beside its region.
    pub(super) fn site_error(&self, site: u32, item: u32) -> f64 {
        self.site_error.of(self.seed ^ 0x7369_7465, site, item / NUMBERS)
    }
}

fn is_there(seed: u64, size: Size, version: u32, day: Day) -> bool {
    match day {
        Day::First => version < size.versions,
        Day::Second => {
            size.versions <= version
                || !mix(seed ^ mix(u64::from(version) ^ 0x676f_6e65))
                    .is_multiple_of(u64::from(LEAVES))
        }
    }
}

fn pieces(seed: u64, version: u32) -> impl Iterator<Item = Piece> {
    let mut draw = Draw::of(seed, "length", version);
    let minutes = if draw.below(4) == 0 { 90 + draw.below(61) } else { 20 + draw.below(41) };
    let seconds = u64::from(minutes) * 60;
    (0..).zip(KBPS).map(move |(n, kbps)| Piece {
        item: Item(version * NUMBERS + n),
        version,
        len: Bytes(kbps * 125 * seconds).align_up(Bytes(4096)),
    })
}

/// Log-normal factors, drawn for pairs of numbers.
struct Factors(Vec<f64>);

impl Factors {
    fn new(sigma: f64) -> Self {
        // The sum of four draws below 2^16, in steps of 64: its mean is in the middle, and its
        // variance a third of 2^32.
        let z = |n: u32| (f64::from(n) + 0.5 - 2048.0) / 1024.0 * 3_f64.sqrt();
        Self((0..4096).map(|n| (sigma * z(n)).exp()).collect())
    }

    fn of(&self, seed: u64, one: u32, other: u32) -> f64 {
        let drawn = mix(seed ^ mix(u64::from(one) << 32 | u64::from(other)));
        let sum = (0..4).map(|n| (drawn >> (16 * n)) & 0xffff).sum::<u64>();
        self.0[usize::try_from(sum >> 6).unwrap_or(0)]
    }
}

/// No items, to borrow where a set is asked for.
pub(super) fn empty() -> &'static NumberSet {
    static EMPTY: std::sync::LazyLock<NumberSet> = std::sync::LazyLock::new(NumberSet::new);
    &EMPTY
}

#[expect(clippy::as_conversions, reason = "a model's figures are floats")]
pub(super) fn real(n: u64) -> f64 {
    n as f64
}

#[expect(clippy::as_conversions, reason = "it saturates, and no figure here is near the ends")]
fn whole(x: f64) -> u64 {
    x as u64
}

fn whole32(x: f64) -> u32 {
    u32::try_from(whole(x)).unwrap_or(u32::MAX)
}
