//! What is asked of a drive: phases of reads and fill, after the study's protocol, shortened.

use iosched::drive::{NVME_TARGET, SATA_TARGET};
use model::units::{Bytes, Nanos};
use ssd::{Class, Ftl, Params, Rng};

/// Reads and writes of one stretch of time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Phase {
    pub(super) span: Nanos,
    /// Of the base read rate, in thousandths.
    pub(super) reads_permille: u32,
    pub(super) fill: Fill,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fill {
    None,
    /// Bytes per second.
    Rate(Bytes),
    Unbounded,
}

/// One class of drive under one load.
#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) class: Class,
    pub(super) params: Params,
    pub(super) target: Nanos,
    pub(super) reads_per_s: f64,
    pub(super) read_len: Bytes,
    /// Pages of one write; about 256 KiB.
    pub(super) write_pages: u32,
    /// Pages of what is written and deleted together.
    pub(super) unit_pages: u32,
    pub(super) units: u32,
    pub(super) units_live: u32,
    pub(super) phases: Vec<Phase>,
    /// The phases in which reads rise and fall.
    pub(super) rise: usize,
    pub(super) fall: usize,
    /// The constant of the static policy, bytes per second.
    pub(super) constant: Bytes,
}

/// Reads per second that meet the target with nothing written, at 256 KiB: see `docs/numbers.md`.
pub(crate) fn capacity(class: Class) -> f64 {
    match class {
        Class::SataTlc | Class::SataDc => 1_500.0,
        Class::NvmeTlc | Class::NvmeQlc => 22_000.0,
    }
}

/// As an appliance has it.
pub(crate) fn target(class: Class) -> Nanos {
    if is_sata(class) { SATA_TARGET } else { NVME_TARGET }
}

fn is_sata(class: Class) -> bool {
    matches!(class, Class::SataTlc | Class::SataDc)
}

impl Scenario {
    /// `load_percent` of the capacity is read; units are superblocks, or of `unit` bytes.
    pub(super) fn new(class: Class, load_percent: Option<u32>, unit: Option<Bytes>) -> Self {
        let params = class.params();
        let shape = params.shape;
        let pages = |len: Bytes| u32::try_from(len.0 / params.page.0).unwrap_or(u32::MAX).max(1);
        let write_pages = pages(Bytes::kib(300));
        let unit_pages = unit.map_or_else(|| shape.superblock_pages(), pages).max(write_pages);
        let units = shape.logical_pages / unit_pages;
        // The machine simulates six seconds of a busy NVMe drive per second, and 70 of SATA.
        let (scale, constant) = if is_sata(class) { (1_000, 40) } else { (300, 400) };
        let load = load_percent.unwrap_or(40);
        let phase = |millis: u64, reads_permille, fill| Phase {
            span: Nanos::millis(millis * scale / 1_000),
            reads_permille,
            fill,
        };
        let megabytes = |n: u64| Fill::Rate(Bytes(n * 1_000_000));
        Self {
            class,
            params,
            target: target(class),
            reads_per_s: capacity(class) * f64::from(load) / 100.0,
            read_len: Bytes::kib(256),
            write_pages,
            unit_pages,
            units,
            units_live: units * 9 / 10,
            phases: vec![
                phase(4_000, 1_000, Fill::None),
                phase(5_000, 1_000, megabytes(20)),
                phase(5_000, 1_000, megabytes(80)),
                phase(8_000, 1_000, Fill::Unbounded),
                phase(8_000, 1_250, Fill::Unbounded),
                phase(12_000, 625, Fill::Unbounded),
                phase(3_000, 625, Fill::None),
            ],
            rise: 4,
            fall: 5,
            constant: Bytes(constant * 1_000_000),
        }
    }

    /// The same with nothing written.
    pub(super) fn without_fill(&self) -> Self {
        let phases = self.phases.iter().map(|phase| Phase { fill: Fill::None, ..*phase });
        Self { phases: phases.collect(), ..self.clone() }
    }

    /// A short one with a constant load: reads alone, then beside an unbounded fill.
    pub(super) fn steady(&self, fill: Fill) -> Self {
        let scale = if is_sata(self.class) { 1_000 } else { 300 };
        let phase = |millis: u64, fill| Phase {
            span: Nanos::millis(millis * scale / 1_000),
            reads_permille: 1_000,
            fill,
        };
        Self { phases: vec![phase(2_000, fill), phase(6_000, fill)], ..self.clone() }
    }

    /// Units written once in order, then twice over in any order, each deleted before: the map, and
    /// which units are live.
    pub(super) fn age(&self, seed: u64) -> (Ftl, Vec<bool>) {
        let mut ftl = Ftl::new(self.params.shape);
        let mut live = vec![true; at(self.units)];
        let write = |ftl: &mut Ftl, unit: u32| {
            for page in unit * self.unit_pages..(unit + 1) * self.unit_pages {
                ftl.write_now(page, 4);
            }
        };
        let trim = |ftl: &mut Ftl, unit: u32| {
            for page in unit * self.unit_pages..(unit + 1) * self.unit_pages {
                ftl.trim(page);
            }
        };
        for unit in 0..self.units {
            write(&mut ftl, unit);
        }
        for unit in self.units_live..self.units {
            trim(&mut ftl, unit);
            live[at(unit)] = false;
        }
        let mut rng = Rng::new(seed);
        for _ in 0..2 * self.units {
            let dead = pick(&mut rng, &live, true);
            trim(&mut ftl, dead);
            let born = pick(&mut rng, &live, false);
            write(&mut ftl, born);
            (live[at(dead)], live[at(born)]) = (false, true);
        }
        (ftl, live)
    }
}

/// Any unit that is live, or that is not. There is one: deletes keep up with writes, or the
/// protocol has been given shares with which it cannot run.
pub(super) fn pick(rng: &mut Rng, live: &[bool], wanted: bool) -> u32 {
    let units = u32::try_from(live.len()).unwrap_or(u32::MAX);
    let mut drawn = std::iter::repeat_with(|| rng.below(units)).take(DRAWS_MAX);
    let found = drawn.find(|unit| live[at(*unit)] == wanted);
    found.or_else(|| (0..units).find(|unit| live[at(*unit)] == wanted)).expect(
        "a drive with no unit free, or none taken: deletes and writes must keep up with each other",
    )
}

/// Draws before units are looked at one by one.
const DRAWS_MAX: usize = 10_000;

pub(super) fn at(n: u32) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}
