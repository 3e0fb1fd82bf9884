use super::*;

use model::hours::{FillRules, Hours};

fn rules(windows: &str) -> FillRules {
    let hours = Hours { windows: windows.parse().expect("windows"), ..Hours::default() };
    FillRules { hours, ..FillRules::default() }
}

fn hour(hour: u64) -> UnixSeconds {
    UnixSeconds(hour * 3600)
}

#[test]
fn nothing_is_handed_out_to_be_fetched_while_fill_is_closed_and_its_opening_is_news() {
    let mut holdings = holdings();
    holdings.set_manifest(manifest(1, &[1, 2]));
    plan(&mut holdings, at(0));
    assert!(holdings.is_open() && holdings.take_news());
    assert_eq!(fetched(&mut holdings), Some(object(1)));
    holdings.set_rules(at(0), hour(1), rules("02:00-04:00"));
    assert_eq!((fetched(&mut holdings), holdings.is_open()), (None, false));
    holdings.look_at_hours(at(0), UnixSeconds(hour(2).0 - 1));
    assert!(!holdings.take_news() && !holdings.is_open());
    holdings.look_at_hours(at(0), hour(2));
    assert!(holdings.take_news());
    holdings.look_at_hours(at(0), hour(3));
    assert!(!holdings.take_news(), "it was open before");
    assert_eq!(fetched(&mut holdings), Some(object(2)));
    holdings.look_at_hours(at(0), hour(4));
    assert!(!holdings.is_open());
    holdings.set_rules(at(0), hour(5), FillRules::default());
    assert!(holdings.is_open() && holdings.take_news());
}

/// Rules by which these versions are urgent.
fn urgent(windows: &str, versions: &[&str]) -> FillRules {
    let urgent = versions.iter().map(|id| id.parse().expect("a name")).collect();
    FillRules { urgent, ..rules(windows) }
}

/// One version for each list of objects: film-0, film-1 and so on.
fn films(generation: u64, films: &[&[u8]]) -> Arc<Manifest> {
    let one = |(at, objects): (usize, &&[u8])| {
        let of = &manifest(generation, objects).versions[0];
        let id = format!("film-{at}").parse().expect("a name");
        Arc::new(AssetVersion { id, ..AssetVersion::clone(of) })
    };
    let versions = films.iter().enumerate().map(one).collect();
    Arc::new(Manifest { versions, ..Manifest::clone(&manifest(generation, &[])) })
}

#[test]
fn what_is_urgent_is_fetched_first_and_alone_while_fill_is_closed() {
    let mut holdings = holdings();
    // Plans are of two objects: the third version would be last. It shares one with the first.
    holdings.set_manifest(films(1, &[&[1, 2], &[3, 4], &[2, 5, 6]]));
    holdings.set_rules(at(0), hour(1), urgent("02:00-04:00", &["film-2", "gone-1"]));
    assert!(!holdings.is_open());
    let mut all = Vec::new();
    for now in 0..4 {
        plan(&mut holdings, at(now));
        while let Some(object) = fetched(&mut holdings) {
            holdings.publish(object, on(0, object.0[0]), None);
            holdings.release(object);
            all.push(object.0[0]);
        }
    }
    assert_eq!(all, [2, 5, 6]);
    holdings.look_at_hours(at(0), hour(2));
    assert_eq!(fetched(&mut holdings), Some(object(1)), "it is open");
}

#[test]
fn what_is_urgent_is_first_while_fill_is_open_and_waits_in_a_pause() {
    let mut holdings = holdings();
    holdings.set_manifest(films(1, &[&[1, 2], &[3, 4]]));
    plan(&mut holdings, at(0));
    assert_eq!(fetched(&mut holdings), Some(object(1)));
    holdings.take_news();
    holdings.set_rules(at(0), hour(1), urgent("always", &["film-1"]));
    assert!(holdings.take_news(), "there is something new to plan");
    assert_eq!(holdings.plan_in(at(1), at(1)), Nanos(0));
    plan(&mut holdings, at(1));
    assert_eq!(fetched(&mut holdings), Some(object(3)));
    holdings.take_news();
    let paused = |windows| {
        let of = urgent(windows, &["film-1"]);
        FillRules { hours: Hours { paused_until: Some(hour(3)), ..of.hours.clone() }, ..of }
    };
    for windows in ["always", "05:00-06:00"] {
        holdings.set_rules(at(0), hour(2), paused(windows));
        assert_eq!(fetched(&mut holdings), None, "{windows}");
    }
    assert!(holdings.hours_are_other(hour(3)) && !holdings.take_news());
    holdings.look_at_hours(at(0), hour(3));
    assert!(holdings.take_news() && !holdings.is_open(), "the pause is over");
    assert_eq!(fetched(&mut holdings), Some(object(4)));
    assert_eq!(fetched(&mut holdings), None, "and the window has not begun");
    // A newer manifest: it is found in that one.
    holdings.set_manifest(films(2, &[&[1, 2], &[7]]));
    plan(&mut holdings, at(3));
    assert_eq!(fetched(&mut holdings), Some(object(7)));
}
