//! What a front tells its writer: how often it has led clients past their nearest site.

use std::time::Duration;

use identity::enrol;
use model::units::{Instant, Nanos};
use wire::v1::sheds::{ShedReport, ShedRow};

use super::Follower;
use crate::members::authority::random;

/// When to tell it, and what was told last.
pub(crate) struct Telling {
    start_id: u64,
    number: u64,
    due: Instant,
    /// That the writer refuses it was logged.
    refused: bool,
}

/// The way to the writer, with the identity of the day.
#[derive(Clone)]
pub(crate) struct Line {
    agent: ureq::Agent,
    url: String,
}

impl Telling {
    /// A front's process begins. It tells its first count as soon as it has one.
    pub(crate) fn begin(now: Instant) -> Self {
        Self { start_id: u64::from_le_bytes(random()), number: 0, due: now, refused: false }
    }

    /// Tells all that was counted if it is time, and false if it could not be told. What is lost is
    /// said again with the next one, since each has all.
    pub(crate) fn turn(
        &mut self,
        now: Instant,
        counted: impl FnOnce() -> Vec<ShedRow>,
        line: &Line,
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
        match line.tell(&report) {
            Ok(204) => {
                self.refused = false;
                true
            }
            // A writer of the release before takes none.
            Ok(404) => {
                self.due = now + NOT_KNOWN_EVERY;
                true
            }
            // No report after it would be shorter.
            Ok(status @ (400 | 413)) => {
                if !std::mem::replace(&mut self.refused, true) {
                    let rows = report.rows.len();
                    tracing::warn!(
                        status,
                        rows,
                        "the writer refuses the counts of sheds, and its sums lack them: restart \
                         this front, and they begin anew"
                    );
                }
                false
            }
            Ok(_) | Err(_) => false,
        }
    }
}

impl Follower {
    /// Good until its identity is renewed.
    pub(crate) fn line(&self) -> Line {
        let url = format!("{}/v1/replica/sheds", enrol::control_url(&self.writer));
        Line { agent: self.agent.clone(), url }
    }
}

impl Line {
    /// The status with which the writer answers.
    fn tell(&self, report: &ShedReport) -> Result<u16, ureq::Error> {
        let request = self.agent.post(&self.url).config().timeout_global(Some(TELL_MAX)).build();
        Ok(request.send_json(report)?.status().as_u16())
    }
}

/// The writer's answers are so old. With 8,000 sites it is reckoned to be 8 to 17 MB of JSON, by
/// the length of names.
const TELL_EVERY: Nanos = Nanos::seconds(10);

/// How often a writer is asked that does not know what this is.
const NOT_KNOWN_EVERY: Nanos = Nanos::seconds(600);

/// Nothing waits meanwhile but the next one.
const TELL_MAX: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::front::tests::following;
    use tokio::task::spawn_blocking;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_report_that_the_writer_refuses_is_noticed_and_the_next_one_is_told() {
        let (_files, control, serving, follower) = following().await;
        let row = |name: String| ShedRow {
            by: "site".to_owned(),
            name,
            class: "content".to_owned(),
            begun: 1,
            ..ShedRow::default()
        };
        let turns = move || {
            let mut telling = Telling::begin(Instant(0));
            let long = || vec![row("n".repeat(crate::api::SHEDS_LEN_MAX.as_usize()))];
            assert!(!telling.turn(Instant(0), long, &follower.line()));
            assert!(telling.refused, "it is said in the log");
            let now = Instant(0) + TELL_EVERY;
            assert!(telling.turn(now, || vec![row("far".to_owned())], &follower.line()));
            assert!(!telling.refused);
        };
        spawn_blocking(turns).await.unwrap();
        assert_eq!(control.sheds.fronts.count(control.clock.now()), 1);
        serving.abort();
    }
}
