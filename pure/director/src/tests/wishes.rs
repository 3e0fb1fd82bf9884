//! What operators say of versions.

use super::refused::{expect_others, films_of, full, put, title};
use super::*;
use crate::wishes::{Launch, LaunchLike, PinWhy, Rule, RuleKind, Where, Wishes};
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

#[test]
fn a_ban_goes_without_a_limit_but_not_the_last_copy_of_what_has_no_origin() {
    let mut director = full(10);
    let all: Vec<String> = (0..10).map(|n| format!("film-{n}")).collect();
    let bans = |all: &[String]| -> Vec<(String, Where, Rule)> {
        all.iter().map(|film| (film.clone(), everywhere(), BAN)).collect()
    };
    let say_all = |director: &mut Director, bans: &[(String, Where, Rule)]| {
        let bans: Vec<_> =
            bans.iter().map(|(film, at, rule)| (film.as_str(), at.clone(), *rule)).collect();
        say(director, &bans);
    };
    let known = director.desired().catalog.version(&"film-0".parse().unwrap()).unwrap().clone();
    let files = AssetVersion { sources: Vec::new(), ..known.files.as_ref().clone() };
    put(&mut director, Version::new(Arc::new(files), Vec::new(), 1).numbered(Some(0)));
    settle(&mut director);
    say_all(&mut director, &bans(&all[1..]));
    assert_eq!((director.refused(), films_of(&director)), (None, 1), "it was asked for");
    say_all(&mut director, &bans(&all));
    let refused = director.refused().expect("no origin has it").words();
    assert!(refused[0].starts_with("the plan evicts the last copies of items: 1"), "{refused:?}");
    assert_eq!(films_of(&director), 1);
    director.handle(at(0), Event::PlanNow { is_forced: true });
    settle(&mut director);
    assert_eq!((director.refused(), films_of(&director)), (None, 0));
}

#[test]
fn a_ban_moves_what_has_no_origin_only_to_one_that_has_it() {
    let mut director = running(&["a1", "b1"]);
    put_version(&mut director, "film-1", &[1], 1);
    let known = director.desired().catalog.version(&"film-1".parse().unwrap()).unwrap().clone();
    let files = AssetVersion { sources: Vec::new(), ..known.files.as_ref().clone() };
    put(&mut director, Version::new(Arc::new(files), Vec::new(), 1).numbered(Some(0)));
    settle(&mut director);
    let holders =
        |director: &Director| ["a1", "b1"].map(|name| films(director, name).contains("film-1"));
    say(&mut director, &[("film-1", at_site("b"), BAN)]);
    assert_eq!((holders(&director), director.refused()), ([true, false], None));
    say(&mut director, &[("film-1", at_site("a"), BAN), ("film-1", at_site("b"), PIN)]);
    let refused = director.refused().expect("a1 alone has it, and would drop it").words();
    assert!(refused[0].starts_with("the plan evicts the last copies of items: 1"), "{refused:?}");
    assert_eq!(holders(&director), [true, false]);
    say(&mut director, &[("film-1", at_site("b"), PIN)]);
    assert_eq!((holders(&director), director.refused()), ([true, true], None));
    say(&mut director, &[("film-1", at_site("a"), BAN), ("film-1", at_site("b"), PIN)]);
    assert_eq!((holders(&director), director.refused()), ([false, true], None));
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
    director.handle(at(0), Event::PlanNow { is_forced: false });
    settle(&mut director);
    assert_eq!(films_of(&director), 0);
    director.handle(at(0), Event::Tick(UnixSeconds(100)));
    director.handle(at(0), Event::PlanNow { is_forced: false });
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
    assert_eq!(not_kept.map(|of| of.why), Some(PinWhy::NotKept));
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
