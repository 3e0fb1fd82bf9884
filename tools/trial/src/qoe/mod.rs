//! `nearcast-lab qoe`: what players felt against what control says of it.
//!
//! ```text
//! 50 players, each in a network of its own ── segments, CMCD ──> appliances ── sums ──> control
//!   their own clocks: start-up, stalls  ══════ compared, player by player ══════ GET /v1/viewers
//! ```
//!
//! Stalls are planted by holding a segment back for longer than the player's buffer lasts. Valid
//! only if each player's stalls are counted right, their length within a tenth, its start-up within
//! 200 ms, and if it counts as one playback: a pause, right after a stall too, a jump and a move to
//! another appliance are no stalls. Of a stall in which a player gives one appliance up for
//! another, these can know the count and the rest: it is to be told as unmeasured, once.

mod model;
mod player;

use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rig::fleet::{Fleet, Plan, Role};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use serde::Serialize;
use serde_json::{Value, json};

use crate::outage::{Film, World};
use model::Felt;
use player::{Kind, Plant, Session};

/// `nearcast-lab qoe`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Players that say something; a tenth as many say nothing.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u8).range(7..=100))]
    sessions: u8,
    /// First of the ports on 127.0.0.1.
    #[arg(long, default_value_t = 18_720)]
    port: u16,
    /// Print one JSON object as the last line of output.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    ok: bool,
    sessions: usize,
    stalls: u64,
    stalls_told: u64,
    stalled_s: f64,
    stalled_told_s: f64,
    /// Stalls in which an appliance was given up, and the time before that: told as unmeasured.
    given_up: u64,
    unseen_s: f64,
    /// Sessions whose stalls were not counted right.
    count_wrong: usize,
    /// The largest error of a session's stalled time, as a share of it.
    length_error_max: f64,
    /// The largest error of a session's start-up.
    start_error_max_ms: f64,
    start_error_mean_ms: f64,
    by_kind: Vec<ByKind>,
    /// Of players that say nothing: what was felt, and what the server guesses. Not judged.
    silent: Silent,
    wrong: Vec<String>,
}

#[derive(Debug, Serialize)]
struct ByKind {
    kind: String,
    source: &'static str,
    sessions: usize,
    stalls: u64,
    length_error_max: f64,
    start_error_max_ms: f64,
}

#[derive(Debug, Default, Serialize)]
struct Silent {
    sessions: usize,
    stalls: u64,
    stalls_guessed: u64,
    stalled_s: f64,
    stalled_guessed_s: f64,
}

/// A session's figures, felt and told.
#[derive(Debug)]
struct Pair {
    number: u8,
    kind: Kind,
    source: &'static str,
    /// Appliances that it came to when it had begun.
    moved: u64,
    felt: Felt,
    told: Value,
}

const LENGTH_ERROR_MAX: f64 = 0.1;
const START_ERROR_MAX_MS: f64 = 200.0;
const ASSET: &str = "film";
/// A player's thread needs little.
const STACK: usize = 512 << 10;
/// Views settle in a second, batches come each ten, and reports twice a second.
const TOLD_EVERY: Duration = Duration::from_secs(13);
const TOLD_WITHIN: Duration = Duration::from_secs(60);

/// Runs it and prints the result on stdout.
pub(crate) fn run(args: &Args) -> Result<()> {
    rig::raise_file_limit()?;
    let room = tempfile::tempdir()?;
    let film = Film::of(Duration::from_secs(60));
    film.write(&room.path().join("source"))?;
    let plan = Plan {
        appliances: 2,
        appliance: json!({ "serve": { "workers": 2 } }),
        ..Plan::new(room.path().join("fleet"), args.port, ASSET)
    };
    let mut fleet = Fleet::start(plan, &room.path().join("source"))?;
    let silent = (args.sessions / 10).max(1);
    let sessions: Vec<Session> = (1..=args.sessions + silent)
        .map(|number| session(number, args.sessions < number))
        .collect();
    let own = sessions.iter().map(|session| format!("127.0.1.{}/32", session.number));
    let prefixes: Vec<String> = ["127.0.0.0/8".to_owned()].into_iter().chain(own).collect();
    fleet.put("/v1/sites/lab", &json!({ "prefixes": prefixes }))?;
    // Appliances hear of it with their next report.
    std::thread::sleep(Duration::from_secs(3));
    let ca = room.path().join("fleet").join("ca.pem");
    let world = World {
        fronts: vec![fleet.url(Role::Writer)],
        asset: ASSET.to_owned(),
        film,
        client: rig::url::trusting(&ca)?.build(),
    };
    let felt = play_all(&sessions, &world, &tls(&ca)?)?;
    let pairs = compare(&mut fleet, &sessions, felt)?;
    let report = Report::of(&pairs);
    rig::say(args.json, &report, || text(&report))?;
    ensure!(report.ok, "{} of {} are told wrong", report.wrong.len(), report.sessions);
    Ok(())
}

