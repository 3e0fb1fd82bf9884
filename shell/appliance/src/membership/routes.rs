//! What this appliance's routers announce: asked of `nearcast-agent routes`, told in reports, and
//! sent to whoever of the control plane wants it.
//!
//! ```text
//! agent ── summary, four times a second ──> Routes ──> reports
//! control ── reply to a report ──> Wish ──> a thread for each process of the control plane:
//!                                           part by part from the agent to control
//! ```
//!
//! Nothing of a table is kept here: a part is asked for when it is sent. Reports wait for none of
//! it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use model::units::{Instant, Nanos};
use wire::v1::agent::{Answer, Request};
use wire::v1::routes::{EMPTY, Heard, Part, PartTaken, Wanted};

use crate::lock::lock;
use crate::membership::agent_link;
use crate::membership::client::{ControlClient, ControlError};
use crate::storage::shared::Shared;

/// Between two questions to the agent.
const EVERY: Nanos = Nanos::millis(250);
/// For the agent's answer. To cut a full table into parts takes it a second.
const PATIENCE: Duration = Duration::from_secs(5);
/// An agent that has not answered for so long is said not to.
const LATE: Nanos = Nanos::seconds(2);
/// After so long without an answer nothing is heard any more: the agent does the same with BIRD.
const SILENT: Nanos = Nanos::seconds(30);
/// Between two looks at the wish.
const LOOK: Nanos = Nanos::millis(50);
/// Between two tries to send a table: from the first, doubled, to the longest.
const RETRY_FIRST: Nanos = Nanos::millis(500);
const RETRY_MAX: Nanos = Nanos::seconds(5);

/// What the agent said last.
#[derive(Clone, Debug)]
pub struct Routes {
    agent: PathBuf,
    said: Arc<Mutex<Said>>,
}

#[derive(Debug, Default)]
struct Said {
    /// The last answer that had a table, and when it came.
    heard: Option<(Heard, Instant)>,
    /// When the agent answered last; before, the start of this process.
    answered: Instant,
    fault: Option<String>,
}

/// The table that a process of the control plane wants, handed to the thread that sends it.
#[derive(Debug, Default)]
pub(crate) struct Wish(Mutex<Wished>);

#[derive(Debug, Default)]
struct Wished {
    wanted: Option<Wanted>,
    /// When the last one was sent.
    sent: Instant,
}

impl Said {
    fn learn(&mut self, now: Instant, answer: Result<Heard, String>) {
        match answer {
            Ok(heard) => {
                self.answered = now;
                self.fault.clone_from(&heard.error);
                // An agent that has just started knows nothing yet, which is no empty table.
                if heard.digest.is_some() {
                    self.heard = Some((heard, now));
                }
            }
            Err(error) => self.fault = Some(error),
        }
    }

    /// For a report: the last answer, marked if it is not of now; nothing once it is too old.
    fn told(&self, now: Instant) -> Heard {
        let silence = now.since(self.answered);
        let late = || "it does not answer".to_owned();
        let error = self.fault.clone().or_else(|| (LATE <= silence).then(late));
        let age = |(heard, at): &(Heard, Instant)| {
            heard.age_s.unwrap_or(0).saturating_add(now.since(*at).as_seconds())
        };
        let age_s = self.heard.as_ref().filter(|_| error.is_some()).map(age);
        if SILENT <= silence {
            let digest = Some(EMPTY.to_owned());
            return Heard { digest, error, age_s, ..Heard::default() };
        }
        match &self.heard {
            Some((heard, _)) => Heard { error, age_s, ..heard.clone() },
            None => {
                let error = error.or_else(|| Some("it was not asked yet".to_owned()));
                Heard { error, ..Heard::default() }
            }
        }
    }
}

impl Wish {
    /// A report that was begun then was answered so.
    pub(crate) fn set(&self, began: Instant, wanted: Option<Wanted>) {
        let mut wished = lock(&self.0);
        // One from before the last part was taken may ask for the same once more.
        wished.wanted = wanted.filter(|_| wished.sent <= began);
    }

