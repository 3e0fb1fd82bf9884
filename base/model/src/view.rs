//! The fleet at one moment. Made by the director, read by steering and by every front.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use crate::id::{ApplianceId, AssetVersionId, Generation, SiteId};
use crate::topology::{Site, Weight};
use crate::units::BitsPerSecond;

/// An immutable picture of the fleet. Cheap to share, replaced as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetView {
    /// Generation of desired state that the picture belongs to.
    pub generation: Generation,
    pub sites: Arc<BTreeMap<SiteId, Site>>,
    /// All registered appliances.
    pub appliances: BTreeMap<ApplianceId, ApplianceView>,
}

/// One appliance in the picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplianceView {
    pub site: SiteId,
    /// Its share among the appliances of its site.
    pub weight: Weight,
    pub health: Health,
    /// Healthy again, but only for a short while: the sessions that it lost should not come back at
    /// once, lest they be lost again.
    pub recovering: bool,
    /// Base URL for players, without trailing slash; none until it has reported.
    pub base_url: Option<Arc<str>>,
    /// The same without TLS, where it has one.
    pub plain_url: Option<Arc<str>>,
    pub load: Load,
    /// Asset versions of which it holds every object.
    pub complete: Arc<BTreeSet<AssetVersionId>>,
}

/// Whether an appliance can serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// It reports and takes sessions.
    Healthy,
    /// It reports, and gets no new sessions.
    Draining,
    /// The same, and next to nothing leaves it: it may be stopped.
    Drained,
    /// It reports that it cannot serve.
    Unhealthy,
    /// Its reports have stopped.
    Stale,
    /// It is registered and has not reported since the control plane started.
    NeverSeen,
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Healthy => "healthy",
            Self::Draining => "draining",
            Self::Drained => "drained",
            Self::Unhealthy => "unhealthy",
            Self::Stale => "stale",
            Self::NeverSeen => "never_seen",
        })
    }
}

/// How busy an appliance is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Open connections.
    pub connections: u64,
    /// Most connections it takes; 0 if it did not say.
    pub connections_max: u64,
    /// Egress over its last report interval.
    pub egress: BitsPerSecond,
    /// Configured most egress; 0 for no limit.
    pub egress_max: BitsPerSecond,
}

impl Load {
    /// The scarcest resource's share in use, 0 to 1000 and above if over its limit.
    pub fn permille(&self) -> u64 {
        let share = |used: u64, most: u64| {
            let permille = u128::from(used) * 1000 / u128::from(most.max(1));
            if most == 0 { 0 } else { u64::try_from(permille).unwrap_or(u64::MAX) }
        };
        share(self.connections, self.connections_max).max(share(self.egress.0, self.egress_max.0))
    }

    /// True of an appliance so full that the rest is for the sessions that it has: players are sent
    /// to others first, and siblings fetch elsewhere.
    pub fn is_at_limit(&self) -> bool {
        AT_LIMIT_PERMILLE <= self.permille()
    }
}

/// Arbitrary until lab measures how much a running session's demand swings.
const AT_LIMIT_PERMILLE: u64 = 950;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_is_that_of_the_scarcest_resource_and_no_limit_is_never_scarce() {
        let load = |connections, connections_max, egress, egress_max| {
            let (egress, egress_max) = (BitsPerSecond(egress), BitsPerSecond(egress_max));
            Load { connections, connections_max, egress, egress_max }.permille()
        };
        assert_eq!(load(10, 100, 900, 1000), 900);
        assert_eq!(load(50, 100, 10, 1000), 500);
        assert_eq!(load(50, 100, 10_000, 0), 500);
        assert_eq!(load(7, 0, 10_000, 0), 0);
        assert_eq!(load(300, 100, 0, 0), 3000);
        assert_eq!(load(u64::MAX, 1, u64::MAX, 1), u64::MAX);
    }
}
