//! What players say of themselves (CTA-5004 and CTA-5004-A): `playback::cmcd` reads it.

use std::fmt;

use crate::units::{BitsPerSecond, Nanos};

/// Longest name that a player may give a playback (CTA-5004 section 2.1, `sid`).
const SID_LEN_MAX: usize = 64;

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
    /// `sid`: its own name of the playback.
    pub sid: Option<Sid>,
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

/// A player's own name of a playback.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Sid {
    /// Invariant: len <= SID_LEN_MAX.
    len: u8,
    bytes: [u8; SID_LEN_MAX],
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

impl Sid {
    /// The text, if it is one that may be.
    pub fn new(text: &[u8]) -> Option<Self> {
        let mut bytes = [0; SID_LEN_MAX];
        bytes.get_mut(..text.len())?.copy_from_slice(text);
        let len = u8::try_from(text.len()).expect("no longer than the most");
        (0 < len).then_some(Self { len, bytes })
    }

    /// The text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// It is a viewer's: no log has it.
impl fmt::Debug for Sid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sid({} bytes)", self.len)
    }
}
