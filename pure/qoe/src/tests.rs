//! Playbacks of a player of which all is known, against what is told of them.

mod spent;

use model::cmcd::{Format, Hints, Object, Report, Response, State};
use model::units::{BitsPerSecond, Bytes, Instant, Nanos};
use proptest::prelude::*;

use crate::{
    Config, Dimension, EventConfig, Events, Rows, Source, Sums, Taken, Totals, TotalsConfig,
    Viewer, Viewers,
};

const CONFIG: Config = Config { playbacks_max: 4, silent_max: Nanos::seconds(60), rows_max: 8 };
const SEGMENT: Nanos = Nanos::seconds(2);
const BUFFER_MAX: Nanos = Nanos::seconds(8);

/// What a player felt.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Felt {
    startup: Nanos,
    stalls: u64,
    stalled: Nanos,
    watched: Nanos,
}

/// A player with one buffer, which plays from its first segment on.
#[derive(Default)]
struct Player {
    now: Nanos,
    buffer: Nanos,
    begun: bool,
    waits: bool,
    starved: bool,
    felt: Felt,
    /// It says `bs` with each request while it waits, as some do.
    repeats: bool,
    silent: bool,
    /// It plays at one and a half times the speed, and says so.
    fast: bool,
}

impl Player {
    fn pass(&mut self, time: Nanos) {
        self.now = plus(self.now, time);
        let (parts, of) = if self.fast { (3, 2) } else { (1, 1) };
        let lasts = Nanos(self.buffer.0 * of / parts);
        if !self.begun {
            self.felt.startup = plus(self.felt.startup, time);
        } else if self.waits {
            self.felt.stalled = plus(self.felt.stalled, time);
        } else if lasts < time {
            let dry = Nanos(time.0 - lasts.0);
            self.felt.stalled = plus(self.felt.stalled, dry);
            self.felt.watched = plus(self.felt.watched, lasts);
            self.felt.stalls += 1;
            self.buffer = Nanos(0);
            (self.waits, self.starved) = (true, true);
        } else {
            self.felt.watched = plus(self.felt.watched, time);
            self.buffer = Nanos(self.buffer.0 - time.0 * parts / of);
        }
    }

    /// Asks for a segment and has it after `time`; it plays on with what it has then, if `enough`.
    fn load(&mut self, time: Nanos, enough: bool) -> Response {
        while BUFFER_MAX < plus(self.buffer, SEGMENT) {
            self.pass(Nanos::millis(20));
        }
        let rounded = (self.buffer.as_millis() + 50) / 100 * 100;
        let waits = self.waits || !self.begun;
        let hints = Hints {
            told: true,
            bitrate: Some(BitsPerSecond(3_000_000)),
            buffer: Some(Nanos::millis(rounded)),
            startup: waits,
            starved: self.starved,
            object: Some(Object::Video),
            duration: Some(SEGMENT),
            measured: Some(BitsPerSecond(9_000_000)),
            speed: self.fast.then_some(1500),
            format: Some(Format::Hls),
            ..Hints::default()
        };
        self.starved = self.repeats && self.waits;
        let begun = Instant(self.now.0);
        self.pass(time);
        self.buffer = plus(self.buffer, SEGMENT);
        (self.waits, self.begun) = (self.waits && !enough, self.begun || enough);
        Response {
            begun,
            ended: Instant(self.now.0),
            sent: Bytes(750_000),
            whole: true,
            object: Object::Video,
            hints: if self.silent { Hints::default() } else { hints },
        }
    }
}

impl std::ops::Deref for Player {
    type Target = Felt;
    fn deref(&self) -> &Felt {
        &self.felt
    }
}

fn plus(a: Nanos, b: Nanos) -> Nanos {
    Nanos(a.0 + b.0)
}

fn viewer(key: u128) -> Viewer<'static> {
    Viewer { key, asset: "film-1", network: "10.0.0.0/8", player: "browser" }
}

