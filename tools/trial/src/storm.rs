//! `nearcast-lab storm`: the writer is killed and started, and every appliance reports at once.
//!
//! The appliances are threads that enrol and talk as real ones do, and hold a film and many titles
//! more, by the numbers that a manifest gives their files: first a report from where they were,
//! then, asked for it, all of them. Whoever is told to come again comes again after what it was
//! told. Valid if in the end nothing is missing, in time. The threads and the writer share the
//! cores.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Cursor, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::Scope;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use identity::code::Code;
use identity::credentials::Credentials;
use identity::enrol::{self, About, Address};
use identity::member::Member;
use model::inventory::{Check, FilesDelta};
use model::number::NumberSet;
use model::object::{BLOCK_LEN, Blocks, block_hash};
use model::units::Bytes;
use rig::bounds::{Bounds, DependsOn};
use rig::cpu::Account;
use rig::fleet::{Fleet, Plan, Role};
use serde::Serialize;
use serde_json::{Value, json};
use tracing::info;
use wire::v1::ingest::{NewFile, NewVersion};
use wire::v1::manifest::Manifest;
use wire::v1::report::{Drive, DriveState, Inventory, Load, Report as WireReport, ReportReply};

use crate::outage::Film;

/// `nearcast-lab storm`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many appliances.
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=4000))]
    appliances: u32,
    /// Objects that each of them holds.
    #[arg(long, default_value_t = 20_000, value_parser = objects())]
    objects: u32,
    /// Tell them by their ids, as appliances of the release before do.
    #[arg(long)]
    by_id: bool,
    /// First of the ports on 127.0.0.1.
    #[arg(long, default_value_t = 18760)]
    port: u16,
    /// Print one JSON object as the last line of output.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    appliances: u32,
    objects: u32,
    /// Length of a report with all that is held.
    report_bytes: usize,
    /// Reports with all that is held that were taken.
    full_lists: u64,
    /// Reports that were told to come again.
    refused: u64,
    /// Reports without an answer.
    unanswered: u64,
    /// From the moment at which the writer listened until it knew all of every appliance.
    recovered_s: f64,
    /// CPU time of the writer from its start until then.
    writer_cpu_s: f64,
    writer_memory_bytes: u64,
    bounds: Bounds,
}

struct Storm {
    address: Address,
    /// A report with all objects, without its beginning.
    full: Arc<[u8]>,
    /// A report without any.
    light: Arc<[u8]>,
    stop: AtomicBool,
    /// Nobody reports while the writer is away.
    quiet: AtomicBool,
    full_lists: AtomicU64,
    refused: AtomicU64,
    unanswered: AtomicU64,
}

/// Observed state should be complete again within this.
const RECOVERED_MAX: Duration = Duration::from_secs(10);
/// A run that takes longer is given up.
const GIVE_UP: Duration = Duration::from_secs(120);
/// The state of every appliance's inventory.
const STATE: u64 = 7;
const ASSET: &str = "film";
/// An ingest of more takes long in a debug build.
const FILES_PER_TITLE: usize = 500;
/// Appliances that enrol at a time.
const ENROL_AT_ONCE: usize = 8;
/// A thread of an appliance needs little.
const STACK: usize = 256 << 10;
/// How often an appliance looks whether it may report again.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// At least the film's own, and as many as a report by ids may list.
fn objects() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(50..=400_000)
}

/// Runs it and prints the result on stdout.
pub(crate) fn run(args: &Args) -> Result<()> {
    rig::raise_file_limit()?;
    let room = tempfile::tempdir()?;
    let source = room.path().join("source");
    Film::of(Duration::from_secs(20)).write(&source)?;
    // With so many, once in two seconds each is what an operator would choose.
    let health = json!({ "report_interval": "2 s", "probe_after": "4 s", "stale_after": "8 s" });
    // All of them have one address here.
    let fleet = json!({ "connections_max": 10_000, "connections_per_address_max": 10_000 });
    let settings = json!({ "health": health, "fleet": fleet });
    let plan = Plan { settings, ..Plan::new(room.path().join("fleet"), args.port, ASSET) };
    let mut fleet = Fleet::start(plan, &source)?;
    let members = register(&fleet, args.appliances)?;
    let mut held = film_objects(&source)?;
    let more = usize::try_from(args.objects)?.checked_sub(held.len()).context("a film has more")?;
    held.extend(ingest_more(&fleet, u32::try_from(more)?)?);
    let storm = Storm::new(&fleet, &held, args, &members[0])?;
    let mut report = storm.all(args, &mut fleet, &members)?;
    let (most, shown) = (RECOVERED_MAX.as_secs_f64(), report.recovered_s);
    report.bounds.at_most("recovered_s", most, shown, DependsOn::ProcessorAndLoad);
    rig::say(args.json, &report, || text(&report) + "\n" + &report.bounds.text())?;
    report.bounds.verdict()
}

