//! A virtual machine without help of the processor: qemu, its monitor (QMP), the console, which is
//! its log, and a shell on a second serial port.
//!
//! ```text
//! file ── throttle dN-slow ── [ blkdebug dN-bad ] ── raw dN ──> NVMe drive of serial dN
//!              limits                in or out                   on a PCIe port of its own:
//!              at any time           at any time                 in or out at any time
//! ```

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tracing::{debug, info};

/// What a machine is made of.
#[derive(Debug)]
pub(super) struct Parts<'a> {
    pub(super) kernel: &'a Path,
    pub(super) initrd: &'a Path,
    pub(super) drives: &'a [PathBuf],
    /// Ports of the guest that are reached here.
    pub(super) ports: &'a [(SocketAddr, u16)],
    /// For its sockets and its log.
    pub(super) dir: &'a Path,
}

/// A machine that runs, until it is dropped.
pub(super) struct Machine {
    child: Killed,
    monitor: BufReader<UnixStream>,
    shell: BufReader<UnixStream>,
    console: Console,
}

/// A process that is killed when this is dropped, also where what follows its start fails.
struct Killed(Child);

/// What the guest printed, and when.
#[derive(Clone, Debug, Default)]
pub(super) struct Console(Arc<Mutex<Vec<(Instant, String)>>>);

/// A kernel takes 20 s to come up here, on a busy machine three times that.
const BOOT_MAX: Duration = Duration::from_secs(240);
const SHELL_MAX: Duration = Duration::from_secs(120);
const MONITOR_MAX: Duration = Duration::from_secs(30);
const MEMORY_MIB: u32 = 1024;
/// What stands before the status at the end of each answer of the guest's shell.
const END: &str = "@@ ";

