//! Looks now and then which appliances will lack much of what they should hold.

use std::collections::BTreeMap;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use director::lacking::{Filling, Lacking};
use director::waits::Waits;
use model::id::ApplianceId;
use model::units::{BitsPerSecond, Bytes};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::Control;
use crate::state::directing::{Busy, Desk, Told};

/// Windows are of minutes.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Appliances whose rules are asked for in one step of the director: a hundred microseconds.
const AT_ONCE: usize = 256;

impl Control {
    /// Looks until the process ends: O(appliances) each minute. A front does not know the hours.
    pub(crate) async fn watch_fill(&self) {
        while !self.is_front() {
            // A director that is busy is asked again a minute later.
            let _ = self.look_at_fill().await;
            sleep(LOOK_EVERY).await;
        }
    }

    async fn look_at_fill(&self) -> Result<(), Busy> {
        let told = self.directing.fleet().await?;
        let ids = told.iter().map(|told| told.id.clone()).collect();
        let rules_of = |desk: &Desk, id: &ApplianceId| desk.director.fill_rules(id);
        let rules = self.directing.each(ids, AT_ONCE, rules_of).await?;
        let mut rules: BTreeMap<_, _> = rules.into_iter().collect();
        let filling = move |Told { id, report, .. }: Told| {
            let (rules, fill) = (rules.remove(&id)?, report?.fill.clone());
            Some(Filling {
                appliance: id,
                rules,
                wanted: Bytes(fill.bytes_wanted),
                missing: Bytes(fill.bytes_wanted.saturating_sub(fill.bytes_held)),
                of_late: BitsPerSecond(fill.bits_per_second),
            })
        };
        let (now, mut lacking) = (self.clock.unix(), self.lacking().clone());
        let look = move || {
            lacking.look(now, told.into_iter().filter_map(filling));
            lacking
        };
        *self.lacking() = spawn_blocking(look).await.expect("nothing in it panics");
        Ok(())
    }

    /// Those that lack much, as they were looked at last.
    pub(crate) fn lacking(&self) -> MutexGuard<'_, Lacking> {
        self.lacking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For whom appliances wait, by what they were told last.
    pub(crate) fn waits(&self) -> MutexGuard<'_, Waits> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
