//! Two sites, their director, and sessions that come, ask for steering and go.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

use anyhow::Result;
use director::front::{Player, Snapshot, Ticket};
use director::{Action, Desired, Director, Event as Told, Ledger, Registered, Report, Version};
use model::id::{ApplianceId, AssetVersionId, ObjectId, SiteId};
use model::inventory::{Check, Delta};
use model::machine::Machine;
use model::manifest::{AssetVersion, File, TokenKey};
use model::topology::{Appliance, Prefix, Site, Weight};
use model::units::{BitsPerSecond, Bytes, Instant, Nanos, UnixSeconds};
use model::view::{Load, SiteView};
use playback::token::Session;
use steering::turns::{Pace, Turns};

use super::Point;
use crate::director::world::Draw;
use crate::director::{CONFIG, STEERING};

/// How a list follows loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// As the director says.
    Shares,
    /// By the last report: below 90 % all, above nothing.
    Naive,
    /// As the director says, whatever the title.
    Spread,
}

/// How sessions follow their lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Crowd {
    /// All ask again at their turns.
    Prompt,
    /// One of `SLOW_IN` asks once a minute only, and a part of each link's load, `BASE_PERMILLE`,
    /// is no session's.
    Stubborn,
}

/// What happens besides an even evening.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// Nothing.
    Even,
    /// Three times as many sessions, within ten seconds of that second, and from then on.
    Launch(u32),
    /// The near site is silent, and serves nobody.
    Loss { from: u32, until: u32 },
    /// The last of three near appliances is silent, and serves nobody.
    OneLost { from: u32, until: u32 },
    /// The last of three near appliances is new at the first, and holds a part of the titles that
    /// grows until it holds all at the second.
    Added { from: u32, full: u32 },
}

impl Event {
    fn near(self) -> &'static [&'static str] {
        match self {
            Self::Even | Self::Launch(_) | Self::Loss { .. } => &["n1", "n2"],
            Self::OneLost { .. } | Self::Added { .. } => &["n1", "n2", "n3"],
        }
    }

    /// Of what the near site can serve, before a launch.
    fn wanted(self) -> f64 {
        if self.near().len() == 2 { BEFORE } else { BEFORE_OF_THREE }
    }

    /// When it begins.
    fn from(self) -> u32 {
        match self {
            Self::Even => 0,
            Self::Launch(from)
            | Self::Loss { from, .. }
            | Self::OneLost { from, .. }
            | Self::Added { from, .. } => from,
        }
    }

    /// Whether the n-th serves nobody.
    fn silences(self, n: usize, second: u32) -> bool {
        match self {
            Self::Even | Self::Launch(_) => false,
            Self::Loss { from, until } => n < self.near().len() && (from..until).contains(&second),
            Self::OneLost { from, until } => n == 2 && (from..until).contains(&second),
            Self::Added { from, .. } => n == 2 && second < from,
        }
    }

    /// Of so many objects, those that the n-th holds.
    fn held(self, n: usize, second: u32, objects: usize) -> usize {
        let Self::Added { from, full } = self else { return objects };
        if n < 2 || self.near().len() <= n {
            return objects;
        }
        let passed = model::number::index(second.saturating_sub(from).min(full - from));
        objects * passed / model::number::index(full - from)
    }
}

const FAR: [&str; 2] = ["f1", "f2"];
/// The far site's appliances serve so many times the sessions of a near one.
const FAR_TIMES: u32 = 4;
/// A new appliance fetches every so many of the objects, then the others in the same way.
const FETCHED_BY: usize = 7;
const BITS_PER_SESSION: u64 = 5_000_000;
/// Mean of their lengths, which are exponential: several minutes.
const LENGTH_S: f64 = 300.0;
/// Of what the near site can serve, before and after the launch.
const BEFORE: f64 = 0.5;
const AFTER: f64 = 1.5;
/// Of three near appliances, before one is lost; of two that are there before the third, 0.6.
const BEFORE_OF_THREE: f64 = 0.4;
const SPREAD_S: u32 = 10;
const SLOW_IN: u32 = 4;
const SLOW: Nanos = Nanos::seconds(60);
const BASE_PERMILLE: u64 = 100;
const PACE: Pace = Pace { ttl: Nanos::seconds(10), rate_max: 100_000 };
const NAIVE_PERMILLE: u64 = 900;
const SECOND: u64 = 1_000_000_000;

