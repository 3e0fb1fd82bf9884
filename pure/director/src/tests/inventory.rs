use super::*;
use model::inventory::{Check, FilesDelta};
use proptest::collection::vec;
use proptest::prelude::*;

#[test]
fn older_reports_change_nothing() {
    let mut director = running(&["a1"]);
    let with = |start_id, sequence, connections| Report {
        start_id,
        load: Load { connections, ..Load::default() },
        ..report(sequence)
    };
    let connections = |director: &mut Director, report: Report| {
        director.report(at(0), &id("a1"), &report).unwrap();
        director.handle(at(0), Event::Tick(UnixSeconds(1)));
        seen(director, "a1").load.connections
    };
    assert_eq!(connections(&mut director, with(1, 5, 50)), 50);
    assert_eq!(connections(&mut director, with(1, 4, 40)), 50, "an older sequence");
    assert_eq!(connections(&mut director, with(1, 5, 55)), 50, "the same again");
    assert_eq!(connections(&mut director, with(2, 1, 10)), 10, "a new start");
    assert_eq!(connections(&mut director, with(1, 6, 60)), 10, "the process before it");
    assert_eq!(director.counters().reports_late, 3);
}

#[test]
fn inventory_deltas_add_up_and_gaps_are_asked_for_again() {
    let mut director = running(&["a1"]);
    put_version(&mut director, "film-1", &[1, 2], 1);
    let mut sequence = 10;
    let mut tell = |from, to, held: &[u8], gone: &[u8]| {
        sequence += 1;
        let objects = |list: &[u8]| list.iter().map(|n| object(*n)).collect();
        let (held, gone) = (objects(held), objects(gone));
        let inventory = Delta { from, to, held, gone, check: None };
        let report = Report { inventory, ..report(sequence) };
        let reply = director.report(at(0), &id("a1"), &report).unwrap();
        (reply.inventory, whole(&director, "a1").len())
    };
    assert_eq!(tell(0, 5, &[1], &[]), (5, 0));
    assert_eq!(tell(5, 6, &[2, 3], &[]), (6, 1));
    assert_eq!(tell(5, 7, &[4], &[1]), (6, 1), "a delta from elsewhere is left out");
    assert_eq!(tell(6, 7, &[], &[1]), (7, 0));
    assert_eq!(tell(7, 8, &[1], &[3]), (8, 1));
    assert_eq!(tell(0, 9, &[2], &[]), (9, 0), "a full list replaces all");
}

#[test]
fn a_new_start_forgets_the_inventory_until_it_is_told_again() {
    let mut director = running(&["a1"]);
    let reply = |director: &mut Director, start_id, delta| {
        let report = Report { start_id, inventory: delta, ..report(50) };
        director.report(at(0), &id("a1"), &report).unwrap().inventory
    };
    let full = Delta { to: 3, held: vec![object(1)], ..Delta::default() };
    assert_eq!(reply(&mut director, 7, full.clone()), 3);
    assert_eq!(reply(&mut director, 8, Delta { from: 3, to: 4, ..Delta::default() }), 0);
    assert_eq!(reply(&mut director, 9, full), 3);
}

#[test]
fn a_silent_difference_in_an_inventory_is_noticed_and_heals_by_one_full_list() {
    let mut director = running(&["a1"]);
    put_version(&mut director, "film-1", &[1, 2], 1);
    let mut sequence = 10;
    let mut tell = |seconds: u64, from, to, held: &[u8], all: &[u8]| {
        sequence += 1;
        let objects = |list: &[u8]| list.iter().map(|n| object(*n)).collect();
        let check = Some(Check::of(&all.iter().map(|n| object(*n)).collect::<Vec<_>>()));
        let inventory = Delta { from, to, held: objects(held), gone: vec![], check };
        let report = Report { inventory, ..report(sequence) };
        let reply = director.report(at(seconds * 1000), &id("a1"), &report).unwrap();
        let complete = whole(&director, "a1").len();
        (reply.inventory, complete, director.counters().inventory_differences)
    };
    assert_eq!(tell(0, 0, 5, &[1], &[1]), (5, 0, 0));
    assert_eq!(tell(1, 5, 6, &[3], &[1, 2, 3]), (0, 0, 1), "that 2 came was never told");
    assert_eq!(tell(2, 0, 6, &[1, 2, 3], &[1, 2, 3]), (6, 1, 1), "all is asked for, and told");
    assert_eq!(tell(3, 6, 6, &[], &[1, 2, 3]), (6, 1, 1));
    // One whose full list is not what it says: that costs a list now and then, and no more.
    assert_eq!(tell(4, 6, 7, &[], &[1, 2]), (7, 1, 2), "not again so soon");
    assert_eq!(tell(301, 7, 8, &[], &[1, 2]), (0, 1, 3));
    assert_eq!(tell(302, 0, 8, &[1, 2, 3], &[1, 2]), (8, 1, 4));
    assert_eq!(tell(303, 8, 9, &[], &[1, 2]), (9, 1, 5));
}

