//! One connection's place: how far it is, until when that may last, and when it may be given away.
//!
//! ```text
//! accepted ──> handshake, head ──────> asked ──> answered ──> idle ──> head ──> ...
//!              each with a deadline    │ body    │ and taken   long for who showed a token or a
//!              that no byte moves      │         │             certificate, else short
//!              may be given away   <───┴── soon, or never for who showed one
//! ```

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crowd::{Arrival, Crowd, PlaceId, Standing};
use identity::member::Seen;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::metrics::DoorCounters;

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// A PROXY header and a TLS handshake: some round trips.
    pub(super) handshake: Duration,
    /// A request head, from its first byte to its last; and until the first request.
    pub(super) head: Duration,
    /// A request with its body, and the time until something of the answer is taken.
    pub(super) request: Duration,
    /// Between requests of who showed a certificate or a token, or comes from a proxy of ours.
    /// Above the intervals of reports, so that theirs stay open.
    pub(super) idle: Duration,
    /// The same for everybody else: players ask again after it at the earliest.
    pub(super) idle_stranger: Duration,
    /// A stranger's request keeps its place for so long.
    pub(super) grace: Duration,
    /// A connection without a certificate where members are expected.
    pub(super) stranger: Option<Duration>,
}

pub(super) const TIMES: Times = Times {
    handshake: Duration::from_secs(5),
    head: Duration::from_secs(10),
    request: Duration::from_secs(90),
    idle: Duration::from_secs(75),
    idle_stranger: Duration::from_secs(5),
    grace: Duration::from_secs(2),
    stranger: None,
};

/// All places of a listener.
pub(super) struct House {
    crowd: Mutex<Crowd<Whom, Instant, Arc<Go>>>,
    /// Somebody left.
    left: Notify,
    times: Times,
    pub(super) counters: Arc<DoorCounters>,
}

/// What tells a connection to give its place to somebody else.
#[derive(Default)]
struct Go {
    is_told: AtomicBool,
    notify: Notify,
}

/// Whom a place counts against.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Whom {
    Network(IpAddr),
    /// By its key, so that one that was stolen has nothing of what the next key has.
    Member(String),
}

/// A connection's place. It is free when the [`Holding`] of it is dropped.
pub(crate) struct Place {
    house: Arc<House>,
    id: PlaceId,
    go: Arc<Go>,
    line: Mutex<Line>,
}

/// Frees the place.
pub(super) struct Holding(pub(super) Arc<Place>);

struct Line {
    stage: Stage,
    /// When the turn of the connection's task began: taken for now by most that a request does.
    woken: Instant,
    deadline: Instant,
    /// The end of the connection, whatever it does.
    end: Option<Instant>,
    /// A member, or a proxy of ours.
    is_trusted: bool,
    /// Who sent the request that is under way, or was last, may send it.
    is_admitted: bool,
    /// When the grace of a stranger's request last began; none if this request has had none.
    grace_since: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Before the first request, or a part of a head has come.
    Head,
    /// A request is under way.
    Asked,
    /// The answer is written, and not taken yet.
    Answered,
    /// Nothing of the next request has come.
    Idle,
}

impl House {
    pub(super) fn new(
        places_max: usize,
        per_party_max: usize,
        times: Times,
        counters: Arc<DoorCounters>,
    ) -> Arc<Self> {
        let crowd = Mutex::new(Crowd::new(places_max, per_party_max));
        Arc::new(Self { crowd, left: Notify::new(), times, counters })
    }

