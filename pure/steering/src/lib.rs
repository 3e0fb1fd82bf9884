//! Decides which appliances a player should ask, best first, and can say why. It does no I/O.
//!
//! ```text
//! FleetView + Query ──> the client's sites, nearest first ──> too few good ones? others, drawn
//!       ──> for each appliance: locate ─> health ─> content ─> load ─> affinity
//!                              │ sorted by what the steps left: Standing, Distance, draw
//!                              v
//!                 RankedList: [ offered, best first | left out, each with its reasons ], pathways
//! ```
//!
//! Each step overlays its own on what the steps before it left, and adds one [`Reason`]: a code
//! with numbers. Text is made when somebody asks. The steps are the functions of `chain`:
//!
//! 1. **Locate**: the client's sites come first, in the order that the table of routes gives
//!    (`model::near`), then all others. One of an embedded site is for that site's clients alone.
//! 2. **Health** and 3. **content**: who is not healthy, or holds no rendition of the version, is
//!    left out, unless there is nobody better: players with a doubtful list do better than players
//!    with none. Where some hold a part of it, each rendition has pathways of its own (`pathways`).
//! 4. **Load**: one that takes a share of its sessions only is first choice for those whose draw
//!    lies below its share; for the others it comes after all that are good. This draw is the
//!    session's and the appliance's alone, so no session moves when the shares of others do, and a
//!    change by a tenth moves a tenth. The nearest of those keeps the last place before farther
//!    ones, since a playback comes back to nobody who is not on its list. The load itself counts
//!    in the share only, which `director::share` lets fall at once and rise slowly: lists that
//!    followed the last load would swing (`lab flap`).
//! 5. **Affinity**: among equals sessions are spread by weighted rendezvous hashing; and within the
//!    site where that begins, the appliance to which the version's own draw leads comes first for
//!    those sessions that follow it (`affinity`), so that its hot blocks are in one memory.
//!
//! Looked at are the appliances of the client's sites until there are enough good ones, and of all
//! others [`OTHERS_MAX`], drawn for the session among those that hold the version. So a list costs
//! O(appliances of the client's sites + [`OTHERS_MAX`]), whatever the size of the fleet; a fleet
//! with no more appliances than that is looked at as a whole. Where few that hold the version are
//! healthy and serve strangers, as many again are drawn from those of them that do: a look at each
//! holder, or, of a version that many hold, at a word for each 32 appliances. If none does, they
//! are drawn from all appliances.
//!
//! A list is made by numbers, out of the 32 bytes of each [`Position`]: neither names nor loads are
//! read. Near appliances are looked for in the set of the version's holders first,
//! and of one that holds nothing of it no more is read, unless people ask, a playback's pathways
//! are ranked, or so few hold it that such a one may be offered: then all begins again with
//! everybody.

mod affinity;
mod chain;
mod pathways;
mod reason;
mod shed;
pub mod turns;

use std::collections::BTreeSet;

use model::id::AssetVersionId;
use model::members::Members;
use model::names::hash_of;
use model::near::Near;
use model::number::index;
use model::rendezvous::{Draws, Score};
use model::topology::Weight;
use model::units::Bytes;
use model::view::{FleetView, Health, Position, Renditions};

use crate::affinity::Affinity;
use crate::chain::{Holders, distance, place};
pub use crate::pathways::Pathway;
pub use crate::reason::{Distance, Fitness, Reason, Title};
pub use crate::shed::{Nearest, Shed, nearest};

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
    pub near: &'a [Near],
    pub version: Wanted,
    /// The playback, so that each keeps its list and all together spread.
    pub session: &'a [u8],
    /// Offer only appliances with a listener without TLS.
    pub plain: bool,
    /// Consider only these, by number; none for all.
    pub among: Option<&'a [u32]>,
}

/// The version that a player wants.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// In the picture; none if it does not know the version.
    pub number: Option<u32>,
    /// Those of its title.
    draws: Draws,
}

