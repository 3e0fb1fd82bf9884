//! Where the release before placed whole versions.
//!
//! ```text
//! per asset version, in order ──> per site ──> appliances by weighted rendezvous score
//!                                                   │ the first `copies` with room
//!                                                   v
//!                                             versions by appliance
//! ```
//!
//! Asked after an upgrade from a release that kept no items: what it had placed stays where it is.
//! It goes with the release after this one.

use std::collections::BTreeMap;

use model::id::{ApplianceId, AssetVersionId, SiteId};
use model::rendezvous::Score;
use model::topology::Weight;
use model::units::{BitsPerSecond, Bytes};

/// An appliance that was given asset versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub id: ApplianceId,
    pub site: SiteId,
    /// Its part among the appliances of its site.
    pub weight: Weight,
    /// Its drives' capacity, reserve taken off; none if it has never said.
    pub usable: Option<Bytes>,
    /// It should hold only renditions of at most so much; none for all. The same in all of a site.
    pub bitrate_max: Option<BitsPerSecond>,
}

/// An asset version that should be held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    pub version: AssetVersionId,
    /// Its room on drives.
    pub len: Bytes,
    /// Its renditions that have a bitrate, and the part of the room that each takes.
    pub renditions: Vec<(BitsPerSecond, Bytes)>,
}

impl Demand {
    /// Its room where renditions above this are left out.
    fn len_within(&self, most: Option<BitsPerSecond>) -> Bytes {
        let Some(most) = most else { return self.len };
        let above = self.renditions.iter().filter(|(bitrate, _)| most < *bitrate);
        above.fold(self.len, |left, (_, len)| left.saturating_sub(*len))
    }
}

/// The versions of each candidate, in the order of the demands. O(demands x sites), and what is
/// placed besides.
pub fn place(
    candidates: &[Candidate],
    demands: &[Demand],
    copies: u32,
) -> BTreeMap<ApplianceId, Vec<AssetVersionId>> {
    let mut sites: BTreeMap<&SiteId, Vec<(&Candidate, Bytes)>> = BTreeMap::new();
    let mut placed = BTreeMap::new();
    for candidate in candidates {
        let free = candidate.usable.unwrap_or(Bytes::ZERO);
        sites.entry(&candidate.site).or_default().push((candidate, free));
        placed.insert(candidate.id.clone(), Vec::new());
    }
    for demand in demands {
        for members in sites.values_mut() {
            let most = members.first().and_then(|(member, _)| member.bitrate_max);
            let (len, mut left) = (demand.len_within(most), copies);
            let is_full = members.iter().all(|(_, free)| *free < len);
            if !is_full {
                sort(&demand.version, members);
            }
            for (member, free) in members.iter_mut().take_while(|_| !is_full) {
                let fits = member.usable.is_some() && len <= *free;
                if left != 0 && fits {
                    *free = free.saturating_sub(len);
                    left -= 1;
                    placed.entry(member.id.clone()).or_default().push(demand.version.clone());
                }
            }
        }
    }
    placed
}

/// Best first for `version`. The order does not depend on who else is there.
fn sort(version: &AssetVersionId, members: &mut [(&Candidate, Bytes)]) {
    let key = version.as_str().as_bytes();
    let score = |of: &Candidate| Score::of(key, of.id.as_str().as_bytes(), of.weight);
    members.sort_by_cached_key(|(of, _)| (score(of), of.id.clone()));
}

#[cfg(test)]
#[path = "before_tests.rs"]
mod tests;
