//! No playback tells of more than it can have felt, and of no less.

use super::*;

#[test]
fn what_players_do_is_told_whole() {
    let loads = [&[900; 30][..], &[9_500], &[300; 200], &[6_200, 100, 100]].concat();
    check(Player { fast: true, ..Player::default() }, &loads);
    check(Player { fast: true, repeats: true, ..Player::default() }, &loads);
    // Many requests a second until the buffer is full.
    let told = check(Player::default(), &[1; 100]);
    assert_eq!((told.media, told.sent_bytes), (100 * SEGMENT.0, 100 * 750_000));
    // As one that is live, with two segments in store and a third that is made meanwhile.
    let told = check(Player::default(), &[&[150, 150][..], &[1_990; 60]].concat());
    assert!(told.buffer_time / told.buffers < Nanos::seconds(5).0, "{told:?}");
}

#[test]
fn who_jumps_while_it_starts_has_watched_no_more_than_the_time_that_passed() {
    let (mut player, mut viewers) = (Player::default(), Viewers::new(CONFIG, "lab"));
    for at in 0..12 {
        let mut request = player.load(Nanos::millis(200), true);
        if at < 4 {
            // Of what came before nothing is kept.
            (player.buffer, player.begun) = (Nanos(0), false);
            request.hints.startup = true;
        }
        viewers.take(&viewer(1), &request);
    }
    let told = sums(&viewers.take_rows(), Dimension::Site, Source::Requests);
    assert_eq!((told.starts, told.stalls), (1, 0));
    assert!(told.start_time + told.watched <= player.now.0, "{told:?}");
    let lost = player.felt.watched.0.saturating_sub(told.watched);
    assert!(lost < 2 * SEGMENT.0, "it is followed from there on: {told:?} {:?}", player.felt);
}

#[test]
fn who_was_in_the_background_goes_on_as_it_was() {
    let (mut player, mut viewers) = (Player::default(), Viewers::new(CONFIG, "lab"));
    for at in 0..60 {
        if at % 20 == 10 {
            player.now = plus(player.now, Nanos::seconds(50));
        }
        let time = if at == 45 { 9_000 } else { 200 };
        viewers.take(&viewer(1), &player.load(Nanos::millis(time), true));
    }
    let told = sums(&viewers.take_rows(), Dimension::Site, Source::Requests);
    let felt = player.felt;
    assert_eq!((told.stalls, felt.stalls), (1, 1));
    assert!(told.stall_time.abs_diff(felt.stalled.0) < 110_000_000, "{told:?} {felt:?}");
    assert!(told.watched.abs_diff(felt.watched.0) < 1_000_000_000, "{told:?} {felt:?}");
}

#[test]
fn of_a_short_film_that_is_loaded_at_once_all_was_watched() {
    let mut viewers = Viewers::new(CONFIG, "lab");
    let mut player = Player { silent: true, ..Player::default() };
    for at in 0..25 {
        if at == 4 {
            // Until then it learns how long a segment is.
            player.pass(Nanos::seconds(2));
        }
        let request = player.load(Nanos::millis(10), true);
        player.buffer = Nanos::seconds(2);
        viewers.take(&viewer(1), &request);
    }
    let told = sums(&viewers.take_rows(), Dimension::Site, Source::Estimate);
    assert!(Nanos::seconds(36).0 <= told.watched, "{told:?}");
}

const DAY: Nanos = Nanos::seconds(86_400);

/// What a stranger says of itself, so often a second for a second.
fn lies(hints: Hints, per_second: u64) -> Sums {
    let mut viewers = Viewers::new(CONFIG, "lab");
    for at in 0..=per_second {
        let at = Instant(0) + Nanos(at * 1_000_000_000 / per_second);
        let (sent, whole, object) = (Bytes(1), true, Object::Video);
        let request = Response { begun: at, ended: at, sent, whole, object, hints };
        viewers.take(&viewer(1), &request);
    }
    // And what makes it all count.
    let last = Hints { buffer: Some(Nanos(0)), duration: Some(Nanos::millis(1)), ..hints };
    let at = Instant(0) + Nanos::seconds(1);
    let (sent, whole, object) = (Bytes(1), true, Object::Video);
    let request = Response { begun: at, ended: at, sent, whole, object, hints: last };
    (0..2).for_each(|_| viewers.take(&viewer(1), &request));
    let rows = viewers.take_rows();
    assert!(!rows.is_empty());
    let mut sum = Sums::default();
    Source::ALL.iter().for_each(|source| sum.add(&sums(&rows, Dimension::Site, *source)));
    sum
}

