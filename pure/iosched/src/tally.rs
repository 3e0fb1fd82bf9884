//! Times of reads, counted where they were asked and added up where writes are held back.

use model::units::{Instant, Nanos};

/// Counts of reads. They only grow, and add over workers: no average does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Reads that came back.
    pub reads: u64,
    /// Of these, over the target.
    pub late: u64,
    /// Over 6/10 of it.
    pub near: u64,
    /// Over a third of it.
    pub far: u64,
    /// Time they spent in the drive, added up.
    pub service: Nanos,
}

/// What one worker's reads of a drive met, and what it has asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slice {
    /// Since the start.
    pub tally: Tally,
    pub in_flight: u32,
    /// When the oldest of them went.
    pub oldest: Option<Instant>,
}

impl Tally {
    /// One read that was waited for during `span`, `service` of it in the drive.
    pub fn of(target: Nanos, span: Nanos, service: Nanos) -> Self {
        Self {
            reads: 1,
            late: u64::from(target < span),
            near: u64::from(target.0 * 6 / 10 < span.0),
            far: u64::from(target.0 / 3 < span.0),
            service,
        }
    }

    /// Adds another tally's counts to these.
    pub fn add(&mut self, other: &Self) {
        self.reads += other.reads;
        self.late += other.late;
        self.near += other.near;
        self.far += other.far;
        self.service.0 += other.service.0;
    }

    /// The counts since an earlier look. Counts are read one by one while they grow, so one may
    /// seem to fall behind another; none falls below zero.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            reads: self.reads.saturating_sub(before.reads),
            late: self.late.saturating_sub(before.late),
            near: self.near.saturating_sub(before.near),
            far: self.far.saturating_sub(before.far),
            service: Nanos(self.service.0.saturating_sub(before.service.0)),
        }
    }
}
