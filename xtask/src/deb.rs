//! Debian packages, made from `packaging/` and the programs in the target folder.
//!
//! ```text
//! packaging/NAME/DEBIAN  ─┐ version, architecture, libraries
//! packaging/NAME/root    ─┼─> target/deb/NAME/ ── dpkg-deb ──> target/deb/NAME_VERSION_ARCH.deb
//! target/PROFILE/PROGRAM ─┘ stripped; it writes its completions and manual pages
//! ```

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::{say, workspace};

/// The packages. Each has the program of its name, which writes its own completions and manual.
const PACKAGES: [&str; 4] =
    ["nearcast-appliance", "nearcast-agent", "nearcast-control", "nearcast"];

const MAINTAINER: &str = "Nearcast maintainers <maintainers@nearcast.org>";
/// The libraries that a program in Rust needs, where dpkg-shlibdeps is not there to find out.
const LIBRARIES: &str = "libc6 (>= 2.36), libgcc-s1";

/// Makes all packages from programs of `profile`'s folder; gives their paths.
pub(crate) fn build(root: &Path, programs: &Path) -> Result<Vec<PathBuf>> {
    let out = target(root).join("deb");
    let _ = fs::remove_dir_all(&out);
    let commit = |format| said(Command::new("git").args(["log", "-1", format]).current_dir(root));
    let about = About {
        version: version(root)?,
        architecture: said(Command::new("dpkg").arg("--print-architecture"))?,
        date: commit("--format=%aD")?,
        epoch: commit("--format=%at")?,
    };
    let mut made = Vec::new();
    for name in PACKAGES {
        let package = Package { root, name, tree: out.join(name), about: &about };
        made.push(package.make(programs).with_context(|| format!("package {name}"))?);
    }
    for path in &made {
        say(&format!("deb: {}", path.display()));
    }
    Ok(made)
}

/// The folder of cargo's output.
pub(crate) fn target(root: &Path) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    target.unwrap_or_else(|| root.join("target"))
}

/// The parts that all packages share. Dates are the last commit's, so that the same sources make
/// the same.
struct About {
    version: String,
    architecture: String,
    date: String,
    epoch: String,
}

struct Package<'a> {
    root: &'a Path,
    name: &'a str,
    tree: PathBuf,
    about: &'a About,
}

impl Package<'_> {
    fn make(&self, programs: &Path) -> Result<PathBuf> {
        let from = self.root.join("packaging").join(self.name);
        copy_tree(&from.join("DEBIAN"), &self.tree.join("DEBIAN"))?;
        if from.join("root").is_dir() {
            copy_tree(&from.join("root"), &self.tree)?;
        }
        let program = self.tree.join("usr/bin").join(self.name);
        put(&program, &fs::read(programs.join(self.name)).context("build the programs first")?)?;
        mode(&program, 0o755)?;
        run(Command::new("strip").arg("--strip-unneeded").arg(&program))?;
        self.documents(&program)?;
        self.control(&program)?;
        let About { version, architecture, epoch, .. } = self.about;
        let file = format!("{}_{version}_{architecture}.deb", self.name);
        let made = self.tree.with_file_name(file);
        run(Command::new("dpkg-deb")
            .args(["--root-owner-group", "-Zxz", "-z1", "--build"])
            .env("SOURCE_DATE_EPOCH", epoch)
            .arg(&self.tree)
            .arg(&made))?;
        Ok(made)
    }

    /// Changelog, copyright, how to install, completions for shells and manual pages.
    fn documents(&self, program: &Path) -> Result<()> {
        let About { version, date, .. } = self.about;
        let documents = self.tree.join("usr/share/doc").join(self.name);
        for source in ["packaging/copyright", "CHANGELOG.md", "docs/operate/install.md"] {
            let name = source.rsplit('/').next().unwrap_or(source);
            put(&documents.join(name), &fs::read(self.root.join(source))?)?;
        }
        let changes = format!(
            "{} ({version}) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n \
             -- {MAINTAINER}  {date}\n",
            self.name
        );
        put(&documents.join("changelog"), changes.as_bytes())?;
        compress(&documents.join("changelog"))?;
        compress(&documents.join("CHANGELOG.md"))?;
        let share = self.tree.join("usr/share");
        run(Command::new(program).arg("manual").arg(&share))?;
        for path in files(&share)? {
            let path = share.join(path);
            mode(&path, 0o644)?;
            // What the program made has the folders' modes of this process.
            path.ancestors()
                .skip(1)
                .take_while(|above| above.starts_with(&share))
                .try_for_each(|above| mode(above, 0o755))?;
            if path.parent().and_then(Path::file_name).is_some_and(is_manual) {
                compress(&path)?;
            }
        }
        Ok(())
    }

    /// The control file completed, the list of configuration files, and checksums.
    fn control(&self, program: &Path) -> Result<()> {
        let About { version, architecture, .. } = self.about;
        let control = self.tree.join("DEBIAN/control");
        let given = fs::read_to_string(&control)?;
        let (first, rest) = given.split_once('\n').context("an empty control file")?;
        let files = files(&self.tree)?;
        let installed = files.iter().filter(|path| !path.starts_with("DEBIAN"));
        let installed: Vec<_> = installed.collect();
        let mut size = 0;
        let mut sums = String::new();
        for path in &installed {
            size += fs::metadata(self.tree.join(path))?.len().div_ceil(1024);
            let sum = said(Command::new("md5sum").arg("--").arg(self.tree.join(path)))?;
            let sum = sum.split_whitespace().next().context("md5sum says nothing")?;
            sums.push_str(&format!("{sum}  {}\n", path.display()));
        }
        let text = format!(
            "{first}\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: {MAINTAINER}\n\
             Priority: optional\nInstalled-Size: {size}\n{}",
            rest.replace("${shlibs:Depends}", &libraries(program)?)
        );
        put(&control, text.as_bytes())?;
        put(&self.tree.join("DEBIAN/md5sums"), sums.as_bytes())?;
        let settings = installed.iter().filter(|path| path.starts_with("etc"));
        let settings: String = settings.map(|path| format!("/{}\n", path.display())).collect();
        if !settings.is_empty() {
            put(&self.tree.join("DEBIAN/conffiles"), settings.as_bytes())?;
        }
        for script in ["postinst", "prerm", "postrm"] {
            let path = self.tree.join("DEBIAN").join(script);
            if path.exists() {
                mode(&path, 0o755)?;
            }
        }
        Ok(())
    }
}