fn sums(rows: &Rows, dimension: Dimension, source: Source) -> Sums {
    let of = |key: &crate::Key| key.dimension == dimension && key.source == source;
    let mut sum = Sums::default();
    rows.iter().filter(|(key, _)| of(key)).for_each(|(_, sums)| sum.add(sums));
    sum
}

/// Loads segments in these times, in milliseconds, and compares what was felt with what is told.
fn check(mut player: Player, loads: &[u64]) -> Sums {
    let mut viewers = Viewers::new(CONFIG, "lab");
    for time in loads {
        let request = player.load(Nanos::millis(*time), true);
        viewers.take(&viewer(1), &request);
    }
    // Nothing is heard of the last one before the next request.
    let told = sums(&viewers.take_rows(), Dimension::Site, Source::Requests);
    let felt = player.felt;
    assert_eq!((told.playbacks, told.starts, told.stalls), (1, 1, felt.stalls), "{felt:?}");
    // Not what is watched after the last request, and less where `bl` is rounded.
    let least = (felt.watched.0 - felt.watched.0 / 100).saturating_sub(SEGMENT.0);
    let most = felt.watched.0 + 100_000_000;
    assert!(least <= told.watched && told.watched <= most, "{told:?} {felt:?}");
    let startup = told.start_time.abs_diff(felt.startup.0);
    assert!(startup <= 60_000_000, "{told:?} {felt:?}");
    let length = told.stall_time.abs_diff(felt.stalled.0);
    assert!(length <= 110_000_000 * felt.stalls.max(1), "{told:?} {felt:?}");
    told
}

#[test]
fn start_up_and_stalls_are_told_as_they_were_felt() {
    let told = check(Player::default(), &[700, 300, 300, 300, 300, 9_500, 300, 300, 300]);
    assert_eq!(told.stalls, 1);
    assert_eq!(8 * told.media_bytes / told.media_time_s(), 3_000_000);
    assert_eq!((told.cut, told.sent_bytes), (0, 9 * 750_000));
    let two = [400, 100, 100, 6_100, 9_100, 100, 100, 100, 100, 12_345, 100, 100];
    let told = check(Player::default(), &two);
    assert_eq!((told.stalls, told.playbacks_stalled), (3, 1));
    check(Player { repeats: true, ..Player::default() }, &two);
}

impl Sums {
    fn media_time_s(&self) -> u64 {
        self.media / 1_000_000_000
    }
}

#[test]
fn a_stall_over_several_segments_is_one() {
    let mut player = Player { repeats: true, ..Player::default() };
    let mut viewers = Viewers::new(CONFIG, "lab");
    let loads =
        [(500, true), (200, true), (200, true), (9_000, false), (1_500, false), (900, true)];
    for (time, enough) in loads.into_iter().chain([(100, true); 4]) {
        let request = player.load(Nanos::millis(time), enough);
        viewers.take(&viewer(1), &request);
    }
    let told = sums(&viewers.take_rows(), Dimension::Asset, Source::Requests);
    assert_eq!((told.stalls, player.stalls), (1, 1));
    assert!(told.stall_time.abs_diff(player.stalled.0) < 150_000_000, "{told:?} {:?}", player.felt);
}

#[test]
fn a_pause_and_a_jump_are_no_stalls() {
    let mut player = Player::default();
    let mut viewers = Viewers::new(CONFIG, "lab");
    for at in 0..12 {
        if at == 5 {
            player.now = plus(player.now, Nanos::seconds(30)); // paused
        }
        if at == 8 {
            player.buffer = Nanos(0); // jumped
            (player.starved, player.waits) = (true, true); // hls.js says so
        }
        let request = player.load(Nanos::millis(200), true);
        viewers.take(&viewer(1), &request);
    }
    let told = sums(&viewers.take_rows(), Dimension::Player, Source::Requests);
    assert_eq!((told.stalls, told.stall_time), (0, 0), "{told:?}");
}

