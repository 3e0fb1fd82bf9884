//! One appliance's last report, and what follows from it. In memory only; bounded.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::id::{Generation, ObjectId};
use model::inventory::{Check, Delta, FilesDelta};
use model::number::NumberSet;
use model::units::{BitsPerSecond, Bytes, Instant, Nanos};
use model::view::{Health, Load};
use routes::Digest;

use crate::drain::End;
use crate::files::Files;
use crate::machines::{Hardware, Moved, Starts};
use partial::Counted;

mod partial;

/// What an appliance says that it hears from its routers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hears {
    /// None if it does not know yet, as after its start: what was known before stands.
    pub digest: Option<Digest>,
    /// It cannot hear now: this is of before.
    pub is_old: bool,
    /// So far behind the routers it may be while all is well.
    pub behind: Nanos,
}

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
    /// Generation of the trust document in force there, 0 for none; none if it reads keys and
    /// revoked certificates in its manifest.
    pub trust: Option<Generation>,
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
    /// Objects held by their ids, of an appliance that tells no numbers.
    pub inventory: Delta,
    /// Files held by number: what counts, where it is there.
    pub files: Option<FilesDelta>,
    /// Of the files that came, where they are all: a hash for each, which is worked out where
    /// nobody waits for it.
    pub came: Check,
    /// What it hears from its routers; none if it has none.
    pub routes: Option<Hears>,
    /// The middle share of those that other processes of the control plane told it of late, in
    /// thousandths.
    pub told_share: Option<u32>,
    /// The same of its titles' sessions.
    pub told_titles: Option<u32>,
    /// The share that this process, or that which had its place before, told it of late.
    pub own_share: Option<u32>,
    /// The same of its titles' sessions.
    pub own_titles: Option<u32>,
}

impl Report {
    /// The inventory state that it leads to.
    pub(crate) fn state(&self) -> u64 {
        self.files.as_ref().map_or(self.inventory.to, |files| files.to)
    }
}

/// The figures of the latest report.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Said {
    pub(crate) generation: Generation,
    pub(crate) trust: Option<Generation>,
    pub(crate) load: Load,
    serving: bool,
    drives_in_use: usize,
    drives_set_aside: usize,
    cpu_percent: f32,
    fill: BitsPerSecond,
    pub(crate) routes: Option<Hears>,
}

/// The director's knowledge of one appliance by its reports.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observed {
    pub(crate) said: Said,
    pub(crate) last_report: Instant,
    /// When a report last said that it fetches.
    pub(crate) fetched: Option<Instant>,
    /// For the view: shared, because it changes seldom.
    pub(crate) base_url: Arc<str>,
    pub(crate) plain_url: Option<Arc<str>>,
    pub(crate) peer_address: Option<Arc<str>>,
    pub(crate) probe: Probe,
    pub(crate) starts: Starts,
    start_id: u64,
    /// When its first report came, of whatever start.
    pub(crate) since: Instant,
    /// When the first report of that start came.
    pub(crate) begun: Instant,
    /// The inventory state that the latest report led to, believed or not.
    pub(crate) told: u64,
    /// The inventory state that is known; 0 if none is.
    inventory_state: u64,
    /// Files that it holds, by number.
    held: NumberSet,
    /// They were told by number: then they are what was told, and nothing that is derived from it,
    /// and some may be of versions that are not known here, or not any more.
    by_number: bool,
    /// Objects that it holds and no version has: there are few, until they are evicted. None are
    /// known of an appliance that tells numbers.
    others: BTreeSet<ObjectId>,
    /// Objects that it holds beside those that it gives numbers of.
    others_count: u64,
    /// Invariant: of `held`, if it was told by number; else of the objects of `held` and `others`.
    check: Check,
    /// When a full list was last asked for because of a difference.
    asked_all: Option<Instant>,
    /// The kept versions of which nothing is missing, by number.
    pub(crate) complete: Arc<NumberSet>,
    /// The renditions of which nothing is missing, by number, of kept versions that are not whole.
    pub(crate) renditions: Arc<NumberSet>,
    counted: Counted,
    /// More objects of no version were told than are kept in memory.
    pub(crate) overflowed: bool,
    /// Sums over the reports since the last sample of the history, and how many there were.
    /// Reports may come more often than samples are taken, and none of them is left out.
    sums: Rates,
    summed: u16,
}

