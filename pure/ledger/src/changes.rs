//! What of a picture is other than in the one before.

use std::sync::Arc;

use model::view::{ApplianceView, FleetView, SiteView};

use crate::entry;
use crate::picture::Vital;

/// Adds what of a picture is other than in the one before, which may be a newer one: requests that
/// are answered at once do not come in the order of their pictures. O(1) for each page of sites
/// that both share, and O(sites) for each page that they do not.
pub(crate) fn put_changes(bytes: &mut Vec<u8>, before: &FleetView, now: &FleetView) {
    // All fields, so that a new one is not forgotten.
    let FleetView {
        generation: _,
        sites,
        // Follow from the sites.
        appliances: _,
        numbers_of_site: _,
        positions,
        open: _,
        // Told when a decision is about them.
        versions: _,
        holders: _,
        partial_holders: _,
    } = now;
    for number in sites.unshared(&before.sites) {
        let site = sites.get(number).expect("it is one of them");
        match before.sites.get(number) {
            Some(old) if Arc::ptr_eq(old, site) => {}
            Some(old) if is_same_but_for_vitals(old, site) => {
                let pairs = old.appliances.iter().zip(&site.appliances).enumerate();
                for (at, (old, new)) in pairs {
                    let vital = Vital::of(new);
                    if vital != Vital::of(old) {
                        entry::put_vital(bytes, number, at, &vital);
                    }
                }
            }
            Some(_) | None => entry::put_site(bytes, number, site),
        }
    }
    for number in sites.len()..before.sites.len() {
        // As one whose site is gone.
        let old = before.sites.get(number).expect("it is one of them");
        let none = SiteView { appliances: Vec::new(), ..old.as_ref().clone() };
        entry::put_site(bytes, number, &Arc::new(none));
    }
    if positions.len() != before.positions.len() {
        entry::put_size(bytes, positions.len());
    }
}

fn is_same_but_for_vitals(old: &SiteView, new: &SiteView) -> bool {
    let fixed = |of: &ApplianceView| (of.number, of.weight);
    old.id == new.id
        && old.serves_strangers == new.serves_strangers
        && old.appliances.len() == new.appliances.len()
        && old
            .appliances
            .iter()
            .zip(&new.appliances)
            .all(|(old, new)| fixed(old) == fixed(new) && old.id == new.id)
}
