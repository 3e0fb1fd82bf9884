//! The picture of the fleet in a file, as far as lists depend on it.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::id::ApplianceId;
use model::topology::Weight;
use model::units::{BitsPerSecond, Bytes};
use model::view::{ApplianceView, FleetView, Health, Load, SiteView};

use crate::codec::{Input, put, put_text};

/// What changes most about an appliance, as far as lists depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vital {
    health: Health,
    recovering: bool,
    has_url: bool,
    has_plain_url: bool,
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
const RECOVERING: u8 = 8;
const URL: u8 = 16;
const PLAIN_URL: u8 = 32;

impl Vital {
    pub(crate) fn of(appliance: &ApplianceView) -> Self {
        // All fields, so that a new one is not forgotten.
        let ApplianceView {
            id: _,
            number: _,
            weight: _,
            health,
            recovering,
            base_url,
            plain_url,
            load,
        } = appliance;
        Self {
            health: *health,
            recovering: *recovering,
            has_url: base_url.is_some(),
            has_plain_url: plain_url.is_some(),
            load_permille: load.permille(),
        }
    }

    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        let health = HEALTHS.iter().position(|of| *of == self.health).expect("all are there");
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        bytes.push(
            u8::try_from(health).expect("there are six")
                | flag(self.recovering, RECOVERING)
                | flag(self.has_url, URL)
                | flag(self.has_plain_url, PLAIN_URL),
        );
        put(bytes, self.load_permille);
    }

    pub(crate) fn decode(input: &mut Input<'_>) -> Option<Self> {
        let flags = input.byte()?;
        Some(Self {
            health: *HEALTHS.get(usize::from(flags & 7))?,
            recovering: flags & RECOVERING != 0,
            has_url: flags & URL != 0,
            has_plain_url: flags & PLAIN_URL != 0,
            load_permille: input.number()?,
        })
    }

    /// An appliance that steering treats as it would the one that this was taken of.
    pub(crate) fn give(&self, appliance: &mut ApplianceView) {
        let Self { health, recovering, has_url, has_plain_url, load_permille } = *self;
        appliance.health = health;
        appliance.recovering = recovering;
        appliance.base_url = has_url.then(|| Arc::from(""));
        appliance.plain_url = has_plain_url.then(|| Arc::from(""));
        appliance.load = load(load_permille);
    }
}

/// The same share in use.
fn load(permille: u64) -> Load {
    let (egress, egress_max) = (BitsPerSecond(0), BitsPerSecond(0));
    Load { connections: permille, connections_max: 1000, egress, egress_max }
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
        recovering: false,
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
    let gone: Vec<ApplianceId> = view.sites.get(number).map_or(Vec::new(), |old| {
        let left = old.appliances.iter().filter(|old| !kept.contains(&old.number));
        let here =
            |old: &&ApplianceView| view.placed(old.number).is_some_and(|at| at.number == number);
        left.filter(here).map(|old| old.id.clone()).collect()
    });
    gone.iter().for_each(|id| view.take_appliance(id));
    view.put_site(number, site);
}
