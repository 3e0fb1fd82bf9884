//! Viewers: ask control whom to ask, fetch ranges, compare every byte, go elsewhere if need be.

use std::rc::Rc;

use model::handle::ConnectionId;
use model::id::ObjectId;
use model::manifest::{AssetVersion, File};
use model::units::{Bytes, Nanos, UnixSeconds};
use playback::token::{Grant, Scope, Session, SigningInput, assemble};

use crate::fleet::Fleet;
use crate::oracle;
use crate::pipe::{Packet, Pipe};
use crate::process::Process;
use crate::server::Server;
use crate::stage::Stage;
use crate::world::{Machine, Party, World};

/// A viewer's side of a connection. Dropping it leaves.
struct Link {
    pipe: Rc<Pipe>,
    server: Rc<Server>,
    process: Rc<Process>,
    connection: ConnectionId,
    /// What came and was not looked at.
    rest: Vec<u8>,
}

impl Drop for Link {
    fn drop(&mut self) {
        let (server, connection) = (Rc::clone(&self.server), self.connection);
        let (fleet, stage) = (&self.process.world, &self.process.world.stage);
        if fleet.is_connected(Party::Machine(self.process.machine.index), self.pipe.party) {
            let when = stage.now() + Nanos::millis(4);
            stage.at(self.process.troupe, when, move || server.leave(connection));
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Gone {
    /// Nothing answers, or it broke off.
    Away,
    Status(u16),
    /// It sent us elsewhere, to this URL.
    Redirected(String),
    Left,
}

struct Ask<'a> {
    version: &'a AssetVersion,
    path: &'a str,
    file: &'a File,
    /// First byte and one past the last; none for all.
    range: Option<(u64, u64)>,
    /// Leave after so many bytes.
    leave_after: Option<usize>,
}

pub(crate) const VIEWERS: u64 = 5;
/// Nothing for so long: the viewer goes elsewhere.
const PATIENCE: Nanos = Nanos::seconds(6);
/// Seconds that a token lasts: longer than a simulation.
const TOKEN_LASTS: u64 = 3600;

/// Plays until the simulation ends.
pub(crate) async fn run(fleet: Rc<Fleet>, number: u64) {
    let stage = fleet.stage.clone();
    loop {
        stage.sleep(stage.millis(50, 2500)).await;
        // Of one of eight sites, or of none.
        let client = stage.below(9);
        let random = stage.bytes(12).try_into().expect("twelve bytes were drawn");
        let session = Session::of_random(random);
        let control = Rc::clone(&fleet.control);
        let answer = move || control.list(client, &session);
        let party = Party::Viewer(number);
        let list = fleet.ask((party, Party::Control), PATIENCE, answer).await;
        let Some((version, machines)) = list else { continue };
        let expires = UnixSeconds(fleet.wall().0 + TOKEN_LASTS);
        let token = token(&fleet, &version, session, expires);
        for (path, file) in &version.files {
            if stage.one_in(3) {
                continue;
            }
            let range = range(&stage, file.len);
            let leave_after = stage.one_in(10).then(|| Bytes(stage.below(400_000)).as_usize());
            let ask = Ask { version: &version, path, file, range, leave_after };
            watch(&fleet, number, &machines, &token, &ask).await;
        }
    }
}

/// One file from the first that has it.
async fn watch(fleet: &Rc<Fleet>, number: u64, machines: &[usize], token: &str, ask: &Ask<'_>) {
    for index in machines {
        let machine = fleet.machines.borrow().get(*index).cloned();
        let Some(machine) = machine else { continue };
        let target = format!("/t/{token}/{}/{}", ask.version.id, ask.path);
        let mut got = match connect(fleet, number, &machine).await {
            Some(mut link) => fetch(fleet, &mut link, &target, ask).await,
            None => Err(Gone::Away),
        };
        if let Err(Gone::Redirected(url)) = &got {
            got = follow(fleet, number, &machine, url, ask).await;
        }
        match got {
            Ok(()) | Err(Gone::Left) => return,
            Err(_) => fleet.count(|counts| counts.failed_over += 1),
        }
    }
}

/// Where a redirect leads: to another appliance, and no further.
async fn follow(
    fleet: &Rc<Fleet>,
    number: u64,
    from: &Machine,
    url: &str,
    ask: &Ask<'_>,
) -> Result<(), Gone> {
    fleet.count(|counts| counts.redirects += 1);
    let rest = url.strip_prefix("https://").and_then(|rest| rest.split_once('/'));
    let Some((host, path)) = rest else {
        fleet.stage.fail(format!("a redirect leads to {url}"));
        return Err(Gone::Away);
    };
    let machine = fleet.machines.borrow().iter().find(|to| to.id.as_str() == host).cloned();
    let Some(machine) = machine.filter(|to| to.index != from.index) else {
        fleet.stage.fail(format!("{} redirects to {url}", from.id));
        return Err(Gone::Away);
    };
    let Some(mut link) = connect(fleet, number, &machine).await else { return Err(Gone::Away) };
    let got = fetch(fleet, &mut link, &format!("/{path}"), ask).await;
    let again = matches!(got, Err(Gone::Redirected(_)));
    fleet.stage.must(!again, || format!("{} sends on whom {} sent", machine.id, from.id));
    got
}

async fn connect(fleet: &Rc<Fleet>, number: u64, machine: &Rc<Machine>) -> Option<Link> {
    let (stage, party) = (&fleet.stage, Party::Viewer(number));
    stage.sleep(Nanos::millis(4)).await;
    if machine.is_dark.get() || !fleet.is_connected(Party::Machine(machine.index), party) {
        stage.sleep(PATIENCE).await;
        return None;
    }
    let process = fleet.process(machine)?;
    let server = stage.pick(&process.workers.borrow())?.clone();
    let pipe = Pipe::new(stage, party, fleet.is_calm.get());
    let connection = server.connect(&pipe);
    Some(Link { pipe, server, process, connection, rest: Vec::new() })
}

async fn fetch(
    fleet: &Rc<Fleet>,
    link: &mut Link,
    target: &str,
    ask: &Ask<'_>,
) -> Result<(), Gone> {
    fleet.count(|counts| counts.requests += 1);
    let is_refused = link.process.machine.signed.borrow().contains(&ask.version.id);
    let len = ask.file.len.0;
    let (from, until) = ask.range.unwrap_or((0, len));
    let range = ask.range.map(|(from, until)| format!("Range: bytes={from}-{}\r\n", until - 1));
    let (path, range) = (ask.path, range.unwrap_or_default());
    let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\n{range}\r\n");
    say(&fleet.stage, link, request.as_bytes());
    let (status, length, location) = head(fleet, link).await?;
    let wanted = if ask.range.is_some() { 206 } else { 200 };
    if let (307, Some(location)) = (status, location) {
        return Err(Gone::Redirected(location));
    }
    fleet.stage.must(status != 503, || "a 503, which players repeat".to_owned());
    if status != wanted {
        return Err(Gone::Status(status));
    }
    oracle::answered(fleet, &link.process.machine, &ask.version.id, is_refused);
    fleet.stage.must(length == until - from, || {
        format!("{length} bytes are promised of {path}, {from}..{until} were asked for")
    });
    body(fleet, link, ask, (from, until)).await
}

async fn body(
    fleet: &Rc<Fleet>,
    link: &mut Link,
    ask: &Ask<'_>,
    (from, until): (u64, u64),
) -> Result<(), Gone> {
    let (mut at, end) = (Bytes(from).as_usize(), Bytes(until).as_usize());
    let begun = at;
    loop {
        let got = std::mem::take(&mut link.rest);
        fleet.stage.mark(Bytes::of(got.len()).0);
        fleet.stage.must(at + got.len() <= end, || "more came than was promised".to_owned());
        oracle::delivered(fleet, &link.process.machine, ask.file.object, at, &got);
        at += got.len();
        if end <= at {
            return Ok(());
        }
        if ask.leave_after.is_some_and(|most| most <= at - begun) {
            return Err(Gone::Left);
        }
        match link.pipe.next(PATIENCE).await {
            Some(Packet::Bytes(bytes)) => link.rest = bytes,
            Some(Packet::End) => {
                fleet.stage.fail("a response ends in good order before its end".to_owned());
                return Err(Gone::Away);
            }
            Some(Packet::Reset) | None => return Err(Gone::Away),
        }
    }
}

/// Sends a request, now and then in two pieces.
fn say(stage: &Stage, link: &Link, request: &[u8]) {
    let cut = if stage.one_in(4) { Bytes(stage.below(60)).as_usize() } else { 0 };
    let (first, second) = request.split_at(cut.min(request.len()));
    for (ms, piece) in [(4, first), (9, second)] {
        if piece.is_empty() {
            continue;
        }
        let (server, connection, piece) =
            (Rc::clone(&link.server), link.connection, piece.to_vec());
        stage.at(link.process.troupe, stage.now() + Nanos::millis(ms), move || {
            server.arrive(connection, piece);
        });
    }
}

/// Status and length of a response, and where it leads.
async fn head(fleet: &World, link: &mut Link) -> Result<(u16, u64, Option<String>), Gone> {
    loop {
        let end = link.rest.windows(4).position(|window| window == b"\r\n\r\n");
        if let Some(end) = end {
            let head = String::from_utf8_lossy(&link.rest[..end]).into_owned();
            link.rest.drain(..end + 4);
            let status = head.get(9..12).and_then(|text| text.parse().ok());
            let field = |wanted: &str| {
                head.lines().find_map(|line| {
                    let (name, value) = line.split_once(':')?;
                    name.eq_ignore_ascii_case(wanted).then(|| value.trim().to_owned())
                })
            };
            let length = field("content-length").and_then(|text| text.parse().ok());
            let location = field("location");
            fleet.stage.must(status.is_some(), || format!("not a response: {head}"));
            return Ok((status.unwrap_or(0), length.unwrap_or(0), location));
        }
        match link.pipe.next(PATIENCE).await {
            Some(Packet::Bytes(bytes)) => link.rest.extend(bytes),
            Some(Packet::End | Packet::Reset) | None => return Err(Gone::Away),
        }
    }
}

fn range(stage: &Stage, len: Bytes) -> Option<(u64, u64)> {
    if len.0 == 0 || stage.one_in(3) {
        return None;
    }
    let from = stage.below(len.0);
    let until = from + 1 + stage.below(len.0 - from);
    Some((from, until))
}

fn token(fleet: &World, version: &AssetVersion, session: Session, expires: UnixSeconds) -> String {
    let scope = Scope::below(version.id.as_str(), "").expect("a version's name is a name");
    let grant = Grant { session, expires, scope };
    let input = SigningInput::new("k1", grant);
    let signature = fleet.key.sign(input.as_bytes());
    let signature = signature.as_ref().try_into().expect("Ed25519 signatures are 64 bytes");
    assemble("k1", grant, &signature)
}

/// Everything that an appliance should hold, from it alone: what is missing or wrong is a failure.
/// Each time with the same tokens, of which workers know those that they have seen.
pub(crate) async fn ask_for_all(fleet: Rc<Fleet>, machine: Rc<Machine>) {
    let Some(process) = fleet.process(&machine) else { return };
    let Some(manifest) = process.ask(|holdings| holdings.manifest().cloned()) else { return };
    let lacks: Vec<ObjectId> = process.lacks();
    let session = Session::of_random([7; 12]);
    let calm_from = fleet.first_second + fleet.calm_from.get().0 / 1_000_000_000;
    let expires = UnixSeconds(calm_from + TOKEN_LASTS);
    for version in &manifest.versions {
        let token = token(&fleet, version, session, expires);
        for (path, file) in &version.files {
            if lacks.contains(&file.object) {
                continue;
            }
            let ask = Ask { version, path, file, range: None, leave_after: None };
            // The line may be slow, and the drive busy: three tries.
            let mut got = Err(Gone::Away);
            for number in 0..3 {
                let link = connect(&fleet, 1000 + number, &machine).await;
                let Some(mut link) = link else { continue };
                let target = format!("/t/{token}/{}/{path}", version.id);
                got = fetch(&fleet, &mut link, &target, &ask).await;
                if got.is_ok() {
                    break;
                }
            }
            // A scrub may have found meanwhile that its file has rotted.
            let is_gone = || process.lacks().contains(&file.object);
            fleet.stage.must(got.is_ok() || is_gone(), || {
                format!(
                    "{} holds {path} of {} and does not serve it: {got:?}",
                    machine.id, version.id
                )
            });
        }
    }
}
