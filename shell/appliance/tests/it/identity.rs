//! Who this appliance is, and whom it believes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use appliance::membership::member;
use appliance::process::config::Text;
use identity::code::Code;
use identity::member::Member;
use identity::signing::SigningKey;
use model::id::Generation;
use model::manifest::{Manifest, Trust};

use crate::fleet::{self, Fleet, ours};
use crate::http::{Request, Server, answer};
use crate::origin::Origin;
use crate::rig::{Rig, TestControl, TestFile, sign, version, wait};

fn manifest(generation: u64, keys: &[&SigningKey]) -> Manifest {
    let signing_keys = keys.iter().map(|key| key.public()).collect();
    Manifest {
        appliance: "a1".parse().unwrap(),
        generation: Generation(generation),
        token_keys: Vec::new(),
        trust: Trust { signing_keys, ..Trust::default() },
        numbers: std::collections::BTreeMap::new(),
        siblings: std::collections::BTreeMap::new(),
        site: Vec::new(),
        versions: Vec::new(),
    }
}

/// Control offers this envelope as generation 5: it is refused, and the report says why.
fn refused(envelope: Vec<u8>, wanted: &str) {
    let (control, c) = TestControl::start("127.0.0.1:0");
    control.publish(5, vec![], &[]);
    *control.envelope.lock().unwrap() = Some(envelope);
    let mut rig = Rig::new(1, Some(c.address));
    let handle = rig.start();
    wait("the report of it", || {
        let errors = control.last_report().unwrap_or_default().errors;
        errors.iter().any(|e| e.room == "control" && e.text.contains(wanted))
    });
    assert_eq!(handle.fill().generation.0, 0);
    assert!(!rig.config.state.join("manifest.signed").exists());
}

#[test]
fn a_manifest_that_is_not_signed_is_refused() {
    let wire = wire::convert::manifest_out(&manifest(5, &[]));
    refused(serde_json::to_vec(&wire).unwrap(), "it is not signed");
}

#[test]
fn a_manifest_that_was_changed_on_the_way_is_refused() {
    let good = sign(&ours().signer, &manifest(5, &[]));
    let text = String::from_utf8(good).unwrap().replace("\"generation\":5", "\"generation\":6");
    refused(text.into_bytes(), "was changed after control signed it");
}

#[test]
fn a_manifest_that_a_stranger_signed_is_refused() {
    refused(sign(&Fleet::new().signer, &manifest(5, &[])), "signature does not fit");
    let (_, unknown) = SigningKey::generate("s9");
    refused(sign(&unknown, &manifest(5, &[])), "key \"s9\", which is not known here");
}

#[test]
fn an_old_manifest_that_is_shown_again_is_refused() {
    let (control, c) = TestControl::start("127.0.0.1:0");
    control.publish(7, vec![], &[]);
    let mut rig = Rig::new(1, Some(c.address));
    let handle = rig.start();
    wait("the manifest", || handle.fill().generation.0 == 7);
    for replayed in [6, 7] {
        *control.envelope.lock().unwrap() = Some(sign(&ours().signer, &manifest(replayed, &[])));
        control.publish(8, vec![], &[]);
        let wanted = format!("it has generation {replayed}, and 7 is in force");
        wait("the report of it", || {
            let errors = control.last_report().unwrap_or_default().errors;
            errors.iter().any(|e| e.text.contains(&wanted))
        });
    }
    assert_eq!(handle.fill().generation.0, 7);
}

#[test]
fn signing_keys_change_with_manifests_and_are_remembered() {
    let (control, c) = TestControl::start("127.0.0.1:0");
    let (_, next) = SigningKey::generate("s2");
    let mut rig = Rig::new(1, Some(c.address));
    let mut handle = rig.start();
    let offer = |generation, envelope: Vec<u8>| {
        *control.envelope.lock().unwrap() = Some(envelope);
        control.publish(generation, vec![], &[]);
    };
    offer(1, sign(&ours().signer, &manifest(1, &[&ours().signer, &next])));
    wait("the first", || handle.fill().generation.0 == 1);
    offer(2, sign(&next, &manifest(2, &[&next])));
    wait("the second", || handle.fill().generation.0 == 2);
    offer(3, sign(&ours().signer, &manifest(3, &[&ours().signer])));
    wait("the report of it", || {
        let errors = control.last_report().unwrap_or_default().errors;
        errors.iter().any(|e| e.text.contains("key \"s1\", which is not known here"))
    });
    handle.stop();
    drop(c);
    rig.config.credentials = member::load(&rig.config.state, &rig.config.appliance).unwrap();
    let handle = rig.start();
    assert_eq!(handle.fill().generation.0, 2, "with control away, by the key that it named");
}

