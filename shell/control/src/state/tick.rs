//! What happens by the clock.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::state::clients::Clients;
use crate::state::writer::Control;

/// Lets time pass for the director until the process ends.
pub(crate) async fn run(control: Arc<Control>) {
    let every = |span| {
        let mut ticks = interval(span);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks
    };
    let (mut writes, mut refreshes) = (every(WRITE_EVERY), every(REFRESH_EVERY));
    // Side by side: a wait for the database keeps nobody from noticing a silent appliance.
    let ticking = async {
        loop {
            sleep(Duration::from(control.tick_in()).max(TICK_EVERY_MIN)).await;
            control.tick();
            control.renew_own();
        }
    };
    let writing = async {
        loop {
            writes.tick().await;
            control.write_what_is_due().await;
        }
    };
    let refreshing = async {
        loop {
            refreshes.tick().await;
            control.refresh_access().await;
        }
    };
    let placing = async {
        let (mut clients, mut looks) = (Clients::default(), every(LOOK_EVERY));
        loop {
            looks.tick().await;
            let control = control.clone();
            let look = move || {
                clients.refresh(&control);
                clients
            };
            clients = spawn_blocking(look).await.expect("nothing in it panics");
        }
    };
    tokio::join!(ticking, writing, refreshing, placing);
}

/// After a tick others have their turn at the state: a slice of a long table takes milliseconds.
const TICK_EVERY_MIN: Duration = Duration::from_millis(2);

/// How often actions that are due by the clock are written.
const WRITE_EVERY: Duration = Duration::from_millis(100);

/// How often files are looked at that say where clients are.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// How often tokens are read that the command line may have made.
const REFRESH_EVERY: Duration = Duration::from_secs(1);
