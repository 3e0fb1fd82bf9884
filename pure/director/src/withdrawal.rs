//! Titles that are taken down, the appliances that confirmed it, and when versions may be shown.
//!
//! ```text
//! operator, or the end of a window ──> durable ──> Change::Withdrawn ──> catalogue without it
//!   ──> manifests without it, stored ──> from which generation on, appliance by appliance
//!   ──> a report: all workers there answer by that generation or a later one ──> a receipt
//! ```
//!
//! A receipt is what an appliance says of itself, over its own certificate: it is worth what that
//! appliance is worth (SECURITY.md). Refusing does not wait for receipts, and needs no list: what
//! is not in a manifest is not served by whoever has that manifest.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::id::{ApplianceId, AssetId, AssetVersionId, Generation};
use model::units::{Instant, UnixSeconds};

use crate::catalog::Window;
use crate::kept::Touched;
use crate::observed::Report;
use crate::{Action, Config, Director, Role, SAY_AGAIN_AFTER};

/// Versions that were taken down at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Withdrawal {
    /// Its number; grows.
    pub id: u64,
    pub at: UnixSeconds,
    pub reason: Reason,
    /// Shared by copies of desired state.
    pub versions: Arc<BTreeMap<AssetVersionId, AssetId>>,
    /// Every appliance that was registered then and is still, or has signed; none for one that has
    /// not signed.
    pub receipts: BTreeMap<ApplianceId, Option<Receipt>>,
}

/// Why versions were taken down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    Operator,
    Ended,
}

/// An appliance's statement that it refuses the versions withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    pub at: UnixSeconds,
    /// The manifest that all of its workers answer by.
    pub generation: Generation,
}

impl Withdrawal {
    /// True when nobody has to sign any more.
    pub fn is_complete(&self) -> bool {
        self.receipts.values().all(Option::is_some)
    }
}

/// State that follows from withdrawals and windows.
#[derive(Debug, Default)]
pub(crate) struct Takedown {
    /// The withdrawals that each appliance has still to sign, and from which generation of its
    /// manifests on. No generation before manifests without it are stored.
    unsigned: BTreeMap<ApplianceId, BTreeMap<u64, Option<Generation>>>,
    /// Versions beyond those that are held, since when.
    superseded: BTreeMap<AssetVersionId, Instant>,
    /// When versions may be shown, of those that may not always.
    windows: BTreeMap<AssetVersionId, Window>,
    /// When a window opens or closes next.
    next_edge: Option<UnixSeconds>,
    /// All that is listed as withdrawn.
    pub(crate) withdrawn: Arc<BTreeSet<AssetVersionId>>,
    /// Versions whose window is over, and that nobody has withdrawn yet.
    over: Vec<AssetVersionId>,
    /// When the shell was last told which versions have to go.
    said_at: Option<Instant>,
}

impl Director {
    /// Receipts that are awaited, of all appliances and withdrawals.
    pub fn unsigned_count(&self) -> usize {
        self.takedown.unsigned.values().map(BTreeMap::len).sum()
    }

    /// True if this version is beyond those that are held, and was for so long that no playback can
    /// use it.
    pub fn is_superseded(&self, now: Instant, version: &AssetVersionId) -> bool {
        let since = self.takedown.superseded.get(version);
        since.is_some_and(|since| self.config.is_useless(now, *since))
    }

    /// After withdrawals, or appliances that have to sign, have changed. O(withdrawals x
    /// appliances).
    pub(crate) fn look_at_withdrawals(&mut self) {
        let max = self.config.withdrawals_max;
        let dropped = drop_beyond(&mut self.desired.withdrawals, max);
        if !dropped.is_empty() {
            self.actions.push_back(Action::ForgetWithdrawals(dropped));
        }
        let withdrawals = self.desired.withdrawals.values();
        let names = withdrawals.clone().flat_map(|withdrawal| withdrawal.versions.keys().cloned());
        self.takedown.withdrawn = Arc::new(names.collect());
        let mut unsigned: BTreeMap<ApplianceId, BTreeMap<_, _>> = BTreeMap::new();
        for withdrawal in withdrawals {
            let missing = withdrawal.receipts.iter().filter(|(_, receipt)| receipt.is_none());
            for (id, _) in missing {
                let known = self.takedown.unsigned.get(id).and_then(|all| all.get(&withdrawal.id));
                let since = known.copied().flatten();
                unsigned.entry(id.clone()).or_default().insert(withdrawal.id, since);
            }
        }
        let awaits_some = |pending: &BTreeMap<_, _>| !pending.is_empty();
        assert!(unsigned.values().all(awaits_some), "whoever is listed has something to sign");
        self.takedown.unsigned = unsigned;
    }

    /// Manifests are as desired state wants them, and stored: from these generations on the
    /// appliances are without what was withdrawn before.
    pub(crate) fn settle_withdrawals(&mut self) {
        let Role::Writer(publisher) = &self.role else { return };
        if publisher.is_staged() || !self.planning.is_done() {
            return;
        }
        for (id, pending) in &mut self.takedown.unsigned {
            if publisher.is_to_be_overtaken(id) {
                continue;
            }
            let generation = publisher.manifest(id).map_or(Generation(0), |m| m.generation);
            pending.values_mut().for_each(|since| *since = since.or(Some(generation)));
            assert!(!pending.is_empty(), "whoever has signed all is not listed");
        }
    }

