use super::*;
use std::ops::Range;

use model::inventory::{Check, FilesDelta};
use model::number::NumberSet;

use crate::titles::Serving;

/// Reports of these, one second apart, each with its load, and ticks.
fn tell(director: &mut Director, seconds: Range<u64>, loads: &[(&str, u32)]) {
    for second in seconds {
        for (name, load) in loads {
            let load = Load { drives_permille: *load, ..Load::default() };
            let known = director.reply(&id(name)).unwrap().inventory;
            let inventory = Delta { from: known, to: known, ..Delta::default() };
            let report = Report { load, inventory, ..report(100 + second) };
            director.report(at(second * 1000), &id(name), &report).unwrap();
        }
        director.handle(at(second * 1000 + 500), Event::Tick(UnixSeconds(second)));
        is_counted(director);
    }
}

/// The sums of each site are those of the appliances that serve.
fn is_counted(director: &Director) {
    let mut sums = vec![Serving::default(); director.map.site_count()];
    for (id, member) in director.members.iter() {
        let Some(observed) = &member.observed else {
            assert_eq!(member.counted, None, "nobody hears {id}");
            continue;
        };
        let weight = director.desired.appliances[id].appliance.weight.value().into();
        assert_eq!(member.counted.is_some(), member.health == Health::Healthy);
        let Some(counted) = member.counted else { continue };
        assert_eq!((counted.site, counted.weight), (member.site, weight));
        assert!(counted.held <= Bytes::of(observed.known_count()).0);
        assert!(counted.takes <= member.share.permille().max(1));
        assert!(observed.said.load.permille() <= counted.load);
        sums[index(member.site)].add(&counted);
    }
    for (site, sums) in (0..).zip(sums) {
        assert_eq!(director.map.serving(site), sums, "site {site}");
    }
}

fn titles(director: &Director, name: &str) -> u32 {
    let titles = seen(director, name).titles_permille;
    assert_eq!(director.reply(&id(name)).unwrap().titles_permille, titles, "it is told to it");
    titles
}

#[test]
fn one_whose_load_is_far_above_the_mean_of_its_site_gives_up_sessions_of_its_titles() {
    let mut director = running(&["a1", "a2"]);
    tell(&mut director, 0..20, &[("a1", 600), ("a2", 420)]);
    assert_eq!(titles(&director, "a1"), 1000, "it is within the bound");
    tell(&mut director, 20..60, &[("a1", 700), ("a2", 320)]);
    let cut = titles(&director, "a1");
    assert!(cut < 800, "{cut}");
    assert_eq!(titles(&director, "a2"), 1000);
    assert!(0 < director.counters().titles_cuts && director.counters().share_cuts == 0);
    tell(&mut director, 60..400, &[("a1", 500), ("a2", 520)]);
    assert!(cut < titles(&director, "a1"), "there is room");
}

#[test]
fn the_mean_is_of_those_that_serve_now() {
    let mut director = running(&["a1", "a2", "a3"]);
    tell(&mut director, 0..30, &[("a1", 500), ("a2", 500), ("a3", 500)]);
    tell(&mut director, 30..70, &[("a1", 500), ("a2", 500)]);
    assert_eq!(seen(&director, "a3").health, Health::Stale);
    tell(&mut director, 70..80, &[("a1", 500), ("a2", 500), ("a3", 0)]);
    let gone = Change::ApplianceGone(id("a2"));
    director.handle(at(80_000), Event::Changed(gone));
    is_counted(&director);
    let elsewhere = Site::new("elsewhere".parse().unwrap(), Vec::new());
    let moved = Appliance::new(id("a3"), elsewhere.id.clone(), Weight::new(7).unwrap());
    for change in [Change::Site(elsewhere), Change::Appliance(moved)] {
        director.handle(at(81_000), Event::Changed(change));
    }
    tell(&mut director, 82..90, &[("a1", 500), ("a3", 100)]);
    assert_eq!(director.members.get(&id("a3")).unwrap().counted.unwrap().weight, 7);
}

