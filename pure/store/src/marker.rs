//! The marker: the file that makes a directory a drive. Written once, by `format`.
//!
//! ```text
//! # A Nearcast drive. Written by "nearcast-appliance format"; not meant to be edited.
//! format = 1
//! id = "5f0c..."              32 hex digits, drawn at random: its name wherever it is mounted
//! reserve = "10 %"            of the filesystem, never filled
//! direct_align = "512 B"      smallest unit that direct I/O took here when formatted
//! created = "1790000000 s"    seconds since 1970
//! ```
//!
//! TOML, and of it only lines `key = number` and `key = "text"`: enough for a marker. Unknown keys
//! are refused, so that an older program does not use a drive whose rules it does not know.

use std::fmt;
use std::str::FromStr;

use model::id::DriveId;
use model::limits::DIRECT_ALIGN;
use model::units::{Bytes, UnixSeconds};

const FORMAT: u32 = 1;
const KEYS: [&str; 5] = ["format", "id", "reserve", "direct_align", "created"];

/// Share of a filesystem that is never filled: ext4 and XFS slow down and SSDs wear when full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserve {
    /// Invariant: at most `Reserve::PERCENT_MAX`.
    percent: u8,
}

/// The content of a drive's marker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    /// Its name, whatever the kernel or the mount point call it.
    pub id: DriveId,
    pub reserve: Reserve,
    /// Smallest unit that direct I/O took when formatted. We always use `limits::DIRECT_ALIGN`.
    pub direct_align: Bytes,
    pub created: UnixSeconds,
}

/// Why a marker was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MarkerError {
    #[error("line {line} of the marker is not understood: \"{text}\"")]
    Line { line: usize, text: String },
    #[error("the marker lacks \"{0}\": it is cut short or not a marker")]
    Missing(&'static str),
    #[error("the marker's {key} is \"{text}\", which is not a {wanted}")]
    Value { key: &'static str, text: String, wanted: &'static str },
    #[error("the drive has format {0}, and 1 is known here: upgrade before using it")]
    Format(u32),
    #[error("direct I/O needs units of {0} on this drive, and {DIRECT_ALIGN} is the most we use")]
    Align(Bytes),
}

impl Reserve {
    /// More than this would be a mistake in typing.
    pub const PERCENT_MAX: u8 = 90;

    /// So much of the filesystem, if that leaves something to fill.
    pub fn percent(percent: u8) -> Option<Self> {
        (percent <= Self::PERCENT_MAX).then_some(Self { percent })
    }

    /// The room kept free on a filesystem of this size.
    pub fn of(self, size: Bytes) -> Bytes {
        let kept = u128::from(size.0) * u128::from(self.percent) / 100;
        Bytes(u64::try_from(kept).expect("at most the size itself"))
    }
}

impl fmt::Display for Reserve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", self.percent)
    }
}

impl FromStr for Reserve {
    type Err = MarkerError;

    /// Reads `10 %` and `10%`.
    fn from_str(text: &str) -> Result<Self, MarkerError> {
        let number = text.trim().strip_suffix('%').map(str::trim_end);
        let percent = number.and_then(|n| n.parse().ok());
        percent.and_then(Self::percent).ok_or_else(|| MarkerError::Value {
            key: "reserve",
            text: text.to_owned(),
            wanted: "share of 0 to 90 % (write for example \"10 %\")",
        })
    }
}

impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "# A Nearcast drive. Written by \"nearcast-appliance format\"; not meant to be edited."
        )?;
        writeln!(f, "format = {FORMAT}")?;
        writeln!(f, "id = \"{}\"", self.id)?;
        writeln!(f, "reserve = \"{}\"", self.reserve)?;
        writeln!(f, "direct_align = \"{} B\"", self.direct_align.0)?;
        writeln!(f, "created = \"{} s\"", self.created.0)
    }
}

impl FromStr for Marker {
    type Err = MarkerError;

