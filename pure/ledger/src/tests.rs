use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::codec::Input;
use crate::record::{AMONG_MAX, ANSWERS_MAX, Answer, Answered, Record};
use model::id::{ApplianceId, AssetVersionId, Generation, SiteId};
use model::members::Members;
use model::near::{By, Class, Near, Route, Step};
use model::number::{GOLDEN, mix};
use model::place::{Nearness, Shares};
use model::topology::{Prefix, Weight};
use model::units::{BitsPerSecond, Bytes, UnixSeconds};
use model::view::{ApplianceView, FleetView, Health, Load, SiteView};
use proptest::prelude::*;
use steering::{Candidate, Config, Query, RankedList, Wanted};

const CONFIG: Config = Config { pathways_min: 2, pathways_max: 4, explains: false };

#[test]
fn a_hundred_thousand_decisions_are_the_same_when_they_are_made_again() {
    let mut world = World::new(8, 5);
    let bytes = world.write(100_000, true);
    let opened = open(&bytes, false, genuine).unwrap();
    let outcome = replay(&opened, &WhatIf::default()).unwrap();
    assert_eq!((outcome.decisions, outcome.differing), (100_000, 0), "{:?}", outcome.differences);
    assert_eq!(outcome.moved, BTreeMap::new());
    assert!(10_000 < outcome.begun && 10_000 < outcome.decisions - outcome.begun);
    let each = bytes.len() / 100_000;
    assert!(each < RECORD_LEN_MAX, "{each} bytes each, with the picture and the seals");
}

#[test]
fn a_fleet_too_large_to_be_looked_at_as_a_whole_is_drawn_from_as_before() {
    let mut world = World::new(60, 3);
    let bytes = world.write(5000, true);
    let opened = open(&bytes, false, genuine).unwrap();
    let outcome = replay(&opened, &WhatIf::default()).unwrap();
    assert_eq!((outcome.decisions, outcome.differing), (5000, 0), "{:?}", outcome.differences);
}

#[test]
fn a_version_that_some_hold_in_part_is_decided_as_before() {
    let mut world = World::new(3, 2);
    let view = Arc::make_mut(&mut world.view);
    let holders = view.holders.get_mut(0).unwrap();
    holders.renditions = 0..2;
    holders.whole.remove(0);
    view.partial_holders.push([0].into());
    view.partial_holders.push(Members::default());
    let (version, near) = (world.versions[0].clone(), world.near());
    let mut ledger = Ledger::new(CONFIG, 0);
    for step in 0..3_u32 {
        let view = Arc::make_mut(&mut world.view);
        *view.partial_holders.get_mut(1 - step % 2).unwrap() = Members::default();
        *view.partial_holders.get_mut(step % 2).unwrap() = [0].into();
        for draw in 0..20_u8 {
            let list = rank(&world.view, &version, &near, [draw; 8], None);
            assert!(list.pathways.iter().any(|of| !of.renditions.is_empty()), "{list:?}");
            put(&mut ledger, &world.view, &version, &near, [draw; 8], None, &list);
        }
    }
    let bytes = ledger.seal(UnixSeconds(9), true, sign);
    let outcome = replay(&open(&bytes, false, genuine).unwrap(), &WhatIf::default()).unwrap();
    assert_eq!((outcome.decisions, outcome.differing), (60, 0), "{:?}", outcome.differences);
}

#[test]
fn an_appliance_that_is_registered_anew_in_a_lower_site_is_the_new_one() {
    let mut world = World::new(2, 1);
    let mut ledger = Ledger::new(CONFIG, 0);
    let put = |world: &World, ledger: &mut Ledger| {
        let (version, near) = (&world.versions[0], world.near());
        let list = rank(&world.view, version, &near, [7; 8], None);
        put(ledger, &world.view, version, &near, [7; 8], None, &list);
    };
    put(&world, &mut ledger);
    let old = Arc::clone(&world.view);
    world.register_anew(1, 0);
    put(&world, &mut ledger);
    // A request that took longer comes with the picture before.
    world.view = old;
    put(&world, &mut ledger);
    let bytes = ledger.seal(UnixSeconds(9), true, sign);
    let outcome = replay(&open(&bytes, false, genuine).unwrap(), &WhatIf::default()).unwrap();
    assert_eq!((outcome.decisions, outcome.differing), (3, 0), "{:?}", outcome.differences);
}

