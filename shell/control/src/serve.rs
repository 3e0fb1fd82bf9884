//! Runs the process: listens, lets time pass, stops in time.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::api;
use crate::certificate::Certificate;
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
    let reloading = tokio::spawn(reload(control.clone(), signal(SignalKind::hangup())?));
    let served = serve(control, listener, stop).await;
    reloading.abort();
    served
}

/// Reads the certificate anew at every SIGHUP.
async fn reload(control: Arc<Control>, mut hangup: Signal) {
    while hangup.recv().await.is_some() {
        if let Some(certificate) = &control.certificate {
            certificate.refresh(true);
        }
    }
}

/// Serves connections of `listener` until `stop`, then lets running requests end, but not for long.
pub async fn serve(
    control: Arc<Control>,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send + 'static,
) -> anyhow::Result<()> {
    let tls = control.certificate.as_ref().map(Certificate::tls);
    tracing::info!(listen = %listener.local_addr()?, tls = tls.is_some(), "serving");
    let ticking = tokio::spawn(tick::run(control.clone()));
    let listener = BoundedListener::new(listener, control.config.connections_max, tls);
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
