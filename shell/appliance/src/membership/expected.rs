//! Learns from the writer what viewers are expected to be sent of what this appliance holds, and
//! hands it on: a hint, by which nothing is held or served that else would not be.
//!
//! ```text
//! writer ── every two hours ──> items ── with the manifest in force ──> objects
//!                                  ├──> heat: what goes to fast drives (`storage::tiering`)
//!                                  └──> workers: blocks that are kept from their first want on
//! ```

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fill::expected::{first_blocks, objects};
use model::expected::{ExpectedItem, FirstBlocks};
use model::id::Generation;
use model::manifest::Manifest;
use model::units::{Bytes, Instant, Nanos};
use wire::convert::expected_in;

use crate::membership::client::{ControlClient, ControlError};
use crate::membership::tries::{Tries, share_of};
use crate::storage::shared::Shared;
use crate::storage::tiering::Tier;

/// Between two looks at the clock and at the manifest.
const ROUND: Nanos = Nanos::seconds(1);
/// Control forecasts once a day, and plans when the catalogue changes. Counted from an appliance's
/// start, so that a fleet's do not ask at once.
const EVERY: Nanos = Nanos::seconds(2 * 3600);
/// Whoever was not answered asks again so much later, and after a part of as much that is its own.
const AGAIN: Nanos = Nanos::seconds(300);

/// Asks and hands on until all must stop. `hot` is the memory of each worker for hot blocks.
pub(crate) fn run(shared: &Shared, client: &ControlClient, tier: Option<&Tier>, hot: Bytes) {
    let mut link = Link {
        shared,
        client,
        tier,
        hot,
        state: 0,
        items: Vec::new(),
        handed_on: None,
        first: Vec::new(),
        tries: Tries::default(),
        next: Instant(0),
    };
    while shared.ledger.sleep_until(shared.ledger.now() + ROUND) {
        let Some(manifest) = shared.ledger.ask(|holdings| holdings.manifest().cloned()) else {
            continue;
        };
        if link.next <= shared.ledger.now() {
            link.ask();
        }
        link.hand_on(&manifest);
    }
}

struct Link<'a> {
    shared: &'a Shared,
    client: &'a ControlClient,
    tier: Option<&'a Tier>,
    hot: Bytes,
    /// Of the list that control told last; 0 for none.
    state: u64,
    items: Vec<ExpectedItem>,
    /// The manifest with which it was handed on.
    handed_on: Option<Generation>,
    /// What workers know.
    first: Vec<FirstBlocks>,
    tries: Tries,
    /// Control is not asked before.
    next: Instant,
}

impl Link<'_> {
    fn ask(&mut self) {
        let own = share_of(AGAIN, self.client.appliance.as_str());
        let soon = Nanos(AGAIN.0 + own.0);
        let (pause, result) = match self.ask_now() {
            Ok(()) => (EVERY, Ok(())),
            // Of the release before.
            Err(ControlError::Status { status: 404 | 405, .. }) => (EVERY, Ok(())),
            // Others ask.
            Err(ControlError::Status { status: 503, .. }) => (soon, Ok(())),
            Err(error) => (soon, Err(error)),
        };
        let well = "control says again what viewers are expected to be sent";
        self.tries.settle(self.shared, &self.client.whom, well, result);
        self.next = self.shared.ledger.now() + pause;
    }

    /// What is wrong changes nothing.
    fn ask_now(&mut self) -> Result<(), ControlError> {
        let fast = self.tier.map_or(Bytes::ZERO, |tier| tier.fast_room(self.shared));
        let Some(told) = self.client.expected(fast.max(self.hot), self.state)? else {
            return Ok(());
        };
        let items = expected_in(&told.items);
        self.items = items.map_err(|error| ControlError::Body(error.to_string()))?;
        (self.state, self.handed_on) = (told.state, None);
        Ok(())
    }

    /// Hands on what is new, or what it is in a new manifest. O(files of the versions named).
    fn hand_on(&mut self, manifest: &Arc<Manifest>) {
        if self.handed_on == Some(manifest.generation) {
            return;
        }
        self.handed_on = Some(manifest.generation);
        let objects = objects(manifest, &self.items);
        let count = Bytes::of(objects.len()).0;
        self.shared.counters.expected_objects.store(count, Ordering::Relaxed);
        if let Some(tier) = self.tier {
            tier.expect(self.shared.ledger.now(), &objects);
        }
        let first = first_blocks(&objects, self.hot);
        if first != self.first {
            self.first.clone_from(&first);
            self.shared.ledger.tell_expected(first);
        }
        tracing::debug!(objects = count, "what viewers are expected to be sent");
    }
}
