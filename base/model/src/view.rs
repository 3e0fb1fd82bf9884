//! The fleet at one moment. Made by the director, read by steering and by every front.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::id::{ApplianceId, AssetVersionId, Generation, SiteId};
use crate::members::Members;
use crate::names::Names;
use crate::number::index;
use crate::paged::Paged;
use crate::rendezvous::Lot;
use crate::topology::Weight;
use crate::units::BitsPerSecond;

/// An immutable picture of the fleet. Its parts are shared with the picture before it, but for the
/// sites that changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetView {
    /// Generation of desired state that the picture belongs to.
    pub generation: Generation,
    /// By number. A number is never used again: one whose site is gone has no appliances.
    pub sites: Paged<Arc<SiteView>>,
    /// The number of each registered appliance.
    pub appliances: Arc<Names<ApplianceId, u32>>,
    /// Where each stands, by number; none where there is no such appliance any more.
    pub positions: Paged<Option<Position>>,
    /// By the number of a site: its appliances, by number, in the order of their names.
    pub numbers_of_site: Paged<Numbers>,
    /// Healthy ones whose sites serve strangers, by number.
    pub open: Members,
    /// The number of each asset version that should be held.
    pub versions: Arc<Names<AssetVersionId, u32>>,
    /// By the number of a version.
    pub holders: Paged<Holders>,
    /// By the number of a rendition: the appliances that hold all of it but not of its version,
    /// by number.
    pub partial_holders: Paged<Members>,
}

/// Who holds a version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holders {
    /// The appliances that hold every object of it, by number.
    pub whole: Members,
    /// The numbers of its renditions; none if they cannot be told apart.
    pub renditions: Range<u32>,
}

impl From<Members> for Holders {
    fn from(whole: Members) -> Self {
        Self { whole, renditions: 0..0 }
    }
}

/// Numbers of appliances: most sites have one, which is found without a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Numbers {
    One(u32),
    All(Arc<[u32]>),
}

impl Numbers {
    /// All of them.
    #[inline]
    pub fn as_slice(&self) -> &[u32] {
        match self {
            Self::One(number) => std::slice::from_ref(number),
            Self::All(numbers) => numbers,
        }
    }
}

impl Default for Numbers {
    fn default() -> Self {
        Self::All(Arc::default())
    }
}

impl FromIterator<u32> for Numbers {
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> Self {
        let numbers: Arc<[u32]> = numbers.into_iter().collect();
        if let [number] = *numbers { Self::One(number) } else { Self::All(numbers) }
    }
}

/// Where an appliance is in a picture, and in 32 bytes all that makes its place in a list: 640 KB
/// for 20,000, which stay in a core's own cache where their names, URLs and loads do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Of its name.
    pub lot: Lot,
    /// The number of its site.
    pub site: u32,
    /// Its position among those of the site.
    at: u32,
    pub weight: Weight,
    /// As in [`ApplianceView`], as are the two below.
    pub share_permille: u16,
    pub titles_permille: u16,
    pub health: Health,
    pub has_url: bool,
    pub has_plain_url: bool,
    /// Its site does.
    pub serves_strangers: bool,
}

/// One site in the picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteView {
    pub id: SiteId,
    /// It serves clients that none of its prefixes covers.
    pub serves_strangers: bool,
    /// In the order of their names.
    pub appliances: Vec<ApplianceView>,
}

/// An appliance of a picture, and the site that it stands in.
#[derive(Clone, Copy, Debug)]
pub struct Placed<'a> {
    /// The site's.
    pub number: u32,
    pub site: &'a SiteView,
    pub appliance: &'a ApplianceView,
}

/// One appliance in the picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplianceView {
    pub id: ApplianceId,
    pub number: u32,
    /// Its part among the appliances of its site.
    pub weight: Weight,
    pub health: Health,
    /// The share of its sessions that it takes now, in thousandths: less where it was lost a while
    /// ago, or is short of something.
    pub share_permille: u32,
    /// Of the sessions of a title whose draw leads here among those of its site, so many follow it,
    /// in thousandths; the others are spread. 0 where titles are not drawn for.
    pub titles_permille: u32,
    /// Base URL for players, without trailing slash; none until it has reported.
    pub base_url: Option<Arc<str>>,
    /// The same without TLS, where it has one.
    pub plain_url: Option<Arc<str>>,
    pub load: Load,
}

