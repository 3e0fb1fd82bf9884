//! One playback by what its player says with requests (CMCD).
//!
//! ```text
//! requests   |v1  |v2      |v3            |v4         each says bl, what it has buffered
//! media      0    d1       d1+d2          ..          what came whole before the request
//! position   = media - bl                             where the picture is
//! lost       = time that passed - way of the picture  a stall, if the player says bs
//! ```
//!
//! Where the picture is follows from sums that cannot drift, so that the length of a stall is as
//! exact as `bl`, which players round to 100 ms. A way that no picture can go is a jump of the
//! viewer's. A pause looks like a stall but for `bs`, and is not counted; one that follows a stall
//! before the next request adds at most what a picture needs after a response, and one within a
//! stall what is loaded until anybody would play.
//!
//! A player that comes from another appliance says so by its first words: it has something
//! buffered, or it starves. What it felt there is told there.

use model::cmcd::{Hints, Object, Response};
use model::units::{Instant, Nanos};

use crate::sums::Sums;
use crate::{signed, unsigned};

/// A picture that is so far from where it was moves: `bl` is rounded to 100 ms.
const MOVED: i64 = 60_000_000;
/// A difference between what passed and what was played beyond which somebody jumped.
const JUMP: i64 = 1_000_000_000;
/// From the last byte sent to a picture, at most.
const SHOWN: i64 = 250_000_000;
/// With so much buffered, a picture that stands still waits for its viewer: Media3 plays with 5 s.
const PLAYS_WITH: Nanos = Nanos::seconds(6);
/// Who could play nothing for so long, and had asked for nothing, asked elsewhere.
const ELSEWHERE: Nanos = Nanos::seconds(10);
/// What a player has buffered and measured is heard of once in this: each playback counts as one,
/// however often it asks.
const HEAR_EVERY: Nanos = Nanos::seconds(1);
/// A player loads so many times the time that passes, at most: twice as fast as it is watched, with
/// as much again for what is thrown away at a jump or for a better quality...
const LOADS: u64 = 4;
/// ... and so much ahead.
const LOADS_AHEAD: Nanos = Nanos::seconds(300);
/// Responses of a player that may overlap.
const OVERLAP: usize = 4;

#[derive(Clone, Debug)]
pub(crate) struct Told {
    first: Instant,
    /// It has asked for media, and is counted.
    met: bool,
    /// The kind whose buffer is followed: video, where there is any.
    followed: Object,
    /// Of what came whole, the duration together.
    media: Nanos,
    /// The last that came whole: when, and how long.
    latest: [(Instant, Nanos); OVERLAP],
    /// Of that, what was counted as loaded.
    loaded: Nanos,
    /// When its buffer and measure were heard of last.
    heard: Option<Instant>,
    /// By so much its `bl` is behind: it leaves out what it has not appended yet.
    behind: Nanos,
    begun: bool,
    /// Where the picture was at the last request.
    mark: Option<Mark>,
    /// A stall was told, and lasts.
    stalls: bool,
    /// It came in a stall: it waits for its first response here.
    came_starved: bool,
    /// How long the last response took, and a picture needs after it.
    rest: i64,
    /// When the last response ended.
    ended: Instant,
    /// When a stall was last counted.
    counted: Option<Instant>,
    /// A stall was told with audio.
    audio_starved: bool,
    audio_asked: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Instant,
    position: i64,
    buffer: Nanos,
}

impl Told {
    /// At the playback's first request.
    pub(crate) fn new(first: Instant) -> Self {
        Self {
            first,
            met: false,
            followed: Object::Audio,
            media: Nanos(0),
            loaded: Nanos(0),
            heard: None,
            latest: [(Instant(0), Nanos(0)); OVERLAP],
            behind: Nanos(0),
            begun: false,
            mark: None,
            stalls: false,
            came_starved: false,
            rest: 0,
            ended: first,
            counted: None,
            audio_starved: false,
            audio_asked: first,
        }
    }

    /// A response is over. In the order in which they end. O(1).
    pub(crate) fn take(&mut self, response: &Response, sums: &mut Sums) {
        assert!(response.begun <= response.ended, "a response ends after it was asked for");
        let hints = &response.hints;
        let object = response.object();
        if object == Object::Other {
            return;
        }
        if !self.met {
            self.met = true;
            let came = has_begun(hints);
            sums.moved += u64::from(came);
            sums.playbacks += u64::from(!came);
        }
        if object == Object::Video && self.followed == Object::Audio {
            let Self { first, met, audio_starved, counted, .. } = *self;
            *self =
                Self { followed: Object::Video, met, audio_starved, counted, ..Self::new(first) };
        }
        if object != self.followed {
            // A second word of one stall is none of another.
            self.audio_starved |= hints.starved && self.counted < Some(self.audio_asked);
            self.audio_asked = response.begun;
            return;
        }
        if self.heard.is_none_or(|last| HEAR_EVERY <= response.ended.since(last)) {
            self.heard = Some(response.ended);
            sums.hear(hints, self.begun);
        }
        if let Some(buffer) = hints.buffer {
            self.look(response, buffer, sums);
        }
        self.rest = signed(response.ended.since(response.begun)) + SHOWN;
        self.ended = self.ended.max(response.ended);
        if let (Some(duration), true) = (hints.duration, response.whole) {
            self.media = Nanos(self.media.0.saturating_add(duration.0));
            self.latest.rotate_right(1);
            self.latest[0] = (response.ended, duration);
            let passed = response.ended.since(self.first);
            let most = passed.0.saturating_mul(LOADS).saturating_add(LOADS_AHEAD.0);
            let loaded = duration.min(Nanos(most.saturating_sub(self.loaded.0)));
            self.loaded = Nanos(self.loaded.0 + loaded.0);
            sums.load(loaded, hints);
        }
    }