#[test]
fn audio_is_followed_beside_video_and_one_stall_told_by_both_is_one() {
    let mut player = Player::default();
    let mut viewers = Viewers::new(CONFIG, "lab");
    for time in [500, 100, 100, 9_000, 100, 100, 100, 100] {
        let mut video = player.load(Nanos::millis(time), true);
        let mut audio = video;
        audio.hints.object = Some(Object::Audio);
        // dash.js says it with each of them; the audio's request is the later one.
        audio.begun = Instant(audio.begun.0 + 1_000_000);
        video.ended = video.ended.max(audio.begun);
        audio.ended = audio.ended.max(audio.begun);
        viewers.take(&viewer(1), &video);
        viewers.take(&viewer(1), &audio);
    }
    let told = sums(&viewers.take_rows(), Dimension::Site, Source::Requests);
    assert_eq!((told.stalls, told.starts), (1, 1));
    assert!(told.stall_time.abs_diff(player.stalled.0) < 110_000_000, "{told:?}");
}

#[test]
fn a_stall_that_audio_tells_first_is_one_too() {
    let mut player = Player::default();
    let mut viewers = Viewers::new(CONFIG, "lab");
    for time in [500, 100, 100, 9_000, 100, 100, 100, 100] {
        let video = player.load(Nanos::millis(time), true);
        let mut audio = video;
        (audio.hints.object, audio.ended) = (Some(Object::Audio), audio.begun);
        viewers.take(&viewer(1), &audio);
        viewers.take(&viewer(1), &video);
    }
    let told = sums(&viewers.take_rows(), Dimension::Site, Source::Requests);
    assert_eq!((told.stalls, player.stalls), (1, 1));
}

#[test]
fn a_pause_right_after_a_stall_adds_little() {
    let mut player = Player::default();
    let mut viewers = Viewers::new(CONFIG, "lab");
    for (at, time) in [500, 100, 100, 9_000, 100, 100, 100].into_iter().enumerate() {
        let mut request = player.load(Nanos::millis(time), true);
        // hls.js asks before the picture moves again.
        request.hints.startup |= at == 4;
        viewers.take(&viewer(1), &request);
        if at == 4 {
            player.now = plus(player.now, Nanos::seconds(600));
        }
    }
    let told = sums(&viewers.take_rows(), Dimension::Site, Source::Requests);
    assert_eq!(told.stalls, 1);
    assert!(told.stall_time.abs_diff(player.stalled.0) < 500_000_000, "{told:?}");
}

#[test]
fn who_came_from_another_appliance_has_begun_there() {
    let mut player = Player::default();
    let mut viewers = Viewers::new(CONFIG, "lab");
    for at in 0..8 {
        let time = if at == 3 { 11_000 } else { 200 };
        let request = player.load(Nanos::millis(time), true);
        if 4 <= at {
            viewers.take(&viewer(1), &request);
        }
    }
    let told = sums(&viewers.take_rows(), Dimension::Site, Source::Requests);
    assert_eq!((told.starts, told.stalls, told.stall_time), (0, 1, 0), "the length is not known");
    assert_eq!(told.stalls_unmeasured, 1);
}

#[test]
fn a_playback_that_moves_within_a_stall_is_one_and_its_stall_is_one() {
    for apart in [false, true] {
        let mut player = Player::default();
        let (mut here, mut there) = (Viewers::new(CONFIG, "lab"), Viewers::new(CONFIG, "lab"));
        let mut stalled_there = Nanos(0);
        for at in 0..10 {
            if at == 4 {
                // What does not come is given up.
                player.pass(Nanos::seconds(9));
            }
            let moved = player.felt.stalled;
            let mut request = player.load(Nanos::millis(if at == 4 { 700 } else { 200 }), true);
            if at == 4 {
                // A small piece is in the kernel's hands at once.
                request.ended = request.begun + Nanos::millis(1);
                stalled_there = Nanos(player.felt.stalled.0 - moved.0);
            }
            let viewers = if at < 4 { &mut here } else { &mut there };
            if apart {
                let mut audio = request;
                (audio.hints.object, audio.ended) = (Some(Object::Audio), audio.begun);
                viewers.take(&viewer(1), &audio);
            }
            viewers.take(&viewer(1), &request);
        }
        let here = sums(&here.take_rows(), Dimension::Site, Source::Requests);
        let there = sums(&there.take_rows(), Dimension::Site, Source::Requests);
        assert_eq!((here.playbacks, here.moved, here.starts, here.stalls), (1, 0, 1, 0));
        assert_eq!((there.playbacks, there.moved, there.starts), (0, 1, 0), "apart: {apart}");
        assert_eq!((there.stalls, there.stalls_unmeasured, player.stalls), (1, 1, 1));
        assert!(there.stall_time.abs_diff(stalled_there.0) < 110_000_000, "{there:?}");
    }
}

