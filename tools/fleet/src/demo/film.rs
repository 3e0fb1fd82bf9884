//! The demo's film: encoded once, and found again by its source file.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, ensure};
use indicatif::ProgressBar;
use model::id::AssetId;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tracing::info;

use super::child;
use super::ladder::{Ladder, Probe, finish_playlist};
use crate::output;

/// An encoded film, ready to be ingested.
#[derive(Debug)]
pub(super) struct Film {
    pub(super) asset: AssetId,
    pub(super) dir: PathBuf,
    /// How long encoding took; nothing if it was there already.
    pub(super) encoded_in: Option<Duration>,
}

/// The film at `path`, or the demo's own; below `films`, encoded if it is not there yet.
pub(super) async fn film(films: &Path, path: Option<&Path>) -> anyhow::Result<Film> {
    std::fs::create_dir_all(films).with_context(|| format!("cannot create {}", films.display()))?;
    let (asset, key) = match path {
        None => ("film".parse()?, format!("demo-{RECIPE}")),
        Some(path) => (asset_name(path)?, key(path)?),
    };
    let dir = films.join(key);
    if dir.join(MPD).is_file() {
        // Seen as used lately, when room is made for others.
        let _ = std::fs::File::open(&dir).and_then(|dir| dir.set_modified(SystemTime::now()));
        return Ok(Film { asset, dir, encoded_in: None });
    }
    make_room(films);
    let start = Instant::now();
    // Removed when it goes out of scope, also where the encode is cut off.
    let partial = tempfile::Builder::new().prefix(PARTIAL).tempdir_in(films);
    let partial = partial.with_context(|| format!("cannot write to {}", films.display()))?;
    match path {
        None => encode_demo_film(partial.path()).await?,
        Some(path) => encode_file(path, partial.path()).await?,
    }
    finish(partial.path())?;
    match std::fs::rename(&partial, &dir) {
        Err(_) if dir.join(MPD).is_file() => {} // another demo was quicker
        result => result.with_context(|| format!("cannot keep the film as {}", dir.display()))?,
    }
    Ok(Film { asset, dir, encoded_in: Some(start.elapsed()) })
}

/// Keeps the [`FILMS_MAX`] films used last, and no encode that was cut off a day ago.
fn make_room(films: &Path) {
    let Ok(entries) = std::fs::read_dir(films) else { return };
    let mut dirs: Vec<(SystemTime, PathBuf)> = entries
        .flatten()
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    dirs.sort();
    dirs.reverse();
    let mut kept = 0;
    for (modified, path) in dirs {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let old = modified.elapsed().is_ok_and(|age| PARTIAL_AGE_MAX < age);
        let partial = name.starts_with(PARTIAL);
        if !partial {
            kept += 1;
        }
        if (partial && old) || (!partial && FILMS_MAX <= kept) {
            let _ = std::fs::remove_dir_all(path);
        }
    }
}

/// By path, length and time of change, and by the recipe: a new one makes new films.
fn key(path: &Path) -> anyhow::Result<String> {
    let shown = path.display();
    let full = path.canonicalize().with_context(|| format!("cannot find the film {shown}"))?;
    let metadata: Metadata = full.metadata().with_context(|| format!("cannot look at {shown}"))?;
    ensure!(metadata.is_file(), "{shown} is not a file: name one film");
    let mut hasher = blake3::Hasher::new();
    hasher.update(full.as_os_str().as_encoded_bytes());
    let (len, seconds, nanos) = (metadata.len(), metadata.mtime(), metadata.mtime_nsec());
    hasher.update(format!("\n{len} {seconds} {nanos} {RECIPE}").as_bytes());
    Ok(hasher.finalize().to_hex()[..16].to_owned())
}

/// A name from the file's: `My Holiday (2).mp4` becomes `my-holiday-2`.
fn asset_name(path: &Path) -> anyhow::Result<AssetId> {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let words: Vec<&str> =
        stem.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let mut name = words.join("-");
    name.truncate(ASSET_NAME_MAX);
    let name = name.trim_end_matches('-');
    Ok(if name.is_empty() { "film" } else { name }.parse()?)
}

