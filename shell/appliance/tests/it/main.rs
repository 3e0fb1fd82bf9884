//! The storage side as a whole, with an origin that misbehaves and a control that comes and goes.

#![expect(clippy::unwrap_used, reason = "all of this crate is tests, also what is no #[test]")]

mod before;
mod control;
mod documents;
mod drives;
mod fill;
mod fleet;
mod hours;
mod http;
mod identity;
mod integrity;
mod origin;
mod returns;
mod rig;
mod siblings;
mod takeover;
mod tiering;
mod trust;
mod units;
