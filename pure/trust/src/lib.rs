//! Which trust documents and manifests an appliance takes, and whose keys count in a manifest.
//!
//! ```text
//! a reply says what there is ──> wants? ──> fetched, verified ──> takes? ──> kept ──> in force
//!                                                                   └ older than what is here
//! a manifest, the newest document ──> lacks? the document first ──> fill ──> the keys that count
//! ```
//!
//! A signature says who made a document, and not when: whoever stands between can give an old one
//! again, in which a stolen certificate is not revoked. So none is taken that is older than what is
//! here, in force or not.

use model::id::Generation;
use model::manifest::{Manifest, Trust, TrustDocument};

/// What an appliance has of trust documents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Followed {
    /// Generation of the one in force, 0 if the keys in force are the manifest's own; none before
    /// the first manifest.
    pub in_force: Option<Generation>,
    /// Generation of the newest that is here; 0 for none.
    pub newest: Generation,
}

/// Older than what is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Older {
    pub offered: Generation,
    pub known: Generation,
}

/// A manifest needs a newer trust document than is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lacking {
    pub needed: Generation,
    pub known: Generation,
}

impl Followed {
    /// Generation in force; before the first manifest, what would be.
    pub fn counts(&self) -> Generation {
        self.in_force.unwrap_or(self.newest)
    }

    /// True if control has a newer one than is in force.
    pub fn wants(&self, offered: Generation) -> bool {
        self.counts() < offered
    }

    /// Whether a verified document is taken.
    ///
    /// # Errors
    /// It is not newer than what is in force, or older than what is here: a control without trust
    /// documents may have put keys in force meanwhile, and a restart would bring back the newest.
    pub fn takes(&self, offered: Generation) -> Result<(), Older> {
        let known = self.newest.max(self.counts());
        match self.counts() < offered && self.newest <= offered {
            true => Ok(()),
            false => Err(Older { offered, known }),
        }
    }

    /// True if a manifest leaves keys to a document that is newer than all here: it comes first.
    pub fn lacks(&self, manifest: &Trust) -> bool {
        manifest.is_apart && self.newest < manifest.generation
    }

    /// For reports: the generation that keeps out all that control has; 0 while a restart would
    /// bring back another one, or keys that it drops.
    pub fn told(&self, offered: Generation, is_kept: bool) -> Generation {
        match is_kept {
            true if offered < self.newest => self.newest,
            true => self.counts(),
            false => Generation(0),
        }
    }
}

/// Whether a verified manifest is taken, where those above a generation are wanted.
///
/// # Errors
/// It is none of these.
pub fn takes_manifest(offered: Generation, above: Generation) -> Result<(), Older> {
    if above < offered { Ok(()) } else { Err(Older { offered, known: above }) }
}

/// A manifest with the newest trust document, if that counts in it; else with its own keys.
///
/// # Errors
/// It has none, and leaves them to a document that is not here.
pub fn fill(manifest: Manifest, newest: Option<&TrustDocument>) -> Result<Manifest, Lacking> {
    match newest.filter(|newest| newest.counts_in(&manifest)) {
        Some(newest) => Ok(manifest.with_trust(newest)),
        None if manifest.trust.is_apart => {
            let known = newest.map_or(Generation(0), |newest| newest.trust.generation);
            Err(Lacking { needed: manifest.trust.generation, known })
        }
        None => Ok(manifest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::units::UnixSeconds;
    use std::collections::BTreeMap;

    fn followed(in_force: Option<u64>, newest: u64) -> Followed {
        Followed { in_force: in_force.map(Generation), newest: Generation(newest) }
    }

    #[test]
    fn a_document_is_taken_that_is_newer_than_what_is_in_force_and_as_new_as_what_is_here() {
        let check = |of: Followed, offered: u64, known: Option<u64>| {
            let offered = Generation(offered);
            let wanted = known.map(|known| Older { offered, known: Generation(known) });
            assert_eq!(of.takes(offered).err(), wanted, "{of:?}");
            // Whatever is taken is wanted, or it would be asked for no more.
            assert!(of.takes(offered).is_err() || of.wants(offered), "{of:?}");
        };
        check(followed(None, 0), 1, None);
        check(followed(None, 0), 0, Some(0));
        check(followed(None, 5), 5, Some(5));
        check(followed(Some(5), 5), 6, None);
        check(followed(Some(5), 5), 5, Some(5));
        check(followed(Some(5), 5), 4, Some(5));
        // Keys of a manifest are in force: the newest comes back, an older one does not.
        check(followed(Some(0), 5), 5, None);
        check(followed(Some(0), 5), 4, Some(5));
        // It is kept, and not in force yet.
        check(followed(Some(4), 6), 5, Some(6));
    }

    #[test]
    fn a_report_tells_what_a_restart_brings_back() {
        let told = |of: Followed, offered, is_kept| of.told(Generation(offered), is_kept).0;
        assert_eq!(told(followed(Some(5), 5), 5, true), 5);
        assert_eq!(told(followed(Some(5), 5), 5, false), 0);
        assert_eq!(told(followed(Some(4), 6), 6, true), 4, "the newest is not in force yet");
        assert_eq!(told(followed(Some(0), 6), 5, true), 6, "control is behind it");
        assert_eq!(told(followed(None, 6), 6, true), 6);
    }

    #[test]
    fn a_manifest_has_the_keys_that_count_or_waits_for_them() {
        let document = |generation: u64| TrustDocument {
            token_keys: Vec::new(),
            trust: Trust {
                generation: Generation(generation),
                issued: UnixSeconds(100),
                ..Trust::default()
            },
        };
        let manifest = |is_apart, generation: u64, issued| Manifest {
            appliance: "a1".parse().unwrap(),
            generation: Generation(9),
            token_keys: Vec::new(),
            trust: Trust {
                is_apart,
                generation: Generation(generation),
                issued: UnixSeconds(issued),
                ..Trust::default()
            },
            numbers: BTreeMap::new(),
            siblings: BTreeMap::new(),
            site: Vec::new(),
            versions: Vec::new(),
        };
        let filled = |is_apart, generation, issued, newest: Option<u64>| {
            let newest = newest.map(document);
            let made = fill(manifest(is_apart, generation, issued), newest.as_ref());
            made.map(|made| made.trust.generation.0)
        };
        let lacks = |needed: u64, known: u64| {
            Err(Lacking { needed: Generation(needed), known: Generation(known) })
        };
        assert_eq!(filled(true, 3, 0, Some(3)), Ok(3));
        assert_eq!(filled(true, 3, 0, Some(4)), Ok(4), "the newest");
        assert_eq!(filled(true, 3, 0, Some(2)), lacks(3, 2));
        assert_eq!(filled(true, 3, 0, None), lacks(3, 0));
        assert_eq!(filled(false, 0, 50, Some(4)), Ok(4), "signed before it");
        assert_eq!(filled(false, 0, 150, Some(4)), Ok(0), "signed after it: its own");
        assert_eq!(filled(false, 0, 150, None), Ok(0));
        let needs = manifest(true, 3, 0).trust;
        let lacking = [(2, true), (3, false), (4, false)];
        assert!(lacking.iter().all(|(newest, is)| followed(None, *newest).lacks(&needs) == *is));
        assert!(!followed(None, 0).lacks(&manifest(false, 3, 0).trust), "its keys are its own");
        assert!(takes_manifest(Generation(3), Generation(2)).is_ok());
        let older = Older { offered: Generation(2), known: Generation(2) };
        assert_eq!(takes_manifest(Generation(2), Generation(2)), Err(older));
    }
}
