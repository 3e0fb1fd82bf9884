//! The writer's side of fronts: what they are given, signed once, when the first one asks.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::body;
use director::Desired;
use director::difference::{Check, Difference, Step, between};
use director::following::{Log, next_generation};
use model::id::Generation;
use model::units::{Bytes, Instant, UnixSeconds};
use tokio::task::spawn_blocking;
use wire::v1::signed::Kind;

use super::Control;
use crate::state::directing::Desk;
use crate::state::replica::SNAPSHOT_LEN_MAX;
use crate::state::store::StoreError;
use crate::state::{difference, replica};

/// What fronts were given last, and the differences that led there.
#[derive(Debug)]
pub(crate) struct Replication {
    /// None before the first front has asked.
    last: Option<Last>,
    /// The newest whole one that a front has asked for. A front goes on from it by differences, as
    /// long as they reach back to it and it is young, or one run does.
    whole: Option<Whole>,
    /// It may be so long.
    pub(crate) len_max: u64,
    /// Each in its envelope, as it is sent.
    log: Log<Vec<u8>>,
}

/// A state that fronts may have.
#[derive(Clone, Debug)]
struct Last {
    generation: Generation,
    manifests: Generation,
    issued: UnixSeconds,
    desired: Arc<Desired>,
    /// By which it is known after a start.
    weight: u64,
    /// By which fronts see that they have it.
    check: Check,
}

/// A state as a whole, as it was signed.
#[derive(Clone, Debug)]
struct Whole {
    generation: Generation,
    /// The key that signed it: another one may be the only one that a new front knows.
    kid: String,
    /// When it was.
    at: Instant,
    made: Result<body::Bytes, TooLong>,
}

/// Differences are kept up to so many bytes in all.
const LOG_LEN_MAX: usize = 8 << 20;

impl Default for Replication {
    fn default() -> Self {
        Self { last: None, whole: None, len_max: SNAPSHOT_LEN_MAX, log: Log::new(LOG_LEN_MAX) }
    }
}

impl Replication {
    /// The whole one that is there, if it is signed by the key of now and of use to a front that
    /// has `known`. One that was too long is tried again after each change.
    fn whole_for(
        &self,
        now: Instant,
        (known, wanted): (Generation, Wanted),
        kid: &str,
    ) -> Option<Whole> {
        let (last, whole) = (self.last.as_ref()?, self.whole.as_ref()?);
        let leads_on = match wanted {
            Wanted::Whole | Wanted::Differences => {
                self.log.leads_on(whole.generation, now.since(whole.at), known)
            }
            // It does not go on from there by differences.
            Wanted::Newer => false,
        };
        let is_of_use = whole.generation == last.generation || (whole.made.is_ok() && leads_on);
        (is_of_use && whole.kid == kid).then(|| whole.clone())
    }

    /// Drops the whole one if it is of use to no front: it may be a gigabyte.
    fn drop_useless_whole(&mut self, now: Instant, kid: &str) {
        if self.whole_for(now, (Generation(0), Wanted::Whole), kid).is_none() {
            self.whole = None;
        }
    }
}

/// What a front wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// A snapshot, if it is newer than what is known.
    Newer,
    /// Differences since, where they are there, else the same.
    Differences,
    /// A whole snapshot that is newer than what is known, or the newest where that is known: one
    /// that is there will do, if differences lead on from it.
    Whole,
}

/// A whole snapshot would be longer than it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a whole snapshot for fronts is longer than {0}: fronts that have one follow by differences, \
     and no other can begin, or begin again; keep fewer versions (docs/operate/state.md)"
)]
pub(crate) struct TooLong(Bytes);

/// Why a front gets no snapshot.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplicaError {
    /// Its generation could not be written, so nobody may see it.
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    TooLong(#[from] TooLong),
    #[error(
        "this front has generation {known}, and the newest here is {newest}: was this writer \
             restored from an old copy of its state? If so, stop the front, delete \
             snapshot.signed in the directory that its setting state names, and start it"
    )]
    Behind { known: Generation, newest: Generation },
}

/// What fronts were given stays old until there is something newer, also if the front that asked
/// leaves before: no other would get it.
struct StillOld<'a>(Option<&'a AtomicBool>);

impl StillOld<'_> {
    fn renewed(mut self) {
        self.0 = None;
    }
}

impl Drop for StillOld<'_> {
    fn drop(&mut self) {
        if let Some(is_old) = self.0 {
            is_old.store(true, Ordering::SeqCst);
        }
    }
}

