//! A writer beside another one: it stands by, leads, and stands by again, at the same addresses.

use std::net::TcpListener as StdListener;
use std::pin::Pin;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use super::{Listeners, bind, reload, serve};
use crate::api;
use crate::config::Config;
use crate::connections::certificate::Certificate;
use crate::connections::listener::{Door, Rules};
use crate::metrics::DoorCounters;
use crate::state::lease::{self, Leading};
use crate::state::writer::Control;

/// Serves in turns of both kinds until `stop`.
pub(super) async fn run(
    config: Config,
    leading: Arc<Leading>,
    mut stop: Pin<Box<impl Future<Output = ()> + Send + 'static>>,
) -> anyhow::Result<()> {
    let bound = bind(config.serve.listen, config.fleet.listen).await?;
    let (operators, fleet) = (bound.operators.into_std()?, bound.fleet.into_std()?);
    let (stopping, stopped) = tokio::sync::watch::channel(false);
    tokio::spawn(async move {
        stop.as_mut().await;
        let _ = stopping.send(true);
        // Kept, so that those who look later see it too.
        stopping.closed().await;
    });
    let is_over = || {
        let mut stopped = stopped.clone();
        async move { drop(stopped.wait_for(|stopped| *stopped).await) }
    };
    while !*stopped.borrow() {
        let mut standing = leading.standing();
        let epoch = tokio::select! {
            epoch = lease::led(&mut standing) => epoch,
            answered = stand_by(&config, &leading, &operators, &fleet) => return answered,
            () = is_over() => break,
        };
        let control = Control::open_writer(config.clone(), Some((leading.clone(), epoch))).await?;
        let listeners = Listeners { operators: again(&operators)?, fleet: again(&fleet)? };
        let reloading = tokio::spawn(reload(control.clone(), signal(SignalKind::hangup())?));
        let served = serve(control, listeners, is_over()).await;
        reloading.abort();
        served?;
    }
    Ok(())
}

/// Says who leads, to operators and players. Members are let go at once, so that they turn to the
/// other address that they have. For ever, but for faults.
async fn stand_by(
    config: &Config,
    leading: &Leading,
    operators: &StdListener,
    fleet: &StdListener,
) -> anyhow::Result<()> {
    tracing::info!(listen = %operators.local_addr()?, "standing by");
    let doors = Arc::new(DoorCounters::default());
    let open = |files| Certificate::open(files, doors.clone());
    let certificate = config.certificate().map(open).transpose()?;
    let rules = Rules::for_players(&config.serve);
    let (_stopping, stopped) = tokio::sync::watch::channel(false);
    let tls = certificate.as_ref().map(Certificate::tls);
    let door = Door::new(again(operators)?, tls, rules, doors);
    let members = again(fleet)?;
    let letting_go = async {
        loop {
            if members.accept().await.is_err() {
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    };
    tokio::select! {
        () = door.serve(api::standby::router(leading.standing()), stopped) => Ok(()),
        () = letting_go => Ok(()),
    }
}

/// The same socket once more.
fn again(listener: &StdListener) -> anyhow::Result<TcpListener> {
    Ok(TcpListener::from_std(listener.try_clone()?)?)
}
