//! Decisions against the client's nearest site: how many led past it, of which class, and with how
//! many bytes; by site, by version, and by both.
//!
//! In memory only, from the start on, and bounded: four counts for each site in each of `SHARDS`,
//! four for each of the versions that were led past most, of all sites and of each. Steering counts
//! with every answer, so sessions are spread over the shards, and seldom wait for one another.
//!
//! ```text
//! decisions ──> Sheds ── every 10 s, from a front ──> Fronts of the writer ──┐
//!                 └────────────── own counts ────────────────────────────────┴─> GET /v1/sheds
//! ```

mod fronts;
mod table;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use model::id::{AssetVersionId, SiteId};
use model::metric::Metric;
use model::number::index;
use model::units::{BitsPerSecond, Bytes, Instant, Nanos};
use model::view::{FleetView, SiteView};
use steering::Nearest;
use wire::prometheus::Page;
use wire::v1::sheds::{OTHERS, ShedRow};

use fronts::Fronts;
pub(crate) use table::Wanted;
use table::{
    CLASSES, Of, SITE_VERSIONS_MAX, Sum, Sums, Table, VERSIONS_MAX, class_names, merge, weight,
};

#[derive(Default)]
pub(crate) struct Sheds {
    /// By session.
    sites: [Mutex<Sites>; SHARDS],
    versions: Mutex<Versions>,
    /// Of each nearest site, by its number, which is also how they are spread.
    of_sites: [Mutex<BTreeMap<u32, Versions>>; SHARDS],
    /// What fronts told this writer.
    pub(crate) fronts: Fronts,
}

/// By the number of the nearest site.
type Sites = Vec<Sums>;

/// 1.5 MB each, where there are as many sites as can be.
const SHARDS: usize = 16;

/// Versions at sites that a front tells of, reckoned to be 4 to 7 MB of JSON. The rest is in the
/// others of their sites.
const TOLD_MAX: usize = 8192;

#[derive(Clone, Default)]
struct Versions {
    /// The first is zero: of what the nearest site served there are no versions.
    each: BTreeMap<AssetVersionId, Sums>,
    others: Sums,
}

