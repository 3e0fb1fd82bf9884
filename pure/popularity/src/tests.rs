//! The room through its verbs, on series that are made up.

use model::id::Item;
use model::number::{GOLDEN, mix};
use model::units::{BitsPerSecond, Bytes, Hour};
use proptest::prelude::*;

use crate::demand::DAY;
use crate::shape::weekday;
use crate::{
    Bounds, Config, Demand, Expected, Launch, Like, Noted, Outlook, Part, Shown, Span, Sums,
    backtest, forecast,
};

const CONFIG: Config = Config::USUAL;
const TODAY: Hour = Hour(20_000 * DAY);
const WEEK: [f64; 7] = [0.8, 0.8, 0.85, 0.95, 1.1, 1.3, 1.2];
const NOBODY: Outlook<'_> = Outlook { launches: &[], shown: &[] };

/// A number from 0 to 1 that has nothing in common with others.
fn draw(item: u32, day: u32, salt: u64) -> f64 {
    let n = mix(u64::from(item) << 32 | u64::from(day)).wrapping_add(salt.wrapping_mul(GOLDEN));
    f64::from(u32::try_from(mix(n) >> 32).unwrap()) / f64::from(u32::MAX)
}

/// The bytes of an item on a day, so many days before today.
type Series<'a> = &'a dyn Fn(u32, u32) -> f64;

/// So many days of items 0 to `items`, in the evening and a third of it in the morning.
fn demand(items: u32, days: u32, of: Series<'_>) -> Demand {
    let mut demand = Demand::new(0, TODAY, Bounds::default());
    for ago in (1..=days).rev() {
        for item in 0..items {
            let day = TODAY.before(ago * DAY);
            let bytes = crate::bytes(of(item, ago)).0;
            for (hour, part) in [(8, bytes / 3), (20, bytes - bytes / 3)] {
                let noted = demand.note(day.after(hour), Item(item), Bytes(part));
                assert_eq!(noted, Noted::Counted);
            }
        }
    }
    demand.close(TODAY);
    demand
}

fn of(expected: &[(Item, Expected)], item: u32) -> u64 {
    let at = expected.binary_search_by_key(&Item(item), |(of, _)| *of);
    at.map_or(0, |at| expected[at].1.day.0)
}

/// A Zipf catalogue with a week: a third of it grows, a third fades, all of it is noisy, and on
/// each day a title begins that fades from there.
fn lively(item: u32, ago: u32) -> f64 {
    let age = f64::from(35 - ago.min(35));
    let begun = if item.is_multiple_of(8) { item / 8 % 40 } else { 0 };
    let base = 4e12 / f64::from(item % 500 + 1);
    let drift = [0.985_f64, 1.0, 1.015][usize::try_from(item % 3).unwrap()];
    let mut trend = 1.0;
    let since = if begun == 0 { age } else { (age - f64::from(begun)).max(0.0) };
    let fade = if begun == 0 { drift } else { 0.9 };
    (0..35).take_while(|n| f64::from(*n) < since).for_each(|_| trend *= fade);
    if begun != 0 && age < f64::from(begun) {
        return 0.0;
    }
    let noise = 0.7 + 0.6 * draw(item, ago, 1);
    base * trend * noise * WEEK[weekday(TODAY.before(ago * DAY))]
}

#[test]
fn with_weeks_trends_and_launches_the_forecast_beats_both_naive_ones() {
    let demand = demand(500, 35, &lively);
    let sizes: Vec<_> = (0..500).map(|item| (Item(item), Bytes(2_000_000_000))).collect();
    let rooms = [20, 60, 150].map(|items| Bytes(items * 2_000_000_000));
    let tested = backtest(&demand, 7, &sizes, &rooms, &CONFIG);
    assert_eq!(tested.days.len(), 7);
    let total = tested.total();
    let share = |part: Bytes| crate::float(part) / crate::float(total.came);
    let [ours, yesterday, week_ago] =
        [&total.forecast, &total.yesterday, &total.week_ago].map(|score| share(score.off));
    assert!(ours < 0.75 * yesterday && ours < 0.75 * week_ago, "{ours} {yesterday} {week_ago}");
    for at in 0..rooms.len() {
        let [ours, yesterday, week_ago, known] =
            [&total.forecast, &total.yesterday, &total.week_ago, &total.known]
                .map(|score| share(score.hits[at]));
        assert!(yesterday < ours && week_ago < ours && ours <= known, "room {at}");
    }
}

