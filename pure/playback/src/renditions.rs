//! The renditions of an asset version: which of its files belong together.
//!
//! ```text
//! media playlist and what it names ─┐
//! files of a representation ────────┴─> those that share a file are one ──> a number for each file
//! ```
//!
//! So an HLS playlist and a DASH representation over the same media are one rendition, and an
//! appliance that holds it can serve both. Where all share a file, as a key, they cannot be told
//! apart, and are one.

use std::collections::{BTreeMap, BTreeSet};

/// Renditions of a version that are told apart: films have a dozen or two. Those beyond count as
/// one with the last.
pub const RENDITIONS_MAX: u8 = 64;

/// The rendition of each of the `files`: a number from 1 on, in the order of their first files; 0
/// for a file of none of the `sets`. Empty if there are fewer than two renditions.
///
/// O(files log files), those of the sets included.
pub fn divide<'a>(files: impl IntoIterator<Item = &'a str>, sets: &[BTreeSet<String>]) -> Vec<u8> {
    let mut first: BTreeMap<&str, usize> = BTreeMap::new();
    let mut joins: Vec<usize> = (0..sets.len()).collect();
    for (set, paths) in sets.iter().enumerate() {
        for path in paths {
            let other = *first.entry(path).or_insert(set);
            let (one, other) = (root(&joins, set), root(&joins, other));
            joins[one.max(other)] = one.min(other);
        }
    }
    let mut numbers = BTreeMap::new();
    let mut number = |path: &str| {
        let Some(set) = first.get(path) else { return 0 };
        let next = u8::try_from(numbers.len() + 1).unwrap_or(RENDITIONS_MAX).min(RENDITIONS_MAX);
        *numbers.entry(root(&joins, *set)).or_insert(next)
    };
    let divided: Vec<u8> = files.into_iter().map(&mut number).collect();
    if numbers.len() < 2 { Vec::new() } else { divided }
}

/// The set that speaks for all that this one is joined to.
fn root(joins: &[usize], mut set: usize) -> usize {
    while joins[set] != set {
        assert!(joins[set] < set, "sets are joined to those before them");
        set = joins[set];
    }
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(files: &[&str], sets: &[&[&str]], numbers: &[u8]) {
        let set = |set: &&[&str]| set.iter().map(|path| (*path).to_owned()).collect();
        let sets: Vec<BTreeSet<String>> = sets.iter().map(set).collect();
        assert_eq!(divide(files.iter().copied(), &sets), numbers);
    }

    #[test]
    fn playlists_and_representations_over_the_same_media_are_one_rendition() {
        let files = ["a.m3u8", "a.mp4", "b.m3u8", "b.mp4", "master.m3u8", "poster.jpg"];
        let sets: [&[&str]; 4] =
            [&["b.m3u8", "b.mp4"], &["a.m3u8", "a.mp4"], &["a.mp4"], &["b.mp4"]];
        check(&files, &sets, &[1, 1, 2, 2, 0, 0]);
    }

    #[test]
    fn those_that_share_a_file_cannot_be_told_apart() {
        check(&["a", "b", "key"], &[&["a", "key"], &["b", "key"]], &[]);
        check(&["a", "b", "c"], &[&["a"], &["b"], &["c"], &["a", "c"]], &[1, 2, 1]);
        check(&["a", "b"], &[&["a", "b"]], &[]);
        check(&["a"], &[], &[]);
    }

    #[test]
    fn what_is_beyond_the_limit_is_one_with_the_last() {
        let names: Vec<String> = (0..200).map(|n| format!("{n:03}")).collect();
        let sets: Vec<_> = names.iter().map(|name| BTreeSet::from([name.clone()])).collect();
        let numbers = divide(names.iter().map(String::as_str), &sets);
        assert_eq!((numbers[62], numbers[63], numbers[64], numbers[199]), (63, 64, 64, 64));
    }
}
