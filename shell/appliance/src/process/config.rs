//! Configuration of `nearcast-appliance`: a TOML file, then the environment, then flags.
//!
//! A setting `key` of section `[section]` is `APPLIANCE_SECTION_KEY` in the environment. Unknown
//! keys are refused, values carry units, and a mistake is answered with what would be right.

pub(crate) mod check;
mod sections;

use std::path::{Path, PathBuf};

use model::id::ApplianceId;
use serde::{Deserialize, Serialize};

use crate::filling::peer::PeerConfig;
use crate::process::storage::{ControlConfig, FillConfig};
use crate::serving::ablation::Ablation;
use crate::serving::pacing::Pacing;
use sections::{Agent, Hot, Metrics, Process, Requests, Tls};
pub use sections::{Drives, Serve};
use settings::Origins;
pub use settings::{ConfigError, Text};

/// The prefix of every setting's name in the environment.
const PREFIX: &str = "APPLIANCE_";

/// The configuration file: checked, with the default of each key that it leaves out.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// As registered with the control plane.
    pub name: Text<ApplianceId>,
    /// Directory for what must survive a restart besides drives: the last manifest.
    pub state: PathBuf,
    pub serve: Serve,
    #[serde(default)]
    pub tls: Tls,
    #[serde(default)]
    pub pacing: Pacing,
    pub drives: Drives,
    #[serde(default)]
    pub hot: Hot,
    pub control: ControlConfig,
    #[serde(default)]
    pub peer: PeerConfig,
    #[serde(default)]
    pub fill: FillConfig,
    #[serde(default)]
    pub metrics: Metrics,
    #[serde(default)]
    pub process: Process,
    #[serde(default)]
    pub agent: Agent,
    #[serde(default)]
    pub requests: Requests,
    #[serde(default, skip_serializing_if = "Ablation::is_none")]
    pub ablation: Ablation,
    /// The source of each given setting, by `section.key`.
    #[serde(skip)]
    pub(crate) origins: Origins,
}

impl Settings {
    /// Reads the file at `path`, then the environment.
    pub fn load(
        path: &Path,
        environment: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        Self::checked(settings::load(path, PREFIX, environment)?)
    }

    fn checked((settings, origins): (Self, Origins)) -> Result<Self, ConfigError> {
        let mut settings = Self { origins, ..settings };
        settings.check()?;
        Ok(settings)
    }

