use super::*;

use model::hours::{FillRules, NEVER};
use model::profile::{Abilities, Profile};
use model::topology::Site;
use model::zone::TimeZone;

use crate::FillPolicy;

const DAY: u64 = 86_400;
/// 2026-03-28 00:00 UTC; the clocks in Berlin go forward 25 hours later.
const SPRING: u64 = 1_774_656_000;

fn rules(director: &mut Director, name: &str) -> FillRules {
    director.reply(&id(name)).unwrap().fill.expect("a writer says when to fetch")
}

fn change_site(director: &mut Director, change: impl FnOnce(&mut Site)) {
    let mut site = director.desired().sites["a"].clone();
    change(&mut site);
    director.handle(at(0), Event::Changed(Change::Site(site)));
}

#[test]
fn an_appliance_is_told_its_hours_and_by_which_state_it_knows_them() {
    let mut director = running(&["a1", "a2", "b1"]);
    let all = ["a1", "a2", "b1"].map(|name| rules(&mut director, name));
    assert!(all.iter().all(|of| of.hours.windows.is_always() && of.state != 0));
    assert_eq!((all[0].rate_max, all[0].outside_max), (None, None));
    let mut seen = BTreeSet::from([all[0].state]);
    let mut is_other = |director: &mut Director| {
        let rules = rules(director, "a1");
        assert!(seen.insert(rules.state), "{rules:?}");
        rules
    };
    let windows = "02:00-14:00".parse().unwrap();
    let fill = FillPolicy { windows, ..FillPolicy::default() };
    let policy = Policy { fill, ..director.desired().policy };
    director.handle(at(0), Event::Changed(Change::Policy(policy)));
    assert_eq!(is_other(&mut director).hours.windows, fill.windows, "by the policy");
    let own = "22:00-06:00".parse().unwrap();
    change_site(&mut director, |site| site.fill_windows = Some(own));
    assert_eq!(is_other(&mut director).hours.windows, own, "the site's own");
    assert_eq!(rules(&mut director, "b1").hours.windows, fill.windows, "another site's is not");
    change_site(&mut director, |site| site.fill_paused_until = Some(NEVER));
    assert!(is_other(&mut director).hours.is_paused(UnixSeconds(SPRING)));
    change_site(&mut director, |site| site.time_zone = TimeZone::named("Asia/Kolkata").unwrap());
    assert_eq!(is_other(&mut director).hours.ahead_s(UnixSeconds(SPRING)), 19_800);
    change_site(&mut director, |site| site.time_zone = TimeZone::kept("Mars/Olympus").unwrap());
    assert_eq!(is_other(&mut director).hours.ahead_s(UnixSeconds(SPRING)), 0, "not in the table");
    change_site(&mut director, |site| site.uplink = Some(BitsPerSecond(10_000_000)));
    let part = is_other(&mut director).outside_max;
    assert_eq!(part, Some(BitsPerSecond(5_000_000)), "two stand there");
    let mut appliance = director.desired().appliances[&id("a1")].appliance.clone();
    appliance.profile = Some(Profile::Flash);
    director.handle(at(0), Event::Changed(Change::Appliance(appliance.clone())));
    assert_eq!(is_other(&mut director).rate_max, Some(BitsPerSecond(300_000_000)));
    appliance.own = Abilities { fill: Some(BitsPerSecond(7_000_000)), ..Abilities::default() };
    director.handle(at(0), Event::Changed(Change::Appliance(appliance)));
    assert_eq!(is_other(&mut director).rate_max, Some(BitsPerSecond(7_000_000)));
}

#[test]
fn an_appliance_is_told_of_a_change_of_its_clocks_two_years_ahead() {
    let mut director = running(&["a1"]);
    change_site(&mut director, |site| site.time_zone = TimeZone::named("Europe/Berlin").unwrap());
    let tick = |director: &mut Director, now| {
        director.handle(at(0), Event::Tick(UnixSeconds(now)));
        rules(director, "a1")
    };
    let before = tick(&mut director, SPRING);
    assert_eq!(tick(&mut director, SPRING + DAY - 1), before, "it is the same all day");
    assert_eq!(tick(&mut director, SPRING + DAY), before, "and the next");
    let after = tick(&mut director, SPRING + 3 * DAY);
    assert_ne!(after.state, before.state);
    assert_eq!(before.hours.offsets[1..4], after.hours.offsets[..3], "what comes was known");
    let ahead = |days: u64| before.hours.ahead_s(UnixSeconds(SPRING + days * DAY));
    assert_eq!([ahead(0), ahead(2), ahead(300), ahead(450)], [3600, 7200, 3600, 7200]);
}

#[test]
fn a_replica_tells_nobody_when_to_fetch() {
    let mut director = Director::replica(CONFIG, at(0));
    let desired = running(&["a1"]).desired().clone();
    let replaced = Event::Replaced { desired: Box::new(desired), generation: Generation(1) };
    director.handle(at(0), replaced);
    assert_eq!(director.reply(&id("a1")).unwrap().fill, None);
    assert_eq!(director.fill_hours(&"a".parse().unwrap()), None);
}

#[test]
fn appliances_are_told_what_is_urgent_until_its_time_is_over_and_how_fast() {
    let mut director = running(&["a1"]);
    let usual = rules(&mut director, "a1");
    assert!(usual.urgent.is_empty() && usual.urgent_max.is_none());
    let [one, two] = ["film-1", "film-2"].map(|version| version.parse().unwrap());
    let urgent: BTreeMap<AssetVersionId, _> =
        [(one, None), (two, Some(UnixSeconds(SPRING + 60)))].into();
    director.handle(at(0), Event::Tick(UnixSeconds(SPRING)));
    director.handle(at(0), Event::Changed(Change::Urgent(urgent.clone())));
    let both = rules(&mut director, "a1");
    assert_ne!(both.state, usual.state);
    assert!(both.urgent.iter().eq(urgent.keys()));
    assert_eq!(both.urgent_max, Some(BitsPerSecond(100_000_000)));
    let mut seen = BTreeSet::from([usual.state, both.state]);
    let policy = director.desired().policy;
    let fill = FillPolicy { urgent_max: BitsPerSecond(7_000_000), ..policy.fill };
    director.handle(at(0), Event::Changed(Change::Policy(Policy { fill, ..policy })));
    let slower = rules(&mut director, "a1");
    assert_eq!((slower.urgent_max, seen.insert(slower.state)), (Some(fill.urgent_max), true));
    director.handle(at(0), Event::Tick(UnixSeconds(SPRING + 59)));
    assert_eq!(rules(&mut director, "a1"), slower);
    director.handle(at(0), Event::Tick(UnixSeconds(SPRING + 60)));
    let later = rules(&mut director, "a1");
    assert_eq!(
        (&*later.urgent, seen.insert(later.state)),
        (&["film-1".parse().unwrap()][..], true)
    );
    director.handle(at(0), Event::Changed(Change::Urgent(BTreeMap::new())));
    let none = rules(&mut director, "a1");
    assert_eq!((none.urgent.len(), none.urgent_max, none.state), (0, None, usual.state));
}
