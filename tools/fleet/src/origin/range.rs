//! One byte range of RFC 9110, section 14: what a fill asks for, and nothing more.

use std::ops::Range;

/// What a `Range` header asks of a file of a known length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The whole file: no range, one in another unit, several, or one that cannot be read.
    Whole,
    /// These bytes. Never empty.
    Part(Range<u64>),
    /// Nothing that the file has: answer 416.
    Unsatisfiable,
}

/// Reads a `Range` header. A server may ignore what it does not know (RFC 9110, section 14.2).
pub(super) fn wanted(header: &str, len: u64) -> Wanted {
    let Some((unit, spec)) = header.split_once('=') else {
        return Wanted::Whole;
    };
    let Some((first, last)) = spec.trim().split_once('-') else {
        return Wanted::Whole;
    };
    if !unit.trim().eq_ignore_ascii_case("bytes") || spec.contains(',') {
        return Wanted::Whole;
    }
    match (number(first), number(last)) {
        (Number::None, Number::Some(0)) => Wanted::Unsatisfiable,
        (Number::None, Number::Some(suffix)) => part(len.saturating_sub(suffix), len, len),
        (Number::Some(first), Number::None) => part(first, len, len),
        (Number::Some(first), Number::Some(last)) if first <= last => {
            part(first, last.saturating_add(1), len)
        }
        (Number::Some(_), Number::Some(_))
        | (Number::None, Number::None)
        | (Number::Bad, _)
        | (_, Number::Bad) => Wanted::Whole,
    }
}

fn part(start: u64, end: u64, len: u64) -> Wanted {
    if start < len { Wanted::Part(start..end.min(len)) } else { Wanted::Unsatisfiable }
}

enum Number {
    None,
    Some(u64),
    Bad,
}

fn number(text: &str) -> Number {
    match text.trim() {
        "" => Number::None,
        // A number too large to hold lies past the end of any file.
        digits if digits.bytes().all(|b| b.is_ascii_digit()) => {
            Number::Some(digits.parse().unwrap_or(u64::MAX))
        }
        _ => Number::Bad,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_rfc_9110_says() {
        let cases = [
            ("bytes=0-0", Wanted::Part(0..1)),
            ("bytes=0-", Wanted::Part(0..100)),
            ("Bytes = 10-19", Wanted::Part(10..20)),
            ("bytes=90-1000", Wanted::Part(90..100)),
            ("bytes=90-99999999999999999999999", Wanted::Part(90..100)),
            ("bytes=-10", Wanted::Part(90..100)),
            ("bytes=-1000", Wanted::Part(0..100)),
            ("bytes=-0", Wanted::Unsatisfiable),
            ("bytes=100-", Wanted::Unsatisfiable),
            ("bytes=99999999999999999999999-", Wanted::Unsatisfiable),
            ("bytes=5-4", Wanted::Whole),
            ("bytes=0-1,4-5", Wanted::Whole),
            ("bytes=a-b", Wanted::Whole),
            ("bytes=--1", Wanted::Whole),
            ("bytes=", Wanted::Whole),
            ("bytes", Wanted::Whole),
            ("lines=1-2", Wanted::Whole),
        ];
        for (header, answer) in cases {
            assert_eq!(wanted(header, 100), answer, "{header}");
        }
    }

    #[test]
    fn an_empty_file_has_no_range() {
        assert_eq!(wanted("bytes=0-0", 0), Wanted::Unsatisfiable);
        assert_eq!(wanted("bytes=-5", 0), Wanted::Unsatisfiable);
    }
}