    /// A place for a newcomer, as soon as there is one; none if its network has its share. One from
    /// a proxy of ours counts against no network.
    pub(super) async fn enter(self: &Arc<Self>, network: Option<IpAddr>) -> Option<Holding> {
        loop {
            let (now, go) = (Instant::now(), Arc::<Go>::default());
            let is_trusted = network.is_none();
            let standing = Standing { is_known: is_trusted, unused_since: now };
            let whom = network.map(Whom::Network);
            let arrival = lock(&self.crowd).arrive(now, whom, standing, go.clone());
            match arrival {
                Arrival::In(id, gone) => {
                    self.tell(gone);
                    let deadline = now + self.times.handshake;
                    let (stage, end, is_admitted) = (Stage::Head, None, is_trusted);
                    let grace_since = None;
                    let woken = now;
                    let line =
                        Line { stage, woken, deadline, end, is_trusted, is_admitted, grace_since };
                    let (house, line) = (self.clone(), Mutex::new(line));
                    return Some(Holding(Arc::new(Place { house, id, go, line })));
                }
                Arrival::Crowded => {
                    self.counters.crowded.count();
                    return None;
                }
                // What strangers ask may be given up soon, which nobody says.
                Arrival::Full => {
                    let _ = tokio::time::timeout(LOOK_AGAIN, self.left.notified()).await;
                }
            }
        }
    }

    fn tell(&self, gone: Option<Arc<Go>>) {
        if let Some(gone) = gone {
            self.counters.let_go.count();
            gone.is_told.store(true, Ordering::Release);
            gone.notify.notify_one();
        }
    }
}

impl Place {
    /// A proxy says who is behind it, whom the place counts against; false if that network has its
    /// share.
    pub(super) fn is_of(&self, network: IpAddr) -> bool {
        if !self.recount(Whom::Network(network)) {
            return false;
        }
        let mut line = lock(&self.line);
        (line.is_trusted, line.is_admitted) = (false, false);
        self.stands(Some(Standing { is_known: false, unused_since: Instant::now() }));
        true
    }

    /// The handshake is over. A member counts against itself, and not against its network; false
    /// if it has its share.
    pub(super) fn opened(&self, member: Option<&Seen>) -> bool {
        let now = Instant::now();
        lock(&self.line).deadline = now + self.house.times.head;
        if let Some(member) = member {
            if !self.recount(Whom::Member(member.key.clone())) {
                return false;
            }
            let mut line = lock(&self.line);
            (line.is_trusted, line.is_admitted) = (true, true);
            self.stands(Some(Standing { is_known: true, unused_since: now }));
        } else if let Some(stranger) = self.house.times.stranger {
            lock(&self.line).end = Some(now + stranger);
        }
        true
    }

    /// The certificate that was shown is good no more. The connection goes on as a stranger's, in
    /// the share of its key: it has an end, and gives its place away before members do.
    pub(super) fn estranged(&self) {
        let mut line = lock(&self.line);
        if std::mem::take(&mut line.is_trusted) {
            line.end = self.house.times.stranger.map(|stranger| line.woken + stranger);
            self.stands(Some(Standing { is_known: false, unused_since: line.woken }));
        }
    }

    fn recount(&self, whom: Whom) -> bool {
        let told = lock(&self.house.crowd).recount(self.id, Instant::now(), whom);
        let Some(gone) = told else {
            self.house.counters.crowded.count();
            return false;
        };
        self.house.tell(gone);
        true
    }

    /// The connection's task runs.
    pub(super) fn woken(&self, now: Instant) {
        lock(&self.line).woken = now;
    }

    /// The connection's task runs, and a request without a body has come.
    pub(super) fn asks(&self, now: Instant) {
        let mut line = lock(&self.line);
        line.woken = now;
        self.begins(&mut line, true);
    }

    /// The connection's task runs; the answer to what it asked is written and not all taken yet,
    /// though some of it may have been in this turn.
    pub(super) fn waits(&self, now: Instant, is_some_taken: bool) {
        let mut line = lock(&self.line);
        line.woken = now;
        // A stranger has one deadline for all of it.
        if line.stage == Stage::Asked || (is_some_taken && line.is_admitted) {
            line.deadline = now + self.house.times.request;
        }
        line.stage = Stage::Answered;
    }

    /// The connection's task runs; the answer to what it asked is written, and all of it taken.
    pub(super) fn was_answered(&self, now: Instant) {
        let mut line = lock(&self.line);
        line.woken = now;
        self.rests(&mut line);
    }