#[test]
fn a_manifest_that_was_changed_on_the_drive_is_not_in_force_after_a_restart() {
    let files = [TestFile::new("a.mp4", 300_000)];
    let (origin, o) = Origin::start();
    origin.put("a.mp4", files[0].bytes.clone());
    let (control, c) = TestControl::start("127.0.0.1:0");
    control.publish(1, vec![version("film-1", &[o.address], &files)], &files);
    let mut rig = Rig::new(1, Some(c.address));
    let mut handle = rig.start();
    rig.wait_for(&files);
    handle.stop();
    drop(c);
    let path = rig.config.state.join("manifest.signed");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("film-1", "film-2")).unwrap();
    let mut handle = rig.start();
    assert!(rig.told.manifest.lock().unwrap().is_none());
    handle.stop();
    let c = control.serve("127.0.0.1:0");
    rig.config.control.as_mut().unwrap().url =
        Text(format!("https://{}", c.address).parse().unwrap());
    let handle = rig.start();
    wait("the true one from control", || handle.fill().generation.0 == 1);
    let errors = control.last_report().unwrap().errors;
    assert!(errors.iter().any(|e| e.text.contains("was changed after control signed it")));
    rig.wait_for(&files);
}

#[test]
fn an_identity_that_ends_soon_is_renewed_and_kept() {
    let (control, c) = TestControl::start("127.0.0.1:0");
    let mut rig = Rig::new(1, Some(c.address));
    rig.config.credentials = ours().lasting(&Member::appliance("a1"), 60);
    let key = rig.config.credentials.seen().key.clone();
    let handle = rig.start();
    wait("the renewal", || 80_000 < handle.identity_seconds_left());
    let kept = member::load(&rig.config.state, &rig.config.appliance).unwrap();
    assert_eq!(kept.seen().key, key, "the key stays");
    assert!(fleet::now().0 + 80_000 < kept.seen().not_after.0);
    let seen = control.reports.lock().unwrap().len();
    wait("reports with it", || seen + 2 < control.reports.lock().unwrap().len());
    assert_eq!(control.renewed.load(Ordering::SeqCst), 1);
    // One connection before, one to renew, one after; more would be a connection per report.
    assert!(c.connections.load(Ordering::SeqCst) <= 4);
}

#[test]
fn without_a_good_identity_it_serves_and_says_what_to_do_and_a_new_one_is_taken_up() {
    let files = [TestFile::new("a.mp4", 5)];
    let (origin, o) = Origin::start();
    origin.put("a.mp4", files[0].bytes.clone());
    let (control, c) = TestControl::start("127.0.0.1:0");
    control.publish(1, vec![version("film-1", &[o.address], &files)], &files);
    let mut rig = Rig::new(1, Some(c.address));
    let mut handle = rig.start();
    rig.wait_for(&files);
    handle.stop();
    let before = control.reports.lock().unwrap().len();
    rig.config.credentials = ours().ended(&Member::appliance("a1"));
    let handle = rig.start();
    rig.wait_for(&files);
    assert_eq!(handle.identity_seconds_left(), 0);
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert_eq!(control.reports.lock().unwrap().len(), before, "control lets nobody in without");
    ours().credentials(&Member::appliance("a1")).save(&rig.config.state).unwrap();
    wait("reports again", || before < control.reports.lock().unwrap().len());
    let errors = control.last_report().unwrap().errors;
    assert!(errors.iter().any(|e| e.text.contains("run the `enrol` verb")), "{errors:?}");
}

#[test]
fn nothing_is_said_to_who_is_not_control_of_this_fleet() {
    for (fleet, member) in [(&Fleet::new(), Member::control()), (ours(), Member::appliance("a2"))] {
        let control = Arc::new(TestControl::default());
        let heard = Arc::clone(&control);
        let c = fleet.serve(
            "127.0.0.1:0",
            &member,
            Arc::new(move |r: &Request, out: &mut dyn std::io::Write| heard.answer(r, out)),
        );
        let mut rig = Rig::new(1, Some(c.address));
        let _handle = rig.start();
        wait("two tries", || 2 <= c.connections.load(Ordering::SeqCst));
        assert_eq!(control.last_report(), None, "{member}");
    }
}

