//! The data-plane process of Nearcast: all I/O, no decisions.
//!
//! ```text
//! server         what `main` runs: starts everything, waits, stops everything
//! config         the settings
//! setting        one of them: a value with its unit
//! clock          both clocks
//! aead           what seals here, measured
//! ablation       what a measurement may switch off
//! confine        gives away what serving does not need
//! agent_link     thread: asks `nearcast-agent` how drives are mounted
//!
//! serving
//!   event_loop   thread: one worker; completions to events, actions to system calls
//!   socket       what stands between a connection and plain bytes
//!   listen       sockets to accept from
//!   hot          how much memory hot blocks get
//!   memory       how many may transfer with the memory that there is
//!   mailbox      how other threads speak to a worker
//!   incidents    responses that went badly, a file each
//!   counters     what workers count, where others can read it
//!   metrics      thread: the same, for Prometheus
//!
//! storage
//!   storage      what `server` starts and stops; composes all below
//!   shared       what its threads share: the three below
//!   ledger       the holdings, and their sink
//!   slots        the configured drives
//!   keeper       thread: plans
//!   filler       threads: from source to drive
//!   host         the appliance as the procedures of `upkeep` see it
//!   tiering      what is watched most, and what may be moved for it today
//!   mover        thread: files from drive to drive
//!   control_link threads: reports out, to control and its fronts; manifests in
//!   envelope     a signed manifest is opened, or refused
//!   member       thread: this appliance's identity, renewed
//!   places       siblings and origins of one object
//!   source       HTTP with ranges
//!   peer         threads: published objects for siblings
//!   drives       one drive: its marker, its files, its index
//!   absence      threads: each measures a drive; tries one again that was set aside
//!   gate         a turn on a drive, for who is not a worker
//!   state_file   the last manifest
//!   format       makes a directory a drive
//!   inspect      says what is on a drive, or in one file
//!   pages        memory that direct I/O takes
//! ```

pub mod ablation;
mod absence;
pub mod aead;
pub mod agent_link;
pub mod certificate;
pub mod clock;
pub mod config;
pub mod confine;
pub mod control_link;
pub mod counters;
pub mod drives;
pub mod envelope;
pub mod event_loop;
mod filler;
pub mod format;
pub mod gate;
mod host;
mod hot;
pub mod incidents;
pub mod inspect;
mod keeper;
mod ledger;
pub mod listen;
pub mod mailbox;
pub mod member;
pub mod memory;
pub mod metrics;
pub mod mounts;
mod mover;
mod pacing;
pub mod pages;
pub mod peer;
mod places;
pub mod request_log;
pub mod server;
mod setting;
mod shared;
mod slots;
mod socket;
pub mod source;
pub mod state_file;
pub mod storage;
pub mod tiering;
