//! The operator's hand.
fn main() {}
