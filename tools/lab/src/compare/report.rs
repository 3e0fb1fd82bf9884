//! From windows to a verdict.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use clap::ValueEnum;
use rig::client::{Ranges, Receive};
use rig::statistics::{Spread, median_of};
use rig::window::{Window, gigabytes};
use serde::Serialize;

use super::ledger::{self, Row};
use super::race::{Race, Trial};
use crate::flame::Profile;
use crate::processor::Processor;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Turn {
    /// The server's CPU seconds per decimal GB of body.
    pub(crate) cpu_s_per_gb: f64,
    pub(crate) server_cpu_s: f64,
    /// Seconds in which the server's CPU was not idle, whoever used it.
    pub(crate) cpu_busy_s: f64,
    #[serde(flatten)]
    pub(crate) window: Window,
}

/// One turn of each side.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Pair {
    /// Ours divided by the peer's, in CPU seconds per GB.
    pub(crate) ratio: f64,
    pub(crate) ours: Turn,
    pub(crate) peer: Turn,
}

/// What stays the same for all windows.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Setting {
    /// The workload's name.
    pub(crate) workload: String,
    pub(crate) client: Receive,
    pub(crate) ranges: Ranges,
    /// What the drive gives, where the workload reads from it: windows are as long as it needs.
    pub(crate) drive_bytes_per_s: Option<u64>,
    #[serde(flatten)]
    pub(crate) sides: Sides,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sides {
    #[serde(flatten)]
    pub(crate) processor: Processor,
    pub(crate) peer: String,
    pub(crate) peer_version: String,
    /// The TLS library that it runs with.
    pub(crate) peer_tls: String,
    /// What does AES-GCM for it, as far as it can be known.
    pub(crate) peer_aead: String,
    /// The configuration that was found best.
    pub(crate) peer_config: String,
    /// The same, in the peer's own language: what it has beside what all have.
    pub(crate) peer_config_lines: String,
    /// What our side keeps of requests. Peers keep nothing: their access log is off.
    pub(crate) ours_logging: String,
    /// What stands for us: the appliance, or the peer itself in a null test.
    pub(crate) ours: String,
    /// What does AES-GCM for us.
    pub(crate) ours_aead: String,
    /// Our TCP congestion control.
    pub(crate) ours_congestion: String,
    /// The one that was found best for the peer.
    pub(crate) peer_congestion: String,
}

impl Sides {
    /// For people: who the peer is.
    pub(crate) fn peer_line(&self) -> String {
        let Self { peer, peer_version, peer_tls, peer_config, peer_congestion, .. } = self;
        format!("{peer} ({peer_version}, {peer_tls}, {peer_config}, {peer_congestion})")
    }

    /// For people: the machine, and what encrypts on it.
    pub(crate) fn lines(&self) -> String {
        let Processor { processor, vector_extensions } = &self.processor;
        format!(
            "{processor}: {}\nAES-GCM: ours {}; the peer {}\n",
            vector_extensions.join(" "),
            self.ours_aead,
            self.peer_aead
        )
    }
}

/// The whole result; one JSON object.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    #[serde(flatten)]
    setting: Setting,
    ours_cpu_s_per_gb: f64,
    peer_cpu_s_per_gb: f64,
    ratio: f64,
    ratio_iqr: f64,
    ours_gbps: f64,
    peer_gbps: f64,
    pairs: usize,
    bytes_verified: u64,
    /// The same ratio with all that ran on the server's CPU, kernel threads included.
    ratio_cpu_busy: f64,
    /// How busy the server's CPU was, 0 to 1.
    ours_cpu_busy: f64,
    peer_cpu_busy: f64,
    cipher: String,
    client_cpu_share: f64,
    client_cpu_s_per_gb: f64,
    ours_response_ms_p50: f64,
    ours_response_ms_p99: f64,
    peer_response_ms_p50: f64,
    peer_response_ms_p99: f64,
    calibration: Vec<Trial>,
    /// Configurations of the peer that failed, each with the reason: out of the race.
    peer_configs_failed: Vec<String>,
    /// Ours with TLS 1.3, where the rest is with 1.2.
    #[serde(skip_serializing_if = "Option::is_none")]
    newer: Option<Newer>,
    /// Where CPU time went on both sides; where nobody wanted to know, nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rows: Vec<Row>,
    /// The same as a picture.
    #[serde(skip_serializing_if = "Option::is_none")]
    flame: Option<PathBuf>,
    windows: Vec<Pair>,
}

