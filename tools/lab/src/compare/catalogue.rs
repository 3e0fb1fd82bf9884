//! The files that both servers serve: made by the lab, so that every byte is known.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use model::units::Bytes;
use rig::client::{Pattern, Target, Truth};
use rustix::fs::{Advice, fadvise};
use tracing::info;

const PIECE_LEN: usize = 1 << 20;

/// Files of one length with known content.
#[derive(Debug)]
pub(crate) struct Catalogue {
    dir: PathBuf,
    pattern: Pattern,
    count: usize,
    len: Bytes,
}

impl Catalogue {
    /// Makes the files in `dir`, or takes those that an earlier run has kept there.
    pub(crate) fn open(dir: &Path, count: usize, len: Bytes, seed: u64) -> Result<Self> {
        let catalogue = Self { dir: dir.to_owned(), pattern: Pattern { seed }, count, len };
        let (marker, wanted) = (dir.with_extension("made"), format!("{count} {len} {seed}\n"));
        if fs::read_to_string(&marker).is_ok_and(|found| found == wanted) {
            catalogue.check()?;
            return Ok(catalogue);
        }
        let need = Bytes(len.0.saturating_mul(u64::try_from(count)?));
        info!(files = count, %need, dir = %dir.display(), "making the catalogue");
        if dir.exists() {
            fs::remove_dir_all(dir)?;
        }
        fs::create_dir_all(dir)?;
        for index in 0..count {
            rig::stop::check()?;
            catalogue.make(index)?;
        }
        catalogue.make_playlists()?;
        fs::write(&marker, wanted)?;
        Ok(catalogue)
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The files themselves.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        (0..self.count).map(|index| self.dir.join(name(index))).collect()
    }

    /// How long all of them are together.
    pub(crate) fn total(&self) -> Bytes {
        (0..self.count).fold(Bytes::ZERO, |sum, _| sum + self.len)
    }

    /// What compares their bytes.
    pub(crate) fn truth(&self) -> Truth {
        Truth::Pattern(self.pattern)
    }

    /// The files as targets below `prefix`, which ends with a slash.
    pub(crate) fn targets(&self, prefix: &str) -> Vec<Target> {
        let target = |index| Target { path: format!("{prefix}{}", name(index)), len: self.len };
        (0..self.count).map(target).collect()
    }

    /// Takes the files out of the page cache.
    pub(crate) fn forget(&self) -> Result<()> {
        self.each(|file| Ok(fadvise(file, 0, None, Advice::DontNeed)?))
    }

    /// Brings the files into the page cache.
    pub(crate) fn preload(&self) -> Result<()> {
        let mut sink = vec![0; PIECE_LEN];
        self.each(|mut file| {
            while 0 < std::io::Read::read(&mut file, &mut sink)? {}
            Ok(())
        })
    }

    fn each(&self, mut work: impl FnMut(&File) -> Result<()>) -> Result<()> {
        (0..self.count).try_for_each(|index| {
            let path = self.dir.join(name(index));
            let file =
                File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
            work(&file)
        })
    }

    fn make(&self, index: usize) -> Result<()> {
        let path = self.dir.join(name(index));
        let mut file =
            File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
        let mut piece = vec![0; PIECE_LEN];
        let mut offset = 0;
        while offset < self.len.0 {
            let len = (self.len.0 - offset).min(u64::try_from(PIECE_LEN)?);
            let piece = &mut piece[..usize::try_from(len)?];
            self.pattern.fill(index, offset, piece);
            file.write_all(piece).with_context(|| format!("cannot write {}", path.display()))?;
            offset += len;
        }
        file.sync_data()?;
        Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
    }

    /// Ordinary HLS over the files, so that they can be ingested and played back like any film.
    fn make_playlists(&self) -> Result<()> {
        let entry = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=10000000\nmedia.m3u8\n";
        let segment = |index| format!("#EXTINF:6,\n{}\n", name(index));
        let segments: String = (0..self.count).map(segment).collect();
        let head = "#EXTM3U\n#EXT-X-VERSION:6\n#EXT-X-TARGETDURATION:6\n#EXT-X-PLAYLIST-TYPE:VOD\n";
        fs::write(self.dir.join("master.m3u8"), entry)?;
        fs::write(self.dir.join("media.m3u8"), format!("{head}{segments}#EXT-X-ENDLIST\n"))?;
        Ok(())
    }

    /// A kept file has its length, and the right bytes at its end.
    fn check(&self) -> Result<()> {
        let mut index = 0;
        self.each(|file| {
            let last = self.len.0.min(4096);
            let mut found = vec![0; usize::try_from(last)?];
            let mut wanted = found.clone();
            let whole = file.metadata()?.len() == self.len.0;
            if whole {
                file.read_exact_at(&mut found, self.len.0 - last)?;
            }
            self.pattern.fill(index, self.len.0 - last, &mut wanted);
            let path = self.dir.join(name(index));
            ensure!(whole && found == wanted, "{} was changed: remove it", path.display());
            index += 1;
            Ok(())
        })
    }
}

fn name(index: usize) -> String {
    format!("film-{index:04}.mp4")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_catalogue_is_taken_again_unless_it_was_changed() {
        let room = tempfile::tempdir().unwrap();
        let dir = room.path().join("source");
        let len = Bytes(3_000_001);
        let catalogue = Catalogue::open(&dir, 2, len, 9).unwrap();
        catalogue.forget().unwrap();
        let made = fs::metadata(dir.join(name(1))).unwrap();
        assert_eq!(made.len(), len.0);
        let mut bytes = fs::read(dir.join(name(1))).unwrap();
        let scratch = &mut Vec::new();
        catalogue.truth().compare(1, 0, &bytes, scratch).unwrap();
        let media = fs::read_to_string(dir.join("media.m3u8")).unwrap();
        assert!(media.contains("\nfilm-0001.mp4\n#EXT-X-ENDLIST\n"));

        Catalogue::open(&dir, 2, len, 9).unwrap();
        let kept = fs::metadata(dir.join(name(1))).unwrap();
        assert_eq!(made.modified().unwrap(), kept.modified().unwrap());

        *bytes.last_mut().unwrap() ^= 1;
        fs::write(dir.join(name(1)), &bytes).unwrap();
        let error = Catalogue::open(&dir, 2, len, 9).unwrap_err().to_string();
        assert!(error.ends_with("film-0001.mp4 was changed: remove it"), "{error}");
        Catalogue::open(&dir, 2, len, 10).unwrap();
    }
}
