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
//! Where renditions lie apart, those stand in each `Representation` instead, and all other
//! `BaseURL` elements go: alternatives on two levels would be multiplied.
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
use crate::{Pathway, PlaylistError, Reference, check_len};
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
    for representation in representations(path, &root)? {
        representation.segments(&mut found)?;
    }
    Ok(Mpd { files: found.files.into_inner(), parts: found.parts })
}

/// The representations of the MPD at `path`, in its order.
pub fn references(path: &str, text: &str) -> Result<Vec<Reference>, PlaylistError> {
    let root = parse(text)?;
    let reference = |representation: Representation<'_>| {
        let mut found = Found { files: Files::one(FILES_PER_VERSION_MAX), parts: Vec::new() };
        // That there are more is no fault.
        let told = representation.segments(&mut found);
        let first = found.files.into_inner().pop_first();
        let file = first.ok_or_else(|| told.err().unwrap_or(PlaylistError::NotMpd))?;
        Ok(Reference { file, bitrate: representation.bitrate() })
    };
    representations(path, &root)?.into_iter().map(reference).collect()
}

/// The files of each representation of the MPD at `path`, in its order.
pub fn files_of_each(path: &str, text: &str) -> Result<Vec<BTreeSet<String>>, PlaylistError> {
    let root = parse(text)?;
    let files = |representation: Representation<'_>| {
        let files = Files::new(FILES_PER_VERSION_MAX);
        let mut found = Found { files, parts: Vec::new() };
        representation.segments(&mut found).map(|()| found.files.into_inner())
    };
    representations(path, &root)?.into_iter().map(files).collect()
}

/// A representation, and all that it inherits.
struct Representation<'a> {
    period: &'a Element,
    set: &'a Element,
    element: &'a Element,
    /// The URL that its references are relative to.
    base: Target,
    /// Its period's.
    duration: Option<Nanos>,
}

