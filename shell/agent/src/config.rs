//! Settings of `nearcast-agent`: a TOML file. Unknown keys are refused.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use model::limits::DRIVES_MAX;
use model::topology::Prefix;
use model::units::{Bytes, Nanos, UnitError};
use serde::{Deserialize, Serialize};
use settings::{ConfigError, Origins, Text, wrong};

/// The socket's path, by default.
pub(crate) const SOCKET: &str = "/run/nearcast/agent.sock";

/// The same of `nearcast-agent routes`.
pub(crate) const ROUTES_SOCKET: &str = "/run/nearcast-routes/agent.sock";

/// The settings. Doc comments are the manual page.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    /// Path of the socket; its folder must be there. Default `/run/nearcast/agent.sock`.
    #[serde(default = "socket")]
    pub(crate) socket: PathBuf,
    /// The user and the group that may use the socket, besides root. Default `nearcast`.
    #[serde(default = "nearcast")]
    pub(crate) user: String,
    #[serde(default = "nearcast")]
    pub(crate) group: String,
    pub(crate) drives: Drives,
    #[serde(default)]
    pub(crate) discard: Discard,
    pub(crate) addresses: Option<Addresses>,
    pub(crate) routes: Option<Routes>,
    #[serde(skip)]
    origins: Origins,
}

/// `[drives]`: the drives that the agent may ask and trim.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Drives {
    /// Their folders, as the appliance's configuration has them; nothing else is touched.
    pub(crate) paths: Vec<PathBuf>,
}

/// `[discard]`: when devices are told what is free: a range at a time, for a twentieth of their
/// time.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Discard {
    /// A round of all drives begins so often, `"1 h"`; `"off"` for drives mounted with `discard`,
    /// and for devices that do not want to be told. Default `"1 h"`: a deleted block waits half of
    /// it on average. Arbitrary.
    pub(crate) every: Text<Every>,
    /// How much of a drive is looked at at once, 16 MiB to 16 GiB. Default `"256 MiB"`: a device
    /// that is told so much takes some tens of milliseconds, in which it may answer nothing.
    pub(crate) range: Text<Bytes>,
}

impl Default for Discard {
    fn default() -> Self {
        Self { every: Text(Every(Some(Nanos::seconds(3600)))), range: Text(Bytes::mib(256)) }
    }
}

/// A span of time, or none, which is `"off"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Every(pub(crate) Option<Nanos>);

impl FromStr for Every {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        if text == "off" { Ok(Self(None)) } else { text.parse().map(|every| Self(Some(every))) }
    }
}

impl Display for Every {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Some(every) => every.fmt(f),
            None => f.write_str("off"),
        }
    }
}

/// `[addresses]`: how service addresses move, for `nearcast-agent addresses`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Addresses {
    /// `"keepalived"` where the appliances of the site share a segment, `"bird"` where routes lead
    /// to them.
    pub(crate) by: By,
    /// The ranges that service addresses are in: no other address is taken, whoever asks. With BIRD
    /// an address of them that is on the interface by itself (/32, /128) is taken off unless it is
    /// wanted: they must hold none of the machine's own there.
    #[serde(deserialize_with = "settings::prefixes")]
    pub(crate) within: Vec<Prefix>,
    /// The network interface that gets the addresses: of the segment with keepalived; with BIRD
    /// the loopback, default `lo`.
    #[serde(default)]
    pub(crate) interface: String,
    /// Path of the socket; its folder must be there, and keepalived's files are put beside it.
    /// Default `/run/nearcast-addresses/agent.sock`.
    #[serde(default = "addresses_socket")]
    pub(crate) socket: PathBuf,
    /// Have clients of an address that came here reset; without it, those that wait for the rest of
    /// a response wait until they give up. Default true.
    #[serde(default = "yes")]
    pub(crate) tickle: bool,
}

/// `[routes]`: what is read of the routing daemon and believed, for `nearcast-agent routes`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Routes {
    /// BIRD's control socket. Default `/run/bird/bird.ctl`.
    pub(crate) bird: PathBuf,
    /// Path of the socket; its folder must be there. Default `/run/nearcast-routes/agent.sock`.
    pub(crate) socket: PathBuf,
    /// BGP sessions over a link of their own, by their names in BIRD's configuration; `pni*` is all
    /// that begin so. The others are public peering. Where a site is embedded it makes no
    /// difference.
    pub(crate) private: Vec<String>,
    /// Special ranges that are believed all the same, and pieces of them of any length, such as an
    /// ISP's `100.64.0.0/10`.
    #[serde(deserialize_with = "settings::prefixes")]
    pub(crate) allow: Vec<Prefix>,
    /// Most routes of one session that are believed. Default 1,500,000: more than there are.
    pub(crate) session_max: u64,
    /// Shortest and longest prefix that is believed, of IPv4 and of IPv6. Default 8 and 24, 16
    /// and 48.
    pub(crate) v4_lengths: [u8; 2],
    pub(crate) v6_lengths: [u8; 2],
}