#[test]
fn a_file_with_one_name_under_two_numbers_is_replayed_to_its_end() {
    // So many that some are drawn by number.
    let mut world = World::new(40, 1);
    let version = world.versions[0].clone();
    let sound = rank(&world.view, &version, &[], [7; 8], None);
    let mut ledger = Ledger::new(CONFIG, 0);
    let both = [vec![appliance(&world.names[0], 0, 0)], vec![appliance(&world.names[0], 0, 1)]];
    let [first, second] = &both;
    for (at, appliances) in [(1, second), (0, &vec![]), (0, first), (1, &vec![])] {
        let id = world.names[0].clone();
        let site = SiteView { id, serves_strangers: true, appliances: appliances.clone() };
        Arc::make_mut(&mut world.view).put_site(at, Arc::new(site));
        for draw in 0..100_u8 {
            put(&mut ledger, &world.view, &version, &[], [draw; 8], None, &sound);
        }
    }
    let bytes = ledger.seal(UnixSeconds(9), true, sign);
    let outcome = replay(&open(&bytes, false, genuine).unwrap(), &WhatIf::default()).unwrap();
    assert_eq!(outcome.decisions, 400);
}

#[test]
fn a_decision_that_does_not_follow_from_the_picture_is_told() {
    let world = World::new(3, 2);
    let mut ledger = Ledger::new(CONFIG, 0);
    let version = world.versions[0].clone();
    let near = world.near();
    let sound = rank(&world.view, &version, &near, [7; 8], None);
    let mut odd = sound.clone();
    odd.candidates.swap(0, 1);
    let mut wrong_reason = sound.clone();
    wrong_reason.candidates[0].share_permille -= 1;
    let mut others = sound.clone();
    others.others += 1;
    for list in [&sound, &odd, &wrong_reason, &others] {
        put(&mut ledger, &world.view, &version, &near, [7; 8], None, list);
    }
    let bytes = ledger.seal(UnixSeconds(9), true, sign);
    let outcome = replay(&open(&bytes, false, genuine).unwrap(), &WhatIf::default()).unwrap();
    assert_eq!((outcome.decisions, outcome.differing), (4, 3));
    let name = |of: &Candidate| world.view.placed(of.appliance).unwrap().appliance.id.to_string();
    let [a, b] = [0, 1].map(|at| name(&sound.candidates[at]));
    let all = |first: &str, then: &str| {
        let rest = sound.candidates[2..].iter().map(name);
        [first.to_owned(), then.to_owned()].into_iter().chain(rest).collect::<Vec<_>>().join(", ")
    };
    let texts: Vec<String> = outcome.differences.iter().map(ToString::to_string).collect();
    let head = |number: u64| format!("decision {number} (playback begun at 5, generation 1): ");
    let wanted = [
        format!("{}recorded {}, now {}", head(2), all(&b, &a), all(&a, &b)),
        format!("{}{} as recorded, with another reason of load", head(3), all(&a, &b)),
        format!("{}{} as recorded, and others were not looked at", head(4), all(&a, &b)),
    ];
    assert_eq!(texts, wanted);
}

#[test]
fn of_one_session_each_decision_is_told_with_everybody_who_was_looked_at() {
    let mut world = World::new(3, 2);
    let mut ledger = Ledger::new(CONFIG, 0);
    let (version, near) = (world.versions[0].clone(), world.near());
    let put = |ledger: &mut Ledger, world: &World, draw: [u8; 8], among: Option<&[u32]>| {
        let list = rank(&world.view, &version, &near, draw, among);
        put(ledger, &world.view, &version, &near, draw, among, &list);
        list
    };
    let (mine, other) = ([7; 8], [8; 8]);
    let began = put(&mut ledger, &world, mine, None);
    put(&mut ledger, &world, other, None);
    let pathways: Vec<u32> = began.offered().iter().map(|of| of.appliance).collect();
    let first = pathways[0];
    let view = Arc::make_mut(&mut world.view);
    let mut site = view.sites.get(0).unwrap().as_ref().clone();
    for appliance in site.appliances.iter_mut().filter(|of| of.number == first) {
        appliance.health = Health::Unhealthy;
    }
    view.put_site(0, Arc::new(site));
    put(&mut ledger, &world, mine, Some(&pathways));
    let bytes = ledger.seal(UnixSeconds(9), true, sign);
    let opened = open(&bytes, false, genuine).unwrap();
    let told = tell(&opened, &mine).unwrap();
    let [begun, steered] = &told[..] else { panic!("two: {told:?}") };
    assert_eq!((begun.number, begun.kind, begun.pathways), (1, Kind::Begun, None));
    assert_eq!((steered.number, steered.kind), (3, Kind::Steered), "the other's is counted");
    assert_eq!(steered.pathways, Some(pathways.len()));
    assert_eq!((begun.at, begun.generation, &begun.difference), (UnixSeconds(5), 1, &None));
    assert_eq!(begun.version.as_ref(), Some(&version));
    let number = |of: &Looked| world.view.appliances[&of.appliance];
    let offered = |told: &Told| -> Vec<u32> {
        told.candidates[..told.offered_count].iter().map(number).collect()
    };
    assert_eq!(offered(begun), pathways, "as the player got it");
    assert_eq!(begun.candidates.len(), 6, "and those that were left out");
    assert_ne!(offered(steered)[0], pathways[0], "it was ill by then");
    let of_first = steered.candidates.iter().find(|of| number(of) == pathways[0]).unwrap();
    let words = of_first.reasons.map(|reason| reason.to_string());
    assert_eq!(
        words[0],
        "own site: 10.0.0.0/8 is the longest match (private peering, AS path of 2 from AS64500)"
    );
    assert_eq!(words[1], "unable to serve");
    assert_eq!(tell(&opened, &mine[..4]).unwrap(), told, "by its mark");
    assert_eq!(tell(&opened, &[9]).unwrap(), []);
}

