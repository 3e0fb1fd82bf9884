//! One window: load on a server for some seconds, and what came.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde::Serialize;

use crate::client::{Load, Plan, Truth};
use crate::cpu;

#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Load before the window opens: connections and caches settle.
    pub warm_up: Duration,
    pub window: Duration,
}

#[derive(Clone, Debug, Serialize)]
pub struct Window {
    /// Gigabits of body per second.
    pub gbps: f64,
    /// Body, in decimal GB.
    pub gb: f64,
    pub seconds: f64,
    /// Complete responses.
    pub responses: u64,
    /// Connections that had no complete response in the whole window.
    pub stalled: usize,
    /// Complete responses per second.
    pub responses_per_s: f64,
    /// Median response time.
    pub response_ms_p50: f64,
    /// 99th percentile of response time.
    pub response_ms_p99: f64,
    /// Body bytes compared with the source, warm-up included.
    pub bytes_verified: u64,
    /// The load client's CPU seconds per GB.
    pub client_cpu_s_per_gb: f64,
    /// The load client's share of its CPU.
    pub client_cpu_share: f64,
    /// What was negotiated, on any connection.
    pub ciphers: Vec<String>,
}

/// Decimal GB.
pub fn gigabytes(bytes: u64) -> f64 {
    // A byte is to a GB as a nanosecond is to a second.
    Duration::from_nanos(bytes).as_secs_f64()
}

/// Drives `plan` against a server; `meter` is read when the window opens and when it closes.
pub fn measure<M>(
    plan: &Plan,
    truth: Truth,
    timing: Timing,
    meter: impl Fn() -> Result<M>,
) -> Result<(Window, M, M)> {
    let mut load = Load::connect(plan, truth)?;
    load.ask_all()?;
    load.drive(Instant::now() + timing.warm_up)?;
    load.reset_latency();
    let (meter_before, client) = (meter()?, cpu::of_this_thread()?);
    let (before, start) = (load.totals(), Instant::now());
    load.drive(start + timing.window)?;
    let (after, seconds) = (load.totals(), start.elapsed().as_secs_f64());
    let (client, meter_after) = ((cpu::of_this_thread()? - client).as_secs_f64(), meter()?);
    let gb = gigabytes(after.body - before.body);
    ensure!(0.0 < gb, "nothing came within the window");
    let responses = after.responses - before.responses;
    let window = Window {
        gbps: gb * 8.0 / seconds,
        gb,
        seconds,
        responses,
        stalled: load.waiting_since(start),
        responses_per_s: f64::from(u32::try_from(responses)?) / seconds,
        response_ms_p50: load.latency_ms(0.5),
        response_ms_p99: load.latency_ms(0.99),
        bytes_verified: after.verified,
        client_cpu_s_per_gb: client / gb,
        client_cpu_share: client / seconds,
        ciphers: load.suites(),
    };
    Ok((window, meter_before, meter_after))
}
