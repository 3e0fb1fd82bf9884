//! A director that follows another's desired state.

use super::tests::{
    CONFIG, STEERING, at, hold, id, played, probes, put_version, report, running, seen, whole,
};
use super::*;
use drain::Drain;
use model::inventory::Delta;
use model::units::Bytes;
use proptest::prelude::*;

#[test]
fn a_replica_answers_players_as_its_writer_does_from_what_it_observes_itself() {
    let (mut writer, mut replica) = fleet_and_replica();
    assert_eq!(replica.snapshot().catalog.version_count(), 1);
    for director in [&mut writer, &mut replica] {
        hold(director, "a1", &[1, 2]);
        hold(director, "b1", &[1, 2]);
    }
    assert_eq!(played(&replica), played(&writer));
    let ticket = tests::ticket(&["b1", "a1"]);
    let steered = replica.snapshot().steer(&ticket, &STEERING);
    assert_eq!(steered, [&id("a1"), &id("b1")], "the site of the client first");

    let same = Delta { from: 1, to: 1, ..Delta::default() };
    replica.report(at(1000), &id("b1"), &Report { inventory: same, ..report(30) }).unwrap();
    replica.handle(at(2400), Event::Tick(UnixSeconds(2)));
    assert_eq!(probes(&mut replica), 2, "it asks for itself whether anybody answers");
    let steered = replica.snapshot().steer(&ticket, &STEERING);
    assert_eq!(steered, [&id("b1")], "it notices by itself who is gone");
}

#[test]
fn a_replica_wants_nothing_stored_and_publishes_no_manifest() {
    let (_, mut replica) = fleet_and_replica();
    for (i, usable) in (40..).zip([1 << 30, 1 << 40, 4096]) {
        let report = Report { usable: Bytes(usable), ..report(i) };
        let reply = replica.report(at(0), &id("a1"), &report).unwrap();
        assert_eq!(reply.generation, Generation(0), "manifests are fetched from the writer");
    }
    replica.handle(at(5000), Event::Tick(UnixSeconds(5)));
    let wanted: Vec<Action> = std::iter::from_fn(|| replica.poll()).collect();
    assert!(
        wanted.iter().all(|a| matches!(a, Action::Tell(_) | Action::Probe { .. })),
        "{wanted:?}"
    );
    assert_eq!(replica.manifest(&id("a1")), Ok(None));
    assert_eq!(replica.counters().placements, 0);
}

#[test]
fn what_was_observed_outlives_another_desired_state() {
    let (mut writer, mut replica) = fleet_and_replica();
    hold(&mut replica, "a1", &[1, 2, 3]);
    put_version(&mut writer, "film-2", &[2, 3], 2);
    follow(&mut replica, &writer);
    assert_eq!(seen(&replica, "a1").health, Health::Healthy);
    let complete: Vec<String> = whole(&replica, "a1").iter().map(ToString::to_string).collect();
    assert_eq!(complete, ["film-1", "film-2"], "without another report");
    assert_eq!(played(&replica).0, "film-2");

    writer.handle(at(0), Event::Changed(Change::ApplianceGone(id("a1"))));
    follow(&mut replica, &writer);
    assert!(replica.snapshot().view.appliance(&id("a1")).is_none());
    assert_eq!(replica.report(at(0), &id("a1"), &report(90)), Err(NotRegistered));
}

#[test]
fn a_version_that_came_back_with_other_files_is_held_by_nobody_before_it_is_told() {
    let (_, mut replica) = fleet_and_replica();
    hold(&mut replica, "a1", &[1, 2]);
    assert_eq!(whole(&replica, "a1").len(), 1);
    // It was taken down and brought anew, both between two looks.
    let mut writer = running(&["a1", "b1"]);
    put_version(&mut writer, "film-1", &[2, 3], 1);
    follow(&mut replica, &writer);
    assert_eq!(whole(&replica, "a1").len(), 0);
    let held = [2, 3].map(tests::object).to_vec();
    let inventory = Delta { to: 1, held, ..Delta::default() };
    replica.report(at(0), &id("a1"), &Report { inventory, ..report(21) }).unwrap();
    assert_eq!(whole(&replica, "a1").len(), 1);
}

#[test]
fn a_replica_follows_a_drain_at_once_and_sees_for_itself_how_far_it_has_come() {
    let (mut writer, mut replica) = fleet_and_replica();
    [&mut writer, &mut replica].into_iter().for_each(|of| hold(of, "a1", &[1, 2]));
    let drain = |drain| Event::Changed(Change::Drain(id("a1"), drain));
    writer.handle(at(0), drain(Some(Drain { from: UnixSeconds(0), until: None })));
    follow(&mut replica, &writer);
    assert_eq!(seen(&replica, "a1").health, Health::Draining);
    let same = || Delta { from: 1, to: 1, ..Delta::default() };
    let later = Report { inventory: same(), ..report(30) };
    replica.report(at(20_000), &id("a1"), &later).unwrap();
    assert_eq!(seen(&replica, "a1").health, Health::Drained);
    assert_eq!(seen(&writer, "a1").health, Health::Draining, "it has heard nothing since");
    writer.handle(at(20_000), drain(None));
    follow(&mut replica, &writer);
    replica.report(at(20_000), &id("a1"), &Report { sequence: 31, ..later }).unwrap();
    assert_eq!(seen(&replica, "a1").health, Health::Healthy);
}

#[test]
fn an_appliance_with_a_newer_manifest_than_the_replica_knows_of_is_no_news() {
    let (_, mut replica) = fleet_and_replica();
    let ahead = Report { generation: Generation(99), ..report(50) };
    replica.report(at(0), &id("a1"), &ahead).unwrap();
    assert_eq!(replica.appliances(at(0))[&id("a1")].cause, Cause::None);
}

#[test]
fn appliances_are_told_intervals_of_their_own() {
    let names: Vec<String> = (0..100).map(|i| format!("a{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut director = running(&names);
    let mut interval =
        |name: &&str| director.report(at(0), &id(name), &report(2)).unwrap().interval;
    let intervals: Vec<Nanos> = names.iter().map(&mut interval).collect();
    let (least, most) = (*intervals.iter().min().unwrap(), *intervals.iter().max().unwrap());
    assert!(Nanos::millis(450) <= least && least < Nanos::millis(460), "{least:?}");
    assert!(Nanos::millis(540) < most && most <= Nanos::millis(550), "{most:?}");
    assert_eq!(interval(&names[7]), intervals[7], "the same each time");
}

proptest! {
    #[test]
    fn an_interval_is_off_by_no_more_than_a_tenth(ms in 100_u64..60_000, name in "[a-z]{1,20}") {
        let interval = reply::spread(Nanos::millis(ms), &id(&name)).0;
        let whole = Nanos::millis(ms).0;
        prop_assert!((whole - whole / 10..=whole + whole / 10).contains(&interval));
    }
}

/// A writer with a film on two sites, and a replica that has just heard of it.
fn fleet_and_replica() -> (Director, Director) {
    let mut writer = running(&["a1", "b1"]);
    put_version(&mut writer, "film-1", &[1, 2], 1);
    let mut replica = Director::replica(CONFIG, at(0));
    assert_eq!(replica.report(at(0), &id("a1"), &report(1)), Err(NotRegistered));
    follow(&mut replica, &writer);
    assert_eq!(replica.generation(), writer.generation());
    (writer, replica)
}

fn follow(replica: &mut Director, writer: &Director) {
    let desired = Box::new(writer.desired().clone());
    replica.handle(at(0), Event::Replaced { desired, generation: writer.generation() });
}
