//! Playbacks that tell of themselves by events (CMCD version 2), by their keys.
//!
//! ```text
//! sta: s ──> p ──> r ──> p ──> a, k ──> p ──> e     each with its time by the player's clock
//!      start-up    stall                     over
//! ```
//!
//! What comes is bound to a playback by the shell, which checks the seal of its ticket. Within
//! that, a player may lie about itself: all times that it tells are together no longer than the
//! time that it has been heard of, and it counts as one. Players send a report again that was not
//! answered well; a line is taken once, since each must be newer than the last.

use model::cmcd::{Report, State};
use model::units::{Instant, Nanos};

use crate::followed::Followed;
use crate::sums::{Dimension, Names, Rows, Source, Sums};
use crate::viewers::Viewer;
use crate::watch::LastStalled;

/// Bounds.
#[derive(Clone, Copy, Debug)]
pub struct EventConfig {
    /// Most playbacks: about 400 bytes each. With so many, a newcomer is not followed, and counted.
    pub playbacks_max: usize,
    /// A playback that is not heard of for so long is over.
    pub silent_max: Nanos,
    /// Most rows of a dimension.
    pub rows_max: usize,
    /// Most sites.
    pub sites_max: usize,
    /// A playback may send so many lines at once...
    pub lines_max: u32,
    /// ... and one more each time that this has passed.
    pub line_every: Nanos,
}

/// The answer to a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Its lines that are newer than those before.
    Yes,
    /// Too many playbacks tell of themselves: this one is not followed.
    Full,
    /// This playback says too much: nothing of the report was taken.
    TooMany,
}

/// Who is followed, and what was added since it was last taken.
#[derive(Debug)]
pub struct Events {
    config: EventConfig,
    followed: Followed<Playback>,
    rows: Rows,
}

#[derive(Debug)]
struct Playback {
    /// The site first: who serves it changes.
    names: Names,
    first: Instant,
    /// Lines that it may send now.
    lines: u32,
    /// When it got the last of them.
    lines_at: Instant,
    /// Time and number of the last line.
    last: (Option<Nanos>, Option<u64>),
    /// When it was first heard of, by its own clock.
    began: Option<Nanos>,
    state: Option<State>,
    /// Since when, by its own clock.
    since: Nanos,
    /// When it wanted to play, by its own clock.
    wanted: Option<Nanos>,
    begun: bool,
    /// The picture stands still, and it is counted as a stall.
    stalls: bool,
    stalled: LastStalled,
    failed: bool,
}

/// What a player's clock and its lines' way here may add to the time that passes here.
const CLOCK_SLACK: Nanos = Nanos::seconds(60);

impl Events {
    /// Nobody.
    pub fn new(config: EventConfig) -> Self {
        assert!(0 < config.lines_max && 0 < config.line_every.0, "one may tell something");
        assert!(0 < config.rows_max && 0 < config.sites_max, "there is room for one");
        let followed = Followed::new(config.playbacks_max, config.silent_max);
        Self { config, followed, rows: Rows::default() }
    }

    /// A report of a viewer who is steered to this site. O(log playbacks + lines * log rows).
    pub fn take(
        &mut self,
        now: Instant,
        viewer: &Viewer<'_>,
        site: &str,
        lines: &[Report],
    ) -> Taken {
        let config = self.config;
        if usize::try_from(config.lines_max).is_ok_and(|max| max < lines.len()) {
            return Taken::TooMany;
        }
        let mut sums = Sums::default();
        let Some(playback) = self.followed.hear(now, viewer.key, || {
            sums.playbacks = 1;
            Playback::new(now, viewer.names(site.into()), config.lines_max)
        }) else {
            return Taken::Full;
        };
        if !playback.may_say(now, lines.len(), &config) {
            return Taken::TooMany;
        }
        let (_, served_by) = &mut playback.names[0];
        if **served_by != *site {
            *served_by = site.into();
        }
        for line in lines {
            if playback.is_newer(line) {
                playback.take(now, line, &mut sums);
            }
        }
        playback.stalled.count(now, &mut sums);
        assert!(sums.starts <= 1, "a playback begins once");
        self.rows.add_to(&playback.names, Source::Events, &sums, |dimension| match dimension {
            Dimension::Site => config.sites_max,
            Dimension::Asset | Dimension::Network | Dimension::Player => config.rows_max,
        });
        Taken::Yes
    }

