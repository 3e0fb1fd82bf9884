//! Two appliances, one that paces and one that does not, and players in one Chromium, each behind a
//! link of its own.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rig::stage::{Appliance, Film, Setup, Stage};
use rig::statistics::quantile;
use serde_json::{Value, json};

use super::film::{self, bitrates};
use super::neighbour::{self, Delays};
use super::{Arm, Round, Session};
use crate::link::{Homes, Link};

/// Of the appliance that does not pace; the other has the next.
const PORT: u16 = 18_701;
const FILL_MAX: Duration = Duration::from_secs(60);
/// Between the beginnings of two players, which take the CPU for a while.
const APART_MS: usize = 2000;
/// Chromium with all its pages.
const OPEN_MAX_S: u64 = 60;

pub(super) struct World {
    sides: [Side; 2],
    homes: Homes,
    _dir: tempfile::TempDir,
}

/// An appliance and what is around it.
struct Side {
    /// Where players find the film, without host.
    base: String,
    spki: String,
    port: u16,
    _appliance: Appliance,
    _stage: Stage,
}

impl World {
    /// Two appliances that hold the film; `pacing` is more of `[pacing]` of the one that paces.
    pub(super) fn new(pacing: &str) -> Result<Self> {
        // First: who is not root has waited for nothing.
        let homes = Homes::new("shaped")?;
        let film = film::film()?;
        let dir = tempfile::Builder::new().prefix("nearcast-shaped-").tempdir()?;
        let off = side(&film, &dir.path().join("unpaced"), PORT, "mode = \"off\"")?;
        let own = side(&film, &dir.path().join("paced"), PORT + 1, pacing)?;
        Ok(Self { sides: [off, own], homes, _dir: dir })
    }

    fn side(&self, arm: Arm) -> &Side {
        &self.sides[usize::from(arm != Arm::Unpaced)]
    }

    /// All of these play at once.
    pub(super) fn play(&self, round: &Round, seconds: u64) -> Result<Vec<Session>> {
        let links: Result<Vec<Link>> = (1..)
            .zip(&round.players)
            .map(|(index, _)| self.homes.link(index, round.shape))
            .collect();
        let links = links?;
        let names: Vec<&str> = round.players.iter().map(|(_, name)| *name).collect();
        let after = |name: &str| {
            let before: BTreeSet<&str> =
                names.iter().copied().take_while(|one| *one != name).collect();
            before.len() * APART_MS
        };
        let sessions: Vec<Value> = round
            .players
            .iter()
            .zip(&links)
            .map(|((arm, player), link)| {
                let Side { base, port, .. } = self.side(*arm);
                let base = format!("https://{}:{port}{base}", link.near);
                json!({
                    "player": player,
                    "cmcd": *arm == Arm::Cmcd,
                    "base": base,
                    "after_ms": after(player),
                })
            })
            .collect();
        let spki: Vec<&str> = self.sides.iter().map(|side| side.spki.as_str()).collect();
        let options = json!({
            "spki": spki.join(","),
            "seconds": seconds,
            "bitrates": bitrates(),
            "sessions": sessions,
        });
        let browser = || browse(&self.homes, &options, seconds);
        let (played, delays) = neighbour::beside(&self.homes, &links, browser)?;
        ensure!(played.len() == links.len(), "{} of {} sessions", played.len(), links.len());
        let each = round.players.iter().zip(&links).zip(played).zip(delays);
        each.map(|(((who, link), played), delays)| session(round, *who, link, &played, &delays))
            .collect()
    }
}

fn side(film: &Film, dir: &Path, port: u16, pacing: &str) -> Result<Side> {
    let (drives, state) = ([dir.join("drive")], dir.join("state"));
    std::fs::create_dir_all(&drives[0])?;
    let mut stage = Stage::new(dir)?;
    stage.publish(&[film])?;
    Appliance::format(&drives[0])?;
    let settings = [
        ("APPLIANCE_SERVE_LISTEN", format!("[\"{}:{port}\"]", Ipv4Addr::UNSPECIFIED)),
        ("APPLIANCE_SERVE_CONGESTION", "[\"cubic\"]".to_owned()),
    ];
    let more = &format!("[pacing]\n{pacing}\n");
    let setup = Setup { more, settings: &settings, ..Setup::new("shaped", &drives, &state) };
    let mut appliance = stage.start(&setup)?;
    stage.wait_until_held(&mut appliance, &[film], FILL_MAX)?;
    let (base, spki) = (stage.base(film)?, stage.certificate().spki()?);
    Ok(Side { base, spki, port, _appliance: appliance, _stage: stage })
}

/// What the script says of each session.
fn browse(homes: &Homes, options: &Value, seconds: u64) -> Result<Vec<Value>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../browser");
    let most = (seconds + OPEN_MAX_S).to_string();
    let mut node = Command::new("ip")
        // Players are on machines of their own: here they may not keep an appliance from its CPU.
        .args(["netns", "exec", &homes.name, "nice", "-n", "10"])
        .args(["timeout", &most, "node", "shaped.mjs"])
        .current_dir(&folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start node: install Debian's packages nodejs and chromium")?;
    let mut input = node.stdin.take().context("node has no stdin")?;
    input.write_all(options.to_string().as_bytes())?;
    drop(input);
    let output = node.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "shaped.mjs failed ({}): {said}", output.status);
    let last = said.lines().next_back().unwrap_or_default();
    serde_json::from_str(last).with_context(|| format!("shaped.mjs gave no result: {last}"))
}

fn session(
    round: &Round,
    (arm, player): (Arm, &'static str),
    link: &Link,
    played: &Value,
    delays: &Delays,
) -> Result<Session> {
    let number = |name: &str| played[name].as_f64().with_context(|| format!("no {name}"));
    let seen = link.seen()?;
    let came = u32::try_from(delays.ms.len())?;
    Ok(Session {
        rate_bps: round.shape.rate.0,
        queue_bytes: round.shape.queue.0,
        round: round.number,
        arm,
        player: player.to_owned(),
        start_ms: played["start_ms"].as_f64(),
        stalls: number("stalls")?,
        stall_ms: number("stall_ms")?,
        played_s: number("played_s")?,
        mean_kbps: number("mean_kbps")?,
        error: played["error"].as_str().map(str::to_owned),
        packets: seen.packets,
        drops: seen.drops,
        neighbour_ms_p50: quantile(&delays.ms, 0.5).unwrap_or(0.0),
        neighbour_ms_p95: quantile(&delays.ms, 0.95).unwrap_or(0.0),
        neighbour_lost: delays.sent.saturating_sub(came),
    })
}
