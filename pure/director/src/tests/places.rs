use super::*;
use model::names::Names;
use model::profile::{Abilities, Profile, Profiles};

fn director_site(name: &str) -> Site {
    running(&["a1", "b1"]).desired().sites[name].clone()
}

/// For each change: whether a plan is made, and whether places are found anew for it.
#[test]
fn a_plan_is_made_for_what_placement_and_manifests_depend_on_and_for_nothing_else() {
    let mut director = running(&["a1", "a2", "b1"]);
    put_version(&mut director, "film-1", &[1, 2], 1);
    let mut plans = |change: Change| {
        let before = director.counters().placements;
        director.handle(at(0), Event::Changed(change));
        let is_planned = !director.planning.is_done();
        settle(&mut director);
        (is_planned, director.counters().placements - before)
    };
    let (nothing, manifests, places) = ((false, 0), (true, 0), (true, 1));
    let known = Appliance::new(id("a1"), "a".parse().unwrap(), Weight::ONE);
    let able = Abilities { throughput: Some(BitsPerSecond(7_000_000)), ..Abilities::default() };
    let small = Abilities { capacity: Some(Bytes::mib(100)), ..Abilities::default() };
    let addresses = vec!["192.0.2.1".parse().unwrap()];
    let site = "b".parse().unwrap();
    for (expected, appliance) in [
        (nothing, known.clone()),
        (nothing, Appliance { tags: ["loan".parse().unwrap()].into(), ..known.clone() }),
        (nothing, Appliance { profile: Some(Profile::Flash), own: able, ..known.clone() }),
        (places, Appliance { own: small, ..known.clone() }),
        (places, known.clone()),
        (manifests, Appliance { addresses, ..known.clone() }),
        (manifests, known.clone()),
        (places, Appliance { weight: Weight::new(2).unwrap(), ..known.clone() }),
        (places, Appliance { site, ..known.clone() }),
        (places, Appliance { id: id("a9"), ..known }),
    ] {
        let told = format!("{appliance:?}");
        assert_eq!(plans(Change::Appliance(appliance)), expected, "{told}");
    }
    let known = director_site("b");
    let cluster = Some("north".parse().unwrap());
    for (expected, site) in [
        (nothing, Site { uplink: Some(BitsPerSecond(7_000_000)), ..known.clone() }),
        (places, Site { manifest_cluster: cluster, ..known.clone() }),
        (places, known),
    ] {
        let told = format!("{site:?}");
        assert_eq!(plans(Change::Site(site)), expected, "{told}");
    }
    let known = Policy::default();
    let profiles = Profiles { flash: able, ..known.profiles };
    for (expected, policy) in [
        (nothing, known),
        (nothing, Policy { profiles, ..known }),
        (places, Policy { copies: 1, ..known }),
        (places, Policy { versions_kept: 1, ..known }),
    ] {
        assert_eq!(plans(Change::Policy(policy)), expected, "{policy:?}");
    }
}

#[test]
fn silence_moves_no_file() {
    let mut director = running(&["a1", "a2", "a3"]);
    put_version(&mut director, "film-1", &[1, 2], 1);
    let before = generations(&director);
    let placements = director.counters().placements;
    for ms in (0..60_000).step_by(100) {
        director.handle(at(ms), Event::Tick(UnixSeconds(ms / 1000)));
        settle(&mut director);
    }
    assert!(director.appliances(at(60_000)).values().all(|a| a.health == Health::Stale));
    assert_eq!(generations(&director), before);
    assert_eq!(director.counters().placements, placements);
}

#[test]
fn drives_that_can_hold_less_move_files_and_small_changes_do_not() {
    let mut director = running(&["a1"]);
    put_version(&mut director, "film-1", &[1, 2], 1);
    let tell = |director: &mut Director, seconds, usable| {
        let report = Report { usable: Bytes(usable), ..report(10 + seconds) };
        director.report(at(seconds * 1000), &id("a1"), &report).unwrap();
        director.handle(at(seconds * 1000), Event::Tick(UnixSeconds(seconds)));
        settle(director);
        director.places().report.loads[&id("a1")].room.unwrap()
    };
    assert_eq!(tell(&mut director, 0, USABLE.0 - USABLE.0 / 100), USABLE);
    assert_eq!(tell(&mut director, 400, 0), USABLE, "no drive in sight is no news");
    let little = USABLE.0 * 3 / 5;
    assert_eq!(tell(&mut director, 401, little), USABLE, "it has to last");
    assert_eq!(tell(&mut director, 701, little), Bytes(little));
    director.handle(at(701_000), Event::Changed(Change::Usable(id("a1"), Bytes(4096))));
    settle(&mut director);
    assert_eq!(manifest(&director, "a1").versions.len(), 0);
    assert_eq!(director.places().report.missing_count, 1);
}

#[test]
fn a_machine_holds_no_more_than_an_operator_said_of_it() {
    let mut director = running(&["a1"]);
    put_version(&mut director, "film-1", &[1, 2], 1);
    let known = Appliance::new(id("a1"), "a".parse().unwrap(), Weight::ONE);
    for (capacity, room, films) in [
        (None, USABLE, 1),
        (Some(Bytes(4096)), Bytes(4096), 0),
        (Some(Bytes(USABLE.0 + 1)), USABLE, 1),
    ] {
        let own = Abilities { capacity, ..Abilities::default() };
        let change = Change::Appliance(Appliance { own, ..known.clone() });
        director.handle(at(0), Event::Changed(change));
        settle(&mut director);
        // It may be a mistake: what would go is refused.
        assert_eq!(manifest(&director, "a1").versions.len(), 1, "{capacity:?}");
        force(&mut director);
        settle(&mut director);
        assert_eq!(director.places().report.loads[&id("a1")].room, Some(room));
        assert_eq!(manifest(&director, "a1").versions.len(), films, "{capacity:?}");
    }
}

