//! Numbers that a process tells of itself: name, kind, unit, labels and help stand in one list with
//! the field that is counted in.
//!
//! ```text
//! metrics! { struct Counters { accepted: Counter("connections_accepted_total"), .. } }
//!     ├──> Counters             plain numbers, counted by one thread
//!     ├──> Counters<AtomicU64>  the same where others read them
//!     └──> Counters::METRICS    the rows of /metrics
//! ```

/// How a metric moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows, from the start of the process on. Its name ends in `_total`.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// In what a number is counted. Prometheus gets base units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things, bytes, or whatever the name says.
    Whole,
    /// Told as seconds.
    Nanos,
}

/// One number, as Prometheus knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name without the prefix of its process, unit included.
    pub name: &'static str,
    pub kind: Kind,
    /// In what it is counted.
    pub unit: Unit,
    /// Labels that it always has, `source="origin"`; empty for none.
    pub labels: &'static str,
    /// A sentence.
    pub help: &'static str,
}

impl Metric {
    /// A counter of whole things.
    pub const fn counter(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: Kind::Counter, unit: Unit::Whole, labels: "", help }
    }

    /// A gauge of whole things.
    pub const fn gauge(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: Kind::Gauge, unit: Unit::Whole, labels: "", help }
    }
}

/// Makes a struct of numbers and the list of their metrics. The first sentences of a field's doc
/// are its help.
///
/// ```
/// model::metrics! {
///     /// What is counted.
///     pub struct Counters {
///         /// Connections accepted.
///         accepted: Counter("connections_accepted_total"),
///         /// Bytes fetched.
///         fetched: Counter("fetched_bytes_total", "source=\"origin\""),
///         /// CPU time of the workers.
///         cpu: Counter("cpu_seconds_total") in Nanos,
///     }
/// }
/// let counted = Counters { accepted: 1, ..Counters::default() };
/// assert_eq!(counted.each().next(), Some(&1));
/// assert_eq!(Counters::METRICS[0].name, "connections_accepted_total");
/// ```
#[macro_export]
macro_rules! metrics {
    (
        $(#[$meta:meta])*
        $vis:vis struct $Name:ident {
            $(
                $(#[doc = $help:literal])+
                $field:ident: $Kind:ident($name:literal $(, $labels:literal)?) $(in $Unit:ident)?,
            )+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        $vis struct $Name<T = u64> {
            $($(#[doc = $help])+ $vis $field: T,)+
        }

        impl $Name {
            /// One for each field, in their order.
            $vis const METRICS: &'static [$crate::metric::Metric] = &[$(
                $crate::metric::Metric {
                    name: $name,
                    kind: $crate::metric::Kind::$Kind,
                    unit: $crate::metrics!(@unit $($Unit)?),
                    labels: concat!($($labels)?),
                    help: concat!($($help),+),
                },
            )+];
        }

        impl<T> $Name<T> {
            /// Each field, in the order of `METRICS`.
            $vis fn each(&self) -> impl Iterator<Item = &T> {
                [$(&self.$field),+].into_iter()
            }

            /// Each field with that of another, without a loop: workers do this every turn.
            #[allow(dead_code, reason = "not every list is copied from another")]
            $vis fn zip<U>(&self, other: &$Name<U>, mut each: impl FnMut(&T, &U)) {
                $(each(&self.$field, &other.$field);)+
            }

            /// The same numbers in another form.
            $vis fn map<U>(&self, with: impl Fn(&T) -> U) -> $Name<U> {
                $Name { $($field: with(&self.$field),)+ }
            }
        }
    };
    (@unit) => { $crate::metric::Unit::Whole };
    (@unit $Unit:ident) => { $crate::metric::Unit::$Unit };
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::metrics! {
        struct Some {
            /// So many.
            a: Gauge("things"),
            /// So much, of
            /// two kinds.
            b: Counter("time_seconds_total", "kind=\"b\"") in Nanos,
        }
    }

    #[test]
    fn a_field_and_its_metric_are_one_line() {
        let [a, b] = Some::METRICS else { panic!("two fields") };
        assert_eq!(*a, Metric { help: " So many.", ..Metric::gauge("things", "") });
        assert_eq!((b.kind, b.unit, b.labels), (Kind::Counter, Unit::Nanos, "kind=\"b\""));
        assert_eq!(b.help, " So much, of two kinds.");
        let some = Some { a: 1, b: 2 };
        assert_eq!(some.each().collect::<Vec<_>>(), [&1, &2]);
        let mut pairs = Vec::new();
        some.zip(&Some { a: "x", b: "y" }, |number, text| pairs.push((*number, *text)));
        assert_eq!(pairs, [(1, "x"), (2, "y")]);
        assert_eq!(some.map(u64::to_string), Some { a: "1".to_owned(), b: "2".to_owned() });
    }
}
