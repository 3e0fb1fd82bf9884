use super::*;

#[test]
fn what_waits_to_be_fetched_goes_at_once_when_nobody_wants_it() {
    let mut holdings = holdings();
    holdings.set_manifest(manifest(1, &[1]));
    plan(&mut holdings, at(0));
    assert_eq!(fetched(&mut holdings), Some(object(1)));
    let part = PartId::Object(object(1));
    holdings.set_part(part, Some(Part { drive: DRIVE, verified: Bytes(1) }));
    holdings.set_manifest(manifest(2, &[]));
    holdings.postpone(at(0), object(1));
    assert_eq!(plan(&mut holdings, at(0)).drop_parts, [(part, DRIVE)], "no plan comes later");
}

#[test]
fn a_plan_is_due_again_while_there_is_a_part_of_what_is_held() {
    let mut holdings = holdings();
    holdings.set_manifest(manifest(1, &[1]));
    holdings.load(object(1), on(0, 1));
    plan(&mut holdings, at(0));
    assert_eq!(holdings.plan_in(at(60), at(0)), PLAN_EVERY, "all is held");
    let part = PartId::Object(object(1));
    holdings.set_part(part, Some(Part { drive: DriveIndex(1), verified: Bytes(1) }));
    assert_eq!(holdings.plan_in(at(60), at(0)), Nanos(0));
    assert_eq!(plan(&mut holdings, at(60)).drop_parts, [(part, DriveIndex(1))]);
}

#[test]
fn a_part_that_is_spare_makes_a_plan_due_though_nothing_is_wanted() {
    let mut holdings = holdings();
    holdings.set_manifest(manifest(1, &[1]));
    let (id, other) = (PartId::Object(object(1)), DriveIndex(1));
    holdings.load_part(id, DRIVE);
    plan(&mut holdings, at(0));
    // Its drive is back: an audit finds the object whole on it.
    holdings.publish(object(1), on(1, 1), None);
    assert_eq!(holdings.spare_parts().iter().copied().collect::<Vec<_>>(), [(id, DRIVE)]);
    assert_eq!(holdings.plan_in(at(0), at(0)), Nanos(0));
    assert_eq!(plan(&mut holdings, at(0)).drop_parts, [(id, DRIVE)]);
    holdings.dropped_part(id, DRIVE);
    assert_ne!(holdings.plan_in(at(0), at(0)), Nanos(0));
    // Or fill goes on with it elsewhere.
    holdings.set_part(id, Some(Part { drive: DRIVE, verified: Bytes(1) }));
    holdings.set_part(id, Some(Part { drive: other, verified: Bytes(1) }));
    assert_eq!(holdings.plan_in(at(0), at(0)), Nanos(0));
}

#[test]
fn of_two_parts_of_an_object_one_is_gone_on_with_and_the_other_goes() {
    let mut holdings = holdings();
    holdings.set_manifest(manifest(1, &[1]));
    let (id, other) = (PartId::Object(object(1)), DriveIndex(1));
    holdings.load_part(id, DRIVE);
    holdings.load_part(id, other);
    assert_eq!(holdings.parts()[&id].drive, DRIVE, "the first wins");
    assert_eq!(plan(&mut holdings, at(0)).drop_parts, [(id, other)]);
    holdings.dropped_part(id, other);
    assert!(holdings.spare_parts().is_empty() && holdings.parts().contains_key(&id));
    // Fill goes on elsewhere, since the drive does not answer, and comes back to it.
    let on = |drive| Some(Part { drive, verified: Bytes(1) });
    holdings.set_part(id, on(other));
    assert_eq!(plan(&mut holdings, at(0)).drop_parts, [(id, DRIVE)]);
    holdings.set_part(id, on(DRIVE));
    assert_eq!(plan(&mut holdings, at(0)).drop_parts, [(id, other)]);
    // The object is whole where neither is; and one drive goes, with all that is on it.
    holdings.publish(object(1), self::on(2, 1), None);
    assert_eq!(plan(&mut holdings, at(0)).drop_parts, [(id, DRIVE), (id, other)]);
    set_aside(&mut holdings, other);
    assert_eq!(plan(&mut holdings, at(0)).drop_parts, [(id, DRIVE)]);
}

