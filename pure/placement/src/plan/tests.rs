mod raise;

use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;

/// With a round part of a throughput, for the figures below.
const CONFIG: Config = Config { item_permille: 10, ..Config::usual(2) };
const LIMITS: Limits = Limits {
    evicted_permille: 200,
    evicted_of_one_permille: 500,
    last_copies: 0,
    vanished_permille: 100,
};
static NONE: LazyLock<NumberSet> = LazyLock::new(NumberSet::new);
const MIB: u64 = 1 << 20;

#[test]
fn what_is_served_most_for_its_room_is_held() {
    // The third is asked for most, and takes ten times the room.
    let world = World::new(&[(1, 50, 1), (2, 40, 1), (3, 100, 10), (4, 30, 1)]);
    let fleet = [machine(1, 3, 1000)];
    assert_eq!(items(&world.plan(&fleet, Extra::default()), 0), [1, 2, 4]);
}

#[test]
fn a_copy_is_made_for_a_peak_that_one_cannot_carry_within_its_share() {
    // One in a hundred of 1,000 Mb/s is 10 Mb/s: 25 take three.
    let mut world = World::new(&[(1, 50, 1), (2, 40, 1)]);
    world.wanted[0].peak = BitsPerSecond(25_000_000);
    let fleet = [1, 2, 3, 4].map(|n| machine(n, 100, 1000));
    let plan = world.plan(&fleet, Extra::default());
    assert_eq!((holders(&plan, 1), holders(&plan, 2)), (3, 1));
    // And in a cluster with a tenth of the demand one.
    let plan = world.plan(&fleet, Extra { share: Some(Share(100_000)), ..Extra::default() });
    assert_eq!((holders(&plan, 1), holders(&plan, 2)), (1, 1));
}

#[test]
fn fast_members_take_the_head_and_large_ones_the_tail() {
    let pieces: Vec<_> = (1..=100).map(|n| (n, 10_000 / u64::from(n), 1)).collect();
    let world = World::new(&pieces);
    let fleet = [machine(1, 90, 1000), machine(2, 10, 9000)];
    let plan = world.plan(&fleet, Extra::default());
    assert_eq!(items(&plan, 1), (1..=10).collect::<Vec<_>>());
    assert_eq!(items(&plan, 0), (11..=100).collect::<Vec<_>>());
}

#[test]
fn load_is_even_among_members_of_a_kind() {
    let pieces: Vec<_> = (1..=400).map(|n| (n, 10_000 / u64::from(n), 1)).collect();
    let world = World::new(&pieces);
    let fleet = [1, 2, 3, 4].map(|n| machine(n, 60, 400));
    let plan = world.plan(&fleet, Extra::default());
    let loads: Vec<u64> = plan.members.iter().map(|of| of.load.0).collect();
    let (sum, max) = (loads.iter().sum::<u64>(), *loads.iter().max().unwrap());
    assert!(max * 4 * 100 <= sum * 103, "{loads:?}");
}

#[test]
fn a_member_that_is_new_has_its_part_of_the_load_after_a_night() {
    let world = World::new(&(1..=400).map(|n| (n, 10_000 / u64::from(n), 1)).collect::<Vec<_>>());
    // Two hold half of it each, and one that is gone held the rest. The new one is filled in weeks.
    let held = [1, 2].map(|n| (1..=400).filter(|item| item % 3 == n).collect::<NumberSet>());
    let fill = Bytes::mib(20);
    let old =
        |n: usize| Member { holds: &held[n], fill, ..machine(u32::try_from(n).unwrap(), 134, 400) };
    let fleet = [old(0), old(1), Member { fill, ..machine(3, 134, 400) }];
    let plan = world.plan(&fleet, Extra::default());
    let loads: Vec<u64> = plan.members.iter().map(|of| of.load.0).collect();
    let (sum, max) = (loads.iter().sum::<u64>(), *loads.iter().max().unwrap());
    assert!(max * 3 * 100 <= sum * 105, "{loads:?}");
    assert!(0 < plan.exchanged.0 && plan.exchanged.0 <= 30 * MIB, "{}", plan.exchanged);
}

#[test]
fn a_full_member_makes_room_for_its_part_of_what_is_new() {
    // 200 are held, and 40 come that are watched more than any of them.
    let items = (1..=240).map(|n| (n, if n <= 200 { 100 + u64::from(n) } else { 3000 }, 1));
    let world = World::new(&items.collect::<Vec<_>>());
    let held = [0, 1].map(|n| (1..=200).filter(|item| item % 2 == n).collect::<NumberSet>());
    let old =
        |n: usize, mib| Member { holds: &held[n], ..machine(u32::try_from(n).unwrap(), mib, 400) };
    let plan = world.plan(&[old(0, 100), old(1, 150)], Extra::default());
    let comes = |n: usize| plan.members[n].items.iter().filter(|item| 200 < *item).count();
    assert_eq!(comes(0) + comes(1), 40);
    assert!(comes(0).abs_diff(comes(1)) < 6, "{} {}", comes(0), comes(1));
}