impl Control {
    /// What a front wants that has `known`, in envelopes; none if that is the newest.
    pub(crate) async fn replica_snapshot(
        self: &Arc<Self>,
        known: Generation,
        wanted: Wanted,
    ) -> Result<Option<body::Bytes>, ReplicaError> {
        let control = self.clone();
        // A front that leaves before it is done finds it when it asks again: a whole one of
        // millions of files takes longer than a front waits.
        let work = tokio::spawn(async move { control.replica_news(known, wanted).await });
        work.await.expect("nothing in it panics")
    }

    async fn replica_news(
        self: &Arc<Self>,
        known: Generation,
        wanted: Wanted,
    ) -> Result<Option<body::Bytes>, ReplicaError> {
        let mut replication = self.replication.lock().await;
        let is_old = self.replica_is_old.swap(false, Ordering::SeqCst);
        if is_old || replication.last.is_none() {
            let still_old = StillOld(Some(&self.replica_is_old));
            self.look_for_news(&mut replication).await?;
            still_old.renewed();
        }
        replication.drop_useless_whole(self.clock.now(), &self.signing.kid());
        let last = replication.last.as_ref().expect("there is one after a look");
        let newest = last.generation;
        if newest < known {
            return Err(ReplicaError::Behind { known, newest });
        }
        if newest == known && wanted != Wanted::Whole {
            return Ok(None);
        }
        if wanted == Wanted::Differences
            && let Some(run) = replication.log.since(known)
        {
            self.metrics.differences_given.count();
            let bytes: Vec<u8> = run.flatten().copied().collect();
            return Ok(Some(bytes.into()));
        }
        if wanted == Wanted::Whole && known != Generation(0) {
            tracing::info!(%known, "a front wants a whole snapshot in place of what it has");
        }
        drop(replication);
        let whole = self.whole_for(known, wanted).await;
        match &whole {
            Ok(_) => self.metrics.snapshots_given.count(),
            Err(_) => self.metrics.snapshots_too_long.count(),
        }
        Ok(Some(whole?))
    }

    /// A whole one for a front that has `known`, which is not newer than the last. It is made
    /// beside: O(files) of time and memory, in which others follow by differences; once for all who
    /// wait for it, and one at a time.
    async fn whole_for(
        self: &Arc<Self>,
        known: Generation,
        wanted: Wanted,
    ) -> Result<body::Bytes, TooLong> {
        let _one_at_a_time = self.making_whole.lock().await;
        self.make_whole(known, wanted).await
    }

    /// The caller holds that lock.
    async fn make_whole(
        self: &Arc<Self>,
        known: Generation,
        wanted: Wanted,
    ) -> Result<body::Bytes, TooLong> {
        let kid = self.signing.kid();
        let (last, len_max) = {
            let mut replication = self.replication.lock().await;
            let now = self.clock.now();
            if let Some(whole) = replication.whole_for(now, (known, wanted), &kid) {
                return whole.made;
            }
            // Nobody gets the one before while the next is made: all wait for that lock.
            replication.whole = None;
            let last = replication.last.clone().expect("there is one after a look");
            (last, replication.len_max)
        };
        let (control, generation) = (self.clone(), last.generation);
        let work = move || control.whole(&last, len_max);
        let made = spawn_blocking(work).await.expect("nothing in it panics");
        self.note_length(made.as_ref().err());
        let whole = Whole { generation, kid, at: self.clock.now(), made: made.clone() };
        self.replication.lock().await.whole = Some(whole);
        made
    }

    /// A state as a whole, signed in its envelope.
    fn whole(&self, last: &Last, len_max: u64) -> Result<body::Bytes, TooLong> {
        let Last { generation, manifests, issued, desired, .. } = last;
        let wire = replica::snapshot_out(desired, *manifests, *generation, *issued);
        let mut payload = Limited { bytes: Vec::new(), len_max: Bytes(len_max).as_usize() };
        let written = serde_json::to_writer(&mut payload, &wire);
        // Signing takes another copy of the JSON.
        drop(wire);
        match written {
            Ok(()) => Ok(self.signing.sign(Kind::Snapshot, &payload.bytes).into()),
            Err(_) => Err(TooLong(Bytes(len_max))),
        }
    }