#[test]
fn who_comes_back_did_not_stall_for_as_long_as_it_was_away() {
    let mut player = Player::default();
    let mut viewers = Viewers::new(CONFIG, "lab");
    for at in 0..20 {
        let starves = at == 14;
        if starves {
            // The other appliance failed it.
            player.pass(Nanos::seconds(9));
        }
        let request = player.load(Nanos::millis(200), true);
        if !(4..14).contains(&at) {
            viewers.take(&viewer(1), &request);
        }
    }
    let told = sums(&viewers.take_rows(), Dimension::Site, Source::Requests);
    assert_eq!((told.playbacks, told.moved, told.stalls, player.stalls), (1, 0, 1, 1));
    assert_eq!(told.stalls_unmeasured, 1);
    assert!(told.stall_time < 500_000_000, "{told:?} {:?}", player.felt);
}

#[test]
fn a_pause_within_a_stall_is_no_stall_once_there_is_enough_to_play() {
    let mut player = Player::default();
    let mut viewers = Viewers::new(CONFIG, "lab");
    for (at, time) in [300, 300, 300, 9_000, 300, 300, 300].into_iter().enumerate() {
        let request = player.load(Nanos::millis(time), at < 3);
        viewers.take(&viewer(1), &request);
    }
    // The buffer is full, and the viewer away; the player says yet that it waits.
    player.pass(Nanos::seconds(50));
    player.waits = false;
    for _ in 0..3 {
        viewers.take(&viewer(1), &player.load(Nanos::millis(300), true));
    }
    let told = sums(&viewers.take_rows(), Dimension::Site, Source::Requests);
    assert_eq!((told.stalls, player.stalls), (1, 1));
    let until_enough = Nanos::millis(9_000 - 5_400 + 3 * 300);
    assert!(told.stall_time.abs_diff(until_enough.0) < 400_000_000, "{told:?}");
}

#[test]
fn of_who_says_nothing_a_stall_is_guessed() {
    let mut player = Player { silent: true, ..Player::default() };
    let mut viewers = Viewers::new(CONFIG, "lab");
    for time in [300, 300, 300, 300, 300, 300, 300, 300, 15_000, 300, 300, 300] {
        let request = player.load(Nanos::millis(time), true);
        viewers.take(&viewer(1), &request);
    }
    let rows = viewers.take_rows();
    assert_eq!(sums(&rows, Dimension::Site, Source::Requests), Sums::default());
    let told = sums(&rows, Dimension::Site, Source::Estimate);
    assert_eq!((told.playbacks, told.stalls, player.stalls), (1, 1, 1));
    // By as much as its buffer is longer than two pieces: it is an estimate.
    assert!(told.stall_time.abs_diff(player.stalled.0) <= 4_000_000_000, "{told:?}");
}

