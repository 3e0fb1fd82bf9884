//! The messages between appliance, control plane and tools: JSON over HTTP, version 1.
//!
//! ```text
//! v1::report     appliance -> control   health, load, drives, fill, inventory; every second or two
//! v1::routes     appliance -> control   what its routers announce, when control wants it
//! v1::manifest   control -> appliance   what to hold (desired)
//! v1::expected   control -> appliance   what viewers will ask it for most: a hint
//! v1::ingest     ingest -> control      a new asset version, its files and block hashes
//! v1::blocks     control -> appliance   an object's block hashes, binary
//! v1::agent      appliance -> agent     what needs privileges, over a Unix socket
//! v1::replica    control -> front       desired state, and the secrets that playbacks begin with
//! prometheus     both -> Prometheus     metrics, as text
//! ```
//!
//! The only room with serde on shared types. Types here mirror `model` and are converted at the
//! door (`convert`), so a change on the wire cannot reach a decision.

pub mod convert;
pub mod prometheus;
pub mod v1;
