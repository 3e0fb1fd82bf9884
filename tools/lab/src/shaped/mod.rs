//! `nearcast-lab shaped`: real players behind slow links, paced and not.
//!
//! ```text
//! for each link, in rounds, all at the same time, each behind a link of its own:
//!   unpaced          hls.js  dash.js  Shaka  video.js
//!   paced, CMCD      hls.js  dash.js  Shaka              (video.js has no CMCD)
//!   paced, silent    hls.js  dash.js  Shaka  video.js
//! ──> sessions, one a line of a file ──> table, verdict, plot
//! ```
//!
//! A player's three begin at the same moment, and the next player's some time later. What disturbs
//! the machine disturbs all three, so each paced session is compared with the unpaced one of the
//! same player in the same round. Cubic on all sides.

mod film;
mod neighbour;
mod plot;
mod table;
mod world;

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, Result, anyhow, ensure};
use model::units::{BitsPerSecond, Bytes};
use serde::{Deserialize, Serialize};
use tracing::info;

use crate::link::Shape;
use table::Report;
use world::World;

/// `nearcast-lab shaped`: as root, with iproute2, ffmpeg, node and Chromium.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Links: Mb/s and queue in KiB.
    #[arg(long, value_delimiter = ',', default_value = "3:32,3:256,8:32,8:256,30:32,30:256")]
    links: Vec<LinkArg>,
    /// Rounds of each link: in each, three or four sessions of each kind. None: what the file has.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(0..=100))]
    rounds: u32,
    /// Length of a session, in seconds.
    #[arg(long, default_value_t = 45, value_parser = clap::value_parser!(u64).range(5..=90))]
    seconds: u64,
    /// Sessions are added to this file, a JSON object a line, and the table is of all that it has.
    #[arg(long)]
    sessions: Option<PathBuf>,
    /// Write the table to this file, as Markdown.
    #[arg(long)]
    markdown: Option<PathBuf>,
    /// Draw the plot into this file, as SVG.
    #[arg(long)]
    svg: Option<PathBuf>,
    /// More of `[pacing]` of the appliance that paces.
    #[arg(long, default_value = "")]
    pacing: String,
    /// Print one JSON object as the last line of output.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug)]
struct LinkArg(Shape);

impl FromStr for LinkArg {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let parts = text.split_once(':').and_then(|(rate, queue)| {
            let (rate, queue): (u64, u64) = (rate.parse().ok()?, queue.parse().ok()?);
            let sane = (1..=1000).contains(&rate) && (8..=8192).contains(&queue);
            sane.then_some(Shape {
                rate: BitsPerSecond(rate * 1_000_000),
                queue: Bytes::kib(queue),
            })
        });
        parts.map(Self).ok_or_else(|| anyhow!("say Mb/s and KiB, 8 or more, as in 3:32"))
    }
}

/// How a session is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Arm {
    Unpaced,
    /// Paced, and the player says what it needs.
    Cmcd,
    /// Paced, and the player says nothing.
    Silent,
}

const PLAYERS: [&str; 4] = ["hls.js", "dash.js", "Shaka", "video.js"];

impl Arm {
    fn players(self) -> &'static [&'static str] {
        if self == Self::Cmcd { &PLAYERS[..3] } else { &PLAYERS }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Unpaced => "unpaced",
            Self::Cmcd => "paced, CMCD",
            Self::Silent => "paced, silent",
        }
    }
}

/// Who plays at the same time.
struct Round {
    number: u32,
    shape: Shape,
    players: Vec<(Arm, &'static str)>,
}

impl Round {
    /// The same player of each kind side by side, since they begin at the same moment; players, and
    /// kinds, in another order each time.
    fn new(number: u32, shape: Shape) -> Self {
        let turn = usize::try_from(number).unwrap_or(0);
        let (mut names, mut arms) = (PLAYERS, [Arm::Unpaced, Arm::Cmcd, Arm::Silent]);
        names.rotate_left(turn % PLAYERS.len());
        arms.rotate_left(turn % 3);
        let each = |name: &'static str| {
            let with = arms.into_iter().filter(move |arm| arm.players().contains(&name));
            with.map(move |arm| (arm, name))
        };
        Self { number, shape, players: names.into_iter().flat_map(each).collect() }
    }
}

