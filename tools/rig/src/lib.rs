//! What a measurement and a trial stand on: a real fleet, and what is around it.
//!
//! ```text
//! fleet     origin, writer, fronts, appliances: all real, as an operator would start them
//! stage     one real appliance; its origin and its control are ours, so that every byte is known
//! site      a stage with a film on it, and viewers who ask by the clock
//! peer      nginx and others, in several configurations
//! drive     a folder whose operations fail, wait or are written down
//! client    a load client that costs little, and compares what it gets
//! postgres  a PostgreSQL server of the run's own
//! bounds    what a run has to show, and whether it did
//! process   one of the programs: its log, its readiness, its end
//! ```
//!
//! `lab` measures with it and `trial` breaks it. Everything listens on this machine and ends with
//! the run, on a signal too (`stop`).

pub mod api;
pub mod bounds;
pub mod certificate;
pub mod client;
pub mod cpu;
pub mod drive;
pub mod fleet;
pub mod peer;
pub mod postgres;
pub mod process;
pub mod site;
pub mod stage;
pub mod statistics;
pub mod stop;
pub mod url;
pub mod window;

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// Writes a result to stdout.
pub fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", text.trim_end())?;
    Ok(out.flush()?)
}

/// Waits until `ready` says so, looking as often as `every`; how long that took. A signal and the
/// time are errors.
pub fn until(
    what: &str,
    within: Duration,
    every: Duration,
    mut ready: impl FnMut() -> Result<bool>,
) -> Result<Duration> {
    let began = Instant::now();
    while !ready().with_context(|| what.to_owned())? {
        stop::check()?;
        ensure!(began.elapsed() < within, "{what} took over {within:?}");
        std::thread::sleep(every);
    }
    Ok(began.elapsed())
}

/// Two sides in turns: each is the first as often as the second.
pub fn in_turns<T>(
    turn: u32,
    first: impl FnOnce() -> Result<T>,
    second: impl FnOnce() -> Result<T>,
) -> Result<[T; 2]> {
    if turn.is_multiple_of(2) {
        let first = first()?;
        Ok([first, second()?])
    } else {
        let second = second()?;
        Ok([first()?, second])
    }
}

/// Writes a report to stdout: as one JSON object, or as its table.
pub fn say(
    json: bool,
    report: &impl serde::Serialize,
    table: impl FnOnce() -> String,
) -> Result<()> {
    if json { print(&serde_json::to_string(report)?) } else { print(&table()) }
}

/// Writes a report that has no table to stdout: as one JSON object on one line, or on many.
pub fn say_all(json: bool, report: &impl serde::Serialize) -> Result<()> {
    let text = if json { serde_json::to_string } else { serde_json::to_string_pretty };
    print(&text(report)?)
}

/// A thousand connections need as many files, also in the servers that we start: they inherit the
/// limit.
pub fn raise_file_limit() -> Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn each_of_two_is_the_first_as_often_as_the_second() {
        let order = RefCell::new(String::new());
        let side = |name: char| {
            order.borrow_mut().push(name);
            Ok(name)
        };
        for turn in 0..4 {
            let got = in_turns(turn, || side('a'), || side('b')).unwrap();
            assert_eq!(got, ['a', 'b'], "in their places, whoever was first");
        }
        assert_eq!(*order.borrow(), "abbaabba");
    }
}
