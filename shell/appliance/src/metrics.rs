//! Prometheus metrics: one table, one row a metric.

use std::fmt::Write as _;
use std::io::{self, Read, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use http1::{Method, Parsed};
use worker::LATE_MICROS;

use crate::counters::{ServeCounters, sum};

/// How a metric moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
}

/// One metric of the serve path, summed over workers.
struct Row {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    of: fn(&ServeCounters) -> &AtomicU64,
}

const fn row(
    name: &'static str,
    kind: Kind,
    help: &'static str,
    of: fn(&ServeCounters) -> &AtomicU64,
) -> Row {
    Row { name, kind, help, of }
}

const ROWS: &[Row] = &[
    row("connections_accepted_total", Kind::Counter, "Connections accepted.", |s| &s.accepted),
    row("connections_refused_total", Kind::Counter, "Connections closed on arrival, full.", |s| {
        &s.refused
    }),
    row(
        "connections_timed_out_total",
        Kind::Counter,
        "Connections closed without progress.",
        |s| &s.timed_out,
    ),
    row(
        "handshakes_let_go_total",
        Kind::Counter,
        "Handshakes closed for later ones, more than handshakes_max being under way.",
        |s| &s.let_go_handshakes,
    ),
    row(
        "connections_let_go_quiet_total",
        Kind::Counter,
        "Connections closed for others, quiet for longest.",
        |s| &s.let_go_quiet,
    ),
    row(
        "connections_let_go_slow_total",
        Kind::Counter,
        "Connections closed for others, slowest to take what was sent.",
        |s| &s.let_go_slow,
    ),
    row("connections", Kind::Gauge, "Connections open.", |s| &s.open),
    row("responses_2xx_total", Kind::Counter, "Responses with 200, 204 or 206.", |s| {
        &s.responses_2xx
    }),
    row("responses_3xx_total", Kind::Counter, "Responses with 304 or 307.", |s| &s.responses_3xx),
    row("responses_4xx_total", Kind::Counter, "Responses with 400 to 431.", |s| &s.responses_4xx),
    row("forbidden_total", Kind::Counter, "Tokens refused.", |s| &s.forbidden),
    row("misses_total", Kind::Counter, "Requests for objects in the manifest, not held.", |s| {
        &s.misses
    }),
    row("egress_bytes_total", Kind::Counter, "Body bytes handed to the kernel.", |s| &s.body_bytes),
    row("drive_reads_total", Kind::Counter, "Reads asked of drives for viewers.", |s| &s.reads),
    row("drive_read_bytes_total", Kind::Counter, "Bytes asked of drives for viewers.", |s| {
        &s.read_bytes
    }),
    row("hot_chunks_total", Kind::Counter, "Chunks sent from memory, without a drive.", |s| {
        &s.hot_chunks
    }),
    row("hot_bytes_total", Kind::Counter, "Body bytes sent from memory, without a drive.", |s| {
        &s.hot_bytes
    }),
    row("hot_blocks_kept_total", Kind::Counter, "Blocks that became hot.", |s| &s.hot_kept),
    row("hot_blocks", Kind::Gauge, "Blocks kept in memory, of 256 KiB.", |s| &s.hot_blocks),
    row("chunks_sampled_total", Kind::Counter, "Chunks with a block to be verified.", |s| {
        &s.verified
    }),
    row("drive_faults_total", Kind::Counter, "Drive operations that failed.", |s| &s.drive_faults),
    row(
        "bodies_cut_total",
        Kind::Counter,
        "Bodies broken off: their version was withdrawn.",
        |s| &s.cut,
    ),
    row("bodies_aborted_total", Kind::Counter, "Bodies broken off by a drive fault.", |s| {
        &s.aborted
    }),
    row("tokens_verified_total", Kind::Counter, "Signatures of tokens that were verified.", |s| {
        &s.tokens_verified
    }),
    row("request_log_lost_total", Kind::Counter, "Lines of the request log lost.", |s| {
        &s.log_lines_lost
    }),
    row("paced_responses_total", Kind::Counter, "Responses kept to a rate, or a part.", |s| {
        &s.paced
    }),
    row("paced_bursts_total", Kind::Counter, "Bursts of them.", |s| &s.bursts),
    row("incidents_total", Kind::Counter, "Responses that were slow, or reset by us.", |s| {
        &s.incidents
    }),
    row(
        "requests_redirected_total",
        Kind::Counter,
        "Requests sent on to a sibling with 307, a drive having failed them.",
        |s| &s.redirected,
    ),
    row("worker_cpu_nanoseconds_total", Kind::Counter, "CPU time of the workers.", |s| {
        &s.cpu_nanos
    }),
];

/// How long a client may take to ask, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest request that is read.
const REQUEST_LEN_MAX: usize = 4096;

