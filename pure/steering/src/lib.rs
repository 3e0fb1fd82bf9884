//! Decides which appliances a player should ask, best first, and can say why. It does no I/O.
//!
//! ```text
//! FleetView + Query ──> the client's sites, nearest first ──> too few good ones? others, drawn
//!       ──> for each appliance: Standing, then Distance, then load and the draw
//!                              │ sorted
//!                              v
//!                 RankedList: [ offered, best first | left out, each with its reason ]
//! ```
//!
//! Looked at are the appliances of the client's sites until there are enough good ones, and of all
//! others [`OTHERS_MAX`], drawn for the session among those that hold the version. So a list costs
//! O(appliances of the client's sites + [`OTHERS_MAX`]), whatever the size of the fleet; a fleet
//! with no more appliances than that is looked at as a whole. Where few that hold the version are
//! healthy and serve strangers, as many again are drawn from the intersection of two sets: at most
//! 4,096 steps for each 65,536 appliances. If none does, they are drawn from all appliances.
//!
//! 1. **Standing**: it is healthy and holds the whole version. Others are left out, unless there
//!    is nobody better: players with a doubtful list do better than players with none. One of an
//!    embedded site is for that site's clients alone. One that takes a share of its sessions only
//!    is first choice for those whose draw lies below its share; for the others it comes after all
//!    that are good. The draw is the session's and the appliance's alone, so no session moves when
//!    the shares of others do, and a change by a tenth moves a tenth.
//! 2. **Distance**: the client's sites come first, in the order that the table of routes gives
//!    (`model::near`), then all others.
//! 3. **Load**: within a site, sessions are spread by weighted rendezvous hashing. The load itself
//!    counts in the share only, which `director::share` lets fall at once and rise slowly: lists
//!    that followed the last load would swing (`lab flap`).

pub mod turns;

use std::fmt;

use model::id::{ApplianceId, AssetVersionId, SiteId};
use model::near::{By, Near, Route, Step};
use model::number::NumberSet;
use model::place::Nearness;
use model::rendezvous::{self, Score};
use model::topology::Weight;
use model::units::Bytes;
use model::view::{ApplianceView, Bottleneck, FleetView, Health, Placed, SiteView};

/// How many pathways a player gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// With fewer good appliances than this, doubtful ones are added at the end.
    pub pathways_min: usize,
    /// Most pathways. Each costs the player a copy of every line of its entry playlist.
    pub pathways_max: usize,
    /// Lists have everybody who was looked at, for people; else only those that are offered.
    pub explains: bool,
}

/// A player's question: its sites, version and session.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// The client's sites, best first, each once.
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
    /// Appliances far from the client that were not looked at: there were enough good ones.
    pub others: u64,
}

/// One appliance and the decision about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub appliance: ApplianceId,
    pub site: SiteId,
    /// Whether it should be asked at all.
    pub standing: Standing,
    pub distance: Distance,
    /// What it is shortest of.
    pub bottleneck: Bottleneck,
    /// How much of that is in use, in thousandths.
    pub load_permille: u64,
    /// Its part among the appliances of its site.
    pub weight: Weight,
    /// The share of its sessions that it takes now, in thousandths.
    pub share_permille: u32,
    /// Its draw for this session; the lowest is first among equals.
    pub score: Score,
}

/// Whether an appliance should be asked, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// Healthy, holds the version, has room.
    Good,
    /// Healthy and holds the version, but the session is not of the share that it takes now:
    /// offered after all good ones.
    Spilled,
    /// Holds the version, but takes no new sessions: it drains, or is about to stop.
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
    /// By the draw among those of its site.
    Load {
        /// What it is shortest of.
        bottleneck: Bottleneck,
        /// How much of that is in use, in thousandths.
        load_permille: u64,
        /// The share of its sessions that it takes now, in thousandths.
        share_permille: u32,
        weight: Weight,
    },
}

/// Ranks appliances for the query, and says how many of them to offer.
pub fn rank(view: &FleetView, query: &Query<'_>, config: &Config) -> RankedList {
    assert!(1 <= config.pathways_min, "at least one pathway");
    assert!(config.pathways_min <= config.pathways_max, "the least is at most the most");
    let mut ranking = Ranking::new(view, query, config);
    match query.among {
        Some(among) => ranking.look_at_named(among),
        None => {
            ranking.look_near();
            ranking.look_elsewhere();
        }
    }
    let all = query.among.map_or(view.appliances.len(), <[_]>::len);
    let others = all.saturating_sub(ranking.looks.len());
    ranking.sort();
    let offered_count = ranking.offered_count();
    assert!(offered_count <= ranking.looks.len(), "whoever is offered was looked at");
    assert!(offered_count <= config.pathways_max, "each pathway costs the player");
    let told = if config.explains { ranking.looks.len() } else { offered_count };
    let candidates = ranking.looks[..told].iter().filter_map(Look::candidate).collect();
    RankedList { candidates, offered_count, others: Bytes::of(others).0 }
}

/// Most appliances that are looked at though their sites do not announce the client.
pub const OTHERS_MAX: usize = 32;

