//! Manifests in: from the generation that the writer offers to the manifest in force.
//!
//! ```text
//! reply to a report ──> Offered ──> trust ── GET ──> signed document: verified, kept, in force
//!                          └──> manifests ── GET ──> signed manifest: verified
//!                                       │ its documents that are not here, 256 at a time
//!                                       └──> kept: documents, keys, manifest ──> in force
//! ```
//!
//! The trust document comes first: a manifest that leaves keys to it says which one it needs at
//! least. Where control has none, a manifest has the keys itself.
//!
//! Reports wait for none of it. What was fetched stays for the next try, also for a newer manifest:
//! one that is offered meanwhile is turned to at once, since it may take something down.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use holdings::Holdings;
use model::id::Generation;
use model::manifest::{Manifest, Short, TokenKey, TrustDocument};
use model::units::{Instant, Nanos};
use trust::{Followed, Older, takes_manifest};
use upkeep::{Ledger as _, at_once};

use crate::membership::client::{ControlClient, ControlError};
use crate::membership::documents::Fetched;
use crate::membership::envelope::{self, Opened, Refused};
use crate::membership::member::Own;
use crate::membership::state_file::{StateFile, UnkeptTrust};
use crate::membership::tries::{Tries, wait};
use crate::storage::shared::Shared;

/// Between two looks at what is offered.
const LOOK: Nanos = Nanos::millis(50);
/// Before the second try; doubled for each that fails.
const RETRY_FIRST: Nanos = Nanos::millis(500);

/// What reports hand to the thread that fetches manifests, and what it says of them.
#[derive(Debug, Default)]
pub(crate) struct Offered {
    generation: AtomicU64,
    /// Of the trust document; 0 for none.
    trust: AtomicU64,
    /// What reports say of it.
    trust_followed: AtomicU64,
    /// The manifest in force is not on the drive: after a restart another would be.
    is_unkept: AtomicBool,
}

impl Offered {
    /// The newest generations that the writer has told, of the manifest and the trust document.
    pub(crate) fn set(&self, generation: Generation, trust: Generation) {
        self.trust.store(trust.0, Ordering::Relaxed);
        self.generation.store(generation.0, Ordering::Relaxed);
    }

    /// True if a restart brings back the manifest in force.
    pub(crate) fn is_kept(&self) -> bool {
        !self.is_unkept.load(Ordering::Relaxed)
    }

    /// For reports: generation of the trust document in force, or of a newer one that is kept, if
    /// it keeps out all that control has; 0 for none, and where a restart brings another back.
    pub(crate) fn trust_followed(&self) -> Generation {
        Generation(self.trust_followed.load(Ordering::Relaxed))
    }

    fn generation(&self) -> Generation {
        Generation(self.generation.load(Ordering::Relaxed))
    }

    fn trust(&self) -> Generation {
        Generation(self.trust.load(Ordering::Relaxed))
    }
}

/// A short manifest, verified, whose documents are being fetched.
struct Next {
    envelope: Vec<u8>,
    short: Short,
}

struct Link<'a> {
    shared: &'a Shared,
    client: &'a ControlClient,
    own: &'a Own,
    state_file: &'a StateFile,
    offered: &'a Offered,
    next: Option<Next>,
    /// For the manifest after the one in force.
    fetched: Fetched,
    /// Of the newest trust document.
    keeping: Keeping,
    /// Of the manifest in force, which is fetched again for it.
    again: Keeping,
}

/// Tries to keep something.
#[derive(Debug, Default)]
struct Keeping {
    /// On end.
    failures: u32,
    /// The next, if it is not kept.
    at: Instant,
}

