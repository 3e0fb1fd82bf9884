//! The ledger of storage: the holdings, what is to be told of them, and who waits for what.
//!
//! ```text
//! ask, change ──> holdings ──> news ──> sink: every worker's mailbox
//!                    └── changed, sampled, handed_out ──> threads that wait
//! ```
//!
//! One lock, held for as long as it takes to change some maps, never during I/O; whoever goes
//! through many objects lets it go in between (`in_slices` of `upkeep`). The serve path takes no
//! part: each worker has its own index and is told of changes through the update sink. What is to
//! be told is put down under the lock, in the order in which it happened, and told after it, under
//! another: who waits for a worker that has no room for more letters keeps only those waiting who
//! have something to tell.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use fill::plan;
use fill::rate::Limiter;
use holdings::Holdings;
use model::drives::DriveIndex;
use model::expected::FirstBlocks;
use model::units::{BitsPerSecond, Bytes, Instant, Nanos, UnixSeconds};
use model::update::Update;
use upkeep::Sample;

use crate::clock;
use crate::lock::lock;

#[cfg(test)]
mod tests;

/// The holdings, their sink, and the time since the start.
pub(crate) struct Ledger {
    started: std::time::Instant,
    stopping: AtomicBool,
    state: Mutex<State>,
    /// A thread that takes both takes this one before `state`.
    sink: Mutex<Sink>,
    /// Told when there is something to fetch or to plan, and when all must stop.
    changed: Condvar,
    /// Told when there is a sample, and when all must stop.
    sampled: Condvar,
    /// Told when there is an errand, and when all must stop.
    handed_out: Condvar,
}

/// Who brings news to workers.
pub(crate) type Sink = Box<dyn FnMut(Vec<News>) + Send>;

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
    /// Blocks that viewers are expected to want, ascending by object: these and no others.
    Expected(Arc<[FirstBlocks]>),
}

/// An error for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Noted {
    pub(crate) at: UnixSeconds,
    pub(crate) room: &'static str,
    pub(crate) text: String,
}

/// Bytes a second that several threads share.
pub(crate) struct Pace {
    /// By this process's own settings.
    rate_max: Option<BitsPerSecond>,
    burst: fn(BitsPerSecond) -> Bytes,
    /// None until there is a rate.
    limiter: Mutex<Option<Limiter>>,
}

const PLAN: plan::Config = plan::Config { fetch_max: 1024, evict_max: 256, urls_max: 8 };
/// For a few minutes.
const INVENTORY_CHANGES_MAX: usize = 16_384;
/// The wire takes 20.
const ERRORS_MAX: usize = 20;
const SUSPECTS_MAX: usize = 1024;
/// Samples beyond this are dropped: there will be others.
const SAMPLES_MAX: usize = 256;

