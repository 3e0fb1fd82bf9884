//! Messages off the wire, checked once, as the director wants them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use director::drain::Drain;
use director::{Entry, Format, Window};
use model::id::{AssetId, AssetVersionId, Generation, IdError, ObjectId};
use model::inventory::{Check, Delta};
use model::limits::DRIVES_MAX;
use model::manifest::AssetVersion;
use model::object::{BLOCK_LEN, BlockHash, Blocks, BlocksError, block_hash};
use model::topology::Prefix;
use model::units::{BitsPerSecond, Bytes, Nanos, UnixSeconds};
use model::view::Load;
use playback::renditions::RENDITIONS_MAX;
use playback::{PlaylistError, dash, hls};
use routes::{Attributes, Difference, Digest, Part, Peering};
use wire::convert::{WireError, files_in};
use wire::v1::fleet::DrainOut;
use wire::v1::ingest::{EntryFormat, NewFile, NewVersion};
use wire::v1::manifest as wire_manifest;
use wire::v1::report::{DriveState, Inventory, Report};
use wire::v1::routes::{Example, Heard, LEFT_OUT_MAX, LeftOut, SESSIONS_MAX, Session};

use crate::config::BaseUrl;

/// Why a message was refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error(transparent)]
    Id(#[from] IdError),
    #[error(transparent)]
    Routes(#[from] routes::NotADigest),
    #[error("{field}: {reason}")]
    Url { field: &'static str, reason: String },
    #[error("{path}: blocks must be 32-byte hashes in base64 (standard alphabet, padded)")]
    BlocksEncoding { path: String },
    #[error("{path}: {error}")]
    Blocks { path: String, error: BlocksError },
    #[error("entry {path}: {error}")]
    Playlist { path: String, error: PlaylistError },
    #[error("entry {0}: its text is not the file of that path: send both from one reading")]
    EntryText(String),
    #[error("entry {path} refers to {file}, which is not among the files")]
    FileMissing { path: String, file: String },
    #[error("{field}: \"{text}\" is no time: write UTC, as in 2027-01-31T22:00:00Z (RFC 3339)")]
    Time { field: &'static str, text: String },
    #[error("until is not after from, so the version could never be shown: say a later until")]
    Window,
    #[error("{path}: its rendition is {number}, and the highest is {RENDITIONS_MAX}")]
    Rendition { path: String, number: u8 },
    #[error("there is no source: appliances fill from at least one base URL")]
    NoSource,
}

/// A new version, checked as far as it can be without other versions.
pub(crate) struct Checked {
    pub(crate) files: AssetVersion,
    pub(crate) entries: Vec<Entry>,
    /// The rendition of each file, in the order of paths.
    pub(crate) renditions: Vec<u8>,
    /// The blocks of its objects, each once.
    pub(crate) blocks: Arc<[Blocks]>,
    pub(crate) window: Option<Window>,
}

/// A report as the director wants it.
pub(crate) fn report_in(wire: &Report) -> Result<director::Report, Refused> {
    let url = |field, text: &str| {
        text.parse::<BaseUrl>().map(drop).map_err(|reason| Refused::Url { field, reason })
    };
    url("base_url", &wire.base_url)?;
    wire.plain_url.as_deref().map_or(Ok(()), |text| url("plain_url", text))?;
    if wire.peer_address.as_deref().is_some_and(|address| !is_address(address)) {
        let reason = "it must be host:port, as in a1.example:8444 or [::1]:8444".to_owned();
        return Err(Refused::Url { field: "peer_address", reason });
    }
    let in_use = || wire.drives.iter().filter(|drive| drive.state == DriveState::Ok);
    let usable = in_use().map(|drive| drive.capacity_bytes).fold(0, u64::saturating_add);
    let files = wire.files.as_ref().map(files_in).transpose()?;
    let all = files.as_ref().filter(|files| files.from == 0);
    Ok(director::Report {
        start_id: wire.start_id,
        sequence: wire.sequence,
        base_url: wire.base_url.clone(),
        plain_url: wire.plain_url.clone(),
        peer_address: wire.peer_address.clone(),
        generation: Generation(wire.generation),
        trust: wire.trust.map(Generation),
        served: wire.served_generation.map(Generation),
        load: Load {
            connections: wire.load.connections,
            connections_max: wire.load.connections_max,
            egress: BitsPerSecond(wire.load.egress_bits_per_second),
            egress_max: BitsPerSecond(wire.load.egress_max_bits_per_second),
            cpu_permille: cpu_in(wire.load.cpu_percent),
            drives_permille: drives_in(wire),
            memory_permille: wire.load.memory_permille.unwrap_or(0),
            drops_permille: wire.load.drops_permille.unwrap_or(0),
        },
        serving: wire.load.serving,
        hardware: hardware_in(wire),
        drives_in_use: in_use().count(),
        drives_set_aside: wire.drives.len() - in_use().count(),
        usable: Bytes(usable),
        cpu_percent: wire.load.cpu_percent.clamp(0.0, 100.0),
        fill: BitsPerSecond(wire.fill.bits_per_second),
        inventory: Delta {
            from: wire.inventory.from,
            to: wire.inventory.to,
            held: objects_in(&wire.inventory.held)?,
            gone: objects_in(&wire.inventory.gone)?,
            check: wire.inventory.check.map(|of| Check { count: of.count, sum: of.sum }),
        },
        came: all.map_or_else(Check::default, |files| Check::of_files(&files.came)),
        files,
        routes: wire.routes.as_ref().map(hears_in).transpose()?,
        told_share: wire.told_share_permille,
        told_titles: wire.told_titles_permille,
        own_share: wire.own_share_permille,
        own_titles: wire.own_titles_permille,
    })
}

/// A table is further behind than that in no fleet: an appliance that says so is not believed.
const BEHIND_MAX_MS: u64 = 3_600_000;

fn hears_in(heard: &Heard) -> Result<director::Hears, routes::NotADigest> {
    Ok(director::Hears {
        digest: heard.digest.as_ref().map(|digest| digest.parse()).transpose()?,
        is_old: heard.error.is_some(),
        behind: Nanos::millis(heard.behind_ms.min(BEHIND_MAX_MS)),
    })
}

#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is 0 to 1000 by then"
)]
fn cpu_in(percent: f32) -> u32 {
    // One that is no number counts as none.
    (percent.clamp(0.0, 100.0) * 10.0).round() as u32
}

/// In use of the drive that has least left, of those that serve. A hung one is no measure.
fn drives_in(wire: &Report) -> u32 {
    let serving = wire.drives.iter().filter(|drive| drive.state == DriveState::Ok && !drive.hung);
    let left = serving.filter_map(|drive| drive.headroom_permille).min();
    left.map_or(0, |left| 1000_u32.saturating_sub(left))
}

/// `host:port`.
fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let port_is_good =
        port.bytes().all(|b| b.is_ascii_digit()) && port.parse().is_ok_and(|port: u16| port != 0);
    let host_is_good = match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            let visible = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
            (1..=HOST_LEN_MAX).contains(&host.len()) && host.bytes().all(visible)
        }
    };
    port_is_good && host_is_good
}

