//! What Prometheus itself says of a page of metrics: `promtool check metrics`.

use std::io::Write as _;
use std::process::{Command, Stdio};

/// What is wrong with the page, in promtool's words.
pub(crate) fn check(page: &str) -> Result<(), String> {
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| {
        format!(
            "promtool does not start ({error}): ./x check fetches it; otherwise install Debian's \
             package prometheus, which has it"
        )
    })?;
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(page.as_bytes()).map_err(|error| format!("promtool does not read: {error}"))?;
    drop(stdin);
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("promtool: {said}in\n{page}")) }
}
