use std::sync::Arc;

use model::inventory::Delta;
use model::machine::Machine as _;
use model::topology::{Appliance, Prefix, SiteKind, Weight};
use model::units::UnixSeconds;
use routes::{Attributes, Difference, Peering};

use super::*;
use crate::tests::{
    at, hold, id, object, played, put_version, report, running, settle, site, whole,
};
use crate::{Change, Event, Report};

/// What an appliance hears, and how it tells it: as the appliance's side does.
struct Router {
    table: Vec<Prefix>,
    sequence: u64,
    name: &'static str,
    is_old: bool,
    behind: Nanos,
}

impl Router {
    fn new(name: &'static str, table: &[&str]) -> Self {
        let (is_old, behind) = (false, Nanos::seconds(1));
        Self { table: prefixes(table), sequence: 100, name, is_old, behind }
    }

    /// One that hears so many prefixes, the first of which are the same for all.
    fn long(name: &'static str, count: u32) -> Self {
        let mut router = Self::new(name, &[]);
        router.cut(count);
        router
    }

    fn cut(&mut self, count: u32) {
        let prefix = |n: u32| format!("11.{}.{}.0/24", n / 256, n % 256).parse().unwrap();
        self.table = (0..count).map(prefix).collect();
    }

    fn digest(&self) -> Digest {
        let mut digest = Digest::default();
        self.table.iter().for_each(|prefix| digest.put(prefix, &attributes()));
        digest
    }

    fn report(&mut self, director: &mut Director, ms: u64) -> Option<RoutesWanted> {
        self.sequence += 1;
        let (is_old, behind) = (self.is_old, self.behind);
        let routes = Some(Hears { digest: Some(self.digest()), is_old, behind });
        // It holds what it held.
        let inventory = Delta { from: 1, to: 1, ..Delta::default() };
        let report = Report { routes, inventory, ..report(self.sequence) };
        director.report(at(ms), &id(self.name), &report).unwrap().routes
    }

    /// A first part without a prefix.
    fn begin(&self, director: &mut Director, ms: u64, is_last: bool) {
        let part = Part { to: self.digest(), is_last, ..Part::default() };
        director.handle(at(ms), Event::Heard { appliance: &id(self.name), part });
    }

    /// All of it, in parts of one prefix each.
    fn tell(&self, director: &mut Director, ms: u64) {
        for number in 0..=self.table.len() {
            let announced = self.table.get(number).map(|prefix| (*prefix, attributes()));
            let part = Part {
                from: None,
                to: self.digest(),
                number: u32::try_from(number).unwrap(),
                is_last: announced.is_none(),
                difference: Difference {
                    announced: announced.into_iter().collect(),
                    withdrawn: vec![],
                },
            };
            assert_eq!(director.next_part(&id(self.name)), part.number);
            director.handle(at(ms), Event::Heard { appliance: &id(self.name), part });
        }
        assert_eq!(director.next_part(&id(self.name)), 0);
    }
}

#[test]
fn a_long_table_is_taken_over_in_slices_between_which_others_have_their_turn() {
    let mut director = isp_and_exchange();
    let before = director.snapshot().routes.len();
    let mut isp = tell_long(&mut director, 2_500);
    let of_isp = "isp".parse().unwrap();
    assert_eq!((director.heard(&of_isp), director.next_part(&id("a1"))), (None, 0));
    assert_eq!(isp.report(&mut director, 1001), None, "it is being taken over");
    assert_eq!(director.deadline(), Some(at(1003)), "the next slice");
    director.handle(at(1003), Event::Tick(UnixSeconds(1)));
    assert_eq!(director.heard(&of_isp), None);
    assert_eq!(director.snapshot().routes.len(), before, "until all of it is there");
    director.handle(at(1005), Event::Tick(UnixSeconds(1)));
    assert_eq!(director.heard(&of_isp), Some(isp.digest()));
    assert_eq!(director.snapshot().routes.len(), (before.0 + 2_500, before.1));
    assert_eq!(director.counters().routes_changes, 1);
    assert_eq!(director.deadline(), Some(at(1100)), "there is nothing more to do");
}

#[test]
fn what_waits_for_a_tick_waits_for_none_of_those_that_go_on_with_routes() {
    let mut director = isp_and_exchange();
    put_version(&mut director, "film-2", &[3], 2);
    director.config.pictures_max = 0;
    tell_long(&mut director, 5_000);
    let held = [1, 2, 3].map(object).into();
    let more = Report { inventory: Delta { to: 2, held, ..Delta::default() }, ..report(30) };
    director.report(at(1002), &id("b1"), &more).unwrap();
    for (ms, shown) in [(1003, 1), (1099, 1), (1100, 2)] {
        director.handle(at(ms), Event::Tick(UnixSeconds(1)));
        assert_eq!(whole(&director, "b1").len(), shown, "{ms}");
        assert_eq!(director.heard(&"isp".parse().unwrap()), None, "it is being taken over");
    }
}