/// What the appliance runs on; bounded, whatever it sends.
fn hardware_in(wire: &Report) -> director::Hardware {
    let bounded = |text: &String| {
        let mut text = text.clone();
        text.truncate(text.floor_char_boundary(HARDWARE_LEN_MAX));
        text
    };
    let drives = wire.drives.iter().take(DRIVES_MAX).map(|drive| &drive.id);
    director::Hardware {
        machine: bounded(&wire.machine),
        drives: drives.filter(|id| !id.is_empty()).map(bounded).collect(),
    }
}

/// A part of what an appliance hears, checked.
pub(crate) fn routes_part_in(wire: &wire::v1::routes::Part) -> Result<Part, RoutesError> {
    let digest = |text: &String| text.parse::<Digest>();
    let prefix = |text: &String| {
        text.parse::<Prefix>().map_err(|_| RoutesError::Prefix(text.chars().take(60).collect()))
    };
    let mut difference = Difference::default();
    for group in &wire.announced {
        let peering = match group.peering {
            wire::v1::routes::Peering::Private => Peering::Private,
            wire::v1::routes::Peering::Public => Peering::Public,
        };
        if group.as_path.is_empty() {
            return Err(RoutesError::NoPath);
        }
        if routes::PATH_MAX < group.as_path.len()
            || routes::COMMUNITIES_MAX < group.communities.len()
        {
            return Err(RoutesError::Long);
        }
        let community = |text: &String| text.parse().map_err(|()| RoutesError::Community);
        let communities = group.communities.iter().map(community).collect::<Result<_, _>>()?;
        let attributes = Attributes::new(peering, group.as_path.clone(), group.med, communities);
        let attributes = Arc::new(attributes);
        for text in &group.prefixes {
            difference.announced.push((prefix(text)?, Arc::clone(&attributes)));
        }
    }
    difference.withdrawn = wire.withdrawn.iter().map(prefix).collect::<Result<_, _>>()?;
    Ok(Part {
        from: wire.from.as_ref().map(digest).transpose()?,
        to: digest(&wire.to)?,
        number: wire.number,
        is_last: wire.is_last,
        difference,
    })
}