    /// Each effective value with its origin, as TOML with comments.
    pub fn describe(&self) -> String {
        self.origins.describe(self)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use model::units::{Bytes, Nanos};

    use crate::serving::ablation::Sending;

    const GOOD: &str = "name = \"a1\"\nstate = \"/s\"\n[serve]\nlisten = [\"127.0.0.2:8443\"]\n\
        certificate = \"c\"\nkey = \"k\"\nworkers = 2\n[drives]\npaths = [\"/d\"]\n\
        [control]\nurl = \"https://127.0.0.1:8081/\"\n";

    pub(crate) fn parse(text: &str, environment: &[(&str, &str)]) -> Result<Settings, ConfigError> {
        let pairs = environment.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        Settings::checked(settings::parse(text, "a.toml", PREFIX, pairs)?)
    }

    fn error(text: &str, environment: &[(&str, &str)]) -> String {
        parse(text, environment).unwrap_err().to_string()
    }

    #[test]
    fn a_short_file_is_enough() {
        let settings = parse(GOOD, &[("HOME", "/root")]).unwrap();
        assert_eq!(settings.serve.base_url, "https://127.0.0.2:8443");
        assert_eq!(settings.control.url.0.as_str(), "127.0.0.1:8081");
        assert_eq!(settings.control.report_interval.0, Nanos::seconds(1));
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
        let wanted = Ablation { direct_reads: false, sending, record_len: Text(Bytes::kib(4)) };
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
        assert_eq!(settings.serve.unsent_max(), Some(Bytes::kib(64)));
        let settings = parse(&with("64 KiB"), &[("APPLIANCE_SERVE_UNSENT_MAX", "0 B")]).unwrap();
        assert_eq!(settings.serve.unsent_max(), None);
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
        assert_eq!(settings.tls.aead.0, tls::Wanted::Only(tls::Kernel::Ring));
        assert!(settings.describe().contains("aead = \"ring\""));
        let settings = parse(&with("ring"), &[("APPLIANCE_TLS_AEAD", "aws-lc")]).unwrap();
        assert_eq!(settings.tls.aead.0, tls::Wanted::Only(tls::Kernel::AwsLc));
        let unknown = error(&with("openssl"), &[]);
        assert!(unknown.contains("aead = \"openssl\""), "{unknown}");
        assert!(unknown.contains("\"auto\"") && unknown.contains("\"ring\""), "{unknown}");
        assert!(error(&format!("{GOOD}[tls]\nead = \"ring\"\n"), &[]).contains("unknown field"));
    }

    #[test]
    fn small_objects_share_files_unless_it_is_said() {
        let with = |lines: &str| parse(&format!("{GOOD}[fill]\n{lines}\n"), &[]);
        let unit = |lines: &str| with(lines).unwrap().fill.unit.0;
        assert_eq!(unit(""), Bytes::mib(64));
        assert_eq!(unit("unit = \"0 B\""), Bytes::ZERO);
        assert_eq!(unit("unit = \"1 MiB\""), Bytes::mib(1));
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
        assert_eq!(settings.drives.writes().targets, [Nanos::millis(3)]);
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
        assert_eq!(parse(&off, &[]).unwrap().drives.move_daily_max.0, Bytes::ZERO);
    }

    #[test]
    fn the_environment_wins_over_the_file_and_is_named() {
        let environment =
            [("APPLIANCE_SERVE_WORKERS", "3"), ("APPLIANCE_CONTROL_REPORT_INTERVAL", "500 ms")];
        let settings = parse(GOOD, &environment).unwrap();
        assert_eq!(
            (settings.serve.workers, settings.control.report_interval.0),
            (3, Nanos::millis(500))
        );
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
    fn an_address_is_for_one_listener() {
        const AT: &str = "127.0.0.2:8443";
        let serve = |more: &str| GOOD.replace("certificate", &format!("{more}\ncertificate"));
        let faults = [
            ("[serve] listen", GOOD.replace(&format!("\"{AT}\""), &format!("\"{AT}\", \"{AT}\""))),
            ("[serve] plain_listen", serve(&format!("plain_listen = [\"{AT}\"]"))),
            ("[peer] listen", format!("{GOOD}[peer]\nlisten = [\"{AT}\"]\n")),
            ("[metrics] listen", format!("{GOOD}[metrics]\nlisten = \"{AT}\"\n")),
        ];
        for (at, text) in faults {
            let said = error(&text, &[]);
            let wanted = format!("{at}: {AT} is in [serve] listen already");
            assert!(said.contains(&wanted), "{said}, not {wanted}");
        }
        let two = "[peer]\nlisten = [\"10.0.0.2:9\"]\n[metrics]\nlisten = \"10.0.0.2:9\"\n";
        assert!(error(&format!("{GOOD}{two}"), &[]).contains("is in [peer] listen already"));
        let apart = two.replacen(":9", ":10", 1);
        parse(&format!("{GOOD}{apart}"), &[]).unwrap();
        parse(&serve("plain_listen = [\"127.0.0.1:0\", \"127.0.0.1:0\"]"), &[]).unwrap();
    }

    #[test]
    fn control_is_spoken_to_over_tls_only() {
        for bad in ["http://127.0.0.1:8080", "https://control", "control:8081"] {
            let text = error(&GOOD.replace("https://127.0.0.1:8081/", bad), &[]);
            assert!(text.contains(&format!("url = \"{bad}\"")), "{text}");
            assert!(text.contains("https://HOST:PORT"), "{text}");
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
        assert!(parse(GOOD, &[]).unwrap().peer.listen.is_empty());
        let settings = parse(&peer("listen = [\"10.0.0.2:9443\"]"), &[]).unwrap();
        assert_eq!(settings.peer.connections_max, 32);
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
