//! What happens by the clock, but for the director's own.

use std::sync::Arc;
use std::time::Duration;

use director::Event;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use crate::state::clients::Clients;
use crate::state::writer::Control;

/// Does it until the process ends.
pub(crate) async fn run(control: Arc<Control>) {
    let every = |span| {
        let mut ticks = interval(span);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks
    };
    let (mut writes, mut refreshes) = (every(WRITE_EVERY), every(REFRESH_EVERY));
    // Side by side: the director has to know that this process reads, whatever the database does.
    let mut ticks = every(TICK_EVERY);
    let ticking = async {
        loop {
            ticks.tick().await;
            control.directing.reads();
            control.viewers.tick(control.clock.now(), &control.snapshot().sites);
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
            let settings = control.clone();
            let look = move || (clients.refresh(&settings.config.routes), clients);
            let (news, back) = spawn_blocking(look).await.expect("nothing in it panics");
            clients = back;
            if let Some((places, zones)) = news {
                control.handle(Event::Clients { places, zones }).await;
            }
        }
    };
    tokio::join!(ticking, writing, refreshing, placing);
}

/// How often the director is told that this process reads what comes.
const TICK_EVERY: Duration = Duration::from_millis(100);

/// How often actions that are due by the clock are written.
const WRITE_EVERY: Duration = Duration::from_millis(100);

/// How often files are looked at that say where clients are.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// How often tokens are read that the command line may have made.
const REFRESH_EVERY: Duration = Duration::from_secs(1);
