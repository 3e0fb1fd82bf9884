//! Appliances that are drained.

use super::drain::{Drain, End};
use super::tests::*;
use super::*;
use model::inventory::Delta;
use model::units::BitsPerSecond;
use model::view::Load;

/// Two appliances of one site and one of another that hold a film and report each second.
struct Stage {
    director: Director,
    second: u64,
    egress: u64,
}

impl Stage {
    fn new() -> Self {
        let mut director = running(&["a1", "a2", "b1"]);
        let two = Policy { copies: 2, versions_kept: 2, ..Policy::default() };
        director.handle(at(0), Event::Changed(Change::Policy(two)));
        put_version(&mut director, "film-1", &[1], 1);
        ["a1", "a2", "b1"].iter().for_each(|name| hold(&mut director, name, &[1]));
        Self { director, second: 0, egress: 0 }
    }

    /// Time passes, with reports of all, a1 sending as much as is said.
    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.second += 1;
            let now = at(self.second * 1000);
            self.director.handle(now, Event::Tick(UnixSeconds(self.second)));
            for name in ["a1", "a2", "b1"] {
                let egress = BitsPerSecond(if name == "a1" { self.egress } else { 0 });
                let load = Load { egress, ..Load::default() };
                // Nothing new is held, nothing is gone.
                let inventory = Delta { from: 1, to: 1, ..Delta::default() };
                let report = Report { load, inventory, ..report(100 + self.second) };
                self.director.report(now, &id(name), &report).unwrap();
            }
        }
    }

    fn drain(&mut self, drain: Option<Drain>) {
        let now = at(self.second * 1000);
        self.director.handle(now, Event::Changed(Change::Drain(id("a1"), drain)));
    }

    fn health(&self) -> (Health, Cause) {
        let status = self.director.appliances(at(self.second * 1000)).remove(&id("a1")).unwrap();
        (status.health, status.cause)
    }

    fn listed(&self) -> Vec<String> {
        let mut list = played(&self.director).1;
        list.sort();
        list
    }

    fn polled(&self) -> Vec<ApplianceId> {
        let ticket = ticket(&["a1", "a2"]);
        self.director.snapshot().steer(&ticket, &STEERING).into_iter().cloned().collect()
    }
}

#[test]
fn one_that_drains_is_on_no_list_and_no_answer_and_moves_no_file() {
    let mut stage = Stage::new();
    stage.egress = 9_000_000;
    stage.pass(1);
    assert_eq!(stage.listed(), ["a1", "a2", "b1"]);
    let before = generations(&stage.director);
    let from = UnixSeconds(stage.second);
    stage.drain(Some(Drain { from, until: None }));
    assert_eq!(stage.listed(), ["a2", "b1"], "at once, without a report or a tick");
    assert_eq!(stage.polled(), [id("a2")]);
    assert_eq!(stage.health(), (Health::Draining, Cause::Drains));
    assert_eq!(store(&mut stage.director), None);
    assert_eq!(generations(&stage.director), before);
    stage.pass(20);
    assert_eq!(stage.health().0, Health::Draining, "it still sends");
    stage.egress = 0;
    stage.pass(6);
    assert_eq!(stage.health(), (Health::Drained, Cause::Drained(End::Quiet)));
    assert_eq!(stage.listed(), ["a2", "b1"]);
    stage.drain(None);
    assert_eq!(stage.health(), (Health::Healthy, Cause::None));
    assert_eq!(stage.listed(), ["a1", "a2", "b1"], "it was not lost: it need not recover");
}

#[test]
fn a_drain_begins_and_ends_by_the_clock() {
    let mut stage = Stage::new();
    stage.drain(Some(Drain { from: UnixSeconds(5), until: Some(UnixSeconds(8)) }));
    let mut seen = Vec::new();
    for _ in 1..10 {
        stage.pass(1);
        seen.push(stage.health().0 == Health::Draining);
        assert_eq!(stage.director.drains_scheduled(), usize::from(stage.second < 5));
    }
    let expected = [1, 2, 3, 4, 5, 6, 7, 8, 9].map(|second| (5..8).contains(&second));
    assert_eq!(seen, expected);
}

#[test]
fn a_drain_begins_with_its_second_though_no_report_comes() {
    let mut stage = Stage::new();
    stage.pass(3);
    stage.drain(Some(Drain { from: UnixSeconds(5), until: None }));
    stage.pass(1);
    for ms in (4100..=5000).step_by(100) {
        assert_eq!(stage.listed(), ["a1", "a2", "b1"], "before {ms} ms");
        stage.director.handle(at(ms), Event::Tick(UnixSeconds(ms / 1000)));
    }
    assert_eq!(stage.listed(), ["a2", "b1"]);
}

#[test]
fn one_that_sends_on_is_drained_when_its_time_is_over_and_says_so() {
    let mut stage = Stage::new();
    stage.egress = 9_000_000;
    stage.drain(Some(Drain { from: UnixSeconds(0), until: None }));
    stage.pass(62);
    let (health, cause) = stage.health();
    assert_eq!(health, Health::Drained);
    assert!(cause.to_string().contains("still sent 9 Mb/s"), "{cause}");
}

#[test]
fn with_nobody_else_one_that_drains_is_better_than_none() {
    let mut stage = Stage::new();
    for name in ["a2", "b1"] {
        let drain = Some(Drain { from: UnixSeconds(0), until: None });
        stage.director.handle(at(0), Event::Changed(Change::Drain(id(name), drain)));
    }
    stage.drain(Some(Drain { from: UnixSeconds(0), until: None }));
    assert_eq!(stage.listed(), ["a1", "a2", "b1"]);
}
