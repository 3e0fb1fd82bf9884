//! Parts of demand go into the database, and forecasts come out of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use director::{Event, Expected};
use model::id::ApplianceId;
use model::units::{Bytes, Hour, UnixSeconds};
use popularity::Bounds;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use wire::v1::demand::DemandPart;

use super::Control;
use crate::state::demand::{self, AT_ONCE, Known, NotCounted, Part, Region, Told};
use crate::state::directing::{Busy, Desk};
use crate::state::store::{Mark, StoreError, cluster_of};

/// One is made at a time.
static FORECASTS: Semaphore = Semaphore::const_new(1);
/// How often somebody looks whether it is time for another forecast.
const FORECAST_LOOK: Duration = Duration::from_secs(60);

impl Control {
    /// Counts a part of an identity, and waits until it is on the drive: the number of the last one
    /// that is.
    pub(crate) async fn take_demand(
        &self,
        appliance: ApplianceId,
        key: &str,
        part: DemandPart,
    ) -> Result<u64, NotCounted> {
        // To mark it would lose it: whose clock is wrong is not known, and clocks are set right.
        if Hour::at(self.clock.unix()) <= Hour(part.hour) {
            return Err(NotCounted::NotOver);
        }
        let shed = || {
            self.metrics.demand_parts_shed.count();
            NotCounted::Busy
        };
        let taken = self.demand.of_each.take(&appliance).ok_or_else(shed)?;
        let most = self.part_bytes_max(appliance.clone()).await.map_err(|_| shed())?;
        let bytes = part.bytes.iter().fold(part.beyond_bytes, |all, of| all.saturating_add(*of));
        if most < Bytes(bytes) {
            self.metrics.demand_parts_refused.count();
            return Err(NotCounted::TooMuch(most));
        }
        let (answer, answered) = oneshot::channel();
        let key = key.to_owned();
        match self.demand.queue.try_send(Told { appliance, key, part, taken, answer }) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Closed(_)) => return Err(shed()),
        }
        match answered.await {
            Ok(Some(Mark::Counted { last, .. })) => Ok(last),
            Ok(Some(Mark::Late)) => Err(NotCounted::Late),
            Ok(Some(Mark::Unknown)) => Err(NotCounted::Unknown),
            Ok(None) | Err(_) => Err(shed()),
        }
    }

    /// Bytes of a part of this appliance at most, by what an operator says of it or its profile.
    async fn part_bytes_max(&self, id: ApplianceId) -> Result<Bytes, Busy> {
        let serves = move |desk: &Desk, _| {
            let desired = desk.director.desired();
            let appliance = &desired.appliances.get(&id)?.appliance;
            desired.policy.able(appliance).throughput
        };
        Ok(demand::part_bytes_max(self.directing.ask(serves).await?))
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
        let (parts, asked): (Vec<_>, Vec<_>) = told.into_iter().unzip();
        let totals: Vec<_> = parts.iter().map(|part| part.sums.total()).collect();
        let marks = match self.store.count_demand(parts, Bounds::default(), now).await {
            Ok(marks) => marks.into_iter().map(Some).collect(),
            Err(error) => {
                self.store_failed(&error);
                vec![None; asked.len()]
            }
        };
        for (((lost, taken, answer), total), mark) in asked.into_iter().zip(totals).zip(marks) {
            match mark {
                Some(Mark::Counted { is_new: true, .. }) => {
                    self.metrics.demand_parts.count();
                    self.metrics.demand_bytes.add(total.0);
                    self.metrics.demand_bytes_lost.add(lost.0);
                }
                Some(Mark::Counted { is_new: false, .. }) => {
                    self.metrics.demand_parts_again.count();
                }
                Some(Mark::Late) => self.metrics.demand_parts_late.count(),
                Some(Mark::Unknown) | None => {}
            }
            drop(taken);
            // Who asked may be gone; the next try is told the mark.
            let _ = answer.send(mark);
        }
    }

    /// Forgets what is too old; false if the database did not.
    async fn forget_demand(&self, now: Hour) -> bool {
        let (hours, days) = demand::oldest(now);
        let forgotten = self.store.forget_demand(now, hours, days).await;
        match &forgotten {
            Ok(0) => {}
            Ok(rows) => {
                tracing::info!(rows, "hours and days of demand are too old, and forgotten");
            }
            Err(error) => self.store_failed(error),
        }
        forgotten.is_ok()
    }

    /// Tells the director what viewers are expected to watch: at a start what was expected last,
    /// so that a restart moves nothing, and every day what is new. Each hour what is too old is
    /// forgotten. Until the process ends.
    pub(crate) async fn expect_demand(self: &Arc<Self>) {
        if self.is_front() {
            return;
        }
        let mut done = match self.store.expected_at().await {
            Ok(kept) => kept,
            Err(error) => {
                self.store_failed(&error);
                None
            }
        };
        let mut forgotten = None;
        loop {
            let hour = Hour::at(self.clock.unix());
            if forgotten != Some(hour) && self.forget_demand(hour).await {
                forgotten = Some(hour);
            }
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
        // Two at once would be told in any order, and take twice the memory.
        let _turn = FORECASTS.acquire().await.expect("it is never closed");
        let expected = self.expected(at).await?;
        self.store.put_expected(demand::last_forecast(at), &expected).await?;
        self.handle(Event::Expected(Arc::new(expected))).await;
        Ok(())
    }

    /// What viewers of each region are expected to watch on the day that begins after this time.
    async fn expected(&self, at: UnixSeconds) -> Result<Expected, StoreError> {
        let mut expected = Expected::default();
        let listed = Arc::new(self.listed().await);
        let mut regions = self.store.demand_regions().await?;
        if listed.has_launches() {
            // Of others nothing is known, and launches are expected there all the same.
            regions.extend(self.regions_of_sites().into_keys());
            regions.sort_unstable();
            regions.dedup();
        }
        let parts = self.parts(&listed, at).await?;
        for region in regions {
            let Some(cluster) = cluster_of(&region) else { continue };
            let spans = self.store.demand(&region).await?;
            let listed = Arc::clone(&listed);
            let part = parts(&region);
            let ask = move || demand::wanted(&listed, part, at, spans);
            let wanted = spawn_blocking(ask).await.expect("nothing in it panics");
            expected.regions.insert(cluster, wanted);
        }
        Ok(expected)
    }

    /// What forecasts need of the catalogue and of what operators say.
    async fn listed(&self) -> demand::Listed {
        let snapshot = self.snapshot();
        let look = |desk: &mut Desk, _| Arc::clone(&desk.director.desired().wishes);
        let wishes = self.directing.ask_in_turn(look).await;
        let list = move || demand::Listed::of(&snapshot.catalog, &wishes);
        spawn_blocking(list).await.expect("nothing in it panics")
    }

    /// Regions with appliances, and how many. O(appliances).
    fn regions_of_sites(&self) -> BTreeMap<String, u64> {
        let snapshot = self.snapshot();
        let mut regions = BTreeMap::new();
        for site in snapshot.view.sites.iter() {
            let count = Bytes::of(site.appliances.len()).0;
            if count != 0 {
                *regions.entry(demand::region_of(&snapshot, &site.id)).or_default() += count;
            }
        }
        regions
    }

    /// The part of the fleet's viewers that each region has: of what was sent in the week before;
    /// where nothing was, of the appliances. O(regions + appliances), where it matters.
    async fn parts(
        &self,
        listed: &demand::Listed,
        at: UnixSeconds,
    ) -> Result<impl Fn(&str) -> Part + use<>, StoreError> {
        let mut known = BTreeMap::new();
        if listed.has_bytes() {
            known = self.store.demand_totals(demand::week_before(at)).await?;
            if known.values().all(|bytes| *bytes == 0) {
                known = self.regions_of_sites();
            }
        }
        let all = known.values().fold(0, |all: u64, bytes| all.saturating_add(*bytes));
        Ok(move |region: &str| Part { bytes: known.get(region).copied().unwrap_or(0), all })
    }

    /// The regions of which anything is known.
    pub(crate) async fn demand_regions(&self) -> Result<Vec<String>, StoreError> {
        self.store.demand_regions().await
    }

    /// What is known of a region, and what is expected of it on the next day that begins. O(what is
    /// kept of it + versions), with a back-test seven times that.
    /// `turn` is held until that is done.
    pub(crate) async fn popularity(
        &self,
        region: &str,
        with_backtest: bool,
        turn: impl Send + 'static,
    ) -> Result<Known, StoreError> {
        let spans = self.store.demand(region).await?;
        let (listed, now) = (self.listed().await, self.clock.unix());
        let part = self.parts(&listed, now).await?(region);
        let region = Region { part, is_plan: false };
        let ask = move || {
            let _turn = turn;
            demand::known(&listed, region, now, spans, with_backtest)
        };
        Ok(spawn_blocking(ask).await.expect("nothing in it panics"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::store::CountedPart;
    use crate::state::writer::tests::open;
    use model::topology::{Appliance, Site, Weight};
    use popularity::{Span, Sums};

    fn part(hour: Hour) -> DemandPart {
        DemandPart { number: 1, hour: hour.0, files: vec![1], bytes: vec![5], beyond_bytes: 0 }
    }

    #[tokio::test]
    async fn what_is_too_old_is_forgotten_though_no_part_comes() {
        let (_directory, control) = open("").await;
        let (site, appliance) = ("s1".parse().unwrap(), "a1".parse().unwrap());
        control.store.put_site(&Site::new(site, vec![])).await.unwrap();
        let site = "s1".parse().unwrap();
        control.store.put_appliance(&Appliance::new(appliance, site, Weight::ONE)).await.unwrap();
        let now = Hour::at(control.clock.unix());
        let of = |number, hour| CountedPart {
            appliance: "a1".parse().unwrap(),
            key: String::new(),
            number,
            region: "-".to_owned(),
            spans: [Span::Hour(hour), Span::Day(hour)],
            sums: Sums::default(),
        };
        let parts = vec![of(1, now.before(1000)), of(2, now.before(1))];
        let at = control.clock.unix();
        control.store.count_demand(parts, Bounds::default(), at).await.unwrap();
        let looks = async {
            while 2 < control.store.demand("-").await.unwrap().len() {
                sleep(Duration::from_millis(1)).await;
            }
        };
        let looks = tokio::time::timeout(Duration::from_secs(10), looks);
        tokio::select! {
            looked = looks => looked.expect("it is forgotten"),
            () = control.expect_demand() => unreachable!("it does not end"),
        }
    }

    #[tokio::test]
    async fn parts_beyond_the_queue_are_shed_and_what_is_told_again_is_counted_once() {
        let (_directory, control) = open("").await;
        let site = Site::new("s1".parse().unwrap(), vec![]);
        control.set_site(site).await.unwrap();
        let a1: ApplianceId = "a1".parse().unwrap();
        let appliance = Appliance::new(a1.clone(), "s1".parse().unwrap(), Weight::ONE);
        control.set_appliance(appliance).await.unwrap();
        let part = part(Hour::at(control.clock.unix()).before(1));
        let metrics = &control.metrics;
        let counted = || (metrics.demand_parts.value(), metrics.demand_parts_again.value());
        // Nobody counts yet: as many wait as the queue takes, and the next one is shed.
        let permits = control.demand.queue.reserve_many(control.demand.queue.max_capacity());
        let permits = permits.await.unwrap();
        let take = || control.take_demand(a1.clone(), "k1", part.clone());
        assert_eq!(take().await, Err(NotCounted::Busy));
        assert_eq!(metrics.demand_parts_shed.value(), 1);
        drop(permits);
        let counting = async {
            assert_eq!((take().await, counted()), (Ok(1), (1, 0)));
            assert_eq!((take().await, counted()), (Ok(1), (1, 1)));
            assert_eq!(metrics.demand_bytes.value(), 0, "of no item of the catalogue");
            assert_eq!(metrics.demand_bytes_lost.value(), 5, "once");
        };
        tokio::select! {
            () = counting => {}
            () = control.count_demand() => unreachable!("it does not end"),
        }
        assert_eq!(metrics.demand_parts_shed.value(), 1);
    }

    #[tokio::test]
    async fn one_part_of_an_appliance_waits_and_leaves_room_to_others() {
        let (_directory, control) = open("").await;
        let now = Hour::at(control.clock.unix());
        let take = |id: &str, ago| {
            let (control, part) = (control.clone(), part(now.before(ago)));
            let id: ApplianceId = id.parse().unwrap();
            tokio::spawn(async move { control.take_demand(id, "k1", part).await })
        };
        // Nobody counts yet. Who leaves is not done with: its part is read all the same.
        let (first, other) = (take("a1", 2), take("a2", 1));
        while control.demand.queue.capacity() + 2 != control.demand.queue.max_capacity() {
            tokio::task::yield_now().await;
        }
        first.abort();
        let second = tokio::time::timeout(Duration::from_secs(10), take("a1", 1)).await;
        assert_eq!(second.expect("it does not wait").unwrap(), Err(NotCounted::Busy));
        assert_eq!(control.metrics.demand_parts_shed.value(), 1);
        let counting = async {
            assert_eq!(other.await.unwrap(), Err(NotCounted::Unknown));
            assert_eq!(take("a1", 1).await.unwrap(), Err(NotCounted::Unknown));
        };
        tokio::select! {
            () = counting => {}
            () = control.count_demand() => unreachable!("it does not end"),
        }
    }

    #[tokio::test]
    async fn an_appliance_tells_no_more_than_it_can_send() {
        let (_directory, control) = open("").await;
        control.set_site(Site::new("s1".parse().unwrap(), vec![])).await.unwrap();
        let able = |gbps: u64| Some(model::units::BitsPerSecond(gbps * 1_000_000_000));
        for (id, throughput) in [("a1", None), ("a2", able(10)), ("a3", able(0))] {
            let (id, site) = (id.parse().unwrap(), "s1".parse().unwrap());
            let mut appliance = Appliance::new(id, site, Weight::ONE);
            appliance.own.throughput = throughput;
            control.set_appliance(appliance).await.unwrap();
        }
        let part = part(Hour::at(control.clock.unix()).before(1));
        let told = async |id: &str, bytes: u64| {
            let part = DemandPart { bytes: vec![bytes - 7], beyond_bytes: 7, ..part.clone() };
            control.take_demand(id.parse().unwrap(), "k1", part).await
        };
        let telling = async {
            for (id, gbps) in [("a1", 400), ("a2", 10), ("a3", 1)] {
                let most = gbps * 1_000_000_000 / 8 * 3600 * 4;
                assert_eq!(told(id, most + 1).await, Err(NotCounted::TooMuch(Bytes(most))), "{id}");
                assert_eq!(told(id, u64::MAX).await, Err(NotCounted::TooMuch(Bytes(most))));
                assert_eq!(told(id, most).await, Ok(1), "{id}");
            }
        };
        tokio::select! {
            () = telling => {}
            () = control.count_demand() => unreachable!("it does not end"),
        }
        assert_eq!(control.metrics.demand_parts_refused.value(), 6);
    }

    #[tokio::test]
    async fn a_part_whose_hour_is_not_over_is_not_marked() {
        let (_directory, control) = open("").await;
        let now = Hour::at(control.clock.unix());
        let counting = async {
            let a1: ApplianceId = "a1".parse().unwrap();
            let counted = async |hour| control.take_demand(a1.clone(), "k1", part(hour)).await;
            (counted(now.after(1)).await, counted(now.before(1)).await)
        };
        tokio::select! {
            both = counting => {
                assert_eq!(both, (Err(NotCounted::NotOver), Err(NotCounted::Unknown)));
            }
            () = control.count_demand() => unreachable!("it does not end"),
        }
    }
}