#[test]
fn a_full_table_follows_no_newcomer_until_somebody_is_over() {
    let mut viewers = Viewers::new(CONFIG, "lab");
    let ask = |viewers: &mut Viewers, key, at_s| {
        let mut player = Player { now: Nanos::seconds(at_s), ..Player::default() };
        viewers.take(&viewer(key), &player.load(Nanos::millis(10), true));
    };
    (1..=4).for_each(|key| ask(&mut viewers, key, 1));
    ask(&mut viewers, 5, 2);
    assert_eq!((viewers.followed(), viewers.unfollowed()), (4, 1));
    ask(&mut viewers, 1, 50);
    ask(&mut viewers, 5, 70);
    assert_eq!((viewers.followed(), viewers.unfollowed()), (2, 1), "1 was heard of, 5 is new");
}

#[test]
fn beyond_their_number_rows_are_of_others() {
    let mut viewers = Viewers::new(Config { playbacks_max: 100, ..CONFIG }, "lab");
    for key in 0..20 {
        let network = format!("10.{key}.0.0/16");
        let request = Player::default().load(Nanos::millis(10), true);
        viewers.take(&Viewer { network: &network, ..viewer(key) }, &request);
    }
    let rows = viewers.take_rows();
    let networks: Vec<_> =
        rows.iter().filter(|(key, _)| key.dimension == Dimension::Network).collect();
    assert_eq!(networks.len(), 9);
    let of_others = networks.iter().find(|(key, _)| &*key.name == crate::OTHERS).unwrap();
    assert_eq!(of_others.1.playbacks, 12);
    assert!(viewers.take_rows().is_empty());
}

const EVENTS: EventConfig = EventConfig {
    playbacks_max: 2,
    silent_max: Nanos::seconds(60),
    rows_max: 8,
    sites_max: 8,
    lines_max: 8,
    line_every: Nanos::seconds(1),
};

fn line(state: State, at_ms: u64) -> Report {
    let at = Some(Nanos::millis(1_700_000_000_000 + at_ms));
    Report { state: Some(state), at, ..Report::default() }
}

#[test]
fn events_tell_exactly() {
    let mut events = Events::new(EVENTS);
    use State::{Over, Paused, Playing, Rebuffering, Seeking, Starting};
    let lines = [
        (Starting, 0),
        (Playing, 830),
        (Rebuffering, 10_000),
        (Playing, 12_345),
        (Seeking, 20_000),
        (Rebuffering, 20_100), // for the jump
        (Playing, 20_900),
        (Paused, 30_000),
        (Playing, 50_000),
        (Over, 60_000),
    ];
    for (state, at_ms) in lines {
        let now = Instant(at_ms * 1_000_000);
        let taken = events.take(now, &viewer(1), "lab", &[line(state, at_ms)]);
        assert_eq!(taken, Taken::Yes);
    }
    let told = sums(&events.take_rows(), Dimension::Site, Source::Events);
    assert_eq!((told.playbacks, told.starts, told.stalls), (1, 1, 1));
    assert_eq!(told.start_time, 830_000_000);
    assert_eq!(told.stall_time, 2_345_000_000);
    assert_eq!(told.watched, (9_170 + 7_655 + 9_100 + 10_000) * 1_000_000);
}

#[test]
fn a_player_s_own_word_of_its_start_counts_and_no_time_is_longer_than_it_was_heard_of() {
    let mut events = Events::new(EVENTS);
    let now = Instant(0);
    let mut playing = line(State::Playing, 900);
    playing.start_delay = Some(Nanos::millis(777));
    let late = [line(State::Rebuffering, 1_000), line(State::Playing, 100_000_000_000)];
    events.take(now, &viewer(1), "lab", &[playing]);
    events.take(now, &viewer(1), "lab", &late);
    let told = sums(&events.take_rows(), Dimension::Site, Source::Events);
    assert_eq!((told.start_time, told.stalls), (777_000_000, 1));
    assert_eq!(told.stall_time, 59_900_000_000, "a minute of slack since its first word");
    // All of it together.
    let more = (1..8).map(|at| {
        let state = if at % 2 == 0 { State::Playing } else { State::Rebuffering };
        line(state, 100_000_000_000 + at * 60_000)
    });
    let more: Vec<_> = more.collect();
    assert_eq!(events.take(Instant(5_000_000_000), &viewer(1), "lab", &more[..5]), Taken::Yes);
    let told = sums(&events.take_rows(), Dimension::Site, Source::Events);
    assert_eq!(told.stall_time + told.watched, 5_000_000_000);
}

