//! The table of all sites' prefixes: changed by one, read by many.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use ipnet::{Ipv4Net, Ipv6Net};
use model::id::SiteId;
use model::near::{By, Near, Step};
use model::number::index;
use model::place::{Nearness, Place};
use model::topology::{Prefix, Site};
use prefix_trie::PrefixMap;

use crate::attributes::Attributes;
use crate::digest::Digest;
use crate::filter::Longest;
use crate::hearing::Difference;
use crate::order::{Known, Way, behind, sort};

mod announced;
mod family;
mod work;

use family::{Family, Net, Ways};
use work::Work;
pub use work::{Done, SLICE};

/// Most sites that a client is told of. Beyond the first eight or so a client never comes.
pub const NEAR_MAX: usize = 32;

/// Few clients have more sites.
const SITES_USUAL: usize = 16;

/// Sites that are looked up by the distance to a client's place.
const NEAREST_MAX: usize = 8;

/// The table at one moment. Cheap to clone, never changes.
#[derive(Clone, Debug, Default)]
pub struct Table {
    sites: Arc<Vec<Option<Known>>>,
    v4: Family<Ipv4Net>,
    v6: Family<Ipv6Net>,
    places: Arc<Places>,
}

/// A client's sites.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Located {
    /// The longest prefix that covers the client.
    pub longest: Option<Prefix>,
    /// Best first, each once.
    pub sites: Vec<Near>,
}

/// Prefixes that one site alone has, also when shorter ones are looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unshared {
    /// By site: how many, and the first of them.
    pub by_site: BTreeMap<SiteId, (u64, Vec<Prefix>)>,
}

/// The table as its one writer has it.
#[derive(Debug)]
pub struct Routes {
    longest: Longest,
    /// Half changed while work is under way; `shown` never is.
    working: Table,
    shown: Table,
    numbers: BTreeMap<SiteId, u32>,
    /// The prefixes given by operators, and what each site was heard to have.
    own: BTreeMap<SiteId, Own>,
    /// Attributes by digest, so that sites share them.
    known: BTreeMap<u128, Arc<Attributes>>,
    /// As many of them as make a sweep due.
    sweep_at: usize,
    /// In turn; only the first may have begun.
    work: VecDeque<Work>,
}

#[derive(Debug, Default)]
struct Own {
    given: Vec<Prefix>,
    /// None before anything was heard.
    heard: Option<Tally>,
    /// The number of the table that is heard.
    table: u32,
    /// Some prefix may have a way that was heard.
    has_ways: bool,
    /// What it heard and is not believed: no client is led by it.
    refused: BTreeMap<Prefix, Arc<Attributes>>,
}

impl Own {
    /// It has ways of a table that is not heard any more.
    fn is_old(&self) -> bool {
        self.heard.is_none() && self.has_ways
    }
}

/// A site has a static prefix from now on, or has it no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Given {
    prefix: Prefix,
    site: u32,
    is_now: bool,
}

/// What one site heard, in short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    digest: Digest,
    /// Memory that it would take if nobody shared attributes.
    bytes: usize,
}

/// Most of it that a site may hear: two full tables with all their communities.
const SITE_BYTES_MAX: usize = 1 << 30;

/// Where clients are, and the sites near there.
#[derive(Clone, Debug, Default)]
struct Places {
    v4: PrefixMap<Ipv4Net, u32>,
    v6: PrefixMap<Ipv6Net, u32>,
    /// Each place once, with the sites that serve strangers, nearest first.
    all: Vec<(Place, Vec<(u32, Nearness)>)>,
}

impl Table {
    /// The sites of a client, best first: those with a prefix that covers it, by the order of this
    /// room; then the nearest ones, if anybody knows where the client is. Others are as good as
    /// each other.
    pub fn locate(&self, client: &Prefix) -> Located {
        match client {
            Prefix::V4(net) => self.locate_in(&self.v4, *net),
            Prefix::V6(net) => self.locate_in(&self.v6, *net),
        }
    }

