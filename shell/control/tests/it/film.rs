//! A film as ingest would send it: ffmpeg's own manifests, and media that is only bytes.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use model::object::{BLOCK_LEN, Blocks, block_hash};
use model::units::Bytes;
use wire::v1::ingest::{Entry, EntryFormat, NewFile, NewVersion};

const MASTER: &str = include_str!("../../../../pure/playback/fixtures/ffmpeg/master.m3u8");
const MPD: &str = include_str!("../../../../pure/playback/fixtures/ffmpeg/manifest.mpd");

/// The film; `salt` makes other media and so another version.
pub(crate) fn film(salt: u8) -> NewVersion {
    let mut files = BTreeMap::new();
    let mut put = |path: &str, bytes: &[u8], kind: &str, rendition| {
        files.insert(format!("v/{path}"), NewFile { rendition, ..file(bytes, kind) });
    };
    let playlist = "application/vnd.apple.mpegurl";
    put("master.m3u8", MASTER.as_bytes(), playlist, 0);
    put("manifest.mpd", MPD.as_bytes(), "application/dash+xml", 0);
    for rendition in 0..4_u8 {
        put(&format!("media_{rendition}.m3u8"), b"#EXTM3U\n", playlist, rendition + 1);
        let media = media(salt, rendition);
        put(&format!("r{rendition}.mp4"), &media, "video/mp4", rendition + 1);
    }
    let entry = |path: &str, format, text: &str| Entry {
        path: format!("v/{path}"),
        format,
        text: text.to_owned(),
    };
    NewVersion {
        sources: vec!["https://origin.example/film/".to_owned()],
        modified_unix_s: 1_700_000_000 + u64::from(salt),
        files,
        entries: vec![
            entry("master.m3u8", EntryFormat::Hls, MASTER),
            entry("manifest.mpd", EntryFormat::Dash, MPD),
        ],
        window: None,
        again: false,
    }
}

/// The bytes of `r{rendition}.mp4`.
pub(crate) fn media(salt: u8, rendition: u8) -> Vec<u8> {
    vec![rendition ^ salt; 300_000 + usize::from(rendition)]
}

/// One file with its proof.
pub(crate) fn file(bytes: &[u8], kind: &str) -> NewFile {
    let parts: Vec<&[u8]> = bytes.chunks(BLOCK_LEN.as_usize()).collect();
    let single = parts.len() == 1;
    let hashes = (0..).zip(&parts).map(|(i, part)| block_hash(i, part, single)).collect();
    let blocks = Blocks::of_hashes(Bytes::of(bytes.len()), hashes).unwrap();
    NewFile {
        object: blocks.id().to_string(),
        len: blocks.len().0,
        content_type: kind.to_owned(),
        blocks: STANDARD.encode(wire::v1::blocks::encode(&blocks)),
        rendition: 0,
    }
}
