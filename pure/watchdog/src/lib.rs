//! When a process has hung, and when the next one may start.
//!
//! ```text
//!            Shown: a count of each worker, which grows while it lives
//!                │
//!  Start ──> starting ──> watched ── a worker silent for `silent_max` ──> Kill ──> killed
//!    ^           │            │                                                      │
//!    │           └────────────┴── Ended ──────────────────────────────────────> Ended
//!    └── after a delay, which doubles from 0 while processes do not live for `lives_for`
//! ```
//!
//! Silence is summed over looks, and a look that comes late adds no more than two intervals: while
//! the whole machine is paused (a virtual machine that its host holds up, a laptop that sleeps, a
//! debugger that stops everything) the watcher is late too, and nobody was silent. A process that
//! is stopped alone has a watcher that comes on time. A machine that is paused again and again for
//! longer than an interval is judged more slowly, by as many looks as before.

use std::collections::VecDeque;

use model::machine::Machine;
use model::units::{Instant, Nanos};

/// The bounds of a watchdog.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Between two looks.
    pub look_every: Nanos,
    /// A worker that has shown no life for so long has hung.
    pub silent_max: Nanos,
    /// A process that starts and shows no life for so long has hung.
    pub start_max: Nanos,
    /// A process that lived for so long was good: the one after it starts at once.
    pub lives_for: Nanos,
    /// The longest delay before a start.
    pub delay_max: Nanos,
    /// How long a process that was killed may take to end, before that is told.
    pub dies_within: Nanos,
}

impl Config {
    /// For an appliance. A player's buffer lasts longer than 10 s, so that a second of silence, an
    /// end and a start are not seen. A worker counts each thing that it has done, which takes
    /// milliseconds; a turn with many of them may take longer.
    pub const APPLIANCE: Self = Self {
        look_every: Nanos::millis(100),
        silent_max: Nanos::seconds(1),
        start_max: Nanos::seconds(120),
        lives_for: Nanos::seconds(60),
        delay_max: Nanos::seconds(30),
        dies_within: Nanos::seconds(5),
    };

    /// The most that one look adds to a silence.
    fn look_max(&self) -> Nanos {
        Nanos(2 * self.look_every.0)
    }
}

/// All that can happen to a watchdog.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// The process shows a count of each worker; of none while it starts.
    Shown(&'a [u64]),
    /// The process ended, killed or by itself.
    Ended,
    /// Time passes.
    Tick,
}

/// All that a watchdog can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Start a process.
    Start,
    /// End the process with SIGKILL, for this cause.
    Kill(Cause),
    /// The process did not even end when it was killed: it is stuck in the kernel.
    Stuck,
}

/// Why a process was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A worker, by its number, showed no life for so long.
    Silent(usize, Nanos),
    /// It showed no life at all since its start.
    NotStarted(Nanos),
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Silent(worker, silent) => {
                write!(f, "worker {worker} was silent for {}", in_tenths(*silent))
            }
            Self::NotStarted(since) => {
                write!(f, "it had not begun to serve after {}", in_tenths(*since))
            }
        }
    }
}

/// Without the digits below a tenth of a second.
fn in_tenths(span: Nanos) -> Nanos {
    let tenth = Nanos::millis(100).0;
    Nanos(span.0 - span.0 % tenth)
}

/// Watches one process, and starts the next when it has ended.
#[derive(Debug)]
pub struct Watchdog {
    config: Config,
    state: State,
    looked_at: Instant,
    /// The delay before the next start.
    delay: Nanos,
    starts: u64,
    actions: VecDeque<Action>,
}

#[derive(Debug)]
enum State {
    /// No process until then.
    Waiting(Instant),
    /// Its workers show no life yet.
    Starting {
        since: Instant,
        silent: Nanos,
    },
    Watched {
        since: Instant,
        workers: Vec<Worker>,
    },
    /// Told once if it does not end.
    Killed {
        since: Instant,
        lived: Nanos,
        is_told: bool,
    },
}

/// What is known of one worker's life.
#[derive(Clone, Copy, Debug)]
struct Worker {
    count: u64,
    silent: Nanos,
}

impl Watchdog {
    /// Starts the first process at once.
    pub fn new(config: Config, now: Instant) -> Self {
        Self {
            config,
            state: State::Waiting(now),
            looked_at: now,
            delay: Nanos(0),
            starts: 0,
            actions: VecDeque::new(),
        }
    }

    /// Processes started so far.
    pub fn starts(&self) -> u64 {
        self.starts
    }

