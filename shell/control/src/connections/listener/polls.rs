//! Answers what needs no hyper, as long as nothing else comes: heads that came whole, which
//! somebody answers at once. At the first other byte the connection is hyper's, with all that was
//! read.
//!
//! ```text
//! bytes ──> whole heads ──> answers ── once all that came with them are answered ──> written
//!             └ anything else: a part of a head, the end, another request ──> hyper
//! ```
//!
//! Answers of connections that are heard together are written together: whoever waits for them on
//! this machine, as a proxy does, is woken once and not for each of them.

use std::cell::RefCell;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use http1::{Parsed, Request};
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};
use tokio::task::yield_now;
use tokio::time::Instant;

use super::place::Place;
use super::stream::Stream;

/// Answers some heads without hyper: adds all of the answer, or says false and adds nothing.
pub(crate) type First = Box<dyn Fn(&Request<'_>, &mut Vec<u8>) -> bool + Send + Sync>;

/// A connection that hyper has not seen.
#[derive(Default)]
pub(super) struct Polls {
    /// Answers that are not all taken yet, and how many of their bytes are. Nothing between
    /// requests.
    answers: Vec<u8>,
    taken: usize,
    /// Heads that were read and are answered in the next turn.
    left: Vec<u8>,
    /// What is for hyper, once all answers are taken.
    handed: Option<Vec<u8>>,
}

/// How this ends.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// Hyper goes on with these bytes, and what comes after them.
    Handed(Vec<u8>),
    /// The other end is gone.
    Gone,
}

/// Most that is read at a time: two of the longest tickets.
const READ_MAX: usize = 16 << 10;

/// Most heads that are answered in a turn: whoever sends more has the others wait as long.
const ANSWERED_MAX: usize = 16;

/// Most answers to a poll are shorter.
const ANSWER_USUAL: usize = 1 << 10;

thread_local! {
    static READ: RefCell<Box<[u8; READ_MAX]>> = RefCell::new(Box::new([0; READ_MAX]));
}

impl Polls {
    /// No more requests are answered here, but those that were read.
    pub(super) fn stop(&mut self) {
        self.handed.get_or_insert_with(|| std::mem::take(&mut self.left));
    }

    /// Writes what is left, reads once and answers that, to be written in the next turn. A turn is
    /// `O(READ_MAX)` and what it takes to answer that.
    pub(super) fn poll(
        &mut self,
        context: &mut Context<'_>,
        stream: &mut Stream,
        place: &Place,
        (first, now): (&First, Instant),
    ) -> Poll<Ended> {
        loop {
            if !self.answers.is_empty() {
                let is_gone = ready!(self.write(context, stream, (place, now)));
                if is_gone {
                    return Poll::Ready(Ended::Gone);
                }
            }
            if let Some(handed) = self.handed.take() {
                return Poll::Ready(Ended::Handed(handed));
            }
            ready!(self.read(context, stream, first));
            if !self.answers.is_empty() {
                place.asks(now);
                // This task is woken after tokio's next look for input: others have answered then.
                let _ = pin!(yield_now()).poll(context);
                return Poll::Pending;
            }
        }
    }

    /// Reads once, and answers what came. What is to be done next is in `self` then.
    fn read(&mut self, context: &mut Context<'_>, stream: &mut Stream, first: &First) -> Poll<()> {
        if !self.left.is_empty() {
            let left = std::mem::take(&mut self.left);
            self.answer(&left, first);
            return Poll::Ready(());
        }
        READ.with_borrow_mut(|read| {
            let mut buffer = ReadBuf::new(&mut read[..]);
            // An error comes again, and the end too: hyper sees them.
            match ready!(Pin::new(stream).poll_read(context, &mut buffer)) {
                Ok(()) => self.answer(buffer.filled(), first),
                Err(_) => self.handed = Some(Vec::new()),
            }
            Poll::Ready(())
        })
    }

    /// Answers the heads that these bytes begin with. What follows is for the next turn, or for
    /// hyper.
    fn answer(&mut self, bytes: &[u8], first: &First) {
        self.answers.reserve(ANSWER_USUAL);
        let (mut rest, mut count) = (bytes, 0);
        while count < ANSWERED_MAX
            && let Ok(Parsed::Request { request, len }) = http1::parse(rest)
            && first(&request, &mut self.answers)
        {
            (rest, count) = (&rest[len..], count + 1);
        }
        if count == ANSWERED_MAX {
            self.left = rest.to_vec();
        } else if !rest.is_empty() || bytes.is_empty() {
            self.handed = Some(rest.to_vec());
        }
    }

    /// True if the other end is gone.
    fn write(
        &mut self,
        context: &mut Context<'_>,
        stream: &mut Stream,
        (place, now): (&Place, Instant),
    ) -> Poll<bool> {
        let before = self.taken;
        while let Some(left @ [_, ..]) = self.answers.get(self.taken..) {
            match Pin::new(&mut *stream).poll_write(context, left) {
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(true),
                Poll::Ready(Ok(count)) => self.taken += count,
                Poll::Pending => {
                    place.waits(now, before < self.taken);
                    return Poll::Pending;
                }
            }
        }
        let Poll::Ready(flushed) = Pin::new(stream).poll_flush(context) else {
            place.waits(now, before < self.taken);
            return Poll::Pending;
        };
        (self.answers, self.taken) = (Vec::new(), 0);
        place.was_answered(now);
        Poll::Ready(flushed.is_err())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_answers_so_many_heads_and_keeps_the_others_in_order() {
        let head = |n: usize| format!("GET /{n} HTTP/1.1\r\nHost: a\r\n\r\n");
        let bytes: String = (0..ANSWERED_MAX + 3).map(head).collect();
        let first: First = Box::new(|request, answers| {
            if request.path == "/18" {
                return false;
            }
            answers.extend_from_slice(request.path.as_bytes());
            true
        });
        let mut polls = Polls::default();
        polls.answer(bytes.as_bytes(), &first);
        let whole: String = (0..ANSWERED_MAX).map(|n| format!("/{n}")).collect();
        assert_eq!(str::from_utf8(&polls.answers).unwrap(), whole);
        let left: String = (ANSWERED_MAX..ANSWERED_MAX + 3).map(head).collect();
        assert_eq!((&polls.left[..], &polls.handed), (left.as_bytes(), &None));
        let left = std::mem::take(&mut polls.left);
        polls.answer(&left, &first);
        assert_eq!((&polls.left[..], &polls.handed), (&[][..], &Some(head(18).into_bytes())));
        // What is left when all must stop is hyper's.
        let mut stops = Polls { left: b"GET".to_vec(), ..Polls::default() };
        stops.stop();
        assert_eq!(stops.handed, Some(b"GET".to_vec()));
    }
}