#[test]
fn the_week_and_a_trend_of_the_region_are_followed_to_a_few_percent() {
    let growing = |item: u32, ago: u32| {
        let growth = 1.0 + f64::from(35 - ago) * 0.02;
        1e10 * f64::from(item + 1) * growth * WEEK[weekday(TODAY.before(ago * DAY))]
    };
    let demand = demand(20, 35, &growing);
    for day in 0..7 {
        let day = TODAY.before(day * DAY);
        let ago = TODAY.since(day) / DAY;
        let expected = forecast::forecast_before(&demand, day, day, &NOBODY, &CONFIG);
        let (is, wants) =
            (f64::from(u32::try_from(of(&expected, 9) >> 20).unwrap()), growing(9, ago));
        let ratio = is * f64::from(1 << 20) / wants;
        assert!((0.95..1.05).contains(&ratio), "{ago} days ago: {ratio}");
    }
}

#[test]
fn the_busiest_hour_is_that_of_the_item_and_of_the_region_together() {
    let even = demand(3, 10, &|_, _| 86_400_000.0);
    let expected = forecast(&even, TODAY, &NOBODY, &CONFIG);
    let one = Expected { day: Bytes(86_400_000), peak: BitsPerSecond(128_000) };
    assert_eq!(expected, [0, 1, 2].map(|item| (Item(item), one)), "two thirds at eight");
    let mut with_night = even.clone();
    for ago in 1..4 {
        let night = TODAY.before(ago * DAY).after(3);
        with_night.note(night, Item(7), Bytes(8_640_000));
        with_night.close(TODAY);
    }
    let night = forecast(&with_night, TODAY, &NOBODY, &CONFIG)[3].1;
    assert!(BitsPerSecond(9_000) < night.peak && night.peak < BitsPerSecond(19_200), "{night:?}");
}

#[test]
fn a_day_of_which_nothing_is_known_is_no_day_without_viewers() {
    let steady = demand(5, 20, &|_, ago| if ago == 2 || ago == 9 { 0.0 } else { 1e9 });
    assert_eq!(of(&forecast(&steady, TODAY, &NOBODY, &CONFIG), 3), 1_000_000_000);
}

#[test]
fn a_day_that_is_not_over_counts_by_the_share_that_is() {
    let mut demand = demand(5, 20, &|_, _| 9e9);
    for item in 0..5 {
        demand.note(TODAY.after(8), Item(item), Bytes(6_000_000_000));
    }
    let tomorrow = TODAY.after(DAY);
    demand.close(TODAY.after(12));
    assert_eq!(
        of(&forecast(&demand, tomorrow, &NOBODY, &CONFIG), 1),
        9_000_000_000,
        "a third is less"
    );
    for item in 0..5 {
        demand.note(TODAY.after(20), Item(item), Bytes(12_000_000_000));
    }
    demand.close(TODAY.after(22));
    let twice = of(&forecast(&demand, tomorrow, &NOBODY, &CONFIG), 1);
    assert!(10_000_000_000 < twice && twice <= 18_000_000_000, "{twice}");
    assert_eq!(of(&forecast(&demand, TODAY, &NOBODY, &CONFIG), 1), 9_000_000_000, "its own hours");
}

#[test]
fn hours_that_come_later_change_no_forecast_of_what_was_known_before() {
    let mut demand = demand(5, 20, &|_, _| 9e9);
    for item in 0..5 {
        demand.note(TODAY.after(8), Item(item), Bytes(3_000_000_000));
        demand.note(TODAY.after(20), Item(item), Bytes(6_000_000_000));
    }
    let (known, tomorrow) = (TODAY.after(22), TODAY.after(DAY));
    let on = |demand: &Demand| forecast::forecast_before(demand, tomorrow, known, &NOBODY, &CONFIG);
    let before = on(&demand);
    for (hours, item, bytes) in [(22, 1, 7), (23, 1, 5), (23, 900, 5), (24, 2, 3)] {
        demand.note(TODAY.after(hours), Item(item), Bytes(bytes * 1_000_000_000));
    }
    assert_eq!(on(&demand), before);
    demand.close(tomorrow);
    assert_eq!(on(&demand), before, "a day later");
    assert!(of(&before, 1) < of(&forecast(&demand, tomorrow, &NOBODY, &CONFIG), 1));
}

