//! Somebody else on the appliance's CPU, as on a machine that is too small or is shared.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use rig::cpu;
use rig::process::{On, Process, binary};
use serde::Serialize;

use super::world::SERVER_CPU;

/// Who wants the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Rival {
    /// Nobody.
    None,
    /// A process that would have 90 % of it, in turns of 9 ms of 10.
    Busy,
    /// A process that would have all of it.
    Greedy,
}

/// `nearcast-lab burn`: such a process.
#[derive(Debug, clap::Args)]
pub(crate) struct BurnArgs {
    #[arg(long)]
    cpu: usize,
    /// Of each 100 units of time.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    percent: u32,
}

const TURN: Duration = Duration::from_millis(10);
/// It ends with its parent, which kills it, and by itself if that was killed.
const LIFE_MAX: Duration = Duration::from_secs(1200);

impl Rival {
    /// Starts it, at the priority that everybody has; it ends when dropped.
    pub(super) fn start(self, dir: &Path) -> Result<Option<Process>> {
        let percent = match self {
            Self::None => return Ok(None),
            Self::Busy => "90",
            Self::Greedy => "100",
        };
        let words = ["burn", "--cpu", &SERVER_CPU.to_string(), "--percent", percent];
        let command: Vec<String> =
            std::iter::once(binary("nearcast-lab")?).chain(words.map(str::to_owned)).collect();
        Process::start("the rival", &command, On::default(), &dir.join("rival.log")).map(Some)
    }
}

/// Keeps its CPU busy for a part of each turn, until it is killed or `LIFE_MAX` is over.
pub(crate) fn burn(args: &BurnArgs) -> Result<()> {
    cpu::pin(args.cpu)?;
    let end = Instant::now() + LIFE_MAX;
    while Instant::now() < end {
        let turn = Instant::now();
        while turn.elapsed() < TURN * args.percent / 100 {
            std::hint::spin_loop();
        }
        std::thread::sleep((turn + TURN).saturating_duration_since(Instant::now()));
    }
    Ok(())
}
