//! What routers announce, by BIRD's control socket: read only, a second behind at most.
//!
//! ```text
//! twice a second  show protocols all ──> sessions: the same as before? ──> nothing to do
//! when they change, and now and then  show route all ──> filter ──> table, digest
//! appliance ── routes ──> digest, sessions, what was left out
//!           ── routes_part ──> difference to one of the last tables, or all, in parts
//! ```
//!
//! BIRD is told `restrict` first, so that nothing that comes over this connection changes anything.
//! A table costs BIRD and this process some 10 us per route, so a large one is read less often:
//! reading takes a tenth of the time at most.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use routes::bird::{self, End, RouteReader, SessionReader};
use routes::{Attributes, Builder, Difference, Digest, Hearing, Part};
use wire::v1::agent::{Answer, Request};
use wire::v1::routes::{
    Example, Group, Heard, LeftOut, PART_LEN_MAX, Peering, SESSIONS_MAX, Session,
};

use crate::config::{Routes, Settings};
use crate::server::{self, Answerer};

/// Between two looks at the sessions.
const EVERY: Duration = Duration::from_millis(500);
/// The table is read so often though nothing seems to have changed.
const AGAIN: Duration = Duration::from_secs(600);
/// Between two readings of the table, in times of the first.
const REST: u32 = 9;
/// For BIRD's next line.
const PATIENCE: Duration = Duration::from_secs(10);
/// For a whole reply, and so much more for each route of it: ten times as long as it should take.
const REPLY_MAX: Duration = Duration::from_secs(120);
const REPLY_MICROS_PER_ROUTE: u64 = 100;
/// Without an answer of BIRD for so long nothing is announced any more: a restart takes less.
const SILENT: Duration = Duration::from_secs(30);
/// Tables that differences can begin from, besides the last: each some 40 bytes per prefix.
const TABLES_KEPT: usize = 4;
/// Parts that nobody has asked for so long are forgotten.
const CUT_KEPT: Duration = Duration::from_secs(10);
/// Parts are counted generously, and there is some JSON around them.
const PART_LEN: usize = PART_LEN_MAX - 4096;

/// The state that the socket and the reader share.
#[derive(Debug)]
struct Shared {
    settings: Routes,
    /// `SILENT`, but in tests.
    silent: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// None before the first answer of BIRD.
    table: Option<Arc<Hearing>>,
    /// Those before it, newest first. Invariant: at most `TABLES_KEPT`.
    older: VecDeque<Arc<Hearing>>,
    sessions: Vec<bird::Session>,
    error: Option<String>,
    /// When BIRD answered last, as far as it is known when there is an error.
    answered: Option<Instant>,
    /// The table may be so far behind.
    behind: Duration,
    /// The ways to the table that were asked for of late, each from another one. Invariant: at most
    /// one from each table that is kept, and one from none.
    cuts: Vec<Cut>,
}

/// A difference in parts.
#[derive(Debug)]
struct Cut {
    from: Option<Digest>,
    parts: Arc<Vec<Part>>,
    used: Instant,
}

/// The reader's memory beyond one connection to BIRD.
#[derive(Debug)]
struct Pace {
    /// BIRD has sent a line of an answer then.
    answered: Instant,
    has_answered: bool,
    /// The table is not read before.
    rest: Instant,
}

/// Answers until SIGTERM or SIGINT.
pub(crate) fn run(settings: &Settings) -> anyhow::Result<()> {
    let routes = settings.routes.clone();
    let routes = routes.context("the configuration has no [routes]: docs/operate/routes.md")?;
    let socket = routes.socket.clone();
    let shared = Shared { settings: routes, silent: SILENT, state: Mutex::default() };
    let shared = Arc::new(shared);
    let reading = Arc::clone(&shared);
    std::thread::spawn(move || reading.read_on());
    server::answer_at(&socket, &settings.who(), shared)
}