/// A director with a version of three files, which have the numbers from 700 on, and what comes of
/// a report of these: the state that is known, whether the version is whole, and differences.
fn by_number() -> (Director, impl FnMut(&mut Director, FilesDelta) -> (u64, usize, u64)) {
    let mut director = running(&["a1"]);
    put_numbered(&mut director, "film-1", &[1, 2, 3], 700);
    let mut sequence = 10;
    let tell = move |director: &mut Director, files| {
        sequence += 1;
        let report = told(files, sequence);
        let reply = director.report(at(0), &id("a1"), &report).unwrap();
        let differences = director.counters().inventory_differences;
        (reply.inventory, whole(director, "a1").len(), differences)
    };
    (director, tell)
}

#[test]
fn who_holds_what_follows_the_catalogue_whoever_is_looked_at() {
    const NUMBERS: [u8; 4] = [0, 1, 1, 2];
    let mut director = running(&["a1", "b1"]);
    let put = |director: &mut Director, name: &str, objects: &[u8], first: u32| {
        put_divided(director, name, objects, &NUMBERS[..objects.len()], first.into());
        let known = director.desired().catalog.version(&name.parse().unwrap()).unwrap();
        let version = Version::clone(known).numbered(Some(first));
        director.handle(at(0), Event::Changed(Change::Version(Arc::new(version))));
        settle(director);
    };
    put(&mut director, "film-1", &[1, 2, 3, 4], 700);
    put(&mut director, "film-2", &[5, 6, 7, 8], 704);
    for (name, came) in [("a1", 700..708), ("b1", 700..703)] {
        let came: NumberSet = came.collect();
        let files = FilesDelta { to: 1, check: Check::of_files(&came), came, ..Default::default() };
        director.report(at(0), &id(name), &told(files, 20)).unwrap();
    }
    let found = |director: &Director| {
        let names = |name| whole(director, name).iter().map(ToString::to_string).collect();
        let (a, b): (Vec<String>, Vec<String>) = (names("a1"), names("b1"));
        let view = Arc::clone(&director.snapshot().view);
        let parts = view.partial_holders.iter().map(|holders| holders.count()).sum::<u32>();
        (a.join(" "), b.join(" "), parts)
    };
    assert_eq!(found(&director), ("film-1 film-2".into(), String::new(), 1));
    put(&mut director, "film-3", &[9, 10, 11, 12], 708);
    assert_eq!(found(&director), ("film-2".into(), String::new(), 0), "two are kept");
    put(&mut director, "film-4", &[], 712);
    assert_eq!(found(&director), ("film-4".into(), "film-4".into(), 0), "nothing is missing");
}

/// A report of these, as it is read.
fn told(files: FilesDelta, sequence: u64) -> Report {
    Report { came: Check::of_files(&files.came), files: Some(files), ..report(sequence) }
}

fn put_numbered(director: &mut Director, name: &str, objects: &[u8], first: u32) {
    put_version(director, name, objects, u64::from(first));
    let known = director.desired().catalog.version(&name.parse().unwrap()).unwrap();
    let version = Version::clone(known).numbered(Some(first));
    director.handle(at(0), Event::Changed(Change::Version(Arc::new(version))));
    settle(director);
}

/// What came and is gone, and all that is held then.
fn files(from: u64, to: u64, came: &[u32], gone: &[u32], all: &[u32]) -> FilesDelta {
    let set = |files: &[u32]| files.iter().copied().collect::<NumberSet>();
    let check = Check::of_files(&set(all));
    FilesDelta { from, to, came: set(came), gone: set(gone), check, others: 5 }
}

#[test]
fn deltas_by_number_add_up_and_gaps_are_asked_for_again() {
    let (mut director, mut tell) = by_number();
    let director = &mut director;
    assert_eq!(tell(director, files(3, 4, &[], &[], &[])), (0, 0, 0), "nothing is known yet");
    assert_eq!(tell(director, files(0, 5, &[700], &[], &[700])), (5, 0, 0));
    assert_eq!(director.appliances(at(0))[&id("a1")].objects_held, 6, "with those of no version");
    let two = [701, 702];
    assert_eq!(tell(director, files(5, 6, &two, &[], &[700, 701, 702])), (6, 1, 0));
    assert_eq!(tell(director, files(5, 7, &[], &two, &[700])), (6, 1, 0), "from elsewhere");
    assert_eq!(tell(director, files(6, 7, &[], &two, &[700])), (7, 0, 0));
    assert_eq!(tell(director, files(0, 9, &[700, 701, 702], &[], &[700, 701, 702])), (9, 1, 0));
}

