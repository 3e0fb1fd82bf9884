//! Documents of versions: what never changes of each, told once, known by its hash.
//!
//! ```text
//! short manifest ── names hashes ──> not in force, not fetched: asked for, some at a time
//!                                               │ all there
//! documents.jsonl <── those in force and those named ──> whole manifest ──> in force
//! ```
//!
//! A line is believed because its hash stands in a signed manifest. The file has all documents of
//! the manifest before and of the next, so that whichever of the two files a power cut leaves old,
//! the manifest on the drive has its documents.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::id::DocumentId;
use model::manifest::{AssetVersion, Manifest, Short, ShortError};
use wire::convert::{WireError, document_out, version_in};

/// Documents that were fetched for a manifest and are not in force yet.
#[derive(Debug, Default)]
pub(crate) struct Fetched(BTreeMap<DocumentId, Document>);

#[derive(Debug)]
struct Document {
    line: Vec<u8>,
    version: Arc<AssetVersion>,
}

/// Versions in force, by their documents.
pub(crate) type InForce = BTreeMap<DocumentId, Arc<AssetVersion>>;

/// Why a line is no document.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    #[error("the document {0} cannot be read: {1}")]
    Form(DocumentId, serde_json::Error),
    #[error("the document {0} says what cannot be: {1}")]
    Wire(DocumentId, WireError),
}

impl Fetched {
    /// Takes those lines that `short` names; others are left out. How many.
    pub(crate) fn take(&mut self, short: &Short, lines: &[u8]) -> Result<usize, DocumentError> {
        let named: BTreeSet<_> = short.listed.iter().map(|listed| listed.document).collect();
        let mut taken = 0;
        for line in lines.split(|byte| *byte == b'\n') {
            let id = DocumentId::of(line);
            if named.contains(&id) {
                let (line, version) = (line.to_vec(), read(id, line)?);
                self.0.insert(id, Document { line, version });
                taken += 1;
            }
        }
        Ok(taken)
    }

    /// Those that `short` names and that are neither here nor in force, the most wanted first.
    pub(crate) fn lacking(&self, short: &Short, in_force: &InForce) -> Vec<DocumentId> {
        let ids = short.listed.iter().map(|listed| listed.document);
        ids.filter(|id| !self.0.contains_key(id) && !in_force.contains_key(id)).collect()
    }

    /// Lets those go that `short` does not name.
    pub(crate) fn keep_for(&mut self, short: &Short) {
        let named: BTreeSet<_> = short.listed.iter().map(|listed| listed.document).collect();
        self.0.retain(|id, _| named.contains(id));
    }

    /// True if a file that has all that is in force has all that `short` names.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The file with those of `kept`, the file before, that are in force or named, and with these.
    /// Of one in force that could not be kept, the line is made anew. O(bytes of all).
    pub(crate) fn file(&self, kept: &[u8], short: &Short, in_force: &InForce) -> Vec<u8> {
        let mut wanted: BTreeSet<_> = short.listed.iter().map(|listed| listed.document).collect();
        wanted.extend(in_force.keys());
        let mut file = Vec::with_capacity(kept.len());
        let mut put = |id: DocumentId, line: &[u8]| {
            if wanted.remove(&id) {
                file.extend(line);
                file.push(b'\n');
            }
        };
        kept.split(|byte| *byte == b'\n').for_each(|line| put(DocumentId::of(line), line));
        self.0.iter().for_each(|(id, document)| put(*id, &document.line));
        for (id, version) in in_force.iter().filter(|(id, _)| wanted.contains(id)) {
            let line = document_out(version);
            if DocumentId::of(&line) == *id {
                file.extend(line);
                file.push(b'\n');
            }
        }
        file
    }

    /// The whole manifest, and what is in force with it.
    pub(crate) fn whole(
        mut self,
        short: Short,
        in_force: &InForce,
    ) -> Result<(Manifest, InForce), ShortError> {
        let ids: Vec<_> = short.listed.iter().map(|listed| listed.document).collect();
        let manifest = short.whole(|id| {
            let fetched = self.0.remove(id).map(|document| document.version);
            fetched.or_else(|| in_force.get(id).cloned())
        })?;
        let in_force = ids.into_iter().zip(manifest.versions.iter().cloned()).collect();
        Ok((manifest, in_force))
    }
}

