//! Locks of threads that end the process when they panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A thread that panicked under this lock takes the process down; the data are whole either way.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
