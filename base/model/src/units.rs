//! Units: integers with a name, and the only place where one becomes another.
//!
//! All are exact integers; conversions round down and saturate. Text forms carry their unit
//! (`"4 MiB"`, `"90 Gb/s"`, `"250 ms"`), so that a configuration file cannot be misread.

use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::str::FromStr;

/// A length or an offset in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

/// A rate in bits per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BitsPerSecond(pub u64);

/// A span of time in nanoseconds; the longest is 584 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

/// A point on a clock that never goes back, in nanoseconds since an arbitrary start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

/// Wall-clock time in whole seconds since 1970-01-01 UTC, leap seconds not counted (POSIX).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixSeconds(pub u64);

/// A whole hour by its number since 1970-01-01 00:00 UTC, leap seconds not counted. Local midnight
/// begins one where the zone is whole hours from UTC; elsewhere (India, Nepal) the hour in which it
/// falls stands for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hour(pub u32);

/// Why a text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    #[error("\"{text}\" needs a unit: write for example {example}")]
    Unit {
        /// The text that was read.
        text: String,
        /// A text that would have been right.
        example: &'static str,
    },
    /// The number before the unit is not one, or is too large.
    #[error("\"{text}\" does not begin with a number that fits: write for example {example}")]
    Number {
        /// The text that was read.
        text: String,
        /// A text that would have been right.
        example: &'static str,
    },
}

const BYTE_UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];
const RATE_UNITS: [(&str, u64); 5] = [
    ("Tb/s", 1_000_000_000_000),
    ("Gb/s", 1_000_000_000),
    ("Mb/s", 1_000_000),
    ("kb/s", 1_000),
    ("b/s", 1),
];
const TIME_UNITS: [(&str, u64); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("min", 60_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
    ("s", 1_000_000_000),
];

impl Bytes {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// `n` KiB.
    pub const fn kib(n: u64) -> Self {
        Self(n << 10)
    }

    /// `n` MiB.
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }

    /// The length of something in memory.
    pub fn of(len: usize) -> Self {
        Self(u64::try_from(len).unwrap_or(u64::MAX))
    }

    /// As an index into memory; `usize::MAX` where it does not fit, which no buffer has.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }

    /// Rounded up to a multiple of `unit`, which is a power of two.
    pub fn align_up(self, unit: Self) -> Self {
        assert!(unit.0.is_power_of_two(), "an alignment is a power of two");
        Self(self.0.saturating_add(unit.0 - 1) & !(unit.0 - 1))
    }

    /// Rounded down to a multiple of `unit`, which is a power of two.
    pub fn align_down(self, unit: Self) -> Self {
        assert!(unit.0.is_power_of_two(), "an alignment is a power of two");
        Self(self.0 & !(unit.0 - 1))
    }

    /// `self - other`, or zero.
    pub fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// The average rate at which this left in `span`; zero for an empty span.
    pub fn per(self, span: Nanos) -> BitsPerSecond {
        if span.0 == 0 {
            return BitsPerSecond(0);
        }
        let bits = u128::from(self.0) * 8 * 1_000_000_000 / u128::from(span.0);
        BitsPerSecond(u64::try_from(bits).unwrap_or(u64::MAX))
    }
}

impl BitsPerSecond {
    /// What this rate carries in `span`, rounded down to whole bytes.
    pub fn over(self, span: Nanos) -> Bytes {
        let bits = u128::from(self.0) * u128::from(span.0) / 1_000_000_000;
        Bytes(u64::try_from(bits / 8).unwrap_or(u64::MAX))
    }
}

impl Nanos {
    /// `n` seconds.
    pub const fn seconds(n: u64) -> Self {
        Self(n * 1_000_000_000)
    }

    /// `n` milliseconds.
    pub const fn millis(n: u64) -> Self {
        Self(n * 1_000_000)
    }

    /// Whole milliseconds, rounded down.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// Whole seconds, rounded down.
    pub const fn as_seconds(self) -> u64 {
        self.0 / 1_000_000_000
    }
}

impl Hour {
    /// How long one is.
    pub const LEN: Nanos = Nanos::seconds(3600);

    /// The hour that `at` is in. Its number fits until the year 491,936; later moments are in that.
    pub fn at(at: UnixSeconds) -> Self {
        Self(u32::try_from(at.0 / 3600).unwrap_or(u32::MAX))
    }

    /// Its first second.
    pub fn begin(self) -> UnixSeconds {
        UnixSeconds(u64::from(self.0) * 3600)
    }

    /// So many hours later, or the last one.
    pub fn after(self, hours: u32) -> Self {
        Self(self.0.saturating_add(hours))
    }

    /// So many hours earlier, or the first one.
    pub fn before(self, hours: u32) -> Self {
        Self(self.0.saturating_sub(hours))
    }