#[test]
fn a_told_decision_that_comes_out_otherwise_says_so() {
    let world = World::new(3, 2);
    let mut ledger = Ledger::new(CONFIG, 0);
    let (version, near) = (&world.versions[0], world.near());
    let sound = rank(&world.view, version, &near, [7; 8], None);
    let mut odd = sound.clone();
    odd.candidates.swap(0, 1);
    for list in [&odd, &sound] {
        for _ in 0..25 {
            put(&mut ledger, &world.view, version, &near, [7; 8], None, list);
        }
    }
    let bytes = ledger.seal(UnixSeconds(9), true, sign);
    let told = tell(&open(&bytes, false, genuine).unwrap(), &[7; 8]).unwrap();
    let differs: Vec<bool> = told.iter().map(|told| told.difference.is_some()).collect();
    assert_eq!(differs, [vec![true; 25], vec![false; 25]].concat(), "each of them");
    let recorded = &told[24].difference.as_ref().unwrap().recorded;
    let first = world.view.placed(odd.candidates[0].appliance).unwrap();
    assert_eq!(*recorded[0], *first.appliance.id.as_str());
}

#[test]
fn without_a_site_its_players_go_elsewhere_and_the_others_stay() {
    let mut world = World::new(4, 2);
    let bytes = world.write(3000, false);
    let opened = open(&bytes, false, genuine).unwrap();
    let gone: SiteId = "s1".parse().unwrap();
    let what_if = WhatIf { without_sites: [gone.clone()].into(), ..WhatIf::default() };
    let outcome = replay(&opened, &what_if).unwrap();
    assert!(0 < outcome.sessions_moved() && outcome.sessions_moved() < 3000);
    let all_left = outcome.moved.keys().all(|(from, to)| {
        from.as_ref() == Some(&gone) && to.is_some() && to.as_ref() != Some(&gone)
    });
    assert!(all_left, "{:?}", outcome.moved.keys());
    assert_eq!(outcome.unknown.len(), 0);

    let one: ApplianceId = "s1-a0".parse().unwrap();
    let what_if = WhatIf { without_appliances: [one].into(), ..WhatIf::default() };
    let outcome = replay(&opened, &what_if).unwrap();
    let ways: Vec<_> = outcome.moved.keys().cloned().collect();
    assert!(ways.contains(&(Some(gone.clone()), Some(gone))), "mostly to its sibling: {ways:?}");

    let misspelt = WhatIf { without_sites: ["s9".parse().unwrap()].into(), ..what_if };
    assert_eq!(replay(&opened, &misspelt).unwrap().unknown, ["s9".to_owned()].into());
}

#[test]
fn under_another_policy_only_what_it_changes_is_other() {
    let mut world = World::new(4, 2);
    let bytes = world.write(2000, false);
    let opened = open(&bytes, false, genuine).unwrap();
    let heavy = WhatIf {
        weights: [("s1-a0".parse().unwrap(), Weight::new(1000).unwrap())].into(),
        ..WhatIf::default()
    };
    let outcome = replay(&opened, &heavy).unwrap();
    let site = Some("s1".parse().unwrap());
    assert!(outcome.moved.contains_key(&(site.clone(), site.clone())), "within its site");
    assert!(outcome.moved.keys().all(|(_, to)| *to == site), "and of clients without any");
    let fewer = WhatIf { pathways_max: Some(1), ..WhatIf::default() };
    let outcome = replay(&opened, &fewer).unwrap();
    assert!(outcome.moved.is_empty() && 1000 < outcome.differing, "the first stays the first");
    assert_eq!(outcome.differences.len(), 20, "the rest is counted");
}

