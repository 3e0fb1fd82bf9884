//! Work on the table in slices, so that nobody waits for a whole one.
//!
//! A table of the internet has a million prefixes, and a look at each takes seconds. So what many
//! prefixes follow from waits in a queue, and whoever holds the table does a piece of it at a time.
//! Readers see a piece of work when all of it is done.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::vec::IntoIter;

use model::id::SiteId;
use model::number::index;
use model::topology::Prefix;

use super::family::{Key, Ways};
use super::{Own, Places, Routes, Table, Tally, nearest};
use crate::attributes::Attributes;
use crate::digest::Digest;
use crate::hearing::Difference;
use crate::order::{Kept, Known, Way, sort};

/// A piece of work that may have begun.
#[derive(Debug)]
pub(super) enum Work {
    /// What a site hears becomes known.
    Hear(Box<Hear>),
    /// What a site heard is known no more.
    Forget { site: SiteId, walk: Walk },
    /// Sites are gone, with all of their ways: by number, with the number of the table they heard.
    Leave { sites: BTreeMap<u32, u32>, walk: Walk },
    /// The prefixes of these sites, or all, are ordered anew.
    Order { of: Option<BTreeSet<u32>>, walk: Walk },
    /// The sites near to each place are found; those of the places before `next` are.
    Place { places: Box<Places>, next: usize },
}

#[derive(Debug)]
pub(super) struct Hear {
    site: SiteId,
    withdrawn: IntoIter<Prefix>,
    announced: IntoIter<(Prefix, Arc<Attributes>)>,
    whole: bool,
    /// What the site hears then; none before it began.
    heard: Option<Tally>,
    /// Through the ways of the table before; none if there are none.
    walk: Option<Walk>,
}

/// What a site hears is known from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    pub site: SiteId,
    pub digest: Digest,
}

/// A walk over the prefixes of both families.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Walk {
    /// It is through with IPv4.
    is_in_v6: bool,
    /// The next prefix; none for the first.
    next: Option<Key>,
}

impl Walk {
    fn has_begun(&self) -> bool {
        self.is_in_v6 || self.next.is_some()
    }
}

/// Prefixes that are worked on at a time: some milliseconds.
pub const SLICE: usize = 1024;

/// As many looks at sites cost as much as one at a prefix.
const SITES_PER_PREFIX: usize = 16;

impl Work {
    pub(super) fn hear(site: SiteId, difference: Difference, whole: bool) -> Self {
        let Difference { announced, withdrawn } = difference;
        let (announced, withdrawn) = (announced.into_iter(), withdrawn.into_iter());
        Self::Hear(Box::new(Hear { site, withdrawn, announced, whole, heard: None, walk: None }))
    }

    pub(super) fn forget(site: SiteId) -> Self {
        Self::Forget { site, walk: Walk::default() }
    }

    pub(super) fn order(of: Option<BTreeSet<u32>>) -> Self {
        Self::Order { of, walk: Walk::default() }
    }

    pub(super) fn place(places: Places) -> Self {
        Self::Place { places: Box::new(places), next: 0 }
    }

    fn site(&self) -> Option<&SiteId> {
        match self {
            Self::Hear(hear) => Some(&hear.site),
            Self::Forget { site, .. } => Some(site),
            Self::Leave { .. } | Self::Order { .. } | Self::Place { .. } => None,
        }
    }

    fn has_begun(&self) -> bool {
        match self {
            Self::Hear(hear) => hear.heard.is_some(),
            Self::Forget { walk, .. } | Self::Leave { walk, .. } | Self::Order { walk, .. } => {
                walk.has_begun()
            }
            // It is beside the table until it is done.
            Self::Place { .. } => false,
        }
    }
}

impl Routes {
    /// There is work to go on with.
    pub fn is_busy(&self) -> bool {
        !self.work.is_empty()
    }

    /// What this site hears is being taken over.
    pub fn is_taking(&self, site: &SiteId) -> bool {
        self.work.iter().any(|work| matches!(work, Work::Hear(hear) if hear.site == *site))
    }

    /// Something is half done, and [`Routes::table`] still as it was before.
    pub fn is_half_done(&self) -> bool {
        self.work.front().is_some_and(Work::has_begun)
    }

    /// Does work on so many prefixes. Gives the sites whose word is known from now on.
    pub fn go_on(&mut self, mut prefixes: usize) -> Vec<Done> {
        let mut done = Vec::new();
        while 0 < prefixes
            && let Some(mut work) = self.work.pop_front()
        {
            if self.step(&mut work, &mut prefixes) {
                self.show();
                if let Work::Hear(hear) = work {
                    done.extend(
                        hear.heard.map(|heard| Done { site: hear.site, digest: heard.digest }),
                    );
                }
            } else {
                self.work.push_front(work);
            }
            prefixes = prefixes.saturating_sub(1);
        }
        assert!(!self.is_half_done() || prefixes == 0, "it stops when its slice is over");
        done
    }

