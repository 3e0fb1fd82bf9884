//! The end of requests for versions that are no longer in the manifest.
//!
//! ```text
//! manifest without a version ─┬─> new requests: 404, on whatever connection, with whatever token
//!                             └─> bodies under way ── GRACE ──> broken off
//!                     all of that done ──> Worker::served
//! ```
//!
//! A version goes from a manifest when it was withdrawn, and when another appliance should hold
//! it instead; a worker cannot tell which. Most bodies are segments, over within the grace.

use model::manifest::Manifest;
use model::units::{Instant, Nanos};

use crate::action::Ending;
use crate::catalogue::Catalogue;
use crate::connection::{Connection, State};
use crate::worker::{NEVER, Worker};

impl Worker {
    /// A newer manifest is in force. O(connections) if a version went.
    pub(crate) fn follow(&mut self, manifest: &Manifest) {
        if self.catalogue.token_keys != manifest.token_keys {
            self.catalogue.token_keys.clone_from(&manifest.token_keys);
            self.catalogue.keys_epoch += 1;
        }
        self.catalogue.holders.clone_from(&manifest.siblings);
        let versions = manifest.versions.iter();
        let versions = versions.map(|version| (version.id.clone(), version.clone())).collect();
        let before = std::mem::replace(&mut self.catalogue.versions, versions);
        self.catalogue.generation = manifest.generation;
        let went = before.keys().any(|id| !self.catalogue.versions.contains_key(id));
        let connections = || self.connections.iter().flatten();
        let is_unwanted = |connection: &Connection| is_unwanted(&self.catalogue, connection);
        if went && connections().any(|connection| is_unwanted(connection)) {
            self.cut_at = self.cut_at.min(self.now.instant + GRACE);
        }
        if self.cut_at == NEVER {
            self.served = manifest.generation;
        }
    }

    /// Breaks off what is still under way of versions that are not in the manifest, if the time
    /// for it has come. O(connections) then.
    pub(crate) fn cut(&mut self, now: Instant) {
        if now < self.cut_at {
            return;
        }
        self.cut_at = NEVER;
        for slot in 0..self.connections.len() {
            let Some(connection) = &mut self.connections[slot] else { continue };
            if is_unwanted(&self.catalogue, connection) {
                let id = connection.id;
                self.counters.cut += 1;
                if has_begun(connection) {
                    self.close(id, Ending::Abort);
                } else {
                    // A sibling would have to refuse it too.
                    connection.texts.elsewhere.clear();
                    self.give_up(id);
                }
            }
        }
        self.served = self.catalogue.generation;
    }
}

/// True of a body that is under way, of a version that is not in the manifest. What comes from
/// memory is on its way as a whole.
fn is_unwanted(catalogue: &Catalogue, connection: &Connection) -> bool {
    let State::Transfer(_) = connection.state else { return false };
    // Between a request and the end of its response no other is looked at.
    let granted = connection.granted.as_ref().expect("a body needs a verified token");
    !catalogue.versions.contains_key(granted.version())
}

/// Some of the response is with the client.
fn has_begun(connection: &Connection) -> bool {
    matches!(&connection.state, State::Transfer(transfer) if transfer.head_pending.is_none())
}

/// How long a body may go on that was under way: most segments take less.
const GRACE: Nanos = Nanos::seconds(3);
