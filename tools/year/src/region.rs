//! A region through a year: each day is planned, filled and watched.

use model::number::{NumberSet, index};

use crate::cache::{Lru, S3Fifo};
use crate::catalogue::{Catalogue, Taste, mean_session};
use crate::demanded::Demanded;
use crate::draw::Draw;
use crate::number::whole;
use crate::parameters::{Size, WARM_UP_WEEKS, WINDOW, ZONES};
use crate::plans::{Past, Told};
use crate::sessions::{self, Day, Rates};
use crate::shelves::Shelf;
use crate::sites::{EXCHANGE, KINDS, Kind, Site, kinds, sites, throughput};
use crate::tally::{Calendar, Policy, Tally};

/// For each item and placing policy, which members of a site hold it, a bit for each.
pub(crate) type Holders = Vec<[u8; 4]>;

#[derive(Debug)]
pub(crate) struct Region<'a> {
    pub(crate) catalogue: &'a Catalogue,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) sites: Vec<Site>,
    pub(crate) tally: Tally,
    /// By kind.
    pub(crate) holders: Vec<Holders>,
    /// By filled policy, kind and member.
    pub(crate) shelves: [Vec<Vec<Shelf>>; 2],
    /// What pieces are worth by the last forecast, by filled policy.
    pub(crate) worth: [Vec<f64>; 2],
    /// What each member can send in an hour, by site.
    pub(crate) capacity: Vec<[u64; 4]>,
    /// The same of a mean site of each kind, all members together, and its part of the demand.
    pub(crate) means: Vec<(f64, f64)>,
    pub(crate) past: Past,
    pub(crate) told: Vec<Told>,
    /// What `expected` held at the begin of the week, by kind and item: copies.
    pub(crate) week: Vec<Vec<u8>>,
    /// Those that are lost one evening: with others in reach, and without.
    pub(crate) lost: Vec<usize>,
    taste: Taste,
    lru: Demanded<Lru>,
    s3fifo: Demanded<S3Fifo>,
    seed: u64,
    number: u32,
}

impl<'a> Region<'a> {
    pub(crate) fn new(catalogue: &'a Catalogue, seed: u64, number: u32, size: Size) -> Self {
        let (kinds, sites) =
            (kinds(catalogue.bytes(WARM_UP_WEEKS * 7)), sites(seed, number, size.sites));
        let items = catalogue.lens.len();
        // A taste of its own: that of the year has its days in order.
        let weights = Taste::new(catalogue, seed, number).weights(catalogue, 0);
        let session = mean_session(catalogue, &weights);
        let each = |site: &Site| session * throughput(site, &sites, sessions::busiest());
        let capacity = sites.iter().map(|site| {
            let mut members = [0; 4];
            for (member, of) in members.iter_mut().zip(&kinds[site.kind].members) {
                *member = whole(each(site) * of.part);
            }
            members
        });
        let capacity = capacity.collect();
        let all: f64 = sites.iter().map(|site| site.sessions).sum();
        let mean = |kind| {
            let of_kind: Vec<&Site> = sites.iter().filter(|site| site.kind == kind).collect();
            let count = f64::from(u32::try_from(of_kind.len()).unwrap_or(0)).max(1.0);
            let share = of_kind.iter().map(|site| site.sessions).sum::<f64>() / all / count;
            (of_kind.iter().map(|site| each(site)).sum::<f64>() / count, share)
        };
        let shelves = || {
            let kind = |kind: &Kind| kind.members.iter().map(|of| Shelf::new(of.room)).collect();
            kinds.iter().map(kind).collect()
        };
        Self {
            catalogue,
            tally: Tally::new(Calendar { weeks: size.weeks }),
            holders: vec![vec![[0; 4]; items]; KINDS],
            shelves: [shelves(), shelves()],
            worth: [Vec::new(), Vec::new()],
            capacity,
            means: (0..KINDS).map(mean).collect(),
            past: Past::new(ZONES[index(number)], WINDOW[0]),
            told: Vec::new(),
            week: vec![vec![0; items]; KINDS],
            lost: lost(&sites),
            taste: Taste::new(catalogue, seed, number),
            lru: Demanded::new(&sites, &kinds, items),
            s3fifo: Demanded::new(&sites, &kinds, items),
            kinds,
            sites,
            seed,
            number,
        }
    }

    /// Plays all days.
    pub(crate) fn play(mut self) -> Tally {
        for day in 0..self.tally.calendar.days() {
            self.day(day);
        }
        self.tally
    }

    fn day(&mut self, day: u32) {
        let weights = self.taste.weights(self.catalogue, day);
        let rates = Rates::new(self.catalogue, &weights, day);
        let watched = Day::new(&self.sites, &rates, day, self.seed, self.number);
        let lens = &self.catalogue.lens[..weights.len()];
        let by_item = watched.by_item(0..self.sites.len(), lens);
        self.plan(day, &rates, &by_item);
        if day.is_multiple_of(8) && WARM_UP_WEEKS * 7 <= day {
            self.look_at_own(day, &watched);
        }
        self.watch(day, &watched);
        let mut draw = Draw::of(self.seed, "caches", u64::from(self.number) << 32 | u64::from(day));
        let (sites, lens) = (&self.sites, &self.catalogue.lens);
        let lru = &mut self.tally.flows[Policy::Lru.at()];
        self.lru.day((day, &watched), sites, lens, &mut draw, lru);
        let s3fifo = &mut self.tally.flows[Policy::S3Fifo.at()];
        self.s3fifo.day((day, &watched), sites, lens, &mut draw, s3fifo);
        self.past.note(day, &by_item);
    }

    /// A member holds an item, or does not any more.
    pub(crate) fn set(&mut self, policy: Policy, kind: usize, item: u32, member: usize, is: bool) {
        let holders = &mut self.holders[kind][index(item)][policy.at()];
        let bit = 1 << member;
        if is { *holders |= bit } else { *holders &= !bit }
    }

    /// All that a kind of sites holds from now on.
    pub(crate) fn set_all(&mut self, policy: Policy, kind: usize, plan: &[NumberSet]) {
        self.holders[kind].iter_mut().for_each(|holders| holders[policy.at()] = 0);
        for (member, items) in plan.iter().enumerate() {
            items.iter().for_each(|item| self.set(policy, kind, item, member, true));
        }
    }
}

/// The embedded site with most viewers that has another in reach, and that with most that has none.
fn lost(sites: &[Site]) -> Vec<usize> {
    let embedded = || sites.iter().enumerate().filter(|(_, site)| site.kind != EXCHANGE);
    let most = |alone: bool| {
        let of = embedded().filter(|(_, site)| site.reach.is_empty() == alone);
        of.max_by(|a, b| a.1.sessions.total_cmp(&b.1.sessions)).map(|(at, _)| at)
    };
    [most(false), most(true)].into_iter().flatten().collect()
}
