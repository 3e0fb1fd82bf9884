//! Decides which appliances a player should ask, best first, and can say why. It does no I/O.
//!
//! ```text
//! FleetView + Query ──> the sites that announce the client ──> too few good ones? others, drawn
//!       ──> for each appliance: Standing, then Distance, then load and the draw
//!                              │ sorted
//!                              v
//!                 RankedList: [ offered, best first | left out, each with its reason ]
//! ```
//!
//! Looked at are the appliances of the sites that announce the client, and of all others at most
//! [`OTHERS_MAX`], drawn for the session among those that hold the version. So a list costs
//! O(lengths of prefixes + appliances near the client), whatever the size of the fleet; a fleet
//! with no more appliances than that is looked at as a whole.
//!
//! 1. **Standing**: it is healthy and holds the whole version. Others are left out, unless there
//!    is nobody better: players with a doubtful list do better than players with none.
//! 2. **Distance**: the site whose prefix is the longest match for the client comes first, then
//!    sites with shorter matches, then all others.
//! 3. **Load**: within a site, sessions are spread by weighted rendezvous hashing; an appliance
//!    that fills up gets a smaller share in steps, so that a session's list seldom changes.

pub mod turns;

use std::cmp::Reverse;
use std::fmt;

use model::id::{ApplianceId, AssetVersionId, SiteId};
use model::number::NumberSet;
use model::rendezvous::{self, Score};
use model::topology::{Prefix, Weight};
use model::units::Bytes;
use model::view::{ApplianceView, FleetView, Health};

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

/// A player's question: its address, version and session.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// The client's address, or the smallest range that is known of it.
    pub client: Prefix,
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
    /// Has told no URL (of the kind asked for), so no player can be sent there.
    NoUrl,
}

/// How near an appliance is to the client, nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Distance {
    /// Its site has a prefix that covers the client: no other site has a longer one.
    Own(Prefix),
    /// Its site has a prefix that covers the client, and another site a longer one.
    Wider(Reverse<u8>, Prefix),
    /// Its site has no prefix that covers the client.
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
    let candidates = ranking.looks[..told].iter().filter_map(|look| look.candidate(view)).collect();
    RankedList { candidates, offered_count, others: Bytes::of(others).0 }
}

/// Most appliances that are looked at though their sites do not announce the client.
pub const OTHERS_MAX: usize = 32;

/// The work on one list.
struct Ranking<'a> {
    view: &'a FleetView,
    query: &'a Query<'a>,
    config: &'a Config,
    /// The appliances that hold the version; none if nobody knows it.
    holders: Option<&'a NumberSet>,
    /// The sites that announce the client, as far as they were looked at, and how near each is.
    near: Vec<(u32, Distance)>,
    looks: Vec<Look<'a>>,
    good: usize,
}

/// One appliance that was looked at.
struct Look<'a> {
    appliance: &'a ApplianceView,
    site: u32,
    standing: Standing,
    distance: Distance,
    share_percent: u32,
    /// None as long as it does not matter.
    score: Option<Score>,
}

impl<'a> Ranking<'a> {
    fn new(view: &'a FleetView, query: &'a Query<'a>, config: &'a Config) -> Self {
        let version = view.versions.get(query.version);
        let holders = version.and_then(|version| view.holders.get(*version)).map(AsRef::as_ref);
        Self { view, query, config, holders, near: Vec::new(), looks: Vec::new(), good: 0 }
    }

    /// The sites that announce the client, nearest first. With each, `look` says whether to go on to
    /// those that announce less of it.
    fn find_near(&mut self, mut look: impl FnMut(&mut Self, u32, Distance) -> bool) {
        let (view, mut own) = (self.view, None);
        for (prefix, sites) in view.prefixes.covering(self.query.client) {
            let distance = match *own.get_or_insert(prefix) == prefix {
                true => Distance::Own(prefix),
                false => Distance::Wider(Reverse(prefix.prefix_len()), prefix),
            };
            let mut goes_on = true;
            for site in sites {
                // A site counts by the longest of its prefixes.
                if self.near.iter().all(|(known, _)| known != site) {
                    self.near.push((*site, distance));
                    goes_on = look(self, *site, distance);
                }
            }
            if !goes_on {
                break;
            }
        }
    }

    fn look_at_named(&mut self, among: &[ApplianceId]) {
        self.find_near(|_, _, _| true);
        for id in among {
            let number = self.view.appliances.get(id);
            let standing = number.and_then(|number| self.view.standing(*number));
            let Some((site, appliance)) = standing else { continue };
            let near = self.near.iter().find(|(near, _)| *near == site);
            let distance = near.map_or(Distance::Elsewhere, |(_, distance)| *distance);
            self.look(site, appliance, distance);
        }
    }

