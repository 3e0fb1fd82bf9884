use std::collections::{BTreeMap, BTreeSet};

use super::*;
use front::{Player, Ticket, Unplayable};
use model::id::{AssetVersionId, ObjectId};
use model::inventory::Delta;
use model::manifest::{AssetVersion, File, TokenKey};
use model::number::index;
use model::topology::{Appliance, Site, Weight};
use model::units::{BitsPerSecond, Bytes};
use model::view::{ApplianceView, Load, Renditions};
use playback::token::Session;

mod expectations;
mod fill;
mod handover;
mod health;
mod history;
mod inventory;
mod ledger;
mod manifests;
mod places;
mod playing;
mod refused;
mod renditions;
mod titles;
mod trust;
mod wishes;

pub(super) const CONFIG: Config = Config {
    stale_after: Nanos::millis(1500),
    probe_after: Nanos::millis(800),
    shares: share::Policy {
        full_after: Nanos::seconds(1200),
        settle: Nanos::seconds(20),
        rises_below: 800,
        cut_above: 900,
    },
    titles_load_max: 1250,
    report_interval: Nanos::millis(500),
    objects_held_max: 100,
    notices_max: 5,
    rotation_min: Nanos::millis(200),
    rotation_max: Nanos::seconds(3600),
    drain: drain::Config {
        leave: Nanos::seconds(10),
        quiet_egress: BitsPerSecond(1_000_000),
        quiet: Nanos::seconds(5),
        bound: Nanos::seconds(60),
    },
    usable_settles: Nanos::seconds(300),
    usable_replans: Nanos::seconds(10),
    sources: sources::Config { siblings_max: 4, elsewhere: true },
    tokens_max: Nanos::seconds(3600),
    routes_longest: routes::filter::Longest::USUAL,
    withdrawals_max: 3,
    // Most look at what follows from one event.
    pictures_max: u32::MAX,
};
pub(super) const STEERING: steering::Config =
    steering::Config { pathways_min: 2, pathways_max: 4, explains: false };

#[test]
fn time_passes_when_the_director_says() {
    let mut director = fleet(&["a1"]);
    assert_eq!(director.deadline(), Some(at(100)));
    director.handle(at(40), Event::Reported { appliance: &id("a1"), report: &report(2) });
    assert_eq!(director.deadline(), Some(at(100)), "a report is no tick");
    director.handle(at(130), Event::Tick(UnixSeconds(1)));
    assert_eq!(director.deadline(), Some(at(230)));
}

#[test]
fn a_report_of_a_stranger_changes_nothing_and_is_answered_so() {
    let mut director = fleet(&["a1"]);
    let before = director.counters();
    director.handle(at(0), Event::Reported { appliance: &id("zz"), report: &report(2) });
    assert_eq!(director.reply(&id("zz")), Err(NotRegistered));
    assert_eq!(director.counters(), before);
}

#[test]
fn an_appliance_that_is_not_registered_is_refused() {
    let mut director = running(&["a1"]);
    assert_eq!(director.report(at(0), &id("zz"), &report(1)), Err(NotRegistered));
    director.handle(at(0), Event::Changed(Change::ApplianceGone(id("a1"))));
    assert_eq!(director.report(at(0), &id("a1"), &report(9)), Err(NotRegistered));
    assert_eq!(director.snapshot().view.all().count(), 0);
}

#[test]
fn notices_are_bounded() {
    let mut director = running(&["a1"]);
    for n in 1..50 {
        director.report(at(n * 10_000), &id("a1"), &report(n + 1)).unwrap();
        director.handle(at(n * 10_000 + 5000), Event::Tick(UnixSeconds(n)));
    }
    assert_eq!(director.notices().count(), CONFIG.notices_max);
}

const USABLE: Bytes = Bytes::mib(100);

