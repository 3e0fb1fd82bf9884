//! Counts allocations, for tests that show that there are none. It stands here because an allocator
//! is unsafe to write; no product uses it.
//!
//! A test makes [`Counting`] its `#[global_allocator]`, calls [`count_this_thread`] on the threads
//! that it is about, and compares [`count`] before and after.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The system's allocator, which counts for threads that asked for it.
#[derive(Debug)]
pub struct Counting;

static COUNT: AtomicU64 = AtomicU64::new(0);
static LAST_LEN: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Constant and without a destructor: to look at it allocates nothing.
    static COUNTED: Cell<bool> = const { Cell::new(false) };
}

/// From here on, allocations of this thread are counted.
pub fn count_this_thread() {
    COUNTED.set(true);
}

/// Allocations, and moves to a larger place, of all counted threads so far.
pub fn count() -> u64 {
    COUNT.load(Ordering::SeqCst)
}

/// Bytes of the newest allocation of a counted thread: tells which one it was.
pub fn last_len() -> usize {
    LAST_LEN.load(Ordering::SeqCst)
}

fn note(len: usize) {
    if COUNTED.get() {
        LAST_LEN.store(len, Ordering::SeqCst);
        COUNT.fetch_add(1, Ordering::SeqCst);
    }
}

// SAFETY: everything is the system allocator's; what is added touches no memory but a counter.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller keeps to the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps to the same contract.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        note(len);
        // SAFETY: the caller keeps to the same contract.
        unsafe { System.realloc(at, layout, len) }
    }
}
