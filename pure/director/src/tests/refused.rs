//! Plans that are refused.

use model::names::Names;
use model::number::NumberSet;

use super::*;

/// Of an appliance that holds so many films of 8 KiB, and has room for no more.
pub(super) fn full(films: u8) -> Director {
    let mut director = running(&["a1"]);
    let policy = Policy { versions_kept: 1, ..director.desired().policy };
    director.handle(at(0), Event::Changed(Change::Policy(policy)));
    director
        .handle(at(0), Event::Changed(Change::Usable(id("a1"), Bytes(8192 * u64::from(films)))));
    director.handle(at(0), Event::Expected(Arc::default()));
    for n in 0..films {
        put(&mut director, title(&format!("film-{n}"), &format!("title-{n}"), n));
    }
    settle(&mut director);
    assert_eq!(films_of(&director), usize::from(films));
    // They are new no more.
    director.handle(at(0), Event::Tick(UnixSeconds(30 * 86_400)));
    director
}

/// A version of this asset, with one object and the number of that.
pub(super) fn title(version: &str, asset: &str, object: u8) -> Version {
    let known = version_of(version, &[object], u64::from(object) + 1);
    let files = AssetVersion { asset: asset.parse().unwrap(), ..known.files.as_ref().clone() };
    let version = Version::new(Arc::new(files), Vec::new(), known.sequence);
    version.numbered(Some(u32::from(object)))
}

pub(super) fn put(director: &mut Director, version: Version) {
    director.handle(at(0), Event::Changed(Change::Version(Arc::new(version))));
}

pub(super) fn films_of(director: &Director) -> usize {
    manifest(director, "a1").versions.len()
}

/// So many others come that are worth far more than all that is held.
pub(super) fn expect_others(director: &mut Director, films: u8) {
    let wanted = |n: u8| placement::plan::Wanted {
        item: model::id::Item(100 + u32::from(n)),
        day: Bytes(1 << 40),
        peak: BitsPerSecond(1),
    };
    for n in 100..100 + films {
        put(director, title(&format!("film-{n}"), &format!("title-{n}"), n));
    }
    let regions = BTreeMap::from([(None, (0..films).map(wanted).collect())]);
    director.handle(at(0), Event::Expected(Arc::new(Expected { regions })));
    settle(director);
}

#[test]
fn a_plan_that_evicts_too_much_is_refused_until_it_is_forced() {
    let mut director = full(10);
    let before = generations(&director);
    expect_others(&mut director, 8);
    let refused = director.refused().expect("eight of ten would go").words();
    assert!(
        refused[0].starts_with("the plan evicts 64 KiB of 80 KiB in all, and 500 in 1,000"),
        "{refused:?}"
    );
    assert_eq!((generations(&director), films_of(&director)), (before, 10), "nothing moves");
    assert_eq!(director.refused().unwrap().change.goes, 8);
    let carried_out = |director: &Director| director.carried_out().copied().collect::<Vec<_>>();
    let first = carried_out(&director);
    let comes = |all: &[CarriedOut]| all.iter().map(|of| of.change.comes).sum::<u64>();
    assert_eq!(comes(&first), 10, "a plan that is refused is not carried out: {first:?}");
    // Keys and withdrawals go on meanwhile.
    let withdrawal = withdrawal_tests::withdrawal(1, &["film-3"], &["a1"]);
    director.handle(at(0), Event::Changed(Change::Withdrawn(withdrawal)));
    settle(&mut director);
    assert_eq!(films_of(&director), 9);
    let (refused, before) = (director.last_plan(), films_of(&director));
    // Another is made meanwhile, and nobody has looked at that.
    director.handle(at(0), Event::PlanNow { forces: None });
    director.handle(at(0), Event::PlanNow { forces: Some(refused) });
    settle(&mut director);
    director.handle(at(0), Event::PlanNow { forces: Some(refused) });
    settle(&mut director);
    assert!(director.refused().is_some() && refused < director.last_plan());
    assert_eq!(films_of(&director), before);
    force(&mut director);
    settle(&mut director);
    assert_eq!((films_of(&director), director.refused()), (10, None));
    let last = carried_out(&director).last().unwrap().change;
    let (comes, goes) = ((last.comes, last.comes_len), (last.goes, last.goes_len));
    assert_eq!((comes, goes), ((8, Bytes::kib(64)), (7, Bytes::kib(56))));
    let names: Vec<_> = manifest(&director, "a1").versions.iter().map(|of| of.id.clone()).collect();
    assert_eq!(names.iter().filter(|id| id.as_str().starts_with("film-10")).count(), 8);
    // It was forced once.
    expect_others(&mut director, 9);
    assert_eq!(director.refused(), None, "one more is little");
}