impl Sheds {
    /// Counts a decision: of a playback that begins, or a steering answer that is good until the
    /// player's next turn, at this bitrate. O(1), and O(log versions) of one that led past the
    /// nearest site, under a lock of all and one of some sites.
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
        let class = class.map_or(0, |class| 1 + class);
        let shard = Bytes(session % Bytes::of(SHARDS).0).as_usize();
        let mut sites = held(&self.sites[shard]);
        if sites.len() <= site {
            sites.resize(site + 1, Default::default());
        }
        sites[site][class].add(sum);
        drop(sites);
        if class == 0 {
            return;
        }
        held(&self.versions).count(version, (class, sum), VERSIONS_MAX);
        let mut of_sites = held(&self.of_sites[site % SHARDS]);
        of_sites.entry(nearest.site).or_default().count(version, (class, sum), SITE_VERSIONS_MAX);
    }

    /// Rows of this process and of those that have told it theirs. O(sites x `SHARDS`), and
    /// O(entries) of each front.
    pub(crate) fn rows(&self, view: &FleetView, now: Instant, wanted: Wanted<'_>) -> Vec<ShedRow> {
        let mut table = self.sites(view, wanted);
        match wanted {
            // Requests wait for a copy, and not for what is made of it.
            Wanted::All => {
                let versions = held(&self.versions).clone();
                versions.put(&mut table, |version| Of::Version(version.to_owned()));
            }
            Wanted::Site(site) => self.put_versions_at(view, site, &mut table),
            Wanted::Worst(..) => {}
        }
        self.fronts.add_to(&mut table, now, wanted);
        table.rows(wanted)
    }

    /// All that this process has counted, for its writer. O(sites x `SHARDS` + rows), and
    /// O(log `TOLD_MAX`) for each version at a site, of which it counts 32 at most.
    pub(crate) fn own(&self, view: &FleetView) -> Vec<ShedRow> {
        let mut table = self.sites(view, Wanted::All);
        let versions = held(&self.versions).clone();
        versions.put(&mut table, |version| Of::Version(version.to_owned()));
        self.put_heaviest(view, TOLD_MAX, &mut table);
        table.all_rows()
    }

    /// Two families, by site and class, of this process alone: Prometheus sums; and how many fronts
    /// the answers of the API sum.
    pub(crate) fn put(&self, page: &mut Page, view: &FleetView, now: Instant) {
        let table = self.sites(view, Wanted::All);
        let help = "Decisions about clients whose nearest site this is, by whether they led past \
                    it: none, content, health or before.";
        let decisions = Metric::counter("nearest_decisions_total", help);
        each(&table, |labels, sum| page.put(&decisions, labels, sum.begun + sum.answers));
        let help = "What their players load until they ask again, at the highest bitrate of the \
                    version.";
        let bytes = Metric::counter("nearest_bytes_total", help);
        each(&table, |labels, sum| page.put(&bytes, labels, sum.bytes));
        let help = "Fronts whose counts are in this writer's answers to GET /v1/sheds.";
        let fronts = Metric::gauge("shed_fronts", help);
        page.put(&fronts, "", Bytes::of(self.fronts.count(now)).0);
    }

    /// O(sites x `SHARDS`); a shard is held while it is added.
    fn sites(&self, view: &FleetView, wanted: Wanted<'_>) -> Table {
        let mut all = Sites::new();
        for shard in &self.sites {
            let shard = held(shard);
            if all.len() < shard.len() {
                all.resize(shard.len(), Default::default());
            }
            all.iter_mut().zip(&*shard).for_each(|(into, from)| merge(into, from));
        }
        let is_wanted = |site: &&SiteView| match wanted {
            Wanted::Site(id) => site.id == *id,
            Wanted::All | Wanted::Worst(..) => true,
        };
        let mut table = Table::default();
        for (site, sums) in view.sites.iter().map(AsRef::as_ref).zip(&all) {
            if is_wanted(&site) {
                table.add(Of::Site(site.id.to_string()), sums);
            }
        }
        table
    }

    /// The versions at one site. O(sites).
    fn put_versions_at(&self, view: &FleetView, site: &SiteId, to: &mut Table) {
        for (number, _) in (0..).zip(view.sites.iter()).filter(|(_, of)| of.id == *site) {
            let versions = held(&self.of_sites[index(number) % SHARDS]).get(&number).cloned();
            let of = |of: &str| Of::SiteVersion(site.to_string(), of.to_owned());
            versions.unwrap_or_default().put(to, of);
        }
    }

    /// Of all versions at sites so many with most bytes; what is beyond is in the others of its
    /// site. Requests wait for one site at a time, and names are made of what is kept alone.
    fn put_heaviest(&self, view: &FleetView, most: usize, to: &mut Table) {
        let mut kept = BinaryHeap::with_capacity(most + 1);
        let mut others: BTreeMap<u32, Sums> = BTreeMap::new();
        for shard in &self.of_sites {
            let numbers: Vec<u32> = held(shard).keys().copied().collect();
            for number in numbers.into_iter().filter(|number| view.sites.get(*number).is_some()) {
                let shard = held(shard);
                let Some(versions) = shard.get(&number) else { continue };
                merge(others.entry(number).or_default(), &versions.others);
                for (version, sums) in &versions.each {
                    kept.push(Reverse((weight(sums), number, version.clone(), *sums)));
                    if most < kept.len()
                        && let Some(Reverse((_, number, _, sums))) = kept.pop()
                    {
                        merge(others.entry(number).or_default(), &sums);
                    }
                }
            }
        }
        let mut add = |number, version: &str, sums| {
            let Some(site) = view.sites.get(number) else { return };
            to.add(Of::SiteVersion(site.id.to_string(), version.to_owned()), sums);
        };
        for Reverse((_, number, version, sums)) in &kept {
            add(*number, version.as_str(), sums);
        }
        for (number, sums) in others.iter().filter(|(_, sums)| **sums != Sums::default()) {
            add(*number, OTHERS, sums);
        }
    }
}

impl Versions {
    fn count(&mut self, version: &AssetVersionId, (class, sum): (usize, Sum), most: usize) {
        if let Some(sums) = self.each.get_mut(version) {
            sums[class].add(sum);
            return;
        }
        self.make_room(most);
        self.each.entry(version.clone()).or_default()[class].add(sum);
    }

    fn put(&self, table: &mut Table, of: impl Fn(&str) -> Of) {
        self.each.iter().for_each(|(version, sums)| table.add(of(version.as_str()), sums));
        if self.others != Sums::default() {
            table.add(of(OTHERS), &self.others);
        }
    }

    /// O(versions) once in `most` times.
    fn make_room(&mut self, most: usize) {
        if self.each.len() < 2 * most {
            return;
        }
        let mut all: Vec<_> = std::mem::take(&mut self.each).into_iter().collect();
        all.sort_by_key(|(_, sums)| Reverse(weight(sums)));
        for (_, sums) in all.drain(most..) {
            merge(&mut self.others, &sums);
        }
        self.each.extend(all);
    }
}

