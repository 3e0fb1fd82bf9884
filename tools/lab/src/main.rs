//! The benchmark lab.
fn main() {}
