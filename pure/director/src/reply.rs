//! What an appliance is told in answer to its report.

use std::sync::Arc;

use model::id::{ApplianceId, Generation};
use model::units::Nanos;
use model::view::Health;

use crate::event::{Beside, NotRegistered, Reply};
use crate::observed::Observed;
use crate::{Director, Member};

/// The appliances of a site, and an address of each, by name: for all of them the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Standers {
    /// That can serve now, for players.
    serving: Arc<Vec<(ApplianceId, Arc<str>)>>,
    /// Whose service addresses another may take over, well or not, for siblings.
    peers: Arc<Vec<(ApplianceId, Arc<str>)>>,
}

impl Director {
    /// The answer to the report of an appliance that was handled last. O(1).
    pub fn reply(&self, id: &ApplianceId) -> Result<Reply, NotRegistered> {
        let member = self.members.get(id).ok_or(NotRegistered)?;
        let observed = member.observed.as_ref();
        // Two machines are asked for no full list: nobody knows which of them it is of.
        let is_cloned = self.is_cloned(id);
        let known = |of: &Observed| if is_cloned { of.told } else { of.inventory_state() };
        let Standers { serving, peers } = self.map.standers(member.site);
        let beside = |all: &Arc<Vec<_>>| Beside { all: Arc::clone(all), asker: id.clone() };
        Ok(Reply {
            generation: self.manifest(id)?.map_or(Generation(0), |manifest| manifest.generation),
            trust: self.trust().map_or(Generation(0), |document| document.trust.generation),
            inventory: observed.map_or(0, known),
            interval: member.interval,
            share_permille: member.share_permille(),
            titles_permille: member.titles_permille(self.config.titles_load_max),
            siblings: beside(serving),
            routes: self.routes_wanted(id),
            peers: beside(peers),
            fill: self.fill_rules(id),
        })
    }

    /// What the appliances of a site are told of each other. O(those of the site).
    pub(crate) fn standers_of(&self, site: u32) -> Standers {
        let (mut serving, mut peers) = (Vec::new(), Vec::new());
        for id in self.map.standing(site) {
            let (Some(Member { observed: Some(observed), health, .. }), Some(registered)) =
                (self.members.get(id), self.desired.appliances.get(id))
            else {
                continue;
            };
            if *health == Health::Healthy && !registered.cloned {
                serving.push((id.clone(), Arc::clone(&observed.base_url)));
            }
            let has_addresses = !registered.appliance.addresses.is_empty();
            let address = observed.peer_address.as_ref().filter(|_| has_addresses);
            peers.extend(address.map(|address| (id.clone(), Arc::clone(address))));
        }
        for all in [&mut serving, &mut peers] {
            all.truncate(Beside::TOLD_MAX + 1);
        }
        Standers { serving: Arc::new(serving), peers: Arc::new(peers) }
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
