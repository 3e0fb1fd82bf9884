//! What came, in the words of the table.
//!
//! `206 (Content-Range: bytes 1-2/64, no Vary) bytes 1-2; 304 () nothing; keep`

use std::time::{SystemTime, UNIX_EPOCH};

use crate::odd::probe::Taken;
use crate::odd::table::Names;

/// What `Date` may be off: the machine is busy, and one second is not over everywhere at once.
const OFF_MAX: u64 = 20;

/// Said of a body that is not as long as its head says.
const SHORT: &str = "not Content-Length";

/// Describes the responses, with the fields in `look`.
pub(crate) fn describe(taken: &Taken, names: &Names, content: &[u8], look: &[String]) -> String {
    let mut words = Vec::new();
    if taken.begins_without_head() {
        words.push("bytes without a head".to_owned());
    }
    words.extend(taken.responses().into_iter().map(|one| response(one, names, content, look)));
    words.push(taken.end.to_owned());
    words.join("; ")
}

fn response(bytes: &[u8], names: &Names, content: &[u8], look: &[String]) -> String {
    let head_len = bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap_or(bytes.len());
    let head = String::from_utf8_lossy(&bytes[..head_len]);
    let status = head.get(9..12).unwrap_or("no status");
    let fields: Vec<(&str, &str)> =
        head.lines().skip(1).filter_map(|line| line.split_once(": ")).collect();
    let body = body(bytes.get(head_len + 4..).unwrap_or_default(), &fields, content);
    let looked: Vec<String> = look.iter().map(|name| field(name, &fields, names)).collect();
    let looked =
        if looked.is_empty() { looked.concat() } else { format!(" ({})", looked.join(", ")) };
    // What is written beside an error is everybody's own.
    let is_error = ["4", "5"].iter().any(|class| status.starts_with(class));
    let own = is_error && !body.ends_with(SHORT);
    if own { format!("{status}{looked}") } else { format!("{status}{looked} {body}") }
}

fn field(name: &str, fields: &[(&str, &str)], names: &Names) -> String {
    if name == "*" {
        let mut all: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
        all.sort_unstable();
        return all.join(", ");
    }
    let of_name = |pair: &&(&str, &str)| pair.0.eq_ignore_ascii_case(name);
    let values: Vec<&str> = fields.iter().filter(of_name).map(|pair| pair.1).collect();
    match values.as_slice() {
        [] => format!("no {name}"),
        [value] if *value == names.etag => format!("{name}: {{E}}"),
        [value] if is_now(value) => format!("{name}: now"),
        values => format!("{name}: {}", values.join(" and ")),
    }
}

/// True for the one form in which a date is sent, about now.
fn is_now(value: &str) -> bool {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut written = Vec::new();
    (since - OFF_MAX..=since + OFF_MAX).any(|at| {
        written.clear();
        http1::date::write(model::units::UnixSeconds(at), &mut written);
        written == value.as_bytes()
    })
}

/// What part of the file came, and whether it is as long as the head says. Where a length is told
/// and nothing comes, it is a HEAD's or the answer was cut: the row knows which.
fn body(body: &[u8], fields: &[(&str, &str)], content: &[u8]) -> String {
    let told = fields.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let told = told.and_then(|(_, value)| value.parse::<usize>().ok());
    if body.is_empty() {
        return "nothing".to_owned();
    }
    if told != Some(body.len()) {
        return format!("{} bytes, {SHORT}", body.len());
    }
    let at = content.windows(body.len()).position(|window| window == body);
    match at {
        Some(0) if body.len() == content.len() => "all".to_owned(),
        Some(at) => format!("bytes {at}-{}", at + body.len() - 1),
        None if body.starts_with(b"\r\n--") => "parts".to_owned(),
        None => format!("{} other bytes", body.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(got: &str, look: &[&str], words: &str) {
        let names = Names {
            path: String::new(),
            etag: "\"e\"".to_owned(),
            empty: String::new(),
            later: String::new(),
            token: String::new(),
            forged: String::new(),
        };
        let look: Vec<String> = look.iter().map(|name| (*name).to_owned()).collect();
        let taken = Taken { got: got.as_bytes().to_vec(), end: "close" };
        assert_eq!(describe(&taken, &names, b"0123456789", &look), words, "{got}");
    }

    #[test]
    fn what_came_is_told_with_the_bytes_of_the_file_that_are_in_it() {
        let head = "HTTP/1.1 206 Partial Content\r\nContent-Length: 2\r\nETag: \"e\"\r\n\r\n";
        check(&format!("{head}34"), &[], "206 bytes 3-4; close");
        check(
            &format!("{head}34{head}x"),
            &[],
            "206 bytes 3-4; 206 1 bytes, not Content-Length; close",
        );
        check(
            &format!("{head}43"),
            &["etag", "Vary"],
            "206 (etag: {E}, no Vary) 2 other bytes; close",
        );
        check(head, &["*"], "206 (Content-Length, ETag) nothing; close");
        let head = "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n";
        check(&format!("{head}no"), &[], "404; close");
        check(&format!("{head}no!"), &["Age"], "404 (no Age) 3 bytes, not Content-Length; close");
        check("0123", &[], "bytes without a head; close");
        check(
            "HTTP/1.1 200 OK\r\nVary: a\r\nVary: b\r\n\r\n",
            &["Vary"],
            "200 (Vary: a and b) nothing; close",
        );
        check(
            "HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n",
            &["Date"],
            "200 (Date: Sun, 06 Nov 1994 08:49:37 GMT) nothing; close",
        );
    }
}