/// Why a part of a table of routes is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RoutesError {
    #[error(transparent)]
    Digest(#[from] routes::NotADigest),
    #[error("\"{0}\" is no prefix")]
    Prefix(String),
    #[error("a community is two or three numbers with colons between")]
    Community,
    #[error("prefixes were announced without an AS path: leave those out")]
    NoPath,
    #[error(
        "an AS path has at most {path} networks, and a route at most {communities} communities",
        path = routes::PATH_MAX,
        communities = routes::COMMUNITIES_MAX
    )]
    Long,
}

/// The report as it is kept for people: without the inventory, and of bounded size whatever an
/// appliance sends.
pub(crate) fn shown(mut wire: Report) -> Report {
    (wire.inventory, wire.files) = (Inventory::default(), None);
    wire.viewers = None;
    wire.load.cpu_percent = wire.load.cpu_percent.clamp(0.0, 100.0);
    wire.errors.truncate(ERRORS_MAX);
    wire.drives.truncate(DRIVES_MAX);
    for error in &mut wire.errors {
        shorten(&mut error.room);
        shorten(&mut error.text);
    }
    for drive in &mut wire.drives {
        shorten(&mut drive.id);
        shorten(&mut drive.path);
        drive.reason.iter_mut().for_each(shorten);
    }
    shorten(&mut wire.software);
    wire.routes.iter_mut().for_each(shorten_heard);
    wire
}

fn shorten_heard(heard: &mut Heard) {
    heard.digest.iter_mut().for_each(shorten);
    heard.error.iter_mut().for_each(shorten);
    heard.sessions.truncate(SESSIONS_MAX);
    for session in &mut heard.sessions {
        let Session { name, state, neighbour, last_error, .. } = session;
        [name, state].into_iter().chain(neighbour).chain(last_error).for_each(shorten);
    }
    heard.left_out.truncate(LEFT_OUT_MAX);
    for LeftOut { cause, why, examples, .. } in &mut heard.left_out {
        [cause, why].into_iter().for_each(shorten);
        examples.truncate(LEFT_OUT_MAX);
        for Example { prefix, session } in examples {
            [prefix, session].into_iter().for_each(shorten);
        }
    }
}

pub(crate) fn shorten(text: &mut String) {
    text.truncate(text.floor_char_boundary(TEXT_LEN_MAX));
}

