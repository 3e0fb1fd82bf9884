//! `nearcast-lab locate`: the table of routes at full size: its memory, a look-up, a change.
//!
//! ```text
//! generator ──> sites' tables ──> routes::Routes ──> look-ups, one prefix, a site's 50,000
//! ```
//!
//! The generator, decided before anything was measured: prefixes are /24 (half), /22, /20 and /16
//! of IPv4 and /48 (half), /40 and /32 of IPv6, five of IPv4 to one of IPv6, spread over the
//! families' unicast space, so that many cover others. Each is announced by 1 to 8 sites, evenly; a
//! site is drawn for each by a hash. A site announces with 64 different attributes: AS paths of 1
//! to 6, a MED, two communities. A tenth of the sites is at an exchange. While anything changes, a
//! front reads the table before it, as in life.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use model::id::SiteId;
use model::place::Point;
use model::topology::{Place, Prefix, Site, SiteKind};
use routes::{Attributes, Community, Difference, Peering, Routes};
use serde::Serialize;

use crate::processor::Processor;

/// `nearcast-lab locate`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Prefixes in the table.
    #[arg(long, default_value_t = 1_200_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1000..=4_000_000))]
    prefixes: u32,
    #[arg(long, default_value_t = 8000, value_parser = clap::value_parser!(u32).range(10..=20_000))]
    sites: u32,
    /// Prefixes of the one site that changes as a whole.
    #[arg(long, default_value_t = 50_000)]
    whole: u32,
    /// Clients that are looked up.
    #[arg(long, default_value_t = 2_000_000)]
    lookups: u32,
    /// Changes of one prefix.
    #[arg(long, default_value_t = 20_000)]
    changes: u32,
    /// The result as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Default, Serialize)]
struct Report {
    prefixes_v4: usize,
    prefixes_v6: usize,
    /// Prefixes times the sites that announce each.
    ways: u64,
    /// Memory of the process with the table, less that before; the generator's share taken off.
    table_bytes: u64,
    bytes_per_way: u64,
    /// From nothing to the whole table, every site telling all it hears.
    build_s: f64,
    lookup_ns: u64,
    lookups_per_s_core: u64,
    /// Sites of a client, on average.
    sites_per_client: f64,
    change_us_mean: u64,
    route_change_ms_p99: f64,
    /// A site's 50,000 prefixes get other attributes, or are withdrawn, as a difference.
    site_change_ms: f64,
    site_withdraw_ms: f64,
    /// The same as a whole table in place of the one before.
    site_whole_ms: f64,
    /// The longest slice of these three: so long a report or a player waits.
    slice_ms_max: f64,
    /// All prefixes without a second way.
    unshared_ms: f64,
    processor: String,
}

/// Measures, and prints the result on stdout.
pub(crate) fn run(args: &Args) -> Result<()> {
    let sites: Vec<SiteId> =
        (0..args.sites).map(|n| format!("s{n}").parse()).collect::<Result<_, _>>()?;
    let mut routes = Routes::default();
    routes.change_sites(&[], &places(&sites)?);
    let (before, _) = memory()?;
    let mut report = Report { processor: Processor::read()?.processor, ..Report::default() };
    let tables = tables(args, sites.len());
    let (generated, _) = memory()?;
    let began = Instant::now();
    for (site, announced) in sites.iter().zip(&tables) {
        let difference = Difference { announced: announced.clone(), withdrawn: vec![] };
        let digest = routes.apply(site, &difference, true);
        ensure!(digest.count <= u64::try_from(announced.len())?, "no prefix counts twice");
        report.ways += digest.count;
    }
    report.build_s = began.elapsed().as_secs_f64();
    drop(tables);
    let (with_table, _) = memory()?;
    // What the generator had is back at the allocator, and may be counted still: the most is told.
    report.table_bytes =
        with_table.saturating_sub(before).max(with_table.saturating_sub(generated));
    report.bytes_per_way = report.table_bytes / report.ways.max(1);
    (report.prefixes_v4, report.prefixes_v6) = routes.table().len();
    look_up(args, &routes, &mut report);
    change_one(args, &sites, &mut routes, &mut report)?;
    change_all(args, &sites[0], &mut routes, &mut report);
    let began = Instant::now();
    let unshared = routes.table().unshared(10);
    report.unshared_ms = ms(began);
    ensure!(!unshared.by_site.is_empty(), "some prefixes have one site");
    rig::say(args.json, &report, || format!("{report:#?}"))
}

fn look_up(args: &Args, routes: &Routes, report: &mut Report) {
    let clients: Vec<Prefix> = (0..args.lookups.min(1 << 16)).map(client).collect();
    let (mut found, began) = (0_u64, Instant::now());
    for at in 0..args.lookups {
        let at = usize::try_from(at).unwrap_or(0) % clients.len();
        found += u64::try_from(routes.table().locate(&clients[at]).sites.len()).unwrap_or(0);
    }
    let took = began.elapsed();
    let lookups = u64::from(args.lookups.max(1));
    report.lookup_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX) / lookups;
    report.lookups_per_s_core = 1_000_000_000 / report.lookup_ns.max(1);
    report.sites_per_client = ratio(found, lookups);
}

