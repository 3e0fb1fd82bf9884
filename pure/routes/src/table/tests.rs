use super::*;

use model::near::Class;
use model::place::Point;
use model::topology::SiteKind;
use proptest::prelude::*;

use crate::attributes::{Community, Peering};

#[test]
fn longer_prefixes_come_first_then_closer_sites_then_shorter_paths() {
    let mut routes = fleet();
    hear(&mut routes, "berlin", "8.8.0.0/16", Peering::Public, &[7, 9], None);
    hear(&mut routes, "isp", "8.8.0.0/16", Peering::Public, &[9, 9, 9], None);
    hear(&mut routes, "paris", "8.8.0.0/16", Peering::Private, &[7, 7, 7, 9], None);
    hear(&mut routes, "sydney", "8.8.8.0/24", Peering::Public, &[1, 2, 3, 9], None);
    check(&routes, "8.8.1.1", "isp:First paris:Class berlin:Class");
    check(&routes, "8.8.8.1", "sydney:First isp:Prefix paris:Class berlin:Class");
    hear(&mut routes, "sydney", "8.8.0.0/16", Peering::Public, &[9], None);
    check(&routes, "8.8.1.1", "isp:First paris:Class sydney:Class berlin:Path");
    check(&routes, "9.9.9.9", "");
    check(&routes, "2a00::1", "");
}

#[test]
fn a_lower_med_counts_for_the_same_neighbour_only() {
    let mut routes = fleet();
    let mut heard = |site: &str, neighbour: u32, med: u32| {
        hear(&mut routes, site, "8.8.8.0/24", Peering::Public, &[neighbour, 9], Some(med));
    };
    heard("berlin", 7, 50);
    heard("paris", 8, 1000);
    heard("sydney", 7, 10);
    // By name berlin, paris, sydney; then the two of neighbour 7 change places.
    check(&routes, "8.8.8.8", "sydney:First paris:Name berlin:Name");
    routes.forget(&site("sydney"));
    routes.finish();
    check(&routes, "8.8.8.8", "berlin:First paris:Name");
    hear(&mut routes, "sydney", "8.8.8.0/24", Peering::Public, &[7, 9], Some(10));
    routes.change_sites::<Site>(&[site("sydney")], &[]);
    routes.finish();
    check(&routes, "8.8.8.8", "berlin:First paris:Name");
    let mut routes = fleet();
    hear(&mut routes, "berlin", "8.8.8.0/24", Peering::Public, &[7, 9], Some(50));
    hear(&mut routes, "sydney", "8.8.8.0/24", Peering::Public, &[7, 9], Some(10));
    check(&routes, "8.8.8.8", "sydney:First berlin:Med");
    hear(&mut routes, "berlin", "8.8.8.0/24", Peering::Public, &[7, 9], None);
    check(&routes, "8.8.8.8", "berlin:First sydney:Med");
}

#[test]
fn nearer_sites_come_first_where_routes_are_equal_and_where_there_are_none() {
    let mut routes = fleet();
    let place = |country: &str, point: Option<(f64, f64)>| Place {
        country: Some(country.into()),
        point: point.map(|(north, east)| Point::new(north, east).unwrap()),
        ..Place::default()
    };
    routes.set_places([
        (prefix("8.8.8.0/24"), place("NZ", Some((-41.0, 174.0)))),
        (prefix("1.0.0.0/8"), place("FR", None)),
        (prefix("2a00::/16"), place("ZZ", None)),
    ]);
    routes.finish();
    // The embedded site serves nobody who is merely near, and of ZZ nobody knows where it is.
    check(&routes, "8.8.8.8", "sydney:First berlin:Place paris:Place");
    check(&routes, "1.2.3.4", "paris:First");
    check(&routes, "2a00::1", "");
    for site in ["berlin", "sydney"] {
        hear(&mut routes, site, "8.8.8.0/24", Peering::Public, &[9], None);
    }
    check(&routes, "8.8.8.8", "sydney:First berlin:Place paris:NoRoute");
    routes.set_places([]);
    routes.finish();
    check(&routes, "8.8.8.8", "berlin:First sydney:Name");
    routes.change_sites::<Site>(&[site("berlin")], &[]);
    routes.finish();
    check(&routes, "8.8.8.8", "sydney:First");
}

