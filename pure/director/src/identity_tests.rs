//! Clones, moved hardware, restored backups, and the keys that sign.

use std::collections::BTreeSet;

use super::tests::{
    CONFIG, at, generations, hold, id, ledger, manifest, played, put_version, report, running,
    seen, settle,
};
use super::*;
use model::inventory::Delta;
use model::manifest::TokenKey;

#[test]
fn two_machines_with_one_identity_are_noticed_and_no_player_is_sent_there() {
    let mut director = running(&["a1", "a2"]);
    put_version(&mut director, "film-1", &[1, 2], 1);
    hold(&mut director, "a1", &[1, 2]);
    hold(&mut director, "a2", &[1, 2]);
    settle(&mut director);
    assert_eq!(played(&director).1.len(), 2);
    let stored = two_report(&mut director, 30);
    assert_eq!(stored, [Action::StoreCloned(id("a1"))], "said once");
    assert_eq!(played(&director).1, ["a2"]);
    let told = director.notices().next_back().unwrap();
    assert_eq!((told.health, told.cause), (Health::Unhealthy, Cause::Cloned));
    let wanted = "a1 is unhealthy: two machines report under its identity, as after copying a disk \
         or an image: revoke it (DELETE /v1/appliances/ID/identity) and enrol each \
         machine under a name of its own; or, if the second is gone, DELETE \
         /v1/appliances/ID/clone";
    assert_eq!(told.text, wanted);
    assert_eq!(director.counters().clones, 1);

    // One of them goes on alone: nobody can know which it is.
    for sequence in 50..60 {
        director.report(at(0), &id("a1"), &report(sequence)).unwrap();
    }
    let restarted = restart(&director);
    assert_eq!(played(&director).1, ["a2"]);
    assert!(restarted.desired().appliances[&id("a1")].cloned, "nor after a restart");
}

#[test]
fn a_clone_is_over_when_an_operator_says_so_or_with_the_next_enrolment() {
    let enrolled =
        Change::Enrolled { appliance: id("a1"), machine: String::new(), supersedes: true };
    for change in [Change::CloneGone(id("a1")), enrolled] {
        let mut director = running(&["a1"]);
        put_version(&mut director, "film-1", &[1, 2], 1);
        two_report(&mut director, 30);
        let inventory = Delta { from: 5, to: 6, ..Delta::default() };
        let one = |sequence| Report { inventory: inventory.clone(), ..report(sequence) };
        let reply = director.report(at(0), &id("a1"), &one(60)).unwrap();
        assert_eq!(reply.inventory, 6, "nothing is asked of two machines");
        director.handle(at(0), Event::Changed(change));
        let reply = director.report(at(0), &id("a1"), &Report { start_id: 9, ..one(61) }).unwrap();
        assert_eq!(reply.inventory, 0, "the full list is asked for");
        let full = Delta { to: 6, ..Delta::default() };
        let next = Report { start_id: 9, inventory: full, ..report(62) };
        director.report(at(0), &id("a1"), &next).unwrap();
        assert_eq!(director.appliances(at(0))[&id("a1")].health, Health::Healthy);
        assert!(!director.desired().appliances[&id("a1")].cloned);
    }
}

#[test]
fn a_restart_with_one_report_still_on_its_way_is_no_clone() {
    let mut director = running(&["a1"]);
    for (start_id, sequence) in [(1, 10), (2, 1), (1, 11), (2, 2), (2, 3), (1, 10), (1, 11)] {
        let report = Report { start_id, ..report(sequence) };
        director.report(at(0), &id("a1"), &report).unwrap();
    }
    assert_eq!(director.counters().clones, 0);
    assert_eq!(director.counters().reports_late, 3);
}

/// A late report of a process that this director never heard of, as after its own restart.
#[test]
fn a_late_report_of_a_process_unheard_of_displaces_the_living_one_for_one_turn_only() {
    let mut director = running(&["a1"]);
    let mut tell = |start_id, sequence| {
        let report = Report { start_id, generation: Generation(sequence), ..report(sequence) };
        director.report(at(0), &id("a1"), &report).unwrap();
        let status = director.appliances(at(0));
        (status[&id("a1")].health, director.counters().reports_late)
    };
    tell(7, 1);
    tell(5, 90);
    for (sequence, late) in (2..20).zip([1, 1, 1, 1]) {
        assert_eq!(tell(7, sequence), (Health::Healthy, late), "report {sequence}");
    }
    assert_eq!(director.counters().clones, 0);
}

