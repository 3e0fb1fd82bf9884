//! How much memory hot blocks and paced transfers get: what is asked for, if it may be locked.

use std::path::Path;

use anyhow::ensure;
use model::units::Bytes;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities};

use crate::process::config::Settings;
use crate::process::config::check::{BUFFER, HOT_BLOCKS_MAX};

/// Read buffers of one worker; more would only wait in memory for the CPU.
const BUFFERS_MAX: usize = 512;
/// Of the memory that a control group allows, what is locked for hot blocks unless it is said.
const GROUP_SHARE: u64 = 4;
/// Of the memory that a control group allows, what paced transfers may keep at most.
const PACED_SHARE: u64 = 8;

/// The same settings with no more memory for paced transfers than this process may have and lock.
pub(crate) fn fit(mut settings: Settings) -> Settings {
    if let Some(group) = group_limit() {
        let buffers = &mut settings.pacing.buffers.0;
        *buffers = Bytes(group.0 / PACED_SHARE).min(*buffers);
    }
    let workers = Bytes::of(settings.serve.workers).0;
    let needed = u64::from(read_buffers(&settings)) * BUFFER * workers;
    let allowed = raise_memory_limit(Bytes(needed));
    if allowed.0 < needed {
        settings.pacing.buffers.0 = Bytes::ZERO;
        tracing::warn!(
            needed = %Bytes(needed),
            %allowed,
            "may not lock enough memory: paced responses are read a burst at a time, which costs \
             more reads. Raise the limit (LimitMEMLOCK= of the unit, ulimit -Hl)"
        );
    }
    settings
}

/// Read buffers of one worker, those that paced transfers keep among them.
pub(crate) fn read_buffers(settings: &Settings) -> u16 {
    let buffers = (settings.drives.paths.len() * settings.drives.depth).min(BUFFERS_MAX);
    let buffers = u16::try_from(buffers).expect("bounded by the line above");
    buffers + settings.pacing.share(settings.serve.workers).buffers
}

/// Hot blocks of one worker. Raises the limit of locked memory to what they and the read buffers
/// need. Fails if the memory is asked for in the configuration and may not be locked.
pub(crate) fn blocks(settings: &Settings) -> anyhow::Result<u16> {
    let workers = Bytes::of(settings.serve.workers).0;
    let reads = u64::from(read_buffers(settings)) * BUFFER * workers;
    let is_asked = settings.origins.is_given("hot.memory");
    let wanted = settings.hot.memory.0.0;
    let group = group_limit();
    ensure!(
        !is_asked || group.is_none_or(|group| reads + wanted < group.0),
        "[hot] memory: {} cannot be had where {} are allowed in all (memory.max of the control \
         group, MemoryMax= of the unit): raise that, or ask for less",
        Bytes(wanted),
        group.unwrap_or_default()
    );
    let fits = group.map_or(u64::MAX, |group| group.0 / GROUP_SHARE);
    let wanted = if is_asked { wanted } else { wanted.min(fits) };
    let allowed = raise_memory_limit(Bytes(reads + wanted));
    let locked = wanted.min(allowed.0.saturating_sub(reads));
    if locked < wanted {
        ensure!(
            !is_asked,
            "[hot] memory: {} with {} for reads is more than may be locked, {allowed}: raise the \
             limit (LimitMEMLOCK= of the unit, ulimit -Hl), or ask for less",
            Bytes(wanted),
            Bytes(reads)
        );
        tracing::warn!(
            needed = %Bytes(reads + wanted),
            %allowed,
            "may not lock as much memory as is good: fewer or no blocks are kept in it. Raise the \
             limit (LimitMEMLOCK= of the unit, ulimit -Hl)"
        );
    }
    let blocks = (locked / workers / BUFFER).min(HOT_BLOCKS_MAX);
    Ok(u16::try_from(blocks).expect("bounded by the line above"))
}

/// Asks for so much to be lockable; what is. Some may lock without limit (CAP_IPC_LOCK).
pub(crate) fn raise_memory_limit(needed: Bytes) -> Bytes {
    let Rlimit { current, maximum } = getrlimit(Resource::Memlock);
    let may_lock = capabilities(None).is_ok_and(|c| c.effective.contains(CapabilitySet::IPC_LOCK));
    if may_lock || current.is_none_or(|current| needed.0 <= current) {
        return needed;
    }
    let whole = maximum.map(|maximum| maximum.max(needed.0));
    if setrlimit(Resource::Memlock, Rlimit { current: whole, maximum: whole }).is_ok() {
        return needed;
    }
    // What anybody may do: raise it as far as it was allowed from the start.
    let raised = setrlimit(Resource::Memlock, Rlimit { current: maximum, maximum }).is_ok();
    let allowed = if raised { maximum } else { current };
    Bytes(allowed.unwrap_or(u64::MAX)).min(needed)
}

/// The least that this process's control group, or one around it, allows in all; none if none does
/// or it cannot be seen (cgroup v2: Documentation/admin-guide/cgroup-v2.rst of Linux).
pub(crate) fn group_limit() -> Option<Bytes> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let own = Path::new(own);
    let limit = |group: &Path| {
        let file = Path::new("/sys/fs/cgroup").join(group).join("memory.max");
        std::fs::read_to_string(file).ok()?.trim().parse().ok().map(Bytes)
    };
    own.ancestors().filter_map(limit).min()
}
