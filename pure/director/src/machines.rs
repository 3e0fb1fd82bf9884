//! Whether an identity is one machine, and the same as before.
//!
//! ```text
//! start_id:  A A A B B B ...      a restart
//!            A B A B A            two living processes: one identity on two machines, a clone
//! ```
//!
//! Of a process that was replaced, the reports that were on their way come late: two at most. So a
//! process counts as living beside another when it comes back three times, and the other did each
//! time. One that comes back alone is the living one: what came between was late.

use std::collections::{BTreeSet, VecDeque};

use model::units::{Instant, Nanos};

/// The processes that lately reported under one identity.
#[derive(Clone, Debug, Default)]
pub(crate) struct Starts {
    current: Start,
    /// Oldest first. Invariant: at most `EARLIER_MAX`.
    earlier: VecDeque<Start>,
    is_forgiven: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Start {
    id: u64,
    /// The latest sequence that was seen of it.
    sequence: u64,
    /// Newer reports of it that came after one of the current process.
    returns: u32,
    /// The current process has reported since this one did.
    is_answered: bool,
}

impl Start {
    fn new(id: u64, sequence: u64) -> Self {
        Self { id, sequence, returns: 0, is_answered: true }
    }
}

/// The order of a report among those of its appliance, by its start and sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// It comes after all that was seen.
    News,
    /// Something newer was seen.
    Late,
    /// Two processes are alive.
    Cloned,
}

/// The hardware that an appliance says it runs on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hardware {
    /// A digest of its machine-id; empty if it has none.
    pub machine: String,
    /// UUIDs of all its drives, also those set aside.
    pub drives: BTreeSet<String>,
}

/// The change in an appliance's hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Moved {
    #[error("its machine-id is another")]
    Machine,
    #[error("none of its drives is one that it had")]
    Drives,
}

impl Starts {
    pub(crate) fn new(id: u64, sequence: u64) -> Self {
        Self { current: Start::new(id, sequence), ..Self::default() }
    }

    /// Looks at a report, and remembers it.
    pub(crate) fn order(&mut self, id: u64, sequence: u64) -> Order {
        if self.is_forgiven {
            *self = Self::new(id, sequence);
            return Order::News;
        }
        if id == self.current.id {
            let is_news = self.current.sequence < sequence;
            self.current.sequence = self.current.sequence.max(sequence);
            if is_news {
                self.earlier.iter_mut().for_each(|start| start.is_answered = true);
            }
            return if is_news { Order::News } else { Order::Late };
        }
        let Some(place) = self.earlier.iter().position(|start| start.id == id) else {
            self.begin(Start::new(id, sequence));
            return Order::News;
        };
        let earlier = &mut self.earlier[place];
        if sequence <= earlier.sequence {
            return Order::Late;
        }
        earlier.sequence = sequence;
        if std::mem::take(&mut earlier.is_answered) {
            earlier.returns = earlier.returns.saturating_add(1);
            return if RETURNS_MIN <= earlier.returns { Order::Cloned } else { Order::Late };
        }
        // It goes on and the other does not: that was a late report of one that is gone.
        if let Some(living) = self.earlier.remove(place) {
            self.begin(Start { returns: 0, ..living });
        }
        Order::News
    }

    /// This is the current process from now on.
    fn begin(&mut self, start: Start) {
        if EARLIER_MAX <= self.earlier.len() {
            self.earlier.pop_front();
        }
        self.earlier.push_back(std::mem::replace(&mut self.current, start));
        assert!(self.earlier.len() <= EARLIER_MAX, "so many restarts take no memory");
        let is_current = |start: &Start| start.id == self.current.id;
        assert!(!self.earlier.iter().any(is_current), "a process is the current one or was");
        self.earlier.iter_mut().for_each(|start| start.is_answered = true);
    }

    /// Begins anew with the next report, whosever it is.
    pub(crate) fn forgive(&mut self) {
        self.is_forgiven = true;
    }
}

impl Hardware {
    /// The change by which `self`, which is newer, cannot be the machine `known`. Drives may come
    /// and go; that none of them stays is no repair.
    pub(crate) fn moved(&self, known: &Self) -> Option<Moved> {
        if !self.machine.is_empty() && !known.machine.is_empty() && self.machine != known.machine {
            return Some(Moved::Machine);
        }
        let both_have_drives = !self.drives.is_empty() && !known.drives.is_empty();
        (both_have_drives && self.drives.is_disjoint(&known.drives)).then_some(Moved::Drives)
    }

    /// True if something that was known is other now.
    pub(crate) fn differs(&self, known: &Self) -> bool {
        !known.machine.is_empty() && self.machine != known.machine
            || !known.drives.is_empty() && self.drives != known.drives
    }

    /// True if all that `self` says is known.
    pub(crate) fn adds_nothing(&self, known: &Self) -> bool {
        (self.machine.is_empty() || self.machine == known.machine)
            && (self.drives.is_empty() || self.drives == known.drives)
    }

