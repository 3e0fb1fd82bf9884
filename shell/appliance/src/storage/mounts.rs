//! What file system and what device a drive has, without asking the drive.
//!
//! On ext4 and XFS the kernel tries a read without waiting, and a drive that hangs costs nobody
//! anything. On others, FUSE among them, whoever asks may wait inside the call: there a thread of
//! the kernel has to ask, which costs more and blocks nobody.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use iosched::drive::{NVME_TARGET, SATA_TARGET};
use model::drives::{DriveIndex, DriveSet};
use model::units::Nanos;
use rustix::fs::{Mode, OFlags};

/// File systems that never block a caller that asks by a ring.
const PROMPT: [&str; 4] = ["ext4", "ext3", "ext2", "xfs"];

/// Those of `drives` whose file system may block whoever asks it. If that cannot be known, it may.
pub fn blocking(drives: &[impl AsRef<Path>]) -> DriveSet {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let all = DriveIndex::all(drives.len()).zip(drives);
    let blocking = all.filter(|(_, drive)| blocks(&mounts, drive.as_ref()));
    blocking.map(|(index, _)| index).collect()
}

/// Whether a drive says what its folder is takes microseconds; what has to wake up takes seconds.
/// Arbitrary, and below the time after which a supervisor loses patience with a start.
const SAYS_WITHIN: Duration = Duration::from_secs(5);

/// Those of `drives` that may block whoever asks it, and do not say what their folder is.
/// Each is asked by a thread of its own; one that gets no answer is left behind, and ends when it
/// does. Ask before the process is confined: that asks the same of every folder, and waits.
pub fn silent(drives: &[PathBuf], blocking: DriveSet) -> DriveSet {
    silent_for(drives, blocking, SAYS_WITHIN, |drive| {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // What it says, or that it is not there, is for others to judge.
        let _ = rustix::fs::open(drive, flags, Mode::empty()).map(rustix::fs::fstat);
    })
}

/// Folders with drives in them and nothing else. A file system that is mounted at a drive's folder
/// later is reached, for the kernel's rules, through the folder around it alone.
pub fn folders_of_drives(drives: &[PathBuf]) -> BTreeSet<PathBuf> {
    let parents = drives.iter().filter_map(|drive| drive.parent());
    let is_theirs = |folder: &&Path| {
        let Ok(entries) = std::fs::read_dir(folder) else { return false };
        entries.into_iter().all(|entry| entry.is_ok_and(|entry| drives.contains(&entry.path())))
    };
    parents.filter(is_theirs).map(Path::to_owned).collect()
}

fn silent_for(
    drives: &[PathBuf],
    blocking: DriveSet,
    patience: Duration,
    ask: impl Fn(&Path) + Clone + Send + 'static,
) -> DriveSet {
    let (tell, told) = channel();
    let mut silent = DriveSet::NONE;
    for index in blocking.iter().take_while(|index| index.as_usize() < drives.len()) {
        let drive = &drives[index.as_usize()];
        let (tell, drive, ask) = (tell.clone(), drive.clone(), ask.clone());
        let asked = move || {
            ask(&drive);
            let _ = tell.send(index);
        };
        let thread = std::thread::Builder::new().name(format!("ask-{index}")).spawn(asked);
        // Without a thread nobody can say.
        silent.set(index, thread.is_ok());
    }
    let until = Instant::now() + patience;
    while !silent.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        let Ok(index) = told.recv_timeout(left) else { break };
        silent.remove(index);
    }
    silent
}

/// What a drive is, as far as its device's name tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Medium {
    /// A read of 256 KiB should not take longer.
    pub target: Nanos,
    /// It does nothing beside a delete, as SATA drives do.
    pub deletes_alone: bool,
}

/// What each of `drives` is.
pub fn media(drives: &[impl AsRef<Path>]) -> Vec<Medium> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let medium = |drive: &_| medium(device(&mounts, AsRef::as_ref(drive)), rotates);
    drives.iter().map(medium).collect()
}

/// True of a disk with a spindle, by the name of its device without a partition's number.
fn rotates(disk: &str) -> bool {
    let says = std::fs::read_to_string(format!("/sys/block/{disk}/queue/rotational"));
    says.is_ok_and(|says| says.trim() == "1")
}

/// What is on a device of this name: docs/operate/drives.md has the table.
fn medium(device: Option<&str>, rotates: impl Fn(&str) -> bool) -> Medium {
    let name = device.and_then(|device| device.strip_prefix("/dev/")).unwrap_or("");
    let disk = name.trim_end_matches(|c: char| c.is_ascii_digit());
    if name.starts_with("nvme") {
        Medium { target: NVME_TARGET, deletes_alone: false }
    } else if name.starts_with("sd") && rotates(disk) {
        Medium { target: Nanos::millis(40), deletes_alone: false }
    } else if name.starts_with("sd") {
        Medium { target: SATA_TARGET, deletes_alone: true }
    } else {
        Medium { target: Nanos::millis(20), deletes_alone: false }
    }
}

