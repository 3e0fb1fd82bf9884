//! Tells the writer what viewers were sent of each file: an hour at a time, until it has counted
//! it.

use std::path::Path;

use model::units::{Instant, Nanos};

use crate::clock;
use crate::demand::Demand;
use crate::membership::client::{ControlClient, ControlError};
use crate::membership::demand_kept::Kept;
use crate::membership::tries::{Tries, wait};
use crate::storage::shared::Shared;

/// Between two looks at the clock.
const ROUND: Nanos = Nanos::seconds(1);
/// Hours that end at an appliance are told within so long, each appliance at its own moment: all of
/// a fleet end at once.
const SPREAD: Nanos = Nanos::seconds(600);
/// A control that cannot count is asked again so much later: it is of the release before, most
/// likely.
const UNKNOWN_FOR: Nanos = Nanos::seconds(600);

/// Counts and tells until all must stop. Without a control nobody asks for it.
pub(crate) fn run(shared: &Shared, client: &ControlClient, state: &Path) {
    let demand = &shared.counters.serving.demand;
    let mut kept = match Kept::open(demand, state, clock::wall()) {
        Ok(kept) => kept,
        Err(error) => {
            tracing::error!(%error, "what viewers are sent of each file is not counted");
            return;
        }
    };
    let mut link = Link { shared, client, demand, tries: Tries::default(), next: Instant(0) };
    let mut noted = false;
    loop {
        let now = shared.ledger.now();
        let goes_on = shared.ledger.sleep_until(now + ROUND);
        link.learn_numbers();
        let result = kept.go_on(demand, (now, clock::wall()), !goes_on);
        if let (Err(error), false) = (&result, noted) {
            tracing::warn!(%error, "what viewers are sent of each file is not kept");
        }
        noted = result.is_err();
        if !goes_on {
            return;
        }
        link.tell(&mut kept);
    }
}

struct Link<'a> {
    shared: &'a Shared,
    client: &'a ControlClient,
    demand: &'a Demand,
    tries: Tries,
    /// No part is told before.
    next: Instant,
}

impl Link<'_> {
    /// Files have the numbers of the manifest in force.
    fn learn_numbers(&self) {
        let known = self.demand.numbers_of();
        let newer = |holdings: &holdings::Holdings| {
            let is_newer = known != Some(holdings.generation());
            is_newer.then(|| holdings.numbers())
        };
        if let Some(numbers) = self.shared.ledger.ask(newer) {
            self.demand.set_numbers(numbers);
        }
    }

    /// Tells the oldest part that waits, when it is time.
    fn tell(&mut self, kept: &mut Kept) {
        let now = self.shared.ledger.now();
        if now < self.next {
            return;
        }
        let Some(part) = kept.first(self.demand) else {
            self.next = now + share_of(SPREAD, self.client.appliance.as_str());
            return;
        };
        let result = self.client.demand(&part);
        match &result {
            Ok(taken) => kept.counted(self.demand, taken.counted),
            // It would be no better the next time.
            Err(ControlError::Status { status: 400 | 413 | 422, .. }) => kept.refused(self.demand),
            Err(_) => {}
        }
        let unknown = matches!(&result, Err(ControlError::Status { status: 404 | 405, .. }));
        let result = if unknown { Ok(()) } else { result.map(drop) };
        let well = "control counts what viewers are sent again";
        let failures = self.tries.settle(self.shared, &self.client.whom, well, result);
        let after = failures.map_or(Nanos(0), |failures| wait(ROUND, failures));
        self.next = now + if unknown { UNKNOWN_FOR } else { after };
    }
}

/// A part of a span that is an appliance's own.
fn share_of(span: Nanos, appliance: &str) -> Nanos {
    let hash = blake3::hash(appliance.as_bytes());
    let lot = u64::from_le_bytes(*hash.as_bytes().first_chunk().expect("BLAKE3 has 32 bytes"));
    Nanos(lot % span.0)
}
