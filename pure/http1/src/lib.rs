//! HTTP/1.1 bytes to requests and back (RFC 9110, RFC 9112), for a server of immutable files.
//!
//! ```text
//! bytes ──> parse ──> Request ──> condition ──> range ──> response::Head ──> bytes
//! ```
//!
//! Parsing borrows from the input and allocates nothing. Request bodies are refused: no method
//! that a file server answers has one, and a connection without bodies cannot be smuggled into.

pub mod condition;
pub mod date;
pub mod parse;
pub mod range;
pub mod response;
pub mod target;

pub use parse::{Method, Parsed, Request, RequestError, parse};
pub use response::{Head, Status};
