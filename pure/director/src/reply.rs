//! What an appliance is told in answer to its report.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::id::{ApplianceId, Generation};
use model::units::Nanos;
use model::view::Health;

use crate::event::{NotRegistered, Reply};
use crate::observed::Observed;
use crate::{Director, Member};

/// Most siblings that a reply names: a large site, and 3 KB.
const NEIGHBOURS_MAX: usize = 64;

impl Director {
    /// The answer to the report of an appliance that was handled last.
    pub fn reply(&self, id: &ApplianceId) -> Result<Reply, NotRegistered> {
        let observed = self.members.get(id).and_then(|member| member.observed.as_ref());
        // Two machines are asked for no full list: nobody knows which of them it is of.
        let is_cloned = self.is_cloned(id);
        let known = |of: &Observed| if is_cloned { of.told } else { of.inventory_state() };
        Ok(Reply {
            generation: self.manifest(id)?.map_or(Generation(0), |manifest| manifest.generation),
            inventory: observed.map_or(0, known),
            interval: spread(self.config.report_interval, id),
            siblings: self.serving_beside(id),
            routes: self.routes_wanted(id),
            peers: self.peers_beside(id),
        })
    }

    /// The other appliances of a site. Each report asks: a look at its site, not at the fleet.
    fn beside<'a>(
        &'a self,
        id: &'a ApplianceId,
    ) -> impl Iterator<Item = (&'a ApplianceId, &'a Member)> {
        let near = self.members.get(id).map(|member| self.map.standing(member.site));
        let near = near.into_iter().flatten().filter(move |other| *other != id);
        near.filter_map(|other| Some((other, self.members.get(other)?)))
    }

    /// The base URLs of the others that can serve now.
    fn serving_beside(&self, id: &ApplianceId) -> BTreeMap<ApplianceId, Arc<str>> {
        let serving = self
            .beside(id)
            .filter(|(other, member)| member.health == Health::Healthy && !self.is_cloned(other));
        let url = |(id, member): (&ApplianceId, &Member)| {
            Some((id.clone(), member.observed.as_ref()?.base_url.clone()))
        };
        serving.filter_map(url).take(NEIGHBOURS_MAX).collect()
    }

    /// Where the others let siblings fetch whose addresses this one may take over, well or not.
    fn peers_beside(&self, id: &ApplianceId) -> BTreeMap<ApplianceId, Arc<str>> {
        let has_addresses =
            |id: &ApplianceId| !self.desired.appliances[id].appliance.addresses.is_empty();
        let peers = self.beside(id).filter(|(other, _)| has_addresses(other));
        let address = |(id, member): (&ApplianceId, &Member)| {
            Some((id.clone(), member.observed.as_ref()?.peer_address.clone()?))
        };
        peers.filter_map(address).take(NEIGHBOURS_MAX).collect()
    }
}

/// The interval of one appliance: up to a tenth more or less, by its name, so that appliances which
/// began together (with control's return, for example) do not go on together.
pub(crate) fn spread(interval: Nanos, id: &ApplianceId) -> Nanos {
    let hash = blake3::hash(id.as_str().as_bytes());
    let fifth = interval.0 / 5;
    let part = fifth.saturating_mul(u64::from(hash.as_bytes()[0])) / 255;
    assert!(part <= fifth, "a byte is at most 255");
    Nanos(interval.0 - fifth / 2 + part)
}