    fn from_str(text: &str) -> Result<Self, MarkerError> {
        let mut values: [Option<&str>; KEYS.len()] = [None; KEYS.len()];
        for (i, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let refused = || MarkerError::Line { line: i + 1, text: line.to_owned() };
            let (key, value) = line.split_once('=').ok_or_else(refused)?;
            let place = KEYS.iter().position(|known| *known == key.trim()).ok_or_else(refused)?;
            if values[place].replace(unquoted(value.trim()).ok_or_else(refused)?).is_some() {
                return Err(refused());
            }
        }
        let [format, id, reserve, direct_align, created] = values;
        let format: u32 = value("format", format, "number", |text| text.parse().ok())?;
        if format != FORMAT {
            return Err(MarkerError::Format(format));
        }
        let direct_align = value("direct_align", direct_align, "length", |t| t.parse().ok())?;
        if DIRECT_ALIGN < direct_align {
            return Err(MarkerError::Align(direct_align));
        }
        Ok(Self {
            id: value("id", id, "UUID of 32 hex digits", |text| text.parse().ok())?,
            reserve: value("reserve", reserve, "share of 0 to 90 %", |text| text.parse().ok())?,
            direct_align,
            created: value("created", created, "time in seconds since 1970", |text| {
                text.strip_suffix(" s")?.parse().ok().map(UnixSeconds)
            })?,
        })
    }
}

/// The text between quotes, or a bare number.
fn unquoted(value: &str) -> Option<&str> {
    let inner = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let bare = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
    inner.filter(|text| !text.contains(['"', '\\'])).or_else(|| bare.then_some(value))
}

fn value<T>(
    key: &'static str,
    text: Option<&str>,
    wanted: &'static str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<T, MarkerError> {
    let text = text.ok_or(MarkerError::Missing(key))?;
    parse(text).ok_or_else(|| MarkerError::Value { key, text: text.to_owned(), wanted })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn marker() -> Marker {
        Marker {
            id: DriveId([0x5f; 16]),
            reserve: Reserve::percent(10).unwrap(),
            direct_align: Bytes(512),
            created: UnixSeconds(1_790_000_000),
        }
    }

    #[test]
    fn a_marker_is_read_back_as_it_was_written() {
        assert_eq!(marker().to_string().parse(), Ok(marker()));
        assert!(marker().to_string().contains("reserve = \"10 %\"\ndirect_align = \"512 B\"\n"));
    }

    #[test]
    fn what_is_not_a_marker_says_what_is_wrong() {
        let refused = |from: &str, to: &str| {
            marker().to_string().replace(from, to).parse::<Marker>().unwrap_err()
        };
        assert_eq!(refused("format = 1", "format = 2"), MarkerError::Format(2));
        assert_eq!(refused("512 B", "8192 B"), MarkerError::Align(Bytes(8192)));
        assert_eq!(refused("reserve", "#"), MarkerError::Missing("reserve"));
        assert!(matches!(refused("10 %", "95 %"), MarkerError::Value { key: "reserve", .. }));
        assert!(matches!(refused("5f", "5"), MarkerError::Value { key: "id", .. }));
        assert!(matches!(refused("created", "mounted"), MarkerError::Line { line: 6, .. }));
        assert!(matches!(refused("created", "format"), MarkerError::Line { line: 6, .. }));
        assert!(matches!(refused("\"10", "10"), MarkerError::Line { line: 4, .. }));
        assert_eq!("".parse::<Marker>(), Err(MarkerError::Missing("format")));
    }

    #[test]
    fn the_reserve_is_a_share_of_the_whole() {
        let reserve: Reserve = "10%".parse().unwrap();
        assert_eq!(reserve.of(Bytes(1005)), Bytes(100));
        assert_eq!(Reserve::percent(90).unwrap().of(Bytes(u64::MAX)).0, u64::MAX / 10 * 9 + 4);
        for bad in ["10", "%", "-1 %", "91 %", "1e1 %"] {
            assert!(bad.parse::<Reserve>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "\\PC*", line in 0usize..8) {
            let mut lines: Vec<String> = marker().to_string().lines().map(str::to_owned).collect();
            lines.insert(line.min(lines.len()), text.clone());
            let _ = lines.join("\n").parse::<Marker>();
            let _ = text.parse::<Marker>();
        }
    }
}
