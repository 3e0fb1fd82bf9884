//! How drives are mounted, from what the kernel says under /proc and /sys.

use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use wire::v1::agent::DriveMount;

/// One line of /proc/self/mountinfo (proc_pid_mountinfo(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    pub(crate) point: PathBuf,
    /// `8:1`, the device's number.
    number: String,
    file_system: String,
    /// The source that was mounted; a path if it is a device.
    source: String,
    /// Of the file system, not of this mount of it: a unit's ReadWritePaths= changes the latter.
    is_read_only: bool,
}

/// All mounts; later ones cover earlier ones.
pub(crate) fn mounts() -> Result<Vec<Mount>, String> {
    let text = std::fs::read("/proc/self/mountinfo").map_err(|error| error.to_string())?;
    Ok(parse(&text))
}

/// The last of `mounts` at `path`.
pub(crate) fn at<'m>(path: &Path, mounts: &'m [Mount]) -> Option<&'m Mount> {
    let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    mounts.iter().rfind(|mount| mount.point == real)
}

pub(crate) fn describe(path: &Path, mounts: &[Mount]) -> DriveMount {
    let text = path.display().to_string();
    let Some(mount) = at(path, mounts) else {
        return DriveMount { path: text, ..DriveMount::default() };
    };
    DriveMount {
        path: text,
        is_mount_point: true,
        device: mount.device(),
        file_system: Some(mount.file_system.clone()),
        is_read_only: mount.is_read_only,
        errors: errors(mount, Path::new("/sys")),
    }
}

impl Mount {
    /// `/dev/sda1`, if it is on a device.
    fn device(&self) -> Option<String> {
        self.source.starts_with("/dev/").then(|| self.source.clone())
    }

    /// `/dev/sda` for `/dev/sda1`: the device that answers for its health.
    pub(crate) fn whole_device(&self) -> Option<String> {
        self.device()?;
        let folder = whole(Path::new("/sys"), &self.number)?;
        Some(format!("/dev/{}", folder.file_name()?.to_str()?))
    }
}

/// The device's folder under /sys, the whole device's if this is a partition of it.
fn whole(sys: &Path, number: &str) -> Option<PathBuf> {
    let folder = std::fs::canonicalize(sys.join("dev/block").join(number)).ok()?;
    if folder.join("partition").exists() { Some(folder.parent()?.to_owned()) } else { Some(folder) }
}

/// The count of errors, of ext4 for the file system and of SCSI for the device; none if neither
/// counts.
fn errors(mount: &Mount, sys: &Path) -> Option<u64> {
    let name = Path::new(&mount.source).file_name()?;
    let ext4 = sys.join("fs").join(&mount.file_system).join(name).join("errors_count");
    let scsi = whole(sys, &mount.number)?.join("device/ioerr_cnt");
    let counts: Vec<u64> = [ext4, scsi].iter().filter_map(|path| number(path)).collect();
    (!counts.is_empty()).then(|| counts.iter().sum())
}

/// Decimal, or hexadecimal after `0x`.
fn number(path: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    let text = text.trim();
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// `36 35 8:1 / /srv/1 rw,noatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro`. Lines that are
/// not like it are left out.
fn parse(text: &[u8]) -> Vec<Mount> {
    let line = |line: &[u8]| {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let dash = fields.iter().position(|field| *field == b"-")?;
        let text = |at: usize| Some(String::from_utf8_lossy(fields.get(at)?).into_owned());
        Some(Mount {
            point: unescape(fields.get(4)?),
            number: text(2)?,
            file_system: text(dash + 1)?,
            source: unescape(fields.get(dash + 2)?).to_string_lossy().into_owned(),
            is_read_only: text(dash + 3)?.split(',').any(|option| option == "ro"),
        })
    };
    text.split(|byte| *byte == b'\n').filter_map(line).collect()
}

/// `\040` is a space; so are tab, newline and backslash written.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| *first == b'\\');
        let value = octal.and_then(|digits| std::str::from_utf8(digits).ok());
        match value.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
        36 22 8:1 / /srv/my\\040drive rw,noatime shared:1 master:2 - ext4 /dev/sda1 ro,seclabel\n\
        37 22 0:24 / /run ro,nosuid - tmpfs tmpfs rw,size=1k\nnonsense\n";

    #[test]
    fn a_file_system_that_takes_no_writes_is_told_from_a_mount_that_takes_none() {
        let mounts = parse(TEXT);
        assert_eq!(mounts.len(), 3);
        let drive = describe(Path::new("/srv/my drive"), &mounts);
        assert!(drive.is_mount_point && drive.is_read_only, "{drive:?}");
        assert_eq!(drive.device.as_deref(), Some("/dev/sda1"));
        assert_eq!(drive.file_system.as_deref(), Some("ext4"));
        assert!(!parse(TEXT)[2].is_read_only, "its mount is, the file system is not");
        assert_eq!(parse(TEXT)[2].device(), None);
    }

    #[test]
    fn a_folder_on_another_file_system_is_no_mount_point() {
        let drive = describe(Path::new("/srv"), &parse(TEXT));
        assert_eq!(drive, DriveMount { path: "/srv".to_owned(), ..DriveMount::default() });
    }

    #[test]
    fn errors_are_those_of_file_system_and_whole_device() {
        let sys = tempfile::tempdir().unwrap();
        let at = |name: &str| sys.path().join(name);
        for folder in ["devices/sda/device", "devices/sda/sda1", "dev/block", "fs/ext4/sda1"] {
            std::fs::create_dir_all(at(folder)).unwrap();
        }
        std::os::unix::fs::symlink("../../devices/sda/sda1", at("dev/block/8:1")).unwrap();
        let mount = &parse(TEXT)[1];
        assert_eq!(errors(mount, sys.path()), None);
        std::fs::write(at("devices/sda/sda1/partition"), "1").unwrap();
        std::fs::write(at("devices/sda/device/ioerr_cnt"), "0x10\n").unwrap();
        assert_eq!(errors(mount, sys.path()), Some(16));
        std::fs::write(at("fs/ext4/sda1/errors_count"), "3\n").unwrap();
        assert_eq!(errors(mount, sys.path()), Some(19));
        assert_eq!(whole(sys.path(), "8:1").unwrap(), at("devices/sda").canonicalize().unwrap());
    }
}
