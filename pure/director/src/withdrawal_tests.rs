//! Titles that are taken down.

use super::tests::*;
use super::*;
use model::id::AssetId;
use model::id::AssetVersionId;

const NONE: [AssetVersionId; 0] = [];

#[test]
fn what_is_withdrawn_is_played_by_nobody_new_and_is_in_no_manifest() {
    let mut director = running(&["a1"]);
    put_version(&mut director, "film-1", &[1], 1);
    put_version(&mut director, "film-2", &[1, 2], 2);
    hold(&mut director, "a1", &[1, 2]);
    assert_eq!(played(&director).0, "film-2");
    withdraw(&mut director, 1, &["film-2"]);
    assert_eq!(played(&director).0, "film-1", "an older one is left");
    let held: Vec<_> = manifest(&director, "a1").versions.iter().map(|v| v.id.clone()).collect();
    assert_eq!(held.len(), 1);
    assert!(manifest(&director, "a1").versions[0].files.contains_key("1.mp4"), "shared");
    withdraw(&mut director, 2, &["film-1"]);
    assert_eq!(refusal(&director), Some(front::Unplayable::UnknownAsset));
    let snapshot = director.snapshot();
    let is_withdrawn = |name| snapshot.is_withdrawn(&version(name), UnixSeconds(1));
    assert!(is_withdrawn("film-1") && is_withdrawn("film-2"));
    assert!(!is_withdrawn("film-3"), "a front may not know it yet");
    put_version(&mut director, "film-1", &[1], 3);
    assert_eq!(played(&director).0, "film-1", "an operator wants it again");
    assert!(!director.snapshot().is_withdrawn(&version("film-1"), UnixSeconds(1)));
    assert!(!director.desired().withdrawals.contains_key(&2), "nothing of it is withdrawn");
}

#[test]
fn a_receipt_is_for_what_all_workers_answer_by() {
    let mut director = running(&["a1", "a2"]);
    put_version(&mut director, "film-1", &[1], 1);
    let before = generations(&director)["a1"];
    withdraw(&mut director, 1, &["film-1"]);
    let now = generations(&director)["a1"];
    assert!(before < now);
    let mut sequence = 30;
    let mut tell = |director: &mut Director, name: &str, generation, served: Option<Generation>| {
        sequence += 1;
        let report = Report { generation, served, ..report(sequence) };
        director.report(at(0), &id(name), &report).unwrap();
        signed(director, 1)
    };
    assert_eq!(tell(&mut director, "a1", before, Some(before)), [""; 0], "the manifest before");
    assert_eq!(tell(&mut director, "a1", now, None), [""; 0], "older software says nothing");
    assert_eq!(tell(&mut director, "a1", now, Some(before)), [""; 0], "a worker lags behind");
    assert_eq!(tell(&mut director, "a1", now, Some(now)), ["a1"]);
    let told = std::iter::from_fn(|| director.poll())
        .filter(|action| matches!(action, Action::StoreReceipt { .. }))
        .count();
    assert_eq!((told, director.unsigned_count()), (1, 1));
    let mut again = restarted(&director);
    settle(&mut again);
    assert_eq!(signed(&again, 1), ["a1"], "durable");
    assert_eq!(tell(&mut again, "a2", now, Some(now)), ["a1", "a2"], "and it goes on");
    assert!(again.desired().withdrawals[&1].is_complete());
}

#[test]
fn nobody_signs_before_manifests_without_it_are_stored() {
    let mut director = running(&["a1"]);
    put_version(&mut director, "film-1", &[1], 1);
    let before = generations(&director)["a1"];
    director.handle(at(0), Event::Changed(Change::Withdrawn(withdrawal(1, &["film-1"], &["a1"]))));
    let report = Report { generation: before, served: Some(before), ..report(30) };
    director.report(at(0), &id("a1"), &report).unwrap();
    assert_eq!(signed(&director, 1), [""; 0]);
}

#[test]
fn who_follows_a_manifest_that_nobody_here_knows_signs_nothing() {
    let mut director = running(&["a1"]);
    put_version(&mut director, "film-1", &[1], 1);
    withdraw(&mut director, 1, &["film-1"]);
    // As after a restore: what it follows may have the version.
    let ahead = Generation(generations(&director)["a1"].0 + 10);
    let tell = |director: &mut Director, sequence, generation| {
        let report = Report { generation, served: Some(generation), ..report(sequence) };
        director.report(at(0), &id("a1"), &report).unwrap();
        // Another change that needs no plan.
        director.handle(at(0), Event::Changed(Change::CloneGone(id("a1"))));
        director.handle(at(0), Event::Tick(UnixSeconds(1)));
        settle(director);
        signed(director, 1)
    };
    assert_eq!(tell(&mut director, 30, ahead), [""; 0]);
    let next = generations(&director)["a1"];
    assert!(ahead < next, "its next one goes above that");
    assert_eq!(tell(&mut director, 31, ahead), [""; 0], "though newer than the withdrawal's");
    assert_eq!(tell(&mut director, 32, next), ["a1"]);
}