/// Most others that are drawn to find them: those of embedded sites are for their own clients.
const DRAWS_MAX: usize = 2 * OTHERS_MAX;

/// The work on one list.
struct Ranking<'a> {
    view: &'a FleetView,
    query: &'a Query<'a>,
    config: &'a Config,
    /// The appliances that hold the version; none if nobody knows it.
    holders: Option<&'a NumberSet>,
    looks: Vec<Look<'a>>,
    good: usize,
}

/// One appliance that was looked at.
struct Look<'a> {
    appliance: &'a ApplianceView,
    site: &'a SiteView,
    standing: Standing,
    distance: Distance,
    /// None as long as it does not matter.
    score: Option<Score>,
}

impl<'a> Ranking<'a> {
    fn new(view: &'a FleetView, query: &'a Query<'a>, config: &'a Config) -> Self {
        let version = view.versions.get(query.version);
        let holders = version.and_then(|version| view.holders.get(*version)).map(AsRef::as_ref);
        Self { view, query, config, holders, looks: Vec::new(), good: 0 }
    }

    fn look_at_named(&mut self, among: &[ApplianceId]) {
        let near = self.query.near;
        for id in among {
            let number = self.view.appliances.get(id);
            let Some(placed) = number.and_then(|number| self.view.placed(*number)) else {
                continue;
            };
            let place = near.iter().position(|near| near.number == placed.number);
            let distance = place.map_or(Distance::Elsewhere, |place| distance(near, place));
            self.look(placed.site, placed.appliance, distance);
        }
    }

    /// Whoever is farther comes after all good ones that are nearer.
    fn look_near(&mut self) {
        let (view, near) = (self.view, self.query.near);
        let mut last = None;
        for (place, of) in near.iter().enumerate() {
            let distance = distance(near, place);
            let is_farther = last.replace(distance.place()) != Some(distance.place());
            if is_farther && self.has_enough() && !self.config.explains {
                break;
            }
            let Some(site) = view.sites.get(of.number) else { continue };
            for appliance in &site.appliances {
                self.look(site, appliance, distance);
            }
        }
    }

    fn has_enough(&self) -> bool {
        self.config.pathways_max <= self.good
    }

    /// Others that hold the version, until there are twice as many good ones as are wanted; if
    /// there is nobody good at all, anybody.
    fn look_elsewhere(&mut self) {
        let view = self.view;
        let is_small = view.appliances.len() <= OTHERS_MAX;
        if self.has_enough() && !(is_small && self.config.explains) {
            return;
        }
        if is_small {
            let all = view.appliances.values().filter_map(|number| view.placed(*number));
            all.for_each(|placed| self.look_at_other(placed));
            return;
        }
        assert!(!self.has_enough(), "more are wanted");
        let wanted = self.good + 2 * (self.config.pathways_max - self.good);
        if let Some(holders) = self.holders {
            self.look_at_drawn(holders, |ranking| wanted <= ranking.good);
            if self.good < self.config.pathways_min {
                // They are hard to find among those of embedded sites, or in an outage.
                let open = holders & view.open.as_ref();
                self.look_at_drawn(&open, |ranking| wanted <= ranking.good);
            }
        }
        self.look_at_drawn(&view.open, Self::has_least);
        let all = rendezvous::looks(self.query.session, view.positions.len());
        self.look_at_numbers(all, Self::has_least);
    }

    fn has_least(&self) -> bool {
        let possible = self.looks.iter().filter(|look| look.standing.is_possible());
        self.config.pathways_min <= possible.count()
    }

    /// Looks at all if they are few, else at some, drawn for the session.
    fn look_at_drawn(&mut self, numbers: &NumberSet, is_enough: impl Fn(&Self) -> bool) {
        if numbers.len() <= Bytes::of(OTHERS_MAX).0 {
            let few = numbers.iter().filter_map(|number| self.view.placed(number));
            few.for_each(|placed| self.look_at_other(placed));
            return;
        }
        let count = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
        let drawn = rendezvous::looks(self.query.session, count);
        let numbers = drawn.map(|at| numbers.select(at).expect("it is one of them"));
        self.look_at_numbers(numbers, is_enough);
    }

    fn look_at_numbers(
        &mut self,
        numbers: impl Iterator<Item = u32>,
        is_enough: impl Fn(&Self) -> bool,
    ) {
        let mut left = OTHERS_MAX;
        for number in numbers.take(DRAWS_MAX) {
            if left == 0 || is_enough(self) {
                break;
            }
            let placed = self.view.placed(number).filter(|placed| placed.site.serves_strangers);
            if let Some(placed) = placed {
                self.look_at_other(placed);
                left -= 1;
            }
        }
    }

    fn look_at_other(&mut self, placed: Placed<'a>) {
        let is_near = self.query.near.iter().any(|near| near.number == placed.number);
        let is_known = |look: &Look<'_>| look.appliance.number == placed.appliance.number;
        if !is_near && !self.looks.iter().any(is_known) {
            self.look(placed.site, placed.appliance, Distance::Elsewhere);
        }
    }