#[test]
fn what_came_and_went_at_once_is_held_and_what_changed_nothing_counts_once() {
    let (mut director, mut tell) = by_number();
    let director = &mut director;
    assert_eq!(tell(director, files(0, 5, &[700], &[], &[700])), (5, 0, 0));
    let all = [700, 701, 702];
    assert_eq!(tell(director, files(5, 6, &[700, 701, 702], &[700, 9], &all)), (6, 1, 0));
    assert_eq!(tell(director, files(6, 7, &all, &[], &all)), (7, 1, 0), "told twice");
    assert_eq!(tell(director, files(7, 8, &[8, 9], &all, &[8, 9])), (8, 0, 0));
    let both: Vec<u32> = (0..1 << 16).collect();
    assert_eq!(tell(director, files(8, 9, &both, &both, &both)), (9, 1, 0));
    assert_eq!(tell(director, files(9, 10, &[], &both, &[])), (10, 0, 0));
    assert_eq!(director.appliances(at(0))[&id("a1")].objects_held, 5, "those of no version");
}

#[test]
fn a_lost_delta_is_seen_with_the_next_report_and_all_is_asked_for() {
    let (mut director, mut tell) = by_number();
    let director = &mut director;
    assert_eq!(tell(director, files(0, 5, &[700], &[], &[700])), (5, 0, 0));
    assert_eq!(tell(director, files(5, 6, &[702], &[], &[700, 701, 702])), (0, 0, 1));
    assert_eq!(tell(director, files(0, 6, &[700, 701, 702], &[], &[700, 701, 702])), (6, 1, 1));
}

#[test]
fn all_that_is_held_counts_for_nothing_if_its_own_check_does_not_fit() {
    let (mut director, mut tell) = by_number();
    let director = &mut director;
    let all = [700, 701, 702];
    assert_eq!(tell(director, files(0, 5, &all, &[], &[700, 701])), (0, 0, 1));
    assert_eq!(tell(director, files(0, 5, &all, &[], &all)), (5, 1, 1));
}

#[test]
fn ids_follow_numbers_and_numbers_ids_by_a_full_list_alone() {
    let (mut director, mut tell) = by_number();
    let held = [1, 2, 3].map(object).to_vec();
    let mut sequence = 100;
    let mut name = |director: &mut Director, from| {
        sequence += 1;
        let held = if from == 0 { held.clone() } else { Vec::new() };
        let inventory = Delta { from, to: 6, held, ..Delta::default() };
        let report = Report { inventory, ..report(sequence) };
        let reply = director.report(at(0), &id("a1"), &report).unwrap();
        (reply.inventory, whole(director, "a1").len())
    };
    let director = &mut director;
    assert_eq!(tell(director, files(0, 5, &[700], &[], &[700])), (5, 0, 0));
    assert_eq!(name(director, 5), (0, 0), "a delta of another kind");
    assert_eq!(name(director, 0), (6, 1));
    drop(tell);
    let report = told(files(6, 7, &[], &[700], &[701, 702]), 200);
    assert_eq!(director.report(at(0), &id("a1"), &report).unwrap().inventory, 0);
    assert_eq!(whole(director, "a1").len(), 1);
}

#[test]
fn numbers_of_files_that_are_not_known_wait_for_their_version() {
    let (mut director, mut tell) = by_number();
    let director = &mut director;
    assert_eq!(tell(director, files(0, 5, &[7, 900, 901], &[], &[7, 900, 901])), (5, 0, 0));
    put_numbered(director, "film-2", &[4, 5], 900);
    assert_eq!(whole(director, "a1").len(), 1);
    let gone = vec!["film-2".parse().unwrap()];
    director.handle(at(0), Event::Changed(Change::Superseded(gone)));
    assert_eq!(tell(director, files(5, 6, &[], &[900], &[7, 901])), (6, 0, 0), "its check fits");
}

