use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::*;
use model::id::Generation;
use model::number::NumberSet;
use model::prefixes::Prefixes;
use model::units::BitsPerSecond;
use model::view::{Load, SiteView};
use proptest::prelude::*;

const CONFIG: Config = Config { pathways_min: 2, pathways_max: 4, explains: true };

#[test]
fn the_site_with_the_longest_prefix_comes_first_then_wider_ones_then_the_rest() {
    let view = fleet();
    check(&view, "10.1.2.3", &["b1", "b2", "a1", "a2"]);
    check(&view, "10.9.9.9", &["a1", "a2", "b1", "b2"]);
    check(&view, "2001:db8::1", &["b1", "b2", "a1", "a2"]);
}

#[test]
fn a_client_of_no_site_gets_all_sites_mixed() {
    let view = fleet();
    let mut first = BTreeSet::new();
    for session in 0..64_u8 {
        first.insert(names(&rank(&view, &query("192.0.2.1", &[session]), &CONFIG))[0].clone());
    }
    assert_eq!(first.len(), 4, "{first:?}");
}

#[test]
fn what_does_not_hold_the_version_or_is_not_healthy_is_left_out() {
    type Change = (&'static str, fn(&mut ApplianceView));
    let changes: [Change; 5] = [
        ("stale", |a| a.health = Health::Stale),
        ("unhealthy", |a| a.health = Health::Unhealthy),
        ("draining", |a| a.health = Health::Draining),
        ("never seen", |a| a.health = Health::NeverSeen),
        ("without url", |a| a.base_url = None),
    ];
    for (name, change) in changes {
        let mut view = fleet();
        alter(&mut view, "b1", change);
        let list = rank(&view, &query("10.1.2.3", b"s"), &CONFIG);
        assert!(!names(&list).contains(&"b1".to_owned()), "{name}");
        assert_eq!(list.offered_count, 3, "{name}");
    }
    let mut view = fleet();
    lose(&mut view, &["b1"]);
    let list = rank(&view, &query("10.1.2.3", b"s"), &CONFIG);
    assert!(!names(&list).contains(&"b1".to_owned()) && list.offered_count == 3, "it lacks it");
}

#[test]
fn if_nobody_is_good_the_doubtful_are_offered_best_first() {
    let mut view = fleet();
    all(&mut view, |appliance| appliance.health = Health::Stale);
    check(&view, "10.9.9.9", &["a1", "a2", "b1", "b2"]);
    alter(&mut view, "b2", |b2| b2.health = Health::Draining);
    check(&view, "10.9.9.9", &["b2", "a1", "a2", "b1"]);
    all(&mut view, |appliance| appliance.health = Health::Healthy);
    lose(&mut view, &["a1", "a2", "b1", "b2"]);
    check(&view, "10.9.9.9", &["a1", "a2", "b1", "b2"]);
}

#[test]
fn one_good_appliance_is_joined_by_the_best_doubtful_one() {
    let mut view = fleet();
    for name in ["a1", "a2", "b1"] {
        alter(&mut view, name, |appliance| appliance.health = Health::Stale);
    }
    alter(&mut view, "a1", |a1| a1.health = Health::Draining);
    let list = rank(&view, &query("10.9.9.9", b"s"), &CONFIG);
    assert_eq!(names(&list), ["b2", "a1"]);
    assert_eq!(list.good().count(), 1);
}

#[test]
fn an_appliance_at_its_limit_comes_after_another_site() {
    let mut view = fleet();
    let load = Load { connections: 95, connections_max: 100, ..Load::default() };
    alter(&mut view, "b1", |b1| b1.load = load);
    check(&view, "10.1.2.3", &["b2", "a1", "a2", "b1"]);
}

#[test]
fn an_appliance_that_has_just_come_back_waits_behind_those_that_never_left() {
    let mut view = fleet();
    alter(&mut view, "b1", |b1| b1.recovering = true);
    check(&view, "10.1.2.3", &["b2", "a1", "a2", "b1"]);
}

#[test]
fn equal_appliances_share_sessions_and_a_loaded_one_gets_fewer() {
    let mut view = fleet();
    let wins = |view: &FleetView| {
        let sessions = 0..2000_u32;
        let first =
            |s: u32| names(&rank(view, &query("10.1.2.3", &s.to_le_bytes()), &CONFIG))[0].clone();
        sessions.filter(|s| first(*s) == "b1").count()
    };
    // Five standard deviations: 5 * sqrt(2000 / 4) = 112.
    assert!(wins(&view).abs_diff(1000) < 112, "{}", wins(&view));
    alter(&mut view, "b1", |b1| {
        b1.load.egress = BitsPerSecond(70);
        b1.load.egress_max = BitsPerSecond(100);
    });
    assert!(wins(&view).abs_diff(667) < 112, "{}", wins(&view));
    alter(&mut view, "b2", |b2| b2.weight = Weight::new(4).unwrap());
    assert!(wins(&view).abs_diff(222) < 75, "{}", wins(&view));
}

#[test]
fn load_below_the_first_step_moves_no_session() {
    let mut view = fleet();
    let before = rank(&view, &query("10.1.2.3", b"s"), &CONFIG);
    let load = Load { connections: 59, connections_max: 100, ..Load::default() };
    alter(&mut view, "b1", |b1| b1.load = load);
    assert_eq!(names(&rank(&view, &query("10.1.2.3", b"s"), &CONFIG)), names(&before));
}

#[test]
fn a_player_without_tls_gets_only_plain_listeners() {
    let mut view = fleet();
    alter(&mut view, "a2", |a2| a2.plain_url = Some("http://127.0.0.3:80".into()));
    let query = Query { plain: true, ..query("10.1.2.3", b"s") };
    assert_eq!(names(&rank(&view, &query, &CONFIG)), ["a2"]);
}

#[test]
fn a_range_of_clients_matches_only_prefixes_that_cover_all_of_it() {
    let view = fleet();
    check(&view, "10.0.0.0/8", &["a1", "a2", "b1", "b2"]);
    check(&view, "10.1.2.0/24", &["b1", "b2", "a1", "a2"]);
    let list = rank(&view, &query("2001:db8::/31", b"s"), &CONFIG);
    assert!(list.candidates.iter().all(|c| c.distance == Distance::Elsewhere), "half is not all");
}

#[test]
fn an_empty_fleet_gives_an_empty_list() {
    let list = rank(&FleetView::default(), &query("10.1.2.3", b"s"), &CONFIG);
    assert_eq!((list.candidates.len(), list.offered_count), (0, 0));
}

#[test]
fn every_decision_says_why() {
    let mut view = fleet();
    alter(&mut view, "b2", |b2| b2.health = Health::Stale);
    lose(&mut view, &["a2"]);
    let load = Load { connections: 617, connections_max: 1000, ..Load::default() };
    alter(&mut view, "b1", |b1| b1.load = load);
    let list = rank(&view, &query("10.1.2.3", b"s"), &CONFIG);
    let line = |c: &Candidate| {
        let reasons = c.reasons().map(|reason| reason.to_string()).join("; ");
        format!("{}: {reasons}", c.appliance)
    };
    let lines: Vec<String> = list.candidates.iter().map(line).collect();
    insta::assert_snapshot!(
        "explained",
        format!("offered: {}\n{}", list.offered_count, lines.join("\n"))
    );
}

proptest! {
    #[test]
    fn no_list_names_a_silent_appliance_while_there_are_two_good_ones(
        silent in proptest::collection::vec(any::<bool>(), 4), session: u64, client: u32
    ) {
        let mut view = fleet();
        for (name, silent) in ["a1", "a2", "b1", "b2"].iter().zip(&silent) {
            if *silent {
                alter(&mut view, name, |appliance| appliance.health = Health::Stale);
            }
        }
        let client = Prefix::from(std::net::IpAddr::from(client.to_be_bytes()));
        let session = session.to_le_bytes();
        let query = Query { client, session: &session, ..query("10.0.0.0", b"") };
        let list = rank(&view, &query, &CONFIG);
        let good = silent.iter().filter(|silent| !**silent).count();
        prop_assert!((2..=4).contains(&list.offered_count));
        prop_assert_eq!(list.good().count(), good);
        let offered_good = list.offered().iter().filter(|c| c.standing.is_good()).count();
        prop_assert_eq!(offered_good, good.min(list.offered_count));
        if 2 <= good {
            prop_assert_eq!(list.offered_count, good);
        }
    }
}

fn check(view: &FleetView, client: &str, wanted: &[&str]) {
    let list = rank(view, &query(client, b"s"), &CONFIG);
    let mut given = names(&list);
    let mut wanted: Vec<String> = wanted.iter().map(|name| (*name).to_owned()).collect();
    // Within a site the draw decides; put those of one site in the order of their names.
    let site = |name: &String| name[..1].to_owned();
    for run in given.chunk_by_mut(|a, b| site(a) == site(b)) {
        run.sort();
    }
    for run in wanted.chunk_by_mut(|a, b| site(a) == site(b)) {
        run.sort();
    }
    assert_eq!(given, wanted, "{client}");
}

fn names(list: &RankedList) -> Vec<String> {
    list.offered().iter().map(|candidate| candidate.appliance.to_string()).collect()
}

fn query<'a>(client: &str, session: &'a [u8]) -> Query<'a> {
    let client = client
        .parse()
        .unwrap_or_else(|_| Prefix::from(client.parse::<std::net::IpAddr>().unwrap()));
    Query { client, version: version(), session, plain: false, among: None }
}

