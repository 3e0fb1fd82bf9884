//! Which renditions a film gets, and the ffmpeg call that makes them. Arithmetic only.
//!
//! Three rungs and one sound track, each one fragmented MP4 file, named by an HLS and a DASH
//! manifest alike. Keyframes are at the same times in all rungs and segments have exactly 2 s: the
//! frame rate is made constant and whole, so that the one segment duration in the MPD is true.

use std::path::Path;

/// The properties of a film that decide how it is encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Probe {
    /// Width as shown: pixels made square, rotation applied.
    pub(super) width: u64,
    pub(super) height: u64,
    /// Frames in 1,000 s; 0 if unknown.
    pub(super) frames_per_1000_s: u64,
    /// Length in milliseconds; 0 if unknown.
    pub(super) duration_ms: u64,
    pub(super) sound: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rung {
    pub(super) width: u64,
    pub(super) height: u64,
    /// Mean bits per second aimed at.
    pub(super) rate: u64,
}

/// The renditions that ffmpeg makes of a film.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ladder {
    /// Lowest first.
    pub(super) rungs: Vec<Rung>,
    /// Frames per second, constant.
    pub(super) frame_rate: u64,
    pub(super) sound: bool,
}

impl Ladder {
    /// The ladder of a film: never larger than the film, at most 720 lines and 30 frames a second,
    /// which two cores encode faster than it plays.
    pub(super) fn of(probe: &Probe) -> Self {
        let frame_rate = frame_rate(probe.frames_per_1000_s);
        let short = probe.width.min(probe.height).max(1);
        let top = short.min(SHORT_SIDE_MAX);
        let rung = |(percent, bits_per_1000_pixels): (u64, u64)| {
            let side = |side: u64| even(side * top * percent / (short * 100));
            let (width, height) = (side(probe.width), side(probe.height));
            let rate = width * height * frame_rate * bits_per_1000_pixels / 1_000;
            Rung { width, height, rate: rate.clamp(RATE_MIN, RATE_MAX) }
        };
        Self { rungs: RUNGS.into_iter().map(rung).collect(), frame_rate, sound: probe.sound }
    }

    /// Arguments between the inputs and the filter graph's end: everything after `-filter_complex`.
    /// The graph must define `[v0]`, `[v1]`, `[v2]` and, with sound, `[sound]`.
    pub(super) fn output(&self, preset: &str, mpd: &Path) -> Vec<String> {
        let mut args: Vec<String> = Vec::new();
        let mut push = |words: &[&str]| args.extend(words.iter().map(|word| (*word).to_owned()));
        for index in 0..self.rungs.len() {
            push(&["-map", &format!("[v{index}]")]);
        }
        if self.sound {
            push(&["-map", "[sound]", "-c:a", "aac", "-b:a", "128k", "-ac", "2", "-ar", "48000"]);
        }
        let keyframe_every = (self.frame_rate * KEYFRAME_EVERY_S).to_string();
        push(&["-c:v", "libx264", "-preset", preset, "-pix_fmt", "yuv420p"]);
        push(&["-g", &keyframe_every, "-keyint_min", &keyframe_every, "-sc_threshold", "0"]);
        push(&["-flags", "+cgop", "-fps_mode", "cfr"]);
        for (index, rung) in self.rungs.iter().enumerate() {
            let rate = rung.rate;
            push(&[&format!("-b:v:{index}"), &rate.to_string()]);
            push(&[&format!("-maxrate:v:{index}"), &(rate * 6 / 5).to_string()]);
            push(&[&format!("-bufsize:v:{index}"), &(rate * 2).to_string()]);
        }
        let sets = if self.sound { "id=0,streams=v id=1,streams=a" } else { "id=0,streams=v" };
        push(&["-f", "dash", "-seg_duration", &SEGMENT_S.to_string(), "-single_file", "1"]);
        push(&["-use_template", "0", "-use_timeline", "0", "-dash_segment_type", "mp4"]);
        push(&["-hls_playlist", "1", "-hls_master_name", "master.m3u8"]);
        push(&["-single_file_name", "r$RepresentationID$.mp4", "-adaptation_sets", sets]);
        args.push(mpd.to_string_lossy().into_owned());
        args
    }

    /// The filter graph for a film of the user's: decoded once, sized once, halved from there.
    ///
    /// ffmpeg refuses rungs of different shapes, and even sizes are never quite alike. So pixels
    /// are made square at the top only: `scale` then keeps the shape by pixels that are not quite.
    pub(super) fn film_graph(&self) -> String {
        let (rate, count) = (self.frame_rate, self.rungs.len());
        let top = self.rungs.last().expect("a ladder has rungs");
        let (width, height) = (top.width, top.height);
        let mut graph = format!("[0:v:0]fps={rate}:start_time=0,scale={width}:{height},setsar=1");
        graph.push_str(&format!(",split={count}"));
        for index in 0..count {
            graph.push_str(&format!("[s{index}]"));
        }
        for (index, rung) in self.rungs.iter().enumerate() {
            graph.push_str(&format!(";[s{index}]scale={}:{}[v{index}]", rung.width, rung.height));
        }
        if self.sound {
            graph.push_str(";[0:a:0]aresample=48000:async=1:first_pts=0[sound]");
        }
        graph
    }
}

