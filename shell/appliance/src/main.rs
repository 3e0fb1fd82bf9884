//! The data-plane process.
fn main() {}
