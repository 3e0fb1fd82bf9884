//! What operators say of versions: pins, bans, and what is urgent; and what must follow of it, by a
//! reckoning of its own.
//!
//! ```text
//! trouble: said and ended at whim ──> calm: a forced plan ──> rules that must hold
//!         ──> what their plan evicts is meant ──> looked at
//! ```

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use director::wishes::{Rule, RuleKind, Where, Wishes};
use director::{Change, Version};
use model::hours::URGENT_MAX;
use model::id::{ApplianceId, AssetVersionId, SiteId};
use model::manifest::AssetVersion;
use model::units::Nanos;

use crate::fleet::Fleet;
use crate::stage::WORLD;

/// The forced plan of calm is carried out by then.
const SAYS_AFTER: Nanos = Nanos::seconds(8);
/// The plan for the last rules has come by then.
const FORCES_AFTER: Nanos = Nanos::seconds(24);
/// Few, so that some end.
const RULES_MAX: usize = 6;

/// Another version is urgent, or one is no more.
pub(crate) fn urgent(fleet: &Rc<Fleet>) {
    let (stage, control) = (&fleet.stage, &fleet.control);
    let Some(version) = stage.pick(&control.versions()).map(|(version, _)| version.clone()) else {
        return;
    };
    let mut urgent = control.urgent();
    let is_over = urgent.remove(&version).is_some();
    if !is_over {
        urgent.insert(version.clone(), None);
    }
    stage.say(|| format!("{version} is urgent: {}", !is_over));
    control.change(Change::Urgent(urgent));
}

/// Everything is urgent.
pub(crate) fn all_urgent(fleet: &Rc<Fleet>) {
    let versions = fleet.control.versions().into_iter().take(URGENT_MAX);
    let urgent: BTreeMap<_, _> = versions.map(|(version, _)| (version, None)).collect();
    fleet.stage.say(|| "everything is urgent".to_owned());
    fleet.control.change(Change::Urgent(urgent));
}

/// Somebody pins or bans a version, or ends that; now and then its origin is gone.
pub(crate) fn change(fleet: &Rc<Fleet>) {
    let stage = &fleet.stage;
    match stage.below(6) {
        0 => drop(lose_source(fleet)),
        1 => fleet.control.say(|wishes| drop(wishes.rules.pop_first())),
        _ => rule(fleet),
    }
}

fn rule(fleet: &Rc<Fleet>) {
    let (stage, control) = (&fleet.stage, &fleet.control);
    let versions = control.versions();
    let (sites, version) = (control.sites(), stage.pick(&versions));
    let Some((site, (version, _))) = stage.pick(&sites).zip(version) else { return };
    let (everywhere, here) = (Where::Everywhere, Where::Site(site.id.clone()));
    let rules = match stage.below(5) {
        0 => vec![(everywhere, RuleKind::Ban)],
        1 => vec![(everywhere, RuleKind::Pin), (here, RuleKind::Ban)],
        2 => vec![(here, RuleKind::Ban)],
        // Nowhere but there.
        _ => vec![(everywhere, RuleKind::Ban), (here, RuleKind::Pin)],
    };
    stage.say(|| format!("of {version}: {rules:?}"));
    control.say(|wishes| {
        for (at, kind) in rules {
            wishes.rules.insert((version.clone(), at), Rule { kind, until: None });
        }
        while RULES_MAX < wishes.rules.len() {
            wishes.rules.pop_first();
        }
    });
}

/// A version has no source any more, as far as control knows.
fn lose_source(fleet: &Rc<Fleet>) -> Option<AssetVersionId> {
    let control = &fleet.control;
    let kept: Vec<_> = control.kept().into_iter().collect();
    let known = fleet.stage.pick(&kept)?.clone();
    let id = known.id().clone();
    fleet.stage.say(|| format!("{id} has no source any more"));
    let files = AssetVersion { sources: Vec::new(), ..known.files.as_ref().clone() };
    let version = Version::new(Arc::new(files), Vec::new(), known.sequence);
    control.change(Change::Version(Arc::new(version.numbered(known.first_file))));
    Some(id)
}

