//! A writer beside another one: it stands by, leads, and stands by again, at the same addresses.

use std::net::TcpListener as StdListener;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::signal::unix::Signal;
use tokio::sync::watch;
use tokio::time::sleep;

use super::{Listeners, bind, reload, serve_and_reload};
use crate::api;
use crate::config::Config;
use crate::connections::certificate::Certificate;
use crate::connections::listener::{Door, Rules};
use crate::metrics::DoorCounters;
use crate::state::lease::{self, Leading, Standing};
use crate::state::writer::{Control, OpenError};

/// Serves in turns of both kinds until `stop`.
pub(super) async fn run(
    config: Config,
    leading: Arc<Leading>,
    mut hangup: Signal,
    mut stop: Pin<Box<impl Future<Output = ()> + Send + 'static>>,
) -> anyhow::Result<()> {
    let bound = bind(config.serve.listen, config.fleet.listen).await?;
    let (operators, fleet) = (bound.operators.into_std()?, bound.fleet.into_std()?);
    let (stopping, stopped) = watch::channel(false);
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
            answered = stand_by(&config, &leading, &mut hangup, &operators, &fleet) => {
                return answered;
            }
            () = is_over() => break,
        };
        // A database that falls silent now keeps nobody from standing by again, or from ending.
        let control = tokio::select! {
            control = open(&config, &leading, epoch) => control?,
            () = lease::lost(&mut standing, epoch) => continue,
            () = is_over() => {
                leading.end().await;
                break;
            }
        };
        let listeners = Listeners { operators: again(&operators)?, fleet: again(&fleet)? };
        serve_and_reload(control, listeners, &mut hangup, is_over()).await?;
    }
    Ok(())
}

/// Opens what a leader has; for ever, if another leads by now.
async fn open(
    config: &Config,
    leading: &Arc<Leading>,
    epoch: u64,
) -> Result<Arc<Control>, OpenError> {
    match Control::open_writer(config.clone(), Some((leading.clone(), epoch))).await {
        Err(error) if error.is_deposed() => std::future::pending().await,
        opened => opened,
    }
}

/// Says who leads, to operators and players. Members are let go at once, so that they turn to the
/// other address that they have. For ever, but for faults, and if this writer could never lead.
async fn stand_by(
    config: &Config,
    leading: &Leading,
    hangup: &mut Signal,
    operators: &StdListener,
    fleet: &StdListener,
) -> anyhow::Result<()> {
    tracing::info!(listen = %operators.local_addr()?, "standing by");
    let doors = Arc::new(DoorCounters::default());
    let open = |files| Certificate::open(files, doors.clone());
    let certificate = config.certificate().map(open).transpose()?;
    let rules = Rules::for_players(&config.serve);
    let (_stopping, stopped) = watch::channel(false);
    let tls = certificate.as_ref().map(Certificate::tls);
    let door = Door::new(again(operators)?, tls, rules, doors);
    let members = again(fleet)?;
    let letting_go = async {
        loop {
            if members.accept().await.is_err() {
                sleep(Duration::from_millis(100)).await;
            }
        }
    };
    let refreshing = async {
        loop {
            sleep(REFRESH_EVERY).await;
            if let Some(certificate) = &certificate {
                certificate.refresh(false);
            }
        }
    };
    tokio::select! {
        () = door.serve(api::standby::router(leading.standing()), stopped) => Ok(()),
        () = letting_go => Ok(()),
        () = refreshing => Ok(()),
        never = reload(certificate.as_ref(), hangup) => match never {},
        error = unfit(leading.standing(), LOOKS, || Control::could_lead(config)) => {
            Err(error.into())
        }
    }
}

/// Why this writer could never lead; for ever, as long as it could. Before another leads, there are
/// no secrets that it would need, and before that one has its documents, nobody knows where they
/// are. One that is fit is looked at again: the other may be restarted with other settings. What
/// may pass ends none that was fit.
async fn unfit(
    mut standing: watch::Receiver<Standing>,
    looks: Looks,
    could_lead: impl AsyncFn() -> Result<bool, OpenError>,
) -> OpenError {
    let known = standing.wait_for(|standing| !standing.leader.is_empty()).await;
    drop(known);
    let mut was_fit = false;
    loop {
        match could_lead().await {
            Ok(true) => {
                was_fit = true;
                sleep(looks.fit).await;
            }
            // They are not kept yet, or the database or the documents are away.
            Ok(false) => sleep(looks.unknown).await,
            Err(error) if was_fit && error.may_pass() => {
                tracing::warn!(%error, "this writer could not lead now: it is asked again");
                sleep(looks.fit).await;
            }
            Err(error) => return error,
        }
    }
}

/// How often a standby looks whether it could lead.
#[derive(Clone, Copy)]
struct Looks {
    /// While that is not known.
    unknown: Duration,
    /// Since it was last found that it could.
    fit: Duration,
}

/// A look is a connection to the database.
const LOOKS: Looks = Looks { unknown: REFRESH_EVERY, fit: Duration::from_secs(60) };

/// How often files are looked at, and what the leader has until it is there.
const REFRESH_EVERY: Duration = Duration::from_secs(1);

/// The same socket once more.
fn again(listener: &StdListener) -> anyhow::Result<TcpListener> {
    Ok(TcpListener::from_std(listener.try_clone()?)?)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::state::documents::DocumentError;

    #[tokio::test]
    async fn a_standby_that_was_fit_is_looked_at_again() {
        let leader = "at 192.0.2.1:8080".to_owned();
        let (_leads, standing) = watch::channel(Standing { leader, ..Standing::default() });
        let looks = AtomicU32::new(0);
        let could_lead = async || match looks.fetch_add(1, Ordering::Relaxed) {
            0 => Ok(false),
            1 | 2 => Ok(true),
            3 => Err(OpenError::Document(DocumentError::Unmarked {
                place: "/documents".to_owned(),
                line: String::new(),
            })),
            _ => Err(OpenError::Document(DocumentError::Elsewhere)),
        };
        let often = Duration::from_millis(1);
        let found = unfit(standing, Looks { unknown: often, fit: often }, could_lead);
        let found = tokio::time::timeout(Duration::from_secs(10), found).await;
        let error = found.expect("the leader was restarted with other documents");
        assert!(matches!(error, OpenError::Document(DocumentError::Elsewhere)), "{error}");
        assert_eq!(looks.into_inner(), 5, "a folder that is not mounted ends nobody that was fit");
    }
}
