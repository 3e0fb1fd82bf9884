//! Entry manifests of packagers: no reference leads outside, and what is rewritten stays whole.

use std::collections::BTreeSet;

use model::path::is_path;
use playback::{Pathway, PlaylistError, dash, hls};

const STEERING: &str = "https://control.example/steer/v1/s";
const PATHWAYS: [Pathway<'_>; 2] = [
    Pathway { id: "a1", base: "https://a1.example/t/T/film-1/", renditions: &[] },
    Pathway { id: "a2", base: "https://a2.example/t/T/film-1/", renditions: &[] },
];

/// Files that an MPD may name here: few, since each costs time and none shows anything new.
const FILES_MAX: usize = 200;

/// An HLS playlist.
pub fn hls(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let checked = hls::check("v/m.m3u8", text);
    let rewritten = hls::rewrite("v/m.m3u8", text, &[], &PATHWAYS, STEERING);
    let Ok(playlist) = checked else {
        assert!(rewritten.is_err(), "what is refused is not played");
        return;
    };
    inside(&playlist.files);
    assert_eq!(rewritten.is_ok(), playlist.kind == hls::Kind::Multivariant, "entries are played");
    let Ok(rewritten) = rewritten else { return };
    assert_eq!(rewritten.matches("#EXT-X-CONTENT-STEERING:").count(), 1, "steered once");
    let again = hls::check("v/m.m3u8", &rewritten);
    assert_eq!(again, Err(PlaylistError::Steered), "still a playlist, now with our steering");
    let lines = |text: &str| text.lines().filter(|line| is_uri(line)).count();
    assert_eq!(lines(&rewritten), lines(text) * PATHWAYS.len(), "each variant on each pathway");
    let ours = |line: &&str| PATHWAYS.iter().any(|pathway| line.starts_with(pathway.base));
    let uris = rewritten.lines().filter(|line| is_uri(line));
    assert_eq!(uris.filter(ours).count(), lines(&rewritten), "and nowhere else");
}

/// A DASH MPD.
pub fn dash(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let checked = dash::check_within("v/m.mpd", text, FILES_MAX);
    let rewritten = dash::rewrite("v/m.mpd", text, &[], &PATHWAYS, STEERING);
    let Ok(mpd) = checked else { return };
    assert!(mpd.files.len() <= FILES_MAX, "bounded");
    inside(&mpd.files);
    let rewritten = rewritten.expect("what was let in can be played");
    let ours = rewritten.matches("serviceLocation=").count();
    assert!(PATHWAYS.len() <= ours, "one base URL per pathway");
    let again = dash::check_within("v/m.mpd", &rewritten, FILES_MAX);
    assert_eq!(again, Err(PlaylistError::Steered), "still an MPD, now with our steering");
}

fn inside(files: &BTreeSet<String>) {
    for file in files {
        assert!(is_path(file), "{file:?} is inside");
    }
}

fn is_uri(line: &str) -> bool {
    !line.starts_with('#') && !line.trim().is_empty()
}