#[test]
fn what_has_no_origin_is_not_evicted_by_its_last_holder() {
    let mut director = full(10);
    let known = director.desired().catalog.version(&"film-0".parse().unwrap()).unwrap().clone();
    let files = AssetVersion { sources: Vec::new(), ..known.files.as_ref().clone() };
    let without = Version::new(Arc::new(files), Vec::new(), 1).numbered(Some(0));
    director.handle(at(0), Event::Changed(Change::Version(Arc::new(without))));
    settle(&mut director);
    expect_others(&mut director, 1);
    let refused = director.refused().expect("the oldest would go").words();
    assert!(refused[0].starts_with("the plan evicts the last copies of items: 1, "), "{refused:?}");
    assert_eq!(films_of(&director), 10);
}

#[test]
fn where_the_catalogue_vanished_nothing_moves() {
    let mut director = full(30);
    let durable = ledger(&director);
    let desired = Desired { catalog: Arc::default(), ..director.desired().clone() };
    let restart = |ledger: &Ledger| {
        let desired = desired.clone();
        let mut director = Director::new(CONFIG, desired, ledger.clone(), at(0), UnixSeconds(0));
        settle(&mut director);
        director
    };
    director = restart(&durable);
    let refused = director.refused().expect("nobody knows its items").words();
    let said = "30 of 30 items are not in the catalogue any more, and 100 in 1,000 may go: is all \
                of it there? If so, force the plan";
    assert_eq!(refused, [said]);
    assert_eq!(director.manifest(&id("a1")), Ok(None), "it keeps the one that it has");
    // Nor do keys alone make one without films.
    director.handle(at(0), Event::Changed(Change::Revoked(BTreeSet::from(["4a".to_owned()]))));
    let addresses = vec!["192.0.2.1".parse().unwrap()];
    let known = director.desired().appliances["a1"].appliance.clone();
    director.handle(at(0), Event::Changed(Change::Appliance(Appliance { addresses, ..known })));
    settle(&mut director);
    assert_eq!(director.manifest(&id("a1")), Ok(None));
    force(&mut director);
    settle(&mut director);
    assert_eq!((films_of(&director), director.refused()), (0, None));
    let few = Arc::new(NumberSet::from_iter(0..3));
    let few = Ledger { holds: Names::from_iter([(id("a1"), few)]), ..durable };
    assert!(restart(&few).refused().is_some(), "three of three");
    let withdrawal = withdrawal_tests::withdrawal(1, &["film-3"], &["a1"]);
    let desired = Desired { withdrawals: [(1, withdrawal)].into(), ..desired.clone() };
    let mut director = Director::new(CONFIG, desired, few, at(0), UnixSeconds(0));
    settle(&mut director);
    assert_eq!(director.refused(), None, "they may have been withdrawn just before");
}

