use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::*;
use model::id::{ApplianceId, Generation};
use model::near::{By, Class, Route, Step};
use model::place::Nearness;
use model::topology::Prefix;
use model::view::{ApplianceView, Load, SiteView};
use proptest::collection::vec;
use proptest::prelude::*;

mod renditions;
mod titles;

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
    let changes: [Change; 6] = [
        ("stale", |a| a.health = Health::Stale),
        ("unhealthy", |a| a.health = Health::Unhealthy),
        ("draining", |a| a.health = Health::Draining),
        ("drained", |a| a.health = Health::Drained),
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
fn an_appliance_that_takes_nobody_comes_after_another_site_and_stays_a_last_resort() {
    let mut view = fleet();
    alter(&mut view, "b1", |b1| b1.share_permille = 0);
    check(&view, "10.1.2.3", &["b2", "a1", "a2", "b1"]);
    for name in ["a1", "a2", "b2"] {
        alter(&mut view, name, |appliance| appliance.health = Health::Stale);
    }
    let list = rank(&view, &query("10.1.2.3", b"s"), &CONFIG);
    assert_eq!(names(&list)[0], "b1", "before those that cannot serve");
    assert_eq!(list.good().count(), 1);
}

#[test]
fn a_share_takes_its_part_of_the_sessions_and_moves_no_others() {
    let mut view = fleet();
    let firsts = |view: &FleetView| {
        let first =
            |s: u32| names(&rank(view, &query("10.1.2.3", &s.to_le_bytes()), &CONFIG))[0].clone();
        (0..2000_u32).map(first).collect::<Vec<_>>()
    };
    let whole = firsts(&view);
    let mut last = whole.clone();
    for (share, expected) in [(800, 800), (600, 600), (300, 300), (50, 50)] {
        alter(&mut view, "b1", |b1| b1.share_permille = share);
        let now = firsts(&view);
        let taken = now.iter().filter(|name| *name == "b1").count();
        // Half of 2,000 are b1's; five standard deviations are at most 112.
        assert!(taken.abs_diff(expected) < 112, "{share}: {taken}");
        let moved = last.iter().zip(&now).filter(|(before, now)| before != now);
        assert!(moved.clone().all(|(before, now)| before == "b1" && now == "b2"), "{share}");
        last = now;
    }
    alter(&mut view, "a1", |a1| a1.share_permille = 0);
    assert_eq!(firsts(&view), last, "shares of others move nobody");
    alter(&mut view, "b1", |b1| b1.share_permille = 1000);
    assert_eq!(firsts(&view), whole, "and all come back");
}

/// Of a client of site a, whose list is made of this picture: whether it is led past the site.
fn led_past(view: &FleetView, session: &[u8], among: Option<&[u32]>) -> Option<Shed> {
    let query = Query { among, ..query("10.9.9.9", session) };
    let list = rank(view, &query, &CONFIG);
    let nearest = nearest(view, &query, &first(&list)).expect("a is near");
    assert_eq!(view.sites.get(nearest.site).unwrap().id.as_str(), "a");
    nearest.shed
}

#[test]
fn a_client_that_is_led_past_its_nearest_site_is_counted_by_the_cause() {
    let mut view = fleet();
    assert_eq!(led_past(&view, b"s", None), None);
    let near: Vec<ApplianceId> = near_a(&view);
    for id in &near {
        alter(&mut view, id.as_str(), |of| of.share_permille = 0);
    }
    assert_eq!(led_past(&view, b"s", None), Some(Shed::Health), "none has room");
    for id in &near {
        alter(&mut view, id.as_str(), |of| of.share_permille = 1000);
    }
    for health in [Health::Stale, Health::Unhealthy, Health::Draining, Health::NeverSeen] {
        let mut view = view.clone();
        near.iter().for_each(|id| alter(&mut view, id.as_str(), |of| of.health = health));
        assert_eq!(led_past(&view, b"s", None), Some(Shed::Health), "{health}");
    }
    let elsewhere = view.appliances.iter().filter(|(id, _)| !near.contains(id));
    let elsewhere: Vec<u32> = elsewhere.map(|(_, number)| *number).collect();
    assert_eq!(led_past(&view, b"s", Some(&elsewhere)), Some(Shed::Before));
    lose(&mut view, &near.iter().map(ApplianceId::as_str).collect::<Vec<_>>());
    assert_eq!(led_past(&view, b"s", None), Some(Shed::Content));
    assert_eq!(led_past(&view, b"s", Some(&elsewhere)), Some(Shed::Content));
    alter(&mut view, near[0].as_str(), |of| of.health = Health::Stale);
    assert_eq!(led_past(&view, b"s", None), Some(Shed::Content), "whatever their health");
    let stranger = query("192.0.2.1", b"s");
    let list = rank(&view, &stranger, &CONFIG);
    assert_eq!(nearest(&view, &stranger, &first(&list)), None, "no site is near to it");
}

#[test]
fn sites_of_one_prefix_are_counted_under_the_first_whichever_serves() {
    let mut view = fleet();
    let mut near = near(&"10.9.9.9/32".parse().unwrap());
    near.push(Near { number: 1, by: near[0].by, step: Step::Name });
    let (mut by_a, mut by_b) = (0, 0);
    for session in 0..40_u8 {
        let session = [session; 8];
        let query = Query { near: &near, ..query("10.9.9.9", &session) };
        let list = rank(&view, &query, &CONFIG);
        let led = first(&list);
        assert_eq!(nearest(&view, &query, &led), Some(Nearest { site: 0, shed: None }));
        let is_a = list.names[0].starts_with('a');
        (by_a, by_b) = (by_a + u32::from(is_a), by_b + u32::from(!is_a));
    }
    assert!(0 < by_a && 0 < by_b, "both serve: {by_a}, {by_b}");
    lose(&mut view, &["a1", "a2", "b1", "b2"]);
    let query = Query { near: &near, ..query("10.9.9.9", b"s") };
    let found = nearest(&view, &query, &[]);
    assert_eq!(found, Some(Nearest { site: 0, shed: Some(Shed::Content) }));
}

/// The appliances of the first pathway.
fn first(list: &RankedList) -> Vec<u32> {
    let positions = list.pathways[0].positions();
    positions.map(|at| list.candidates[at].appliance).collect()
}

fn near_a(view: &FleetView) -> Vec<ApplianceId> {
    let of_a = |id: &&ApplianceId| view.site_of(id).is_some_and(|site| site.as_str() == "a");
    view.appliances.keys().filter(of_a).cloned().collect()
}

/// A playback keeps its pathways, so whoever is none of them never gets it back.
#[test]
fn a_near_appliance_that_takes_nobody_now_keeps_the_last_place_among_many_others() {
    let given = |view: &FleetView, client: &str, config: Config| {
        names(&rank(view, &query(client, b"s"), &config))
    };
    let mut one = view(&[("a", 1), ("b", 5)]);
    alter(&mut one, "a1", |a1| a1.share_permille = 0);
    let list = given(&one, "10.9.9.9", CONFIG);
    assert_eq!((list.len(), list[3].as_str()), (4, "a1"));
    assert_eq!(given(&one, "10.9.9.9", Config { explains: false, ..CONFIG }), list);
    let alone = Config { pathways_min: 1, pathways_max: 1, ..CONFIG };
    assert_ne!(given(&one, "10.9.9.9", alone), ["a1"], "there must be one that has room");
    assert!(!given(&one, "192.0.2.1", CONFIG).contains(&"a1".to_owned()), "it is near to nobody");

    let mut two = view(&[("a", 2), ("b", 5)]);
    for name in ["a1", "a2"] {
        alter(&mut two, name, |appliance| appliance.share_permille = 0);
    }
    let last = |session: u8| {
        let list = rank(&two, &query("10.9.9.9", &[session]), &CONFIG);
        let short =
            rank(&two, &query("10.9.9.9", &[session]), &Config { explains: false, ..CONFIG });
        assert_eq!(short.candidates, list.offered());
        names(&list)[3].clone()
    };
    let lasts: BTreeSet<String> = (0..32).map(last).collect();
    assert!(lasts.iter().eq(["a1", "a2"]), "one of them, by its draw: {lasts:?}");
    let mut five = view(&[("a", 5), ("b", 2)]);
    alter(&mut five, "a1", |a1| a1.share_permille = 0);
    assert!(!given(&five, "10.9.9.9", CONFIG).contains(&"a1".to_owned()), "its site has the rest");
}

#[test]
fn equal_appliances_share_sessions_and_a_heavier_one_gets_more() {
    let mut view = fleet();
    let wins = |view: &FleetView| {
        let sessions = 0..2000_u32;
        let first =
            |s: u32| names(&rank(view, &query("10.1.2.3", &s.to_le_bytes()), &CONFIG))[0].clone();
        sessions.filter(|s| first(*s) == "b1").count()
    };
    // Five standard deviations: 5 * sqrt(2000 / 4) = 112.
    assert!(wins(&view).abs_diff(1000) < 112, "{}", wins(&view));
    alter(&mut view, "b2", |b2| b2.weight = Weight::new(4).unwrap());
    assert!(wins(&view).abs_diff(400) < 90, "{}", wins(&view));
}

#[test]
fn load_alone_moves_no_session() {
    let mut view = fleet();
    let before = rank(&view, &query("10.1.2.3", b"s"), &CONFIG);
    let load = Load { connections: 99, connections_max: 100, ..Load::default() };
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
fn an_embedded_site_serves_only_clients_that_were_announced_to_it() {
    let mut view = fleet();
    let offered = |view: &FleetView| {
        let offered = |client| names(&rank(view, &query(client, b"s"), &CONFIG)).len();
        (offered("10.1.2.3"), offered("10.9.9.9"), offered("192.0.2.1"))
    };
    assert_eq!(offered(&view), (4, 4, 4));
    embed(&mut view, 1);
    assert_eq!(offered(&view), (4, 2, 2));
    all(&mut view, |appliance| appliance.health = Health::Stale);
    check(&view, "10.9.9.9", &["a1", "a2"]);
    let list = rank(&view, &query("10.9.9.9", b"s"), &CONFIG);
    assert_eq!(list.candidates[3].standing, Standing::OthersOnly);
}

#[test]
fn the_order_of_the_clients_sites_is_kept_and_each_step_told() {
    let view = fleet();
    let route = heard("8.8.8.0/24".parse().unwrap());
    let route = Route { neighbour: Some(7), med: Some(10), ..route };
    let one = Near { number: 1, by: By::Route(route), step: Step::First };
    let farther = Route { med: Some(20), ..route };
    let two = Near { number: 0, by: By::Route(farther), step: Step::Med };
    let told = |near: &[Near]| {
        let list = rank(&view, &Query { near, ..query("8.8.8.8", b"s") }, &CONFIG);
        let of = &list.candidates[2];
        (names(&list)[0][..1].to_owned(), of.distance.to_string(), of.distance.code())
    };
    let (first, text, code) = told(&[one, two]);
    let why = "own site: 8.8.8.0/24 is the longest match (private peering, AS path of 3 from AS7, \
               MED 20), after a lower MED of the same neighbour";
    assert_eq!((first.as_str(), text.as_str(), code), ("b", why, "med"));
    let wider = Route { prefix: "8.8.0.0/16".parse().unwrap(), ..heard(route.prefix) };
    let (_, text, code) = told(&[one, Near { by: By::Route(wider), step: Step::Prefix, ..two }]);
    let why = "its site's 8.8.0.0/16 covers the client too (private peering, AS path of 3)";
    assert_eq!((text.as_str(), code), (why, "prefix"));
    let near = By::Place(Nearness { km: 90, ..Nearness::UNKNOWN });
    let (_, text, code) = told(&[one, Near { by: near, step: Step::NoRoute, ..two }]);
    let why = "no prefix of its site covers the client, which is 90 km away";
    assert_eq!((text.as_str(), code), (why, "no_route"));
    assert_eq!(told(&[one]).2, "elsewhere");
}

#[test]
fn sites_that_operators_gave_the_same_prefix_share_its_clients() {
    let view = fleet();
    let firsts = |is_static| {
        let by = By::Route(Route { is_static, ..heard("10.0.0.0/8".parse().unwrap()) });
        let near = [(0, Step::First), (1, Step::Name)];
        let near = near.map(|(number, step)| Near { number, by, step });
        let first = |session: u8| {
            let query = Query { near: &near, session: &[session], ..query("10.0.0.1", b"") };
            names(&rank(&view, &query, &CONFIG))[0].clone()
        };
        (0..64).map(first).collect::<BTreeSet<_>>().len()
    };
    assert_eq!((firsts(true), firsts(false)), (4, 2));
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
    alter(&mut view, "a1", |a1| {
        a1.share_permille = 0;
        a1.load.drives_permille = 925;
    });
    let list = rank(&view, &query("10.1.2.3", b"s"), &CONFIG);
    let line = |c: &Candidate| {
        let reasons = c.reasons(&view).map(|reason| reason.to_string()).join("; ");
        format!("{}: {reasons}", name(&view, c))
    };
    let lines: Vec<String> = list.candidates.iter().map(line).collect();
    insta::assert_snapshot!(
        "explained",
        format!("offered: {}\n{}", list.offered_count, lines.join("\n"))
    );
}

#[test]
fn each_step_adds_one_reason_and_its_code_says_what_the_step_found() {
    type Change = fn(&mut ApplianceView);
    let codes = |view: &FleetView, client: &str, name: &str| {
        let list = rank(view, &query(client, b"s"), &CONFIG);
        let of = list.candidates[list.place(name)];
        assert_eq!(
            of.reasons(view).map(|reason| reason.step()),
            ["locate", "health", "content", "load", "affinity"]
        );
        of.reasons(view).map(|reason| reason.code())
    };
    let usual = ["first", "healthy", "whole", "share", "draw"];
    assert_eq!(codes(&fleet(), "10.1.2.3", "b1"), usual);
    let changes: [(Change, usize, &str); 8] = [
        (|b1| b1.share_permille = 0, 3, "spilled"),
        (|b1| b1.health = Health::Draining, 1, "draining"),
        (|b1| b1.health = Health::Drained, 1, "drained"),
        (|b1| b1.health = Health::Unhealthy, 1, "unhealthy"),
        (|b1| b1.health = Health::Stale, 1, "stale"),
        (|b1| b1.health = Health::NeverSeen, 1, "never_seen"),
        (|b1| b1.base_url = None, 1, "no_url"),
        (|b1| b1.weight = Weight::new(4).unwrap(), 4, "draw"),
    ];
    for (change, at, code) in changes {
        let mut view = fleet();
        alter(&mut view, "b1", change);
        let mut wanted = usual;
        wanted[at] = code;
        assert_eq!(codes(&view, "10.1.2.3", "b1"), wanted);
    }
    let mut view = fleet();
    alter(&mut view, "b1", |b1| b1.share_permille = 0);
    lose(&mut view, &["b1"]);
    embed(&mut view, 1);
    let told = codes(&view, "10.9.9.9", "b1");
    assert_eq!(told, ["others_only", "healthy", "lacks", "spilled", "draw"], "each by itself");
}

proptest! {
    #[test]
    fn a_client_is_led_past_its_site_just_when_the_first_of_its_list_stands_elsewhere(
        view in drawn(&[("a", 3), ("b", 3)], 0.3),
        session: u64
    ) {
        let session = session.to_le_bytes();
        let query = query("10.9.9.9", &session);
        let list = rank(&view, &query, &CONFIG);
        let is_near = names(&list).first().is_some_and(|first| first.starts_with('a'));
        let found = nearest(&view, &query, &first(&list)).unwrap();
        prop_assert_eq!(found.shed, (!is_near).then_some(Shed::Health), "all hold it");
    }

    #[test]
    fn lists_are_short_and_name_nobody_twice(
        view in drawn(&[("a", 3), ("b", 3), ("c", 3)], 0.2),
        session: u64, near_a: bool, most in 1..=4_usize
    ) {
        let session = session.to_le_bytes();
        let query = query(if near_a { "10.9.9.9" } else { "10.1.2.3" }, &session);
        let config = Config { pathways_min: most.min(2), pathways_max: most, explains: true };
        let list = rank(&view, &query, &config);
        prop_assert!(list.offered_count <= most);
        let named: BTreeSet<&String> = list.names.iter().collect();
        prop_assert_eq!(named.len(), list.candidates.len());
        let is_good = list.candidates.iter().map(|c| !c.standing.is_good());
        prop_assert!(is_good.is_sorted(), "good ones come first");
        let short = rank(&view, &query, &Config { explains: false, ..config });
        prop_assert_eq!(short.candidates.as_slice(), list.offered(), "explained as it is");
    }

    #[test]
    fn no_list_names_a_silent_appliance_while_there_are_two_good_ones(
        silent in vec(any::<bool>(), 4), session: u64, client: u32
    ) {
        let mut view = fleet();
        for (name, silent) in ["a1", "a2", "b1", "b2"].iter().zip(&silent) {
            if *silent {
                alter(&mut view, name, |appliance| appliance.health = Health::Stale);
            }
        }
        let near = near(&Prefix::from(std::net::IpAddr::from(client.to_be_bytes())));
        let session = session.to_le_bytes();
        let query = Query { near: &near, session: &session, ..query("10.0.0.0", b"") };
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

/// A list, and the names of all that are on it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Named {
    list: RankedList,
    names: Vec<String>,
}

impl std::ops::Deref for Named {
    type Target = RankedList;

    fn deref(&self) -> &RankedList {
        &self.list
    }
}

impl Named {
    fn place(&self, name: &str) -> usize {
        self.names.iter().position(|of| of == name).unwrap()
    }
}

fn rank(view: &FleetView, query: &Query<'_>, config: &Config) -> Named {
    let list = super::rank(view, query, config);
    let names = list.candidates.iter().map(|of| name(view, of)).collect();
    Named { list, names }
}

fn name(view: &FleetView, candidate: &Candidate) -> String {
    view.placed(candidate.appliance).unwrap().appliance.id.to_string()
}

fn names(list: &Named) -> Vec<String> {
    list.names[..list.offered_count].to_vec()
}

fn query<'a>(client: &str, session: &'a [u8]) -> Query<'a> {
    let client = client
        .parse()
        .unwrap_or_else(|_| Prefix::from(client.parse::<std::net::IpAddr>().unwrap()));
    let near = near(&client).leak();
    Query { near, version: wanted(0, version()), session, plain: false, among: None }
}

/// What the table of routes says of a client of these sites, whose prefixes are all static.
fn near(client: &Prefix) -> Vec<Near> {
    let mut covering: Vec<(u32, Prefix)> = PREFIXES
        .iter()
        .map(|(site, prefix)| (*site, prefix.parse().unwrap()))
        .filter(|(_, prefix): &(u32, Prefix)| prefix.contains(client))
        .collect();
    covering.sort_by_key(|(_, prefix)| std::cmp::Reverse(prefix.prefix_len()));
    let near = |(at, (number, prefix)): (usize, (u32, Prefix))| {
        let step = if at == 0 { Step::First } else { Step::Prefix };
        let by = By::Route(Route { is_static: true, path_len: 0, ..heard(prefix) });
        Near { number, by, step }
    };
    covering.into_iter().enumerate().map(near).collect()
}

/// Each with the number of its site.
const PREFIXES: [(u32, &str); 3] = [(0, "10.0.0.0/8"), (1, "10.1.0.0/16"), (1, "2001:db8::/32")];

fn heard(prefix: Prefix) -> Route {
    let (neighbour, med) = (None, None);
    Route { prefix, class: Class::Private, is_static: false, path_len: 3, neighbour, med }
}

fn wanted(number: u32, id: &AssetVersionId) -> Wanted {
    Wanted { number: Some(number), draws: Draws::of(id.as_str().as_bytes()) }
}

fn version() -> &'static AssetVersionId {
    static VERSION: std::sync::LazyLock<AssetVersionId> =
        std::sync::LazyLock::new(|| "film-1".parse().unwrap());
    &VERSION
}

