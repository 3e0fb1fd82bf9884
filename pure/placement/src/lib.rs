//! Decides which appliances should hold which items. It does no I/O.
//!
//! [`plan`] places items by demand, one manifest cluster at a time. [`before`] is how the release
//! before placed them.

pub mod before;
pub mod plan;

use model::id::{ApplianceId, AssetVersionId};
use model::rendezvous::{Draws, Lot};
use model::topology::Weight;

/// What stands for a version in draws, whatever numbers it has.
pub fn version_key(version: &AssetVersionId) -> u32 {
    let [a, b, c, d, ..] = model::names::hash_of(version.as_str().as_bytes()).to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// The places of these appliances, best first for `version` where nothing is known of demand.
pub fn order<'a>(
    version: &AssetVersionId,
    appliances: impl IntoIterator<Item = (&'a ApplianceId, Weight)>,
) -> Vec<usize> {
    let draws = Draws::of(&version_key(version).to_le_bytes());
    let score = |id: &ApplianceId, weight| draws.score(Lot::of(id.as_str().as_bytes()), weight);
    let scored = appliances.into_iter().enumerate();
    let mut scored: Vec<_> = scored.map(|(at, (id, weight))| (score(id, weight), id, at)).collect();
    scored.sort_unstable();
    scored.into_iter().map(|(_, _, at)| at).collect()
}

/// Copies wanted in a cluster of so many appliances.
pub fn wanted(copies: u32, appliance_count: usize) -> u32 {
    copies.min(u32::try_from(appliance_count).unwrap_or(u32::MAX))
}