/// Versions, and renditions of others, of which nothing is missing. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wholes {
    pub(crate) versions: Arc<NumberSet>,
    pub(crate) renditions: Arc<NumberSet>,
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
    #[error("an operator has it drained: players leave it, and what is under way ends")]
    Drains,
    #[error("{}", drained(.0))]
    Drained(End),
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
        "it follows trust document generation {0}, newer than the newest here, and the next one \
         goes above that for all: was this control plane restored from an old copy of its state? \
         If not, somebody may have that appliance"
    )]
    AheadOfTrust(Generation),
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

impl Cause {
    /// Whether somebody else may have the appliance's identity.
    pub fn is_of_identity(&self) -> bool {
        matches!(
            self,
            Self::Cloned
                | Self::Moved(_)
                | Self::Superseded
                | Self::Revoked
                | Self::AheadOfTrust(_)
        )
    }
}

fn drained(end: &End) -> String {
    match end {
        End::Quiet => "an operator has it drained, and next to nothing leaves it: it may be \
                       stopped"
            .to_owned(),
        End::Late(egress) => format!(
            "an operator has it drained, its time is over, and it still sent {egress}: what is \
             under way when it is stopped is broken off"
        ),
    }
}

fn no_drive(set_aside: usize) -> String {
    match set_aside {
        0 => "it has no drive: format one and name it in [drives]".to_owned(),
        count => format!("all of its {count} drives are set aside: its own log says why"),
    }
}

/// What an inventory is compared with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known<'a> {
    pub(crate) files: &'a Files,
    /// The versions that should be held somewhere.
    pub(crate) kept: &'a NumberSet,
    /// Most objects of no version that are remembered of one appliance.
    pub(crate) others_max: usize,
}

/// A full list is up to 64 MB, and one that does not help would be asked for with each report.
const ASK_ALL_EVERY: Nanos = Nanos::seconds(300);

impl Observed {
    /// Starts with an appliance's first report. Its inventory is not yet looked at.
    pub(crate) fn new(
        now: Instant,
        report: &Report,
        most: Option<BitsPerSecond>,
        known: Known<'_>,
    ) -> Self {
        let starts = Starts::new(report.start_id, report.sequence);
        let mut observed = Self { starts, since: now, ..Self::default() };
        observed.complete = Arc::new(known.files.empty() & known.kept);
        observed.take(now, report, most);
        observed
    }

    /// Two machines report: that they do is all that is taken.
    pub(crate) fn alive(&mut self, now: Instant, report: &Report) {
        self.told = report.state();
        self.last_report = now;
        self.probe = Probe::None;
    }

    /// Nothing that was said of the inventory counts any more.
    pub(crate) fn forget_inventory(&mut self) {
        self.inventory_state = 0;
    }

