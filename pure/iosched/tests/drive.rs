//! What a drive's scheduler does, with a clock moved by hand and a drive of arithmetic.
#![expect(clippy::unwrap_used, reason = "tests")]

use iosched::Full;
use iosched::drive::{Class, Config, Drive, Limit, Policy, Ticket};
use iosched::gate::Gate;
use iosched::governor;
use iosched::tally::Tally;
use model::units::{Bytes, Instant, Nanos};
use proptest::prelude::*;

const CHUNK: Bytes = Bytes::kib(256);

const TARGET: Nanos = Nanos::millis(5);

const AIM: governor::Config = governor::Config::MEASURED;

fn drive(policy: Policy) -> Drive {
    Drive::new(config(policy), Instant(0))
}

/// As SATA drives are: nothing beside a delete.
fn serial_drive(policy: Policy) -> Drive {
    Drive::new(Config { deletes_alone: true, ..config(policy) }, Instant(0))
}

fn config(policy: Policy) -> Config {
    Config {
        depth: 8,
        fill_depth: 4,
        queue_len_max: 16,
        target: TARGET,
        scrub_rate: Bytes(1_000_000),
        deletes_alone: false,
        policy,
    }
}

/// A read that took so long, beside the target.
fn met(span: Nanos) -> Tally {
    Tally::of(TARGET, span, span)
}

fn ms(n: u64) -> Instant {
    Instant(Nanos::millis(n).0)
}

fn submit(drive: &mut Drive, at: Instant, class: Class, io: u64) {
    drive.submit(at, class, io, CHUNK, at).unwrap();
}

/// All that may go at this moment.
fn polled(drive: &mut Drive, at: Instant) -> Vec<(Ticket, u64)> {
    std::iter::from_fn(|| drive.poll(at)).collect()
}

fn names(polled: &[(Ticket, u64)]) -> Vec<u64> {
    polled.iter().map(|(_, io)| *io).collect()
}

#[test]
fn reads_go_by_deadline_and_before_all_else() {
    let mut drive = drive(Policy::Off);
    submit(&mut drive, ms(0), Class::Scrub, 1);
    submit(&mut drive, ms(0), Class::Delete, 2);
    submit(&mut drive, ms(0), Class::Fill, 3);
    for (io, deadline) in [(4, 30), (5, 10), (6, 20), (7, 10)] {
        drive.submit(ms(0), Class::Serve, io, CHUNK, ms(deadline)).unwrap();
    }
    assert_eq!(names(&polled(&mut drive, ms(0))), [5, 7, 6, 4, 3, 2, 1]);
}

#[test]
fn a_rate_lets_each_write_go_at_its_own_time_and_makes_no_bursts() {
    let rate = Bytes(CHUNK.0 * 100);
    let mut drive = drive(Policy::Static(Limit::Bandwidth(rate)));
    for io in 0..10 {
        submit(&mut drive, ms(0), Class::Fill, io);
    }
    let mut times = Vec::new();
    let mut now = ms(0);
    while times.len() < 10 {
        for (ticket, _) in polled(&mut drive, now) {
            times.push(now.0 / 1_000_000);
            drive.complete(now, ticket);
        }
        now = drive.deadline().unwrap_or(now);
    }
    // One each 10 ms; the first has a millisecond of credit, no more.
    assert_eq!(times, [0, 10, 20, 30, 40, 50, 60, 70, 80, 90]);
    for io in 0..4 {
        submit(&mut drive, ms(500), Class::Fill, io);
    }
    assert_eq!(polled(&mut drive, ms(500)).len(), 1, "what was not used is not made up for");
    assert_eq!(polled(&mut drive, ms(508)).len(), 0);
    assert_eq!(polled(&mut drive, ms(509)).len(), 1);
}

#[test]
fn writes_are_bounded_by_depth_as_told() {
    let mut drive = drive(Policy::Static(Limit::Depth(2)));
    (0..6).for_each(|io| submit(&mut drive, ms(0), Class::Fill, io));
    assert_eq!(polled(&mut drive, ms(0)).len(), 2);
}

