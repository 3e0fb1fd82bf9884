//! The control-plane process.
fn main() {}
