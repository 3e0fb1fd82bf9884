//! The process's shared state, and the one place where desired state changes.
//!
//! One change at a time: first the database, then the director, then what the director wants
//! stored, then the snapshot that fronts answer from. A change that could not be stored never
//! reaches the director.

mod changes;
mod documents;
mod following;
mod membership;
mod playbacks;
mod replication;
mod token_keys;
pub(crate) mod withdrawals;

pub(crate) use membership::MembershipError;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use axum::body;
use director::{Action, Cause, Change, Director, Event, Notice, PlanInput, Snapshot};
use identity::authority::Authority;
use identity::credentials::CredentialsError;
use identity::member::Member;
use identity::secret_file::SecretError;
use model::id::{ApplianceId, Generation};
use model::machine::Machine;
use model::manifest::Manifest;
use model::units::{Bytes, UnixSeconds};
use model::view::Health;
use steering::turns::Turns;
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, spawn_blocking};
use wire::v1::report::Report;
use wire::v1::signed::Kind;
use wire::v1::viewers::Networks;

use crate::buckets::{BucketError, Buckets};
use crate::clock::Clock;
use crate::config::Config;
use crate::connections::attempts::Attempts;
use crate::connections::certificate::{Certificate, CertificateError};
use crate::connections::listener::Tls;
use crate::members::access::{self, Access, Known, Token};
use crate::members::authority::{self, OwnError, Signing};
use crate::members::identities::Identities;
use crate::members::keys::Keys;
use crate::members::own::Own;
use crate::members::tickets::TicketKeys;
use crate::metrics::{DoorCounters, Metrics};
use crate::place;
use crate::state::convert::{self, Refused};
use crate::state::decisions::Decisions;
use crate::state::directing::{Busy, Directing, Reported};
use crate::state::documents::{DocumentError, Documents};
use crate::state::front::FollowError;
use crate::state::issue::{self, TokenError};
use crate::state::lease::{self, Leading};
use crate::state::manifests::Manifests;
use crate::state::probe;
use crate::state::sheds::Sheds;
use crate::state::store::{Store, StoreError};
use crate::state::vault::{self, Vault, VaultError};
use crate::state::viewers::Viewers;
pub(crate) use changes::ChangeError;
use changes::{SITES_MAX, VERSIONS_MAX, room_for};
pub(crate) use following::Front;
use replication::Replication;
pub(crate) use replication::{ReplicaError, Wanted};
pub(crate) use withdrawals::said as said_of_withdrawal;

/// The state that all requests share.
pub struct Control {
    pub config: Config,
    /// Secrets. A front gets new ones while it runs.
    keys: RwLock<Arc<Keys>>,
    /// None in the writer.
    front: Option<Mutex<Front>>,
    pub(crate) access: Access,
    /// Of the listener for operators and players; none without TLS.
    pub(crate) certificate: Option<Certificate>,
    pub(crate) authority: Own<Authority>,
    /// Signs manifests and snapshots.
    pub(crate) signing: Own<Signing>,
    pub(crate) fleet_tls: Tls,
    /// Attempts to enrol that failed.
    pub(crate) attempts: Mutex<Attempts>,
    pub(crate) store: Own<Store>,
    /// None where they are in the database, and in a front.
    pub(crate) documents: Option<Documents>,
    /// This writer's lease of the database and the secrets in it; none where there is one writer.
    pub(crate) shared: Option<Shared>,
    pub(crate) buckets: Own<Buckets>,
    /// Of the session tickets of appliances; in memory only.
    pub(crate) ticket_keys: TicketKeys,
    pub(crate) clock: Clock,
    /// Of players that steering is answered to; held for O(1).
    pub(crate) turns: Mutex<Turns>,
    pub(crate) viewers: Viewers,
    pub(crate) sheds: Sheds,
    /// Has a thread of its own.
    pub(crate) decisions: Arc<Decisions>,
    pub(crate) metrics: Metrics,
    pub(crate) doors: Arc<DoorCounters>,
    pub(crate) requests: Arc<Semaphore>,
    pub(crate) fleet_requests: Arc<Semaphore>,
    pub(crate) probes: Arc<Semaphore>,
    /// Room for reports that are being read.
    pub(crate) report_room: Arc<Semaphore>,
    /// Observed state is on a thread of its own.
    pub(crate) directing: Directing,
    identities: Mutex<Identities>,
    own_renew_at: Mutex<UnixSeconds>,
    pub(crate) manifests: Manifests,
    /// The newest whole manifest of each appliance that asks for one, as it was signed, with its
    /// generation.
    signed: Mutex<BTreeMap<ApplianceId, Arc<Mutex<SignedManifest>>>>,
    /// The last snapshot that fronts were given; `replica_is_old` once something has changed.
    pub(crate) replication: tokio::sync::Mutex<Replication>,
    replica_is_old: AtomicBool,
    /// Who holds it makes a whole one for fronts.
    making_whole: tokio::sync::Mutex<()>,
    /// Since when no front could be given a whole snapshot; 0 while it fits.
    whole_too_long: AtomicU64,
    writing: tokio::sync::Mutex<()>,
}

