//! Differences on the wire: see `director::difference`, which makes and applies them.
//!
//! ```text
//! writer: Difference ──> difference_out ──> sign ──> log of envelopes
//! front:  envelope ──> verify, by the keys in force there ──> open ──> Difference
//! ```

use aws_lc_rs::digest::{SHA256, digest};
use director::difference::{Check, Difference, Gone, Parts, Step};
use identity::signing;
use model::id::{Generation, IdError};
use model::manifest::TokenKey;
use model::units::UnixSeconds;
use playback::token::Session;
use serde::Serialize;
use wire::convert::WireError;
use wire::v1::replica as wire_replica;
use wire::v1::replica::Snapshot;
use wire::v1::signed::Kind;

use crate::state::replica::{self, SnapshotError};

/// The difference for the wire.
pub(crate) fn difference_out(difference: &Difference) -> wire_replica::Difference {
    let Difference { from, generation, issued, manifests, changed, gone, check } = difference;
    let Check { count, sum } = *check;
    wire_replica::Difference {
        format: 1,
        from: from.0,
        changed: Snapshot {
            generation: generation.0,
            issued_unix_s: issued.0,
            manifests: manifests.0,
            ..parts_out(changed)
        },
        gone: wire_replica::Gone {
            sites: gone.sites.iter().map(ToString::to_string).collect(),
            appliances: gone.appliances.iter().map(ToString::to_string).collect(),
            versions: gone.versions.iter().map(ToString::to_string).collect(),
            public: gone.public.iter().map(ToString::to_string).collect(),
            revoked_sessions: gone.revoked_sessions.iter().map(ToString::to_string).collect(),
            withdrawn: gone.withdrawn.iter().map(ToString::to_string).collect(),
            revoked: gone.revoked.clone(),
        },
        check: wire_replica::Check { count, sum },
    }
}

fn parts_out(parts: &Parts) -> Snapshot {
    let Parts { sites, appliances, versions, public, .. } = parts;
    let Parts { revoked_sessions, withdrawn, revoked, short, .. } = parts;
    Snapshot {
        sites: sites.iter().map(replica::site_out).collect(),
        appliances: appliances.iter().map(replica::appliance_out).collect(),
        versions: versions.iter().map(|version| replica::one_out(version)).collect(),
        public: public.iter().map(ToString::to_string).collect(),
        revoked_sessions: revoked_sessions.iter().map(replica::revoked_out).collect(),
        withdrawn: replica::withdrawn_out(withdrawn),
        revoked: revoked.iter().cloned().collect(),
        ..replica::short_out(short)
    }
}

fn difference_in(wire: &wire_replica::Difference) -> Result<Difference, SnapshotError> {
    if wire.format != 1 {
        return Err(WireError::Format(wire.format).into());
    }
    let (changed, gone) = (&wire.changed, &wire.gone);
    let (public, revoked_sessions) = replica::playbacks_in(changed)?;
    let versions = changed.versions.iter().map(|version| replica::one_in(version).map(Into::into));
    let session = |text: &String| text.parse::<Session>().map_err(|_| SnapshotError::Session);
    Ok(Difference {
        from: Generation(wire.from),
        generation: Generation(changed.generation),
        issued: UnixSeconds(changed.issued_unix_s),
        manifests: Generation(changed.manifests),
        changed: Parts {
            sites: changed.sites.iter().map(replica::site_in).collect::<Result<_, _>>()?,
            appliances: changed
                .appliances
                .iter()
                .map(replica::appliance_in)
                .collect::<Result<_, _>>()?,
            versions: versions.collect::<Result<_, _>>()?,
            public,
            revoked_sessions,
            withdrawn: replica::withdrawn_in(changed)?,
            revoked: changed.revoked.iter().cloned().collect(),
            short: replica::short_in(changed)?,
        },
        gone: Gone {
            sites: ids(&gone.sites)?,
            appliances: ids(&gone.appliances)?,
            versions: ids(&gone.versions)?,
            public: ids(&gone.public)?,
            revoked_sessions: gone
                .revoked_sessions
                .iter()
                .map(session)
                .collect::<Result<_, _>>()?,
            withdrawn: ids(&gone.withdrawn)?,
            revoked: gone.revoked.clone(),
        },
        check: Check { count: wire.check.count, sum: wire.check.sum },
    })
}

fn ids<T: std::str::FromStr<Err = IdError>>(texts: &[String]) -> Result<Vec<T>, IdError> {
    texts.iter().map(|text| text.parse()).collect()
}

/// Opens a difference off the wire or from disk: signed with one of `keys`.
pub(crate) fn open(keys: &[TokenKey], bytes: &[u8]) -> Result<Difference, SnapshotError> {
    let payload = signing::verify(keys, Kind::Difference, bytes)?;
    difference_in(&serde_json::from_slice(payload)?)
}

