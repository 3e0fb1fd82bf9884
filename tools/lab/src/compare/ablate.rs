//! `nearcast-lab ablate`: what each optimisation of the serve path is worth.
//!
//! ```text
//! two filled appliances ──> one as it is, one with one thing switched off ([ablation])
//! a pair: full, changed, changed, full (the next one begins with the other), a window each
//! then one window more under perf ──> flame graph
//! a row: the median over pairs of (changed CPU s/GB) / (full)
//! ```
//!
//! The first row switches nothing off: what it shows is noise. A row is beyond it if its ratios
//! differ from the first row's by more than chance.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use rig::client::{Ranges, Receive};
use rig::process::Process;
use rig::statistics::{Spread, median_of, quantile};
use serde::Serialize;
use tracing::info;

use super::congestion::Chosen;
use super::group::Group;
use super::network::Link;
use super::ours::{Change, Site};
use super::report::{Turn, said};
use super::workload::Name;
use super::{Asking, Bench, Common, Flames, Room, Server, ours};
use crate::processor::Processor;

/// So many standard deviations of the rank sum are no chance: one time in thirty by the normal
/// distribution; with five pairs, 23 of the 25 comparisons have to agree.
const DEVIATIONS_MIN: f64 = 2.1;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Row {
    /// Nothing: the noise of this measurement.
    Null,
    /// Hot blocks in memory: every read goes to the drive.
    HotBlocks,
    /// Reads past the page cache: through it. No hot blocks on either side, which hide the reads.
    DirectReads,
    /// Sealing into one hot scratch and sending at once: a turn's chunks are sealed first.
    HotScratch,
    /// AES-GCM in wide vectors (VAES): AES-NI, which does six blocks interleaved.
    WideAes,
    /// The bound of what waits in a socket to be sent (unsent_max): none.
    ShallowSockets,
    /// send(2) at once: the ring sends.
    ImmediateSend,
    /// Records of 16 KiB: of 4 KiB.
    FullRecords,
    /// Workers bound to a CPU: where the kernel puts them.
    Pinning,
    /// Pacing by the worker, everybody kept to the film's pace of 30 Mb/s: by the kernel
    /// (SO_MAX_PACING_RATE).
    OwnPacing,
    /// Segmentation by the card (TSO, GSO, GRO), on a pair of virtual cards: packets of 1,500.
    Offload,
}

impl Row {
    fn change(self) -> Change {
        let lines = |lines| Change { lines, ..Change::default() };
        match self {
            Self::Null | Self::Offload => Change::default(),
            Self::HotBlocks => Change { cold: true, ..Change::default() },
            Self::DirectReads => Change { cold: true, ..lines("[ablation]\ndirect_reads = false") },
            Self::HotScratch => lines("[ablation]\nsending = \"ring-batched\""),
            // Of the second pair of words that CPUID gives, VAES and VPCLMULQDQ. Other libraries
            // do not look at it.
            Self::WideAes => {
                let variable = Some("OPENSSL_ia32cap=~0x0:~0x60000000000");
                Change { variable, ..lines("[tls]\naead = \"aws-lc\"") }
            }
            Self::ShallowSockets => {
                Change { variable: Some("APPLIANCE_SERVE_UNSENT_MAX=0 B"), ..Change::default() }
            }
            Self::ImmediateSend => lines("[ablation]\nsending = \"ring\""),
            Self::FullRecords => lines("[ablation]\nrecord_len = \"4 KiB\""),
            Self::Pinning => Change { unpinned: true, ..Change::default() },
            Self::OwnPacing => Change { pacing: Some("mode = \"kernel\""), ..Change::default() },
        }
    }

    /// What it is compared with: the product as it is, but where that would hide the difference.
    fn full(self) -> Change {
        let pacing = (self == Self::OwnPacing).then_some("mode = \"own\"");
        Change { cold: self == Self::DirectReads, pacing, ..Change::default() }
    }

    fn what(self) -> String {
        let value = self.to_possible_value();
        value.and_then(|value| value.get_help().map(ToString::to_string)).unwrap_or_default()
    }
}