#[test]
fn the_other_copy_of_what_moved_stays() {
    // The last needs two copies. The first member has too much to do: its copy goes to the third.
    let held = [[1, 11], [2, 11]].map(|items| set(&items));
    let mut all = vec![(1, 900_000, 6, 9900), (2, 800_000, 6, 200)];
    all.extend((3..=10).map(|n| (n, 50_000, 1, 150)));
    all.push((11, 20_000, 1, 15_000));
    let world = World::with_peaks(&all);
    let old = |n: usize| Member { holds: &held[n], ..machine(u32::try_from(n).unwrap(), 7, 1000) };
    let plan = world.plan(&[old(0), old(1), machine(3, 9, 1000)], Extra::default());
    assert_eq!(plan.exchanged, Bytes::mib(1));
    // The second has least to do, and would put its copy out for one of the eight that come.
    assert_eq!((items(&plan, 1), holders(&plan, 11)), (vec![2, 11], 2));
}

#[test]
fn nothing_is_put_out_where_that_does_not_make_room_enough() {
    let held = [set(&[1, 6]), set(&[2])];
    let hot = [(1, 900_000, 6, 3000), (2, 90_000, 1, 9000), (3, 160_000, 2, 1000)];
    let cold = [(4, 70_000, 1, 1), (5, 60_000, 1, 1), (6, 50_000, 1, 100)];
    let world = World::with_peaks(&[hot, cold].concat());
    let old = |n: usize| Member { holds: &held[n], ..machine(u32::try_from(n).unwrap(), 7, 1000) };
    let plan = world.plan(&[old(0), old(1)], Extra::default());
    // The third takes two MiB, and only the sixth is worth less: one.
    assert_eq!([0, 1].map(|at| items(&plan, at)), [vec![1, 6], vec![2, 3, 4, 5]]);
}

#[test]
fn what_is_pinned_is_held_and_what_is_banned_is_not() {
    let world = World::new(&[(1, 50, 1), (2, 40, 1), (3, 1, 1)]);
    let fleet = [machine(1, 1, 1000), machine(2, 1, 1000)];
    let (pins, bans) = (set(&[3]), set(&[1]));
    let plan = world.plan(&fleet, Extra { pins, bans, ..Extra::default() });
    assert_eq!((holders(&plan, 1), holders(&plan, 2), holders(&plan, 3)), (0, 1, 1));
}

#[test]
fn of_pins_without_room_for_all_what_is_nowhere_else_has_it() {
    let world = World::new(&[(1, 50, 1), (2, 40, 1), (3, 1, 1)]);
    let (held, pins) = (set(&[3]), set(&[1, 2, 3]));
    let fleet = [Member { holds: &held, ..machine(1, 2, 1000) }];
    let of = |alone| Extra { pins: pins.clone(), alone, ..Extra::default() };
    assert_eq!(items(&world.plan(&fleet, of(set(&[]))), 0), [1, 2]);
    assert_eq!(items(&world.plan(&fleet, of(set(&[3]))), 0), [1, 3]);
    assert_eq!(items(&world.plan(&fleet, of(set(&[1, 2, 3]))), 0), [1, 3], "it is held");
}

/// Four members of two sites, and what is said of the first site, and of the second.
fn plan_of_sites(
    world: &World,
    holds: [&NumberSet; 4],
    said: [(&[u32], &[u32]); 2],
) -> ClusterPlan {
    let sites = [0, 0, 1, 1].map(Some);
    let member = |((n, holds), apart)| Member { holds, apart, ..machine(n, 2, 1000) };
    let members: Vec<_> = (1..).zip(holds).zip(sites).map(member).collect();
    let sets = said.map(|(pins, bans)| (set(pins), set(bans)));
    let apart = sets.each_ref().map(|(pins, bans)| Apart { pins, bans });
    let order = world.order();
    let extra = Extra::default();
    let cluster = Cluster { apart: &apart, ..extra.cluster(&members) };
    let mut plan = place_cluster(&order, &cluster, &CONFIG);
    place_region(&order, &[cluster], std::slice::from_mut(&mut plan));
    fill_spare(&order, &cluster, &CONFIG, &mut plan);
    plan
}

/// Which sites of two hold an item, by the places of its members.
fn at_sites(plan: &ClusterPlan, item: u32) -> [bool; 2] {
    [[0, 1], [2, 3]].map(|site| site.iter().any(|at| plan.members[*at].items.contains(item)))
}

#[test]
fn a_site_of_a_cluster_holds_what_it_must_and_nothing_that_it_must_not() {
    let world = World::new(&(1..=20).map(|n| (n, u64::from(50 - n), 1)).collect::<Vec<_>>());
    let none: [&[u32]; 2] = [&[], &[]];
    let plan = plan_of_sites(&world, [&NONE; 4], [(none[0], none[1]), (none[0], none[1])]);
    assert_eq!((holders(&plan, 1), holders(&plan, 20)), (1, 0), "by what they are worth");
    let of = |said| plan_of_sites(&world, [&NONE; 4], said);
    let plan = of([(&[20], &[1, 2]), (&[20, 19], &[4])]);
    assert_eq!((at_sites(&plan, 20), at_sites(&plan, 19)), ([true; 2], [false, true]));
    assert_eq!(holders(&plan, 20), 2, "one copy at each");
    for banned in [1, 2] {
        assert_eq!(at_sites(&plan, banned), [false, true], "{banned}");
    }
    assert_eq!(at_sites(&plan, 4), [true, false]);
    // What is held there goes, and what is pinned there stays where it is.
    let held = [set(&[1, 20]), set(&[2]), set(&[4]), set(&[])];
    let holds = [&held[0], &held[1], &held[2], &held[3]];
    let plan = plan_of_sites(&world, holds, [(&[20], &[1, 2]), (&[], &[4])]);
    assert_eq!([1, 2].map(|item| at_sites(&plan, item)[0]), [false; 2]);
    assert_eq!(at_sites(&plan, 4), [true, false]);
    assert!(plan.members[0].items.contains(20), "it need not move");
}

