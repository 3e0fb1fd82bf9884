//! Which I/O a drive does next.
