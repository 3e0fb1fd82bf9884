//! Runs the process: listens, lets time pass, stops in time.

mod standby;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::api;
use crate::config::Config;
use crate::connections::certificate::Certificate;
use crate::connections::listener::{Door, Rules};
use crate::state::tick;
use crate::state::writer::Control;

/// Serves until SIGTERM or SIGINT.
pub async fn run(config: Config) -> anyhow::Result<()> {
    // First: until somebody listens to it, this signal ends a process.
    let mut hangup = signal(SignalKind::hangup())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let stop = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    let mut stop = Box::pin(stop);
    let leading = match config.front() {
        // A database may take packets and answer none.
        None => tokio::select! {
            leading = Control::stand_by(&config) => leading?,
            () = &mut stop => return Ok(()),
        },
        Some(_) => None,
    };
    if let Some(leading) = leading {
        return standby::run(config, leading, hangup, stop).await;
    }
    // A front that knows nothing yet waits for its writer.
    let control = tokio::select! {
        control = Control::open(config) => control?,
        () = &mut stop => return Ok(()),
    };
    let listen = control.config.serve.listen;
    let fleet_listen = control.config.fleet.listen;
    let listeners = bind(listen, fleet_listen).await?;
    serve_and_reload(control, listeners, &mut hangup, stop).await
}

/// Serves until `stop`, and reads the certificate anew at every SIGHUP.
async fn serve_and_reload(
    control: Arc<Control>,
    listeners: Listeners,
    hangup: &mut Signal,
    stop: impl Future<Output = ()> + Send + 'static,
) -> anyhow::Result<()> {
    let reloading = reload(control.certificate.as_ref(), hangup);
    tokio::select! {
        served = serve(control.clone(), listeners, stop) => served,
        never = reloading => match never {},
    }
}

async fn bind(serve: SocketAddr, fleet: SocketAddr) -> anyhow::Result<Listeners> {
    let bind = async |key: &'static str, address| {
        let bound = TcpListener::bind(address).await;
        bound.with_context(|| format!("[{key}] listen {address}: is another process there?"))
    };
    Ok(Listeners { operators: bind("serve", serve).await?, fleet: bind("fleet", fleet).await? })
}

/// Reads the certificate anew at every SIGHUP, for ever.
async fn reload(certificate: Option<&Certificate>, hangup: &mut Signal) -> Infallible {
    while hangup.recv().await.is_some() {
        if let Some(certificate) = certificate {
            certificate.refresh(true);
        }
    }
    // There are no more signals.
    std::future::pending().await
}

/// Where connections come in.
#[derive(Debug)]
pub struct Listeners {
    /// Operators, players, pages.
    pub operators: TcpListener,
    /// Appliances and fronts.
    pub fleet: TcpListener,
}

/// Serves connections until `stop`, or until another may lead; then lets running requests end, but
/// not for long.
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
    let deposed = control.clone();
    tokio::spawn(async move {
        tokio::select! {
            () = stop => {}
            () = deposed.deposed() => {}
        }
        tracing::info!("stopping");
        let _ = stopping.send(true);
        // Kept, so that those who look later see it too.
        stopping.closed().await;
    });
    let config = &control.config;
    let tls = control.certificate.as_ref().map(Certificate::tls);
    let rules = Rules::for_players(&config.serve);
    let doors = control.doors.clone();
    let [players, first] = [control.clone(), control.clone()];
    let operators = Door::new(operators, tls, rules, doors.clone())
        .with(Box::new(move |request| api::straight(&players, request)))
        .with_first(Box::new(move |request, to| api::answer_bytes(&first, request, to)));
    let operators = operators.serve(api::router(control.clone()), stopped.clone());
    let rules = Rules {
        connections_max: config.fleet.connections_max,
        per_address_max: config.fleet.connections_per_address_max,
        proxies: Vec::new(),
        proxy_protocol: false,
        is_for_members: true,
    };
    let members = control.clone();
    let fleet = Door::new(fleet, Some(control.fleet_tls.clone()), rules, doors)
        .admitting(Box::new(move |seen| members.knows(seen)));
    let fleet = fleet.serve(api::fleet_router(control.clone()), stopped.clone());
    let serving = async { tokio::join!(operators, fleet) };
    let mut late = stopped.clone();
    let late = async move {
        let _ = late.wait_for(|stopped| *stopped).await;
        tokio::time::sleep(STOP_WITHIN).await;
    };
    tokio::select! {
        ((), ()) = serving => {}
        () = late => tracing::warn!("some requests were cut off"),
    }
    ticking.abort();
    following.abort();
    control.close().await;
    Ok(())
}

/// How long running requests may take after the signal to stop.
const STOP_WITHIN: Duration = Duration::from_secs(3);

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// On any ports; and the operators' address.
    pub(crate) async fn listeners() -> (SocketAddr, Listeners) {
        let bind = async || TcpListener::bind("127.0.0.1:0").await.unwrap();
        let listeners = Listeners { operators: bind().await, fleet: bind().await };
        (listeners.operators.local_addr().unwrap(), listeners)
    }
}
