//! `nearcast-lab masters`: who of a fill cluster fetches from the origin, and who takes over.
//!
//! ```text
//! origin that counts ──> a master of de (de-1: 2, de-2: 1) ──> the other two
//!                   └──> a master of fr (fr-1: 2, fr-2: 1) ──> the other two
//! ```
//!
//! A first film comes while nobody fails: the origin sends it once for each master and cluster. In
//! the middle of a file of a second one, an appliance that fetches it from the origin is killed
//! (SIGKILL), and started again once the others have the film: the origin has sent what it had got
//! on top, and of what the others fetched from siblings next to nothing came twice. All processes
//! are real.
//!
//! Arbitrary: films of 34 MiB, an origin at 8 MiB/s, which is four seconds for each copy.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rig::api;
use rig::bounds::{Bounds, DependsOn};
use rig::certificate::Certificate;
use rig::client::Pattern;
use rig::fleet::{Fleet, Plan, Role, appliance_name, healthy};
use rig::stage::Origin;
use serde::Serialize;
use serde_json::json;
use tracing::info;

/// `nearcast-lab masters`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many of each fill cluster fetch from the origin; 0 for all, which is found to be wrong.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(..=3))]
    masters: u32,
    /// First of the ports on 127.0.0.1.
    #[arg(long, default_value_t = 18_840)]
    port: u16,
    /// Print one JSON object as the last line of output.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Default, Serialize)]
struct Report {
    /// Bytes of one film.
    film_bytes: u64,
    /// The origin's egress for the first film, as a multiple of it.
    origin_films: f64,
    /// The same for the second, whose master was killed.
    origin_films_killed: f64,
    /// What the one that was killed had fetched from the origin.
    killed_bytes: u64,
    /// From the kill until all others held the film.
    replaced_s: f64,
    /// Bytes that somebody fetched though it had them, without the one that was killed.
    fetched_twice_bytes: u64,
    /// The same of that one: not bounded yet.
    killed_twice_bytes: u64,
    escalations: u64,
    bounds: Bounds,
}

/// What an appliance says of its fill.
#[derive(Clone, Copy, Debug, Default)]
struct Fetched {
    siblings: u64,
    origins: u64,
    escalations: u64,
}

const ASSET: &str = "film";
const APPLIANCES: u16 = 6;
const CLUSTERS: f64 = 2.0;
const RENDITIONS: usize = 4;
const LARGE: usize = 8 << 20;
const SMALL: usize = 64 << 10;
const SMALL_COUNT: usize = 8;
const ORIGIN_RATE: u64 = 8 << 20;
/// What is killed has fetched so much of the second film.
const KILL_AFTER: u64 = 2 << 20;
/// Each of two threads loses what its connection had in its buffers, of a request of 1 MiB.
const LOST_MAX: u64 = 2 << 20;
const WHOLE_MAX: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Runs it and prints the result on stdout.
pub(crate) fn run(args: &Args) -> Result<()> {
    rig::raise_file_limit()?;
    let room = tempfile::tempdir()?;
    let origin = Origin::start()?;
    origin.limit(ORIGIN_RATE);
    let plan = plan(args, room.path(), &origin);
    let certificate = Certificate::make(room.path())?;
    let mut fleet = Fleet::begin(plan, certificate, None)?;
    rig::until("until all appliances are healthy", WHOLE_MAX, LOOK_EVERY, || {
        fleet.check()?;
        Ok(healthy(&fleet.get(Role::Writer, "/v1/fleet")?) == usize::from(APPLIANCES))
    })?;
    let film_bytes = publish(&fleet, &origin, room.path(), 1)?;
    let mut report = Report { film_bytes, ..Report::default() };
    fleet.wait_until_whole(WHOLE_MAX)?;
    report.origin_films = ratio(origin.sent(), film_bytes);
    let mut twice = 0;
    for index in 0..APPLIANCES {
        twice += fetched(&fleet, index)?.all().saturating_sub(report.film_bytes);
    }
    killed(&mut fleet, &origin, room.path(), &mut report, &mut twice)?;
    report.fetched_twice_bytes = twice;
    judge(args, &mut report);
    rig::say(args.json, &report, || text(&report) + "\n" + &report.bounds.text())?;
    report.bounds.verdict()
}

