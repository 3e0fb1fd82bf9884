//! Manifests in: from the generation that the writer offers to the manifest in force.
//!
//! ```text
//! reply to a report ──> Offered ──> manifests ── GET ──> signed manifest: verified
//!                                       │ its documents that are not here, 256 at a time
//!                                       └──> kept: documents, keys, manifest ──> in force
//! ```
//!
//! Reports wait for none of it. What was fetched stays for the next try, also for a newer manifest:
//! one that is offered meanwhile is turned to at once, since it may take something down.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use holdings::Holdings;
use model::id::Generation;
use model::manifest::{Manifest, Short, TokenKey};
use model::units::Nanos;
use upkeep::{Ledger as _, at_once};

use crate::membership::client::{ControlClient, ControlError};
use crate::membership::documents::Fetched;
use crate::membership::envelope::{self, Opened, Refused};
use crate::membership::member::Own;
use crate::membership::state_file::StateFile;
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
    /// The manifest in force is not on the drive: after a restart another would be.
    is_unkept: AtomicBool,
}

impl Offered {
    /// The newest generation that the writer has told.
    pub(crate) fn set(&self, generation: Generation) {
        self.generation.store(generation.0, Ordering::Relaxed);
    }

    /// True if a restart brings back the manifest in force.
    pub(crate) fn is_kept(&self) -> bool {
        !self.is_unkept.load(Ordering::Relaxed)
    }

    fn generation(&self) -> Generation {
        Generation(self.generation.load(Ordering::Relaxed))
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
    let mut link = Link { shared, client, own, state_file, offered, next, fetched };
    let (mut tries, mut pause) = (Tries::default(), LOOK);
    while shared.ledger.sleep_until(shared.ledger.now() + pause) {
        pause = LOOK;
        let known = shared.ledger.ask(Holdings::generation);
        if offered.generation() <= known {
            continue;
        }
        let result = link.follow(known);
        if let Some(failures) =
            tries.settle(shared, &client.whom, "a manifest is taken again", result)
        {
            pause = wait(RETRY_FIRST, failures - 1);
        }
    }
}

impl Link<'_> {
    /// Fetches a newer manifest and what it names, and puts it in force.
    fn follow(&mut self, known: Generation) -> Result<(), ControlError> {
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
        let offered = opened.manifest().generation;
        if offered <= known {
            return Err(Refused::Older { offered, known }.into());
        }
        match opened {
            Opened::Whole(manifest) => {
                self.fetched = Fetched::default();
                self.take(manifest, &envelope, Ok(()));
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
        self.take(manifest, &envelope, kept.map_err(|error| error.to_string()));
        Ok(())
    }

    /// Whose signatures count: the manifest in force names keys for those after it.
    fn keys(&self) -> Vec<TokenKey> {
        let in_force = self.shared.ledger.ask(|holdings| holdings.manifest().cloned());
        let named = in_force.map(|manifest| manifest.trust.signing_keys.clone());
        envelope::union(&self.own.signing_keys(), &named.unwrap_or_default())
    }

    /// Keeps a verified manifest, if its documents are `kept`, and puts it in force.
    fn take(&self, manifest: Manifest, envelope: &[u8], kept: Result<(), String>) {
        let (own, keys) = (self.own, self.keys());
        // Whichever of the two files a power cut leaves old, the manifest on the drive has its key.
        let after = envelope::keys_after(&manifest, envelope, &keys);
        let kept = kept
            .and_then(|()| own.believe(&envelope::union(&keys, &after)).map_err(|e| e.to_string()))
            .and_then(|()| self.state_file.save(envelope).map_err(|error| error.to_string()))
            .and_then(|()| own.believe(&after).map_err(|error| error.to_string()));
        self.offered.is_unkept.store(kept.is_err(), Ordering::Relaxed);
        if let Err(error) = kept {
            self.shared.ledger.note("control", format!("{error}. A restart forgets this manifest"));
        }
        let (generation, versions) = (manifest.generation.0, manifest.versions.len());
        if at_once(self.shared.set_manifest(Arc::new(manifest))) {
            tracing::info!(generation, versions, "manifest in force");
        }
    }
}

/// The same question may be answered in a while.
fn may_pass(error: &ControlError) -> bool {
    match error {
        ControlError::Unreachable(_) | ControlError::Body(_) => true,
        ControlError::Status { status, .. } => *status == 503,
        ControlError::Manifest(_) | ControlError::NoDocuments(_) | ControlError::Blocks(_) => false,
    }
}
