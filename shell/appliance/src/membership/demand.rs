//! Tells the writer what viewers were sent of each file: an hour at a time, until it has counted
//! it.

use std::path::Path;

use model::units::{Instant, Nanos};

use crate::clock;
use crate::demand::Demand;
use crate::membership::client::{ControlClient, ControlError};
use crate::membership::demand_kept::Kept;
use crate::membership::tries::{Tries, share_of, wait};
use crate::storage::shared::Shared;

/// Between two looks at the clock.
const ROUND: Nanos = Nanos::seconds(1);
/// The hour of all appliances ends at once. One that has nothing to tell looks again after a part
/// of this that is its own, so that a fleet's parts come over ten minutes.
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
            tracing::error!(
                %error,
                "demand is not counted: the state directory cannot be read. Set that right, and \
                 start the appliance again"
            );
            return;
        }
    };
    let mut link = Link { shared, client, demand, tries: Tries::default(), next: Instant(0) };
    let mut noted: Option<String> = None;
    loop {
        let now = shared.ledger.now();
        let goes_on = shared.ledger.sleep_until(now + ROUND);
        link.learn_numbers();
        let result = kept.go_on(demand, (now, clock::wall()), !goes_on);
        let reason = result.err().map(|error| error.to_string());
        if reason != noted {
            match &reason {
                Some(error) => tracing::warn!(
                    %error,
                    "demand is not kept: a restart forgets it. Look at the drive of the state \
                     directory"
                ),
                None => tracing::info!("demand is kept again"),
            }
            noted = reason;
        }
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
            let idle_for = share_of(SPREAD, self.client.appliance.as_str());
            self.next = now + idle_for;
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