impl Default for Routes {
    fn default() -> Self {
        let filter = routes::filter::Filter::default();
        Self {
            bird: PathBuf::from("/run/bird/bird.ctl"),
            socket: PathBuf::from(ROUTES_SOCKET),
            private: Vec::new(),
            allow: Vec::new(),
            session_max: filter.session_max,
            v4_lengths: [filter.v4_len.0, filter.v4_len.1],
            v6_lengths: [filter.v6_len.0, filter.v6_len.1],
        }
    }
}

/// Who moves service addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum By {
    /// VRRP, by keepalived.
    Keepalived,
    /// Routes that BIRD announces for the addresses of an interface.
    Bird,
}

/// Whose requests are taken, and whose group may reach the socket.
#[derive(Clone, Debug)]
pub(crate) struct Who {
    pub(crate) user: String,
    pub(crate) group: String,
}

fn socket() -> PathBuf {
    PathBuf::from(SOCKET)
}

fn addresses_socket() -> PathBuf {
    PathBuf::from("/run/nearcast-addresses/agent.sock")
}

fn nearcast() -> String {
    "nearcast".to_owned()
}

fn yes() -> bool {
    true
}

impl Settings {
    pub(crate) fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::checked(settings::load(path, "", std::iter::empty())?)
    }

    fn checked((settings, origins): (Self, Origins)) -> Result<Self, ConfigError> {
        let mut settings = Self { origins, ..settings };
        let paths = &settings.drives.paths;
        if paths.is_empty() || DRIVES_MAX < paths.len() {
            let remedy = format!("give 1 to {DRIVES_MAX} folders, those of the appliance");
            return Err(wrong("drives", "paths", remedy));
        }
        if let Some(path) = paths.iter().find(|path| !path.is_absolute()) {
            return Err(wrong("drives", "paths", format!("{}: {WHOLE}", path.display())));
        }
        if !settings.socket.is_absolute() {
            return Err(wrong("", "socket", WHOLE));
        }
        settings.discard.check()?;
        if let Some(routes) = &settings.routes {
            routes.check()?;
        }
        if let Some(addresses) = &mut settings.addresses {
            addresses.check()?;
        }
        Ok(settings)
    }

    pub(crate) fn who(&self) -> Who {
        Who { user: self.user.clone(), group: self.group.clone() }
    }

    /// Each effective value with its origin, as TOML with comments.
    pub(crate) fn describe(&self) -> String {
        self.origins.describe(self)
    }
}

const WHOLE: &str = "give whole paths, from / on";

impl Discard {
    fn check(&self) -> Result<(), ConfigError> {
        let least = Nanos::seconds(60);
        if self.every.0.0.is_some_and(|every| every < least) {
            return Err(wrong("discard", "every", format!("use {least} or more, or \"off\"")));
        }
        let [least, most] = [Bytes::mib(16), Bytes::mib(16 * 1024)];
        if !(least..=most).contains(&self.range.0) {
            return Err(wrong("discard", "range", format!("use {least} to {most}")));
        }
        Ok(())
    }
}

impl Routes {
    fn check(&self) -> Result<(), ConfigError> {
        let wrong = |key, message: String| Err(wrong("routes", key, message));
        for (key, path) in [("bird", &self.bird), ("socket", &self.socket)] {
            if !path.is_absolute() {
                return wrong(key, WHOLE.to_owned());
            }
        }
        let lengths = [("v4_lengths", self.v4_lengths, 32), ("v6_lengths", self.v6_lengths, 128)];
        for (key, [least, most], bits) in lengths {
            if least == 0 || most < least || bits < most {
                return wrong(key, format!("give the shortest and the longest, of 1 to {bits}"));
            }
        }
        if !(1..=ROUTES_MAX).contains(&self.session_max) {
            return wrong("session_max", format!("use 1 to {ROUTES_MAX}"));
        }
        Ok(())
    }

    pub(crate) fn filter(&self) -> routes::filter::Filter {
        let [v4_len, v6_len] =
            [self.v4_lengths, self.v6_lengths].map(|[least, most]| (least, most));
        let (allow, session_max) = (self.allow.clone(), self.session_max);
        routes::filter::Filter { v4_len, v6_len, allow, session_max, ..Default::default() }
    }

    /// How a session is joined to its neighbour, by its name.
    pub(crate) fn peering(&self, session: &str) -> routes::Peering {
        let is_it = |pattern: &String| match pattern.strip_suffix('*') {
            Some(beginning) => session.starts_with(beginning),
            None => pattern == session,
        };
        match self.private.iter().any(is_it) {
            true => routes::Peering::Private,
            false => routes::Peering::Public,
        }
    }
}

