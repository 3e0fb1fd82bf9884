//! What a plan is worth: its load under what viewers really watch, and what it moves.

use model::number::{NumberSet, index};
use model::profile::Profile;
use placement::plan::{ClusterPlan, MemberPlan};
use serde::Serialize;

use super::Plans;
use super::world::{Day, Machine, Region, SITES, World, real};

/// A figure of each profile.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Profiles<T> {
    pub(super) flash: T,
    pub(super) storage: T,
    pub(super) global: T,
}

impl<T: Copy> Profiles<T> {
    pub(super) fn map<U>(self, of: impl Fn(T) -> U) -> Profiles<U> {
        let Self { flash, storage, global } = self;
        Profiles { flash: of(flash), storage: of(storage), global: of(global) }
    }

    fn each(&mut self) -> [(Profile, &mut T); 3] {
        let Self { flash, storage, global } = self;
        [(Profile::Flash, flash), (Profile::Storage, storage), (Profile::Global, global)]
    }
}

/// The highest load by the mean, of sites.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Uneven {
    pub(super) most: f64,
    sum: f64,
    sites: u32,
}

impl Uneven {
    fn note(&mut self, uneven: f64) {
        self.most = self.most.max(uneven);
        self.sum += uneven;
        self.sites += 1;
    }

    fn add(&mut self, other: Self) {
        self.most = self.most.max(other.most);
        self.sum += other.sum;
        self.sites += other.sites;
    }

    pub(super) fn mean(self) -> f64 {
        if self.sites == 0 { 0.0 } else { self.sum / f64::from(self.sites) }
    }
}

/// What was found of a region, or of several.
#[derive(Clone, Debug, Default)]
pub(super) struct Judged {
    pub(super) appliances: u64,
    pub(super) placements: u64,
    pub(super) load: Profiles<Uneven>,
    /// The same if all was as expected.
    pub(super) expected: Profiles<Uneven>,
    /// Bytes that come, that must, that were held, and that come for balance alone.
    pub(super) moved: f64,
    pub(super) minimum: f64,
    pub(super) held: f64,
    pub(super) exchanged: f64,
    /// Bytes a day that sites serve themselves, and that viewers want.
    pub(super) served: f64,
    pub(super) wanted: f64,
    pub(super) at_origin: u64,
    pub(super) digest: String,
}

impl Judged {
    /// Adds the next region.
    pub(super) fn add(&mut self, other: Self) {
        self.appliances += other.appliances;
        self.placements += other.placements;
        let both = [(&mut self.load, other.load), (&mut self.expected, other.expected)];
        for (sum, mut other) in both {
            for ((_, of), (_, other)) in sum.each().into_iter().zip(other.each()) {
                of.add(*other);
            }
        }
        self.moved += other.moved;
        self.minimum += other.minimum;
        self.held += other.held;
        self.exchanged += other.exchanged;
        self.served += other.served;
        self.wanted += other.wanted;
        self.at_origin += other.at_origin;
        let both = [self.digest.as_str(), other.digest.as_str()].concat();
        self.digest = blake3::hash(both.as_bytes()).to_hex().to_string();
    }
}

/// Judges region after region, with tables by item that it uses again.
pub(super) struct Judge<'a> {
    world: &'a World,
    /// What is watched at peak in the region, bits a second.
    watched: Vec<f32>,
    lens: Vec<u64>,
    /// Of a site: the weights of an item's holders, its copies, and those that are there already.
    weights: Vec<u16>,
    copies: Vec<u8>,
    there: Vec<u8>,
}

impl<'a> Judge<'a> {
    pub(super) fn new(world: &'a World) -> Self {
        let count = index(world.items_end());
        let mut lens = vec![0; count];
        for day in [Day::First, Day::Second] {
            for piece in world.catalogue(day).pieces() {
                lens[index(piece.item.0)] = piece.len.0;
            }
        }
        let (watched, weights) = (vec![0.0; count], vec![0; count]);
        Self { world, watched, lens, weights, copies: vec![0; count], there: vec![0; count] }
    }