fn version(root: &Path) -> Result<String> {
    let manifest: toml::Table = fs::read_to_string(root.join("Cargo.toml"))?.parse()?;
    let version = manifest.get("workspace").and_then(|table| table.get("package"));
    let version = version.and_then(|table| table.get("version")).and_then(|text| text.as_str());
    version.map(str::to_owned).context("Cargo.toml has no [workspace.package] version")
}

/// The packages whose libraries the program loads, with the versions that have all its symbols.
fn libraries(program: &Path) -> Result<String> {
    if Command::new("dpkg-shlibdeps").arg("--version").output().is_err() {
        return Ok(LIBRARIES.to_owned());
    }
    // It wants to stand in a source package.
    let place = program.with_extension("shlibs");
    put(
        &place.join("debian/control"),
        b"Source: nearcast\n\nPackage: nearcast\nArchitecture: any\n",
    )?;
    let mut command = Command::new("dpkg-shlibdeps");
    let found = said(command.arg("-O").arg("-e").arg(program).current_dir(&place));
    fs::remove_dir_all(&place)?;
    let found = found?;
    let list = found.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
    list.map(str::to_owned).context("dpkg-shlibdeps finds no library")
}

/// True of the folder of a section of manuals.
fn is_manual(folder: &OsStr) -> bool {
    folder.to_str().is_some_and(|name| name.starts_with("man") && name != "man")
}

fn compress(path: &Path) -> Result<()> {
    run(Command::new("gzip").args(["-9", "-n", "--force", "--"]).arg(path))
}

/// Copies a folder's files, to be read by all and written by their owner.
fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    for path in files(from)? {
        put(&to.join(&path), &fs::read(from.join(&path))?)?;
    }
    Ok(())
}

/// All files below a folder, relative to it, in order.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let below = workspace::files_below(folder, &[])?;
    below.iter().map(|path| Ok(path.strip_prefix(folder)?.to_owned())).collect()
}

fn put(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut above: Vec<_> = path.ancestors().skip(1).take_while(|path| !path.exists()).collect();
    while let Some(folder) = above.pop() {
        fs::create_dir(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        mode(folder, 0o755)?;
    }
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
    mode(path, 0o644)
}

fn mode(path: &Path, mode: u32) -> Result<()> {
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?)
}

fn run(command: &mut Command) -> Result<()> {
    said(command).map(drop)
}

/// A command's output, trimmed; its errors if it fails.
pub(crate) fn said(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("{name} does not start"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name}: {}: {}", output.status, errors.trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_package_has_what_debian_wants() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for name in PACKAGES {
            let folder = root.join("packaging").join(name);
            let control = fs::read_to_string(folder.join("DEBIAN/control")).unwrap();
            assert!(control.starts_with(&format!("Package: {name}\nSection: ")), "{control}");
            assert!(control.contains("${shlibs:Depends}"), "{name}");
            let unit = folder.join(format!("root/lib/systemd/system/{name}.service"));
            let Ok(unit) = fs::read_to_string(unit) else { continue };
            for needed in ["NoNewPrivileges=yes", "ProtectSystem=strict", "SystemCallFilter="] {
                assert!(unit.contains(needed), "{name}: {needed}");
            }
            let script = fs::read_to_string(folder.join("DEBIAN/postinst")).unwrap();
            let users = format!("usr/lib/sysusers.d/{name}.conf");
            assert!(folder.join("root").join(users).exists(), "{name}");
            assert!(script.contains(&format!("systemd-sysusers {name}.conf")), "{name}");
        }
    }
}
