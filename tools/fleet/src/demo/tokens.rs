//! The demo's API tokens: other processes of this machine get nothing of its fleet or its film.
//!
//! ```text
//! nearcast-control token ──> admin    this process, and `nearcast --token-file ..` of its person
//! POST /v1/tokens ─────────> viewer   the pages, which log in by their address
//!                      └───> service  who asks for playbacks
//! ```
//!
//! Secrets stand in files of the demo's own directory, which nobody else can enter, and never in a
//! command line: everybody can read those.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::child;
use super::place::Place;
use crate::control::Control;

/// Makes the first token, which has to be an admin's. Control does not run yet, so there is no
/// moment in which it is open.
pub(super) async fn admin(program: &Path, config: &Path) -> anyhow::Result<String> {
    let mut command = child::command(program)?;
    command.args(["token", "--role", "admin", "--name", "demo", "--config"]).arg(config);
    let output = command.output().await.context("cannot run nearcast-control token")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the demo's token could not be made: {}", said.trim());
    let token = String::from_utf8(output.stdout).context("a token is text")?;
    Ok(token.trim().to_owned())
}

/// Tokens for people and for other programs.
#[derive(Clone, Debug)]
pub(super) struct Tokens {
    /// For the pages.
    pub(super) viewer: String,
    /// An admin's, for `nearcast`.
    pub(super) admin_file: PathBuf,
    /// For whoever plays the service.
    pub(super) service_file: PathBuf,
}

impl Tokens {
    /// Makes the others, and writes two down.
    pub(super) fn make(admin: &str, control: &Control, place: &Place) -> anyhow::Result<Self> {
        let make = |role: &str| {
            let ask = json!({ "role": role, "name": format!("demo {role}") });
            let made: Value = control.post("/v1/tokens", &ask)?;
            made["token"].as_str().map(str::to_owned).context("control made no token")
        };
        Ok(Self {
            viewer: make("viewer")?,
            admin_file: place.write_secret("admin.token", admin)?,
            service_file: place.write_secret("service.token", &make("service")?)?,
        })
    }

    /// Where a browser on this machine gets to `path` of control, at this address of it, logged in.
    pub(super) fn login(&self, base: &str, path: &str) -> String {
        format!("{base}/login#{}{path}", self.viewer)
    }
}
