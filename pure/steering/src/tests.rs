use std::collections::BTreeSet;
use std::sync::Arc;

use super::*;
use model::id::Generation;
use model::near::Class;
use model::topology::Prefix;
use model::topology::SiteKind;
use model::units::BitsPerSecond;
use model::view::Load;
use proptest::prelude::*;

const CONFIG: Config = Config { pathways_min: 2, pathways_max: 4 };

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
        ("never seen", |a| a.health = Health::NeverSeen),
        ("empty", |a| a.complete = Arc::default()),
        ("without url", |a| a.base_url = None),
    ];
    for (name, change) in changes {
        let mut view = fleet();
        change(view.appliances.get_mut("b1").unwrap());
        let list = rank(&view, &query("10.1.2.3", b"s"), &CONFIG);
        assert!(!names(&list).contains(&"b1".to_owned()), "{name}");
        assert_eq!(list.offered_count, 3, "{name}");
    }
}

#[test]
fn if_nobody_is_good_the_doubtful_are_offered_best_first() {
    let mut view = fleet();
    for appliance in view.appliances.values_mut() {
        appliance.health = Health::Stale;
    }
    check(&view, "10.9.9.9", &["a1", "a2", "b1", "b2"]);
    view.appliances.get_mut("b2").unwrap().health = Health::Draining;
    check(&view, "10.9.9.9", &["b2", "a1", "a2", "b1"]);
    for appliance in view.appliances.values_mut() {
        appliance.health = Health::Healthy;
        appliance.complete = Arc::default();
    }
    check(&view, "10.9.9.9", &["a1", "a2", "b1", "b2"]);
}

#[test]
fn one_good_appliance_is_joined_by_the_best_doubtful_one() {
    let mut view = fleet();
    for (id, appliance) in &mut view.appliances {
        if id.as_str() != "b2" {
            appliance.health = Health::Stale;
        }
    }
    view.appliances.get_mut("a1").unwrap().health = Health::Draining;
    let list = rank(&view, &query("10.9.9.9", b"s"), &CONFIG);
    assert_eq!(names(&list), ["b2", "a1"]);
    assert_eq!(list.good().count(), 1);
}

#[test]
fn an_appliance_at_its_limit_comes_after_another_site() {
    let mut view = fleet();
    let b1 = view.appliances.get_mut("b1").unwrap();
    b1.load = Load { connections: 95, connections_max: 100, ..Load::default() };
    check(&view, "10.1.2.3", &["b2", "a1", "a2", "b1"]);
}

#[test]
fn an_appliance_that_has_just_come_back_waits_behind_those_that_never_left() {
    let mut view = fleet();
    view.appliances.get_mut("b1").unwrap().recovering = true;
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
    let b1 = view.appliances.get_mut("b1").unwrap();
    b1.load.egress = BitsPerSecond(70);
    b1.load.egress_max = BitsPerSecond(100);
    assert!(wins(&view).abs_diff(667) < 112, "{}", wins(&view));
    view.appliances.get_mut("b2").unwrap().weight = Weight::new(4).unwrap();
    assert!(wins(&view).abs_diff(222) < 75, "{}", wins(&view));
}

#[test]
fn load_below_the_first_step_moves_no_session() {
    let mut view = fleet();
    let before = rank(&view, &query("10.1.2.3", b"s"), &CONFIG);
    let b1 = view.appliances.get_mut("b1").unwrap();
    b1.load = Load { connections: 59, connections_max: 100, ..Load::default() };
    assert_eq!(names(&rank(&view, &query("10.1.2.3", b"s"), &CONFIG)), names(&before));
}

#[test]
fn a_player_without_tls_gets_only_plain_listeners() {
    let mut view = fleet();
    view.appliances.get_mut("a2").unwrap().plain_url = Some("http://127.0.0.3:80".into());
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
    let mut change = |kind, open| {
        let mut sites = view.sites.as_ref().clone();
        let site = sites.get_mut("b").unwrap();
        (site.kind, site.open) = (kind, open);
        view.sites = Arc::new(sites);
        let offered = |client| names(&rank(&view, &query(client, b"s"), &CONFIG)).len();
        (offered("10.1.2.3"), offered("10.9.9.9"), offered("192.0.2.1"))
    };
    assert_eq!(change(SiteKind::Exchange, false), (4, 4, 4));
    assert_eq!(change(SiteKind::Embedded, false), (4, 2, 2));
    assert_eq!(change(SiteKind::Embedded, true), (4, 4, 4));
    change(SiteKind::Embedded, false);
    for appliance in view.appliances.values_mut() {
        appliance.health = Health::Stale;
    }
    check(&view, "10.9.9.9", &["a1", "a2"]);
    let list = rank(&view, &query("10.9.9.9", b"s"), &CONFIG);
    assert_eq!(list.candidates[3].standing, Standing::OthersOnly);
}