/// After a tick at 1000 ms, the appliance of the ISP tells of so many prefixes in one part.
fn tell_long(director: &mut Director, count: usize) -> Router {
    let table = (0..count).map(|n| format!("11.{}.{}.0/24", n / 256, n % 256));
    let table: Vec<String> = table.collect();
    let table: Vec<&str> = table.iter().map(String::as_str).collect();
    let mut isp = Router::new("a1", &table);
    director.handle(at(1000), Event::Tick(UnixSeconds(1)));
    assert_eq!(isp.report(director, 1000), Some(RoutesWanted { known: None }));
    let announced = isp.table.iter().map(|prefix| (*prefix, attributes())).collect();
    let difference = Difference { announced, withdrawn: vec![] };
    let part = Part { from: None, to: isp.digest(), number: 0, is_last: true, difference };
    director.handle(at(1001), Event::Heard { appliance: &id("a1"), part });
    isp
}

#[test]
fn what_the_routers_announce_leads_clients_and_a_withdrawal_leads_them_away() {
    let mut director = isp_and_exchange();
    let mut isp = Router::new("a1", &["10.0.0.0/8", "8.8.8.0/24"]);
    assert_eq!(played(&director).1, ["b1"], "an embedded site serves no strangers");
    assert_eq!(isp.report(&mut director, 1000), Some(RoutesWanted { known: None }));
    isp.tell(&mut director, 1001);
    assert_eq!(isp.report(&mut director, 2000), None, "it is known");
    assert_eq!(played(&director).1, ["a1", "b1"]);
    assert_eq!(director.heard(&"isp".parse().unwrap()), Some(isp.digest()));
    assert_eq!(director.counters().routes_gaps, 0);

    let known = Some(isp.digest());
    isp.table.remove(0);
    assert_eq!(isp.report(&mut director, 3000), Some(RoutesWanted { known }));
    let difference = Difference { announced: vec![], withdrawn: prefixes(&["10.0.0.0/8"]) };
    let part = Part { from: known, to: isp.digest(), number: 0, is_last: true, difference };
    director.handle(at(3001), Event::Heard { appliance: &id("a1"), part: part.clone() });
    assert_eq!(played(&director).1, ["b1"]);
    // The same again is a difference to a table that is not there any more.
    director.handle(at(3002), Event::Heard { appliance: &id("a1"), part });
    assert_eq!(director.heard(&"isp".parse().unwrap()), Some(isp.digest()));
}

#[test]
fn a_difference_that_does_not_lead_to_what_was_told_is_seen_and_all_asked_for() {
    let mut director = isp_and_exchange();
    let mut isp = Router::new("a1", &["8.8.8.0/24"]);
    isp.report(&mut director, 1000);
    let part = Part { to: isp.digest(), is_last: true, ..Part::default() };
    director.handle(at(1001), Event::Heard { appliance: &id("a1"), part });
    assert_eq!(director.counters().routes_gaps, 1);
    let wanted = isp.report(&mut director, 2000).unwrap();
    assert_ne!(wanted.known, Some(isp.digest()), "the sender has no such table: it sends all");
    isp.tell(&mut director, 2001);
    assert_eq!(isp.report(&mut director, 3000), None);
}

#[test]
fn of_a_site_the_one_that_hears_most_is_believed_and_disagreement_is_told() {
    let mut director = isp_with_two();
    let mut one = Router::new("a1", &["8.8.8.0/24"]);
    let mut two = Router::new("a2", &["8.8.8.0/24", "8.8.9.0/24"]);
    assert!(one.report(&mut director, 1000).is_some());
    one.tell(&mut director, 1001);
    assert_eq!(two.report(&mut director, 1500), Some(RoutesWanted { known: Some(one.digest()) }));
    two.tell(&mut director, 1501);
    assert_eq!(one.report(&mut director, 2000), None, "the other is believed");
    let notices = |director: &Director| {
        let texts = director.notices().filter(|notice| notice.text.contains("site isp"));
        texts.map(|notice| notice.text.clone()).collect::<Vec<_>>()
    };
    let mut tick = |director: &mut Director, seconds: u64, same: bool| {
        if same {
            one.table = two.table.clone();
        }
        one.report(director, seconds * 1000);
        two.report(director, seconds * 1000);
        director.handle(at(seconds * 1000), Event::Tick(UnixSeconds(seconds)));
    };
    tick(&mut director, 5, false);
    assert_eq!(notices(&director).len(), 0, "a change may be on its way");
    tick(&mut director, 13, false);
    tick(&mut director, 30, false);
    let told = notices(&director);
    assert_eq!(told.len(), 1);
    assert!(
        told[0].starts_with("a1 and a2 of site isp hear different routes (1 and 2 p"),
        "{told:?}"
    );
    assert_eq!(director.differing().count(), 1);
    tick(&mut director, 31, true);
    assert_eq!(notices(&director)[1], "all appliances of site isp hear the same again");
    assert_eq!(director.differing().count(), 0);
}

