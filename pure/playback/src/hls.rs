//! HLS playlists (RFC 8216 and its successor draft-pantos-hls-rfc8216bis): checked, and rewritten.
//!
//! A rewritten multivariant playlist is the packager's, byte for byte, but for this:
//!
//! ```text
//! #EXTM3U
//! #EXT-X-CONTENT-STEERING:SERVER-URI="...",PATHWAY-ID="a1"                        added
//! #EXT-X-MEDIA:...,GROUP-ID="g/a1",URI="https://a1/...",STABLE-RENDITION-ID="..." changed
//! #EXT-X-STREAM-INF:...,AUDIO="g/a1",PATHWAY-ID="a1",STABLE-VARIANT-ID="..."      changed
//! https://a1/...                                                                  changed
//! (all lines of these kinds again for a2, a3, ...)                                added
//! ```
//!
//! So a player without steering still sees redundant variants, the best appliance's first.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use model::limits::FILES_PER_VERSION_MAX;
use model::units::BitsPerSecond;

use crate::reference::{Files, is_absolute, resolve};
use crate::{Pathway, PlaylistError, Reference, check_len};

/// A playlist's kind, and the files that it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Playlist {
    pub kind: Kind,
    /// Paths of the files that it refers to, from the asset version's root.
    pub files: BTreeSet<String>,
}

/// The two kinds of playlists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Lists variants and renditions: an entry manifest.
    Multivariant,
    Media,
}

/// Checks the playlist at `path` of an asset version: finished, and every reference inside the
/// version. Keys may be elsewhere: they are the licence server's affair.
pub fn check(path: &str, text: &str) -> Result<Playlist, PlaylistError> {
    check_len(text)?;
    let mut files = Files::new(FILES_PER_VERSION_MAX);
    let (mut variants, mut segments, mut ended, mut pending) = (false, false, false, None);
    for line in lines(text)? {
        match line.content {
            Content::Tag(name, list) => {
                if name == "EXT-X-CONTENT-STEERING" || attribute(list, "PATHWAY-ID").is_some() {
                    return Err(PlaylistError::Steered);
                }
                if let Some(name) = said_twice(name, list) {
                    return Err(PlaylistError::Twice { line: line.number, name: name.to_owned() });
                }
                if let Some(bandwidth) = attribute(list, "BANDWIDTH")
                    && !bandwidth.parse().is_ok_and(|bandwidth: u64| bandwidth != 0)
                    && names_variant(name)
                {
                    return Err(PlaylistError::Bandwidth(bandwidth.to_owned()));
                }
                variants |= names_variant(name);
                segments |= name == "EXTINF" || name == "EXT-X-TARGETDURATION";
                ended |= name == "EXT-X-ENDLIST";
                if name == "EXT-X-STREAM-INF" {
                    pending = Some(line.number);
                }
                if let Some(uri) = tag_uri(&line, name, list)? {
                    files.add(path, uri)?;
                }
            }
            Content::Uri(uri) => {
                pending = None;
                files.add(path, checked_uri(uri)?)?;
            }
            Content::Other => {}
        }
    }
    if let Some(number) = pending {
        return Err(PlaylistError::UriMissing(number));
    }
    let kind = match (variants, segments) {
        (true, false) => Kind::Multivariant,
        (false, true) if !ended => return Err(PlaylistError::NotEnded),
        (false, true) => Kind::Media,
        (true, true) | (false, false) => return Err(PlaylistError::Mixed),
    };
    Ok(Playlist { kind, files: files.into_inner() })
}

/// The highest bandwidth of the variants of a multivariant playlist: their peak, with audio (RFC
/// 8216 section 4.3.4.2). None if there is none.
pub fn peak(text: &str) -> Option<BitsPerSecond> {
    let bandwidth = |line: Line<'_>| match line.content {
        Content::Tag("EXT-X-STREAM-INF", list) => attribute(list, "BANDWIDTH")?.parse().ok(),
        Content::Tag(..) | Content::Uri(_) | Content::Other => None,
    };
    lines(text).ok()?.filter_map(bandwidth).max().map(BitsPerSecond)
}

