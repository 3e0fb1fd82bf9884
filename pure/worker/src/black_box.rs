//! The black box: what happened to a response of late, kept in case it turns out badly.
//!
//! ```text
//! note ──> [ last 64 events ]   and its waits, by party
//!                |
//!          the end ──> slow, or broken off by us? ──> Incident ──> a file, read by people
//!                          no: the memory is used again
//! ```
//!
//! There is one only for a response that is being sent from a drive or from hot blocks, and only
//! for so many at once. It knows when and how much; of viewers it knows nothing.

use std::fmt::Write as _;

use model::extent::DriveIndex;
use model::id::ObjectId;
use model::tcp::TcpSample;
use model::units::{BitsPerSecond, Bytes, Instant, Nanos, UnixSeconds};

/// Events that are kept of a response: those of its last ten or so chunks.
const EVENTS_MAX: usize = 64;
/// Between two incidents of one worker: when all is slow, one in a second says so.
const INCIDENT_EVERY: Nanos = Nanos::seconds(1);
/// A client is not called slow for less: the first round trips are.
const CLIENT_WAIT_MIN: Nanos = Nanos::seconds(2);
/// The first line of an incident's text.
pub const INCIDENT_MAGIC: &str = "nearcast incident 1";

/// From where on a response is an incident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IncidentBounds {
    /// It waited so long for its drive, in all.
    pub drive_wait: Nanos,
    /// The client took it at a lower rate than this, while we waited for nobody else.
    pub client_rate: BitsPerSecond,
}

/// Something that happened to a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    /// The request was read.
    Asked,
    /// A drive was asked for so much.
    Reading { drive: DriveIndex, len: Bytes },
    /// The drive gave so much.
    Read { len: Bytes },
    /// The drive gave an error.
    Failed { errno: i32 },
    /// So much was given to the kernel: from memory if it is `hot`, else from a buffer just read.
    Sent { len: Bytes, hot: bool },
    /// The kernel had taken all of it.
    Taken,
    /// TCP's figures.
    Tcp(TcpSample),
}

/// The part that a response waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// Us: it waits for its turn among the responses.
    Turn,
    /// Its drive, the drive's queue included.
    Drive,
    Client,
    /// Its pace: nobody is slow.
    Pace,
}

/// How long a response waited, by the part that it waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    pub turn: Nanos,
    pub drive: Nanos,
    pub client: Nanos,
    /// Between bursts.
    pub pace: Nanos,
}

/// Why there is a report on a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    SlowDrive,
    SlowClient,
    /// We broke it off: a drive failed, or the client took nothing for too long.
    Reset,
    /// An operator asked for it (SIGUSR1).
    Requested,
}

/// A response that went badly, or that somebody asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incident {
    pub reason: Reason,
    /// When it ended, or was asked about.
    pub wall: UnixSeconds,
    /// From its request on.
    pub lasted: Nanos,
    pub waits: Waits,
    pub object: ObjectId,
    pub sent: Bytes,
    /// Events before those in `text`.
    pub forgotten: u64,
    /// One line an event.
    pub events: Vec<(Nanos, Happened)>,
}

/// The last events of one response.
#[derive(Debug)]
pub(crate) struct Recorder {
    events: Vec<(Instant, Happened)>,
    /// Events so far; the next goes to this place, modulo `EVENTS_MAX`.
    count: usize,
    object: ObjectId,
    begun: Instant,
    waiting: Waiting,
    since: Instant,
    waits: Waits,
    sent: Bytes,
    /// The client broke it off: no fault of ours.
    pub(crate) left: bool,
}

/// The recorders of one worker.
#[derive(Debug)]
pub(crate) struct BlackBox {
    bounds: Option<IncidentBounds>,
    /// Most responses that are recorded at once. One more is not: it can be no incident.
    most: usize,
    /// Responses that are recorded. Invariant: with `spare` at most `most`.
    recording: usize,
    /// Recorders of ended responses, to be used again.
    #[expect(clippy::vec_box, reason = "the boxes go to connections and come back")]
    spare: Vec<Box<Recorder>>,
    quiet_until: Instant,
}

impl Recorder {
    fn new() -> Self {
        Self {
            events: Vec::with_capacity(EVENTS_MAX),
            count: 0,
            object: ObjectId([0; 32]),
            begun: Instant(0),
            waiting: Waiting::Turn,
            since: Instant(0),
            waits: Waits::default(),
            sent: Bytes::ZERO,
            left: false,
        }
    }

    pub(crate) fn note(&mut self, now: Instant, what: Happened) {
        if let Happened::Sent { len, .. } = what {
            self.sent += len;
        }
        if self.events.len() < EVENTS_MAX {
            self.events.push((now, what));
        } else {
            self.events[self.count % EVENTS_MAX] = (now, what);
        }
        self.count += 1;
        assert!(self.events.len() <= EVENTS_MAX, "the oldest are forgotten");
    }