#[test]
fn a_generation_that_cannot_be_is_no_receipt() {
    let mut director = running(&["a1"]);
    put_version(&mut director, "film-1", &[1], 1);
    withdraw(&mut director, 1, &["film-1"]);
    let generation = Generation(u64::MAX);
    let report = Report { generation, served: Some(generation), ..report(30) };
    director.report(at(0), &id("a1"), &report).unwrap();
    assert_eq!(signed(&director, 1), [""; 0]);
}

#[test]
fn nobody_waits_for_an_appliance_that_is_gone_for_good() {
    let mut director = running(&["a1"]);
    put_version(&mut director, "film-1", &[1], 1);
    withdraw(&mut director, 1, &["film-1"]);
    assert_eq!(director.unsigned_count(), 1);
    director.handle(at(0), Event::Changed(Change::ApplianceGone(id("a1"))));
    assert_eq!(director.unsigned_count(), 0);
    assert!(director.desired().withdrawals[&1].is_complete());
}

#[test]
fn the_list_is_bounded_and_complete_ones_go_first() {
    let mut director = running(&["a1"]);
    for number in 1..=4 {
        let name = format!("film-{number}");
        put_version(&mut director, &name, &[1], number);
        let appliances: &[&str] = if number == 2 { &[] } else { &["a1"] };
        let withdrawal = withdrawal(number, &[&name], appliances);
        director.handle(at(0), Event::Changed(Change::Withdrawn(withdrawal)));
    }
    let listed = |director: &Director| -> Vec<u64> {
        director.desired().withdrawals.keys().copied().collect()
    };
    assert_eq!(listed(&director), [1, 3, 4], "nobody is awaited for 2");
    let dropped: Vec<_> = std::iter::from_fn(|| director.poll())
        .filter(|action| matches!(action, Action::ForgetWithdrawals(_)))
        .collect();
    assert_eq!(dropped, [Action::ForgetWithdrawals(vec![2])]);
    put_version(&mut director, "film-5", &[1], 5);
    withdraw(&mut director, 5, &["film-5"]);
    assert_eq!(listed(&director), [3, 4, 5], "the oldest");
}

#[test]
fn a_version_is_shown_in_its_window_alone() {
    let mut director = running(&["a1"]);
    tick(&mut director, 0, 1000);
    let window = Window { from: Some(UnixSeconds(2000)), until: Some(UnixSeconds(3000)) };
    put_shown(&mut director, "film-1", 1, window);
    hold(&mut director, "a1", &[1]);
    let asset: AssetId = "film".parse().unwrap();
    let public = Change::Playbacks(PlaybacksChange::Public(asset.clone()));
    director.handle(at(0), Event::Changed(public));
    let strangers_may = |director: &Director| {
        let none = Err(Refused::Missing);
        director.snapshot().admit(&asset, none, director.now_unix).is_ok()
    };
    assert!(!strangers_may(&director), "though it is public: they do not learn its name");
    assert_eq!(refusal(&director), Some(front::Unplayable::NotShown));
    assert_eq!(manifest(&director, "a1").versions.len(), 1, "it may be held before");
    tick(&mut director, 1000, 2000);
    assert_eq!(played(&director).0, "film-1");
    assert!(strangers_may(&director));
    tick(&mut director, 2000, 2999);
    assert_eq!(ended(&mut director), Vec::<AssetVersionId>::new());
    tick(&mut director, 3000, 3000);
    assert_eq!(refusal(&director), Some(front::Unplayable::NotShown), "at once");
    assert!(!strangers_may(&director), "nor afterwards");
    assert_eq!(ended(&mut director), [version("film-1")]);
    tick(&mut director, 3100, 3000);
    assert_eq!(ended(&mut director), NONE, "said once a second");
    tick(&mut director, 4100, 3001);
    assert_eq!(ended(&mut director), [version("film-1")], "until it is done");
    withdraw(&mut director, 1, &["film-1"]);
    tick(&mut director, 5200, 3002);
    assert_eq!(ended(&mut director), NONE);
    assert_eq!(refusal(&director), Some(front::Unplayable::UnknownAsset));
}