/// All of them, in the order of the text.
fn representations<'a>(
    path: &str,
    root: &'a Element,
) -> Result<Vec<Representation<'a>>, PlaylistError> {
    let mut all = Vec::new();
    let base = base(directory(path), root)?.path;
    let periods: Vec<&Element> = root.all("Period").collect();
    for (i, period) in periods.iter().enumerate() {
        let duration = period_duration(root, period, periods.get(i + 1).copied());
        let period_base = self::base(&base, period)?.path;
        for set in period.all("AdaptationSet") {
            let set_base = self::base(&period_base, set)?.path;
            for element in set.all("Representation") {
                if REPRESENTATIONS_MAX <= all.len() {
                    return Err(PlaylistError::TooManyRepresentations);
                }
                let base = self::base(&set_base, element)?;
                all.push(Representation { period, set, element, base, duration });
            }
        }
    }
    Ok(all)
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
/// server at the URL `steering`. `renditions` has the number of each of its [`references`], or is
/// empty.
pub fn rewrite(
    path: &str,
    text: &str,
    renditions: &[u8],
    pathways: &[Pathway<'_>],
    steering: &str,
) -> Result<String, PlaylistError> {
    let first = pathways.first().expect("a playback has at least one pathway");
    let root = parse(text)?;
    let at = root.all("ProgramInformation").last().map_or(root.start_tag.end, |info| info.span.end);
    let prefix = root.qualified.strip_suffix("MPD").unwrap_or("");
    let indent = indentation(text, &root);
    let mut edits = Vec::new();
    let mut added = String::new();
    if pathways.iter().all(|pathway| pathway.renditions.is_empty()) {
        added = base_urls(&base(directory(path), &root)?, 0, pathways, prefix, indent);
        edits.extend(root.all("BaseURL").map(Edit::removal));
    } else {
        root.walk(&mut |element| {
            edits.extend((element.name() == "BaseURL").then(|| Edit::removal(element)));
        });
        let numbers = renditions.iter().copied().chain(std::iter::repeat(0));
        for (of, rendition) in representations(path, &root)?.into_iter().zip(numbers) {
            let indent = indentation_of(text, of.element);
            let urls = base_urls(&of.base, rendition, pathways, prefix, indent);
            of.insert(text, &urls, &mut edits);
        }
    }
    write!(
        added,
        "{indent}<{prefix}ContentSteering defaultServiceLocation=\"{}\" \
         queryBeforeStart=\"false\">{}</{prefix}ContentSteering>",
        escape(first.id),
        escape(steering)
    )
    .expect("a string takes all");
    edits.push(Edit { range: at..at, text: added });
    Ok(splice(text, edits))
}

/// `BaseURL` elements, one per pathway.
fn base_urls(
    base: &Target,
    rendition: u8,
    pathways: &[Pathway<'_>],
    prefix: &str,
    indent: &str,
) -> String {
    let mut urls = String::new();
    for pathway in pathways {
        let url = base.under(pathway.base_of(rendition));
        write!(
            urls,
            "{indent}<{prefix}BaseURL serviceLocation=\"{}\">{}</{prefix}BaseURL>",
            escape(pathway.id),
            escape(url)
        )
        .expect("a string takes all");
    }
    urls
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

impl Representation<'_> {
    fn bitrate(&self) -> Option<BitsPerSecond> {
        self.element.attribute("bandwidth")?.trim().parse().ok().map(BitsPerSecond)
    }

    /// Adds its files.
    fn segments(&self, found: &mut Found) -> Result<(), PlaylistError> {
        let base = &self.base.path;
        let levels = [self.period, self.set, self.element];
        if let Some(bandwidth) = self.element.attribute("bandwidth")
            && !bandwidth.trim().parse().is_ok_and(|bandwidth: u64| bandwidth != 0)
        {
            return Err(PlaylistError::Bandwidth(bandwidth.to_owned()));
        }
        if let Some(template) = Template::merged(&levels, self.duration, found.files.files_max()) {
            return template.expand(|uri| found.files.add(base, uri));
        }
        let nearest = |name| levels.iter().rev().find_map(|level| level.first(name));
        let mut add = |element: Option<&Element>, uri: Option<&str>, range: &str| {
            found.add(base, element, uri, range)
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

    /// Puts base URLs where they belong in it: before its segments (ISO/IEC 23009-1, 5.3.5.3),
    /// where one of the packager's may have been.
    fn insert(&self, text: &str, urls: &str, edits: &mut Vec<Edit>) {
        let Range { start, end } = self.element.start_tag;
        let after =
            ["BaseURL", "SubRepresentation", "SegmentBase", "SegmentList", "SegmentTemplate"];
        let next = self.element.children.iter().find(|child| after.contains(&child.name()));
        let (range, urls) = match next {
            _ if text[start..end].ends_with("/>") => {
                let name = &self.element.qualified;
                (end - 2..end, format!(">{urls}</{name}>"))
            }
            Some(next) => {
                // Behind the white space that stands before it there is none.
                let at = text[..next.span.start].trim_end().len();
                (at..at, urls.to_owned())
            }
            None => {
                let last = self.element.children.last().map_or(end, |child| child.span.end);
                (last..last, urls.to_owned())
            }
        };
        edits.push(Edit { range, text: urls });
    }
}

impl Found {
    /// Adds the file that `uri` means, or the one at `base`, and the part of it that the attribute
    /// `range` of `element` says.
    fn add(
        &mut self,
        base: &str,
        element: Option<&Element>,
        uri: Option<&str>,
        range: &str,
    ) -> Result<(), PlaylistError> {
        let file = match uri {
            Some(uri) => {
                self.files.add(base, uri)?;
                resolve(base, uri)?.path
            }
            None if base.is_empty() || base.ends_with('/') => {
                return Err(PlaylistError::NotAFile(base.to_owned()));
            }
            None => {
                self.files.add_path(base.to_owned())?;
                base.to_owned()
            }
        };
        if let Some(element) = element
            && let Some(range) = element.attribute(range)
        {
            let end = end_of(range).ok_or_else(|| PlaylistError::Range(range.to_owned()))?;
            self.parts.push(Part { file, end, at: element.start_tag.start });
        }
        Ok(())
    }
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

/// The same, of an element that need have none.
fn indentation_of<'a>(text: &'a str, element: &Element) -> &'a str {
    if element.children.is_empty() { "" } else { indentation(text, element) }
}

/// A change of a text: what gives way, and what stands there then.
struct Edit {
    range: Range<usize>,
    text: String,
}

impl Edit {
    fn removal(element: &Element) -> Self {
        Self { range: element.span.clone(), text: String::new() }
    }
}

/// `text` with these changes, which do not overlap.
fn splice(text: &str, mut edits: Vec<Edit>) -> String {
    let added: usize = edits.iter().map(|edit| edit.text.len()).sum();
    let mut out = String::with_capacity(text.len() + added);
    // Additions stand before removals at the same place.
    edits.sort_by_key(|edit| (edit.range.start, edit.range.end));
    let mut copied = 0;
    for edit in edits {
        out.push_str(&text[copied..edit.range.start]);
        out.push_str(&edit.text);
        copied = edit.range.end;
    }
    out.push_str(&text[copied..]);
    out
}

/// Representations of all periods together; films have a few dozen. Each looks through its
/// siblings for what it inherits, so this bounds a product.
pub const REPRESENTATIONS_MAX: usize = 2048;

#[cfg(test)]
mod tests;