/// The media playlists that the multivariant playlist at `path` names, each time that it does, in
/// its order.
pub fn references(path: &str, text: &str) -> Result<Vec<Reference>, PlaylistError> {
    check_len(text)?;
    let (mut references, mut bandwidth) = (Vec::new(), None);
    let bitrate = |list| attribute(list, "BANDWIDTH")?.parse().ok().map(BitsPerSecond);
    for line in lines(text)?.filter(Line::is_per_pathway) {
        let (uri, bitrate) = match line.content {
            Content::Tag(name, list) => {
                bandwidth = bitrate(list);
                (tag_uri(&line, name, list)?, bandwidth)
            }
            Content::Uri(uri) => (Some(uri), bandwidth.take()),
            Content::Other => (None, None),
        };
        if let Some(uri) = uri {
            references.push(Reference { file: resolve(path, checked_uri(uri)?)?.path, bitrate });
        }
    }
    Ok(references)
}

/// Rewrites the multivariant playlist at `path` for one playback: on all `pathways`, best first,
/// steered by the server at the URL `steering`. `renditions` has the number of each of its
/// [`references`], or is empty.
pub fn rewrite(
    path: &str,
    text: &str,
    renditions: &[u8],
    pathways: &[Pathway<'_>],
    steering: &str,
) -> Result<String, PlaylistError> {
    let (first, others) = pathways.split_first().expect("a playback has at least one pathway");
    if check(path, text)?.kind != Kind::Multivariant {
        return Err(PlaylistError::Mixed);
    }
    let lines: Vec<Line<'_>> = lines(text)?.collect();
    let mut out = String::with_capacity(text.len() * 2 * pathways.len());
    let mut rewriter = Rewriter::new(path, renditions, first);
    for line in &lines {
        rewriter.line(line, &mut out)?;
        if line.number == 1 {
            let (id, end) = (first.id, if line.end.is_empty() { "\n" } else { line.end });
            if line.end.is_empty() {
                out.push_str(end);
            }
            write!(
                out,
                "#EXT-X-CONTENT-STEERING:SERVER-URI=\"{steering}\",PATHWAY-ID=\"{id}\"{end}"
            )
            .expect("a string takes all");
        }
    }
    if !out.ends_with('\n') {
        out.push('\n');
    }
    for pathway in others {
        let mut rewriter = Rewriter::new(path, renditions, pathway);
        for line in lines.iter().filter(|line| line.is_per_pathway()) {
            rewriter.line(line, &mut out)?;
            if line.end.is_empty() {
                out.push('\n');
            }
        }
    }
    Ok(out)
}

/// Rewrites lines for one pathway.
struct Rewriter<'a> {
    path: &'a str,
    pathway: &'a Pathway<'a>,
    /// Numbers of the references that are still to come.
    renditions: std::slice::Iter<'a, u8>,
    /// Variants (and I-frame variants) so far; numbers their stable ids.
    variant_count: usize,
    /// Renditions so far; numbers their stable ids.
    rendition_count: usize,
}

impl<'a> Rewriter<'a> {
    fn new(path: &'a str, renditions: &'a [u8], pathway: &'a Pathway<'a>) -> Self {
        let renditions = renditions.iter();
        Self { path, pathway, renditions, variant_count: 0, rendition_count: 0 }
    }

    fn line(&mut self, line: &Line<'_>, out: &mut String) -> Result<(), PlaylistError> {
        match line.content {
            Content::Uri(uri) => {
                let base = self.next_base();
                out.push_str(&self.absolute(uri, base)?);
            }
            Content::Tag(name, list) if line.is_per_pathway() => {
                write!(out, "#{name}:").expect("a string takes all");
                self.attributes(name, list, out)?;
                let (added, id) = self.stable_id(name);
                if attribute(list, added).is_none() {
                    write!(out, ",{added}=\"{id}\"").expect("a string takes all");
                }
                if name != "EXT-X-MEDIA" {
                    write!(out, ",PATHWAY-ID=\"{}\"", self.pathway.id).expect("a string takes all");
                }
            }
            Content::Tag(name, list) if names_file(name) => {
                write!(out, "#{name}:").expect("a string takes all");
                self.attributes(name, list, out)?;
            }
            Content::Tag(..) | Content::Other => out.push_str(line.text),
        }
        out.push_str(line.end);
        Ok(())
    }

