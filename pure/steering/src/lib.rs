//! Decides which appliances a player should ask, best first, and can say why. It does no I/O.
//!
//! ```text
//! FleetView + Query ──> for each appliance: Standing, then Distance, then load and the draw
//!   with the client's sites    │ sorted
//!                              v
//!                 RankedList: [ offered, best first | left out, each with its reason ]
//! ```
//!
//! 1. **Standing**: it is healthy and holds the whole version. Others are left out, unless there
//!    is nobody better: players with a doubtful list do better than players with none. One of an
//!    embedded site is for that site's clients alone.
//! 2. **Distance**: the client's sites come first, in the order that the table of routes gives
//!    (`model::near`), then all others.
//! 3. **Load**: within a site, sessions are spread by weighted rendezvous hashing; an appliance
//!    that fills up gets a smaller share in steps, so that a session's list seldom changes.

pub mod turns;

use std::fmt;

use model::id::{ApplianceId, AssetVersionId, SiteId};
use model::near::{By, Near, Route, Step};
use model::place::Nearness;
use model::rendezvous::Score;
use model::topology::{Site, Weight};
use model::view::{ApplianceView, FleetView, Health};

/// How many pathways a player gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// With fewer good appliances than this, doubtful ones are added at the end.
    pub pathways_min: usize,
    /// Most pathways. Each costs the player a copy of every line of its entry playlist.
    pub pathways_max: usize,
}

/// A player's question: its address, version and session.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// The client's sites, best first.
    pub near: &'a [Near<'a>],
    pub version: &'a AssetVersionId,
    /// The playback, so that each keeps its list and all together spread.
    pub session: &'a [u8],
    /// Offer only appliances with a listener without TLS.
    pub plain: bool,
    /// Consider only these; none for all.
    pub among: Option<&'a [ApplianceId]>,
}

/// Appliances for one player.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankedList {
    /// Best first; the first `offered_count` are for the player.
    pub candidates: Vec<Candidate>,
    pub offered_count: usize,
}

/// One appliance and the decision about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub appliance: ApplianceId,
    pub site: SiteId,
    /// Whether it should be asked at all.
    pub standing: Standing,
    pub distance: Distance,
    /// Share in use of what it has least of, in thousandths.
    pub load_permille: u64,
    /// Its share among the appliances of its site.
    pub weight: Weight,
    /// How much of the share its load leaves it.
    pub share_percent: u32,
    /// Its draw for this session; the lowest is first among equals.
    pub score: Score,
}

/// Whether an appliance should be asked, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// Healthy, holds the version, has room.
    Good,
    /// Healthy and holds the version, but was lost a short while ago.
    Recovering,
    /// Healthy and holds the version, but at its limit: offered last.
    AtLimit,
    /// Holds the version, but asked for no new sessions.
    Draining,
    /// Holds the version, but cannot serve or does not report.
    Unwell(Health),
    /// Healthy or draining, but does not hold the whole version.
    Lacks,
    /// Neither healthy nor holding it.
    Useless(Health),
    /// Its site stands in a network that has not announced the client.
    OthersOnly,
    /// Has told no URL (of the kind asked for), so no player can be sent there.
    NoUrl,
}

/// How near an appliance is to the client, nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distance {
    /// Its site has a prefix that covers the client.
    Route {
        /// Its place among the client's sites, from 0.
        place: usize,
        /// No site has a longer one.
        is_longest: bool,
        route: Route,
        step: Step,
    },
    /// Its site has no prefix that covers the client, but is one of the nearest.
    Nearby { place: usize, nearness: Nearness, step: Step },
    /// Nothing is known of the way from its site to the client.
    Elsewhere,
}

/// Why an appliance has its place in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// By its health, its content and its load.
    Standing(Standing),
    Distance(Distance),
    /// By the draw among those of its site, of which its load leaves it a part.
    Load {
        /// Share in use of what it has least of, in thousandths.
        load_permille: u64,
        /// How much of its weight that leaves it.
        share_percent: u32,
        weight: Weight,
    },
}

