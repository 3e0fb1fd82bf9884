//! What has changed of desired state, on its way from the writer to a front that has the rest.
//!
//! ```text
//! writer: before, now ──> between ──> sign ──> log, bounded ──> all since a front's generation
//! front:  before, difference ──> applied ──> its check? ──> now       else: a whole snapshot
//! ```
//!
//! A difference names the generation that it leads from, so that none is left out; and the check of
//! what it leads to, so that one which was made or applied wrongly is found.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use director::{Desired, Playbacks, Version};
use identity::signing;
use model::id::{AssetVersionId, Generation};
use model::manifest::TokenKey;
use model::units::UnixSeconds;
use serde::Serialize;
use wire::convert::WireError;
use wire::v1::replica::{Check, Difference, Gone, Snapshot};
use wire::v1::signed::Kind;

use crate::state::replica::{self, Picture, SnapshotError};

/// What leads from `before` to `now`; none if fronts would see no difference. What the caller says
/// when it is signed (generations, times) is left out. O(sites + appliances + versions), and the
/// files of those versions that changed.
pub(crate) fn between(before: &Desired, now: &Desired) -> Option<Difference> {
    let mut changed = replica::short_out(now);
    let mut gone = Gone::default();
    let short = changed.clone();
    let sites = now.sites.values().filter(|site| before.sites.get(&site.id) != Some(*site));
    changed.sites = sites.map(replica::site_out).collect();
    let absent = before.sites.keys().filter(|id| !now.sites.contains_key(*id));
    gone.sites = absent.map(ToString::to_string).collect();
    let appliances = now.appliances.iter().filter_map(|(id, registered)| {
        let out = replica::appliance_out(registered);
        (before.appliances.get(id).map(replica::appliance_out).as_ref() != Some(&out))
            .then_some(out)
    });
    changed.appliances = appliances.collect();
    let absent = before.appliances.keys().filter(|id| !now.appliances.contains_key(*id));
    gone.appliances = absent.map(ToString::to_string).collect();
    let (known, kept) = (kept(before), kept(now));
    let is_same = |known: &Arc<Version>, version: &Arc<Version>| {
        Arc::ptr_eq(known, version) || replica::one_out(known) == replica::one_out(version)
    };
    let is_known = |id, version| known.get(id).is_some_and(|known| is_same(known, version));
    let versions = kept.iter().filter(|(id, version)| !is_known(**id, version));
    changed.versions = versions.map(|(_, version)| replica::one_out(version)).collect();
    gone.versions =
        known.keys().filter(|id| !kept.contains_key(**id)).map(ToString::to_string).collect();
    let (known, public) = (before.playbacks.public(), now.playbacks.public());
    changed.public = public.difference(known).map(ToString::to_string).collect();
    gone.public = known.difference(public).map(ToString::to_string).collect();
    let (known, revoked) = (before.playbacks.revoked(), now.playbacks.revoked());
    let sessions = revoked.iter().filter(|(session, until)| known.get(*session) != Some(*until));
    changed.revoked_sessions = sessions.map(replica::revoked_out).collect();
    let absent = known.keys().filter(|session| !revoked.contains_key(*session));
    gone.revoked_sessions = absent.map(ToString::to_string).collect();
    let is_empty = changed == short && gone == Gone::default();
    if is_empty && short == replica::short_out(before) {
        return None;
    }
    Some(Difference { format: 1, from: 0, changed, gone, check: check(now) })
}