impl Wanted {
    /// The version of this name.
    pub fn of(view: &FleetView, id: &AssetVersionId) -> Self {
        Self::hashed(view, id, hash_of(id.as_str().as_bytes()))
    }

    /// The same, where [`hash_of`] the name is known.
    pub fn hashed(view: &FleetView, id: &AssetVersionId, hash: u64) -> Self {
        // A title is a version: two of one asset have no block in common.
        let draws = Draws::of_hash(hash);
        Self { number: view.versions.get_hashed(hash, id).copied(), draws }
    }

    /// The same, where its number is known too.
    pub fn numbered(number: u32, hash: u64) -> Self {
        Self { number: Some(number), draws: Draws::of_hash(hash) }
    }
}

/// Appliances for one player.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankedList {
    /// Best first, but for a near one that keeps the last place though its session is spilled; the
    /// first `offered_count` are for the player.
    pub candidates: Vec<Candidate>,
    pub offered_count: usize,
    /// The player's, best first. Usually one for each that is offered.
    pub pathways: Vec<Pathway>,
    /// A healthy appliance holds the whole version, or several do together.
    pub is_good: bool,
    /// Appliances far from the client that were not looked at: there were enough good ones.
    pub others: u64,
}

/// One appliance and the decision about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// By number.
    pub appliance: u32,
    /// Whether it should be asked at all: what the steps came to.
    pub standing: Standing,
    pub distance: Distance,
    /// False at an embedded site that has not announced the client.
    pub is_for_client: bool,
    pub fitness: Fitness,
    /// What it holds of the version.
    pub held: Renditions,
    /// The share of its sessions that it takes now, in thousandths.
    pub share_permille: u16,
    /// The session is none of that share.
    pub is_spilled: bool,
    /// Its part among the appliances of its site.
    pub weight: Weight,
    /// Its draw for this session; the lowest is first among equals, but for the title's own.
    pub score: Score,
    /// Whether it is the title's own.
    pub title: Title,
    /// Of the sessions of titles that lead to it, so many follow them, in thousandths.
    pub titles_permille: u16,
}

/// Whether an appliance should be asked, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// Healthy, holds the version, has room.
    Good,
    /// Healthy and holds the version, but the session is not of the share that it takes now:
    /// offered after all good ones, and if it is nearer than these, even where they are many.
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

/// Ranks appliances for the query, and says how many of them to offer.
pub fn rank(view: &FleetView, query: &Query<'_>, config: &Config) -> RankedList {
    assert!(1 <= config.pathways_min, "at least one pathway");
    assert!(config.pathways_min <= config.pathways_max, "the least is at most the most");
    let holders = Holders::of(view, query.version.number);
    let mut ranking = Ranking::new(view, query, config, &holders);
    ranking.look_at_all();
    if ranking.lacks_others() {
        ranking = Ranking { keeps_all: true, ..Ranking::new(view, query, config, &holders) };
        ranking.look_at_all();
    }
    ranking.list()
}

/// Most appliances that are looked at though their sites do not announce the client.
pub const OTHERS_MAX: usize = 32;

/// A list keeps no more, as a rule.
const LOOKS: usize = 16;

/// Most others that are drawn to find them: those of embedded sites are for their own clients.
const DRAWS_MAX: usize = 2 * OTHERS_MAX;

/// The work on one list.
struct Ranking<'a> {
    view: &'a FleetView,
    query: &'a Query<'a>,
    config: &'a Config,
    holders: &'a Holders<'a>,
    /// The session's.
    draws: Draws,
    affinity: Affinity<'a>,
    /// Appliances that hold nothing of the version are kept too. They matter to people, and where
    /// too few others are there.
    keeps_all: bool,
    /// Appliances that were looked at.
    looked: usize,
    /// Those that are kept.
    looks: Vec<Look<'a>>,
    /// How many good ones hold each rendition, or the version if they cannot be told apart.
    good: Counts,
}

