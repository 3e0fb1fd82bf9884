//! What is fetched before all else, and outside of the windows too.
//!
//! Control names versions. Which objects they are is looked up before the next plan, some versions
//! of the manifest at a time.

use std::collections::BTreeSet;

use fill::plan::Fetch;
use model::id::ObjectId;

use crate::Holdings;

/// Objects of urgent versions.
#[derive(Debug, Default)]
pub(crate) struct Urgent {
    objects: BTreeSet<ObjectId>,
    /// So many versions of the manifest were looked at.
    versions: usize,
}

impl Holdings {
    /// True if what is fetched into one file may come now: while fill is open, or if some of it is
    /// urgent and nobody has paused fill. O(1) while fill is open, else O(objects).
    pub fn may_come(&self, fetch: &[Fetch]) -> bool {
        !self.is_closed
            || (self.takes_urgent && fetch.iter().any(|fetch| self.is_urgent(&fetch.object)))
    }

    pub(crate) fn is_urgent(&self, object: &ObjectId) -> bool {
        self.urgent.objects.contains(object)
    }

    /// Looks up what is urgent in about so many more versions and files; true if all is known.
    pub(crate) fn learn_urgent(&mut self, most: usize) -> bool {
        let Some(manifest) = &self.desired.manifest else { return true };
        let (named, urgent) = (&self.rules.urgent, &mut self.urgent);
        if named.is_empty() {
            urgent.versions = manifest.versions.len();
        }
        let mut left = most;
        while let Some(version) = manifest.versions.get(urgent.versions) {
            if left == 0 {
                return false;
            }
            left -= 1;
            urgent.versions += 1;
            if named.contains(&version.id) {
                urgent.objects.extend(version.files.values().map(|file| file.object));
                left = left.saturating_sub(version.files.len());
            }
        }
        true
    }

    /// The manifest or what control says is another: all is looked up anew.
    pub(crate) fn forget_urgent(&mut self) {
        self.urgent = Urgent::default();
    }

    /// Their numbers in the manifest, for a plan. O(urgent objects log objects).
    pub(crate) fn urgent_numbers(&self) -> Vec<usize> {
        let wanted = self.wanted();
        self.urgent.objects.iter().filter_map(|object| wanted.number_of(object)).collect()
    }
}