#[test]
fn a_report_that_comes_again_counts_once() {
    let mut events = Events::new(EVENTS);
    let now = Instant(0);
    let mut take = |lines: &[Report]| {
        assert_eq!(events.take(now, &viewer(1), "lab", lines), Taken::Yes);
        sums(&events.take_rows(), Dimension::Site, Source::Events).stalls
    };
    let numbered = |state, at_ms, number| Report { number: Some(number), ..line(state, at_ms) };
    let stall = [line(State::Playing, 0), line(State::Rebuffering, 10), line(State::Playing, 20)];
    assert_eq!((take(&stall), take(&stall)), (1, 0));
    // Of one millisecond, by their numbers.
    let stall = [
        numbered(State::Playing, 30, 7),
        numbered(State::Rebuffering, 30, 8),
        numbered(State::Playing, 30, 9),
    ];
    let mut events = Events::new(EVENTS);
    let mut take = |lines: &[Report]| {
        assert_eq!(events.take(now, &viewer(1), "lab", lines), Taken::Yes);
        sums(&events.take_rows(), Dimension::Site, Source::Events).stalls
    };
    assert_eq!((take(&stall), take(&stall)), (1, 0));
    // It starts again.
    let stall = [numbered(State::Rebuffering, 40, 1), numbered(State::Playing, 50, 2)];
    assert_eq!(take(&stall), 1);
}

#[test]
fn who_says_too_much_and_who_is_too_many_is_told_so() {
    let mut events = Events::new(EVENTS);
    let mut ask = |key, at_s: u64| {
        let lines = [line(State::Playing, 1)];
        events.take(Instant(at_s * 1_000_000_000), &viewer(key), "lab", &lines)
    };
    assert!((0..8).all(|_| ask(1, 0) == Taken::Yes));
    assert_eq!(ask(1, 0), Taken::TooMany);
    assert_eq!((ask(1, 1), ask(1, 1)), (Taken::Yes, Taken::TooMany));
    assert_eq!((ask(2, 1), ask(3, 1)), (Taken::Yes, Taken::Full));
    assert_eq!(ask(3, 100), Taken::Yes, "the others are over");
}

#[test]
fn a_report_is_weighed_whole() {
    let mut events = Events::new(EVENTS);
    let lines: Vec<_> = (0..6).map(|at| line(State::Playing, at)).collect();
    assert_eq!(events.take(Instant(0), &viewer(1), "lab", &lines), Taken::Yes);
    let mut stall = [line(State::Rebuffering, 6), line(State::Playing, 7), line(State::Paused, 8)];
    assert_eq!(events.take(Instant(0), &viewer(1), "lab", &stall), Taken::TooMany);
    let told = sums(&events.take_rows(), Dimension::Site, Source::Events);
    assert_eq!(told.stalls, 0, "nothing of it was taken");
    let later = Instant(1_000_000_000);
    assert_eq!(events.take(later, &viewer(1), "lab", &stall), Taken::Yes);
    let told = sums(&events.take_rows(), Dimension::Site, Source::Events);
    assert_eq!(told.stalls, 1);
    stall[0].at = None;
    let many = vec![stall[0]; 9];
    assert_eq!(events.take(later, &viewer(2), "lab", &many), Taken::TooMany);
}

