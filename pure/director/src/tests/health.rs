use std::ops::Range;

use super::*;
use model::profile::Profile;
use model::view::Bottleneck;

#[test]
fn an_appliance_is_stale_as_soon_as_its_report_is_too_old_and_well_with_the_next() {
    let mut director = running(&["a1"]);
    let health = |director: &mut Director, ms| {
        director.handle(at(ms), Event::Tick(UnixSeconds(1)));
        seen(director, "a1").health
    };
    director.report(at(1000), &id("a1"), &report(2)).unwrap();
    assert_eq!(health(&mut director, 2500), Health::Healthy);
    assert_eq!(health(&mut director, 2501), Health::Stale);
    director.report(at(9000), &id("a1"), &report(3)).unwrap();
    assert_eq!(seen(&director, "a1").health, Health::Healthy);
    let told: Vec<String> = director.notices().map(|notice| notice.text.clone()).collect();
    insta::assert_snapshot!(told.join("\n"), @"
    a1 is healthy
    a1 is stale: no report for 1501 ms
    a1 is healthy
    ");
}

#[test]
fn who_was_not_listened_to_was_not_silent() {
    let mut director = running(&["a1"]);
    let health = |director: &mut Director, ms| {
        director.handle(at(ms), Event::Tick(UnixSeconds(1)));
        seen(director, "a1").health
    };
    director.report(at(1000), &id("a1"), &report(2)).unwrap();
    assert_eq!(health(&mut director, 2000), Health::Healthy);
    director.handle(at(9000), Event::Late(Nanos::millis(6900)));
    assert_eq!(health(&mut director, 9000), Health::Healthy);
    assert_eq!(probes(&mut director), 1, "it is late by the time that was listened");
    assert_eq!(health(&mut director, 9401), Health::Stale, "1501 ms after its report");
    director.handle(at(12_000), Event::Late(Nanos::millis(2500)));
    assert_eq!(health(&mut director, 12_000), Health::Stale, "before it, too");
}

#[test]
fn a_report_without_room_is_a_sign_of_life_and_nothing_more() {
    let mut director = running(&["a1"]);
    director.report(at(1000), &id("a1"), &report(2)).unwrap();
    let reports = director.counters().reports;
    for ms in [2000, 3000] {
        director.handle(at(ms), Event::TurnedAway(id("a1")));
        director.handle(at(ms + 700), Event::Tick(UnixSeconds(1)));
        assert_eq!(seen(&director, "a1").health, Health::Healthy, "{ms}");
    }
    assert_eq!((director.counters().reports, probes(&mut director)), (reports, 0));
    director.handle(at(4501), Event::Tick(UnixSeconds(1)));
    assert_eq!(seen(&director, "a1").health, Health::Stale);
    director.handle(at(4600), Event::TurnedAway(id("nobody")));
}

#[test]
fn a_late_report_makes_a_probe_and_a_refused_one_makes_it_stale_at_once() {
    let mut director = running(&["a1"]);
    director.report(at(1000), &id("a1"), &report(2)).unwrap();
    director.handle(at(1800), Event::Tick(UnixSeconds(1)));
    assert_eq!(probes(&mut director), 0);
    director.handle(at(1801), Event::Tick(UnixSeconds(1)));
    director.handle(at(1900), Event::Tick(UnixSeconds(1)));
    assert_eq!(probes(&mut director), 1, "one probe per silence");
    let probed = |answered| Event::Probed { appliance: id("a1"), answered };
    director.handle(at(1950), probed(false));
    let cause = director.appliances(at(1950))[&id("a1")].cause;
    assert_eq!(cause, Cause::Refused(Nanos::millis(950)));
    director.handle(at(9000), Event::Tick(UnixSeconds(1)));
    assert_eq!(director.notices().count(), 2, "healthy, stale: one notice for one loss");
    assert_eq!(seen(&director, "a1").health, Health::Stale);

    director.report(at(9500), &id("a1"), &report(3)).unwrap();
    director.handle(at(9501), probed(false));
    let health = seen(&director, "a1").health;
    assert_eq!(health, Health::Healthy, "a report counts more than an old probe");
}

/// Reports of these, one second apart, and ticks; the share of the first in the end.
fn tell_until(director: &mut Director, seconds: Range<u64>, names: &[&str], load: u32) -> u32 {
    for second in seconds {
        for name in names {
            let load = Load { drives_permille: load, ..Load::default() };
            let report = Report { load, ..report(100 + second) };
            director.report(at(second * 1000), &id(name), &report).unwrap();
        }
        director.handle(at(second * 1000 + 500), Event::Tick(UnixSeconds(second)));
    }
    seen(director, names[0]).share_permille
}

#[test]
fn an_appliance_that_was_lost_comes_back_over_twenty_minutes_and_a_new_one_is_whole() {
    let mut director = running(&["a1", "a2"]);
    assert_eq!(tell_until(&mut director, 0..5, &["a1", "a2"], 0), 1000, "all are new");
    tell_until(&mut director, 5..40, &["a2"], 0);
    assert_eq!(seen(&director, "a1").share_permille, 0);
    assert_eq!(tell_until(&mut director, 40..41, &["a1", "a2"], 0), 50, "somebody must try it");
    let half = tell_until(&mut director, 41..641, &["a1", "a2"], 0);
    assert!((540..=555).contains(&half), "{half}");
    assert_eq!(tell_until(&mut director, 641..1230, &["a1", "a2"], 0), 1000);
    assert_eq!(seen(&director, "a2").share_permille, 1000, "others' shares stay");
}

#[test]
fn an_appliance_that_could_not_be_heard_for_a_moment_keeps_its_share_and_one_that_restarted_not() {
    let back = |lost: Range<u64>, start_id: u64| {
        let mut director = running(&["a1", "a2"]);
        assert_eq!(tell_until(&mut director, 0..lost.start, &["a1", "a2"], 0), 1000);
        tell_until(&mut director, lost.clone(), &["a2"], 0);
        assert_eq!(seen(&director, "a1").health, Health::Stale);
        assert_eq!(seen(&director, "a1").share_permille, 0);
        let report = Report { start_id, ..report(100 + lost.end) };
        director.report(at(lost.end * 1000), &id("a1"), &report).unwrap();
        director.handle(at(lost.end * 1000), Event::Tick(UnixSeconds(lost.end)));
        seen(&director, "a1").share_permille
    };
    assert_eq!(back(5..8, 1), 1000, "its path was away for 3 s");
    assert_eq!(back(5..8, 2), 50, "it is another process");
    assert_eq!(back(5..40, 1), 50, "its players have turned elsewhere");
}

#[test]
fn one_that_others_give_less_gets_no_more_from_a_process_that_has_just_started() {
    let mut director = running(&["a1", "a2"]);
    let mut told = |name: &str, second: u64, told_share: Option<u32>| {
        let report = Report { told_share, ..report(100 + second) };
        director.report(at(second * 1000), &id(name), &report).unwrap();
        director.handle(at(second * 1000), Event::Tick(UnixSeconds(second)));
        let share = director.reply(&id(name)).unwrap().share_permille;
        assert_eq!(share, seen(&director, name).share_permille, "it is told to it");
        share
    };
    assert_eq!(told("a1", 0, Some(300)), 300, "it comes back slowly, there");
    assert_eq!(told("a1", 2, Some(900)), 301, "here, too: nobody's word raises it");
    assert_eq!(told("a2", 0, None), 1000);
    assert_eq!(told("a2", 1, Some(0)), 50, "somebody must try it");
    for second in 3..1200 {
        told("a1", second, None);
        told("a2", second, None);
    }
    assert_eq!(told("a1", 1200, Some(300)), 1000, "it has been heard here for long");
}

#[test]
fn one_that_was_unhealthy_before_it_could_not_be_heard_comes_back_slowly() {
    let mut director = running(&["a1", "a2"]);
    tell_until(&mut director, 0..5, &["a1", "a2"], 0);
    for second in 5..40 {
        let report = Report { drives_in_use: 0, ..report(100 + second) };
        director.report(at(second * 1000), &id("a1"), &report).unwrap();
        tell_until(&mut director, second..second + 1, &["a2"], 0);
    }
    assert_eq!(seen(&director, "a1").health, Health::Unhealthy);
    tell_until(&mut director, 40..43, &["a2"], 0);
    assert_eq!(seen(&director, "a1").health, Health::Stale);
    assert_eq!(tell_until(&mut director, 43..44, &["a1", "a2"], 0), 50);
}

#[test]
fn one_whose_drives_failed_just_before_its_silence_comes_back_slowly() {
    let mut director = running(&["a1", "a2"]);
    tell_until(&mut director, 0..5, &["a1", "a2"], 0);
    let failed = Report { drives_in_use: 0, ..report(200) };
    director.report(at(5000), &id("a1"), &failed).unwrap();
    assert_eq!(seen(&director, "a1").health, Health::Unhealthy);
    tell_until(&mut director, 5..10, &["a2"], 0);
    assert_eq!(seen(&director, "a1").health, Health::Stale);
    let well = report(201);
    director.report(at(10_000), &id("a1"), &well).unwrap();
    director.handle(at(10_000), Event::Tick(UnixSeconds(10)));
    assert_eq!(seen(&director, "a1").health, Health::Healthy);
    assert_eq!(seen(&director, "a1").share_permille, 50, "its drives were lost, not its path");
}

#[test]
fn a_load_cuts_the_share_and_is_named() {
    let mut director = running(&["a1", "a2"]);
    // Smoothed from nothing on, it passes 900 after 17 s.
    assert_eq!(tell_until(&mut director, 0..17, &["a1"], 950), 1000);
    let cut = tell_until(&mut director, 17..20, &["a1"], 950);
    assert!((930..=945).contains(&cut), "850 of little more than 900: {cut}");
    assert_eq!(director.counters().share_cuts, 1, "players have not asked again yet");
    let status = director.appliances(at(20_000))[&id("a1")].clone();
    assert_eq!(status.load.worst(), (Bottleneck::Drives, 950));
    assert_eq!(status.share_permille, cut);
    assert_eq!(tell_until(&mut director, 20..200, &["a1"], 850), cut, "between the two it holds");
    assert!(cut < tell_until(&mut director, 200..230, &["a1"], 500));
}

/// One with this figure of its own and this profile, whose cards say this speed, reports that it
/// sends 950 Mb/s: the limit that is shown, and what is in use by that, after ten minutes.
fn egress_of(own: Option<u64>, profile: Option<Profile>, cards: u64) -> (u64, u64, u32) {
    let mut director = running(&["a1", "a2"]);
    let mut appliance = director.desired().appliances[&id("a1")].appliance.clone();
    appliance.own.throughput = own.map(BitsPerSecond);
    appliance.profile = profile;
    director.handle(at(0), Event::Changed(Change::Appliance(appliance)));
    let mut policy = Policy::default();
    policy.profiles.flash.throughput = Some(BitsPerSecond(GIGABIT));
    director.handle(at(0), Event::Changed(Change::Policy(policy)));
    for second in 1..600 {
        let (egress, egress_max) = (BitsPerSecond(GIGABIT / 100 * 95), BitsPerSecond(cards));
        let load = Load { egress, egress_max, ..Load::default() };
        let report = Report { load, ..report(100 + second) };
        director.report(at(second * 1000), &id("a1"), &report).unwrap();
        director.handle(at(second * 1000 + 500), Event::Tick(UnixSeconds(second)));
    }
    let load = seen(&director, "a1").load;
    assert_eq!(load, director.appliances(at(600_000))[&id("a1")].load, "they are shown alike");
    (load.egress_max.0, load.permille(), seen(&director, "a1").share_permille)
}

const GIGABIT: u64 = 1_000_000_000;

#[test]
fn what_an_operator_says_that_it_serves_is_its_limit_where_its_cards_say_none_or_more() {
    let is_cut = |share: u32| share < 200;
    let (most, load, share) = egress_of(Some(GIGABIT), None, 0);
    assert_eq!((most, load, is_cut(share)), (GIGABIT, 950, true), "virtual cards: {share}");
    let (most, load, share) = egress_of(Some(GIGABIT), None, 10 * GIGABIT);
    assert_eq!((most, load, is_cut(share)), (GIGABIT, 950, true), "faster cards: {share}");
    assert_eq!(egress_of(Some(10 * GIGABIT), None, 2 * GIGABIT), (2 * GIGABIT, 475, 1000));
    assert_eq!(egress_of(None, None, 0), (0, 0, 1000), "nobody said anything");
    let (most, load, share) = egress_of(None, Some(Profile::Flash), 0);
    assert_eq!((most, load, is_cut(share)), (GIGABIT, 950, true), "its profile's: {share}");
    let own = egress_of(Some(4 * GIGABIT), Some(Profile::Flash), 0);
    assert_eq!(own, (4 * GIGABIT, 237, 1000), "its own figure comes before");
}

#[test]
fn a_site_spreads_titles_by_what_an_operator_says_that_its_appliances_serve() {
    let mut director = running(&["a1", "a2"]);
    let mut appliance = director.desired().appliances[&id("a1")].appliance.clone();
    appliance.own.throughput = Some(BitsPerSecond(GIGABIT));
    director.handle(at(0), Event::Changed(Change::Appliance(appliance)));
    for second in 1..60 {
        for (name, egress) in [("a1", GIGABIT / 4 * 3), ("a2", 0)] {
            let load = Load { egress: BitsPerSecond(egress), ..Load::default() };
            let report = Report { load, ..report(100 + second) };
            director.report(at(second * 1000), &id(name), &report).unwrap();
        }
        director.handle(at(second * 1000 + 500), Event::Tick(UnixSeconds(second)));
    }
    let titles = |name: &str| seen(&director, name).titles_permille;
    assert_eq!(titles("a2"), 1000);
    assert!(titles("a1") < 1000, "it has twice the mean: {}", titles("a1"));
    assert_eq!(seen(&director, "a1").share_permille, 1000, "it is not full");
}

#[test]
fn where_all_are_lost_at_once_nobody_is() {
    let mut director = running(&["a1", "a2", "a3"]);
    tell_until(&mut director, 0..5, &["a1", "a2", "a3"], 0);
    tell_until(&mut director, 5..30, &["a1", "a2"], 0);
    director.handle(at(35_000), Event::Tick(UnixSeconds(35)));
    assert!(["a1", "a2", "a3"].iter().all(|name| seen(&director, name).health == Health::Stale));
    tell_until(&mut director, 36..37, &["a1", "a2", "a3"], 0);
    let share = |name| seen(&director, name).share_permille;
    assert_eq!(["a1", "a2", "a3"].map(share), [1000, 1000, 50], "a3 was lost before");
}

#[test]
fn health_says_what_an_operator_should_look_at() {
    type Case = (fn(&mut Report), &'static str);
    let cases: [Case; 5] = [
        (|r| r.serving = false, "a1 is draining: it says that it takes no new sessions"),
        (
            |r| (r.drives_in_use, r.drives_set_aside) = (0, 2),
            "a1 is unhealthy: all of its 2 drives are set aside: its own log says why",
        ),
        (
            |r| r.drives_set_aside = 1,
            "a1 is healthy: 1 of its drives are set aside: its own log says why",
        ),
        (
            |r| r.generation = Generation(99),
            "a1 is healthy: it follows manifest generation 99, newer than its newest here: was \
             this control plane restored from an old copy of its state? Its next one goes above \
             that",
        ),
        (
            |r| {
                r.inventory =
                    Delta { to: 1, held: (0..101).map(object).collect(), ..Delta::default() }
            },
            "a1 is healthy: it holds more objects than the control plane keeps track of: some do \
             not count",
        ),
    ];
    for (change, text) in cases {
        let mut director = running(&["a1"]);
        let mut report = report(2);
        change(&mut report);
        director.report(at(0), &id("a1"), &report).unwrap();
        assert_eq!(director.notices().next_back().map(|n| n.text.as_str()), Some(text));
    }
}

#[test]
fn an_appliance_that_comes_and_goes_fills_no_queue() {
    let mut director = running(&["a1"]);
    for turn in 1..1000 {
        director.report(at(turn * 3000), &id("a1"), &report(100 + turn)).unwrap();
        for late in [900, 1600, 2600] {
            director.handle(at(turn * 3000 + late), Event::Tick(UnixSeconds(turn)));
        }
    }
    assert!(1000 < director.counters().health_changes, "{}", director.counters().health_changes);
    let waiting = director.actions.len();
    assert!(waiting < 30, "{waiting} wait");
    assert!(1000 < director.counters().actions_spared, "{}", director.counters().actions_spared);
    let spared = director.counters().actions_spared;
    for second in 1..10 {
        director.handle(at(3_000_000 + second * 1000), Event::Tick(UnixSeconds(1000)));
    }
    assert_eq!(director.counters().actions_spared, spared, "a probe is put off, and not left out");
    director.handle(at(3_500_000), Event::Changed(Change::IdentityRevoked(id("a1"))));
    let is_of_identity =
        |action: &Action| matches!(action, Action::Tell(Notice { cause: Cause::Revoked, .. }));
    let told = std::iter::from_fn(|| director.poll()).filter(is_of_identity).count();
    assert_eq!(told, 1, "whose identity is gone is always said");
    settle(&mut director);
    let probes = director.counters().probes;
    director.report(at(4_000_000), &id("a1"), &report(2000)).unwrap();
    for late in [900, 1600] {
        director.handle(at(4_000_000 + late), Event::Tick(UnixSeconds(4000)));
    }
    let told: Vec<_> = std::iter::from_fn(|| director.poll()).collect();
    assert!(told.iter().any(|action| matches!(action, Action::Tell(_))), "{told:?}");
    assert_eq!(director.counters().probes, probes + 1);
}

#[test]
fn good_news_wait_for_a_tick_where_many_come_and_bad_ones_never() {
    const NAMES: [&str; 3] = ["a1", "a2", "a3"];
    let mut director = fleet(&NAMES);
    put_divided(&mut director, "film-1", &[1, 2], &[1, 2], 1);
    director.config.pictures_max = 1;
    let tick = |director: &mut Director| director.handle(at(1), Event::Tick(UnixSeconds(1)));
    let tell = |director: &mut Director, name, sequence: u64, serving: bool, held: &[u8]| {
        let held = held.iter().map(|n| object(*n)).collect();
        let inventory = Delta { to: sequence, held, ..Delta::default() };
        let report = Report { serving, inventory, ..report(sequence) };
        director.report(at(1), &id(name), &report).unwrap();
    };
    let tell_all = |director: &mut Director, sequence, serving, held: &[u8]| {
        NAMES.iter().for_each(|name| tell(director, name, sequence, serving, held));
    };
    let health = |director: &Director| NAMES.map(|name| seen(director, name).health);
    let holders = |director: &Director| NAMES.map(|name| whole(director, name).len());
    tick(&mut director);
    tell_all(&mut director, 2, true, &[]);
    assert_eq!(health(&director), [Health::Healthy, Health::NeverSeen, Health::NeverSeen]);
    tick(&mut director);
    assert_eq!(health(&director), [Health::Healthy; 3]);
    tell_all(&mut director, 3, true, &[1]);
    tick(&mut director);
    tell_all(&mut director, 4, true, &[1, 2]);
    assert_eq!(holders(&director), [1, 0, 0], "who holds the rest too has lost no rendition");
    tick(&mut director);
    assert_eq!(holders(&director), [1; 3]);
    tell_all(&mut director, 5, true, &[2]);
    assert_eq!(holders(&director), [0; 3], "nobody is led to a file that is gone");
    tell_all(&mut director, 6, false, &[2]);
    assert_eq!(health(&director), [Health::Draining; 3], "nor to one that does not serve");
    put_version(&mut director, "film-2", &[3], 2);
    tell(&mut director, "a3", 7, false, &[1, 2]);
    assert_eq!(holders(&director), [0, 0, 1], "what cannot wait is not counted");
}