#[test]
fn an_hour_without_sums_had_nothing_only_if_the_others_are_all_of_its_day() {
    let even = |hours: std::ops::Range<u32>| {
        let mut demand = Demand::new(0, TODAY, Bounds::default());
        for hour in
            (1..4).flat_map(|ago| hours.clone().map(move |of| TODAY.before(ago * DAY).after(of)))
        {
            demand.note(hour, Item(1), Bytes(1_000_000_000));
        }
        demand
    };
    let peak = |demand: &Demand| forecast(demand, TODAY, &NOBODY, &CONFIG)[0].1.peak.0 / 1_000;
    let all = even(0..24);
    let hourly = 8_000_000 / 3600;
    assert_eq!(peak(&all), hourly);
    assert_eq!(peak(&even(0..12)), hourly, "nobody watches in the afternoon");
    let mut lost = Demand::new(0, TODAY, Bounds::default());
    let noon = TODAY.before(DAY).after(12);
    for (span, sums) in all.spans().filter(|(span, _)| *span != Span::Hour(noon)) {
        lost.restore(span, sums.clone());
    }
    assert_eq!(peak(&lost), hourly, "one that cannot be read is not known");
}

#[test]
fn nothing_is_expected_when_an_item_may_not_be_shown() {
    let demand = demand(8, 10, &|_, _| 9e9);
    let shown = |first, last, from: Option<u32>, until: Option<u32>| Shown {
        first: Item(first),
        last: Item(last),
        from: from.map(|hours| TODAY.after(hours)),
        until: until.map(|hours| TODAY.after(hours)),
    };
    let shown = [
        shown(1, 2, None, Some(0)),
        shown(3, 3, None, Some(12)),
        shown(4, 4, Some(24), None),
        shown(5, 5, Some(0), Some(24)),
        shown(6, 6, Some(12), Some(u32::MAX)),
    ];
    let outlook = Outlook { shown: &shown, launches: &[] };
    let expected = forecast(&demand, TODAY, &outlook, &CONFIG);
    let days: Vec<_> = (0..8).map(|item| of(&expected, item) / 1_000_000_000).collect();
    assert_eq!(days, [9, 0, 0, 3, 0, 9, 6, 9]);
    let peaks: Vec<_> = [3, 6]
        .map(|item| {
            let at = expected.binary_search_by_key(&Item(item), |(of, _)| *of).unwrap();
            expected[at].1.peak.0 * 3600 / 8 / 1_000_000_000
        })
        .into();
    assert_eq!(peaks, [2, 5], "3 GB at eight in the morning, 6 GB in the evening");
}

#[test]
fn a_launch_by_hand_counts_until_a_whole_day_was_seen() {
    let begins = TODAY.before(36);
    let series = |item: u32, ago: u32| match (item, ago) {
        (3, 3..) => 0.0,
        (3, 2) => 5e9,
        (3, 1) => 20e9,
        _ => 9e9,
    };
    let launch = Launch { item: Item(3), begin: begins, like: Like::Bytes(Bytes(60_000_000_000)) };
    let launches = [launch.clone()];
    let outlook = Outlook { launches: &launches, shown: &[] };
    let mut known = demand(5, 20, &series);
    let on = |demand: &Demand, day: Hour| {
        of(&forecast::forecast_before(demand, day, day, &outlook, &CONFIG), 3) / 1_000_000_000
    };
    let first = TODAY.before(2 * DAY);
    assert_eq!(on(&known, first.before(DAY)), 0, "the day before");
    assert_eq!(on(&known, first), 40, "from noon on, the evening");
    assert_eq!(on(&known, first.after(DAY)), 60, "a part of a day tells little");
    assert!(on(&known, TODAY) < 40, "{}", on(&known, TODAY));
    for item in [0, 1, 2, 4] {
        known.note(TODAY.after(20), Item(item), Bytes(9_000_000_000));
    }
    let nobody = Launch { item: Item(900), begin: TODAY.after(DAY), ..launch };
    let launches = [nobody];
    let expected =
        forecast(&known, TODAY.after(DAY), &Outlook { launches: &launches, shown: &[] }, &CONFIG);
    assert_eq!(of(&expected, 900), 60_000_000_000, "nobody saw it yet");
}

