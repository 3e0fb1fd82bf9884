//! The trust document, and manifests of those who do not read it.

use super::*;
use desired::Change;
use model::manifest::TrustDocument;

fn key(kid: &str) -> TokenKey {
    TokenKey { kid: kid.to_owned(), public_key: [8; 32] }
}

fn revoked(serials: &[&str]) -> Change {
    Change::Revoked(serials.iter().map(|serial| (*serial).to_owned()).collect())
}

fn change(director: &mut Director, change: Change) {
    director.handle(at(0), Event::Changed(change));
    settle(director);
}

fn trust(director: &Director) -> TrustDocument {
    TrustDocument::clone(director.trust().expect("it was stored"))
}

fn tell(director: &mut Director, ms: u64, name: &str, sequence: u64, trust: Option<Generation>) {
    let generation = manifest(director, name).generation;
    let report = Report { generation, trust, ..report(sequence) };
    director.report(at(ms), &id(name), &report).unwrap();
    settle(director);
}

/// Appliances that read trust documents.
fn modern(names: &[&str]) -> Director {
    let mut director = fleet(names);
    settle(&mut director);
    let newest = trust(&director).trust.generation;
    names.iter().for_each(|name| tell(&mut director, 0, name, 1, Some(newest)));
    director
}

#[test]
fn a_key_makes_a_trust_document_and_neither_a_manifest_nor_a_plan() {
    let mut director = modern(&["a1", "b1"]);
    let (before, first) = (generations(&director), trust(&director));
    assert_eq!(first.token_keys.len(), 1);
    assert!(manifest(&director, "a1").trust.is_apart);
    assert_eq!(manifest(&director, "a1").token_keys, []);
    director.handle(at(0), Event::Changed(revoked(&["0a"])));
    let actions: Vec<_> = std::iter::from_fn(|| director.poll()).collect();
    assert!(matches!(actions[..], [Action::StoreTrust(_)]), "{actions:?}");
    let Some(Action::StoreTrust(entry)) = actions.into_iter().next() else { unreachable!() };
    assert_eq!(trust(&director), first, "it is not durable");
    assert_eq!(director.reply(&id("a1")).unwrap().trust, first.trust.generation);
    director.handle(at(0), Event::TrustStored(entry.generation));
    let second = trust(&director);
    assert!(second.trust.revoked.contains("0a"));
    assert!(first.trust.generation < second.trust.generation);
    assert_eq!(director.reply(&id("a1")).unwrap().trust, second.trust.generation);
    assert_eq!(generations(&director), before);
}

#[test]
fn what_is_desired_again_while_another_waits_to_be_stored_has_a_generation_of_its_own() {
    let mut director = modern(&["a1"]);
    let first = trust(&director).trust.generation;
    let mut stage = |change| {
        director.handle(at(0), Event::Changed(change));
        let actions: Vec<_> = std::iter::from_fn(|| director.poll()).collect();
        let [Action::StoreTrust(entry)] = actions[..] else { panic!("{actions:?}") };
        entry.generation
    };
    // The second may be durable when the third comes.
    let (second, third) = (stage(revoked(&["0a"])), stage(revoked(&[])));
    assert!(first < second && second < third);
    director.handle(at(0), Event::TrustStored(second));
    assert_eq!(trust(&director).trust.generation, first, "it is not what is wanted any more");
    director.handle(at(0), Event::TrustStored(third));
    assert_eq!(trust(&director).trust.generation, third);
}

#[test]
fn a_trust_document_that_is_not_stored_is_said_again() {
    let mut director = modern(&["a1"]);
    director.handle(at(0), Event::Changed(revoked(&["0a"])));
    let said = |director: &mut Director, ms| {
        director.handle(at(ms), Event::Tick(UnixSeconds(1)));
        let all = std::iter::from_fn(|| director.poll());
        all.filter(|action| matches!(action, Action::StoreTrust(_))).count()
    };
    assert_eq!(said(&mut director, 100), 1);
    assert_eq!(said(&mut director, 900), 0, "a moment ago");
    assert_eq!(said(&mut director, 1100), 1);
    director.handle(at(1100), Event::TrustStored(Generation(1)));
    assert_eq!(said(&mut director, 3000), 1, "another was stored");
}

#[test]
fn only_who_reads_no_trust_document_has_keys_in_its_manifest() {
    let mut director = modern(&["a1", "b1"]);
    let before = generations(&director);
    tell(&mut director, 0, "b1", 2, None);
    let after = generations(&director);
    assert_eq!(before["a1"], after["a1"]);
    assert!(before["b1"] < after["b1"], "it has gone back to the release before");
    let old = manifest(&director, "b1");
    assert_eq!((&old.token_keys, old.trust.is_apart), (&trust(&director).token_keys, false));
    change(&mut director, revoked(&["0a"]));
    let last = generations(&director);
    assert_eq!(before["a1"], last["a1"]);
    assert!(after["b1"] < last["b1"] && manifest(&director, "b1").trust.revoked.contains("0a"));
    // It reads them again: with the next key nothing is made for it.
    let newest = trust(&director).trust.generation;
    tell(&mut director, 0, "b1", 3, Some(newest));
    change(&mut director, revoked(&["0b"]));
    let apart = generations(&director);
    assert!(last["b1"] < apart["b1"] && manifest(&director, "b1").trust.is_apart);
    change(&mut director, revoked(&["0c"]));
    assert_eq!(generations(&director), apart);
}

