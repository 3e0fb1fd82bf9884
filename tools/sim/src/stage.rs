//! Where a simulation is played: tasks, a clock that jumps to the next deadline, one seed.
//!
//! ```text
//! ready tasks? ──> one of them, by dice ──> runs until it waits
//!      │ none
//!      v
//! next timer ──> the clock jumps there ──> wakes a task, or calls something
//! ```
//!
//! Threads of the real processes are tasks here: straight code that waits at `.await`. Which of
//! several that can go on does so is drawn, so that many orders are tried; the same seed draws the
//! same. Each task and timer belongs to a *troupe*: a process, which ends with all its tasks.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use model::units::{Instant, Nanos};
use ssd::Rng;

/// A process, or the world around them all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Troupe(pub(crate) u64);

/// The world: what no process is part of.
pub(crate) const WORLD: Troupe = Troupe(0);

type Fut = Pin<Box<dyn Future<Output = ()>>>;

/// What is called when its time comes, and whose it is.
type Timer = (Troupe, Box<dyn FnOnce()>);

/// When, and a number that tells two of the same moment apart.
type Moment = (Instant, u64);

/// One simulation. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Stage(Rc<Inner>);

struct Inner {
    now: Cell<Instant>,
    number: Cell<u64>,
    rng: RefCell<Rng>,
    timers: RefCell<BTreeMap<Moment, Timer>>,
    tasks: RefCell<BTreeMap<u64, (Troupe, Fut)>>,
    ready: Arc<Mutex<Vec<u64>>>,
    dead: RefCell<BTreeSet<Troupe>>,
    steps: Cell<u64>,
    /// Mixed from all that happened: two runs are the same if it is.
    digest: Cell<u64>,
    failure: RefCell<Option<String>>,
    trace: bool,
    lines: RefCell<Vec<String>>,
}

struct TaskWaker {
    task: u64,
    ready: Arc<Mutex<Vec<u64>>>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        if !ready.contains(&self.task) {
            ready.push(self.task);
        }
    }
}

impl Stage {
    /// An empty stage at time zero.
    pub(crate) fn new(seed: u64, trace: bool) -> Self {
        Self(Rc::new(Inner {
            now: Cell::new(Instant(0)),
            number: Cell::new(1),
            rng: RefCell::new(Rng::new(seed)),
            timers: RefCell::default(),
            tasks: RefCell::default(),
            ready: Arc::default(),
            dead: RefCell::default(),
            steps: Cell::new(0),
            digest: Cell::new(seed ^ 0xcbf2_9ce4_8422_2325),
            failure: RefCell::new(None),
            trace,
            lines: RefCell::default(),
        }))
    }

    pub(crate) fn now(&self) -> Instant {
        self.0.now.get()
    }

    /// A number that nobody else has.
    pub(crate) fn number(&self) -> u64 {
        self.0.number.set(self.0.number.get() + 1);
        self.0.number.get()
    }

    /// What the seed draws next, below `bound`; 0 for a bound of 0.
    pub(crate) fn below(&self, bound: u64) -> u64 {
        let bound = u32::try_from(bound).unwrap_or(u32::MAX);
        if bound == 0 { 0 } else { u64::from(self.0.rng.borrow_mut().below(bound)) }
    }

