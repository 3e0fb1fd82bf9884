//! A Debian that has nothing in it, to see whether our promises hold there.
//!
//! ```text
//! mmdebstrap ─> SUITE.tar, kept ─> a tree of its own for this run ─> chroot, and away with it
//! ```
//!
//! A command there has processes and mounts of its own, and the machine's network if it is to have
//! one. Needs root.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::{deb, say};

/// The command in the tree is root of its files, and has processes and mounts of its own.
const UNSHARE: [&str; 6] =
    ["--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"];
/// `$0` is the tree; then come pairs of a folder of the machine and its place in the tree, `--`,
/// and the command. Chromium wants `/dev/shm` and `/sys`.
const ENTER: &str = "mount -t proc proc \"$0/proc\" && mount --rbind /dev \"$0/dev\" &&
    mount --rbind /sys \"$0/sys\" && mount -t tmpfs tmpfs \"$0/run\" || exit
    { ip link set lo up || true; } 2>/dev/null
    while [ \"$1\" != -- ]; do
        mkdir -p \"$0$2\" && mount --bind \"$1\" \"$0$2\" &&
            mount -o remount,bind,ro \"$0$2\" || exit
        shift 2
    done
    shift
    exec chroot \"$0\" \"$@\"";
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Handed on, if they are set: how this machine reaches others.
const PROXIES: [&str; 6] =
    ["http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"];

/// An unpacked Debian that goes away with the run.
pub(crate) struct Tree(PathBuf);

impl Tree {
    /// Debian's release `suite`, of a variant of mmdebstrap's, with these packages beside.
    pub(crate) fn make(suite: &str, variant: &str, packages: &[&str]) -> Result<Self> {
        ensure!(
            deb::said(Command::new("id").arg("-u"))? == "0",
            "chroot needs root: run it as root, in a container or a virtual machine"
        );
        let packed = packed(suite, variant, packages)?;
        let tree = Self(packed.with_file_name(format!("{suite}-{}", std::process::id())));
        fs::create_dir(&tree.0)?;
        let mut command = Command::new("tar");
        command.args(["--extract", "--xattrs", "--numeric-owner", "--file"]);
        deb::said(command.arg(packed).arg("--directory").arg(&tree.0))?;
        fs::copy("/etc/resolv.conf", tree.path("etc/resolv.conf"))?;
        Ok(tree)
    }

    /// Where a path of the tree is on this machine.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    pub(crate) fn put(&self, path: &str, text: &str, mode: u32) -> Result<()> {
        let path = self.path(path);
        fs::write(&path, text)?;
        Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?)
    }

    /// A command in the tree, which sees these folders of the machine, read only, at the places
    /// named with them. What it starts ends with it.
    pub(crate) fn inside(
        &self,
        has_network: bool,
        folders: &[(&Path, &str)],
        command: &[&str],
    ) -> Command {
        let mut all = Command::new("unshare");
        all.args(UNSHARE).env_clear().env("PATH", PATH).env("HOME", "/root");
        all.env("LC_ALL", "C.UTF-8").env("DEBIAN_FRONTEND", "noninteractive");
        if has_network {
            let set = |name| Some((name, std::env::var_os(name)?));
            all.envs(PROXIES.into_iter().filter_map(set));
        } else {
            all.arg("--net");
        }
        all.args(["--", "/bin/sh", "-c", ENTER]).arg(&self.0);
        for (folder, place) in folders {
            all.arg(folder).arg(place);
        }
        all.arg("--").args(command);
        all
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // Its mounts were those of a namespace that is gone.
        let mut command = Command::new("rm");
        let _ = command.args(["-r", "-f", "--one-file-system", "--"]).arg(&self.0).status();
    }
}

/// The packed tree, made when there is none.
fn packed(suite: &str, variant: &str, packages: &[&str]) -> Result<PathBuf> {
    let home = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    let folder = home.context("neither XDG_CACHE_HOME nor HOME is set")?.join("nearcast");
    fs::create_dir_all(&folder)?;
    let name = [&[suite, variant], packages].concat().join("-");
    let packed = folder.join(format!("{name}.tar"));
    if packed.exists() {
        return Ok(packed);
    }
    say(&format!("making a bare Debian, {suite}, once"));
    let half = packed.with_extension("half.tar");
    let mut command = Command::new("mmdebstrap");
    command.arg(format!("--variant={variant}")).arg("--aptopt=APT::Sandbox::User \"root\"");
    if !packages.is_empty() {
        command.arg(format!("--include={}", packages.join(",")));
    }
    command.arg(suite).arg(&half).args(mirror()).stdout(Stdio::null());
    ensure!(command.status().context("mmdebstrap does not start")?.success(), "mmdebstrap failed");
    fs::rename(half, &packed)?;
    Ok(packed)
}

/// Where this machine has its Debian from; none for mmdebstrap's own choice.
fn mirror() -> Option<String> {
    let sources = fs::read_to_string("/etc/apt/sources.list.d/debian.sources").ok()?;
    sources.lines().find_map(|line| line.strip_prefix("URIs: ")).map(str::to_owned)
}