fn like_first_days(item: u32) -> Like {
    Like::FirstDays(vec![Part::all(Item(item))])
}

#[test]
fn a_launch_like_a_similar_title_has_its_first_days_to_its_own_scale() {
    // Title 3 began 20 days ago, and title 4 begins 2 days ago with twice as many viewers.
    let first_days = [8e9, 16e9, 12e9, 6e9, 5e9, 4e9];
    let began = |days: u32| first_days.get(usize::try_from(days).unwrap()).copied().unwrap_or(3e9);
    let series = |item: u32, ago: u32| match item {
        3 if ago <= 20 => began(20 - ago),
        4 if ago <= 2 => 2.0 * began(2 - ago),
        3 | 4 => 0.0,
        _ => 10e9,
    };
    let demand = demand(60, 30, &series);
    let begin = TODAY.before(2 * DAY);
    let launches = [Launch { item: Item(4), begin, like: like_first_days(3) }];
    let outlook = Outlook { launches: &launches, shown: &[] };
    let on = |day: Hour| {
        let expected = forecast::forecast_before(&demand, day, day, &outlook, &CONFIG);
        of(&expected, 4) / 1_000_000_000
    };
    let flat = |bytes: u64, is: u64| assert!(is.abs_diff(bytes) <= 1, "{is}, not {bytes}");
    flat(8, on(begin));
    flat(32, on(begin.after(DAY)));
    flat(24, on(TODAY));
    assert_eq!(on(begin.before(DAY)), 0);
    let present =
        [Launch { item: Item(9_000), begin: TODAY, like: Like::Present(vec![Part::all(Item(3))]) }];
    let expected = forecast(&demand, TODAY, &Outlook { launches: &present, shown: &[] }, &CONFIG);
    assert_eq!(of(&expected, 9_000), of(&expected, 3), "it takes the place of 3");
    // Two renditions of 3 are one of this: half of 3 and a quarter, and nothing of 8.
    let part = |item, permille| Part { item: Item(item), permille };
    let like = Like::Present(vec![part(3, 500), part(3, 250), part(8, 0)]);
    let parts = [Launch { item: Item(9_000), begin: TODAY, like }];
    let expected_of = forecast(&demand, TODAY, &Outlook { launches: &parts, shown: &[] }, &CONFIG);
    assert!(of(&expected_of, 9_000).abs_diff(of(&expected, 3) * 3 / 4) < 9);
    let unknown = [Launch { item: Item(9_000), begin: TODAY, like: like_first_days(7) }];
    let expected = forecast(&demand, TODAY, &Outlook { launches: &unknown, shown: &[] }, &CONFIG);
    assert_eq!(of(&expected, 9_000), 0, "the first days of 7 are not kept");
}

#[test]
fn a_region_that_nobody_knows_expects_launches_and_nothing_else() {
    let new = Demand::new(0, TODAY, Bounds::default());
    assert_eq!(forecast(&new, TODAY, &NOBODY, &CONFIG), []);
    assert_eq!(backtest(&new, u32::MAX, &[], &[Bytes(1)], &CONFIG).days, []);
    let launches = [Launch { item: Item(1), begin: TODAY, like: Like::Bytes(Bytes(10_000_000)) }];
    let expected = forecast(&new, TODAY, &Outlook { launches: &launches, shown: &[] }, &CONFIG);
    let peak = BitsPerSecond(2_000);
    assert_eq!(expected, [(Item(1), Expected { day: Bytes(10_000_000), peak })]);
}

