//! Entries of a block: a byte that says which, then its fields.

use std::sync::Arc;

use model::id::AssetVersionId;
use model::members::Members;
use model::near::Near;
use model::number::NumberSet;
use model::units::Bytes;
use model::view::SiteView;

use crate::codec::{Input, put, put_text};
use crate::near;
use crate::picture::{self, NUMBERS_MAX, Vital};
use crate::record::Record;

const HEAD: u8 = 1;
const SITE: u8 = 2;
const VITAL: u8 = 3;
const SIZE: u8 = 4;
const HOLDERS: u8 = 5;
const NEAR: u8 = 6;
const DECISION: u8 = 7;
const PARTIAL: u8 = 8;

/// An entry, as it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// How many pathways players get: first in each file.
    Head {
        pathways_min: usize,
        pathways_max: usize,
    },
    /// A site as it is from here on.
    Site {
        number: u32,
        site: SiteView,
    },
    /// An appliance, by the number of its site and its place there, as it is from here on.
    Vital {
        site: u32,
        at: usize,
        vital: Vital,
    },
    /// So many numbers of appliances were given.
    Size(u32),
    /// The appliances that hold a version from here on.
    Holders {
        version: u32,
        id: AssetVersionId,
        holders: Members,
    },
    /// The appliances that hold each rendition of a version from here on, and not all of it. Its
    /// holders came before.
    Partial {
        version: u32,
        renditions: Vec<Members>,
    },
    /// A client's sites, under the next number of the file.
    Near(Vec<Near>),
    Decision(Record),
}

pub(crate) fn put_head(bytes: &mut Vec<u8>, config: &steering::Config) {
    bytes.push(HEAD);
    put(bytes, Bytes::of(config.pathways_min).0);
    put(bytes, Bytes::of(config.pathways_max).0);
}

pub(crate) fn put_site(bytes: &mut Vec<u8>, number: u32, site: &Arc<SiteView>) {
    bytes.push(SITE);
    put(bytes, number);
    picture::encode_site(bytes, site);
}

pub(crate) fn put_vital(bytes: &mut Vec<u8>, site: u32, at: usize, vital: &Vital) {
    bytes.push(VITAL);
    put(bytes, site);
    put(bytes, Bytes::of(at).0);
    vital.encode(bytes);
}

pub(crate) fn put_size(bytes: &mut Vec<u8>, size: u32) {
    bytes.push(SIZE);
    put(bytes, size);
}

pub(crate) fn put_holders(
    bytes: &mut Vec<u8>,
    version: u32,
    id: &AssetVersionId,
    holders: &Members,
) {
    bytes.push(HOLDERS);
    put(bytes, version);
    put_text(bytes, id.as_str());
    put_numbers(bytes, holders);
}

pub(crate) fn put_partial(bytes: &mut Vec<u8>, version: u32, renditions: &[Members]) {
    bytes.push(PARTIAL);
    put(bytes, version);
    put(bytes, Bytes::of(renditions.len()).0);
    renditions.iter().for_each(|holders| put_numbers(bytes, holders));
}

/// As runs: how far each begins after the end of the one before, and its length less one.
fn put_numbers(bytes: &mut Vec<u8>, holders: &Members) {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for number in holders.each() {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            Some(_) | None => runs.push((number, number)),
        }
    }
    put(bytes, Bytes::of(runs.len()).0);
    let mut end = 0;
    for (first, last) in runs {
        put(bytes, first - end);
        put(bytes, last - first);
        end = last;
    }
}

/// The sites were encoded before, so that they could be looked for.
pub(crate) fn put_near(bytes: &mut Vec<u8>, encoded: &[u8]) {
    bytes.push(NEAR);
    bytes.extend_from_slice(encoded);
}

pub(crate) fn put_decision(bytes: &mut Vec<u8>, record: &Record) {
    bytes.push(DECISION);
    record.encode(bytes);
}

impl Entry {
    /// The next entry, or the kind of that which cannot be read.
    pub(crate) fn read(input: &mut Input<'_>) -> Result<Self, &'static str> {
        match input.byte() {
            Some(HEAD) => head(input).ok_or("the head"),
            Some(SITE) => site(input).ok_or("a site"),
            Some(VITAL) => vital(input).ok_or("an appliance"),
            Some(SIZE) => input.narrow().map(Self::Size).ok_or("a number of appliances"),
            Some(HOLDERS) => holders(input).ok_or("the holders of a version"),
            Some(PARTIAL) => partial(input).ok_or("the holders of renditions"),
            Some(NEAR) => near::decode(input).map(Self::Near).ok_or("a client's sites"),
            Some(DECISION) => Record::decode(input).map(Self::Decision).ok_or("a decision"),
            Some(_) | None => Err("an entry of a kind that is not known here"),
        }
    }
}

fn head(input: &mut Input<'_>) -> Option<Entry> {
    let (pathways_min, pathways_max) = (input.narrow()?, input.narrow()?);
    let fits = 1 <= pathways_min && pathways_min <= pathways_max;
    fits.then_some(Entry::Head { pathways_min, pathways_max })
}

fn site(input: &mut Input<'_>) -> Option<Entry> {
    Some(Entry::Site { number: input.narrow()?, site: picture::decode_site(input)? })
}

fn vital(input: &mut Input<'_>) -> Option<Entry> {
    let (site, at) = (input.narrow()?, input.narrow()?);
    Some(Entry::Vital { site, at, vital: Vital::decode(input)? })
}

fn holders(input: &mut Input<'_>) -> Option<Entry> {
    let version = input.narrow()?;
    let id = input.text()?.parse().ok()?;
    Some(Entry::Holders { version, id, holders: numbers(input)? })
}

fn partial(input: &mut Input<'_>) -> Option<Entry> {
    let version = input.narrow()?;
    let count = input.count()?;
    let renditions = (0..count).map(|_| numbers(input)).collect::<Option<_>>()?;
    Some(Entry::Partial { version, renditions })
}

/// None of numbers that no appliance has: it would be as large as they are.
fn numbers(input: &mut Input<'_>) -> Option<Members> {
    let (mut holders, mut end) = (NumberSet::new(), 0_u32);
    for _ in 0..input.count()? {
        let first = end.checked_add(input.narrow()?)?;
        end = first.checked_add(input.narrow()?).filter(|end| *end < NUMBERS_MAX)?;
        holders.insert_range(first..=end);
    }
    Some(holders.iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_with_numbers_that_no_appliance_has_are_refused() {
        let is_read = |number: u32| {
            let mut bytes = Vec::new();
            put_holders(&mut bytes, 1, &"film-1".parse().unwrap(), &[number].into());
            Entry::read(&mut Input::new(&bytes)).is_ok()
        };
        assert!(is_read(NUMBERS_MAX - 1));
        assert!(!is_read(NUMBERS_MAX));
    }
}
