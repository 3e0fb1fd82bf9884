//! One appliance's last report, and what follows from it. In memory only; bounded.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::id::{AssetVersionId, Generation, ObjectId};
use model::inventory::{Check, Delta};
use model::units::{BitsPerSecond, Bytes, Instant, Nanos};
use model::view::{Health, Load};

use crate::catalog::Version;
use crate::machines::{Hardware, Moved, Starts};

/// One report, as far as decisions need it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Drawn when the appliance's process started.
    pub start_id: u64,
    /// Grows with every report of one start.
    pub sequence: u64,
    /// Base URL for players, without trailing slash.
    pub base_url: String,
    /// The same without TLS.
    pub plain_url: Option<String>,
    /// Where siblings fetch from it, `host:port`, if it lets them.
    pub peer_address: Option<String>,
    /// Generation of the manifest in force there.
    pub generation: Generation,
    /// Generation of the manifest that all of its workers answer by; none if it does not say.
    pub served: Option<Generation>,
    pub load: Load,
    pub serving: bool,
    pub hardware: Hardware,
    pub drives_in_use: usize,
    pub drives_set_aside: usize,
    /// The capacity of the drives in use, reserve taken off.
    pub usable: Bytes,
    /// Share of its worker cores in use, 0 to 100.
    pub cpu_percent: f32,
    pub fill: BitsPerSecond,
    pub inventory: Delta,
    /// What it hears from its routers; none if it has none.
    pub routes: Option<routes::Digest>,
}

/// The director's knowledge of one appliance by its reports.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observed {
    /// The latest report, its inventory taken out.
    pub(crate) report: Report,
    pub(crate) last_report: Instant,
    /// For the view: shared, because it changes seldom.
    pub(crate) base_url: Arc<str>,
    pub(crate) plain_url: Option<Arc<str>>,
    pub(crate) peer_address: Option<Arc<str>>,
    pub(crate) probe: Probe,
    pub(crate) starts: Starts,
    /// The inventory state that the latest report led to, believed or not.
    pub(crate) told: u64,
    /// The inventory state that `held` is; 0 if none is known.
    inventory_state: u64,
    held: BTreeSet<ObjectId>,
    /// Invariant: of `held`.
    check: Check,
    /// When a full list was last asked for because of a difference.
    asked_all: Option<Instant>,
    /// Of each kept version, how many objects are not in `held`.
    missing: BTreeMap<AssetVersionId, usize>,
    /// The versions of which nothing is missing.
    pub(crate) complete: Arc<BTreeSet<AssetVersionId>>,
    /// More objects were told than are kept in memory.
    pub(crate) overflowed: bool,
    /// Sums over the reports since the last sample of the history, and how many there were.
    /// Reports may come more often than samples are taken, and none of them is left out.
    sums: Rates,
    summed: u16,
}

/// The figures of one appliance that the history shows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Rates {
    pub(crate) egress: u64,
    pub(crate) fill: u64,
    pub(crate) cpu_percent: f32,
}

/// The connection attempt that is made when a report is late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Probe {
    /// None since the last report.
    #[default]
    None,
    /// One is under way, or something answered.
    Asked,
    /// Nothing answers.
    Refused,
}

/// Why an appliance has its health, in words for an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    #[error("")]
    None,
    #[error(
        "no report since the control plane started: is the appliance running, and does its \
         [control] url lead here?"
    )]
    NoReportYet,
    /// Reports have stopped for so long.
    #[error("no report for {} ms", .0.as_millis())]
    Silent(Nanos),
    /// A report is late by so much.
    #[error("no report for {} ms, and nothing answers at its address", .0.as_millis())]
    Refused(Nanos),
    #[error("it says that it takes no new sessions")]
    NotServing,
    /// It has no drive in use, but so many set aside.
    #[error("{}", no_drive(*.0))]
    NoDrive(usize),
    /// It serves with so many drives set aside.
    #[error("{0} of its drives are set aside: its own log says why")]
    DrivesSetAside(usize),
    #[error(
        "it follows manifest generation {0}, newer than its newest here: was this control plane \
         restored from an old copy of its state? Its next one goes above that"
    )]
    Ahead(Generation),
    #[error(
        "two machines report under its identity, as after copying a disk or an image: revoke it \
         (DELETE /v1/appliances/ID/identity) and enrol each machine under a name of its own; or, \
         if the second is gone, DELETE /v1/appliances/ID/clone"
    )]
    Cloned,
    #[error("it moved to other hardware or was restored from an image: {0}")]
    Moved(Moved),
    /// It has enrolled again while its identity was good.
    #[error(
        "it enrolled again, and the identity that it had is revoked: if that was not you, revoke \
         this one too"
    )]
    Superseded,
    #[error("its identity is revoked: it has to enrol again")]
    Revoked,
    #[error("it holds more objects than the control plane keeps track of: some do not count")]
    TooManyObjects,
    /// Its drives hold less than half of the capacity that its files are planned for.
    #[error(
        "its drives can hold {reported}, and its files are planned for {planned}: repair them; or \
         say that it is so for good, and files move: nearcast appliance accept ID, which is \
         POST /v1/appliances/ID/usable"
    )]
    Slump { planned: Bytes, reported: Bytes },
}

