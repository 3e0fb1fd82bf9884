//! Counts by site, by version, and by both: what one process has, and the sum over some.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use model::id::{AssetVersionId, SiteId};
use model::names::Names;
use model::topology::Site;
use model::units::{BitsPerSecond, Nanos};
use steering::Shed;
use wire::v1::sheds::{OTHERS, ShedRow};

/// Versions of which an answer of the API has rows. Twice as many are kept: when they are full,
/// those with least are summed as others.
pub(super) const VERSIONS_MAX: usize = 1000;

/// The same of the versions of one site: 5 KB for each site where they are full.
pub(super) const SITE_VERSIONS_MAX: usize = 16;

pub(super) const CLASSES: [Shed; 3] = [Shed::Content, Shed::Health, Shed::Before];

/// By class: of what the nearest site served itself, then of `CLASSES`.
pub(super) type Sums = [Sum; 1 + CLASSES.len()];

/// Decisions, and the bytes that are reckoned to follow from them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Sum {
    /// Lists of playbacks that began.
    pub(super) begun: u64,
    /// Steering answers.
    pub(super) answers: u64,
    /// Until the players ask again, at the highest bitrate of the version.
    pub(super) bytes: u64,
}

/// A row of counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Of {
    Site(String),
    Version(String),
    /// A version, of the clients of a site.
    SiteVersion(String, String),
}

