//! The programs that are started and waited for: by whole path, without a shell, with a bound on
//! time and output, for devices, folders and the interface of the configuration only.
//!
//! ```text
//! asked ──> program ──> ends in time: what it printed
//!                  └──> does not: killed. It waits for a drive that hangs, and is not gone yet?
//!                       then nobody asks that drive until it is
//! ```

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use model::units::Bytes;
use serde_json::Value;
use wire::v1::agent::{DriveHealth, TEMPERATURE};

/// Where programs are looked for; PATH is not asked.
pub(crate) const FOLDERS: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];
/// A drive of many terabytes takes minutes.
const TRIM_WITHIN: Duration = Duration::from_secs(30 * 60);
/// A range of 16 GiB takes seconds where a device is slow.
const RANGE_WITHIN: Duration = Duration::from_secs(300);
/// A device that sleeps takes some seconds. All drives are asked one after the other, and whoever
/// wants to know waits a minute: two that hang leave time for the others.
const HEALTH_WITHIN: Duration = Duration::from_secs(20);
/// smartctl's output has some 20 KiB.
const OUTPUT_MAX: u64 = 1 << 20;
/// How often an end is looked for: after a millisecond first, since `ip` takes a few.
const LOOK_EVERY: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct Programs {
    folders: Vec<PathBuf>,
    /// Folders, devices and interfaces that a program still waits for though it was killed.
    silent: Arc<Mutex<BTreeSet<PathBuf>>>,
}

/// A program's output, and whether it ended with 0.
pub(crate) struct Printed {
    pub(crate) text: String,
    pub(crate) is_success: bool,
}

impl Programs {
    /// Those in `folders`; the first that has one wins.
    pub(crate) fn new(folders: Vec<PathBuf>) -> Self {
        Self { folders, silent: Arc::default() }
    }

