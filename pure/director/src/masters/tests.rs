use super::*;

use std::collections::{BTreeMap, BTreeSet};

use model::hours::NEVER;
use model::machine::Machine as _;
use model::units::{BitsPerSecond, UnixSeconds};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::sources::Sources;
use crate::tests as fleet;
use crate::{Change, Director, Event, Policy, Report};

const POLICY: FillPolicy = FillPolicy {
    windows: model::hours::Windows::ALWAYS,
    urgent_max: BitsPerSecond(100_000_000),
    masters: 1,
    elsewhere_after: Nanos::seconds(100),
    origin_after: Nanos::seconds(300),
};
const OTHER: Part = Part::Other { is_one_at_work: false };
const BEHIND_WORK: Part = Part::Other { is_one_at_work: true };

#[test]
fn whoever_waits_goes_further_with_time_and_is_patient_with_a_master_at_work() {
    let at = |part, seconds| reach(&POLICY, part, Nanos::seconds(seconds));
    assert_eq!(at(Part::Master, 0), Reach::Origin);
    let steps = [0, 99, 100, 299, 300].map(|seconds| at(OTHER, seconds));
    let [cluster, elsewhere] = [Reach::Cluster, Reach::Elsewhere];
    assert_eq!(steps, [cluster, cluster, elsewhere, elsewhere, Reach::Origin]);
    let steps = [300, 1599, 1600, 4799, 4800].map(|seconds| at(BEHIND_WORK, seconds));
    assert_eq!(steps, [cluster, cluster, elsewhere, elsewhere, Reach::Origin]);
    let next = |part, seconds| {
        let next = further(&POLICY, part, Nanos::seconds(seconds));
        next.map(|(reach, after)| (reach, after.as_seconds()))
    };
    assert_eq!(next(OTHER, 40), Some((elsewhere, 60)));
    assert_eq!(next(OTHER, 100), Some((Reach::Origin, 200)));
    assert_eq!((next(OTHER, 300), next(Part::Master, 0)), (None, None));
    assert_eq!(next(BEHIND_WORK, 300), Some((elsewhere, 1300)));
    let straight = FillPolicy { elsewhere_after: Nanos::seconds(300), ..POLICY };
    let next = further(&straight, OTHER, Nanos(0));
    assert_eq!(next, Some((Reach::Origin, Nanos::seconds(300))), "both at once");
}

#[test]
fn who_waits_asks_again_soon_at_first_and_in_time_for_the_next_step() {
    let after = |seconds| wait(&POLICY, Nanos::seconds(seconds)).0 / 1_000_000_000;
    assert_eq!([0, 7, 16, 80, 95].map(after), [1, 1, 2, 10, 5]);
    assert_eq!([200, 290, 299, 1000].map(after), [25, 10, 1, 30]);
}

/// Two sites of one fill cluster, one elsewhere; all of their appliances are to hold film-1.
fn region() -> Director {
    let mut director = fleet::running(&NAMES);
    for site in ["a", "b"] {
        let mut site = director.desired().sites[site].clone();
        site.fill_cluster = Some("de".parse().unwrap());
        director.handle(fleet::at(0), Event::Changed(Change::Site(site)));
    }
    set(&mut director, POLICY);
    fleet::put_divided(&mut director, "film-1", &[1, 2, 3, 4], &[1, 1, 2, 2], 1);
    NAMES.iter().for_each(|name| say(&mut director, name, 0, |_| {}));
    director
}

const NAMES: [&str; 7] = ["a1", "a2", "a3", "b1", "b2", "b3", "c1"];

fn set(director: &mut Director, fill: FillPolicy) {
    let policy = Policy { copies: 3, fill, ..director.desired().policy };
    director.handle(fleet::at(0), Event::Changed(Change::Policy(policy)));
    fleet::settle(director);
}

/// A report of so many milliseconds.
fn say(director: &mut Director, name: &str, ms: u64, change: impl FnOnce(&mut Report)) {
    let peer_address = Some(format!("{name}.example:8444"));
    let mut report = Report { peer_address, ..fleet::report(ms + 100) };
    change(&mut report);
    director.report(fleet::at(ms), &fleet::id(name), &report).unwrap();
}

fn tick(director: &mut Director, ms: u64) {
    director.handle(fleet::at(ms), Event::Tick(UnixSeconds(ms / 1000)));
}

