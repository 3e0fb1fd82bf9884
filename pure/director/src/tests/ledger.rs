use super::*;

#[test]
fn a_new_appliance_gets_a_manifest_only_after_its_generation_is_durable() {
    let mut director = fleet(&["a1"]);
    assert_eq!(director.manifest(&id("a1")), Ok(None));
    let ledger = store(&mut director).expect("a first manifest is to be stored");
    assert_eq!(director.manifest(&id("a1")), Ok(None));
    director.handle(at(0), Event::Stored(ledger.generation));
    assert_eq!(manifest(&director, "a1").generation, Generation(1));
    assert_eq!(director.manifest(&id("zz")), Err(NotRegistered));
}

#[test]
fn a_ledger_that_is_not_stored_is_said_again() {
    let mut director = fleet(&["a1"]);
    let ledger = store(&mut director).unwrap();
    director.handle(at(900), Event::Tick(UnixSeconds(1)));
    assert_eq!(store(&mut director), None);
    director.handle(at(1100), Event::Tick(UnixSeconds(1)));
    assert_eq!(store(&mut director), Some(ledger));
}

#[test]
fn a_ledger_that_is_being_stored_is_not_said_again() {
    let mut director = fleet(&["a1"]);
    while let Some(action) = director.poll() {
        director.handle(at(0), action.at_once().expect("a plan is asked for"));
        if director.actions.iter().any(|action| matches!(action, Action::Store(_))) {
            break;
        }
    }
    director.handle(at(1100), Event::Tick(UnixSeconds(1)));
    director.handle(at(2200), Event::Tick(UnixSeconds(1)));
    let ledger = store(&mut director);
    assert!(ledger.is_some(), "it waited to be polled");
    director.handle(at(3300), Event::Tick(UnixSeconds(1)));
    director.handle(at(9900), Event::Tick(UnixSeconds(1)));
    assert_eq!(store(&mut director), None, "and then it was being stored");
    director.handle(at(10_000), Event::Tick(UnixSeconds(1)));
    assert_eq!(store(&mut director), None, "a second passes");
    director.handle(at(11_000), Event::Tick(UnixSeconds(1)));
    assert_eq!(store(&mut director), ledger);
}

#[test]
fn a_restart_with_the_same_desired_state_keeps_every_generation() {
    let mut director = running(&["a1", "a2", "b1"]);
    put_version(&mut director, "film-1", &[1, 2], 1);
    let before = generations(&director);
    let mut again = restarted(&director);
    assert_eq!(store(&mut again), None, "nothing new to store");
    assert_eq!(generations(&again), before);
    assert_eq!(manifest(&again, "a1"), manifest(&director, "a1"));
}

#[test]
fn a_restart_with_other_desired_state_uses_a_generation_never_used_before() {
    let mut director = running(&["a1"]);
    put_version(&mut director, "film-1", &[1, 2], 1);
    let ledger = ledger(&director);
    let mut desired = director.desired().clone();
    desired.token_keys = vec![TokenKey { kid: "k2".to_owned(), public_key: [9; 32] }];
    let mut again = Director::new(CONFIG, desired, ledger.clone(), at(0), UnixSeconds(0));
    assert_eq!(again.manifest(&id("a1")), Ok(None));
    settle(&mut again);
    assert!(ledger.generation < manifest(&again, "a1").generation);
}
