//! The operator's program against a control plane.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod apply;
mod manual;
mod replay;
mod running;
mod verbs;
