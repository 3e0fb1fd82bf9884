//! What is wrong with a file, and what its parts have in common.

use std::fmt;
use std::net::IpAddr;

use model::topology::Prefix;

/// What was left out of a file: how much, and the first of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    count: usize,
    first: Vec<String>,
}

impl Faults {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn add(&mut self, line: usize, why: String) {
        self.note(|| format!("line {line}: {why}"));
    }

    pub(crate) fn add_at(&mut self, zone: &str, why: String) {
        let zone: String = zone.chars().take(60).collect();
        self.note(|| format!("zone {zone}: {why}"));
    }

    fn note(&mut self, text: impl FnOnce() -> String) {
        self.count += 1;
        if self.first.len() < SHOWN_MAX {
            self.first.push(text());
        }
        assert!(self.first.len() <= self.count, "what is shown was counted");
    }
}

const SHOWN_MAX: usize = 10;

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.first.iter().try_for_each(|fault| writeln!(f, "{fault}"))?;
        match self.count - self.first.len() {
            0 => Ok(()),
            more => writeln!(f, "and {more} more"),
        }
    }
}

/// A prefix, or an address, which is one of full length.
pub(crate) fn prefix(text: &str) -> Option<Prefix> {
    let prefix: Option<Prefix> = text.parse().ok();
    prefix.or_else(|| Some(text.parse::<IpAddr>().ok()?.into())).map(|prefix| prefix.trunc())
}
