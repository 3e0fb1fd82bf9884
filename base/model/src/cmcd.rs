//! What players say of themselves (CTA-5004 and CTA-5004-A): `playback::cmcd` reads it.

use crate::units::{BitsPerSecond, Bytes, Instant, Nanos};

/// The keys that are heeded of all that a player may say with a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// It said something.
    pub told: bool,
    /// `br`: the encoded bitrate of what it asks for.
    pub bitrate: Option<BitsPerSecond>,
    /// `tb`: the highest bitrate that it could ask for.
    pub top: Option<BitsPerSecond>,
    /// `rtp`: the throughput that it asks for.
    pub requested: Option<BitsPerSecond>,
    /// `bl`: how much it has to play.
    pub buffer: Option<Nanos>,
    /// `su`: it starts, has sought, or recovers from a stall.
    pub startup: bool,
    /// `bs`: its buffer ran dry since the last request.
    pub starved: bool,
    /// `ot`: the kind of object that it asks for.
    pub object: Option<Object>,
    /// `d`: the duration of that.
    pub duration: Option<Nanos>,
    /// `mtp`: the throughput that it measured.
    pub measured: Option<BitsPerSecond>,
    /// `pr`: how fast it plays, in thousandths; 0 while it does not.
    pub speed: Option<u32>,
    /// `sf`: how the film is cut and described.
    pub format: Option<Format>,
}

/// The kind of an object, as far as players' buffers tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object {
    /// Video, or video and audio in one.
    Video,
    Audio,
    /// A manifest, an init segment, subtitles, a key.
    Other,
}

/// How a film is cut and described.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Hls,
    Dash,
    /// Smooth Streaming, or another.
    Other,
}

/// A response to a player, over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// When it was asked for.
    pub begun: Instant,
    /// When its last byte went, or it was broken off.
    pub ended: Instant,
    /// So much of its body went.
    pub sent: Bytes,
    /// All of it did.
    pub whole: bool,
    /// By the content type, where the player does not say it.
    pub object: Object,
    /// By the player's words as it asked.
    pub hints: Hints,
}

impl Response {
    /// The kind of its object.
    pub fn object(&self) -> Object {
        self.hints.object.unwrap_or(self.object)
    }
}

/// One line of an event report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The keys that it shares with requests.
    pub hints: Hints,
    /// `sta`: what the player does.
    pub state: Option<State>,
    /// `ts`: when, by the player's own clock, since 1970.
    pub at: Option<Nanos>,
    /// `sn`: grows by one per line of a player's.
    pub number: Option<u64>,
    /// `msd`: from the wish to play to the first frame.
    pub start_delay: Option<Nanos>,
    /// `e` is `e`, or it says what broke (`ec`).
    pub failed: bool,
}

/// What a player does (`sta`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It wants to play, and has not begun.
    Starting,
    Playing,
    /// It plays no more, for want of media.
    Rebuffering,
    /// The viewer wanted another place.
    Seeking,
    Paused,
    /// It is over: seen to the end, left or broken.
    Over,
    /// It loads, and nobody has asked it to play.
    Other,
}
