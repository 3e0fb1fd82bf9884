//! What came from where, by hour.

use model::number::index;
use serde::Serialize;

use crate::parameters::{LOSS_DAY, LOSS_HOURS, WARM_UP_WEEKS, WINDOW};
use crate::sessions::SLOTS;
use crate::sites::{EXCHANGE, KINDS};

/// Who decides what a site has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    Directed,
    Title,
    Clairvoyant,
    Expected,
    Lru,
    S3Fifo,
}

impl Policy {
    pub(crate) const ALL: [Self; 6] =
        [Self::Directed, Self::Title, Self::Clairvoyant, Self::Expected, Self::Lru, Self::S3Fifo];
    /// Those that place.
    pub(crate) const PLACED: [Self; 4] =
        [Self::Directed, Self::Title, Self::Clairvoyant, Self::Expected];
    /// Those whose plans are filled.
    pub(crate) const FILLED: [Self; 2] = [Self::Directed, Self::Title];

    pub(crate) fn at(self) -> usize {
        match self {
            Self::Directed => 0,
            Self::Title => 1,
            Self::Clairvoyant => 2,
            Self::Expected => 3,
            Self::Lru => 4,
            Self::S3Fifo => 5,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Directed => "directed",
            Self::Title => "title",
            Self::Clairvoyant => "clairvoyant",
            Self::Expected => "expected",
            Self::Lru => "lru",
            Self::S3Fifo => "s3fifo",
        }
    }
}

/// Which hours are what, in a year of so many weeks after the warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Calendar {
    pub(crate) weeks: u32,
}

impl Calendar {
    pub(crate) fn days(self) -> u32 {
        (WARM_UP_WEEKS + self.weeks) * 7
    }

    /// True on days whose right sets are a week's end, or the next one's begin, or both. The last
    /// week ends on the last day: the day after it, with which others end, is not played.
    pub(crate) fn parts_weeks(self, day: u32) -> bool {
        day.is_multiple_of(7) || day + 1 == self.days()
    }

    /// True but for the warm-up, and the hours in which sites are lost.
    pub(crate) fn counts(self, hour: usize) -> bool {
        index(WARM_UP_WEEKS) * 7 * SLOTS <= hour && !self.is_lost(hour)
    }

    /// True in the hours of the loss, in the last week of a year that is too short for it.
    pub(crate) fn is_lost(self, hour: usize) -> bool {
        let [week, day] = LOSS_DAY;
        let week = week.min(self.weeks.saturating_sub(1));
        let begin = index((WARM_UP_WEEKS + week) * 7 + day) * SLOTS;
        let hours = LOSS_HOURS.map(|at| begin + index(at - WINDOW[0]));
        (hours[0]..hours[1]).contains(&hour)
    }
}

/// Bytes of one policy in one region.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) calendar: Calendar,
    /// By hour, fill included.
    pub(crate) upstream: Vec<u64>,
    /// By hour, what viewers of embedded sites got from elsewhere.
    pub(crate) miss: Vec<u64>,
    /// The same of hours that count, by kind of site; exchanges too.
    pub(crate) kind_miss: [u64; KINDS],
    /// Of these, what a site had: it had no throughput left, or others had more.
    pub(crate) shed: [u64; KINDS],
    /// What plans moved, in hours that count.
    pub(crate) moved: u64,
    /// Of it, what came from the site's other appliances or the ISP's other sites.
    pub(crate) moved_from_peers: u64,
    /// Of it, what came outside of the window; and of that, what fast-track brought.
    pub(crate) outside: u64,
    pub(crate) fast_track: u64,
}

impl Flow {
    pub(crate) fn new(calendar: Calendar) -> Self {
        let hours = index(calendar.days()) * SLOTS;
        Self {
            calendar,
            upstream: vec![0; hours],
            miss: vec![0; hours],
            kind_miss: [0; KINDS],
            shed: [0; KINDS],
            moved: 0,
            moved_from_peers: 0,
            outside: 0,
            fast_track: 0,
        }
    }

    /// Viewers of a site of this kind got so much from elsewhere.
    pub(crate) fn missed(&mut self, hour: usize, kind: usize, bytes: u64) {
        if kind != EXCHANGE {
            self.miss[hour] += bytes;
        }
        if self.calendar.counts(hour) {
            self.kind_miss[kind] += bytes;
        }
    }
}