    /// True once the workers of the process have shown life: it serves.
    pub fn is_watched(&self) -> bool {
        matches!(self.state, State::Watched { .. })
    }

    fn shown(&mut self, now: Instant, counts: &[u64]) {
        match &mut self.state {
            State::Starting { silent, .. } if counts.is_empty() => *silent = Nanos(0),
            State::Starting { since, .. } => {
                let workers = counts.iter().map(|count| Worker { count: *count, silent: Nanos(0) });
                self.state = State::Watched { since: *since, workers: workers.collect() };
                self.looked_at = now;
            }
            State::Watched { workers, .. } if workers.len() == counts.len() => {
                for (worker, count) in workers.iter_mut().zip(counts) {
                    if worker.count != *count {
                        *worker = Worker { count: *count, silent: Nanos(0) };
                    }
                }
            }
            // Counts that were on their way when it was killed, or those of another number of
            // workers: nobody shows life by them.
            State::Watched { .. } | State::Waiting(_) | State::Killed { .. } => {}
        }
    }

    fn ended(&mut self, now: Instant) {
        let lived = match &self.state {
            State::Waiting(_) => return,
            State::Starting { .. } => Nanos(0),
            State::Watched { since, .. } => now.since(*since),
            State::Killed { lived, .. } => *lived,
        };
        if self.config.lives_for <= lived {
            self.delay = Nanos(0);
        }
        self.state = State::Waiting(now + self.delay);
        let doubled = Nanos((2 * self.delay.0).max(Nanos::millis(500).0));
        self.delay = doubled.min(self.config.delay_max);
    }

    fn tick(&mut self, now: Instant) {
        let late_max = self.config.look_max();
        let passed = now.since(self.looked_at).min(late_max);
        self.looked_at = now;
        match &mut self.state {
            State::Waiting(until) if *until <= now => {
                self.starts += 1;
                self.state = State::Starting { since: now, silent: Nanos(0) };
                self.actions.push_back(Action::Start);
            }
            State::Waiting(_) => {}
            State::Starting { silent, .. } => {
                silent.0 += passed.0;
                if self.config.start_max <= *silent {
                    let cause = Cause::NotStarted(*silent);
                    self.kill(now, Nanos(0), cause);
                }
            }
            State::Watched { since, workers } => {
                workers.iter_mut().for_each(|worker| worker.silent.0 += passed.0);
                let hung = workers.iter().position(|of| self.config.silent_max <= of.silent);
                if let Some(index) = hung {
                    let cause = Cause::Silent(index, workers[index].silent);
                    let lived = now.since(*since);
                    self.kill(now, lived, cause);
                }
            }
            State::Killed { since, is_told, .. } => {
                if !*is_told && self.config.dies_within <= now.since(*since) {
                    *is_told = true;
                    self.actions.push_back(Action::Stuck);
                }
            }
        }
    }

    fn kill(&mut self, now: Instant, lived: Nanos, cause: Cause) {
        self.state = State::Killed { since: now, lived, is_told: false };
        self.actions.push_back(Action::Kill(cause));
    }
}

impl Machine for Watchdog {
    type Now = Instant;
    type Event<'a> = Event<'a>;
    type Action = Action;

    fn handle(&mut self, now: Instant, event: Event<'_>) {
        match event {
            Event::Shown(counts) => self.shown(now, counts),
            Event::Ended => self.ended(now),
            Event::Tick => self.tick(now),
        }
        assert!(self.actions.len() <= 1, "one thing at a time: {:?}", self.actions);
    }

