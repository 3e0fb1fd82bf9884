//! What operators say of versions.

use super::refused::{expect_others, films_of, full, put, title};
use super::*;
use crate::wishes::{Launch, LaunchLike, Rule, RuleKind, UnkeptWhy, Where, Wishes};
use placement::plan::Why;

fn everywhere() -> Where {
    Where::Everywhere
}

fn at_site(name: &str) -> Where {
    Where::Site(name.parse().unwrap())
}

const PIN: Rule = Rule { kind: RuleKind::Pin, until: None };
const BAN: Rule = Rule { kind: RuleKind::Ban, until: None };

/// These are all that operators say.
fn say(director: &mut Director, rules: &[(&str, Where, Rule)]) {
    let rule =
        |(version, at, rule): &(&str, Where, Rule)| ((version.parse().unwrap(), at.clone()), *rule);
    let wishes = Wishes { rules: rules.iter().map(rule).collect(), ..Wishes::default() };
    director.handle(at(0), Event::Changed(Change::Wishes(Arc::new(wishes))));
    settle(director);
}

fn films(director: &Director, name: &str) -> BTreeSet<String> {
    manifest(director, name).versions.iter().map(|of| of.id.to_string()).collect()
}

#[test]
fn a_full_site_keeps_what_is_pinned_and_drops_what_is_banned() {
    let mut director = full(10);
    expect_others(&mut director, 4);
    let gone: Vec<String> = (0..10)
        .map(|n| format!("film-{n}"))
        .filter(|film| !films(&director, "a1").contains(film))
        .collect();
    assert_eq!(gone.len(), 4, "what is worth least goes");
    let pinned = gone[0].as_str();
    say(&mut director, &[(pinned, at_site("a"), PIN), ("film-101", everywhere(), BAN)]);
    assert_eq!(director.refused(), None);
    let held = films(&director, "a1");
    assert!(held.contains(pinned), "{held:?}");
    assert!(!held.contains("film-101"), "though it is worth most: {held:?}");
    assert!(held.contains("film-100") && held.len() == 10, "{held:?}");
    assert_eq!(director.places().report.pins_missing, []);
    say(&mut director, &[]);
    assert!(films(&director, "a1").contains("film-101"), "it comes again");
}

/// This film has no source any more.
fn without_source(director: &mut Director, film: &str) {
    let known = director.desired().catalog.version(&film.parse().unwrap()).unwrap().clone();
    let files = AssetVersion { sources: Vec::new(), ..known.files.as_ref().clone() };
    let version = Version::new(Arc::new(files), Vec::new(), known.sequence);
    put(director, version.numbered(known.first_file));
    settle(director);
}

/// The bans that are not kept, in words.
fn unkept(director: &Director) -> Vec<String> {
    let report = &director.places().report;
    assert_eq!(report.bans_unkept_count, Bytes::of(report.bans_unkept.len()).0);
    report.bans_unkept.iter().map(ToString::to_string).collect()
}

const STAYS: &str = "film-0 is banned everywhere, and a1 keeps it (ban not kept: last copy of \
                     film-0 has no source): pin it elsewhere, give it a source, or take it down";

#[test]
fn a_ban_goes_without_a_limit_but_not_the_last_copy_of_what_has_no_origin() {
    let mut director = full(10);
    let all: Vec<String> = (0..10).map(|n| format!("film-{n}")).collect();
    let say_all = |director: &mut Director, films: &[String]| {
        let bans: Vec<_> = films.iter().map(|film| (film.as_str(), everywhere(), BAN)).collect();
        say(director, &bans);
    };
    without_source(&mut director, "film-0");
    say_all(&mut director, &all[1..]);
    assert_eq!((director.refused(), films_of(&director)), (None, 1), "it was asked for");
    say_all(&mut director, &all);
    assert_eq!((director.refused(), unkept(&director)), (None, vec![STAYS.to_owned()]));
    assert_eq!(films(&director, "a1"), ["film-0".to_owned()].into(), "no origin has it");
    // The plan goes on: what comes next comes, but for the room of what stays.
    (100..110).for_each(|n| put(&mut director, title(&format!("film-{n}"), &format!("t-{n}"), n)));
    settle(&mut director);
    assert_eq!((director.refused(), films_of(&director)), (None, 10));
    assert!(films(&director, "a1").contains("film-0"));
    force(&mut director);
    settle(&mut director);
    assert_eq!((director.refused(), films_of(&director)), (None, 10));
    assert!(!films(&director, "a1").contains("film-0") && unkept(&director).is_empty());
    director.handle(at(0), Event::PlanNow { forces: None });
    settle(&mut director);
    assert_eq!(director.refused(), None, "it is gone, and nobody waits for it");
}

