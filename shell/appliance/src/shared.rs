//! What the storage threads share: which objects there are, which are wanted, who works on which.
//!
//! One lock, held for as long as it takes to change some maps, never during I/O. The serve path
//! takes no part: each worker has its own index and is told of changes through the update sink,
//! which is called under the lock so that updates arrive in the order in which they happened.
//!
//! An object is worked on by whoever *claimed* it (a filler, the keeper, the audit) and by nobody
//! else until it is released.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fill::plan::{self, Actual, Fetch};
use fill::rate::Limiter;
use model::extent::{DriveIndex, Extent};
use model::id::{ApplianceId, Generation, ObjectId};
use model::limits::SMALL_OBJECT_MAX;
use model::manifest::{Manifest, TokenKey};
use model::object::BlockHash;
use model::units::{Bytes, Instant, Nanos, UnixSeconds};
use store::index::Index;
use store::inventory::{Delta, Inventory, InventoryState};
use store::layout;
use store::silence::Turn;

use crate::drives::{Drive, DriveError, lock};
use crate::member::Own;
use crate::peer::PeerCounters;
use crate::places::Shunned;
use crate::scrub;
use crate::storage::{Config, Counters};
use worker::Update;

/// What all threads see.
pub(crate) struct Shared {
    pub(crate) config: Config,
    /// Who this appliance is.
    pub(crate) own: Arc<Own>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) slots: Vec<Slot>,
    /// Bytes of whole blocks that came from sources since the start.
    pub(crate) fetched: AtomicU64,
    /// Of these, from siblings.
    pub(crate) from_siblings: AtomicU64,
    /// What siblings got from here.
    pub(crate) peer: PeerCounters,
    pub(crate) shunned: Shunned,
    pub(crate) integrity: Integrity,
    /// How far each drive is scrubbed, in the order of `slots`.
    scrubs: Vec<scrub::Progress>,
    started: std::time::Instant,
    limiter: Option<Mutex<Limiter>>,
    stopping: AtomicBool,
    state: Mutex<State>,
    /// Told when there is something to fetch or to plan, and when all must stop.
    changed: Condvar,
    /// Told when there is a sample, and when all must stop.
    sampled: Condvar,
}

/// One configured drive.
pub(crate) enum Slot {
    /// Opened.
    Open(Box<Drive>),
    /// Refused when it was to be opened, and why.
    Refused(String),
}

/// What is true now.
struct State {
    index: Index,
    inventory: Inventory,
    /// Drives that hang, a bit each: what is on them is not in the inventory.
    hung: u64,
    manifest: Option<Arc<Manifest>>,
    /// Who else in the site can serve, by what control said last.
    siblings: Arc<BTreeMap<ApplianceId, Arc<str>>>,
    /// Objects of the manifest and their lengths.
    wanted: BTreeMap<ObjectId, Bytes>,
    progress: Progress,
    /// Part files, by object.
    parts: BTreeMap<ObjectId, Part>,
    plan_report: plan::Report,
    errors: VecDeque<Noted>,
    busy: BTreeSet<ObjectId>,
    /// Objects given up for a while: until when, and how often so far.
    postponed: BTreeMap<ObjectId, (Instant, u32)>,
    queue: VecDeque<Fetch>,
    replan: bool,
    /// Objects that somebody doubts. Invariant: at most `SUSPECTS_MAX`.
    suspects: BTreeMap<ObjectId, Doubt>,
    /// Blocks that viewers were sent, to be verified. Invariant: at most `SAMPLES_MAX`.
    samples: VecDeque<Sample>,
    /// Objects whose bytes workers have in memory.
    small: BTreeMap<ObjectId, Bytes>,
    /// Invariant: the sum of `small`.
    small_used: Bytes,
    sink: Box<dyn FnMut(Update) + Send>,
}

/// Why an object is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// Somebody could not read it, or read something else: all of it is verified.
    Suspect,
    /// The drive says itself that it cannot be read, in these words.
    Unreadable(String),
}