async fn encode_demo_film(dir: &Path) -> anyhow::Result<()> {
    let probe = Probe {
        width: 1280,
        height: 720,
        frames_per_1000_s: DEMO_FRAME_RATE * 1_000,
        duration_ms: DEMO_SECONDS * 1_000,
        sound: true,
    };
    let ladder = Ladder::of(&probe);
    let mut args = vec!["-f".to_owned(), "lavfi".to_owned(), "-i".to_owned()];
    // Four colours that drift, drawn small and blown up: pretty, and next to nothing to compute.
    args.push(format!(
        "gradients=size=96x54:rate={DEMO_FRAME_RATE}:speed=0.012:nb_colors=5:seed=7:\
         c0=0x0b1d3a:c1=0x1f6f8b:c2=0xe8a33d:c3=0xb23a48:c4=0x2b2d42"
    ));
    args.extend(["-f", "lavfi", "-i"].map(str::to_owned));
    args.push(demo_sound());
    args.extend(["-t".to_owned(), DEMO_SECONDS.to_string(), "-filter_complex".to_owned()]);
    args.push(demo_graph(&ladder, &font("DejaVuSansMono-Bold")?, &font("DejaVuSans")?));
    args.extend(ladder.output("ultrafast", &dir.join(MPD)));
    info!("encoding the demo's film, once: three minutes in three qualities");
    ffmpeg(&args, probe.duration_ms).await
}

/// A quiet chord that breathes, and a short beep on every second to check lip sync by.
fn demo_sound() -> String {
    let note = |hertz: &str, swell: &str| {
        format!("0.07*sin(2*PI*{hertz}*t)*(0.6+0.4*sin(2*PI*{swell}*t))")
    };
    let chord = [note("220", "0.25"), note("277.18", "0.17"), note("329.63", "0.11")].join("+");
    format!("aevalsrc=exprs='{chord}+0.25*sin(2*PI*880*t)*exp(-18*mod(t,1))':s=48000")
}

/// A running timecode, a dot that crosses the picture once per segment, and the rung's name.
fn demo_graph(ladder: &Ladder, digits: &str, letters: &str) -> String {
    let text = |font: &str, size: u64, what: &str, place: &str| {
        format!("drawtext=fontfile={font}:fontcolor=white:fontsize={size}:{what}:{place}")
    };
    let timecode = text(
        digits,
        150,
        &format!("timecode='00\\:00\\:00\\:00':rate={DEMO_FRAME_RATE}"),
        "x=(w-tw)/2:y=(h-th)/2-20:shadowcolor=black@0.4:shadowx=4:shadowy=4",
    );
    let name = text(letters, 40, "text='nearcast'", "x=(w-tw)/2:y=h*0.67");
    let segment = super::ladder::SEGMENT_S;
    let place = format!("x='w*0.05+(w*0.9-tw)*mod(t\\,{segment})/{segment}':y=h*0.80");
    let dot = text(letters, 64, "text='●'", &place);
    let mut graph = format!(
        "[0:v]scale=1280:720:flags=bilinear,format=yuv420p,{timecode},{name},{dot},split={}",
        ladder.rungs.len()
    );
    for index in 0..ladder.rungs.len() {
        graph.push_str(&format!("[s{index}]"));
    }
    for (index, rung) in ladder.rungs.iter().enumerate() {
        let (width, height) = (rung.width, rung.height);
        let what = format!("text='{height}p'");
        let place = format!("x={}:y={}", height / 18, height / 22);
        let label = text(letters, height / 18, &what, &place);
        graph.push_str(&format!(
            ";[s{index}]scale={width}:{height}:flags=bilinear,{label}[v{index}]"
        ));
    }
    graph + ";[1:a]anull[sound]"
}

/// ffmpeg's drawtext wants a file; Debian's, Fedora's and Arch's places are tried.
fn font(name: &str) -> anyhow::Result<String> {
    let dirs = [
        "/usr/share/fonts/truetype/dejavu",
        "/usr/share/fonts/dejavu-sans-fonts",
        "/usr/share/fonts/dejavu-sans-mono-fonts",
        "/usr/share/fonts/TTF",
        "/usr/share/fonts/dejavu",
    ];
    let found = dirs.iter().map(|dir| format!("{dir}/{name}.ttf")).find(|p| Path::new(p).is_file());
    found.with_context(|| {
        format!("the font {name}.ttf is not there: install fonts-dejavu-core, or name a film")
    })
}