/// The weight of what a step leads to, by that of what it leads from. O(what differs).
pub(crate) fn weight_after(step: &Step, before: u64) -> u64 {
    let (replaced, changed) = (parts_out(&step.replaced), parts_out(&step.changed));
    before.wrapping_sub(weight(&replaced)).wrapping_add(weight(&changed))
}

/// A sum over all that is in a snapshot, but for what is said when it is signed. See
/// `weight_after`.
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
        fill_windows,
        token_keys,
        signing_keys,
        revoked,
        versions,
        public,
        revoked_sessions,
        withdrawn,
    } = wire;
    let policy = (copies, versions_kept, profiles);
    let short = (format, policy, token_keys, signing_keys);
    let mut sum = first_of(&json(&short));
    let mut add = |found: Vec<u8>| sum = sum.wrapping_add(first_of(&found));
    // Nothing where it says nothing: then a front of a release before agrees.
    if !fill_windows.is_empty() {
        add(json(&("fill_windows", fill_windows)));
    }
    sites.iter().for_each(|site| add(json(site)));
    appliances.iter().for_each(|appliance| add(json(appliance)));
    versions.iter().for_each(|version| add(json(version)));
    public.iter().for_each(|asset| add(json(asset)));
    revoked_sessions.iter().for_each(|session| add(json(session)));
    withdrawn.iter().for_each(|of| add(json(&("withdrawn", of))));
    revoked.iter().for_each(|serial| add(json(&("revoked", serial))));
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

#[cfg(test)]
mod tests {
    use super::*;

    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::Arc;

    use crate::state::writer::withdrawals::tests::version;
    use director::difference::between;
    use director::drain::Drain;
    use director::following::{Picture, Run};
    use director::{Desired, Playbacks, Policy, Reason, Registered, Window, Withdrawal};
    use model::id::AssetVersionId;
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
            let front = between(&nothing, before)
                .map_or_else(Desired::default, |all| applied(&nothing, told(&all, &nothing)));
            for (j, now) in states.iter().enumerate() {
                let Some(step) = between(before, now) else {
                    same += 1;
                    continue;
                };
                let difference = told(&step, before);
                assert_eq!(difference.check, Check::of(now), "{i} to {j}: of what differs alone");
                let after = applied(&front, difference);
                assert!(between(&after, now).is_none(), "{i} to {j}: {step:?}");
                assert_eq!(weight_after(&step, of_all(before)), of_all(now), "{i} to {j}");
            }
        }
        assert_eq!(same, states.len() + 2, "two are as they were before");
    }

    /// A step as a front hears of it.
    fn told(step: &Step, before: &Desired) -> Difference {
        let Step { changed, gone, .. } = step.clone();
        let (from, generation, manifests) = (Generation(1), Generation(2), Generation(0));
        let (issued, check) = (UnixSeconds(0), step.check(Check::of(before)));
        let all = Difference { from, generation, issued, manifests, changed, gone, check };
        let bytes = serde_json::to_vec(&difference_out(&all)).unwrap();
        difference_in(&serde_json::from_slice(&bytes).unwrap()).unwrap()
    }

    fn applied(front: &Desired, difference: Difference) -> Desired {
        let (generation, manifests) = (difference.from, Generation(0));
        let (issued, desired) = (UnixSeconds(0), front.clone());
        let mut run = Run::new(Picture { generation, issued, manifests, desired });
        run.apply(&difference).unwrap();
        run.end().unwrap().desired
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
        let serial = |text: &str| Arc::new(BTreeSet::from([text.to_owned()]));
        ["0a", "0b"].iter().for_each(|of| then(&|next| next.revoked = serial(of)));
        then(&|next| {
            let versions = [("film-2".parse().unwrap(), "film".parse().unwrap())].into();
            let (at, reason, receipts) = (UnixSeconds(0), Reason::Operator, BTreeMap::new());
            let versions = Arc::new(versions);
            let withdrawal = Withdrawal { id: 1, at, reason, versions, receipts };
            let gone: AssetVersionId = "film-2".parse().unwrap();
            Arc::make_mut(&mut next.catalog).remove([gone].iter());
            next.withdrawals.insert(1, withdrawal);
        });
        then(&|next| {
            let versions = Arc::new([("old-1".parse().unwrap(), "old".parse().unwrap())].into());
            let withdrawal = Withdrawal { id: 2, versions, ..next.withdrawals[&1].clone() };
            next.withdrawals.insert(2, withdrawal);
        });
        then(&|next| drop(next.withdrawals.remove(&1)));
        then(&|next| {
            let mut registered = next.appliances["a1"].clone();
            registered.appliance.tags = ["loan".parse().unwrap()].into();
            Arc::make_mut(&mut next.appliances).insert("a1".parse().unwrap(), registered);
        });
        then(&|next| next.policy.profiles.flash.fill = None);
        then(&|next| next.policy.fill.windows = "22:00-06:00".parse().unwrap());
        then(&|next| drop(Arc::make_mut(&mut next.appliances).remove("a1")));
        states
    }
}