/// A sum over all that is in a snapshot, but for what is said when it is signed. That of a state is
/// the one before, without what `between` finds the other way round, and with what it finds.
pub(crate) fn weight(wire: &Snapshot) -> u64 {
    // A new field has to be in it, too.
    let Snapshot {
        format,
        generation: _,
        issued_unix_s: _,
        manifests: _,
        sites,
        appliances,
        copies,
        versions_kept,
        profiles,
        token_keys,
        signing_keys,
        revoked,
        versions,
        public,
        revoked_sessions,
        withdrawn,
    } = wire;
    let policy = (copies, versions_kept, profiles);
    let short = (format, policy, token_keys, signing_keys, revoked, withdrawn);
    let mut sum = first_of(&json(&short));
    let mut add = |found: Vec<u8>| sum = sum.wrapping_add(first_of(&found));
    sites.iter().for_each(|site| add(json(site)));
    appliances.iter().for_each(|appliance| add(json(appliance)));
    versions.iter().for_each(|version| add(json(version)));
    public.iter().for_each(|asset| add(json(asset)));
    revoked_sessions.iter().for_each(|session| add(json(session)));
    sum
}

fn json(part: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(part).expect("parts of a snapshot always become JSON")
}

fn first_of(bytes: &[u8]) -> u64 {
    let found = digest(&SHA256, bytes);
    let first = found.as_ref().first_chunk().expect("SHA-256 has 32 bytes");
    u64::from_le_bytes(*first)
}

/// Opens a difference off the wire or from disk, and applies it to what it leads from: the state of
/// this generation. Nothing of one that is refused is used.
pub(crate) fn open(
    keys: &[TokenKey],
    (known, desired): (Generation, &Desired),
    bytes: &[u8],
) -> Result<Picture, SnapshotError> {
    let payload = signing::verify(keys, Kind::Difference, bytes)?;
    let wire: Difference = serde_json::from_slice(payload)?;
    if wire.format != 1 {
        return Err(WireError::Format(wire.format).into());
    }
    let changed = &wire.changed;
    if Generation(wire.from) != known || changed.generation <= wire.from {
        return Err(SnapshotError::Lost);
    }
    Ok(Picture {
        generation: Generation(changed.generation),
        issued: UnixSeconds(changed.issued_unix_s),
        manifests: Generation(changed.manifests),
        desired: applied(desired, &wire)?,
    })
}

/// Desired state after a difference, if it is what the writer has: else some was lost.
fn applied(before: &Desired, difference: &Difference) -> Result<Desired, SnapshotError> {
    let Difference { changed, gone, .. } = difference;
    let mut desired = before.clone();
    replica::short_in(changed, &mut desired)?;
    let sites = Arc::make_mut(&mut desired.sites);
    for wire in &changed.sites {
        let site = replica::site_in(wire)?;
        sites.insert(site.id.clone(), site);
    }
    let appliances = Arc::make_mut(&mut desired.appliances);
    for id in &gone.appliances {
        appliances.remove(id.as_str());
    }
    for wire in &changed.appliances {
        let registered = replica::appliance_in(wire, sites)?;
        appliances.insert(registered.appliance.id.clone(), registered);
    }
    for id in &gone.sites {
        sites.remove(id.as_str());
    }
    if let Some(lost) = appliances.values().find(|of| !sites.contains_key(&of.appliance.site)) {
        return Err(SnapshotError::Appliance(lost.appliance.id.to_string()));
    }
    let catalog = Arc::make_mut(&mut desired.catalog);
    let absent: Vec<AssetVersionId> =
        gone.versions.iter().map(|id| id.parse()).collect::<Result<_, _>>()?;
    catalog.remove(absent.iter());
    for wire in &changed.versions {
        catalog.put(Arc::new(replica::one_in(wire)?));
    }
    let (more, ended) = replica::playbacks_in(changed)?;
    let mut public: BTreeSet<_> = before.playbacks.public().union(&more).cloned().collect();
    let closed: BTreeSet<&str> = gone.public.iter().map(String::as_str).collect();
    public.retain(|asset| !closed.contains(asset.as_str()));
    let over: BTreeSet<&str> = gone.revoked_sessions.iter().map(String::as_str).collect();
    let mut revoked: BTreeMap<_, _> = before.playbacks.revoked().clone();
    revoked.extend(ended);
    revoked.retain(|session, _| !over.contains(session.to_string().as_str()));
    desired.playbacks = Playbacks::new(public, revoked);
    if check(&desired) == difference.check { Ok(desired) } else { Err(SnapshotError::Lost) }
}

