//! The kind of a player, by the little that it says of itself.

use model::cmcd::Format;

/// A kind of player: few, so that sums by them are few.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Player {
    /// Apple's own.
    AvPlayer,
    /// Android's, and before it ExoPlayer.
    Media3,
    Ffmpeg,
    Vlc,
    /// The browser or the player of a television, or of a box beside it.
    Television,
    /// A page's player (hls.js, Shaka, dash.js, video.js): they do not say which.
    Browser,
    #[default]
    Other,
}

/// What stands in `User-Agent`, the first that does.
const SIGNS: [(&str, Player); 15] = [
    ("AppleCoreMedia", Player::AvPlayer),
    ("ExoPlayer", Player::Media3),
    ("Media3", Player::Media3),
    ("Lavf", Player::Ffmpeg),
    ("VLC", Player::Vlc),
    ("Tizen", Player::Television),
    ("Web0S", Player::Television),
    ("WebOS", Player::Television),
    ("SMART-TV", Player::Television),
    ("SmartTV", Player::Television),
    ("HbbTV", Player::Television),
    ("Roku", Player::Television),
    ("CrKey", Player::Television),
    ("AFT", Player::Television),
    ("Mozilla/", Player::Browser),
];

/// Of a longer text the beginning is looked at.
const LEN_MAX: usize = 512;

/// All names that `Player::name` gives.
pub const NAMES: [&str; 9] = [
    "avplayer",
    "media3",
    "ffmpeg",
    "vlc",
    "television",
    "browser-hls",
    "browser-dash",
    "browser",
    "other",
];

impl Player {
    /// By a `User-Agent` field. Microseconds: once for each connection.
    pub fn of(user_agent: &[u8]) -> Self {
        let text = &user_agent[..user_agent.len().min(LEN_MAX)];
        let has = |sign: &str| text.windows(sign.len()).any(|part| part == sign.as_bytes());
        SIGNS.iter().find(|(sign, _)| has(sign)).map(|(_, player)| *player).unwrap_or_default()
    }

    /// Its name in sums; of a page's with what it plays, if it says that.
    pub fn name(self, format: Option<Format>) -> &'static str {
        match (self, format) {
            (Self::AvPlayer, _) => "avplayer",
            (Self::Media3, _) => "media3",
            (Self::Ffmpeg, _) => "ffmpeg",
            (Self::Vlc, _) => "vlc",
            (Self::Television, _) => "television",
            (Self::Browser, Some(Format::Hls)) => "browser-hls",
            (Self::Browser, Some(Format::Dash)) => "browser-dash",
            (Self::Browser, Some(Format::Other) | None) => "browser",
            (Self::Other, _) => "other",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn players_are_known_by_what_they_say() {
        let of = |text: &str| Player::of(text.as_bytes());
        let chromium = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) \
                        Chrome/156.0.0.0 Safari/537.36";
        assert_eq!(of(chromium), Player::Browser);
        assert_eq!(of("AppleCoreMedia/1.0.0.22F76 (iPhone; U; CPU OS 18_5)"), Player::AvPlayer);
        assert_eq!(of("app/1.0 (Linux;Android 16) AndroidXMedia3/1.11.0"), Player::Media3);
        let samsung = "Mozilla/5.0 (SMART-TV; LINUX; Tizen 8.0) AppleWebKit/537.36";
        assert_eq!(of(samsung), Player::Television);
        assert_eq!(
            (of("Lavf/59.27.100"), of(""), of("curl/8")),
            (Player::Ffmpeg, Player::Other, Player::Other)
        );
        assert_eq!(of(chromium).name(Some(Format::Dash)), "browser-dash");
        for format in [None, Some(Format::Hls), Some(Format::Dash), Some(Format::Other)] {
            let named = |(_, player): &(&str, Player)| NAMES.contains(&player.name(format));
            assert!(SIGNS.iter().all(named) && NAMES.contains(&Player::Other.name(format)));
        }
        let far = format!("{}AppleCoreMedia", " ".repeat(LEN_MAX));
        assert_eq!(of(&far), Player::Other);
    }
}