impl Position {
    fn of(number: u32, site: &SiteView, at: usize) -> Self {
        let appliance = &site.appliances[at];
        let permille = |of: u32| u16::try_from(of).unwrap_or(u16::MAX);
        Self {
            lot: Lot::of(appliance.id.as_str().as_bytes()),
            site: number,
            at: u32::try_from(at).expect("numbers are 32 bits"),
            weight: appliance.weight,
            share_permille: permille(appliance.share_permille),
            titles_permille: permille(appliance.titles_permille),
            health: appliance.health,
            has_url: appliance.base_url.is_some(),
            has_plain_url: appliance.plain_url.is_some(),
            serves_strangers: site.serves_strangers,
        }
    }

    /// Its position among those of the site.
    pub fn at(&self) -> usize {
        index(self.at)
    }
}

impl FleetView {
    /// The appliance of this name.
    pub fn appliance(&self, id: &ApplianceId) -> Option<&ApplianceView> {
        Some(self.placed(*self.appliances.get(id)?)?.appliance)
    }

    /// The appliance of this number, and its site.
    #[inline]
    pub fn placed(&self, number: u32) -> Option<Placed<'_>> {
        let position = (*self.positions.get(number)?)?;
        let site = self.sites.get(position.site)?;
        let appliance = site.appliances.get(position.at())?;
        assert_eq!(appliance.number, number, "whoever stands there is meant");
        Some(Placed { number: position.site, site, appliance })
    }

    /// The position of the appliance of this number.
    #[inline]
    pub fn position(&self, number: u32) -> Option<&Position> {
        self.positions.get(number)?.as_ref()
    }

    /// The appliances of a site, by number, in the order of their names.
    #[inline]
    pub fn of_site(&self, site: u32) -> &[u32] {
        self.numbers_of_site.get(site).map_or(&[], Numbers::as_slice)
    }

    /// The site that an appliance stands in.
    pub fn site_of(&self, id: &ApplianceId) -> Option<&SiteId> {
        Some(&self.placed(*self.appliances.get(id)?)?.site.id)
    }

    /// All registered appliances, site by site.
    pub fn all(&self) -> impl Iterator<Item = &ApplianceView> {
        self.sites.iter().flat_map(|site| &site.appliances)
    }

    /// True if an appliance, by number, holds every object of a version.
    pub fn holds(&self, appliance: u32, version: &AssetVersionId) -> bool {
        let version = self.versions.get(version).and_then(|number| self.holders.get(*number));
        version.is_some_and(|holders| holders.whole.contains(appliance))
    }

    /// Puts a site in its place, or another picture of it. Whoever stands in it is found there.
    pub fn put_site(&mut self, number: u32, site: Arc<SiteView>) {
        for (at, appliance) in site.appliances.iter().enumerate() {
            let is_open = site.serves_strangers && appliance.health == Health::Healthy;
            if self.open.contains(appliance.number) != is_open {
                self.set_open(appliance.number, is_open);
            }
            let position = Position::of(number, &site, at);
            let before = self.position(appliance.number).copied();
            if before == Some(position) {
                continue;
            }
            while self.positions.len() <= appliance.number {
                self.positions.push(None);
            }
            let to = self.positions.get_mut(appliance.number).expect("there is room");
            *to = Some(position);
            if before.is_none_or(|before| before.lot != position.lot) {
                Arc::make_mut(&mut self.appliances).insert(appliance.id.clone(), appliance.number);
            }
        }
        while self.numbers_of_site.len() <= number {
            self.numbers_of_site.push(Numbers::default());
        }
        let numbers = || site.appliances.iter().map(|appliance| appliance.number);
        if !self.of_site(number).iter().copied().eq(numbers()) {
            *self.numbers_of_site.get_mut(number).expect("there is room") = numbers().collect();
        }
        while self.sites.len() <= number {
            self.sites.push(Arc::clone(&site));
        }
        *self.sites.get_mut(number).expect("there is room") = site;
    }

    /// An appliance is not registered any more, or stands elsewhere from now on. Its name stays if
    /// it leads to another number: that one was registered anew.
    pub fn take_appliance(&mut self, number: u32) {
        let Some(Placed { number: site, appliance, .. }) = self.placed(number) else { return };
        let id = appliance.id.clone();
        if self.appliances.get(&id) == Some(&number) {
            Arc::make_mut(&mut self.appliances).remove(&id);
        }
        if let Some(position) = self.positions.get_mut(number) {
            *position = None;
        }
        if let Some(numbers) = self.numbers_of_site.get_mut(site) {
            let numbers_left = numbers.as_slice().iter().copied().filter(|of| *of != number);
            *numbers = numbers_left.collect();
        }
        self.set_open(number, false);
    }

    fn set_open(&mut self, appliance: u32, is_open: bool) {
        if is_open {
            self.open.insert(appliance);
        } else {
            self.open.remove(appliance);
        }
    }
}

