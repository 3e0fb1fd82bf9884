use std::collections::BTreeSet;

use super::tests::*;
use super::*;

#[test]
fn keys_place_nothing_anew_and_reach_every_manifest() {
    let mut director = running(&["a1", "b1"]);
    put_version(&mut director, "film-1", &[1, 2], 1);
    let (placements, before) = (director.counters().placements, generations(&director));
    let change = Change::Revoked(BTreeSet::from(["4a".to_owned()]));
    director.handle(at(0), Event::Changed(change));
    settle(&mut director);
    let after = generations(&director);
    assert!(before.values().max() < after.values().min(), "{before:?} {after:?}");
    assert_eq!(manifest(&director, "a1").versions.len(), 1);
    assert_eq!(director.counters().placements, placements);
}

#[test]
fn a_report_of_known_drives_begins_no_plan() {
    let mut director = running(&["a1"]);
    for sequence in 40..50 {
        director.report(at(sequence), &id("a1"), &report(sequence)).unwrap();
        director.handle(at(sequence), Event::Tick(UnixSeconds(sequence)));
    }
    assert_eq!(inputs(&mut director).len(), 0);
}

#[test]
fn what_changes_while_a_plan_is_made_is_for_the_next_one() {
    let mut director = running(&["a1"]);
    let first = begun(&mut director, "film-1", 1);
    assert!(change(&mut director, "film-2", 2).is_empty(), "one at a time");
    assert!(change(&mut director, "film-3", 3).is_empty());
    let next = placed(&mut director, first);
    let names = || manifest_names(&director);
    assert_eq!(names(), ["film-1"], "an old plan is better than none");
    let next = next.expect("what has changed meanwhile");
    assert_eq!(placed(&mut director, next), None);
    assert_eq!(manifest_names(&director), ["film-3", "film-2"]);
}

#[test]
fn nobody_signs_a_withdrawal_by_a_plan_that_is_older() {
    let mut director = running(&["a1"]);
    put_version(&mut director, "film-1", &[1], 1);
    let old = begun(&mut director, "film-2", 2);
    let withdrawal = withdrawal_tests::withdrawal(1, &["film-1"], &["a1"]);
    director.handle(at(0), Event::Changed(Change::Withdrawn(withdrawal)));
    let next = placed(&mut director, old).expect("one without it");
    assert_eq!(manifest_names(&director), ["film-2", "film-1"], "it knew nothing of it");
    let sign = |director: &mut Director, sequence| {
        let generation = generations(director)["a1"];
        let report = Report { generation, served: Some(generation), ..report(sequence) };
        director.report(at(0), &id("a1"), &report).unwrap();
        director.unsigned_count()
    };
    assert_eq!(sign(&mut director, 60), 1);
    placed(&mut director, next);
    assert_eq!(manifest_names(&director), ["film-2"]);
    assert_eq!(sign(&mut director, 61), 0);
}

#[test]
fn a_plan_gives_nothing_to_an_appliance_that_is_gone() {
    let mut director = running(&["a1", "a2"]);
    let old = begun(&mut director, "film-1", 1);
    director.handle(at(0), Event::Changed(Change::ApplianceGone(id("a2"))));
    placed(&mut director, old);
    assert_eq!(director.manifest(&id("a2")), Err(NotRegistered));
    let ledger = ledger(&director);
    assert_eq!(ledger.entries.keys().collect::<Vec<_>>(), [&id("a1")]);
}

#[test]
fn what_is_stored_after_an_appliance_is_gone_publishes_nothing_for_it() {
    let mut director = running(&["a1", "a2"]);
    let plan = begun(&mut director, "film-1", 1);
    director.handle(at(0), Event::Placed(Box::new(plan.work_out())));
    let staged = store(&mut director).expect("both get a manifest");
    assert_eq!(staged.entries.len(), 2);
    let gone = Change::ApplianceGone(id("a2"));
    director.handle(at(0), Event::Changed(gone));
    director.handle(at(0), Event::Stored(staged.generation));
    assert!(director.generation() == staged.generation, "its number is used up");
    let published = |director: &mut Director| {
        let newest = director.publisher().manifest(&id("a2")).is_some();
        (newest, director.publisher().newest(&id("a2")))
    };
    assert_eq!(published(&mut director), (false, None));
    assert_eq!(manifest(&director, "a1").generation, staged.generation);
}

#[test]
fn no_key_signs_while_a_plan_may_lack_it() {
    let mut director = running(&["a1"]);
    assert!(director.all_follow_now(), "what it has is the newest");
    let old = begun(&mut director, "film-1", 1);
    assert!(!director.all_follow_now());
    placed(&mut director, old);
    assert!(director.all_follow_now());
}

impl Director {
    /// The same, once all have taken their newest manifests.
    fn all_follow_now(&mut self) -> bool {
        let generation = self.manifest(&id("a1")).unwrap().unwrap().generation;
        let sequence = 100 + self.counters.reports;
        let report = Report { generation, served: Some(generation), ..report(sequence) };
        self.report(at(0), &id("a1"), &report).unwrap();
        self.all_follow()
    }
}

/// A new version of the film: the plans that begin with it.
fn change(director: &mut Director, name: &str, sequence: u64) -> Vec<PlanInput> {
    let number = u8::try_from(sequence).unwrap();
    let version = version_of(name, &[number], sequence);
    director.handle(at(0), Event::Changed(Change::Version(version)));
    inputs(director)
}

/// The plan that begins with a new version.
fn begun(director: &mut Director, name: &str, sequence: u64) -> PlanInput {
    change(director, name, sequence).pop().expect("it begins at once")
}

fn inputs(director: &mut Director) -> Vec<PlanInput> {
    let actions = std::iter::from_fn(|| director.poll());
    let input = |action| if let Action::Place(input) = action { Some(*input) } else { None };
    actions.filter_map(input).collect()
}

/// A plan comes and is stored: the next one, if there is one.
fn placed(director: &mut Director, input: PlanInput) -> Option<PlanInput> {
    director.handle(at(0), Event::Placed(Box::new(input.work_out())));
    let mut next = None;
    while let Some(action) = director.poll() {
        if let Action::Place(input) = action {
            next = Some(*input);
        } else if let Action::Store(ledger) = action {
            director.handle(at(0), Event::Stored(ledger.generation));
        }
    }
    next
}

fn manifest_names(director: &Director) -> Vec<String> {
    manifest(director, "a1").versions.iter().map(|version| version.id.to_string()).collect()
}
