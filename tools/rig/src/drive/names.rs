//! Which file has which name: the numbers that FUSE knows files by.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::FileId;

/// Names and numbers. A number is never given twice, so that a file that is gone and one that took
/// its name or its inode are told apart.
#[derive(Debug)]
pub(super) struct Names {
    by_path: BTreeMap<PathBuf, FileId>,
    paths: BTreeMap<FileId, PathBuf>,
    next: u64,
}

/// FUSE's number of the root.
pub(super) const ROOT: FileId = FileId(1);

impl Names {
    /// The root alone.
    pub(super) fn new() -> Self {
        let mut names = Self { by_path: BTreeMap::new(), paths: BTreeMap::new(), next: 2 };
        names.by_path.insert(PathBuf::new(), ROOT);
        names.paths.insert(ROOT, PathBuf::new());
        names
    }

    /// The file of that name; a name not seen before gets a number.
    pub(super) fn id(&mut self, path: &Path) -> FileId {
        if let Some(id) = self.by_path.get(path) {
            return *id;
        }
        let id = FileId(self.next);
        self.next += 1;
        self.by_path.insert(path.to_owned(), id);
        self.paths.insert(id, path.to_owned());
        id
    }

    /// The name of a file; none if it has none any more.
    pub(super) fn path(&self, id: FileId) -> Option<&Path> {
        self.paths.get(&id).map(PathBuf::as_path)
    }

    /// A file has another name now, and what had it before has none.
    pub(super) fn rename(&mut self, from: &Path, to: &Path) {
        self.remove(to);
        if let Some(id) = self.by_path.remove(from) {
            self.by_path.insert(to.to_owned(), id);
            self.paths.insert(id, to.to_owned());
        }
    }

    /// A file has no name any more.
    pub(super) fn remove(&mut self, path: &Path) {
        if let Some(id) = self.by_path.remove(path) {
            self.paths.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_used_again_is_another_file() {
        let mut names = Names::new();
        let (a, b) = (Path::new("a"), Path::new("b"));
        let first = names.id(a);
        assert_eq!(names.id(a), first);
        let second = names.id(b);
        names.rename(a, b);
        assert_eq!((names.id(b), names.path(second)), (first, None));
        names.remove(b);
        assert_ne!(names.id(b), first);
        assert_eq!(names.path(ROOT), Some(Path::new("")));
    }
}
