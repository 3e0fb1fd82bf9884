//! What the storage threads share: the holdings, the drives, and what is to be told.
//!
//! One lock, held for as long as it takes to change some maps, never during I/O; whoever goes
//! through many objects lets it go in between (`in_slices`). The serve path takes no part: each
//! worker has its own index and is told of changes through the update sink. What is to be told is
//! put down under the lock, in the order in which it happened, and told after it, under another:
//! who waits for a worker that has no room for more letters keeps only those waiting who have
//! something to tell.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::SystemTime;

use fill::plan;
use fill::rate::Limiter;
use holdings::{Chores, Claim, Desired, Holdings, Progress, SLICE};
use model::drives::DriveIndex;
use model::extent::Extent;
use model::id::{ApplianceId, DriveId, Generation, ObjectId};
use model::inventory::Delta;
use model::manifest::{Manifest, TokenKey};
use model::units::{Bytes, Instant, Nanos, UnixSeconds};
use model::update::Update;
use store::layout;
use store::log::Entry;
use store::parcel::PartId;
use store::silence::Turn;
use upkeep::Sample;
use upkeep::mover::Movable;
use upkeep::{Cause, Ledger as _, at_once};

use crate::counters::{FillCounters, IntegrityCounters, PeerCounters, now};
use crate::drives::{Drive, DriveError, Loaded, SILENCE, lock};
use crate::member::Own;
use crate::places::Shunned;
use crate::scrub;
use crate::storage::{Config, Counters};
use crate::tiering::Tier;

#[cfg(test)]
pub(crate) mod tests;

/// What all threads see.
pub(crate) struct Shared {
    pub(crate) config: Config,
    /// Who this appliance is.
    pub(crate) own: Arc<Own>,
    pub(crate) counters: Arc<Counters>,
    /// In the order of `DriveIndex`. Whoever has both locks took that of `state` first.
    slots: RwLock<Vec<Slot>>,
    pub(crate) fill: FillCounters<AtomicU64>,
    pub(crate) peer: PeerCounters<AtomicU64>,
    pub(crate) integrity: IntegrityCounters<AtomicU64>,
    pub(crate) shunned: Shunned,
    /// What the mover needs; none where nothing is to be moved.
    pub(crate) tier: Option<Tier>,
    /// How far each drive is scrubbed, in the order of `slots`.
    scrubs: Vec<scrub::Progress>,
    started: std::time::Instant,
    limiter: Option<Mutex<Limiter>>,
    stopping: AtomicBool,
    state: Mutex<State>,
    /// Taken before `state` by who has both.
    sink: Mutex<Box<dyn FnMut(Vec<News>) + Send>>,
    /// Told when there is something to fetch or to plan, and when all must stop.
    changed: Condvar,
    /// Told when there is a sample, and when all must stop.
    sampled: Condvar,
    /// Told when there is an errand, and when all must stop.
    handed_out: Condvar,
}

/// One configured drive.
#[derive(Clone, Debug)]
pub(crate) enum Slot {
    /// In use.
    Open(Arc<Drive>),
    /// Set aside, or refused when it was to be opened.
    Aside(Aside),
}

/// A drive that is not in use.
#[derive(Clone, Debug)]
pub(crate) struct Aside {
    /// Why.
    pub(crate) cause: Cause,
    /// Which it was, if its marker could be read.
    pub(crate) id: Option<DriveId>,
    /// Alive while somebody has a file of it open.
    pub(crate) old: Weak<Drive>,
}

/// What is true now.
struct State {
    holdings: Holdings,
    errors: VecDeque<Noted>,
    /// Blocks that viewers were sent, to be verified. Invariant: at most `SAMPLES_MAX`.
    samples: VecDeque<Sample>,
    /// What the sink is to be told. Invariant: what one holding of the lock made, for each thread
    /// that is about to tell it.
    news: Vec<News>,
}

/// What every worker is told, in order.
#[derive(Clone, Debug)]
pub enum News {
    /// There is more or less to serve.
    Update(Update),
    /// The directory of a drive that is used again, before what is on it.
    Directory(DriveIndex, Arc<OwnedFd>),
}

/// An error for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Noted {
    pub(crate) at: UnixSeconds,
    pub(crate) room: &'static str,
    pub(crate) text: String,
}

const PLAN: plan::Config = plan::Config { fetch_max: 1024, evict_max: 256, urls_max: 8 };
/// For a few minutes.
const INVENTORY_CHANGES_MAX: usize = 16_384;
/// The wire takes 20.
const ERRORS_MAX: usize = 20;
const SUSPECTS_MAX: usize = 1024;
/// Samples beyond this are dropped: there will be others.
const SAMPLES_MAX: usize = 256;
/// What the limiter lets through at once: a fifth of a second, at least four blocks.
const BURST_SHARE: Nanos = Nanos::millis(200);

