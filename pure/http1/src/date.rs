//! HTTP dates (RFC 9110 section 5.6.7).

use model::units::UnixSeconds;

/// Length of an IMF-fixdate: `Sun, 06 Nov 1994 08:49:37 GMT`.
pub const DATE_LEN: usize = 29;

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const DAY: u64 = 86_400;
/// The last second of the year 9999, the last that an IMF-fixdate can say.
const LATEST: u64 = 253_402_300_799;

/// Appends `at` as IMF-fixdate.
pub fn write(at: UnixSeconds, out: &mut Vec<u8>) {
    let seconds = at.0.min(LATEST);
    let days = seconds / DAY;
    let (year, month, day) = civil(days);
    let weekday = usize::try_from(days % 7).map_or("Thu", |d| DAYS[d]);
    out.extend_from_slice(weekday.as_bytes());
    out.extend_from_slice(b", ");
    digits(out, day, 2);
    out.push(b' ');
    out.extend_from_slice(MONTHS[month].as_bytes());
    out.push(b' ');
    digits(out, year, 4);
    for (separator, value) in
        [(b' ', seconds % DAY / 3600), (b':', seconds % 3600 / 60), (b':', seconds % 60)]
    {
        out.push(separator);
        digits(out, value, 2);
    }
    out.extend_from_slice(b" GMT");
}

/// Appends `at` as RFC 3339 has it, `1994-11-06T08:49:37Z`: it sorts.
pub fn write_iso(at: UnixSeconds, out: &mut Vec<u8>) {
    let seconds = at.0.min(LATEST);
    let (year, month, day) = civil(seconds / DAY);
    digits(out, year, 4);
    for (separator, value) in [
        (b'-', u64::try_from(month).unwrap_or(0) + 1),
        (b'-', day),
        (b'T', seconds % DAY / 3600),
        (b':', seconds % 3600 / 60),
        (b':', seconds % 60),
    ] {
        out.push(separator);
        digits(out, value, 2);
    }
    out.push(b'Z');
}

/// Reads an HTTP date in any of the three forms that a recipient must accept. Before 1970 all is
/// 1970-01-01: no object is older.
pub fn parse(value: &[u8]) -> Option<UnixSeconds> {
    let text = str::from_utf8(value).ok()?;
    let mut words = text.split([' ', ',', '-']).filter(|word| !word.is_empty());
    words.next()?;
    let second = words.next()?;
    if let Some(month) = month(second) {
        // asctime: Sun Nov  6 08:49:37 1994
        let (day, clock) = (words.next()?, words.next()?);
        return seconds(number(words.next()?)?, month, day, clock);
    }
    // IMF-fixdate: Sun, 06 Nov 1994 08:49:37 GMT; RFC 850: Sunday, 06-Nov-94 08:49:37 GMT
    let month = month(words.next()?)?;
    let year_text = words.next()?;
    let clock = words.next()?;
    if words.next() != Some("GMT") {
        return None;
    }
    let year = number(year_text)?;
    let year = match year_text.len() {
        2 if year < 70 => year + 2000,
        2 => year + 1900,
        _ => year,
    };
    seconds(year, month, second, clock)
}

fn month(text: &str) -> Option<usize> {
    MONTHS.iter().position(|month| *month == text)
}

fn seconds(year: u64, month: usize, day: &str, clock: &str) -> Option<UnixSeconds> {
    let day = number(day)?;
    let mut parts = clock.split(':').map(number);
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
    // Every 400 years the calendar is the same: the day is one if it can be found again.
    let like = year % 400 + 2000;
    let valid = year <= 9999
        && (1..=31).contains(&day)
        && civil(days_from_civil(like, month, day)) == (like, month, day)
        && hour < 24
        && minute < 60
        && second <= 60;
    if !valid || parts.next().is_some() {
        return None;
    }
    if year < 1970 {
        return Some(UnixSeconds(0));
    }
    let days = days_from_civil(year, month, day);
    Some(UnixSeconds(days * DAY + hour * 3600 + minute * 60 + second))
}

/// Digits alone.
fn number(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok())?
}

fn digits(out: &mut Vec<u8>, value: u64, width: u32) {
    assert!(value < 10_u64.pow(width), "{value} has no more than {width} digits");
    for place in (0..width).rev() {
        let digit = value / 10_u64.pow(place) % 10;
        out.push(b'0' + digit.to_le_bytes()[0]);
    }
}

/// Days since 1970-01-01 to (year, month 0..12, day). Years begin in March, so that the leap day is
/// the last (Hinnant, "chrono-compatible low-level date algorithms").
fn civil(days: u64) -> (u64, usize, u64) {
    let shifted = days + 719_468;
    let era_day = shifted % 146_097;
    let era_year = (era_day - era_day / 1460 + era_day / 36_524 - era_day / 146_096) / 365;
    let year_day = era_day - (365 * era_year + era_year / 4 - era_year / 100);
    let march_month = (5 * year_day + 2) / 153;
    let day = year_day - (153 * march_month + 2) / 5 + 1;
    let month = (march_month + 2) % 12;
    let year = era_year + shifted / 146_097 * 400 + u64::from(month < 2);
    (year, usize::try_from(month).unwrap_or(0), day)
}

fn days_from_civil(year: u64, month: usize, day: u64) -> u64 {
    let march_month = (u64::try_from(month).unwrap_or(0) + 10) % 12;
    let year = year - u64::from(month < 2);
    let era_year = year % 400;
    let year_day = (153 * march_month + 2) / 5 + day - 1;
    let era_day = era_year * 365 + era_year / 4 - era_year / 100 + year_day;
    year / 400 * 146_097 + era_day - 719_468
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
