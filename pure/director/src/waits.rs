//! For whom appliances wait that lack an object, by what they were told last.
//!
//! ```text
//! a question for sources ──> "wait": noted ──> told to whoever asks, as long as questions come
//!                            └─ sources: the wait for that object is over
//! ```
//!
//! One wait of each appliance is kept, the longest: O(log appliances) for a question, O(appliances)
//! in all. Nothing is decided by it, and a restart begins anew.

use std::collections::BTreeMap;

use model::id::{ApplianceId, AssetVersionId, ObjectId};
use model::units::{Nanos, UnixSeconds};

use crate::masters::Reach;
use crate::sources::Sources;

/// An appliance waits until a master has fetched an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    pub object: ObjectId,
    /// A version that the object is of.
    pub version: AssetVersionId,
    /// Who should fetch it; nobody in the first minute after a start of control.
    pub masters: Vec<ApplianceId>,
    /// Since then it has lacked the object, less the hours in which it might not fetch.
    pub since: UnixSeconds,
    /// When it goes further, if no master brings it, and how far; none if it never does.
    pub further: Option<(Reach, UnixSeconds)>,
    heard: UnixSeconds,
}

/// The longest wait of each appliance.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    known: BTreeMap<ApplianceId, Wait>,
    /// With so many, those are forgotten that are over.
    most: usize,
}

/// Who still waits asks again within half a minute; one that asks about many files, or was turned
/// away, is a little later.
const LASTS: u64 = 90;

/// Arbitrary.
const BESIDE_MAX: usize = 16;

impl Waits {
    /// An appliance that has waited so long was told this.
    pub fn told(
        &mut self,
        now: UnixSeconds,
        asker: &ApplianceId,
        (object, waited): (&ObjectId, Nanos),
        sources: &Sources,
    ) {
        let known = self.known.get(asker).filter(|known| known.is_heard(now));
        let version = sources.versions.first().filter(|_| sources.wait.is_some());
        let Some(version) = version else {
            if known.is_some_and(|known| known.object == *object) {
                self.known.remove(asker);
            }
            return;
        };
        let since = UnixSeconds(now.0.saturating_sub(waited.as_seconds()));
        let is_longer = |known: &Wait| since < known.since || known.object == *object;
        if !known.is_none_or(is_longer) {
            return;
        }
        let at = |(reach, after): (Reach, Nanos)| {
            (reach, UnixSeconds(now.0.saturating_add(after.as_seconds())))
        };
        let wait = Wait {
            object: *object,
            version: version.id.clone(),
            masters: sources.masters.clone(),
            since,
            further: sources.further.map(at),
            heard: now,
        };
        if self.most <= self.known.len() {
            self.known.retain(|_, known| known.is_heard(now));
            self.most = 2 * self.known.len() + BESIDE_MAX;
        }
        self.known.insert(asker.clone(), wait);
        assert!(self.known.len() <= self.most, "there is room for one more");
    }

    /// For whom an appliance waits longest; none if it has not asked of late.
    pub fn of(&self, now: UnixSeconds, asker: &ApplianceId) -> Option<&Wait> {
        self.known.get(asker).filter(|known| known.is_heard(now))
    }
}

impl Wait {
    fn is_heard(&self, now: UnixSeconds) -> bool {
        now.0.saturating_sub(self.heard.0) < LASTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::manifest::AssetVersion;
    use std::sync::Arc;

    fn told(waits: &mut Waits, now: u64, asker: &str, object: u8, waited: u64, wait: bool) {
        let version = AssetVersion {
            id: format!("film-{object}").parse().unwrap(),
            asset: "film".parse().unwrap(),
            sources: Vec::new(),
            modified: UnixSeconds(0),
            pace: None,
            files: BTreeMap::new(),
        };
        let sources = Sources {
            siblings: Vec::new(),
            versions: vec![Arc::new(version)],
            reach: Reach::Cluster,
            escalated: false,
            wait: wait.then_some(Nanos::seconds(1)),
            further: Some((Reach::Origin, Nanos::seconds(900 - waited))),
            masters: vec!["m1".parse().unwrap()],
        };
        let asked = (&ObjectId([object; 32]), Nanos::seconds(waited));
        waits.told(UnixSeconds(now), &asker.parse().unwrap(), asked, &sources);
    }

    fn seen(waits: &Waits, now: u64) -> Option<(String, u64, u64)> {
        let wait = waits.of(UnixSeconds(now), &"a1".parse().unwrap())?;
        assert_eq!(wait.masters, ["m1".parse().unwrap()]);
        Some((wait.version.to_string(), wait.since.0, wait.further.unwrap().1.0))
    }

    #[test]
    fn the_longest_wait_of_an_appliance_is_told_until_it_is_over_or_nobody_asks() {
        let mut waits = Waits::default();
        told(&mut waits, 1000, "a1", 1, 20, true);
        assert_eq!(seen(&waits, 1000), Some(("film-1".to_owned(), 980, 1880)));
        told(&mut waits, 1001, "a1", 2, 5, true);
        assert_eq!(seen(&waits, 1001).unwrap().0, "film-1", "it has waited longer");
        told(&mut waits, 1002, "a1", 3, 30, true);
        assert_eq!(seen(&waits, 1002), Some(("film-3".to_owned(), 972, 1872)));
        told(&mut waits, 1003, "a1", 1, 23, false);
        assert_eq!(seen(&waits, 1003).unwrap().0, "film-3", "another came");
        told(&mut waits, 1010, "a1", 3, 36, true);
        assert_eq!(seen(&waits, 1010).unwrap().1, 974, "its fill was closed in between");
        assert_eq!(seen(&waits, 1099).unwrap().0, "film-3");
        assert_eq!(seen(&waits, 1100), None, "it asks no more");
        told(&mut waits, 1100, "a1", 2, 9, true);
        assert_eq!(seen(&waits, 1100).unwrap().0, "film-2");
        told(&mut waits, 1101, "a1", 2, 10, false);
        assert_eq!(seen(&waits, 1101), None);
    }

    #[test]
    fn waits_that_are_over_take_no_room() {
        let mut waits = Waits::default();
        for n in 0..1000 {
            told(&mut waits, n * 10, &format!("a{n}"), 1, 1, true);
        }
        assert!(waits.known.len() <= 2 * 9 + BESIDE_MAX, "{}", waits.known.len());
    }
}
