//! Sessions of one title prefer the same appliance of a site.

use super::*;
use proptest::collection::vec;

/// A site a (10/8) with so many appliances, and a site b with two, all of which take part in so
/// many thousandths of sessions by title. All hold `TITLES` versions.
fn fleet(appliances: u32, titles_permille: u32) -> FleetView {
    let mut view = view(&[("a", appliances), ("b", 2)]);
    let holders = view.holders.get(0).unwrap().clone();
    for title in 0..TITLES {
        let number = view.holders.push(holders.clone());
        Arc::make_mut(&mut view.versions).insert(version(title), number);
    }
    all(&mut view, |of| of.titles_permille = titles_permille);
    view
}

const TITLES: u32 = 60;
const A: &str = "10.9.9.9";

fn titled(title: u32) -> Wanted {
    wanted(1 + title, &version(title))
}

fn version(title: u32) -> AssetVersionId {
    format!("title-{title}").parse().unwrap()
}

fn list(view: &FleetView, title: u32, session: u32, among: Option<&[u32]>) -> Named {
    // Each title has its own sessions.
    let session = [title.to_le_bytes(), session.to_le_bytes()].concat();
    let config = Config { explains: false, ..CONFIG };
    rank(view, &Query { version: titled(title), among, ..query(A, &session) }, &config)
}

/// The first of the list of each title and session.
fn firsts(view: &FleetView, sessions: u32) -> Vec<((u32, u32), String)> {
    let each = (0..TITLES).flat_map(|title| (0..sessions).map(move |session| (title, session)));
    each.map(|(title, session)| {
        let list = list(view, title, session, None);
        ((title, session), list.names[0].clone())
    })
    .collect()
}

/// Where the draw of each title leads in site a.
fn owns(view: &FleetView) -> Vec<String> {
    let mut view = view.clone();
    all(&mut view, |of| of.titles_permille = 1000);
    firsts(&view, 1).into_iter().map(|(_, first)| first).collect()
}

#[test]
fn all_sessions_of_a_title_go_to_one_appliance_and_titles_spread_over_all_of_them() {
    let view = fleet(3, 1000);
    let owns = owns(&view);
    for ((title, _), first) in firsts(&view, 20) {
        assert_eq!(first, owns[usize::try_from(title).unwrap()]);
    }
    for name in ["a1", "a2", "a3"] {
        // Of 60 titles 20; three standard deviations are 11.
        let has = owns.iter().filter(|own| *own == name).count();
        assert!(has.abs_diff(20) < 11, "{name}: {has}");
    }
    let second: BTreeSet<String> =
        (0..50).map(|session| names(&list(&view, 0, session, None))[1].clone()).collect();
    assert_eq!(second.len(), 2, "whoever loses it is spread: {second:?}");
}

#[test]
fn a_heavier_appliance_has_more_titles_and_still_its_part_of_those_that_are_spread() {
    for titles in [1000, 500, 1] {
        let mut view = fleet(2, titles);
        alter(&mut view, "a2", |a2| a2.weight = Weight::new(3).unwrap());
        let firsts = firsts(&view, 40);
        let has = firsts.iter().filter(|(_, first)| first == "a2").count();
        // Three quarters of 2,400; of 60 titles four standard deviations are 13, with 40 sessions.
        assert!(has.abs_diff(1800) < 520, "{titles}: {has}");
    }
}

#[test]
fn as_many_follow_as_the_appliance_has_and_a_change_moves_only_sessions_of_its_titles() {
    let mut view = fleet(3, 1000);
    let owns = owns(&view);
    let mut before = firsts(&view, 100);
    for titles in [800, 500, 100, 1] {
        alter(&mut view, "a1", |a1| a1.titles_permille = titles);
        let now = firsts(&view, 100);
        let of_a1 = |title: u32| owns[usize::try_from(title).unwrap()] == "a1";
        let all = now.iter().filter(|((title, _), _)| of_a1(*title)).count();
        let with = now.iter().filter(|((title, _), first)| of_a1(*title) && first == "a1").count();
        // Those that follow, and a third of the others.
        let wanted = all * usize::try_from(titles + (1000 - titles) / 3).unwrap() / 1000;
        assert!(with.abs_diff(wanted) < all / 10, "{titles}: {with} of {all}, not {wanted}");
        for ((title, first), (_, other)) in before.iter().map(|((t, _), f)| (t, f)).zip(&now) {
            assert!(first == other || (of_a1(*title) && first == "a1"), "{title}: {first} {other}");
        }
        before = now;
    }
}

#[test]
fn a_lost_appliance_moves_only_its_sessions_and_evenly_to_all_others() {
    type Change = fn(&mut ApplianceView);
    let changes: [Change; 3] = [
        |a2| a2.health = Health::Stale,
        |a2| a2.health = Health::Draining,
        |a2| a2.share_permille = 0,
    ];
    for (titles, change) in [1000, 400].into_iter().flat_map(|of| changes.map(|to| (of, to))) {
        let mut view = fleet(4, titles);
        let before = firsts(&view, 30);
        alter(&mut view, "a2", change);
        let mut moved = BTreeMap::<String, u32>::new();
        for ((at, first), (_, now)) in before.iter().zip(firsts(&view, 30)) {
            assert!(first == "a2" || *first == now, "{at:?}: {first} {now}");
            if first == "a2" {
                *moved.entry(now).or_default() += 1;
            }
        }
        // 450 or so move, a third of them to each; five standard deviations are 50.
        let all: u32 = moved.values().sum();
        let is_even = moved.values().all(|to| to.abs_diff(all / 3) < 60);
        assert!(is_even && moved.len() == 3 && 300 < all, "{titles}: {moved:?}");
    }
}

