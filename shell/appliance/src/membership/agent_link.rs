//! Asks `nearcast-agent` now and then how the drives are mounted and what their devices say of
//! themselves, on a thread of its own.
//!
//! What it says is for people: a drive that fails is found out by using it. No agent is no fault.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use wire::v1::agent::{
    ANSWER_LEN_MAX, Answer, DriveHealth, DriveMount, Line, Request, TEMPERATURE, VERSION,
};

use crate::lock::lock;

/// What devices said of themselves when they were asked last.
pub type Said = Arc<Mutex<Vec<DriveHealth>>>;

/// How often it is asked: little of it changes sooner, and a device's log costs it milliseconds.
const EVERY: Duration = Duration::from_secs(30);
/// For its answer. A device that is about to fail may take its time.
const PATIENCE: Duration = Duration::from_secs(60);
/// A device that has used so much of its life is worth a line: weeks are left, or months.
const USED_PERCENT: u64 = 90;

/// Begins to ask, until the process ends. What an operator should know goes to the log and, in
/// words, to `notes`; what does not fit there is in the log alone.
pub fn start(socket: PathBuf, notes: SyncSender<String>, said: Said) -> std::io::Result<()> {
    std::thread::Builder::new().name("agent-link".to_owned()).spawn(move || {
        let mut known = Known::default();
        loop {
            let mounts = known.learn(ask(&socket, Request::Drives, PATIENCE).and_then(mounts));
            // Where there is no agent, that was said.
            let health =
                ask(&socket, Request::Health, PATIENCE).and_then(health).unwrap_or_default();
            for note in mounts.into_iter().chain(known.learn_health(&health)) {
                let _ = notes.try_send(note);
            }
            *lock(&said) = health;
            std::thread::sleep(EVERY);
        }
    })?;
    Ok(())
}

/// One question to an agent, and its answer within `patience`. A refusal is an error.
pub(crate) fn ask(socket: &Path, request: Request, patience: Duration) -> Result<Answer, String> {
    let answer = hear(socket, request, patience)?;
    if let Answer::Refused(why) = &answer { Err(refused(why)) } else { Ok(answer) }
}

pub(crate) fn refused(why: &str) -> String {
    format!("refused: {why}")
}

/// The same, where a refusal is an answer: an agent that refuses is there.
pub(crate) fn hear(socket: &Path, request: Request, patience: Duration) -> Result<Answer, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", socket.display());
    let mut stream = UnixStream::connect(socket).map_err(failed)?;
    stream.set_read_timeout(Some(patience)).map_err(failed)?;
    stream.set_write_timeout(Some(patience)).map_err(failed)?;
    let mut line = serde_json::to_vec(&Line { v: VERSION, said: request })
        .expect("a number and a word make JSON");
    line.push(b'\n');
    stream.write_all(&line).map_err(failed)?;
    let most = u64::try_from(ANSWER_LEN_MAX).expect("some KiB");
    let mut answer = String::new();
    BufReader::new(stream.take(most)).read_line(&mut answer).map_err(failed)?;
    match serde_json::from_str::<Line<Answer>>(&answer) {
        Ok(Line { said: refusal @ Answer::Refused(_), .. }) => Ok(refusal),
        Ok(Line { v: VERSION, said }) => Ok(said),
        Ok(Line { v, .. }) => Err(format!("it speaks version {v}")),
        Err(error) => Err(format!("no answer: {error}")),
    }
}

fn mounts(answer: Answer) -> Result<Vec<DriveMount>, String> {
    if let Answer::Drives(drives) = answer { Ok(drives) } else { Err(SOMETHING_ELSE.to_owned()) }
}

fn health(answer: Answer) -> Result<Vec<DriveHealth>, String> {
    if let Answer::Health(drives) = answer { Ok(drives) } else { Err(SOMETHING_ELSE.to_owned()) }
}

pub(crate) const SOMETHING_ELSE: &str = "it answered something else";

/// What was true when it was last asked.
#[derive(Debug, Default)]
struct Known {
    is_away: bool,
    drives: BTreeMap<String, DriveMount>,
    /// What was wrong with devices, by path.
    ailing: BTreeMap<String, String>,
}

impl Known {
    /// Logs what has changed; gives back what is wrong now and was not before.
    fn learn(&mut self, asked: Result<Vec<DriveMount>, String>) -> Vec<String> {
        let drives = match asked {
            Ok(drives) => drives,
            Err(error) => {
                if !self.is_away {
                    tracing::warn!(error, "no nearcast-agent: mounts of drives are not watched");
                }
                self.is_away = true;
                return Vec::new();
            }
        };
        if std::mem::take(&mut self.is_away) {
            tracing::info!("nearcast-agent answers again");
        }
        let mut notes = Vec::new();
        for drive in drives {
            let before = self.drives.insert(drive.path.clone(), drive.clone());
            let new =
                wrong(&drive).filter(|now| before.as_ref().and_then(wrong).as_ref() != Some(now));
            let Some(what) = new else { continue };
            tracing::warn!(drive = drive.path, what, "drive");
            notes.push(format!("drive {}: {what}", drive.path));
        }
        notes
    }

    /// The same of what devices say of themselves.
    fn learn_health(&mut self, drives: &[DriveHealth]) -> Vec<String> {
        let mut notes = Vec::new();
        for drive in drives {
            // One that gives no account is what it was.
            if drive.unknown.is_some() {
                continue;
            }
            let Some(what) = ailing(drive) else {
                if self.ailing.remove(&drive.path).is_some() {
                    tracing::info!(drive = drive.path, "the device says that it is well again");
                }
                continue;
            };
            if self.ailing.get(&drive.path) != Some(&what) {
                tracing::warn!(drive = drive.path, what, "drive");
                notes.push(format!("drive {}: {what}", drive.path));
                self.ailing.insert(drive.path.clone(), what);
            }
        }
        notes
    }
}

