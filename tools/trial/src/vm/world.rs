//! A machine with four NVMe drives in which the real appliance and the real agent run, players who
//! stream from it, and what is around it: origin and control, on this side of its network.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rig::stage::{self, APPLIANCE, Film, Stage};
use tracing::info;
use wire::v1::report::{Drive, DriveState, Report};

use super::initrd::{self, Initrd};
use super::machine::{Machine, Parts};
use super::player::{self, Players, Shelf};

/// Everything of one run.
pub(super) struct World {
    pub(super) machine: Machine,
    pub(super) players: Players,
    stage: Stage,
    films: Vec<Film>,
    shelf: Shelf,
    serving: SocketAddr,
    agent: ureq::Agent,
    /// The process that served first.
    pid: String,
    /// For files that the run needs.
    pub(super) dir: PathBuf,
}

/// So many drives, `d0` and on.
pub(super) const DRIVES: usize = 4;
/// XFS takes no less than 300 MiB; most of the file is a hole.
const DRIVE_LEN: u64 = 320 << 20;
const PLAYERS: u64 = 4;
/// Each file is longer than what is kept in memory, and takes the emulated machine a tenth of a
/// second.
const FILE_LENS: [u64; 4] = [300_000, 420_000, 540_000, 700_000];
/// Some are built into some kernels.
const MODULES: [&str; 6] =
    ["virtio_pci", "virtio_net", "virtio_rng", "nvme", "crc32c_intel", "xfs"];
/// Filling takes seconds; all else waits for less.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);
/// Nobody has a file open on a drive that was set aside for longer.
const UNMOUNT_MAX: Duration = Duration::from_secs(20);
/// Where the host is in qemu's user network, seen from the guest.
const HOST: &str = "10.0.2.2";

impl World {
    /// Boots, formats, mounts, starts, fills.
    pub(super) fn new(kernel: &Path, dir: &Path) -> Result<Self> {
        let mut stage = Stage::new(dir)?;
        stage.host = Some(HOST.to_owned());
        let film = Film::new("film", FILE_LENS.into_iter().cycle().take(24), 1);
        stage.publish(&[&film])?;
        let (image, modules) = initrd::kernel(kernel)?;
        let archive = dir.join("initrd");
        pack(&stage, &modules, dir)?.write(&archive)?;
        let drives: Vec<PathBuf> = (0..DRIVES).map(|n| dir.join(format!("d{n}.img"))).collect();
        drives.iter().try_for_each(|drive| make_file_system(drive))?;
        let [serving, metrics, _] = stage::free_ports()?;
        let mut machine = Machine::start(&Parts {
            kernel: &image,
            initrd: &archive,
            drives: &drives,
            ports: &[(serving, 8443), (metrics, 9100)],
            dir,
        })?;
        for n in 0..DRIVES {
            mount(&mut machine, n)?;
            format(&mut machine, n)?;
        }
        machine.run("chown -R nearcast:nearcast /var/lib/nearcast")?;
        for name in ["agent", "appliance"] {
            // Through a pipe: for a terminal they would colour their lines.
            let serve = format!("nearcast-{name} serve --config /etc/nearcast/{name}.toml");
            machine.run(&format!("{serve} 2>&1 | cat >/dev/ttyS0 &"))?;
        }
        let agent = player::agent(stage.trust())?;
        let shelf = Shelf { files: Arc::default() };
        let players = Players::start(PLAYERS, &agent, &shelf);
        let (films, pid) = (Vec::new(), String::new());
        let dir = dir.to_owned();
        let mut world = Self { machine, players, stage, films, shelf, serving, agent, pid, dir };
        world.wait("the first report", |world| world.stage.control.report().1 != 0)?;
        world.pid = world.machine.run("pidof nearcast-appliance")?;
        world.offer(film)?;
        world.wait_until_whole()?;
        Ok(world)
    }

    /// One film more is wanted, and players ask for it.
    pub(super) fn offer(&mut self, film: Film) -> Result<()> {
        self.films.push(film);
        let films: Vec<&Film> = self.films.iter().collect();
        self.stage.publish(&films)?;
        self.ask_for(|_| true)
    }

    /// Players ask for these objects from now on.
    pub(super) fn ask_for(&self, wanted: impl Fn(&str) -> bool) -> Result<()> {
        let mut files = Vec::new();
        for film in &self.films {
            let base = self.stage.base(film)?;
            let objects = film.objects.iter().filter(|object| wanted(&object.id().to_string()));
            let url = |path: &str| player::url(self.serving, &base, path);
            files.extend(objects.map(|object| (url(&object.path), object.clone())));
        }
        *self.shelf.files.lock().unwrap_or_else(PoisonError::into_inner) = files;
        Ok(())
    }