#[test]
fn one_that_comes_back_slowly_makes_its_siblings_give_up_nothing() {
    for loaded in [&[("a1", 720)][..], &[("a1", 720), ("a2", 720)]] {
        let names: Vec<&str> = loaded.iter().map(|(name, _)| *name).chain(["a3"]).collect();
        let mut director = running(&names);
        tell(&mut director, 0..70, loaded);
        assert_eq!(seen(&director, "a3").health, Health::Stale);
        for second in 70..1300 {
            // What players ask of it goes with its share.
            let back = 720 * seen(&director, "a3").share_permille / 1000;
            tell(&mut director, second..second + 1, &[loaded, &[("a3", back)]].concat());
        }
        assert_eq!(seen(&director, "a3").share_permille, 1000);
        assert_eq!(director.counters().titles_cuts, 0, "{loaded:?}");
        tell(&mut director, 1300..1320, &[loaded, &[("a3", 100)]].concat());
        assert!(titles(&director, "a1") < 1000, "it counts as a whole");
    }
}

#[test]
fn one_that_holds_little_makes_its_siblings_give_up_nothing() {
    let mut director = running(&["a1", "a2", "a3"]);
    let objects: Vec<u8> = (1..=20).collect();
    put_version(&mut director, "film-1", &objects, 1);
    ["a1", "a2"].iter().for_each(|name| hold(&mut director, name, &objects));
    tell(&mut director, 0..120, &[("a1", 700), ("a2", 720), ("a3", 3)]);
    assert_eq!(director.counters().titles_cuts, 0, "nobody can be sent there");
    let fill = |director: &mut Director, second: u64, count: usize| {
        let held = objects[..count].iter().map(|n| object(*n)).collect();
        let inventory = Delta { to: second, held, ..Delta::default() };
        let report = Report { inventory, ..report(100 + second) };
        director.report(at(second * 1000), &id("a3"), &report).unwrap();
    };
    fill(&mut director, 120, 10);
    tell(&mut director, 121..240, &[("a1", 580), ("a2", 600), ("a3", 300)]);
    assert_eq!(director.counters().titles_cuts, 0, "it has its part of what it holds");
    fill(&mut director, 240, 20);
    tell(&mut director, 241..300, &[("a1", 560), ("a2", 720), ("a3", 100)]);
    assert_eq!((titles(&director, "a1"), titles(&director, "a3")), (1000, 1000));
    assert!(titles(&director, "a2") < 1000, "it holds as much as they do");
}

#[test]
fn what_one_says_that_it_holds_without_a_name_does_not_count() {
    let mut director = running(&["a1", "a2"]);
    let came: NumberSet = (0..20).collect();
    for (name, others) in [("a1", 0), ("a2", u64::MAX)] {
        let check = Check::of_files(&came);
        let files = FilesDelta { to: 1, came: came.clone(), check, others, ..Default::default() };
        let report = Report { came: check, files: Some(files), ..report(101) };
        director.report(at(0), &id(name), &report).unwrap();
    }
    director.handle(at(1), Event::Tick(UnixSeconds(0)));
    for name in ["a1", "a2"] {
        director.count_load(&id(name));
        let counted = director.members.get(&id(name)).unwrap().counted.unwrap();
        assert_eq!((counted.held, counted.takes), (20, 1000), "{name}");
    }
}

#[test]
fn an_appliance_that_is_revoked_is_counted_no_more() {
    let mut director = running(&["a1", "a2"]);
    tell(&mut director, 0..20, &[("a1", 600), ("a2", 0)]);
    let revoked = Change::IdentityRevoked(id("a2"));
    director.handle(at(20_000), Event::Changed(revoked));
    is_counted(&director);
    assert_eq!(director.members.get(&id("a2")).unwrap().counted, None);
}