/// `nearcast-lab ablate`
#[derive(Debug, clap::Args)]
#[command(mut_arg("seconds", |seconds| seconds.default_value("2")))]
#[command(mut_arg("warm_up", |warm_up| warm_up.default_value("1")))]
pub(crate) struct Args {
    /// What to switch off, one after the other; all if it is not said. Noise is always measured.
    #[arg(long, value_enum, value_delimiter = ',')]
    rows: Vec<Row>,
    /// What to ask for.
    #[arg(long, value_enum, default_value = "warm")]
    workload: Name,
    #[command(flatten)]
    flames: Flames,
    #[command(flatten)]
    asking: Asking,
    #[command(flatten)]
    common: Common,
}

#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    processor: Processor,
    workload: &'static str,
    client: Receive,
    ranges: Ranges,
    congestion: String,
    pairs: u32,
    /// All ratios of the row that switches nothing off lie between these.
    noise: [f64; 2],
    rows: Vec<Ablated>,
}

#[derive(Serialize)]
struct Ablated {
    /// What was switched off.
    without: String,
    what: String,
    /// CPU seconds per GB without it, divided by those with it: what the optimisation saves.
    ratio: f64,
    ratio_iqr: f64,
    /// The ratios differ from those of the row that switches nothing off by more than chance.
    beyond_noise: bool,
    cpu_s_per_gb: f64,
    full_cpu_s_per_gb: f64,
    /// Gigabits per second for each percent of a CPU.
    gbps_per_cpu_percent: f64,
    full_gbps_per_cpu_percent: f64,
    gbps: f64,
    full_gbps: f64,
    ratios: Vec<f64>,
    flame: Option<PathBuf>,
}

/// A filled appliance that can be started again and again.
struct Stage<'a> {
    site: Site<'a>,
    _control: Process,
    path: String,
}

/// Switches off one thing after the other, prints what it cost.
pub(crate) fn run(args: &Args) -> Result<()> {
    ours::check_binaries()?;
    let workload = args.workload.workload();
    let room = Room::open(&args.common)?;
    let bench = Bench::open(&args.common, args.asking, workload, &room.path)?;
    let flames = args.flames.folder()?;
    let rows = if args.rows.is_empty() { Row::value_variants() } else { &args.rows[..] };
    let asset = bench.asset();
    let [full, changed] = [("full", 1), ("changed", 6)].map(|(name, port)| {
        let room = format!("{name}-{}", workload.catalogue);
        stage(bench.site(args.common.port + port, &room, &asset))
    });
    let lab = Lab { bench: &bench, full: full?, changed: changed?, flames };
    let mut report = Report {
        processor: lab.bench.processor.clone(),
        client: args.asking.client,
        ranges: args.asking.ranges,
        workload: workload.label,
        congestion: args.common.congestion.clone(),
        pairs: args.common.pairs,
        noise: [f64::NEG_INFINITY, f64::INFINITY],
        rows: vec![lab.row(Row::Null)?],
    };
    let noise = report.rows[0].ratios.clone();
    let at = |share| quantile(&noise, share).context("no pair was measured");
    report.noise = [at(0.0)?, at(1.0)?];
    for row in rows.iter().filter(|row| **row != Row::Null) {
        let mut ablated = lab.row(*row)?;
        ablated.beyond_noise = is_beyond(&ablated.ratios, &noise);
        report.rows.push(ablated);
    }
    rig::say(args.common.json, &report, || report.table())
}

/// Fills an appliance and ends it, so that it can be started otherwise.
fn stage(site: Site<'_>) -> Result<Stage<'_>> {
    let ours = site.start(&[])?;
    drop(ours.appliance);
    Ok(Stage { site, _control: ours.control, path: ours.base.path })
}

/// Whether two sets of ratios differ by more than chance: the rank sum test (Mann and Whitney
/// 1947), which asks only how often one of these is above one of those.
fn is_beyond(these: &[f64], those: &[f64]) -> bool {
    let pairs = || these.iter().flat_map(|one| those.iter().map(move |other| (one, other)));
    let count = |above: fn((&f64, &f64)) -> bool| {
        u32::try_from(pairs().filter(|pair| above(*pair)).count()).map_or(0.0, f64::from)
    };
    let wins = count(|(one, other)| other < one) + count(|(one, other)| other == one) / 2.0;
    let [n, m] = [these, those].map(|set| u32::try_from(set.len()).map_or(0.0, f64::from));
    let spread = (n * m * (n + m + 1.0) / 12.0).sqrt();
    DEVIATIONS_MIN * spread < (wins - n * m / 2.0).abs()
}

struct Lab<'a> {
    bench: &'a Bench<'a>,
    full: Stage<'a>,
    changed: Stage<'a>,
    flames: Option<PathBuf>,
}

