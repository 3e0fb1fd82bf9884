//! When fill may fetch: windows of a day, by the clock on the wall of the place.
//!
//! ```text
//! UnixSeconds ── offset of the zone in force then ──> minute of the local day ──> in a window?
//! ```
//!
//! What the clock on the wall shows decides, and nothing else. So an hour that is skipped opens
//! nothing, and one that comes twice is in its window twice. A zone is told as its offsets, which
//! whoever goes by them need not know by name: a table is asked once, where windows are said.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::id::AssetVersionId;
use crate::units::{BitsPerSecond, Nanos, UnixSeconds};

/// Windows of a day. Arbitrary: nights, a pause at noon, and two more.
pub const WINDOWS_MAX: usize = 4;

/// Offsets of a zone that are told: those of [`OFFSETS_SPAN`], where a zone has at most four
/// changes a year, and room for a government that thinks otherwise.
pub const OFFSETS_MAX: usize = 16;

/// For so long an appliance that hears nothing from control knows the changes of its zone.
/// Arbitrary; after it, its clock stays as it was set last.
pub const OFFSETS_SPAN: Nanos = Nanos::seconds(2 * 366 * 86_400);

const DAY: u64 = 86_400;
const DAY_MINUTES: u16 = 1440;

/// The windows of a day in which fill may fetch, by local time; at any hour where there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Windows {
    count: usize,
    /// Invariant: by `from`, and between two of them, around the day, fill is closed.
    spans: [Span; WINDOWS_MAX],
}

/// From one minute of the day to before another, which is less if midnight lies between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Span {
    from: u16,
    until: u16,
}

/// A text that says no windows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotWindows {
    #[error(
        "\"{0}\" is no window: write from and until by local time, as \"02:00-14:00\" or \
         \"22:00-06:00\", more of them with commas between, or \"always\""
    )]
    Form(Box<str>),
    #[error("a day has at most {WINDOWS_MAX} windows: join some")]
    Many,
    #[error("{0} ends when it begins: write \"always\" for the whole day")]
    Empty(Box<str>),
    #[error("{0} and {1} touch or overlap: write them as one")]
    Overlap(Box<str>, Box<str>),
}

impl Windows {
    /// At any hour.
    pub const ALWAYS: Self = Self { count: 0, spans: [Span { from: 0, until: 0 }; WINDOWS_MAX] };

    /// Windows by their first minutes of the day and those after their last, in any order; 1440 is
    /// midnight too.
    pub fn new(minutes: impl IntoIterator<Item = (u16, u16)>) -> Result<Self, NotWindows> {
        let mut windows = Self::ALWAYS;
        for (from, until) in minutes {
            let span = Span { from, until: until % DAY_MINUTES };
            if DAY_MINUTES <= from || DAY_MINUTES < until {
                return Err(NotWindows::Form(format!("{from}-{until}").into()));
            }
            if span.from == span.until {
                return Err(NotWindows::Empty(span.to_string().into()));
            }
            let slot = windows.spans.get_mut(windows.count).ok_or(NotWindows::Many)?;
            *slot = span;
            windows.count += 1;
        }
        windows.spans[..windows.count].sort_unstable();
        let all = &windows.spans[..windows.count];
        for (at, one) in all.iter().enumerate() {
            let others = all.iter().enumerate().filter(|(other, _)| *other != at);
            for (_, other) in others {
                if one.has(other.from) || one.until == other.from {
                    let [one, other] = [one, other].map(|of| of.to_string().into());
                    return Err(NotWindows::Overlap(one, other));
                }
            }
        }
        Ok(windows)
    }

    /// Each window as its first minute of the day, and that after its last.
    pub fn minutes(&self) -> impl Iterator<Item = (u16, u16)> {
        self.spans().iter().map(|span| (span.from, span.until))
    }

    /// True if fill may fetch at any hour.
    pub fn is_always(&self) -> bool {
        self.count == 0
    }

    fn spans(&self) -> &[Span] {
        &self.spans[..self.count]
    }

