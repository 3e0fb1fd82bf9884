use super::*;

#[test]
fn history_sums_what_reports_say_and_leaves_out_the_silent() {
    let mut director = running(&["a1", "a2"]);
    director.handle(at(900), Event::Tick(UnixSeconds(4)));
    for (name, egress, cpu_percent) in [("a1", 100, 10.0), ("a2", 300, 30.0)] {
        let load = Load { egress: BitsPerSecond(egress), ..Load::default() };
        let fill = BitsPerSecond(7);
        let report = Report { load, cpu_percent, fill, ..report(2) };
        director.report(at(1000), &id(name), &report).unwrap();
    }
    director.handle(at(1100), Event::Tick(UnixSeconds(5)));
    director.handle(at(9000), Event::Tick(UnixSeconds(6)));
    let sample = |at, egress, fill, cpu_percent, healthy| {
        let (egress, fill) = (BitsPerSecond(egress), BitsPerSecond(fill));
        Sample {
            at: UnixSeconds(at),
            egress,
            fill,
            cpu_percent,
            healthy,
            leaving: 0,
            appliances: 2,
        }
    };
    let samples: Vec<Sample> = director.history().samples(Span::Minutes).copied().collect();
    assert_eq!(samples[1..], [sample(5, 400, 14, 20.0, 2), sample(6, 0, 0, 0.0, 0)]);
    let site: Vec<Sample> = director.site_history(&"a".parse().unwrap()).copied().collect();
    let [day] = site[..] else { panic!("three seconds are of one step: {site:?}") };
    assert_eq!((day.at, day.healthy, day.appliances), (UnixSeconds(0), 0, 2));
    assert_eq!(director.site_history(&"s9".parse().unwrap()).count(), 0);
}

#[test]
fn history_leaves_out_no_report_however_often_they_come() {
    let mut director = running(&["a1"]);
    director.handle(at(900), Event::Tick(UnixSeconds(4)));
    for (sequence, egress) in [(2, 1000), (3, 0), (4, 500)] {
        let load = Load { egress: BitsPerSecond(egress), ..Load::default() };
        let report = Report { load, ..report(sequence) };
        director.report(at(1000 + sequence), &id("a1"), &report).unwrap();
    }
    director.handle(at(1100), Event::Tick(UnixSeconds(5)));
    director.handle(at(1200), Event::Tick(UnixSeconds(6)));
    let seen: Vec<u64> =
        director.history().samples(Span::Minutes).map(|sample| sample.egress.0).collect();
    assert_eq!(seen, [0, 500, 500], "the mean of three, then the latest for want of another");
}
