//! Numbers of asset versions and of their files, and what an object's numbers are.
//!
//! ```text
//! version 7 ──> files 700..800, one for each of its objects, in the order of their ids
//! object ──> 734, and 12 of a version that has it too
//! ```
//!
//! A version has its numbers from when it comes into the catalogue until it leaves. None is given
//! twice, so that what is known of an appliance cannot become something else. Numbers of files are
//! durable, since manifests tell them to appliances, which say by number what they hold; numbers of
//! versions are this process's own. An appliance's inventory is a set of files' numbers, and a
//! version is whole there if all of its range is in the set.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use model::id::{AssetId, AssetVersionId, Item, ObjectId};
use model::names::Names;
use model::number::{NumberSet, OWN_FILES, index};

use crate::catalog::{Version, Window};
use crate::shelf::Shelf;

/// The version of an asset that has one, with what a list needs of it: a list reads this one place
/// in memory and not the version.
#[derive(Clone, Debug)]
pub(crate) struct Alone {
    pub(crate) version: Arc<Version>,
    /// Of its name.
    pub(crate) hash: u64,
    pub(crate) number: u32,
    /// It may be shown at any time.
    pub(crate) is_always_open: bool,
}

/// The numbers of all versions in the catalogue.
#[derive(Debug)]
pub(crate) struct Files {
    /// By number. Invariant: no two ranges have a number in common.
    versions: Vec<Numbered>,
    /// Versions in the catalogue that have files, by the first of these.
    firsts: BTreeMap<u32, u32>,
    /// The next own number of a file, as versions have them in a replica whose writer gives none.
    next_own: u32,
    /// Above all durable numbers that files ever had here.
    end: u32,
    numbers: Arc<Names<AssetVersionId, u32>>,
    /// Of each asset of the catalogue that has one version.
    alone: Arc<Names<AssetId, Alone>>,
    /// By a version's number, that of its first rendition, where it has several that can be told
    /// apart; and above all of these. None is given twice either.
    renditions: Arc<Vec<u32>>,
    objects: Table,
    /// Versions without a file: whoever holds nothing holds them.
    empty: NumberSet,
}

/// Numbers that files had here: those below `durable`, and own ones below `own`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Given {
    pub(crate) durable: u32,
    own: u32,
}

impl Given {
    /// Whether a file had this number, or one above it.
    pub(crate) fn has(self, file: u32) -> bool {
        file < if file < OWN_FILES { self.durable } else { self.own }
    }
}

/// The numbers that versions have now. Cheap to clone; a version that comes while somebody has it
/// copies four bytes for each version once.
#[derive(Clone, Debug, Default)]
pub(crate) struct NumbersOf {
    versions: Arc<Names<AssetVersionId, u32>>,
    renditions: Arc<Vec<u32>>,
}

impl NumbersOf {
    /// Those of an item's version, and of its rendition if it is one; none if the version has left.
    /// O(log versions).
    pub(crate) fn of_item(&self, shelf: &Shelf, item: Item) -> Option<(u32, Option<u32>)> {
        let of = shelf.find(item)?;
        let (rendition, _) = of.items.each().find(|(_, other)| *other == item)?;
        let number = *self.versions.get(of.version.id())?;
        let first = *self.renditions.get(index(number))?;
        Some((number, rendition.checked_sub(1).map(|at| first + u32::from(at))))
    }
}

#[derive(Debug)]
struct Numbered {
    first: u32,
    len: u32,
    /// None once it has left the catalogue.
    version: Option<Arc<Version>>,
}

impl Default for Files {
    fn default() -> Self {
        Self {
            versions: Vec::new(),
            firsts: BTreeMap::new(),
            next_own: OWN_FILES,
            end: 0,
            numbers: Arc::default(),
            alone: Arc::default(),
            renditions: Arc::new(vec![0]),
            objects: Table::default(),
            empty: NumberSet::new(),
        }
    }
}

impl Files {
    /// Gives numbers to a version, unless it has them. One with other objects has left before.
    ///
    /// # Panics
    /// If all own numbers were given, of which a restart gives them anew; or if two versions have
    /// the same number, which whoever makes numbers durable prevents.
    pub(crate) fn put(&mut self, version: &Arc<Version>) -> u32 {
        if let Some(number) = self.number(version.id()) {
            let known = &mut self.versions[index(number)].version;
            let has_same = known.as_ref().is_some_and(|known| known.has_same_objects(version));
            assert!(has_same, "other objects have other numbers");
            *known = Some(Arc::clone(version));
            return number;
        }
        let number = u32::try_from(self.versions.len()).expect("fewer versions than files");
        let len = u32::try_from(version.objects().len()).expect("files of a version are bounded");
        let first = version.first_file.unwrap_or(self.next_own);
        let end =
            first.checked_add(len).expect("numbers of files are left: restart the control plane");
        match version.first_file {
            Some(_) => self.end = self.end.max(end),
            None => self.next_own = end,
        }
        let before = self.firsts.range(..end).next_back().map(|(_, number)| self.range(*number));
        assert!(before.is_none_or(|before| before.end <= first), "no number is given twice");
        for (file, object) in (first..).zip(version.objects()) {
            self.objects.put(head(object), file);
        }
        if len == 0 {
            self.empty.insert(number);
        } else {
            self.firsts.insert(first, number);
        }
        let next = self.renditions(number).start + u32::from(version.renditions().count());
        Arc::make_mut(&mut self.renditions).push(next);
        self.versions.push(Numbered { first, len, version: Some(Arc::clone(version)) });
        Arc::make_mut(&mut self.numbers).insert(version.id().clone(), number);
        assert_eq!(self.range(number).len(), version.objects().len(), "each has a number");
        number
    }