/// A sum over all that players' lists follow from. It means the same in every release: what is
/// added to the wire is not in it.
fn check(desired: &Desired) -> Check {
    let mut check = Check::default();
    let mut add = |parts: &[&str]| {
        check.count += 1;
        check.sum = check.sum.wrapping_add(first_of(parts.join("\n").as_bytes()));
    };
    let text = |time: Option<UnixSeconds>| time.map_or_else(String::new, |time| time.0.to_string());
    for site in desired.sites.values() {
        let prefixes: Vec<String> = site.prefixes.iter().map(ToString::to_string).collect();
        add(&["site", site.id.as_str(), &prefixes.join(" ")]);
    }
    for registered in desired.appliances.values() {
        let (of, drain) = (&registered.appliance, registered.drain);
        let weight = of.weight.value().to_string();
        let cloned = if registered.cloned { "cloned" } else { "" };
        let (from, until) = (drain.map(|of| of.from), drain.and_then(|of| of.until));
        let (from, until) = (text(from), text(until));
        add(&["appliance", of.id.as_str(), of.site.as_str(), &weight, cloned, &from, &until]);
    }
    for (id, version) in kept(desired) {
        let (sequence, window) = (version.sequence.to_string(), version.window);
        let asset = version.files.asset.as_str();
        add(&["version", id.as_str(), asset, &sequence, &text(window.from), &text(window.until)]);
    }
    for asset in desired.playbacks.public() {
        add(&["public", asset.as_str()]);
    }
    for (session, until) in desired.playbacks.revoked() {
        add(&["session", &session.to_string(), &until.0.to_string()]);
    }
    for serial in desired.revoked.iter() {
        add(&["certificate", serial]);
    }
    check
}

