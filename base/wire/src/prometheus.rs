//! Metrics in the text format of Prometheus, version 0.0.4.

use std::fmt::{Display, Write as _};
use std::time::Duration;

use model::metric::{Kind, Metric, Unit};

/// Content type of a page.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4";

/// A page of metrics. Those of one name follow each other: the format knows no other order.
#[derive(Debug)]
pub struct Page {
    prefix: &'static str,
    text: String,
    /// Name of the metric that was put last.
    last: &'static str,
}

impl Page {
    /// An empty page, of names with this prefix.
    pub fn new(prefix: &'static str) -> Self {
        Self { prefix, text: String::new(), last: "" }
    }

    /// One number, with labels beside those that the metric has: `drive="0"`, or none.
    pub fn put(&mut self, metric: &Metric, labels: &str, value: impl Display) {
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        if self.last != metric.name {
            self.head(metric.name, kind, metric.help);
        }
        let (prefix, name) = (self.prefix, metric.name);
        let comma = if metric.labels.is_empty() || labels.is_empty() { "" } else { "," };
        let labels = format!("{}{comma}{labels}", metric.labels);
        let labels = if labels.is_empty() { labels } else { format!("{{{labels}}}") };
        self.line(format_args!("{prefix}{name}{labels} {value}"));
    }

    /// The numbers of a table, in its order.
    pub fn table(&mut self, metrics: &[Metric], values: impl IntoIterator<Item = u64>) {
        for (metric, value) in metrics.iter().zip(values) {
            self.put_of(metric, "", value);
        }
    }

    /// One number of a table, in base units.
    pub fn put_of(&mut self, metric: &Metric, labels: &str, value: u64) {
        match metric.unit {
            Unit::Whole => self.put(metric, labels, value),
            Unit::Nanos => self.put(metric, labels, Duration::from_nanos(value).as_secs_f64()),
        }
    }

    /// How many values were at most `bounds[i]`, and above the one before; the last of `counts` is
    /// of those above all.
    pub fn histogram(
        &mut self,
        (name, help): (&'static str, &'static str),
        bounds: impl IntoIterator<Item = Duration>,
        counts: impl IntoIterator<Item = u64>,
        sum: Duration,
    ) {
        self.head(name, "histogram", help);
        let (prefix, mut count) = (self.prefix, 0);
        let bounds = bounds.into_iter().map(|bound| bound.as_secs_f64().to_string());
        for (bound, more) in bounds.chain(["+Inf".to_owned()]).zip(counts) {
            count += more;
            self.line(format_args!("{prefix}{name}_bucket{{le=\"{bound}\"}} {count}"));
        }
        self.line(format_args!("{prefix}{name}_sum {}", sum.as_secs_f64()));
        self.line(format_args!("{prefix}{name}_count {count}"));
    }

    /// The page so far.
    pub fn into_text(self) -> String {
        self.text
    }

    fn head(&mut self, name: &'static str, kind: &str, help: &str) {
        self.last = name;
        let (prefix, help) = (self.prefix, help.trim_start());
        self.line(format_args!("# HELP {prefix}{name} {help}\n# TYPE {prefix}{name} {kind}"));
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.text, "{line}").expect("a string takes all");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_one_heading_for_each_name_and_base_units() {
        let mut page = Page::new("nearcast_");
        let free = Metric::gauge("drive_free_bytes", "Free.");
        page.put(&free, "drive=\"0\"", 1);
        page.put(&free, "drive=\"1\"", 2.5);
        let fetched = Metric::counter("fetched_bytes_total", " Fetched.");
        let fetched = [
            Metric { labels: "source=\"a\"", ..fetched },
            Metric { labels: "source=\"b\"", ..fetched },
        ];
        page.table(&fetched, [3, u64::MAX]);
        page.put(&fetched[0], "drive=\"1\"", 4);
        let cpu = Metric { unit: Unit::Nanos, ..Metric::counter("cpu_seconds_total", "CPU.") };
        page.table(&[cpu], [1_500_000_000]);
        let bounds = [64, 128].map(Duration::from_micros);
        page.histogram(("late_seconds", "Late."), bounds, [5, 0, 1], Duration::from_millis(2));
        assert_eq!(page.into_text(), PAGE);
    }

    const PAGE: &str = "\
# HELP nearcast_drive_free_bytes Free.
# TYPE nearcast_drive_free_bytes gauge
nearcast_drive_free_bytes{drive=\"0\"} 1
nearcast_drive_free_bytes{drive=\"1\"} 2.5
# HELP nearcast_fetched_bytes_total Fetched.
# TYPE nearcast_fetched_bytes_total counter
nearcast_fetched_bytes_total{source=\"a\"} 3
nearcast_fetched_bytes_total{source=\"b\"} 18446744073709551615
nearcast_fetched_bytes_total{source=\"a\",drive=\"1\"} 4
# HELP nearcast_cpu_seconds_total CPU.
# TYPE nearcast_cpu_seconds_total counter
nearcast_cpu_seconds_total 1.5
# HELP nearcast_late_seconds Late.
# TYPE nearcast_late_seconds histogram
nearcast_late_seconds_bucket{le=\"0.000064\"} 5
nearcast_late_seconds_bucket{le=\"0.000128\"} 5
nearcast_late_seconds_bucket{le=\"+Inf\"} 6
nearcast_late_seconds_sum 0.002
nearcast_late_seconds_count 6
";
}
