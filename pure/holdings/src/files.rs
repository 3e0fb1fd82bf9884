//! The inventory that control is told: the files of the manifest that are held, by the numbers that
//! it gives them, or all objects, by their ids.
//!
//! Made from where each object lies now, and not from the changes that control is told: so a change
//! that was forgotten leaves a difference that control sees.

use std::sync::Arc;

use model::drives::DriveIndex;
use model::id::{Generation, ObjectId};
use model::inventory::{Check, Delta, FILES_CHANGED_MAX, FilesDelta};
use model::manifest::Manifest;
use model::number::NumberSet;

use crate::Holdings;

/// The numbers of a manifest's files, for those who ask often and not here.
#[derive(Clone, Debug)]
pub struct Numbers {
    manifest: Arc<Manifest>,
    /// Sorted.
    of_objects: Arc<Vec<(ObjectId, u32)>>,
}

impl Numbers {
    /// The number that an object has as a file of a version. O(log files).
    pub fn of(&self, version: &str, object: ObjectId) -> Option<u32> {
        let first = self.manifest.numbers.get(version)?.first;
        let all = numbers_of(Some(&self.of_objects), object).map(|(_, file)| *file);
        // The version has the object, and its files are one range: no other has one in between.
        all.filter(|file| first <= *file).min()
    }

    /// The generation of the manifest.
    pub fn generation(&self) -> Generation {
        self.manifest.generation
    }
}

/// Numbers of the manifest's files, and which of them are told.
#[derive(Debug, Default)]
pub(crate) struct Files {
    /// Sorted. None if the manifest has no numbers.
    numbers: Option<Arc<Vec<(ObjectId, u32)>>>,
    held: NumberSet,
    /// Invariant: of `held`.
    check: Check,
    /// Objects with a number that are held.
    objects: u64,
}

impl Holdings {
    /// The news for a control that has seen `known`. The check comes from the index, not
    /// from the changes that were told: if one was forgotten, control sees that there is a
    /// difference.
    pub fn inventory_since(&self, known: u64) -> Delta {
        let held = self.index.iter().filter(|(_, extent)| self.is_told(extent.drive));
        let delta = self.inventory.since(known, held.map(|(object, _)| *object));
        Delta { check: Some(self.index.check(|drive| self.is_told(drive))), ..delta }
    }

    /// The same by number; none if the manifest in force has no numbers.
    pub fn files_since(&self, known: u64) -> Option<FilesDelta> {
        let files = &self.desired.files;
        if !files.has_numbers() {
            return None;
        }
        let told = self.index.check(|drive| self.is_told(drive)).count;
        let (to, check) = (self.inventory.state(), files.check());
        let others = told.saturating_sub(files.objects());
        let all = FilesDelta { from: 0, to, check, others, ..FilesDelta::default() };
        let whole = |all| FilesDelta { came: files.held().clone(), ..all };
        let Some(changes) = self.inventory.changes_since(known) else {
            return Some(whole(all));
        };
        let mut delta = FilesDelta { from: known, ..all.clone() };
        for (object, came) in changes {
            let set = if came { &mut delta.came } else { &mut delta.gone };
            set.extend(files.of(object));
        }
        let is_short = delta.came.len().max(delta.gone.len()) <= FILES_CHANGED_MAX;
        Some(if is_short { delta } else { whole(all) })
    }

    /// The numbers of the files of the manifest in force; none if it has none. O(1).
    pub fn numbers(&self) -> Option<Numbers> {
        let of_objects = Arc::clone(self.desired.files.numbers.as_ref()?);
        Some(Numbers { manifest: Arc::clone(self.manifest()?), of_objects })
    }

    /// True if control is told of the objects on this drive. Those on a drive that was let go are
    /// told as gone slice by slice, as the index forgets them.
    pub(crate) fn is_told(&self, drive: DriveIndex) -> bool {
        !self.hung.contains(drive)
    }

    /// Notes whether the inventory says that an object is held, which lies on this drive.
    pub(crate) fn refresh_files(&mut self, object: ObjectId, held: Option<DriveIndex>) {
        let is_told = self.tells(held);
        self.desired.files.note(object, is_told);
        if let Some(next) = &mut self.next {
            next.desired.files.note(object, is_told);
        }
    }

    /// True if the inventory says that an object is held, which lies on this drive.
    pub(crate) fn tells(&self, held: Option<DriveIndex>) -> bool {
        held.is_some_and(|drive| self.is_told(drive))
    }
}

impl Files {
    pub(crate) fn new(manifest: &Manifest) -> Self {
        Self { numbers: manifest.numbered().map(Arc::new), ..Self::default() }
    }

    /// Without a manifest there is no file: that can be told by number, too.
    pub(crate) fn none() -> Self {
        Self { numbers: Some(Arc::default()), ..Self::default() }
    }

    /// True if the manifest has numbers.
    pub(crate) fn has_numbers(&self) -> bool {
        self.numbers.is_some()
    }

    /// How many numbers the manifest gives; none if it has none.
    pub(crate) fn count(&self) -> Option<usize> {
        self.numbers.as_ref().map(|all| all.len())
    }

    /// The numbers of an object: one in each version that has it. O(log files).
    pub(crate) fn of(&self, object: ObjectId) -> impl Iterator<Item = u32> + '_ {
        numbers_of(self.numbers.as_deref().map(Vec::as_slice), object).map(|(_, file)| *file)
    }

    /// Notes whether control is to know that an object is held.
    pub(crate) fn note(&mut self, object: ObjectId, is_held: bool) {
        let mut changed = false;
        for (_, file) in numbers_of(self.numbers.as_deref().map(Vec::as_slice), object) {
            if is_held && self.held.insert(*file) {
                self.check.put_file(*file);
                changed = true;
            } else if !is_held && self.held.remove(*file) {
                self.check.take_file(*file);
                changed = true;
            }
        }
        match (changed, is_held) {
            (true, true) => self.objects += 1,
            (true, false) => self.objects -= 1,
            (false, _) => {}
        }
        assert!(self.objects <= self.check.count, "each has a number");
    }

    /// All that are held.
    pub(crate) fn held(&self) -> &NumberSet {
        &self.held
    }

    /// The check of those.
    pub(crate) fn check(&self) -> Check {
        self.check
    }

    /// How many objects they are.
    pub(crate) fn objects(&self) -> u64 {
        self.objects
    }
}

fn numbers_of(
    numbers: Option<&[(ObjectId, u32)]>,
    object: ObjectId,
) -> impl Iterator<Item = &(ObjectId, u32)> {
    let numbers = numbers.unwrap_or_default();
    let from = numbers.partition_point(|(other, _)| *other < object);
    numbers[from..].iter().take_while(move |(other, _)| *other == object)
}
