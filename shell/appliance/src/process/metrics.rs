//! Prometheus metrics: one table for each kind of thing that is told, and whoever serves them.
//!
//! What is counted stands with its counter (`worker::Counters`, `counters`); what is told of a noun
//! has a line below.

use std::io::{self, Read, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fill::tier::Class;
use http1::{Method, Parsed};
use model::drives::DriveIndex;
use model::metric::{Metric, Unit};
use model::status::{DriveLoad, DriveStatus, FillStatus};
use model::units::Bytes;
use wire::prometheus::{CONTENT_TYPE, Page};
use wire::v1::agent::DriveHealth;
use worker::{Counters, LATE_MICROS};

use crate::book;
use crate::counters::{
    FillCounters, IntegrityCounters, PeerCounters, ServeCounters, TierCounters, now, sum,
};
use crate::demand::DemandCounters;
use crate::membership::takeover;
use crate::process::certificate::Reload;
use crate::process::storage::StorageHandle;
use crate::storage::tiering::TieringStatus;

const PREFIX: &str = "nearcast_";

/// Told where there is a guard.
pub(crate) const STARTS: Metric = Metric::counter(
    "process_starts_total",
    "Processes that the guard has started: more than one where one hung or ended.",
);

const VIEWERS: &[Row<book::Status>] = &[
    (Metric::gauge("viewer_playbacks", "Playbacks that are followed."), |of| {
        number(Bytes::of(of.playbacks).0)
    }),
    (
        Metric::counter(
            "viewer_responses_unfollowed_total",
            "Responses to playbacks that were too many to be followed.",
        ),
        |of| number(of.unfollowed),
    ),
];

/// Tells how following playbacks goes.
pub(crate) fn put_viewers(page: &mut Page, status: book::Status) {
    for (metric, value) in VIEWERS {
        if let Some(value) = value(&status) {
            page.put(metric, "", value);
        }
    }
}

/// What is told of a thing, where it has it.
type Row<T> = (Metric, fn(&T) -> Option<f64>);

const DRIVES: &[Row<DriveStatus>] = &[
    (Metric::gauge("drive_free_bytes", "Free, the reserve taken off."), |of| number(of.free.0)),
    (Metric::gauge("drive_objects", "Objects on the drive."), |of| number(of.objects)),
    (Metric::gauge("drive_units", "Files that small objects share, as of the last audit."), |of| {
        number(of.units.count)
    }),
    (
        Metric::gauge(
            "drive_unit_dead_bytes",
            "In these, of what is not held any more; as of then.",
        ),
        |of| number(of.units.dead.0),
    ),
    (
        Metric::gauge("drive_set_aside", "1 if nothing is read from the drive or written to it."),
        |of| truth(of.set_aside.is_some()),
    ),
    (Metric::gauge("drive_hung", "1 while the drive does not answer what it was asked."), |of| {
        truth(of.hangs.is_some())
    }),
    (
        Metric::gauge("drive_scrub_position", "How far through the drive the scrub is, 0 to 1."),
        |of| Some(number(of.scrub.at)? / number(u64::MAX)?),
    ),
    (
        Metric::counter("drive_scrub_passes_total", "Whole scrubs of the drive since the start."),
        |of| number(of.scrub.passes),
    ),
];

const LOADS: &[Row<DriveLoad>] = &[
    (
        Metric::gauge(
            "drive_headroom",
            "Of what it could serve at its target, what is left, 0 to 1.",
        ),
        |of| Some(f64::from(of.headroom_permille) / 1000.0),
    ),
    (
        Metric::gauge("drive_service_seconds", "What a read takes in the drive, mean of a second."),
        |of| Some(Duration::from(of.service).as_secs_f64()),
    ),
    (
        Metric::gauge(
            "drive_service_unloaded_seconds",
            "The same with little to do: the least seen.",
        ),
        |of| Some(Duration::from(of.service_unloaded).as_secs_f64()),
    ),
    (
        Metric::gauge("drive_write_limit_bytes", "May be written each second; -1 for any number."),
        |of| of.fill_granted.map_or_else(|| Some(-1.0), |rate| number(rate.0)),
    ),
    (Metric::gauge("drive_writes_held", "Writes that wait for their turn."), |of| {
        number(Bytes::of(of.fills_held).0)
    }),
    (
        Metric::counter(
            "drive_windows_total",
            "Windows of 100 to 500 ms in which reads were judged.",
        ),
        |of| number(of.windows),
    ),
    (
        Metric::counter(
            "drive_windows_over_target_total",
            "Of these, with over 1 % of reads too late.",
        ),
        |of| number(of.windows_late),
    ),
];

/// What devices say of themselves, as far as they do.
const DEVICES: &[Row<DriveHealth>] = &[
    (Metric::gauge("drive_device_failing", "1 if the device says that it is failing."), |of| {
        of.is_good.and_then(|is_good| truth(!is_good || !of.warnings.is_empty()))
    }),
    (Metric::gauge("drive_device_temperature_celsius", "As the device says."), |of| {
        u64::try_from(of.temperature?).ok().and_then(number)
    }),
    (Metric::gauge("drive_device_used_percent", "Of its life, as the device says."), |of| {
        of.used_percent.and_then(number)
    }),
    (Metric::gauge("drive_device_spare_percent", "Spare blocks left."), |of| {
        of.spare_percent.and_then(number)
    }),
    (Metric::counter("drive_device_media_errors_total", "Reads that failed for good."), |of| {
        of.media_errors.and_then(number)
    }),
];

const CLASSES: &[Row<Class>] =
    &[(Metric::gauge("drive_fast", "1 if it is for what is watched most."), |of| {
        truth(*of == Class::Fast)
    })];

/// Told where service addresses move.
const TAKEOVER: &[Row<takeover::Status>] = &[
    (Metric::gauge("addresses_taken", "Service addresses of siblings that are here."), |of| {
        number(Bytes::of(of.taken).0)
    }),
    (Metric::counter("addresses_taken_total", "Times that a sibling's address came here."), |of| {
        number(of.counters.taken)
    }),
    (
        Metric::counter(
            "clients_tickled_total",
            "Clients that the agent sent a packet, so that their connections are reset.",
        ),
        |of| number(of.counters.tickled),
    ),
    (Metric::gauge("sibling_clients", "Connections of siblings that are known here."), |of| {
        number(Bytes::of(of.clients).0)
    }),
];

const TIERING: &[Row<TieringStatus>] = &[
    (
        Metric::gauge("tier_heat_objects", "Objects of which it is known how much is watched."),
        |of| number(of.heat_objects),
    ),
    (Metric::gauge("tier_budget_left_bytes", "What may still be moved today."), |of| {
        number(of.left.0)
    }),
];

const FILL: &[Row<FillStatus>] = &[
    (Metric::gauge("fill_objects_wanted", "Objects in the manifest."), |of| {
        number(of.objects_wanted)
    }),
    (Metric::gauge("fill_objects_held", "Of these, published."), |of| number(of.objects_held)),
    (Metric::gauge("fill_bytes_wanted", "Bytes in the manifest."), |of| number(of.bytes_wanted.0)),
    (Metric::gauge("fill_bytes_held", "Of these, published or verified."), |of| {
        number(of.bytes_held.0)
    }),
    (Metric::gauge("fill_objects_waiting", "Objects that a master is to fetch first."), |of| {
        number(of.objects_waiting)
    }),
    (
        Metric::gauge("fill_open", "1 within the hours in which fill may fetch, as control said."),
        |of| number(u64::from(of.is_open)),
    ),
    (Metric::gauge("manifest_generation", "Generation of the manifest in force."), |of| {
        number(of.generation.0)
    }),
    (Metric::gauge("trust_generation", "Generation of the trust document in force."), |of| {
        number(of.trust.0)
    }),
];

const EXPECTED: Metric = Metric::gauge(
    "expected_objects",
    "Objects in the manifest of which control expects that viewers are sent much.",
);

const CERTIFICATE_LEFT: Metric = Metric::gauge(
    "certificate_seconds_left",
    "Until the viewers' certificate ends that has a key of this kind.",
);

const CERTIFICATE: &[Row<Reload>] = &[
    (Metric::counter("certificate_reloads_total", "Times that a new one was taken up."), |of| {
        number(of.reloads)
    }),
    (
        Metric::counter("certificate_reload_failures_total", "Times that its files were no good."),
        |of| number(of.failures),
    ),
];

/// How long a client may take to ask, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest request that is read.
const REQUEST_LEN_MAX: usize = 4096;

/// What is not told by workers, as of now.
pub fn others(
    storage: &StorageHandle,
    certificate: &Reload,
    drives: &[impl AsRef<Path>],
    said: &[DriveHealth],
) -> Page {
    let mut page = Page::new(PREFIX);
    let statuses = storage.drives();
    put_each(&mut page, DRIVES, || statuses.iter().map(|drive| (drive.index, drive)));
    put_each(&mut page, LOADS, || {
        statuses.iter().filter_map(|drive| Some((drive.index, drive.load.as_ref()?)))
    });
    put_each(&mut page, DEVICES, || {
        let all = DriveIndex::all(drives.len()).zip(drives);
        let device = |path: &Path| said.iter().find(move |device| Path::new(&device.path) == path);
        all.filter_map(move |(index, path)| Some((index, device(path.as_ref())?)))
    });
    page.table(FillCounters::METRICS, storage.fill_counters().each().copied());
    put(&mut page, FILL, &storage.fill());
    page.table(IntegrityCounters::METRICS, storage.integrity().each().copied());
    page.table(PeerCounters::METRICS, storage.peer().each().map(now));
    if let Some(status) = storage.tiering() {
        let classes = || DriveIndex::all(status.classes.len()).zip(&status.classes);
        put_each(&mut page, CLASSES, classes);
        page.table(TierCounters::METRICS, status.counters.each().copied());
        put(&mut page, TIERING, &status);
    }
    if let Some(status) = storage.takeover() {
        put(&mut page, TAKEOVER, &status);
    }
    page.table(DemandCounters::METRICS, storage.demand().each().copied());
    page.put(&EXPECTED, "", storage.expected_objects());
    for (kind, left) in certificate.seconds_left() {
        page.put(&CERTIFICATE_LEFT, &format!("key=\"{}\"", kind.name()), left);
    }
    put(&mut page, CERTIFICATE, certificate);
    let help = "Until the certificate ends; renewed by itself when a third of its life is left.";
    let left = Metric::gauge("identity_seconds_left", help);
    page.put(&left, "", storage.identity_seconds_left());
    page
}

/// All metrics as Prometheus text: what workers tell, and `others` as it was last.
pub fn text(workers: &[Arc<ServeCounters>], others: &str) -> String {
    let mut page = Page::new(PREFIX);
    let mut sums = Counters::METRICS.iter().map(|_| 0).collect::<Vec<u64>>();
    for worker in workers {
        sums.iter_mut().zip(worker.counts.each()).for_each(|(sum, count)| *sum += now(count));
    }
    page.table(Counters::METRICS, sums);
    let help = "CPU time of the workers.";
    let cpu = Metric { unit: Unit::Nanos, ..Metric::counter("worker_cpu_seconds_total", help) };
    page.table(&[cpu], [sum(workers, |worker| worker.cpu().0)]);
    let help = "Read from drives for a byte sent, so far.";
    let ratio = Metric::gauge("drive_bytes_per_egress_byte", help);
    let egress = sum(workers, |worker| now(&worker.counts.body_bytes)).max(1);
    let thousandths = sum(workers, |worker| now(&worker.counts.read_bytes)) * 1000 / egress;
    page.put(&ratio, "", format_args!("{}.{:03}", thousandths / 1000, thousandths % 1000));
    let late = workers.iter().map(|worker| worker.lateness()).collect::<Vec<_>>();
    page.histogram(
        ("burst_lateness_seconds", "How much later than its moment a paced burst went."),
        LATE_MICROS.map(Duration::from_micros),
        (0..=LATE_MICROS.len()).map(|at| late.iter().map(|late| late.counts[at]).sum()),
        Duration::from_nanos(late.iter().map(|late| late.sum.0).sum()),
    );
    page.into_text() + others
}

fn put<T>(page: &mut Page, rows: &[Row<T>], thing: &T) {
    for (metric, of) in rows {
        of(thing).into_iter().for_each(|value| page.put(metric, "", value));
    }
}

/// The same of a thing for each drive. All drives' lines of a metric follow each other.
fn put_each<'a, T: 'a, I: Iterator<Item = (DriveIndex, &'a T)>>(
    page: &mut Page,
    rows: &[Row<T>],
    things: impl Fn() -> I,
) {
    for (metric, of) in rows {
        for (drive, value) in things().filter_map(|(drive, thing)| Some((drive, of(thing)?))) {
            page.put(metric, &format!("drive=\"{drive}\""), value);
        }
    }
}

/// Whole numbers up to 2^53 are exact in Prometheus's format, which knows no other.
#[expect(clippy::as_conversions, reason = "u64 to f64 has no other way; rounding is fine here")]
fn number(value: u64) -> Option<f64> {
    Some(value as f64)
}

fn truth(value: bool) -> Option<f64> {
    number(u64::from(value))
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
        "HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\n\
         Content-Length: {len}\r\nConnection: close\r\n\r\n"
    );
    client.write_all(head.as_bytes())?;
    client.write_all(body.as_bytes())
}