/// What one player saw, and what its link did.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Session {
    rate_bps: u64,
    queue_bytes: u64,
    round: u32,
    arm: Arm,
    player: String,
    /// None if it never began.
    start_ms: Option<f64>,
    stalls: f64,
    stall_ms: f64,
    played_s: f64,
    mean_kbps: f64,
    error: Option<String>,
    /// Of the link: sent, and dropped by the queue.
    packets: u64,
    drops: u64,
    neighbour_ms_p50: f64,
    neighbour_ms_p95: f64,
    neighbour_lost: u32,
}

/// Plays, judges and prints.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut sessions = Vec::new();
    if let Some(path) = args.sessions.as_ref().filter(|path| path.exists()) {
        for (number, line) in (1..).zip(BufReader::new(File::open(path)?).lines()) {
            let session = serde_json::from_str(&line?);
            let place = || format!("{}, line {number}: not a session", path.display());
            sessions.push(session.with_context(place)?);
        }
    }
    if 0 < args.rounds {
        play(args, &mut sessions)?;
    }
    ensure!(!sessions.is_empty(), "there are no sessions: name their file, or ask for rounds");
    let report = Report::of(&sessions)?;
    if let Some(path) = &args.markdown {
        std::fs::write(path, report.markdown())?;
    }
    if let Some(path) = &args.svg {
        std::fs::write(path, plot::svg(&report))?;
    }
    rig::say(args.json, &report, || report.markdown())?;
    report.verdict()
}

fn play(args: &Args, sessions: &mut Vec<Session>) -> Result<()> {
    rig::raise_file_limit()?;
    let world = World::new(&args.pacing)?;
    for LinkArg(shape) in &args.links {
        let of_it =
            |one: &&Session| (one.rate_bps, one.queue_bytes) == (shape.rate.0, shape.queue.0);
        // Goes on where the file ends.
        let first = sessions.iter().filter(of_it).map(|one| one.round + 1).max().unwrap_or(0);
        for number in first..first + args.rounds {
            rig::stop::check()?;
            let played = world.play(&Round::new(number, *shape), args.seconds)?;
            for one in &played {
                info!(arm = ?one.arm, player = one.player, start_ms = one.start_ms,
                    stalls = one.stalls, kbps = one.mean_kbps, played_s = one.played_s,
                    drops = one.drops, packets = one.packets,
                    neighbour_ms = one.neighbour_ms_p50, error = one.error, "session");
            }
            if let Some(path) = &args.sessions {
                let mut file = OpenOptions::new().create(true).append(true).open(path)?;
                for one in &played {
                    writeln!(file, "{}", serde_json::to_string(one)?)?;
                }
            }
            sessions.extend(played);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_read_and_what_cannot_be_is_refused() {
        let shape = "3:32".parse::<LinkArg>().unwrap().0;
        assert_eq!((shape.rate.0, shape.queue.0), (3_000_000, 32_768));
        for wrong in ["3", "3:", ":32", "0:32", "3:4", "x:32", "3:32:1"] {
            assert!(wrong.parse::<LinkArg>().unwrap_err().to_string().contains("3:32"), "{wrong}");
        }
    }

    #[test]
    fn a_round_has_each_player_of_each_kind_and_begins_elsewhere_each_time() {
        let shape = "3:32".parse::<LinkArg>().unwrap().0;
        let [first, second] = [0, 1].map(|number| Round::new(number, shape).players);
        assert_eq!(first.len(), 11);
        assert!(!first.contains(&(Arm::Cmcd, "video.js")));
        assert_ne!(first[0], second[0]);
        assert!(first.iter().all(|one| second.contains(one)));
    }
}
