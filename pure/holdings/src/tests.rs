use super::*;
use crate::files::Files;
use crate::planning::PLAN_EVERY;
use fill::gap::Gap;
use model::inventory::Check;
use model::manifest::{AssetVersion, File, Trust};
use model::number::NumberSet;
use model::units::{Nanos, UnixSeconds};
use proptest::prelude::*;
use store::unit;

const DRIVE: DriveIndex = DriveIndex(0);
const LEN: Bytes = Bytes::kib(60);

/// A drive goes, and all its objects leave the index.
fn set_aside(holdings: &mut Holdings, drive: DriveIndex) {
    holdings.let_go(drive);
    while holdings.forget_some(SLICE) {}
}

fn holdings() -> Holdings {
    Holdings::new(Config {
        plan: plan::Config { fetch_max: 2, evict_max: 2, urls_max: 1 },
        inventory_changes_max: 16,
        suspects_max: 2,
        small_budget: Bytes::kib(100),
        unit_len: None,
    })
}

fn object(n: u8) -> ObjectId {
    ObjectId([n; 32])
}

fn on(drive: u8, n: u8) -> Extent {
    let (drive, file) = (DriveIndex(drive), layout::object_file(&object(n)));
    Extent { drive, file, offset: Bytes::ZERO, len: LEN }
}

fn manifest(generation: u64, objects: &[u8]) -> Arc<Manifest> {
    let file = |n: &u8| File { object: object(*n), len: LEN, content_type: "video/mp4".into() };
    let version = AssetVersion {
        id: "film-1".parse().expect("a name"),
        asset: "film".parse().expect("a name"),
        sources: vec!["https://origin.example/film".into()],
        modified: UnixSeconds(0),
        pace: None,
        files: objects.iter().map(|n| (format!("{n}.mp4"), file(n))).collect(),
    };
    Arc::new(Manifest {
        appliance: "a1".parse().expect("a name"),
        generation: Generation(generation),
        token_keys: Vec::new(),
        trust: Trust::default(),
        numbers: BTreeMap::new(),
        siblings: BTreeMap::new(),
        site: Vec::new(),
        versions: vec![Arc::new(version)],
    })
}

fn at(seconds: u64) -> Instant {
    Instant(0) + Nanos::seconds(seconds)
}

fn plan(holdings: &mut Holdings, now: Instant) -> Chores {
    holdings.plan(now, &[Bytes::mib(1000)])
}

fn fetched(holdings: &mut Holdings) -> Option<ObjectId> {
    holdings.next_fetch().map(|claim| claim.fetch[0].object)
}

#[test]
fn only_a_newer_manifest_comes_into_force() {
    let mut holdings = holdings();
    assert!(holdings.set_manifest(manifest(7, &[])));
    assert!(!holdings.set_manifest(manifest(7, &[])) && !holdings.set_manifest(manifest(6, &[])));
    assert_eq!(holdings.generation(), Generation(7));
    assert!(holdings.set_manifest(manifest(8, &[])));
    let updates = std::iter::from_fn(|| holdings.next_update());
    assert_eq!(updates.filter(|update| matches!(update, Update::Manifest(_))).count(), 2);
}

#[test]
fn memory_for_small_objects_is_bounded_and_comes_back() {
    let mut holdings = holdings();
    for n in [1, 2] {
        holdings.load(object(n), on(0, n));
        assert_eq!(holdings.without_bytes(None, SLICE).found.len(), usize::from(n == 1));
        holdings.publish_small(object(n), &on(0, n), &[0; 61_440]);
    }
    assert_eq!(holdings.small_used, LEN, "the second does not fit");
    assert_eq!(holdings.without_bytes(None, SLICE).found.len(), 0, "nor is it looked for");
    holdings.hide(object(2));
    assert_eq!(holdings.small_used, LEN);
    holdings.hide(object(1));
    assert_eq!(holdings.small_used, Bytes::ZERO);
    holdings.publish_small(object(1), &on(0, 1), &[0; 61_440]);
    assert_eq!(holdings.small_used, Bytes::ZERO, "it is not published any more");
}