    fn find(&self, name: &str) -> Option<PathBuf> {
        self.folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file())
    }

    /// The path of a program that has to be there.
    pub(crate) fn installed(&self, name: &str) -> anyhow::Result<PathBuf> {
        let package = if name == "ip" { "iproute2" } else { name };
        let missing = || format!("{name} is not installed: install the package {package}");
        self.find(name).with_context(missing)
    }

    /// Runs fstrim on the file system mounted at `path`, or on the range of its device that is
    /// given as offset and length: how many bytes it told of.
    pub(crate) fn trim(
        &self,
        path: &Path,
        range: Option<(Bytes, Bytes)>,
    ) -> Result<Option<u64>, String> {
        let program = self.find("fstrim").ok_or("fstrim is not installed (package util-linux)")?;
        let mut command = Command::new(program);
        command.arg("--verbose");
        if let Some((offset, len)) = range {
            command.args([format!("--offset={}", offset.0), format!("--length={}", len.0)]);
        }
        command.arg("--").arg(path);
        let within = if range.is_some() { RANGE_WITHIN } else { TRIM_WITHIN };
        let printed = self.run(&mut command, path, within)?;
        if !printed.is_success {
            return Err(format!("fstrim: {}", printed.text.trim()));
        }
        Ok(trimmed(&printed.text))
    }

    /// Asks `device` for its health, with the program that is installed.
    pub(crate) fn health(&self, path: String, device: Option<String>) -> DriveHealth {
        let none = |unknown: String, device: Option<String>| DriveHealth {
            path: path.clone(),
            device,
            unknown: Some(unknown),
            ..DriveHealth::default()
        };
        let Some(device) = device else {
            return none("not on a device that can be asked".to_owned(), None);
        };
        let is_nvme = device.starts_with("/dev/nvme");
        let (mut command, read): (_, fn(&Value) -> DriveHealth) =
            match (self.find("smartctl"), self.find("nvme")) {
                (Some(program), _) => {
                    let mut command = Command::new(program);
                    command.args(["--json=c", "--health", "--attributes", "--", &device]);
                    (command, smartctl)
                }
                (None, Some(program)) if is_nvme => {
                    let mut command = Command::new(program);
                    command.args(["smart-log", "--output-format=json", &device]);
                    (command, nvme)
                }
                (None, _) => {
                    let what = if is_nvme { "smartmontools or nvme-cli" } else { "smartmontools" };
                    return none(format!("no program to ask with: install {what}"), Some(device));
                }
            };
        // smartctl's exit status is a set of findings, so its output alone is judged.
        let found = self.run(&mut command, Path::new(&device), HEALTH_WITHIN).and_then(|printed| {
            serde_json::from_str(&printed.text)
                .map_err(|_| format!("no answer: {}", first_line(&printed.text)))
        });
        match found.map(|value: Value| read(&value)) {
            Ok(health) => {
                let says_nothing = health.is_good.is_none() && health.media_errors.is_none();
                let unknown = says_nothing.then(|| "the device gives no account".to_owned());
                DriveHealth { path, device: Some(device), unknown, ..health }
            }
            Err(error) => none(error, Some(device)),
        }
    }

    /// Runs a program to its end or to the end of its time; output and errors come together. The
    /// program asks the drive, or the interface, `whom`. Not even SIGKILL ends a program that waits
    /// for a drive that hangs: it is left alone then, and `whom` is asked nothing until the program
    /// has ended.
    pub(crate) fn run(
        &self,
        command: &mut Command,
        whom: &Path,
        within: Duration,
    ) -> Result<Printed, String> {
        let name = command.get_program().to_string_lossy().into_owned();
        if lock(&self.silent).contains(whom) {
            return Err(format!(
                "{name}: an earlier one still waits for an answer: does {} hang?",
                whom.display()
            ));
        }
        let failed = |error: std::io::Error| format!("{name}: {error}");
        let (reader, writer) = std::io::pipe().map_err(failed)?;
        let (leave, left) = mpsc::channel();
        let output = self.listen(reader, left, whom).map_err(failed)?;
        command.env_clear().env("LC_ALL", "C").stdin(Stdio::null());
        command.stdout(writer.try_clone().map_err(failed)?).stderr(writer);
        let spawned = command.spawn();
        // The command holds the writing end, and reading ends only when nobody does.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = spawned.map_err(failed)?;
        let (start, mut pause) = (Instant::now(), Duration::from_millis(1));
        let status = loop {
            match child.try_wait().map_err(failed)? {
                Some(status) => break status,
                None if within <= start.elapsed() => {
                    let _ = child.kill();
                    lock(&self.silent).insert(whom.to_owned());
                    let _ = leave.send(child);
                    let within = within.as_secs_f64().ceil();
                    return Err(format!("{name} did not end within {within} s"));
                }
                None => {
                    std::thread::sleep(pause);
                    pause = LOOK_EVERY.min(2 * pause);
                }
            }
        };
        drop(leave);
        let text = output.join().map_err(|_| format!("{name}: its output was lost"))?;
        Ok(Printed { text, is_success: status.success() })
    }

    /// Collects a program's output until nothing can write to it, and waits for one in `left`.
    fn listen(
        &self,
        mut reader: std::io::PipeReader,
        left: mpsc::Receiver<Child>,
        whom: &Path,
    ) -> std::io::Result<JoinHandle<String>> {
        let (silent, whom) = (Arc::clone(&self.silent), whom.to_owned());
        std::thread::Builder::new().spawn(move || {
            let mut text = Vec::new();
            let _ = (&mut reader).take(OUTPUT_MAX).read_to_end(&mut text);
            // More is taken and dropped, lest the program waits to say it.
            let _ = std::io::copy(&mut reader, &mut std::io::sink());
            if let Ok(mut child) = left.recv() {
                let _ = child.wait();
                lock(&silent).remove(&whom);
            }
            String::from_utf8_lossy(&text).into_owned()
        })
    }
}

/// `/srv/1: 4 KiB (4096 bytes) trimmed`.
fn trimmed(text: &str) -> Option<u64> {
    text.split_once('(')?.1.split_once(" bytes)")?.0.parse().ok()
}