impl Answerer for Shared {
    fn answer(&self, request: Request) -> Result<Answer, String> {
        match request {
            Request::Routes => Ok(Answer::Routes(Box::new(self.heard()))),
            Request::RoutesPart { known, to, number } => {
                let known = known.as_deref().map(str::parse).transpose();
                let known = known.map_err(|error: routes::NotADigest| error.to_string())?;
                let part = self.part(known, &to, number)?;
                Ok(Answer::RoutesPart(Box::new(part)))
            }
            Request::Drives
            | Request::Trim { .. }
            | Request::Health
            | Request::Addresses { .. }
            | Request::Held
            | Request::Tickle { .. } => Err(server::ELSEWHERE.to_owned()),
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn heard(&self) -> Heard {
        let mut state = self.state();
        state.cuts.retain(|cut| cut.used.elapsed() < CUT_KEPT);
        let age_s =
            state.answered.filter(|_| state.error.is_some()).map(|at| at.elapsed().as_secs());
        let Some(table) = &state.table else {
            let why = state.error.as_deref().unwrap_or("its table was not read yet");
            let error = Some(format!("nothing is known of BIRD: {why}"));
            return Heard { error, age_s, ..Heard::default() };
        };
        let session = |session: &bird::Session| Session {
            name: session.name.to_string(),
            state: session.state.to_string(),
            peering: peering_out(self.settings.peering(&session.name)),
            neighbour: session.neighbour.as_ref().map(ToString::to_string),
            neighbour_as: session.neighbour_as,
            routes: session.routes,
            believed: table.sessions.get(&session.name).copied().unwrap_or(0),
            filtered: session.filtered,
            last_error: session.last_error.as_ref().map(ToString::to_string),
        };
        Heard {
            digest: Some(table.digest.to_string()),
            prefixes: table.digest.count,
            behind_ms: u64::try_from(state.behind.as_millis()).unwrap_or(u64::MAX),
            sessions: state.sessions.iter().take(SESSIONS_MAX).map(session).collect(),
            left_out: table.left_out.iter().map(left_out).collect(),
            error: state.error.clone(),
            age_s,
        }
    }

    fn part(
        &self,
        known: Option<Digest>,
        to: &str,
        number: u32,
    ) -> Result<wire::v1::routes::Part, String> {
        let (table, older, found) = {
            let mut state = self.state();
            let table = state.table.clone().ok_or("nothing is known of BIRD")?;
            if table.digest.to_string() != to {
                return Err("the table has changed: ask for routes again".to_owned());
            }
            let older = state.older.iter().find(|older| Some(older.digest) == known).cloned();
            let found = state.cut(older.as_ref().map(|older| older.digest));
            (table, older, found)
        };
        let from = older.as_ref().map(|older| older.digest);
        // A full table takes a second, in which others are answered.
        let cut = || {
            let difference = match &older {
                Some(older) => table.since(older),
                None => Difference { announced: table.routes().to_vec(), withdrawn: vec![] },
            };
            let parts = Arc::new(Part::cut(from, table.digest, difference, PART_LEN));
            self.state().keep_cut(table.digest, from, &parts);
            parts
        };
        let parts = found.unwrap_or_else(cut);
        let at = usize::try_from(number).map_err(|_| "there is no such part")?;
        Ok(part_out(parts.get(at).ok_or("there is no such part")?))
    }

    /// Reads until the process ends.
    fn read_on(&self) {
        let now = Instant::now();
        let mut pace = Pace { answered: now, has_answered: false, rest: now };
        loop {
            let failed = match Bird::connect(&self.settings.bird) {
                Ok(bird) => self.watch(bird, &mut pace),
                Err(error) => error,
            };
            let shown = self.settings.bird.display();
            let text = format!("{shown}: {failed:#}");
            let mut state = self.state();
            state.answered = pace.has_answered.then_some(pace.answered);
            if state.error.as_ref() != Some(&text) {
                tracing::warn!(error = text, "BIRD does not answer: what it said last stands");
                state.error = Some(text);
            }
            let is_silent = self.silent <= pace.answered.elapsed();
            if is_silent && state.table.as_ref().is_none_or(|table| table.digest.count != 0) {
                tracing::error!(
                    "BIRD has not answered for {:?}: nothing is announced",
                    self.silent
                );
                state.sessions.clear();
                state.put(Hearing::default());
            }
            drop(state);
            std::thread::sleep(EVERY);
        }
    }

    /// Looks at the sessions, and reads the table when they change, until BIRD fails.
    fn watch(&self, mut bird: Bird, pace: &mut Pace) -> anyhow::Error {
        let mut read: Option<(Vec<bird::Session>, Instant)> = None;
        loop {
            let began = Instant::now();
            let sessions = match bird.sessions() {
                Ok(sessions) => sessions,
                Err(error) => return error,
            };
            (pace.answered, pace.has_answered) = (Instant::now(), true);
            let is_due =
                read.as_ref().is_none_or(|(known, at)| *known != sessions || AGAIN <= at.elapsed());
            // Without a session there is little to read, and that it is gone should be known.
            if is_due && (pace.rest <= began || !sessions.iter().any(bird::Session::is_up)) {
                let routes = sessions.iter().map(|session| session.routes);
                let routes = routes.fold(0, u64::saturating_add);
                let table = bird.table(&self.settings, reply_max(routes), &mut pace.answered);
                let took = began.elapsed();
                match table {
                    Ok(table) => self.learn(table, &sessions, took),
                    Err(error) => {
                        pace.rest = Instant::now() + (took * REST).min(AGAIN);
                        return error;
                    }
                }
                pace.rest = Instant::now() + took * REST;
                read = Some((sessions.clone(), Instant::now()));
            }
            self.state().sessions = sessions;
            std::thread::sleep(EVERY);
        }
    }

    fn learn(&self, table: Hearing, sessions: &[bird::Session], took: Duration) {
        let mut state = self.state();
        if state.error.take().is_some() {
            tracing::info!("BIRD answers again");
        }
        let (before, now) = (state.table.as_ref().map(|table| table.digest), table.digest);
        if before != Some(now) {
            let left_out: u64 = table.left_out.iter().map(|(_, count, _)| count).sum();
            let up = sessions.iter().filter(|session| session.is_up()).count();
            let took = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
            tracing::info!(prefixes = now.count, left_out, sessions = up, took_ms = took, "routes");
        }
        // It may have changed as a reading began: the next ends after a rest, and a reading.
        state.behind = EVERY + took * (REST + 2);
        state.put(table);
    }
}

impl State {
    /// The parts from a table to the last one, if they are there.
    fn cut(&mut self, from: Option<Digest>) -> Option<Arc<Vec<Part>>> {
        let cut = self.cuts.iter_mut().find(|cut| cut.from == from)?;
        cut.used = Instant::now();
        Some(Arc::clone(&cut.parts))
    }

    /// Keeps parts to this table, unless there is another one by now.
    fn keep_cut(&mut self, to: Digest, from: Option<Digest>, parts: &Arc<Vec<Part>>) {
        if self.table.as_ref().is_none_or(|table| table.digest != to) {
            return;
        }
        self.cuts.retain(|cut| cut.from != from);
        self.cuts.push(Cut { from, parts: Arc::clone(parts), used: Instant::now() });
        assert!(self.cuts.len() <= TABLES_KEPT + 1, "one from each that is kept, and from none");
    }

    fn put(&mut self, table: Hearing) {
        let is_same = self.table.as_ref().is_some_and(|before| before.digest == table.digest);
        let before = self.table.replace(Arc::new(table));
        if let (Some(before), false) = (before, is_same) {
            self.cuts.clear();
            self.older.push_front(before);
            self.older.truncate(TABLES_KEPT);
        }
        assert!(self.older.len() <= TABLES_KEPT, "the oldest made room");
    }
}

/// A connection to BIRD, on which nothing can be changed.
struct Bird {
    stream: BufReader<UnixStream>,
}

impl Bird {
    fn connect(path: &Path) -> anyhow::Result<Self> {
        let stream = UnixStream::connect(path).context("cannot connect: does BIRD run?")?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut bird = Self { stream: BufReader::new(stream) };
        bird.reply(REPLY_MAX, |_| {}).context("it does not greet as BIRD does")?;
        bird.ask("restrict", REPLY_MAX, |_| {})?;
        Ok(bird)
    }

    fn sessions(&mut self) -> anyhow::Result<Vec<bird::Session>> {
        let mut reader = SessionReader::default();
        self.ask("show protocols all", REPLY_MAX, |text| reader.text(text))?;
        Ok(reader.done())
    }

    /// The table, read within `max`; `answered` follows its lines.
    fn table(
        &mut self,
        settings: &Routes,
        max: Duration,
        answered: &mut Instant,
    ) -> anyhow::Result<Hearing> {
        let filter = settings.filter();
        let (mut reader, mut builder) = (RouteReader::default(), Builder::new(&filter));
        let mut hear = |told: Option<routes::Told>| {
            if let Some(told) = told {
                let peering = settings.peering(&told.session);
                builder.hear(told, peering);
            }
        };
        self.ask("show route all", max, |text| {
            *answered = Instant::now();
            hear(reader.text(text));
        })?;
        hear(reader.end());
        Ok(builder.done())
    }

    fn ask(&mut self, command: &str, max: Duration, each: impl FnMut(&str)) -> anyhow::Result<()> {
        self.stream.get_mut().write_all(format!("{command}\n").as_bytes())?;
        self.reply(max, each).with_context(|| format!("to \"{command}\""))
    }

    /// The lines of one reply, all within `max`.
    fn reply(&mut self, max: Duration, mut each: impl FnMut(&str)) -> anyhow::Result<()> {
        let (began, mut line) = (Instant::now(), Vec::new());
        let most = u64::try_from(bird::LINE_MAX).expect("some KiB");
        loop {
            line.clear();
            self.stream.by_ref().take(most).read_until(b'\n', &mut line)?;
            anyhow::ensure!(
                line.ends_with(b"\n"),
                "it ended the connection, or a line is too long"
            );
            anyhow::ensure!(began.elapsed() < max, "the reply takes too long");
            let text = String::from_utf8_lossy(&line);
            let Some((text, end)) = bird::line(&text) else { continue };
            match end {
                None => each(text),
                Some(End::Done) => {
                    each(text);
                    return Ok(());
                }
                Some(End::Refused(code)) => anyhow::bail!("BIRD refuses: {code} {text}"),
            }
        }
    }
}

/// How long the reply with a table of so many routes may take.
fn reply_max(routes: u64) -> Duration {
    let more = Duration::from_micros(routes.saturating_mul(REPLY_MICROS_PER_ROUTE));
    REPLY_MAX.saturating_add(more)
}

fn peering_out(peering: routes::Peering) -> Peering {
    match peering {
        routes::Peering::Private => Peering::Private,
        routes::Peering::Public => Peering::Public,
    }
}

fn left_out(
    (cause, count, examples): (routes::filter::Cause, u64, &[routes::filter::Example]),
) -> LeftOut {
    let example = |(prefix, session): &routes::filter::Example| Example {
        prefix: prefix.to_string(),
        session: session.to_string(),
    };
    LeftOut {
        cause: cause.as_str().to_owned(),
        why: cause.to_string(),
        count,
        examples: examples.iter().map(example).collect(),
    }
}

fn part_out(part: &Part) -> wire::v1::routes::Part {
    let groups = part.difference.announced.chunk_by(|(_, a), (_, b)| a == b);
    let group = |group: &[(model::topology::Prefix, Arc<Attributes>)]| {
        let attributes = &group[0].1;
        Group {
            peering: peering_out(attributes.peering()),
            as_path: attributes.as_path().to_vec(),
            med: attributes.med(),
            communities: attributes.communities().iter().map(ToString::to_string).collect(),
            prefixes: group.iter().map(|(prefix, _)| prefix.to_string()).collect(),
        }
    };
    wire::v1::routes::Part {
        from: part.from.map(|from| from.to_string()),
        to: part.to.to_string(),
        number: part.number,
        is_last: part.is_last,
        announced: groups.map(group).collect(),
        withdrawn: part.difference.withdrawn.iter().map(ToString::to_string).collect(),
    }
}

#[cfg(test)]
mod tests;
