//! Version 1. Fields may be added; readers ignore what they do not know. None is removed or
//! changes meaning within a version.

pub mod agent;
pub mod appliance;
pub mod blocks;
pub mod clients;
pub mod demand;
pub mod expected;
pub mod fill;
pub mod fleet;
pub mod identity;
pub mod ingest;
pub mod manifest;
pub mod plan;
pub mod replica;
pub mod report;
pub mod routes;
pub mod sheds;
pub mod signed;
pub mod site;
pub mod viewers;

/// For fields that are left out where they are 0.
fn is_zero(number: &u64) -> bool {
    *number == 0
}