impl Lab<'_> {
    fn row(&self, row: Row) -> Result<Ablated> {
        let common = self.bench.common;
        info!(without = said(&row), "a row");
        let link = if row == Row::Offload { Some(Link::new()?) } else { None };
        let mut full = self.start(&self.full, row.full(), link.as_ref())?;
        let mut changed = self.start(&self.changed, row.change(), link.as_ref())?;
        let mut turn = |with: bool, seed: u64| {
            if let Some(link) = &link {
                link.offload(with)?;
            }
            let server = if with { &mut full } else { &mut changed };
            self.bench.turn(server, seed, self.bench.pace.window)
        };
        // Not counted: what is touched for the first time.
        turn(true, self.bench.asking.seed)?;
        turn(false, self.bench.asking.seed)?;
        let mut pairs = Vec::new();
        for pair in 0..common.pairs {
            let seed = self.bench.asking.seed.wrapping_add(pair.into());
            // Twice each, so that a drift of the machine falls on both; each begins in turn.
            let begins = pair % 2 == 0;
            let mut sides = [Side::default(), Side::default()];
            for with in [begins, !begins, !begins, begins] {
                sides[usize::from(!with)].add(&turn(with, seed)?);
            }
            let [full, changed] = sides;
            pairs.push(Pair { full, changed });
        }
        let flame = match &self.flames {
            Some(folder) => self.flame(&mut changed, row, folder)?,
            None => None,
        };
        ablated(row, &pairs, flame)
    }

    fn start(&self, stage: &Stage<'_>, change: Change, link: Option<&Link>) -> Result<Server> {
        let (bench, port) = (self.bench, stage.site.port);
        let name = format!("nearcast-lab-{}-{port}", std::process::id());
        let group = Group::new(&name, bench.workload.memory_max)?;
        let away = link.map(|link| (link.namespace(), link.address()));
        let congestion = bench.common.congestion.clone();
        let _chosen = Chosen::new(&congestion)?;
        let (process, address) = stage.site.again(change, away, group.joins())?;
        let account = group.account(process.id());
        let mut plan = bench.plan(address, bench.catalogue.targets(&stage.path));
        // As in the certificate, wherever it listens.
        "localhost".clone_into(&mut plan.name);
        Ok(Server { processes: vec![process], account, plan, congestion, _group: group })
    }

    fn flame(&self, server: &mut Server, row: Row, folder: &Path) -> Result<Option<PathBuf>> {
        let Some(profile) = self.bench.profile(server)? else { return Ok(None) };
        let name = if row == Row::Null { "full".to_owned() } else { format!("no-{}", said(&row)) };
        let path = folder.join(format!("{}-{name}.svg", self.bench.workload.label));
        let title = format!("{}: {}", self.bench.workload.label, name.replace('-', " "));
        profile.draw(&title, &path)?;
        Ok(Some(path))
    }
}

/// What one side did in its turns of a pair.
#[derive(Clone, Debug, Default)]
struct Side {
    cpu_s: f64,
    gb: f64,
    seconds: f64,
    ciphers: Vec<String>,
}

impl Side {
    fn add(&mut self, turn: &Turn) {
        self.cpu_s += turn.server_cpu_s;
        self.gb += turn.window.gb;
        self.seconds += turn.window.seconds;
        self.ciphers.extend(turn.window.ciphers.iter().cloned());
    }

    fn cpu_s_per_gb(&self) -> f64 {
        self.cpu_s / self.gb
    }

    fn gbps(&self) -> f64 {
        self.gb * 8.0 / self.seconds
    }

    fn gbps_per_cpu_percent(&self) -> f64 {
        self.gb * 8.0 / (self.cpu_s * 100.0)
    }
}