#[test]
fn numbers_that_were_never_given_out_cost_nobody_but_who_tells_them() {
    let names: Vec<String> = (10..60).map(|n| format!("a{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut director = running(&names);
    put_numbered(&mut director, "film-1", &[1, 2, 3], 700);
    for name in &names {
        let report = told(files(0, 5, &[700], &[], &[700]), 20);
        director.report(at(0), &id(name), &report).unwrap();
    }
    let look = |director: &mut Director, sequence, (name, all): (&str, &[u32])| {
        let report = told(files(0, 6, all, &[], all), sequence);
        director.report(at(0), &id(name), &report).unwrap();
        let before = director.told_files.looked_at;
        let first = u32::try_from(sequence).unwrap() * 100;
        put_numbered(director, &format!("film-{sequence}"), &[4, 5], first);
        director.told_files.looked_at - before
    };
    assert_eq!(look(&mut director, 30, ("a10", &[700])), 0);
    assert!(look(&mut director, 31, ("a10", &[700, 2_000_000_000])) < 5);
    assert!(look(&mut director, 32, ("a11", &[3200, 3201])) < 5);
    assert_eq!(whole(&director, "a11"), ["film-32".parse().unwrap()].into(), "though told before");
    assert!(look(&mut director, 33, ("a11", &[3200])) < 5);
    assert_eq!(look(&mut director, 34, ("a10", &[])), 0, "nobody tells such numbers any more");
}

#[test]
fn numbers_of_a_manifest_that_this_control_never_gave_out_are_not_believed() {
    let (mut director, mut tell) = by_number();
    let all = files(0, 5, &[700, 701, 702], &[], &[700, 701, 702]);
    assert_eq!(tell(&mut director, all.clone()), (5, 1, 0));
    let newer = Generation(manifest(&director, "a1").generation.0 + 1);
    let report = Report { generation: newer, ..told(all, 50) };
    assert_eq!(director.report(at(0), &id("a1"), &report).unwrap().inventory, 0);
    assert_eq!(whole(&director, "a1").len(), 0, "it may be of before a backup was restored");
}

#[test]
fn a_manifest_has_the_numbers_of_all_its_versions_or_none() {
    let mut director = running(&["a1"]);
    put_numbered(&mut director, "film-1", &[1, 2, 3], 700);
    let numbers = manifest(&director, "a1").numbers.clone();
    assert_eq!(numbers, BTreeMap::from([("film-1".parse().unwrap(), 700.into())]));
    put_version(&mut director, "series-1", &[4], 701);
    let manifest = manifest(&director, "a1");
    assert_eq!((manifest.versions.len(), manifest.numbers.len()), (2, 0));
}

proptest! {
    #[test]
    fn what_is_complete_is_right_while_versions_come_and_go(
        steps in vec((any::<bool>(), vec(0_u8..6, 1..4), vec(0_u8..6, 0..4)), 1..16)
    ) {
        let mut director = running(&["a1"]);
        let (mut held, mut versions) = (BTreeSet::new(), Vec::new());
        for (i, (is_version, came, went)) in (0_u64..).zip(&steps) {
            if *is_version {
                let name = format!("film-{i}");
                put_version(&mut director, &name, came, i);
                versions.push((name, came));
            }
            let objects = |list: &[u8]| list.iter().map(|n| object(*n)).collect::<Vec<_>>();
            let (came, gone) = if *is_version { (&vec![], &vec![]) } else { (came, went) };
            gone.iter().for_each(|n| { held.remove(n); });
            held.extend(came.iter().copied());
            let all: Vec<u8> = held.iter().copied().collect();
            // Now and then all is told.
            let (from, told) = if i % 4 == 0 { (0, &all) } else { (i, came) };
            let inventory = Delta {
                from, to: i + 1, held: objects(told), gone: objects(gone), check: None,
            };
            director.report(at(0), &id("a1"), &Report { inventory, ..report(10 + i) }).unwrap();
            let complete = whole(&director, "a1");
            let kept = versions.iter().rev().take(2);
            let all_held = kept.filter(|(_, objects)| objects.iter().all(|n| held.contains(n)));
            let whole: BTreeSet<AssetVersionId> =
                all_held.map(|(name, _)| name.parse().unwrap()).collect();
            prop_assert_eq!(complete, whole);
        }
    }

    #[test]
    fn what_a_delta_completes_is_what_a_recount_finds(
        deltas in vec(
            (vec(0_u8..6, 0..4), vec(0_u8..6, 0..4)), 1..12)
    ) {
        let mut director = running(&["a1"]);
        put_version(&mut director, "film-1", &[0, 1, 2], 1);
        put_version(&mut director, "film-2", &[2, 3], 2);
        let mut model = BTreeSet::new();
        for (i, (held, gone)) in (0_u64..).zip(&deltas) {
            let objects = |list: &[u8]| list.iter().map(|n| object(*n)).collect::<Vec<_>>();
            let (came, went) = (objects(held), objects(gone));
            let inventory = Delta { from: i, to: i + 1, held: came, gone: went, check: None };
            director.report(at(0), &id("a1"), &Report { inventory, ..report(10 + i) }).unwrap();
            gone.iter().for_each(|n| if i != 0 { model.remove(n); });
            model.extend(held.iter().copied());
            let complete = whole(&director, "a1");
            let has = |objects: &[u8]| objects.iter().all(|n| model.contains(n));
            prop_assert_eq!(complete.contains("film-1"), has(&[0, 1, 2]));
            prop_assert_eq!(complete.contains("film-2"), has(&[2, 3]));
        }
    }
}
