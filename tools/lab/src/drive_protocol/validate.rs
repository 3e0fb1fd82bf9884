//! `nearcast-lab ssd`: the model of a drive against what others proved, and as pictures.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use model::units::{Bytes, Nanos};
use serde::Serialize;
use ssd::{Class, Ftl, Rng, Shape, theory};

use super::plot::{Chart, Series};
use super::result::Sum;
use super::run::{Contender, Readers, run as simulate};
use super::scenario::{Fill, Scenario};

/// `nearcast-lab ssd`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Write the pictures into this folder.
    #[arg(long)]
    plots: Option<PathBuf>,
    /// Print one JSON object as the last line of output.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    /// Spare by live space; simulated; by the closed form.
    greedy: Vec<[f64; 3]>,
    /// Live share at 7 % spare; simulated; by the closed form.
    trim: Vec<[f64; 3]>,
    /// The largest distance of the two, in percent.
    worst_percent: f64,
    /// Per class: MB/s written, then the 99th of 100 reads in ms.
    frontier: Vec<(&'static str, Vec<[f64; 2]>)>,
}

/// More than this from the closed form, and the model is not believed.
const WORST_PERCENT: f64 = 5.0;

/// Measures, draws and prints.
pub(crate) fn run(args: &Args) -> Result<()> {
    let spares = [70, 90, 110, 150, 200, 280, 400, 500, 700, 1_000];
    let greedy = spares.map(|spare| {
        let over = f64::from(spare) / 1e3;
        [over, amplification(spare, 1_000), theory::write_amplification(over)]
    });
    let trim = [950, 900, 800, 700, 600].map(|live| {
        let share = f64::from(live) / 1e3;
        let expected = theory::write_amplification(theory::with_trim(0.07, share));
        [share, amplification(70, live), expected]
    });
    let off = |row: &[f64; 3]| (row[1] / row[2] - 1.0).abs() * 100.0;
    let worst_percent = greedy.iter().chain(&trim).map(off).fold(0.0, f64::max);
    let frontier: Vec<_> =
        Class::ALL.into_iter().map(|class| (class.name(), frontier(class))).collect();
    let report = Report { greedy: greedy.to_vec(), trim: trim.to_vec(), worst_percent, frontier };
    if let Some(folder) = &args.plots {
        draw(&report, folder)?;
    }
    rig::say_all(args.json, &report)?;
    anyhow::ensure!(
        worst_percent <= WORST_PERCENT,
        "the model is {worst_percent:.1} % off the closed form; {WORST_PERCENT} % are allowed"
    );
    Ok(())
}

/// Random overwrites of single pages on one die, when steady.
fn amplification(spare_permille: u32, live_permille: u32) -> f64 {
    let shape = Shape::with_spare(1, 1024, 256, spare_permille);
    let mut ftl = Ftl::new(shape);
    let mut rng = Rng::new(u64::from(spare_permille + live_permille));
    let used = shape.logical_pages / 1_000 * live_permille;
    for page in 0..used {
        ftl.write_now(page, 2);
    }
    let mut before = ftl.wear();
    for round in 0..6 {
        if round == 3 {
            before = ftl.wear();
        }
        for _ in 0..used {
            ftl.write_now(rng.below(used), 2);
        }
    }
    ftl.wear().amplification_since(&before)
}

/// Reads of a steady load beside writes of more and more.
fn frontier(class: Class) -> Vec<[f64; 2]> {
    let scenario = Scenario::new(class, None, Some(Bytes::mib(16)));
    let state = scenario.age(1);
    let most = if scenario.params.depth == 32 { 240 } else { 3_200 };
    let mut points = Vec::new();
    for eighth in 0..=8 {
        let rate = most * eighth / 8;
        let fill = if rate == 0 { Fill::None } else { Fill::Rate(Bytes(rate * 1_000_000)) };
        let mut steady = scenario.steady(fill);
        // Only the second phase is looked at.
        steady.phases[0].fill = Fill::None;
        if rate == 0 {
            steady.phases.remove(0);
        }
        let seen = simulate(&steady, Contender::Off, Readers::Open, &state, 1);
        let mut sum = Sum::default();
        sum.add(&steady, &seen);
        let span: u64 = steady.phases.last().map_or(1, |phase| phase.span.0);
        let written = sum.megabytes() / super::seconds(Nanos(span));
        points.push([written, sum.p99_ms()]);
    }
    points
}

fn draw(report: &Report, folder: &std::path::Path) -> Result<()> {
    let column = |rows: &[[f64; 3]], column: usize, name: &str, dots| Series {
        name: name.into(),
        points: rows.iter().map(|row| (row[0], row[column])).collect(),
        dots,
    };
    let pair = |rows: &[[f64; 3]]| {
        vec![column(rows, 2, "closed form", false), column(rows, 1, "model", true)]
    };
    let greedy = Chart {
        title: "Greedy collection, random overwrites",
        x: "spare space by live space",
        y: "pages programmed per page written",
        x_min: 0.0,
        y_max: 10.0,
        series: pair(&report.greedy),
    };
    let trim = Chart {
        title: "Trimmed space is spare space (7 % built in)",
        x: "share of the logical space that is live",
        y: "pages programmed per page written",
        x_min: 0.0,
        y_max: 5.0,
        series: pair(&report.trim),
    };
    let lines = report.frontier.iter().map(|(name, points)| Series {
        name: (*name).into(),
        points: points.iter().map(|point| (point[0], point[1])).collect(),
        dots: false,
    });
    let (sata, nvme): (Vec<_>, Vec<_>) = lines.partition(|line| line.name.starts_with("sata"));
    let frontier = |title, y_max, series| Chart {
        title,
        x: "written, MB/s, in units of 16 MiB",
        y: "99th of 100 reads, ms",
        x_min: 0.0,
        y_max,
        series,
    };
    let charts = [
        ("ssd-greedy.svg", greedy),
        ("ssd-trim.svg", trim),
        ("ssd-frontier-sata.svg", frontier("Reads beside writes, SATA", 50.0, sata)),
        ("ssd-frontier-nvme.svg", frontier("Reads beside writes, NVMe", 1.0, nvme)),
    ];
    for (name, chart) in charts {
        let path = folder.join(name);
        fs::write(&path, chart.svg()).with_context(|| format!("{}", path.display()))?;
    }
    Ok(())
}
