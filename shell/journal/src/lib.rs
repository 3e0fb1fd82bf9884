//! The log lines of processes, and the rules for what never gets there.
//!
//! ```text
//! event ──> filter: ours at any level, libraries from WARN
//!       ──> fields: those of the list, each value through redact ──> a line on standard error,
//!           if it is taken
//! ```
//!
//! The one way to the log: whoever logs a field that is not on the list sees it refused by name,
//! and adds it here after having thought about whom it names. Of a playback token stay its key id
//! and a hash of its session, of a client's address its range, of a URL what stands before the
//! query. Control characters are escaped, so that a line is one event. docs/operate/privacy.md says
//! it to operators.

mod outlet;
mod redact;

use std::fmt;
use std::io::IsTerminal;
use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;

use tracing::field::{Field, Visit};
use tracing::{Level, Metadata};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, registry};

use outlet::Outlet;
pub use redact::redact;

/// The fields that may be logged. None names a person but `client` and `peer`, which are cut
/// to ranges.
pub const FIELDS: &[&str] = &[
    "address",
    "age",
    "allowed",
    "appliance",
    "asset",
    "base_url",
    "block",
    "bucket",
    "bytes",
    "cipher",
    "client",
    "clients",
    "cpu",
    "damage",
    "denied",
    "down",
    "drive",
    "drives",
    "entry",
    "errno",
    "error",
    "evicted",
    "fault",
    "file",
    "files",
    "fleet",
    "found",
    "generation",
    "id",
    "index",
    "is_new",
    "is_public",
    "kernel",
    "kid",
    "kind",
    "left",
    "left_out",
    "len",
    "listen",
    "member",
    "message",
    "name",
    "needed",
    "next",
    "notice.text",
    "object",
    "objects",
    "part",
    "parts",
    "passed_over",
    "path",
    "peer",
    "pid",
    "prefixes",
    "reason",
    "retires",
    "role",
    "rows",
    "seconds",
    "seconds_per_gb",
    "serial",
    "sessions",
    "sibling",
    "site",
    "sites",
    "socket",
    "span",
    "status",
    "thread",
    "took_ms",
    "torn",
    "transfers",
    "uid",
    "until",
    "up",
    "version",
    "versions",
    "what",
    "whom",
    "why",
    "withdrawal",
    "workers",
];

/// How much of a client's address is logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clients {
    /// The first 24 bits of IPv4, the first 48 of IPv6.
    #[default]
    Ranges,
    /// All of it: for a hunt, not for a habit.
    Whole,
}

/// Why there is no log.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error(
        "--log-level {0}: use error, warn, info, debug or trace, also per room (info,fill=debug)"
    )]
    Level(String),
    #[error("--log-clients {0}: use ranges or whole")]
    Clients(String),
    #[error("the log was started before")]
    Twice,
}

impl std::str::FromStr for Clients {
    type Err = JournalError;
    fn from_str(text: &str) -> Result<Self, JournalError> {
        match text {
            "ranges" => Ok(Self::Ranges),
            "whole" => Ok(Self::Whole),
            other => Err(JournalError::Clients(other.to_owned())),
        }
    }
}

/// Logs to standard error from now on, in colours if somebody looks.
pub fn start(level: &str, clients: Clients) -> Result<(), JournalError> {
    let filter = EnvFilter::try_new(level).map_err(|_| JournalError::Level(level.to_owned()))?;
    let lines = tracing_subscriber::fmt::layer()
        .fmt_fields(Listed { clients })
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(Mutex::new(Outlet::new(std::io::stderr())))
        .with_filter(filter_fn(is_for_the_log));
    registry().with(filter).with(lines).try_init().map_err(|_| JournalError::Twice)
}

/// Libraries log what passes through them, requests with their URLs among it.
fn is_for_the_log(metadata: &Metadata<'_>) -> bool {
    let room = metadata.target().split("::").next().unwrap_or_default();
    *metadata.level() <= Level::WARN || ROOMS.contains(&room)
}

/// Rooms and programs with a log.
const ROOMS: &[&str] = &[
    "agent",
    "appliance",
    "control",
    "director",
    "fill",
    "fleet",
    "identity",
    "journal",
    "lab",
    "nearcast",
    "nearcast_agent",
    "nearcast_appliance",
    "nearcast_control",
    "nearcast_lab",
    "store",
    "tls",
    "uring",
    "wire",
    "worker",
];

/// Writes the fields that are on the list.
#[derive(Clone, Copy, Debug)]
struct Listed {
    clients: Clients,
}

impl<'writer> FormatFields<'writer> for Listed {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut line = Line { writer, clients: self.clients, is_first: true, result: Ok(()) };
        fields.record(&mut line);
        line.result
    }
}

struct Line<'w> {
    writer: Writer<'w>,
    clients: Clients,
    is_first: bool,
    result: fmt::Result,
}

