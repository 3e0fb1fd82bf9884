use super::*;
use std::collections::BTreeSet;
use std::io;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Extension;
use axum::http::header;
use axum::routing::{get, post};
use identity::UnixSeconds;
use identity::authority::Authority;
use identity::credentials::{Credentials, provider};
use identity::member::Member;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout};
use tokio_rustls::{TlsConnector, client};
use wire::v1::identity::Enrolled;

/// A listener with a router that says who asks.
struct Open {
    authority: Authority,
    address: SocketAddr,
    doors: Arc<DoorCounters>,
    tls: Tls,
    /// Certificates that are not admitted: their keys.
    refused: Arc<Mutex<BTreeSet<String>>>,
    stop: watch::Sender<bool>,
    serving: tokio::task::JoinHandle<()>,
}

#[tokio::test]
async fn a_member_is_known_by_its_certificate_and_a_stranger_is_one() {
    let open = Open::fleet(rules(8, 8), TIMES).await;
    let mut member = open.member("a1").await;
    assert_eq!(ask(&mut member, "/who").await, "appliance a1");
    let mut stranger = open.stranger().await.unwrap();
    assert_eq!(ask(&mut stranger, "/who").await, "stranger");
    assert_eq!(open.doors.handshakes_refused.value(), 0);
}

#[tokio::test]
async fn whoever_does_not_shake_hands_holds_nobody_up_and_is_counted() {
    let open = Open::fleet(rules(8, 8), TIMES).await;
    let _silent = open.tcp().await;
    let mut garbage = open.tcp().await;
    garbage.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut member = open.member("a1").await;
    assert_eq!(ask(&mut member, "/who").await, "appliance a1");
    until(|| open.doors.handshakes_refused.value() == 1).await;
}

#[tokio::test]
async fn a_handshake_that_takes_too_long_ends_though_bytes_come() {
    let times = Times { handshake: Duration::from_millis(100), ..TIMES };
    let open = Open::fleet(rules(8, 8), times).await;
    let mut drips = open.tcp().await;
    // The beginning of a record of 16 KiB.
    drips.write_all(&[22, 3, 1, 64, 0]).await.unwrap();
    let began = Instant::now();
    drip(&mut drips, b"\x01").await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(open.doors.handshakes_refused.value(), 1);
}

#[tokio::test]
async fn strangers_go_before_members_and_in_time() {
    let times = Times { stranger: Some(Duration::from_secs(2)), ..TIMES };
    let open = Open::fleet(rules(2, 2), times).await;
    let mut member = open.member("a1").await;
    assert_eq!(ask(&mut member, "/who").await, "appliance a1");
    // The member has asked nothing for longer.
    let mut first = open.stranger().await.unwrap();
    assert_eq!(ask(&mut first, "/who").await, "stranger");
    let mut second = open.stranger().await.unwrap();
    assert!(is_closed(&mut first).await, "a stranger gave its place to the second");
    assert_eq!(ask(&mut member, "/who").await, "appliance a1");
    // Whatever it says, it has an end.
    let began = Instant::now();
    while second.write_all(b"GET /who HTTP/1.1\r\nHost: a\r\n\r\n").await.is_ok()
        && second.read(&mut [0; 4096]).await.is_ok_and(|len| 0 < len)
    {
        assert!(began.elapsed() < Duration::from_secs(5));
    }
    assert_eq!(ask(&mut member, "/who").await, "appliance a1");
}

#[tokio::test]
async fn members_count_against_themselves_and_no_address() {
    let open = Open::fleet(rules(8, 1), TIMES).await;
    let mut members = Vec::new();
    let keys = ["a1", "a2", "a3"].map(|name| (name, open.key(name)));
    for (name, key) in &keys {
        let mut member = open.connect(Some(key.clone())).await.unwrap();
        assert_eq!(ask(&mut member, "/who").await, format!("appliance {name}"));
        members.push(member);
    }
    assert_eq!(ask(&mut members[0], "/who").await, "appliance a1");
    let mut again = open.connect(Some(keys[0].1.clone())).await.unwrap();
    assert_eq!(ask(&mut again, "/who").await, "appliance a1");
    assert!(is_closed(&mut members[0]).await, "a1 has its share, and its idle one goes");
    assert_eq!(ask(&mut members[1], "/who").await, "appliance a2");
}

