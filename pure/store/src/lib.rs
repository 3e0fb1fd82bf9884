//! Which objects are on which drive, and the steps by which one appears or goes.