    fn take(&self) -> Option<Wanted> {
        lock(&self.0).wanted.take()
    }

    fn sent(&self, now: Instant) {
        *lock(&self.0) = Wished { wanted: None, sent: now };
    }
}

impl Routes {
    /// Asks the agent at this socket.
    pub fn new(agent: PathBuf) -> Self {
        Self { agent, said: Arc::default() }
    }

    pub(crate) fn told(&self, now: Instant) -> Heard {
        lock(&self.said).told(now)
    }

    /// Asks until all must stop.
    pub(crate) fn run(&self, shared: &Shared) {
        let mut noted: Option<String> = None;
        loop {
            let began = shared.ledger.now();
            let heard = match agent_link::ask(&self.agent, Request::Routes, PATIENCE) {
                Ok(Answer::Routes(heard)) => Ok(*heard),
                Ok(_) => Err(agent_link::SOMETHING_ELSE.to_owned()),
                Err(error) => Err(error),
            };
            let fault = {
                let mut said = lock(&self.said);
                said.learn(shared.ledger.now(), heard);
                said.fault.clone()
            };
            if fault != noted {
                match &fault {
                    Some(error) => {
                        tracing::warn!(error, "what routers announce is not known");
                        shared.ledger.note("routes", format!("not known any more: {error}"));
                    }
                    None => tracing::info!("what routers announce is known again"),
                }
                noted = fault;
            }
            if !shared.ledger.sleep_until(began + EVERY) {
                return;
            }
        }
    }

    /// Sends a process of the control plane what it wants, until all must stop.
    pub(crate) fn send_on(&self, shared: &Shared, client: &ControlClient, wish: &Wish) {
        let mut failures = 0_u32;
        loop {
            let mut wait = LOOK;
            match self.send_wished(shared, client, wish) {
                Ok(true) => failures = 0,
                Ok(false) => {}
                Err(error) => {
                    if failures == 0 {
                        tracing::warn!(%error, "what routers announce was not sent");
                    }
                    wait = Nanos(RETRY_FIRST.0 << failures.min(4)).min(RETRY_MAX);
                    failures += 1;
                }
            }
            if !shared.ledger.sleep_until(shared.ledger.now() + wait) {
                return;
            }
        }
    }

    /// True if something was wanted.
    fn send_wished(
        &self,
        shared: &Shared,
        client: &ControlClient,
        wish: &Wish,
    ) -> Result<bool, ControlError> {
        let Some(wanted) = wish.take() else { return Ok(false) };
        let to = self.told(shared.ledger.now()).digest;
        let ask = |number| self.part(&wanted, to.as_deref(), number);
        let sent = send(ask, |part| client.routes(part), || !shared.ledger.is_stopping());
        wish.sent(shared.ledger.now());
        sent.map(|()| true)
    }

    /// A part of the difference that is wanted, to this table.
    fn part(&self, wanted: &Wanted, to: Option<&str>, number: u32) -> Result<Part, String> {
        let to = to.ok_or("it is not known yet")?.to_owned();
        // Nobody has to be asked what is in it.
        if to == EMPTY {
            return Ok(Part { to, number, is_last: true, ..Part::default() });
        }
        let request = Request::RoutesPart { known: wanted.known.clone(), to, number };
        let answer = agent_link::ask(&self.agent, request, PATIENCE)?;
        if let Answer::RoutesPart(part) = answer {
            Ok(*part)
        } else {
            Err(agent_link::SOMETHING_ELSE.to_owned())
        }
    }
}