/// A session by its number: its kind and what is planted follow from it.
fn session(number: u8, silent: bool) -> Session {
    const KINDS: [Kind; 6] =
        [Kind::Hls, Kind::Shaka, Kind::Dash, Kind::Media3, Kind::Second, Kind::Events];
    let n = u64::from(number);
    let kind = if silent { Kind::Silent } else { KINDS[usize::from(number) % KINDS.len()] };
    let millis = |base: u64, spread: u64, seed: u64| {
        Duration::from_millis(base + (n * 7919 + seed * 104_729) % spread)
    };
    let mut plants = vec![(0, Plant::Late(millis(100, 2_400, 1)))];
    // 0 to 3 stalls of 1 to 4.5 s, and segments that are late without one.
    let stalls = usize::from(number) % 4;
    for (at, seed) in (0..stalls).zip(2..) {
        plants.push((5 + 4 * at, Plant::Stall(millis(1_000, 3_500, seed))));
    }
    plants.push((3, Plant::Late(millis(200, 900, 9))));
    match number % 5 {
        // Right after the first stall, or before the second.
        1 => plants.push((
            if number.is_multiple_of(2) { 8 } else { 6 },
            Plant::Pause(millis(1_000, 2_000, 10)),
        )),
        2 if number.is_multiple_of(2) => plants.push((8, Plant::Move)),
        // There and back, before a stall.
        2 => plants.extend([(8, Plant::Move), (13, Plant::Move)]),
        4 => plants.push((11, Plant::GiveUp(millis(1_000, 2_000, 11)))),
        3 if kind == Kind::Hls || kind == Kind::Second => plants.push((7, Plant::Jump)),
        _ => {}
    }
    Session { number, kind, plants, segments: 17 }
}

fn tls(ca: &std::path::Path) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(ca)? {
        roots.add(certificate?)?;
    }
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

fn play_all(sessions: &[Session], world: &World, tls: &Arc<ClientConfig>) -> Result<Vec<Felt>> {
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for session in sessions {
            let play = move || player::play(session, world, tls);
            threads.push(Builder::new().stack_size(STACK).spawn_scoped(scope, play)?);
            // Not all in one moment: a viewer comes now, and another then.
            std::thread::sleep(Duration::from_millis(100));
        }
        let joined = threads.into_iter().zip(sessions).map(|(thread, session)| {
            let felt = thread.join().unwrap_or_else(|_| bail!("a player panicked"));
            felt.with_context(|| format!("session {}", session.number))
        });
        joined.collect()
    })
}

/// Each session's figures, once control has them all.
fn compare(fleet: &mut Fleet, sessions: &[Session], felt: Vec<Felt>) -> Result<Vec<Pair>> {
    let felts: Vec<(&Session, Felt)> = sessions.iter().zip(felt).collect();
    let mut pairs = Vec::new();
    // Until nothing changes any more: what is wrong then stays wrong.
    let mut last = Value::Null;
    rig::until("until control was told all", TOLD_WITHIN, TOLD_EVERY, || {
        let told = fleet.get(Role::Writer, "/v1/viewers")?["rows"].clone();
        let is_settled = told == last;
        last = told;
        Ok(is_settled)
    })?;
    for (session, felt) in felts {
        let sources: &[&'static str] = match session.kind {
            Kind::Silent => &["estimate"],
            Kind::Events => &["events", "requests"],
            Kind::Hls | Kind::Shaka | Kind::Dash | Kind::Media3 | Kind::Second => &["requests"],
        };
        for &source in sources {
            let network = format!("127.0.1.{}/32", session.number);
            let mut rows = last.as_array().into_iter().flatten();
            let row = rows.find(|row| row["name"] == network.as_str() && row["source"] == source);
            let told = row.map_or(Value::Null, |row| row["total"].clone());
            let (number, kind, felt) = (session.number, session.kind, felt.clone());
            let moves = |plant: &Plant| matches!(plant, Plant::Move | Plant::GiveUp(_));
            let moves = session.plants.iter().any(|(_, plant)| moves(plant));
            // There are two, and an appliance knows who comes back.
            let moved = u64::from(moves && source == "requests");
            pairs.push(Pair { number, kind, source, moved, felt, told });
        }
    }
    Ok(pairs)
}

impl Pair {
    fn told(&self, name: &str) -> u64 {
        self.told[name].as_u64().unwrap_or(0)
    }

    fn is_counted(&self) -> bool {
        let unmeasured = if self.source == "requests" { self.felt.given_up } else { 0 };
        self.told("stalls") == u64::from(self.felt.stalls)
            && self.told("stalls_unmeasured") == u64::from(unmeasured)
    }

