//! `nearcast-lab writers`: two writers on one PostgreSQL; the one that leads is killed, then
//! stopped for 10 s and let go, and then the database falls silent until both writers have given
//! up, while desired state changes and playbacks begin.
//!
//! ```text
//! changes ──> writer or second, whichever takes them ──> PostgreSQL, which logs generations
//! playbacks ──> a front, else a writer ──> segments, every byte compared
//! ```
//!
//! Valid only if the other took over in time, and a writer led again soon after the database came
//! back; if a writer on a silent database stood by and could be ended; if every change that was
//! answered is there, no generation was given twice, and every playback began.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rig::fleet::{Fleet, Plan, Role};
use rig::postgres::Postgres;
use serde::Serialize;
use serde_json::json;
use tracing::{info, warn};

use crate::outage::{Film, Playback, World};
use crate::room::RunArgs;

/// `nearcast-lab writers`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How long a stopped writer is stopped, in seconds.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(4..=120))]
    pause: u64,
    /// Playbacks that begin per second.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=50))]
    begin: u32,
    /// First of the ports on 127.0.0.1.
    #[arg(long, default_value_t = 18900)]
    port: u16,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, Default, Serialize)]
struct Report {
    /// From the death of the leader to the first change that the other answered.
    take_over_killed_ms: u128,
    /// The same from the moment when it was stopped.
    take_over_paused_ms: u128,
    /// From the moment when the database fell silent until the leader said that it stands by.
    silent_stands_by_ms: u128,
    /// How long a standby took to end meanwhile.
    silent_ends_ms: u128,
    /// From the moment when the database went on to the first change that was answered.
    silent_leads_again_ms: u128,
    /// Changes that were answered, and of these such as are not there at the end.
    changes: usize,
    changes_lost: usize,
    /// Generations of manifests and snapshots that were made durable, and those not above the last.
    generations: u64,
    generations_twice: u64,
    /// Leases that were taken.
    epochs: u64,
    playbacks: u64,
    playbacks_failed: u64,
}

#[derive(Default)]
struct Counts {
    /// Names of sites whose change was answered, and by which writer the last was, when.
    answered: BTreeSet<String>,
    last: Option<(usize, Instant)>,
    playbacks: u64,
    playbacks_failed: u64,
}

struct Run {
    world: Arc<World>,
    writers: [String; 2],
    stop: AtomicBool,
    counts: Mutex<Counts>,
}

const TAKE_OVER_MAX: Duration = Duration::from_secs(5);
/// Of the lease there may be 2.5 s left; then requests and the close have their time.
const STAND_BY_MAX: Duration = Duration::from_secs(10);
/// What waits for the database when a standby ends is let go.
const END_MAX: Duration = Duration::from_secs(5);
const GIVE_UP: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(10);
const CHANGE_EVERY: Duration = Duration::from_millis(50);
/// Whoever changes something turns to the other writer after this.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// Between what is done to the writers.
const CALM: Duration = Duration::from_secs(3);
const ASSET: &str = "film";

/// The database itself says which generations it was given.
const LOG: &str =
    "CREATE TABLE given (n BIGINT GENERATED ALWAYS AS IDENTITY, key TEXT, value BIGINT);
    CREATE FUNCTION log_given() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO given (key, value) VALUES (NEW.key, NEW.value); RETURN NULL; END $$;
    CREATE TRIGGER log_given AFTER UPDATE ON meta FOR EACH ROW
    WHEN (NEW.key IN ('generation', 'replica_generation')) EXECUTE FUNCTION log_given()";
/// Changes of sites wait for it, longer than `HELD`.
const HOLD: &str = "LOCK TABLE sites IN EXCLUSIVE MODE; SELECT pg_sleep(2)";
const HELD: Duration = Duration::from_millis(500);
const TWICE: &str =
    "SELECT count(*) FROM (SELECT value, lag(value) OVER (PARTITION BY key ORDER BY n)
    AS before FROM given) AS all_given WHERE value <= before";

