//! Decisions of this process against the client's nearest site: how many led past it, of which
//! class, and with how many bytes.
//!
//! In memory only, from the start on, and bounded: four counts for each site, three for each of
//! `VERSIONS_MAX` versions that were led past most.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use model::id::AssetVersionId;
use model::metric::Metric;
use model::number::index;
use model::units::{BitsPerSecond, Nanos};
use model::view::{FleetView, SiteView};
use steering::{Nearest, Shed};
use wire::prometheus::Page;
use wire::v1::sheds::{OTHERS, ShedRow};

/// Versions of which an answer of the API has rows. Twice as many are kept: when they are full,
/// those with least are summed as others.
const VERSIONS_MAX: usize = 1000;

#[derive(Default)]
pub(crate) struct Sheds {
    inner: Mutex<Inner>,
}

#[derive(Clone, Default)]
struct Inner {
    /// By the number of the nearest site: of those that it served itself, then by class.
    sites: Vec<[Sum; 1 + CLASSES.len()]>,
    /// By class.
    versions: BTreeMap<AssetVersionId, [Sum; CLASSES.len()]>,
    others: [Sum; CLASSES.len()],
}

const CLASSES: [Shed; 3] = [Shed::Content, Shed::Health, Shed::Before];

/// What was decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    /// Lists of playbacks that began.
    begun: u64,
    /// Steering answers.
    answers: u64,
    /// Until the players ask again, at the highest bitrate of the version.
    bytes: u64,
}

impl Sheds {
    /// Counts a decision: of a playback that begins, or a steering answer that is good until the
    /// player's next turn, at this bitrate. O(1), and O(log versions) of one that led past the
    /// nearest site.
    pub(crate) fn count(
        &self,
        nearest: Nearest,
        version: &AssetVersionId,
        answer: Option<(Nanos, BitsPerSecond)>,
    ) {
        let sum = Sum::of(answer);
        let mut inner = self.inner();
        let site = index(nearest.site);
        if inner.sites.len() <= site {
            inner.sites.resize(site + 1, Default::default());
        }
        let class = CLASSES.iter().position(|class| Some(*class) == nearest.shed);
        inner.sites[site][class.map_or(0, |class| 1 + class)].add(sum);
        let Some(class) = class else { return };
        match inner.versions.get_mut(version) {
            Some(sums) => sums[class].add(sum),
            None => {
                inner.make_room();
                inner.versions.entry(version.clone()).or_default()[class].add(sum);
            }
        }
    }

    /// All rows: sites by number, then versions, those with most bytes first.
    pub(crate) fn rows(&self, view: &FleetView) -> Vec<ShedRow> {
        // Requests wait for a copy, and not for what is made of it.
        let inner = self.inner().clone();
        let mut rows = inner.of_sites(view);
        rows.extend(inner.of_versions());
        rows
    }