    /// Another film of the same form.
    pub(super) fn offer_another(&mut self, name: &str, files: usize, seed: u64) -> Result<()> {
        self.offer(Film::new(name, FILE_LENS.into_iter().cycle().take(files), seed))
    }

    /// Waits until the appliance says that it holds every file.
    pub(super) fn wait_until_whole(&mut self) -> Result<()> {
        let all = stage::ids(&self.films);
        self.wait("all of it to be held", |world| world.stage.control.held() == all)
    }

    /// Every file of every film comes, and every byte is right.
    pub(super) fn check_all(&mut self) -> Result<()> {
        let files = self.shelf.files.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (url, object) in &files {
            self.players.check(&self.agent, url, object)?;
        }
        Ok(())
    }

    pub(super) fn objects_on(&mut self, drive: usize) -> Result<BTreeSet<String>> {
        let said = self.machine.run(&format!("ls /srv/nearcast/d{drive}/objects/*/ | cat"))?;
        let is_id = |word: &&str| word.len() == 64;
        Ok(said.split_whitespace().filter(is_id).map(str::to_owned).collect())
    }

    /// What the last report says of a drive.
    pub(super) fn drive(&self, drive: usize) -> Drive {
        let (report, _) = self.stage.control.report();
        report.drives.get(drive).cloned().unwrap_or_default()
    }

    pub(super) fn report(&self) -> Report {
        self.stage.control.report().0
    }

    pub(super) fn is_set_aside(&self, drive: usize) -> bool {
        self.drive(drive).state == DriveState::SetAside
    }

    /// Waits until a drive that fails since then is set aside and nothing of what was on it is in
    /// the inventory: seconds from the first error, the kernel's or the appliance's.
    pub(super) fn until_gone(
        &mut self,
        drive: usize,
        since: Instant,
        was_on_it: &BTreeSet<String>,
    ) -> Result<f64> {
        ensure!(!was_on_it.is_empty(), "nothing was on the drive");
        self.wait("the drive to be set aside", |world| world.is_set_aside(drive))?;
        let last = |world: &Self| {
            let gone = world.stage.control.gone_since(since);
            let names: BTreeSet<&String> = gone.iter().map(|(_, name)| name).collect();
            let all = was_on_it.iter().all(|object| names.contains(object));
            let of_it = gone.iter().filter(|(_, name)| was_on_it.contains(name));
            of_it.map(|(at, _)| *at).max().filter(|_| all)
        };
        self.wait("its objects to be gone", |world| last(world).is_some())?;
        let first = self.first_error(since).context("no error was logged")?;
        let last = last(self).context("they were gone a moment ago")?;
        Ok(last.saturating_duration_since(first).as_secs_f64())
    }

    fn first_error(&self, since: Instant) -> Option<Instant> {
        const SAID: [&str; 6] = [
            "error, dev nvme",
            "I/O error",
            "object cannot be read",
            "object set aside",
            "drive set aside",
            "drive does not answer",
        ];
        let found = self
            .machine
            .console()
            .find_if(since, |line| SAID.iter().any(|said| line.contains(said)));
        found.map(|(at, line)| {
            info!(line, "first error");
            at
        })
    }