/// Our turns with TLS 1.3, beside those with 1.2 in the same run.
#[derive(Clone, Debug, Serialize)]
struct Newer {
    cpu_s_per_gb: f64,
    /// Ours with 1.2 divided by ours with 1.3, in CPU seconds per GB: the median over rounds.
    ratio: f64,
    ratio_iqr: f64,
    cipher: String,
    windows: Vec<Turn>,
}

/// The client was the limit, rather than the server, above this share of its CPU.
const CLIENT_SHARE_MAX: f64 = 0.9;

impl Report {
    /// Sums up; refuses what cannot be compared.
    pub(crate) fn new(setting: Setting, race: &Race, turns: Vec<(Turn, Turn)>) -> Result<Self> {
        let pair = |(ours, peer): (Turn, Turn)| Pair {
            ratio: ours.cpu_s_per_gb / peer.cpu_s_per_gb,
            ours,
            peer,
        };
        let windows: Vec<Pair> = turns.into_iter().map(pair).collect();
        let cipher = one_cipher(&windows)?;
        let of = |value: fn(&Pair) -> f64| median_of(&windows, value);
        let ratios: Vec<f64> = windows.iter().map(|pair| pair.ratio).collect();
        let busy = |turn: &Turn| turn.cpu_busy_s / turn.window.gb;
        let Spread { median: ratio, iqr: ratio_iqr } = Spread::of(&ratios)?;
        let verified = windows
            .iter()
            .map(|pair| pair.ours.window.bytes_verified + pair.peer.window.bytes_verified);
        Ok(Self {
            ours_cpu_s_per_gb: of(|pair| pair.ours.cpu_s_per_gb)?,
            peer_cpu_s_per_gb: of(|pair| pair.peer.cpu_s_per_gb)?,
            ratio,
            ratio_iqr,
            ours_gbps: of(|pair| pair.ours.window.gbps)?,
            peer_gbps: of(|pair| pair.peer.window.gbps)?,
            pairs: windows.len(),
            bytes_verified: verified.sum(),
            ratio_cpu_busy: median_of(&windows, |pair| busy(&pair.ours) / busy(&pair.peer))?,
            ours_cpu_busy: of(|pair| pair.ours.cpu_busy_s / pair.ours.window.seconds)?,
            peer_cpu_busy: of(|pair| pair.peer.cpu_busy_s / pair.peer.window.seconds)?,
            cipher,
            client_cpu_share: of(|pair| {
                pair.ours.window.client_cpu_share.max(pair.peer.window.client_cpu_share)
            })?,
            client_cpu_s_per_gb: of(|pair| pair.ours.window.client_cpu_s_per_gb)?,
            ours_response_ms_p50: of(|pair| pair.ours.window.response_ms_p50)?,
            ours_response_ms_p99: of(|pair| pair.ours.window.response_ms_p99)?,
            peer_response_ms_p50: of(|pair| pair.peer.window.response_ms_p50)?,
            peer_response_ms_p99: of(|pair| pair.peer.window.response_ms_p99)?,
            setting,
            calibration: race.trials().to_vec(),
            peer_configs_failed: race.failures().collect(),
            newer: None,
            rows: Vec::new(),
            flame: None,
            windows,
        })
    }

    /// The same with our turns with TLS 1.3, one for each pair, or none.
    pub(crate) fn beside_newer(self, windows: Vec<Turn>) -> Result<Self> {
        let Some(cipher) = windows.first().and_then(|turn| turn.window.ciphers.first()) else {
            return Ok(self);
        };
        let cipher = cipher.clone();
        let both = self.windows.iter().zip(&windows);
        let ratios: Vec<f64> =
            both.map(|(pair, newer)| pair.ours.cpu_s_per_gb / newer.cpu_s_per_gb).collect();
        let Spread { median: ratio, iqr: ratio_iqr } = Spread::of(&ratios)?;
        let cpu_s_per_gb = median_of(&windows, |turn| turn.cpu_s_per_gb)?;
        Ok(Self { newer: Some(Newer { cpu_s_per_gb, ratio, ratio_iqr, cipher, windows }), ..self })
    }

