//! What the appliances of a kind of sites hold by plans of the product, and how it gets there.

use std::collections::VecDeque;

use model::number::{NumberSet, index};

/// One appliance of each site of the kind: they are filled alike.
#[derive(Debug)]
pub(crate) struct Shelf {
    room: u64,
    /// Invariant: used <= room, and the sum of the pieces that it holds.
    used: u64,
    holds: NumberSet,
    /// What it should hold by the last plan.
    pub(crate) wanted: NumberSet,
    /// What it lacks, best first.
    queue: VecDeque<u32>,
    /// What it holds and should not, the worst last.
    surplus: Vec<u32>,
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
    fn len(&self, piece: u32) -> u64 {
        self.lens[index(piece)]
    }

    fn worth(&self, piece: u32) -> f64 {
        self.worth.get(index(piece)).copied().unwrap_or(0.0)
    }
}

impl Shelf {
    pub(crate) fn new(room: u64) -> Self {
        let none = NumberSet::new;
        let (queue, surplus) = (VecDeque::new(), Vec::new());
        Self { room, used: 0, holds: none(), wanted: none(), queue, surplus, begun: 0 }
    }

    /// Bytes that it lacks of what it should hold.
    pub(crate) fn lacks(&self, lens: &[u64]) -> u64 {
        let all: u64 = self.queue.iter().map(|piece| lens[index(*piece)]).sum();
        all - self.begun
    }

    /// A plan comes into force.
    pub(crate) fn plan(&mut self, wanted: NumberSet, pieces: Pieces<'_>) {
        let first = self.queue.front().copied();
        let mut lacks: Vec<u32> = (&wanted - &self.holds).iter().collect();
        let mut surplus: Vec<u32> = (&self.holds - &wanted).iter().collect();
        let best =
            |a: &u32, b: &u32| pieces.worth(*b).total_cmp(&pieces.worth(*a)).then_with(|| a.cmp(b));
        lacks.sort_by(best);
        surplus.sort_by(best);
        (self.queue, self.surplus, self.wanted) = (lacks.into(), surplus, wanted);
        // A piece that is half there is the first still, or its half is let go.
        match self.queue.iter().position(|piece| Some(*piece) == first) {
            Some(at) if 0 < self.begun => {
                let piece = self.queue.remove(at).expect("it was found there");
                self.queue.push_front(piece);
            }
            _ => self.begun = 0,
        }
    }

    /// Only these of a plan, at once: what else the plan brings is for the next window, and what
    /// it puts out goes as far as they need its room.
    pub(crate) fn hurry(&mut self, plan: &NumberSet, only: &NumberSet, pieces: Pieces<'_>) {
        let comes = &(plan & only) - &self.holds;
        if comes.is_empty() {
            return;
        }
        let gone = &self.wanted - plan;
        self.plan(&(&self.wanted - &gone) | &comes, pieces);
        self.queue.retain(|piece| comes.contains(*piece));
        self.begun = 0;
        // What no hurry takes the place of stays wanted.
        self.wanted |= gone;
    }

    /// An hour of fill, in bytes: what leaves and what comes, in this order.
    pub(crate) fn fill(&mut self, mut bytes: u64, pieces: Pieces<'_>, changes: &mut Vec<Change>) {
        while let Some(&piece) = self.queue.front() {
            let len = pieces.len(piece);
            let left = len - self.begun;
            if bytes < left {
                self.begun += bytes;
                return;
            }
            while self.room < self.used + len {
                let Some(gone) = self.surplus.pop() else { return };
                self.holds.remove(gone);
                self.wanted.remove(gone);
                self.used -= pieces.len(gone);
                changes.push(Change::Left(gone));
            }
            bytes -= left;
            (self.begun, self.used) = (0, self.used + len);
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

    #[test]
    fn what_is_worth_most_comes_first_and_in_pieces_of_an_hour() {
        let mut shelf = Shelf::new(100);
        shelf.plan(set([0, 1]), PIECES);
        assert_eq!(fill(&mut shelf, 30), []);
        assert_eq!(shelf.lacks(&LENS), 50);
        assert_eq!(fill(&mut shelf, 30), [Change::Came(1)]);
        assert_eq!(fill(&mut shelf, 100), [Change::Came(0)]);
        assert_eq!((shelf.used, shelf.lacks(&LENS)), (80, 0));
    }

    #[test]
    fn what_is_not_wanted_leaves_when_its_room_is_needed_the_worst_first() {
        let mut shelf = Shelf::new(100);
        shelf.plan(set([0, 5]), PIECES);
        fill(&mut shelf, 80);
        shelf.plan(set([3]), PIECES);
        assert_eq!(shelf.used, 80, "nothing left yet");
        assert_eq!(fill(&mut shelf, 40), [Change::Left(0), Change::Came(3)]);
        assert_eq!(shelf.holds, set([3, 5]), "5 is still there, though not wanted");
    }

    #[test]
    fn a_half_that_is_not_wanted_any_more_is_let_go() {
        let mut shelf = Shelf::new(100);
        shelf.plan(set([1, 4]), PIECES);
        fill(&mut shelf, 20);
        shelf.plan(set([4, 3]), PIECES);
        assert_eq!(fill(&mut shelf, 39), []);
        assert_eq!(fill(&mut shelf, 1), [Change::Came(4)]);
    }

    #[test]
    fn in_a_hurry_only_what_is_urgent_comes_and_takes_the_worst_ones_place() {
        let mut shelf = Shelf::new(100);
        shelf.plan(set([0, 5]), PIECES);
        fill(&mut shelf, 80);
        shelf.hurry(&set([1, 4]), &set([4]), PIECES);
        assert_eq!(fill(&mut shelf, 200), [Change::Left(0), Change::Came(4)]);
        assert_eq!(shelf.wanted, set([4, 5]));
    }
}
