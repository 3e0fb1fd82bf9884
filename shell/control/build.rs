//! Embeds the built pages (`web/dist`) into the binary. Without them the table is empty, and the
//! process says so at `/`: the control plane must build and serve where there is no npm.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let dist = PathBuf::from(variable("CARGO_MANIFEST_DIR")).join("web").join("dist");
    // Cargo watches a directory that is there, and runs this anew at every build for one that is
    // not; an empty one costs less. Not `web` as a whole: its node_modules is large.
    let _ = fs::create_dir_all(&dist);
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=web/dist");
    let mut files = Vec::new();
    if dist.is_dir() {
        collect(&dist, &mut files)?;
    }
    // As text, which is how they are searched; paths compare part by part.
    files.sort_by_key(|file| file.display().to_string());
    let mut table = String::from("[\n");
    for file in files {
        let name = file.strip_prefix(&dist).map_err(io::Error::other)?;
        let name = name.to_str().ok_or_else(|| io::Error::other("a page's name is not UTF-8"))?;
        println!("cargo:rerun-if-changed=web/dist/{name}");
        writeln!(
            table,
            "    ({name:?}, include_bytes!({:?}).as_slice()),",
            file.display().to_string()
        )
        .map_err(io::Error::other)?;
    }
    table.push(']');
    fs::write(PathBuf::from(variable("OUT_DIR")).join("pages.rs"), table)
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

fn variable(name: &str) -> String {
    env::var(name).expect("cargo sets this for build scripts")
}
