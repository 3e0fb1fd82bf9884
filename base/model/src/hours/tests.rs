use super::*;

use proptest::collection::vec;
use proptest::prelude::*;

use crate::zone::TimeZone;

const HOUR: u64 = 3600;

/// 2026-03-28 00:00 UTC, a Saturday: in Berlin the clocks go from 2:00 to 3:00 the night after.
const SPRING: u64 = 1_774_656_000;
/// 2026-10-24 00:00 UTC: the night after, they go from 3:00 to 2:00.
const AUTUMN: u64 = 1_792_800_000;

fn hours(zone: &str, windows: &str) -> Hours {
    let zone = TimeZone::named(zone).unwrap();
    let offsets = zone.offsets(UnixSeconds(SPRING - 100 * DAY), OFFSETS_SPAN).unwrap();
    Hours { windows: windows.parse().unwrap(), offsets: offsets.into(), paused_until: None }
}

/// When fill is open in the two days from then, in hours of UTC.
fn check(zone: &str, windows: &str, from: u64, wanted: &[(f64, f64)]) {
    let hours = hours(zone, windows);
    let end = UnixSeconds(from + 2 * DAY);
    let mut at = UnixSeconds(from);
    let (mut found, mut since) = (Vec::new(), hours.is_open(at).then_some(at));
    while let Some(next) = hours.next_change(at).filter(|next| *next < end) {
        match since.take() {
            Some(since) => found.push((since, next)),
            None => since = Some(next),
        }
        at = next;
    }
    found.extend(since.map(|since| (since, end)));
    let hour = |time: UnixSeconds| f64::from(u32::try_from(time.0 - from).unwrap()) / 3600.0;
    let found: Vec<_> = found.into_iter().map(|(from, until)| (hour(from), hour(until))).collect();
    assert_eq!(found, wanted, "{zone} {windows}");
}

#[test]
fn windows_are_by_the_clock_on_the_wall() {
    check("UTC", "02:00-14:00", SPRING, &[(2.0, 14.0), (26.0, 38.0)]);
    check("Asia/Kolkata", "02:00-14:00", SPRING, &[(0.0, 8.5), (20.5, 32.5), (44.5, 48.0)]);
    check("America/New_York", "2:00-06:30", SPRING, &[(6.0, 10.5), (30.0, 34.5)]);
    check("Pacific/Kiritimati", "02:00-03:00", SPRING, &[(12.0, 13.0), (36.0, 37.0)]);
}

#[test]
fn a_window_may_have_midnight_in_it_and_a_day_several_of_them() {
    check("UTC", "22:00-06:00", SPRING, &[(0.0, 6.0), (22.0, 30.0), (46.0, 48.0)]);
    let nights = "13:00-14:30,22:00-24:00, 01:00-06:00";
    let wanted = [(1.0, 6.0), (13.0, 14.5), (22.0, 24.0), (25.0, 30.0), (37.0, 38.5), (46.0, 48.0)];
    check("UTC", nights, SPRING, &wanted);
    check("UTC", "always", SPRING, &[(0.0, 48.0)]);
}

#[test]
fn an_hour_that_is_skipped_opens_nothing_and_shortens_a_window() {
    // At 25:00 of these hours it is 2:00 in Berlin, and 3:00 at once.
    check("Europe/Berlin", "01:30-04:00", SPRING, &[(0.5, 3.0), (24.5, 26.0), (47.5, 48.0)]);
    check("Europe/Berlin", "02:00-06:00", SPRING, &[(1.0, 5.0), (25.0, 28.0)]);
    check("Europe/Berlin", "02:15-02:45", SPRING, &[(1.25, 1.75)]);
    check("Europe/Berlin", "02:00-03:00", SPRING, &[(1.0, 2.0)]);
    check("Europe/Berlin", "22:00-02:00", SPRING, &[(0.0, 1.0), (21.0, 25.0), (44.0, 48.0)]);
}