#[test]
fn one_that_cannot_hear_now_is_believed_only_if_nobody_can() {
    let mut director = isp_with_two();
    let mut one = Router::long("a1", 10);
    let mut two = Router::long("a2", 10);
    assert!(one.report(&mut director, 1000).is_some());
    one.tell(&mut director, 1001);
    assert_eq!(two.report(&mut director, 1500), None);
    // The agent of a2 hangs; the ISP withdraws half.
    let known = Some(one.digest());
    one.cut(5);
    two.is_old = true;
    two.report(&mut director, 2000);
    assert_eq!(one.report(&mut director, 2100), Some(RoutesWanted { known }));
    one.tell(&mut director, 2101);
    assert_eq!(director.heard(&"isp".parse().unwrap()), Some(one.digest()));
    assert_eq!(two.report(&mut director, 2500), None, "it knows more, of before");
    for second in 3..60 {
        one.report(&mut director, second * 1000);
        two.report(&mut director, second * 1000);
        director.handle(at(second * 1000), Event::Tick(UnixSeconds(second)));
    }
    assert_eq!(director.differing().count(), 0, "it is away, and no more than that");

    // Now nobody hears: what is known stands, until the agents say that there is nothing.
    one.is_old = true;
    assert_eq!(one.report(&mut director, 60_000), None);
    assert!(two.report(&mut director, 60_000).is_some(), "of two old ones the larger");
    two.cut(0);
    assert_eq!(two.report(&mut director, 61_000), None);
    let known = director.heard(&"isp".parse().unwrap());
    one.cut(0);
    assert_eq!(one.report(&mut director, 62_000), Some(RoutesWanted { known }));
    one.tell(&mut director, 62_001);
    assert_eq!(director.heard(&"isp".parse().unwrap()), Some(Digest::default()));
    assert_eq!(one.report(&mut director, 63_000), None);
}

#[test]
fn one_that_does_not_know_yet_changes_nothing() {
    let mut director = isp_and_exchange();
    let mut isp = Router::new("a1", &["10.0.0.0/8"]);
    isp.report(&mut director, 1000);
    isp.tell(&mut director, 1001);
    let known = Some(isp.digest());
    let not_yet = Report { routes: Some(Hears::default()), ..report(300) };
    let reply = director.report(at(2000), &id("a1"), &not_yet).unwrap();
    assert_eq!((reply.routes, director.heard(&"isp".parse().unwrap())), (None, known));
}

#[test]
fn large_tables_that_are_never_the_same_move_nobody_and_are_no_fault() {
    let mut director = isp_with_two();
    let mut second = 0;
    // Each second another table of both, of about so many prefixes.
    let mut churn = |director: &mut Director, seconds: u64, a1: u64, a2: u64| {
        let mut wanted = [0, 0];
        for n in 0..seconds {
            second += 1;
            for (at_ms, name, count) in [(0, "a1", a1 + n % 7), (500, "a2", a2 + n % 5)] {
                let digest = format!("{count}-{:032x}", second * 1000 + at_ms).parse().unwrap();
                let behind = Nanos::seconds(60);
                let routes = Some(Hears { digest: Some(digest), is_old: false, behind });
                let inventory = Delta { from: 1, to: 1, ..Delta::default() };
                let report = Report { routes, inventory, ..report(200 + second) };
                let now = at(second * 1000 + at_ms);
                let reply = director.report(now, &id(name), &report).unwrap();
                wanted[usize::from(name == "a2")] += u64::from(reply.routes.is_some());
            }
            director.handle(at(second * 1000 + 600), Event::Tick(UnixSeconds(second)));
        }
        (wanted, director.differing().count())
    };
    assert_eq!(churn(&mut director, 300, 1000, 998), ([300, 0], 0), "the larger by turns");
    // A session of a2 is gone for good.
    assert_eq!(churn(&mut director, 100, 1000, 950), ([100, 0], 0), "two readings are not over");
    assert_eq!(churn(&mut director, 30, 1000, 950), ([30, 0], 1));
    assert_eq!(churn(&mut director, 1, 1000, 1000), ([1, 0], 0));
    // A session of a1 is gone.
    assert_eq!(churn(&mut director, 1, 1000, 1110).0, [1, 0], "it hears 90 % and a bit");
    assert_eq!(churn(&mut director, 2, 1000, 1200).0, [1, 2]);
}

