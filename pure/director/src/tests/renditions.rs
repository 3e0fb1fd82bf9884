use super::*;
use model::inventory::{Check, FilesDelta};
use model::view::Renditions;
use proptest::collection::vec;
use proptest::prelude::*;
use steering::{Query, Wanted};

/// Ten files of two renditions, and two that belong to none.
pub(super) const OBJECTS: [u8; 12] = [10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21];
pub(super) const NUMBERS: [u8; 12] = [0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 0];

/// The renditions that an appliance holds of a version, by number, as a list for a player says.
fn held(director: &Director, name: &str, version: &str) -> Vec<u32> {
    let view = &director.snapshot().view;
    let (version, among) = (Wanted::of(view, &version.parse().unwrap()), [view.appliances[name]]);
    let (near, session, among) = (&[][..], &b"s"[..], Some(&among[..]));
    let query = Query { near, version, session, plain: false, among };
    let config = steering::Config { pathways_min: 1, pathways_max: 1, explains: true };
    let held = steering::rank(view, &query, &config).candidates[0].held;
    assert!((2..64).all(|at| held.has(at) == (held == Renditions::ALL)), "it has two");
    (0..2).filter(|at| held.has(*at)).map(|at| at + 1).collect()
}

/// The same, worked out from what is held.
fn expected(objects: &BTreeSet<u8>, of: &[u8]) -> Vec<u32> {
    let lacks = |number: u8| {
        of.iter()
            .zip(NUMBERS)
            .any(|(object, n)| (n == number || n == 0) && !objects.contains(object))
    };
    [1, 2].into_iter().filter(|number| !lacks(*number)).map(u32::from).collect()
}

/// It says that these are all that it holds.
fn says(director: &mut Director, sequence: u64, objects: &[u8]) {
    let held = objects.iter().map(|n| object(*n)).collect();
    let inventory = Delta { to: sequence, held, ..Delta::default() };
    director.report(at(0), &id("a1"), &Report { inventory, ..report(sequence) }).unwrap();
}

#[test]
fn a_rendition_is_held_with_all_its_files_and_those_of_none() {
    let mut director = running(&["a1"]);
    put_divided(&mut director, "film-1", &OBJECTS, &NUMBERS, 1);
    let mut sequence = 20;
    let mut check = |objects: &[u8], numbers: &[u32]| {
        sequence += 1;
        says(&mut director, sequence, objects);
        assert_eq!(held(&director, "a1", "film-1"), numbers);
    };
    check(&[], &[]);
    check(&OBJECTS[..6], &[]);
    check(&[10, 11, 12, 13, 14, 15, 21], &[1]);
    check(&[10, 16, 17, 18, 19, 20, 21, 11], &[2]);
    check(&OBJECTS, &[1, 2]);
    assert_eq!(whole(&director, "a1").len(), 1);
}

#[test]
fn a_delta_looks_at_its_own_files_whatever_is_held_beside_them() {
    let mut director = running(&["a1"]);
    let policy = Policy { versions_kept: 12, ..director.desired().policy };
    director.handle(at(0), Event::Changed(Change::Policy(policy)));
    let versions = (0..12_u8).map(|n| (100 + n * 12..112 + n * 12).collect());
    let versions: Vec<Vec<u8>> = versions.collect();
    for (sequence, objects) in (1..).zip(&versions) {
        let name = format!("film-{sequence}");
        put_divided(&mut director, &name, objects, &NUMBERS, sequence);
    }
    // Half of them wholly, and of the others one rendition.
    let all = versions.iter().enumerate();
    let all = all.flat_map(|(at, of)| if at < 6 { &of[..] } else { &of[..6] });
    let first: Vec<u8> = all.copied().chain(versions[6..].iter().map(|of| of[11])).collect();
    says(&mut director, 30, &first);
    let looked_at = |director: &Director| {
        let observed = director.members.get(&id("a1")).unwrap().observed.as_ref();
        observed.unwrap().looked_at()
    };
    let before = looked_at(&director);
    let one: Vec<_> = versions.iter().map(|of| object(of[1])).collect();
    for state in 30..50 {
        let (held, gone) = if state % 2 == 0 { (&[][..], &one[..]) } else { (&one[..], &[][..]) };
        let (held, gone) = (held.to_vec(), gone.to_vec());
        let inventory = Delta { from: state, to: state + 1, held, gone, check: None };
        let report = Report { inventory, ..report(state + 1) };
        director.report(at(0), &id("a1"), &report).unwrap();
        for at in 0..12 {
            let wanted: &[u32] = match (at < 6, state % 2 == 0) {
                (true, false) => &[1, 2],
                (true, true) => &[2],
                (false, false) => &[1],
                (false, true) => &[],
            };
            assert_eq!(held_of(&director, at), wanted, "{state} {at}");
        }
    }
    let looked_at = looked_at(&director) - before;
    assert!(looked_at <= 20 * 12, "one file of each version and delta: {looked_at}");
}