#[test]
fn deletes_take_a_twentieth_of_the_time() {
    let mut drive = drive(Policy::Static(Limit::Depth(4)));
    for io in 0..3 {
        submit(&mut drive, ms(0), Class::Delete, io);
    }
    let first = polled(&mut drive, ms(0));
    assert_eq!(first.len(), 1, "one at a time");
    drive.complete(ms(3), first[0].0);
    assert_eq!(drive.deadline(), Some(ms(3 + 147)), "a fiftieth while few wait");
    for io in 3..15 {
        submit(&mut drive, ms(4), Class::Delete, io);
    }
    let second = polled(&mut drive, ms(150));
    drive.complete(ms(153), second[0].0);
    assert!(polled(&mut drive, ms(153 + 56)).is_empty());
    assert_eq!(polled(&mut drive, ms(153 + 57)).len(), 1);
}

#[test]
fn a_delete_that_took_as_long_as_its_drive_hung_puts_the_next_off_by_a_minute_at_most() {
    let mut drive = drive(Policy::Static(Limit::Depth(1)));
    submit(&mut drive, ms(0), Class::Delete, 1);
    let begun = polled(&mut drive, ms(0));
    submit(&mut drive, ms(1), Class::Delete, 2);
    // A tenth of a second is spaced as ever: 49 times as long.
    drive.complete(ms(100), begun[0].0);
    assert!(polled(&mut drive, ms(4_999)).is_empty());
    let begun = polled(&mut drive, ms(5_000));
    assert_eq!(names(&begun), [2]);
    submit(&mut drive, ms(5_001), Class::Delete, 3);
    drive.complete(ms(20_000), begun[0].0);
    assert!(polled(&mut drive, ms(79_999)).is_empty());
    assert_eq!(names(&polled(&mut drive, ms(80_000))), [3]);
}

#[test]
fn deletes_follow_each_other_where_nobody_reads() {
    let mut gate = Gate::new(config(Policy::Governed(AIM)), ms(0));
    for at in [200, 400, 600] {
        gate.hear(ms(at), []);
    }
    for at in 600..610 {
        let delete = gate.ask(ms(at), Class::Delete, Bytes::ZERO).unwrap();
        assert!(gate.advance(ms(at)), "in the {at}th millisecond");
        let ticket = gate.taken(delete).unwrap();
        gate.complete(ms(at + 1), ticket);
    }
}

#[test]
fn a_delete_that_must_be_alone_waits_for_silence_and_writes_wait_for_it() {
    let mut drive = serial_drive(Policy::Static(Limit::Depth(4)));
    submit(&mut drive, ms(0), Class::Fill, 1);
    let write = polled(&mut drive, ms(0))[0].0;
    submit(&mut drive, ms(1), Class::Delete, 2);
    submit(&mut drive, ms(1), Class::Fill, 3);
    assert!(polled(&mut drive, ms(1)).is_empty(), "a write that goes would put the delete off");
    assert_eq!(drive.deadline(), Some(ms(101)), "it does not wait for ever");
    drive.complete(ms(2), write);
    let delete = polled(&mut drive, ms(2));
    assert_eq!(names(&delete), [2]);
    assert!(polled(&mut drive, ms(3)).is_empty());
    assert_eq!(drive.deadline(), None, "only its end helps");
    submit(&mut drive, ms(3), Class::Serve, 4);
    assert_eq!(names(&polled(&mut drive, ms(3))), [4], "viewers never wait here");
    drive.complete(ms(5), delete[0].0);
    assert_eq!(names(&polled(&mut drive, ms(5))), [3]);
}

#[test]
fn a_delete_goes_beside_reads_that_never_end_once_it_has_waited_long_enough() {
    let mut drive = serial_drive(Policy::Static(Limit::Depth(4)));
    // Long idle: it is from when the delete came that it waits.
    submit(&mut drive, ms(5_000), Class::Serve, 1);
    assert_eq!(polled(&mut drive, ms(5_000)).len(), 1);
    submit(&mut drive, ms(5_000), Class::Delete, 2);
    assert!(polled(&mut drive, ms(5_099)).is_empty());
    assert_eq!(names(&polled(&mut drive, ms(5_100))), [2]);
}