/// A block that a viewer was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// On which drive.
    pub drive: DriveIndex,
    /// Of which object.
    pub object: ObjectId,
    /// How long that is.
    pub object_len: Bytes,
    /// Which block.
    pub block: u64,
    /// What the bytes that were sent hash to; none if they were not a whole block.
    pub hash: Option<BlockHash>,
}

/// What was found to be right and wrong since the start.
#[derive(Debug, Default)]
pub(crate) struct Integrity {
    pub(crate) scrubbed_objects: AtomicU64,
    pub(crate) scrubbed_bytes: AtomicU64,
    pub(crate) samples: AtomicU64,
    pub(crate) samples_wrong: AtomicU64,
    pub(crate) objects_set_aside: AtomicU64,
}

/// A part file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) drive: DriveIndex,
    /// What of it is known to be good.
    pub(crate) verified: Bytes,
}

/// How far the manifest is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) objects_wanted: u64,
    pub(crate) objects_held: u64,
    pub(crate) bytes_wanted: Bytes,
    pub(crate) bytes_held: Bytes,
    /// Verified bytes of part files.
    pub(crate) bytes_partial: Bytes,
}

/// An error for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Noted {
    pub(crate) at: UnixSeconds,
    pub(crate) room: &'static str,
    pub(crate) text: String,
}

/// An object to fetch, claimed.
pub(crate) struct Claim {
    pub(crate) fetch: Fetch,
    /// A part of it that is there already.
    pub(crate) part: Option<Part>,
}

/// What a keeper has to do after planning.
#[derive(Default)]
pub(crate) struct Chores {
    pub(crate) evict: Vec<ObjectId>,
    pub(crate) drop_parts: Vec<(ObjectId, DriveIndex)>,
    /// Objects that somebody doubts.
    pub(crate) suspects: BTreeMap<ObjectId, Doubt>,
}

/// What the audit should do with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileStanding {
    /// The index has it here.
    Indexed,
    /// Somebody is working on it.
    Busy,
    /// The index has the object on another drive. Claimed for the caller.
    Spare,
    /// The index does not have the object, the manifest wants it. Claimed for the caller.
    Missing,
    /// Neither has it. Claimed for the caller.
    Unwanted,
    /// Not in the index, and what is wanted is not known.
    Unknown,
}

/// Planning looks at so many objects at once; the rest comes with the next plan.
const PLAN: plan::Config = plan::Config { fetch_max: 1024, evict_max: 256, urls_max: 8 };
/// Control asks at least every few minutes; a change log of this length lasts that long.
const INVENTORY_CHANGES_MAX: usize = 16_384;
/// The wire takes 20.
const ERRORS_MAX: usize = 20;
/// Suspects beyond this are left to the scrub.
const SUSPECTS_MAX: usize = 1024;
/// Samples beyond this are dropped: there will be others.
const SAMPLES_MAX: usize = 256;
/// First wait before an object that was given up is tried again; doubles with each time.
const POSTPONE_FIRST: Nanos = Nanos::seconds(2);
/// Longest such wait.
const POSTPONE_MAX: Nanos = Nanos::seconds(120);
/// A plan is made again at least so often while something is wanted: room may have come free.
const PLAN_EVERY: Duration = Duration::from_secs(5);
/// What the limiter lets through at once: a fifth of a second, at least four blocks.
const BURST_SHARE: Nanos = Nanos::millis(200);

