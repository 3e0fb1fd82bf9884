//! Conditional requests (RFC 9110 section 13) for an object with a strong ETag.

use model::units::UnixSeconds;

use crate::date;
use crate::parse::{Fields, Lines};

/// The outcome of the preconditions of a GET or HEAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Send it; `range` says whether `Range` may be heeded: not if `If-Range` did not match.
    Proceed { range: bool },
    /// 304: the client has it.
    NotModified,
    /// 412: the client wanted another one.
    Failed,
}

/// Evaluates preconditions in the order of RFC 9110 section 13.2.2. `etag` has its quotes.
pub fn evaluate(fields: &Fields<'_>, etag: &[u8], modified: UnixSeconds) -> Verdict {
    let failed = match (&fields.if_match, fields.if_unmodified_since) {
        (Some(list), _) => !list_has(list, etag, Strength::Strong),
        (None, Some(value)) => date::parse(value).is_some_and(|since| since < modified),
        (None, None) => false,
    };
    if failed {
        return Verdict::Failed;
    }
    let unchanged = match (&fields.if_none_match, fields.if_modified_since) {
        (Some(list), _) => list_has(list, etag, Strength::Weak),
        (None, Some(value)) => date::parse(value).is_some_and(|since| modified <= since),
        (None, None) => false,
    };
    if unchanged {
        return Verdict::NotModified;
    }
    Verdict::Proceed { range: fields.if_range.is_none_or(|value| same(value, etag, modified)) }
}

/// `If-Range`: an ETag compared strongly, or exactly our `Last-Modified`, which is a strong
/// validator here because an asset version never changes.
fn same(value: &[u8], etag: &[u8], modified: UnixSeconds) -> bool {
    value == etag || date::parse(value) == Some(modified)
}

#[derive(Clone, Copy, PartialEq)]
enum Strength {
    Strong,
    Weak,
}

/// True if one of the tags is ours, or if the whole value is `*` (RFC 9110 section 13.1.1).
fn list_has(list: &Lines<'_>, etag: &[u8], strength: Strength) -> bool {
    list.is_asterisk() || list.iter().any(|line| line_has(line, etag, strength))
}

/// Reads tag by tag, since a comma or an asterisk may stand inside one (section 8.8.3), up to what
/// is none. Empty elements are no elements (section 5.6.1.2).
fn line_has(line: &[u8], etag: &[u8], strength: Strength) -> bool {
    let mut rest = line;
    loop {
        let skipped = rest.iter().take_while(|b| b" \t,".contains(b)).count();
        let element = &rest[skipped..];
        let (bare, weak) = match element.strip_prefix(b"W/") {
            Some(bare) => (bare, true),
            None => (element, false),
        };
        let Some(inside) = bare.strip_prefix(b"\"") else { return false };
        let Some(len) = inside.iter().position(|b| *b == b'"') else { return false };
        let (tag, behind) = bare.split_at(len + 2);
        if tag == etag && (!weak || strength == Strength::Weak) {
            return true;
        }
        rest = behind;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATE: &[u8] = b"Sun, 06 Nov 1994 08:49:37 GMT";
    const LATER: &[u8] = b"Sun, 06 Nov 1994 08:49:38 GMT";
    const EARLIER: &[u8] = b"Sun, 06 Nov 1994 08:49:36 GMT";

    fn check(fields: Fields<'_>, verdict: Verdict) {
        assert_eq!(evaluate(&fields, b"\"e\"", UnixSeconds(784_111_777)), verdict, "{fields:?}");
    }

    fn none() -> Fields<'static> {
        Fields::default()
    }

    #[test]
    fn preconditions_come_to_what_rfc_9110_section_13_says() {
        let all = Verdict::Proceed { range: true };
        check(none(), all);
        let tags = |list: &'static [u8]| Some(Lines::of(list));
        let good = [&b"\"e\""[..], b"W/\"e\"", b"\"a\", \"e\"", b"\"a,*\" ,,\t\"e\",", b"*"];
        for list in good {
            check(Fields { if_none_match: tags(list), ..none() }, Verdict::NotModified);
        }
        let other = ["\"x\"", "", ",", "\"a,*,b\"", "\"x\", *", "e", "w/\"e\"", "\"e", "x\"e\""];
        for list in other {
            check(Fields { if_none_match: tags(list.as_bytes()), ..none() }, all);
        }
        check(Fields { if_modified_since: Some(DATE), ..none() }, Verdict::NotModified);
        check(Fields { if_modified_since: Some(LATER), ..none() }, Verdict::NotModified);
        check(Fields { if_modified_since: Some(EARLIER), ..none() }, all);
        check(Fields { if_modified_since: Some(b"yesterday"), ..none() }, all);
        let both =
            Fields { if_none_match: tags(b"\"x\""), if_modified_since: Some(LATER), ..none() };
        check(both, all);
        check(Fields { if_match: tags(b"\"e\""), ..none() }, all);
        check(Fields { if_match: tags(b"W/\"e\""), ..none() }, Verdict::Failed);
        check(Fields { if_match: tags(b"\"x\""), ..none() }, Verdict::Failed);
        check(Fields { if_unmodified_since: Some(EARLIER), ..none() }, Verdict::Failed);
        check(Fields { if_unmodified_since: Some(DATE), ..none() }, all);
    }

    #[test]
    fn if_range_takes_the_strong_etag_or_the_exact_date_and_nothing_else() {
        for good in [&b"\"e\""[..], DATE] {
            check(Fields { if_range: Some(good), ..none() }, Verdict::Proceed { range: true });
        }
        for bad in [&b"W/\"e\""[..], b"\"x\"", LATER, EARLIER, b""] {
            check(Fields { if_range: Some(bad), ..none() }, Verdict::Proceed { range: false });
        }
    }
}
