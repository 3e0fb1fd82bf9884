//! Runs the process: listens, lets time pass, stops in time.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::api;
use crate::certificate::Certificate;
use crate::config::Config;
use crate::listener::{BoundedListener, FleetPeer, Peer};
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
    // A front that knows nothing yet waits for its writer.
    let mut stop = Box::pin(stop);
    let control = tokio::select! {
        control = Control::open(config) => control?,
        () = &mut stop => return Ok(()),
    };
    let listen = control.config.listen;
    let fleet_listen = control.config.fleet_listen;
    let bind = async |key: &'static str, address| {
        let bound = TcpListener::bind(address).await;
        bound.with_context(|| format!("[{key}] listen {address}: is another process there?"))
    };
    let listeners = Listeners {
        operators: bind("serve", listen).await?,
        fleet: bind("fleet", fleet_listen).await?,
    };
    let reloading = tokio::spawn(reload(control.clone(), signal(SignalKind::hangup())?));
    let served = serve(control, listeners, stop).await;
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

/// Where connections come in.
#[derive(Debug)]
pub struct Listeners {
    /// Operators, players, pages.
    pub operators: TcpListener,
    /// Appliances and fronts.
    pub fleet: TcpListener,
}

/// Serves connections until `stop`, then lets running requests end, but not for long.
pub async fn serve(
    control: Arc<Control>,
    listeners: Listeners,
    stop: impl Future<Output = ()> + Send + 'static,
) -> anyhow::Result<()> {
    let Listeners { operators, fleet } = listeners;
    tracing::info!(listen = %operators.local_addr()?, fleet = %fleet.local_addr()?, "serving");
    let ticking = tokio::spawn(tick::run(control.clone()));
    let following = tokio::spawn(control.clone().follow());
    let (stopping, stopped) = tokio::sync::watch::channel(false);
    tokio::spawn(async move {
        stop.await;
        tracing::info!("stopping");
        let _ = stopping.send(true);
        // Kept, so that those who look later see it too.
        stopping.closed().await;
    });
    let until_stopped = |mut stopped: tokio::sync::watch::Receiver<bool>| async move {
        let _ = stopped.wait_for(|stopped| *stopped).await;
    };
    let config = &control.config;
    let tls = control.certificate.as_ref().map(Certificate::tls);
    let operators = BoundedListener::new(operators, config.connections_max, tls);
    let service = api::router(control.clone()).into_make_service_with_connect_info::<Peer>();
    let operators = axum::serve(operators, service);
    let operators = operators.with_graceful_shutdown(until_stopped(stopped.clone()));
    let tls = Some(control.fleet_tls.clone());
    let fleet = BoundedListener::new(fleet, config.fleet_connections_max, tls);
    let service = api::fleet_router(control.clone());
    let service = service.into_make_service_with_connect_info::<FleetPeer>();
    let fleet = axum::serve(fleet.strangers(STRANGERS_MAX), service);
    let fleet = fleet.with_graceful_shutdown(until_stopped(stopped.clone()));
    let serving = async { tokio::try_join!(operators.into_future(), fleet.into_future()) };
    let late = async move {
        until_stopped(stopped).await;
        tokio::time::sleep(STOP_WITHIN).await;
    };
    tokio::select! {
        result = serving => drop(result?),
        () = late => tracing::warn!("some requests were cut off"),
    }
    ticking.abort();
    following.abort();
    control.close().await;
    Ok(())
}

/// Connections at a time of those without an identity: machines that enrol.
const STRANGERS_MAX: usize = 64;

/// How long running requests may take after the signal to stop.
const STOP_WITHIN: Duration = Duration::from_secs(3);

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// On any ports; and the operators' address.
    pub(crate) async fn listeners() -> (std::net::SocketAddr, Listeners) {
        let bind = async || TcpListener::bind("127.0.0.1:0").await.unwrap();
        let listeners = Listeners { operators: bind().await, fleet: bind().await };
        (listeners.operators.local_addr().unwrap(), listeners)
    }
}
