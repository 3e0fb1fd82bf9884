//! The playlists and MPDs of a directory: read whole, checked, and the entry ones handed on.
//!
//! Nothing of a broken package is published: what a player would stumble over in the middle of a
//! film is said here, with the playlist's name and the line.

use std::collections::BTreeMap;
use std::ops::Range;

use anyhow::{Context as _, ensure};
use model::units::Bytes;
use playback::reference::{encode, resolve};
use playback::{MANIFEST_LEN_MAX, PlaylistError, dash, hls, renditions};
use wire::v1::ingest::{Entry, EntryFormat};

use super::files::Files;
use super::walk::Stamp;

/// Every `*.m3u8` and `*.mpd` of a directory, by path.
#[derive(Debug)]
pub(super) struct Manifests(BTreeMap<String, Vec<u8>>);

impl Manifests {
    /// Reads them, each once and whole.
    pub(super) fn read(
        files: &dyn Files,
        stamps: &BTreeMap<String, Stamp>,
    ) -> anyhow::Result<Self> {
        let mut manifests = BTreeMap::new();
        for (path, stamp) in stamps {
            if format(path).is_none() {
                continue;
            }
            ensure!(
                stamp.len <= MANIFEST_LEN_MAX,
                "{path}: it has {}, more than the limit of {MANIFEST_LEN_MAX} for a manifest",
                stamp.len
            );
            let bytes = files.read(path, *stamp)?;
            manifests.insert(path.clone(), bytes);
        }
        Ok(Self(manifests))
    }

    /// The bytes of a manifest; none for any other file.
    pub(super) fn bytes(&self, path: &str) -> Option<&[u8]> {
        self.0.get(path).map(Vec::as_slice)
    }

    pub(super) fn len(&self) -> Bytes {
        Bytes(self.0.values().map(|bytes| Bytes::of(bytes.len()).0).sum())
    }

    /// The rendition of each file, in the order of paths. They have been checked.
    pub(super) fn renditions(&self, files: &BTreeMap<String, Stamp>) -> anyhow::Result<Vec<u8>> {
        let mut sets = Vec::new();
        for (path, bytes) in &self.0 {
            let text = std::str::from_utf8(bytes).with_context(|| format!("{path}: not UTF-8"))?;
            match format(path).expect("only these were read") {
                EntryFormat::Hls => {
                    let mut playlist = hls::check(path, text)?;
                    if playlist.kind == hls::Kind::Media {
                        playlist.files.insert(path.clone());
                        sets.push(playlist.files);
                    }
                }
                EntryFormat::Dash => sets.extend(dash::files_of_each(path, text)?),
            }
        }
        Ok(renditions::divide(files.keys().map(String::as_str), &sets))
    }

    /// Checks all of them against the files there are, and returns the entry manifests.
    pub(super) fn check(&self, files: &BTreeMap<String, Stamp>) -> anyhow::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for (path, bytes) in &self.0 {
            let text = std::str::from_utf8(bytes).with_context(|| format!("{path}: not UTF-8"))?;
            let format = format(path).expect("only these were read");
            if check(path, text, format, files)? {
                entries.push(Entry { path: path.clone(), format, text: text.to_owned() });
            }
        }
        Ok(entries)
    }
}

/// True if this is an entry manifest; an error if a player could not play it to its end.
fn check(
    path: &str,
    text: &str,
    format: EntryFormat,
    files: &BTreeMap<String, Stamp>,
) -> anyhow::Result<bool> {
    let refused = |error: PlaylistError| match line_of_error(text, &error) {
        Some(line) => anyhow::anyhow!("{path}, line {line}: {error}"),
        None => anyhow::anyhow!("{path}: {error}"),
    };
    let len_of = |file: &str| files.get(file).map_or(Bytes::ZERO, |stamp| stamp.len);
    let mut parts = Vec::new();
    let (entry, named) = match format {
        EntryFormat::Hls => {
            let playlist = hls::check(path, text).map_err(refused)?;
            (playlist.kind == hls::Kind::Multivariant, playlist.files)
        }
        EntryFormat::Dash => {
            let mpd = dash::check(path, text).map_err(refused)?;
            // A line is counted from the beginning, so only for what is wrong: there may be 20,000.
            let wrong = mpd.parts.into_iter().filter(|part| len_of(&part.file) < part.end);
            parts.extend(wrong.map(|part| Part {
                line: line_at(text, part.at),
                file: part.file,
                end: part.end,
            }));
            (true, mpd.files)
        }
    };
    let stands =
        |file: &str| line_of_file(text, file).map_or_else(String::new, |n| format!(", line {n}"));
    for file in &named {
        ensure!(
            files.contains_key(file),
            "{path}{}: it names \"{file}\", which is not in the directory",
            stands(file)
        );
    }
    if format == EntryFormat::Hls {
        parts = byte_ranges(path, text);
    }
    for part in parts {
        let len = len_of(&part.file);
        ensure!(
            part.end <= len,
            "{path}, line {}: it wants bytes up to {} of \"{}\", which has only {}: is that \
             file complete?",
            part.line,
            part.end.0,
            part.file,
            len.0
        );
    }
    Ok(entry)
}

