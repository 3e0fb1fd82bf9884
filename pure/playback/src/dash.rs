//! DASH MPDs (ISO/IEC 23009-1): checked, and rewritten per playback.
//!
//! A rewritten MPD is the packager's, byte for byte, but that `BaseURL` elements directly below
//! `MPD` give way to ours, one per pathway and best first, under which theirs is resolved:
//!
//! ```text
//! <BaseURL serviceLocation="a1">https://a1/t/.../film-1/dash/</BaseURL>
//! <BaseURL serviceLocation="a2">https://a2/t/.../film-1/dash/</BaseURL>
//! <ContentSteering defaultServiceLocation="a1" queryBeforeStart="false">URL</ContentSteering>
//! ```
//!
//! Steering is that of ETSI TS 103 998. A player without it still sees alternative base URLs.

mod template;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::ops::Range;

use model::limits::FILES_PER_VERSION_MAX;
use model::units::{BitsPerSecond, Bytes, Nanos};
use quick_xml::escape::escape;

use crate::reference::{Files, Target, directory, resolve};
use crate::xml::{self, Element};
use crate::{Pathway, PlaylistError, check_len};
use template::Template;

/// The files that an MPD needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mpd {
    /// Paths of the files that it refers to, from the asset version's root. Segments whose number
    /// follows from a duration only are listed as far as they are certain to exist.
    pub files: BTreeSet<String>,
    /// Parts of files that it names, in the order of the text. At most as many as references.
    pub parts: Vec<Part>,
}

/// A part of a file that an MPD names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which file, from the asset version's root.
    pub file: String,
    /// One past the last byte.
    pub end: Bytes,
    /// Where in the text the element stands that names it, in bytes.
    pub at: usize,
}

/// The findings of a walk through representations.
struct Found {
    files: Files,
    parts: Vec<Part>,
}

/// Checks the MPD at `path` of an asset version: static, and every reference inside the version.
pub fn check(path: &str, text: &str) -> Result<Mpd, PlaylistError> {
    check_within(path, text, FILES_PER_VERSION_MAX)
}

/// The same for at most `files_max` files. Templates stand for many: this bounds the work, too.
pub fn check_within(path: &str, text: &str, files_max: usize) -> Result<Mpd, PlaylistError> {
    let root = parse(text)?;
    let mut found = Found { files: Files::new(files_max), parts: Vec::new() };
    let mut representations = 0;
    let base = base(directory(path), &root)?.path;
    let periods: Vec<&Element> = root.all("Period").collect();
    for (i, period) in periods.iter().enumerate() {
        let duration = period_duration(&root, period, periods.get(i + 1).copied());
        let period_base = self::base(&base, period)?.path;
        for set in period.all("AdaptationSet") {
            let set_base = self::base(&period_base, set)?.path;
            for representation in set.all("Representation") {
                representations += 1;
                if REPRESENTATIONS_MAX < representations {
                    return Err(PlaylistError::TooManyRepresentations);
                }
                let base = self::base(&set_base, representation)?.path;
                let levels = [*period, set, representation];
                segments(&base, &levels, duration, &mut found)?;
            }
        }
    }
    Ok(Mpd { files: found.files.into_inner(), parts: found.parts })
}

/// The highest bandwidth of all representations (`@bandwidth`: ISO/IEC 23009-1 section 5.3.5.2).
/// None if there is none.
pub fn peak(text: &str) -> Option<BitsPerSecond> {
    let root = parse(text).ok()?;
    let mut peak = None;
    root.walk(&mut |element| {
        if element.name() == "Representation" {
            let bandwidth = element.attribute("bandwidth").and_then(|text| text.parse().ok());
            peak = peak.max(bandwidth.map(BitsPerSecond));
        }
    });
    peak
}

