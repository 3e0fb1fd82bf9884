use super::*;
use std::ops::Range;

use crate::titles::{Counted, Serving};

/// Reports of these, one second apart, each with its load, and ticks.
fn tell(director: &mut Director, seconds: Range<u64>, loads: &[(&str, u32)]) {
    for second in seconds {
        for (name, load) in loads {
            let load = Load { drives_permille: *load, ..Load::default() };
            let report = Report { load, ..report(100 + second) };
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
        let Some(observed) = &member.observed else { continue };
        let weight = director.desired.appliances[id].appliance.weight.value().into();
        let load = observed.said.load.permille().min(1000);
        let counted = Counted { site: member.site, weight, load };
        if member.health == Health::Healthy {
            sums[index(member.site)].add(&counted);
        }
        assert_eq!(member.counted, (member.health == Health::Healthy).then_some(counted));
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
fn without_a_bound_titles_are_not_drawn_for() {
    let mut director = running(&["a1", "a2"]);
    director.config.titles_load_max = 0;
    tell(&mut director, 0..40, &[("a1", 980), ("a2", 0)]);
    assert_eq!((titles(&director, "a1"), titles(&director, "a2")), (0, 0));
    assert_eq!(director.counters().titles_cuts, 0);
}