fn ask(director: &Director, name: &str, object: u8, waited: u64) -> Sources {
    let object = fleet::object(object);
    director.sources(&fleet::id(name), &object, Nanos::seconds(waited)).unwrap()
}

fn masters(director: &Director, name: &str, object: u8) -> Vec<String> {
    let found = ask(director, name, object, 0).masters;
    found.iter().map(ToString::to_string).collect()
}

fn named(sources: &Sources) -> Vec<String> {
    sources.siblings.iter().map(|of| of.id.to_string()).collect()
}

#[test]
fn all_of_a_cluster_agree_on_a_master_and_only_that_one_is_told_origins() {
    let director = region();
    let [of_one, of_other] = [1, 3].map(|object| masters(&director, "a1", object));
    assert_eq!((of_one.len(), of_other.len()), (1, 1));
    for name in &NAMES[..6] {
        assert_eq!(masters(&director, name, 1), of_one, "{name}");
        assert_eq!(masters(&director, name, 2), of_one, "{name}: the same rendition");
        assert_eq!(masters(&director, name, 4), of_other, "{name}");
        let told = ask(&director, name, 1, 0);
        let wanted = if of_one == [*name] { Reach::Origin } else { Reach::Cluster };
        assert_eq!((told.reach, told.escalated), (wanted, false), "{name}");
        assert_eq!(told.wait.is_some(), wanted == Reach::Cluster, "{name}");
    }
    assert_eq!(masters(&director, "c1", 1), ["c1"], "a site is a cluster by itself");
}

#[test]
fn with_more_masters_the_first_stay_and_with_none_everybody_fetches() {
    let mut director = region();
    let one = masters(&director, "a1", 1);
    set(&mut director, FillPolicy { masters: 2, ..POLICY });
    let two = masters(&director, "b1", 1);
    assert_eq!((two.len(), &two[0]), (2, &one[0]));
    set(&mut director, FillPolicy { masters: 0, ..POLICY });
    for name in NAMES {
        let told = ask(&director, name, 1, 0);
        assert_eq!((told.reach, told.wait, told.masters.len()), (Reach::Origin, None, 0));
    }
}

#[test]
fn a_master_that_dies_drains_or_closes_is_replaced_and_is_one_again_afterwards() {
    type Break = fn(&mut Director, &str);
    let ways: [(&str, Break); 5] = [
        ("silent", |director, name| {
            let others = NAMES.into_iter().filter(|other| *other != name);
            others.for_each(|other| say(director, other, 5_000, |_| {}));
            tick(director, 5_000);
        }),
        ("not serving", |director, name| say(director, name, 10, |of| of.serving = false)),
        ("no drive", |director, name| say(director, name, 10, |of| of.drives_in_use = 0)),
        ("unreachable", |director, name| say(director, name, 10, |of| of.peer_address = None)),
        ("gone", |director, name| {
            director.handle(fleet::at(10), Event::Changed(Change::ApplianceGone(fleet::id(name))));
        }),
    ];
    for (way, break_it) in ways {
        let mut director = region();
        let [first, other] = [1, 3].map(|object| masters(&director, "a1", object).remove(0));
        break_it(&mut director, &first);
        let asker = NAMES[..6].iter().find(|name| **name != first).unwrap();
        let second = masters(&director, asker, 1);
        assert_eq!(second.len(), 1, "{way}");
        assert_ne!(second[0], first, "{way}");
        assert_eq!(ask(&director, &second[0], 1, 0).reach, Reach::Origin, "{way}");
        if other != first {
            assert_eq!(masters(&director, asker, 3)[0], other, "{way}: others stay what they are");
        }
        if way != "gone" {
            say(&mut director, &first, 6_000, |_| {});
            assert_eq!(masters(&director, asker, 1)[0], first, "{way}");
        }
    }
}

#[test]
fn no_master_is_where_fill_is_closed() {
    let mut director = region();
    let first = masters(&director, "a1", 1).remove(0);
    let mut site = director.desired().sites[&first[..1]].clone();
    site.fill_paused_until = Some(NEVER);
    director.handle(fleet::at(0), Event::Changed(Change::Site(site)));
    let second = masters(&director, "a1", 1);
    assert_eq!(second.len(), 1);
    assert_ne!(second[0][..1], first[..1]);
}