fn held_of(director: &Director, at: usize) -> Vec<u32> {
    held(director, "a1", &format!("film-{}", at + 1))
}

#[test]
fn a_version_whose_renditions_nobody_told_is_held_wholly_or_not_at_all() {
    let mut director = running(&["a1"]);
    put_version(&mut director, "film-1", &OBJECTS, 1);
    says(&mut director, 21, &OBJECTS[..11]);
    assert!(held(&director, "a1", "film-1").is_empty());
    put_divided(&mut director, "film-1", &OBJECTS, &NUMBERS, 2);
    says(&mut director, 22, &[10, 11, 12, 13, 14, 15, 21]);
    assert_eq!(held(&director, "a1", "film-1"), [1], "told later");
    put_version(&mut director, "film-1", &OBJECTS, 3);
    assert!(held(&director, "a1", "film-1").is_empty());
}

#[test]
fn who_is_gone_holds_no_rendition() {
    let mut director = running(&["a1"]);
    put_divided(&mut director, "film-1", &OBJECTS, &NUMBERS, 1);
    says(&mut director, 21, &[10, 11, 12, 13, 14, 15, 21]);
    director.handle(at(0), Event::Changed(Change::ApplianceGone(id("a1"))));
    assert!(director.snapshot().view.partial_holders.iter().all(|holders| holders.is_empty()));
}

/// Three appliances of a version: a1 has its lower rendition, the others all of it.
fn with_lower_only_at_a1() -> Director {
    let mut director = running(&["a1", "a2", "a3"]);
    put_divided(&mut director, "film-1", &OBJECTS, &NUMBERS, 1);
    says(&mut director, 21, &[10, 11, 12, 13, 14, 15, 21]);
    hold(&mut director, "a2", &OBJECTS);
    hold(&mut director, "a3", &OBJECTS);
    director
}

/// The pathways that a player is steered to.
fn steered(director: &Director, ticket: &Ticket) -> BTreeSet<String> {
    let list = director.snapshot().steer(ticket, &STEERING);
    list.iter().map(ToString::to_string).collect()
}

#[test]
fn a_pathway_is_lost_with_any_of_its_appliances() {
    let mut director = with_lower_only_at_a1();
    let parts = [(id("a1"), vec![part("a1", 0b01), part("a2", 0b10)])].into();
    let ticket = Ticket { parts, ..ticket(&["a1", "a2", "a3"]) };
    let without = |director: &mut Director, stopped: &[&str]| {
        for (name, sequence) in ["a1", "a2", "a3"].iter().zip(100..) {
            let serving = !stopped.contains(name);
            let inventory = Delta { from: 1, to: 1, ..Delta::default() };
            let sequence = sequence + 10 * director.counters().reports;
            let report = Report { serving, inventory, ..report(sequence) };
            director.report(at(0), &id(name), &report).unwrap();
        }
        steered(director, &ticket)
    };
    let is = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(without(&mut director, &[]), is(&["a1", "a2", "a3"]));
    assert_eq!(without(&mut director, &["a2"]), is(&["a3"]));
    assert_eq!(without(&mut director, &["a1"]), is(&["a2", "a3"]));
    assert_eq!(without(&mut director, &["a1", "a2", "a3"]), is(&["a1", "a2", "a3"]));
}

