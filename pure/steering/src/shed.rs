//! Whether a list leads its client past the nearest site, and why.
//!
//! ```text
//! the client's nearest site ── serves it ──> no shed
//!                           └─ another does ──> it does not hold the version: content
//!                                               who holds it is short of something: health
//!                                               it could serve, and is no pathway: before
//! ```

use std::collections::BTreeSet;

use model::id::ApplianceId;
use model::near::Near;
use model::rendezvous::Draws;
use model::view::{ApplianceView, FleetView, Renditions, SiteView};

use crate::{Fitness, Query, chain};

/// Why a client is led past its nearest site: the class of a miss as Open Connect counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shed {
    /// Class C: the site's appliances do not hold the whole version, not even together.
    Content,
    /// Class H: those that hold it cannot serve, drain, or take a share that the session is none
    /// of.
    Health,
    /// The site could serve by now, but the playback began when it could not, and its pathways do
    /// not change.
    Before,
}

impl Shed {
    /// Its name for programs, and in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Content => "content",
            Self::Health => "health",
            Self::Before => "before",
        }
    }
}

/// A client's nearest site, and whether the client is led past it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nearest {
    /// The site's number.
    pub site: u32,
    pub shed: Option<Shed>,
}

/// The nearest site of a client, by its place in the network alone, and whether it is led to an
/// appliance that stands elsewhere, for some renditions at least. None of a client that no site
/// with appliances is near to.
///
/// Sites that share the first place count as one, under the name of the first, whichever of them
/// serves: so the counts under a name are all decisions about the same clients. O(appliances of
/// these sites).
pub fn nearest(view: &FleetView, query: &Query<'_>, led: &[&ApplianceId]) -> Option<Nearest> {
    let for_client = |(place, near): (usize, &Near<'_>)| -> Option<(usize, u32, &SiteView)> {
        let site = view.sites.get(near.number).filter(|site| !site.appliances.is_empty())?;
        let distance = chain::distance(query.near, place);
        chain::locate(site, &distance).then_some((distance.place(), near.number, site.as_ref()))
    };
    let mut sites = query.near.iter().enumerate().filter_map(for_client).peekable();
    let (first, number, _) = *sites.peek()?;
    let equals: Vec<(u32, &SiteView)> = sites
        .take_while(|(place, ..)| *place == first)
        .map(|(_, number, site)| (number, site))
        .collect();
    let site_of = |id: &ApplianceId| Some(view.placed(*view.appliances.get(id)?)?.number);
    let is_near = |id: &&ApplianceId| {
        site_of(id).is_some_and(|number| equals.iter().any(|(equal, _)| *equal == number))
    };
    if !led.is_empty() && led.iter().all(is_near) {
        return Some(Nearest { site: number, shed: None });
    }
    let appliances = equals.iter().flat_map(|(_, site)| &site.appliances);
    Some(Nearest { site: number, shed: Some(class(view, query, appliances)) })
}

/// Why the nearest site, which has these appliances, does not serve all of the version.
fn class<'a>(
    view: &FleetView,
    query: &Query<'_>,
    appliances: impl Iterator<Item = &'a ApplianceView>,
) -> Shed {
    let version = view.versions.get(query.version).copied();
    let renditions = version.and_then(|version| view.renditions.get(version).cloned());
    // One stands for all that cannot be told apart.
    let count = renditions.map_or(0, |numbers| numbers.len()).max(1);
    let mut lacking: BTreeSet<u32> = (0..).take(count).collect();
    let (draws, mut is_before) = (Draws::of(query.session), false);
    for appliance in appliances {
        let held = chain::content(view, version, appliance);
        lacking.retain(|at| !held.has(*at));
        is_before |= held != Renditions::NONE
            && chain::health(appliance, query.plain) == Fitness::Healthy
            && !chain::load(draws, appliance)
            && query.among.is_some_and(|among| !among.contains(&appliance.id));
    }
    match (lacking.is_empty(), is_before) {
        (false, _) => Shed::Content,
        (true, true) => Shed::Before,
        (true, false) => Shed::Health,
    }
}
