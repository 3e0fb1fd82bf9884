//! Debian packages, made from `packaging/` and the programs in the target folder.
//!
//! ```text
//! packaging/NAME/DEBIAN  ─┐ version, architecture, libraries
//! packaging/NAME/root    ─┼─> target/deb/NAME/ ── dpkg-deb ──> target/deb/NAME_VERSION_ARCH.deb
//! target/PROFILE/PROGRAM ─┘ stripped, its help as a manual page
//! ```

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::{say, workspace};

/// A package, and the verbs of its program that a manual page shows.
pub(crate) const PACKAGES: [(&str, &[&str]); 4] = [
    ("nearcast-appliance", &["serve", "format", "inspect", "check", "config"]),
    ("nearcast-agent", &["serve", "addresses", "config", "drives", "health", "trim"]),
    ("nearcast-control", &["serve", "migrate", "config"]),
    ("nearcast", &["ingest", "apply", "export", "explain", "origin", "demo"]),
];

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
    for (name, verbs) in PACKAGES {
        let package = Package { root, name, tree: out.join(name), about: &about };
        made.push(package.make(programs, verbs).with_context(|| format!("package {name}"))?);
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
    fn make(&self, programs: &Path, verbs: &[&str]) -> Result<PathBuf> {
        let from = self.root.join("packaging").join(self.name);
        copy_tree(&from.join("DEBIAN"), &self.tree.join("DEBIAN"))?;
        if from.join("root").is_dir() {
            copy_tree(&from.join("root"), &self.tree)?;
        }
        let program = self.tree.join("usr/bin").join(self.name);
        put(&program, &fs::read(programs.join(self.name)).context("build the programs first")?)?;
        mode(&program, 0o755)?;
        run(Command::new("strip").arg("--strip-unneeded").arg(&program))?;
        self.documents(&program, verbs)?;
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

    /// Changelog, copyright, how to install, and a manual page.
    fn documents(&self, program: &Path, verbs: &[&str]) -> Result<()> {
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
        let page = self.tree.join(format!("usr/share/man/man1/{}.1", self.name));
        put(&page, manual(self.name, version, program, verbs)?.as_bytes())?;
        compress(&page)
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

/// A manual page with the program's own help on its verbs.
fn manual(name: &str, version: &str, program: &Path, verbs: &[&str]) -> Result<String> {
    let whole = said(Command::new(program).arg("--help"))?;
    let first = whole.lines().next().unwrap_or_default().trim_end_matches('.');
    let mut page = format!(
        ".TH {} 1 \"\" \"nearcast {version}\" \"User Commands\"\n.SH NAME\n{name} \\- {}\n\
         .SH DESCRIPTION\n.nf\n{}\n.fi\n",
        name.to_uppercase(),
        roff(first),
        roff(&whole)
    );
    for verb in verbs {
        let help = said(Command::new(program).args([verb, "--help"]))?;
        page.push_str(&format!(".SH {}\n.nf\n{}\n.fi\n", verb.to_uppercase(), roff(&help)));
    }
    Ok(page)
}

/// Text that roff leaves alone.
fn roff(text: &str) -> String {
    let line = |line: &str| {
        let line = line.trim_end().replace('\\', "\\e").replace('-', "\\-");
        if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
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
    fn help_is_left_alone_by_roff() {
        assert_eq!(roff(".dot\n'quote\n --flag  \n\\n"), "\\&.dot\n\\&'quote\n \\-\\-flag\n\\en");
    }

    #[test]
    fn each_package_has_what_debian_wants() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for (name, _) in PACKAGES {
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