    /// Whoever announces less of the client comes after all good ones that announce more of it.
    fn look_near(&mut self) {
        let view = self.view;
        self.find_near(|ranking, site, distance| {
            let appliances = view.sites.get(site).map(|site| site.appliances.as_slice());
            for appliance in appliances.unwrap_or_default() {
                ranking.look(site, appliance, distance);
            }
            ranking.config.explains || ranking.good < ranking.config.pathways_max
        });
    }

    /// Others that hold the version, until there are twice as many good ones as are wanted; if
    /// there is nobody good at all, anybody.
    fn look_elsewhere(&mut self) {
        if self.config.pathways_max <= self.good {
            return;
        }
        if self.view.appliances.len() <= OTHERS_MAX {
            let view = self.view;
            let all = view.appliances.values().filter_map(|number| view.standing(*number));
            all.for_each(|(site, appliance)| self.look_at_other(site, appliance));
            return;
        }
        let wanted = self.good + 2 * (self.config.pathways_max - self.good);
        if let Some(holders) = self.holders {
            let count = u32::try_from(holders.len()).unwrap_or(u32::MAX);
            let is_few = holders.len() <= Bytes::of(OTHERS_MAX).0;
            for (n, drawn) in
                (0..count).zip(rendezvous::looks(self.query.session, count)).take(OTHERS_MAX)
            {
                let at = if is_few { n } else { drawn };
                let number = holders.select(at).expect("it is one of them");
                if let Some((site, appliance)) = self.view.standing(number) {
                    self.look_at_other(site, appliance);
                }
                if !is_few && wanted <= self.good {
                    break;
                }
            }
        }
        for number in rendezvous::looks(self.query.session, self.view.places.len()).take(OTHERS_MAX)
        {
            if self.config.pathways_min <= self.looks.len() {
                break;
            }
            if let Some((site, appliance)) = self.view.standing(number) {
                self.look_at_other(site, appliance);
            }
        }
    }

    fn look_at_other(&mut self, site: u32, appliance: &'a ApplianceView) {
        let is_near = self.near.iter().any(|(near, _)| *near == site);
        let is_known = |look: &Look<'_>| look.appliance.number == appliance.number;
        if !is_near && !self.looks.iter().any(is_known) {
            self.look(site, appliance, Distance::Elsewhere);
        }
    }

    fn look(&mut self, site: u32, appliance: &'a ApplianceView, distance: Distance) {
        let holds = self.holders.is_some_and(|holders| holders.contains(appliance.number));
        let standing = Standing::of(appliance, holds, self.query.plain);
        self.good += usize::from(standing == Standing::Good);
        let share_percent = share_percent(appliance.load.permille());
        let look = Look { appliance, site, standing, distance, share_percent, score: None };
        self.looks.push(look);
    }

    /// Sorts those that were looked at. Draws are made for those that the others leave equal, from
    /// the best on, until all are in order whom the player may get.
    fn sort(&mut self) {
        let rough = |look: &Look<'_>| (look.standing, look.distance);
        self.looks.sort_unstable_by_key(rough);
        let most = if self.config.explains { usize::MAX } else { self.config.pathways_max };
        let mut sorted = 0;
        for equals in self.looks.chunk_by_mut(|a, b| rough(a) == rough(b)) {
            if most <= sorted {
                break;
            }
            sorted += equals.len();
            for look in &mut *equals {
                let share = look.appliance.weight.times(look.share_percent);
                let name = look.appliance.id.as_str().as_bytes();
                look.score = Some(Score::of(self.query.session, name, share));
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
        let possible = self.looks.iter().filter(|look| look.standing != Standing::NoUrl).count();
        let wanted = if good == 0 { pathways_max } else { good.max(pathways_min) };
        wanted.min(pathways_max).min(possible)
    }
}

impl Look<'_> {
    fn candidate(&self, view: &FleetView) -> Option<Candidate> {
        Some(Candidate {
            appliance: self.appliance.id.clone(),
            site: view.sites.get(self.site)?.id.clone(),
            standing: self.standing,
            distance: self.distance,
            load_permille: self.appliance.load.permille(),
            weight: self.appliance.weight,
            share_percent: self.share_percent,
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
            Self::Good | Self::Recovering | Self::AtLimit => true,
            Self::Draining | Self::Unwell(_) | Self::Lacks | Self::Useless(_) | Self::NoUrl => {
                false
            }
        }
    }

    fn of(appliance: &ApplianceView, holds: bool, plain: bool) -> Self {
        let url = if plain { &appliance.plain_url } else { &appliance.base_url };
        if url.is_none() {
            return Self::NoUrl;
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
            Self::NoUrl => f.write_str("has told no URL of the kind that this player needs"),
        }
    }
}

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own(prefix) => write!(f, "own site: {prefix} is the longest match"),
            Self::Wider(_, prefix) => write!(f, "its site's {prefix} covers the client too"),
            Self::Elsewhere => f.write_str("no prefix of its site covers the client"),
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
