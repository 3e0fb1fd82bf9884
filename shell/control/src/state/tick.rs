//! What happens by the clock, but for the director's own.

use std::sync::Arc;
use std::time::Duration;

use director::Event;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval, sleep};

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
    // Side by side, whatever the database does; and the sign that this process reads in a task of
    // its own, since the others read files: a folder that hangs stops them all, and nobody else.
    let mut reading = JoinSet::new();
    let (mut signs, reads) = (every(TICK_EVERY), control.clone());
    reading.spawn(async move {
        loop {
            signs.tick().await;
            reads.directing.reads();
            reads.directing.look();
        }
    });
    let mut ticks = every(TICK_EVERY);
    let ticking = async {
        loop {
            ticks.tick().await;
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
    let counting = async {
        loop {
            let of = control.clone();
            let count = move || of.unshared.count(&of.snapshot().routes);
            let rest = spawn_blocking(count).await.expect("nothing in it panics");
            sleep(rest).await;
        }
    };
    let documents = control.look_after_documents();
    let archiving = control.decisions.archive();
    let (demand, forecasts) = (control.count_demand(), control.expect_demand());
    let looking = async { tokio::join!(control.watch_fill(), control.prune_wishes()) };
    let of_demand = async { tokio::join!(demand, forecasts, looking) };
    tokio::join!(ticking, writing, refreshing, placing, counting, documents, archiving, of_demand);
}

/// How often the director is told that this process reads what comes, and somebody looks whether it
/// makes steps; and time passes for viewers.
const TICK_EVERY: Duration = Duration::from_millis(100);

/// How often actions that are due by the clock are written.
const WRITE_EVERY: Duration = Duration::from_millis(100);

/// How often files are looked at that say where clients are.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// How often tokens are read that the command line may have made.
const REFRESH_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::writer::tests::open;
    use std::time::Instant;
    use tokio::runtime::Builder;

    #[test]
    fn what_hangs_here_is_no_time_in_which_nobody_reads() {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (_directory, control) = runtime.block_on(open(""));
        let ticking = runtime.spawn(run(control.clone()));
        let end = Instant::now() + Duration::from_secs(10);
        let says_so = || {
            let before = control.directing.reads_at();
            while control.directing.reads_at() == before {
                assert!(Instant::now() < end, "nobody says that this process reads");
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        says_so();
        let hanging = control.hang();
        (0..5).for_each(|_| says_so());
        drop(hanging);
        ticking.abort();
    }
}
