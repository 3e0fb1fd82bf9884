//! The storage side as a whole, against an origin that misbehaves and a control that comes and goes.

mod control;
mod drives;
mod fill;
mod http;
mod origin;
mod rig;
