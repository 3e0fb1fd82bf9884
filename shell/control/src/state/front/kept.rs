//! What came of the writer, on disk.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use director::following::{Picture, Run};
use identity::secret_file;
use model::id::Generation;
use model::manifest::TokenKey;
use model::units::Bytes;
use wire::convert::{token_key_in, token_key_out};

use super::{FollowError, Follower, envelopes, is_of_differences, open_next};
use crate::state::replica::{self, SNAPSHOT_LEN_MAX, SnapshotError};

/// What the files have, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Kept {
    pub(super) whole: u64,
    differences: u64,
}

/// News that could not be stored wait here: a full disk does not delay a revocation.
#[derive(Default)]
pub(super) struct Unsaved {
    /// In place of what is on disk.
    pub(super) whole: Option<Vec<u8>>,
    /// They signed that, with those that the states before name.
    keys: Vec<TokenKey>,
    /// Behind that.
    differences: Vec<u8>,
    /// The last attempt to store it, and its error.
    failed: Option<(Instant, String)>,
}

impl Follower {
    /// What was opened is to be kept.
    pub(super) fn remember(&mut self, bytes: Vec<u8>) {
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
    pub(super) fn keep(&mut self) -> Result<(), FollowError> {
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
    pub(super) fn read_differences(&mut self, mut picture: Picture) -> Picture {
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

    /// The one on disk: also by the keys that it was signed with.
    pub(super) fn open_kept(&mut self, bytes: &[u8]) -> Result<Picture, SnapshotError> {
        let keys = [self.signing_keys.as_slice(), &self.kept_keys].concat();
        let picture = replica::open(&keys, Generation(0), bytes)?;
        self.following.came_whole();
        Ok(self.believe(picture))
    }
}

pub(super) fn load(path: &Path) -> io::Result<Option<Vec<u8>>> {
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
pub(super) fn load_keys(state: &Path) -> Vec<TokenKey> {
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

pub(super) fn len_of(bytes: &[u8]) -> u64 {
    Bytes::of(bytes.len()).0
}

/// A whole snapshot in its envelope, as it came.
pub(super) const SNAPSHOT_FILE: &str = "snapshot.signed";

/// Keys that both files may be signed with, a JSON list: as good a secret as the identity beside
/// them, which names those that are good today.
const KEYS_FILE: &str = "snapshot-keys.json";

/// The differences since, as they came.
pub(super) const DIFFERENCES_FILE: &str = "differences.signed";

/// With more differences than that on disk, and more than the snapshot is long, a whole one is
/// asked for.
const DIFFERENCES_MIN: u64 = 1 << 20;

/// A snapshot that could not be kept is tried again after this: it may be a gigabyte.
const SAVE_EVERY: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::front::tests::{NOW, following};
    use director::Policy;
    use model::units::UnixSeconds;
    use std::fs;
    use tokio::task::spawn_blocking;

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
}