fn version() -> &'static AssetVersionId {
    static VERSION: std::sync::LazyLock<AssetVersionId> =
        std::sync::LazyLock::new(|| "film-1".parse().unwrap());
    &VERSION
}

fn alter(view: &mut FleetView, name: &str, change: impl FnOnce(&mut ApplianceView)) {
    let place = view.places.get(view.appliances[name]).copied().flatten().unwrap();
    let site = Arc::make_mut(view.sites.get_mut(place.site).unwrap());
    change(&mut site.appliances[place.at]);
}

/// These do not hold the version any more.
fn lose(view: &mut FleetView, names: &[&str]) {
    for name in names {
        let number = view.appliances[*name];
        Arc::make_mut(view.holders.get_mut(0).unwrap()).remove(number);
    }
}

fn all(view: &mut FleetView, change: fn(&mut ApplianceView)) {
    let ids: Vec<ApplianceId> = view.appliances.keys().cloned().collect();
    ids.iter().for_each(|id| alter(view, id.as_str(), change));
}

/// Sites a (10/8) and b (10.1/16 and an IPv6 range), two healthy appliances each, all holding.
fn fleet() -> FleetView {
    view(&[("a", &["10.0.0.0/8"], 2), ("b", &["10.1.0.0/16", "2001:db8::/32"], 2)])
}