async fn encode_file(path: &Path, dir: &Path) -> anyhow::Result<()> {
    let probe = probe(path).await?;
    let ladder = Ladder::of(&probe);
    if !probe.sound {
        info!(film = %path.display(), "this film has no sound: it plays without");
    }
    let top = ladder.rungs.last().map(|rung| format!("{}x{}", rung.width, rung.height));
    let seconds = probe.duration_ms / 1_000;
    let rate = ladder.frame_rate;
    info!(film = %path.display(), seconds, top, rate, "encoding the film, once");
    let mut args = vec!["-i".to_owned(), path_argument(path), "-filter_complex".to_owned()];
    args.push(ladder.film_graph());
    args.extend(["-map_metadata", "-1", "-map_chapters", "-1"].map(str::to_owned));
    args.extend(ladder.output("superfast", &dir.join(MPD)));
    ffmpeg(&args, probe.duration_ms).await
}

/// As a `file:` URL, so that no name is taken for an option or a protocol.
fn path_argument(path: &Path) -> String {
    format!("file:{}", path.display())
}

/// Runs ffmpeg with a progress bar on a terminal.
async fn ffmpeg(args: &[String], duration_ms: u64) -> anyhow::Result<()> {
    let mut command = child::command(&program("ffmpeg")?)?;
    command.args(["-hide_banner", "-nostdin", "-loglevel", "error", "-y", "-progress", "pipe:1"]);
    command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().context("cannot start ffmpeg")?;
    let mut said = process.stderr.take().context("ffmpeg has no stderr")?;
    let errors = tokio::spawn(async move {
        let mut text = Vec::new();
        let _ = tokio::io::AsyncReadExt::read_to_end(&mut said, &mut text).await;
        String::from_utf8_lossy(&text).into_owned()
    });
    let bar = encode_bar(duration_ms);
    let mut lines = BufReader::new(process.stdout.take().context("ffmpeg has no stdout")?).lines();
    while let Some(line) = lines.next_line().await.context("ffmpeg's progress is unreadable")? {
        if let Some(micros) = line.strip_prefix("out_time_us=")
            && let Ok(micros) = micros.trim().parse::<u64>()
        {
            bar.set_position(micros / 1_000);
        }
    }
    let status = process.wait().await.context("ffmpeg cannot be waited for")?;
    bar.finish_and_clear();
    let errors = errors.await.unwrap_or_default();
    let last: Vec<&str> = errors.lines().rev().take(8).collect();
    let last: Vec<&str> = last.into_iter().rev().collect();
    ensure!(status.success(), "ffmpeg could not encode the film ({status}):\n{}", last.join("\n"));
    Ok(())
}

fn encode_bar(duration_ms: u64) -> ProgressBar {
    let template = match duration_ms {
        0 => "encoding {spinner} {elapsed}",
        _ => "encoding {bar:32.cyan} {percent:>3} %  {eta} left",
    };
    let bar = output::bar(template);
    bar.set_length(duration_ms);
    bar
}

async fn probe(path: &Path) -> anyhow::Result<Probe> {
    let mut command = child::command(&program("ffprobe")?)?;
    command.args(["-v", "error", "-of", "json", "-show_streams", "-show_format"]);
    let output = command.arg(path_argument(path)).output().await.context("cannot run ffprobe")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{} is not a film that ffmpeg can read: {}",
        path.display(),
        said.trim()
    );
    parse_probe(&output.stdout).with_context(|| format!("cannot use {}", path.display()))
}

fn parse_probe(json: &[u8]) -> anyhow::Result<Probe> {
    let probe: Value = serde_json::from_slice(json).context("ffprobe's answer is unreadable")?;
    let streams = || probe["streams"].as_array().into_iter().flatten();
    let is_film = |stream: &&Value| {
        stream["codec_type"] == "video" && stream["disposition"]["attached_pic"] != 1
    };
    let video = streams().find(is_film).context("it has no moving picture")?;
    let side = |name: &str| video[name].as_u64().filter(|side| 0 < *side);
    let (width, height) = side("width").zip(side("height")).context("its picture has no size")?;
    let ratio = |name: &str, between| {
        let (a, b) = video[name].as_str()?.split_once(between)?;
        let (a, b): (u64, u64) = (a.parse().ok()?, b.parse().ok()?);
        (0 < a && 0 < b).then_some((a, b))
    };
    let (sar_width, sar_height) = ratio("sample_aspect_ratio", ':').unwrap_or((1, 1));
    let width = (width * sar_width / sar_height).max(1);
    let turned = |data: &Value| {
        data["rotation"].as_f64().is_some_and(|r| (r.abs() % 180.0 - 90.0).abs() < 1.0)
    };
    let (width, height) = match video["side_data_list"].as_array() {
        Some(list) if list.iter().any(turned) => (height, width),
        Some(_) | None => (width, height),
    };
    Ok(Probe {
        width,
        height,
        frames_per_1000_s: ratio("avg_frame_rate", '/').map_or(0, |(n, d)| n * 1_000 / d),
        duration_ms: probe["format"]["duration"].as_str().map_or(0, millis),
        sound: streams().any(|stream| stream["codec_type"] == "audio"),
    })
}

