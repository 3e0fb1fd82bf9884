//! The condition of a drive, as far as it is known without asking it: whether it answers, how much
//! room it has, how many of its objects failed.

use model::status::Units;
use model::units::{Bytes, Instant, Nanos};
use store::health::{self, Health, Verdict};
use store::silence::{self, Notice, Silence};

use crate::cause::DriveError;

/// Bounds.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Objects that may fail before the drive goes.
    pub health: health::Config,
    /// How long it hangs, or answers, before that is believed.
    pub silence: silence::Config,
    /// It hangs if it is being measured for longer.
    pub measure_max: Nanos,
    /// Nothing is put for so long on a drive that had no room though it said so.
    pub full_for: Nanos,
}

/// The condition of one drive.
#[derive(Debug)]
pub struct Condition {
    config: Config,
    health: Health,
    silence: Silence,
    /// When it had no room though it said so.
    full_at: Option<Instant>,
    /// Since when it is being measured; none in between.
    pub measured_from: Option<Instant>,
    pub space: Space,
    /// Objects and bytes of them by its log.
    pub held: (u64, Bytes),
    pub units: Units,
    /// Why the log could not be rewritten: who measures the drive says so, once.
    pub not_rewritten: Option<DriveError>,
}

/// How large a drive is, the reserve taken off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// What may be filled in all.
    pub capacity: Bytes,
    pub free: Bytes,
}

impl Condition {
    /// Of a drive that was opened now, and answers.
    pub fn new(config: Config, space: Space, held: (u64, Bytes)) -> Self {
        Self {
            config,
            health: Health::new(config.health),
            silence: Silence::default(),
            full_at: None,
            measured_from: None,
            space,
            held,
            units: Units::default(),
            not_rewritten: None,
        }
    }

    /// An object could not be read for the drive's sake: does it go, or the drive?
    pub fn object_failed(&mut self, now: Instant) -> Verdict {
        self.health.object_failed(now)
    }

    /// Counts failures from none on, by the same bounds.
    pub fn new_health(&self) -> Health {
        Health::new(self.config.health)
    }

    /// It had no room for what should fit: for a while nothing is put on it.
    pub fn note_full(&mut self, now: Instant) {
        self.full_at = Some(now);
    }

    /// What may be put on it now. None where it had no room (a quota, or a device that promised
    /// more than it has: the sum is wrong), and while it hangs.
    pub fn free(&self, now: Instant) -> Bytes {
        let is_full = self.full_at.is_some_and(|at| now.since(at) < self.config.full_for);
        if is_full || self.hangs(now).is_some() { Bytes::ZERO } else { self.space.free }
    }

    /// For how long it has been hanging; none while it answers.
    pub fn hangs(&self, now: Instant) -> Option<Nanos> {
        self.silence.lasts(now)
    }

    /// Takes note of whether it hangs, by what workers say and by how long it takes to be measured.
    pub fn look(&mut self, now: Instant, hangs: bool) -> Option<Notice> {
        let measure_max = self.config.measure_max;
        let measured = self.measured_from.is_some_and(|from| measure_max < now.since(from));
        self.silence.look(&self.config.silence, now, hangs || measured)
    }
}