/// Sites with so many healthy appliances each, all holding the version.
fn view(sites: &[(&str, &[&str], u32)]) -> FleetView {
    let mut view = FleetView {
        generation: Generation(1),
        versions: Arc::new(BTreeMap::from([(version().clone(), 0)])),
        ..FleetView::default()
    };
    let (mut prefixes, mut holders) = (Prefixes::default(), NumberSet::new());
    for (number, (site, announced, count)) in (0..).zip(sites) {
        announced.iter().for_each(|prefix| prefixes.put(prefix.parse().unwrap(), number));
        let mut appliances = Vec::new();
        for n in 1..=*count {
            let all = u32::try_from(holders.len()).unwrap();
            holders.insert(all);
            appliances.push(ApplianceView {
                id: format!("{site}{n}").parse().unwrap(),
                number: all,
                weight: Weight::ONE,
                health: Health::Healthy,
                recovering: false,
                base_url: Some(format!("https://{site}{n}.example").into()),
                plain_url: None,
                load: Load::default(),
            });
        }
        let id = site.parse().unwrap();
        view.put_site(number, Arc::new(SiteView { id, appliances }));
    }
    view.prefixes = Arc::new(prefixes);
    view.holders.push(Arc::new(holders));
    view
}

#[test]
fn of_a_large_fleet_few_are_looked_at_and_sessions_spread_over_all_of_it() {
    let all = view(&[("a", &["10.0.0.0/8"], 1), ("b", &[], 100), ("c", &[], 100)]);
    let mut given = BTreeMap::<String, u32>::new();
    for session in 0..2000_u32 {
        let session = session.to_le_bytes();
        let list = rank(&all, &query("10.1.2.3", &session), &CONFIG);
        assert_eq!((list.offered_count, names(&list)[0].as_str()), (4, "a1"), "the near one first");
        assert!(list.candidates.len() < 10, "{}", list.candidates.len());
        assert_eq!(usize::try_from(list.others).unwrap() + list.candidates.len(), 201);
        assert_eq!(list, rank(&all, &query("10.1.2.3", &session), &CONFIG), "the same each time");
        let short = rank(&all, &query("10.1.2.3", &session), &Config { explains: false, ..CONFIG });
        assert_eq!((short.candidates.as_slice(), short.others), (list.offered(), list.others));
        names(&list)[1..].iter().for_each(|name| *given.entry(name.clone()).or_default() += 1);
    }
    // 30 each; five standard deviations are 27.
    assert_eq!(given.len(), 200);
    assert!(given.values().all(|count| (3..=57).contains(count)), "{given:?}");
}

#[test]
fn of_a_large_fleet_the_few_that_hold_a_version_are_found() {
    let mut large = view(&[("a", &["10.0.0.0/8"], 1), ("b", &[], 500)]);
    let numbers = ["b77", "b400"].map(|name| large.appliances[name]);
    *large.holders.get_mut(0).unwrap() = Arc::new(NumberSet::from(numbers));
    let list = rank(&large, &query("10.1.2.3", b"s"), &CONFIG);
    assert_eq!(
        names(&list).into_iter().collect::<BTreeSet<_>>(),
        ["b400", "b77"].map(str::to_owned).into()
    );
    *large.holders.get_mut(0).unwrap() = Arc::default();
    let list = rank(&large, &query("10.1.2.3", b"s"), &CONFIG);
    assert_eq!(names(&list)[0], "a1", "with nobody good, those near are asked before others");
    assert!(CONFIG.pathways_min <= list.offered_count, "and some other, for lack of a better one");
}
