use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::*;
use front::{Grant, Player, Sealed, Ticket, Unplayable};
use model::id::{AssetId, ObjectId};
use model::inventory::{Check, Delta, FilesDelta};
use model::manifest::{AssetVersion, File, SiteMember, TokenKey};
use model::profile::{Abilities, Profile, Profiles};
use model::topology::{Appliance, Prefix, Site, Weight};
use model::units::{BitsPerSecond, Bytes};
use model::view::{ApplianceView, Renditions};
use playback::token::Session;
use proptest::collection::vec;
use proptest::prelude::*;

mod health;
mod inventory;
mod renditions;
mod titles;

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
    placement_lines_max: 10,
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
};
pub(super) const STEERING: steering::Config =
    steering::Config { pathways_min: 2, pathways_max: 4, explains: false };

#[test]
fn a_new_appliance_gets_a_manifest_only_after_its_generation_is_durable() {
    let mut director = fleet(&["a1"]);
    assert_eq!(director.manifest(&id("a1")), Ok(None));
    let ledger = store(&mut director).expect("a first manifest is to be stored");
    assert_eq!(director.manifest(&id("a1")), Ok(None));
    director.handle(at(0), Event::Stored(ledger.generation));
    assert_eq!(manifest(&director, "a1").generation, Generation(1));
    assert_eq!(director.manifest(&id("zz")), Err(NotRegistered));
}

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
fn a_ledger_that_is_not_stored_is_said_again() {
    let mut director = fleet(&["a1"]);
    let ledger = store(&mut director).unwrap();
    director.handle(at(900), Event::Tick(UnixSeconds(1)));
    assert_eq!(store(&mut director), None);
    director.handle(at(1100), Event::Tick(UnixSeconds(1)));
    assert_eq!(store(&mut director), Some(ledger));
}

#[test]
fn a_ledger_that_is_being_stored_is_not_said_again() {
    let mut director = fleet(&["a1"]);
    while let Some(action) = director.poll() {
        director.handle(at(0), action.at_once().expect("a plan is asked for"));
        if director.actions.iter().any(|action| matches!(action, Action::Store(_))) {
            break;
        }
    }
    director.handle(at(1100), Event::Tick(UnixSeconds(1)));
    director.handle(at(2200), Event::Tick(UnixSeconds(1)));
    let ledger = store(&mut director);
    assert!(ledger.is_some(), "it waited to be polled");
    director.handle(at(3300), Event::Tick(UnixSeconds(1)));
    director.handle(at(9900), Event::Tick(UnixSeconds(1)));
    assert_eq!(store(&mut director), None, "and then it was being stored");
    director.handle(at(10_000), Event::Tick(UnixSeconds(1)));
    assert_eq!(store(&mut director), None, "a second passes");
    director.handle(at(11_000), Event::Tick(UnixSeconds(1)));
    assert_eq!(store(&mut director), ledger);
}

#[test]
fn a_generation_grows_only_for_appliances_whose_manifest_differs() {
    let mut director = running(&["a1", "b1"]);
    let before = generations(&director);
    director.handle(at(0), Event::Changed(Change::Site(site("s3", "192.0.2.0/24"))));
    settle(&mut director);
    assert_eq!(generations(&director), before, "a site without appliances changes no manifest");

    put_version(&mut director, "film-1", &[1, 2], 1);
    let after = generations(&director);
    assert!(before.values().max() < after.values().min(), "{before:?} {after:?}");
    assert_eq!(manifest(&director, "a1").versions.len(), 1);

    let one = Policy { copies: 1, versions_kept: 2, ..Policy::default() };
    director.handle(at(0), Event::Changed(Change::Policy(one)));
    settle(&mut director);
    assert_eq!(generations(&director), after, "one appliance per site: one copy is all it had");
}

