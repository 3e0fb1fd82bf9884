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

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use director::following::{self, Asks, Picture, Run};
use identity::code::Code;
use identity::credentials::{Credentials, CredentialsError};
use identity::enrol::{self, About, Address, EnrolError};
use identity::member::{Member, Seen};
use identity::secret_file::{self, SecretError};
use identity::signing::VerifyError;
use model::id::Generation;
use model::manifest::TokenKey;
use model::units::{Bytes, Nanos, UnixSeconds};
use wire::convert::{token_key_in, token_key_out};
use wire::v1::replica as wire_replica;
use wire::v1::signed::{self, Kind};

use crate::config::Config;
use crate::members::keys::Keys;
use crate::state::difference;
use crate::state::replica::{self, SNAPSHOT_LEN_MAX, SnapshotError};

/// The writer's address, and the data that came from it.
pub(crate) struct Follower {
    writer: Address,
    state: PathBuf,
    credentials: Credentials,
    agent: ureq::Agent,
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

/// What the files have, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Kept {
    whole: u64,
    differences: u64,
}

/// News that could not be stored wait here: a full disk does not delay a revocation.
#[derive(Default)]
struct Unsaved {
    /// In place of what is on disk.
    whole: Option<Vec<u8>>,
    /// They signed that, with those that the states before name.
    keys: Vec<TokenKey>,
    /// Behind that.
    differences: Vec<u8>,
    /// The last attempt to store it, and its error.
    failed: Option<(Instant, String)>,
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
    #[error("the writer at {address} has not begun to answer in {BEGIN_MAX:?}")]
    Late { address: String },
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

impl FollowError {
    /// To ask again at once would cost both sides a whole snapshot again. A writer that is late may
    /// be making one; what is newer is asked for again meanwhile.
    fn is_of_a_whole_one(&self, asked: Asks) -> bool {
        let is_late = matches!(self, Self::Late { .. }) && matches!(asked, Asks::Whole(_));
        is_late
            || matches!(self, Self::Cut { was_whole: true, .. } | Self::Status { status: 507, .. })
    }
}

impl Follower {
    /// Starts from the state directory: with an identity, and with what was in force there before.
    pub(crate) fn open(writer: Address, state: &Path) -> Result<(Self, News), FollowError> {
        let credentials = Credentials::load(state)?;
        let mut follower = Self {
            agent: enrol::agent(&writer, credentials.client_tls()?),
            writer,
            state: state.to_owned(),
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

    fn renew_if(&mut self, due: bool, news: &mut News) -> Result<(), FollowError> {
        if due && let Some(credentials) = self.renew()? {
            news.credentials = Some(credentials);
        }
        Ok(())
    }

    fn ask(&mut self, news: &mut News) -> Result<(), FollowError> {
        let asks = self.following.asks(self.now());
        let path = match asks {
            Asks::Newer(known) => Some(format!("{SNAPSHOT}?known={known}&differences=true")),
            Asks::Whole(known) => Some(format!("{SNAPSHOT}?known={known}&whole=true")),
            Asks::Nothing => None,
        };
        let asked = path.is_some();
        let answer = path.map_or(Ok(None), |path| self.get(&path, SNAPSHOT_LEN_MAX));
        if let Err(error) = &answer
            && error.is_of_a_whole_one(asks)
        {
            self.following.refuse(self.now(), asks, true);
        }
        let answer = answer?;
        news.heard |= asked;
        if let Some(bytes) = answer {
            let opened = match self.open_news(&bytes) {
                // A key that it did not know of when it enrolled: the authority knows.
                Err(SnapshotError::Verify(VerifyError::UnknownKey(_))) => {
                    self.renew_if(true, news)?;
                    self.open_news(&bytes)
                }
                opened => opened,
            };
            if opened.is_err() {
                self.following.refuse(self.now(), asks, !is_of_differences(&bytes));
            }
            news.picture = Some(opened?);
            self.remember(bytes);
            self.keys_at = None;
        }
        if self.keys_at.is_none_or(|at| KEYS_EVERY < at.elapsed()) {
            news.keys = Some(self.keys()?);
        }
        Ok(())
    }

    fn now(&self) -> model::units::Instant {
        model::units::Instant::default() + Nanos::from(self.began.elapsed())
    }

    /// What was opened is to be kept.
    fn remember(&mut self, bytes: Vec<u8>) {
        let unsaved = self.unsaved.get_or_insert_default();
        if is_of_differences(&bytes) {
            unsaved.differences.extend_from_slice(&bytes);
            add(&mut unsaved.keys, &self.credentials.signing_keys());
        } else {
            self.following.came_whole();
            let keys = self.signing_keys.clone();
            *unsaved = Unsaved { whole: Some(bytes), keys, ..Unsaved::default() };
        }
        let (whole, waiting) = (unsaved.whole.as_ref(), len_of(&unsaved.differences));
        let before = if whole.is_some() { 0 } else { self.kept.differences };
        let whole = whole.map_or(self.kept.whole, |whole| len_of(whole));
        if whole.max(DIFFERENCES_MIN) < before + waiting {
            self.following.wants_shorter();
        }
    }

    /// Brings to disk what is in force. A restart begins with it while the writer is away.
    fn keep(&mut self) -> Result<(), FollowError> {
        let Some(mut unsaved) = self.unsaved.take() else { return Ok(()) };
        let path = self.state.join(SNAPSHOT_FILE);
        let said = unsaved.failed.take().filter(|(at, _)| at.elapsed() < SAVE_EVERY);
        let failed = match said {
            Some(said) => said,
            None => match self.save(&mut unsaved) {
                Ok(()) => return Ok(()),
                Err(error) => (Instant::now(), error.to_string()),
            },
        };
        let error = io::Error::other(failed.1.clone());
        unsaved.failed = Some(failed);
        self.unsaved = Some(unsaved);
        Err(FollowError::State { path, error })
    }

    /// Differences that a crash left beside a newer snapshot do not go on from it: the next ones
    /// stand in their place.
    fn save(&mut self, unsaved: &mut Unsaved) -> io::Result<()> {
        // Whatever a power cut leaves, its keys are there.
        let mut keys = self.kept_keys.clone();
        add(&mut keys, &unsaved.keys);
        if keys != self.kept_keys {
            self.keep_keys(keys)?;
        }
        if let Some(whole) = &unsaved.whole {
            secret_file::replace(&self.state.join(SNAPSHOT_FILE), whole)?;
            self.kept = Kept { whole: len_of(whole), differences: 0 };
            unsaved.whole = None;
            if self.kept_keys != unsaved.keys {
                self.keep_keys(unsaved.keys.clone())?;
            }
        }
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(self.state.join(DIFFERENCES_FILE))?;
        // Half of one may stand there.
        file.set_len(self.kept.differences)?;
        file.seek(io::SeekFrom::End(0))?;
        file.write_all(&unsaved.differences)?;
        file.sync_all()?;
        File::open(&self.state)?.sync_all()?;
        self.kept.differences += len_of(&unsaved.differences);
        Ok(())
    }

    fn keep_keys(&mut self, keys: Vec<TokenKey>) -> io::Result<()> {
        let wire = serde_json::to_vec(&keys.iter().map(token_key_out).collect::<Vec<_>>())?;
        secret_file::replace(&self.state.join(KEYS_FILE), &wire)?;
        self.kept_keys = keys;
        Ok(())
    }

    /// What is on disk behind a snapshot. The first that is cut off, or does not go on from there,
    /// ends it: the writer has the rest.
    fn read_differences(&mut self, mut picture: Picture) -> Picture {
        let bytes = match load(&self.state.join(DIFFERENCES_FILE)) {
            Ok(bytes) => bytes.unwrap_or_default(),
            Err(error) => {
                tracing::warn!(%error, "differences on disk are not read: asking the writer");
                return picture;
            }
        };
        let mut envelopes = envelopes(&bytes).peekable();
        while envelopes.peek().is_some() {
            let (mut run, mut len, mut refused) = (Run::new(picture.clone()), 0, None);
            let keys = [self.credentials.signing_keys(), self.kept_keys.clone()].concat();
            while let Some(envelope) = envelopes.next_if(|_| !run.is_full()) {
                refused = open_next(&mut run, &keys, envelope).err();
                if refused.is_some() {
                    break;
                }
                len += len_of(envelope) + 1;
            }
            if 0 < len {
                match run.end() {
                    Ok(next) => picture = self.believe(next),
                    Err(lost) => refused = Some(lost.into()),
                }
            }
            if let Some(error) = refused {
                tracing::warn!(%error, "differences on disk end here: asking the writer");
                break;
            }
            self.kept.differences += len;
        }
        picture
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

    /// The one on disk: also by the keys that it was signed with.
    fn open_kept(&mut self, bytes: &[u8]) -> Result<Picture, SnapshotError> {
        let keys = [self.signing_keys.as_slice(), &self.kept_keys].concat();
        let picture = replica::open(&keys, Generation(0), bytes)?;
        self.following.came_whole();
        Ok(self.believe(picture))
    }

    /// From then on the keys that it names are believed, too.
    fn believe(&mut self, picture: Picture) -> Picture {
        self.signing_keys.clone_from(&picture.desired.signing_keys);
        self.following.believe(picture.clone());
        picture
    }

    fn keys(&mut self) -> Result<Keys, FollowError> {
        let bytes = self.get("/v1/replica/keys", KEYS_LEN_MAX)?.unwrap_or_default();
        let wire: wire_replica::Keys = serde_json::from_slice(&bytes)?;
        let keys = Keys::given(&self.state, &wire)?;
        self.keys_at = Some(Instant::now());
        Ok(keys)
    }

    /// A new identity, and with it the keys that sign now. Not more often than `RENEW_EVERY`.
    fn renew(&mut self) -> Result<Option<Credentials>, FollowError> {
        if self.renewed_at.is_some_and(|at| at.elapsed() < RENEW_EVERY) {
            return Ok(None);
        }
        self.renewed_at = Some(Instant::now());
        let credentials = enrol::renew(&self.writer, &self.credentials)?;
        credentials.save(&self.state)?;
        self.agent = enrol::agent(&self.writer, credentials.client_tls()?);
        self.signing_keys = credentials.signing_keys();
        self.credentials = credentials.clone();
        tracing::info!(until = credentials.seen().not_after.0, "the identity was renewed");
        Ok(Some(credentials))
    }

    /// The body of a 200; none of a 204.
    fn get(&self, path: &str, len_max: u64) -> Result<Option<Vec<u8>>, FollowError> {
        let address = self.writer.to_string();
        let unreachable = |error: ureq::Error| {
            let address = address.clone();
            if matches!(error, ureq::Error::Timeout(ureq::Timeout::RecvResponse)) {
                return FollowError::Late { address };
            }
            FollowError::Unreachable { address, error: error.to_string() }
        };
        let url = format!("{}{path}", enrol::control_url(&self.writer));
        let request = self.agent.get(&url).config().timeout_global(Some(ANSWER_MAX));
        let request = request.timeout_recv_response(Some(BEGIN_MAX)).build();
        let mut answer = request.call().map_err(unreachable)?;
        let status = answer.status().as_u16();
        let mut body = Vec::new();
        let read = answer.body_mut().with_config().limit(len_max).reader().read_to_end(&mut body);
        if let Err(error) = read {
            let was_whole = !body.is_empty() && !is_of_differences(&body);
            let error = error.to_string();
            return Err(FollowError::Cut { address, error, was_whole });
        }
        match status {
            200 => Ok(Some(body)),
            204 => Ok(None),
            status => Err(FollowError::Status { status, text: said(&body) }),
        }
    }
}

/// Why the writer refuses: the detail of a problem (RFC 9457), or what there is else.
fn said(body: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct Problem {
        detail: String,
    }
    let detail = serde_json::from_slice(body).map(|problem: Problem| problem.detail);
    let text = detail.unwrap_or_else(|_| String::from_utf8_lossy(body).into_owned());
    text.chars().take(SAID_MAX).collect()
}

/// The longest of such details has what to do at its end.
const SAID_MAX: usize = 500;

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

fn load(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if SNAPSHOT_LEN_MAX < file.metadata()?.len() {
        return Err(io::Error::other("it is too long: delete it, and the writer is asked again"));
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// The keys of what is on disk. Without them a front asks its writer, as one that is new.
fn load_keys(state: &Path) -> Vec<TokenKey> {
    let keys = load(&state.join(KEYS_FILE)).and_then(|bytes| {
        let wire: Vec<wire::v1::manifest::TokenKey> =
            bytes.map_or(Ok(Vec::new()), |bytes| serde_json::from_slice(&bytes))?;
        Ok(wire.iter().filter_map(|key| token_key_in(key).ok()).collect())
    });
    keys.unwrap_or_else(|error: io::Error| {
        tracing::warn!(%error, "the keys of the snapshot on disk are not read");
        Vec::new()
    })
}

fn add(keys: &mut Vec<TokenKey>, more: &[TokenKey]) {
    for key in more {
        if !keys.contains(key) {
            keys.push(key.clone());
        }
    }
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

fn len_of(bytes: &[u8]) -> u64 {
    Bytes::of(bytes.len()).0
}

const SNAPSHOT: &str = "/v1/replica/snapshot";

/// A whole snapshot in its envelope, as it came.
const SNAPSHOT_FILE: &str = "snapshot.signed";

/// Keys that both files may be signed with, a JSON list: as good a secret as the identity beside
/// them, which names those that are good today.
const KEYS_FILE: &str = "snapshot-keys.json";

/// The differences since, as they came.
const DIFFERENCES_FILE: &str = "differences.signed";

/// With more differences than that on disk, and more than the snapshot is long, a whole one is
/// asked for.
const DIFFERENCES_MIN: u64 = 1 << 20;

/// No set of keys is longer.
const KEYS_LEN_MAX: u64 = 1 << 20;

/// Longest time for one answer: a large snapshot takes some seconds.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// Until an answer begins: a large snapshot is signed first. A writer that was stopped is waited
/// for no longer, since there may be another.
const BEGIN_MAX: Duration = Duration::from_secs(10);

/// Keys come with every snapshot, and so often without.
const KEYS_EVERY: Duration = Duration::from_secs(60);

/// A snapshot that could not be kept is tried again after this: it may be a gigabyte.
const SAVE_EVERY: Duration = Duration::from_secs(10);

/// Least time between two renewals.
const RENEW_EVERY: Duration = Duration::from_secs(30);

/// How often the writer is asked for something new.
pub(crate) const ASK_EVERY: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::{serve, tests::listeners};
    use crate::state::writer::Wanted;
    use crate::state::writer::tests::open;
    use director::{Desired, Policy};
    use tokio::task::{JoinHandle, spawn_blocking};

    const NOW: UnixSeconds = UnixSeconds(0);

    #[tokio::test(flavor = "multi_thread")]
    async fn a_snapshot_that_cannot_be_kept_takes_effect_and_is_kept_later() {
        let (_files, control, serving, mut follower) = following().await;
        let in_the_way = follower.state.join("snapshot.new");
        fs::create_dir(&in_the_way).unwrap();
        let policy = Policy { copies: 5, versions_kept: 1, ..Policy::default() };
        control.set_policy(policy).await.unwrap();
        let asked = spawn_blocking(move || (follower.turn(NOW), follower.turn(NOW), follower));
        let ((news, outcome), (again, still), mut follower) = asked.await.unwrap();
        assert!(matches!(outcome, Err(FollowError::State { .. })), "{outcome:?}");
        assert_eq!(news.picture.unwrap().desired.policy, policy);
        assert!(news.heard && news.keys.is_some());
        assert!(again.picture.is_none() && matches!(still, Err(FollowError::State { .. })));

        fs::remove_dir(&in_the_way).unwrap();
        follower.unsaved.as_mut().unwrap().failed = None; // It is time to try again.
        let asked = spawn_blocking(move || (follower.turn(NOW), follower));
        let ((_, outcome), follower) = asked.await.unwrap();
        outcome.unwrap();
        let (_, news) = Follower::open(follower.writer, &follower.state).unwrap();
        assert_eq!(news.picture.unwrap().desired.policy, policy);
        serving.abort();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_new_identity_takes_effect_though_the_next_request_fails() {
        let (_files, _control, serving, mut follower) = following().await;
        // The writer refuses: it knows of nothing so new.
        let (generation, none) = (Generation(u64::MAX), Generation(0));
        let (issued, desired) = (NOW, Desired::default());
        follower.following.believe(Picture { generation, issued, manifests: none, desired });
        let asked = spawn_blocking(move || (follower.turn(UnixSeconds(u64::MAX)), follower));
        let ((news, outcome), follower) = asked.await.unwrap();
        let Err(FollowError::Status { status: 409, text }) = outcome else {
            panic!("{outcome:?}");
        };
        assert!(text.starts_with("this front has generation"), "{text}");
        assert!(text.contains("snapshot.signed") && text.ends_with("start it"), "{text}");
        let serial = &news.credentials.expect("it is told").seen().serial.clone();
        assert_eq!(*serial, follower.credentials().seen().serial);
        serving.abort();
    }

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
    async fn a_front_reads_what_is_on_its_disk_though_the_key_that_signed_it_is_gone() {
        let (_files, control, serving, mut follower) = following().await;
        let turn = async |mut follower: Follower, now| {
            let asked = spawn_blocking(move || (follower.turn(now), follower));
            let ((_, outcome), follower) = asked.await.unwrap();
            outcome.unwrap();
            follower
        };
        follower = turn(follower, NOW).await;
        control.rotate_signing_key().await.unwrap();
        follower = turn(follower, NOW).await;
        control.use_next_signing_key().await;
        // Its identity is renewed, and names the new key alone.
        follower = turn(follower, UnixSeconds(u64::MAX)).await;
        let keys = control.signing.public();
        assert_eq!((follower.credentials().signing_keys(), keys.len()), (keys, 1));
        let (known, given) = (follower.following.known(), &control.metrics.snapshots_given);
        assert_eq!(given.value(), 1, "the file is of the old key");
        let (opened, news) = Follower::open(follower.writer, &follower.state).unwrap();
        assert_eq!(news.picture.map(|picture| picture.generation), Some(known));
        turn(opened, NOW).await;
        assert_eq!(given.value(), 1, "and goes on from there");
        serving.abort();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_front_does_not_ask_at_once_again_for_a_whole_one_that_is_too_long() {
        let (_files, control, serving, follower) = following().await;
        control.replication.lock().await.len_max = 1200;
        let asked = spawn_blocking(move || {
            let mut follower = follower;
            [follower.turn(NOW), follower.turn(NOW)].map(|(_, outcome)| outcome)
        });
        let [first, second] = asked.await.unwrap();
        assert!(matches!(first, Err(FollowError::Status { status: 507, .. })), "{first:?}");
        second.expect("it asks for keys alone");
        assert_eq!(control.metrics.snapshots_too_long.value(), 1);
        serving.abort();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_front_that_differences_do_not_reach_waits_after_a_whole_one_that_did_not_come() {
        let (_files, control, serving, follower) = following().await;
        let asked = spawn_blocking(move || {
            let mut follower = follower;
            (follower.turn(NOW).1, follower)
        });
        let (outcome, mut follower) = asked.await.unwrap();
        outcome.unwrap();
        let policy = Policy { copies: 5, versions_kept: 1, ..Policy::default() };
        control.set_policy(policy).await.unwrap();
        let mut replication = control.replication.lock().await;
        drop(std::mem::take(&mut *replication));
        replication.len_max = 1200;
        drop(replication);
        let asked = spawn_blocking(move || [(); 2].map(|()| follower.turn(NOW).1));
        let [first, second] = asked.await.unwrap();
        assert!(matches!(first, Err(FollowError::Status { status: 507, .. })), "{first:?}");
        second.expect("it does not ask for it");
        assert_eq!(control.metrics.snapshots_too_long.value(), 1);
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

    #[tokio::test(flavor = "multi_thread")]
    async fn the_keys_of_snapshots_that_are_gone_are_not_kept() {
        let (_files, control, serving, mut follower) = following().await;
        for copies in 3..6 {
            let policy = Policy { copies, versions_kept: 1, ..Policy::default() };
            control.set_policy(policy).await.unwrap();
            drop(std::mem::take(&mut *control.replication.lock().await));
            let (writer, state) = (follower.writer.clone(), follower.state.clone());
            let asked = spawn_blocking(move || {
                follower.turn(NOW).1.unwrap();
                Follower::open(writer, &state).unwrap().0
            });
            follower = asked.await.unwrap();
            assert_eq!(follower.kept_keys, control.signing.public());
        }
        serving.abort();
    }

    type Serving = JoinHandle<anyhow::Result<()>>;

    /// A writer, and one who follows it and has asked for nothing yet.
    async fn following()
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