    fn locate_in<N: Net>(&self, family: &Family<N>, client: N) -> Located {
        let (mut longest, mut sites) = (None, Vec::with_capacity(SITES_USUAL));
        // Beside them, so that one that comes again is found in two cache lines.
        let mut numbers = [0; NEAR_MAX];
        let full = family.covering(client, |prefix, ways| {
            longest.get_or_insert_with(|| prefix.any());
            let mut before: Option<usize> = None;
            for (at, way) in ways.iter().enumerate() {
                if NEAR_MAX <= sites.len() {
                    return Some(());
                }
                if numbers[..sites.len()].contains(&way.site) {
                    continue;
                }
                let step = match before {
                    None if sites.is_empty() => Step::First,
                    None => Step::Prefix,
                    Some(before) if before + 1 == at => way.step,
                    Some(before) => {
                        let before = ways.at(before);
                        let known = || self.known(way.site);
                        behind(&before, &way, || {
                            self.is_nearer(&prefix.any(), before.site, known())
                        })
                    }
                };
                before = Some(at);
                numbers[sites.len()] = way.site;
                let by = By::Route(way.route(prefix.any()));
                sites.push(Near { number: way.site, by, step });
            }
            None
        });
        if full.is_some() {
            return Located { longest, sites };
        }
        assert!(longest.is_some() || sites.is_empty(), "ways are those of a prefix");
        for (number, nearness) in self.places.near(&client.any()) {
            if NEAR_MAX <= sites.len() || sites.iter().any(|near| near.number == *number) {
                continue;
            }
            let step = match sites.last() {
                Some(Near { by: By::Route(_), .. }) => Step::NoRoute,
                Some(Near { by: By::Place(before), .. }) if before == nearness => Step::Name,
                Some(Near { by: By::Place(_), .. }) => Step::Place,
                None => Step::First,
            };
            sites.push(Near { number: *number, by: By::Place(*nearness), step });
        }
        assert!(sites.len() <= NEAR_MAX, "no more than that are looked at");
        Located { longest, sites }
    }

    /// The longest prefix that covers a client.
    pub fn longest(&self, client: &Prefix) -> Option<Prefix> {
        match client {
            Prefix::V4(net) => self.v4.covering(*net, |net, _| Some(net.any())),
            Prefix::V6(net) => self.v6.covering(*net, |net, _| Some(net.any())),
        }
    }

    /// The site of this number; none if it is gone.
    pub fn site(&self, number: u32) -> Option<&SiteId> {
        self.sites.get(index(number))?.as_ref().map(|known| &known.id)
    }

    /// How many prefixes there are, of IPv4 and of IPv6.
    pub fn len(&self) -> (usize, usize) {
        (self.v4.len(), self.v6.len())
    }

    /// True if no site has a prefix.
    pub fn is_empty(&self) -> bool {
        self.len() == (0, 0)
    }

    /// The prefixes that lead to one site alone, whose clients have nowhere to go by a route if it
    /// fails: no other site has the prefix or a shorter one that covers it. Of each site the first
    /// `examples_max`. O(prefixes): not for a request's path.
    pub fn unshared(&self, examples_max: usize) -> Unshared {
        let mut unshared = Unshared::default();
        self.unshared_in(&self.v4, examples_max, &mut unshared);
        self.unshared_in(&self.v6, examples_max, &mut unshared);
        unshared
    }

    fn unshared_in<N: Net>(&self, family: &Family<N>, examples_max: usize, to: &mut Unshared) {
        let alone = |ways: Ways<'_>, site: u32| ways.iter().all(|way| way.site == site);
        family.each(|prefix, ways| {
            let site = ways.at(0).site;
            // An operator's word is not what a network announced.
            let is_static = ways.iter().any(|way| way.heard.is_none());
            if is_static
                || !alone(ways, site)
                || family.covering(prefix, |_, ways| (!alone(ways, site)).then_some(())).is_some()
            {
                return;
            }
            let id = self.known(site).id.clone();
            let (count, examples) = to.by_site.entry(id).or_default();
            *count += 1;
            if examples.len() < examples_max {
                examples.push(prefix.any());
            }
            assert!(examples.len() <= examples_max, "the rest is counted");
        });
    }

    fn known(&self, number: u32) -> &Known {
        self.sites[index(number)].as_ref().expect("the ways of a site that is gone are gone")
    }