#[test]
fn a_pathway_is_lost_with_a_rendition_that_it_has_there() {
    let mut director = with_lower_only_at_a1();
    let parts = [
        (id("a1"), vec![part("a1", 0b01), part("a2", 0b10)]),
        (id("a3"), vec![part("a3", 0b10), part("a2", 0b01)]),
    ];
    let ticket = Ticket { parts: parts.into(), ..ticket(&["a1", "a2", "a3"]) };
    assert_eq!(steered(&director, &ticket).len(), 3);
    let gone = OBJECTS[6..11].iter().map(|n| object(*n)).collect();
    let inventory = Delta { from: 1, to: 2, gone, ..Delta::default() };
    let report = Report { inventory, ..report(200) };
    director.report(at(0), &id("a2"), &report).unwrap();
    assert_eq!(held(&director, "a2", "film-1"), [1]);
    // Neither all of it nor the upper rendition is at a2 any more: the lower one still is.
    assert_eq!(steered(&director, &ticket), [String::from("a3")].into());
}

#[test]
fn a_site_with_a_limit_gets_the_lower_renditions_and_says_so_in_its_manifests() {
    let mut director = running(&["a1", "b1"]);
    let text = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=800\n11.mp4\n\
                #EXT-X-STREAM-INF:BANDWIDTH=3000\n16.mp4\n";
    put_divided(&mut director, "film-1", &OBJECTS, &[], 1);
    let known = director.desired().catalog.version(&"film-1".parse().unwrap()).unwrap().clone();
    let entry = Entry { path: "m.m3u8".to_owned(), format: Format::Hls, text: text.into() };
    let version = Version::new(known.files.clone(), vec![entry], 2).divided(NUMBERS.to_vec());
    let version = version.numbered(Some(700));
    director.handle(at(0), Event::Changed(Change::Version(Arc::new(version))));
    settle(&mut director);
    let whole = manifest(&director, "a1").numbered().unwrap();
    let limit = |director: &mut Director, most: Option<u64>| {
        let place = &director.desired().appliances[&id("a1")].appliance.site;
        let site = director.desired().sites[place].clone();
        let site = Site { bitrate_max: most.map(BitsPerSecond), ..site };
        director.handle(at(0), Event::Changed(Change::Site(site)));
        settle(director);
        let manifest = manifest(director, "a1");
        let numbered = manifest.numbered().unwrap();
        assert!(numbered.iter().all(|of| whole.contains(of)), "a part has numbers of the whole");
        let files = manifest.versions.first().map_or(0, |version| version.files.len());
        (files, manifest.generation)
    };
    let (all, first) = limit(&mut director, None);
    let (part, second) = limit(&mut director, Some(2999));
    assert_eq!((all, part), (12, 7));
    assert!(first < second, "a new generation");
    assert_eq!(limit(&mut director, Some(2999)), (7, second), "the same manifest is none");
    assert_eq!(limit(&mut director, Some(800)), (7, second), "nor is one of the same files");
    assert_eq!(limit(&mut director, Some(799)).0, 0, "nobody plays what belongs to none alone");
    assert_eq!(limit(&mut director, Some(3000)).0, 12);
}