impl Ledger {
    /// Nothing is held yet. Workers may have so many bytes of small objects; objects below
    /// `unit_len` share files.
    pub(crate) fn new(small_budget: Bytes, unit_len: Option<Bytes>, sink: Sink) -> Self {
        let holdings = Holdings::new(holdings::Config {
            plan: PLAN,
            inventory_changes_max: INVENTORY_CHANGES_MAX,
            suspects_max: SUSPECTS_MAX,
            small_budget,
            unit_len,
        });
        let (errors, samples) = (VecDeque::new(), VecDeque::new());
        Self {
            started: std::time::Instant::now(),
            stopping: AtomicBool::new(false),
            state: Mutex::new(State { holdings, errors, samples, news: Vec::new() }),
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
        [&self.changed, &self.sampled, &self.handed_out].iter().for_each(|all| all.notify_all());
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Waits until then; false if all must stop.
    pub(crate) fn sleep_until(&self, until: Instant) -> bool {
        self.wait_changed(|_| until.since(self.now()))
    }

    /// Waits until `left` finds no time left, which is asked again after each change; false if all
    /// must stop.
    pub(crate) fn wait_changed(&self, left: impl Fn(&Holdings) -> Nanos) -> bool {
        let mut state = self.lock();
        while !self.is_stopping() {
            let left = left(&state.holdings);
            if left == Nanos(0) {
                return true;
            }
            let waited = self.changed.wait_timeout(state, left.into());
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }

    /// Waits until `take` finds something, which is asked again after such news; none if all must
    /// stop.
    pub(crate) fn wait_for<T>(
        &self,
        news: upkeep::News,
        mut take: impl FnMut(&mut Holdings) -> Option<T>,
    ) -> Option<T> {
        let told = match news {
            upkeep::News::Changed => &self.changed,
            upkeep::News::HandedOut => &self.handed_out,
        };
        self.wait(told, |state| {
            let found = take(&mut state.holdings);
            self.note_news(state);
            found
        })
    }

    /// Waits for a sample; none if all must stop.
    pub(crate) fn next_sample(&self) -> Option<Sample> {
        self.wait(&self.sampled, |state| state.samples.pop_front())
    }

    fn wait<T>(&self, told: &Condvar, mut take: impl FnMut(&mut State) -> Option<T>) -> Option<T> {
        let mut state = self.lock();
        while !self.is_stopping() {
            let found = take(&mut state);
            if found.is_some() {
                return found;
            }
            state = told.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    /// A viewer was sent this block: it will be looked at, unless there is too much to look at.
    pub(crate) fn verify(&self, sample: Sample) {
        let mut state = self.lock();
        if state.samples.len() < SAMPLES_MAX {
            state.samples.push_back(sample);
            self.sampled.notify_one();
        }
    }

    /// Wakes those who wait for errands.
    pub(crate) fn wake_hands(&self) {
        self.handed_out.notify_all();
    }

    /// Keeps an error for the operator, the newest 20; the same text is kept once.
    pub(crate) fn note(&self, room: &'static str, text: String) {
        let mut state = self.lock();
        state.errors.retain(|noted| noted.text != text);
        state.errors.push_front(Noted { at: clock::wall(), room, text });
        state.errors.truncate(ERRORS_MAX);
    }

    pub(crate) fn errors(&self) -> Vec<Noted> {
        self.lock().errors.iter().cloned().collect()
    }

    pub(crate) fn ask<R>(&self, look: impl FnOnce(&Holdings) -> R) -> R {
        look(&self.lock().holdings)
    }

    /// Changes the holdings. Workers and control's link are told before this returns.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut Holdings) -> R) -> R {
        let mut state = self.lock();
        let was_whole = is_whole(&state.holdings);
        let result = change(&mut state.holdings);
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

    /// Gives workers the directory of a drive that is used again, before this returns.
    pub(crate) fn tell_directory(&self, drive: DriveIndex, directory: OwnedFd) {
        self.lock().news.push(News::Directory(drive, Arc::new(directory)));
        self.deliver();
    }

    /// Tells workers which blocks viewers are expected to want, before this returns.
    pub(crate) fn tell_expected(&self, blocks: Vec<FirstBlocks>) {
        self.lock().news.push(News::Expected(blocks.into()));
        self.deliver();
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

impl Pace {
    /// No limit where there is no rate; what a rate's `burst` is comes through at once.
    pub(crate) fn new(rate_max: Option<BitsPerSecond>, burst: fn(BitsPerSecond) -> Bytes) -> Self {
        Self { rate_max, burst, limiter: Mutex::new(None) }
    }

    /// Waits for the turn of so many bytes; false if all must stop.
    pub(crate) fn wait(&self, ledger: &Ledger, amount: Bytes) -> bool {
        self.wait_within(ledger, amount, None)
    }

    /// The same where others have said a rate, too.
    pub(crate) fn wait_within(
        &self,
        ledger: &Ledger,
        amount: Bytes,
        said: Option<BitsPerSecond>,
    ) -> bool {
        let all = [self.rate_max, said];
        let Some(rate) = all.into_iter().flatten().min() else { return !ledger.is_stopping() };
        let burst = (self.burst)(rate);
        let until = {
            let mut limiter = lock(&self.limiter);
            let limiter = limiter.get_or_insert_with(|| Limiter::new(rate, burst));
            limiter.set(rate, burst);
            limiter.take(ledger.now(), amount)
        };
        ledger.sleep_until(until)
    }
}

/// True if all of a manifest is held that wants something.
fn is_whole(holdings: &Holdings) -> bool {
    let progress = holdings.progress();
    0 < progress.objects_wanted && progress.objects_held == progress.objects_wanted
}