    /// Takes over all but the inventory, of one that serves at most this by an operator's word. A
    /// new start forgets what the old process held. True if it has another address than before.
    pub(crate) fn take(
        &mut self,
        now: Instant,
        report: &Report,
        most: Option<BitsPerSecond>,
    ) -> bool {
        if report.start_id != self.start_id {
            (self.start_id, self.begun) = (report.start_id, now);
            self.inventory_state = 0;
        }
        let mut has_moved = *self.base_url != *report.base_url;
        if has_moved {
            self.base_url = report.base_url.as_str().into();
        }
        let addresses = [
            (&mut self.plain_url, &report.plain_url),
            (&mut self.peer_address, &report.peer_address),
        ];
        for (known, told) in addresses {
            if known.as_deref() != told.as_deref() {
                *known = told.as_deref().map(Into::into);
                has_moved = true;
            }
        }
        self.told = report.state();
        self.said = Said {
            generation: report.generation,
            trust: report.trust,
            load: limited(report.load, most),
            serving: report.serving,
            drives_in_use: report.drives_in_use,
            drives_set_aside: report.drives_set_aside,
            cpu_percent: report.cpu_percent,
            fill: report.fill,
            routes: report.routes,
        };
        self.last_report = now;
        if report.fill != BitsPerSecond(0) {
            self.fetched = Some(now);
        }
        self.probe = Probe::None;
        self.sums.egress = self.sums.egress.saturating_add(report.load.egress.0);
        self.sums.fill = self.sums.fill.saturating_add(report.fill.0);
        self.sums.cpu_percent += report.cpu_percent;
        self.summed = self.summed.saturating_add(1);
        has_moved
    }

    /// The means since this was last asked; the latest report's values if none came since.
    pub(crate) fn take_rates(&mut self) -> Rates {
        let Rates { egress, fill, cpu_percent } = std::mem::take(&mut self.sums);
        let count = std::mem::take(&mut self.summed);
        if count == 0 {
            let Said { load, fill, cpu_percent, .. } = &self.said;
            return Rates { egress: load.egress.0, fill: fill.0, cpu_percent: *cpu_percent };
        }
        let mean = |sum: u64| sum / u64::from(count);
        let cpu_percent = cpu_percent / f32::from(count);
        Rates { egress: mean(egress), fill: mean(fill), cpu_percent }
    }

    /// Applies a delta if it starts from the known state, or is a full list. Else it is left out,
    /// and the reply's [`inventory_state`](Self::inventory_state) makes the appliance repeat it.
    /// O(objects in the delta), whatever is held and whatever there is.
    ///
    /// True if what is known differs from the appliance's own check now. Then a full list is asked
    /// for, seldom enough that one which does not help costs little. Nothing else would ever mend
    /// it: the numbers of states say that nothing was missed.
    pub(crate) fn apply(&mut self, now: Instant, delta: &Delta, known: Known<'_>) -> bool {
        if delta.from == 0 {
            (self.by_number, self.others_count) = (false, 0);
            self.hold_all(&delta.held, known);
        } else if delta.from == self.inventory_state && !self.by_number {
            self.hold_and_lose(delta, known);
        } else {
            self.forget_unless(!self.by_number);
            return false;
        }
        assert!(self.others.len() <= known.others_max, "no more objects than are remembered");
        self.inventory_state = delta.to;
        let differs = !self.overflowed && delta.check.is_some_and(|check| check != self.check);
        let is_due = self.asked_all.is_none_or(|at| ASK_ALL_EVERY <= now.since(at));
        if differs && is_due {
            self.asked_all = Some(now);
            self.inventory_state = 0;
        }
        differs
    }

    /// The same of a delta by number, in sets: O(ranges + versions that they touch, with their
    /// renditions), and a hash for each file that came or is gone. All has its check with it.
    ///
    /// True if its own check does not fit. Then all is asked for, which is a few KB; and if all
    /// does not fit itself, none of it counts: its numbers would mean something else here.
    pub(crate) fn apply_files(
        &mut self,
        delta: &FilesDelta,
        came: Check,
        known: Known<'_>,
    ) -> bool {
        let is_whole = delta.from == 0;
        if !is_whole && (delta.from != self.inventory_state || !self.by_number) {
            self.forget_unless(self.by_number);
            return false;
        }
        if is_whole {
            self.others.clear();
            (self.by_number, self.overflowed) = (true, false);
            self.check = came;
            self.held =
                if self.check == delta.check { delta.came.clone() } else { NumberSet::new() };
            self.held.optimize();
            self.count_whole(known);
        } else {
            self.gain_and_lose(delta, known);
        }
        let differs = self.check != delta.check;
        if self.held.is_empty() {
            self.check = Check::default();
        }
        self.others_count = delta.others;
        self.inventory_state = if differs { 0 } else { delta.to };
        differs
    }

