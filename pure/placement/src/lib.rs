//! Which cluster should hold which object.
