//! What a process does besides: plans; audits, scrubs and verifies samples, often.

use std::rc::Rc;

use model::extent::DriveIndex;
use model::units::{BitsPerSecond, Nanos};
use upkeep::{audit, scrub, verify};

use crate::process::Process;

/// Often, and fast: a simulation is short.
const WALK_EVERY: Nanos = Nanos::seconds(20);
const PASS_MIN: Nanos = Nanos::seconds(15);
const SCRUB_RATE: BitsPerSecond = BitsPerSecond(40_000_000);

/// Plans, some objects at a time.
pub(crate) async fn keep(process: Rc<Process>) {
    loop {
        process.wait_for_planning().await;
        process.plan().await;
    }
}

/// Hands out small objects, then compares the index with the files, again and again.
pub(crate) async fn look_at_files(process: Rc<Process>, drives: u8) {
    audit::run(&*process, drives, WALK_EVERY).await;
}

/// Reads a drive from end to end, again and again.
pub(crate) async fn read_all(process: Rc<Process>, index: DriveIndex) {
    scrub::run(&*process, index, SCRUB_RATE, PASS_MIN).await;
}

/// Verifies blocks that viewers were sent.
pub(crate) async fn check_samples(process: Rc<Process>) {
    verify::run(&*process).await;
}