#[test]
fn an_hour_that_comes_twice_is_in_its_window_twice() {
    // At 25:00 of these hours it is 3:00 in Berlin, and 2:00 again.
    check("Europe/Berlin", "02:00-03:00", AUTUMN, &[(0.0, 1.0), (24.0, 26.0)]);
    check("Europe/Berlin", "01:00-02:30", AUTUMN, &[(0.0, 0.5), (23.0, 24.5), (25.0, 25.5)]);
    check("Europe/Berlin", "02:30-04:00", AUTUMN, &[(0.5, 2.0), (24.5, 25.0), (25.5, 27.0)]);
    check("Europe/Berlin", "22:00-06:00", AUTUMN, &[(0.0, 4.0), (20.0, 29.0), (45.0, 48.0)]);
}

#[test]
fn zones_that_change_otherwise_are_known_too() {
    // Lord Howe goes back by half an hour: 2026-04-05 at 2:00, which is 15:00 UTC the day before.
    let april = SPRING + 7 * DAY;
    check("Australia/Lord_Howe", "01:00-02:00", april, &[(14.0, 15.5), (38.5, 39.5)]);
    // Morocco went by UTC in Ramadan, and an hour ahead of it else: four changes in two years.
    let ramadan = TimeZone::named("Africa/Casablanca").unwrap();
    let offsets = ramadan.offsets(UnixSeconds(SPRING - 3 * 366 * DAY), OFFSETS_SPAN).unwrap();
    assert!((4..=OFFSETS_MAX).contains(&offsets.len()), "{offsets:?}");
    let kept = TimeZone::kept("Mars/Olympus").unwrap();
    assert_eq!(kept.offsets(UnixSeconds(SPRING), OFFSETS_SPAN), None);
}

#[test]
fn offsets_are_the_same_until_a_change_comes_or_goes() {
    let berlin = TimeZone::named("Europe/Berlin").unwrap();
    let at = |time| berlin.offsets(UnixSeconds(time), Nanos::seconds(400 * DAY)).unwrap();
    let change = SPRING + 25 * HOUR;
    assert_eq!(at(change - 30 * DAY), at(change - 1));
    assert_ne!(at(change - 1), at(change));
    assert_eq!(at(change)[0], Offset { from: UnixSeconds(change), ahead_s: 7200 });
    assert_eq!(at(change), at(change + DAY));
}

#[test]
fn without_news_from_control_the_clock_stays_as_it_was_set_last() {
    let mut hours = hours("Europe/Berlin", "02:00-06:00");
    let last = hours.offsets.last().unwrap().from;
    let later = UnixSeconds(last.0 + 100 * 366 * DAY);
    let next = hours.next_change(later).unwrap();
    assert!(hours.next_change(next).unwrap().0 - next.0 <= 20 * HOUR);
    hours.offsets = Arc::default();
    assert_eq!(hours.next_change(UnixSeconds(0)), Some(UnixSeconds(2 * HOUR)), "UTC");
}

#[test]
fn a_pause_ends_in_an_open_window_or_before_the_next() {
    let mut hours = hours("UTC", "02:00-06:00");
    let at = |hour: u64| UnixSeconds(SPRING + hour * HOUR);
    hours.paused_until = Some(at(4));
    assert!(!hours.is_open(at(3)) && hours.is_open(at(4)));
    assert_eq!(hours.next_change(at(0)), Some(at(4)));
    assert_eq!(hours.next_change(at(4)), Some(at(6)));
    hours.paused_until = Some(at(7));
    assert_eq!(hours.next_change(at(0)), Some(at(26)));
    hours.paused_until = Some(NEVER);
    assert_eq!(hours.next_change(at(0)), None);
    assert!(!hours.is_open(at(1_000_000)));
    let always = Hours { windows: Windows::ALWAYS, paused_until: Some(at(7)), ..hours };
    assert_eq!(always.next_change(at(0)), Some(at(7)));
    assert_eq!(always.next_change(at(7)), None);
}