/// A part of a file that a media playlist names.
struct Part {
    line: usize,
    file: String,
    /// One past the last byte.
    end: Bytes,
}

/// The byte ranges of a playlist (RFC 8216, sections 4.3.2.2 and 4.3.2.5). A range without an
/// offset follows on the one before.
fn byte_ranges(path: &str, text: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut waiting: Option<(usize, &str)> = None;
    let mut end = 0;
    let file = |uri: &str| resolve(path, uri).ok().map(|target| target.path);
    for (line, content) in (1..).zip(text.lines()) {
        let content = content.trim_end();
        if let Some(range) = content.strip_prefix("#EXT-X-BYTERANGE:") {
            waiting = Some((line, range));
        } else if let Some(list) = content.strip_prefix("#EXT-X-MAP:") {
            let quoted = |name| Some(list.split_once(name)?.1.split_once('"')?.0);
            let range = quoted("BYTERANGE=\"").and_then(|range| range_of(range, 0));
            let named = quoted("URI=\"").and_then(file);
            parts.extend(named.zip(range).map(|(file, range)| Part {
                line,
                file,
                end: Bytes(range.end),
            }));
        } else if !content.starts_with('#') && !content.is_empty() {
            let Some((line, range)) = waiting.take() else { continue };
            let Some(range) = range_of(range, end) else { continue };
            end = range.end;
            parts.extend(file(content).map(|file| Part { line, file, end: Bytes(end) }));
        }
    }
    parts
}

/// `len[@offset]`.
fn range_of(text: &str, after: u64) -> Option<Range<u64>> {
    let (len, start) = match text.split_once('@') {
        Some((len, offset)) => (len, offset.trim().parse().ok()?),
        None => (text, after),
    };
    let len: u64 = len.trim().parse().ok()?;
    Some(start..start.saturating_add(len))
}