/// What control takes of one site.
const ROUTES_MAX: u64 = 2_000_000;

impl Addresses {
    /// Fills in the loopback for BIRD.
    fn check(&mut self) -> Result<(), ConfigError> {
        let wrong = |key, message: String| Err(wrong("addresses", key, message));
        if self.interface.is_empty() && self.by == By::Bird {
            "lo".clone_into(&mut self.interface);
        }
        let name = &self.interface;
        if name.is_empty() {
            return wrong("interface", "name the one that the addresses are on".to_owned());
        }
        let is_good = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if INTERFACE_LEN_MAX < name.len() || !name.chars().all(is_good) {
            return wrong("interface", format!("\"{name}\" is no name of a network interface"));
        }
        if !self.socket.is_absolute() {
            return wrong("socket", WHOLE.to_owned());
        }
        Ok(())
    }
}

/// Linux's IFNAMSIZ, without the zero at its end.
const INTERFACE_LEN_MAX: usize = 15;

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Settings, ConfigError> {
        Settings::checked(settings::parse(text, "a.toml", "", std::iter::empty())?)
    }

    #[test]
    fn drives_are_enough_and_mistakes_are_named() {
        let settings = parse("[drives]\npaths = [\"/d\"]\n").unwrap();
        let words: Vec<String> =
            settings.describe().split_whitespace().map(str::to_owned).collect();
        let text = words.join(" ");
        assert!(text.contains("socket = \"/run/nearcast/agent.sock\" # default"), "{text}");
        assert!(text.contains("paths = [\"/d\"] # a.toml"), "{text}");
        assert!(text.contains("every = \"1 h\" # default range = \"256 MiB\" # default"), "{text}");
        let error = |text: &str| parse(text).unwrap_err().to_string();
        assert!(error("[drives]\npaths = []").contains("give 1 to"));
        assert!(error("[drives]\npaths = [\"d\"]").contains("whole paths"));
        assert!(error("[drives]\npath = [\"/d\"]").contains("path"));
        let discard = |text: &str| error(&format!("[drives]\npaths = [\"/d\"]\n[discard]\n{text}"));
        assert!(discard("every = \"1 s\"").contains("use 1 min or more"));
        assert!(discard("range = \"1 MiB\"").contains("use 16 MiB to 16 GiB"));
        assert!(discard("each = \"1 h\"").contains("each"));
        let addresses =
            |text: &str| error(&format!("[drives]\npaths = [\"/d\"]\n[addresses]\n{text}"));
        assert!(
            addresses("by = \"keepalived\"\nwithin = []")
                .contains("[addresses] interface: name the one")
        );
        assert!(addresses("by = \"ospf\"").contains("keepalived"), "says what there is");
        assert!(
            addresses("by = \"bird\"\nwithin = []\ninterface = \"a b\"").contains("no name of")
        );
        let bird =
            "[drives]\npaths = [\"/d\"]\n[addresses]\nby = \"bird\"\nwithin = [\"192.0.2.0/24\"]\n";
        let text = parse(bird).unwrap().describe();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            text.contains("within = [\"192.0.2.0/24\"] # a.toml interface = \"lo\" # d"),
            "{text}"
        );
        assert!(addresses("by = \"bird\"\nwithin = [\"lo\"]").contains("is no range"));
        assert!(addresses("by = \"bird\"").contains("within"));
        let off = "[drives]\npaths = [\"/d\"]\n[discard]\nevery = \"off\"\n";
        let settings = parse(off).unwrap();
        assert_eq!(
            (settings.discard.every.0, settings.discard.range.0),
            (Every(None), Bytes::mib(256))
        );
        let routes = |text: &str| parse(&format!("[drives]\npaths = [\"/d\"]\n[routes]\n{text}"));
        let found = routes("private = [\"pni*\", \"isp1\"]\n").unwrap().routes.unwrap();
        let peering = |name| found.peering(name) == ::routes::Peering::Private;
        assert!(peering("pni7") && peering("isp1") && !peering("isp11") && !peering("rs1"));
        assert_eq!(found.filter(), ::routes::filter::Filter::default());
        let error_of = |text: &str| routes(text).unwrap_err().to_string();
        assert!(
            error_of("v4_lengths = [24, 8]").contains("[routes] v4_lengths: give the shortest")
        );
        assert!(error_of("v6_lengths = [0, 48]").contains("1 to 128"));
        assert!(error_of("bird = \"bird.ctl\"").contains("whole paths"));
        assert!(error_of("session_max = 0").contains("use 1 to 2000000"));
        assert!(error("sockt = \"/s\"\n[drives]\npaths = [\"/d\"]").contains("sockt"));
    }
}
