//! The thread that owns the director, and the queue that leads there.
//!
//! ```text
//! reports, questions ── refused if it is full ──┐
//! facts ── wait for room ───────────────────────┴─> queue ──> thread: Desk { director, reports }
//!                                                                │ when it is another
//! requests <────────────── Arc<Snapshot>, swapped ───────────────┘
//! ```
//!
//! What is to be worked off is decoded and checked before it comes here, and what comes of it is
//! signed, stored and sent elsewhere: a step is a decision, or the copy of something short. Readers
//! wait for nothing. The time in which nobody was listened to is measured, and nobody is called
//! silent for it: see [`Attention`]. A director that makes no step for long hangs: see [`Pulse`].

mod attention;
mod thread;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use director::{
    ApplianceStatus, Change, Director, Event, NotRegistered, Reply, Report as Said, Snapshot,
};
use model::id::ApplianceId;
use model::machine::Machine;
use model::units::{Instant, Nanos};
use tokio::runtime::{Builder, Handle};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use wire::v1::report::Report;

use crate::clock::Clock;
use crate::metrics::{Counter, WorkCounts};
use attention::{Attention, Longest, Pulse};
use thread::Thread;

/// So much waits for the director at a time: at 20 us for a report, 20 ms of its work.
const QUEUE_MAX: usize = 1024;

/// Of these, so many are questions for sources: in a night in which all appliances ask for them,
/// those beyond come again, and reports find room.
const SOURCES_MAX: usize = 64;

/// Times that do not come, for a process that does not say that it reads, yet or any more.
const NEVER: u64 = u64::MAX;
const ENDED: u64 = u64::MAX - 1;

/// A director that makes no step for so long hangs. Arbitrary: far above its longest step, which
/// should be 20 ms, and below the patience of those who ask.
const HANGS_AFTER: Nanos = Nanos::seconds(5);

/// Appliances that are told of in one step: some hundreds of microseconds.
const SLICE: usize = 256;

/// What the thread owns.
pub(crate) struct Desk {
    pub(crate) director: Director,
    /// The last report of every registered appliance, for people: its inventory taken out.
    pub(crate) reports: BTreeMap<ApplianceId, Arc<Report>>,
    shared: Arc<Shared>,
}

/// What the thread shares with everybody.
struct Shared {
    snapshot: ArcSwap<Snapshot>,
    clock: Clock,
    /// Appliances whose reports came since the last tick and had no room. At most those that have a
    /// good identity.
    turned_away: Mutex<BTreeSet<ApplianceId>>,
    /// When the process last read what comes, as far as it says so; else NEVER, or ENDED.
    reads_at: AtomicU64,
    counts: WorkCounts<Counter>,
}

type Step = Box<dyn FnOnce(&mut Desk, Instant) + Send>;

/// The way to the director.
pub(crate) struct Directing {
    queue: mpsc::Sender<Step>,
    shared: Arc<Shared>,
    pulse: Mutex<Pulse>,
    hangs: watch::Sender<bool>,
    sources: Arc<Semaphore>,
}

/// Why the director answers nothing more than what it has been asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Busy {
    #[error("the control plane has more to do than it takes: come again in a second")]
    Full,
    #[error(
        "the director of this control process hangs: it has done nothing for {} s or more. \
         Players are answered from its last picture; restart the process if it stays so",
        HANGS_AFTER.as_seconds()
    )]
    Hangs,
}

/// A report that is decoded and in order.
pub(crate) struct Reported {
    pub(crate) appliance: ApplianceId,
    pub(crate) said: Said,
    pub(crate) shown: Arc<Report>,
}

/// One appliance, for people.
pub(crate) struct Told {
    pub(crate) id: ApplianceId,
    pub(crate) status: ApplianceStatus,
    pub(crate) report: Option<Arc<Report>>,
}

