//! Which appliances a client should ask, best first.
