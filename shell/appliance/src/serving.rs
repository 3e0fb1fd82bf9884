//! Serving: one thread for each worker, and what is written down of requests.
//!
//! ```text
//! event_loop   thread: one worker; completions to events, actions to system calls
//! socket       what stands between a connection and plain bytes
//! listen       sockets to accept from
//! clients      connections, for siblings that may take addresses over
//! mailbox      how other threads speak to a worker
//! pacing       who keeps responses to a rate
//! aead         what seals here, measured
//! ablation     what a measurement may switch off
//! request_log  a line for each request
//! viewers      what viewers feel, summed up
//! hand_over    how workers hand lists over
//! incidents    responses that went badly, a file each
//! ```

pub mod ablation;
pub mod aead;
pub mod clients;
pub mod event_loop;
pub mod hand_over;
pub mod incidents;
pub mod listen;
pub mod mailbox;
pub(crate) mod pacing;
pub mod request_log;
pub(crate) mod socket;
pub mod viewers;
