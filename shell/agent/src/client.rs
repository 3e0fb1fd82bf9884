//! Asks a running agent, for an operator at the machine.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use wire::v1::agent::{ANSWER_LEN_MAX, Answer, Line, Request, VERSION};

/// One question and its answer. A trim may take long, so only the agent bounds the time.
pub(crate) fn ask(socket: &Path, request: Request) -> anyhow::Result<Answer> {
    let mut stream = UnixStream::connect(socket).with_context(|| {
        format!("cannot connect to {}: does nearcast-agent run?", socket.display())
    })?;
    let mut line = serde_json::to_string(&Line { v: VERSION, said: request })?;
    line.push('\n');
    // A caller that is refused finds the connection closed, and the reason in it.
    let _ = stream.write_all(line.as_bytes());
    let mut answer = String::new();
    let most = u64::try_from(ANSWER_LEN_MAX)?;
    BufReader::new(stream.take(most)).read_line(&mut answer).context("the agent went away")?;
    if answer.is_empty() {
        bail!("the agent went away without an answer; its log says why");
    }
    let line: Line<Answer> = serde_json::from_str(&answer).context("not an agent's answer")?;
    ensure!(line.v == VERSION, "the agent speaks version {}, this is {VERSION}", line.v);
    Ok(line.said)
}
