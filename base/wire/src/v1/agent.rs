//! Appliance and operator to `nearcast-agent`, over a Unix socket: one JSON object per line each
//! way, an answer for each request, in order.
//!
//! ```text
//! {"v":1,"verb":"drives"}                         {"v":1,"drives":[...]}
//! {"v":1,"verb":"trim","drive":"/srv/nearcast/1"} {"v":1,"trimmed":{"drive":"...","bytes":4096}}
//! {"v":1,"verb":"health"}                         {"v":1,"health":[...]}
//! {"v":1,"verb":"addresses","wanted":[["192.0.2.1",200]]}
//!       {"v":1,"held":{"here":["192.0.2.1"],"left_out":[["192.0.2.9","why"]],"is_elected":true}}
//! {"v":1,"verb":"routes"}                         {"v":1,"routes":{...}}
//! {"v":1,"verb":"routes_part","to":"2-...","number":0}  {"v":1,"routes_part":{...}}
//! {"v":1,"verb":"tickle","clients":[["192.0.2.1:443","10.0.0.9:50000"]]}  {"v":1,"tickled":1}
//!                                                 {"v":1,"refused":"why, and what to do"}
//! ```
//!
//! The first three are answered by `nearcast-agent serve`, those of routes by `nearcast-agent
//! routes`, the others by `nearcast-agent addresses`: processes of their own, since the first needs
//! no network and the others no drive.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::routes::{Heard, PART_LEN_MAX, Part};

/// The version of this protocol.
pub const VERSION: u32 = 1;

/// Longest request, its newline included. A longer one is refused and the connection closed.
pub const REQUEST_LEN_MAX: usize = 128 * 1024;

/// Most clients of one request to tickle: with the longest addresses they take 120 KB.
pub const TICKLES_MAX: usize = 1000;

/// Longest answer: a part of a table of routes; 256 drives with long names come to a quarter of it.
pub const ANSWER_LEN_MAX: usize = PART_LEN_MAX + 64;

/// A line of either side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line<T> {
    /// [`VERSION`].
    pub v: u32,
    #[serde(flatten)]
    pub said: T,
}

/// A request to the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "snake_case")]
pub enum Request {
    /// How the drives are mounted.
    Drives,
    /// Tell a drive's device which blocks are free. One at a time.
    Trim {
        /// A configured drive's folder.
        drive: String,
    },
    /// The health that the devices report.
    Health,
    /// The service addresses of the site, each with the priority with which this machine wants it,
    /// 1 to 254. Repeated four times a second: without it for a second they all become 1. One that
    /// the machine may not have is left out, and changes nothing for the others.
    Addresses { wanted: Vec<(IpAddr, u8)> },
    /// Which of the addresses that were wanted last the machine has. Changes nothing.
    Held,
    /// What routers announce, in short.
    Routes,
    /// A part of what they announce, as a difference to a table that was known.
    RoutesPart {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        known: Option<String>,
        /// The table that was told last. Another one by now is refused.
        to: String,
        number: u32,
    },
    /// Have these clients answer: each by the address that it reached and its own. Only by
    /// addresses that the machine has and that were wanted.
    Tickle { clients: Vec<(SocketAddr, SocketAddr)> },
}

/// An answer of the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// In the order of the configuration.
    Drives(Vec<DriveMount>),
    Trimmed {
        drive: String,
        /// How much was free and is known to be, if the program said so.
        bytes: Option<u64>,
    },
    /// In the order of the configuration.
    Health(Vec<DriveHealth>),
    /// What has come of the wanted addresses.
    Held(Held),
    /// How many were sent a packet.
    Tickled(u64),
    Routes(Box<Heard>),
    RoutesPart(Box<Part>),
    /// It is not done: the fault and the remedy.
    Refused(String),
}

/// The addresses that a machine has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Those of the wanted ones that are here.
    pub here: Vec<IpAddr>,
    /// Those that the machine may not have, each with the fault and the remedy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<(IpAddr, String)>,
    /// One machine at a time has an address, elected by the priorities (VRRP). If not, each machine
    /// of the site has all addresses all the time, and routes choose (BIRD).
    #[serde(default)]
    pub is_elected: bool,
}

/// How a drive is mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveMount {
    /// Its folder, as configured.
    pub path: String,
    /// The folder is the root of a mounted file system.
    pub is_mount_point: bool,
    /// The mount's device, `/dev/sda1`, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The file system's kind: `ext4`, `xfs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_system: Option<String>,
    /// The file system takes no writes, as after an error.
    pub is_read_only: bool,
    /// Errors that the kernel has counted for file system and device, where it counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errors: Option<u64>,
}

/// The one warning that speaks of the drive's surroundings.
pub const TEMPERATURE: &str = "too hot or too cold";

/// The health that a drive's device reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveHealth {
    pub path: String,
    /// The whole device that was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Its own judgement; none if it gives none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_good: Option<bool>,
    /// Degrees Celsius.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<i64>,
    /// Of what the maker expects, in percent; may pass 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_percent: Option<u64>,
    /// Reads that failed for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_errors: Option<u64>,
    /// Spare blocks that are left, in percent of those it came with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spare_percent: Option<u64>,
    /// Its warnings, in words; of its temperature as [`TEMPERATURE`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Why there is nothing above, if there is not: no program to ask with, or no answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_read_as_documented() {
        let trim = Request::Trim { drive: "/d".to_owned() };
        let line = serde_json::to_string(&Line { v: VERSION, said: trim.clone() }).unwrap();
        assert_eq!(line, r#"{"v":1,"verb":"trim","drive":"/d"}"#);
        let line = r#"{"v":1,"verb":"trim","drive":"/d","later":"field"}"#;
        assert_eq!(serde_json::from_str::<Line<Request>>(line).unwrap().said, trim);
        let refused = Answer::Refused("no".to_owned());
        let line = serde_json::to_string(&Line { v: VERSION, said: refused.clone() }).unwrap();
        assert_eq!(line, r#"{"v":1,"refused":"no"}"#);
        let line = r#"{"v":1,"drives":[{"path":"/d","is_mount_point":true,"is_read_only":false}]}"#;
        let Answer::Drives(drives) = serde_json::from_str::<Line<Answer>>(line).unwrap().said
        else {
            panic!()
        };
        assert!(drives[0].is_mount_point && drives[0].errors.is_none());
        let at = "192.0.2.9".parse().unwrap();
        let left_out = vec![(at, "why".to_owned())];
        let held = Answer::Held(Held { here: vec![at], left_out, is_elected: true });
        let line = serde_json::to_string(&Line { v: VERSION, said: held.clone() }).unwrap();
        assert_eq!(
            line,
            r#"{"v":1,"held":{"here":["192.0.2.9"],"left_out":[["192.0.2.9","why"]],"is_elected":true}}"#
        );
        assert_eq!(serde_json::from_str::<Line<Answer>>(&line).unwrap().said, held);
        assert!(serde_json::from_str::<Line<Answer>>(r#"{"v":1,"later":[]}"#).is_err(), "no panic");
    }
}