impl Directing {
    /// Has a director decide on a thread of its own, until nobody can ask it any more.
    pub(crate) fn begin(director: Director, clock: Clock) -> std::io::Result<Self> {
        let (queue, steps) = mpsc::channel(QUEUE_MAX);
        let shared = Arc::new(Shared {
            snapshot: ArcSwap::new(director.snapshot()),
            clock,
            turned_away: Mutex::default(),
            reads_at: AtomicU64::new(NEVER),
            counts: WorkCounts::default(),
        });
        let desk = Desk { director, reports: BTreeMap::new(), shared: shared.clone() };
        let runtime = Builder::new_current_thread().enable_time().build()?;
        let attention = Attention::new(clock.now());
        let longest = Longest::default();
        let thread = Thread { desk, steps, runtime, attention, passed: Nanos(0), longest };
        std::thread::Builder::new().name("director".to_owned()).spawn(move || thread.run())?;
        let (hangs, sources) = (watch::Sender::new(false), Arc::new(Semaphore::new(SOURCES_MAX)));
        Ok(Self { queue, shared, pulse: Mutex::default(), hangs, sources })
    }

    /// What players are answered from.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.shared.snapshot.load_full()
    }

    /// A question, which is refused if too much waits or the director hangs. Its answer is a copy
    /// of something short.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Desk, Instant) -> T + Send + 'static,
    ) -> Result<T, Busy> {
        let place = self.place()?;
        let (answer, answered) = oneshot::channel();
        place.send(Box::new(move |desk, now| {
            // Whoever asked may have left.
            if !answer.is_closed() {
                let _ = answer.send(question(desk, now));
            }
        }));
        self.unless_it_hangs(answered).await
    }

    /// A question for sources, which is refused if [`SOURCES_MAX`] of them wait, too.
    pub(crate) async fn ask_for_sources<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Desk, Instant) -> T + Send + 'static,
    ) -> Result<T, Busy> {
        let room = Arc::clone(&self.sources).try_acquire_owned().map_err(|_| Busy::Full);
        let room = room.inspect_err(|_| self.shared.counts.refused.count())?;
        // It is kept until the question is out of the queue, though whoever asked may have left.
        let with_room = move |desk: &Desk, now| {
            let _room = room;
            question(desk, now)
        };
        self.ask(with_room).await
    }

    /// Work that is not refused: it waits for room. For facts, and for whoever has begun a change.
    pub(crate) async fn ask_in_turn<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Desk, Instant) -> T + Send + 'static,
    ) -> T {
        let (answer, answered) = oneshot::channel();
        let step: Step = Box::new(move |desk, now| drop(answer.send(work(desk, now))));
        let sent = self.queue.send(step).await;
        assert!(sent.is_ok(), "the director's thread ends with the process");
        answered.await.expect("the director's thread ends with the process")
    }

    /// A fact: it is in force, and seen by readers, when this returns.
    pub(crate) async fn tell(&self, event: Event<'static>) {
        self.ask_in_turn(move |desk, now| desk.handle(now, event)).await;
    }

    /// A report, and its answer. One that is refused is a sign of life all the same, and so is one
    /// whose sender has left before its turn: it comes again. `room` is kept until it is freed.
    pub(crate) async fn report(
        &self,
        reported: Box<Reported>,
        room: impl Send + 'static,
    ) -> Result<Result<Reply, NotRegistered>, Busy> {
        let place = self.place().inspect_err(|_| self.turned_away(&reported.appliance))?;
        let (answer, answered) = oneshot::channel();
        let elsewhere = Handle::current();
        place.send(Box::new(move |desk, now| {
            if answer.is_closed() {
                desk.handle(now, Event::TurnedAway(reported.appliance.clone()));
                drop(elsewhere.spawn_blocking(move || drop((reported, room))));
                return;
            }
            let reply = desk.report(now, &reported);
            // It is freed by whoever sent it, and so is the one before: it may be 64 MiB long.
            if let Err(unheard) = answer.send((reply, reported, room)) {
                drop(elsewhere.spawn_blocking(move || drop(unheard)));
            }
        }));
        let ((reply, _before), _spent, _room) = self.unless_it_hangs(answered).await?;
        Ok(reply)
    }

    /// A part of what an appliance hears from its routers: the number of the next one. `room` is
    /// kept until it has been taken, though its sender leaves.
    pub(crate) async fn routes_part(
        &self,
        appliance: ApplianceId,
        part: routes::Part,
        room: impl Send + 'static,
    ) -> Result<u32, Busy> {
        let place = self.place()?;
        let (answer, answered) = oneshot::channel();
        place.send(Box::new(move |desk, now| {
            desk.handle(now, Event::Heard { appliance: &appliance, part });
            let _ = answer.send((desk.director.next_part(&appliance), room));
        }));
        Ok(self.unless_it_hangs(answered).await?.0)
    }

    /// Every registered appliance, in the order of names: asked for slice by slice, so that reports
    /// have their turn between.
    pub(crate) async fn fleet(&self) -> Result<Vec<Told>, Busy> {
        let mut all: Vec<Told> = Vec::new();
        loop {
            let after = all.last().map(|told| told.id.clone());
            let slice = self.ask(move |desk, now| desk.slice(now, after.as_ref())).await?;
            let is_last = slice.len() < SLICE;
            all.extend(slice);
            if is_last {
                return Ok(all);
            }
        }
    }

    /// Those of these that are registered, asked for in the same way. O(of them).
    pub(crate) async fn those(&self, ids: Vec<ApplianceId>) -> Result<Vec<Told>, Busy> {
        let mut all = Vec::with_capacity(ids.len());
        for ids in ids.chunks(SLICE) {
            let ids = ids.to_vec();
            all.extend(self.ask(move |desk, now| desk.those(now, ids)).await?);
        }
        Ok(all)
    }

    /// What the director says of each that it knows: of so many in one step, which should take a
    /// hundred microseconds.
    pub(crate) async fn each<K: Clone + Send + 'static, T: Send + 'static>(
        &self,
        keys: Vec<K>,
        at_once: usize,
        look: impl Fn(&Desk, &K) -> Option<T> + Copy + Send + 'static,
    ) -> Result<Vec<(K, T)>, Busy> {
        let mut all = Vec::with_capacity(keys.len());
        for keys in keys.chunks(at_once) {
            let keys = keys.to_vec();
            let found = move |desk: &Desk, _| {
                let found = keys.into_iter().map(|key| (look(desk, &key), key));
                found.filter_map(|(found, key)| Some((key, found?))).collect::<Vec<_>>()
            };
            all.extend(self.ask(found).await?);
        }
        Ok(all)
    }

    /// One registered appliance.
    pub(crate) async fn appliance(&self, id: ApplianceId) -> Result<Option<Told>, Busy> {
        Ok(self.those(vec![id]).await?.pop())
    }

    /// This appliance sent something that could not be taken: it is alive.
    pub(crate) fn turned_away(&self, appliance: &ApplianceId) {
        self.shared.turned_away().insert(appliance.clone());
    }

    /// Whether a sign of life waits for the next tick, which will not see it any more.
    #[cfg(test)]
    pub(crate) fn takes_sign_of_life(&self, appliance: &ApplianceId) -> bool {
        self.shared.turned_away().remove(appliance)
    }

    /// When it last said that it reads; none before the first time.
    #[cfg(test)]
    pub(crate) fn reads_at(&self) -> Option<Instant> {
        let at = self.shared.reads_at.load(Ordering::Relaxed);
        (at != NEVER).then_some(Instant(at))
    }

    /// The process reads what comes. Once it has said so it goes on saying so; while it does not,
    /// nobody is listened to.
    pub(crate) fn reads(&self) {
        let now = self.shared.clock.now().0;
        let said = |at| (at != ENDED).then_some(now);
        let _ = self.shared.reads_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, said);
    }

    /// It reads nothing any more, whoever says so after this.
    pub(crate) fn ends(&self) {
        self.shared.reads_at.store(ENDED, Ordering::Relaxed);
    }

    /// Looks whether the director has made a step since the last look. Ten times a second.
    pub(crate) fn look(&self) {
        let mut pulse = self.pulse.lock().unwrap_or_else(PoisonError::into_inner);
        let silent = pulse.look(self.shared.counts.steps.value());
        self.shared.counts.silent.set(silent.0);
        let hangs = HANGS_AFTER <= silent;
        let is_new = self.hangs.send_if_modified(|known| std::mem::replace(known, hangs) != hangs);
        match (is_new, hangs) {
            (true, true) => tracing::error!("{}", Busy::Hangs),
            (true, false) => tracing::warn!("the director goes on"),
            (false, _) => {}
        }
    }

    /// Why more is refused now, if it is.
    pub(crate) fn busy(&self) -> Option<Busy> {
        if *self.hangs.borrow() {
            return Some(Busy::Hangs);
        }
        (self.queue.capacity() == 0).then_some(Busy::Full)
    }

    /// So much waits.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.max_capacity() - self.queue.capacity()
    }

    pub(crate) fn counts(&self) -> &WorkCounts<Counter> {
        &self.shared.counts
    }

    fn place(&self) -> Result<mpsc::Permit<'_, Step>, Busy> {
        let place = match *self.hangs.borrow() {
            true => Err(Busy::Hangs),
            false => self.queue.try_reserve().map_err(|_| Busy::Full),
        };
        place.inspect_err(|_| self.shared.counts.refused.count())
    }

    /// The answer to what is in the queue. Whoever waits when the director begins to hang waits no
    /// more.
    async fn unless_it_hangs<T>(&self, answered: oneshot::Receiver<T>) -> Result<T, Busy> {
        let mut hangs = self.hangs.subscribe();
        tokio::select! {
            biased;
            answer = answered => Ok(answer.expect("the director's thread ends with the process")),
            _ = hangs.wait_for(|hangs| *hangs) => Err(Busy::Hangs),
        }
    }
}

