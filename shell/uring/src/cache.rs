//! Hints to the processor about memory that will be read soon.

/// Bytes that a processor fetches at once.
#[cfg(target_arch = "x86_64")]
const LINE_LEN: usize = 64;

/// Asks for the first bytes of each page of `bytes`, without waiting for them: the processor sees
/// by itself that what follows is wanted, but finds that out anew in each page. Does nothing where
/// there is no such hint.
pub fn page_starts(bytes: &[u8]) {
    let to_next = PAGE_LEN - bytes.as_ptr().addr() % PAGE_LEN;
    let (first, rest) = bytes.split_at(to_next.min(bytes.len()));
    for page in std::iter::once(first).chain(rest.chunks(PAGE_LEN)) {
        lines(page.as_ptr(), page.len().min(START_LEN));
    }
}

/// Beyond which a processor does not look ahead.
const PAGE_LEN: usize = 4096;
/// Two lines; one and four cost the same.
const START_LEN: usize = 128;

/// Asks for `len` bytes from `start` on. Reads nothing, so that any address will do.
#[cfg(target_arch = "x86_64")]
fn lines(start: *const u8, len: usize) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    let before = start.addr() % LINE_LEN;
    for at in (0..before + len).step_by(LINE_LEN) {
        // SAFETY: a hint; it reads nothing, and an address of nobody is no fault.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(at).cast()) };
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn lines(_: *const u8, _: usize) {}