    fn note_length(&self, too_long: Option<&TooLong>) {
        let Some(error) = too_long else { return self.whole_too_long.store(0, Ordering::Relaxed) };
        tracing::error!(%error, "fronts");
        let now = self.clock.unix().0;
        // The first time is what an operator wants to see.
        let _ = self.whole_too_long.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Since when no front could be given a whole snapshot, and why; none while it fits.
    pub(crate) fn whole_too_long(&self) -> Option<(UnixSeconds, TooLong)> {
        let since = self.whole_too_long.load(Ordering::Relaxed);
        (since != 0).then_some((UnixSeconds(since), TooLong(Bytes(SNAPSHOT_LEN_MAX))))
    }

    /// Looks what is otherwise than fronts were given last. Its generation is durable before they
    /// see it. After a start it is the one before, if nothing has changed since that was given.
    async fn look_for_news(
        self: &Arc<Self>,
        replication: &mut Replication,
    ) -> Result<(), StoreError> {
        let look = |desk: &mut Desk, _| {
            (desk.director.desired().without_receipts(), desk.director.generation())
        };
        let (desired, manifests) = self.directing.ask_in_turn(look).await;
        let (desired, issued) = (Arc::new(desired), self.clock.unix());
        let last = match &replication.last {
            None => self.first(desired, manifests, issued).await?,
            Some(last) => {
                let (control, before) = (self.clone(), (last.clone(), desired));
                let work = move || control.step(before, manifests, issued);
                let found = spawn_blocking(work).await.expect("nothing in it panics");
                let Some((next, envelope, has_less)) = found else { return Ok(()) };
                if has_less && self.whole_too_long().is_some() {
                    self.try_whole();
                }
                let (generation, len) = (next.generation, envelope.len());
                self.store.put_replica(generation, kept(next.weight)).await?;
                tracing::info!(generation = generation.0, len, "news for fronts");
                replication.log.push(last.generation, envelope, len);
                next
            }
        };
        replication.last = Some(last);
        Ok(())
    }

    /// Versions are gone since a whole one was too long: whether it still is, an operator wants to
    /// see before a front has to begin anew. Beside what goes on, and once at a time.
    fn try_whole(self: &Arc<Self>) {
        let control = self.clone();
        tokio::spawn(async move {
            if let Ok(_one_at_a_time) = control.making_whole.try_lock() {
                // Its length is noted.
                drop(control.make_whole(Generation(0), Wanted::Whole).await);
            }
        });
    }

    /// The next state, the difference that leads there, signed, and whether versions are gone; none
    /// if fronts see none.
    fn step(
        &self,
        (last, desired): (Last, Arc<Desired>),
        manifests: Generation,
        issued: UnixSeconds,
    ) -> Option<(Last, Vec<u8>, bool)> {
        let step = between(&last.desired, &desired)?;
        let generation = next_generation(last.generation, issued);
        let (check, has_less) = (step.check(last.check), !step.gone.versions.is_empty());
        let weight = difference::weight_after(&step, last.weight);
        let (from, Step { changed, gone, .. }) = (last.generation, step);
        let found = Difference { from, generation, issued, manifests, changed, gone, check };
        let wire = difference::difference_out(&found);
        let payload = serde_json::to_vec(&wire).expect("it always becomes JSON");
        let mut envelope = self.signing.sign(Kind::Difference, &payload);
        envelope.push(b'\n');
        let next = Last { generation, manifests, issued, desired, weight, check };
        Some((next, envelope, has_less))
    }

    /// What is there at the start: of the generation before, if it is known by its weight, else of
    /// the next. O(files), once.
    async fn first(
        &self,
        desired: Arc<Desired>,
        manifests: Generation,
        issued: UnixSeconds,
    ) -> Result<Last, StoreError> {
        let (none, of) = (Generation(0), desired.clone());
        let work = move || {
            let whole = replica::snapshot_out(&of, none, none, UnixSeconds(0));
            (difference::weight(&whole), Check::of(&of))
        };
        let (weight, check) = spawn_blocking(work).await.expect("nothing in it panics");
        let (known, known_weight) = self.store.replica().await?;
        let is_known = known_weight == kept(weight);
        let generation = if is_known { known } else { next_generation(known, issued) };
        if generation != known {
            self.store.put_replica(generation, kept(weight)).await?;
            tracing::info!(generation = generation.0, "a snapshot for fronts");
        }
        Ok(Last { generation, manifests, issued, desired, weight, check })
    }
}

/// Bytes up to a length, and an error instead of the next. The envelope's line goes beside.
struct Limited {
    bytes: Vec<u8>,
    len_max: usize,
}

impl io::Write for Limited {
    fn write(&mut self, more: &[u8]) -> io::Result<usize> {
        if self.len_max.saturating_sub(ENVELOPE_LEN_MAX) < self.bytes.len() + more.len() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(more);
        Ok(more.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What an envelope adds to its payload: two words, a key's name and a signature.
const ENVELOPE_LEN_MAX: usize = 1024;

/// A weight as it is stored: SQLite's numbers are signed.
fn kept(weight: u64) -> u64 {
    weight >> 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use director::Policy;
    use director::following::{RUN_MAX, WHOLE_YOUNG};
    use std::future::{Future as _, poll_fn};
    use std::task::Poll;
    use std::time::Duration;
    use wire::v1::signed;

    #[tokio::test]
    async fn a_front_that_leaves_while_a_snapshot_is_signed_keeps_it_from_nobody() {
        let (_directory, control) = crate::state::writer::tests::open("").await;
        let first = control.replica_snapshot(Generation(0), Wanted::Newer).await.unwrap();
        let known = control.store.replica().await.unwrap().0;
        assert!(first.is_some());
        control
            .set_policy(Policy { copies: 5, versions_kept: 1, ..Policy::default() })
            .await
            .unwrap();
        let mut asked = Box::pin(control.replica_snapshot(known, Wanted::Newer));
        let begins = poll_fn(|cx| Poll::Ready(asked.as_mut().poll(cx).is_pending()));
        assert!(begins.await, "it is signed on another thread");
        drop(asked);
        assert!(control.replica_snapshot(known, Wanted::Newer).await.unwrap().is_some());
        let newest = control.store.replica().await.unwrap().0;
        assert!(control.replica_snapshot(newest, Wanted::Newer).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_front_of_the_release_before_gets_whole_snapshots() {
        let (_directory, control) = crate::state::writer::tests::open("").await;
        control
            .replica_snapshot(Generation(0), Wanted::Differences)
            .await
            .unwrap()
            .expect("there is one");
        let known = control.store.replica().await.unwrap().0;
        control
            .set_policy(Policy { copies: 5, versions_kept: 1, ..Policy::default() })
            .await
            .unwrap();
        let (some, whole) = (Wanted::Differences, Wanted::Newer);
        for (takes, word) in [(some, "difference"), (whole, "snapshot"), (some, "difference")] {
            let given = control.replica_snapshot(known, takes).await.unwrap().unwrap();
            assert!(given.starts_with(format!("nearcast-signed-1 {word} ").as_bytes()), "{word}");
        }
        let given = control
            .replica_snapshot(Generation(known.0 - 1), Wanted::Differences)
            .await
            .unwrap()
            .unwrap();
        assert!(given.starts_with(b"nearcast-signed-1 snapshot "), "before the first difference");
    }

    #[tokio::test]
    async fn a_front_that_wants_the_whole_gets_it_whatever_it_knows() {
        let (_directory, control) = crate::state::writer::tests::open("").await;
        control.replica_snapshot(Generation(0), Wanted::Newer).await.unwrap().unwrap();
        let known = control.store.replica().await.unwrap().0;
        assert!(control.replica_snapshot(known, Wanted::Newer).await.unwrap().is_none());
        let given = control.replica_snapshot(known, Wanted::Whole).await.unwrap().unwrap();
        assert!(given.starts_with(b"nearcast-signed-1 snapshot "));
        let later = control.replica_snapshot(known.next(), Wanted::Whole).await;
        assert!(matches!(later, Err(ReplicaError::Behind { .. })), "it has what nobody gave");
    }

    #[tokio::test]
    async fn a_whole_one_that_is_too_long_is_an_error_and_made_once() {
        let (_directory, control) = crate::state::writer::tests::open("").await;
        control.replication.lock().await.len_max = 1200;
        for count in 1..=2 {
            let asked = control.replica_snapshot(Generation(0), Wanted::Whole).await;
            assert!(matches!(asked, Err(ReplicaError::TooLong(_))), "{asked:?}");
            assert_eq!(control.metrics.snapshots_too_long.value(), count);
            assert!(control.whole_too_long().is_some());
        }
        let known = control.store.replica().await.unwrap().0;
        // Those that have one go on.
        let policy = Policy { copies: 5, versions_kept: 1, ..Policy::default() };
        control.set_policy(policy).await.unwrap();
        assert!(control.replica_snapshot(known, Wanted::Differences).await.unwrap().is_some());
        control.replication.lock().await.len_max = SNAPSHOT_LEN_MAX;
        let given = control.replica_snapshot(Generation(0), Wanted::Whole).await.unwrap();
        assert!(given.is_some() && control.whole_too_long().is_none());
        assert_eq!(control.metrics.snapshots_given.value(), 1);
    }

    #[test]
    fn a_front_follows_while_a_whole_one_is_made_for_another() {
        // The thread on which a whole one would be made is busy.
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let (_directory, control) = crate::state::writer::tests::open("").await;
            control.replica_snapshot(Generation(0), Wanted::Newer).await.unwrap().unwrap();
            let known = control.store.replica().await.unwrap().0;
            put(&control, 5).await;
            control.replica_snapshot(known, Wanted::Differences).await.unwrap().unwrap();
            assert!(control.replication.lock().await.whole.is_some(), "it is young");
            let newest = control.store.replica().await.unwrap().0;
            let (goes_on, waits) = std::sync::mpsc::channel::<()>();
            let busy = spawn_blocking(move || waits.recv());
            let mut whole = Box::pin(control.replica_snapshot(newest, Wanted::Whole));
            let begins = poll_fn(|cx| Poll::Ready(whole.as_mut().poll(cx).is_pending()));
            assert!(begins.await);
            let follows = control.replica_snapshot(known, Wanted::Differences);
            let given = tokio::time::timeout(Duration::from_secs(10), follows).await;
            assert!(given.expect("it waits for nobody").unwrap().is_some());
            assert!(control.replication.lock().await.whole.is_none(), "two would be in memory");
            // Another that wants the whole gets the same.
            let mut other = Box::pin(control.replica_snapshot(newest, Wanted::Whole));
            let begins = poll_fn(|cx| Poll::Ready(other.as_mut().poll(cx).is_pending()));
            assert!(begins.await);
            goes_on.send(()).unwrap();
            busy.await.unwrap().unwrap();
            let (whole, other) = (whole.await.unwrap().unwrap(), other.await.unwrap().unwrap());
            assert_eq!(whole.as_ptr(), other.as_ptr(), "it is made once");
        });
    }

    #[tokio::test]
    async fn a_whole_one_is_given_as_long_as_differences_go_on_from_it() {
        let (_directory, control) = crate::state::writer::tests::open("").await;
        let whole = async |known| control.replica_snapshot(known, Wanted::Whole).await.unwrap();
        let first = whole(Generation(0)).await.unwrap();
        let known = control.store.replica().await.unwrap().0;
        put(&control, 5).await;
        let given = control.replica_snapshot(known, Wanted::Differences).await.unwrap().unwrap();
        let newest = control.store.replica().await.unwrap().0;
        let again = whole(Generation(0)).await.unwrap();
        assert_eq!(again.as_ptr(), first.as_ptr(), "a front goes on from it by differences");
        assert!(given.starts_with(b"nearcast-signed-1 difference "));
        let next = whole(newest).await.unwrap();
        assert_ne!(next, first, "it is older than what that front has");
        // Differences do not reach back to it any more.
        put(&control, 6).await;
        control.replication.lock().await.log = Log::new(0);
        control.replica_snapshot(newest, Wanted::Newer).await.unwrap().unwrap();
        assert_ne!(whole(Generation(0)).await.unwrap(), next);
    }

    #[tokio::test]
    async fn a_whole_one_is_made_anew_for_another_key_and_where_it_is_old_and_no_run_reaches() {
        let (_directory, control) = crate::state::writer::tests::open("").await;
        let whole = async || {
            let given = control.replica_snapshot(Generation(0), Wanted::Whole).await;
            given.unwrap().unwrap()
        };
        let known = async || control.store.replica().await.unwrap().0;
        let first = whole().await;
        control.rotate_signing_key().await.unwrap();
        control.use_next_signing_key().await;
        let next = whole().await;
        let kid = |bytes: &body::Bytes| signed::decode(bytes).unwrap().kid.to_owned();
        assert_ne!(kid(&next), kid(&first), "a new front knows this key alone");
        for copies in (2..=4).cycle().take(RUN_MAX + 1) {
            assert_eq!(whole().await.as_ptr(), next.as_ptr(), "with {copies} copies");
            let before = known().await;
            put(&control, copies).await;
            control.replica_snapshot(before, Wanted::Differences).await.unwrap().unwrap();
        }
        let again = whole().await;
        assert_eq!(again.as_ptr(), next.as_ptr(), "whoever waited for it has had no time to ask");
        control.clock.pass(WHOLE_YOUNG.as_seconds());
        let none = control.replica_snapshot(known().await, Wanted::Differences).await;
        assert!(none.unwrap().is_none() && control.replication.lock().await.whole.is_none());
        let newest = whole().await;
        assert_ne!(newest, next, "a front would begin with a state of long ago");
        let again = control.replica_snapshot(known().await, Wanted::Whole).await;
        assert_eq!(again.unwrap().unwrap().as_ptr(), newest.as_ptr());
        control.clock.pass(WHOLE_YOUNG.as_seconds());
        assert_eq!(whole().await.as_ptr(), newest.as_ptr(), "nothing is newer");
    }

    #[tokio::test]
    async fn what_was_withdrawn_long_ago_is_not_told_with_each_difference() {
        let (_directory, control) = crate::state::writer::tests::open("").await;
        control.replica_snapshot(Generation(0), Wanted::Newer).await.unwrap().unwrap();
        let id = |n: u32| (format!("film-{n}").parse().unwrap(), "film".parse().unwrap());
        let versions: std::collections::BTreeMap<_, _> = (0..20_000).map(id).collect();
        let (at, reason, receipts) = (UnixSeconds(0), director::Reason::Ended, [].into());
        let versions = versions.into();
        let withdrawal = director::Withdrawal { id: 1, at, reason, versions, receipts };
        let change = director::Change::Withdrawn(withdrawal);
        let mut lens = Vec::new();
        for change in [Some(change), None] {
            let known = control.store.replica().await.unwrap().0;
            match change {
                Some(change) => control.changed(change).await,
                None => put(&control, 5).await,
            }
            let given = control.replica_snapshot(known, Wanted::Differences).await;
            lens.push(given.unwrap().unwrap().len());
        }
        assert!(20_000 * 10 < lens[0] && lens[1] < 2048, "{lens:?}");
    }

    #[tokio::test]
    async fn generations_are_above_those_of_before_a_restore() {
        let (_directory, control) = crate::state::writer::tests::open("").await;
        let now = control.clock.unix();
        control.replica_snapshot(Generation(0), Wanted::Newer).await.unwrap().unwrap();
        let first = control.store.replica().await.unwrap().0;
        assert!(now.0 <= first.0, "of an old copy, changed since");
        control.clock.advance(1000);
        put(&control, 5).await;
        control.replica_snapshot(first, Wanted::Differences).await.unwrap().unwrap();
        let next = control.store.replica().await.unwrap().0;
        assert!(now.0 + 1000 <= next.0);
        // A clock that was set back, and changes of one second, do not stop them.
        control.store.put_replica(Generation(u64::MAX >> 2), 1).await.unwrap();
        control.replication.lock().await.last = None;
        control.replica_snapshot(Generation(0), Wanted::Newer).await.unwrap().unwrap();
        let last = control.store.replica().await.unwrap().0;
        assert_eq!(last, Generation((u64::MAX >> 2) + 1));
    }

    #[tokio::test]
    async fn once_versions_have_gone_a_whole_one_is_not_said_to_be_too_long() {
        let (_directory, control) = crate::state::writer::tests::open("").await;
        let version = crate::state::writer::withdrawals::tests::version(1, &[]);
        let (id, asset) = (version.id().clone(), version.files.asset.clone());
        control.changed(director::Change::Version(Arc::new(version))).await;
        control.replication.lock().await.len_max = 1200;
        let asked = control.replica_snapshot(Generation(0), Wanted::Whole).await;
        assert!(matches!(asked, Err(ReplicaError::TooLong(_))), "{asked:?}");
        let known = control.store.replica().await.unwrap().0;
        control.replication.lock().await.len_max = SNAPSHOT_LEN_MAX;
        let (at, reason, receipts) = (UnixSeconds(0), director::Reason::Operator, [].into());
        let versions = std::collections::BTreeMap::from([(id, asset)]).into();
        let withdrawal = director::Withdrawal { id: 1, at, reason, versions, receipts };
        control.changed(director::Change::Withdrawn(withdrawal)).await;
        assert!(control.whole_too_long().is_some());
        control.replica_snapshot(known, Wanted::Differences).await.unwrap().unwrap();
        drop(control.making_whole.lock().await);
        assert!(control.whole_too_long().is_none(), "fronts may begin, and none has to try");
    }

    async fn put(control: &Arc<Control>, copies: u32) {
        let policy = Policy { copies, versions_kept: 1, ..Policy::default() };
        control.set_policy(policy).await.unwrap();
    }
}