#[test]
fn of_more_pins_than_there_is_room_for_what_has_no_source_stays() {
    let mut director = full(10);
    expect_others(&mut director, 4);
    let all: Vec<String> = (0..10).map(|n| format!("film-{n}")).collect();
    let is_gone = |film: &&String| !films(&director, "a1").contains(*film);
    let least = all.iter().find(is_gone).unwrap().as_str();
    let mut pins: Vec<_> = all.iter().map(|film| (film.as_str(), at_site("a"), PIN)).collect();
    say(&mut director, &pins);
    without_source(&mut director, least);
    pins.push(("film-100", at_site("a"), PIN));
    say(&mut director, &pins);
    assert_eq!(director.refused(), None, "no last copy would go");
    let held = films(&director, "a1");
    assert!(held.contains(least) && held.contains("film-100") && held.len() == 10, "{held:?}");
    assert_eq!(director.places().report.pins_missing_count, 1);
}

#[test]
fn while_a_plan_is_refused_bans_go_on_and_pins_that_wait_are_told() {
    let mut director = full(10);
    expect_others(&mut director, 8);
    assert!(director.refused().is_some());
    without_source(&mut director, "film-4");
    let rules = [
        ("film-3", at_site("a"), BAN),
        ("film-4", at_site("a"), BAN),
        ("film-5", at_site("a"), PIN),
        ("film-100", everywhere(), PIN),
    ];
    say(&mut director, &rules);
    assert!(director.refused().is_some());
    let held = films(&director, "a1");
    assert!(!held.contains("film-3") && held.len() == 9, "{held:?}");
    assert_eq!(unkept(&director).len(), 1, "of film-4 it is the last copy");
    let missing: Vec<_> = director
        .places()
        .report
        .pins_missing
        .iter()
        .map(|of| (of.version.as_str(), &of.why))
        .collect();
    assert_eq!(missing, [("film-100", &UnkeptWhy::PlanRefused)]);
    force(&mut director);
    settle(&mut director);
    assert_eq!((director.refused(), director.places().report.pins_missing_count), (None, 0));
}

#[test]
fn a_pin_that_waits_for_a_refused_plan_is_told_of_each_cluster_that_lacks_it() {
    let mut director = running(&["a1", "b1"]);
    let policy = Policy { versions_kept: 1, ..director.desired().policy };
    director.handle(at(0), Event::Changed(Change::Policy(policy)));
    for name in ["a1", "b1"] {
        director.handle(at(0), Event::Changed(Change::Usable(id(name), Bytes(10 * 8192))));
    }
    director.handle(at(0), Event::Expected(Arc::default()));
    (0..10).for_each(|n| put(&mut director, title(&format!("film-{n}"), &format!("title-{n}"), n)));
    settle(&mut director);
    say(&mut director, &[("film-3", at_site("b"), BAN)]);
    assert_eq!(["a1", "b1"].map(|name| films(&director, name).len()), [10, 9]);
    director.handle(at(0), Event::Tick(UnixSeconds(30 * 86_400)));
    expect_others(&mut director, 8);
    assert!(director.refused().is_some());
    say(&mut director, &[("film-3", everywhere(), PIN), ("film-100", everywhere(), PIN)]);
    assert!(director.refused().is_some());
    let missing = director.places().report.pins_missing.iter();
    let waits = missing.filter(|of| of.why == UnkeptWhy::PlanRefused);
    let waits: BTreeSet<_> = waits.map(|of| (of.version.as_str(), of.at.clone())).collect();
    assert!(films(&director, "b1").contains("film-100"), "it had room for one more");
    let wanted = [("film-100", "a"), ("film-3", "b")];
    assert_eq!(waits, wanted.map(|(film, site)| (film, at_site(site))).into());
}

