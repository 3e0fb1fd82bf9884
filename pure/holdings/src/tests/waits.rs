use super::*;

use model::hours::{FillRules, NEVER};

fn claimed(holdings: &mut Holdings, now: Instant) -> Claim {
    plan(holdings, now);
    holdings.next_fetch().expect("something is to be fetched")
}

#[test]
fn what_waits_for_a_master_comes_again_when_it_is_time_and_its_waits_do_not_grow() {
    let mut holdings = holdings();
    holdings.set_manifest(manifest(1, &[1]));
    let mut now = at(0);
    for _ in 0..4 {
        let claim = claimed(&mut holdings, now);
        holdings.wait_for_master(now, &claim, Nanos::seconds(3));
        assert_eq!((holdings.objects_waiting(), holdings.busy().len()), (1, 0));
        plan(&mut holdings, now + Nanos::millis(2999));
        assert_eq!(fetched(&mut holdings), None);
        now = now + Nanos::seconds(3);
    }
    // A failure afterwards is the first one.
    let claim = claimed(&mut holdings, now);
    holdings.done(now, &claim, &[object(1)]);
    assert_eq!(holdings.objects_waiting(), 0);
    let claim = claimed(&mut holdings, now + Nanos::seconds(2));
    holdings.wait_for_master(now, &claim, Nanos::seconds(3));
    holdings.publish(object(1), on(0, 1), None);
    assert_eq!(holdings.objects_waiting(), 0);
}

#[test]
fn others_are_fetched_while_one_waits_and_a_new_manifest_lets_it_ask_at_once() {
    let mut holdings = holdings();
    holdings.set_manifest(manifest(1, &[1, 2]));
    let claim = claimed(&mut holdings, at(0));
    holdings.wait_for_master(at(0), &claim, Nanos::seconds(30));
    assert_eq!(fetched(&mut holdings), Some(object(2)));
    holdings.release(object(2));
    holdings.set_manifest(manifest(2, &[1, 2]));
    assert_eq!(holdings.objects_waiting(), 0);
    assert_eq!(claimed(&mut holdings, at(0)).fetch[0].object, object(1));
}

#[test]
fn of_a_unit_what_is_held_does_not_wait_and_the_rest_stays_together() {
    let mut holdings = packing(100);
    holdings.set_manifest(manifest(1, &[1, 2, 3]));
    let claim = claimed(&mut holdings, at(0));
    holdings.publish(object(1), on(0, 1), None);
    holdings.wait_for_master(at(0), &claim, Nanos::seconds(1));
    assert_eq!((holdings.objects_waiting(), holdings.busy().len()), (2, 0));
    plan(&mut holdings, at(1));
    assert_eq!(together(&mut holdings), [2, 3]);
}

#[test]
fn a_part_of_a_unit_that_waits_is_kept_and_gone_on_with() {
    let mut holdings = packing(100);
    holdings.set_manifest(manifest(1, &[1, 2, 3]));
    let claim = claimed(&mut holdings, at(0));
    let part = Part { drive: DRIVE, verified: LEN };
    holdings.set_part(claim.parcel().part(), Some(part));
    holdings.wait_for_master(at(0), &claim, Nanos::seconds(3));
    assert_eq!(plan(&mut holdings, at(1)).drop_parts, []);
    assert_eq!(plan(&mut holdings, at(3)).drop_parts, []);
    let claim = holdings.next_fetch().expect("it is time");
    assert_eq!((claim.fetch.len(), claim.part), (3, Some(part)));
    // Of one that nobody wants any more it goes.
    holdings.wait_for_master(at(3), &claim, Nanos::seconds(3));
    holdings.set_manifest(manifest(2, &[4]));
    assert_eq!(plan(&mut holdings, at(4)).drop_parts.len(), 1);
}

#[test]
fn a_part_of_a_unit_that_waits_goes_if_all_of_it_comes_another_way() {
    let mut holdings = packing(100);
    holdings.set_manifest(manifest(1, &[1, 2, 3]));
    let claim = claimed(&mut holdings, at(0));
    let part = claim.parcel().part();
    holdings.set_part(part, Some(Part { drive: DRIVE, verified: LEN }));
    holdings.wait_for_master(at(0), &claim, Nanos::seconds(3));
    (1..=3).for_each(|n| holdings.publish(object(n), on(0, 1), None));
    assert_eq!(plan(&mut holdings, at(1)).drop_parts, [(part, DRIVE)]);
}