/// Runs it and prints the result on stdout.
pub(crate) fn run(args: &Args) -> Result<()> {
    rig::raise_file_limit()?;
    let room = args.run.open()?;
    let film = Film::of(Duration::from_secs(60));
    film.write(&room.join("source"))?;
    // A folder of its own, which is its user's.
    let folder = tempfile::Builder::new().prefix("nearcast-").tempdir()?;
    let mut server = Postgres::start(folder.path())?;
    let database = Some(format!("{}/postgres", server.url()));
    let plan = Plan { fronts: 1, appliances: 3, ..Plan::new(room.to_path_buf(), args.port, ASSET) };
    let mut fleet = Fleet::start(Plan { database, ..plan }, &room.join("source"))?;
    server.query(LOG)?;
    let writers = [Role::Writer, Role::Second].map(|role| fleet.url(role));
    let fronts = [vec![fleet.url(Role::Front(0))], writers.to_vec()].concat();
    let client = rig::url::trusting(&room.join("ca.pem"))?.build();
    let world = Arc::new(World { fronts, asset: ASSET.to_owned(), film, client });
    let run = Run { world, writers, stop: AtomicBool::new(false), counts: Mutex::default() };
    let report = run.all(args, &mut fleet, &mut server)?;
    rig::say(args.run.json, &report, || format!("{report:#?}"))?;
    report.check()
}

impl Run {
    fn all(&self, args: &Args, fleet: &mut Fleet, server: &mut Postgres) -> Result<Report> {
        let mut report = std::thread::scope(|scope| {
            scope.spawn(|| self.change_many());
            let every = Duration::from_secs(1) / args.begin;
            scope.spawn(move || {
                while !self.stop.load(Ordering::Relaxed) {
                    scope.spawn(|| self.begin_one());
                    std::thread::sleep(every);
                }
            });
            let report = self.strikes(args, fleet, server);
            self.stop.store(true, Ordering::Relaxed);
            report
        })?;
        let counts = self.counts();
        let there = server.query("SELECT id FROM sites")?;
        let there: BTreeSet<&str> = there.lines().collect();
        let number = |sql: &str| server.query(sql)?.parse::<u64>().with_context(|| sql.to_owned());
        report.changes = counts.answered.len();
        report.changes_lost =
            counts.answered.iter().filter(|name| !there.contains(name.as_str())).count();
        report.generations = number("SELECT count(*) FROM given")?;
        report.generations_twice = number(TWICE)?;
        report.epochs = number("SELECT epoch FROM lease")?;
        (report.playbacks, report.playbacks_failed) = (counts.playbacks, counts.playbacks_failed);
        Ok(report)
    }

    fn strikes(&self, args: &Args, fleet: &mut Fleet, server: &mut Postgres) -> Result<Report> {
        let leader = self.leader()?;
        for role in [0, 1].map(role) {
            fleet.hang_up_control(role)?;
        }
        std::thread::sleep(CALM);
        fleet.check().context("after SIGHUP")?;
        fleet.kill_control(role(leader));
        let killed = self.taken_over(leader)?;
        fleet.start_control(role(leader))?;
        std::thread::sleep(CALM);

        let leader = self.leader()?;
        fleet.pause_control(role(leader), true)?;
        let paused = self.taken_over(leader)?;
        std::thread::sleep(Duration::from_secs(args.pause).saturating_sub(paused));
        fleet.pause_control(role(leader), false)?;
        std::thread::sleep(CALM);
        fleet.check()?;
        let (take_over_killed_ms, take_over_paused_ms) = (killed.as_millis(), paused.as_millis());
        let report = Report { take_over_killed_ms, take_over_paused_ms, ..Report::default() };
        self.silence(report, fleet, server)
    }

    /// The database takes packets and answers none.
    fn silence(&self, report: Report, fleet: &mut Fleet, server: &mut Postgres) -> Result<Report> {
        let leader = self.leader()?;
        // So that a statement of a change is under way.
        let mut holding = server.begin_query(HOLD)?;
        std::thread::sleep(HELD);
        server.pause(true)?;
        let since = Instant::now();
        info!("the database is silent");
        let ending = Instant::now();
        fleet.stop_control(role(1 - leader))?;
        let silent_ends_ms = ending.elapsed().as_millis();
        let agent = rig::api::agent(ANSWER_MAX);
        let health = format!("{}/healthz", self.writers[leader]);
        let stands_by = || match agent.get(&health).call() {
            Ok(mut answer) => {
                answer.body_mut().read_to_string().is_ok_and(|it| it.contains(":standby"))
            }
            Err(_) => false,
        };
        rig::until("a leader that stands by", GIVE_UP, LOOK_EVERY, || Ok(stands_by()))?;
        let silent_stands_by_ms = since.elapsed().as_millis();
        info!(ms = silent_stands_by_ms, "the leader stands by");
        std::thread::sleep(CALM);
        let again = Instant::now();
        server.pause(false)?;
        let leads = || self.counts().last.is_some_and(|(_, at)| again < at);
        rig::until("a writer that leads again", GIVE_UP, LOOK_EVERY, || Ok(leads()))?;
        let silent_leads_again_ms = again.elapsed().as_millis();
        info!(ms = silent_leads_again_ms, "a writer leads again");
        ensure!(holding.wait()?.success(), "no change was held up");
        fleet.start_control(role(1 - leader))?;
        std::thread::sleep(CALM);
        fleet.check()?;
        Ok(Report { silent_stands_by_ms, silent_ends_ms, silent_leads_again_ms, ..report })
    }

