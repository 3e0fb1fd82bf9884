//! A list that is cheap to copy though it is long: pages of it are shared until they change.
//!
//! ```text
//! [ page | page | page' | page ]      a copy after a change shares all pages but one
//! ```

use std::sync::Arc;

use crate::number::index;

/// Items by number. A copy costs O(len / 256), a change O(256) once per page and copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paged<T> {
    pages: Vec<Arc<Vec<T>>>,
    /// Invariant: all pages but the last are full.
    len: u32,
}

/// Items of a page: a page of pointers is 2 KiB, and 10,000 items have 40 pages.
const PAGE: usize = 256;

impl<T> Default for Paged<T> {
    fn default() -> Self {
        Self { pages: Vec::new(), len: 0 }
    }
}

impl<T: Clone> Paged<T> {
    /// How many there are: the first number that is free.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The item of this number.
    pub fn get(&self, number: u32) -> Option<&T> {
        let (page, at) = place(number);
        self.pages.get(page)?.get(at)
    }

    /// The item of this number, to be changed. Its page is copied if others share it.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let (page, at) = place(number);
        Arc::make_mut(self.pages.get_mut(page)?).get_mut(at)
    }

    /// The last one.
    pub fn last(&self) -> Option<&T> {
        self.get(self.len.checked_sub(1)?)
    }

    /// Adds an item, and returns its number.
    pub fn push(&mut self, item: T) -> u32 {
        let number = self.len;
        let (page, at) = place(number);
        if page == self.pages.len() {
            self.pages.push(Arc::new(Vec::with_capacity(PAGE)));
        }
        let last = Arc::make_mut(&mut self.pages[page]);
        assert_eq!(last.len(), at, "pages are filled one after the other");
        last.push(item);
        self.len = number.checked_add(1).expect("numbers are 32 bits, and never come to an end");
        number
    }

    /// The numbers of items that may be others than in the list before: those of pages that the
    /// two do not share. O(pages), and what it returns.
    pub fn unshared(&self, before: &Self) -> impl Iterator<Item = u32> {
        let is_shared = |(at, page): &(usize, &Arc<Vec<T>>)| {
            before.pages.get(*at).is_some_and(|of| Arc::ptr_eq(of, page))
        };
        let pages = self.pages.iter().enumerate().filter(move |page| !is_shared(page));
        pages.flat_map(|(at, page)| {
            let first = at * PAGE;
            (first..first + page.len()).map(|at| u32::try_from(at).expect("numbers are 32 bits"))
        })
    }

    /// All, by number.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.pages.iter().flat_map(|page| page.iter())
    }
}

fn place(number: u32) -> (usize, usize) {
    let number = index(number);
    (number / PAGE, number % PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_keeps_what_it_had_and_shares_what_did_not_change() {
        let mut list = Paged::default();
        for n in 0..1000_u32 {
            assert_eq!(list.push(n), n);
        }
        let before = list.clone();
        *list.get_mut(300).unwrap() = 7;
        assert_eq!((before.get(300), list.get(300)), (Some(&300), Some(&7)));
        let shared = before.pages.iter().zip(&list.pages).filter(|(a, b)| Arc::ptr_eq(a, b));
        assert_eq!((before.pages.len(), shared.count()), (4, 3));
        assert_eq!(list.unshared(&before).collect::<Vec<_>>(), (256..512).collect::<Vec<_>>());
        assert_eq!(list.unshared(&Paged::default()).count(), 1000);
        assert_eq!((list.get(1000), list.len(), list.iter().count()), (None, 1000, 1000));
    }
}
