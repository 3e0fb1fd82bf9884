//! From root to a user without capabilities, for good.

use std::path::Path;

use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Gid, Uid, getuid, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, set_capabilities,
    set_keep_capabilities, set_no_new_privs, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};

/// Why privileges were not dropped.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    #[error("cannot read {path}: {error}")]
    Read { path: &'static str, error: std::io::Error },
    #[error(
        "[process] user = \"{0}\": /etc/passwd has no such user. To make it: \
         useradd --system --user-group --no-create-home --shell /usr/sbin/nologin {0}"
    )]
    Unknown(String),
    #[error("[process] user = \"{user}\": start it as root or as {user}, not as user id {uid}")]
    NotRoot { user: String, uid: u32 },
    #[error("cannot drop privileges: {step}: {error}")]
    Refused { step: &'static str, error: Errno },
    /// It seemed to work and did not.
    #[error("privileges were dropped and could be taken back: refusing to go on")]
    CameBack,
}

/// A user as the files under /etc have it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct User {
    uid: u32,
    gid: u32,
    /// Groups besides `gid`.
    groups: Vec<u32>,
}

/// Locking memory: the kernel counts read buffers of all processes of a user together, which is no
/// limit that anybody sets. Where it is not there, RLIMIT_MEMLOCK decides.
const KEPT: CapabilitySet = CapabilitySet::IPC_LOCK;

/// Makes this thread, and those that it starts, run as `user`, if there is one to change to, and
/// without any capability but `KEPT` in any case.
pub fn drop_privileges(user: Option<&str>) -> Result<(), UserError> {
    let uid = getuid();
    match user {
        Some(name) => become_user(name, uid)?,
        None if uid.is_root() => tracing::warn!(
            "runs as root: give it a user of its own with [process] user = \"nearcast\""
        ),
        None => {}
    }
    // Ambient ones (AmbientCapabilities= of a unit) would outlive the change of user.
    clear_ambient_capability_set().map_err(refused("clearing ambient capabilities"))?;
    let kept = capabilities(None).map_err(refused("reading capabilities"))?.permitted & KEPT;
    let inheritable = CapabilitySet::empty();
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable };
    set_capabilities(None, sets).map_err(refused("clearing capabilities"))?;
    if !getuid().is_root() && set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT).is_ok() {
        return Err(UserError::CameBack);
    }
    set_no_new_privs(true).map_err(refused("no_new_privs"))?;
    // A core would hold keys; and who cannot dump cannot be looked into by its own user.
    let not = DumpableBehavior::NotDumpable;
    set_dumpable_behavior(not).map_err(refused("forbidding core dumps"))
}

fn become_user(name: &str, now: Uid) -> Result<(), UserError> {
    let user = find(name)?;
    if now.as_raw() == user.uid && !now.is_root() {
        return Ok(());
    }
    if !now.is_root() {
        return Err(UserError::NotRoot { user: name.to_owned(), uid: now.as_raw() });
    }
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    let groups: Vec<Gid> = user.groups.iter().map(|id| Gid::from_raw(*id)).collect();
    set_keep_capabilities(true).map_err(refused("keeping capabilities"))?;
    // The order matters: without the user there is no right to change groups.
    set_thread_groups(&groups).map_err(refused("setgroups"))?;
    set_thread_res_gid(gid, gid, gid).map_err(refused("setresgid"))?;
    set_thread_res_uid(uid, uid, uid).map_err(refused("setresuid"))?;
    Ok(())
}

fn refused(step: &'static str) -> impl FnOnce(Errno) -> UserError {
    move |error| UserError::Refused { step, error }
}

fn find(name: &str) -> Result<User, UserError> {
    let read = |path: &'static str| {
        std::fs::read_to_string(Path::new(path)).map_err(|error| UserError::Read { path, error })
    };
    let user = lookup(name, &read("/etc/passwd")?, &read("/etc/group")?);
    user.ok_or_else(|| UserError::Unknown(name.to_owned()))
}

/// `passwd` has lines `name:x:uid:gid:...`, `group` has `name:x:gid:member,member`.
fn lookup(name: &str, passwd: &str, group: &str) -> Option<User> {
    let fields = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let (uid, gid) = fields.filter(|fields| fields.first() == Some(&name)).find_map(|fields| {
        Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse::<u32>().ok()?))
    })?;
    let member = |line: &str| {
        let fields: Vec<_> = line.split(':').collect();
        let id = fields.get(2)?.parse().ok()?;
        let is_member = fields.get(3)?.split(',').any(|member| member.trim() == name);
        (is_member && id != gid).then_some(id)
    };
    Some(User { uid, gid, groups: group.lines().filter_map(member).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_with_its_groups() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nnearcastle:x:1:1::/:/\nnearcast:x:990:991::/:";
        let group = "root:x:0:\nnearcast:x:991:nearcast\nssl-cert:x:105:postgres,nearcast\n\
            other:x:7:nearcastle\n";
        let user = User { uid: 990, gid: 991, groups: vec![105] };
        assert_eq!(lookup("nearcast", passwd, group), Some(user));
        assert_eq!(lookup("nobody", passwd, group), None);
        assert_eq!(lookup("nearcast", "nearcast:x:many:1", group), None);
    }
}