    fn is_nearer(&self, prefix: &Prefix, before: u32, site: &Known) -> bool {
        let before = self.known(before);
        // Nobody is farther than one that is nowhere, and to look up the prefix's place takes a
        // while.
        if before.place.is_none() {
            return false;
        }
        let place = self.places.of(prefix);
        let nearness = |of: &Known| Nearness::of(place, of.place.as_ref());
        nearness(before) < nearness(site)
    }
}

impl Places {
    /// The place of a client, or of all clients of a prefix.
    fn of(&self, client: &Prefix) -> Option<&Place> {
        self.number(client).map(|number| &self.all[number].0)
    }

    fn near(&self, client: &Prefix) -> &[(u32, Nearness)] {
        self.number(client).map_or(&[], |number| &self.all[number].1)
    }

    fn number(&self, client: &Prefix) -> Option<usize> {
        let found = match client {
            Prefix::V4(net) => self.v4.get_lpm(net).map(|(_, number)| *number),
            Prefix::V6(net) => self.v6.get_lpm(net).map(|(_, number)| *number),
        };
        found.map(index)
    }

    /// Sites of these numbers are others than before: which are near to each of the first places.
    /// O(places), and O(sites) for each place that one of them was near to.
    fn tell_apart(&mut self, count: usize, others: &BTreeSet<u32>, sites: &[Option<Known>]) {
        for (place, near) in &mut self.all[..count] {
            if near.iter().any(|(number, _)| others.contains(number)) {
                *near = nearest(place, (0..).zip(sites));
                continue;
            }
            let these = near.iter().map(|(number, _)| *number).chain(others.iter().copied());
            *near = nearest(place, these.map(|number| (number, &sites[index(number)])));
        }
    }
}

/// Those of these sites that serve strangers and are near to a place, nearest first.
fn nearest<'a>(
    place: &Place,
    sites: impl Iterator<Item = (u32, &'a Option<Known>)>,
) -> Vec<(u32, Nearness)> {
    let all = sites.filter_map(|(number, site)| {
        let site = site.as_ref().filter(|site| site.serves_strangers)?;
        let nearness = Nearness::of(Some(place), site.place.as_ref());
        (nearness != Nearness::UNKNOWN).then_some((nearness, &site.id, number))
    });
    let mut all: Vec<_> = all.collect();
    all.sort_unstable();
    all.into_iter().take(NEAREST_MAX).map(|(near, _, of)| (of, near)).collect()
}

impl Default for Routes {
    fn default() -> Self {
        Self::new(Longest::USUAL)
    }
}

impl Routes {
    /// An empty table; longer prefixes that sites hear lead no client.
    pub fn new(longest: Longest) -> Self {
        Self {
            longest,
            working: Table::default(),
            shown: Table::default(),
            numbers: BTreeMap::new(),
            own: BTreeMap::new(),
            known: BTreeMap::new(),
            sweep_at: 0,
            work: VecDeque::new(),
        }
    }

    /// What a site heard and is not believed, in order.
    pub fn refused(&self, site: &SiteId) -> impl ExactSizeIterator<Item = &Prefix> {
        static NONE: BTreeMap<Prefix, Arc<Attributes>> = BTreeMap::new();
        self.own.get(site).map_or(&NONE, |own| &own.refused).keys()
    }

    /// The table, with all work that is done and nothing of what is under way.
    pub fn table(&self) -> &Table {
        &self.shown
    }

    /// What a site was heard to have; none before anything was heard of it.
    pub fn heard(&self, site: &SiteId) -> Option<Digest> {
        Some(self.own.get(site)?.heard?.digest)
    }

    /// True while what a site hears is as large as it may be, and no larger.
    pub fn is_bounded(&self, site: &SiteId) -> bool {
        let heard = self.own.get(site).and_then(|own| own.heard).unwrap_or_default();
        heard.digest.is_bounded() && heard.bytes <= SITE_BYTES_MAX
    }