#[test]
fn silence_moves_no_client_and_a_word_that_there_is_nothing_does() {
    let mut director = isp_and_exchange();
    let mut isp = Router::new("a1", &["10.0.0.0/8"]);
    isp.report(&mut director, 1000);
    isp.tell(&mut director, 1001);
    director.handle(at(60_000), Event::Tick(UnixSeconds(60)));
    let near = |director: &Director| {
        let snapshot = director.snapshot();
        let client = "10.0.0.1/32".parse().unwrap();
        let sites = snapshot.routes.locate(&client).sites;
        let sites = sites.iter().map(|near| snapshot.routes.site(near.number).unwrap());
        sites.filter(|site| site.as_str() == "isp").count()
    };
    assert_eq!(near(&director), 1, "it is only silent");
    director.report(at(61_000), &id("a1"), &report(500)).unwrap();
    assert_eq!(near(&director), 0, "it has no routers any more");
    assert_eq!(director.heard(&"isp".parse().unwrap()), None);

    isp.sequence = 600;
    isp.report(&mut director, 62_000);
    isp.tell(&mut director, 62_001);
    assert_eq!(near(&director), 1);
    director.handle(at(63_000), Event::Changed(Change::ApplianceGone(id("a1"))));
    assert_eq!(near(&director), 0, "nobody is left to hear anything");
}

#[test]
fn files_give_sites_prefixes_and_clients_a_place() {
    let mut director = isp_and_exchange();
    let prefix = |text: &str| text.parse::<Prefix>().unwrap();
    let zones = BTreeMap::from([
        ("isp".parse().unwrap(), vec![prefix("10.0.0.0/8")]),
        ("nowhere".parse().unwrap(), vec![prefix("10.0.0.0/16")]),
    ]);
    let places = vec![(prefix("8.8.8.0/24"), Place::default())];
    director.handle(at(1000), Event::Clients { places, zones });
    let near = |director: &Director, client: &str| {
        let snapshot = director.snapshot();
        let located = snapshot.routes.locate(&prefix(client));
        let mut sites = located.sites.iter().map(|near| snapshot.routes.site(near.number).unwrap());
        sites.any(|site| site.as_str() == "isp")
    };
    assert!(near(&director, "10.0.0.1/32") && !near(&director, "8.8.8.8/32"));
    // A change of sites keeps them.
    director.handle(at(1000), Event::Changed(Change::Site(site("other", "8.8.8.0/24"))));
    assert!(near(&director, "10.0.0.1/32"));
    let none = Event::Clients { places: vec![], zones: BTreeMap::new() };
    director.handle(at(2000), none);
    assert!(!near(&director, "10.0.0.1/32"));
}

#[test]
fn so_many_tables_come_at_a_time_and_one_that_stops_makes_room() {
    let (mut director, mut routers) = many_sites();
    let begin = |director: &mut Director, router: &mut Router, ms: u64| {
        assert!(router.report(director, ms).is_some());
        router.begin(director, ms, false);
        director.next_part(&id(router.name))
    };
    let begun: Vec<u32> = routers.iter_mut().map(|of| begin(&mut director, of, 0)).collect();
    assert_eq!(begun, [1, 1, 1, 1, 0, 0]);
    assert_eq!(director.counters().routes_waits, 2);
    let waits = director.notices().filter(|notice| notice.text.contains(" wait: 4 other"));
    assert_eq!(waits.count(), 1, "the second is told a minute later");
    // What is all there waits for nobody.
    routers[5].begin(&mut director, 1, true);
    assert_eq!(director.heard(&"s5".parse().unwrap()), Some(Digest::default()));
    assert_eq!(begin(&mut director, &mut routers[4], 9_000), 0);
    assert_eq!(begin(&mut director, &mut routers[4], 10_000), 1);
}

