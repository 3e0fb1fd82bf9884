//! io_uring made safe and bounded; all unsafe.
