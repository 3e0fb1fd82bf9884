//! The requests of a front.

use std::io::Read;
use std::time::{Duration, Instant};

use director::following::Asks;
use identity::credentials::Credentials;
use identity::enrol;
use identity::signing::VerifyError;
use wire::v1::replica as wire_replica;

use super::{FollowError, Follower, News, is_of_differences};
use crate::members::keys::Keys;
use crate::state::replica::{SNAPSHOT_LEN_MAX, SnapshotError};

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
    pub(super) fn renew_if(&mut self, due: bool, news: &mut News) -> Result<(), FollowError> {
        if due && let Some(credentials) = self.renew()? {
            news.credentials = Some(credentials);
        }
        Ok(())
    }

    pub(super) fn ask(&mut self, news: &mut News) -> Result<(), FollowError> {
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
                return FollowError::Late { address, within: self.begin_max };
            }
            FollowError::Unreachable { address, error: error.to_string() }
        };
        let url = format!("{}{path}", enrol::control_url(&self.writer));
        let request = self.agent.get(&url).config().timeout_global(Some(ANSWER_MAX));
        let request = request.timeout_recv_response(Some(self.begin_max)).build();
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

const SNAPSHOT: &str = "/v1/replica/snapshot";

/// No set of keys is longer.
const KEYS_LEN_MAX: u64 = 1 << 20;

/// Longest time for one answer: a large snapshot takes some seconds.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// Until an answer begins: a large snapshot is signed first. A writer that was stopped is waited
/// for no longer, since there may be another.
pub(super) const BEGIN_MAX: Duration = Duration::from_secs(10);

/// Keys come with every snapshot, and so often without.
const KEYS_EVERY: Duration = Duration::from_secs(60);

/// Least time between two renewals.
const RENEW_EVERY: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::front::tests::{NOW, following};
    use director::following::Picture;
    use director::{Desired, Policy};
    use model::id::Generation;
    use model::units::UnixSeconds;
    use tokio::task::spawn_blocking;

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
    async fn a_front_waits_after_a_whole_one_that_the_writer_has_not_made_in_time() {
        let (_files, control, serving, mut follower) = following().await;
        let making = control.making_whole.lock().await;
        // It is the second's bound, too.
        follower.begin_max = Duration::from_secs(3);
        let asked = spawn_blocking(move || {
            let outcomes = [(); 2].map(|()| follower.turn(NOW).1);
            (outcomes, follower)
        });
        let ([first, second], follower) = asked.await.unwrap();
        assert!(matches!(first, Err(FollowError::Late { .. })), "{first:?}");
        second.expect("it asks for keys alone");
        drop(making);
        assert_eq!(follower.following.known(), Generation(0));
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
}