/// True unless the drive's file system is one that never blocks its caller.
fn blocks(mounts: &str, drive: &Path) -> bool {
    mount(mounts, drive).is_none_or(|(kind, _)| !PROMPT.contains(&kind))
}

fn device<'a>(mounts: &'a str, drive: &Path) -> Option<&'a str> {
    mount(mounts, drive).map(|(_, device)| device)
}

/// Kind and device by the last mount of the longest folder that the drive is in
/// (proc_pid_mountinfo(5)).
fn mount<'a>(mounts: &'a str, drive: &Path) -> Option<(&'a str, &'a str)> {
    let drive = std::path::absolute(drive).ok()?;
    let mut longest = 0;
    let mut found = None;
    for line in mounts.lines() {
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let mut right = right.split(' ');
        let (Some(folder), Some(kind)) = (left.split(' ').nth(4), right.next()) else {
            continue;
        };
        // Spaces in names are written in octal.
        let folder = folder.replace("\\040", " ");
        if drive.starts_with(&folder) && longest <= folder.len() {
            longest = folder.len();
            found = Some((kind, right.next().unwrap_or("")));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
40 22 8:1 / /d/1 rw shared:2 - xfs /dev/sda1 rw,attr2
41 22 0:40 / /d/2 rw - fuse.nearcast-lab nearcast-lab rw
42 22 8:2 / /d/a\\040b rw - btrfs /dev/sdb rw
43 40 0:41 / /d/1/x rw - ext4 below rw
44 22 0:42 / /d/1/x rw - fuse above rw
";

    #[test]
    fn who_does_not_say_what_it_is_is_silent_and_nobody_waits_for_it() {
        let drives: Vec<PathBuf> = ["/a", "/b", "/c"].map(PathBuf::from).to_vec();
        let (hold, held) = channel::<()>();
        let held = std::sync::Arc::new(std::sync::Mutex::new(held));
        let ask = move |drive: &Path| {
            if drive != Path::new("/b") {
                let _ = held.lock().expect("nobody panics").recv();
            }
        };
        let patience = Duration::from_millis(200);
        let [b, c] = [DriveIndex(1), DriveIndex(2)];
        let silent = silent_for(&drives, DriveSet::from_iter([b, c]), patience, ask);
        assert_eq!(silent, DriveSet::from_iter([c]), "the first is not asked");
        drop(hold);
    }

    #[test]
    fn a_folder_with_something_else_in_it_is_not_given_away_with_its_drives() {
        let dir = tempfile::tempdir().unwrap();
        let [own, shared] = ["own", "shared"].map(|name| dir.path().join(name));
        let drives = [own.join("1"), own.join("2"), shared.join("3")];
        drives.iter().for_each(|drive| std::fs::create_dir_all(drive).unwrap());
        std::fs::write(shared.join("secrets"), "").unwrap();
        assert_eq!(folders_of_drives(&drives), [own.clone()].into());
        assert_eq!(folders_of_drives(&drives[1..]), BTreeSet::new(), "1 is somebody else's");
        assert!(folders_of_drives(&["/1".into()]).is_empty());
    }

    #[test]
    fn the_innermost_and_last_mount_counts() {
        let cases = [("/d/1", false), ("/d/2", true), ("/d/3", false), ("/d/22", false)];
        let more =
            [("/d/a b", true), ("/d/2/deep/er", true), ("/d/1/x/y", true), ("/d/1/xy", false)];
        for (drive, expected) in cases.into_iter().chain(more) {
            assert_eq!(blocks(MOUNTS, drive.as_ref()), expected, "{drive}");
        }
        assert!(blocks("", "/d/1".as_ref()), "who knows");
    }

    #[test]
    fn what_a_drive_is_follows_from_its_device() {
        let of = |drive: &str, rotates: bool| {
            let medium = medium(device(MOUNTS, drive.as_ref()), |disk| rotates && disk == "sda");
            (medium.target.as_millis(), medium.deletes_alone)
        };
        assert_eq!(of("/d/1", false), (5, true), "SATA");
        assert_eq!(of("/d/1", true), (40, false), "a disk with a spindle");
        assert_eq!(of("/d/3", true), (20, false), "virtio says that it has a spindle");
        assert_eq!(of("/d/2", true), (20, false), "FUSE");
        let nvme = medium(Some("/dev/nvme0n1p1"), |_| true);
        assert_eq!(nvme, Medium { target: Nanos::millis(2), deletes_alone: false });
    }
}