/// Ranks every appliance for the query, and says how many of them to offer.
pub fn rank(view: &FleetView, query: &Query<'_>, config: &Config) -> RankedList {
    assert!(1 <= config.pathways_min, "at least one pathway");
    assert!(config.pathways_min <= config.pathways_max, "the least is at most the most");
    let asked = |id: &ApplianceId| query.among.is_none_or(|among| among.contains(id));
    let mut candidates: Vec<Candidate> = view
        .appliances
        .iter()
        .filter(|(id, _)| asked(id))
        .map(|(id, appliance)| {
            let distance = distance(&appliance.site, query.near);
            let is_open = view.sites.get(&appliance.site).is_none_or(Site::serves_strangers);
            let is_for = is_open || matches!(distance, Distance::Route { .. });
            candidate(id, appliance, distance, is_for, query)
        })
        .collect();
    candidates.sort_unstable_by(|a, b| a.order().cmp(&b.order()));
    let offered_count = offered_count(&candidates, config);
    assert!(offered_count <= candidates.len(), "whoever is offered is a candidate");
    assert!(offered_count <= config.pathways_max, "each pathway costs the player");
    RankedList { candidates, offered_count }
}

impl RankedList {
    /// The appliances for the player, best first.
    pub fn offered(&self) -> &[Candidate] {
        &self.candidates[..self.offered_count]
    }

    /// The healthy ones that hold the version, best first. Empty if there is nobody good.
    pub fn good(&self) -> impl Iterator<Item = &Candidate> {
        self.candidates.iter().take_while(|candidate| candidate.standing.is_good())
    }
}

impl Standing {
    /// True if the appliance will serve the version as far as anybody knows.
    pub fn is_good(self) -> bool {
        match self {
            Self::Good | Self::Recovering | Self::AtLimit => true,
            Self::Draining
            | Self::Unwell(_)
            | Self::Lacks
            | Self::Useless(_)
            | Self::OthersOnly
            | Self::NoUrl => false,
        }
    }

    /// True if a player may be sent there though it may not serve: that is better than nobody.
    fn is_possible(self) -> bool {
        !matches!(self, Self::OthersOnly | Self::NoUrl)
    }

    fn of(appliance: &ApplianceView, is_for: bool, query: &Query<'_>) -> Self {
        let url = if query.plain { &appliance.plain_url } else { &appliance.base_url };
        let holds = appliance.complete.contains(query.version);
        if url.is_none() {
            return Self::NoUrl;
        }
        if !is_for {
            return Self::OthersOnly;
        }
        match (appliance.health, holds) {
            (Health::Healthy, true) if appliance.load.is_at_limit() => Self::AtLimit,
            (Health::Healthy, true) if appliance.recovering => Self::Recovering,
            (Health::Healthy, true) => Self::Good,
            (Health::Draining, true) => Self::Draining,
            (Health::Healthy | Health::Draining, false) => Self::Lacks,
            (health @ (Health::Unhealthy | Health::Stale | Health::NeverSeen), true) => {
                Self::Unwell(health)
            }
            (health @ (Health::Unhealthy | Health::Stale | Health::NeverSeen), false) => {
                Self::Useless(health)
            }
        }
    }
}

impl Candidate {
    /// Why it is where it is in the list.
    pub fn reasons(&self) -> [Reason; 3] {
        let Self { standing, distance, load_permille, weight, share_percent, .. } = *self;
        let load = Reason::Load { load_permille, share_percent, weight };
        [Reason::Standing(standing), Reason::Distance(distance), load]
    }

    /// Sorts best first. The name decides last, so that equal scores cannot make two lists.
    fn order(&self) -> (Standing, usize, Score, &ApplianceId) {
        (self.standing, self.distance.place(), self.score, &self.appliance)
    }
}

fn candidate(
    id: &ApplianceId,
    appliance: &ApplianceView,
    distance: Distance,
    is_for: bool,
    query: &Query<'_>,
) -> Candidate {
    let load_permille = appliance.load.permille();
    let share_percent = share_percent(load_permille);
    let share = appliance.weight.times(share_percent);
    Candidate {
        appliance: id.clone(),
        site: appliance.site.clone(),
        standing: Standing::of(appliance, is_for, query),
        distance,
        load_permille,
        weight: appliance.weight,
        share_percent,
        score: Score::of(query.session, id.as_str().as_bytes(), share),
    }
}

/// How many of the sorted candidates to offer: all good ones up to the most, doubtful ones up to
/// the least; and if none is good, doubtful ones up to the most.
fn offered_count(candidates: &[Candidate], config: &Config) -> usize {
    let good = candidates.iter().filter(|c| c.standing.is_good()).count();
    let possible = candidates.iter().filter(|c| c.standing.is_possible()).count();
    let wanted = if good == 0 { config.pathways_max } else { good.max(config.pathways_min) };
    wanted.min(config.pathways_max).min(possible)
}

