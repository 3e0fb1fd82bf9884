//! A film for slow links: seven rungs whose bitrates are what they say, and cost next to nothing to
//! decode.
//!
//! Small pictures, filled up with bytes that decoders skip (H.264, filler data): many players on
//! one machine take what real films would take of the links, and not of the CPU. Each rung has a
//! height of its own, by which a page knows what is shown.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use model::units::BitsPerSecond;
use rig::stage::Film;
use serde_json::{Map, Value};
use tracing::info;

/// Bits per second of video, lowest first: an eighth of the narrowest link to less than half of the
/// widest.
const RUNGS: [u64; 7] = [400_000, 900_000, 1_700_000, 2_800_000, 4_500_000, 7_500_000, 12_000_000];
const SECONDS: u32 = 120;
const SEGMENT_S: u32 = 4;
const FRAME_RATE: u32 = 25;
/// Where players say nothing: as control finds it, three times the highest peak.
const PACE: BitsPerSecond = BitsPerSecond(3 * 12_100_000);
/// Grows when the way the film is made changes.
const RECIPE: u32 = 1;

/// Pixels of a rung from top to bottom.
fn height(index: usize) -> usize {
    180 + 4 * index
}

/// Bits per second by the height of the picture.
pub(super) fn bitrates() -> Value {
    let rungs = RUNGS.iter().enumerate();
    let rungs = rungs.map(|(index, rate)| (height(index).to_string(), Value::from(*rate)));
    Value::Object(rungs.collect::<Map<_, _>>())
}

/// The film, made if it is not there, with the pace that control would find.
pub(super) fn film() -> Result<Film> {
    let dir = PathBuf::from(format!("target/lab/shaped-film-{RECIPE}"));
    if !dir.join("manifest.mpd").is_file() {
        info!("encoding the film, once");
        let partial = dir.with_extension("partial");
        fs::create_dir_all(&partial)?;
        encode(&partial)?;
        fs::rename(&partial, &dir)?;
    }
    let film = Film::read("film-1", &dir)?;
    Ok(Film { pace: Some(PACE), ..film })
}

fn encode(dir: &Path) -> Result<()> {
    let mut graph = format!("[0:v]split={}", RUNGS.len());
    for index in 0..RUNGS.len() {
        graph.push_str(&format!("[s{index}]"));
    }
    for index in 0..RUNGS.len() {
        graph.push_str(&format!(";[s{index}]scale=320:{}[v{index}]", height(index)));
    }
    let picture = format!("testsrc2=size=320x180:rate={FRAME_RATE}");
    let keyframes = (FRAME_RATE * SEGMENT_S).to_string();
    let mut words: Vec<String> = Vec::new();
    let mut push = |more: &[&str]| words.extend(more.iter().map(|word| (*word).to_owned()));
    push(&["-hide_banner", "-nostdin", "-loglevel", "error", "-y", "-f", "lavfi", "-i", &picture]);
    push(&["-f", "lavfi", "-i", "sine=frequency=330:sample_rate=48000"]);
    push(&["-t", &SECONDS.to_string(), "-filter_complex", &graph]);
    for index in 0..RUNGS.len() {
        push(&["-map", &format!("[v{index}]")]);
    }
    push(&["-map", "1:a", "-c:a", "aac", "-b:a", "96k", "-ac", "2"]);
    push(&["-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p"]);
    push(&["-g", &keyframes, "-keyint_min", &keyframes, "-sc_threshold", "0"]);
    push(&["-x264-params", "nal-hrd=cbr:filler=1"]);
    for (index, rate) in RUNGS.iter().enumerate() {
        for name in ["b", "minrate", "maxrate", "bufsize"] {
            push(&[&format!("-{name}:v:{index}"), &rate.to_string()]);
        }
    }
    push(&["-f", "dash", "-seg_duration", &SEGMENT_S.to_string(), "-single_file", "1"]);
    push(&["-use_template", "0", "-use_timeline", "0", "-dash_segment_type", "mp4"]);
    push(&["-hls_playlist", "1", "-hls_master_name", "master.m3u8"]);
    push(&["-single_file_name", "r$RepresentationID$.mp4"]);
    push(&["-adaptation_sets", "id=0,streams=v id=1,streams=a"]);
    let mpd = dir.join("manifest.mpd");
    let output = Command::new("ffmpeg").args(&words).arg(&mpd).output();
    let output = output.context("cannot run ffmpeg: install it first")?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success() && mpd.is_file(), "ffmpeg could not encode: {}", said.trim());
    Ok(())
}