fn alter(view: &mut FleetView, name: &str, change: impl FnOnce(&mut ApplianceView)) {
    let position = *view.position(view.appliances[name]).unwrap();
    let mut site = view.sites.get(position.site).unwrap().as_ref().clone();
    change(&mut site.appliances[position.at()]);
    view.put_site(position.site, Arc::new(site));
}

/// A fleet of these sites with drawn shares and titles; each appliance is silent as likely as this.
fn drawn(sites: &[(&str, u32)], silent: f64) -> impl Strategy<Value = FleetView> {
    let view = view(sites);
    let share = prop_oneof![Just(0_u32), Just(500), Just(1000)];
    let titles = prop_oneof![Just(0_u32), Just(500), Just(1000)];
    let each = (share, titles, proptest::bool::weighted(silent));
    vec(each, view.appliances.len()).prop_map(move |drawn| {
        let mut view = view.clone();
        let names: Vec<ApplianceId> = view.appliances.keys().cloned().collect();
        for (name, (share, titles, is_silent)) in names.iter().zip(drawn) {
            let health = if is_silent { Health::Stale } else { Health::Healthy };
            alter(&mut view, name.as_str(), |appliance| {
                (appliance.share_permille, appliance.health) = (share, health);
                appliance.titles_permille = titles;
            });
        }
        view
    })
}

