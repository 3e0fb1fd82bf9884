//! The trust document: keys and revoked certificates apart from manifests.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use appliance::membership::member;
use appliance::process::storage::StorageHandle;
use identity::signing::SigningKey;
use model::id::Generation;
use model::manifest::{Manifest, TokenKey, Trust, TrustDocument};
use model::units::UnixSeconds;
use wire::v1::signed::Kind;

use crate::fleet;
use crate::http::Server;
use crate::rig::{Rig, TestControl, wait};

struct World {
    control: Arc<TestControl>,
    server: Option<Server>,
    rig: Rig,
}

impl World {
    fn new() -> Self {
        let (control, server) = TestControl::start("127.0.0.1:0");
        let rig = Rig::new(1, Some(server.address));
        Self { control, server: Some(server), rig }
    }

    /// One that follows the first manifest and the first document.
    fn begun() -> (Self, StorageHandle) {
        let mut w = Self::new();
        w.trust(1, "k1");
        w.publish(1);
        let handle = w.rig.start();
        w.wait(1, 1, "k1");
        (w, handle)
    }

    fn publish(&self, generation: u64) {
        self.control.publish(generation, Vec::new(), &[]);
    }

    /// A document with a key for tokens, signed by the fleet's first key, which goes on signing.
    fn trust(&self, generation: u64, token_key: &str) {
        self.trust_by(generation, token_key, first(), &[first()]);
    }

    fn trust_by(&self, generation: u64, token_key: &str, by: &SigningKey, next: &[&SigningKey]) {
        let trust = Trust {
            generation: Generation(generation),
            issued: UnixSeconds(1000 + generation),
            signing_keys: next.iter().map(|key| key.public()).collect(),
            ..Trust::default()
        };
        let document = TrustDocument { token_keys: vec![key(token_key)], trust };
        let payload = serde_json::to_vec(&wire::convert::trust_out(&document)).unwrap();
        let envelope = by.sign(Kind::Trust, &payload);
        *self.control.trust.lock().unwrap() = Some((document, envelope));
    }

    /// Two documents, each with another key that signs, and no place to keep the keys: where they
    /// are kept, and the last of them.
    fn lack_keys(&self) -> (PathBuf, SigningKey) {
        let ((_, second), (_, third)) = (SigningKey::generate("s2"), SigningKey::generate("s3"));
        let blocked = self.rig.config.state.join("identity.new");
        std::fs::create_dir(&blocked).unwrap();
        self.trust_by(2, "k2", first(), &[&second]);
        self.wait(1, 2, "k2");
        self.trust_by(3, "k3", &second, &[&third]);
        self.wait(1, 3, "k3");
        wait("the report of it", || self.has_said("A restart forgets this trust document"));
        (blocked, third)
    }

    /// With the keys that were kept, and without control.
    fn restart_alone(&mut self) -> StorageHandle {
        self.server = None;
        self.forget();
        let config = &mut self.rig.config;
        config.credentials = member::load(&config.state, &config.appliance).unwrap();
        self.rig.start()
    }

    fn in_force(&self) -> Option<Arc<Manifest>> {
        self.rig.told.manifest.lock().unwrap().clone()
    }

    /// Generations of the manifest and of the trust document in force, and the key for tokens.
    fn has(&self) -> (u64, u64, String) {
        let Some(manifest) = self.in_force() else { return (0, 0, String::new()) };
        let key = manifest.token_keys.first().map(|key| key.kid.clone());
        (manifest.generation.0, manifest.trust.generation.0, key.unwrap_or_default())
    }

    fn wait(&self, manifest: u64, trust: u64, key: &str) {
        let wanted = (manifest, trust, key.to_owned());
        wait(&format!("{wanted:?}"), || self.has() == wanted);
    }

    fn has_said(&self, text: &str) -> bool {
        let errors = self.control.last_report().unwrap_or_default().errors;
        errors.iter().any(|error| error.text.contains(text))
    }

    fn says_that_it_follows(&self, trust: u64) -> bool {
        self.control.last_report().unwrap_or_default().trust == Some(trust)
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.rig.config.state.join(name)).unwrap()
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.rig.config.state.join(name), bytes).unwrap();
    }

    /// Nothing is in force from before.
    fn forget(&mut self) {
        self.rig.told = Arc::default();
    }
}

fn first() -> &'static SigningKey {
    &fleet::ours().signer
}

fn key(kid: &str) -> TokenKey {
    TokenKey { kid: kid.to_owned(), public_key: [7; 32] }
}

#[test]
fn a_key_comes_without_a_manifest_and_is_there_after_a_restart_with_control_away() {
    let (mut w, mut handle) = World::begun();
    let asked = w.control.manifests_asked.load(Ordering::SeqCst);
    w.trust(2, "k2");
    w.wait(1, 2, "k2");
    wait("the report of it", || w.says_that_it_follows(2));
    assert_eq!(w.control.manifests_asked.load(Ordering::SeqCst), asked);
    handle.stop();
    w.server = None;
    w.forget();
    let handle = w.rig.start();
    assert_eq!(w.has(), (1, 2, "k2".to_owned()));
    assert_eq!(handle.fill().trust, Generation(2));
}