#[test]
fn static_prefixes_are_the_best_of_their_length_and_need_no_other_word() {
    let mut routes = Routes::default();
    let mut sites = sites();
    sites.get_mut("paris").unwrap().prefixes = vec![prefix("10.0.0.0/8"), prefix("fd00::/8")];
    sites.get_mut("sydney").unwrap().prefixes = vec![prefix("10.1.0.0/16"), prefix("0.0.0.0/0")];
    routes.change_sites(&[], &numbered(&sites));
    hear(&mut routes, "berlin", "10.0.0.0/8", Peering::Public, &[9], None);
    hear(&mut routes, "paris", "10.0.0.0/8", Peering::Public, &[9], None);
    check(&routes, "10.1.2.3", "sydney:First paris:Prefix berlin:Class");
    check(&routes, "10.2.2.3", "paris:First berlin:Class sydney:Prefix");
    check(&routes, "11.0.0.1", "sydney:First");
    check(&routes, "fd00::1", "paris:First");
    let table = routes.table().clone();
    sites.get_mut("sydney").unwrap().prefixes = vec![];
    routes.change_sites(&[], &numbered(&sites)[3..]);
    check(&routes, "10.1.2.3", "paris:First berlin:Class");
    assert_eq!(names(&table, "11.0.0.1"), "sydney:First", "who reads the old one reads on");
    let near = routes.table().locate(&prefix("10.1.2.3/32"));
    assert_eq!(near.longest, Some(prefix("10.0.0.0/8")));
    let By::Route(route) = near.sites[0].by else { panic!() };
    assert!(route.is_static && route.class == Class::Private);
}

#[test]
fn the_longest_prefix_wins_whether_it_was_given_or_heard() {
    let mut routes = Routes::default();
    let mut sites = sites();
    sites.get_mut("paris").unwrap().prefixes = vec![prefix("8.8.0.0/16"), prefix("8.8.9.0/25")];
    routes.change_sites(&[], &numbered(&sites));
    for piece in ["8.8.8.0/24", "8.8.9.0/24"] {
        hear(&mut routes, "berlin", piece, Peering::Public, &[7, 9], None);
    }
    check(&routes, "8.8.8.8", "berlin:First paris:Prefix");
    // So long a prefix is believed of operators only.
    check(&routes, "8.8.9.9", "paris:First berlin:Prefix");
}

#[test]
fn a_way_that_was_announced_is_told_with_all_that_came_with_it() {
    let mut routes = fleet();
    hear(&mut routes, "berlin", "8.8.0.0/16", Peering::Public, &[7, 9], Some(20));
    hear(&mut routes, "isp", "8.8.8.0/24", Peering::Private, &[9], None);
    let sites = routes.table().locate(&prefix("8.8.8.0/24")).sites;
    let paths = sites.iter().map(|near| {
        let By::Route(route) = near.by else { panic!("{near:?}") };
        let heard = routes.table().announced(&route.prefix, near.number).unwrap();
        (
            routes.table().site(near.number).unwrap().to_string(),
            heard.as_path().to_vec(),
            heard.med(),
        )
    });
    let expected = [("isp", vec![9], None), ("berlin", vec![7, 9], Some(20))];
    assert_eq!(paths.collect::<Vec<_>>(), expected.map(|(id, path, med)| (id.into(), path, med)));
    let berlin = sites[1].number;
    assert!(routes.table().announced(&prefix("8.8.8.0/24"), berlin).is_none(), "not its prefix");
}