    /// Unmounts a drive as an operator does, who tries again while it is busy.
    pub(super) fn unmount(&mut self, drive: usize) -> Result<()> {
        let at = format!("/srv/nearcast/d{drive}");
        let began = Instant::now();
        loop {
            let (status, said) = self.machine.try_run(&format!("umount {at}"))?;
            if status == 0 {
                return Ok(());
            }
            ensure!(began.elapsed() < UNMOUNT_MAX, "{at} cannot be unmounted: {said}");
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    /// Waits until the kernel has found the drive.
    pub(super) fn wait_for_device(&mut self, drive: usize) -> Result<()> {
        let (what, test) = (format!("finding d{drive}"), format!("test -b $(drive d{drive})"));
        let found = || Ok(self.machine.try_run(&test)?.0 == 0);
        rig::until(&what, PATIENCE, Duration::from_millis(200), found).map(drop)
    }

    /// Waits; that it takes too long is an error.
    pub(super) fn wait(&mut self, what: &str, mut ready: impl FnMut(&Self) -> bool) -> Result<()> {
        rig::until(what, PATIENCE, Duration::from_millis(20), || Ok(ready(self)))
            .map(drop)
            .with_context(|| self.machine.console().tail(30))
    }

    /// An error if the process that served first does not any longer, or if nobody can tell.
    pub(super) fn is_as_it_was(&mut self) -> Result<()> {
        let same = match self.machine.try_run("pidof nearcast-appliance") {
            Ok((_, pid)) => pid == self.pid && !pid.is_empty(),
            Err(error) => return Err(error.context(self.machine.console().tail(40))),
        };
        ensure!(same, "the appliance ended:\n{}", self.machine.console().tail(40));
        Ok(())
    }
}

/// The guest's root: see `init.sh`.
fn pack(stage: &Stage, modules: &Path, dir: &Path) -> Result<Initrd> {
    let mut root = Initrd::default();
    root.file("init", 0o755, include_bytes!("init.sh"))?;
    root.file("bin/drive", 0o755, include_bytes!("drive.sh"))?;
    root.file("bin/busybox", 0o755, &fs::read("/bin/busybox").context("busybox-static")?)?;
    root.link("bin/sh", "busybox")?;
    root.modules(modules, &MODULES)?;
    for name in ["nearcast-appliance", "nearcast-agent"] {
        root.program(&format!("usr/bin/{name}"), rig::process::binary(name)?.as_ref(), dir)?;
    }
    for (path, from) in
        [("usr/sbin/smartctl", "/usr/sbin/smartctl"), ("sbin/fstrim", "/sbin/fstrim")]
    {
        root.program(path, from.as_ref(), dir)?;
    }
    root.file("etc/passwd", 0o644, b"root:x:0:0::/root:/bin/sh\nnearcast:x:900:900::/:/bin/sh\n")?;
    root.file("etc/group", 0o644, b"root:x:0:\nnearcast:x:900:\n")?;
    root.file("etc/nearcast/appliance.toml", 0o644, appliance_toml(stage).as_bytes())?;
    root.file("etc/nearcast/agent.toml", 0o644, agent_toml().as_bytes())?;
    let certificate = stage.certificate();
    root.file("etc/nearcast/chain.pem", 0o644, &fs::read(&certificate.chain)?)?;
    root.file("etc/nearcast/key.pem", 0o644, &fs::read(&certificate.key)?)?;
    let state = dir.join("state");
    stage.enrol(&state)?;
    root.folder("var/lib/nearcast", &state)?;
    Ok(root)
}

fn appliance_toml(stage: &Stage) -> String {
    format!(
        "name = \"{APPLIANCE}\"
state = \"/var/lib/nearcast\"
[serve]
listen = [\"0.0.0.0:8443\"]
base_url = \"https://127.0.0.1\"
certificate = \"/etc/nearcast/chain.pem\"
key = \"/etc/nearcast/key.pem\"
workers = 1
connections_max = 256
[drives]
paths = [{drives}]
[hot]
memory = \"0 B\"
[control]
url = \"{control}\"
[fill]
unit = \"0 B\"
concurrency = 2
[metrics]
listen = \"0.0.0.0:9100\"
[agent]
socket = \"/run/nearcast/agent.sock\"
[process]
user = \"nearcast\"
sandbox = \"require\"
",
        drives = paths(),
        control = stage.control_url(),
    )
}

fn agent_toml() -> String {
    format!("[drives]\npaths = [{}]\n", paths())
}

fn paths() -> String {
    let paths: Vec<String> = (0..DRIVES).map(|n| format!("\"/srv/nearcast/d{n}\"")).collect();
    paths.join(", ")
}

/// As an operator does it.
pub(super) fn mount(machine: &mut Machine, drive: usize) -> Result<()> {
    let at = format!("/srv/nearcast/d{drive}");
    machine.run(&format!("mkdir -p {at} && mount -t xfs -o noatime $(drive d{drive}) {at}"))?;
    Ok(())
}

/// As an operator does it, for a drive that is mounted.
pub(super) fn format(machine: &mut Machine, drive: usize) -> Result<()> {
    let at = format!("/srv/nearcast/d{drive}");
    let format = format!("nearcast-appliance format --reserve 5% {at}");
    machine.run(&format!("{format} && chown -R nearcast:nearcast {at}"))?;
    Ok(())
}

pub(super) fn make_file_system(path: &Path) -> Result<()> {
    fs::File::create(path)?.set_len(DRIVE_LEN)?;
    let made = Command::new("mkfs.xfs").args(["-q", "-f"]).arg(path).output();
    let made = made.context("cannot run mkfs.xfs (package xfsprogs)")?;
    ensure!(made.status.success(), "mkfs.xfs: {}", String::from_utf8_lossy(&made.stderr));
    Ok(())
}