#[test]
fn fronts_get_reports_of_their_own_and_their_manifests_are_never_asked_for() {
    let files = [TestFile::new("a.mp4", 300_000)];
    let (origin, o) = Origin::start();
    origin.put("a.mp4", files[0].bytes.clone());
    let (control, c) = TestControl::start("127.0.0.1:0");
    let front = Arc::new(TestControl::default());
    let f = front.serve_as("127.0.0.1:0", &Member::front("f1"));
    front.publish(99, vec![], &[]);
    let mut rig = Rig::new(1, Some(c.address));
    rig.config.control.as_mut().unwrap().fronts = vec![
        appliance::process::storage::Front {
            name: "f1".to_owned(),
            url: Text(format!("https://{}", f.address).parse().unwrap()),
        },
        appliance::process::storage::Front {
            name: "gone".to_owned(),
            url: Text("https://127.0.0.1:1".parse().unwrap()),
        },
    ];
    let handle = rig.start();
    wait("reports at both", || control.last_report().is_some() && front.last_report().is_some());
    control.publish(1, vec![version("film-1", &[o.address], &files)], &files);
    rig.wait_for(&files);
    for control in [&control, &front] {
        wait("the inventory", || {
            let reports = control.reports.lock().unwrap();
            reports.iter().any(|report| report.inventory.held == [files[0].id().to_string()])
        });
        let reports = control.reports.lock().unwrap();
        let numbers = reports.iter().map(|report| report.sequence);
        assert!(numbers.eq(1..=u64::try_from(reports.len()).unwrap()), "each its own");
    }
    assert_eq!(handle.fill().generation.0, 1);
}

/// Control's address for those who have no certificate yet, and how often it was asked for more
/// than who it is.
fn enrolling(fleet: &'static Fleet, code: &Code) -> (Server, Arc<AtomicU64>) {
    let secret = code.secret();
    let told = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&told);
    let handler = move |r: &Request, out: &mut dyn std::io::Write| {
        let target = (r.method.as_str(), r.target.as_str());
        if target != ("GET", "/v1/authority") || !r.body.is_empty() {
            count.fetch_add(1, Ordering::SeqCst);
        }
        match target {
            ("GET", "/v1/authority") => answer(out, 200, fleet.authority_pem().as_bytes()),
            ("POST", "/v1/enrol") => {
                let ask: wire::v1::identity::Enrol = serde_json::from_slice(&r.body).unwrap();
                if ask.secret != secret {
                    return answer(out, 403, b"{\"detail\":\"this code was used before\"}");
                }
                let member = Member { kind: ask.kind, name: ask.name };
                let given = fleet.enrolled(&member, &ask.request, fleet::now(), 86_400);
                answer(out, 200, &serde_json::to_vec(&given).unwrap())
            }
            _ => answer(out, 404, b"{}"),
        }
    };
    (fleet.serve_strangers(Arc::new(handler)), told)
}

#[test]
fn a_code_is_not_shown_to_control_of_another_fleet() {
    // The secret is good there, and would be taken.
    let foreign = Fleet::new().code(1);
    let (server, told) = enrolling(ours(), &foreign);
    let address = format!("https://{}", server.address).parse().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let name = "a1".parse().unwrap();
    let error = member::enrol(dir.path(), &name, &address, &foreign).unwrap_err().to_string();
    assert!(error.contains("another fleet's control"), "{error}");
    assert_eq!(told.load(Ordering::SeqCst), 0, "it was told something before the code fitted");
    assert!(member::load(dir.path(), &name).is_err());
    assert!(member::enrol(dir.path(), &name, &address, &ours().code(1)).is_ok());
    assert_eq!(told.load(Ordering::SeqCst), 1, "what is counted is the code");
}

#[test]
fn a_code_becomes_an_identity_that_is_kept() {
    let code = ours().code(1);
    let (server, _) = enrolling(ours(), &code);
    let address = format!("https://{}", server.address).parse().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (state, name) = (dir.path().join("new/state"), "a1".parse().unwrap());
    let enrol = |code: &Code| {
        let enrolled = member::enrol(&state, &name, &address, code);
        enrolled.map_err(|error| error.to_string())
    };
    let text = enrol(&ours().code(2)).unwrap_err();
    assert!(text.contains("403") && text.contains("used before"), "{text}");
    assert!(member::load(&state, &name).is_err());
    let enrolled = enrol(&code).unwrap();
    assert_eq!(member::load(&state, &name).unwrap().seen(), enrolled.seen());
}