impl Storm {
    fn new(fleet: &Fleet, held: &[String], args: &Args, any: &Credentials) -> Result<Self> {
        let address = format!("https://{}", fleet.members()).parse().map_err(anyhow::Error::msg)?;
        let set = numbers(&address, any, held.len())?;
        let rest = |from| -> Result<Arc<[u8]>> {
            let (to, came) = (STATE, if from == 0 { set.clone() } else { NumberSet::new() });
            let (gone, check) = (NumberSet::new(), Check::of_files(&set));
            let files = FilesDelta { from, to, came, gone, check, others: 0 };
            let files = (!args.by_id).then(|| wire::convert::files_out(&files));
            let (from, held) = match args.by_id {
                true if from == 0 => (0, held.to_vec()),
                true => (from, Vec::new()),
                false => (to, Vec::new()),
            };
            let report = wire_report(Inventory { from, to, held, ..Inventory::default() });
            let text = serde_json::to_string(&WireReport { files, ..report })?;
            let rest = text.strip_prefix(BEGINNING).context("the first field is not start_id")?;
            Ok(rest.as_bytes().into())
        };
        Ok(Self {
            address,
            full: rest(0)?,
            light: rest(STATE)?,
            stop: AtomicBool::new(false),
            quiet: AtomicBool::new(false),
            full_lists: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            unanswered: AtomicU64::new(0),
        })
    }

    fn all(&self, args: &Args, fleet: &mut Fleet, members: &[Credentials]) -> Result<Report> {
        let begin = Barrier::new(members.len() + 1);
        std::thread::scope(|scope| {
            for credentials in members {
                self.appliance(scope, credentials, &begin)?;
            }
            begin.wait();
            let measured = self.measure(args, fleet);
            self.stop.store(true, Ordering::SeqCst);
            measured
        })
    }

    fn measure(&self, args: &Args, fleet: &mut Fleet) -> Result<Report> {
        info!("all report for the first time");
        let count = usize::try_from(args.appliances)?;
        until_known(fleet, count, args.objects)?;
        self.quiet.store(true, Ordering::SeqCst);
        fleet.kill_control(Role::Writer);
        fleet.start_control(Role::Writer)?;
        for counter in [&self.full_lists, &self.refused, &self.unanswered] {
            counter.store(0, Ordering::SeqCst);
        }
        info!("the storm");
        self.quiet.store(false, Ordering::SeqCst);
        let recovered = until_known(fleet, count, args.objects)?;
        Ok(Report {
            appliances: args.appliances,
            objects: args.objects,
            report_bytes: BEGINNING.len() + self.full.len(),
            full_lists: self.full_lists.load(Ordering::SeqCst),
            refused: self.refused.load(Ordering::SeqCst),
            unanswered: self.unanswered.load(Ordering::SeqCst),
            recovered_s: recovered.as_secs_f64(),
            writer_cpu_s: writer_cpu(fleet)?.as_secs_f64(),
            writer_memory_bytes: fleet.writer_memory()?.0,
            bounds: Bounds::default(),
        })
    }