    /// The list with its URI made absolute and its groups made the pathway's own.
    fn attributes(&mut self, tag: &str, list: &str, out: &mut String) -> Result<(), PlaylistError> {
        let mut copied = 0;
        for Attribute { name, value, at } in attributes(list) {
            let Some(text) = unquote(value) else { continue };
            let changed = match name {
                "URI" if !names_file(tag) || is_absolute(text) => continue,
                "URI" if names_rendition(tag) => {
                    let base = self.next_base();
                    self.absolute(text, base)?
                }
                "URI" => self.absolute(text, self.pathway.base)?,
                "GROUP-ID" | "AUDIO" | "VIDEO" | "SUBTITLES" | "CLOSED-CAPTIONS" => {
                    format!("{text}/{}", self.pathway.id)
                }
                _ => continue,
            };
            write!(out, "{}\"{changed}\"", &list[copied..at]).expect("a string takes all");
            copied = at + value.len();
        }
        out.push_str(&list[copied..]);
        Ok(())
    }

    fn stable_id(&mut self, tag: &str) -> (&'static str, String) {
        if tag == "EXT-X-MEDIA" {
            self.rendition_count += 1;
            ("STABLE-RENDITION-ID", format!("rendition-{}", self.rendition_count))
        } else {
            self.variant_count += 1;
            ("STABLE-VARIANT-ID", format!("variant-{}", self.variant_count))
        }
    }

    /// Where the rendition is that the next reference names.
    fn next_base(&mut self) -> &'a str {
        self.pathway.base_of(self.renditions.next().copied().unwrap_or(0))
    }

    fn absolute(&self, uri: &str, base: &str) -> Result<String, PlaylistError> {
        Ok(resolve(self.path, checked_uri(uri)?)?.under(base))
    }
}

struct Line<'a> {
    /// From 1.
    number: usize,
    /// Without its end.
    text: &'a str,
    /// `\n`, `\r\n`, or nothing at the end of the playlist.
    end: &'a str,
    content: Content<'a>,
}

#[derive(Clone, Copy)]
enum Content<'a> {
    /// Name without `#`, and the text after the colon.
    Tag(&'a str, &'a str),
    Uri(&'a str),
    Other,
}

impl Line<'_> {
    fn is_per_pathway(&self) -> bool {
        match self.content {
            Content::Tag(name, _) => names_rendition(name),
            Content::Uri(_) => true,
            Content::Other => false,
        }
    }
}

fn lines(text: &str) -> Result<impl Iterator<Item = Line<'_>>, PlaylistError> {
    let lines = text.split_inclusive('\n').zip(1..).map(|(raw, number)| {
        let without = raw.strip_suffix('\n').unwrap_or(raw);
        let text = without.strip_suffix('\r').unwrap_or(without);
        let content = match text.strip_prefix('#') {
            Some(tag) if tag.starts_with("EXT") => {
                let (name, list) = tag.split_once(':').unwrap_or((tag, ""));
                Content::Tag(name, list)
            }
            Some(_) => Content::Other,
            None if text.trim().is_empty() => Content::Other,
            None => Content::Uri(text),
        };
        Line { number, text, end: &raw[text.len()..], content }
    });
    let mut lines = lines.peekable();
    let is_hls = lines.peek().is_some_and(|first| first.text.trim_end() == "#EXTM3U");
    if is_hls { Ok(lines) } else { Err(PlaylistError::NotHls) }
}

/// The file that a tag names, if it is of a kind that does and the file is ours.
fn tag_uri<'a>(
    line: &Line<'_>,
    name: &str,
    list: &'a str,
) -> Result<Option<&'a str>, PlaylistError> {
    if !names_file(name) {
        return Ok(None);
    }
    let may_be_elsewhere = name == "EXT-X-KEY" || name == "EXT-X-SESSION-KEY";
    match attribute(list, "URI").and_then(unquote) {
        Some(uri) if may_be_elsewhere && is_absolute(uri) => Ok(None),
        Some(uri) => checked_uri(uri).map(Some),
        None if name == "EXT-X-MAP" || name == "EXT-X-I-FRAME-STREAM-INF" => {
            Err(PlaylistError::UriMissing(line.number))
        }
        None => Ok(None),
    }
}

