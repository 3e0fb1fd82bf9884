//! A line chart as SVG: axes, lines, dots, and a name at each.

use std::fmt::Write;

/// Points that belong together.
#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
    pub(crate) dots: bool,
}

/// A chart; y is from 0.
#[derive(Debug)]
pub(crate) struct Chart {
    pub(crate) title: &'static str,
    pub(crate) x: &'static str,
    pub(crate) y: &'static str,
    pub(crate) x_min: f64,
    pub(crate) y_max: f64,
    pub(crate) series: Vec<Series>,
}

/// Told apart also by those who see few colours (Okabe and Ito).
const COLOURS: [&str; 5] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#555555"];
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 52.0;

impl Chart {
    /// As a file's text.
    pub(crate) fn svg(&self) -> String {
        let xs = self.series.iter().flat_map(|series| series.points.iter().map(|point| point.0));
        let x_span = step(xs.fold(0.0, f64::max) - self.x_min) * 5.0;
        let x = |value: f64| LEFT + (value - self.x_min) / x_span * (WIDTH - LEFT - RIGHT);
        let y = |value: f64| {
            HEIGHT - BOTTOM - value.min(self.y_max) / self.y_max * (HEIGHT - TOP - BOTTOM)
        };
        let mut out = String::new();
        let mut line = |text: String| {
            out.push_str(&text);
            out.push('\n');
        };
        line(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"13\" fill=\"#222\">"
        ));
        line(format!("<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>"));
        line(text(LEFT, 22.0, "start", self.title, " font-size=\"15\" font-weight=\"bold\""));
        for tick in 0..=5 {
            let (at_x, at_y) =
                (self.x_min + f64::from(tick) * x_span / 5.0, f64::from(tick) * self.y_max / 5.0);
            let (low, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
            line(format!(
                "<path d=\"M{LEFT} {0:.1}H{right}\" stroke=\"#ddd\" fill=\"none\"/>",
                y(at_y)
            ));
            line(text(LEFT - 8.0, y(at_y) + 4.0, "end", &number(at_y), ""));
            line(text(x(at_x), low + 18.0, "middle", &number(at_x), ""));
        }
        line(text(f64::midpoint(LEFT, WIDTH - RIGHT), HEIGHT - 12.0, "middle", self.x, ""));
        line(text(-HEIGHT / 2.0, 18.0, "middle", self.y, " transform=\"rotate(-90)\""));
        for (series, colour) in self.series.iter().zip(COLOURS.iter().cycle()) {
            line(series.draw(colour, x, y));
        }
        for (index, (series, colour)) in (0_u32..).zip(self.series.iter().zip(COLOURS)) {
            let at = TOP + 26.0 + 18.0 * f64::from(index);
            let attributes = format!(" fill=\"{colour}\"");
            line(text(LEFT + 128.0, at, "middle", &series.name, &attributes));
        }
        line("</svg>".to_owned());
        out
    }
}

impl Series {
    fn draw(&self, colour: &str, x: impl Fn(f64) -> f64, y: impl Fn(f64) -> f64) -> String {
        let mut out = String::new();
        if self.dots {
            for point in &self.points {
                let (x, y) = (x(point.0), y(point.1));
                let _ =
                    write!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/>");
            }
            return out;
        }
        for (index, point) in self.points.iter().enumerate() {
            let verb = if index == 0 { 'M' } else { 'L' };
            let _ = write!(out, "{verb}{:.1} {:.1}", x(point.0), y(point.1));
        }
        format!("<path d=\"{out}\" stroke=\"{colour}\" stroke-width=\"2\" fill=\"none\"/>")
    }
}

fn text(x: f64, y: f64, anchor: &str, text: &str, attributes: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\"{attributes}>{text}</text>")
}

/// A fifth of an axis that holds `max`: 1, 2, 3 or 5 times a power of ten.
fn step(max: f64) -> f64 {
    let fifth = max / 5.0;
    let power = 10_f64.powf(fifth.log10().floor());
    let mut steps = [1.0, 2.0, 3.0, 5.0, 10.0].into_iter().map(|times| times * power);
    steps.find(|step| fifth <= step * 1.000_001).unwrap_or(fifth)
}

fn number(value: f64) -> String {
    if value.fract().abs() < 1e-9 { format!("{value:.0}") } else { format!("{value:.1}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_stand_where_their_numbers_are() {
        let series =
            Series { name: "a < b".into(), points: vec![(0.0, 0.0), (10.0, 5.0)], dots: false };
        let chart =
            Chart { title: "t", x: "x", y: "y", x_min: 0.0, y_max: 10.0, series: vec![series] };
        let svg = chart.svg();
        assert!(svg.contains("M64.0 348.0L620.0 196.0"), "{svg}");
        assert!(svg.contains("a &lt; b") && svg.ends_with("</svg>\n"));
        assert_eq!((step(10.0), step(11.0), step(4_000.0)), (2.0, 3.0, 1_000.0));
    }
}
