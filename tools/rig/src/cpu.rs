//! CPU time: of groups of processes, of this thread, of one CPU; and who runs where.
//!
//! A server's time is that of its control group where there is one, since that includes threads
//! that came and went (io_uring's, nginx's); else of its processes.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::thread::CpuSet;

/// Where a server's CPU time is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Account {
    /// `cpuacct.usage` of a version 1 group, in nanoseconds.
    Version1(PathBuf),
    /// `usage_usec` in `cpu.stat` of a version 2 group.
    Version2(PathBuf),
    /// The process and its descendants.
    Processes(u32),
}

impl Account {
    /// All that has been used so far, user and system.
    pub fn used(&self) -> Result<Duration> {
        match self {
            Self::Version1(group) => {
                let text = read(&group.join("cpuacct.usage"))?;
                Ok(Duration::from_nanos(text.trim().parse()?))
            }
            Self::Version2(group) => {
                let text = read(&group.join("cpu.stat"))?;
                let usage = text.lines().find_map(|line| line.strip_prefix("usage_usec "));
                let usage = usage.context("cpu.stat without usage_usec")?;
                Ok(Duration::from_micros(usage.trim().parse()?))
            }
            Self::Processes(root) => processes(*root),
        }
    }
}

/// Binds the calling thread, and what it starts, to one CPU.
pub fn pin(cpu: usize) -> Result<()> {
    pin_to(&[cpu])
}

/// The same to several.
pub fn pin_to(cpus: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(*cpu);
    }
    rustix::thread::sched_setaffinity(None, &set)
        .with_context(|| format!("cannot run on {cpus:?}: this needs a machine with two CPUs"))
}

/// CPU time of the calling thread: to the moment, where its `schedstat` is as of the last tick.
pub fn of_this_thread() -> Result<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Ok(Duration::new(u64::try_from(time.tv_sec)?, u32::try_from(time.tv_nsec)?))
}

/// Time in which `cpu` was not idle, whoever used it.
pub fn busy(cpu: usize) -> Result<Duration> {
    busy_in(&read(Path::new("/proc/stat"))?, cpu)
}

fn busy_in(stat: &str, cpu: usize) -> Result<Duration> {
    let name = format!("cpu{cpu} ");
    let line = stat.lines().find_map(|line| line.strip_prefix(&name));
    let line = line.with_context(|| format!("/proc/stat does not know CPU {cpu}"))?;
    let ticks: Vec<u64> =
        line.split_ascii_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    ensure!(7 <= ticks.len(), "/proc/stat with too few columns");
    // user nice system (idle iowait) irq softirq; steal is not ours, guest is part of user
    ticks_to_time(ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6])
}

/// utime + stime of the whole process, threads that ended included, and of its descendants.
fn processes(root: u32) -> Result<Duration> {
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // A process may end while we look.
        if let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) {
            all.push((pid, process_stat(&stat)?));
        }
    }
    let mut family = vec![root];
    let mut at = 0;
    while let Some(parent) = family.get(at).copied() {
        family.extend(all.iter().filter(|(_, (ppid, _))| *ppid == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    ensure!(all.iter().any(|(pid, _)| *pid == root), "process {root} has ended");
    let ticks = all.iter().filter(|(pid, _)| family.contains(pid)).map(|(_, (_, ticks))| ticks);
    ticks_to_time(ticks.sum())
}

/// (parent, utime + stime in ticks) of a line of /proc/PID/stat.
fn process_stat(stat: &str) -> Result<(u32, u64)> {
    // The name in brackets may hold anything, brackets included.
    let (_, after) = stat.rsplit_once(')').context("a stat file without a name")?;
    let fields: Vec<&str> = after.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).context("a stat file with too few fields");
    let ticks = field(14)?.parse::<u64>()? + field(15)?.parse::<u64>()?;
    Ok((field(4)?.parse()?, ticks))
}

fn ticks_to_time(ticks: u64) -> Result<Duration> {
    let per_second = rustix::param::clock_ticks_per_second();
    let nanos = ticks.checked_mul(1_000_000_000).context("too many ticks")? / per_second;
    Ok(Duration::from_nanos(nanos))
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_is_all_but_idle_waiting_and_stolen() {
        let stat = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 100 20 30 9999 888 4 5 777 0 0\ncpu1 1 1\n";
        assert_eq!(busy_in(stat, 0).unwrap(), ticks_to_time(159).unwrap());
        assert!(busy_in(stat, 1).is_err());
        assert!(busy_in(stat, 2).is_err());
    }

    #[test]
    fn a_process_name_may_look_like_fields() {
        let stat = "42 (a) b 7 7 (x)) S 9 1 1 0 -1 4 1 2 3 4 250 50 0 0 20 0 1 0 5";
        assert_eq!(process_stat(stat).unwrap(), (9, 300));
    }

    #[test]
    fn work_shows_in_this_thread_and_in_its_process() {
        let (thread, own) = (of_this_thread().unwrap(), Account::Processes(std::process::id()));
        let process = own.used().unwrap();
        let mut x = 1u64;
        while of_this_thread().unwrap() - thread < Duration::from_millis(60) {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        assert!(Duration::from_millis(40) <= own.used().unwrap() - process);
    }
}
