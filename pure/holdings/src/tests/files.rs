use super::*;
use crate::files::Files;
use model::inventory::Check;
use model::number::NumberSet;

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
    both.numbers =
        (1..).zip(&both.versions).map(|(n, v)| (v.id.clone(), (first + n * 10).into())).collect();
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
fn a_file_has_the_number_that_its_version_gives_it() {
    let mut holdings = holdings();
    assert!(holdings.numbers().is_none(), "there is no manifest");
    let (manifest, _) = numbered(6, 0b11111);
    let first = manifest.numbers["film-1"].first;
    holdings.set_manifest(manifest);
    let numbers = holdings.numbers().unwrap();
    let of = |version: &str, n: u8| numbers.of(version, object(n)).map(|file| file - first);
    assert_eq!([0, 2, 3].map(|n| of("film-1", n)), [Some(0), Some(2), Some(3)]);
    assert_eq!([3, 4].map(|n| of("film-2", n)), [Some(10), Some(11)], "of both, the one asked for");
    assert_eq!((of("film-1", 9), of("film-9", 1)), (None, None));
    assert_eq!(numbers.generation(), Generation(6));
}

#[test]
fn a_manifest_of_the_same_numbers_leaves_what_was_told_as_it_was() {
    let mut holdings = holdings();
    holdings.load(object(1), on(0, 1));
    let next = |holdings: &mut Holdings, generation, first: u32| {
        let mut next = Manifest::clone(&manifest(generation, &[1, 2]));
        next.numbers =
            next.versions.iter().map(|version| (version.id.clone(), first.into())).collect();
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