impl Line<'_> {
    fn write(&mut self, name: &str, value: &dyn fmt::Display) {
        let name = name.strip_prefix("r#").unwrap_or(name);
        let between = if std::mem::replace(&mut self.is_first, false) { "" } else { " " };
        let written = match name {
            "message" => write!(self.writer, "{between}{}", redact(&value.to_string())),
            "client" | "peer" => {
                let shown = client(&value.to_string(), self.clients);
                write!(self.writer, "{between}{name}={shown}")
            }
            listed if FIELDS.contains(&listed) => {
                write!(self.writer, "{between}{name}={}", redact(&value.to_string()))
            }
            // Its name is ours and says nothing; its value may say anything.
            _ => write!(self.writer, "{between}{name}=(not listed)"),
        };
        self.result = self.result.and(written);
    }
}

impl Visit for Line<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.write(field.name(), &format_args!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.write("message", &value);
        } else {
            self.write(field.name(), &format_args!("{value:?}"));
        }
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.write(field.name(), &value);
    }
}

/// A client's address as it may be logged; a text that is no address is not logged at all.
fn client(text: &str, clients: Clients) -> String {
    let text = text.trim_matches('"');
    let socket = text.parse::<SocketAddr>().map(|socket| socket.ip());
    let Ok(address) = socket.or_else(|_| text.parse::<IpAddr>()) else {
        return "(no address)".to_owned();
    };
    match (clients, address.to_canonical()) {
        (Clients::Whole, address) => address.to_string(),
        (Clients::Ranges, IpAddr::V4(v4)) => {
            let [a, b, c, _] = v4.octets();
            format!("{a}.{b}.{c}.0/24")
        }
        (Clients::Ranges, IpAddr::V6(v6)) => {
            let [a, b, c, ..] = v6.segments();
            format!("{a:x}:{b:x}:{c:x}::/48")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tracing::{info, subscriber, trace, warn};

    const TOKEN: &str = "k1.tro8w0.0.AAECAwQFBgcICQoL.aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\
        aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

    /// What is logged inside, at TRACE.
    fn logged(clients: Clients, inside: impl FnOnce()) -> String {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let copy = lines.clone();
        let layer = tracing_subscriber::fmt::layer()
            .fmt_fields(Listed { clients })
            .with_ansi(false)
            .without_time()
            .with_writer(move || Into(copy.clone()))
            .with_filter(filter_fn(is_for_the_log));
        subscriber::with_default(registry().with(layer), inside);
        String::from_utf8(lines.lock().unwrap().clone()).unwrap()
    }

    struct Into(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Into {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn listed_fields_are_written_and_others_are_only_named() {
        let line = logged(Clients::Ranges, || {
            info!(drive = %"d1", bytes = 5_u64, viewer = "anna", "drive {} away", "set");
        });
        assert_eq!(
            line,
            " INFO journal::tests: drive set away drive=d1 bytes=5 viewer=(not listed)\n"
        );
    }

    #[test]
    fn tokens_queries_and_line_ends_do_not_get_there_in_any_field() {
        let line = logged(Clients::Ranges, || {
            let url = format!("https://a1/t/{TOKEN}/film-1/v.mp4?CMCD=sid%3D%22x%22");
            warn!(path = %url, error = ?url, "GET {url}\nINFO forged");
        });
        assert!(!line.contains("AAECAwQFBgcICQoL") && !line.contains("aaaa"), "{line}");
        assert!(!line.contains("CMCD"), "{line}");
        assert_eq!(line.matches("token(k1,").count(), 3, "{line}");
        assert_eq!(line.lines().count(), 1, "{line}");
    }

    #[test]
    fn clients_are_ranges_unless_told_otherwise() {
        let say = |clients, address: &str| {
            let line = logged(clients, || info!(client = %address, "x"));
            line.trim_end().rsplit('=').next().unwrap().to_owned()
        };
        for (address, shown) in [
            ("203.0.113.77", "203.0.113.0/24"),
            ("203.0.113.77:4711", "203.0.113.0/24"),
            ("[2001:db8:1:2::3]:4711", "2001:db8:1::/48"),
            ("::ffff:203.0.113.77", "203.0.113.0/24"),
            ("anna", "(no address)"),
        ] {
            assert_eq!(say(Clients::Ranges, address), shown);
        }
        assert_eq!(say(Clients::Whole, "203.0.113.77:4711"), "203.0.113.77");
        assert_eq!("whole".parse::<Clients>().unwrap(), Clients::Whole);
        assert!("all".parse::<Clients>().is_err());
    }

    #[test]
    fn libraries_are_heard_from_warn_on() {
        let lines = logged(Clients::Ranges, || {
            trace!(target: "hyper::proto", "GET /t/x");
            info!(target: "ureq", "Authorization: Bearer x");
            warn!(target: "rustls", "odd");
            trace!("ours");
        });
        let shown: Vec<&str> = lines.lines().map(|line| line.trim_start()).collect();
        assert_eq!(shown, ["WARN rustls: odd", "TRACE journal::tests: ours"]);
    }

    #[test]
    fn the_list_is_sorted_so_that_it_is_read() {
        assert!(FIELDS.is_sorted());
        assert!(ROOMS.is_sorted());
    }
}
