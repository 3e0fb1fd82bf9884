//! How long a writer takes to begin anew: from control's own database until lists are right.
//!
//! ```text
//! world ──> Store::put_many ──> control.sqlite, out of the page cache
//!       Store::desired ──> Director::new ──┬─> all of all appliances ──> lists
//!            read_s            begin_s     └─> a plan, beside it   reports_s
//! ```
//!
//! What control does besides is left out: keys, identities, connections, and the reading of what
//! comes. A report's check is worked out as control does, and counts.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant as Clock};

use anyhow::{Context, Result};
use control::place::Place;
use control::state::store::Store;
use director::{Action, Director, Event, Ledger};
use model::inventory::{Check, FilesDelta};
use model::machine::Machine as _;
use model::units::UnixSeconds;
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;
use tracing::info;

use super::world::{self, World};
use super::{BEGIN, CONFIG, Stand, State, TICK, at_once, gigabytes};

/// What `lab director` tells of a restart.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Restart {
    /// The sum of the next three, by the clock.
    pub(super) restart_s: f64,
    /// Desired state out of the database; and the CPU time of all threads for that.
    read_s: f64,
    read_cpu_s: f64,
    /// From there to a director that was told nothing; and its thread's CPU time.
    begin_s: f64,
    begin_cpu_s: f64,
    /// All of all appliances, each taken and answered, while the plan is made.
    reports_s: f64,
    /// The database.
    database_gb: f64,
    /// Resident memory at the end, and the most until then, in which the generator's own world was.
    restart_rss_gb: f64,
    restart_peak_gb: f64,
    /// A hash of the lists of some players.
    pub(super) lists: String,
}

/// Versions that are written in one transaction.
const AT_ONCE: usize = 500;

pub(super) fn run(world: &mut World, folder: &Path, seed: u64) -> Result<Restart> {
    let runtime = Runtime::new()?;
    let file = folder.join("control.sqlite");
    if !file.exists() {
        info!("writing a database");
        runtime.block_on(write(world, folder))?;
    }
    let names: Vec<_> = world.versions.iter().map(|version| version.id().clone()).collect();
    world.replace_versions(Vec::new());
    let mut restart = Restart::default();
    let written = std::fs::File::open(&file)?;
    restart.database_gb = gigabytes(written.metadata()?.len());
    written.sync_all()?;
    rustix::fs::fadvise(&written, 0, None, rustix::fs::Advice::DontNeed)?;

    info!("reading it");
    let process = rig::cpu::Account::Processes(std::process::id());
    let (begun, spent) = (Clock::now(), process.used()?);
    let (desired, ledger) = runtime.block_on(read(folder))?;
    restart.read_s = begun.elapsed().as_secs_f64();
    restart.read_cpu_s = process.used()?.saturating_sub(spent).as_secs_f64();
    let version = |id| desired.catalog.version(id).map(Arc::clone).context("a version is lost");
    world.replace_versions(names.iter().map(version).collect::<Result<_>>()?);

    info!("starting");
    let (begun, spent) = (Clock::now(), rig::cpu::of_this_thread()?);
    let director = Director::new(CONFIG, desired, ledger, BEGIN, UnixSeconds(1));
    restart.begin_s = begun.elapsed().as_secs_f64();
    restart.begin_cpu_s = rig::cpu::of_this_thread()?.saturating_sub(spent).as_secs_f64();
    let mut stand = Stand::of(world, director)?;

    info!("all report all");
    restart.reports_s = all_report_all(&mut stand)?.as_secs_f64();
    restart.restart_s = restart.read_s + restart.begin_s + restart.reports_s;
    restart.lists = stand.lists(seed)?;
    let (now, most) = rig::site::resident(std::process::id())?;
    (restart.restart_rss_gb, restart.restart_peak_gb) = (gigabytes(now), gigabytes(most));
    Ok(restart)
}

async fn write(world: &World, folder: &Path) -> Result<()> {
    let desired = world.desired()?;
    let store = Store::open(&Place::Folder(folder.to_owned())).await?;
    let fleet = (desired.sites.values(), desired.appliances.values());
    store.put_many(fleet.0, fleet.1, std::iter::empty()).await?;
    for versions in world.versions.chunks(AT_ONCE) {
        rig::stop::check()?;
        let made = versions.iter().map(|of| world::with_blocks(of)).collect::<Result<Vec<_>>>()?;
        let made = made.iter().map(|(version, blocks)| (version, blocks.clone()));
        store.put_many(std::iter::empty(), std::iter::empty(), made).await?;
    }
    store.close().await;
    Ok(())
}

async fn read(folder: &Path) -> Result<(director::Desired, Ledger)> {
    let store = Store::open(&Place::Folder(folder.to_owned())).await?;
    let mut desired = store.desired().await?;
    desired.token_keys = world::token_keys();
    let ledger = store.ledger().await?;
    store.close().await;
    Ok((desired, ledger))
}

/// How long the director's thread took until all were answered, by the clock: without the drawing
/// of what appliances hold.
fn all_report_all(stand: &mut Stand<'_>) -> Result<Duration> {
    let (mut spent, mut tick_at, mut plan) = (Duration::ZERO, Duration::ZERO, None);
    let count = stand.world.size.appliances;
    for n in 0..count {
        rig::stop::check()?;
        let came = stand.world.holdings(n).files()?;
        let begun = Clock::now();
        let check = Check::of_files(&came);
        stand.states[usize::try_from(n)?] = State { number: 1, check, is_out: false };
        let inventory = FilesDelta { to: 1, came, check, ..FilesDelta::default() };
        stand.take_report(n, inventory)?;
        if tick_at <= spent {
            tick(stand);
            tick_at = spent + TICK;
        }
        carry_out(&mut stand.director, &mut plan, stand.now)?;
        spent += begun.elapsed();
    }
    let begun = Clock::now();
    (0..=count / LOADS).for_each(|_| tick(stand));
    spent += begun.elapsed();
    plan.into_iter().for_each(|plan| drop(plan.join()));
    Ok(spent)
}

/// Loads of about so many are drawn in a tick, and those of the last reports are to be drawn, too.
const LOADS: u32 = 1000;

fn tick(stand: &mut Stand<'_>) {
    let event = Event::Tick(UnixSeconds(stand.now.0 / 1_000_000_000));
    stand.director.handle(stand.now, event);
}

type Planning = JoinHandle<Result<Option<Event<'static>>>>;

/// As control does: a plan is made beside all else.
fn carry_out(
    director: &mut Director,
    plan: &mut Option<Planning>,
    now: model::units::Instant,
) -> Result<()> {
    if let Some(made) = plan.take_if(|plan| plan.is_finished()) {
        let made = made.join().expect("no plan panics")?;
        made.into_iter().for_each(|event| director.handle(now, event));
    }
    while let Some(action) = director.poll() {
        if matches!(action, Action::Place(_)) {
            *plan = Some(std::thread::spawn(move || Ok(at_once(action)?.0)));
        } else if matches!(action, Action::Free(_)) {
            drop(std::thread::spawn(move || drop(action)));
        } else if let Some(event) = at_once(action)?.0 {
            director.handle(now, event);
        }
    }
    Ok(())
}