/// An appliance that was looked at.
#[derive(Clone, Copy, Debug)]
struct Look<'a> {
    number: u32,
    position: &'a Position,
    standing: Standing,
    way: Way,
    is_for_client: bool,
    fitness: Fitness,
    held: Renditions,
    is_spilled: bool,
    /// None as long as it does not matter.
    score: Option<Score>,
    title: Title,
}

/// How an appliance's site is found from the client: in 8 bytes, since those that were looked at
/// are moved when they are sorted.
#[derive(Clone, Copy, Debug)]
struct Way {
    /// As [`Distance::place`].
    place: u32,
    /// The position of the site among the client's; beyond them if it is none of them.
    near: u32,
}

impl Way {
    const ELSEWHERE: Self = Self { place: u32::MAX, near: u32::MAX };

    fn of(place: usize, at: usize) -> Self {
        let position = |at| u32::try_from(at).unwrap_or(u32::MAX);
        Self { place: position(place), near: position(at) }
    }

    /// The position of the site among the client's, if it is one of them.
    fn near(self) -> Option<usize> {
        (self.near != u32::MAX).then(|| index(self.near))
    }
}

/// One count for each rendition; most versions have one for all.
#[derive(Clone, Debug)]
struct Counts {
    first: usize,
    others: Vec<usize>,
}

impl Counts {
    fn of(renditions: usize) -> Self {
        Self { first: 0, others: vec![0; renditions.saturating_sub(1)] }
    }

    fn len(&self) -> usize {
        1 + self.others.len()
    }

    fn at(&self, at: usize) -> usize {
        at.checked_sub(1).map_or(self.first, |at| self.others[at])
    }

    /// One more of each that is held.
    fn add(&mut self, held: Renditions) {
        self.first += usize::from(held.has(0));
        for (count, at) in self.others.iter_mut().zip(1..) {
            *count += usize::from(held.has(at));
        }
    }

    fn least(&self) -> usize {
        self.others.iter().copied().fold(self.first, usize::min)
    }
}

impl<'a> Ranking<'a> {
    fn new(
        view: &'a FleetView,
        query: &'a Query<'a>,
        config: &'a Config,
        holders: &'a Holders<'a>,
    ) -> Self {
        let draws = Draws::of(query.session);
        Self {
            view,
            query,
            config,
            holders,
            draws,
            affinity: Affinity::of(view, holders, draws, query.version.draws),
            keeps_all: config.explains || query.among.is_some(),
            looked: 0,
            looks: Vec::with_capacity(LOOKS),
            good: Counts::of(holders.parts.len()),
        }
    }

    fn look_at_all(&mut self) {
        match self.query.among {
            Some(among) => self.look_at_named(among),
            None => {
                self.look_near();
                self.look_elsewhere();
            }
        }
    }

    /// True if some are on the list, or may be, that hold nothing of the version: those were not
    /// kept.
    fn lacks_others(&self) -> bool {
        !self.keeps_all && self.possible() < self.wanted()
    }

    fn look_at_named(&mut self, among: &[u32]) {
        let near = self.query.near;
        for number in among.iter().copied() {
            let Some(position) = self.view.position(number) else { continue };
            let at = near.iter().position(|near| near.number == position.site);
            let way = at.map_or(Way::ELSEWHERE, |at| Way::of(place(near, at), at));
            self.look(number, way, self.holders.content(number));
        }
    }

    /// Whoever is farther comes after all good ones that are nearer.
    fn look_near(&mut self) {
        let (view, near) = (self.view, self.query.near);
        let mut place = 0;
        for (at, of) in near.iter().enumerate() {
            let is_farther = !chain::is_equal(of);
            if is_farther && self.has_enough() && !self.config.explains {
                break;
            }
            if is_farther {
                place = at;
            }
            for number in view.of_site(of.number) {
                self.look(*number, Way::of(place, at), self.holders.content(*number));
            }
        }
    }

    fn has_enough(&self) -> bool {
        self.config.pathways_max <= self.good()
    }