/// The site of this number serves its own clients alone from now on.
fn embed(view: &mut FleetView, number: u32) {
    let site = view.sites.get(number).unwrap().as_ref().clone();
    view.put_site(number, Arc::new(SiteView { serves_strangers: false, ..site }));
}

/// These do not hold the version any more.
fn lose(view: &mut FleetView, names: &[&str]) {
    for name in names {
        let number = view.appliances[*name];
        view.holders.get_mut(0).unwrap().whole.remove(number);
    }
}

fn all(view: &mut FleetView, mut change: impl FnMut(&mut ApplianceView)) {
    let ids: Vec<ApplianceId> = view.appliances.keys().cloned().collect();
    ids.iter().for_each(|id| alter(view, id.as_str(), &mut change));
}

/// Sites a (10/8) and b (10.1/16 and an IPv6 range), two healthy appliances each, all holding.
fn fleet() -> FleetView {
    view(&[("a", 2), ("b", 2)])
}

/// Sites with so many healthy appliances each, all holding the version.
fn view(sites: &[(&str, u32)]) -> FleetView {
    let mut view = FleetView {
        generation: Generation(1),
        versions: Arc::new([(version().clone(), 0)].into()),
        ..FleetView::default()
    };
    let mut holders = Members::default();
    for (number, (site, count)) in (0..).zip(sites) {
        let mut appliances = Vec::new();
        for n in 1..=*count {
            let all = holders.count();
            holders.insert(all);
            appliances.push(ApplianceView {
                id: format!("{site}{n}").parse().unwrap(),
                number: all,
                weight: Weight::ONE,
                health: Health::Healthy,
                share_permille: 1000,
                titles_permille: 0,
                base_url: Some(format!("https://{site}{n}.example").into()),
                plain_url: None,
                load: Load::default(),
            });
        }
        let id = site.parse().unwrap();
        view.put_site(number, Arc::new(SiteView { id, serves_strangers: true, appliances }));
    }
    view.holders.push(holders.into());
    view
}