    fn look(&mut self, site: &'a SiteView, appliance: &'a ApplianceView, distance: Distance) {
        let holds = self.holders.is_some_and(|holders| holders.contains(appliance.number));
        let is_for = site.serves_strangers || matches!(distance, Distance::Route { .. });
        let standing = Standing::of(appliance, is_for, holds, self.query);
        self.good += usize::from(standing == Standing::Good);
        let look = Look { appliance, site, standing, distance, score: None };
        self.looks.push(look);
        assert!(self.good <= self.looks.len(), "whoever is good was looked at");
    }

    /// Sorts those that were looked at. Draws are made for those that the others leave equal, from
    /// the best on, until all are in order whom the player may get.
    fn sort(&mut self) {
        let rough = |look: &Look<'_>| (look.standing, look.distance.place());
        self.looks.sort_unstable_by_key(rough);
        let most = if self.config.explains { usize::MAX } else { self.config.pathways_max };
        let mut sorted = 0;
        for equals in self.looks.chunk_by_mut(|a, b| rough(a) == rough(b)) {
            if most <= sorted {
                break;
            }
            sorted += equals.len();
            for look in &mut *equals {
                let name = look.appliance.id.as_str().as_bytes();
                let score = Score::of(self.query.session, name, look.appliance.weight);
                look.score = Some(score);
            }
            // Ends with the name, so that equal scores cannot make two lists.
            equals.sort_unstable_by_key(|look| (look.score, &look.appliance.id));
        }
    }

    /// How many of the sorted ones to offer: all good ones up to the most, doubtful ones up to the
    /// least; and if none is good, doubtful ones up to the most.
    fn offered_count(&self) -> usize {
        let Config { pathways_min, pathways_max, .. } = *self.config;
        let good = self.looks.iter().filter(|look| look.standing.is_good()).count();
        let possible = self.looks.iter().filter(|look| look.standing.is_possible()).count();
        let wanted = if good == 0 { pathways_max } else { good.max(pathways_min) };
        wanted.min(pathways_max).min(possible)
    }
}

impl Look<'_> {
    fn candidate(&self) -> Option<Candidate> {
        let (bottleneck, load_permille) = self.appliance.load.worst();
        Some(Candidate {
            appliance: self.appliance.id.clone(),
            site: self.site.id.clone(),
            standing: self.standing,
            distance: self.distance,
            bottleneck,
            load_permille,
            weight: self.appliance.weight,
            share_permille: self.appliance.share_permille,
            score: self.score?,
        })
    }
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
            Self::Good | Self::Spilled => true,
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

    fn of(appliance: &ApplianceView, is_for: bool, holds: bool, query: &Query<'_>) -> Self {
        let url = if query.plain { &appliance.plain_url } else { &appliance.base_url };
        if url.is_none() {
            return Self::NoUrl;
        }
        if !is_for {
            return Self::OthersOnly;
        }
        match (appliance.health, holds) {
            (Health::Healthy, true) if is_spilled(appliance, query.session) => Self::Spilled,
            (Health::Healthy, true) => Self::Good,
            (Health::Draining | Health::Drained, true) => Self::Draining,
            (Health::Healthy | Health::Draining | Health::Drained, false) => Self::Lacks,
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
        let Self { standing, distance, bottleneck, load_permille, weight, share_permille, .. } =
            *self;
        let load = Reason::Load { bottleneck, load_permille, share_permille, weight };
        [Reason::Standing(standing), Reason::Distance(distance), load]
    }
}

/// How near the site is that has this place among the client's. Sites that operators gave the same
/// prefix, and that are equal but for their names, share its clients: they have one place. O(places
/// before it), which are few.
fn distance(near: &[Near<'_>], place: usize) -> Distance {
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

/// The session is none of the share that the appliance takes. Most take all, and nothing is drawn.
fn is_spilled(appliance: &ApplianceView, session: &[u8]) -> bool {
    let share = appliance.share_permille;
    let drawn = || rendezvous::draw_permille(session, appliance.id.as_str().as_bytes());
    share < 1000 && share <= drawn()
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Good => f.write_str("healthy, and holds the whole version"),
            Self::Spilled => f.write_str(
                "healthy, and holds the whole version, but takes a share of its sessions only, \
                 and this is none of them",
            ),
            Self::Draining => f.write_str("holds the version, but takes no new sessions"),
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
            Self::Load { bottleneck, load_permille, share_permille, weight } => {
                let (percent, tenth) = (load_permille / 10, load_permille % 10);
                write!(f, "load {percent}.{tenth} % ({bottleneck}), ")?;
                let (percent, tenth) = (share_permille / 10, share_permille % 10);
                write!(f, "takes {percent}.{tenth} % of its sessions, weight {weight}")
            }
        }
    }
}

fn words(health: Health) -> &'static str {
    match health {
        Health::Healthy => "healthy",
        Health::Draining => "draining",
        Health::Drained => "drained",
        Health::Unhealthy => "unable to serve",
        Health::Stale => "not reporting",
        Health::NeverSeen => "not known to be up",
    }
}

#[cfg(test)]
mod tests;
