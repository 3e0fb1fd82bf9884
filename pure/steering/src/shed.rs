//! Whether a list leads its client past the nearest site, and why.
//!
//! ```text
//! the client's nearest site ── serves it ──> no shed
//!                           └─ another does ──> it does not hold the version: content
//!                                               who holds it is short of something: health
//!                                               it could serve, and is no pathway: before
//! ```

use std::collections::BTreeSet;

use model::near::Near;
use model::rendezvous::Draws;
use model::view::{FleetView, Renditions};

use crate::chain::{self, Holders};
use crate::{Fitness, Query};

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
pub fn nearest(view: &FleetView, query: &Query<'_>, led: &[u32]) -> Option<Nearest> {
    let for_client = |(at, near): (usize, &Near)| -> Option<(usize, u32)> {
        let position = view.position(*view.of_site(near.number).first()?)?;
        let is_for_client = chain::locate(position.serves_strangers, Some(near));
        is_for_client.then(|| (chain::place(query.near, at), near.number))
    };
    let mut sites = query.near.iter().enumerate().filter_map(for_client).peekable();
    let (first, number) = *sites.peek()?;
    let equals: Vec<u32> =
        sites.take_while(|(place, _)| *place == first).map(|(_, number)| number).collect();
    let is_near = |number: &u32| view.position(*number).is_some_and(|of| equals.contains(&of.site));
    if !led.is_empty() && led.iter().all(is_near) {
        return Some(Nearest { site: number, shed: None });
    }
    let appliances = equals.iter().flat_map(|site| view.of_site(*site)).copied();
    Some(Nearest { site: number, shed: Some(class(view, query, appliances)) })
}

/// Why the nearest site, which has these appliances, does not serve all of the version.
fn class(view: &FleetView, query: &Query<'_>, appliances: impl Iterator<Item = u32>) -> Shed {
    let holders = Holders::of(view, query.version.number);
    // One stands for all that cannot be told apart.
    let count = holders.parts.len().max(1);
    let mut lacking: BTreeSet<u32> = (0..).take(count).collect();
    let (draws, mut is_before) = (Draws::of(query.session), false);
    let is_led = |number| query.among.is_none_or(|among| among.contains(&number));
    for number in appliances {
        let Some(position) = view.position(number) else { continue };
        let held = holders.content(number);
        lacking.retain(|at| !held.has(*at));
        is_before |= held != Renditions::NONE
            && chain::health(position, query.plain) == Fitness::Healthy
            && !chain::load(draws, position)
            && !is_led(number);
    }
    match (lacking.is_empty(), is_before) {
        (false, _) => Shed::Content,
        (true, true) => Shed::Before,
        (true, false) => Shed::Health,
    }
}