impl Shared {
    pub(crate) fn new(
        config: Config,
        own: Arc<Own>,
        slots: Vec<Slot>,
        sink: Box<dyn FnMut(Update) + Send>,
        counters: Arc<Counters>,
    ) -> Self {
        let burst = |rate: model::units::BitsPerSecond| rate.over(BURST_SHARE).max(Bytes::mib(1));
        let limiter = config.fill.rate_max.map(|rate| Mutex::new(Limiter::new(rate, burst(rate))));
        let state = State {
            index: Index::new(),
            inventory: Inventory::new(INVENTORY_CHANGES_MAX),
            hung: 0,
            manifest: None,
            siblings: Arc::default(),
            wanted: BTreeMap::new(),
            progress: Progress::default(),
            parts: BTreeMap::new(),
            plan_report: plan::Report::default(),
            errors: VecDeque::new(),
            busy: BTreeSet::new(),
            postponed: BTreeMap::new(),
            queue: VecDeque::new(),
            replan: true,
            suspects: BTreeMap::new(),
            samples: VecDeque::new(),
            small: BTreeMap::new(),
            small_used: Bytes::ZERO,
            sink,
        };
        let scrubs = slots.iter().map(|_| scrub::Progress::default()).collect();
        Self {
            config,
            own,
            counters,
            slots,
            scrubs,
            fetched: AtomicU64::new(0),
            from_siblings: AtomicU64::new(0),
            peer: PeerCounters::default(),
            shunned: Shunned::default(),
            integrity: Integrity::default(),
            started: std::time::Instant::now(),
            limiter,
            stopping: AtomicBool::new(false),
            state: Mutex::new(state),
            changed: Condvar::new(),
            sampled: Condvar::new(),
        }
    }

    /// Time since the start.
    pub(crate) fn now(&self) -> Instant {
        Instant(0) + Nanos::from(self.started.elapsed())
    }

