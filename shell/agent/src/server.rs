//! The socket: the callers that may ask, their bounds in size and time, and the verb that answers.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rustix::net::sockopt::socket_peercred;
use wire::v1::agent::{Answer, Line, REQUEST_LEN_MAX, Request, VERSION};

use model::units::Bytes;

use crate::config::{Settings, Who};
use crate::programs::{FOLDERS, Programs};
use crate::{discard, mounts};

/// Open connections; one more is told so and closed. The appliance has one, an operator another.
const CONNECTIONS_MAX: usize = 8;
/// Requests on one connection; a caller that has more connects again.
const REQUESTS_MAX: usize = 64;
/// For a request to come, and for its answer to be taken.
const PATIENCE: Duration = Duration::from_secs(10);
/// For the range of a round that is under way, before a trim is refused.
const TRIM_PATIENCE: Duration = Duration::from_secs(5);

/// The verbs of one process.
pub(crate) trait Answerer: Send + Sync + 'static {
    /// The answer, or the fault and the remedy.
    fn answer(&self, request: Request) -> Result<Answer, String>;
}

/// The verbs that concern drives.
struct Drives {
    settings: Settings,
    programs: Programs,
    /// Held while a trim runs.
    trim: Mutex<()>,
}

/// The state that all connections share.
struct Shared<A> {
    answerer: Arc<A>,
    /// Whose requests are taken, besides root's.
    user: (u32, String),
    connections: AtomicUsize,
}

/// Looks after drives until SIGTERM or SIGINT.
pub(crate) fn serve(settings: Settings) -> anyhow::Result<()> {
    let discards = settings.discard.every.0.0.is_some();
    let (socket, who) = (settings.socket.clone(), settings.who());
    let drives = Arc::new(Drives {
        settings,
        programs: Programs::new(FOLDERS.iter().map(PathBuf::from).collect()),
        trim: Mutex::new(()),
    });
    let discarding = Arc::clone(&drives);
    if discards {
        std::thread::spawn(move || {
            let trim = |drive: &Path, offset, len| discarding.trim_range(drive, offset, len);
            discard::run(&discarding.settings, trim);
        });
    }
    answer_at(&socket, &who, drives)
}

/// Answers on a socket until SIGTERM or SIGINT.
pub(crate) fn answer_at<A: Answerer>(
    path: &Path,
    who: &Who,
    answerer: Arc<A>,
) -> anyhow::Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, stop.clone()).context("cannot catch signals")?;
    }
    let user = (id("/etc/passwd", &who.user)?, who.user.clone());
    let listener = listen(path, id("/etc/group", &who.group)?)?;
    tracing::info!(socket = %path.display(), "answering");
    let shared = Arc::new(Shared { answerer, user, connections: AtomicUsize::new(0) });
    // On a thread of its own, so that a signal ends the process: accepting starts again after one.
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            accept(&shared, stream);
        }
    });
    while !stop.load(Ordering::Relaxed) {
        std::thread::park_timeout(Duration::from_millis(200));
    }
    let _ = std::fs::remove_file(path);
    Ok(())
}

/// The number of a user or a group, by the lines `name:x:number:` of `file`.
fn id(file: &str, name: &str) -> anyhow::Result<u32> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?;
    let number = |line: &str| {
        let mut fields = line.split(':');
        (fields.next()? == name).then(|| fields.nth(1)?.parse().ok())?
    };
    text.lines()
        .find_map(number)
        .with_context(|| format!("{file} has no \"{name}\": make it first"))
}

/// A socket that root and `group` can reach.
fn listen(path: &Path, group: u32) -> anyhow::Result<UnixListener> {
    let shown = path.display();
    if let Ok(found) = std::fs::symlink_metadata(path) {
        ensure!(found.file_type().is_socket(), "{shown} is there and is no socket: remove it");
        if UnixStream::connect(path).is_ok() {
            bail!("{shown} is answered already: is another nearcast-agent running?");
        }
        std::fs::remove_file(path).with_context(|| format!("cannot remove the old {shown}"))?;
    }
    let listener = UnixListener::bind(path).with_context(|| format!("cannot listen at {shown}"))?;
    // Closed first, then opened to the right ones.
    let mode = |mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode));
    mode(0o600)
        .and_then(|()| chown(path, None, Some(group)))
        .and_then(|()| mode(0o660))
        .with_context(|| format!("cannot set the group and the permissions of {shown}"))?;
    Ok(listener)
}

fn accept<A: Answerer>(agent: &Arc<Shared<A>>, stream: UnixStream) {
    if CONNECTIONS_MAX <= agent.connections.fetch_add(1, Ordering::Relaxed) {
        agent.connections.fetch_sub(1, Ordering::Relaxed);
        refuse(&stream, "there are too many connections: close one");
        return;
    }
    let agent = agent.clone();
    std::thread::spawn(move || {
        if let Err(error) = converse(&agent, &stream) {
            tracing::debug!(%error, "a connection failed");
        }
        agent.connections.fetch_sub(1, Ordering::Relaxed);
    });
}