#[tokio::test]
async fn who_has_a_certificate_that_was_revoked_is_a_stranger_and_takes_no_members_place() {
    let open = Open::fleet(rules(8, 1), TIMES).await;
    let (stolen, own) = (open.key("a1"), open.key("a1"));
    let mut before = open.connect(Some(stolen.clone())).await.unwrap();
    assert_eq!(ask(&mut before, "/who").await, "appliance a1");
    let key = member::read(&stolen.0[0]).unwrap().key;
    open.refused.lock().unwrap().insert(key);
    let mut member = open.connect(Some(own)).await.unwrap();
    assert_eq!(ask(&mut member, "/who").await, "appliance a1");
    let mut first = open.connect(Some(stolen.clone())).await.unwrap();
    assert_eq!(ask(&mut first, "/who").await, "appliance a1", "a router says why it is refused");
    let mut second = open.connect(Some(stolen)).await.unwrap();
    assert_eq!(ask(&mut second, "/who").await, "appliance a1");
    assert!(is_closed(&mut first).await, "both are of one network");
    assert_eq!(ask(&mut member, "/who").await, "appliance a1", "it is in its place");
    assert_eq!(ask(&mut before, "/who").await, "appliance a1", "of another key's share");
}

#[tokio::test]
async fn who_is_connected_when_its_certificate_is_revoked_is_a_stranger_from_then_on() {
    let times = Times { stranger: Some(Duration::from_millis(300)), ..TIMES };
    let open = Open::fleet(rules(2, 2), times).await;
    let (stolen, own) = (open.key("a1"), open.key("a1"));
    let key = member::read(&stolen.0[0]).unwrap().key;
    let mut late = open.connect(Some(stolen.clone())).await.unwrap();
    assert_eq!(ask(&mut late, "/who").await, "appliance a1");
    let mut member = open.connect(Some(own.clone())).await.unwrap();
    assert_eq!(ask(&mut member, "/who").await, "appliance a1");
    sleep(Duration::from_millis(400)).await;
    open.refused.lock().unwrap().insert(key.clone());
    // Whatever it asks, it has an end.
    let began = Instant::now();
    while late.write_all(b"GET /who HTTP/1.1\r\nHost: a\r\n\r\n").await.is_ok()
        && late.read(&mut [0; 4096]).await.is_ok_and(|len| 0 < len)
    {
        assert!(began.elapsed() < Duration::from_secs(5));
    }
    assert_eq!(ask(&mut member, "/who").await, "appliance a1", "a member has none");
}

#[tokio::test]
async fn who_is_revoked_gives_its_place_to_members_though_it_asked_last() {
    for is_whole in [true, false] {
        let open = Open::fleet(rules(2, 2), TIMES).await;
        let (stolen, own) = (open.key("a1"), open.key("a2"));
        let key = member::read(&stolen.0[0]).unwrap().key;
        let mut member = open.connect(Some(own)).await.unwrap();
        assert_eq!(ask(&mut member, "/who").await, "appliance a2");
        let mut revoked = open.connect(Some(stolen)).await.unwrap();
        assert_eq!(ask(&mut revoked, "/who").await, "appliance a1");
        open.refused.lock().unwrap().insert(key);
        if is_whole {
            assert_eq!(ask(&mut revoked, "/who").await, "appliance a1");
        } else {
            let head = b"POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n";
            revoked.write_all(head).await.unwrap();
        }
        let mut other = open.member("a3").await;
        assert_eq!(ask(&mut other, "/who").await, "appliance a3");
        assert_eq!(ask(&mut member, "/who").await, "appliance a2");
        assert!(is_closed(&mut revoked).await);
    }
}

#[tokio::test]
async fn a_certificate_that_was_replaced_is_shown_to_the_next() {
    let open = Open::fleet(rules(8, 8), TIMES).await;
    let before = open.stranger().await.unwrap();
    let config = credentials(&open.authority, &Member::control()).0.server_tls(true).unwrap();
    open.tls.replace(config);
    let after = open.stranger().await.unwrap();
    let shown = |stream: &client::TlsStream<TcpStream>| {
        stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
    };
    assert_ne!(shown(&before), shown(&after));
}