    /// The same, with a row for each kind of work, ours and the peer's, and a picture in `folder`.
    pub(crate) fn explained(self, profiles: &[Profile; 2], folder: &Path) -> Result<Self> {
        let costs = [self.ours_cpu_s_per_gb, self.peer_cpu_s_per_gb];
        let (workload, peer) = (&self.setting.workload, &self.setting.sides.peer);
        let path = folder.join(format!("{workload}-against-{peer}.svg"));
        let title = format!("{workload}, ours against {peer}");
        let both = [(&profiles[0], costs[0]), (&profiles[1], costs[1])];
        ledger::draw(both, &title, &path)?;
        Ok(Self { rows: ledger::rows(both), flame: Some(path), ..self })
    }

    /// An error if a ratio is above its bound.
    pub(crate) fn verdict(&self, bound: Option<f64>, newer: Option<f64>) -> Result<()> {
        let with_newer = self.newer.as_ref().map(|newer| newer.ratio);
        let ratios = [
            ("ours divided by the peer's", Some(self.ratio), bound),
            ("ours divided by ours with TLS 1.3", with_newer, newer),
        ];
        for (name, ratio, bound) in ratios {
            if let (Some(ratio), Some(bound)) = (ratio, bound) {
                ensure!(ratio <= bound, "{name} is {ratio:.3}, more than {bound}");
            }
        }
        Ok(())
    }

    /// What a reader should know before believing the figures.
    pub(crate) fn doubts(&self) -> Vec<String> {
        let shares = [
            ("ours", self.ours_cpu_busy, self.share(|pair| &pair.ours)),
            ("the peer", self.peer_cpu_busy, self.share(|pair| &pair.peer)),
        ];
        doubts(self.client_cpu_share, shares)
    }

    /// For people.
    pub(crate) fn table(&self) -> String {
        let mut text = String::new();
        let setting = &self.setting;
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{} against {}, {} pairs, {}, client: {}, ranges: {}",
            setting.workload,
            setting.sides.peer_line(),
            self.pairs,
            self.cipher,
            said(&setting.client),
            said(&setting.ranges)
        );
        let _ = write!(text, "{}", setting.sides.lines());
        let _ = writeln!(text, "{:<22}{:>10}{:>10}", "", "ours", "peer");
        for (name, ours, peer) in [
            ("CPU s/GB", self.ours_cpu_s_per_gb, self.peer_cpu_s_per_gb),
            ("Gb/s", self.ours_gbps, self.peer_gbps),
            ("response ms, median", self.ours_response_ms_p50, self.peer_response_ms_p50),
            ("response ms, p99", self.ours_response_ms_p99, self.peer_response_ms_p99),
        ] {
            let _ = writeln!(text, "{name:<22}{ours:>10.3}{peer:>10.3}");
        }
        let _ = writeln!(
            text,
            "ratio {:.3} (interquartile range {:.3}); {:.2} GB compared byte by byte",
            self.ratio,
            self.ratio_iqr,
            gigabytes(self.bytes_verified)
        );
        if let Some(Newer { cpu_s_per_gb, ratio, ratio_iqr, cipher, .. }) = &self.newer {
            let _ = writeln!(
                text,
                "ours with {cipher}: {cpu_s_per_gb:.3} CPU s/GB; ours as above divided by that: \
                 {ratio:.3} (interquartile range {ratio_iqr:.3})"
            );
        }
        for failure in &self.peer_configs_failed {
            let _ = writeln!(text, "out of the race: {failure}");
        }
        text + &ledger::table(&self.rows)
    }

    fn share(&self, side: fn(&Pair) -> &Turn) -> f64 {
        let share = |pair: &Pair| side(pair).server_cpu_s / side(pair).window.seconds;
        median_of(&self.windows, share).unwrap_or(0.0)
    }
}

/// What speaks against figures: the client's share of its CPU; and for either side, how busy its
/// CPU was, and with the server.
pub(crate) fn doubts(client_share: f64, sides: [(&str, f64, f64); 2]) -> Vec<String> {
    let mut doubts = Vec::new();
    if CLIENT_SHARE_MAX < client_share {
        doubts.push(format!(
            "the load client used {:.0} % of its CPU: throughput may be its limit, not the \
             server's",
            client_share * 100.0
        ));
    }
    for (name, busy, own) in sides {
        if 0.1 < busy - own {
            doubts.push(format!(
                "while {name} ran, {:.0} % of its CPU went to others: the machine was not quiet, \
                 or its kernel threads did part of the work (see ratio_cpu_busy)",
                (busy - own) * 100.0
            ));
        }
    }
    doubts
}

