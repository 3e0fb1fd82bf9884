//! Who would hold a version if fewer appliances of each site did.

use std::collections::BTreeMap;

use model::id::AssetVersionId;
use model::members::Members;
use model::view::{ApplianceView, FleetView, SiteView};

/// The holders of versions, cut to so many in each site when one is asked for, and again when they
/// or the sites have changed: O(appliances of their sites x log holders).
#[derive(Debug)]
pub(crate) struct FewerCopies {
    /// None for as many as there are.
    copies: Option<u32>,
    /// As they are in the file, and at which state of the sites they were cut.
    held: BTreeMap<AssetVersionId, (Members, Option<u64>)>,
    sites: u64,
}

impl FewerCopies {
    pub(crate) fn new(copies: Option<u32>) -> Self {
        Self { copies, held: BTreeMap::new(), sites: 0 }
    }

    pub(crate) fn sites_changed(&mut self) {
        self.sites += 1;
    }

    pub(crate) fn held(&mut self, id: &AssetVersionId, holders: &Members) {
        if self.copies.is_some() {
            self.held.insert(id.clone(), (holders.clone(), None));
        }
    }

    /// The holders that are left of a version's; none if they are as they were.
    pub(crate) fn of(
        &mut self,
        id: &AssetVersionId,
        sites: &BTreeMap<u32, SiteView>,
        view: &FleetView,
    ) -> Option<Members> {
        let copies = self.copies?;
        let (holders, cut_at) = self.held.get_mut(id)?;
        if cut_at.replace(self.sites) == Some(self.sites) {
            return None;
        }
        let mut by_site: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for number in holders.each() {
            if let Some(position) = view.position(number) {
                by_site.entry(position.site).or_default().push(number);
            }
        }
        let left = by_site.iter().filter_map(|(site, held)| {
            let members = sites.get(site)?.appliances.iter();
            let is_held = |of: &&ApplianceView| held.binary_search(&of.number).is_ok();
            let members: Vec<_> = members.filter(is_held).collect();
            let named = members.iter().map(|of| (&of.id, of.weight));
            let first = placement::order(id, named).into_iter().take(model::number::index(copies));
            Some(first.map(|at| members[at].number).collect::<Vec<u32>>())
        });
        Some(left.flatten().collect())
    }
}