/// The nearest whole rate, halved until a demo can afford it. 23.976 becomes 24, 59.94 becomes 30.
fn frame_rate(frames_per_1000_s: u64) -> u64 {
    let mut rate = match frames_per_1000_s {
        0 => 25,
        known => (known + 500) / 1_000,
    };
    while FRAME_RATE_MAX < rate {
        rate = rate.div_ceil(2);
    }
    rate.max(FRAME_RATE_MIN)
}

/// To even numbers, as 4:2:0 wants, and not below what encoders take.
fn even(side: u64) -> u64 {
    (side.div_ceil(2) * 2).max(16)
}

/// Removes what makes two runs differ, and says what the muxer leaves unsaid: that this is VOD and
/// that every segment starts with a keyframe.
pub(super) fn finish_playlist(text: &str) -> String {
    let mut lines: Vec<&str> =
        text.lines().filter(|line| !line.starts_with("#EXT-X-PROGRAM-DATE-TIME")).collect();
    let after_version = lines.iter().position(|line| line.starts_with("#EXT-X-VERSION"));
    let at = after_version.map_or(1, |index| index + 1).min(lines.len());
    if text.contains("#EXTINF") && !text.contains("#EXT-X-PLAYLIST-TYPE") {
        lines.insert(at, "#EXT-X-PLAYLIST-TYPE:VOD");
    }
    if !text.contains("#EXT-X-INDEPENDENT-SEGMENTS") {
        lines.insert(at, "#EXT-X-INDEPENDENT-SEGMENTS");
    }
    lines.join("\n") + "\n"
}

/// Size in percent of the top rung, and bits per 1,000 pixels: small pictures need more.
const RUNGS: [(u64, u64); 3] = [(30, 180), (60, 120), (100, 95)];
const SHORT_SIDE_MAX: u64 = 720;
const FRAME_RATE_MAX: u64 = 30;
const FRAME_RATE_MIN: u64 = 10;
const RATE_MIN: u64 = 120_000;
const RATE_MAX: u64 = 4_000_000;
const KEYFRAME_EVERY_S: u64 = 2;
/// A player with a full buffer asks when one has played: the shorter, the sooner it feels a fault.
pub(super) const SEGMENT_S: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(width: u64, height: u64) -> Vec<(u64, u64)> {
        let probe = Probe { width, height, frames_per_1000_s: 25_000, duration_ms: 0, sound: true };
        Ladder::of(&probe).rungs.iter().map(|rung| (rung.width, rung.height)).collect()
    }

    #[test]
    fn rungs_keep_the_aspect_are_even_and_never_larger_than_the_film() {
        assert_eq!(sizes(1920, 1080), [(384, 216), (768, 432), (1280, 720)]);
        assert_eq!(sizes(1080, 1920), [(216, 384), (432, 768), (720, 1280)]);
        assert_eq!(sizes(640, 360), [(192, 108), (384, 216), (640, 360)]);
        assert_eq!(sizes(321, 241)[2], (322, 242), "odd sizes go up by the one pixel they must");
        assert_eq!(sizes(16, 16), [(16, 16), (16, 16), (16, 16)]);
        assert_eq!(sizes(4096, 1716)[2].1, 720);
    }

    #[test]
    fn frame_rates_become_whole_and_affordable() {
        for (given, wanted) in [
            (23_976, 24),
            (25_000, 25),
            (29_970, 30),
            (50_000, 25),
            (59_940, 30),
            (0, 25),
            (1_000, 10),
        ] {
            assert_eq!(frame_rate(given), wanted, "{given}");
        }
        assert!(frame_rate(1_000_000) <= 30);
    }

    #[test]
    fn rates_grow_with_the_rung() {
        let probe = Probe {
            width: 1280,
            height: 720,
            frames_per_1000_s: 25_000,
            duration_ms: 0,
            sound: false,
        };
        let ladder = Ladder::of(&probe);
        let rates: Vec<u64> = ladder.rungs.iter().map(|rung| rung.rate).collect();
        assert!(rates.is_sorted_by(|a, b| a < b), "{rates:?}");
        let args = ladder.output("ultrafast", Path::new("out/manifest.mpd"));
        assert!(args.contains(&"id=0,streams=v".to_owned()), "no set for sound that is not there");
    }

    #[test]
    fn finished_playlists_are_the_same_in_every_run() {
        let made = "#EXTM3U\n#EXT-X-VERSION:6\n#EXT-X-TARGETDURATION:4\n#EXTINF:4.0,\n\
            #EXT-X-PROGRAM-DATE-TIME:2026-11-21T21:19:49.000+0000\nr0.mp4\n#EXT-X-ENDLIST\n";
        let finished = "#EXTM3U\n#EXT-X-VERSION:6\n#EXT-X-INDEPENDENT-SEGMENTS\n\
            #EXT-X-PLAYLIST-TYPE:VOD\n#EXT-X-TARGETDURATION:4\n#EXTINF:4.0,\nr0.mp4\n\
            #EXT-X-ENDLIST\n";
        assert_eq!(finish_playlist(made), finished);
        assert_eq!(finish_playlist(finished), finished);
        let master = "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-STREAM-INF:BANDWIDTH=1\nmedia_0.m3u8\n";
        assert!(!finish_playlist(master).contains("PLAYLIST-TYPE"));
    }
}