#[test]
fn an_old_read_holds_writes_down_to_the_floor_and_a_hung_one_stops_them() {
    let mut drive = drive(Policy::Governed(AIM));
    submit(&mut drive, ms(0), Class::Serve, 1);
    let read = polled(&mut drive, ms(0));
    submit(&mut drive, ms(0), Class::Fill, 2);
    submit(&mut drive, ms(0), Class::Fill, 3);
    assert_eq!(names(&polled(&mut drive, ms(1))), [2], "a fifth of the target is not old");
    // 256 KiB at the floor of 5 MB/s take 52.4 ms; at the rate, 13.1 ms.
    assert!(polled(&mut drive, ms(8)).is_empty());
    assert!(polled(&mut drive, ms(900)).is_empty(), "no completion told anybody");
    assert_eq!(drive.deadline(), None);
    drive.complete(ms(901), read[0].0);
    assert_eq!(names(&polled(&mut drive, ms(901))), [3]);
    let governor = governor::Governor::new(AIM, ms(0));
    assert_eq!(governor.hold(ms(1), Nanos::millis(1), TARGET), None);
    let mut wrote = governor.clone();
    wrote.wrote(ms(0), Bytes(50_000));
    assert_eq!(wrote.hold(ms(1), Nanos::millis(2), TARGET), Some(ms(10)), "the floor is granted");
    assert_eq!(wrote.hold(ms(10), Nanos::millis(2), TARGET), None);
    assert_eq!(wrote.hold(ms(10), Nanos::millis(11), TARGET), Some(Instant(u64::MAX)));
}

#[test]
fn a_flush_does_not_give_the_floor_twice() {
    let mut governor = governor::Governor::new(AIM, ms(0));
    governor.wrote(ms(100), CHUNK);
    governor.wrote(ms(114), Bytes::ZERO);
    // 256 KiB at the floor of 5 MB/s.
    let due = Instant(ms(100).0 + 52_428_800);
    assert_eq!(governor.hold(ms(116), Nanos::millis(2), TARGET), Some(due));
    governor.wrote(ms(200), Bytes(1 << 44));
    assert!(ms(1_000_000) < governor.hold(ms(201), Nanos::millis(2), TARGET).unwrap());
}

/// Ten seconds of 700 reads per second, one in 50 of them late beside a delete, and writes.
fn late_beside(mut drive: Drive) -> Bytes {
    for at in 0..10_000 {
        let now = ms(at);
        while drive.submit(now, Class::Fill, 2, CHUNK, now).is_ok() {}
        for (ticket, _) in polled(&mut drive, now) {
            drive.complete(now, ticket);
        }
        if at % 100 == 0 {
            submit(&mut drive, now, Class::Delete, 3);
        }
        let delete = polled(&mut drive, now);
        for io in 0..2 {
            submit(&mut drive, now, Class::Serve, io);
        }
        let late = !delete.is_empty();
        let span = if late { Nanos::millis(6) } else { Nanos(100_000) };
        for (ticket, _) in polled(&mut drive, now) {
            drive.complete(now + span, ticket);
        }
        for (ticket, _) in delete {
            drive.complete(now + span, ticket);
        }
    }
    drive.load().fill_granted.unwrap()
}

#[test]
fn what_a_delete_does_to_reads_is_not_blamed_on_writes() {
    let alone = late_beside(serial_drive(Policy::Governed(AIM)));
    let beside = late_beside(drive(Policy::Governed(AIM)));
    assert!(10 * beside.0 < alone.0, "{alone} where deletes are alone, {beside} where not");
}

#[test]
fn a_full_queue_refuses_and_a_hung_drive_holds_its_depth() {
    let mut drive = drive(Policy::Off);
    for io in 0..16 {
        submit(&mut drive, ms(0), Class::Serve, io);
    }
    assert_eq!(drive.submit(ms(0), Class::Serve, 16, CHUNK, ms(1)), Err(Full));
    assert_eq!(polled(&mut drive, ms(0)).len(), 8);
    assert_eq!((drive.in_flight(), drive.waiting()), (8, 8));
}

