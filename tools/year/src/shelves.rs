//! What the appliances of a kind of sites hold by plans of the product, and how it gets there.

use std::collections::VecDeque;

use model::number::{NumberSet, index};
use placement::plan::Handover;

/// One appliance of each site of the kind: they are filled alike.
#[derive(Debug)]
pub(crate) struct Shelf {
    room: u64,
    /// Invariant: used <= room, and the sum of the pieces that it holds.
    used: u64,
    holds: NumberSet,
    /// What it should hold by the last plan in the end, and now: see `placement::plan::handover`.
    planned: NumberSet,
    wanted: NumberSet,
    /// What it lacks of that, best first.
    queue: VecDeque<u32>,
    /// Bytes of the first of the queue that it has.
    begun: u64,
}

/// An item came to a shelf, or went from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Came(u32),
    Left(u32),
}

/// The pieces that are placed: their lengths, and how much each is worth.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pieces<'a> {
    pub(crate) lens: &'a [u64],
    /// Bytes expected for each byte stored.
    pub(crate) worth: &'a [f64],
}

impl Pieces<'_> {
    pub(crate) fn len(&self, piece: u32) -> u64 {
        self.lens[index(piece)]
    }

    pub(crate) fn worth(&self, piece: u32) -> f64 {
        self.worth.get(index(piece)).copied().unwrap_or(0.0)
    }
}

impl Shelf {
    pub(crate) fn new(room: u64) -> Self {
        let none = NumberSet::new;
        let (planned, wanted) = (none(), none());
        Self { room, used: 0, holds: none(), planned, wanted, queue: VecDeque::new(), begun: 0 }
    }

    pub(crate) fn room(&self) -> u64 {
        self.room
    }

    pub(crate) fn holds(&self) -> &NumberSet {
        &self.holds
    }

    pub(crate) fn planned(&self) -> &NumberSet {
        &self.planned
    }

    pub(crate) fn wanted(&self) -> &NumberSet {
        &self.wanted
    }

    /// Something stays here until another has it.
    pub(crate) fn hands_over(&self) -> bool {
        !self.wanted.is_subset(&self.planned)
    }

    /// Bytes that it lacks of what it should hold in the end.
    pub(crate) fn lacks(&self, lens: &[u64]) -> u64 {
        let all: u64 = (&self.planned - &self.holds).iter().map(|piece| lens[index(piece)]).sum();
        all.saturating_sub(self.begun)
    }

    /// A plan comes into force: what is not wanted leaves at once.
    pub(crate) fn plan(
        &mut self,
        planned: NumberSet,
        handover: &Handover,
        pieces: Pieces<'_>,
        changes: &mut Vec<Change>,
    ) {
        let first = self.queue.front().copied();
        let wanted = handover.until_then(&planned);
        let mut lacks: Vec<u32> = (&wanted - &self.holds).iter().collect();
        for gone in (&self.holds - &wanted).iter() {
            self.holds.remove(gone);
            self.used -= pieces.len(gone);
            changes.push(Change::Left(gone));
        }
        lacks.sort_by(|a, b| pieces.worth(*b).total_cmp(&pieces.worth(*a)).then(a.cmp(b)));
        (self.queue, self.planned, self.wanted) = (lacks.into(), planned, wanted);
        // A piece that is half there is the first still, or its half is let go.
        match self.queue.iter().position(|piece| Some(*piece) == first) {
            Some(at) if 0 < self.begun => {
                let piece = self.queue.remove(at).expect("it was found there");
                self.queue.push_front(piece);
            }
            _ => self.begun = 0,
        }
    }

    /// Only these come until the next plan.
    pub(crate) fn hurry(&mut self, only: &NumberSet) {
        self.queue.retain(|piece| only.contains(*piece));
        self.begun = 0;
    }

    /// An hour of fill, in bytes: what comes.
    pub(crate) fn fill(&mut self, mut bytes: u64, pieces: Pieces<'_>, changes: &mut Vec<Change>) {
        while let Some(&piece) = self.queue.front() {
            let len = pieces.len(piece);
            let left = len - self.begun;
            if bytes < left {
                self.begun += bytes;
                return;
            }
            bytes -= left;
            (self.begun, self.used) = (0, self.used + len);
            assert!(self.used <= self.room, "there is room for all that is wanted");
            self.queue.pop_front();
            self.holds.insert(piece);
            changes.push(Change::Came(piece));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENS: [u64; 6] = [40; 6];
    const WORTH: [f64; 6] = [1.0, 6.0, 3.0, 4.0, 5.0, 2.0];
    const PIECES: Pieces<'_> = Pieces { lens: &LENS, worth: &WORTH };

    fn set<const N: usize>(of: [u32; N]) -> NumberSet {
        of.into_iter().collect()
    }

    fn fill(shelf: &mut Shelf, bytes: u64) -> Vec<Change> {
        let mut changes = Vec::new();
        shelf.fill(bytes, PIECES, &mut changes);
        changes
    }

    fn plan<const N: usize>(shelf: &mut Shelf, of: [u32; N]) -> Vec<Change> {
        let mut changes = Vec::new();
        shelf.plan(set(of), &Handover::default(), PIECES, &mut changes);
        changes
    }

    #[test]
    fn what_is_worth_most_comes_first_and_in_pieces_of_an_hour() {
        let mut shelf = Shelf::new(100);
        plan(&mut shelf, [0, 1]);
        assert_eq!(fill(&mut shelf, 30), []);
        assert_eq!(shelf.lacks(&LENS), 50);
        assert_eq!(fill(&mut shelf, 30), [Change::Came(1)]);
        assert_eq!(fill(&mut shelf, 100), [Change::Came(0)]);
        assert_eq!((shelf.used, shelf.lacks(&LENS)), (80, 0));
    }

    #[test]
    fn what_is_not_wanted_leaves_at_once_and_what_is_handed_over_when_others_have_it() {
        let mut shelf = Shelf::new(100);
        plan(&mut shelf, [0, 5]);
        fill(&mut shelf, 80);
        let (stays, waits) = (set([5]), set([3]));
        let mut changes = Vec::new();
        shelf.plan(set([1, 3]), &Handover { stays, waits }, PIECES, &mut changes);
        assert_eq!((changes, shelf.lacks(&LENS)), (vec![Change::Left(0)], 80));
        assert!(shelf.hands_over());
        assert_eq!(fill(&mut shelf, 200), [Change::Came(1)]);
        assert_eq!(plan(&mut shelf, [1, 3]), [Change::Left(5)]);
        assert!(!shelf.hands_over());
        assert_eq!(fill(&mut shelf, 200), [Change::Came(3)]);
    }

    #[test]
    fn a_half_that_is_not_wanted_any_more_is_let_go() {
        let mut shelf = Shelf::new(100);
        plan(&mut shelf, [1, 4]);
        fill(&mut shelf, 20);
        plan(&mut shelf, [4, 3]);
        assert_eq!(fill(&mut shelf, 39), []);
        assert_eq!(fill(&mut shelf, 1), [Change::Came(4)]);
    }

    #[test]
    fn in_a_hurry_only_what_is_urgent_comes() {
        let mut shelf = Shelf::new(120);
        plan(&mut shelf, [0, 5]);
        fill(&mut shelf, 80);
        assert_eq!(plan(&mut shelf, [1, 4, 5]), [Change::Left(0)]);
        shelf.hurry(&set([4]));
        assert_eq!(fill(&mut shelf, 200), [Change::Came(4)]);
        assert_eq!(shelf.lacks(&LENS), 40);
    }
}