    /// The appliance follows a manifest that is not known here: nobody knows which versions it is
    /// without, until its next one is stored.
    pub(crate) fn unsettle_withdrawals(&mut self, id: &ApplianceId) {
        let pending = self.takedown.unsigned.get_mut(id).into_iter().flatten();
        pending.for_each(|(_, since)| *since = None);
    }

    /// Takes the receipts that are in a report. O(receipts it owes).
    pub(crate) fn sign_withdrawals(&mut self, id: &ApplianceId, report: &Report) {
        let Role::Writer(publisher) = &self.role else { return };
        let Some(pending) = self.takedown.unsigned.get_mut(id) else { return };
        let newest = publisher.manifest(id).map_or(Generation(0), |m| m.generation);
        let Some(generation) = report.served.filter(|served| *served <= newest) else { return };
        let receipt = Receipt { at: self.now_unix, generation };
        let mut signed = Vec::new();
        pending.retain(|withdrawal, since| {
            let is_signed = since.is_some_and(|since| since <= generation);
            signed.extend(is_signed.then_some(*withdrawal));
            !is_signed
        });
        if pending.is_empty() {
            self.takedown.unsigned.remove(id);
        }
        assert!(receipt.generation <= newest, "no receipt speaks of an unknown manifest");
        for withdrawal in signed {
            if let Some(known) = self.desired.withdrawals.get_mut(&withdrawal) {
                known.receipts.insert(id.clone(), Some(receipt));
            }
            let appliance = id.clone();
            self.actions.push_back(Action::StoreReceipt { withdrawal, appliance, receipt });
        }
    }

    /// Acts as the clock asks: windows open and close, and versions that no playback can use any
    /// more go. O(versions beyond those that are held), once a second.
    pub(crate) fn go_on_with_withdrawals(&mut self, now: Instant) {
        if self.takedown.next_edge.is_some_and(|edge| edge <= self.now_unix) {
            self.look_at_windows();
        }
        let is_said = self.takedown.said_at.is_some_and(|said| now.since(said) < SAY_AGAIN_AFTER);
        if is_said || matches!(self.role, Role::Replica(_)) {
            return;
        }
        let ended = self.takedown.over.clone();
        let superseded = self.takedown.superseded.iter();
        let superseded = superseded.filter(|(_, since)| self.config.is_useless(now, **since));
        let superseded: Vec<_> = superseded.map(|(id, _)| id.clone()).collect();
        self.takedown.said_at = Some(now);
        if !ended.is_empty() {
            self.say_again(Action::WithdrawEnded(ended));
        }
        if !superseded.is_empty() {
            self.say_again(Action::RemoveSuperseded(superseded));
        }
    }

    /// Looks whose window is over, and when another opens or closes. O(versions that have one).
    fn look_at_windows(&mut self) {
        let now = self.now_unix;
        let windows = &self.takedown.windows;
        let over = windows.iter().filter(|(_, window)| window.is_over(now));
        self.takedown.over = over.map(|(id, _)| id.clone()).collect();
        let edges = windows.values().flat_map(|window| [window.from, window.until]);
        self.takedown.next_edge = match now {
            UnixSeconds(0) => Some(UnixSeconds(1)),
            now => edges.flatten().filter(|edge| now < *edge).min(),
        };
        let is_ahead = |edge: UnixSeconds| now < edge;
        assert!(self.takedown.next_edge.is_none_or(is_ahead), "an edge that is due was looked at");
    }

    /// The catalogue has changed: which versions are beyond those that are held, since when, and
    /// when they may be shown. O(touched).
    pub(crate) fn look_at_versions(&mut self, now: Instant, touched: &Touched) {
        let Takedown { superseded, windows, .. } = &mut self.takedown;
        let catalog = &self.desired.catalog;
        for id in &touched.versions {
            let window = catalog.version(id).map(|version| version.window).unwrap_or_default();
            if window == Window::default() {
                windows.remove(id);
            } else {
                windows.insert(id.clone(), window);
            }
            if catalog.version(id).is_none() {
                superseded.remove(id);
            }
        }
        let all = touched.assets.iter().flat_map(|asset| catalog.versions(asset));
        for version in all.filter(|_| matches!(self.role, Role::Writer(_))) {
            let number = self.files.number(version.id());
            if number.is_some_and(|number| self.kept_numbers.contains(number)) {
                superseded.remove(version.id());
            } else {
                superseded.entry(version.id().clone()).or_insert(now);
            }
        }
        assert!(superseded.len() <= catalog.version_count(), "those of the catalogue");
        self.look_at_windows();
    }
}

impl Config {
    /// No playback can use a version that has not been offered since then.
    fn is_useless(&self, now: Instant, since: Instant) -> bool {
        self.tokens_max < now.since(since)
    }
}

/// Drops entries above `max`: the oldest that is complete, else the oldest. Returns those dropped.
fn drop_beyond(withdrawals: &mut BTreeMap<u64, Withdrawal>, max: usize) -> Vec<u64> {
    let mut dropped = Vec::new();
    while max < withdrawals.len() {
        let complete = withdrawals.values().find(|w| w.is_complete()).map(|w| w.id);
        let oldest = withdrawals.keys().next().copied();
        let Some(id) = complete.or(oldest) else { break };
        withdrawals.remove(&id);
        dropped.push(id);
    }
    assert!(withdrawals.len() <= max, "the list is bounded");
    dropped
}