/// A new version, checked: every block proved, every entry playable and every reference there.
pub(crate) fn version_in(
    asset: &AssetId,
    version: &AssetVersionId,
    wire: &NewVersion,
) -> Result<Checked, Refused> {
    if wire.sources.is_empty() {
        return Err(Refused::NoSource);
    }
    let file = |file: &NewFile| wire_manifest::File {
        object: file.object.clone(),
        len: file.len,
        content_type: file.content_type.clone(),
    };
    let files = wire::convert::version_in(&wire_manifest::AssetVersion {
        id: version.to_string(),
        asset: asset.to_string(),
        sources: wire.sources.clone(),
        modified_unix_s: wire.modified_unix_s,
        pace_bps: None,
        files: wire.files.iter().map(|(path, new)| (path.clone(), file(new))).collect(),
    })?;
    let mut blocks = BTreeMap::new();
    for (path, new) in &wire.files {
        if RENDITIONS_MAX < new.rendition {
            return Err(Refused::Rendition { path: path.clone(), number: new.rendition });
        }
        let proved = blocks_in(path, new)?;
        blocks.insert(proved.id(), proved);
    }
    let mut entries =
        wire.entries.iter().map(|entry| entry_in(&files, entry)).collect::<Result<Vec<_>, _>>()?;
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    entries.dedup_by(|a, b| a.path == b.path);
    let files = Arc::unwrap_or_clone(files);
    let window = wire.window.as_ref().map(window_in).transpose()?;
    let renditions = wire.files.values().map(|file| file.rendition).collect();
    Ok(Checked { files, entries, renditions, blocks: blocks.into_values().collect(), window })
}

/// The times at which a version may be shown.
pub(crate) fn window_in(wire: &wire::v1::ingest::Window) -> Result<Window, Refused> {
    let time = |field, text: &Option<String>| {
        let text = text.as_deref();
        text.map(|text| time_in(text).ok_or_else(|| Refused::Time { field, text: text.to_owned() }))
            .transpose()
    };
    let window = Window { from: time("from", &wire.from)?, until: time("until", &wire.until)? };
    match (window.from, window.until) {
        (Some(from), Some(until)) if until <= from => Err(Refused::Window),
        _ => Ok(window),
    }
}

/// The same for people.
pub(crate) fn window_out(window: Window) -> wire::v1::ingest::Window {
    wire::v1::ingest::Window { from: window.from.map(time_out), until: window.until.map(time_out) }
}

/// A time in UTC (RFC 3339), after 1970.
pub(crate) fn time_in(text: &str) -> Option<UnixSeconds> {
    let time = humantime::parse_rfc3339(text).ok()?;
    Some(UnixSeconds(time.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs()))
}

/// RFC 3339, in UTC.
pub(crate) fn time_out(time: UnixSeconds) -> String {
    let since = Duration::from_secs(time.0);
    let time = SystemTime::UNIX_EPOCH.checked_add(since).unwrap_or(SystemTime::UNIX_EPOCH);
    humantime::format_rfc3339_seconds(time).to_string()
}

/// When an appliance is drained, for the wire.
pub(crate) fn drain_out(drain: Drain) -> DrainOut {
    DrainOut { from_unix_s: drain.from.0, until_unix_s: drain.until.map(|until| until.0) }
}

/// The same from the wire.
pub(crate) fn drain_in(drain: DrainOut) -> Drain {
    Drain { from: UnixSeconds(drain.from_unix_s), until: drain.until_unix_s.map(UnixSeconds) }
}

fn objects_in(list: &[String]) -> Result<Vec<ObjectId>, Refused> {
    list.iter().map(|id| Ok(id.parse()?)).collect()
}

fn blocks_in(path: &str, new: &NewFile) -> Result<Blocks, Refused> {
    let encoding = || Refused::BlocksEncoding { path: path.to_owned() };
    let bytes = STANDARD.decode(&new.blocks).map_err(|_| encoding())?;
    let (hashes, rest) = bytes.as_chunks::<32>();
    if !rest.is_empty() {
        return Err(encoding());
    }
    let hashes = hashes.iter().map(|hash| BlockHash(*hash)).collect();
    Blocks::prove(new.object.parse()?, Bytes(new.len), hashes)
        .map_err(|error| Refused::Blocks { path: path.to_owned(), error })
}