#[test]
fn with_a_share_taken_away_or_fewer_copies_sessions_go_to_others() {
    let mut world = World::new(2, 3);
    let bytes = world.write(2000, false);
    let opened = open(&bytes, false, genuine).unwrap();
    let [first, site]: [&str; 2] = ["s1-a0", "s1"];
    let none = WhatIf { shares: [(first.parse().unwrap(), 0)].into(), ..WhatIf::default() };
    let outcome = replay(&opened, &none).unwrap();
    assert!(0 < outcome.sessions_moved() && outcome.unknown.is_empty());
    let site = Some(site.parse().unwrap());
    assert!(outcome.moved.keys().all(|(from, _)| *from == site), "{:?}", outcome.moved.keys());
    let misspelt = WhatIf { shares: [("s1-a9".parse().unwrap(), 0)].into(), ..none };
    assert_eq!(replay(&opened, &misspelt).unwrap().unknown, ["s1-a9".to_owned()].into());

    let copies = |copies| WhatIf { copies: Some(copies), ..WhatIf::default() };
    let as_many = replay(&opened, &copies(3)).unwrap();
    assert_eq!(as_many.differing, 0, "nobody has more");
}

#[test]
fn with_one_copy_a_site_has_the_one_that_placement_puts_first_and_when_it_goes_the_next() {
    let mut world = World::new(2, 3);
    let mut ledger = Ledger::new(CONFIG, 0);
    let (version, near) = (world.versions[0].clone(), world.near());
    let mut put = |view: &Arc<FleetView>, draws: std::ops::Range<u8>| {
        for draw in draws {
            let list = rank(view, &version, &near, [draw; 8], None);
            put(&mut ledger, view, &version, &near, [draw; 8], None, &list);
        }
    };
    put(&world.view, 0..5);
    let mut site = world.view.sites.get(0).unwrap().as_ref().clone();
    let members = site.appliances.clone();
    let order = placement::order(&version, members.iter().map(|of| (&of.id, of.weight)));
    let [first, next] = [order[0], order[1]].map(|at| members[at].id.to_string());
    let view = Arc::make_mut(&mut world.view);
    view.take_appliance(members[order[0]].number);
    site.appliances.remove(order[0]);
    view.put_site(0, Arc::new(site));
    put(&world.view, 5..20);
    let bytes = ledger.seal(UnixSeconds(9), true, sign);
    let opened = open(&bytes, false, genuine).unwrap();
    let what_if = WhatIf { copies: Some(1), pathways_max: Some(1), ..WhatIf::default() };
    let outcome = replay(&opened, &what_if).unwrap();
    let now: Vec<String> = outcome.differences.iter().map(|of| of.now.join(" ")).collect();
    assert_eq!(now, [vec![first; 5], vec![next; 15]].concat());
}

#[test]
fn no_address_is_in_a_file() {
    let mut bytes = Vec::new();
    let [v4, v6] = ["203.0.113.77/32", "2001:db8:1:2:3:4:5:6/128"].map(|of| of.parse().unwrap());
    let near = |prefix, step| {
        let by = By::Route(Route { prefix, ..route() });
        Near { number: 3, by, step }
    };
    near::encode(&mut bytes, &[near(v4, Step::First), near(v6, Step::Prefix)]);
    let has = |part: &[u8]| bytes.windows(part.len()).any(|of| of == part);
    assert!(has(&[203, 0, 113]) && !has(&[203, 0, 113, 77]));
    assert!(has(&[0x20, 0x01, 0x0d, 0xb8, 0, 1]) && !has(&[0x0d, 0xb8, 0, 1, 0, 2]));
    let read = near::decode(&mut Input::new(&bytes)).unwrap();
    let prefix = |of: &Near| match of.by {
        By::Route(route) => route.prefix.to_string(),
        By::Place(_) => String::new(),
    };
    let read: Vec<String> = read.iter().map(prefix).collect();
    assert_eq!(read, ["203.0.113.0/32", "2001:db8:1::/128"], "the length decides, and stays");
}