/// The process that was killed had given up waiting for one answer, and sent the next report.
#[test]
fn a_restart_with_two_reports_still_on_their_way_is_no_clone() {
    let mut director = running(&["a1"]);
    for (start_id, sequence) in [(1, 10), (2, 1), (1, 11), (2, 2), (1, 12), (2, 3)] {
        let report = Report { start_id, ..report(sequence) };
        director.report(at(0), &id("a1"), &report).unwrap();
    }
    assert_eq!((director.counters().clones, director.counters().reports_late), (0, 2));
    director.report(at(0), &id("a1"), &Report { start_id: 1, ..report(13) }).unwrap();
    assert_eq!(director.counters().clones, 1);
}

#[test]
fn other_hardware_under_the_same_identity_is_told_once() {
    let mut director = running(&["a1"]);
    let mut sequence = 1;
    let mut tell = |director: &mut Director, ms, machine: &str, drives: &[&str]| {
        sequence += 1;
        let hardware = hardware(machine, drives);
        director.report(at(ms), &id("a1"), &Report { hardware, ..report(sequence) }).unwrap();
        director.counters().moves
    };
    assert_eq!(tell(&mut director, 0, "m1", &["d1", "d2"]), 0, "the first time");
    assert_eq!(tell(&mut director, 40_000, "m1", &["d2", "d3"]), 0, "a drive was replaced");
    assert_eq!(tell(&mut director, 80_000, "", &[]), 0);
    assert_eq!(tell(&mut director, 120_000, "m2", &["d2", "d3"]), 1);
    let told = director.notices().next_back().unwrap();
    assert_eq!(told.cause, Cause::Moved(Moved::Machine));
    assert!(told.text.contains("moved to other hardware or was restored from an image"));
    assert_eq!(tell(&mut director, 160_000, "m2", &["d2", "d3"]), 1, "it is known now");
    assert_eq!(tell(&mut director, 200_000, "m2", &["d8", "d9"]), 2);
    assert_eq!(tell(&mut director, 200_500, "m3", &["d8", "d9"]), 2, "not with every report");
    let stored = std::iter::from_fn(|| director.poll());
    let stored = stored.filter(|action| matches!(action, Action::StoreHardware { .. }));
    assert_eq!(stored.count(), 4);

    let mut again = restart(&director);
    assert_eq!(tell(&mut again, 0, "m9", &["d8"]), 1, "a restart forgets nothing");
    let enrolled =
        Change::Enrolled { appliance: id("a1"), machine: "m7".to_owned(), supersedes: false };
    again.handle(at(0), Event::Changed(enrolled));
    assert_eq!(tell(&mut again, 40_000, "m7", &["x1"]), 1, "a new identity, a new machine");
}

#[test]
fn whose_identity_is_revoked_is_offered_to_nobody_at_once() {
    let mut director = running(&["a1"]);
    director.handle(at(0), Event::Changed(Change::IdentityRevoked(id("a1"))));
    assert_eq!(seen(&director, "a1").health, Health::NeverSeen);
    assert_eq!(director.notices().next_back().unwrap().cause, Cause::Revoked);
}

#[test]
fn no_generation_is_given_out_twice_though_an_old_backup_was_restored() {
    let mut director = running(&["a1", "a2"]);
    director.handle(at(0), Event::Tick(UnixSeconds(1_800_000_000)));
    let backup = (director.desired().clone(), ledger(&director));
    put_version(&mut director, "film-1", &[1], 1);
    put_version(&mut director, "film-2", &[2], 2);
    let given = generations(&director).into_values().max().unwrap();
    assert!(Generation(1_800_000_000) <= given);

    let (mut desired, ledger) = backup;
    desired.signing_keys = vec![key("s9")];
    let later = UnixSeconds(1_800_000_100);
    let mut restored = Director::new(CONFIG, desired, ledger, at(0), later);
    settle(&mut restored);
    assert!(generations(&restored).into_values().all(|generation| given < generation));
}

