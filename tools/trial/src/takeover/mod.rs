//! `nearcast-lab takeover`: a machine is cut off, its sibling takes its address over, and gives it
//! back.
//!
//! ```text
//! viewers by a1's address ── a1 cut off ──> a2 has the address: a crowd is reset, who waited asks
//!                                           anew, who played plays on
//!                         ── a1 is back ──> a2 drains, a1 has its address: no body is cut
//!                         ── a1 and a2 do not hear each other: each has it, no byte is wrong
//!                         ── a1 is given one more address, and loses it: no body is cut
//! ```
//!
//! A process may have 20,000 files: a crowd for which that is too few is of two machines, which are
//! cut off together, and a third has their addresses.

mod browser;
pub(crate) mod crowd;
mod viewers;
mod world;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rig::client::Pattern;
use serde::Serialize;
use serde_json::{Value, json};
use tracing::info;

use crate::outage::Film;
use crate::room::RunArgs;
use crowd::Crowd;
use viewers::{Answer, LONG, LONG_LEN, Played, Way, play, waiting};
use world::{ASSET, By, World, additional, service};

/// `nearcast-lab takeover`: as root, with iproute2 and keepalived.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Clients that have a connection and ask for nothing.
    #[arg(long, default_value_t = 20_000, value_parser = crowd_size)]
    crowd: usize,
    /// First of the ports of control and origin.
    #[arg(long, default_value_t = 19_300)]
    port: u16,
    /// How the address moves.
    #[arg(long, value_enum, default_value_t = By::Keepalived)]
    by: By,
    /// Without tickles: who waits goes on waiting, or the run is not valid. Nothing else is judged.
    #[arg(long)]
    no_tickles: bool,
    /// These real players alone, in Chromium, which needs node.
    #[arg(long, num_args = 1.., value_name = "PLAYER", value_parser = browser::PLAYERS)]
    #[arg(default_values = browser::PLAYERS)]
    players: Vec<String>,
    /// No real player: the machine has no Chromium. Without tickles none plays anyway.
    #[arg(long, conflicts_with = "players")]
    no_players: bool,
    /// The folder of their film; the demo's own, unless another is named.
    #[arg(long)]
    film: Option<PathBuf>,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, Default, Serialize)]
struct Report {
    tickles: bool,
    /// From the cut to the sibling's first whole answer by the address.
    takeover_ms: u64,
    /// To the next byte of the slowest client that waited for the rest of a body; none if one had
    /// none within 12 s.
    next_byte_ms: Option<u64>,
    /// Clients that waited, and those that had nothing for 12 s.
    waiting: usize,
    stalls: usize,
    /// Connections of the crowd, those that were reset, and when the last was, from the take-over.
    crowd: usize,
    reset: usize,
    reset_ms: u64,
    /// From the machine's return until it has its address again.
    give_back_ms: u64,
    /// Bodies broken off, requests sent again and requests sent on meanwhile.
    give_back_cut: u64,
    give_back_again: u64,
    give_back_sent_on: u64,
    give_back_stalls: u64,
    /// The longest time from one piece to the next while the address went back: one takes 1.6 s.
    give_back_gap_ms: u64,
    /// While the machines did not hear each other.
    split_pieces: u64,
    split_gap_ms: u64,
    /// Until the machine has an address that it was given while viewers played, and has it no more.
    added_ms: u64,
    removed_ms: u64,
    /// Bodies broken off meanwhile, and the longest time from one piece to the next.
    change_cut: u64,
    change_gap_ms: u64,
    wrong_bytes: u64,
    /// What each real player has seen: `failover_ms` and `hang_failover_ms` from a cut to the next
    /// media byte on every lane, from whichever machine.
    players: Vec<Value>,
}

const WAITING: usize = 8;
const PLAYING: usize = 4;
const TAKEOVER_MAX_MS: u64 = 1500;
const NEXT_BYTE_MAX_MS: u64 = 3500;
const RESET_MAX_MS: u64 = 3000;
const STALLED: Duration = Duration::from_secs(12);
/// Of those who play on: a piece takes 1.6 s, and one who is reset in the middle of it begins anew.
const GAP_MAX_MS: u64 = 5000;
/// A machine serves so many and is below the usual hard limit of 20,000 files.
const CROWD_MAX: usize = 18_000;
/// Machines that are cut off; a third serves their crowds.
const CUT_OFF_MAX: usize = 2;
/// Of a real player after the first cut: more than its buffer holds. After the second it has to
/// play more than was in its buffer.
const PLAYED_ON_MIN_S: f64 = 30.0;
const BACK_MAX: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How long players go on when the address is back.
const AFTER: Duration = Duration::from_secs(4);
/// How long the split lasts, and how long it is looked at afterwards.
const SPLIT: Duration = Duration::from_secs(6);