    /// Something came. A head that has begun has to end in time, and is no use of the place.
    pub(super) fn heard(&self) {
        let mut line = lock(&self.line);
        if line.stage == Stage::Idle {
            line.stage = Stage::Head;
            line.deadline = line.woken + self.house.times.head;
        }
    }

    /// A head is whole, and the body too, or not.
    pub(super) fn asked(&self, is_whole: bool) {
        self.begins(&mut lock(&self.line), is_whole);
    }

    fn begins(&self, line: &mut Line, is_whole: bool) {
        let now = line.woken;
        line.stage = Stage::Asked;
        line.deadline = now + self.house.times.request;
        line.is_admitted = line.is_trusted;
        if line.is_trusted {
            self.stands(None);
        } else if is_whole {
            self.has_grace(line, now);
        } else {
            line.grace_since = None;
        }
    }

    /// The body of a request is whole.
    pub(super) fn heard_all(&self) {
        let mut line = lock(&self.line);
        if !line.is_admitted {
            self.has_grace(&mut line, Instant::now());
        }
    }

    /// Who asks may ask this: the request keeps its place to its end.
    pub(crate) fn admitted(&self) {
        lock(&self.line).is_admitted = true;
        self.stands(None);
    }

    /// The answer is written, though perhaps not taken yet.
    pub(super) fn answered(&self) {
        let mut line = lock(&self.line);
        let now = line.woken;
        line.stage = Stage::Answered;
        line.deadline = now + self.house.times.request;
        // Most answers come so soon that a new grace would be the same.
        let soon = self.house.times.grace / 8;
        let is_soon = line.grace_since.is_some_and(|since| now < since + soon);
        if !line.is_admitted && !is_soon {
            self.has_grace(&mut line, now);
        }
    }

    /// Something of an answer was taken. A stranger has one deadline for all of it.
    pub(super) fn took(&self) {
        let mut line = lock(&self.line);
        if line.is_admitted && matches!(line.stage, Stage::Asked | Stage::Answered) {
            line.deadline = Instant::now() + self.house.times.request;
        }
    }

    /// All that was written is taken.
    pub(super) fn took_all(&self) {
        let mut line = lock(&self.line);
        if line.stage == Stage::Answered {
            self.rests(&mut line);
        }
    }

    fn rests(&self, line: &mut Line) {
        let Times { idle, idle_stranger, .. } = self.house.times;
        let (now, is_known) = (line.woken, line.is_admitted);
        line.stage = Stage::Idle;
        line.deadline = now + if is_known { idle } else { idle_stranger };
        self.stands(Some(Standing { is_known, unused_since: now }));
    }

    /// Until when what it does may last.
    pub(super) fn deadline(&self) -> Instant {
        let line = lock(&self.line);
        line.end.map_or(line.deadline, |end| end.min(line.deadline))
    }

    /// The deadline is over. To be silent between requests is no fault.
    pub(super) fn is_late(&self) {
        if lock(&self.line).stage != Stage::Idle {
            self.house.counters.timed_out.count();
        }
    }

    pub(super) fn house(&self) -> &House {
        &self.house
    }

    /// Returns when the place is given to somebody else.
    pub(super) async fn given_away(&self) {
        self.go.notify.notified().await;
    }

    /// True once [`Place::given_away`] has returned, or is about to.
    pub(super) fn is_given_away(&self) -> bool {
        self.go.is_told.load(Ordering::Acquire)
    }

    fn has_grace(&self, line: &mut Line, now: Instant) {
        line.grace_since = Some(now);
        let unused_since = now + self.house.times.grace;
        self.stands(Some(Standing { is_known: false, unused_since }));
    }

    fn stands(&self, standing: Option<Standing<Instant>>) {
        lock(&self.house.crowd).stands(self.id, standing);
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        let Place { house, id, .. } = &*self.0;
        lock(&house.crowd).leave(*id);
        house.left.notify_one();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Arbitrary: a stranger's request is given up after its grace at the latest.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