fn no_drive(set_aside: usize) -> String {
    match set_aside {
        0 => "it has no drive: format one and name it in [drives]".to_owned(),
        count => format!("all of its {count} drives are set aside: its own log says why"),
    }
}

/// Which versions hold an object: how a delta finds what it completes.
pub(crate) type ObjectIndex = BTreeMap<ObjectId, Vec<AssetVersionId>>;

/// A full list is up to 64 MB, and one that does not help would be asked for with each report.
const ASK_ALL_EVERY: Nanos = Nanos::seconds(300);

impl Observed {
    /// Starts with an appliance's first report. Its inventory is not yet looked at.
    pub(crate) fn new(now: Instant, report: &Report, kept: &[Arc<Version>]) -> Self {
        let starts = Starts::new(report.start_id, report.sequence);
        let mut observed = Self { starts, ..Self::default() };
        observed.keep(kept);
        observed.take(now, report);
        observed
    }

    /// Two machines report: that they do is all that is taken.
    pub(crate) fn alive(&mut self, now: Instant, report: &Report) {
        self.told = report.inventory.to;
        self.last_report = now;
        self.probe = Probe::None;
    }

    /// Nothing that was said of the inventory counts any more.
    pub(crate) fn forget_inventory(&mut self) {
        self.inventory_state = 0;
    }

    /// Takes over all but the inventory. A new start forgets what the old process held.
    pub(crate) fn take(&mut self, now: Instant, report: &Report) {
        if report.start_id != self.report.start_id {
            self.inventory_state = 0;
        }
        if *self.base_url != *report.base_url {
            self.base_url = report.base_url.as_str().into();
        }
        if self.plain_url.as_deref() != report.plain_url.as_deref() {
            self.plain_url = report.plain_url.as_deref().map(Into::into);
        }
        if self.peer_address.as_deref() != report.peer_address.as_deref() {
            self.peer_address = report.peer_address.as_deref().map(Into::into);
        }
        self.told = report.inventory.to;
        self.report = Report { inventory: Delta::default(), ..report.clone() };
        self.last_report = now;
        self.probe = Probe::None;
        self.sums.egress = self.sums.egress.saturating_add(report.load.egress.0);
        self.sums.fill = self.sums.fill.saturating_add(report.fill.0);
        self.sums.cpu_percent += report.cpu_percent;
        self.summed = self.summed.saturating_add(1);
    }

    /// The means since this was last asked; the latest report's values if none came since.
    pub(crate) fn take_rates(&mut self) -> Rates {
        let Rates { egress, fill, cpu_percent } = std::mem::take(&mut self.sums);
        let count = std::mem::take(&mut self.summed);
        if count == 0 {
            let Report { load, fill, cpu_percent, .. } = &self.report;
            return Rates { egress: load.egress.0, fill: fill.0, cpu_percent: *cpu_percent };
        }
        let mean = |sum: u64| sum / u64::from(count);
        let cpu_percent = cpu_percent / f32::from(count);
        Rates { egress: mean(egress), fill: mean(fill), cpu_percent }
    }