#[test]
fn a_file_that_was_cut_reordered_or_put_together_is_refused() {
    let mut world = World::new(3, 2);
    let mut ledger = Ledger::new(CONFIG, 4);
    let blocks: Vec<Vec<u8>> = (0..4).map(|at| world.block(&mut ledger, 20, at == 3)).collect();
    assert_eq!((ledger.file(), ledger.is_empty()), (5, true), "another one begins");
    let refused = |blocks: &[&Vec<u8>]| {
        let bytes: Vec<u8> = blocks.iter().copied().flatten().copied().collect();
        open(&bytes, false, genuine).unwrap_err()
    };
    let [a, b, c, d] = &blocks[..] else { panic!("four") };
    let whole = blocks.concat();
    let opened = open(&whole, false, genuine).unwrap();
    assert_eq!((opened.file, opened.blocks.len(), opened.before), (4, 4, [0; HASH_LEN]));
    assert_eq!(refused(&[a, c, b, d]), Fault::Chain(1));
    assert_eq!(refused(&[a, b, d]), Fault::Chain(2));
    assert_eq!(refused(&[b, c, d]), Fault::Chain(0));
    assert_eq!(refused(&[a, b, b, c, d]), Fault::Chain(2));
    assert_eq!(refused(&[a, b, c]), Fault::Unfinished);
    assert_eq!(refused(&[a, b, c, d, d]), Fault::AfterEnd);
    let unfinished = [a.clone(), b.clone()].concat();
    assert_eq!(open(&unfinished, true, genuine).unwrap().blocks.len(), 2);
    let torn = [&a[..], b, &c[..c.len() - 1]].concat();
    assert_eq!(open(&torn, false, genuine), Err(Fault::Cut(2)));
    let taken = open(&torn, true, genuine).unwrap();
    assert_eq!((taken.blocks.len(), taken.torn), (2, Bytes::of(c.len() - 1)));
    assert_eq!(open(&a[..a.len() - 1], true, genuine), Err(Fault::Cut(0)), "nothing is whole");

    // Another process's, with the same contents.
    let mut other = Ledger::new(CONFIG, 4);
    let theirs: Vec<Vec<u8>> =
        (0..4).map(|at| World::new(3, 2).block(&mut other, 20, at == 3)).collect();
    assert_eq!(refused(&[a, &theirs[1], c, d]), Fault::Chain(2), "a block of the same seal");
    let forged = |_: &[u8; HASH_LEN], _: &[u8; SIGNATURE_LEN]| false;
    assert_eq!(open(&whole, false, forged), Err(Fault::Seal(0)));

    let next = world.block(&mut ledger, 5, true);
    let next = open(&next, false, genuine).unwrap();
    assert_eq!((next.file, next.before), (5, opened.hash), "the next file follows");
}

#[test]
fn what_is_no_ledger_or_a_newer_one_is_refused() {
    for odd in [&b""[..], b"NCL", b"{\"a\":1}", b"NCIX...."] {
        assert_eq!(open(odd, true, genuine), Err(Fault::NotOne));
    }
    assert_eq!(open(b"NCLG\x01", true, genuine), Err(Fault::Cut(0)));
    let mut bytes = World::new(2, 2).write(3, false);
    for other in [0, 4] {
        bytes[4] = other;
        assert_eq!(open(&bytes, false, genuine), Err(Fault::Version(other)));
    }
}

#[test]
fn seals_of_a_file_of_other_draws_are_checked_and_its_decisions_not_made_again() {
    let mut bytes = World::new(2, 2).block(&mut Ledger::new(CONFIG, 4), 20, true);
    assert!(replay(&open(&bytes, false, genuine).unwrap(), &WhatIf::default()).is_ok());
    for earlier in [1, 2] {
        bytes[4] = earlier;
        assert_eq!(open(&bytes, false, genuine), Err(Fault::Seal(0)), "its version is sealed, too");
        let opened = open(&bytes, false, |_, _| true).unwrap();
        assert!(opened.is_older);
        assert_eq!(replay(&opened, &WhatIf::default()), Err(Fault::Older));
    }
}

#[test]
fn the_longest_record_fits() {
    let world = World::new(3, 2);
    let list = rank(&world.view, &world.versions[0], &world.near(), [1; 8], None);
    let mut candidate = list.candidates[0];
    candidate.share_permille = u16::MAX;
    candidate.weight = Weight::new(1000).unwrap();
    let mut answer = Answer::of(&candidate, &world.view);
    (answer.appliance, answer.load_permille) = (u32::MAX, u16::MAX);
    let record = Record {
        kind: Kind::Steered,
        plain: true,
        at: UnixSeconds(u64::MAX),
        draw: [0xff; 8],
        version: Some(u32::MAX),
        near: 65_535,
        generation: u64::MAX,
        answered: Answered {
            others: u32::MAX,
            among: Some([u32::MAX; AMONG_MAX].into()),
            answers: [answer; ANSWERS_MAX].into(),
        },
    };
    let mut bytes = Vec::new();
    record.encode(&mut bytes);
    assert!(bytes.len() < RECORD_LEN_MAX, "{}, and one that says what it is", bytes.len());
    assert_eq!(Record::decode(&mut Input::new(&bytes)), Some(record));
}

