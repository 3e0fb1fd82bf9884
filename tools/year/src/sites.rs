//! The sites of a region: their kinds, viewers, and whom those may be sent to.

use model::number::index;

use crate::draw::Draw;
use crate::number::{real, whole};
use crate::parameters::{
    EMBEDDED_TIMES, EXCHANGE_FILL_MBPS, EXCHANGE_ROOM, EXCHANGE_SESSIONS, EXCHANGE_TIMES,
    FILL_MBPS, FOUR_ROOMS, FOUR_THROUGHPUT, ISP_SITES, ROOM_PERCENT, SESSIONS, SESSIONS_MOST,
    SESSIONS_SIGMA, SITES, THREE_ROOMS, THREE_THROUGHPUT, WITHOUT_EXCHANGE,
};

/// Sites that differ in their demand alone.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub(crate) name: String,
    /// In percent of the catalogue, together.
    pub(crate) percent: f64,
    pub(crate) members: Vec<Member>,
    /// Bytes that a member may be filled with in an hour of the window.
    pub(crate) fill: u64,
}

/// An appliance of a kind of sites.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    pub(crate) room: u64,
    /// Its part of the site's throughput.
    pub(crate) part: f64,
}

/// The kind of exchanges; those before it are embedded.
pub(crate) const EXCHANGE: usize = 7;
pub(crate) const KINDS: usize = 8;

/// The kinds, for a catalogue of so many bytes.
pub(crate) fn kinds(catalogue: u64) -> Vec<Kind> {
    let kind = |name, percent, disks: &[f64], parts: &[f64], fill_mbps: u64| {
        let members = disks.iter().zip(parts).map(|(disk, part)| Member {
            room: whole(real(catalogue) * disk / 100.0),
            part: part / 100.0,
        });
        let (members, fill) = (members.collect(), fill_mbps * 125_000 * 3_600);
        Kind { name, percent, members, fill }
    };
    let one = |disk| kind(format!("{disk}"), disk, &[disk], &[100.0], FILL_MBPS);
    let mut kinds: Vec<Kind> = ROOM_PERCENT.into_iter().map(one).collect();
    let three = THREE_ROOMS.iter().sum();
    kinds.push(kind("three".to_owned(), three, &THREE_ROOMS, &THREE_THROUGHPUT, FILL_MBPS));
    let (disks, parts) = (&FOUR_ROOMS, &FOUR_THROUGHPUT);
    kinds.push(kind("exchange".to_owned(), EXCHANGE_ROOM, disks, parts, EXCHANGE_FILL_MBPS));
    assert_eq!(kinds.len(), KINDS, "each has its place");
    kinds
}

#[derive(Clone, Debug)]
pub(crate) struct Site {
    /// Its place among the kinds.
    pub(crate) kind: usize,
    /// That its viewers begin on a mean day.
    pub(crate) sessions: f64,
    /// Sites of the region that its viewers are sent to, nearest first.
    pub(crate) reach: Vec<usize>,
    /// Its ISP, by number: a fill cluster.
    pub(crate) isp: u32,
}

/// The sites of a region; the last is its exchange.
pub(crate) fn sites(seed: u64, region: u32, count: u32) -> Vec<Site> {
    let mut draw = Draw::of(seed, "sites", u64::from(region));
    let embedded = index(count) - 1;
    let mut sites: Vec<Site> = (0..embedded)
        .map(|at| {
            let sessions = (SESSIONS * draw.factor(SESSIONS_SIGMA)).min(SESSIONS_MOST);
            Site { kind: at % EXCHANGE, sessions, reach: Vec::new(), isp: 0 }
        })
        .collect();
    let mut order: Vec<usize> = (0..embedded).collect();
    draw.shuffle(&mut order);
    let alone = (embedded / index(WITHOUT_EXCHANGE)).max(1);
    let (islands, others) = order.split_at(alone);
    let mut isp = 0;
    for island in islands {
        sites[*island].isp = isp;
        isp += 1;
    }
    let (mut left, mut turn) = (others, 0);
    while !left.is_empty() {
        let (together, rest) = left.split_at(index(ISP_SITES[turn]).min(left.len()));
        for at in together {
            let siblings = together.iter().copied().filter(|other| other != at);
            sites[*at].reach = siblings.chain([embedded]).collect();
            sites[*at].isp = isp;
        }
        (left, turn, isp) = (rest, (turn + 1) % ISP_SITES.len(), isp + 1);
    }
    // A smaller region has a smaller one.
    let sessions = EXCHANGE_SESSIONS * f64::from(count) / f64::from(SITES);
    sites.push(Site { kind: EXCHANGE, sessions, reach: Vec::new(), isp });
    sites
}

/// What a site can serve in an hour, in sessions of a mean day, where the busiest hour has this
/// part of a day's.
pub(crate) fn throughput(site: &Site, sites: &[Site], busiest: f64) -> f64 {
    if site.kind == EXCHANGE {
        return sites.iter().map(|site| site.sessions).sum::<f64>() * busiest * EXCHANGE_TIMES;
    }
    site.sessions * busiest * EMBEDDED_TIMES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_an_exchange_in_reach_has_it_last_and_two_of_a_region_have_nobody() {
        let sites = sites(5, 0, 50);
        assert_eq!(sites.len(), 50);
        let embedded = &sites[..49];
        assert_eq!(embedded.iter().filter(|site| site.reach.is_empty()).count(), 2);
        let reaching = embedded.iter().filter(|site| !site.reach.is_empty());
        assert!(reaching.clone().all(|site| site.reach.last() == Some(&49)));
        for (at, site) in sites.iter().enumerate() {
            let siblings = site.reach.iter().filter(|other| **other != 49);
            assert!(siblings.clone().all(|of| *of != at && sites[*of].isp == site.isp));
            assert!(siblings.count() < 4);
        }
        let of_kind = |kind| embedded.iter().filter(|site| site.kind == kind).count();
        assert!((0..EXCHANGE).all(|kind| of_kind(kind) == 7));
    }

    #[test]
    fn a_kind_has_its_part_of_the_catalogue_and_all_of_its_throughput() {
        for kind in kinds(1_000_000) {
            let room: u64 = kind.members.iter().map(|member| member.room).sum();
            assert_eq!(room, whole(kind.percent * 10_000.0), "{}", kind.name);
            let parts: f64 = kind.members.iter().map(|member| member.part).sum();
            assert!((parts - 1.0).abs() < 1e-9);
        }
    }
}
