//! All that a director is told, and all that it wants done.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::hours::FillRules;
use model::id::{ApplianceId, AssetVersionId, Generation, SiteId};
use model::topology::{Place, Prefix};
use model::units::{Bytes, Nanos, UnixSeconds};
use model::view::Health;

use crate::desired::{Change, Desired};
use crate::machines::Hardware;
use crate::observed::{Cause, Report};
use crate::places::Expected;
use crate::plan::{Plan, PlanInput, Spent};
use crate::publish::Ledger;
use crate::trust::TrustEntry;
use crate::withdrawal::Receipt;

/// All that a director is told.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// An appliance says how it is; `Director::reply` has the answer.
    Reported { appliance: &'a ApplianceId, report: &'a Report },
    /// Desired state has changed, durably.
    Changed(Change),
    /// Desired state is this from now on, as a whole, and this its newest generation of manifests.
    /// For replicas only.
    Replaced { desired: Box<Desired>, generation: Generation },
    /// A part of what an appliance hears from its routers; `Director::next_part` has the answer.
    Heard { appliance: &'a ApplianceId, part: routes::Part },
    /// What files say: clients of these prefixes are there, and of others nobody knows; and sites
    /// have these static prefixes besides those that an operator gave them.
    Clients { places: Vec<(Prefix, Place)>, zones: BTreeMap<SiteId, Vec<Prefix>> },
    /// The answer to [`Action::Probe`]: whether something accepted the connection.
    Probed { appliance: ApplianceId, answered: bool },
    /// What viewers are expected to watch.
    Expected(Arc<Expected>),
    /// An operator wants a plan now; or the plan of this number again, which is taken whatever it
    /// evicts, if [`Director::may_force`](crate::Director::may_force) says so.
    PlanNow { forces: Option<u64> },
    /// The answer to [`Action::Place`].
    Placed(Box<Plan>),
    /// The answer to [`Action::Store`]: this generation is durable now.
    Stored(Generation),
    /// The answer to [`Action::StoreTrust`]: this generation is durable now.
    TrustStored(Generation),
    /// The answer to [`Action::StoreUsable`]: this appliance's capacity is durable now.
    UsableStored(ApplianceId, Bytes),
    /// Time passes; at `Director::deadline`.
    Tick(UnixSeconds),
    /// For so long nobody was listened to: reports waited as well, and nobody was silent meanwhile.
    Late(Nanos),
    /// A report came, and there was no room for it: a sign of life, and nothing more.
    TurnedAway(ApplianceId),
}

/// An action that the director wants carried out.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Work this out on another thread, since it takes long, then say [`Event::Placed`]. No other
    /// comes before that.
    Place(Box<PlanInput>),
    /// Free this on another thread, since it takes long.
    Free(Spent),
    /// Make these durable, then say [`Event::Stored`]. Said again from time to time if not.
    Store(Ledger),
    /// Make this durable, then say [`Event::TrustStored`]. Said again from time to time if not.
    StoreTrust(TrustEntry),
    /// Make durable the capacity of an appliance's drives, then say [`Event::UsableStored`].
    /// Placement counts with it. Said again from time to time if not.
    StoreUsable { appliance: ApplianceId, usable: Bytes },
    /// Make durable an appliance's hardware.
    StoreHardware { appliance: ApplianceId, hardware: Hardware },
    /// Make durable that two machines report as this appliance.
    StoreCloned(ApplianceId),
    /// The next signing key is known to all that need it: it signs from now on, alone. Said again
    /// from time to time, until [`Change::SigningKeys`] says so.
    UseNextSigningKey,
    /// The next key of playback tokens is known to all that check them: it signs from now on. Said
    /// again from time to time, until [`Change::TokenKeys`] says so.
    UseNextTokenKey,
    /// No token is good any more that a key which signed before has made: such keys can go. Said
    /// again as above.
    DropOldTokenKeys,
    /// The windows of these versions are over: withdraw them, durably, then say
    /// [`Change::Withdrawn`]. Said again from time to time until then.
    WithdrawEnded(Vec<AssetVersionId>),
    /// No playback can use these old versions any more: remove them, durably, then say
    /// [`Change::Superseded`]. Said again as above.
    RemoveSuperseded(Vec<AssetVersionId>),
    /// Make durable that an appliance refuses the versions of the withdrawal of this number.
    StoreReceipt { withdrawal: u64, appliance: ApplianceId, receipt: Receipt },
    /// These withdrawals are not listed any more: there are too many.
    ForgetWithdrawals(Vec<u64>),
    /// Try to connect to the appliance, then say [`Event::Probed`].
    Probe { appliance: ApplianceId, base_url: Arc<str> },
    /// Tell operators, in the log.
    Tell(Notice),
}