fn converse<A: Answerer>(agent: &Shared<A>, stream: &UnixStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let peer = socket_peercred(stream)?;
    let uid = peer.uid.as_raw();
    let (user, name) = &agent.user;
    if uid != 0 && uid != *user {
        tracing::warn!(uid, pid = peer.pid.as_raw_pid(), "somebody else asked, and was refused");
        refuse(stream, &format!("only root and {name} may ask"));
        return Ok(());
    }
    let mut reader = BufReader::new(stream);
    for _ in 0..REQUESTS_MAX {
        let mut line = Vec::new();
        let most = u64::try_from(REQUEST_LEN_MAX).expect("a few KiB");
        let len = reader.by_ref().take(most).read_until(b'\n', &mut line)?;
        if len == 0 {
            return Ok(());
        }
        if line.last() != Some(&b'\n') {
            refuse(stream, &format!("a request has at most {REQUEST_LEN_MAX} bytes, one line"));
            return Ok(());
        }
        say(stream, answer(&*agent.answerer, &line))?;
    }
    Ok(())
}

/// A caller that does not take the answer goes without.
fn refuse(stream: &UnixStream, why: &str) {
    let _ = stream.set_write_timeout(Some(PATIENCE));
    let _ = say(stream, Answer::Refused(why.to_owned()));
}

fn say(mut stream: &UnixStream, said: Answer) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(&Line { v: VERSION, said })?;
    line.push(b'\n');
    stream.write_all(&line)
}

fn answer<A: Answerer>(answerer: &A, line: &[u8]) -> Answer {
    let request = match serde_json::from_slice::<Line<Request>>(line) {
        Ok(Line { v: VERSION, said }) => said,
        Ok(Line { v, .. }) => {
            return Answer::Refused(format!("version {v} is not spoken here: it is {VERSION}"));
        }
        Err(error) => return Answer::Refused(format!("not a request: {error}")),
    };
    answerer.answer(request).unwrap_or_else(Answer::Refused)
}

/// A request that came to the wrong socket.
pub(crate) const ELSEWHERE: &str =
    "another process of nearcast-agent answers that, on its own socket: addresses, routes or serve";

impl Answerer for Drives {
    fn answer(&self, request: Request) -> Result<Answer, String> {
        match request {
            Request::Drives => self.drives(),
            Request::Trim { drive } => self.trim(drive),
            Request::Health => self.health(),
            Request::Addresses { .. }
            | Request::Held
            | Request::Tickle { .. }
            | Request::Routes
            | Request::RoutesPart { .. } => Err(ELSEWHERE.to_owned()),
        }
    }
}

impl Drives {
    fn drives(&self) -> Result<Answer, String> {
        let mounts = mounts::mounts()?;
        let drives = self.settings.drives.paths.iter();
        Ok(Answer::Drives(drives.map(|path| mounts::describe(path, &mounts)).collect()))
    }

    fn trim(&self, drive: String) -> Result<Answer, String> {
        let path = self.settings.drives.paths.iter().find(|path| path.as_os_str() == &*drive);
        let path = path.ok_or("no such drive in the agent's configuration")?;
        let Some(_held) = self.hold_within(TRIM_PATIENCE) else {
            return Err("another drive is being trimmed: try again when it is done".to_owned());
        };
        let bytes = Self::mounted(path).and_then(|()| self.programs.trim(path, None))?;
        tracing::info!(drive, bytes, "trimmed");
        Ok(Answer::Trimmed { drive, bytes })
    }

    /// Tells the device of a configured drive the free blocks in one range of it.
    fn trim_range(&self, path: &Path, offset: Bytes, len: Bytes) -> Result<Option<u64>, String> {
        let _held = self.trim.lock().unwrap_or_else(PoisonError::into_inner);
        Self::mounted(path).and_then(|()| self.programs.trim(path, Some((offset, len))))
    }

    /// One trim at a time; none if another takes longer than this. A range of a round is short.
    fn hold_within(&self, patience: Duration) -> Option<MutexGuard<'_, ()>> {
        let began = Instant::now();
        loop {
            match self.trim.try_lock() {
                Ok(held) => return Some(held),
                Err(TryLockError::Poisoned(held)) => return Some(held.into_inner()),
                Err(TryLockError::WouldBlock) if patience < began.elapsed() => return None,
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    fn mounted(path: &Path) -> Result<(), String> {
        let mounts = mounts::mounts()?;
        if mounts::at(path, &mounts).is_none() {
            return Err("not a mount point: it would trim the file system around it".to_owned());
        }
        Ok(())
    }

    fn health(&self) -> Result<Answer, String> {
        let mounts = mounts::mounts()?;
        let one = |path: &PathBuf| {
            let device = mounts::at(path, &mounts).and_then(mounts::Mount::whole_device);
            self.programs.health(path.display().to_string(), device)
        };
        Ok(Answer::Health(self.settings.drives.paths.iter().map(one).collect()))
    }
}
