//! The process's shared state, and the one place where desired state changes.
//!
//! One change at a time: first the database, then the director, then what the director wants
//! stored, then the snapshot that fronts answer from. A change that could not be stored never
//! reaches the director.

mod actions;
mod changes;
mod closing;
mod demand;
mod documents;
mod following;
mod lacking;
pub(crate) mod manifests;
mod membership;
mod opening;
mod playbacks;
mod replication;
mod token_keys;
mod tokens;
mod wishes;
pub(crate) mod withdrawals;

pub(crate) use membership::MembershipError;
pub use opening::OpenError;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use director::front::Sealed;
use director::lacking::Lacking;
use director::waits::Waits;
use director::{Change, Event, Snapshot};
use identity::authority::Authority;
use identity::secret_file::SecretError;
use model::id::ApplianceId;
use model::units::{Bytes, UnixSeconds};
use steering::turns::Turns;
use tokio::sync::Semaphore;
use wire::v1::report::Report;
use wire::v1::viewers::Networks;

use crate::buckets::Buckets;
use crate::clock::Clock;
use crate::config::Config;
use crate::connections::attempts::Attempts;
use crate::connections::certificate::Certificate;
use crate::connections::listener::Tls;
use crate::members::access::Access;
use crate::members::authority::Signing;
use crate::members::identities::Identities;
use crate::members::keys::Keys;
use crate::members::own::Own;
use crate::members::tickets::TicketKeys;
use crate::metrics::{DoorCounters, Metrics};
use crate::place;
use crate::state::convert::{self, Refused};
use crate::state::decisions::Decisions;
use crate::state::demand::Demands;
use crate::state::directing::{Directing, Reported};
use crate::state::documents::Documents;
use crate::state::lease::{self, Leading};
use crate::state::manifests::Manifests;
use crate::state::quotas::Quotas;
use crate::state::sheds::Sheds;
use crate::state::store::{Store, StoreError};
use crate::state::unshared::Unshared;
use crate::state::vault::{self, Vault};
use crate::state::viewers::Viewers;
pub(crate) use changes::{ChangeError, SITES_MAX};
use changes::{VERSIONS_MAX, room_for};
pub(crate) use following::Front;
use manifests::SignedManifest;
use opening::Parts;
use replication::Replication;
pub(crate) use replication::{ReplicaError, Wanted};
use wishes::AllUnkept;
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
    /// Parts of demand that wait to be counted.
    pub(crate) demand: Demands,
    /// Prefixes with one site alone, as they were counted last.
    pub(crate) unshared: Unshared,
    /// Appliances that will lack much of what they should hold, as they were looked at last.
    lacking: Mutex<Lacking>,
    /// For whom appliances wait.
    waits: Mutex<Waits>,
    /// Pins that the last plan could not keep.
    unkept: Mutex<AllUnkept>,
    /// Why the last plan was refused, as it was logged; empty if it was not.
    pub(crate) plan_refused: Mutex<Vec<String>>,
    /// Has a thread of its own.
    pub(crate) decisions: Arc<Decisions>,
    pub(crate) metrics: Metrics,
    pub(crate) doors: Arc<DoorCounters>,
    pub(crate) requests: Arc<Semaphore>,
    pub(crate) fleet_requests: Arc<Semaphore>,
    /// The same of each member, by the key of its identity.
    pub(crate) fleet_of_each: Quotas<String>,
    /// Reports of a member, and parts, that are read.
    pub(crate) reports_of_each: Quotas<String>,
    pub(crate) parts_of_each: Quotas<String>,
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
    trust: manifests::SignedTrust,
    /// The last snapshot that fronts were given; `replica_is_old` once something has changed.
    pub(crate) replication: tokio::sync::Mutex<Replication>,
    replica_is_old: AtomicBool,
    /// Who holds it makes a whole one for fronts.
    pub(crate) making_whole: tokio::sync::Mutex<()>,
    /// Since when no front could be given a whole snapshot; 0 while it fits.
    whole_too_long: AtomicU64,
    writing: tokio::sync::Mutex<()>,
}

/// The last batch of what viewers felt that was taken, and networks that an appliance should know.
type Felt = (u64, Option<Networks>);

/// What a writer has to do with another one.
pub(crate) struct Shared {
    leading: Arc<Leading>,
    epoch: u64,
    vault: Vault,
}

impl Control {
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

    /// What was sealed with a key of ours as one of this kind.
    pub(crate) fn unseal<T: Sealed>(&self, text: &str) -> Option<T> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).unseal(text)
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

    /// Lets the director take a fact.
    pub(crate) async fn handle(&self, event: Event<'static>) {
        self.directing.tell(event).await;
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

/// Where an appliance may fetch one object from: with siblings, eight URLs, as the wire allows.
pub(crate) const ORIGINS_MAX: usize = 4;

/// Largest report: a full list of objects.
pub(crate) const REPORT_LEN_MAX: Bytes = Bytes::mib(64);
/// Room for reports is counted in these.
pub(crate) const REPORT_UNIT: Bytes = Bytes::kib(4);
/// Largest ingest.
pub(crate) const INGEST_LEN_MAX: Bytes = Bytes::mib(64);

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use director::Policy;
    use model::topology::{Appliance, Site, Weight};
    use std::time::Duration;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpStream;

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