#[test]
fn one_playback_counts_as_one_however_often_it_says_what() {
    let told = true;
    let (bitrate, measured) = (Some(BitsPerSecond(8_000_000_000)), Some(BitsPerSecond(8_000)));
    // A day with each, and nothing of its buffer until the end.
    let days = Hints { told, duration: Some(DAY), bitrate, measured, ..Hints::default() };
    let told_of = lies(days, 500);
    assert_eq!(told_of.starts, 1);
    assert!(told_of.watched <= Nanos::seconds(2).0, "{told_of:?}");
    assert!(told_of.media <= Nanos::seconds(304).0, "{told_of:?}");
    assert_eq!(told_of.media_bytes, told_of.media, "a byte in a nanosecond");
    assert_eq!((told_of.measures, told_of.measured_bytes), (2, 2_000));
    // A day in store each time, or ever more and starving.
    let full = Hints { buffer: Some(DAY), startup: true, ..days };
    let told_of = lies(Hints { starved: true, ..full }, 500);
    assert!(told_of.buffer_time <= Nanos::seconds(1_200).0, "{told_of:?}");
    assert!(told_of.stalls <= 2 && told_of.stalls_unmeasured <= told_of.stalls, "{told_of:?}");
    let starves = Hints { told, starved: true, buffer: Some(Nanos(0)), ..Hints::default() };
    assert_eq!(lies(starves, 500).stalls, 2);
}

#[test]
fn who_says_nothing_has_watched_no_more_than_time_has_passed_and_a_minute() {
    let mut viewers = Viewers::new(Config { silent_max: Nanos::seconds(600), ..CONFIG }, "lab");
    let mut take = |at_ms| {
        let at = Instant(0) + Nanos::millis(at_ms);
        let (sent, whole, object, hints) = (Bytes(1), true, Object::Video, Hints::default());
        viewers.take(&viewer(1), &Response { begun: at, ended: at, sent, whole, object, hints });
    };
    // Twenty seconds between two, and then five hundred a second; a pause is no piece.
    [0, 400_000, 420_000].into_iter().for_each(&mut take);
    (0..500).for_each(|at| take(420_000 + 2 * at));
    let told = sums(&viewers.take_rows(), Dimension::Site, Source::Estimate);
    assert!(0 < told.watched && told.watched <= Nanos::seconds(421 + 60).0, "{told:?}");
    let mut viewers = Viewers::new(CONFIG, "lab");
    for at_s in [0, 50, 51, 52] {
        let at = Instant(0) + Nanos::seconds(at_s);
        let (sent, whole, object, hints) = (Bytes(1), true, Object::Video, Hints::default());
        viewers.take(&viewer(1), &Response { begun: at, ended: at, sent, whole, object, hints });
    }
    let told = sums(&viewers.take_rows(), Dimension::Site, Source::Estimate);
    assert!(told.watched <= Nanos::seconds(4).0, "{told:?}: a pause teaches nothing");
}

proptest! {
    #[test]
    fn no_playback_tells_of_more_time_than_has_passed(
        said in prop::collection::vec((0u64..1_500, any::<u16>(), any::<u16>()), 0..200)
    ) {
        let mut viewers = Viewers::new(CONFIG, "lab");
        let (mut now, mut told, mut first) = (0_u64, Sums::default(), None);
        for (time, pick, more) in said {
            now += time;
            let spans = [0, 100, 2_000, 3_000, 60_000, 86_400_000];
            let span = |of: u16| Nanos::millis(spans[usize::from(of) % spans.len()]);
            let is = |bit: u16| pick >> bit & 1 == 1;
            let hints = Hints {
                told: true,
                buffer: (is(0) || is(1)).then_some(span(more)),
                startup: is(2),
                starved: is(3),
                duration: (is(4) || is(5)).then_some(span(more >> 8)),
                speed: (is(6) && is(7)).then_some(1500),
                ..Hints::default()
            };
            let object = if is(8) && is(9) { Object::Audio } else { Object::Video };
            let took = u64::from(more) / 16 * u64::from(is(10));
            let begun = Instant(0) + Nanos::millis(now.saturating_sub(took));
            let ended = Instant(0) + Nanos::millis(now);
            let (sent, whole) = (Bytes(1), is(11) || is(12));
            viewers.take(&viewer(1), &Response { begun, ended, sent, whole, object, hints });
            let first: Instant = *first.get_or_insert(begun);
            for (key, sums) in viewers.take_rows().iter() {
                if key.dimension == Dimension::Site {
                    told.add(sums);
                }
            }
            let passed = ended.since(first);
            prop_assert!(told.stall_time + told.watched <= passed.0 + 1_000_000_000, "{told:?}");
            prop_assert!(told.start_time <= 2 * passed.0, "{told:?}");
            prop_assert!(told.stalls <= 1 + passed.as_seconds(), "{told:?}");
            prop_assert!(told.buffers <= 1 + passed.as_seconds() + 1, "{told:?}");
            prop_assert!(told.media <= 4 * passed.0 + 2 * 300_000_000_000, "{told:?}");
        }
    }
}
