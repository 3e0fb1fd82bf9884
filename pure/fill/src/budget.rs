//! What of a day's bytes is left, through restarts and through clocks that are set.

use std::str::FromStr;

use model::units::{Bytes, UnixSeconds};

const DAY: u64 = 86_400;
const MAGIC: &str = "nearcast-budget 1";

/// What was spent, and on which day (UTC).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    day: u64,
    spent: Bytes,
}

/// A text that is no budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it does not say what was spent of which day")]
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

    /// What is left of `daily` bytes.
    pub fn left(&mut self, now: UnixSeconds, daily: Bytes) -> Bytes {
        let day = now.0 / DAY;
        if self.day < day {
            self.spent = Bytes::ZERO;
        }
        // A clock that was set back gives nothing, and does not make tomorrow wait for what it was.
        self.day = day;
        daily.saturating_sub(self.spent)
    }

    /// So much is to be written today. To be kept before it is.
    pub fn spend(&mut self, bytes: Bytes) {
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
    fn a_day_s_bytes_are_spent_once_whatever_the_clock_does() {
        let mut budget = Budget::new(noon(7));
        budget.spend(Bytes(60));
        assert_eq!(budget.left(noon(7), DAILY), Bytes(40));
        assert_eq!(budget.left(noon(6), DAILY), Bytes(40), "set back: nothing is given");
        assert_eq!(budget.left(noon(7), DAILY), DAILY, "a day later by that clock");
        budget.spend(Bytes(160));
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
