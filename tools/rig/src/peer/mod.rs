//! Whom we are compared with: one file per program, several configurations each.
//!
//! The best configuration for a workload is found by trying all of them (`Bench::calibrate`), so
//! a list has what people recommend, and what could win here.

mod h2o;
mod ideal;
pub mod nginx;
mod unpacked;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::certificate::Certificate;
use crate::process::{On, Process};

/// Whom to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Peer {
    /// The machine's nginx, in its best configuration for the workload.
    Nginx,
    /// Debian 13's nginx with its OpenSSL 3.5 and its libc, unpacked by `./x lab`.
    NginxDeb13,
    /// The newest nginx with the newest aws-lc, built outside the tree: see `--peer-binary`.
    NginxLatest,
    /// Debian 12's h2o, unpacked by `./x lab`.
    H2o,
    /// A loop of the lab's own that seals, sends and does nothing else: see `ideal`.
    Ideal,
}

/// Which peer, as it is said on the command line.
#[derive(Clone, Debug, clap::Args)]
pub struct Chosen {
    /// Whom to compare with.
    #[arg(long, value_enum)]
    peer: Peer,
    /// The program of `--peer nginx-latest`: xtask/nginx-latest.sh builds one.
    #[arg(long, value_name = "PATH")]
    peer_binary: Option<PathBuf>,
    /// Take this configuration of the peer, instead of the best of all that were tried.
    #[arg(long, value_name = "NAME")]
    pub peer_config: Option<String>,
    /// Start the peer under this TCP congestion control, instead of the best that was tried.
    #[arg(long, value_name = "NAME")]
    pub peer_congestion: Option<String>,
}

impl Chosen {
    /// The lab's own loop.
    pub fn ideal(from_memory: bool) -> Self {
        let config = ideal::VARIANTS[usize::from(!from_memory)].name.to_owned();
        Self {
            peer: Peer::Ideal,
            peer_binary: None,
            peer_config: Some(config),
            peer_congestion: Some("cubic".to_owned()),
        }
    }

    /// The peer with its program; an error if there is none.
    pub fn found(&self) -> Result<Found> {
        match (self.peer, &self.peer_binary) {
            (Peer::NginxLatest, None) => bail!(
                "--peer nginx-latest needs --peer-binary PATH, an nginx that you built: \
                 xtask/nginx-latest.sh builds one"
            ),
            (Peer::NginxLatest, Some(path)) => {
                ensure!(path.is_file(), "--peer-binary {}: there is no such file", path.display());
                let command = vec![path.canonicalize()?.display().to_string()];
                Ok(Found::new(self.peer, command))
            }
            (_, Some(_)) => bail!("--peer-binary is for --peer nginx-latest only: leave it out"),
            (peer, None) => peer.found(),
        }
    }
}

/// A peer whose program is known.
#[derive(Clone, Debug)]
pub struct Found {
    peer: Peer,
    /// The first words of a command that runs it.
    command: Vec<String>,
    /// What the lab's own loop seals with; others are not told.
    library: String,
}

/// One way to configure a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Named in reports.
    pub name: &'static str,
    /// Its lines in the program's own language.
    pub lines: &'static str,
}

/// What runs, as it says itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Program and number.
    pub server: String,
    /// The TLS library that is loaded.
    pub tls: String,
}

/// What a peer is to serve, and where.
pub struct Place<'a> {
    /// Where it listens, with TLS.
    pub address: SocketAddr,
    pub root: &'a Path,
    pub certificate: &'a Certificate,
    /// A folder for its configuration, logs and temporary files.
    pub room: &'a Path,
    /// The CPU it is bound to.
    pub cpu: usize,
    /// Groups that it joins (see `On::joins`).
    pub joins: &'a [PathBuf],
}

impl Peer {
    /// As in `--peer`.
    pub fn label(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::NginxDeb13 => "nginx-deb13",
            Self::NginxLatest => "nginx-latest",
            Self::H2o => "h2o",
            Self::Ideal => "ideal",
        }
    }

    /// The configurations to try.
    pub fn variants(self) -> &'static [Variant] {
        match self {
            Self::Nginx | Self::NginxDeb13 | Self::NginxLatest => &nginx::VARIANTS,
            Self::H2o => &h2o::VARIANTS,
            Self::Ideal => &ideal::VARIANTS,
        }
    }

    pub fn variant(self, name: &str) -> Result<Variant> {
        let names: Vec<&str> = self.variants().iter().map(|variant| variant.name).collect();
        let found = self.variants().iter().find(|variant| variant.name == name);
        found.copied().with_context(|| format!("no configuration {name}: {}", names.join(", ")))
    }

    /// One of the machine, or unpacked; an error if it is not there.
    pub fn found(self) -> Result<Found> {
        let command = match self {
            Self::Nginx => vec!["nginx".to_owned()],
            Self::NginxDeb13 => unpacked::program(self.label(), "usr/sbin/nginx")?,
            Self::H2o => unpacked::program(self.label(), "usr/bin/h2o")?,
            Self::Ideal => vec![std::env::current_exe()?.display().to_string()],
            Self::NginxLatest => bail!("only --peer-binary knows where that is"),
        };
        Ok(Found::new(self, command))
    }
}