    fn poll(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Always: somebody has to look.
    fn deadline(&self) -> Option<Instant> {
        Some(match self.state {
            State::Waiting(until) => until,
            State::Starting { .. } | State::Watched { .. } | State::Killed { .. } => {
                self.looked_at + self.config.look_every
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A watchdog, its time in milliseconds, and a process with two workers.
    struct Scene {
        dog: Watchdog,
        now: u64,
        counts: [u64; 2],
    }

    impl Scene {
        /// The first process has started and shows life.
        fn new() -> Self {
            let dog = Watchdog::new(Config::APPLIANCE, Instant(0));
            let mut scene = Self { dog, now: 0, counts: [1, 1] };
            assert_eq!(scene.tick(0), Some(Action::Start));
            scene.show(&[0, 1]);
            scene
        }

        fn event(&mut self, event: Event<'_>) -> Option<Action> {
            self.dog.handle(Instant(self.now * MS), event);
            let action = self.dog.poll();
            assert_eq!(self.dog.poll(), None);
            action
        }

        fn tick(&mut self, after: u64) -> Option<Action> {
            self.now += after;
            self.event(Event::Tick)
        }

        /// These workers have lived since they were shown last.
        fn show(&mut self, alive: &[usize]) {
            alive.iter().for_each(|index| self.counts[*index] += 1);
            let counts = self.counts;
            assert_eq!(self.event(Event::Shown(&counts)), None);
        }

        /// Looks each 100 ms for as many; the time of a kill and its cause.
        fn looks(&mut self, count: usize, alive: &[usize]) -> Option<(u64, Cause)> {
            for _ in 0..count {
                self.show(alive);
                if let Some(Action::Kill(cause)) = self.tick(100) {
                    return Some((self.now, cause));
                }
            }
            None
        }

        /// Ends; how long until the next start.
        fn end(&mut self) -> u64 {
            assert_eq!(self.event(Event::Ended), None);
            let due = self.dog.deadline().unwrap().0 / MS;
            let after = due - self.now;
            assert_eq!(self.tick(after), Some(Action::Start));
            self.show(&[0, 1]);
            after
        }
    }

    #[test]
    fn a_worker_that_is_silent_for_a_second_ends_its_process() {
        let mut scene = Scene::new();
        assert_eq!(scene.looks(50, &[0, 1]), None);
        let (at, cause) = scene.looks(50, &[0]).unwrap();
        assert_eq!((at, cause), (5900, Cause::Silent(1, Nanos::seconds(1))));
        assert_eq!(cause.to_string(), "worker 1 was silent for 1 s");
        let late = Cause::Silent(0, Nanos(1_131_757_022));
        assert_eq!(late.to_string(), "worker 0 was silent for 1100 ms");
    }

    #[test]
    fn counts_of_no_worker_or_of_others_show_no_life() {
        let mut scene = Scene::new();
        for n in 0..9 {
            assert_eq!(scene.event(Event::Shown(&[n])), None);
            assert_eq!(scene.tick(100), None);
        }
        scene.event(Event::Shown(&[]));
        assert!(matches!(scene.tick(100), Some(Action::Kill(Cause::Silent(..)))));
        scene.event(Event::Ended);
        assert_eq!(scene.tick(0), Some(Action::Start));
        // Making an index anew takes minutes.
        for _ in 0..3000 {
            assert_eq!(scene.event(Event::Shown(&[])), None);
            assert_eq!(scene.tick(100), None);
        }
        assert!(!scene.dog.is_watched());
    }

    #[test]
    fn a_machine_that_was_paused_ends_nothing() {
        let mut scene = Scene::new();
        for pause in [5_000, 60_000, 900] {
            assert_eq!(scene.looks(3, &[]), None, "0.3 s of silence");
            assert_eq!(scene.tick(pause), None, "the watcher was paused too");
            assert_eq!(scene.looks(3, &[]), None, "the process has its turn after the watcher");
            scene.show(&[0, 1]);
        }
    }

    #[test]
    fn a_hung_process_is_ended_though_each_look_comes_late() {
        let mut scene = Scene::new();
        let kills = (0..20).find(|_| scene.tick(700).is_some());
        assert_eq!(kills, Some(4), "the fifth late look");
    }

    #[test]
    fn starts_are_at_once_after_a_long_life_and_further_apart_after_short_ones() {
        let mut scene = Scene::new();
        let delays: Vec<u64> = (0..8).map(|_| scene.end()).collect();
        assert_eq!(delays, [0, 500, 1000, 2000, 4000, 8000, 16_000, 30_000]);
        assert_eq!(scene.dog.starts(), 9);
        assert_eq!(scene.looks(600, &[0, 1]), None);
        assert_eq!(scene.end(), 0);
    }

    #[test]
    fn a_process_that_does_not_begin_is_ended_and_one_that_is_stuck_is_told_once() {
        let mut scene = Scene::new();
        scene.event(Event::Ended);
        assert_eq!(scene.tick(0), Some(Action::Start));
        let began = scene.now;
        let killed = std::iter::repeat_with(|| scene.tick(100)).find_map(|action| action).unwrap();
        assert_eq!(killed, Action::Kill(Cause::NotStarted(Nanos::seconds(120))));
        assert_eq!(scene.now - began, 120_000);
        scene.show(&[0, 1]);
        let told: Vec<u64> = (1..200).filter(|_| scene.tick(100).is_some()).collect();
        assert_eq!(told, [50]);
        scene.end();
    }
}