/// The rows of an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted<'a> {
    /// All sites, and the versions with most.
    All,
    /// This site, and its versions with most.
    Site(&'a SiteId),
    /// So many of these sites past which most bytes were led for content or health.
    Worst(usize, &'a Names<SiteId, Site>),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub(super) all: BTreeMap<Of, Sums>,
}

impl Table {
    /// What a front told. A row that is none of these, or of a class that is not known, is left
    /// out. O(rows).
    pub(super) fn read(rows: &[ShedRow]) -> Self {
        let mut table = Self::default();
        for row in rows {
            let (Some(of), Some(class)) = (Of::read(row), class_of(&row.class)) else { continue };
            let (begun, answers) = (row.begun, row.answers);
            let sum = Sum { begun, answers, bytes: row.reckoned_bytes };
            table.all.entry(of).or_default()[class].add(sum);
        }
        table
    }

    pub(super) fn add(&mut self, of: Of, sums: &Sums) {
        merge(self.all.entry(of).or_default(), sums);
    }

    /// Adds those that are wanted. O(its entries).
    pub(super) fn add_all(&mut self, other: &Self, wanted: Wanted<'_>) {
        let entries = other.all.iter().filter(|(of, _)| of.is_wanted(wanted));
        entries.for_each(|(of, sums)| self.add(of.clone(), sums));
    }

    /// As rows: sites, then versions, those with most bytes first and the others last. O(entries).
    pub(super) fn rows(self, wanted: Wanted<'_>) -> Vec<ShedRow> {
        let (mut sites, mut versions): (Vec<_>, Vec<_>) =
            self.all.into_iter().partition(|(of, _)| matches!(of, Of::Site(_)));
        if let Wanted::Worst(most, of) = wanted {
            let is_there = |site: &Of| matches!(site, Of::Site(name) if of.contains_key(name));
            sites.retain(|(site, sums)| missed(sums) != (0, 0) && is_there(site));
            sites.sort_by_key(|(_, sums)| Reverse(missed(sums)));
            sites.truncate(most);
        }
        let most = match wanted {
            Wanted::All => VERSIONS_MAX,
            Wanted::Site(_) | Wanted::Worst(..) => SITE_VERSIONS_MAX,
        };
        cut(&mut versions, most);
        let entries = sites.iter().chain(&versions);
        entries.flat_map(|(of, sums)| of.rows(sums)).collect()
    }

    /// All of it as rows.
    pub(super) fn all_rows(&self) -> Vec<ShedRow> {
        self.all.iter().flat_map(|(of, sums)| of.rows(sums)).collect()
    }
}

/// Most bytes first; what is beyond so many is in the row of others, which is the last.
fn cut(versions: &mut Vec<(Of, Sums)>, most: usize) {
    versions.sort_by_key(|(of, sums)| (of.is_others(), Reverse(weight(sums))));
    let named = versions.iter().filter(|(of, _)| !of.is_others()).count();
    if named <= most {
        return;
    }
    let rest = versions.split_off(most);
    let of = rest[0].0.others();
    let mut others = Sums::default();
    rest.iter().for_each(|(_, sums)| merge(&mut others, sums));
    versions.push((of, others));
}

impl Of {
    fn read(row: &ShedRow) -> Option<Self> {
        let version = |name: &str| name == OTHERS || name.parse::<AssetVersionId>().is_ok();
        let site = |name: &str| name.parse::<SiteId>().is_ok();
        let name = row.name.clone();
        match (row.by.as_str(), &row.version) {
            ("site", None) => site(&name).then_some(Self::Site(name)),
            ("version", None) => version(&name).then_some(Self::Version(name)),
            ("site_version", Some(of)) => {
                (site(&name) && version(of)).then(|| Self::SiteVersion(name, of.clone()))
            }
            (_, None | Some(_)) => None,
        }
    }

    fn is_wanted(&self, wanted: Wanted<'_>) -> bool {
        match (wanted, self) {
            (Wanted::All, Self::Site(_) | Self::Version(_))
            | (Wanted::Worst(..), Self::Site(_)) => true,
            (Wanted::Site(id), Self::Site(name) | Self::SiteVersion(name, _)) => {
                name == id.as_str()
            }
            (Wanted::All, Self::SiteVersion(..))
            | (Wanted::Worst(..), Self::Version(_) | Self::SiteVersion(..))
            | (Wanted::Site(_), Self::Version(_)) => false,
        }
    }

    fn is_others(&self) -> bool {
        matches!(self, Self::Version(of) | Self::SiteVersion(_, of) if of == OTHERS)
    }

    /// The row of others beside it.
    fn others(&self) -> Self {
        match self {
            Self::SiteVersion(site, _) => Self::SiteVersion(site.clone(), OTHERS.to_owned()),
            Self::Site(_) | Self::Version(_) => Self::Version(OTHERS.to_owned()),
        }
    }

    fn rows(&self, sums: &Sums) -> Vec<ShedRow> {
        let (by, name, version) = match self {
            Self::Site(name) => ("site", name, None),
            Self::Version(name) => ("version", name, None),
            Self::SiteVersion(name, version) => ("site_version", name, Some(version)),
        };
        let row = |(class, sum): (&str, &Sum)| {
            (*sum != Sum::default()).then(|| ShedRow {
                by: by.to_owned(),
                name: name.clone(),
                version: version.cloned(),
                class: class.to_owned(),
                begun: sum.begun,
                answers: sum.answers,
                reckoned_bytes: sum.bytes,
            })
        };
        class_names().zip(sums).filter_map(row).collect()
    }
}

impl Sum {
    pub(super) fn of(answer: Option<(Nanos, BitsPerSecond)>) -> Self {
        let Some((until, bitrate)) = answer else { return Self { begun: 1, ..Self::default() } };
        let bits = u128::from(bitrate.0) * u128::from(until.0) / u128::from(Nanos::seconds(1).0);
        Self { begun: 0, answers: 1, bytes: u64::try_from(bits / 8).unwrap_or(u64::MAX) }
    }

    /// A front may say anything.
    pub(super) fn add(&mut self, more: Self) {
        self.begun = self.begun.saturating_add(more.begun);
        self.answers = self.answers.saturating_add(more.answers);
        self.bytes = self.bytes.saturating_add(more.bytes);
    }
}

/// In the order of [`Sums`].
pub(super) fn class_names() -> impl Iterator<Item = &'static str> {
    [NONE].into_iter().chain(CLASSES.iter().map(|class| class.as_str()))
}

fn class_of(name: &str) -> Option<usize> {
    class_names().position(|class| class == name)
}

const NONE: &str = "none";

pub(super) fn weight(sums: &[Sum]) -> (u64, u64) {
    let mut all = Sum::default();
    sums.iter().for_each(|sum| all.add(*sum));
    (all.bytes, all.begun.saturating_add(all.answers))
}

/// The misses that somebody can do something about: of content and of health.
fn missed(sums: &Sums) -> (u64, u64) {
    weight(&sums[1..3])
}

pub(super) fn merge(into: &mut [Sum], from: &[Sum]) {
    into.iter_mut().zip(from).for_each(|(into, from)| into.add(*from));
}