    /// What is done can be seen, unless something is half done.
    pub(super) fn show(&mut self) {
        if !self.is_half_done() {
            self.shown = self.working.clone();
        }
    }

    /// Its ways may be half changed: what comes next for the site takes them all, or begins anew.
    pub(super) fn drop_work_of(&mut self, site: &SiteId) {
        self.work.retain(|work| work.site() != Some(site));
    }

    /// A site is gone; one walk does for all that go before it has begun.
    pub(super) fn leave(&mut self, number: u32, table: u32) {
        let pending = self.work.iter_mut().find_map(|work| match work {
            Work::Leave { sites, walk } => (!walk.has_begun()).then_some(sites),
            Work::Hear(_) | Work::Forget { .. } | Work::Order { .. } | Work::Place { .. } => None,
        });
        if let Some(sites) = pending {
            sites.insert(number, table);
        } else {
            let sites = [(number, table)].into();
            self.work.push_back(Work::Leave { sites, walk: Walk::default() });
        }
    }

    /// A site that was to go is there again: only what it heard goes.
    pub(super) fn come_back(&mut self, id: &SiteId, number: u32) {
        let mut heard = None;
        for work in &mut self.work {
            if let Work::Leave { sites, .. } = work {
                heard = heard.or_else(|| sites.remove(&number));
            }
        }
        self.work.retain(|work| !matches!(work, Work::Leave { sites, .. } if sites.is_empty()));
        if let Some(table) = heard {
            let own = Own { table: table + 1, has_ways: true, ..Own::default() };
            self.own.insert(id.clone(), own);
            self.work.push_back(Work::forget(id.clone()));
        }
    }

    /// These sites are others than before: their prefixes are ordered anew, in one walk for all
    /// that change before it has begun.
    pub(super) fn order(&mut self, moved: BTreeSet<u32>) {
        let pending = self.work.iter_mut().find_map(|work| match work {
            Work::Order { of, walk } => (!walk.has_begun()).then_some(of),
            Work::Hear(_) | Work::Forget { .. } | Work::Leave { .. } | Work::Place { .. } => None,
        });
        match pending {
            Some(Some(of)) => of.extend(moved),
            // All are.
            Some(None) => {}
            None => self.work.push_back(Work::order(Some(moved))),
        }
    }

    /// Prefixes that wait to be taken over. O(work that waits).
    pub fn waiting(&self) -> usize {
        let of = |work: &Work| match work {
            Work::Hear(hear) => hear.announced.len() + hear.withdrawn.len(),
            Work::Forget { .. } | Work::Leave { .. } | Work::Order { .. } | Work::Place { .. } => 0,
        };
        self.work.iter().map(of).sum()
    }

    /// True if the work is done. Takes from `left` what it looked at.
    fn step(&mut self, work: &mut Work, left: &mut usize) -> bool {
        match work {
            Work::Hear(hear) => self.go_on_hearing(hear, left),
            Work::Forget { site, walk } => {
                let is_done = self.drop_old(site, walk, left);
                if is_done && let Some(own) = self.own.get_mut(site) {
                    own.has_ways = false;
                }
                is_done
            }
            Work::Leave { sites, walk } => {
                let is_old = |way: &Kept<'_>| sites.contains_key(&way.site);
                let is_done = self.working.drop_ways(walk, left, is_old);
                if is_done {
                    let known = Arc::make_mut(&mut self.working.sites);
                    sites.keys().for_each(|number| known[index(*number)] = None);
                    self.tell_places_apart(&sites.keys().copied().collect());
                }
                is_done
            }
            Work::Order { of, walk } => {
                self.working.walk(walk, left, |prefix, ways, sites, places| {
                    let is_meant =
                        |way: &Kept<'_>| of.as_ref().is_none_or(|of| of.contains(&way.site));
                    if !ways.iter().any(|way| is_meant(&way)) {
                        return None;
                    }
                    let mut sorted = ways.to_vec();
                    sort(&mut sorted, places.of(prefix), sites);
                    assert_eq!(sorted.len(), ways.len(), "the same ways in another order");
                    let is_same = |(a, b): (&Way, Kept<'_>)| {
                        (a.site, a.heard.is_some(), a.class, a.step)
                            == (b.site, b.heard.is_some(), b.class, b.step)
                    };
                    (!sorted.iter().zip(ways.iter()).all(is_same)).then_some(sorted)
                })
            }
            Work::Place { places, next } => {
                while *next < places.all.len() && 0 < *left {
                    let (place, near) = &mut places.all[*next];
                    *near = nearest(place, (0..).zip(self.working.sites.iter()));
                    *left = left.saturating_sub(1 + self.working.sites.len() / SITES_PER_PREFIX);
                    *next += 1;
                }
                let is_done = *next == places.all.len();
                if is_done {
                    self.working.places = Arc::new(std::mem::take(places));
                    self.work.push_front(Work::order(None));
                }
                is_done
            }
        }
    }