    /// The writer that answered the last change.
    fn leader(&self) -> Result<usize> {
        rig::until("a writer that leads", GIVE_UP, LOOK_EVERY, || {
            Ok(self.counts().last.is_some())
        })?;
        self.counts().last.map(|(leader, _)| leader).context("nobody leads")
    }

    /// Until the other writer has answered a change.
    fn taken_over(&self, from: usize) -> Result<Duration> {
        let since = Instant::now();
        let others = || self.counts().last.filter(|(by, at)| *by != from && since < *at);
        rig::until("a take-over", GIVE_UP, LOOK_EVERY, || Ok(others().is_some()))?;
        let took = since.elapsed();
        info!(ms = took.as_millis(), "the other leads");
        Ok(took)
    }

    /// Makes site after site, each until it is answered; and, now and then, what every manifest
    /// tells.
    fn change_many(&self) {
        let agent = rig::api::agent(ANSWER_MAX);
        let (mut to, mut n) = (0, 0_u64);
        while !self.stop.load(Ordering::Relaxed) {
            let name = format!("c{n}");
            let (path, body) = match n % 10 {
                9 => ("/v1/appliances/ghost".to_owned(), ghost(n)),
                _ => (format!("/v1/sites/{name}"), json!({ "prefixes": [] })),
            };
            let url = format!("{}{path}", self.writers[to]);
            match agent.put(&url).send_json(&body) {
                Ok(answer) if answer.status().is_success() => {
                    let mut counts = self.counts();
                    counts.last = Some((to, Instant::now()));
                    if n % 10 != 9 {
                        counts.answered.insert(name);
                    }
                    n += 1;
                }
                _ => to = 1 - to,
            }
            std::thread::sleep(CHANGE_EVERY);
        }
    }

    fn begin_one(&self) {
        let begun = Playback::begin(&self.world).and_then(|mut playback| playback.first_segment());
        let mut counts = self.counts();
        counts.playbacks += 1;
        if let Err(error) = begun {
            counts.playbacks_failed += 1;
            warn!(error = format!("{error:#}"), "a playback could not begin");
        }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn role(writer: usize) -> Role {
    if writer == 0 { Role::Writer } else { Role::Second }
}

/// An appliance that nobody runs, at another address each time: its siblings are told.
fn ghost(n: u64) -> serde_json::Value {
    let address = format!("10.9.{}.{}", n / 10 / 200, n / 10 % 200 + 1);
    json!({ "site": "lab", "weight": 1, "addresses": [address] })
}

impl Report {
    fn check(&self) -> Result<()> {
        let took = self.take_over_killed_ms.max(self.take_over_paused_ms);
        ensure!(took <= TAKE_OVER_MAX.as_millis(), "a take-over took {took} ms");
        let stood_by = self.silent_stands_by_ms;
        ensure!(stood_by <= STAND_BY_MAX.as_millis(), "it stood by after {stood_by} ms of silence");
        let ended = self.silent_ends_ms;
        ensure!(ended <= END_MAX.as_millis(), "a standby took {ended} ms to end");
        let again = self.silent_leads_again_ms;
        ensure!(again <= TAKE_OVER_MAX.as_millis(), "nobody led for {again} ms");
        ensure!(self.changes_lost == 0, "{} changes are lost", self.changes_lost);
        ensure!(self.generations_twice == 0, "{} generations twice", self.generations_twice);
        ensure!(self.playbacks_failed == 0, "{} playbacks failed", self.playbacks_failed);
        let enough = 20 < self.changes && 10 < self.generations && 10 < self.playbacks;
        ensure!(enough && 3 <= self.epochs, "too little happened to show anything");
        Ok(())
    }
}
