//! Each night's plans, and each hour's fill.

use model::number::{NumberSet, index};
use model::units::{BitsPerSecond, Bytes};
use placement::plan::{Catalogue as Pieces, Order, Wanted};

use crate::catalogue::{Origin, RENDITIONS, Unit, mean_watched};
use crate::number::{real, whole};
use crate::parameters::{FAST_TRACK_MBPS, URGENT_HOURS, WARM_UP_WEEKS, WINDOW};
use crate::plans::{self, Before, Told};
use crate::region::Region;
use crate::sessions::{Day, Rates, SLOTS, curve};
use crate::shelves::{Change, Pieces as Shelved, Shelf};
use crate::sites::{EXCHANGE, KINDS};
use crate::tally::Policy;

/// Hours of the window, which are the first of the day.
pub(crate) const WINDOW_SLOTS: usize = 12;
/// What the operator said of a launch is of no use after so many days.
const TOLD_DAYS: u32 = 14;

/// The unit that a filled policy places.
fn unit(policy: Policy) -> Unit {
    if policy == Policy::Title { Unit::Title } else { Unit::Rendition }
}

/// The hour of a plan's day at which urgent versions come.
fn urgent_slot() -> usize {
    index(URGENT_HOURS[0] - WINDOW[0])
}

/// What a plan is made of: the forecast of a unit, and what its pieces are worth by it.
struct Night {
    wanted: Vec<Wanted>,
    worth: Vec<f64>,
    pieces: Pieces,
}