#[test]
fn an_appliance_that_comes_takes_its_titles_and_no_other_moves() {
    let (less, more) = (fleet(3, 1000), fleet(4, 1000));
    let all = firsts(&less, 10).into_iter().zip(firsts(&more, 10));
    let moved: Vec<_> = all.filter(|((_, before), (_, now))| before != now).collect();
    assert!(moved.iter().all(|(_, (_, now))| now == "a4"), "{moved:?}");
    // Of 600 150; sessions of a title move together.
    assert!((40..300).contains(&moved.len()), "{}", moved.len());
}

#[test]
fn health_content_and_share_come_before_the_title() {
    let view = fleet(3, 1000);
    let own = owns(&view)[0].clone();
    type Change = fn(&mut FleetView, &str);
    let changes: [Change; 4] = [
        |view, own| alter(view, own, |of| of.health = Health::Unhealthy),
        |view, own| alter(view, own, |of| of.health = Health::Drained),
        |view, own| alter(view, own, |of| of.share_permille = 0),
        |view, own| {
            let number = view.appliances[own];
            let version = view.versions[&version(0)];
            view.holders.get_mut(version).unwrap().whole.remove(number);
        },
    ];
    for (n, change) in changes.iter().enumerate() {
        let mut view = view.clone();
        change(&mut view, &own);
        for session in 0..20 {
            let list = list(&view, 0, session, None);
            assert!(list.names[0].starts_with('a'), "{n}: siblings first");
            assert_ne!(list.names[0], own, "{n}");
        }
    }
}

#[test]
fn sites_that_share_a_client_have_their_sessions_as_ever() {
    let of = |titles: u32| {
        let mut view = view(&[("a", 2), ("b", 2)]);
        all(&mut view, |of| of.titles_permille = titles);
        let first = |session: u32| {
            let session = session.to_le_bytes();
            names(&rank(&view, &query("192.0.2.1", &session), &CONFIG))[0].clone()
        };
        (0..400).map(first).collect::<Vec<_>>()
    };
    let (spread, by_title) = (of(0), of(1000));
    let site = |name: &String| name[..1].to_owned();
    assert!(spread.iter().map(site).eq(by_title.iter().map(site)), "of the same site");
    assert_eq!(by_title.iter().collect::<BTreeSet<_>>().len(), 2, "one of each: {by_title:?}");
}

#[test]
fn each_says_whether_the_title_leads_there() {
    let told = |titles: u32| {
        let mut view = fleet(2, titles);
        embed(&mut view, 1);
        let list = rank(&view, &Query { version: titled(0), ..query(A, b"s") }, &CONFIG);
        let told = list.offered().iter().map(|of| of.reasons(&view)[4]);
        told.map(|reason| (reason.code(), reason.to_string())).collect::<Vec<_>>()
    };
    let codes = |titles| told(titles).into_iter().map(|(code, _)| code).collect::<Vec<_>>();
    assert_eq!(codes(1000), ["title", "draw"]);
    assert_eq!(codes(0), ["draw", "draw"]);
    assert_eq!(codes(1).iter().filter(|code| **code == "spread").count(), 1);
    assert_eq!(told(1000)[0].1, "the draw of the title leads here, so it is first of its site");
    let spread = told(1).into_iter().find(|(code, _)| *code == "spread").unwrap().1;
    let text = "the draw of the title leads here for 0.1 % of its sessions, of which this is none: \
                its draw for this session is ";
    assert!(spread.starts_with(text), "{spread}");
}

#[test]
fn where_appliances_hold_a_part_the_title_leads_to_one_that_holds_the_rest_too() {
    let mut view = view(&[("a", 6)]);
    view.holders.get_mut(0).unwrap().renditions = 0..2;
    // a1 to a4 hold the first rendition only.
    let part: Members = (0..4).collect();
    (0..4).for_each(|n| assert!(view.holders.get_mut(0).unwrap().whole.remove(n)));
    for set in [part, Members::default()] {
        view.partial_holders.push(set);
    }
    all(&mut view, |of| of.titles_permille = 1000);
    let bases = |session: u8| {
        let list = rank(&view, &query(A, &[session]), &CONFIG);
        let name = |at: usize| list.names[at].clone();
        let first = &list.pathways[0];
        let of = |at: usize| name(first.renditions.get(at).copied().unwrap_or(first.lead));
        [of(0), of(1)]
    };
    let all: BTreeSet<[String; 2]> = (0..50).map(bases).collect();
    assert_eq!(all.len(), 1, "each rendition has one appliance: {all:?}");
}

proptest! {
    #[test]
    fn a_playback_is_steered_to_the_first_of_its_list_as_long_as_nothing_changes(
        appliances in 1_u32..9,
        titles in vec(prop::sample::select(vec![1, 300, 700, 1000]), 9),
        title in 0..TITLES,
        session: u32,
    ) {
        let mut view = fleet(appliances, 1000);
        for (n, titles) in (1..=appliances).zip(titles) {
            alter(&mut view, &format!("a{n}"), |of| of.titles_permille = titles);
        }
        let begun = list(&view, title, session, None);
        let among: Vec<u32> = begun.offered().iter().map(|of| of.appliance).collect();
        let steered = list(&view, title, session, Some(&among));
        let of = |list: &Named| names(list);
        prop_assert_eq!(&of(&begun)[0], &of(&steered)[0]);
        let own = owns(&view)[usize::try_from(title).unwrap()].clone();
        prop_assert!(of(&begun).contains(&own), "so that it can come back: {:?}", of(&begun));
    }
}
