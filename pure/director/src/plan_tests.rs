use std::collections::{BTreeMap, BTreeSet};

use model::manifest::Trust;
use model::topology::{Appliance, Weight};
use proptest::prelude::*;

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
    director.handle(at(0), Event::Placed(Box::new(first.work_out())));
    let staged = store(&mut director).expect("it holds a film more");
    assert!(inputs(&mut director).is_empty(), "the next one begins with what is durable");
    director.handle(at(0), Event::Stored(staged.generation));
    let next = inputs(&mut director).pop();
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
    director.handle(at(0), Event::Placed(Box::new(old.work_out())));
    assert_eq!(director.publisher().newest(&id("a2")), None, "it is forgotten");
    let staged = store(&mut director).expect("another film");
    assert_eq!(staged.entries.keys().collect::<Vec<_>>(), [&id("a1")]);
    director.handle(at(0), Event::Stored(staged.generation));
    assert_eq!(director.publisher().newest(&id("a2")), None, "it stays so");
    assert_eq!(director.manifest(&id("a2")), Err(NotRegistered));
    settle(&mut director);
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

/// As after a restore from a backup, however long a plan takes.
#[test]
fn all_who_follow_newer_manifests_are_overtaken_by_one_plan() {
    let names: Vec<String> = (10..40).map(|n| format!("a{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut director = running(&names);
    let early = begun(&mut director, "film-1", 1);
    let base = generations(&director)[names[0]].0;
    for (name, above) in names.iter().zip(100..) {
        if *name == names[9] {
            director.handle(at(0), Event::Placed(Box::new(early.clone().work_out())));
        }
        let generation = Generation(base + above);
        let report = Report { generation, ..report(60) };
        director.report(at(0), &id(name), &report).unwrap();
    }
    let staged = store(&mut director).expect("a film more");
    director.handle(at(0), Event::Stored(staged.generation));
    let mut plans = 0;
    for second in 1..20 {
        director.handle(at(second * 1000), Event::Tick(UnixSeconds(second)));
        for input in inputs(&mut director) {
            assert_eq!(placed(&mut director, input), None);
            plans += 1;
        }
    }
    let given = generations(&director);
    for (name, above) in names.iter().zip(100..) {
        assert!(base + above < given[*name].0, "{name}: {given:?}");
    }
    assert_eq!(plans, 1);
}

/// What is in the making when it says so is above that already.
#[test]
fn whoever_a_plan_has_overtaken_meanwhile_needs_no_other() {
    let mut director = running(&["a1"]);
    director.handle(at(0), Event::Tick(UnixSeconds(1_000_000)));
    let early = begun(&mut director, "film-1", 1);
    let report = Report { generation: Generation(1000), ..report(60) };
    director.report(at(0), &id("a1"), &report).unwrap();
    assert_eq!(placed(&mut director, early), None);
    director.handle(at(1000), Event::Tick(UnixSeconds(1_000_001)));
    assert_eq!(inputs(&mut director).len(), 0);
    assert_eq!(generations(&director)["a1"], Generation(1_000_000));
}

proptest! {
    #[test]
    fn no_generation_is_given_twice_or_seen_before_it_is_durable_and_all_is_right_in_the_end(
        steps in proptest::collection::vec((0_u8..10, 0_u8..3), 1..60)
    ) {
        let mut world = World::new();
        for (what, which) in steps {
            world.step(what, which);
            world.look();
        }
        world.finish();
        world.look();
        let holds = world.director.places().holds.clone();
        prop_assert_eq!(&world.durable.holds, &holds, "a restart knows what lies where");
        let ledger = Ledger { holds, ..Ledger::default() };
        let mut fresh = restarted_with(&world.director, ledger);
        settle(&mut fresh);
        let all = |of: &Director| -> BTreeMap<ApplianceId, Manifest> {
            let names = of.desired().appliances.keys();
            let bare = |m: Arc<Manifest>| {
                let trust = of.trust().unwrap();
                let is_right = m.trust.is_apart || m.trust.revoked == trust.trust.revoked;
                assert!(is_right, "whoever reads no trust document has it in its manifest");
                let (token_keys, trust) = (Vec::new(), Trust::default());
                Manifest { generation: Generation(0), token_keys, trust, ..(*m).clone() }
            };
            names.map(|id| (id.clone(), bare(of.manifest(id).unwrap().unwrap()))).collect()
        };
        prop_assert_eq!(all(&world.director), all(&fresh));
    }
}

fn restarted_with(director: &Director, ledger: Ledger) -> Director {
    Director::new(CONFIG, director.desired().clone(), ledger, at(0), UnixSeconds(0))
}

/// A director whose plans and stores come when a test says, and what is durable.
struct World {
    director: Director,
    durable: Ledger,
    input: Option<PlanInput>,
    storing: Option<Ledger>,
    sequence: u64,
    /// Each generation of each appliance that was made durable, and the manifests that were seen.
    stored: BTreeSet<(ApplianceId, Generation)>,
    seen: BTreeMap<(ApplianceId, Generation), Arc<Manifest>>,
    /// Generations that appliances follow, and that were given out in another life.
    followed: BTreeMap<ApplianceId, Generation>,
}

impl World {
    fn new() -> Self {
        let (durable, sequence) = (Ledger::default(), 0);
        let mut world = Self {
            director: fleet(&["a0", "a1"]),
            durable,
            input: None,
            storing: None,
            sequence,
            stored: BTreeSet::new(),
            seen: BTreeMap::new(),
            followed: BTreeMap::new(),
        };
        world.poll();
        world
    }

    /// So late that everybody is listened to again.
    fn now(&self) -> Instant {
        at(self.sequence * 60_000)
    }

    fn poll(&mut self) {
        while let Some(action) = self.director.poll() {
            if let Action::Place(input) = action {
                assert!(self.input.replace(*input).is_none(), "one at a time");
            } else if let Action::Store(ledger) = action {
                self.storing = Some(ledger);
            } else if let Action::StoreTrust(entry) = action {
                self.durable.trust = entry;
                self.director.handle(self.now(), Event::TrustStored(entry.generation));
            }
        }
    }

    fn step(&mut self, what: u8, which: u8) {
        self.sequence += 1;
        let name = id(&format!("a{which}"));
        match what {
            0 => {
                let version = version_of(&format!("film-{which}"), &[which], self.sequence);
                self.director.handle(self.now(), Event::Changed(Change::Version(version)));
            }
            1 => {
                let change = if self.director.desired().appliances.contains_key(&name) {
                    self.durable.entries.remove(&name);
                    self.durable.holds.remove(&name);
                    self.followed.remove(&name);
                    Change::ApplianceGone(name)
                } else {
                    Change::Appliance(Appliance::new(name, "a".parse().unwrap(), Weight::ONE))
                };
                self.director.handle(self.now(), Event::Changed(change));
            }
            2 => {
                let revoked = BTreeSet::from([format!("{:04x}", self.sequence)]);
                self.director.handle(self.now(), Event::Changed(Change::Revoked(revoked)));
            }
            3 => {
                self.director = restarted_with(&self.director, self.durable.clone());
                (self.input, self.storing) = (None, None);
            }
            4 => drop(self.store()),
            5 => {
                if let Some(generation) = self.store() {
                    self.director.handle(self.now(), Event::Stored(generation));
                }
            }
            8 => {
                let newest = self.director.generation().0;
                self.followed.insert(name, Generation(newest + 1 + u64::from(which)));
                self.tell();
            }
            9 => self.tell(),
            _ => {
                if let Some(input) = self.input.take() {
                    self.director.handle(self.now(), Event::Placed(Box::new(input.work_out())));
                }
            }
        }
        self.poll();
    }

    /// All say which generation they follow, and time passes.
    fn tell(&mut self) {
        for (name, generation) in self.followed.clone() {
            let report = Report { generation, ..report(self.sequence) };
            let now = self.now();
            self.director.handle(now, Event::Reported { appliance: &name, report: &report });
        }
        let now = self.now();
        self.director.handle(now, Event::Tick(UnixSeconds(1)));
    }

    /// Makes durable whatever waits, as a database does: an appliance that is gone has no entry.
    fn store(&mut self) -> Option<Generation> {
        let ledger = self.storing.clone()?;
        for (id, entry) in &ledger.entries {
            if self.director.desired().appliances.contains_key(id) {
                self.durable.entries.insert(id.clone(), *entry);
            }
            self.stored.insert((id.clone(), entry.generation));
        }
        for (id, holds) in &ledger.holds {
            if self.director.desired().appliances.contains_key(id) {
                self.durable.holds.insert(id.clone(), Arc::clone(holds));
            }
        }
        self.durable.generation = self.durable.generation.max(ledger.generation);
        Some(ledger.generation)
    }

    /// All that is visible is durable, and was never another.
    fn look(&mut self) {
        for id in self.director.desired().appliances.keys() {
            let Some(manifest) = self.director.manifest(id).unwrap() else { continue };
            let of = (id.clone(), manifest.generation);
            assert!(self.stored.contains(&of), "{of:?} is not durable");
            let known = self.seen.entry(of).or_insert_with(|| Arc::clone(&manifest));
            assert_eq!(known, &manifest, "a generation is one manifest");
        }
    }

    fn finish(&mut self) {
        for _ in 0..6 {
            self.step(6, 0);
            self.step(5, 0);
            self.step(9, 0);
        }
        for (id, followed) in &self.followed {
            let Ok(manifest) = self.director.manifest(id) else { continue };
            let newest = manifest.map(|manifest| manifest.generation);
            assert!(Some(*followed) <= newest, "{id} would refuse every other");
        }
        assert!(self.input.is_none() && self.director.planning.is_done(), "nothing is left to do");
    }
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
