//! How the process ends: what is waited for, and what is not.

use std::time::Duration;

use tokio::task::spawn_blocking;

use super::{Control, Shared};

/// A thing that the end of the process does not wait for any longer.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum Late {
    #[error(
        "a change is still being written after {} s and is not waited for: it is made or not, and \
         nobody was told",
        .0.as_secs()
    )]
    Change(Duration),
    #[error(
        "connections to the database do not close within {} s and are not waited for: a change \
         that is still written uses them, or the database does not answer",
        CLOSE_WITHIN.as_secs()
    )]
    Store,
}

impl Control {
    /// Ends the ledger and closes the database, which may be silent.
    pub(crate) async fn close(&self) {
        self.directing.ends();
        let decisions = self.decisions.clone();
        spawn_blocking(move || decisions.close()).await.expect("nothing in it panics");
        for late in self.close_store(CHANGE_WITHIN).await {
            tracing::warn!("{late}");
        }
        self.end_lease().await;
    }

    /// Another writer need not wait for what is late here: once it leads, no change of this one is
    /// made.
    async fn end_lease(&self) {
        if let Some(Shared { leading, epoch, .. }) = &self.shared
            && leading.standing().borrow().epoch == Some(*epoch)
        {
            leading.end().await;
        }
    }

    /// Closes the database once no change is being written, and says what it did not wait for.
    async fn close_store(&self, change_within: Duration) -> Vec<Late> {
        let mut late = Vec::new();
        let _writing = tokio::select! {
            writing = self.writing.lock() => Some(writing),
            () = tokio::time::sleep(change_within) => {
                late.push(Late::Change(change_within));
                None
            }
            // What another writer's lease keeps from being made is not waited for.
            () = self.deposed() => None,
        };
        if let Some(store) = self.store.as_ref()
            && tokio::time::timeout(CLOSE_WITHIN, store.close()).await.is_err()
        {
            late.push(Late::Store);
        }
        late
    }
}

/// How long a change that is being written may take until the process ends: a large ingest has time
/// to be stored. Less where the lease is lost meanwhile, as it is where the database is silent.
const CHANGE_WITHIN: Duration = Duration::from_secs(10);
/// How long connections to the database may take to close. What is under way then, SQLite undoes at
/// the next start; a server ends it, or refuses it once another leads.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::lease::{self, Leading};
    use crate::state::writer::tests::open;

    #[tokio::test]
    async fn a_change_under_way_keeps_neither_the_database_open_nor_the_lease() {
        let (_directory, control) = open("").await;
        let writing = control.writing.lock().await;
        let late = control.close_store(Duration::from_millis(50)).await;
        assert_eq!(late, [Late::Change(Duration::from_millis(50))], "the database answers");
        assert!(control.store.tokens().await.is_err(), "it is closed");
        control.end_lease().await;
        drop(writing);
        let Some(second) = Leading::begin(&control.config.state.0, "second").await.unwrap() else {
            return; // SQLite has no lease.
        };
        let mut standing = second.standing();
        let led = tokio::time::timeout(Duration::from_secs(1), lease::led(&mut standing));
        led.await.expect("the lease was given back, and does not end by itself so soon");
    }

    #[tokio::test]
    async fn the_end_waits_for_a_change_that_is_written_meanwhile() {
        let (_directory, control) = open("").await;
        let writing = control.writing.lock().await;
        let written = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let tokens = control.store.tokens().await;
            drop(writing);
            tokens
        };
        let (late, tokens) = tokio::join!(control.close_store(CHANGE_WITHIN), written);
        assert_eq!(late, []);
        assert!(tokens.is_ok(), "the database is open until then");
    }
}