#[test]
fn a_table_that_drips_makes_room_after_a_minute() {
    let (mut director, mut routers) = many_sites();
    for router in &mut routers[..4] {
        router.report(&mut director, 0);
        router.begin(&mut director, 0, false);
    }
    let part = |number| Part { to: routers[0].digest(), number, ..Part::default() };
    for second in 1..60 {
        let part = part(u32::try_from(second).unwrap());
        director.handle(at(second * 1000), Event::Heard { appliance: &id("c0"), part });
    }
    assert_eq!(director.next_part(&id("c0")), 60);
    director.handle(at(60_000), Event::Heard { appliance: &id("c0"), part: part(60) });
    assert_eq!(director.next_part(&id("c0")), 0);
}

#[test]
fn a_table_that_nobody_asked_for_is_not_kept() {
    let mut director = isp_and_exchange();
    let mut isp = Router::new("a1", &["8.8.8.0/24"]);
    isp.begin(&mut director, 1000, false);
    assert_eq!(director.next_part(&id("a1")), 0, "it has told of none");
    isp.report(&mut director, 2000);
    isp.tell(&mut director, 2001);
    isp.begin(&mut director, 3000, true);
    assert_eq!(director.next_part(&id("a1")), 0, "it is known");
    assert_eq!(director.counters().routes_unwanted, 2);
    assert_eq!(director.heard(&"isp".parse().unwrap()), Some(isp.digest()));
}

#[test]
fn a_table_larger_than_any_network_has_is_told_once_and_not_asked_for_again() {
    let mut director = isp_and_exchange();
    let appliance = Change::Appliance(standing("a2", "isp"));
    director.handle(at(0), Event::Changed(appliance));
    settle(&mut director);
    let said: Digest = format!("2000001-{}", "0".repeat(32)).parse().unwrap();
    let tell = |director: &mut Director, sequence: u64| {
        let inventory = Delta { from: 1, to: 1, ..Delta::default() };
        let routes = Some(Hears { digest: Some(said), ..Hears::default() });
        let report = Report { routes, inventory, ..report(sequence) };
        director.report(at(sequence * 10), &id("a1"), &report).unwrap().routes
    };
    assert_eq!((tell(&mut director, 200), tell(&mut director, 201)), (None, None));
    assert_eq!(director.counters().routes_refused, 1);
    let told = director.notices().filter(|of| of.text.contains("a1 of site isp are refused"));
    assert_eq!(told.count(), 1);
    let mut other = Router::new("a2", &["8.8.8.0/24"]);
    assert!(other.report(&mut director, 2100).is_some(), "the other one is believed");
}

/// Six sites with an appliance each, whose routers tell an empty table.
fn many_sites() -> (Director, Vec<Router>) {
    const NAMES: [&str; 6] = ["c0", "c1", "c2", "c3", "c4", "c5"];
    let mut director = isp_and_exchange();
    for (n, name) in NAMES.iter().enumerate() {
        let made = site(&format!("s{n}"), "127.0.0.1/32");
        let made = Site { prefixes: vec![], ..made };
        director.handle(at(0), Event::Changed(Change::Site(made)));
        let appliance = standing(name, &format!("s{n}"));
        director.handle(at(0), Event::Changed(Change::Appliance(appliance)));
    }
    (director, NAMES.iter().map(|name| Router::new(name, &[])).collect())
}

/// a1 in an ISP's site, b1 at an exchange; both hold the film that is played.
fn isp_and_exchange() -> Director {
    let mut director = running(&["a1", "b1"]);
    for (name, of, kind) in
        [("isp", "a1", SiteKind::Embedded), ("exchange", "b1", SiteKind::Exchange)]
    {
        let made = site(name, "127.0.0.1/32");
        let made = Site { kind, prefixes: vec![], ..made };
        director.handle(at(0), Event::Changed(Change::Site(made)));
        director.handle(at(0), Event::Changed(Change::Appliance(standing(of, name))));
    }
    settle(&mut director);
    put_version(&mut director, "film-1", &[1, 2], 1);
    hold(&mut director, "a1", &[1, 2]);
    hold(&mut director, "b1", &[1, 2]);
    director
}

/// The same, and a2 beside a1.
fn isp_with_two() -> Director {
    let mut director = isp_and_exchange();
    let appliance = Change::Appliance(standing("a2", "isp"));
    director.handle(at(0), Event::Changed(appliance));
    settle(&mut director);
    director
}

fn standing(name: &str, site: &str) -> Appliance {
    let (site, weight) = (site.parse().unwrap(), Weight::ONE);
    Appliance::new(id(name), site, weight)
}

fn attributes() -> Arc<Attributes> {
    Arc::new(Attributes::new(Peering::Private, vec![64500], None, vec![]))
}

fn prefixes(texts: &[&str]) -> Vec<Prefix> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}