/// Sends part after part, until the last or until it makes no sense to go on: the next report says
/// what is wanted then.
fn send<E>(
    ask: impl Fn(u32) -> Result<Part, String>,
    send: impl Fn(&Part) -> Result<PartTaken, E>,
    go_on: impl Fn() -> bool,
) -> Result<(), E> {
    let mut number = 0;
    while go_on() {
        // Another table by now, or no agent, which is told elsewhere.
        let Ok(part) = ask(number) else { break };
        let next = send(&part)?.next;
        if part.is_last || next != number + 1 {
            break;
        }
        number = next;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant(0) + Nanos::seconds(seconds)
    }

    fn heard(digest: Option<&str>) -> Heard {
        let prefixes = digest.map_or(0, |_| 7);
        Heard { digest: digest.map(str::to_owned), prefixes, ..Heard::default() }
    }

    #[test]
    fn an_agent_that_is_away_is_told_at_once_and_after_a_while_nothing_is_heard() {
        let mut said = Said::default();
        let told = said.told(at(1));
        assert_eq!(told.digest, None, "not known yet is no empty table");
        assert!(told.error.is_some());
        said.learn(at(10), Ok(heard(Some("7-a"))));
        assert_eq!(said.told(at(10)), heard(Some("7-a")));

        // It is asked, and does not answer, and in the end the question fails.
        let late = said.told(at(12));
        assert_eq!((late.digest.as_deref(), late.age_s), (Some("7-a"), Some(2)));
        assert_eq!(late.error.as_deref(), Some("it does not answer"));
        said.learn(at(15), Err("gone".to_owned()));
        let old = said.told(at(39));
        assert_eq!((old.digest.as_deref(), old.prefixes, old.age_s), (Some("7-a"), 7, Some(29)));
        assert_eq!(old.error.as_deref(), Some("gone"));
        let silent = said.told(at(40));
        assert_eq!((silent.digest.as_deref(), silent.prefixes), (Some(EMPTY), 0));
        assert_eq!((silent.error.as_deref(), silent.age_s), (Some("gone"), Some(30)));
        said.learn(at(41), Ok(heard(Some("7-b"))));
        assert_eq!(said.told(at(41)), heard(Some("7-b")));
    }

    #[test]
    fn an_agent_that_starts_again_does_not_empty_the_site() {
        let mut said = Said::default();
        said.learn(at(10), Ok(heard(Some("7-a"))));
        let reading = Heard { error: Some("not read yet".to_owned()), ..heard(None) };
        for second in 11..100 {
            said.learn(at(second), Ok(reading.clone()));
        }
        let told = said.told(at(100));
        assert_eq!((told.digest.as_deref(), told.age_s), (Some("7-a"), Some(90)));
        assert_eq!(told.error.as_deref(), Some("not read yet"));
        // BIRD's own age, and that of the answer.
        let old = Heard { age_s: Some(20), error: reading.error, ..heard(Some("7-a")) };
        said.learn(at(101), Ok(old));
        assert_eq!(said.told(at(102)).age_s, Some(21));
    }

    #[test]
    fn an_answer_to_an_older_report_asks_for_nothing() {
        let wish = Wish::default();
        wish.set(at(1), Some(Wanted::default()));
        assert_eq!(wish.take(), Some(Wanted::default()));
        assert_eq!(wish.take(), None);
        wish.set(at(2), Some(Wanted::default()));
        wish.sent(at(3));
        assert_eq!(wish.take(), None);
        wish.set(at(2), Some(Wanted::default()));
        assert_eq!(wish.take(), None, "it was on its way as the table came");
        wish.set(at(3), Some(Wanted::default()));
        wish.set(at(4), None);
        assert_eq!(wish.take(), None, "the newest counts");
    }

    #[test]
    fn an_empty_table_is_sent_without_the_agent() {
        let routes = Routes::new("/nothing/here".into());
        let wanted = Wanted { known: Some("7-a".to_owned()) };
        let part = routes.part(&wanted, Some(EMPTY), 0).unwrap();
        assert!(part.is_last && part.from.is_none() && part.withdrawn.is_empty());
        assert!(routes.part(&wanted, Some("7-b"), 0).is_err());
        assert!(routes.part(&wanted, None, 0).is_err());
    }
}