/// Rewrites the MPD at `path` for one playback: on all `pathways`, best first, steered by the
/// server at the URL `steering`.
pub fn rewrite(
    path: &str,
    text: &str,
    pathways: &[Pathway<'_>],
    steering: &str,
) -> Result<String, PlaylistError> {
    let first = pathways.first().expect("a playback has at least one pathway");
    let root = parse(text)?;
    let base = base(directory(path), &root)?;
    let at = root.all("ProgramInformation").last().map_or(root.start_tag.end, |info| info.span.end);
    let prefix = root.qualified.strip_suffix("MPD").unwrap_or("");
    let indent = indentation(text, &root);
    let mut added = String::new();
    for pathway in pathways {
        let url = base.under(pathway.base);
        write!(
            added,
            "{indent}<{prefix}BaseURL serviceLocation=\"{}\">{}</{prefix}BaseURL>",
            escape(pathway.id),
            escape(url)
        )
        .expect("a string takes all");
    }
    write!(
        added,
        "{indent}<{prefix}ContentSteering defaultServiceLocation=\"{}\" \
         queryBeforeStart=\"false\">{}</{prefix}ContentSteering>",
        escape(first.id),
        escape(steering)
    )
    .expect("a string takes all");
    let removed = root.all("BaseURL").map(|element| element.span.clone());
    Ok(splice(text, at, &added, removed))
}

/// The document's root, if it is an MPD that can be played through Nearcast.
fn parse(text: &str) -> Result<Element, PlaylistError> {
    check_len(text)?;
    let root = xml::parse(text)?;
    if root.name() != "MPD" || root.first("Period").is_none() {
        return Err(PlaylistError::NotMpd);
    }
    match root.attribute("type") {
        None | Some("static") => {}
        Some(other) => return Err(PlaylistError::NotStatic(other.to_owned())),
    }
    let mut fault = None;
    root.walk(&mut |element| match element.name() {
        "ContentSteering" => fault = Some(PlaylistError::Steered),
        "Location" | "PatchLocation" => {
            fault = Some(PlaylistError::Elsewhere(element.name().to_owned()));
        }
        name if element.attribute("href").is_some() => {
            fault = Some(PlaylistError::Elsewhere(format!("{name} xlink:href")));
        }
        _ => {}
    });
    fault.map_or(Ok(root), Err)
}

/// The URL that references directly inside `element` are relative to: its first `BaseURL`
/// (others are alternatives), resolved against the one above.
fn base(above: &str, element: &Element) -> Result<Target, PlaylistError> {
    match element.first("BaseURL") {
        Some(base) => resolve(above, &base.text),
        None => Ok(Target { path: above.to_owned(), suffix: String::new() }),
    }
}

/// Adds the files of one representation. `levels` are its period, adaptation set and itself.
fn segments(
    base: &str,
    levels: &[&Element; 3],
    period: Option<Nanos>,
    found: &mut Found,
) -> Result<(), PlaylistError> {
    if let Some(bandwidth) = levels[2].attribute("bandwidth")
        && !bandwidth.trim().parse().is_ok_and(|bandwidth: u64| bandwidth != 0)
    {
        return Err(PlaylistError::Bandwidth(bandwidth.to_owned()));
    }
    if let Some(template) = Template::merged(levels, period, found.files.files_max()) {
        return template.expand(|uri| found.files.add(base, uri));
    }
    let nearest = |name| levels.iter().rev().find_map(|level| level.first(name));
    let mut add = |element: Option<&Element>, uri: Option<&str>, range: &str| {
        let file = match uri {
            Some(uri) => {
                found.files.add(base, uri)?;
                resolve(base, uri)?.path
            }
            None if base.is_empty() || base.ends_with('/') => {
                return Err(PlaylistError::NotAFile(base.to_owned()));
            }
            None => {
                found.files.add_path(base.to_owned())?;
                base.to_owned()
            }
        };
        if let Some(element) = element
            && let Some(range) = element.attribute(range)
        {
            let end = end_of(range).ok_or_else(|| PlaylistError::Range(range.to_owned()))?;
            found.parts.push(Part { file, end, at: element.start_tag.start });
        }
        Ok(())
    };
    let list = nearest("SegmentList");
    let Some(information) = list.or_else(|| nearest("SegmentBase")) else {
        return add(None, None, "");
    };
    let named = ["Initialization", "RepresentationIndex"].map(|name| information.first(name));
    for element in named.into_iter().flatten() {
        add(Some(element), element.attribute("sourceURL"), "range")?;
    }
    if list.is_none() {
        return add(Some(information), None, "indexRange");
    }
    for segment in information.all("SegmentURL") {
        let media = segment.attribute("media");
        add(Some(segment), media, "mediaRange")?;
        let index = segment.attribute("index");
        if index.or_else(|| segment.attribute("indexRange")).is_some() {
            add(Some(segment), index.or(media), "indexRange")?;
        }
    }
    Ok(())
}

/// One past the last byte of `first-last`.
fn end_of(range: &str) -> Option<Bytes> {
    let (first, last) = range.trim().split_once('-')?;
    let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last).then(|| last.checked_add(1).map(Bytes))?
}

fn period_duration(root: &Element, period: &Element, next: Option<&Element>) -> Option<Nanos> {
    let time = |element: &Element, name| element.attribute(name).and_then(template::duration);
    let start = time(period, "start").unwrap_or_default();
    let until = |end: Nanos| Nanos(end.0.saturating_sub(start.0));
    time(period, "duration")
        .or_else(|| next.and_then(|next| time(next, "start")).map(until))
        .or_else(|| time(root, "mediaPresentationDuration").map(until))
}

/// White space before the first child, if it is only that, so that our lines look like the rest.
fn indentation<'a>(text: &'a str, root: &Element) -> &'a str {
    let first = root.children.first().map_or(root.start_tag.end, |child| child.span.start);
    let between = text.get(root.start_tag.end..first).unwrap_or("");
    if between.trim().is_empty() { between } else { "\n" }
}

/// `text` with `added` at `at` and without the ranges `removed`, which are in order.
fn splice(
    text: &str,
    at: usize,
    added: &str,
    removed: impl Iterator<Item = Range<usize>>,
) -> String {
    let mut out = String::with_capacity(text.len() + added.len());
    let mut edits: Vec<(Range<usize>, &str)> = removed.map(|range| (range, "")).collect();
    edits.push((at..at, added));
    // Additions stand before removals at the same place.
    edits.sort_by_key(|(range, _)| (range.start, range.end));
    let mut copied = 0;
    for (range, replacement) in edits {
        out.push_str(&text[copied..range.start]);
        out.push_str(replacement);
        copied = range.end;
    }
    out.push_str(&text[copied..]);
    out
}

/// Representations of all periods together; films have a few dozen. Each looks through its
/// siblings for what it inherits, so this bounds a product.
pub const REPRESENTATIONS_MAX: usize = 2048;

#[cfg(test)]
mod tests;