pub(super) struct World {
    director: Director,
    rule: Rule,
    crowd: Crowd,
    draw: Draw,
    turns: Turns,
    event: Event,
    /// The near ones first.
    names: Vec<&'static str>,
    /// With how many of a session's draws lead to each or one before it.
    titles: Vec<(AssetVersionId, f64)>,
    /// In the order in which a new appliance fetches them.
    objects: Vec<ObjectId>,
    client: Prefix,
    /// Sessions that each can serve, and that it has.
    room: Vec<u32>,
    has: Vec<u32>,
    /// By title.
    plays: Vec<Vec<u32>>,
    /// What the near appliances have of titles, once a minute of the last ten.
    shows: Vec<Shown>,
    sessions: Vec<Playing>,
    /// When each asks next.
    due: BinaryHeap<Reverse<(Instant, usize)>>,
    points: Vec<Vec<Point>>,
    /// Sessions times seconds, all and those with an appliance that has too many, as counted from
    /// a minute after the event.
    lasted: u64,
    starved: u64,
    moves: u64,
}

struct Playing {
    ticket: Ticket,
    number: u64,
    title: usize,
    is_slow: bool,
    with: usize,
    ends: Instant,
}

/// The titles of the near site at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    /// That it plays, and how many of them each of its appliances has, together.
    all: usize,
    each: usize,
    /// Sessions, and those of them that are with the appliance that has most of their title.
    sessions: u32,
    together: u32,
}

impl World {
    pub(super) fn new(
        sessions: u32,
        seed: u64,
        rule: Rule,
        crowd: Crowd,
        titles: u32,
        event: Event,
    ) -> Result<Self> {
        let near = event.near();
        let names: Vec<&'static str> = near.iter().copied().chain(FAR).collect();
        let mut draw = Draw::of(seed, "flap", 0);
        let versions = (0..titles).map(|n| version(seed, n)).collect::<Result<Vec<_>>>()?;
        let mut desired = Desired {
            token_keys: vec![TokenKey { kid: "k1".to_owned(), public_key: [7; 32] }],
            ..Desired::default()
        };
        let client: Prefix = "10.1.2.0/24".parse()?;
        for (id, prefixes) in [("near", vec!["10.0.0.0/8".parse()?]), ("far", Vec::new())] {
            let id: SiteId = id.parse()?;
            Arc::make_mut(&mut desired.sites).insert(id.clone(), Site::new(id, prefixes));
        }
        for name in &names {
            let site = if near.contains(name) { "near" } else { "far" }.parse()?;
            let (id, weight): (ApplianceId, _) = (name.parse()?, Weight::ONE);
            let appliance = Appliance::new(id.clone(), site, weight);
            Arc::make_mut(&mut desired.appliances).insert(id, Registered::new(appliance));
        }
        for version in &versions {
            Arc::make_mut(&mut desired.catalog).put(Arc::clone(version));
        }
        let (mut picks, mut titles) = (0.0, Vec::new());
        for (version, rank) in versions.iter().zip(1_u32..) {
            picks += 1.0 / f64::from(rank);
            titles.push((version.id().clone(), picks));
        }
        let objects: BTreeSet<ObjectId> =
            versions.iter().flat_map(|version| version.objects()).copied().collect();
        // Every so many of them, again and again: the most wanted ones are not the first.
        let objects: Vec<ObjectId> = objects.into_iter().collect();
        let objects = (0..FETCHED_BY).flat_map(|n| objects.iter().skip(n).step_by(FETCHED_BY));
        let count = names.len();
        let director = Director::new(CONFIG, desired, Ledger::default(), at(0), UnixSeconds(1));
        draw.next();
        Ok(Self {
            director,
            rule,
            crowd,
            draw,
            turns: Turns::default(),
            event,
            plays: vec![vec![0; titles.len()]; count],
            titles,
            objects: objects.copied().collect(),
            shows: Vec::new(),
            client,
            room: names
                .iter()
                .map(|name| if near.contains(name) { sessions } else { sessions * FAR_TIMES })
                .collect(),
            has: vec![0; count],
            sessions: Vec::new(),
            due: BinaryHeap::new(),
            points: vec![Vec::new(); count],
            names,
            lasted: 0,
            starved: 0,
            moves: 0,
        })
    }

