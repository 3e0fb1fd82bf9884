//! What the director wants: carried out by whoever writes, one action after the other.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use director::{Action, Event, Notice, PlanInput, RefusedPlan};
use model::machine::Machine;
use model::units::Instant;
use tokio::task::{JoinHandle, spawn_blocking};

use super::Control;
use crate::state::directing::Desk;
use crate::state::probe;
use crate::state::store::StoreError;

impl Control {
    /// Does what the director wants, unless a change is being written: who writes it does when
    /// done.
    pub(crate) async fn write_what_is_due(self: &Arc<Self>) {
        if let Ok(_writing) = self.writing.try_lock() {
            self.carry_out().await;
        }
    }

    /// Does what the director wants until it wants nothing. The caller holds the writer's lock.
    pub(super) async fn carry_out(self: &Arc<Self>) {
        loop {
            let next = self.directing.ask_in_turn(|desk, _| desk.director.poll()).await;
            let Some(action) = next else { return };
            if let Err(error) = self.perform(action).await {
                self.store_failed(&error);
            }
        }
    }

    async fn perform(self: &Arc<Self>, action: Action) -> Result<(), StoreError> {
        match action {
            Action::Place(input) => {
                // Of a small fleet it is there at once, and so for whoever asks next.
                let placing = self.place(input);
                let _ = tokio::time::timeout(PLAN_AWAITED, placing).await;
            }
            // Threads that may block have time for it.
            Action::Free(spent) => drop(spawn_blocking(move || drop(spent))),
            Action::Store(ledger) => {
                self.store.put_ledger(&ledger).await?;
                tracing::info!(generation = ledger.generation.0, "manifests published");
                self.handle(Event::Stored(ledger.generation)).await;
            }
            Action::StoreTrust(entry) => {
                self.store.put_trust(entry).await?;
                tracing::info!(generation = entry.generation.0, "trust document published");
                self.handle(Event::TrustStored(entry.generation)).await;
            }
            Action::StoreUsable { appliance, usable } => {
                self.store.put_usable(&appliance, usable).await?;
                self.handle(Event::UsableStored(appliance, usable)).await;
            }
            Action::StoreHardware { appliance, hardware } => {
                self.store.put_hardware(&appliance, &hardware).await?;
            }
            Action::StoreCloned(appliance) => {
                self.replica_is_old.store(true, Ordering::SeqCst);
                self.store.put_cloned(&appliance, true).await?;
            }
            Action::WithdrawEnded(versions) => self.withdraw_ended(versions).await?,
            Action::RemoveSuperseded(versions) => self.remove_superseded(versions).await?,
            Action::StoreReceipt { withdrawal, appliance, receipt } => {
                self.store.put_receipt(withdrawal, &appliance, receipt).await?;
                self.metrics.receipts.count();
                tracing::info!(withdrawal, %appliance, "it refuses what was withdrawn");
            }
            Action::ForgetWithdrawals(ids) => {
                tracing::warn!(
                    "too many withdrawals to list them all: the oldest go from the list"
                );
                self.store.delete_withdrawals(&ids).await?;
            }
            Action::UseNextSigningKey => self.use_next_signing_key().await,
            Action::UseNextTokenKey => self.use_next_token_key().await,
            Action::DropOldTokenKeys => self.drop_old_token_keys().await,
            Action::Probe { appliance, base_url } => {
                let control = Arc::clone(self);
                probe::probe(&self.probes, &base_url, |answered| async move {
                    control.handle(Event::Probed { appliance, answered }).await;
                });
            }
            Action::Tell(notice) => tell(&notice),
        }
        Ok(())
    }

    /// Works a plan out, on a thread of its own. What follows of it is done by whoever may write.
    fn place(self: &Arc<Self>, input: Box<PlanInput>) -> JoinHandle<()> {
        let control = Arc::clone(self);
        tokio::spawn(async move {
            let plan = spawn_blocking(move || Box::new(input.work_out()));
            control.handle(Event::Placed(plan.await.expect("nothing in it panics"))).await;
            let come_of_it = |desk: &Desk, _: Instant| {
                let report = &desk.director.places().report;
                let unkept = [&report.pins_missing[..], &report.bans_unkept].concat();
                let count = report.pins_missing_count + report.bans_unkept_count;
                (desk.director.refused().map(RefusedPlan::words), (unkept, count))
            };
            if let Ok((refused, (unkept, count))) = control.directing.ask(come_of_it).await {
                control.note_refused(refused.unwrap_or_default());
                control.note_unkept(unkept, count);
            }
            control.write_what_is_due().await;
        })
    }
}

impl Control {
    /// Logs why the last plan was refused, if that is not what was logged before.
    fn note_refused(&self, reasons: Vec<String>) {
        let mut noted = self.plan_refused.lock().unwrap_or_else(PoisonError::into_inner);
        if *noted == reasons {
            return;
        }
        if reasons.is_empty() {
            tracing::info!("plans are carried out again");
        }
        for reason in &reasons {
            tracing::warn!(%reason, "plan refused, nothing comes: see nearcast plan show");
        }
        *noted = reasons;
    }
}

fn tell(notice: &Notice) {
    if notice.health.is_well() && !notice.cause.is_of_identity() {
        tracing::info!(appliance = %notice.appliance, "{}", notice.text);
    } else {
        tracing::warn!(appliance = %notice.appliance, "{}", notice.text);
    }
}

/// A change waits for its plan for so long, and no other change is written meanwhile.
const PLAN_AWAITED: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::directing::Desk;
    use crate::state::writer::tests::open;
    use model::id::ApplianceId;
    use model::topology::{Appliance, Site, Weight};

    #[tokio::test]
    async fn a_generation_that_cannot_be_stored_is_seen_by_nobody_until_it_can() {
        let (_directory, control) = open("").await;
        let a1: ApplianceId = "a1".parse().unwrap();
        control.set_site(Site::new("s1".parse().unwrap(), vec![])).await.unwrap();
        control.store.hide_meta(true).await;
        let site = "s1".parse().unwrap();
        let appliance = Appliance::new(a1.clone(), site, Weight::ONE);
        control.set_appliance(appliance).await.unwrap();
        let manifest = async || {
            let a1 = a1.clone();
            let asked = move |desk: &mut Desk, _| desk.director.manifest(&a1).unwrap();
            control.directing.ask_in_turn(asked).await
        };
        until(&control, async || control.metrics.store_errors.value() == 1).await;
        assert_eq!(manifest().await, None);

        control.store.hide_meta(false).await;
        until(&control, async || manifest().await.is_some()).await;
        let generation = manifest().await.expect("it is published").generation;
        assert!(control.clock.unix().0 - 60 < generation.0, "{generation:?}");
    }

    /// Lets time pass until it is so.
    async fn until(control: &Arc<Control>, is_so: impl AsyncFn() -> bool) {
        for _ in 0..1000 {
            if is_so().await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
            control.directing.ask_in_turn(Desk::tick).await;
            control.write_what_is_due().await;
        }
        panic!("it is not so");
    }
}
