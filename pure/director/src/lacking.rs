//! Which appliances will lack much: fill closed before all was there, or is too slow for the hours.
//!
//! ```text
//! each look: hours, missing, rate ──> ready? ──> after its window ends ────────> Short
//!                 └──> it was open at the look before, and is closed ──> Ended, until it opens
//! ```
//!
//! A look costs O(appliances log appliances + windows until each is ready). Nothing of it is kept
//! through a restart: what was missing when a window closed is then not known, and what will be
//! missing is seen with the first look.

use std::collections::{BTreeMap, BTreeSet};

use model::hours::{FillRules, Hours};
use model::id::ApplianceId;
use model::units::{BitsPerSecond, Bytes, Nanos, UnixSeconds};

/// Less than this of what it should hold is no trouble, in thousandths. Arbitrary: what is placed
/// anew in a day is less.
const MISSING_PERMILLE: u64 = 100;

/// A window that opens later than this is not looked at yet.
const AHEAD: Nanos = Nanos::seconds(12 * 3600);

/// How far an appliance is.
#[derive(Clone, Debug)]
pub struct Filling {
    pub appliance: ApplianceId,
    pub rules: FillRules,
    pub wanted: Bytes,
    /// Of these, not there yet.
    pub missing: Bytes,
    /// Fetched in its last report interval.
    pub of_late: BitsPerSecond,
}

/// An appliance lacks much of what it should hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lack {
    pub since: UnixSeconds,
    pub wanted: Bytes,
    pub missing: Bytes,
    pub cause: LackCause,
}

/// Why it will lack it when viewers come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LackCause {
    /// Fill has closed, and opens again then.
    Ended { opens: Option<UnixSeconds> },
    /// At the rate that is expected it has all after the end of its window, or never.
    Short { ends: UnixSeconds, ready: Option<UnixSeconds> },
}

/// All that lack much, as they were looked at last.
#[derive(Clone, Debug, Default)]
pub struct Lacking {
    known: BTreeMap<ApplianceId, Lack>,
    open: BTreeSet<ApplianceId>,
}

impl Lacking {
    /// Looks at all appliances. One that is not among them is forgotten.
    pub fn look(&mut self, now: UnixSeconds, all: impl Iterator<Item = Filling>) {
        let (before, was_open) = (std::mem::take(&mut self.known), std::mem::take(&mut self.open));
        for of in all {
            let id = of.appliance.clone();
            let known = before.get(&id);
            let has_closed = was_open.contains(&id);
            if of.rules.hours.is_open(now) {
                self.open.insert(id.clone());
            }
            if let Some(cause) = cause(now, &of, known, has_closed) {
                let is_same = |known: &&Lack| known.cause.is_ended() == cause.is_ended();
                let since = known.filter(is_same).map_or(now, |known| known.since);
                let (wanted, missing) = (of.wanted, of.missing);
                self.known.insert(id, Lack { since, wanted, missing, cause });
            }
        }
    }

    /// Those that lack much, by name.
    pub fn known(&self) -> impl ExactSizeIterator<Item = (&ApplianceId, &Lack)> {
        self.known.iter()
    }
}

impl LackCause {
    fn is_ended(&self) -> bool {
        matches!(self, Self::Ended { .. })
    }
}

/// Why it lacks much; none if it does not, or an operator has paused it, or it fills at any hour.
fn cause(
    now: UnixSeconds,
    of: &Filling,
    known: Option<&Lack>,
    has_closed: bool,
) -> Option<LackCause> {
    let hours = &of.rules.hours;
    let lacks =
        u128::from(of.missing.0) * 1000 > u128::from(of.wanted.0) * u128::from(MISSING_PERMILLE);
    if !lacks || hours.is_paused(now) || hours.windows.is_always() {
        return None;
    }
    let is_open = hours.is_open(now);
    let change = hours.next_change(now);
    let opens = if is_open { Some(now) } else { change };
    let ends = opens.filter(|opens| opens.0 - now.0 <= AHEAD.as_seconds());
    let ends = ends.and_then(|opens| hours.next_change(opens));
    if let (Some(ends), Some(rate)) = (ends, rate(&of.rules, of.of_late, now)) {
        let ready = ready(hours, rate, of.missing, now);
        if ready.is_none_or(|ready| ends < ready) {
            return Some(LackCause::Short { ends, ready });
        }
    }
    let was_ended = known.is_some_and(|known| known.cause.is_ended());
    (!is_open && (has_closed || was_ended)).then_some(LackCause::Ended { opens })
}

/// How fast an appliance is expected to fetch: as of late, or as fast as it may while fill is
/// closed, when it fetches what is urgent at most. None if that is not known.
pub fn rate(rules: &FillRules, of_late: BitsPerSecond, now: UnixSeconds) -> Option<BitsPerSecond> {
    if !rules.hours.is_open(now) {
        return [rules.rate_max, rules.outside_max].into_iter().flatten().min();
    }
    Some(of_late).filter(|rate| 0 < rate.0)
}

/// When so much will be there at this rate, in the hours in which fill is open; none if nobody
/// plans for so long.
pub fn ready(
    hours: &Hours,
    rate: BitsPerSecond,
    missing: Bytes,
    now: UnixSeconds,
) -> Option<UnixSeconds> {
    let seconds = u128::from(missing.0) * 8 / u128::from(rate.0.max(1)) + 1;
    hours.open_for(now, Nanos::seconds(u64::try_from(seconds).ok()?.min(SECONDS_MAX)))
}