/// Each sum of a site that is not zero, with its labels.
fn each(table: &Table, mut put: impl FnMut(&str, &Sum)) {
    for (of, sums) in &table.all {
        let Of::Site(site) = of else { continue };
        for (class, sum) in class_names().zip(sums).filter(|(_, sum)| **sum != Sum::default()) {
            put(&format!("site=\"{site}\",class=\"{class}\""), sum);
        }
    }
}

fn held<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::Arc;

    use model::id::NAME_LEN_MAX;
    use model::names::Names;
    use model::topology::Site;
    use steering::Shed;
    use wire::v1::sheds::ShedReport;

    use crate::api::SHEDS_LEN_MAX;
    use crate::members::identities::FRONTS_MAX;
    use crate::state::writer::SITES_MAX;

    const NOW: Instant = Instant(0);

    const TURN: Option<(Nanos, BitsPerSecond)> =
        Some((Nanos::seconds(10), BitsPerSecond(4_000_000)));

    fn sites(names: &[&str]) -> Names<SiteId, Site> {
        let site = |name: &&str| {
            let id: SiteId = name.parse().unwrap();
            (id.clone(), Site::new(id, vec![]))
        };
        names.iter().map(site).collect()
    }

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
        let rows = |wanted| -> Vec<String> {
            sheds.rows(&view(), NOW, wanted).iter().map(shown).collect()
        };
        let wanted = [
            "site far none 1 1 5000000",
            "site far content 0 2 10000000",
            "site far health 1 0 0",
            "version film-1 content 0 2 10000000",
            "version film-1 health 1 0 0",
        ];
        assert_eq!(rows(Wanted::All), wanted);
        let wanted = [
            "site far none 1 1 5000000",
            "site far content 0 2 10000000",
            "site far health 1 0 0",
            "site_version far/film-1 content 0 2 10000000",
            "site_version far/film-1 health 1 0 0",
        ];
        let [far, near] = ["far", "near"].map(|id| id.parse().unwrap());
        assert_eq!(rows(Wanted::Site(&far)), wanted);
        assert_eq!(rows(Wanted::Site(&near)), [""; 0]);
        let mut page = Page::new("nearcast_control_");
        sheds.put(&mut page, &view(), NOW);
        let text = page.into_text();
        let line = "nearcast_control_nearest_bytes_total{site=\"far\",class=\"content\"} 10000000";
        assert!(text.lines().any(|of| of == line), "{text}");
        assert!(!text.contains("film-1"), "no version is in metrics");
    }

    #[test]
    fn of_many_versions_those_with_most_have_rows_and_none_is_lost() {
        let sheds = Sheds::default();
        let many = 5 * VERSIONS_MAX;
        lead_past(&sheds, Nearest { site: 0, shed: Some(Shed::Content) }, many, 7);
        assert!(held(&sheds.versions).each.len() <= 2 * VERSIONS_MAX);
        let rows = sheds.rows(&view(), NOW, Wanted::All);
        let versions: Vec<&ShedRow> = rows.iter().filter(|row| row.by == "version").collect();
        assert_eq!(versions.len(), VERSIONS_MAX + 1);
        assert_eq!(versions[..7].iter().map(|row| row.answers).sum::<u64>(), 14);
        assert_eq!(versions.last().unwrap().name, OTHERS);
        let all: u64 = versions.iter().map(|row| row.answers).sum();
        assert_eq!((all, all), (Bytes::of(many + 7).0, rows[0].answers));
    }

    #[test]
    fn of_the_versions_of_a_site_those_with_most_have_rows_and_none_is_lost() {
        let sheds = Sheds::default();
        let many = 5 * SITE_VERSIONS_MAX;
        lead_past(&sheds, Nearest { site: 1, shed: Some(Shed::Health) }, many, 3);
        let far = "far".parse().unwrap();
        let rows = sheds.rows(&view(), NOW, Wanted::Site(&far));
        assert_eq!(rows.len(), 1 + SITE_VERSIONS_MAX + 1, "the site, its versions, the others");
        let named = |row: &ShedRow| row.version.clone().unwrap();
        assert!(rows[1..4].iter().all(|row| row.answers == 2 && named(row) != OTHERS));
        assert_eq!(rows.last().map(named).as_deref(), Some(OTHERS));
        let all: u64 = rows[1..].iter().map(|row| row.answers).sum();
        assert_eq!((all, all), (Bytes::of(many + 3).0, rows[0].answers));
        let versions = |held: &MutexGuard<'_, BTreeMap<u32, Versions>>| held[&1].each.len();
        assert!(versions(&held(&sheds.of_sites[1])) <= 2 * SITE_VERSIONS_MAX);
    }

    #[test]
    fn the_worst_sites_are_those_with_most_bytes_led_past_them_for_content_or_health() {
        let sheds = Sheds::default();
        let film = "film-1".parse().unwrap();
        let count = |site, shed, times| {
            (0..times).for_each(|n| sheds.count(n, Nearest { site, shed }, &film, TURN));
        };
        count(0, Some(Shed::Health), 2);
        count(1, Some(Shed::Content), 3);
        count(0, Some(Shed::Before), 9);
        count(0, None, 9);
        let names = |most| -> Vec<String> {
            let rows = sheds.rows(&view(), NOW, Wanted::Worst(most, &sites(&["far", "near"])));
            rows.iter().map(|row| format!("{} {}", row.name, row.class)).collect()
        };
        assert_eq!(names(1), ["far content"]);
        assert_eq!(names(5), ["far content", "near none", "near health", "near before"]);
        let rows = sheds.rows(&view(), NOW, Wanted::Worst(1, &sites(&["near"])));
        assert!(rows.iter().all(|row| row.name == "near"), "far is not in the fleet: {rows:?}");
        assert_eq!(rows.len(), 3);
    }

    #[test]
    fn of_more_versions_at_sites_than_a_front_tells_no_byte_is_lost() {
        let (writer, front) = (Sheds::default(), Sheds::default());
        let mut view = FleetView::default();
        let many = TOLD_MAX / SITE_VERSIONS_MAX + 100;
        for number in 0..u32::try_from(many).unwrap() {
            let id = format!("site-{number}").parse().unwrap();
            let site = SiteView { id, serves_strangers: true, appliances: Vec::new() };
            view.put_site(number, Arc::new(site));
            let nearest = Nearest { site: number, shed: Some(Shed::Content) };
            for n in 0..SITE_VERSIONS_MAX {
                let version = format!("film-{n}").parse().unwrap();
                (0..=n % 2).for_each(|_| front.count(0, nearest, &version, TURN));
            }
        }
        let rows = front.own(&view);
        let pairs = || rows.iter().filter(|row| row.by == "site_version");
        let named: Vec<_> = pairs().filter(|row| row.version.as_deref() != Some(OTHERS)).collect();
        assert_eq!(named.len(), TOLD_MAX);
        let twice = named.iter().filter(|row| row.answers == 2).count();
        assert_eq!(twice, many * SITE_VERSIONS_MAX / 2, "all of those with most are named");
        let told = |by: &str| -> u64 {
            rows.iter().filter(|row| row.by == by).map(|row| row.reckoned_bytes).sum()
        };
        assert_eq!(told("site_version"), told("site"));
        let report = ShedReport { start_id: 1, number: 1, rows: rows.clone() };
        writer.fronts.take(NOW, "f1", &report).unwrap();
        for site in view.sites.iter() {
            let rows = writer.rows(&view, NOW, Wanted::Site(&site.id));
            let at_site: u64 = rows[1..].iter().map(|row| row.answers).sum();
            assert_eq!(at_site, rows[0].answers, "{rows:?}");
        }
    }

    #[test]
    fn the_longest_report_of_a_front_is_taken() {
        let row = |by: &str, version: Option<&str>| ShedRow {
            by: by.to_owned(),
            name: "n".repeat(NAME_LEN_MAX),
            version: version.map(str::to_owned),
            class: "content".to_owned(),
            begun: u64::MAX,
            answers: u64::MAX,
            reckoned_bytes: u64::MAX,
        };
        let version = "v".repeat(NAME_LEN_MAX);
        let all = [
            (row("site", None), SITES_MAX * (1 + CLASSES.len())),
            (row("version", None), (2 * VERSIONS_MAX + 1) * CLASSES.len()),
            (row("site_version", Some(&version)), TOLD_MAX * CLASSES.len()),
            (row("site_version", Some(OTHERS)), SITES_MAX * CLASSES.len()),
        ];
        let rows: usize = all.iter().map(|(_, count)| count).sum();
        assert!(rows <= wire::v1::sheds::ROWS_MAX, "{rows} rows");
        let len = |row: &ShedRow| serde_json::to_string(row).unwrap().len() + 1;
        let bytes: usize = all.iter().map(|(row, count)| len(row) * count).sum();
        assert!(bytes + 1024 <= SHEDS_LEN_MAX.as_usize(), "{bytes} bytes");
    }

    #[test]
    fn what_fronts_tell_is_summed_once_and_the_newest_of_each_counts() {
        let (writer, front) = (Sheds::default(), Sheds::default());
        let film = "film-1".parse().unwrap();
        let shed = Nearest { site: 1, shed: Some(Shed::Content) };
        writer.count(0, shed, &film, TURN);
        let (view, far) = (view(), "far".parse().unwrap());
        let tell = |name: &str, start_id, number| {
            let rows = front.own(&view);
            writer.fronts.take(NOW, name, &ShedReport { start_id, number, rows }).unwrap();
        };
        let answers = |now| -> Vec<u64> {
            let rows = writer.rows(&view, now, Wanted::Site(&far));
            rows.iter().map(|row| row.answers).collect()
        };
        assert_eq!(answers(NOW), [1, 1], "the site, and its version");
        front.count(0, shed, &film, TURN);
        front.count(0, shed, &film, TURN);
        for _ in 0..3 {
            tell("f1", 7, 1);
        }
        assert_eq!(answers(NOW), [3, 3], "it came three times");
        tell("f2", 7, 1);
        assert_eq!(answers(NOW), [5, 5], "of another front");
        front.count(0, shed, &film, TURN);
        tell("f1", 7, 3);
        assert_eq!(answers(NOW), [6, 6]);
        let late = ShedReport { start_id: 7, number: 2, rows: Vec::new() };
        writer.fronts.take(NOW, "f1", &late).unwrap();
        assert_eq!(answers(NOW), [6, 6], "an older one that comes late");
        let begun = ShedReport { start_id: 8, number: 1, rows: Vec::new() };
        writer.fronts.take(NOW, "f1", &begun).unwrap();
        assert_eq!(answers(NOW), [3, 3], "it was started anew");
        assert_eq!(writer.fronts.count(NOW), 2);
        let later = Instant(Nanos::seconds(3600).0);
        assert_eq!(answers(later), [1, 1], "they are gone");
        assert_eq!(writer.fronts.count(later), 0);
        let rows = writer.rows(&view, NOW, Wanted::All);
        assert_eq!(rows.iter().map(|row| row.answers).sum::<u64>(), 2 * 3);
    }

    #[test]
    fn a_front_of_another_release_is_understood_as_far_as_it_can_be() {
        let sheds = Sheds::default();
        let row = |by: &str, name: &str, class: &str| ShedRow {
            by: by.to_owned(),
            name: name.to_owned(),
            class: class.to_owned(),
            answers: u64::MAX,
            ..ShedRow::default()
        };
        let rows = vec![
            row("site", "far", "content"),
            row("site", "far", "content"),
            row("site", "far", "later"),
            row("rack", "far", "content"),
            row("site", "no name", "content"),
            row("site_version", "far", "content"),
        ];
        let report = ShedReport { start_id: 1, number: 1, rows };
        sheds.fronts.take(NOW, "f1", &report).unwrap();
        let rows = sheds.rows(&view(), NOW, Wanted::All);
        let told: Vec<_> = rows.iter().map(|row| (row.name.as_str(), row.answers)).collect();
        assert_eq!(told, [("far", u64::MAX)]);
        let rows = vec![row("site", "far", "none"); wire::v1::sheds::ROWS_MAX + 1];
        let report = ShedReport { rows, ..report };
        let refused = sheds.fronts.take(NOW, "f1", &report).unwrap_err().to_string();
        assert!(refused.contains("more than 150000"), "{refused}");
    }

    #[test]
    fn so_many_fronts_are_kept_and_no_more() {
        let fronts = Fronts::default();
        for n in 0..100_u64 {
            let report = ShedReport::default();
            fronts.take(Instant(n), &format!("f{n}"), &report).unwrap();
        }
        assert_eq!(fronts.count(Instant(100)), FRONTS_MAX);
    }

    /// An answer for each of so many versions, and two for the first of them.
    fn lead_past(sheds: &Sheds, nearest: Nearest, many: usize, twice: usize) {
        for n in 0..many {
            let version = format!("film-{n}").parse().unwrap();
            for _ in 0..=usize::from(n < twice) {
                sheds.count(Bytes::of(n).0, nearest, &version, TURN);
            }
        }
    }

    fn shown(row: &ShedRow) -> String {
        let ShedRow { by, name, version, class, begun, answers, reckoned_bytes } = row;
        let of = version.as_ref().map(|of| format!("/{of}")).unwrap_or_default();
        format!("{by} {name}{of} {class} {begun} {answers} {reckoned_bytes}")
    }
}
