use std::collections::BTreeSet;

use super::*;
use proptest::prelude::*;

const CONFIG: Config = Config { copies_per_site: 2, report_lines_max: 50 };

#[test]
fn every_site_gets_its_copies_on_different_appliances() {
    let fleet = [candidate("a1", "s1"), candidate("a2", "s1"), candidate("a3", "s1")];
    let fleet = [&fleet[..], &[candidate("b1", "s2"), candidate("b2", "s2")]].concat();
    let placement = place(&fleet, &demands(40), &CONFIG);
    for demand in demands(40) {
        assert_eq!(holders(&placement, &fleet, "s1", &demand.version).len(), 2);
        assert_eq!(holders(&placement, &fleet, "s2", &demand.version).len(), 2);
    }
    assert_eq!(placement.report.shortfall_count, 0);
}

#[test]
fn a_site_with_fewer_appliances_than_copies_gives_all_it_has_and_lacks_nothing() {
    let placement = place(&[candidate("a1", "s1")], &demands(3), &CONFIG);
    assert_eq!(placement.holdings[&id("a1")].len(), 3);
    assert_eq!(placement.report.shortfall_count, 0);
}

#[test]
fn a_full_appliance_is_skipped_for_the_next_one_and_both_are_said() {
    let mut fleet = [candidate("a1", "s1"), candidate("a2", "s1"), candidate("a3", "s1")];
    fleet[0].usable = Some(Bytes::mib(300));
    fleet[1].usable = Some(Bytes::mib(250));
    fleet[2].usable = None;
    let placement = place(&fleet, &demands(4), &CONFIG);
    insta::assert_snapshot!(placement.report.to_string(), @"
    a1: 300 MiB of 300 MiB
    a2: 200 MiB of 250 MiB
    a3: 0 MiB of 0 MiB
    film-2: 1 of 2 copies in s1
    film-3: 0 of 2 copies in s1
    film-0: not on a3: it has not reported its drives yet
    film-1: not on a3: it has not reported its drives yet
    film-2: not on a3: it has not reported its drives yet
    film-2: not on a2: 50 MiB are left and 100 MiB are needed
    film-3: not on a1: 0 MiB are left and 100 MiB are needed
    film-3: not on a3: it has not reported its drives yet
    film-3: not on a2: 50 MiB are left and 100 MiB are needed
    ");
}

#[test]
fn where_upper_renditions_are_left_out_more_versions_fit() {
    let [whole, lower] = ["s1", "s2"].map(|site| {
        let bitrate_max = (site == "s2").then_some(BitsPerSecond(1000));
        let usable = Some(Bytes::mib(300));
        Candidate { usable, bitrate_max, ..candidate(&format!("a-{site}"), site) }
    });
    let renditions = [(1000, 20), (1001, 30), (3000, 40)];
    let renditions = renditions.map(|(rate, mib)| (BitsPerSecond(rate), Bytes::mib(mib)));
    let mut demands = demands(20);
    demands.iter_mut().for_each(|demand| demand.renditions = renditions.to_vec());
    let placement = place(&[whole, lower], &demands, &CONFIG);
    let held = |name: &str| placement.holdings[&id(name)].len();
    assert_eq!((held("a-s1"), held("a-s2")), (3, 10));
}

#[test]
fn the_report_is_bounded_and_counts_what_it_leaves_out() {
    let mut fleet = [candidate("a1", "s1")];
    fleet[0].usable = Some(Bytes::ZERO);
    let config = Config { report_lines_max: 2, ..CONFIG };
    let report = place(&fleet, &demands(10), &config).report;
    assert_eq!((report.skips.len(), report.skip_count), (2, 10));
    assert_eq!((report.shortfalls.len(), report.shortfall_count), (2, 10));
    assert!(report.to_string().ends_with("and 16 more lines\n"));
}

#[test]
fn shares_follow_weights() {
    let mut fleet = [candidate("a1", "s1"), candidate("a2", "s1"), candidate("a3", "s1")];
    fleet[0].weight = Weight::new(1).unwrap();
    fleet[1].weight = Weight::new(3).unwrap();
    fleet[2].weight = Weight::new(6).unwrap();
    let config = Config { copies_per_site: 1, ..CONFIG };
    let placement = place(&fleet, &demands(5000), &config);
    for (candidate, share) in fleet.iter().zip([500_usize, 1500, 3000]) {
        let held = placement.holdings[&candidate.id].len();
        // Five standard deviations of a binomial draw: at most 5 * sqrt(5000 * 0.6 * 0.4) = 173.
        assert!(held.abs_diff(share) < 175, "{}: {held} instead of {share}", candidate.id);
    }
}

proptest! {
    #[test]
    fn an_appliance_that_joins_moves_only_what_it_wins(
        count in 1_usize..8, copies in 1_u32..4, weight in 1_u32..20
    ) {
        let config = Config { copies_per_site: copies, ..CONFIG };
        let fleet: Vec<_> = (0..count).map(|i| candidate(&format!("a{i}"), "s1")).collect();
        let mut grown = fleet.clone();
        grown.push(candidate("new", "s1"));
        grown[count].weight = Weight::new(weight).unwrap();
        let before = place(&fleet, &demands(30), &config);
        let after = place(&grown, &demands(30), &config);
        for Demand { version, .. } in demands(30) {
            let old = holders(&before, &fleet, "s1", &version);
            let new = holders(&after, &grown, "s1", &version);
            let came: Vec<_> = new.difference(&old).collect();
            let left: Vec<_> = old.difference(&new).collect();
            prop_assert!(came.iter().all(|id| ***id == self::id("new")), "{came:?} came");
            prop_assert!(left.len() <= came.len(), "{left:?} left for {came:?}");
        }
    }

    #[test]
    fn the_order_of_candidates_does_not_matter(seed in 0_usize..6) {
        let fleet: Vec<_> = (0..6).map(|i| candidate(&format!("a{i}"), "s1")).collect();
        let mut turned = fleet.clone();
        turned.rotate_left(seed);
        let placed = |fleet: &[Candidate]| place(fleet, &demands(20), &CONFIG).holdings;
        prop_assert_eq!(placed(&fleet), placed(&turned));
    }

    #[test]
    fn what_is_only_counted_is_counted_as_if_it_was_listed(
        usable in proptest::collection::vec(proptest::option::of(0_u64..900), 1..6),
        copies in 0_u32..3
    ) {
        let fleet: Vec<_> = (0..).zip(&usable).map(|(i, mib): (usize, _)| {
            let site = if i % 3 == 0 { "s1" } else { "s2" };
            Candidate { usable: mib.map(Bytes::mib), ..candidate(&format!("a{i}"), site) }
        }).collect();
        let lines = |report_lines_max| {
            let config = Config { copies_per_site: copies, report_lines_max };
            let Placement { holdings, report } = place(&fleet, &demands(12), &config);
            (holdings, report.loads, report.shortfall_count, report.skip_count)
        };
        prop_assert_eq!(lines(0), lines(1000));
        prop_assert_eq!(lines(3), lines(1000));
    }

    #[test]
    fn nobody_is_given_more_than_fits(usable in proptest::collection::vec(0_u64..900, 1..6)) {
        let fleet: Vec<_> = (0..).zip(&usable).map(|(i, mib): (usize, _)| {
            let usable = Some(Bytes::mib(*mib));
            Candidate { usable, ..candidate(&format!("a{i}"), "s1") }
        }).collect();
        let placement = place(&fleet, &demands(12), &CONFIG);
        for (appliance, filled) in &placement.report.loads {
            let held = u64::try_from(placement.holdings[appliance].len()).unwrap();
            prop_assert_eq!(filled.given, Bytes::mib(100 * held));
            prop_assert!(filled.given <= filled.usable);
        }
    }
}

fn holders<'a>(
    placement: &'a Placement,
    fleet: &[Candidate],
    site: &str,
    version: &AssetVersionId,
) -> BTreeSet<&'a ApplianceId> {
    let in_site = |id: &ApplianceId| fleet.iter().any(|c| c.id == *id && c.site.as_str() == site);
    let holding =
        placement.holdings.iter().filter(|(id, held)| in_site(id) && held.contains(version));
    holding.map(|(id, _)| id).collect()
}

fn demands(count: usize) -> Vec<Demand> {
    let version = |i| format!("film-{i}").parse().unwrap();
    (0..count).map(|i| demand(version(i))).collect()
}

fn demand(version: AssetVersionId) -> Demand {
    Demand { version, len: Bytes::mib(100), renditions: Vec::new() }
}

fn candidate(name: &str, site: &str) -> Candidate {
    let usable = Some(Bytes::mib(1 << 20));
    let (id, site) = (id(name), site.parse().unwrap());
    Candidate { id, site, weight: Weight::ONE, usable, bitrate_max: None }
}

fn id(name: &str) -> ApplianceId {
    name.parse().unwrap()
}