/// Both sides, in turns close to each other.
struct Pair {
    full: Side,
    changed: Side,
}

fn ablated(row: Row, pairs: &[Pair], flame: Option<PathBuf>) -> Result<Ablated> {
    let of = |value: fn(&Pair) -> f64| median_of(pairs, value);
    let ratio = |pair: &Pair| pair.changed.cpu_s_per_gb() / pair.full.cpu_s_per_gb();
    let ratios: Vec<f64> = pairs.iter().map(ratio).collect();
    let Spread { median: ratio, iqr: ratio_iqr } = Spread::of(&ratios)?;
    let mut ciphers =
        pairs.iter().flat_map(|pair| pair.full.ciphers.iter().chain(&pair.changed.ciphers));
    let first = ciphers.next().context("no connection")?;
    ensure!(ciphers.all(|cipher| cipher == first), "ciphers differ: costs cannot be compared");
    let ablated = Ablated {
        without: said(&row),
        what: row.what(),
        ratio,
        ratio_iqr,
        beyond_noise: false,
        cpu_s_per_gb: of(|pair| pair.changed.cpu_s_per_gb())?,
        full_cpu_s_per_gb: of(|pair| pair.full.cpu_s_per_gb())?,
        gbps_per_cpu_percent: of(|pair| pair.changed.gbps_per_cpu_percent())?,
        full_gbps_per_cpu_percent: of(|pair| pair.full.gbps_per_cpu_percent())?,
        gbps: of(|pair| pair.changed.gbps())?,
        full_gbps: of(|pair| pair.full.gbps())?,
        ratios,
        flame,
    };
    info!(
        without = ablated.without,
        ratio = format!("{:.3}", ablated.ratio),
        iqr = format!("{:.3}", ablated.ratio_iqr),
        "row"
    );
    Ok(ablated)
}

impl Report {
    fn table(&self) -> String {
        let mut text = format!(
            "{}, {} pairs each, noise {:.3} to {:.3}\n{:<16}{:>8}{:>8}{:>10}{:>10}{:>12}  \n",
            self.workload,
            self.pairs,
            self.noise[0],
            self.noise[1],
            "without",
            "ratio",
            "iqr",
            "s/GB",
            "full",
            "Gb/s per %",
        );
        for row in &self.rows {
            text.push_str(&format!(
                "{:<16}{:>8.3}{:>8.3}{:>10.3}{:>10.3}{:>12.3}  {}\n",
                row.without,
                row.ratio,
                row.ratio_iqr,
                row.cpu_s_per_gb,
                row.full_cpu_s_per_gb,
                row.gbps_per_cpu_percent,
                if row.beyond_noise { "beyond noise" } else { "within noise" },
            ));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_beyond_noise_if_its_ratios_rank_apart() {
        fn check(ratios: &[f64], beyond: bool) {
            let noise = [0.9, 1.1, 1.0, 0.95, 1.2];
            assert_eq!(is_beyond(ratios, &noise), beyond, "{ratios:?}");
            assert_eq!(is_beyond(&noise, ratios), beyond, "{ratios:?}, the other way round");
        }
        check(&[1.3, 1.3, 1.4, 1.25, 1.21], true);
        check(&[0.5, 0.6, 0.7, 0.8, 0.89], true);
        // 22 of 25 are above.
        check(&[1.15, 1.15, 1.3, 1.3, 1.15], false);
        // 23 of 25 are.
        check(&[1.15, 1.15, 1.3, 1.3, 1.3], true);
        check(&[0.9, 1.1, 1.0, 0.95, 1.2], false);
        check(&[1.5], false);
        check(&[], false);
    }

    #[test]
    fn every_row_changes_something_else_and_says_what() {
        let changes: Vec<Change> = Row::value_variants()
            .iter()
            .filter(|row| !matches!(row, Row::Null | Row::Offload))
            .map(|row| row.change())
            .collect();
        for (index, change) in changes.iter().enumerate() {
            assert_ne!(*change, Change::default());
            assert!(!changes[..index].contains(change), "{change:?} is there twice");
        }
        for row in Row::value_variants() {
            assert!(!row.what().is_empty() && !said(row).is_empty(), "{row:?}");
        }
    }
}