/// All is put right: operators end what they said, and say what must hold in the end.
pub(crate) fn settle(fleet: &Rc<Fleet>) {
    let of = Rc::clone(fleet);
    let stage = &fleet.stage;
    stage.at(WORLD, stage.now() + SAYS_AFTER, move || say_last(&of));
    let of = Rc::clone(fleet);
    stage.at(WORLD, stage.now() + FORCES_AFTER, move || of.control.force_what_is_meant());
}

fn say_last(fleet: &Rc<Fleet>) {
    let (stage, control) = (&fleet.stage, &fleet.control);
    if stage.one_in(2) {
        control.say(|wishes| wishes.rules.clear());
    }
    if stage.one_in(2)
        && let Some(id) = lose_source(fleet)
    {
        let rule = Rule { kind: RuleKind::Ban, until: None };
        control.say(|wishes| {
            wishes.rules.retain(|(version, _), _| *version != id);
            wishes.rules.insert((id.clone(), Where::Everywhere), rule);
        });
    }
    let is_held =
        |version: &AssetVersionId| control.appliances().iter().any(|id| control.wants(id, version));
    let kept = control.kept();
    let alone = kept.iter().filter(|version| version.files.sources.is_empty());
    let alone = alone.map(|version| version.id().clone()).filter(is_held).collect();
    (0..stage.below(3)).for_each(|_| rule(fleet));
    let mut said = control.said.borrow_mut();
    (said.alone, said.is_final) = (alone, true);
}

/// Nothing, if what is banned lies nowhere there, but a last copy that has no source; what is
/// pinned lies there, or is told to have no room; and no last copy went by a ban.
pub(crate) fn what_is_wrong(fleet: &Rc<Fleet>) -> String {
    let control = &fleet.control;
    let said = control.said.borrow();
    if !said.is_final {
        return "operators have not said all".to_owned();
    }
    let kept: BTreeMap<AssetVersionId, Arc<Version>> =
        control.kept().into_iter().map(|version| (version.id().clone(), version)).collect();
    let holds = |id: &ApplianceId, version: &AssetVersionId| control.wants(id, version);
    let all = control.appliances();
    let mut lost = said.alone.iter().filter(|version| kept.contains_key(*version));
    if let Some(version) = lost.find(|version| !all.iter().any(|id| holds(id, version))) {
        return format!("{version} has no source, and its last copy goes");
    }
    let mut sites: BTreeMap<SiteId, Vec<ApplianceId>> = BTreeMap::new();
    for id in all {
        let Some(site) = control.site_of(&id) else { continue };
        sites.entry(site).or_default().push(id);
    }
    for version in kept.values() {
        let (id, is_alone) = (version.id(), version.files.sources.is_empty());
        let may_hold = |site: &SiteId| kind_at(&said.all, id, site) != Some(RuleKind::Ban);
        let mut others = sites.iter().filter(|(site, _)| may_hold(site)).flat_map(|(_, all)| all);
        let is_elsewhere = others.any(|other| fleet.has_all(other, id));
        for (site, all) in &sites {
            let Some(kind) = kind_at(&said.all, id, site) else { continue };
            let holder = all.iter().find(|appliance| holds(appliance, id));
            match (kind, holder) {
                (RuleKind::Ban, Some(holder)) if !is_alone || is_elsewhere => {
                    return format!("{id} is banned at site {site}, and {holder} keeps it");
                }
                (RuleKind::Ban, Some(_)) => fleet.count(|counts| counts.last_copies += 1),
                (RuleKind::Pin, None) if !control.tells_no_room(id, site) => {
                    return format!("{id} is pinned at site {site}, and nobody holds it there");
                }
                (RuleKind::Pin, None) => fleet.count(|counts| counts.pins_without_room += 1),
                (RuleKind::Pin, Some(_)) | (RuleKind::Ban, None) => {
                    fleet.count(|counts| counts.rules_kept += 1);
                }
            }
        }
    }
    String::new()
}

/// The rule that counts at a site: the narrowest.
fn kind_at(said: &Wishes, version: &AssetVersionId, site: &SiteId) -> Option<RuleKind> {
    let of = |at: Where| said.rules.get(&(version.clone(), at)).map(|rule| rule.kind);
    of(Where::Site(site.clone())).or_else(|| of(Where::Everywhere))
}
