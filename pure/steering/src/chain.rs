//! The steps of a decision about one appliance. Each is a function of the picture and of the
//! question; its answer is the data of one [`Reason`](crate::Reason).

use model::near::{By, Near, Step};
use model::rendezvous::{Draws, Score};
use model::view::{ApplianceView, FleetView, Health, Renditions, SiteView};

use crate::{Distance, Fitness};

/// Whether a site is for the client at all: an embedded one serves those whom it announced.
pub(crate) fn locate(site: &SiteView, distance: &Distance) -> bool {
    site.serves_strangers || matches!(distance, Distance::Route { .. })
}

/// Whether players can be sent to an appliance.
pub(crate) fn health(appliance: &ApplianceView, plain: bool) -> Fitness {
    let url = if plain { &appliance.plain_url } else { &appliance.base_url };
    match appliance.health {
        _ if url.is_none() => Fitness::NoUrl,
        Health::Healthy => Fitness::Healthy,
        Health::Draining => Fitness::Draining,
        Health::Drained => Fitness::Drained,
        Health::Unhealthy => Fitness::Unhealthy,
        Health::Stale => Fitness::Stale,
        Health::NeverSeen => Fitness::NeverSeen,
    }
}

/// What an appliance holds of a version, by number.
pub(crate) fn content(
    view: &FleetView,
    version: Option<u32>,
    appliance: &ApplianceView,
) -> Renditions {
    version.map_or(Renditions::NONE, |version| view.held(appliance.number, version))
}

/// Whether the session is none of the share that an appliance takes. Most take all, and nothing is
/// drawn.
pub(crate) fn load(draws: Draws, appliance: &ApplianceView) -> bool {
    let share = appliance.share_permille;
    share < 1000 && share <= draws.permille(appliance.id.as_str().as_bytes())
}

/// Whether the session follows the draw of its title to this appliance.
pub(crate) fn follows(draws: Draws, appliance: &ApplianceView) -> bool {
    let titles = appliance.titles_permille;
    1000 <= titles || draws.other_permille(appliance.id.as_str().as_bytes()) < titles
}

/// An appliance's draw for a session, or for a title, among those of its site, the lowest first.
pub(crate) fn draw(draws: Draws, appliance: &ApplianceView) -> Score {
    draws.score(appliance.id.as_str().as_bytes(), appliance.weight)
}

/// How near the site is that has this place among the client's. Sites that operators gave the same
/// prefix, and that are equal but for their names, share its clients: they have one place. O(places
/// before it), which are few.
pub(crate) fn distance(near: &[Near<'_>], place: usize) -> Distance {
    assert!(place < near.len(), "it is one of the client's sites");
    let by = near[place].by;
    let mut place = place;
    while near[place].is_static() && near[place].step == Step::Name {
        place -= 1;
    }
    assert!(near[place].step != Step::Name || !near[place].is_static(), "one is the first");
    let step = near[place].step;
    match by {
        By::Route(route) => {
            let len = route.prefix.prefix_len();
            let is_longest = !near[..place].iter().any(|before| before.is_longer(len));
            Distance::Route { place, is_longest, route, step }
        }
        By::Place(nearness) => Distance::Nearby { place, nearness, step },
    }
}
