//! `nearcast-lab layout`: what objects that are packed together spare a drive.
//!
//! A catalogue comes and goes on a simulated file system on a simulated drive, until what was
//! written is several times what fits; then pages are counted that the drive programs for each page
//! that is written. The same titles, in other files.

mod churn;
mod timed;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use serde::Serialize;
use ssd::{Class, Ftl, Io, Params};
use tracing::info;

use crate::drive_protocol::plot::{Chart, Series};
use churn::{Churn, Layout};
use timed::Timed;

/// `nearcast-lab layout`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Runs of each kind, each with another seed.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    seeds: u32,
    /// The first of them.
    #[arg(long, default_value_t = 1)]
    first_seed: u32,
    /// How full the drive is kept, in percent.
    #[arg(long, default_value_t = 95, value_parser = clap::value_parser!(u32).range(50..=97))]
    full: u32,
    /// Write the pictures into this folder; also looks at drives that are 85 to 97 % full.
    #[arg(long)]
    plots: Option<PathBuf>,
    /// Print one JSON object as the last line of output.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    seeds: u32,
    first_seed: u32,
    full_percent: u32,
    classes: Vec<OfClass>,
}

#[derive(Debug, Serialize)]
struct OfClass {
    class: &'static str,
    superblock_mib: u64,
    target_ms: f64,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    layout: &'static str,
    trim: bool,
    full_percent: u32,
    /// Pages programmed per page written.
    write_amplification: Spread,
    /// Pages programmed per page of objects: also what the file system writes for itself.
    of_objects: Spread,
    runs_per_file: Spread,
    /// 99th of 100 reads beside a fill without any limit, and with nothing written; where time was
    /// looked at, which it is for three layouts on drives as full as was said.
    p99_ms: Option<Spread>,
    p99_nofill_ms: Option<Spread>,
    fill_mbps: Option<Spread>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Spread {
    mean: f64,
    min: f64,
    max: f64,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        let count = f64::from(u32::try_from(values.clone().count()).unwrap_or(u32::MAX));
        Self {
            mean: values.clone().sum::<f64>() / count,
            min: values.clone().fold(f64::MAX, f64::min),
            max: values.fold(0.0, f64::max),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Case {
    class: Class,
    layout: Layout,
    trim: bool,
    full: u32,
    seed: u64,
    timed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Found {
    amplification: f64,
    of_objects: f64,
    runs_per_file: f64,
    timed: Option<Timed>,
}

/// What is written before pages are counted, and while, by what fits.
const AGED: u64 = 4;
const COUNTED: u64 = 2;
/// The drive collects below so many free blocks per die.
const FREE_BLOCKS: u32 = 4;

/// Measures, draws and prints.
pub(crate) fn run(args: &Args) -> Result<()> {
    let fulls = fulls(args.full, args.plots.is_some());
    let mut cases = Vec::new();
    for class in Class::ALL {
        for full in &fulls {
            for (layout, trim) in Layout::ALL.into_iter().flat_map(|l| [(l, true), (l, false)]) {
                let seeds = u64::from(args.first_seed)..;
                let timed = *full == args.full && layout != Layout::UnitsAtOnce;
                let case = |seed| Case { class, layout, trim, full: *full, seed, timed };
                cases.extend(seeds.map(case).take(usize::try_from(args.seeds)?));
            }
        }
    }
    let found = all(&cases)?;
    let classes = Class::ALL.map(|class| of_class(class, &cases, &found));
    if let Some(folder) = &args.plots {
        draw(&classes, folder)?;
    }
    let (seeds, first_seed, full_percent) = (args.seeds, args.first_seed, args.full);
    let report = Report { seeds, first_seed, full_percent, classes: classes.into() };
    rig::say_all(args.json, &report)?;
    report.classes.iter().try_for_each(|class| promised(class, args.full))
}

/// How full the drives are that are looked at; pictures show more than was asked for.
fn fulls(full: u32, plots: bool) -> BTreeSet<u32> {
    let pictures: &[u32] = if plots { &[85, 90, 93, 95, 97] } else { &[] };
    pictures.iter().copied().chain([full]).collect()
}

/// Units spare every drive something, and NVMe drives need nobody to hold the fill back.
fn promised(class: &OfClass, full: u32) -> Result<()> {
    for trim in [true, false] {
        let of = |layout: Layout| {
            let fits = |row: &&Row| (row.layout, row.trim) == (layout.name(), trim);
            class.rows.iter().filter(fits).find(|row| row.full_percent == full)
        };
        let (naive, units) = of(Layout::Naive).zip(of(Layout::Units)).context("both ran")?;
        let p99 = units.p99_ms.context("time was looked at")?.max;
        let (name, target) = (class.class, class.target_ms);
        anyhow::ensure!(
            units.write_amplification.mean < naive.write_amplification.mean,
            "{name}: in units the drive programs no less than with a file each"
        );
        anyhow::ensure!(
            !name.starts_with("nvme") || p99 <= target,
            "{name}: beside a fill in units 99 of 100 reads take {p99:.2} ms, target {target} ms"
        );
    }
    Ok(())
}

/// All of them, on as many cores as there are; the order of the results is that of the cases.
fn all(cases: &[Case]) -> Result<Vec<Found>> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let found = Mutex::new(vec![None; cases.len()]);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(case) = cases.get(index) else { return };
                    if rig::stop::check().is_err() {
                        return;
                    }
                    let one = look(case);
                    info!(?case, amplification = one.amplification, "done");
                    if let Ok(mut found) = found.lock() {
                        found[index] = Some(one);
                    }
                }
            });
        }
    });
    let found = found.into_inner().ok().context("a run ended in a panic")?;
    found.into_iter().collect::<Option<_>>().context("stopped before all runs were done")
}