    fn appliance<'s>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        credentials: &'s Credentials,
        begin: &'s Barrier,
    ) -> Result<()> {
        let agent = enrol::agent(&self.address, credentials.client_tls()?);
        let name = &credentials.seen().member.name;
        let url = format!("{}/v1/appliances/{name}/report", enrol::control_url(&self.address));
        let thread = std::thread::Builder::new().stack_size(STACK);
        thread.spawn_scoped(scope, move || {
            begin.wait();
            let (mut known, mut sequence) = (STATE, 0_u64);
            while !self.stop.load(Ordering::SeqCst) {
                if self.quiet.load(Ordering::SeqCst) {
                    std::thread::sleep(LOOK_EVERY);
                    continue;
                }
                sequence += 1;
                let wait = self.report(&agent, &url, &mut known, sequence);
                let end = Instant::now() + wait;
                while Instant::now() < end && !self.stop.load(Ordering::SeqCst) {
                    // Quiet ends for all at once: nobody comes late to the storm.
                    if self.quiet.load(Ordering::SeqCst) {
                        break;
                    }
                    std::thread::sleep(LOOK_EVERY * 4);
                }
            }
        })?;
        Ok(())
    }

    /// One report; how long to wait for the next.
    fn report(&self, agent: &ureq::Agent, url: &str, known: &mut u64, sequence: u64) -> Duration {
        let is_full = *known != STATE;
        let rest = if is_full { &self.full } else { &self.light };
        let beginning = format!("{{\"start_id\":1,\"sequence\":{sequence},\"uptime_s\":");
        let len = beginning.len() + rest.len();
        let mut body = Cursor::new(beginning).chain(Cursor::new(rest));
        let request = agent.post(url).header("Content-Type", "application/json");
        let request = request.header("Content-Length", len.to_string());
        let Ok(mut answer) = request.send(ureq::SendBody::from_reader(&mut body)) else {
            self.unanswered.fetch_add(1, Ordering::SeqCst);
            return Duration::from_millis(500 + jitter(url, sequence) / 2);
        };
        if answer.status().as_u16() == 503 {
            self.refused.fetch_add(1, Ordering::SeqCst);
            return Duration::from_millis(1000 + jitter(url, sequence));
        }
        let Ok(reply) = answer.body_mut().read_json::<ReportReply>() else {
            self.unanswered.fetch_add(1, Ordering::SeqCst);
            return Duration::from_secs(1);
        };
        if is_full && reply.inventory == STATE {
            self.full_lists.fetch_add(1, Ordering::SeqCst);
        }
        *known = reply.inventory;
        // Asked for a list, a real one sends it with its next report, too.
        Duration::from_millis(reply.interval_ms)
    }
}

/// How all reports begin, up to what differs.
const BEGINNING: &str = "{\"start_id\":1,\"sequence\":1,\"uptime_s\":";

/// Up to a second, different for each and each time.
fn jitter(url: &str, sequence: u64) -> u64 {
    let mut x = url.bytes().fold(sequence, |x, b| x.rotate_left(7) ^ u64::from(b));
    x = x.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x >> 32) % 1000
}

/// Registers them and trades a code for an identity for each.
pub(crate) fn register(fleet: &Fleet, count: u32) -> Result<Vec<Credentials>> {
    info!(count, "enrolling");
    let names: Vec<String> = (0..count).map(|i| format!("s{i:04}")).collect();
    let per_thread = names.len().div_ceil(ENROL_AT_ONCE);
    let address: Address =
        format!("https://{}", fleet.members()).parse().map_err(anyhow::Error::msg)?;
    let one = |name: &String| -> Result<Credentials> {
        rig::stop::check()?;
        let path = format!("/v1/appliances/{name}");
        fleet.put(&path, &json!({ "site": "lab", "weight": 1 }))?;
        let code: Code = fleet.code(&format!("{path}/enrolment"))?.parse()?;
        let about = About { software: "lab", machine: "" };
        Ok(enrol::enrol(&address, &Member::appliance(name), &code, about)?)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = names
            .chunks(per_thread)
            .map(|names| scope.spawn(move || names.iter().map(one).collect::<Result<Vec<_>>>()))
            .collect();
        let mut all = Vec::new();
        for thread in threads {
            all.extend(thread.join().unwrap_or_else(|_| bail!("a thread panicked"))?);
        }
        Ok(all)
    })
}

/// Waits until every appliance is healthy and all its objects are known; how long that took.
fn until_known(fleet: &mut Fleet, count: usize, objects: u32) -> Result<Duration> {
    let known = |fleet: &Fleet| -> Option<usize> {
        let view = fleet.get(Role::Writer, "/v1/fleet").ok()?;
        let appliances = view["sites"][0]["appliances"].as_array()?;
        let is_known = |a: &&Value| a["state"] == "healthy" && a["objects_held"] == objects;
        let copies = |asset: &Value| usize::try_from(asset["copies_complete"].as_u64()?).ok();
        let complete = view["assets"].as_array()?.iter().map(copies).min()??;
        Some(appliances.iter().filter(is_known).count().min(complete))
    };
    let mut now = 0;
    let known = rig::until("to know all", GIVE_UP, Duration::from_millis(100), || {
        fleet.check()?;
        now = known(fleet).unwrap_or(0);
        Ok(now == count)
    });
    known.with_context(|| format!("{now} of {count} are known"))
}

