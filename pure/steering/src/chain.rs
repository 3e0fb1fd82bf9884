//! The steps of a decision about one appliance. Each is a function of the picture and of the
//! question; its answer is the data of one [`Reason`](crate::Reason).

use model::members::{Members, Shape};
use model::near::{By, Near, Step};
use model::rendezvous::{Draws, Score};
use model::view::{FleetView, Health, Position, Renditions};

use crate::{Distance, Fitness};

/// Whether an appliance's site is for the client at all: an embedded one serves those whom it
/// announced.
pub(crate) fn locate(serves_strangers: bool, near: Option<&Near>) -> bool {
    serves_strangers || near.is_some_and(|near| matches!(near.by, By::Route(_)))
}

/// Whether players can be sent to an appliance.
pub(crate) fn health(position: &Position, plain: bool) -> Fitness {
    let has_url = if plain { position.has_plain_url } else { position.has_url };
    match position.health {
        _ if !has_url => Fitness::NoUrl,
        Health::Healthy => Fitness::Healthy,
        Health::Draining => Fitness::Draining,
        Health::Drained => Fitness::Drained,
        Health::Unhealthy => Fitness::Unhealthy,
        Health::Stale => Fitness::Stale,
        Health::NeverSeen => Fitness::NeverSeen,
    }
}

/// The appliances that hold a version, or some of it.
#[derive(Debug, Default)]
pub(crate) struct Holders<'a> {
    /// Those that hold all of it; none if nobody knows it.
    pub(crate) all: Option<&'a Members>,
    /// The same.
    whole: Shape<'a>,
    /// Of each rendition, those that hold it but not the version; none if they cannot be told
    /// apart.
    pub(crate) parts: Vec<Option<&'a Members>>,
}

impl<'a> Holders<'a> {
    /// Of the version of this number.
    pub(crate) fn of(view: &'a FleetView, version: Option<u32>) -> Self {
        let Some(holders) = version.and_then(|version| view.holders.get(version)) else {
            return Self::default();
        };
        let parts = holders.renditions.clone();
        Self {
            all: Some(&holders.whole),
            whole: holders.whole.shape(),
            parts: parts.map(|part| view.partial_holders.get(part)).collect(),
        }
    }

    /// What an appliance holds of the version, by number.
    #[inline]
    pub(crate) fn content(&self, appliance: u32) -> Renditions {
        if self.whole.contains(appliance) {
            return Renditions::ALL;
        }
        if self.parts.is_empty() { Renditions::NONE } else { self.part(appliance) }
    }

    /// The renditions that an appliance holds which does not hold the version.
    fn part(&self, appliance: u32) -> Renditions {
        let is_in = |set: Option<&Members>| set.is_some_and(|set| set.contains(appliance));
        let held = (0..).zip(&self.parts).filter(|(_, part)| is_in(**part));
        held.fold(Renditions::NONE, |all, (at, _)| all.with(at))
    }
}

/// Whether the session is none of the share that an appliance takes. Most take all, and nothing is
/// drawn.
pub(crate) fn load(draws: Draws, position: &Position) -> bool {
    let share = u32::from(position.share_permille);
    share < 1000 && share <= draws.permille(position.lot)
}

/// Whether the session follows the draw of its title to this appliance.
pub(crate) fn follows(draws: Draws, position: &Position) -> bool {
    let titles = u32::from(position.titles_permille);
    1000 <= titles || draws.other_permille(position.lot) < titles
}

/// An appliance's draw for a session, or for a title, among those of its site, the lowest first.
pub(crate) fn draw(draws: Draws, position: &Position) -> Score {
    draws.score(position.lot, position.weight)
}

/// The place of one of the client's sites. Those that operators gave the same prefix, and that are
/// equal but for their names, share its clients: they have one place. O(sites before it), which are
/// few.
pub(crate) fn place(near: &[Near], at: usize) -> usize {
    assert!(at < near.len(), "it is one of the client's sites");
    near[..=at].iter().rposition(|near| !is_equal(near)).unwrap_or(0)
}

/// True of a site that has the place of the one before it.
pub(crate) fn is_equal(near: &Near) -> bool {
    near.step == Step::Name && near.is_static()
}

/// How near one of the client's sites is.
pub(crate) fn distance(near: &[Near], at: usize) -> Distance {
    let place = place(near, at);
    let step = near[place].step;
    match near[at].by {
        By::Route(route) => {
            let len = route.prefix.prefix_len();
            let is_longest = !near[..place].iter().any(|before| before.is_longer(len));
            Distance::Route { place, is_longest, route, step }
        }
        By::Place(nearness) => Distance::Nearby { place, nearness, step },
    }
}
