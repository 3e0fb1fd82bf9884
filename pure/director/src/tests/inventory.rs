use super::*;

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