/// Some of a version's renditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renditions(u64);

impl Renditions {
    /// None of them.
    pub const NONE: Self = Self(0);
    /// All of them, however many there are.
    pub const ALL: Self = Self(u64::MAX);

    /// These, and the one at this place, from 0.
    #[must_use]
    pub fn with(self, at: u32) -> Self {
        Self(self.0 | 1_u64.checked_shl(at).unwrap_or(0))
    }

    /// As bits, the first the lowest.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Those of [`Renditions::bits`].
    pub fn of_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// True if all of those are among them.
    pub fn has_all(self, of: Self) -> bool {
        of.0 & !self.0 == 0
    }

    /// True if the one at this place, from 0, is among them.
    pub fn has(self, at: u32) -> bool {
        self.0.checked_shr(at).unwrap_or(0) & 1 == 1
    }
}

/// Whether an appliance can serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// It reports and takes sessions.
    Healthy,
    /// It reports, and gets no new sessions.
    Draining,
    /// The same, and next to nothing leaves it: it may be stopped.
    Drained,
    /// It reports that it cannot serve.
    Unhealthy,
    /// Its reports have stopped.
    Stale,
    /// It is registered and has not reported since the control plane started.
    NeverSeen,
}

impl Health {
    /// It reports, and can serve.
    pub fn is_well(self) -> bool {
        matches!(self, Self::Healthy | Self::Draining | Self::Drained)
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Healthy => "healthy",
            Self::Draining => "draining",
            Self::Drained => "drained",
            Self::Unhealthy => "unhealthy",
            Self::Stale => "stale",
            Self::NeverSeen => "never_seen",
        })
    }
}

/// How busy an appliance is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Open connections.
    pub connections: u64,
    /// Most connections it takes; 0 if it did not say.
    pub connections_max: u64,
    /// Egress over its last report interval.
    pub egress: BitsPerSecond,
    /// What its cards that are up carry together; 0 if it did not say.
    pub egress_max: BitsPerSecond,
    /// In use of its worker cores, in thousandths; as the three below, 0 if it did not say.
    pub cpu_permille: u32,
    /// In use of the drive that has least left.
    pub drives_permille: u32,
    /// How near the machine's memory is to its last part.
    pub memory_permille: u32,
    /// How near the packets that its cards drop are to too many.
    pub drops_permille: u32,
}

/// A thing of which an appliance can run short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bottleneck {
    Cpu,
    Egress,
    Drives,
    Connections,
    Memory,
    Drops,
}

impl Bottleneck {
    /// Its name for programs, and in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Egress => "egress",
            Self::Drives => "drives",
            Self::Connections => "connections",
            Self::Memory => "memory",
            Self::Drops => "drops",
        }
    }
}

impl fmt::Display for Bottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "CPU",
            Self::Egress => "egress",
            Self::Drives => "drives",
            Self::Connections => "connections",
            Self::Memory => "memory",
            Self::Drops => "drops of the card",
        })
    }
}

impl Load {
    /// What is in use of each, in thousandths, and above if over its limit.
    pub fn each(&self) -> [(Bottleneck, u64); 6] {
        let share = |used: u64, most: u64| match (most, used.checked_mul(1000)) {
            (0, _) => 0,
            (_, Some(used)) => used / most,
            (_, None) => {
                u64::try_from(u128::from(used) * 1000 / u128::from(most)).unwrap_or(u64::MAX)
            }
        };
        [
            (Bottleneck::Cpu, self.cpu_permille.into()),
            (Bottleneck::Egress, share(self.egress.0, self.egress_max.0)),
            (Bottleneck::Drives, self.drives_permille.into()),
            (Bottleneck::Connections, share(self.connections, self.connections_max)),
            (Bottleneck::Memory, self.memory_permille.into()),
            (Bottleneck::Drops, self.drops_permille.into()),
        ]
    }

    /// The bottleneck: what it is shortest of, and how much of that is in use, in thousandths. The
    /// first of equals.
    pub fn worst(&self) -> (Bottleneck, u64) {
        let [first, others @ ..] = self.each();
        others.into_iter().fold(first, |worst, of| if worst.1 < of.1 { of } else { worst })
    }

    /// The scarcest resource's share in use, 0 to 1000 and above if over its limit.
    pub fn permille(&self) -> u64 {
        self.worst().1
    }