/// A drive of arithmetic: one read in `late_of` is late when writes are above `knee`. Reads come
/// each millisecond, writes are always there. The rate of the second half, in MB/s.
fn governed(drive: &mut Drive, seconds: std::ops::Range<u64>, knee: u64, late_of: u64) -> u64 {
    let mut written = 0;
    let mut late_until_read = 0;
    let mut window = 0;
    for at in seconds.start * 1_000..seconds.end * 1_000 {
        if at < 500 * (seconds.start + seconds.end) {
            written = 0;
        }
        if at % 100 == 0 {
            (late_until_read, window) = (u64::from(knee * 100_000 < window), 0);
        }
        submit(drive, ms(at), Class::Serve, 1);
        while drive.submit(ms(at), Class::Fill, 2, CHUNK, ms(at)).is_ok() {}
        for step in 0..4 {
            let now = Instant(ms(at).0 + step * 250_000);
            for (ticket, io) in polled(drive, now) {
                let late = io == 1 && late_until_read == 1 && at % late_of == 0;
                let span = if late { Nanos::millis(6) } else { Nanos(100_000) };
                if io == 2 {
                    written += CHUNK.0;
                    window += CHUNK.0;
                }
                drive.complete(now + span, ticket);
            }
        }
    }
    written / 500_000 / (seconds.end - seconds.start)
}

#[test]
fn the_rate_settles_below_what_makes_reads_late_and_follows_when_that_moves() {
    let mut drive = drive(Policy::Governed(AIM));
    let settled = governed(&mut drive, 0..40, 200, 10);
    assert!((100..=210).contains(&settled), "{settled} MB/s");
    let after = governed(&mut drive, 40..44, 50, 10);
    assert!((5..=60).contains(&after), "{after} MB/s from the third second on");
}

/// The mean that others steer by: over a thousand reads, against 5 ms.
#[test]
fn an_average_of_a_thousand_reads_does_not_see_what_the_governor_cuts() {
    let mut governor = governor::Governor::new(AIM, ms(0));
    let before = governor.rate().unwrap();
    let mut mean = 0.0;
    for read in 0..2_000_u32 {
        let span = if read % 10 == 0 { 12 } else { 1 };
        governor.read(ms(u64::from(read)), &met(Nanos::millis(span)));
        mean += (f64::from(u32::try_from(span).unwrap()) - mean) / 1_000.0;
    }
    assert!(mean < 5.0, "one read in ten is late and the mean is {mean:.1} ms: it would go up");
    let after = governor.rate().unwrap();
    assert!(after.0 <= before.0 / 4 + 1, "{after} from {before}");
}

/// So many ms of so many reads per second, one in `near_of` at 4 ms, and writes at the rate; what
/// is granted at the end.
fn near(
    governor: &mut governor::Governor,
    millis: std::ops::Range<u64>,
    per_s: u64,
    near_of: u64,
) -> u64 {
    for at in millis {
        let rate = governor.rate().unwrap();
        governor.wrote(ms(at), Bytes(rate.0 / 1_000));
        for read in at * per_s / 1_000..(at + 1) * per_s / 1_000 {
            let span = if read % near_of == 0 { Nanos::millis(4) } else { Nanos::millis(2) };
            governor.read(ms(at), &met(span));
        }
    }
    governor.rate().unwrap().0
}

#[test]
fn reads_near_the_target_hold_the_rate_though_none_is_late() {
    let mut governor = governor::Governor::new(AIM, ms(0));
    let searched = near(&mut governor, 0..20_000, 1_000, 1_000);
    let held = near(&mut governor, 20_000..50_000, 1_000, 50);
    assert!(2 * 20_000_000 < searched, "{searched}: one read in 1,000 is no reason");
    assert!(2 * held < searched, "{held} from {searched}: one in 50 is");
}

#[test]
fn a_share_near_the_target_cuts_before_sums_know_it() {
    let mut governor = governor::Governor::new(AIM, ms(0));
    let before = near(&mut governor, 0..20_000, 1_000, 1_000);
    let cut = near(&mut governor, 20_000..20_300, 1_000, 10);
    assert!(cut < before, "{cut} from {before}");
}

#[test]
fn a_drive_far_from_its_target_is_used_within_two_seconds() {
    let mut governor = governor::Governor::new(AIM, ms(0));
    for at in 0..2_000 {
        let rate = governor.rate().unwrap();
        governor.wrote(ms(at), Bytes(rate.0 / 1_000));
        governor.read(ms(at), &met(Nanos::millis(1)));
    }
    let rate = governor.rate().unwrap();
    assert!(200_000_000 < rate.0, "{rate} after two seconds from 20 MB/s");
}