    /// `known` with the facts of `self`: a fact that `self` leaves out stays.
    pub(crate) fn or(self, known: &Self) -> Self {
        let machine = if self.machine.is_empty() { known.machine.clone() } else { self.machine };
        let drives = if self.drives.is_empty() { known.drives.clone() } else { self.drives };
        Self { machine, drives }
    }
}

/// True at most once in a while: this bounds the writes that an appliance can cause at control.
pub(crate) fn once_in_a_while(last: &mut Option<Instant>, now: Instant) -> bool {
    if last.is_some_and(|last| now.since(last) < WHILE) {
        return false;
    }
    *last = Some(now);
    true
}

/// Two reports can be under way while their process is replaced: it waits five seconds for the
/// answer to each, and one that takes more than ten is lost. Three cannot.
const RETURNS_MIN: u32 = 3;
/// Arbitrary: so many machines with one disk image.
const EARLIER_MAX: usize = 8;
/// Long beside a report's interval, short beside an operator's patience.
const WHILE: Nanos = Nanos::seconds(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_comes_back_three_times_lives_beside_another() {
        check("A1 A2 B1 B2", "n n n n", "a restart");
        check("A1 A2 B1 A3 B2 B3", "n n n l n n", "one report was on its way");
        check("A1 A3 B1 A2 A2 A1 A3", "n n n l l l l", "old ones, however many");
        check("A1 A2 B1 A3 B2 A4 B3", "n n n l n l n", "two were");
        check("A1 A2 B1 A3 A4 B2 B3 B4", "n n n l n l n n", "two were, and came together");
        check("A1 A2 Z9 A3 A4 A5 A6", "n n n l n n n", "one of a process that is long gone");
        check("A1 B1 A2 B2 A3 B3 A4", "n n l n l n c", "two machines");
        check("A1 B1 A2 A3 B2 A4 B3 A5 A6 B4", "n n l n l n l n n c", "one of them is slow");
        check("A1 B1 C1 A2 B2 C2 A3 B3 C3 A4 B4", "n n n l l n l l n c c", "three machines");
    }

    #[test]
    fn whoever_was_forgiven_counts_from_the_beginning() {
        let mut starts = Starts::new(1, 1);
        starts.order(2, 1);
        let both = |starts: &mut Starts, n| (starts.order(1, n), starts.order(2, n));
        let (late, cloned) = ((Order::Late, Order::News), (Order::Cloned, Order::News));
        assert_eq!([2, 3, 4].map(|n| both(&mut starts, n)), [late, late, cloned]);
        starts.forgive();
        assert_eq!([5, 6].map(|n| starts.order(1, n)), [Order::News, Order::News], "alone");
        assert_eq!(starts.order(2, 7), Order::News);
        assert_eq!([8, 9, 10].map(|n| both(&mut starts, n)), [late, late, cloned], "not alone");
    }

    #[test]
    fn so_many_restarts_take_no_memory() {
        let mut starts = Starts::new(0, 1);
        for id in 1..1000 {
            assert_eq!(starts.order(id, 1), Order::News);
        }
        assert_eq!(starts.earlier.len(), EARLIER_MAX);
    }

    #[test]
    fn drives_come_and_go_and_a_machine_does_not() {
        let hardware = |machine: &str, drives: &[&str]| Hardware {
            machine: machine.to_owned(),
            drives: drives.iter().map(|id| (*id).to_owned()).collect(),
        };
        let known = hardware("m1", &["d1", "d2"]);
        let check = |machine, drives, moved| {
            let told = hardware(machine, drives);
            assert_eq!(told.moved(&known), moved, "{told:?}");
        };
        check("m1", &["d1", "d2"], None);
        check("m1", &["d2", "d3"], None);
        check("m1", &[], None);
        check("", &["d1"], None);
        check("m2", &["d1", "d2"], Some(Moved::Machine));
        check("m1", &["d3", "d4"], Some(Moved::Drives));
        assert_eq!(hardware("", &[]).or(&known), known);
        assert_eq!(hardware("m1", &["d3"]).moved(&hardware("", &[])), None);
    }

    fn check(reports: &str, turns: &str, why: &str) {
        let mut reports = reports.split(' ').map(|report| {
            let (id, sequence) = report.split_at(1);
            (u64::from(id.as_bytes()[0]), sequence.parse().unwrap())
        });
        let (id, sequence) = reports.next().unwrap();
        let mut starts = Starts::new(id, sequence);
        let order = |(id, sequence)| match starts.order(id, sequence) {
            Order::News => " n",
            Order::Late => " l",
            Order::Cloned => " c",
        };
        let found: String = reports.map(order).collect();
        assert_eq!(format!("n{found}"), turns, "{why}");
    }
}