    /// From now on it waits for somebody else.
    pub(crate) fn wait_for(&mut self, now: Instant, whom: Waiting) {
        let waited = now.since(self.since);
        let sum = match self.waiting {
            Waiting::Turn => &mut self.waits.turn,
            Waiting::Drive => &mut self.waits.drive,
            Waiting::Client => &mut self.waits.client,
            Waiting::Pace => &mut self.waits.pace,
        };
        sum.0 += waited.0;
        (self.waiting, self.since) = (whom, now);
    }

    fn incident(&self, now: Instant, wall: UnixSeconds, why: Reason) -> Incident {
        let first = self.count.saturating_sub(EVENTS_MAX);
        let at = |index: usize| {
            let (at, what) = self.events[index % EVENTS_MAX];
            (at.since(self.begun), what)
        };
        Incident {
            reason: why,
            wall,
            lasted: now.since(self.begun),
            waits: self.waits,
            object: self.object,
            sent: self.sent,
            forgotten: Bytes::of(first).0,
            events: (first..self.count).map(at).collect(),
        }
    }

    fn verdict(&self, bounds: IncidentBounds, whole: bool) -> Option<Reason> {
        let client = self.waits.client;
        // Bits for the time, against bits that the bound gives in it.
        let took = u128::from(self.sent.0) * 8 * 1_000_000_000;
        let should = u128::from(bounds.client_rate.0) * u128::from(client.0);
        if !whole && !self.left {
            Some(Reason::Reset)
        } else if bounds.drive_wait <= self.waits.drive {
            Some(Reason::SlowDrive)
        } else if CLIENT_WAIT_MIN <= client && took < should {
            Some(Reason::SlowClient)
        } else {
            None
        }
    }
}

impl BlackBox {
    /// Without bounds, nothing is recorded. Of `transfers_max` responses that run and of as many
    /// that wait for their turn: each takes 4 KiB.
    pub(crate) fn new(bounds: Option<IncidentBounds>, transfers_max: usize) -> Self {
        let (most, recording) = (2 * transfers_max, 0);
        Self { bounds, most, recording, spare: Vec::new(), quiet_until: Instant(0) }
    }

    /// For a response that begins.
    pub(crate) fn begin(&mut self, now: Instant, object: ObjectId) -> Option<Box<Recorder>> {
        self.bounds.filter(|_| self.recording < self.most)?;
        self.recording += 1;
        assert!(self.recording <= self.most, "the others are not recorded");
        let mut recorder = self.spare.pop().unwrap_or_else(|| Box::new(Recorder::new()));
        recorder.events.clear();
        (recorder.count, recorder.sent, recorder.left) = (0, Bytes::ZERO, false);
        recorder.object = object;
        (recorder.begun, recorder.since) = (now, now);
        (recorder.waiting, recorder.waits) = (Waiting::Turn, Waits::default());
        recorder.note(now, Happened::Asked);
        Some(recorder)
    }

    /// A response ended, `whole` or not. The incident, if it is one, and not the second in a
    /// moment: then `None` within `Some`, to be counted.
    pub(crate) fn end(
        &mut self,
        mut recorder: Box<Recorder>,
        (now, wall): (Instant, UnixSeconds),
        whole: bool,
    ) -> Option<Option<Box<Incident>>> {
        let bounds = self.bounds?;
        let waiting = recorder.waiting;
        recorder.wait_for(now, waiting);
        let why = recorder.verdict(bounds, whole);
        let incident = why.map(|why| {
            if now < self.quiet_until {
                return None;
            }
            self.quiet_until = now + INCIDENT_EVERY;
            Some(Box::new(recorder.incident(now, wall, why)))
        });
        assert!(0 < self.recording, "a record ends once");
        self.recording -= 1;
        self.spare.push(recorder);
        incident
    }

    /// The incident of a response that goes on.
    pub(crate) fn ask(
        recorder: &mut Recorder,
        (now, wall): (Instant, UnixSeconds),
    ) -> Box<Incident> {
        let waiting = recorder.waiting;
        recorder.wait_for(now, waiting);
        Box::new(recorder.incident(now, wall, Reason::Requested))
    }
}

impl Waits {
    /// The slow party, in words, and for how long: the one waited for longest, or we, if it was
    /// for nobody.
    pub fn slowest(&self, lasted: Nanos) -> (&'static str, Nanos) {
        let waited = self.turn.0 + self.drive.0 + self.client.0 + self.pace.0;
        let rest = Nanos(lasted.0.saturating_sub(waited));
        let us = Nanos(self.turn.0 + rest.0);
        let all = [("the drive", self.drive), ("the client", self.client), ("us", us)];
        all.into_iter().max_by_key(|(_, span)| *span).expect("there are three")
    }
}

impl Reason {
    /// In words, as in the file.
    pub fn words(self) -> &'static str {
        match self {
            Self::SlowDrive => "slow drive",
            Self::SlowClient => "slow client",
            Self::Reset => "reset by us",
            Self::Requested => "requested",
        }
    }
}

