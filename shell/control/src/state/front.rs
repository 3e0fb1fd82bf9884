//! The front's side: it follows the writer, and answers players while the writer is away.
//!
//! ```text
//! writer ── snapshot, keys ──> Follower ──> News ──> Control: Director (a replica), keys, TLS
//!                                 |
//!                          state directory: the envelope as it came, the keys, the identity
//! ```
//!
//! What is on disk is checked like what comes over the wire: it is believed for its signature and
//! not for its place. The keys that it was signed with stay beside it, as those that are good today
//! stay with the identity: a rotation takes no snapshot from a front whose writer is away. Nothing
//! observed is on disk: reports make it anew.

mod asking;
mod kept;
mod telling;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use director::following::{self, Picture, Run};
use identity::code::Code;
use identity::credentials::{Credentials, CredentialsError};
use identity::enrol::{self, About, Address, EnrolError};
use identity::member::{Member, Seen};
use identity::secret_file::SecretError;
use model::manifest::TokenKey;
use model::units::{Nanos, UnixSeconds};
use wire::v1::signed::{self, Kind};

use crate::config::Config;
use crate::members::keys::Keys;
use crate::state::difference;
use crate::state::replica::{self, SnapshotError};
use asking::BEGIN_MAX;
use kept::{Kept, SNAPSHOT_FILE, Unsaved, len_of, load, load_keys};
pub(crate) use telling::{Line, Telling};

/// The writer's address, and the data that came from it.
pub(crate) struct Follower {
    writer: Address,
    state: PathBuf,
    credentials: Credentials,
    agent: ureq::Agent,
    /// An answer has to begin within this.
    begin_max: Duration,
    /// Since when it counts time.
    began: Instant,
    following: following::Follower,
    /// On disk: the snapshot, and the differences since.
    kept: Kept,
    /// Keys that the next snapshot may be signed with.
    signing_keys: Vec<TokenKey>,
    /// Those that what is on disk was signed with, which may be gone since.
    kept_keys: Vec<TokenKey>,
    keys_at: Option<Instant>,
    renewed_at: Option<Instant>,
    /// The snapshot in force, while it is not on disk yet.
    unsaved: Option<Unsaved>,
}

#[derive(Default)]
pub(crate) struct News {
    /// The writer has answered.
    pub(crate) heard: bool,
    pub(crate) picture: Option<Picture>,
    pub(crate) keys: Option<Keys>,
    pub(crate) credentials: Option<Credentials>,
}