#[test]
fn of_a_large_fleet_few_are_looked_at_and_sessions_spread_over_all_of_it() {
    let all = view(&[("a", 1), ("b", 100), ("c", 100)]);
    let mut given = BTreeMap::<String, u32>::new();
    for session in 0..2000_u32 {
        let session = session.to_le_bytes();
        let list = rank(&all, &query("10.9.9.9", &session), &CONFIG);
        assert_eq!((list.offered_count, names(&list)[0].as_str()), (4, "a1"), "the near one first");
        assert!(list.candidates.len() < 10, "{}", list.candidates.len());
        assert_eq!(usize::try_from(list.others).unwrap() + list.candidates.len(), 201);
        assert_eq!(list, rank(&all, &query("10.9.9.9", &session), &CONFIG), "the same each time");
        let short = rank(&all, &query("10.9.9.9", &session), &Config { explains: false, ..CONFIG });
        assert_eq!((short.candidates.as_slice(), short.others), (list.offered(), list.others));
        names(&list)[1..].iter().for_each(|name| *given.entry(name.clone()).or_default() += 1);
    }
    // 30 each; five standard deviations are 27.
    assert_eq!(given.len(), 200);
    assert!(given.values().all(|count| (3..=57).contains(count)), "{given:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn those_that_hold_nothing_are_left_out_where_nobody_would_see_them(
        mut view in drawn(&[("a", 1), ("b", 20), ("c", 30)], 0.3),
        held in proptest::collection::btree_set(0_u32..51, 0..12),
        parts in vec(proptest::collection::btree_set(0_u32..51, 0..6), 0..4),
        each in vec((1_u32..4, any::<bool>()), 51),
        session: [u8; 4],
        is_stranger: bool,
        plain: bool,
    ) {
        // With one rendition, a part of the version is all of it.
        let parts = if parts.len() == 1 { Vec::new() } else { parts };
        for part in &parts {
            view.partial_holders.push(part.difference(&held).copied().collect());
        }
        let renditions = 0..u32::try_from(parts.len()).unwrap();
        let whole = held.into_iter().collect();
        *view.holders.get_mut(0).unwrap() = model::view::Holders { whole, renditions };
        let mut each = each.into_iter();
        all(&mut view, |appliance| {
            let (weight, has_plain) = each.next().unwrap();
            appliance.weight = Weight::new(weight).unwrap();
            appliance.plain_url = has_plain.then(|| "http://a.example".into());
        });
        let client = if is_stranger { "192.0.2.1" } else { "10.1.9.9" };
        let query = Query { plain, ..query(client, &session) };
        let config = Config { explains: false, ..CONFIG };
        let holders = Holders::of(&view, Some(0));
        let mut ranking = Ranking::new(&view, &query, &config, &holders);
        ranking.keeps_all = true;
        ranking.look_at_all();
        prop_assert_eq!(super::rank(&view, &query, &config), ranking.list());
    }
}