#[test]
fn what_stays_against_a_ban_is_told_where_it_is_asked_for() {
    let mut director = full(2);
    without_source(&mut director, "film-0");
    say(&mut director, &[("film-0", everywhere(), BAN), ("film-1", everywhere(), BAN)]);
    let told = |director: &Director, film: &str| {
        let held = director.question().why(&"a".parse().unwrap(), &film.parse().unwrap());
        (held[0].is_held, held[0].is_last, held[0].why)
    };
    assert_eq!(told(&director, "film-0"), (true, true, Why::Banned));
    assert_eq!(told(&director, "film-1"), (false, false, Why::Banned));
    let keepers = |film: &str| {
        let film = film.parse().unwrap();
        director.places().keepers(&film).map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!((keepers("film-0"), keepers("film-1")), (vec!["a1".to_owned()], vec![]));
    assert_eq!(director.places().report.at_origin, 1, "film-1 alone");
    // With a source the ban is kept, and a restart before it keeps the film.
    let mut again = restarted(&director);
    settle(&mut again);
    assert_eq!((films(&again, "a1").len(), unkept(&again)), (1, vec![STAYS.to_owned()]));
    put(&mut director, title("film-0", "title-0", 0));
    settle(&mut director);
    assert_eq!((films_of(&director), unkept(&director), director.refused()), (0, vec![], None));
}

#[test]
fn a_ban_moves_what_has_no_origin_only_to_one_that_has_it() {
    let mut director = running(&["a1", "b1"]);
    put(&mut director, title("film-1", "title-1", 1));
    settle(&mut director);
    without_source(&mut director, "film-1");
    let holders =
        |director: &Director| ["a1", "b1"].map(|name| films(director, name).contains("film-1"));
    // That it should lie at a1 is not enough: nobody has said that it does.
    say(&mut director, &[("film-1", at_site("b"), BAN)]);
    assert_eq!((holders(&director), unkept(&director).len()), ([true, true], 1));
    hold(&mut director, "a1", &[1]);
    settle(&mut director);
    assert_eq!((holders(&director), unkept(&director).len()), ([true, false], 0));
    let rules = [("film-1", at_site("a"), BAN), ("film-1", at_site("b"), PIN)];
    say(&mut director, &rules);
    assert_eq!((holders(&director), director.refused()), ([true, true], None), "until it comes");
    assert!(unkept(&director)[0].starts_with("film-1 is banned at site a, and a1 keeps it"));
    director.handle(at(0), Event::PlanNow { forces: None });
    settle(&mut director);
    assert_eq!(holders(&director), [true, true], "another plan brings nothing by itself");
    let placements = director.counters().placements;
    hold(&mut director, "b1", &[1]);
    settle(&mut director);
    assert_eq!((holders(&director), director.refused()), ([false, true], None));
    assert_eq!((unkept(&director).len(), director.counters().placements), (0, placements + 1));
}

#[test]
fn one_that_is_silent_is_not_counted_on_for_a_last_copy() {
    let mut director = two_with_a_last_copy();
    director.handle(at(2_000), Event::Tick(UnixSeconds(2)));
    let rules = BTreeMap::from([(("film-1".parse().unwrap(), at_site("a")), BAN)]);
    let wishes = Wishes { rules, ..Wishes::default() };
    director.handle(at(2_000), Event::Changed(Change::Wishes(Arc::new(wishes))));
    settle(&mut director);
    assert!(films(&director, "a1").contains("film-1"));
    assert_eq!(unkept(&director).len(), 1);
}

/// Two that have a film without a source.
fn two_with_a_last_copy() -> Director {
    let mut director = running(&["a1", "b1"]);
    put(&mut director, title("film-1", "title-1", 1));
    settle(&mut director);
    without_source(&mut director, "film-1");
    ["a1", "b1"].iter().for_each(|name| hold(&mut director, name, &[1]));
    director
}

#[test]
fn one_that_has_it_all_the_while_and_may_again_lets_the_last_copy_go() {
    let mut director = two_with_a_last_copy();
    say(&mut director, &[("film-1", everywhere(), BAN)]);
    assert_eq!(["a1", "b1"].map(|name| films(&director, name).len()), [1, 0]);
    // It has said nothing new: it was to drop the film, and has not yet.
    say(&mut director, &[("film-1", everywhere(), BAN), ("film-1", at_site("b"), PIN)]);
    assert_eq!(["a1", "b1"].map(|name| films(&director, name).len()), [0, 1]);
}

#[test]
fn a_copy_that_is_reported_while_a_plan_is_made_lets_the_last_one_go() {
    let mut director = running(&["a1", "b1"]);
    put(&mut director, title("film-1", "title-1", 1));
    settle(&mut director);
    without_source(&mut director, "film-1");
    hold(&mut director, "a1", &[1]);
    let rules = BTreeMap::from([(("film-1".parse().unwrap(), at_site("a")), BAN)]);
    let wishes = Wishes { rules, ..Wishes::default() };
    director.handle(at(0), Event::Changed(Change::Wishes(Arc::new(wishes))));
    assert!(!director.planning.is_done());
    hold(&mut director, "b1", &[1]);
    settle(&mut director);
    assert_eq!(["a1", "b1"].map(|name| films(&director, name).len()), [0, 1]);
}

#[test]
fn one_that_was_silent_and_is_back_lets_the_last_copy_go() {
    let mut director = two_with_a_last_copy();
    director.handle(at(2_000), Event::Tick(UnixSeconds(2)));
    let rules = BTreeMap::from([(("film-1".parse().unwrap(), at_site("a")), BAN)]);
    let wishes = Wishes { rules, ..Wishes::default() };
    director.handle(at(2_000), Event::Changed(Change::Wishes(Arc::new(wishes))));
    settle(&mut director);
    assert_eq!(["a1", "b1"].map(|name| films(&director, name).len()), [1, 1]);
    let inventory = Delta { from: 1, to: 1, ..Delta::default() };
    let back = Report { inventory, ..report(21) };
    director.report(at(2_100), &id("b1"), &back).unwrap();
    settle(&mut director);
    assert_eq!(["a1", "b1"].map(|name| films(&director, name).len()), [0, 1]);
}

#[test]
fn of_several_that_must_not_hold_a_last_copy_one_that_has_it_keeps_it() {
    let mut director = running(&["a1", "b1", "c1"]);
    put(&mut director, title("film-1", "title-1", 1));
    settle(&mut director);
    without_source(&mut director, "film-1");
    let holders = |director: &Director| {
        ["a1", "b1", "c1"].map(|name| films(director, name).contains("film-1"))
    };
    say(&mut director, &[("film-1", everywhere(), BAN)]);
    assert_eq!((holders(&director), director.refused()), ([true; 3], None), "nobody has said it");
    hold(&mut director, "b1", &[1]);
    director.handle(at(0), Event::PlanNow { forces: None });
    settle(&mut director);
    assert_eq!((holders(&director), director.refused()), ([false, true, false], None));
}

#[test]
fn a_last_copy_that_goes_for_another_cause_is_refused_though_it_is_banned_elsewhere() {
    let mut director = full(10);
    let b1 = Appliance::new(id("b1"), "b".parse().unwrap(), Weight::ONE);
    director.handle(at(0), Event::Changed(Change::Appliance(b1)));
    director.handle(at(0), Event::Changed(Change::Usable(id("b1"), Bytes(10 * 8192))));
    settle(&mut director);
    without_source(&mut director, "film-0");
    hold(&mut director, "a1", &[0]);
    say(&mut director, &[("film-0", at_site("b"), BAN)]);
    let held = ["a1", "b1"].map(|name| films(&director, name).contains("film-0"));
    assert_eq!((held, director.refused()), ([true, false], None));
    expect_others(&mut director, 1);
    let refused = director.refused().expect("at a1 the oldest would go").words();
    assert!(refused[0].starts_with("the plan evicts the last copies of items: 1, "), "{refused:?}");
}

#[test]
fn the_rule_of_a_site_goes_before_that_of_its_cluster_and_that_before_everywhere() {
    let mut director = running(&["a1", "b1"]);
    put_version(&mut director, "film-1", &[1], 1);
    let holders =
        |director: &Director| ["a1", "b1"].map(|name| films(director, name).contains("film-1"));
    assert_eq!(holders(&director), [true, true]);
    say(&mut director, &[("film-1", everywhere(), BAN), ("film-1", at_site("b"), PIN)]);
    assert_eq!(holders(&director), [false, true]);
    // Planned together it lies at one of them, or wherever a site wants it.
    let north = Where::Cluster("north".parse().unwrap());
    for name in ["a", "b"] {
        let known = director.desired().sites[name].clone();
        let site = Site { manifest_cluster: Some("north".parse().unwrap()), ..known };
        director.handle(at(0), Event::Changed(Change::Site(site)));
    }
    settle(&mut director);
    assert_eq!(holders(&director), [false, true]);
    say(&mut director, &[("film-1", everywhere(), BAN), ("film-1", north.clone(), PIN)]);
    assert_ne!(holders(&director), [false, false]);
    say(&mut director, &[("film-1", north.clone(), PIN), ("film-1", at_site("a"), BAN)]);
    assert_eq!(holders(&director), [false, true]);
    say(&mut director, &[("film-1", at_site("a"), BAN), ("film-1", at_site("b"), BAN)]);
    assert_eq!(holders(&director), [false, false]);
    say(&mut director, &[("film-1", at_site("a"), PIN), ("film-1", at_site("b"), PIN)]);
    assert_eq!(holders(&director), [true, true]);
    say(&mut director, &[("film-1", north, BAN)]);
    assert_eq!(holders(&director), [false, false]);
}

#[test]
fn a_rule_counts_until_its_time_is_over() {
    let mut director = running(&["a1"]);
    put_version(&mut director, "film-1", &[1], 1);
    let until = Some(UnixSeconds(100));
    say(&mut director, &[("film-1", everywhere(), Rule { until, ..BAN })]);
    assert_eq!(films_of(&director), 0);
    director.handle(at(0), Event::Tick(UnixSeconds(99)));
    director.handle(at(0), Event::PlanNow { forces: None });
    settle(&mut director);
    assert_eq!(films_of(&director), 0);
    director.handle(at(0), Event::Tick(UnixSeconds(100)));
    director.handle(at(0), Event::PlanNow { forces: None });
    settle(&mut director);
    assert_eq!(films_of(&director), 1);
    let wishes = director.desired().wishes.lasting(UnixSeconds(100), 14, |_| true);
    assert_eq!(wishes, Wishes::default());
}

#[test]
fn a_pin_that_cannot_be_kept_is_told() {
    let mut director = full(3);
    put(&mut director, title("film-9", "title-9", 9));
    director.handle(at(0), Event::Changed(Change::Usable(id("a1"), Bytes(2 * 8192))));
    let rule = |film: &'static str, at| (film, at, PIN);
    say(
        &mut director,
        &[
            rule("film-0", everywhere()),
            rule("film-1", everywhere()),
            rule("film-2", everywhere()),
            rule("film-9", at_site("c")),
            rule("film-8", everywhere()),
        ],
    );
    let report = &director.places().report;
    let why: BTreeSet<_> = report.pins_missing.iter().map(ToString::to_string).collect();
    assert_eq!(report.pins_missing_count, 3, "{why:?}");
    let room = |film: &str| {
        format!(
            "{film} is pinned at site a, and 1 MiB of it have no room there: add drives, or end \
             other pins"
        )
    };
    assert_eq!(why.iter().filter(|of| of.contains("have no room")).count(), 1);
    assert!(["film-0", "film-1", "film-2"].iter().any(|film| why.contains(&room(film))), "{why:?}");
    let nobody = "film-9 is pinned at site c, and no appliance stands there: end the pin";
    assert!(why.contains(nobody), "{why:?}");
    let not_kept = report.pins_missing.iter().find(|of| of.version.as_str() == "film-8");
    assert_eq!(not_kept.map(|of| of.why.clone()), Some(UnkeptWhy::NotKept));
    director.handle(at(0), Event::Changed(Change::Usable(id("a1"), Bytes::ZERO)));
    settle(&mut director);
    let missing = &director.places().report.pins_missing;
    assert_eq!(missing.iter().filter(|of| of.why == UnkeptWhy::NoDrives).count(), 3, "{missing:?}");
}

#[test]
fn a_site_that_is_gone_takes_along_what_was_said_of_it() {
    let mut director = running(&["a1"]);
    put_version(&mut director, "film-1", &[1], 1);
    put(&mut director, title("film-2", "title-2", 2));
    let north = Where::Cluster("north".parse().unwrap());
    say(
        &mut director,
        &[
            ("film-1", at_site("b"), BAN),
            ("film-2", at_site("b"), PIN),
            ("film-1", north.clone(), BAN),
        ],
    );
    assert_eq!(director.places().report.pins_missing_count, 1, "nobody stands in b");
    director.handle(at(0), Event::Changed(Change::SiteGone("b".parse().unwrap())));
    settle(&mut director);
    assert_eq!(director.places().report.pins_missing_count, 0);
    let left: Vec<_> = director.desired().wishes.rules.keys().map(|(_, at)| at.clone()).collect();
    assert_eq!(left, [north], "a manifest cluster is a name, and any site may get it");
    // Another gets its name.
    director.handle(at(0), Event::Changed(Change::Site(site("b", "10.0.0.0/8"))));
    let b1 = Appliance::new(id("b1"), "b".parse().unwrap(), Weight::ONE);
    director.handle(at(0), Event::Changed(Change::Appliance(b1)));
    director.handle(at(0), Event::Changed(Change::Usable(id("b1"), USABLE)));
    settle(&mut director);
    assert!(films(&director, "b1").contains("film-1"), "{:?}", films(&director, "b1"));
}

#[test]
fn a_question_is_answered_with_what_was_said() {
    let mut director = running(&["a1"]);
    put_version(&mut director, "film-1", &[1], 1);
    let (film, a) = ("film-1".parse::<AssetVersionId>().unwrap(), "a".parse().unwrap());
    say(&mut director, &[("film-1", at_site("a"), BAN)]);
    let told = |director: &Director| director.question().why(&a, &film).remove(0);
    let banned = told(&director);
    assert_eq!((banned.is_held, banned.why), (false, Why::Banned));
    assert_eq!(banned.rule, Some((at_site("a"), BAN)));
    say(&mut director, &[("film-1", everywhere(), PIN)]);
    let pinned = told(&director);
    assert_eq!((pinned.is_held, pinned.why), (true, Why::Pinned { copies: 1 }));
    assert_eq!(pinned.rule, Some((everywhere(), PIN)));
    let launch = Launch { begin: UnixSeconds(9), like: LaunchLike::Bytes(Bytes(7)) };
    let launches = BTreeMap::from([(film.clone(), launch.clone())]);
    let wishes = Arc::new(Wishes { launches, ..Wishes::default() });
    let known = director.desired().wishes.rules.clone();
    let only_launches = Wishes { rules: known, ..Wishes::clone(&wishes) };
    let before = director.counters().placements;
    let change = Change::Wishes(Arc::new(only_launches));
    director.handle(at(0), Event::Changed(change));
    settle(&mut director);
    assert_eq!(director.counters().placements, before, "it is for the next forecast");
    assert_eq!(told(&director).launch, Some(launch));
    let days = |now| wishes.lasting(UnixSeconds(now), 14, |_| true).launches.len();
    assert_eq!((days(14 * 86_400 + 8), days(14 * 86_400 + 9)), (1, 0));
    assert_eq!(wishes.lasting(UnixSeconds(0), 14, |_| false), Wishes::default());
}

#[test]
fn what_is_said_of_a_launch_says_nothing_of_what_else_is_new() {
    let mut director = full(3);
    let launch = Launch { begin: UnixSeconds(1), like: LaunchLike::Bytes(Bytes(1 << 40)) };
    let pinned = |film: &str| ((film.parse().unwrap(), at_site("a")), PIN);
    let wishes = Wishes {
        launches: [("film-0".parse().unwrap(), launch)].into(),
        rules: [pinned("film-1"), pinned("film-2")].into(),
    };
    director.handle(at(0), Event::Changed(Change::Wishes(Arc::new(wishes))));
    let wanted = placement::plan::Wanted {
        item: model::id::Item(0),
        day: Bytes(1 << 40),
        peak: BitsPerSecond(1),
    };
    let regions = [(None, [wanted].into_iter().collect())].into();
    director.handle(at(0), Event::Expected(Arc::new(Expected { regions })));
    let known = title("film-3", "title-3", 3);
    let files = AssetVersion { modified: UnixSeconds(30 * 86_400), ..known.files.as_ref().clone() };
    put(&mut director, Version::new(Arc::new(files), Vec::new(), 4).numbered(Some(3)));
    settle(&mut director);
    assert_eq!(director.refused(), None);
    assert!(films(&director, "a1").contains("film-0"), "film-3 is new, and no more");
}