    /// True of an appliance so full that the rest is for its viewers: siblings fetch elsewhere.
    pub fn is_at_limit(&self) -> bool {
        AT_LIMIT_PERMILLE <= self.permille()
    }
}

/// Arbitrary until lab measures how much a running session's demand swings.
const AT_LIMIT_PERMILLE: u64 = 950;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_is_that_of_the_scarcest_resource_and_no_limit_is_never_scarce() {
        let load = |connections, connections_max, egress, egress_max| {
            let (egress, egress_max) = (BitsPerSecond(egress), BitsPerSecond(egress_max));
            Load { connections, connections_max, egress, egress_max, ..Load::default() }.permille()
        };
        assert_eq!(load(10, 100, 900, 1000), 900);
        assert_eq!(load(50, 100, 10, 1000), 500);
        assert_eq!(load(50, 100, 10_000, 0), 500);
        assert_eq!(load(7, 0, 10_000, 0), 0);
        assert_eq!(load(300, 100, 0, 0), 3000);
        assert_eq!(load(u64::MAX, 1, u64::MAX, 1), u64::MAX);
    }

    #[test]
    fn where_an_appliance_stands_is_known_by_its_number_whatever_comes_and_goes() {
        let appliance = |name: &str, number| ApplianceView {
            id: name.parse().unwrap(),
            number,
            weight: Weight::ONE,
            health: Health::Healthy,
            share_permille: 500,
            titles_permille: 0,
            base_url: Some("https://a.example".into()),
            plain_url: None,
            load: Load::default(),
        };
        let site = |name: &str, appliances| {
            let id = name.parse().unwrap();
            Arc::new(SiteView { id, serves_strangers: true, appliances })
        };
        let mut view = FleetView::default();
        view.put_site(0, site("x", vec![appliance("a", 5), appliance("b", 2)]));
        view.put_site(1, site("y", vec![appliance("c", 3)]));
        assert_eq!(
            (view.of_site(0), view.of_site(1), view.of_site(2)),
            (&[5, 2][..], &[3][..], &[][..])
        );
        let position = *view.position(2).unwrap();
        assert_eq!((position.site, position.at(), position.share_permille), (0, 1, 500));
        assert!(position.has_url && !position.has_plain_url && position.serves_strangers);
        let shared = view.clone();
        let busy = ApplianceView {
            load: Load { cpu_permille: 9, ..Load::default() },
            ..appliance("c", 3)
        };
        view.put_site(1, site("y", vec![busy]));
        assert_eq!(view.positions.unshared(&shared.positions).count(), 0, "a load is not in it");
        let silent = ApplianceView { health: Health::Stale, ..appliance("c", 3) };
        view.put_site(1, site("y", vec![silent]));
        assert_eq!(view.position(3).map(|of| of.health), Some(Health::Stale));
        assert_eq!(shared.position(3).map(|of| of.health), Some(Health::Healthy));
        // It moves.
        view.take_appliance(2);
        assert_eq!((view.of_site(0), view.position(2)), (&[5][..], None));
        assert_eq!(view.appliance(&"b".parse().unwrap()), None);
        view.put_site(0, site("x", vec![appliance("a", 5)]));
        view.put_site(1, site("y", vec![appliance("b", 2), appliance("c", 3)]));
        assert_eq!((view.of_site(1), view.placed(2).map(|of| of.number)), (&[2, 3][..], Some(1)));
        // Its name is registered anew in another site before the old one goes.
        view.put_site(2, site("z", vec![appliance("b", 7)]));
        view.take_appliance(2);
        assert_eq!((view.of_site(1), view.position(2)), (&[3][..], None));
        assert_eq!((view.of_site(2), view.appliances["b"]), (&[7][..], 7));
        assert!(size_of::<Option<Position>>() <= 32, "two in a cache line");
    }

    #[test]
    fn the_worst_wins_and_is_named() {
        let busy = Load { cpu_permille: 500, drives_permille: 500, ..Load::default() };
        assert_eq!(busy.worst(), (Bottleneck::Cpu, 500));
        assert_eq!(Load { drives_permille: 501, ..busy }.worst(), (Bottleneck::Drives, 501));
        assert_eq!(Load { memory_permille: 700, ..busy }.worst(), (Bottleneck::Memory, 700));
        let full = Load { connections: 9, connections_max: 10, drops_permille: 1200, ..busy };
        assert_eq!(full.worst(), (Bottleneck::Drops, 1200));
        assert_eq!(full.each()[3], (Bottleneck::Connections, 900));
    }
}