#[test]
fn control_sums_up_and_remembers_minutes() {
    let mut totals = Totals::new(TotalsConfig { rows_max: 2, sites_max: 2 });
    let key = |dimension, name: &str| crate::Key {
        dimension,
        name: name.into(),
        source: Source::Requests,
    };
    let minute = |n: u64| Instant(n * 60_000_000_000);
    let sums = Sums {
        stalls: 5,
        playbacks_stalled: 5,
        stall_time: 5 << 30,
        watched: 100 << 30,
        ..Sums::default()
    };
    let site = key(Dimension::Site, "lab");
    totals.add(minute(0), &site, &sums);
    totals.add(minute(3), &site, &sums);
    let row = |totals: &Totals, wanted: &crate::Key| {
        totals.rows_after(None).find(|(key, _)| *key == wanted).map(|(_, row)| row.clone())
    };
    let minutes = row(&totals, &site).unwrap().minutes(minute(4)).map(|minute| minute.stalls);
    assert_eq!(minutes, [0, 5, 0, 0, 5, 0, 0, 0, 0, 0]);
    assert_eq!(row(&totals, &site).unwrap().recent(minute(12)).stalls, 5);
    assert_eq!(row(&totals, &site).unwrap().total.stalls, 10);
    assert_eq!(totals.warnings(minute(3)).len(), 1);
    for asset in ["a", "b", "c"] {
        totals.add(minute(0), &key(Dimension::Asset, asset), &sums);
    }
    assert!(row(&totals, &key(Dimension::Asset, "c")).is_none());
    assert!(row(&totals, &key(Dimension::Asset, crate::OTHERS)).is_some());
    assert_eq!(totals.crowded(), 1);
    totals.forget(minute(20), |_| true);
    assert_eq!(totals.rows_after(None).count(), 1, "sites stay");
    totals.add(minute(20), &key(Dimension::Asset, "c"), &sums);
    assert!(row(&totals, &key(Dimension::Asset, "c")).is_some(), "there is room again");
    let guess = crate::Key { source: Source::Estimate, ..key(Dimension::Site, "other") };
    totals.add(minute(20), &guess, &sums);
    assert!(totals.warnings(minute(20)).iter().all(|(site, _)| &**site != "other"));
}

#[test]
fn a_site_is_warned_of_when_several_stall_and_not_of_one_who_does_often() {
    let config = EventConfig { playbacks_max: 3, lines_max: 60, ..EVENTS };
    let (mut events, now) = (Events::new(config), Instant(0));
    let mut totals = Totals::new(TotalsConfig { rows_max: 9, sites_max: 2 });
    let (dimension, source) = (Dimension::Site, Source::Requests);
    let others = Sums { watched: 100 << 30, ..Sums::default() };
    totals.add(now, &crate::Key { dimension, name: "lab".into(), source }, &others);
    let states = [State::Playing, State::Rebuffering];
    let often: Vec<_> =
        (0..60).zip(states.into_iter().cycle()).map(|(at, of)| line(of, 1000 * at)).collect();
    let mut warned = |key| {
        assert_eq!(events.take(now, &viewer(key), "lab", &often), Taken::Yes);
        for (key, sums) in events.take_rows().iter() {
            totals.add(now, key, sums);
        }
        totals.warnings(now).iter().map(|(_, warning)| warning.stalls).sum::<u64>()
    };
    assert_eq!([1, 2, 3].map(&mut warned), [0, 0, 90]);
}

#[test]
fn each_site_has_its_rows_and_its_warning_until_it_is_there_no_more() {
    let mut totals = Totals::new(TotalsConfig { rows_max: 1, sites_max: 50 });
    let stalls = Sums {
        stalls: 5,
        playbacks_stalled: 5,
        stall_time: 5 << 30,
        watched: 100 << 30,
        ..Sums::default()
    };
    let now = Instant(0);
    for site in 0..50 {
        for source in Source::ALL {
            let name = format!("s{site}").into();
            totals.add(now, &crate::Key { dimension: Dimension::Site, name, source }, &stalls);
        }
    }
    assert_eq!((totals.rows_after(None).count(), totals.crowded()), (150, 0));
    let warned: Vec<_> = totals.warnings(now).into_iter().map(|(site, _)| site).collect();
    assert_eq!(warned.len(), 50, "none is looked at with others: {warned:?}");
    totals.forget(now, |site| site != "s7");
    assert_eq!((totals.rows_after(None).count(), totals.warnings(now).len()), (147, 49));
}

