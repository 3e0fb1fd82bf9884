//! A drive's content in memory: folders, names, files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Image {
    /// Folders, parents first.
    pub(crate) folders: BTreeSet<PathBuf>,
    pub(crate) files: BTreeMap<PathBuf, Arc<Vec<u8>>>,
}

impl Image {
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let mut image = Self::default();
        image.read_below(folder, Path::new(""))?;
        Ok(image)
    }

    fn read_below(&mut self, root: &Path, folder: &Path) -> Result<()> {
        for entry in std::fs::read_dir(root.join(folder))? {
            let entry = entry?;
            let path = folder.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                self.folders.insert(path.clone());
                self.read_below(root, &path)?;
            } else {
                self.files.insert(path, Arc::new(std::fs::read(entry.path())?));
            }
        }
        Ok(())
    }

    /// Makes it real in `folder`, which is made.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder)?;
        for path in &self.folders {
            std::fs::create_dir_all(folder.join(path))?;
        }
        for (path, bytes) in &self.files {
            std::fs::write(folder.join(path), &**bytes)?;
        }
        Ok(())
    }
}