#[test]
fn a_restart_makes_neither_manifests_nor_a_trust_document_anew() {
    for reads in [true, false] {
        let mut director = modern(&["a1"]);
        let newest = trust(&director).trust.generation;
        tell(&mut director, 0, "a1", 2, Some(newest).filter(|_| reads));
        let before = (generations(&director), trust(&director));
        let mut again = restarted(&director);
        settle(&mut again);
        assert_eq!((generations(&again), trust(&again)), before);
        tell(&mut again, 0, "a1", 2, Some(newest).filter(|_| reads));
        assert_eq!((generations(&again), trust(&again)), before);
    }
}

#[test]
fn manifests_are_signed_anew_when_the_key_that_signed_them_goes() {
    let mut director = modern(&["a1"]);
    change(&mut director, Change::SigningKeys(vec![key("s1")]));
    let before = generations(&director);
    change(&mut director, Change::SigningKeys(vec![key("s1"), key("s2")]));
    assert_eq!(generations(&director), before, "the next is announced");
    assert_eq!(trust(&director).trust.signing_keys, [key("s1"), key("s2")]);
    change(&mut director, Change::SigningKeys(vec![key("s2")]));
    assert!(before["a1"] < generations(&director)["a1"]);
}

#[test]
fn a_new_key_signs_once_all_have_the_trust_document_that_names_it() {
    let mut director = modern(&["a1", "b1"]);
    change(&mut director, Change::SigningKeys(vec![key("s1"), key("s2")]));
    let newest = trust(&director).trust.generation;
    let mut is_told = |name, sequence, followed| {
        let report = Report { trust: Some(followed), ..report(sequence) };
        director.report(at(1000), &id(name), &report).unwrap();
        director.handle(at(1100), Event::Tick(UnixSeconds(1)));
        std::iter::from_fn(|| director.poll()).any(|action| action == Action::UseNextSigningKey)
    };
    assert!(!is_told("a1", 2, newest));
    assert!(!is_told("b1", 2, Generation(newest.0 - 1)));
    assert!(!is_told("b1", 3, Generation(u64::MAX)), "nobody knows what it follows");
    assert!(is_told("b1", 4, newest), "whatever manifest they follow");
}

#[test]
fn who_is_ahead_of_a_restored_backup_gets_a_trust_document_above_its_own() {
    let mut director = modern(&["a1", "b1"]);
    let ahead = Generation(trust(&director).trust.generation.0 + 40);
    tell(&mut director, 0, "a1", 2, Some(ahead));
    let newest = trust(&director);
    assert!(ahead < newest.trust.generation && !newest.trust.is_apart);
    let notice = director.notices().last().expect("an operator looks whether it lies");
    assert_eq!((&notice.appliance, &notice.cause), (&id("a1"), &Cause::AheadOfTrust(ahead)));
    let further = Generation(newest.trust.generation.0 + 1);
    tell(&mut director, 1, "b1", 2, Some(further));
    assert_eq!(trust(&director), newest, "not over and over");
    tell(&mut director, 90_000, "a1", 3, Some(further));
    assert_eq!(trust(&director), newest, "one appliance is believed once in an hour");
    tell(&mut director, 90_000, "b1", 3, Some(further));
    assert!(further < trust(&director).trust.generation);
    let further = Generation(further.0 + 9);
    tell(&mut director, 3_600_000, "a1", 4, Some(further));
    assert!(further < trust(&director).trust.generation);
}

#[test]
fn appliances_that_lie_cannot_make_generations_of_trust_documents_climb_without_end() {
    let mut director = modern(&["a1", "b1", "c1"]);
    let first = trust(&director);
    tell(&mut director, 0, "a1", 2, Some(Generation(u64::MAX)));
    assert_eq!(trust(&director), first, "nobody can use up all numbers");
    let most = Generation(following::OVERTAKEN_MAX);
    tell(&mut director, 0, "b1", 2, Some(most));
    let last = trust(&director);
    assert!(most < last.trust.generation);
    tell(&mut director, 90_000, "c1", 2, Some(last.trust.generation.next()));
    assert_eq!(trust(&director), last, "control's clock bounds it, and not what was said before");
}

#[test]
fn a_cloned_appliance_that_reads_no_trust_document_has_keys_after_a_restart_of_control() {
    let mut director = modern(&["a1"]);
    tell(&mut director, 0, "a1", 2, None);
    let mut desired = director.desired().clone();
    desired.registered_mut(&id("a1")).expect("it is registered").cloned = true;
    let mut again = Director::new(CONFIG, desired, ledger(&director), at(0), UnixSeconds(0));
    settle(&mut again);
    change(&mut again, revoked(&["0a"]));
    tell(&mut again, 0, "a1", 3, None);
    assert!(manifest(&again, "a1").trust.revoked.contains("0a"));
    change(&mut again, revoked(&["0a", "0b"]));
    let before = manifest(&again, "a1");
    assert!(before.trust.revoked.contains("0b"));
    // The other machine reads them, and both have one manifest.
    let newest = trust(&again).trust.generation;
    tell(&mut again, 0, "a1", 4, Some(newest));
    change(&mut again, revoked(&["0c"]));
    assert!(manifest(&again, "a1").trust.revoked.contains("0c"));
}
