//! What a front tells its writer: how often it has led clients past their nearest site.

use std::time::Duration;

use identity::enrol;
use model::units::{Instant, Nanos};
use wire::v1::sheds::{ShedReport, ShedRow};

use super::Follower;

/// When to tell it, and what was told last.
pub(crate) struct Telling {
    start_id: u64,
    number: u64,
    due: Instant,
}

impl Telling {
    /// A front's process begins. It tells its first count as soon as it has one.
    pub(crate) fn begin(now: Instant) -> Self {
        let mut start_id = [0; 8];
        aws_lc_rs::rand::fill(&mut start_id).expect("the kernel gives random bytes");
        Self { start_id: u64::from_le_bytes(start_id), number: 0, due: now }
    }

    /// Tells all that was counted if it is time, and false if it could not be told. What is lost is
    /// said again with the next one, since each has all.
    pub(crate) fn turn(
        &mut self,
        now: Instant,
        counted: impl FnOnce() -> Vec<ShedRow>,
        follower: &Follower,
    ) -> bool {
        if now < self.due {
            return true;
        }
        let rows = counted();
        if rows.is_empty() {
            return true;
        }
        self.due = now + TELL_EVERY;
        self.number += 1;
        let report = ShedReport { start_id: self.start_id, number: self.number, rows };
        match follower.tell(&report) {
            Ok(204) => true,
            // A writer of the release before takes none.
            Ok(404) => {
                self.due = now + NOT_KNOWN_EVERY;
                true
            }
            Ok(_) | Err(_) => false,
        }
    }
}

impl Follower {
    /// The status with which the writer answers.
    fn tell(&self, report: &ShedReport) -> Result<u16, ureq::Error> {
        let url = format!("{}/v1/replica/sheds", enrol::control_url(&self.writer));
        let request = self.agent.post(&url).config().timeout_global(Some(TELL_MAX)).build();
        Ok(request.send_json(report)?.status().as_u16())
    }
}

/// The writer's answers are so old. With 8,000 sites 4 MB of JSON, some milliseconds of both.
const TELL_EVERY: Nanos = Nanos::seconds(10);

/// How often a writer is asked that does not know what this is.
const NOT_KNOWN_EVERY: Nanos = Nanos::seconds(600);

/// What is newer of the fleet waits meanwhile.
const TELL_MAX: Duration = Duration::from_secs(5);