#[derive(Clone, Debug)]
enum Step {
    All(BTreeSet<u8>),
    Delta {
        came: BTreeSet<u8>,
        gone: BTreeSet<u8>,
    },
    /// Another version with some of the objects, which makes the first the older one, or it goes.
    Other(bool),
    Kept(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let objects = |most| proptest::collection::btree_set(8_u8..24, 0..most);
    prop_oneof![
        1 => objects(16).prop_map(Step::All),
        8 => (objects(5), objects(3)).prop_map(|(came, gone)| Step::Delta { came, gone }),
        1 => any::<bool>().prop_map(Step::Other),
        1 => (1_u32..3).prop_map(Step::Kept),
    ]
}

proptest! {
    #[test]
    fn deltas_lead_to_what_is_held(steps in vec(step(), 1..40)) {
        let mut director = running(&["a1"]);
        put_divided(&mut director, "film-1", &OBJECTS, &NUMBERS, 1);
        let other: Vec<u8> = OBJECTS.iter().map(|n| if *n < 15 { *n } else { *n + 2 }).collect();
        let mut objects: BTreeSet<u8> = BTreeSet::new();
        let (mut state, mut sequence, mut has_other, mut kept) = (0, 100, false, 2);
        for step in steps {
            sequence += 1;
            let list = |set: &BTreeSet<u8>| set.iter().map(|n| object(*n)).collect();
            let inventory = match step {
                Step::All(all) => {
                    objects = all;
                    Delta { to: sequence, held: list(&objects), ..Delta::default() }
                }
                Step::Delta { came, gone } if state != 0 => {
                    let gone: BTreeSet<u8> = gone.difference(&came).copied().collect();
                    objects = objects.union(&came).filter(|n| !gone.contains(n)).copied().collect();
                    let (held, gone) = (list(&came), list(&gone));
                    Delta { from: state, to: sequence, held, gone, check: None }
                }
                Step::Delta { .. } => continue,
                Step::Other(true) if !has_other => {
                    put_divided(&mut director, "film-2", &other, &NUMBERS, sequence);
                    has_other = true;
                    continue;
                }
                Step::Other(false) if has_other => {
                    let gone = vec!["film-2".parse().unwrap()];
                    director.handle(at(0), Event::Changed(Change::Superseded(gone)));
                    settle(&mut director);
                    has_other = false;
                    continue;
                }
                Step::Other(_) => continue,
                Step::Kept(versions_kept) => {
                    kept = versions_kept;
                    let policy = Policy { versions_kept, ..director.desired().policy };
                    director.handle(at(0), Event::Changed(Change::Policy(policy)));
                    settle(&mut director);
                    continue;
                }
            };
            state = inventory.to;
            let report = Report { inventory, ..report(sequence) };
            director.report(at(0), &id("a1"), &report).unwrap();
            let is_kept = !has_other || kept == 2;
            let wanted = if is_kept { expected(&objects, &OBJECTS) } else { Vec::new() };
            prop_assert_eq!(held(&director, "a1", "film-1"), wanted);
            if has_other {
                prop_assert_eq!(held(&director, "a1", "film-2"), expected(&objects, &other));
            }
        }
    }
}

#[test]
fn counts_of_versions_that_are_gone_are_forgotten() {
    let mut director = running(&["a1"]);
    let withdrawal = |n: u64, name: &str| withdrawal_tests::withdrawal(n, &[name], &["a1"]);
    for n in 1..=200 {
        let (name, first) = (format!("film-{n}"), u32::try_from(n * 100).unwrap());
        put_divided(&mut director, &name, &OBJECTS, &NUMBERS, n);
        let known = director.desired().catalog.version(&name.parse().unwrap()).unwrap();
        let version = Version::clone(known).numbered(Some(first));
        director.handle(at(0), Event::Changed(Change::Version(Arc::new(version))));
        // One file, and of neither rendition all.
        let came: NumberSet = [first + 1].into();
        let files = FilesDelta { to: n, check: Check::of_files(&came), came, ..Default::default() };
        let files = if n == 1 {
            files
        } else {
            let held: NumberSet = (1..=n).map(|n| u32::try_from(n * 100 + 1).unwrap()).collect();
            FilesDelta { from: n - 1, check: Check::of_files(&held), ..files }
        };
        let came = Check::of_files(&files.came);
        let report = Report { came, files: Some(files), ..report(100 + n) };
        assert_eq!(director.report(at(0), &id("a1"), &report).unwrap().inventory, n);
        director.handle(at(0), Event::Changed(Change::Withdrawn(withdrawal(n, &name))));
        settle(&mut director);
    }
    let observed = director.members.get(&id("a1")).unwrap().observed.as_ref().unwrap();
    assert!(observed.counted() <= 8, "{} are counted, and none is there", observed.counted());
}

#[test]
fn a_small_appliance_holds_some_renditions_and_what_goes_along_with_them_fits() {
    // Five files of each rendition and two of none, 8 KiB each on a drive.
    let text = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=800\n11.mp4\n\
                #EXT-X-STREAM-INF:BANDWIDTH=3000\n16.mp4\n";
    let files = |blocks: u64| {
        let mut director = running(&["a1"]);
        director.handle(at(0), Event::Changed(Change::Usable(id("a1"), Bytes(blocks * 8192))));
        director.handle(at(0), Event::Tick(UnixSeconds(1)));
        let known = version_of("film-1", &OBJECTS, 1);
        let entry = Entry { path: "m.m3u8".to_owned(), format: Format::Hls, text: text.into() };
        let version = Version::new(known.files.clone(), vec![entry], 1).divided(NUMBERS.to_vec());
        let version = version.numbered(Some(700));
        director.handle(at(0), Event::Changed(Change::Version(Arc::new(version))));
        settle(&mut director);
        let manifest = manifest(&director, "a1");
        let names =
            manifest.versions.first().map(|of| of.files.keys().cloned().collect::<Vec<_>>());
        names.unwrap_or_default().join(" ")
    };
    let low = "10.mp4 11.mp4 12.mp4 13.mp4 14.mp4 15.mp4 21.mp4";
    let high = "10.mp4 16.mp4 17.mp4 18.mp4 19.mp4 20.mp4 21.mp4";
    assert_eq!(files(12).split(' ').count(), 12);
    assert!([low, high].contains(&files(11).as_str()), "{}", files(11));
    assert!([low, high].contains(&files(7).as_str()), "{}", files(7));
    assert_eq!(files(6), "", "there is room for a rendition and not for what goes along");
}

/// The upper rendition is worth far more than the lower one, which does not fit; another film that
/// nobody watches would.
#[test]
fn what_nobody_asks_for_does_not_take_the_room_of_what_goes_along() {
    let mut director = running(&["a1"]);
    let text = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=800\n11.mp4\n\
                #EXT-X-STREAM-INF:BANDWIDTH=3000\n16.mp4\n";
    let known = version_of("film-1", &OBJECTS, 1);
    let entry = Entry { path: "m.m3u8".to_owned(), format: Format::Hls, text: text.into() };
    let version = Version::new(known.files.clone(), vec![entry], 1).divided(NUMBERS.to_vec());
    let version = version.numbered(Some(700));
    let spare = Version::clone(&version_of("film-2", &[99], 2)).numbered(Some(900));
    director.handle(at(0), Event::Tick(UnixSeconds(30 * 86_400)));
    // Five blocks of the upper one, two of what goes along.
    director.handle(at(0), Event::Changed(Change::Usable(id("a1"), Bytes(7 * 8192))));
    let wanted = |item, day| placement::plan::Wanted {
        item: model::id::Item(item),
        day: Bytes(day),
        peak: BitsPerSecond(1),
    };
    let regions = BTreeMap::from([(None, [wanted(701, 1 << 30)].into_iter().collect())]);
    director.handle(at(0), Event::Expected(Arc::new(Expected { regions })));
    for version in [version, spare] {
        director.handle(at(0), Event::Changed(Change::Version(Arc::new(version))));
    }
    settle(&mut director);
    let high = "10.mp4 16.mp4 17.mp4 18.mp4 19.mp4 20.mp4 21.mp4";
    let held = |director: &Director| {
        let manifest = manifest(director, "a1");
        let all = manifest.versions.iter().flat_map(|of| of.files.keys().cloned());
        all.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(held(&director), high);
    let generation = generations(&director)["a1"];
    director.handle(at(0), Event::PlanNow { forces: None });
    settle(&mut director);
    assert_eq!(generations(&director)["a1"], generation, "nor the next time");
    let mut director = restarted(&director);
    settle(&mut director);
    assert_eq!(held(&director), high, "nor after a start, when nothing is expected yet");
}

#[test]
fn whoever_held_a_version_as_a_whole_holds_all_its_renditions_once_they_are_told() {
    let mut director = running(&["a1"]);
    director.handle(at(0), Event::Changed(Change::Usable(id("a1"), Bytes(12 * 8192))));
    director.handle(at(0), Event::Expected(Arc::default()));
    let text = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=800\n11.mp4\n\
                #EXT-X-STREAM-INF:BANDWIDTH=3000\n16.mp4\n";
    let known = version_of("film-1", &OBJECTS, 1);
    let entry = Entry { path: "m.m3u8".to_owned(), format: Format::Hls, text: text.into() };
    let whole = Version::new(known.files.clone(), vec![entry], 1).numbered(Some(700));
    director.handle(at(0), Event::Changed(Change::Version(Arc::new(whole.clone()))));
    settle(&mut director);
    let before = generations(&director);
    // Nobody watches it, and it is new no more.
    director.handle(at(0), Event::Tick(UnixSeconds(30 * 86_400)));
    let divided = whole.divided(NUMBERS.to_vec());
    director.handle(at(0), Event::Changed(Change::Version(Arc::new(divided))));
    let other = Version::clone(&version_of("film-2", &[99], 2)).numbered(Some(900));
    director.handle(at(0), Event::Changed(Change::Version(Arc::new(other))));
    settle(&mut director);
    assert_eq!(manifest(&director, "a1").versions.len(), 1, "there is no room for the other");
    assert_eq!((generations(&director), films(&director)), (before, 12));
}

fn films(director: &Director) -> usize {
    manifest(director, "a1").versions.iter().map(|of| of.files.len()).sum()
}
