//! The bounds of a run: what it has to show, what it showed, and whether that holds.
//!
//! ```text
//! figure, bound ──> Bounds ──┬─> "bounds" of the report, each with "held"
//!                            └─> verdict: an error that names those that are not held
//! ```

use anyhow::{Result, ensure};
use serde::Serialize;

/// All bounds of one run, in the order in which they were added.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Bounds(Vec<Bound>);

/// One figure beside its bound.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Bound {
    /// The figure, by its name in the report.
    of: &'static str,
    #[serde(flatten)]
    limit: Limit,
    shown: f64,
    held: bool,
    depends_on: DependsOn,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Limit {
    AtMost(f64),
    AtLeast(f64),
}

/// What of the machine a figure depends on: where it misses its bound on a slow or a busy one, that
/// says nothing of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DependsOn {
    /// Nothing: it is the same on each.
    Nothing,
    /// Its processor and caches: CPU time, or a part of another's on the same machine.
    Processor,
    /// Its processor and all else that it does meanwhile: time by the clock.
    ProcessorAndLoad,
}

impl Bounds {
    /// Adds a figure that is to be this or less.
    pub fn at_most(&mut self, of: &'static str, most: f64, shown: f64, depends_on: DependsOn) {
        let (limit, held) = (Limit::AtMost(most), shown <= most);
        self.0.push(Bound { of, limit, shown, held, depends_on });
    }

    /// Adds a figure that is to be this or more.
    pub fn at_least(&mut self, of: &'static str, least: f64, shown: f64, depends_on: DependsOn) {
        let (limit, held) = (Limit::AtLeast(least), least <= shown);
        self.0.push(Bound { of, limit, shown, held, depends_on });
    }

    /// Adds a count of what must not be.
    pub fn none(&mut self, of: &'static str, shown: impl TryInto<u32>) {
        self.at_most(of, 0.0, count(shown), DependsOn::Nothing);
    }

    /// Adds a fact that has to be so.
    pub fn fact(&mut self, of: &'static str, is_so: bool) {
        self.at_least(of, 1.0, f64::from(u8::from(is_so)), DependsOn::Nothing);
    }

    /// An error that names all that are not held. A run without bounds has none.
    pub fn verdict(&self) -> Result<()> {
        let missed: Vec<String> =
            self.0.iter().filter(|bound| !bound.held).map(Bound::text).collect();
        ensure!(missed.is_empty(), "not held: {}", missed.join("; "));
        Ok(())
    }

    /// A line for each.
    pub fn text(&self) -> String {
        let line = |bound: &Bound| {
            let word = if bound.held { "held" } else { "NOT HELD" };
            format!("{word:<9} {}\n", bound.text())
        };
        self.0.iter().map(line).collect()
    }
}

impl Bound {
    fn text(&self) -> String {
        let Self { of, limit, shown, depends_on, .. } = self;
        let limit = match limit {
            Limit::AtMost(most) => format!("at most {most}"),
            Limit::AtLeast(least) => format!("at least {least}"),
        };
        let why = match depends_on {
            DependsOn::Nothing => "",
            DependsOn::Processor => ", by this processor",
            DependsOn::ProcessorAndLoad => ", by this processor and what else it did",
        };
        format!("{of} {shown:.3}, {limit}{why}")
    }
}

/// A count as a figure; one that is too large is the largest.
pub fn count(number: impl TryInto<u32>) -> f64 {
    f64::from(number.try_into().unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(took: f64, answers: f64, lost: u64, is_back: bool) -> Bounds {
        let mut bounds = Bounds::default();
        bounds.at_most("took_s", 5.0, took, DependsOn::ProcessorAndLoad);
        bounds.at_least("answers_per_s", 100.0, answers, DependsOn::Processor);
        bounds.none("lost", lost);
        bounds.fact("is_back", is_back);
        bounds
    }

    #[test]
    fn a_run_is_valid_while_each_figure_is_within_its_bound_or_at_it() {
        bounds(5.0, 100.0, 0, true).verdict().unwrap();
        for (missed, of) in [
            (bounds(5.1, 100.0, 0, true), "took_s"),
            (bounds(f64::NAN, 100.0, 0, true), "took_s"),
            (bounds(5.0, 99.9, 0, true), "answers_per_s"),
            (bounds(5.0, 100.0, 1 << 40, true), "lost"),
            (bounds(5.0, 100.0, 0, false), "is_back"),
        ] {
            let said = missed.verdict().unwrap_err().to_string();
            assert!(said.starts_with(&format!("not held: {of} ")) && !said.contains(';'), "{said}");
        }
    }

    #[test]
    fn all_that_are_not_held_are_named_with_what_they_depend_on() {
        let missed = bounds(6.0, 7.0, 0, true);
        assert_eq!(
            missed.verdict().unwrap_err().to_string(),
            "not held: took_s 6.000, at most 5, by this processor and what else it did; \
             answers_per_s 7.000, at least 100, by this processor"
        );
        assert_eq!(
            missed.text().lines().map(|line| &line[..8]).collect::<Vec<_>>(),
            ["NOT HELD", "NOT HELD", "held    ", "held    "]
        );
    }

    #[test]
    fn a_report_says_of_each_bound_whether_it_held() {
        let json = serde_json::to_value(bounds(6.0, 100.0, 0, true)).unwrap();
        assert_eq!(
            json[0],
            serde_json::json!({ "of": "took_s", "at_most": 5.0, "shown": 6.0, "held": false,
                "depends_on": "processor_and_load" })
        );
        assert_eq!((&json[1]["at_least"], &json[1]["held"]), (&100.0.into(), &true.into()));
        assert_eq!(json.as_array().map(Vec::len), Some(4));
    }
}