/// Takes each newer manifest that is offered, until all must stop.
pub(crate) fn run(
    shared: &Shared,
    client: &ControlClient,
    own: &Own,
    state_file: &StateFile,
    offered: &Offered,
) {
    let (next, fetched) = (None, Fetched::default());
    let (keeping, again) = Default::default();
    let mut link = Link { shared, client, own, state_file, offered, next, fetched, keeping, again };
    let (mut of_trust, mut of_manifest, mut pause) = (Tries::default(), Tries::default(), LOOK);
    link.tell_trust();
    while shared.ledger.sleep_until(shared.ledger.now() + pause) {
        pause = LOOK;
        link.go_on_with_keeping();
        link.tell_trust();
        let above = link.wanted_above();
        if offered.generation() <= above && !link.followed().wants(offered.trust()) {
            continue;
        }
        let (trust, manifest) = link.follow(above);
        link.tell_trust();
        let settle =
            |tries: &mut Tries, well, result| tries.settle(shared, &client.whom, well, result);
        let failures = settle(&mut of_trust, "trust documents are taken again", trust).max(settle(
            &mut of_manifest,
            "manifests are taken again",
            manifest,
        ));
        if let Some(failures) = failures {
            pause = wait(RETRY_FIRST, failures - 1);
        }
    }
}