    /// Finds out when the picture began to move; `is_first` if nothing came whole before.
    fn begin(&mut self, response: &Response, mark: Mark, is_first: bool, sums: &mut Sums) {
        assert!(!self.begun, "a picture begins once");
        let (at, hints) = (response.begun, &response.hints);
        let since_first = signed(at.since(self.first));
        if is_first {
            // It began elsewhere, and came here. Of a stall that lasts, the rest is measured.
            self.begun = has_begun(hints);
            self.mark = self.begun.then_some(mark);
            // Audio may have told of it before.
            let is_new = hints.starved && self.counted.is_none();
            sums.stalls += u64::from(is_new);
            sums.stalls_unmeasured += u64::from(is_new);
            self.stalls = hints.starved && hints.startup;
            self.came_starved = self.stalls;
            self.counted = self.counted.or_else(|| hints.starved.then_some(at));
            return;
        }
        // No picture is further than the time that passed.
        if since_first + MOVED < mark.position {
            self.behind = self.latest[0].1;
        }
        let position = mark.position - signed(self.behind);
        if hints.startup && position < MOVED {
            return;
        }
        let position = position.max(0);
        let played = position.min(since_first);
        sums.start(unsigned(since_first - played));
        sums.watched += unsigned(played).0;
        // A stall so soon is told, and cannot be told apart from the start-up by its length.
        sums.stalls += u64::from(hints.starved);
        sums.stalls_unmeasured += u64::from(hints.starved);
        self.begun = true;
        (self.stalls, self.counted) = (hints.starved && hints.startup, Some(at));
        self.mark = Some(Mark { position, ..mark });
    }

    /// Finds out where the picture was when this was asked for.
    fn look(&mut self, response: &Response, buffer: Nanos, sums: &mut Sums) {
        let (at, hints) = (response.begun, &response.hints);
        if hints.duration.is_none() {
            // Nothing follows from what it has buffered.
            sums.stalls += u64::from(hints.starved);
            sums.stalls_unmeasured += u64::from(hints.starved);
            return;
        }
        let early = self.latest.iter().filter(|(ended, _)| at < *ended).map(|(_, of)| of.0);
        let before = self.media.0.saturating_sub(early.sum());
        let position = signed(Nanos(before)) - signed(buffer);
        if !self.begun {
            return self.begin(response, Mark { at, position, buffer }, before == 0, sums);
        }
        let position = position - signed(self.behind);
        let Some(mark) = self.mark.replace(Mark { at, position, buffer }) else { return };
        let elapsed = signed(at.since(mark.at));
        let speed = i64::from(hints.speed.filter(|speed| *speed != 0).unwrap_or(1000));
        let moved = position.saturating_sub(mark.position);
        let lost = elapsed.saturating_sub(moved.saturating_mul(1000) / speed);
        let starved = std::mem::take(&mut self.audio_starved) | hints.starved;
        if lost < -JUMP || elapsed.saturating_add(JUMP) < lost {
            self.stalls = false;
            return;
        }
        let silent_max = Nanos(mark.buffer.0.saturating_add(ELSEWHERE.0));
        if starved && silent_max < at.since(self.ended.max(mark.at)) {
            sums.stalls += 1;
            sums.stalls_unmeasured += 1;
            (self.stalls, self.counted) = (hints.startup, Some(at));
            return;
        }
        if starved || self.stalls {
            // Told again while the picture stands, it is one.
            let is_new = starved && (!self.stalls || MOVED < moved);
            sums.stalls += u64::from(is_new);
            let waited_here = std::mem::take(&mut self.came_starved);
            let lost = if !is_new && PLAYS_WITH <= mark.buffer {
                0
            } else if starved || hints.startup || waited_here {
                lost
            } else {
                // What it waited for came, and no word of another wait: the rest may be a pause.
                lost.min(self.rest)
            };
            sums.stall_time += unsigned(lost).0;
            self.counted = Some(at);
            self.stalls = hints.startup;
        }
        sums.watched += unsigned(elapsed.min(elapsed - lost)).0;
    }
}

/// By its words it is not at its beginning: it plays, or did.
fn has_begun(hints: &Hints) -> bool {
    let plays = !hints.startup && hints.buffer.is_some_and(|buffer| buffer != Nanos(0));
    plays || hints.starved
}