    /// True in the second of the local day.
    fn has(&self, second: u64) -> bool {
        let minute = u16::try_from(second % DAY / 60).unwrap_or(0);
        self.is_always() || self.spans().iter().any(|span| span.has(minute))
    }

    /// How many seconds after that of the local day a window begins or ends next; none if none
    /// ever does.
    fn until_edge(&self, second: u64) -> Option<u64> {
        let edges = self.spans().iter().flat_map(|span| [span.from, span.until]);
        let until = |edge: u16| {
            let left = (u64::from(edge) * 60 + DAY - second % DAY) % DAY;
            if left == 0 { DAY } else { left }
        };
        edges.map(until).min()
    }
}

impl Span {
    fn has(&self, minute: u16) -> bool {
        if self.from < self.until {
            self.from <= minute && minute < self.until
        } else {
            self.from <= minute || minute < self.until
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, until } = self;
        write!(f, "{:02}:{:02}-{:02}:{:02}", from / 60, from % 60, until / 60, until % 60)
    }
}

impl fmt::Display for Windows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_always() {
            return f.write_str("always");
        }
        for (at, span) in self.spans().iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{span}")?;
        }
        Ok(())
    }
}

impl FromStr for Windows {
    type Err = NotWindows;

    fn from_str(text: &str) -> Result<Self, NotWindows> {
        if text.trim() == "always" {
            return Ok(Self::ALWAYS);
        }
        let mut minutes = Vec::with_capacity(WINDOWS_MAX);
        for one in text.split(',') {
            let no_window = || NotWindows::Form(one.trim().chars().take(40).collect());
            let (from, until) = one.trim().split_once('-').ok_or_else(no_window)?;
            let from = minute(from).filter(|from| *from < DAY_MINUTES).ok_or_else(no_window)?;
            minutes.push((from, minute(until).ok_or_else(no_window)?));
            if WINDOWS_MAX < minutes.len() {
                return Err(NotWindows::Many);
            }
        }
        Self::new(minutes)
    }
}

/// The minute of the day that a text as `14:30` says, to 24:00.
fn minute(text: &str) -> Option<u16> {
    let (hour, minute) = text.split_once(':')?;
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_clock =
        matches!(hour.len(), 1 | 2) && minute.len() == 2 && digits(hour) && digits(minute);
    let (hour, minute): (u16, u16) = (hour.parse().ok()?, minute.parse().ok()?);
    let of_day = hour * 60 + minute;
    (is_clock && minute < 60 && of_day <= DAY_MINUTES).then_some(of_day)
}

/// What a zone's clocks are set to from a time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offset {
    pub from: UnixSeconds,
    /// Local time is so many seconds ahead of UTC; less than a day.
    pub ahead_s: i32,
}

/// When fill may fetch in one place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hours {
    pub windows: Windows,
    /// Ascending by `from`, at most [`OFFSETS_MAX`]. The first holds before it, too; UTC if there
    /// is none.
    pub offsets: Arc<[Offset]>,
    /// Fill is closed until then, whatever the windows say; the end of time until somebody says
    /// otherwise.
    pub paused_until: Option<UnixSeconds>,
}

/// Changes that are looked through for the next that opens or closes: a window and a change of the
/// clock have three at most in a day, and one that is skipped is there again a day later.
const LOOKS_MAX: usize = 64;

/// Changes until an amount of open time has passed: two years of [`WINDOWS_MAX`] windows.
const OPENINGS_MAX: usize = 2 * 366 * WINDOWS_MAX;

impl Hours {
    /// True if fill may fetch now. O(windows + offsets).
    pub fn is_open(&self, now: UnixSeconds) -> bool {
        !self.is_paused(now) && self.windows.has(self.local(now))
    }

    /// True while an operator wants no fill.
    pub fn is_paused(&self, now: UnixSeconds) -> bool {
        self.paused_until.is_some_and(|until| now < until)
    }

