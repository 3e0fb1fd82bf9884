//! What is said of a version, divided among its renditions.
//!
//! ```text
//! Said::Bytes ──────> by what viewers of the region watch at each bitrate ──┐
//! Said::FirstDays ┐   each of the other's renditions goes to the nearest    ├─> Launch by item
//! Said::Present ──┴─> one here; several here that have the same share it ───┘
//! ```

use std::collections::BTreeMap;

use model::id::Item;
use model::units::{BitsPerSecond, Bytes, Hour};

use crate::launch::{Launch, Like, Part};

/// A rendition of a version, or all of one whose renditions cannot be told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rendition {
    pub item: Item,
    /// What it takes; none if nobody says so.
    pub bitrate: Option<BitsPerSecond>,
    /// Its room on drives.
    pub len: Bytes,
}

/// What is said of a version that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said<'a> {
    /// So many bytes on a day, of all renditions together.
    Bytes(Bytes),
    /// As these renditions of another version had on its first days.
    FirstDays(&'a [Rendition]),
    /// As they would have now.
    Present(&'a [Rendition]),
}

/// Bytes that viewers of a region were sent, by bitrate: in classes, of which a power of two has
/// eight.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watched(BTreeMap<u32, Bytes>);

impl Watched {
    /// Viewers were sent so much of a rendition. O(log classes).
    pub fn add(&mut self, bitrate: BitsPerSecond, bytes: Bytes) {
        let sum = self.0.entry(class_of(bitrate)).or_default();
        *sum = Bytes(sum.0.saturating_add(bytes.0));
    }

    /// The parts of renditions in thousandths, 1,000 together: those of the bitrates to which each
    /// is the nearest; by their room where that says nothing. O(classes x renditions).
    fn parts(&self, of: &[Rendition]) -> Vec<u32> {
        let mut weights = vec![0_u128; of.len()];
        for (class, bytes) in &self.0 {
            let far = |of: &Rendition| of.bitrate.map(|bitrate| class_of(bitrate).abs_diff(*class));
            let near = (0..of.len()).filter_map(|at| Some((far(&of[at])?, at))).min();
            if let Some((_, at)) = near {
                weights[at] += u128::from(bytes.0);
            }
        }
        if weights.iter().all(|weight| *weight == 0) {
            weights = of.iter().map(|of| u128::from(of.len.0.max(1))).collect();
        }
        let all: u128 = weights.iter().sum();
        let mut before = 0;
        let permille = weights.iter().scan(0, |sum, weight| {
            *sum += weight;
            Some(*sum * 1000 / all.max(1))
        });
        let part =
            permille.map(|until| u32::try_from(until - std::mem::replace(&mut before, until)));
        part.map(|part| part.unwrap_or(0)).collect()
    }
}

fn class_of(bitrate: BitsPerSecond) -> u32 {
    let Some(bits) = bitrate.0.checked_ilog2() else { return 0 };
    // The highest bit is always one, the three after it tell the class.
    let eighth = (bitrate.0 << (63 - bits) >> 60) & 7;
    (bits + 1) * 8 + u32::try_from(eighth).unwrap_or(7)
}

/// The launches of a version's items. Of renditions here to which the same of the other version is
/// the nearest each has its part, as viewers watch at that bitrate; one of the other's that is the
/// nearest to none here counts where it is nearest. O(renditions x (classes + the other's)).
pub fn divide(begin: Hour, own: &[Rendition], said: Said<'_>, watched: &Watched) -> Vec<Launch> {
    let parts = watched.parts(own);
    let likes: Vec<Like> = match said {
        Said::Bytes(bytes) => {
            let part = |permille: &u32| {
                let part = u128::from(bytes.0) * u128::from(*permille) / 1000;
                Like::Bytes(Bytes(u64::try_from(part).unwrap_or(u64::MAX)))
            };
            parts.iter().map(part).collect()
        }
        Said::FirstDays(other) => {
            matched(own, other, &parts).into_iter().map(Like::FirstDays).collect()
        }
        Said::Present(other) => {
            matched(own, other, &parts).into_iter().map(Like::Present).collect()
        }
    };
    let launch = |(of, like): (&Rendition, Like)| Launch { item: of.item, begin, like };
    own.iter().zip(likes).map(launch).collect()
}

/// For each rendition here the parts of the other's.
fn matched(own: &[Rendition], other: &[Rendition], parts: &[u32]) -> Vec<Vec<Part>> {
    let mut matched = vec![Vec::new(); own.len()];
    if own.is_empty() || other.is_empty() {
        return matched;
    }
    let mut of_other: Vec<Vec<usize>> = vec![Vec::new(); other.len()];
    for (at, of) in own.iter().enumerate() {
        of_other[nearest(of, other)].push(at);
    }
    for (of, here) in other.iter().zip(&of_other) {
        let all: u32 = here.iter().map(|at| parts[*at]).sum();
        for at in here {
            let permille = match all {
                0 => 1000 / u32::try_from(here.len()).unwrap_or(u32::MAX),
                all => parts[*at] * 1000 / all,
            };
            matched[*at].push(Part { item: of.item, permille });
        }
        if here.is_empty() {
            matched[nearest(of, own)].push(Part::all(of.item));
        }
    }
    matched
}

/// The place of the rendition whose bitrate is nearest, by ratio; where one has none, the first.
fn nearest(of: &Rendition, among: &[Rendition]) -> usize {
    let class = of.bitrate.map(class_of);
    let far = |other: &Rendition| match (class, other.bitrate.map(class_of)) {
        (Some(one), Some(other)) => one.abs_diff(other),
        (None, _) | (_, None) => 0,
    };
    (0..among.len()).min_by_key(|at| far(&among[*at])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Renditions from item `first` on with these kb/s, of as many KiB.
    fn ladder(first: u32, kbps: &[u64]) -> Vec<Rendition> {
        let of = |(item, kbps): (u32, &u64)| Rendition {
            item: Item(item),
            bitrate: Some(BitsPerSecond(*kbps * 1000)),
            len: Bytes::kib(*kbps),
        };
        (first..).zip(kbps).map(of).collect()
    }

    fn watched(of: &[(u64, u64)]) -> Watched {
        let mut watched = Watched::default();
        of.iter().for_each(|(kbps, bytes)| watched.add(BitsPerSecond(*kbps * 1000), Bytes(*bytes)));
        watched
    }

    #[test]
    fn bytes_by_hand_are_divided_as_viewers_watch() {
        let own = ladder(1, &[500, 2000, 8000]);
        let bytes = |watched: &Watched| -> Vec<u64> {
            let said = Said::Bytes(Bytes(10_000));
            let like = |of: Launch| if let Like::Bytes(bytes) = of.like { bytes.0 } else { 0 };
            divide(Hour(7), &own, said, watched).into_iter().map(like).collect()
        };
        // Others have other ladders: 6 and 12 Mb/s are nearest to 8.
        let known = watched(&[(550, 10), (1900, 30), (6000, 40), (12_000, 20)]);
        assert_eq!(bytes(&known), [1000, 3000, 6000]);
        assert_eq!(bytes(&Watched::default()), [470, 1910, 7620], "as long as each other");
        let whole = [Rendition { item: Item(9), bitrate: None, len: Bytes(0) }];
        let of_whole = divide(Hour(7), &whole, Said::Bytes(Bytes(5)), &known);
        let like = Like::Bytes(Bytes(5));
        assert_eq!(of_whole, [Launch { item: Item(9), begin: Hour(7), like }]);
    }

    fn check(own: &[u64], other: &[u64], expected: &[&[(u32, u32)]]) {
        let (own, other) = (ladder(1, own), ladder(100, other));
        let known = watched(&[(500, 1), (2000, 3), (8000, 1)]);
        let launches = divide(Hour(7), &own, Said::Present(&other), &known);
        let parts = |of: &Launch| match &of.like {
            Like::Present(parts) => parts.iter().map(|of| (of.item.0, of.permille)).collect(),
            Like::Bytes(_) | Like::FirstDays(_) => Vec::new(),
        };
        let parts: Vec<Vec<(u32, u32)>> = launches.iter().map(parts).collect();
        assert_eq!(parts, expected, "{own:?} {other:?}");
    }

    #[test]
    fn each_rendition_is_like_the_nearest_of_the_other() {
        check(&[500, 2000], &[600, 1900], &[&[(100, 1000)], &[(101, 1000)]]);
        // Of the second here there is none nearer than the first's: they share it.
        check(&[500, 2000], &[1000], &[&[(100, 200)], &[(100, 800)]]);
        check(&[1000], &[500, 2000], &[&[(100, 1000), (101, 1000)]]);
        check(&[500, 2000], &[500, 2000, 8000], &[&[(100, 1000)], &[(101, 1000), (102, 1000)]]);
        check(&[500], &[], &[&[]]);
    }
}
