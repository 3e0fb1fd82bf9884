//! Settings of `nearcast-agent`: a TOML file. Unknown keys are refused.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use model::limits::DRIVES_MAX;
use model::topology::Prefix;
use model::units::{Bytes, Nanos};
use serde::{Deserialize, Deserializer};

/// Where it listens if nothing else is said.
pub(crate) const SOCKET: &str = "/run/nearcast/agent.sock";
/// The user and the group that may use the socket, by default.
const USER: &str = "nearcast";

/// The settings. Doc comments are the manual page.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    /// Path of the socket; its folder must be there. Default `/run/nearcast/agent.sock`.
    #[serde(default = "default_socket")]
    pub(crate) socket: PathBuf,
    /// Who may ask, besides root. Default `nearcast`.
    #[serde(default = "default_user")]
    pub(crate) user: String,
    /// The group that may reach the socket. Default `nearcast`.
    #[serde(default = "default_user")]
    pub(crate) group: String,
    pub(crate) drives: Drives,
    /// When their devices are told what is free.
    #[serde(default)]
    pub(crate) discard: Discard,
    /// Whether and how service addresses move between the appliances of a site.
    pub(crate) addresses: Option<Addresses>,
    #[serde(skip)]
    given: Vec<String>,
    #[serde(skip)]
    source: String,
}

/// `[drives]`: the drives that the agent may ask and trim.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Drives {
    /// Their folders, as the appliance's configuration has them; nothing else is touched.
    pub(crate) paths: Vec<PathBuf>,
}

/// When devices are told what is free: a range at a time, for a twentieth of their time.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Discard {
    /// A round of all drives begins so often, `"1 h"`; `"off"` for drives mounted with `discard`,
    /// and for devices that do not want to be told. Default `"1 h"`.
    #[serde(deserialize_with = "every")]
    pub(crate) every: Option<Nanos>,
    /// How much of a drive is looked at at once, 16 MiB to 16 GiB. Default `"256 MiB"`.
    #[serde(deserialize_with = "range")]
    pub(crate) range: Bytes,
}

/// `[addresses]`: how service addresses move, for `nearcast-agent addresses`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Addresses {
    /// `"keepalived"` where the appliances of the site share a segment, `"bird"` where routes lead
    /// to them.
    pub(crate) by: By,
    /// The ranges that service addresses are in: no other address is taken, whoever asks.
    #[serde(deserialize_with = "prefixes")]
    pub(crate) within: Vec<Prefix>,
    /// The network interface that gets the addresses: of the segment with keepalived; with BIRD
    /// the loopback, default `lo`.
    interface: Option<String>,
    /// Path of the socket; its folder must be there, and keepalived's files are put beside it.
    /// Default `/run/nearcast-addresses/agent.sock`.
    #[serde(default = "default_addresses_socket")]
    pub(crate) socket: PathBuf,
    /// keepalived: the number of the first address's virtual router; each further address has the
    /// next. No other routers of the segment may have them. 1 to 255, default 51.
    #[serde(default = "default_first_router")]
    pub(crate) first_router: u8,
    /// Have clients of an address that came here reset; without it, those that wait for the rest of
    /// a response wait until they give up. Default true.
    #[serde(default = "default_tickle")]
    pub(crate) tickle: bool,
}

fn prefixes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Prefix>, D::Error> {
    let prefix = |text: &String| {
        let wrong =
            || format!("within: \"{text}\" is no range: write for example \"192.0.2.0/24\"");
        text.parse().map_err(|_| serde::de::Error::custom(wrong()))
    };
    Vec::<String>::deserialize(deserializer)?.iter().map(prefix).collect()
}

/// Who moves service addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum By {
    /// VRRP, by keepalived.
    Keepalived,
    /// Routes that BIRD announces for the addresses of an interface.
    Bird,
}

impl Addresses {
    pub(crate) fn interface(&self) -> &str {
        self.interface.as_deref().unwrap_or("lo")
    }
}