/// What a device says that an operator should know.
fn ailing(drive: &DriveHealth) -> Option<String> {
    let device = drive.device.as_deref().unwrap_or("its device");
    // Devices count this as failing, too.
    if matches!(&drive.warnings[..], [one] if one == TEMPERATURE) {
        return Some(format!("{device} is {TEMPERATURE}: look at its cooling"));
    }
    if drive.is_good == Some(false) || !drive.warnings.is_empty() {
        let why = match drive.warnings.join(", ") {
            why if why.is_empty() => String::new(),
            why => format!(" ({why})"),
        };
        return Some(format!("{device} says that it is failing{why}: replace it soon"));
    }
    if let Some(errors) = drive.media_errors.filter(|errors| 0 < *errors) {
        return Some(format!(
            "{device} has lost data in {errors} places: if they grow, replace it"
        ));
    }
    let used = drive.used_percent.filter(|used| USED_PERCENT <= *used)?;
    Some(format!("{device} has used {used} % of its life: plan to replace it"))
}

fn wrong(drive: &DriveMount) -> Option<String> {
    if !drive.is_mount_point {
        return Some("not a mount point: is it mounted?".to_owned());
    }
    if drive.is_read_only {
        return Some(
            "its file system takes no writes: look for its error in the kernel log".into(),
        );
    }
    let errors = drive.errors.filter(|errors| 0 < *errors)?;
    Some(format!("the kernel has counted {errors} errors of it: look into the kernel log"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drive() -> DriveMount {
        let path = "/d".to_owned();
        DriveMount { path, is_mount_point: true, ..DriveMount::default() }
    }

    #[test]
    fn a_change_for_the_worse_is_said_once() {
        let mut known = Known::default();
        assert!(known.learn(Ok(vec![drive()])).is_empty());
        let read_only = DriveMount { is_read_only: true, ..drive() };
        let notes = known.learn(Ok(vec![read_only.clone()]));
        assert!(notes[0].starts_with("drive /d: its file system takes no writes"), "{notes:?}");
        assert!(known.learn(Ok(vec![read_only])).is_empty());
        assert!(known.learn(Ok(vec![drive()])).is_empty());
        let gone = DriveMount { is_mount_point: false, ..drive() };
        assert!(known.learn(Ok(vec![gone]))[0].contains("not a mount point"));
        let errors = |count| DriveMount { errors: Some(count), ..drive() };
        assert!(known.learn(Ok(vec![errors(0)])).is_empty());
        assert!(known.learn(Ok(vec![errors(1)]))[0].contains("counted 1 errors"));
        assert_eq!(known.learn(Ok(vec![errors(2)])).len(), 1, "and more of them");
    }

    #[test]
    fn what_a_device_says_of_itself_is_said_once_until_it_changes() {
        let path = "/d".to_owned();
        let well = DriveHealth { path, is_good: Some(true), ..DriveHealth::default() };
        let mut known = Known::default();
        let mut notes = |health: &DriveHealth| known.learn_health(std::slice::from_ref(health));
        assert!(notes(&well).is_empty());
        let warns = |of: &[&str]| {
            let warnings = of.iter().map(|one| (*one).to_owned()).collect();
            DriveHealth { warnings, is_good: Some(false), ..well.clone() }
        };
        assert!(notes(&warns(&[TEMPERATURE]))[0].ends_with("cold: look at its cooling"));
        let failing = warns(&[TEMPERATURE, "takes no more writes"]);
        assert!(notes(&failing)[0].contains("failing (too hot or too cold, takes no more writes)"));
        assert!(notes(&failing).is_empty());
        let silent = DriveHealth { unknown: Some("no answer".to_owned()), ..well.clone() };
        assert!(notes(&silent).is_empty() && notes(&failing).is_empty(), "it is what it was");
        assert!(notes(&well).is_empty());
        let sentence = DriveHealth { is_good: Some(false), ..well.clone() };
        assert!(notes(&sentence)[0].ends_with("says that it is failing: replace it soon"));
        let errors = |n| DriveHealth { media_errors: Some(n), ..well.clone() };
        assert!(notes(&errors(0)).is_empty());
        assert!(notes(&errors(1))[0].contains("lost data in 1 places"));
        assert_eq!(notes(&errors(2)).len(), 1, "and more of them");
        let worn = |n| DriveHealth { used_percent: Some(n), ..well.clone() };
        assert!(notes(&worn(89)).is_empty() && notes(&worn(90))[0].contains("90 %"));
    }

    #[test]
    fn an_agent_that_is_not_there_is_no_fault() {
        let mut known = Known::default();
        let away = ask(Path::new("/nothing/here"), Request::Drives, PATIENCE).and_then(mounts);
        assert!(known.learn(away).is_empty() && known.is_away);
        assert!(known.learn(Ok(vec![drive()])).is_empty() && !known.is_away);
    }

    #[test]
    fn an_agent_is_asked_and_its_answer_read() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let agent = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            let said = Answer::Drives(vec![drive()]);
            let answer = serde_json::to_string(&Line { v: VERSION, said }).unwrap();
            stream.write_all(format!("{answer}\n").as_bytes()).unwrap();
            line
        });
        assert_eq!(ask(&socket, Request::Drives, PATIENCE).and_then(mounts), Ok(vec![drive()]));
        assert_eq!(agent.join().unwrap(), "{\"v\":1,\"verb\":\"drives\"}\n");
    }
}