    /// Applies a delta if it starts from the known state, or is a full list. Else it is left out,
    /// and the reply's [`inventory_state`](Self::inventory_state) makes the appliance repeat it.
    ///
    /// True if `held` differs from the appliance's own check now. Then a full list is asked for,
    /// seldom enough that one which does not help costs little. Nothing else would ever mend it:
    /// the numbers of states say that nothing was missed.
    pub(crate) fn apply(
        &mut self,
        now: Instant,
        delta: &Delta,
        index: &ObjectIndex,
        kept: &[Arc<Version>],
        most: usize,
    ) -> bool {
        if delta.from == 0 {
            self.held = delta.held.iter().copied().take(most).collect();
            self.check = Check::of(&self.held);
            self.overflowed = most < delta.held.len();
            self.missing.clear();
            self.keep(kept);
        } else if delta.from == self.inventory_state {
            for object in &delta.gone {
                if self.held.remove(object) {
                    self.check.take(object);
                    self.count(object, index, false);
                }
            }
            for object in &delta.held {
                self.overflowed |= most <= self.held.len();
                if self.held.len() < most && self.held.insert(*object) {
                    self.check.put(object);
                    self.count(object, index, true);
                }
            }
        } else {
            return false;
        }
        assert!(self.held.len() <= most, "no more objects than are kept track of");
        assert_eq!(self.check.count, Bytes::of(self.held.len()).0, "the check is of what is held");
        self.inventory_state = delta.to;
        let differs = !self.overflowed && delta.check.is_some_and(|check| check != self.check);
        let is_due = self.asked_all.is_none_or(|at| ASK_ALL_EVERY <= now.since(at));
        if differs && is_due {
            self.asked_all = Some(now);
            self.inventory_state = 0;
        }
        differs
    }

    /// Counts what is missing of the kept versions, if that is not known yet: a look at the objects
    /// of those that are new.
    pub(crate) fn keep(&mut self, kept: &[Arc<Version>]) {
        let known = std::mem::take(&mut self.missing);
        let missing = |version: &Version| {
            let count = || version.objects().iter().filter(|of| !self.held.contains(of)).count();
            known.get(version.id()).copied().unwrap_or_else(count)
        };
        self.missing =
            kept.iter().map(|version| (version.id().clone(), missing(version))).collect();
        let complete = self.missing.iter().filter(|(_, missing)| **missing == 0);
        self.complete = Arc::new(complete.map(|(id, _)| id.clone()).collect());
        assert!(self.complete.len() <= kept.len(), "only what is kept is complete");
    }

    fn count(&mut self, object: &ObjectId, index: &ObjectIndex, held: bool) {
        for version in index.get(object).into_iter().flatten() {
            let Some(missing) = self.missing.get_mut(version) else { continue };
            *missing = if held { missing.saturating_sub(1) } else { *missing + 1 };
            if held && *missing == 0 {
                Arc::make_mut(&mut self.complete).insert(version.clone());
            } else if !held && *missing == 1 {
                Arc::make_mut(&mut self.complete).remove(version);
            }
        }
    }

    pub(crate) fn inventory_state(&self) -> u64 {
        self.inventory_state
    }

    pub(crate) fn holds(&self, object: &ObjectId) -> bool {
        self.held.contains(object)
    }

    pub(crate) fn held_count(&self) -> usize {
        self.held.len()
    }

    /// Health and its cause, by the clock and the newest generation published here.
    pub(crate) fn health(
        &self,
        now: Instant,
        stale_after: Nanos,
        generation: Generation,
    ) -> (Health, Cause) {
        let silent = now.since(self.last_report);
        let report = &self.report;
        if self.probe == Probe::Refused {
            (Health::Stale, Cause::Refused(silent))
        } else if stale_after < silent {
            (Health::Stale, Cause::Silent(silent))
        } else if report.drives_in_use == 0 {
            (Health::Unhealthy, Cause::NoDrive(report.drives_set_aside))
        } else if !report.serving {
            (Health::Draining, Cause::NotServing)
        } else if generation < report.generation {
            (Health::Healthy, Cause::Ahead(report.generation))
        } else if self.overflowed {
            (Health::Healthy, Cause::TooManyObjects)
        } else if report.drives_set_aside != 0 {
            (Health::Healthy, Cause::DrivesSetAside(report.drives_set_aside))
        } else {
            (Health::Healthy, Cause::None)
        }
    }
}

impl Cause {
    /// True if both are the same apart from how long they have lasted.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}
