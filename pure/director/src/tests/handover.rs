//! What lies where between two plans.

use super::refused::{put, title};
use super::*;
use model::profile::Abilities;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

use crate::wishes::{Rule, RuleKind, Where, Wishes};

const NORTH: Option<&str> = Some("north");

/// Two sites of a cluster, with room for one film each: the first is at a1, the other at b1.
fn two_full() -> Director {
    let mut director = running(&["a1", "b1"]);
    let policy = Policy { copies: 1, ..director.desired().policy };
    director.handle(at(0), Event::Changed(Change::Policy(policy)));
    for name in ["a", "b"] {
        let cluster = Some("north".parse().unwrap());
        let known = director.desired().sites[name].clone();
        director.handle(
            at(0),
            Event::Changed(Change::Site(Site { manifest_cluster: cluster, ..known })),
        );
        let id = id(&format!("{name}1"));
        director.handle(at(0), Event::Changed(Change::Usable(id, Bytes(8192))));
    }
    put(&mut director, title("film-1", "title-1", 1));
    pin(&mut director, &[("film-1", "a")]);
    put(&mut director, title("film-2", "title-2", 2));
    pin(&mut director, &[("film-1", "a"), ("film-2", "b")]);
    assert_eq!(films(&director), ["film-1", "film-2"]);
    hold(&mut director, "a1", &[1]);
    hold(&mut director, "b1", &[2]);
    director
}

/// These are pinned, and nothing else is said.
fn pins(pins: &[(&str, &str)]) -> Change {
    let rule = |(film, site): &(&str, &str)| {
        let at = (film.parse().unwrap(), Where::Site(site.parse().unwrap()));
        (at, Rule { kind: RuleKind::Pin, until: None })
    };
    let wishes = Wishes { rules: pins.iter().map(rule).collect(), ..Wishes::default() };
    Change::Wishes(Arc::new(wishes))
}

/// The same, whatever goes for it.
fn pin(director: &mut Director, of: &[(&str, &str)]) {
    director.handle(at(0), Event::Changed(pins(of)));
    settle(director);
    // It would be refused: all goes from both.
    force(director);
    settle(director);
}

/// The films of a1, and those of b1.
fn films(director: &Director) -> [String; 2] {
    ["a1", "b1"].map(|name| {
        let manifest = manifest(director, name);
        let films: Vec<String> = manifest.versions.iter().map(|of| of.id.to_string()).collect();
        films.join(" ")
    })
}

/// Films by number are expected to be watched so much in a region.
fn watched(director: &mut Director, region: Option<&str>, days: &[(u32, u64)]) {
    let wanted = days.iter().map(|(item, day)| placement::plan::Wanted {
        item: model::id::Item(*item),
        day: Bytes(*day),
        peak: BitsPerSecond(1),
    });
    let region = region.map(|of| of.parse().unwrap());
    let regions = BTreeMap::from([(region, wanted.collect())]);
    director.handle(at(0), Event::Expected(Arc::new(Expected { regions })));
    settle(director);
}

/// So many seconds after the first plan, both are well, and the director does what is due.
fn pass(director: &mut Director, seconds: u64) {
    director.handle(at(0), Event::Tick(UnixSeconds(seconds)));
    settle(director);
}

/// An appliance has these objects; the numbers of its reports, and of its lists, grow.
fn tell(director: &mut Director, name: &str, number: u64, held: impl IntoIterator<Item = u8>) {
    let held = held.into_iter().map(object).collect();
    let inventory = Delta { to: number, held, ..Delta::default() };
    let report = Report { inventory, ..report(number) };
    director.report(at(0), &id(name), &report).unwrap();
}

/// How many items stay, and how many wait.
fn counts(director: &Director) -> (u64, u64) {
    let report = &director.places().report;
    (report.staying, report.waiting)
}