impl Shared {
    pub(crate) fn new(
        config: Config,
        own: Arc<Own>,
        slots: Vec<Slot>,
        sink: Box<dyn FnMut(Vec<News>) + Send>,
        counters: Arc<Counters>,
    ) -> Self {
        let burst = |rate: model::units::BitsPerSecond| rate.over(BURST_SHARE).max(Bytes::mib(1));
        let limiter = config.fill.rate_max.map(|rate| Mutex::new(Limiter::new(rate, burst(rate))));
        let holdings = Holdings::new(holdings::Config {
            plan: PLAN,
            inventory_changes_max: INVENTORY_CHANGES_MAX,
            suspects_max: SUSPECTS_MAX,
            small_budget: config.small_budget,
            unit_len: config.fill.unit_len,
        });
        let (errors, samples) = (VecDeque::new(), VecDeque::new());
        let state = State { holdings, errors, samples, news: Vec::new() };
        let scrubs = slots.iter().map(|_| scrub::Progress::default()).collect();
        Self {
            config,
            own,
            counters,
            slots: RwLock::new(slots),
            scrubs,
            fill: FillCounters::default(),
            peer: PeerCounters::default(),
            integrity: IntegrityCounters::default(),
            shunned: Shunned::default(),
            tier: None,
            started: std::time::Instant::now(),
            limiter,
            stopping: AtomicBool::new(false),
            state: Mutex::new(state),
            sink: Mutex::new(sink),
            changed: Condvar::new(),
            sampled: Condvar::new(),
            handed_out: Condvar::new(),
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
        self.open_drives().iter().for_each(|drive| drive.gate().open());
        self.changed.notify_all();
        self.sampled.notify_all();
        self.handed_out.notify_all();
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

    /// All configured drives as they are now.
    pub(crate) fn slots(&self) -> Vec<Slot> {
        self.slots.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many drives are configured.
    pub(crate) fn drive_indexes(&self) -> impl Iterator<Item = DriveIndex> + use<> {
        DriveIndex::all(self.config.drives.len())
    }

    /// The drives that are in use.
    pub(crate) fn open_drives(&self) -> Vec<Arc<Drive>> {
        let slots = self.slots().into_iter();
        slots
            .filter_map(|slot| if let Slot::Open(drive) = slot { Some(drive) } else { None })
            .collect()
    }

    /// How far a drive is scrubbed.
    pub(crate) fn scrub(&self, drive: DriveIndex) -> &scrub::Progress {
        &self.scrubs[drive.as_usize()]
    }

    /// A drive that is in use.
    pub(crate) fn drive(&self, index: DriveIndex) -> Option<Arc<Drive>> {
        match self.slots.read().unwrap_or_else(PoisonError::into_inner).get(index.as_usize())? {
            Slot::Open(drive) => Some(Arc::clone(drive)),
            Slot::Aside(_) => None,
        }
    }

    /// What is free on each drive in use.
    pub(crate) fn spaces(&self) -> Vec<layout::DriveSpace> {
        let mut spaces = Vec::new();
        for drive in self.open_drives() {
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
        at_once(self.failed(drive, error));
    }

    /// Stops all use of a drive and tells everybody. Its objects are filled elsewhere. One that has
    /// come back since, in the place of this one, is left alone.
    pub(crate) fn set_drive_aside(&self, drive: &Drive, cause: Cause) {
        let (index, path) = (drive.index(), drive.path().display());
        let reason = cause.to_string();
        {
            let mut state = self.lock();
            if !drive.set_aside() {
                return;
            }
            let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
            let slot = &mut slots[index.as_usize()];
            let Slot::Open(old) = &*slot else { return };
            let (id, old) = (Some(drive.marker().id), Arc::downgrade(old));
            *slot = Slot::Aside(Aside { cause, id, old });
            drop(slots);
            state.holdings.let_go(index);
            self.note_news(&mut state);
        }
        self.deliver();
        self.in_slices(|holdings| !holdings.forget_some(SLICE));
        tracing::error!(drive = %drive.marker().id, %path, reason, "drive set aside");
        let what_to_do = "It is used again once it is replaced, formatted or mounted anew";
        self.note("drive", format!("{path} is set aside: {reason}. {what_to_do}"));
    }

    /// A drive that was set aside is good again, or another is in its place.
    pub(crate) fn take_back(&self, drive: Drive, directory: OwnedFd, loaded: &Loaded) {
        let (index, id, path) = (drive.index(), drive.marker().id, drive.path().to_owned());
        let drive = Arc::new(drive);
        // Before anybody finds it in use.
        self.lock().news.push(News::Directory(index, Arc::new(directory)));
        self.deliver();
        {
            let mut state = self.lock();
            if self.is_stopping() {
                drive.gate().open();
            }
            let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
            slots[index.as_usize()] = Slot::Open(Arc::clone(&drive));
            drop(slots);
            let parts = loaded.parts.iter().copied();
            state.holdings.take_back(index, std::iter::empty(), parts);
            self.note_news(&mut state);
        }
        self.deliver();
        let mut objects = loaded.entries.iter();
        let extent = |(object, entry): (&ObjectId, &Entry)| (*object, entry.extent(object, index));
        self.in_slices(|holdings| {
            // It may have been set aside again.
            let is_in_use = !drive.is_aside();
            let some = objects.by_ref().take(SLICE).map(extent);
            if is_in_use {
                holdings.take_back(index, some, std::iter::empty());
            }
            !is_in_use || objects.len() == 0
        });
        self.integrity.returns.fetch_add(1, Ordering::Relaxed);
        let path = path.display();
        tracing::info!(drive = %id, %path, objects = loaded.entries.len(), "drive in use again");
        self.note("drive", format!("{path} is in use again"));
    }

    /// Nobody uses a drive that was refused at the start, or keeps its directory open.
    pub(crate) fn let_go(&self, index: DriveIndex) {
        self.with(|holdings| holdings.set_aside(index));
    }

    /// How often a drive has come back.
    pub(crate) fn returns(&self) -> u64 {
        now(&self.integrity.returns)
    }

    /// A drive that hangs is not asked by anybody who can help it, and control is not told of what
    /// is on it, so that players are sent elsewhere. Its objects stay wanted there: it may answer
    /// again. If it does not for long, it is set aside.
    pub(crate) fn look_at_drive(&self, drive: &Drive, hangs: bool) {
        let Some(turn) = drive.look(self.now(), hangs) else { return };
        if drive.is_aside() {
            return;
        }
        let (id, path) = (drive.marker().id, drive.path().display());
        match turn {
            Turn::Hangs => {
                self.with(|holdings| holdings.withhold(drive.index(), true));
                tracing::error!(drive = %id, %path, "drive does not answer");
                let text = "does not answer: players are sent elsewhere until it does";
                self.note("drive", format!("{path} {text}. Look at the drive and its cable"));
            }
            Turn::Answers => {
                self.with(|holdings| holdings.withhold(drive.index(), false));
                tracing::info!(drive = %id, %path, "drive answers again");
                self.note("drive", format!("{path} answers again"));
            }
            Turn::GivenUp => {
                let silence = drive.hangs(self.now()).unwrap_or(SILENCE.hangs_for);
                self.set_drive_aside(drive, Cause::Silent(silence));
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

    /// Objects found at the start; the first drive that has one wins.
    pub(crate) fn load(&self, mut objects: impl Iterator<Item = (ObjectId, Extent)>) {
        self.in_slices(|holdings| {
            let mut count = 0;
            for (object, extent) in objects.by_ref().take(SLICE) {
                holdings.load(object, extent);
                count += 1;
            }
            count < SLICE
        });
    }

    /// A part file found at the start.
    pub(crate) fn load_part(&self, part: PartId, drive: DriveIndex) {
        self.with(|holdings| holdings.load_part(part, drive));
    }

    /// Puts a newer manifest in force; false if it is not newer.
    pub(crate) fn set_manifest(&self, manifest: Manifest) -> bool {
        let desired = Desired::new(self.config.fill.unit_len, Arc::new(manifest));
        if !self.with(|holdings| holdings.prepare(desired)) {
            return false;
        }
        let mut replaced = None;
        self.in_slices(|holdings| {
            replaced = holdings.prepare_some(SLICE);
            replaced.is_some()
        });
        drop(replaced); // Here, and not under the lock: a million objects take a tenth of a second.
        true
    }

    /// Control says who else in the site can serve.
    pub(crate) fn set_siblings(&self, siblings: BTreeMap<ApplianceId, Arc<str>>) {
        self.with(|holdings| holdings.set_siblings(siblings));
    }

    pub(crate) fn generation(&self) -> Generation {
        self.lock().holdings.generation()
    }

    /// Keys that the manifest in force names for those after it.
    pub(crate) fn signing_keys(&self) -> Vec<TokenKey> {
        let state = self.lock();
        state.holdings.manifest().map(|m| m.trust.signing_keys.clone()).unwrap_or_default()
    }

    /// True of a certificate that the manifest in force says to refuse.
    pub(crate) fn is_revoked(&self, serial: &str) -> bool {
        let state = self.lock();
        state.holdings.manifest().is_some_and(|m| m.trust.revoked.contains(serial))
    }

    pub(crate) fn progress(&self) -> Progress {
        self.lock().holdings.progress()
    }

    /// What fill still has to find room for: not what has its file already, and not what the last
    /// plan found to fit nowhere.
    pub(crate) fn bytes_to_place(&self) -> Bytes {
        let state = self.lock();
        let (progress, wanted) = (state.holdings.progress(), state.holdings.wanted());
        let allocated = state.holdings.parts().keys().filter_map(|part| match part {
            PartId::Object(object) => wanted.len_of(object).map(|len| len.0),
            // How much of a unit's file will be held nobody knows yet.
            PartId::Unit(_) => None,
        });
        let placed = progress.bytes_held + Bytes(allocated.sum());
        let without_room = state.holdings.plan_report().bytes_without_room;
        progress.bytes_wanted.saturating_sub(placed).saturating_sub(without_room)
    }

    pub(crate) fn plan_report(&self) -> plan::Report {
        self.lock().holdings.plan_report().clone()
    }

    pub(crate) fn inventory_since(&self, known: u64) -> Delta {
        self.lock().holdings.inventory_since(known)
    }

    /// Waits for the next time to plan; false if all must stop.
    pub(crate) fn wait_for_planning(&self) -> bool {
        let began = self.now();
        let mut state = self.lock();
        while !self.is_stopping() {
            let left = state.holdings.plan_in(self.now(), began);
            if left == Nanos(0) {
                return true;
            }
            let waited = self.changed.wait_timeout(state, left.into());
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }

    /// Plans: what to fetch goes to the fillers, what to do otherwise to each drive's own hands.
    pub(crate) fn plan(&self) {
        let free: Vec<Bytes> = self.spaces().iter().map(|space| space.free).collect();
        self.in_slices(|holdings| {
            let chores = holdings.plan_some(self.now(), &free, SLICE);
            let is_done = chores.is_some();
            chores.into_iter().for_each(|chores| holdings.hand_out(chores));
            is_done
        });
        self.handed_out.notify_all();
    }

    /// Waits for something to do about a drive; none if all must stop.
    pub(crate) fn next_errand(&self, drive: DriveIndex) -> Option<Chores> {
        let mut state = self.lock();
        while !self.is_stopping() {
            if let Some(chores) = state.holdings.next_errand(drive) {
                return Some(chores);
            }
            state = self.handed_out.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    /// A viewer was sent this block: it will be looked at, unless there is too much to look at.
    pub(crate) fn verify(&self, sample: Sample) {
        if let Some(tier) = &self.tier {
            tier.note(self.now(), sample.object);
        }
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

    /// Waits for an object to fetch and claims it; none if all must stop.
    pub(crate) fn next_fetch(&self) -> Option<Claim> {
        let mut state = self.lock();
        while !self.is_stopping() {
            let claim = state.holdings.next_fetch();
            self.note_news(&mut state);
            if claim.is_some() {
                return claim;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    /// Looks at the holdings.
    pub(crate) fn ask<R>(&self, look: impl FnOnce(&Holdings) -> R) -> R {
        look(&self.lock().holdings)
    }

    /// All files that may be moved, as far as that does not change while they are looked for.
    pub(crate) fn movable(&self) -> Movable {
        let mut movable = Movable::default();
        self.in_slices(|holdings| movable.look(holdings, SLICE));
        movable
    }

    /// Asks or changes the holdings; who has to know of it is told before this returns.
    pub(crate) fn with<R>(&self, deed: impl FnOnce(&mut Holdings) -> R) -> R {
        let mut state = self.lock();
        let was_whole = is_whole(&state.holdings);
        let result = deed(&mut state.holdings);
        if is_whole(&state.holdings) && !was_whole {
            let progress = state.holdings.progress();
            let (objects, bytes) = (progress.objects_held, progress.bytes_held.0);
            tracing::info!(objects, bytes, "all of the manifest is held");
        }
        let has_news = self.note_news(&mut state);
        drop(state);
        if has_news {
            self.deliver();
        }
        result
    }

    /// Does something again and again, each time with the lock, until it says that it is done.
    fn in_slices(&self, mut deed: impl FnMut(&mut Holdings) -> bool) {
        while !self.with(&mut deed) {
            // Whoever waits for the lock is to have it in between.
            std::thread::yield_now();
        }
    }

    /// Puts down what workers have to be told, and tells threads; true if there is something to
    /// deliver.
    fn note_news(&self, state: &mut State) -> bool {
        while let Some(update) = state.holdings.next_update() {
            state.news.push(News::Update(update));
        }
        if state.holdings.take_news() {
            self.changed.notify_all();
        }
        !state.news.is_empty()
    }

    /// Tells workers. Who finds nothing to tell has waited until another had told it.
    fn deliver(&self) {
        let mut sink = lock(&self.sink);
        let news = std::mem::take(&mut self.lock().news);
        if !news.is_empty() {
            sink(news);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// True if all of a manifest is held that wants something.
fn is_whole(holdings: &Holdings) -> bool {
    let progress = holdings.progress();
    0 < progress.objects_wanted && progress.objects_held == progress.objects_wanted
}
