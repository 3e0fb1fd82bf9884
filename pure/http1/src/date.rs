//! HTTP dates (RFC 9110 section 5.6.7).

use std::fmt::{self, Write as _};
use std::time::{Duration, UNIX_EPOCH};

use httpdate::HttpDate;
use model::units::UnixSeconds;

/// Length of an IMF-fixdate: `Sun, 06 Nov 1994 08:49:37 GMT`.
pub const DATE_LEN: usize = 29;

/// The last second of the year 9999, the last that an IMF-fixdate can say.
const LATEST: u64 = 253_402_300_799;

/// Appends `at` as IMF-fixdate.
pub fn write(at: UnixSeconds, out: &mut Vec<u8>) {
    write!(Text(out), "{}", HttpDate::from(UNIX_EPOCH + since_1970(at)))
        .expect("a vector takes all");
}

/// Appends `at` as RFC 3339 has it, `1994-11-06T08:49:37Z`: it sorts.
pub fn write_iso(at: UnixSeconds, out: &mut Vec<u8>) {
    let text = humantime::format_rfc3339_seconds(UNIX_EPOCH + since_1970(at));
    write!(Text(out), "{text}").expect("a vector takes all");
}

/// A vector as `Display` writes to it: by way of `io::Write` a date takes 6 ns of 41 longer.
struct Text<'a>(&'a mut Vec<u8>);

impl fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

fn since_1970(at: UnixSeconds) -> Duration {
    Duration::from_secs(at.0.min(LATEST))
}

/// Reads an HTTP date in any of the three forms that a recipient must accept. Before 1970 all is
/// 1970-01-01: no object is older.
pub fn parse(value: &[u8]) -> Option<UnixSeconds> {
    let text = str::from_utf8(value).ok()?;
    if let Some((before, after)) = text.split_once(":60 ") {
        // A leap second, which the library does not know.
        let last = parse(format!("{before}:59 {after}").as_bytes())?;
        return Some(UnixSeconds(last.0 + 1));
    }
    if let Ok(time) = httpdate::parse_http_date(text) {
        return time.duration_since(UNIX_EPOCH).ok().map(|since| UnixSeconds(since.as_secs()));
    }
    // Every 400 years the calendar is the same: an older date is one if the like of it is.
    let is_year = |word: &&str| word.len() == 4 && word.bytes().all(|b| b.is_ascii_digit());
    let year_text = text.split(' ').find(is_year)?;
    let before = 1970_u64.checked_sub(year_text.parse().ok()?)?;
    let like = 1970 - before + before.div_ceil(400) * 400;
    let date = httpdate::parse_http_date(&text.replacen(year_text, &like.to_string(), 1));
    date.ok().map(|_| UnixSeconds(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(at: u64) -> String {
        let mut out = Vec::new();
        write(UnixSeconds(at), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_example_of_the_rfc_is_read_in_all_three_forms() {
        let at = UnixSeconds(784_111_777);
        assert_eq!(parse(b"Sun, 06 Nov 1994 08:49:37 GMT"), Some(at));
        assert_eq!(parse(b"Sunday, 06-Nov-94 08:49:37 GMT"), Some(at));
        assert_eq!(parse(b"Sun Nov  6 08:49:37 1994"), Some(at));
        assert_eq!(text(at.0), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(text(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
        let mut iso = Vec::new();
        write_iso(at, &mut iso);
        assert_eq!(iso, b"1994-11-06T08:49:37Z");
    }

    #[test]
    fn what_is_older_than_any_object_is_a_date_too() {
        assert_eq!(parse(b"Wed, 31 Dec 1969 23:59:59 GMT"), Some(UnixSeconds(0)));
        assert_eq!(parse(b"Fri Jan  1 00:00:00 1904"), Some(UnixSeconds(0)));
    }

    #[test]
    fn nonsense_is_no_date() {
        for bad in [
            "",
            "0",
            "Sun",
            "Sun, 06 Nov 1994 25:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 CET",
            "Sun, 31 Nov 1994 08:49:37 GMT",
            "Tue, 29 Feb 1994 08:49:37 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, 99999999999999999999 Nov 1994 08:49:37 GMT",
            "Sun, 18446744073709551615 Nov 1994 08:49:37 GMT",
            "Sun, +6 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 +8:49:37 GMT",
            "Sun, 06 Nov +1994 08:49:37 GMT",
        ] {
            assert_eq!(parse(bad.as_bytes()), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(at in 0..=LATEST) {
            prop_assert_eq!(parse(text(at).as_bytes()), Some(UnixSeconds(at)));
            prop_assert_eq!(text(at).len(), DATE_LEN);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }
    }
}
