//! What players and edge agree on.
