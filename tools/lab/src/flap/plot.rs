//! The runs as a picture: the first near appliance's share and load over time.

use std::fmt::Write as _;

use super::world::World;
use super::{LOST_S, Point, STEP_S};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 16.0;
const PANEL: f64 = 170.0;
const GAP: f64 = 62.0;
const TOP: f64 = 64.0;
/// Thousandths at the upper edge of a panel.
const MOST: f64 = 1600.0;
/// A point is drawn in so many seconds.
const EVERY: usize = 3;

/// What is drawn of a point, in thousandths.
type Line = fn(&Point) -> f64;

/// Dark enough on white, apart for who sees no colours by their lightness.
const SHARE: &str = "#0b5cad";
const LOAD: &str = "#8a8f98";

/// The picture, self-contained.
pub(super) fn svg(ours: &World, naive: &World, loss: &World) -> String {
    let panels = [
        ("A launch, with shares", ours, vec![STEP_S]),
        ("The same launch, all or nothing by the last report", naive, vec![STEP_S]),
        ("A site that is lost for two minutes", loss, vec![STEP_S, STEP_S + LOST_S]),
    ];
    let height = TOP + 3.0 * (PANEL + GAP);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"13\" role=\"img\">\n\
         <title>Shares and loads of an appliance over time</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    let names = [(SHARE, "share of its sessions, %"), (LOAD, "load, % of what it can serve")];
    for (x, (fill, name)) in [LEFT, LEFT + 240.0].into_iter().zip(names) {
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"14\" width=\"14\" height=\"14\" fill=\"{fill}\"/>\
             <text x=\"{}\" y=\"26\">{name}</text>",
            x + 20.0
        );
    }
    for (index, (name, world, marks)) in (0_u8..).zip(panels) {
        let top = TOP + f64::from(index) * (PANEL + GAP);
        if let Some(points) = world.near().first() {
            panel(&mut out, points, top, name, &marks);
        }
    }
    out.push_str("</svg>\n");
    out
}

fn panel(out: &mut String, points: &[Point], top: f64, name: &str, marks: &[u32]) {
    let bottom = top + PANEL;
    let seconds = u32::try_from(points.len()).unwrap_or(u32::MAX).max(1);
    let x = |second: u32| LEFT + (WIDTH - LEFT - RIGHT) * f64::from(second) / f64::from(seconds);
    let y = |permille: f64| bottom - PANEL * permille.min(MOST) / MOST;
    let _ =
        writeln!(out, "<text x=\"{LEFT}\" y=\"{}\" font-weight=\"bold\">{name}</text>", top - 8.0);
    for percent in [0_u16, 50, 100, 150] {
        let at = y(f64::from(percent) * 10.0);
        let _ = writeln!(
            out,
            "<path d=\"M{LEFT} {at:.1}H{}\" stroke=\"#ddd\" fill=\"none\"/>\
             <text x=\"{}\" y=\"{:.1}\" font-size=\"11\" text-anchor=\"end\">{percent}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            at + 4.0
        );
    }
    for minute in (0..seconds.div_ceil(60)).step_by(5) {
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"11\" text-anchor=\"middle\">{minute} min\
             </text>",
            x(minute * 60),
            bottom + 16.0
        );
    }
    for mark in marks {
        let at = x(*mark);
        let _ = writeln!(
            out,
            "<path d=\"M{at:.1} {top}V{bottom}\" stroke=\"#333\" stroke-dasharray=\"4 4\"/>"
        );
    }
    let load = |point: &Point| f64::from(u32::try_from(point.load_permille).unwrap_or(u32::MAX));
    let share = |point: &Point| f64::from(point.share_permille);
    let lines: [(&str, Line); 2] = [(LOAD, load), (SHARE, share)];
    for (colour, of) in lines {
        let mut path = String::new();
        for (second, point) in (0_u32..).zip(points).step_by(EVERY) {
            let begin = if path.is_empty() { 'M' } else { 'L' };
            let _ = write!(path, "{begin}{:.1} {:.1}", x(second), y(of(point)));
        }
        let _ = writeln!(out, "<path d=\"{path}\" stroke=\"{colour}\" fill=\"none\"/>");
    }
}