impl Link<'_> {
    /// Manifests above this generation are wanted: those that are newer than the one in force; and
    /// that one too, later and later, if it is not kept. Control gives it again.
    fn wanted_above(&mut self) -> Generation {
        let known = self.shared.ledger.ask(Holdings::generation);
        let now = self.shared.ledger.now();
        let Keeping { failures, at } = &mut self.again;
        if self.offered.is_kept() || now < *at {
            return known;
        }
        *at = now + wait(RETRY_FIRST, *failures);
        *failures += 1;
        Generation(known.0.saturating_sub(1))
    }

    /// Fetches what is newer, the trust document first, and puts it in force. A manifest may take
    /// something down: it does not wait for a trust document that it does not need.
    fn follow(
        &mut self,
        above: Generation,
    ) -> (Result<(), ControlError>, Result<(), ControlError>) {
        let trust = match self.followed().wants(self.offered.trust()) {
            true => self.follow_trust(),
            false => Ok(()),
        };
        let manifest = match above < self.offered.generation() {
            true => self.follow_manifest(above),
            false => Ok(()),
        };
        (trust, manifest)
    }

    /// Fetches a newer trust document, and puts it in force.
    fn follow_trust(&mut self) -> Result<(), ControlError> {
        let followed = self.followed();
        let Some(envelope) = self.client.trust(followed.counts())? else { return Ok(()) };
        let keys = self.keys();
        let document = envelope::open_trust(&envelope, &keys).map_err(ControlError::Trust)?;
        followed.takes(document.trust.generation).map_err(|Older { offered, known }| {
            ControlError::Trust(Refused::OlderTrust { offered, known })
        })?;
        self.take_trust(UnkeptTrust { envelope, document: Arc::new(document), keys });
        Ok(())
    }

    /// Keeps a verified trust document, and puts it in force with the manifest that is.
    fn take_trust(&mut self, unkept: UnkeptTrust) {
        let document = Arc::clone(&unkept.document);
        self.state_file.set_trust(unkept);
        self.keeping = Keeping::default();
        self.go_on_with_keeping();
        let manifest = self.shared.ledger.ask(|holdings| holdings.manifest().cloned());
        if let Some(manifest) = manifest {
            let manifest = Arc::new(Manifest::clone(&manifest).with_trust(&document));
            self.shared.ledger.change(|holdings| holdings.set_trust(manifest));
        }
        let TrustDocument { token_keys, trust } = &*document;
        let (generation, revoked) = (trust.generation.0, trust.revoked.len());
        tracing::info!(generation, keys = token_keys.len(), revoked, "trust document in force");
    }

    /// Tries again, later and later, to keep the newest trust document, if it is not kept.
    fn go_on_with_keeping(&mut self) {
        let now = self.shared.ledger.now();
        if self.state_file.is_trust_kept() || now < self.keeping.at {
            return;
        }
        let Keeping { failures, at } = &mut self.keeping;
        match keep_trust(self.own, self.state_file) {
            Ok(()) if 0 < *failures => tracing::info!("the trust document is kept at last"),
            Ok(()) => {}
            Err(error) => {
                *at = now + wait(RETRY_FIRST, *failures);
                *failures += 1;
                if *failures == 1 {
                    self.shared.ledger.note("control", error);
                }
            }
        }
    }

    fn followed(&self) -> Followed {
        let of = |manifest: &Arc<Manifest>| manifest.trust.generation;
        let in_force = self.shared.ledger.ask(|holdings| holdings.manifest().map(of));
        Followed { in_force, newest: self.state_file.trust_generation() }
    }

    /// For the next report.
    fn tell_trust(&self) {
        let is_kept = self.state_file.is_trust_kept();
        let told = self.followed().told(self.offered.trust(), is_kept);
        self.offered.trust_followed.store(told.0, Ordering::Relaxed);
    }

    /// Fetches a newer manifest and what it names, and puts it in force.
    fn follow_manifest(&mut self, known: Generation) -> Result<(), ControlError> {
        while !self.shared.ledger.is_stopping() {
            let offered = self.offered.generation();
            let is_newest = |next: &Next| offered <= next.short.manifest.generation;
            let next = match self.next.take().filter(is_newest) {
                Some(next) => next,
                None => match self.ask(known)? {
                    Some(next) => next,
                    None => break,
                },
            };
            let lacking = self.state_file.lacking(&next.short, &self.fetched);
            if lacking.is_empty() {
                return self.take_short(next);
            }
            match self.client.documents(&lacking) {
                Ok(lines) => {
                    let taken = self.fetched.take(&next.short, &lines).map_err(Refused::from)?;
                    if taken == 0 {
                        return Err(ControlError::NoDocuments(lacking.len()));
                    }
                    self.next = Some(next);
                }
                Err(error) => {
                    // Any other answer may be of a program that has no documents: it is asked for
                    // a manifest again.
                    self.next = Some(next).filter(|_| may_pass(&error));
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Asks for a newer manifest. A whole one comes into force at once.
    fn ask(&mut self, known: Generation) -> Result<Option<Next>, ControlError> {
        let Some(envelope) = self.client.manifest(known)? else { return Ok(None) };
        let opened = envelope::open(&envelope, &self.keys(), &self.client.appliance)?;
        takes_manifest(opened.manifest().generation, known)
            .map_err(|Older { offered, known }| Refused::Older { offered, known })?;
        if self.followed().lacks(&opened.manifest().trust) {
            self.follow_trust()?;
        }
        match opened {
            Opened::Whole(manifest) => {
                self.fetched = Fetched::default();
                self.take(manifest, &envelope, Ok(()))?;
                Ok(None)
            }
            Opened::Short(short) => {
                self.fetched.keep_for(&short);
                Ok(Some(Next { envelope, short }))
            }
        }
    }

    /// All documents of a short manifest are here.
    fn take_short(&mut self, Next { envelope, short }: Next) -> Result<(), ControlError> {
        let fetched = std::mem::take(&mut self.fetched);
        let kept = self.state_file.save_documents(&short, &fetched);
        let manifest = self.state_file.whole(short, fetched).map_err(Refused::from)?;
        self.take(manifest, &envelope, kept.map_err(|error| error.to_string()))
    }

    /// Whose signatures count: the manifest in force, or before the first the trust document, names
    /// keys for those after it.
    fn keys(&self) -> Vec<TokenKey> {
        let of_manifest = |manifest: &Arc<Manifest>| manifest.trust.signing_keys.clone();
        let in_force = self.shared.ledger.ask(|holdings| holdings.manifest().map(of_manifest));
        let kept = || self.state_file.trust().map(|document| document.trust.signing_keys.clone());
        envelope::union(&self.own.signing_keys(), &in_force.or_else(kept).unwrap_or_default())
    }

    /// Keeps a verified manifest, if its documents are `kept`, and puts it in force.
    fn take(
        &mut self,
        manifest: Manifest,
        envelope: &[u8],
        kept: Result<(), String>,
    ) -> Result<(), ControlError> {
        let (own, keys) = (self.own, self.keys());
        let needs_trust = manifest.trust.is_apart;
        let manifest = self.state_file.with_trust(manifest)?;
        let named = &manifest.trust.signing_keys;
        // Whichever of the two files a power cut leaves old, the manifest on the drive has its key.
        let kept = kept.and_then(|()| match self.state_file.unkept_trust() {
            Some(unkept) if needs_trust => save_trust(own, self.state_file, &unkept).map(drop),
            Some(_) | None => Ok(()),
        });
        // Also the one that signed a trust document that was kept only now.
        let keys = envelope::union(&keys, &own.signing_keys());
        let kept = kept
            .and_then(|()| own.believe(&envelope::union(&keys, named)).map_err(|e| e.to_string()))
            .and_then(|()| self.state_file.save(envelope).map_err(|error| error.to_string()))
            .map_err(|error| format!("{error}. A restart forgets this manifest"))
            .and_then(|()| {
                let after = envelope::keys_after(named, &self.state_file.signers(), &keys);
                own.believe(&after).map_err(|error| format!("{error}. {STILL_BELIEVED}"))
            });
        self.offered.is_unkept.store(kept.is_err(), Ordering::Relaxed);
        let is_newer = self.shared.ledger.ask(Holdings::generation) < manifest.generation;
        match kept {
            Err(error) if is_newer => {
                self.shared.ledger.note("control", error);
                let at = self.shared.ledger.now() + RETRY_FIRST;
                self.again = Keeping { failures: 0, at };
            }
            Ok(()) if !is_newer => tracing::info!("the manifest is kept at last"),
            Ok(()) | Err(_) => {}
        }
        if !is_newer {
            return Ok(());
        }
        let (generation, versions) = (manifest.generation.0, manifest.versions.len());
        if at_once(self.shared.set_manifest(Arc::new(manifest))) {
            tracing::info!(generation, versions, "manifest in force");
        }
        Ok(())
    }
}

/// Keeps the newest trust document, if it is not kept, and drops the keys that it drops.
fn keep_trust(own: &Own, state_file: &StateFile) -> Result<(), String> {
    let Some(unkept) = state_file.unkept_trust() else { return Ok(()) };
    let keys = save_trust(own, state_file, &unkept)?;
    let named = &unkept.document.trust.signing_keys;
    let after = envelope::keys_after(named, &state_file.signers(), &keys);
    own.believe(&after).map_err(|error| format!("{error}. {STILL_BELIEVED}"))?;
    state_file.trust_is_kept();
    Ok(())
}

/// Writes a trust document after the keys that it names and the one that signed it, so that each
/// file that a power cut leaves, old or new, is believed. Gives the keys that were believed before,
/// and the one that signed it.
fn save_trust(
    own: &Own,
    state_file: &StateFile,
    unkept: &UnkeptTrust,
) -> Result<Vec<TokenKey>, String> {
    let named = &unkept.document.trust.signing_keys;
    let keys = envelope::union(&own.signing_keys(), &unkept.keys);
    let forgets = |error: String| format!("{error}. A restart forgets this trust document");
    own.believe(&envelope::union(&keys, named)).map_err(|error| forgets(error.to_string()))?;
    state_file.save_trust(unkept).map_err(|error| forgets(error.to_string()))?;
    Ok(keys)
}

const STILL_BELIEVED: &str =
    "Signing keys that control has dropped are believed until that can be written";

/// The same question may be answered in a while.
fn may_pass(error: &ControlError) -> bool {
    match error {
        ControlError::Unreachable(_) | ControlError::Late(_) | ControlError::Body(_) => true,
        ControlError::Status { status, .. } => *status == 503,
        ControlError::Manifest(_) | ControlError::Trust(_) => false,
        ControlError::NoDocuments(_) | ControlError::Blocks(_) => false,
    }
}
