//! A front's side: what came of the writer takes effect here.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use director::following::Picture;
use director::{Director, Event};
use identity::member::{Member, Seen};
use model::id::Generation;
use model::machine::Machine;
use model::units::{Nanos, UnixSeconds};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::{Control, OpenError, Parts};
use crate::clock::Clock;
use crate::config::{Config, FrontConfig};
use crate::members::identities::Denied;
use crate::members::keys::Keys;
use crate::members::own::Own;
use crate::state::front::{ASK_EVERY, FollowError, Follower, Line, News, Telling};

/// A front's own part of the shared state.
pub(crate) struct Front {
    /// The writer's address, for people who ask a front for a change.
    pub(crate) writer: String,
    /// Taken by the task that follows the writer.
    follower: Option<Follower>,
    /// What is told the writer goes this way.
    line: Line,
    pub(crate) generation: Generation,
    /// When the writer answered last; the start, if it has not since.
    pub(crate) heard: UnixSeconds,
}

impl Control {
    /// Starts from what is in the state directory; asks the writer, as long as it takes, for what
    /// is not there.
    pub(super) async fn open_front(
        config: Config,
        front: &FrontConfig,
    ) -> Result<Arc<Self>, OpenError> {
        let clock = Clock::start();
        let (follower, news) = Follower::open(front.writer.0.clone(), config.folder())?;
        let wanted = Member::front(front.name.0.as_str());
        let found = follower.credentials().seen().member.clone();
        if found != wanted {
            return Err(OpenError::OtherIdentity { found, wanted });
        }
        let (follower, picture, keys) = complete(follower, news, &clock).await;
        let tls = follower.credentials().server_tls(false)?;
        let mut director = Director::replica(config.director(), clock.now());
        let Picture { generation, manifests, desired, .. } = picture;
        let desired = Box::new(desired);
        director.handle(clock.now(), Event::Replaced { desired, generation: manifests });
        let front = Front {
            writer: front.writer.0.to_string(),
            line: follower.line(),
            follower: Some(follower),
            generation,
            heard: clock.unix(),
        };
        tracing::info!(generation = generation.0, "following the writer");
        Self::assemble(Parts {
            front: Some(front),
            store: Own::none(),
            documents: None,
            shared: None,
            buckets: Own::none(),
            authority: Own::none(),
            signing: Own::none(),
            identities: crate::members::identities::Identities::default(),
            own_renew_at: UnixSeconds(u64::MAX),
            tokens: keys.api(),
            config,
            keys,
            tls,
            director,
            clock,
        })
    }

    /// Follows the writer until the process ends. The writer itself has nobody to follow.
    pub(crate) async fn follow(self: Arc<Self>) {
        let follower = self.with_front(|front| front.follower.take()).flatten();
        let Some(follower) = follower else { return };
        tokio::join!(self.ask(follower), self.tell());
    }

    async fn ask(&self, mut follower: Follower) {
        let mut said = None;
        loop {
            sleep(ASK_EVERY).await;
            let now = self.clock.unix();
            let turn = move || (follower.turn(now), follower);
            let ((news, outcome), back) = spawn_blocking(turn).await.expect("nothing in it panics");
            follower = back;
            say(&mut said, outcome.err());
            if news.credentials.is_some() {
                self.with_front(|front| front.line = follower.line());
            }
            self.take_news(news).await;
        }
    }

    /// Beside the asking: a writer that is slow to take counts delays no news.
    async fn tell(self: &Arc<Self>) {
        let mut telling = Telling::begin(self.clock.now());
        loop {
            sleep(ASK_EVERY).await;
            // After the rest, in which the identity may have been renewed.
            let Some(line) = self.with_front(|front| front.line.clone()) else { return };
            let control = self.clone();
            let turn = move || {
                let counted = || control.sheds.own(&control.snapshot().view);
                if !telling.turn(control.clock.now(), counted, &line) {
                    control.metrics.shed_reports_failed.count();
                }
                telling
            };
            telling = spawn_blocking(turn).await.expect("nothing in it panics");
        }
    }

    /// Whether a member's certificate is good at a front: the writer has said which are not.
    pub(super) fn front_admits(&self, seen: &Seen) -> Result<(), Denied> {
        if seen.not_after <= self.clock.unix() {
            return Err(Denied::Expired);
        }
        if self.snapshot().revoked.contains(&seen.serial) { Err(Denied::Revoked) } else { Ok(()) }
    }

    /// This process is a front.
    pub(crate) fn is_front(&self) -> bool {
        self.front.is_some()
    }

    /// What a front has of its own; none in the writer.
    pub(crate) fn with_front<T>(&self, work: impl FnOnce(&mut Front) -> T) -> Option<T> {
        let front = self.front.as_ref()?;
        Some(work(&mut front.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    async fn take_news(&self, news: News) {
        let News { heard, picture, keys, credentials } = news;
        let now = self.clock.unix();
        if heard {
            self.with_front(|front| front.heard = now);
        }
        // Keys first: whoever sees the new desired state should have them.
        if let Some(keys) = keys {
            self.access.replace(keys.api());
            *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
        }
        if let Some(Picture { generation, manifests, desired, issued }) = picture {
            let age = Nanos::seconds(now.0.saturating_sub(issued.0));
            tracing::info!(generation = generation.0, %age, "a newer snapshot is in force");
            let desired = Box::new(desired);
            self.handle(Event::Replaced { desired, generation: manifests }).await;
            self.with_front(|front| front.generation = generation);
        }
        if let Some(credentials) = credentials {
            match credentials.server_tls(false) {
                Ok(config) => self.fleet_tls.replace(config),
                Err(error) => tracing::error!(%error, "the new identity cannot be used"),
            }
        }
    }
}

/// Asks until there are a snapshot and keys: without them no player could be answered.
async fn complete(
    mut follower: Follower,
    mut news: News,
    clock: &Clock,
) -> (Follower, Picture, Keys) {
    let mut said = None;
    loop {
        if let News { picture: Some(picture), keys: Some(keys), .. } = news {
            return (follower, picture, keys);
        }
        let now = clock.unix();
        let turn = spawn_blocking(move || (follower.turn(now), follower)).await;
        let ((next, outcome), back) = turn.expect("nothing in it panics");
        follower = back;
        say(&mut said, outcome.err());
        news.picture = next.picture.or(news.picture);
        news.keys = next.keys.or(news.keys);
        if news.picture.is_none() || news.keys.is_none() {
            sleep(FIRST_EVERY).await;
        }
    }
}

/// Logs each state once.
fn say(said: &mut Option<String>, error: Option<FollowError>) {
    match error.map(|error| error.to_string()) {
        None => {
            if said.take().is_some() {
                tracing::info!("the writer answers again, and what it says is kept");
            }
        }
        Some(text) => {
            if said.as_ref() != Some(&text) {
                tracing::warn!(error = text, "players are answered from what is known");
                *said = Some(text);
            }
        }
    }
}

/// How often a front that knows nothing yet asks.
const FIRST_EVERY: Duration = Duration::from_millis(500);