    /// From `low` to `high`, both included.
    pub(crate) fn between(&self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// True once in so many.
    pub(crate) fn one_in(&self, count: u64) -> bool {
        self.below(count) == 0
    }

    pub(crate) fn pick<'a, T>(&self, of: &'a [T]) -> Option<&'a T> {
        of.get(usize::try_from(self.below(u64::try_from(of.len()).unwrap_or(0))).unwrap_or(0))
    }

    pub(crate) fn millis(&self, low: u64, high: u64) -> Nanos {
        Nanos(self.between(low * 1000, high * 1000) * 1000)
    }

    /// Bytes that look random.
    pub(crate) fn bytes(&self, len: usize) -> Vec<u8> {
        let mut rng = self.0.rng.borrow_mut();
        let mut bytes = vec![0; len.next_multiple_of(8)];
        bytes.as_chunks_mut().0.iter_mut().for_each(|to| *to = rng.draw().to_le_bytes());
        bytes.truncate(len);
        bytes
    }

    /// Calls something later, unless its process has ended by then.
    pub(crate) fn at(&self, troupe: Troupe, when: Instant, call: impl FnOnce() + 'static) {
        let key = (when.max(self.now()), self.number());
        self.0.timers.borrow_mut().insert(key, (troupe, Box::new(call)));
    }

    /// Begins a task.
    pub(crate) fn spawn(&self, troupe: Troupe, future: impl Future<Output = ()> + 'static) {
        if self.is_dead(troupe) {
            return;
        }
        let task = self.number();
        self.0.tasks.borrow_mut().insert(task, (troupe, Box::pin(future)));
        self.ready().push(task);
    }

    /// Ends a process: none of its tasks and timers happens any more.
    pub(crate) fn kill(&self, troupe: Troupe) {
        self.0.dead.borrow_mut().insert(troupe);
        let gone: Vec<_> =
            self.0.tasks.borrow_mut().extract_if(.., |_, (of, _)| *of == troupe).collect();
        drop(gone);
        let gone: Vec<_> =
            self.0.timers.borrow_mut().extract_if(.., |_, (of, _)| *of == troupe).collect();
        drop(gone);
    }

    /// Forgets all tasks and timers.
    pub(crate) fn clear(&self) {
        let tasks = std::mem::take(&mut *self.0.tasks.borrow_mut());
        drop(tasks);
        let timers = std::mem::take(&mut *self.0.timers.borrow_mut());
        drop(timers);
    }

    /// True of a process that has ended.
    pub(crate) fn is_dead(&self, troupe: Troupe) -> bool {
        self.0.dead.borrow().contains(&troupe)
    }

    pub(crate) fn sleep(&self, span: Nanos) -> Slot<()> {
        self.sleep_until(self.now() + span)
    }

    pub(crate) fn sleep_until(&self, when: Instant) -> Slot<()> {
        let slot = Slot::default();
        let told = slot.clone();
        self.at(WORLD, when, move || told.put(()));
        slot
    }

    /// Something is not as it must be: the simulation ends here. The first one counts.
    pub(crate) fn fail(&self, what: String) {
        self.say(|| format!("FAILED: {what}"));
        self.0.failure.borrow_mut().get_or_insert(what);
    }

    /// Fails unless `is`.
    pub(crate) fn must(&self, is: bool, what: impl FnOnce() -> String) {
        if !is {
            self.fail(what());
        }
    }

    pub(crate) fn failure(&self) -> Option<String> {
        self.0.failure.borrow().clone()
    }

    pub(crate) fn say(&self, line: impl FnOnce() -> String) {
        if self.0.trace {
            let (now, line) = (self.now().0, line());
            let (s, us) = (now / 1_000_000_000, now / 1000 % 1_000_000);
            self.0.lines.borrow_mut().push(format!("{s:>4}.{us:06} {line}"));
        }
    }

    /// The trace so far, taken out.
    pub(crate) fn lines(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lines.borrow_mut())
    }

    /// Mixes something that happened into the digest.
    pub(crate) fn mark(&self, what: u64) {
        let mixed = (self.0.digest.get() ^ what).wrapping_mul(0x0000_0100_0000_01b3);
        self.0.digest.set(mixed ^ (mixed >> 29));
    }

    /// What all that happened mixes to.
    pub(crate) fn digest(&self) -> u64 {
        self.0.digest.get()
    }

    pub(crate) fn steps(&self) -> u64 {
        self.0.steps.get()
    }

    /// Goes on until then, or until something fails.
    pub(crate) fn run_until(&self, end: Instant) {
        while self.0.failure.borrow().is_none() && self.step(end) {}
    }

    fn step(&self, end: Instant) -> bool {
        self.0.steps.set(self.steps() + 1);
        let count = self.ready().len();
        if 0 < count {
            let index = self.below(u64::try_from(count).unwrap_or(0));
            let task = self.ready().swap_remove(usize::try_from(index).unwrap_or(0));
            self.poll(task);
            return true;
        }
        let Some(((when, number), (_, call))) = self.next_timer(end) else {
            self.0.now.set(end);
            return false;
        };
        self.0.now.set(when);
        self.mark(when.0 ^ number.rotate_left(32));
        call();
        true
    }

    fn next_timer(&self, end: Instant) -> Option<(Moment, Timer)> {
        let mut timers = self.0.timers.borrow_mut();
        let entry = timers.first_entry().filter(|entry| entry.key().0 <= end)?;
        Some(entry.remove_entry())
    }

    fn poll(&self, task: u64) {
        let Some((troupe, mut future)) = self.0.tasks.borrow_mut().remove(&task) else { return };
        self.mark(task);
        let waker = Waker::from(Arc::new(TaskWaker { task, ready: Arc::clone(&self.0.ready) }));
        let done = future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        // It may have ended its own process.
        if !done && !self.is_dead(troupe) {
            self.0.tasks.borrow_mut().insert(task, (troupe, future));
        }
    }

    fn ready(&self) -> std::sync::MutexGuard<'_, Vec<u64>> {
        self.0.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One value that somebody waits for.
pub(crate) struct Slot<T>(Rc<RefCell<(Option<T>, Option<Waker>)>>);

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self(Rc::new(RefCell::new((None, None))))
    }
}

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<T> Slot<T> {
    /// Gives the value; the first one counts.
    pub(crate) fn put(&self, value: T) {
        let mut slot = self.0.borrow_mut();
        slot.0.get_or_insert(value);
        if let Some(waker) = slot.1.take() {
            waker.wake();
        }
    }
}

impl<T> Future for Slot<T> {
    type Output = T;
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut slot = self.0.borrow_mut();
        match slot.0.take() {
            Some(value) => Poll::Ready(value),
            None => {
                slot.1 = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// Tells whoever waits that something changed.
#[derive(Clone, Default)]
pub(crate) struct Bell(Rc<RefCell<Vec<Slot<()>>>>);

impl Bell {
    /// Wakes all who wait.
    pub(crate) fn ring(&self) {
        let waiting = std::mem::take(&mut *self.0.borrow_mut());
        waiting.iter().for_each(|slot| slot.put(()));
    }

    /// Waits for the next ring.
    pub(crate) fn wait(&self) -> Slot<()> {
        let slot = Slot::default();
        self.0.borrow_mut().push(slot.clone());
        slot
    }

    /// Waits for the next ring, but not longer than until then.
    pub(crate) fn wait_until(&self, stage: &Stage, when: Instant) -> Slot<()> {
        let slot = self.wait();
        let told = slot.clone();
        stage.at(WORLD, when, move || told.put(()));
        slot
    }
}

/// A lock that tasks wait for.
#[derive(Clone, Default)]
pub(crate) struct Lock {
    held: Rc<Cell<bool>>,
    bell: Bell,
}

/// Who has a lock. Given back when dropped.
pub(crate) struct Held(Lock);

impl Lock {
    /// Waits until nobody has it.
    pub(crate) async fn hold(&self) -> Held {
        while self.held.replace(true) {
            self.bell.wait().await;
        }
        Held(self.clone())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.held.set(false);
        self.0.bell.ring();
    }
}
