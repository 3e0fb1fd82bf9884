//! Conditional requests (RFC 9110 section 13) for an object with a strong ETag.

use model::units::UnixSeconds;

use crate::date;
use crate::parse::Fields;

/// What the preconditions of a GET or HEAD come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Send it; `range` says whether `Range` may be heeded.
    Proceed {
        /// False if `If-Range` did not match.
        range: bool,
    },
    /// 304: the client has it.
    NotModified,
    /// 412: the client wanted another one.
    Failed,
}

/// Evaluates preconditions in the order of RFC 9110 section 13.2.2. `etag` has its quotes.
pub fn evaluate(fields: &Fields<'_>, etag: &[u8], modified: UnixSeconds) -> Verdict {
    let failed = match (fields.if_match, fields.if_unmodified_since) {
        (Some(list), _) => !list_has(list, etag, Strength::Strong),
        (None, Some(value)) => date::parse(value).is_some_and(|since| since < modified),
        (None, None) => false,
    };
    if failed {
        return Verdict::Failed;
    }
    let unchanged = match (fields.if_none_match, fields.if_modified_since) {
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

fn list_has(list: &[u8], etag: &[u8], strength: Strength) -> bool {
    let mut tags = list.split(|b| *b == b',').map(<[u8]>::trim_ascii);
    tags.any(|tag| {
        let bare = tag.strip_prefix(b"W/").filter(|_| strength == Strength::Weak).unwrap_or(tag);
        bare == etag || tag == b"*"
    })
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
        for list in [&b"\"e\""[..], b"W/\"e\"", b"\"a\", \"e\"", b"*"] {
            check(Fields { if_none_match: Some(list), ..none() }, Verdict::NotModified);
        }
        check(Fields { if_none_match: Some(b"\"x\""), ..none() }, all);
        check(Fields { if_modified_since: Some(DATE), ..none() }, Verdict::NotModified);
        check(Fields { if_modified_since: Some(LATER), ..none() }, Verdict::NotModified);
        check(Fields { if_modified_since: Some(EARLIER), ..none() }, all);
        check(Fields { if_modified_since: Some(b"yesterday"), ..none() }, all);
        let both =
            Fields { if_none_match: Some(b"\"x\""), if_modified_since: Some(LATER), ..none() };
        check(both, all);
        check(Fields { if_match: Some(b"\"e\""), ..none() }, all);
        check(Fields { if_match: Some(b"W/\"e\""), ..none() }, Verdict::Failed);
        check(Fields { if_match: Some(b"\"x\""), ..none() }, Verdict::Failed);
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
