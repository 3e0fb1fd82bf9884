//! The two sides: an appliance with its origin, and a peer with an ordinary writer beside it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use model::units::Bytes;
use rig::certificate::Certificate;
use rig::client::{Plan, Ranges, Receive, Target, Truth};
use rig::peer::{Peer, Place};
use rig::process::Process;
use rig::stage::{Appliance, Film, Object, Setup, Stage};

use super::{Args, Side};

/// As a film has them.
const FILE_LEN: u64 = 64 << 20;
/// Both sides' bytes are compared with the peer's files, rarely, since that reads the disk too.
const VERIFY_EVERY: u64 = 512;
const READY_MAX: Duration = Duration::from_secs(120);
/// What `cp` writes at once.
const WRITE_LEN: usize = 256 * 1024;

pub(super) struct Ours {
    appliance: Appliance,
    stage: Stage,
    served: Film,
    filled: Film,
    truth: PathBuf,
}

/// The peer, and who writes beside it.
pub(super) struct Theirs {
    _process: Process,
    pub(super) version: String,
    address: SocketAddr,
    trust: PathBuf,
    root: PathBuf,
    lens: Vec<Bytes>,
    objects: Vec<Arc<Vec<u8>>>,
    into: PathBuf,
    writer: Option<JoinHandle<Result<()>>>,
}

impl Ours {
    /// An appliance on this drive that holds what is served.
    pub(super) fn new(args: &Args, dir: &Path, drive: &Path, chunk: Bytes) -> Result<Self> {
        fs::create_dir_all(dir)?;
        Appliance::format(drive)?;
        let mut stage = Stage::new(dir)?;
        let served = Film::new("served", lens(args.served), 1);
        let filled = Film::new("filled", lens(chunk), 2);
        stage.publish(&[&served])?;
        let (drives, state) = ([drive.to_owned()], dir.join("state"));
        let cpus = ("APPLIANCE_SERVE_CPUS", format!("[{}]", args.server_cpu));
        let settings: Vec<(&str, String)> = [cpus].into_iter().chain(said(&args.drives)?).collect();
        let more = "[pacing]\nmode = \"off\"\n";
        let setup = Setup { more, settings: &settings, ..Setup::new("disk", &drives, &state) };
        let appliance = stage.start(&setup)?;
        // Where a peer has the same.
        let truth = dir.with_file_name("peer").join("root");
        let mut ours = Self { appliance, stage, served, filled, truth };
        ours.wait_for(false)?;
        Ok(ours)
    }

    /// Writes what bytes are compared with, where no peer does.
    pub(super) fn keep_truth(&self) -> Result<()> {
        fs::create_dir_all(&self.truth)?;
        let mut objects = self.served.objects.iter().enumerate();
        objects.try_for_each(|(n, object)| write(&self.truth.join(file_name(n)), &object.bytes))
    }

    fn wait_for(&mut self, filled: bool) -> Result<()> {
        let more = filled.then_some(&self.filled);
        let films: Vec<&Film> = [&self.served].into_iter().chain(more).collect();
        self.stage.wait_until_held(&mut self.appliance, &films, READY_MAX)
    }

    fn ids(&self, filled: bool) -> BTreeSet<String> {
        let more = self.filled.objects.iter().filter(|_| filled);
        self.served.objects.iter().chain(more).map(|object| object.id().to_string()).collect()
    }
}

impl Side for Ours {
    fn plan(&self) -> Result<(Plan, Truth)> {
        let base = self.stage.base(&self.served)?;
        let target = |object: &Object| Target {
            path: format!("{base}{}", object.path),
            len: object.blocks.len(),
        };
        let targets = self.served.objects.iter().map(target).collect();
        let plan = plan(self.appliance.secure, self.stage.trust(), targets);
        Ok((plan, truth(&self.truth, self.served.objects.len())?))
    }

    fn begin(&mut self) -> Result<()> {
        let Self { stage, served, filled, .. } = self;
        stage.publish(&[&*served, &*filled])
    }

    /// It says that it holds an object when that is on the drive, flushed and all.
    fn is_done(&mut self) -> Result<bool> {
        ensure!(self.appliance.is_running(), "the appliance ended: {}", self.appliance.log_text());
        Ok(self.stage.control.held() == self.ids(true))
    }

    fn clear(&mut self) -> Result<()> {
        let Self { stage, served, .. } = self;
        stage.publish(&[&*served])?;
        self.wait_for(false)
    }
}

impl Theirs {
    /// A peer that serves the same files from another folder, and a writer that has the same to
    /// write.
    pub(super) fn new(args: &Args, dir: &Path, ours: &Ours) -> Result<Self> {
        let (root, into) = (dir.join("root"), dir.join("filled"));
        fs::create_dir_all(&root)?;
        fs::create_dir_all(&into)?;
        for (index, object) in ours.served.objects.iter().enumerate() {
            write(&root.join(file_name(index)), &object.bytes)?;
        }
        rustix::fs::sync();
        let certificate = Certificate::make(dir)?;
        let peer = Peer::Nginx.found()?;
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let process = peer.start(
            Peer::Nginx.variant(&args.peer_config)?,
            &Place {
                address,
                root: &root,
                certificate: &certificate,
                room: dir,
                cpu: args.server_cpu,
                joins: &[],
            },
        )?;
        Ok(Self {
            _process: process,
            version: peer.version()?.server,
            address,
            trust: certificate.ca.clone(),
            root,
            lens: ours.served.objects.iter().map(|object| object.blocks.len()).collect(),
            objects: ours.filled.objects.iter().map(|object| object.bytes.clone()).collect(),
            into,
            writer: None,
        })
    }
}

