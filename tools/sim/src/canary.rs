//! Bugs that are planted on purpose, to see that each is found: a check that cannot fail shows
//! nothing.

/// A planted bug. It stands in the simulated shell, at one place each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Canary {
    /// A file is renamed into place without having been flushed.
    Unflushed,
    /// The records of a unit are published before it has been flushed.
    UnitUnflushed,
    /// A unit goes before what was copied from it is on the drive.
    CopyUnflushed,
    /// A folder's names are not flushed.
    FolderUnflushed,
    /// What comes from a source is written without a look at its hash.
    Unverified,
    /// A part file is shown to workers as if it were an object.
    ShownEarly,
    /// A worker's read completes before its bytes are there.
    EarlyRead,
    /// Workers are not told that a drive was set aside.
    SilentSetAside,
    /// An object that was given up is never let go.
    NeverReleased,
    /// The control plane's clock stands: nobody is ever silent.
    ClockStands,
    /// A generation is given out before it is durable.
    NotDurable,
    /// Connections that end are not told to the worker.
    LeakedConnections,
    /// A turn on a drive is not given back.
    KeptTurns,
    /// An object that changes drives is removed where it was before it is where it goes.
    OldGoesFirst,
    /// A withdrawal is signed by the storage side, and workers hear of it later.
    SignedEarly,
    /// A drive that comes back is believed to hold what was in its place before.
    OldInventory,
    /// A copy is not read back before the old file goes.
    NotReadBack,
    /// Of a copy that is read back, directory and footer are not looked at.
    EndUnread,
    /// A unit that a later version wrote is taken for one that is damaged.
    LaterLost,
    /// A report says that its delta leads to a state, and leaves out a file that came.
    LostDelta,
    /// The same, and control does not look at the check of what is held.
    CheckUnread,
    /// Players' lists are made from a view of the fleet that is seconds old.
    StaleView,
    /// A front leaves out a difference, and does not look at the check of what it has.
    LostDifference,
    /// An appliance takes a trust document though a newer one is in force.
    OlderTrust,
    /// An appliance goes by the clock of another zone.
    WrongZone,
    /// An appliance removes what the manifest that it has just fetched does not want, while the
    /// one before it is in force.
    DeletesAhead,
    /// Whoever was first told to fetch an object for others stays their master, come what may.
    MasterStays,
    /// Who has something urgent to fetch fetches everything at any hour.
    UrgentOpens,
    /// What is urgent waits for the window, as all else.
    UrgentWaits,
    /// Control forgets bans.
    BanForgotten,
    /// Control forgets pins.
    PinForgotten,
    /// Each ban forces the plan that follows.
    LastCopyGoes,
}

impl Canary {
    pub(crate) const ALL: [Self; 32] = [
        Self::Unflushed,
        Self::UnitUnflushed,
        Self::CopyUnflushed,
        Self::FolderUnflushed,
        Self::Unverified,
        Self::ShownEarly,
        Self::EarlyRead,
        Self::SilentSetAside,
        Self::NeverReleased,
        Self::ClockStands,
        Self::NotDurable,
        Self::LeakedConnections,
        Self::KeptTurns,
        Self::OldGoesFirst,
        Self::SignedEarly,
        Self::OldInventory,
        Self::NotReadBack,
        Self::EndUnread,
        Self::LaterLost,
        Self::LostDelta,
        Self::CheckUnread,
        Self::StaleView,
        Self::LostDifference,
        Self::OlderTrust,
        Self::WrongZone,
        Self::DeletesAhead,
        Self::MasterStays,
        Self::UrgentOpens,
        Self::UrgentWaits,
        Self::BanForgotten,
        Self::PinForgotten,
        Self::LastCopyGoes,
    ];
}