fn smartctl(value: &Value) -> DriveHealth {
    let at = |pointer: &str| value.pointer(pointer);
    let nvme = "/nvme_smart_health_information_log";
    DriveHealth {
        is_good: at("/smart_status/passed").and_then(Value::as_bool),
        temperature: at("/temperature/current").and_then(Value::as_i64),
        used_percent: at(&format!("{nvme}/percentage_used"))
            .or_else(|| at("/endurance_used/current_percent"))
            .and_then(Value::as_u64),
        media_errors: at(&format!("{nvme}/media_errors"))
            .or_else(|| at("/scsi_error_counter_log/read/total_uncorrected_errors"))
            .and_then(Value::as_u64)
            .or_else(|| ata_attribute(value, REPORTED_UNCORRECT)),
        spare_percent: at(&format!("{nvme}/available_spare")).and_then(Value::as_u64),
        warnings: warnings(at(&format!("{nvme}/critical_warning")).and_then(Value::as_u64)),
        ..DriveHealth::default()
    }
}

/// Errors that an ATA drive could not correct and has told of; most makers count them so.
const REPORTED_UNCORRECT: u64 = 187;

/// The raw value of an attribute in smartctl's table.
fn ata_attribute(value: &Value, id: u64) -> Option<u64> {
    let table = value.pointer("/ata_smart_attributes/table")?.as_array()?;
    let row = table.iter().find(|row| row.get("id").and_then(Value::as_u64) == Some(id))?;
    row.pointer("/raw/value")?.as_u64()
}

/// The meaning of the bits of the field "critical warning" (NVM Express base specification 2.0,
/// figure 207).
fn warnings(bits: Option<u64>) -> Vec<String> {
    const MEANING: [&str; 6] = [
        "spare blocks run out",
        TEMPERATURE,
        "not reliable any more",
        "takes no more writes",
        "the backup of its memory has failed",
        "its persistent memory takes no more writes",
    ];
    let bits = bits.unwrap_or(0);
    let set = MEANING.iter().enumerate().filter(|(bit, _)| bits >> bit & 1 == 1);
    set.map(|(_, meaning)| (*meaning).to_owned()).collect()
}

