//! `[pacing]` of the configuration: who keeps responses to a rate, and with what.

use std::fmt;

use model::units::{BitsPerSecond, Bytes};
use serde::{Deserialize, Serialize};
use worker::{Config, PaceConfig, PaceMode};

use crate::setting::{ConfigError, Quantity, word, wrong};

/// The section's shape.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PacingFile {
    mode: Option<Mode>,
    burst: Option<Quantity<Bytes>>,
    burst_min: Option<Quantity<Bytes>>,
    guard: Option<u32>,
    ceiling: Option<Quantity<BitsPerSecond>>,
    floor: Option<Quantity<BitsPerSecond>>,
    buffers: Option<Quantity<Bytes>>,
}

/// Who paces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Nobody.
    Off,
    /// The workers, in bursts.
    #[default]
    Own,
    /// The kernel alone, at two to three times the CPU where rates are low.
    Kernel,
}

/// How responses are paced, checked.
#[derive(Clone, Copy, Debug)]
pub struct Pacing {
    pub mode: Mode,
    /// What goes at once, at most.
    pub burst: Bytes,
    /// The same where longer ones lose packets.
    pub burst_min: Bytes,
    /// How many times the pace the kernel lets through; 0 for all.
    pub guard: u32,
    /// Where players say nothing and the asset version has no pace.
    pub ceiling: Option<BitsPerSecond>,
    /// Nobody is paced below this.
    pub floor: BitsPerSecond,
    /// Memory for what paced transfers keep between bursts, of all workers together.
    pub buffers: Bytes,
}

/// From the frontier of `lab pace --frontier`: docs/decisions/2026-11-22-pacing.md.
const BURST: Bytes = Bytes::kib(128);
const BURST_MIN: Bytes = Bytes::kib(16);
const GUARD: u32 = 0;
const FLOOR: BitsPerSecond = BitsPerSecond(2_000_000);
/// A chunk for each of 630 downloads at once; whoever comes then reads a burst at a time.
const BUFFERS: Bytes = Bytes::mib(160);
/// Most buffers of one worker: with those for reads and hot blocks below 2^16.
const BUFFERS_MAX: usize = 7500;

impl PacingFile {
    pub(crate) fn check(self) -> Result<Pacing, ConfigError> {
        let burst = self.burst.map_or(BURST, |burst| burst.0);
        let burst_min = self.burst_min.map_or_else(|| BURST_MIN.min(burst), |burst| burst.0);
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
        let guard = self.guard.unwrap_or(GUARD);
        if 16 < guard || guard == 1 {
            let message = format!(
                "{guard} is not 0 or 2 to 16: at the pace itself the kernel would do all of the \
                 work; for that there is mode = \"kernel\""
            );
            return Err(wrong("pacing", "guard", message));
        }
        let floor = self.floor.map_or(FLOOR, |floor| floor.0);
        if floor < BitsPerSecond(500_000) {
            let message = format!("{floor} is below 500 kb/s, at which nothing can be watched");
            return Err(wrong("pacing", "floor", message));
        }
        Ok(Pacing {
            mode: self.mode.unwrap_or_default(),
            burst,
            burst_min,
            guard,
            ceiling: self.ceiling.map(|ceiling| ceiling.0),
            floor,
            buffers: self.buffers.map_or(BUFFERS, |buffers| buffers.0),
        })
    }
}

impl Pacing {
    /// Section, key and value of each setting, for people.
    pub(crate) fn rows(&self) -> [(&'static str, &'static str, String); 7] {
        let text = |value: &dyn fmt::Display| format!("\"{value}\"");
        let ceiling = self.ceiling.map_or_else(|| "none".to_owned(), |rate| text(&rate));
        [
            ("mode", word(&self.mode)),
            ("burst", text(&self.burst)),
            ("burst_min", text(&self.burst_min)),
            ("guard", self.guard.to_string()),
            ("ceiling", ceiling),
            ("floor", text(&self.floor)),
            ("buffers", text(&self.buffers)),
        ]
        .map(|(key, value)| ("pacing", key, value))
    }

    /// One worker's share.
    pub(crate) fn share(&self, workers: usize) -> PaceConfig {
        let (mode, buffers) = match self.mode {
            Mode::Off => (PaceMode::Off, 0),
            Mode::Own => (PaceMode::Own, self.buffers.0 / Config::BUFFER_LEN.0),
            Mode::Kernel => (PaceMode::Kernel, 0),
        };
        let buffers = (Bytes(buffers).as_usize() / workers).min(BUFFERS_MAX);
        PaceConfig {
            mode,
            burst: self.burst,
            burst_min: self.burst_min,
            guard: self.guard,
            ceiling: self.ceiling,
            floor: self.floor,
            buffers: u16::try_from(buffers).expect("bounded by the line above"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<Pacing, String> {
        let file: PacingFile = toml::from_str(text).map_err(|error| error.to_string())?;
        file.check().map_err(|error| error.to_string())
    }

    #[test]
    fn it_is_on_unless_it_is_said() {
        let pacing = check("").unwrap();
        assert_eq!((pacing.mode, pacing.burst, pacing.ceiling), (Mode::Own, BURST, None));
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