/// Registered appliances; the first letter of a name is its site's. Nothing is stored yet.
pub(super) fn fleet(names: &[&str]) -> Director {
    let sites = [site("a", "10.0.0.0/8"), site("b", "10.0.0.0/8"), site("c", "2001:db8::/64")];
    let sites =
        sites.map(|s| if s.id.as_str() == "a" { s } else { Site { prefixes: vec![], ..s } });
    let registered = |name: &&str| {
        let site = name[..1].parse().unwrap();
        let appliance = Appliance::new(id(name), site, Weight::ONE);
        (id(name), Registered::new(appliance))
    };
    let desired = Desired {
        sites: Arc::new(sites.into_iter().map(|site| (site.id.clone(), site)).collect()),
        appliances: Arc::new(names.iter().map(registered).collect()),
        token_keys: vec![TokenKey { kid: "k1".to_owned(), public_key: [7; 32] }],
        ..Desired::default()
    };
    Director::new(CONFIG, desired, Ledger::default(), at(0), UnixSeconds(0))
}

/// The same, with a first report of each and everything stored.
pub(super) fn running(names: &[&str]) -> Director {
    let mut director = fleet(names);
    for name in names {
        director.report(at(0), &id(name), &report(1)).unwrap();
    }
    settle(&mut director);
    director
}

pub(super) fn restarted(director: &Director) -> Director {
    Director::new(CONFIG, director.desired().clone(), ledger(director), at(0), UnixSeconds(0))
}

/// What storage has after everything was stored.
pub(crate) fn ledger(director: &Director) -> Ledger {
    let Role::Writer(publisher) = &director.role else { panic!("a replica stores nothing") };
    let (holds, expected) = (director.places.holds.clone(), director.expected.clone());
    Ledger { holds, expected, ..publisher.durable() }
}

/// An operator forces the last plan.
fn force(director: &mut Director) {
    let forces = Some(director.last_plan());
    director.handle(at(0), Event::PlanNow { forces });
}

/// Takes actions until there are none, storing what is to be stored.
pub(super) fn settle(director: &mut Director) {
    while let Some(action) = director.poll() {
        if let Some(event) = action.at_once() {
            director.handle(at(0), event);
        }
    }
}

/// Takes actions until there is something to store.
pub(super) fn store(director: &mut Director) -> Option<Ledger> {
    while let Some(action) = director.poll() {
        if let Action::Store(ledger) = action {
            return Some(ledger);
        }
        if let Some(event) = action.at_once() {
            director.handle(at(0), event);
        }
    }
    None
}

pub(super) fn probes(director: &mut Director) -> usize {
    let actions = std::iter::from_fn(|| director.poll());
    actions.filter(|action| matches!(action, Action::Probe { .. })).count()
}

pub(super) fn put_version(director: &mut Director, name: &str, objects: &[u8], sequence: u64) {
    put_divided(director, name, objects, &[], sequence);
}

/// The same, its files in these renditions.
pub(super) fn put_divided(
    director: &mut Director,
    name: &str,
    objects: &[u8],
    renditions: &[u8],
    sequence: u64,
) {
    let version = divided_of(name, objects, renditions, sequence);
    director.handle(at(0), Event::Changed(Change::Version(version)));
    settle(director);
}

pub(super) fn version_of(name: &str, objects: &[u8], sequence: u64) -> Arc<Version> {
    divided_of(name, objects, &[], sequence)
}

fn divided_of(name: &str, objects: &[u8], renditions: &[u8], sequence: u64) -> Arc<Version> {
    let file = |n: &u8| {
        let (object, len) = (object(*n), Bytes(5000));
        (format!("{n}.mp4"), File { object, len, content_type: "video/mp4".into() })
    };
    let version = AssetVersion {
        id: name.parse().unwrap(),
        asset: "film".parse().unwrap(),
        sources: vec!["https://origin.example/".to_owned()],
        modified: UnixSeconds(1),
        pace: None,
        files: objects.iter().map(file).collect(),
    };
    let version = Version::new(Arc::new(version), Vec::new(), sequence);
    Arc::new(version.divided(renditions.to_vec()))
}

