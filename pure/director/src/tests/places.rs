use super::*;
use model::profile::{Abilities, Profile, Profiles};

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
    let addresses = vec!["192.0.2.1".parse().unwrap()];
    let site = "b".parse().unwrap();
    for (expected, appliance) in [
        (nothing, known.clone()),
        (nothing, Appliance { tags: ["loan".parse().unwrap()].into(), ..known.clone() }),
        (nothing, Appliance { profile: Some(Profile::Flash), own: able, ..known.clone() }),
        (manifests, Appliance { addresses, ..known.clone() }),
        (manifests, known.clone()),
        (places, Appliance { weight: Weight::new(2).unwrap(), ..known.clone() }),
        (places, Appliance { site, ..known.clone() }),
        (places, Appliance { id: id("a9"), ..known }),
    ] {
        let told = format!("{appliance:?}");
        assert_eq!(plans(Change::Appliance(appliance)), expected, "{told}");
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
        director.placement().report.loads[&id("a1")].usable
    };
    assert_eq!(tell(&mut director, 0, USABLE.0 - USABLE.0 / 100), USABLE);
    assert_eq!(tell(&mut director, 400, 0), USABLE, "no drive in sight is no news");
    let little = USABLE.0 * 3 / 5;
    assert_eq!(tell(&mut director, 401, little), USABLE, "it has to last");
    assert_eq!(tell(&mut director, 701, little), Bytes(little));
    director.handle(at(701_000), Event::Changed(Change::Usable(id("a1"), Bytes(4096))));
    settle(&mut director);
    assert_eq!(manifest(&director, "a1").versions.len(), 0);
    assert_eq!(director.placement().report.shortfall_count, 1);
}
