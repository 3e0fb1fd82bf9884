//! The control plane as a whole, over HTTP, with appliances that only talk.

#![expect(clippy::unwrap_used, reason = "in a test, a failed unwrap is a failed test")]

mod access;
mod appliance;
mod control;
mod database;
mod documents;
mod drain;
mod failover;
mod fill;
mod film;
mod fleet_routes;
mod fronts;
mod identity;
mod ledger;
mod link;
mod operators;
mod plan;
mod players;
mod popularity;
#[path = "../../../appliance/tests/promtool/mod.rs"]
mod promtool;
mod proxies;
mod s3;
/// The same server as that of the tests of `nearcast ingest`.
#[path = "../../../../tools/fleet/tests/s3/server.rs"]
#[expect(dead_code, reason = "some of it is for those")]
mod s3_server;
mod sheds;
mod trust;
mod viewers;
mod wishes;
mod withdrawals;
mod writers;
