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
    holdings.set_rules(hour(1), rules("02:00-04:00"));
    assert_eq!((fetched(&mut holdings), holdings.is_open()), (None, false));
    holdings.look_at_hours(UnixSeconds(hour(2).0 - 1));
    assert!(!holdings.take_news() && !holdings.is_open());
    holdings.look_at_hours(hour(2));
    assert!(holdings.take_news());
    holdings.look_at_hours(hour(3));
    assert!(!holdings.take_news(), "it was open before");
    assert_eq!(fetched(&mut holdings), Some(object(2)));
    holdings.look_at_hours(hour(4));
    assert!(!holdings.is_open());
    holdings.set_rules(hour(5), FillRules::default());
    assert!(holdings.is_open() && holdings.take_news());
}
