//! A request path to the path it names.

use model::path::is_path;

/// Why a path cannot name anything here: 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("path is not percent-encoded UTF-8 in its one form")]
pub struct TargetError;

/// Percent-decodes `path` into `buffer` and returns the text (RFC 3986 section 2.1). Refuses bad
/// escapes, what is not UTF-8, what does not fit and what `model::path::is_path` refuses: empty
/// parts, `.` and `..`, control characters, backslashes. An encoded slash is no slash and is
/// refused too, so that the parts of a path are the same before and after.
pub fn decode<'b>(path: &'b str, buffer: &'b mut [u8]) -> Result<&'b str, TargetError> {
    if path.len() <= buffer.len() && !path.contains('%') {
        return Some(path).filter(|path| is_path(path)).ok_or(TargetError);
    }
    let mut bytes = path.bytes();
    let mut len = 0;
    while let Some(byte) = bytes.next() {
        let decoded = match byte {
            b'%' => hex(bytes.next())? << 4 | hex(bytes.next())?,
            other => other,
        };
        if decoded == b'/' && byte != b'/' {
            return Err(TargetError);
        }
        *buffer.get_mut(len).ok_or(TargetError)? = decoded;
        len += 1;
    }
    str::from_utf8(&buffer[..len]).ok().filter(|path| is_path(path)).ok_or(TargetError)
}

fn hex(digit: Option<u8>) -> Result<u8, TargetError> {
    match digit {
        Some(d @ b'0'..=b'9') => Ok(d - b'0'),
        Some(d @ b'a'..=b'f') => Ok(d - b'a' + 10),
        Some(d @ b'A'..=b'F') => Ok(d - b'A' + 10),
        Some(_) | None => Err(TargetError),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded_once_and_bad_ones_refused() {
        let mut buffer = [0; 16];
        assert_eq!(decode("a%20b%C3%a9", &mut buffer), Ok("a bé"));
        assert_eq!(decode("%2541", &mut buffer), Ok("%41"));
        for bad in ["%", "%4", "%zz", "%00", "%0a", "a\u{7f}", "%ff", "0123456789abcdefg"] {
            assert_eq!(decode(bad, &mut buffer), Err(TargetError), "{bad}");
        }
    }

    #[test]
    fn a_path_that_could_be_read_in_two_ways_is_refused() {
        let mut buffer = [0; 64];
        assert_eq!(decode("v/r%30/..a/b.", &mut buffer), Ok("v/r0/..a/b."));
        let dots = ["..", "a/../b", "a/%2e%2E/b", "a/.%2e", "%2e/a", "./a", "a/."];
        let slashes = ["", "/", "/a", "a/", "a//b", "a%2Fb", "a%2f..%2fb", "%2f", "a%5cb", "a\\b"];
        for bad in dots.into_iter().chain(slashes).chain(["%c0%ae%c0%ae/a", "%e0%80%af", "%c2%85"])
        {
            assert_eq!(decode(bad, &mut buffer), Err(TargetError), "{bad}");
        }
    }
}
