//! The operator's program against a control plane.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod apply;
mod manual;
mod replay;
mod running;
#[path = "../s3/server.rs"]
#[expect(dead_code, reason = "some of it is for other tests")]
mod s3_server;
mod verbs;