    /// The near appliances' lines, one point a second.
    pub(super) fn near(&self) -> Vec<&[Point]> {
        self.points[..self.event.near().len()].iter().map(Vec::as_slice).collect()
    }

    pub(super) fn starved_permille(&self) -> u64 {
        self.starved * 1000 / self.lasted.max(1)
    }

    /// Of the titles that the near site plays, the part that one of its appliances has; and of its
    /// sessions, in thousandths, that which is with the appliance that has most of their title.
    pub(super) fn titles(&self) -> (f64, u64) {
        let sum = |of: fn(&Shown) -> usize| real(Bytes::of(self.shows.iter().map(of).sum()).0);
        let of_site = sum(|shown| shown.all) * real(Bytes::of(self.event.near().len()).0);
        let sessions =
            |of: fn(&Shown) -> u32| self.shows.iter().map(of).map(u64::from).sum::<u64>();
        let together = sessions(|shown| shown.together) * 1000;
        (sum(|shown| shown.each) / of_site.max(1.0), together / sessions(|of| of.sessions).max(1))
    }

    /// The most that a near appliance had of the mean of both, in a minute of the last ten.
    pub(super) fn of_mean(&self) -> f64 {
        let near = self.near();
        let minutes = near.first().map_or(0, |points| points.len() / 60);
        let sums = |points: &[Point], minute: usize| -> u64 {
            points[minute * 60..][..60].iter().map(|point| point.load_permille).sum()
        };
        (minutes.saturating_sub(10)..minutes)
            .map(|minute| {
                let loads: Vec<u64> = near.iter().map(|points| sums(points, minute)).collect();
                let most = loads.iter().max().copied().unwrap_or(0);
                real(most) * real(Bytes::of(loads.len()).0) / real(loads.iter().sum::<u64>().max(1))
            })
            .fold(0.0, f64::max)
    }

    pub(super) fn moves_per_session(&self) -> f64 {
        real(self.moves) / real(Bytes::of(self.sessions.len()).0.max(1))
    }

    /// Lets so many seconds pass.
    pub(super) fn run(&mut self, seconds: u32) -> Result<()> {
        let event = self.event;
        let near = f64::from(self.room[..event.near().len()].iter().sum::<u32>());
        let (mut wanted, mut owed) = (near * event.wanted(), 0.0);
        let begins = event.from();
        for second in 0..seconds {
            rig::stop::check()?;
            self.tell(second)?;
            let snapshot = self.snapshot();
            if second == 0 {
                self.begin(second, wanted, &snapshot)?;
            }
            if let Event::Launch(from) = event
                && (from..from + SPREAD_S).contains(&second)
            {
                let more = near * (AFTER - BEFORE) / f64::from(SPREAD_S);
                wanted += more;
                owed += more;
            }
            owed += wanted / LENGTH_S;
            self.begin(second, owed.floor(), &snapshot)?;
            owed -= owed.floor();
            self.poll(second, &snapshot);
            self.note(&snapshot, begins + 60 <= second);
            if seconds <= second + 600 && second.is_multiple_of(60) {
                self.shows.push(self.shown());
            }
        }
        Ok(())
    }

    /// Every appliance that is not silent reports, and time passes.
    fn tell(&mut self, second: u32) -> Result<()> {
        let now = at(second);
        for (n, name) in self.names.clone().into_iter().enumerate() {
            if self.event.silences(n, second) {
                continue;
            }
            let id: ApplianceId = name.parse()?;
            let from = self.director.reply(&id)?.inventory;
            let inventory = self.inventory(n, second, from);
            let (asked, room) = (self.asked(n), u64::from(self.room[n]));
            let report = Report {
                start_id: 1,
                sequence: u64::from(second) + 1,
                base_url: format!("https://{name}.example"),
                // A link carries no more than it can.
                load: Load {
                    egress: BitsPerSecond(asked.min(room) * BITS_PER_SESSION),
                    egress_max: BitsPerSecond(room * BITS_PER_SESSION),
                    ..Load::default()
                },
                serving: true,
                drives_in_use: 1,
                usable: Bytes(1 << 40),
                inventory,
                ..Report::default()
            };
            self.director.handle(now, Told::Reported { appliance: &id, report: &report });
        }
        for tenth in 0..10 {
            let now = now + Nanos::millis(50 + 100 * tenth);
            self.director.handle(now, Told::Tick(UnixSeconds(u64::from(second))));
            self.settle(now);
        }
        Ok(())
    }

