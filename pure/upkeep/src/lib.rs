//! The procedures of an appliance's storage, written once. It does no I/O itself.
//!
//! ```text
//!      filler   mover   audit, keeper, scrub, verify, absence   procedures: straight async code
//!         │        │      │
//!         │        ├── units ── adopt        a file that is there already, or partly wanted
//!         │        ├── copying             read, verify, write, read back
//!         └────────┴── publish ── read      the steps by which a file appears, and goes
//!                       │
//!        ┌──────────────┴───────────────┐
//!   Host: clock, ledger, drives    Drive, Files: a drive, its names and bytes
//!        │                              │
//!   shell/appliance   threads and files: an awaited operation blocks, and is ready at once
//!   tools/sim         tasks and model drives: other tasks run at each await, and faults strike
//! ```
//!
//! A procedure is a generic function over its host. No future is allocated, nothing
//! is dispatched at run time, and no future has to be `Send`: it is made and polled on one thread.
//! The appliance runs it with [`at_once`]. The simulator awaits it: so each order of steps that
//! its dice choose is one that the appliance's threads may take.
//!
//! The ledger is `holdings`: a procedure asks and changes it under the host's lock (`Host::ask`,
//! `Host::change`, and `Ledger` for what is asked often), never across an await. Whoever works on
//! an object has claimed it there. What happens beside (`Told`) goes to the host, which logs and
//! counts it, or checks it: the simulator looks there whether what is shown is on its drive.
//!
//! An error of a drive (`DriveError`) says what follows (`Fault`) and becomes, if the drive is
//! given up, a `Cause`, the only place that has words for that.

pub mod absence;
pub mod adopt;
pub mod audit;
pub mod condition;
pub mod copying;
pub mod filler;
pub mod hours;
pub mod keeper;
pub mod mover;
pub mod publish;
pub mod read;
pub mod scrub;
pub mod small;
pub mod units;
pub mod verify;

mod cause;
mod drive;
mod host;
#[cfg(test)]
mod tests;
mod told;

use std::pin::pin;
use std::task::{Context, Poll, Waker};

pub use cause::{Cause, DriveError, Errno, Fault, ObjectFileError};
pub use condition::{Condition, Space};
pub use drive::{Drive, Files};
pub use host::{FileOf, Host, Ledger, News, PagesOf};
pub use told::{Checked, Sample, Told, Walked};

/// Runs a procedure on a host whose operations block: all of it is done when it was polled once.
pub fn at_once<T>(procedure: impl Future<Output = T>) -> T {
    match pin!(procedure).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("an operation of a host that blocks is ready when it returns"),
    }
}