/// Whose requests are taken, and whose group may reach the socket.
#[derive(Clone, Debug)]
pub(crate) struct Who {
    pub(crate) user: String,
    pub(crate) group: String,
}

/// Where `nearcast-agent addresses` listens if nothing else is said.
const ADDRESSES_SOCKET: &str = "/run/nearcast-addresses/agent.sock";

fn default_addresses_socket() -> PathBuf {
    PathBuf::from(ADDRESSES_SOCKET)
}

fn default_tickle() -> bool {
    true
}

fn default_first_router() -> u8 {
    51
}

/// A device that is told so much takes some tens of milliseconds, in which it may answer nothing.
const RANGE: Bytes = Bytes::mib(256);
const RANGE_MIN: Bytes = Bytes::mib(16);
const RANGE_MAX: Bytes = Bytes::mib(16 * 1024);
/// A deleted block waits half of it on average; arbitrary.
const EVERY: Nanos = Nanos::seconds(3600);
const EVERY_MIN: Nanos = Nanos::seconds(60);

impl Default for Discard {
    fn default() -> Self {
        Self { every: Some(EVERY), range: RANGE }
    }
}

fn every<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Nanos>, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text == "off" {
        return Ok(None);
    }
    let every: Nanos = text.parse().map_err(serde::de::Error::custom)?;
    if every < EVERY_MIN {
        return Err(serde::de::Error::custom(format!(
            "every: use {EVERY_MIN} or more, or \"off\""
        )));
    }
    Ok(Some(every))
}

fn range<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
    let text = String::deserialize(deserializer)?;
    let range: Bytes = text.parse().map_err(serde::de::Error::custom)?;
    if !(RANGE_MIN..=RANGE_MAX).contains(&range) {
        let text = format!("range: use {RANGE_MIN} to {RANGE_MAX}");
        return Err(serde::de::Error::custom(text));
    }
    Ok(range)
}

fn default_socket() -> PathBuf {
    PathBuf::from(SOCKET)
}

fn default_user() -> String {
    USER.to_owned()
}

impl Settings {
    pub(crate) fn load(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the configuration {}", path.display()))?;
        Self::parse(&text, &path.display().to_string())
    }

    fn parse(text: &str, source: &str) -> anyhow::Result<Self> {
        let mut settings: Self = toml::from_str(text).context(source.to_owned())?;
        let table: toml::Table = toml::from_str(text).context(source.to_owned())?;
        let paths = &settings.drives.paths;
        ensure!(
            !paths.is_empty() && paths.len() <= DRIVES_MAX,
            "[drives] paths: give 1 to {DRIVES_MAX} folders, those of the appliance"
        );
        let relative = paths.iter().chain([&settings.socket]).find(|path| !path.is_absolute());
        if let Some(path) = relative {
            anyhow::bail!("{}: give whole paths, from / on", path.display());
        }
        if let Some(addresses) = &settings.addresses {
            ensure!(
                addresses.by == By::Bird || addresses.interface.is_some(),
                "[addresses] interface: name the network interface that the addresses are on"
            );
            let name = addresses.interface();
            let is_name = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            ensure!(
                (1..=INTERFACE_LEN_MAX).contains(&name.len()) && name.chars().all(is_name),
                "[addresses] interface: \"{name}\" is no name of a network interface"
            );
            ensure!(addresses.socket.is_absolute(), "[addresses] socket: give a whole path");
            ensure!(addresses.first_router != 0, "[addresses] first_router: use 1 to 255");
        }
        settings.given = table.keys().cloned().collect();
        if let Some(discard) = table.get("discard").and_then(toml::Value::as_table) {
            settings.given.extend(discard.keys().cloned());
        }
        source.clone_into(&mut settings.source);
        Ok(settings)
    }

    pub(crate) fn who(&self) -> Who {
        Who { user: self.user.clone(), group: self.group.clone() }
    }