impl Side for Theirs {
    fn plan(&self) -> Result<(Plan, Truth)> {
        let target = |(index, len): (usize, &Bytes)| Target {
            path: format!("/{}", file_name(index)),
            len: *len,
        };
        let targets = self.lens.iter().enumerate().map(target).collect();
        Ok((plan(self.address, &self.trust, targets), truth(&self.root, self.lens.len())?))
    }

    fn begin(&mut self) -> Result<()> {
        let (objects, into) = (self.objects.clone(), self.into.clone());
        self.writer = Some(std::thread::spawn(move || {
            super::set_priority(0);
            for (index, bytes) in objects.iter().enumerate() {
                rig::stop::check()?;
                write(&into.join(file_name(index)), bytes)?;
            }
            // Until then it is not there: a power cut would take it.
            Ok(rustix::fs::syncfs(File::open(&into)?)?)
        }));
        Ok(())
    }

    fn is_done(&mut self) -> Result<bool> {
        let writer = self.writer.take_if(|writer| writer.is_finished());
        let Some(writer) = writer else { return Ok(false) };
        writer.join().map_err(|_| anyhow!("the writer panicked"))??;
        Ok(true)
    }

    fn clear(&mut self) -> Result<()> {
        for index in 0..self.objects.len() {
            fs::remove_file(self.into.join(file_name(index)))?;
        }
        Ok(())
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        // Else it would write into a folder that is being removed.
        let began = Instant::now();
        while self.writer.as_ref().is_some_and(|writer| !writer.is_finished())
            && began.elapsed() < READY_MAX
        {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn plan(address: SocketAddr, trust: &Path, targets: Vec<Target>) -> Plan {
    Plan {
        address,
        name: "127.0.0.1".to_owned(),
        trust: trust.to_owned(),
        suites: vec![rustls::CipherSuite::TLS13_AES_128_GCM_SHA256],
        targets,
        connections: 1,
        range_len: super::RANGE_LEN,
        ranges: Ranges::Unaligned,
        receive: Receive::Discard,
        verify_every: VERIFY_EVERY,
        seed: 0,
        every: Duration::ZERO,
    }
}

fn truth(dir: &Path, count: usize) -> Result<Truth> {
    let open = |index| File::open(dir.join(file_name(index))).context("a file to compare with");
    Ok(Truth::Files((0..count).map(open).collect::<Result<_>>()?))
}

/// As `cp` does: through the page cache.
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = File::create(path)?;
    bytes.chunks(WRITE_LEN).try_for_each(|piece| file.write_all(piece))?;
    Ok(())
}

fn file_name(index: usize) -> String {
    format!("{index}.mp4")
}

/// Files of a film with so many bytes: whole ones, and what is left.
fn lens(len: Bytes) -> impl Iterator<Item = u64> {
    let whole = usize::try_from(len.0 / FILE_LEN).unwrap_or(usize::MAX);
    let rest = Some(len.0 % FILE_LEN).filter(|rest| 0 < *rest);
    std::iter::repeat_n(FILE_LEN, whole).chain(rest)
}

/// `key = value` of `[drives]`, by commas, as variables of the environment.
fn said(drives: &str) -> Result<Vec<(&'static str, String)>> {
    let known = [
        ("policy", "APPLIANCE_DRIVES_POLICY"),
        ("read_targets", "APPLIANCE_DRIVES_READ_TARGETS"),
        ("write_depth", "APPLIANCE_DRIVES_WRITE_DEPTH"),
        ("write_rate", "APPLIANCE_DRIVES_WRITE_RATE"),
        ("write_floor", "APPLIANCE_DRIVES_WRITE_FLOOR"),
    ];
    let parts = drives.split(',').filter(|part| !part.trim().is_empty());
    let one = |part: &str| {
        let (key, value) = part.split_once('=').with_context(|| format!("{part}: no ="))?;
        let found = known.iter().find(|(name, _)| *name == key.trim());
        let (_, variable) = found.with_context(|| format!("{key}: not a setting of writes"))?;
        Ok((*variable, value.trim().to_owned()))
    };
    parts.map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_bytes_are_filled_as_rates_are_told_of() {
        for len in [1, FILE_LEN, 256_000_000, 4_000_000_000] {
            let files: Vec<u64> = lens(Bytes(len)).collect();
            assert_eq!(files.iter().sum::<u64>(), len);
            assert!(files.iter().all(|file| (1..=FILE_LEN).contains(file)), "{files:?}");
        }
    }
}
