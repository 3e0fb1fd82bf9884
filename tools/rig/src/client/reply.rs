//! One response: is it what was asked for, to the byte?
//!
//! Fed with opened bytes where they are known and with bare lengths where they are not. The head
//! is always known, since it says how much is to come.

use std::ops::Range;

use super::truth::Wrong;

/// Longest head that is waited for.
const HEAD_MAX: usize = 16 * 1024;
/// Most header fields in a head.
const FIELDS_MAX: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// Which target, by its place in the list.
    pub target: usize,
    pub range: Range<u64>,
    /// The target's whole length.
    pub target_len: u64,
    /// Whether every byte of the answer is opened and compared.
    pub verify: bool,
}

/// Why a response is not what was asked for. Any of these makes a run invalid.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReplyError {
    #[error("the response's head is not HTTP/1.1: {0}")]
    Head(httparse::Error),
    #[error("the response's head is longer than 16 KiB")]
    HeadLen,
    #[error("status {status} instead of 206 for bytes {}-{} of target {}",
        asked.range.start, asked.range.end - 1, asked.target)]
    Status { status: u16, asked: Asked },
    #[error("{name} is {found:?} instead of {wanted:?}")]
    Field {
        name: &'static str,
        /// What came; empty if it did not.
        found: String,
        wanted: String,
    },
    #[error("{0} bytes more than asked for")]
    TooLong(u64),
    /// A byte differs from the source.
    #[error(transparent)]
    Wrong(#[from] Wrong),
}

/// A response on its way.
#[derive(Debug)]
pub(super) struct Reply {
    asked: Asked,
    /// What came of the head, while it is incomplete. At most `HEAD_MAX`.
    head: Vec<u8>,
    /// Body bytes to come; `None` until the head is complete.
    left: Option<u64>,
}

impl Reply {
    /// Waits for the answer to `asked`.
    pub(super) fn new(asked: Asked) -> Self {
        Self { asked, head: Vec::new(), left: None }
    }

    pub(super) fn asked(&self) -> &Asked {
        &self.asked
    }

    /// Whether the next record has to be opened.
    pub(super) fn wants_bytes(&self) -> bool {
        self.left.is_none() || self.asked.verify
    }

    /// Whether all of it has come.
    pub(super) fn is_complete(&self) -> bool {
        self.left == Some(0)
    }

    /// Takes `n` body bytes that nobody looked at.
    pub(super) fn skipped(&mut self, n: u64) -> Result<(), ReplyError> {
        let left = self.left.expect("bytes before the head's end are never skipped");
        self.left = Some(less(left, n)?);
        Ok(())
    }

    /// Takes opened bytes; says how many of them were body. `compare` is called with the offset
    /// of body bytes within the target.
    pub(super) fn bytes(
        &mut self,
        bytes: &[u8],
        compare: impl FnOnce(&Asked, u64, &[u8]) -> Result<(), Wrong>,
    ) -> Result<u64, ReplyError> {
        let (head_len, left) = match self.left {
            Some(left) => (0, left),
            None => match self.head(bytes)? {
                Some(head_len) => (head_len, self.asked.range.end - self.asked.range.start),
                None => return Ok(0),
            },
        };
        let body = &bytes[head_len..];
        let n = u64::try_from(body.len()).expect("a record's length fits");
        let after = less(left, n)?;
        compare(&self.asked, self.asked.range.end - left, body)?;
        self.left = Some(after);
        Ok(n)
    }

    /// How many of `bytes` end the head; `None` if it goes on.
    fn head(&mut self, bytes: &[u8]) -> Result<Option<usize>, ReplyError> {
        let before = self.head.len();
        self.head.extend_from_slice(bytes);
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut head = httparse::Response::new(&mut fields);
        match head.parse(&self.head).map_err(ReplyError::Head)? {
            httparse::Status::Partial if self.head.len() > HEAD_MAX => Err(ReplyError::HeadLen),
            httparse::Status::Partial => Ok(None),
            httparse::Status::Complete(len) => {
                check_head(&head, &self.asked)?;
                self.head.clear();
                Ok(Some(len - before))
            }
        }
    }
}