/// Why there is nothing new.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    #[error("the writer at {address} cannot be reached: {error}")]
    Unreachable { address: String, error: String },
    #[error("the writer at {address} has not begun to answer in {within:?}")]
    Late { address: String, within: Duration },
    #[error("the answer of the writer at {address} is cut off, or too long: {error}")]
    Cut { address: String, error: String, was_whole: bool },
    #[error("the writer answers {status}: {text}")]
    Status { status: u16, text: String },
    #[error("the writer's snapshot is refused: {0}")]
    Snapshot(#[from] SnapshotError),
    #[error("the writer's keys cannot be used: {0}")]
    Keys(#[from] SecretError),
    #[error("the writer's keys are not understood: {0}")]
    Json(#[from] serde_json::Error),
    #[error("{path}: {error}")]
    State { path: PathBuf, error: io::Error },
    #[error("the identity of this front: {0}")]
    Identity(#[from] EnrolError),
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
}

impl Follower {
    /// Starts from the state directory: with an identity, and with what was in force there before.
    pub(crate) fn open(writer: Address, state: &Path) -> Result<(Self, News), FollowError> {
        let credentials = Credentials::load(state)?;
        let mut follower = Self {
            agent: enrol::agent(&writer, credentials.client_tls()?),
            writer,
            state: state.to_owned(),
            begin_max: BEGIN_MAX,
            began: Instant::now(),
            following: following::Follower::default(),
            kept: Kept::default(),
            signing_keys: credentials.signing_keys(),
            kept_keys: load_keys(state),
            credentials,
            keys_at: None,
            renewed_at: None,
            unsaved: None,
        };
        let mut news = News { keys: Keys::load(state)?, ..News::default() };
        let path = state.join(SNAPSHOT_FILE);
        match load(&path) {
            Ok(None) => {}
            Ok(Some(bytes)) => match follower.open_kept(&bytes) {
                Ok(picture) => {
                    follower.kept.whole = len_of(&bytes);
                    news.picture = Some(follower.read_differences(picture));
                }
                Err(error) => {
                    let path = path.display();
                    tracing::warn!(%path, %error, "what is on disk is refused: asking the writer");
                }
            },
            Err(error) => return Err(FollowError::State { path, error }),
        }
        Ok((follower, news))
    }

    /// Its identity.
    pub(crate) fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// Asks the writer once. What is new is said whatever fails beside it: it is believed already,
    /// and is not asked for again.
    pub(crate) fn turn(&mut self, now: UnixSeconds) -> (News, Result<(), FollowError>) {
        let mut news = News::default();
        let identity = self.renew_if(self.credentials.renew_at() <= now, &mut news);
        let asked = self.ask(&mut news);
        let kept = self.keep();
        (news, identity.and(asked).and(kept))
    }

    fn now(&self) -> model::units::Instant {
        model::units::Instant::default() + Nanos::from(self.began.elapsed())
    }

    /// What came of the writer, all of it or nothing.
    fn open_news(&mut self, bytes: &[u8]) -> Result<Picture, SnapshotError> {
        if !is_of_differences(bytes) {
            return self.open_snapshot(bytes);
        }
        let mut run = self.following.run().ok_or(SnapshotError::Lost)?;
        let keys = self.credentials.signing_keys();
        envelopes(bytes).try_for_each(|envelope| open_next(&mut run, &keys, envelope))?;
        let picture = run.end()?;
        Ok(self.believe(picture))
    }

    fn open_snapshot(&mut self, bytes: &[u8]) -> Result<Picture, SnapshotError> {
        let old = self.following.newest_old();
        let picture = replica::open(&self.signing_keys, old, bytes)?;
        Ok(self.believe(picture))
    }

    /// From then on the keys that it names are believed, too.
    fn believe(&mut self, picture: Picture) -> Picture {
        self.signing_keys.clone_from(&picture.desired.signing_keys);
        self.following.believe(picture.clone());
        picture
    }
}

/// Trades a one-time code for the identity of the front that is configured.
pub fn enrol_front(config: &Config, code: Code) -> Result<Seen, EnrolFrontError> {
    let front = config.front().ok_or(EnrolFrontError::Writer)?;
    let fault = |error| FollowError::State { path: config.folder().to_owned(), error };
    fs::create_dir_all(config.folder()).map_err(fault)?;
    let machine = enrol::machine();
    let about = About { software: env!("CARGO_PKG_VERSION"), machine: &machine };
    let member = Member::front(front.name.0.as_str());
    let credentials =
        enrol::enrol(&front.writer.0, &member, &code, about).map_err(FollowError::from)?;
    credentials.save(config.folder()).map_err(FollowError::from)?;
    Ok(credentials.seen().clone())
}

/// Why a front did not enrol.
#[derive(Debug, thiserror::Error)]
pub enum EnrolFrontError {
    #[error("only fronts enrol, and this is a writer: set role = \"front\" and [front]")]
    Writer,
    #[error(transparent)]
    Follow(#[from] FollowError),
}

/// Opens the next difference of a run, with the keys that the state before it names and with
/// `others`: a rotation may have begun and ended while no front asked.
fn open_next(run: &mut Run, others: &[TokenKey], envelope: &[u8]) -> Result<(), SnapshotError> {
    let keys = [run.picture().desired.signing_keys.as_slice(), others].concat();
    Ok(run.apply(&difference::open(&keys, envelope)?)?)
}

/// Differences, each in an envelope of two lines and a line feed.
fn is_of_differences(bytes: &[u8]) -> bool {
    signed::decode(bytes).is_ok_and(|signed| signed.kind == Kind::Difference)
}

/// Each of them. One that is cut off is none.
fn envelopes(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let mut ends = (0..).zip(rest).filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at);
        let end: usize = ends.nth(1)?;
        let envelope = &rest[..end];
        rest = &rest[end + 1..];
        Some(envelope)
    })
}

/// How often the writer is asked for something new.
pub(crate) const ASK_EVERY: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::kept::DIFFERENCES_FILE;
    use super::*;
    use crate::serve::{serve, tests::listeners};
    use crate::state::writer::Wanted;
    use crate::state::writer::tests::open;
    use director::{Desired, Policy};
    use identity::signing::VerifyError;
    use std::fs::File;
    use tokio::task::{JoinHandle, spawn_blocking};

    pub(super) const NOW: UnixSeconds = UnixSeconds(0);

    #[tokio::test(flavor = "multi_thread")]
    async fn a_front_follows_by_differences_and_a_lost_one_is_mended() {
        let (_files, control, serving, follower) = following().await;
        let site = model::topology::Site::new("s1".parse().unwrap(), vec![]);
        control.set_site(site).await.unwrap();
        let turn = async |mut follower: Follower| {
            let asked = spawn_blocking(move || (follower.turn(NOW), follower));
            asked.await.unwrap()
        };
        let copies_of = |news: News| Some(news.picture?.desired.policy.copies);
        let put = async |copies| {
            control.set_policy(Policy { copies, versions_kept: 1, ..Policy::default() }).await
        };
        let given = || {
            let metrics = &control.metrics;
            (metrics.snapshots_given.value(), metrics.differences_given.value())
        };
        let ((_, outcome), mut follower) = turn(follower).await;
        outcome.unwrap();
        for copies in [3, 4] {
            put(copies).await.unwrap();
            let ((news, outcome), back) = turn(follower).await;
            outcome.unwrap();
            assert_eq!(copies_of(news), Some(copies));
            follower = back;
        }
        assert_eq!(given(), (1, 2));

        // From disk, as after a restart.
        let (writer, state) = (follower.writer.clone(), follower.state.clone());
        let (mut follower, news) = Follower::open(writer.clone(), &state).unwrap();
        assert_eq!(copies_of(news), Some(4));
        // One was not applied as the writer applied it.
        let picture = follower.following.picture().unwrap().clone();
        let signing_keys = picture.desired.signing_keys.clone();
        let desired = Desired { signing_keys, ..Desired::default() };
        follower.following.believe(Picture { desired, ..picture });
        put(5).await.unwrap();
        let ((news, outcome), follower) = turn(follower).await;
        let lost = matches!(outcome, Err(FollowError::Snapshot(SnapshotError::Lost)));
        assert!(lost && copies_of(news).is_none(), "what was in force stays so: {outcome:?}");
        let ((news, outcome), follower) = turn(follower).await;
        outcome.unwrap();
        assert_eq!((copies_of(news), given()), (Some(5), (2, 3)), "a whole one mends it");

        // The last one is cut off by a crash.
        let mut follower = follower;
        for copies in [6, 7] {
            put(copies).await.unwrap();
            let ((_, outcome), back) = turn(follower).await;
            outcome.unwrap();
            follower = back;
        }
        let path = state.join(DIFFERENCES_FILE);
        let len = fs::metadata(&path).unwrap().len();
        File::options().write(true).open(&path).unwrap().set_len(len - 9).unwrap();
        let (follower, news) = Follower::open(writer.clone(), &state).unwrap();
        assert_eq!(copies_of(news), Some(6));
        let ((news, outcome), _) = turn(follower).await;
        outcome.unwrap();
        assert_eq!((copies_of(news), given()), (Some(7), (2, 6)));
        let (_, news) = Follower::open(writer, &state).unwrap();
        assert_eq!(copies_of(news), Some(7), "and stands where the half one was");
        serving.abort();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_run_that_fails_in_the_middle_changes_nothing() {
        let (_files, control, serving, mut follower) = following().await;
        let known = {
            let asked = spawn_blocking(move || (follower.turn(NOW), follower));
            let ((_, outcome), back) = asked.await.unwrap();
            outcome.unwrap();
            follower = back;
            follower.following.known()
        };
        let mut last = known;
        for copies in [3, 4] {
            let policy = Policy { copies, versions_kept: 1, ..Policy::default() };
            control.set_policy(policy).await.unwrap();
            control
                .replica_snapshot(last, Wanted::Differences)
                .await
                .unwrap()
                .expect("there are news");
            last = control.store.replica().await.unwrap().0;
        }
        let given = control.replica_snapshot(known, Wanted::Differences).await.unwrap().unwrap();
        let mut half = given.to_vec();
        let at = half.len() - 9;
        half[at] ^= 1;
        let error = follower.open_news(&half).unwrap_err();
        assert!(matches!(error, SnapshotError::Verify(VerifyError::BadSignature)), "{error}");
        assert_eq!(follower.following.known(), known, "no further than its director");
        let picture = follower.open_news(&given).unwrap();
        assert_eq!((picture.generation, picture.desired.policy.copies), (last, 4));
        serving.abort();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_front_reads_differences_over_rotations_that_nobody_asked_between() {
        let (_files, control, serving, mut follower) = following().await;
        let turn = async |mut follower: Follower| {
            let asked = spawn_blocking(move || (follower.turn(NOW), follower));
            let ((_, outcome), follower) = asked.await.unwrap();
            outcome.unwrap();
            follower
        };
        let put = async |copies| {
            let policy = Policy { copies, versions_kept: 1, ..Policy::default() };
            control.set_policy(policy).await.unwrap();
        };
        follower = turn(follower).await;
        let given = &control.metrics.snapshots_given;
        for copies in [3, 4] {
            put(copies).await;
            // Another front asks.
            let known = follower.following.known();
            control.replica_snapshot(known, Wanted::Differences).await.unwrap().unwrap();
            control.rotate_signing_key().await.unwrap();
            control.use_next_signing_key().await;
            follower.renewed_at = None;
            follower = turn(follower).await;
            let keys = control.signing.public();
            assert_eq!((follower.credentials().signing_keys(), given.value()), (keys, 1));
            let known = follower.following.known();
            let (opened, news) = Follower::open(follower.writer, &follower.state).unwrap();
            let found = news.picture.map(|picture| picture.generation);
            assert_eq!(found, Some(known), "with {copies} copies");
            follower = turn(opened).await;
            assert_eq!(given.value(), 1);
        }
        serving.abort();
    }

    pub(super) type Serving = JoinHandle<anyhow::Result<()>>;

    /// A writer, and one who follows it and has asked for nothing yet.
    pub(super) async fn following()
    -> ([tempfile::TempDir; 2], std::sync::Arc<crate::state::writer::Control>, Serving, Follower)
    {
        let (files, control) = open("").await;
        let (_, listeners) = listeners().await;
        let writer = listeners.fleet.local_addr().unwrap().to_string();
        let writer: Address = format!("https://{writer}").parse().unwrap();
        let serving = tokio::spawn(serve(control.clone(), listeners, std::future::pending()));
        let member = Member::front("f1");
        let (code, _) = control.new_code(member.clone()).await.unwrap();
        let state = tempfile::tempdir().unwrap();
        let path = state.path().to_owned();
        let opened = spawn_blocking(move || {
            let about = About { software: "", machine: "" };
            enrol::enrol(&writer, &member, &code, about).unwrap().save(&path).unwrap();
            Follower::open(writer, &path).unwrap().0
        });
        ([files, state], control, serving, opened.await.unwrap())
    }
}