    /// When fill opens or closes next, after now; none if it never does.
    pub fn next_change(&self, now: UnixSeconds) -> Option<UnixSeconds> {
        let was_open = self.is_open(now);
        let mut at = now;
        if let Some(until) = self.paused_until.filter(|until| now < *until) {
            at = until;
            if until == NEVER || self.is_open(until) {
                return Some(until).filter(|until| *until != NEVER);
            }
        }
        for _ in 0..LOOKS_MAX {
            at = self.next_look(at)?;
            if self.is_open(at) != was_open {
                return Some(at);
            }
        }
        None
    }

    /// When fill has been open for so long from now on; none if that takes longer than anybody
    /// plans for.
    pub fn open_for(&self, now: UnixSeconds, span: Nanos) -> Option<UnixSeconds> {
        let (mut at, mut left) = (now, span.0.div_ceil(1_000_000_000));
        for _ in 0..OPENINGS_MAX {
            let next = self.next_change(at);
            if self.is_open(at) {
                let lasts = next.map_or(u64::MAX, |next| next.0 - at.0);
                if left <= lasts {
                    return at.0.checked_add(left).map(UnixSeconds);
                }
                left -= lasts;
            }
            at = next?;
        }
        None
    }

    /// How far the place's clocks are ahead of UTC.
    pub fn ahead_s(&self, now: UnixSeconds) -> i32 {
        let after = self.offsets.partition_point(|offset| offset.from <= now);
        let in_force = self.offsets.get(after.saturating_sub(1));
        in_force.map_or(0, |offset| offset.ahead_s)
    }

    /// Seconds that would have passed since 1970 had they always passed by the clock on the wall.
    fn local(&self, now: UnixSeconds) -> u64 {
        // A day is added, so that none is before 1970: all that counts is the second of the day.
        now.0.saturating_add(DAY).saturating_add_signed(i64::from(self.ahead_s(now)))
    }

    /// The next time after this at which a window begins or ends or the clocks are set.
    fn next_look(&self, at: UnixSeconds) -> Option<UnixSeconds> {
        let edge = self.windows.until_edge(self.local(at))?;
        let edge = at.0.saturating_add(edge);
        let after = self.offsets.partition_point(|offset| offset.from <= at);
        let set = self.offsets.get(after).map_or(u64::MAX, |offset| offset.from.0);
        let next = UnixSeconds(edge.min(set));
        assert!(at < next || at.0 == u64::MAX, "time goes on");
        (at < next).then_some(next)
    }
}

/// The end of a pause that somebody ends.
/// JSON's numbers are exact as far as that.
pub const NEVER: UnixSeconds = UnixSeconds((1 << 53) - 1);

/// All that control tells an appliance about fetching.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FillRules {
    /// By which control knows them again; 0 for those of whoever was told none.
    pub state: u64,
    pub hours: Hours,
    /// Most from all sources together; none if nobody said.
    pub rate_max: Option<BitsPerSecond>,
    /// Most from outside of its site: its part of the site's uplink.
    pub outside_max: Option<BitsPerSecond>,
    /// Versions that are fetched before all others, and outside of the windows too, but in no
    /// pause. At most [`URGENT_MAX`].
    pub urgent: Arc<[AssetVersionId]>,
    /// Most from all sources together outside of the windows; none if nobody said.
    pub urgent_max: Option<BitsPerSecond>,
}

impl FillRules {
    /// The most at which a block may come: of what is urgent, outside of the windows; from outside
    /// of the site; and of all.
    pub fn rates(&self, is_open: bool, is_outside: bool) -> [Option<BitsPerSecond>; 3] {
        let urgent = self.urgent_max.filter(|_| !is_open);
        [urgent, self.outside_max.filter(|_| is_outside), self.rate_max]
    }

    /// True if what is urgent may be fetched: at any hour that is in no pause.
    pub fn takes_urgent(&self, now: UnixSeconds) -> bool {
        !self.urgent.is_empty() && !self.hours.is_paused(now)
    }
}

/// Urgent versions at a time. Arbitrary: an operator can look through a list of so many.
pub const URGENT_MAX: usize = 64;

#[cfg(test)]
mod tests;
