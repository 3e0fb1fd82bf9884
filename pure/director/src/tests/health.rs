use super::*;

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

#[test]
fn an_appliance_that_was_lost_recovers_for_a_while_and_a_new_one_does_not() {
    let mut director = running(&["a1"]);
    let recovering = |director: &mut Director, ms| {
        director.handle(at(ms), Event::Tick(UnixSeconds(1)));
        seen(director, "a1").recovering
    };
    assert!(!recovering(&mut director, 0), "after a start everybody is new");
    assert!(!recovering(&mut director, 5000), "stale");
    let mut told = 5000;
    let mut tell_until = |director: &mut Director, ms| {
        while told < ms {
            told += 1000;
            director.report(at(told), &id("a1"), &report(told)).unwrap();
        }
        recovering(director, ms)
    };
    assert!(tell_until(&mut director, 6000));
    assert!(tell_until(&mut director, 35_000));
    assert!(!tell_until(&mut director, 36_000));
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
