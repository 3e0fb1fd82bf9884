//! `SegmentTemplate`: which files a template stands for (ISO/IEC 23009-1, 5.3.9.4 to 5.3.9.6).

use crate::PlaylistError;
use crate::xml::Element;
use model::units::Nanos;

/// The template of one representation: attributes of outer levels hold where inner ones have none.
pub(super) struct Template<'a> {
    /// `SegmentTemplate` elements, innermost first; at least one.
    elements: Vec<&'a Element>,
    representation: &'a Element,
    period: Option<Nanos>,
    /// Most segments that it may stand for.
    segments_max: usize,
}

impl<'a> Template<'a> {
    /// The template that the levels (outermost first, the last a representation) add up to.
    pub(super) fn merged(
        levels: &[&'a Element],
        period: Option<Nanos>,
        segments_max: usize,
    ) -> Option<Self> {
        let elements: Vec<_> =
            levels.iter().rev().filter_map(|level| level.first("SegmentTemplate")).collect();
        let representation = levels.last()?;
        (!elements.is_empty()).then_some(Self { elements, representation, period, segments_max })
    }

    /// Calls `add` with every reference.
    pub(super) fn expand(
        &self,
        mut add: impl FnMut(&str) -> Result<(), PlaylistError>,
    ) -> Result<(), PlaylistError> {
        for name in ["initialization", "bitstreamSwitching"] {
            if let Some(text) = self.attribute(name) {
                add(&self.fill(text, None)?)?;
            }
        }
        for name in ["media", "index"] {
            if let Some(text) = self.attribute(name) {
                self.expand_segments(text, &mut add)?;
            }
        }
        Ok(())
    }

    fn expand_segments(
        &self,
        text: &str,
        add: &mut impl FnMut(&str) -> Result<(), PlaylistError>,
    ) -> Result<(), PlaylistError> {
        let first = self.number("startNumber").unwrap_or(1);
        let timeline = self.elements.iter().find_map(|element| element.first("SegmentTimeline"));
        let times = match timeline {
            Some(timeline) => self.timeline(timeline)?,
            None => self.by_duration(first)?,
        };
        for (i, time) in (0..).zip(times) {
            add(&self.fill(text, Some((first.saturating_add(i), time)))?)?;
        }
        Ok(())
    }

    /// The start times of the segments in a timeline.
    fn timeline(&self, timeline: &Element) -> Result<Vec<u64>, PlaylistError> {
        let number = |element: &Element, name| {
            element.attribute(name).and_then(|text| text.trim().parse::<u64>().ok())
        };
        let entries: Vec<&Element> = timeline.all("S").collect();
        let mut times = Vec::new();
        let mut time = 0_u64;
        for (i, entry) in entries.iter().enumerate() {
            time = number(entry, "t").unwrap_or(time);
            let duration = number(entry, "d").filter(|d| *d != 0);
            let duration = duration.ok_or_else(|| template_fault("S without d"))?;
            let repeat = entry.attribute("r").map_or(Some(0), |r| r.trim().parse::<i64>().ok());
            let repeat = repeat.ok_or_else(|| template_fault("S with a bad r"))?;
            let count = u64::try_from(repeat).map(|r| r.saturating_add(1)).unwrap_or_else(|_| {
                let next = entries.get(i + 1).and_then(|next| number(next, "t"));
                let end = next.or_else(|| self.period_end()).unwrap_or(0);
                (end.saturating_sub(time) / duration).max(1)
            });
            for _ in 0..count {
                if self.segments_max <= times.len() {
                    return Err(PlaylistError::TooManyFiles);
                }
                times.push(time);
                time = time.saturating_add(duration);
            }
        }
        Ok(times)
    }

    /// The start times of segments that fit wholly into the period; a last short one, which
    /// packagers round differently, is left out.
    fn by_duration(&self, first: u64) -> Result<Vec<u64>, PlaylistError> {
        let duration = self.number("duration").filter(|duration| *duration != 0);
        let duration = duration.ok_or_else(|| template_fault("neither timeline nor duration"))?;
        let by_period = self.period_end().map(|end| end / duration);
        let by_number =
            self.number("endNumber").map(|end| end.saturating_add(1).saturating_sub(first));
        let count = by_number.or(by_period).unwrap_or(1);
        if u64::try_from(self.segments_max).is_ok_and(|most| most < count) {
            return Err(PlaylistError::TooManyFiles);
        }
        Ok((0..count).map(|i| i.saturating_mul(duration)).collect())
    }

    /// The period's end in the template's time scale, counted as its segments' times are.
    fn period_end(&self) -> Option<u64> {
        let timescale = self.number("timescale").unwrap_or(1);
        let offset = self.number("presentationTimeOffset").unwrap_or(0);
        let ticks = u128::from(self.period?.0) * u128::from(timescale) / 1_000_000_000;
        u64::try_from(ticks).ok()?.checked_add(offset)
    }

    /// Replaces the identifiers of a template (5.3.9.4.4).
    fn fill(&self, text: &str, segment: Option<(u64, u64)>) -> Result<String, PlaylistError> {
        let fault = || PlaylistError::Template(text.to_owned());
        let mut out = String::with_capacity(text.len() + 8);
        let mut parts = text.split('$');
        out.push_str(parts.next().unwrap_or(""));
        while let Some(identifier) = parts.next() {
            let literal = parts.next().ok_or_else(fault)?;
            let (name, format) = identifier.split_once('%').unwrap_or((identifier, "01d"));
            let number = match (name, segment) {
                ("", _) => None,
                ("RepresentationID", _) => {
                    out.push_str(self.representation.attribute("id").ok_or_else(fault)?);
                    None
                }
                ("Bandwidth", _) => {
                    let bandwidth = self.representation.attribute("bandwidth");
                    Some(bandwidth.and_then(|text| text.trim().parse().ok()).ok_or_else(fault)?)
                }
                ("Number", Some((number, _))) => Some(number),
                ("Time", Some((_, time))) => Some(time),
                _ => return Err(fault()),
            };
            if identifier.is_empty() {
                out.push('$');
            }
            if let Some(number) = number {
                let width = width(format).ok_or_else(fault)?;
                out.push_str(&format!("{number:0width$}"));
            }
            out.push_str(literal);
        }
        Ok(out)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.attribute(name)?.trim().parse().ok()
    }

    fn attribute(&self, name: &str) -> Option<&'a str> {
        self.elements.iter().find_map(|element| element.attribute(name))
    }
}