#[cfg(test)]
#[path = "../../tests/promtool/mod.rs"]
mod promtool;

#[cfg(test)]
mod tests {
    use super::*;
    use model::status::{ScrubStatus, Units};
    use model::units::Nanos;

    /// Whatever a machine has: the page of a process in `tests/confined.rs` lacks some of it.
    #[test]
    fn prometheus_finds_no_fault_with_what_a_drive_may_tell() {
        let load = DriveLoad {
            headroom_permille: 500,
            service: Nanos(1),
            service_unloaded: Nanos(1),
            fill_granted: None,
            fills_held: 1,
            windows: 2,
            windows_late: 1,
        };
        let drive = DriveStatus {
            units: Units { count: 1, dead: Bytes(1) },
            scrub: ScrubStatus { at: u64::MAX / 2, passes: 1 },
            load: Some(load),
            ..DriveStatus::unknown(DriveIndex(0), "/d/1".into())
        };
        let device = DriveHealth {
            is_good: Some(false),
            temperature: Some(40),
            used_percent: Some(1),
            media_errors: Some(0),
            spare_percent: Some(100),
            ..DriveHealth::default()
        };
        let status = TieringStatus::default();
        let mut page = Page::new(PREFIX);
        let both = [DriveIndex(0), DriveIndex(1)];
        put_each(&mut page, DRIVES, || both.into_iter().map(|index| (index, &drive)));
        put_each(&mut page, LOADS, || both.into_iter().map(|index| (index, &load)));
        put_each(&mut page, DEVICES, || both.into_iter().map(|index| (index, &device)));
        put_each(&mut page, CLASSES, || both.into_iter().map(|index| (index, &Class::Fast)));
        page.table(TierCounters::METRICS, status.counters.each().copied());
        put(&mut page, TIERING, &status);
        put(&mut page, TAKEOVER, &takeover::Status::default());
        let text = text(&[], &page.into_text());
        assert!(text.contains("\nnearcast_drive_scrub_position{drive=\"1\"} 0.5\n"), "{text}");
        promtool::check(&text).unwrap();
    }

    #[test]
    fn what_workers_count_is_summed() {
        let shared = Arc::new(ServeCounters::default());
        let counts = (1..).zip(shared.counts.each());
        counts.for_each(|(n, count)| count.store(n, std::sync::atomic::Ordering::Relaxed));
        shared.store_cpu(Nanos::millis(750));
        let text = text(&[shared.clone(), shared], "others 1\n");
        for (n, metric) in (1..).zip(Counters::METRICS) {
            let line = format!("\nnearcast_{} {}\n", metric.name, 2 * n);
            assert!(text.contains(&line), "{line}");
        }
        assert!(text.contains("\nnearcast_worker_cpu_seconds_total 1.5\n"));
        assert!(text.ends_with("\nnearcast_burst_lateness_seconds_count 0\nothers 1\n"));
    }
}