/// What became of the viewers of lost sites.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Loss {
    /// Sessions begun in the hours of the loss.
    pub(crate) sessions: u64,
    pub(crate) in_reach: u64,
    /// Whose item nobody in reach holds.
    pub(crate) upstream: u64,
    /// Whose item is in reach, where all who hold it are full.
    pub(crate) full: u64,
    /// Of these, of the first hour.
    pub(crate) rebuffers: u64,
    /// Without a site in reach, which are not in `sessions`.
    pub(crate) without_reach_first_hour: u64,
    pub(crate) without_reach: u64,
}

impl Loss {
    /// That of several regions.
    pub(crate) fn of_all(regions: impl Iterator<Item = Self>) -> Self {
        regions.fold(Self::default(), |all, of| Self {
            sessions: all.sessions + of.sessions,
            in_reach: all.in_reach + of.in_reach,
            upstream: all.upstream + of.upstream,
            full: all.full + of.full,
            rebuffers: all.rebuffers + of.rebuffers,
            without_reach_first_hour: all.without_reach_first_hour + of.without_reach_first_hour,
            without_reach: all.without_reach + of.without_reach,
        })
    }
}

/// All that is counted of a region.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    pub(crate) calendar: Calendar,
    /// What viewers of embedded sites got, by hour.
    pub(crate) bytes: Vec<u64>,
    /// What all viewers got, by hour.
    pub(crate) all: Vec<u64>,
    /// The same in hours that count, by kind.
    pub(crate) kind_bytes: [u64; KINDS],
    pub(crate) flows: Vec<Flow>,
    /// Of the days on which sites knew their own sessions.
    pub(crate) own_bytes: [u64; KINDS],
    pub(crate) own_miss: [u64; KINDS],
    /// The least that must move, in bytes.
    pub(crate) least_moved: u64,
    pub(crate) loss: Loss,
    /// What is expected on the day of each big launch: day and bytes.
    pub(crate) launches: Vec<(u32, f64)>,
    pub(crate) sessions: u64,
}

impl Tally {
    pub(crate) fn new(calendar: Calendar) -> Self {
        let hours = index(calendar.days()) * SLOTS;
        Self {
            calendar,
            bytes: vec![0; hours],
            all: vec![0; hours],
            kind_bytes: [0; KINDS],
            flows: vec![Flow::new(calendar); Policy::ALL.len()],
            own_bytes: [0; KINDS],
            own_miss: [0; KINDS],
            least_moved: 0,
            loss: Loss::default(),
            launches: Vec::new(),
            sessions: 0,
        }
    }

    pub(crate) fn flow(&mut self, policy: Policy) -> &mut Flow {
        &mut self.flows[policy.at()]
    }

    /// Viewers of a site of this kind got so much.
    pub(crate) fn served(&mut self, hour: usize, kind: usize, bytes: u64) {
        self.all[hour] += bytes;
        if kind != EXCHANGE {
            self.bytes[hour] += bytes;
        }
        if self.calendar.counts(hour) {
            self.kind_bytes[kind] += bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_week_that_counts_has_a_begin_and_an_end() {
        for weeks in [1, 4, 52] {
            let calendar = Calendar { weeks };
            let days = WARM_UP_WEEKS * 7..calendar.days();
            let parts: Vec<u32> = days.filter(|day| calendar.parts_weeks(*day)).collect();
            assert_eq!(parts.len(), index(weeks) + 1);
            assert_eq!((parts[0], parts.last()), (28, Some(&(28 + weeks * 7 - 1))));
        }
    }

    #[test]
    fn the_loss_is_an_evening_of_the_year_and_does_not_count() {
        for (weeks, week) in [(52, 40), (4, 3), (1, 0)] {
            let calendar = Calendar { weeks };
            let hours = 0..index(calendar.days()) * SLOTS;
            let lost: Vec<usize> = hours.clone().filter(|hour| calendar.is_lost(*hour)).collect();
            // Saturday at 20:00, where a day begins at 02:00.
            let first = index((4 + week) * 7 + 5) * SLOTS + 18;
            assert_eq!(lost, [first, first + 1, first + 2]);
            let counted = hours.filter(|hour| calendar.counts(*hour)).count();
            assert_eq!(counted, index(weeks) * 7 * SLOTS - 3);
        }
    }
}