fn look(case: &Case) -> Found {
    let params = case.class.params();
    let (mut churn, mut ftl) = aged(&params, case, AGED);
    let limit = u64::from(churn.limit());
    let (before, objects, files, runs) = (ftl.wear(), churn.object_pages, churn.files, churn.runs);
    churn_until(&mut churn, &mut ftl, limit * (AGED + COUNTED));
    let after = ftl.wear();
    let programmed = after.host_pages + after.moved_pages - before.host_pages - before.moved_pages;
    let ratio = |part: u64, whole: u64| float(part) / float(whole.max(1));
    Found {
        amplification: after.amplification_since(&before),
        of_objects: ratio(programmed, churn.object_pages - objects),
        runs_per_file: ratio(churn.runs - runs, churn.files - files),
        timed: case.timed.then(|| timed::run(&params, case, &churn, &ftl)),
    }
}

/// A catalogue, and a drive to which so many times what fits has been written.
fn aged(params: &Params, case: &Case, times: u64) -> (Churn, Ftl) {
    let mut churn = Churn::new(case.layout, params, case.full, case.trim, case.seed);
    let mut ftl = Ftl::new(params.shape);
    let pages = u64::from(churn.limit()) * times;
    churn_until(&mut churn, &mut ftl, pages);
    (churn, ftl)
}

fn churn_until(churn: &mut Churn, ftl: &mut Ftl, pages: u64) {
    while churn.object_pages < pages {
        apply(ftl, churn.next());
    }
}

fn apply(ftl: &mut Ftl, io: Io) {
    match io {
        Io::Write(run) => {
            (run.first..run.first + run.pages).for_each(|page| ftl.write_now(page, FREE_BLOCKS));
        }
        Io::Trim(run) => (run.first..run.first + run.pages).for_each(|page| ftl.trim(page)),
    }
}

fn of_class(class: Class, cases: &[Case], found: &[Found]) -> OfClass {
    let mut rows: Vec<Row> = Vec::new();
    let mut last: Option<Case> = None;
    for case in cases.iter().filter(|case| case.class == class) {
        let same = |a: &Case, b: &Case| Case { seed: 0, ..*a } == Case { seed: 0, ..*b };
        if last.is_some_and(|last| same(&last, case)) {
            continue;
        }
        last = Some(*case);
        let all = cases.iter().zip(found).filter(|(other, _)| same(case, other));
        let spread = |of: fn(&Found) -> f64| Spread::of(all.clone().map(|(_, found)| of(found)));
        let timed = |of: fn(&Timed) -> f64| {
            let values = all.clone().filter_map(|(_, found)| found.timed.as_ref().map(of));
            case.timed.then(|| Spread::of(values))
        };
        rows.push(Row {
            layout: case.layout.name(),
            trim: case.trim,
            full_percent: case.full,
            write_amplification: spread(|found| found.amplification),
            of_objects: spread(|found| found.of_objects),
            runs_per_file: spread(|found| found.runs_per_file),
            p99_ms: timed(|timed| timed.p99_ms),
            p99_nofill_ms: timed(|timed| timed.p99_nofill_ms),
            fill_mbps: timed(|timed| timed.fill_mbps),
        });
    }
    let params: Params = class.params();
    OfClass {
        class: class.name(),
        superblock_mib: (u64::from(params.shape.superblock_pages()) * params.page.0) >> 20,
        target_ms: timed::target_ms(class),
        rows,
    }
}

fn draw(classes: &[OfClass], folder: &std::path::Path) -> Result<()> {
    for class in classes {
        let line = |layout: Layout, trim: bool, name: &str| {
            let fits = |row: &&Row| row.layout == layout.name() && row.trim == trim;
            let point = |row: &Row| (f64::from(row.full_percent), row.write_amplification.mean);
            let points = class.rows.iter().filter(fits).map(point).collect();
            Series { name: name.to_owned(), points, dots: false }
        };
        let chart = Chart {
            title: "Packed in units, or a file each",
            x: "the drive is so full, %",
            y: "pages programmed per page written",
            x_min: 85.0,
            y_max: 12.0,
            series: vec![
                line(Layout::Naive, false, "naive, no trim"),
                line(Layout::Naive, true, "naive, trim"),
                line(Layout::Files, true, "a file each, in order, trim"),
                line(Layout::Units, false, "units, no trim"),
                line(Layout::Units, true, "units, trim"),
            ],
        };
        let path = folder.join(format!("ssd-layout-{}.svg", class.class));
        fs::write(&path, chart.svg()).with_context(|| format!("{}", path.display()))?;
    }
    Ok(())
}

/// Of counts below 2^32.
fn float(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drives_as_full_as_was_said_are_looked_at_with_pictures_too() {
        let check = |full, plots, wanted: &[u32]| {
            assert_eq!(fulls(full, plots).into_iter().collect::<Vec<_>>(), wanted);
        };
        check(88, false, &[88]);
        check(95, true, &[85, 90, 93, 95, 97]);
        check(88, true, &[85, 88, 90, 93, 95, 97]);
    }
}
