//! Configuration of `nearcast-appliance`: a TOML file, then the environment, then flags.
//!
//! A setting `key` of section `[section]` is `APPLIANCE_SECTION_KEY` in the environment. Unknown
//! keys are refused, values carry units, and a mistake is answered with what would be right.

pub(crate) mod check;
mod file;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use model::id::ApplianceId;
use model::units::Bytes;

use crate::filling::peer::PeerConfig;
use crate::membership::control_link::Front;
use crate::process::confine::Sandbox;
use crate::process::storage::{ControlConfig, FillConfig};
use crate::serving::ablation::Ablation;
use crate::serving::pacing::Pacing;
pub use crate::setting::ConfigError;
use crate::setting::word;
use crate::storage::gate::Writes;
use crate::storage::tiering::Tiering;
use check::check;
use file::File;
pub use file::{Drives, Serve};

/// The prefix of every setting's name in the environment.
const PREFIX: &str = "APPLIANCE_";

/// Everything the appliance is told, checked.
#[derive(Clone, Debug)]
pub struct Settings {
    pub name: ApplianceId,
    /// Where the last manifest is kept.
    pub state: PathBuf,
    pub serve: Serve,
    pub base_url: String,
    /// The same without TLS, where it listens so.
    pub plain_url: Option<String>,
    pub workers: usize,
    /// How TCP finds its rate, for each of `listen`, by the kernel's names; empty for the kernel's
    /// default.
    pub congestion: Vec<String>,
    /// Bytes in a connection's socket that were never sent, beyond which it takes no more; none
    /// for as many as the kernel likes.
    pub unsent_max: Option<Bytes>,
    pub aead: tls::Wanted,
    /// How responses are paced; the buffers are those of all workers together.
    pub pacing: Pacing,
    pub drives: Drives,
    pub writes: Writes,
    /// What the drives are for, and what may move between them.
    pub tiering: Tiering,
    /// Memory of all workers together for the blocks that viewers want most; 0 for none. Unless
    /// it is said, less is taken where less may be locked.
    pub hot_memory: Option<Bytes>,
    pub control: ControlConfig,
    /// Whether and how siblings may fetch from here.
    pub peer: Option<PeerConfig>,
    pub fill: FillConfig,
    /// Prometheus listener.
    pub metrics_listen: Option<SocketAddr>,
    /// Who to become when started as root.
    pub user: Option<String>,
    /// How much of a sandbox there must be.
    pub sandbox: Sandbox,
    /// Where `nearcast-agent` listens, if it is to be asked.
    pub agent_socket: Option<PathBuf>,
    /// The socket of `nearcast-agent addresses`, where service addresses move.
    pub agent_addresses: Option<PathBuf>,
    /// Room for the request log, in the state directory; 0 for none.
    pub request_log_max: Bytes,
    /// What is switched off for a measurement; nothing in an appliance that serves viewers.
    pub ablation: Ablation,
    /// Where each given setting came from, by `section.key`.
    pub origins: BTreeMap<String, String>,
}