    /// How many good ones hold the rendition that fewest hold.
    fn good(&self) -> usize {
        self.good.least()
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
            view.appliances.values().for_each(|number| self.look_at_other(*number, None));
            return;
        }
        assert!(!self.has_enough(), "more are wanted");
        let wanted = self.good() + 2 * (self.config.pathways_max - self.good());
        let Holders { all, parts, .. } = self.holders;
        let whole = Some(Renditions::ALL);
        if let Some(holders) = *all {
            self.look_at_drawn(holders, whole, |ranking| wanted <= ranking.good());
            if self.good() < self.config.pathways_min {
                // They are hard to find among those of embedded sites, or in an outage.
                let open = holders.both(&view.open);
                self.look_at_drawn(&open, whole, |ranking| wanted <= ranking.good());
            }
        }
        for (at, holders) in parts.iter().enumerate() {
            let Some(holders) = *holders else { continue };
            if self.good.at(at) < self.config.pathways_min {
                let open = holders.both(&view.open);
                self.look_at_drawn(&open, None, |ranking| {
                    ranking.config.pathways_max <= ranking.good.at(at)
                });
            }
        }
        if !self.keeps_all {
            return;
        }
        self.look_at_drawn(&view.open, None, Self::has_least);
        let all = self.draws.looks(view.positions.len());
        self.look_at_numbers(all, None, Self::has_least);
    }

    fn has_least(&self) -> bool {
        self.config.pathways_min <= self.possible()
    }

    fn possible(&self) -> usize {
        self.looks.iter().filter(|look| look.standing.is_possible()).count()
    }

    /// Looks at some, drawn for the session: if they are few, each has its turn. They hold so much
    /// of the version, if that is known.
    fn look_at_drawn(
        &mut self,
        numbers: &Members,
        held: Option<Renditions>,
        is_enough: impl Fn(&Self) -> bool,
    ) {
        let count = index(numbers.count());
        if count <= OTHERS_MAX {
            let (mut turns, mut all) = ([u64::MAX; OTHERS_MAX], [0; OTHERS_MAX]);
            for ((turn, to), number) in turns.iter_mut().zip(&mut all).zip(numbers.each()) {
                (*turn, *to) = (self.draws.turn(number), number);
            }
            let in_turn = in_turn(&mut turns[..count]).map(|at| all[at]);
            return self.look_at_numbers(in_turn, held, is_enough);
        }
        let (drawn, numbers) = (self.draws.looks(numbers.count()), numbers.shape());
        let numbers = drawn.map(|at| numbers.nth(at).expect("it is one of them"));
        self.look_at_numbers(numbers, held, is_enough);
    }

    fn look_at_numbers(
        &mut self,
        numbers: impl Iterator<Item = u32>,
        held: Option<Renditions>,
        is_enough: impl Fn(&Self) -> bool,
    ) {
        let mut left = OTHERS_MAX;
        for number in numbers.take(DRAWS_MAX) {
            if left == 0 || is_enough(self) {
                return;
            }
            if self.view.position(number).is_some_and(|position| position.serves_strangers) {
                self.look_at_other(number, held);
                left -= 1;
            }
        }
    }

    fn look_at_other(&mut self, number: u32, held: Option<Renditions>) {
        let Some(position) = self.view.position(number) else { return };
        let is_near = self.query.near.iter().any(|near| near.number == position.site);
        if !is_near && !self.looks.iter().any(|look| look.number == number) {
            let held = held.unwrap_or_else(|| self.holders.content(number));
            self.look(number, Way::ELSEWHERE, held);
        }
    }

    /// Takes an appliance that holds so much through the other steps, but for affinity, which waits
    /// until it matters.
    #[inline]
    fn look(&mut self, number: u32, way: Way, held: Renditions) {
        self.looked += 1;
        if held == Renditions::NONE && !self.keeps_all {
            return;
        }
        let Some(position) = self.view.position(number) else { return };
        let near = way.near().map(|at| &self.query.near[at]);
        let is_for_client = chain::locate(position.serves_strangers, near);
        let fitness = chain::health(position, self.query.plain);
        let is_spilled = chain::load(self.draws, position);
        let standing = Standing::of(is_for_client, fitness, held != Renditions::NONE, is_spilled);
        if standing == Standing::Good {
            self.good.add(held);
        }
        let (score, title) = (None, Title::Other);
        self.looks.push(Look {
            number,
            position,
            standing,
            way,
            is_for_client,
            fitness,
            held,
            is_spilled,
            score,
            title,
        });
        assert!(self.good() <= self.looks.len(), "whoever is good was looked at");
    }

    fn list(mut self) -> RankedList {
        let Self { view, query, config, looked, .. } = self;
        self.sort();
        let (pathways, is_good) = self.find_pathways();
        assert!(pathways.len() <= config.pathways_max, "each pathway costs the player");
        let positions = pathways.iter().flat_map(Pathway::positions);
        let offered_count = positions.max().map_or(0, |last| last + 1);
        assert!(offered_count <= self.looks.len(), "whoever is offered was looked at");
        let told = if config.explains { self.looks.len() } else { offered_count };
        let candidates = self.looks[..told].iter().map(|look| look.candidate(query)).collect();
        let all = query.among.map_or(view.appliances.len(), <[_]>::len);
        let others = Bytes::of(all.saturating_sub(looked)).0;
        RankedList { candidates, offered_count, pathways, is_good, others }
    }

    /// Sorts those that were looked at. Draws are made for those that the others leave equal, from
    /// the best on, until all are in order whom the player may get.
    fn sort(&mut self) {
        let rough = |look: &Look<'_>| (look.standing, look.way.place);
        self.looks.sort_unstable_by_key(rough);
        let needs_all = self.config.explains || pathways::is_mixed(&self.looks);
        let most = if needs_all { usize::MAX } else { self.config.pathways_max };
        let mut sorted = 0;
        for equals in self.looks.chunk_by_mut(|a, b| rough(a) == rough(b)) {
            if most <= sorted {
                break;
            }
            let offered = self.config.pathways_max.saturating_sub(sorted);
            self.affinity.sort(equals, offered, needs_all);
            sorted += equals.len();
        }
        if self.query.among.is_none() && !pathways::is_mixed(&self.looks) {
            self.keep_nearest();
        }
    }

    /// Pathways of a playback never change, so it could not come back to an appliance that is short
    /// of something now and that farther ones would push off the list: it keeps the last place.
    fn keep_nearest(&mut self) {
        let most = self.config.pathways_max;
        let is_spilled = |look: &Look<'_>| look.standing == Standing::Spilled;
        let Some(first) = self.looks.iter().position(is_spilled) else { return };
        let place = self.looks[first].way.place;
        if most == 1 || first < most || self.looks[most - 1].way.place <= place {
            return;
        }
        let is_equal = |look: &&Look<'_>| is_spilled(look) && look.way.place == place;
        let equals = self.looks[first..].iter().take_while(is_equal).count();
        let explains = self.config.explains;
        self.affinity.sort(&mut self.looks[first..first + equals], 1, explains);
        self.looks[most - 1..=first].rotate_right(1);
    }

    /// The pathways, and whether healthy ones hold the whole version. Those that are on none come
    /// after all others.
    fn find_pathways(&mut self) -> (Vec<Pathway>, bool) {
        if !pathways::is_mixed(&self.looks) {
            let is_good = self.looks.first().is_some_and(|look| look.standing.is_good());
            return ((0..self.offered_count()).map(Pathway::whole).collect(), is_good);
        }
        let renditions = u32::try_from(self.good.len()).unwrap_or(u32::MAX);
        let (pathways, is_good) = pathways::find(&self.looks, renditions, self.config);
        let offered: BTreeSet<usize> = pathways.iter().flat_map(Pathway::positions).collect();
        let looks = std::mem::take(&mut self.looks).into_iter().zip(0..);
        let (first, last): (Vec<_>, Vec<_>) = looks.partition(|(_, at)| offered.contains(at));
        self.looks.extend(first.into_iter().chain(last).map(|(look, _)| look));
        let moved = |position| offered.range(..position).count();
        (pathways.into_iter().map(|pathway| pathway.moved(moved)).collect(), is_good)
    }

    /// How many to offer: all good ones up to the most, doubtful ones up to the least; and if none
    /// is good, doubtful ones up to the most.
    fn wanted(&self) -> usize {
        let Config { pathways_min, pathways_max, .. } = *self.config;
        let good = self.looks.iter().filter(|look| look.standing.is_good()).count();
        if good == 0 { pathways_max } else { good.max(pathways_min).min(pathways_max) }
    }

    /// How many of the sorted ones to offer.
    fn offered_count(&self) -> usize {
        self.wanted().min(self.possible())
    }
}