#[test]
fn the_same_sessions_are_kept_everywhere() {
    let kept = |one_in| (0..10_000_u64).filter(|n| keeps(spread(*n).to_le_bytes(), one_in)).count();
    assert_eq!((kept(0), kept(1)), (0, 10_000));
    // Five standard deviations: 5 * sqrt(10000 * 0.1 * 0.9) = 150.
    assert!(kept(10).abs_diff(1000) < 150, "{}", kept(10));
}

proptest! {
    #[test]
    fn a_clients_sites_are_read_as_they_were_written(
        near in proptest::collection::vec(near_site(), 0..9)
    ) {
        let mut near = near;
        if let Some(first) = near.first_mut() {
            first.step = Step::First;
        }
        let mut bytes = Vec::new();
        near::encode(&mut bytes, &near);
        let mut input = Input::new(&bytes);
        prop_assert_eq!(near::decode(&mut input), Some(near));
        prop_assert!(input.is_empty());
    }

    #[test]
    fn a_file_with_any_byte_changed_is_refused(at: prop::sample::Index, change in 1_u8..) {
        let mut bytes = World::new(3, 2).write(30, true);
        prop_assert!(open(&bytes, false, genuine).is_ok());
        let at = at.index(bytes.len());
        bytes[at] ^= change;
        prop_assert!(open(&bytes, false, genuine).is_err(), "byte {}", at);
    }

    #[test]
    fn a_file_that_ends_anywhere_else_is_refused(at: prop::sample::Index) {
        let bytes = World::new(3, 2).write(30, true);
        let cut = &bytes[..at.index(bytes.len())];
        prop_assert!(open(cut, false, genuine).is_err());
        if let Ok(opened) = open(cut, true, genuine) {
            let whole = open(&bytes, false, genuine).unwrap();
            prop_assert!(whole.blocks.starts_with(&opened.blocks));
            let of_blocks: usize = opened.blocks.iter().map(|of| of.len() + 128).sum();
            prop_assert_eq!(of_blocks + opened.torn.as_usize(), cut.len(), "nothing is unsaid");
        }
    }

    #[test]
    fn whatever_happens_to_a_fleet_its_decisions_are_the_same(
        seed: u64, sites in 1_u32..6, late: bool
    ) {
        let mut world = World::new(sites, 3);
        (world.state, world.is_late) = (seed, late);
        let bytes = world.write(60, true);
        let opened = open(&bytes, false, genuine).unwrap();
        let outcome = replay(&opened, &WhatIf::default()).unwrap();
        prop_assert_eq!(outcome.decisions, 60);
        prop_assert_eq!(outcome.differing, 0, "{:?}", outcome.differences);
    }
}

/// A fleet to which things happen, all from one number.
struct World {
    view: Arc<FleetView>,
    /// The picture before that.
    before: Arc<FleetView>,
    /// Some decisions come after others that were made of a newer picture.
    is_late: bool,
    names: Vec<SiteId>,
    versions: Vec<AssetVersionId>,
    state: u64,
    appliances: u32,
}

impl World {
    fn new(sites: u32, each: u32) -> Self {
        let names: Vec<SiteId> = (0..sites).map(|n| format!("s{n}").parse().unwrap()).collect();
        let versions: Vec<AssetVersionId> =
            (0..4).map(|n| format!("film-{n}").parse().unwrap()).collect();
        let known = (0..).zip(&versions).skip(1).map(|(n, id)| (id.clone(), n));
        let mut view = FleetView {
            generation: Generation(1),
            versions: Arc::new(known.chain([(versions[0].clone(), 0)]).collect()),
            ..FleetView::default()
        };
        let mut appliances = 0;
        for (number, name) in (0..).zip(&names) {
            let site = (0..each).map(|at| appliance(name, at, appliances + at)).collect();
            appliances += each;
            let site = SiteView { id: name.clone(), serves_strangers: true, appliances: site };
            view.put_site(number, Arc::new(site));
        }
        for _ in &versions {
            view.holders.push((0..appliances).collect::<Members>().into());
        }
        let view = Arc::new(view);
        let before = Arc::clone(&view);
        Self { view, before, is_late: false, names, versions, state: 1, appliances }
    }

    fn draw(&mut self, below: u32) -> u32 {
        self.state += 1;
        u32::try_from(spread(self.state) % u64::from(below)).unwrap()
    }

    /// A whole file of so many decisions, in a few blocks.
    fn write(&mut self, decisions: u32, things_happen: bool) -> Vec<u8> {
        let mut ledger = Ledger::new(CONFIG, 0);
        let mut bytes = Vec::new();
        let each = decisions.div_ceil(3);
        for block in 0..3 {
            let count = each.min(decisions - block * each);
            bytes.extend(self.put(&mut ledger, count, things_happen, block == 2));
        }
        bytes
    }

