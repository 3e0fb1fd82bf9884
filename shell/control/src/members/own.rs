//! Parts that only the writer has.

use std::ops::Deref;

/// A part of the writer's alone: its database, its authority, its signing keys. A front has no
/// route and no timer that comes here.
pub(crate) struct Own<T>(Option<T>);

impl<T> Own<T> {
    /// The writer's.
    pub(crate) fn of(part: T) -> Self {
        Self(Some(part))
    }

    /// A front's.
    pub(crate) fn none() -> Self {
        Self(None)
    }

    /// The part, if this is the writer.
    pub(crate) fn as_ref(&self) -> Option<&T> {
        self.0.as_ref()
    }
}

impl<T> Deref for Own<T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.0.as_ref().expect("a front has no route that writes, signs or enrols")
    }
}