/// An `xs:duration` such as `PT1H2M3.5S`, as far as its length is certain: no years or months.
pub(super) fn duration(text: &str) -> Option<Nanos> {
    let (date, time) = text.trim().strip_prefix('P')?.split_once('T')?;
    let mut nanos = amounts(date, &[('Y', None), ('M', None), ('D', Some(86_400))])?;
    nanos =
        nanos.checked_add(amounts(time, &[('H', Some(3600)), ('M', Some(60)), ('S', Some(1))])?)?;
    Some(Nanos(nanos))
}

/// Sums numbers with designators; a designator without seconds may only stand with a zero.
fn amounts(text: &str, designators: &[(char, Option<u64>)]) -> Option<u64> {
    let (mut rest, mut nanos) = (text, 0_u64);
    for (designator, seconds) in designators {
        let Some((number, after)) = rest.split_once(*designator) else { continue };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let fraction: String = fraction.chars().chain("000000000".chars()).take(9).collect();
        let amount = whole.parse::<u64>().ok()?.checked_mul(1_000_000_000)?;
        let amount = amount.checked_add(fraction.parse().ok()?)?;
        let amount = match seconds {
            Some(seconds) => amount.checked_mul(*seconds)?,
            None if amount == 0 => 0,
            None => return None,
        };
        nanos = nanos.checked_add(amount)?;
        rest = after;
    }
    rest.is_empty().then_some(nanos)
}

/// The width in `0[width]d`.
fn width(format: &str) -> Option<usize> {
    let width = format.strip_prefix('0')?.strip_suffix('d')?.parse().ok()?;
    (width <= 20).then_some(width)
}

fn template_fault(what: &str) -> PlaylistError {
    PlaylistError::Template(what.to_owned())
}
