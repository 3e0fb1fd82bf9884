//! The order of the sites of one prefix.

use std::sync::Arc;

use model::id::SiteId;
use model::near::{Class, Route, Step};
use model::number::index;
use model::place::{Nearness, Place};
use model::topology::{Prefix, SiteKind};

use crate::attributes::{Attributes, Peering};

/// A site's way to a prefix; as it is kept, what was heard is borrowed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way<H = Option<Arc<Attributes>>> {
    /// Its number in the table.
    pub(crate) site: u32,
    /// None for a static prefix.
    pub(crate) heard: H,
    /// Which of its site's tables it was heard in: those of an older one are going.
    pub(crate) table: u32,
    /// As [`sort`] found it.
    pub(crate) class: Class,
    /// Behind the one before it, of the same prefix; as [`sort`] found it.
    pub(crate) step: Step,
}

/// A way as it is kept.
pub(crate) type Kept<'a> = Way<Option<&'a Arc<Attributes>>>;

/// A site as the order sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) id: SiteId,
    pub(crate) kind: SiteKind,
    pub(crate) place: Option<Place>,
    pub(crate) serves_strangers: bool,
}

impl Way {
    /// One that is not sorted yet.
    pub(crate) fn new(site: u32, table: u32, heard: Option<Arc<Attributes>>) -> Self {
        Self { site, heard, table, class: Class::Public, step: Step::First }
    }

    fn kept(&self) -> Kept<'_> {
        let Self { site, ref heard, table, class, step } = *self;
        Kept { site, heard: heard.as_ref(), table, class, step }
    }

    fn class(&self, site: &Known) -> Class {
        match (site.kind, self.heard.as_ref().map(|heard| heard.peering())) {
            (SiteKind::Embedded, _) => Class::Embedded,
            (SiteKind::Exchange, None | Some(Peering::Private)) => Class::Private,
            (SiteKind::Exchange, Some(Peering::Public)) => Class::Public,
        }
    }
}

impl Kept<'_> {
    /// The same, to be changed.
    pub(crate) fn owned(self) -> Way {
        let Self { site, heard, table, class, step } = self;
        Way { site, heard: heard.cloned(), table, class, step }
    }

    #[inline]
    pub(crate) fn route(&self, prefix: Prefix) -> Route {
        let heard = self.heard.map(AsRef::as_ref);
        Route {
            prefix,
            class: self.class,
            is_static: heard.is_none(),
            path_len: heard.map_or(0, Attributes::path_len),
            neighbour: heard.and_then(Attributes::neighbour),
            med: heard.and_then(Attributes::med),
        }
    }

    fn path_len(&self) -> u16 {
        self.heard.map_or(0, |heard| heard.path_len())
    }

    fn neighbour(&self) -> Option<u32> {
        self.heard.and_then(|heard| heard.neighbour())
    }

    /// None is as good as the lowest (RFC 4271 section 9.1.2.2).
    fn med(&self) -> u32 {
        self.heard.and_then(|heard| heard.med()).unwrap_or(0)
    }
}

/// Sorts the ways to one prefix, whose clients are at `place`, best first; one of each site is
/// first among those of that site. O(n log n).
///
/// A MED compares announcements of one neighbour only, so it gives no order of all: first all are
/// sorted without it, then those of each neighbour are sorted by it in the places that they have.
pub(crate) fn sort(ways: &mut [Way], place: Option<&Place>, sites: &[Option<Known>]) {
    let known =
        |way: &Way| sites[index(way.site)].as_ref().expect("ways of a site that is gone are gone");
    ways.iter_mut().for_each(|way| way.class = way.class(known(way)));
    let closeness = |way: &Way| (way.class, way.kept().path_len());
    let nearness = |way: &Way| Nearness::of(place, known(way).place.as_ref());
    let last = |way: &Way| (nearness(way), &known(way).id, way.heard.is_some());
    ways.sort_by(|a, b| closeness(a).cmp(&closeness(b)).then_with(|| last(a).cmp(&last(b))));
    assert!(ways.is_sorted_by_key(&closeness), "a MED decides among equals only");
    for group in ways.chunk_by_mut(|a, b| closeness(a) == closeness(b)) {
        sort_by_med(group);
    }
    for at in 0..ways.len() {
        ways[at].step = match at.checked_sub(1).map(|before| &ways[before]) {
            None => Step::First,
            Some(before) => {
                let is_nearer = || nearness(before) < nearness(&ways[at]);
                behind(&before.kept(), &ways[at].kept(), is_nearer)
            }
        };
    }
}

/// Sorts the ways of each neighbour by MED, in the places that they have among the others.
fn sort_by_med(group: &mut [Way]) {
    let neighbour = |way: &Way| way.kept().neighbour();
    let mut neighbours: Vec<u32> = group.iter().filter_map(neighbour).collect();
    if neighbours.len() < 2 {
        return;
    }
    neighbours.sort_unstable();
    neighbours.dedup();
    for of in neighbours {
        let places: Vec<usize> =
            (0..group.len()).filter(|at| neighbour(&group[*at]) == Some(of)).collect();
        let mut ways: Vec<Way> = places.iter().map(|at| group[*at].clone()).collect();
        // Stable: equal ones stay in the order by place and name.
        ways.sort_by_key(|way| way.kept().med());
        assert_eq!(places.len(), ways.len(), "each has its place");
        for (at, way) in places.into_iter().zip(ways) {
            group[at] = way;
        }
    }
}

/// What put a way behind another one of the same prefix.
pub(crate) fn behind(before: &Kept<'_>, way: &Kept<'_>, is_nearer: impl Fn() -> bool) -> Step {
    let peers = before.neighbour().is_some() && before.neighbour() == way.neighbour();
    match () {
        () if before.class < way.class => Step::Class,
        () if before.path_len() < way.path_len() => Step::Path,
        () if peers && before.med() < way.med() => Step::Med,
        () if is_nearer() => Step::Place,
        () => Step::Name,
    }
}
