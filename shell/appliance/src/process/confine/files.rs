//! Which files the process may open, kept by the kernel (Landlock).

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};

use super::{ConfineError, Grants, reached_through};

/// What a kernel made of the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Enforced {
    All,
    Some,
    None,
}

/// The newest rules that we ask for: Linux 6.15.
const NEWEST: ABI = ABI::V7;

/// What a process without secrets of its own reads beside what it is told of: names to addresses,
/// certificates to trust, libraries that the C library loads when a name is asked for, and what the
/// kernel says of the process itself.
const SYSTEM: [&str; 19] = [
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/ld.so.cache",
    "/etc/ssl/certs",
    "/etc/pki/tls/certs",
    "/etc/ssl/cert.pem",
    "/run/systemd/resolve",
    "/run/NetworkManager/resolv.conf",
    "/usr/lib",
    "/lib",
    "/lib64",
    "/proc/meminfo",
    "/proc/self",
    "/sys/fs/cgroup",
    "/sys/devices/system/cpu",
];

/// Restricts files, ports to bind, and signals and abstract sockets of other processes.
pub(super) fn restrict(grants: &Grants) -> Result<Enforced, ConfineError> {
    let write = read_write();
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let mut rules = Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))?
        // All ports are bound by now, so none is named.
        .handle_access(AccessNet::BindTcp)?
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    for path in &grants.read_write {
        let folder = PathFd::new(path)
            .map_err(|error| ConfineError::Folder { path: path.clone(), error })?;
        rules = rules.add_rule(PathBeneath::new(folder, write))?;
    }
    let told: Vec<PathBuf> = grants.read.iter().flat_map(|file| reached_through(file)).collect();
    for path in told.iter().map(PathBuf::as_path).chain(SYSTEM.iter().map(Path::new)) {
        rules = allow_if_there(rules, path, read)?;
    }
    Ok(match rules.restrict_self()?.ruleset {
        RulesetStatus::FullyEnforced => Enforced::All,
        RulesetStatus::PartiallyEnforced => Enforced::Some,
        RulesetStatus::NotEnforced => Enforced::None,
    })
}

/// Regular files and folders only: nobody makes devices, sockets, pipes or links here, and nothing
/// here is run.
fn read_write() -> BitFlags<AccessFs> {
    AccessFs::ReadFile
        | AccessFs::ReadDir
        | AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::MakeReg
        | AccessFs::MakeDir
        | AccessFs::RemoveFile
        | AccessFs::RemoveDir
        | AccessFs::Refer
}

fn allow_if_there(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, ConfineError> {
    let Ok(opened) = PathFd::new(path) else { return Ok(rules) };
    let is_folder = path.is_dir();
    let access = if is_folder { access } else { access & AccessFs::from_file(NEWEST) };
    Ok(rules.add_rule(PathBeneath::new(opened, access))?)
}
