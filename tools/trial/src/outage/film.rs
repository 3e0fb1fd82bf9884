//! A film that is only bytes: HLS around segments whose every byte is known.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use rig::client::Pattern;

/// One second of it is 48 KiB: 0.4 Mb/s, so that many players cost little.
const SEGMENT_LEN: usize = 96 << 10;
/// Players load it in pieces of this length.
pub(crate) const SEGMENT: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Film {
    segments: usize,
    pattern: Pattern,
}

impl Film {
    /// One of at least this length.
    pub(crate) fn of(length: Duration) -> Self {
        let count = length.as_secs().div_ceil(SEGMENT.as_secs());
        let segments = usize::try_from(count).unwrap_or(usize::MAX);
        Self { segments, pattern: Pattern { seed: 0x6f75_7461_6765 } }
    }

    pub(crate) fn write(self, dir: &Path) -> Result<()> {
        fs::create_dir_all(dir)?;
        let mut media = format!(
            "#EXTM3U\n#EXT-X-VERSION:6\n#EXT-X-TARGETDURATION:{}\n#EXT-X-PLAYLIST-TYPE:VOD\n",
            SEGMENT.as_secs()
        );
        let mut bytes = vec![0; SEGMENT_LEN];
        for index in 0..self.segments {
            self.pattern.fill(index, 0, &mut bytes);
            fs::write(dir.join(name(index)), &bytes)?;
            writeln!(media, "#EXTINF:{},\n{}", SEGMENT.as_secs(), name(index))?;
        }
        media.push_str("#EXT-X-ENDLIST\n");
        let entry = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=500000\nmedia.m3u8\n";
        fs::write(dir.join("master.m3u8"), entry)?;
        Ok(fs::write(dir.join("media.m3u8"), media)?)
    }

    pub(crate) fn segments(self) -> usize {
        self.segments
    }

    /// The segment's bytes are right.
    pub(crate) fn check(self, index: usize, bytes: &[u8]) -> Result<()> {
        ensure!(bytes.len() == SEGMENT_LEN, "segment {index} has {} bytes", bytes.len());
        let mut wanted = vec![0; SEGMENT_LEN];
        self.pattern.fill(index, 0, &mut wanted);
        ensure!(bytes == wanted, "segment {index} has wrong bytes");
        Ok(())
    }
}

/// The file of a segment.
pub(crate) fn name(index: usize) -> String {
    format!("segment-{index:04}.mp4")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_film_has_a_playlist_of_all_its_segments() {
        let dir = tempfile::tempdir().unwrap();
        let film = Film::of(Duration::from_secs(5));
        film.write(dir.path()).unwrap();
        assert_eq!(film.segments(), 3);
        let media = fs::read_to_string(dir.path().join("media.m3u8")).unwrap();
        assert!(media.ends_with("#EXTINF:2,\nsegment-0002.mp4\n#EXT-X-ENDLIST\n"), "{media}");
        let mut bytes = fs::read(dir.path().join(name(2))).unwrap();
        film.check(2, &bytes).unwrap();
        assert!(film.check(1, &bytes).is_err());
        bytes[7] ^= 1;
        assert!(film.check(2, &bytes).is_err());
    }
}
