//! Players that come by an address of a sibling's.

use super::hang::location;
use super::*;
use std::net::IpAddr;

const OWN: &str = "https://a1.example";

fn address(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

/// A connection by an address.
fn guest(bench: &mut Bench, slot: u32, by: u8) -> ConnectionId {
    let connection = bench.connect(slot);
    bench.event(Event::Reached { connection, address: address(by) });
    connection
}

fn drain(bench: &mut Bench, addresses: &[IpAddr]) {
    bench.event(Event::Drain { base_url: OWN, addresses });
}

#[test]
fn while_an_address_is_drained_bodies_end_and_requests_by_it_are_sent_on() {
    let mut bench = Bench::new();
    let (busy, quiet) = (guest(&mut bench, 0, 2), guest(&mut bench, 1, 2));
    let other = guest(&mut bench, 2, 3);
    bench.hung.insert(0);
    bench.say(busy, &get("v.mp4", ""));
    assert_eq!(bench.worker.busy(&[address(2), address(3)]), [address(2)]);
    assert!(bench.worker.busy(&[address(3)]).is_empty());
    drain(&mut bench, &[address(2)]);
    assert_eq!(bench.closed, [(quiet, Ending::Graceful)].into());
    bench.hung.clear();
    bench.settle();
    assert_eq!(split(&bench.received[&busy]).1, content(1, 1_000_000), "whole");
    assert_eq!(bench.closed.get(&busy), Some(&Ending::Graceful));
    assert!(bench.worker.busy(&[address(2)]).is_empty());
    bench.say(other, &get("w.mp4", ""));
    bench.settle();
    assert_eq!(split(&bench.received[&other]).1, content(2, 262_144), "by another address");
    let late = guest(&mut bench, 3, 2);
    bench.say(late, &get("w.mp4", ""));
    bench.settle();
    let (head, _) = split(&bench.received[&late]);
    assert_eq!(status(&head), 307);
    assert_eq!(location(&head), format!("{OWN}/t/{}/film-1/w.mp4?hop=1", token()));
    assert!(head.contains("Connection: close"), "{head}");
    let marked = guest(&mut bench, 4, 2);
    bench.say(marked, &get("w.mp4?hop=1", ""));
    bench.settle();
    assert_eq!(split(&bench.received[&marked]).1, content(2, 262_144), "sent on only once");
    let asking = guest(&mut bench, 5, 2);
    bench.say(asking, &get("w.mp4", "").replace("GET", "OPTIONS"));
    bench.settle();
    assert_eq!(status(&split(&bench.received[&asking]).0), 204, "may not be redirected");
    drain(&mut bench, &[]);
    let after = guest(&mut bench, 6, 2);
    bench.say(after, &get("w.mp4", ""));
    bench.settle();
    assert_eq!(split(&bench.received[&after]).1, content(2, 262_144));
}

#[test]
fn what_is_not_here_is_where_a_sibling_should_hold_it() {
    let mut bench = Bench::new();
    let ask = |bench: &mut Bench, slot: u32, path: &str| {
        let connection = guest(bench, slot, 2);
        bench.say(connection, &get(path, ""));
        bench.settle();
        split(&bench.received.remove(&connection).unwrap()).0
    };
    let missing = file(1, 1_000_000).object;
    bench.event(Event::Update(Update::Removed { object: missing }));
    assert_eq!(status(&ask(&mut bench, 0, "v.mp4")), 404, "no sibling serves");
    let urls = BTreeMap::from([("a2".parse().unwrap(), Arc::from("https://a2.example"))]);
    bench.event(Event::Update(Update::Siblings(Arc::new(urls))));
    let head = ask(&mut bench, 1, "v.mp4");
    assert_eq!(status(&head), 307);
    assert!(location(&head).starts_with("https://a2.example/t/"), "{head}");
    assert_eq!(status(&ask(&mut bench, 2, "v.mp4?hop=1")), 404);
    assert_eq!(status(&ask(&mut bench, 3, "nothing.mp4")), 404, "a file that the version has not");
    assert_eq!(bench.worker.counters().misses, 3);
}