pub(super) fn hold(director: &mut Director, name: &str, objects: &[u8]) {
    let held = objects.iter().map(|n| object(*n)).collect();
    let inventory = Delta { to: 1, held, ..Delta::default() };
    let report = Report { inventory, ..report(20) };
    director.report(at(0), &id(name), &report).unwrap();
}

pub(super) fn played(director: &Director) -> (String, Vec<String>) {
    let session = session();
    let player = Player { client: "10.0.0.1/32".parse().unwrap(), session: &session, plain: false };
    let (asset, now) = ("film".parse().unwrap(), director.now_unix);
    let snapshot = director.snapshot();
    let choice = snapshot.choose(&asset, &player, now, &STEERING).unwrap();
    let name = |number| snapshot.view.placed(number).unwrap().appliance.id.to_string();
    let offered = choice.list.offered().iter().map(|c| name(c.appliance)).collect();
    (choice.version.id().to_string(), offered)
}

pub(super) fn refusal(director: &Director) -> Option<Unplayable> {
    refusal_at(director, director.now_unix)
}

pub(super) fn refusal_at(director: &Director, now: UnixSeconds) -> Option<Unplayable> {
    let session = session();
    let player = Player { client: "10.0.0.1/32".parse().unwrap(), session: &session, plain: false };
    let snapshot = director.snapshot();
    snapshot.choose(&"film".parse().unwrap(), &player, now, &STEERING).err()
}

/// What a pathway has of an appliance.
pub(super) fn part(name: &str, renditions: u64) -> (ApplianceId, Renditions) {
    (id(name), Renditions::of_bits(renditions))
}

pub(super) fn ticket(pathways: &[&str]) -> Ticket {
    Ticket {
        session: session(),
        expires: UnixSeconds(4 * 3600),
        version: "film-1".parse().unwrap(),
        client: "10.0.0.0/8".parse().unwrap(),
        plain: false,
        pathways: pathways.iter().map(|name| id(name)).collect(),
        parts: BTreeMap::new(),
    }
}

pub(crate) fn generations(director: &Director) -> BTreeMap<String, Generation> {
    let generation = |id: &ApplianceId| director.manifest(id).unwrap().unwrap().generation;
    director.desired().appliances.keys().map(|id| (id.to_string(), generation(id))).collect()
}

pub(crate) fn manifest(director: &Director, name: &str) -> Arc<Manifest> {
    director.manifest(&id(name)).unwrap().expect("it was stored")
}

pub(super) fn seen(director: &Director, name: &str) -> ApplianceView {
    director.snapshot().view.appliance(&id(name)).expect("it is registered").clone()
}

/// The versions that an appliance holds wholly.
pub(super) fn whole(director: &Director, name: &str) -> BTreeSet<AssetVersionId> {
    let view = Arc::clone(&director.snapshot().view);
    let number = view.appliances[&id(name)];
    let whole = view.versions.keys().filter(|version| view.holds(number, version));
    whole.cloned().collect()
}

pub(super) fn report(sequence: u64) -> Report {
    Report {
        start_id: 1,
        sequence,
        base_url: "https://127.0.0.2:8443".to_owned(),
        serving: true,
        drives_in_use: 2,
        usable: USABLE,
        ..Report::default()
    }
}

pub(super) fn site(name: &str, prefix: &str) -> Site {
    Site::new(name.parse().unwrap(), vec![prefix.parse().unwrap()])
}

pub(super) fn object(n: u8) -> ObjectId {
    ObjectId([n; 32])
}

fn session() -> Session {
    Session::of_random([1; 12])
}

pub(super) fn id(name: &str) -> ApplianceId {
    name.parse().unwrap()
}

pub(super) fn at(ms: u64) -> Instant {
    Instant(1_000_000_000_000) + Nanos::millis(ms)
}