    fn block(&mut self, ledger: &mut Ledger, decisions: u32, is_last: bool) -> Vec<u8> {
        self.put(ledger, decisions, true, is_last)
    }

    fn put(&mut self, ledger: &mut Ledger, count: u32, happens: bool, is_last: bool) -> Vec<u8> {
        for _ in 0..count {
            if happens && self.draw(20) == 0 {
                self.happen();
            }
            let near = self.sites_of_a_client();
            let draw = spread(self.state).to_le_bytes();
            let is_late = self.is_late && self.draw(4) == 0;
            let view = Arc::clone(if is_late { &self.before } else { &self.view });
            let which = self.draw(5);
            let unknown = "unknown".parse().unwrap();
            let version = self.versions.get(model::number::index(which)).unwrap_or(&unknown);
            let list = rank(&view, version, &near, draw, None);
            if which != 0 {
                put(ledger, &view, version, &near, draw, None, &list);
            } else {
                let among: Vec<u32> = list.offered().iter().map(|of| of.appliance).collect();
                let list = rank(&view, version, &near, draw, Some(&among));
                put(ledger, &view, version, &near, draw, Some(&among), &list);
            }
        }
        ledger.seal(UnixSeconds(9), is_last, sign)
    }

    fn near(&self) -> Vec<Near> {
        vec![Near { number: 0, by: By::Route(route()), step: Step::First }]
    }

    fn sites_of_a_client(&mut self) -> Vec<Near> {
        let all = u32::try_from(self.names.len()).unwrap();
        let (count, first) = (self.draw(4), self.draw(all));
        let sites = (0..count.min(all)).map(|at| {
            let number = (first + at) % all;
            let len = u8::try_from(24 - at).unwrap();
            let prefix = Prefix::new([10, 0, 0, 0].into(), len).unwrap();
            let step = if at == 0 { Step::First } else { Step::Prefix };
            Near { number, by: By::Route(Route { prefix, ..route() }), step }
        });
        sites.collect()
    }

    /// Something other than a decision.
    fn happen(&mut self) {
        let which = self.draw(u32::try_from(self.names.len()).unwrap());
        let (what, number) = (self.draw(14), self.draw(1200));
        if what == 13 {
            // As often in a lower site, which comes first among changes, as in a higher one.
            let to = self.draw(u32::try_from(self.names.len()).unwrap());
            return self.register_anew(which, to);
        }
        let mut view = self.view.as_ref().clone();
        let mut site = view.sites.get(which).unwrap().as_ref().clone();
        let name = site.id.clone();
        match what {
            0 => site.serves_strangers = !site.serves_strangers,
            1 => {
                let at = self.appliances;
                self.appliances += 1;
                site.appliances.push(appliance(&name, 1000 + at, at));
            }
            2 => {
                if let Some(gone) = site.appliances.pop() {
                    view.take_appliance(gone.number);
                }
            }
            3 => {
                let version = view.holders.get_mut(number % 4).unwrap();
                let other = number % self.appliances;
                version.whole = (0..self.appliances).filter(|of| *of != other).collect();
            }
            4 => view.generation.0 += 1,
            12 if self.names.len() < 12 => {
                let name: SiteId = format!("s{}", self.names.len()).parse().unwrap();
                let appliances = vec![appliance(&name, 0, self.appliances)];
                self.appliances += 1;
                let new = SiteView { id: name.clone(), serves_strangers: true, appliances };
                view.put_site(view.sites.len(), Arc::new(new));
                self.names.push(name);
            }
            _ => {
                let count = site.appliances.len().max(1);
                let at = model::number::index(number) % count;
                if let Some(of) = site.appliances.get_mut(at) {
                    alter(of, what, number);
                }
            }
        }
        view.put_site(which, Arc::new(site));
        self.before = std::mem::replace(&mut self.view, Arc::new(view));
    }

    /// The last appliance of a site goes, and is registered anew in this one, between two pictures.
    fn register_anew(&mut self, from: u32, to: u32) {
        let mut view = self.view.as_ref().clone();
        let mut site = view.sites.get(from).unwrap().as_ref().clone();
        let Some(gone) = site.appliances.pop() else { return };
        view.take_appliance(gone.number);
        view.put_site(from, Arc::new(site));
        let mut site = view.sites.get(to).unwrap().as_ref().clone();
        site.appliances.push(ApplianceView { number: self.appliances, ..gone });
        view.put_site(to, Arc::new(site));
        for version in 0..view.holders.len() {
            view.holders.get_mut(version).unwrap().whole.insert(self.appliances);
        }
        self.appliances += 1;
        self.before = std::mem::replace(&mut self.view, Arc::new(view));
    }
}