    pub(crate) fn stop(&self) {
        // Under the lock, so that nobody is between asking and waiting.
        let _state = self.lock();
        self.stopping.store(true, Ordering::SeqCst);
        self.changed.notify_all();
        self.sampled.notify_all();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Waits until then; false if all must stop.
    pub(crate) fn sleep_until(&self, until: Instant) -> bool {
        let mut state = self.lock();
        while !self.is_stopping() {
            let left = until.since(self.now());
            if left.0 == 0 {
                return true;
            }
            state = self
                .changed
                .wait_timeout(state, left.into())
                .map_or_else(|poisoned| poisoned.into_inner().0, |(state, _)| state);
        }
        false
    }

    /// Waits until so many bytes may come from sources; false if all must stop.
    pub(crate) fn pace(&self, amount: Bytes) -> bool {
        let Some(limiter) = &self.limiter else { return !self.is_stopping() };
        let until = lock(limiter).take(self.now(), amount);
        self.sleep_until(until)
    }

    /// The drives that are open, also those set aside since.
    pub(crate) fn open_drives(&self) -> impl Iterator<Item = &Drive> {
        self.slots.iter().filter_map(|slot| match slot {
            Slot::Open(drive) => Some(&**drive),
            Slot::Refused(_) => None,
        })
    }

    /// How far a drive is scrubbed.
    pub(crate) fn scrub(&self, drive: DriveIndex) -> &scrub::Progress {
        &self.scrubs[drive.as_usize()]
    }

    /// A drive that is in use.
    pub(crate) fn drive(&self, index: DriveIndex) -> Option<&Drive> {
        let drive = self.open_drives().find(|drive| drive.index() == index)?;
        drive.set_aside_reason().is_none().then_some(drive)
    }

    /// A drive in use that answers, as far as is known.
    pub(crate) fn answering(&self, index: DriveIndex) -> Option<&Drive> {
        self.drive(index).filter(|drive| drive.hangs(self.now()).is_none())
    }

    /// What is free on each drive in use.
    pub(crate) fn spaces(&self) -> Vec<layout::DriveSpace> {
        let mut spaces = Vec::new();
        for drive in self.open_drives().filter(|drive| drive.set_aside_reason().is_none()) {
            let (space, now) = (drive.space(), self.now());
            // A quota, or a device that promised more than it has: the sum is wrong.
            let has_room = !drive.is_full(now) && drive.hangs(now).is_none();
            spaces.push(layout::DriveSpace {
                drive: drive.index(),
                set_aside: false,
                capacity: space.capacity,
                free: if has_room { space.free } else { Bytes::ZERO },
                held: drive.held().1,
            });
        }
        spaces
    }

    /// Takes note of a failed operation: the drive is set aside if that is what it means.
    pub(crate) fn drive_failed(&self, drive: &Drive, error: &DriveError) {
        if error.fault == store::publish::Fault::SetAside {
            self.set_aside(drive.index(), &error.to_string());
        } else {
            if error.fault == store::publish::Fault::Full {
                drive.note_full(self.now());
            }
            self.note("drive", format!("{}: {error}", drive.path().display()));
        }
    }

    /// Stops all use of a drive and tells everybody. Its objects are filled elsewhere.
    pub(crate) fn set_aside(&self, index: DriveIndex, reason: &str) {
        let Some(drive) = self.drive(index) else { return };
        let path = drive.path().display();
        {
            let mut state = self.lock();
            if !drive.set_aside(reason) {
                return;
            }
            for object in state.index.remove_drive(index) {
                state.forget(object);
            }
            state.parts.retain(|_, part| part.drive != index);
            state.count_partial();
            state.replan = true;
            (state.sink)(Update::DriveSetAside { drive: index });
            self.changed.notify_all();
        }
        tracing::error!(drive = %drive.marker().id, %path, reason, "drive set aside");
        self.note(
            "drive",
            format!("{path} is set aside: {reason}. Check or replace the drive, then restart"),
        );
    }

    /// A drive that hangs is not asked by anybody who can help it, and control is not told of what
    /// is on it, so that players are sent elsewhere. Its objects stay wanted there: it may answer
    /// again. If it does not for long, it is set aside.
    pub(crate) fn look_at_drive(&self, drive: &Drive, hangs: bool) {
        let Some(turn) = drive.look(self.now(), hangs) else { return };
        if drive.set_aside_reason().is_some() {
            return;
        }
        let (id, path) = (drive.marker().id, drive.path().display());
        match turn {
            Turn::Hangs => {
                self.withhold(drive.index(), true);
                tracing::error!(drive = %id, %path, "drive does not answer");
                let text = "does not answer: players are sent elsewhere until it does";
                self.note("drive", format!("{path} {text}. Look at the drive and its cable"));
            }
            Turn::Answers => {
                self.withhold(drive.index(), false);
                tracing::info!(drive = %id, %path, "drive answers again");
                self.note("drive", format!("{path} answers again"));
            }
            Turn::GivenUp => self.set_aside(drive.index(), "it has not answered for ten minutes"),
        }
    }

    /// Leaves what is on the drive out of the inventory, or puts it in again.
    fn withhold(&self, drive: DriveIndex, hangs: bool) {
        let mut state = self.lock();
        let State { index, inventory, hung, .. } = &mut *state;
        let bit = 1 << drive.0;
        *hung = if hangs { *hung | bit } else { *hung & !bit };
        for (object, _) in index.iter().filter(|(_, extent)| extent.drive == drive) {
            if hangs {
                inventory.remove(*object);
            } else {
                inventory.publish(*object);
            }
        }
    }

    /// Keeps an error for the operator, the newest 20; the same text is kept once.
    pub(crate) fn note(&self, room: &'static str, text: String) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let at = UnixSeconds(now.map_or(0, |since| since.as_secs()));
        let mut state = self.lock();
        state.errors.retain(|noted| noted.text != text);
        state.errors.push_front(Noted { at, room, text });
        state.errors.truncate(ERRORS_MAX);
    }

    pub(crate) fn errors(&self) -> Vec<Noted> {
        self.lock().errors.iter().cloned().collect()
    }

    /// An object found at the start; the first drive that has it wins.
    pub(crate) fn load(&self, object: ObjectId, extent: Extent) {
        let mut state = self.lock();
        if state.index.locate(&object).is_none() {
            state.show(object, extent, None);
        }
    }

    /// A part file found at the start.
    pub(crate) fn load_part(&self, object: ObjectId, drive: DriveIndex) {
        self.lock().parts.insert(object, Part { drive, verified: Bytes::ZERO });
    }

    /// Makes an object visible, unless its drive was set aside in the meantime.
    pub(crate) fn publish(&self, object: ObjectId, extent: Extent, bytes: Option<&[u8]>) {
        let mut state = self.lock();
        if self.drive(extent.drive).is_none() {
            return;
        }
        let budget = self.config.small_budget;
        let small = bytes.filter(|_| state.take_small(object, extent.len, budget)).map(Arc::from);
        state.parts.remove(&object);
        state.count_partial();
        state.show(object, extent, small);
    }

    /// Gives workers the bytes of a small object that is published already.
    pub(crate) fn publish_small(&self, object: ObjectId, extent: &Extent, bytes: &[u8]) {
        let mut state = self.lock();
        let still = state.index.locate(&object) == Some(extent);
        if still && state.take_small(object, extent.len, self.config.small_budget) {
            let (extent, small) = (extent.clone(), Some(Arc::from(bytes)));
            (state.sink)(Update::Published { object, extent, small });
        }
    }

    /// Makes an object invisible.
    pub(crate) fn hide(&self, object: ObjectId) {
        let mut state = self.lock();
        if state.index.remove(&object).is_some() {
            state.forget(object);
            (state.sink)(Update::Removed { object });
        }
    }

    /// Puts a newer manifest in force; false if it is not newer.
    pub(crate) fn set_manifest(&self, manifest: Manifest) -> bool {
        let mut state = self.lock();
        if state.manifest.as_ref().is_some_and(|old| manifest.generation <= old.generation) {
            return false;
        }
        let files = manifest.versions.iter().flat_map(|version| version.files.values());
        state.wanted = files.map(|file| (file.object, file.len)).collect();
        let manifest = Arc::new(manifest);
        state.manifest = Some(Arc::clone(&manifest));
        state.count_progress();
        state.postponed.clear();
        state.replan = true;
        (state.sink)(Update::Manifest(manifest));
        self.changed.notify_all();
        true
    }

    /// Control says who else in the site can serve.
    pub(crate) fn set_siblings(&self, siblings: BTreeMap<ApplianceId, Arc<str>>) {
        let mut state = self.lock();
        if *state.siblings != siblings {
            state.siblings = Arc::new(siblings);
            let siblings = Arc::clone(&state.siblings);
            (state.sink)(Update::Siblings(siblings));
        }
    }

    pub(crate) fn generation(&self) -> Generation {
        self.lock().manifest.as_ref().map_or(Generation(0), |manifest| manifest.generation)
    }

    /// Keys that the manifest in force names for those after it.
    pub(crate) fn signing_keys(&self) -> Vec<TokenKey> {
        let state = self.lock();
        state.manifest.as_ref().map(|m| m.trust.signing_keys.clone()).unwrap_or_default()
    }

    /// True of a certificate that the manifest in force says to refuse.
    pub(crate) fn is_revoked(&self, serial: &str) -> bool {
        self.lock().manifest.as_ref().is_some_and(|m| m.trust.revoked.contains(serial))
    }

    pub(crate) fn progress(&self) -> Progress {
        self.lock().progress
    }

    pub(crate) fn plan_report(&self) -> plan::Report {
        self.lock().plan_report.clone()
    }

    pub(crate) fn inventory_since(&self, known: InventoryState) -> Delta {
        let state = self.lock();
        let answers = |extent: &Extent| state.hung >> extent.drive.0 & 1 == 0;
        let held = state.index.iter().filter(|(_, extent)| answers(extent));
        state.inventory.since(known, held.map(|(object, _)| *object))
    }

    pub(crate) fn locate(&self, object: &ObjectId) -> Option<Extent> {
        self.lock().index.locate(object).cloned()
    }

    /// All published objects for which `filter` holds.
    pub(crate) fn published(&self, filter: impl Fn(&Extent) -> bool) -> Vec<(ObjectId, Extent)> {
        let state = self.lock();
        let fits = state.index.iter().filter(|(_, extent)| filter(extent));
        fits.map(|(object, extent)| (*object, extent.clone())).collect()
    }

    /// Waits for the next time to plan; false if all must stop.
    pub(crate) fn wait_for_planning(&self) -> bool {
        let mut state = self.lock();
        // Others are told through the same `changed`, often: only the clock says when it is time.
        let began = std::time::Instant::now();
        loop {
            if self.is_stopping() {
                return false;
            }
            let behind = state.progress.objects_held < state.progress.objects_wanted
                || 0 < state.plan_report.evictions_later;
            if state.replan {
                return true;
            }
            let left = PLAN_EVERY.saturating_sub(began.elapsed());
            if left.is_zero() && behind {
                state.replan = true;
                continue;
            }
            let left = if left.is_zero() { PLAN_EVERY } else { left };
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Plans: what to fetch goes to the fillers, what to do otherwise to the caller.
    pub(crate) fn plan(&self) -> Chores {
        let free: Vec<Bytes> = self.spaces().iter().map(|space| space.free).collect();
        let now = self.now();
        let mut state = self.lock();
        state.replan = false;
        let suspects = std::mem::take(&mut state.suspects);
        let Some(manifest) = state.manifest.clone() else {
            return Chores { suspects, ..Chores::default() };
        };
        let held = state.index.iter().map(|(object, _)| *object).collect();
        let parts = state.parts.keys().copied().collect();
        let due = |until: &Instant| *until <= now;
        let postponed = state.postponed.iter().filter(|(_, (until, _))| !due(until));
        let skip = state.busy.iter().chain(postponed.map(|(object, _)| object)).copied().collect();
        let room = |len| layout::sections(len).file_len;
        let actual = Actual { held: &held, parts: &parts, skip: &skip, free: &free, room };
        let plan = plan::plan(&PLAN, &manifest, &actual);
        state.queue = plan.fetch.into();
        state.plan_report = plan.report;
        self.changed.notify_all();
        let of = |object: ObjectId| state.parts.get(&object).map(|part| (object, part.drive));
        let drop_parts = plan.drop_parts.into_iter().filter_map(of).collect();
        Chores { evict: plan.evict, drop_parts, suspects }
    }

    /// So much of what the plan would have had go is still here, since its drive does not answer or
    /// failed at it: the next plan is due as if it had been left for later.
    pub(crate) fn put_off(&self, count: usize) {
        self.lock().plan_report.evictions_later += Bytes::of(count).0;
    }

    /// Somebody doubts the object: the keeper will look at it.
    pub(crate) fn suspect(&self, object: ObjectId, doubt: Doubt) {
        let mut state = self.lock();
        if state.suspects.len() < SUSPECTS_MAX {
            state.suspects.insert(object, doubt);
            state.replan = true;
            self.changed.notify_all();
        }
    }

    /// A viewer was sent this block: it will be looked at, unless there is too much to look at.
    pub(crate) fn verify(&self, sample: Sample) {
        let mut state = self.lock();
        if state.samples.len() < SAMPLES_MAX {
            state.samples.push_back(sample);
            self.sampled.notify_one();
        }
    }

    /// Waits for a sample; none if all must stop.
    pub(crate) fn next_sample(&self) -> Option<Sample> {
        let mut state = self.lock();
        loop {
            if self.is_stopping() {
                return None;
            }
            if let Some(sample) = state.samples.pop_front() {
                return Some(sample);
            }
            state = self.sampled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The first published object on a drive whose id is above `after`.
    pub(crate) fn next_on(
        &self,
        drive: DriveIndex,
        after: Option<ObjectId>,
    ) -> Option<(ObjectId, Extent)> {
        let state = self.lock();
        state.index.next_on(drive, after).map(|(object, extent)| (object, extent.clone()))
    }

    /// Plans again as soon as possible.
    pub(crate) fn replan(&self) {
        self.lock().replan = true;
        self.changed.notify_all();
    }

    /// Waits for an object to fetch and claims it; none if all must stop.
    pub(crate) fn claim_fetch(&self) -> Option<Claim> {
        let mut state = self.lock();
        loop {
            if self.is_stopping() {
                return None;
            }
            if let Some(fetch) = state.queue.pop_front() {
                if state.queue.is_empty() && 0 < state.plan_report.objects_later {
                    state.replan = true;
                    self.changed.notify_all();
                }
                let held = state.index.locate(&fetch.object).is_some();
                if !held && state.busy.insert(fetch.object) {
                    let part = state.parts.get(&fetch.object).copied();
                    return Some(Claim { fetch, part });
                }
                continue;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Claims an object for something else than fetching; false if somebody has it.
    pub(crate) fn claim(&self, object: ObjectId) -> bool {
        self.lock().busy.insert(object)
    }

    /// Claims what an audit may have to change.
    pub(crate) fn claim_file(&self, object: ObjectId, drive: DriveIndex) -> FileStanding {
        let mut state = self.lock();
        if state.busy.contains(&object) {
            return FileStanding::Busy;
        }
        let standing = match state.index.locate(&object) {
            Some(extent) if extent.drive == drive => return FileStanding::Indexed,
            Some(_) => FileStanding::Spare,
            None if state.manifest.is_none() => return FileStanding::Unknown,
            None if state.wanted.contains_key(&object) => FileStanding::Missing,
            None => FileStanding::Unwanted,
        };
        state.busy.insert(object);
        standing
    }

    /// Lets go of an object.
    pub(crate) fn release(&self, object: ObjectId) {
        let mut state = self.lock();
        assert!(state.busy.remove(&object), "only a claimed object is released");
    }

    /// Lets go of an object that could not be had; it is tried again, later each time.
    pub(crate) fn postpone(&self, object: ObjectId) {
        let now = self.now();
        let mut state = self.lock();
        let times = state.postponed.get(&object).map_or(0, |(_, times)| *times);
        let wait = Nanos(POSTPONE_FIRST.0 << times.min(16)).min(POSTPONE_MAX);
        state.postponed.insert(object, (now + wait, times + 1));
        assert!(state.busy.remove(&object), "only a claimed object is released");
    }

    /// How much of a part is good, for the reports; none when there is no part any more.
    pub(crate) fn set_part(&self, object: ObjectId, part: Option<Part>) {
        let mut state = self.lock();
        match part {
            Some(part) => state.parts.insert(object, part),
            None => state.parts.remove(&object),
        };
        state.count_partial();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
    fn show(&mut self, object: ObjectId, extent: Extent, small: Option<Arc<[u8]>>) {
        let before = self.index.publish(object, extent.clone());
        assert!(before.is_none(), "object {object} is published once");
        if self.hung >> extent.drive.0 & 1 == 0 {
            self.inventory.publish(object);
        }
        self.postponed.remove(&object);
        if let Some(len) = self.wanted.get(&object) {
            self.progress.objects_held += 1;
            self.progress.bytes_held += *len;
            if self.progress.objects_held == self.progress.objects_wanted {
                let progress = self.progress;
                let (objects, bytes) = (progress.objects_held, progress.bytes_held.0);
                tracing::info!(objects, bytes, "all of the manifest is held");
            }
        }
        (self.sink)(Update::Published { object, extent, small });
    }

    /// The object is out of the index: so it is everywhere else.
    fn forget(&mut self, object: ObjectId) {
        self.inventory.remove(object);
        if let Some(len) = self.wanted.get(&object) {
            self.progress.objects_held -= 1;
            self.progress.bytes_held -= *len;
            self.replan = true;
        }
        if let Some(len) = self.small.remove(&object) {
            self.small_used -= len;
        }
    }

    fn take_small(&mut self, object: ObjectId, len: Bytes, budget: Bytes) -> bool {
        let fits = len <= SMALL_OBJECT_MAX && self.small_used + len <= budget;
        if fits && self.small.insert(object, len).is_none() {
            self.small_used += len;
        }
        fits
    }

    fn count_progress(&mut self) {
        let held = self.wanted.iter().filter(|(object, _)| self.index.locate(object).is_some());
        let (mut objects_held, mut bytes_held) = (0, Bytes::ZERO);
        held.for_each(|(_, len)| {
            objects_held += 1;
            bytes_held += *len;
        });
        self.progress = Progress {
            objects_wanted: Bytes::of(self.wanted.len()).0,
            objects_held,
            bytes_wanted: Bytes(self.wanted.values().map(|len| len.0).sum()),
            bytes_held,
            bytes_partial: Bytes::ZERO,
        };
        self.count_partial();
    }

    fn count_partial(&mut self) {
        let wanted = self.parts.iter().filter(|(object, _)| self.wanted.contains_key(object));
        self.progress.bytes_partial = Bytes(wanted.map(|(_, part)| part.verified.0).sum());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{About, FillConfig};

    fn shared() -> Shared {
        let credentials = crate::member::tests::credentials(60);
        let own = Own::new("state".as_ref(), credentials.clone()).unwrap();
        let config = Config {
            appliance: "a1".parse().unwrap(),
            state: "state".into(),
            credentials,
            drives: Vec::new(),
            silent: 0,
            control: None,
            peer: None,
            fill: FillConfig {
                rate_max: None,
                trust: None,
                concurrency: 1,
                silence_max: Nanos::seconds(1),
            },
            small_budget: Bytes::kib(100),
            scrub_rate: None,
            tickets: tls::Tickets::new(|| UnixSeconds(0)),
            about: About::default(),
        };
        Shared::new(config, Arc::new(own), Vec::new(), Box::new(|_| {}), Arc::default())
    }

    fn manifest(generation: u64) -> Manifest {
        Manifest {
            appliance: "a1".parse().unwrap(),
            generation: Generation(generation),
            token_keys: Vec::new(),
            trust: model::manifest::Trust::default(),
            siblings: BTreeMap::new(),
            versions: Vec::new(),
        }
    }

    fn small(n: u8) -> (ObjectId, Extent) {
        let (drive, file) = (DriveIndex(0), layout::object_file(&ObjectId([n; 32])));
        let extent = Extent { drive, file, offset: Bytes::ZERO, len: Bytes::kib(60) };
        (ObjectId([n; 32]), extent)
    }

    #[test]
    fn only_a_newer_manifest_comes_into_force() {
        let shared = shared();
        assert!(shared.set_manifest(manifest(7)));
        assert!(!shared.set_manifest(manifest(7)) && !shared.set_manifest(manifest(6)));
        assert_eq!(shared.generation(), Generation(7));
        assert!(shared.set_manifest(manifest(8)));
    }

    #[test]
    fn memory_for_small_objects_is_bounded_and_comes_back() {
        let shared = shared();
        let used = || shared.lock().small_used;
        for (object, extent) in [small(1), small(2)] {
            shared.load(object, extent.clone());
            shared.publish_small(object, &extent, &[0; 61_440]);
        }
        assert_eq!(used(), Bytes::kib(60), "the second does not fit");
        shared.hide(small(2).0);
        assert_eq!(used(), Bytes::kib(60));
        shared.hide(small(1).0);
        assert_eq!(used(), Bytes::ZERO);
    }

    #[test]
    fn an_object_is_claimed_by_one_at_a_time() {
        let shared = shared();
        assert!(shared.claim(small(1).0) && !shared.claim(small(1).0));
        assert_eq!(shared.claim_file(small(1).0, DriveIndex(0)), FileStanding::Busy);
        shared.release(small(1).0);
        assert_eq!(shared.claim_file(small(1).0, DriveIndex(0)), FileStanding::Unknown);
        shared.set_manifest(manifest(1));
        assert_eq!(shared.claim_file(small(1).0, DriveIndex(0)), FileStanding::Unwanted);
    }

    #[test]
    fn errors_are_kept_newest_first_each_text_once_and_not_too_many() {
        let shared = shared();
        (0..30).for_each(|i| shared.note("fill", format!("error {i}")));
        shared.note("fill", "error 20".to_owned());
        let texts: Vec<String> = shared.errors().into_iter().map(|noted| noted.text).collect();
        assert_eq!((texts.len(), &*texts[0], &*texts[1]), (ERRORS_MAX, "error 20", "error 29"));
        assert_eq!(texts.iter().filter(|text| *text == "error 20").count(), 1);
    }
}