fn entry_in(files: &AssetVersion, wire: &wire::v1::ingest::Entry) -> Result<Entry, Refused> {
    let path = || wire.path.clone();
    let fault = |error| Refused::Playlist { path: path(), error };
    let (format, needed) = match wire.format {
        EntryFormat::Hls => {
            let playlist = hls::check(&wire.path, &wire.text).map_err(fault)?;
            if playlist.kind != hls::Kind::Multivariant {
                return Err(fault(PlaylistError::Mixed));
            }
            (Format::Hls, playlist.files)
        }
        EntryFormat::Dash => {
            (Format::Dash, dash::check(&wire.path, &wire.text).map_err(fault)?.files)
        }
    };
    let file = files.files.get(&wire.path);
    if file.is_none_or(|file| file.object != object_of(wire.text.as_bytes())) {
        return Err(Refused::EntryText(path()));
    }
    match needed.into_iter().find(|file| !files.files.contains_key(file)) {
        Some(file) => Err(Refused::FileMissing { path: path(), file }),
        None => Ok(Entry { path: path(), format, text: wire.text.as_str().into() }),
    }
}

fn object_of(bytes: &[u8]) -> ObjectId {
    let blocks: Vec<&[u8]> = bytes.chunks(BLOCK_LEN.as_usize()).collect();
    let single = blocks.len() == 1;
    let hashes = (0..).zip(&blocks).map(|(i, block)| block_hash(i, block, single)).collect();
    Blocks::of_hashes(Bytes::of(bytes.len()), hashes).expect("the hashes fit the length").id()
}

/// Errors kept of one report: what the wire allows.
const ERRORS_MAX: usize = 20;

/// Longest host name (RFC 1035 section 2.3.4).
const HOST_LEN_MAX: usize = 253;

/// UUIDs and digests have 32 digits.
const HARDWARE_LEN_MAX: usize = 64;

