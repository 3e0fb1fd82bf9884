//! Decides which objects to fetch and to evict, and says why not more.
//!
//! ```text
//! Wanted ──> Gap::note(object, Known)   as things change, O(log objects) each
//!              │
//!              ├─> Planner::step           some objects at a time, until true
//!              └─> Plan
//! ```
//!
//! **Fetch** in the manifest's order: asset versions as ranked, their files by path; what is urgent
//! before all else. An object
//! that several versions share is fetched once, from any of their sources. An object that finds no
//! room is passed over and reported; smaller ones after it may still fit. While evictions are due
//! it is waited for instead, so that what is wanted most gets the room that comes free.
//!
//! **Evict** what is in no version of the manifest, at once and not when room runs short: control
//! has said that it is not wanted here, room that is free is room that can be promised, and free
//! blocks are what keeps an SSD quick. Bounded per plan, so that a wrong manifest can be corrected
//! while most is still there, and so that deleting never floods a drive. Each drive that answers
//! gets its share, so that one which hangs holds nobody up.
//!
//! A plan costs what it names, and what it passes over for want of room: nothing is counted anew.

use model::drives::{DriveIndex, DriveSet};
use model::id::ObjectId;
use model::manifest::Manifest;
use model::units::Bytes;

use crate::gap::Gap;

/// Bounds of one plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Most objects to fetch; the rest comes with the next plan.
    pub fetch_max: usize,
    /// Most objects to evict; the rest comes with the next plan.
    pub evict_max: usize,
    pub urls_max: usize,
}

/// How things are beside the gap.
#[derive(Clone, Debug)]
pub struct Around {
    /// Free bytes of each drive in use, reserves taken off.
    pub free: Vec<Bytes>,
    /// How much of a drive an object of a length takes.
    pub room: fn(Bytes) -> Bytes,
    /// Something goes that the plan does not name.
    pub room_is_coming: bool,
    /// Drives that do not answer: nothing goes from them.
    pub hung: DriveSet,
}

/// The next work. Carrying it out needs no further decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// In this order.
    pub fetch: Vec<Fetch>,
    /// Published, no longer wanted.
    pub evict: Vec<(ObjectId, DriveIndex)>,
    /// Begun, and no longer wanted or published by now.
    pub drop_parts: Vec<ObjectId>,
    pub report: Report,
}

/// One object to fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetch {
    pub object: ObjectId,
    pub len: Bytes,
    /// Where its bytes are, best first.
    pub urls: Vec<String>,
}

/// The progress of fill, and the obstacles in its way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Objects in the manifest, each counted once.
    pub objects_wanted: u64,
    /// Of these, published.
    pub objects_held: u64,
    pub bytes_wanted: Bytes,
    /// Of these, published.
    pub bytes_held: Bytes,
    /// Objects that fit on no drive.
    pub objects_without_room: u64,
    pub bytes_without_room: Bytes,
    /// Objects for a later plan: beyond `fetch_max`, or waiting for room.
    pub objects_later: u64,
    /// Evictions not in this plan: beyond `evict_max`, on a drive that does not answer, or of what
    /// is left alone now.
    pub evictions_later: u64,
}

/// A plan that is being made, and how far it is.
#[derive(Clone, Debug)]
pub struct Planner {
    config: Config,
    around: Around,
    /// Numbers of objects that are looked at before all others, ascending, and how many of them
    /// were.
    urgent: Vec<usize>,
    urgent_next: usize,
    /// The number of the next object to look at.
    next: usize,
    /// An object did not fit, and room is coming: the plan ends before it.
    is_waiting: bool,
    plan: Plan,
}

impl Planner {
    /// Nothing is looked at yet.
    pub fn new(config: Config, gap: &Gap, mut around: Around) -> Self {
        around.room_is_coming |= gap.has_to_go(around.hung);
        let (urgent, plan) = (Vec::new(), Plan::default());
        Self { config, around, urgent, urgent_next: 0, next: 0, is_waiting: false, plan }
    }

