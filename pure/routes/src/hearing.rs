//! One appliance's table: what its sessions announce, filtered, the best of each prefix.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::topology::Prefix;

use crate::attributes::{Attributes, Community, Peering};
use crate::digest::Digest;
use crate::filter::{Cause, Filter, LeftOut};

/// A table, complete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hearing {
    /// In order of their prefixes, each once.
    routes: Vec<(Prefix, Arc<Attributes>)>,
    pub digest: Digest,
    /// Routes of each session that are believed, also those for which there is a better one.
    pub sessions: BTreeMap<Box<str>, u64>,
    pub left_out: LeftOut,
}

/// A change of a table, or a whole one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// New or different. Of prefixes named twice, the last counts.
    pub announced: Vec<(Prefix, Arc<Attributes>)>,
    pub withdrawn: Vec<Prefix>,
}

/// Collects a table, a route at a time, in any order.
#[derive(Debug)]
pub struct Builder<'a> {
    filter: &'a Filter,
    best: BTreeMap<Prefix, Arc<Attributes>>,
    known: BTreeMap<u128, Arc<Attributes>>,
    sessions: BTreeMap<Box<str>, u64>,
    left_out: LeftOut,
}

/// A route as a router tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub prefix: Prefix,
    /// The session's name.
    pub session: Box<str>,
    pub as_path: Vec<u32>,
    /// Part of the path is an unordered set.
    pub has_set: bool,
    pub med: Option<u32>,
    pub communities: Vec<Community>,
}

impl<'a> Builder<'a> {
    /// An empty table, and what is not let into it.
    pub fn new(filter: &'a Filter) -> Self {
        Self {
            filter,
            best: BTreeMap::new(),
            known: BTreeMap::new(),
            sessions: BTreeMap::new(),
            left_out: LeftOut::default(),
        }
    }

    /// A route of a session that is joined so.
    pub fn hear(&mut self, told: Told, peering: Peering) {
        let Told { prefix, session, as_path, has_set, med, communities } = told;
        let prefix = prefix.trunc();
        let count = self.sessions.entry(session.clone()).or_default();
        let of_path = match () {
            () if as_path.is_empty() && !has_set => Some(Cause::NoPath),
            () if has_set => Some(Cause::PathSet),
            () if self.filter.path_max < as_path.len() => Some(Cause::LongPath),
            () if self.filter.session_max <= *count => Some(Cause::Limit),
            () => None,
        };
        if let Some(cause) = self.filter.prefix(&prefix).or(of_path) {
            return self.left_out.count(cause, prefix, &session);
        }
        *count += 1;
        assert!(*count <= self.filter.session_max, "the rest was left out");
        let found = Attributes::new(peering, as_path, med, communities);
        let shared = self.known.entry(found.digest()).or_insert_with(|| Arc::new(found));
        let better = match self.best.get(&prefix) {
            Some(known) => shared.better(known).is_lt(),
            None => true,
        };
        if better {
            self.best.insert(prefix, Arc::clone(shared));
        }
    }

    /// All was told.
    pub fn done(self) -> Hearing {
        let mut digest = Digest::default();
        self.best.iter().for_each(|(prefix, attributes)| digest.put(prefix, attributes));
        let prefixes = u64::try_from(self.best.len()).expect("Linux has no 128-bit targets");
        assert_eq!(digest.count, prefixes, "each prefix counts once");
        Hearing {
            routes: self.best.into_iter().collect(),
            digest,
            sessions: self.sessions,
            left_out: self.left_out,
        }
    }
}

impl Hearing {
    /// In order of their prefixes, each once.
    pub fn routes(&self) -> &[(Prefix, Arc<Attributes>)] {
        &self.routes
    }

    /// The change from an older table to this one. O(length of both).
    pub fn since(&self, older: &Self) -> Difference {
        let mut difference = Difference::default();
        let (mut old, mut new) = (older.routes.iter().peekable(), self.routes.iter().peekable());
        loop {
            let (was, is) = match (old.peek(), new.peek()) {
                (Some((a, _)), Some((b, _))) if a == b => (old.next(), new.next()),
                (Some((a, _)), Some((b, _))) if b < a => (None, new.next()),
                (Some(_), _) => (old.next(), None),
                (None, _) => (None, new.next()),
            };
            match (was, is) {
                (Some((_, was)), Some((_, is))) if was == is => {}
                (_, Some(is)) => difference.announced.push(is.clone()),
                (Some((gone, _)), None) => difference.withdrawn.push(*gone),
                (None, None) => break difference,
            }
        }
    }
}

impl Difference {
    /// How many prefixes it names.
    pub fn len(&self) -> usize {
        self.announced.len() + self.withdrawn.len()
    }

    /// True if both tables are the same.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests;