#[test]
fn an_object_is_claimed_by_one_at_a_time() {
    let mut holdings = holdings();
    assert!(holdings.claim(object(1)) && !holdings.claim(object(1)));
    assert_eq!(holdings.claim_file(object(1), DRIVE, &on(0, 1).file), FileStanding::Busy);
    holdings.release(object(1));
    assert_eq!(holdings.claim_file(object(1), DRIVE, &on(0, 1).file), FileStanding::Unknown);
    holdings.set_manifest(manifest(1, &[2, 3]));
    assert_eq!(holdings.claim_file(object(1), DRIVE, &on(0, 1).file), FileStanding::Unwanted);
    assert_eq!(holdings.claim_file(object(2), DRIVE, &on(0, 2).file), FileStanding::Missing);
    holdings.load(object(3), on(0, 3));
    assert_eq!(holdings.claim_file(object(3), DRIVE, &on(0, 3).file), FileStanding::Indexed);
    assert_eq!(holdings.claim_file(object(3), DriveIndex(1), &on(1, 3).file), FileStanding::Spare);
    let elsewhere = FileName("units/x".into());
    assert_eq!(holdings.standing(object(3), DRIVE, &elsewhere), FileStanding::Spare);
    assert!(!holdings.claim_all(&[object(9), object(1)]) && !holdings.busy().contains(&object(9)));
    plan(&mut holdings, at(0));
    assert_eq!(fetched(&mut holdings), None, "the others are claimed, or here");
}

#[test]
#[should_panic(expected = "only a claimed object is released")]
fn what_nobody_claimed_is_not_released() {
    holdings().release(object(1));
}

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
fn what_could_not_be_had_is_tried_again_later_each_time() {
    let mut holdings = holdings();
    holdings.set_manifest(manifest(1, &[1]));
    let mut now = at(0);
    for wait in [2, 4, 8, 16, 32, 64, 120, 120] {
        plan(&mut holdings, now);
        assert_eq!(fetched(&mut holdings), Some(object(1)));
        holdings.postpone(now, object(1));
        now = now + Nanos::seconds(wait);
        plan(&mut holdings, Instant(now.0 - 1));
        assert_eq!(fetched(&mut holdings), None, "before {wait} s");
    }
    holdings.set_manifest(manifest(2, &[1]));
    plan(&mut holdings, now);
    assert_eq!(fetched(&mut holdings), Some(object(1)), "a new manifest is a new chance");
}

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
fn what_is_on_a_drive_that_hangs_is_held_and_not_said() {
    let mut holdings = holdings();
    holdings.load(object(1), on(0, 1));
    holdings.load(object(2), on(1, 2));
    holdings.withhold(DriveIndex(1), true);
    let all = |holdings: &Holdings| holdings.inventory_since(0).held;
    assert_eq!(all(&holdings), [object(1)]);
    let known = holdings.inventory_since(0).to;
    holdings.load(object(3), on(1, 3));
    assert!(holdings.inventory_since(known).held.is_empty(), "shown beside it");
    assert_eq!(holdings.index().len(), 3);
    holdings.withhold(DriveIndex(1), false);
    assert_eq!(holdings.inventory_since(known).held, [object(2), object(3)]);
}

#[test]
fn an_object_that_changes_drives_is_held_all_the_time() {
    let mut holdings = holdings();
    holdings.set_manifest(manifest(1, &[1, 2]));
    holdings.load(object(1), on(0, 1));
    let (known, progress) = (holdings.inventory_since(0).to, holdings.progress());
    while holdings.next_update().is_some() {}
    assert!(holdings.claim(object(1)));
    holdings.relocate(object(1), on(1, 1));
    let updates: Vec<Update> = std::iter::from_fn(|| holdings.next_update()).collect();
    assert!(matches!(&updates[..], [Update::Published { extent, .. }] if *extent == on(1, 1)));
    assert_eq!(holdings.index().locate(&object(1)), Some(&on(1, 1)));
    let told = holdings.inventory_since(known);
    assert!(told.held.is_empty() && told.gone.is_empty(), "nothing that control has to know");
    assert_eq!(holdings.progress(), progress);
    holdings.release(object(1));
    let left = holdings.claim_file(object(1), DRIVE, &on(0, 1).file);
    assert_eq!(left, FileStanding::Spare, "what is left of it");
    holdings.release(object(1));
    // The old drive goes and takes nothing along; the new one does.
    set_aside(&mut holdings, DRIVE);
    assert_eq!(holdings.index().len(), 1);
    set_aside(&mut holdings, DriveIndex(1));
    assert_eq!((holdings.index().len(), holdings.progress().objects_held), (0, 0));
    // As if its drive had gone while it was copied: there it is again.
    holdings.relocate(object(1), on(0, 1));
    assert_eq!((holdings.index().len(), holdings.progress().objects_held), (1, 1));
}