#[test]
fn until_appliances_have_reported_nobody_takes_the_others_for_dead() {
    let mut director = fleet::restarted(&region());
    fleet::settle(&mut director);
    let told = ask(&director, "a1", 1, 0);
    assert_eq!((told.reach, told.wait.is_some()), (Reach::Cluster, true));
    set(&mut director, FillPolicy { masters: 0, ..POLICY });
    assert_eq!(ask(&director, "a1", 1, 0).reach, Reach::Origin, "nobody waits for anybody");
    set(&mut director, POLICY);
    director.handle(fleet::at(70_000), Event::Tick(UnixSeconds(70)));
    assert_eq!(ask(&director, "a1", 1, 0).reach, Reach::Origin, "nobody is there");
}

#[test]
fn what_is_urgent_has_a_master_outside_of_windows_too() {
    let mut director = region();
    for name in ["a", "b"] {
        let mut site = director.desired().sites[name].clone();
        // The time in these tests is that of 1970, at midnight.
        site.fill_windows = Some("12:00-13:00".parse().unwrap());
        director.handle(fleet::at(0), Event::Changed(Change::Site(site)));
    }
    assert_eq!(masters(&director, "a1", 1).len(), 0, "all are closed");
    let urgent = BTreeMap::from([("film-1".parse().unwrap(), None)]);
    director.handle(fleet::at(0), Event::Changed(Change::Urgent(urgent)));
    let first = masters(&director, "a1", 1);
    assert_eq!(first.len(), 1, "what is urgent is fetched by one");
    let mut site = director.desired().sites[&first[0][..1]].clone();
    site.fill_paused_until = Some(NEVER);
    director.handle(fleet::at(0), Event::Changed(Change::Site(site)));
    assert_ne!(masters(&director, "a1", 1)[0][..1], first[0][..1], "a pause stops that too");
}

#[test]
fn a_sibling_that_holds_it_is_told_and_nobody_waits() {
    let mut director = region();
    let master = masters(&director, "a1", 1).remove(0);
    let held = vec![fleet::object(1)];
    let inventory = model::inventory::Delta { to: 1, held, ..Default::default() };
    say(&mut director, "c1", 10, |report| report.inventory = inventory.clone());
    let asker = NAMES[..6].iter().find(|name| **name != master).unwrap();
    let told = ask(&director, asker, 1, 0);
    assert_eq!((told.reach, named(&told).len()), (Reach::Cluster, 0), "c1 is elsewhere");
    assert!(told.wait.is_some());
    assert_eq!(named(&ask(&director, &master, 1, 0)), ["c1"], "a master goes there");
    let told = ask(&director, asker, 1, 100);
    assert_eq!((named(&told), told.wait, told.escalated), (vec!["c1".to_owned()], None, true));
    say(&mut director, &master, 10, |report| report.inventory = inventory);
    for name in NAMES[..6].iter().filter(|name| **name != master) {
        let told = ask(&director, name, 1, 0);
        assert_eq!((named(&told), told.wait), (vec![master.clone()], None), "{name}");
        assert_eq!((told.reach, told.escalated), (Reach::Cluster, false), "{name}");
        let told = ask(&director, name, 1, 100);
        assert_eq!(named(&told), [master.as_str(), "c1"], "its own cluster comes first");
    }
}

#[test]
fn behind_a_stuck_master_nobody_waits_for_ever_and_behind_one_at_work_for_longer() {
    let mut director = region();
    let master = masters(&director, "a1", 1).remove(0);
    let asker = *NAMES[..6].iter().find(|name| **name != master).unwrap();
    let told = |director: &Director, waited| {
        let told = ask(director, asker, 1, waited);
        (told.reach, told.escalated, told.wait.is_some())
    };
    assert_eq!(told(&director, 300), (Reach::Origin, true, false), "it is stuck");
    say(&mut director, &master, 10, |report| report.fill = BitsPerSecond(1));
    tick(&mut director, 20);
    assert_eq!(told(&director, 300), (Reach::Cluster, false, true), "it fetches");
    assert_eq!(told(&director, 4800), (Reach::Origin, true, false), "but not that");
    let later = 10 + 100_000 - 150;
    say(&mut director, &master, later, |_| {});
    tick(&mut director, later);
    assert_eq!(told(&director, 300), (Reach::Cluster, false, true), "it did of late");
    say(&mut director, &master, later + 1_000, |_| {});
    tick(&mut director, later + 1_000);
    assert_eq!(told(&director, 300), (Reach::Origin, true, false), "it does no more");
}