    /// The numbers that files had here until now.
    pub(crate) fn given(&self) -> Given {
        Given { durable: self.end, own: self.next_own }
    }

    /// A version has left the catalogue: no object has its numbers any more.
    pub(crate) fn take(&mut self, number: u32) {
        let numbered = &mut self.versions[index(number)];
        let Some(version) = numbered.version.take() else { return };
        for (file, object) in (numbered.first..).zip(version.objects()) {
            self.objects.take(head(object), file);
        }
        if !self.empty.remove(number) {
            self.firsts.remove(&numbered.first);
        }
        Arc::make_mut(&mut self.numbers).remove(version.id());
    }

    /// Names and numbers of all versions.
    pub(crate) fn numbers(&self) -> &Arc<Names<AssetVersionId, u32>> {
        &self.numbers
    }

    /// An asset has these versions, all of which have numbers. O(1); the first change after a
    /// picture copies a part of the table.
    pub(crate) fn put_asset(&mut self, asset: &AssetId, versions: &[Arc<Version>]) {
        let known = self.alone.get(asset);
        let [version] = versions else {
            if known.is_some() {
                Arc::make_mut(&mut self.alone).remove(asset);
            }
            return;
        };
        let number = self.number(version.id()).expect("each has a number");
        let is_same = |of: &Alone| of.number == number && Arc::ptr_eq(&of.version, version);
        if known.is_some_and(is_same) {
            return;
        }
        let is_always_open = version.window == Window::default();
        let (hash, version) = (version.id_hash(), Arc::clone(version));
        let alone = Alone { version, hash, number, is_always_open };
        Arc::make_mut(&mut self.alone).insert(asset.clone(), alone);
    }

    /// The numbers of versions, and of their first renditions. O(1).
    pub(crate) fn picture(&self) -> NumbersOf {
        NumbersOf { versions: Arc::clone(&self.numbers), renditions: Arc::clone(&self.renditions) }
    }

    /// The versions of assets that have one.
    pub(crate) fn alone(&self) -> &Arc<Names<AssetId, Alone>> {
        &self.alone
    }

    pub(crate) fn number(&self, version: &AssetVersionId) -> Option<u32> {
        self.numbers.get(version).copied()
    }

    pub(crate) fn version(&self, number: u32) -> Option<&Arc<Version>> {
        self.versions.get(index(number))?.version.as_ref()
    }

    /// The files of a version.
    pub(crate) fn range(&self, number: u32) -> Range<u32> {
        let Numbered { first, len, .. } = &self.versions[index(number)];
        *first..*first + *len
    }

    /// The numbers of a version's renditions; none if they cannot be told apart.
    pub(crate) fn renditions(&self, number: u32) -> Range<u32> {
        let first = self.renditions[index(number)];
        first..self.renditions.get(index(number) + 1).copied().unwrap_or(first)
    }

    /// The version that a file is of; none if no version in the catalogue has that number.
    pub(crate) fn version_at(&self, file: u32) -> Option<u32> {
        let (_, number) = self.firsts.range(..=file).next_back()?;
        self.range(*number).contains(&file).then_some(*number)
    }

    /// The version that a file is of that has its number of here.
    pub(crate) fn version_of(&self, file: u32) -> u32 {
        self.version_at(file).expect("the file has a number, so there is a version")
    }

    /// The first file of a version in the catalogue that comes after a number.
    pub(crate) fn next_after(&self, file: u32) -> Option<u32> {
        let above = (std::ops::Bound::Excluded(file), std::ops::Bound::Unbounded);
        self.firsts.range(above).next().map(|(first, _)| *first)
    }

    /// The numbers of an object: one in each version that has it.
    pub(crate) fn of<'a>(&'a self, object: &'a ObjectId) -> impl Iterator<Item = u32> + 'a {
        self.objects.of(head(object)).filter(|file| self.object(*file) == Some(object))
    }

    /// The object that a file is.
    pub(crate) fn object(&self, file: u32) -> Option<&ObjectId> {
        let number = self.version_at(file)?;
        let version = self.version(number)?;
        version.objects().get(index(file - self.range(number).start))
    }

    pub(crate) fn empty(&self) -> &NumberSet {
        &self.empty
    }
}