#[test]
fn an_object_that_leaves_a_drive_that_hangs_is_said_and_the_other_way_round() {
    let mut holdings = holdings();
    holdings.load(object(1), on(0, 1));
    holdings.withhold(DRIVE, true);
    let held = |holdings: &Holdings| holdings.inventory_since(0).held.len();
    assert_eq!(held(&holdings), 0);
    let known = holdings.inventory_since(0).to;
    holdings.relocate(object(1), on(1, 1));
    assert_eq!(holdings.inventory_since(known).held, [object(1)]);
    let known = holdings.inventory_since(0).to;
    holdings.relocate(object(1), on(0, 1));
    assert_eq!((holdings.inventory_since(known).gone, held(&holdings)), (vec![object(1)], 0));
}

#[test]
fn a_drive_set_aside_takes_its_objects_and_parts_along() {
    let mut holdings = holdings();
    holdings.set_manifest(manifest(1, &[1, 2]));
    holdings.load(object(1), on(0, 1));
    holdings.load_part(PartId::Object(object(2)), DRIVE);
    holdings.set_part(PartId::Object(object(2)), Some(Part { drive: DRIVE, verified: Bytes(7) }));
    assert_eq!(holdings.progress().bytes_partial, Bytes(7));
    plan(&mut holdings, at(0));
    set_aside(&mut holdings, DRIVE);
    let progress = holdings.progress();
    assert_eq!((progress.objects_held, progress.bytes_partial), (0, Bytes::ZERO));
    assert!(holdings.parts().is_empty() && holdings.take_news());
    assert_eq!(holdings.plan_in(at(0), at(0)), Nanos(0));
    let last = std::iter::from_fn(|| holdings.next_update()).last();
    assert!(matches!(last, Some(Update::DriveSetAside { drive: DRIVE })));
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
fn a_drive_that_comes_back_brings_what_is_held_nowhere_else_and_nobody_works_on() {
    let mut holdings = holdings();
    holdings.set_manifest(manifest(1, &[1, 2, 3, 4]));
    let ids = [1, 2, 3].map(object);
    ids.into_iter().for_each(|object| holdings.load(object, on(0, 1)));
    holdings.withhold(DRIVE, true);
    set_aside(&mut holdings, DRIVE);
    plan(&mut holdings, at(0));
    let claimed = holdings.next_fetch().unwrap().fetch[0].object;
    let elsewhere = ids.into_iter().find(|object| *object != claimed).unwrap();
    holdings.publish(elsewhere, on(1, 1), None);
    while holdings.next_update().is_some() {}
    let found = ids.map(|object| (object, on(0, 1)));
    let parts = [elsewhere, object(4)].map(PartId::Object);
    holdings.take_back(DRIVE, found.into_iter(), parts.into_iter());

    assert_eq!(holdings.index().locate(&elsewhere).unwrap().drive, DriveIndex(1));
    assert_eq!(holdings.index().locate(&claimed).is_some(), claimed == object(4));
    let found: BTreeSet<PartId> = holdings.parts().keys().copied().collect();
    assert_eq!(found, BTreeSet::from(parts), "what is not needed is dropped");
    // Whoever worked on it goes on as if nothing had happened.
    holdings.publish(claimed, on(1, 1), None);
    let told = holdings.inventory_since(0);
    assert_eq!(told.held.len(), 3, "hung no more: {told:?}");
}

#[test]
fn doubts_are_bounded_and_handed_over_once() {
    let mut holdings = holdings();
    (1..9).for_each(|n| holdings.suspect(object(n), Doubt::Suspect));
    let suspects = plan(&mut holdings, at(0)).suspects;
    assert_eq!(suspects.into_keys().collect::<Vec<_>>(), [object(1), object(2)]);
    assert!(plan(&mut holdings, at(0)).suspects.is_empty());
}

/// Holdings that pack three objects of `LEN` into a unit.
fn packing(fetch_max: usize) -> Holdings {
    let plan = plan::Config { fetch_max, evict_max: 2, urls_max: 1 };
    let unit_len = Some(Bytes::kib(180));
    Holdings::new(Config { plan, unit_len, ..holdings().config })
}

/// What is fetched next, by number.
fn together(holdings: &mut Holdings) -> Vec<u8> {
    let claim = holdings.next_fetch();
    claim.map_or(vec![], |claim| claim.fetch.iter().map(|fetch| fetch.object.0[0]).collect())
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
fn who_is_done_with_a_unit_lets_go_of_all_and_postpones_what_could_not_be_had() {
    let mut holdings = packing(100);
    holdings.set_manifest(manifest(1, &[1, 2, 3]));
    plan(&mut holdings, at(0));
    let claim = holdings.next_fetch().unwrap();
    holdings.publish(object(1), on(0, 1), None);
    holdings.done(at(0), &claim, &[object(2)]);
    assert!(holdings.busy().is_empty());
    plan(&mut holdings, at(0));
    assert_eq!(together(&mut holdings), [3]);
    plan(&mut holdings, at(2));
    assert_eq!(together(&mut holdings), [2]);
}

#[test]
fn a_unit_of_which_a_part_is_being_removed_is_not_fetched_meanwhile() {
    let mut holdings = packing(100);
    holdings.set_manifest(manifest(1, &[1, 2, 3]));
    plan(&mut holdings, at(0));
    let claim = holdings.next_fetch().unwrap();
    let unit = claim.parcel().part();
    holdings.done(at(0), &claim, &[]);
    [DRIVE, DriveIndex(1)].into_iter().for_each(|drive| holdings.load_part(unit, drive));
    assert_eq!(plan(&mut holdings, at(0)).drop_parts, [(unit, DriveIndex(1))]);
    assert!(holdings.claim_part(unit));
    assert_eq!(together(&mut holdings), [], "the spare part of it is being removed");
    assert!(holdings.busy().is_empty(), "nothing of it is claimed");
    holdings.dropped_part(unit, DriveIndex(1));
    holdings.release_part(unit);
    plan(&mut holdings, at(0));
    assert_eq!(together(&mut holdings), [1, 2, 3]);
    assert!(!holdings.claim_part(unit), "and the other way round");
}

#[test]
#[should_panic(expected = "only a claimed unit is released")]
fn a_unit_that_nobody_claimed_is_not_released() {
    holdings().release_part(PartId::Unit(UnitId([1; 32])));
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

#[test]
fn a_claim_for_which_no_drive_has_room_is_shortened_and_the_rest_planned_anew() {
    for count in [1, 2] {
        let mut holdings = packing(100);
        holdings.set_manifest(manifest(1, &[1, 2, 3]));
        plan(&mut holdings, at(0));
        let claim = holdings.next_fetch().unwrap();
        let long = claim.parcel().part();
        let claim = holdings.shorten(claim, count).expect("nobody removes a part of it");
        let part = claim.parcel().part();
        assert!(holdings.claim_part(long) && !holdings.claim_part(part));
        holdings.release_part(long);
        holdings.set_part(part, Some(Part { drive: DRIVE, verified: Bytes(1) }));
        assert_eq!(holdings.plan_in(at(0), at(0)), Nanos(0));
        assert_eq!(plan(&mut holdings, at(0)).drop_parts, [], "somebody fills it");
        assert_eq!(together(&mut holdings), [1, 2, 3][count..]);
        holdings.done(at(0), &claim, &[]);
        plan(&mut holdings, at(0));
        assert!(!together(&mut holdings).is_empty());
    }
    let mut holdings = packing(100);
    holdings.set_manifest(manifest(1, &[1, 2, 3]));
    plan(&mut holdings, at(0));
    let claim = holdings.next_fetch().unwrap();
    let short = Claim { fetch: claim.fetch[..2].to_vec(), part: None }.parcel().part();
    assert!(holdings.claim_part(short));
    assert_eq!(holdings.shorten(claim, 2), None);
    assert!(holdings.busy().is_empty());
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Load(u8, u8),
    Move(u8, u8),
    Hide(u8),
    SetAside(u8),
    LetGo(u8),
    ForgetSome,
    TakeBack(u8, u8),
    Withhold(u8, bool),
    /// A manifest with these of the objects 0 to 4 in one version, and 3 and 4 in another.
    Manifest(u8),
    /// The same, which comes into force later.
    Prepare(u8),
    PrepareSome,
    Report,
}

/// The files of the manifest in force that are told, counted anew.
fn files_anew(holdings: &Holdings) -> Files {
    let manifest = &holdings.desired.manifest;
    let mut files = manifest.as_ref().map_or_else(Files::none, |manifest| Files::new(manifest));
    for (object, extent) in holdings.index().iter() {
        files.note(*object, holdings.is_told(extent.drive));
    }
    files
}

/// Numbers are other ones with each second generation, or with other objects, which is more than
/// control does.
fn numbered(generation: u64, mask: u8) -> (Arc<Manifest>, BTreeMap<u32, ObjectId>) {
    let objects: Vec<u8> = (0..5).filter(|n| mask >> n & 1 == 1).collect();
    let mut both = Manifest::clone(&manifest(generation, &objects));
    let mut other = AssetVersion::clone(&manifest(0, &[3, 4]).versions[0]);
    other.id = "film-2".parse().unwrap();
    both.versions.push(Arc::new(other));
    let first = (u32::from(mask) * 2 + u32::from(generation.is_multiple_of(2))) * 100;
    both.numbers = (1..).zip(&both.versions).map(|(n, v)| (v.id.clone(), first + n * 10)).collect();
    let of = |first, objects: &[u8]| {
        (first..).zip(objects.iter().map(|n| object(*n)).collect::<Vec<_>>())
    };
    let files = of(first + 10, &objects).chain(of(first + 20, &[3, 4])).collect();
    (Arc::new(both), files)
}

fn step() -> impl Strategy<Value = Step> {
    let (objects, drives) = (|| 0_u8..5, || 0_u8..3);
    let masks = || prop_oneof![0_u8..32, Just(0b111)];
    prop_oneof![
        (objects(), drives()).prop_map(|(n, drive)| Step::Load(n, drive)),
        (objects(), drives()).prop_map(|(n, drive)| Step::Move(n, drive)),
        objects().prop_map(Step::Hide),
        drives().prop_map(Step::SetAside),
        drives().prop_map(Step::LetGo),
        Just(Step::ForgetSome),
        (drives(), objects()).prop_map(|(drive, n)| Step::TakeBack(drive, n)),
        (drives(), any::<bool>()).prop_map(|(drive, hangs)| Step::Withhold(drive, hangs)),
        masks().prop_map(Step::Manifest),
        masks().prop_map(Step::Prepare),
        Just(Step::PrepareSome),
        Just(Step::Report),
    ]
}

proptest! {
    #[test]
    fn control_that_is_told_changes_knows_what_the_index_has(
        steps in prop::collection::vec(step(), 0..60),
    ) {
        let (mut holdings, mut known, mut seen) =
            (holdings(), BTreeSet::new(), 0);
        let (mut generation, mut meaning, mut files) = (0, BTreeMap::new(), NumberSet::new());
        let mut next = None;
        for step in steps.into_iter().chain([Step::Report]) {
            match step {
                Step::Load(n, drive) => holdings.load(object(n), on(drive, n)),
                Step::Move(n, drive) if holdings.index().locate(&object(n)).is_some() => {
                    holdings.relocate(object(n), on(drive, n));
                }
                Step::Move(..) => {}
                Step::Hide(n) => holdings.hide(object(n)),
                Step::SetAside(drive) => set_aside(&mut holdings, DriveIndex(drive)),
                Step::LetGo(drive) => holdings.let_go(DriveIndex(drive)),
                Step::ForgetSome => drop(holdings.forget_some(2)),
                Step::TakeBack(drive, n) => {
                    set_aside(&mut holdings, DriveIndex(drive));
                    let found = [(object(n), on(drive, n))].into_iter();
                    holdings.take_back(DriveIndex(drive), found, [].into_iter());
                }
                Step::Withhold(drive, hangs) => holdings.withhold(DriveIndex(drive), hangs),
                Step::Manifest(mask) => {
                    generation += 1;
                    let (manifest, numbers) = numbered(generation, mask);
                    holdings.set_manifest(manifest);
                    (meaning, next) = (numbers, None);
                }
                Step::Prepare(mask) => {
                    generation += 1;
                    let (manifest, numbers) = numbered(generation, mask);
                    prop_assert!(holdings.prepare(Desired::new(None, manifest)));
                    next = Some(numbers);
                }
                Step::PrepareSome => {
                    if holdings.prepare_some(1).is_some() {
                        meaning = next.take().unwrap_or(meaning);
                    }
                }
                Step::Report => {
                    let told = holdings.files_since(seen).expect("it has numbers");
                    if told.from == 0 {
                        files.clear();
                    }
                    files = (files - told.gone) | told.came;
                    prop_assert_eq!(told.check, Check::of_files(&files));
                    let delta = holdings.inventory_since(seen);
                    prop_assert_eq!(told.to, delta.to);
                    if delta.from == 0 {
                        known.clear();
                    }
                    delta.gone.iter().for_each(|gone| { known.remove(gone); });
                    known.extend(delta.held);
                    seen = delta.to;
                    prop_assert_eq!(delta.check, Some(Check::of(&known)));
                    let held = meaning.iter().filter(|(_, object)| known.contains(object));
                    prop_assert_eq!(&files, &held.map(|(file, _)| *file).collect::<NumberSet>());
                    let is_file = |object: &&ObjectId| meaning.values().any(|of| of == *object);
                    let others = known.iter().filter(|object| !is_file(object)).count();
                    prop_assert_eq!(told.others, Bytes::of(others).0);
                }
            }
            let (kept, anew) = (&holdings.desired.files, files_anew(&holdings));
            prop_assert_eq!(kept.held(), anew.held());
            prop_assert_eq!((kept.check(), kept.objects()), (anew.check(), anew.objects()));
        }
    }
}

#[test]
fn a_manifest_of_the_same_numbers_leaves_what_was_told_as_it_was() {
    let mut holdings = holdings();
    holdings.load(object(1), on(0, 1));
    let next = |holdings: &mut Holdings, generation, first: u32| {
        let mut next = Manifest::clone(&manifest(generation, &[1, 2]));
        next.numbers = next.versions.iter().map(|version| (version.id.clone(), first)).collect();
        holdings.set_manifest(Arc::new(next));
    };
    next(&mut holdings, 1, 700);
    let seen = holdings.files_since(0).unwrap().to;
    next(&mut holdings, 2, 700);
    holdings.load(object(2), on(0, 2));
    let told = holdings.files_since(seen).unwrap();
    assert_eq!((told.from, told.came), (seen, [701].into()));
    next(&mut holdings, 3, 800);
    let told = holdings.files_since(told.to).unwrap();
    assert_eq!((told.from, told.came), (0, [800, 801].into()), "other numbers");
}

#[test]
fn a_manifest_without_numbers_leaves_nothing_to_tell_by_number() {
    let mut holdings = holdings();
    holdings.load(object(1), on(0, 1));
    let told = holdings.files_since(0).unwrap();
    assert_eq!((told.from, told.came.len(), told.others), (0, 0, 1), "without a manifest");
    holdings.set_manifest(manifest(1, &[1]));
    assert_eq!(holdings.files_since(0), None);
}

#[test]
fn no_copy_is_spare_while_the_drive_of_the_other_does_not_answer() {
    let mut holdings = holdings();
    holdings.set_manifest(manifest(1, &[1]));
    holdings.load(object(1), on(0, 1));
    let (other, file) = (DriveIndex(1), on(1, 1).file);
    holdings.withhold(DRIVE, true);
    assert_eq!(holdings.claim_file(object(1), other, &file), FileStanding::Unsure);
    assert!(holdings.busy().is_empty());
    holdings.withhold(DRIVE, false);
    assert_eq!(holdings.claim_file(object(1), other, &file), FileStanding::Spare);
    holdings.release(object(1));
    // It is set aside, and the index has not forgotten yet what was there.
    holdings.let_go(DRIVE);
    assert_eq!(holdings.claim_file(object(1), other, &file), FileStanding::Unsure);
    assert!(!holdings.forget_some(2));
    assert_eq!(holdings.claim_file(object(1), other, &file), FileStanding::Missing);
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

#[test]
fn a_new_manifest_is_in_force_when_all_that_is_held_was_looked_at() {
    let mut holdings = holdings();
    holdings.set_manifest(manifest(1, &[1, 2]));
    (1..5).for_each(|n| holdings.load(object(n), on(0, n)));
    assert!(holdings.prepare(Desired::new(None, manifest(3, &[3, 4, 5]))));
    assert!(!holdings.prepare(Desired::new(None, manifest(2, &[]))), "there is a newer one");
    for _ in 0..2 {
        assert!(holdings.prepare_some(2).is_none());
        assert_eq!((holdings.generation(), holdings.progress().objects_held), (Generation(1), 2));
    }
    // What was looked at already goes, and something else comes.
    holdings.hide(object(3));
    holdings.load(object(5), on(0, 5));
    while holdings.prepare_some(2).is_none() {}
    let progress = holdings.progress();
    assert_eq!((holdings.generation(), progress.objects_held), (Generation(3), 2));
    assert_eq!(plan(&mut holdings, at(0)).evict, [(object(1), DRIVE), (object(2), DRIVE)]);
    assert_eq!(fetched(&mut holdings), Some(object(3)));
    assert!(holdings.prepare_some(2).is_some(), "nothing is left to do");
}

/// What is known of the gap, counted anew.
fn gap_of(holdings: &Holdings, manifest: &Manifest) -> Gap {
    let mut gap = Gap::new(Wanted::new(manifest));
    for n in 0..=u8::MAX {
        gap.note(object(n), None, holdings.how(object(n)));
    }
    gap
}

proptest! {
    #[test]
    fn what_is_kept_as_things_change_is_what_is_counted_anew(
        steps in prop::collection::vec((0u8..12, 0u8..16, 0u8..3), 0..120),
    ) {
        let mut holdings = packing(4);
        let mut in_force = manifest(1, &[]);
        holdings.set_manifest(manifest(1, &[]));
        let (mut preparing, mut claimed) = (None, BTreeSet::new());
        for (generation, (what, n, drive)) in (2..).zip(steps) {
            let (id, is_held) = (object(n), holdings.index().locate(&object(n)).is_some());
            let (part, drive) = (PartId::Object(id), DriveIndex(drive));
            match what {
                0 => holdings.load(id, on(drive.0, n)),
                1 => holdings.hide(id),
                2 if is_held => holdings.relocate(id, on(drive.0, n)),
                3 => drop(holdings.claim(id).then(|| claimed.insert(n))),
                4 => drop(claimed.remove(&n).then(|| holdings.release(id))),
                5 => drop(claimed.remove(&n).then(|| holdings.postpone(at(generation), id))),
                6 => holdings.set_part(part, (n % 2 == 0).then_some(Part { drive, verified: LEN })),
                7 if n % 2 == 0 => holdings.let_go(drive),
                7 => drop(holdings.forget_some(2)),
                8 => {
                    holdings.take_back(drive, [(id, on(drive.0, n))].into_iter(), [].into_iter());
                }
                9 => {
                    let wants: Vec<u8> = (0..n).map(|i| i * 3 % 17).collect();
                    let wants = manifest(generation, &wants);
                    holdings.prepare(Desired::new(None, Arc::clone(&wants)));
                    preparing = Some(wants);
                }
                10 => drop(holdings.plan_some(at(generation), &[Bytes::mib(1)], 2)),
                _ => {
                    if holdings.prepare_some(3).is_some() {
                        in_force = preparing.take().unwrap_or(in_force);
                    }
                }
            }
            prop_assert_eq!(&holdings.desired.gap, &gap_of(&holdings, &in_force));
            let parts = holdings.parts().values().map(|part| part.verified.0).sum();
            prop_assert_eq!(holdings.progress().bytes_partial, Bytes(parts));
        }
    }
}