/// 292 years: as many nanoseconds are a number.
const SECONDS_MAX: u64 = 1 << 33;

#[cfg(test)]
mod tests {
    use super::*;
    use model::hours::Offset;

    const DAY: u64 = 20_000 * 86_400;
    const GB: u64 = 1_000_000_000;

    fn hour(hour: u64) -> UnixSeconds {
        UnixSeconds(DAY + hour * 3600)
    }

    /// Of 100 GB, at 80 Mb/s at most: 36 GB in an hour.
    fn filling(windows: &str, missing_gb: u64) -> Filling {
        let hours = Hours { windows: windows.parse().unwrap(), ..Hours::default() };
        let rate_max = Some(BitsPerSecond(80_000_000));
        Filling {
            appliance: "a1".parse().unwrap(),
            rules: FillRules { hours, rate_max, ..FillRules::default() },
            wanted: Bytes(100 * GB),
            missing: Bytes(missing_gb * GB),
            of_late: BitsPerSecond(0),
        }
    }

    fn looked(lacking: &mut Lacking, now: UnixSeconds, of: &Filling) -> Option<Lack> {
        lacking.look(now, [of.clone()].into_iter());
        lacking.known().next().map(|(_, lack)| *lack)
    }

    #[test]
    fn a_window_that_closes_with_much_missing_is_told_until_it_opens_or_little_is_missing() {
        let mut lacking = Lacking::default();
        // A night, with midnight in it: 80 Mb/s for eight hours are 288 GB.
        let (much, little) = (filling("22:00-06:00", 11), filling("22:00-06:00", 10));
        assert_eq!(looked(&mut lacking, hour(7), &much), None, "it was not seen to close");
        assert_eq!(looked(&mut lacking, hour(23), &much), None, "it will be there");
        let opens = Some(hour(46));
        let lack = looked(&mut lacking, hour(30), &much).expect("it has closed");
        assert_eq!((lack.since, lack.cause), (hour(30), LackCause::Ended { opens }));
        let later = looked(&mut lacking, hour(31), &much).expect("it is missing still");
        assert_eq!(later, lack, "and since then");
        assert_eq!(looked(&mut lacking, hour(32), &little), None, "a tenth");
        assert_eq!(looked(&mut lacking, hour(33), &much), None, "that came by day");
        assert_eq!(looked(&mut lacking, hour(47), &much), None, "it is open again");
        let paused = Hours { paused_until: Some(hour(60)), ..much.rules.hours.clone() };
        let rules = FillRules { hours: paused, ..much.rules.clone() };
        let paused = Filling { rules, ..much.clone() };
        assert_eq!(looked(&mut lacking, hour(54), &paused), None, "an operator wants that");
        lacking.look(hour(55), std::iter::empty());
        assert_eq!(lacking.known().len(), 0);
    }

    #[test]
    fn a_window_that_is_too_short_for_what_is_missing_is_told_before_it_opens() {
        let mut lacking = Lacking::default();
        let (fits, long) = (filling("22:00-23:00", 35), filling("22:00-23:00", 37));
        assert_eq!(looked(&mut lacking, hour(10), &fits), None);
        assert_eq!(looked(&mut lacking, UnixSeconds(hour(10).0 - 1), &long), None, "it is early");
        let lack = looked(&mut lacking, hour(10), &long).expect("it opens in twelve hours");
        let LackCause::Short { ends, ready } = lack.cause else { panic!("{lack:?}") };
        assert_eq!((ends, lack.since), (hour(23), hour(10)));
        assert!(hour(46) < ready.unwrap() && ready.unwrap() < hour(47), "the next night");
        let lack = looked(&mut lacking, hour(22), &long).map(|lack| lack.cause.is_ended());
        assert_eq!(lack, None, "it is open, and how fast it comes is not known yet");
        let slow = Filling { of_late: BitsPerSecond(8_000_000), ..fits.clone() };
        let lack = looked(&mut lacking, hour(22), &slow).expect("it comes too slowly");
        assert!(!lack.cause.is_ended());
        assert_eq!(looked(&mut lacking, hour(22), &filling("always", 100)), None);
        let unknown = FillRules { rate_max: None, ..long.rules.clone() };
        let mut lacking = Lacking::default();
        assert_eq!(looked(&mut lacking, hour(12), &Filling { rules: unknown, ..long }), None);
    }

    #[test]
    fn windows_are_those_of_the_clock_on_the_wall() {
        // Four hours ahead, and two from ten in the evening of UTC on.
        let set = |from, ahead_s| Offset { from, ahead_s };
        let mut of = filling("22:00-23:00", 37);
        of.rules.hours.offsets = [set(hour(0), 14_400), set(hour(22), 7200)].into();
        let mut lacking = Lacking::default();
        let ends = |lack: Option<Lack>| match lack?.cause {
            LackCause::Short { ends, .. } => Some(ends),
            LackCause::Ended { .. } => None,
        };
        assert_eq!(ends(looked(&mut lacking, hour(17), &of)), Some(hour(19)));
        // In the second that the clocks are set back it is midnight, and the window in 22 hours.
        assert_eq!(ends(looked(&mut lacking, hour(22), &of)), None);
        assert_eq!(ends(looked(&mut lacking, hour(34), &of)), Some(hour(45)));
    }
}
