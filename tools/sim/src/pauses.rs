//! A process, its watchdog and a machine that pauses, by dice: is anybody ended wrongly, and does
//! anybody hang for too long?
//!
//! ```text
//! pause of the machine ──> watcher and process stand still, and wake some 0.4 s apart
//! pause of the watcher ──> it looks late
//! short stall          ──> the process shows nothing for up to 0.5 s
//! hang                 ──> the process shows nothing any more, or one of its workers does not move
//!                          while the other does: it must be ended
//! ```

use std::collections::VecDeque;

use model::machine::Machine as _;
use model::units::{Instant, Nanos};
use ssd::Rng;
use watchdog::{Action, Config, Event, Watchdog};

const CONFIG: Config = Config::APPLIANCE;
/// Time goes on by so much.
const STEP: Nanos = Nanos::millis(5);
/// How often a process shows life.
const SHOWS_EVERY: Nanos = Nanos::millis(100);
/// A worker with nothing to do counts this often.
const COUNTS_EVERY: Nanos = Nanos::millis(200);
/// A process that hangs is ended after so much time in which its watcher could look: its last move
/// may be shown a moment later, in the middle between two looks, and it is judged at one.
const HANG_MAX: Nanos =
    Nanos(CONFIG.silent_max.0 + 2 * CONFIG.look_every.0 + SHOWS_EVERY.0 + STEP.0);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) pauses: u64,
    pub(crate) hangs: u64,
    pub(crate) ended_wrongly: u64,
    /// The longest hang, less the time in which the watcher was paused.
    pub(crate) longest: Nanos,
}

impl Report {
    pub(crate) fn is_good(&self) -> bool {
        0 < self.hangs && self.ended_wrongly == 0 && self.longest <= HANG_MAX
    }
}

/// Draws so many pauses of the machine, and hangs among them.
pub(crate) fn play(seed: u64, pauses: u64) -> Report {
    let mut scene = Scene::new(seed);
    while scene.report.pauses < pauses {
        scene.step();
    }
    scene.report
}

struct Scene {
    rng: Rng,
    now: Instant,
    dog: Watchdog,
    /// They stand still until then.
    watcher_until: Instant,
    process_until: Instant,
    process: Process,
    /// Counts on their way to the watcher.
    shown: VecDeque<[u64; 2]>,
    report: Report,
}

enum Process {
    /// Starts then, or shows life for the first time.
    Begins(Instant),
    Lives(Life),
    /// For so long, as far as the watcher could look; what one of two workers goes on showing.
    Hangs(Nanos, Option<Life>),
    Ends(Instant),
    Gone,
}

/// What two workers show.
#[derive(Clone, Copy)]
struct Life {
    counts: [u64; 2],
    /// The one whose count stands still.
    hung: Option<usize>,
    shows_at: Instant,
}

impl Life {
    /// What is shown now, if it is time.
    fn go_on(&mut self, now: Instant) -> Option<[u64; 2]> {
        let counts = [self.counts[0] + 1, now.0 / COUNTS_EVERY.0];
        for worker in (0..counts.len()).filter(|worker| self.hung != Some(*worker)) {
            self.counts[worker] = counts[worker];
        }
        (self.shows_at <= now).then(|| {
            self.shows_at = now + SHOWS_EVERY;
            self.counts
        })
    }
}

impl Scene {
    fn new(seed: u64) -> Self {
        Self {
            rng: Rng::new(seed),
            now: Instant(0),
            dog: Watchdog::new(CONFIG, Instant(0)),
            watcher_until: Instant(0),
            process_until: Instant(0),
            process: Process::Gone,
            shown: VecDeque::new(),
            report: Report::default(),
        }
    }

    fn step(&mut self) {
        self.now = self.now + STEP;
        self.strike();
        if self.process_until <= self.now {
            self.live();
        }
        if self.watcher_until <= self.now {
            self.watch();
        }
    }

    /// From `low` to `high` milliseconds from now.
    fn soon(&mut self, low: u32, high: u32) -> Instant {
        self.now + Nanos::millis(u64::from(low + self.rng.below(high - low + 1)))
    }

    /// What goes wrong, if anything does: each once in some seconds.
    fn strike(&mut self) {
        match self.rng.below(8_000) {
            0..4 if self.process_until <= self.now => {
                self.report.pauses += 1;
                let longest = if self.rng.below(3) == 0 { 30_000 } else { 1_500 };
                let wakes = self.soon(50, longest);
                let later = wakes + Nanos::millis(u64::from(self.rng.below(400)));
                let watcher_first = self.rng.below(2) == 0;
                (self.watcher_until, self.process_until) =
                    if watcher_first { (wakes, later) } else { (later, wakes) };
            }
            4..7 if self.watcher_until <= self.now => self.watcher_until = self.soon(10, 700),
            7..10 if self.process_until <= self.now => self.process_until = self.soon(10, 500),
            // Before it has shown life, it has `start_max`.
            10..11 if self.dog.is_watched() => {
                if let Process::Lives(life) = self.process {
                    self.report.hangs += 1;
                    let lives = match self.rng.below(4) {
                        0 => Some(Life { hung: Some(0), ..life }),
                        1 => Some(Life { hung: Some(1), ..life }),
                        _ => None,
                    };
                    self.process = Process::Hangs(Nanos(0), lives);
                }
            }
            _ => {}
        }
    }

    fn live(&mut self) {
        match &mut self.process {
            Process::Begins(at) if *at <= self.now => {
                let life = Life { counts: [0, 0], hung: None, shows_at: self.now };
                self.process = Process::Lives(life);
            }
            Process::Lives(life) | Process::Hangs(_, Some(life)) => {
                self.shown.extend(life.go_on(self.now));
            }
            Process::Ends(at) if *at <= self.now => self.process = Process::Gone,
            Process::Begins(_) | Process::Hangs(_, None) | Process::Ends(_) | Process::Gone => {}
        }
    }

    fn watch(&mut self) {
        if let Process::Hangs(since, _) = &mut self.process {
            since.0 += STEP.0;
            self.report.longest = self.report.longest.max(*since);
        }
        while let Some(counts) = self.shown.pop_front() {
            self.event(Event::Shown(&counts));
        }
        if matches!(self.process, Process::Gone) {
            self.event(Event::Ended);
        }
        if self.dog.deadline().is_some_and(|due| due <= self.now) {
            self.event(Event::Tick);
        }
    }

    fn event(&mut self, event: Event<'_>) {
        self.dog.handle(self.now, event);
        while let Some(action) = self.dog.poll() {
            match action {
                Action::Start => {
                    self.shown.clear();
                    self.process = Process::Begins(self.soon(50, 400));
                }
                Action::Kill(_) => {
                    let hung = matches!(self.process, Process::Hangs(..));
                    self.report.ended_wrongly += u64::from(!hung);
                    self.process = Process::Ends(self.soon(1, 50));
                }
                Action::Stuck => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_ended_wrongly_and_nobody_hangs_for_long() {
        let report = play(1, 200);
        assert!(report.is_good() && 20 < report.hangs, "{report:?}");
    }
}