    /// A delta does not begin where the last one ended. From there on it may be repeated, if that
    /// was told in the same way.
    fn forget_unless(&mut self, same_way: bool) {
        if !same_way {
            self.inventory_state = 0;
        }
    }

    /// Its numbers are of a manifest that is not known here: they may mean other files.
    pub(crate) fn disbelieve(&mut self, known: Known<'_>) {
        self.inventory_state = 0;
        if self.by_number {
            (self.held, self.check) = (NumberSet::new(), Check::default());
            self.count_whole(known);
        }
    }

    fn gain_and_lose(&mut self, delta: &FilesDelta, known: Known<'_>) {
        let lost = &self.held & &delta.gone;
        self.held -= &lost;
        let won = &delta.came - &self.held;
        self.held |= &won;
        lost.iter().for_each(|file| self.check.take_file(file));
        won.iter().for_each(|file| self.check.put_file(file));
        self.recount_changed(&won, &lost, known);
    }

    /// Works out anew which versions are whole, and which renditions, of those that have files
    /// among these. O(those, and the renditions of the versions).
    fn recount_changed(&mut self, won: &NumberSet, lost: &NumberSet, known: Known<'_>) {
        for version in versions_of(&(lost | won), known.files) {
            self.move_renditions(version, known, (won, lost));
            self.recount(version, known);
        }
    }

    /// Works out anew which versions are whole, and which renditions of others. O(versions of which
    /// something is held, and the files of those that are not whole).
    fn count_whole(&mut self, known: Known<'_>) {
        let Known { files, kept, .. } = known;
        let mut complete = files.empty() & kept;
        self.forget_all_renditions();
        let some_held: Vec<u32> = versions_of(&self.held, files).collect();
        for version in some_held {
            if kept.contains(version) && self.is_whole(version, files) {
                complete.insert(version);
            }
            self.recount_renditions(version, known);
        }
        if *self.complete != complete {
            self.complete = Arc::new(complete);
        }
    }

    /// These are all that it holds.
    fn hold_all(&mut self, objects: &[ObjectId], known: Known<'_>) {
        let Known { files, others_max, .. } = known;
        (self.check, self.overflowed) = (Check::default(), false);
        self.others.clear();
        let mut numbers = Vec::with_capacity(objects.len());
        for object in objects {
            let mut of_object = files.of(object).peekable();
            if of_object.peek().is_some() {
                numbers.extend(of_object.map(|file| (file, object)));
            } else if self.others.len() < others_max {
                self.others.insert(*object);
            } else {
                self.overflowed |= !self.others.contains(object);
            }
        }
        numbers.sort_unstable_by_key(|(file, _)| *file);
        numbers.dedup_by_key(|(file, _)| *file);
        // An object counts once, however many versions have it.
        for (file, object) in &numbers {
            if files.of(object).next() == Some(*file) {
                self.check.put(object);
            }
        }
        self.others.iter().for_each(|object| self.check.put(object));
        let numbers = numbers.into_iter().map(|(file, _)| file);
        self.held = NumberSet::from_sorted_iter(numbers).expect("they are sorted, each once");
        self.held.optimize();
        self.count_whole(known);
    }

    fn hold_and_lose(&mut self, delta: &Delta, known: Known<'_>) {
        let files = known.files;
        let (mut won, mut lost) = (NumberSet::new(), NumberSet::new());
        for object in &delta.gone {
            let (mut is_known, mut was_held) = (false, false);
            for file in files.of(object) {
                is_known = true;
                if self.held.remove(file) {
                    was_held = true;
                    lost.insert(file);
                }
            }
            if was_held || !is_known && self.others.remove(object) {
                self.check.take(object);
            }
        }
        for object in &delta.held {
            let (mut is_known, mut is_new) = (false, false);
            for file in files.of(object) {
                is_known = true;
                if self.held.insert(file) {
                    is_new = true;
                    won.insert(file);
                }
            }
            if !is_known {
                let is_full = known.others_max <= self.others.len();
                self.overflowed |= is_full && !self.others.contains(object);
                is_new = !is_full && self.others.insert(*object);
            }
            if is_new {
                self.check.put(object);
            }
        }
        self.recount_changed(&won, &lost, known);
    }