#[tokio::test]
async fn a_head_that_comes_a_byte_at_a_time_has_an_end() {
    let head = Duration::from_millis(150);
    let open = Open::plain(rules(8, 8), Times { head, ..TIMES }).await;
    let mut first = open.tcp().await;
    let began = Instant::now();
    drip(&mut first, b"G").await;
    assert!((head..Duration::from_secs(5)).contains(&began.elapsed()), "{:?}", began.elapsed());
    // The same after a request.
    let mut second = open.tcp().await;
    assert_eq!(ask(&mut second, "/who").await, "stranger");
    let began = Instant::now();
    drip(&mut second, b"G").await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(open.doors.timed_out.value(), 2);
}

#[tokio::test]
async fn who_showed_nothing_is_not_kept_and_who_showed_a_token_is() {
    let idle_stranger = Duration::from_secs(1);
    let open = Open::plain(rules(8, 8), Times { idle_stranger, ..TIMES }).await;
    let (mut stranger, mut known) = (open.tcp().await, open.tcp().await);
    assert_eq!(ask(&mut stranger, "/who").await, "stranger");
    assert_eq!(ask(&mut known, "/admitted").await, "admitted");
    assert!(is_closed(&mut stranger).await);
    assert_eq!(ask(&mut known, "/admitted").await, "admitted");
    assert_eq!(open.doors.timed_out.value(), 0, "to say nothing is no fault");
}

#[tokio::test]
async fn who_asks_again_in_time_is_kept_and_has_its_time_from_its_last_answer() {
    // Long beside what a busy machine takes for a request.
    let idle_stranger = Duration::from_secs(2);
    let open = Open::plain(rules(8, 8), Times { idle_stranger, ..TIMES }).await;
    let mut stranger = open.tcp().await;
    let began = Instant::now();
    let mut last = began;
    while last < began + 3 * idle_stranger {
        assert_eq!(ask(&mut stranger, "/who").await, "stranger");
        last = Instant::now();
        sleep(idle_stranger / 8).await;
    }
    assert!(is_closed(&mut stranger).await);
    // The server's time began a little before its answer was here.
    let idle = last.elapsed();
    assert!((idle_stranger / 2..2 * idle_stranger).contains(&idle), "{idle:?}");
}

#[tokio::test]
async fn an_answer_that_is_not_taken_has_an_end() {
    let request = Duration::from_millis(300);
    let open = Open::plain(rules(8, 8), Times { request, ..TIMES }).await;
    let mut takes_nothing = open.tcp().await;
    takes_nothing.write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    until(|| open.doors.timed_out.value() == 1).await;
}

#[tokio::test]
async fn the_quiet_give_their_places_to_newcomers_and_requests_under_way_do_not() {
    let open = Open::plain(rules(4, 4), TIMES).await;
    let mut slow = open.tcp().await;
    slow.write_all(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let mut drips = Vec::new();
    for _ in 0..20 {
        let mut one = open.tcp().await;
        one.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        drips.push(one);
        let mut honest = open.tcp().await;
        assert_eq!(ask(&mut honest, "/who").await, "stranger");
    }
    assert_eq!(open.doors.crowded.value(), 0);
    assert!(15 < open.doors.let_go.value(), "{}", open.doors.let_go.value());
    let mut answer = vec![0; 12];
    slow.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, b"HTTP/1.1 200");
}