#[test]
fn a_pin_without_room_says_so_and_a_site_tells_what_was_said_of_it() {
    let world = World::new(&[(1, 50, 1), (2, 40, 1), (9, 1, 3)]);
    let order = world.order();
    let members = [machine(1, 2, 1000), Member { apart: Some(0), ..machine(2, 2, 1000) }];
    let (pins, bans) = (set(&[2, 9]), set(&[1]));
    let apart = [Apart { pins: &pins, bans: &bans }];
    let extra = Extra::default();
    let cluster = Cluster { apart: &apart, ..extra.cluster(&members) };
    let plan = place_cluster(&order, &cluster, &CONFIG);
    let why = |member, item| why(&order, &cluster, &plan, member, Item(item));
    assert_eq!(why(1, 1), Why::Banned);
    assert_eq!(why(1, 2), Why::Pinned { copies: 1 });
    assert!(matches!(why(0, 1), Why::Worth { .. }), "{:?}", why(0, 1));
    assert!(matches!(why(1, 9), Why::NoRoom { .. }), "{:?}", why(1, 9));
    let members = [machine(1, 0, 1000)];
    let cluster = Cluster { apart: &[], ..extra.cluster(&members) };
    let plan = place_cluster(&order, &cluster, &CONFIG);
    assert_eq!(super::why(&order, &cluster, &plan, 0, Item(2)), Why::NoDrives);
}

#[test]
fn what_is_held_stays_unless_something_clearly_better_wants_its_room() {
    let held = [set(&[1])];
    for (worth, is_held) in [(110, [1]), (149, [1]), (151, [2])] {
        let world = World::new(&[(1, 100, 1), (2, worth, 1)]);
        let fleet = [Member { holds: &held[0], ..machine(1, 1, 1000) }];
        assert_eq!(items(&world.plan(&fleet, Extra::default()), 0), is_held, "{worth}");
    }
}

#[test]
fn no_more_comes_than_the_window_lets_the_best_first_and_nothing_goes_for_it() {
    let world = World::new(&[(1, 90, 1), (2, 80, 1), (3, 70, 1), (4, 5, 1), (5, 4, 1), (6, 3, 1)]);
    let held = set(&[4, 5, 6]);
    let fleet = [Member { holds: &held, fill: Bytes::mib(2), ..machine(1, 3, 1000) }];
    let plan = world.plan(&fleet, Extra::default());
    assert_eq!(items(&plan, 0), [1, 2, 4], "one of what was held stays");
    assert_eq!(plan.unfilled, world.order().density(Item(3)).unwrap());
}

#[test]
fn members_may_have_room_and_fill_without_end() {
    let world = World::new(&[(1, 90, 1), (2, 80, 1)]);
    let endless =
        |name| Member { room: Bytes(u64::MAX), fill: Bytes(u64::MAX), ..machine(name, 1, 1000) };
    let plan = world.plan(&[endless(1), endless(2)], Extra::default());
    assert_eq!((holders(&plan, 1), holders(&plan, 2)), (1, 1));
}

#[test]
fn a_fleet_of_which_no_demand_is_known_holds_the_newest_as_often_as_the_policy_says() {
    let mut world = World::new(&[(1, 0, 1), (2, 0, 1), (3, 0, 1), (4, 0, 1)]);
    world.wanted.clear();
    let fleet = [1, 2].map(|n| machine(n, 3, 1000));
    let plan = world.plan(&fleet, Extra::default());
    let copies = [1, 2, 3, 4].map(|item| holders(&plan, item));
    assert_eq!(copies, [0, 2, 2, 2]);
}

#[test]
fn what_no_cluster_takes_goes_to_storage_with_room_and_the_rest_stays_at_the_origin() {
    let world = World::new(&[(1, 90, 1), (2, 80, 1), (3, 0, 1), (4, 0, 1), (5, 0, 1), (6, 0, 1)]);
    let (flash, storage) = ([machine(1, 2, 9000)], [machine(2, 4, 1000)]);
    let extra = Extra::default();
    let clusters = [extra.cluster(&flash), extra.cluster(&storage)];
    let order = world.order();
    let mut plans = clusters.map(|cluster| place_cluster(&order, &cluster, &CONFIG));
    let region = place_region(&order, &clusters, &mut plans);
    assert_eq!((items(&plans[0], 0), items(&plans[1], 0)), (vec![1, 2], vec![1, 2, 5, 6]));
    assert_eq!(region.at_origin, set(&[3, 4]));
}