    /// Looks whether a version is whole here.
    fn recount(&mut self, version: u32, known: Known<'_>) {
        let is_whole = known.kept.contains(version) && self.is_whole(version, known.files);
        if is_whole != self.complete.contains(version) {
            let complete = Arc::make_mut(&mut self.complete);
            if is_whole {
                complete.insert(version)
            } else {
                complete.remove(version)
            };
        }
    }

    fn is_whole(&self, version: u32, files: &Files) -> bool {
        let range = files.range(version);
        self.held.range_cardinality(range.clone()) == Bytes::of(range.len()).0
    }

    /// A version has come into the catalogue. `twins` are its files whose objects other versions
    /// have too, each with the number that it has there. O(what it holds of it).
    pub(crate) fn version_came(&mut self, version: u32, twins: &[(u32, u32)], files: &Files) {
        if self.by_number {
            return;
        }
        self.held.extend(
            twins
                .iter()
                .filter(|(_, twin)| self.held.contains(*twin))
                .map(|t| t.0)
                .collect::<Vec<_>>(),
        );
        let Some(of) = files.version(version).filter(|_| !self.others.is_empty()) else { return };
        // Counted they are already: they only get numbers.
        let (range, objects) = (files.range(version), of.objects());
        if objects.len() <= self.others.len() {
            for (file, object) in range.zip(objects) {
                if self.others.remove(object) {
                    self.held.insert(file);
                }
            }
        } else {
            let held = &mut self.held;
            self.others.retain(|object| match objects.binary_search(object) {
                Ok(at) => {
                    held.extend((range.start..).nth(at));
                    false
                }
                Err(_) => true,
            });
        }
    }

    /// A version is about to leave the catalogue: what it alone has becomes objects of no version.
    pub(crate) fn version_goes(&mut self, version: u32, files: &Files, others_max: usize) {
        if self.by_number {
            return; // it says itself when they are gone, and nobody else gets their numbers
        }
        let range = files.range(version);
        let held: Vec<u32> = self.held.range(range.clone()).collect();
        self.held.remove_range(range.clone());
        assert_eq!(self.held.range_cardinality(range.clone()), 0, "none of its files is held");
        for file in held {
            let object = files.object(file).expect("it has not left yet");
            if files.of(object).any(|twin| !range.contains(&twin)) {
                continue;
            }
            if self.others.len() < others_max {
                self.others.insert(*object);
            } else {
                self.check.take(object);
                self.overflowed = true;
            }
        }
    }

    /// Versions that `came` should be held from now on, and `lost` ones no longer: what it held
    /// before, if that is different now. O(those).
    pub(crate) fn keep(
        &mut self,
        came: &NumberSet,
        lost: &NumberSet,
        known: Known<'_>,
    ) -> Option<Wholes> {
        let before = self.wholes();
        let is_whole = |version: &u32| self.is_whole(*version, known.files);
        let gained: NumberSet = came.iter().filter(is_whole).collect();
        if !gained.is_empty() || !self.complete.is_disjoint(lost) {
            let complete = Arc::make_mut(&mut self.complete);
            *complete |= gained;
            *complete -= lost;
            assert!(complete.is_subset(known.kept), "no other versions count");
        }
        self.keep_renditions(came, lost, known);
        (!before.is(&self.wholes())).then_some(before)
    }

    /// What it holds.
    pub(crate) fn wholes(&self) -> Wholes {
        let (versions, renditions) = (Arc::clone(&self.complete), Arc::clone(&self.renditions));
        Wholes { versions, renditions }
    }

