//! What is told of a player's requests once their responses are over.

use model::cmcd::Object;
use playback::player::Player;
use worker::View;

use super::*;

fn views(bench: &mut Bench) -> Vec<View> {
    let mut views = Vec::new();
    bench.worker.take_views(&mut views);
    views
}

#[test]
fn each_response_of_media_is_told_with_the_words_of_its_player() {
    let mut bench = Bench::new();
    let connection = bench.connect(0);
    let client = "192.0.2.7".parse().unwrap();
    bench.event(Event::From { connection, client });
    let said = "bl%3D2100%2Cbr%3D3200%2Cbs%2Cd%3D4000%2Cot%3Dv%2Csid%3D%22x%22";
    let token = token();
    let request = |query: &str, fields: &str| {
        format!("GET /t/{token}/film-1/v.mp4?{query} HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
    };
    let agent = "User-Agent: Mozilla/5.0\r\n";
    bench.say(connection, &request(&format!("CMCD={said}"), agent));
    while bench.step(0) {}
    let fields = "CMCD-Session: sid=\"x\",sf=h\r\nCMCD-Object: ot=a\r\n";
    bench.say(connection, &request("", fields));
    while bench.step(0) {}
    let told = views(&mut bench);
    assert_eq!(told.len(), 2);
    for view in &told {
        assert_eq!((view.client, view.player), (Some(client), Player::Browser));
        let of = &view.response;
        assert_eq!((view.version(), of.sent, of.whole), ("film-1", Bytes(1_000_000), true));
        assert_eq!(view.object, ObjectId([1; 32]));
        assert!(of.begun <= of.ended && of.hints.told);
    }
    assert_eq!(told[0].session(), told[1].session());
    let hints = [&told[0], &told[1]].map(|view| view.response.hints);
    assert!(hints[0].starved && hints[0].object == Some(Object::Video));
    assert_eq!(hints[1].object, Some(Object::Audio));
    assert!(views(&mut bench).is_empty());
}

#[test]
fn what_is_no_media_is_not_told_and_what_was_broken_off_is_told_so() {
    let mut bench = Bench::new();
    bench.get("not-yet.mp4", "");
    bench.get("v.mp4", "If-None-Match: *\r\n");
    let head = bench.connect(40);
    bench.say(head, &get("v.mp4", "").replacen("GET", "HEAD", 1));
    while bench.step(0) {}
    assert!(views(&mut bench).is_empty());
    let left = bench.connect(41);
    bench.say(left, &get("v.mp4", ""));
    bench.event(Event::Ended { connection: left });
    let told = views(&mut bench);
    assert_eq!(told.len(), 1);
    let cut = &told[0].response;
    assert!(!cut.whole && !cut.hints.told);
    assert_eq!((cut.sent, told[0].client), (Bytes::ZERO, None));
}

#[test]
fn views_that_nobody_takes_are_lost_and_counted() {
    let mut bench = Bench::with(Config { views_max: 3, ..config() });
    for _ in 0..5 {
        bench.get("list.m3u8", "");
    }
    assert_eq!((bench.worker.view_count(), bench.worker.counters().views_lost), (3, 2));
    assert_eq!(views(&mut bench).len(), 3);
    bench.get("list.m3u8", "");
    assert_eq!(bench.worker.view_count(), 1);
    let mut none = Bench::with(Config { views_max: 0, ..config() });
    none.get("list.m3u8", "");
    assert_eq!((none.worker.view_count(), none.worker.counters().views_lost), (0, 0));
}