    /// The hours from `earlier` to `self`; 0 if `earlier` is later.
    pub fn since(self, earlier: Self) -> u32 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Instant {
    /// The span from `earlier` to `self`; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Nanos> for Instant {
    type Output = Self;
    fn add(self, span: Nanos) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Add for Bytes {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl Sub for Bytes {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl SubAssign for Bytes {
    fn sub_assign(&mut self, other: Self) {
        self.0 -= other.0;
    }
}

impl From<Nanos> for std::time::Duration {
    fn from(span: Nanos) -> Self {
        Self::from_nanos(span.0)
    }
}

impl From<std::time::Duration> for Nanos {
    fn from(span: std::time::Duration) -> Self {
        Self(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl FromStr for Bytes {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        quantity(text, &BYTE_UNITS, "\"256 MiB\"").map(Self)
    }
}

impl FromStr for BitsPerSecond {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        quantity(text, &RATE_UNITS, "\"10 Gb/s\"").map(Self)
    }
}

impl FromStr for Nanos {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        quantity(text, &TIME_UNITS, "\"250 ms\"").map(Self)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_quantity(f, self.0, &BYTE_UNITS)
    }
}

impl fmt::Display for BitsPerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_quantity(f, self.0, &RATE_UNITS)
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_quantity(f, self.0, &TIME_UNITS)
    }
}

fn quantity(text: &str, units: &[(&str, u64)], example: &'static str) -> Result<u64, UnitError> {
    let trimmed = text.trim();
    let number_len = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(number_len);
    let Some((_, scale)) = units.iter().find(|(name, _)| *name == unit.trim_start()) else {
        return Err(UnitError::Unit { text: text.to_owned(), example });
    };
    number
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(*scale))
        .ok_or_else(|| UnitError::Number { text: text.to_owned(), example })
}

/// Writes the largest unit that divides the quantity, so that reading it back gives the same.
fn write_quantity(f: &mut fmt::Formatter<'_>, n: u64, units: &[(&str, u64)]) -> fmt::Result {
    let fits = units.iter().filter(|(_, scale)| n != 0 && n.is_multiple_of(*scale));
    let (name, scale) = fits
        .max_by_key(|(_, scale)| *scale)
        .or_else(|| units.iter().find(|(_, scale)| *scale == 1))
        .copied()
        .unwrap_or(("", 1));
    write!(f, "{} {name}", n / scale)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_quantity_without_its_unit_is_refused_with_an_example() {
        let error = "250".parse::<Nanos>().unwrap_err();
        assert_eq!(error.to_string(), "\"250\" needs a unit: write for example \"250 ms\"");
        assert!("4 MiB".parse::<Nanos>().is_err());
        assert!("99999999999999999999 B".parse::<Bytes>().is_err());
        assert!("18446744073709551615 KiB".parse::<Bytes>().is_err());
    }

    #[test]
    fn texts_read_as_engineers_write_them() {
        assert_eq!("4 MiB".parse(), Ok(Bytes(4 << 20)));
        assert_eq!("4MiB".parse(), Ok(Bytes(4 << 20)));
        assert_eq!("90 Gb/s".parse(), Ok(BitsPerSecond(90_000_000_000)));
        assert_eq!("2 min".parse(), Ok(Nanos::seconds(120)));
        assert_eq!(Nanos::millis(1500).to_string(), "1500 ms");
    }

    #[test]
    fn rates_and_spans_make_bytes_rounded_down() {
        assert_eq!(BitsPerSecond(20_000_000).over(Nanos::millis(26)), Bytes(65_000));
        assert_eq!(Bytes(125).per(Nanos::seconds(1)), BitsPerSecond(1000));
        assert_eq!(Bytes(1).per(Nanos(0)), BitsPerSecond(0));
    }

    #[test]
    fn hours_begin_with_their_first_second_and_end_before_the_next() {
        let hour = Hour(495_000);
        assert_eq!(hour.begin(), UnixSeconds(1_782_000_000));
        for (second, of) in [(0, 0), (3599, 0), (3600, 1)] {
            assert_eq!(Hour::at(UnixSeconds(hour.begin().0 + second)), hour.after(of), "{second}");
        }
        assert_eq!(hour.after(24).since(hour), 24);
        assert_eq!((hour.since(hour.after(1)), hour.before(u32::MAX)), (0, Hour(0)));
        assert_eq!(Hour::at(UnixSeconds(u64::MAX)), Hour(u32::MAX));
    }

    proptest! {
        #[test]
        fn every_quantity_is_read_back_as_it_was_written(n: u64) {
            prop_assert_eq!(Bytes(n).to_string().parse(), Ok(Bytes(n)));
            prop_assert_eq!(BitsPerSecond(n).to_string().parse(), Ok(BitsPerSecond(n)));
            prop_assert_eq!(Nanos(n).to_string().parse(), Ok(Nanos(n)));
        }

        #[test]
        fn aligning_stays_within_one_unit(n in 0u64..1 << 60, shift in 0u32..20) {
            let unit = Bytes(1 << shift);
            prop_assert!(Bytes(n).align_up(unit).0 - n < unit.0);
            prop_assert!(n - Bytes(n).align_down(unit).0 < unit.0);
        }
    }
}
