//! Where things are: sites with the client addresses they are for, and the appliances in them.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

#[cfg(doc)]
use crate::hours::NEVER;
use crate::hours::Windows;
use crate::id::{ApplianceId, ClusterId, SiteId, Tag};
pub use crate::place::Place;
use crate::profile::{Abilities, Profile};
#[cfg(doc)]
use crate::profile::{RATES, TAGS_MAX};
use crate::units::{BitsPerSecond, UnixSeconds};
use crate::zone::TimeZone;

/// A range of client addresses, `10.0.0.0/8` or `2001:db8::/32`.
pub use ipnet::IpNet as Prefix;

/// A place with appliances, and the clients it is nearest to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    pub id: SiteId,
    /// Clients it is for, by an operator's word. The longest prefix of all sites wins; may be
    /// empty.
    pub prefixes: Vec<Prefix>,
    pub kind: SiteKind,
    /// Where it is; none if nobody said.
    pub place: Option<Place>,
    /// An embedded site that serves clients outside of its prefixes too. An exchange always does.
    pub open: bool,
    /// Its appliances hold only renditions of at most so much; none for all of them.
    pub bitrate_max: Option<BitsPerSecond>,
    /// The clock by which its nights are reckoned.
    pub time_zone: TimeZone,
    /// What comes in from outside at most, for fill. None if nobody said, otherwise in [`RATES`].
    pub uplink: Option<BitsPerSecond>,
    /// Sites that are planned together; none if it is planned by itself.
    pub manifest_cluster: Option<ClusterId>,
    /// Manifest clusters that fill from one another; none if its own fills by itself.
    pub fill_cluster: Option<ClusterId>,
    /// When it fills; none if the policy says it.
    pub fill_windows: Option<Windows>,
    /// An operator wants no fill until then ([`NEVER`] until somebody says otherwise).
    pub fill_paused_until: Option<UnixSeconds>,
}

impl Site {
    /// A site as a small fleet has them: an exchange, nobody said where.
    pub fn new(id: SiteId, prefixes: Vec<Prefix>) -> Self {
        let kind = SiteKind::default();
        Self {
            id,
            prefixes,
            kind,
            place: None,
            open: false,
            bitrate_max: None,
            time_zone: TimeZone::default(),
            uplink: None,
            manifest_cluster: None,
            fill_cluster: None,
            fill_windows: None,
            fill_paused_until: None,
        }
    }

    /// True if it serves clients that none of its prefixes covers.
    pub fn serves_strangers(&self) -> bool {
        self.open || self.kind == SiteKind::Exchange
    }
}

/// Whose network a site stands in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum SiteKind {
    /// An ISP's: it is for the clients whose prefixes that ISP announced to it.
    Embedded,
    /// Nobody's: networks meet there, and it is for all clients.
    #[default]
    Exchange,
}

impl fmt::Display for SiteKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Embedded => "embedded",
            Self::Exchange => "exchange",
        })
    }
}

/// One appliance as an operator registered it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appliance {
    pub id: ApplianceId,
    pub site: SiteId,
    /// Its part among the appliances of its site.
    pub weight: Weight,
    /// Its service addresses: those that players reach it by, and that a sibling of its site takes
    /// over while it cannot serve. At most [`ADDRESSES_MAX`]; none where nobody takes them over.
    pub addresses: Vec<IpAddr>,
    /// The kind of machine; none if nobody said.
    pub profile: Option<Profile>,
    /// An operator's own name for the kind of machine, for people.
    pub profile_name: Option<Tag>,
    /// What it is able to do, where that is not its profile's.
    pub own: Abilities,
    /// Words for people, at most [`TAGS_MAX`].
    pub tags: BTreeSet<Tag>,
}

impl Appliance {
    /// An appliance as small fleets have them: no address that others take over, no profile.
    pub fn new(id: ApplianceId, site: SiteId, weight: Weight) -> Self {
        let (own, tags) = (Abilities::default(), BTreeSet::new());
        Self {
            id,
            site,
            weight,
            addresses: Vec::new(),
            profile: None,
            profile_name: None,
            own,
            tags,
        }
    }
}

/// Service addresses of one appliance.
pub const ADDRESSES_MAX: usize = 4;

/// Service addresses of one site: each is a VRRP router of one segment, and those have numbers
/// from 1 to 255 (RFC 9568 section 5.2.3), some of which others may use.
pub const SITE_ADDRESSES_MAX: usize = 128;

/// The number of a service address's virtual router: its last byte. So all machines have the same
/// one, whatever other addresses they know of, and it never changes. 0 is none's. IPv4 and IPv6
/// number apart (RFC 9568 section 5.2.3).
pub fn router_number(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(address) => address.octets()[3],
        IpAddr::V6(address) => address.octets()[15],
    }
}

/// Two addresses whose virtual routers would be the same one.
pub fn share_router(one: IpAddr, other: IpAddr) -> bool {
    one.is_ipv4() == other.is_ipv4() && router_number(one) == router_number(other)
}

/// A part relative to others: an appliance of weight 3 gets three times what one of weight 1 gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight(u32);

/// Heaviest appliance: a thousand of the lightest.
pub const WEIGHT_MAX: u32 = 1000;

impl Weight {
    /// That of an ordinary appliance.
    pub const ONE: Self = Self(1);

    /// A weight from 1 to [`WEIGHT_MAX`].
    pub fn new(weight: u32) -> Option<Self> {
        (1..=WEIGHT_MAX).contains(&weight).then_some(Self(weight))
    }

    /// The number.
    pub fn value(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