#[test]
fn a_store_takes_what_has_most_bytes_for_each_byte_of_room() {
    let demand = demand(4, 9, &|item, _| [8e9, 6e9, 5e9, 1e9][usize::try_from(item).unwrap()]);
    let sizes = [(Item(0), 8), (Item(1), 3), (Item(2), 3), (Item(3), 0)];
    let sizes = sizes.map(|(item, size)| (item, Bytes(size)));
    let tested = backtest(&demand, 1, &sizes, &[0, 3, 6, 8, 14].map(Bytes), &CONFIG).total();
    let hits = [0, 6, 11, 11, 19].map(|n| Bytes(n * 1_000_000_000));
    assert_eq!(tested.known.hits, hits, "what does not fit makes way for what does");
    assert_eq!(tested.forecast.hits, hits);
    assert_eq!((tested.came, tested.yesterday.off), (Bytes(20_000_000_000), Bytes(0)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn days_of_whose_hours_nothing_is_known_are_forecast_all_the_same(
        days in prop::collection::vec(1_000_u64..1 << 40, 2..20), empty_hours in any::<bool>(),
    ) {
        let mut demand = Demand::new(0, TODAY, Bounds::default());
        for (ago, bytes) in (1..).zip(&days) {
            let day = TODAY.before(ago * DAY);
            let mut sums = Sums::default();
            sums.add(Item(3), Bytes(*bytes), usize::MAX);
            demand.restore(Span::Day(day), sums);
            for hour in (0..DAY).filter(|_| empty_hours) {
                demand.restore(Span::Hour(day.after(hour)), Sums::default());
            }
        }
        let least = days.iter().min().copied().unwrap_or_default();
        let expected = of(&forecast(&demand, TODAY, &NOBODY, &CONFIG), 3);
        prop_assert!(0 < expected && least / 100 <= expected, "{} of {:?}", expected, days);
    }

    #[test]
    fn forecasts_are_ascending_bounded_and_the_same_each_time(
        notes in prop::collection::vec((0_u32..900, 0_u32..40, 0_u64..1 << 50), 0..200),
        begins in 0_u32..24, ahead in 0_u32..72,
        launches in prop::collection::vec((0_u32..50, 0_u32..200, 0_u32..60), 0..5),
    ) {
        let mut demand = Demand::new(begins, TODAY, Bounds::default());
        let mut most = 0;
        for (ago, item, bytes) in &notes {
            demand.note(TODAY.before(*ago), Item(*item), Bytes(*bytes));
        }
        demand.close(TODAY.after(1));
        for (_, sums) in demand.spans() {
            most = sums.iter().map(|(_, bytes)| bytes.0).fold(most, u64::max);
        }
        let launches: Vec<_> = launches.into_iter().map(|(item, ago, other)| {
            let like = match other % 3 {
                0 => Like::Bytes(Bytes(u64::from(other))),
                1 => like_first_days(other),
                _ => Like::Present(vec![Part::all(Item(other))]),
            };
            Launch { item: Item(item), begin: TODAY.after(48).before(ago), like }
        }).collect();
        let outlook = Outlook { launches: &launches, shown: &[] };
        let day = TODAY.after(ahead);
        let expected = forecast(&demand, day, &outlook, &CONFIG);
        prop_assert!(expected.windows(2).all(|pair| pair[0].0 < pair[1].0));
        for (item, Expected { day, peak }) in &expected {
            prop_assert!(Bytes(0) < *day);
            prop_assert!(peak.over(Hour::LEN) <= Bytes(day.0 + 1), "{:?}: {} {}", item, day, peak);
        }
        if launches.is_empty() {
            let all = expected.iter().all(|(_, of)| of.day.0 <= most.saturating_mul(200) + 200);
            prop_assert!(all, "nothing is expected that has nothing to do with what came");
        }
        let mut again = Demand::new(begins, TODAY.after(1), Bounds::default());
        for (span, sums) in demand.spans() {
            again.restore(span, Sums::decode(&sums.encode()).unwrap());
        }
        prop_assert_eq!(forecast(&again, day, &outlook, &CONFIG), expected);
    }
}