/// A choice as it is made on the command line.
pub(crate) fn said(choice: &impl ValueEnum) -> String {
    choice.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
}

fn one_cipher(pairs: &[Pair]) -> Result<String> {
    let sides = pairs.iter().flat_map(|pair| [&pair.ours, &pair.peer]);
    let mut ciphers: Vec<&String> = sides.flat_map(|turn| &turn.window.ciphers).collect();
    ciphers.sort();
    ciphers.dedup();
    ensure!(ciphers.len() == 1, "ciphers differ, so costs cannot be compared: {ciphers:?}");
    Ok(ciphers[0].clone())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn turn(cpu_s_per_gb: f64, cipher: &str) -> Turn {
        let window = Window {
            gbps: 8.0,
            gb: 5.0,
            seconds: 5.0,
            responses: 9,
            stalled: 0,
            responses_per_s: 1.8,
            response_ms_p50: 1.0,
            response_ms_p99: 2.0,
            bytes_verified: 10,
            client_cpu_s_per_gb: 0.1,
            client_cpu_share: 0.1,
            ciphers: vec![cipher.to_owned()],
        };
        Turn { cpu_s_per_gb, server_cpu_s: 5.0, cpu_busy_s: 5.0, window }
    }

    fn setting() -> Setting {
        Setting {
            workload: "warm".to_owned(),
            client: Receive::Copy,
            ranges: Ranges::Unaligned,
            drive_bytes_per_s: None,
            sides: sides(),
        }
    }

    pub(crate) fn sides() -> Sides {
        let processor = "AMD EPYC".to_owned();
        let vector_extensions = vec!["avx2".to_owned(), "vaes".to_owned()];
        Sides {
            processor: Processor { processor, vector_extensions },
            peer: "nginx".to_owned(),
            peer_version: "1".to_owned(),
            peer_tls: "OpenSSL".to_owned(),
            peer_aead: "OpenSSL, AES-NI".to_owned(),
            peer_config: "sendfile".to_owned(),
            peer_config_lines: "sendfile on;".to_owned(),
            ours_logging: "none".to_owned(),
            ours: "appliance".to_owned(),
            ours_aead: "aws-lc, AES-NI".to_owned(),
            ours_congestion: "cubic".to_owned(),
            peer_congestion: "bbr".to_owned(),
        }
    }

    fn report(pairs: &[(f64, f64)]) -> Report {
        let pairs = pairs.iter().map(|(a, b)| (turn(*a, "AES"), turn(*b, "AES"))).collect();
        Report::new(setting(), &Race::default(), pairs).unwrap()
    }

    #[test]
    fn the_ratio_is_the_median_of_the_pairs_not_the_ratio_of_the_medians() {
        let report = report(&[(1.0, 2.0), (2.0, 8.0), (3.0, 3.0)]);
        assert_eq!((report.ratio, report.ratio_iqr), (0.5, 0.375));
        assert_eq!((report.ours_cpu_s_per_gb, report.peer_cpu_s_per_gb), (2.0, 3.0));
        assert_eq!((report.pairs, report.bytes_verified), (3, 60));
        assert!(report.doubts().is_empty());
    }

    #[test]
    fn ours_with_tls_1_2_is_divided_by_ours_with_1_3_round_by_round() {
        let without = report(&[(1.0, 2.0)]).beside_newer(Vec::new()).unwrap();
        assert!(serde_json::to_value(&without).unwrap().get("newer").is_none());
        let newer = [1.0, 4.0, 2.0].map(|cost| turn(cost, "AES of 1.3")).to_vec();
        let report = report(&[(1.1, 2.0), (2.0, 8.0), (2.1, 3.0)]).beside_newer(newer).unwrap();
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["newer"]["ratio"], 1.05);
        assert_eq!(json["newer"]["cpu_s_per_gb"], 2.0);
        assert_eq!(json["newer"]["cipher"], "AES of 1.3");
        assert!(report.verdict(Some(0.7), Some(1.05)).is_ok());
        let error = |bound, newer| report.verdict(bound, newer).unwrap_err().to_string();
        assert!(error(Some(0.5), None).starts_with("ours divided by the peer's is 0.550, more"));
        assert!(error(None, Some(1.04)).starts_with("ours divided by ours with TLS 1.3 is 1.050"));
        let line = "ours with AES of 1.3: 2.000 CPU s/GB; ours as above divided by that: 1.050 (";
        assert!(report.table().contains(line), "{}", report.table());
    }

    #[test]
    fn the_promised_keys_are_in_the_json() {
        let json = serde_json::to_value(report(&[(1.0, 2.0)])).unwrap();
        for key in [
            "workload",
            "peer",
            "peer_version",
            "peer_tls",
            "peer_config",
            "peer_config_lines",
            "ours_cpu_s_per_gb",
            "peer_cpu_s_per_gb",
            "ratio",
            "ratio_iqr",
            "ours_gbps",
            "peer_gbps",
            "pairs",
            "bytes_verified",
            "processor",
            "vector_extensions",
            "ours_aead",
            "peer_aead",
        ] {
            assert!(json.get(key).is_some(), "{key}");
        }
        assert_eq!((&json["client"], &json["ranges"]), (&"copy".into(), &"unaligned".into()));
    }

    #[test]
    fn the_text_names_client_ranges_processor_and_what_encrypts() {
        let text = report(&[(1.0, 2.0)]).table();
        for part in [
            "client: copy, ranges: unaligned\n",
            "\nAMD EPYC: avx2 vaes\n",
            "\nAES-GCM: ours aws-lc, AES-NI; the peer OpenSSL, AES-NI\n",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn a_configuration_that_failed_is_named_in_json_and_text() {
        let mut race = Race::default();
        race.enter("sendfile, cubic".to_owned(), Err("24 of 200 starved".to_owned()));
        let report = Report::new(setting(), &race, vec![(turn(1.0, "AES"), turn(2.0, "AES"))]);
        let report = report.unwrap();
        let named = "sendfile, cubic: 24 of 200 starved";
        assert!(report.table().ends_with(&format!("\nout of the race: {named}\n")));
        let json = serde_json::to_value(report).unwrap();
        assert_eq!(json["peer_configs_failed"][0], named);
        assert_eq!(json["calibration"][0]["failed"], "24 of 200 starved");
    }

    #[test]
    fn where_time_goes_is_told_if_it_was_looked_at() {
        let text = |report: &Report| (serde_json::to_value(report).unwrap(), report.table());
        let (json, table) = text(&report(&[(1.0, 2.0)]));
        assert!(json.get("rows").is_none() && json.get("flame").is_none(), "{json}");
        assert!(!table.contains("difference"), "{table}");
        let stacks = vec![vec!["thread".to_owned(), "tls::seal".to_owned()]];
        let profiles = [Profile { stacks: stacks.clone() }, Profile { stacks }];
        let folder = tempfile::tempdir().unwrap();
        let explained = report(&[(1.0, 2.0)]).explained(&profiles, folder.path()).unwrap();
        let (json, table) = text(&explained);
        let row = serde_json::json!(
            {"name": "records of TLS", "ours": 1.0, "ideal": 2.0, "difference": -1.0}
        );
        assert!(json["rows"].as_array().unwrap().contains(&row), "{json}");
        let path = folder.path().join("warm-against-nginx.svg");
        assert_eq!(json["flame"], path.display().to_string());
        assert!(std::fs::read_to_string(path).unwrap().contains("records of TLS"));
        assert!(table.contains("records of TLS"), "{table}");
    }

    #[test]
    fn different_ciphers_are_not_compared() {
        let pairs = vec![(turn(1.0, "AES"), turn(1.0, "CHACHA"))];
        let error = Report::new(setting(), &Race::default(), pairs).unwrap_err().to_string();
        assert!(error.starts_with("ciphers differ"), "{error}");
        assert!(Report::new(setting(), &Race::default(), Vec::new()).is_err());
    }

    #[test]
    fn a_busy_machine_or_client_is_said() {
        let mut ours = turn(1.0, "AES");
        ours.cpu_busy_s = 5.9;
        ours.window.client_cpu_share = 0.95;
        let pairs = vec![(ours, turn(1.0, "AES"))];
        let doubts = Report::new(setting(), &Race::default(), pairs).unwrap().doubts();
        assert_eq!(doubts.len(), 2);
        assert!(doubts[0].contains("95 %") && doubts[1].contains("18 %"), "{doubts:?}");
    }
}