#[test]
fn an_older_manifest_that_a_power_cut_leaves_has_keys_of_the_newer_document() {
    let (mut w, mut handle) = World::begun();
    let manifest = w.read("manifest.signed");
    w.trust(2, "k2");
    w.publish(2);
    w.wait(2, 2, "k2");
    handle.stop();
    w.server = None;
    // The document is kept first: the manifest that needs the second is never there without it.
    w.write("manifest.signed", &manifest);
    w.forget();
    let mut handle = w.rig.start();
    assert_eq!(w.has(), (1, 2, "k2".to_owned()));
    handle.stop();
}

#[test]
fn a_manifest_whose_trust_document_is_lost_is_left_out_and_both_come_again() {
    let (mut w, mut handle) = World::begun();
    let old = w.read("trust.signed");
    w.trust(2, "k2");
    w.publish(2);
    w.wait(2, 2, "k2");
    handle.stop();
    w.write("trust.signed", &old);
    w.forget();
    let mut handle = w.rig.start();
    wait("the report of it", || w.has_said("it needs the trust document 2, and 1 is kept here"));
    w.wait(2, 2, "k2");
    handle.stop();
    w.write("trust.signed", &[&old[..old.len() - 1], b" "].concat());
    w.forget();
    let _handle = w.rig.start();
    wait("the report of it", || w.has_said("trust.signed is refused"));
    w.wait(2, 2, "k2");
}

#[test]
fn a_trust_document_that_could_not_be_kept_is_kept_later_and_the_manifest_after_it() {
    let (mut w, mut handle) = World::begun();
    let blocked = w.rig.config.state.join("trust.signed.new");
    std::fs::create_dir(&blocked).unwrap();
    w.trust(2, "k2");
    w.wait(1, 2, "k2");
    wait("the report of it", || w.has_said("A restart forgets this trust document"));
    wait("what a restart brings back", || w.says_that_it_follows(0));
    w.publish(2);
    w.wait(2, 2, "k2");
    wait("the report of it", || w.has_said("A restart forgets this manifest"));
    let kept = w.read("manifest.signed");
    std::fs::remove_dir(&blocked).unwrap();
    wait("another try", || w.says_that_it_follows(2));
    wait("the manifest in force, once more", || w.read("manifest.signed") != kept);
    let asked = w.control.manifests_asked.load(Ordering::SeqCst);
    let reports = || w.control.reports.lock().unwrap().len();
    let began = reports();
    wait("reports", || began + 10 < reports());
    assert_eq!(w.control.manifests_asked.load(Ordering::SeqCst), asked, "it is kept");
    handle.stop();
    w.server = None;
    w.forget();
    let mut handle = w.rig.start();
    assert_eq!(w.has(), (2, 2, "k2".to_owned()));
    handle.stop();
}

#[test]
fn a_trust_document_is_kept_only_after_the_keys_that_it_names() {
    let (mut w, mut handle) = World::begun();
    let kept = w.read("trust.signed");
    let (blocked, _) = w.lack_keys();
    assert!(w.read("trust.signed") == kept, "nobody would be believed to have signed another");
    std::fs::remove_dir(&blocked).unwrap();
    wait("another try", || w.says_that_it_follows(3));
    handle.stop();
    let mut handle = w.restart_alone();
    assert_eq!(w.has(), (1, 3, "k3".to_owned()), "the second key signed it");
    handle.stop();
}

#[test]
fn a_trust_document_that_is_kept_with_a_manifest_keeps_the_key_that_signed_it() {
    let (mut w, mut handle) = World::begun();
    let (blocked, third) = w.lack_keys();
    // Tries come later and later: the next one after the manifest.
    let began = Instant::now();
    wait("some tries", || Duration::from_millis(1700) < began.elapsed());
    *w.control.signer.lock().unwrap() = Some(third);
    std::fs::remove_dir(&blocked).unwrap();
    w.publish(2);
    w.wait(2, 3, "k3");
    wait("what a restart brings back", || w.says_that_it_follows(3));
    handle.stop();
    let mut handle = w.restart_alone();
    assert_eq!(w.has(), (2, 3, "k3".to_owned()), "the second key signed it");
    handle.stop();
}

#[test]
fn a_key_that_is_dropped_is_dropped_at_the_next_try_where_that_could_not_be_written() {
    let (mut w, mut handle) = World::begun();
    let (_, second) = SigningKey::generate("s2");
    w.trust_by(2, "k2", first(), &[first(), &second]);
    w.wait(1, 2, "k2");
    wait("the report of it", || w.says_that_it_follows(2));
    let kept = w.read("trust.signed");
    let blocked = w.rig.config.state.join("identity.new");
    std::fs::create_dir(&blocked).unwrap();
    w.trust_by(3, "k3", first(), &[first()]);
    w.wait(1, 3, "k3");
    wait("the report of it", || w.has_said("has dropped are believed until"));
    assert!(w.read("trust.signed") != kept, "a restart does not forget it");
    let keys = |w: &World| {
        let config = &w.rig.config;
        let own = member::load(&config.state, &config.appliance).unwrap();
        own.signing_keys().len()
    };
    assert_eq!(keys(&w), 2);
    std::fs::remove_dir(&blocked).unwrap();
    wait("another try", || w.says_that_it_follows(3));
    assert_eq!(keys(&w), 1);
    handle.stop();
    w.forget();
}

