//! Control groups: a server's CPU time in one sum, and a limit on its memory.
//!
//! Version 1 has one tree per controller, version 2 one tree for all; machines have either, or
//! both at once. Whoever may not make groups still has the CPU time of the processes.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use model::units::Bytes;
use rig::cpu::Account;
use tracing::{debug, warn};

/// The groups of one server; removed when dropped, if nothing runs in them any more.
#[derive(Debug)]
pub(crate) struct Group {
    /// Whoever joins writes its process id here.
    joins: Vec<PathBuf>,
    dirs: Vec<PathBuf>,
    account: Option<Account>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Trees {
    cpuacct: Option<PathBuf>,
    memory: Option<PathBuf>,
    unified: Option<PathBuf>,
}

impl Group {
    /// Makes groups called `name`; with `memory_max`, what runs there gets no more memory, page
    /// cache included.
    pub(crate) fn new(name: &str, memory_max: Option<Bytes>) -> Result<Self> {
        let trees = trees(&fs::read_to_string("/proc/self/mounts")?);
        debug!(?trees, "control groups");
        let mut group = Self { joins: Vec::new(), dirs: Vec::new(), account: None };
        if let Err(error) = group.account_cpu(&trees, name) {
            warn!(%error, "no control group for CPU time: that of processes is taken");
        }
        if let Some(max) = memory_max {
            group.limit_memory(&trees, name, max).context(
                "this workload needs a memory limit on the servers, and so a control group \
                 (version 1 or 2) that this user may make: run it as root",
            )?;
        }
        Ok(group)
    }

    /// Where the CPU time of a server is read that was started in this group as `pid`.
    pub(crate) fn account(&self, pid: u32) -> Account {
        self.account.clone().unwrap_or(Account::Processes(pid))
    }

    /// Files to which a process writes its id in order to join.
    pub(crate) fn joins(&self) -> &[PathBuf] {
        &self.joins
    }

    fn account_cpu(&mut self, trees: &Trees, name: &str) -> Result<()> {
        if let Some(tree) = &trees.cpuacct {
            let dir = self.make(tree, name)?;
            self.account = Some(Account::Version1(dir));
        } else if let Some(tree) = &trees.unified {
            let dir = self.make(tree, name)?;
            self.account = Some(Account::Version2(dir));
        }
        Ok(())
    }

    fn limit_memory(&mut self, trees: &Trees, name: &str, max: Bytes) -> Result<()> {
        if let Some(tree) = &trees.memory {
            let dir = self.make(tree, name)?;
            return set(&dir.join("memory.limit_in_bytes"), &max.0.to_string());
        }
        let Some(tree) = &trees.unified else {
            bail!("no control groups are mounted");
        };
        set(&tree.join("cgroup.subtree_control"), "+memory")?;
        let dir = self.make(tree, name)?;
        set(&dir.join("memory.max"), &max.0.to_string())
    }

    fn make(&mut self, tree: &Path, name: &str) -> Result<PathBuf> {
        let dir = tree.join(name);
        if !self.dirs.contains(&dir) {
            fs::create_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
            self.dirs.push(dir.clone());
            self.joins.push(dir.join("cgroup.procs"));
        }
        Ok(dir)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for dir in &self.dirs {
            // A process that has just ended may be counted for a moment more.
            let gone = (0..100).any(|_| {
                let removed = fs::remove_dir(dir).is_ok();
                if !removed {
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
                removed
            });
            if !gone {
                warn!(group = %dir.display(), "cannot remove the control group: use rmdir");
            }
        }
    }
}

/// Finds the trees in the text of /proc/mounts: device, place, type, options.
fn trees(mounts: &str) -> Trees {
    let mut trees = Trees::default();
    for line in mounts.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let [_, place, kind, options, ..] = fields.as_slice() else {
            continue;
        };
        let has = |name: &str| options.split(',').any(|option| option == name);
        match *kind {
            "cgroup2" => trees.unified = Some(PathBuf::from(place)),
            "cgroup" if has("cpuacct") => trees.cpuacct = Some(PathBuf::from(place)),
            "cgroup" if has("memory") => trees.memory = Some(PathBuf::from(place)),
            _ => {}
        }
    }
    trees
}

fn set(path: &Path, text: &str) -> Result<()> {
    let mut file = fs::OpenOptions::new()
        .write(true)
        .open(path)
        .with_context(|| format!("cannot open {}", path.display()))?;
    file.write_all(text.as_bytes())
        .with_context(|| format!("cannot write {text} to {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_of_control_groups_are_found() {
        fn check(mounts: &str, cpuacct: Option<&str>, memory: Option<&str>, unified: Option<&str>) {
            let path = |text: Option<&str>| text.map(PathBuf::from);
            let wanted =
                Trees { cpuacct: path(cpuacct), memory: path(memory), unified: path(unified) };
            assert_eq!(trees(mounts), wanted);
        }
        let one = "cgroup /c/cpu,cpuacct cgroup rw,nosuid,cpu,cpuacct 0 0\n\
            cgroup /c/memory cgroup rw,memory 0 0\n";
        check(one, Some("/c/cpu,cpuacct"), Some("/c/memory"), None);
        let two = "cgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n";
        check(two, None, None, Some("/sys/fs/cgroup"));
        check(
            &format!("{one}{two}"),
            Some("/c/cpu,cpuacct"),
            Some("/c/memory"),
            Some("/sys/fs/cgroup"),
        );
        check("proc /proc proc rw 0 0\nshort\n", None, None, None);
    }
}