#[test]
fn the_order_of_the_clients_sites_is_kept_and_each_step_told() {
    let view = fleet();
    let [a, b] = ["a", "b"].map(|name| -> SiteId { name.parse().unwrap() });
    let route = heard("8.8.8.0/24".parse().unwrap());
    let route = Route { neighbour: Some(7), med: Some(10), ..route };
    let one = Near { site: &b, by: By::Route(route), step: Step::First };
    let farther = Route { med: Some(20), ..route };
    let two = Near { site: &a, by: By::Route(farther), step: Step::Med };
    let told = |near: &[Near<'_>]| {
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
    let [a, b] = ["a", "b"].map(|name| -> SiteId { name.parse().unwrap() });
    let firsts = |is_static| {
        let by = By::Route(Route { is_static, ..heard("10.0.0.0/8".parse().unwrap()) });
        let near = [(&a, Step::First), (&b, Step::Name)];
        let near = near.map(|(site, step)| Near { site, by, step });
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
    view.appliances.get_mut("b2").unwrap().health = Health::Stale;
    view.appliances.get_mut("a2").unwrap().complete = Arc::default();
    let b1 = view.appliances.get_mut("b1").unwrap();
    b1.load = Load { connections: 617, connections_max: 1000, ..Load::default() };
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
        for (appliance, silent) in view.appliances.values_mut().zip(&silent) {
            if *silent {
                appliance.health = Health::Stale;
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

fn names(list: &RankedList) -> Vec<String> {
    list.offered().iter().map(|candidate| candidate.appliance.to_string()).collect()
}

fn query<'a>(client: &str, session: &'a [u8]) -> Query<'a> {
    let client = client
        .parse()
        .unwrap_or_else(|_| Prefix::from(client.parse::<std::net::IpAddr>().unwrap()));
    let near = near(&client).leak();
    Query { near, version: version(), session, plain: false, among: None }
}

/// What the table of routes says of a client of this fleet, whose prefixes are all static.
fn near(client: &Prefix) -> Vec<Near<'static>> {
    static SITES: std::sync::LazyLock<Vec<Site>> =
        std::sync::LazyLock::new(|| fleet().sites.values().cloned().collect());
    let prefixes = SITES.iter().flat_map(|site| site.prefixes.iter().map(move |p| (site, *p)));
    let mut covering: Vec<_> = prefixes.filter(|(_, prefix)| prefix.contains(client)).collect();
    covering.sort_by_key(|(_, prefix)| std::cmp::Reverse(prefix.prefix_len()));
    let near = |(at, (site, prefix)): (usize, (&'static Site, Prefix))| {
        let step = if at == 0 { Step::First } else { Step::Prefix };
        let by = By::Route(Route { is_static: true, path_len: 0, ..heard(prefix) });
        Near { site: &site.id, by, step }
    };
    covering.into_iter().enumerate().map(near).collect()
}

fn heard(prefix: Prefix) -> Route {
    let (neighbour, med) = (None, None);
    Route { prefix, class: Class::Private, is_static: false, path_len: 3, neighbour, med }
}

fn version() -> &'static AssetVersionId {
    static VERSION: std::sync::LazyLock<AssetVersionId> =
        std::sync::LazyLock::new(|| "film-1".parse().unwrap());
    &VERSION
}

/// Sites a (10/8) and b (10.1/16 and an IPv6 range), two healthy appliances each, all holding.
fn fleet() -> FleetView {
    let site = |name: &str, prefixes: &[&str]| {
        let prefixes = prefixes.iter().map(|prefix| prefix.parse().unwrap()).collect();
        Site::new(name.parse().unwrap(), prefixes)
    };
    let sites = [site("a", &["10.0.0.0/8"]), site("b", &["10.1.0.0/16", "2001:db8::/32"])];
    let appliance = |name: &str| {
        let view = ApplianceView {
            site: name[..1].parse().unwrap(),
            weight: Weight::ONE,
            health: Health::Healthy,
            recovering: false,
            base_url: Some(format!("https://{name}.example").into()),
            plain_url: None,
            load: Load::default(),
            complete: Arc::new(BTreeSet::from([version().clone()])),
        };
        (name.parse().unwrap(), view)
    };
    FleetView {
        generation: Generation(1),
        sites: Arc::new(sites.into_iter().map(|site| (site.id.clone(), site)).collect()),
        appliances: ["a1", "a2", "b1", "b2"].into_iter().map(appliance).collect(),
    }
}
