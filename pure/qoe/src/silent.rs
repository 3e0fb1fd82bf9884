//! One playback whose player says nothing: what the server can know, which is an estimate.
//!
//! A player with a full buffer asks for a piece when it has played one, so that the time from
//! request to request is the duration of a piece, and the buffer is as long as it will be. While it
//! asks again as soon as it has got the last, the buffer may run dry: if so much time passes
//! without a piece as the pieces before had in them, a stall is guessed.

use model::cmcd::{Object, Response};
use model::units::{Instant, Nanos};

use crate::sums::Sums;

/// Responses without a word before a playback counts as one that says nothing.
const RESPONSES: u32 = 3;
/// No piece is shorter.
const PIECE_MIN: Nanos = Nanos::millis(500);
/// Nor longer: who waits for longer between two requests pauses.
const PIECE_MAX: Nanos = Nanos::seconds(30);
/// A player that waits between two requests has at least so many pieces.
const FULL: u64 = 2;

#[derive(Clone, Debug, Default)]
pub(crate) struct Silent {
    responses: u32,
    begun: Instant,
    ended: Instant,
    /// The duration of a piece, once it could be learned.
    piece: Option<Nanos>,
    /// When the buffer will have run dry, once that is known.
    dry: Option<Instant>,
}

impl Silent {
    /// True of one that will not speak any more.
    pub(crate) fn is_known(&self) -> bool {
        RESPONSES <= self.responses
    }

    /// A response is over. O(1).
    pub(crate) fn take(&mut self, response: &Response, sums: &mut Sums) {
        if response.object() != Object::Video || !response.whole {
            return;
        }
        self.responses += 1;
        sums.playbacks += u64::from(self.responses == RESPONSES);
        let before = std::mem::replace(&mut self.begun, response.begun);
        let idle = response.begun.since(std::mem::replace(&mut self.ended, response.ended));
        let interval = response.begun.since(before);
        if self.responses == 1 {
            return;
        }
        let waits = PIECE_MIN <= interval && interval.0 / 4 <= idle.0;
        if waits && interval <= PIECE_MAX {
            let mean = |piece: Nanos| Nanos((3 * piece.0 + interval.0.min(2 * piece.0)) / 4);
            self.piece = Some(self.piece.map_or(interval, mean));
        }
        let Some(piece) = self.piece else { return };
        assert!(PIECE_MIN <= piece && piece <= PIECE_MAX, "it was learned from such ones");
        let full = response.begun + Nanos(FULL * piece.0);
        let dry = self.dry.unwrap_or(full);
        let dry = if waits { dry.max(full) } else { dry };
        if dry < response.ended {
            sums.stalls += 1;
            sums.stall_time += response.ended.since(dry).0;
        }
        sums.watched += piece.0;
        self.dry = Some(dry.max(response.ended) + piece);
    }
}
