//! A seed as a picture: upstream in a week and in the year, and what is missed by disk size.

use std::fmt::Write as _;

use crate::figures::Figures;
use crate::number::real;
use crate::parameters::{ROOM_PERCENT, WARM_UP_WEEKS, ZONES};
use crate::sessions::SLOTS;
use crate::tally::{Policy, Tally};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 16.0;
const PANEL: f64 = 200.0;
const GAP: f64 = 66.0;
const TOP: f64 = 76.0;
const WEEK: usize = 7 * SLOTS;

/// What is drawn: name, colour, dashes. Apart for who sees no colours by lightness and dashes.
const LINES: [(&str, &str, &str); 6] = [
    ("lru", "#8a8f98", ""),
    ("s3fifo", "#8a8f98", "2 3"),
    ("title", "#c46a1b", "6 3"),
    ("directed", "#0b5cad", ""),
    ("clairvoyant", "#0a2f57", "6 3"),
    ("own", "#3a8f5c", "2 3"),
];

/// Points of a line, and whose.
type Line = (&'static str, Vec<(f64, f64)>);

/// The picture, self-contained.
pub(crate) fn svg(regions: &[Tally], figures: &Figures) -> String {
    let height = TOP + 3.0 * (PANEL + GAP);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"13\" role=\"img\">\n\
         <title>A year of a fleet: upstream by hour and by week, and misses by disk size</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    let mut x = LEFT;
    for (name, colour, dashes) in LINES {
        let _ = writeln!(
            out,
            "<path d=\"M{x} 20h28\" stroke=\"{colour}\" stroke-width=\"2\" \
             stroke-dasharray=\"{dashes}\"/><text x=\"{}\" y=\"24\">{name}</text>",
            x + 34.0
        );
        x += 145.0;
    }
    let week = figures.launch_day.as_ref().map_or(0, |launch| launch.week);
    let name = format!(
        "From upstream in week {week}, in which most is launched, Gb/s; \
         days from Monday, 02:00 UTC"
    );
    panel(&mut out, 0, &name, &by_hour(regions, week), |tick| format!("{tick}"), 7);
    let name = "From upstream in each week, mean of its hours, Gb/s; weeks";
    let (lines, weeks) = by_week(regions);
    panel(&mut out, 1, name, &lines, |tick| format!("{tick}"), weeks);
    let name = "Bytes from elsewhere than the own site, %; disk, % of the catalogue";
    let last = u32::try_from(ROOM_PERCENT.len() - 1).unwrap_or(0);
    let size = |tick: u32| ROOM_PERCENT[model::number::index(tick.min(last))].to_string();
    panel(&mut out, 2, name, &by_disk(figures), size, last);
    out.push_str("</svg>\n");
    out
}

/// The regions' upstream together, in Gb/s, in an hour counted from 02:00 UTC of the first Monday.
fn upstream(regions: &[Tally], policy: Policy, hour: usize) -> f64 {
    let region = |(region, ahead): (&Tally, &i32)| {
        let hour = i64::try_from(hour).unwrap_or(0) + i64::from(*ahead);
        let local = usize::try_from(hour).ok();
        local.and_then(|hour| region.flows[policy.at()].upstream.get(hour)).copied().unwrap_or(0)
    };
    let bytes: u64 = regions.iter().zip(&ZONES).map(region).sum();
    real(bytes) * 8.0 / 3_600.0 / 1e9
}

const DRAWN: [Policy; 4] = [Policy::Lru, Policy::S3Fifo, Policy::Directed, Policy::Clairvoyant];

fn by_hour(regions: &[Tally], week: u32) -> Vec<Line> {
    let begin = model::number::index(week + WARM_UP_WEEKS) * WEEK;
    let point = |policy, hour: u32| {
        let at = begin + model::number::index(hour);
        (f64::from(hour) / 24.0, upstream(regions, policy, at))
    };
    let line = |policy: Policy| (policy.name(), (0..168).map(|hour| point(policy, hour)).collect());
    DRAWN.map(line).into()
}

fn by_week(regions: &[Tally]) -> (Vec<Line>, u32) {
    let weeks = regions.first().map_or(0, |region| region.calendar.weeks);
    let point = |policy: Policy, week: u32| {
        let begin = model::number::index(week + WARM_UP_WEEKS) * WEEK;
        let hours = regions.iter().map(|region| &region.flows[policy.at()].upstream);
        let bytes: u64 = hours.map(|hours| hours[begin..begin + WEEK].iter().sum::<u64>()).sum();
        (f64::from(week), real(bytes) * 8.0 / 3_600.0 / 168.0 / 1e9)
    };
    let line =
        |policy: Policy| (policy.name(), (0..weeks).map(|week| point(policy, week)).collect());
    (DRAWN.map(line).into(), weeks)
}

fn by_disk(figures: &Figures) -> Vec<Line> {
    let disks = || (0_u8..).zip(&figures.sizes[..ROOM_PERCENT.len()]);
    let line = |(name, ..): (&'static str, _, _)| {
        let points = disks().map(|(at, disk)| (f64::from(at), disk.miss[name] * 100.0));
        (name, points.collect())
    };
    LINES.map(line).into()
}

/// A panel whose x goes from 0 to `last`, a tick for each or so.
fn panel(
    out: &mut String,
    number: u8,
    name: &str,
    lines: &[Line],
    tick: impl Fn(u32) -> String,
    last: u32,
) {
    let top = TOP + f64::from(number) * (PANEL + GAP);
    let bottom = top + PANEL;
    let most = lines.iter().flat_map(|(_, points)| points).map(|(_, y)| *y).fold(1e-9, f64::max);
    let step = step(most / 4.0);
    let most = (most / step).ceil() * step;
    let x = |of: f64| LEFT + (WIDTH - LEFT - RIGHT) * of / f64::from(last.max(1));
    let y = |of: f64| bottom - PANEL * of / most;
    let _ =
        writeln!(out, "<text x=\"{LEFT}\" y=\"{}\" font-weight=\"bold\">{name}</text>", top - 10.0);
    let mut mark = 0.0;
    while mark <= most + step / 2.0 {
        let at = y(mark);
        let _ = writeln!(
            out,
            "<path d=\"M{LEFT} {at:.1}H{}\" stroke=\"#ddd\"/><text x=\"{}\" y=\"{:.1}\" \
             font-size=\"11\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            at + 4.0,
            (mark * 1000.0).round() / 1000.0
        );
        mark += step;
    }
    for of in (0..=last).step_by(model::number::index(last / 13 + 1)) {
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"11\" text-anchor=\"middle\">{}</text>",
            x(f64::from(of)),
            bottom + 16.0,
            tick(of)
        );
    }
    for (name, points) in lines {
        let style = LINES.iter().find(|(of, ..)| of == name);
        let (_, colour, dashes) = style.copied().unwrap_or((name, "#000", ""));
        let mut path = String::new();
        for (at, (of, value)) in points.iter().enumerate() {
            let begin = if at == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{begin}{:.1} {:.1}", x(*of), y(*value));
        }
        let _ = writeln!(
            out,
            "<path d=\"{path}\" stroke=\"{colour}\" stroke-dasharray=\"{dashes}\" \
             stroke-width=\"1.6\" fill=\"none\"/>"
        );
    }
}

/// 1, 2 or 5 of some power of ten, not below `of`.
fn step(of: f64) -> f64 {
    let power = 10.0_f64.powf(of.log10().floor());
    let times = [1.0, 2.0, 5.0, 10.0].into_iter().find(|times| of <= times * power);
    times.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round() {
        for (of, expected) in [(0.9, 1.0), (1.0, 1.0), (3.0, 5.0), (70.0, 100.0), (0.011, 0.02)] {
            assert!((step(of) - expected).abs() < 1e-9, "{of}");
        }
    }
}