#[test]
fn whoever_is_ahead_of_a_restored_backup_gets_a_generation_above_its_own() {
    // A clock that stands still, or was ahead before: all that is left is what appliances say.
    let mut director = running(&["a1", "a2"]);
    let follow = |director: &mut Director, name: &str, sequence, generation| {
        let report = Report { generation: Generation(generation), ..report(sequence) };
        director.report(at(0), &id(name), &report).unwrap();
        director.handle(at(0), Event::Tick(UnixSeconds(1)));
        settle(director);
        manifest(director, name).generation.0
    };
    assert!(99 < follow(&mut director, "a1", 2, 99));
    let notices: Vec<_> = director.notices().map(|notice| notice.cause).collect();
    assert!(notices.contains(&Cause::Ahead(Generation(99))), "{notices:?}");
    let second = follow(&mut director, "a2", 2, 98);
    assert!(98 < second, "below the newest of all, above its own: {second}");
    assert_eq!(follow(&mut director, "a2", 3, second), second, "it follows: nothing to do");
    // Long after, since nobody is listened to over and over.
    let nonsense = Report { generation: Generation(u64::MAX), ..report(4) };
    director.report(at(60_000), &id("a2"), &nonsense).unwrap();
    director.handle(at(60_000), Event::Tick(UnixSeconds(1)));
    settle(&mut director);
    let nonsense = manifest(&director, "a2").generation.0;
    assert_eq!(nonsense, second, "nobody can use up all numbers");
}

#[test]
fn a_new_signing_key_signs_once_all_have_a_manifest_that_names_it() {
    let mut director = rotating();
    let both = manifest(&director, "a1").trust.signing_keys.clone();
    assert_eq!(both, [key("s1"), key("s2")]);
    assert!(!is_told_to_use_next(&mut director, 100), "nobody has it yet");
    for (name, told) in [("a1", false), ("b1", true)] {
        let generation = manifest(&director, name).generation;
        director.report(at(100), &id(name), &Report { generation, ..report(9) }).unwrap();
        assert!(!is_told_to_use_next(&mut director, 199), "fronts have not asked yet");
        assert_eq!(is_told_to_use_next(&mut director, 200), told, "{name}");
    }
    assert!(!is_told_to_use_next(&mut director, 1100), "said a moment ago");
    assert!(is_told_to_use_next(&mut director, 1300), "still not done");
    director.handle(at(1400), Event::Changed(Change::SigningKeys(vec![key("s2")])));
    settle(&mut director);
    assert_eq!(manifest(&director, "a1").trust.signing_keys, [key("s2")]);
    assert!(!is_told_to_use_next(&mut director, 9000), "it is over");
}

#[test]
fn an_appliance_that_is_away_holds_a_new_signing_key_up_only_for_so_long() {
    let mut director = rotating();
    assert!(!is_told_to_use_next(&mut director, 3_599_000));
    assert!(is_told_to_use_next(&mut director, 3_600_000));
    let mut again = restart(&director);
    settle(&mut again);
    assert!(is_told_to_use_next(&mut again, 3_600_000), "a restart goes on with it");
}