/// Of an appliance with room for so many films.
fn small(name: &str, films: u64) -> Director {
    let mut director = running(&[name]);
    let policy = Policy { versions_kept: 12, ..director.desired().policy };
    director.handle(at(0), Event::Changed(Change::Policy(policy)));
    let usable = Bytes(films * 8192);
    director.handle(at(0), Event::Changed(Change::Usable(id(name), usable)));
    director.handle(at(0), Event::Tick(UnixSeconds(1)));
    director.handle(at(0), Event::Expected(Arc::default()));
    settle(&mut director);
    director
}

fn films(director: &Director) -> Vec<String> {
    let versions = manifest(director, "a1").versions.clone();
    versions.iter().map(|version| version.id.to_string()).collect()
}

#[test]
fn a_full_appliance_takes_in_what_is_new_and_lets_the_oldest_go() {
    let mut director = small("a1", 3);
    for n in 1..5 {
        put_version(&mut director, &format!("film-{n}"), &[n], n.into());
    }
    assert_eq!(films(&director), ["film-3", "film-2", "film-1"], "four of a day: the first stay");
    director.handle(at(0), Event::Tick(UnixSeconds(2 * 86_400)));
    let new = version_of("film-5", &[5], 5);
    let files = AssetVersion { modified: UnixSeconds(2 * 86_400), ..new.files.as_ref().clone() };
    let new = Version::new(Arc::new(files), Vec::new(), 5);
    director.handle(at(0), Event::Changed(Change::Version(Arc::new(new))));
    settle(&mut director);
    assert_eq!(films(&director), ["film-5", "film-3", "film-2"]);
    let report = director.places().report.to_string();
    assert!(report.contains("film-1: 0 of 1 copies in a: "), "{report}");
}

#[test]
fn a_restart_knows_what_lies_where_and_moves_nothing() {
    let mut director = small("a1", 3);
    for n in 1..5 {
        put_version(&mut director, &format!("film-{n}"), &[n], n.into());
    }
    let before = (films(&director), generations(&director));
    let again = |ledger: Ledger| {
        let desired = director.desired().clone();
        let mut director = Director::new(CONFIG, desired, ledger, at(0), UnixSeconds(0));
        settle(&mut director);
        (films(&director), generations(&director))
    };
    assert_eq!(again(ledger(&director)), before);
    let unknown = Ledger { holds: Names::default(), ..Ledger::default() };
    let (held, _) = again(unknown);
    assert_eq!(held, ["film-4", "film-3", "film-2"], "else the newest would have come");
}

#[test]
fn what_the_release_before_placed_stays_where_it_is() {
    let mut director = running(&["a1", "a2", "a3"]);
    let policy = Policy { versions_kept: 12, copies: 1, ..director.desired().policy };
    director.handle(at(0), Event::Changed(Change::Policy(policy)));
    for n in 0..8 {
        put_version(&mut director, &format!("film-{n}"), &[n], u64::from(n) + 1);
    }
    let places = |ledger: Ledger| {
        let desired = director.desired().clone();
        let mut director = Director::new(CONFIG, desired, ledger, at(0), UnixSeconds(0));
        settle(&mut director);
        ["a1", "a2", "a3"].map(|name| {
            let name = id(name);
            let held = director.places().held(&name).map(|(of, _)| of.id().to_string());
            held.collect::<Vec<_>>()
        })
    };
    // The first copies of the golden answer of `placement::before`.
    let before = places(Ledger { holds: Names::default(), ..ledger(&director) });
    let all: usize = before.iter().map(Vec::len).sum();
    assert_eq!(all, 8);
    assert_ne!(before, places(Ledger::default()), "other draws would have moved some");
    let desired = director.desired();
    let candidate = |name: &str| placement::before::Candidate {
        id: id(name),
        site: "a".parse().unwrap(),
        weight: Weight::ONE,
        usable: Some(USABLE),
        bitrate_max: None,
    };
    let demands = desired.catalog.kept(12).into_iter().map(|(_, version)| {
        let (version, len) = (version.id().clone(), version.len_on_drive());
        placement::before::Demand { version, len, renditions: Vec::new() }
    });
    let fleet = ["a1", "a2", "a3"].map(candidate);
    let placed = placement::before::place(&fleet, &demands.collect::<Vec<_>>(), 1);
    let placed = placed.into_values().map(|held| {
        let mut held: Vec<String> = held.iter().map(ToString::to_string).collect();
        held.sort();
        held
    });
    assert_eq!(placed.collect::<Vec<_>>(), before);
}

#[test]
fn items_are_durable_also_where_the_manifest_is_the_same() {
    let mut director = small("a1", 3);
    put_version(&mut director, "film-1", &[1], 1);
    let holds = ledger(&director).holds;
    let unknown = Ledger { holds: Names::default(), ..ledger(&director) };
    let desired = director.desired().clone();
    let mut director = Director::new(CONFIG, desired, unknown, at(0), UnixSeconds(0));
    let staged = store(&mut director).expect("nothing of it is durable");
    assert_eq!((staged.entries.len(), &staged.holds), (0, &holds));
    director.handle(at(0), Event::Stored(staged.generation));
    director.handle(at(0), Event::PlanNow { forces: None });
    assert_eq!(store(&mut director), None, "it is now");
}
