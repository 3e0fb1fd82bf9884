//! Memory that direct I/O takes: runs of whole pages.

use std::ops::{Deref, DerefMut};

use bytemuck::{Pod, Zeroable};
use model::limits::DIRECT_ALIGN;
use model::units::Bytes;

/// Bytes that begin at a page and fill whole pages.
#[derive(Clone, Debug)]
pub struct Pages(Vec<Page>);

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, align(4096))]
struct Page([u8; PAGE_LEN]);

const PAGE_LEN: usize = 4096;
const _: () = assert!(DIRECT_ALIGN.0 == 4096, "a page is what direct I/O is aligned to");

impl Pages {
    /// Zeros, at least `len` of them.
    pub fn zeroed(len: Bytes) -> Self {
        let count = len.align_up(DIRECT_ALIGN).as_usize() / PAGE_LEN;
        Self(vec![Page::zeroed(); count])
    }
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_begin_at_a_page_and_are_whole() {
        for len in [0, 1, 4096, 4097, 262_144] {
            let pages = Pages::zeroed(Bytes(len));
            assert_eq!(Bytes::of(pages.len()), Bytes(len).align_up(DIRECT_ALIGN));
            assert!(pages.as_ptr().addr().is_multiple_of(PAGE_LEN));
        }
    }
}