#[test]
fn a_prefix_without_a_second_way_is_told() {
    let mut routes = fleet();
    hear(&mut routes, "isp", "8.8.8.0/24", Peering::Private, &[9], None);
    hear(&mut routes, "isp", "8.8.9.0/24", Peering::Private, &[9], None);
    hear(&mut routes, "isp", "2a00::/32", Peering::Private, &[9], None);
    hear(&mut routes, "berlin", "8.8.9.0/24", Peering::Public, &[9], None);
    let told = |routes: &Routes| {
        let by_site = routes.table().unshared(1).by_site;
        let line = |(site, (count, first)): (&SiteId, &(u64, Vec<Prefix>))| {
            format!("{site} {count} {}", first[0])
        };
        by_site.iter().map(line).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(told(&routes), "isp 2 8.8.8.0/24");
    hear(&mut routes, "berlin", "8.8.0.0/16", Peering::Public, &[9], None);
    assert_eq!(told(&routes), "berlin 1 8.8.0.0/16, isp 1 2a00::/32");
}

#[test]
fn a_whole_table_takes_the_place_of_the_one_before() {
    let mut routes = fleet();
    hear(&mut routes, "isp", "8.8.8.0/24", Peering::Private, &[9], None);
    hear(&mut routes, "berlin", "8.8.8.0/24", Peering::Private, &[9], None);
    let announced = vec![(prefix("9.9.9.0/24"), attributes(Peering::Private, &[9], None))];
    let difference = Difference { announced, withdrawn: vec![] };
    let digest = routes.apply(&site("isp"), &difference, true);
    assert_eq!((digest.count, routes.heard(&site("isp"))), (1, Some(digest)));
    check(&routes, "8.8.8.8", "berlin:First");
    check(&routes, "9.9.9.9", "isp:First");
    routes.forget(&site("isp"));
    assert_eq!(routes.heard(&site("isp")), None);
    routes.finish();
    check(&routes, "9.9.9.9", "");
    assert_eq!(routes.table().len(), (1, 0));
}

#[test]
fn a_long_change_is_made_in_slices_and_seen_as_a_whole() {
    let mut routes = fleet();
    hear(&mut routes, "berlin", "8.8.8.0/24", Peering::Private, &[9], None);
    let of = |n: u32| Prefix::V4(Ipv4Net::new((0x0B00_0000 + (n << 8)).into(), 24).unwrap());
    let table = |from: u32| Difference {
        announced: (from..from + 100)
            .map(|n| (of(n), attributes(Peering::Private, &[9], None)))
            .collect(),
        withdrawn: vec![],
    };
    routes.apply(&site("isp"), &table(0), true);
    routes.hear(&site("isp"), table(50), true);
    let mut slices = 0;
    let done = loop {
        assert!(routes.is_taking(&site("isp")));
        let done = routes.go_on(10);
        slices += 1;
        if !done.is_empty() {
            break done;
        }
        assert_eq!(routes.heard(&site("isp")), None, "until all of it is known");
        check(&routes, "11.0.0.1", "isp:First");
        check(&routes, "11.0.149.1", "");
    };
    assert!(10 < slices, "{slices}");
    assert_eq!(done, [Done { site: site("isp"), digest: routes.heard(&site("isp")).unwrap() }]);
    assert_eq!((done[0].digest.count, routes.is_busy()), (100, false));
    check(&routes, "11.0.0.1", "");
    check(&routes, "11.0.149.1", "isp:First");
    check(&routes, "8.8.8.8", "berlin:First");
}

#[test]
fn control_leads_nobody_by_what_networks_do_not_hand_on_and_knows_the_table_all_the_same() {
    let mut routes = fleet();
    let [believed, halves] = [["8.8.8.0/24", "2a00::/48"], ["0.0.0.0/1", "128.0.0.0/1"]];
    let others = ["8.8.8.8/32", "0.0.0.0/0", "::/0", "2a00::/49", "8.0.0.0/7", "2a00::/15"];
    let all = [&believed[..], &halves[..], &others[..]].concat();
    for of in &all {
        hear(&mut routes, "isp", of, Peering::Private, &[9], None);
    }
    check(&routes, "8.8.8.8", "isp:First");
    assert_eq!(routes.table().longest(&prefix("8.8.8.8/32")), Some(prefix("8.8.8.0/24")));
    check(&routes, "9.9.9.9", "");
    assert_eq!(routes.table().len(), (1, 1));
    assert_eq!(routes.refused(&site("isp")).len(), 8);
    let mut digest = Digest::default();
    let told = attributes(Peering::Private, &[9], None);
    all.iter().for_each(|of| digest.put(&prefix(of), &told));
    assert_eq!(routes.heard(&site("isp")), Some(digest), "as the appliance counts it");
    let gone = Difference { announced: vec![], withdrawn: vec![prefix("8.8.8.8/32")] };
    digest.take(&prefix("8.8.8.8/32"), &told);
    assert_eq!(routes.apply(&site("isp"), &gone, false), digest);
    assert_eq!(routes.refused(&site("isp")).len(), 7);
    routes.forget(&site("isp"));
    assert_eq!(routes.refused(&site("isp")).len(), 0);
}

#[test]
fn a_site_hears_no_more_than_there_is_room_for_however_it_came() {
    let mut routes = fleet();
    let communities: Vec<_> = (0..256).map(|n| Community::Large(n, n, n)).collect();
    let long = Attributes::new(Peering::Private, vec![9; 256], None, communities);
    let (bytes, long) = (long.bytes(), Arc::new(long));
    let mut hear = |from: u32, count: u32| {
        let net = |n: u32| Ipv4Net::new((n << 8).into(), 24).unwrap();
        let announced = (from..from + count).map(|n| (Prefix::V4(net(n)), long.clone())).collect();
        routes.apply(&site("berlin"), &Difference { announced, withdrawn: vec![] }, false);
        routes.is_bounded(&site("berlin"))
    };
    assert!(hear(0, 1000));
    let most = u32::try_from(SITE_BYTES_MAX / bytes).unwrap();
    // The same again is no more.
    assert!(hear(0, 1000) && hear(1000, most - 1000));
    assert!(!hear(most, 1));
}

#[test]
fn a_site_that_comes_back_before_it_has_gone_keeps_what_it_was_given() {
    let mut routes = fleet();
    let announced = (0..50)
        .map(|n| (prefix(&format!("11.0.{n}.0/24")), attributes(Peering::Private, &[9], None)));
    let table = Difference { announced: announced.collect(), withdrawn: vec![] };
    routes.apply(&site("paris"), &table, true);
    let all = sites();
    let back = Site { prefixes: vec![prefix("10.0.0.0/8")], ..all[&site("paris")].clone() };
    let number = numbered(&all).into_iter().find(|(_, of)| of.id == back.id).unwrap().0;
    for slices in 0..20 {
        routes.change_sites::<Site>(&[site("paris")], &[]);
        for _ in 0..slices {
            routes.go_on(1);
        }
        routes.change_sites(&[], &[(number, back.clone())]);
        assert_eq!(routes.heard(&site("paris")), None);
        check(&routes, "10.1.1.1", "paris:First");
        routes.finish();
        check(&routes, "10.1.1.1", "paris:First");
        check(&routes, "11.0.1.1", "");
        routes.apply(&site("paris"), &table, true);
        check(&routes, "11.0.1.1", "paris:First");
    }
}

proptest! {
    #[test]
    fn what_is_looked_up_is_what_a_scan_finds_whatever_came_before(
        changes in proptest::collection::vec(change(), 0..60),
        clients in proptest::collection::vec(any_prefix(), 1..20),
    ) {
        let mut routes = any_length();
        let mut heard: BTreeMap<(usize, Prefix), Arc<Attributes>> = BTreeMap::new();
        for (at, prefix, announced) in changes {
            let mut difference = Difference::default();
            match announced {
                Some(found) => {
                    difference.announced.push((prefix, found.clone()));
                    heard.insert((at, prefix), found);
                }
                None => {
                    difference.withdrawn.push(prefix);
                    heard.remove(&(at, prefix));
                }
            }
            routes.apply(&site(NAMES[at]), &difference, false);
        }
        for (at, name) in NAMES.iter().enumerate() {
            let mut digest = Digest::default();
            let of_site = heard.iter().filter(|((of, _), _)| *of == at);
            of_site.for_each(|((_, prefix), found)| digest.put(prefix, found));
            prop_assert_eq!(routes.heard(&site(name)).unwrap_or_default(), digest);
        }
        for client in clients {
            let located = routes.table().locate(&client);
            let covering = heard.iter().filter(|((_, prefix), _)| prefix.contains(&client));
            let mut by_site: BTreeMap<usize, (&Prefix, &Attributes)> = BTreeMap::new();
            for ((at, prefix), found) in covering {
                let longest = by_site.entry(*at).or_insert((prefix, found));
                if longest.0.prefix_len() < prefix.prefix_len() {
                    *longest = (prefix, found);
                }
            }
            prop_assert_eq!(located.sites.len(), by_site.len());
            let key = |near: &Near| {
                let name = routes.table().site(near.number).unwrap().as_str();
                let at = NAMES.iter().position(|of| *of == name).unwrap();
                let (prefix, found) = by_site[&at];
                let is_public = found.peering() == Peering::Public;
                let class = if at == 0 { 0 } else { 1 + i32::from(is_public) };
                (std::cmp::Reverse(prefix.prefix_len()), class, found.path_len())
            };
            prop_assert!(located.sites.is_sorted_by_key(key));
            for pair in located.sites.windows(2) {
                let [a, b] = pair else { unreachable!() };
                let (By::Route(one), By::Route(other)) = (a.by, b.by) else { panic!() };
                if key(a) == key(b) && one.neighbour == other.neighbour {
                    prop_assert!(one.med.unwrap_or(0) <= other.med.unwrap_or(0));
                }
            }
        }
    }

    #[test]
    fn in_slices_of_any_length_all_ends_as_at_once(
        steps in proptest::collection::vec((event(), 0..4_usize), 0..40),
        clients in proptest::collection::vec(any_prefix(), 1..20),
    ) {
        let (mut once, mut sliced) = (fleet(), fleet());
        for (step, slices) in steps {
            do_step(&mut once, &step);
            once.finish();
            if let Event::Hear(at, _, false) = step && sliced.is_taking(&site(NAMES[at])) {
                sliced.finish();
            }
            do_step(&mut sliced, &step);
            for _ in 0..slices {
                sliced.go_on(1);
            }
        }
        sliced.finish();
        prop_assert_eq!(once.table().len(), sliced.table().len());
        for name in NAMES {
            prop_assert_eq!(once.heard(&site(name)), sliced.heard(&site(name)));
        }
        for client in clients {
            prop_assert_eq!(once.table().locate(&client), sliced.table().locate(&client));
        }
    }

    #[test]
    fn the_order_does_not_depend_on_when_what_came(
        ways in proptest::collection::vec((0..4_usize, 7..10_u32, 0..3_u32), 1..8),
        turn in 0..8_usize,
    ) {
        let prefix = "8.8.8.0/24";
        let by_site: BTreeMap<usize, (u32, u32)> =
            ways.into_iter().map(|(at, neighbour, med)| (at, (neighbour, med))).collect();
        let mut order: Vec<_> = by_site.iter().collect();
        let told = |order: &[(&usize, &(u32, u32))]| {
            let mut routes = fleet();
            for (at, (neighbour, med)) in order {
                let path = [*neighbour, 9];
                hear(&mut routes, NAMES[**at], prefix, Peering::Public, &path, Some(*med));
            }
            names(routes.table(), "8.8.8.8")
        };
        let one = told(&order);
        let len = order.len();
        order.rotate_left(turn % len);
        prop_assert_eq!(told(&order), one);
    }
}

proptest! {
    #[test]
    fn sites_that_come_at_once_have_the_ways_of_one_after_the_other(
        rounds in proptest::collection::vec(proptest::collection::vec(any_prefix(), 0..24), 1..4),
        heard in proptest::collection::vec((0..4_usize, any_prefix()), 0..6),
    ) {
        let begin = || {
            let mut routes = any_length();
            for (at, announced) in &heard {
                let heard = (*announced, attributes(Peering::Private, &[9], None));
                let difference = Difference { announced: vec![heard], withdrawn: vec![] };
                routes.apply(&site(NAMES[*at]), &difference, false);
            }
            routes
        };
        let (mut together, mut in_turn) = (begin(), begin());
        let mut all = sites();
        for prefixes in rounds {
            // Some to several sites, some twice to one, and some in two spellings.
            for (at, site) in all.values_mut().enumerate() {
                let own = prefixes.iter().enumerate().filter(|(n, _)| n % 7 % (at + 1) == 0);
                let spelled = |(n, prefix): (usize, &Prefix)| {
                    let last = Prefix::new(prefix.broadcast(), prefix.prefix_len()).unwrap();
                    if n % 3 == 0 { vec![*prefix, last] } else { vec![last] }
                };
                site.prefixes = own.flat_map(spelled).collect();
            }
            together.change_sites(&[], &numbered(&all));
            numbered(&all).iter().for_each(|one| in_turn.change_sites(&[], &[*one]));
            prop_assert_eq!(together.table().len(), in_turn.table().len());
            for client in prefixes.iter().chain(heard.iter().map(|(_, prefix)| prefix)) {
                let one = together.table().locate(client);
                prop_assert_eq!(one, in_turn.table().locate(client));
            }
        }
        // One goes, and another gets what it had.
        let (gone, given) = ([site("paris")], all[&site("paris")].prefixes.clone());
        all.get_mut(&site("sydney")).unwrap().prefixes = given.clone();
        let numbered_all = numbered(&all);
        let left: Vec<_> = numbered_all.into_iter().filter(|(_, of)| of.id != gone[0]).collect();
        together.change_sites(&gone, &left);
        in_turn.change_sites::<Site>(&gone, &[]);
        left.iter().for_each(|one| in_turn.change_sites(&[], &[*one]));
        together.finish();
        in_turn.finish();
        for client in &given {
            let located = together.table().locate(client);
            prop_assert_eq!(&located, &in_turn.table().locate(client));
            prop_assert!(located.sites.iter().any(|near| near.is_static()));
        }
        prop_assert_eq!(together.table().len(), in_turn.table().len());
        let mut never = begin();
        never.change_sites::<Site>(&gone, &[]);
        for routes in [&mut together, &mut never] {
            routes.change_sites(&[], &numbered(&sites()));
            routes.finish();
        }
        for (_, client) in &heard {
            let (left, never) = (together.table().locate(client), never.table().locate(client));
            prop_assert_eq!(left, never, "what was heard stays");
        }
    }
}

#[test]
fn a_change_costs_what_changes() {
    let mut routes = fleet();
    let announced: Vec<_> = (0..3000)
        .map(|n: u32| {
            let net = Ipv4Net::new((0x0B00_0000 + (n << 8)).into(), 24).unwrap();
            (Prefix::V4(net), attributes(Peering::Private, &[9, n % 100], None))
        })
        .collect();
    let difference = Difference { announced, withdrawn: vec![] };
    routes.apply(&site("berlin"), &difference, true);
    let before = routes.table().clone();
    hear(&mut routes, "paris", "11.0.0.0/24", Peering::Private, &[9], None);
    let (nodes, ways) = routes.table().v4.unshared(&before.v4);
    assert_eq!((nodes, ways), (3, 65), "those of a /18 were copied, and the way there");
    assert!(routes.known.len() <= 102, "attributes are shared");
}

#[test]
fn a_network_that_has_many_prefixes_makes_no_change_long() {
    let mut routes = fleet();
    let static_of = |nets: &mut dyn Iterator<Item = u128>| -> Vec<Prefix> {
        let net = |bits: u128| Ipv6Net::new((0x2a00_u128 << 112 | bits << 80).into(), 48).unwrap();
        nets.map(|bits| Prefix::V6(net(bits))).collect()
    };
    let give = |routes: &mut Routes, name: &str, prefixes: Vec<Prefix>| {
        let all = sites();
        let mut all = numbered(&all).into_iter();
        let (number, of) = all.find(|(_, of)| of.id == site(name)).unwrap();
        routes.change_sites(&[], &[(number, Site { prefixes, ..of.clone() })]);
    };
    give(&mut routes, "berlin", static_of(&mut (0..60_000)));
    let before = routes.table().clone();
    give(&mut routes, "paris", static_of(&mut [7].into_iter()));
    let (nodes, ways) = routes.table().v6.unshared(&before.v6);
    assert!(nodes <= 8 && ways <= 65, "{nodes} nodes with {ways} ways");
    assert_eq!(routes.table().len(), (0, 60_000));
}

const NAMES: [&str; 4] = ["isp", "berlin", "paris", "sydney"];

#[derive(Clone, Debug)]
enum Event {
    /// By the number of a site; true for a whole table.
    Hear(usize, Vec<(Prefix, Option<Arc<Attributes>>)>, bool),
    Forget(usize),
    /// A site is of the other kind from now on.
    Turn(usize, SiteKind),
    Places(Vec<Prefix>),
    Go(usize),
    Return(usize),
}

fn event() -> impl Strategy<Value = Event> {
    let changes = proptest::collection::vec(change(), 1..6);
    let hear = (changes, any::<bool>()).prop_map(|(changes, whole)| {
        let at = changes[0].0;
        let changes = changes.into_iter().map(|(_, prefix, found)| (prefix, found));
        Event::Hear(at, changes.filter(|(_, found)| !whole || found.is_some()).collect(), whole)
    });
    let kind = any::<bool>().prop_map(|is_exchange| match is_exchange {
        true => SiteKind::Exchange,
        false => SiteKind::Embedded,
    });
    prop_oneof![
        4 => hear,
        1 => (0..4_usize).prop_map(Event::Forget),
        1 => (0..4_usize, kind).prop_map(|(at, kind)| Event::Turn(at, kind)),
        1 => proptest::collection::vec(any_prefix(), 0..3).prop_map(Event::Places),
        1 => (0..4_usize).prop_map(Event::Go),
        2 => (0..4_usize).prop_map(Event::Return),
    ]
}

fn do_step(routes: &mut Routes, step: &Event) {
    match step {
        Event::Hear(at, changes, whole) => {
            let mut difference = Difference::default();
            for (prefix, found) in changes {
                match found {
                    Some(found) => difference.announced.push((*prefix, found.clone())),
                    None => difference.withdrawn.push(*prefix),
                }
            }
            routes.hear(&site(NAMES[*at]), difference, *whole);
        }
        Event::Forget(at) => routes.forget(&site(NAMES[*at])),
        Event::Turn(at, kind) => {
            let all = sites();
            let (number, of) =
                numbered(&all).into_iter().find(|(_, of)| of.id == site(NAMES[*at])).unwrap();
            routes.change_sites(&[], &[(number, Site { kind: *kind, ..of.clone() })]);
        }
        Event::Go(at) => routes.change_sites::<Site>(&[site(NAMES[*at])], &[]),
        Event::Return(at) => {
            let all = sites();
            let mut all = numbered(&all).into_iter();
            let (number, of) = all.find(|(_, of)| of.id == site(NAMES[*at])).unwrap();
            let prefixes = vec![prefix("8.0.0.0/6"), prefix("8.8.0.0/16")];
            routes.change_sites(&[], &[(number, Site { prefixes, ..of.clone() })]);
        }
        Event::Places(prefixes) => {
            let place = Place { point: Point::new(50.0, 10.0), ..Place::default() };
            routes.set_places(prefixes.iter().map(|prefix| (*prefix, place.clone())));
        }
    }
}

fn change() -> impl Strategy<Value = (usize, Prefix, Option<Arc<Attributes>>)> {
    let private = any::<bool>();
    let announced = (private, 1..4_usize, 7..9_u32, proptest::option::of(0..3_u32));
    let announced = announced.prop_map(|(private, len, neighbour, med)| {
        let peering = if private { Peering::Private } else { Peering::Public };
        attributes(peering, &vec![neighbour; len], med)
    });
    (0..4_usize, any_prefix(), proptest::option::weighted(0.7, announced))
}

/// Of few bits, so that they cover each other; of lengths around those of nodes.
fn any_prefix() -> impl Strategy<Value = Prefix> {
    let v4 = (0..4_u32, 8..=32_u8).prop_map(|(bits, len)| {
        let address = (0x0808_0000_u32 | bits << 19 | bits << 13 | bits << 8).into();
        Prefix::V4(Ipv4Net::new(address, len).unwrap().trunc())
    });
    let v6 = (0..4_u128, 16..=64_u8).prop_map(|(bits, len)| {
        let address = (0x2a00_u128 << 112 | bits << 103 | bits << 80).into();
        Prefix::V6(Ipv6Net::new(address, len).unwrap().trunc())
    });
    prop_oneof![v4, v6]
}

/// Its own filter lets all in: what it refuses has its own test.
fn any_length() -> Routes {
    let mut routes = Routes::new(Longest { v4: 32, v6: 128 });
    routes.change_sites(&[], &numbered(&sites()));
    routes
}

fn fleet() -> Routes {
    let mut routes = Routes::default();
    routes.change_sites(&[], &numbered(&sites()));
    routes
}

fn numbered(sites: &BTreeMap<SiteId, Site>) -> Vec<(u32, &Site)> {
    (0..).zip(sites.values()).collect()
}

fn sites() -> BTreeMap<SiteId, Site> {
    let place = |country: &str, north: f64, east: f64| Place {
        country: Some(country.into()),
        point: Point::new(north, east),
        ..Place::default()
    };
    let places = [
        ("isp", None),
        ("berlin", Some(place("DE", 52.5, 13.4))),
        ("paris", Some(place("FR", 48.9, 2.4))),
        ("sydney", Some(place("AU", -33.9, 151.2))),
    ];
    let made = places.map(|(name, place)| {
        let kind = if name == "isp" { SiteKind::Embedded } else { SiteKind::Exchange };
        (site(name), Site { kind, place, ..Site::new(site(name), vec![]) })
    });
    made.into()
}

fn hear(
    routes: &mut Routes,
    at: &str,
    announced: &str,
    peering: Peering,
    as_path: &[u32],
    med: Option<u32>,
) {
    let announced = vec![(prefix(announced), attributes(peering, as_path, med))];
    routes.apply(&site(at), &Difference { announced, withdrawn: vec![] }, false);
}

fn check(routes: &Routes, client: &str, wanted: &str) {
    assert_eq!(names(routes.table(), client), wanted, "{client}");
}

fn names(table: &Table, client: &str) -> String {
    let client = crate::prefix(client).unwrap();
    let near = table.locate(&client).sites;
    let told = |near: &Near| format!("{}:{:?}", table.site(near.number).unwrap(), near.step);
    near.iter().map(told).collect::<Vec<_>>().join(" ")
}

fn attributes(peering: Peering, as_path: &[u32], med: Option<u32>) -> Arc<Attributes> {
    Arc::new(Attributes::new(peering, as_path.to_vec(), med, vec![]))
}

fn site(name: &str) -> SiteId {
    name.parse().unwrap()
}

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}