/// The temperature is in Kelvin; some versions write numbers as text.
fn nvme(value: &Value) -> DriveHealth {
    let number = |name: &str| {
        let value = value.get(name)?;
        value.as_u64().or_else(|| value.as_str()?.parse().ok())
    };
    let kelvin = number("temperature").and_then(|kelvin| i64::try_from(kelvin).ok());
    DriveHealth {
        is_good: number("critical_warning").map(|warning| warning == 0),
        temperature: kelvin.map(|kelvin| kelvin - 273),
        used_percent: number("percent_used").or_else(|| number("percentage_used")),
        media_errors: number("media_errors"),
        spare_percent: number("avail_spare"),
        warnings: warnings(number("critical_warning")),
        ..DriveHealth::default()
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or("nothing").chars().take(200).collect()
}

fn lock(silent: &Mutex<BTreeSet<PathBuf>>) -> MutexGuard<'_, BTreeSet<PathBuf>> {
    silent.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// A folder with one program, a script.
    fn with(name: &str, script: &str) -> (tempfile::TempDir, Programs) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let programs = Programs::new(vec![folder.path().to_owned()]);
        (folder, programs)
    }

    #[test]
    fn a_trim_is_given_the_folder_as_one_word() {
        let script = "[ \"$*\" = '--verbose -- /srv/my drive; id' ] || exit 9\n\
            echo \"$3: 4 KiB (4096 bytes) trimmed\"";
        let (_folder, programs) = with("fstrim", script);
        assert_eq!(programs.trim(Path::new("/srv/my drive; id"), None), Ok(Some(4096)));
        assert!(programs.trim(Path::new("/else"), None).is_err());
    }

    #[test]
    fn what_went_wrong_is_handed_on() {
        let (_folder, programs) = with("fstrim", "echo 'the discard is not supported' >&2; exit 1");
        let error = programs.trim(Path::new("/d"), None).unwrap_err();
        assert_eq!(error, "fstrim: the discard is not supported");
        assert!(
            Programs::new(Vec::new())
                .trim(Path::new("/d"), None)
                .unwrap_err()
                .contains("util-linux")
        );
    }

    #[test]
    fn a_program_that_does_not_end_is_ended() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "exec sleep 60"]);
        let (programs, start) = (Programs::new(Vec::new()), Instant::now());
        let ended = programs.run(&mut command, Path::new("/d"), Duration::ZERO);
        assert!(ended.is_err_and(|e| e.contains("did not end")));
        assert!(start.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_drive_that_a_killed_program_waits_for_is_asked_nothing_until_it_is_gone() {
        let programs = Programs::new(Vec::new());
        let ask = |whom: &str, script: &str, within: u64| {
            let mut command = Command::new("/bin/sh");
            let within = Duration::from_millis(within);
            let asked = programs.run(command.args(["-c", script]), Path::new(whom), within);
            asked.map(|printed| printed.text)
        };
        // What is killed leaves something behind for as long as the folder is there.
        let hangs = tempfile::tempdir().unwrap();
        let hang = format!("while [ -d {} ]; do sleep 0.1; done", hangs.path().display());
        let first = ask("/dev/a", &format!("({hang}) & {hang}"), 50).unwrap_err();
        assert!(first.contains("did not end"), "{first}");
        let start = Instant::now();
        let again = ask("/dev/a", "echo fine", 60_000).unwrap_err();
        assert!(again.contains("still waits for an answer"), "{again}");
        assert_eq!(ask("/dev/b", "echo fine", 60_000).as_deref(), Ok("fine\n"));
        drop(hangs);
        while ask("/dev/a", "echo fine", 60_000).is_err() {
            assert!(start.elapsed() < Duration::from_secs(60), "it answers again");
            std::thread::sleep(LOOK_EVERY);
        }
    }

    #[test]
    fn health_is_read_from_either_program() {
        let json = r#"{"smart_status":{"passed":false},"temperature":{"current":41},
            "nvme_smart_health_information_log":{"percentage_used":7,"media_errors":2,
            "critical_warning":5,"available_spare":3}}"#;
        let (_folder, programs) = with("smartctl", &format!("cat <<'E'\n{json}\nE\nexit 8"));
        let health = programs.health("/d".to_owned(), Some("/dev/sda".to_owned()));
        assert_eq!((health.is_good, health.media_errors), (Some(false), Some(2)));
        assert_eq!((health.temperature, health.used_percent), (Some(41), Some(7)));
        assert_eq!((health.unknown, health.spare_percent), (None, Some(3)));
        assert_eq!(health.warnings, ["spare blocks run out", "not reliable any more"]);
        let json = r#"{"smart_status":{"passed":true},"ata_smart_attributes":{"table":[
            {"id":5,"raw":{"value":8}},{"id":187,"raw":{"value":4}}]}}"#;
        let (_folder, programs) = with("smartctl", &format!("cat <<'E'\n{json}\nE"));
        let health = programs.health("/d".to_owned(), Some("/dev/sda".to_owned()));
        assert_eq!((health.is_good, health.media_errors), (Some(true), Some(4)));
        let json =
            r#"{"critical_warning":0,"temperature":310,"percent_used":1,"media_errors":"3"}"#;
        let (_folder, programs) = with("nvme", &format!("echo '{json}'"));
        let health = programs.health("/d".to_owned(), Some("/dev/nvme0n1".to_owned()));
        assert_eq!((health.is_good, health.temperature), (Some(true), Some(37)));
        assert_eq!(health.media_errors, Some(3));
    }

    #[test]
    fn what_cannot_be_known_is_said() {
        let unknown = |programs: &Programs, device: Option<&str>| {
            programs.health("/d".to_owned(), device.map(str::to_owned)).unknown.unwrap()
        };
        let none = Programs::new(Vec::new());
        assert!(unknown(&none, Some("/dev/sda")).contains("install smartmontools"));
        assert!(unknown(&none, None).contains("not on a device"));
        let (_folder, programs) = with("smartctl", "echo 'Permission denied'; exit 2");
        assert_eq!(unknown(&programs, Some("/dev/sda")), "no answer: Permission denied");
        let (_folder, programs) = with("smartctl", "echo '{}'");
        assert_eq!(unknown(&programs, Some("/dev/vda")), "the device gives no account");
    }
}