impl Machine {
    pub(super) fn start(parts: &Parts<'_>) -> Result<Self> {
        let mut command = Command::new("qemu-system-x86_64");
        command.args(arguments(parts)?);
        let errors = File::create(parts.dir.join("qemu.log"))?;
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors).spawn();
        let mut child = Killed(child.context("cannot start qemu (package qemu-system-x86)")?);
        let output = child.0.stdout.take().context("its console")?;
        let console = Console::default();
        let (lines, mut file) = (console.clone(), File::create(parts.dir.join("console.log"))?);
        std::thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(|line| line.ok()) {
                let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                debug!(line, "console");
                let _ = writeln!(file, "{line}");
                lines.lock().push((Instant::now(), line));
            }
        });
        let sockets = ["monitor", "shell"].map(|name| connect(&mut child.0, &parts.dir.join(name)));
        let (monitor, shell) = match sockets {
            [Ok(monitor), Ok(shell)] => (monitor, shell),
            [Err(error), _] | [_, Err(error)] => {
                let said = std::fs::read_to_string(parts.dir.join("qemu.log")).unwrap_or_default();
                return Err(error.context(said));
            }
        };
        monitor.set_read_timeout(Some(MONITOR_MAX))?;
        shell.set_read_timeout(Some(SHELL_MAX))?;
        let (monitor, shell) = (BufReader::new(monitor), BufReader::new(shell));
        let mut machine = Self { child, monitor, shell, console };
        let mut greeting = String::new();
        machine.monitor.read_line(&mut greeting)?;
        machine.ask("qmp_capabilities", &json!({}))?;
        let began = Instant::now();
        while machine.console.find(began, "kernel ").is_none() {
            ensure!(began.elapsed() < BOOT_MAX, "the guest does not come up: see console.log");
            ensure!(machine.child.0.try_wait()?.is_none(), "qemu ended: see qemu.log");
            rig::stop::check()?;
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(machine)
    }

    /// What the guest printed.
    pub(super) fn console(&self) -> &Console {
        &self.console
    }

    /// Runs a line of shell in the guest: what it prints. A status other than 0 is an error.
    pub(super) fn run(&mut self, line: &str) -> Result<String> {
        let (status, said) = self.try_run(line)?;
        ensure!(status == 0, "the guest: `{line}` ends with {status}: {said}");
        Ok(said)
    }

    /// The same with any status.
    pub(super) fn try_run(&mut self, line: &str) -> Result<(i32, String)> {
        debug!(line, "guest");
        self.shell.get_mut().write_all(format!("{line}\n").as_bytes())?;
        let mut said = String::new();
        loop {
            let mut line = String::new();
            let len = self.shell.read_line(&mut line).context("the guest does not answer")?;
            ensure!(len != 0, "the guest is gone");
            if let Some(status) = line.trim_end().strip_prefix(END) {
                return Ok((status.parse()?, said.trim().to_owned()));
            }
            said.push_str(&line);
        }
    }

    /// Every read, or every write, of a drive fails from now on.
    pub(super) fn fail(&mut self, drive: usize, what: &str) -> Result<()> {
        info!(drive, what, "fails from now on");
        let rule = json!([{ "event": "none", "iotype": what, "errno": 5, "once": false }]);
        let node = json!({
            "driver": "blkdebug", "node-name": format!("d{drive}-bad"),
            "image": format!("d{drive}-slow"), "inject-error": rule,
        });
        self.ask("blockdev-add", &node)?;
        self.reopen(drive, "bad")
    }

    /// It does no longer.
    pub(super) fn heal(&mut self, drive: usize) -> Result<()> {
        info!(drive, "healed");
        self.reopen(drive, "slow")?;
        self.ask("blockdev-del", &json!({ "node-name": format!("d{drive}-bad") }))
    }

    /// A drive does so many operations a second from now on; 0 for as many as it can.
    pub(super) fn slow(&mut self, drive: usize, operations: u32) -> Result<()> {
        info!(drive, operations, "a second");
        let limits = json!({ "iops-total": operations });
        let path = format!("/objects/t{drive}");
        self.ask("qom-set", &json!({ "path": path, "property": "limits", "value": limits }))
    }

    pub(super) fn unplug(&mut self, drive: usize) -> Result<()> {
        info!(drive, "unplugged");
        self.ask("device_del", &json!({ "id": format!("nvme{drive}") }))
    }

    /// Puts a drive in whose bytes are in this file, where one was pulled.
    pub(super) fn plug(&mut self, drive: usize, file: &Path) -> Result<()> {
        info!(drive, "plugged in");
        for name in ["", "-slow", "-file"] {
            let node = json!({ "node-name": format!("d{drive}{name}") });
            // The device may let go of it a little later.
            let began = Instant::now();
            while let Err(error) = self.ask("blockdev-del", &node) {
                ensure!(began.elapsed() < MONITOR_MAX, "{error:#}");
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        for node in nodes(drive, file) {
            self.ask("blockdev-add", &node)?;
        }
        self.ask("device_add", &device(drive))
    }

    /// Bits that the drive raises in its log of health (NVMe, "critical warning").
    pub(super) fn warn(&mut self, drive: usize, bits: u8) -> Result<()> {
        let path = format!("/machine/peripheral/nvme{drive}");
        let property = "smart_critical_warning";
        self.ask("qom-set", &json!({ "path": path, "property": property, "value": bits }))
    }

    fn reopen(&mut self, drive: usize, below: &str) -> Result<()> {
        let node = json!({
            "driver": "raw", "node-name": format!("d{drive}"), "file": format!("d{drive}-{below}"),
        });
        self.ask("blockdev-reopen", &json!({ "options": [node] }))
    }

    fn ask(&mut self, what: &str, arguments: &Value) -> Result<()> {
        let line = json!({ "execute": what, "arguments": arguments });
        self.monitor.get_mut().write_all(format!("{line}\n").as_bytes())?;
        loop {
            let mut line = String::new();
            let len = self.monitor.read_line(&mut line).context("qemu does not answer")?;
            ensure!(len != 0, "qemu is gone");
            let said: Value = serde_json::from_str(&line).context("not an answer of qemu")?;
            if let Some(error) = said.get("error") {
                bail!("qemu: {what}: {error}");
            }
            if said.get("return").is_some() {
                return Ok(());
            }
        }
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Console {
    /// The first line since then that has this in it, and when it came.
    pub(super) fn find(&self, since: Instant, what: &str) -> Option<(Instant, String)> {
        self.find_if(since, |line| line.contains(what))
    }

    /// The first line since then of which this is true.
    pub(super) fn find_if(
        &self,
        since: Instant,
        is_it: impl Fn(&str) -> bool,
    ) -> Option<(Instant, String)> {
        self.lock().iter().find(|(at, line)| since <= *at && is_it(line)).cloned()
    }

    /// The last lines.
    pub(super) fn tail(&self, count: usize) -> String {
        let lines = self.lock();
        let tail = lines.iter().rev().take(count).rev();
        tail.map(|(_, line)| format!("{line}\n")).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(Instant, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn arguments(parts: &Parts<'_>) -> Result<Vec<String>> {
    let path = |path: &Path| path.to_str().map(str::to_owned).context("a path that is no text");
    let memory = MEMORY_MIB.to_string();
    // qemu 7.2 breaks the flags of an unlocked cmpxchg16b, which newer kernels use: without cx16.
    let mut all: Vec<String> =
        ["-accel", "tcg,thread=multi", "-cpu", "max,cx16=off", "-machine", "q35", "-m", &memory]
            .into_iter()
            .chain(["-smp", "2", "-display", "none", "-no-reboot", "-nodefaults"])
            .chain(["-serial", "stdio", "-serial", "chardev:shell"])
            .map(str::to_owned)
            .collect();
    let socket = |name: &str| path(&parts.dir.join(name));
    let append = "console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off rdinit=/init";
    let forwards: String = (parts.ports.iter())
        .map(|(here, there)| format!(",hostfwd=tcp:{}:{}-:{there}", here.ip(), here.port()))
        .collect();
    let mut add = |name: &str, value: String| all.extend([name.to_owned(), value]);
    add("-chardev", format!("socket,id=shell,path={},server=on,wait=off", socket("shell")?));
    add("-qmp", format!("unix:{},server=on,wait=off", socket("monitor")?));
    add("-kernel", path(parts.kernel)?);
    add("-initrd", path(parts.initrd)?);
    add("-append", append.to_owned());
    add("-netdev", format!("user,id=net{forwards}"));
    add("-device", "virtio-net-pci,netdev=net,romfile=".to_owned());
    add("-device", "virtio-rng-pci".to_owned());
    for (drive, file) in parts.drives.iter().enumerate() {
        let port =
            format!("pcie-root-port,id=port{drive},chassis={},slot={}", drive + 1, drive + 1);
        add("-device", port);
        add("-object", format!("throttle-group,id=t{drive}"));
        for node in nodes(drive, file) {
            add("-blockdev", node.to_string());
        }
        add("-device", device(drive).to_string());
    }
    Ok(all)
}

/// From the file upwards.
fn nodes(drive: usize, file: &Path) -> [Value; 3] {
    let name = |of: &str| format!("d{drive}{of}");
    [
        json!({
            "driver": "file", "node-name": name("-file"), "filename": file, "discard": "unmap",
            // The run ends before this machine does: nothing has to be on its disk.
            "cache": { "no-flush": true },
        }),
        json!({
            "driver": "throttle", "node-name": name("-slow"), "file": name("-file"),
            "throttle-group": format!("t{drive}"),
        }),
        json!({ "driver": "raw", "node-name": name(""), "file": name("-slow") }),
    ]
}

fn device(drive: usize) -> Value {
    let (name, bus) = (format!("d{drive}"), format!("port{drive}"));
    let id = format!("nvme{drive}");
    json!({ "driver": "nvme", "id": id, "serial": name, "drive": name, "bus": bus })
}

fn connect(child: &mut Child, path: &Path) -> Result<UnixStream> {
    let began = Instant::now();
    loop {
        match UnixStream::connect(path) {
            Ok(stream) => return Ok(stream),
            Err(error) if MONITOR_MAX < began.elapsed() => {
                return Err(error).with_context(|| format!("no {}", path.display()));
            }
            Err(_) => {}
        }
        ensure!(child.try_wait()?.is_none(), "qemu does not start");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_does_not_outlive_an_error_after_its_start() {
        let mut id = 0;
        let mut begin = || -> Result<()> {
            let mut sleep = Command::new("sleep");
            let child = Killed(sleep.arg("60").stdout(Stdio::null()).spawn()?);
            id = child.0.id();
            bail!("what follows fails");
        };
        assert!(begin().is_err());
        assert!(!Path::new(&format!("/proc/{id}")).exists(), "process {id} is still there");
    }
}
