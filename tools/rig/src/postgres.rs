//! A PostgreSQL server of this run alone: Debian's programs, as another user, on a socket in a
//! folder of its own, flushing what it commits.

use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal};

use crate::process::{On, Process};

/// A server. Dropping it ends it; its folder goes with the run's.
pub struct Postgres {
    process: Process,
    folder: PathBuf,
}

/// Where Debian has the programs of each version.
const PROGRAMS: &str = "/usr/lib/postgresql";
/// Its user, by Debian's package: the server refuses to run as root.
const USER: &str = "postgres";
/// A server answers within this.
const START_MAX: Duration = Duration::from_secs(30);

impl Postgres {
    /// Makes a database cluster in a new folder of `room` and starts a server on it.
    pub fn start(room: &Path) -> Result<Self> {
        let programs = programs()?;
        let folder = room.join("postgres");
        std::fs::create_dir_all(&folder)?;
        let log = room.join("postgres.log");
        let is_root = rustix::process::geteuid().is_root();
        if is_root {
            let user = id(USER)?;
            for folder in [room, &folder] {
                chown(folder, Some(user), None).with_context(|| folder.display().to_string())?;
            }
        }
        let as_user = |program: &str, arguments: &[&str]| {
            let other = [
                "setpriv",
                &format!("--reuid={USER}"),
                &format!("--regid={USER}"),
                "--clear-groups",
            ];
            let other = if is_root { &other[..] } else { &[] };
            let program = programs.join(program).display().to_string();
            let words = other.iter().copied().chain([&*program]).chain(arguments.iter().copied());
            words.map(str::to_owned).collect::<Vec<_>>()
        };
        let data = folder.join("data").display().to_string();
        let socket = folder.display().to_string();
        // What is being made need not outlive a power cut; what is committed later is flushed.
        let made = ["-D", &data, "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "-N"];
        Process::run("initdb", &as_user("initdb", &made), &log)?;
        let flags =
            ["-D", &data, "-k", &socket, "-c", "listen_addresses=", "-c", "max_connections=400"];
        let mut process =
            Process::start("postgres", &as_user("postgres", &flags), On::default(), &log)?;
        let ready = as_user("pg_isready", &["-q", "-h", &socket]);
        process.wait_until("a server that answers", START_MAX, || {
            Ok(Process::run("pg_isready", &ready, &log).is_ok())
        })?;
        Ok(Self { process, folder })
    }

    /// Stops all of the server where it stands, so that packets to it are taken and nothing comes
    /// back; or lets it go on.
    pub fn pause(&mut self, pause: bool) -> Result<()> {
        let signal = if pause { Signal::STOP } else { Signal::CONT };
        // The first one starts all others: none comes once it stands.
        self.process.signal(signal);
        for child in children(self.process.id())? {
            if let Err(error) = rustix::process::kill_process(child, signal)
                && error != rustix::io::Errno::SRCH
            {
                return Err(error).context("a process of PostgreSQL cannot be signalled");
            }
        }
        Ok(())
    }

    /// What a query answers, one row a line.
    pub fn query(&self, sql: &str) -> Result<String> {
        let done = self.psql(sql)?.output().context("psql does not start")?;
        let said = String::from_utf8_lossy(&done.stderr);
        anyhow::ensure!(done.status.success(), "psql: {}: {sql}", said.trim());
        Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned())
    }

    /// Begins a query; its answer goes nowhere.
    pub fn begin_query(&self, sql: &str) -> Result<Child> {
        self.psql(sql)?.stdout(Stdio::null()).spawn().context("psql does not start")
    }

    fn psql(&self, sql: &str) -> Result<Command> {
        let folder = self.folder.display().to_string();
        let words = ["-h", &folder, "-U", USER, "-d", "postgres", "-At", "-c", sql];
        let mut command = Command::new(programs()?.join("psql"));
        command.args(words);
        Ok(command)
    }

    /// Its address without a database. The password is asked for by nobody: it is there to be
    /// looked for where it should not be.
    pub fn url(&self) -> String {
        let folder = self.folder.display().to_string().replace('/', "%2F");
        format!("postgres://{USER}:DATABASEpassword@{folder}")
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // At once: nobody looks at it again. One that stands ends when it goes on.
        self.process.signal(Signal::QUIT);
        if let Err(error) = self.pause(false) {
            tracing::warn!("{error:#}");
        }
    }
}

/// Those of the newest version that there is.
fn programs() -> Result<PathBuf> {
    let versions = std::fs::read_dir(PROGRAMS).into_iter().flatten().flatten();
    let newest = versions
        .filter_map(|version| {
            let number: u32 = version.file_name().to_str()?.parse().ok()?;
            let programs = version.path().join("bin");
            programs.join("postgres").is_file().then_some((number, programs))
        })
        .max();
    newest.map(|(_, programs)| programs).with_context(|| {
        format!("no PostgreSQL in {PROGRAMS}; on Debian: sudo apt-get install postgresql")
    })
}

/// The processes that this one has started and that have not ended.
fn children(of: u32) -> Result<Vec<Pid>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").context("/proc")?.flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // It may have ended since.
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        // `1 (name) S 0`: the name may have anything in it.
        let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1));
        if parent.and_then(|parent| parent.parse().ok()) == Some(of) {
            found.extend(Pid::from_raw(id));
        }
    }
    Ok(found)
}

/// The number of a user of this machine.
fn id(name: &str) -> Result<u32> {
    let users = std::fs::read_to_string("/etc/passwd").context("/etc/passwd")?;
    let user = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok()).flatten()
    });
    user.with_context(|| format!("there is no user {name}: it comes with Debian's postgresql"))
}
