//! Which `Content-Type` a file gets, by the end of its name. Players go by these.
//!
//! A type that is not what the first table said is part of a version's name (`ingest`): to change
//! or to add one, write it into `SINCE`, and leave `FIRST` alone.

/// The content type of `path`; bytes of an unknown kind are `application/octet-stream`.
pub(crate) fn content_type(path: &str) -> &'static str {
    look_up(&SINCE, path).unwrap_or_else(|| first_content_type(path))
}

/// The same by the first table.
pub(crate) fn first_content_type(path: &str) -> &'static str {
    look_up(&FIRST, path).unwrap_or(OTHER)
}

fn look_up(table: &[(&str, &'static str)], path: &str) -> Option<&'static str> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let (_, extension) = name.rsplit_once('.')?;
    let extension = extension.to_ascii_lowercase();
    table.iter().find(|(known, _)| *known == extension).map(|(_, kind)| *kind)
}

const OTHER: &str = "application/octet-stream";

/// What was added or changed since the first version that was named.
const SINCE: [(&str, &str); 0] = [];

/// RFC 8216 section 4, ISO/IEC 23009-1 annex C, IANA's register for the rest. Never changed.
const FIRST: [(&str, &str); 27] = [
    ("aac", "audio/aac"),
    ("ac3", "audio/ac3"),
    ("ass", "text/x-ssa"),
    ("cmfa", "audio/mp4"),
    ("cmft", "application/mp4"),
    ("cmfv", "video/mp4"),
    ("dash", "application/dash+xml"),
    ("ec3", "audio/eac3"),
    ("gif", "image/gif"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("json", "application/json"),
    ("m3u8", "application/vnd.apple.mpegurl"),
    ("m4a", "audio/mp4"),
    ("m4s", "video/iso.segment"),
    ("m4v", "video/mp4"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("mpd", "application/dash+xml"),
    ("png", "image/png"),
    ("srt", "application/x-subrip"),
    ("ts", "video/mp2t"),
    ("ttml", "application/ttml+xml"),
    ("txt", "text/plain; charset=utf-8"),
    ("vtt", "text/vtt"),
    ("webm", "video/webm"),
    ("webp", "image/webp"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_typed_by_the_end_of_their_names() {
        for (path, kind) in [
            ("a/master.m3u8", "application/vnd.apple.mpegurl"),
            ("manifest.mpd", "application/dash+xml"),
            ("v/R0.MP4", "video/mp4"),
            ("seg-1.m4s", "video/iso.segment"),
            ("en.vtt", "text/vtt"),
            ("0001.ts", "video/mp2t"),
            ("audio.m4a", "audio/mp4"),
            ("README", "application/octet-stream"),
            ("dir.mp4/key", "application/octet-stream"),
            (".mp4", "video/mp4"),
        ] {
            assert_eq!(content_type(path), kind, "{path}");
        }
    }

    #[test]
    fn the_table_is_in_order_and_each_ending_is_there_once() {
        assert!(FIRST.is_sorted_by(|a, b| a.0 < b.0) && SINCE.is_sorted_by(|a, b| a.0 < b.0));
    }
}