impl Settings {
    /// Reads the file at `path`, then the environment.
    pub fn load(
        path: &Path,
        environment: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError::Read { path: path.to_owned(), error })?;
        Self::parse(&text, &path.display().to_string(), environment)
    }

    /// From the file's text.
    pub fn parse(
        text: &str,
        name: &str,
        environment: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let form = |source_name: &str, message: String| {
            let source_name = source_name.to_owned();
            let message = message.replace("expected usize", "a whole number is wanted");
            ConfigError::Form { source_name, message }
        };
        // Parsed into the shape first, so that a mistake is shown with its line.
        toml::from_str::<File>(text).map_err(|error| form(name, error.to_string()))?;
        let mut table: toml::Table =
            toml::from_str(text).map_err(|error| form(name, error.to_string()))?;
        let mut origins = origins_of(&table, name);
        for (variable, value) in environment {
            let Some(setting) = variable.strip_prefix(PREFIX) else { continue };
            let key = overlay(&mut table, setting, &value);
            let checked: Result<File, _> = table.clone().try_into();
            checked.map_err(|error| form(&variable, error.to_string()))?;
            origins.insert(key, variable);
        }
        let file: File =
            table.try_into().map_err(|error: toml::de::Error| form(name, error.to_string()))?;
        check(file, origins)
    }

    /// Each effective value with its origin, as TOML with comments.
    pub fn describe(&self) -> String {
        let list = |values: &mut dyn Iterator<Item = String>| {
            format!("[{}]", values.collect::<Vec<_>>().join(", "))
        };
        let text = |value: &dyn std::fmt::Display| format!("\"{value}\"");
        let none = || "none".to_owned();
        let front = |of: &Front| format!("{{ name = \"{}\", url = \"{}\" }}", of.name, of.address);
        let peer = |of: &dyn Fn(&PeerConfig) -> String| self.peer.as_ref().map_or_else(none, of);
        let mut rows: Vec<(&str, &str, String)> = vec![
            ("", "name", text(&self.name)),
            ("", "state", text(&self.state.display())),
            ("serve", "listen", list(&mut self.serve.listen.iter().map(|at| text(at)))),
            ("serve", "plain_listen", list(&mut self.serve.plain_listen.iter().map(|at| text(at)))),
            ("serve", "base_url", text(&self.base_url)),
            ("serve", "certificate", text(&self.serve.certificate.display())),
            ("serve", "key", text(&self.serve.key.display())),
            ("serve", "workers", self.workers.to_string()),
            ("serve", "cpus", list(&mut self.serve.cpus.iter().map(ToString::to_string))),
            ("serve", "connections_max", self.serve.connections_max.to_string()),
            ("serve", "handshakes_max", self.serve.handshakes_max.to_string()),
            ("serve", "transfers_max", self.serve.transfers_max.to_string()),
            ("serve", "head_max", text(&self.serve.head_max.0)),
            ("serve", "request_timeout", text(&self.serve.request_timeout.0)),
            ("serve", "idle_timeout", text(&self.serve.idle_timeout.0)),
            ("serve", "progress_timeout", text(&self.serve.progress_timeout.0)),
            ("serve", "reset_after", text(&self.serve.reset_after.0)),
            ("serve", "stop_within", text(&self.serve.stop_within.0)),
            ("serve", "token_leeway", text(&self.serve.token_leeway.0)),
            ("serve", "verify_every", self.serve.verify_every.to_string()),
            ("serve", "congestion", list(&mut self.congestion.iter().map(|name| text(name)))),
            ("serve", "unsent_max", text(&self.unsent_max.unwrap_or_default())),
            (
                "drives",
                "paths",
                list(&mut self.drives.paths.iter().map(|path| text(&path.display()))),
            ),
            ("drives", "depth", self.drives.depth.to_string()),
            ("drives", "hang_after", text(&self.drives.hang_after.0)),
            ("drives", "small_objects_max", text(&self.drives.small_objects_max.0)),
            ("drives", "scrub_rate", text(&self.drives.scrub_rate.0)),
            ("hot", "memory", text(&self.hot_memory.unwrap_or(check::HOT_MEMORY))),
            ("control", "url", text(&self.control.writer)),
            ("control", "fronts", list(&mut self.control.fronts.iter().map(front))),
            ("control", "report_interval", text(&self.control.report_interval)),
            ("peer", "listen", peer(&|p| list(&mut p.listen.iter().map(|at| text(at))))),
            ("peer", "address", peer(&|p| p.address.as_ref().map_or_else(none, |at| text(at)))),
            ("peer", "rate_max", peer(&|p| p.rate_max.map_or_else(none, |rate| text(&rate)))),
            ("peer", "connections_max", peer(&|p| p.connections_max.to_string())),
            ("fill", "rate_max", self.fill.rate_max.map_or_else(none, |rate| text(&rate))),
            ("fill", "trust", path_or_none(self.fill.trust.as_deref())),
            ("fill", "concurrency", self.fill.concurrency.to_string()),
            ("fill", "unit", text(&self.fill.unit_len.unwrap_or_default())),
            ("metrics", "listen", self.metrics_listen.map_or_else(none, |at| text(&at))),
            ("process", "user", self.user.as_ref().map_or_else(none, |user| text(user))),
            ("process", "sandbox", word(&self.sandbox)),
            ("agent", "socket", path_or_none(self.agent_socket.as_deref())),
            ("agent", "addresses", path_or_none(self.agent_addresses.as_deref())),
            ("requests", "log_max", text(&self.request_log_max)),
        ];
        let at = rows.iter().position(|row| row.0 == "hot").unwrap_or(rows.len());
        rows.splice(at..at, self.writes.rows().into_iter().chain(self.tiering.rows()));
        rows.extend(self.pacing.rows().into_iter().chain([("tls", "aead", text(&self.aead))]));
        let (mut out, mut section) = (String::new(), "");
        for (in_section, key, value) in rows.into_iter().chain(self.ablation.rows()) {
            if in_section != section {
                section = in_section;
                out.push_str(&format!("\n[{section}]\n"));
            }
            let full = if section.is_empty() { key.to_owned() } else { format!("{section}.{key}") };
            let origin = self.origins.get(&full).map_or("default", String::as_str);
            out.push_str(&format!("{:<40} # {origin}\n", format!("{key} = {value}")));
        }
        out
    }
}

