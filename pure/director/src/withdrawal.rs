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
#[cfg(test)]
use model::units::Bytes;
use model::units::{Instant, UnixSeconds};

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

    /// Nobody waits for the receipt of an appliance that is gone; what it signed stays.
    pub(crate) fn sign_no_more(&mut self, id: &ApplianceId) {
        if self.receipts.get(id).is_some_and(Option::is_none) {
            self.receipts.remove(id);
        }
    }
}

/// Withdrawals by appliance.
type Unsigned = BTreeMap<ApplianceId, BTreeMap<u64, Option<Generation>>>;

/// State that follows from withdrawals and windows.
#[derive(Debug, Default)]
pub(crate) struct Takedown {
    /// The withdrawals that each appliance has still to sign, and from which generation of its
    /// manifests on. No generation before manifests without it are stored.
    pub(crate) unsigned: Unsigned,
    /// Those of `unsigned` without a generation.
    unsettled: BTreeSet<(ApplianceId, u64)>,
    /// Versions beyond those that are held, since when.
    superseded: BTreeMap<AssetVersionId, Instant>,
    /// When the windows of versions end, of those that do.
    ends: BTreeMap<AssetVersionId, UnixSeconds>,
    /// The same in the order of time. Invariant: those of `ends`.
    by_end: BTreeSet<(UnixSeconds, AssetVersionId)>,
    /// All that is listed as withdrawn.
    pub(crate) withdrawn: Arc<BTreeSet<AssetVersionId>>,
    /// When the shell was last told which versions have to go.
    said_at: Option<Instant>,
    /// Receipts and windows that were looked at.
    #[cfg(test)]
    pub(crate) looked_at: u64,
}

impl Takedown {
    /// A withdrawal is not listed any more. O(appliances + versions withdrawn).
    fn forget(&mut self, dropped: &Withdrawal) {
        let withdrawn = Arc::make_mut(&mut self.withdrawn);
        for version in dropped.versions.keys() {
            withdrawn.remove(version);
        }
        for id in dropped.receipts.keys() {
            self.unsettled.remove(&(id.clone(), dropped.id));
            let Some(pending) = self.unsigned.get_mut(id) else { continue };
            pending.remove(&dropped.id);
            if pending.is_empty() {
                self.unsigned.remove(id);
            }
        }
        #[cfg(test)]
        {
            self.looked_at += Bytes::of(dropped.receipts.len()).0;
        }
    }
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

    /// All withdrawals are new, or some have lost a version. O(withdrawals x appliances).
    pub(crate) fn look_at_withdrawals(&mut self) {
        self.drop_withdrawals();
        let before = std::mem::take(&mut self.takedown.unsigned);
        self.takedown.unsettled.clear();
        self.takedown.withdrawn = Arc::default();
        let all: Vec<u64> = self.desired.withdrawals.keys().copied().collect();
        for number in all {
            self.await_receipts(number, &before);
        }
    }

    /// A withdrawal is new. O(appliances + versions withdrawn).
    pub(crate) fn withdrawn(&mut self, number: u64) {
        for dropped in self.drop_withdrawals() {
            // The newest may be the one that is dropped: then nothing is known of it here.
            self.takedown.forget(&dropped);
        }
        self.await_receipts(number, &BTreeMap::new());
    }

    /// Nobody waits for receipts of an appliance that is gone for good.
    pub(crate) fn sign_no_more(&mut self, id: &ApplianceId) {
        for number in self.takedown.unsigned.remove(id).into_iter().flatten().map(|of| of.0) {
            self.takedown.unsettled.remove(&(id.clone(), number));
        }
    }

    /// Those beyond the most that are listed.
    fn drop_withdrawals(&mut self) -> Vec<Withdrawal> {
        let max = self.config.withdrawals_max;
        let dropped = drop_beyond(&mut self.desired.withdrawals, max);
        if !dropped.is_empty() {
            let numbers = dropped.iter().map(|withdrawal| withdrawal.id).collect();
            self.actions.push_back(Action::ForgetWithdrawals(numbers));
        }
        dropped
    }