/// The version that a line tells, without sources.
fn read(id: DocumentId, line: &[u8]) -> Result<Arc<AssetVersion>, DocumentError> {
    let wire = serde_json::from_slice(line).map_err(|error| DocumentError::Form(id, error))?;
    version_in(&wire).map_err(|error| DocumentError::Wire(id, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::id::{Generation, ObjectId};
    use model::manifest::{File, Listed, Trust};
    use model::units::{Bytes, UnixSeconds};

    fn film(n: u8) -> Arc<AssetVersion> {
        let file =
            File { object: ObjectId([n; 32]), len: Bytes(1), content_type: "video/mp4".into() };
        Arc::new(AssetVersion {
            id: format!("film-{n}").parse().unwrap(),
            asset: "film".parse().unwrap(),
            sources: Vec::new(),
            modified: UnixSeconds(0),
            pace: None,
            files: BTreeMap::from([("a.mp4".to_owned(), file)]),
        })
    }

    fn id(n: u8) -> DocumentId {
        DocumentId::of(&document_out(&film(n)))
    }

    fn lines(films: &[u8]) -> Vec<u8> {
        films.iter().flat_map(|n| [document_out(&film(*n)), b"\n".to_vec()].concat()).collect()
    }

    fn short(films: &[u8]) -> Short {
        let listed = |n: &u8| Listed {
            id: film(*n).id.clone(),
            document: id(*n),
            sources: vec!["https://origin.example/".to_owned()],
        };
        let manifest = Manifest {
            appliance: "a1".parse().unwrap(),
            generation: Generation(1),
            token_keys: Vec::new(),
            trust: Trust::default(),
            versions: Vec::new(),
            numbers: BTreeMap::new(),
            siblings: BTreeMap::new(),
            site: Vec::new(),
        };
        Short { manifest, listed: films.iter().map(listed).collect() }
    }

    #[test]
    fn a_document_is_fetched_once_and_none_that_is_in_force() {
        let mut fetched = Fetched::default();
        let (first, next) = (short(&[3, 1]), short(&[1, 2, 3]));
        assert_eq!(fetched.lacking(&first, &InForce::new()), [id(3), id(1)], "most wanted first");
        let changed = lines(&[3]).to_ascii_uppercase();
        let others = [lines(&[3, 9]), changed, b"{}".to_vec()].concat();
        assert_eq!(fetched.take(&first, &others).unwrap(), 1);
        assert_eq!(fetched.lacking(&first, &InForce::new()), [id(1)]);
        assert_eq!(fetched.take(&first, &lines(&[1])).unwrap(), 1);
        let (manifest, in_force) = fetched.whole(first, &InForce::new()).unwrap();
        assert_eq!(manifest.versions[1].files, film(1).files);
        let mut fetched = Fetched::default();
        assert_eq!(fetched.lacking(&next, &in_force), [id(2)]);
        fetched.take(&next, &lines(&[2])).unwrap();
        let (again, _) = fetched.whole(next, &in_force).unwrap();
        assert!(Arc::ptr_eq(&again.versions[0], &manifest.versions[1]), "it is the same in memory");
        assert_eq!(again.versions[1].sources, ["https://origin.example/"]);
    }

    #[test]
    fn the_file_has_what_is_in_force_and_what_is_named_each_once() {
        let in_force: InForce = [1, 2, 3].map(|n| (id(n), film(n))).into();
        let next = short(&[2, 4]);
        let mut fetched = Fetched::default();
        fetched.take(&next, &lines(&[4])).unwrap();
        assert_eq!(fetched.file(&lines(&[9, 1, 2, 3, 1]), &next, &in_force), lines(&[1, 2, 3, 4]));
        let of = fetched.file(&lines(&[1]), &next, &in_force);
        let mut read = Fetched::default();
        assert_eq!(read.take(&short(&[1, 2, 3, 4]), &of).unwrap(), 4, "made anew");
    }

    #[test]
    fn what_the_next_manifest_does_not_name_goes() {
        let mut fetched = Fetched::default();
        fetched.take(&short(&[1, 2]), &lines(&[1, 2])).unwrap();
        fetched.keep_for(&short(&[2]));
        assert_eq!(fetched.lacking(&short(&[1, 2]), &InForce::new()), [id(1)]);
    }

    #[test]
    fn a_line_that_is_no_version_is_refused_though_it_was_signed() {
        let of = |line: &[u8]| {
            let mut short = short(&[1]);
            short.listed[0].document = DocumentId::of(line);
            Fetched::default().take(&short, line).unwrap_err().to_string()
        };
        assert!(of(b"{}").contains("cannot be read: missing field"));
        let path = lines(&[1]).strip_suffix(b"\n").unwrap().to_vec();
        let path = String::from_utf8(path).unwrap().replace("a.mp4", "../a.mp4");
        assert!(of(path.as_bytes()).contains("says what cannot be"), "{}", of(path.as_bytes()));
    }
}