impl Region<'_> {
    /// Before the window opens.
    pub(crate) fn plan(&mut self, day: u32, rates: &Rates, by_item: &[[u64; SLOTS]]) {
        assert_eq!(index(WINDOW[1] - WINDOW[0]), WINDOW_SLOTS, "the window's hours");
        let expected = self.expect(day, rates);
        self.hear_of_launches(day, rates);
        let count = self.catalogue.count(day);
        self.plan_filled(day, count - self.urgent(day).len());
        let pieces = plans::pieces(self.catalogue, count, Unit::Rendition);
        let actual = plans::as_wanted(by_item);
        for (policy, wanted) in [(Policy::Clairvoyant, actual), (Policy::Expected, expected)] {
            let order = Order::new(&pieces, &wanted);
            for kind in 0..KINDS {
                let (throughput, share) = self.means[kind];
                let of = &self.kinds[kind];
                let plan = plans::plan(&order, of, share, throughput, &Before::Nothing);
                self.set_all(policy, kind, &plan);
                if policy == Policy::Expected && self.tally.calendar.parts_weeks(day) {
                    self.count_least(day, kind, &plan);
                }
            }
        }
    }

    /// Versions that come this afternoon.
    fn urgent(&self, day: u32) -> Vec<u32> {
        let count = self.catalogue.count(day);
        let there = (0..).zip(&self.catalogue.versions[..count]);
        there.filter(|(_, of)| of.is_urgent_on(day)).map(|(version, _)| version).collect()
    }

    /// What is expected of each item, by the rates from which sessions are drawn.
    fn expect(&self, day: u32, rates: &Rates) -> Vec<Wanted> {
        let all: f64 = self.sites.iter().map(|site| site.sessions).sum();
        let curve = curve(day);
        let hours: Vec<(f64, &[f64])> =
            (0..SLOTS).map(|slot| (all * curve[slot] * mean_watched(), rates.at(slot))).collect();
        let mut wanted = Vec::new();
        for (item, len) in (0..).zip(&self.catalogue.lens[..hours[0].1.len()]) {
            let (mut sum, mut most) = (0.0, 0.0_f64);
            for (sessions, parts) in &hours {
                let bytes = sessions * parts[index(item)] * real(*len);
                sum += bytes;
                most = most.max(bytes);
            }
            if 1.0 <= sum {
                let peak = BitsPerSecond(whole(most * 8.0 / 3_600.0));
                let (item, day) = (model::id::Item(item), Bytes(whole(sum)));
                wanted.push(Wanted { item, day, peak });
            }
        }
        wanted
    }

    /// The operator says what a whole day will be like, and is off by a factor.
    fn hear_of_launches(&mut self, day: u32, rates: &Rates) {
        self.told.retain(|told| day < told.day + TOLD_DAYS);
        let all: f64 = self.sites.iter().map(|site| site.sessions).sum();
        let sessions = all * curve(day).iter().sum::<f64>() * mean_watched();
        let last = rates.at(SLOTS - 1);
        let mut big = 0.0;
        for (at, version) in self.catalogue.versions.iter().enumerate() {
            if version.origin == Origin::Old || version.day() != day {
                continue;
            }
            let first = at * index(RENDITIONS);
            let items = last.iter().zip(&self.catalogue.lens).enumerate();
            for (item, (part, len)) in items.skip(first).take(index(RENDITIONS)) {
                let bytes = sessions * part * real(*len);
                big += if version.origin == Origin::Big { bytes } else { 0.0 };
                let (item, slot) = (u32::try_from(item).unwrap_or(u32::MAX), version.slot());
                self.told.push(Told { item, day, slot, bytes: bytes * version.told });
            }
        }
        if 0.0 < big && WARM_UP_WEEKS * 7 <= day {
            self.tally.launches.push((day, big));
        }
    }

    /// The product's forecast, with launches of these versions only: it has not heard of others.
    fn forecast(&self, day: u32, versions: usize) -> Vec<Wanted> {
        let limit = u32::try_from(versions).unwrap_or(u32::MAX) * RENDITIONS;
        let told = self.told.iter().copied().filter(|told| told.item < limit);
        self.past.forecast(day, &told.collect::<Vec<Told>>())
    }

    fn night(&self, forecast: &[Wanted], versions: usize, unit: Unit) -> Night {
        let wanted = plans::of_unit(forecast, unit);
        let pieces = plans::pieces(self.catalogue, versions, unit);
        let worth = plans::worth(&wanted, self.catalogue.piece_lens(unit));
        Night { wanted, worth, pieces }
    }

    /// A plan of the product for one kind of sites.
    fn plan_kind(
        &self,
        policy: Policy,
        kind: usize,
        order: &Order<'_>,
        fill: u64,
    ) -> Vec<NumberSet> {
        let (throughput, share) = self.means[kind];
        let (shelves, lens) =
            (&self.shelves[policy.at()][kind], self.catalogue.piece_lens(unit(policy)));
        let before = Before::Shelves { shelves, lens, fill };
        plans::plan(order, &self.kinds[kind], share, throughput, &before)
    }

    fn plan_filled(&mut self, day: u32, versions: usize) {
        let forecast = self.forecast(day, versions);
        for policy in Policy::FILLED {
            let night = self.night(&forecast, versions, unit(policy));
            let order = Order::new(&night.pieces, &night.wanted);
            for kind in 0..KINDS {
                let hours = u64::try_from(WINDOW_SLOTS).unwrap_or(0);
                let fill = self.kinds[kind].fill * hours;
                let plan = self.plan_kind(policy, kind, &order, fill);
                self.put_in_force((policy, kind), plan, &night.worth, (day, 0));
            }
            self.worth[policy.at()] = night.worth;
        }
    }

    /// An hour's fill, before its viewers come: the exchange's first.
    pub(crate) fn fill(&mut self, day: u32, slot: usize) {
        let is_urgent = slot == urgent_slot() && !self.urgent(day).is_empty();
        if is_urgent {
            self.plan_urgent(day);
        }
        let is_fast = urgent_slot() <= slot && !self.urgent(day).is_empty();
        if WINDOW_SLOTS <= slot && !is_fast {
            return;
        }
        for policy in Policy::FILLED {
            let worth = std::mem::take(&mut self.worth[policy.at()]);
            for kind in [EXCHANGE].into_iter().chain(0..EXCHANGE) {
                let rate =
                    if is_fast { FAST_TRACK_MBPS * 125_000 * 3_600 } else { self.kinds[kind].fill };
                if !is_fast {
                    self.go_on_with_handovers((policy, kind), &worth, (day, slot));
                }
                for member in 0..self.kinds[kind].members.len() {
                    let changes = self.fill_one(policy, kind, member, rate, &worth);
                    self.apply(policy, kind, member, &changes, (day, slot));
                }
            }
            self.worth[policy.at()] = worth;
        }
    }

    /// A plan of one kind of sites, with what stays where it is until others have it.
    fn put_in_force(
        &mut self,
        (policy, kind): (Policy, usize),
        planned: Vec<NumberSet>,
        worth: &[f64],
        at: (u32, usize),
    ) {
        let pieces = Shelved { lens: self.catalogue.piece_lens(unit(policy)), worth };
        let handovers = plans::handovers(&self.shelves[policy.at()][kind], &planned, pieces);
        for (member, (planned, handover)) in planned.into_iter().zip(handovers).enumerate() {
            let mut changes = Vec::new();
            let shelf = &mut self.shelves[policy.at()][kind][member];
            shelf.plan(planned, &handover, pieces, &mut changes);
            self.apply(policy, kind, member, &changes, at);
        }
    }

    /// Others have what stayed, and it goes: control plans each half hour while something stays,
    /// and comes to the same plan by the same forecast.
    fn go_on_with_handovers(
        &mut self,
        (policy, kind): (Policy, usize),
        worth: &[f64],
        at: (u32, usize),
    ) {
        let shelves = &self.shelves[policy.at()][kind];
        if shelves.iter().any(Shelf::hands_over) {
            let planned = shelves.iter().map(|shelf| shelf.planned().clone()).collect();
            self.put_in_force((policy, kind), planned, worth, at);
        }
    }

    fn fill_one(
        &mut self,
        policy: Policy,
        kind: usize,
        member: usize,
        rate: u64,
        worth: &[f64],
    ) -> Vec<Change> {
        let lens = self.catalogue.piece_lens(unit(policy));
        let mut changes = Vec::new();
        let shelf = &mut self.shelves[policy.at()][kind][member];
        shelf.fill(rate, Shelved { lens, worth }, &mut changes);
        changes
    }

    fn apply(
        &mut self,
        policy: Policy,
        kind: usize,
        member: usize,
        changes: &[Change],
        (day, slot): (u32, usize),
    ) {
        for change in changes {
            let (piece, is) = match change {
                Change::Came(piece) => (*piece, true),
                Change::Left(piece) => (*piece, false),
            };
            if is {
                self.count_sources(policy, kind, piece, (day, slot));
            }
            for item in piece..piece + unit(policy).items() {
                self.set(policy, kind, item, member, is);
            }
        }
    }

    /// A piece came to each site of a kind: from where?
    fn count_sources(
        &mut self,
        policy: Policy,
        kind: usize,
        piece: u32,
        (day, slot): (u32, usize),
    ) {
        let len = self.catalogue.piece_lens(unit(policy))[index(piece)];
        let holds = |kind: usize| self.holders[kind][index(piece)][policy.at()] != 0;
        let hour = index(day) * SLOTS + slot;
        let mut isps = Vec::new();
        let (mut peers, mut upstream, mut all) = (0, 0, 0);
        for site in self.sites.iter().filter(|site| site.kind == kind) {
            let is_sibling = |other: &&usize| self.sites[**other].kind != EXCHANGE;
            let siblings = site.reach.iter().filter(is_sibling);
            let has_peer = holds(kind)
                || isps.contains(&site.isp)
                || siblings.map(|other| self.sites[*other].kind).any(holds);
            all += len;
            if has_peer {
                peers += len;
            } else if site.reach.is_empty() || !holds(EXCHANGE) {
                upstream += len;
            }
            isps.push(site.isp);
        }
        let counts = self.tally.calendar.counts(hour);
        let is_urgent = self.catalogue.versions[index(piece / RENDITIONS)].is_urgent_on(day);
        let flow = self.tally.flow(policy);
        flow.upstream[hour] += upstream;
        if counts {
            flow.moved += all;
            flow.moved_from_peers += peers;
            if WINDOW_SLOTS <= slot {
                flow.outside += all;
                flow.fast_track += if is_urgent { all } else { 0 };
            }
        }
    }

    /// A plan by hand, of which only what is urgent comes at once.
    fn plan_urgent(&mut self, day: u32) {
        let urgent = self.urgent(day);
        let count = self.catalogue.count(day);
        let forecast = self.forecast(day, count);
        for policy in Policy::FILLED {
            let items = unit(policy).items();
            let only: NumberSet = urgent
                .iter()
                .flat_map(|version| version * RENDITIONS..(version + 1) * RENDITIONS)
                .filter(|item| item % items == 0)
                .collect();
            let night = self.night(&forecast, count, unit(policy));
            let order = Order::new(&night.pieces, &night.wanted);
            for kind in 0..KINDS {
                let hours = u64::from(URGENT_HOURS[1] - URGENT_HOURS[0]);
                let plan =
                    self.plan_kind(policy, kind, &order, FAST_TRACK_MBPS * 125_000 * 3_600 * hours);
                self.put_in_force((policy, kind), plan, &night.worth, (day, urgent_slot()));
                for shelf in &mut self.shelves[policy.at()][kind] {
                    shelf.hurry(&only);
                }
            }
            self.worth[policy.at()] = night.worth;
        }
    }

    /// What the right sets at a week's end have more than those at its begin.
    fn count_least(&mut self, day: u32, kind: usize, plan: &[NumberSet]) {
        let mut copies = vec![0_u8; self.catalogue.lens.len()];
        plan.iter().flatten().for_each(|item| copies[index(item)] += 1);
        let sites = self.sites.iter().filter(|site| site.kind == kind).count();
        let sites = u64::try_from(sites).unwrap_or(0);
        let before = std::mem::replace(&mut self.week[kind], copies);
        // A week that counts ends: its first day's are only what it began with.
        if WARM_UP_WEEKS * 7 < day {
            let more = self.week[kind].iter().zip(before).zip(&self.catalogue.lens);
            let bytes = more.map(|((now, then), len)| u64::from(now.saturating_sub(then)) * len);
            self.tally.least_moved += bytes.sum::<u64>() * sites;
        }
    }

    /// What sites would miss that know their own sessions of the day.
    pub(crate) fn look_at_own(&mut self, day: u32, watched: &Day) {
        let count = self.catalogue.count(day);
        let lens = &self.catalogue.lens[..count * index(RENDITIONS)];
        let pieces = plans::pieces(self.catalogue, count, Unit::Rendition);
        for at in 0..self.sites.len() {
            let kind = self.sites[at].kind;
            let wanted = plans::as_wanted(&watched.by_item(at..at + 1, lens));
            let order = Order::new(&pieces, &wanted);
            let throughput = self.capacity[at].iter().map(|of| real(*of)).sum();
            let plan = plans::plan(&order, &self.kinds[kind], 1.0, throughput, &Before::Nothing);
            for session in watched.of(at) {
                let bytes = session.bytes(lens);
                self.tally.own_bytes[kind] += bytes;
                if !plan.iter().any(|items| items.contains(session.item())) {
                    self.tally.own_miss[kind] += bytes;
                }
            }
        }
    }
}
