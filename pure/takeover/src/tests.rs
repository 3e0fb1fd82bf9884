use super::*;

fn id(name: &str) -> ApplianceId {
    name.parse().unwrap()
}

fn address(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

fn client(at: u8, port: u16) -> Client {
    (SocketAddr::new(address(at), 443), SocketAddr::new(IpAddr::from([10, 0, 0, 1]), port))
}

fn at(millis: u64) -> Instant {
    Instant(0) + Nanos::millis(millis)
}

/// Three members: `a1` has 192.0.2.1, and so on.
fn site() -> Vec<SiteMember> {
    let member = |n: u8| SiteMember { id: id(&format!("a{n}")), addresses: vec![address(n)] };
    (1..=3).map(member).collect()
}

/// `a2`, which serves and has heard of nobody.
fn member() -> Member {
    let mut member = Member::new(id("a2"));
    member.handle(at(0), Event::Site(&site()));
    member.handle(at(0), Event::Serving(true));
    member
}

fn hear(member: &mut Member, now: Instant, name: &str, told: Told) {
    member.handle(now, Event::Heard { member: &id(name), told });
}

fn all(open: &[Client]) -> Told {
    Told { start: 9, to: 5, open: open.to_vec(), ..Told::default() }
}

/// The priority with which `a2` wants its own address.
fn own(member: &Member) -> u8 {
    member.priorities()[1].1
}

/// All actions up to `until`, with their times.
fn run(member: &mut Member, until: Instant) -> Vec<(Instant, Action)> {
    let mut done = Vec::new();
    while let Some(due) = member.deadline().filter(|due| *due <= until) {
        member.handle(due, Event::Tick);
        while let Some(action) = member.poll() {
            done.push((due, action));
        }
    }
    done
}

#[test]
fn clients_of_a_silent_owner_are_tickled_in_rounds_once_its_address_is_here() {
    let mut member = member();
    let clients = [client(1, 1000), client(1, 1001), client(3, 1002)];
    hear(&mut member, at(0), "a1", all(&clients));
    hear(&mut member, at(0), "a3", all(&[]));
    member.handle(at(700), Event::Held(&[address(2)]));
    run(&mut member, at(700));
    hear(&mut member, at(700), "a3", all(&[]));
    member.handle(at(750), Event::Held(&[address(1), address(2)]));
    assert_eq!(member.poll(), None, "its owner was heard of 750 ms ago");
    member.handle(at(800), Event::Tick);
    let tickle = Action::Tickle(vec![client(1, 1000), client(1, 1001)]);
    assert_eq!(member.poll(), Some(tickle.clone()), "those of the address, and no others");
    assert_eq!(member.poll(), None);
    let later = run(&mut member, at(5000));
    assert_eq!(later, [(at(1300), tickle.clone()), (at(2300), tickle)]);
    assert_eq!((member.counters().taken, member.counters().tickled), (1, 0), "nobody sent yet");
    member.handle(at(5000), Event::Tickled(5));
    assert_eq!(member.counters().tickled, 5, "those that were sent a packet");
    assert_eq!(member.taken(), [address(1)]);
}

#[test]
fn without_the_address_or_by_routes_with_an_owner_that_speaks_nobody_is_tickled() {
    let mut member = member();
    hear(&mut member, at(0), "a1", all(&[client(1, 1000)]));
    member.handle(at(5000), Event::Tick);
    assert_eq!(run(&mut member, at(9000)), [], "silent, and the address is elsewhere");
    hear(&mut member, at(9000), "a1", all(&[client(1, 1000)]));
    member.handle(at(9100), Event::Held(&[address(1)]));
    assert_eq!(member.poll(), None, "here as it is on all, and its owner speaks");
}

#[test]
fn clients_of_an_owner_that_speaks_are_tickled_when_its_address_is_elected_to_be_here() {
    let mut member = member();
    member.handle(at(0), Event::Elected(true));
    let speaks = |member: &mut Member, millis: u64| {
        hear(member, at(millis), "a1", all(&[client(1, 1000)]));
    };
    // Its keepalived hangs: it has the address, too, and has noticed nothing.
    for millis in [0, 250] {
        speaks(&mut member, millis);
    }
    assert_eq!(member.poll(), None, "it is elsewhere");
    member.handle(at(400), Event::Held(&[address(1)]));
    let tickle = Action::Tickle(vec![client(1, 1000)]);
    assert_eq!(member.poll(), Some(tickle.clone()));
    let mut came = Vec::new();
    for millis in (500..5000).step_by(250) {
        came.extend(run(&mut member, at(millis)));
        speaks(&mut member, millis);
    }
    assert_eq!(came, [(at(900), tickle.clone()), (at(1900), tickle.clone())], "three rounds");
    // It dies after all: whoever was still with it comes here.
    member.handle(at(5550), Event::Tick);
    assert_eq!(member.poll(), Some(tickle.clone()), "it is silent");
    speaks(&mut member, 5600);
    let went_on = run(&mut member, at(6300));
    assert_eq!(went_on, [(at(6050), tickle.clone())], "it speaks, and is not tickled anew");
    member.handle(at(6400), Event::Held(&[]));
    assert_eq!(run(&mut member, at(9000)), [], "the address is elsewhere");
    speaks(&mut member, 9000);
    member.handle(at(9100), Event::Held(&[address(1)]));
    assert_eq!(member.poll(), Some(tickle), "and here again");
}

#[test]
fn an_owner_that_returns_waits_until_no_response_is_under_way_and_tickles_who_is_left() {
    let mut member = member();
    assert_eq!(
        member.priorities()[1],
        (address(2), 20),
        "nobody was heard of: somebody may have it"
    );
    let busy = Told { busy: vec![address(2)], ..all(&[client(2, 1000), client(3, 1001)]) };
    hear(&mut member, at(100), "a3", busy.clone());
    hear(&mut member, at(100), "a1", all(&[]));
    assert!(member.waits() && own(&member) == 20);
    hear(&mut member, at(600), "a3", Told { busy: vec![], ..busy });
    assert!(member.waits() && own(&member) == 200, "drained until it is here");
    member.handle(at(700), Event::Held(&[address(2)]));
    assert!(!member.waits());
    assert_eq!(member.poll(), Some(Action::Tickle(vec![client(2, 1000)])), "kept alive over there");
}

#[test]
fn a_process_that_was_started_again_keeps_the_addresses_that_nobody_took() {
    let mut member = Member::new(id("a2"));
    member.handle(at(0), Event::Site(&site()));
    member.handle(at(0), Event::Held(&[address(2)]));
    member.handle(at(0), Event::Serving(true));
    assert_eq!(member.priorities()[1], (address(2), 200));
}

#[test]
fn who_went_to_the_sibling_while_both_had_an_address_is_tickled_when_that_is_over() {
    let mut member = member();
    let has = |busy: &[IpAddr]| Told { busy: busy.to_vec(), ..all(&[client(2, 1000)]) };
    for name in ["a1", "a3"] {
        hear(&mut member, at(0), name, all(&[]));
    }
    member.handle(at(100), Event::Held(&[address(2)]));
    assert_eq!(run(&mut member, at(5000)), [], "there was nobody");
    // The link between the machines is there again: both had the address.
    hear(&mut member, at(60_000), "a3", has(&[address(2)]));
    assert_eq!(member.poll(), None, "not as long as it has it");
    hear(&mut member, at(60_250), "a3", has(&[]));
    assert_eq!(member.poll(), Some(Action::Tickle(vec![client(2, 1000)])));
}

#[test]
fn an_owner_waits_for_so_long_and_no_longer() {
    let mut member = member();
    for tenth in 0..300 {
        let busy = Told { busy: vec![address(2)], ..all(&[]) };
        hear(&mut member, at(100 * tenth), "a3", busy);
        assert_eq!(own(&member), 20);
    }
    member.handle(at(30_000), Event::Tick);
    assert_eq!(own(&member), 200);
    let mut alone = self::member();
    alone.handle(at(799), Event::Tick);
    assert_eq!(own(&alone), 20);
    alone.handle(at(800), Event::Tick);
    assert_eq!(own(&alone), 200, "its siblings are away");
}

#[test]
fn an_owner_that_was_cut_off_waits_for_its_addresses_when_it_is_back() {
    let mut member = member();
    let quiet = |busy: &[IpAddr]| Told { busy: busy.to_vec(), ..all(&[]) };
    for name in ["a1", "a3"] {
        hear(&mut member, at(100), name, quiet(&[]));
    }
    member.handle(at(200), Event::Held(&[address(2)]));
    assert_eq!(own(&member), 200);
    // Its link is down: the address goes, and nobody is heard for an hour.
    member.handle(at(300), Event::Held(&[]));
    assert_eq!(own(&member), 20);
    member.handle(at(3_600_000), Event::Tick);
    assert_eq!(own(&member), 20, "somebody may have it, who was not heard of");
    hear(&mut member, at(3_600_100), "a1", quiet(&[]));
    hear(&mut member, at(3_600_200), "a3", quiet(&[address(2)]));
    assert_eq!(own(&member), 20);
    hear(&mut member, at(3_600_700), "a1", quiet(&[]));
    hear(&mut member, at(3_600_700), "a3", quiet(&[]));
    assert_eq!(own(&member), 200);
    member.handle(at(3_601_400), Event::Held(&[address(2)]));
    // Its siblings have died, and it lost its address for a moment: it has it as soon as it can.
    member.handle(at(3_700_000), Event::Held(&[]));
    member.handle(at(3_700_700), Event::Held(&[address(2)]));
    assert_eq!(own(&member), 200);
}

#[test]
fn a_sibling_drains_the_addresses_of_an_owner_that_waits_and_stops_when_it_has_them() {
    let mut member = member();
    let waits = |waits| Told { waits, ..all(&[]) };
    hear(&mut member, at(0), "a1", waits(true));
    assert_eq!(member.poll(), Some(Action::Drain(vec![address(1)])));
    hear(&mut member, at(200), "a1", waits(true));
    assert_eq!(member.poll(), None, "that was said");
    hear(&mut member, at(400), "a1", waits(false));
    assert_eq!(member.poll(), Some(Action::Drain(vec![])));
    hear(&mut member, at(600), "a1", waits(true));
    assert_eq!(member.poll(), Some(Action::Drain(vec![address(1)])));
    member.handle(at(1400), Event::Tick);
    assert_eq!(member.poll(), Some(Action::Drain(vec![])), "it went away again");
}

#[test]
fn priorities_elect_the_owner_then_each_sibling_in_its_turn_and_nobody_who_does_not_serve() {
    let mut members: Vec<Member> = ["a1", "a2", "a3"].map(|name| Member::new(id(name))).into();
    for member in &mut members {
        member.handle(at(0), Event::Site(&site()));
        member.handle(at(0), Event::Serving(true));
        member.handle(at(1000), Event::Tick);
    }
    // For each address the names in the order in which they would have it.
    let order = |members: &[Member]| {
        let of = |address: usize| {
            let mut by: Vec<_> =
                members.iter().map(|m| (m.priorities()[address].1, m.id.to_string())).collect();
            by.sort();
            by.into_iter().rev().map(|(_, name)| name).collect::<Vec<_>>()
        };
        [of(0), of(1), of(2)]
    };
    assert_eq!(order(&members), [["a1", "a2", "a3"], ["a2", "a3", "a1"], ["a3", "a1", "a2"]]);
    members[0].handle(at(2000), Event::Serving(false));
    assert!(members[0].priorities().iter().all(|(_, priority)| *priority == 1));
    assert_eq!(order(&members)[0][0], "a2");
    members[0].handle(at(3000), Event::Serving(true));
    assert!(members[0].waits(), "it may have been taken over meanwhile");
}

#[test]
fn differences_are_followed_and_one_to_something_else_asks_for_all() {
    let mut member = member();
    let known = |member: &Member| {
        let Known { start, state, after } = member.asked().next().unwrap().1;
        assert_eq!(after, None, "all came at once");
        (start, state)
    };
    hear(&mut member, at(0), "a1", all(&[client(1, 1), client(1, 2)]));
    assert_eq!((known(&member), member.clients()), ((9, 5), 2));
    let next = Told { from: 5, to: 7, gone: vec![client(1, 1)], ..all(&[client(1, 3)]) };
    hear(&mut member, at(1), "a1", next.clone());
    assert_eq!((known(&member), member.clients()), ((9, 7), 2));
    hear(&mut member, at(2), "a1", Told { start: 10, ..next });
    assert_eq!((known(&member), member.clients()), ((0, 0), 2), "kept until all is known again");
    hear(&mut member, at(3), "a1", all(&[]));
    assert_eq!((known(&member), member.clients()), ((9, 5), 0));
}

#[test]
fn many_clients_are_kept_up_to_a_bound_and_tickled_in_batches() {
    let mut member = member();
    let many = |count: usize| {
        let of = |n: usize| {
            let n = u32::try_from(n).unwrap();
            let ip = IpAddr::from((n / 60_000).to_be_bytes());
            (
                SocketAddr::new(address(1), 443),
                SocketAddr::new(ip, u16::try_from(n % 60_000).unwrap() + 1),
            )
        };
        (0..count).map(of).collect::<Vec<_>>()
    };
    hear(&mut member, at(0), "a1", all(&many(CLIENTS_MAX + 10)));
    assert_eq!(member.clients(), CLIENTS_MAX);
    hear(&mut member, at(0), "a1", all(&many(20_000)));
    member.handle(at(1000), Event::Held(&[address(1)]));
    let mut sent = vec![(at(1000), member.poll().unwrap())];
    sent.extend(run(&mut member, at(2000)));
    let lens = |until: Instant| {
        let len = |(at, action): &(Instant, Action)| match action {
            Action::Tickle(clients) if *at <= until => clients.len(),
            Action::Tickle(_) | Action::Drain(_) => 0,
        };
        sent.iter().map(len).collect::<Vec<_>>()
    };
    assert!(lens(at(9000)).iter().all(|len| *len <= BATCH));
    assert_eq!(lens(at(1950)).iter().sum::<usize>(), 20_000, "in a second");
}

#[test]
fn a_large_site_is_asked_in_part_and_who_leaves_is_forgotten() {
    let member = |n: u8| SiteMember { id: id(&format!("a{n:03}")), addresses: vec![address(n)] };
    let site: Vec<SiteMember> = (0..100).map(member).collect();
    let mut first = Member::new(id("a000"));
    first.handle(at(0), Event::Site(&site));
    let asked: Vec<String> = first.asked().map(|(id, _)| id.to_string()).collect();
    assert_eq!(asked.len(), 2 * NEAR);
    assert!(asked.contains(&"a001".to_owned()) && asked.contains(&"a099".to_owned()));
    first.handle(at(0), Event::Held(&[address(5)]));
    first.handle(at(0), Event::Site(&site[..2]));
    assert_eq!((first.asked().count(), first.taken()), (1, vec![]));
    let mut guest = Member::new(id("b1"));
    guest.handle(at(0), Event::Site(&site[..2]));
    guest.handle(at(0), Event::Serving(true));
    assert!(guest.priorities().iter().all(|(_, priority)| *priority == 1), "it would know nobody");
    assert_eq!(guest.asked().count(), 0);
}

#[test]
fn clients_of_an_owner_whose_address_went_without_its_doing_are_tickled() {
    let mut member = member();
    hear(&mut member, at(0), "a1", all(&[client(1, 1000)]));
    member.handle(at(100), Event::Held(&[address(1), address(2)]));
    assert_eq!(member.poll(), None, "its process speaks, and has not noticed");
    let waits = Told { from: 5, start: 9, to: 5, waits: true, ..Told::default() };
    hear(&mut member, at(300), "a1", waits);
    assert_eq!(member.poll(), Some(Action::Drain(vec![address(1)])));
    assert_eq!(member.poll(), Some(Action::Tickle(vec![client(1, 1000)])));
}

#[test]
fn an_owner_that_is_heard_now_and_then_lets_no_queue_grow() {
    for is_elected in [false, true] {
        check_that_no_queue_grows(is_elected);
    }
}

fn check_that_no_queue_grows(is_elected: bool) {
    let mut member = member();
    member.handle(at(0), Event::Elected(is_elected));
    let clients: Vec<Client> =
        (0..CLIENTS_MAX).map(|n| client(1, u16::try_from(n % 60_000).unwrap())).collect();
    let mut clients: Vec<Client> = clients.into_iter().collect();
    for (n, client) in clients.iter_mut().enumerate() {
        client.1.set_ip(IpAddr::from([10, 1, u8::try_from(n >> 16).unwrap(), 1]));
    }
    hear(&mut member, at(0), "a1", all(&clients));
    let known = member.clients();
    for second in 1..60 {
        member.handle(at(second * 1000), Event::Held(&[address(1)]));
        let same = Told { from: 5, start: 9, to: 5, ..Told::default() };
        hear(&mut member, at(second * 1000 + 100), "a1", same);
        assert!(member.queue.len() <= known, "{} after {second} s", member.queue.len());
        while member.poll().is_some() {}
    }
}

#[test]
fn a_list_that_goes_on_is_asked_for_after_what_came_and_keeps_it_when_an_answer_fails() {
    let mut member = member();
    let known = |member: &Member| member.asked().next().unwrap().1;
    let clients = |ports: std::ops::Range<u16>| -> Vec<Client> {
        ports.map(|port| client(1, port)).collect()
    };
    let first = Told { next: Some(client(1, 9)), ..all(&clients(0..10)) };
    hear(&mut member, at(0), "a1", first);
    let after = |port| Some(client(1, port));
    assert_eq!(known(&member), Known { start: 9, state: 5, after: after(9) });
    // The rest is late: the sibling speaks, and nothing is asked for twice.
    member.handle(at(700), Event::Answers(&id("a1")));
    member.handle(at(1400), Event::Held(&[address(1)]));
    assert_eq!((member.poll(), member.clients()), (None, 10), "it was heard of 700 ms ago");
    assert_eq!(known(&member).after, after(9));
    let base = Told { start: 9, from: 5, to: 7, ..Told::default() };
    let gone = vec![client(1, 3)];
    let next = Told { open: clients(10..20), gone, next: after(19), ..base.clone() };
    hear(&mut member, at(1450), "a1", next);
    assert_eq!((known(&member).after, member.clients()), (after(19), 19));
    hear(&mut member, at(1500), "a1", Told { from: 7, to: 7, open: clients(20..22), ..base });
    assert_eq!((known(&member).after, member.clients()), (None, 21));
    // Another process of it: from the beginning.
    let again = Told { start: 10, open: clients(0..2), next: after(1), ..all(&[]) };
    hear(&mut member, at(1550), "a1", again);
    assert_eq!((known(&member).after, member.clients()), (after(1), 2));
}

/// `a2` with one more address, 192.0.2.12.
fn with_one_more() -> Vec<SiteMember> {
    let mut site = site();
    site[1].addresses.push(address(12));
    site
}

#[test]
fn an_address_that_is_added_takes_nothing_from_the_others() {
    let mut member = member();
    member.handle(at(0), Event::Held(&[address(2)]));
    // Alone: its siblings are away.
    member.handle(at(60_000), Event::Tick);
    assert_eq!(own(&member), 200);
    member.handle(at(60_000), Event::Site(&with_one_more()));
    for millis in [60_000, 60_250, 90_000] {
        member.handle(at(millis), Event::Held(&[address(2)]));
        assert_eq!(own(&member), 200, "{millis}");
        assert!(member.waits(), "the other is elsewhere, or on its way");
    }
    member.handle(at(90_100), Event::Held(&[]));
    assert_eq!(own(&member), 20, "now it was cut off");
}

#[test]
fn an_own_address_that_cannot_come_here_is_not_waited_for() {
    let mut member = member();
    member.handle(at(0), Event::Held(&[address(2)]));
    member.handle(at(100), Event::Site(&with_one_more()));
    assert!(member.waits());
    member.handle(at(200), Event::LeftOut(&[address(12)]));
    assert!(!member.waits() && own(&member) == 200);
    member.handle(at(300), Event::Held(&[]));
    assert!(member.waits(), "for the one that may be here");
    member.handle(at(400), Event::LeftOut(&[]));
    member.handle(at(500), Event::Held(&[address(2)]));
    assert!(member.waits(), "the agent takes it now");
}