fn names_file(tag: &str) -> bool {
    matches!(
        tag,
        "EXT-X-MEDIA"
            | "EXT-X-I-FRAME-STREAM-INF"
            | "EXT-X-MAP"
            | "EXT-X-KEY"
            | "EXT-X-PART"
            | "EXT-X-SESSION-KEY"
            | "EXT-X-SESSION-DATA"
    )
}

fn checked_uri(uri: &str) -> Result<&str, PlaylistError> {
    if uri.contains("{$") { Err(PlaylistError::Variable(uri.to_owned())) } else { Ok(uri) }
}

struct Attribute<'a> {
    name: &'a str,
    /// As written, quotes included.
    value: &'a str,
    /// Where the value begins in the list.
    at: usize,
}

/// The attributes of a list; a malformed one ends it.
fn attributes(list: &str) -> impl Iterator<Item = Attribute<'_>> {
    let mut offset = 0;
    std::iter::from_fn(move || {
        let rest = list.get(offset..)?;
        let (name, after) = rest.split_once('=')?;
        let value_len = match after.strip_prefix('"') {
            Some(quoted) => quoted.find('"')? + 2,
            None => after.find(',').unwrap_or(after.len()),
        };
        let at = offset + name.len() + 1;
        offset = at + value_len + 1;
        Some(Attribute { name: name.trim(), value: &after[..value_len], at })
    })
}

fn names_rendition(tag: &str) -> bool {
    tag == "EXT-X-MEDIA" || names_variant(tag)
}

fn names_variant(tag: &str) -> bool {
    matches!(tag, "EXT-X-STREAM-INF" | "EXT-X-I-FRAME-STREAM-INF")
}

/// The first name that an attribute list has twice (RFC 8216 section 4.2 forbids it). `EXTINF` has
/// a title that may look like a list.
fn said_twice<'a>(tag: &str, list: &'a str) -> Option<&'a str> {
    let mut seen = BTreeSet::new();
    let mut names = attributes(list).map(|attribute| attribute.name);
    names.find(|name| !seen.insert(*name)).filter(|_| tag.starts_with("EXT-X-"))
}

fn attribute<'a>(list: &'a str, name: &str) -> Option<&'a str> {
    attributes(list).find(|attribute| attribute.name == name).map(|attribute| attribute.value)
}

