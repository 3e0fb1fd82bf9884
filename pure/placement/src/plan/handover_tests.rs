use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::{Member, MemberPlan, Share};
use super::*;
use model::rendezvous::Lot;
use model::topology::Weight;

/// Items of so many MiB and so dense, and who has said that it has which.
#[derive(Debug, Default)]
struct World {
    items: BTreeMap<u32, (u64, u64)>,
    has: BTreeMap<(usize, u32), bool>,
    alone: NumberSet,
    pins: NumberSet,
    bans: NumberSet,
}

impl Handing for World {
    fn has(&self, member: usize, item: Item) -> Option<bool> {
        self.has.get(&(member, item.0)).copied()
    }

    fn density(&self, item: Item) -> Density {
        Density(self.items[&item.0].1)
    }

    fn room(&self, item: Item) -> (Bytes, Bytes) {
        (Bytes::mib(self.items[&item.0].0), Bytes::ZERO)
    }

    fn is_alone(&self, item: Item) -> bool {
        self.alone.contains(item.0)
    }
}

fn set(items: &[u32]) -> NumberSet {
    items.iter().copied().collect()
}

impl World {
    /// Items that take a MiB each; the first is the densest.
    fn of(count: u32) -> Self {
        let items = (1..=count).map(|item| (item, (1, u64::from(100 - item)))).collect();
        Self { items, ..Self::default() }
    }

    fn say(mut self, member: usize, items: &[u32], has: bool) -> Self {
        self.has.extend(items.iter().map(|item| ((member, *item), has)));
        self
    }

    /// What stays at each, and what waits: of members with room for `rooms` MiB, by what they
    /// should hold now and by the plan.
    fn hand(&self, members: &[(u64, &[u32], &[u32])]) -> Vec<(Vec<u32>, Vec<u32>)> {
        let sets: Vec<_> =
            members.iter().map(|(room, now, plan)| (*room, set(now), set(plan))).collect();
        let handed = self.handed(&sets);
        handed.iter().map(|of| (of.stays.iter().collect(), of.waits.iter().collect())).collect()
    }

    fn handed(&self, members: &[(u64, NumberSet, NumberSet)]) -> Vec<Handover> {
        let none = NumberSet::new();
        let member = |(room, _, _): &(u64, NumberSet, NumberSet)| Member {
            lot: Lot::of(b"a"),
            weight: Weight::ONE,
            room: Bytes::mib(*room),
            throughput: None,
            holds: &none,
            fill: Bytes::mib(*room),
            apart: None,
        };
        let planned = |(room, _, planned): &(u64, NumberSet, NumberSet)| MemberPlan {
            items: planned.clone(),
            room_left: Bytes::mib(room - self.len(planned)),
            ..MemberPlan::default()
        };
        let all: Vec<Member<'_>> = members.iter().map(member).collect();
        let Self { pins, bans, alone, .. } = self;
        let cluster = Cluster { members: &all, share: Share::ALL, pins, bans, alone, apart: &[] };
        let plan =
            ClusterPlan { members: members.iter().map(planned).collect(), ..Default::default() };
        let now: Vec<&NumberSet> = members.iter().map(|(_, now, _)| now).collect();
        handover(&cluster, &plan, &now, self)
    }

    fn len(&self, items: &NumberSet) -> u64 {
        items.iter().map(|item| self.items[&item].0).sum()
    }
}

#[test]
fn what_moves_stays_until_another_has_it_and_what_is_colder_waits() {
    let world = World::of(9);
    // The densest moves up, and a colder one down, into its room.
    let moves: [(u64, &[u32], &[u32]); 2] = [(3, &[1, 3, 4], &[3, 4, 9]), (2, &[2, 9], &[1, 2])];
    let (up, down) = ((vec![1], vec![9]), (vec![], vec![]));
    assert_eq!(world.hand(&moves), [up.clone(), down.clone()]);
    assert_eq!(World::of(9).say(1, &[1], false).hand(&moves), [up, down.clone()]);
    assert_eq!(World::of(9).say(1, &[1], true).hand(&moves), [down.clone(), down.clone()]);
    // Whoever never had it has nothing to hand over.
    assert_eq!(World::of(9).say(0, &[1], false).hand(&moves), [down.clone(), down]);
}

#[test]
fn room_that_is_left_is_taken_first_and_what_is_denser_never_waits() {
    let world = World::of(9);
    let free = world.hand(&[(4, &[1, 3], &[3, 9]), (1, &[], &[1])]);
    assert_eq!(free[0], (vec![1], vec![]));
    // Of two that move one finds room.
    let moves: [(u64, &[u32], &[u32]); 2] = [(2, &[4, 7], &[5, 6]), (2, &[], &[4, 7])];
    assert_eq!(world.hand(&moves)[0], (vec![4], vec![6]));
    let colder = world.hand(&[(2, &[7, 8], &[1, 2]), (2, &[], &[7, 8])]);
    assert_eq!(colder[0], (vec![], vec![]));
}

