//! Sums of many hours or days, item by item.

use model::id::Item;
use model::units::Bytes;

use crate::float;
use crate::sums::{Entries, Sums};

/// Walks columns of sums side by side: an item, and its bytes in each. O(columns) for each item.
pub(crate) struct Rows<'a> {
    columns: Vec<Column<'a>>,
    /// The next item of each column, or `END`: apart, so that the least is found fast.
    heads: Vec<u64>,
    row: Vec<f64>,
}

struct Column<'a> {
    rest: Option<Entries<'a>>,
    bytes: Bytes,
}

/// After all items.
const END: u64 = u64::MAX;

impl<'a> Rows<'a> {
    /// Of these columns; one without sums has no item.
    pub(crate) fn new(sums: impl Iterator<Item = Option<&'a Sums>>) -> Self {
        let column =
            |sums: Option<&'a Sums>| Column { rest: sums.map(Sums::iter), bytes: Bytes(0) };
        let columns: Vec<_> = sums.map(column).collect();
        let (heads, row) = (vec![END; columns.len()], vec![0.0; columns.len()]);
        let mut rows = Self { columns, heads, row };
        (0..rows.columns.len()).for_each(|at| rows.step(at));
        rows
    }

    /// The next item, ascending, with its bytes by column.
    pub(crate) fn next(&mut self) -> Option<(Item, &[f64])> {
        let least = self.least()?;
        Some((least, self.row_of(least)))
    }

    /// The next item, if there is one.
    fn least(&self) -> Option<Item> {
        let least = self.heads.iter().copied().min()?;
        u32::try_from(least).ok().map(Item)
    }

    /// The bytes of an item, of which none was asked before that comes after it.
    pub(crate) fn row_of(&mut self, item: Item) -> &[f64] {
        for at in 0..self.heads.len() {
            while self.heads[at] < u64::from(item.0) {
                self.step(at);
            }
            self.row[at] = 0.0;
            if self.heads[at] == u64::from(item.0) {
                self.row[at] = float(self.columns[at].bytes);
                self.step(at);
            }
        }
        &self.row
    }

    fn step(&mut self, at: usize) {
        let column = &mut self.columns[at];
        let next = column.rest.as_mut().and_then(Iterator::next);
        self.heads[at] = next.map_or(END, |(item, _)| u64::from(item.0));
        column.bytes = next.map_or(Bytes::ZERO, |(_, bytes)| bytes);
    }
}
