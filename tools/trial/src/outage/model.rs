//! What a simulated player decides, as hls.js does (1.7: its content steering and stream
//! controllers), without its sockets: which pathway to load from, and how much is buffered.

use std::time::{Duration, Instant};

/// A pathway that failed is not returned to for so long (hls.js: `PATHWAY_PENALTY_DURATION_MS`).
const PENALTY: Duration = Duration::from_secs(300);

#[derive(Clone, Debug)]
pub(crate) struct Pathways {
    /// In the order of the entry manifest.
    known: Vec<Pathway>,
    /// As steering said last, best first.
    priority: Vec<String>,
    current: usize,
}

/// One choice among servers.
#[derive(Clone, Debug)]
pub(crate) struct Pathway {
    pub(crate) id: String,
    pub(crate) url: String,
    failed: Option<Instant>,
}

impl Pathways {
    /// As an entry manifest has them; it begins with the first.
    pub(crate) fn new(pathways: Vec<(String, String)>) -> Self {
        let known: Vec<Pathway> =
            pathways.into_iter().map(|(id, url)| Pathway { id, url, failed: None }).collect();
        assert!(!known.is_empty(), "a playback has a pathway");
        let priority = known.iter().map(|pathway| pathway.id.clone()).collect();
        Self { known, priority, current: 0 }
    }

    pub(crate) fn current(&self) -> &Pathway {
        &self.known[self.current]
    }

    /// The current one failed: another, or the one that failed longest ago if all have.
    pub(crate) fn fail(&mut self, now: Instant) {
        self.known[self.current].failed = Some(now);
        self.choose(now);
    }

    /// Steering says so; unknown names are passed over.
    pub(crate) fn steer(&mut self, now: Instant, priority: Vec<String>) {
        self.priority = priority;
        self.choose(now);
    }

    fn choose(&mut self, now: Instant) {
        let by_priority = self.priority.iter().filter_map(|id| self.at(id));
        let mut any = by_priority.chain(0..self.known.len());
        let is_well = |at: &usize| self.known[*at].failed.is_none_or(|f| PENALTY <= now - f);
        let oldest = || (0..self.known.len()).min_by_key(|at| self.known[*at].failed);
        if let Some(at) = any.find(is_well).or_else(oldest) {
            self.current = at;
        }
    }

    fn at(&self, id: &str) -> Option<usize> {
        self.known.iter().position(|pathway| pathway.id == id)
    }
}

/// How much is loaded and how much was played.
#[derive(Clone, Debug, Default)]
pub(crate) struct Buffer {
    /// When the film's first second was played, moved on by stalls; none before the first segment.
    began: Option<Instant>,
    loaded: Duration,
    pub(crate) stalls: u32,
    pub(crate) stalled: Duration,
}

impl Buffer {
    /// Another segment is there.
    pub(crate) fn append(&mut self, now: Instant, length: Duration) {
        self.settle(now);
        self.began.get_or_insert(now);
        self.loaded += length;
    }

    /// What is loaded and not yet played.
    pub(crate) fn ahead(&self, now: Instant) -> Duration {
        let played = self.began.map_or(Duration::ZERO, |began| now - began);
        self.loaded.saturating_sub(played)
    }

    /// Counts a stall that lasts until now, if there is one.
    pub(crate) fn settle(&mut self, now: Instant) {
        let Some(began) = self.began else { return };
        let missing = (now - began).saturating_sub(self.loaded);
        if missing.is_zero() {
            return;
        }
        self.stalls += 1;
        self.stalled += missing;
        self.began = Some(began + missing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pathways() -> Pathways {
        Pathways::new(["a", "b", "c"].map(|id| (id.to_owned(), format!("u{id}"))).into())
    }

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|id| (*id).to_owned()).collect()
    }

    #[test]
    fn a_pathway_that_failed_is_left_and_steering_does_not_lead_back_to_it() {
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let mut pathways = pathways();
        pathways.fail(at(0));
        assert_eq!(pathways.current().id, "b");
        pathways.steer(at(5), names(&["a", "c", "b", "z"]));
        assert_eq!(pathways.current().id, "c");
        pathways.fail(at(6));
        pathways.fail(at(7));
        assert_eq!(pathways.current().id, "a", "the one that failed longest ago");
        pathways.steer(at(310), names(&["b"]));
        assert_eq!(pathways.current().id, "b", "after five minutes all is forgotten");
    }

    #[test]
    fn a_buffer_that_runs_empty_is_a_stall_of_that_length() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut buffer = Buffer::default();
        assert_eq!(buffer.ahead(at(900)), Duration::ZERO, "nothing was begun");
        buffer.append(at(1000), Duration::from_secs(2));
        buffer.append(at(1100), Duration::from_secs(2));
        assert_eq!(buffer.ahead(at(2000)), Duration::from_secs(3));
        buffer.append(at(5000), Duration::from_secs(2));
        assert_eq!((buffer.stalls, buffer.stalled), (0, Duration::ZERO));
        buffer.append(at(7500), Duration::from_secs(2));
        assert_eq!((buffer.stalls, buffer.stalled), (1, Duration::from_millis(500)));
        assert_eq!(buffer.ahead(at(7500)), Duration::from_secs(2));
        buffer.settle(at(9600));
        assert_eq!((buffer.stalls, buffer.stalled), (2, Duration::from_millis(600)));
    }
}
