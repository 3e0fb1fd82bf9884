//! Asks `nearcast-agent` now and then how the drives are mounted, on a thread of its own.
//!
//! What it says is for people: a drive that fails is found out by using it. No agent is no fault.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use wire::v1::agent::{ANSWER_LEN_MAX, Answer, DriveMount, Line, Request, VERSION};

/// How often it is asked: mounts change seldom.
const EVERY: Duration = Duration::from_secs(60);
/// For its answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Begins to ask, until the process ends. What an operator should know goes to the log and, in
/// words, to `notes`; what does not fit there is in the log alone.
pub fn start(socket: PathBuf, notes: SyncSender<String>) -> std::io::Result<()> {
    std::thread::Builder::new().name("agent-link".to_owned()).spawn(move || {
        let mut known = Known::default();
        loop {
            for note in known.learn(ask(&socket)) {
                let _ = notes.try_send(note);
            }
            std::thread::sleep(EVERY);
        }
    })?;
    Ok(())
}

fn ask(socket: &Path) -> Result<Vec<DriveMount>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", socket.display());
    let mut stream = UnixStream::connect(socket).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
    let mut line = serde_json::to_vec(&Line { v: VERSION, said: Request::Drives })
        .expect("a number and a word make JSON");
    line.push(b'\n');
    stream.write_all(&line).map_err(failed)?;
    let most = u64::try_from(ANSWER_LEN_MAX).expect("some KiB");
    let mut answer = String::new();
    BufReader::new(stream.take(most)).read_line(&mut answer).map_err(failed)?;
    match serde_json::from_str::<Line<Answer>>(&answer) {
        Ok(Line { v: VERSION, said: Answer::Drives(drives) }) => Ok(drives),
        Ok(Line { said: Answer::Refused(why), .. }) => Err(format!("refused: {why}")),
        Ok(_) => Err("it answered something else".to_owned()),
        Err(error) => Err(format!("no answer: {error}")),
    }
}

/// What was true when it was last asked.
#[derive(Debug, Default)]
struct Known {
    is_away: bool,
    drives: BTreeMap<String, DriveMount>,
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
    fn an_agent_that_is_not_there_is_no_fault() {
        let mut known = Known::default();
        let away = ask(Path::new("/nothing/here"));
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
        assert_eq!(ask(&socket), Ok(vec![drive()]));
        assert_eq!(agent.join().unwrap(), "{\"v\":1,\"verb\":\"drives\"}\n");
    }
}
