//! Programs of another Debian, unpacked into a folder with all that they need: they run by the
//! folder's own dynamic loader, so that libc and the TLS library are that Debian's, too.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

const LOADERS: [&str; 2] = ["usr/lib64/ld-linux-x86-64.so.2", "lib64/ld-linux-x86-64.so.2"];
const LIBRARIES: [&str; 4] = ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu", "usr/lib", "lib"];

/// The command for `path` of the peer called `name`, in `peers/` beside this program's folder.
pub(super) fn program(name: &str, path: &str) -> Result<Vec<String>> {
    let own = std::env::current_exe()?;
    let target = own.ancestors().nth(2).context("a program that is in no folder")?;
    command(&target.join("peers").join(name), path).with_context(|| {
        format!("{name} is not unpacked: ./x lab compare --peer {name} does it (amd64 only)")
    })
}

fn command(folder: &Path, path: &str) -> Result<Vec<String>> {
    let there = |paths: &[&str]| -> Vec<PathBuf> {
        paths.iter().map(|path| folder.join(path)).filter(|path| path.exists()).collect()
    };
    let text = |path: &PathBuf| path.display().to_string();
    let loader = there(&LOADERS).first().map(text);
    let loader = loader.with_context(|| format!("{}: no loader", folder.display()))?;
    let program = there(&[path]).first().map(text);
    let program = program.with_context(|| format!("{}: no {path}", folder.display()))?;
    let libraries: Vec<String> = there(&LIBRARIES).iter().map(text).collect();
    Ok(vec![loader, "--library-path".to_owned(), libraries.join(":"), program])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_runs_by_the_loader_and_the_libraries_of_its_folder() {
        let room = tempfile::tempdir().unwrap();
        let root = room.path();
        assert!(command(root, "usr/sbin/nginx").is_err());
        for (folder, file) in [
            ("usr/lib64", "ld-linux-x86-64.so.2"),
            ("usr/lib/x86_64-linux-gnu", "libc.so.6"),
            ("usr/sbin", "nginx"),
        ] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
            std::fs::write(root.join(folder).join(file), "").unwrap();
        }
        let shown = root.display();
        let wanted = [
            format!("{shown}/usr/lib64/ld-linux-x86-64.so.2"),
            "--library-path".to_owned(),
            format!("{shown}/usr/lib/x86_64-linux-gnu:{shown}/usr/lib"),
            format!("{shown}/usr/sbin/nginx"),
        ];
        assert_eq!(command(root, "usr/sbin/nginx").unwrap(), wanted);
        assert!(command(root, "usr/sbin/h2o").is_err());
    }
}