fn crowd_size(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(size) if size <= CUT_OFF_MAX * CROWD_MAX => Ok(size),
        Ok(_) => Err("at most 36,000: two machines of 18,000".to_owned()),
        Err(_) => Err("a number is wanted".to_owned()),
    }
}

/// Runs it and prints the result on stdout.
pub(crate) fn run(args: &Args) -> Result<()> {
    let room = args.run.open()?;
    rig::raise_file_limit()?;
    let source = room.join("source");
    let with_players = !args.no_players && !args.no_tickles;
    let film = with_players.then(|| browser::film(args.film.as_deref())).transpose()?;
    match &film {
        Some(film) => copy(film, &source)?,
        None => Film::of(Duration::from_secs(10)).write(&source)?,
    }
    let mut long = vec![0; LONG_LEN];
    let pattern = Pattern { seed: 7 };
    pattern.fill(0, 0, &mut long);
    std::fs::write(source.join(LONG), long)?;
    // The second serves who was with the others.
    let machines = if args.crowd <= CROWD_MAX { 2 } else { 3 };
    let world = World::start(&room, &source, args.port, args.by, machines, !args.no_tickles)?;
    let way = way(&world, &room)?;
    let mut report = Report { tickles: !args.no_tickles, ..Report::default() };
    cut_off(args, &world, &way, &room, &mut report)?;
    if !args.no_tickles {
        give_back(args.by, &world, &way, pattern, &mut report)?;
        if args.by == By::Keepalived {
            split(&world, &way, pattern, &mut report)?;
            change(&world, &way, pattern, &mut report)?;
        }
    }
    if with_players {
        world.cut_off(0, false)?;
        report.players = browser::play(&world, &source, &args.players)?;
        let (played, named) = (report.players.len(), args.players.len());
        ensure!(played == named, "{played} of {named} players played");
    }
    drop(world);
    rig::say(args.run.json, &report, || format!("{report:#?}"))?;
    if !args.no_tickles {
        return report.check(args.by);
    }
    let Report { stalls, waiting, .. } = report;
    ensure!(stalls == waiting, "{stalls} of {waiting} waited in vain, and tickles do nothing then");
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// The way to the film by the first machine's address.
fn way(world: &World, room: &Path) -> Result<Way> {
    let begun = world.fleet.post("/v1/playbacks", &json!({ "asset": ASSET }))?;
    let pathways = begun["pathways"].as_array().context("no pathways")?;
    let own = pathways.iter().find(|pathway| pathway["appliance"] == "a1");
    let url = own.and_then(|own| own["base_url"].as_str()).context("no pathway by a1")?;
    let base = url.strip_prefix(&format!("https://{}", service(0))).context("another address")?;
    let config = rig::client::tls_config(&room.join("ca.pem"), &[])?;
    Ok(Way { at: service(0), config, base: base.to_owned() })
}

fn cut_off(args: &Args, world: &World, way: &Way, room: &Path, report: &mut Report) -> Result<()> {
    info!(count = args.crowd, "connecting the crowd");
    let within = if args.no_tickles { Duration::from_secs(5) } else { STALLED };
    let mut crowds = crowds(args, world, room, within)?;
    let cut = Arc::new(AtomicBool::new(false));
    let clients: Vec<JoinHandle<Result<Option<Duration>>>> = (0..WAITING)
        .map(|_| {
            let (way, cut) = (way.clone(), Arc::clone(&cut));
            std::thread::spawn(move || waiting(&way, &cut))
        })
        .collect();
    // Until they are in the middle of their bodies and the sibling knows of all.
    std::thread::sleep(Duration::from_secs(2));
    info!("cutting a1 off");
    // Before the first of them is away, however long it takes to cut off the others.
    let began = Instant::now();
    world.owners().try_for_each(|index| world.cut_off(index, true))?;
    cut.store(true, Ordering::SeqCst);
    rig::until("the sibling's first answer", STALLED, LOOK_EVERY, || {
        let answer =
            way.connect(LOOK_EVERY * 20).and_then(|mut tls| way.get(&mut tls, "master.m3u8", ""));
        Ok(matches!(answer, Ok(Answer::Body(_))))
    })?;
    report.takeover_ms = millis(began.elapsed());
    crowds.iter_mut().try_for_each(Crowd::watch)?;
    report.crowd = args.crowd;
    for crowd in &mut crowds {
        let gone = crowd.gone()?;
        report.reset += gone.count;
        report.reset_ms = report.reset_ms.max(gone.last_ms);
    }
    report.waiting = clients.len();
    let mut slowest = Some(Duration::ZERO);
    for client in clients {
        let next = client.join().map_err(|_| anyhow::anyhow!("a client panicked"))??;
        report.stalls += usize::from(next.is_none());
        slowest = slowest.zip(next).map(|(slowest, next)| slowest.max(next));
    }
    report.next_byte_ms = slowest.map(millis);
    info!(?report, "taken over");
    Ok(())
}

/// Connects the crowd, the same number to each machine that will be cut off.
fn crowds(args: &Args, world: &World, room: &Path, within: Duration) -> Result<Vec<Crowd>> {
    let owners: Vec<u8> = world.owners().collect();
    let start = |(place, index): (usize, &u8)| {
        let count = (args.crowd + place) / owners.len();
        Crowd::start(service(*index), &room.join("ca.pem"), count, within)
    };
    let mut crowds: Vec<Crowd> = owners.iter().enumerate().map(start).collect::<Result<_>>()?;
    crowds.iter_mut().try_for_each(Crowd::connected)?;
    Ok(crowds)
}

fn give_back(by: By, world: &World, way: &Way, long: Pattern, report: &mut Report) -> Result<()> {
    let players = Players::start(way, long);
    std::thread::sleep(Duration::from_secs(1));
    info!("a1 is back");
    world.owners().try_for_each(|index| world.cut_off(index, false))?;
    let back = rig::until("until a1 has its address", BACK_MAX, LOOK_EVERY, || {
        Ok(match by {
            By::Keepalived => world.has_alone(0, service(0).ip()),
            By::Bird => World::is_routed_to(0)?,
        })
    })?;
    report.give_back_ms = millis(back);
    std::thread::sleep(AFTER);
    let played = players.end()?;
    let sum = |of: fn(&Played) -> u64| played.iter().map(of).sum::<u64>();
    report.give_back_cut = sum(|one| one.cut);
    report.give_back_again = sum(|one| one.again);
    report.give_back_sent_on = sum(|one| one.sent_on);
    report.give_back_stalls = sum(|one| u64::from(STALLED <= one.gap));
    report.wrong_bytes += sum(|one| one.wrong);
    report.give_back_gap_ms = played.iter().map(|one| millis(one.gap)).max().unwrap_or(0);
    info!(?report, "given back");
    Ok(())
}

fn split(world: &World, way: &Way, long: Pattern, report: &mut Report) -> Result<()> {
    let players = Players::start(way, long);
    std::thread::sleep(Duration::from_secs(1));
    info!("the machines do not hear each other");
    world.split(true)?;
    std::thread::sleep(SPLIT);
    ensure!(world.has(0, service(0).ip()) && world.has(1, service(0).ip()), "both have it");
    world.split(false)?;
    std::thread::sleep(SPLIT);
    let played = players.end()?;
    report.split_pieces = played.iter().map(|one| one.pieces).sum();
    report.split_gap_ms = played.iter().map(|one| millis(one.gap)).max().unwrap_or(0);
    report.wrong_bytes += played.iter().map(|one| one.wrong).sum::<u64>();
    Ok(())
}

/// Gives the first machine one more address while viewers play by the one that it has, plays by the
/// new one, and takes it away.
fn change(world: &World, way: &Way, long: Pattern, report: &mut Report) -> Result<()> {
    let players = Players::start(way, long);
    std::thread::sleep(Duration::from_secs(1));
    info!("a1 is given one more address");
    let (old, new) = (service(0).ip(), additional().ip());
    world.give(0, &[old, new])?;
    let has =
        rig::until("until a1 has one more", BACK_MAX, LOOK_EVERY, || Ok(world.has_alone(0, new)))?;
    report.added_ms = millis(has);
    let by_new = Players::start(&Way { at: additional(), ..way.clone() }, long);
    std::thread::sleep(AFTER);
    let by_new = by_new.end()?;
    ensure!(by_new.iter().all(|one| one.pieces != 0), "nobody played by the new address");
    world.give(0, &[old])?;
    let gone = rig::until("until nobody has it", BACK_MAX, LOOK_EVERY, || {
        Ok((0..world.count()).all(|index| !world.has(index, new)))
    })?;
    report.removed_ms = millis(gone);
    std::thread::sleep(AFTER);
    let played = players.end()?;
    report.change_cut = played.iter().map(|one| one.cut).sum();
    report.change_gap_ms = played.iter().map(|one| millis(one.gap)).max().unwrap_or(0);
    report.wrong_bytes += played.iter().chain(&by_new).map(|one| one.wrong).sum::<u64>();
    Ok(())
}

/// Viewers who play on, each on a thread.
struct Players {
    end: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Played>>,
}

impl Players {
    fn start(way: &Way, long: Pattern) -> Self {
        let end = Arc::new(AtomicBool::new(false));
        let one = |_| {
            let (way, end) = (way.clone(), Arc::clone(&end));
            std::thread::spawn(move || play(&way, long, &end))
        };
        let threads = (0..PLAYING).map(one).collect();
        Self { end, threads }
    }

    fn end(self) -> Result<Vec<Played>> {
        self.end.store(true, Ordering::SeqCst);
        let ended = self.threads.into_iter().map(JoinHandle::join);
        ended.map(|played| played.map_err(|_| anyhow::anyhow!("a player panicked"))).collect()
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

impl Report {
    fn check(&self, by: By) -> Result<()> {
        ensure!(self.takeover_ms <= TAKEOVER_MAX_MS, "first answer after {} ms", self.takeover_ms);
        let next = self.next_byte_ms.unwrap_or(u64::MAX);
        ensure!(next <= NEXT_BYTE_MAX_MS, "next byte after {next} ms");
        ensure!(self.stalls == 0, "{} of {} stalled", self.stalls, self.waiting);
        ensure!(self.reset == self.crowd, "{} of {} reset", self.reset, self.crowd);
        ensure!(self.reset_ms <= RESET_MAX_MS, "the last was reset after {} ms", self.reset_ms);
        // A route goes back at once: docs/operate/takeover.md.
        let may_cut = by == By::Bird;
        let cut = self.give_back_cut;
        ensure!(may_cut || cut == 0, "{cut} bodies cut as it went back");
        ensure!(self.give_back_stalls == 0, "{} stalled as it went back", self.give_back_stalls);
        ensure!(self.wrong_bytes == 0, "{} pieces with wrong bytes", self.wrong_bytes);
        ensure!(may_cut || self.give_back_sent_on != 0, "nobody was sent on as it went back");
        for (gap, when) in [
            (self.give_back_gap_ms, "as it went back"),
            (self.split_gap_ms, "while the machines did not hear each other"),
            (self.change_gap_ms, "as addresses were changed"),
        ] {
            ensure!(gap <= GAP_MAX_MS, "nothing for {gap} ms {when}");
        }
        ensure!(self.change_cut == 0, "{} bodies cut by a change", self.change_cut);
        let is_split = by == By::Keepalived;
        ensure!(
            !is_split || self.split_pieces != 0,
            "nobody played while they did not hear each other"
        );
        for player in &self.players {
            let name = &player["name"];
            for field in ["failover_ms", "hang_failover_ms"] {
                let next = player[field].as_u64().unwrap_or(u64::MAX);
                ensure!(next <= NEXT_BYTE_MAX_MS, "{name}: {field} is {next}");
            }
            let of = |value: &Value| value.as_f64().unwrap_or(0.0);
            let (after_cut, hang) = (of(&player["played_after_kill_s"]), &player["hang"]);
            ensure!(
                PLAYED_ON_MIN_S <= after_cut && of(&hang["buffer_s"]) < of(&hang["played_on_s"]),
                "{name}: played {after_cut} s on after the first cut: {player}"
            );
            for stalls in [&player["stalls"], &player["hang"]["stalls"], &player["wrong_bytes"]] {
                ensure!(*stalls == 0, "{name}: stalls or wrong bytes: {player}");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::browser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: super::Args,
    }

    #[test]
    fn what_cannot_be_run_is_refused_on_the_command_line() {
        let parse = |words: &[&str]| Line::try_parse_from([&["takeover"], words].concat());
        assert!(parse(&["--crowd", "36000", "--players", "hls.js", "Shaka"]).is_ok());
        assert!(parse(&["--no-players"]).is_ok());
        assert_eq!(parse(&[]).unwrap().args.players, browser::PLAYERS);
        for (words, said) in [
            (["--crowd", "36001"], "at most 36,000: two machines of 18,000"),
            (["--players", "vlc"], "possible values: hls.js, dash.js, Shaka, video.js"),
        ] {
            let error = parse(&words).err().unwrap().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