    /// True of a playback that is followed, and of which `take` reads no names now.
    pub fn knows(&mut self, now: Instant, key: u128) -> bool {
        self.followed.knows(now, key)
    }

    /// Forgets who was not heard of for long.
    pub fn forget(&mut self, now: Instant) {
        self.followed.forget(now);
    }

    /// What was added since this was last asked.
    pub fn take_rows(&mut self) -> Rows {
        std::mem::take(&mut self.rows)
    }

    /// Playbacks that are followed.
    pub fn followed(&self) -> usize {
        self.followed.len()
    }
}

impl Playback {
    fn new(now: Instant, names: Names, lines: u32) -> Self {
        Self {
            names,
            first: now,
            lines,
            lines_at: now,
            last: (None, None),
            began: None,
            state: None,
            since: Nanos(0),
            wanted: None,
            begun: false,
            stalls: false,
            stalled: LastStalled::default(),
            failed: false,
        }
    }

    /// Weighs a whole report, so that one that is refused can come again.
    fn may_say(&mut self, now: Instant, lines: usize, config: &EventConfig) -> bool {
        let more = now.since(self.lines_at).0 / config.line_every.0;
        self.lines_at = Instant(self.lines_at.0 + more * config.line_every.0);
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        self.lines = self.lines.saturating_add(more).min(config.lines_max);
        let left = u32::try_from(lines).ok().and_then(|lines| self.lines.checked_sub(lines));
        self.lines = left.unwrap_or(self.lines);
        assert!(self.lines <= config.lines_max, "no more than at once");
        left.is_some()
    }

    /// By its time or by its number: a player's clock may go back, and its numbers begin anew when
    /// it starts again. A line with neither cannot be told from another.
    fn is_newer(&mut self, line: &Report) -> bool {
        let (at, number) = self.last;
        let is_newer =
            at < line.at || number < line.number || (line.at, line.number) == (None, None);
        if is_newer {
            self.last = (line.at.or(at), line.number.or(number));
        }
        is_newer
    }

    fn take(&mut self, now: Instant, report: &Report, sums: &mut Sums) {
        let hints = &report.hints;
        sums.hear(hints, self.begun);
        // Without its clock, ours.
        let at = report.at.unwrap_or(Nanos(now.0));
        let longest = Nanos(now.since(self.first).0.saturating_add(CLOCK_SLACK.0));
        let latest = self.began.get_or_insert(at).0.saturating_add(longest.0);
        let at = at.min(Nanos(latest)).max(self.since);
        let span = |from: Nanos| Nanos(at.0.saturating_sub(from.0)).min(longest);
        if let Some(State::Playing) = self.state {
            let played = span(self.since);
            sums.watched += played.0;
            sums.load(played, hints);
        }
        let state = report.state.or(self.state);
        if self.stalls {
            sums.stall_time += span(self.since).0;
        }
        if self.state != state {
            match state {
                Some(State::Starting) if self.wanted.is_none() => self.wanted = Some(at),
                Some(State::Playing) if !self.begun => {
                    self.begun = true;
                    let waited = self.wanted.map(span);
                    if let Some(startup) = report.start_delay.or(waited) {
                        sums.start(startup.min(longest));
                    }
                }
                Some(State::Rebuffering) if self.state == Some(State::Playing) => {
                    sums.stalls += 1;
                    self.stalls = true;
                }
                _ => {}
            }
            self.stalls &= state == Some(State::Rebuffering);
            self.state = state;
        }
        assert!(self.begun || !self.stalls, "who stalls has begun");
        self.since = at;
        let failed = report.failed && !std::mem::replace(&mut self.failed, report.failed);
        sums.failed += u64::from(failed);
    }
}
