//! Hints to the processor about what will be looked at soon.

/// What a processor fetches at once.
#[cfg(target_arch = "x86_64")]
const LINE_LEN: usize = 64;

/// Asks for all of `value`, which will be looked at soon, without waiting for it. What it points to
/// is not asked for. Does nothing where there is no such hint.
pub fn prefetch<T>(value: &T) {
    lines(std::ptr::from_ref(value).cast(), size_of::<T>());
}

/// Asks for `len` bytes from `start` on. Reads nothing, so that any address will do.
#[cfg(target_arch = "x86_64")]
pub fn lines(start: *const u8, len: usize) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    let before = start.addr() % LINE_LEN;
    for at in (0..before + len).step_by(LINE_LEN) {
        // SAFETY: a hint; it reads nothing, and an address of nobody is no fault.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(at).cast()) };
    }
}

/// Asks for `len` bytes from `start` on.
#[cfg(not(target_arch = "x86_64"))]
pub fn lines(_: *const u8, _: usize) {}