    /// Objects of these numbers are looked at before all others, in the manifest's order.
    pub fn with_urgent(mut self, numbers: impl IntoIterator<Item = usize>) -> Self {
        assert!((self.next, self.urgent_next) == (0, 0), "nothing is looked at yet");
        self.urgent = numbers.into_iter().collect();
        self.urgent.sort_unstable();
        self
    }

    /// Looks at so many objects more, or at fewer that are to be fetched; true if no more is to be
    /// looked at. What changes between two steps is seen if it comes later in the order; the next
    /// plan sees all. `has_part` says of which objects a part is there already: its room is taken.
    pub fn step(
        &mut self,
        gap: &Gap,
        manifest: &Manifest,
        has_part: impl Fn(&ObjectId) -> bool,
        most: usize,
    ) -> bool {
        let mut left = most;
        while 0 < left {
            left -= 1;
            if self.is_waiting || self.config.fetch_max <= self.plan.fetch.len() {
                return true;
            }
            let (number, is_urgent) = match self.urgent.get(self.urgent_next) {
                Some(number) => (*number, true),
                None => match gap.next_ready(self.next) {
                    Some(number) => (number, false),
                    None => {
                        self.next = gap.wanted().objects().len();
                        return true;
                    }
                },
            };
            let before = (self.next, self.urgent_next);
            if is_urgent {
                self.urgent_next += 1;
            } else {
                self.next = number + 1;
            }
            // Neither held by now, nor looked at before.
            if is_urgent != self.urgent.binary_search(&number).is_ok() || !gap.is_ready(number) {
                continue;
            }
            let (object, len) = gap.wanted().objects()[number];
            if has_part(&object) || take(&mut self.around.free, (self.around.room)(len)) {
                let urls = gap.wanted().urls(manifest, number, self.config.urls_max);
                self.plan.fetch.push(Fetch { object, len, urls });
                left = left.saturating_sub(FETCH_COST);
            } else if self.around.room_is_coming {
                self.is_waiting = true;
                (self.next, self.urgent_next) = before;
            } else {
                self.plan.report.objects_without_room += 1;
                self.plan.report.bytes_without_room += len;
            }
        }
        false
    }

    /// The plan, when all was looked at. So many objects are `under_way` that nobody wants: who
    /// fetches what a new manifest does not want any more leaves a part, or an object, for a later
    /// plan.
    pub fn finish(self, gap: &Gap, under_way: usize) -> Plan {
        let Self { config, around, urgent, urgent_next, next, mut plan, .. } = self;
        assert!(next <= gap.wanted().objects().len(), "no more is looked at than there is");
        plan.evict = gap.evictions(config.evict_max, around.hung);
        plan.drop_parts = gap.useless_parts().collect();
        let report = &mut plan.report;
        report.objects_wanted = count(gap.wanted().objects().len());
        report.bytes_wanted = gap.wanted().bytes();
        (report.objects_held, report.bytes_held) = gap.held();
        let seen = urgent[..urgent_next].iter().filter(|of| next <= **of && gap.is_ready(**of));
        report.objects_later = count(gap.ready_from(next) - seen.count());
        report.evictions_later = count(gap.unwanted() - plan.evict.len() + under_way);
        assert!(plan.fetch.len() <= config.fetch_max && plan.evict.len() <= config.evict_max);
        assert!(report.bytes_held <= report.bytes_wanted);
        plan
    }
}

/// To name where an object can be had takes as long as to pass over so many others.
const FETCH_COST: usize = 4;

/// Takes room from the drive that has most; false if none has enough.
fn take(free: &mut [Bytes], need: Bytes) -> bool {
    match free.iter_mut().max() {
        Some(most) if need <= *most => {
            *most -= need;
            true
        }
        Some(_) | None => false,
    }
}