impl Incident {
    /// The file: a summary, then one line an event, times in milliseconds since the request.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let (who, span) = self.waits.slowest(self.lasted);
        let (wall, sent) = (self.wall.0, self.sent.0);
        let _ = write!(
            out,
            "{INCIDENT_MAGIC}\nreason: {}\nslow: {who}, {} of {} ms\nended: {wall} s since 1970\n\
             object: {}\nsent: {sent} bytes\nwaits: turn {} drive {} client {} pace {} ms\n\
             events: {} more came before these\n",
            self.reason.words(),
            ms(span),
            ms(self.lasted),
            self.object,
            ms(self.waits.turn),
            ms(self.waits.drive),
            ms(self.waits.client),
            ms(self.waits.pace),
            self.forgotten,
        );
        for (at, what) in &self.events {
            let _ = writeln!(out, "{:>12} {what}", ms(*at));
        }
        out
    }
}

impl std::fmt::Display for Happened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Asked => write!(f, "asked"),
            Self::Reading { drive, len } => write!(f, "reading drive {drive} bytes {}", len.0),
            Self::Read { len } => write!(f, "read bytes {}", len.0),
            Self::Failed { errno } => write!(f, "failed errno {errno}"),
            Self::Sent { len, hot: true } => write!(f, "sent bytes {} hot", len.0),
            Self::Sent { len, hot: false } => write!(f, "sent bytes {}", len.0),
            Self::Taken => write!(f, "taken"),
            Self::Tcp(tcp) => write!(
                f,
                "tcp rtt {} ms window {} unacked {} again {} unsent {} delivery {} b/s shut {} ms",
                ms(tcp.rtt),
                tcp.window,
                tcp.unacked,
                tcp.retransmitted,
                tcp.unsent.0,
                tcp.delivery.0,
                ms(tcp.shut)
            ),
        }
    }
}

fn ms(span: Nanos) -> String {
    format!("{}.{:03}", span.0 / 1_000_000, span.0 / 1000 % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: IncidentBounds =
        IncidentBounds { drive_wait: Nanos::seconds(1), client_rate: BitsPerSecond(1_000_000) };

    fn at(millis: u64) -> Instant {
        Instant(0) + Nanos::millis(millis)
    }

    /// A response that waits so long for drive and client, with so many bytes.
    fn end(drive: u64, client: u64, len: u64, whole: bool) -> Option<Box<Incident>> {
        let mut black_box = BlackBox::new(Some(BOUNDS), 1);
        let mut recorder = black_box.begin(at(0), ObjectId([1; 32])).unwrap();
        recorder.wait_for(at(0), Waiting::Drive);
        recorder.wait_for(at(drive), Waiting::Client);
        recorder.note(at(drive), Happened::Sent { len: Bytes(len), hot: false });
        let now = (at(drive + client), UnixSeconds(7));
        black_box.end(recorder, now, whole).flatten()
    }

    #[test]
    fn who_was_slow_is_who_was_waited_for() {
        assert_eq!(end(100, 100, 1_000_000, true), None);
        let drive = end(1200, 90, 1_000_000, true).unwrap();
        assert_eq!((drive.reason, drive.waits.drive), (Reason::SlowDrive, Nanos::millis(1200)));
        assert!(drive.text().contains("slow: the drive, 1200.000 of 1290.000 ms"));
        let client = end(100, 10_000, 1_000_000, true).unwrap();
        assert_eq!(client.reason, Reason::SlowClient);
        assert!(client.text().contains("slow: the client, 10000.000 of"));
        assert_eq!(end(100, 10_000, 2_000_000, true), None, "1.6 Mb/s");
        assert_eq!(end(0, 1500, 10, true), None, "too short to be judged");
        assert_eq!(end(1, 1, 1, false).unwrap().reason, Reason::Reset);
    }

    #[test]
    fn only_the_last_events_are_kept_in_their_order() {
        let mut black_box = BlackBox::new(Some(BOUNDS), 1);
        for _ in 0..2 {
            let mut recorder = black_box.begin(at(0), ObjectId([1; 32])).unwrap();
            for n in 1..100 {
                recorder.note(at(n), Happened::Read { len: Bytes(n) });
            }
            let incident = BlackBox::ask(&mut recorder, (at(100), UnixSeconds(0)));
            assert_eq!((incident.events.len(), incident.forgotten), (64, 36));
            assert!(incident.events.is_sorted_by_key(|(at, _)| *at));
            let last = (Nanos::millis(99), Happened::Read { len: Bytes(99) });
            assert_eq!(incident.events.last(), Some(&last));
            assert!(black_box.end(recorder, (at(100), UnixSeconds(0)), true).is_none());
        }
        assert_eq!(black_box.spare.len(), 1, "memory is used again");
    }

    #[test]
    fn a_second_incident_in_a_moment_is_only_counted() {
        let mut black_box = BlackBox::new(Some(BOUNDS), 1);
        let mut cut = |now: Instant| {
            let recorder = black_box.begin(now, ObjectId([1; 32])).unwrap();
            black_box.end(recorder, (now, UnixSeconds(0)), false).unwrap()
        };
        assert!(cut(at(5000)).is_some());
        assert!(cut(at(5900)).is_none());
        assert!(cut(at(6000)).is_some());
    }
}