    /// What an appliance holds beyond a state. Each object is one state, and nothing the first.
    fn inventory(&self, n: usize, second: u32, from: u64) -> Delta {
        let held = &self.objects[..self.event.held(n, second, self.objects.len())];
        let to = Bytes::of(held.len()).0 + 1;
        if from == to {
            return Delta { from, to, ..Delta::default() };
        }
        let known = usize::try_from(from.saturating_sub(1)).unwrap_or(held.len()).min(held.len());
        let check = Some(Check::of(held));
        Delta { from, to, held: held[known..].to_vec(), gone: Vec::new(), check }
    }

    /// What is asked of an appliance, in sessions.
    fn asked(&self, n: usize) -> u64 {
        let base = match self.crowd {
            Crowd::Prompt => 0,
            Crowd::Stubborn => u64::from(self.room[n]) * BASE_PERMILLE / 1000,
        };
        u64::from(self.has[n]) + base
    }

    /// When one that has asked asks again.
    fn turn(&mut self, now: Instant, number: u64, is_slow: bool) -> Instant {
        if is_slow { now + SLOW } else { now + self.turns.take(now, number, &PACE) }
    }

    fn settle(&mut self, now: Instant) {
        while let Some(action) = self.director.poll() {
            // Whoever is silent answers nobody.
            let event = if let Action::Probe { appliance, .. } = action {
                Some(Told::Probed { appliance, answered: false })
            } else {
                action.at_once()
            };
            if let Some(event) = event {
                self.director.handle(now, event);
            }
        }
    }