fn count(n: usize) -> u64 {
    Bytes::of(n).0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gap::{Known, Wanted};
    use model::id::Generation;
    use model::manifest::{AssetVersion, File};
    use model::units::UnixSeconds;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::Arc;

    const CONFIG: Config = Config { fetch_max: 100, evict_max: 100, urls_max: 8 };

    fn object(n: u8) -> ObjectId {
        ObjectId([n; 32])
    }

    /// Versions, each a list of (object, length).
    fn manifest(versions: &[&[(u8, u64)]]) -> Manifest {
        let version = |(i, files): (usize, &&[(u8, u64)])| {
            let file = |(n, len): &(u8, u64)| {
                let content_type = "video/mp4".into();
                let file = File { object: object(*n), len: Bytes(*len), content_type };
                (format!("r{n} é.mp4"), file)
            };
            Arc::new(AssetVersion {
                id: format!("film-{i}").parse().unwrap(),
                asset: "film".parse().unwrap(),
                sources: vec![format!("https://o{i}/"), format!("https://spare{i}/x/")],
                modified: UnixSeconds(0),
                pace: None,
                files: files.iter().map(file).collect(),
            })
        };
        Manifest {
            appliance: "a1".parse().unwrap(),
            generation: Generation(1),
            token_keys: Vec::new(),
            trust: model::manifest::Trust::default(),
            numbers: BTreeMap::new(),
            siblings: BTreeMap::new(),
            site: Vec::new(),
            versions: versions.iter().enumerate().map(version).collect(),
        }
    }

    fn set(objects: &[u8]) -> BTreeSet<ObjectId> {
        objects.iter().copied().map(object).collect()
    }

    const DRIVE: DriveIndex = DriveIndex(0);

    /// What is held, begun and left alone.
    #[derive(Clone, Debug, Default)]
    struct Actual {
        held: BTreeSet<ObjectId>,
        parts: BTreeSet<ObjectId>,
        skip: BTreeSet<ObjectId>,
    }

    impl Actual {
        fn gap(&self, manifest: &Manifest) -> Gap {
            let mut gap = Gap::new(Wanted::new(manifest));
            for object in self.held.iter().chain(&self.parts).chain(&self.skip) {
                self.note(&mut gap, *object);
            }
            gap
        }

        fn note(&self, gap: &mut Gap, object: ObjectId) {
            let held = self.held.contains(&object).then_some(DRIVE);
            let (is_busy, has_part) = (self.skip.contains(&object), self.parts.contains(&object));
            gap.note(object, Some(DRIVE), Known { held, is_busy, waits: false, has_part });
        }

        /// An object takes as much as it is long, and no room comes but what the plan makes.
        fn around(&self, free: &[Bytes]) -> Around {
            Around {
                free: free.to_vec(),
                room: |len| len,
                room_is_coming: false,
                hung: DriveSet::NONE,
            }
        }

        /// A plan in one step.
        fn plan(&self, config: &Config, manifest: &Manifest, free: &[Bytes]) -> Plan {
            let gap = self.gap(manifest);
            in_slices(config, manifest, self, &gap, free, usize::MAX)
        }
    }

    /// A plan in steps of so many objects.
    fn in_slices(
        config: &Config,
        manifest: &Manifest,
        actual: &Actual,
        gap: &Gap,
        free: &[Bytes],
        slice: usize,
    ) -> Plan {
        let mut planner = Planner::new(*config, gap, actual.around(free));
        while !planner.step(gap, manifest, |object| actual.parts.contains(object), slice) {}
        let under_way = actual.skip.iter().filter(|id| gap.wanted().len_of(id).is_none());
        planner.finish(gap, under_way.count())
    }

    /// The same from nothing: what a plan is.
    fn whole(config: &Config, manifest: &Manifest, actual: &Actual, free: &[Bytes]) -> Plan {
        let Actual { held, parts, skip } = actual;
        let wanted = Wanted::new(manifest);
        let is_wanted = |object: &ObjectId| wanted.len_of(object).is_some();
        let unwanted = |object: &&ObjectId| !is_wanted(object) && !skip.contains(*object);
        let mut plan = Plan::default();
        let mut evictions = held.iter().filter(unwanted).map(|object| (*object, DRIVE));
        plan.evict = evictions.by_ref().take(config.evict_max).collect();
        let under_way = skip.iter().filter(|object| !is_wanted(object)).count();
        plan.report.evictions_later = count(evictions.count() + under_way);
        let useless = |object: &&ObjectId| {
            unwanted(object) || (held.contains(*object) && !skip.contains(*object))
        };
        plan.drop_parts = parts.iter().filter(useless).copied().collect();
        let (mut free, mut waiting) = (free.to_vec(), false);
        let room_is_coming = !plan.evict.is_empty() || !plan.drop_parts.is_empty();
        for (number, (object, len)) in wanted.objects().iter().enumerate() {
            let report = &mut plan.report;
            report.objects_wanted += 1;
            report.bytes_wanted += *len;
            if held.contains(object) {
                report.objects_held += 1;
                report.bytes_held += *len;
            } else if skip.contains(object) {
            } else if waiting || config.fetch_max <= plan.fetch.len() {
                report.objects_later += 1;
            } else if parts.contains(object) || take(&mut free, *len) {
                let urls = wanted.urls(manifest, number, config.urls_max);
                plan.fetch.push(Fetch { object: *object, len: *len, urls });
            } else if room_is_coming {
                waiting = true;
                report.objects_later += 1;
            } else {
                report.objects_without_room += 1;
                report.bytes_without_room += *len;
            }
        }
        plan
    }

    /// Plans, with `free` on one drive per entry, and says it in one line.
    fn check(versions: &[&[(u8, u64)]], held: &[u8], parts: &[u8], free: &[u64], wanted: &str) {
        let free: Vec<Bytes> = free.iter().copied().map(Bytes).collect();
        let actual = Actual { held: set(held), parts: set(parts), skip: set(&[]) };
        let plan = actual.plan(&CONFIG, &manifest(versions), &free);
        let evict: Vec<ObjectId> = plan.evict.iter().map(|(object, _)| *object).collect();
        let ids = |ids: &[ObjectId]| ids.iter().map(|id| id.0[0]).collect::<Vec<_>>();
        let fetch: Vec<u8> = plan.fetch.iter().map(|fetch| fetch.object.0[0]).collect();
        let said = format!(
            "fetch {fetch:?} evict {:?} drop {:?} held {}/{} later {} no room {}",
            ids(&evict),
            ids(&plan.drop_parts),
            plan.report.objects_held,
            plan.report.objects_wanted,
            plan.report.objects_later,
            plan.report.objects_without_room,
        );
        assert_eq!(said, wanted);
    }

    #[test]
    fn what_is_urgent_is_planned_first_and_counted_once() {
        let manifest = manifest(&[&[(1, 5), (2, 5), (3, 5)], &[(4, 5), (5, 50)], &[(6, 5)]]);
        let actual = Actual { held: set(&[6]), ..Actual::default() };
        let gap = actual.gap(&manifest);
        let number = |n| gap.wanted().number_of(&object(n)).unwrap();
        let plan = |fetch_max, urgent: &[u8]| {
            let config = Config { fetch_max, ..CONFIG };
            let planner = Planner::new(config, &gap, actual.around(&[Bytes(15)]));
            let mut planner = planner.with_urgent(urgent.iter().map(|n| number(*n)));
            while !planner.step(&gap, &manifest, |_| false, 1) {}
            let plan = planner.finish(&gap, 0);
            let fetch: Vec<u8> = plan.fetch.iter().map(|fetch| fetch.object.0[0]).collect();
            (fetch, plan.report.objects_later, plan.report.objects_without_room)
        };
        assert_eq!(plan(9, &[]), (vec![1, 2, 3], 0, 2));
        assert_eq!(plan(9, &[6, 4, 2]), (vec![2, 4, 1], 0, 2));
        assert_eq!(plan(1, &[4, 2]), (vec![2], 4, 0));
        assert_eq!(plan(2, &[5, 4]), (vec![4, 1], 2, 1));
    }

    #[test]
    fn the_plan_follows_the_manifest_and_fetches_what_is_shared_once() {
        check(
            &[&[(5, 10), (6, 10)], &[(1, 10), (5, 10)]],
            &[6],
            &[],
            &[100],
            "fetch [5, 1] evict [] drop [] held 1/3 later 0 no room 0",
        );
    }

    #[test]
    fn what_no_version_wants_is_evicted_at_once_even_if_begun() {
        check(
            &[&[(1, 10)]],
            &[1, 2, 3],
            &[4],
            &[100],
            "fetch [] evict [2, 3] drop [4] held 1/1 later 0 no room 0",
        );
        check(&[], &[1], &[], &[], "fetch [] evict [1] drop [] held 0/0 later 0 no room 0");
    }

    #[test]
    fn what_finds_no_room_is_passed_over_unless_room_is_coming() {
        let versions: &[&[(u8, u64)]] = &[&[(1, 60), (2, 60), (3, 50), (4, 40)]];
        let said = "fetch [1, 2, 4] evict [] drop [] held 0/4 later 0 no room 1";
        check(versions, &[], &[], &[60, 100], said);
        let said = "fetch [1] evict [9] drop [] held 0/4 later 3 no room 0";
        check(versions, &[9], &[], &[59, 100], said);
    }

    #[test]
    fn what_is_fetched_and_no_longer_wanted_makes_another_plan_due() {
        let actual = Actual { held: set(&[1]), parts: set(&[]), skip: set(&[2]) };
        let plan = actual.plan(&CONFIG, &manifest(&[&[(1, 10)]]), &[]);
        assert_eq!((plan.report.objects_held, plan.report.evictions_later), (1, 1));
    }

    #[test]
    fn a_part_of_what_is_published_gives_its_room_back() {
        let said = "fetch [] evict [] drop [1] held 1/1 later 0 no room 0";
        check(&[&[(1, 60)]], &[1], &[1], &[0], said);
    }

    #[test]
    fn each_drive_that_answers_gets_its_share_of_what_goes() {
        let mut gap = Gap::new(Wanted::default());
        for n in 0..9 {
            let held = Some(DriveIndex(if n < 6 { 0 } else { n }));
            gap.note(object(n), None, Known { held, ..Known::default() });
        }
        let set = |drives: &[u8]| drives.iter().map(|n| DriveIndex(*n)).collect::<DriveSet>();
        let gone = |most, hung: &[u8]| -> Vec<u8> {
            gap.evictions(most, set(hung)).iter().map(|(object, _)| object.0[0]).collect()
        };
        assert_eq!(gone(4, &[]), [0, 6, 7, 8]);
        assert_eq!(gone(4, &[0]), [6, 7, 8], "one that hangs holds nobody up");
        assert_eq!(gone(3, &[7]), [0, 6, 8]);
        assert_eq!(gone(100, &[]).len(), 9);
        assert!(gap.has_to_go(set(&[6, 7, 8])) && !gap.has_to_go(set(&[0, 6, 7, 8])));
        // It changes drives.
        let held = Some(DriveIndex(5));
        gap.note(object(0), Some(DriveIndex(0)), Known { held, ..Known::default() });
        assert_eq!(gap.evictions(100, DriveSet::NONE).len(), 9);
    }

    #[test]
    fn a_part_needs_no_room_any_more() {
        let said = "fetch [1] evict [] drop [] held 0/2 later 0 no room 1";
        check(&[&[(1, 60), (2, 60)]], &[], &[1], &[0], said);
    }

    #[test]
    fn plans_are_bounded_and_leave_alone_what_is_under_way() {
        let config = Config { fetch_max: 1, evict_max: 2, urls_max: 3 };
        let actual = Actual { held: set(&[10, 11, 12, 13]), parts: set(&[]), skip: set(&[1, 10]) };
        let manifest = manifest(&[&[(1, 5), (2, 5), (3, 5)], &[(2, 5)]]);
        let plan = actual.plan(&config, &manifest, &[Bytes(1000)]);
        assert_eq!(plan.evict, [(object(11), DRIVE), (object(12), DRIVE)]);
        assert_eq!((plan.report.evictions_later, plan.report.objects_later), (2, 1));
        let urls = ["https://o0/", "https://o1/", "https://spare0/x/"];
        let urls = urls.map(|base| format!("{base}r2%20%C3%A9.mp4")).to_vec();
        assert_eq!(plan.fetch, [Fetch { object: object(2), len: Bytes(5), urls }]);
    }

    proptest! {
        #[test]
        fn plan_after_plan_leads_to_the_manifest(
            versions in prop::collection::vec(prop::collection::vec(0u8..20, 0..6), 0..5),
            held: Vec<u8>,
            fetch_max in 1usize..4,
            evict_max in 1usize..4,
        ) {
            let files: Vec<Vec<(u8, u64)>> =
                versions.iter().map(|ids| ids.iter().map(|id| (*id, 10)).collect()).collect();
            let files: Vec<&[(u8, u64)]> = files.iter().map(Vec::as_slice).collect();
            let manifest = manifest(&files);
            let wanted: BTreeSet<u8> = versions.iter().flatten().copied().collect();
            let config = Config { fetch_max, evict_max, urls_max: 8 };
            let mut actual = Actual { held: set(&held), ..Actual::default() };
            let drives = 300u64;
            for _ in 0..300 {
                let free = [Bytes(drives.saturating_sub(Bytes::of(actual.held.len()).0 * 10))];
                let plan = actual.plan(&config, &manifest, &free);
                if plan.fetch.is_empty() && plan.evict.is_empty() {
                    break;
                }
                actual.held.extend(plan.fetch.iter().map(|fetch| fetch.object));
                plan.evict.iter().for_each(|(object, _)| { actual.held.remove(object); });
            }
            let ids: Vec<u8> = wanted.into_iter().collect();
            prop_assert_eq!(actual.held, set(&ids));
        }

        #[test]
        fn a_plan_in_slices_of_what_was_noted_as_it_changed_is_that_of_all_there_is(
            versions in
                prop::collection::vec(prop::collection::vec((0u8..30, 1u64..40), 0..12), 0..4),
            steps in prop::collection::vec((0u8..30, 0u8..3, any::<bool>()), 0..80),
            free in prop::collection::vec(0u64..120, 0..4),
            (fetch_max, evict_max, slice) in (1usize..8, 1usize..8, 1usize..9),
        ) {
            let versions: Vec<&[(u8, u64)]> = versions.iter().map(Vec::as_slice).collect();
            let manifest = manifest(&versions);
            let config = Config { fetch_max, evict_max, urls_max: 3 };
            let free: Vec<Bytes> = free.into_iter().map(Bytes).collect();
            let mut actual = Actual::default();
            let mut gap = actual.gap(&manifest);
            for (n, which, is_in) in steps {
                let set = match which {
                    0 => &mut actual.held,
                    1 => &mut actual.parts,
                    _ => &mut actual.skip,
                };
                if is_in { set.insert(object(n)); } else { set.remove(&object(n)); }
                actual.note(&mut gap, object(n));
            }
            let sliced = in_slices(&config, &manifest, &actual, &gap, &free, slice);
            prop_assert_eq!(sliced, whole(&config, &manifest, &actual, &free));
        }
    }
}
