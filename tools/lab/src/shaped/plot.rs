//! The table as a picture: for each link three bars of each figure, one for each way of serving.

use std::fmt::Write as _;

use super::Arm;
use super::table::{Figures, Report};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 56.0;
const PANEL: f64 = 170.0;
const GAP: f64 = 62.0;
const TOP: f64 = 64.0;

/// A figure, its unit, and where it comes from.
type Figure = (&'static str, fn(&Figures) -> f64);

const FIGURES: [Figure; 4] = [
    ("packets dropped of 1,000", |one| one.drops_per_1000),
    ("mean bitrate, Mb/s", |one| one.mean_kbps / 1e3),
    ("start-up, s", |one| one.start_ms / 1e3),
    ("delay of a neighbour's packet, ms, 95th percentile", |one| one.neighbour_ms_p95),
];

/// Dark enough on white, apart for who sees no colours by their lightness.
fn colour(arm: Arm) -> &'static str {
    match arm {
        Arm::Unpaced => "#8a8f98",
        Arm::Cmcd => "#0b5cad",
        Arm::Silent => "#4fb3bf",
    }
}

/// The picture, self-contained.
pub(super) fn svg(report: &Report) -> String {
    let panels = u8::try_from(FIGURES.len()).map_or(0.0, f64::from);
    let height = TOP + panels * (PANEL + GAP);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"13\" role=\"img\">\n\
         <title>Players behind slow links, unpaced and paced</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    let mut x = LEFT;
    for arm in [Arm::Unpaced, Arm::Cmcd, Arm::Silent] {
        let (fill, name) = (colour(arm), arm.name());
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"14\" width=\"14\" height=\"14\" fill=\"{fill}\"/>\
             <text x=\"{}\" y=\"26\">{name}</text>",
            x + 20.0
        );
        x += 150.0;
    }
    for (index, (name, of)) in (0_u8..).zip(FIGURES) {
        panel(&mut out, report, TOP + f64::from(index) * (PANEL + GAP), name, of);
    }
    out.push_str("</svg>\n");
    out
}

fn panel(out: &mut String, report: &Report, top: f64, name: &str, of: fn(&Figures) -> f64) {
    let all = report.rows.iter().flat_map(|row| &row.arms).map(of);
    let most = all.fold(0.0, f64::max).max(1e-9);
    let bottom = top + PANEL;
    let _ =
        writeln!(out, "<text x=\"{LEFT}\" y=\"{}\" font-weight=\"bold\">{name}</text>", top - 8.0);
    let count = u32::try_from(report.rows.len()).map_or(1.0, f64::from);
    let group = (WIDTH - LEFT - 16.0) / count;
    let bar = group / 4.0;
    for (index, row) in (0_u32..).zip(&report.rows) {
        let from = LEFT + f64::from(index) * group;
        for (place, arm) in (0_u8..).zip(&row.arms) {
            let value = of(arm);
            let tall = (PANEL - 22.0) * value / most;
            let (x, y) = (from + bar * (0.5 + f64::from(place)), bottom - tall);
            let _ = writeln!(
                out,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{tall:.1}\" \
                 fill=\"{}\"/><text x=\"{:.1}\" y=\"{:.1}\" font-size=\"10\" \
                 text-anchor=\"middle\">{}</text>",
                bar - 3.0,
                colour(arm.arm),
                x + bar / 2.0 - 1.5,
                y - 4.0,
                short(value)
            );
        }
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"11\" text-anchor=\"middle\">{}</text>",
            from + bar * 2.0,
            bottom + 16.0,
            row.name()
        );
    }
    let _ = writeln!(
        out,
        "<path d=\"M{LEFT} {bottom}H{}\" stroke=\"#333\" fill=\"none\"/>",
        WIDTH - 16.0
    );
}

/// Two or three digits.
fn short(value: f64) -> String {
    if value < 10.0 { format!("{value:.2}") } else { format!("{value:.0}") }
}
