use super::*;

#[test]
fn the_last_of_the_queue_asks_for_the_next_plan() {
    let mut holdings = holdings();
    holdings.set_manifest(manifest(1, &[1, 2, 3]));
    plan(&mut holdings, at(0));
    assert!(holdings.take_news());
    assert_eq!(fetched(&mut holdings), Some(object(1)));
    assert!(!holdings.take_news());
    assert_eq!(fetched(&mut holdings), Some(object(2)));
    assert!(holdings.take_news(), "there is a third");
    assert_eq!(holdings.plan_in(at(0), at(0)), Nanos(0));
    plan(&mut holdings, at(0));
    assert_eq!((fetched(&mut holdings), fetched(&mut holdings)), (Some(object(3)), None));
    assert_eq!(holdings.plan_in(at(0), at(0)), PLAN_EVERY, "nothing is left to plan");
}

#[test]
fn a_plan_is_due_again_while_something_is_wanted_or_has_to_go() {
    let mut holdings = holdings();
    holdings.set_manifest(manifest(1, &[1]));
    assert_eq!(holdings.plan_in(at(0), at(0)), Nanos(0));
    plan(&mut holdings, at(0));
    assert_eq!(holdings.plan_in(at(2), at(0)), Nanos::seconds(3));
    assert_eq!(holdings.plan_in(at(5), at(0)), Nanos(0), "one object is wanted");
    holdings.load(object(1), on(0, 1));
    assert_eq!(holdings.plan_in(at(5), at(0)), PLAN_EVERY);
    holdings.put_off(1);
    assert_eq!(holdings.plan_in(at(5), at(0)), Nanos(0), "an eviction was put off");
    plan(&mut holdings, at(5));
    assert_eq!(holdings.plan_in(at(10), at(5)), PLAN_EVERY, "the plan has counted anew");
    holdings.hide(object(1));
    assert_eq!(holdings.plan_in(at(5), at(5)), Nanos(0), "what is wanted went");
}

#[test]
fn doubts_are_bounded_and_handed_over_once() {
    let mut holdings = holdings();
    (1..9).for_each(|n| holdings.suspect(object(n), Doubt::Suspect));
    let suspects = plan(&mut holdings, at(0)).suspects;
    assert_eq!(suspects.into_keys().collect::<Vec<_>>(), [object(1), object(2)]);
    assert!(plan(&mut holdings, at(0)).suspects.is_empty());
}

#[test]
fn a_doubt_goes_with_the_copy_that_was_doubted() {
    let mut holdings = holdings();
    holdings.set_manifest(manifest(1, &[1, 2]));
    (1..3).for_each(|n| holdings.load(object(n), on(0, n)));
    (1..3).for_each(|n| holdings.suspect(object(n), Doubt::Suspect));
    holdings.hide(object(1));
    holdings.publish(object(1), on(1, 1), None);
    holdings.relocate(object(2), on(1, 2));
    assert!(plan(&mut holdings, at(0)).suspects.is_empty(), "both lie elsewhere");
    // The same where it waits for the drive's hands.
    holdings.suspect(object(1), Doubt::Suspect);
    let chores = plan(&mut holdings, at(0));
    assert_eq!(chores.suspects.len(), 1);
    holdings.hand_out(chores);
    holdings.hide(object(1));
    holdings.publish(object(1), on(0, 1), None);
    assert_eq!(holdings.next_errand(DriveIndex(1)), None);
    // And where the drive's hands have it already.
    holdings.suspect(object(1), Doubt::Suspect);
    let chores = plan(&mut holdings, at(0));
    holdings.hand_out(chores);
    assert!(holdings.next_errand(DRIVE).is_some());
    assert!(holdings.is_doubted(DRIVE, &object(1)));
    holdings.hide(object(1));
    holdings.publish(object(1), on(0, 1), None);
    assert!(!holdings.is_doubted(DRIVE, &object(1)), "it was filled again meanwhile");
}

#[test]
fn small_objects_are_fetched_in_the_company_that_the_manifest_gives_them() {
    let mut holdings = packing(100);
    holdings.set_manifest(manifest(1, &[1, 2, 3, 4, 5, 6, 7]));
    holdings.load(object(4), on(0, 4));
    holdings.load_part(PartId::Object(object(2)), DRIVE);
    plan(&mut holdings, at(0));
    // What is held, or begun alone, changes nothing for the others.
    let all: Vec<_> = (0..5).map(|_| together(&mut holdings)).collect();
    assert_eq!(all, [&[1, 3][..], &[2], &[5, 6, 7], &[], &[]]);
}

#[test]
fn a_plan_that_is_cut_does_not_cut_a_unit_unless_that_is_all() {
    let mut holdings = packing(4);
    holdings.set_manifest(manifest(1, &[1, 2, 3, 4, 5, 6]));
    plan(&mut holdings, at(0));
    assert_eq!((together(&mut holdings), together(&mut holdings)), (vec![1, 2, 3], vec![]));
    assert!(holdings.take_news(), "there is more to plan");
    plan(&mut holdings, at(0));
    assert_eq!(together(&mut holdings), [4, 5, 6]);
    let mut holdings = packing(2);
    holdings.set_manifest(manifest(1, &[1, 2, 3]));
    plan(&mut holdings, at(0));
    assert_eq!(together(&mut holdings), [1, 2]);
}

#[test]
fn the_last_drive_that_there_may_be_has_its_errands_too() {
    let mut holdings = holdings();
    let last = DriveIndex::all(model::limits::DRIVES_MAX).last().unwrap();
    holdings.load(object(9), on(last.0, 9));
    holdings.set_manifest(manifest(1, &[7]));
    let free = [Bytes(1); model::limits::DRIVES_MAX];
    let chores = holdings.plan(at(0), &free);
    holdings.hand_out(chores);
    assert!(holdings.next_errand(last).is_some());
    holdings.errand_done(last, 1, 0);
    assert_eq!(holdings.plan_in(at(0), at(0)), Nanos(0), "all are done");
}

#[test]
fn a_drive_that_hangs_is_asked_for_nothing_and_holds_up_no_other() {
    let mut holdings = holdings();
    (1..5).for_each(|n| holdings.load(object(n), on(0, n)));
    holdings.load(object(9), on(1, 9));
    holdings.set_manifest(manifest(1, &[7]));
    holdings.withhold(DRIVE, true);
    let chores = plan(&mut holdings, at(0));
    assert_eq!(chores.evict, [(object(9), DriveIndex(1))]);
    assert_eq!(holdings.plan_report().evictions_later, 4);
    holdings.hand_out(chores);
    assert_eq!(holdings.next_errand(DRIVE), None);
    assert!(holdings.next_errand(DriveIndex(1)).is_some());
    assert_eq!(holdings.plan_in(at(0), at(0)), PLAN_EVERY);
    holdings.errand_done(DriveIndex(1), 1, 0);
    assert_eq!(holdings.plan_in(at(0), at(0)), Nanos(0), "all that answer are done");
    // Room that comes when it answers again is not waited for.
    holdings.hide(object(9));
    holdings.plan(at(0), &[Bytes(1)]);
    assert_eq!(holdings.plan_report().objects_without_room, 1);
}