#[tokio::test]
async fn one_address_has_its_share_and_leaves_the_rest_to_others() {
    let open = Open::plain(rules(8, 2), TIMES).await;
    let mut held = Vec::new();
    for _ in 0..6 {
        let mut one = open.tcp_from([127, 0, 0, 2]).await;
        one.write_all(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        held.push(one);
    }
    until(|| open.doors.crowded.value() == 4).await;
    let mut other = open.tcp_from([127, 0, 0, 3]).await;
    assert_eq!(ask(&mut other, "/who").await, "stranger");
}

#[tokio::test]
async fn a_trusted_proxy_says_who_is_behind_it_and_nobody_else_does() {
    let proxies = vec!["127.0.0.2/32".parse().unwrap()];
    let open = Open::plain(Rules { proxies, proxy_protocol: true, ..rules(8, 1) }, TIMES).await;
    let mut signed = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    signed.extend([198, 51, 100, 7, 192, 0, 2, 1, 0, 1, 0, 2]);
    let line = b"PROXY TCP4 198.51.100.8 192.0.2.1 1 2\r\n".to_vec();
    let local = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0".to_vec();
    let all = [(signed, "198.51.100.7"), (line, "198.51.100.8"), (local, "127.0.0.2")];
    let mut kept = Vec::new();
    for (header, address) in all {
        let mut proxied = open.tcp_from([127, 0, 0, 2]).await;
        proxied.write_all(&header).await.unwrap();
        assert_eq!(ask(&mut proxied, "/address").await, format!("{address} true"));
        kept.push(proxied);
    }
    assert_eq!(open.doors.let_go.value(), 0, "each counts for who is behind it");
    let mut without = open.tcp_from([127, 0, 0, 2]).await;
    without.write_all(b"GET /address HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    assert!(is_closed(&mut without).await);
    assert_eq!(open.doors.proxy_headers_refused.value(), 1);
    let mut forger = open.tcp_from([127, 0, 0, 3]).await;
    forger.write_all(b"PROXY TCP4 198.51.100.8 192.0.2.1 1 2\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = forger.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP/1.1 200"), "{answer:?}");
    let mut direct = open.tcp_from([127, 0, 0, 3]).await;
    assert_eq!(ask(&mut direct, "/address").await, "127.0.0.3 false");
}

#[tokio::test]
async fn what_is_under_way_is_answered_before_the_end() {
    let open = Open::plain(rules(8, 8), TIMES).await;
    let (mut slow, mut idle) = (open.tcp().await, open.tcp().await);
    assert_eq!(ask(&mut idle, "/who").await, "stranger");
    slow.write_all(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    // It has been heard when another is answered that came later.
    assert_eq!(ask(&mut idle, "/who").await, "stranger");
    open.stop.send(true).unwrap();
    assert!(is_closed(&mut idle).await);
    let mut answer = String::new();
    slow.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    open.serving.await.unwrap();
}

#[tokio::test]
async fn what_needs_no_hyper_is_answered_before_it_and_all_else_by_it_in_order() {
    for is_tls in [false, true] {
        let open = Open::start(rules(8, 8), TIMES, is_tls).await;
        let mut stream: Box<dyn Both> = match is_tls {
            true => Box::new(open.stranger().await.unwrap()),
            false => Box::new(open.tcp().await),
        };
        assert_eq!(ask(&mut stream, "/at-once/1").await, "first 1");
        assert_eq!(ask(&mut stream, "/at-once/2").await, "first 2");
        // All of them before the first answer, and the last in two pieces.
        let paths = ["/at-once/3", "/at-once/4", "/who", "/at-once/5", "/who"];
        let asked = paths.map(|path| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).concat();
        let (most, rest) = asked.split_at(asked.len() - 9);
        stream.write_all(most.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        let mut answers = String::new();
        while answers.matches("HTTP/1.1 ").count() < 4 {
            read_more(&mut stream, &mut answers).await;
        }
        stream.write_all(rest.as_bytes()).await.unwrap();
        while answers.matches("HTTP/1.1 ").count() < 5 || !answers.ends_with("stranger") {
            read_more(&mut stream, &mut answers).await;
        }
        let said: Vec<&str> = answers.split("HTTP/1.1 ").skip(1).collect();
        let ends = ["first 3", "first 4", "stranger", "", "stranger"];
        for (said, end) in said.iter().zip(ends) {
            assert!(said.ends_with(end), "{said}: {end}");
        }
        assert!(said[3].starts_with("404"), "hyper has the connection: {}", said[3]);
    }
}

#[tokio::test]
async fn what_is_asked_beyond_one_turn_is_answered_in_order() {
    let open = Open::start(rules(8, 8), TIMES, false).await;
    let mut stream = open.tcp().await;
    let head = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    // Three turns of sixteen, and the last of all is hyper's.
    let polls: Vec<String> = (0..48).map(|n| head(&format!("/at-once/{n}"))).collect();
    let asked = polls.concat() + &head("/who");
    stream.write_all(asked.as_bytes()).await.unwrap();
    let mut answers = String::new();
    while !answers.ends_with("stranger") {
        read_more(&mut stream, &mut answers).await;
    }
    let said: Vec<&str> = answers.split("HTTP/1.1 ").skip(1).collect();
    assert_eq!(said.len(), 49);
    for (n, said) in said[..48].iter().enumerate() {
        assert!(said.ends_with(&format!("first {n}")), "{said}: {n}");
    }
}

#[tokio::test]
async fn a_head_in_pieces_one_that_ends_the_connection_and_one_with_a_body_are_hypers() {
    let open = Open::plain(rules(8, 8), TIMES).await;
    let whole = |fields: &str| format!("GET /at-once/1 HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    let odd = ["Connection: close\r\n", "Content-Length: 1\r\n", "Host: b\r\n", "X : y\r\n"];
    for fields in odd {
        let mut stream = open.tcp().await;
        let text = whole(fields) + if fields.contains("Length") { "x" } else { "" };
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut answer = String::new();
        read_more(&mut stream, &mut answer).await;
        assert!(answer.starts_with("HTTP/1.1 4"), "{fields}: {answer}");
    }
    let mut stream = open.tcp().await;
    let text = whole("");
    let (head, tail) = text.split_at(20);
    stream.write_all(head.as_bytes()).await.unwrap();
    sleep(Duration::from_millis(50)).await;
    stream.write_all(tail.as_bytes()).await.unwrap();
    let mut answer = String::new();
    read_more(&mut stream, &mut answer).await;
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    // Whoever is answered at once may close its half: it is closed in turn.
    let mut stream = open.tcp().await;
    assert_eq!(ask(&mut stream, "/at-once/1").await, "first 1");
    stream.shutdown().await.unwrap();
    assert!(is_closed(&mut stream).await);
}

#[tokio::test]
async fn who_is_answered_at_once_has_the_times_of_others() {
    // Long beside what a busy machine takes for a request.
    let idle_stranger = Duration::from_secs(2);
    let (head, request) = (Duration::from_millis(1500), Duration::from_secs(3));
    let times = Times { idle_stranger, head, request, ..TIMES };
    let open = Open::plain(rules(8, 8), times).await;
    // Between requests.
    let mut stranger = open.tcp().await;
    let mut last = Instant::now();
    for _ in 0..4 {
        assert_eq!(ask(&mut stranger, "/at-once/1").await, "first 1");
        last = Instant::now();
        sleep(idle_stranger / 4).await;
    }
    assert!(is_closed(&mut stranger).await);
    assert!((idle_stranger / 2..2 * idle_stranger).contains(&last.elapsed()));
    assert_eq!(open.doors.timed_out.value(), 0, "to say nothing is no fault");
    // A head that does not end, after an answer.
    let mut slow = open.tcp().await;
    assert_eq!(ask(&mut slow, "/at-once/1").await, "first 1");
    let began = Instant::now();
    drip(&mut slow, b"G").await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(open.doors.timed_out.value(), 1);
    // Nothing at all.
    let mut silent = open.tcp().await;
    assert!(is_closed(&mut silent).await);
    until(|| open.doors.timed_out.value() == 2).await;
    // An answer that is not taken.
    let mut takes_nothing = open.tcp().await;
    takes_nothing.write_all(b"GET /at-once/large HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    until(|| open.doors.timed_out.value() == 3).await;
}

#[tokio::test]
async fn a_long_answer_is_taken_in_pieces_and_what_was_asked_meanwhile_comes_after_it() {
    let open = Open::plain(rules(8, 8), TIMES).await;
    let mut stream = open.tcp().await;
    let paths = ["/at-once/large", "/at-once/1", "/who"];
    let asked = paths.map(|path| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).concat();
    stream.write_all(asked.as_bytes()).await.unwrap();
    sleep(Duration::from_millis(100)).await;
    let mut answers = String::new();
    while !answers.ends_with("stranger") {
        read_more(&mut stream, &mut answers).await;
    }
    let (large, rest) = answers.split_once("HTTP/1.1 200 OK\r\ncontent-length: 7").unwrap();
    assert!(LARGE < large.len() && large.ends_with('x'), "{}", large.len());
    assert!(rest.contains("first 1HTTP/1.1 200"), "{rest}");
}

#[tokio::test]
async fn what_was_read_before_all_must_stop_is_answered() {
    let open = Open::plain(rules(2, 2), TIMES).await;
    let mut stream = open.tcp().await;
    let asked = ["/at-once/large", "/who"];
    let asked = asked.map(|path| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).concat();
    stream.write_all(asked.as_bytes()).await.unwrap();
    let mut answers = String::new();
    read_more(&mut stream, &mut answers).await;
    open.stop.send(true).unwrap();
    sleep(Duration::from_millis(50)).await;
    while !answers.ends_with("stranger") {
        read_more(&mut stream, &mut answers).await;
    }
    assert!(is_closed(&mut stream).await);
    open.serving.await.unwrap();
}

#[tokio::test]
async fn who_is_answered_at_once_gives_its_place_away_and_ends_when_all_must_stop() {
    let open = Open::plain(rules(2, 2), TIMES).await;
    let (mut first, mut second) = (open.tcp().await, open.tcp().await);
    assert_eq!(ask(&mut first, "/at-once/1").await, "first 1");
    assert_eq!(ask(&mut second, "/at-once/2").await, "first 2");
    assert_eq!(ask(&mut first, "/at-once/3").await, "first 3");
    let mut third = open.tcp().await;
    assert_eq!(ask(&mut third, "/at-once/4").await, "first 4");
    assert!(is_closed(&mut second).await, "it was quiet longest");
    assert_eq!(ask(&mut first, "/at-once/5").await, "first 5");
    let large = b"GET /at-once/large HTTP/1.1\r\nHost: a\r\n\r\n";
    first.write_all(large).await.unwrap();
    let mut answer = vec![0; 12];
    first.read_exact(&mut answer).await.unwrap();
    open.stop.send(true).unwrap();
    let began = Instant::now();
    assert!(is_closed(&mut third).await);
    assert!(began.elapsed() < TIMES.idle_stranger / 2, "it ends before its time is over");
    let mut rest = Vec::new();
    first.read_to_end(&mut rest).await.unwrap();
    assert!(LARGE < rest.len(), "what is under way is answered: {}", rest.len());
    open.serving.await.unwrap();
}

/// Answers some heads before hyper.
fn at_once(request: &::http1::Request<'_>, answers: &mut Vec<u8>) -> bool {
    let Some(name) = request.path.strip_prefix("/at-once/") else { return false };
    let body = if name == "large" { "x".repeat(LARGE) } else { format!("first {name}") };
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
    if request.keep_alive {
        answers.extend([head, body].concat().into_bytes());
    }
    request.keep_alive
}

/// More than sockets take.
const LARGE: usize = 64 << 20;

trait Both: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Both for T {}

async fn read_more(stream: &mut (impl AsyncRead + Unpin), to: &mut String) {
    let mut piece = vec![0; 1 << 20];
    let read = timeout(Duration::from_secs(10), stream.read(&mut piece)).await;
    let count = read.expect("an answer").unwrap();
    assert!(0 < count, "closed: {to}");
    to.push_str(str::from_utf8(&piece[..count]).unwrap());
}

fn rules(connections_max: usize, per_address_max: usize) -> Rules {
    let proxies = Vec::new();
    let (proxy_protocol, is_for_members) = (false, false);
    Rules { connections_max, per_address_max, proxies, proxy_protocol, is_for_members }
}

fn router() -> Router {
    let who = |ConnectInfo(peer): ConnectInfo<FleetPeer>| async move {
        peer.seen.map_or_else(|| "stranger".to_owned(), |seen| seen.member.to_string())
    };
    let address = |ConnectInfo(peer): ConnectInfo<Peer>| async move {
        format!("{} {}", peer.address, peer.is_proxied)
    };
    let admitted = |Extension(place): Extension<Arc<Place>>| async move {
        place.admitted();
        "admitted"
    };
    let slow = |Extension(place): Extension<Arc<Place>>| async move {
        place.admitted();
        sleep(Duration::from_secs(1)).await;
        "slow"
    };
    let large = || async { ([(header::CONTENT_TYPE, "text/plain")], vec![b'x'; 64 << 20]) };
    Router::new()
        .route("/who", get(who))
        .route("/address", get(address))
        .route("/admitted", get(admitted))
        .route("/slow", get(slow))
        .route("/large", get(large))
        .route("/read", post(async |_: String| ()))
}

impl Open {
    async fn plain(rules: Rules, times: Times) -> Self {
        Self::start(rules, times, false).await
    }

    async fn fleet(rules: Rules, times: Times) -> Self {
        Self::start(rules, times, true).await
    }

    async fn start(rules: Rules, times: Times, is_tls: bool) -> Self {
        let authority = Authority::create(now()).unwrap();
        let config = credentials(&authority, &Member::control()).0.server_tls(true).unwrap();
        let doors = Arc::new(DoorCounters::default());
        let tls = Tls::new(config, doors.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut door = Door::new(listener, is_tls.then(|| tls.clone()), rules, doors.clone());
        door.times = times;
        let refused = Arc::<Mutex<BTreeSet<String>>>::default();
        let looked_at = refused.clone();
        let admits = move |seen: &Seen| !looked_at.lock().unwrap().contains(&seen.key);
        let door = door.admitting(Box::new(admits)).with_first(Box::new(at_once));
        let (stop, stopped) = watch::channel(false);
        let serving = tokio::spawn(door.serve(router(), stopped));
        Self { authority, address, doors, tls, refused, stop, serving }
    }

    async fn tcp(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    async fn tcp_from(&self, from: [u8; 4]) -> TcpStream {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from((from, 0))).unwrap();
        socket.connect(self.address).await.unwrap()
    }

    async fn member(&self, name: &str) -> client::TlsStream<TcpStream> {
        self.connect(Some(self.key(name))).await.unwrap()
    }

    /// A new key for a member, and its certificate.
    fn key(&self, name: &str) -> Key {
        let (_, key, certificate) = credentials(&self.authority, &Member::appliance(name));
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        Key(vec![certificate], key)
    }

    async fn stranger(&self) -> io::Result<client::TlsStream<TcpStream>> {
        self.connect(None).await
    }

    async fn connect(&self, key: Option<Key>) -> io::Result<client::TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.certificate_der().clone()).unwrap();
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match key {
            Some(Key(chain, key)) => config.with_client_auth_cert(chain, key).unwrap(),
            None => config.with_no_client_auth(),
        };
        let name = ServerName::try_from(Member::control().host()).unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, self.tcp().await).await
    }
}

struct Key(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

impl Clone for Key {
    fn clone(&self) -> Self {
        Self(self.0.clone(), self.1.clone_key())
    }
}

/// The body of a short answer.
async fn ask(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let read = async {
        loop {
            let text = String::from_utf8_lossy(&answer);
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let mut lines =
                    head.lines().filter_map(|line| line.strip_prefix("content-length: "));
                let len: usize = lines.next().unwrap().parse().unwrap();
                if len <= body.len() {
                    return body.to_owned();
                }
            }
            assert!(0 < stream.read_buf(&mut answer).await.unwrap(), "closed");
        }
    };
    timeout(Duration::from_secs(10), read).await.expect("an answer")
}

/// Sends a byte every few milliseconds until the other side has closed.
async fn drip(stream: &mut TcpStream, byte: &[u8]) {
    let whole = async {
        while stream.write_all(byte).await.is_ok() {
            let mut read = [0; 512];
            let read = timeout(Duration::from_millis(5), stream.read(&mut read)).await;
            if read.is_ok_and(|read| read.is_ok_and(|len| len == 0)) {
                return;
            }
        }
    };
    timeout(Duration::from_secs(8), whole).await.expect("it has an end");
}

async fn is_closed(stream: &mut (impl AsyncRead + Unpin)) -> bool {
    let read = timeout(Duration::from_secs(5), stream.read(&mut [0; 1])).await;
    matches!(read, Ok(Ok(0) | Err(_)))
}

async fn until(holds: impl Fn() -> bool) {
    let waits = async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(5), waits).await.expect("in time");
}

fn credentials(authority: &Authority, member: &Member) -> (Credentials, String, String) {
    let key = KeyPair::generate().unwrap();
    let request = CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap();
    let issued = authority.issue(member, &request, [7; 16], now(), 3600).unwrap();
    let given = Enrolled {
        certificate: issued.certificate.clone(),
        authority: authority.certificate_pem().to_owned(),
        signing_keys: Vec::new(),
    };
    let key = key.serialize_pem();
    (Credentials::new(&key, &given).unwrap(), key, issued.certificate)
}

fn now() -> UnixSeconds {
    UnixSeconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs())
}
