//! Who gives its place to a newcomer.

use super::*;

#[test]
fn the_handshake_under_way_longest_gives_its_place_to_a_new_one() {
    let mut bench = Bench::new();
    let name = |slot| ConnectionId { slot, generation: 1 };
    for slot in 0..4 {
        bench.event(Event::Accepted { connection: name(slot) });
    }
    bench.event(Event::Established { connection: name(0) });
    bench.event(Event::Accepted { connection: name(4) });
    assert!(bench.closed.is_empty(), "one of four was over");
    bench.event(Event::Accepted { connection: name(5) });
    assert_eq!(bench.closed, [(name(1), Ending::Abort)].into());
    bench.event(Event::Ended { connection: name(2) });
    bench.event(Event::Accepted { connection: name(6) });
    assert_eq!(bench.worker.counters().let_go_handshakes, 1);
    bench.say(name(0), &get("v.mp4", ""));
    bench.settle();
    assert_eq!(bench.worker.counters().responses_2xx, 1, "who is in is not disturbed");
}

#[test]
fn the_connection_quiet_for_longest_gives_its_place_to_a_new_one() {
    let mut bench = Bench::new();
    let mut all = Vec::new();
    for slot in 0..8 {
        all.push(bench.connect(slot));
        if slot == 1 {
            bench.say(all[1], "GET / HTT");
        }
        bench.now.instant = bench.now.instant + Nanos::millis(1);
    }
    bench.event(Event::Accepted { connection: ConnectionId { slot: 8, generation: 1 } });
    assert_eq!(bench.worker.counters().refused, 1, "nobody was quiet for long");
    bench.closed.clear();
    bench.wait(2);
    bench.say(all[0], &get("list.m3u8", ""));
    bench.settle();
    bench.wait(2);
    for slot in 9..11 {
        bench.event(Event::Accepted { connection: ConnectionId { slot, generation: 1 } });
    }
    // A head that does not go on holds a place for nothing; between requests is no different.
    let gone = [(all[1], Ending::Abort), (all[2], Ending::Graceful)].into();
    assert_eq!((bench.closed.clone(), bench.worker.counters().let_go_quiet), (gone, 2));
}

#[test]
fn the_slowest_client_gives_its_turn_to_one_that_waits() {
    let mut bench = Bench::with(Config { transfers_max: 3, ..config() });
    let mut ask = |slot| {
        let connection = bench.connect(slot);
        bench.say(connection, &get("v.mp4", ""));
        while !bench.opens.is_empty() || !bench.reads.is_empty() {
            bench.step(0);
        }
        bench.wait(1);
        connection
    };
    let slow = [ask(0), ask(1), ask(2)];
    let waits = ask(3);
    assert_eq!(
        bench.closed,
        [(slow[0], Ending::Abort)].into(),
        "it took nothing for three seconds"
    );
    assert_eq!(bench.worker.counters().let_go_slow, 1);
    assert!(bench.reads.iter().len() + bench.sends.len() == 4, "the kernel lets go of the first");
    bench.sends.retain(|connection| *connection == waits);
    bench.wait(20);
    assert_eq!(bench.closed.len(), 1, "nobody waits, so nobody else is hurried");
}