    /// As a share of what was felt; what is told of no stall is wrong by all of it.
    fn length_error(&self) -> f64 {
        let felt = self.felt.stalled.as_secs_f64();
        let unseen = if self.source == "requests" { self.felt.unseen } else { Duration::ZERO };
        let seen = felt - unseen.as_secs_f64();
        let error = (millis(self.told("stalled_ms")) - seen).abs();
        if seen <= 0.0 { error } else { error / seen }
    }

    fn start_error_ms(&self) -> f64 {
        let Some(told) = self.told["start_ms"].as_u64() else { return f64::INFINITY };
        (millis(told) - self.felt.start.as_secs_f64()).abs() * 1e3
    }

    fn wrong(&self) -> Option<String> {
        let right = self.is_counted()
            && self.length_error() <= LENGTH_ERROR_MAX
            && self.start_error_ms() <= START_ERROR_MAX_MS
            && (self.told("playbacks"), self.told("moved")) == (1, self.moved);
        let Felt { start, stalls, stalled, unseen, .. } = &self.felt;
        (!right).then(|| {
            format!(
                "session {} ({:?}, {}): felt {start:.1?}, {stalls} stalls, {stalled:.1?}, of that \
                 {unseen:.1?} before it moved; told {}",
                self.number, self.kind, self.source, self.told
            )
        })
    }
}

fn millis(millis: u64) -> f64 {
    Duration::from_millis(millis).as_secs_f64()
}

fn most(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, f64::max)
}

impl Report {
    fn of(pairs: &[Pair]) -> Self {
        let (silent, told): (Vec<&Pair>, Vec<&Pair>) =
            pairs.iter().partition(|pair| pair.kind == Kind::Silent);
        let wrong: Vec<String> = told.iter().filter_map(|pair| pair.wrong()).collect();
        // A player that sends events is told by both, and counts once.
        let once = told.iter().filter(|pair| pair.source == "requests");
        let sum = |of: &dyn Fn(&Pair) -> u64| once.clone().map(|pair| of(pair)).sum();
        let seconds = |of: &dyn Fn(&Pair) -> f64| once.clone().map(|pair| of(pair)).sum();
        let starts: Vec<f64> = told.iter().map(|pair| pair.start_error_ms()).collect();
        let count = u32::try_from(starts.len().max(1)).unwrap_or(u32::MAX);
        Self {
            ok: wrong.is_empty(),
            sessions: once.clone().count(),
            stalls: sum(&|pair| u64::from(pair.felt.stalls)),
            stalls_told: sum(&|pair| pair.told("stalls")),
            stalled_s: seconds(&|pair| pair.felt.stalled.as_secs_f64()),
            stalled_told_s: seconds(&|pair| millis(pair.told("stalled_ms"))),
            given_up: sum(&|pair| u64::from(pair.felt.given_up)),
            unseen_s: seconds(&|pair| pair.felt.unseen.as_secs_f64()),
            count_wrong: told.iter().filter(|pair| !pair.is_counted()).count(),
            length_error_max: most(told.iter().map(|pair| pair.length_error())),
            start_error_max_ms: most(starts.iter().copied()),
            start_error_mean_ms: starts.iter().sum::<f64>() / f64::from(count),
            by_kind: by_kind(&told),
            silent: Silent {
                sessions: silent.len(),
                stalls: silent.iter().map(|pair| u64::from(pair.felt.stalls)).sum(),
                stalls_guessed: silent.iter().map(|pair| pair.told("stalls")).sum(),
                stalled_s: silent.iter().map(|pair| pair.felt.stalled.as_secs_f64()).sum(),
                stalled_guessed_s: silent.iter().map(|pair| millis(pair.told("stalled_ms"))).sum(),
            },
            wrong,
        }
    }
}