    /// The first sites are gone. The others are there, or other than before, with their static
    /// prefixes, and each has a number that no other site ever gets. Each is named once. All the
    /// rest stays as it is. What follows for prefixes that were announced is left to
    /// [`Routes::go_on`].
    pub fn change_sites<S: Borrow<Site>>(&mut self, gone: &[SiteId], there: &[(u32, S)]) {
        let (mut others, mut moved) = (BTreeSet::new(), BTreeSet::new());
        for id in gone {
            let Some(number) = self.numbers.get(id).copied() else { continue };
            let taken = self.give(id, &[]);
            self.change_given(taken);
            self.numbers.remove(id);
            let own = self.own.remove(id).expect("each site has its own");
            self.drop_work_of(id);
            self.leave(number, own.table);
        }
        for (number, site) in there.iter().map(|(number, site)| (*number, site.borrow())) {
            let known = Known {
                id: site.id.clone(),
                kind: site.kind,
                place: site.place.clone(),
                serves_strangers: site.serves_strangers(),
            };
            self.come_back(&site.id, number);
            let before = self.numbers.insert(site.id.clone(), number);
            assert!(before.is_none_or(|before| before == number), "a site keeps its number");
            if self.working.sites.get(index(number)).and_then(Option::as_ref) == Some(&known) {
                continue;
            }
            others.insert(number);
            let sites = Arc::make_mut(&mut self.working.sites);
            sites.resize(sites.len().max(index(number) + 1), None);
            if let Some(before) = sites[index(number)].replace(known) {
                assert_eq!(before.id, site.id, "no two sites have one number");
                moved.insert(number);
            }
        }
        self.tell_places_apart(&others);
        // A new one has no way yet.
        if !moved.is_empty() {
            self.order(moved);
        }
        let mut given = Vec::new();
        for site in there.iter().map(|(_, site)| site.borrow()) {
            given.append(&mut self.give(&site.id, &site.prefixes));
        }
        self.change_given(given);
        assert_eq!(self.own.len(), self.numbers.len(), "each site has its own");
        self.show();
    }

    /// Clients of these prefixes are there; of the rest nobody knows. It counts when
    /// [`Routes::go_on`] has done it.
    pub fn set_places(&mut self, told: impl IntoIterator<Item = (Prefix, Place)>) {
        let mut places = Places::default();
        let mut numbers: BTreeMap<Place, u32> = BTreeMap::new();
        for (prefix, place) in told {
            let next = u32::try_from(places.all.len()).expect("files are bounded");
            let number = *numbers.entry(place.clone()).or_insert(next);
            assert!(number <= next, "places have numbers in turn");
            if number == next {
                places.all.push((place, Vec::new()));
            }
            match prefix {
                Prefix::V4(net) => drop(places.v4.insert(net.trunc(), number)),
                Prefix::V6(net) => drop(places.v6.insert(net.trunc(), number)),
            }
        }
        self.work.retain(|work| !matches!(work, Work::Place { .. }));
        self.work.push_back(Work::place(places));
    }

    /// A site hears something else from now on: a change, or a `whole` table in place of all that
    /// it heard before. It counts when [`Routes::go_on`] has done it, and until then another change
    /// of the same site has nothing to begin from.
    pub fn hear(&mut self, site: &SiteId, difference: Difference, whole: bool) {
        assert!(whole || !self.is_taking(site), "a change begins from what is known");
        if self.numbers.contains_key(site) {
            self.drop_work_of(site);
            // Short news wait for no walk that has not begun.
            let is_short =
                difference.len() <= SLICE && !self.own.get(site).is_some_and(Own::is_old);
            let at = if is_short { usize::from(self.is_half_done()) } else { self.work.len() };
            self.work.insert(at, Work::hear(site.clone(), difference, whole));
        }
    }

    /// The same at once, with all other work: for who has nobody waiting.
    pub fn apply(&mut self, site: &SiteId, difference: &Difference, whole: bool) -> Digest {
        self.hear(site, difference.clone(), whole);
        self.finish();
        self.heard(site).unwrap_or_default()
    }

    /// All work that is to be done, at once.
    pub fn finish(&mut self) {
        while self.is_busy() {
            self.go_on(usize::MAX);
        }
    }