fn unquote(value: &str) -> Option<&str> {
    value.strip_prefix('"')?.strip_suffix('"')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MASTER: &str = include_str!("../fixtures/ffmpeg/master.m3u8");
    const MEDIA: &str = include_str!("../fixtures/ffmpeg/media_0.m3u8");

    #[test]
    fn an_entry_playlist_of_ffmpeg_refers_to_its_media_playlists() {
        let playlist = check("hls/master.m3u8", MASTER).unwrap();
        assert_eq!(playlist.kind, Kind::Multivariant);
        let files: Vec<&str> = playlist.files.iter().map(String::as_str).collect();
        let wanted =
            ["hls/media_0.m3u8", "hls/media_1.m3u8", "hls/media_2.m3u8", "hls/media_3.m3u8"];
        assert_eq!(files, wanted);
    }

    #[test]
    fn the_peak_is_that_of_the_highest_variant() {
        let variant = |said: &str| format!("#EXT-X-STREAM-INF:{said}\nv.m3u8\n");
        let text = ["#EXTM3U\n".to_owned(), variant("BANDWIDTH=800000"), variant("CODECS=\"a\"")];
        let more = variant("AVERAGE-BANDWIDTH=9000000,BANDWIDTH=6000000");
        assert_eq!(peak(&(text.concat() + &more)), Some(BitsPerSecond(6_000_000)));
        assert_eq!((peak(&text[..1].concat()), peak("nothing")), (None, None));
    }

    #[test]
    fn a_media_playlist_of_ffmpeg_refers_to_one_file() {
        let playlist = check("media_0.m3u8", MEDIA).unwrap();
        assert_eq!(playlist.kind, Kind::Media);
        assert_eq!(playlist.files, BTreeSet::from(["r0.mp4".to_owned()]));
    }

    #[test]
    fn an_entry_playlist_is_rewritten_for_two_pathways() {
        let text = rewrite("hls/master.m3u8", MASTER, &[], &PATHWAYS[..2], STEERING).unwrap();
        insta::assert_snapshot!("two_pathways", text);
    }

    #[test]
    fn everything_that_names_a_file_or_a_group_is_rewritten_and_nothing_else() {
        let text = rewrite("rich.m3u8", RICH, &[], &PATHWAYS[..3], STEERING).unwrap();
        insta::assert_snapshot!("rich", text);
    }

    #[test]
    fn each_rendition_has_the_bases_of_those_that_hold_it() {
        let references = references("hls/master.m3u8", MASTER).unwrap();
        let bitrate = |of: &Reference| of.bitrate.map(|bitrate| bitrate.0);
        let told: Vec<_> = references.iter().map(|of| (of.file.as_str(), bitrate(of))).collect();
        insta::assert_debug_snapshot!("references", told);
        let text = rewrite("hls/master.m3u8", MASTER, &[4, 3, 2, 1], &APART, STEERING).unwrap();
        insta::assert_snapshot!("apart", text);
        let whole = rewrite("m.m3u8", RICH, &[], &PATHWAYS, STEERING).unwrap();
        let numbers = [1, 2, 3, 1, 2];
        let bases = PATHWAYS.map(|of| [of.base; 3]);
        let mut same = PATHWAYS;
        same.iter_mut().zip(&bases).for_each(|(of, bases)| of.renditions = bases);
        assert_eq!(rewrite("m.m3u8", RICH, &numbers, &same, STEERING).unwrap(), whole);
        let count = super::references("m.m3u8", RICH).unwrap().len();
        assert_eq!(count, numbers.len(), "each is counted once");
    }

    #[test]
    fn line_ends_stay_as_they_were() {
        let windows = MASTER.replace('\n', "\r\n");
        let text = rewrite("m.m3u8", &windows, &[], &PATHWAYS[..2], STEERING).unwrap();
        assert_eq!(text.matches('\n').count(), text.matches("\r\n").count());
        let bare = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\nv.m3u8";
        let text = rewrite("m.m3u8", bare, &[], &PATHWAYS[..2], STEERING).unwrap();
        assert!(text.ends_with("/v.m3u8\n"), "{text}");
        assert_eq!(text.lines().count(), 6);
    }

    #[test]
    fn what_cannot_be_played_is_refused_with_its_reason() {
        use PlaylistError::*;
        let master =
            |line: &str| format!("#EXTM3U\n{line}\n#EXT-X-STREAM-INF:BANDWIDTH=1\nv.m3u8\n");
        let media = |line: &str| format!("#EXTM3U\n{line}\n#EXTINF:4,\nv.mp4\n#EXT-X-ENDLIST\n");
        assert!(check("m", &master("")).is_ok() && check("m", &media("")).is_ok());
        refused("", NotHls);
        refused("hello", NotHls);
        refused("#EXTM3U", Mixed);
        refused(&master("#EXTINF:4,"), Mixed);
        refused("#EXTM3U\n#EXTINF:4,\nv.mp4\n", NotEnded);
        refused("#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\n#x\n", UriMissing(2));
        refused(&media("#EXT-X-MAP:BYTERANGE=\"1@0\""), UriMissing(2));
        refused(&master("#EXT-X-CONTENT-STEERING:SERVER-URI=\"x\""), Steered);
        refused(&master("#EXT-X-STREAM-INF:PATHWAY-ID=\"x\"\nu.m3u8"), Steered);
        refused(&media("#EXTINF:4,\nhttps://x/y.mp4"), Outside("https://x/y.mp4".to_owned()));
        refused(&media("#EXTINF:4,\n../y.mp4"), Outside("../y.mp4".to_owned()));
        refused(&media("#EXT-X-KEY:METHOD=AES-128,URI=\"/k\""), Outside("/k".to_owned()));
        refused(&master("#EXT-X-MEDIA:TYPE=AUDIO,URI=\"{$a}\""), Variable("{$a}".to_owned()));
        for bad in ["0", "-1", "many", "\"1\""] {
            refused(&master("").replace("=1", &format!("={bad}")), Bandwidth(bad.to_owned()));
        }
        let twice = "#EXT-X-MEDIA:TYPE=AUDIO,URI=\"a.m3u8\",URI=\"https://x/y.m3u8\"";
        refused(&master(twice), Twice { line: 2, name: "URI".to_owned() });
        let long = master(&"#".repeat(1 << 20));
        refused(&long, TooLong(model::units::Bytes::of(long.len())));
    }

    #[test]
    fn an_attribute_that_means_nothing_on_its_tag_stays() {
        let text = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1,URI=\"../x\"\nv.m3u8\n";
        let out = rewrite("m.m3u8", text, &[], &PATHWAYS[..1], STEERING).unwrap();
        assert!(out.contains(",URI=\"../x\","), "{out}");
    }

    #[test]
    fn a_key_of_a_licence_server_stays_and_a_key_file_is_listed() {
        let text = "#EXTM3U\n#EXT-X-KEY:METHOD=SAMPLE-AES,URI=\"skd://x\"\n\
            #EXT-X-KEY:METHOD=AES-128,URI=\"keys/1\"\n#EXTINF:4,\nv.ts\n#EXT-X-ENDLIST\n";
        let files = check("m.m3u8", text).unwrap().files;
        assert_eq!(files, BTreeSet::from(["keys/1".to_owned(), "v.ts".to_owned()]));
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in ".{0,300}") {
            drop(check("a/b.m3u8", &text));
            drop(rewrite("a/b.m3u8", &text, &[], &PATHWAYS, STEERING));
        }

        #[test]
        fn arbitrary_lines_never_panic(lines in proptest::collection::vec(line(), 0..12)) {
            let text = format!("#EXTM3U\n{}", lines.join("\n"));
            if let Ok(playlist) = check("a/b.m3u8", &text) {
                let again = rewrite("a/b.m3u8", &text, &[], &PATHWAYS, STEERING);
                prop_assert_eq!(again.is_ok(), playlist.kind == Kind::Multivariant);
            }
        }
    }

    fn line() -> impl Strategy<Value = String> {
        let tag = "#EXT(INF|-X-(MEDIA|STREAM-INF|I-FRAME-STREAM-INF|KEY|MAP|SESSION-DATA|ENDLIST))";
        let list =
            "(:|:URI=\"[a-z./:%\"]{0,8}\"|:[A-Z]{1,3}=\"?[a-z,=\"]{0,9},URI=\"?.{0,9}|\\PC{0,9})";
        (tag, list, "(\n[a-z./%:]{0,9})?").prop_map(|(tag, list, uri)| format!("{tag}{list}{uri}"))
    }

    fn refused(text: &str, error: PlaylistError) {
        assert_eq!(check("m.m3u8", text), Err(error));
        assert!(rewrite("m.m3u8", text, &[], &PATHWAYS, STEERING).is_err());
    }

    const STEERING: &str = "https://control.example/steer/v1/session";
    const PATHWAYS: [Pathway<'_>; 3] = [
        Pathway { id: "a1", base: "https://a1.example:8443/t/TOKEN/film-1/", renditions: &[] },
        Pathway { id: "a2", base: "https://a2.example:8443/t/TOKEN/film-1/", renditions: &[] },
        Pathway { id: "b.3", base: "http://127.0.0.4:8480/t/TOKEN/film-1/", renditions: &[] },
    ];
    const RICH: &str = include_str!("../fixtures/made/rich.m3u8");

    const NEAR: &str = PATHWAYS[0].base;
    const FAR: &str = PATHWAYS[1].base;
    /// The near appliance lacks the second rendition.
    const APART: [Pathway<'_>; 2] = [
        Pathway { renditions: &[NEAR, FAR, NEAR, NEAR], ..PATHWAYS[0] },
        Pathway { renditions: &[FAR; 4], ..PATHWAYS[1] },
    ];
}
