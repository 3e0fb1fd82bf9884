//! The lines that requests leave.

use super::*;

#[test]
fn every_request_leaves_a_line_and_no_token() {
    let mut bench = Bench::new();
    bench.get("v.mp4", "Range: bytes=0-299999\r\n");
    bench.get("list.m3u8", "");
    bench.get("not-yet.mp4", "Range: bytes=0-1 and more\r\n");
    let other = bench.connect(50);
    bench.say(other, "GET /elsewhere?a=b HTTP/1.1\r\nHost: a\r\n\r\n");
    while bench.step(0) {}
    let broken = bench.connect(51);
    bench.say(broken, "GET\r\n\r\n");
    while bench.step(0) {}
    let left = bench.connect(52);
    bench.say(left, &get("v.mp4", ""));
    bench.event(Event::Ended { connection: left });
    let mut lines = Vec::new();
    bench.worker.take_log(&mut lines);
    assert_eq!(bench.worker.log_len(), 0);
    let text = String::from_utf8(lines).unwrap();
    let time = "2026-09-21T14:13:20Z";
    // printf %s CQkJCQkJCQkJCQkJ | sha256sum
    let mark = "38418f58";
    let expected = [
        format!("{time} 206 GET film-1/v.mp4 0-299999 300000 0.0ms 0.0ms {mark} whole"),
        format!("{time} 200 GET film-1/list.m3u8 - 3000 0.0ms 0.0ms {mark} whole"),
        format!("{time} 404 GET film-1/not-yet.mp4 ? 0 0.0ms 0.0ms {mark} whole"),
        format!("{time} 404 GET - - 0 0.0ms 0.0ms - whole"),
        format!("{time} 400 - - - 0 0.0ms 0.0ms - whole"),
        format!("{time} - GET film-1/v.mp4 - 0 0.0ms 0.0ms {mark} cut"),
    ];
    let got: Vec<&str> = text.lines().collect();
    assert_eq!(got, expected);
}

#[test]
fn lines_that_nobody_takes_are_lost_and_counted() {
    let mut bench = Bench::new();
    let connection = bench.connect(1);
    let ask = get("list.m3u8", "").replacen("GET", "HEAD", 1);
    while bench.worker.counters().log_lines_lost == 0 {
        bench.say(connection, &ask);
        while bench.step(0) {}
        assert!(bench.worker.log_len() <= 256 * 1024);
    }
    bench.worker.take_log(&mut Vec::new());
    bench.say(connection, &ask);
    while bench.step(0) {}
    assert_eq!(bench.worker.counters().log_lines_lost, 1);
    assert_ne!(bench.worker.log_len(), 0);
}