    /// Each effective value with its origin, as TOML with comments.
    pub(crate) fn describe(&self) -> String {
        let paths: Vec<_> = self.drives.paths.iter().map(|path| quoted(path)).collect();
        let row = |key: &str, value: String| {
            let given = self.given.iter().any(|name| name == key);
            let origin = if given { self.source.as_str() } else { "default" };
            format!("{:<40} # {origin}\n", format!("{key} = {value}"))
        };
        let mut out = row("socket", quoted(&self.socket));
        out.push_str(&row("user", format!("\"{}\"", self.user)));
        out.push_str(&row("group", format!("\"{}\"", self.group)));
        let paths = format!("paths = [{}]", paths.join(", "));
        out.push_str(&format!("\n[drives]\n{paths:<40} # {}\n", self.source));
        let every = self.discard.every.map_or_else(|| "off".to_owned(), |every| every.to_string());
        out.push_str("\n[discard]\n");
        out.push_str(&row("every", format!("\"{every}\"")));
        out.push_str(&row("range", format!("\"{}\"", self.discard.range)));
        if let Some(addresses) = &self.addresses {
            let row = |key: &str, value: String| format!("{key} = {value}\n");
            out.push_str("\n[addresses]\n");
            let by = format!("{:?}", addresses.by).to_lowercase();
            out.push_str(&row("by", format!("\"{by}\"")));
            let within: Vec<String> =
                addresses.within.iter().map(|of| format!("\"{of}\"")).collect();
            out.push_str(&row("within", format!("[{}]", within.join(", "))));
            out.push_str(&row("interface", format!("\"{}\"", addresses.interface())));
            out.push_str(&row("socket", quoted(&addresses.socket)));
            out.push_str(&row("first_router", addresses.first_router.to_string()));
            out.push_str(&row("tickle", addresses.tickle.to_string()));
        }
        out
    }
}

fn quoted(path: &Path) -> String {
    format!("\"{}\"", path.display())
}

/// Linux's IFNAMSIZ, without the zero at its end.
const INTERFACE_LEN_MAX: usize = 15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drives_are_enough_and_mistakes_are_named() {
        let settings = Settings::parse("[drives]\npaths = [\"/d\"]\n", "a.toml").unwrap();
        let words: Vec<String> =
            settings.describe().split_whitespace().map(str::to_owned).collect();
        let text = words.join(" ");
        assert!(text.contains("socket = \"/run/nearcast/agent.sock\" # default"), "{text}");
        assert!(text.contains("paths = [\"/d\"] # a.toml"), "{text}");
        assert!(text.contains("every = \"1 h\" # default range = \"256 MiB\" # default"), "{text}");
        let error = |text: &str| format!("{:#}", Settings::parse(text, "a.toml").unwrap_err());
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
            addresses("by = \"keepalived\"\nwithin = []").contains("name the network interface")
        );
        assert!(addresses("by = \"ospf\"").contains("keepalived"), "says what there is");
        assert!(
            addresses("by = \"bird\"\nwithin = []\ninterface = \"a b\"").contains("no name of")
        );
        assert!(addresses("by = \"bird\"\nwithin = []\nfirst_router = 0").contains("1 to 255"));
        let bird =
            "[drives]\npaths = [\"/d\"]\n[addresses]\nby = \"bird\"\nwithin = [\"192.0.2.0/24\"]\n";
        let text = Settings::parse(bird, "a.toml").unwrap().describe();
        assert!(text.contains("within = [\"192.0.2.0/24\"]\ninterface = \"lo\""), "{text}");
        assert!(addresses("by = \"bird\"\nwithin = [\"lo\"]").contains("is no range"));
        assert!(addresses("by = \"bird\"").contains("within"));
        let off = "[drives]\npaths = [\"/d\"]\n[discard]\nevery = \"off\"\n";
        let settings = Settings::parse(off, "a.toml").unwrap();
        assert_eq!((settings.discard.every, settings.discard.range), (None, Bytes::mib(256)));
        assert!(error("sockt = \"/s\"\n[drives]\npaths = [\"/d\"]").contains("sockt"));
    }
}