#[test]
fn an_appliance_is_told_who_else_in_its_site_should_hold_what_and_who_can_serve() {
    let mut director = running(&["a1", "a2", "b1"]);
    let all = Policy { copies: 2, versions_kept: 2, ..Policy::default() };
    director.handle(at(0), Event::Changed(Change::Policy(all)));
    put_version(&mut director, "film-1", &[1, 2], 1);
    let siblings = |name| manifest(&director, name).siblings.clone();
    assert_eq!(siblings("a1"), BTreeMap::from([("film-1".parse().unwrap(), vec![id("a2")])]));
    assert_eq!(siblings("b1"), BTreeMap::new(), "alone in its site");
    let told = |director: &mut Director, sequence, serving| {
        let other = Report { serving, base_url: "https://a2".to_owned(), ..report(sequence) };
        director.report(at(0), &id("a2"), &other).unwrap();
        director.report(at(0), &id("b1"), &report(sequence)).unwrap();
        director.report(at(0), &id("a1"), &report(sequence)).unwrap().siblings.to_map()
    };
    assert_eq!(told(&mut director, 50, true), BTreeMap::from([(id("a2"), "https://a2".into())]));
    assert_eq!(told(&mut director, 51, false), BTreeMap::new(), "it takes no new sessions");
    let site = "b".parse().unwrap();
    let moved = Appliance::new(id("b1"), "a".parse().unwrap(), Weight::ONE);
    director.handle(at(0), Event::Changed(Change::Appliance(moved)));
    assert_eq!(told(&mut director, 52, true).len(), 2, "one has moved here");
    let moved = Appliance::new(id("a2"), site, Weight::ONE);
    director.handle(at(0), Event::Changed(Change::Appliance(moved)));
    assert_eq!(told(&mut director, 53, true).into_keys().collect::<Vec<_>>(), [id("b1")]);
}

#[test]
fn a_site_with_service_addresses_tells_its_members_who_has_which_and_who_holds_what() {
    let mut director = running(&["a1", "a2", "a3", "b1"]);
    let one = Policy { copies: 1, versions_kept: 2, ..Policy::default() };
    director.handle(at(0), Event::Changed(Change::Policy(one)));
    put_version(&mut director, "film-1", &[1, 2], 1);
    assert!(["a1", "a2", "a3"].iter().all(|name| manifest(&director, name).siblings.is_empty()));
    let address: IpAddr = "192.0.2.1".parse().unwrap();
    let site: SiteId = "a".parse().unwrap();
    let addresses = vec![address];
    let with = Appliance { addresses, ..Appliance::new(id("a1"), site, Weight::ONE) };
    let before = generations(&director);
    director.handle(at(0), Event::Changed(Change::Appliance(with)));
    settle(&mut director);
    let after = generations(&director);
    assert_eq!((before["b1"], before.len()), (after["b1"], after.len()), "another site");
    let members = [SiteMember { id: id("a1"), addresses: vec![address] }];
    let holds = |name: &&&str| !manifest(&director, name).versions.is_empty();
    let holder = ["a1", "a2", "a3"].iter().find(holds).map(|name| id(name)).unwrap();
    for name in ["a1", "a2", "a3"] {
        let manifest = manifest(&director, name);
        assert_eq!(manifest.site, members);
        let named: Vec<_> = manifest.siblings.values().flatten().collect();
        assert_eq!(named.is_empty(), id(name) == holder, "all others can send players on");
    }
    let peer_address = Some("a1.internal:9443".to_owned());
    director.report(at(0), &id("a1"), &Report { peer_address, ..report(90) }).unwrap();
    let told = director.report(at(0), &id("a2"), &report(90)).unwrap().peers;
    assert_eq!(told.to_map(), BTreeMap::from([(id("a1"), "a1.internal:9443".into())]));
    let told = director.report(at(0), &id("b1"), &report(90)).unwrap().peers;
    assert_eq!(told.to_map(), BTreeMap::new());
}

