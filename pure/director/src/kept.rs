//! Versions that should be held: which of the catalogue's, and the numbers that they have.
//!
//! ```text
//! catalogue, policy ──> kept ──> numbers of versions and files ──> what each appliance holds whole
//! ```

use std::sync::Arc;

use model::id::ObjectId;
use model::number::NumberSet;
use model::units::Bytes;

use crate::Director;
use crate::catalog::{Catalog, Version};
use crate::observed::Known;

impl Director {
    /// Numbers follow the catalogue, and which versions should be held follows from it and from the
    /// policy. Looked at are the objects of those that come and go, for each appliance that holds
    /// some of them. O(versions) besides.
    pub(crate) fn choose_kept(&mut self) {
        let count = usize::try_from(self.desired.policy.versions_kept).unwrap_or(usize::MAX);
        let catalog = Arc::clone(&self.desired.catalog);
        self.number_versions(&catalog);
        self.kept = catalog.kept(count).into_iter().map(|(_, version)| version.clone()).collect();
        let number = |version: &Arc<Version>| self.files.number(version.id());
        let kept = self.kept.iter().filter_map(number).collect::<NumberSet>();
        assert_eq!(kept.len(), Bytes::of(self.kept.len()).0, "each that is kept has a number");
        let came = &kept - &self.kept_numbers;
        let is_same = kept == self.kept_numbers;
        self.kept_numbers = kept;
        if is_same {
            return;
        }
        let known = Known {
            files: &self.files,
            kept: &self.kept_numbers,
            others_max: self.config.objects_held_max,
        };
        for member in self.members.values_mut() {
            let Some(observed) = &mut member.observed else { continue };
            let before = observed.wholes();
            observed.keep(&came, known);
            if !before.is(&observed.wholes()) {
                self.map.holds(member.number, &before, &observed.wholes());
                self.map.outdate(member.site);
            }
        }
    }

    /// Gives numbers to versions that are new in the catalogue, and takes those of others.
    fn number_versions(&mut self, catalog: &Catalog) {
        // One that came back with other files between two looks is another version.
        let files = &self.files;
        let is_other = |number: u32, version: &Arc<Version>| {
            files.version(number).is_some_and(|before| !before.has_same_objects(version))
        };
        let numbers = files.numbers().iter().map(|(id, number)| (catalog.version(id), *number));
        let (mut gone, mut other) = (Vec::new(), Vec::new());
        for (version, number) in numbers {
            match version {
                None => gone.push(number),
                Some(version) if is_other(number, version) => other.push(number),
                Some(_) => {}
            }
        }
        other.into_iter().for_each(|number| self.number_goes(number));
        for version in catalog.all() {
            let is_new = self.files.number(version.id()).is_none();
            let number = self.files.put(version);
            if is_new {
                let twins = self.twins(number);
                let observed = self.members.values_mut().filter_map(|of| of.observed.as_mut());
                observed.for_each(|of| of.version_came(number, &twins, &self.files));
            }
        }
        gone.into_iter().for_each(|number| self.number_goes(number));
    }

    fn number_goes(&mut self, number: u32) {
        let most = self.config.objects_held_max;
        let observed = self.members.values_mut().filter_map(|of| of.observed.as_mut());
        observed.for_each(|of| of.version_goes(number, &self.files, most));
        self.files.take(number);
    }

    /// The files of a version whose objects have other numbers too, each with one of those.
    fn twins(&self, version: u32) -> Vec<(u32, u32)> {
        let range = self.files.range(version);
        let objects = self.files.version(version).into_iter().flat_map(|of| of.objects());
        let twin = |(file, object): (u32, &ObjectId)| {
            let twin = self.files.of(object).find(|twin| !range.contains(twin))?;
            Some((file, twin))
        };
        range.clone().zip(objects).filter_map(twin).collect()
    }
}
