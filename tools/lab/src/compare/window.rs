//! One window: load on one server for some seconds, and what the server paid for it.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde::Serialize;
use tracing::info;

use super::cpu::{self, Account};
use crate::load::{Load, Plan, Truth};

/// How long, and where.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// Load before the window opens: connections and caches settle.
    pub(crate) warm_up: Duration,
    /// The window.
    pub(crate) window: Duration,
    /// The CPU that the server is bound to, read as a cross-check.
    pub(crate) server_cpu: usize,
}

/// What was seen in a window.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Window {
    /// The server's CPU seconds per decimal GB of body.
    pub(crate) cpu_s_per_gb: f64,
    /// Gigabits of body per second.
    pub(crate) gbps: f64,
    /// Body, in decimal GB.
    pub(crate) gb: f64,
    /// The server's CPU seconds.
    pub(crate) server_cpu_s: f64,
    /// Seconds in which the server's CPU was not idle, whoever used it.
    pub(crate) cpu_busy_s: f64,
    /// The load client's CPU seconds per GB.
    pub(crate) client_cpu_s_per_gb: f64,
    /// The load client's share of its CPU.
    pub(crate) client_cpu_share: f64,
    /// Seconds.
    pub(crate) seconds: f64,
    /// Complete responses.
    pub(crate) responses: u64,
    /// Median response time.
    pub(crate) response_ms_p50: f64,
    /// 99th percentile of response time.
    pub(crate) response_ms_p99: f64,
    /// Body bytes compared with the source, warm-up included.
    pub(crate) bytes_verified: u64,
    /// What was negotiated, on any connection.
    pub(crate) ciphers: Vec<String>,
}

/// Decimal GB.
fn gigabytes(bytes: u64) -> f64 {
    // A byte is to a GB as a nanosecond is to a second.
    Duration::from_nanos(bytes).as_secs_f64()
}

/// Drives `plan` against a server and measures.
pub(crate) fn measure(
    plan: &Plan,
    truth: Truth,
    account: Option<&Account>,
    timing: Timing,
) -> Result<Window> {
    let mut load = Load::connect(plan, truth)?;
    load.ask_all()?;
    load.drive(Instant::now() + timing.warm_up)?;
    load.latency().reset();
    let used = || account.map_or(Ok(Duration::ZERO), Account::used);
    let (server, busy) = (used()?, cpu::busy(timing.server_cpu)?);
    let (client, before, start) = (cpu::of_this_thread()?, load.totals(), Instant::now());
    load.drive(start + timing.window)?;
    let (span, after, client) = (start.elapsed(), load.totals(), cpu::of_this_thread()? - client);
    let (server, busy) = (used()? - server, cpu::busy(timing.server_cpu)? - busy);
    let gb = gigabytes(after.body - before.body);
    ensure!(0.0 < gb, "nothing came within the window");
    let latency = load.latency();
    let millis =
        |quantile| Duration::from_micros(latency.value_at_quantile(quantile)).as_secs_f64() * 1e3;
    let seen = Window {
        cpu_s_per_gb: server.as_secs_f64() / gb,
        gbps: gb * 8.0 / span.as_secs_f64(),
        gb,
        server_cpu_s: server.as_secs_f64(),
        cpu_busy_s: busy.as_secs_f64(),
        client_cpu_s_per_gb: client.as_secs_f64() / gb,
        client_cpu_share: client.as_secs_f64() / span.as_secs_f64(),
        seconds: span.as_secs_f64(),
        responses: after.responses - before.responses,
        response_ms_p50: millis(0.5),
        response_ms_p99: millis(0.99),
        bytes_verified: after.verified,
        ciphers: load.suites(),
    };
    info!(
        cpu_s_per_gb = format!("{:.3}", seen.cpu_s_per_gb),
        gbps = format!("{:.2}", seen.gbps),
        cpu_busy_s = format!("{:.2}", seen.cpu_busy_s),
        client_cpu_s_per_gb = format!("{:.3}", seen.client_cpu_s_per_gb),
        "window"
    );
    Ok(seen)
}
