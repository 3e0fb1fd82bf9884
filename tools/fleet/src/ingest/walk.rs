//! The files of a directory, each with its length and time of change, in order of path.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use model::limits::{FILES_PER_VERSION_MAX, OBJECT_LEN_MAX, PATH_LEN_MAX};
use model::units::Bytes;

use crate::tree::Tree;

/// The properties by which a file counts as unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) len: Bytes,
    /// When it last changed, seconds and nanoseconds since 1970.
    pub(super) modified: (i64, i64),
    /// Of an object in a bucket: a hash of its ETag, which changes with its bytes. Else 0.
    pub(super) tag: u64,
}

/// Every file below the tree's root. Links to files inside are followed; anything that is neither
/// file, directory nor such a link is refused, and so is what no appliance could hold.
pub(super) fn walk(tree: &Tree) -> anyhow::Result<BTreeMap<String, Stamp>> {
    let mut files = BTreeMap::new();
    let mut directories = vec![String::new()];
    while let Some(directory) = directories.pop() {
        let at = tree.path().join(&directory);
        let entries = std::fs::read_dir(&at)
            .with_context(|| format!("cannot list the directory {}", at.display()))?;
        for entry in entries {
            let entry = entry.with_context(|| format!("cannot list all of {}", at.display()))?;
            let path = join(&directory, &entry.path())?;
            let kind = entry.file_type().with_context(|| format!("cannot look at \"{path}\""))?;
            if kind.is_dir() {
                directories.push(path);
            } else {
                let stamp = look(tree, &path)?;
                files.insert(path, stamp);
            }
            ensure!(
                files.len() <= FILES_PER_VERSION_MAX && directories.len() <= FILES_PER_VERSION_MAX,
                "{} holds more than {FILES_PER_VERSION_MAX} files, the most of one asset version: \
                 ingest its parts as assets of their own",
                tree.path().display()
            );
        }
    }
    ensure!(!files.is_empty(), "{} holds no files", tree.path().display());
    Ok(files)
}

pub(super) fn look(tree: &Tree, path: &str) -> anyhow::Result<Stamp> {
    let file = match tree.open_file(path) {
        Ok(file) => file,
        Err(error) => bail!("\"{path}\" {error}: an asset is made of files below its directory"),
    };
    let metadata = file.metadata().with_context(|| format!("cannot look at \"{path}\""))?;
    let modified = (metadata.mtime(), metadata.mtime_nsec());
    let stamp = Stamp { len: Bytes(metadata.len()), modified, tag: 0 };
    ensure!(
        stamp.len <= OBJECT_LEN_MAX,
        "\"{path}\" has {}, more than an object may have ({OBJECT_LEN_MAX})",
        stamp.len
    );
    Ok(stamp)
}

fn join(directory: &str, path: &Path) -> anyhow::Result<String> {
    let name = path.file_name().and_then(|name| name.to_str());
    let Some(name) = name else {
        bail!(
            "the name of {} is not UTF-8: rename it, players could not ask for it",
            path.display()
        )
    };
    let joined = match directory {
        "" => name.to_owned(),
        directory => format!("{directory}/{name}"),
    };
    ensure!(
        model::path::is_path(&joined),
        "{joined:?} cannot stand in a media URL: at most {PATH_LEN_MAX} bytes, no control \
         characters, no backslash"
    );
    Ok(joined)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn walked(prepare: impl Fn(&Path)) -> anyhow::Result<Vec<String>> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("root")).unwrap();
        prepare(&dir.path().join("root"));
        let tree = Tree::open(&dir.path().join("root")).unwrap();
        walk(&tree).map(|files| files.into_keys().collect())
    }

    #[test]
    fn files_come_in_order_of_their_paths_and_links_inside_count_as_files() {
        let files = walked(|root| {
            std::fs::create_dir_all(root.join("b/c")).unwrap();
            for path in ["z.mp4", "b/c/1.m4s", "b/0.m4s", ".hidden"] {
                std::fs::write(root.join(path), b"x").unwrap();
            }
            symlink("z.mp4", root.join("a.mp4")).unwrap();
        });
        assert_eq!(files.unwrap(), [".hidden", "a.mp4", "b/0.m4s", "b/c/1.m4s", "z.mp4"]);
    }

    #[test]
    fn what_is_no_file_below_the_directory_is_refused_by_name() {
        let refused = |prepare: &dyn Fn(&Path)| walked(prepare).unwrap_err().to_string();
        let out = refused(&|root| {
            std::fs::write(root.parent().unwrap().join("secret"), b"x").unwrap();
            symlink("../secret", root.join("link.mp4")).unwrap();
        });
        assert!(out.starts_with("\"link.mp4\" is a link that leads out"), "{out}");
        let round = refused(&|root| symlink(".", root.join("round")).unwrap());
        assert!(round.starts_with("\"round\" is not an ordinary file"), "{round}");
        let broken = refused(&|root| symlink("none", root.join("broken")).unwrap());
        assert!(broken.starts_with("\"broken\" is not there"), "{broken}");
        let name = refused(&|root| std::fs::write(root.join("a\nb"), b"x").unwrap());
        assert!(name.contains("cannot stand in a media URL"), "{name}");
        assert!(refused(&|_| ()).contains("holds no files"));
        let large = refused(&|root| {
            let file = std::fs::File::create(root.join("large.mp4")).unwrap();
            file.set_len(OBJECT_LEN_MAX.0 + 1).unwrap();
        });
        assert!(large.contains("more than an object may have"), "{large}");
    }
}