    pub(crate) fn inventory_state(&self) -> u64 {
        self.inventory_state
    }

    /// True if it holds one of these, which are numbers of one object.
    pub(crate) fn holds(&self, files: &[u32]) -> bool {
        files.iter().any(|file| self.held.contains(*file))
    }

    /// The files that it said that it holds.
    pub(crate) fn files_held(&self) -> Option<&NumberSet> {
        self.by_number.then_some(&self.held)
    }

    /// The word on it that counts here, of those that others told it and of this process's own
    /// from before its start. The own one counts with the first report only, or a process would
    /// hear itself; those of others until players have asked again, where it is new here.
    pub(crate) fn word(
        &self,
        now: Instant,
        settle: Nanos,
        others: Option<u32>,
        own: Option<u32>,
    ) -> Option<u64> {
        let (is_first, is_new) = (now == self.since, now.since(self.since) < settle);
        others.filter(|_| is_new).or_else(|| own.filter(|_| is_first)).map(u64::from)
    }

    pub(crate) fn held_count(&self) -> usize {
        let count = self.check.count.saturating_add(self.others_count);
        usize::try_from(count).unwrap_or(usize::MAX)
    }

    /// The same without those that it only says it has, which nobody can name.
    pub(crate) fn known_count(&self) -> usize {
        usize::try_from(self.check.count).unwrap_or(usize::MAX)
    }

    /// Health and its cause, by the clock and the newest generation published here.
    pub(crate) fn health(
        &self,
        now: Instant,
        stale_after: Nanos,
        generation: Generation,
    ) -> (Health, Cause) {
        let silent = now.since(self.last_report);
        let said = &self.said;
        if self.probe == Probe::Refused {
            (Health::Stale, Cause::Refused(silent))
        } else if stale_after < silent {
            (Health::Stale, Cause::Silent(silent))
        } else if said.drives_in_use == 0 {
            (Health::Unhealthy, Cause::NoDrive(said.drives_set_aside))
        } else if !said.serving {
            (Health::Draining, Cause::NotServing)
        } else if generation < said.generation {
            (Health::Healthy, Cause::Ahead(said.generation))
        } else if self.overflowed {
            (Health::Healthy, Cause::TooManyObjects)
        } else if said.drives_set_aside != 0 {
            (Health::Healthy, Cause::DrivesSetAside(said.drives_set_aside))
        } else {
            (Health::Healthy, Cause::None)
        }
    }
}

/// The load, with its egress against an operator's figure where the cards say no speed, or more.
fn limited(load: Load, most: Option<BitsPerSecond>) -> Load {
    let cards = Some(load.egress_max).filter(|max| *max != BitsPerSecond(0));
    Load { egress_max: cards.into_iter().chain(most).min().unwrap_or_default(), ..load }
}

/// The versions that these are files of. O(versions): of those that are not known here nothing
/// follows, and they cost one step together.
fn versions_of<'a>(set: &'a NumberSet, files: &'a Files) -> impl Iterator<Item = u32> + 'a {
    let mut from = Some(0);
    std::iter::from_fn(move || {
        loop {
            let file = set.range(from?..).next()?;
            if let Some(version) = files.version_at(file) {
                from = Some(files.range(version).end);
                return Some(version);
            }
            from = files.next_after(file);
        }
    })
}

impl Wholes {
    /// True of the very same: nothing has changed.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.versions, &other.versions)
            && Arc::ptr_eq(&self.renditions, &other.renditions)
    }
}

impl Cause {
    /// The same, with how long the silence has lasted by now.
    pub(crate) fn lasting(self, silent: Option<Nanos>) -> Self {
        match (self, silent) {
            (Self::Silent(_), Some(silent)) => Self::Silent(silent),
            (Self::Refused(_), Some(silent)) => Self::Refused(silent),
            (other, _) => other,
        }
    }

    /// True if both are the same apart from how long they have lasted.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}
