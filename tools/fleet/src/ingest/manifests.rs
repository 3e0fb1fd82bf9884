//! The playlists and MPDs of a directory: read whole, checked, and the entry ones handed on.

use std::collections::BTreeMap;
use std::io::Read as _;

use anyhow::{Context as _, ensure};
use model::units::Bytes;
use wire::v1::ingest::{Entry, EntryFormat};

use super::walk::Stamp;
use crate::tree::Tree;

/// Every `*.m3u8` and `*.mpd` of a directory, by path.
#[derive(Debug)]
pub(super) struct Manifests(BTreeMap<String, Vec<u8>>);

impl Manifests {
    /// Reads them, each once and whole.
    pub(super) fn read(tree: &Tree, stamps: &BTreeMap<String, Stamp>) -> anyhow::Result<Self> {
        let mut manifests = BTreeMap::new();
        for (path, stamp) in stamps {
            if format(path).is_none() {
                continue;
            }
            ensure!(
                stamp.len <= MANIFEST_LEN_MAX,
                "\"{path}\" has {}: a playlist or MPD has at most {MANIFEST_LEN_MAX}",
                stamp.len
            );
            let Ok(file) = tree.open_file(path) else {
                anyhow::bail!("{}", super::changed(path));
            };
            let mut bytes = Vec::new();
            file.take(MANIFEST_LEN_MAX.0 + 1)
                .read_to_end(&mut bytes)
                .with_context(|| format!("cannot read \"{path}\""))?;
            ensure!(Bytes::of(bytes.len()) == stamp.len, "{}", super::changed(path));
            manifests.insert(path.clone(), bytes);
        }
        Ok(Self(manifests))
    }

    /// The bytes of a manifest; none for any other file.
    pub(super) fn bytes(&self, path: &str) -> Option<&[u8]> {
        self.0.get(path).map(Vec::as_slice)
    }

    /// Bytes in all of them.
    pub(super) fn len(&self) -> Bytes {
        Bytes(self.0.values().map(|bytes| Bytes::of(bytes.len()).0).sum())
    }

    /// Checks all of them against the files there are, and returns the entry manifests.
    pub(super) fn check(&self, _files: &BTreeMap<String, Stamp>) -> anyhow::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for (path, bytes) in &self.0 {
            let text =
                std::str::from_utf8(bytes).with_context(|| format!("\"{path}\" is not UTF-8"))?;
            let format = format(path).expect("only these were read");
            if format == EntryFormat::Dash || text.contains("#EXT-X-STREAM-INF") {
                entries.push(Entry { path: path.clone(), format, text: text.to_owned() });
            }
        }
        Ok(entries)
    }
}

fn format(path: &str) -> Option<EntryFormat> {
    let (_, extension) = path.rsplit_once('.')?;
    match extension.to_ascii_lowercase().as_str() {
        "m3u8" => Some(EntryFormat::Hls),
        "mpd" => Some(EntryFormat::Dash),
        _ => None,
    }
}

/// A media playlist of 24 hours in segments of one second has about 7 MB.
const MANIFEST_LEN_MAX: Bytes = Bytes::mib(16);