#[test]
fn the_part_of_a_unit_is_gone_on_with_by_who_plans_the_same_and_dropped_otherwise() {
    let claim = |holdings: &mut Holdings| {
        plan(holdings, at(0));
        holdings.next_fetch().unwrap()
    };
    let mut first = packing(100);
    first.set_manifest(manifest(1, &[1, 2, 3]));
    let begun = claim(&mut first).parcel().part();
    let part = Part { drive: DRIVE, verified: Bytes(9) };
    first.set_part(begun, Some(part));
    assert_eq!(first.progress().bytes_partial, Bytes(9));
    assert_eq!(plan(&mut first, at(0)).drop_parts, [], "somebody fills it");

    let mut again = packing(100);
    again.load_part(begun, DRIVE);
    again.set_manifest(manifest(1, &[1, 2, 3]));
    assert_eq!(plan(&mut again, at(0)).drop_parts, []);
    assert_eq!(again.next_fetch().unwrap().part.map(|part| part.drive), Some(DRIVE));

    let mut other = packing(100);
    other.load_part(begun, DRIVE);
    other.set_manifest(manifest(1, &[1, 2, 4]));
    assert_eq!(plan(&mut other, at(0)).drop_parts, [(begun, DRIVE)]);
    assert!(other.claim_part(begun));
    other.set_part(begun, None);
    other.release_part(begun);
    assert_eq!(other.next_fetch().unwrap().part, None);
}

#[test]
fn the_part_of_an_object_that_appears_in_a_unit_of_that_drive_goes() {
    let mut holdings = packing(100);
    holdings.set_manifest(manifest(1, &[1, 2]));
    let id = |n| PartId::Object(object(n));
    [1, 2].into_iter().for_each(|n| holdings.load_part(id(n), DRIVE));
    holdings.publish(object(1), on(0, 1), None);
    assert!(holdings.spare_parts().is_empty(), "it has become the object");
    let file = unit::unit_file(&UnitId([9; 32]));
    holdings.publish(object(2), Extent { file, ..on(0, 2) }, None);
    assert_eq!(plan(&mut holdings, at(0)).drop_parts, [(id(2), DRIVE)]);
}

#[test]
fn a_spare_part_makes_a_plan_due_and_its_room_is_waited_for() {
    let mut holdings = holdings();
    holdings.set_manifest(manifest(1, &[1, 2]));
    let (id, other) = (PartId::Object(object(1)), DriveIndex(1));
    holdings.publish(object(1), on(0, 1), None);
    holdings.load(object(2), on(0, 2));
    plan(&mut holdings, at(0));
    assert_eq!(holdings.plan_in(at(5), at(0)), PLAN_EVERY);
    holdings.hide(object(1));
    for drive in [DRIVE, other] {
        holdings.set_part(id, Some(Part { drive, verified: Bytes(1) }));
    }
    holdings.publish(object(1), on(1, 1), None);
    plan(&mut holdings, at(0));
    assert_eq!(holdings.plan_in(at(5), at(0)), Nanos(0), "the spare one is still there");
    holdings.hide(object(2));
    let chores = holdings.plan(at(0), &[Bytes(1)]);
    assert_eq!(chores.drop_parts, [(id, DRIVE)]);
    let report = holdings.plan_report();
    assert_eq!((report.objects_without_room, report.objects_later), (0, 1));
    holdings.dropped_part(id, DRIVE);
    holdings.plan(at(0), &[Bytes(1)]);
    assert_eq!(holdings.plan_report().objects_without_room, 1);
}

#[test]
fn the_spare_part_is_gone_on_with_when_the_drive_of_the_other_goes() {
    let mut holdings = holdings();
    holdings.set_manifest(manifest(1, &[1, 2]));
    let (id, other) = (PartId::Object(object(1)), DriveIndex(1));
    [DRIVE, other].into_iter().for_each(|drive| holdings.load_part(id, drive));
    set_aside(&mut holdings, DRIVE);
    assert!(holdings.spare_parts().is_empty());
    assert_eq!(plan(&mut holdings, at(0)).drop_parts, []);
    let claim = holdings.next_fetch().expect("it is wanted");
    assert_eq!(claim.part.map(|part| part.drive), Some(other));
    // Whoever filled the lost one ends, and takes nothing along.
    holdings.dropped_part(id, DRIVE);
    assert_eq!(holdings.parts()[&id].drive, other);
}
