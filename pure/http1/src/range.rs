//! `Range: bytes=...` against an object's length (RFC 9110 section 14).

use model::units::Bytes;

/// The part of the object to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selected {
    /// All of it, with 200.
    Whole,
    /// Bytes `start..end`, with 206.
    Part { start: Bytes, end: Bytes },
    /// None of it exists: 416.
    Unsatisfiable,
}

/// Reads a `Range` value. Any other than a single byte range is ignored, as RFC 9110 allows, and
/// the whole object is sent: no player asks for several ranges (measured on five).
pub fn select(value: &[u8], len: Bytes) -> Selected {
    let Some(spec) = str::from_utf8(value).ok().and_then(byte_ranges) else {
        return Selected::Whole;
    };
    let Some((first, last)) = spec.split_once('-') else { return Selected::Whole };
    match (number(first), number(last)) {
        (Some(Number::Value(start)), Some(Number::Absent)) if start < len.0 => {
            Selected::Part { start: Bytes(start), end: len }
        }
        (Some(Number::Value(start)), Some(Number::Value(last))) if start <= last => {
            if len.0 <= start {
                return Selected::Unsatisfiable;
            }
            let end = Bytes(last.saturating_add(1)).min(len);
            assert!(start < end.0, "a part has a byte");
            Selected::Part { start: Bytes(start), end }
        }
        (Some(Number::Absent), Some(Number::Value(suffix))) => {
            if suffix == 0 {
                return Selected::Unsatisfiable;
            }
            if len == Bytes::ZERO {
                // The end of nothing can be had (section 14.1.2), and no 206 can say so.
                return Selected::Whole;
            }
            Selected::Part { start: len.saturating_sub(Bytes(suffix)), end: len }
        }
        (Some(Number::Value(_)), Some(Number::Absent)) => Selected::Unsatisfiable,
        // Last before first, no number at all, or not a number: not a range (section 14.1.1).
        (Some(_) | None, Some(_) | None) => Selected::Whole,
    }
}

enum Number {
    Absent,
    Value(u64),
}

/// Digits only; more than fit are as good as the largest number.
fn number(text: &str) -> Option<Number> {
    if text.is_empty() {
        return Some(Number::Absent);
    }
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| Number::Value(text.parse().unwrap_or(u64::MAX)))
}

/// The one range of a byte range set; none if the unit is another or there are several. Empty
/// elements of a list are none (section 5.6.1.2).
fn byte_ranges(value: &str) -> Option<&str> {
    let (unit, set) = value.split_once('=')?;
    let elements = set.split(',').map(|element| element.trim_matches([' ', '\t']));
    let mut ranges = elements.filter(|element| !element.is_empty());
    let one = ranges.next()?;
    (unit.eq_ignore_ascii_case("bytes") && ranges.next().is_none()).then_some(one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn part(start: u64, end: u64) -> Selected {
        Selected::Part { start: Bytes(start), end: Bytes(end) }
    }

    #[test]
    fn ranges_are_read_as_rfc_9110_section_14_writes_them() {
        let cases: [(&str, Selected); 25] = [
            ("bytes=0-499", part(0, 499 + 1)),
            ("bytes=500-999", part(500, 1000)),
            ("bytes=-500", part(500, 1000)),
            ("bytes=-5000", part(0, 1000)),
            ("bytes=9-", part(9, 1000)),
            ("bytes=0-0", part(0, 1)),
            ("bytes=999-", part(999, 1000)),
            ("bytes=0-99999999999999999999999", part(0, 1000)),
            ("Bytes=1-2", part(1, 3)),
            ("bytes= 1-2 ", part(1, 3)),
            ("bytes=,1-2 ,\t,", part(1, 3)),
            ("bytes=,", Selected::Whole),
            ("bytes =1-2", Selected::Whole),
            ("bytes=1000-", Selected::Unsatisfiable),
            ("bytes=1000-1001", Selected::Unsatisfiable),
            ("bytes=-0", Selected::Unsatisfiable),
            ("bytes=99999999999999999999999-", Selected::Unsatisfiable),
            ("bytes=2-1", Selected::Whole),
            ("bytes=-", Selected::Whole),
            ("bytes=a-b", Selected::Whole),
            ("bytes=+1-2", Selected::Whole),
            ("bytes=1-2,4-5", Selected::Whole),
            ("items=1-2", Selected::Whole),
            ("bytes", Selected::Whole),
            ("", Selected::Whole),
        ];
        for (value, selected) in cases {
            assert_eq!(select(value.as_bytes(), Bytes(1000)), selected, "{value}");
        }
        assert_eq!(select(b"bytes=0-", Bytes(0)), Selected::Unsatisfiable);
        assert_eq!(select(b"bytes=-1", Bytes(0)), Selected::Whole);
        assert_eq!(select(b"bytes=-0", Bytes(0)), Selected::Unsatisfiable);
    }

    proptest! {
        #[test]
        fn a_selected_part_lies_within_the_object(
            value in "bytes=[0-9]{0,20}-[0-9]{0,20}", len: u64,
        ) {
            if let Selected::Part { start, end } = select(value.as_bytes(), Bytes(len)) {
                prop_assert!(start < end && end <= Bytes(len));
            }
        }
    }
}
