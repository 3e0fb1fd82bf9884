//! Parts of demand go into the database, and forecasts come out of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use director::{Event, Expected};
use model::id::ApplianceId;
use model::units::{Hour, UnixSeconds};
use popularity::Bounds;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use wire::v1::demand::DemandPart;

use super::Control;
use crate::state::demand::{self, AT_ONCE, Known, NotCounted, Told};
use crate::state::store::{Mark, StoreError, cluster_of};

/// How often somebody looks whether it is time for another forecast.
const FORECAST_LOOK: Duration = Duration::from_secs(60);

impl Control {
    /// Counts a part, and waits until it is on the drive: the number of the last one that is.
    pub(crate) async fn take_demand(
        &self,
        appliance: ApplianceId,
        part: DemandPart,
    ) -> Result<u64, NotCounted> {
        let (answer, answered) = oneshot::channel();
        let shed = || {
            self.metrics.demand_parts_shed.count();
            NotCounted::Busy
        };
        match self.demand.queue.try_send(Told { appliance, part, answer }) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Closed(_)) => return Err(shed()),
        }
        match answered.await {
            Ok(Some(Mark::Counted { last, .. })) => Ok(last),
            Ok(Some(Mark::Unknown)) => Err(NotCounted::Unknown),
            Ok(None) | Err(_) => Err(shed()),
        }
    }

    /// Counts what comes, until the process ends.
    pub(crate) async fn count_demand(self: &Arc<Self>) {
        if self.is_front() {
            return;
        }
        let mut waiting = self.demand.waiting.lock().await;
        let mut told = Vec::with_capacity(AT_ONCE);
        while 0 < waiting.recv_many(&mut told, AT_ONCE).await {
            self.count_some(std::mem::take(&mut told)).await;
        }
    }

    async fn count_some(&self, told: Vec<Told>) {
        let (snapshot, now) = (self.snapshot(), self.clock.unix());
        let by_item = move || demand::by_item(&snapshot, now, told);
        let told = spawn_blocking(by_item).await.expect("nothing in it panics");
        let parts = told.iter().map(|(part, ..)| part.clone()).collect();
        let marks = match self.store.count_demand(parts, Bounds::default()).await {
            Ok(marks) => marks.into_iter().map(Some).collect(),
            Err(error) => {
                self.store_failed(&error);
                vec![None; told.len()]
            }
        };
        for ((part, lost, answer), mark) in told.into_iter().zip(marks) {
            match mark {
                Some(Mark::Counted { is_new: true, .. }) => {
                    self.metrics.demand_parts.count();
                    self.metrics.demand_bytes.add(part.sums.total().0);
                    self.metrics.demand_bytes_lost.add(lost.0);
                }
                Some(Mark::Counted { is_new: false, .. }) => {
                    self.metrics.demand_parts_again.count();
                }
                Some(Mark::Unknown) | None => {}
            }
            // Who asked may be gone; the next try is told the mark.
            let _ = answer.send(mark);
        }
        self.forget_demand(Hour::at(now)).await;
    }

    /// Forgets what is too old, once an hour.
    async fn forget_demand(&self, now: Hour) {
        if self.demand.forgotten.swap(now.0, Ordering::Relaxed) == now.0 {
            return;
        }
        let (hours, days) = demand::oldest(now);
        if let Err(error) = self.store.forget_demand(hours, days).await {
            self.store_failed(&error);
        }
    }

    /// Tells the director what viewers are expected to watch: at a start what was expected last,
    /// so that a restart moves nothing, and every day what is new. Until the process ends.
    pub(crate) async fn expect_demand(self: &Arc<Self>) {
        if self.is_front() {
            return;
        }
        let mut done = match self.store.expected().await {
            Ok(kept) => kept.map(|(at, _)| at),
            Err(error) => {
                self.store_failed(&error);
                None
            }
        };
        loop {
            let at = demand::last_forecast(self.clock.unix());
            if done != Some(at) {
                match self.forecast(at).await {
                    Ok(()) => done = Some(at),
                    Err(error) => self.store_failed(&error),
                }
            }
            sleep(FORECAST_LOOK).await;
        }
    }

    /// Tells the director what viewers are expected to watch by what is known at this time, and
    /// keeps it for the next start.
    pub(crate) async fn forecast(&self, at: UnixSeconds) -> Result<(), StoreError> {
        let expected = self.expected(at).await?;
        self.store.put_expected(demand::last_forecast(at), &expected).await?;
        self.handle(Event::Expected(Arc::new(expected))).await;
        Ok(())
    }

    /// What viewers of each region are expected to watch on the day that begins after this time.
    async fn expected(&self, at: UnixSeconds) -> Result<Expected, StoreError> {
        let mut expected = Expected::default();
        for region in self.store.demand_regions().await? {
            let spans = self.store.demand(&region).await?;
            let snapshot = self.snapshot();
            let ask = move || demand::wanted(&snapshot.catalog, at, spans);
            let wanted = spawn_blocking(ask).await.expect("nothing in it panics");
            if let Some(region) = cluster_of(&region) {
                expected.regions.insert(region, wanted);
            }
        }
        Ok(expected)
    }

    /// The regions of which anything is known.
    pub(crate) async fn demand_regions(&self) -> Result<Vec<String>, StoreError> {
        self.store.demand_regions().await
    }

    /// What is known of a region, and what is expected of it on the next day that begins. O(what is
    /// kept of it + versions), with a back-test seven times that.
    pub(crate) async fn popularity(
        &self,
        region: &str,
        with_backtest: bool,
    ) -> Result<Known, StoreError> {
        let spans = self.store.demand(region).await?;
        let (snapshot, now) = (self.snapshot(), self.clock.unix());
        let ask = move || demand::known(&snapshot.catalog, now, spans, with_backtest);
        Ok(spawn_blocking(ask).await.expect("nothing in it panics"))
    }
}
