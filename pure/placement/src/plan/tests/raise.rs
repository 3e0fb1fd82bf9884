//! Copies that move up to fast members.

use super::*;

/// A large member and a fast one, with so much of a hundred items, of which the first is watched
/// most.
fn large_and_fast(
    (large, large_holds): (Member<'_>, impl IntoIterator<Item = u32>),
    (fast, fast_holds): (Member<'_>, impl IntoIterator<Item = u32>),
) -> (Vec<u32>, Vec<u32>, Bytes) {
    let day = |n: u32| 10_000 / u64::from(n);
    let world = World::new(&(1..=100).map(|n| (n, day(n), 1)).collect::<Vec<_>>());
    let holds = [NumberSet::from_iter(large_holds), NumberSet::from_iter(fast_holds)];
    let fleet = [Member { holds: &holds[0], ..large }, Member { holds: &holds[1], ..fast }];
    let plan = world.plan(&fleet, Extra::default());
    (items(&plan, 0), items(&plan, 1), plan.exchanged)
}

#[test]
fn what_is_watched_most_moves_up_to_fast_members_for_what_is_cold() {
    let (large, fast) = (machine(1, 120, 1000), machine(2, 10, 9000));
    // Ten come anyway: half as many bytes may move, and each that moves up has one move down.
    let moved = large_and_fast((large, 1..=80), (fast, 91..=100));
    let down = (3..=90).chain([99, 100]).collect();
    assert_eq!(moved, (down, [vec![1, 2], (91..=98).collect()].concat(), Bytes::mib(2)));
    // Where what is there is nearly as dense, all stays.
    let alike = World::new(&(1..=100).map(|n| (n, 140 - u64::from(n) / 3, 1)).collect::<Vec<_>>());
    let (hot, cold) = ((1..=80).collect(), (91..=100).collect());
    let plan = alike.plan(
        &[Member { holds: &hot, ..large }, Member { holds: &cold, ..fast }],
        Extra::default(),
    );
    assert_eq!(items(&plan, 1), (91..=100).collect::<Vec<_>>());
}

#[test]
fn of_copies_that_are_too_many_those_of_the_head_stay_at_fast_members() {
    let (large, fast) = ((machine(1, 80, 1000), 1..=80), (machine(2, 10, 9000), 1..=10));
    let stays = ((11..=90).collect(), (1..=10).collect(), Bytes::ZERO);
    assert_eq!(large_and_fast(large, fast), stays);
}

#[test]
fn what_moves_up_takes_no_room_of_a_fast_member_that_what_comes_may_take() {
    // Ten that are new have all of its room.
    let large = machine(1, 120, 1000);
    let (_, fast, moved) = large_and_fast((large, 11..=80), (machine(2, 10, 9000), []));
    assert_eq!((fast, moved), ((1..=10).collect(), Bytes::ZERO));
    // Four that are new have its free room, and one that is cold gives way.
    let (_, fast, moved) = large_and_fast((large, 5..=97), (machine(2, 6, 9000), 99..=100));
    assert_eq!((fast, moved), (vec![1, 2, 3, 4, 5, 99], Bytes::mib(1)));
    // It has room beyond what comes: half as many bytes move up, to that.
    let (_, fast, moved) = large_and_fast((large, 21..=100), (machine(2, 50, 9000), []));
    assert_eq!((fast, moved), ((1..=30).collect(), Bytes::mib(10)));
}

#[test]
fn what_moves_up_uses_no_fill_that_what_comes_needs() {
    let (large, fast) = (machine(1, 76, 1000), machine(2, 14, 9000));
    let mib = Bytes::mib;
    let of = |large_fill, fast_fill| {
        let large = Member { fill: mib(large_fill), ..large };
        let fast = Member { fill: mib(fast_fill), ..fast };
        large_and_fast((large, 5..=80), (fast, 91..=100))
    };
    // Four come to the fast one, so two may move: one goes up, and one gives way.
    let warm = [vec![1, 2, 3, 4, 5], (91..=99).collect()].concat();
    assert_eq!(of(100, 5), ((6..=81).collect(), warm, mib(1)));
    let stays = ((5..=80).collect(), [vec![1, 2, 3, 4], (91..=100).collect()].concat(), mib(0));
    assert_eq!(of(100, 4), stays);
    assert_eq!(of(0, 100), stays, "what gives way would have nowhere to go");
}

#[test]
fn what_is_too_long_to_move_up_keeps_nothing_shorter_from_it() {
    let (large, cold) = ((1..=80).collect(), (91..=100).collect());
    let fleet = [
        Member { holds: &large, ..machine(1, 120, 1000) },
        Member { holds: &cold, ..machine(2, 10, 9000) },
    ];
    let at_fast = |day: fn(u32) -> u64, first: u64| {
        let all = (1..=100).map(|n| (n, day(n), if n == 1 { first } else { 1 }));
        items(&World::new(&all.collect::<Vec<_>>()).plan(&fleet, Extra::default()), 1)
    };
    // Ten come, so five MiB may move. The first takes four of them, and as many would give way.
    let day = |n| if n == 1 { 80_000 } else { 10_000 / u64::from(n) };
    assert_eq!(at_fast(day, 4), [vec![2, 3], (91..=98).collect()].concat());
    // The first takes two, and one alone is colder.
    let day = |n| match n {
        1 => 22_000,
        2 => 10_500,
        91..=99 => 9000,
        _ => 10_000 / u64::from(n),
    };
    assert_eq!(at_fast(day, 2), [vec![2], (91..=99).collect()].concat());
}

#[test]
fn nothing_moves_up_from_a_member_that_has_less_to_do() {
    // Of two large members one has much to do. The other has the first item, and little to do.
    let held =
        [(11..=20).collect(), [1].into_iter().chain(31..=49).collect(), (91..=100).collect()];
    let hot = (11..=20).map(|n| (n, 90_000, 2, 80_000));
    let little = (31..=49).map(|n| (n, 30_000, 1, 1));
    let comes = (51..=58).map(|n| (n, 20_000, 1, 1));
    let cold = (91..=100).map(|n| (n, 15_000, 1, 80_000));
    let all = std::iter::once((1, 100_000, 1, 80_000)).chain(hot).chain(little).chain(comes);
    let world = World::with_peaks(&all.chain(cold).collect::<Vec<_>>());
    let of = |n: usize, member| Member { holds: &held[n], ..member };
    let idle = Member { fill: Bytes::mib(1), ..machine(2, 20, 1000) };
    let fleet = [of(0, machine(1, 28, 1000)), of(1, idle), of(2, machine(3, 10, 9000))];
    let plan = world.plan(&fleet, Extra::default());
    let fast = [vec![20], (93..=100).collect()].concat();
    assert_eq!((items(&plan, 1)[0], items(&plan, 2)), (1, fast));
}

#[test]
fn a_copy_moves_up_only_where_its_part_by_weight_is_less_than_others_have_to_do() {
    // The first needs two copies. Of two parts a fast one of weight 8 would have 8 of 9.
    let held = [set(&[1, 2]), set(&[1, 3]), set(&[8, 9, 10])];
    let hot = [(1, 100_000, 1, 6000), (2, 20_000, 1, 1000), (3, 20_000, 1, 1000)];
    let all = hot.into_iter().chain((4..=10).map(|n| (n, if n < 8 { 10_000 } else { 5000 }, 1, 1)));
    let world = World::with_peaks(&all.collect::<Vec<_>>());
    for (weight, moves_up) in [(1, true), (8, false)] {
        let fast = Member { weight: Weight::new(weight).unwrap(), ..machine(3, 3, 400) };
        let fleet = [machine(1, 6, 400), machine(2, 6, 400), fast];
        let of = |(member, holds)| Member { holds, ..member };
        let fleet: Vec<_> = fleet.into_iter().zip(&held).map(of).collect();
        let plan = world.plan(&fleet, Extra::default());
        assert_eq!(plan.members[2].items.contains(1), moves_up, "{weight}");
    }
}