fn alter(appliance: &mut ApplianceView, what: u32, number: u32) {
    let healths = [Health::Healthy, Health::Stale, Health::Draining, Health::Unhealthy];
    match what {
        5 => appliance.health = healths[model::number::index(number % 4)],
        6 => appliance.share_permille = number % 1001,
        10 => appliance.titles_permille = number % 1001,
        7 => appliance.base_url = None,
        8 => appliance.base_url = Some("https://a".into()),
        9 => appliance.weight = Weight::new(1 + number % 9).unwrap(),
        _ => {
            let (connections, drives_permille) = (u64::from(number), number % 1100);
            let load = Load { connections, connections_max: 1111, ..load() };
            appliance.load = Load { drives_permille, ..load };
        }
    }
}

fn appliance(site: &SiteId, at: u32, number: u32) -> ApplianceView {
    ApplianceView {
        id: format!("{site}-a{at}").parse().unwrap(),
        number,
        weight: Weight::ONE,
        health: Health::Healthy,
        share_permille: 1000,
        titles_permille: 1000,
        base_url: Some("https://a".into()),
        plain_url: None,
        load: load(),
    }
}

fn load() -> Load {
    Load { egress: BitsPerSecond(7), egress_max: BitsPerSecond(1000), ..Load::default() }
}

fn route() -> Route {
    let prefix = "10.0.0.0/8".parse().unwrap();
    let (neighbour, med) = (Some(64_500), None);
    Route { prefix, class: Class::Private, is_static: false, path_len: 2, neighbour, med }
}

fn near_site() -> impl Strategy<Value = Near> {
    let steps = [Step::Prefix, Step::Class, Step::Path, Step::Med, Step::Place, Step::Name];
    let steps = prop::sample::select(steps.to_vec());
    let v4 = (any::<[u8; 3]>(), 0_u8..=32)
        .prop_map(|([a, b, c], len)| Prefix::new([a, b, c, 0].into(), len).unwrap().trunc());
    let v6 = (any::<[u16; 3]>(), 0_u8..=128).prop_map(|([a, b, c], len)| {
        Prefix::new([a, b, c, 0, 0, 0, 0, 0].into(), len).unwrap().trunc()
    });
    let classes = prop::sample::select(vec![Class::Embedded, Class::Private, Class::Public]);
    let numbers = (any::<u16>(), any::<Option<u32>>(), any::<Option<u32>>(), any::<bool>());
    let route = (prop_oneof![v4, v6], classes, numbers).prop_map(|(prefix, class, numbers)| {
        let (path_len, neighbour, med, is_static) = numbers;
        By::Route(Route { prefix, class, is_static, path_len, neighbour, med })
    });
    let shares = prop::sample::select(vec![Shares::City, Shares::Country, Shares::Nothing]);
    let place = (shares, any::<u32>()).prop_map(|(shares, km)| By::Place(Nearness { shares, km }));
    (any::<u32>(), prop_oneof![route, place], steps).prop_map(|(number, by, step)| Near {
        number,
        by,
        step,
    })
}

fn rank(
    view: &FleetView,
    version: &AssetVersionId,
    near: &[Near],
    draw: [u8; 8],
    among: Option<&[u32]>,
) -> RankedList {
    let version = Wanted::of(view, version);
    let query = Query { near, version, session: &draw, plain: false, among };
    steering::rank(view, &query, &CONFIG)
}

fn put(
    ledger: &mut Ledger,
    view: &Arc<FleetView>,
    version: &AssetVersionId,
    near: &[Near],
    draw: [u8; 8],
    among: Option<&[u32]>,
    list: &RankedList,
) {
    let kind = if among.is_some() { Kind::Steered } else { Kind::Begun };
    let answered = &Answered::of(view, list, among);
    let (at, plain) = (UnixSeconds(5), false);
    ledger.put(&Decision { kind, at, draw, plain, version, view, near, answered });
}

/// A seal that is quick, and that only this file makes.
fn sign(hash: &[u8; HASH_LEN]) -> [u8; SIGNATURE_LEN] {
    let mut seal = [0; SIGNATURE_LEN];
    blake3::Hasher::new_keyed(&[7; 32]).update(hash).finalize_xof().fill(&mut seal);
    seal
}

fn genuine(hash: &[u8; HASH_LEN], seal: &[u8; SIGNATURE_LEN]) -> bool {
    sign(hash) == *seal
}

fn spread(n: u64) -> u64 {
    mix(n.wrapping_mul(GOLDEN))
}