#[test]
fn while_the_next_version_waits_for_its_time_the_one_before_it_is_shown() {
    let mut director = running(&["a1"]);
    tick(&mut director, 0, 1000);
    put_version(&mut director, "film-1", &[1], 1);
    let window = Window { from: Some(UnixSeconds(2000)), until: None };
    put_shown(&mut director, "film-2", 2, window);
    hold(&mut director, "a1", &[1]);
    assert_eq!(played(&director).0, "film-1");
    tick(&mut director, 1000, 2000);
    assert_eq!(played(&director).0, "film-2");
}

/// It was told once, and nothing comes to it any more, not even a tick.
#[test]
fn a_front_without_its_writer_goes_by_the_time_that_it_is() {
    let mut replica = Director::replica(CONFIG, at(0));
    let mut director = running(&["a1"]);
    let window = Window { from: Some(UnixSeconds(1000)), until: Some(UnixSeconds(2000)) };
    put_shown(&mut director, "film-1", 1, window);
    let public = PlaybacksChange::Public("film".parse().unwrap());
    director.handle(at(0), Event::Changed(Change::Playbacks(public)));
    let desired = Box::new(director.desired().clone());
    replica.handle(at(0), Event::Replaced { desired, generation: Generation(7) });
    let snapshot = replica.snapshot();
    let is_open = |now| {
        let asset: AssetId = "film".parse().unwrap();
        snapshot.admit(&asset, Err(Refused::Missing), UnixSeconds(now)).is_ok()
    };
    for (now, open) in [(999, false), (1000, true), (1999, true), (2000, false)] {
        let refused =
            if open { front::Unplayable::NoAppliance } else { front::Unplayable::NotShown };
        assert_eq!(refusal_at(&replica, UnixSeconds(now)), Some(refused), "at {now}");
        assert_eq!(is_open(now), open, "the name of a public title, at {now}");
        let is_withdrawn = snapshot.is_withdrawn(&version("film-1"), UnixSeconds(now));
        assert_eq!(is_withdrawn, !open, "steering, at {now}");
    }
}

#[test]
fn old_versions_go_when_no_token_can_be_good_for_them() {
    let mut director = running(&["a1"]);
    for number in 1..=3 {
        put_version(&mut director, &format!("film-{number}"), &[1], number);
    }
    let gone = |director: &mut Director| {
        let actions = std::iter::from_fn(|| director.poll());
        let removed = actions.filter_map(|action| {
            if let Action::RemoveSuperseded(versions) = action { Some(versions) } else { None }
        });
        removed.flatten().collect::<Vec<_>>()
    };
    let life = CONFIG.tokens_max.as_millis();
    let policy = director.desired().policy;
    director.handle(at(life / 2), Event::Changed(Change::Policy(policy)));
    tick(&mut director, life, 1);
    assert_eq!(gone(&mut director), NONE);
    tick(&mut director, life + 1001, 2);
    assert_eq!(gone(&mut director), [version("film-1")], "two are held");
    director.handle(at(0), Event::Changed(Change::Superseded(vec![version("film-1")])));
    settle(&mut director);
    assert_eq!(director.desired().catalog.version_count(), 2);
    tick(&mut director, 3 * life, 3);
    assert_eq!(gone(&mut director), NONE);
    assert!(
        !director.snapshot().is_withdrawn(&version("film-1"), UnixSeconds(1)),
        "it may come again"
    );
}

#[test]
fn versions_that_are_being_withdrawn_or_removed_are_not_said_again() {
    let mut director = running(&["a1"]);
    for number in 1..=3 {
        put_version(&mut director, &format!("film-{number}"), &[1], number);
    }
    tick(&mut director, 1, 1000);
    let over = Window { from: None, until: Some(UnixSeconds(2000)) };
    put_shown(&mut director, "film-3", 3, over);
    let life = CONFIG.tokens_max.as_millis();
    let lasting = |director: &mut Director| loop {
        match director.poll() {
            Some(Action::WithdrawEnded(_)) => return "withdraw",
            Some(Action::RemoveSuperseded(_)) => return "remove",
            Some(_) => {}
            None => return "",
        }
    };
    tick(&mut director, life + 2000, 2000);
    tick(&mut director, life + 4000, 2002);
    assert_eq!(lasting(&mut director), "withdraw");
    tick(&mut director, life + 6000, 2004);
    assert_eq!(lasting(&mut director), "remove", "neither waits twice");
    tick(&mut director, life + 8000, 2006);
    assert_eq!(lasting(&mut director), "withdraw", "that has failed");
    tick(&mut director, life + 9500, 2008);
    assert_eq!(lasting(&mut director), "remove");
    assert_eq!(lasting(&mut director), "");
}

