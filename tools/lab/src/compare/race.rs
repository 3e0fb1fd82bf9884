//! Which configuration of the peer stands for it: the cheapest of those that serve everybody.
//!
//! ```text
//! entered ──> cost known ──> the cheapest leads
//!     └─────────────┴─────> out, with the reason: named in the result, never taken
//! ```

use serde::Serialize;

/// A configuration of the peer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Trial {
    pub(crate) config: String,
    /// What it cost when it was tried; nothing if it failed then.
    pub(crate) cpu_s_per_gb: Option<f64>,
    pub(crate) gbps: Option<f64>,
    /// Why it is out of the race.
    pub(crate) failed: Option<String>,
}

/// All configurations, in the order in which they were tried.
#[derive(Clone, Debug, Default)]
pub(crate) struct Race {
    trials: Vec<Trial>,
}

impl Race {
    /// One more was tried: its CPU seconds per GB and Gb/s, or why it failed. Its number.
    pub(crate) fn enter(&mut self, config: String, outcome: Result<(f64, f64), String>) -> usize {
        let (cost, failed) = match outcome {
            Ok(cost) => (Some(cost), None),
            Err(reason) => (None, Some(reason)),
        };
        let [cpu_s_per_gb, gbps] = [cost.map(|cost| cost.0), cost.map(|cost| cost.1)];
        self.trials.push(Trial { config, cpu_s_per_gb, gbps, failed });
        self.trials.len() - 1
    }

    /// One that was tried well has failed since.
    pub(crate) fn fail(&mut self, number: usize, reason: String) {
        self.trials[number].failed = Some(reason);
    }

    /// The number of the cheapest that has not failed; an error with all reasons if all have.
    pub(crate) fn leader(&self) -> Result<usize, String> {
        let running = self.trials.iter().enumerate().filter(|(_, trial)| trial.failed.is_none());
        let cost = |trial: &Trial| trial.cpu_s_per_gb.unwrap_or(f64::INFINITY);
        let first = running.min_by(|(_, a), (_, b)| cost(a).total_cmp(&cost(b)));
        first.map(|(number, _)| number).ok_or_else(|| {
            let reasons: String = self.failures().map(|line| format!("\n  {line}")).collect();
            format!("every configuration of the peer failed:{reasons}")
        })
    }

    pub(crate) fn failures(&self) -> impl Iterator<Item = String> {
        self.trials.iter().filter_map(|trial| {
            trial.failed.as_ref().map(|reason| format!("{}: {reason}", trial.config))
        })
    }

    pub(crate) fn trials(&self) -> &[Trial] {
        &self.trials
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn race(outcomes: &[Result<f64, &str>]) -> Race {
        let mut race = Race::default();
        for (number, outcome) in outcomes.iter().enumerate() {
            let outcome = outcome.map(|cost| (cost, 1.0)).map_err(str::to_owned);
            assert_eq!(race.enter(format!("c{number}"), outcome), number);
        }
        race
    }

    #[test]
    fn the_cheapest_that_serves_everybody_leads() {
        assert_eq!(race(&[Ok(1.2), Ok(0.9), Ok(1.0)]).leader(), Ok(1));
        assert_eq!(race(&[Err("starved"), Ok(1.2), Ok(1.3)]).leader(), Ok(1));
        assert_eq!(race(&[Ok(1.0), Ok(1.0)]).leader(), Ok(0), "the first of two alike");
    }

    #[test]
    fn who_fails_later_hands_the_lead_on_and_is_named() {
        let mut race = race(&[Ok(0.9), Err("no such directive"), Ok(1.1)]);
        assert_eq!(race.leader(), Ok(0));
        race.fail(0, "24 of 200 starved".to_owned());
        assert_eq!(race.leader(), Ok(2));
        let named: Vec<String> = race.failures().collect();
        assert_eq!(named, ["c0: 24 of 200 starved", "c1: no such directive"]);
        assert_eq!(race.trials()[0].cpu_s_per_gb, Some(0.9), "what it cost is still told");
    }

    #[test]
    fn without_anybody_left_all_reasons_are_told() {
        let error = race(&[Err("a"), Err("b")]).leader().unwrap_err();
        assert_eq!(error, "every configuration of the peer failed:\n  c0: a\n  c1: b");
        assert!(Race::default().leader().is_err());
    }
}
