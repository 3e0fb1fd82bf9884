//! Memory for direct reads: one mapping, cut into equal buffers.
//!
//! In huge pages: those that the system has set apart (`vm.nr_hugepages`) if they are enough, else
//! those that the kernel makes where it can. Registration pins it all, so none is ever swapped.

use std::ptr::NonNull;

use model::handle::BufferId;
use model::limits::DIRECT_ALIGN;
use model::units::Bytes;
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// The smaller of the sizes that huge pages have on our processors (2 MiB on x86-64 and aarch64).
const HUGE_PAGE: usize = 2 << 20;
/// Most bytes that can be registered in one piece: more is refused (`io_uring_register` in
/// liburing's manual).
const PIECE_MAX: usize = 1 << 30;

/// Buffers of equal length in one mapping, aligned for direct I/O, zeroed at start.
#[derive(Debug)]
pub(crate) struct Arena {
    base: NonNull<u8>,
    mapped: usize,
    buffer_len: usize,
    /// One entry per buffer: true while the kernel may write to it.
    in_flight: Vec<bool>,
}

impl Arena {
    /// Maps `count` buffers of `buffer_len`, a multiple of the direct I/O alignment.
    pub(crate) fn new(count: u16, buffer_len: Bytes) -> std::io::Result<Self> {
        assert!(0 < count, "an arena has buffers");
        assert_eq!(buffer_len, buffer_len.align_up(DIRECT_ALIGN), "buffers are for direct I/O");
        let len = usize::from(count) * buffer_len.as_usize();
        let len = len.next_multiple_of(HUGE_PAGE);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let map = |flags| {
            // SAFETY: an anonymous mapping where the kernel chooses touches nothing else.
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, protection, flags) }
        };
        let base = match map(MapFlags::PRIVATE | MapFlags::HUGETLB) {
            Ok(base) => base,
            Err(_) => {
                let base = map(MapFlags::PRIVATE)?;
                // SAFETY: the range was mapped by the line above; advice changes no content. Huge
                // pages are a wish: where there are none, small ones serve.
                let _ = unsafe { rustix::mm::madvise(base, len, Advice::LinuxHugepage) };
                base
            }
        };
        let base = NonNull::new(base.cast::<u8>()).expect("a mapping is not at address zero");
        let in_flight = vec![false; usize::from(count)];
        Ok(Self { base, mapped: len, buffer_len: buffer_len.as_usize(), in_flight })
    }

    /// For registration: as many buffers in one piece as the kernel takes.
    pub(crate) fn iovecs(&self) -> Vec<libc::iovec> {
        let per_piece = self.per_piece();
        let of = |first: usize| libc::iovec {
            iov_base: self.start(first).as_ptr().cast(),
            iov_len: per_piece.min(self.in_flight.len() - first) * self.buffer_len,
        };
        (0..self.in_flight.len()).step_by(per_piece).map(of).collect()
    }

    /// Which of `iovecs` the buffer is in.
    pub(crate) fn piece(&self, buffer: BufferId) -> u16 {
        u16::try_from(buffer.as_usize() / self.per_piece()).expect("no more pieces than buffers")
    }

    fn per_piece(&self) -> usize {
        (PIECE_MAX / self.buffer_len).max(1)
    }

    /// The buffer's content. Panics while the kernel may write to it.
    pub(crate) fn bytes(&self, buffer: BufferId) -> &[u8] {
        assert!(!self.in_flight[buffer.as_usize()], "the kernel has this buffer");
        // SAFETY: `start` lies in the mapping with `buffer_len` bytes behind it, which were zeroed
        // by the kernel; nothing writes to them, since only `lend` allows it and it takes `&mut`.
        unsafe {
            std::slice::from_raw_parts(self.start(buffer.as_usize()).as_ptr(), self.buffer_len)
        }
    }

    /// Hands the buffer to the kernel until `take_back`; its address.
    pub(crate) fn lend(&mut self, buffer: BufferId) -> *mut u8 {
        let in_flight = &mut self.in_flight[buffer.as_usize()];
        assert!(!*in_flight, "a buffer has one reader at a time");
        *in_flight = true;
        self.start(buffer.as_usize()).as_ptr()
    }

    /// The kernel is done with the buffer.
    pub(crate) fn take_back(&mut self, buffer: BufferId) {
        let in_flight = &mut self.in_flight[buffer.as_usize()];
        assert!(*in_flight, "a buffer comes back once");
        *in_flight = false;
    }

    /// The length of each buffer.
    pub(crate) fn buffer_len(&self) -> usize {
        self.buffer_len
    }

    /// True while the kernel has any buffer.
    pub(crate) fn is_lent(&self) -> bool {
        self.in_flight.contains(&true)
    }

    fn start(&self, index: usize) -> NonNull<u8> {
        assert!(index < self.in_flight.len(), "no such buffer");
        // SAFETY: index < count, so the sum stays within the mapping.
        unsafe { self.base.add(index * self.buffer_len) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        if self.is_lent() {
            return; // A read is under way: the mapping is left to the kernel, not taken away.
        }
        // SAFETY: the whole mapping, made in `new`, to which no borrow remains in `drop`.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.mapped) };
    }
}