/// Longest text kept of a report.
const TEXT_LEN_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use model::view::Bottleneck;
    use wire::v1::ingest;
    use wire::v1::report::{Drive, ReportedError};

    #[test]
    fn a_report_adds_up_only_drives_in_use() {
        let drive = |state, capacity_bytes| Drive { state, capacity_bytes, ..Drive::default() };
        let mut wire =
            Report { base_url: "https://127.0.0.2:8443".to_owned(), ..Report::default() };
        wire.drives = vec![
            drive(DriveState::Ok, 10),
            drive(DriveState::SetAside, 20),
            drive(DriveState::Ok, 5),
        ];
        let report = report_in(&wire).unwrap();
        assert_eq!(
            (report.usable, report.drives_in_use, report.drives_set_aside),
            (Bytes(15), 2, 1)
        );
        wire.base_url = "https://x\"/".to_owned();
        assert!(matches!(report_in(&wire), Err(Refused::Url { field: "base_url", .. })));
    }

    #[test]
    fn the_words_of_processes_on_an_appliance_are_read_each_as_its_own() {
        let wire = Report {
            base_url: "https://127.0.0.2:8443".to_owned(),
            told_share_permille: Some(1),
            told_titles_permille: Some(2),
            own_share_permille: Some(3),
            own_titles_permille: Some(4),
            ..Report::default()
        };
        let read = report_in(&wire).unwrap();
        let words = [read.told_share, read.told_titles, read.own_share, read.own_titles];
        assert_eq!(words, [1, 2, 3, 4].map(Some));
    }

    #[test]
    fn each_bottleneck_is_read_and_the_worst_drive_counts() {
        let drive = |state, hung, headroom_permille| Drive {
            state,
            hung,
            headroom_permille,
            ..Drive::default()
        };
        let mut wire =
            Report { base_url: "https://127.0.0.2:8443".to_owned(), ..Report::default() };
        wire.drives = vec![
            drive(DriveState::Ok, false, Some(300)),
            drive(DriveState::Ok, false, Some(100)),
            drive(DriveState::Ok, false, None),
            drive(DriveState::Ok, true, Some(1)),
            drive(DriveState::SetAside, false, Some(2)),
        ];
        wire.load.cpu_percent = 55.55;
        (wire.load.memory_permille, wire.load.drops_permille) = (Some(120), Some(70));
        let load = report_in(&wire).unwrap().load;
        assert_eq!((load.drives_permille, load.cpu_permille), (900, 556));
        assert_eq!((load.memory_permille, load.drops_permille), (120, 70));
        assert_eq!(load.worst(), (Bottleneck::Drives, 900));
        wire.load.cpu_percent = f32::NAN;
        wire.drives[1].headroom_permille = Some(u32::MAX);
        let load = report_in(&wire).unwrap().load;
        assert_eq!((load.drives_permille, load.cpu_permille), (700, 0));
    }

    #[test]
    fn siblings_are_told_only_addresses() {
        for good in ["10.0.0.1:8444", "a1.example:1", "[::1]:65535"] {
            assert!(is_address(good), "{good}");
        }
        let long = format!("{}:1", "a".repeat(HOST_LEN_MAX + 1));
        for bad in ["", "a1", "a1:", ":1", "a1:0", "a1:+1", "a1:65536", "::1:1", "a b:1", "a/b:1"] {
            assert!(!is_address(bad), "{bad}");
        }
        assert!(!is_address(&long) && !is_address("[a]:1") && !is_address("http://a1:1"));
        let address = Some("x\r\ny:1".to_owned());
        let base_url = "https://127.0.0.2:8443".to_owned();
        let wire = Report { base_url, peer_address: address, ..Report::default() };
        assert!(matches!(report_in(&wire), Err(Refused::Url { field: "peer_address", .. })));
    }

    #[test]
    fn a_table_that_is_not_known_yet_is_no_empty_one() {
        let error = Some("it was not asked yet".to_owned());
        let heard = Heard { error, behind_ms: u64::MAX, ..Heard::default() };
        let behind = Nanos::seconds(3600);
        let hears = director::Hears { digest: None, is_old: true, behind };
        assert_eq!(hears_in(&heard), Ok(hears));
        let digest = Some(wire::v1::routes::EMPTY.to_owned());
        let empty = hears_in(&Heard { digest, ..Heard::default() }).unwrap();
        assert_eq!((empty.digest, empty.is_old), (Some(Digest::default()), false));
        assert!(hears_in(&Heard { digest: Some("7".to_owned()), ..Heard::default() }).is_err());
    }

    #[test]
    fn what_is_kept_of_a_report_is_bounded() {
        let drive = Drive { path: "é".repeat(1000), ..Drive::default() };
        let error = ReportedError { text: "x".repeat(5000), ..ReportedError::default() };
        let mut wire = Report { drives: vec![drive; 300], ..Report::default() };
        wire.errors = vec![error; 100];
        wire.inventory.held = vec!["ab".repeat(32)];
        let long = || "x".repeat(5000);
        let session = Session { last_error: Some(long()), ..Session::default() };
        let example = Example { session: long(), ..Example::default() };
        let left_out = LeftOut { examples: vec![example; 100], ..LeftOut::default() };
        let (sessions, left_out) = (vec![session; 1000], vec![left_out; 100]);
        wire.routes = Some(Heard { error: Some(long()), sessions, left_out, ..Heard::default() });
        let shown = shown(wire);
        let heard = shown.routes.unwrap();
        assert_eq!((heard.sessions.len(), heard.left_out.len()), (SESSIONS_MAX, LEFT_OUT_MAX));
        assert_eq!(heard.left_out[0].examples.len(), LEFT_OUT_MAX);
        assert_eq!(heard.left_out[0].examples[0].session.len(), TEXT_LEN_MAX);
        let told = [heard.error.as_ref(), heard.sessions[0].last_error.as_ref()];
        assert!(told.iter().all(|text| text.unwrap().len() == TEXT_LEN_MAX));
        assert_eq!((shown.drives.len(), shown.errors.len()), (DRIVES_MAX, ERRORS_MAX));
        assert_eq!(shown.drives[0].path, "é".repeat(TEXT_LEN_MAX / 2));
        assert_eq!(shown.errors[0].text.len(), TEXT_LEN_MAX);
        assert_eq!(shown.inventory, Inventory::default());
    }

    #[test]
    fn a_part_of_a_table_is_refused_if_its_attributes_have_no_end() {
        use wire::v1::routes::{Group, Part};
        let taken = |as_path: usize, communities: usize| {
            let group = Group {
                as_path: vec![1; as_path],
                communities: vec!["1:1".to_owned(); communities],
                prefixes: vec!["8.8.8.0/24".to_owned()],
                ..Group::default()
            };
            let (to, announced) = (format!("1-{}", "0".repeat(32)), vec![group]);
            routes_part_in(&Part { to, announced, ..Part::default() })
        };
        assert_eq!(taken(256, 256).unwrap().difference.announced.len(), 1);
        assert!(matches!(taken(257, 0), Err(RoutesError::Long)));
        assert!(matches!(taken(1, 257), Err(RoutesError::Long)));
        assert!(matches!(taken(0, 0), Err(RoutesError::NoPath)));
    }

    #[test]
    fn a_version_is_taken_only_if_all_of_it_is_proved() {
        let good = || new_version("#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\nv.m3u8\n");
        assert_eq!(check(&good()).unwrap().blocks.len(), 2);
        let refused = |change: &dyn Fn(&mut NewVersion)| {
            let mut new = good();
            change(&mut new);
            check(&new).err().unwrap().to_string()
        };
        let texts = [
            refused(&|new| new.sources.clear()),
            refused(&|new| new.sources = vec!["ftp://x/".to_owned()]),
            refused(&|new| new.files.get_mut("v.m3u8").unwrap().len += 1 << 20),
            refused(&|new| new.files.get_mut("v.m3u8").unwrap().blocks = STANDARD.encode([0; 32])),
            refused(&|new| new.files.get_mut("v.m3u8").unwrap().blocks = "x".to_owned()),
            refused(&|new| new.entries[0].text = "#EXTM3U\n".to_owned()),
            refused(&|new| new.entries[0].text.push('\n')),
            refused(&|new| new.entries[0].path = "other.m3u8".to_owned()),
            refused(&|new| drop(new.files.remove("v.m3u8"))),
            refused(&|new| new.files.get_mut("v.m3u8").unwrap().rendition = 65),
        ];
        insta::assert_snapshot!("refusals", texts.join("\n"));
    }

    fn check(new: &NewVersion) -> Result<Checked, Refused> {
        version_in(&"film".parse().unwrap(), &"film-1".parse().unwrap(), new)
    }

    fn new_version(master: &str) -> NewVersion {
        let file = |text: &str| NewFile {
            object: object_of(text.as_bytes()).to_string(),
            len: Bytes::of(text.len()).0,
            content_type: "application/vnd.apple.mpegurl".to_owned(),
            blocks: STANDARD.encode(object_of(text.as_bytes()).0),
            rendition: 0,
        };
        let (path, text) = ("master.m3u8".to_owned(), master.to_owned());
        NewVersion {
            sources: vec!["https://origin.example/film/".to_owned()],
            modified_unix_s: 1,
            files: BTreeMap::from([
                ("master.m3u8".to_owned(), file(master)),
                ("v.m3u8".to_owned(), file("hello")),
            ]),
            entries: vec![ingest::Entry { path, format: EntryFormat::Hls, text }],
            window: None,
            again: false,
        }
    }
}
