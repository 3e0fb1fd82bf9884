//! Breaks what an operator relies on, and looks whether it holds: verbs of `./x lab`.
//!
//! ```text
//! rig (a real fleet) ── power cut, kill -9, failing drive, silence, flood, odd bytes ──> wrong?
//! ```
//!
//! A verb ends well only if nothing was wrong. What it took is printed as `lab` prints figures: the
//! last line of stdout is the result.

mod clusters;
mod conformance;
mod crash_fill;
mod cut;
mod drain;
mod faults;
mod flood;
mod masters;
mod night;
mod odd;
mod outage;
mod qoe;
mod retry_storm;
mod room;
mod routes;
mod stall;
mod storm;
mod takedown;
mod takeover;
mod vm;
mod with_postgres;
mod writers;

use anyhow::Result;
use clap::Subcommand;

/// What is broken, and how.
#[derive(Debug, Subcommand)]
#[expect(private_interfaces, reason = "only clap looks into them")]
pub enum Verb {
    /// Asks a peer what RFC 9110 and RFC 9112 say, section by section, and tells what it answers.
    Conformance(conformance::Args),
    /// Kills the appliance at random moments of a fill, and looks after each start.
    CrashFill(crash_fill::Args),
    /// Power cuts at every boundary of a fill: each state opened, each object compared.
    Cut(cut::Args),
    /// An appliance is drained while it plays, restarted, and serves again.
    Drain(drain::Args),
    /// Drives that fail in every way: the others serve on, and the report says what happened.
    Faults(faults::Args),
    /// Viewers at a fixed rate while others attack: what they get, and what it takes of memory.
    Flood(flood::Args),
    /// The connections of `takeover` that ask for nothing, a process of their own.
    #[command(hide = true)]
    HoldCrowd(takeover::crowd::Args),
    /// The drive of `stall`, a process of its own.
    #[command(hide = true)]
    HoldDrive(stall::hold::Args),
    /// Two fill clusters and an origin that counts: masters fetch, one is killed in the middle.
    Masters(masters::Args),
    /// Two fill clusters by their hours: nothing comes outside of them but what is urgent, within
    /// its cap, and what must go leaves nothing behind.
    Night(night::Args),
    /// Asks a peer malformed and odd requests, and tells where it answers otherwise.
    Odd(odd::Args),
    /// Kills the control plane in parts and as a whole while films are played.
    Outage(outage::Args),
    /// Players with planted stalls: what they felt against what control says of it.
    Qoe(qoe::Args),
    /// An appliance dies under all its players at once: what comes to the others and to a front.
    RetryStorm(retry_storm::Args),
    /// Routers announce and withdraw, and clients follow.
    Routes(routes::Args),
    /// A drive that does not answer: what it costs those who want what is on others.
    Stall(stall::Args),
    /// Every appliance reports at once, with all that it holds, to a writer that has just started.
    Storm(storm::Args),
    /// A title is withdrawn while it plays, and an appliance is away.
    Takedown(takedown::Args),
    /// A machine is cut off: a sibling takes its address over, has its clients reset, and gives it
    /// back.
    Takeover(takeover::Args),
    /// Drives that fail, are slow and are pulled, under the real kernel in a virtual machine.
    Vm(vm::Args),
    /// The writer that leads is killed, and stopped for a while, while films are played and desired
    /// state changes.
    Writers(writers::Args),
    /// Runs a command beside a PostgreSQL server of its own.
    WithPostgres(with_postgres::Args),
}

/// Breaks it, and prints the result on stdout.
pub fn run(verb: &Verb) -> Result<()> {
    match verb {
        Verb::Conformance(args) => conformance::run(args),
        Verb::CrashFill(args) => crash_fill::run(args),
        Verb::Cut(args) => cut::run(args),
        Verb::Drain(args) => drain::run(args),
        Verb::Faults(args) => faults::run(args),
        Verb::Flood(args) => flood::run(args),
        Verb::HoldCrowd(args) => takeover::crowd::run(args),
        Verb::HoldDrive(args) => stall::hold::run(args),
        Verb::Masters(args) => masters::run(args),
        Verb::Night(args) => night::run(args),
        Verb::Odd(args) => odd::run(args),
        Verb::Outage(args) => outage::run(args),
        Verb::Qoe(args) => qoe::run(args),
        Verb::RetryStorm(args) => retry_storm::run(args),
        Verb::Routes(args) => routes::run(args),
        Verb::Stall(args) => stall::run(args),
        Verb::Storm(args) => storm::run(args),
        Verb::Takedown(args) => takedown::run(args),
        Verb::Takeover(args) => takeover::run(args),
        Verb::Vm(args) => vm::run(args),
        Verb::Writers(args) => writers::run(args),
        Verb::WithPostgres(args) => with_postgres::run(args),
    }
}
