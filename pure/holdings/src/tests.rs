use super::*;
use crate::planning::PLAN_EVERY;
use fill::gap::Gap;
use model::manifest::{AssetVersion, File, Trust};
use model::units::{Nanos, UnixSeconds};
use proptest::prelude::*;
use store::unit;

mod claims;
mod files;
mod hours;
mod parts;
mod planning;
mod waits;

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
fn other_keys_come_into_force_with_the_manifest_that_is_and_touch_nothing_that_is_held() {
    let mut holdings = holdings();
    let keyed = |generation, issued| {
        let issued = UnixSeconds(issued);
        let trust = Trust { issued, ..Trust::default() };
        Arc::new(Manifest { trust, ..Manifest::clone(&manifest(generation, &[1, 2])) })
    };
    assert!(!holdings.set_trust(keyed(1, 5)), "there is none");
    holdings.set_manifest(keyed(1, 0));
    holdings.publish(object(1), on(0, 1), None);
    while holdings.next_update().is_some() {}
    let (before, files) = (holdings.progress(), holdings.files_since(0));
    assert!(holdings.set_trust(keyed(1, 5)));
    let Some(Update::Manifest(told)) = holdings.next_update() else { panic!("workers are told") };
    assert_eq!(told, keyed(1, 5));
    assert_eq!(holdings.manifest(), Some(&told));
    assert_eq!((holdings.progress(), holdings.files_since(0)), (before, files));
    assert!(!holdings.set_trust(keyed(2, 6)), "it is of another manifest");
    holdings.prepare(Desired::new(None, keyed(2, 6)));
    assert!(!holdings.set_trust(keyed(1, 7)), "another is about to come");
    assert_eq!(holdings.manifest(), Some(&told));
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
                5 if n % 2 == 0 && claimed.remove(&n) => {
                    let fetch = vec![Fetch { object: id, len: LEN, urls: Vec::new() }];
                    let claim = Claim { fetch, part: None };
                    holdings.wait_for_master(at(generation), &claim, Nanos::seconds(3));
                }
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
            let waiting = holdings.postponed.values().filter(|of| of.for_master).count();
            prop_assert_eq!(holdings.objects_waiting(), Bytes::of(waiting).0);
        }
    }
}
