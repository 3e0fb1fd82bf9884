//! A film with eight variants, of which nobody plays a second.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::Result;

const VARIANTS: u32 = 8;

/// Writes it to a folder.
pub(super) fn write(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir)?;
    let mut entry = "#EXTM3U\n#EXT-X-VERSION:6\n#EXT-X-INDEPENDENT-SEGMENTS\n".to_owned();
    for variant in 1..=VARIANTS {
        let (bandwidth, height) = (variant * 800_000, variant * 135);
        writeln!(
            entry,
            "#EXT-X-STREAM-INF:BANDWIDTH={bandwidth},AVERAGE-BANDWIDTH={bandwidth},\
             RESOLUTION={}x{height},CODECS=\"avc1.640028,mp4a.40.2\",FRAME-RATE=25\n\
             v{variant}/media.m3u8",
            height * 16 / 9
        )?;
        let media = "#EXTM3U\n#EXT-X-VERSION:6\n#EXT-X-TARGETDURATION:4\n\
             #EXT-X-PLAYLIST-TYPE:VOD\n#EXTINF:4,\n1.mp4\n#EXT-X-ENDLIST\n";
        let folder = dir.join(format!("v{variant}"));
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("media.m3u8"), media)?;
        fs::write(folder.join("1.mp4"), vec![u8::try_from(variant)?; 1000])?;
    }
    Ok(fs::write(dir.join("master.m3u8"), entry)?)
}

/// An entry playlist of this film, with steering and with all variants of the same number of
/// pathways.
pub(super) fn is_entry(body: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(body) else { return false };
    let count = |start: &str| text.lines().filter(|line| line.starts_with(start)).count();
    let variants = count("#EXT-X-STREAM-INF:");
    let eight = usize::try_from(VARIANTS).unwrap_or(usize::MAX);
    count("#EXT-X-CONTENT-STEERING:") == 1 && 2 * eight <= variants && variants % eight == 0
}
