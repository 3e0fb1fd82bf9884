//! A drive whose reads, writes and flushes take what the model of `ssd` says, in real time.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant as Clock};

use model::machine::Machine;
use model::units::{Bytes, Instant, Nanos};
use rig::drive::{FileId, Kind, Watch};
use serde::Serialize;
use ssd::{Action, Command, Event, Ftl, Params};

/// Operations wait here for as long as the model's drive takes.
pub(crate) struct Modelled {
    params: Params,
    began: Clock,
    /// So many of our seconds are one of the model's.
    slower: u32,
    state: Mutex<State>,
    /// Told when something completes.
    changed: Condvar,
}

struct State {
    drive: ssd::Drive,
    /// What was written before it counts.
    worn: ssd::Wear,
    collected: Nanos,
    reads: Vec<Read>,
    last: u32,
    done: BTreeMap<u32, Instant>,
}

/// How long a read was here, of our time.
#[derive(Clone, Copy, Debug)]
struct Read {
    /// Before the drive had it: its depth was used up.
    before: Nanos,
    /// In the drive, by the model.
    inside: Nanos,
    /// Until its thread ran: of the machine, and of no drive.
    after: Nanos,
}

/// What reads met here, p99 each, and what the drive did beside them.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Met {
    reads: usize,
    before_drive_p99_ms: f64,
    in_drive_p99_ms: f64,
    after_drive_p99_ms: f64,
    /// Of the time of all dies, what moving pages and erasing blocks took.
    collecting: f64,
    /// Erased blocks at the end, over all dies.
    free_blocks: u32,
}

/// Files lie so far from each other in the model: as long as the lab's largest, and whole
/// superblocks do not overlap.
const FILE_SPAN: u64 = 64 << 20;

impl Modelled {
    /// A drive in this state.
    pub(crate) fn new(params: Params, ftl: Ftl, seed: u64, slower: u32) -> Self {
        let drive = ssd::Drive::new(params, ftl, seed);
        let worn = drive.wear();
        let state = State {
            drive,
            worn,
            collected: Nanos(0),
            reads: Vec::new(),
            last: 0,
            done: BTreeMap::new(),
        };
        let state = Mutex::new(state);
        Self { params, began: Clock::now(), slower, state, changed: Condvar::new() }
    }

    /// What is done counts from now on.
    pub(crate) fn forget(&self) {
        let mut state = self.lock();
        state.worn = state.drive.wear();
        state.collected = state.drive.occupied().collection;
        state.reads.clear();
    }

    /// What was met in the last `span`, since `forget`.
    pub(crate) fn met(&self, span: Duration) -> Met {
        let state = self.lock();
        let p99 = |of: fn(&Read) -> Nanos| {
            let mut spans: Vec<Nanos> = state.reads.iter().map(of).collect();
            spans.sort_unstable();
            let at = spans.len().saturating_sub(1) * 99 / 100;
            spans.get(at).map_or(0.0, |span| Duration::from(*span).as_secs_f64() * 1e3)
        };
        let collected = state.drive.occupied().collection.0 - state.collected.0;
        let dies = span.as_secs_f64() / f64::from(self.slower) * f64::from(self.params.shape.dies);
        Met {
            reads: state.reads.len(),
            before_drive_p99_ms: p99(|read| read.before),
            in_drive_p99_ms: p99(|read| read.inside),
            after_drive_p99_ms: p99(|read| read.after),
            collecting: Duration::from(Nanos(collected)).as_secs_f64() / dies,
            free_blocks: state.drive.free_blocks(),
        }
    }

    /// Pages programmed per page written.
    pub(crate) fn amplification(&self) -> f64 {
        let state = self.lock();
        state.drive.wear().amplification_since(&state.worn)
    }

    /// Waits until the model has done it.
    fn take(&self, command: Command) {
        let came = self.now();
        let mut state = self.lock();
        // Its bound is that of real drives: threads of FUSE are fewer.
        while self.params.depth <= state.drive.in_flight() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.last = state.last.wrapping_add(1);
        let (id, went) = (state.last, self.now());
        state.drive.handle(went, Event::Submit { id, command });
        loop {
            state.drive.handle(self.now(), Event::Tick);
            let mut news = false;
            while let Some(Action::Complete { id, at }) = state.drive.poll() {
                news |= state.done.insert(id, at).is_none();
            }
            if news {
                self.changed.notify_all();
            }
            if let Some(at) = state.done.remove(&id) {
                if matches!(command, Command::Read { .. }) {
                    let ours = |span: Nanos| Nanos(span.0 * u64::from(self.slower));
                    state.reads.push(Read {
                        before: ours(went.since(came)),
                        inside: ours(at.since(went)),
                        after: ours(self.now().since(at)),
                    });
                }
                return;
            }
            let until = state.drive.deadline().unwrap_or(Instant(u64::MAX));
            let wait = until.since(self.now()).min(Nanos::millis(100));
            let wait = Nanos(wait.0 * u64::from(self.slower));
            let waited = self.changed.wait_timeout(state, wait.into());
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn now(&self) -> Instant {
        Instant(Nanos::from(self.began.elapsed()).0 / u64::from(self.slower))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn page(&self, file: FileId, at: u64) -> u64 {
        let pages = u64::from(self.params.shape.logical_pages);
        // A command does not go over the end.
        (file.0 * FILE_SPAN + at) / self.params.page.0 % (pages - u64::from(COMMAND_PAGES))
    }
}

/// FUSE hands over a mebibyte at most.
const COMMAND_PAGES: u32 = 64;

impl Watch for Modelled {
    fn transfer(&self, kind: Kind, file: FileId, at: u64, len: u64) {
        let first = self.page(file, at);
        let page = self.params.page.0;
        self.take(match kind {
            Kind::Write => Command::Write {
                first: u32::try_from(first).unwrap_or(0),
                pages: u32::try_from(len.div_ceil(page)).unwrap_or(1).clamp(1, COMMAND_PAGES),
            },
            Kind::Flush => Command::Flush,
            Kind::Lookup
            | Kind::Open
            | Kind::Read
            | Kind::List
            | Kind::Measure
            | Kind::Create
            | Kind::Allocate
            | Kind::Resize
            | Kind::Rename
            | Kind::Unlink => Command::Read {
                offset: Bytes(first * page),
                len: Bytes(len.clamp(1, u64::from(COMMAND_PAGES) * page)),
            },
        });
    }
}
