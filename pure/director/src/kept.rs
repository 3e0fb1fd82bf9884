//! Versions that should be held: which of the catalogue's, and the numbers that they have.
//!
//! ```text
//! catalogue, policy ──> kept ──> numbers of versions and files ──> what each appliance holds whole
//! ```
//!
//! A change of the catalogue costs what it touches, with those that may hold some of that: of a new
//! version whose numbers were never given nobody holds anything but who is ahead.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::id::{AssetId, AssetVersionId, ObjectId};
use model::number::NumberSet;
use model::units::Instant;

use crate::Director;
use crate::catalog::Version;
use crate::files::Given;
use crate::observed::Known;

/// What appliances have told of what they hold, as far as a change of the catalogue asks.
#[derive(Debug, Default)]
pub(crate) struct ToldFiles {
    /// Appliances, by number, that hold files whose numbers were above all that were known here
    /// when they last reported. At a front that hears of a version late there may be many.
    ahead: NumberSet,
    /// Appliances of which nothing is known by number: they tell ids of objects.
    by_id: NumberSet,
    /// Appliances that were looked at.
    #[cfg(test)]
    pub(crate) looked_at: u64,
}

impl ToldFiles {
    /// An appliance has reported, and holds these files, if what is known of it was told by number.
    pub(crate) fn told(&mut self, appliance: u32, held: Option<&NumberSet>, given: Given) {
        let is_ahead = held.and_then(NumberSet::max).is_some_and(|most| given.durable <= most);
        for (set, is_in) in [(&mut self.ahead, is_ahead), (&mut self.by_id, held.is_none())] {
            if is_in {
                set.insert(appliance);
            } else {
                set.remove(appliance);
            }
        }
    }

    /// An appliance is not registered any more.
    pub(crate) fn gone(&mut self, appliance: u32) {
        self.ahead.remove(appliance);
        self.by_id.remove(appliance);
    }
}

/// The part of the catalogue that a change is about.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    pub(crate) versions: BTreeSet<AssetVersionId>,
    pub(crate) assets: BTreeSet<AssetId>,
}

impl Director {
    /// All of the catalogue, and all that has numbers.
    pub(crate) fn all_versions(&self) -> BTreeSet<AssetVersionId> {
        let numbered = self.files.numbers().unordered().map(|(id, _)| id.clone());
        self.desired.catalog.all().map(|version| version.id().clone()).chain(numbered).collect()
    }

    /// The part of the catalogue that a change of these versions is about: their assets as they
    /// were, by their numbers, and as they are.
    fn touched_by(&self, versions: BTreeSet<AssetVersionId>) -> Touched {
        let asset_of = |version: &Arc<Version>| version.files.asset.clone();
        let assets = versions.iter().flat_map(|id| {
            let before = self.files.number(id).and_then(|number| self.files.version(number));
            [before, self.desired.catalog.version(id)].into_iter().flatten().map(asset_of)
        });
        Touched { assets: assets.collect(), versions }
    }

    /// Numbers follow the catalogue, and which versions should be held follows from it and from the
    /// policy. Looked at are the objects of those that come and go, for each appliance that may
    /// hold some of them. O(touched + those), and O(appliances) where what had numbers before
    /// should be held from now on, as where the policy keeps more.
    pub(crate) fn choose_kept(&mut self, now: Instant, versions: BTreeSet<AssetVersionId>) {
        let touched = self.touched_by(versions);
        let before = self.files.given();
        let gone = self.number_versions(&touched.versions);
        let (mut came, mut lost) = (NumberSet::new(), NumberSet::new());
        for number in gone.into_iter().filter(|number| self.kept_numbers.contains(*number)) {
            lost.insert(number);
        }
        let count = self.desired.versions_kept();
        let catalog = Arc::clone(&self.desired.catalog);
        for asset in &touched.assets {
            self.files.put_asset(asset, catalog.versions(asset));
            for (age, version) in catalog.versions(asset).iter().enumerate() {
                let number = self.files.number(version.id()).expect("each has a number by now");
                match (age < count, self.kept_numbers.contains(number)) {
                    (true, false) => came.insert(number),
                    (false, true) => lost.insert(number),
                    (true, true) | (false, false) => continue,
                };
            }
        }
        self.kept_numbers |= &came;
        self.kept_numbers -= &lost;
        self.look_at_versions(now, &touched);
        self.recount(&came, &lost, before);
    }