    pub(super) fn judge(
        &mut self,
        number: u32,
        day: Day,
        region: &Region,
        held: Option<&Plans>,
        plans: &[ClusterPlan],
    ) -> Judged {
        self.watched.fill(0.0);
        for of in &region.wanted {
            let error = self.world.region_error(number, of.item.0);
            self.watched[index(of.item.0)] = single(real(of.peak.0) * error);
        }
        let mut judged = Judged { wanted: region.day, ..Judged::default() };
        let mut hasher = blake3::Hasher::new();
        for (at, (machines, plan)) in region.sites.iter().zip(plans).enumerate() {
            let site = number * SITES + u32::try_from(at).unwrap_or(0);
            let loads = self.loads(site, machines, plan);
            note(machines, &loads, &mut judged.load);
            let loads: Vec<f64> = plan.members.iter().map(|of| real(of.load.0)).collect();
            note(machines, &loads, &mut judged.expected);
            if day == Day::Second
                && let Some(held) = held
            {
                self.moves(machines, plan, &held[at], &mut judged);
            }
            for of in &plan.members {
                judged.placements += of.items.len();
                let items: Vec<u8> = of.items.iter().flat_map(u32::to_le_bytes).collect();
                hasher.update(&of.items.len().to_le_bytes()).update(&items);
            }
            judged.appliances += real_count(machines.len());
            judged.exchanged += real(plan.exchanged.0);
            judged.served += real(plan.served.0);
        }
        judged.digest = hasher.finalize().to_hex().to_string();
        judged
    }

    /// Of what viewers really watch.
    fn loads(&mut self, site: u32, machines: &[Machine], plan: &ClusterPlan) -> Vec<f64> {
        let weight = |of: &Machine| u16::try_from(of.weight.value()).unwrap_or(u16::MAX);
        for (of, member) in machines.iter().zip(&plan.members) {
            member.items.iter().for_each(|item| self.weights[index(item)] += weight(of));
        }
        let load = |(of, member): (&Machine, &MemberPlan)| {
            let part = |item: u32| {
                let watched = f64::from(self.watched[index(item)]);
                let part = f64::from(weight(of)) / f64::from(self.weights[index(item)]);
                watched * self.world.site_error(site, item) * part
            };
            member.items.iter().map(part).sum()
        };
        let loads = machines.iter().zip(&plan.members).map(load).collect();
        for member in &plan.members {
            member.items.iter().for_each(|item| self.weights[index(item)] = 0);
        }
        loads
    }

    fn moves(
        &mut self,
        machines: &[Machine],
        plan: &ClusterPlan,
        held: &[NumberSet],
        judged: &mut Judged,
    ) {
        let stays = || machines.iter().zip(held).filter(|(of, _)| !of.is_new).map(|(_, of)| of);
        for item in stays().flatten() {
            self.there[index(item)] += 1;
        }
        for item in plan.members.iter().flat_map(|of| &of.items) {
            self.copies[index(item)] += 1;
        }
        for item in plan.members.iter().flat_map(|of| &of.items) {
            let at = index(item);
            let missing = self.copies[at].saturating_sub(self.there[at]);
            // Once for each item.
            self.copies[at] = 0;
            judged.minimum += real(self.lens[at]) * f64::from(missing);
        }
        for item in stays().flatten() {
            self.there[index(item)] = 0;
        }
        for ((of, was), is) in machines.iter().zip(held).zip(&plan.members) {
            let sum = |items: &NumberSet| -> u64 {
                items.iter().map(|item| self.lens[index(item)]).sum()
            };
            let comes = if of.is_new { sum(&is.items) } else { sum(&(&is.items - was)) };
            judged.moved += real(comes);
            judged.held += real(sum(was));
        }
    }
}

fn note(machines: &[Machine], loads: &[f64], load: &mut Profiles<Uneven>) {
    for (profile, uneven) in load.each() {
        let of_profile = machines.iter().zip(loads).filter(|(of, _)| of.profile == profile);
        let loads: Vec<f64> = of_profile.map(|(_, load)| *load).collect();
        let mean = loads.iter().sum::<f64>() / real(real_count(loads.len()));
        if 1 < loads.len() && 0.0 < mean {
            uneven.note(loads.iter().fold(0.0, |most: f64, load| most.max(*load)) / mean);
        }
    }
}

fn real_count(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

#[expect(clippy::as_conversions, reason = "half of the memory, and a model's figure")]
fn single(x: f64) -> f32 {
    x as f32
}
