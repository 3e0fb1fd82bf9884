//! `nearcast-lab vm`: drives that fail under the real kernel, in a virtual machine.
//!
//! ```text
//! this machine                           guest: a Debian kernel under qemu, no KVM
//!   origin, control ── 10.0.2.2 ──────>  nearcast-appliance, nearcast-agent
//!   players ── TLS, every byte ──────>     XFS  XFS  XFS  XFS
//!   QMP ───────────────────────────────>   d0   d1   d2   d3    NVMe: media errors, slow, pulled
//! ```
//!
//! One boot, test after test, players all the time. What is emulated says nothing about speed, but
//! errors, removals and remounts are the kernel's own.

mod initrd;
mod machine;
mod player;
mod tests;
mod world;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, ensure};
use serde::Serialize;
use tracing::{info, warn};

use player::Seen;
use world::World;

use crate::room::RunArgs;

/// What `vm` is told.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// An unpacked kernel package, with its modules.dep (./x vm test makes one).
    #[arg(long)]
    kernel: PathBuf,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, Default, Serialize)]
struct Outcome {
    tests: Vec<Tested>,
    /// Over all tests, of every byte that came to players.
    wrong_bytes: u64,
    /// Times that the appliance ended, or that nobody in the guest could say: it is the last test.
    restarts: u64,
    /// The longest time from the first error of a drive until nothing of what was on it was in the
    /// inventory.
    inventory_s_max: f64,
    players: Seen,
    elapsed_s: f64,
}

#[derive(Debug, Default, Serialize)]
struct Tested {
    name: &'static str,
    ok: bool,
    seconds: f64,
    /// From the first error until what was on the drive was out of the inventory.
    #[serde(skip_serializing_if = "Option::is_none")]
    inventory_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// From the first error of a drive until nothing of what was on it is in the inventory.
const INVENTORY_MAX_S: f64 = 2.0;

/// A test: how long the inventory took to be right, where something was lost.
type Test<W> = fn(&mut W) -> Result<Option<f64>>;

pub(crate) fn run(args: &Args) -> Result<()> {
    let began = Instant::now();
    let dir = args.run.open()?;
    let mut outcome = Outcome::default();
    let mut world = None;
    outcome.test("boot-and-fill", || {
        world = Some(World::new(&args.kernel, &dir)?);
        Ok(None)
    })?;
    if let Some(world) = &mut world {
        outcome.all(world, &tests::ALL, World::is_as_it_was)?;
        outcome.players = world.players.seen();
        outcome.wrong_bytes = outcome.players.bytes_wrong;
    }
    drop(world);
    outcome.elapsed_s = began.elapsed().as_secs_f64();
    let failed = outcome.tests.iter().filter(|test| !test.ok).count();
    let tests = outcome.tests.len();
    rig::say(args.run.json, &outcome, || format!("{} of {tests} ok, {outcome:?}", tests - failed))?;
    ensure!(outcome.restarts == 0, "the appliance ended");
    ensure!(failed == 0, "{failed} tests failed");
    ensure!(outcome.wrong_bytes == 0, "{} wrong bytes", outcome.wrong_bytes);
    ensure!(0 < outcome.players.files_right, "nothing came to players");
    Ok(())
}

impl Outcome {
    /// Runs tests in order, until one after which the appliance is not as it was: that one failed,
    /// whatever else it found, and those after it are not run.
    fn all<W>(
        &mut self,
        world: &mut W,
        tests: &[(&'static str, Test<W>)],
        is_as_it_was: fn(&mut W) -> Result<()>,
    ) -> Result<()> {
        for (name, test) in tests {
            self.test(name, || test(world))?;
            let Err(ended) = is_as_it_was(world) else { continue };
            warn!(name, "{ended:#}");
            self.restarts = 1;
            if let Some(tested) = self.tests.last_mut() {
                tested.ok = false;
                let found = tested.error.take().map(|error| format!("{error}; then "));
                tested.error = Some(format!("{}{ended:#}", found.unwrap_or_default()));
            }
            return Ok(());
        }
        Ok(())
    }

    /// Runs a test, whose value is how long the inventory took to be right, if it had to become so.
    fn test(
        &mut self,
        name: &'static str,
        test: impl FnOnce() -> Result<Option<f64>>,
    ) -> Result<()> {
        let began = Instant::now();
        let result = test().and_then(|took| {
            let late = took.is_some_and(|took| INVENTORY_MAX_S < took);
            ensure!(!late, "the inventory was right after {took:?} s");
            Ok(took)
        });
        rig::stop::check()?;
        let seconds = began.elapsed().as_secs_f64();
        let mut tested = Tested { name, seconds, ok: result.is_ok(), ..Tested::default() };
        match result {
            Ok(took) => {
                info!(name, seconds, inventory_s = took, "ok");
                self.inventory_s_max = self.inventory_s_max.max(took.unwrap_or(0.0));
                tested.inventory_s = took;
            }
            Err(error) => {
                warn!(name, seconds, "failed: {error:#}");
                tested.error = Some(format!("{error:#}"));
            }
        }
        self.tests.push(tested);
        Ok(())
    }
}

#[cfg(test)]
mod tests_of_outcome {
    use super::*;

    #[test]
    fn where_the_appliance_ended_the_tests_do_and_what_was_found_is_told() {
        // The world is how many tests were run.
        let good: Test<u32> = |count| {
            *count += 1;
            Ok(Some(0.5))
        };
        let bad: Test<u32> = |count| {
            *count += 1;
            anyhow::bail!("not as it should be")
        };
        let check = |tests: &[(&'static str, Test<u32>)], restarts, oks: &[bool]| {
            let mut outcome = Outcome::default();
            let ends_at_two = |count: &mut u32| {
                ensure!(*count != 2, "no process");
                Ok(())
            };
            outcome.all(&mut 0, tests, ends_at_two).unwrap();
            assert_eq!(outcome.tests.iter().map(|test| test.ok).collect::<Vec<_>>(), oks);
            assert_eq!(outcome.restarts, restarts);
            serde_json::to_string(&outcome).unwrap()
        };
        check(&[("a", good)], 0, &[true]);
        let said = check(&[("a", good), ("b", good), ("c", good)], 1, &[true, false]);
        assert!(said.contains(r#""error":"no process""#), "{said}");
        let said = check(&[("a", bad), ("b", bad), ("c", good)], 1, &[false, false]);
        assert!(said.contains("not as it should be; then no process"), "{said}");
    }
}