/// A rate that made a burst, and what is granted so many ms of calm reads later.
fn after_a_burst(later: u64, per_s: u64) -> (u64, u64) {
    let mut governor = governor::Governor::new(AIM, ms(0));
    let failed = near(&mut governor, 0..5_000, 1_000, 1_000);
    for read in 0..100_u64 {
        let late = if 96 < read { 12 } else { 2 };
        governor.read(ms(5_000 + read), &met(Nanos::millis(late)));
    }
    (failed, near(&mut governor, 5_100..5_100 + later, per_s, 10_000))
}

#[test]
fn a_rate_that_made_a_burst_is_avoided_for_half_a_minute_or_until_reads_fall() {
    let (failed, soon) = after_a_burst(8_000, 1_000);
    let (_, last) = after_a_burst(29_000, 1_000);
    let (_, longer) = after_a_burst(35_000, 1_000);
    let (_, fewer) = after_a_burst(8_000, 600);
    assert!(soon < failed * 3 / 2, "{soon} eight seconds after {failed} failed");
    assert!(2 * last < longer, "{longer} after half a minute, {last} before");
    assert!(soon * 12 / 10 < fewer, "{fewer} with fewer reads, {soon} with as many");
}

#[test]
fn the_rate_falls_within_a_second_when_reads_rise() {
    let mut governor = governor::Governor::new(AIM, ms(0));
    let before = near(&mut governor, 0..40_000, 1_000, 87);
    let after = near(&mut governor, 40_000..41_000, 1_300, 87);
    assert!(100 * after < 85 * before, "{after} from {before}");
}

#[test]
fn a_rate_that_nobody_uses_is_not_wound_up() {
    let mut governor = governor::Governor::new(AIM, ms(0));
    for at in 0..60_000 {
        governor.read(ms(at), &met(Nanos::millis(1)));
        if at % 100 == 0 {
            governor.wrote(ms(at), Bytes(1_000_000));
        }
    }
    let rate = governor.rate().unwrap();
    assert!(rate <= Bytes(24_000_000), "10 MB/s are used and {rate} are granted");
}

#[test]
fn without_reads_writes_go_as_fast_as_the_drive_takes_them() {
    let mut drive = drive(Policy::Governed(AIM));
    let mut written = 0;
    for at in 0..4_000 {
        while drive.submit(ms(at), Class::Fill, 2, CHUNK, ms(at)).is_ok() {}
        // A drive that takes four in a millisecond: 1,000 MB/s.
        for (ticket, _) in polled(&mut drive, ms(at)) {
            written += u64::from(3_000 <= at) * CHUNK.0;
            drive.complete(ms(at), ticket);
            if drive.in_flight() == 0 && written % (4 * CHUNK.0) == 0 {
                break;
            }
        }
    }
    assert!(1_000_000_000 <= written, "{} MB in the fourth second", written / 1_000_000);
}

/// "Busy" is what kernels and our own queues would say: something is there.
#[test]
fn what_we_hold_back_is_no_load_though_it_looks_busy() {
    let mut drive = drive(Policy::Static(Limit::Bandwidth(Bytes(10_000_000))));
    let (mut busy, mut total) = (0, 0);
    for at in 0..2_000 {
        while drive.submit(ms(at), Class::Fill, 2, CHUNK, ms(at)).is_ok() {}
        if at % 10 == 0 {
            submit(&mut drive, ms(at), Class::Serve, 1);
        }
        for (ticket, _) in polled(&mut drive, ms(at)) {
            drive.complete(Instant(ms(at).0 + 300_000), ticket);
        }
        total += 1;
        busy += u32::from(0 < drive.waiting() + drive.in_flight());
    }
    assert_eq!(busy, total, "the naive figure says 100 %");
    let load = drive.load();
    assert_eq!(load.service, Nanos(300_000));
    assert_eq!(load.fills_held, 16);
    assert!(950 <= load.headroom_permille, "{load:?}");
}

#[test]
fn headroom_shrinks_as_reads_take_longer() {
    let mut drive = drive(Policy::Off);
    let mut headroom = Vec::new();
    for span in [300_000, 330_000, 360_000, 450_000, 900_000] {
        for at in 0..2_000 {
            submit(&mut drive, ms(at), Class::Serve, 1);
            let ticket = polled(&mut drive, ms(at))[0].0;
            drive.complete(Instant(ms(at).0 + span), ticket);
        }
        headroom.push(drive.load().headroom_permille);
    }
    assert!(headroom.is_sorted_by(|a, b| a > b), "{headroom:?}");
    assert!(950 < headroom[0] && headroom[4] <= 500, "{headroom:?}");
}