#[test]
fn of_a_large_fleet_the_few_that_hold_a_version_are_found() {
    let mut large = view(&[("a", 1), ("b", 500)]);
    let numbers = ["b77", "b400"].map(|name| large.appliances[name]);
    large.holders.get_mut(0).unwrap().whole = numbers.into();
    let list = rank(&large, &query("10.9.9.9", b"s"), &CONFIG);
    assert_eq!(
        names(&list).into_iter().collect::<BTreeSet<_>>(),
        ["b400", "b77"].map(str::to_owned).into()
    );
    large.holders.get_mut(0).unwrap().whole = Members::default();
    let list = rank(&large, &query("10.9.9.9", b"s"), &CONFIG);
    assert_eq!(names(&list)[0], "a1", "with nobody good, those near are asked before others");
    assert!(CONFIG.pathways_min <= list.offered_count, "and some other, for lack of a better one");
}

#[test]
fn of_a_large_fleet_those_are_drawn_that_serve_strangers() {
    let mut large = view(&[("a", 1), ("b", 380), ("c", 20)]);
    embed(&mut large, 1);
    for session in 0..200_u32 {
        let session = session.to_le_bytes();
        let list = rank(&large, &query("10.9.9.9", &session), &CONFIG);
        // One in 20 is of c.
        assert!(2 <= list.offered_count, "{list:?}");
        assert!(list.names.iter().all(|name| !name.starts_with('b')), "{list:?}");
    }
    embed(&mut large, 2);
    let list = rank(&large, &query("10.9.9.9", b"s"), &CONFIG);
    assert_eq!(names(&list), ["a1"], "there is nobody else");
}

#[test]
fn of_a_large_fleet_in_an_outage_those_are_found_that_are_left() {
    let mut large = view(&[("b", 1), ("c", 400)]);
    for n in 4..=400 {
        alter(&mut large, &format!("c{n}"), |appliance| appliance.health = Health::Stale);
    }
    let among =
        |list: &Named, left: &[&str]| names(list).iter().all(|name| left.contains(&name.as_str()));
    for session in 0..50_u32 {
        let list = rank(&large, &query("10.9.9.9", &session.to_le_bytes()), &CONFIG);
        assert!(2 <= list.offered_count && among(&list, &["b1", "c1", "c2", "c3"]), "{list:?}");
    }
    for name in ["b1", "c1", "c2", "c3"] {
        alter(&mut large, name, |appliance| appliance.health = Health::Stale);
    }
    let list = rank(&large, &query("10.9.9.9", b"s"), &CONFIG);
    assert_eq!(list.offered_count, 4, "the doubtful are better than nobody");
}