#[test]
fn a_refused_trust_document_keeps_out_no_manifest_that_does_not_need_it() {
    let mut w = World::new();
    w.trust(2, "k2");
    w.publish(1);
    let mut handle = w.rig.start();
    w.wait(1, 2, "k2");
    w.trust(1, "k1");
    w.control.trust_told.store(9, Ordering::SeqCst);
    wait("the report of it", || w.has_said("trust document is refused"));
    w.publish(2);
    w.wait(2, 2, "k2");
    handle.stop();
}

#[test]
fn an_older_trust_document_is_refused() {
    let mut w = World::new();
    w.trust(2, "k2");
    w.publish(1);
    let _handle = w.rig.start();
    w.wait(1, 2, "k2");
    w.trust(1, "k1");
    w.control.trust_told.store(9, Ordering::SeqCst);
    wait("the report of it", || {
        w.has_said("trust document is refused: it has generation 1, and 2 is kept here")
    });
    assert_eq!(w.has(), (1, 2, "k2".to_owned()));
    w.control.trust_told.store(0, Ordering::SeqCst);
    w.trust(3, "k3");
    w.wait(1, 3, "k3");
}

#[test]
fn a_trust_document_of_a_stranger_is_refused() {
    let mut w = World::new();
    w.trust(1, "k1");
    w.publish(1);
    let _handle = w.rig.start();
    w.wait(1, 1, "k1");
    let (_, stranger) = SigningKey::generate("s1");
    w.trust_by(2, "k2", &stranger, &[]);
    wait("the report of it", || w.has_said("was changed"));
    assert_eq!(w.has(), (1, 1, "k1".to_owned()));
}

#[test]
fn a_control_of_before_has_keys_in_manifests_and_the_next_one_apart() {
    let mut w = World::new();
    let publish = |w: &World, generation, issued, kid: &str| {
        w.publish(generation);
        let mut manifest = w.control.manifest.lock().unwrap();
        let manifest = manifest.as_mut().unwrap();
        (manifest.trust.issued, manifest.token_keys) = (UnixSeconds(issued), vec![key(kid)]);
    };
    w.control.is_old.store(true, Ordering::SeqCst);
    publish(&w, 1, 1000, "k1");
    let mut handle = w.rig.start();
    w.wait(1, 0, "k1");
    w.control.is_old.store(false, Ordering::SeqCst);
    w.trust(5, "k5");
    w.wait(1, 5, "k5");
    publish(&w, 2, 1006, "none");
    w.wait(2, 5, "k5");
    // The release before is run again.
    w.control.is_old.store(true, Ordering::SeqCst);
    publish(&w, 3, 1004, "k0");
    w.wait(3, 5, "k5");
    publish(&w, 4, 1007, "k6");
    w.wait(4, 0, "k6");
    handle.stop();
    w.forget();
    let mut handle = w.rig.start();
    w.wait(4, 0, "k6");
    // And the next one again, with a document that is older than what was there.
    w.trust(4, "k4");
    w.control.is_old.store(false, Ordering::SeqCst);
    wait("the report of it", || {
        w.has_said("trust document is refused: it has generation 4, and 5 is kept here")
    });
    wait("that control has to go above it", || w.says_that_it_follows(5));
    assert_eq!(w.has(), (4, 0, "k6".to_owned()));
    w.trust(5, "k5");
    w.wait(4, 5, "k5");
    handle.stop();
}

#[test]
fn a_key_that_signs_no_more_is_believed_until_nothing_that_is_kept_needs_it() {
    let mut w = World::new();
    let (_, second) = SigningKey::generate("s2");
    w.trust_by(1, "k1", first(), &[first(), &second]);
    w.publish(1);
    let mut handle = w.rig.start();
    w.wait(1, 1, "k1");
    w.trust_by(2, "k2", &second, &[&second]);
    w.wait(1, 2, "k2");
    handle.stop();
    w.forget();
    let config = &mut w.rig.config;
    config.credentials = member::load(&config.state, &config.appliance).unwrap();
    let address = w.server.take().unwrap().address;
    let mut handle = w.rig.start();
    assert_eq!(w.has(), (1, 2, "k2".to_owned()), "the first key signed the manifest");
    w.server = Some(w.control.serve(&address.to_string()));
    *w.control.signer.lock().unwrap() = Some(second);
    w.publish(2);
    w.wait(2, 2, "k2");
    wait("the report of it", || w.control.last_report().unwrap_or_default().generation == 2);
    w.trust_by(3, "k3", first(), &[]);
    wait("the report of it", || w.has_said("which is not known"));
    assert_eq!(w.has(), (2, 2, "k2".to_owned()));
    handle.stop();
}