    /// Two families, by site and class.
    pub(crate) fn put(&self, page: &mut Page, view: &FleetView) {
        let sites = self.inner().sites.clone();
        let rows = Inner { sites, ..Inner::default() }.of_sites(view);
        let help = "Decisions about clients whose nearest site this is, by whether they led past \
                    it: none, content, health or before.";
        let decisions = Metric::counter("nearest_decisions_total", help);
        for ShedRow { name, class, begun, answers, .. } in &rows {
            page.put(&decisions, &labels(name, class), begun + answers);
        }
        let help = "What their players load until they ask again, at the highest bitrate of the \
                    version.";
        let bytes = Metric::counter("nearest_bytes_total", help);
        for ShedRow { name, class, reckoned_bytes, .. } in &rows {
            page.put(&bytes, &labels(name, class), *reckoned_bytes);
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn of_sites(&self, view: &FleetView) -> Vec<ShedRow> {
        let classes = || [NONE].into_iter().chain(CLASSES.iter().map(|class| class.as_str()));
        let of = |(site, sums): (&SiteView, &[Sum; 1 + CLASSES.len()])| -> Vec<ShedRow> {
            let named = classes().zip(sums);
            named.filter_map(|(class, sum)| sum.row("site", site.id.as_str(), class)).collect()
        };
        view.sites.iter().map(AsRef::as_ref).zip(&self.sites).flat_map(of).collect()
    }

    fn of_versions(&self) -> Vec<ShedRow> {
        let mut versions: Vec<_> = self.versions.iter().collect();
        versions.sort_by_key(|(_, sums)| Reverse(weight(*sums)));
        let (shown, rest) = versions.split_at(versions.len().min(VERSIONS_MAX));
        let mut others = self.others;
        rest.iter().for_each(|(_, sums)| merge(&mut others, *sums));
        let shown = shown.iter().map(|(version, sums)| (version.as_str(), *sums));
        let of = |(version, sums): (&str, &[Sum; CLASSES.len()])| -> Vec<ShedRow> {
            let named = CLASSES.iter().zip(sums);
            named.filter_map(|(of, sum)| sum.row("version", version, of.as_str())).collect()
        };
        shown.chain([(OTHERS, &others)]).flat_map(of).collect()
    }

    /// O(versions) once in `VERSIONS_MAX` times.
    fn make_room(&mut self) {
        if self.versions.len() < 2 * VERSIONS_MAX {
            return;
        }
        let mut all: Vec<_> = std::mem::take(&mut self.versions).into_iter().collect();
        all.sort_by_key(|(_, sums)| Reverse(weight(sums)));
        for (_, sums) in all.drain(VERSIONS_MAX..) {
            merge(&mut self.others, &sums);
        }
        self.versions.extend(all);
    }
}

impl Sum {
    fn of(answer: Option<(Nanos, BitsPerSecond)>) -> Self {
        let Some((until, bitrate)) = answer else { return Self { begun: 1, ..Self::default() } };
        let bits = u128::from(bitrate.0) * u128::from(until.0) / u128::from(Nanos::seconds(1).0);
        Self { begun: 0, answers: 1, bytes: u64::try_from(bits / 8).unwrap_or(u64::MAX) }
    }

    fn add(&mut self, more: Self) {
        self.begun += more.begun;
        self.answers += more.answers;
        self.bytes = self.bytes.saturating_add(more.bytes);
    }

    fn row(self, by: &str, name: &str, class: &str) -> Option<ShedRow> {
        let row = ShedRow {
            by: by.to_owned(),
            name: name.to_owned(),
            class: class.to_owned(),
            begun: self.begun,
            answers: self.answers,
            reckoned_bytes: self.bytes,
        };
        (self != Self::default()).then_some(row)
    }
}

const NONE: &str = "none";

fn labels(site: &str, class: &str) -> String {
    format!("site=\"{site}\",class=\"{class}\"")
}

fn weight(sums: &[Sum]) -> (u64, u64) {
    let bytes = sums.iter().map(|sum| sum.bytes).fold(0, u64::saturating_add);
    (bytes, sums.iter().map(|sum| sum.begun + sum.answers).sum())
}

fn merge(into: &mut [Sum], from: &[Sum]) {
    into.iter_mut().zip(from).for_each(|(into, from)| into.add(*from));
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::Arc;

    use model::units::Bytes;

    const TURN: Option<(Nanos, BitsPerSecond)> =
        Some((Nanos::seconds(10), BitsPerSecond(4_000_000)));

    fn view() -> FleetView {
        let mut view = FleetView::default();
        for (number, id) in (0..).zip(["near", "far"]) {
            let id = id.parse().unwrap();
            let site = SiteView { id, serves_strangers: true, appliances: Vec::new() };
            view.put_site(number, Arc::new(site));
        }
        view
    }

    #[test]
    fn decisions_are_counted_by_site_version_and_class_with_their_bytes() {
        let sheds = Sheds::default();
        let film = "film-1".parse().unwrap();
        let at = |shed| Nearest { site: 1, shed };
        sheds.count(at(None), &film, None);
        sheds.count(at(None), &film, TURN);
        sheds.count(at(Some(Shed::Content)), &film, TURN);
        sheds.count(at(Some(Shed::Content)), &film, TURN);
        sheds.count(at(Some(Shed::Health)), &film, None);
        let rows: Vec<String> = sheds.rows(&view()).iter().map(shown).collect();
        let wanted = [
            "site far none 1 1 5000000",
            "site far content 0 2 10000000",
            "site far health 1 0 0",
            "version film-1 content 0 2 10000000",
            "version film-1 health 1 0 0",
        ];
        assert_eq!(rows, wanted);
        let mut page = Page::new("nearcast_control_");
        sheds.put(&mut page, &view());
        let text = page.into_text();
        let line = "nearcast_control_nearest_bytes_total{site=\"far\",class=\"content\"} 10000000";
        assert!(text.lines().any(|of| of == line), "{text}");
        assert!(!text.contains("film-1"), "no version is in metrics");
    }

    #[test]
    fn of_many_versions_those_with_most_have_rows_and_none_is_lost() {
        let sheds = Sheds::default();
        let many = 5 * VERSIONS_MAX;
        for n in 0..many {
            let version = format!("film-{n}").parse().unwrap();
            let nearest = Nearest { site: 0, shed: Some(Shed::Content) };
            for _ in 0..=usize::from(n < 7) {
                sheds.count(nearest, &version, TURN);
            }
        }
        assert!(sheds.inner().versions.len() <= 2 * VERSIONS_MAX);
        let rows = sheds.rows(&view());
        let versions: Vec<&ShedRow> = rows.iter().filter(|row| row.by == "version").collect();
        assert_eq!(versions.len(), VERSIONS_MAX + 1);
        assert_eq!(versions[..7].iter().map(|row| row.answers).sum::<u64>(), 14);
        assert_eq!(versions.last().unwrap().name, OTHERS);
        let all: u64 = versions.iter().map(|row| row.answers).sum();
        assert_eq!((all, all), (Bytes::of(many + 7).0, rows[0].answers));
    }

    fn shown(row: &ShedRow) -> String {
        let ShedRow { by, name, class, begun, answers, reckoned_bytes } = row;
        format!("{by} {name} {class} {begun} {answers} {reckoned_bytes}")
    }
}