fn path_or_none(path: Option<&Path>) -> String {
    path.map_or_else(|| "none".to_owned(), |path| format!("\"{}\"", path.display()))
}

/// Which settings a file gives.
fn origins_of(table: &toml::Table, name: &str) -> BTreeMap<String, String> {
    let mut origins = BTreeMap::new();
    for (key, value) in table {
        match value.as_table() {
            Some(section) => {
                let keys = section.keys().map(|inner| format!("{key}.{inner}"));
                origins.extend(keys.map(|full| (full, name.to_owned())));
            }
            None => {
                origins.insert(key.clone(), name.to_owned());
            }
        }
    }
    origins
}

/// Puts `SECTION_KEY=value` into the table. A value is TOML where it parses as such, else text.
fn overlay(table: &mut toml::Table, setting: &str, value: &str) -> String {
    const SECTIONS: [&str; 11] = [
        "serve", "tls", "pacing", "drives", "hot", "control", "peer", "fill", "metrics", "process",
        "agent",
    ];
    let setting = setting.to_ascii_lowercase();
    let parsed = toml::from_str::<toml::Table>(&format!("v = {value}"))
        .ok()
        .and_then(|mut table| table.remove("v"))
        .unwrap_or_else(|| toml::Value::String(value.to_owned()));
    let parts = setting.split_once('_').filter(|(section, _)| SECTIONS.contains(section));
    let Some((section, key)) = parts else {
        table.insert(setting.clone(), parsed);
        return setting;
    };
    let empty = || toml::Value::Table(toml::Table::new());
    let entry = table.entry(section).or_insert_with(empty);
    if let Some(inner) = entry.as_table_mut() {
        inner.insert(key.to_owned(), parsed);
    }
    format!("{section}.{key}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::units::Nanos;

    use crate::serving::ablation::Sending;

    const GOOD: &str = "name = \"a1\"\nstate = \"/s\"\n[serve]\nlisten = [\"127.0.0.2:8443\"]\n\
        certificate = \"c\"\nkey = \"k\"\nworkers = 2\n[drives]\npaths = [\"/d\"]\n\
        [control]\nurl = \"https://127.0.0.1:8081/\"\n";

    fn parse(text: &str, environment: &[(&str, &str)]) -> Result<Settings, ConfigError> {
        let pairs = environment.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        Settings::parse(text, "a.toml", pairs)
    }

    fn error(text: &str, environment: &[(&str, &str)]) -> String {
        parse(text, environment).unwrap_err().to_string()
    }

    #[test]
    fn a_short_file_is_enough() {
        let settings = parse(GOOD, &[("HOME", "/root")]).unwrap();
        assert_eq!(settings.base_url, "https://127.0.0.2:8443");
        assert_eq!(settings.control.writer.as_str(), "127.0.0.1:8081");
        assert_eq!(settings.control.report_interval, Nanos::seconds(1));
        let text = settings.describe();
        assert!(text.contains("workers = 2                              # a.toml"), "{text}");
        assert!(text.contains("idle_timeout = \"1 min\"                   # default"), "{text}");
    }

    #[test]
    fn what_is_switched_off_for_a_measurement_is_checked_and_shown() {
        let with = |lines: &str| format!("{GOOD}[ablation]\n{lines}\n");
        assert!(!parse(GOOD, &[]).unwrap().describe().contains("ablation"));
        let text = with("sending = \"ring-batched\"\nrecord_len = \"4 KiB\"\ndirect_reads = false");
        let settings = parse(&text, &[]).unwrap();
        let sending = Sending::RingBatched;
        let wanted = Ablation { direct_reads: false, sending, record_len: 4096 };
        assert_eq!(settings.ablation, wanted);
        assert!(settings.describe().contains("record_len = \"4 KiB\""), "{}", settings.describe());
        let long = error(&with("record_len = \"17 KiB\""), &[]);
        assert!(long.contains("between 1024 and 16384"), "{long}");
        assert!(error(&with("sending = \"never\""), &[]).contains("ring-batched"));
    }

    #[test]
    fn what_waits_in_sockets_is_bounded_unless_it_is_said() {
        let with =
            |value: &str| GOOD.replace("workers", &format!("unsent_max = \"{value}\"\nworkers"));
        let text = parse(GOOD, &[]).unwrap().describe();
        assert!(text.contains("unsent_max = \"256 KiB\" "), "{text}");
        let settings = parse(&with("64 KiB"), &[]).unwrap();
        assert_eq!(settings.unsent_max, Some(Bytes::kib(64)));
        let settings = parse(&with("64 KiB"), &[("APPLIANCE_SERVE_UNSENT_MAX", "0 B")]).unwrap();
        assert_eq!(settings.unsent_max, None);
        assert!(settings.describe().contains("unsent_max = \"0 B\""));
        for bad in ["15 KiB", "2 GiB"] {
            let text = error(&with(bad), &[]);
            let remedy = format!("{bad} is out of range: give 16 KiB to 1 GiB, or 0 B for");
            assert!(text.contains("[serve] unsent_max") && text.contains(&remedy), "{text}");
        }
    }

    #[test]
    fn what_seals_is_measured_unless_it_is_said() {
        let with = |value: &str| format!("{GOOD}[tls]\naead = \"{value}\"\n");
        let text = parse(GOOD, &[]).unwrap().describe();
        assert!(text.contains("[tls]\naead = \"auto\" "), "{text}");
        let settings = parse(&with("ring"), &[]).unwrap();
        assert_eq!(settings.aead, tls::Wanted::Only(tls::Kernel::Ring));
        assert!(settings.describe().contains("aead = \"ring\""));
        let settings = parse(&with("ring"), &[("APPLIANCE_TLS_AEAD", "aws-lc")]).unwrap();
        assert_eq!(settings.aead, tls::Wanted::Only(tls::Kernel::AwsLc));
        let unknown = error(&with("openssl"), &[]);
        assert!(unknown.contains("[tls] aead: \"openssl\""), "{unknown}");
        assert!(unknown.contains("\"auto\"") && unknown.contains("\"ring\""), "{unknown}");
        assert!(error(&format!("{GOOD}[tls]\nead = \"ring\"\n"), &[]).contains("unknown field"));
    }

    #[test]
    fn small_objects_share_files_unless_it_is_said() {
        let with = |lines: &str| parse(&format!("{GOOD}[fill]\n{lines}\n"), &[]);
        let unit = |lines: &str| with(lines).unwrap().fill.unit_len;
        assert_eq!(unit(""), Some(Bytes::mib(64)));
        assert_eq!(unit("unit = \"0 B\""), None);
        assert_eq!(unit("unit = \"1 MiB\""), Some(Bytes::mib(1)));
        let text = with("unit = \"0 B\"").unwrap().describe();
        assert!(text.contains("unit = \"0 B\""), "{text}");
        let error = error(&format!("{GOOD}[fill]\nunit = \"255 KiB\"\n"), &[]);
        assert!(error.contains("256 KiB to 1 GiB"), "{error}");
    }

    #[test]
    fn what_holds_writes_back_is_said_per_drive_or_for_all() {
        let with = |lines: &str| GOOD.replace("[control]", &format!("{lines}\n[control]"));
        let text = parse(GOOD, &[]).unwrap().describe();
        assert!(text.contains("policy = \"governor\"") && text.contains("read_targets = []"));
        let lines = "policy = \"static\"\nread_targets = [\"3 ms\"]\nwrite_rate = \"1 Gb/s\"";
        let settings = parse(&with(lines), &[]).unwrap();
        assert_eq!(settings.writes.targets, [Nanos::millis(3)]);
        assert!(settings.describe().contains("write_rate = \"1 Gb/s\""));
        let two = error(&with("read_targets = [\"3 ms\", \"5 ms\"]"), &[]);
        assert!(two.contains("2 targets for 1 drives"), "{two}");
        assert!(error(&with("read_targets = [\"5 s\"]"), &[]).contains("\"1 s\""));
        assert!(error(&with("write_rate = \"1 Gb/s\""), &[]).contains("static"));
        assert!(error(&with("write_floor = \"1 kb/s\""), &[]).contains("1 Mb/s"));
        assert!(error(&with("policy = \"fast\""), &[]).contains("governor"));
    }

    #[test]
    fn what_drives_are_for_is_said_of_each_or_of_none() {
        let with = |lines: &str| GOOD.replace("[control]", &format!("{lines}\n[control]"));
        let text = parse(GOOD, &[]).unwrap().describe();
        assert!(text.contains("classes = []") && text.contains("\"256 GiB\""), "{text}");
        let two = "classes = [\"fast\", \"bulk\"]";
        let count = error(&with(two), &[]);
        assert!(count.contains("2 classes for 1 drives: give one each"), "{count}");
        let good = with(two).replace("[\"/d\"]", "[\"/d\", \"/e\"]");
        assert!(parse(&good, &[]).unwrap().describe().contains(two));
        assert!(error(&with("classes = [\"hot\"]"), &[]).contains("`fast` or `bulk`"));
        assert!(error(&with("move_daily_max = \"1 Gb/s\""), &[]).contains("needs a unit"));
        assert!(error(&with("move_every = \"1 ms\""), &[]).contains("\"1 s\""));
        let blind =
            with("move_daily_max = \"1 GB\"").replace("workers", "verify_every = 0\nworkers");
        assert!(error(&blind, &[]).contains("[serve] verify_every"));
        let off = blind.replace("1 GB", "0 B");
        assert_eq!(parse(&off, &[]).unwrap().tiering.daily_max, Bytes::ZERO);
    }

    #[test]
    fn the_environment_wins_over_the_file_and_is_named() {
        let environment =
            [("APPLIANCE_SERVE_WORKERS", "3"), ("APPLIANCE_CONTROL_REPORT_INTERVAL", "500 ms")];
        let settings = parse(GOOD, &environment).unwrap();
        assert_eq!((settings.workers, settings.control.report_interval), (3, Nanos::millis(500)));
        assert!(settings.describe().contains("# APPLIANCE_SERVE_WORKERS"));
    }

    #[test]
    fn mistakes_are_named_with_their_place_and_what_would_be_right() {
        let unknown = error(&GOOD.replace("workers", "wrokers"), &[]);
        assert!(unknown.contains("wrokers") && unknown.contains("line 7"), "{unknown}");
        let unit = error(&format!("{GOOD}report_interval = \"5\"\n"), &[]);
        assert!(unit.contains("needs a unit") && unit.contains("250 ms"), "{unit}");
        let open =
            error(&GOOD.replace("[drives]", "plain_listen = [\"0.0.0.0:80\"]\n[drives]"), &[]);
        assert!(open.contains("loopback"), "{open}");
        let variable = error(GOOD, &[("APPLIANCE_SERVE_WRONG", "1")]);
        assert!(variable.contains("APPLIANCE_SERVE_WRONG"), "{variable}");
        let cpus = error(GOOD, &[("APPLIANCE_SERVE_CPUS", "[0]")]);
        assert!(cpus.contains("1 CPUs for 2 workers"), "{cpus}");
        assert!(error("", &[]).contains("missing field"));
        let sandbox = error(GOOD, &[("APPLIANCE_PROCESS_SANDBOX", "on")]);
        assert!(sandbox.contains("best-effort") && sandbox.contains("require"), "{sandbox}");
    }

    #[test]
    fn control_is_spoken_to_over_tls_only() {
        for bad in ["http://127.0.0.1:8080", "https://control", "control:8081"] {
            let text = error(&GOOD.replace("https://127.0.0.1:8081/", bad), &[]);
            assert!(text.contains("[control] url") && text.contains("https://HOST:PORT"), "{text}");
        }
        let front = |name: &str, url: &str| format!("{{ name = \"{name}\", url = \"{url}\" }}");
        let check = |fronts: &[String]| {
            let list = format!("{GOOD}fronts = [{}]\n", fronts.join(", "));
            parse(&list, &[]).map_err(|error| error.to_string())
        };
        let good = [front("f1", "https://c1:8081"), front("f2", "https://c2:8081")];
        let settings = check(&good).unwrap();
        assert_eq!((settings.control.fronts.len(), &*settings.control.fronts[1].name), (2, "f2"));
        assert!(settings.describe().contains("{ name = \"f2\", url = \"https://c2:8081\" }"));
        assert!(check(&[front("f1", "http://c1:8080")]).unwrap_err().contains("HOST:PORT"));
        assert!(check(&[good[0].clone(), good[0].clone()]).unwrap_err().contains("twice"));
        assert!(
            check(&[front("a/b", "https://c1:8081")]).unwrap_err().contains("[control] fronts")
        );
        assert!(check(&vec![good[0].clone(); 9]).unwrap_err().contains("at most 8"));
    }

    #[test]
    fn siblings_are_let_in_where_it_is_said_and_can_be_reached() {
        let peer = |text: &str| format!("{GOOD}[peer]\n{text}\n");
        assert!(parse(GOOD, &[]).unwrap().peer.is_none());
        let settings = parse(&peer("listen = [\"10.0.0.2:9443\"]"), &[]).unwrap();
        assert_eq!(settings.peer.as_ref().unwrap().connections_max, 32);
        assert!(settings.describe().contains("connections_max = 32"));
        let open = error(&peer("listen = [\"0.0.0.0:9443\"]"), &[]);
        assert!(open.contains("[peer] address") && open.contains("HOST:PORT"), "{open}");
        let both =
            "listen = [\"0.0.0.0:9443\"]\naddress = \"a1.example:9443\"\nrate_max = \"1 Gb/s\"";
        let settings = parse(&peer(both), &[]).unwrap();
        assert!(settings.describe().contains("address = \"a1.example:9443\""));
        assert!(error(&peer("address = \"a1:9443\""), &[]).contains("listen too"));
        let bad = error(&peer(&both.replace("a1.example:", "https://a1:")), &[]);
        assert!(bad.contains("not HOST:PORT"), "{bad}");
        let none = error(&peer("connections_max = 0"), &[]);
        assert!(none.contains("between 1 and 1024"), "{none}");
    }
}