/// The places of the lowest turns first, of equal ones the first. Of [`OTHERS_MAX`] a few are asked
/// for as a rule, so each is searched for when it is, and none is sorted: O(turns) for each.
fn in_turn(turns: &mut [u64]) -> impl Iterator<Item = usize> {
    (0..turns.len()).map(|_| {
        let (mut least, mut place) = (u64::MAX, 0);
        for (at, turn) in turns.iter().enumerate() {
            if *turn < least {
                (least, place) = (*turn, at);
            }
        }
        turns[place] = u64::MAX;
        place
    })
}

impl Look<'_> {
    fn candidate(&self, query: &Query<'_>) -> Candidate {
        let distance = self.way.near().map_or(Distance::Elsewhere, |at| distance(query.near, at));
        Candidate {
            appliance: self.number,
            standing: self.standing,
            distance,
            is_for_client: self.is_for_client,
            fitness: self.fitness,
            held: self.held,
            share_permille: self.position.share_permille,
            is_spilled: self.is_spilled,
            weight: self.position.weight,
            score: self.score.expect("whoever is told was drawn for"),
            title: self.title,
            titles_permille: self.position.titles_permille,
        }
    }
}

impl RankedList {
    /// The appliances for the player, best first.
    pub fn offered(&self) -> &[Candidate] {
        &self.candidates[..self.offered_count]
    }