#[test]
fn as_many_copies_stay_as_are_on_their_way() {
    let world = (0..4).fold(World::of(9), |world, at| world.say(at, &[1], at != 2));
    let [from, to]: [(u64, &[u32], &[u32]); 2] = [(1, &[1], &[]), (1, &[], &[1])];
    let keeps: (u64, &[u32], &[u32]) = (1, &[1], &[1]);
    let stays = |members: &[(u64, &[u32], &[u32])]| {
        world.hand(members).iter().map(|(stays, _)| stays.len()).collect::<Vec<_>>()
    };
    assert_eq!(stays(&[from, from, to, keeps]), [1, 0, 0, 0]);
    assert_eq!(stays(&[from, from, from, to]), [0; 4], "it has come");
    assert_eq!(stays(&[from, from, (0, &[], &[]), keeps]), [0; 4], "it moves nowhere");
    // Of two the first has something denser come, and the other keeps its copy.
    let denser: [(u64, &[u32], &[u32]); 3] = [(1, &[4], &[3]), (2, &[4, 5], &[5]), (1, &[], &[4])];
    let handed = World::of(9).say(0, &[4], true).say(1, &[4], true).hand(&denser);
    assert_eq!(
        handed.into_iter().map(|(stays, _)| stays).collect::<Vec<_>>(),
        [vec![], vec![4], vec![]]
    );
    let silent = World::of(9).hand(&[from, from, to]);
    assert_eq!(silent.iter().map(|(stays, _)| stays.len()).collect::<Vec<_>>(), [1, 1, 0]);
}

#[test]
fn what_has_no_source_stays_whatever_waits_for_it_but_where_it_is_banned() {
    let pinned = |alone: &[u32]| World { alone: set(alone), pins: set(&[2]), ..World::of(9) };
    let moves: [(u64, &[u32], &[u32]); 2] = [(1, &[8], &[2]), (1, &[], &[8])];
    assert_eq!(pinned(&[8]).hand(&moves)[0], (vec![8], vec![2]));
    assert_eq!(pinned(&[]).hand(&moves)[0], (vec![], vec![]));
    // It does not wait either: who has it cannot give it up before.
    let comes: [(u64, &[u32], &[u32]); 2] = [(1, &[1], &[8]), (1, &[], &[1])];
    assert_eq!(pinned(&[8]).hand(&comes)[0], (vec![], vec![]));
    let banned = World { bans: set(&[8]), ..pinned(&[8]) };
    assert_eq!(banned.hand(&moves)[0], (vec![], vec![]));
}

#[test]
fn what_is_pinned_waits_for_nothing_that_has_a_source() {
    let world = World { pins: set(&[9]), ..World::of(9) };
    let moves: [(u64, &[u32], &[u32]); 2] = [(2, &[1, 2], &[8, 9]), (2, &[], &[1, 2])];
    assert_eq!(world.hand(&moves)[0], (vec![1], vec![8]));
}

proptest! {
    /// Whatever moves, all that stays and comes has room, and after as many rounds as items all is
    /// as planned: none waits for another that waits for it.
    #[test]
    fn all_is_as_planned_in_the_end(
        lens in prop::collection::vec((1_u64..4, 0_u64..5), 12),
        now in prop::collection::vec(prop::collection::btree_set(1_u32..=12, 0..6), 3),
        planned in prop::collection::vec(prop::collection::btree_set(1_u32..=12, 0..6), 3),
        alone in prop::option::of(1_u32..=12),
        spare in 0_u64..3,
    ) {
        let items = (1..).zip(lens).collect();
        let alone = alone.into_iter().collect();
        let mut world = World { items, alone, ..World::default() };
        let sets = now.into_iter().zip(planned);
        let sets = sets.map(|(now, planned)| -> (NumberSet, NumberSet) {
            (now.into_iter().collect(), planned.into_iter().collect())
        });
        let mut members: Vec<(u64, NumberSet, NumberSet)> = sets
            .map(|(now, planned)| {
                (world.len(&now).max(world.len(&planned)) + spare, now, planned)
            })
            .collect();
        for (at, (_, now, _)) in members.iter().enumerate() {
            world.has.extend(now.iter().map(|item| ((at, item), true)));
        }
        for _ in 0..=12 {
            let handed = world.handed(&members);
            for (at, (of, (room, now, planned))) in handed.iter().zip(&mut members).enumerate() {
                let is = of.until_then(planned);
                prop_assert!(world.len(&is) <= *room, "{of:?}");
                prop_assert!(of.stays.is_subset(now));
                world.has.retain(|(member, item), _| *member != at || is.contains(*item));
                *now = is;
            }
            // All is fetched that anybody has, or that has a source.
            let there: NumberSet = world.has.keys().map(|(_, item)| *item).collect();
            for (at, (_, now, _)) in members.iter().enumerate() {
                let comes = now.iter().filter(|item| {
                    there.contains(*item) || !world.alone.contains(*item)
                });
                world.has.extend(comes.map(|item| ((at, item), true)));
            }
        }
        for (_, now, planned) in &members {
            prop_assert_eq!(now, planned);
        }
    }
}