#[test]
fn a_unit_waits_once_for_one_of_it_of_which_some_is_there() {
    let mut holdings = packing(100);
    holdings.set_manifest(manifest(1, &[1, 2, 3]));
    let claim = claimed(&mut holdings, at(0));
    let part = Part { drive: DRIVE, verified: LEN };
    holdings.set_part(claim.parcel().part(), Some(part));
    holdings.wait_within(at(0), &claim, object(2));
    assert_eq!(holdings.objects_waiting(), 0, "for no master");
    assert_eq!(plan(&mut holdings, at(1)).drop_parts, []);
    assert_eq!(fetched(&mut holdings), None);
    let claim = claimed(&mut holdings, at(2));
    assert_eq!((claim.fetch.len(), claim.part), (3, Some(part)));
    let failed = [1, 2, 3].map(|n| holdings.was_given_up(&object(n)));
    assert_eq!(failed, [false, true, false], "the next time nobody is kept back for it");
}

#[test]
fn a_plan_is_due_when_something_may_be_asked_about_but_once_a_second() {
    let mut holdings = holdings();
    holdings.set_manifest(manifest(1, &[1]));
    let claim = claimed(&mut holdings, at(10));
    assert_eq!(holdings.plan_in(at(10), at(10)), PLAN_EVERY);
    holdings.take_news();
    holdings.wait_for_master(at(10), &claim, Nanos::seconds(2));
    assert!(holdings.take_news(), "the planner may sleep");
    assert_eq!(holdings.plan_in(at(10), at(10)), Nanos::seconds(2));
    assert_eq!(holdings.plan_in(at(12), at(10)), Nanos(0));
    assert_eq!(holdings.plan_in(at(12), at(12)), Nanos::seconds(1), "a plan was just made");
}

#[test]
fn so_many_are_asked_about_again_in_a_second_and_the_others_later() {
    let all: Vec<u8> = (0..100).collect();
    let plan_config = plan::Config { fetch_max: 200, evict_max: 2, urls_max: 1 };
    let mut holdings = Holdings::new(Config { plan: plan_config, ..holdings().config });
    holdings.set_manifest(manifest(1, &all));
    plan(&mut holdings, at(0));
    let mut ms = 0;
    while let Some(claim) = holdings.next_fetch() {
        ms += 1;
        let now = Instant(0) + Nanos::millis(ms);
        holdings.wait_for_master(now, &claim, Nanos::seconds(1));
    }
    assert_eq!((ms, holdings.objects_waiting()), (100, 100));
    let mut seen = Vec::new();
    for tenths in 0..50 {
        plan(&mut holdings, at(2) + Nanos::millis(tenths * 100));
        let asked = std::iter::from_fn(|| fetched(&mut holdings)).count();
        seen.push(asked);
    }
    let seconds: Vec<usize> = seen.chunks(10).map(|tenths| tenths.iter().sum()).collect();
    assert_eq!(seconds, [32, 32, 32, 4, 0]);
}

#[test]
fn an_object_is_lacked_since_the_first_question_while_fill_is_open() {
    let mut holdings = holdings();
    holdings.set_manifest(manifest(1, &[1, 2]));
    let lacked = |holdings: &mut Holdings, n, seconds| {
        holdings.lacked_for(at(seconds), object(n)).as_seconds()
    };
    assert_eq!(lacked(&mut holdings, 1, 10), 0);
    assert_eq!(lacked(&mut holdings, 1, 15), 5);
    let mut rules = FillRules::default();
    rules.hours.paused_until = Some(NEVER);
    holdings.set_rules(at(16), UnixSeconds(1_000), rules);
    assert_eq!(lacked(&mut holdings, 2, 16), 0);
    // A clock that is set meanwhile changes nothing.
    holdings.set_rules(at(116), UnixSeconds(9_100), FillRules::default());
    assert_eq!(lacked(&mut holdings, 1, 117), 7, "a hundred seconds do not count");
    // Of one that was first asked for while fill was closed neither.
    assert_eq!(lacked(&mut holdings, 2, 117), 1);
    holdings.set_manifest(manifest(2, &[1, 2]));
    assert_eq!(lacked(&mut holdings, 1, 118), 8, "a manifest that wants it changes nothing");
    holdings.publish(object(1), on(0, 1), None);
    holdings.hide(object(1));
    assert_eq!(lacked(&mut holdings, 1, 200), 0, "it was here");
}

#[test]
fn what_nobody_wants_any_more_is_forgotten() {
    let mut holdings = holdings();
    let all: Vec<u8> = (0..100).collect();
    holdings.set_manifest(manifest(1, &all));
    for n in &all {
        holdings.lacked_for(at(1), object(*n));
    }
    holdings.set_manifest(manifest(2, &[0]));
    for _ in 0..60 {
        holdings.lacked_for(at(1), object(0));
    }
    holdings.set_manifest(manifest(3, &all));
    assert_eq!(holdings.lacked_for(at(9), object(0)), Nanos::seconds(8));
    assert_eq!(holdings.lacked_for(at(9), object(99)), Nanos(0));
}