#[test]
fn room_that_is_left_takes_what_nobody_asks_for_and_then_more_copies() {
    let world = World::new(&[(1, 90, 1), (2, 80, 1), (3, 0, 1), (4, 0, 1)]);
    let fleet = [machine(1, 3, 1000), machine(2, 3, 1000)];
    let extra = Extra::default();
    let mut plan = world.plan(&fleet, extra.clone());
    assert_eq!(holders(&plan, 4), 0);
    fill_spare(&world.order(), &extra.cluster(&fleet), &CONFIG, &mut plan);
    let copies = [1, 2, 3, 4].map(|item| holders(&plan, item));
    assert!(copies.iter().all(|copies| 0 < *copies) && copies[0] == 2, "{copies:?}");
    assert_eq!(copies.iter().sum::<usize>(), 6);
}

#[test]
fn an_item_is_explained_where_it_is_and_where_it_is_not() {
    let world = World::new(&[(1, 90, 1), (2, 80, 1), (3, 70, 1), (4, 60, 1), (5, 0, 1), (6, 9, 1)]);
    let held = set(&[3]);
    let fleet = [Member { holds: &held, ..machine(1, 1, 1000) }, machine(2, 2, 1000)];
    let extra = Extra { bans: set(&[4]), pins: set(&[5]), ..Extra::default() };
    let plan = world.plan(&fleet, extra.clone());
    let (order, cluster) = (world.order(), extra.cluster(&fleet));
    let said = (1..=7).map(|item| {
        let why = [0, 1].map(|at| why(&order, &cluster, &plan, at, Item(item)).to_string());
        format!("{item}: {}; {}\n", why[0], why[1])
    });
    insta::assert_snapshot!(said.collect::<String>(), @"
    1: others of the cluster hold it; copies: 1; 92160 bytes a day per MiB, and the cut-off is 81920; copies: 1
    2: others of the cluster hold it; copies: 1; 81920 bytes a day per MiB, and the cut-off is 81920; copies: 1
    3: 71680 bytes a day per MiB, and the cut-off is 81920; 71680 bytes a day per MiB, and the cut-off is 81920
    4: it must not be here; it must not be here
    5: it must be here; copies: 1; others of the cluster hold it; copies: 1
    6: 9216 bytes a day per MiB, and the cut-off is 81920; 9216 bytes a day per MiB, and the cut-off is 81920
    7: no version that is kept has it; no version that is kept has it
    ");
}

#[test]
fn it_is_not_said_that_copies_are_enough_where_they_are_too_few() {
    // Three copies are needed, and two fit.
    let world = World::with_peaks(&[(1, 90, 1, 25_000)]);
    let fleet = [machine(1, 1, 1000), machine(2, 1, 1000), machine(3, 0, 1000)];
    let extra = Extra::default();
    let plan = world.plan(&fleet, extra.clone());
    let why = why(&world.order(), &extra.cluster(&fleet), &plan, 2, Item(1));
    assert_eq!(why.to_string(), "others of the cluster hold it; copies: 2");
}

#[test]
fn the_head_of_a_member_is_what_viewers_are_expected_to_be_sent_most_there() {
    let world = World::new(&[(1, 10, 1), (2, 80, 2), (3, 70, 1), (4, 60, 1), (5, 0, 1)]);
    let both = (&world.catalogue, &world.wanted[..]);
    let found = |items: &[u32], most, part: &dyn Fn(Item) -> Share| {
        let found = head(both, &set(items), most, part);
        found.iter().map(|of| (of.item.0, of.density.0 >> 10)).collect::<Vec<_>>()
    };
    let all = |_| Share::ALL;
    assert_eq!(found(&[1, 2, 4, 5, 9], 9, &all), [(4, 60), (2, 40), (1, 10)], "as it holds them");
    assert_eq!(found(&[1, 2, 3, 4], 2, &all), [(3, 70), (4, 60)]);
    let alone = |item| if item == Item(1) { Share::ALL } else { Share(100_000) };
    assert_eq!(found(&[1, 3, 4], 2, &alone), [(1, 10), (3, 7)], "three others hold what is first");
    assert_eq!(found(&[1, 3], 9, &|_| Share(0)), []);
    let long: Vec<u32> = (1..=300).collect();
    let world = World::new(&long.iter().map(|item| (*item, 1, 1)).collect::<Vec<_>>());
    let wanted: Vec<_> = world.wanted.iter().copied().filter(|of| of.item.0 % 3 == 0).collect();
    for items in [&[1, 2, 3, 4, 6, 7, 150, 299, 300][..], &long, &[300], &[301]] {
        let found = head((&world.catalogue, &wanted), &set(items), 300, all);
        let found: NumberSet = found.iter().map(|of| of.item.0).collect();
        let both = items.iter().filter(|item| **item % 3 == 0 && **item <= 300);
        assert_eq!(found, both.copied().collect(), "{items:?}");
    }
    assert_eq!(found(&[1, 3, 4], 0, &all), []);
}

#[test]
fn a_plan_that_evicts_much_or_a_last_copy_is_refused_and_says_why() {
    let catalogue = World::new(&[(1, 1, 2000), (2, 1, 2000), (3, 1, 2000), (4, 1, 2000)]).catalogue;
    let refused = |after: &Catalogue, was: [&[u32]; 2], is: [&[u32]; 2]| {
        let (was, is) = (was.map(set), is.map(set));
        let difference = difference(&catalogue, after, was.iter().zip(&is));
        let (refusals, told) = refusals(&difference, &LIMITS);
        let refused = refusals.iter().map(|of| format!("{of}\n"));
        refused.chain(told.iter().map(|of| format!("told: {of}\n"))).collect::<String>()
    };
    assert_eq!(refused(&catalogue, [&[1, 2], &[1, 2]], [&[1, 2], &[1, 2, 3]]), "");
    insta::assert_snapshot!(refused(&catalogue, [&[1, 2], &[1, 2]], [&[1], &[1]]), @"
    the plan evicts 3 GiB of 7 GiB in all, and 200 in 1,000 may go: look at the difference, then force it if it is meant
    the plan evicts the last copies of items: 1, the first of them 2, and 0 may go: no origin has them. Give them a source or room, or force the plan if they may be lost
    ");
    let emptied = refused(&catalogue, [&[1, 2, 3, 4], &[1]], [&[1, 2, 3, 4], &[]]);
    insta::assert_snapshot!(emptied, @"
    told: the plan evicts 1 GiB of 1 GiB of one appliance, and 500 in 1,000 may go: look at the difference, then force it if it is meant
    ");
    let others_too = refused(&catalogue, [&[1, 2, 3, 4, 5, 6], &[1]], [&[1, 2, 3, 5, 6], &[4]]);
    insta::assert_snapshot!(others_too, @"
    the plan evicts 3 GiB of 9 GiB in all, and 200 in 1,000 may go: look at the difference, then force it if it is meant
    the plan evicts 1 GiB of 1 GiB of one appliance, and 500 in 1,000 may go: look at the difference, then force it if it is meant
    ");
    let less = World::new(&[(1, 1, 2000), (2, 1, 2000), (3, 1, 2000)]).catalogue;
    let (was, is) = (set(&[1, 2, 3, 4]), set(&[1, 2]));
    let last = difference(&catalogue, &less, [(&was, &is)].into_iter()).last_copies;
    assert_eq!(last, set(&[3]), "the fourth left the catalogue");
    insta::assert_snapshot!(refused(&less, [&[1, 2, 3, 4], &[]], [&[1, 2, 3, 4], &[]]), @"
    1 of 4 items are not in the catalogue any more, and 100 in 1,000 may go: is all of it there? If so, force the plan
    ");
}

#[test]
fn a_refusal_tells_bytes_in_the_largest_unit_that_they_reach() {
    for (goes, held, said) in [
        (Bytes::mib(2048), Bytes::mib(5000), "2 GiB of 4 GiB"),
        (Bytes::mib(300), Bytes::mib(1000), "300 MiB of 1000 MiB"),
        (Bytes(4097), Bytes(8192), "4 KiB of 8 KiB"),
    ] {
        let refusal = Refusal::MassEviction { goes, held, limit_permille: 200 }.to_string();
        assert!(refusal.starts_with(&format!("the plan evicts {said} in all, ")), "{refusal}");
    }
}

#[test]
fn a_catalogue_finds_its_items_however_their_numbers_lie() {
    for step in [1, 2, 7, 1000, 40_000_000] {
        let pieces = (0..100).map(|n| piece(5 + n * step, 1)).collect();
        let catalogue = Catalogue::new(pieces);
        for n in 0..100 {
            let item = Item(5 + n * step);
            assert_eq!(catalogue.get(item).map(|piece| piece.item), Some(item));
            assert!(step == 1 || catalogue.get(Item(item.0 + 1)).is_none());
        }
        assert!(catalogue.get(Item(0)).is_none() && catalogue.get(Item(u32::MAX)).is_none());
    }
    assert!(Catalogue::new(Vec::new()).get(Item(3)).is_none());
}

#[test]
fn the_order_is_by_what_is_served_for_the_room_then_the_newest() {
    let world = World::new(&[(1, 10, 1), (2, 0, 1), (3, 10, 1), (4, 40, 2), (5, 0, 1)]);
    let order = world.order();
    let items: Vec<u32> =
        (0..order.end()).filter_map(|rank| order.at(rank)).map(|of| of.item.0).collect();
    assert_eq!(items, [4, 3, 1, 5, 2]);
    let ranks = items.iter().map(|item| order.at(order.rank(Item(*item)).unwrap()).unwrap().item.0);
    assert!(ranks.eq(items.iter().copied()));
}

#[test]
fn behind_its_reach_and_a_third_of_its_density_an_order_has_the_newest_first() {
    let mut pieces: Vec<_> = (1..=3000).map(|n| (n, 1 + u64::from(n * 7919 % 3000), 1)).collect();
    pieces.iter_mut().step_by(5).for_each(|of| of.1 = 0);
    let world = World::new(&pieces);
    let ranked = |order: &Order<'_>| {
        let ranked = (0..order.end()).filter_map(|rank| order.at(rank));
        ranked.collect::<Vec<_>>()
    };
    let order = Order::within(&world.catalogue, &world.wanted, Bytes::mib(500));
    let (exact, near) = (ranked(&world.order()), ranked(&order));
    assert_eq!((exact.len(), near.len()), (3000, 3000));
    let reached = usize::try_from(order.wanted()).unwrap();
    assert!((900..1200).contains(&reached), "{reached}");
    assert!((0..reached).all(|n| exact[n].item == near[n].item));
    assert!(near[reached..].is_sorted_by(|a, b| b.item < a.item));
    for of in exact {
        let (rank, density) = (order.rank(of.item).unwrap(), order.density(of.item).unwrap());
        assert_eq!((order.at(rank).unwrap().item, density), (of.item, of.density));
    }
}

#[test]
fn an_order_reaches_as_far_where_a_look_at_every_third_misleads() {
    // Of 40,000 every third is looked at first, and these are served a hundred times as much.
    let day = |n: u32| u64::from(1 + n * 7919 % 1000) * if n % 3 == 1 { 100 } else { 1 };
    let world = World::new(&(1..=40_000).map(|n| (n, day(n), 1)).collect::<Vec<_>>());
    let order = Order::within(&world.catalogue, &world.wanted, Bytes::mib(20_000));
    assert!((20_000..30_000).contains(&order.wanted()), "{}", order.wanted());
    let exact = world.order();
    let items = |order: &Order<'_>, rank: u32| order.at(rank).unwrap().item;
    assert!((0..order.wanted()).all(|rank| items(&order, rank) == items(&exact, rank)));
}

#[test]
fn what_is_held_is_sorted_by_rank_and_then_by_member_in_clusters_of_any_size() {
    let world = World::new(&(1..=300).map(|n| (n, 300 - u64::from(n), 1)).collect::<Vec<_>>());
    for members in [1, 3, 64, 65, 200_u32] {
        let holds = |member: u32| (1..=300).filter(move |item| (item + member) % 7 < 3);
        let sets: Vec<NumberSet> = (0..members).map(|member| holds(member).collect()).collect();
        let of = |(name, holds)| Member { holds, ..machine(name, 1000, 400) };
        let fleet: Vec<Member<'_>> = (0..).zip(&sets).map(of).collect();
        let (order, extra) = (world.order(), Extra { bans: set(&[7, 11]), ..Extra::default() });
        let work = work::Work::new(&order, &extra.cluster(&fleet), &CONFIG).held;
        let held: Vec<_> = work.iter().map(|held| (held.rank, held.member())).collect();
        assert!(held.is_sorted_by(|a, b| a < b), "{members}");
        let all = sets.iter().map(|set| (set - &extra.bans).len()).sum::<u64>();
        assert_eq!(u64::try_from(held.len()).unwrap(), all, "{members}");
    }
}

#[test]
fn nothing_moves_for_balance_where_who_has_room_holds_what_lacks_a_copy() {
    let days = [0, 243, 264, 69, 144, 177, 180, 290, 232, 96, 158];
    let items = (1..).zip(days).zip([1, 2, 4, 1, 3, 4, 5, 5, 4, 2, 4]);
    let world = World::new(&items.map(|((n, day), mib)| (n, day, mib)).collect::<Vec<_>>());
    let of = [(1, 14, None, 2), (2, 31, Some(8), 1), (3, 12, None, 1), (4, 11, Some(4), 1)];
    let machines = of.map(|(name, mib, mbps, weight)| Machine {
        name,
        room: mib * MIB,
        mbps,
        fill: 1 << 50,
        weight,
        holds: NumberSet::new(),
    });
    let extra = Extra { pins: set(&[7]), ..Extra::default() };
    let fleet = Fleet { machines: machines.to_vec(), extra };
    let plan = fleet.plan(&world);
    let again = fleet.after(&plan).plan(&world);
    assert!(again.members.iter().zip(&plan.members).all(|(of, was)| of.items == was.items));
}

proptest! {
    #[test]
    fn a_plan_fits_and_keeps_to_the_window_the_pins_and_the_bans(case in case()) {
        let (first, second) = case.two_days();
        for (fleet, plan) in [first, second] {
            for (member, of) in fleet.members().iter().zip(&plan.members) {
                let len = |items: &NumberSet| items.iter().map(|n| case.len(n)).sum::<u64>();
                prop_assert_eq!(len(&of.items) + of.room_left.0, member.room.0);
                let comes = &of.items - member.holds;
                prop_assert_eq!(len(&comes) + of.fill_left.0, member.fill.0);
                prop_assert!(of.items.is_disjoint(&fleet.extra.bans));
            }
            let could = |item: u32| fleet.machines.iter().any(|of| {
                let pins = fleet.extra.pins.iter().map(|n| case.len(n)).sum::<u64>();
                10 * pins <= of.room && 10 * pins <= of.fill && !fleet.extra.bans.contains(item)
            });
            for item in fleet.extra.pins.iter().filter(|item| could(*item)) {
                prop_assert!(0 < holders(&plan, item), "{}", item);
            }
        }
    }

    #[test]
    fn what_is_said_of_a_site_holds_day_by_day(
        case in case(),
    ) {
        let mut fleet = case.fleet.clone();
        let second: Vec<usize> = (1..fleet.machines.len()).step_by(2).collect();
        // What one site must not hold, the other must.
        let pins = &fleet.extra.pins - &case.bans;
        let none = NumberSet::new();
        for (day, world) in [case.first(), case.second(), case.second()].iter().enumerate() {
            let mut members = fleet.members();
            members.iter_mut().zip(0..).for_each(|(of, at)| of.apart = Some(at % 2));
            let apart = [
                Apart { pins: &none, bans: &case.bans },
                Apart { pins: &case.bans, bans: &none },
            ];
            let extra = Extra { pins: pins.clone(), ..fleet.extra.clone() };
            let cluster = Cluster { apart: &apart, ..extra.cluster(&members) };
            let order = world.order();
            let mut plan = place_cluster(&order, &cluster, &CONFIG);
            place_region(&order, &[cluster], std::slice::from_mut(&mut plan));
            fill_spare(&order, &cluster, &CONFIG, &mut plan);
            let all: u64 = (&pins | &case.bans).iter().map(|n| case.len(n)).sum();
            for (at, (member, of)) in members.iter().zip(&plan.members).enumerate() {
                let len = |items: &NumberSet| items.iter().map(|n| case.len(n)).sum::<u64>();
                prop_assert_eq!(len(&of.items) + of.room_left.0, member.room.0);
                prop_assert!(len(&(&of.items - member.holds)) + of.fill_left.0 <= member.fill.0);
                prop_assert!(at % 2 == 1 || of.items.is_disjoint(&case.bans), "day {}", day);
            }
            let has_room = |at: &usize| {
                let of = &members[*at];
                2 * all <= of.room.0 && 2 * all <= of.fill.0
            };
            if second.iter().any(has_room) {
                for item in &case.bans - cluster.bans {
                    let holds = |at: &usize| plan.members[*at].items.contains(item);
                    prop_assert!(second.iter().any(holds), "{} on day {}", item, day);
                }
            }
            fleet = fleet.after(&plan);
        }
    }

    #[test]
    fn the_order_of_members_changes_nothing(case in case()) {
        let (_, (fleet, plan)) = case.two_days();
        let mut machines = fleet.machines.clone();
        machines.reverse();
        let turned = Fleet { machines, ..fleet.clone() };
        let mut again = turned.plan(&case.second());
        again.members.reverse();
        prop_assert_eq!(again, plan);
    }

    #[test]
    fn nothing_moves_where_nothing_changes(case in case()) {
        let ((mut fleet, _), _) = case.two_days();
        // What a window has no time for comes in the next.
        fleet.machines.iter_mut().for_each(|of| of.fill = 1 << 50);
        let plan = fleet.plan(&case.first());
        let after = fleet.after(&plan);
        let again = after.plan(&case.first());
        for (of, was) in again.members.iter().zip(&plan.members) {
            prop_assert_eq!(&of.items, &was.items);
        }
    }

    #[test]
    fn a_member_that_goes_moves_only_what_it_held(case in case()) {
        let ((mut fleet, _), _) = case.two_days();
        // Room for everything everywhere, and nobody's throughput is said: a copy of each.
        for of in &mut fleet.machines {
            (of.room, of.fill, of.mbps) = (1 << 50, 1 << 50, None);
        }
        let plan = fleet.plan(&case.first());
        let mut after = fleet.after(&plan);
        let gone = after.machines.pop().unwrap();
        // Nor does anything move for the balance of load.
        let config = Config { exchange_permille: 0, ..CONFIG };
        let again = after.plan_with(&case.first(), &config);
        for (of, was) in again.members.iter().zip(&after.machines) {
            prop_assert!((&of.items - &was.holds).is_subset(&gone.holds));
            prop_assert!((&was.holds - &of.items).is_empty());
        }
    }
}

/// A member that owns what it holds.
#[derive(Clone, Debug)]
struct Machine {
    name: u32,
    room: u64,
    mbps: Option<u64>,
    fill: u64,
    weight: u32,
    holds: NumberSet,
}

#[derive(Clone, Debug)]
struct Fleet {
    machines: Vec<Machine>,
    extra: Extra,
}

impl Fleet {
    fn members(&self) -> Vec<Member<'_>> {
        let members = self.machines.iter().map(|of| Member {
            lot: Lot::of(&of.name.to_le_bytes()),
            weight: Weight::new(of.weight).unwrap(),
            room: Bytes(of.room),
            throughput: of.mbps.map(|mbps| BitsPerSecond(mbps * 1_000_000)),
            holds: &of.holds,
            fill: Bytes(of.fill),
            apart: None,
        });
        members.collect()
    }

    fn plan(&self, world: &World) -> ClusterPlan {
        self.plan_with(world, &CONFIG)
    }

    fn plan_with(&self, world: &World, config: &Config) -> ClusterPlan {
        let members = self.members();
        let cluster = self.extra.cluster(&members);
        let order = world.order();
        place_cluster(&order, &cluster, config)
    }

    /// The same on the next day.
    fn after(&self, plan: &ClusterPlan) -> Self {
        let mut after = self.clone();
        for (machine, of) in after.machines.iter_mut().zip(&plan.members) {
            machine.holds = of.items.clone();
        }
        after
    }
}

/// Two days of a cluster: other demand, and machines with other room.
#[derive(Clone, Debug)]
struct Case {
    /// KiB that viewers are sent on the first day and on the second, and MiB; from item 1 on.
    items: Vec<(u64, u64, u64)>,
    fleet: Fleet,
    rooms: Vec<u64>,
    fills: Vec<u64>,
    bans: NumberSet,
}

impl Case {
    fn first(&self) -> World {
        self.day(|item| item.0)
    }

    fn second(&self) -> World {
        self.day(|item| item.1)
    }

    fn day(&self, of: fn(&(u64, u64, u64)) -> u64) -> World {
        let pieces = (1..).zip(&self.items).map(|(n, item)| (n, of(item), item.2));
        World::new(&pieces.collect::<Vec<_>>())
    }

    fn two_days(&self) -> ((Fleet, ClusterPlan), (Fleet, ClusterPlan)) {
        let plan = self.fleet.plan(&self.first());
        let mut after = self.fleet.after(&plan);
        for (machine, (room, fill)) in
            after.machines.iter_mut().zip(self.rooms.iter().zip(&self.fills))
        {
            (machine.room, machine.fill) = (*room, *fill);
        }
        after.extra.bans = self.bans.clone();
        let second = after.plan(&self.second());
        ((self.fleet.clone(), plan), (after, second))
    }

    fn len(&self, item: u32) -> u64 {
        self.items[model::number::index(item) - 1].2 * MIB
    }
}

fn case() -> impl Strategy<Value = Case> {
    let machine = (0_u64..40, prop::option::of(1_u64..500), 0_u64..60, 1_u32..5);
    let machines = prop::collection::vec(machine, 1..6);
    let items = prop::collection::vec((0_u64..300, 0_u64..300, 1_u64..6), 1..60);
    let numbers = || prop::collection::btree_set(1_u32..60, 0..4);
    let second = prop::collection::vec((0_u64..40, 0_u64..60), 6);
    let sets = (numbers(), numbers(), numbers());
    (machines, items, sets, second).prop_map(
        |(machines, items, (pins, bans, bans_then), second)| {
            let count = u32::try_from(items.len()).unwrap();
            let machines = (1..).zip(machines).map(|(name, (room, mbps, fill, weight))| Machine {
                name,
                room: room * MIB,
                mbps,
                fill: fill * MIB,
                weight,
                holds: NumberSet::new(),
            });
            let within = |numbers: std::collections::BTreeSet<u32>| {
                numbers.into_iter().filter(|n| *n <= count).collect::<NumberSet>()
            };
            let extra = Extra { pins: within(pins), bans: within(bans), ..Extra::default() };
            Case {
                items,
                fleet: Fleet { machines: machines.collect(), extra },
                rooms: second.iter().map(|(room, _)| room * MIB).collect(),
                fills: second.iter().map(|(_, fill)| fill * MIB).collect(),
                bans: within(bans_then),
            }
        },
    )
}

/// A catalogue, and what is wanted of it.
#[derive(Clone, Debug)]
struct World {
    catalogue: Catalogue,
    wanted: Vec<Wanted>,
}

impl World {
    /// Of items by number, KiB that viewers are sent a day, and MiB.
    fn new(items: &[(u32, u64, u64)]) -> Self {
        let wanted = items.iter().filter(|(_, day, _)| 0 < *day).map(|(n, day, _)| Wanted {
            item: Item(*n),
            day: Bytes::kib(*day),
            peak: BitsPerSecond(*day * 1000),
        });
        let pieces = items.iter().map(|(n, _, mib)| piece(*n, *mib)).collect();
        Self { catalogue: Catalogue::new(pieces), wanted: wanted.collect() }
    }

    /// The same with the peak of each said, in kb/s.
    fn with_peaks(items: &[(u32, u64, u64, u64)]) -> Self {
        let without: Vec<_> = items.iter().map(|(n, day, mib, _)| (*n, *day, *mib)).collect();
        let mut world = Self::new(&without);
        for (of, (.., kbps)) in world.wanted.iter_mut().zip(items) {
            of.peak = BitsPerSecond(*kbps * 1000);
        }
        world
    }

    fn order(&self) -> Order<'_> {
        Order::new(&self.catalogue, &self.wanted)
    }

    fn plan(&self, fleet: &[Member<'_>], extra: Extra) -> ClusterPlan {
        place_cluster(&self.order(), &extra.cluster(fleet), &CONFIG)
    }
}

/// What a cluster has besides members.
#[derive(Clone, Debug, Default)]
struct Extra {
    share: Option<Share>,
    pins: NumberSet,
    bans: NumberSet,
    alone: NumberSet,
}

impl Extra {
    fn cluster<'a>(&'a self, members: &'a [Member<'a>]) -> Cluster<'a> {
        let Self { share, pins, bans, alone } = self;
        let share = share.unwrap_or(Share::ALL);
        Cluster { members, share, pins, bans, alone, apart: &[] }
    }
}

/// With so many MiB and Mb/s, and no bound on what comes.
fn machine(name: u32, mib: u64, mbps: u64) -> Member<'static> {
    Member {
        lot: Lot::of(&name.to_le_bytes()),
        weight: Weight::ONE,
        room: Bytes::mib(mib),
        throughput: Some(BitsPerSecond(mbps * 1_000_000)),
        holds: &NONE,
        fill: Bytes(1 << 50),
        apart: None,
    }
}

fn piece(item: u32, mib: u64) -> Piece {
    Piece { item: Item(item), version: item, len: Bytes::mib(mib) }
}

fn set(items: &[u32]) -> NumberSet {
    items.iter().copied().collect()
}

fn items(plan: &ClusterPlan, member: usize) -> Vec<u32> {
    plan.members[member].items.iter().collect()
}

fn holders(plan: &ClusterPlan, item: u32) -> usize {
    plan.members.iter().filter(|member| member.items.contains(item)).count()
}