#[test]
fn open_time_is_counted_across_windows() {
    let hours = hours("UTC", "02:00-06:00");
    let at = |hour: u64| UnixSeconds(SPRING + hour * HOUR);
    let check = |from: u64, open: u64, wanted: u64| {
        let found = hours.open_for(at(from), Nanos::seconds(open * HOUR));
        assert_eq!(found, Some(at(wanted)), "{from} {open}");
    };
    check(0, 1, 3);
    check(0, 4, 6);
    check(3, 5, 28);
    check(0, 40, 222);
    let never = Hours { paused_until: Some(NEVER), ..hours.clone() };
    assert_eq!(never.open_for(at(0), Nanos::seconds(1)), None);
    let always = Hours::default();
    assert_eq!(always.open_for(at(0), Nanos::seconds(HOUR)), Some(at(1)));
}

#[test]
fn texts_that_say_no_windows_are_refused_with_what_to_write() {
    let said = |text: &str| text.parse::<Windows>().unwrap_err().to_string();
    for text in ["", "2-14", "02:00", "02:60-03:00", "24:00-02:00", "02:00-24:01", "+2:00-03:00"] {
        let said = said(text);
        assert!(said.contains("is no window: write from and until"), "{text}: {said}");
    }
    let whole = "00:00-00:00 ends when it begins: write \"always\" for the whole day";
    assert_eq!(
        [said("02:00-02:00"), said("0:00-24:00")],
        [&whole.replace("00:00-00:00", "02:00-02:00"), whole]
    );
    let two = "22:00-06:00 and 05:00-07:00 touch or overlap: write them as one";
    assert_eq!(said("22:00-06:00,05:00-07:00"), two);
    assert!(said("01:00-02:00,02:00-03:00").contains("touch"));
    assert!(said("01:00-05:00,02:00-03:00").contains("overlap"));
    let five = "1:00-2:00,3:00-4:00,5:00-6:00,7:00-8:00,9:00-10:00";
    assert_eq!(said(five), "a day has at most 4 windows: join some");
}

#[test]
fn windows_are_said_in_order_and_read_back() {
    let text = "13:00-14:30, 22:00-06:00";
    let windows: Windows = "22:00-6:00,13:00-14:30".parse().unwrap();
    assert_eq!((windows.to_string(), text.parse()), (text.to_owned(), Ok(windows)));
    assert_eq!(Windows::new(windows.minutes()), Ok(windows));
    assert_eq!(Windows::ALWAYS.to_string().parse(), Ok(Windows::ALWAYS));
    assert!(Windows::new([(1440, 3)]).is_err() && Windows::new([(3, 1441)]).is_err());
}

proptest! {
    #[test]
    fn every_change_is_found_and_none_is_made_up(
        edges in vec(0u16..1440, 2..9),
        changes in vec((0u64..40 * HOUR, -14 * 3600i32..14 * 3600), 0..4),
        pause in proptest::option::of(0u64..30 * HOUR),
        start in 0u64..DAY,
    ) {
        let mut edges = edges;
        edges.sort_unstable();
        edges.dedup();
        let spans = edges.chunks_exact(2).map(|pair| (pair[0], pair[1]));
        let windows = Windows::new(spans).unwrap();
        let mut from = 1_000_000;
        let mut offset = |(after, ahead_s): (u64, i32)| {
            from += after + 1;
            Offset { from: UnixSeconds(from), ahead_s }
        };
        let offsets = changes.into_iter().map(&mut offset).collect();
        let paused_until = pause.map(|after| UnixSeconds(1_000_000 + after));
        let hours = Hours { windows, offsets, paused_until };
        let mut at = UnixSeconds(1_000_000 + start);
        for _ in 0..6 {
            let Some(next) = hours.next_change(at) else {
                prop_assert!(windows.is_always());
                break;
            };
            let was = hours.is_open(at);
            prop_assert_ne!(hours.is_open(next), was);
            let step = 17;
            for second in (at.0..next.0).step_by(step).chain([next.0 - 1]) {
                prop_assert_eq!(hours.is_open(UnixSeconds(second)), was);
            }
            at = next;
        }
    }
}