/// So many reads of this span, each back before the next goes.
fn read_for(drive: &mut Drive, milliseconds: std::ops::Range<u64>, span: u64) {
    for at in milliseconds {
        submit(drive, ms(at), Class::Serve, 1);
        let ticket = polled(drive, ms(at))[0].0;
        drive.complete(Instant(ms(at).0 + span), ticket);
    }
}

#[test]
fn reads_well_within_their_target_are_no_shortage_and_slow_ones_are() {
    let mut drive = drive(Policy::Off);
    read_for(&mut drive, 0..1_000, 20_000);
    read_for(&mut drive, 1_000..3_000, 900_000);
    let headroom = drive.load().headroom_permille;
    assert_eq!(headroom, 500, "45 times what an idle drive takes, and a fraction of the target");
    read_for(&mut drive, 3_000..3_800, TARGET.0 * 8 / 10);
    assert!(drive.load().headroom_permille < 50, "{:?}", drive.load());
}

#[test]
fn a_drive_that_was_slow_and_that_nobody_reads_has_all_its_headroom_again() {
    let mut drive = drive(Policy::Off);
    read_for(&mut drive, 0..1_000, 300_000);
    read_for(&mut drive, 1_000..1_800, TARGET.0 * 8 / 10);
    let none = Tally::default();
    drive.hear(ms(5_000), &none, 0, None);
    assert!(drive.load().headroom_permille < 150, "{:?}", drive.load());
    // The last few of those reads.
    drive.hear(ms(11_900), &none, 0, None);
    assert!(drive.load().headroom_permille < 150, "{:?}", drive.load());
    drive.hear(ms(22_000), &none, 0, None);
    assert_eq!(drive.load().headroom_permille, 1000);
    // Few count in the end, too.
    read_for(&mut drive, 22_100..22_110, 600_000);
    drive.hear(ms(32_100), &none, 0, None);
    assert!(drive.load().headroom_permille < 600, "{:?}", drive.load());
}

#[test]
fn a_drive_that_is_hardly_read_since_its_start_has_all_left_unless_many_reads_are_slow() {
    let headroom = |slow: u64, idle: bool| {
        let mut drive = drive(Policy::Off);
        if !idle {
            read_for(&mut drive, 0..24 - slow, 300_000);
            read_for(&mut drive, 24 - slow..24, TARGET.0 * 8 / 10);
        }
        drive.hear(ms(11_000), &Tally::default(), 0, None);
        drive.load().headroom_permille
    };
    assert_eq!(drive(Policy::Off).load().headroom_permille, 1000, "nobody has read it");
    assert_eq!([headroom(0, true), headroom(0, false)], [1000, 1000]);
    assert_eq!(headroom(1, false), 1000, "one of so few says nothing");
    assert_eq!(headroom(10, false), 0);
}

proptest! {
    #[test]
    fn nothing_is_lost_and_the_depths_hold(steps in prop::collection::vec(0u8..6, 0..600)) {
        let mut drive = drive(Policy::Governed(AIM));
        let mut out = Vec::new();
        let (mut submitted, mut polled) = (0, 0);
        for (at, step) in (0u64..).zip(steps) {
            let class = [Class::Serve, Class::Fill, Class::Scrub, Class::Delete];
            match class.get(usize::from(step)) {
                Some(class) => {
                    let queued = drive.submit(ms(at), *class, at, CHUNK, ms(at));
                    submitted += usize::from(queued.is_ok());
                }
                None if step == 4 => {
                    if let Some((ticket, _)) = drive.poll(ms(at)) {
                        polled += 1;
                        out.push(ticket);
                    }
                }
                None => {
                    if let Some(ticket) = out.pop() {
                        drive.complete(ms(at), ticket);
                    }
                }
            }
            prop_assert!(drive.in_flight() <= 8);
            prop_assert_eq!(drive.in_flight(), out.len());
            prop_assert_eq!(submitted - polled, drive.waiting());
        }
    }
}