#[test]
fn one_that_is_emptied_where_nothing_else_goes_is_told_and_the_plan_goes_on() {
    let mut director = full(10);
    // Another stands there, and has much that nobody else has.
    let b1 = Appliance::new(id("b1"), "b".parse().unwrap(), Weight::ONE);
    director.handle(at(0), Event::Changed(Change::Appliance(b1)));
    director.handle(at(0), Event::Changed(Change::Usable(id("b1"), Bytes::mib(1))));
    settle(&mut director);
    for n in 20..100 {
        put(&mut director, title(&format!("film-{n}"), &format!("title-{n}"), n));
    }
    settle(&mut director);
    let held = |name: &str| manifest(&director, name).versions.len();
    assert_eq!((held("a1"), held("b1")), (10, 90));
    expect_others(&mut director, 10);
    assert_eq!(director.refused(), None);
    let held: BTreeSet<_> =
        manifest(&director, "a1").versions.iter().map(|of| of.id.to_string()).collect();
    assert_eq!(held, (100..110).map(|n| format!("film-{n}")).collect(), "all of it is other");
    let told = "the plan evicts 80 KiB of the 80 KiB that a1 held, and nothing elsewhere";
    assert!(
        director.notices().any(|notice| notice.text == told),
        "{:?}",
        director.notices().last()
    );
}

#[test]
fn what_moved_elsewhere_or_has_less_room_is_no_mistake() {
    let mut director = full(10);
    director.handle(at(0), Event::Changed(Change::Usable(id("a1"), Bytes(8192))));
    settle(&mut director);
    assert_eq!((films_of(&director), director.refused()), (1, None));
}

#[test]
fn what_a_refused_plan_would_move_is_told_by_name_and_why() {
    let mut director = full(10);
    expect_others(&mut director, 8);
    let refused = director.refused().unwrap();
    let [moves] = &refused.places.moves(director.places(), 9)[..] else { panic!("one appliance") };
    let names = |all: &[(AssetVersionId, Renditions)]| {
        all.iter().map(|(version, _)| version.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(&moves.comes), (100..108).map(|n| format!("film-{n}")).collect::<Vec<_>>());
    assert_eq!(names(&moves.goes), (0..8).map(|n| format!("film-{n}")).collect::<Vec<_>>());
    let site = "a".parse().unwrap();
    let why = |film: &str| {
        let held = director.question().why(&site, &film.parse().unwrap());
        held.iter().map(|of| (of.is_held, of.why.to_string())).collect::<Vec<_>>()
    };
    let [(true, said)] = &why("film-107")[..] else { panic!("{:?}", why("film-107")) };
    assert!(said.starts_with("140737488355328 bytes a day per MiB"), "{said}");
    let [(false, said)] = &why("film-0")[..] else { panic!("{:?}", why("film-0")) };
    assert!(said.starts_with("0 bytes a day per MiB"), "{said}");
    assert_eq!(why("film-200"), []);
    assert_eq!(director.question().why(&"z".parse().unwrap(), &"film-0".parse().unwrap()), []);
}

#[test]
fn nobody_signs_a_withdrawal_and_no_key_steps_on_while_the_catalogue_is_in_doubt() {
    let director = full(30);
    let durable = ledger(&director);
    let old = generations(&director)["a1"];
    let desired = Desired { catalog: Arc::default(), ..director.desired().clone() };
    let mut director = Director::new(CONFIG, desired, durable, at(0), UnixSeconds(0));
    settle(&mut director);
    assert!(director.refused().is_some() && !director.all_follow());
    let withdrawal = withdrawal_tests::withdrawal(1, &["film-3"], &["a1"]);
    director.handle(at(0), Event::Changed(Change::Withdrawn(withdrawal)));
    settle(&mut director);
    force(&mut director);
    settle(&mut director);
    let report = Report { generation: old, served: Some(old), ..report(90) };
    director.report(at(0), &id("a1"), &report).unwrap();
    assert_eq!(director.unsigned_count(), 1, "what it serves by is older");
}

#[test]
fn while_a_plan_is_refused_a_title_keeps_the_version_that_is_held() {
    let mut director = full(10);
    expect_others(&mut director, 8);
    assert!(director.refused().is_some());
    put(&mut director, title("film-200", "title-3", 200));
    settle(&mut director);
    assert!(director.refused().is_some());
    assert_eq!(films_of(&director), 10, "of title-3 the newer version is kept, and has not come");
}