impl Found {
    fn new(peer: Peer, command: Vec<String>) -> Self {
        Self { peer, command, library: tls::Kernel::default().name().to_owned() }
    }

    /// The same. If it is the lab's own loop, it seals with this library, and its version says so.
    pub fn sealing_with(self, library: &str) -> Self {
        Self { library: library.to_owned(), ..self }
    }

    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// What runs; an error if it cannot.
    pub fn version(&self) -> Result<Version> {
        match self.peer {
            Peer::Nginx | Peer::NginxDeb13 | Peer::NginxLatest => nginx::version(&self.command),
            Peer::H2o => h2o::version(&self.command),
            Peer::Ideal => Ok(ideal::version(&self.library)),
        }
    }

    /// Starts it; returns when it listens.
    pub fn start(&self, variant: Variant, place: &Place<'_>) -> Result<Process> {
        let label = self.peer.label();
        let room = place.room.join(format!("{label}-{}", variant.name));
        std::fs::create_dir_all(&room)?;
        let place = &Place { room: &room, ..*place };
        let (text, mut words) = match self.peer {
            Peer::Nginx | Peer::NginxDeb13 | Peer::NginxLatest => {
                let prefix = ["-p".to_owned(), room.display().to_string()];
                (nginx::text(variant, place), prefix.to_vec())
            }
            Peer::H2o => (h2o::text(variant, place), Vec::new()),
            Peer::Ideal => (String::new(), ideal::words(variant, place, &self.library)),
        };
        if !text.is_empty() {
            let config = room.join(format!("{label}.conf"));
            std::fs::write(&config, text)?;
            words.extend(["-c".to_owned(), config.display().to_string()]);
        }
        let command = [&self.command[..], &words].concat();
        let log = room.join("log");
        let on = On { cpus: &[place.cpu], joins: place.joins };
        Process::listening(label, &command, on, &log, place.address)
    }
}

/// What `program` says on both outputs when asked with `argument`.
fn said(program: &[String], argument: &str) -> Result<String> {
    let (first, rest) = program.split_first().context("a program without a name")?;
    let output = Command::new(first).args(rest).arg(argument).output();
    let output =
        output.with_context(|| format!("cannot run {first}: is it installed? ./x lab does"))?;
    ensure!(output.status.success(), "{} {argument} failed", program.join(" "));
    let (out, err) = (output.stdout, output.stderr);
    Ok([String::from_utf8_lossy(&out), String::from_utf8_lossy(&err)].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_nginx_needs_a_program_and_nobody_else_takes_one() {
        let room = tempfile::tempdir().unwrap();
        let there = room.path().join("nginx");
        std::fs::write(&there, "").unwrap();
        let found = |peer, peer_binary: Option<&Path>| {
            let peer_binary = peer_binary.map(Path::to_owned);
            let chosen = Chosen { peer, peer_binary, peer_config: None, peer_congestion: None };
            chosen.found().map_err(|error| error.to_string())
        };
        let error = found(Peer::NginxLatest, None).unwrap_err();
        assert!(error.contains("--peer-binary PATH") && error.contains("xtask/nginx-latest.sh"));
        let error = found(Peer::Nginx, Some(&there)).unwrap_err();
        assert!(error.contains("leave it out"), "{error}");
        let error = found(Peer::NginxLatest, Some(&room.path().join("away"))).unwrap_err();
        assert!(error.ends_with("away: there is no such file"), "{error}");
        let latest = found(Peer::NginxLatest, Some(&there)).unwrap();
        assert_eq!(latest.command, [there.canonicalize().unwrap().display().to_string()]);
        assert_eq!(found(Peer::Nginx, None).unwrap().command, ["nginx"]);
    }

    #[test]
    fn only_the_loop_of_the_lab_is_told_what_to_seal_with() {
        let found = Peer::Ideal.found().unwrap();
        assert_eq!(found.version().unwrap().tls, "aws-lc");
        let found = found.sealing_with("ring");
        assert_eq!(found.version().unwrap().tls, "ring");
        let room = Path::new("/room");
        let at = |name: &str| room.join(name);
        let certificate = Certificate { ca: at("ca"), chain: at("chain"), key: at("key") };
        let place = Place {
            address: "127.0.0.1:1".parse().unwrap(),
            root: room,
            certificate: &certificate,
            room,
            cpu: 0,
            joins: &[],
        };
        let words = ideal::words(ideal::VARIANTS[1], &place, &found.library).join(" ");
        assert!(words.ends_with("--key /room/key --aead ring --cold"), "{words}");
    }

    #[test]
    fn an_unknown_variant_is_answered_with_the_known_ones() {
        assert_eq!(Peer::Nginx.variant("sendfile").unwrap().name, "sendfile");
        let error = Peer::NginxDeb13.variant("fast").unwrap_err().to_string();
        assert!(error.contains("read-512k, read-64k-ssl-64k"), "{error}");
        assert!(Peer::H2o.variant("sendfile").is_err());
    }
}
