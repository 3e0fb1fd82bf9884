//! What this appliance's routers announce: asked of `nearcast-agent routes`, told in reports, and
//! sent to whoever of the control plane wants it.
//!
//! ```text
//! agent ── summary, four times a second ──> Routes ──> reports
//! control ── wanted ──> Sending: part by part from the agent to control, some in each turn
//! ```
//!
//! Nothing of a table is kept here: a part is asked for when it is sent.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use model::units::{Instant, Nanos};
use wire::v1::agent::{Answer, Request};
use wire::v1::routes::{Heard, Part, PartTaken, Wanted};

use crate::lock::lock;
use crate::membership::agent_link;
use crate::storage::shared::Shared;

/// Between two questions to the agent.
const EVERY: Nanos = Nanos::millis(250);
/// For the agent's answer. To cut a full table into parts takes it a second.
const PATIENCE: Duration = Duration::from_secs(5);
/// Parts are sent for so long between two reports.
const TURN: Nanos = Nanos::seconds(1);

/// What the agent said last.
#[derive(Clone, Debug)]
pub struct Routes {
    agent: PathBuf,
    heard: Arc<Mutex<Option<Heard>>>,
}

/// A table on its way to one process of the control plane.
#[derive(Debug, Default)]
pub(crate) struct Sending {
    known: Option<String>,
    to: String,
    next: u32,
}

impl Routes {
    /// Asks the agent at this socket.
    pub fn new(agent: PathBuf) -> Self {
        Self { agent, heard: Arc::default() }
    }

    pub(crate) fn heard(&self) -> Option<Heard> {
        lock(&self.heard).clone()
    }

    /// Asks until all must stop.
    pub(crate) fn run(&self, shared: &Shared) {
        let mut said: Option<String> = None;
        loop {
            let began = shared.ledger.now();
            let heard = match agent_link::ask(&self.agent, Request::Routes, PATIENCE) {
                Ok(Answer::Routes(heard)) => Ok(*heard),
                Ok(_) => Err(agent_link::SOMETHING_ELSE.to_owned()),
                Err(error) => Err(error),
            };
            // An agent that is away changes nothing: what it said last is told on.
            let fault = match &heard {
                Ok(heard) => heard.error.clone(),
                Err(error) => Some(error.clone()),
            };
            if fault != said {
                match &fault {
                    Some(error) => {
                        tracing::warn!(error, "what routers announce is not known");
                        shared.ledger.note("routes", format!("not known any more: {error}"));
                    }
                    None => tracing::info!("what routers announce is known again"),
                }
                said = fault;
            }
            if let Ok(heard) = heard {
                *lock(&self.heard) = Some(heard);
            }
            if !shared.ledger.sleep_until(began + EVERY) {
                return;
            }
        }
    }

    fn part(&self, sending: &Sending) -> Result<Part, String> {
        let (known, to) = (sending.known.clone(), sending.to.clone());
        let request = Request::RoutesPart { known, to, number: sending.next };
        let answer = agent_link::ask(&self.agent, request, PATIENCE)?;
        if let Answer::RoutesPart(part) = answer {
            Ok(*part)
        } else {
            Err(agent_link::SOMETHING_ELSE.to_owned())
        }
    }
}

impl Sending {
    /// Goes on with what is wanted, for a second. True if there is more to send.
    pub(crate) fn go_on<E>(
        &mut self,
        wanted: &Wanted,
        routes: &Routes,
        send: impl Fn(&Part) -> Result<PartTaken, E>,
        now: impl Fn() -> Instant,
    ) -> Result<bool, E> {
        let Some(heard) = routes.heard() else { return Ok(false) };
        if (&self.known, &self.to) != (&wanted.known, &heard.digest) {
            *self = Self { known: wanted.known.clone(), to: heard.digest, next: 0 };
        }
        let began = now();
        while now().since(began) < TURN {
            // Another table by now: the next report tells of it.
            let Ok(part) = routes.part(self) else {
                *self = Self::default();
                return Ok(false);
            };
            let next = send(&part)?.next;
            if part.is_last || next != part.number + 1 {
                *self = Self::default();
                return Ok(false);
            }
            self.next = next;
        }
        Ok(true)
    }
}
