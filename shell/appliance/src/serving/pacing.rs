//! `[pacing]` of the configuration: the part that keeps responses to a rate, and its bounds.

use model::units::{BitsPerSecond, Bytes};
use serde::{Deserialize, Serialize};
use worker::{Config, PaceConfig, PaceMode};

use settings::{ConfigError, Text, wrong};

/// The part of the machine that spreads a response over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// None: a response is sent as fast as its client takes it.
    Off,
    /// The workers, in bursts.
    #[default]
    Own,
    /// The kernel alone, at two to three times the CPU where rates are low.
    Kernel,
}

/// How responses are paced. The defaults are from the frontier of `lab pace --frontier`:
/// docs/decisions/2026-11-22-pacing.md.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Pacing {
    pub(crate) mode: Mode,
    /// What goes at once, at most.
    pub(crate) burst: Text<Bytes>,
    /// The same where longer ones lose packets; `burst` if that is less.
    pub(crate) burst_min: Option<Text<Bytes>>,
    /// How many times the pace the kernel lets through; 0 for all.
    pub(crate) guard: u32,
    /// Where players say nothing and the asset version has no pace.
    pub(crate) ceiling: Option<Text<BitsPerSecond>>,
    /// Nobody is paced below this.
    pub(crate) floor: Text<BitsPerSecond>,
    /// Memory for what paced transfers keep between bursts, of all workers together. The default is
    /// a chunk for each of 630 downloads at once; whoever comes then reads a burst at a time.
    pub(crate) buffers: Text<Bytes>,
}

/// Most buffers of one worker: with those for reads and hot blocks below 2^16.
const BUFFERS_MAX: usize = 7500;

impl Default for Pacing {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            burst: Text(Bytes::kib(128)),
            burst_min: None,
            guard: 0,
            ceiling: None,
            floor: Text(BitsPerSecond(2_000_000)),
            buffers: Text(Bytes::mib(160)),
        }
    }
}

impl Pacing {
    /// Fills `burst_min` in.
    pub(crate) fn check(&mut self) -> Result<(), ConfigError> {
        let burst = self.burst.0;
        let burst_min = self.burst_min.get_or_insert_with(|| Text(Bytes::kib(8).min(burst))).0;
        for (key, burst) in [("burst", burst), ("burst_min", burst_min)] {
            if ![8, 16, 32, 64, 128].map(Bytes::kib).contains(&burst) {
                let message =
                    format!("{burst} is not 8, 16, 32, 64 or 128 KiB: whole records are sent");
                return Err(wrong("pacing", key, message));
            }
        }
        if burst < burst_min {
            let message = format!("{burst_min} is more than burst, which is {burst}");
            return Err(wrong("pacing", "burst_min", message));
        }
        if 16 < self.guard || self.guard == 1 {
            let message = format!(
                "{} is not 0 or 2 to 16: at the pace itself the kernel would do all of the work; \
                 for that there is mode = \"kernel\"",
                self.guard
            );
            return Err(wrong("pacing", "guard", message));
        }
        let floor = self.floor.0;
        if floor < BitsPerSecond(500_000) {
            let message = format!("{floor} is below 500 kb/s, at which nothing can be watched");
            return Err(wrong("pacing", "floor", message));
        }
        Ok(())
    }

    /// One worker's share.
    pub(crate) fn share(&self, workers: usize) -> PaceConfig {
        let (mode, buffers) = match self.mode {
            Mode::Off => (PaceMode::Off, 0),
            Mode::Own => (PaceMode::Own, self.buffers.0.0 / Config::BUFFER_LEN.0),
            Mode::Kernel => (PaceMode::Kernel, 0),
        };
        let buffers = (Bytes(buffers).as_usize() / workers).min(BUFFERS_MAX);
        PaceConfig {
            mode,
            burst: self.burst.0,
            burst_min: self.burst_min.map_or(self.burst, |least| least).0,
            guard: self.guard,
            ceiling: self.ceiling.map(|rate| rate.0),
            floor: self.floor.0,
            buffers: u16::try_from(buffers).expect("bounded by the line above"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<Pacing, String> {
        let mut pacing: Pacing = toml::from_str(text).map_err(|error| error.to_string())?;
        pacing.check().map_err(|error| error.to_string())?;
        Ok(pacing)
    }

    #[test]
    fn it_is_on_unless_it_is_said() {
        let pacing = check("").unwrap();
        assert_eq!(
            (pacing.mode, pacing.burst.0, pacing.ceiling),
            (Mode::Own, Bytes::kib(128), None)
        );
        assert_eq!(pacing.share(2).buffers, 315);
        let off = check("mode = \"off\"").unwrap().share(1);
        assert_eq!((off.mode, off.buffers), (PaceMode::Off, 0));
        assert_eq!(check("mode = \"kernel\"").unwrap().share(1).buffers, 0);
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_could() {
        assert!(check("burst = \"20 KiB\"").unwrap_err().contains("16, 32"));
        let min = check("burst = \"16 KiB\"\nburst_min = \"32 KiB\"").unwrap_err();
        assert!(min.contains("burst_min") && min.contains("16 KiB"), "{min}");
        assert!(check("burst = \"256 KiB\"").unwrap_err().contains("128 KiB"));
        assert!(check("guard = 1").unwrap_err().contains("mode = \"kernel\""));
        assert!(check("floor = \"1 kb/s\"").unwrap_err().contains("500 kb/s"));
        assert!(check("mode = \"on\"").unwrap_err().contains("`off`, `own`, `kernel`"));
        assert_eq!(check("guard = 0\nburst = \"64 KiB\"").unwrap().guard, 0);
    }
}