/// What is to come after `n` bytes more.
fn less(left: u64, n: u64) -> Result<u64, ReplyError> {
    left.checked_sub(n).ok_or_else(|| ReplyError::TooLong(n - left))
}

fn check_head(head: &httparse::Response<'_, '_>, asked: &Asked) -> Result<(), ReplyError> {
    let status = head.code.unwrap_or(0);
    if status != 206 {
        return Err(ReplyError::Status { status, asked: asked.clone() });
    }
    let Range { start, end } = asked.range;
    check_field(head, "content-length", &(end - start).to_string())?;
    let range = format!("bytes {start}-{}/{}", end - 1, asked.target_len);
    check_field(head, "content-range", &range)
}

fn check_field(
    head: &httparse::Response<'_, '_>,
    name: &'static str,
    wanted: &str,
) -> Result<(), ReplyError> {
    let field = head.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name));
    let found = field.map_or("", |field| std::str::from_utf8(field.value).unwrap_or(""));
    if found == wanted {
        return Ok(());
    }
    Err(ReplyError::Field { name, found: found.to_owned(), wanted: wanted.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "HTTP/1.1 206 Partial Content\r\nContent-Length: 6\r\n\
        content-range: bytes 4-9/100\r\n\r\n";

    fn asked() -> Asked {
        Asked { target: 3, range: 4..10, target_len: 100, verify: true }
    }

    /// Feeds the pieces; returns what was compared, or the error's text.
    fn feed(pieces: &[&str]) -> Result<Vec<(u64, String)>, String> {
        let mut reply = Reply::new(asked());
        let mut seen = Vec::new();
        for piece in pieces {
            let taken = reply.bytes(piece.as_bytes(), |asked, offset, bytes| {
                assert_eq!(asked.target, 3);
                if !bytes.is_empty() {
                    seen.push((offset, String::from_utf8(bytes.to_vec()).unwrap()));
                }
                Ok(())
            });
            taken.map_err(|error| error.to_string())?;
        }
        assert!(reply.is_complete());
        Ok(seen)
    }

    #[test]
    fn the_head_may_share_a_record_with_the_body_or_have_its_own() {
        let alone = feed(&[HEAD, "abc", "def"]).unwrap();
        assert_eq!(alone, [(4, "abc".to_owned()), (7, "def".to_owned())]);
        let shared = feed(&[&format!("{HEAD}abcdef")]).unwrap();
        assert_eq!(shared, [(4, "abcdef".to_owned())]);
        let (front, back) = HEAD.split_at(20);
        let split = feed(&[front, &format!("{back}ab"), "cdef"]).unwrap();
        assert_eq!(split, [(4, "ab".to_owned()), (6, "cdef".to_owned())]);
    }

    #[test]
    fn another_status_length_or_range_is_an_error() {
        fn check(from: &str, to: &str, error: &str) {
            assert_eq!(feed(&[&HEAD.replace(from, to)]).unwrap_err(), error);
        }
        check("206", "200", "status 200 instead of 206 for bytes 4-9 of target 3");
        check("206", "403", "status 403 instead of 206 for bytes 4-9 of target 3");
        check("Length: 6", "Length: 7", "content-length is \"7\" instead of \"6\"");
        check("Content-Length", "Length", "content-length is \"\" instead of \"6\"");
        let range = "content-range is \"bytes 4-9/99\" instead of \"bytes 4-9/100\"";
        check("/100", "/99", range);
        check("HTTP/1.1", "HTTP/x", "the response's head is not HTTP/1.1: invalid HTTP version");
    }

    #[test]
    fn bytes_beyond_the_range_are_an_error() {
        assert_eq!(feed(&[HEAD, "abcdefg"]).unwrap_err(), "1 bytes more than asked for");
        let mut reply = Reply::new(Asked { verify: false, ..asked() });
        assert!(reply.wants_bytes());
        reply.bytes(HEAD.as_bytes(), |_, _, _| Ok(())).unwrap();
        assert!(!reply.wants_bytes());
        reply.skipped(5).unwrap();
        assert!(!reply.is_complete());
        assert_eq!(reply.skipped(2).unwrap_err().to_string(), "1 bytes more than asked for");
    }
}