#[test]
fn a_new_key_of_playback_tokens_signs_once_all_have_it_and_the_old_one_outlives_its_tokens() {
    let mut director = running(&["a1", "b1"]);
    let announced = TokenRotation { announced: Some(UnixSeconds(10)), retires: None };
    let keys = vec![key("k1"), key("k2")];
    director.handle(at(0), Event::Changed(Change::TokenKeys(keys.clone(), announced)));
    settle(&mut director);
    assert_eq!(manifest(&director, "a1").token_keys, keys);
    assert_eq!(told_of_token_keys(&mut director, 900, 20), None, "nobody has it yet");
    for (name, told) in [("a1", None), ("b1", Some(Action::UseNextTokenKey))] {
        let generation = manifest(&director, name).generation;
        director.report(at(1000), &id(name), &Report { generation, ..report(9) }).unwrap();
        let early = told_of_token_keys(&mut director, 1000, 10);
        assert_eq!(early, None, "fronts have not asked yet");
        assert_eq!(told_of_token_keys(&mut director, 1000, 11), told, "{name}");
    }
    let keys = vec![key("k2"), key("k1")];
    let retires = TokenRotation { announced: None, retires: Some(UnixSeconds(500)) };
    director.handle(at(2000), Event::Changed(Change::TokenKeys(keys.clone(), retires)));
    settle(&mut director);
    assert_eq!(
        manifest(&director, "a1").token_keys,
        keys,
        "old tokens are good as long as they are"
    );
    assert_eq!(told_of_token_keys(&mut director, 3000, 499), None);
    let drop = Some(Action::DropOldTokenKeys);
    assert_eq!(told_of_token_keys(&mut director, 3000, 500), drop);
    assert_eq!(told_of_token_keys(&mut director, 3500, 501), None, "said a moment ago");
    assert_eq!(told_of_token_keys(&mut director, 4000, 501), drop, "still not done");
    let mut again = restart(&director);
    settle(&mut again);
    assert_eq!(told_of_token_keys(&mut again, 2000, 502), drop, "a restart goes on with it");
    let over = Change::TokenKeys(vec![key("k2")], TokenRotation::default());
    director.handle(at(4500), Event::Changed(over));
    settle(&mut director);
    assert_eq!(told_of_token_keys(&mut director, 9000, 9000), None, "it is over");
}

#[test]
fn an_appliance_that_is_away_holds_a_new_key_of_playback_tokens_up_only_for_so_long() {
    let mut director = running(&["a1", "b1"]);
    let announced = TokenRotation { announced: Some(UnixSeconds(10)), retires: None };
    let keys = vec![key("k1"), key("k2")];
    director.handle(at(0), Event::Changed(Change::TokenKeys(keys, announced)));
    settle(&mut director);
    assert_eq!(told_of_token_keys(&mut director, 900, 3609), None);
    let told = told_of_token_keys(&mut director, 900, 3610);
    assert_eq!(told, Some(Action::UseNextTokenKey));
}

fn told_of_token_keys(director: &mut Director, ms: u64, unix: u64) -> Option<Action> {
    director.handle(at(ms), Event::Tick(UnixSeconds(unix)));
    let is_it =
        |action: &Action| matches!(action, Action::UseNextTokenKey | Action::DropOldTokenKeys);
    std::iter::from_fn(|| director.poll()).filter(is_it).last()
}

/// Two appliances, with a second signing key announced and published.
fn rotating() -> Director {
    let mut director = running(&["a1", "b1"]);
    let keys = vec![key("s1"), key("s2")];
    director.handle(at(0), Event::Changed(Change::SigningKeys(keys)));
    settle(&mut director);
    director
}

fn is_told_to_use_next(director: &mut Director, ms: u64) -> bool {
    director.handle(at(ms), Event::Tick(UnixSeconds(1)));
    std::iter::from_fn(|| director.poll()).any(|action| action == Action::UseNextSigningKey)
}

/// Two processes report as a1, in turn; what is to be stored of it.
fn two_report(director: &mut Director, from: u64) -> Vec<Action> {
    for sequence in from..from + 6 {
        for start_id in [1, 2] {
            let report = Report { start_id, ..report(sequence) };
            director.report(at(0), &id("a1"), &report).unwrap();
        }
    }
    let actions = std::iter::from_fn(|| director.poll());
    actions.filter(|action| matches!(action, Action::StoreCloned(_))).collect()
}

fn restart(director: &Director) -> Director {
    let desired = director.desired().clone();
    Director::new(CONFIG, desired, ledger(director), at(0), UnixSeconds(0))
}

fn hardware(machine: &str, drives: &[&str]) -> Hardware {
    let drives: BTreeSet<String> = drives.iter().map(|id| (*id).to_owned()).collect();
    Hardware { machine: machine.to_owned(), drives }
}

fn key(kid: &str) -> TokenKey {
    TokenKey { kid: kid.to_owned(), public_key: [8; 32] }
}