/// The second film: who fetches it from the origin is killed in the middle.
fn killed(
    fleet: &mut Fleet,
    origin: &Origin,
    room: &Path,
    report: &mut Report,
    twice: &mut u64,
) -> Result<()> {
    let mut before = Vec::new();
    for index in 0..APPLIANCES {
        before.push(fetched(fleet, index)?);
    }
    let sent_before = origin.sent();
    let film = publish(fleet, origin, room, 2)?;
    ensure!(film == report.film_bytes, "both films are equally long");
    let mut found = None;
    rig::until("until a master is in the middle", WHOLE_MAX, LOOK_EVERY, || {
        for index in 0..APPLIANCES {
            let now = fetched(fleet, index)?.since(&before[usize::from(index)]);
            if KILL_AFTER <= now.origins && now.all() < film {
                found = Some((index, now));
            }
        }
        Ok(found.is_some())
    })?;
    let (victim, had) = found.context("a master fetches")?;
    fleet.kill_appliance(victim);
    info!(appliance = appliance_name(victim), bytes = had.origins, "killed in the middle");
    report.killed_bytes = had.origins;
    let others: Vec<u16> = (0..APPLIANCES).filter(|index| *index != victim).collect();
    let took = rig::until("until the others have it", WHOLE_MAX, LOOK_EVERY, || {
        fleet.check()?;
        let mut have = 0;
        for index in &others {
            let now = fetched(fleet, *index)?.since(&before[usize::from(*index)]);
            have += usize::from(film <= now.all());
        }
        Ok(have == others.len())
    })?;
    report.replaced_s = took.as_secs_f64();
    fleet.start_appliance(victim)?;
    fleet.wait_until_whole(WHOLE_MAX)?;
    report.origin_films_killed = ratio(origin.sent() - sent_before, film);
    for index in others {
        let now = fetched(fleet, index)?;
        *twice += now.since(&before[usize::from(index)]).all().saturating_sub(film);
        report.escalations += now.escalations;
    }
    let after = fetched(fleet, victim)?;
    report.escalations += after.escalations;
    // A block of each thread may have been half-way.
    report.killed_twice_bytes = (after.all() + had.all()).saturating_sub(film + (512 << 10));
    Ok(())
}

fn judge(args: &Args, report: &mut Report) {
    let copies = CLUSTERS * f64::from(args.masters.max(1));
    let bounds = &mut report.bounds;
    let nothing = DependsOn::Nothing;
    bounds.at_most("origin_films", copies * 1.02, report.origin_films, nothing);
    bounds.at_least("origin_films", 1.0, report.origin_films, nothing);
    let lost = ratio(report.killed_bytes + LOST_MAX, report.film_bytes);
    let shown = report.origin_films_killed;
    bounds.at_most("origin_films_killed", copies * 1.02 + lost, shown, nothing);
    // As of a fill that is stopped: what one object of a unit waits for costs those after it.
    let twice = ratio(report.fetched_twice_bytes, 1);
    bounds.at_most("fetched_twice_bytes", 0.05 * ratio(report.film_bytes, 1), twice, nothing);
    let escalations = ratio(report.escalations, 1);
    bounds.at_most("escalations", 0.0, escalations, DependsOn::ProcessorAndLoad);
}

fn plan(args: &Args, room: &Path, origin: &Origin) -> Plan {
    let site = |name: &str, cluster: &str| {
        (name.to_owned(), json!({ "prefixes": [], "fill_cluster": cluster }))
    };
    let sites =
        vec![site("de-1", "de"), site("fr-1", "fr"), site("de-2", "de"), site("fr-2", "fr")];
    let peers = (0..APPLIANCES).map(
        |index| json!({ "peer": { "listen": [format!("127.0.0.1:{}", args.port + 30 + index)] } }),
    );
    // Nobody waits so long in here.
    let policy = json!({
        "fill_masters": args.masters,
        "fill_elsewhere_after_s": 20,
        "fill_origin_after_s": 40,
    });
    let health = json!({
        "report_interval": "500 ms",
        "probe_after": "1 s",
        "stale_after": "2 s",
    });
    Plan {
        appliances: APPLIANCES,
        sites,
        policy,
        source: Some(format!("{}/", origin.url())),
        settings: json!({ "health": health }),
        appliance: json!({ "fill": { "concurrency": 2 } }),
        each: peers.collect(),
        ..Plan::new(room.join("fleet"), args.port, ASSET)
    }
}

