//! The bytes left of a day's budget, through restarts. A clock that is set back gives nothing at
//! once; a day later by that clock there are a day's bytes again.

use std::str::FromStr;

use model::units::{Bytes, UnixSeconds};

const DAY: u64 = 86_400;
const MAGIC: &str = "nearcast-budget 1";

/// The bytes spent, and the day (UTC) on which they were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    day: u64,
    spent: Bytes,
}

/// A text that is no budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is no budget file: it should name a day and the bytes written on it")]
pub struct BudgetError;

impl Budget {
    /// Nothing was spent yet today.
    pub fn new(now: UnixSeconds) -> Self {
        Self { day: now.0 / DAY, spent: Bytes::ZERO }
    }

    /// Today's is gone: nobody knows how much of it.
    pub fn used_up(now: UnixSeconds) -> Self {
        Self { spent: Bytes(u64::MAX), ..Self::new(now) }
    }

    /// The bytes left of `daily`.
    pub fn left(&self, now: UnixSeconds, daily: Bytes) -> Bytes {
        let is_new = self.day < now.0 / DAY;
        daily.saturating_sub(if is_new { Bytes::ZERO } else { self.spent })
    }

    /// So much is to be written today. To be kept before it is. Also nothing may be spent: then it
    /// is noted which day it is, so that a clock that was set back does not make tomorrow wait for
    /// what it had said.
    pub fn spend(&mut self, now: UnixSeconds, bytes: Bytes) {
        let day = now.0 / DAY;
        if self.day < day {
            self.spent = Bytes::ZERO;
        }
        self.day = day;
        self.spent = Bytes(self.spent.0.saturating_add(bytes.0));
    }
}

impl std::fmt::Display for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{MAGIC}\n{} {}", self.day, self.spent.0)
    }
}

impl FromStr for Budget {
    type Err = BudgetError;

    fn from_str(text: &str) -> Result<Self, BudgetError> {
        let line = text.strip_prefix(MAGIC).ok_or(BudgetError)?.trim();
        let (day, spent) = line.split_once(' ').ok_or(BudgetError)?;
        let number = |text: &str| text.parse::<u64>().map_err(|_| BudgetError);
        Ok(Self { day: number(day)?, spent: Bytes(number(spent)?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DAILY: Bytes = Bytes(100);

    fn noon(day: u64) -> UnixSeconds {
        UnixSeconds(day * DAY + DAY / 2)
    }

    #[test]
    fn a_day_s_bytes_are_spent_once_and_a_clock_set_back_gives_nothing_at_once() {
        let mut budget = Budget::new(noon(7));
        budget.spend(noon(7), Bytes(60));
        let left = |day| budget.left(noon(day), DAILY);
        assert_eq!([6, 7, 8, 7].map(left), [Bytes(40), Bytes(40), DAILY, Bytes(40)], "only a look");
        budget.spend(noon(6), Bytes::ZERO);
        assert_eq!(budget.left(noon(6), DAILY), Bytes(40), "set back: nothing is given");
        assert_eq!(budget.left(noon(7), DAILY), DAILY, "a day later by that clock");
        budget.spend(noon(7), Bytes(160));
        assert_eq!(budget.left(noon(7), DAILY), Bytes::ZERO);
        assert_eq!(Budget::used_up(noon(7)).left(noon(7), DAILY), Bytes::ZERO);
        assert_eq!(Budget::used_up(noon(7)).left(noon(8), DAILY), DAILY);
    }

    #[test]
    fn what_is_no_budget_is_refused() {
        for bad in ["", "nearcast-budget 1", "nearcast-budget 1\n7", "nearcast-budget 2\n7 9\n"] {
            assert_eq!(bad.parse::<Budget>(), Err(BudgetError), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn a_restart_finds_what_was_spent(day in 0u64..100_000, spent: u64) {
            let budget = Budget { day, spent: Bytes(spent) };
            prop_assert_eq!(budget.to_string().parse(), Ok(budget));
        }
    }
}
