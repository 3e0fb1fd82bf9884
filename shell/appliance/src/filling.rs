//! DOC filling

pub(crate) mod filler;
pub mod peer;
pub(crate) mod places;