    /// The picture that steering answers from.
    fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::clone(&self.director.snapshot());
        if self.rule == Rule::Shares {
            return snapshot;
        }
        let view = Arc::make_mut(&mut snapshot.view);
        let sites: Vec<(u32, Arc<SiteView>)> = (0..).zip(view.sites.iter().cloned()).collect();
        for (number, site) in sites {
            let mut site = site.as_ref().clone();
            for appliance in &mut site.appliances {
                appliance.titles_permille = 0;
                if self.rule == Rule::Naive {
                    let takes = appliance.load.permille() < NAIVE_PERMILLE;
                    appliance.share_permille = if takes { 1000 } else { 0 };
                }
            }
            view.put_site(number, Arc::new(site));
        }
        snapshot
    }

    fn begin(&mut self, second: u32, count: f64, snapshot: &Snapshot) -> Result<()> {
        let mut left = count;
        while 1.0 <= left {
            left -= 1.0;
            let session = Session::of_random(self.draw.session());
            let player = Player { client: self.client, session: &session, plain: false };
            let title = self.pick();
            let list = snapshot.rank(&self.titles[title].0, &player, &STEERING);
            let placed = list.offered().iter().filter_map(|of| snapshot.view.placed(of.appliance));
            let pathways = placed.map(|placed| placed.appliance.id.clone()).collect();
            let ticket = Ticket {
                session,
                expires: UnixSeconds(1 << 40),
                version: self.titles[title].0.clone(),
                client: self.client,
                plain: false,
                pathways,
                parts: BTreeMap::new(),
            };
            let Some(with) = self.first(&ticket.pathways) else { continue };
            let now = at(second) + Nanos(u64::from(self.draw.below(1_000_000_000)));
            let uniform = (f64::from(self.draw.below(u32::MAX)) + 1.0) / f64::from(u32::MAX);
            let ends = now + Nanos(whole(-uniform.ln() * LENGTH_S * 1e9));
            let number = self.draw.next();
            self.has[with] += 1;
            self.plays[with][title] += 1;
            let is_slow = self.crowd == Crowd::Stubborn && self.draw.below(SLOW_IN) == 0;
            let turn = self.turn(now, number, is_slow);
            self.due.push(Reverse((turn.min(ends), self.sessions.len())));
            self.sessions.push(Playing { ticket, number, title, is_slow, with, ends });
        }
        Ok(())
    }

    /// A title, the n-th as often as 1/n.
    fn pick(&mut self) -> usize {
        let all = self.titles.last().map_or(0.0, |(_, picks)| *picks);
        let drawn = f64::from(self.draw.below(u32::MAX)) / f64::from(u32::MAX) * all;
        self.titles.partition_point(|(_, picks)| *picks <= drawn).min(self.titles.len() - 1)
    }

    fn shown(&self) -> Shown {
        let near = &self.plays[..self.event.near().len()];
        let mut shown = Shown { all: 0, each: 0, sessions: 0, together: 0 };
        for title in 0..self.titles.len() {
            let plays: Vec<u32> = near.iter().map(|plays| plays[title]).collect();
            let having = plays.iter().filter(|plays| 0 < **plays).count();
            shown.all += usize::from(0 < having);
            shown.each += having;
            shown.sessions += plays.iter().sum::<u32>();
            shown.together += plays.iter().max().copied().unwrap_or(0);
        }
        shown
    }

    /// Whoever has its turn in this second asks again, or ends.
    fn poll(&mut self, second: u32, snapshot: &Snapshot) {
        let end = at(second + 1);
        while let Some(Reverse((now, n))) = self.due.peek().copied() {
            if end <= now {
                break;
            }
            self.due.pop();
            let playing = &self.sessions[n];
            if playing.ends <= now {
                self.has[playing.with] -= 1;
                self.plays[playing.with][playing.title] -= 1;
                continue;
            }
            let list = snapshot.steer(&playing.ticket, &STEERING);
            let with = self.first(list).unwrap_or(playing.with);
            let playing = &mut self.sessions[n];
            if with != playing.with {
                self.has[playing.with] -= 1;
                self.has[with] += 1;
                self.plays[playing.with][playing.title] -= 1;
                self.plays[with][playing.title] += 1;
                playing.with = with;
                self.moves += 1;
            }
            let (number, is_slow, ends) = (playing.number, playing.is_slow, playing.ends);
            let turn = self.turn(now, number, is_slow);
            self.due.push(Reverse((turn.min(ends), n)));
        }
    }

    /// The place of the first that is named.
    fn first<'a>(&self, pathways: impl IntoIterator<Item = &'a ApplianceId>) -> Option<usize> {
        let first = pathways.into_iter().next()?;
        self.names.iter().position(|name| *name == first.as_str())
    }

    fn note(&mut self, snapshot: &Snapshot, counts: bool) {
        for (n, name) in self.names.iter().enumerate() {
            let share = snapshot.view.all().find(|of| of.id.as_str() == *name);
            let (has, room) = (u64::from(self.has[n]), u64::from(self.room[n]));
            let asked = self.asked(n);
            self.points[n].push(Point {
                share_permille: share.map_or(0, |of| of.share_permille),
                titles_permille: share.map_or(0, |of| of.titles_permille),
                load_permille: asked * 1000 / room.max(1),
            });
            if counts {
                self.lasted += has;
                self.starved += if room < asked { has } else { 0 };
            }
        }
    }
}

/// A version of one file. The first is the launch.
fn version(seed: u64, n: u32) -> Result<Arc<Version>> {
    let name = if n == 0 { "launch".to_owned() } else { format!("title-{seed}-{n}") };
    let mut object = [7; 32];
    object[..4].copy_from_slice(&n.to_le_bytes());
    let file = File { object: ObjectId(object), len: Bytes(1), content_type: "".into() };
    let files = AssetVersion {
        id: format!("{name}-1").parse()?,
        asset: name.parse()?,
        sources: vec![format!("https://origin.example/{name}/")],
        modified: UnixSeconds(1),
        pace: None,
        files: BTreeMap::from([("v.mp4".to_owned(), file)]),
    };
    Ok(Arc::new(Version::new(Arc::new(files), Vec::new(), 1)))
}

fn at(second: u32) -> Instant {
    Instant(1_000 * SECOND) + Nanos(u64::from(second) * SECOND)
}

fn real(number: u64) -> f64 {
    u32::try_from(number).map_or(f64::MAX, f64::from)
}

#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the length of a session in nanoseconds: positive, and below 2^53"
)]
fn whole(nanos: f64) -> u64 {
    nanos as u64
}