    /// Who holds these, that should be held from now on, and those, that should not. Numbers that
    /// were given before this change may be held by anybody.
    fn recount(&mut self, came: &NumberSet, lost: &NumberSet, before: Given) {
        if came.is_empty() && lost.is_empty() {
            return;
        }
        let numbers = self.may_hold(came, lost, before);
        #[cfg(test)]
        {
            self.told_files.looked_at += numbers.len();
        }
        let known = Known {
            files: &self.files,
            kept: &self.kept_numbers,
            others_max: self.config.objects_held_max,
        };
        for number in &numbers {
            let Some(member) = self.members.of_number_mut(number) else { continue };
            let Some(observed) = &mut member.observed else { continue };
            if let Some(before) = observed.keep(came, lost, known) {
                self.map.holds(number, &before, &observed.wholes());
                self.map.outdate(member.site);
            }
        }
    }

    /// The appliances, by number, that may hold some of these, which should be held from now on, or
    /// hold all of one of those, or of a rendition, which should not.
    fn may_hold(&self, came: &NumberSet, lost: &NumberSet, before: Given) -> NumberSet {
        // Whoever holds nothing holds a version without files.
        let is_known = |version: u32| {
            let range = self.files.range(version);
            range.is_empty() || before.has(range.start)
        };
        if came.iter().any(is_known) {
            return (0..self.map.numbers_end()).collect();
        }
        let mut numbers = self.told_files.by_id.clone();
        if !came.is_empty() {
            numbers |= &self.told_files.ahead;
        }
        for version in lost {
            self.map.holders(version).into_iter().for_each(|all| numbers.extend(all.each()));
            let renditions = self.files.renditions(version);
            let holders = renditions.filter_map(|number| self.map.partial_holders(number));
            holders.for_each(|all| numbers.extend(all.each()));
        }
        numbers
    }

    /// Gives numbers to versions that are new in the catalogue, and takes those of others: those
    /// that are taken.
    fn number_versions(&mut self, touched: &BTreeSet<AssetVersionId>) -> Vec<u32> {
        let catalog = Arc::clone(&self.desired.catalog);
        let mut gone = Vec::new();
        // One that came back with other files between two looks is another version.
        let files = &self.files;
        let is_other = |number: u32, version: &Arc<Version>| {
            files.version(number).is_some_and(|before| !before.has_same_objects(version))
        };
        let (mut others, mut here) = (Vec::new(), Vec::new());
        for id in touched {
            let number = self.files.number(id);
            match (number, catalog.version(id)) {
                (Some(number), None) => gone.push(number),
                (Some(number), Some(version)) if is_other(number, version) => {
                    others.push(number);
                    here.push(version);
                }
                (_, Some(version)) => here.push(version),
                (None, None) => {}
            }
        }
        others.iter().for_each(|number| self.number_goes(*number));
        for version in here {
            let is_new = self.files.number(version.id()).is_none();
            let number = self.files.put(version);
            if is_new {
                self.map.put_renditions(number, self.files.renditions(number));
                let twins =
                    if self.told_files.by_id.is_empty() { vec![] } else { self.twins(number) };
                for appliance in &self.told_files.by_id {
                    let observed = self.members.of_number_mut(appliance);
                    let observed = observed.and_then(|of| of.observed.as_mut());
                    observed.into_iter().for_each(|of| {
                        of.version_came(number, &twins, &self.files);
                    });
                }
            }
        }
        gone.iter().for_each(|number| self.number_goes(*number));
        gone.extend(others);
        gone
    }

    fn number_goes(&mut self, number: u32) {
        let most = self.config.objects_held_max;
        for appliance in &self.told_files.by_id {
            let observed = self.members.of_number_mut(appliance);
            let observed = observed.and_then(|of| of.observed.as_mut());
            observed.into_iter().for_each(|of| of.version_goes(number, &self.files, most));
        }
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