/// O(the client's sites), which are few.
fn distance(site: &SiteId, near: &[Near<'_>]) -> Distance {
    let Some((place, found)) = near.iter().enumerate().find(|(_, near)| near.site == site) else {
        return Distance::Elsewhere;
    };
    // Sites that operators gave the same prefix, and that are equal but for their names, share its
    // clients.
    let mut place = place;
    while near[place].is_static() && near[place].step == Step::Name {
        place -= 1;
    }
    assert!(near[place].step != Step::Name || !near[place].is_static(), "one is the first");
    let step = near[place].step;
    match found.by {
        By::Route(route) => {
            let len = route.prefix.prefix_len();
            let is_longest = !near[..place].iter().any(|before| before.is_longer(len));
            Distance::Route { place, is_longest, route, step }
        }
        By::Place(nearness) => Distance::Nearby { place, nearness, step },
    }
}

/// How much of its share an appliance keeps under a load, in steps.
fn share_percent(load_permille: u64) -> u32 {
    let step = LOAD_STEPS.iter().find(|(below, _)| load_permille < *below);
    step.map_or(SHARE_PERCENT_MIN, |(_, percent)| *percent)
}

/// Below a load of (thousandths), an appliance keeps (percent) of its share. Steps and not a slope,
/// because each change of a share moves some sessions. The values are arbitrary.
const LOAD_STEPS: [(u64, u32); 2] = [(600, 100), (800, 50)];
const SHARE_PERCENT_MIN: u32 = 25;

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Good => f.write_str("healthy, and holds the whole version"),
            Self::Recovering => {
                f.write_str("holds the whole version, and is healthy again for a short while")
            }
            Self::AtLimit => f.write_str("healthy, and holds the whole version, but at its limit"),
            Self::Draining => f.write_str("holds the version, but asked for no new sessions"),
            Self::Unwell(health) => write!(f, "holds the version, but is {}", words(*health)),
            Self::Lacks => f.write_str("does not hold the whole version"),
            Self::Useless(health) => {
                write!(f, "is {} and does not hold the whole version", words(*health))
            }
            Self::OthersOnly => {
                f.write_str("its site is for its own network, which has not announced the client")
            }
            Self::NoUrl => f.write_str("has told no URL of the kind that this player needs"),
        }
    }
}

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Route { is_longest, route, step, .. } => {
                let prefix = route.prefix;
                if *is_longest {
                    write!(f, "own site: {prefix} is the longest match")?;
                } else {
                    write!(f, "its site's {prefix} covers the client too")?;
                }
                if !route.is_static {
                    write!(f, " ({}, AS path of {}", route.class, route.path_len)?;
                    if let Some(neighbour) = route.neighbour {
                        write!(f, " from AS{neighbour}")?;
                    }
                    if let Some(med) = route.med {
                        write!(f, ", MED {med}")?;
                    }
                    f.write_str(")")?;
                }
                match step {
                    // That is said.
                    Step::First | Step::Prefix => Ok(()),
                    Step::Class
                    | Step::Path
                    | Step::Med
                    | Step::Place
                    | Step::Name
                    | Step::NoRoute => write!(f, ", {step}"),
                }
            }
            Self::Nearby { nearness, .. } => {
                write!(f, "no prefix of its site covers the client, which is {nearness}")
            }
            Self::Elsewhere => f.write_str("no prefix of its site covers the client"),
        }
    }
}

impl Distance {
    /// Its place among the client's sites; those of which nothing is known share the last one.
    fn place(&self) -> usize {
        match self {
            Self::Route { place, .. } | Self::Nearby { place, .. } => *place,
            Self::Elsewhere => usize::MAX,
        }
    }

    /// The step that decided its place, in a word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Route { step, .. } | Self::Nearby { step, .. } => step.as_str(),
            Self::Elsewhere => "elsewhere",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Standing(standing) => standing.fmt(f),
            Self::Distance(distance) => distance.fmt(f),
            Self::Load { load_permille, share_percent, weight } => {
                let (percent, tenth) = (load_permille / 10, load_permille % 10);
                let counts = format_args!("{share_percent} % of its weight of {weight} counts");
                write!(f, "load {percent}.{tenth} %, so {counts}")
            }
        }
    }
}

fn words(health: Health) -> &'static str {
    match health {
        Health::Healthy => "healthy",
        Health::Draining => "draining",
        Health::Unhealthy => "unable to serve",
        Health::Stale => "not reporting",
        Health::NeverSeen => "not known to be up",
    }
}

#[cfg(test)]
mod tests;