#[test]
fn a_sum_that_is_too_large_to_be_counted_on_begins_anew() {
    let mut totals = Totals::new(TotalsConfig { rows_max: 1, sites_max: 1 });
    let (dimension, source) = (Dimension::Player, Source::Requests);
    let key = crate::Key { dimension, name: "avplayer".into(), source };
    let much = Sums { stalls: 1, watched: u64::MAX - 5, ..Sums::default() };
    totals.add(Instant(0), &key, &much);
    totals.add(Instant(0), &key, &Sums { stalls: 1, watched: 6, ..Sums::default() });
    let (_, row) = totals.rows_after(None).next().unwrap();
    assert_eq!((row.total.stalls, row.total.watched), (1, 6));
}

#[test]
fn sums_are_found_by_their_names() {
    let sums = Sums { stalls: 3, watched: 7, ..Sums::default() };
    let value = |name: &str| match name {
        "stalls_total" => 3,
        "watched_seconds_total" => 7,
        _ => 0,
    };
    assert_eq!(Sums::named(value), sums);
}

proptest! {
    #[test]
    fn any_player_s_stalls_are_told(loads in prop::collection::vec(20u64..9_000, 3..40)) {
        let mut player = Player::default();
        let mut viewers = Viewers::new(CONFIG, "lab");
        // What was felt by the last request: what comes after it is not told yet.
        let mut felt = Felt::default();
        for time in &loads {
            let request = player.load(Nanos::millis(*time), true);
            viewers.take(&viewer(1), &request);
        }
        felt.stalls += player.stalls;
        player.starved = false;
        let last = player.load(Nanos::millis(10), true);
        viewers.take(&viewer(1), &last);
        let told = sums(&viewers.take_rows(), Dimension::Site, Source::Requests);
        prop_assert!(felt.stalls.abs_diff(told.stalls) <= 1);
        prop_assert!(told.stall_time <= player.stalled.0 + 110_000_000 * (told.stalls + 1));
    }

    #[test]
    fn nothing_that_players_say_breaks_it(
        said in prop::collection::vec((any::<u64>(), 0u64..1 << 40, any::<[u8; 4]>()), 0..60)
    ) {
        let (mut viewers, mut events) = (Viewers::new(CONFIG, "lab"), Events::new(EVENTS));
        let mut now = 0_u64;
        for (number, time, [a, b, c, d]) in said {
            now += time;
            let object = [Object::Video, Object::Audio, Object::Other][usize::from(a % 3)];
            let hints = Hints {
                told: b & 1 == 0,
                bitrate: Some(BitsPerSecond(number % 10_000_000_000)),
                buffer: (b & 2 == 0).then_some(Nanos(number % (86_400 * 1_000_000_000))),
                startup: b & 4 == 0,
                starved: b & 8 == 0,
                duration: (b & 16 == 0).then_some(Nanos(number % (86_400 * 1_000_000_000))),
                speed: (b & 32 == 0).then_some(u32::from(d) * 300),
                object: (b & 64 == 0).then_some(object),
                ..Hints::default()
            };
            let (begun, ended) = (Instant(now.saturating_sub(number % (1 << 35))), Instant(now));
            let (sent, whole) = (Bytes(time), c & 1 == 0);
            let request = Response { begun, ended, sent, whole, object, hints };
            viewers.take(&viewer(u128::from(c % 6)), &request);
            let states = [State::Starting, State::Playing, State::Rebuffering, State::Over];
            let state = Some(states[usize::from(d % 4)]);
            let at = (c & 2 == 0).then_some(Nanos(number));
            let failed = d & 64 == 0;
            let number = (c & 4 == 0).then_some(time);
            let report = Report { hints, state, at, number, start_delay: None, failed };
            events.take(Instant(now), &viewer(u128::from(c % 4)), "lab", &[report; 2]);
        }
        prop_assert!(viewers.followed() <= 4 && events.followed() <= 2);
    }
}
