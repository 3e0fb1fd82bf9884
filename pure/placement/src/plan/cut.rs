//! How far down the order a cluster reaches, as if it were one member.
//!
//! ```text
//! what is held, by its worth with the margin  ┐
//!                                             ├─ the better one, again and again, until room ends
//! what may come, by its worth, while fill lasts ┘
//! ```

use std::iter::Peekable;
use std::slice::Iter;

use model::units::Bytes;

use super::order::Ranked;
use super::real;
use super::work::{Cut, Work};

struct Walk<'w, 'a> {
    work: &'w Work<'a>,
    cut: Cut,
    room: u64,
    fill: u64,
    /// The next of what is held.
    held: usize,
    /// The next rank that may come, and the first that held it or a later one.
    rank: u32,
    beside: usize,
    /// The next pin: pins are placed already.
    pins: Peekable<Iter<'w, u32>>,
}

/// O(ranks above the cut + held log pins).
pub(super) fn find(work: &Work<'_>) -> Cut {
    let wanted = work.order.wanted();
    let mut walk = Walk {
        work,
        cut: Cut { enter: wanted, stay: wanted, ..Cut::default() },
        room: sum(work.members.iter().map(|member| member.room)),
        fill: sum(work.members.iter().map(|member| member.fill)),
        held: 0,
        rank: 0,
        beside: 0,
        pins: work.pins.iter().peekable(),
    };
    while walk.step() {}
    walk.cut
}

impl Walk<'_, '_> {
    /// False when all is looked at, or the room is used up.
    fn step(&mut self) -> bool {
        let order = self.work.order;
        let held = self.work.held.get(self.held).map(|held| held.rank);
        let held = held.filter(|rank| *rank < order.wanted());
        let held = held.and_then(|rank| Some((rank, order.at(rank)?)));
        let newcomer = if self.rank < self.cut.enter { order.at(self.rank) } else { None };
        let margin = self.work.config.hysteresis_permille;
        if let Some((rank, of)) = held
            && newcomer.is_none_or(|other| other.density <= of.density.more(margin))
        {
            let fits = self.stays(rank, &of);
            if !fits {
                (self.cut.stay, self.cut.enter) = (rank, self.cut.enter.min(self.rank));
                self.cut.by_room = newcomer.map_or(of.density, |other| other.density);
            }
            return fits;
        }
        let Some(of) = newcomer else { return false };
        let fits = self.comes(&of);
        if !fits {
            (self.cut.enter, self.cut.by_room) = (self.rank, of.density);
            self.cut.stay = held.map_or(self.cut.stay, |(rank, _)| rank);
        }
        self.rank += 1;
        fits
    }

    fn stays(&mut self, rank: u32, of: &Ranked) -> bool {
        let count = self.work.count(self.held, rank);
        let len = times(of.len, count.min(self.work.copies(of.peak)));
        if self.work.pins.binary_search(&rank).is_err() {
            if self.room < len {
                return false;
            }
            self.room -= len;
        }
        self.held += count;
        true
    }

    fn comes(&mut self, of: &Ranked) -> bool {
        while self.work.held.get(self.beside).is_some_and(|held| held.rank < self.rank) {
            self.beside += 1;
        }
        let copies = self.work.copies(of.peak);
        let missing = copies.saturating_sub(self.work.count(self.beside, self.rank));
        while self.pins.next_if(|pin| **pin < self.rank).is_some() {}
        let is_done = self.pins.peek() == Some(&&self.rank);
        if missing == 0 || is_done || self.work.is_banned(of) {
            return true;
        }
        let len = times(of.len, missing);
        if self.room < len {
            return false;
        }
        if self.fill < len {
            self.cut.by_fill = self.cut.by_fill.max(of.density);
            if self.fill < self.work.order.catalogue().least().0 {
                self.cut.enter = self.rank;
            }
            return true;
        }
        (self.room, self.fill) = (self.room - len, self.fill - len);
        self.cut.bytes += real(len);
        let part = real(Bytes::of(missing).0) / real(Bytes::of(copies).0);
        self.cut.load += self.work.peak(of) * part;
        true
    }
}

fn times(len: Bytes, count: usize) -> u64 {
    len.0.saturating_mul(Bytes::of(count).0)
}

fn sum(all: impl Iterator<Item = u64>) -> u64 {
    all.fold(0, u64::saturating_add)
}
