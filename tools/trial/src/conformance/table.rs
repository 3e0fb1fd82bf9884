//! The table: `tools/trial/fixtures/conformance.toml` says what stands in it.

use serde::Deserialize;

use crate::odd::probe::Sent;
use crate::odd::table::{Names, bytes};

pub(crate) const TEXT: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tools/trial/fixtures/conformance.toml"
));

/// One thing that an RFC says, what is sent to see it, and what comes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Row {
    /// `RFC 9110 13.1.5 If-Range`
    pub(crate) section: String,
    pub(crate) name: String,
    /// In our words, MUST, SHOULD or MAY first.
    pub(crate) says: String,
    /// As in the table of odd requests; in pieces only so that lines are short.
    send: Vec<String>,
    /// Nothing more is written behind it, and the server is told so.
    #[serde(default)]
    end: bool,
    /// The fields that are looked at in each response; `*` is the names of all.
    #[serde(default)]
    pub(crate) look: Vec<String>,
    pub(crate) ours: String,
    pub(crate) nginx: String,
    /// Why the two differ, if they do.
    #[serde(default)]
    pub(crate) differs: String,
    /// Why ours is not what the RFC wishes, where it is not.
    #[serde(default)]
    pub(crate) departs: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    row: Vec<Row>,
}

pub(crate) fn rows() -> Vec<Row> {
    toml::from_str::<Table>(TEXT).expect("the table is TOML of this form").row
}

impl Row {
    /// What is sent, and behind it the probe of the odd requests unless it ends the connection.
    pub(crate) fn sent(&self, names: &Names) -> Sent {
        let bytes = bytes(&self.send.concat(), names, !self.end);
        Sent { bytes, pieces: None, end: self.end }
    }
}
