//! Takes tokens, queries of URLs and control characters out of any text that is logged.

use std::fmt::Write as _;

use aws_lc_rs::digest;

/// `text` with playback tokens and what is signed like them, the queries of URLs, and control
/// characters taken out.
///
/// A token leaves its key id and a hash of its session, so that lines about one playback are
/// found by the holder of its token, and by nobody else.
pub fn redact(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let run = rest.find(|c| !in_token(c)).unwrap_or(rest.len());
        if run != 0 {
            word(&rest[..run], &mut out);
            rest = &rest[run..];
            continue;
        }
        rest = &rest[first.len_utf8()..];
        match first {
            '?' if out.contains("://") || out.contains("/t/") => {
                let query = rest.find(is_url_end).unwrap_or(rest.len());
                out.push_str(if query == 0 { "?" } else { "?.." });
                rest = &rest[query..];
            }
            first if first.is_control() => write!(out, "{}", first.escape_default()).expect(ROOM),
            first => out.push(first),
        }
    }
    out
}

const ROOM: &str = "a string takes all";

/// Longest word that is written as it is. Object ids have 64, names 63, signatures 86.
const WORD_LEN_MAX: usize = 80;

fn word(word: &str, out: &mut String) {
    if word.split('.').all(|part| part.len() <= WORD_LEN_MAX) {
        out.push_str(word);
        return;
    }
    let parts: Vec<&str> = word.split('.').collect();
    match parts.as_slice() {
        [kid, _expires, _depth, session, _signature] if kid.len() <= 16 => {
            let hash = digest::digest(&digest::SHA256, session.as_bytes());
            let hash: String = hash.as_ref()[..4].iter().map(|b| format!("{b:02x}")).collect();
            write!(out, "token({kid},{hash})").expect(ROOM);
        }
        _ => out.push_str("(secret)"),
    }
}

fn in_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '.' || c == '-' || c == '_'
}

fn is_url_end(c: char) -> bool {
    c.is_whitespace() || c.is_control() || "\"'<>()[]{}|\\".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_secret_stays() {
        for text in [
            "drive 5f0c set aside: EIO",
            "is it mounted?",
            "https://a1.example:8443/v1/x",
            &"ab".repeat(32),
            "/var/lib/nearcast/objects/ab/cd",
            "\u{e9}t\u{e9}",
        ] {
            assert_eq!(redact(text), text);
        }
    }

    #[test]
    fn tokens_and_queries_go() {
        let signature = "b".repeat(86);
        let token = format!("k1.tro8w0.2.AAECAwQFBgcICQoL.{signature}");
        let shown = redact(&format!("GET \"/t/{token}/film-1/v.mp4\""));
        assert!(shown.starts_with("GET \"/t/token(k1,") && shown.ends_with(")/film-1/v.mp4\""));
        assert_eq!(shown.len(), "GET \"/t/token(k1,01234567)/film-1/v.mp4\"".len());
        assert_eq!(redact(&signature), "(secret)");
        assert_eq!(redact("https://b/x?X-Amz-Signature=1 401"), "https://b/x?.. 401");
        assert_eq!(redact("a\r\nb\u{1b}[1m"), "a\\r\\nb\\u{1b}[1m");
    }

    proptest! {
        #[test]
        fn no_signature_and_no_control_gets_through(
            before in ".{0,20}",
            signature in "[A-Za-z0-9_-]{86}",
            after in "[^A-Za-z0-9._-].{0,20}",
        ) {
            let shown = redact(&format!("{before}{signature}{after}"));
            prop_assert!(!shown.contains(&signature));
            prop_assert!(!shown.contains(char::is_control));
        }
    }
}