fn line_at(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

/// The line where a manifest names a file, from 1.
fn line_of_file(text: &str, file: &str) -> Option<usize> {
    let name = file.rsplit('/').next().unwrap_or(file);
    line_with(text, &[name, &encode(name)])
}

fn line_of_error(text: &str, error: &PlaylistError) -> Option<usize> {
    match error {
        PlaylistError::NotHls | PlaylistError::NotMpd => Some(1),
        PlaylistError::NotEnded => Some(text.lines().count()),
        PlaylistError::Xml { at, .. } => text.is_char_boundary(*at).then(|| line_at(text, *at)),
        PlaylistError::NotStatic(kind) => {
            line_with(text, &[&format!("type=\"{kind}\""), &format!("type='{kind}'")])
        }
        PlaylistError::Bandwidth(said) => line_with(
            text,
            &[
                &format!("BANDWIDTH={said}"),
                &format!("bandwidth=\"{said}\""),
                &format!("bandwidth='{said}'"),
            ],
        ),
        PlaylistError::Range(said)
        | PlaylistError::Variable(said)
        | PlaylistError::Elsewhere(said)
        | PlaylistError::Template(said)
        | PlaylistError::Outside(said)
        | PlaylistError::NotAFile(said) => line_with(text, &[said]),
        PlaylistError::Steered => {
            line_with(text, &["#EXT-X-CONTENT-STEERING", "PATHWAY-ID=", "ContentSteering"])
        }
        // The first two say their line themselves; the others are about the whole.
        PlaylistError::UriMissing(_)
        | PlaylistError::Twice { .. }
        | PlaylistError::TooLong(_)
        | PlaylistError::Mixed
        | PlaylistError::TooManyFiles
        | PlaylistError::TooManyRepresentations => None,
    }
}

fn line_with(text: &str, any: &[&str]) -> Option<usize> {
    let has = |line: &str| any.iter().any(|word| !word.is_empty() && line.contains(word));
    text.lines().position(has).map(|index| index + 1)
}

fn format(path: &str) -> Option<EntryFormat> {
    let (_, extension) = path.rsplit_once('.')?;
    match extension.to_ascii_lowercase().as_str() {
        "m3u8" => Some(EntryFormat::Hls),
        "mpd" => Some(EntryFormat::Dash),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    const MASTER: &str = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\nv/r0.m3u8\n";
    const MEDIA: &str = "#EXTM3U\n#EXT-X-TARGETDURATION:4\n\
        #EXT-X-MAP:URI=\"r0.mp4\",BYTERANGE=\"100@0\"\n\
        #EXTINF:4,\n#EXT-X-BYTERANGE:500@100\nr0.mp4\n\
        #EXTINF:4,\n#EXT-X-BYTERANGE:400\nr0.mp4\n#EXT-X-ENDLIST\n";
    const MPD: &str = "<?xml version=\"1.0\"?>\n<MPD type=\"static\">\n<Period>\n\
        <AdaptationSet><Representation>\n<BaseURL>v/r0.mp4</BaseURL>\n\
        </Representation></AdaptationSet></Period></MPD>\n";

    /// Checks a package of a master, its media playlist, an MPD and one file of 1,000 bytes.
    fn checked(
        edit: impl Fn(&mut BTreeMap<&'static str, String>),
    ) -> anyhow::Result<Vec<(String, EntryFormat)>> {
        let dir = tempfile::tempdir().unwrap();
        let mut files = BTreeMap::from([
            ("master.m3u8", MASTER.to_owned()),
            ("v/r0.m3u8", MEDIA.to_owned()),
            ("manifest.mpd", MPD.to_owned()),
            ("v/r0.mp4", "x".repeat(1_000)),
        ]);
        edit(&mut files);
        std::fs::create_dir(dir.path().join("v")).unwrap();
        for (path, text) in files {
            std::fs::write(dir.path().join(path), text).unwrap();
        }
        let tree = Tree::open(dir.path()).unwrap();
        let stamps = super::super::walk::walk(&tree).unwrap();
        let entries = Manifests::read(&tree, &stamps)?.check(&stamps)?;
        Ok(entries.into_iter().map(|entry| (entry.path, entry.format)).collect())
    }

    #[test]
    fn multivariant_playlists_and_mpds_are_entries_and_media_playlists_are_not() {
        let entries = checked(|_| ()).unwrap();
        let wanted = [
            ("manifest.mpd".to_owned(), EntryFormat::Dash),
            ("master.m3u8".to_owned(), EntryFormat::Hls),
        ];
        assert_eq!(entries, wanted);
    }

    #[test]
    fn a_playlist_and_a_representation_of_the_same_media_are_one_rendition() {
        let files = [
            ("master.m3u8", MASTER.to_owned() + &MASTER[8..].replace("r0", "r1")),
            ("v/r0.m3u8", MEDIA.to_owned()),
            ("v/r1.m3u8", MEDIA.replace("r0", "r1")),
            ("manifest.mpd", MPD.to_owned()),
        ];
        let bytes = |(path, text): &(&str, String)| ((*path).to_owned(), text.clone().into_bytes());
        let manifests = Manifests(files.iter().map(bytes).collect());
        let paths =
            ["manifest.mpd", "master.m3u8", "v/r0.m3u8", "v/r0.mp4", "v/r1.m3u8", "v/r1.mp4"];
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("v")).unwrap();
        paths.iter().for_each(|path| std::fs::write(dir.path().join(path), "").unwrap());
        let stamps = super::super::walk::walk(&Tree::open(dir.path()).unwrap()).unwrap();
        assert_eq!(manifests.renditions(&stamps).unwrap(), [0, 0, 1, 1, 2, 2]);
    }

    #[test]
    fn broken_packages_are_refused_with_the_playlist_and_the_line() {
        let replaced = |path: &'static str, from: &str, to: &str| {
            let result = checked(|files| {
                let text = files.get_mut(path).unwrap();
                assert!(text.contains(from), "the case is about something there");
                *text = text.replace(from, to);
            });
            format!("{:#}", result.unwrap_err())
        };
        for (path, from, to, said) in [
            ("v/r0.m3u8", "#EXT-X-ENDLIST\n", "", "v/r0.m3u8, line 9: it has no #EXT-X-ENDLIST"),
            (
                "v/r0.m3u8",
                "MAP:URI=\"r0",
                "MAP:URI=\"r1",
                "v/r0.m3u8, line 3: it names \"v/r1.mp4\"",
            ),
            ("master.m3u8", "r0", "r7", "master.m3u8, line 3: it names \"v/r7.m3u8\""),
            ("master.m3u8", "v/r0", "../r0", "master.m3u8, line 3: \"../r0.m3u8\" is not inside"),
            ("manifest.mpd", "static", "dynamic", "manifest.mpd, line 2: its type is \"dynamic\""),
            ("manifest.mpd", "r0", "r9", "manifest.mpd, line 5: it names \"v/r9.mp4\""),
            ("manifest.mpd", "</Period>", "", "manifest.mpd, line "),
            ("v/r0.m3u8", "RANGE:400", "RANGE:401", "v/r0.m3u8, line 8: it wants bytes up to 1001"),
            ("v/r0.m3u8", "100@0", "100@999", "v/r0.m3u8, line 3: it wants bytes up to 1099"),
            ("v/r0.m3u8", "#EXTM3U", "hello", "v/r0.m3u8, line 1: it is no HLS playlist"),
            ("v/r0.m3u8", "#EXTM3U", "\u{feff}#EXTM3U", "v/r0.m3u8, line 1: it is no HLS playlist"),
            ("master.m3u8", "=1", "=0", "master.m3u8, line 2: the bandwidth \"0\" is not"),
            ("master.m3u8", "v/r0", "/v/r0", "master.m3u8, line 3: \"/v/r0.m3u8\" is not inside"),
            ("master.m3u8", "v/r0", "//x/r0", "master.m3u8, line 3: \"//x/r0.m3u8\" is not inside"),
            (
                "manifest.mpd",
                "</BaseURL>",
                "</BaseURL><SegmentBase\nindexRange='990-1000'/>",
                "manifest.mpd, line 5: it wants bytes up to 1001 of \"v/r0.mp4\", which has only",
            ),
            (
                "manifest.mpd",
                "</BaseURL>",
                "</BaseURL><SegmentBase indexRange='9-1'/>",
                "manifest.mpd, line 5: the byte range \"9-1\" is not of the form",
            ),
            (
                "manifest.mpd",
                "<MPD",
                "<!DOCTYPE MPD [<!ENTITY a \"aa\"><!ENTITY b \"&a;&a;\">]><MPD",
                "manifest.mpd, line 2: it is no well-formed XML near byte",
            ),
            ("manifest.mpd", "v/r0", "&a;", "manifest.mpd, line 5: it is no well-formed XML"),
        ] {
            let error = replaced(path, from, to);
            assert!(error.starts_with(said), "{error}");
        }
    }

    #[test]
    fn an_mpd_as_long_as_may_be_is_checked_at_once() {
        let segment = "<SegmentURL media=\"v/r0.mp4\" mediaRange=\"0-999\"/>\n";
        let count = (MANIFEST_LEN_MAX.as_usize() - 2 * MPD.len()) / segment.len();
        let list = format!("</BaseURL><SegmentList>{}</SegmentList>", segment.repeat(count));
        let text = MPD.replace("v/r0.mp4</BaseURL>", &format!("./{list}"));
        let began = std::time::Instant::now();
        checked(|files| drop(files.insert("manifest.mpd", text.clone()))).unwrap();
        assert!(20_000 < count && began.elapsed() < std::time::Duration::from_secs(30));
        let last = text.replace("</SegmentList>", &format!("{segment}</SegmentList>"));
        let last = last.replace("0-999\"/>\n</Seg", "0-1000\"/>\n</Seg");
        let error = checked(|files| drop(files.insert("manifest.mpd", last.clone())));
        let (error, line) = (error.unwrap_err().to_string(), count + 5);
        assert!(error.starts_with(&format!("manifest.mpd, line {line}: it wants")), "{error}");
    }

    #[test]
    fn a_truncated_media_file_is_noticed() {
        let error = checked(|files| {
            files.insert("v/r0.mp4", "x".repeat(999));
        });
        let error = error.unwrap_err().to_string();
        assert!(error.contains("of \"v/r0.mp4\", which has only 999"), "{error}");
    }
}
