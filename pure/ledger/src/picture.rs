//! The picture of the fleet in a file, as far as lists depend on it.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::topology::Weight;
use model::units::{BitsPerSecond, Bytes};
use model::view::{ApplianceView, Bottleneck, FleetView, Health, Load, SiteView};

use crate::codec::{Input, put, put_text};

/// What changes most about an appliance, as far as lists depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vital {
    health: Health,
    has_url: bool,
    has_plain_url: bool,
    share_permille: u32,
    titles_permille: u32,
    bottleneck: Bottleneck,
    load_permille: u64,
}

const HEALTHS: [Health; 6] = [
    Health::Healthy,
    Health::Draining,
    Health::Drained,
    Health::Unhealthy,
    Health::Stale,
    Health::NeverSeen,
];
pub(crate) const BOTTLENECKS: [Bottleneck; 6] = [
    Bottleneck::Cpu,
    Bottleneck::Egress,
    Bottleneck::Drives,
    Bottleneck::Connections,
    Bottleneck::Memory,
    Bottleneck::Drops,
];
const BOTTLENECK_SHIFT: u32 = 3;
const URL: u8 = 64;
const PLAIN_URL: u8 = 128;
/// Most shares, of sessions and of titles, are this, and a byte.
const WHOLE_PERMILLE: u32 = 1000;

impl Vital {
    pub(crate) fn of(appliance: &ApplianceView) -> Self {
        // All fields, so that a new one is not forgotten.
        let ApplianceView {
            id: _,
            number: _,
            weight: _,
            health,
            share_permille,
            titles_permille,
            base_url,
            plain_url,
            load,
        } = appliance;
        let (bottleneck, load_permille) = load.worst();
        Self {
            health: *health,
            has_url: base_url.is_some(),
            has_plain_url: plain_url.is_some(),
            share_permille: *share_permille,
            titles_permille: *titles_permille,
            bottleneck,
            load_permille,
        }
    }

    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        bytes.push(
            place(&HEALTHS, &self.health)
                | (place(&BOTTLENECKS, &self.bottleneck) << BOTTLENECK_SHIFT)
                | flag(self.has_url, URL)
                | flag(self.has_plain_url, PLAIN_URL),
        );
        put(bytes, WHOLE_PERMILLE.saturating_sub(self.share_permille));
        put(bytes, WHOLE_PERMILLE.saturating_sub(self.titles_permille));
        put(bytes, self.load_permille);
    }

    pub(crate) fn decode(input: &mut Input<'_>) -> Option<Self> {
        let flags = input.byte()?;
        Some(Self {
            health: *HEALTHS.get(usize::from(flags & 7))?,
            bottleneck: *BOTTLENECKS.get(usize::from((flags >> BOTTLENECK_SHIFT) & 7))?,
            has_url: flags & URL != 0,
            has_plain_url: flags & PLAIN_URL != 0,
            share_permille: WHOLE_PERMILLE.checked_sub(input.narrow()?)?,
            titles_permille: WHOLE_PERMILLE.checked_sub(input.narrow()?)?,
            load_permille: input.number()?,
        })
    }

    /// An appliance that steering treats as it would the one that this was taken of.
    pub(crate) fn give(&self, appliance: &mut ApplianceView) {
        let Self { health, has_url, has_plain_url, .. } = *self;
        let Self { share_permille, titles_permille, bottleneck, load_permille, .. } = *self;
        appliance.health = health;
        appliance.share_permille = share_permille;
        appliance.titles_permille = titles_permille;
        appliance.base_url = has_url.then(|| Arc::from(""));
        appliance.plain_url = has_plain_url.then(|| Arc::from(""));
        appliance.load = load(bottleneck, load_permille);
    }
}

/// The place of one among all of its kind, of which there are few.
pub(crate) fn place<T: PartialEq>(all: &[T], one: &T) -> u8 {
    let place = all.iter().position(|of| of == one).expect("all are there");
    u8::try_from(place).expect("there are six")
}

/// As much in use of the same thing, and nothing of others.
fn load(bottleneck: Bottleneck, permille: u64) -> Load {
    let mut load = Load::default();
    let narrow = u32::try_from(permille).unwrap_or(u32::MAX);
    match bottleneck {
        Bottleneck::Cpu => load.cpu_permille = narrow,
        Bottleneck::Egress => {
            (load.egress, load.egress_max) = (BitsPerSecond(permille), BitsPerSecond(1000));
        }
        Bottleneck::Drives => load.drives_permille = narrow,
        Bottleneck::Connections => (load.connections, load.connections_max) = (permille, 1000),
        Bottleneck::Memory => load.memory_permille = narrow,
        Bottleneck::Drops => load.drops_permille = narrow,
    }
    load
}

pub(crate) fn encode_site(bytes: &mut Vec<u8>, site: &SiteView) {
    let SiteView { id, serves_strangers, appliances } = site;
    put_text(bytes, id.as_str());
    bytes.push(u8::from(*serves_strangers));
    put(bytes, Bytes::of(appliances.len()).0);
    for appliance in appliances {
        put(bytes, appliance.number);
        put_text(bytes, appliance.id.as_str());
        put(bytes, appliance.weight.value());
        Vital::of(appliance).encode(bytes);
    }
}

pub(crate) fn decode_site(input: &mut Input<'_>) -> Option<SiteView> {
    let id = input.text()?.parse().ok()?;
    let serves_strangers = input.flag()?;
    let appliances = (0..input.count()?).map(|_| decode_appliance(input)).collect::<Option<_>>()?;
    Some(SiteView { id, serves_strangers, appliances })
}

fn decode_appliance(input: &mut Input<'_>) -> Option<ApplianceView> {
    let number = input.narrow().filter(|number| *number < NUMBERS_MAX)?;
    let id = input.text()?.parse().ok()?;
    let weight = Weight::new(input.narrow()?)?;
    let mut appliance = ApplianceView {
        id,
        number,
        weight,
        health: Health::NeverSeen,
        share_permille: WHOLE_PERMILLE,
        titles_permille: WHOLE_PERMILLE,
        base_url: None,
        plain_url: None,
        load: Load::default(),
    };
    Vital::decode(input)?.give(&mut appliance);
    Some(appliance)
}

/// Numbers of sites and of appliances that a file may name: each has a place in memory. Fifty times
/// as many as we plan for.
pub(crate) const NUMBERS_MAX: u32 = 1 << 20;

/// Puts a site in its place in a picture. Whoever stood in it and is not there any more goes,
/// unless it stands elsewhere by now.
pub(crate) fn show_site(view: &mut FleetView, number: u32, site: Arc<SiteView>) {
    let kept: BTreeSet<u32> = site.appliances.iter().map(|appliance| appliance.number).collect();
    let gone: Vec<u32> = view.sites.get(number).map_or(Vec::new(), |old| {
        let here = |of: &u32| view.position(*of).is_some_and(|position| position.site == number);
        let left = old.appliances.iter().map(|old| old.number);
        left.filter(|of| !kept.contains(of) && here(of)).collect()
    });
    gone.into_iter().for_each(|of| view.take_appliance(of));
    view.put_site(number, site);
}