#[test]
fn what_moves_stays_where_it_is_watched_until_the_other_reports_it() {
    let mut director = two_full();
    watched(&mut director, NORTH, &[(1, 1 << 40), (2, 1 << 30)]);
    pass(&mut director, 1_000_000);
    pin(&mut director, &[("film-1", "b")]);
    assert_eq!(
        (films(&director), counts(&director)),
        (["film-1", "film-1"].map(Into::into), (1, 1))
    );
    let told = |director: &Director, film: &str| {
        let held = director.question().why(&"a".parse().unwrap(), &film.parse().unwrap());
        (held[0].is_held, held[0].stays, held[0].waits)
    };
    assert_eq!(told(&director, "film-1"), (false, true, false));
    assert_eq!(told(&director, "film-2"), (true, false, true));
    let moved = director.carried_out().len();
    director.handle(at(0), Event::PlanNow { forces: None });
    settle(&mut director);
    assert_eq!(director.carried_out().len(), moved, "what is on its way is planned already");
    let placements = director.counters().placements;
    pass(&mut director, 1_001_800);
    assert_eq!(director.counters().placements, placements, "nobody has said anything new");
    tell(&mut director, "b1", 21, [1]);
    pass(&mut director, 1_001_799);
    assert_eq!(films(&director), ["film-1", "film-1"], "a plan is not made for each report");
    pass(&mut director, 1_001_800);
    assert_eq!(
        (films(&director), counts(&director)),
        (["film-2", "film-1"].map(Into::into), (0, 0))
    );
    assert_eq!(director.counters().placements, placements + 1);
    pass(&mut director, 2_000_000);
    assert_eq!(director.counters().placements, placements + 1, "all is as planned");
}

#[test]
fn what_is_reported_while_the_plan_is_made_is_news_to_it() {
    let mut director = two_full();
    watched(&mut director, NORTH, &[(1, 1 << 40), (2, 1 << 30)]);
    pass(&mut director, 1_000_000);
    director.handle(at(0), Event::Changed(pins(&[("film-1", "b")])));
    settle(&mut director);
    force(&mut director);
    tell(&mut director, "b1", 21, [1]);
    settle(&mut director);
    assert_eq!(films(&director), ["film-1", "film-1"]);
    pass(&mut director, 1_001_800);
    assert_eq!(films(&director), ["film-2", "film-1"]);
}

#[test]
fn what_is_colder_than_what_comes_goes_at_once() {
    let mut director = two_full();
    watched(&mut director, NORTH, &[(1, 1 << 30), (2, 1 << 40)]);
    pin(&mut director, &[("film-1", "b")]);
    // What is pinned waits for nothing that has a source.
    assert_eq!(
        (films(&director), counts(&director)),
        (["film-2", "film-1"].map(Into::into), (0, 0))
    );
}

#[test]
fn what_has_no_source_is_given_up_by_nobody_before_another_has_it() {
    let mut director = two_full();
    let known = title("film-1", "title-1", 1);
    let files = AssetVersion { sources: Vec::new(), ..known.files.as_ref().clone() };
    let alone = Version::new(Arc::new(files), Vec::new(), known.sequence).numbered(Some(1));
    put(&mut director, alone);
    settle(&mut director);
    watched(&mut director, NORTH, &[(1, 1), (2, 1 << 40)]);
    pass(&mut director, 1_000_000);
    pin(&mut director, &[("film-1", "b"), ("film-2", "a")]);
    assert_eq!(films(&director), ["film-1", "film-1"]);
    tell(&mut director, "b1", 21, [1]);
    pass(&mut director, 1_003_600);
    assert_eq!(films(&director), ["film-2", "film-1"]);
}

#[test]
fn a_restart_in_between_takes_nothing_away_before_the_other_has_reported() {
    let mut director = two_full();
    watched(&mut director, NORTH, &[(1, 1 << 40), (2, 1 << 30)]);
    pin(&mut director, &[("film-1", "b")]);
    let mut again = restarted(&director);
    settle(&mut again);
    assert_eq!(films(&again), ["film-1", "film-1"]);
}

/// What comes next: these are watched so much, an appliance fetches all that it lacks and says what
/// it has, or control starts again.
#[derive(Clone, Debug)]
enum Step {
    Watched(Vec<u64>),
    Fetches(usize),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let days = prop::collection::vec((0_u64..30).prop_map(|bits| 1 << bits), FILMS);
    prop_oneof![
        4 => days.prop_map(Step::Watched),
        6 => (0_usize..3).prop_map(Step::Fetches),
        1 => Just(Step::Restart),
    ]
}

const FILMS: usize = 9;
const NAMES: [&str; 3] = ["a1", "a2", "a3"];