/// Writes a film, has the origin offer it, and makes it the asset's current version; its length.
fn publish(fleet: &Fleet, origin: &Origin, room: &Path, number: u8) -> Result<u64> {
    let folder = room.join(format!("film-{number}"));
    let mut entry = "#EXTM3U\n".to_owned();
    let pattern = Pattern { seed: 0x6d61_7374_0000 + u64::from(number) };
    let mut bytes = 0;
    let mut put = |path: &str, content: Vec<u8>| -> Result<()> {
        fs::write(folder.join(path), &content)?;
        bytes += u64::try_from(content.len())?;
        origin.put(format!("/{path}"), Arc::new(content));
        Ok(())
    };
    for rendition in 0..RENDITIONS {
        fs::create_dir_all(folder.join(format!("v{rendition}")))?;
        // No file is in it twice: an appliance would fetch it once.
        let name = format!("#FILM:{number}-{rendition}");
        let mut media = format!("#EXTM3U\n#EXT-X-TARGETDURATION:2\n{name}\n");
        for segment in 0..=SMALL_COUNT {
            let mut content = vec![0; if segment == 0 { LARGE } else { SMALL }];
            pattern.fill(rendition * 100 + segment, 0, &mut content);
            let name = format!("s{segment}.mp4");
            put(&format!("v{rendition}/{name}"), content)?;
            writeln!(media, "#EXTINF:2,\n{name}")?;
        }
        media.push_str("#EXT-X-ENDLIST\n");
        put(&format!("v{rendition}/media.m3u8"), media.into_bytes())?;
        let bandwidth = 500_000 * (rendition + 1);
        writeln!(entry, "#EXT-X-STREAM-INF:BANDWIDTH={bandwidth}\nv{rendition}/media.m3u8")?;
    }
    writeln!(entry, "#FILM:{number}")?;
    put("master.m3u8", entry.into_bytes())?;
    fleet.ingest(&folder)?;
    Ok(bytes)
}

fn fetched(fleet: &Fleet, index: u16) -> Result<Fetched> {
    let page = api::page(&format!("http://{}/metrics", fleet.metrics(index)))?;
    let elsewhere = metric(&page, "fill_escalations_total{to=\"elsewhere\"}")?;
    Ok(Fetched {
        siblings: metric(&page, "fill_fetched_bytes_total{source=\"sibling\"}")?,
        origins: metric(&page, "fill_fetched_bytes_total{source=\"origin\"}")?,
        escalations: elsewhere + metric(&page, "fill_escalations_total{to=\"origin\"}")?,
    })
}

impl Fetched {
    fn all(&self) -> u64 {
        self.siblings + self.origins
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            siblings: self.siblings.saturating_sub(before.siblings),
            origins: self.origins.saturating_sub(before.origins),
            escalations: self.escalations.saturating_sub(before.escalations),
        }
    }
}

/// The figure behind a name of a page of metrics, whatever the prefix of all names.
fn metric(page: &str, name: &str) -> Result<u64> {
    let line = page.lines().find_map(|line| line.strip_prefix("nearcast_")?.strip_prefix(name));
    let line = line.with_context(|| format!("the page has no {name}"))?;
    Ok(line.trim().parse()?)
}

#[expect(clippy::as_conversions, reason = "figures for people, far below 2^53")]
fn ratio(bytes: u64, of: u64) -> f64 {
    bytes as f64 / of as f64
}

fn text(report: &Report) -> String {
    format!(
        "film {} bytes\norigin sent it {:.3} times, and {:.3} times where a master was killed \
         after {} bytes\nthe others had it {:.1} s after that\nfetched twice: {} bytes, \
         by the one that was killed \
         {}, escalations: {}",
        report.film_bytes,
        report.origin_films,
        report.origin_films_killed,
        report.killed_bytes,
        report.replaced_s,
        report.fetched_twice_bytes,
        report.killed_twice_bytes,
        report.escalations,
    )
}
