//! Which of two writers leads: asks the database, and does what `pure/lease` says.
//!
//! ```text
//! row of the database <── Take, Renew ── [ task: pure/lease ] ──> Standing, which others watch
//! ```
//!
//! A task of its own, with connections of its own: neither a long change nor a full pool keeps it
//! from renewing. SQLite has one writer, and no lease.

use std::pin::Pin;
use std::time::Duration;

use ::lease::{Action, Answer, Config, Event, Lease, Lost};
use model::machine::Machine;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::clock::Clock;
use crate::place::Place;
use crate::state::store::StoreError;
use crate::state::store::lease::Row;

/// A writer's place in the lease of its database; gives it up when dropped or ended.
pub(crate) struct Leading {
    standing: watch::Receiver<Standing>,
    row: Row,
    task: JoinHandle<()>,
}

/// What is known of the lease.
#[derive(Clone, Debug, Default)]
pub(crate) struct Standing {
    /// The epoch that this process leads with; none while it stands by.
    pub(crate) epoch: Option<u64>,
    /// How often it has begun to lead since its start.
    pub(crate) take_overs: u64,
    /// Where the other writer that leads is; empty if none is known to.
    pub(crate) leader: String,
}

impl Leading {
    /// Stands by, and says that this writer is at `address` if it ever leads. None with SQLite.
    pub(crate) async fn begin(place: &Place, address: &str) -> Result<Option<Self>, StoreError> {
        let Some(row) = Row::open(place, address).await? else { return Ok(None) };
        let (sender, standing) = watch::channel(Standing::default());
        let task = tokio::spawn(run(row.clone(), sender));
        Ok(Some(Self { standing, row, task }))
    }

    /// For those who look at it.
    pub(crate) fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.clone()
    }

    /// Gives the lease back, so that a standby need not wait for its end. Not for long.
    pub(crate) async fn end(&self) {
        self.task.abort();
        let epoch = self.standing.borrow().epoch;
        let ending = async {
            let given = match epoch {
                Some(epoch) => self.row.give_back(epoch).await,
                None => Ok(()),
            };
            self.row.close().await;
            given
        };
        let why = match timeout(END_WITHIN, ending).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the database does not answer".to_owned(),
        };
        tracing::warn!("the lease ends by itself, since it could not be given back: {why}");
    }
}

impl Drop for Leading {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Waits until this process leads; the epoch.
pub(crate) async fn led(standing: &mut watch::Receiver<Standing>) -> u64 {
    let found = standing.wait_for(|standing| standing.epoch.is_some()).await;
    match found.ok().and_then(|standing| standing.epoch) {
        Some(epoch) => epoch,
        // Nobody asks any more: the process ends.
        None => std::future::pending().await,
    }
}

/// Waits until this process does not lead with this epoch any more.
pub(crate) async fn lost(standing: &mut watch::Receiver<Standing>, epoch: u64) {
    let _ = standing.wait_for(|standing| standing.epoch != Some(epoch)).await;
}

/// A lease ends by itself 2.5 s after it was renewed.
const END_WITHIN: Duration = Duration::from_secs(1);

type Question = Pin<Box<dyn Future<Output = Result<(Answer, String), StoreError>> + Send>>;

async fn run(row: Row, standing: watch::Sender<Standing>) {
    let clock = Clock::start();
    let mut lease = Lease::new(Config::WRITERS, clock.now());
    let mut question: Option<Question> = None;
    let mut said = None;
    loop {
        while let Some(action) = lease.poll() {
            let row = row.clone();
            match action {
                Action::Take => question = Some(Box::pin(async move { row.take().await })),
                Action::Renew(epoch) => {
                    question = Some(Box::pin(async move { row.renew(epoch).await }));
                }
                Action::Lead(epoch) => {
                    tracing::info!(epoch, "this writer leads");
                    standing.send_modify(|standing| {
                        standing.epoch = Some(epoch);
                        standing.take_overs += 1;
                    });
                }
                Action::StepDown(lost) => {
                    tracing::warn!("this writer leads no more: {}", why(lost));
                    standing.send_modify(|standing| standing.epoch = None);
                }
            }
        }
        let due = lease.deadline().map_or(Duration::ZERO, |at| at.since(clock.now()).into());
        let event = tokio::select! {
            answer = asked(&mut question) => {
                question = None;
                match answer {
                    Ok((answer, leader)) => {
                        said = None;
                        standing.send_if_modified(|standing| {
                            let is_new = standing.leader != leader;
                            standing.leader = leader;
                            is_new
                        });
                        Event::Answered(answer)
                    }
                    Err(error) => {
                        let text = error.to_string();
                        if said.as_ref() != Some(&text) {
                            tracing::warn!(error = text, "the database does not say who leads");
                            said = Some(text);
                        }
                        Event::Failed
                    }
                }
            }
            () = sleep(due) => Event::Tick,
        };
        lease.handle(clock.now(), event);
    }
}

/// The answer to the question, if one was asked.
async fn asked(question: &mut Option<Question>) -> Result<(Answer, String), StoreError> {
    match question {
        Some(question) => question.await,
        None => std::future::pending().await,
    }
}

fn why(lost: Lost) -> &'static str {
    match lost {
        Lost::Taken => "another has taken over",
        Lost::Over => "the lease could not be renewed in time, or this process did not run",
    }
}