impl Action {
    /// Whether it may be left out where too much waits. A probe may: the appliance is silent with
    /// or without it. A line of the log may: its notice is shown all the same.
    ///
    /// A line about an identity may not. Operators cause most of these lines. Three kinds come by
    /// themselves, and only their rate bounds how many wait: hardware has moved, once in a while;
    /// an appliance is ahead of the trust document, once in an hour; and one is a clone, each time
    /// it falls silent and is back.
    pub(crate) fn can_be_spared(&self) -> bool {
        match self {
            Self::Probe { .. } => true,
            Self::Tell(notice) => !notice.cause.is_of_identity(),
            Self::Place(_)
            | Self::Free(_)
            | Self::Store(_)
            | Self::StoreTrust(_)
            | Self::StoreUsable { .. }
            | Self::StoreHardware { .. }
            | Self::StoreCloned(_)
            | Self::UseNextSigningKey
            | Self::UseNextTokenKey
            | Self::DropOldTokenKeys
            | Self::WithdrawEnded(_)
            | Self::RemoveSuperseded(_)
            | Self::StoreReceipt { .. }
            | Self::ForgetWithdrawals(_) => false,
        }
    }

    /// The event that answers it where all is done at once, for tools and tests; none where nothing
    /// has to be said, or where it is said by a [`Change`], or of a probe.
    pub fn at_once(self) -> Option<Event<'static>> {
        match self {
            Self::Place(input) => Some(Event::Placed(Box::new(input.work_out()))),
            Self::Store(ledger) => Some(Event::Stored(ledger.generation)),
            Self::StoreTrust(entry) => Some(Event::TrustStored(entry.generation)),
            Self::StoreUsable { appliance, usable } => Some(Event::UsableStored(appliance, usable)),
            Self::Free(_)
            | Self::StoreHardware { .. }
            | Self::StoreCloned(_)
            | Self::UseNextSigningKey
            | Self::UseNextTokenKey
            | Self::DropOldTokenKeys
            | Self::WithdrawEnded(_)
            | Self::RemoveSuperseded(_)
            | Self::StoreReceipt { .. }
            | Self::ForgetWithdrawals(_)
            | Self::Probe { .. }
            | Self::Tell(_) => None,
        }
    }
}

/// Something that an operator would note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    pub at: UnixSeconds,
    pub appliance: ApplianceId,
    pub health: Health,
    pub cause: Cause,
    /// Health and cause in words.
    pub text: String,
}

/// The answer to a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Generation of the newest manifest for the appliance; 0 if there is none, or none here.
    pub generation: Generation,
    /// Generation of the newest trust document; 0 if there is none, or none here.
    pub trust: Generation,
    /// The inventory state known here; the next delta should start from it.
    pub inventory: u64,
    pub interval: Nanos,
    /// The share of its sessions that it takes, in thousandths.
    pub share_permille: u32,
    /// Of the sessions of titles that lead to it, so many follow them, in thousandths.
    pub titles_permille: u32,
    /// Appliances of the same site that can serve now, and their base URLs.
    pub siblings: Beside,
    /// Appliances of the same site that have service addresses, and where they let siblings fetch.
    pub peers: Beside,
    /// What it hears is wanted.
    pub routes: Option<RoutesWanted>,
    /// When and how fast it may fetch.
    pub fill: Option<FillRules>,
}

/// The others of an appliance's site, and an address of each. Shared by all replies of the site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beside {
    pub(crate) all: Arc<Vec<(ApplianceId, Arc<str>)>>,
    pub(crate) asker: ApplianceId,
}

impl Beside {
    /// The first by name, as many as are told.
    pub fn to_map(&self) -> BTreeMap<ApplianceId, Arc<str>> {
        let others = self.all.iter().filter(|(id, _)| *id != self.asker);
        others.take(Self::TOLD_MAX).cloned().collect()
    }

    /// Most that are told: a large site, and 3 KB.
    pub const TOLD_MAX: usize = 64;
}

/// What an appliance hears is wanted, as a difference to what is known of its site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoutesWanted {
    pub known: Option<routes::Digest>,
}

/// The appliance is not registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this appliance is not registered: an operator does that with PUT /v1/appliances/{{id}}")]
pub struct NotRegistered;
