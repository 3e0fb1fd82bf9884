//! How the process gets its state: from what is durable, from the writer, or from the one that led.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, RwLock};

use director::Director;
use identity::authority::Authority;
use identity::credentials::CredentialsError;
use identity::member::Member;
use identity::secret_file::SecretError;
use model::units::UnixSeconds;
use tokio::sync::Semaphore;

use super::manifests::SignedTrust;
use super::{Control, Front, SITES_MAX, Shared, membership};
use crate::buckets::{BucketError, Buckets};
use crate::clock::Clock;
use crate::config::Config;
use crate::connections::certificate::{Certificate, CertificateError};
use crate::connections::listener::Tls;
use crate::members::access::{self, Access, Known};
use crate::members::authority::{self, OwnError, Signing};
use crate::members::identities::Identities;
use crate::members::keys::Keys;
use crate::members::own::Own;
use crate::members::tickets::TicketKeys;
use crate::metrics::{DoorCounters, Metrics};
use crate::place;
use crate::state::decisions::{Decisions, LedgerError};
use crate::state::demand::Demands;
use crate::state::directing::Directing;
use crate::state::documents::{DocumentError, Documents};
use crate::state::front::FollowError;
use crate::state::lease::{self, Leading};
use crate::state::manifests::Manifests;
use crate::state::quotas::Quotas;
use crate::state::sheds::Sheds;
use crate::state::store::{Store, StoreError};
use crate::state::unshared::Unshared;
use crate::state::vault::{Vault, VaultError};
use crate::state::viewers::Viewers;

/// The parts that differ between a writer and a front.
pub(super) struct Parts {
    pub(super) front: Option<Front>,
    pub(super) store: Own<Store>,
    pub(super) documents: Option<Documents>,
    pub(super) shared: Option<Shared>,
    pub(super) buckets: Own<Buckets>,
    pub(super) authority: Own<Authority>,
    pub(super) signing: Own<Signing>,
    pub(super) identities: Identities,
    pub(super) own_renew_at: UnixSeconds,
    pub(super) tokens: Vec<Known>,
    pub(super) config: Config,
    pub(super) keys: Keys,
    pub(super) tls: rustls::ServerConfig,
    pub(super) director: Director,
    pub(super) clock: Clock,
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
    Ledger(#[from] LedgerError),
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

    /// Whether it may be over without anybody setting this writer up anew: a folder that is not
    /// mounted for a moment, or one of secrets that cannot be read or written.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(
            self,
            Self::Document(DocumentError::Unmarked { .. }) | Self::Vault(VaultError::Secret(_))
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
            Ok(vault.is_some() && Documents::fits_behind(documents.as_ref(), &store).await?)
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
            store.put_leader_has_place(documents.is_some()).await?;
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

    pub(super) fn assemble(parts: Parts) -> Result<Arc<Self>, OpenError> {
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
            fleet_of_each: Quotas::new(usize::MAX, (config.serve.requests_max / 4).max(OF_ONE_MIN)),
            reports_of_each: Quotas::new(usize::MAX, 1),
            // A part of a table beside one of demand.
            parts_of_each: Quotas::new(usize::MAX, 2),
            fleet_tls: Tls::new(parts.tls, doors.clone()),
            attempts: Mutex::default(),
            identities: Mutex::new(parts.identities),
            own_renew_at: Mutex::new(parts.own_renew_at),
            manifests: Manifests::new(),
            signed: Mutex::default(),
            trust: SignedTrust::default(),
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
            demand: Demands::default(),
            unshared: Unshared::default(),
            lacking: Mutex::default(),
            waits: Mutex::default(),
            unkept: Mutex::default(),
            plan_refused: Mutex::default(),
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
}

/// Reports that are on their way at a time take so many units, 128 MiB; in memory, while they are
/// read, about four times that.
const REPORT_UNITS: usize = 32 << 10;
/// An appliance fills with 4 threads unless its `[fill] concurrency` says more, each of which asks,
/// and reports beside them.
const OF_ONE_MIN: usize = 24;
/// Connection attempts at a time.
const PROBES_MAX: usize = 64;
