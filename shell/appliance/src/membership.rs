//! DOC membership

pub mod agent_link;
pub mod control_link;
pub mod envelope;
pub mod member;
pub mod state_file;
