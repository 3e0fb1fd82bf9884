//! The last minutes of the fleet, once a second, for the status page.

use std::collections::VecDeque;

use model::units::{BitsPerSecond, UnixSeconds};

/// The fleet in one second: of its appliances that report, the sums.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    pub at: UnixSeconds,
    pub egress: BitsPerSecond,
    pub fill: BitsPerSecond,
    /// Mean of their CPU shares, 0 to 100.
    pub cpu_percent: f32,
}

/// A ring of samples, oldest first.
#[derive(Clone, Debug, Default)]
pub struct History {
    samples: VecDeque<Sample>,
}

/// Samples kept, as many as the page's plots show.
pub(crate) const HISTORY_LEN: usize = 120;

impl History {
    /// True if there is no sample of this second yet.
    pub(crate) fn wants(&self, at: UnixSeconds) -> bool {
        self.samples.back().is_none_or(|last| last.at != at)
    }

    /// Adds the sample unless there is one of the same second already.
    pub fn push(&mut self, sample: Sample) {
        if !self.wants(sample.at) {
            return;
        }
        if self.samples.len() == HISTORY_LEN {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
        assert!(self.samples.len() <= HISTORY_LEN, "the oldest made room");
    }

    /// The samples, oldest first.
    pub fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.samples.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_keeps_one_sample_a_second_and_forgets_the_oldest() {
        let mut history = History::default();
        for at in [1, 1, 2, 2] {
            history.push(Sample { at: UnixSeconds(at), ..Sample::default() });
        }
        assert_eq!(history.samples().map(|sample| sample.at.0).collect::<Vec<_>>(), [1, 2]);
        for at in 3..400 {
            history.push(Sample { at: UnixSeconds(at), ..Sample::default() });
        }
        assert_eq!(history.samples().count(), HISTORY_LEN);
        assert_eq!(history.samples().last().map(|sample| sample.at.0), Some(399));
    }
}