/// For each change: whether a plan is made, and whether places are found anew for it.
#[test]
fn a_plan_is_made_for_what_placement_and_manifests_depend_on_and_for_nothing_else() {
    let mut director = running(&["a1", "a2", "b1"]);
    put_version(&mut director, "film-1", &[1, 2], 1);
    let mut plans = |change: Change| {
        let before = director.counters().placements;
        director.handle(at(0), Event::Changed(change));
        let is_planned = !director.planning.is_done();
        settle(&mut director);
        (is_planned, director.counters().placements - before)
    };
    let (nothing, manifests, places) = ((false, 0), (true, 0), (true, 1));
    let known = Appliance::new(id("a1"), "a".parse().unwrap(), Weight::ONE);
    let able = Abilities { throughput: Some(BitsPerSecond(7_000_000)), ..Abilities::default() };
    let addresses = vec!["192.0.2.1".parse().unwrap()];
    let site = "b".parse().unwrap();
    for (expected, appliance) in [
        (nothing, known.clone()),
        (nothing, Appliance { tags: ["loan".parse().unwrap()].into(), ..known.clone() }),
        (nothing, Appliance { profile: Some(Profile::Flash), own: able, ..known.clone() }),
        (manifests, Appliance { addresses, ..known.clone() }),
        (manifests, known.clone()),
        (places, Appliance { weight: Weight::new(2).unwrap(), ..known.clone() }),
        (places, Appliance { site, ..known.clone() }),
        (places, Appliance { id: id("a9"), ..known }),
    ] {
        let told = format!("{appliance:?}");
        assert_eq!(plans(Change::Appliance(appliance)), expected, "{told}");
    }
    let known = Policy::default();
    let profiles = Profiles { flash: able, ..known.profiles };
    for (expected, policy) in [
        (nothing, known),
        (nothing, Policy { profiles, ..known }),
        (places, Policy { copies: 1, ..known }),
        (places, Policy { versions_kept: 1, ..known }),
    ] {
        assert_eq!(plans(Change::Policy(policy)), expected, "{policy:?}");
    }
}

#[test]
fn a_restart_with_the_same_desired_state_keeps_every_generation() {
    let mut director = running(&["a1", "a2", "b1"]);
    put_version(&mut director, "film-1", &[1, 2], 1);
    let before = generations(&director);
    let mut again = restarted(&director);
    assert_eq!(store(&mut again), None, "nothing new to store");
    assert_eq!(generations(&again), before);
    assert_eq!(manifest(&again, "a1"), manifest(&director, "a1"));
}

#[test]
fn a_restart_with_other_desired_state_uses_a_generation_never_used_before() {
    let mut director = running(&["a1"]);
    put_version(&mut director, "film-1", &[1, 2], 1);
    let ledger = ledger(&director);
    let mut desired = director.desired().clone();
    desired.token_keys = vec![TokenKey { kid: "k2".to_owned(), public_key: [9; 32] }];
    let mut again = Director::new(CONFIG, desired, ledger.clone(), at(0), UnixSeconds(0));
    assert_eq!(again.manifest(&id("a1")), Ok(None));
    settle(&mut again);
    assert!(ledger.generation < manifest(&again, "a1").generation);
}

#[test]
fn whom_to_believe_stands_in_every_manifest_and_makes_a_new_generation_of_all() {
    let mut director = running(&["a1", "b1"]);
    let before = generations(&director);
    let key = TokenKey { kid: "s2".to_owned(), public_key: [8; 32] };
    let revoked = BTreeSet::from(["4a".to_owned()]);
    director.handle(at(0), Event::Changed(Change::SigningKeys(vec![key.clone()])));
    settle(&mut director);
    let between = generations(&director);
    director.handle(at(0), Event::Changed(Change::Revoked(revoked.clone())));
    settle(&mut director);
    let after = generations(&director);
    assert!(before.values().max() < between.values().min(), "{before:?} {between:?}");
    assert!(between.values().max() < after.values().min(), "{between:?} {after:?}");
    for name in ["a1", "b1"] {
        let trust = manifest(&director, name).trust.clone();
        assert_eq!((trust.signing_keys, trust.revoked), (vec![key.clone()], revoked.clone()));
    }
}

#[test]
fn silence_moves_no_file() {
    let mut director = running(&["a1", "a2", "a3"]);
    put_version(&mut director, "film-1", &[1, 2], 1);
    let before = generations(&director);
    let placements = director.counters().placements;
    for ms in (0..60_000).step_by(100) {
        director.handle(at(ms), Event::Tick(UnixSeconds(ms / 1000)));
        settle(&mut director);
    }
    assert!(director.appliances(at(60_000)).values().all(|a| a.health == Health::Stale));
    assert_eq!(generations(&director), before);
    assert_eq!(director.counters().placements, placements);
}