    /// The healthy ones that hold the version, or some of it, best first. Empty if none is.
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

    /// What the steps come to together.
    fn of(is_for_client: bool, fitness: Fitness, holds: bool, is_spilled: bool) -> Self {
        match (fitness, holds) {
            (Fitness::NoUrl, _) => Self::NoUrl,
            _ if !is_for_client => Self::OthersOnly,
            (Fitness::Healthy, true) if is_spilled => Self::Spilled,
            (Fitness::Healthy, true) => Self::Good,
            (Fitness::Draining | Fitness::Drained, true) => Self::Draining,
            (Fitness::Unhealthy, true) => Self::Unwell(Health::Unhealthy),
            (Fitness::Stale, true) => Self::Unwell(Health::Stale),
            (Fitness::NeverSeen, true) => Self::Unwell(Health::NeverSeen),
            (Fitness::Unhealthy, false) => Self::Useless(Health::Unhealthy),
            (Fitness::Stale, false) => Self::Useless(Health::Stale),
            (Fitness::NeverSeen, false) => Self::Useless(Health::NeverSeen),
            (Fitness::Healthy | Fitness::Draining | Fitness::Drained, false) => Self::Lacks,
        }
    }
}

impl Candidate {
    /// Why it is where it is in the list, which was made of this picture: one reason of each step,
    /// in their order.
    pub fn reasons(&self, view: &FleetView) -> [Reason; 5] {
        let Self { distance, is_for_client, share_permille, is_spilled, .. } = *self;
        let load = view.placed(self.appliance).map(|placed| placed.appliance.load);
        let (bottleneck, load_permille) = load.unwrap_or_default().worst();
        let Self { score, weight, title, titles_permille, .. } = *self;
        [
            Reason::Locate { distance, is_for_client },
            Reason::Health(self.fitness),
            Reason::Content(self.held),
            Reason::Load { bottleneck, load_permille, share_permille, is_spilled },
            Reason::Affinity { score, weight, title, titles_permille },
        ]
    }
}

#[cfg(test)]
mod tests;
