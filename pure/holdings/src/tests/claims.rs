use super::*;

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