    fn go_on_hearing(&mut self, hear: &mut Hear, left: &mut usize) -> bool {
        let number = self.numbers[&hear.site];
        let own = self.own.entry(hear.site.clone()).or_default();
        if hear.heard.is_none() {
            // What begins from nothing is whole; ways of before may be on their way out.
            if hear.whole || own.heard.is_none() {
                hear.walk = own.has_ways.then(Walk::default);
                own.table += 1;
                own.heard = None;
                own.refused.clear();
            }
            hear.heard = Some(own.heard.unwrap_or_default());
            own.has_ways = true;
        }
        let table = own.table;
        let mut heard = hear.heard.expect("it has begun");
        while 0 < *left
            && let Some(prefix) = hear.withdrawn.next()
        {
            *left -= 1;
            if self.longest.refuses(&prefix) {
                self.refuse(&hear.site, &prefix, None, &mut heard);
                continue;
            }
            self.change(&prefix.trunc(), |ways| take(ways, (number, table), &prefix, &mut heard));
        }
        while 0 < *left
            && let Some((prefix, attributes)) = hear.announced.next()
        {
            *left -= 1;
            let attributes = self.shared(&attributes);
            if self.longest.refuses(&prefix) {
                self.refuse(&hear.site, &prefix, Some(attributes), &mut heard);
                continue;
            }
            self.change(&prefix.trunc(), |ways| {
                take(ways, (number, table), &prefix, &mut heard);
                heard.put(&prefix, &attributes);
                ways.push(Way::new(number, table, Some(attributes)));
            });
        }
        hear.heard = Some(heard);
        let is_read = hear.withdrawn.len() == 0 && hear.announced.len() == 0;
        let is_done =
            is_read && hear.walk.as_mut().is_none_or(|walk| self.drop_old(&hear.site, walk, left));
        if is_done {
            assert_eq!(self.own[&hear.site].table, table, "no other table was begun meanwhile");
            self.own.entry(hear.site.clone()).or_default().heard = Some(heard);
            self.sweep();
        }
        is_done
    }

    /// It is part of the site's table, whose digest it counts in, and leads nobody.
    fn refuse(
        &mut self,
        site: &SiteId,
        prefix: &Prefix,
        announced: Option<Arc<Attributes>>,
        heard: &mut Tally,
    ) {
        let refused = &mut self.own.entry(site.clone()).or_default().refused;
        if let Some(before) = refused.remove(&prefix.trunc()) {
            heard.take(prefix, &before);
        }
        if let Some(attributes) = announced {
            heard.put(prefix, &attributes);
            refused.insert(prefix.trunc(), attributes);
        }
    }

    /// Ways of the tables that a site heard before go.
    fn drop_old(&mut self, site: &SiteId, walk: &mut Walk, left: &mut usize) -> bool {
        let (number, table) = (self.numbers[site], self.own[site].table);
        let is_old =
            |way: &Kept<'_>| way.site == number && way.heard.is_some() && way.table != table;
        self.working.drop_ways(walk, left, is_old)
    }
}

impl Table {
    fn drop_ways(
        &mut self,
        walk: &mut Walk,
        left: &mut usize,
        is_old: impl Fn(&Kept<'_>) -> bool,
    ) -> bool {
        self.walk(walk, left, |prefix, ways, sites, places| {
            if !ways.iter().any(|way| is_old(&way)) {
                return None;
            }
            let kept = ways.iter().filter(|way| !is_old(way));
            let mut kept: Vec<Way> = kept.map(Kept::owned).collect();
            // A MED that is gone gives others their places back.
            sort(&mut kept, places.of(prefix), sites);
            assert!(kept.len() < ways.len(), "one of them goes");
            Some(kept)
        })
    }

    /// Looks at the next prefixes, at most `left`; true if it has seen all.
    fn walk(
        &mut self,
        walk: &mut Walk,
        left: &mut usize,
        look: impl Fn(&Prefix, Ways<'_>, &[Option<Known>], &Places) -> Option<Vec<Way>>,
    ) -> bool {
        let Self { sites, v4, v6, places } = self;
        while 0 < *left {
            let (looked, next) = if walk.is_in_v6 {
                let look = |net, ways: Ways<'_>| look(&Prefix::V6(net), ways, sites, places);
                v6.replace(walk.next, *left, look)
            } else {
                let look = |net, ways: Ways<'_>| look(&Prefix::V4(net), ways, sites, places);
                v4.replace(walk.next, *left, look)
            };
            *left -= looked;
            walk.next = next;
            if next.is_none() && std::mem::replace(&mut walk.is_in_v6, true) {
                return true;
            }
        }
        false
    }
}

/// The way that a site heard is no way any more; the tally is of its newest table.
fn take(ways: &mut Vec<Way>, of: (u32, u32), prefix: &Prefix, tally: &mut Tally) {
    let (site, table) = of;
    ways.retain(|way| match &way.heard {
        Some(heard) if way.site == site => {
            if way.table == table {
                tally.take(prefix, heard);
            }
            false
        }
        _ => true,
    });
}