impl Shared {
    fn turned_away(&self) -> std::sync::MutexGuard<'_, BTreeSet<ApplianceId>> {
        self.turned_away.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Desk {
    /// Lets the director take an event, and readers see what comes of it.
    pub(crate) fn handle(&mut self, now: Instant, event: Event<'_>) {
        let mut gone = None;
        if let Event::Changed(Change::ApplianceGone(id)) = &event {
            gone = Some(id.clone());
        }
        let is_all_new = matches!(event, Event::Replaced { .. });
        self.director.handle(now, event);
        if let Some(id) = gone {
            self.reports.remove(&id);
        }
        if is_all_new {
            let known = &self.director.desired().appliances;
            self.reports.retain(|id, _| known.contains_key(id));
        }
        let newest = self.director.snapshot();
        if !Arc::ptr_eq(&newest, &self.shared.snapshot.load()) {
            self.shared.snapshot.store(newest);
        }
    }

    fn report(
        &mut self,
        now: Instant,
        reported: &Reported,
    ) -> (Result<Reply, NotRegistered>, Option<Arc<Report>>) {
        let Reported { appliance, said, shown } = reported;
        self.handle(now, Event::Reported { appliance, report: said });
        let reply = self.director.reply(appliance);
        let before = match (&reply, self.reports.get_mut(appliance)) {
            (Err(_), _) => None,
            (Ok(_), Some(kept)) => Some(std::mem::replace(kept, shown.clone())),
            (Ok(_), None) => self.reports.insert(appliance.clone(), shown.clone()),
        };
        (reply, before)
    }

    /// Time passes: reports age.
    pub(crate) fn tick(&mut self, now: Instant) {
        let turned_away = std::mem::take(&mut *self.shared.turned_away());
        for id in turned_away {
            self.director.handle(now, Event::TurnedAway(id));
        }
        self.handle(now, Event::Tick(self.shared.clock.unix()));
    }

    fn slice(&self, now: Instant, after: Option<&ApplianceId>) -> Vec<Told> {
        let slice = self.director.appliances_after(now, after, SLICE).into_iter();
        let told = |(id, status)| Told { report: self.reports.get(&id).cloned(), id, status };
        slice.map(told).collect()
    }

    fn those(&self, now: Instant, ids: Vec<ApplianceId>) -> Vec<Told> {
        let told = |id| {
            let status = self.director.appliance(now, &id)?;
            Some(Told { report: self.reports.get(&id).cloned(), id, status })
        };
        ids.into_iter().filter_map(told).collect()
    }

    fn deadline(&self) -> Instant {
        self.director.deadline().expect("a director looks at the clock for ever")
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::state::writer::Control;
    use crate::state::writer::tests::open;
    use axum::http::StatusCode;
    use model::topology::{Appliance, Site, Weight};
    use model::view::Health;
    use std::future::{Future as _, poll_fn};
    use std::task::Poll;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::task::JoinHandle;
    use tokio::time::timeout;

    #[tokio::test]
    async fn a_sign_of_life_comes_to_the_director_with_the_next_tick() {
        let (_directory, control) = open("").await;
        let a1 = registered(&control).await;
        control.directing.report(report(&a1, 1), ()).await.unwrap().unwrap();
        control.directing.turned_away(&a1);
        let look = move |desk: &mut Desk, now| {
            let later = now + Nanos::seconds(60);
            desk.tick(later);
            let status = desk.director.appliances(later).remove(&a1).unwrap();
            (status.health, status.last_report)
        };
        let found = control.directing.ask_in_turn(look).await;
        assert_eq!(found, (Health::Healthy, Some(Nanos(0))));
    }

    #[tokio::test]
    async fn what_has_no_room_is_refused_and_readers_and_facts_wait_for_nobody() {
        let (_directory, control) = open("").await;
        let a1 = registered(&control).await;
        let (address, listeners) = crate::serve::tests::listeners().await;
        let serving = crate::serve::serve(control.clone(), listeners, std::future::pending());
        let serving = tokio::spawn(serving);
        let (go_on, gate) = std::sync::mpsc::channel::<()>();
        let asked = full(&control, gate).await;

        assert_eq!(control.directing.ask(|_, _| ()).await, Err(Busy::Full));
        assert_eq!(control.directing.report(report(&a1, 1), ()).await.err(), Some(Busy::Full));
        assert!(control.directing.shared.turned_away().contains(&a1), "it is alive");
        let put = "PUT /v1/sites/s2 HTTP/1.1\r\nContent-Type: application/json\r\n\
                   Content-Length: 15\r\n";
        let answer = say(address, put, BODY).await;
        let busy = StatusCode::SERVICE_UNAVAILABLE.as_u16();
        assert!(answer.starts_with(&format!("HTTP/1.1 {busy} ")), "{answer}");
        assert!(answer.contains("retry-after: "), "{answer}");
        let listed = say(address, "GET /v1/appliances HTTP/1.1\r\n", "").await;
        assert!(listed.starts_with(&format!("HTTP/1.1 {busy} ")), "{listed}");
        let seen = say(address, "GET /v1/sites HTTP/1.1\r\n", "").await;
        assert!(seen.contains("\"s1\"") && !seen.contains("\"s2\""), "{seen}");
        let metrics = say(address, "GET /metrics HTTP/1.1\r\n", "").await;
        assert!(metrics.contains(&format!("nearcast_control_director_waiting {QUEUE_MAX}")));
        let count = "nearcast_control_director_refused_total ";
        assert!(metrics.contains(count) && !metrics.contains(&format!("{count}0")), "{metrics}");
        // A fact waits for room, and comes.
        let site = Site::new("s3".parse().unwrap(), vec![]);
        let mut fact = Box::pin(control.handle(Event::Changed(Change::Site(site))));
        let waits = poll_fn(|cx| Poll::Ready(fact.as_mut().poll(cx).is_pending()));
        assert!(waits.await && control.directing.busy() == Some(Busy::Full), "it waits for room");

        go_on.send(()).unwrap();
        fact.await;
        for asked in asked {
            assert_eq!(asked.await.unwrap(), Ok(()), "whoever had room is answered");
        }
        let names: Vec<String> = control.snapshot().sites.keys().map(ToString::to_string).collect();
        assert_eq!(names, ["s1", "s3"]);
        let stored = control.store.desired().await.unwrap().sites;
        let stored: Vec<String> = stored.keys().map(ToString::to_string).collect();
        assert_eq!(stored, ["s1"], "nothing was written that was refused");
        control.directing.report(report(&a1, 2), ()).await.unwrap().unwrap();
        serving.abort();
    }

    #[tokio::test]
    async fn questions_for_sources_leave_room_for_reports() {
        let (_directory, control) = open("").await;
        let a1 = registered(&control).await;
        let (go_on, gate) = std::sync::mpsc::channel::<()>();
        stopped(&control, gate).await;
        let ask = || {
            let asking = control.clone();
            tokio::spawn(async move { asking.directing.ask_for_sources(|_, _| ()).await })
        };
        let asked: Vec<_> = (0..SOURCES_MAX).map(|_| ask()).collect();
        while control.directing.waiting() < SOURCES_MAX {
            tokio::task::yield_now().await;
        }
        assert_eq!(ask().await.unwrap(), Err(Busy::Full));
        let reporting = control.clone();
        let reported = async move { reporting.directing.report(report(&a1, 1), ()).await };
        let reported = tokio::spawn(reported);
        go_on.send(()).unwrap();
        reported.await.unwrap().unwrap().unwrap();
        for asked in asked {
            assert_eq!(asked.await.unwrap(), Ok(()));
        }
        assert_eq!(ask().await.unwrap(), Ok(()), "they have made room");
    }

    #[tokio::test]
    async fn a_director_that_hangs_is_said_and_nobody_waits_for_it() {
        let (_directory, control) = open("").await;
        let a1 = registered(&control).await;
        control.directing.report(report(&a1, 1), ()).await.unwrap().unwrap();
        control.directing.ask_in_turn(Desk::tick).await;
        let (address, listeners) = crate::serve::tests::listeners().await;
        let serving = crate::serve::serve(control.clone(), listeners, std::future::pending());
        let serving = tokio::spawn(serving);
        let get = async |path| say(address, &format!("GET {path} HTTP/1.1\r\n"), "").await;
        let metrics = get("/metrics").await;
        assert!(metrics.contains("\nnearcast_control_director_answers 1\n"), "{metrics}");
        let (go_on, gate) = std::sync::mpsc::channel::<()>();
        stopped(&control, gate).await;

        let metrics = timeout(Duration::from_secs(5), get("/metrics")).await;
        let metrics = metrics.expect("a scrape does not wait for the director");
        assert!(metrics.contains("\nnearcast_control_director_answers 0\n"), "{metrics}");
        assert!(!metrics.contains("drains_scheduled"), "it alone knows: {metrics}");
        let asking = control.clone();
        let asked = tokio::spawn(async move { asking.directing.ask(|_, _| ()).await });
        while control.directing.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        assert!(get("/healthz").await.starts_with("HTTP/1.1 200 "), "it may be a long step");
        let looks = async {
            while control.directing.counts().silent.value() == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(Duration::from_secs(10), looks).await.expect("the process looks at it");
        (0..=50).for_each(|_| control.directing.look());
        let asked = timeout(Duration::from_secs(5), asked).await.expect("it waits no more");
        assert_eq!(asked.unwrap(), Err(Busy::Hangs));
        assert_eq!(control.directing.report(report(&a1, 2), ()).await.err(), Some(Busy::Hangs));
        assert!(control.directing.shared.turned_away().contains(&a1), "it is alive");
        let put = "PUT /v1/sites/s2 HTTP/1.1\r\nContent-Type: application/json\r\n\
                   Content-Length: 15\r\n";
        for answer in [get("/healthz").await, get("/v1/fleet").await, say(address, put, BODY).await]
        {
            assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
            assert!(answer.contains("director-hangs"), "{answer}");
        }
        assert!(get("/v1/sites").await.contains("\"s1\""), "the last picture");
        let metrics = get("/metrics").await;
        let silent = "\nnearcast_control_director_silent_seconds ";
        let (_, silent) = metrics.split_once(silent).expect("it is told");
        let silent: f64 = silent.lines().next().unwrap().parse().unwrap();
        assert!((5.0..60.0).contains(&silent), "{silent}");

        go_on.send(()).unwrap();
        control.directing.ask_in_turn(|_, _| ()).await;
        control.directing.look();
        assert_eq!(control.directing.ask(|_, _| ()).await, Ok(()));
        assert!(get("/healthz").await.starts_with("HTTP/1.1 200 "));
        let stored = control.store.desired().await.unwrap().sites;
        assert_eq!(stored.len(), 1, "nothing was written that was refused");
        serving.abort();
    }

    #[tokio::test]
    async fn a_report_keeps_its_room_until_it_is_taken_though_its_sender_leaves() {
        let (_directory, control) = open("").await;
        let a1 = registered(&control).await;
        let rooms = &control.report_room;
        let all = rooms.available_permits();
        let (go_on, gate) = std::sync::mpsc::channel::<()>();
        stopped(&control, gate).await;
        let room = rooms.clone().try_acquire_many_owned(7).unwrap();
        let (sender, reported) = (control.clone(), report(&a1, 1));
        let sending = tokio::spawn(async move { sender.directing.report(reported, room).await });
        while control.directing.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        sending.abort();
        assert!(sending.await.unwrap_err().is_cancelled());
        assert_eq!(rooms.available_permits(), all - 7, "it waits in memory");
        go_on.send(()).unwrap();
        let freed = rooms.acquire_many(u32::try_from(all).unwrap());
        let freed = timeout(Duration::from_secs(10), freed).await;
        drop(freed.expect("it is freed").unwrap());
    }

    #[tokio::test]
    async fn a_report_whose_sender_has_left_is_a_sign_of_life_and_is_freed_elsewhere() {
        /// Says on which thread it was freed.
        struct Room(std::sync::mpsc::Sender<Option<String>>);
        impl Drop for Room {
            fn drop(&mut self) {
                let name = std::thread::current().name().map(ToOwned::to_owned);
                self.0.send(name).unwrap();
            }
        }

        let (_directory, control) = open("").await;
        let a1 = registered(&control).await;
        control.directing.report(report(&a1, 1), ()).await.unwrap().unwrap();
        let (go_on, gate) = std::sync::mpsc::channel::<()>();
        stopped(&control, gate).await;
        let (freed, is_freed) = std::sync::mpsc::channel();
        let (sender, reported) = (control.clone(), report(&a1, 2));
        let sending =
            tokio::spawn(async move { sender.directing.report(reported, Room(freed)).await });
        while control.directing.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        sending.abort();
        assert!(sending.await.unwrap_err().is_cancelled());
        control.clock.pass(60);
        go_on.send(()).unwrap();
        let look = move |desk: &mut Desk, now| {
            let status = desk.director.appliances(now).remove(&a1).unwrap();
            (desk.director.counters().reports, status.last_report.unwrap() < Nanos::seconds(30))
        };
        let found = control.directing.ask_in_turn(look).await;
        assert_eq!(found, (1, true), "reports, and whether it lives");
        let wait = move || is_freed.recv_timeout(Duration::from_secs(10));
        let thread = tokio::task::spawn_blocking(wait).await.unwrap().expect("it is freed");
        assert_ne!(thread.as_deref(), Some("director"));
    }

    /// Stops the thread, and fills its queue.
    async fn full(
        control: &Arc<Control>,
        gate: std::sync::mpsc::Receiver<()>,
    ) -> Vec<JoinHandle<Result<(), Busy>>> {
        stopped(control, gate).await;
        let mut asked = Vec::new();
        while control.directing.busy().is_none() {
            let asking = control.clone();
            asked.push(tokio::spawn(async move { asking.directing.ask(|_, _| ()).await }));
            tokio::task::yield_now().await;
        }
        asked
    }

    /// Stops the thread until something comes through the gate.
    async fn stopped(control: &Arc<Control>, gate: std::sync::mpsc::Receiver<()>) {
        let (stopped, is_stopped) = oneshot::channel();
        let stopping = control.clone();
        tokio::spawn(async move {
            let stop = move |_: &mut Desk, _| {
                stopped.send(()).unwrap();
                gate.recv().unwrap();
            };
            stopping.directing.ask_in_turn(stop).await;
        });
        is_stopped.await.unwrap();
    }

    const BODY: &str = "{\"prefixes\":[]}";

    pub(crate) async fn registered(control: &Arc<Control>) -> ApplianceId {
        let (id, site) = ("a1".parse().unwrap(), "s1".parse().unwrap());
        control.set_site(Site::new("s1".parse().unwrap(), vec![])).await.unwrap();
        let appliance = Appliance::new(id, site, Weight::ONE);
        control.set_appliance(appliance.clone()).await.unwrap();
        appliance.id
    }

    pub(crate) fn report(appliance: &ApplianceId, sequence: u64) -> Box<Reported> {
        let base_url = "https://a1.example".to_owned();
        let said = Said { sequence, base_url, serving: true, drives_in_use: 1, ..Said::default() };
        Box::new(Reported { appliance: appliance.clone(), said, shown: Arc::default() })
    }

    async fn say(address: std::net::SocketAddr, head: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let text = format!("{head}Host: {address}\r\nConnection: close\r\n\r\n{body}");
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }
}