fn by_kind(told: &[&Pair]) -> Vec<ByKind> {
    let mut kinds: Vec<(String, &'static str)> =
        told.iter().map(|pair| (format!("{:?}", pair.kind), pair.source)).collect();
    kinds.sort();
    kinds.dedup();
    let row = |(kind, source): (String, &'static str)| {
        let of: Vec<&&Pair> = told
            .iter()
            .filter(|pair| pair.source == source && format!("{:?}", pair.kind) == kind)
            .collect();
        ByKind {
            sessions: of.len(),
            stalls: of.iter().map(|pair| u64::from(pair.felt.stalls)).sum(),
            length_error_max: most(of.iter().map(|pair| pair.length_error())),
            start_error_max_ms: most(of.iter().map(|pair| pair.start_error_ms())),
            kind,
            source,
        }
    };
    kinds.into_iter().map(row).collect()
}

fn text(report: &Report) -> String {
    let mut out = format!(
        "{} sessions, {} stalls of {:.1} s felt, {} of {:.1} s told\n\
         in {} of them an appliance was given up: {:.1} s before that are told as unmeasured\n\
         counted wrong {}; length wrong by at most {:.1} %; \
         start-up by at most {:.0} ms, mean {:.0}\n",
        report.sessions,
        report.stalls,
        report.stalled_s,
        report.stalls_told,
        report.stalled_told_s,
        report.given_up,
        report.unseen_s,
        report.count_wrong,
        report.length_error_max * 100.0,
        report.start_error_max_ms,
        report.start_error_mean_ms,
    );
    for ByKind { kind, source, sessions, stalls, length_error_max, start_error_max_ms } in
        &report.by_kind
    {
        out += &format!(
            "{kind:<8} {source:<9} {sessions:>3} sessions {stalls:>3} stalls, length {:.1} %, \
             start-up {start_error_max_ms:.0} ms\n",
            length_error_max * 100.0
        );
    }
    let Silent { sessions, stalls, stalls_guessed, stalled_s, stalled_guessed_s } = &report.silent;
    out += &format!(
        "without a word: {sessions} sessions, {stalls} stalls of {stalled_s:.1} s felt, \
         {stalls_guessed} of {stalled_guessed_s:.1} s guessed\n"
    );
    for wrong in &report.wrong {
        out += &format!("WRONG: {wrong}\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(stalls: u32, stalled_ms: u64, told: Value) -> Pair {
        let (start, stalled) = (Duration::from_secs(1), Duration::from_millis(stalled_ms));
        let felt = Felt { start, stalls, stalled, ..Felt::default() };
        Pair { number: 1, kind: Kind::Hls, source: "requests", moved: 0, felt, told }
    }

    #[test]
    fn what_is_told_wrong_is_found() {
        let told = |stalls, stalled, start| {
            let lengths = json!({ "stalled_ms": stalled, "start_ms": start });
            let mut told = json!({ "stalls": stalls, "playbacks": 1 });
            told.as_object_mut().unwrap().extend(lengths.as_object().unwrap().clone());
            told
        };
        assert_eq!(pair(1, 2_000, told(1, 2_150, 1_150)).wrong(), None);
        for wrong in [
            pair(1, 2_000, told(2, 2_000, 1_000)),
            pair(1, 2_000, told(1, 2_300, 1_000)),
            pair(1, 2_000, told(1, 1_700, 1_000)),
            pair(1, 2_000, told(1, 2_000, 1_300)),
            pair(0, 0, told(0, 500, 1_000)),
            pair(0, 0, Value::Null),
        ] {
            assert!(wrong.wrong().is_some(), "{wrong:?}");
        }
        let report = Report::of(&[pair(1, 2_000, told(1, 2_100, 1_000)), pair(0, 0, Value::Null)]);
        assert!(!report.ok && report.wrong.len() == 1 && report.sessions == 2);
        let mut twice = told(1, 2_000, 1_000);
        twice["playbacks"] = json!(2);
        assert!(pair(1, 2_000, twice).wrong().is_some());
        let mut moved = pair(1, 2_000, told(1, 700, 1_000));
        (moved.moved, moved.felt.given_up) = (1, 1);
        moved.felt.unseen = Duration::from_millis(1_300);
        assert!(moved.wrong().is_some(), "it is not told as unmeasured");
        (moved.told["moved"], moved.told["stalls_unmeasured"]) = (json!(1), json!(1));
        assert_eq!(moved.wrong(), None);
    }

    #[test]
    fn sessions_have_all_that_is_to_be_told_apart() {
        let all: Vec<Session> = (1..=50).map(|number| session(number, false)).collect();
        let has = |of: fn(&Plant) -> bool| {
            all.iter().filter(|session| session.plants.iter().any(|(_, plant)| of(plant))).count()
        };
        assert!(35 <= has(|plant| matches!(plant, Plant::Stall(_))));
        assert!(5 <= has(|plant| matches!(plant, Plant::Move)));
        assert!(5 <= has(|plant| matches!(plant, Plant::Pause(_))));
        assert!(5 <= has(|plant| matches!(plant, Plant::GiveUp(_))));
        assert!(1 <= has(|plant| matches!(plant, Plant::Jump)));
        let pauses_at_once = |session: &&Session| {
            let has = |number, of: fn(&Plant) -> bool| {
                session.plants.iter().any(|(at, plant)| *at == number && of(plant))
            };
            has(5, |plant| matches!(plant, Plant::Stall(_)))
                && has(6, |plant| matches!(plant, Plant::Pause(_)))
        };
        assert!(3 <= all.iter().filter(pauses_at_once).count());
        assert!(5 <= all.iter().filter(|session| session.kind == Kind::Events).count());
    }
}