#[test]
fn drives_that_can_hold_less_move_files_and_small_changes_do_not() {
    let mut director = running(&["a1"]);
    put_version(&mut director, "film-1", &[1, 2], 1);
    let tell = |director: &mut Director, seconds, usable| {
        let report = Report { usable: Bytes(usable), ..report(10 + seconds) };
        director.report(at(seconds * 1000), &id("a1"), &report).unwrap();
        director.handle(at(seconds * 1000), Event::Tick(UnixSeconds(seconds)));
        settle(director);
        director.placement().report.loads[&id("a1")].usable
    };
    assert_eq!(tell(&mut director, 0, USABLE.0 - USABLE.0 / 100), USABLE);
    assert_eq!(tell(&mut director, 400, 0), USABLE, "no drive in sight is no news");
    let little = USABLE.0 * 3 / 5;
    assert_eq!(tell(&mut director, 401, little), USABLE, "it has to last");
    assert_eq!(tell(&mut director, 701, little), Bytes(little));
    director.handle(at(701_000), Event::Changed(Change::Usable(id("a1"), Bytes(4096))));
    settle(&mut director);
    assert_eq!(manifest(&director, "a1").versions.len(), 0);
    assert_eq!(director.placement().report.shortfall_count, 1);
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
fn a_new_version_is_played_only_when_it_has_arrived() {
    let mut director = running(&["a1", "b1"]);
    put_version(&mut director, "film-1", &[1], 1);
    hold(&mut director, "a1", &[1]);
    assert_eq!(played(&director), ("film-1".to_owned(), vec!["a1".to_owned(), "b1".to_owned()]));
    put_version(&mut director, "film-2", &[2], 2);
    assert_eq!(played(&director).0, "film-1");
    hold(&mut director, "b1", &[2]);
    assert_eq!(played(&director).0, "film-2");
    // And back: the older one is made current again.
    put_version(&mut director, "film-1", &[1], 3);
    assert_eq!(played(&director).0, "film-1");
}

#[test]
fn versions_beyond_those_kept_leave_the_manifests() {
    let mut director = running(&["a1"]);
    for n in 1..=3 {
        put_version(&mut director, &format!("film-{n}"), &[n], u64::from(n));
    }
    let manifest = manifest(&director, "a1");
    let held: Vec<&str> = manifest.versions.iter().map(|version| version.id.as_str()).collect();
    assert_eq!(held, ["film-3", "film-2"], "most wanted first");
}

#[test]
fn what_cannot_be_played_says_why() {
    let session = session();
    let player = Player { client: "10.0.0.1/32".parse().unwrap(), session: &session, plain: false };
    let choose = |director: &Director, asset: &str| {
        let asset: AssetId = asset.parse().unwrap();
        director.snapshot().choose(&asset, &player, director.now_unix, &STEERING).map(|_| ())
    };
    let mut director = fleet(&["a1"]);
    settle(&mut director);
    put_version(&mut director, "film-1", &[1], 1);
    assert_eq!(choose(&director, "other"), Err(Unplayable::UnknownAsset));
    assert_eq!(choose(&director, "film"), Err(Unplayable::NoAppliance));
    director.report(at(0), &id("a1"), &report(1)).unwrap();
    assert_eq!(choose(&director, "film"), Ok(()));
}

#[test]
fn a_lost_appliance_leaves_the_list_and_the_last_list_stands_when_all_are_lost() {
    let mut director = running(&["a1", "a2", "b1"]);
    put_version(&mut director, "film-1", &[1], 1);
    for name in ["a1", "a2", "b1"] {
        hold(&mut director, name, &[1]);
    }
    let ticket = ticket(&["b1", "a1", "a2"]);
    let order = |director: &Director| {
        let list = director.snapshot().steer(&ticket, &STEERING);
        list.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(order(&director)[2], "b1", "the client's own site comes first");
    let lost = order(&director)[0].clone();
    for (ms, name) in [(1000, "a1"), (1000, "a2"), (1000, "b1")] {
        if name != lost {
            let inventory = Delta { from: 1, to: 1, ..Delta::default() };
            director.report(at(ms), &id(name), &Report { inventory, ..report(90) }).unwrap();
        }
    }
    director.handle(at(1501), Event::Tick(UnixSeconds(1)));
    assert_eq!(order(&director).len(), 2);
    assert!(!order(&director).contains(&lost));
    director.handle(at(9999), Event::Tick(UnixSeconds(9)));
    assert_eq!(order(&director), ["b1", "a1", "a2"]);
}

#[test]
fn a_range_says_where_a_client_is_and_not_who() {
    let director = running(&["a1"]);
    let range = |client: &str| {
        let client: IpAddr = client.parse().unwrap();
        director.snapshot().client_range(client).to_string()
    };
    assert_eq!(range("10.1.2.3"), "10.1.2.0/24");
    assert_eq!(range("::ffff:10.1.2.3"), "10.1.2.0/24");
    assert_eq!(range("192.0.2.77"), "192.0.2.0/24");
    assert_eq!(range("2001:db8:1:2::3"), "2001:db8:1::/48");
}

#[test]
fn history_sums_what_reports_say_and_leaves_out_the_silent() {
    let mut director = running(&["a1", "a2"]);
    director.handle(at(900), Event::Tick(UnixSeconds(4)));
    for (name, egress, cpu_percent) in [("a1", 100, 10.0), ("a2", 300, 30.0)] {
        let load = Load { egress: BitsPerSecond(egress), ..Load::default() };
        let fill = BitsPerSecond(7);
        let report = Report { load, cpu_percent, fill, ..report(2) };
        director.report(at(1000), &id(name), &report).unwrap();
    }
    director.handle(at(1100), Event::Tick(UnixSeconds(5)));
    director.handle(at(9000), Event::Tick(UnixSeconds(6)));
    let sample = |at, egress, fill, cpu_percent, healthy| {
        let (egress, fill) = (BitsPerSecond(egress), BitsPerSecond(fill));
        Sample {
            at: UnixSeconds(at),
            egress,
            fill,
            cpu_percent,
            healthy,
            leaving: 0,
            appliances: 2,
        }
    };
    let samples: Vec<Sample> = director.history().samples(Span::Minutes).copied().collect();
    assert_eq!(samples[1..], [sample(5, 400, 14, 20.0, 2), sample(6, 0, 0, 0.0, 0)]);
    let site: Vec<Sample> = director.site_history(&"a".parse().unwrap()).copied().collect();
    let [day] = site[..] else { panic!("three seconds are of one step: {site:?}") };
    assert_eq!((day.at, day.healthy, day.appliances), (UnixSeconds(0), 0, 2));
    assert_eq!(director.site_history(&"s9".parse().unwrap()).count(), 0);
}

#[test]
fn history_leaves_out_no_report_however_often_they_come() {
    let mut director = running(&["a1"]);
    director.handle(at(900), Event::Tick(UnixSeconds(4)));
    for (sequence, egress) in [(2, 1000), (3, 0), (4, 500)] {
        let load = Load { egress: BitsPerSecond(egress), ..Load::default() };
        let report = Report { load, ..report(sequence) };
        director.report(at(1000 + sequence), &id("a1"), &report).unwrap();
    }
    director.handle(at(1100), Event::Tick(UnixSeconds(5)));
    director.handle(at(1200), Event::Tick(UnixSeconds(6)));
    let seen: Vec<u64> =
        director.history().samples(Span::Minutes).map(|sample| sample.egress.0).collect();
    assert_eq!(seen, [0, 500, 500], "the mean of three, then the latest for want of another");
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

#[test]
fn a_change_of_who_may_play_is_seen_at_once_and_moves_no_file() {
    let mut director = running(&["a1"]);
    put_version(&mut director, "film-1", &[1], 1);
    let (before, placements) = (generations(&director), director.counters().placements);
    let film: AssetId = "film".parse().unwrap();
    let mut say = |change| director.handle(at(0), Event::Changed(Change::Playbacks(change)));
    say(PlaybacksChange::Public(film.clone()));
    let (until, now) = (UnixSeconds(2000), UnixSeconds(1000));
    say(PlaybacksChange::Revoked { session: session(), until, now });
    let playbacks = director.snapshot().playbacks.clone();
    assert!(playbacks.public().contains(&film));
    assert_eq!(playbacks.check(&session(), until, now), Err(Refused::Revoked));
    assert_eq!(director.counters().placements, placements);
    assert_eq!(director.poll(), None, "nothing is to be stored");
    assert_eq!(generations(&director), before);
    put_version(&mut director, "film-2", &[1, 2], 2);
    assert_eq!(director.snapshot().playbacks, playbacks, "other changes leave it");
}

#[test]
fn a_public_asset_needs_no_grant_and_uses_a_good_one() {
    let mut director = running(&["a1"]);
    let name = |asset: &str| -> AssetId { asset.parse().unwrap() };
    let grant = |asset, expires| {
        let expires = UnixSeconds(expires);
        Grant { session: session(), expires, asset: name(asset), client: None }
    };
    let public = |change: fn(AssetId) -> PlaybacksChange| {
        Event::Changed(Change::Playbacks(change(name("film"))))
    };
    let admit = |director: &Director, asset, grant| {
        director.snapshot().admit(&name(asset), grant, UnixSeconds(1000))
    };
    director.handle(at(0), public(PlaybacksChange::Public));
    assert_eq!(
        admit(&director, "film", Err(Refused::Missing)),
        Err(Refused::Missing),
        "there is no such asset"
    );
    put_version(&mut director, "film-1", &[1], 1);
    let good = grant("film", 1001);
    assert_eq!(admit(&director, "film", Ok(good.clone())), Ok(Some(good)));
    for bad in [Err(Refused::Missing), Err(Refused::Unknown), Ok(grant("film", 1))] {
        assert_eq!(admit(&director, "film", bad.clone()), Ok(None));
        assert!(admit(&director, "other", bad).is_err(), "and no other asset is open");
    }
    director.handle(at(0), public(PlaybacksChange::Closed));
    assert_eq!(admit(&director, "film", Err(Refused::Missing)), Err(Refused::Missing));
}

proptest! {
    #[test]
    fn grants_and_tickets_survive_their_urls(
        random: [u8; 12], v4: [u8; 4], v6: [u8; 16], len in 0_u8..=32, plain: bool,
        count in 1_usize..5
    ) {
        for address in [IpAddr::from(v4), IpAddr::from(v6)] {
            let (session, expires) = (Session::of_random(random), UnixSeconds(7));
            let client = Prefix::new(address, len).unwrap();
            let ticket = Ticket {
                session,
                expires,
                version: "film-0123.x_y".parse().unwrap(),
                client,
                plain,
                pathways: (0..count).map(|i| id(&format!("a-{i}.b"))).collect(),
                parts: [(id("a-0.b"), vec![part("a-0.b", 1), part("c", 2), part("d.1", 0x8000)])]
                    .into(),
            };
            let fields = ticket.fields();
            let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-_.~:".contains(&b);
            prop_assert!(fields.bytes().all(allowed));
            prop_assert_eq!(Ticket::parse(session, expires, &fields), Some(ticket));
            let asset: AssetId = "film.x_y".parse().unwrap();
            let grant = Grant { session, expires, asset, client: plain.then_some(client) };
            let fields = grant.fields();
            prop_assert!(fields.bytes().all(allowed));
            prop_assert_eq!(Grant::parse(session, expires, &fields), Some(grant));
        }
    }

    #[test]
    fn an_arbitrary_payload_never_panics(payload in ".{0,60}|[a-z0-9.~:-]{0,60}") {
        drop(Ticket::parse(session(), UnixSeconds(1), &payload));
        drop(Grant::parse(session(), UnixSeconds(1), &payload));
    }

    #[test]
    fn what_is_complete_is_right_while_versions_come_and_go(
        steps in vec((any::<bool>(), vec(0_u8..6, 1..4), vec(0_u8..6, 0..4)), 1..16)
    ) {
        let mut director = running(&["a1"]);
        let (mut held, mut versions) = (BTreeSet::new(), Vec::new());
        for (i, (is_version, came, went)) in (0_u64..).zip(&steps) {
            if *is_version {
                let name = format!("film-{i}");
                put_version(&mut director, &name, came, i);
                versions.push((name, came));
            }
            let objects = |list: &[u8]| list.iter().map(|n| object(*n)).collect::<Vec<_>>();
            let (came, gone) = if *is_version { (&vec![], &vec![]) } else { (came, went) };
            gone.iter().for_each(|n| { held.remove(n); });
            held.extend(came.iter().copied());
            let all: Vec<u8> = held.iter().copied().collect();
            // Now and then all is told.
            let (from, told) = if i % 4 == 0 { (0, &all) } else { (i, came) };
            let inventory = Delta {
                from, to: i + 1, held: objects(told), gone: objects(gone), check: None,
            };
            director.report(at(0), &id("a1"), &Report { inventory, ..report(10 + i) }).unwrap();
            let complete = whole(&director, "a1");
            let kept = versions.iter().rev().take(2);
            let all_held = kept.filter(|(_, objects)| objects.iter().all(|n| held.contains(n)));
            let whole: BTreeSet<AssetVersionId> =
                all_held.map(|(name, _)| name.parse().unwrap()).collect();
            prop_assert_eq!(complete, whole);
        }
    }

    #[test]
    fn what_a_delta_completes_is_what_a_recount_finds(
        deltas in vec(
            (vec(0_u8..6, 0..4), vec(0_u8..6, 0..4)), 1..12)
    ) {
        let mut director = running(&["a1"]);
        put_version(&mut director, "film-1", &[0, 1, 2], 1);
        put_version(&mut director, "film-2", &[2, 3], 2);
        let mut model = BTreeSet::new();
        for (i, (held, gone)) in (0_u64..).zip(&deltas) {
            let objects = |list: &[u8]| list.iter().map(|n| object(*n)).collect::<Vec<_>>();
            let (came, went) = (objects(held), objects(gone));
            let inventory = Delta { from: i, to: i + 1, held: came, gone: went, check: None };
            director.report(at(0), &id("a1"), &Report { inventory, ..report(10 + i) }).unwrap();
            gone.iter().for_each(|n| if i != 0 { model.remove(n); });
            model.extend(held.iter().copied());
            let complete = whole(&director, "a1");
            let has = |objects: &[u8]| objects.iter().all(|n| model.contains(n));
            prop_assert_eq!(complete.contains("film-1"), has(&[0, 1, 2]));
            prop_assert_eq!(complete.contains("film-2"), has(&[2, 3]));
        }
    }
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
    let mut again =
        Director::new(CONFIG, director.desired().clone(), Ledger::default(), at(0), UnixSeconds(0));
    let digests = store(&mut again).unwrap().entries;
    let entries = digests.iter().map(|(id, entry)| {
        let generation = director.manifest(id).unwrap().unwrap().generation;
        (id.clone(), LedgerEntry { generation, ..*entry })
    });
    Ledger { generation: director.generation(), entries: entries.collect() }
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
    let choice = director.snapshot().choose(&asset, &player, now, &STEERING).unwrap();
    let offered = choice.list.offered().iter().map(|c| c.appliance.to_string()).collect();
    (choice.version.id().to_string(), offered)
}

pub(super) fn refusal(director: &Director) -> Option<Unplayable> {
    refusal_at(director, director.now_unix)
}

pub(super) fn refusal_at(director: &Director, now: UnixSeconds) -> Option<Unplayable> {
    let session = session();
    let player = Player { client: "10.0.0.1/32".parse().unwrap(), session: &session, plain: false };
    let choice = director.snapshot().choose(&"film".parse().unwrap(), &player, now, &STEERING);
    choice.err()
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

#[test]
fn a_version_is_paced_by_the_highest_peak_of_its_entries() {
    let hls = |peak| format!("#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH={peak}\nv.m3u8\n");
    let mpd = |peak| {
        let set = format!("<AdaptationSet><Representation bandwidth=\"{peak}\"/></AdaptationSet>");
        format!("<MPD type=\"static\"><Period>{set}</Period></MPD>")
    };
    let pace = |entries: &[(Format, String)], given| {
        let files = AssetVersion {
            id: "film-1".parse().unwrap(),
            asset: "film".parse().unwrap(),
            sources: vec![],
            modified: UnixSeconds(1),
            pace: given,
            files: BTreeMap::new(),
        };
        let entry = |(format, text): &(Format, String)| Entry {
            path: "m".to_owned(),
            format: *format,
            text: text.as_str().into(),
        };
        let entries = entries.iter().map(entry).collect();
        Version::new(Arc::new(files), entries, 1).files.pace.map(|pace| pace.0)
    };
    let both = [(Format::Hls, hls(5_000_000)), (Format::Dash, mpd(6_000_000))];
    assert_eq!(pace(&both, None), Some(18_000_000));
    assert_eq!(pace(&[(Format::Hls, hls(300_000))], None), Some(8_000_000), "the least");
    assert_eq!(pace(&both, Some(BitsPerSecond(1))), Some(1), "what was given stays");
    assert_eq!(pace(&[], None), None);
}