fn change_one(
    args: &Args,
    sites: &[SiteId],
    routes: &mut Routes,
    report: &mut Report,
) -> Result<()> {
    let mut took = hdrhistogram::Histogram::<u64>::new(3)?;
    for n in 0..args.changes {
        let front = routes.table().clone();
        let site = &sites[index(n.wrapping_mul(0x9E37_79B1), sites.len())];
        let change = (prefix(n.wrapping_mul(7919) % args.prefixes), attributes(n, n % 64));
        let difference = Difference { announced: vec![change], withdrawn: vec![] };
        let began = Instant::now();
        routes.apply(site, &difference, false);
        took.record(u64::try_from(began.elapsed().as_nanos())?)?;
        drop(front);
    }
    report.change_us_mean = rounded(took.mean() / 1000.0);
    report.route_change_ms_p99 = ratio(took.value_at_quantile(0.99), 1_000_000);
    Ok(())
}

fn change_all(args: &Args, site: &SiteId, routes: &mut Routes, report: &mut Report) {
    let every = (args.prefixes / args.whole.max(1)).max(1);
    let prefixes: Vec<Prefix> = (0..args.whole).map(|n| prefix(n * every)).collect();
    let announced = |round: u32| -> Vec<_> {
        let with = |(n, prefix): (u32, &Prefix)| (*prefix, attributes(n, 100 * round + n % 64));
        (0..).zip(&prefixes).map(with).collect()
    };
    let first = Difference { announced: announced(1), withdrawn: vec![] };
    routes.apply(site, &first, true);
    let mut slice_ms_max = 0.0_f64;
    let mut measure = |difference: &Difference, whole| {
        let front = routes.table().clone();
        routes.hear(site, difference.clone(), whole);
        let began = Instant::now();
        while routes.is_busy() {
            let slice = Instant::now();
            routes.go_on(routes::SLICE);
            slice_ms_max = slice_ms_max.max(ms(slice));
        }
        let took = ms(began);
        drop(front);
        took
    };
    report.site_change_ms =
        measure(&Difference { announced: announced(2), withdrawn: vec![] }, false);
    report.site_whole_ms =
        measure(&Difference { announced: announced(3), withdrawn: vec![] }, true);
    let withdrawn = Difference { announced: vec![], withdrawn: prefixes.clone() };
    report.site_withdraw_ms = measure(&withdrawn, false);
    report.slice_ms_max = slice_ms_max;
}

/// What each site announces.
fn tables(args: &Args, sites: usize) -> Vec<Vec<(Prefix, Arc<Attributes>)>> {
    let mut kinds: BTreeMap<(usize, u32), Arc<Attributes>> = BTreeMap::new();
    let mut tables = vec![Vec::new(); sites];
    for n in 0..args.prefixes {
        let prefix = prefix(n);
        for copy in 0..=n % 8 {
            let drawn = n.wrapping_mul(0x85EB_CA6B).wrapping_add(copy.wrapping_mul(0xC2B2_AE35));
            let (site, kind) = (index(drawn, sites), drawn % 64);
            let number = u32::try_from(site).unwrap_or(0);
            let shared = kinds.entry((site, kind)).or_insert_with(|| attributes(number, kind));
            tables[site].push((prefix, Arc::clone(shared)));
        }
    }
    tables
}

fn attributes(site: u32, kind: u32) -> Arc<Attributes> {
    let peering = if kind.is_multiple_of(3) { Peering::Public } else { Peering::Private };
    let path = (0..=kind % 6).map(|n| 64_512 + (site + n) % 1000).collect();
    let communities = vec![Community::Plain(64_512, 100), Community::Large(64_512, site, kind)];
    Arc::new(Attributes::new(peering, path, Some(kind % 5 * 10), communities))
}

/// The prefix of a number: five of six of IPv4.
fn prefix(n: u32) -> Prefix {
    let drawn = n.wrapping_mul(0x9E37_79B1);
    let net = match n % 6 {
        5 => {
            let len = [48, 48, 40, 32][index(drawn >> 7, 4)];
            let head = u128::from(0x2400_0000 | drawn >> 6) << 96;
            Prefix::new(std::net::Ipv6Addr::from(head | u128::from(n) << 80).into(), len)
        }
        _ => {
            let len = [24, 24, 22, 20, 24, 16][index(n / 6, 6)];
            let address = 0x0B00_0000_u32.wrapping_add(drawn % 0xC000_0000);
            Prefix::new(std::net::Ipv4Addr::from(address).into(), len)
        }
    };
    net.expect("the lengths are those of the family").trunc()
}

/// An address in a prefix of the table.
fn client(n: u32) -> Prefix {
    let found = prefix(n.wrapping_mul(18));
    Prefix::from(found.addr())
}

fn places(sites: &[SiteId]) -> Result<Vec<(u32, Site)>> {
    let site = |(n, id): (u32, &SiteId)| {
        let kind = if n.is_multiple_of(10) { SiteKind::Exchange } else { SiteKind::Embedded };
        let (north, east) = (f64::from(n % 120) - 60.0, f64::from(n % 360) - 180.0);
        let point = Some(Point::new(north, east).context("on the globe")?);
        let place = Some(Place { point, ..Place::default() });
        Ok((n, Site { kind, place, ..Site::new(id.clone(), vec![]) }))
    };
    (0..).zip(sites).map(site).collect()
}

fn index(drawn: u32, of: usize) -> usize {
    usize::try_from(drawn).unwrap_or(0) % of
}

fn memory() -> Result<(u64, u64)> {
    rig::site::resident(std::process::id())
}

fn ms(began: Instant) -> f64 {
    let micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
    ratio(micros, 1000)
}

#[expect(clippy::as_conversions, clippy::cast_precision_loss, reason = "figures for people")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "figures for people"
)]
fn rounded(value: f64) -> u64 {
    value.round() as u64
}