/// All that the writer has used.
fn writer_cpu(fleet: &Fleet) -> Result<Duration> {
    Account::Processes(fleet.writer_id().context("the writer does not run")?).used()
}

/// Titles with so many objects in all, of which control knows no more than their names: the ids.
fn ingest_more(fleet: &Fleet, count: u32) -> Result<Vec<String>> {
    info!(count, "ingesting more");
    let mut ids = Vec::new();
    for first in (0..count).step_by(FILES_PER_TITLE) {
        let mut files = BTreeMap::new();
        for n in first..count.min(first.saturating_add(u32::try_from(FILES_PER_TITLE)?)) {
            let hash = block_hash(0, &n.to_le_bytes(), true);
            let object = Blocks::of_hashes(Bytes(4), vec![hash])?.id().to_string();
            let (len, content_type) = (4, "video/mp4".to_owned());
            ids.push(object.clone());
            let blocks = STANDARD.encode(hash.0);
            let file = NewFile { object, len, content_type, blocks, rendition: 0 };
            files.insert(format!("{n:06}.mp4"), file);
        }
        let new = NewVersion {
            sources: vec!["https://127.0.0.1:9/".to_owned()],
            modified_unix_s: 1,
            files,
            entries: Vec::new(),
            window: None,
            again: false,
        };
        let path = format!("/v1/assets/more-{first}/versions/more-{first}-1");
        fleet.put(&path, &serde_json::to_value(new)?)?;
    }
    Ok(ids)
}

/// The numbers of all files: by the manifest of an appliance that has reported what its drives can
/// hold.
fn numbers(address: &Address, credentials: &Credentials, count: usize) -> Result<NumberSet> {
    let agent = enrol::agent(address, credentials.client_tls()?);
    let name = &credentials.seen().member.name;
    let url = format!("{}/v1/appliances/{name}", enrol::control_url(address));
    let nothing = Inventory { to: 1, ..Inventory::default() };
    agent.post(format!("{url}/report")).send_json(wire_report(nothing))?;
    let mut numbers = NumberSet::new();
    rig::until("to have a manifest", GIVE_UP, Duration::from_millis(100), || {
        let mut answer = agent.get(format!("{url}/manifest?known=0")).call()?;
        let text = answer.body_mut().with_config().limit(64 << 20).read_to_string()?;
        let Some((_, manifest)) = text.split_once('\n') else { return Ok(false) };
        let manifest: Manifest = serde_json::from_str(manifest)?;
        let numbered = wire::convert::manifest_in(&manifest)?.numbered();
        numbers = numbered.iter().flatten().map(|(_, file)| *file).collect();
        Ok(numbers.len() == Bytes::of(count).0)
    })?;
    Ok(numbers)
}

/// The objects of the film: an inventory that lacks one of them is not complete.
fn film_objects(source: &Path) -> Result<Vec<String>> {
    let mut objects = BTreeSet::new();
    for entry in std::fs::read_dir(source)? {
        let bytes = std::fs::read(entry?.path())?;
        let len = Bytes::of(bytes.len());
        ensure!(len <= BLOCK_LEN, "a file of more than one block");
        let blocks = Blocks::of_hashes(len, vec![block_hash(0, &bytes, true)])?;
        objects.insert(blocks.id().to_string());
    }
    Ok(objects.into_iter().collect())
}

/// A report of an appliance that serves and has nothing else to tell.
pub(crate) fn wire_report(inventory: Inventory) -> WireReport {
    let drive = Drive {
        id: "ab".repeat(16),
        path: "/d/0".to_owned(),
        state: DriveState::Ok,
        capacity_bytes: 1 << 40,
        free_bytes: 1 << 40,
        ..Drive::default()
    };
    WireReport {
        start_id: 1,
        sequence: 1,
        base_url: "https://127.0.0.1:9".to_owned(),
        drives: vec![drive],
        load: Load { serving: true, connections_max: 1000, ..Load::default() },
        inventory,
        ..WireReport::default()
    }
}

fn text(report: &Report) -> String {
    format!(
        "{} appliances with {} objects each ({} B): all known again after {:.2} s, of which the \
         writer used {:.2} s of CPU time; {} told to come again, {} unanswered; the writer had at \
         most {} MB",
        report.appliances,
        report.objects,
        report.report_bytes,
        report.recovered_s,
        report.writer_cpu_s,
        report.refused,
        report.unanswered,
        report.writer_memory_bytes / 1_000_000
    )
}
