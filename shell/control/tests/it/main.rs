//! The control plane as a whole, over HTTP, with appliances that only talk.

#![expect(clippy::unwrap_used, reason = "in a test, a failed unwrap is a failed test")]

mod access;
mod appliance;
mod control;
mod failover;
mod film;
mod fleet_routes;
mod fronts;
mod identity;
mod link;
mod operators;
mod players;
mod s3;
mod s3_server;