#[test]
fn one_of_less_weight_that_holds_its_part_counts_as_all_of_it() {
    // By weight, or by number where all of them hold all.
    for (weight, count) in [(1, 5), (3, 20)] {
        let mut director = running(&["a1", "a2"]);
        put_version(&mut director, "film-1", &(1..=20).collect::<Vec<u8>>(), 1);
        let site = director.desired.appliances[&id("a1")].appliance.site.clone();
        for (name, weight) in [("a1", 4), ("a2", weight)] {
            let appliance = Appliance::new(id(name), site.clone(), Weight::new(weight).unwrap());
            director.handle(at(0), Event::Changed(Change::Appliance(appliance)));
        }
        hold(&mut director, "a1", &(1..=20).collect::<Vec<u8>>());
        hold(&mut director, "a2", &(1..=count).collect::<Vec<u8>>());
        tell(&mut director, 0..20, &[("a1", 300), ("a2", 300)]);
        let takes = |name| director.members.get(&id(name)).unwrap().counted.unwrap().takes;
        assert_eq!((takes("a1"), takes("a2")), (1000, 1000), "{weight} {count}");
    }
}

#[test]
fn one_that_others_give_less_of_its_titles_gets_no_more_from_a_process_that_has_just_started() {
    let mut director = running(&["a1", "a2"]);
    let told = |told_titles| Report { told_titles, ..report(101) };
    director.report(at(0), &id("a1"), &told(Some(250))).unwrap();
    director.handle(at(1), Event::Tick(UnixSeconds(0)));
    assert_eq!(titles(&director, "a1"), 250);
    tell(&mut director, 2..100, &[("a2", 0)]);
    let late = Report { told_titles: Some(1), ..report(300) };
    director.report(at(100_000), &id("a2"), &late).unwrap();
    director.handle(at(100_001), Event::Tick(UnixSeconds(100)));
    assert_eq!(titles(&director, "a2"), 1000, "it has been heard here for long");
}

#[test]
fn a_process_takes_the_word_of_the_one_before_it_once_and_only_where_no_others_run() {
    let first = |told: Option<u32>, own: u32| {
        let mut director = running(&[]);
        let site = Site::new("elsewhere".parse().unwrap(), Vec::new());
        let appliances =
            ["a1", "a2"].map(|name| Appliance::new(id(name), site.id.clone(), Weight::ONE));
        let changes = appliances.into_iter().map(Change::Appliance);
        for change in [Change::Site(site)].into_iter().chain(changes) {
            director.handle(at(0), Event::Changed(change));
        }
        director.report(at(0), &id("a2"), &report(100)).unwrap();
        let words = Report { told_titles: told, told_share: told, ..report(100) };
        let words = Report { own_titles: Some(own), own_share: Some(own), ..words };
        director.report(at(0), &id("a1"), &words).unwrap();
        director.handle(at(1), Event::Tick(UnixSeconds(0)));
        director
    };
    let shown = |director: &Director| (seen(director, "a1").share_permille, titles(director, "a1"));
    let mut director = first(None, 250);
    assert_eq!(shown(&director), (250, 250), "it restarted, or took the place of another");
    assert_eq!(shown(&first(Some(400), 250)), (400, 400), "others have heard it since");
    assert_eq!(shown(&first(None, 5000)), (1000, 1000), "nobody's word raises it");
    // From now on it is its own, and behind: with it nothing would rise.
    for second in 1..15 {
        let late = Report { own_titles: Some(250), own_share: Some(250), ..report(100 + second) };
        director.report(at(second * 1000), &id("a1"), &late).unwrap();
        director.handle(at(second * 1000 + 500), Event::Tick(UnixSeconds(second)));
    }
    assert_eq!(seen(&director, "a1").share_permille, 261);
    assert!(250 < titles(&director, "a1"));
}

#[test]
fn without_a_bound_titles_are_not_drawn_for() {
    let mut director = running(&["a1", "a2"]);
    director.config.titles_load_max = 0;
    tell(&mut director, 0..40, &[("a1", 980), ("a2", 0)]);
    assert_eq!((titles(&director, "a1"), titles(&director, "a2")), (0, 0));
    assert_eq!(director.counters().titles_cuts, 0);
}