proptest! {
    #[test]
    fn a_draw_is_the_same_in_any_order_and_who_goes_is_replaced_by_the_next(
        weights in vec((1_u32..9, any::<bool>()), 1..20),
        most in 0_u32..5,
        gone in 0_usize..20,
        key: u64,
    ) {
        let ids: Vec<ApplianceId> =
            (0..weights.len()).map(|n| format!("a{n}").parse().unwrap()).collect();
        let candidate = |n: usize| {
            let (weight, is_fit) = weights[n];
            Candidate { id: &ids[n], weight: Weight::new(weight).unwrap(), is_fit }
        };
        let key = key.to_le_bytes();
        let drawn = draw(&key, (0..ids.len()).map(candidate), most);
        let turned = draw(&key, (0..ids.len()).rev().map(candidate), most);
        prop_assert_eq!(&drawn, &turned);
        let fit = weights.iter().filter(|(_, is_fit)| *is_fit).count();
        prop_assert_eq!(drawn.len(), fit.min(usize::try_from(most).unwrap()));
        let gone = gone % ids.len();
        let without = draw(&key, (0..ids.len()).filter(|n| *n != gone).map(candidate), most);
        let left: Vec<_> = drawn.iter().copied().filter(|id| **id != ids[gone]).collect();
        prop_assert_eq!(&without[..left.len()], &left[..], "whoever is left stays");
        if left.len() < drawn.len() {
            let another = usize::from(drawn.len() < fit);
            prop_assert_eq!(without.len(), left.len() + another);
        }
    }

    #[test]
    fn nobody_waits_for_ever(
        elsewhere in 0_u64..5_000,
        origin in 0_u64..5_000,
        is_one_at_work: bool,
    ) {
        let (elsewhere_after, origin_after) = (Nanos::seconds(elsewhere), Nanos::seconds(origin));
        let policy = FillPolicy { elsewhere_after, origin_after, ..POLICY };
        let (part, mut waited, mut questions) = (Part::Other { is_one_at_work }, Nanos(0), 0);
        let mut before = Reach::Cluster;
        loop {
            let reach = reach(&policy, part, waited);
            prop_assert!(before <= reach, "nobody is called back");
            before = reach;
            if reach == Reach::Origin {
                break;
            }
            let wait = wait(&policy, waited);
            prop_assert!(WAIT_MIN <= wait && wait <= WAIT_MAX);
            waited = Nanos(waited.0 + wait.0);
            questions += 1;
        }
        let times = if is_one_at_work { AT_WORK } else { 1 };
        prop_assert!(waited.0 <= origin_after.0 * times + WAIT_MAX.0);
        prop_assert!(is_one_at_work || waited.0 <= origin_after.0 + WAIT_MIN.0, "in time");
        prop_assert!(questions <= 40 + origin * times / 30, "{} questions", questions);
    }

    #[test]
    fn clusters_are_what_the_sites_say(changes in vec((0_u32..5, 0_u8..4), 1..30)) {
        let (mut clusters, mut said) = (Clusters::default(), BTreeMap::new());
        let name = |number: u32| format!("s{number}").parse::<SiteId>().unwrap();
        for (number, word) in changes {
            let mut site = Site::new(name(number), Vec::new());
            match word {
                1 => site.fill_cluster = Some("x".parse().unwrap()),
                2 => site.manifest_cluster = Some("x".parse().unwrap()),
                3 => {
                    site.fill_cluster = Some("y".parse().unwrap());
                    site.manifest_cluster = Some("x".parse().unwrap());
                }
                _ => {}
            }
            clusters.put(&name(number), number, (word != 0).then_some(&site));
            said.insert(number, word);
        }
        for (one, word) in &said {
            let same = |other: &u32| one == other || (*word != 0 && said[other] == *word);
            let drawn: BTreeSet<u32> =
                clusters.drawn(*one, Draws::of(b"k")).into_iter().collect();
            let wanted: BTreeSet<u32> = said.keys().copied().filter(same).collect();
            prop_assert_eq!(&drawn, &wanted);
            let is_same = |other: &u32| clusters.is_same(*one, *other);
            prop_assert_eq!(said.keys().copied().filter(is_same).collect::<BTreeSet<_>>(), wanted);
        }
    }
}
