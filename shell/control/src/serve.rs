//! Runs the process: listens, lets time pass, stops in time.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::api;
use crate::config::Config;
use crate::listener::{BoundedListener, Peer};
use crate::tick;
use crate::writer::Control;

/// Serves until SIGTERM or SIGINT.
pub async fn run(config: Config) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let stop = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    let control = Control::open(config).await?;
    let listen = control.config.listen;
    let listener = TcpListener::bind(listen)
        .await
        .with_context(|| format!("[serve] listen {listen}: is another control plane running?"))?;
    serve(control, listener, stop).await
}

/// Serves connections of `listener` until `stop`, then lets running requests end, but not for long.
pub async fn serve(
    control: Arc<Control>,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send + 'static,
) -> anyhow::Result<()> {
    tracing::info!(listen = %listener.local_addr()?, "serving");
    let ticking = tokio::spawn(tick::run(control.clone()));
    let listener = BoundedListener::new(listener, control.config.connections_max, None);
    let service = api::router(control.clone()).into_make_service_with_connect_info::<Peer>();
    let (stopping, stopped) = tokio::sync::oneshot::channel();
    let stop = async move {
        stop.await;
        tracing::info!("stopping");
        let _ = stopping.send(());
    };
    let serving = axum::serve(listener, service).with_graceful_shutdown(stop);
    let late = async move {
        let _ = stopped.await;
        tokio::time::sleep(STOP_WITHIN).await;
    };
    tokio::select! {
        result = serving.into_future() => result?,
        () = late => tracing::warn!("some requests were cut off"),
    }
    ticking.abort();
    control.close().await;
    Ok(())
}

/// How long running requests may take after the signal to stop.
const STOP_WITHIN: Duration = Duration::from_secs(3);
