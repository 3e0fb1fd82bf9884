//! The work that a plan asks for besides fetching: each drive has hands of its own for it.
//!
//! ```text
//! plan ──> give ──> one drive's chores wait, at most those of one plan ──> take ──> done
//! ```
//!
//! So a drive that hangs keeps its own waiting and nobody else's. The next plan names again what
//! still waits, in its place.

use std::collections::{BTreeMap, BTreeSet};

use model::drives::{DriveIndex, DriveSet};
use model::id::ObjectId;

use crate::Chores;

/// Chores by drive.
#[derive(Debug)]
pub struct Errands {
    /// Invariant: none of them is empty.
    waiting: BTreeMap<DriveIndex, Chores>,
    /// Drives whose hands are at work, with what of theirs is still doubted.
    at_work: BTreeMap<DriveIndex, BTreeSet<ObjectId>>,
    /// Something was done since a plan was due.
    has_done: bool,
    /// Most suspects that wait for one drive; those beyond are left to the scrub.
    suspects_max: usize,
}

impl Errands {
    /// Nothing is to be done.
    pub fn new(suspects_max: usize) -> Self {
        let (waiting, at_work) = (BTreeMap::new(), BTreeMap::new());
        Self { waiting, at_work, has_done: false, suspects_max }
    }

    /// Replaces the chores that wait, but for suspects, which are named once.
    pub fn give(&mut self, chores: Chores, drive_of: impl Fn(&ObjectId) -> Option<DriveIndex>) {
        for waiting in self.waiting.values_mut() {
            waiting.evict.clear();
            waiting.drop_parts.clear();
        }
        for (object, drive) in chores.evict {
            self.waiting.entry(drive).or_default().evict.push((object, drive));
        }
        for (part, drive) in chores.drop_parts {
            self.waiting.entry(drive).or_default().drop_parts.push((part, drive));
        }
        for (object, doubt) in chores.suspects {
            // An object that is held nowhere is not doubted any more.
            let Some(drive) = drive_of(&object) else { continue };
            let suspects = &mut self.waiting.entry(drive).or_default().suspects;
            if suspects.len() < self.suspects_max {
                suspects.insert(object, doubt);
            }
        }
        self.waiting.retain(|_, chores| *chores != Chores::default());
    }

    /// The chores that wait for a drive, whose hands are at work from now on.
    pub fn take(&mut self, drive: DriveIndex) -> Option<Chores> {
        let chores = self.waiting.remove(&drive)?;
        self.at_work.insert(drive, chores.suspects.keys().copied().collect());
        Some(chores)
    }

    /// False if the copy that was doubted has gone since this was handed out.
    pub fn is_doubted(&self, drive: DriveIndex, object: &ObjectId) -> bool {
        self.at_work.get(&drive).is_some_and(|doubted| doubted.contains(object))
    }

    /// They are done, and so many things are gone. True if it is time for the next plan: something
    /// is gone, and no drive that answers is at work.
    pub fn done(&mut self, drive: DriveIndex, count: usize, hung: DriveSet) -> bool {
        self.at_work.remove(&drive);
        self.has_done |= 0 < count;
        let answers = |drive: &DriveIndex| !hung.contains(*drive);
        let is_idle = !self.at_work.keys().chain(self.waiting.keys()).any(answers);
        is_idle && std::mem::take(&mut self.has_done)
    }

    /// An object that may wait to be looked at is not on this drive any more.
    pub fn forget_doubt(&mut self, object: &ObjectId, drive: DriveIndex) {
        if let Some(doubted) = self.at_work.get_mut(&drive) {
            doubted.remove(object);
        }
        let Some(chores) = self.waiting.get_mut(&drive) else { return };
        if chores.suspects.remove(object).is_some() && *chores == Chores::default() {
            self.waiting.remove(&drive);
        }
    }

    /// A drive is set aside: nothing waits for it, and nobody waits for the threads at work there.
    pub fn forget(&mut self, drive: DriveIndex) {
        self.waiting.remove(&drive);
        self.at_work.remove(&drive);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Doubt;

    fn object(n: u8) -> ObjectId {
        ObjectId([n; 32])
    }

    /// Evictions of objects, each from the drive of its number.
    fn evict(numbers: &[u8]) -> Chores {
        let evict = numbers.iter().map(|n| (object(*n), DriveIndex(*n))).collect();
        Chores { evict, ..Chores::default() }
    }

    #[test]
    fn a_drive_that_is_at_work_for_long_keeps_nobody_waiting() {
        let mut errands = Errands::new(1);
        errands.give(evict(&[0, 1]), |_| None);
        assert_eq!(errands.take(DriveIndex(0)), Some(evict(&[0])));
        assert_eq!(errands.take(DriveIndex(2)), None);
        assert_eq!(errands.take(DriveIndex(1)), Some(evict(&[1])));
        assert!(!errands.done(DriveIndex(1), 1, DriveSet::NONE), "0 is not done");
        errands.give(evict(&[0, 1]), |_| None);
        errands.give(evict(&[1]), |_| None);
        assert_eq!(errands.take(DriveIndex(1)), Some(evict(&[1])));
        assert!(errands.done(DriveIndex(1), 1, [DriveIndex(0)].into_iter().collect()), "0 hangs");
        assert_eq!(errands.take(DriveIndex(0)), None, "the second plan did not name it");
        assert!(!errands.done(DriveIndex(0), 0, DriveSet::NONE), "nothing was done since");
    }

    #[test]
    fn doubts_wait_for_their_drive_as_many_as_there_is_room_for() {
        let mut errands = Errands::new(2);
        for n in 0..4 {
            let suspects = BTreeMap::from([(object(n), Doubt::Suspect)]);
            let on = |_: &ObjectId| (n != 1).then_some(DriveIndex(7));
            errands.give(Chores { suspects, ..Chores::default() }, on);
        }
        let suspects = errands.take(DriveIndex(7)).unwrap().suspects;
        assert_eq!(suspects.into_keys().collect::<Vec<_>>(), [object(0), object(2)]);
        errands.give(evict(&[7]), |_| None);
        errands.forget(DriveIndex(7));
        assert_eq!(errands.take(DriveIndex(7)), None);
    }
}