fn head(object: &ObjectId) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = object.0;
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// Files by the first five bytes of their objects' ids, which are drawn evenly, as they are of a
/// hash: a table of slots with linear probing needs no other. Others may begin with the same:
/// whoever asks compares. In parts, so that none takes long to be made anew when it is full. O(1).
/// Ten million files take 8 bytes each, and what is free.
#[derive(Debug)]
struct Table {
    parts: Vec<Part>,
}

/// Invariant: at most three quarters of the slots are taken; their number is a power of two, or 0.
#[derive(Debug, Default)]
struct Part {
    slots: Vec<Slot>,
    taken: usize,
}

/// The bits of a head that come after those of its part, and its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    tag: u32,
    file: u32,
}

impl Slot {
    /// No file has the last number.
    const FREE: Self = Self { tag: 0, file: u32::MAX };
}

fn tag(head: u64) -> u32 {
    u32::try_from(head << PARTS_BITS >> 32).expect("it has 32 bits")
}

/// Ten million files have 40,000 in each.
const PARTS_BITS: u32 = 8;

impl Default for Table {
    fn default() -> Self {
        Self { parts: (0..1 << PARTS_BITS).map(|_| Part::default()).collect() }
    }
}

impl Table {
    fn part(&self, head: u64) -> usize {
        let part = head >> (u64::BITS - PARTS_BITS);
        usize::try_from(part).expect("it has eight bits") % self.parts.len()
    }

    fn put(&mut self, head: u64, file: u32) {
        let part = self.part(head);
        self.parts[part].put(Slot { tag: tag(head), file });
    }

    fn take(&mut self, head: u64, file: u32) {
        let part = self.part(head);
        self.parts[part].take(Slot { tag: tag(head), file });
    }

    fn of(&self, head: u64) -> impl Iterator<Item = u32> + '_ {
        let part = &self.parts[self.part(head)];
        let tag = tag(head);
        let found = part.run(part.home(tag)).filter(move |(_, slot)| slot.tag == tag);
        found.map(|(_, slot)| slot.file)
    }
}

impl Part {
    /// Where the search for it begins.
    fn home(&self, tag: u32) -> usize {
        index(tag) & self.slots.len().wrapping_sub(1)
    }

    fn after(&self, slot: usize) -> usize {
        (slot + 1) & (self.slots.len() - 1)
    }

    /// The slots from one on that are taken, until one that is not.
    fn run(&self, from: usize) -> impl Iterator<Item = (usize, Slot)> + '_ {
        let all = (0..self.slots.len()).map(move |n| (from + n) & (self.slots.len() - 1));
        all.map(|at| (at, self.slots[at])).take_while(|(_, slot)| *slot != Slot::FREE)
    }

    fn put(&mut self, new: Slot) {
        if self.slots.len() / 4 * 3 <= self.taken {
            let slots = vec![Slot::FREE; (self.slots.len() * 2).max(8)];
            let before = std::mem::replace(self, Self { slots, taken: 0 });
            let taken = before.slots.into_iter().filter(|slot| *slot != Slot::FREE);
            taken.for_each(|slot| self.put_in(slot));
        }
        self.put_in(new);
    }

    fn put_in(&mut self, new: Slot) {
        let mut at = self.home(new.tag);
        while self.slots[at] != Slot::FREE {
            at = self.after(at);
        }
        self.slots[at] = new;
        self.taken += 1;
        assert!(self.taken < self.slots.len(), "every search comes to an end");
    }

    /// Frees a slot, and moves those behind it that began their search before it.
    fn take(&mut self, gone: Slot) {
        let found = self.run(self.home(gone.tag)).find(|(_, known)| *known == gone);
        let Some((mut free, _)) = found else { return };
        self.slots[free] = Slot::FREE;
        self.taken -= 1;
        let mut at = self.after(free);
        while self.slots[at] != Slot::FREE {
            let mask = self.slots.len() - 1;
            let home = self.home(self.slots[at].tag);
            let from_home = |at: usize| at.wrapping_sub(home) & mask;
            if from_home(free) < from_home(at) {
                self.slots.swap(free, at);
                free = at;
            }
            at = self.after(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_table_holds_what_a_list_holds(
            steps in proptest::collection::vec((any::<bool>(), 0_u32..6, 0_u32..40), 0..300)
        ) {
            let (mut part, mut list) = (Part::default(), Vec::new());
            for (puts, head, file) in steps {
                // All begin their search at the end of the table, and few slots apart.
                let slot = Slot { tag: u32::MAX - head, file };
                if puts && !list.contains(&slot) {
                    part.put(slot);
                    list.push(slot);
                } else if !puts {
                    part.take(slot);
                    list.retain(|known| *known != slot);
                }
                prop_assert_eq!(part.taken, list.len());
                for slot in &list {
                    prop_assert!(part.run(part.home(slot.tag)).any(|(_, known)| known == *slot));
                }
            }
        }
    }
}