/// `12.345678` as 12345; 0 if it is no number.
fn millis(seconds: &str) -> u64 {
    let (whole, part) = seconds.split_once('.').unwrap_or((seconds, ""));
    let part: String = part.chars().chain("000".chars()).take(3).collect();
    let whole = whole.parse::<u64>().unwrap_or(0);
    whole.saturating_mul(1_000).saturating_add(part.parse().unwrap_or(0))
}

fn finish(dir: &Path) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(dir).context("cannot list the encoded film")? {
        let path = entry.context("cannot list the encoded film")?.path();
        if path.extension().is_some_and(|extension| extension == "m3u8") {
            let text = std::fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            std::fs::write(&path, finish_playlist(&text))
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    ensure!(dir.join(MPD).is_file(), "ffmpeg ended well but wrote no manifest");
    Ok(())
}

/// A program on the user's PATH.
pub(super) fn program(name: &str) -> anyhow::Result<PathBuf> {
    find_program(&[name]).with_context(|| format!("{name} is not installed: install it first"))
}

/// The first of these programs that is on the user's PATH.
pub(super) fn find_program(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let in_dirs = |name: &&str| dirs.iter().map(|dir| dir.join(name)).find(|p| p.is_file());
    names.iter().find_map(in_dirs)
}

const MPD: &str = "manifest.mpd";
const PARTIAL: &str = ".partial-";
const PARTIAL_AGE_MAX: Duration = Duration::from_secs(86_400);

/// Grows when the way films are made changes.
const RECIPE: u32 = 2;
const DEMO_FRAME_RATE: u64 = 25;
const DEMO_SECONDS: u64 = 180;

/// About 100 MB each for a short film.
const FILMS_MAX: usize = 5;

/// Leaves room for the version's hash in a name of 63.
const ASSET_NAME_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assets_are_named_after_their_files() {
        for (path, name) in [
            ("/x/My Holiday (2).mp4", "my-holiday-2"),
            ("film.mkv", "film"),
            ("--.mp4", "film"),
            ("Ünïcode.webm", "n-code"),
        ] {
            assert_eq!(asset_name(Path::new(path)).unwrap().as_str(), name, "{path}");
        }
        let long = format!("{}.mp4", "a b".repeat(60));
        assert!(asset_name(Path::new(&long)).unwrap().as_str().len() <= ASSET_NAME_MAX);
    }

    #[test]
    fn a_probe_sees_pixels_as_shown_and_skips_cover_pictures() {
        let json = r#"{"streams":[
            {"codec_type":"video","width":600,"height":600,"disposition":{"attached_pic":1}},
            {"codec_type":"audio"},
            {"codec_type":"video","width":720,"height":576,"sample_aspect_ratio":"16:15",
             "avg_frame_rate":"30000/1001","side_data_list":[{"rotation":-90}]}],
            "format":{"duration":"12.5"}}"#;
        let wanted = Probe {
            width: 576,
            height: 768,
            frames_per_1000_s: 29_970,
            duration_ms: 12_500,
            sound: true,
        };
        assert_eq!(parse_probe(json.as_bytes()).unwrap(), wanted);
        let error = parse_probe(br#"{"streams":[{"codec_type":"audio"}]}"#).unwrap_err();
        assert_eq!(error.to_string(), "it has no moving picture");
    }

    #[test]
    fn only_the_films_used_last_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        for index in 0..7u64 {
            let path = dir.path().join(format!("film{index}"));
            std::fs::create_dir(&path).unwrap();
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000 + index);
            std::fs::File::open(&path).unwrap().set_modified(at).unwrap();
        }
        std::fs::create_dir(dir.path().join(".partial-1")).unwrap();
        make_room(dir.path());
        let mut left: Vec<_> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, [".partial-1", "film3", "film4", "film5", "film6"]);
    }
}
