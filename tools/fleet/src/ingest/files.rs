//! Where an asset's files lie: in a folder, or in a bucket (`bucket`). Read the same way.

use std::collections::BTreeMap;
use std::io::{self, Read};

use anyhow::{Context as _, bail, ensure};
use model::units::Bytes;

use super::walk::{self, Stamp};
use super::{changed, hash};
use crate::tree::Tree;

#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) path: String,
    pub(super) stamp: Stamp,
    pub(super) from: Bytes,
}

/// Files by path. Reading fails if a file has changed since it was listed.
pub(super) trait Files {
    fn name(&self) -> String;

    /// Every file, in order of path. Refuses files that no appliance could hold.
    fn list(&self) -> anyhow::Result<BTreeMap<String, Stamp>>;

    fn read(&self, path: &str, stamp: Stamp) -> anyhow::Result<Vec<u8>>;

    /// Names the files that will be opened, in this order, so that they can be read ahead.
    fn expect(&self, jobs: Vec<Job>) {
        drop(jobs);
    }

    /// A file's bytes. The reader is used up before the next file is opened.
    fn open(&self, job: &Job) -> io::Result<Box<dyn Read + Send>>;

    /// Fails if a file is not as it was listed, after it was read.
    fn check(&self, path: &str, stamp: Stamp) -> anyhow::Result<()>;

    /// The same for all of them, when everything was read.
    fn check_all(&self, stamps: &BTreeMap<String, Stamp>) -> anyhow::Result<()>;
}

impl Files for Tree {
    fn name(&self) -> String {
        self.path().display().to_string()
    }

    fn list(&self) -> anyhow::Result<BTreeMap<String, Stamp>> {
        walk::walk(self)
    }

    fn read(&self, path: &str, stamp: Stamp) -> anyhow::Result<Vec<u8>> {
        let Ok(file) = self.open_file(path) else {
            bail!("{}", changed(path));
        };
        let mut bytes = Vec::new();
        file.take(stamp.len.0 + 1)
            .read_to_end(&mut bytes)
            .with_context(|| format!("cannot read \"{path}\""))?;
        ensure!(Bytes::of(bytes.len()) == stamp.len, "{}", changed(path));
        Ok(bytes)
    }

    fn open(&self, job: &Job) -> io::Result<Box<dyn Read + Send>> {
        let gone = |error| io::Error::other(format!("it {error} any more: leave the files alone"));
        let file = self.open_file(&job.path).map_err(gone)?;
        Ok(Box::new(hash::from(file, job.from)?))
    }

    fn check(&self, path: &str, stamp: Stamp) -> anyhow::Result<()> {
        ensure!(walk::look(self, path)? == stamp, "{}", changed(path));
        Ok(())
    }

    fn check_all(&self, stamps: &BTreeMap<String, Stamp>) -> anyhow::Result<()> {
        stamps.iter().try_for_each(|(path, stamp)| self.check(path, *stamp))
    }
}
