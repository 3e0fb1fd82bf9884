//! Two writers on one database: one leads, the other stands by. SQLite has one writer; `./x check
//! postgres` has two.

use std::fs;

use crate::control::Running;

/// A writer on the same database as `first`, not started, with a folder of its own.
fn beside(first: &Running) -> Running {
    let second = Running::prepare("");
    let text = fs::read_to_string(first.file()).unwrap();
    let [ours, theirs] = [first, &second].map(|of| of.state().display().to_string());
    let of = |folder: &str| format!("folder = {folder:?}");
    fs::write(second.file(), text.replace(&of(&ours), &of(&theirs))).unwrap();
    second
}

#[test]
fn a_standby_takes_over_with_the_same_secrets_and_needs_one_file_for_it() {
    if std::env::var("NEARCAST_POSTGRES").is_err() {
        return;
    }
    let mut first = Running::start("");
    first.register(&["a1"]);
    let mut second = beside(&first);
    let refused = control::config::Config::load(&second.file(), std::iter::empty()).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let refused = runtime.block_on(control::state::writer::Control::open(refused)).err().unwrap();
    assert!(refused.to_string().contains("copy that file"), "{refused}");

    let key = |of: &Running| of.state().join("database-key.toml");
    fs::copy(key(&first), key(&second)).unwrap();
    // Rotated after the copy: the standby has it of the database.
    assert_eq!(first.post("/v1/keys/rotate", &()).status, 202);
    let keys = first.json("/v1/keys");
    first.end();
    second.go();
    assert_eq!(second.json("/v1/keys"), keys);
    let metrics = second.get("/metrics").text();
    assert!(metrics.contains("nearcast_control_leads 1"), "{metrics}");
    assert!(metrics.contains("nearcast_control_lease_epoch 2"), "{metrics}");
    assert_eq!(second.json("/v1/appliances")[0]["id"], "a1");
    for file in ["authority.toml", "signing.toml", "keys.toml"] {
        let read = |of: &Running| fs::read_to_string(of.state().join(file)).unwrap();
        assert_eq!(read(&first), read(&second), "{file}");
    }
}
