//! Decisions of this process against the client's nearest site: how many led past it, of which
//! class, and with how many bytes.
//!
//! In memory only, from the start on, and bounded: four counts for each site in each of `SHARDS`,
//! three for each of `VERSIONS_MAX` versions that were led past most. Steering counts with every
//! answer, so sessions are spread over the shards, and seldom wait for one another.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use model::id::AssetVersionId;
use model::metric::Metric;
use model::number::index;
use model::units::{BitsPerSecond, Bytes, Nanos};
use model::view::{FleetView, SiteView};
use steering::{Nearest, Shed};
use wire::prometheus::Page;
use wire::v1::sheds::{OTHERS, ShedRow};

/// Versions of which an answer of the API has rows. Twice as many are kept: when they are full,
/// those with least are summed as others.
const VERSIONS_MAX: usize = 1000;

#[derive(Default)]
pub(crate) struct Sheds {
    /// By session.
    sites: [Mutex<Sites>; SHARDS],
    versions: Mutex<Versions>,
}

/// By the number of the nearest site: of those that it served itself, then by class.
type Sites = Vec<[Sum; 1 + CLASSES.len()]>;

/// 1.5 MB each, where there are as many sites as can be.
const SHARDS: usize = 16;

#[derive(Clone, Default)]
struct Versions {
    /// By class.
    each: BTreeMap<AssetVersionId, [Sum; CLASSES.len()]>,
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
    /// nearest site, under a lock of all.
    pub(crate) fn count(
        &self,
        session: u64,
        nearest: Nearest,
        version: &AssetVersionId,
        answer: Option<(Nanos, BitsPerSecond)>,
    ) {
        let sum = Sum::of(answer);
        let site = index(nearest.site);
        let class = CLASSES.iter().position(|class| Some(*class) == nearest.shed);
        let shard = Bytes(session % Bytes::of(SHARDS).0).as_usize();
        let mut sites = held(&self.sites[shard]);
        if sites.len() <= site {
            sites.resize(site + 1, Default::default());
        }
        sites[site][class.map_or(0, |class| 1 + class)].add(sum);
        drop(sites);
        let Some(class) = class else { return };
        let mut versions = held(&self.versions);
        match versions.each.get_mut(version) {
            Some(sums) => sums[class].add(sum),
            None => {
                versions.make_room();
                versions.each.entry(version.clone()).or_default()[class].add(sum);
            }
        }
    }

    /// All rows: sites by number, then versions, those with most bytes first.
    pub(crate) fn rows(&self, view: &FleetView) -> Vec<ShedRow> {
        let mut rows = self.of_sites(view);
        // Requests wait for a copy, and not for what is made of it.
        let versions = held(&self.versions).clone();
        rows.extend(versions.rows());
        rows
    }

    /// Two families, by site and class.
    pub(crate) fn put(&self, page: &mut Page, view: &FleetView) {
        let rows = self.of_sites(view);
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

    /// O(sites x `SHARDS`); a shard is held while it is added.
    fn of_sites(&self, view: &FleetView) -> Vec<ShedRow> {
        let mut all = Sites::new();
        for shard in &self.sites {
            let shard = held(shard);
            if all.len() < shard.len() {
                all.resize(shard.len(), Default::default());
            }
            all.iter_mut().zip(&*shard).for_each(|(into, from)| merge(into, from));
        }
        let classes = || [NONE].into_iter().chain(CLASSES.iter().map(|class| class.as_str()));
        let of = |(site, sums): (&SiteView, &[Sum; 1 + CLASSES.len()])| -> Vec<ShedRow> {
            let named = classes().zip(sums);
            named.filter_map(|(class, sum)| sum.row("site", site.id.as_str(), class)).collect()
        };
        view.sites.iter().map(AsRef::as_ref).zip(&all).flat_map(of).collect()
    }
}

impl Versions {
    fn rows(&self) -> Vec<ShedRow> {
        let mut versions: Vec<_> = self.each.iter().collect();
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
        if self.each.len() < 2 * VERSIONS_MAX {
            return;
        }
        let mut all: Vec<_> = std::mem::take(&mut self.each).into_iter().collect();
        all.sort_by_key(|(_, sums)| Reverse(weight(sums)));
        for (_, sums) in all.drain(VERSIONS_MAX..) {
            merge(&mut self.others, &sums);
        }
        self.each.extend(all);
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

fn held<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
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
        sheds.count(0, at(None), &film, None);
        sheds.count(7, at(None), &film, TURN);
        sheds.count(14, at(Some(Shed::Content)), &film, TURN);
        sheds.count(21, at(Some(Shed::Content)), &film, TURN);
        sheds.count(28, at(Some(Shed::Health)), &film, None);
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
                sheds.count(Bytes::of(n).0, nearest, &version, TURN);
            }
        }
        assert!(held(&sheds.versions).each.len() <= 2 * VERSIONS_MAX);
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