/// The last batch of what viewers felt that was taken, and networks that an appliance should know.
type Felt = (u64, Option<Networks>);

/// A manifest as it was signed, with its generation; none before the first.
type SignedManifest = Option<(Generation, body::Bytes)>;

/// What a writer has to do with another one.
pub(crate) struct Shared {
    leading: Arc<Leading>,
    epoch: u64,
    vault: Vault,
}

/// The parts that differ between a writer and a front.
struct Parts {
    front: Option<Front>,
    store: Own<Store>,
    documents: Option<Documents>,
    shared: Option<Shared>,
    buckets: Own<Buckets>,
    authority: Own<Authority>,
    signing: Own<Signing>,
    identities: Identities,
    own_renew_at: UnixSeconds,
    tokens: Vec<Known>,
    config: Config,
    keys: Keys,
    tls: rustls::ServerConfig,
    director: Director,
    clock: Clock,
}

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

/// Why the process cannot start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("state directory {path}: {error}")]
    State { path: std::path::PathBuf, error: std::io::Error },
    #[error("the director's thread does not begin: {0}")]
    Thread(std::io::Error),
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error("control's own certificate: {0}")]
    Own(#[from] OwnError),
    #[error(transparent)]
    Follow(#[from] FollowError),
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    #[error(
        "the identity in the state directory is that of {found}, and this is {wanted}: change \
             [front] name, or enrol again"
    )]
    OtherIdentity { found: Member, wanted: Member },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Vault(#[from] VaultError),
    #[error(transparent)]
    Bucket(#[from] BucketError),
    #[error(transparent)]
    Document(#[from] DocumentError),
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error(
        "[serve] listen {0} can be reached from other machines, and there is no token with the \
         role admin: nearcast-control token --config FILE --role admin --name NAME makes one"
    )]
    NoAdmin(std::net::SocketAddr),
}

impl OpenError {
    /// Whether another writer leads, so that this one may stand by again.
    pub(crate) fn is_deposed(&self) -> bool {
        matches!(
            self,
            Self::Store(StoreError::Deposed { .. })
                | Self::Vault(VaultError::Store(StoreError::Deposed { .. }))
                | Self::Document(DocumentError::Store(StoreError::Deposed { .. }))
        )
    }
}

impl Control {
    /// Opens the state directory and starts from what is durable there; where another writer leads,
    /// once it does no more.
    pub async fn open(config: Config) -> Result<Arc<Self>, OpenError> {
        let fault = |error| OpenError::State { path: config.folder().to_owned(), error };
        std::fs::create_dir_all(config.folder()).map_err(fault)?;
        if let Some(front) = config.front().cloned() {
            return Self::open_front(config, &front).await;
        }
        match Self::stand_by(&config).await? {
            None => Self::open_writer(config, None).await,
            Some(leading) => {
                let epoch = lease::led(&mut leading.standing()).await;
                Self::open_writer(config, Some((leading, epoch))).await
            }
        }
    }

    /// Asks for the lease from now on, with the secrets that a leader will need. None where there
    /// is one writer.
    pub(crate) async fn stand_by(config: &Config) -> Result<Option<Arc<Leading>>, OpenError> {
        if let place::Place::Folder(_) = config.state.0 {
            return Ok(None);
        }
        let fault = |error| OpenError::State { path: config.folder().to_owned(), error };
        std::fs::create_dir_all(config.folder()).map_err(fault)?;
        // What is wrong with them is found out now, and not when the other writer is gone.
        Buckets::open(&config.s3)?;
        Documents::open(config.documents_place(), &config.s3)?;
        let store = Store::connect(&config.state.0).await?;
        let vault = Vault::open(&store, config.folder(), false).await;
        store.close().await;
        vault?;
        let address = config
            .serve
            .public_url
            .as_ref()
            .map_or_else(|| format!("at {}", config.serve.listen), |url| url.0.as_str().to_owned());
        Ok(Leading::begin(&config.state.0, &address).await?.map(Arc::new))
    }

    /// Whether the secrets of the writer that leads are kept and open here, and the documents are
    /// those that it has; an error if that will never be.
    pub(crate) async fn could_lead(config: &Config) -> Result<bool, OpenError> {
        let store = match Store::connect(&config.state.0).await {
            Ok(store) => store,
            Err(StoreError::Database(_)) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let opened = async {
            let vault = Vault::open(&store, config.folder(), false).await?;
            let documents = Documents::open(config.documents_place(), &config.s3)?;
            Ok(vault.is_some() && Documents::fits(documents.as_ref(), &store).await?)
        };
        let opened = opened.await;
        store.close().await;
        match opened {
            Err(
                OpenError::Vault(VaultError::Store(StoreError::Database(_)))
                | OpenError::Document(DocumentError::Store(StoreError::Database(_))),
            ) => Ok(false),
            opened => opened,
        }
    }

    /// Starts as the writer that leads with this epoch.
    pub(crate) async fn open_writer(
        config: Config,
        lease: Option<(Arc<Leading>, u64)>,
    ) -> Result<Arc<Self>, OpenError> {
        let clock = Clock::start();
        let epoch = lease.as_ref().map(|(_, epoch)| *epoch);
        let store = Store::open_leading(&config.state.0, epoch).await?;
        let shared = match lease {
            None => None,
            Some((leading, epoch)) => {
                let vault = Vault::open(&store, config.folder(), true).await?;
                vault.map(|vault| Shared { leading, epoch, vault })
            }
        };
        let keys = Keys::open(config.folder())?;
        let authority = authority::open(config.folder(), clock.unix())?;
        let signing = Signing::open(config.folder())?;
        let buckets = Buckets::open(&config.s3)?;
        let documents = Documents::open(config.documents_place(), &config.s3)?;
        Documents::look(documents.as_ref(), &store).await?;
        if let Some(shared) = &shared {
            shared.vault.keep(&store, config.folder()).await?;
        }
        let tokens = store.tokens().await?;
        let is_local = config.serve.listen.ip().is_loopback();
        if !is_local && tokens.iter().all(|token| token.role != access::Role::Admin) {
            return Err(OpenError::NoAdmin(config.serve.listen));
        }
        if tokens.is_empty() {
            tracing::warn!(
                "there is no API token: everybody on this machine is admin; nearcast-control \
                 token makes the first one"
            );
        }
        let identities = Identities::new(store.certificates().await?, store.codes().await?);
        let mut desired = store.desired().await?;
        desired.token_keys = keys.public();
        desired.token_rotation = keys.rotation();
        desired.signing_keys = signing.public();
        desired.revoked = Arc::new(identities.revoked(clock.unix()));
        let lifetime_s = config.fleet.certificate_lifetime.0.as_seconds();
        let (tls, renew_at) = membership::own_tls(&authority, clock.unix(), lifetime_s)?;
        let ledger = store.ledger().await?;
        let director = Director::new(config.director(), desired, ledger, clock.now(), clock.unix());
        for problem in buckets.unknown(&director.desired().catalog) {
            tracing::error!("appliances cannot fill from here: {problem}");
        }
        let control = Self::assemble(Parts {
            front: None,
            store: Own::of(store),
            documents,
            shared,
            buckets: Own::of(buckets),
            authority: Own::of(authority),
            signing: Own::of(signing),
            identities,
            own_renew_at: renew_at,
            tokens,
            config,
            keys,
            tls,
            director,
            clock,
        })?;
        let writing = control.writing.lock().await;
        control.carry_out().await;
        drop(writing);
        Ok(control)
    }

    fn assemble(parts: Parts) -> Result<Arc<Self>, OpenError> {
        let Parts { config, director, .. } = parts;
        let doors = Arc::new(DoorCounters::default());
        let certificate = config.certificate();
        let open = |files| Certificate::open(files, doors.clone());
        let certificate = certificate.map(open).transpose()?;
        Ok(Arc::new(Self {
            access: Access::new(parts.tokens, config.serve.listen.ip().is_loopback()),
            certificate,
            requests: Arc::new(Semaphore::new(config.serve.requests_max)),
            fleet_requests: Arc::new(Semaphore::new(config.serve.requests_max)),
            fleet_tls: Tls::new(parts.tls, doors.clone()),
            attempts: Mutex::default(),
            identities: Mutex::new(parts.identities),
            own_renew_at: Mutex::new(parts.own_renew_at),
            manifests: Manifests::new(),
            signed: Mutex::default(),
            authority: parts.authority,
            signing: parts.signing,
            front: parts.front.map(Mutex::new),
            keys: RwLock::new(Arc::new(parts.keys)),
            replication: tokio::sync::Mutex::default(),
            replica_is_old: AtomicBool::new(true),
            making_whole: tokio::sync::Mutex::default(),
            whole_too_long: AtomicU64::new(0),
            report_room: Arc::new(Semaphore::new(REPORT_UNITS)),
            probes: Arc::new(Semaphore::new(PROBES_MAX)),
            directing: Directing::begin(director, parts.clock).map_err(OpenError::Thread)?,
            writing: tokio::sync::Mutex::new(()),
            turns: Mutex::default(),
            viewers: Viewers::new(SITES_MAX),
            sheds: Sheds::default(),
            decisions: Arc::new(Decisions::open(&config, config.lists(), parts.clock)?),
            metrics: Metrics::default(),
            doors,
            config,
            store: parts.store,
            documents: parts.documents,
            shared: parts.shared,
            buckets: parts.buckets,
            ticket_keys: TicketKeys::default(),
            clock: parts.clock,
        }))
    }

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

    /// What is known of the lease; none where there is one writer.
    pub(crate) fn standing(&self) -> Option<lease::Standing> {
        self.shared.as_ref().map(|shared| shared.leading.standing().borrow().clone())
    }

    /// Waits until another may write: for ever, where there is no other.
    pub(crate) async fn deposed(&self) {
        match &self.shared {
            Some(Shared { leading, epoch, .. }) => {
                lease::lost(&mut leading.standing(), *epoch).await
            }
            None => std::future::pending().await,
        }
    }

    /// Secrets that have changed, and are in their files, are what the next writer has.
    async fn keep_secrets(&self) -> Result<(), SecretError> {
        let Some(shared) = &self.shared else { return Ok(()) };
        let kept = shared.vault.keep(&self.store, self.config.folder()).await;
        kept.map_err(vault::not_kept)
    }

    /// The secrets that playbacks begin with.
    pub(crate) fn keys(&self) -> Arc<Keys> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What fronts answer from.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.directing.snapshot()
    }

    /// Reads a report, and takes what viewers felt. What is left is for the director.
    pub(crate) fn read_report(
        &self,
        appliance: ApplianceId,
        wire: Report,
    ) -> Result<(Box<Reported>, Felt), Refused> {
        let viewers = self.viewers_of(&appliance, &wire);
        let said = convert::report_in(&wire)?;
        let shown = Arc::new(convert::shown(wire));
        Ok((Box::new(Reported { appliance, said, shown }), viewers))
    }

    /// The last batch of what its viewers felt that has come, and networks that it does not know.
    /// Of an appliance that is not registered nothing is taken.
    fn viewers_of(&self, id: &ApplianceId, wire: &Report) -> Felt {
        let snapshot = self.snapshot();
        let (now, of) = (self.clock.now(), (id, wire.start_id));
        let taken = self.viewers.take_batch(now, of, wire.viewers.as_ref(), &snapshot);
        if taken.is_cut {
            self.metrics.viewer_batches_cut.count();
        }
        (taken.number, self.viewers.networks(wire.networks, &snapshot.sites))
    }

    /// The newest manifest of an appliance in its envelope, if it is newer than `known`. A short
    /// one is signed for each who asks. The bytes of a whole one are signed once for a generation,
    /// which may be tens of megabytes: nobody waits for it but who asks for the same.
    pub(crate) async fn signed_manifest(
        self: &Arc<Self>,
        id: ApplianceId,
        known: Generation,
        is_short: bool,
    ) -> Result<Result<Option<body::Bytes>, director::NotRegistered>, Busy> {
        let asked = id.clone();
        let manifest = self.directing.ask(move |desk, _| desk.director.manifest(&asked)).await?;
        let manifest = match manifest {
            Ok(Some(manifest)) if known < manifest.generation => manifest,
            Ok(_) => return Ok(Ok(None)),
            Err(error) => return Ok(Err(error)),
        };
        let control = Arc::clone(self);
        let signed = spawn_blocking(move || match is_short {
            true => control.sign(control.manifests.short(&manifest)),
            false => control.sign_whole(&id, &manifest),
        });
        Ok(Ok(Some(signed.await.expect("nothing in it panics"))))
    }

    fn sign_whole(&self, id: &ApplianceId, manifest: &Manifest) -> body::Bytes {
        let place = {
            let mut all = self.signed.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(all.entry(id.clone()).or_default())
        };
        let mut kept = place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((generation, bytes)) = &*kept
            && *generation == manifest.generation
        {
            return bytes.clone();
        }
        let bytes = self.sign(wire::convert::manifest_out(manifest));
        *kept = Some((manifest.generation, bytes.clone()));
        drop(kept);
        // It may be gone by now. If it goes later, this goes with it.
        if !self.is_registered(id) {
            self.forget_signed(id);
        }
        bytes
    }

    fn sign(&self, mut manifest: wire::v1::manifest::Manifest) -> body::Bytes {
        manifest.issued_unix_s = self.clock.unix().0;
        let payload = serde_json::to_vec(&manifest).expect("a manifest always becomes JSON");
        self.metrics.manifests_signed.count();
        body::Bytes::from(self.signing.sign(Kind::Manifest, &payload))
    }

    /// An appliance is gone.
    fn forget_signed(&self, id: &ApplianceId) {
        self.signed.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    /// Does what the director wants, unless a change is being written: who writes it does when
    /// done.
    pub(crate) async fn write_what_is_due(self: &Arc<Self>) {
        if let Ok(_writing) = self.writing.try_lock() {
            self.carry_out().await;
        }
    }

    /// Reads tokens anew, which the command line may have made, and stores when they were used;
    /// and the certificate, if it has changed.
    pub(crate) async fn refresh_access(&self) {
        if let Some(certificate) = &self.certificate {
            certificate.refresh(false);
        }
        // A front has its tokens of the writer.
        if self.store.as_ref().is_none() {
            return;
        }
        let refreshed = async {
            for (id, at) in self.access.take_used() {
                self.store.put_used(&id, at).await?;
            }
            let _writing = self.writing.lock().await;
            self.access.replace(self.store.tokens().await?);
            Ok(())
        };
        if let Err(error) = refreshed.await {
            self.store_failed(&error);
        }
    }

    pub(crate) async fn make_token(
        &self,
        name: &str,
        role: access::Role,
    ) -> Result<(Token, Known), TokenError> {
        let _writing = self.writing.lock().await;
        let made = issue::issue(&self.store, name, role, self.clock.unix()).await?;
        self.access.replace(self.store.tokens().await?);
        Ok(made)
    }

    /// Removes a token; none if there is none.
    pub(crate) async fn delete_token(&self, id: &str) -> Result<Option<Known>, TokenError> {
        let _writing = self.writing.lock().await;
        let tokens = self.store.tokens().await?;
        let Some(token) = tokens.iter().find(|token| token.id == id) else { return Ok(None) };
        let admins = tokens.iter().filter(|token| token.role == access::Role::Admin);
        if token.role == access::Role::Admin && admins.count() == 1 {
            return Err(TokenError::LastAdmin);
        }
        self.store.delete_token(id).await?;
        self.access.replace(self.store.tokens().await?);
        Ok(Some(token.clone()))
    }

    /// Lets the director take a fact.
    pub(crate) async fn handle(&self, event: Event<'static>) {
        self.directing.tell(event).await;
    }

    /// Does what the director wants until it wants nothing. The caller holds the writer's lock.
    async fn carry_out(self: &Arc<Self>) {
        loop {
            let next = self.directing.ask_in_turn(|desk, _| desk.director.poll()).await;
            let Some(action) = next else { return };
            if let Err(error) = self.perform(action).await {
                self.store_failed(&error);
            }
        }
    }

    async fn perform(self: &Arc<Self>, action: Action) -> Result<(), StoreError> {
        match action {
            Action::Place(input) => {
                // Of a small fleet it is there at once, and so for whoever asks next.
                let placing = self.place(input);
                let _ = tokio::time::timeout(PLAN_AWAITED, placing).await;
            }
            // Threads that may block have time for it.
            Action::Free(spent) => drop(spawn_blocking(move || drop(spent))),
            Action::Store(ledger) => {
                self.store.put_ledger(&ledger).await?;
                tracing::info!(generation = ledger.generation.0, "manifests published");
                self.handle(Event::Stored(ledger.generation)).await;
            }
            Action::StoreUsable { appliance, usable } => {
                self.store.put_usable(&appliance, usable).await?;
                self.handle(Event::UsableStored(appliance, usable)).await;
            }
            Action::StoreHardware { appliance, hardware } => {
                self.store.put_hardware(&appliance, &hardware).await?;
            }
            Action::StoreCloned(appliance) => {
                self.replica_is_old.store(true, Ordering::SeqCst);
                self.store.put_cloned(&appliance, true).await?;
            }
            Action::WithdrawEnded(versions) => self.withdraw_ended(versions).await?,
            Action::RemoveSuperseded(versions) => self.remove_superseded(versions).await?,
            Action::StoreReceipt { withdrawal, appliance, receipt } => {
                self.store.put_receipt(withdrawal, &appliance, receipt).await?;
                self.metrics.receipts.count();
                tracing::info!(withdrawal, %appliance, "it refuses what was withdrawn");
            }
            Action::ForgetWithdrawals(ids) => {
                tracing::warn!(
                    "too many withdrawals to list them all: the oldest go from the list"
                );
                self.store.delete_withdrawals(&ids).await?;
            }
            Action::UseNextSigningKey => self.use_next_signing_key().await,
            Action::UseNextTokenKey => self.use_next_token_key().await,
            Action::DropOldTokenKeys => self.drop_old_token_keys().await,
            Action::Probe { appliance, base_url } => {
                let control = Arc::clone(self);
                probe::probe(&self.probes, &base_url, |answered| async move {
                    control.handle(Event::Probed { appliance, answered }).await;
                });
            }
            Action::Tell(notice) => tell(&notice),
        }
        Ok(())
    }

    /// Works a plan out, on a thread of its own. What follows of it is done by whoever may write.
    fn place(self: &Arc<Self>, input: Box<PlanInput>) -> JoinHandle<()> {
        let control = Arc::clone(self);
        tokio::spawn(async move {
            let plan = spawn_blocking(move || Box::new(input.work_out()));
            control.handle(Event::Placed(plan.await.expect("nothing in it panics"))).await;
            control.write_what_is_due().await;
        })
    }

    async fn changed(self: &Arc<Self>, change: Change) {
        self.handle(Event::Changed(change)).await;
        self.replica_is_old.store(true, Ordering::SeqCst);
        self.carry_out().await;
    }

    pub(crate) fn store_failed(&self, error: &StoreError) {
        // That another leads is no fault; who holds the lease has said it.
        if let StoreError::Deposed { .. } = error {
            return;
        }
        self.metrics.store_errors.count();
        match self.config.state.0 {
            place::Place::Folder(_) => {
                tracing::error!(%error, "cannot write to the state directory: is the disk full?");
            }
            place::Place::Postgres(_) => {
                tracing::error!(%error, "cannot write to the database: does its server answer?");
            }
        }
    }
}

fn tell(notice: &Notice) {
    let is_well = matches!(notice.health, Health::Healthy | Health::Draining | Health::Drained);
    let of_identity = matches!(notice.cause, Cause::Moved(_) | Cause::Superseded | Cause::Revoked);
    if is_well && !of_identity {
        tracing::info!(appliance = %notice.appliance, "{}", notice.text);
    } else {
        tracing::warn!(appliance = %notice.appliance, "{}", notice.text);
    }
}

/// Where an appliance may fetch one object from: with siblings, eight URLs, as the wire allows.
pub(crate) const ORIGINS_MAX: usize = 4;

/// Largest report: a full list of objects.
pub(crate) const REPORT_LEN_MAX: Bytes = Bytes::mib(64);
/// Room for reports is counted in these.
pub(crate) const REPORT_UNIT: Bytes = Bytes::kib(4);
/// Reports that are on their way at a time take so many units, 128 MiB; in memory, while they are
/// read, about four times that.
const REPORT_UNITS: usize = 32 << 10;
/// A change waits for its plan for so long, and no other change is written meanwhile.
const PLAN_AWAITED: Duration = Duration::from_secs(1);
/// Connection attempts at a time.
const PROBES_MAX: usize = 64;
/// How long a change that is being written may take until the process ends: a large ingest has time
/// to be stored. Less where the lease is lost meanwhile, as it is where the database is silent.
const CHANGE_WITHIN: Duration = Duration::from_secs(10);
/// How long connections to the database may take to close. What is under way then, SQLite undoes at
/// the next start; a server ends it, or refuses it once another leads.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);
/// Largest ingest.
pub(crate) const INGEST_LEN_MAX: Bytes = Bytes::mib(64);

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::state::directing::Desk;
    use director::Policy;
    use model::topology::{Appliance, Site, Weight};
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpStream;

    #[tokio::test]
    async fn a_generation_that_cannot_be_stored_is_seen_by_nobody_until_it_can() {
        let (_directory, control) = open("").await;
        let a1: ApplianceId = "a1".parse().unwrap();
        control.set_site(Site::new("s1".parse().unwrap(), vec![])).await.unwrap();
        control.store.hide_meta(true).await;
        let site = "s1".parse().unwrap();
        let appliance = Appliance::new(a1.clone(), site, Weight::ONE);
        control.set_appliance(appliance).await.unwrap();
        let manifest = async || {
            let a1 = a1.clone();
            let asked = move |desk: &mut Desk, _| desk.director.manifest(&a1).unwrap();
            control.directing.ask_in_turn(asked).await
        };
        until(&control, async || control.metrics.store_errors.value() == 1).await;
        assert_eq!(manifest().await, None);

        control.store.hide_meta(false).await;
        until(&control, async || manifest().await.is_some()).await;
        let generation = manifest().await.expect("it is published").generation;
        assert!(control.clock.unix().0 - 60 < generation.0, "{generation:?}");
    }

    #[tokio::test]
    async fn a_change_that_cannot_be_written_changes_nothing() {
        let (_directory, control) = open("").await;
        control.store.hide_meta(true).await;
        let policy = Policy { copies: 5, versions_kept: 1, ..Policy::default() };
        assert!(matches!(control.set_policy(policy).await, Err(ChangeError::Store(_))));
        assert_eq!(control.snapshot().policy, Policy::default());
    }

    #[tokio::test]
    async fn time_passes_while_a_change_is_being_written() {
        let (_directory, control) = open("").await;
        let writing = control.writing.lock().await;
        let read = || control.directing.reads_at();
        let passed = async {
            // The first sign may come before anything waits.
            for _ in 0..3 {
                let before = read();
                while read() == before {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        };
        tokio::select! {
            () = crate::state::tick::run(control.clone()) => unreachable!("it runs for ever"),
            in_time = tokio::time::timeout(Duration::from_secs(10), passed) => {
                in_time.expect("this process goes on saying that it reads");
            }
        }
        drop(writing);
    }

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

    #[tokio::test]
    async fn an_appliance_whose_identity_could_not_be_revoked_can_be_removed_again() {
        let (_directory, control) = open("").await;
        let a1: ApplianceId = "a1".parse().unwrap();
        control.set_site(Site::new("s1".parse().unwrap(), vec![])).await.unwrap();
        let site = "s1".parse().unwrap();
        let appliance = Appliance::new(a1.clone(), site, Weight::ONE);
        control.set_appliance(appliance).await.unwrap();
        control.store.hide_identities(true).await;
        assert!(matches!(control.delete_appliance(&a1).await, Err(ChangeError::Store(_))));
        control.store.hide_identities(false).await;
        assert!(control.delete_appliance(&a1).await.unwrap(), "and its identity with it");
        assert!(!control.delete_appliance(&a1).await.unwrap());
    }

    #[tokio::test]
    async fn no_signed_manifest_is_kept_of_an_appliance_that_is_gone() {
        let (_directory, control) = open("").await;
        let a1 = crate::state::directing::tests::registered(&control).await;
        let asked = a1.clone();
        let manifest = move |desk: &mut Desk, _| desk.director.manifest(&asked).unwrap();
        let manifest = control.directing.ask_in_turn(manifest).await.expect("it is published");
        let kept = || control.signed.lock().unwrap().len();
        control.sign_whole(&a1, &manifest);
        assert_eq!(kept(), 1);
        control.delete_appliance(&a1).await.unwrap();
        assert_eq!(kept(), 0);
        control.sign_whole(&a1, &manifest);
        assert_eq!(kept(), 0, "it was asked for before");
    }

    #[tokio::test]
    async fn a_change_goes_on_to_its_end_though_its_client_has_left() {
        let (_directory, control) = open("").await;
        let (address, listeners) = crate::serve::tests::listeners().await;
        let serving = crate::serve::serve(control.clone(), listeners, std::future::pending());
        let serving = tokio::spawn(serving);
        let writing = control.writing.lock().await;
        let mut client = TcpStream::connect(address).await.unwrap();
        let body = "{\"prefixes\":[]}";
        let head = format!("PUT /v1/sites/s1 HTTP/1.1\r\nHost: {address}\r\nContent-Type: ");
        let head = format!("{head}application/json\r\nContent-Length: {}\r\n\r\n", body.len());
        client.write_all((head + body).as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        drop(client);
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(control.snapshot().sites.is_empty(), "it waits for its turn");
        drop(writing);
        let written = async {
            while control.snapshot().sites.is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(5), written).await.expect("it is carried out");
        serving.abort();
    }

    impl Control {
        /// What is done by the clock hangs for as long as this is held.
        pub(crate) fn hang(&self) -> std::sync::MutexGuard<'_, UnixSeconds> {
            self.own_renew_at.lock().unwrap()
        }

        pub(crate) async fn set_site(self: &Arc<Self>, site: Site) -> Result<(), ChangeError> {
            let id = site.id.clone();
            self.put_site(&id, |_| Ok(site)).await.map(drop)
        }

        pub(crate) async fn set_appliance(
            self: &Arc<Self>,
            appliance: Appliance,
        ) -> Result<(), ChangeError> {
            let id = appliance.id.clone();
            self.put_appliance(&id, |_| Ok(appliance)).await.map(drop)
        }

        pub(crate) async fn set_policy(
            self: &Arc<Self>,
            policy: Policy,
        ) -> Result<(), ChangeError> {
            self.put_policy(|_| Ok(policy)).await.map(drop)
        }
    }

    /// Lets time pass until it is so.
    async fn until(control: &Arc<Control>, is_so: impl AsyncFn() -> bool) {
        for _ in 0..1000 {
            if is_so().await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
            control.directing.ask_in_turn(Desk::tick).await;
            control.write_what_is_due().await;
        }
        panic!("it is not so");
    }

    /// A control plane without a listener.
    pub(crate) async fn open(settings: &str) -> (tempfile::TempDir, Arc<Control>) {
        let directory = tempfile::tempdir().unwrap();
        let control = open_in(&directory, settings).await.unwrap();
        (directory, control)
    }

    /// The same again, where there was one.
    pub(crate) async fn open_in(
        directory: &tempfile::TempDir,
        settings: &str,
    ) -> Result<Arc<Control>, OpenError> {
        let file = directory.path().join("control.toml");
        let database = crate::database::settings(&directory.path().join("state"));
        std::fs::write(&file, database + settings).unwrap();
        let config = Config::load(&file, std::iter::empty()).unwrap();
        Control::open(config).await
    }
}