/// Three of a site, of which the last serves most for its room, with room for nine films.
struct Three {
    director: Director,
    has: [BTreeSet<u8>; 3],
    told: u64,
}

impl Three {
    fn new() -> Self {
        let mut director = running(&NAMES);
        let policy = Policy { copies: 1, ..director.desired().policy };
        director.handle(at(0), Event::Changed(Change::Policy(policy)));
        for (name, (films, mbps)) in NAMES.iter().zip([(4, 100), (3, 100), (2, 1000)]) {
            let known = director.desired().appliances[&id(name)].appliance.clone();
            let own = Abilities {
                throughput: Some(BitsPerSecond(mbps * 1_000_000)),
                ..Abilities::default()
            };
            director.handle(at(0), Event::Changed(Change::Appliance(Appliance { own, ..known })));
            director.handle(at(0), Event::Changed(Change::Usable(id(name), Bytes(8192 * films))));
        }
        // The last three have no source.
        for n in 1..=FILMS {
            let n = u8::try_from(n).unwrap();
            let known = title(&format!("film-{n}"), &format!("title-{n}"), n);
            let sources = if n < 7 { known.files.sources.clone() } else { Vec::new() };
            let files = AssetVersion { sources, ..known.files.as_ref().clone() };
            let version = Version::new(Arc::new(files), Vec::new(), known.sequence);
            put(&mut director, version.numbered(known.first_file));
        }
        director.handle(at(0), Event::Expected(Arc::default()));
        settle(&mut director);
        let mut three = Self { director, has: Default::default(), told: 100 };
        // Whoever uploaded them put them there.
        three.has = [0, 1, 2].map(|at| three.wanted(at));
        (0..3).for_each(|at| three.tell(at));
        three
    }

    /// The films that a manifest names.
    fn wanted(&self, at: usize) -> BTreeSet<u8> {
        let manifest = manifest(&self.director, NAMES[at]);
        let number = |id: &AssetVersionId| id.as_str()["film-".len()..].parse().unwrap();
        manifest.versions.iter().map(|of| number(&of.id)).collect()
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Watched(days) => {
                let days: Vec<(u32, u64)> = (1..).zip(days).collect();
                watched(&mut self.director, None, &days);
            }
            Step::Fetches(at) => {
                let all: BTreeSet<u8> = self.has.iter().flatten().copied().collect();
                let wanted = self.wanted(at);
                self.has[at].extend(wanted.into_iter().filter(|n| *n < 7 || all.contains(n)));
                self.tell(at);
            }
            Step::Restart => {
                self.director = restarted(&self.director);
                settle(&mut self.director);
            }
        }
        // Each evicts at once what is not wanted of it.
        for at in 0..3 {
            let wanted = self.wanted(at);
            self.has[at].retain(|n| wanted.contains(n));
        }
    }

    fn tell(&mut self, by: usize) {
        self.told += 1;
        tell(&mut self.director, NAMES[by], self.told, self.has[by].iter().copied());
        let later = self.director.now_unix.0 + 1_800;
        pass(&mut self.director, later);
    }
}

proptest! {
    /// However plans move films, none that has no source is lost, no appliance is told to hold more
    /// than it can, and in the end nothing stays but where two that have no source want each
    /// other's room, or the last plan is refused.
    #[test]
    fn nothing_is_lost_that_moves(steps in prop::collection::vec(step(), 1..24)) {
        let mut three = Three::new();
        for step in steps {
            three.take(step.clone());
            let all: BTreeSet<u8> = three.has.iter().flatten().copied().collect();
            prop_assert!((7..=9).all(|n| all.contains(&n)), "{step:?}: {:?}", three.has);
            let wanted = [0, 1, 2].map(|at| three.wanted(at).len());
            prop_assert!(wanted[0] <= 4 && wanted[1] <= 3 && wanted[2] <= 2, "{wanted:?}");
        }
        for _ in 0..FILMS {
            (0..3).for_each(|at| three.take(Step::Fetches(at)));
        }
        let stays = |n: usize| {
            let film = format!("film-{n}").parse().unwrap();
            let held = three.director.question().why(&"a".parse().unwrap(), &film);
            held.iter().any(|of| of.stays)
        };
        let is_refused = three.director.refused().is_some();
        prop_assert!(is_refused || (7..=9).any(stays) || !(1..=6).any(stays), "{:?}", three.has);
    }
}
