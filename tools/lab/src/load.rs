//! `nearcast-lab load`: drives load at URLs of one server and says what came.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use model::units::Bytes;
use rig::client::{Plan, Ranges, Receive, Target, Truth};
use rig::cpu::{self, Account};
use rig::url::Url;
use rig::window::{Timing, Window, gigabytes, measure};
use serde::Serialize;
use tracing::info;

/// `nearcast-lab load`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What to ask for: https URLs of one server.
    #[arg(required = true)]
    urls: Vec<String>,
    /// Compare responses with files below this directory: for each URL the one whose path is the
    /// longest tail of the URL's. Without it, only status and lengths are checked.
    #[arg(long)]
    source: Option<PathBuf>,
    /// Certificates to trust, PEM.
    #[arg(long, default_value = "/etc/ssl/certs/ca-certificates.crt")]
    trust: PathBuf,
    /// Keep-alive connections, each with one request at a time.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=20000))]
    connections: u32,
    /// Length of the ranges asked for.
    #[arg(long, default_value = "2 MiB")]
    range: Bytes,
    /// Length of the window, in seconds.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=86400))]
    seconds: u32,
    /// Load before the window, in seconds.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=60))]
    warm_up: u32,
    /// Compare every n-th response.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..))]
    verify_every: u64,
    /// Another seed, other ranges.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Bind the client to this CPU.
    #[arg(long)]
    cpu: Option<usize>,
    /// A server on this machine: tell its CPU seconds per GB (of its descendants, too).
    #[arg(long)]
    pid: Option<u32>,
    /// Print one JSON object as the last line of output.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    connections: u32,
    range_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_cpu_s_per_gb: Option<f64>,
    #[serde(flatten)]
    window: Window,
}

const LENGTH_ANSWER_MAX: Duration = Duration::from_secs(10);

/// Drives the load, prints the result on stdout.
pub(crate) fn run(args: &Args) -> Result<()> {
    ensure!(0 < args.range.0, "a range cannot be empty");
    rig::raise_file_limit()?;
    let urls: Vec<Url> = args.urls.iter().map(|url| Url::parse(url)).collect::<Result<_>>()?;
    let first = urls.first().context("there must be a URL")?;
    let authority = first.authority();
    ensure!(urls.iter().all(|url| url.authority() == authority), "URLs of different servers");
    let targets = targets(args, &urls)?;
    let truth = truth(args, &urls, &targets)?;
    let plan = Plan {
        address: first.resolve()?,
        name: first.host.clone(),
        trust: args.trust.clone(),
        suites: Vec::new(),
        targets,
        connections: usize::try_from(args.connections)?,
        range_len: args.range,
        ranges: Ranges::Unaligned,
        receive: Receive::Discard,
        verify_every: if args.source.is_some() { args.verify_every } else { 0 },
        seed: args.seed,
        every: Duration::ZERO,
    };
    if let Some(cpu) = args.cpu {
        cpu::pin(cpu)?;
    }
    let timing = Timing {
        warm_up: Duration::from_secs(args.warm_up.into()),
        window: Duration::from_secs(args.seconds.into()),
    };
    let account = args.pid.map(Account::Processes);
    let used = || account.as_ref().map(Account::used).transpose();
    info!(server = authority, connections = args.connections, "load");
    let (window, before, after) = measure(&plan, truth, timing, used)?;
    let server_cpu = before.zip(after).map(|(before, after)| after.saturating_sub(before));
    let report = Report {
        connections: args.connections,
        range_bytes: args.range.0,
        server_cpu_s_per_gb: server_cpu.map(|used| used.as_secs_f64() / window.gb),
        window,
    };
    rig::say(args.json, &report, || report.table())
}

impl Report {
    fn table(&self) -> String {
        let window = &self.window;
        let rows = [
            ("Gb/s", Some(window.gbps)),
            ("responses/s", Some(window.responses_per_s)),
            ("response ms, median", Some(window.response_ms_p50)),
            ("response ms, p99", Some(window.response_ms_p99)),
            ("GB compared", Some(gigabytes(window.bytes_verified))),
            ("client CPU s/GB", Some(window.client_cpu_s_per_gb)),
            ("server CPU s/GB", self.server_cpu_s_per_gb),
        ];
        let row =
            |(name, value): (&str, Option<f64>)| Some(format!("{name:<22}{:>10.3}\n", value?));
        let table: String = rows.into_iter().filter_map(row).collect();
        format!("{table}{}", window.ciphers.join(", "))
    }
}

/// The URLs as targets; the server is asked for their lengths.
fn targets(args: &Args, urls: &[Url]) -> Result<Vec<Target>> {
    let agent = agent(&args.trust)?;
    let target = |(number, url): (usize, &Url)| {
        // By its number: the path may hold a token.
        let len = length(&agent, url)
            .with_context(|| format!("HEAD of URL {number} at {}", url.authority()))?;
        ensure!(0 < len, "URL {number}: an empty file cannot be asked for a range");
        Ok(Target { path: url.path.clone(), len: Bytes(len) })
    };
    (1..).zip(urls).map(target).collect()
}

fn length(agent: &ureq::Agent, url: &Url) -> Result<u64> {
    let host = if url.host.contains(':') { format!("[{}]", url.host) } else { url.host.clone() };
    let answer = agent.head(format!("https://{host}:{}{}", url.port, url.path)).call()?;
    let length = answer.headers().get("content-length").context("no Content-Length")?;
    Ok(length.to_str()?.parse()?)
}

fn agent(trust: &Path) -> Result<ureq::Agent> {
    let config = rig::url::trusting(trust)?.http_status_as_error(true);
    Ok(config.timeout_global(Some(LENGTH_ANSWER_MAX)).build().into())
}

fn truth(args: &Args, urls: &[Url], targets: &[Target]) -> Result<Truth> {
    let Some(dir) = &args.source else {
        return Ok(Truth::Files(Vec::new()));
    };
    let open = |(url, target): (&Url, &Target)| {
        let path = source_of(dir, &url.path).with_context(|| {
            format!("no tail of {} is a file below {}", url.path, dir.display())
        })?;
        let cannot = || format!("cannot open {}", path.display());
        let file = File::open(&path).with_context(cannot)?;
        let len = Bytes(file.metadata().with_context(cannot)?.len());
        ensure!(
            len == target.len,
            "{} has {len}, and the server says {}: is it the right source?",
            path.display(),
            target.len
        );
        Ok(file)
    };
    Ok(Truth::Files(urls.iter().zip(targets).map(open).collect::<Result<_>>()?))
}

/// The file below `dir` whose path is the longest tail of a URL's.
fn source_of(dir: &Path, url_path: &str) -> Option<PathBuf> {
    let path = url_path.split('?').next()?;
    let slashes = path.match_indices('/').map(|(at, _)| path.split_at(at + 1).1);
    let mut tails = slashes.filter(|tail| !tail.split('/').any(|part| part == ".."));
    tails.find_map(|tail| Some(dir.join(tail)).filter(|path| path.is_file()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_of_a_url_is_the_file_with_the_longest_tail() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("a")).unwrap();
        for name in ["f", "a/f"] {
            std::fs::write(dir.path().join(name), "x").unwrap();
        }
        let check = |url: &str, wanted: Option<&str>| {
            assert_eq!(source_of(dir.path(), url), wanted.map(|name| dir.path().join(name)));
        };
        check("/t/token/film@1/a/f", Some("a/f"));
        check("/t/token/film@1/b/f?_HLS_skip=YES", Some("f"));
        check("/t/a/../f", Some("f"));
        check("/t/a/", None);
        check("/g", None);
    }
}