    /// Nothing is known any more of what a site hears. Its ways go with [`Routes::go_on`].
    pub fn forget(&mut self, site: &SiteId) {
        self.drop_work_of(site);
        let Some(own) = self.own.get_mut(site) else { return };
        own.heard = None;
        own.refused.clear();
        if own.has_ways {
            own.table += 1;
            self.work.push_back(Work::forget(site.clone()));
        }
        assert_eq!(self.heard(site), None, "nothing is known of it");
    }

    /// A site has these static prefixes and no others: those that differ.
    fn give(&mut self, site: &SiteId, prefixes: &[Prefix]) -> Vec<Given> {
        let own = self.own.entry(site.clone()).or_default();
        if own.given == prefixes {
            return Vec::new();
        }
        let ranges = |prefixes: &[Prefix]| -> BTreeSet<Prefix> {
            prefixes.iter().map(Prefix::trunc).collect()
        };
        let (before, now) = (ranges(&own.given), ranges(prefixes));
        own.given = prefixes.to_vec();
        let site = self.numbers[site];
        let of = |is_now| move |prefix: &Prefix| Given { prefix: *prefix, site, is_now };
        let gone = before.difference(&now).map(of(false));
        gone.chain(now.difference(&before).map(of(true))).collect()
    }

    /// Each prefix is looked up and sorted once, whatever the sites that it is given to, and next
    /// to those that are near to it in the tree: sites one by one have prefixes all over it. O(n
    /// log n).
    fn change_given(&mut self, mut given: Vec<Given>) {
        given.sort_unstable();
        for of_one in given.chunk_by(|a, b| a.prefix == b.prefix) {
            assert!(of_one.is_sorted_by(|a, b| a.site < b.site), "each site is told once");
            self.change(&of_one[0].prefix, |ways| {
                let differs =
                    |way: &Way| of_one.binary_search_by_key(&way.site, |given| given.site).is_ok();
                ways.retain(|way| way.heard.is_some() || !differs(way));
                let now = of_one.iter().filter(|given| given.is_now);
                ways.extend(now.map(|given| Way::new(given.site, 0, None)));
            });
        }
    }

    fn change(&mut self, prefix: &Prefix, change: impl FnOnce(&mut Vec<Way>)) {
        let Table { sites, v4, v6, places } = &mut self.working;
        let place = places.of(prefix);
        let and_sort = |ways: &mut Vec<Way>| {
            change(ways);
            sort(ways, place, sites);
        };
        match prefix {
            Prefix::V4(net) => v4.change(*net, and_sort),
            Prefix::V6(net) => v6.change(*net, and_sort),
        }
    }

    fn tell_places_apart(&mut self, others: &BTreeSet<u32>) {
        let sites = &self.working.sites;
        if !others.is_empty() && !self.working.places.all.is_empty() {
            let places = Arc::make_mut(&mut self.working.places);
            places.tell_apart(places.all.len(), others, sites);
        }
        for work in &mut self.work {
            if let Work::Place { places, next } = work {
                places.tell_apart(*next, others, sites);
            }
        }
    }

    fn shared(&mut self, attributes: &Arc<Attributes>) -> Arc<Attributes> {
        Arc::clone(self.known.entry(attributes.digest()).or_insert_with(|| attributes.clone()))
    }

    /// Attributes that no prefix has any more go, once they may be half of all.
    fn sweep(&mut self) {
        if self.sweep_at <= self.known.len() {
            self.known.retain(|_, attributes| 1 < Arc::strong_count(attributes));
            self.sweep_at = (2 * self.known.len()).max(SWEEP_MIN);
        }
        assert!(self.known.len() < self.sweep_at, "half of it may be old, and no more");
    }
}

const SWEEP_MIN: usize = 1024;

impl Tally {
    fn put(&mut self, prefix: &Prefix, heard: &Attributes) {
        self.digest.put(prefix, heard);
        self.bytes += heard.bytes();
    }

    fn take(&mut self, prefix: &Prefix, heard: &Attributes) {
        assert!(heard.bytes() <= self.bytes, "it was counted when it came");
        self.digest.take(prefix, heard);
        self.bytes -= heard.bytes();
    }
}

#[cfg(test)]
mod tests;