/// Receipts of withdrawals and versions with windows that were looked at meanwhile.
fn cost(director: &mut Director, change: Change) -> u64 {
    let before = director.takedown.looked_at;
    director.handle(at(0), Event::Changed(change));
    settle(director);
    let cost = director.takedown.looked_at - before;
    let (unsigned, withdrawn) =
        (director.takedown.unsigned.clone(), Arc::clone(&director.takedown.withdrawn));
    director.look_at_withdrawals();
    assert_eq!(director.takedown.unsigned, unsigned, "as if all had been looked at");
    assert_eq!(director.takedown.withdrawn, withdrawn);
    cost
}

#[test]
fn a_change_of_what_is_withdrawn_looks_at_nothing_but_itself() {
    let names: Vec<String> = (10..60).map(|n| format!("a{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut director = running(&names);
    for number in 1..=4 {
        put_version(&mut director, &format!("film-{number}"), &[1], number);
    }
    let mut withdraw = |number: u64| {
        let withdrawn = withdrawal(number, &[&format!("film-{number}")], &names);
        cost(&mut director, Change::Withdrawn(withdrawn))
    };
    assert_eq!([1, 2, 3].map(&mut withdraw), [101; 3], "its receipts twice, and its version");
    assert_eq!(withdraw(4), 151, "and at the one that is not listed any more");
    assert_eq!(cost(&mut director, Change::ApplianceGone(id("a10"))), 0);
    assert_eq!(director.unsigned_count(), 49 * 3);
    let complete = withdrawal(5, &["film-5"], &[]);
    assert_eq!(cost(&mut director, Change::Withdrawn(complete)), 1, "nobody has to sign");
    assert_eq!(director.desired().withdrawals.keys().copied().collect::<Vec<_>>(), [2, 3, 4]);
}

#[test]
fn a_version_that_comes_looks_at_no_window_but_its_own() {
    let mut director = running(&["a1"]);
    for number in 1..=20 {
        put_version(&mut director, &format!("film-{number}"), &[1], number);
        let known = director.desired().catalog.version(&version(&format!("film-{number}")));
        let until = Some(UnixSeconds(1000 + number));
        let shown = Version::clone(known.unwrap()).shown(Window { from: None, until });
        assert_eq!(cost(&mut director, Change::Version(Arc::new(shown))), 1, "{number}");
    }
    tick(&mut director, 1000, 1005);
    let ended = ended(&mut director);
    assert_eq!(ended, [1, 2, 3, 4, 5].map(|n| version(&format!("film-{n}"))));
}

fn withdraw(director: &mut Director, number: u64, versions: &[&str]) {
    let names: Vec<String> = director.desired().appliances.keys().map(|a| a.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let withdrawal = withdrawal(number, versions, &names);
    director.handle(at(0), Event::Changed(Change::Withdrawn(withdrawal)));
    settle(director);
}

pub(crate) fn withdrawal(number: u64, versions: &[&str], appliances: &[&str]) -> Withdrawal {
    let asset: AssetId = "film".parse().unwrap();
    Withdrawal {
        id: number,
        at: UnixSeconds(1),
        reason: Reason::Operator,
        versions: Arc::new(versions.iter().map(|name| (version(name), asset.clone())).collect()),
        receipts: appliances.iter().map(|name| (id(name), None)).collect(),
    }
}

fn signed(director: &Director, number: u64) -> Vec<String> {
    let receipts = &director.desired().withdrawals[&number].receipts;
    let signed = receipts.iter().filter(|(_, receipt)| receipt.is_some());
    signed.map(|(id, _)| id.to_string()).collect()
}

fn put_shown(director: &mut Director, name: &str, sequence: u64, window: Window) {
    put_version(director, name, &[1], sequence);
    let known = director.desired().catalog.version(&version(name)).unwrap();
    let shown = Version::clone(known).shown(window);
    director.handle(at(0), Event::Changed(Change::Version(Arc::new(shown))));
    settle(director);
}

fn ended(director: &mut Director) -> Vec<AssetVersionId> {
    let actions = std::iter::from_fn(|| director.poll());
    let ended = actions.filter_map(|action| {
        if let Action::WithdrawEnded(versions) = action { Some(versions) } else { None }
    });
    ended.flatten().collect()
}

fn tick(director: &mut Director, ms: u64, unix: u64) {
    director.handle(at(ms), Event::Tick(UnixSeconds(unix)));
}

fn version(name: &str) -> AssetVersionId {
    name.parse().unwrap()
}