/// The versions that are held, by name.
fn kept(desired: &Desired) -> BTreeMap<&AssetVersionId, &Arc<Version>> {
    let count = usize::try_from(desired.policy.versions_kept).unwrap_or(usize::MAX);
    desired.catalog.kept(count).into_iter().map(|(_, version)| (version.id(), version)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::writer::withdrawals::tests::version;
    use director::drain::Drain;
    use director::{Policy, Reason, Registered, Window, Withdrawal};
    use model::topology::{Appliance, Site, Weight};
    use playback::token::Session;

    #[test]
    fn a_difference_leads_from_any_state_to_any_other() {
        let states = states();
        let mut same = 0;
        let none = Generation(0);
        let of_all = |of: &Desired| weight(&replica::snapshot_out(of, none, none, UnixSeconds(0)));
        for (i, before) in states.iter().enumerate() {
            let nothing = Desired::default();
            let whole = between(&nothing, before).map(|all| applied(&nothing, &all).unwrap());
            let front = whole.unwrap_or(nothing);
            for (j, now) in states.iter().enumerate() {
                let Some(difference) = between(before, now) else {
                    same += 1;
                    continue;
                };
                let bytes = serde_json::to_vec(&difference).unwrap();
                let difference: Difference = serde_json::from_slice(&bytes).unwrap();
                let after = applied(&front, &difference).unwrap();
                assert!(between(&after, now).is_none(), "{i} to {j}: {difference:?}");
                let back = between(now, before).expect("it is another the other way round, too");
                let found = of_all(before)
                    .wrapping_sub(weight(&back.changed))
                    .wrapping_add(weight(&difference.changed));
                assert_eq!(found, of_all(now), "{i} to {j}");
            }
        }
        assert_eq!(same, states.len() + 2, "two are as they were before");
    }

    #[test]
    fn what_was_lost_is_found_by_the_check() {
        let states = states();
        let difference = |from: usize, to: usize| between(&states[from], &states[to]).unwrap();
        let front = applied(&states[0], &difference(0, 1)).unwrap();
        // One is left out.
        let lost = applied(&front, &difference(2, 3));
        assert!(matches!(lost, Err(SnapshotError::Lost)), "{lost:?}");
        let mut cut = difference(1, 2);
        cut.changed.versions.clear();
        let lost = applied(&front, &cut);
        assert!(matches!(lost, Err(SnapshotError::Lost)), "{lost:?}");
    }

    /// Each after a change of the one before, but for what fronts do not see.
    fn states() -> Vec<Desired> {
        let mut states = vec![Desired::default()];
        let mut then = |change: &dyn Fn(&mut Desired)| {
            let mut next = states.last().unwrap().clone();
            change(&mut next);
            states.push(next);
        };
        let site = |desired: &mut Desired, id: &str, prefix: &str| {
            let site = Site::new(id.parse().unwrap(), vec![prefix.parse().unwrap()]);
            Arc::make_mut(&mut desired.sites).insert(site.id.clone(), site);
        };
        let stand = |desired: &mut Desired, site: &str, drain| {
            let (id, site) = ("a1".parse().unwrap(), site.parse().unwrap());
            let appliance = Appliance::new(id, site, Weight::ONE);
            let registered = Registered { drain, ..Registered::new(appliance) };
            Arc::make_mut(&mut desired.appliances)
                .insert(registered.appliance.id.clone(), registered);
        };
        let put = |desired: &mut Desired, sequence, window| {
            let version = Arc::new(version(sequence, &[]).shown(window));
            Arc::make_mut(&mut desired.catalog).put(version);
        };
        then(&|next| {
            site(next, "s1", "10.0.0.0/8");
            stand(next, "s1", None);
        });
        then(&|next| put(next, 1, Window::default()));
        then(&|next| site(next, "s2", "192.0.2.0/24"));
        let drain = Drain { from: UnixSeconds(5), until: None };
        then(&|next| stand(next, "s1", Some(drain)));
        then(&|next| {
            stand(next, "s2", None);
            Arc::make_mut(&mut next.sites).remove("s1");
        });
        then(&|next| put(next, 2, Window::default()));
        then(&|next| put(next, 2, Window { from: None, until: Some(UnixSeconds(9)) }));
        then(&|next| next.policy = Policy { versions_kept: 1, ..Policy::default() });
        let film = || BTreeSet::from(["film".parse().unwrap()]);
        then(&|next| next.playbacks = Playbacks::new(film(), BTreeMap::new()));
        let ended = BTreeMap::from([(Session::of_random([7; 12]), UnixSeconds(11))]);
        then(&|next| next.playbacks = Playbacks::new(film(), ended.clone()));
        then(&|next| next.playbacks = Playbacks::new(BTreeSet::new(), ended.clone()));
        then(&|next| next.playbacks = Playbacks::default());
        then(&|next| next.revoked = Arc::new(BTreeSet::from(["0a".to_owned()])));
        then(&|next| {
            let versions = [("film-2".parse().unwrap(), "film".parse().unwrap())].into();
            let (at, reason, receipts) = (UnixSeconds(0), Reason::Operator, BTreeMap::new());
            let withdrawal = Withdrawal { id: 1, at, reason, versions, receipts };
            let gone: AssetVersionId = "film-2".parse().unwrap();
            Arc::make_mut(&mut next.catalog).remove([gone].iter());
            next.withdrawals.insert(1, withdrawal);
        });
        then(&|next| {
            let mut registered = next.appliances["a1"].clone();
            registered.appliance.tags = ["loan".parse().unwrap()].into();
            Arc::make_mut(&mut next.appliances).insert("a1".parse().unwrap(), registered);
        });
        then(&|next| next.policy.profiles.flash.fill = None);
        then(&|next| drop(Arc::make_mut(&mut next.appliances).remove("a1")));
        states
    }
}