/// All metrics as Prometheus text; `more` adds rows of other parts.
pub fn text(workers: &[Arc<ServeCounters>], more: &[(String, f64, &str)]) -> String {
    let mut out = String::new();
    for Row { name, kind, help, of } in ROWS {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        let value = sum(workers, of);
        let _ = write!(
            out,
            "# HELP nearcast_{name} {help}\n# TYPE nearcast_{name} {kind}\n\
             nearcast_{name} {value}\n"
        );
    }
    let thousandths =
        sum(workers, |s| &s.read_bytes) * 1000 / sum(workers, |s| &s.body_bytes).max(1);
    let _ = write!(
        out,
        "# HELP nearcast_drive_bytes_per_egress_byte Read from drives for a byte sent, so far.\n\
         # TYPE nearcast_drive_bytes_per_egress_byte gauge\n\
         nearcast_drive_bytes_per_egress_byte {}.{:03}\n",
        thousandths / 1000,
        thousandths % 1000
    );
    write_lateness(&mut out, workers);
    let mut before = "";
    for (name, value, help) in more {
        let family = name.split('{').next().unwrap_or(name);
        if family != before {
            let _ = writeln!(out, "# HELP nearcast_{family} {help}");
            let _ = writeln!(out, "# TYPE nearcast_{family} gauge");
            before = family;
        }
        let _ = writeln!(out, "nearcast_{name} {value}");
    }
    out
}

/// How late bursts went that had to wait, as a histogram.
fn write_lateness(out: &mut String, workers: &[Arc<ServeCounters>]) {
    let name = "nearcast_burst_lateness_seconds";
    let _ = writeln!(out, "# HELP {name} How much later than its moment a paced burst went.");
    let _ = writeln!(out, "# TYPE {name} histogram");
    let bounds = LATE_MICROS.iter().map(|micros| {
        let seconds = Duration::from_micros(*micros).as_secs_f64();
        format!("{seconds}")
    });
    let mut count = 0;
    for (at, bound) in bounds.chain(["+Inf".to_owned()]).enumerate() {
        count += sum(workers, |shared| &shared.late[at]);
        let _ = writeln!(out, "{name}_bucket{{le=\"{bound}\"}} {count}");
    }
    let total = Duration::from_micros(sum(workers, |shared| &shared.late_micros));
    let _ = writeln!(out, "{name}_sum {}\n{name}_count {count}", total.as_secs_f64());
}

/// Answers `GET /metrics`, one client at a time, on a thread of its own until the process ends. A
/// client has two seconds for its request and two to take the answer.
pub fn serve(listener: TcpListener, text: impl Fn() -> String + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name("metrics".to_owned()).spawn(move || {
        for client in listener.incoming() {
            if let Err(error) = client.and_then(|client| answer(&client, &text)) {
                tracing::debug!(%error, "a metrics client failed");
                // Were it for want of descriptors, the next would fail at once, and the next.
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    })?;
    Ok(())
}

fn answer(mut client: &TcpStream, text: &impl Fn() -> String) -> io::Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))?;
    let mut request = Vec::new();
    let mut piece = [0; 1024];
    let asked = Instant::now();
    let (status, body) = loop {
        if PATIENCE <= asked.elapsed() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let len = client.read(&mut piece)?;
        request.extend_from_slice(&piece[..len]);
        match http1::parse(&request) {
            Ok(Parsed::Partial) if len != 0 && request.len() < REQUEST_LEN_MAX => {}
            Ok(Parsed::Request { request, .. })
                if request.method == Method::Get && request.path == "/metrics" =>
            {
                break ("200 OK", text());
            }
            Ok(_) => break ("404 Not Found", "metrics are at /metrics\n".to_owned()),
            Err(error) => break ("400 Bad Request", format!("{error}\n")),
        }
    };
    let len = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\n\
         Content-Length: {len}\r\nConnection: close\r\n\r\n"
    );
    client.write_all(head.as_bytes())?;
    client.write_all(body.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use worker::Counters;

    /// A metric that nobody increments would stay at zero here.
    #[test]
    fn every_row_shows_a_counter_that_moves() {
        let counters = Counters {
            accepted: 1,
            refused: 2,
            open: 3,
            timed_out: 4,
            responses: [5, 6, 7],
            responses_416: 8,
            forbidden: 9,
            misses: 10,
            body_bytes: 11,
            reads: 12,
            read_bytes: 13,
            drive_faults: 14,
            aborted: 15,
            verified: 17,
            log_lines_lost: 18,
            hot_chunks: 22,
            incidents: 23,
            hot_bytes: 19,
            hot_kept: 20,
            hot_blocks: 21,
            let_go_handshakes: 23,
            let_go_quiet: 24,
            let_go_slow: 25,
            paced: 18,
            bursts: 19,
            late: [20; LATE_MICROS.len() + 1],
            late_micros: 21,
            redirected: 26,
            cut: 27,
            served_generation: 28,
            hung_drives: 0,
            tokens_verified: 29,
        };
        let shared = Arc::new(ServeCounters::default());
        shared.store(&counters);
        shared.store_cpu(model::units::Nanos(16));
        let text = text(&[shared.clone(), shared], &[]);
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            assert!(!line.ends_with(" 0"), "{line}");
        }
        assert!(text.contains("nearcast_egress_bytes_total 22\n"), "summed over workers");
    }

    #[test]
    fn rows_of_other_parts_follow_under_one_heading_per_family() {
        let more = [
            ("drive_free_bytes{drive=\"0\"}".to_owned(), 1.0, "Free."),
            ("drive_free_bytes{drive=\"1\"}".to_owned(), 2.0, "Free."),
        ];
        let text = text(&[], &more);
        assert_eq!(text.matches("# HELP nearcast_drive_free_bytes Free.").count(), 1);
        assert!(text.ends_with("nearcast_drive_free_bytes{drive=\"1\"} 2\n"));
    }
}
