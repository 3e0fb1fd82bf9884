//! The control plane as a whole, over HTTP, with appliances that only talk.

mod appliance;
mod control;
mod failover;
mod film;
mod operators;
mod players;