    /// Its versions are withdrawn, and its receipts are awaited; from the generations on that were
    /// known before. Nothing, if it is not listed. O(appliances + versions withdrawn).
    fn await_receipts(&mut self, number: u64, before: &Unsigned) {
        let Some(withdrawal) = self.desired.withdrawals.get(&number) else { return };
        let Takedown { unsigned, unsettled, withdrawn, .. } = &mut self.takedown;
        Arc::make_mut(withdrawn).extend(withdrawal.versions.keys().cloned());
        let missing = withdrawal.receipts.iter().filter(|(_, receipt)| receipt.is_none());
        for (id, _) in missing {
            let since = before.get(id).and_then(|all| all.get(&number)).copied().flatten();
            unsigned.entry(id.clone()).or_default().insert(number, since);
            if since.is_none() {
                unsettled.insert((id.clone(), number));
            }
        }
        #[cfg(test)]
        {
            self.takedown.looked_at += Bytes::of(withdrawal.receipts.len()).0;
        }
    }

    /// Manifests are as desired state wants them, and stored: from these generations on the
    /// appliances are without what was withdrawn before. O(receipts without a generation).
    pub(crate) fn settle_withdrawals(&mut self) {
        let Role::Writer(publisher) = &self.role else { return };
        if publisher.is_staged() || !self.planning.is_done() {
            return;
        }
        let Takedown {
            unsigned,
            unsettled,
            #[cfg(test)]
            looked_at,
            ..
        } = &mut self.takedown;
        unsettled.retain(|(id, number)| {
            #[cfg(test)]
            {
                *looked_at += 1;
            }
            let since = unsigned.get_mut(id).and_then(|pending| pending.get_mut(number));
            let Some(since) = since else { return false };
            let is_to_wait = publisher.is_to_be_overtaken(id);
            if !is_to_wait {
                let generation = publisher.manifest(id).map_or(Generation(0), |m| m.generation);
                *since = since.or(Some(generation));
            }
            is_to_wait
        });
    }

    /// The appliance follows a manifest that is not known here: nobody knows which versions it is
    /// without, until its next one is stored.
    pub(crate) fn unsettle_withdrawals(&mut self, id: &ApplianceId) {
        let Takedown { unsigned, unsettled, .. } = &mut self.takedown;
        for (number, since) in unsigned.get_mut(id).into_iter().flatten() {
            *since = None;
            unsettled.insert((id.clone(), *number));
        }
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

    /// Acts as the clock asks: versions go whose windows are over, and those that no playback can
    /// use any more. O(versions whose windows are over and those beyond the ones that are held),
    /// once a second.
    pub(crate) fn go_on_with_withdrawals(&mut self, now: Instant) {
        let is_said = self.takedown.said_at.is_some_and(|said| now.since(said) < SAY_AGAIN_AFTER);
        if is_said || matches!(self.role, Role::Replica(_)) {
            return;
        }
        let by_end = self.takedown.by_end.iter();
        let over = by_end.take_while(|(until, _)| *until <= self.now_unix);
        let ended: Vec<_> = over.map(|(_, id)| id.clone()).collect();
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

    /// The catalogue has changed: which versions are beyond those that are held, since when, and
    /// when they may be shown. O(touched).
    pub(crate) fn look_at_versions(&mut self, now: Instant, touched: &Touched) {
        let Takedown {
            superseded,
            ends,
            by_end,
            #[cfg(test)]
            looked_at,
            ..
        } = &mut self.takedown;
        let catalog = &self.desired.catalog;
        for id in &touched.versions {
            #[cfg(test)]
            {
                *looked_at += 1;
            }
            let until = catalog.version(id).and_then(|version| version.window.until);
            let before = match until {
                Some(until) => ends.insert(id.clone(), until),
                None => ends.remove(id),
            };
            if let Some(before) = before {
                by_end.remove(&(before, id.clone()));
            }
            by_end.extend(until.map(|until| (until, id.clone())));
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
        assert_eq!(ends.len(), by_end.len(), "each ends once");
    }
}

impl Config {
    /// No playback can use a version that has not been offered since then.
    fn is_useless(&self, now: Instant, since: Instant) -> bool {
        self.tokens_max < now.since(since)
    }
}

/// Drops entries above `max`: the oldest that is complete, else the oldest. Returns those dropped.
fn drop_beyond(withdrawals: &mut BTreeMap<u64, Withdrawal>, max: usize) -> Vec<Withdrawal> {
    let mut dropped = Vec::new();
    while max < withdrawals.len() {
        let complete = withdrawals.values().find(|w| w.is_complete()).map(|w| w.id);
        let oldest = withdrawals.keys().next().copied();
        let Some(id) = complete.or(oldest) else { break };
        dropped.extend(withdrawals.remove(&id));
    }
    assert!(withdrawals.len() <= max, "the list is bounded");
    dropped
}
